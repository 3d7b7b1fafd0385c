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
# **You will be able to** find any element of any tensor from a pointer and its strides; write Triton kernels for vectors, tiles, row softmax and a matrix product; see every address that your kernel touches; and tell a coalesced access from a scattered one.
#
# **You need** chapters 02 and 04. · **two sittings, 3½ hours in all**, 2½ of them for six exercises; the break is marked · **runs on** CPU or GPU; Triton, so Linux
#
# Each exercise stands where its idea arises, and a picture shows what *your* kernel loads and stores. Without a GPU Triton's interpreter runs the kernels on the CPU; times on a GPU are then recorded ones. What the compiler makes of a kernel is [appendix 09b](09b_what_the_compiler_made.ipynb).

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

from flashlab.triton_mode import kernel_device
from flashlab_course import figures
from flashlab_course.lesson.accesses import result_of, touched, touched_by
from flashlab_course.bench import numbers, pick
from flashlab_course.check import check
from flashlab_course.lesson import compare, replay, reveal

torch.manual_seed(0)
device = kernel_device()

# %% [markdown]
# ## Where an element lies
#
# A kernel gets no tensor, only the address of its first element. Everything else is arithmetic: memory is one long line, and a tensor's **strides** say how many elements to step over for the next row and the next column. `T` holds 0 to 11 in 3 rows of 4. **Predict**: at which address, counted in elements, lies `T[2, 1]`? What are the strides of `T.T`?

# %%
T = torch.arange(12).view(3, 4)
my_address = None     # a number
my_strides = None     # (for the next row, for the next column)

# %%
compare("address of T[2, 1]", my_address, 2 * T.stride(0) + 1 * T.stride(1))
compare("strides of T.T", my_strides, T.T.stride())
figures.matrices({"T": T, "T.T": T.T, "T[:, 1:3]": T[:, 1:3]}, "Three tensors, one memory: only the strides and the start differ",
                 "Definition: T holds 0 to 11, so each number is its own address, counted in elements.")

# %% [markdown]
# **Compare.** Transposing swaps two strides, slicing moves the start. No number is moved or copied, which is why both are free in PyTorch, and why kernels take strides.
#
# A reshape is free only if strides can describe the result. **Predict** for each of three: `"free"`, `"copies"` or `"fails"`.

# %%
my_guess = {"T.view(4, 3)": None, "T.T.view(12)": None, "T.T.reshape(12)": None}

# %%
def price(code):
    try:
        return "free" if eval(code).data_ptr() == T.data_ptr() else "copies"
    except RuntimeError:
        return "fails"


compare("what a reshape costs", my_guess, {code: price(code) for code in ("T.view(4, 3)", "T.T.view(12)", "T.T.reshape(12)")})
walks = {name: dict(enumerate(view.flatten().tolist())) for name, view in {"T": T, "T.T": T.T}.items()}
figures.curves(walks, "One stride describes T; none describes T.T, read row by row", "Definition: T's numbers are their own addresses.",
               "element, row by row", "address, in elements")

# %% [markdown]
# **Compare.** Read row by row, `T.T` jumps back and forth in memory. `view` refuses, since no single stride makes that line; `reshape` copies the elements into a new one.
#
# **Exercise: strides of a view** ([exercises/ex09_view_strides.py](../exercises/ex09_view_strides.py), 20 minutes). Permute, then slice: what are the new shape, strides and offset?

# %%
check("ex09_view_strides")

# %%
reveal("ex09_view_strides")

# %% [markdown]
# **Takeaway.** A tensor is a pointer, a shape and strides; element $(i, j)$ lies at `pointer + i·stride_0 + j·stride_1`. A tensor need not be contiguous as long as the kernel takes its strides.

# %% [markdown]
# ## A program works on a block
#
# A CUDA thread takes one element. A Triton **program** takes a block of them. A launch starts a **grid** of programs that all run the same code; `tl.program_id(0)` is a program's number. `tl.arange(0, B)` is a block of $B$ numbers, and a pointer plus such a block is a block of pointers. This kernel copies a vector:

# %%
@triton.jit
def copy_kernel(X, Out, B: tl.constexpr):                   # X and Out: pointers. constexpr: known while compiling, as block sizes must be
    i = tl.program_id(0) * B + tl.arange(0, B)              # (B,)  the numbers of my elements
    tl.store(Out + i, tl.load(X + i))

