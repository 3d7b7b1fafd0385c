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
# **You will be able to** calculate whether an operation waits for memory or for arithmetic; write a kernel thread by thread, with its grid and its guard; say what masked lanes, scattered addresses and barriers cost; and calculate how many blocks an SM holds, and how many bytes must be on their way.
#
# **You need** chapter 01 · **core:** sitting 1, 15 minutes · **further:** sittings 2 to 4, 45, 30 and 15 minutes · **runs on** CPU or GPU
#
# A kernel is a function that thousands of threads run at once. Sitting 1 describes the machine and its memories; your own Triton kernel (chapters 09 and 10) needs no more than that. Sittings 2 to 4 describe the threads. Numbers of a GPU are measured live if you have one. Otherwise they were recorded on an H100 or H200.

# %%
from flashlab_course import figures  # flashlab first, then torch
import torch

from flashlab_course.bench import numbers, pick
from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal
from flashlab_course.player.lanes import play_lanes

MiB = 2**20

# %% [markdown]
# ## Sitting 1 (core) · HBM, SRAM, roofline
#
# ### A GPU, drawn
#
# A GPU is about a hundred processors, called **streaming multiprocessors** or SMs, with memories around them. In an SM, an arithmetic unit adds or multiplies two numbers at a time. A **tensor core** multiplies two small matrices in one instruction. Nearly all of a GPU's TFLOP/s come from tensor cores.
#
# The picture shows an H100 to scale. The area of a blue square is the size of a memory: beside HBM, shared memory and L2 are dots. The height of a gray bar is the speed between two of them.

# %% tags=["shown"] jupyter={"source_hidden": true}
from flashlab_course.figures.colors import BLUE, PALE, WRITTEN
from flashlab_course.figures.plots import box, canvas, panel, write
from flashlab_course.figures.style import figure, finish

h100, h100_words = numbers("memory_bandwidth", live=False)
read = [pick(h100, level="shared memory")[0]["tb_s"], max(row["tb_s"] for row in h100[:-1]), pick(h100, footprint=1024 * MiB)[0]["tb_s"]]
@figure
def memories():
    fig, ax = panel(9, 3.4)
    canvas(ax, (0, 16.8), (2.9, -2.6))
    box(ax, 0, -1.8, 2.5, 3.6, PALE, "132 SMs:\narithmetic,\nregisters")
    for n, (size, tb_s) in enumerate(zip((33 * MiB, 50 * MiB, 80e9), read, strict=True)):
        x, side = 5.7 + 3.2 * n, 4.4 * (size / 80e9) ** 0.5
        box(ax, x - 3.2, -tb_s / 20, 3.2, tb_s / 10, WRITTEN)
        write(ax, x - 1.6, -tb_s / 20 - 0.3, f"{tb_s:.3g} TB/s")
        box(ax, x - side * (n < 2) / 2, -side / 2, side, side, BLUE, "HBM\n80 GB" * (n == 2), zorder=5)
    for x, name in ((5.7, "shared memory, 33 MiB"), (8.9, "L2, 50 MiB")):
        ax.annotate(name, (x, 0.1), (x, 2.3), ha="center", va="center", arrowprops={"arrowstyle": "->", "shrinkA": 8})
    return finish(fig, f"HBM holds {80e9 / 33 / MiB:.0f} times as much as all shared memory, and is {read[0] / read[2]:.0f} times slower", h100_words)
memories()

# %% [markdown]
# | memory | who can read it | A100 | H100 |
# |---|---|---|---|
# | registers | one thread | 256 KiB in each SM | 256 KiB in each SM |
# | shared memory, with the L1 cache | the threads of one block | 192 KiB in each SM | 256 KiB in each SM |
# | of which one block gets at most | | 163 KiB | 227 KiB |
# | L2 cache | all threads | 40 MiB | 50 MiB |
# | HBM | all threads | 40 GB at 1.5 TB/s | 80 GB at 3.35 TB/s |
#
# Arithmetic keeps its results in registers.
#
# The course's `Memory` simplifies this to two levels: HBM, and one **SRAM** of 192 KiB. That is the L1 cache and shared memory of one SM of an A100. A real kernel gets a little less of it, and has registers besides.
#
# **Takeaway.** Fast memory is small, and lies close to the arithmetic.
#
# ### The L2 cache
#
# The hardware fills the L2 cache: what was read lately is still there. In this picture the whole GPU reads one buffer again and again. Each dot is a buffer size.

