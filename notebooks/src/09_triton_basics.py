# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09 · Triton basics
#
# **You will be able to** find any element of any tensor from a pointer and its strides, write Triton kernels for vectors, matrices, row softmax and matrix products, tell a coalesced access from a scattered one, and read what the compiler made of a kernel.
#
# **You need** chapters 02 and 04; attention itself comes in chapter 10. · **90 minutes** · **runs on** CPU or GPU; Triton, so Linux
#
# Without a GPU, Triton's interpreter runs the same kernels on the CPU. GPU numbers are then recorded ones.

# %%
import flashlab  # first: it tells Triton whether to compile or to interpret
from flashlab.doctor import as_text, check_triton, import_triton
from flashlab.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %% [markdown]
# ## Where an element lies
#
# A kernel gets no tensor, only the address of its first element. Everything else is arithmetic: memory is one long line, and a tensor's **strides** say how many elements to step over for the next row, the next column. **Predict**: at which address, counted in elements, lies `T[2, 1]`? What are the strides of `T.T`?

# %%
my_address, my_strides = None, None

# %%
import torch

from flashlab import figures

T = torch.arange(12).view(3, 4)
print(f"T[2, 1] lies at {2 * T.stride(0) + 1 * T.stride(1)}; your prediction: {my_address}")
print(f"strides of T: {T.stride()}, of T.T: {T.T.stride()}; your prediction: {my_strides}")
figures.layout_addresses({"T": T, "T.T": T.T, "T[:, 1:3]": T[:, 1:3]})

# %% [markdown]
# **Compare.** Transposing swaps two strides, slicing moves the start: no number is moved or copied. That is why these operations are free in PyTorch, and why kernels take strides.
#
# A reshape is free only if strides can describe the result. **Predict**: which of `T.view(4, 3)`, `T.T.view(12)` and `T.T.reshape(12)` works, and which of them copies?

# %%
my_guess = {"T.view(4, 3)": None, "T.T.view(12)": None, "T.T.reshape(12)": None}     # "free", "copies" or "fails"

# %% [markdown]
# **Run and compare.** The second one fails on purpose: down the columns of $T$ the addresses go 0, 4, 8, 1, 5, ... No single stride makes that line.

# %%
for name in my_guess:
    try:
        answer = "free" if eval(name).data_ptr() == T.data_ptr() else "copies"
    except RuntimeError as error:
        answer = f"fails: {str(error).split('(')[0]}"
    print(f"{name:>16} {answer}; your prediction: {my_guess[name]}")

# %% [markdown]
# **Takeaway.** A tensor is a pointer, a shape and strides; element $(i, j)$ lies at `pointer + i·stride_0 + j·stride_1`. Nothing has to be contiguous as long as the kernel takes the strides.

# %% [markdown]
# ## A program works on a block
#
# A CUDA thread takes one element. A Triton **program** takes a block of them: `tl.arange` makes the block of offsets, and adding it to a pointer makes a block of pointers. Here are the offsets of three programs, in PyTorch. **Predict**: 10 elements in blocks of 4. Which offsets do not belong to the vector?

# %%
my_offsets = None

