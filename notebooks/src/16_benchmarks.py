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
# **You will be able to** time a GPU kernel so that the number means something; read run time, memory, TFLOP/s, error and HBM bytes off five plots and say why each line bends where it bends; and see through a benchmark that flatters.
#
# **You need** chapters 06 and 07; 10 is what gets measured. · **40 minutes** · **runs on** GPU (live, a short run of about a minute) or CPU (recorded figures)
#
# The kernel of chapter 10 stands beside naive attention and four attentions that PyTorch ships: `math`, `efficient`, `flash` (FlashAttention-2 in CUDA, by its authors) and `cudnn` (NVIDIA's own).

# %%
import flashlab  # first: it tells Triton where to run
from flashlab import bench, cost, figures, figures_gpu
from flashlab.skip import skip_the_rest

try:
    results, source = bench.live_or_recorded()
    counters = bench.load_results("counters_h100")
    print(f"Run times below are {source}.\nCounters are recorded on {bench.where(counters)}.")
except FileNotFoundError as error:
    print(str(error).replace(f"{bench.ROOT}/", ""))
    skip_the_rest("There are no results to plot.")

# %% [markdown]
# **Every number below that is not marked otherwise comes from the run named above**, and so do the sentences: they are computed. Choose a head dimension and a mask here. When you have reached the end, come back, change them and run again.

# %%
d, causal = 128, False                               # 64 or 128, False or True
live = source.startswith("measured")
name_of = figures.LABELS                             # "sdpa_flash" -> "SDPA flash"


def measured(name, d=d, causal=causal):
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
    print(f"{r['implementation']:<17} {r['ms'] or '-'} ms here; {r['skipped'] or 'correct'}")
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
# **Compare.** The first call pays for set-up: warm up, and throw those runs away. A few slow calls, when something else wanted the machine, move the mean and leave the median alone.
#
# On a GPU four more things go wrong. A launch returns before the work is done: use the GPU's own *events*. Inputs linger in the L2 cache: overwrite it between runs. Clocks sink as the chip warms: let the contestants take turns. And the numbers to compare with must come from the same run. `bench.py` does all four; how well, the spread tells. **Predict**: by how many per cent do the 20th and the 80th percentile differ?

# %%
my_spread = None     # per cent, the largest among all rows

# %%
rows = [r for r in results["rows"] if r["ms"]]
spread = sorted(100 * (r["ms_high"] - r["ms_low"]) / r["ms"] for r in rows)
worst = max(rows, key=lambda r: (r["ms_high"] - r["ms_low"]) / r["ms"])
print(f"{len(rows)} medians of {min(r['runs'] for r in rows)} to {max(r['runs'] for r in rows)} runs: they usually spread by "
      f"{spread[len(spread) // 2]:.1f} %, at most by {spread[-1]:.1f} %; your prediction: {my_spread}")
print(f"the widest: {name_of[worst['implementation']]} at N = {worst['N']}, a median of {worst['ms']:.2f} ms")

# %% [markdown]
# **Takeaway.** Warm-up, events, cold cache, turns, median. And a lead smaller than the spread is no lead.
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
# **Takeaway.** The gap between two lines is the same work done with other memory traffic; the slope says what the time is spent on.
#
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
# **Takeaway.** $O(N)$ memory is the part of FlashAttention that no faster chip can replace: without it long texts do not run slowly, they do not run.
#
# ## TFLOP/s
#
# FLOPs by the formula, divided by the median time. The dashed line is a large matrix product in the same run: the most that this GPU's tensor cores give in practice. **Predict** the kernel's share of it at its best.

# %%
my_share = None     # between 0 and 1

# %%
figures.tflops(results, d=d, causal=causal, live=live)

# %% [markdown]
# The title names the nearest relative, SDPA flash: the same algorithm, written in CUDA. But a fair reader asks for the fastest line. Here is the kernel against each, above 1 where the kernel is faster.

# %%
print("kernel's speed / theirs " + "".join(f"{f'N = {N}':>11}" for N in sorted(kernel)))
for name, rows in others.items():
    print(f"{name_of[name]:<24}" + "".join(f"{rows[N]['ms'] / kernel[N]['ms']:>11.2f}" if N in rows else f"{'-':>11}" for N in sorted(kernel)))
fastest = min((name for name in others if last in others[name]), key=lambda name: others[name][last]["ms"])
lead = kernel[last]["ms"] / others[fastest][last]["ms"]
share = max(r["tflops"] for r in kernel.values()) / results["ceilings"]["matmul_tflops"]
print(f"\nThe kernel reaches {share:.0%} of the matrix product at its best; your prediction: {my_share}")
print(f"At N = {last} the fastest other is {name_of[fastest]}: " +
      (f"{lead:.2f} times as fast as our kernel." if lead > 1 else f"our kernel is {1 / lead:.2f} times as fast."))

# %% [markdown]
# **Compare.** On an H100: SDPA flash was written for the A100, one generation earlier, and our kernel too uses nothing newer, except the `wgmma` that Triton picks by itself. cuDNN's kernel is made for the H100. Base-2 exponentials, a causal loop split in two, copies by TMA, warps with different jobs: the rungs above this one go that way.
#
# **Takeaway.** Name the fastest competitor, not the most convenient one.
#
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
                       "flops": cost.attention_flops(r["B"], r["H"], r["N"], r["N"], 64), "tflops": timed["tflops"]})
for p in points:
    limit = min(matmul, p["flops"] / p["bytes"] * copy)
    print(f"{p['op']:<24} {p['flops'] / p['bytes']:7.0f} FLOPs a byte of DRAM, at most {limit:4.0f} TFLOP/s, measured {p['tflops']:4.0f}")
print("your prediction:", my_naive_limit)