# %%
rows, words = numbers("memory_bandwidth")
rates = {row["footprint"]: row["tb_s"] for row in rows if row.get("level") != "shared memory" and row["footprint"] >= 4 * MiB}
figures.curves({"": rates}, f"What L2 holds comes {max(rates.values()) / rates[1024 * MiB]:.1f} times as fast as 1 GiB from HBM",
               f"{words} Buffers of less than 4 MiB, with no load for some of the threads, are left out.",
               "memory read again and again", "TB/s read", log="x", byte="x", ylim=(0, None), walls={"L2 cache, 50 MiB": 50 * MiB})

# %% [markdown]
# **Takeaway.** Reading the same bytes again is cheap if it happens soon. The course's model counts such reads in full. Chapter 07 measures how many of them L2 serves.
#
# ### What a byte costs
#
# Chapter 01 gave an A100 208 FLOPs for each byte. How many operations can a machine do while one float32 (4 bytes) arrives? The limits of yours are what `doctor` reports.

# %% jupyter={"source_hidden": true}
from flashlab_course import doctor

ceilings, ceiling_words = numbers("ceilings")
device = "cuda" if torch.cuda.is_available() else "cpu"
limits = {"A100": (312.0, 1.5), "H100": (989.0, 3.35),             # TFLOP/s, TB/s
          "H100, measured": (pick(ceilings, what="float16 matmul")[0]["tflops"], pick(ceilings, what="copy")[0]["tb_s"]),
          "this machine": (doctor.matmul_rate(device), doctor.copy_bandwidth(device) / 1000)}
while_one_comes = {f"{name}: {tflops:.3g} TFLOP/s, {tb_s:.3g} TB/s": 4 * tflops / tb_s for name, (tflops, tb_s) in limits.items()}
figures.bars(while_one_comes, f"An H100 could do {4 * limits['H100'][0] / limits['H100'][1]:,.0f} operations while one float32 comes",
             f"Published, and measured: {ceiling_words} This machine: measured here.", "operations")

# %% [markdown]
# **Takeaway.** The newer GPU has more bandwidth, but its arithmetic has grown more. A number that is loaded from HBM and used once leaves the arithmetic idle nearly all of the time.
#
# ### Arithmetic intensity
#
# FLOPs divided by bytes is the **arithmetic intensity** of an operation. An A100 needs 208 FLOPs for each byte of HBM; with fewer, it waits for memory. Take one head with $N = 2048$ and $d = 64$, in 16-bit numbers:
#
# | operation | FLOPs | loads | stores |
# |---|---|---|---|
# | $QK^\top$ | $2 N^2 d$ | $Q$, $K$ | $S$ |
# | softmax | $5 N^2$ | $S$ | $P$ |
#
# **Predict** the intensity of both.

# %%
my_intensity = {"QKᵀ": None, "softmax": None}     # FLOPs for each byte

# %% [markdown]
# **Run and compare.** `Memory` counts the bytes. The times are those of an A100's published limits.

# %% jupyter={"source_hidden": true}
from flashlab.memory import Memory
from flashlab.rungs.naive import naive_forward

N, d = 2048, 64
Q, K, V = (torch.randn(N, d, dtype=torch.float16) for _ in range(3))
with Memory() as mem:
    naive_forward(Q, K, V)
flops = {"QKᵀ": 2 * N * N * d, "scale": N * N, "softmax": 5 * N * N, "PV": 2 * N * N * d}
intensity = {}
for (op, n), event in zip(flops.items(), mem.log, strict=False):
    intensity[op] = n / (event.read + event.written)
    move, arithmetic = (event.read + event.written) / 1.5e12 * 1e6, n / 312e12 * 1e6
    print(f"{op:>8}: {intensity[op]:5.1f} FLOPs a byte; {move:5.1f} µs moving, {arithmetic:4.1f} µs computing (modelled)")
said = compare("FLOPs for each byte", my_intensity, {op: intensity[op] for op in my_intensity})
roof_rows, roof_words = numbers("roofline")
roof = [max(row.get(limit, 0) for row in roof_rows + ceilings) for limit in ("tb_s", "tflops")]     # the best that was seen

