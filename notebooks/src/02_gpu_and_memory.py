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
# **You will be able to** say from two numbers whether an operation waits for memory or for arithmetic, write a kernel thread by thread and choose its grid, let the threads of a block work together, and say what limits how many of them run at once.
#
# **You need** chapter 01. · **2 hours**, 55 minutes of them for three exercises · **runs on** CPU or GPU
#
# A kernel is a function that thousands of threads run at once. First the machine and its memories, then the threads, then the two together. GPU numbers are measured live if you have one, else recorded on an H100 or H200.

# %% [markdown]
# ## A GPU, drawn
#
# A GPU is some hundred processors, **streaming multiprocessors** or SMs, with shared memories around them. Each SM calculates in **registers**, the only memory its arithmetic reads and writes directly. An A100 has 40 MiB of L2 cache for all SMs, and 192 KiB of L1 cache and shared memory in each of its 108. **Predict**: how much do all registers of the chip hold?

# %%
MiB = 2**20
my_registers = None     # bytes, e.g. 5 * MiB

# %% [markdown]
# **Run.** A **lane** does one addition or multiplication at a time. A **tensor core** is a unit of its own that multiplies two small matrices in one instruction; nearly all of a GPU's TFLOP/s come from there.

# %%
from flashlab_course import figures  # flashlab first, then torch
from flashlab_course.lesson import compare, reveal
import torch

figures.gpu_drawn("A100")     # change me: "H100"

# %% [markdown]
# **Compare.** The names say who sees what: a register belongs to one thread, shared memory to the threads of one block, L2 and HBM to everybody.

# %%
A100 = figures.GPUS["A100"]
said = compare("registers of an A100", my_registers, A100["SMs"] * A100["registers"], "bytes")
sizes = {f"{name}, all SMs": A100["SMs"] * A100[name] for name in ("registers", "shared")} | {"L2 cache": A100["L2"]}
said.on(figures.bars(sizes, f"The registers of an A100 hold {A100['registers'] / A100['shared']:.1f} times as much as its shared memory",
                     "Published: NVIDIA's A100 whitepaper; shared: L1 cache and shared memory.", "bytes", byte=True), axis="x")

# %% [markdown]
# The course's `Memory` simplifies this to two levels, HBM and one **SRAM** of 192 KiB. That is all the L1 and shared memory of an A100's SM. A block of threads gets at most 163 KiB of it there, 227 KiB on an H100, and keeps its running sums in registers, which the model does not have. The size is about right; do not read more into it.
#
# **Takeaway.** Fast memory is small and close to the arithmetic, and most of what is on the chip is registers.
#
# ## The L2 cache
#
# L2 is filled by the hardware without being asked: what was read lately is there. A kernel reads the same buffer over and over; buffers have 1 MiB to 1 GiB. The largest arrives at some 3 TB/s on an H100. **Predict** the rate for a buffer of 16 MiB.

# %%
my_rate = None     # TB/s

# %% [markdown]
# **Run and compare.** Each dot is one buffer size, read again and again by the whole GPU.

# %%
from flashlab_course.bench import numbers, pick

rows, words = numbers("memory_bandwidth")
said = compare("TB/s from a buffer that L2 holds", my_rate, pick(rows, footprint=16 * MiB)[0]["tb_s"], "TB/s")
print(f"shared memory, all SMs together: {pick(rows, level='shared memory')[0]['tb_s']:.0f} TB/s")
rates = {row["footprint"]: row["tb_s"] for row in rows if row.get("level") != "shared memory"}
said.on(figures.curves({"": rates}, f"What L2 holds comes {max(rates.values()) / rates[1024 * MiB]:.1f} times as fast as 1 GiB from HBM", words,
                       "memory read again and again", "TB/s read", log="x", byte="x", ylim=(0, None), walls={"L2 cache, 50 MiB": 50 * MiB}),
        x=16 * MiB)

# %% [markdown]
# **Takeaway.** Reading again is cheap if it happens soon. Chapter 07 finds that L2 serves nearly all of FlashAttention's repeated reads of $K$ and $V$.
#
# ## Latency
#
# Bandwidth says how much arrives in a second, once the stream flows. **Latency** says how long the first byte takes. One thread follows a chain of pointers, so that each address is known only when the number before it has come: nothing overlaps. In shared memory a step takes 18 ns. **Predict** a step through 1 GiB of HBM.