# %%
N, B = 10, 4
for program in range(-(-N // B)):
    i = program * B + torch.arange(B)
    print(f"program {program}: offsets {i.tolist()}, inside {(i < N).tolist()}")
print(f"your prediction: {my_offsets}")

# %% [markdown]
# Now the kernel, at first without a mask. `X`, `Y` and `Out` are pointers, `B` is a `tl.constexpr`: known when the kernel is compiled, as every block's size must be.

# %%
import triton
import triton.language as tl


@triton.jit
def careless_add(X, Y, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Out + i, tl.load(X + i) + tl.load(Y + i))


device = "cuda" if torch.cuda.is_available() else "cpu"
memory = torch.zeros(3, 16, device=device)                  # three vectors of 10, each with 6 elements of somebody else's after it
X, Y, Out = memory[0, :N], memory[1, :N], memory[2, :N]
memory[0], memory[1] = 1, 2
careless_add[(triton.cdiv(N, B),)](X, Y, Out, N, B)
print("Out:", Out.tolist(), "\nbehind it:", memory[2, N:].tolist())

# %% [markdown]
# `Out` is right, and no error came. But two numbers behind it were overwritten. Triton's interpreter does not notice stray addresses, and a GPU rarely does. `flashlab.compiler.lint` does: it holds every address against the tensors.

# %%
from flashlab.compiler import lint

arguments = {"X": X, "Y": Y, "Out": Out, "N": N, "B": B}
print(lint.as_text(lint.lint_kernel(careless_add, arguments, grid=(3,))))

# %% [markdown]
# The cure is a **mask**: a block of booleans. Masked-off elements are neither read nor written. It is chapter 02's guard, for a block at a time.

# %%
@triton.jit
def vector_add(X, Y, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)              # (B,)
    mine = i < N                                            # (B,)
    x = tl.load(X + i, mine)
    y = tl.load(Y + i, mine)
    tl.store(Out + i, x + y, mine)


memory[2] = 0
vector_add[(triton.cdiv(N, B),)](X, Y, Out, N, B)
print("Out:", Out.tolist(), "\nbehind it:", memory[2, N:].tolist())

# %% [markdown]
# **Takeaway.** Every load and every store of a tile that may stick out needs a mask, and a result that looks right does not prove that there is one.
#
# ## Who does the work?
#
# `B` counts elements, not threads. By default a program runs on 4 warps, 128 threads. **Predict**: with `B = 1024`, how many elements does a thread take, and how many instructions does it need to load them from one vector?

# %%
my_elements, my_loads = None, None

# %% [markdown]
# **Run and compare.** The kernel of the package is compiled for an H100, which needs no GPU. The answer stands in its PTX, the assembly language of NVIDIA GPUs.

# %%
import re

from flashlab.compiler.ahead_of_time import compile_for
from flashlab.gpu import vector_add as vectors


def meta(*shape, dtype=torch.float16):
    return torch.empty(*shape, dtype=dtype, device="meta")


V = meta(4096, dtype=torch.float32)
ptx = compile_for(vectors.vector_add_kernel, {"X": V, "Y": V, "Out": V, "N": 4096, "B": 1024}, 90).ptx
print("\n".join(line.strip() for line in ptx.splitlines() if "ld.global" in line or "st.global" in line or "reqntid" in line))
print(f"your prediction: {my_elements} elements, {my_loads} loads")

# %% [markdown]
# **Compare.** 128 threads, 8 elements each, in two loads of four float32: 16 bytes at once, the widest a thread can load. Giving a thread several elements is called **thread coarsening**; Triton does it by itself.
#
# Wide loads need aligned addresses, and a mask that does not change within them: Triton compiles in which arguments are multiples of 16. **Predict** the loads for $N = 4097$.

# %%
my_loads_4097 = None

# %%
for N in (4096, 4097):
    ptx = compile_for(vectors.vector_add_kernel, {"X": V, "Y": V, "Out": V, "N": N, "B": 1024}, 90).ptx
    loads = re.findall(r"ld\.global\.\S+", ptx)
    print(f"N = {N}: {len(loads)} loads in {vectors.vector_add_kernel.fn.__name__}, all of them {' and '.join(set(loads))}")
print(f"your prediction: {my_loads_4097}")
print({f"tl.{name}": hasattr(tl, name) for name in ("multiple_of", "align")})

# %% [markdown]
# **Compare.** 4 bytes at a time: the mask may end anywhere. Where a number is a multiple and the compiler cannot know, `tl.multiple_of(x, 16)` promises it. Published notes on Triton do that with `tl.align`: there is no such function.
#
# **Takeaway.** You choose the block and the warps; the compiler deals the elements out to the threads.
#
# ## SIMD against scalar code
#
# What a block operation does for the 128 elements of a program can also be written as a loop over single numbers. **Predict**: how much slower is that on a GPU?

# %%
import inspect

print(inspect.getsource(vectors.one_by_one_kernel.fn))
my_slower = None

# %%
from flashlab.bench import numbers, pick

rows, words = numbers("vector_addition")
blocks, scalars = pick(rows, by="Triton, a block at a time"), pick(rows, by="Triton, one number at a time")
for row in blocks + scalars:
    print(f"{row['by']:>30}, N = {row['N']}, B = {row['block']}: {row['ms']:.4f} ms, {row['tb_s']:.3f} TB/s")
if blocks and scalars:
    print(f"{scalars[0]['ms'] / blocks[0]['ms']:.0f} times slower; your prediction: {my_slower}")
print(words)

# %% [markdown]
# A scalar is the same for the whole program: all 128 threads do the same addition, one after the other through the loop, each waiting for memory. Scalars are for addresses and loop counters.
#
# **Takeaway.** Data in blocks, bookkeeping in scalars.

# %% [markdown]
# ## Branches: constexpr or not
#
# An `if` on a `tl.constexpr` is decided while compiling, and the other side does not exist in the code. An `if` on a run-time number stays a branch. A kernel with a switch shows the difference.

# %%
from flashlab.compiler.ahead_of_time import compile_all
from flashlab.gpu import branches

print(inspect.getsource(branches.constexpr_branch_kernel.fn))
common = {"X": V, "Out": V, "B": 1024}
jobs = [(kernel, common | {"flag": flag}, 90) for kernel in (branches.constexpr_branch_kernel, branches.runtime_branch_kernel)
        for flag in (0, 2)]
for (kernel, arguments, _), binary in zip(jobs, compile_all(jobs), strict=True):
    count = {word: len(re.findall(rf"\b{word}\b", binary.ptx)) for word in ("bra", "ex2", "sqrt")}
    print(f"{kernel.fn.__name__}, flag {arguments['flag']}: {count} instructions")

# %% [markdown]
# **Takeaway.** What is known at compile time belongs in a `tl.constexpr`, such as `causal` in an attention kernel: two lean kernels instead of one with branches. A run-time `if` on a scalar is no divergence, since the whole program agrees; it costs code, registers, and the compiler's view across it.

# %% [markdown]
# ## Two dimensions
#
# A tile of a matrix is a column of row offsets plus a row of column offsets. Broadcasting makes the block of pointers, as in PyTorch. **Predict** the addresses of the tile of rows 1–2 and columns 2–3 of a $3 \times 4$ matrix, for `T` and for `T.T`'s strides.

# %%
my_tile = None

# %%
rows, cols = torch.tensor([1, 2]), torch.tensor([2, 3])
offsets = rows[:, None] * T.stride(0) + cols * T.stride(1)           # (2, 1) * stride + (2,) * stride -> (2, 2)
print("addresses in T:", offsets.tolist(), f"; your prediction: {my_tile}")
rows, cols = torch.tensor([1, 2]), torch.tensor([1, 2])
print("rows 1-2, columns 1-2 of T.T:", (rows[:, None] * T.T.stride(0) + cols * T.T.stride(1)).tolist())

# %% [markdown]
# The kernel is these three lines and a mask with two edges. Strides come in as arguments, so that any matrix will do, transposed or sliced.

# %%
@triton.jit
def matrix_add(X, Y, Out, stride_Xm, stride_Xn, stride_Ym, stride_Yn, stride_Om, stride_On,
               M, N, B_m: tl.constexpr, B_n: tl.constexpr):
    rows = tl.program_id(0) * B_m + tl.arange(0, B_m)       # (B_m,)
    cols = tl.program_id(1) * B_n + tl.arange(0, B_n)       # (B_n,)
    inside = (rows[:, None] < M) & (cols < N)               # (B_m, B_n)
    x = tl.load(X + rows[:, None] * stride_Xm + cols * stride_Xn, inside)
    y = tl.load(Y + rows[:, None] * stride_Ym + cols * stride_Yn, inside)
    tl.store(Out + rows[:, None] * stride_Om + cols * stride_On, x + y, inside)


M, N = 45, 70
X, Y, Out = torch.randn(M, N, device=device), torch.randn(N, M, device=device).T, torch.empty(M, N, device=device)
grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
matrix_add[grid](X, Y, Out, *X.stride(), *Y.stride(), *Out.stride(), M, N, 16, 32)
print(f"X strides {X.stride()}, Y strides {Y.stride()}: Out = X + Y is {torch.equal(Out, X + Y)}")

# %% [markdown]
# Passing the wrong strides gives a wrong answer and no error. This cell fails on purpose: it takes $Y$ for a contiguous matrix.

# %%
matrix_add[grid](X, Y, Out, *X.stride(), N, 1, *Out.stride(), M, N, 16, 32)
print(f"Out = X + Y is {torch.equal(Out, X + Y)}: {int((Out != X + Y).sum())} of {Out.numel()} are wrong")

# %% [markdown]
# **Takeaway.** One stride for each dimension of each tensor, read off with `.stride()`, never guessed from the shape.

# %% [markdown]
# ## Coalescing
#
# The answer does not depend on the order in which lanes visit a matrix. The time does. Memory moves in **sectors** of 32 bytes. A warp's 32 lanes load 32 float32, 128 bytes. **Predict** how many sectors that takes if neighbouring lanes walk along a row, and if they walk down a column.

# %%
my_sectors = {"along a row": None, "down a column": None}

# %% [markdown]
# **Run and compare**, in the SIMT interpreter of chapter 02. It knows the address that each lane asks for.

# %%
import math

from flashlab.gpu import simt
from flashlab.gpu.simt import launch

A, B_, C = (torch.zeros(64, 64) for _ in range(3))
traces = {"along a row": launch(simt.matrix_add, (2, 64), (32, 1))(A, B_, C, 64, 64),
          "down a column": launch(simt.matrix_add_down_columns, (2, 64), (32, 1))(A, B_, C, 64, 64)}
for name, trace in traces.items():
    moved, loads = trace.sectors("load")
    print(f"{name:>14}: {moved / loads:.0f} sectors a load (modelled); your prediction: {my_sectors[name]}")
figures.sectors_touched(traces, columns=64)

# %% [markdown]
# Along a row the lanes share sectors: the access is **coalesced**. Down a column each lane fetches a sector of its own and uses 4 of its 32 bytes. A profiler shows the same two counters on a GPU, sectors and requests. **Predict** what it does to the run time.

# %%
my_times_slower = None

# %%
rows, words = numbers("coalescing")
for row in pick(rows, by="CUDA C++"):
    side = math.isqrt(row["bytes"] // 12)                            # three matrices of 4 bytes a number
    print(f"{row['access']:>14}, {side} x {side}: {row['ms']:.3f} ms, {row['tb_s']:.2f} TB/s")
counted, _ = numbers("counters", live=False)
for row in pick(counted, kernel="matrix_add"):
    print(f"{row['access']:>14}: {row['load_sectors'] / row['load_requests']:.1f} sectors a load (hardware counter), "
          f"{(row['dram_read'] + row['dram_written']) / 1e6:.0f} MB moved by DRAM, {row['l2_bytes'] / 1e6:.0f} MB by L2")
print(f"your prediction: {my_times_slower}. {words}")

# %%
def down_against_along(found, number):
    down, along = (pick(found, access=access) for access in ("down columns", "along rows"))
    return number(down[0]) / number(along[0]) if down and along else float("nan")


adds = pick(counted, kernel="matrix_add")
print(f"down columns against along rows: {down_against_along(adds, lambda row: row['load_sectors']):.1f} times the sectors, "
      f"{down_against_along(rows, lambda row: row['ms']):.1f} times the time,\n"
      f"{down_against_along(adds, lambda row: row['l2_bytes']):.1f} times the bytes through L2, "
      f"{down_against_along(adds, lambda row: row['dram_read'] + row['dram_written']):.2f} times the bytes of DRAM")

# %% [markdown]
# **Compare.** The time does not grow as much as the sectors, and DRAM moves the same: a line, once fetched, stays in a cache until the neighbouring columns want it. What grows is the traffic between the SMs and L2, and the time follows that.

# %% [markdown]
# And in Triton, where the compiler deals elements to threads? It picks the order for each load from what it knows about strides: a stride of 1 is compiled in. So a transposed matrix is read along its own columns. Only a stride that no order can mend wastes sectors: every 8th number of a row, for instance.

# %%
for row in pick(rows, by="Triton") + pick(rows, by="PyTorch"):
    name = f"stride {row['stride']}" if "stride" in row else row["access"]
    print(f"{row['by']:>8}, {name:<16} {row['ms']:7.3f} ms, {row['tb_s']:.2f} TB/s of useful bytes")
for row in [row for row in pick(counted, kernel="Triton matrix_add") if "asked" in row]:
    print(f"Triton, {row['access']:<16} {32 * row['load_sectors'] / row['asked']:.1f} bytes moved for each byte asked for (hardware counter)")
for by in ("Triton", "PyTorch"):
    turned, straight = (pick(rows, by=by, access=access) for access in ("one transposed", "both row-major"))
    if turned and straight:
        print(f"{by} with one operand transposed: {turned[0]['ms'] / straight[0]['ms']:.2f} times the time of both row-major")
print(words)

# %% [markdown]
# PyTorch's own addition picks one order for all operands and pays for a transposed one. The Triton kernel does not.
#
# **Takeaway.** Neighbouring lanes should want neighbouring addresses. In CUDA you see to it; in Triton the compiler does, if one stride is 1 and it can see that.

# %% [markdown]
# ## Softmax of a row, fused
#
# Eager PyTorch would take five kernels: maximum, subtract, exp, sum, divide. Each reads and writes HBM. **Predict** how many times the matrix crosses HBM, and how many times it has to.

# %%
my_crossings, my_minimum = None, None

# %%
from flashlab.memory import Memory

X = torch.randn(512, 1024)
with Memory() as mem:
    E = torch.exp(X - X.amax(1, keepdim=True))
    Y = E / E.sum(1, keepdim=True)
print(mem.table())
print(f"{(mem.read + mem.written) / X.nbytes:.1f} crossings (modelled); your prediction: {my_crossings}; needed: 2, {my_minimum}")

# %% [markdown]
# A Triton program can hold a whole row on chip: load it once, do everything there, store once. Blocks have power-of-two sizes, so the row is padded. The padding must not disturb the result: what should `other`, the value of masked-off elements, be?

# %%
@triton.jit
def row_softmax(X, Y, stride_X, stride_Y, N, B: tl.constexpr, other: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, B)                                  # (B,)  B >= N: the whole row
    x = tl.load(X + row * stride_X + cols, cols < N, other)
    x = tl.exp(x - tl.max(x, 0))                            # (B,)  at most 1
    tl.store(Y + row * stride_Y + cols, x / tl.sum(x, 0), cols < N)


X = torch.randn(20, 100, device=device) - 3                 # most numbers are below 0
for other in (0.0, -float("inf")):
    Y = torch.empty_like(X)
    row_softmax[(20,)](X, Y, X.stride(0), Y.stride(0), 100, 128, other)
    print(f"other = {other}: largest error {(Y - torch.softmax(X, 1)).abs().max():.1e}, first row sums to {Y[0].sum():.4f}")

# %% [markdown]
# With 0 the 28 padded elements enter the sum, as exp(0 − max) each. This failed on purpose; $-\infty$ adds exactly 0. The kernel of the package adds three things: several short rows for each program, more warps for long ones, and `N` as a constant, so that loads are as wide as a row's length allows.
#
# **Predict** which share of a plain copy's speed it reaches on an H100.

# %%
my_share = None

# %%
rows, words = numbers("softmax")
for row in pick(rows, by="kernel", dtype="float16"):
    others = {name: pick(rows, by=name, dtype="float16", N=row["N"]) for name in ("copy", "torch", "eager")}
    ratios = [f"{100 * other[0]['ms'] / row['ms']:4.0f} % of {name}'s speed" for name, other in others.items() if other]
    print(f"{row['M']:>7} rows of {row['N']:>5}: {row['tb_s']:.2f} TB/s, {', '.join(ratios)}")
print(f"your prediction: {my_share}. {words}")

# %%
for dtype in ("float16", "float32"):
    for other in ("copy", "torch", "eager"):
        speed = {row["N"]: theirs["ms"] / row["ms"] for row in pick(rows, by="kernel", dtype=dtype)
                 for theirs in pick(rows, by=other, dtype=dtype, N=row["N"])}
        low, high = (choose(speed, key=speed.get, default=None) for choose in (min, max))
        if speed:
            print(f"{dtype}: {speed[low]:.2f} (N = {low}) to {speed[high]:.2f} (N = {high}) times the speed of {other}")

# %% [markdown]
# **Compare.** On the H100 the kernel takes what a copy takes, odd lengths included; only the longest rows cost a few percent. (A little above 1: PyTorch's copy is not the fastest there is.) `torch.softmax` is one kernel too and moves the same bytes: what it lacks is not fusion. In float32, on short rows, both are even.
#
# **Takeaway.** Fusion buys time with traffic: five operations in one kernel take about as long as copying the matrix. FlashAttention is this idea, with two matrix products inside.

# %% [markdown]
# ## A matrix product
#
# One program makes one tile of $C = AB$. It walks along a strip of $A$ and down a strip of $B$, and adds up the products of their tiles, as in chapter 04. **Predict** how many programs a $200 \times 300$ result takes with tiles of $64 \times 64$.

# %%
my_programs = None

# %%
@triton.jit
def matmul(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
           B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr, sums: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    rows, cols = i * B_m + tl.arange(0, B_m), j * B_n + tl.arange(0, B_n)
    acc = tl.zeros((B_m, B_n), sums)                        # stays on chip over the whole loop
    for k in range(0, tl.cdiv(K, B_k)):
        inner = k * B_k + tl.arange(0, B_k)
        a = tl.load(A + rows[:, None] * stride_Am + inner * stride_Ak, (rows[:, None] < M) & (inner < K), 0.0)
        b = tl.load(B + inner[:, None] * stride_Bk + cols * stride_Bn, (inner[:, None] < K) & (cols < N), 0.0)
        acc += tl.dot(a, b, input_precision="ieee").to(sums)
    tl.store(C + rows[:, None] * stride_Cm + cols * stride_Cn, acc, (rows[:, None] < M) & (cols < N))


def run_matmul(A, B, sums=tl.float32, tile=64):
    C = torch.empty(A.shape[0], B.shape[1], dtype=A.dtype, device=A.device)
    grid = (triton.cdiv(C.shape[0], tile), triton.cdiv(C.shape[1], tile))
    matmul[grid](A, B, C, *C.shape, A.shape[1], *A.stride(), *B.stride(), *C.stride(), tile, tile, tile, sums)
    return C, grid

# %%
A, B = torch.randn(200, 150, device=device), torch.randn(300, 150, device=device).T
C, grid = run_matmul(A, B)
print(f"{grid[0]} x {grid[1]} = {grid[0] * grid[1]} programs; your prediction: {my_programs}")
print(f"largest difference to torch: {(C - A @ B).abs().max():.1e}")

# %% [markdown]
# **Takeaway.** One program, one tile of $C$. Its sums stay on chip for the whole loop; tiles of $A$ and $B$ pass by, masked with 0 where they stick out.
#
# ### Sums in float32
#
# The inputs may have 16 bits; the sum must not. Here both versions add the same products, one in float16 and one in float32. All numbers are positive, so the sum grows and grows. **Predict** the relative error of a float16 sum over $K = 8192$ numbers between 0 and 1, in tiles of 16.

# %%
my_error = None

# %%
A, B = torch.rand(16, 8192, device=device).half(), torch.rand(8192, 16, device=device).half()
truth = A.double() @ B.double()
for sums in (tl.float16, tl.float32):
    C, _ = run_matmul(A, B, sums, tile=16)
    print(f"sums in {sums}: relative error {((C.double() - truth) / truth).abs().max():.1e}; your prediction: {my_error}")

# %% [markdown]
# From 1024 on, neighbouring float16 numbers are 1 apart, from 2048 on 2, and each partial sum is rounded to one of them. The float32 version is rounded to float16 once, at the end.
#
# **Takeaway.** Inputs may have 16 bits; sums have 32.
#
# ### Both operands of one type
#
# On chip, results are float32; tiles of $V$ are float16. The interpreter multiplies such a pair without a word. The compiler refuses. This one fails on purpose:

# %%
@triton.jit
def mixed(A, B, C, D: tl.constexpr):
    i = tl.arange(0, D)
    p = tl.exp(tl.load(A + i[:, None] * D + i).to(tl.float32))      # float32
    v = tl.load(B + i[:, None] * D + i)                             # float16
    tl.store(C + i[:, None] * D + i, tl.dot(p, v))


print(lint.as_text(lint.lint_kernel(mixed, {"A": meta(16, 16), "B": meta(16, 16), "C": meta(16, 16), "D": 16})))

# %% [markdown]
# The fix is to cast down, `p.to(v.dtype)`, not up: tensor cores are fast on 16-bit operands, and they add in float32 all the same.
#
# ### TF32
#
# Tensor cores multiply float32 only after shortening its mantissa from 23 bits to 10: **TF32**, Triton's default for float32. Done by hand, with rounding and by cutting off, this shows what it does to a product. **Predict** the relative error.

# %%
my_tf32_error = None

# %%
def tf32(x, half_a_step=0x1000):
    return ((x.view(torch.int32) + half_a_step) & ~0x1FFF).view(torch.float32)        # 13 of 23 bits go


A, B = torch.randn(256, 1024), torch.randn(1024, 256)
truth = A.double() @ B.double()
print(f"your prediction: {my_tf32_error}. Modelled, relative to the mean:")
for name, C in {"float32": A @ B, "TF32, rounded": tf32(A) @ tf32(B), "TF32, cut off": tf32(A, 0) @ tf32(B, 0),
                "float16": A.half().float() @ B.half().float()}.items():
    print(f"{name:>14}: error {(C - truth).abs().mean() / truth.abs().mean():.1e}")

# %%
rows, words = numbers("precision")
for row in rows:
    print(f"{row['by']:>20}, {row['precision']:<15} {row['tflops']:6.1f} TFLOP/s, error {row['mean_error']:.1e} of the mean")
print(words)

# %% [markdown]
# The errors tell who rounds and who cuts off. TF32's speed hangs on $B$'s layout: Hopper's tensor cores take 32-bit operands only with $K$ as the contiguous direction. A row-major $B$ is turned around while it is copied to shared memory, 4 bytes at a time where 16 would go. Compiled for an H100:

# %%
from flashlab.gpu import matmul as matmuls

A = meta(4096, 4096, dtype=torch.float32)
common = {"A": A, "B": A, "C": A, "M": 4096, "N": 4096, "K": 4096, "group": 8, "precision": "tf32", "stride_Cm": 4096, "stride_Cn": 1,
          "stride_Am": 4096, "stride_Ak": 1, "B_m": 128, "B_n": 128, "B_k": 32, "num_warps": 8, "num_stages": 3}
layouts = {"B by rows": {"stride_Bk": 4096, "stride_Bn": 1}, "B by columns": {"stride_Bk": 1, "stride_Bn": 4096}}
for name, binary in zip(layouts, compile_all([(matmuls.matmul_kernel, common | strides, 90) for strides in layouts.values()]), strict=True):
    wide, narrow = (len(re.findall(rf"cp\.async\.{kind}", binary.ptx)) for kind in ("cg", "ca"))
    print(f"{name:>14}: {wide} copies of 16 bytes, {narrow} of 4 bytes")

# %%
for row in pick(rows, by="kernel, B by columns"):
    for other in pick(rows, by="kernel", precision=row["precision"]):
        print(f"{row['precision']:>6}: B by columns runs at {other['ms'] / row['ms']:.2f} times the speed of B by rows")
print(words)

# %% [markdown]
# **Compare.** On the H100 the other layout wins for both kinds of TF32, and loses for `"ieee"`, which uses no tensor cores (why it loses we have not examined). With $B$ by rows, `"tf32x3"` is even slower than true float32.
#
# **Takeaway.** `"ieee"` is true float32, `"tf32"` three digits, `"tf32x3"` three products that win the other digits back. Say which one you want: the default differs between interpreter and GPU.

# %% [markdown]
# ### An order that the L2 cache likes
#
# Programs start in order of their ids, as many as the SMs hold. Tiles in one row of $C$ share a strip of $A$, those in one column a strip of $B$. **Predict**: 9 programs run at once on $9 \times 9$ tiles. How many strips do they read if ids go row by row? At best?

# %%
my_strips, my_best = None, None

# %%
from flashlab.gpu.matmul import tiles_in_order

print(f"your prediction: {my_strips} and {my_best}")
figures.tile_order({f"group = {group}": tiles_in_order(9, 9, group) for group in (1, 3)}, wave=9)

# %% [markdown]
# The kernel of the package turns a program id into a tile in groups of 8 tile rows. At $8192^3$ each matrix has 128 MiB, more than the 50 MB of L2. **Predict** how much the order changes: the bytes read from DRAM, and the time.

# %%
my_gain = {"DRAM": None, "time": None}

# %%
rows, words = numbers("matmul_order")
for row in rows:
    print(f"group {row['group']:>2}: {row['ms']:6.3f} ms, {row['tflops']:.0f} TFLOP/s")
for row in counted:
    if row["kernel"] == "matmul" and "group" in row:
        print(f"group {row['group']:>2}: {row['dram_read'] / 1e6:6.0f} MB read from DRAM, {row['l2_bytes'] / 1e6:.0f} MB through L2 (counters)")
print(f"your prediction: {my_gain}. {words}")

# %%
read = {row["group"]: row["dram_read"] for row in counted if row["kernel"] == "matmul" and "group" in row}
took = {row["group"]: row["ms"] for row in rows}
if {1, 8} <= set(read) & set(took):
    print(f"group 8 against 1: {read[8] / read[1]:.0%} of the bytes read from DRAM, {took[8] / took[1]:.0%} of the time")
for row in pick(numbers("matmul")[0], by="pointers", n=8192) if 8 in took else []:
    print(f"the same kernel, group 8, measured a second time in the same run: {row['ms'] / took[8]:.0%} of that time")

# %% [markdown]
# **Compare.** Far fewer bytes come from DRAM, and the time hardly moves: by little more than two measurements of one kernel differ. This product is far to the right in chapter 02's roofline and waits for arithmetic. Where a product waits for memory, fewer bytes would be time; we have not measured such a case.
#
# **Takeaway.** Programs that run together should share what they read. It costs four lines of integer arithmetic.

# %% [markdown]
# ## Tensor descriptors
#
# A descriptor holds pointer, shape, strides and tile size in one object. Loading a tile then takes its corner; edges are handled, zeros outside and nothing written there. On Hopper and newer the copies are done by a unit of their own, the TMA. The loop of the two kernels:

# %%
for kernel in (matmuls.matmul_kernel, matmuls.matmul_descriptor_kernel):
    lines = inspect.getsource(kernel.fn).splitlines()
    print("\n".join(line for line in lines if "descriptor(" in line or ".load(" in line or "store(" in line or "_tile +=" in line))
    print()

# %% [markdown]
# Older code makes *block pointers*, `tl.make_block_ptr`, with an `order` that named the fastest dimension: `(1, 0)` for row-major. They are deprecated in Triton 3.7, and Triton 3.9 removed them. A descriptor has no `order`: its last dimension must have stride 1, and rows must start at multiples of 16 bytes.
#
# The package has this chapter's matrix addition both ways. The second call fails on purpose: without the first column, rows no longer start at multiples of 16 bytes.

# %%
from flashlab.gpu import matrix_add as matrices

X, Y = torch.randn(45, 72, device=device), torch.randn(45, 72, device=device)
print("with descriptors, Out = X + Y:", torch.equal(matrices.matrix_add(X, Y, descriptors=True), X + Y))
try:
    matrices.matrix_add(X[:, 1:], Y[:, 1:], descriptors=True)
except ValueError as error:
    print(error)
print("with pointers, Out = X + Y:", torch.equal(matrices.matrix_add(X[:, 1:], Y[:, 1:]), X[:, 1:] + Y[:, 1:]))

# %% [markdown]
# **Predict**: TFLOP/s of both matrix products at $4096^3$ in float16, if PyTorch's is 100.

# %%
my_tflops = {"pointers": None, "descriptors": None}

# %%
rows, words = numbers("matmul")
for row in rows:
    if row["by"] != "torch":
        share = 100 * row["tflops"] / pick(rows, by="torch", n=row["n"])[0]["tflops"]
        print(f"{row['n']:>5}³ {row['by']:<12} {row['tflops']:5.0f} TFLOP/s, {share:3.0f} % of torch; "
              f"your prediction at 4096: {my_tflops[row['by']]}")
print("4096³, tiles 128 x 256 x 64, 8 warps; measured a second time in the same run, by number of stages:")
for row in pick(numbers("matmul_tiles")[0], n=4096, B_m=128, B_n=256, B_k=64, num_warps=8):
    print(f"  {row['num_stages']} stages, {row['by']:<12} {row['tflops']:5.0f} TFLOP/s")
print(words)

# %% [markdown]
# **Compare.** Neither wins: from one measurement to the next the order changes. At $1024^3$ both are far behind: tiles of $128 \times 256$ make 32 programs, and an H100 has 132 SMs. (What else is in that gap, and why descriptors are ahead there, we have not examined.)
#
# **Takeaway.** Descriptors take over addresses, edges and masks. Whether they also save time, only a measurement says: here they do not.

# %% [markdown]
# ## K loaded transposed, or transposed after the load?
#
# Attention needs $K_j^\top$. One can compute pointers to the transposed tile, or load the tile as it lies and transpose on chip. A write-up that this course draws on expected the second to be faster, and measured no difference on a T4. **Predict**, for an H100, in percent.

# %%
my_difference = None

# %%
rows, words = numbers("key_loading")
for row in rows:
    name = "transposed by the load" if row["transposed_load"] else "transposed after the load"
    n = math.isqrt(row["flops"] // (2 * row["d"]))                    # 2 n² d operations
    print(f"{n} queries and keys, d {row['d']:>3}, {name:<26} stride {'known' if row['stride_known'] else 'unknown'}: {row['ms']:.3f} ms")
for row in [row for row in pick(counted, kernel="largest_score") if "asked" in row]:
    name = "transposed by the load" if row["transposed_load"] else "transposed after the load"
    print(f"{name:<26} stride {'known' if row['stride_known'] else 'unknown'}: {32 * row['load_sectors'] / row['asked']:4.1f} bytes moved "
          f"for each byte asked for, in {row['load_requests'] / 1e6:.1f} million loads (hardware counters)")
print(f"your prediction: {my_difference}. {words}")

# %% [markdown]
# **Compare.** As long as Triton knows that $K$'s last stride is 1, it deals the elements out along that direction in both versions: same loads, same time. The PTX shows it without a GPU. Hide the stride (`do_not_specialize`), and it has to guess.

# %%
from flashlab.gpu import largest_score

Q = meta(128, 64)
sizes = {"Q": Q, "K": meta(4096, 64), "Out": meta(128, dtype=torch.float32), "stride_Qn": 64, "stride_Kn": 64, "N_k": 4096,
         "d": 64, "B_r": 128, "B_c": 64}
jobs = [(kernel, sizes | {"stride_Kd": stride, "transposed_load": t}, 90) for kernel, stride in
        ((largest_score.largest_score_kernel, 1), (largest_score.largest_score_blind_kernel, 7)) for t in (False, True)]
for (_, arguments, _), binary in zip(jobs, compile_all(jobs), strict=True):
    wide, narrow = (len(re.findall(pattern, binary.ptx)) for pattern in (r"cp\.async\.cg|ld\.global\.v4", r"ld\.global\.b16"))
    print(f"transposed by the load: {str(arguments['transposed_load']):<5}  stride known: {str(arguments['stride_Kd'] == 1):<5}  "
          f"{wide} loads of 16 bytes, {narrow} of 2 bytes")

# %% [markdown]
# Without the stride every load is 2 bytes wide, and the lanes are dealt out along the first dimension of the tile. That happens to be $K$'s contiguous one if the load transposes, and the scattered one if it does not: there the counter shows how much moves for nothing.
#
# **Takeaway.** Which way you write it does not matter; what the compiler knows about strides does. Let strides of 1 be visible.

# %% [markdown]
# ## What the compiler made of it
#
# Any machine with Triton can compile for any NVIDIA GPU. `compile_for` reports registers per thread (255 at most), **spills** (bytes that did not fit into registers and live in memory), shared memory, and the code. **Predict** which instruction multiplies matrices on an A100, an H100 and a B200. One of `mma.sync`, `wgmma`, `tcgen05.mma` each.

# %%
my_instructions = {"A100": None, "H100": None, "B200": None}

# %%
A = meta(4096, 4096)
common = {"A": A, "B": A, "C": A, "M": 4096, "N": 4096, "K": 4096, "group": 8, "precision": "ieee", "num_stages": 3}
common |= {"stride_Am": 4096, "stride_Ak": 1, "stride_Bk": 4096, "stride_Bn": 1, "stride_Cm": 4096, "stride_Cn": 1}
small, large = {"B_m": 128, "B_n": 128, "B_k": 64, "num_warps": 8}, {"B_m": 128, "B_n": 256, "B_k": 64, "num_warps": 8}
jobs = {"A100": (80, small), "H100": (90, large), "B200": (100, large), "H100, 4 warps": (90, large | {"num_warps": 4})}
binaries = compile_all([(matmuls.matmul_kernel, common | tiles, arch) for arch, tiles in jobs.values()])
for name, binary in zip(jobs, binaries, strict=True):
    found = [word for word in ("mma.sync", "wgmma", "tcgen05.mma") if word in binary.ptx]
    print(f"{name:>14}: {binary.registers} registers, {binary.spills} bytes spilled, {binary.shared_bytes / 1024:.0f} KiB shared, "
          f"{', '.join(found)}; your prediction: {my_instructions.get(name, '-')}")
    print("\n".join(f"{'':>16}{line[line.find('Potential'):][:110]}" for line in binary.warnings))

# %% [markdown]
# The last line has too few warps: 128 threads for $128 \times 256$ sums are 256 each, and a thread has 255 registers for everything. `tl.zeros` makes registers; what does not fit is spilled to memory, and the matrix instructions can no longer overlap. **Predict** how much slower the same tile is with 4 warps instead of 8.

# %%
my_spill_cost = None

# %%
rows, words = numbers("matmul_tiles")
tile = {"B_m": 128, "B_n": 256, "B_k": 64, "num_stages": 3}
for row in pick(rows, **tile):
    print(f"{row['by']:<12} {row['num_warps']} warps: {row['ms']:.3f} ms, {row['tflops']:.0f} TFLOP/s")
for row in counted:
    if row["kernel"] == "matmul" and "num_warps" in row:
        print(f"{row['num_warps']} warps: {row['spill_load_sectors'] + row['spill_store_sectors']} sectors of spills (hardware counter)")
for by in ("pointers", "descriptors"):
    eight, four = (pick(rows, **tile, by=by, num_warps=warps) for warps in (8, 4))
    if eight and four:
        print(f"{by}: 4 warps take {four[0]['ms'] / eight[0]['ms']:.1f} times as long")
print(f"your prediction: {my_spill_cost}. {words}")

# %% [markdown]
# **Takeaway.** Read registers, spills, shared memory and the instructions before you measure: it costs a second and no GPU.

# %% [markdown]
# ## Why atomics are slow
#
# To sum a vector, every program may add its part to one number in memory. Two must not do so at once, so each addition has to be **atomic**, and they queue. **Predict**, for 16 million numbers: how much slower is an atomic for each element than none at all and a second launch?

# %%
from flashlab.gpu import vector_sum

for kernel in (vector_sum.sum_by_element_kernel, vector_sum.sum_by_block_kernel, vector_sum.partial_sums_kernel):
    print(inspect.getsource(kernel.fn).split("\n", 1)[1])
my_atomic_cost = None

# %%
rows, words = numbers("atomics")
for row in rows:
    print(f"{row['how']:>10}: {row['ms']:8.3f} ms, {row['different_results_of_20']:>2} different results in 20 runs")
for how in ("element", "block"):
    for row, without in zip(pick(rows, how=how), pick(rows, how="partial"), strict=False):
        print(f"{how}: {row['ms'] / without['ms']:.2f} times the time of partial, which has no atomics")
print(f"your prediction: {my_atomic_cost}. {words}")
X = torch.randn(4096, device=device)
for how in ("element", "block", "partial"):
    print(f"{how:>10}: off by {(vector_sum.vector_sum(X, how=how).double() - X.double().sum()).abs().item():.1e} (measured here)")

# %% [markdown]
# Atomics have a second price: the order of the additions changes from run to run, and so do the last digits of a float32 sum. Chapter 11 meets both when several programs add to one $dQ$.
#
# **Takeaway.** Reduce on chip first. One atomic for each program then takes about as long as a second launch without any; only the second launch gives the same digits every time.

# %% [markdown]
# ## Will it run on a GPU?
#
# The interpreter accepts what a GPU would refuse, or do differently. `lint_kernel` finds such places; from a terminal it is `python -m flashlab doctor --kernel module:name ...`. Here are three kernels of this chapter's kind with a flaw each.

# %%
@triton.jit
def product(A, B, C, D: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, D), tl.arange(0, K)
    tl.store(C + i[:, None] * D + i, tl.dot(tl.load(A + i[:, None] * K + k), tl.load(B + k[:, None] * D + i)))


for what, dtype, D, K in [("K = 8", torch.float16, 64, 8), ("float32", torch.float32, 64, 64), ("K = 512", torch.float16, 128, 512)]:
    tensors = {"A": meta(D, K, dtype=dtype), "B": meta(K, D, dtype=dtype), "C": meta(D, D, dtype=torch.float32)}
    print(f"{what}\n{lint.as_text(lint.lint_kernel(product, tensors | {'D': D, 'K': K}))}\n")

# %% [markdown]
# **Takeaway.** Green in the interpreter means that the algorithm is right on these inputs. Stray addresses pass silently, programs run one after the other so that races cannot show, and float32 and bfloat16 differ from a GPU's. The lint adds: it compiles, it fits, it stays within its tensors, and it says where precision differs.

# %% [markdown]
# ## Your turn
#
# Each exercise is a file with a stub. Fill it in and run its cell: the checker reloads the file and says what is wrong, or that it is right.
#
# **Strides of a view** ([exercises/ex09_view_strides.py](../exercises/ex09_view_strides.py), 20 minutes). Permute and slice: shape, strides, offset.

# %%
from flashlab.check import check

check("ex09_view_strides")

# %% [markdown]
# **A tile's addresses** ([exercises/ex09_tile_offsets.py](../exercises/ex09_tile_offsets.py), 15 minutes). $row \cdot stride_m + col \cdot stride_n$, and the mask.

# %%
check("ex09_tile_offsets")

# %% [markdown]
# **Sectors** ([exercises/ex09_uncoalesced.py](../exercises/ex09_uncoalesced.py), 20 minutes). Which loads are uncoalesced? Count the sectors of 32 lanes.

# %%
check("ex09_uncoalesced")

# %% [markdown]
# **A first kernel** ([exercises/ex09_vector_add.py](../exercises/ex09_vector_add.py), 20 minutes). $aX + Y$: grid, block, mask.

# %%
check("ex09_vector_add")

# %% [markdown]
# **Row softmax** ([exercises/ex09_row_softmax.py](../exercises/ex09_row_softmax.py), 30 minutes). $e^{x - \max}/\sum e^{x - \max}$, a row for each program.

# %%
check("ex09_row_softmax")

# %% [markdown]
# **Matrix product** ([exercises/ex09_matmul.py](../exercises/ex09_matmul.py), 40 minutes). $C_{ij} = \sum_k A_{ik} B_{kj}$, a tile for each program.

# %%
check("ex09_matmul")

# %% [markdown]
# ## Sources
#
# Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · [Triton's tutorials](https://triton-lang.org/main/getting-started/tutorials/) · NVIDIA, [CUDA C++ Best Practices Guide](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/), memory optimizations · NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/)
#
# **Next:** [10 · The forward kernel in Triton](10_triton_forward.ipynb) puts it together: two `tl.dot`s, and the online softmax between them. It needs chapter 06.