# %% [markdown]
# Even $QK^\top$ waits for memory: it makes a large matrix of two thin ones, and storing that matrix takes the time. Now let attention load $Q$, $K$ and $V$ once, store $O$ once, and move no $S$. Its two products still need $4 N^2 d$ FLOPs. **Predict** from which $N$ on an A100 no longer waits for memory, in 16 bits.

# %%
my_corner = None     # N

# %% [markdown]
# **Run and compare.** A **roofline** draws speed against intensity. Memory limits the speed on the slanted line, arithmetic on the flat one. Change the three numbers: which of them move attention without $S$ along the roof?

# %%
said = compare("N from which attention without S waits for arithmetic", my_corner)
n, width, bytes_each = 4096, 64, 2          # change me: N, d, and 4 for float32
points = [{"op": "attention without S", "rung": "yours", "flops": 4 * n * n * width, "bytes": 4 * n * width * bytes_each}]
points += [{"op": op, "flops": flops[op], "bytes": flops[op] / intensity[op]} for op in intensity]
figures.roofline(points, 1.5, 312, "Modelled: an A100's published limits.")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $4 N^2 d$ FLOPs over $4 N d$ numbers of two bytes are $N / 2$ FLOPs for each byte. The width $d$ cancels. $N / 2$ is 208 at $N = 416$.
#
# </details>
#
# `roof[0]` TB/s and `roof[1]` TFLOP/s are the best that was measured: {{roof[0]:.2f}} and {{roof[1]:.0f}} on an H100. **Write the roof**: the highest speed that both limits allow, in TFLOP/s, as a function of the FLOPs for each byte.

# %%
my_roof = None     # lambda intensity: ..., with roof[0] and roof[1]

# %% [markdown]
# **Run and compare.** Your function is drawn as stars. SDPA is PyTorch's `scaled_dot_product_attention`. FA2 and SDPA are drawn with the bytes of $Q$, $K$, $V$ and $O$ once, because L2 serves their repeated reads.

# %%
said = compare("height of the roof", my_roof, {x: min(x * roof[0], roof[1]) for x in (1, 10, 1000)}, "TFLOP/s")
said.on(figures.roofline(roof_rows, *roof, roof_words))

# %% [markdown]
# A dot on the line is as fast as the machine can be. A dot below it waits for something else.
#
# **Takeaway.** Every operation of naive attention waits for memory. FlashAttention does the same arithmetic far to the right of the corner. That is the plan of this course.
#
# *End of sitting 1 and of the core. You can go on to [chapter 03](03_online_softmax.ipynb).*
#
# ## Sitting 2 (further) · Threads in lock step
#
# ### A kernel, thread by thread
#
# On a CPU, you add two vectors in a loop over their elements. On a GPU, you write what *one* thread does, and start as many threads as there are elements. `threadIdx.x` is a thread's number within its block. `launch(kernel, grid, block)` runs such a function in a small interpreter, line by line as CUDA C++ would. It has no clock: it says what happens, not how long it takes.

# %%
from flashlab_course.gpu.simt import blockDim, blockIdx, launch, shared, syncthreads, threadIdx


def double(X):
    X[threadIdx.x] = 2 * X[threadIdx.x]


X = torch.arange(5.0)
trace = launch(double, 1, 5)(X)                    # one block of 5 threads; in CUDA C++: double<<<1, 5>>>(X)
print(X.tolist(), f"by {trace.threads} threads")

# %% [markdown]
# A block has at most 1024 threads, so a long vector takes many blocks: a **grid**. `blockIdx.x` is the number of a thread's block, also counted from 0, and `blockDim.x` is the number of threads in a block.

# %%
elements = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, torch.nan, torch.nan]]
figures.matrices({"": elements}, "3 blocks of 4 threads take 10 elements, and 2 threads have none", "Definition: the element that each thread takes.",
                 "threadIdx.x", "blockIdx.x", rows=range(3), columns=range(4))

# %% [markdown]
# **Your turn** ([exercises/ex02_vector_add.py](../exercises/ex02_vector_add.py), 15 minutes). Write the kernel of vector addition, and the number of blocks, for any $N$.

# %%
check("ex02_vector_add")

# %%
reveal("ex02_vector_add")

# %% [markdown]
# *This tells the solution of the exercise.* In CUDA C++ the kernel has the same lines. The program around it makes room on the GPU (`cudaMalloc`) and copies the vectors there and back (`cudaMemcpy`). In PyTorch, `x.cuda()` does both.

# %%
from flashlab_course.gpu import cuda, simt