# %%
my_latency = None     # ns

# %%
rows, words = numbers("memory_latency")
hbm = max(row["ns"] for row in rows)
said = compare("latency of HBM", my_latency, hbm, "ns")
waits = {row["footprint"]: row["ns"] for row in rows if row["level"] != "shared memory"}
shared_ns = pick(rows, level="shared memory")[0]["ns"]
said.on(figures.curves({"": waits}, f"A load from HBM takes {hbm:.0f} ns, {hbm / shared_ns:.0f} times as long as one from shared memory", words,
                       "memory that the loads are spread over", "ns for one load", log="x", byte="x", ylim=(0, None),
                       ceilings={f"shared memory, {shared_ns:.0f} ns": shared_ns}), x=1024 * MiB)

# %% [markdown]
# Three plateaus: what fits the SM's own L1 cache, what fits L2, and HBM, several hundred clock cycles away.
#
# **Takeaway.** A GPU does not make the wait shorter. It keeps so many loads on their way that the wait is hidden, and that is what thousands of threads are for. The end of this chapter counts how many it takes.
#
# ## What a byte costs
#
# A GPU can calculate far faster than it can fetch. **Predict**: while one float32 (4 bytes) comes from HBM, how many 16-bit operations could the tensor cores of an A100 and of an H100 do? And your own machine, in float32?

# %%
my_operations = {"A100": None, "H100": None, "this machine": None}

# %% [markdown]
# **Run and compare.** A100: published (312 TFLOP/s in 16 bits, 1.5 TB/s). H100: a matrix product and a copy, as measured. This machine: the two rates that `doctor` reports.

# %%
from flashlab_course import doctor

ceilings, words = numbers("ceilings")
device = "cuda" if torch.cuda.is_available() else "cpu"
limits = {"A100": (312.0, 1.5),                                    # TFLOP/s, TB/s
          "H100": (pick(ceilings, what="float16 matmul")[0]["tflops"], pick(ceilings, what="copy")[0]["tb_s"]),
          "this machine": (doctor.matmul_rate(device), doctor.copy_bandwidth(device) / 1000)}
operations = {name: 4 * tflops / tb_s for name, (tflops, tb_s) in limits.items()}
for name, (tflops, tb_s) in limits.items():
    print(f"{name:>12}: {tflops:7.3g} TFLOP/s, {tb_s:6.3g} TB/s: {operations[name]:5.0f} operations while one float32 comes")
print("H100:", words)
said = compare("operations while one float32 comes", my_operations, operations)

# %% [markdown]
# **Takeaway.** A number that is fetched from HBM and used once leaves the arithmetic units idle almost all of the time.
#
# ## Time = data movement + compute
#
# Now attention, operation by operation. FLOPs divided by bytes is the **arithmetic intensity**. **Predict** for one head, $N = 2048$, $d = 64$, 16-bit numbers: for every 100 µs of data movement in $QK^\top$, how many µs of arithmetic? And in softmax, with five operations for each score?

# %%
my_microseconds = {"QKᵀ": None, "softmax": None}

# %% [markdown]
# **Run and compare**, with the A100's published limits. The two times can overlap, so the truth lies between the larger one and their sum.

# %%
from flashlab.memory import Memory
from flashlab.rungs.naive import naive_forward

N, d = 2048, 64
Q, K, V = (torch.randn(N, d, dtype=torch.float16) for _ in range(3))
with Memory() as mem:
    naive_forward(Q, K, V)
flops = {"QKᵀ": 2 * N * N * d, "scale": N * N, "softmax": 5 * N * N, "PV": 2 * N * N * d}
microseconds = {}
for (op, n), event in zip(flops.items(), mem.log, strict=False):
    nbytes = event.read + event.written
    move, arithmetic = nbytes / 1.5e12 * 1e6, n / 312e12 * 1e6
    microseconds[op] = 100 * arithmetic / move
    print(f"{op:>8}: {n / nbytes:5.1f} FLOPs a byte; {move:5.1f} µs moving, {arithmetic:4.1f} µs computing (modelled)")
said = compare("µs of arithmetic for 100 µs of movement", my_microseconds, microseconds)

# %% [markdown]
# Even the matrix products wait for memory: with $d = 64$ they make an $N \times N$ matrix out of two thin ones, and writing that is the work. A square product is another matter, and so is attention that reads $Q$, $K$ and $V$ once, writes $O$ once and moves no $S$. **Predict** their FLOPs per byte at 4096, in 16 bits.

