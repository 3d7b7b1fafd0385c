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
# **You will be able to** find any element of a tensor from a pointer and strides; write Triton kernels for vectors, tiles, row softmax and a matrix product; see every address that your kernel touches; and tell a coalesced access from a scattered one.
#
# **You need** chapters 02 and 04 · **core:** sitting 1, 45 minutes, and sitting 2, 40 minutes · **further:** sittings 3 to 6, 30 to 40 minutes each · **runs on** CPU or GPU; Triton, so Linux
#
# Without a GPU, Triton's interpreter runs your kernels on the CPU. Times on a GPU are then recorded ones.

# %%
import flashlab  # first: it tells Triton whether to compile or to interpret
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import torch
import triton
import triton.language as tl

from flashlab.memory import Memory
from flashlab.triton_mode import interpreted, kernel_device
from flashlab_course import figures
from flashlab_course.bench import numbers, pick
from flashlab_course.check import check
from flashlab_course.lesson import compare, replay, reveal
from flashlab_course.lesson.accesses import result_of, touched, touched_by
from flashlab_course.player import play, record_kernel

torch.manual_seed(0)
device = kernel_device()

# %% [markdown]
# ## Sitting 1 (core) · Addresses, blocks and masks
#
# ### Where an element lies
#
# A kernel gets the address of a tensor's first element. Memory is one long line. A tensor's **strides** say how many elements to step over for the next row and for the next column. So element $(i, j)$ lies at `pointer + i * stride_0 + j * stride_1`.
#
# **Predict.** `T` holds 0 to 11 in 3 rows of 4. At which address, counted in elements, lies `T[2, 1]`? Which strides has `T.T`, which uses the same memory?

# %%
T = torch.arange(12).view(3, 4)
my_layout = {"address of T[2, 1]": None, "strides of T.T": None}     # a number; (for the next row, for the next column)

# %%
compare("where elements lie", my_layout,
        {"address of T[2, 1]": 2 * T.stride(0) + 1 * T.stride(1), "strides of T.T": T.T.stride()})
figures.matrices({"T": T, "T.T": T.T, "T[:, 1:3]": T[:, 1:3]},
                 "Three tensors, one memory: only the strides and the start differ",
                 "Definition: T holds 0 to 11, so each number is its own address, counted in elements.")

# %% [markdown]
# Transposing swaps two strides. Slicing moves the start. Neither copies a number, and a kernel that takes strides can use the result directly.
#
# ### A program works on a block
#
# A CUDA thread computes one element. A Triton **program** computes a block of elements. A launch starts a **grid** of programs that all run the same code; `tl.program_id(0)` is the number of a program. `tl.arange(0, B)` is a block of $B$ numbers, where $B$ is a power of two. A pointer plus a block of numbers is a block of pointers. This kernel copies a vector:

# %%
@triton.jit
def copy_kernel(X, Out, B: tl.constexpr):                   # X and Out: pointers
    # constexpr: known while compiling, as block sizes must be
    i = tl.program_id(0) * B + tl.arange(0, B)              # (B,)  the numbers of my elements
    tl.store(Out + i, tl.load(X + i))

# %% [markdown]
# **Predict.** A vector of 10 is copied in blocks of 4. In the same piece of memory, right behind `Out`, lie six zeros that belong to somebody else. How many programs does the copy take? How many of the six zeros are still 0 afterwards?

# %%
my_copy = {"programs": None, "zeros left": None}

# %%
memory = torch.zeros(2, 16, device=device)
memory[0] = torch.arange(1, 17)                             # X, and behind it somebody's 11 to 16
X, Out = memory[0, :10], memory[1, :10]
grid = (triton.cdiv(10, 4),)                                # rounded up; a grid is a tuple
copy_kernel[grid](X, Out, 4)
print("Out:", Out.tolist(), "\nbehind it:", memory[1, 10:].tolist())
compare("a copy of 10 in blocks of 4", my_copy, {"programs": grid[0], "zeros left": int((memory[1, 10:] == 0).sum())})
figures.vector_accesses({"copy_kernel": touched(lambda: copy_kernel[grid](X, Out, 4))})

