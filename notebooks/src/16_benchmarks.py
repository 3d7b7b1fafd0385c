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
# **You will be able to** time a GPU kernel so that the number means something; read run time, memory, TFLOP/s, error and HBM bytes off a plot and say why a line bends; and see through a benchmark that flatters.
#
# **You need** chapters 06 and 07; 10 and 11 are what gets measured. · **40 minutes** · **runs on** GPU (live, a short run of about a minute) or CPU (recorded figures)
#
# The kernel stands beside naive attention and four that PyTorch ships: `math`, `efficient`, `flash` (FlashAttention-2 in CUDA, by its authors) and `cudnn` (NVIDIA's own).

# %%
import flashlab  # first: it tells Triton where to run
from flashlab import bench, cost, figures
from flashlab.ladder import BACKWARD_RUNGS, PEERS, RUNGS
from flashlab.skip import skip_the_rest

try:
    results, source = bench.live_or_recorded()
    counters, backward = bench.load_results("counters_h100"), bench.load_results("backward_h100")
    print(f"Run times below are {source}.\nCounters are recorded on {bench.where(counters)},")
    print(f"the backward pass on {bench.where(backward)}.")
except FileNotFoundError as error:
    print(str(error).replace(f"{bench.ROOT}/", ""))
    skip_the_rest("There are no results to plot.")

# %% [markdown]
# **Every number below that is not marked otherwise comes from the run named above**, and so do the sentences: they are computed. Choose a head dimension and a mask here. When you have reached the end, come back, change them and run again.

# %%
d, causal = 128, False                               # 64 or 128, False or True
live = source.startswith("measured")
name_of = {one.name: one.title for one in RUNGS + BACKWARD_RUNGS + PEERS}     # "sdpa_flash" -> "SDPA flash"


def measured(name, d=d, causal=causal, results=results):
    """N -> row of one implementation, without what was skipped."""
    return {r["N"]: r for r in results["rows"]
            if (r["implementation"], r["d"], r["causal"]) == (name, d, causal) and not r["skipped"]}


kernel, naive = measured("fa2_triton_forward"), measured("naive_forward")
others = {name: measured(name) for name in bench.implementations() if name != "fa2_triton_forward"}
first, last = min(kernel), max(kernel)


# %% [markdown]
# ## What is measured
#
# Long texts come in small batches, so papers keep the number of tokens $B \cdot N$ the same for every $N$, and this course does as well. **Predict**: $N$ doubles and $B$ halves. By what factor does the number of FLOPs grow, and the number of bytes in $Q$, $K$, $V$, $O$?

# %%
my_flops_factor, my_bytes_factor = None, None

# %%
for N, r in sorted(kernel.items()):
    flops = cost.attention_flops(r["B"], r["H"], N, N, d, causal=causal)
    nbytes = 4 * r["B"] * r["H"] * N * d * 2          # four tensors of 2 bytes a number
    print(f"N = {N:>5}: B = {r['B']:>2}, H = {r['H']}, {flops / 1e12:6.3f} TFLOP, Q + K + V + O = {nbytes / 2**20:.0f} MiB")
print("your prediction:", my_flops_factor, my_bytes_factor)

# %% [markdown]
# **Takeaway.** At constant $B \cdot N$ the inputs stay the same and the work grows like $N$. A line that is flat here would grow like $N$ for a single sequence.
#
# ## Correct first
#
# Here is an attention that needs half the time: it leaves out every second key. The benchmark meets it on this machine's CPU, next to naive attention. **Predict** what it writes into the table.

# %%
my_verdict = None

# %% [markdown]
# **Run.** `measure` is the function behind all plots below; here with a clock for the CPU. It fails on purpose.

# %%
import time


def cpu_ms(function, runs=20):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


half = bench.Implementation("every_second_key", lambda Q, K, V, causal: bench.naive_over_heads(Q, K[:, :, ::2], V[:, :, ::2], causal))
full = bench.Implementation("naive_forward", bench.naive_over_heads)
problem = bench.Problem(N=512, d=64, dtype="float32", H=2)
for r in bench.measure(problem, [full, half], device="cpu", timer=cpu_ms, rounds=1):
    print(f"{r.implementation:<17} {r.ms or '-'} ms here; {r.skipped or 'correct'}")
print("your prediction:", my_verdict)

