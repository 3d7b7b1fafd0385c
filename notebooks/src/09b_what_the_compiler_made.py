# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09b · Appendix: what the compiler made of it
#
# **You will be able to** read what Triton's compiler made of a kernel: which thread holds which element, how wide its loads are, which instructions multiply, what spilled out of the registers; and to say which of that changes the time.
#
# **You need** chapter 09 with its exercises. · **60 minutes** · **runs on** CPU or GPU; Triton, so Linux
#
# An appendix: chapters 10 and 11 do without it, fast kernels do not. Any machine with Triton can compile for any NVIDIA GPU, so everything here but the times is done on yours. There are no exercises; each section asks for a prediction.

# %%
import flashlab  # first: it tells Triton whether to compile or to interpret
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This appendix needs Triton.")

# %%
import inspect
import re

import numpy as np
import torch

from flashlab.triton_mode import kernel_device
from flashlab_course import figures
from flashlab_course.bench import numbers, pick
from flashlab_course.compiler.ahead_of_time import compile_all, compile_for
from flashlab_course.compiler.layouts import layouts
from flashlab_course.lesson import compare


def meta(*shape, dtype=torch.float16):
    return torch.empty(*shape, dtype=dtype, device="meta")     # a tensor without numbers: the compiler needs none


device = kernel_device()
counted, counter_words = numbers("counters", live=False)       # hardware counters, recorded

# %% [markdown]
# ## Who does the work?
#
# In `vector_add` a block of `B` counts elements, not threads. By default a program runs on 4 warps of 32 threads. **Predict** for `B = 1024`: how many elements does a thread take, and with how many load instructions does it fetch those of one vector?

# %%
my_thread = {"elements": None, "loads of X": None}

# %%
from flashlab_course.gpu import vector_add as vectors