# %% [markdown]
# `Out` is right and there was no error, yet the last program wrote past the end. (`touched` keeps every address of a launch.)
#
# The cure is a **mask**, a block of booleans. `tl.load(pointers, mask)` and `tl.store(pointers, values, mask)` touch only the elements where the mask is true. What a load gets for the others is undefined.
#
# **Your turn** ([exercises/ex09_vector_add.py](../exercises/ex09_vector_add.py), 20 minutes). Compute $aX + Y$: grid, block, mask.

# %%
check("ex09_vector_add")

# %% [markdown]
# Compare a finished kernel's addresses with yours. Run it again while you work.

# %%
from flashlab_course.gpu import vector_add as vectors

N, B = 10, 4
x, y, out = torch.randn(N, device=device), torch.randn(N, device=device), torch.empty(N, device=device)
figures.vector_accesses({"wanted": touched(lambda: vectors.vector_add(x, y, B=B)),
                         "yours": touched_by("ex09_vector_add", 2.0, x, y, out, B)})

# %%
reveal("ex09_vector_add")

# %% [markdown]
# **Takeaway.** Every load and store of a block that may reach past the end needs a mask. A right result does not prove that there is one.
#
# ### Tiles
#
# A column of row numbers plus a row of column numbers gives a tile of addresses, by broadcasting as in PyTorch.
#
# **Your turn** ([exercises/ex09_tile_offsets.py](../exercises/ex09_tile_offsets.py), 10 minutes). Compute all offsets of tile $(i, j)$, and which of its elements exist. You write PyTorch; a kernel has the same lines.

# %%
check("ex09_tile_offsets")

# %%
reveal("ex09_tile_offsets")

# %% [markdown]
# **Predict.** A $5 \times 7$ matrix is cut into tiles of $2 \times 4$. Tile $(1, 1)$ covers rows 2 and 3, and columns 4 to 7; column 7 does not exist. Without a mask, how many elements of *other* tiles would a store of this tile overwrite?

# %%
my_overwritten = None

# %%
W = torch.arange(35).view(5, 7)
column_7 = {row * 7 + 7 for row in (2, 3)}                  # the addresses of the two places that do not exist
compare("elements overwritten by tile (1, 1)", my_overwritten, len(column_7 & set(W.flatten().tolist())))
figures.tile_addresses({"W": (W, (2, 2), (4, 4))})

# %% [markdown]
# Such a store stays inside the tensor: no tool for stray addresses finds it.
#
# A kernel computes a tile's addresses once for each matrix. Strides come in as arguments, so that any matrix will do, transposed or sliced. This kernel doubles a matrix and stores it transposed, because it gets `Out`'s strides in the other order:

# %%
@triton.jit
def double_kernel(X, Out, stride_Xm, stride_Xn, stride_Om, stride_On, M, N,
                  B_m: tl.constexpr, B_n: tl.constexpr):
    rows = tl.program_id(0) * B_m + tl.arange(0, B_m)       # (B_m,)
    cols = tl.program_id(1) * B_n + tl.arange(0, B_n)       # (B_n,)
    inside = (rows[:, None] < M) & (cols[None, :] < N)      # (B_m, B_n)
    x = tl.load(X + rows[:, None] * stride_Xm + cols[None, :] * stride_Xn, inside)
    tl.store(Out + rows[:, None] * stride_Om + cols[None, :] * stride_On, 2 * x, inside)


X, Out = torch.randn(5, 7, device=device), torch.empty(7, 5, device=device)
double = lambda: double_kernel[(3, 2)](X, Out, *X.stride(), *Out.T.stride(), 5, 7, 2, 4)
double()
print("Out is 2 Xᵀ:", torch.equal(Out, 2 * X.T))
figures.matrix_accesses({"double_kernel": touched(double)})

# %% [markdown]
# Step through it. Each program loads its tile of `X` and stores it, turned.

# %%
play(record_kernel(double)) if interpreted() else print("Kernels are compiled here. Set TRITON_INTERPRET=1 to see the player.")