# %% [markdown]
# **Compare.** No time at all: whatever has not just passed the error bound, on the very tensors to be timed, gets a reason in place of a number.
#
# **Takeaway.** A function that is wrong has no speed.
#
# ## What a time is
#
# Call one function a few hundred times and the clock gives a few hundred answers. **Predict**, for a small attention on this CPU: how many times the median is the very first call? And the mean?

# %%
my_first, my_mean = None, None

# %%
import torch

torch.manual_seed(0)
Q = torch.randn(1, 4, 128, 64)
times = torch.tensor(cpu_ms(lambda: torch.nn.functional.scaled_dot_product_attention(Q, Q, Q), runs=400))
median = times.median()
for word, ms in [("first", times[0]), ("fastest", times.min()), ("median", median), ("mean", times.mean()), ("slowest", times.max())]:
    print(f"{word:<8} {ms:8.3f} ms, {ms / median:6.2f} times the median (measured here, on the CPU)")
print("your predictions:", my_first, my_mean)

# %% [markdown]
# **Compare.** The first call pays for set-up: warm up, and throw those runs away. A few slow calls move the mean and leave the median alone.
#
# On a GPU four more things go wrong. A launch returns before the work is done: use the GPU's own *events*. Inputs linger in the L2 cache: overwrite it between runs. Clocks sink as the chip warms: let the contestants take turns. And the numbers to compare with must come from the same run. `flashlab/bench/timing.py` does all four. **Predict**: by how many per cent do the 20th and the 80th percentile differ?

# %%
my_spread = None     # per cent, the largest among all rows

# %%
rows = [r for r in results["rows"] if r["ms"]]
few = sum(r["runs"] < 10 for r in rows)
spread = sorted(100 * (r["ms_high"] - r["ms_low"]) / r["ms"] for r in rows)
worst = max(rows, key=lambda r: (r["ms_high"] - r["ms_low"]) / r["ms"])
print(f"{len(rows)} medians of {min(r['runs'] for r in rows)} to {max(r['runs'] for r in rows)} runs: they usually spread by "
      f"{spread[len(spread) // 2]:.1f} %, at most by {spread[-1]:.1f} %; your prediction: {my_spread}")
print(f"the widest: {name_of[worst['implementation']]} at N = {worst['N']}, a median of {worst['ms']:.2f} ms")
print(f"{few} of the {len(rows)} have fewer than 10 runs: slow ones, since a turn has a fixed length. Percentiles of 3 runs mean little.")

# %% [markdown]
# **Takeaway.** Warm-up, events, cold cache, turns, median. And a lead counts only where the two ranges, from the 20th to the 80th percentile, do not overlap.
#
# ## Run time
#
# **Predict** from the FLOPs: how many times as long does the kernel take at the largest $N$ as at the smallest?

# %%
my_growth = None

# %%
figures.runtime_against_N(results, d=d, causal=causal, live=live)

# %%
both = sorted(kernel.keys() & naive.keys())
a, b = both[0], both[-1]
print(f"From N = {a} to {b}: {b / a:.0f} times the FLOPs, {naive[b]['ms'] / naive[a]['ms']:.1f} times the time for naive attention, "
      f"{kernel[b]['ms'] / kernel[a]['ms']:.1f} times for the kernel; your prediction: {my_growth}")
print(f"Naive attention takes {naive[a]['ms'] / kernel[a]['ms']:.1f} times as long as the kernel at N = {a}, "
      f"{naive[b]['ms'] / kernel[b]['ms']:.1f} times at N = {b}.")

# %% [markdown]
# **Compare.** Both axes are logarithmic: a line with slope 1 grows like the FLOPs. Where a line is flatter, something that does not grow with $N$ still has a share: reading $Q$, $K$, $V$, and starting up.
#
# **Takeaway.** Between naive and fused the gap is mostly memory traffic; among the fused ones, which all keep $S$ on the chip, it is craft. The slope says what the time grows with.

# %% [markdown]
# ## Peak memory
#
# Inputs do not count here, only what one call adds. **Predict** for the kernel at the largest $N$, in MiB: it writes $O$ in 16 bits and $L$ in 32.

# %%
my_mib = None

# %%
figures.peak_memory_against_N(results, d=d, causal=causal, live=live)

# %%
r = kernel[last]
O_and_L = r["B"] * r["H"] * last * (2 * d + 4)
print(f"N = {last}: O and L are {O_and_L / 2**20:.1f} MiB, the kernel's peak is {r['peak_bytes'] / 2**20:.1f} MiB; your prediction: {my_mib}")
r = naive[b]
print(f"N = {b}: the peak of naive attention is {r['peak_bytes'] / (r['B'] * r['H'] * b * b * 2):.2f} matrices of N x N for each head")