print(cuda.kernel_lines("vector_add"))
print("\n".join(line for line in cuda.source("vector_add").splitlines() if "cudaMalloc" in line or "cudaMemcpy" in line or "<<<" in line))

# %% [markdown]
# A launch returns before the kernel has run, and reports no error. So CUDA programs time with **events**, which the GPU records itself, and ask for errors after each call.
#
# The grid is rounded up, so some threads have no element. The **guard** `if i < N` stops them. This cell fails on purpose. The interpreter notices, but a GPU often does not, and overwrites what lies behind the vector.

# %%
def no_guard(A, B, C, N):
    i = blockIdx.x * blockDim.x + threadIdx.x
    C[i] = A[i] + B[i]


try:
    launch(no_guard, 3, 32)(*(torch.randn(70) for _ in range(3)), 70)
except IndexError as error:
    print(error)

# %% [markdown]
# **Takeaway.** Round the grid up, and guard.
#
# ### Warps
#
# A GPU runs threads in groups of 32, called **warps**. Its 32 places are called **lanes**, and all lanes run the same instruction at the same time. A block of 8 threads takes a whole warp, too: the other 24 lanes are idle, and cost as much as busy ones. So blocks are multiples of 32 threads; 256 is a good first choice.
#
# **Your turn** ([exercises/ex02_idle_lanes.py](../exercises/ex02_idle_lanes.py), 20 minutes). Count the idle lanes before the launch, for any $N$ and any block.

# %%
check("ex02_idle_lanes")

# %%
reveal("ex02_idle_lanes")

# %% [markdown]
# ### Lanes that disagree
#
# What if the lanes of a warp disagree on a branch? Then the warp runs both sides, one after the other. While it runs one side, the lanes of the other side are **masked**. In `two_paths`, groups of `period` threads take one loop or the other. A warp pays one step for each line that it runs. The line of a `for` with 3 rounds runs 4 times: the fourth time ends the loop.
#
# Run the cell to see the code, and count. **Predict** the steps of a warp with `period` 1, 16 and 32, for 3 rounds.

# %%
import inspect

print(inspect.getsource(simt.two_paths))
my_steps = {1: None, 16: None, 32: None}

# %% [markdown]
# **Run and compare.** The player shows two warps with a period of 48: which of them pays for both loops? Then change `period` to 32 and to 16.

# %%
steps = {period: launch(simt.two_paths, 1, 32)(torch.randn(32), 32, period, 3).warp_steps for period in my_steps}
said = compare("steps of a warp with period", my_steps, steps)
period = 48          # change me
play_lanes(launch(simt.two_paths, 1, 64)(torch.randn(64), 64, period, 3))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# A loop takes 7 steps, the lines outside take 5. With `period` 32, all lanes of a warp agree: $5 + 7 = 12$ steps. With 1 and with 16 they disagree: $5 + 7 + 7 = 19$ steps. It does not matter how many lanes take which side. With 48, the threads of warp 0 agree. Those of warp 1 are numbers 32 to 63, and they part at 48.
#
# </details>
#
# Times on a GPU agree. The names of the bars say how many lanes worked, by hardware counters.

# %%
div_rows, div_words = numbers("divergence")
counted = {row["period"]: f": {row['lanes_per_instruction']:.0f} of 32 lanes work"
           for row in pick(numbers("counters", live=False)[0], kernel="two_paths")}
ms = {f"period {row['period'] if row['period'] < 1000 else 'all'}{counted.get(row['period'], '')}": row["ms"] for row in div_rows}
figures.bars(ms, "Within a warp, disagreement costs both paths; between warps, it costs nothing",
             f"{div_words} Lanes: hardware counters.", "ms", worse=list(ms)[:sum(row["period"] < 32 for row in div_rows)])

# %% [markdown]
# **Takeaway.** A branch is free where whole warps agree. Where lanes of one warp disagree, the warp pays for both sides.
#
# *End of sitting 2. To continue later, run the notebook from the top.*
#
# ## Sitting 3 (further) · Memory and barriers
#
# ### Neighbors in memory
#
# Bytes travel between HBM and the chip in **sectors** of 32. In the kernel below, each of the 32 lanes of a warp loads a float32, twice: first neighboring lanes read neighboring numbers, then every eighth number. **Predict** how many bytes move in each of the two loads.

# %%
my_moved = {"X[i]": None, "X[8 * i]": None}     # bytes

