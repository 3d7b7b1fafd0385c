# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 · How a GPU runs your code
#
# **You will be able to** say from two numbers whether an operation waits for memory or for arithmetic, choose a grid for any size, write a kernel thread by thread, and see which threads idle and what that costs.
#
# **You need** chapter 01. · **60 minutes** · **runs on** CPU or GPU
#
# A kernel is a function that thousands of threads run at once. First the memory they share, then the threads themselves. GPU numbers are measured live if you have one, else recorded on an H100.

# %% [markdown]
# ## Two memories
#
# An A100 has 40 GB of HBM at 1.5 TB/s. Each of its 108 processors (streaming multiprocessors, SMs) also has 192 KB of SRAM of its own, and all SRAM together delivers 19 TB/s. **Predict**: how many times faster is the SRAM, and how many times smaller?

# %%
my_faster, my_smaller = None, None

# %% [markdown]
# **Run and compare.** These are the published numbers that the FlashAttention paper starts from.

# %%
from flashlab import figures  # flashlab first, then torch
import torch

print(f"your prediction: {my_faster} times faster, {my_smaller} times smaller")
figures.memory_hierarchy()

# %% [markdown]
# **Takeaway.** The fast memory cannot hold the data, and the memory that holds the data is slow. So the question for every algorithm is how often a byte has to cross between them.
#
# ## One level more: the L2 cache
#
# Between the two sits the L2 cache: shared by all SMs, 50 MB on an H100, and filled by the hardware without being asked. A kernel reads the same buffer over and over; buffers have 1 MiB to 1 GiB. **Predict**: how many times faster does the fastest size come than 1 GiB?

# %%
my_ratio = None

# %% [markdown]
# **Run and compare.** Each dot is one buffer size, read again and again by the whole GPU.

# %%
from flashlab.bench import numbers, pick

rows, words = numbers("memory_bandwidth")
print(f"your prediction: {my_ratio}")
for row in pick(rows, level="shared memory"):
    print(f"shared memory, all SMs together: {row['tb_s']:.1f} TB/s")
figures.bandwidth_by_footprint(rows, words, l2_bytes=50 * 2**20) if rows else print(words)

# %% [markdown]
# Bandwidth says how much arrives in a second, once the stream flows. **Latency** says how long the first byte takes. One thread follows a chain of pointers, so that each address is known only when the number before it has come: nothing overlaps.

# %%
rows, words = numbers("memory_latency")
for row in sorted(rows, key=lambda row: (row["level"] != "shared memory", row["footprint"])):
    KiB = row["footprint"] / 2**10
    size = row["level"] if row["level"] == "shared memory" else f"{KiB:g} KiB" if KiB < 1024 else f"{KiB / 1024:g} MiB"
    print(f"{size:>16}: {row['ns']:6.1f} ns for one load, {row['ns'] / min(r['ns'] for r in rows):4.1f} times the shortest")
print(words)

# %% [markdown]
# Three plateaus: what fits the SM's own cache, what fits L2, and HBM, hundreds of clock cycles away.
#
# **Takeaway.** A GPU does not make the wait shorter. It keeps so many loads in flight that the wait is hidden, and that is what thousands of threads are for.
#
# ## What a byte costs
#
# A GPU can calculate far faster than it can fetch. **Predict**: while one float32 (4 bytes) comes from HBM, how many 16-bit operations could an H100's tensor cores do? And your own machine, in float32?

# %%
my_operations = {"A100": None, "H100": None, "this machine": None}

# %% [markdown]
# **Run and compare.** A100: published (312 TFLOP/s in 16 bit, 1.5 TB/s). H100: a matrix product and a copy, as measured. This machine: the two rates that `doctor` reports.

# %%
from flashlab import doctor

ceilings, words = numbers("ceilings")
device = "cuda" if torch.cuda.is_available() else "cpu"
here = [doctor.matmul_rate(device).data["TFLOP_per_s"], doctor.copy_bandwidth(device).data["GB_per_s"] / 1000]
limits = {"A100": [312.0, 1.5], "this machine": here}               # TFLOP/s, TB/s
if ceilings:
    limits["H100"] = [pick(ceilings, what="float16 matmul")[0]["tflops"], pick(ceilings, what="copy")[0]["tb_s"]]
for name, (tflops, tb_s) in limits.items():
    print(f"{name:>12}: {tflops:7.3g} TFLOP/s, {tb_s:6.3g} TB/s: {4 * tflops / tb_s:5.0f} operations while one float32 comes; "
          f"your prediction: {my_operations[name]}")