# %%
my_intensity = {"matmul 4096³": None, "attention without S": None}

# %%
n, N, d = 4096, 4096, 64
intensity = {"matmul 4096³": 2 * n**3 / (2 * 3 * n * n), "attention without S": 4 * N * N * d / (2 * 4 * N * d)}
for name, value in intensity.items():
    print(f"{name}: {value:.0f} FLOPs a byte (modelled)")
said = compare("FLOPs a byte", my_intensity, intensity)

# %% [markdown]
# A **roofline** puts all of them into one picture. The slanted line is what memory allows, the flat one what arithmetic allows; left or right of the corner says which of the two an operation waits for. The bytes of FA2 and SDPA are $Q$, $K$, $V$ and $O$ once: their repeated reads come from L2.

# %%
rows, words = numbers("roofline")
tb_s, tflops = (max(row.get(rate, 0) for row in rows + ceilings) for rate in ("tb_s", "tflops"))     # the best that was seen
figures.roofline(rows, tb_s, tflops, words)

# %% [markdown]
# "SDPA" is PyTorch's `scaled_dot_product_attention`. A dot on the dashed line is as fast as this machine can be; one below it waits for something else. PyTorch's softmax is one such case. Chapter 09 writes a softmax that runs close to the bandwidth limit.
#
# **Takeaway.** Every operation of naive attention waits for memory. FlashAttention does the same arithmetic far to the right of the corner. That is the whole plan of this course; the rest of this chapter is about the threads that carry it out.

# %% [markdown]
# ## A kernel, thread by thread
#
# On a CPU, adding two vectors is a loop: one core, one element after the other.

# %%
def add_on_cpu(A, B, C, N):
    i = 0
    while i < N:
        C[i] = A[i] + B[i]
        i = i + 1


a, b, c = torch.randn(100), torch.randn(100), torch.empty(100)
add_on_cpu(a, b, c, 100)
print("c = a + b:", torch.equal(c, a + b))

# %% [markdown]
# On a GPU the loop goes away. You write what *one* thread does, and start as many threads as there is work. Each finds out who it is from `threadIdx.x`, its number within its block. `launch(kernel, grid, block)` runs such a function in a small interpreter, line by line as CUDA C++ would.

# %%
from flashlab_course.gpu.simt import blockDim, blockIdx, launch, shared, syncthreads, threadIdx


def double(X):
    X[threadIdx.x] = 2 * X[threadIdx.x]


X = torch.arange(5.0)
trace = launch(double, 1, 5)(X)                    # one block of 5 threads; in CUDA C++: double<<<1, 5>>>(X)
print(X.tolist(), f"by {trace.threads} threads")

# %% [markdown]
# A block has at most 1024 threads, so a long vector takes many blocks: a **grid**. In every block `threadIdx.x` starts at 0. `blockIdx.x` says which block a thread is in, also from 0, and `blockDim.x` how many threads a block has. That is all it needs to find its element.
#
# **Grid and guard** ([exercises/ex02_vector_add.py](../exercises/ex02_vector_add.py), 15 minutes). Write the kernel of vector addition and the number of blocks, for any $N$.

# %%
from flashlab_course.check import check

check("ex02_vector_add")

# %%
reveal("ex02_vector_add")

# %% [markdown]
# The same in CUDA C++ (spoils the exercise above). Apart from types and braces there is no difference.

# %%
from flashlab_course.gpu import cuda, simt

print(cuda.kernel_lines("vector_add"))

# %% [markdown]
# Two things go wrong easily. First the grid: `N // block` drops a remainder. **Predict**: 70 elements, blocks of 32, and `70 // 32` blocks. How many elements of $C$ are never written?

# %%
my_unwritten = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose: $C$ starts as NaN, so what nobody writes stays NaN.