# %%
def two_loads(X, Out, stride):
    i = threadIdx.x
    near = X[i]
    far = X[i * stride]
    Out[i] = near + far


loads = launch(two_loads, 1, 32)(torch.randn(256), torch.zeros(32), 8)       # change me: other strides
moved = [32 * one.sectors for step in loads.steps for one in step.accesses if one.kind == "load"]
said = compare("bytes that a load moves", my_moved, dict(zip(my_moved, moved, strict=True)))
play_lanes(loads)

# %% [markdown]
# The first load is **coalesced**: lanes share sectors, and every byte is used. The second load is scattered. Chapter 09 measures what that costs on a GPU.
#
# ### Two dimensions
#
# A grid and a block may have an x and a y. Neighboring lanes differ in x. So let x walk along a row, where neighbors lie side by side in memory, and let y go from row to row. Both need their own number of blocks and their own guard. x comes first in `grid` and `block`; columns come second in a tensor's shape.
#
# **Your turn** ([exercises/ex02_matrix_scale.py](../exercises/ex02_matrix_scale.py), 20 minutes). Multiply each row of a matrix by its own factor.

# %%
check("ex02_matrix_scale")

# %%
reveal("ex02_matrix_scale")

# %% [markdown]
# **Takeaway.** x belongs to the columns. Test with a shape that is neither square nor a multiple of the block.
#
# ### Threads that work together
#
# For a sum, or for the maximum that softmax needs, many threads make one result. The threads of a block exchange numbers in **shared memory**. It is fast, lies on the SM, and is gone when the block ends. In each round of `block_sum`, thread $t$ adds number $t + \text{half}$ to number $t$, and `half` is halved. A **barrier**, `__syncthreads()` in CUDA C++, makes every warp wait until all warps of the block have come.
#
# Watch 128 threads add 128 numbers in shared memory. Press *a warp waits*, then step on: which warps wait, and for whom?

# %%
play_lanes(launch(simt.block_sum, 1, 128, shared=128)(torch.randn(128), torch.zeros(1)))

# %% [markdown]
# <details><summary><b>Why?</b> (after watching)</summary>
#
# In round 1, warps 2 and 3 have nothing to add, and wait for warps 0 and 1. From round 2 on, three warps wait for warp 0. It adds numbers that warp 1 wrote in round 1.
#
# </details>
#
# The next cell leaves out the barriers, so no warp waits. Four blocks of 64 threads sum 64 numbers each. In our interpreter the first warp of a block runs to its end before the second one starts. Shared memory holds NaN until somebody writes it. **Predict** how many of the four sums come out right.

# %%
my_right = None

# %%
def no_barrier(X, Sums):
    t = threadIdx.x
    shared[t] = X[blockIdx.x * blockDim.x + t]
    half = blockDim.x // 2
    while half > 0:
        if t < half:
            shared[t] = shared[t] + shared[t + half]
        half = half // 2
    if t == 0:
        Sums[blockIdx.x] = shared[0]


threads = 64          # change me to 32: why is it right then?
in_HBM, sums = torch.randn(4 * threads), torch.zeros(4)
launch(no_barrier, 4, threads, shared=threads)(in_HBM, sums)
print(f"without barriers: {sums.numpy().round(2)}, by PyTorch {in_HBM.view(4, -1).sum(1).numpy().round(2)}")
said = compare("sums that are right without a barrier", my_right, int(torch.isclose(sums, in_HBM.view(4, -1).sum(1)).sum()))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The first warp adds numbers 32 to 63 before the second warp has written them, so every sum is NaN. A block of 32 threads is a single warp: in the interpreter its lanes write together before they read. On a GPU the lanes of a warp can drift apart, and `__syncwarp()` holds them together.
#
# </details>
#
# A GPU gives the right answer whenever the other warp happens to be early. Such a bug is called a **race**, and tests may not find it.
#
# **Takeaway.** A barrier stands between writing shared memory and reading what another thread wrote. FlashAttention's tiles of $K$ and $V$ live there. In Triton the compiler writes the barriers.
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · What an SM holds
#
# ### How many blocks fit on an SM
#
# An SM holds several blocks at once. The limits of an H100:
#
# | threads | blocks | registers | shared memory |
# |---|---|---|---|
# | 2048 | 32 | 65,536 of 4 bytes | 228 KiB |
#
# The share of the 2048 threads that is filled is called **occupancy**. A block has 256 threads, each with 128 registers. **Predict** how many such blocks fit.