print(words)

# %% [markdown]
# **Takeaway.** A number that is fetched from HBM and used once leaves the arithmetic units idle almost all of the time.
#
# ## Time = data movement + compute
#
# Now attention, operation by operation. The memory model counts each one's bytes; its FLOPs are known. FLOPs divided by bytes is the **arithmetic intensity**. **Predict** for one head, $N = 2048$, $d = 64$: for 100 µs that $QK^\top$ spends on moving numbers, how many go to arithmetic? And softmax?

# %%
my_microseconds = {"QKᵀ": None, "softmax": None}

# %% [markdown]
# **Run and compare**, with the A100's published limits and 16-bit numbers. The two times can overlap, so the truth lies between the larger one and their sum.

# %%
from flashlab.memory import Memory
from flashlab.rungs.naive import naive_forward

N, d = 2048, 64
Q, K, V = (torch.randn(N, d, dtype=torch.float16) for _ in range(3))
print(f"modelled: A100, one head, N = {N}, d = {d}")
with Memory() as mem:
    naive_forward(Q, K, V)
flops = {"QKᵀ": 2 * N * N * d, "scale": N * N, "softmax": 5 * N * N, "PV": 2 * N * N * d}
ops = []
for (op, n), event in zip(flops.items(), mem.log, strict=False):
    ops.append({"op": op, "flops": n, "bytes": event.read + event.written})
    move, compute = ops[-1]["bytes"] / 1.5e12 * 1e6, n / 312e12 * 1e6
    print(f"{op:>8}: {n / ops[-1]['bytes']:5.1f} FLOPs a byte; {move:5.1f} µs moving + {compute:4.1f} µs computing, "
          f"{100 * compute / move:4.1f} for each 100; your prediction: {my_microseconds.get(op, '-')}")

# %% [markdown]
# Even the matrix products wait for memory: with $d = 64$ they make an $N \times N$ matrix out of two thin ones, and writing that is the work. A square matmul is another matter, and so is attention that never writes $S$. **Predict** their FLOPs per byte.

# %%
my_intensity = {"matmul 4096³": None, "FA2": None}

# %% [markdown]
# **Run and compare.** FA2 here reads $Q$, $K$, $V$ once and writes $O$ once: the least that any attention can move. On a GPU its re-reads of $K$ and $V$ come from the L2 cache (chapter 07 has the counters).

# %%
n, N, d = 4096, 4096, 64
extra = [{"op": "matmul 4096³", "flops": 2 * n**3, "bytes": 2 * 3 * n * n},
         {"op": "FA2", "flops": 4 * N * N * d, "bytes": 2 * 4 * N * d}]
for point in extra:
    print(f"{point['op']}: {point['flops'] / point['bytes']:.0f} FLOPs a byte (modelled); your prediction: {my_intensity[point['op']]}")

# %% [markdown]
# A **roofline** puts all of them into one picture. The slanted line is what memory allows, the flat one what arithmetic allows; left or right of the corner says which of the two an operation waits for. The roof is the best that this run saw, so nothing here is above it; other runs differ by some 10 % (chapter 16).

# %%
rows, words = numbers("roofline")
if rows:
    tb_s, tflops = (max(row.get(rate, 0) for row in rows + ceilings) for rate in ("tb_s", "tflops"))     # the best that was seen
    picture = figures.roofline(rows, tb_s, tflops, words)
else:
    picture = figures.roofline(ops + extra, 1.5, 312, f"Modelled, limits of an A100. {words}.")
picture

# %% [markdown]
# The times behind the dots. They are for many heads and longer rows than the model above, on another GPU: more microseconds, the same places. "SDPA" is `scaled_dot_product_attention` with PyTorch's own choice of backend (chapter 16 tells them apart).

# %%
if rows:
    print(f"{rows[0]['H']} heads, N = {rows[0]['N']}, d = {rows[0]['d']}, float16; the last two rows have sizes of their own")
for row in rows:
    move, compute = row["bytes"] / tb_s / 1e6, row["flops"] / tflops / 1e6                # µs
    print(f"{row['op']:>14}: {row['ms'] * 1000:7.1f} µs; moving takes {move:6.1f}, computing {compute:6.1f} at best")
for row in pick(rows, op="softmax"):
    print(f"PyTorch's softmax takes {tb_s / row['tb_s']:.1f} times the time that its bytes need at best.")
print(words)