# %% [markdown]
# **Compare.** The kernel needs room for its results and nothing else. Naive attention holds $S$, $P$ and a temporary of `logsumexp`; at constant $B \cdot N$ even that grows like $N$, and for a single sequence like $N^2$.
#
# **Takeaway.** $O(N)$ memory is the part of FlashAttention that no faster chip can replace: without it long texts do not run at all.

# %% [markdown]
# ## TFLOP/s
#
# FLOPs by the formula, divided by the median time. The dashed line is a large matrix product in the same run: the most that this GPU's tensor cores give in practice. **Predict** the kernel's share of it at its best.

# %%
my_share = None     # between 0 and 1

# %%
figures.tflops(results, d=d, causal=causal, live=live)

# %% [markdown]
# The title names the nearest relative, SDPA flash: the same algorithm, written in CUDA. But a fair reader asks for the fastest line. Here is the kernel against each, above 1 where it is faster; `~` where the two ranges overlap, so that nobody leads.

# %%
def overlap(a, b):
    return a["ms_low"] <= b["ms_high"] and b["ms_low"] <= a["ms_high"]


def compare(ours, others):
    """For every other: its time over ours, N by N."""
    print("kernel's speed / theirs " + "".join(f"{f'N = {N}':>11}" for N in sorted(ours)))
    for name, rows in others.items():
        cells = [f"{'~' if overlap(ours[N], rows[N]) else ''}{rows[N]['ms'] / ours[N]['ms']:.2f}" if N in rows else "-" for N in sorted(ours)]
        print(f"{name_of[name]:<24}" + "".join(f"{cell:>11}" for cell in cells))
    N = max(ours)
    fastest = min((name for name in others if N in others[name]), key=lambda name: others[name][N]["ms"])
    lead = ours[N]["ms"] / others[fastest][N]["ms"]
    print(f"\nAt N = {N} the fastest other is {name_of[fastest]}: " +
          (f"{lead:.2f} times as fast as our kernel." if lead > 1 else f"our kernel is {1 / lead:.2f} times as fast."))


compare(kernel, others)

# %% [markdown]
# The row that the title speaks of, with its ranges:

# %%
best = max(kernel.values(), key=lambda r: r["tflops"])
for name in ("fa2_triton_forward", "sdpa_flash", "sdpa_cudnn"):
    if r := measured(name).get(best["N"]):
        print(f"N = {best['N']}, {name_of[name]:<14} {r['ms_low']:.3f} to {r['ms_high']:.3f} ms, {r['runs']} runs")
share = best["tflops"] / results["ceilings"]["matmul_tflops"]
print(f"The kernel reaches {share:.0%} of the matrix product at its best; your prediction: {my_share}")

# %% [markdown]
# **Compare.** On an H100: SDPA flash was written for the A100, one generation earlier, and our kernel too uses nothing newer, except the `wgmma` that Triton picks by itself. cuDNN's kernel is made for the H100. Base-2 exponentials, a causal loop split in two, copies by TMA, warps with different jobs: the planned rungs go that way.
#
# **Takeaway.** Name the fastest competitor, not the most convenient one.

# %% [markdown]
# ## Why naive attention flattens
#
# Chapter 07 counted bytes. Bytes over time is a speed limit: no kernel moves more than a device copy does. **Predict** from the counters alone: how many TFLOP/s could naive attention reach at most at $d = 64$ and the largest $N$?

# %%
my_naive_limit = None     # TFLOP/s

# %%
copy, matmul = results["ceilings"]["copy_tb_s"], results["ceilings"]["matmul_tflops"]
points = []
for r in counters["rows"]:
    timed = measured(r["implementation"], 64, False).get(r["N"])
    if not r["skipped"] and r["d"] == 64 and not r["causal"] and timed:
        points.append({"op": f"{name_of[r['implementation']]}, N = {r['N']}", "bytes": r["dram_read"] + r["dram_written"],
                       "flops": cost.attention_flops(r["B"], r["H"], r["N"], r["N"], 64), "tflops": timed["tflops"],
                       "rung": r["implementation"], "ideal": r["N"] / 2, "heads": timed["B"] * timed["H"]})