# %%
my_blocks = None

# %%
from flashlab_course.gpu.occupancy import occupancy

said = compare("blocks of 256 threads with 128 registers", my_blocks, occupancy(256, registers=128).blocks)
figures.blocks_that_fit(256, registers=128, shared=48 * 1024)     # change me

# %% [markdown]
# The limit that runs out first decides. A thread can have at most 255 registers; more values **spill** to slower memory. Chapter 10's kernel has 256 threads with 176 registers each, and takes 128 KiB of shared memory (compiled for an H100, $d = 128$):

# %%
from flashlab_course.bench import load_results

record = load_results("forward_h200")
ours = pick(record["rows"], implementation="fa2_triton_forward", N=4096, d=128, causal=False)[0]["tflops"]
print(f"recorded on an H200, N = 4096, d = 128: {ours / record['ceilings']['matmul_tflops']:.0%} of the speed of a plain matrix product")
figures.blocks_that_fit(256, registers=176, shared=128 * 1024)

# %% [markdown]
# An eighth of the threads is enough for that speed. So occupancy is not a goal in itself.
#
# ### How many bytes on their way
#
# **Latency** is the time from asking for a byte until it comes. A GPU does not shorten it. It keeps many loads on their way at the same time, and that is what so many threads are for. **Little's law** says how many: bytes on their way = rate × latency. An H200 reads 4.5 TB/s from HBM, with a latency of 354 ns. **Predict** how many bytes must be on their way at any moment to keep HBM busy.

# %%
my_in_flight = None     # bytes, e.g. 100 * 1024

# %% [markdown]
# **Run and compare.** More and more threads read HBM. Each waits for its load, of 4 or of 16 bytes, before it starts the next.

# %% jupyter={"source_hidden": true}
ns = max(row["ns"] for row in numbers("memory_latency", "basics_h200")[0])
rate = pick(numbers("memory_bandwidth", "basics_h200")[0], footprint=1024 * MiB)[0]["tb_s"]
flight_rows, flight_words = numbers("in_flight", "basics_h200")
said = compare("bytes on their way", my_in_flight, rate * 1e12 * ns * 1e-9, "bytes")
measured = {f"{row['each']} bytes a thread": {} for row in flight_rows}
for row in sorted(flight_rows, key=lambda row: row["in_flight"]):
    measured[f"{row['each']} bytes a thread"][row["in_flight"]] = row["tb_s"]
low, enough, high = 2**16, ns * rate * 1000, 2**24
law = {"bytes ÷ latency, up to the bandwidth": {low: low / ns / 1000, enough: rate, high: rate}}
busy = min(row["in_flight"] for row in flight_rows if row["tb_s"] > 0.95 * rate)
said.on(figures.curves(measured, f"HBM is busy with {busy / MiB:.0f} MiB on their way; the law asks for {enough / MiB:.1f}", flight_words,
                       "bytes on their way at once, all SMs", "TB/s from HBM", log="xy", byte="x", dashed=law), axis="x")

# %% [markdown]
# The law takes the latency of an idle memory, so it is a lower bound: the record comes near the full rate with {{busy / MiB:.0f}} MiB on their way. 2048 threads on each SM with 4 bytes each are not enough. A quarter of them with 16 bytes each do about as well. FlashAttention uses few threads, and each keeps many bytes on their way: whole tiles travel while others are multiplied (chapter 12).
#
# **Takeaway.** Bytes on their way = bandwidth × latency. Many threads, wide loads and early loads are three ways to get there.
#
# ### An open question
#
# In the last five rounds of `block_sum` only one warp adds, and in the very last one a single lane. Does that matter? Count `warp_steps` of the trace for blocks of 32, 256 and 1024 threads. How would you sum a million numbers, and what would the GPU wait for?

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 2.1 · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · Little 1961, [A proof for the queuing formula L = λW](https://doi.org/10.1287/opre.9.3.383) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), compute capabilities and independent thread scheduling · NVIDIA, [A100 whitepaper](https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf) and [H100 whitepaper](https://resources.nvidia.com/en-us-tensor-core) · NVIDIA, [GPU performance background](https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html)
#
# **Next:** [03 · Online softmax](03_online_softmax.ipynb). Softmax seems to need a whole row at once. It does not.