# %% [markdown]
# **Change this and run again**: pass `*Out.stride()` for `*Out.T.stride()`. What does the picture show?
#
# <details><summary><b>Why?</b> (after the run)</summary>
#
# Columns 5 and 6 of `X` land at the start of `Out`'s next row, where another tile is stored. The last places of `Out` stay empty.
#
# </details>
#
# **Takeaway.** A kernel takes one stride for each dimension of each tensor. A tile's mask has two edges.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · Softmax of a row, fused
#
# ### Five operations
#
# Written out in PyTorch, softmax is five kernels: maximum, subtract, exp, sum, divide. (`torch.softmax` is one.) Each kernel reads its inputs from HBM and writes its result there.
#
# **Predict** how many times a $512 \times 1024$ matrix crosses between HBM and the chip in the five kernels, and in one kernel that holds a whole row on chip. (Row maxima and sums hardly count.)

# %%
my_crossings = {"five kernels": None, "one kernel": None}

# %%
X = torch.randn(512, 1024)
with Memory() as mem:
    E = torch.exp(X - X.amax(1, keepdim=True))
    Y = E / E.sum(1, keepdim=True)
crossings = round((mem.read + mem.written) / X.nbytes, 2)
compare("crossings of a softmax", my_crossings)
figures.traffic_by_op(mem)

# %% [markdown]
# ### The padding of a row
#
# One program can load a row once, do everything on chip and store it once. Blocks have power-of-two sizes, so the row is padded. The third argument of `tl.load`, `other`, says what a masked-off element gets. This kernel computes the *largest* number of each row:

# %%
@triton.jit
def row_max_kernel(X, Out, stride_Xm, N, B: tl.constexpr, other: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, B)                                  # (B,)  B >= N: the whole row
    x = tl.load(X + row * stride_Xm + cols, cols < N, other)
    tl.store(Out + row, tl.max(x, 0))                       # reduced over axis 0, the only one: a scalar

# %% [markdown]
# **Predict.** There are 20 rows of numbers between −2 and −1, blocks of 128, and `other = 0.0`. How many of the 20 maxima are wrong if a row has 100 numbers? And if it has 128?

# %%
my_wrong = {100: None, 128: None}     # wrong maxima, of 20

# %%
wrong = {}
for N in (100, 128):
    X, Out = -1 - torch.rand(20, N, device=device), torch.empty(20, device=device)
    row_max_kernel[(20,)](X, Out, X.stride(0), N, 128, 0.0)
    wrong[N] = int((Out != X.amax(1)).sum())
print(wrong)
compare("wrong row maxima, by length", my_wrong, wrong)

# %% [markdown]
# A test with 128 columns would not have shown the mistake, nor one with positive numbers. **Change this and run again**: which `other` is never the largest?
#
# | PyTorch | Triton |
# |---|---|
# | `x.exp()`, `x.sum(0)` | `tl.exp(x)`, `tl.sum(x, 0)` |
# | `x.float()`, `x.long()` | `x.to(tl.float32)`, `x.to(tl.int64)` |
# | `torch.zeros(m, n)` | `tl.zeros((m, n), tl.float32)` |
# | a power of two $\ge N$, in Python | `triton.next_power_of_2(N)` |
#
# **Your turn** ([exercises/ex09_row_softmax.py](../exercises/ex09_row_softmax.py), 25 minutes). One `other` has to serve the maximum *and* the sum of exponentials.

# %%
check("ex09_row_softmax")

# %% [markdown]
# Each element should be loaded once and stored once.

# %%
from flashlab_course.gpu import row_softmax as softmaxes

X, Y = torch.randn(5, 11, device=device), torch.empty(5, 11, device=device)
figures.matrix_accesses({"wanted": touched(lambda: softmaxes.row_softmax(X, B_m=1)), "yours": touched_by("ex09_row_softmax", X, Y)})

# %%
reveal("ex09_row_softmax")

# %% [markdown]
# ### How fast is it?
#
# The package's kernel moves a matrix across HBM as often as a plain copy does. **Predict** its speed on a GPU in percent of a copy's, at 4096 columns of float16, and that of the five kernels.

# %%
my_percent = {"kernel": None, "eager": None}     # "eager": the five kernels

