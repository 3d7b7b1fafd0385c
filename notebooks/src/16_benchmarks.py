# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 16 · Benchmarks
#
# **You will be able to** time a GPU kernel so that the number means something, say what holds a kernel back, and see through a benchmark that flatters.
#
# **You need** chapters 06, 07, 10 and 11; chapters 12 and 12b explain the last kernel · **sittings 1 to 4:** 25, 30, 35 and 40 minutes · **runs on** CPU (recorded figures) or GPU (a live run of a minute or two)
#
# Two of the course's forward kernels are compared here: the first, of chapter 10, and the last, for Hopper GPUs. Their rivals are naive attention and PyTorch's `scaled_dot_product_attention` (SDPA), which has several backends:
#
# | backend | what it runs |
# |---|---|
# | `math` | one operation after the other |
# | `efficient`, `flash` | fused kernels; `flash` is FlashAttention-2 in CUDA, by its authors |
# | `cudnn` | NVIDIA's fused kernel |
#
# The records are of PyTorch 2.11. (In 2.13, `activate_flash_attention_impl` can replace `flash` by FlashAttention-3 or 4.) FlashAttention-4 was recorded in a run of its own.

# %%
import flashlab  # first: it tells Triton where to run
from flashlab import cost
from flashlab_course import bench, figures
from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.skip import skip_the_rest

try:
    loaded, source = bench.live_or_recorded()
    counters, loaded_backward = bench.load_results("counters_h100"), bench.load_results("backward_h200")
    recorded, on_h200 = bench.load_results("forward_h100"), bench.load_results("forward_h200")
    beside_4 = bench.load_results("forward_h200", "FlashAttention-4")
    print(f"Run times below are {source}.\nCounters are recorded on {bench.where(counters)},")
    print(f"the backward pass on {bench.where(loaded_backward)}.")
except FileNotFoundError as error:
    print(str(error).replace(f"{bench.ROOT}/", ""))
    skip_the_rest("There are no results to plot.")

# %% [markdown]
# The line below each picture says whether its numbers are modelled, measured here, or recorded, and on which device.
#
# **Your kernel.** On a GPU this cell also measures your `ex10_triton_forward` and `ex11_dkdv`, once they pass. They appear as "yours" in every plot of run times. The last sitting shows what can be said of them without a GPU.

# %%
from flashlab_course.lesson import compare, yours

results, backward = yours.into(loaded), yours.into(loaded_backward)
for run, exercise in ((results, "ex10_triton_forward"), (backward, "ex11_dkdv")):
    if any(row["implementation"] == "yours" for row in run["rows"]):
        print(f"{exercise}: in the plots, measured here" + ("" if run is results else "; its rivals are recorded"))
    else:
        print(f"{exercise}: " + ("passes; without a GPU its time stays open" if yours.answer(exercise) else "has not passed yet"))

# %% [markdown]
# Choose a head dimension and a mask. At the end, change them and run everything again.

# %%
d, causal = 128, False                               # change me: 64 or 128, False or True

# %% [markdown]
# The cells below share these names.

# %%
from dataclasses import replace

from flashlab_course.figures.chapter_16 import first_kernel_name, kernel_name, shown
from flashlab_course.figures.words import label             # "sdpa_flash" -> "SDPA flash"


def measured(name, d=d, causal=causal, results=results):
    """N -> row of one implementation, without what was skipped."""
    return {r["N"]: r for r in results["rows"]
            if (r["implementation"], r["d"], r["causal"]) == (name, d, causal) and not r["skipped"]}


def in_units(said, unit):
    """The same prediction, times `unit`."""
    return replace(said, guess=said.guess * unit if isinstance(said.guess, (int, float)) else None)

# %%
live = source.startswith("measured")
how = "measured here" if live else "recorded"
ours = kernel_name(results)                          # the last kernel of the course's ladder that was measured
simple = first_kernel_name(results)                  # the first one, chapter 10's
kernel, naive = measured(ours), measured("naive_forward")
others = {name: measured(name) for name in shown(results) if name != ours}
first, last = min(kernel), max(kernel)
copy, matmul = results["ceilings"]["copy_tb_s"], results["ceilings"]["matmul_tflops"]
print(f"“The kernel” below is {label(ours)}, “the first kernel” {label(simple)}.")
print(f"A copy moves {copy:.2f} TB/s, a large matrix product does {matmul:.0f} TFLOP/s ({how}).")

# %% [markdown]
# ## Sitting 1 · What is measured, and how
#
# ### The sizes
#
# Long texts come in small batches. So papers keep the number of tokens, $B \cdot N$, the same for every $N$, and this course does the same. Attention needs $4 B H N^2 d$ FLOPs without a mask. **Predict**: the largest $N$ is {{last // first}} times the smallest. How many times the FLOPs does it need?

# %%
my_flops_factor = None

# %%
Ns = sorted(kernel)
said = compare("FLOPs at the largest N against the smallest", my_flops_factor, last // first, "times", reasons={
    (last // first) ** 2: "That is the factor for one sequence. Here the batch shrinks as N grows.",
    1: "The bytes stay the same. But every query meets all N keys."})
grows = {"FLOPs": {N: N / Ns[0] for N in Ns}, "bytes of Q, K, V, O": dict.fromkeys(Ns, 1), "FLOPs of one sequence": {N: (N / Ns[0])**2 for N in Ns}}
said.on(figures.curves(grows, f"At constant batch × N, {last // first} times the length means {last // first} times the FLOPs, on as many bytes",
                       "Modelled: 4·B·H·N²·d FLOPs without a mask, 2·B·H·N·d bytes in each tensor.", "N", f"times as much as at N = {first}",
                       log="xy"), x=last)

# %% [markdown]
# **Takeaway.** At constant $B \cdot N$ the inputs stay the same and the work grows like $N$.
#
# ### Correct first
#
# Here is an attention that needs half the time, because it leaves out every second key. Give it to the benchmark on this machine's CPU, next to naive attention. `measure` is the loop behind all run times in this chapter:

# %%
import inspect
import time


def cpu_ms(function, runs=20):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


print(inspect.getsource(bench.measure))
Q, K, V = bench.inputs(bench.Problem(N=512, d=64, dtype="float32", H=2), "cpu")
calls = {"naive_forward": lambda: bench.naive_over_heads(Q, K, V, False),
         "every_second_key": lambda: bench.naive_over_heads(Q, K[:, :, ::2], V[:, :, ::2], False)}
rows = bench.measure(calls, lambda call: bench.check(call, Q, K, V), rounds=1, timer=cpu_ms)
for name, row in rows.items():
    print(name, f"{row['ms']:.1f} ms here; correct" if row["ms"] else f"no time; {row['skipped']}")