# %%
N, block = 70, 32
A, B, C = torch.randn(N), torch.randn(N), torch.full((N,), float("nan"))
launch(simt.vector_add, N // block, block)(A, B, C, N)
print(f"floor: {int(C.isnan().sum())} elements never written")
said = compare("elements that a rounded-down grid forgets", my_unwritten, int(C.isnan().sum()))
figures.grid_and_guard(N, block)

# %% [markdown]
# Rounding up, as in the picture, starts threads that have no element, and the **guard** `if i < N` stops them. Without it they read and write past the end of the tensors. The interpreter notices. A GPU stops only if the address belongs to no allocation; else it overwrites whatever lies there. This cell fails on purpose.

# %%
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
# ## There and back again
#
# A real kernel reads HBM, not the CPU's memory. So a CUDA program first makes room on the GPU (`cudaMalloc`) and copies its inputs there (`cudaMemcpy`); in PyTorch `x.cuda()` does both.

# %%
lines = cuda.source("vector_add").splitlines()
print("\n".join(line for line in lines if "cudaMalloc" in line or "cudaMemcpy" in line or "<<<" in line))

# %% [markdown]
# Two vectors of 67 million numbers lie in the CPU's memory. The CPU adds them in 21 ms. The GPU, an H200, adds them in 0.2 ms once they are there. **Predict** the GPU's time with both copies to it and one copy back, from **pinned** memory, which the GPU can read directly.

# %%
my_ms = None

# %%
rows, words = numbers("host_copies", "basics_h200")
pinned = sum(row["ms"] for row in pick(rows, memory="pinned")) + pick(rows, what="x + y on the GPU")[0]["ms"]
said = compare("vector addition with copies", my_ms, pinned, "ms")
ms = {(row["what"], row["memory"]): row["ms"] for row in rows}
parts = {"on the CPU": {"x + y": ms["x + y on the CPU", ""]}}
for memory in ("pinned", "pageable"):
    parts[f"on the GPU, {memory} memory"] = {"x, y there": ms["two copies to the GPU", memory], "x + y": ms["x + y on the GPU", ""],
                                             "sum back": ms["one copy back", memory]}
said.on(figures.bars(parts, f"The GPU adds in {ms['x + y on the GPU', '']:.2g} ms; with the copies it takes {pinned:.0f} ms at best", words, "ms"), axis="x")

# %% [markdown]
# A launch holds two more traps. It returns at once, before the kernel has run, so a clock on the CPU measures nothing: time with **events** that the GPU itself records before and after. And it returns no error: you have to ask. flashlab_course/gpu/cuda/vector_add.cu does both, compares its own result, and says:

# %%
rows, words = numbers("programs", live=False)
print("\n".join(pick(rows, program="vector_add")[0]["prints"]))
print(words)

# %% [markdown]
# **Takeaway.** Keep tensors on the GPU. Check every CUDA call, time with events, and let the program compare its own result: "0 wrong" is part of the measurement.

# %% [markdown]
# ## Warps
#
# A GPU does not run threads one by one. It takes 32 of them, a **warp**, and all 32 lanes do the same instruction at the same time. Launch one block of 64 threads for 8 elements. **Predict**: how many threads have nothing to add? How many of those sit in a warp that adds?

# %%
my_idle = {"threads without an element": None, "idle lanes of the warp that adds": None}

# %%
A, B, C = (torch.ones(8) for _ in range(3))
trace = launch(simt.vector_add, 1, 64)(A, B, C, 8)
ADD = 4                                                            # the line that adds; the def is line 1
idle = {"threads without an element": trace.threads - trace.active_lanes(line=ADD),
        "idle lanes of the warp that adds": trace.idle_lanes(line=ADD)}
print(idle)
said = compare("64 threads for 8 elements", my_idle, idle)
figures.warp_lanes(trace)

# %% [markdown]
# **Compare.** It is tempting to say 24: that is the first warp alone. Of 64 threads, 56 have no element. The second warp asks `if i < N`, gets 32 times no, and is done.
#
# **Idle lanes** ([exercises/ex02_idle_lanes.py](../exercises/ex02_idle_lanes.py), 20 minutes). Count them before the launch, for any $N$ and any block.

# %%
check("ex02_idle_lanes")

# %%
reveal("ex02_idle_lanes")

# %% [markdown]
# What do idle lanes cost? A block of 8 threads is still a warp of 32 lanes: 24 of them never get a thread. The same arithmetic on a million numbers, in blocks of 8 and of 32 threads. **Predict** the ratio of the two times.

# %%
my_ratio = None

# %%
rows, words = numbers("idle_lanes")
said = compare("time in blocks of 8 over blocks of 32", my_ratio, pick(rows, block=8)[0]["ms"] / pick(rows, block=32)[0]["ms"])
ms = {f"{row['block']} threads": row["ms"] for row in rows}
figures.bars(ms, "The empty lanes of a warp are paid for", words, "ms, the same arithmetic in blocks of so many threads",
             worse=[name for name in ms if int(name.split()[0]) < 32])

# %% [markdown]
# Each warp costs the same, however few of its lanes are used. So blocks of 32 should be as good as blocks of 256. Vector addition waits for memory and not for lanes at all. **Predict**: how many times slower is it in blocks of 32 than in blocks of 256?

# %%
my_slowdown = None

# %%
rows, words = numbers("vector_addition")
rate = {row["block"]: row["tb_s"] for row in pick(rows, by="CUDA C++")}
said = compare("vector addition in blocks of 32 over blocks of 256", my_slowdown, rate[256] / rate[32])
figures.curves({"CUDA C++": rate}, f"Blocks of 32, every lane busy, are {rate[256] / rate[32]:.1f} times slower than blocks of 256", words,
               "threads in a block", "TB/s moved", log="x", ylim=(0, None), ceilings={"PyTorch": pick(rows, by="PyTorch")[0]["tb_s"]})

# %% [markdown]
# Up to 128 threads, twice the block moves twice the bytes: the GPU starts a fixed number of blocks in a nanosecond, 1.7 on the recorded H100, whatever is in them. With small blocks nothing else counts.
#
# **Takeaway.** Work comes in warps of 32, and idle lanes cost as much as busy ones. Blocks are multiples of 32 threads; 256 is a good first choice.
#
# ## Two dimensions
#
# A grid and a block may have an x and a y. For a matrix, x walks along a row and y goes from row to row. Both need their own number of blocks and their own guard.
#
# **A matrix on a grid** ([exercises/ex02_matrix_scale.py](../exercises/ex02_matrix_scale.py), 20 minutes). Each row of a matrix times a factor of its own, with neighbouring lanes along a row.

# %%
check("ex02_matrix_scale")

# %%
reveal("ex02_matrix_scale")

# %% [markdown]
# Blocks of 8 × 4 threads over a 10 × 20 matrix (spoils the exercise above). The guard has to stop threads on two sides.

# %%
figures.grid_and_guard((10, 20), block=(4, 8))

# %% [markdown]
# x comes first in `grid` and `block`, columns come second in `(rows, cols)`: easy to confuse. **Predict**: for a $10 \times 40$ matrix and blocks of 8 × 4, the grid's x counts rows by mistake. How many of the 400 sums are missing?

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
    print(f"{name:>22}: grid {grid}, {int(C.isnan().sum())} of {C.numel()} sums missing")
    if "wrong" in name:
        said = compare("sums missing where x counts rows", my_missing, int(C.isnan().sum()))

# %% [markdown]
# **Takeaway.** x is the direction of the lanes, and belongs to the columns. Test with a shape that is neither square nor a multiple of the block.
#
# ## Control divergence
#
# Lanes of a warp share one instruction. What if they disagree on a branch? In `two_paths`, threads in groups of `period` take one loop or the other. **Predict**: how many steps does one warp take with `period` 1, 16 and 32, if a single path takes 12?

# %%
import inspect

print(inspect.getsource(simt.two_paths))
my_steps = {1: None, 16: None, 32: None}

# %%
traces = {period: launch(simt.two_paths, 1, 32)(torch.randn(32), 32, period, 3) for period in (1, 16, 32)}
steps = {period: trace.warp_steps for period, trace in traces.items()}
print("steps by period (modelled):", steps)
said = compare("steps of a warp with period", my_steps, steps)
figures.warp_lanes(traces[1])

# %% [markdown]
# **Compare.** Where lanes disagree, the warp walks through *both* loops, each time with half of its lanes switched off, and they join again at the end. With `period` 16 it costs the same: half of the warp or every other lane, both paths are walked.
#
# **Predict** the time on a GPU for 4 million threads, with that of `period` 32 as the unit.

# %%
my_times = {1: None, 16: None, 64: None}

# %%
rows, words = numbers("divergence")
unit = pick(rows, period=32)[0]["ms"]
said = compare("time by period, in units of period 32", my_times, {p: pick(rows, period=p)[0]["ms"] / unit for p in (1, 16, 64)})
counted = pick(numbers("counters", live=False)[0], kernel="two_paths")
lanes = {row["period"]: f": {row['lanes_per_instruction']:.0f} of 32 lanes work" for row in counted}
ms = {f"period {row['period'] if row['period'] < 1000 else 'all'}{lanes.get(row['period'], '')}": row["ms"] for row in rows}
figures.bars(ms, "Where a warp's lanes disagree it takes both paths; where whole warps disagree, nothing is lost",
             f"{words} Lanes: hardware counters.", "ms", worse=list(ms)[:sum(row["period"] < 32 for row in rows)])

# %% [markdown]
# The names of the bars hold what the GPU's own counters say: how many lanes took part in an instruction, on average. The interpreter's `lane_use` is the same quantity for our Python lines.

# %%
for row in counted:
    trace = launch(simt.two_paths, 1, 32)(torch.randn(32), 32, row["period"], 256)      # as many rounds as on the GPU
    print(f"period {row['period']:>2}: {row['lanes_per_instruction']:.1f} lanes counted, {32 * trace.lane_use:.1f} modelled")

# %% [markdown]
# **Takeaway.** A branch is free where whole warps agree, and costs both sides where they do not. Divergence is about neighbours, not about how many threads take which side.

# %% [markdown]
# ## Threads that work together
#
# So far every thread minded its own element. A sum, or the maximum that softmax needs, takes many threads for one result. The threads of a block can meet in **shared memory**: fast, on the SM, the same for all of them and gone when the block ends. Here 8 of them add 8 numbers.

# %%
rounds, half = [[3, 1, 4, 1, 5, 9, 2, 6]], 4
while half:
    rounds.append([value + rounds[-1][t + half] if t < half else float("nan") for t, value in enumerate(rounds[-1])])
    half //= 2
figures.matrices({"": rounds}, f"8 threads sum 8 numbers in {len(rounds) - 1} rounds, with a barrier before each",
                 "Definition: the numbers in shared memory that still count.", "thread", "round")

# %% [markdown]
# In each round half of the threads read what others wrote in the round before. A **barrier**, `__syncthreads()` in CUDA C++, makes every thread of the block wait until all have arrived.

# %%
print(inspect.getsource(simt.block_sum))

# %% [markdown]
# Four blocks of 64 threads sum 64 numbers each. Now without the barriers: each warp goes on as soon as it can. In our interpreter the first warp runs to its end before the second one starts. **Predict** how many of the four sums come out right.

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


block = 64          # change me to 32: why is it right then?
X = torch.randn(4 * block)
for kernel in (simt.block_sum, no_barrier):
    sums = torch.zeros(4)
    launch(kernel, 4, block, shared=block)(X, sums)
    print(f"{kernel.__name__:>10}: {sums.numpy().round(2)}, by PyTorch {X.view(4, -1).sum(1).numpy().round(2)}")

# %%
said = compare("sums that are right without a barrier", my_right, int(torch.isclose(sums, X.view(4, -1).sum(1)).sum()))

# %% [markdown]
# NaN is what shared memory holds before anyone writes it, in the interpreter. On a GPU you would get whatever was there, and a right answer whenever the other warp happened to be early: a **race**, the kind of bug that passes its tests. Do not rely on a single warp's lock step either; recent GPUs promise it only where you ask for it.
#
# **Takeaway.** Registers are a thread's own, shared memory belongs to the block, and a barrier stands between writing it and reading what another thread wrote. FlashAttention's tiles of $K$ and $V$ live there: loaded by all threads, then read by all. In Triton you will not see any of this; the compiler writes it (chapter 09).
#
# ## How many blocks fit an SM
#
# An SM holds several blocks at once, as many as its limits allow. On an H100: 2048 threads, 32 blocks, 65,536 registers of 4 bytes, 228 KiB of shared memory. The share of the 2048 threads that is filled is its **occupancy**. **Predict**: a block of 256 threads uses 128 registers in each. How many such blocks fit?

# %%
my_blocks = None

# %%
from flashlab_course.gpu.occupancy import occupancy

said = compare("blocks of 256 threads with 128 registers", my_blocks, occupancy(256, registers=128).blocks)
figures.blocks_that_fit(256, registers=128, shared=48 * 1024)     # change me

# %% [markdown]
# The one limit that runs out first decides; the others stand half empty. A thread can have 255 registers at most, and what does not fit **spills** to slower memory. Chapter 10's FlashAttention kernel has 256 threads with 176 registers each and takes 128 KiB of shared memory (compiled for an H100, $d = 128$). **Predict** how many of its blocks an SM holds.

# %%
my_programs = None

# %%
said = compare("blocks of chapter 10's kernel on an SM", my_programs, occupancy(256, 176, 128 * 1024).blocks)
figures.blocks_that_fit(256, registers=176, shared=128 * 1024)

# %% [markdown]
# An eighth of the threads there could be, and yet the kernel reaches about half the TFLOP/s of a plain matrix product (without a mask; recorded on an H100, chapter 16). Occupancy is a means, not an end.
#
# ## How many bytes on their way
#
# The end is that enough loads are under way to hide the latency. **Little's law**, from the theory of queues: what is on its way = rate × time on the way. Here the rate is an H200's bandwidth, 4.5 TB/s, and the time its latency, 354 ns. **Predict**: how many bytes have to be on their way at any moment to keep HBM busy?

# %%
my_in_flight = None     # bytes, e.g. 100 * 1024

# %% [markdown]
# **Run and compare.** More and more threads read HBM, and each waits for its load, of 4 or of 16 bytes, before it starts the next.

# %%
ns = max(row["ns"] for row in numbers("memory_latency", "basics_h200")[0])
tb_s = pick(numbers("memory_bandwidth", "basics_h200")[0], footprint=1024 * MiB)[0]["tb_s"]
rows, words = numbers("in_flight", "basics_h200")
said = compare("bytes on their way", my_in_flight, tb_s * 1e12 * ns * 1e-9, "bytes")
rates = {f"{row['each']} bytes a thread": {} for row in rows}
for row in sorted(rows, key=lambda row: row["in_flight"]):
    rates[f"{row['each']} bytes a thread"][row["in_flight"]] = row["tb_s"]
low, enough, high = 2**16, ns * tb_s * 1000, 2**24
law = {"bytes ÷ latency, up to the bandwidth": {low: low / ns / 1000, enough: tb_s, high: tb_s}}
said.on(figures.curves(rates, f"{enough / MiB:.1f} MiB have to be on their way all the time to keep HBM busy", words,
                       "bytes on their way at once, all SMs", "TB/s from HBM", log="xy", byte="x", dashed=law), axis="x")

# %% [markdown]
# It does not matter who waits. 2048 threads on each SM with one 4-byte number each are not enough; a quarter of them with 16 bytes each do about as well. Fewer threads that each have more on the way are how FlashAttention gets by with an eighth of them: whole tiles travel while others are multiplied (chapter 12).
#
# **Takeaway.** Bytes on their way = bandwidth × latency. Threads are one way to get there, wide loads and loads ahead of time are others.

# %% [markdown]
# ## Does the interpreter tell the truth?
#
# The CUDA C++ sources are in flashlab_course/gpu/cuda. On a GPU this cell compiles them at run time and holds them against the interpreter; elsewhere it reads the recorded comparison.

# %%
rows, words = numbers("simulator")
equal = [row["kernel"] for row in rows if row["equal"]]
print(f"{len(equal)} of {len(rows)} launches equal bit for bit: {', '.join(dict.fromkeys(equal))}")
for row in rows:
    if not row["equal"]:
        print(f"{row['kernel']}, period {row['numbers'][1]}: largest difference {row['error']:.1e}")
print(words)

# %% [markdown]
# In `two_paths` Python computes in float64 and the GPU in float32, so the last digit may differ. What the interpreter does not have is time: it says what happens, never how long it takes.
#
# ## An open question
#
# `block_sum` leaves more and more lanes idle: in the last five rounds only one warp has work, and in the very last one a single lane. Does that matter? Count the steps with `trace.warp_steps` for blocks of 32, 256 and 1024 threads. How would you sum a million numbers, with what grid, and what would the GPU wait for, memory or lanes?
#
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 2.1 · Williams, Waterman, Patterson 2009, [Roofline](https://doi.org/10.1145/1498765.1498785) · Little 1961, [A proof for the queuing formula L = λW](https://doi.org/10.1287/opre.9.3.383) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), compute capabilities and independent thread scheduling · NVIDIA, [A100 whitepaper](https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf) and [H100 whitepaper](https://resources.nvidia.com/en-us-tensor-core) · NVIDIA, [GPU performance background](https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html)
#
# **Next:** [03 · Online softmax](03_online_softmax.ipynb). Softmax seems to need a whole row at once. It does not. The kernels come back in chapter 09, in Triton.