# %% [markdown]
# A vector of 10 is copied in blocks of 4. Behind `Out`, in the same piece of memory, lie six zeros that belong to somebody else. **Predict**: how many programs does it take, and how many of the six zeros survive?

# %%
my_programs, my_survivors = None, None

# %%
memory = torch.zeros(2, 16, device=device)
memory[0] = torch.arange(1, 17)                             # X, and behind it somebody's 11 to 16
X, Out = memory[0, :10], memory[1, :10]
grid = (triton.cdiv(10, 4),)                                # rounded up; a grid is a tuple
copy_kernel[grid](X, Out, 4)
print("Out:", Out.tolist(), "\nbehind it:", memory[1, 10:].tolist())
compare("programs for 10 elements in blocks of 4", my_programs, grid[0])
compare("zeros that survive the copy", my_survivors, int((memory[1, 10:] == 0).sum()))

# %% [markdown]
# `Out` is right, and there was no error. `touched` watches a launch and keeps the address of every load and store. What did each of the three programs touch?

# %%
figures.vector_accesses({"copy_kernel": touched(lambda: copy_kernel[grid](X, Out, 4))})

# %% [markdown]
# **Compare.** The last program sticks out. Triton's interpreter does not notice, and a GPU rarely does. From now on `flashlab_course.compiler.lint` does: it holds every address against the tensors, and says what else a GPU would do differently.

# %%
from flashlab_course.compiler import lint

print(lint.as_text(lint.lint_kernel(copy_kernel, {"X": X, "Out": Out, "B": 4}, grid=grid)))

# %% [markdown]
# The cure is a **mask**, chapter 02's guard for a block at a time. `tl.load(pointers, mask)` and `tl.store(pointers, values, mask)` touch only the elements where the block of booleans is true.
#
# **Exercise: a first kernel** ([exercises/ex09_vector_add.py](../exercises/ex09_vector_add.py), 20 minutes). $aX + Y$: the grid, the block, the mask.

# %%
check("ex09_vector_add")

# %% [markdown]
# Your kernel's addresses, right or wrong, under those of a finished one. Run this cell again while you work on the exercise, also with other sizes: `B = 8`, or 8 elements.

# %%
from flashlab_course.gpu import vector_add as vectors

N, B = 10, 4
x, y, out = torch.randn(N, device=device), torch.randn(N, device=device), torch.empty(N, device=device)
figures.vector_accesses({"wanted": touched(lambda: vectors.vector_add(x, y, B=B)),
                         "yours": touched_by("ex09_vector_add", 2.0, x, y, out, B)})

# %%
reveal("ex09_vector_add")

# %% [markdown]
# **Takeaway.** Every load and every store of a block that may stick out needs a mask, and a result that looks right does not prove that there is one.

# %% [markdown]
# ## Tiles
#
# A tile of a matrix is a column of row numbers and a row of column numbers; broadcasting turns them into a block of pointers, as in PyTorch. **Predict** the four addresses of rows 1–2 and columns 2–3 of `T`, row by row; and those of rows 1–2 and columns 1–2 of `T.T`, which has 4 rows and 3 columns.

# %%
my_tile = {"of T": None, "of T.T": None}     # lists of four numbers

# %%
tiles = {"of T": T[1:3, 2:4], "of T.T": T.T[1:3, 1:3]}       # T holds 0 to 11: each of its numbers is its own address
compare("addresses of a tile", my_tile, {name: tile.flatten().tolist() for name, tile in tiles.items()})
figures.tile_addresses({"T": (T, (1, 2), (2, 2)), "T.T": (T.T, (1, 2), (1, 2))})

# %% [markdown]
# **Exercise: a tile's addresses** ([exercises/ex09_tile_offsets.py](../exercises/ex09_tile_offsets.py), 15 minutes). All offsets of tile $(i, j)$, and which of its elements exist. In PyTorch; a kernel has the same lines.

# %%
check("ex09_tile_offsets")

# %% [markdown]
# Here is a $5 \times 7$ matrix, in tiles of $2 \times 4$. Tile $(1, 1)$ sticks out on the right by two places. **Predict**: without a mask, how many elements of *other* tiles would a store of tile $(1, 1)$ overwrite?

# %%
my_overwritten = None

# %%
W = torch.arange(35).view(5, 7)
column_7 = {row * 7 + 7 for row in (2, 3)}                  # where the two places that stick out would lie
compare("elements overwritten by tile (1, 1)", my_overwritten, len(column_7 & set(W.flatten().tolist())))
figures.tile_addresses({"W": (W, (2, 2), (4, 4))})