# %% [markdown]
# Every call is first compared with float64, on the tensors that will be timed. A wrong one gets a reason instead of a number. But those tensors are ordinary random numbers.
#
# **Your turn** (10 minutes). Write an attention that is timed here and is wrong all the same: the next cell runs it on scores 60 times as large. If you have no idea: chapter 03 began with a softmax that is not safe.

# %%
def mine(Q, K, V, causal):
    return bench.naive_over_heads(Q, K, V, causal)   # change me: return O, L; or O, None

# %%
from flashlab.oracle import judge

rows = bench.measure({"mine": lambda: mine(Q, K, V, False)}, lambda call: bench.check(call, Q, K, V), rounds=1, timer=cpu_ms)
O, L = mine(60 * Q, K, V, False)
print("random numbers:        ", rows["mine"]["skipped"] or "admitted, and timed")
print("scores 60 times larger:", judge(O, L, 60 * Q, K, V))

# %% [markdown]
# **Takeaway.** A wrong function has no speed. A check knows only the inputs that it is given, so this course's exercises are checked on large scores, too.
#
# ### What a time is
#
# Call one function a few hundred times, and the clock gives a few hundred answers.
#
# **Your turn** (5 minutes). Which single number would you report? The cell below deals 1000 calls to five lists in turn, and says how far each choice moves from list to list.

# %%
def one_number(ms):
    return None                                      # your turn: a number, from a list of times in ms

# %%
import statistics

import torch

torch.manual_seed(0)
Q = torch.randn(1, 4, 128, 64)
calls = cpu_ms(lambda: torch.nn.functional.scaled_dot_product_attention(Q, Q, Q), runs=1000)
runs = [calls[n::5] for n in range(5)]               # in turn: what slows the machine for a while slows all five lists
choices = {"mean": statistics.mean, "median": statistics.median, "slowest": max, "yours": one_number}
choices = {name: choice for name, choice in choices.items() if choice(runs[0]) is not None}
for name, choice in choices.items():
    found = [choice(ms) for ms in runs]
    print(f"{name:<8} {min(found):.4f} to {max(found):.4f} ms in five lists: {max(found) / min(found) - 1:.0%} apart (measured here)")
marks = {name: choice(calls) for name, choice in choices.items()}
first_call, slowest = calls[0] / marks["median"], max(calls) / marks["median"]
figures.curves({"": dict(enumerate(calls, 1))}, f"The first call takes {first_call:.1f} times the median, the slowest {slowest:.0f} times",
               "Measured here, on the CPU: scaled_dot_product_attention, 128 tokens, 4 heads.", "call", "ms", log="xy", dots=True, ceilings=marks)

# %% [markdown]
# The first calls pay for set-up. So run the function a few times before you measure (*warm-up*), and throw those times away. Later one slow call moves the mean of a list, and hardly its median. A machine that is busy for most of a list moves both: hence the turns.
#
# A GPU adds four traps. `flashlab_course/bench/timing.py` avoids them:
#
# | trap | remedy |
# |---|---|
# | a launch returns before the work is done | the GPU's own *events* take the time (chapter 09) |
# | inputs stay in the L2 cache | L2 is overwritten between runs |
# | the clock rate drops as the chip warms up | the contestants take turns |
# | another day, another machine | a speed is compared within one run |
#
# How far do repeated runs differ after all this?

# %%
widest = max(100 * (r["ms_high"] - r["ms_low"]) / r["ms"] for r in results["rows"] if r["ms"])
spreads = {}
for r in sorted((r for r in results["rows"] if r["ms"]), key=lambda r: r["ms"]):
    spreads.setdefault(r["implementation"], {})[r["ms"]] = 100 * (r["ms_high"] - r["ms_low"]) / r["ms"]
middle = statistics.median(spread for line in spreads.values() for spread in line.values())
figures.curves({name: spreads[name] for name in (ours, *others) if name in spreads}, f"Repeated runs usually spread by {middle:.1f} %, at most by {widest:.0f} %",
               f"{source[0].upper()}{source[1:]}.", "median run time (ms)", "80th − 20th percentile (%)", log="x", dots=True)

# %% [markdown]
# **Takeaway.** Warm-up, events, cold cache, turns, median. A kernel is *ahead* only if both have three runs or more, and the ranges from the 20th to the 80th percentile do not overlap. Otherwise the two are *tied*.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 · Time, memory, speed
#
# ### Run time
#
# The FLOPs grow {{last // first}} times. **Predict**: how many times as long does the kernel take at the largest $N$ as at the smallest?

# %%
my_growth = None

