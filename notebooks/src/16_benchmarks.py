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
# **You will be able to** time a GPU kernel so that the number means something; read run time, memory, speed, error and bytes off a plot and say what holds a kernel back; and see through a benchmark that flatters.
#
# **You need** chapters 06 and 07; the kernels measured here are those of 10 and 11, and the last ones of 12. · **110 minutes** in three sittings of at most 45, 45 of these minutes for tasks and one exercise; a line marks the end of each · **runs on** CPU (recorded figures) or GPU (a live run of a minute or two)
#
# Beside the course's kernels stand naive attention and the four backends of PyTorch's `scaled_dot_product_attention`, SDPA for short: `math`, one operation after the other; `efficient` and `flash`, two fused kernels, the second of them FlashAttention-2 in CUDA by its authors; and `cudnn`, NVIDIA's own. (In PyTorch 2.13 `activate_flash_attention_impl` can swap FlashAttention-3 or 4 in for `flash`; the records are of 2.11.) FlashAttention-4 has a run of its own. Two of the course's kernels are shown, chapter 10's and the last of chapter 12.

# %%
import flashlab  # first: it tells Triton where to run
from flashlab import cost
from flashlab_course import bench, figures
from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.skip import skip_the_rest

try:
    loaded, source = bench.live_or_recorded()
    counters, loaded_backward = bench.load_results("counters_h100"), bench.load_results("backward_h200")
    recorded, beside_4 = (bench.load_results("forward_h200", label) for label in ("all", "FlashAttention-4"))
    print(f"Run times below are {source}.\nCounters are recorded on {bench.where(counters)},")
    print(f"the backward pass on {bench.where(loaded_backward)}.")
except FileNotFoundError as error:
    print(str(error).replace(f"{bench.ROOT}/", ""))
    skip_the_rest("There are no results to plot.")

# %% [markdown]
# The line at the foot of each picture says whether its numbers are modelled, measured here, or recorded, and on which device.
#
# **Your kernel.** Once your `ex10_triton_forward` and `ex11_dkdv` pass and there is a GPU here, this cell measures them at the same sizes, and they stand in every plot of run times below, as "yours". The last section shows what can be said of them without a GPU.

# %%
from flashlab_course.lesson import compare, yours

results, backward = yours.into(loaded), yours.into(loaded_backward)
for run, exercise in ((results, "ex10_triton_forward"), (backward, "ex11_dkdv")):
    if any(row["implementation"] == "yours" for row in run["rows"]):
        print(f"{exercise}: in the plots, measured here" + ("" if run is results else "; its rivals are recorded"))
    else:
        print(f"{exercise}: " + ("passes; without a GPU its time stays open" if yours.answer(exercise) else "has not passed yet"))

# %% [markdown]
# Choose a head dimension and a mask. When you have reached the end, come back, change them, and run everything again.

# %%
d, causal = 128, False                               # change me: 64 or 128, False or True

# %% [markdown]
# What the cells below share: the rows of one implementation, a prediction in the units of a plot, and a few names.

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
# ## What is measured
#
# Long texts come in small batches. So papers keep the number of tokens, $B \cdot N$, the same for every $N$, and this course does as well. **Predict**: how many times the FLOPs of the smallest $N$ does the largest need?

# %%
my_flops_factor = None