# %% [markdown]
# **Compare.** What lies right of the last column is the first column, one row further down. Such a store stays inside the tensor, so no tool that looks for stray addresses can find it: only the other tiles' results are wrong, or right, if they come later.

# %%
reveal("ex09_tile_offsets")

# %% [markdown]
# A kernel has these lines once for each matrix. Strides come in as arguments, so that any matrix will do, transposed or sliced. This one doubles a matrix and stores it transposed, simply by taking `Out`'s strides in the other order:

# %%
@triton.jit
def double_kernel(X, Out, stride_Xm, stride_Xn, stride_Om, stride_On, M, N, B_m: tl.constexpr, B_n: tl.constexpr):
    rows = tl.program_id(0) * B_m + tl.arange(0, B_m)       # (B_m,)
    cols = tl.program_id(1) * B_n + tl.arange(0, B_n)       # (B_n,)
    inside = (rows[:, None] < M) & (cols < N)               # (B_m, B_n)
    x = tl.load(X + rows[:, None] * stride_Xm + cols * stride_Xn, inside)
    tl.store(Out + rows[:, None] * stride_Om + cols * stride_On, 2 * x, inside)


X, Out = torch.randn(5, 7, device=device), torch.empty(7, 5, device=device)
double = lambda: double_kernel[(3, 2)](X, Out, *X.stride(), *Out.T.stride(), 5, 7, 2, 4)
double()
print("Out is 2 Xᵀ:", torch.equal(Out, 2 * X.T))
figures.matrix_accesses({"double_kernel": touched(double)})

# %% [markdown]
# **Change this and run again**: pass `*Out.stride()` for `*Out.T.stride()`. What does the picture say before you look at the numbers?
#
# A tile that lies in a few long pieces of `X` lies in many short ones of `Out`. What that costs comes below, under *Coalescing*.
#
# **Takeaway.** One stride for each dimension of each tensor, read off with `.stride()`, never guessed from the shape. A tile's mask has two edges.

# %% [markdown]
# ## One number for a program
#
# The grid above has two axes, the programs of chapter 10 have one number. A grid may have three axes, but only the first is long: it takes $2^{31} - 1$ programs, the others 65,535 each. **Predict**: 4096 sequences of 32 heads, a program for each head and each block of 128 of 2048 queries. Which of these grids launch?

# %%
my_launches = {"(16, 4096 * 32)": None, "(4096 * 32, 16)": None, "(16 * 4096 * 32,)": None}     # True or False

# %%
limits = (2**31 - 1, 65_535, 65_535)                        # CUDA's, for x, y and z
grids = ("(16, 4096 * 32)", "(4096 * 32, 16)", "(16 * 4096 * 32,)")
fits = {text: all(size <= limit for size, limit in zip(eval(text), limits, strict=False)) for text in grids}
compare("grids that launch", my_launches, fits)
print(fits)

# %% [markdown]
# **Compare.** Put batch times heads on the first axis; otherwise everything works until somebody raises the batch size. We tried it on an H200: `(1, 65535)` launches, `(1, 65536)` is an "invalid argument".
#
# One number has a second advantage. Programs start roughly in the order of their numbers, so whoever turns the number into a tile decides which tiles are worked on at the same time.

# %%
@triton.jit
def who_kernel(Out, T_m, T_n):
    program = tl.program_id(0)
    i, j = program // T_n, program % T_n                    # along the rows of tiles
    tl.store(Out + i * T_n + j, program)


T_m, T_n = 4, 6
order = torch.empty(T_m, T_n, dtype=torch.int32, device=device)
who_kernel[(T_m * T_n,)](order, T_m, T_n)
figures.matrix_accesses({"who_kernel": touched(lambda: who_kernel[(T_m * T_n,)](order, T_m, T_n))})

# %% [markdown]
# **Change this and run again**: one line, so that program 1 makes the tile *below* that of program 0, and every tile is still made once. (If the picture turns orange or white, two programs made the same tile.) The appendix finds an order that is better for the L2 cache than both.
#
# **Takeaway.** A grid of one axis, and integer division to find the tile.