# %%
rows, words = numbers("softmax", needs=[{"by": by, "dtype": "float16", "N": 4096} for by in ("kernel", "copy")])
speeds = {name: {row["N"]: row["ms"] for row in pick(rows, by=by, dtype="float16")} for name, by in
          {"copy": "copy", "one program a row": "kernel", "torch.softmax": "torch", "five kernels": "eager"}.items()}
copy = speeds.pop("copy")
shares = {name: {N: 100 * copy[N] / took for N, took in sorted(line.items()) if N in copy} for name, line in speeds.items()}
truth = {"kernel": shares["one program a row"][4096], "eager": shares["five kernels"].get(4096)}
compare("softmax in percent of a copy's speed", my_percent, truth, "%")
figures.curves(shares, f"The fused softmax runs at {min(shares['one program a row'].values()):.0f} % of a copy's speed or more", words,
               "columns N, float16", "% of a copy's speed", log="x", ticks=[256, 1024, 4096, 16384], ylim=(0, 115), ceilings={"a copy": 100})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The five kernels move {{crossings / 2:.0f}} times a copy's bytes, so {{200 / crossings:.0f}} % is their limit. They reach {{shares["five kernels"][4096]:.0f}} %: they also move fewer bytes a second.
#
# </details>
#
# **Takeaway.** Traffic sets a speed limit. One kernel instead of five raises it {{crossings / 2:.0f}} times. Reaching it is another matter: `torch.softmax` moves as few bytes as ours, at {{min(shares["torch.softmax"].values()):.0f}} to {{max(shares["torch.softmax"].values()):.0f}} % of a copy's speed.
#
# *End of sitting 2 and of the core. You can go on to [chapter 10](10_triton_forward.ipynb).*
#
# ## Sitting 3 (further) · Views and grids (30 minutes)
#
# ### Strides of a view
#
# **Your turn** ([exercises/ex09_view_strides.py](../exercises/ex09_view_strides.py), 20 minutes). Permute a tensor, then slice it: what are the new shape, strides and offset?

# %%
check("ex09_view_strides")

# %%
reveal("ex09_view_strides")

# %% [markdown]
# A reshape is free only if strides can describe the result. Read row by row, `T.T` lies at 0, 4, 8, 1, ...: no stride describes that, so `T.T.view(12)` fails and `T.T.reshape(12)` copies.
#
# ### One number for a program
#
# `double_kernel` had a grid of two axes. Large kernels often use one, because only the first axis is long: it takes $2^{31} - 1$ programs, the other two 65,535 each. And programs start roughly in the order of their numbers, so the kernel decides which tiles are made at the same time.

# %%
@triton.jit
def who_kernel(Out, T_m, T_n):
    program = tl.program_id(0)
    i, j = program // T_n, program % T_n                    # along the rows of tiles
    tl.store(Out + i * T_n + j, program)


T_m, T_n = 4, 6
order = torch.empty(T_m, T_n, dtype=torch.int32, device=device)
figures.matrix_accesses({"who_kernel": touched(lambda: who_kernel[(T_m * T_n,)](order, T_m, T_n))})

# %% [markdown]
# **Change this and run again**: change one line, so that program 1 makes the tile *below* that of program 0, and every tile is still made once. (Orange: two programs made the same tile. White: no program made it.)
#
# **Takeaway.** Put batch times heads on the first axis, and find the tile by integer division.
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · Coalescing (30 minutes)
#
# ### Sectors of a load
#
# Memory moves in **sectors** of 32 bytes. A warp's 32 lanes load 32 float32 numbers, 128 bytes.
#
# **Predict** how many sectors such a load moves if neighboring lanes go along a row of a large matrix, and if they go down a column.

# %%
my_sectors = {"along a row": None, "down a column": None}

# %% [markdown]
# **Run and compare.** A column of the picture is a sector, a number in it is the lane that uses these 4 bytes.

# %%
from flashlab_course.gpu import simt
from flashlab_course.gpu.simt import launch

A, B_, C = (torch.zeros(64, 64) for _ in range(3))
traces = {"along a row": launch(simt.matrix_add, (2, 64), (32, 1))(A, B_, C, 64, 64),
          "down a column": launch(simt.matrix_add_down_columns, (2, 64), (32, 1))(A, B_, C, 64, 64)}