# %%
said = compare("growth of the kernel's time", my_growth, kernel[last]["ms"] / kernel[first]["ms"], "times", reasons={
    last // first: "The FLOPs grow that much. At the smallest N another part of the time does not grow. Sitting 3 looks for it.",
    (last // first) ** 2: "At constant B·N the FLOPs grow like N."})
in_units(said, kernel[first]["ms"]).on(figures.benchmark(results, "ms", d, causal, live=live), x=last)

# %% [markdown]
# Both axes are logarithmic: a line of slope 1 grows like the FLOPs. Naive attention's bends down at the end; why is not known. At the largest $N$ the batch is 1, the case that FlashAttention was written for.
#
# **Takeaway.** The gap between naive and fused attention is mostly memory traffic. All fused kernels keep $S$ on the chip; what separates them is how well they use the chip.
#
# ### Peak memory
#
# Only what a call adds to its inputs counts. **Predict** the peak of the kernel at the largest $N$, in MiB. It writes $O$ in 16 bits and $L$ in 32. Together the heads have 2048 columns.

# %%
my_mib = None

# %%
peak = kernel[last]["peak_bytes"]
O_and_L = kernel[last]["B"] * kernel[last]["H"] * last * (2 * d + 4)
print(f"N = {last}: O and L are {O_and_L / 2**20:.1f} MiB (modelled), the kernel's peak is {peak / 2**20:.1f} MiB ({how})")
said = compare("peak of the kernel at the largest N", my_mib, peak / 2**20, "MiB")
in_units(said, 2**20).on(figures.benchmark(results, "peak_bytes", d, causal, live=live))

# %% [markdown]
# On a logarithmic axis a large factor looks small. Here is the same at one size on a straight axis:

# %%
row = naive[max(naive)]
peaks = {name: rows[row["N"]]["peak_bytes"] / 2**30 for name, rows in {ours: kernel, **others}.items() if row["N"] in rows}
matrices = row["peak_bytes"] / (2 * row["B"] * row["H"] * row["N"]**2)
figures.bars(peaks, f"Naive attention holds {matrices:.1f} matrices of N × N for each head at once",
             f"{source[0].upper()}{source[1:]}. N = {row['N']}, d = {d}, batch {row['B']}, beyond Q, K, V.", "GiB")

# %% [markdown]
# The kernel needs room for its results. Naive attention also holds $S$ and $P$: at constant $B \cdot N$ they grow like $N$, and for a single sequence like $N^2$.
#
# **Takeaway.** No faster chip replaces $O(N)$ memory: without it long texts do not run at all.
#
# ### TFLOP/s
#
# Divide the FLOPs by the median time. The dashed line is a large matrix product of the same run: about the most that this GPU's tensor cores give in practice.

# %%
figures.benchmark(results, "tflops", d, causal, live=live)

# %% [markdown]
# The title names the nearest relative, SDPA flash: the same algorithm in CUDA. But it was written for the A100 and uses nothing newer. A fair reader asks for the fastest line.
#
# Which is the fastest at $d = 64$ with the causal mask? Say so, then change the two values and run.

# %%
figures.relative_speed(results, d, causal, live=live)     # change me: 64, True

# %% [markdown]
# **Your turn** (10 minutes). Write sitting 1's rule. Both rows are of one size and run, and have `ms`, `ms_low`, `ms_high` and `runs`. The cell judges it on an H200's record.

# %%
def stands(mine, theirs):
    return None                                      # your turn: "ahead", "tied" or "behind"


judged = []
for run, rival in ((on_h200, "sdpa_cudnn"), (beside_4, "fa4")):
    for row, ratio, tied in gains(run, kernel_name(run), rival):
        other = measured(rival, row["d"], row["causal"], run)[row["N"]]
        judged.append((row, other, "tied" if tied else "ahead" if ratio > 1 else "behind"))
        judged.append((row | {"runs": 2}, other, "tied"))
wrong = [(*rows, truth) for *rows, truth in judged if stands(*rows) != truth]
if stands(*judged[0][:2]) is None:
    print("Your rule is not written yet.")
elif not wrong:
    print(f"Right for all {len(judged)} pairs.")
else:
    print(f"Wrong for {len(wrong)} of {len(judged)} pairs. In the first of these your rule says {stands(*wrong[0][:2])}; it is {wrong[0][2]}:")
    print(*({key: row[key] for key in ("ms_low", "ms", "ms_high", "runs")} for row in wrong[0][:2]), sep="\n")

# %% [markdown]
# Here are all recorded sizes, with both head dimensions and both masks:

# %%
all_sizes = gains(recorded, kernel_name(recorded), "sdpa_cudnn")
behind = [f"N = {row['N']}, d = {row['d']}{', causal' if row['causal'] else ''}" for row, ratio, tied in all_sizes if not tied and ratio < 1]
figures.gain_of_rung(recorded, kernel_name(recorded), "sdpa_cudnn")

# %%
def version_of(name, run):
    """The version of a rival in a recorded run, in words."""
    torch_version, own = run["provenance"]["torch"], run["provenance"].get("flash-attn-4")
    return (own or "version not recorded") if name == "fa4" else f"of torch {torch_version}"


rivals = ("sdpa_cudnn", "sdpa_flash", "fa4")
print("; ".join(f"{label(name)}: {version_of(name, beside_4)}" for name in rivals))
from_all = gains(beside_4, "fa2_hopper_forward", rivals)               # at each size the fastest of these
figures.speeds_beside(beside_4, dict.fromkeys(("sdpa_flash", "sdpa_cudnn", "fa2_tma_forward", "fa2_hopper_forward")), "fa4")

# %% [markdown]
# Against cuDNN the kernel is {{standing(all_sizes)}}. It is behind at {{'; '.join(behind) or 'none'}}. In the run with FlashAttention-4, against the fastest of all three at each size, it is {{standing(from_all)}}. FlashAttention-3, made for this very GPU, has not been timed.
#
# **Takeaway.** Compare with the fastest rival, not with the most convenient one. Where the ranges overlap, say “tied”.
#
# ### Sizes that were not chosen
#
# All of this was bfloat16, $d$ = 64 or 128, and lengths that are powers of two. Look elsewhere:

# %%
from flashlab.ladder import KERNELS

runs_beyond = [bench.load_results("forward_h200", kind) for kind in ("float16", "wide heads", "long")]
of_cudnn, level = {}, {}
for row, ratio, tied in (found for run in runs_beyond for one in KERNELS for found in gains(run, one.name, "sdpa_cudnn")):
    size = f"{row['dtype']}, d = {row['d']}" + (f", N = {row['N']}" if row["N"] > 16384 else "")
    if not row["causal"] and row["N"] >= 16384 and ratio > of_cudnn.get(size, 0):
        of_cudnn[size], level[size] = ratio, tied
of_flex = gains(bench.load_results("forward_h200", "FlexAttention"), "flex_attention", "sdpa_cudnn")
flex_span = [ratio for _, ratio, _ in of_flex]
place = {size: "tied with" if level[size] else "ahead of" if ratio > 1 else "behind" for size, ratio in of_cudnn.items()}
figures.bars({size + ", tied" * level[size]: ratio for size, ratio in of_cudnn.items()}, f"In float16 at d = 128 {place['float16, d = 128']} cuDNN, at d = 256 {of_cudnn['bfloat16, d = 256']:.2f} times as fast",
             f"Recorded on {bench.where(bench.load_results('forward_h200', 'wide heads'))}, three recordings. Forward, no mask, N = 16384 where nothing is said.",
             "cuDNN's time over that of the course's best kernel")

# %% [markdown]
# Heads of 192 are the slowest: their tiles are 256 numbers wide, with zeros in a quarter of them.
#
# PyTorch's FlexAttention generates a kernel from your formula for a score: Triton code in PyTorch 2.11, recorded here. Without a formula of your own it has {{min(flex_span):.2f}} to {{max(flex_span):.2f}} times cuDNN's speed, and is {{standing(of_flex)}}.
#
# Some sizes appear in no benchmark. A sequence of 4095 tokens has a last tile with a row missing.

# %%
odd, shared = {}, {}
for what in ("forward", "backward"):
    ragged, heads = (bench.load_results(f"{what}_h200", record) for record in ("ragged", "shared heads"))
    speeds = {(row["N"], row["causal"]): row["tflops"] for row in ragged["rows"] if row["implementation"] == f"fa2_hopper_{what}"}
    for masked in (False, True):
        odd[f"{what}{', causal' if masked else ''}"] = speeds[4095, masked] / speeds[4096, masked]
    shared[what] = gains(heads, f"fa2_hopper_{what}", "sdpa_cudnn")
early, late = ({(row["N"], row["causal"]): row["tflops"] for row in bench.load_results("backward_h200", record)["rows"]
                if (row["implementation"], row["d"]) == ("fa2_hopper_backward", 128)} for record in ("shared heads, whole groups", "shared heads"))
figures.bars(odd, f"At 4095 tokens the kernels keep {min(odd.values()):.0%} of their speed at 4096, or more",
             f"Recorded on {bench.where(bench.load_results('forward_h200', 'ragged'))}; d = 128.", "times the speed at N = 4096")

# %% [markdown]
# If eight query heads share a key head, an eighth of the key blocks is left. Against cuDNN the forward pass is then {{standing(shared["forward"])}}; the backward pass is {{standing(shared["backward"])}}. At first the backward pass was slow. With a program for each key block of each key head, 8 key heads left 256 programs for 132 SMs. Under a mask the longest has 32 times the work of the shortest, and most SMs waited at the end. Now several programs own the same keys, and their dK and dV are added up at the end. Under a mask that took the speed at $N$ = 4096 from {{early[4096, True]:.0f}} to {{late[4096, True]:.0f}} TFLOP/s, between two runs.
#
# Windows and packed sequences were recorded, too:

# %%
spans = bench.load_results("spans_h200")["rows"]
kinds = {"a window of 2048, beside the causal mask": [row["times_faster"] for row in spans if row["left"]]}
kinds |= {f"packed sequences of {N}, beside a batch": [row["times_faster"] for row in spans if row["packed"] and row["N"] == N] for N in (1024, 4096)}
for what, ratios in kinds.items():
    print(f"{what}: {min(ratios):.2f} to {max(ratios):.2f} times the speed")
packed_before = {row["times_faster"]: row["N"] for row in bench.load_results("spans_h200", "before")["rows"] if row["packed"]}
window, all_of_it = 2048, 16384
by_scores = (all_of_it**2 / 2) / (window * all_of_it - window**2 / 2)

# %% [markdown]
# This window leaves so few scores that it could be {{by_scores:.1f}} times as fast. Tiles at both of its edges are computed whole and need a mask; what that costs has not been measured apart. At first packing cost up to {{100 * (1 - min(packed_before)):.0f}} % of the speed, at N = {{packed_before[min(packed_before)]}} (`results/spans_h200.json`, the run “before”, which also timed the making of `cu_seqlens`).
#
# **Takeaway.** A benchmark shows the sizes that somebody chose. Ask for yours.
#
# *End of sitting 2.*
#
# ## Sitting 3 · What holds a kernel back
#
# ### HBM bytes against the model
#
# The memory model charges every load to HBM, which the counters call DRAM. A GPU has an L2 cache in between. Counters are recorded for naive attention and for the first kernel, whose tiles have 128 queries. **Predict**: how many times does that kernel read $Q$, $K$ and $V$ together from DRAM at the largest $N$?

# %%
my_reads = None

# %%
counted = kernel_name(counters)
fused_rows = {r["N"]: r for r in counters["rows"] if r["implementation"] == counted and not r["skipped"]}
row = fused_rows[max(fused_rows)]
once = 3 * row["B"] * row["H"] * row["N"] * row["d"] * 2                     # bytes of Q, K and V
asked = once * (1 + 2 * cost.ceil_div(row["N"], 128)) / 3                     # by the programs
said = compare("times that Q, K and V are read from DRAM", my_reads, row["dram_read"] / once, reasons={
    asked / once: "The programs ask for that much. L2 serves nearly all the repeated reads.",
    cost.ceil_div(row["N"], 128): "K and V are asked for that often, Q once. And L2 serves nearly all the repeated reads."})
served = (asked - row["dram_read"]) / (asked - once)
naive_of_model = {r["N"]: (r["dram_read"] + r["dram_written"]) / r["H"] / cost.naive_forward(r["N"], r["N"], r["d"], element_size=2).traffic
                  for r in counters["rows"] if r["implementation"] == "naive_forward" and not r["skipped"]}
for point in yours.over_N([128, 256]):
    print(f"{point['rung']}, N = {point['N']}: {point['measured'] / point['formula']:.2f} times the formula's bytes (counted here)")
in_units(said, once).on(figures.model_vs_counters(counters), x=row["N"], ax=-1)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The model counts what the programs ask for. L2 sees less of the fused kernel's: some requests are joined or served before they reach it. It sees more of naive attention's, and the record does not say why. DRAM sees far less of the fused kernel: L2 serves {{served:.2%}} of the repeated reads of $K_j$ and $V_j$. Naive attention gains only while $S$ is small enough for L2. DRAM moves {{naive_of_model[min(naive_of_model)]:.2f}} times the model's bytes at $N$ = {{min(naive_of_model)}}, and {{naive_of_model[max(naive_of_model)]:.2f}} times at $N$ = {{max(naive_of_model)}}.
#
# </details>
#
# **Takeaway.** The model says what is asked for. The caches decide what it costs.
#
# ### Bytes set a limit
#
# No kernel moves bytes much faster than a plain copy does. So the bytes alone set a speed limit. Naive attention's four operations read or write a matrix of $N \times N$ six times, in 16 bits: the first product writes $S$, the scale and softmax each read and write one, the second product reads $P$. Each score takes $4d$ FLOPs. **Predict** the most TFLOP/s that naive attention could reach at $d = 64$, if a copy moves {{copy:.1f}} TB/s.

# %%
my_naive_limit = None     # TFLOP/s

# %%
points = []
for row in counters["rows"]:
    flops = cost.attention_flops(row["B"], row["H"], row["N"], row["N"], row["d"])
    nbytes = row["dram_read"] + row["dram_written"]
    points.append({"name": row["implementation"], "N": row["N"], "flops": flops, "bytes": nbytes,
                   "tflops": measured(row["implementation"], 64, False).get(row["N"], {}).get("tflops"),
                   "limit": min(matmul, flops / nbytes * copy)})
largest_N = max(fused_rows)
limits = {point["name"]: point["limit"] for point in points if point["N"] == largest_N}
said = compare("the most that naive attention's bytes allow", my_naive_limit, limits["naive_forward"], "TFLOP/s", reasons={
    128 * copy: "That lets each score cross once. It crosses six times.", 256 / 24 * copy: "The numbers have 2 bytes, not 4."})
words = f"Speeds {source}. Dashed: DRAM counters at B = 1, H = 16, recorded on an H100, at a copy's speed."
efficient = [row["tflops"] for row in measured("sdpa_efficient", 64, False, on_h200).values()]
reached = {point["N"]: point["tflops"] / point["limit"] for point in points if point["name"] == "naive_forward" and point["tflops"]}
said.on(figures.curves(figures.series(points, "N", "tflops", of="name"), f"At N = {largest_N} its bytes allow naive attention {limits['naive_forward']:.0f} TFLOP/s",
                       words, "N", "TFLOP/s", log="xy", dashed=figures.series(points, "N", "limit", of="name")), x=largest_N)

# %% [markdown]
# Naive attention's FLOPs and bytes both grow with $N^2$, so their ratio settles, and the limit with it. Naive attention reaches {{min(reached.values()):.0%}} to {{max(reached.values()):.0%}} of its limit. The fused kernel's bytes grow like $N$ only, and soon limit nothing.
#
# Two cautions. The counters saw 16 heads, the clock 32: we assume that a head's bytes stay the same. And the fused kernel's bytes are slightly too few: what still sits in L2 at the end was never counted as written.
#
# **Takeaway.** A flat line alone proves nothing. SDPA efficient stores no $S$, so its bytes do not limit it. Yet its line is flat, too: {{min(efficient):.0f}} to {{max(efficient):.0f}} TFLOP/s at $d = 64$, on an H200.
#
# ### Right of the ridge
#
# A *roofline* shows the same: the slope is memory, the flat part is arithmetic, and they meet at the ridge. **Predict**: how many FLOPs for each byte of DRAM does the first kernel do at $N$ = {{largest_N}}? It moves little more than $Q$, $K$, $V$ and $O$ once, in 16 bits.

# %%
my_intensity = None     # FLOPs a byte

# %%
longest = [point | {"op": label(point["name"]), "rung": point["name"]} for point in points if point["N"] == largest_N]
fused_point = next(point for point in longest if point["name"] == counted)
said = compare("FLOPs a byte of the fused kernel", my_intensity, fused_point["flops"] / fused_point["bytes"], reasons={
    largest_N: "Each number has 2 bytes.", largest_N / 4: "A multiplication and an addition are 2 FLOPs, and there are two products."})
said.on(figures.roofline(longest, copy, matmul, f"Speeds {source}; bytes: DRAM counters at B = 1, H = 16, recorded."), axis="x")

# %% [markdown]
# Play it: as $N$ doubles, which operation moves to the right, and does it become faster?

# %%
from math import log2

from flashlab_course.player.page import Player
from flashlab_course.player.scene import Scene

at = lambda per_byte, tflops: (30 * log2(per_byte / 8), 30 * log2(1024 / tflops))                    # pixels
scene, lengths = Scene("As N doubles, on the roofline", "#7a1fa2", 420, 180), sorted(fused_rows)
for per_byte in (8 * 2 ** (n / 8) for n in range(92)):
    scene.rect(*at(per_byte, min(matmul, per_byte * copy)), 2, 2, "read")
for name in limits:
    way = [at(point["flops"] / point["bytes"], point["tflops"]) for point in points if point["name"] == name]
    for n, (x, y) in enumerate(way):
        scene.rect(x - 3, y - 3, 6, 6, ["written" if n < step else "span" for step in range(len(way))])
    scene.rect([x - 6 for x, _ in way], [y - 6 for _, y in way], 12, 12, "block new glide")
    scene.text([x + 10 for x, _ in way], [y + 18 for _, y in way], "small strong", label(name))
scene.add("status", look="told", text=[f"N = {N}\n" + "\n".join(
    f"{label(point['name'])}: {point['flops'] / point['bytes']:,.0f} FLOPs a byte, {point['tflops']:.0f} TFLOP/s" for point in points if point["N"] == N)
    for N in lengths])
scene.moved, scene.tiles = lengths, list(range(len(lengths)))
Player([scene], keys=f"<span>Dotted: the roof, {copy:.1f} TB/s and {matmul:.0f} TFLOP/s. Across: FLOPs a byte. Up: TFLOP/s. Both logarithmic.</span>", units=("length", "length"))

# %% [markdown]
# **Exercise: the roofline** ([exercises/ex16_roofline.py](../exercises/ex16_roofline.py), 10 minutes). Predict a kernel's place from its FLOPs and bytes. The last sitting places your kernels by it.

# %%
from flashlab_course.check import check

check("ex16_roofline")

# %%
from flashlab_course.lesson import reveal

reveal("ex16_roofline")

# %% [markdown]
# Right of the ridge a kernel does not wait for DRAM. Does it wait for the tensor cores? At $d = 64$ the first kernel reaches {{fused_point['tflops'] / matmul:.0%}} of a matrix product's speed.
#
# Each score also needs one exponential, and exponentials have units of their own: an H100 has 132 SMs with 16 exponentials a clock each, at up to 1.83 GHz, hence 3.9 T a second. So at $d = 64$ a score's exponential takes $1/3.9 = 0.26$ picoseconds of the whole GPU, and its $4d = 256$ FLOPs take $256/{{matmul:.0f}}$ = {{256 / matmul:.2f}}.
#
# **Predict** for the Hopper kernel: does a score take `"less"` than the longer of the two, `"more"` than both together, or something `"between"`?

# %%
my_ps = None

# %%
from flashlab_course.figures.chapter_06 import H100

exp_rate = H100["exp"] if results["provenance"]["capability"] == "9.0" else None        # an H100 and an H200 are the same chip
alone = {"products": 4 * 64 / matmul} | ({"exponentials": 1e12 / exp_rate} if exp_rate else {})
ps = {f"{unit} alone": time for unit, time in alone.items()} | {"one after the other": sum(alone.values())}
for name in (simple, ours, *others):
    ps[name] = 4 * 64 / max(r["tflops"] for r in measured(name, 64, False).values())
place_of_ours = "less" if ps[ours] < max(alone.values()) else "between" if ps[ours] < sum(alone.values()) else "more"
said = compare("time of a score at d = 64", my_ps, place_of_ours)
from_best = {name: rows[first]["tflops"] / max(r["tflops"] for r in rows.values()) for name, rows in {ours: kernel, **others}.items() if name != "naive_forward"}
fast = {name: time for name, time in ps.items() if time < 3 * ps[ours]}                 # the others' bars would squash these
figures.bars(fast, f"The kernel's time of a score is {ps[ours] / sum(alone.values()):.2f} times that of its units one after the other",
             f"{source[0].upper()}{source[1:]}. d = 64, no mask, each at its best N.", "picoseconds a score, whole GPU")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# In the recorded run the first kernel takes {{ps[simple] / sum(alone.values()):.2f}} times the sum of both. The Hopper kernel takes {{ps[ours] / sum(alone.values()):.2f}} times the sum: it must compute one tile's exponentials while another tile's products run. This is chapter 12b's schedule, seen from outside. A kernel that takes all its exponentials from these units cannot be faster than the longer of the two. As $d$ shrinks, that becomes the exponentials, whose number does not depend on $d$.
#
# </details>
#
# The rest has other causes. A product waits for its tile, a softmax for its product, and warps that share a tile wait for each other. Scale, maximum, sum and rescaling are float32 work, too (chapter 06 counts it). The clock does not say which of these it is.
#
# **Takeaway.** Left of the ridge bytes are the limit. Right of it the matrix product is only one of several candidates.
#
# ### Why short sequences are slower
#
# At $N$ = {{first}} the fused kernels reach {{min(from_best.values()):.0%}} to {{max(from_best.values()):.0%}} of their best TFLOP/s, although the inputs always have the same size. **Predict**: which share of the kernel's time, in per cent, would a copy need for $Q$, $K$, $V$ and $O$?

# %%
print(f"At N = {first}, d = {d} the kernel takes {kernel[first]['ms']:.3f} ms; Q, K, V and O are "
      f"{8 * kernel[first]['B'] * kernel[first]['H'] * first * d / 1e6:.0f} MB in all. A copy moves {copy:.2f} TB/s ({how}).")
my_copy_share = None     # per cent

# %%
from flashlab_course.figures.chapter_16 import copy_ms, tiles_of

share = {N: 100 * copy_ms(row, copy) / row["ms"] for N, row in kernel.items()}
said = compare("copying as a share of the time at the smallest N", my_copy_share, share[first], "%", reasons={
    share[first] / 2: "The copy's rate already counts both, what is read and what is written."})
B_r, B_c = tiles_of(measured(simple)[first])
print(f"N = {first}: a program of the first kernel walks {cost.ceil_div(first, B_c)} key tiles, at N = {last} it walks {cost.ceil_div(last, B_c)} (modelled). "
      f"One sequence of {first} tokens\nand 16 heads is {16 * cost.ceil_div(first, B_r)} programs; an H100 has 132 SMs.")
said.on(figures.curves({ours: share}, f"Copying Q, K, V and O once would take {share[first]:.0f} % of the kernel's time at N = {first}",
                       f"{source[0].upper()}{source[1:]}. Copy: modelled, at {copy:.2f} TB/s.", "N", "% of the time", log="x", ylim=(0, None)), x=first)

# %% [markdown]
# At constant $B \cdot N$ there are equally many query blocks at every $N$, but each walks fewer keys. A program first waits for $Q_i$ and the first $K_j$, and at the end it writes $O_i$. The shorter the loop, the larger that share. The Hopper kernel's programs stay, and load the next block's tiles while they write this one's result. Here the clock does not show that: it keeps {{from_best[ours]:.0%}} of its best, the first kernel {{from_best[simple]:.0%}}.
#
# A single short sequence has a second problem: the GPU may be done before the CPU has launched the next kernel.

# %%
ways, ways_words = bench.numbers("timing_ways", name="basics_h200")
one_launch = next((1000 * row["ms"] for row in ways if row["how"] == "Python's clock, not synchronized"), None)
of_one = {N: 1000 * row["ms"] / row["B"] for N, row in kernel.items()}
figures.curves({ours: of_one}, f"A sequence of {first} tokens takes {of_one[first]:.0f} µs of the kernel's time", f"{source[0].upper()}{source[1:]}. "
               f"Launch: a Triton kernel from Python. {ways_words}", "N", "µs of one sequence's heads", log="xy",
               ceilings={"one launch": one_launch} if one_launch else {})

# %% [markdown]
# ### The host's time
#
# How long does the CPU take over one call? SDPA is C++ throughout; the course's operator is Python. A call is *recorded* if autograd notes it for a backward pass, and *both* is a forward and a backward pass. The problem is one head with $N = 128$, or a small GPT's layer: 8 texts of 512 tokens, 12 heads.

# %%
calls = bench.load_results("launch_h100")
us = {row["call"]: row["us"] for row in calls["rows"] if row["us"]}
named = {"forward": "", **{one: f", {one}" for one in ("compiled", "recorded", "backward", "both", "recorded of a layer", "both of a layer")}}
hosts = {f"{one}, {words}": us[f"{call}{kind}"] for one, kind in named.items() for call, words in (("flash_attention", "this course"), ("sdpa", "SDPA"))}
slower = {one: us[f"flash_attention{kind}"] / us[f"sdpa{kind}"] for one, kind in named.items()}
figures.bars(hosts, f"A call takes the host {min(slower.values()):.1f} to {max(slower.values()):.1f} times as long as SDPA's",
             f"Recorded on {bench.where(calls)}: calls one after the other, without waiting for the GPU.", "µs a call",
             worse=[f"{one}, this course" for one, ratio in slower.items() if ratio > 1])

# %% [markdown]
# At such sizes a GPU waits for its host, and the operator is slower than SDPA at {{sum(ratio > 1 for ratio in slower.values())}} of {{len(slower)}} calls, whatever its kernels can do. Training needs both passes: {{us['flash_attention, both of a layer']:.0f}} µs against {{us['sdpa, both of a layer']:.0f}} for the layer. A call like an earlier one skips the checks and goes straight to its launches (`flashlab/kernels/plans.py`), and a forward call still takes {{us['flash_attention']:.0f}} µs.
#
# **Takeaway.** At small sizes a benchmark of kernels says little about the time of a step: measure calls as they are made.
#
# *End of sitting 3.*
#
# ## Sitting 4 · Masks, errors, gradients, lies
#
# ### Why causal TFLOP/s are lower
#
# With the mask, half of the FLOPs are counted. A kernel skips tiles above the diagonal, but it computes a tile *on* the diagonal whole. **Predict** for the first kernel, in tiles of {{tiles_of(measured(simple, d, True)[first])[0]}} queries: at $N$ = {{first}}, how many per cent of the TFLOP/s do these tiles cost?

# %%
my_lost = None     # per cent

# %%
from flashlab_course.figures.chapter_16 import whole_tiles

masked, plain = (measured(simple, d, mask) for mask in (True, False))
more_work = whole_tiles(masked[first])                       # times the counted FLOPs
said = compare("TFLOP/s that whole tiles on the diagonal cost", my_lost, 100 * (1 - 1 / more_work), "%", reasons={
    100 * (more_work - 1): f"That is the additional work. The rate falls to 1 / {more_work:.2f} of what it was.",
    50: "The FLOPs of the skipped half are not counted, so they cost nothing."})
saved = {N: 1 - masked[N]["ms"] / plain[N]["ms"] for N in (first, last)}
print(f"half of the FLOPs: the mask saves {saved[first]:.0%} of the time at N = {first}, {saved[last]:.0%} at N = {last} ({how}, d = {d})")
lost = [100 * (1 - measured(ours, d, True)[N]["tflops"] / measured(ours, d, False)[N]["tflops"]) for N in (first, last)]
print(f"{label(ours)} loses {lost[0]:.0f} % of its TFLOP/s at N = {first}, {lost[1]:.0f} % at N = {last}")
said.on(figures.causal_cost(results, d, live=live), x=first)

# %% [markdown]
# The waste on the diagonal is about $B_r / N$ and fades. Shorter loops, and masks in tiles that need none, are part of the rest. Look at the line below the picture, too: where a launcher picks other tiles with the mask than without, two kernels are compared.
#
# **Takeaway.** Tiles are coarser than the mask. Check that both sides of a comparison ran the same code.
#
# ### Error
#
# Fast and slightly wrong would be easy. All errors are against float64, on the same inputs. Naive attention in bfloat16 rounds $S$ and $P$ to 8 significant bits on their way through HBM.

# %%
figures.benchmark(results, "rms_error", d, causal, live=live)

# %% [markdown]
# At $N$ = {{first}} naive attention's root mean square error is {{naive[first]['rms_error'] / kernel[first]['rms_error']:.1f}} times the kernel's. The fused kernels keep $S_{ij}$, $l_i$ and $O_i$ in float32 on the chip. They round $P_{ij}$ for the tensor cores, and $O$ when it is stored. SDPA math rounds $O$ alone. How much more accurate should that be? Round on purpose:

# %%
Q, K, V = (T.double() for T in bench.inputs(bench.Problem(512, 64, H=8), "cpu"))
weights = torch.exp((S := Q @ K.mT / 8) - S.amax(-1, keepdim=True))
rounded, l = lambda T: T.bfloat16().double(), weights.sum(-1, keepdim=True)
truth = weights @ V / l
rms_512 = {name: measured(name, 64, False, on_h200)[512]["rms_error"] for name in ("sdpa_math", kernel_name(on_h200))}
math_ms = measured("sdpa_math", 64, False, on_h200)[512]["ms"] / measured(kernel_name(on_h200), 64, False, on_h200)[512]["ms"]
only_O, P_and_O = ((O - truth).square().mean().sqrt().item() for O in (rounded(truth), rounded(rounded(weights) @ V / l)))
print(f"rms error of rounding O alone: {only_O / P_and_O:.2f} times that of rounding P and O (measured here: N = 512, d = 64, no mask)")

# %% [markdown]
# In the recorded run on an H200, SDPA math has {{rms_512['sdpa_math'] / rms_512[kernel_name(on_h200)]:.2f}} times the kernel's error at this size, and takes {{math_ms:.0f}} times as long.
#
# **Takeaway.** Scores that stay on the chip can stay float32 at no cost in bytes.
#
# ### The backward pass
#
# Gradients need five matrix products where the forward pass needs two, so 2.5 times the FLOPs are counted. Each recorded gradient was held against float64 first.

# %%
ours_back = kernel_name(backward)
gradients = {r["implementation"]: measured(r["implementation"], results=backward) for r in backward["rows"]}
figures.benchmark(backward, "tflops", d, causal)

# %%
from flashlab.ladder import rung

for name in (first_kernel_name(backward), ours_back):
    done = rung(name).cost(4096, 4096, d, B_r=64, B_c=64).matmul_flops / cost.attention_flops(1, 1, 4096, 4096, d) * 2
    top = max(row["tflops"] for row in gradients[name].values())
    print(f"{label(name)}: {done:.0f} products (modelled) where 5 count; if all counted, {done / 5 * top:.0f} TFLOP/s")
back = {name: gains(loaded_backward, kernel_name(loaded_backward), name) for name in ("sdpa_cudnn", "fa4")}
figures.gain_of_rung(backward, ours_back, "fa4")

# %% [markdown]
# Chapter 11's kernels compute $S$ and $dP$ twice, so that no two programs write to the same place. The formula does not count that. The last kernel adds $dQ$ up in memory instead, and no longer gives the same bits each time. Against cuDNN ({{version_of('sdpa_cudnn', loaded_backward)}}) it is {{standing(back['sdpa_cudnn'])}}; against FlashAttention-4 ({{version_of('fa4', loaded_backward)}}) {{standing(back['fa4'])}}.
#
# And memory? Here is the peak of forward and backward pass together.

# %%
row = gradients[ours_back][max(gradients[ours_back])]
outputs = row["B"] * row["H"] * row["N"] * (4 * 2 * d + 4)
print(f"N = {row['N']}: O, dQ, dK, dV and L are {outputs / 2**20:.0f} MiB (modelled), the peak is {row['peak_bytes'] / 2**20:.0f} MiB (recorded)")
figures.benchmark(backward, "peak_bytes", d, causal)

# %% [markdown]
# Naive attention keeps $P$ for the backward pass, and makes $dP$ and $dS$ beside it. The last kernel needs one matrix of $N \times d$ beyond its results, $dQ$ in float32 while it is added up. The lines of all fused kernels are flat.
#
# **Takeaway.** Recomputing $P$ tile by tile is what makes training on long texts fit.
#
# ### How to lie with TFLOP/s
#
# **Your turn** (10 minutes). You sell the kernel. You have its forward rows, and you may not change a number. Which one comparison, true to the last digit, makes it look best: against whom, at which $N$, which $d$, with or without the mask? Use the plots, or a few lines of code over `results["rows"]`.

# %%
my_advertisement = {"against": None, "N": None, "d": None, "causal": None}     # against: "sdpa_flash", say

# %%
def ratio_to_ours(row):
    fused = measured(ours, row["d"], row["causal"]).get(row["N"])
    return row["ms"] / fused["ms"] if fused else 0


sold = [row for row in results["rows"] if not row["skipped"] and row["implementation"] not in (ours, "yours")]
best, worst = max(sold, key=ratio_to_ours), min(sold, key=ratio_to_ours)
said = compare("the most flattering comparison", my_advertisement, {"against": best["implementation"], **{key: best[key] for key in ("N", "d", "causal")}})
ads = {f"{label(row['implementation'])}, N = {row['N']}, d = {row['d']}, {'causal' if row['causal'] else 'no mask'}": ratio_to_ours(row)
       for row in (best, max((r for r in sold if r["implementation"] == "sdpa_flash"), key=ratio_to_ours), worst)}
figures.bars(ads, f"The same kernel is {ratio_to_ours(best):.0f} times as fast as one rival, and {ratio_to_ours(worst):.2f} times as fast as another",
             f"{source[0].upper()}{source[1:]}. {label(ours)}.", "times as fast")

# %% [markdown]
# One measurement can be dressed up, too. Take the kernel, causal, at the largest $N$. **Predict** the largest TFLOP/s figure that can be made of it without measuring again.

# %%
my_largest = None

# %%
masked = measured(ours, d, True)
r = masked[max(masked)]
lucky = r["ms"] / r["ms_low"]
lies = {"as the field counts: half of the pairs": r["tflops"], "the fast runs, not the median": r["tflops"] * lucky,
        "masked pairs counted as well": 2 * r["tflops"], "both": 2 * r["tflops"] * lucky}
said = compare("the largest TFLOP/s figure", my_largest, lies["both"], "TFLOP/s", reasons={
    r["tflops"]: "That is the honest number. Which FLOPs could be counted besides?"})
said.on(figures.bars(lies, f"One run of the kernel is {r['tflops']:.0f} TFLOP/s, or {lies['both']:.0f}; a matrix product does {matmul:.0f}",
                     f"{source[0].upper()}{source[1:]}. {label(ours)}, N = {r['N']}, d = {d}, causal.", "TFLOP/s",
                     worse=tuple(lies)[1:]), axis="x")

# %% [markdown]
# Each number is true. A few questions expose most of these tricks. Which FLOPs are counted? Against whom? At which sizes and dtype, and what happened at the others? Was it correct? How far do repeated runs differ?
#
# **Takeaway.** A speed is a count over a time: ask how both were taken.
#
# ### Your kernels beside the course's
#
# Without a GPU three things are known of a kernel: its bytes, its registers, and its place on the roofline. The pictures show the course's kernels. Each of your answers (05, 06, 10, 11, 16) joins them once it passes. First the bytes of a whole head, counted:

# %%
from flashlab_course import sweeps

points_here = sweeps.over_N([128, 256, 512]) + yours.over_N([128, 256, 512])
figures.traffic_against(points_here)

# %% [markdown]
# Then what Triton makes of the kernels for an H100, in float16 at $d = 128$ without a mask, yours in tiles of 64:

# %%
from flashlab.triton_mode import import_triton

kernel_jobs = {}
if import_triton():
    from flashlab.kernels import fa2
    from flashlab.operator import hopper_forward
    from flashlab_course.check import form
    from flashlab_course.compiler.watch import Traffic, bind, watch

    X, X_L = torch.empty(1, 16, 4096, 128, dtype=torch.float16, device="meta"), torch.empty(1, 16, 4096, device="meta")
    for name, code in (("fa2_triton_forward", fa2.fa2_forward_kernel), ("fa2_hopper_forward", hopper_forward.fa2_hopper_kernel)):
        kernel_jobs[label(name)] = code, rung(name).launch(X, X, X, X, X_L, causal=False, scale=128**-0.5)[1], 90
    heads = [torch.zeros(1, 64, 128, dtype=torch.float16, device=yours.kernel_device()) for _ in range(6)]
    Ls = [torch.zeros(1, 64, device=yours.kernel_device()) for _ in range(2)]
    for exercise, tensors in (("ex10_triton_forward", (*heads[:4], Ls[0])), ("ex11_dkdv", (*heads[:4], *Ls, *heads[4:]))):
        if mine_passes := yours.answer(exercise):
            with watch(Traffic()) as launched:
                form.exercise(exercise).call(mine_passes, *tensors, False, 128**-0.5, 64, 64)
            code, args, kwargs = launched.launches[0]
            kernel_jobs[f"yours: {exercise}"] = code, bind(code, args, kwargs), 90

# %%
import re

from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all

compiled_rows, later = [], ()
for name, gpu in zip(kernel_jobs, compile_all(list(kernel_jobs.values())) if kernel_jobs else (), strict=True):
    name_then = name
    if handed := {int(count, 16) for count in re.findall(r"USETMAXREG\S+ (?:UP\d, )?0x(\w+)", gpu.sass)}:
        later = min(handed), (3 * gpu.registers - min(handed)) // 2         # what three warpgroups began with, less the first's
        assert set(later) <= handed
        name_then += f"\nthen {later[0]} or {later[1]}"
    compiled_rows.append({"name": name_then, "registers": gpu.registers, "spills": gpu.spills, "shared": gpu.shared_bytes, "limit": SHARED_LIMIT[90]})
figures.compiled_kernels(compiled_rows) if compiled_rows else print("Triton is not installed here, so nothing can be compiled.")

# %% [markdown]
# The Hopper kernel starts with as many registers as the picture says. Then its warps hand them on (`setmaxnreg` in the PTX): the warps that load keep {{later[0]}}, and each consumer gets {{later[1]}}.
#
# Last, the place on the roofline, from FLOPs and counted bytes: how fast each kernel could be if nothing else held it back. Your `roofline` says what time that takes.

# %%
N_here = max(point["N"] for point in points_here)
places = [{"op": label(point["rung"]), "rung": point["rung"], "flops": cost.attention_flops(1, 1, N_here, N_here, 64), "bytes": point["measured"]}
          for point in points_here if point["N"] == N_here]
if predicted := yours.answer("ex16_roofline"):
    for place_of in places:
        ms = predicted(place_of["flops"], place_of["bytes"], matmul, copy)[1]
        print(f"{place_of['op']}: at least {1000 * ms:.2f} µs for one head of {N_here} tokens, by your formula")
figures.roofline(places, copy, matmul, f"Predicted for one head of {N_here} tokens in float32; ceilings {source}.")

# %% [markdown]
# **Takeaway.** Bytes, registers and the roof are known before the first run. How close a kernel comes to the roof, only a clock says.
#
# ### Your own numbers
#
# On a machine with an NVIDIA GPU, `python -m flashlab bench forward` measures all sizes, `bench backward` the gradients, and both take `--yours`; `bench counters` reads the counters where Nsight Compute is installed. Each writes device, versions, date and command beside its numbers.
#
# **Your turn** (10 minutes). Lines cross in these plots, yet people want one number. Find a mix of texts with which two implementations trade places. What should a table with a single column say then?

# %%
mix = dict.fromkeys(Ns, 1)                           # change me: how many texts of each N, {512: 100, 2048: 5}, say


def ranked(mix):
    """The implementations by the time that they take for all texts, one after the other."""
    times = {name: sum(count * rows[N]["ms"] / rows[N]["B"] for N, count in mix.items())
             for name, rows in {ours: kernel, **others}.items() if set(Ns) <= set(rows)}
    return sorted(times, key=times.get)


before, now = ranked(dict.fromkeys(Ns, 1)), ranked(mix)
moved = [label(name) for name, old in zip(now, before, strict=True) if name != old]
print("Time:", " < ".join(map(label, now)))
print("Trade places:", " and ".join(moved) if moved else "none yet, against one text of each N")

# %% [markdown]
# Then go back to `d, causal` at the top, change one, and run all. (The sentences keep the numbers of $d = 128$ without a mask.) Which three titles will change most?

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), section 4, for the sizes and the counting of FLOPs · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), section 3.1, and NVIDIA's [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), arithmetic instructions, for the rate of exponentials · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · [`triton.testing.do_bench`](https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html) · PyTorch, [`sdpa_kernel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html) · NVIDIA, [Nsight Compute: profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html)
#
# **Next:** back to [00 · Start here](00_start_here.ipynb) for the map.