for p in points:
    p["limit"] = min(matmul, p["flops"] / p["bytes"] * copy)
    print(f"{p['op']:<24} {p['flops'] / p['bytes']:5.0f} FLOPs a byte of DRAM (ideal: {p['ideal']:4.0f}), at most {p['limit']:3.0f} TFLOP/s; "
          f"measured with {p['heads']:>3} heads {p['tflops']:3.0f}, {p['tflops'] / p['limit']:.0%} of it")
print("your prediction:", my_naive_limit)

# %% [markdown]
# *Ideal* is $Q$, $K$, $V$ and $O$ moved once. Two cautions. The counters saw 16 heads, the clock as many as the line says: that a head's bytes stay the same is an assumption. And the kernel beats the ideal, which cannot be: under `ncu` the caches start empty, and what still sits in L2 at the end was never counted as written. Read the kernel's bytes as slightly too few.

# %% [markdown]
# The same as a picture, a *roofline*: the slope is memory, the flat part is arithmetic. Left of the ridge a kernel waits for bytes, right of it for tensor cores.

# %%
longest = points[-2:]                                 # naive attention and the kernel, at the largest N
figures.roofline(longest, copy, matmul, f"Speeds {source}; bytes: DRAM counters at B = 1, H = 16, recorded.")

# %% [markdown]
# **Compare.** Naive attention's FLOPs and bytes both grow with $N^2$, so their ratio, and with it the limit, settles. The kernel's ratio keeps growing: its limit is arithmetic, and how close it comes is a matter of craft.
#
# **Takeaway.** Naive attention flattens where its bytes say it must. A flat line alone proves nothing: SDPA efficient stores no $S$ either, and stays far below the ceiling all the same.

# %% [markdown]
# ## Why short sequences are slower
#
# The kernel's own line rises before it flattens, although its inputs are always the same size. **Predict**: reading $Q$, $K$, $V$ and writing $O$ once, at the speed of a copy, is what share of its time at the smallest $N$?

# %%
my_floor_share = None     # between 0 and 1

# %%
def tiles_of(row):
    """B_r, B_c: as recorded in the row, else what the kernel picks today (without Triton nobody can ask it)."""
    problem = bench.Problem(*(row[key] for key in bench.Problem._fields))
    found = {"B_r": 128, "B_c": 64} | bench.tiles(row["implementation"], problem) | row
    return found["B_r"], found["B_c"]


sms = torch.cuda.get_device_properties(0).multi_processor_count if live else 132          # an H100 has 132
for N, r in sorted(kernel.items()):
    B_r, B_c = tiles_of(r)
    floor = 4 * r["B"] * r["H"] * N * d * 2 / copy / 1e9                 # ms
    programs = r["B"] * r["H"] * cost.ceil_div(N, B_r)
    print(f"N = {N:>5}: {programs} programs (modelled) of {cost.ceil_div(N, B_c):>3} key tiles each, "
          f"copying Q, K, V, O takes {floor / r['ms']:4.0%} of the time")
print(f"your prediction: {my_floor_share}")
print(f"One sequence of {first} tokens and 16 heads: {16 * cost.ceil_div(first, B_r)} programs (modelled) for {sms} SMs.")

# %% [markdown]
# **Compare.** The number of programs is the same at every $N$; what shrinks is the loop in each. A program first waits for $Q_i$ and the first $K_j$, and at the end writes $O_i$: the shorter the loop, the larger that share. A single short sequence does not even give each SM one program, and the launch itself begins to count: our constant $B \cdot N$ hides that case.
#
# **Takeaway.** Ask of every benchmark which sizes it shows; the convention chooses what you get to see.

# %% [markdown]
# ## Why causal TFLOP/s are lower
#
# With the mask half of the FLOPs are counted. The kernel skips tiles above the diagonal, but a tile *on* the diagonal is computed whole. **Predict**: at the smallest $N$, how many times the counted FLOPs does it compute? And what share of its time does the mask save there?

# %%
my_waste, my_saved = None, None

# %%
figures.tflops(results, d=d, causal=True, live=live)

# %%
masked, plain = measured("fa2_triton_forward", d, True), measured("fa2_triton_forward", d, False)
for N in sorted(masked.keys() & plain.keys()):
    B_r, B_c = tiles_of(masked[N])
    computed = cost.fa2_forward(N, N, d, B_r=B_r, B_c=B_c, causal=True).matmul_flops
    waste, slower = computed / cost.attention_flops(1, 1, N, N, d, causal=True), plain[N]["tflops"] / masked[N]["tflops"]
    print(f"N = {N:>5}, tiles of {B_r} x {B_c}: computes {waste:.2f} times what is counted (modelled): {100 * (1 - 1 / waste):4.1f} % fewer "
          f"TFLOP/s, {100 * (1 - 1 / slower):4.1f} % measured; the mask saves {1 - masked[N]['ms'] / plain[N]['ms']:.0%} of the time")