# %%
Ns = sorted(kernel)
said = compare("FLOPs at the largest N against the smallest", my_flops_factor, last // first, "times")
grows = {"FLOPs": {N: N / Ns[0] for N in Ns}, "bytes of Q, K, V, O": dict.fromkeys(Ns, 1), "FLOPs of one sequence": {N: (N / Ns[0])**2 for N in Ns}}
said.on(figures.curves(grows, f"At constant batch × N, {last // first} times the length means {last // first} times the FLOPs, on as many bytes",
                       "Modelled: 4·B·H·N²·d FLOPs without a mask, 2·B·H·N·d bytes in each tensor.", "N", f"times as much as at N = {first}",
                       log="xy"), x=last)

# %% [markdown]
# **Takeaway.** At constant $B \cdot N$ the inputs stay the same and the work grows like $N$. A line that is flat in the plots below would still grow like $N$ for a single sequence.
#
# ## Correct first
#
# Here is an attention that needs half the time: it leaves out every second key. The benchmark meets it on this machine's CPU, next to naive attention. **Predict** what it gets: `"a time"`, `"a warning"` or `"no time"`.

# %%
my_verdict = None

# %% [markdown]
# `measure` is the loop behind all run times in this chapter. It checks every call, then lets those that are right take turns at the clock, in an order that changes from round to round.

# %%
import inspect

print(inspect.getsource(bench.measure))

# %% [markdown]
# **Run and compare.** Here it has a clock for the CPU, and one of the two fails on purpose.

# %%
import time


def cpu_ms(function, runs=20):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


Q, K, V = bench.inputs(bench.Problem(N=512, d=64, dtype="float32", H=2), "cpu")
calls = {"naive_forward": lambda: bench.naive_over_heads(Q, K, V, False),
         "every_second_key": lambda: bench.naive_over_heads(Q, K[:, :, ::2], V[:, :, ::2], False)}
rows = bench.measure(calls, lambda call: bench.check(call, Q, K, V), rounds=1, timer=cpu_ms)
for name, row in rows.items():
    clock = f"{row['ms']:.1f} ms here" if row["ms"] else "no time"
    print(f"{name:<17} {clock}; {row['skipped'] or 'correct'}")
said = compare("what the benchmark gives to a wrong function", my_verdict, "no time" if rows["every_second_key"]["ms"] is None else "a time")

# %% [markdown]
# A call that has not just passed the error bound, on the tensors to be timed, gets a reason in place of a number. But those tensors are ordinary random numbers.
#
# **Your turn** (10 minutes). Write an attention that gets a time here and is wrong all the same: the next cell runs it on other scores, 60 times as large. If nothing comes to mind: chapter 03 had a first formula of the softmax, before the safe one.

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
# **Takeaway.** A function that is wrong has no speed. And a check knows only the inputs it is given: that is why this course's exercises are checked on large scores too.
#
# ## What a time is
#
# Call one function a few hundred times and the clock gives a few hundred answers. **Predict**, for a small attention on this CPU: how many times the median is the very first call? And the mean of all?

# %%
my_times = {"first call": None, "mean": None}

# %% [markdown]
# **Your turn** (5 minutes). Which single number would you report for such a list? The cell below it takes the list five times, and says how far each choice moves from one time to the next.

# %%
def one_number(ms):
    return None                                      # your turn: a number, from a list of times in ms

# %%
import statistics

import torch

torch.manual_seed(0)
Q = torch.randn(1, 4, 128, 64)
runs = [cpu_ms(lambda: torch.nn.functional.scaled_dot_product_attention(Q, Q, Q), runs=200) for _ in range(5)]
choices = {"mean": statistics.mean, "median": statistics.median, "slowest": max, "yours": one_number}
choices = {name: choice for name, choice in choices.items() if choice(runs[0]) is not None}
for name, choice in choices.items():
    found = [choice(ms) for ms in runs]
    print(f"{name:<8} {min(found):.4f} to {max(found):.4f} ms in five repetitions: {max(found) / min(found) - 1:.0%} apart (measured here)")
median = statistics.median(runs[0])
said = compare("against the median of many calls", my_times, {"first call": runs[0][0] / median, "mean": statistics.mean(runs[0]) / median})
marks = {name: choice(runs[0]) for name, choice in choices.items()}
slowest = max(runs[0])
figures.curves({"": dict(enumerate(runs[0], 1))}, f"The slowest of {len(runs[0])} calls is number {runs[0].index(slowest) + 1}: {slowest / median:.1f} times the median",
               "Measured here, on the CPU: scaled_dot_product_attention, 128 tokens, 4 heads.", "call", "ms", log="xy", dots=True, ceilings=marks)

# %% [markdown]
# The first call pays for set-up: run the function a few times before you measure (*warm-up*), and throw those times away. After that a few slow calls move the mean and leave the median alone.
#
# On a GPU four more things go wrong. A launch returns before the work is done, so the GPU's own *events* must take the time (chapter 09 times one kernel in five ways). Inputs linger in the L2 cache: it is overwritten between runs. The clock rate drops as the chip warms up: the contestants take turns. And a speed to compare with has to come from the same run. `flashlab_course/bench/timing.py` does all four.
#
# By how many per cent do the 20th and the 80th percentile differ?

# %%
widest = max(100 * (r["ms_high"] - r["ms_low"]) / r["ms"] for r in results["rows"] if r["ms"])
spreads = {}
for r in sorted((r for r in results["rows"] if r["ms"]), key=lambda r: r["ms"]):
    spreads.setdefault(r["implementation"], {})[r["ms"]] = 100 * (r["ms_high"] - r["ms_low"]) / r["ms"]
middle = statistics.median(spread for line in spreads.values() for spread in line.values())
figures.curves({name: spreads[name] for name in (ours, *others) if name in spreads}, f"Repeated runs usually spread by {middle:.1f} %, at most by {widest:.0f} %",
               f"{source[0].upper()}{source[1:]}.", "median run time (ms)", "80th − 20th percentile (%)", log="x", dots=True)

# %% [markdown]
# Slow rows have few runs, since a turn has a fixed length, and percentiles of three runs mean little.
#
# **Takeaway.** Warm-up, events, cold cache, turns, median. And a lead counts only where both have three runs or more and the two ranges, from the 20th to the 80th percentile, do not overlap.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Run time
#
# **Predict** from the FLOPs: how many times as long does the kernel take at the largest $N$ as at the smallest?

# %%
my_growth = None

# %%
said = compare("growth of the kernel's time", my_growth, kernel[last]["ms"] / kernel[first]["ms"], "times")
row, first_row = (measured(name, 64, False).get(4096) for name in ("naive_forward", simple))
with_L = row["ms"] / first_row["ms"] if row and first_row else float("nan")              # a small GPU may have no room for it
print(f"naive attention, O and L, N = 4096, d = 64, no mask: {with_L:.1f} times as long as the first kernel ({how})")
in_units(said, kernel[first]["ms"]).on(figures.benchmark(results, "ms", d, causal, live=live), x=last)

# %% [markdown]
# Both axes are logarithmic, so a line of slope 1 grows like the FLOPs. Where a line is flatter, something that does not grow with $N$ still has a share of the time; a section below says what.
#
# The title's ratio needs a footnote. Our naive attention returns $L$ as well as $O$. For a fused kernel $L$ is a by-product; PyTorch's `logsumexp` is a chain of GPU kernels that read and write $S$ again, which $O$ alone does not need. At $N = 4096$, $d = 64$ the four operations of $O$ have been timed one by one, and the first kernel beside them. **Predict** how many times as long as the first kernel they take, if naive attention with $L$ takes what the last cell printed.

# %%
my_O_alone = None     # times the first kernel

# %%
ops, ops_words = bench.numbers("roofline")
one_by_one = {row["op"]: row["ms"] for row in ops}
O_alone = sum(one_by_one[op] for op in ("QKᵀ", "scale", "softmax", "PV"))
only_O = O_alone / one_by_one["FA2 (Triton)"]
said = compare("naive attention for O alone", my_O_alone, only_O, "times")
one_text = {name: measured(name, 64, False).get(16384) for name in dict.fromkeys([ours, *others])}
slow_ms = one_text["naive_forward"]["ms"] if one_text["naive_forward"] else float("nan")
print(f"one text of 16384 tokens, B = 1, 32 heads, d = 64, no mask: naive attention takes {slow_ms:.0f} ms ({how})")
title = f"Naive attention takes {with_L:.0f} times as long as the first kernel, {only_O:.1f} times if it computes O alone"
bars = {name: ratio for name, ratio in {"naive, O and L": with_L, "naive, O alone": only_O, label(simple): 1}.items() if ratio == ratio}
said.on(figures.bars(bars, title, f"N = 4096, d = 64, no mask. O alone: {ops_words} With L: from the run above. Each against the "
                     "first kernel in the same run.", "times as long"), axis="x")

# %% [markdown]
# **Compare.** Both numbers are true, and they answer different questions. Wherever this chapter compares with naive attention, $L$ is included unless it says otherwise.
#
# At $N = 16384$ the batch is 1: the case that the whole story began with, one long text. **Predict** how many ms the kernel takes for the text of 16384 tokens that the last cell names.

# %%
my_one_text = None     # ms

# %%
values = {label(name): row["ms"] for name, row in sorted(one_text.items(), key=lambda item: item[1]["ms"] if item[1] else 0) if row}
missing = ", ".join(label(name) for name, row in one_text.items() if not row)
said = compare("one text of 16384 tokens", my_one_text, one_text[ours]["ms"], "ms")
said.on(figures.bars(values, f"One text of 16384 tokens: {label(ours)} takes {values[label(ours)]:.1f} ms, naive attention {slow_ms:.0f}",
                     f"{source[0].upper()}{source[1:]}. B = 1, d = 64, no mask, L included." + (f" Not measured: {missing}." if missing else ""),
                     "ms"), axis="x")

# %% [markdown]
# **Takeaway.** Between naive and fused the gap is mostly memory traffic; among the fused ones, which all keep $S$ on the chip, it is craft. Before you quote a ratio, ask what the slower one computes.

# %% [markdown]
# ## Peak memory
#
# Inputs do not count here, only what one call adds. **Predict** for the kernel at the largest $N$, in MiB: it writes $O$ in 16 bits and $L$ in 32.

# %%
my_mib = None

# %%
peak = kernel[last]["peak_bytes"]
O_and_L = kernel[last]["B"] * kernel[last]["H"] * last * (2 * d + 4)
print(f"N = {last}: O and L are {O_and_L / 2**20:.1f} MiB (modelled), the kernel's peak is {peak / 2**20:.1f} MiB ({how})")
said = compare("peak of the kernel at the largest N", my_mib, peak / 2**20, "MiB")
in_units(said, 2**20).on(figures.benchmark(results, "peak_bytes", d, causal, live=live))

# %% [markdown]
# On a logarithmic axis a factor of some hundreds looks like two or three. Here is the largest $N$ that naive attention had room for, with nothing bent:

# %%
row = naive[max(naive)]
peaks = {label(name): rows[row["N"]]["peak_bytes"] / 2**30 for name, rows in {ours: kernel, **others}.items() if row["N"] in rows}
matrices = row["peak_bytes"] / (2 * row["B"] * row["H"] * row["N"]**2)
figures.bars(peaks, f"Naive attention holds {matrices:.1f} matrices of N × N for each head at once",
             f"{source[0].upper()}{source[1:]}. N = {row['N']}, d = {d}, batch {row['B']}, beyond Q, K, V.", "GiB")

# %% [markdown]
# **Compare.** The kernel needs room for its results and nothing else. Naive attention holds $S$, $P$ and a temporary of `logsumexp`; for $O$ alone it would hold two matrices (modelled: read off the code). At constant $B \cdot N$ they grow like $N$, and for a single sequence like $N^2$.
#
# **Takeaway.** $O(N)$ memory is the part of FlashAttention that no faster chip can replace: without it long texts do not run at all.

# %% [markdown]
# ## TFLOP/s
#
# FLOPs by the formula, divided by the median time. The dashed line is a large matrix product in the same run: about the most that this GPU's tensor cores give in practice. **Predict** the kernel's share of it at its best.

# %%
my_share = None     # between 0 and 1

# %%
best = max(kernel.values(), key=lambda r: r["tflops"])
said = compare("the kernel's share of a matrix product", my_share, best["tflops"] / matmul)
in_units(said, matmul).on(figures.benchmark(results, "tflops", d, causal, live=live), x=best["N"])

# %% [markdown]
# The title names the nearest relative, SDPA flash: the same algorithm, written in CUDA. But a fair reader asks for the fastest line.

# %%
figures.relative_speed(results, d, causal, live=live)

# %% [markdown]
# SDPA flash was written for the A100, one generation before the H100, and uses nothing newer; nor does the first kernel. cuDNN's kernel is made for the H100, and so is the last one of chapter 12.
#
# One size is an anecdote. **Predict** at how many of the recorded sizes, with both head dimensions and both masks, the kernel is ahead of cuDNN.

# %%
my_leads = None

# %%
all_sizes = gains(recorded, kernel_name(recorded), "sdpa_cudnn")
said = compare("sizes at which the kernel leads", my_leads, sum(not tied and ratio > 1 for _, ratio, tied in all_sizes))
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

# %%
figures.benchmark(beside_4, "tflops", d, causal)

# %% [markdown]
# **Compare.** Against cuDNN the kernel is {{standing(all_sizes)}}. It is behind at {{'; '.join(behind) or 'none'}}: a later section asks why short sequences are slower. Against the fastest of all three at each size it is {{standing(from_all)}} in the run with FlashAttention-4. FlashAttention-3, made for this very GPU, has not been timed.
#
# **Takeaway.** Name the fastest competitor, not the most convenient one. And where the ranges overlap, say “tied”.

# %% [markdown]
# ## Off the beaten sizes
#
# All of this was bfloat16, $d$ = 64 or 128, and lengths that are powers of two. Chapter 12's last kernel takes no other $d$; the rung below it does. **Predict** the speed of the course's best kernel as a multiple of cuDNN's, $N = 16384$, no mask, in float16 at $d = 128$, and in bfloat16 at $d = 256$.

# %%
my_other_sizes = {"float16, d = 128": None, "bfloat16, d = 256": None}

# %%
from flashlab.ladder import KERNELS

runs_beyond = [bench.load_results("forward_h200", kind) for kind in ("float16", "d = 256", "long")]
beyond = [row for run in runs_beyond for row in run["rows"]]
of_cudnn, level = {}, {}
for row, ratio, tied in (found for run in runs_beyond for one in KERNELS for found in gains(run, one.name, "sdpa_cudnn")):
    size = f"{row['dtype']}, d = {row['d']}" + (f", N = {row['N']}" if row["N"] > 16384 else "")
    if not row["causal"] and row["N"] >= 16384 and ratio > of_cudnn.get(size, 0):
        of_cudnn[size], level[size] = ratio, tied
_ = compare("other types and widths against cuDNN", my_other_sizes, {size: of_cudnn[size] for size in my_other_sizes}, "times")
place = {size: "tied with" if level[size] else "ahead of" if ratio > 1 else "behind" for size, ratio in of_cudnn.items()}
figures.bars(of_cudnn, f"In float16 at d = 128 {place['float16, d = 128']} cuDNN, at d = 256 {of_cudnn['bfloat16, d = 256']:.2f} times as fast",
             f"Recorded on {bench.where(bench.load_results('forward_h200', 'd = 256'))}, three runs. Forward, no mask, N = 16384 where nothing is said.",
             "cuDNN's time over that of the course's best kernel")

# %% [markdown]
# **Compare.** Beside cuDNN the kernel is {{', '.join(f'{words} it at {size}' for size, words in place.items())}}. No kernel of the course divides the labour among warps at $d = 256$.
#
# FlexAttention is PyTorch's way to a kernel of your own: you write how a score changes, and `torch.compile` generates the kernel. In PyTorch 2.11, recorded here, that is Triton code; in 2.13 `BACKEND="FLASH"` generates CuTe code instead. Here is its speed without any change, beside the course's TMA rung, which is Triton as well.

# %%
flex = {label(row["implementation"]): row["tflops"] for row in beyond
        if (row["d"], row["N"], row["causal"], row["dtype"]) == (128, 16384, True, "bfloat16") and row["tflops"]}
flex_run = bench.load_results("forward_h200", "FlexAttention")
of_flex = gains(flex_run, "flex_attention", "sdpa_cudnn")
flex_span = [min(ratio for _, ratio, _ in of_flex), max(ratio for _, ratio, _ in of_flex)]
figures.bars(flex, f"A generated kernel has {flex['FlexAttention'] / flex['+ TMA']:.2f} times the speed of the TMA rung, written by hand", "Recorded in one run: forward, bfloat16, d = 128, N = 16384, causal.",
             "TFLOP/s")

# %% [markdown]
# With and without a mask it has {{flex_span[0]:.2f}} to {{flex_span[1]:.2f}} times cuDNN's speed, {{standing(of_flex)}} (`results/forward_h200.json`, the run “FlexAttention”).
#
# And then there are sizes that no benchmark shows. A sequence of 4095 tokens has a last tile with a row missing; eight query heads that share a key head leave an eighth of the key blocks. **Predict** the speed of chapter 12's last kernels there, in multiples of their speed at $N = 4096$ with a key head for each.

# %%
my_odd_sizes = {"N = 4095, forward": None, "8 heads share, forward": None, "8 heads share, backward, causal": None}

# %%
odd = {}
for what in ("forward", "backward"):
    plain = {row["causal"]: row["tflops"] for row in bench.load_results(f"{what}_h200", "TMA")["rows"]
             if (row["implementation"], row["d"], row["N"]) == (f"fa2_hopper_{what}", 128, 4096)}
    for record, N_asked, words in (("ragged", 4095, "N = 4095"), ("shared heads", 4096, "8 heads share")):
        run = bench.load_results(f"{what}_h200", record)["rows"]
        mine = {(row["N"], row["causal"]): row["tflops"] for row in run if row["implementation"] == f"fa2_hopper_{what}"}
        for masked in (False, True):
            usual = mine.get((4096, masked)) if record == "ragged" else plain[masked]
            odd[f"{words}, {what}{', causal' if masked else ''}"] = mine[N_asked, masked] / usual
whole = next(row["tflops"] for row in bench.load_results("backward_h200", "shared heads, whole groups")["rows"] if row["causal"]
             and (row["implementation"], row["N"], row["d"]) == ("fa2_hopper_backward", 4096, 128)) / plain[True]
_ = compare("odd sizes", my_odd_sizes, {name: odd[name] for name in my_odd_sizes}, "times")
figures.bars(odd, f"Odd sizes keep {min(odd.values()):.0%} of the speed or more", f"Recorded on {bench.where(bench.load_results('forward_h200', 'ragged'))}; "
             "d = 128. Shared heads: two runs, of two days.", "times the speed at N = 4096, equal heads")

# %% [markdown]
# **Compare.** The backward kernel has a program for each block of keys of each key head. When 64 query heads share 8 key heads, 256 programs are left for 132 SMs. With a mask the longest has 32 times the work of the shortest, and most SMs wait at the end: {{whole:.2f}} times the speed (`results/backward_h200.json`, the run “shared heads, whole groups”). So the heads of a group are shared out among programs that own the same keys, here one program for each head, and their dK and dV are added up in the end.
#
# What a window saves and what packing costs was recorded, too.

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
# A window of an eighth of the keys leaves less than a quarter of the causal triangle: by its scores it could be {{by_scores:.1f}} times as fast. Tiles at both of its edges are computed whole and have masks, and a tile's beginning and end weigh more where it sees few keys. How much each of these costs has not been measured.
#
# Packing cost more at first, up to {{100 * (1 - min(packed_before)):.0f}} % at N = {{packed_before[min(packed_before)]}} (`results/spans_h200.json`, the run “before”). Since then tiles that see few keys come last, so that no long one keeps the other SMs waiting at the end; programs skip blocks that a batch would not have; and only blocks that need a mask get one. What each change brought is not recorded; the older run also timed the making of `cu_seqlens`.
#
# **Takeaway.** A benchmark shows the sizes somebody chose. Ask for yours.
#
# *End of sitting 2.*

# %% [markdown]
# ## HBM bytes against the model
#
# The memory model charges every load to HBM, which the counters call DRAM; a GPU has an L2 cache in between. Counters are recorded for naive attention and for the first kernel. **Predict**: how many times $Q$, $K$ and $V$ together does that kernel read from DRAM at the largest $N$?

# %%
my_reads = None

# %%
def moved(launches):
    return sum(launch["dram_read"] + launch["dram_written"] for launch in launches)


def for_O(row):
    """The launches of QKᵀ, the scale, softmax and PV: all before the first reduction, with which logsumexp begins."""
    names = [launch["name"] for launch in row["kernels"]]
    return row["kernels"][:next((n for n, name in enumerate(names) if "reduce_kernel" in name), len(names))]


counted, without_L = kernel_name(counters), {}
for row in counters["rows"]:
    if row["implementation"] == "naive_forward" and not row["skipped"]:
        without_L[row["N"]] = moved(for_O(row))

# %%
naive_counted = {r["N"]: r for r in counters["rows"] if r["implementation"] == "naive_forward" and not r["skipped"]}
fused_rows = {r["N"]: r for r in counters["rows"] if r["implementation"] == counted and not r["skipped"]}
row = fused_rows[max(fused_rows)]
once = 3 * row["B"] * row["H"] * row["N"] * row["d"] * 2                     # bytes of Q, K and V
said = compare("times that Q, K and V are read from DRAM", my_reads, row["dram_read"] / once)
for point in yours.over_N([128, 256]):
    print(f"{point['rung']}, N = {point['N']}: {point['measured'] / point['formula']:.2f} times the formula's bytes (counted here)")
in_units(said, once).on(figures.model_vs_counters(counters, without_L=without_L), x=row["N"], ax=-1)

# %% [markdown]
# **Compare.** The model counts what the programs ask for. L2 sees a little less: some requests are joined or served before they reach it, and these counters do not say where. DRAM sees far less: L2 serves nearly all the repeated reads of $K_j$ and $V_j$. Naive attention moves *more* than the model says: PyTorch's `logsumexp` is a chain of kernels on the GPU, and several of them read or write $S$ again. At the largest $N$ they make up {{1 - without_L[max(without_L)] / moved(naive_counted[max(naive_counted)]['kernels']):.0%}} of its bytes.
#
# **Takeaway.** The model says what is asked for, the caches decide what it costs.

# %% [markdown]
# ## Why naive attention flattens
#
# No kernel moves bytes faster than a plain copy does. So the bytes alone set a speed limit. **Predict** from the counters alone: how many TFLOP/s could naive attention reach at most, at $d = 64$ and the largest $N$?

# %%
my_naive_limit = None     # TFLOP/s

# %%
points = []
for row in counters["rows"]:
    timed = measured(row["implementation"], 64, False).get(row["N"], {})
    flops = cost.attention_flops(row["B"], row["H"], row["N"], row["N"], row["d"])
    cases = [(row["implementation"], row["kernels"], timed.get("tflops"))]
    if row["implementation"] == "naive_forward":
        same = row["N"] == 4096 and results["provenance"]["device"] in ops_words     # timed at this one size, on one GPU
        op_by_op = flops / O_alone / 1e9 if same else None
        cases.append((figures.WITHOUT_L, for_O(row), op_by_op))
    points += [{"name": name, "N": row["N"], "flops": flops, "bytes": moved(launches), "tflops": tflops,
                "limit": min(matmul, flops / moved(launches) * copy)} for name, launches, tflops in cases]
limits = {point["name"]: point["limit"] for point in points if point["N"] == max(fused_rows)}
said = compare("the most that naive attention's bytes allow", my_naive_limit, limits["naive_forward"], "TFLOP/s")
words = f"Speeds {source}. Dashed: DRAM counters at B = 1, H = 16, recorded on an H100, at a copy's speed."
speeds = {name: line for name, line in figures.series(points, "N", "tflops", of="name").items() if line}
said.on(figures.curves(speeds, f"At N = {max(fused_rows)} its bytes allow naive attention {limits['naive_forward']:.0f} TFLOP/s, {limits[figures.WITHOUT_L]:.0f} for O alone",
                       words, "N", "TFLOP/s", log="xy", dashed=figures.series(points, "N", "limit", of="name")), x=max(fused_rows))

# %% [markdown]
# **Compare.** Naive attention's FLOPs and bytes both grow with $N^2$, so their ratio settles, and the limit with it. Without $L$ the limit is {{limits[figures.WITHOUT_L] / limits['naive_forward']:.1f}} times as high, and still far below what the fused kernel may reach: its bytes grow like $N$ only, and soon limit nothing.
#
# Two cautions. The counters saw 16 heads on an H100, the clock as many as the run has, on its own GPU: we assume that a head's bytes stay the same. And the fused kernel's bytes are slightly too few: what still sits in L2 at the end was never counted as written.
#
# **Takeaway.** Naive attention flattens where its bytes say it must. A flat line alone proves nothing: SDPA efficient stores no $S$ either, and stays far below the ceiling all the same.

# %% [markdown]
# ## Right of the ridge
#
# The same as a *roofline*: the slope is memory, the flat part is arithmetic, and they meet at the ridge. **Predict**: how many FLOPs for each byte of DRAM does the first kernel do at the largest $N$? It moves little more than $Q$, $K$, $V$ and $O$ once.

# %%
my_intensity = None     # FLOPs a byte

# %%
longest = [point | {"op": label(point["name"]), "rung": point["name"]} for point in points if point["N"] == max(fused_rows)]
fused_point = next(point for point in longest if point["name"] == counted)
said = compare("FLOPs a byte of the fused kernel", my_intensity, fused_point["flops"] / fused_point["bytes"])
print(f"a score at d = 64: its products alone take {4 * 64 / matmul:.2f} picoseconds of the whole GPU (at {matmul:.0f} TFLOP/s, {how})")
said.on(figures.roofline(longest, copy, matmul, f"Speeds {source}; bytes: DRAM counters at B = 1, H = 16, recorded."), axis="x")

# %% [markdown]
# **Exercise: the roofline** ([exercises/ex16_roofline.py](../exercises/ex16_roofline.py), 10 minutes). Predict a kernel's place from its FLOPs and bytes. The last section places your kernels by it.

# %%
from flashlab_course.check import check

check("ex16_roofline")

# %%
from flashlab_course.lesson import reveal

reveal("ex16_roofline")

# %% [markdown]
# Right of the ridge a kernel does not wait for DRAM. That does not mean that it waits for tensor cores: the first kernel's dot stays far below their line. What else is there?
#
# Each score needs $4d$ FLOPs in products and one exponential, and exponentials have units of their own: 16 a clock in each SM, says NVIDIA's programming guide. An H100 has 132 SMs at up to 1.83 GHz, hence 3.9 T exponentials a second. (FlashAttention-3's paper does the same sum.) **Predict**: at $d = 64$ a score's exponential alone takes $1 / 3.9$ picoseconds, and its products what the last cell printed. What does the kernel take, the last one?

# %%
my_ps = None     # picoseconds

# %%
from flashlab_course.figures.chapter_06 import H100

exp_rate = H100["exp"] if results["provenance"]["capability"] == "9.0" else None        # an H100 and an H200 are the same chip
fastest = max(r["tflops"] for r in measured(ours, 64, False).values())
said = compare("time of a score at d = 64", my_ps, 4 * 64 / fastest, "ps")
if exp_rate:
    print(f"at d = 64 the kernel does {fastest / 4 / 64:.2f} T exponentials a second ({how}) of the {exp_rate / 1e12:.1f} T that its units can (published)")
alone = {"products": 4 * 64 / matmul} | ({"exponentials": 1e12 / exp_rate} if exp_rate else {})
ps = {f"{unit} alone": time for unit, time in alone.items()} | {"one after the other": sum(alone.values())}
for name in (simple, ours, *others):
    ps[name] = 4 * 64 / max(r["tflops"] for r in measured(name, 64, False).values())
fast = {name: time for name, time in ps.items() if time < 3 * ps[ours]}                 # the others' bars would squash these
said.on(figures.bars(fast, f"The kernel's time of a score is {ps[ours] / sum(alone.values()):.2f} times that of its units one after the other",
                     f"{source[0].upper()}{source[1:]}. d = 64, no mask, each at its best N.", "picoseconds a score, whole GPU"), axis="x")

# %% [markdown]
# **Compare.** Neither unit alone explains a kernel's time. One after the other they need the sum; a faster kernel must do one tile's exponentials while another tile's products run. In the recorded run the first kernel needs more than the sum, and the last one, whose warpgroups take turns, less: chapter 12's schedule, seen from outside. A kernel that takes all its exponentials from these units cannot be faster than the longer of the two: as $d$ shrinks, that becomes the exponentials, whose number does not depend on $d$.
#
# The rest has other causes. *Latency*: a product waits for its tile, a softmax for its product. *Synchronisation*: warps that share a tile wait for each other. And more float32 work than the exponential: scale, maximum, sum, rescaling (chapter 06 counts it). The clock does not say which.
#
# **Takeaway.** Left of the ridge bytes are the limit. Right of it there are several candidates, and the matrix product is only one of them.

# %% [markdown]
# ## Why short sequences are slower
#
# In TFLOP/s the lines of the fused kernels rise with $N$, although the inputs always have the same size. **Predict** for the kernel: reading $Q$, $K$, $V$ and writing $O$ once, at the speed of a copy, is what share of its time at the smallest $N$?

# %%
my_copy_share = None     # per cent

# %%
from flashlab_course.figures.chapter_16 import copy_ms, tiles_of

ways, ways_words = bench.numbers("timing_ways", name="basics_h200")
launch = next((row["ms"] for row in ways if row["how"] == "Python's clock, not synchronized"), None)
said = compare("copying as a share of the time at the smallest N", my_copy_share, 100 * copy_ms(kernel[first], copy) / kernel[first]["ms"], "%")
B_r, B_c = tiles_of(measured(simple)[first])
print(f"N = {first}: a program of the first kernel walks {cost.ceil_div(first, B_c)} key tiles, at N = {last} it walks {cost.ceil_div(last, B_c)} (modelled). "
      f"One sequence of {first} tokens\nand 16 heads is {16 * cost.ceil_div(first, B_r)} programs; an H100 has 132 SMs.")
share = {N: 100 * copy_ms(row, copy) / row["ms"] for N, row in kernel.items()}
said.on(figures.curves({ours: share}, f"Copying Q, K, V and O once would take {share[first]:.0f} % of the kernel's time at N = {first}",
                       f"{source[0].upper()}{source[1:]}. Copy: modelled, at {copy:.2f} TB/s.", "N", "% of the time", log="x", ylim=(0, None)), x=first)

# %%
alone = {N: 1000 * row["ms"] / row["B"] for N, row in kernel.items()}
figures.curves({ours: alone}, f"A sequence of {first} tokens takes {alone[first]:.0f} µs of the kernel's time", f"{source[0].upper()}{source[1:]}. "
               f"Launch: a Triton kernel from Python. {ways_words}", "N", "µs of one sequence of 16 heads", log="xy",
               ceilings={"one launch": 1000 * launch} if launch else {})

# %% [markdown]
# **Compare.** At constant $B \cdot N$ the number of query blocks is the same at every $N$; what shrinks is the loop over keys in each. A program first waits for $Q_i$ and the first $K_j$, and at the end it writes $O_i$: the shorter the loop, the larger that share. The programs of chapter 12's last kernel stay, and ask for the next block's tiles while they write this one's result. That hides a part, and the line still rises.
#
# The second picture shows what our convention hides. A single short sequence has too few programs to fill the chip, and takes the GPU less time than a launch: then you wait for the CPU, one more reason to fuse. **Predict**: how many launches does naive attention need, $L$ included, for a fused kernel's one?

# %%
my_launches = None

# %%
launches = {row["N"]: len(row["kernels"]) for row in counters["rows"] if row["implementation"] == "naive_forward" and not row["skipped"]}
said = compare("launches of naive attention", my_launches, launches[min(launches)])
shortest = next(row for row in counters["rows"] if row["implementation"] == "naive_forward" and row["N"] == min(launches))
print(f"naive attention at N = {min(launches)}: {launches[min(launches)]} launches, {len(for_O(shortest))} of them for O alone (recorded)")

# %% [markdown]
# How long does the CPU take over one call? Here for one head and $N = 128$, beside SDPA, which is C++ throughout.

# %%
calls = bench.load_results("launch_h200")
us = {row["call"]: row["us"] for row in calls["rows"] if row["us"]}
before = {row["call"]: row["us"] for row in bench.load_results("launch_h200", "checked each time")["rows"]}
slower = {kind or "forward": us[f"flash_attention{kind and ', ' + kind}"] / us[f"sdpa{kind and ', ' + kind}"] for kind in ("", "compiled", "backward")}
figures.bars(us, "The host takes longer than SDPA: " + ", ".join(f"{kind} {ratio:.1f} times" for kind, ratio in slower.items()),
             f"Recorded on {bench.where(calls)}: calls one after the other, without waiting for the GPU; forward where nothing is said.", "µs a call")

# %% [markdown]
# **Compare.** A forward call once took {{before['flash_attention']:.0f}} µs, since each one checked its arguments and chose a kernel. Both follow from shapes, strides and options, so a call like an earlier one now goes straight to its launches (`flashlab/kernels/plans.py`) and takes {{us['flash_attention']:.0f}}. Rungs that copy by TMA make their descriptors each time. Compiled calls and the backward pass are still slow on the host: {{us['flash_attention, compiled']:.0f}} and {{us['flash_attention, backward']:.0f}} µs, where SDPA takes {{us['sdpa, compiled']:.0f}} and {{us['sdpa, backward']:.0f}}.
#
# **Takeaway.** Ask of every benchmark which sizes it shows; the convention chooses what you get to see.

# %% [markdown]
# ## Why causal TFLOP/s are lower
#
# With the mask, half of the FLOPs are counted. A kernel skips tiles above the diagonal, but a tile *on* the diagonal is computed whole. **Predict** for the first kernel, whose tiles are recorded: at the smallest $N$, how many per cent fewer TFLOP/s than without the mask?

# %%
my_lost = None     # per cent

# %%
masked, plain = (measured(simple, d, mask) for mask in (True, False))
said = compare("TFLOP/s lost to the mask at the smallest N", my_lost, 100 * (1 - masked[first]["tflops"] / plain[first]["tflops"]), "%")
saved = {N: 1 - masked[N]["ms"] / plain[N]["ms"] for N in (first, last)}
print(f"half of the FLOPs: the mask saves {saved[first]:.0%} of the time at N = {first}, {saved[last]:.0%} at N = {last} ({how}, d = {d})")
lost = [100 * (1 - measured(ours, d, True)[N]["tflops"] / measured(ours, d, False)[N]["tflops"]) for N in (first, last)]
print(f"{label(ours)} loses {lost[0]:.0f} % of its TFLOP/s at N = {first}, {lost[1]:.0f} % at N = {last}")
said.on(figures.causal_cost(results, d, live=live), x=first)

# %% [markdown]
# **Compare.** The waste on the diagonal is about $B_r / N$ and fades. What lies between it and the measured line has not been taken apart here. Shorter loops are part of it, and so are comparisons with the mask in tiles that need none, where a kernel makes them.
#
# Look at the line below the picture. A launcher picks the fastest tiles for each case. Where they differ with and without the mask, two kernels are compared, and the mask does not explain the whole loss.
#
# **Takeaway.** Tiles are coarser than the mask. What half the FLOPs saves, only the clock says. And check that both sides of a comparison ran the same code.

# %% [markdown]
# ## Error
#
# Fast and slightly wrong would be easy. All errors are against float64, on the same inputs. Naive attention in bfloat16 rounds $S$ and $P$ to 8 significant bits on their way through HBM. SDPA math works in float32 and rounds once, at the end. **Predict** the root mean square error of both at the smallest $N$, as multiples of the kernel's.

# %%
my_errors = {"naive": None, "SDPA math": None}

# %%
rms = {name: {N: row["rms_error"] / kernel[N]["rms_error"] for N, row in rows.items() if row.get("rms_error") and N in kernel}
       for name, rows in others.items()}
for name in ("naive_forward", "sdpa_math"):
    print(f"{label(name):<10} {min(rms[name].values()):.2f} to {max(rms[name].values()):.2f} times the kernel's rms error ({how})")
said = compare("rms error against the kernel's", my_errors, {label(name): rms[name][first] for name in ("naive_forward", "sdpa_math")})
guesses = said.guess if isinstance(said.guess, dict) else {}
at = {first * (1 + n / 50): guess * kernel[first]["rms_error"] for n, guess in enumerate(guesses.values()) if guess}
replace(said, guess=at or None).on(figures.benchmark(results, "rms_error", d, causal, live=live))

# %% [markdown]
# **Compare.** The fused kernels keep $S_{ij}$, $l_i$ and $O_i$ in float32 on the chip. They round $P_{ij}$ for the tensor cores and $O$ when it is stored. SDPA math rounds $O$ alone, so it is *more* accurate. How much should that be? Chapter 10's experiment again, in two lines:

# %%
Q, K, V = (T.double() for T in bench.inputs(bench.Problem(512, 64, H=8), "cpu"))
weights = torch.exp((S := Q @ K.mT / 8) - S.amax(-1, keepdim=True))
rounded, l = lambda T: T.bfloat16().double(), weights.sum(-1, keepdim=True)
truth = weights @ V / l
recorded_rms = measured("sdpa_math", 64, False, recorded)[512]["rms_error"] / measured(kernel_name(recorded), 64, False, recorded)[512]["rms_error"]
only_O, P_and_O = ((O - truth).square().mean().sqrt().item() for O in (rounded(truth), rounded(rounded(weights) @ V / l)))
print(f"rms error of rounding O alone: {only_O / P_and_O:.2f} times that of rounding P and O (measured here: N = 512, d = 64, no mask)")

# %% [markdown]
# In the recorded run it was {{recorded_rms:.2f}} times at $N$ = 512, without a mask. The *largest* error tells less: it is often the rounding of one single number, which several kernels round alike.
#
# **Takeaway.** Scores that stay on the chip can stay float32 at no cost in bytes: a fused kernel beats naive attention in error too. Wider numbers are more accurate still, and SDPA math pays for them in memory and time.

# %% [markdown]
# ## The backward pass
#
# Training needs gradients: $dQ$, $dK$, $dV$. That is five matrix products where the forward pass has two, so 2.5 times the FLOPs are counted. All of it is recorded, at the same sizes, and each gradient was held against float64 first. **Predict** the share of a matrix product that the kernels reach at best.

# %%
my_backward_share = None     # between 0 and 1

# %%
ours_back = kernel_name(backward)
gradients = {r["implementation"]: measured(r["implementation"], results=backward) for r in backward["rows"]}
best = max(gradients[ours_back].values(), key=lambda r: r["tflops"])
said = compare("the backward kernel's share of a matrix product", my_backward_share, best["tflops"] / backward["ceilings"]["matmul_tflops"])
in_units(said, backward["ceilings"]["matmul_tflops"]).on(figures.benchmark(backward, "tflops", d, causal), x=best["N"])

# %%
from flashlab.ladder import rung

for name in (first_kernel_name(backward), ours_back):
    done = rung(name).cost(4096, 4096, d, B_r=64, B_c=64).matmul_flops / cost.attention_flops(1, 1, 4096, 4096, d) * 2
    top = max(row["tflops"] for row in gradients[name].values())
    print(f"{label(name)}: {done:.0f} products (modelled) where 5 count; all of them at {done / 5 * top:.0f} TFLOP/s")
figures.gain_of_rung(backward, ours_back, "sdpa_cudnn")

# %%
back = {name: gains(loaded_backward, kernel_name(loaded_backward), name) for name in ("sdpa_cudnn", "fa4")}
figures.gain_of_rung(backward, ours_back, "fa4")

# %% [markdown]
# **Compare.** Chapter 11's kernels make $dK_j$ and $dV_j$ in one launch and $dQ_i$ in another; each computes $S$ and $dP$ for itself, so that no two programs write to the same place. That is work which the formula does not count. The last kernel computes five products and adds $dQ$ up in memory, and no longer gives the same bits each time (chapter 12). Against cuDNN ({{version_of('sdpa_cudnn', loaded_backward)}}) it is {{standing(back['sdpa_cudnn'])}}; against FlashAttention-4 ({{version_of('fa4', loaded_backward)}}) {{standing(back['fa4'])}}.
#
# And memory? For the backward pass naive attention keeps $P$, and makes $dP$ and $dS$ beside it. **Predict** the kernel's peak of forward and backward together at the largest $N$, in MiB: $O$, $dQ$, $dK$, $dV$ in 16 bits, $L$ in 32.

# %%
my_backward_mib = None

# %%
row = gradients[ours_back][max(gradients[ours_back])]
outputs = row["B"] * row["H"] * row["N"] * (4 * 2 * d + 4)
print(f"N = {row['N']}: O, dQ, dK, dV and L are {outputs / 2**20:.0f} MiB (modelled), the peak is {row['peak_bytes'] / 2**20:.0f} MiB (recorded)")
said = compare("peak of both passes", my_backward_mib, row["peak_bytes"] / 2**20, "MiB")
in_units(said, 2**20).on(figures.benchmark(backward, "peak_bytes", d, causal))

# %% [markdown]
# Chapter 11's kernels need little beyond their results: $D$, one number for each row. The last kernel needs one matrix more, $dQ$ in float32 while it is added up. The lines of all fused kernels are flat.
#
# **Takeaway.** Recomputing $P$ tile by tile is what makes training on long texts fit: FlashAttention's backward pass stores $L$ where naive attention stores $P$.

# %% [markdown]
# ## How to lie with TFLOP/s
#
# **Your turn** (10 minutes). You sell the kernel. Its forward rows are all you have, and you may not change a number. Which one comparison, true to the last digit, makes it look best: against whom, at which $N$, which $d$, with or without the mask? Use the plots, or a few lines of code over `results["rows"]`.

# %%
my_advertisement = {"against": None, "N": None, "d": None, "causal": None}     # against: "sdpa_flash", say

# %%
def ratio(row):
    mine = measured(ours, row["d"], row["causal"]).get(row["N"])
    return row["ms"] / mine["ms"] if mine else 0


rivals = [row for row in results["rows"] if not row["skipped"] and row["implementation"] not in (ours, "yours")]
best, worst = max(rivals, key=ratio), min(rivals, key=ratio)
said = compare("the most flattering comparison", my_advertisement, {"against": best["implementation"], **{key: best[key] for key in ("N", "d", "causal")}})
ads = {f"{label(row['implementation'])}, N = {row['N']}, d = {row['d']}, {'causal' if row['causal'] else 'no mask'}": ratio(row)
       for row in (best, max((r for r in rivals if r["implementation"] == "sdpa_flash"), key=ratio), worst)}
figures.bars(ads, f"The same kernel is {ratio(best):.0f} times as fast as another, or {ratio(worst):.2f} times: choose the other",
             f"{source[0].upper()}{source[1:]}. {label(ours)}; naive attention with L.", "times as fast")

# %% [markdown]
# And one measurement can be dressed up. The kernel, causal, at the largest $N$. **Predict** the largest TFLOP/s figure that can be had from it without measuring again.

# %%
my_largest = None

# %%
masked = measured(ours, d, True)
r = masked[max(masked)]
lucky = r["ms"] / r["ms_low"]
lies = {"as the field counts: half of the pairs": r["tflops"], "the fast runs, not the median": r["tflops"] * lucky,
        "masked pairs counted as well": 2 * r["tflops"], "both": 2 * r["tflops"] * lucky}
said = compare("the largest TFLOP/s figure", my_largest, lies["both"], "TFLOP/s")
said.on(figures.bars(lies, f"One run of the kernel is {r['tflops']:.0f} TFLOP/s, or {lies['both']:.0f}; a matrix product does {matmul:.0f}",
                     f"{source[0].upper()}{source[1:]}. {label(ours)}, N = {r['N']}, d = {d}, causal.", "TFLOP/s",
                     worse=tuple(lies)[1:]), axis="x")

# %% [markdown]
# Each figure is true, and each leaves out its denominator. A few questions expose most of these tricks: which FLOPs are counted? Against whom, and what did the other compute? At which sizes, in which dtype, and what happened at the others? Was it correct? How far do repeated runs differ? A rate above the dashed line answers itself.
#
# **Takeaway.** A speed is a count over a time: ask how both were taken.

# %% [markdown]
# ## Your kernels beside the course's
#
# Without a GPU three things are known of a kernel: its bytes, its registers, and its place on the roofline. The pictures show the course's; each of your answers (05, 06, 10, 11, 16) joins them once it passes. First the bytes of a whole head, counted:

# %%
from flashlab_course import sweeps

points_here = sweeps.over_N([128, 256, 512]) + yours.over_N([128, 256, 512])
figures.traffic_against(points_here)

# %% [markdown]
# Then what Triton makes of the kernels for an H100, in float16 at $d = 128$ without a mask, yours in tiles of 64.

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
# The Hopper kernel is launched with as many registers as the picture says. Then its warps hand them on (`setmaxnreg` in the PTX): the warps that load keep {{later[0]}}, both consumers get {{later[1]}}.
#
# And the place on the roofline, from FLOPs and counted bytes: where each kernel could be if nothing else held it back. Your `roofline` says what time that takes.

# %%
largest_N = max(point["N"] for point in points_here)
places = [{"op": label(point["rung"]), "rung": point["rung"], "flops": cost.attention_flops(1, 1, largest_N, largest_N, 64), "bytes": point["measured"]}
          for point in points_here if point["N"] == largest_N]
if predicted := yours.answer("ex16_roofline"):
    for place_of in places:
        ms = predicted(place_of["flops"], place_of["bytes"], matmul, copy)[1]
        print(f"{place_of['op']}: at least {1000 * ms:.2f} µs for one head of {largest_N} tokens, by your formula")
figures.roofline(places, copy, matmul, f"Predicted for one head of {largest_N} tokens in float32; ceilings {source}.")

# %% [markdown]
# **Takeaway.** Bytes, registers and the roof are known before the first run. How close a kernel comes to the roof, only a clock says.
#
# ## Your own numbers
#
# On a machine with an NVIDIA GPU, `python -m flashlab bench forward` measures all sizes, `bench backward` the gradients, and both take `--yours`; `bench counters` reads the counters where Nsight Compute is installed. Each writes device, versions, date and command beside its numbers.
#
# **Your turn** (10 minutes). Go back to `d, causal` at the top, change one of them, and run all. Before you look, say which three titles will change most.
#
# ## An open question
#
# Some lines in these plots cross, yet people want one number. A model that answers questions sees many short prompts and a few very long ones. Take a mix of lengths, weigh the rows of `results` with it, and rank the implementations by total time. Can you find a mix in which two of them trade places? What should a table with a single column say then?

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), section 4, for the sizes and the counting of FLOPs · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), section 3.1, and NVIDIA's [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), arithmetic instructions, for the rate of exponentials · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · [`triton.testing.do_bench`](https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html) · PyTorch, [`sdpa_kernel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html) · NVIDIA, [Nsight Compute: profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html)
#
# **Next:** back to [00 · Start here](00_start_here.ipynb) for the map.