# %% [markdown]
# ## Coalescing
#
# The answer does not depend on the order in which lanes visit a matrix. The time does. Memory moves in **sectors** of 32 bytes. A warp's 32 lanes load 32 float32, 128 bytes. **Predict** how many sectors that takes if neighbouring lanes walk along a row of a large matrix, and if they walk down a column.

# %%
my_sectors = {"along a row": None, "down a column": None}

# %% [markdown]
# **Run and compare**, in chapter 02's thread-by-thread interpreter (SIMT: single instruction, multiple threads), which knows the address that each lane asks for.

# %%
from flashlab_course.gpu import simt
from flashlab_course.gpu.simt import launch

A, B_, C = (torch.zeros(64, 64) for _ in range(3))
traces = {"along a row": launch(simt.matrix_add, (2, 64), (32, 1))(A, B_, C, 64, 64),
          "down a column": launch(simt.matrix_add_down_columns, (2, 64), (32, 1))(A, B_, C, 64, 64)}
counts = {name: trace.sectors("load") for name, trace in traces.items()}
compare("sectors of a load", my_sectors, {name: moved // loads for name, (moved, loads) in counts.items()})
figures.sectors_touched(traces, columns=64)

# %% [markdown]
# Along a row lanes share sectors: the access is **coalesced**. Down a column each lane fetches a sector of its own and uses 4 of its 32 bytes.
#
# **Exercise: sectors** ([exercises/ex09_uncoalesced.py](../exercises/ex09_uncoalesced.py), 20 minutes). Lanes may also skip elements, walk backwards, or share one. Count the sectors, and say whether the access is coalesced.

# %%
check("ex09_uncoalesced")

# %% [markdown]
# In a matrix of which only every `stride`-th column is used, two such views are added on a GPU. The number of elements stays the same. **Predict** the time as a function of the stride, with stride 1 as 1. It will be drawn as a star at each stride.

# %%
my_slowdown = None     # a function, e.g. lambda stride: ...

# %%
both = [{"by": "CUDA C++", "access": "along rows"}, {"by": "CUDA C++", "access": "down columns"}]
rows, words = numbers("coalescing", needs=both)
strided = pick(rows, access="strided")
times = {row["stride"]: row["ms"] for row in strided}
said = compare("slowdown by stride", my_slowdown, {stride: ms / times[1] for stride, ms in times.items()})
mine = {stride: result_of("ex09_uncoalesced", 0, stride, 4) for stride in times}
counts = {stride: said[0] for stride, said in mine.items() if isinstance(said, tuple) and isinstance(said[0], int)}
lines = {"time": {stride: ms / times[1] for stride, ms in times.items()}}
if counts.get(1):
    lines["your sectors"] = {stride: count / counts[1] for stride, count in counts.items()}
said.on(figures.curves(lines, f"The same number of elements takes {times[8] / times[1]:.1f} times as long at stride 8", words,
                       "stride, in elements of 4 bytes", "times as long as stride 1", log="xy"))

# %% [markdown]
# **Compare.** Up to stride 8 the time follows the sectors. Then each of the 32 lanes has a sector of its own, there are no more to fetch, and yet the time doubles once more. Keep that for the end of the chapter.
#
# Back to whole matrices: in CUDA, lanes that walk down columns waste 7/8 of each load. **Predict** how many times as long the addition takes, and how many times as many bytes come from DRAM.

# %%
my_ratios = {"time": None, "bytes from DRAM": None}

# %%
counted, _ = numbers("counters", live=False)


def down_over_along(found, number):
    down, along = (pick(found, access=access)[0] for access in ("down columns", "along rows"))
    return number(down) / number(along)


adds = pick(counted, kernel="matrix_add")
ratios = {"sectors loaded": down_over_along(adds, lambda row: row["load_sectors"]),
          "time": down_over_along(pick(rows, by="CUDA C++"), lambda row: row["ms"]),
          "bytes through L2": down_over_along(adds, lambda row: row["l2_bytes"]),
          "bytes from DRAM": down_over_along(adds, lambda row: row["dram_read"])}
compare("down columns over along rows", my_ratios, {name: ratios[name] for name in ("time", "bytes from DRAM")})
figures.bars(ratios, f"Down columns takes {ratios['time']:.1f} times as long, and DRAM does not notice", f"{words} Counters: ncu.",
             "down columns, over along rows", worse=("time",))

# %% [markdown]
# **Compare.** DRAM delivers the same: a sector, once fetched, waits in the L2 cache until the neighbouring columns want it. The traffic between L2 and the SMs grows, and the time with it.
#
# In Triton nobody says which lane takes which element; the compiler does. **Predict** the slowdown of an addition $X + Y^\top$ against $X + Y$: of PyTorch's, and of a Triton kernel that takes strides.

# %%
my_transposed = {"PyTorch": None, "Triton": None}

# %%
makers = ("PyTorch", "Triton")
plain, turned = ({by: pick(rows, by=by, access=access)[0] for by in makers} for access in ("both row-major", "one transposed"))
slower = {by: turned[by]["ms"] / plain[by]["ms"] for by in makers}
compare("slowdown by a transposed operand", my_transposed, slower)
speeds = {f"{by}, {what}": found[by]["tb_s"] for by in makers for what, found in (("X + Y", plain), ("X + Yᵀ", turned))}
figures.bars(speeds, f"A transposed operand costs PyTorch {slower['PyTorch']:.1f} times the time, Triton {slower['Triton']:.2f} times",
             words, "TB/s of useful bytes", worse=("PyTorch, X + Yᵀ",))

# %% [markdown]
# **Compare.** PyTorch picks one order for all operands. Triton picks one for each load, from what it knows about strides: a stride of 1 is compiled in. The appendix shows the lanes.
#
# **Takeaway.** Neighbouring lanes should want neighbouring addresses. In CUDA you see to it; in Triton the compiler does, if one stride is 1 and it can see that.

# %%
reveal("ex09_uncoalesced")

# %% [markdown]
# **Half-way: a good place to stop.** You have read and written memory by blocks and masks. After a break, run this notebook again from the top.
#
# ## Softmax of a row, fused
#
# In eager PyTorch softmax is five kernels: maximum, subtract, exp, sum, divide. Each reads and writes HBM. **Predict** how many times a $512 \times 1024$ matrix crosses between HBM and chip (the row maxima and sums hardly count), and how many times it has to.

# %%
my_crossings = {"five kernels": None, "at least": None}

# %%
from flashlab.memory import Memory

X = torch.randn(512, 1024)
with Memory() as mem:
    E = torch.exp(X - X.amax(1, keepdim=True))
    Y = E / E.sum(1, keepdim=True)
crossings = round((mem.read + mem.written) / X.nbytes, 2)
compare("crossings of a softmax", my_crossings, {"five kernels": crossings, "at least": 2})
figures.traffic_by_op(mem)

# %% [markdown]
# A Triton program can hold a whole row on chip: load it once, do everything there, store it once. Blocks have power-of-two sizes, so the row is padded. A third argument of `tl.load`, `other`, says what a masked-off element holds. Here is a kernel for the *largest* number of each row.

# %%
@triton.jit
def row_max_kernel(X, Out, stride_Xm, N, B: tl.constexpr, other: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, B)                                  # (B,)  B >= N: the whole row
    x = tl.load(X + row * stride_Xm + cols, cols < N, other)
    tl.store(Out + row, tl.max(x, 0))                       # reduced over axis 0, the only one: a scalar

# %% [markdown]
# 20 rows of numbers between −2 and −1, in blocks of 128, with `other = 0.0`. **Predict**: how many of the 20 maxima are wrong if a row has 100 numbers? And if it has 128?

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
# **Compare.** The padding won. A test with 128 columns would not have shown it, nor one with positive numbers. **Change this and run again**: which `other` is never the largest?
#
# **Exercise: row softmax** ([exercises/ex09_row_softmax.py](../exercises/ex09_row_softmax.py), 30 minutes). One `other` has to serve the maximum *and* the sum of exponentials.

# %%
check("ex09_row_softmax")

# %% [markdown]
# Your program's rows, under those of the package's kernel. Each element should be loaded once and stored once, whatever you do in between.

# %%
from flashlab_course.gpu import row_softmax as softmaxes

X, Y = torch.randn(5, 11, device=device), torch.empty(5, 11, device=device)
figures.matrix_accesses({"wanted": touched(lambda: softmaxes.row_softmax(X, B_m=1)), "yours": touched_by("ex09_row_softmax", X, Y)})

# %%
reveal("ex09_row_softmax")

# %% [markdown]
# The package's kernel adds three things: several short rows for each program, more warps for long ones, and `N` as a constant, so that loads are as wide as a row's length allows. **Predict** its speed on an H100, in percent of a plain copy of the matrix, at 4096 columns of float16.

# %%
my_percent = None

# %%
rows, words = numbers("softmax", needs=[{"by": by, "dtype": "float16", "N": 4096} for by in ("kernel", "copy")])
at = {by: pick(rows, by=by, dtype="float16", N=4096)[0]["ms"] for by in ("kernel", "copy")}
said = compare("softmax in percent of a copy's speed", my_percent, 100 * at["copy"] / at["kernel"], "%")
short = {by: {row["N"]: row["ms"] for row in pick(rows, by=by, dtype="float32") if row["N"] <= 1024} for by in ("kernel", "torch")}
ratios = [ms / short["kernel"][N] for N, ms in short["torch"].items() if N in short["kernel"]]
print(f"float32, up to 1024 columns: {min(ratios):.2f} to {max(ratios):.2f} times the speed of torch.softmax")
speeds = {name: {row["N"]: row["ms"] for row in pick(rows, by=by, dtype="float16")} for name, by in
          {"copy": "copy", "one program a row": "kernel", "torch.softmax": "torch", "five kernels": "eager"}.items()}
copy = speeds.pop("copy")
shares = {name: {N: 100 * copy[N] / took for N, took in sorted(line.items()) if N in copy} for name, line in speeds.items()}
said.on(figures.curves(shares, f"The fused softmax runs at {min(shares['one program a row'].values()):.0f} % of a copy's speed or more", words,
                       "columns N, float16", "% of a copy's speed", log="x", ticks=[256, 1024, 4096, 16384], ylim=(0, 115),
                       ceilings={"a copy": 100}), x=4096)

# %% [markdown]
# **Compare.** The kernel takes what a copy takes; only the longest rows cost a few percent. (A little above 100 %: PyTorch's copy is not the fastest there is.) `torch.softmax` is one kernel too and moves the same bytes, so what it lacks here is not fusion. In float32, on rows of up to 1024, both are equally fast, give or take a few percent.
#
# **Takeaway.** Fusion buys time with traffic: five operations in one kernel take about as long as copying the matrix. FlashAttention is this idea, with two matrix products inside.

# %% [markdown]
# ## What a time means
#
# A launch returns at once; the GPU works later. The first launch compiles. A second run finds its inputs in the L2 cache. So one softmax of 32 MiB, timed five ways, has five times. **Predict** how many times as long as `do_bench` says each of these three takes.

# %%
my_clocks = {"Python's clock, not synchronized": None, "20 launches in a CUDA graph, L2 warm": None, "Python's clock, first call": None}

# %%
clocks, clock_words = numbers("timing_ways", name="basics_h200")
ms = {row["how"]: row["ms"] for row in clocks}
honest = ms["do_bench, L2 cleared"]
asked = ("Python's clock, not synchronized", "20 launches in a CUDA graph, L2 warm", "Python's clock, first call")
compare("times against do_bench", my_clocks, {how: ms[how] / honest for how in asked})
figures.bars(ms, f"One kernel, {min(ms.values()):.3f} to {max(ms.values()):,.0f} ms: it depends on who holds the clock", clock_words,
             "ms", log=True, worse=tuple(how for how in ms if how != "do_bench, L2 cleared"))

# %% [markdown]
# **Compare.** The first call compiles. Python's clock sees Python: it takes longer to launch this kernel than to run it, and without `synchronize` that is all it sees. In a loop the 32 MiB stay in L2, and the kernel seems twice as fast as it is on data from HBM.
#
# `triton.testing.do_bench(f)` warms up, clears L2 before each run, takes the GPU's own events, and returns the mean; `quantiles=[0.5, 0.2, 0.8]` gives the median and how far runs scatter. What this course records is taken in the same way, with a longer pause before each run: it times the GPU's work, and in the pause Python gets ahead of it.
#
# **Takeaway.** Warm up, use the GPU's clock, decide what the cache may hold, and give a median with its spread.

# %% [markdown]
# ## A matrix product
#
# One program makes one tile of $C = AB$: it walks along a strip of $A$ and down a strip of $B$ and adds up the products of their tiles, as in chapter 04. Take $A$ ($80 \times 48$), $B$ ($48 \times 112$) and tiles of $16 \times 16$. **Predict** how many programs that takes, and how often each element of $A$ and of $B$ is loaded.

# %%
my_product = {"programs": None, "loads of A": None, "loads of B": None}

# %%
from flashlab_course.gpu import matmul as matmuls

A, B = torch.randn(80, 48, device=device), torch.randn(48, 112, device=device)
seen = touched(lambda: matmuls.matmul(A, B, B_m=16, B_n=16, B_k=16))
compare("a product in tiles of 16", my_product, {"programs": (80 // 16) * (112 // 16), "loads of A": 112 // 16, "loads of B": 80 // 16})
figures.times_touched({"the package's kernel": seen})

# %% [markdown]
# **Compare.** Every tile column of $C$ reads all of $A$ again, and every tile row all of $B$. Larger tiles load less; the sums of a tile have to fit on chip. That is chapter 07's trade in its plainest form. (Loads are not DRAM bytes: the L2 cache serves many of the repeats, as the appendix measures.)
#
# **Exercise: matrix product** ([exercises/ex09_matmul.py](../exercises/ex09_matmul.py), 40 minutes). $C = AB$, a tile for each program, any sizes and strides. `tl.dot` multiplies two tiles.

# %%
check("ex09_matmul")

# %% [markdown]
# Your kernel's loads under the package's. More than wanted: does the loop load a tile twice? Uneven: is a mask or a grid off?

# %%
C = torch.empty(80, 112, device=device)
figures.times_touched({"wanted": seen, "yours": touched_by("ex09_matmul", A, B, C, 16, 16, 16)})

# %%
replay("ex09_matmul")

# %%
reveal("ex09_matmul")

# %% [markdown]
# **Takeaway.** One program, one tile of $C$. Its sums stay on chip for the whole loop; tiles of $A$ and $B$ pass by, masked with 0 where they stick out.
#
# ### Sums in float32
#
# Why does the exercise want float32 sums whatever the inputs? **Predict**: 1 is added 4096 times to a float16 that starts at 0. What does it say in the end?

# %%
my_sum = None

# %%
sums = {"float16": [], "float32": []}
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
# **Compare.** Once the numbers of a format are 2 apart, adding 1 lands half-way, and the rounding goes back. A long sum of small products ends like that, without a warning.
#
# Formats also end at the bottom: below about $6 \cdot 10^{-8}$ float16 has nothing but 0, an **underflow**. **Predict** the sum of 4096 squares of $10^{-4}$ in a kernel that squares in float16, and from which $x$ downwards $e^x$ is 0 in float16.

# %%
my_squares, my_exponent = None, None

# %%
@triton.jit
def squares_kernel(X, Out, N: tl.constexpr, wide: tl.constexpr):
    x = tl.load(X + tl.arange(0, N))
    if wide:                                                # decided while compiling
        x = x.to(tl.float32)
    tl.store(Out, tl.sum(x * x, 0))


X, Out = torch.full((4096,), 1e-4, dtype=torch.float16, device=device), torch.empty(2, device=device)
for n, wide in enumerate((False, True)):
    squares_kernel[(1,)](X, Out[n:], 4096, wide)
vanishes = max(x / 100 for x in range(-3000, 0) if torch.tensor(x / 100).exp().half() == 0)
print(f"sum of squares: {Out[0]:.3g} in float16, {Out[1]:.3g} in float32")

# %%
compare("squares of 1e-4 in float16", my_squares, Out[0].item())
compare("where exp vanishes in float16", my_exponent, vanishes)
values = {"1e-4": 1e-4, "(1e-4)²": 1e-8, "e⁻⁵": 2.718281828**-5, "e⁻¹⁸": 2.718281828**-18, "300²": 300.0**2}
lost = [name for name, value in values.items() if torch.tensor(value).half() in (0, float("inf"))]
figures.bars(values, f"float16 has no room for {', '.join(lost)}", "Definition: IEEE 754 binary16. Dashed: its smallest and its largest number.",
             "size of a number", log=True, worse=lost, walls={"6e-8": 6e-8, "65504": 65504})

# %% [markdown]
# **Compare.** Inputs that float16 holds well have products that it does not. In softmax a lost $e^{-18}$ is harmless next to the row's $e^0 = 1$. A gradient has no such 1 beside it: small gradients vanish, which is why training in float16 scales the loss. bfloat16 has float32's range, and two to three digits.
#
# **Takeaway.** Inputs may have 16 bits; what is multiplied and added up has 32.
#
# ### Both operands of one type
#
# On chip, results are float32, while tiles of $V$ are float16. `tl.dot` refuses such a pair; this cell fails on purpose:

# %%
@triton.jit
def mixed_kernel(A, B, C, D: tl.constexpr):
    i = tl.arange(0, D)
    p = tl.exp(tl.load(A + i[:, None] * D + i).to(tl.float32))      # float32
    v = tl.load(B + i[:, None] * D + i)                             # float16
    tl.store(C + i[:, None] * D + i, tl.dot(p, v))


A, B, C = (torch.randn(16, 16, dtype=torch.float16, device=device) for _ in range(3))
try:
    mixed_kernel[(1,)](A, B, C, 16)
except Exception as error:                                          # the interpreter's and the compiler's differ in kind
    print(str(error)[-90:])

# %% [markdown]
# One of the two has to be cast: `p` down to float16, or `v` up to float32. **Predict**: how many times as fast is a matrix product on an H100 with float16 operands as with float32 ones, multiplied as float32?

# %%
my_cast = None

# %%
rows, words = numbers("precision", needs=[{"by": "kernel", "precision": name} for name in ("float16 inputs", "ieee")])
speeds = {row["precision"]: row["tflops"] for row in pick(rows, by="kernel")}
speeds = {name: speeds[name] for name in ("float16 inputs", "ieee")}
faster = speeds["float16 inputs"] / speeds["ieee"]
compare("float16 operands against float32", my_cast, faster, "times")
figures.bars(speeds, f"float16 operands are {faster:.0f} times as fast as float32 ones", words, "TFLOP/s", worse=("ieee",))

# %% [markdown]
# **Compare.** So cast down, `p.to(v.dtype)`: tensor cores are fast on 16-bit operands, and they add in float32 all the same. What lies between the two is TF32, in the appendix.

# %% [markdown]
# ## Will it run on a GPU?
#
# The interpreter accepts what a GPU would refuse, or do differently. `lint_kernel` compiles, which needs no GPU. Three launches of one small product, $A$ ($D \times K$) times $B$ ($K \times D$). **Predict** for each: `"nothing"`, `"fails"` or `"differs"`.

# %%
@triton.jit
def product_kernel(A, B, C, D: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, D), tl.arange(0, K)
    tl.store(C + i[:, None] * D + i, tl.dot(tl.load(A + i[:, None] * K + k), tl.load(B + k[:, None] * D + i)))


my_verdicts = {"float16, D = 64, K = 8": None, "float32, D = 64, K = 64": None, "float16, D = 128, K = 512": None}

# %%
found = {}
for dtype, D, K in ((torch.float16, 64, 8), (torch.float32, 64, 64), (torch.float16, 128, 512)):
    case = f"{str(dtype)[6:]}, D = {D}, K = {K}"
    A, B, C = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((D, K), (K, D), (D, D)))
    found[case] = lint.lint_kernel(product_kernel, {"A": A, "B": B, "C": C.float(), "D": D, "K": K})
compare("what the lint says", my_verdicts, {case: findings[0].level if findings else "nothing" for case, findings in found.items()})
for case, findings in found.items():
    print(f"{case}\n{lint.as_text(findings)}\n")

# %% [markdown]
# **Takeaway.** Green in the interpreter means that the algorithm is right on these inputs. Stray addresses pass silently, programs run one after the other so that races cannot show, and float32 and bfloat16 differ from a GPU's. The lint adds: it compiles, it fits, it stays within its tensors, and it says where precision differs.

# %% [markdown]
# ## An open question
#
# Up to stride 8 the strided addition slowed down with its sectors. From stride 8 to 16 the sectors stay the same, 32 a load, and the time still doubles; from 16 to 32 it stays. Which piece of the machine could have a grain of 64 bytes, and which of the counters in `counted` (`load_sectors`, `l2_bytes`, `dram_read`) would you measure, at which strides, to find out? What would you expect for float16?
#
# ## Sources
#
# Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · [Triton's tutorials](https://triton-lang.org/main/getting-started/tutorials/) and [`do_bench`](https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), compute capabilities (grid limits) · Micikevicius et al. 2018, Mixed Precision Training, [arXiv:1710.03740](https://arxiv.org/abs/1710.03740), section 3.2 (loss scaling) · NVIDIA, [CUDA C++ Best Practices Guide](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/), memory optimizations
#
# **Next:** [10 · The forward kernel in Triton](10_triton_forward.ipynb) puts it together: two `tl.dot`s, and the online softmax between them. It needs chapter 06. Curious what became of your kernels? [09b](09b_what_the_compiler_made.ipynb) opens the compiler's output.