V = meta(4096, dtype=torch.float32)
compiled = compile_for(vectors.vector_add_kernel, {"X": V, "Y": V, "Out": V, "N": 4096, "B": 1024}, 90)
layout = layouts(compiled.ttgir)[0]                            # of the load of X
loads = re.findall(r"ld\.global\S*", compiled.ptx)             # of X and of Y
print(set(loads))
compare("a thread's share of a block", my_thread, {"elements": 1024 // 128, "loads of X": len(loads) // 2})
warp, lane = layout.holders()
threads = (32 * warp + lane).reshape(8, 128)
figures.matrices({"": threads[:, :64]}, "A thread takes four neighbours at a time, and comes back 512 elements later",
                 "Measured here: compiled, not run. The darker, the higher the thread's number; half of each row.", "element of the row",
                 "row of 128 elements")

# %% [markdown]
# **Compare.** `ttgir` is Triton's own form of the kernel for one GPU; it says who holds what. `ptx` is the assembly language of NVIDIA GPUs: `v4.b32` loads four numbers of 32 bits at once, the widest load a thread of an H100 has. Giving a thread several elements is called **thread coarsening**; Triton does it by itself.
#
# Wide loads need aligned addresses, and a mask that does not change within them. Triton compiles in which arguments are multiples of 16. **Predict** the number of loads of `X` for $N = 4097$.

# %%
my_loads_4097 = None

# %%
arguments = {"X": V, "Y": V, "Out": V, "N": 4097, "B": 1024}
loads = re.findall(r"ld\.global\S*", compile_for(vectors.vector_add_kernel, arguments, 90).ptx)
print(set(loads))
compare("loads of X for N = 4097", my_loads_4097, len(loads) // 2)

# %% [markdown]
# **Compare.** The mask may end anywhere, so each number is loaded by itself. Where something is a multiple and the compiler cannot know, `tl.multiple_of(x, 16)` promises it.
#
# **Takeaway.** You choose the block and the warps; the compiler assigns the elements to the threads.

# %% [markdown]
# ## Which lane goes where
#
# A matrix addition loads `X`, row-major, and `Y`, transposed, and stores `Out`, row-major. In chapter 09 Triton lost no time on the transposed one. **Predict** for each: do the neighbouring lanes of a warp go `"along a row"` or `"down a column"`?

# %%
my_lanes = {"X": None, "Y": None, "Out": None}

# %%
from flashlab_course.gpu import matrix_add as matrices

M = meta(4096, 4096, dtype=torch.float32)
strides = {"stride_Xm": 4096, "stride_Xn": 1, "stride_Ym": 1, "stride_Yn": 4096, "stride_Om": 4096, "stride_On": 1}
arguments = {"X": M, "Y": M, "Out": M, "M": 4096, "N": 4096, "B_m": 32, "B_n": 64} | strides
compiled = compile_for(matrices.matrix_add_kernel, arguments, 90)
tiles = dict(zip(("X", "Y", "Out"), layouts(compiled.ttgir), strict=True))
compare("the way of the lanes", my_lanes, {name: ("down a column", "along a row")[tile.order[0]] for name, tile in tiles.items()})
print(f"{compiled.ttgir.count('convert_layout')} conversions, {compiled.shared_bytes} bytes of shared memory")
held = {name: tile.holders() for name, tile in tiles.items()}
ways = ", ".join(f"{name} {('down a column', 'along a row')[tile.order[0]]}" for name, tile in tiles.items())
figures.matrices({name: np.where(warp == 0, lane + 1.0, np.nan) for name, (warp, lane) in held.items()}, f"Neighbouring lanes: {ways}",
                 "Measured here: compiled, not run. The lanes of warp 0, the darker the higher; white: the other warps.", number="")

# %% [markdown]
# **Compare.** Each load goes along the direction whose stride is 1, so each is coalesced. But an addition needs both tiles in the same hands: `convert_layout` moves one through shared memory. That is the price, and it stays on chip. **Change this and run again**: make `Y` row-major; what happens to the shared memory?
#
# **Takeaway.** Strides that the compiler can see decide who holds what.

# %% [markdown]
# ## K loaded transposed, or transposed after the load?
#
# Attention needs $K_j^\top$. One can compute pointers to the transposed tile, or load the tile as it lies and transpose on chip. **Predict** for an H100, $d = 64$: how many times as long does the transposed load take? And if Triton is not told that $K$'s last stride is 1 (`do_not_specialize`), how many times as long does each version take as before?

# %%
my_ratios = {"transposed load, stride known": None, "load as it lies, stride hidden": None, "transposed load, stride hidden": None}

# %%
rows, words = numbers("key_loading", needs=[{"transposed_load": t, "stride_known": k} for t in (0, 1) for k in (0, 1)])
names = {(t, known): f"{'transposed load' if t else 'load as it lies'}, stride {'known' if known else 'hidden'}"
         for known in (True, False) for t in (False, True)}
ms = {names[row["transposed_load"], row["stride_known"]]: row["ms"] for row in pick(rows, d=64)}
known = {name: ms[name.replace("hidden", "known")] for name in ms}
known["transposed load, stride known"] = ms["load as it lies, stride known"]
truth = {name: ms[name] / known[name] for name in ms if name != "load as it lies, stride known"}
compare("the cost of a transposed K", my_ratios, truth)
figures.bars(ms, f"Transposed or not: {truth['transposed load, stride known']:.2f} times the time. A stride hidden: "
                 f"{truth['load as it lies, stride hidden']:.1f} times", words, "ms", worse=tuple(n for n in ms if "hidden" in n))

# %% [markdown]
# **Compare.** As long as the stride is known, both versions become the same loads. The PTX shows it without a GPU:

# %%
from flashlab_course.gpu import largest_score

sizes = {"Q": meta(128, 64), "K": meta(4096, 64), "Out": meta(128, dtype=torch.float32), "stride_Qn": 64, "stride_Kn": 64, "N_k": 4096,
         "d": 64, "B_r": 128, "B_c": 64}
jobs = [(kernel, sizes | {"stride_Kd": stride, "transposed_load": t}, 90) for kernel, stride in
        ((largest_score.largest_score_kernel, 1), (largest_score.largest_score_blind_kernel, 7)) for t in (False, True)]
for name, binary in zip(names.values(), compile_all(jobs), strict=True):
    wide, narrow = (len(re.findall(pattern, binary.ptx)) for pattern in (r"cp\.async\.cg|ld\.global\.v4", r"ld\.global\.b16"))
    print(f"{name:<31} {wide:>2} loads of 16 bytes, {narrow:>2} of 2 bytes")

# %% [markdown]
# Without the stride Triton has to guess. It lines the lanes up along the tile's first dimension, and that is $K$'s contiguous one only in the transposed load: 2 bytes at a time, but neighbours. In the other version every lane fetches a sector of its own.
#
# **Takeaway.** Which way you write it does not matter; what the compiler knows about strides does. Let strides of 1 be visible.

# %% [markdown]
# ## Blocks against scalars
#
# What a block operation does for the 128 elements of a program can also be written as a loop over single numbers. **Predict** how many times as long that takes on a GPU.

# %%
print(inspect.getsource(vectors.one_by_one_kernel.fn))
my_slower = None     # how many times as long it takes on a GPU

# %%
rows, words = numbers("vector_addition")
ms = {by: pick(rows, by=f"Triton, {by}")[0]["ms"] for by in ("a block at a time", "one number at a time")}
slower = ms["one number at a time"] / ms["a block at a time"]
compare("one number at a time", my_slower, slower, "times")
figures.bars(ms, f"One number at a time takes {slower:.1f} times as long", words, "ms", worse=("one number at a time",))

# %% [markdown]
# A scalar is the same for the whole program: all 128 threads do the same addition, one after the other through the loop, each waiting for memory. Scalars are for addresses and loop counters.
#
# **Takeaway.** Data in blocks, bookkeeping in scalars.

# %% [markdown]
# ## Branches: constexpr or not
#
# An `if` on a `tl.constexpr` is decided while compiling; an `if` on a run-time number stays a branch. Two kernels differ in nothing else: flag 0 takes `exp`, any other flag `sqrt`. **Predict** for each how many `ex2` (that is exp) and `sqrt` instructions are left in the code of flag 0, where a thread holds 8 elements.

# %%
my_instructions = {"constexpr": None, "run-time": None}     # {"ex2": …, "sqrt": …} each

# %%
from flashlab_course.gpu import branches

kernels = {"constexpr": branches.constexpr_branch_kernel, "run-time": branches.runtime_branch_kernel}
jobs = [(kernel, {"X": V, "Out": V, "B": 1024, "flag": flag}, 90) for kernel in kernels.values() for flag in (0, 2)]
labels = [f"{name}, flag {flag}" for name in kernels for flag in (0, 2)]
count = lambda ptx: {word: len(re.findall(rf"\b{word}\b", ptx)) for word in ("ex2", "sqrt", "bra")}
counts = {label: count(binary.ptx) for label, binary in zip(labels, compile_all(jobs), strict=True)}
left = {name: {word: counts[f"{name}, flag 0"][word] for word in ("ex2", "sqrt")} for name in kernels}
compare("instructions left of a branch", my_instructions, left)
for name, found in counts.items():
    print(f"{name}: " + ", ".join(f"{word} {many}" for word, many in found.items()), "(compiled here)")

# %% [markdown]
# **Takeaway.** What is known at compile time belongs in a `tl.constexpr`, such as `causal` in an attention kernel: two lean kernels instead of one with branches. A run-time `if` on a scalar is no divergence, since the whole program agrees; it costs code, registers, and the compiler's view across it.

# %% [markdown]
# ## An order that the L2 cache likes
#
# Tiles in one row of $C = AB$ share a strip of $A$, those in one column a strip of $B$. **Predict**: 9 programs run at once on $9 \times 9$ tiles. How many strips do they read in all if programs are numbered row by row? At best?

# %%
my_strips = {"row by row": None, "at best": None}

# %%
from flashlab_course.gpu.matmul import tiles_in_order


def strips(tiles):
    return len({i for i, _ in tiles}) + len({j for _, j in tiles})


orders = {f"group = {group}": tiles_in_order(9, 9, group) for group in (1, 3)}
compare("strips for 9 programs", my_strips, {"row by row": strips(orders["group = 1"][:9]), "at best": strips(orders["group = 3"][:9])})
first = {name: (np.zeros((9, 9)), np.full((9, 9), "", dtype=object)) for name in orders}
for name, tiles in orders.items():
    for program, (i, j) in enumerate(tiles[:9]):
        first[name][0][i, j], first[name][1][i, j] = program + 1, program
figures.matrices(first, " or ".join(f"{strips(tiles[:9])}" for tiles in orders.values()) + " strips of A and B for 9 programs: the order decides",
                 "Definition: in the cells the program, of the first 9; grey: of later ones. A row of tiles needs a strip of A, a column one of B.",
                 "tile column: a strip of B", "tile row: a strip of A")

# %% [markdown]
# **Change this and run again**: other groups, or `wave=12`. Which group is best for 12 programs at once?
#
# The package's matrix product works in groups of 8 tile rows. At $8192^3$ each matrix has 128 MiB, more than the 50 MB of L2. **Predict**, in percent of row by row: the bytes read from DRAM, and the time.

# %%
my_order = {"bytes": None, "time": None}

# %%
rows, words = numbers("matmul_order", needs=[{"group": 1}, {"group": 8}])
read = {row["group"]: row["dram_read"] for row in pick(counted, kernel="matmul") if "group" in row}
took = {row["group"]: row["ms"] for row in rows}
compare("groups of 8 in percent of row by row", my_order, {"bytes": 100 * read[8] / read[1], "time": 100 * took[8] / took[1]}, "%")
again = pick(numbers("matmul", live="here" in words)[0], by="pointers", n=8192)
print(*(f"group 8, measured a second time in the same run: {100 * row['ms'] / took[8]:.0f} % of that time" for row in again))
figures.curves({name: {group: 100 * found[group] / found[1] for group in sorted(found)} for name, found in (("bytes from DRAM", read), ("time", took))},
               f"Groups of 8 read {100 * read[8] / read[1]:.0f} % of the bytes and take {100 * took[8] / took[1]:.0f} % of the time",
               f"{words} Bytes: ncu, in another run.", "tile rows a group", "% of row by row", log="x", ylim=(0, 110))

# %% [markdown]
# **Compare.** Far fewer bytes come from DRAM, and the time hardly moves: by little more than two measurements of one kernel differ. This product is far to the right in chapter 02's roofline and waits for arithmetic. Where a product waits for memory, fewer bytes would be time; we have not measured such a case.
#
# **Takeaway.** Programs that run together should share what they read. It costs four lines of integer arithmetic.

# %% [markdown]
# ## TF32
#
# Tensor cores multiply float32 only after shortening its mantissa from 23 bits to 10: **TF32**, Triton's default for float32. Done by hand, by rounding, this shows what it does to a product with $K = 1024$. **Predict** the mean error relative to the mean of $|C|$: of TF32, and of float16 inputs.

# %%
my_errors = {"TF32, rounded": None, "float16": None}

# %%
def tf32(x, half_a_step=0x1000):
    return ((x.view(torch.int32) + half_a_step) & ~0x1FFF).view(torch.float32)        # 13 of 23 bits go


A, B = torch.randn(256, 1024), torch.randn(1024, 256)
truth = A.double() @ B.double()
products = {"float32": A @ B, "TF32, rounded": tf32(A) @ tf32(B), "TF32, cut off": tf32(A, 0) @ tf32(B, 0),
            "float16": A.half().float() @ B.half().float()}
errors = {name: ((C - truth).abs().mean() / truth.abs().mean()).item() for name, C in products.items()}
compare("errors of short mantissas", my_errors, {name: errors[name] for name in ("TF32, rounded", "float16")})
figures.bars(errors, f"Cutting off costs {errors['TF32, cut off'] / errors['TF32, rounded']:.1f} times as much as rounding",
             "Modelled here: mantissas shortened by hand, the product in float32.", "mean error, of the mean of |C|", log=True)

# %% [markdown]
# What does it buy? `tl.dot` knows three ways: `"ieee"` is true float32, without tensor cores; `"tf32"`; and `"tf32x3"`, three products that win most of the lost digits back. **Predict** the speed of `"tf32"` on an H100, in times that of `"ieee"`: with $B$ stored by rows, and by columns.

# %%
my_tf32 = {"kernel": None, "kernel, B by columns": None}

# %%
by_columns = "kernel, B by columns"
rows, words = numbers("precision", needs=[{"by": by, "precision": "tf32"} for by in ("kernel", by_columns)])
speed = {(row["by"], row["precision"]): row["tflops"] for row in rows}
compare("tf32 against ieee", my_tf32, {by: speed[by, "tf32"] / speed["kernel", "ieee"] for by in ("kernel", by_columns)}, "times")
figures.curves({row["precision"] + row["by"].removeprefix("kernel").replace("torch", ", torch"): {row["mean_error"]: row["tflops"]} for row in rows},
               f"TF32 runs up to {max(tflops for (_, how), tflops in speed.items() if how == 'tf32') / speed['kernel', 'ieee']:.1f} times as fast as float32",
               words, "error, of the mean", "TFLOP/s", log="xy", ticks=[1e-6, 1e-5, 1e-4, 1e-3], names=figures.power_text)

# %% [markdown]
# **Compare.** By their errors, PyTorch's product rounds and Triton's cuts off. The speed hangs on $B$'s layout: Hopper's tensor cores take 32-bit operands only with $K$ as the contiguous direction. A row-major $B$ is turned around on its way to shared memory, 4 bytes at a time where 16 would go:

# %%
from flashlab_course.gpu import matmul as matmuls

A = meta(4096, 4096, dtype=torch.float32)
common = {"A": A, "B": A, "C": A, "M": 4096, "N": 4096, "K": 4096, "group": 8, "precision": "tf32", "stride_Cm": 4096, "stride_Cn": 1,
          "stride_Am": 4096, "stride_Ak": 1, "B_m": 128, "B_n": 128, "B_k": 32, "num_warps": 8, "num_stages": 3}
ways = {"B by rows": {"stride_Bk": 4096, "stride_Bn": 1}, "B by columns": {"stride_Bk": 1, "stride_Bn": 4096}}
for name, binary in zip(ways, compile_all([(matmuls.matmul_kernel, common | way, 90) for way in ways.values()]), strict=True):
    wide, narrow = (len(re.findall(rf"cp\.async\.{kind}", binary.ptx)) for kind in ("cg", "ca"))
    print(f"{name:>14}: {wide} copies of 16 bytes, {narrow} of 4 bytes")

# %% [markdown]
# `"ieee"` is slower with $B$ by columns; why, we have not examined. With $B$ by rows `"tf32x3"` is even slower than true float32.
#
# **Takeaway.** Say which precision you want: the default differs between interpreter and GPU, and so do the digits.

# %% [markdown]
# ## Descriptors, and block pointers before them
#
# A **tensor descriptor** holds pointer, shape, strides and tile size in one object. Loading a tile then takes its corner; edges are handled, zeros outside and nothing written there. On Hopper and newer the copies are done by a unit of their own, the TMA. The package's product, with pointers and with descriptors:

# %%
for kernel in (matmuls.matmul_kernel, matmuls.matmul_descriptor_kernel):
    lines = inspect.getsource(kernel.fn).splitlines()
    print("\n".join(line for line in lines if "descriptor(" in line or ".load(" in line or "store(" in line or "_tile +=" in line), "\n")

# %% [markdown]
# Older kernels, and many tutorials, have a form in between, the **block pointer**. `tl.make_block_ptr(Q, shape, strides, offsets, block_shape, order)` described a tensor and one tile of it; `order` named the fastest dimension first, `(1, 0)` for row-major; `tl.advance(pointer, (0, B_k))` moved it to the next tile, and `tl.load(pointer, boundary_check=(0, 1))` masked its edges. Triton 3.7 calls block pointers deprecated, and its main branch removed them in July 2026.
#
# A descriptor has no `order`: its last dimension must have stride 1, and rows must start at multiples of 16 bytes. **Predict** which of these calls works for float32 matrices of 72 columns: `True` or `False`.

# %%
my_works = {"X + Y": None, "X[:, 1:] + Y[:, 1:]": None, "X[:, 4:] + Y[:, 4:]": None}

# %%
X, Y = torch.randn(45, 72, device=device), torch.randn(45, 72, device=device)


def works(start):
    try:
        return torch.equal(matrices.matrix_add(X[:, start:], Y[:, start:], descriptors=True), X[:, start:] + Y[:, start:])
    except ValueError as error:
        print(error)
        return False


calls = {"X + Y": 0, "X[:, 1:] + Y[:, 1:]": 1, "X[:, 4:] + Y[:, 4:]": 4}
compare("additions by descriptor", my_works, {call: works(start) for call, start in calls.items()})

# %% [markdown]
# And the speed? **Predict** TFLOP/s at $4096^3$ in float16, in percent of PyTorch's product.

# %%
my_percent = {"pointers": None, "descriptors": None}

# %%
rows, words = numbers("matmul", needs=[{"by": by, "n": 4096} for by in ("torch", "pointers", "descriptors")])
at = {row["by"]: row["tflops"] for row in pick(rows, n=4096)}
compare("products in percent of torch", my_percent, {by: 100 * at[by] / at["torch"] for by in ("pointers", "descriptors")}, "%")
torch_at = {row["n"]: row["tflops"] for row in pick(rows, by="torch")}
shares = {by: {row["n"]: 100 * row["tflops"] / torch_at[row["n"]] for row in pick(rows, by=by)} for by in ("pointers", "descriptors")}
figures.curves(shares, f"At 1024³ {shares['pointers'][1024]:.0f} and {shares['descriptors'][1024]:.0f} % of PyTorch's speed, at 8192³ "
               f"{shares['pointers'][8192]:.0f} and {shares['descriptors'][8192]:.0f} %", words, "n, of an n × n × n product", "% of torch",
               log="x", ylim=(0, 115), ceilings={"torch": 100})

# %% [markdown]
# Is that difference real? The same tile at $4096^3$, measured a second time in the same run:

# %%
again = pick(numbers("matmul_tiles", live="here" in words)[0], n=4096, B_m=128, B_n=256, B_k=64, num_warps=8)
speeds = {f"{row['by']}, {row['num_stages']} stages": row["tflops"] for row in again}
speeds |= {f"{by}, first time": at[by] for by in ("pointers", "descriptors")}
figures.bars(speeds, f"One product, {min(speeds.values()):.0f} to {max(speeds.values()):.0f} TFLOP/s in {len(speeds)} measurements", words,
             "TFLOP/s")

# %% [markdown]
# **Compare.** From one measurement to the next the order changes. At $1024^3$ both are far behind: tiles of $128 \times 256$ make 32 programs, and an H100 has 132 SMs. (What else is in that gap, and why descriptors are ahead there, we have not examined.)
#
# **Takeaway.** Descriptors take over addresses, edges and masks. Whether they also save time, only a measurement says: here they do not.

# %% [markdown]
# ## Registers and spills
#
# `compile_for` also reports registers for each thread (255 at most), **spills** (bytes that did not fit into registers and live in memory), and shared memory. **Predict** which instruction multiplies matrices on an A100, an H100 and a B200: one of `"mma.sync"`, `"wgmma"`, `"tcgen05.mma"` each.

# %%
my_units = {"A100": None, "H100": None, "B200": None}

# %%
A = meta(4096, 4096)
common_ieee = common | {"A": A, "B": A, "C": A, "precision": "ieee", "stride_Bk": 4096, "stride_Bn": 1}
small, large = {"B_m": 128, "B_n": 128, "B_k": 64, "num_warps": 8}, {"B_m": 128, "B_n": 256, "B_k": 64, "num_warps": 8}
jobs = {"A100": (80, small), "H100": (90, large), "B200": (100, large), "H100, 4 warps": (90, large | {"num_warps": 4})}
found = compile_all([(matmuls.matmul_kernel, common_ieee | tiles, arch) for arch, tiles in jobs.values()])
binaries = dict(zip(jobs, found, strict=True))
units = {name: next(word for word in ("tcgen05.mma", "wgmma", "mma.sync") if word in binaries[name].ptx) for name in jobs}
compare("the instruction that multiplies", my_units, {name: units[name] for name in ("A100", "H100", "B200")})
for name, binary in binaries.items():
    print(f"{name:>14}: {units[name]:<11} {binary.registers:>3} registers, {binary.spills:>5} bytes spilled, "
          f"{binary.shared_bytes / 1024:.0f} KiB of shared memory")

# %% [markdown]
# The last line has too few warps: 128 threads for $128 \times 256$ sums are 256 each, and a thread has 255 registers for everything. `tl.zeros` makes registers; what does not fit is spilled to memory. **Predict** how many times as long the same tile takes with 4 warps as with 8, with pointers.

# %%
my_spill_cost = None

# %%
tile = {"B_m": 128, "B_n": 256, "B_k": 64, "num_stages": 3}
rows, words = numbers("matmul_tiles", needs=[tile | {"by": "pointers", "num_warps": warps} for warps in (4, 8)])
speeds = {f"{row['by']}, {row['num_warps']} warps": row["tflops"] for row in pick(rows, **tile)}
cost = speeds["pointers, 8 warps"] / speeds["pointers, 4 warps"]
compare("the cost of spilling", my_spill_cost, cost, "times")
spilled = {row["num_warps"]: 32 * (row["spill_load_sectors"] + row["spill_store_sectors"]) / 1e9
           for row in pick(counted, kernel="matmul") if "num_warps" in row}
print(f"spilled at 8192³: {spilled[8]:.0f} GB with 8 warps, {spilled[4]:.0f} GB with 4 (hardware counters)")
print(*(line[line.find("Potential"):][:110] for line in binaries["H100, 4 warps"].warnings), sep="\n")
figures.bars(speeds, f"Half the warps, {cost:.1f} times the time", words, "TFLOP/s", worse=tuple(n for n in speeds if "4 warps" in n))

# %% [markdown]
# **Compare.** Spills are traffic, and the assembler's warning says the second half: the matrix instructions are serialized, each waits for the one before.
#
# **Takeaway.** Read registers, spills, shared memory and the instructions before you measure: it costs a second and no GPU.

# %% [markdown]
# ## Why atomics are slow
#
# To sum a vector, every program may add its part to one number in memory. Two must not do so at once, so each addition has to be **atomic**, and they queue. Three kernels: an atomic for each element; one for each block, after `tl.sum`; none, and a second launch that adds up the blocks' sums. **Predict** for 16 million numbers, in times the last one's.

# %%
my_atomics = {"element": None, "block": None}

# %%
from flashlab_course.gpu import vector_sum

rows, words = numbers("atomics", needs=[{"how": how} for how in ("element", "block", "partial")])
ms = {row["how"]: row["ms"] for row in rows}
compare("sums by atomics", my_atomics, {how: ms[how] / ms["partial"] for how in ("element", "block")}, "times")
results = {row["how"]: row["different_results_of_20"] for row in rows}
print("different results in 20 runs:", results)
figures.bars(ms, f"An atomic for each element takes {ms['element'] / ms['partial']:.0f} times as long, one for each block "
                 f"{ms['block'] / ms['partial']:.2f} times", words, "ms", log=True, worse=("element",))

# %% [markdown]
# Atomics have a second price: the order of the additions changes from run to run, and so do the last digits of a float32 sum. Chapter 11 meets both when several programs add to one $dQ$.
#
# **Takeaway.** Reduce on chip first. One atomic for each program then takes about as long as a second launch without any; only the second launch gives the same digits every time.

# %% [markdown]
# ## An open question
#
# At $1024^3$ the product reaches less than half of PyTorch's speed with 32 programs on 132 SMs. Smaller tiles make more programs, and load more (chapter 09's picture of loads). `compile_all` tells you registers, spills and shared memory of any tile in a second, and `figures.times_touched` its loads. Which tile would you choose for $1024^3$, which for $8192^3$, and what do you expect to be the limit then? Chapter 12 starts from there.
#
# ## Sources
#
# NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/) (ld, cp.async, mma, wgmma, tcgen05) · Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · [Triton's tutorials](https://triton-lang.org/main/getting-started/tutorials/), 03 (grouped order) and 09 (descriptors) · Triton's pull requests [9667](https://github.com/triton-lang/triton/pull/9667) and [10833](https://github.com/triton-lang/triton/pull/10833) (the end of block pointers)
#
# **Next:** [10 · The forward kernel in Triton](10_triton_forward.ipynb).