print("your predictions:", my_waste, my_saved)

# %% [markdown]
# **Compare.** The waste is about $B_r / N$ and fades; what is measured is more at every $N$. The rest has not been taken apart. The mask is computed in every tile though only the diagonal needs it, and the loops are shorter: both cost something, how much is not measured here.
#
# **Takeaway.** Tiles are coarser than the mask. What half the FLOPs saves, only the clock says.

# %% [markdown]
# ## Error
#
# Fast and slightly wrong would be easy. All errors are against float64, on the same inputs. **Predict**: naive attention in bfloat16 rounds $S$ and $P$ to 8 bits on their way through HBM. Is the kernel's error larger, equal or smaller?

# %%
my_guess = None

# %%
figures.error_against_float64(results, d=d, causal=causal, live=live)

# %%
from flashlab.oracle import attention

for key, words in [("error", "largest error"), ("rms_error", "root mean square error")]:
    for name, rows in others.items():
        if values := [rows[N][key] / kernel[N][key] for N in sorted(kernel) if N in rows and rows[N].get(key) and kernel[N].get(key)]:
            print(f"{name_of[name]:<16} {min(values):5.2f} to {max(values):5.2f} times the kernel's {words}")
Q, K, V = bench.inputs(bench.Problem(first, d), "cpu")
O = attention(Q, K, V)[0]                                                # float64
print(f"N = {first}, no mask: the kernel's largest error is {measured('fa2_triton_forward', d, False)[first]['error']:.4f}; rounding "
      f"the truth to bfloat16 costs {(O.bfloat16() - O).abs().max():.4f} (measured here, other random numbers)")
print("your prediction:", my_guess)

# %% [markdown]
# **Compare.** In the kernel $S_{ij}$, $l_i$ and $O_i$ are float32 and never leave the chip; $P_{ij}$ is rounded once, for the tensor cores, and $O$ once, when it is stored. The *largest* error is mostly that last rounding, of one number that several kernels round alike: hence ratios of exactly 1.00. (Rows that have a root mean square show it: the steadier figure.)
#
# **Takeaway.** Scores that stay on the chip can stay float32, at no cost in bytes. SDPA math is as accurate because it stores wider numbers, and pays for it in memory and time.

# %% [markdown]
# ## HBM bytes against the model
#
# The memory model charges every load to HBM; a GPU has an L2 cache in between. **Predict**: how many times $Q + K + V$ does the kernel read from DRAM at the largest $N$?

# %%
my_reads = None

# %%
figures.model_vs_counters(counters)

# %%
for r in counters["rows"]:
    if r["implementation"] == "fa2_triton_forward" and not r["skipped"]:
        once = 3 * r["B"] * r["H"] * r["N"] * r["d"] * 2                     # bytes of Q, K and V
        asked = r["B"] * r["H"] * cost.fa2_forward(r["N"], r["N"], r["d"], B_r=r["B_r"], B_c=r["B_c"], element_size=2).read
        print(f"N = {r['N']:>5}, in units of Q + K + V: programs ask for {asked / once:5.1f} (modelled), "
              f"L2 sees {r['l2_bytes'] / once:5.1f}, DRAM reads {r['dram_read'] / once:.2f} (recorded)")
naive_kernels = next(len(r["kernels"]) for r in counters["rows"] if r["implementation"] == "naive_forward" and not r["skipped"])
print(f"your prediction: {my_reads}. Naive attention: {naive_kernels} GPU kernels (recorded) for the model's 5 operations")

# %% [markdown]
# **Compare.** The model counts what the programs ask for. L2 sees less: some requests are joined or served before they reach it; which unit does that, these counters do not say. DRAM sees far less: L2 serves all re-reads of $K_j$ and $V_j$. Naive attention moves *more* than the model says: PyTorch's `logsumexp` is a chain of kernels on the GPU, and several read or write $S$ again.
#
# **Takeaway.** The model says what is asked for, the caches decide what it costs.

# %% [markdown]
# ## The backward pass
#
# Training needs gradients: $dQ$, $dK$, $dV$. That is five matrix products where the forward pass has two, so 2.5 times the FLOPs are counted. The kernels are chapter 11's, recorded for the same sizes; each gradient was held against float64 first. **Predict** the share of a matrix product that the kernels reach at best.

