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
# **You need** chapter 09 with its exercises · **further:** sittings 1 and 2, 25 minutes each · **runs on** CPU or GPU; Triton, so Linux
#
# Any machine with Triton can compile for any NVIDIA GPU: only the times here are recorded.

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
# ## Sitting 1 (further) · Threads, lanes and loads
#
# ### Who does the work?
#
# In `vector_add` a block of `B` counts elements, not threads. By default a program runs on 4 warps of 32 threads, and a thread of an H100 loads at most 16 bytes at once. **Predict** for `B = 1024` and float32: how many elements does a thread take? With how many load instructions does it fetch those of one vector?

# %%
my_thread = {"elements": None, "loads of X": None}

# %%
from flashlab_course.gpu import vector_add as vectors

V = meta(4096, dtype=torch.float32)
jobs = [(vectors.vector_add_kernel, {"X": V, "Y": V, "Out": V, "N": N, "B": 1024}, 90) for N in (4096, 4097)]
compiled, ragged = compile_all(jobs)
loads, narrow = (re.findall(r"ld\.global\S*", one.ptx) for one in (compiled, ragged))          # of X and of Y
print(f"N = 4096: {len(loads) // 2} loads of X, {set(loads)}; N = 4097: {len(narrow) // 2}, {set(narrow)}")
compare("a thread's share of a block", my_thread, {"elements": 1024 // 128, "loads of X": len(loads) // 2})
warp, lane = layouts(compiled.ttgir)[0].holders()                                              # of the load of X
threads = (32 * warp + lane).reshape(8, 128)
figures.matrices({"": threads[:, :64]}, "A thread takes four neighbors at a time, and comes back 512 elements later",
                 "Measured here: compiled, not run. The darker, the higher the thread's number; half of each row.", "element of the row",
                 "row of 128 elements")

# %% [markdown]
# `ttgir` is Triton's own form of the kernel for one GPU; it says who holds what. `ptx` is the assembly language of NVIDIA GPUs. `v4.b32` loads four numbers of 32 bits.
#
# Wide loads need aligned addresses and a mask that does not change within them. Triton compiles in which arguments are multiples of 16. For $N = 4097$ the mask may end anywhere, so each number is loaded by itself.
#
# **Takeaway.** You choose the block and the warps. The compiler assigns the elements to the threads.
#
# ### Which lane goes where
#
# A matrix addition loads `X`, row-major, and `Y`, transposed, and stores `Out`, row-major. **Predict** for each tensor: do the neighboring lanes of a warp go `"along a row"` or `"down a column"`?

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
corner = {name: (np.where(warp == 0, lane + 1.0, np.nan)[:8, :12], np.where(warp == 0, lane.astype(str), "")[:8, :12])
          for name, (warp, lane) in held.items()}
figures.matrices(corner, f"Neighboring lanes: {ways}",
                 "Measured here: compiled, not run. The upper left corner: in a cell the lane of warp 0; white: other warps.")

# %% [markdown]
# Triton wants neighboring lanes at neighboring addresses, so each load goes along the direction whose stride is 1. An addition needs both tiles in the same threads, so `convert_layout` moves one through shared memory. **Change this and run again**: make `Y` row-major. What happens to the shared memory?
#
# ### Transposed while loading, or after
#
# Attention needs $K_j^\top$. A kernel can compute pointers to the transposed tile, or load the tile as it lies and transpose it on chip. It can also hide from Triton that $K$'s last stride is 1 (`do_not_specialize`). Here are the times of the four versions on an H100:

# %%
rows, words = numbers("key_loading", needs=[{"transposed_load": t, "stride_known": k} for t in (0, 1) for k in (0, 1)])
names = {(t, known): f"{'transposed load' if t else 'load as it lies'}, stride {'known' if known else 'hidden'}"
         for known in (True, False) for t in (False, True)}
ms = {names[row["transposed_load"], row["stride_known"]]: row["ms"] for row in pick(rows, d=64)}
known = {name: ms[name.replace("hidden", "known")] for name in ms}
known["transposed load, stride known"] = ms["load as it lies, stride known"]
truth = {name: ms[name] / known[name] for name in ms if name != "load as it lies, stride known"}
figures.bars(ms, f"Stride known: equally fast. Stride hidden: {truth['transposed load, stride hidden']:.1f} "
                 f"and {truth['load as it lies, stride hidden']:.1f} times the time", words, "ms", worse=tuple(n for n in ms if "hidden" in n))

# %% [markdown]
# If the stride is known, both versions become the same loads. The PTX shows it without a GPU:

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
# A thread loads its part of $Q$ in 8 wide loads, and of a tile of $K$ in 4. Those stand three times in the code, as copies run two tiles ahead. If the stride is hidden, a thread loads its part of $K$ in 32 steps of 2 bytes, and Triton lines the lanes up along the tile's first dimension. Only in the transposed load is that $K$'s contiguous one, so that lanes share sectors (chapter 09).
#
# **Takeaway.** Let the compiler see strides of 1. Then either way of writing the load will do.
#
# ### Blocks against scalars
#
# The work of a program on its 128 elements can also be written as a loop over single numbers.

# %%
print(inspect.getsource(vectors.one_by_one_kernel.fn))
rows, words = numbers("vector_addition")
ms = {by: pick(rows, by=f"Triton, {by}")[0]["ms"] for by in ("a block at a time", "one number at a time")}
slower = ms["one number at a time"] / ms["a block at a time"]
figures.bars(ms, f"One number at a time takes {slower:.1f} times as long", words, "ms", worse=("one number at a time",))

# %% [markdown]
# All 128 threads do the same additions, one after the other, and each waits for memory. Scalars are for addresses and loop counters.
#
# ### Branches: constexpr or not
#
# An `if` on a `tl.constexpr` is decided while compiling. An `if` on a run-time number stays a branch. Two kernels differ in nothing else: flag 0 takes `exp`, any other flag `sqrt`. A thread has 8 elements. **Predict** for each kernel how many `ex2` (exp) and `sqrt` instructions the code of flag 0 has.

# %%
my_instructions = {"constexpr, ex2": None, "constexpr, sqrt": None, "run-time, ex2": None, "run-time, sqrt": None}

# %%
from flashlab_course.gpu import branches

kernels = {"constexpr": branches.constexpr_branch_kernel, "run-time": branches.runtime_branch_kernel}
jobs = [(kernel, {"X": V, "Out": V, "B": 1024, "flag": flag}, 90) for kernel in kernels.values() for flag in (0, 2)]
labels = [f"{name}, flag {flag}" for name in kernels for flag in (0, 2)]
count = lambda ptx: {word: len(re.findall(rf"\b{word}\b", ptx)) for word in ("ex2", "sqrt", "bra")}
counts = {label: count(binary.ptx) for label, binary in zip(labels, compile_all(jobs), strict=True)}
compare("instructions left of a branch", my_instructions, {f"{name}, {word}": counts[f"{name}, flag 0"][word]
                                                           for name in kernels for word in ("ex2", "sqrt")})
for name, found in counts.items():
    print(f"{name}: " + ", ".join(f"{word} {many}" for word, many in found.items()), "(compiled here)")

# %% [markdown]
# **Takeaway.** Make known at compile time what can be, such as `causal` in an attention kernel: two small kernels instead of one with branches.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (further) · Order, precision, registers
#
# ### An order that the L2 cache likes
#
# Tiles in one row of $C = AB$ share a strip of $A$, and tiles in one column share a strip of $B$. **Predict.** 9 programs run at once on $9 \times 9$ tiles. How many strips do they read in all if programs are numbered row by row? At best?

# %%
my_strips = {"row by row": None, "at best": None}

# %%
from flashlab_course.gpu import matmul as matmuls


def strips(tiles):
    return len({i for i, _ in tiles}) + len({j for _, j in tiles})


side, running = 9, 9                                           # change me: tiles a side, and programs at once
orders = {f"group = {group}": matmuls.tiles_in_order(side, side, group)[:running] for group in (1, 3)}
if (side, running) == (9, 9):
    compare("strips for 9 programs", my_strips, dict(zip(("row by row", "at best"), map(strips, orders.values()), strict=True)))
first = {}
for name, tiles in orders.items():
    here = {tile: program for program, tile in enumerate(tiles)}
    texts = [[here.get((i, j), "") for j in range(side)] for i in range(side)]
    first[f"{name}: {strips(tiles)} strips"] = [[text != "" for text in row] for row in texts], texts
counts = " or ".join(str(strips(tiles)) for tiles in orders.values())
figures.matrices(first, f"{counts} strips of A and B for {running} programs: the order decides",
                 "Definition: in the cells the program; gray: of later ones. A row of tiles needs a strip of A, a column one of B.",
                 "tile column: a strip of B", "tile row: a strip of A")

# %% [markdown]
# **Change this and run again**: set `side` to 6, then `running` to 18. How many strips do both orders load, and why?
#
# <details><summary><b>Why?</b> (after the run)</summary>
#
# Row by row, 9 programs fill a row and a half: 2 strips of $A$ and 6 of $B$. In groups of 3 rows they make a square: 3 and 3. 18 fill three whole rows in both orders.
#
# </details>
#
# The package's matrix product works in groups of 8 tile rows. At $8192^3$ each matrix has 128 MiB, more than the 50 MB of L2.

# %%
rows, words = numbers("matmul_order", needs=[{"group": 1}, {"group": 8}])
read = {row["group"]: row["dram_read"] for row in pick(counted, kernel="matmul") if "group" in row}
took = {row["group"]: row["ms"] for row in rows}
shares = {name: 100 * found[8] / found[1] for name, found in (("bytes from DRAM", read), ("time", took))}
figures.bars(shares, f"Groups of 8 read {shares['bytes from DRAM']:.0f} % of the bytes and take {shares['time']:.0f} % of the time",
             f"{words} Bytes: ncu, in another run.", "% of row by row", walls={"row by row": 100})

# %% [markdown]
# Far fewer bytes come from DRAM, yet the time hardly changes: this product waits for arithmetic (chapter 02's roofline).
#
# **Takeaway.** Programs that run together should share what they read.
#
# ### TF32
#
# Tensor cores multiply float32 only after shortening its mantissa from 23 bits to 10: **TF32**, Triton's default for float32. This does it by hand:

# %%
def tf32(x, half_a_step=0x1000):
    return ((x.view(torch.int32) + half_a_step) & ~0x1FFF).view(torch.float32)        # 13 of 23 bits go


A, B = torch.randn(256, 1024), torch.randn(1024, 256)
truth = A.double() @ B.double()
products = {"float32": A @ B, "TF32, rounded": tf32(A) @ tf32(B), "TF32, cut off": tf32(A, 0) @ tf32(B, 0),
            "float16": A.half().float() @ B.half().float()}
errors = {name: ((C - truth).abs().mean() / truth.abs().mean()).item() for name, C in products.items()}
figures.bars(errors, f"Cutting off costs {errors['TF32, cut off'] / errors['TF32, rounded']:.1f} times as much as rounding",
             "Modelled here: mantissas shortened by hand, the product in float32.", "mean error, of the mean of |C|", log=True)

# %% [markdown]
# `tl.dot` has three ways: `"ieee"` is true float32, without tensor cores; `"tf32"`; and `"tf32x3"`, three products that win most of the lost digits back.

# %%
by_columns = "kernel, B by columns"
rows, words = numbers("precision", needs=[{"by": by, "precision": "tf32"} for by in ("kernel", by_columns)])
speed = {(row["by"], row["precision"]): row["tflops"] for row in rows}
figures.curves({row["precision"] + row["by"].removeprefix("kernel").replace("torch", ", torch"): {row["mean_error"]: row["tflops"]} for row in rows},
               f"TF32 runs up to {max(tflops for (_, how), tflops in speed.items() if how == 'tf32') / speed['kernel', 'ieee']:.1f} times as fast as float32",
               words, "error, of the mean", "TFLOP/s", log="xy", ticks=[1e-6, 1e-5, 1e-4, 1e-3], names=figures.power_text)

# %% [markdown]
# By their errors, `tl.dot` cuts off, and PyTorch rounds. The speed depends on $B$'s layout. For 32-bit operands, Hopper's tensor cores want $K$ as the contiguous direction. A row-major $B$ is turned around on its way to shared memory, in copies of 4 bytes instead of 16:

# %%
A = meta(4096, 4096, dtype=torch.float32)
common = {"A": A, "B": A, "C": A, "M": 4096, "N": 4096, "K": 4096, "group": 8, "precision": "tf32", "stride_Cm": 4096, "stride_Cn": 1,
          "stride_Am": 4096, "stride_Ak": 1, "B_m": 128, "B_n": 128, "B_k": 32, "num_warps": 8, "num_stages": 3}
ways = {"B by rows": {"stride_Bk": 4096, "stride_Bn": 1}, "B by columns": {"stride_Bk": 1, "stride_Bn": 4096}}
for name, binary in zip(ways, compile_all([(matmuls.matmul_kernel, common | way, 90) for way in ways.values()]), strict=True):
    wide, narrow = (len(re.findall(rf"cp\.async\.{kind}", binary.ptx)) for kind in ("cg", "ca"))
    print(f"{name:>14}: {wide} copies of 16 bytes, {narrow} of 4 bytes")

# %% [markdown]
# **Takeaway.** Say which precision you want. The interpreter and a GPU have different defaults.
#
# ### Descriptors
#
# A **tensor descriptor** holds pointer, shape, strides and tile size in one object. A load takes the corner of a tile; outside of the tensor it gives zeros, and a store writes nothing there. On Hopper and newer a unit of its own does the copies, the TMA. Here are the package's products, with pointers and with descriptors:

# %%
for kernel in (matmuls.matmul_kernel, matmuls.matmul_descriptor_kernel):
    lines = inspect.getsource(kernel.fn).splitlines()
    print("\n".join(line for line in lines if "descriptor(" in line or ".load(" in line or "store(" in line or "_tile +=" in line), "\n")

# %% [markdown]
# Older kernels use **block pointers**, `tl.make_block_ptr`; in Triton 3.9 the call raises.
#
# The last dimension of a descriptor must have stride 1, and rows must start at multiples of 16 bytes. **Predict** which of these calls works for float32 matrices of 72 columns: `True` or `False`.

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

# %%
rows, words = numbers("matmul", needs=[{"by": by, "n": 4096} for by in ("torch", "pointers", "descriptors")])
torch_at = {row["n"]: row["tflops"] for row in pick(rows, by="torch")}
shares = {by: {row["n"]: 100 * row["tflops"] / torch_at[row["n"]] for row in pick(rows, by=by)} for by in ("pointers", "descriptors")}
figures.curves(shares, f"At 1024³ {shares['pointers'][1024]:.0f} and {shares['descriptors'][1024]:.0f} % of PyTorch's speed, at 8192³ "
               f"{shares['pointers'][8192]:.0f} and {shares['descriptors'][8192]:.0f} %", words, "n, of an n × n × n product", "% of torch",
               log="x", ylim=(0, 115), ceilings={"torch": 100})

# %% [markdown]
# At $1024^3$ both are far behind: tiles of $128 \times 256$ make 32 programs, and an H100 has 132 SMs.
#
# **Takeaway.** Descriptors take over addresses, edges and masks. Whether they also save time, only a measurement says: in large products the two records here disagree.
#
# ### Registers and spills
#
# A tile of $C$ lives in registers as float32. A thread has 255 registers at most; the rest **spills** to memory. **Predict** for a tile of $128 \times 256$: how many registers of a thread do the sums alone take, with 8 warps and with 4?

# %%
my_sums = {"8 warps": None, "4 warps": None}

# %%
square = meta(4096, 4096)
given = common | {"A": square, "B": square, "C": square, "precision": "ieee", "stride_Bk": 4096, "stride_Bn": 1}
small, large = {"B_m": 128, "B_n": 128, "B_k": 64, "num_warps": 8}, {"B_m": 128, "B_n": 256, "B_k": 64, "num_warps": 8}
yours = {"B_m": 64, "B_n": 128, "B_k": 64, "num_warps": 4}                       # change these
choices = {"A100": (80, small), "H100": (90, large), "B200": (100, large), "H100, 4 warps": (90, large | {"num_warps": 4}),
           "H100, your tile": (90, yours)}
binaries = compile_all([(matmuls.matmul_kernel, given | tile, arch) for arch, tile in choices.values()])
compare("registers of the sums", my_sums, {f"{warps} warps": 128 * 256 // (32 * warps) for warps in (8, 4)})
for name, binary in zip(choices, binaries, strict=True):
    unit = next(word for word in ("tcgen05.mma", "wgmma", "mma.sync") if word in binary.ptx)
    print(f"{name:>15}: {unit:<11} {binary.registers:>3} registers, {binary.spills:>5} bytes spilled, "
          f"{binary.shared_bytes / 1024:.0f} KiB of shared memory")

# %% [markdown]
# **Change this and run again**: which tile would you choose for $1024^3$, so that more than 32 programs run, without spills? What spills cost, with pointers and with descriptors:

# %%
tile = {"B_m": 128, "B_n": 256, "B_k": 64, "num_stages": 3}
rows, words = numbers("matmul_tiles", needs=[tile | {"by": "pointers", "num_warps": warps} for warps in (4, 8)])
speeds = {f"{row['by']}, {row['num_warps']} warps": row["tflops"] for row in pick(rows, **tile)}
cost = speeds["pointers, 8 warps"] / speeds["pointers, 4 warps"]
spilled = {row["num_warps"]: 32 * (row["spill_load_sectors"] + row["spill_store_sectors"]) / 1e9
           for row in pick(counted, kernel="matmul") if "num_warps" in row}
print(f"spilled at 8192³: {spilled[8]:.0f} GB with 8 warps, {spilled[4]:.0f} GB with 4 (hardware counters)")
figures.bars(speeds, f"Half the warps, {cost:.1f} times the time", words, "TFLOP/s", worse=tuple(n for n in speeds if "4 warps" in n))

# %% [markdown]
# Spills are traffic.
#
# **Takeaway.** Read registers, spills, shared memory and instructions before you measure.
#
# ### Why atomics are slow
#
# To sum a vector, every program may add its part to one number in memory. Two must not do so at once, so each addition has to be **atomic**, and they queue. Three kernels sum 16 million numbers: with an atomic for each element; with one for each block, after `tl.sum`; and with none, but a second launch that adds up the blocks' sums.

# %%
rows, words = numbers("atomics", needs=[{"how": how} for how in ("element", "block", "partial")])
ms = {row["how"]: row["ms"] for row in rows}
results = {row["how"]: row["different_results_of_20"] for row in rows}
print("different results in 20 runs:", results)
figures.bars(ms, f"An atomic for each element takes {ms['element'] / ms['partial']:.0f} times as long, one for each block "
                 f"{ms['block'] / ms['partial']:.2f} times", words, "ms", log=True, worse=("element",))

# %% [markdown]
# Atomics have a second price: the order of the additions changes from run to run, and so do the last digits of a float32 sum.
#
# **Takeaway.** Reduce on chip first. Then one atomic for each program takes about as long as a second launch; only the second launch gives the same digits every time.
#
# ### An open question
#
# At $1024^3$ the product reaches less than half of PyTorch's speed. What is the limit there, and at $8192^3$? `figures.times_touched` (chapter 09) shows the loads of a tile.
#
# ## Sources
#
# NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/) (ld, cp.async, mma, wgmma, tcgen05) · Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · [Triton's tutorials](https://triton-lang.org/main/getting-started/tutorials/), 03 (grouped order) and 09 (descriptors) · Triton's pull requests [9667](https://github.com/triton-lang/triton/pull/9667) and [10833](https://github.com/triton-lang/triton/pull/10833) (the end of block pointers)
#
# **Next:** [10 · The forward kernel in Triton](10_triton_forward.ipynb).