# %% [markdown]
# Chapter 09 writes a softmax that takes hardly longer than its bytes need.
#
# **Takeaway.** Every operation of naive attention waits for memory. FlashAttention does the same arithmetic far to the right of the corner. That is the whole plan of this course; the rest of this chapter is about the threads that carry it out.

# %% [markdown]
# ## A kernel, thread by thread
#
# You write what *one* thread does; the GPU starts thousands. Each finds out who it is from its thread id and its block's id, and takes the element of that number. Here is vector addition in CUDA C++, then the same lines in Python.

# %%
import inspect

from flashlab.gpu import cuda, simt

print(cuda.kernel_lines("vector_add"))
print()
print(inspect.getsource(simt.vector_add))

# %% [markdown]
# `launch(kernel, grid, block)` runs the Python version in a small SIMT interpreter (flashlab/gpu/simt.py). It stands for CUDA's `kernel<<<grid, block>>>`: `grid` blocks of `block` threads each. Two blocks of 64 threads for 100 elements:

# %%
from flashlab.gpu.simt import launch

N = 100
A, B, C = torch.randn(N), torch.randn(N), torch.full((N,), float("nan"))
trace = launch(simt.vector_add, 2, 64)(A, B, C, N)
print(f"C = A + B: {torch.equal(C, A + B)}; {trace.threads} threads for {N} elements")

# %% [markdown]
# ## Warps
#
# A GPU does not run threads one by one. It takes 32 of them, a **warp**, and all 32 lanes do the same instruction at the same time. Launch 64 threads for 8 elements. **Predict**: how many threads have nothing to add? How many of those sit in a warp that adds?

# %%
my_idle_threads, my_idle_lanes = None, None

# %%
A, B, C = (torch.ones(8) for _ in range(3))
trace = launch(simt.vector_add, 1, 64)(A, B, C, 8)
ADD = 4                                                            # the line that adds; the def is line 1
print(f"modelled: threads without an element: {trace.threads - trace.active_lanes(line=ADD)}; your prediction: {my_idle_threads}")
print(f"modelled: idle lanes of the warp that adds: {trace.idle_lanes(line=ADD)}; your prediction: {my_idle_lanes}")
figures.warp_lanes(trace)

# %% [markdown]
# **Compare.** Published notes on this example say that 24 threads do nothing. That is the first warp alone: of 64 threads, 56 have no element. The second warp asks `if i < N`, gets 32 times no, and is done.
#
# **Takeaway.** Work comes in warps of 32. Idle lanes cost as much as busy ones.
#
# ## How many blocks?
#
# Each block covers `block` elements, so $N$ elements need $\lceil N/\text{block} \rceil$ blocks. Published code sometimes divides and drops the rest. **Predict**: 70 elements, blocks of 32, and `70 // 32` blocks. What happens?

# %%
my_guess = None     # how many elements of C are never written?

# %% [markdown]
# **Run and compare.** This cell fails on purpose: C starts as NaN, so what nobody writes stays NaN.