# %% [markdown]
# The same as a picture, a *roofline*: the slope is memory, the flat part is arithmetic. Left of the ridge a kernel waits for bytes, right of it for tensor cores.

# %%
longest = points[-2:]                                 # naive attention and the kernel, at the largest N
figures_gpu.roofline(longest, copy, matmul, f"Speeds {source}; bytes: DRAM counters at B = 1, H = 16, recorded.")

# %% [markdown]
# **Compare.** Naive attention's FLOPs and bytes both grow with $N^2$, so their ratio, and with it the limit, settles. The kernel's ratio keeps growing: its limit is arithmetic, and how close it comes is a matter of craft.
#
# **Takeaway.** A line that flattens far below the ceiling is bound by memory; no better arithmetic would lift it.
#
# ## Why short sequences are slower
#
# The kernel's own line rises before it flattens, although its inputs are always the same size. **Predict**: reading $Q$, $K$, $V$ and writing $O$ once, at the speed of a copy, is what share of its time at the smallest $N$?

# %%
my_floor_share = None     # between 0 and 1

# %%
B_r, B_c, sms = 128, 64, 132                          # typical tiles; the SMs of an H100
for N, r in sorted(kernel.items()):
    floor = 4 * r["B"] * r["H"] * N * d * 2 / copy / 1e9                 # ms
    programs = r["B"] * r["H"] * cost.ceil_div(N, B_r)
    print(f"N = {N:>5}: {programs} programs (modelled) of {cost.ceil_div(N, B_c):>3} key tiles each, "
          f"copying Q, K, V, O takes {floor / r['ms']:4.0%} of the time")
print(f"your prediction: {my_floor_share}")
print(f"One sequence of {first} tokens and 16 heads: {16 * cost.ceil_div(first, B_r)} programs (modelled) for {sms} SMs.")

# %% [markdown]
# **Compare.** The number of programs is the same at every $N$; what shrinks is the loop in each. A program first waits for $Q_i$ and the first $K_j$, and at the end writes $O_i$: the shorter the loop, the larger that share. In a batch the chip is full anyway. A single short sequence does not even give each SM one program, and the launch itself begins to count: our constant $B \cdot N$ hides that case.
#
# **Takeaway.** Ask of every benchmark which sizes it shows; the convention chooses what you get to see.
#
# ## Why causal TFLOP/s are lower
#
# With the mask half of the FLOPs are counted. The kernel skips tiles above the diagonal, but a tile *on* the diagonal is computed whole. **Predict**: at the smallest $N$, how many times the counted FLOPs does it compute?

# %%
my_waste = None

# %%
figures.tflops(results, d=d, causal=True, live=live)

# %%
masked, plain = measured("fa2_triton_forward", d, True), measured("fa2_triton_forward", d, False)
for N in sorted(masked.keys() & plain.keys()):
    computed = cost.fa2_forward(N, N, d, B_r=B_r, B_c=B_c, causal=True).matmul_flops
    counted = cost.attention_flops(1, 1, N, N, d, causal=True)
    print(f"N = {N:>5}: computes {computed / counted:.2f} times what is counted (modelled); "
          f"TFLOP/s without mask / causal = {plain[N]['tflops'] / masked[N]['tflops']:.2f}")
print("your prediction:", my_waste)

# %% [markdown]
# **Compare.** The waste is about $B_r / N$ and fades. What remains of the second ratio is the price of the mask itself, computed in every tile though only the diagonal needs it, of shorter loops, and of programs that are not equally long: the last ones finish alone.
#
# **Takeaway.** Tiles are coarser than the mask. Half the FLOPs never means half the time.
#
# ## Error
#
# Fast and slightly wrong would be easy. All errors are against float64, on the same inputs. **Predict**: naive attention in bfloat16 rounds $S$ and $P$ to 8 bits on their way through HBM. Is the kernel's error larger, equal or smaller?

# %%
my_guess = None

# %%
figures.error_against_float64(results, d=d, causal=causal, live=live)

# %%
ratios = {name: [rows[N]["error"] / kernel[N]["error"] for N in sorted(kernel) if N in rows] for name, rows in others.items()}
for name, values in ratios.items():
    if values:
        print(f"{name_of[name]:<16} {min(values):5.2f} to {max(values):5.2f} times the kernel's error")
print("your prediction:", my_guess)

# %% [markdown]
# **Compare.** In the kernel $S_{ij}$, $l_i$ and $O_i$ are float32 and never leave the chip; $P_{ij}$ is rounded once, for the tensor cores, and $O$ once, when it is stored.
#
# **Takeaway.** Keeping tiles on the chip makes attention faster *and* more accurate: what is not stored is not rounded.
#
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
# **Compare.** The model counts what the programs ask for. L2 sees less of it, since a Hopper GPU joins requests for the same line on their way there (Nsight Compute calls the unit *L2 request coalescer*). DRAM sees far less: the programs of a head run at about the same time, and one fetch of $K_j$ serves many of them. Naive attention moves *more* than the model says: PyTorch's `logsumexp` is a chain of kernels on the GPU, and each reads or writes $S$ again.
#
# **Takeaway.** The model says what is asked for, the caches decide what it costs.
#
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
#
# ## Your own numbers
#
# On a machine with an NVIDIA GPU, `python -m flashlab bench forward` measures all sizes, and `bench counters` reads the counters where Nsight Compute is installed; both write to `results/` with device, versions, date and command.
#
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), section 4, for the sizes and the counting of FLOPs · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608) · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · [`triton.testing.do_bench`](https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html) · PyTorch, [`sdpa_kernel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html) · NVIDIA, [Nsight Compute: profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html)
#
# **Next:** back to [00 · Start here](00_start_here.ipynb) for the map, or change `d` and `causal` at the top and read the plots once more.