counts = {name: trace.sectors("load") for name, trace in traces.items()}
compare("sectors of a load", my_sectors, {name: moved // loads for name, (moved, loads) in counts.items()})
found = {}
for name, trace in traces.items():
    offsets = next(one.offsets for step in trace.warp(0, 0) for one in step.accesses)     # of the first load, one a lane
    sectors = sorted({offset // 32 for offset in offsets})
    lanes = {(offset // 4 % 8, sectors.index(offset // 32)): lane for lane, offset in enumerate(offsets)}
    texts = [[lanes.get((row, column), "") for column in range(len(sectors))] for row in range(8)]
    found[f"{name}: {len(sectors)}"] = [[text != "" for text in row] for row in texts], texts
figures.matrices(found, "The same 32 numbers, packed or spread over sectors", "Modelled here: the first load of warp 0. Pale: moved, unused.",
                 "sector", "number in it")

# %% [markdown]
# Along a row, lanes share sectors: the access is **coalesced**. Down a column, each lane fetches a sector of its own and uses 4 of its 32 bytes.
#
# **Your turn** ([exercises/ex09_uncoalesced.py](../exercises/ex09_uncoalesced.py), 15 minutes). Lanes may also skip elements, go backwards, or share one. Count the sectors, and say whether the access is coalesced.

# %%
check("ex09_uncoalesced")

# %%
reveal("ex09_uncoalesced")

# %% [markdown]
# ### What a scattered load costs
#
# A GPU adds two views that use only every `stride`-th column of a matrix. The number of elements stays the same. **Predict** the time at each stride, with stride 1 as 1. Your function is drawn as stars.

# %%
my_slowdown = None     # a function, e.g. lambda stride: ...

# %%
both = [{"by": "CUDA C++", "access": "along rows"}, {"by": "CUDA C++", "access": "down columns"}]
rows, words = numbers("coalescing", needs=both)
times = {row["stride"]: row["ms"] for row in pick(rows, access="strided")}
said = compare("slowdown by stride", my_slowdown, {stride: ms / times[1] for stride, ms in times.items()})
mine = {stride: result_of("ex09_uncoalesced", 0, stride, 4) for stride in times}
counted = {stride: found[0] for stride, found in mine.items() if isinstance(found, tuple) and isinstance(found[0], int)}
lines = {"time": {stride: ms / times[1] for stride, ms in times.items()}}
if counted.get(1):
    lines["your sectors"] = {stride: count / counted[1] for stride, count in counted.items()}
said.on(figures.curves(lines, f"The same number of elements takes {times[8] / times[1]:.1f} times as long at stride 8", words,
                       "stride, in elements of 4 bytes", "times as long as stride 1", log="xy"))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Up to stride 8 the time follows the sectors. From there on, each of the 32 lanes has a sector of its own and no more sectors can be fetched. Yet the time doubles once more; the open question at the end is about that.
#
# </details>
#
# In CUDA you choose which lane takes which element. In Triton the compiler chooses, for each load separately, from what it knows about the strides; a stride of 1 is compiled in. PyTorch's addition picks one order for both operands. So $X + Y^\top$ against $X + Y$:

# %%
makers = ("PyTorch", "Triton")
plain, turned = ({by: pick(rows, by=by, access=access)[0] for by in makers} for access in ("both row-major", "one transposed"))
slower = {by: turned[by]["ms"] / plain[by]["ms"] for by in makers}
speeds = {f"{by}, {what}": found[by]["tb_s"] for by in makers for what, found in (("X + Y", plain), ("X + Yᵀ", turned))}
figures.bars(speeds, f"A transposed operand costs PyTorch {slower['PyTorch']:.1f} times the time, Triton {slower['Triton']:.2f} times",
             words, "TB/s of useful bytes", worse=("PyTorch, X + Yᵀ",))

# %% [markdown]
# **Takeaway.** Neighboring lanes should use neighboring addresses. In Triton the compiler sees to it, if one stride is 1 and the compiler knows that.
#
# *End of sitting 4. To continue later, run the notebook from the top.*
#
# ## Sitting 5 (further) · A matrix product (40 minutes)
#
# One program makes one tile of $C = AB$. It goes along a strip of $A$ and down a strip of $B$, and adds up the products of their tiles. Here chapter 04's product makes four such tiles, one after the other:

# %%
from flashlab.rungs.block_matmul import block_matmul
from flashlab_course.player import record

play(record(block_matmul, torch.randn(8, 12), torch.randn(12, 8), B_m=4, B_n=4, B_k=4, sram_bytes=1024))

# %% [markdown]
# In Triton, `tl.dot(a, b, acc)` multiplies two tiles and adds the result to `acc`. The kernel below shows a loop.
#
# **Predict.** $A$ is $80 \times 48$, $B$ is $48 \times 112$, and tiles are $16 \times 16$. How many programs are there, and how often is each element of $A$ and of $B$ loaded?

# %%
@triton.jit
def row_sum_kernel(X, Out, N, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for k in range(0, tl.cdiv(N, B)):
        cols = k * B + tl.arange(0, B)                      # (B,)  the last step may be short
        total += tl.load(X + tl.program_id(0) * N + cols, cols < N, 0.0)
    tl.store(Out + tl.program_id(0), tl.sum(total, 0))


X, Out = torch.ones(3, 10, device=device), torch.empty(3, device=device)
row_sum_kernel[(3,)](X, Out, 10, 4)
print("three rows of 10 ones:", Out.tolist())
my_product = {"programs": None, "loads of A": None, "loads of B": None}

# %% [markdown]
# **Your turn** ([exercises/ex09_matmul.py](../exercises/ex09_matmul.py), 30 minutes). $C = AB$, one program for each tile, any sizes and strides. The sums are float32 whatever the inputs.

# %%
check("ex09_matmul")

# %% [markdown]
# **Run and compare.** More loads than wanted: does the loop load a tile twice? Uneven: is a mask or a grid off?

# %%
from flashlab_course.gpu import matmul as matmuls

A, B, C = torch.randn(80, 48, device=device), torch.randn(48, 112, device=device), torch.empty(80, 112, device=device)
compare("a product in tiles of 16", my_product)
figures.times_touched({"wanted": touched(lambda: matmuls.matmul(A, B, B_m=16, B_n=16, B_k=16)),
                       "yours": touched_by("ex09_matmul", A, B, C, 16, 16, 16)})

# %%
replay("ex09_matmul")

# %%
reveal("ex09_matmul")

# %% [markdown]
# **Takeaway.** One program makes one tile of $C$. Its sums stay on chip for the whole loop. Every tile column of $C$ loads all of $A$, and every tile row all of $B$.
#
# *End of sitting 5. To continue later, run the notebook from the top.*
#
# ## Sitting 6 (further) · Precision, times, and the lint (30 minutes)
#
# ### Sums in float32
#
# A float16 number has 11 significant bits. **Predict.** Start at 0 in float16 and add 1, 4096 times. What is the sum?

# %%
my_sum = None

# %%
sums = {"float16": [], "float32": []}                       # change me
for name, values in sums.items():
    total = torch.zeros((), dtype=getattr(torch, name))
    for _ in range(4096):
        total += 1
        values.append(total.item())
said = compare("4096 ones in float16", my_sum, sums["float16"][-1])
said.on(figures.curves({name: dict(enumerate(values, 1)) for name, values in sums.items()},
                       f"float16 stops at {sums['float16'][-1]:,.0f}, where its numbers are 2 apart",
                       "Measured here: one addition after the other.", "how many times 1 was added", "sum"), x=4096)

# %% [markdown]
# Adding 1 gives a number half-way between two float16 numbers, and rounding goes back. **Change this and run again**: where does `"bfloat16"` stop, with its 8 bits?
#
# `tl.dot` takes 16-bit operands and adds in float32. Both operands must have one type. On chip, results are float32 and tiles of $V$ are float16, so one of them must be cast. Casting down, `p.to(v.dtype)`, uses the tensor cores:

# %%
rows, words = numbers("precision", needs=[{"by": "kernel", "precision": name} for name in ("float16 inputs", "ieee")])
found = {row["precision"]: row["tflops"] for row in pick(rows, by="kernel")}
tflops = {name: found[name] for name in ("float16 inputs", "ieee")}
figures.bars(tflops, f"float16 operands are {tflops['float16 inputs'] / tflops['ieee']:.0f} times as fast as float32 ones", words, "TFLOP/s",
             worse=("ieee",))

# %% [markdown]
# **Takeaway.** Inputs may have 16 bits. Sums have 32.
#
# ### What a time means
#
# A launch returns at once; the GPU works later. The first launch compiles. A second run finds its inputs in the L2 cache. So one softmax of 32 MiB has five times:

# %%
clocks, clock_words = numbers("timing_ways", name="basics_h200")
ms = {row["how"]: row["ms"] for row in clocks}
figures.bars(ms, f"One kernel, {min(ms.values()):.3f} to {max(ms.values()):,.0f} ms, depending on how it is timed", clock_words,
             "ms", log=True, worse=tuple(how for how in ms if how != "do_bench, L2 cleared"))

# %% [markdown]
# Without `synchronize`, Python's clock times only the launch. `triton.testing.do_bench(f)` warms up, clears L2 before each run, and uses the GPU's own events; `quantiles=[0.5, 0.2, 0.8]` gives the median and the spread.
#
# **Takeaway.** Warm up, use the GPU's clock, decide what the cache may hold, and give a median with its spread.
#
# ### Will it run on a GPU?
#
# The interpreter accepts what a GPU refuses or computes differently:
#
# | | interpreter | H100 |
# |---|---|---|
# | numbers that one step of `tl.dot` sums over | any | at least 16 |
# | `tl.dot` of float32, unless `input_precision="ieee"` | 23 bits of mantissa | TF32, 10 bits |
# | operands of `tl.dot` in shared memory | any size | 227 KiB at most |
#
# **Predict.** A kernel multiplies $A$ ($D \times K$) by $B$ ($K \times D$), in one `tl.dot`. What happens on an H100 to each of three launches: `"nothing"`, `"fails"` or `"differs"`?

# %%
@triton.jit
def product_kernel(A, B, C, D: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, D), tl.arange(0, K)
    tl.store(C + i[:, None] * D + i, tl.dot(tl.load(A + i[:, None] * K + k), tl.load(B + k[:, None] * D + i)))


my_verdicts = {"float16, D = 64, K = 8": None, "float32, D = 64, K = 64": None, "float16, D = 128, K = 512": None}

# %% [markdown]
# **Run and compare.** `lint_kernel` compiles for an H100, without a GPU. Where kernels are interpreted it also checks every address against the tensors.

# %%
from flashlab_course.compiler import lint

findings = {}
for dtype, D, K in ((torch.float16, 64, 8), (torch.float32, 64, 64), (torch.float16, 128, 512)):
    A, B, C = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((D, K), (K, D), (D, D)))
    findings[f"{str(dtype)[6:]}, D = {D}, K = {K}"] = lint.lint_kernel(product_kernel, {"A": A, "B": B, "C": C.float(), "D": D, "K": K})
compare("what the lint says", my_verdicts, {case: found[0].level if found else "nothing" for case, found in findings.items()})
for case, found in findings.items():
    print(f"{case}\n{lint.as_text(found)}\n")

# %% [markdown]
# **Change this and run again**: add one argument to `tl.dot`, so that the lint has nothing to say about the second launch.
#
# **Takeaway.** If a kernel passes in the interpreter, its algorithm is right on these inputs. Stray addresses pass silently there, and races cannot show, because programs run one after the other.
#
# ### An open question
#
# In sitting 4, a load moves 32 sectors at stride 8 and at stride 16, and the time still doubles; from 16 to 32 it stays. Which part of the machine could work in pieces of 64 bytes? Which counters would you read?
#
# ## Sources
#
# Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · [Triton's tutorials](https://triton-lang.org/main/getting-started/tutorials/) and [`do_bench`](https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/) (grid limits) and [Best Practices Guide](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/) (memory) · IEEE 754 (float16)
#
# **Next:** [10 · The forward kernel in Triton](10_triton_forward.ipynb) combines two `tl.dot`s with the online softmax between them. It needs chapter 06. What the compiler makes of your kernels is [appendix 09b](09b_what_the_compiler_made.ipynb).