# %%
my_backward_share = None     # between 0 and 1

# %%
figures.tflops(backward, d=d, causal=causal)

# %%
names = dict.fromkeys(r["implementation"] for r in backward["rows"])
gradients = {name: measured(name, results=backward) for name in names}
ours = gradients.pop("fa2_triton_backward")
compare(ours, gradients)
share = max(r["tflops"] for r in ours.values()) / backward["ceilings"]["matmul_tflops"]
print(f"At best {share:.0%} of a matrix product as counted; the kernels compute 7 products where 5 count, {share * 7 / 5:.0%}; "
      f"your prediction: {my_backward_share}")

# %% [markdown]
# **Compare.** One kernel makes $dK_j$ and $dV_j$, another $dQ_i$; each computes $S$ and $dP$ for itself, so no two programs write to the same place. That is two products more than are counted. cuDNN is ahead at every size, and what it does differently we have not measured.
#
# **Takeaway.** The same order as in the forward pass: ahead of naive, close to SDPA flash, behind cuDNN.

# %% [markdown]
# And memory? For the backward pass naive attention keeps $P$, and makes $dP$ and $dS$ beside it. **Predict** the kernel's peak of forward and backward together at the largest $N$, in MiB: $O$, $dQ$, $dK$, $dV$ in 16 bits, $L$ in 32.

# %%
my_backward_mib = None

# %%
figures.peak_memory_against_N(backward, d=d, causal=causal)

# %%
N = max(ours)
results_of_it = ours[N]["B"] * ours[N]["H"] * N * (4 * 2 * d + 4)
print(f"N = {N}: O, dQ, dK, dV and L are {results_of_it / 2**20:.0f} MiB; your prediction: {my_backward_mib}")
for name, rows in {"fa2_triton_backward": ours, **gradients}.items():
    peak = rows[N]["peak_bytes"] if N in rows else None
    print(f"{name_of[name]:<16} " + (f"{peak / 2**20:8.0f} MiB, {peak / results_of_it:6.2f} times that" if peak else "not measured"))

# %% [markdown]
# **Compare.** What the kernel needs beyond its results is small change, $D$ among it: one number for each row. The other fused ones need more, and their lines are as flat.
#
# **Takeaway.** Recomputing $P$ tile by tile is what makes training on long texts fit; FlashAttention's backward pass stores $L$ where naive attention stores $P$.

# %% [markdown]
# ## How to lie with TFLOP/s
#
# One measurement, honest and then dressed up. The kernel, causal, at the largest $N$. **Predict**: what is the largest TFLOP/s figure that can be had from it without changing the kernel?

# %%
my_largest = None

# %%
r = masked[max(masked)]
N, honest = r["N"], r["tflops"]
lies = {"as the field counts: half of the pairs": honest, "count the masked pairs as well": 2 * honest,
        "take the fast runs, not the median": honest * r["ms"] / r["ms_low"], "both": 2 * honest * r["ms"] / r["ms_low"]}
for words, value in lies.items():
    print(f"{words:<40} {value:7.1f} TFLOP/s, {value / matmul:6.1%} of a matrix product")
for name in ("sdpa_math", "naive_forward", "sdpa_flash", "sdpa_cudnn"):
    if rival := measured(name, d, True).get(N):
        print(f"compare with {name_of[name]:<27} {rival['ms'] / r['ms']:7.2f} times as fast")
print("your prediction:", my_largest)

# %% [markdown]
# Each line is true, and each leaves out its denominator. Some questions find most of such things: which FLOPs are counted? Against whom? At which sizes, in which dtype, and what happened at the others? Was it correct? How far do repeated runs differ? A rate above the dashed line answers itself.
#
# **Takeaway.** A speed is a count over a time: ask how both were taken.

# %% [markdown]
# ## Your own numbers
#
# On a machine with an NVIDIA GPU, `python -m flashlab bench forward` measures all sizes, `bench backward` the gradients, and `bench counters` reads the counters where Nsight Compute is installed. Each writes device, versions, date and command beside its numbers.

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), section 4, for the sizes and the counting of FLOPs · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608) · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · [`triton.testing.do_bench`](https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html) · PyTorch, [`sdpa_kernel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html) · NVIDIA, [Nsight Compute: profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html)
#
# **Next:** back to [00 · Start here](00_start_here.ipynb) for the map, or change `d` and `causal` at the top and read the plots once more.