# %%
N, block = 70, 32
A, B, C = torch.randn(N), torch.randn(N), torch.full((N,), float("nan"))
launch(simt.vector_add, N // block, block)(A, B, C, N)
print(f"floor: {int(C.isnan().sum())} elements never written; your prediction: {my_guess}")
launch(simt.vector_add, -(-N // block), block)(A, B, C, N)         # -(-N // block) is ceil(N / block)
print(f"ceil:  {int(C.isnan().sum())} elements never written")
figures.grid_and_guard(N, block)

# %% [markdown]
# Rounding up starts threads that have no element, and `if i < N` stops them: the **guard**. Without it they read and write past the end of the tensors. The interpreter notices. A GPU stops only if the address belongs to no allocation; else it overwrites whatever lies there. This cell fails on purpose.

# %%
from flashlab.gpu.simt import blockDim, blockIdx, threadIdx


def no_guard(A, B, C, N):
    i = blockIdx.x * blockDim.x + threadIdx.x
    C[i] = A[i] + B[i]


try:
    launch(no_guard, 3, 32)(A, B, C, N)
except IndexError as error:
    print(error)

# %% [markdown]
# **Takeaway.** Round the grid up, and guard. One without the other loses elements or destroys memory.
#
# ## Two dimensions
#
# A grid and a block may have an x and a y. For a matrix, x walks along a row and y goes from row to row. Both need their own ceil and their own guard.

# %%
print(inspect.getsource(simt.matrix_add))
rows, cols = 10, 20
figures.grid_and_guard((rows, cols), block=(4, 8))

# %% [markdown]
# x comes first in `grid` and `block`, columns come second in `(rows, cols)`: easy to confuse. Notes on this example launch `grid(ROWS, COLS)` with a kernel that takes its row from y. **Predict**: for a $10 \times 40$ matrix, how many of the 400 sums are missing then?

# %%
my_missing = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose. On the $10 \times 20$ matrix of the picture the mistake would hide: $3 \times 3$ blocks are the same either way round.

# %%
rows, cols = 10, 40
A, B = torch.randn(rows, cols), torch.randn(rows, cols)
for name, grid in [("x counts rows: wrong", (-(-rows // 4), -(-cols // 8))), ("x counts columns", (-(-cols // 8), -(-rows // 4)))]:
    C = torch.full((rows, cols), float("nan"))
    launch(simt.matrix_add, grid, (8, 4))(A, B, C, rows, cols)
    print(f"{name:>22}: grid {grid}, {int(C.isnan().sum())} of {C.numel()} sums missing; your prediction: {my_missing}")

# %% [markdown]
# **Takeaway.** x is the direction of the lanes, and belongs to the columns. Test with a shape that is neither square nor a multiple of the block.
#
# ## Control divergence
#
# Lanes of a warp share one instruction. What if they disagree on a branch? In `two_paths`, threads in groups of `period` take one loop or the other. **Predict**: how many steps does one warp take with `period` 1, 16 and 32, if a single path takes 12?

# %%
print(inspect.getsource(simt.two_paths))
my_steps = {1: None, 16: None, 32: None}

# %%
traces = {}
for period in (1, 16, 32):
    traces[period] = launch(simt.two_paths, 1, 32)(torch.randn(32), 32, period, 3)
    print(f"modelled, period {period:>2}: {traces[period].warp_steps} steps, {traces[period].lane_use:.0%} of the lanes active; "
          f"your prediction: {my_steps[period]}")
figures.warp_lanes(traces[1])

# %% [markdown]
# **Compare.** Where lanes disagree, the warp walks through *both* loops, each time with half of its lanes switched off, and they join again at the end. It does not matter how many lanes disagree: with `period` 16 it costs the same.
#
# **Predict** the time on a GPU for 4 million threads, with `period` 32 as the unit.

# %%
my_times = {1: None, 16: None, 64: None}

# %%
rows, words = numbers("divergence")
unit = pick(rows, period=32)
for row in rows:
    name = "all take path 1" if row["period"] > 1000 else f"period {row['period']}"
    print(f"{name:>16}: {row['ms']:7.3f} ms, {row['ms'] / unit[0]['ms']:.2f} times period 32; "
          f"your prediction: {my_times.get(row['period'], '-')}")
print(words)

# %% [markdown]
# **Takeaway.** A branch is free where whole warps agree, and costs both sides where they do not. Divergence is about neighbours, not about how many threads take which side.
#
# ## What idle lanes cost
#
# A block of 8 threads is still a warp of 32 lanes: 24 of them never get a thread. The same arithmetic on a million numbers, with blocks of 8 and of 32 threads. **Predict** the ratio of the two times.

# %%
my_ratio = None

# %%
rows, words = numbers("idle_lanes")
for row in rows:
    print(f"blocks of {row['block']:>3}: {row['ms']:7.3f} ms, {row['ms'] / pick(rows, block=32)[0]['ms']:.2f} times blocks of 32; "
          f"{min(32, row['block'])} of 32 lanes have a thread")
print(f"your prediction: {my_ratio}. {words}")

# %% [markdown]
# **Compare.** Below 32 threads, half as many in a block take almost twice the time: each warp costs the same, and there are twice as many. From 32 on the block's size does not matter here.
#
# The GPU can count active lanes itself. Its profiler's `thread_inst_executed_per_inst_executed` is how many lanes, on average, took part in an instruction: 32 is best. The interpreter's `lane_use` is the same quantity for our Python lines, here with as many rounds as on the GPU.

# %%
rows, words = numbers("counters", live=False)
for row in pick(rows, kernel="vector_add") + pick(rows, kernel="two_paths"):
    label = f"block {row['block']}" if "block" in row else f"period {row['period']}"
    print(f"{row['kernel']:>12}, {label:<10} {row['lanes_per_instruction']:5.1f} of 32 lanes active (hardware counter)")
print(words)
for period in (1, 16, 32):
    trace = launch(simt.two_paths, 1, 32)(torch.randn(32), 32, period, 256)
    print(f"   two_paths, period {period:<3} {32 * trace.lane_use:5.1f} of 32 lanes active (modelled)")

# %% [markdown]
# **Takeaway.** Idle lanes are paid for like busy ones. The interpreter's count comes close to the hardware's: a Python line is not one machine instruction, but the lanes are the same.
#
# ## Small blocks cost even without idle lanes
#
# Vector addition waits for memory, not for lanes. So blocks of 32, with every lane busy, should be as good as blocks of 256. **Predict** how much slower they are.

# %%
my_slowdown = None

# %%
rows, words = numbers("vector_addition")
for row in pick(rows, by="CUDA C++"):
    blocks = -(-row["N"] // row["block"])
    print(f"blocks of {row['block']:>4}: {row['ms']:7.3f} ms, {row['tb_s']:.2f} TB/s, {blocks / row['ms'] / 1e6:.2f} blocks a nanosecond")
for row in pick(rows, by="PyTorch") + pick(rows, by="Triton"):
    print(f"{row['by']:>14}: {row['ms']:7.3f} ms, {row['tb_s']:.2f} TB/s")
fastest = min(pick(rows, by="CUDA C++"), key=lambda row: row["ms"], default=None)
for row in pick(rows, by="CUDA C++", block=32):
    print(f"Blocks of 32 take {row['ms'] / fastest['ms']:.1f} times as long as blocks of {fastest['block']}, the fastest.")
print(f"your prediction: {my_slowdown}. {words}")

# %% [markdown]
# **Compare.** Look at the last column: as long as blocks are small it stands still, whatever is in a block. Starting blocks is work too, and with small blocks nothing else counts. Triton and PyTorch move more bytes a second than our kernel; chapter 09 shows how Triton deals numbers out to threads.
#
# **Takeaway.** Blocks are multiples of 32 threads; 256 is a good first choice.

# %% [markdown]
# ## The real thing
#
# The CUDA C++ sources are in flashlab/gpu/cuda. On a GPU this cell compiles them at run time and holds them against the interpreter; elsewhere it shows the recorded comparison. `equal` means bit for bit: in `two_paths` Python computes in float64, the GPU in float32, so the last digit may differ. (`matrix_add_down_columns` is chapter 09's bad example: the same sums, lanes walking down.)

# %%
rows, words = numbers("simulator")
for row in rows:
    print(f"{row['kernel']:>24} grid {str(row['grid']):>8} block {str(row['block']):>8}: "
          f"equal {row['equal']}, largest difference {row['error']:.1e}")
print(words)

# %% [markdown]
# A real launch has two traps. It returns at once, before the kernel has run, so a clock on the CPU measures nothing: time with **events** that the GPU itself records. And it returns no error: you have to ask.
#
# Published notes on this example create two events and never record them. An event that is not recorded times nothing. The right order, in flashlab/gpu/cuda/vector_add.cu: record, launch, record, wait, read.

# %%
lines = cuda.source("vector_add").splitlines()
first = next(n for n, line in enumerate(lines) if "cudaEventRecord(start)" in line)
print("\n".join(lines[first - 2:first + 7]))

# %%
rows, words = numbers("programs", live=False)
for row in rows:
    print("\n".join(row["prints"]))
print(words)

# %% [markdown]
# **Takeaway.** Check every CUDA call, check after every launch, time with events, and let the program compare its own result: "0 wrong" is part of the measurement.
#
# ## Your turn
#
# Each exercise is a file with a stub. Fill it in and run its cell: the checker reloads the file and says what is wrong, or that it is right.
#
# **Grid and guard** ([exercises/ex02_vector_add.py](../exercises/ex02_vector_add.py), 15 minutes). A kernel for one thread, and $\lceil N/\text{block} \rceil$ blocks.

# %%
from flashlab.check import check

check("ex02_vector_add")

# %% [markdown]
# **Idle lanes** ([exercises/ex02_idle_lanes.py](../exercises/ex02_idle_lanes.py), 20 minutes). Count them before the launch: $32 \cdot \text{warps with work} - N$.

# %%
check("ex02_idle_lanes")

# %% [markdown]
# **A matrix on a grid** ([exercises/ex02_matrix_scale.py](../exercises/ex02_matrix_scale.py), 20 minutes). $Y_{row,col} = f_{row} \cdot X_{row,col}$, in two dimensions, with neighbouring lanes along a row.

# %%
check("ex02_matrix_scale")

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 2.1 · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/) · NVIDIA, [GPU performance background](https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html)
#
# **Next:** [03 · Online softmax](03_online_softmax.ipynb). Softmax seems to need a whole row at once. It does not. The kernels come back in chapter 09, in Triton.
