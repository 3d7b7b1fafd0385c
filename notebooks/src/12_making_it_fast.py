# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 12 · Making it fast
#
# **You will be able to** explain how base 2, a split loop, tile sizes, a pipeline and TMA change a kernel's code, instructions and speed; and say why a backward kernel adds up $dQ$ in memory.
#
# **You need** chapters 06, 10 and 11 with their exercises; 09b helps · **further:** sittings 1 to 8, 20 to 40 minutes each · **runs on** CPU or GPU; Triton, so Linux
#
# Triton compiles for an H100 on any machine. So you find registers, shared memory and instructions on yours. Run times were recorded on an H200.

# %%
import flashlab  # first: it tells Triton whether to compile or to interpret
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import heapq
import re
import statistics

import torch

from flashlab import cost, ladder
from flashlab.kernels import fa2, fa2_exp2, fa2_pipelined, fa2_split, fa2_tma, fa2_tma_backward, tuning
from flashlab.kernels.launch import best_tiles
from flashlab.operator import pick
from flashlab.triton_mode import interpreted
from flashlab_course import bench, figures
from flashlab_course.check import check
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all
from flashlab_course.figures.chapter_12 import gains, search_rows, standing
from flashlab_course.figures.words import label                       # "fa2_exp2_forward" -> "+ base 2"
from flashlab_course.gpu import banks, schedule
from flashlab_course.gpu.occupancy import occupancy
from flashlab_course.lesson import changes, compare, reveal
from flashlab_course.player import play, record_kernel

# %% [markdown]
# ## Sitting 1 (further) · Powers of two (30 minutes)
#
# ### The ladder
#
# Each rung changes one thing in the kernel of the rung before, so a diff shows the change. Chapter 12b builds one more kernel, for Hopper.

# %%
figures.ladder(ladder.KERNELS[:-1])

# %% [markdown]
# Compile them for an H100: 16 heads, $N = 4096$, $d = 128$, causal, bfloat16. A tensor on the device `meta` has a shape but no numbers.

# %%
kernels = {"fa2_triton_forward": fa2.fa2_forward_kernel, "fa2_exp2_forward": fa2_exp2.fa2_exp2_kernel,
           "fa2_split_forward": fa2_split.fa2_split_kernel, "fa2_pipelined_forward": fa2_pipelined.KERNEL,
           "fa2_tma_forward": fa2_tma.KERNEL}


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def arguments_of(name, d=128):
    Q, L = meta(1, 16, 4096, d), meta(1, 16, 4096, dtype=torch.float32)
    tiles = {"tiles": tuning.Tiles(*best_tiles(d, Q.dtype, True))} if name == "fa2_tma_forward" else {}     # those of the rungs before
    return ladder.rung(name).launch(Q, Q, Q, Q, L, causal=True, scale=d**-0.5, **tiles)[1]


made = dict(zip(kernels, compile_all([(kernel, arguments_of(name), 90) for name, kernel in kernels.items()]), strict=True))

# %%
def threads_of(gpu):
    return int(re.search(r"\.reqntid\s+(\d+)", gpu.ptx)[1])


def show_instructions(names, **kinds):
    """How often each pattern stands in a rung's PTX."""
    for name in names:
        found = {kind.replace("_", " "): len(re.findall(pattern, made[name].ptx)) for kind, pattern in kinds.items()}
        print(f"{label(name)}: {', '.join(f'{kind} {many}' for kind, many in found.items())} (in the PTX compiled here)")

# %% [markdown]
# Load the recorded times. One rule decides every claim about speed. The gain is the ratio of the median times. If the ranges of the repeated runs (20th to 80th percentile) overlap, two kernels are **tied**; otherwise the faster one is **ahead**.

# %%
forward, backward, searched = (bench.load_results(f"{what}_h200") for what in ("forward", "backward", "tune"))


def median_gain(name, **size):
    """Over the rung before, at all recorded forward sizes that agree with `size`."""
    return statistics.median(ratio for row, ratio, _ in gains(forward, name)
                             if all(row[key] == value for key, value in size.items()))


print(f"recorded on {bench.where(forward)}")

# %% [markdown]
# ### Powers of two
#
# A GPU computes $2^x$ in one instruction. For $e^x$ it multiplies by $\log_2 e$ first. Attention has already multiplied the score by the scale, and the two factors can be one.
#
# **Your turn** ([exercises/ex12_exp2.py](../exercises/ex12_exp2.py), 20 minutes). Write the loop in base 2. $L$ stays a natural logarithm.

# %%
check("ex12_exp2")

# %%
reveal("ex12_exp2")

# %% [markdown]
# Here is the same change in the kernel (`-` is chapter 10's line). From here on, the rungs have no dropout.

# %%
print(changes(fa2.fa2_forward_kernel, fa2_exp2.fa2_exp2_kernel))

# %% [markdown]
# Before each exponential, two multiplications and a subtraction become one multiply-add:

# %%
show_instructions(("fa2_triton_forward", "fa2_exp2_forward"), multiply=r"\bmul\.f32", subtract=r"\bsub\.f32",
                  multiply_and_add=r"\bfma\.rn\.f32", power_of_2=r"\bex2\.")

# %% [markdown]
# **Predict.** A score costs two products of $d$ numbers on the tensor cores, and a few single operations on other units. A mask adds two of those, and this rung does not change them. Where does base 2 gain more: at $d = 64$ or 128, with the causal mask or without?

# %%
my_larger_gain = {"d": None, "mask": None}     # "64" or "128"; "causal" or "no mask"

# %%
ds = {str(d): median_gain("fa2_exp2_forward", d=d) for d in (64, 128)}
masks = {name: median_gain("fa2_exp2_forward", causal=name == "causal") for name in ("causal", "no mask")}
said = compare("where base 2 gains more", my_larger_gain, {"d": max(ds, key=ds.get), "mask": max(masks, key=masks.get)})
figures.gain_of_rung(forward, "fa2_exp2_forward")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# At $d = 64$ a score needs half the work in products, so each saved operation is a larger share of the time. With a mask it is a smaller share of the single operations.
#
# </details>
#
# **Takeaway.** Tensor cores compute the products. A few other operations for each score run on slower units, and each counts.
#
# *End of sitting 1. To continue later, run the notebook from the top.*

# %% [markdown]
# ## Sitting 2 (further) · Split the loop (30 minutes)
#
# A mask costs a comparison and a selection for each score, but only tiles on the diagonal need it.
#
# **Predict.** $N = 4096$, causal, tiles of 128 queries and 64 keys: in how many per cent of the visited tiles is any score hidden?

# %%
my_crossed = None     # per cent

# %%
visible = torch.ones(4096, 4096, dtype=torch.bool).tril().unflatten(0, (-1, 128)).unflatten(2, (-1, 64))    # (T_r, B_r, T_c, B_c)
visited, whole = visible.any(3).any(1), visible.all(3).all(1)
crossed = visited & ~whole
said = compare("visited tiles that need a mask", my_crossed, 100 * crossed.sum().item() / visited.sum().item(), "%")
print(f"{crossed.sum()} of {visited.sum()} tiles cross the diagonal; a query block has at most {crossed.sum(1).max()} of them")

# %% [markdown]
# So use two loops: one without masks for tiles that hide nothing, and one for the rest.
#
# **Your turn** ([exercises/ex12_split.py](../exercises/ex12_split.py), 20 minutes). Where does the first loop end, and where the second? Unlike in chapter 06, a short last key block needs a mask.

# %%
check("ex12_split")

# %%
reveal("ex12_split")

# %% [markdown]
# `tl.static_range` is unrolled at compile time. Its two passes become two loops, and `if masked` leaves no branch.

# %%
print(changes(fa2_exp2.fa2_exp2_kernel, fa2_split.fa2_split_kernel))

# %% [markdown]
# Watch the tiles of a short sequence. The lines under `if masked` run only on the diagonal.

# %%
def play_split():
    return play(record_kernel(fa2_split.fa2_split_forward, *torch.randn(3, 1, 1, 64, 16), causal=True, B_r=16, B_c=16))


play_split() if interpreted() else print("Kernels are compiled here. Set TRITON_INTERPRET=1 to see the player.")

# %% [markdown]
# Two loops contain powers and products twice, but most selections only once:

# %%
show_instructions(("fa2_exp2_forward", "fa2_split_forward"), selections=r"\bselp\.", powers_of_2=r"\bex2\.", products=r"wgmma\.mma_async")

# %% [markdown]
# **Predict.** With the causal mask, is the gain larger at $N = 512$ or at 16,384?

# %%
my_N_of_larger_gain = None     # 512 or 16384

# %%
by_N = {str(N): median_gain("fa2_split_forward", causal=True, N=N) for N in (512, 16384)}
said = compare("N at which the split gains more", my_N_of_larger_gain, max(by_N, key=by_N.get))
figures.gain_of_rung(forward, "fa2_split_forward")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The longer the sequence, the smaller the share of tiles on the diagonal. A second loop also has a cost, which sitting 5 shows.
#
# </details>
#
# **Takeaway.** Take work that few tiles need out of the main loop.
#
# *End of sitting 2.*

# %% [markdown]
# ## Sitting 3 (further) · Search for tile sizes (30 minutes)
#
# A larger tile reads less from memory, but takes more registers and shared memory, so fewer programs fit on an SM. Arithmetic rules out what cannot run. The rest must be tried on the GPU.
#
# **Your turn** ([exercises/ex12_prune.py](../exercises/ex12_prune.py), 20 minutes). Keep the choices that fit into shared memory and have enough rows for each warp.

# %%
check("ex12_prune")

# %%
reveal("ex12_prune")

# %% [markdown]
# Prune the course's grid for $d = 128$, and compile four of the rest.

# %%
kept = tuning.candidates(128, 128, torch.bfloat16, SHARED_LIMIT[90])
some = kept[::len(kept) // 4][:4]
tried = compile_all([(fa2_split.KERNEL, arguments_of("fa2_split_forward") | tiles._asdict(), 90) for tiles in some])
print(f"{len(kept)} choices are left")
rows = [{"name": f"{t.B_r} × {t.B_c}, {t.num_warps} warps, {t.num_stages} stages", "registers": gpu.registers, "spills": gpu.spills,
         "shared": gpu.shared_bytes, "limit": SHARED_LIMIT[90]} for t, gpu in zip(some, tried, strict=True)]
figures.compiled_kernels(rows)

# %% [markdown]
# `triton.autotune` is Triton's own search. It takes a list of `triton.Config` and the arguments to key on. When a call brings new values of those, it first times every `Config`, and the process remembers the fastest. Without a GPU this cell passes a stopwatch. Its times say nothing about a GPU.

# %%
import time

import triton


def stopwatch(call, quantiles):
    begin = time.perf_counter()
    call()
    return [time.perf_counter() - begin] * len(quantiles)


configs = [triton.Config({"B_r": B_r, "B_c": 32}, num_warps=4, num_stages=2) for B_r in (32, 64)]
tune = triton.autotune(configs, key=["N_k", "d"], do_bench=None if torch.cuda.is_available() else stopwatch)

# %%
searching = tune(fa2.fa2_forward_kernel)                   # as a line @triton.autotune(...) above @triton.jit would make it


def call_searching(N, d):
    X = torch.randn(1, 1, N, d, device="cuda" if torch.cuda.is_available() else "cpu")
    arguments = fa2.launch(X, X, X, torch.empty_like(X), X[..., 0].contiguous(), causal=False, scale=d**-0.5)[1]
    searching[lambda chosen: (triton.cdiv(N, chosen["B_r"]),)](**{name: arguments[name] for name in searching.arg_names if name not in ("B_r", "B_c")})
    return len(searching.cache)


print("keys searched after each call:", [call_searching(*size) for size in ((64, 32), (64, 32), (128, 32), (64, 16))])

# %% [markdown]
# Use `autotune` while the kernel still changes: it costs one line. But every process searches again, and a call with a new length waits for the search. A kernel that others call needs a file of times, as `python -m flashlab bench tune` does. The key of such a table holds whatever makes it useless when it changes:

# %%
print(tuning.key(fa2_split.KERNEL, 128, 128, torch.bfloat16, True))

# %% [markdown]
# Here is a recorded search.

# %%
timed, by_hand = search_rows(searched, "fa2_tuned_forward", 64, 4096, False), best_tiles(64, torch.bfloat16, False)
for what, tiles in {"fastest": timed[0]["tiles"], "slowest": timed[-1]["tiles"], "picked by hand": by_hand}.items():
    print(f"{what}: {tiles[0]} × {tiles[1]}, {tiles[2]} warps, {tiles[3]} stages")
print(f"rung “+ tuned” against the rung before: {standing(gains(forward, 'fa2_tuned_forward'))}")
figures.times_of_tiles(timed, f"Recorded on {bench.where(searched)}: {label('fa2_tuned_forward')}, "
                       "d = 64, N = 4096, no mask.")

# %% [markdown]
# With one stage nothing is loaded ahead. “+ tuned” is the rung before with other tiles, so a search helps only if the hand-picked tiles were bad.
#
# **Takeaway.** Rule out by arithmetic, compile, time, keep the result. An edited kernel is another kernel, so its source belongs in the key.
#
# *End of sitting 3.*

# %% [markdown]
# ## Sitting 4 (further) · What fits on an SM (35 minutes)
#
# ### Registers: how many programs fit
#
# While one program waits, another program on the same SM can work.
#
# **Your turn** ([exercises/ex12_registers.py](../exercises/ex12_registers.py), 20 minutes). Compute the number of programs per SM from warps, registers and shared memory.

# %%
check("ex12_registers")

# %%
reveal("ex12_registers")

# %% [markdown]
# Here is the compiler's report on chapter 10's kernel. **Predict** how many of its programs fit on an SM.

# %%
first = made["fa2_triton_forward"]
print(f"{threads_of(first)} threads, {first.registers} registers each, {first.shared_bytes:,} bytes of shared memory (compiled here)")
my_programs = None

# %%
fit = occupancy(threads_of(first), first.registers, first.shared_bytes)
said = compare("programs of chapter 10's kernel on an SM", my_programs, fit.blocks)
figures.blocks_that_fit(threads_of(first), first.registers, first.shared_bytes)

# %% [markdown]
# **Takeaway.** *Occupancy*, the share of an SM's threads that are in use, is no goal in itself. But a kernel with one large program per SM must hide its own waiting.

# %% [markdown]
# ### Shared memory: banks and swizzling
#
# Shared memory has 32 *banks* of 4 bytes, and each bank delivers one word per step. A row of 64 16-bit numbers is 128 bytes, as wide as all banks. Cut each row into eight pieces of 16 bytes. A matrix instruction reads the same piece of eight rows at once.
#
# *Swizzling* stores piece $p$ of row $r$ at place $p \oplus (r \bmod 8)$ of its row. One can also pad each row to 144 bytes. **Predict** how many steps it takes to read piece 2 of eight rows.

# %%
my_bank_steps = {"rows as they are": None, "swizzled": None, "rows padded to 144 bytes": None}

# %%
found = {"rows as they are": banks.steps(banks.column_of_pieces(2)),
         "swizzled": banks.steps(banks.column_of_pieces(2, banks.swizzled)),
         "rows padded to 144 bytes": banks.steps(banks.column_of_pieces(2, row_bytes=144))}
said = compare("steps to read a column of pieces", my_bank_steps, found)
lies = {name: torch.tensor([sorted(range(8), key=lambda piece: place(row, piece)) for row in range(8)])       # noqa: B023
        for name, place in (("row after row", banks.plain), ("swizzled", banks.swizzled))}
figures.matrices({name: ((pieces == 2).float(), pieces.tolist()) for name, pieces in lies.items()}, "Different places of piece 2 in eight rows: " + ", ".join(f"{len({row.index(2) for row in pieces.tolist()})} ({name})" for name, pieces in lies.items()),
                 "Modelled: rows of 64 numbers of 16 bits in pieces of 16 bytes; a column is four banks of 4 bytes.", "place in the row", "row")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Without swizzling all eight pieces lie in the same four banks: a *bank conflict*.
#
# </details>
#
# Padding costs memory, and Hopper's units are built for swizzled tiles.

# %% [markdown]
# ### The matrix instruction
#
# Hopper's matrix instruction is `wgmma`. Four warps, a **warpgroup**, issue it together, for 64 rows, up to 256 columns and a depth of 16. It reads its right operand from swizzled shared memory. It is *asynchronous*: a program issues it, does something else, and waits for it later.
#
# **Predict.** A tile has 128 queries and 64 keys, $d = 128$, and the program has two warpgroups with 64 rows each. How many `wgmma` does a warpgroup issue for a tile, both products together?

# %%
my_wgmma = None

# %%
shapes = re.findall(r"wgmma\.mma_async\.sync\.aligned\.(m\d+n\d+k\d+)", made["fa2_exp2_forward"].ptx)
_ = compare("matrix instructions for a tile", my_wgmma, len(shapes))
print("their shapes, in the PTX compiled here:", ", ".join(f"{shapes.count(shape)} of {shape}" for shape in dict.fromkeys(shapes)))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# A shape names rows (m), columns (n) and depth (k). $S$ has depth $d$ and needs $128 / 16 = 8$. $PV$ has depth $B_c$ and needs $64 / 16 = 4$.
#
# </details>
#
# Between the two products $S$ becomes $P$, and a result becomes a left operand. Each thread already holds the right elements:

# %%
lanes = {name: [[lane(row, column) for column in range(16)] for row in range(16)] for name, lane in
         (("S, the result of the first product", banks.accumulator_lane), ("P, the left operand of the second", banks.operand_lane))}
assert len({str(lane) for lane in lanes.values()}) == 1
figures.matrices(lanes, "Every lane holds the same elements of S and of P: nothing has to move",
                 "Definition: PTX, mma.m16n8 and m16k16 with 16-bit operands. In the cells: the lane of the warp.", "column", "row")

# %% [markdown]
# **Takeaway.** $P$ never leaves the registers in which it was computed, because the warps split the rows of $Q$ (chapter 06).
#
# *End of sitting 4.*

# %% [markdown]
# ## Sitting 5 (further) · Copies that run ahead (40 minutes)
#
# A loop loads $A$, loads $B$, multiplies and stores. Each of the four has a unit of its own and takes one step of time. **Predict** the steps for 6 iterations: one after the other, and overlapped, where each unit starts the next iteration as soon as it is free.

# %%
my_steps = {"one after the other": None, "overlapped": None}

# %%
loops = {name: schedule.iterations(schedule.FOUR_STEPS, 6, overlapped=name == "overlapped") for name in my_steps}
said = compare("six iterations of four steps", my_steps, {name: schedule.finish(spans) for name, spans in loops.items()})
figures.timelines(loops, "multiply", "six iterations of load A, load B, multiply, store C; every step takes as long.")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $4n$ steps become $n + 3$: three steps fill the *pipeline*, then each iteration takes one.
#
# </details>
#
# Attention's loop has two parts: copying $K_j$ and $V_j$, and computing with them. The copies need *slots* in shared memory; Triton calls their number `num_stages`. **Predict** the time for 8 tiles. Computing takes 3 steps a tile and copying 2, but the copies of tiles 3 and 6 (counted from 0) take 6. A copy starts when the copy before has ended and a slot is free.

# %%
my_slots = {"1 slot": None, "2 slots": None, "3 slots": None}

# %%
copies, work = [2, 2, 2, 6, 2, 2, 6, 2], [3] * 8
waits = {name: schedule.pipelined(copies, work, slots) for slots, name in enumerate(my_slots, 1)}
said = compare("time with so many slots", my_slots, {name: schedule.finish(spans) for name, spans in waits.items()})
figures.timelines(waits, "compute", "copies of 2 steps, two of them of 6, beside work of 3 steps a tile.")

# %% [markdown]
# One slot overlaps nothing. A second one hides copies that are shorter than the work. Further slots help only when a copy is late.
#
# **Your turn** ([exercises/ex12_pipeline.py](../exercises/ex12_pipeline.py), 25 minutes). Program a pipeline on a modelled machine: start copies, wait for them, compute.

# %%
check("ex12_pipeline")

# %%
reveal("ex12_pipeline")

# %% [markdown]
# Two loops are two pipelines, and the second one starts empty. **Predict** how many steps longer 6 tiles take in loops of 4 and 2 than in one: copies of 2 steps, work of 3, two slots.

# %%
my_second_filling = None

# %%
one, former, latter = (schedule.pipelined([2] * n, [3] * n, 2) for n in (6, 4, 2))
end = schedule.finish(former)
two = former + [span._replace(start=span.start + end, end=span.end + end, name=str(int(span.name) + 4)) for span in latter]
said = compare("what a second filling costs", my_second_filling, schedule.finish(two) - schedule.finish(one), "steps")
figures.timelines({"one loop": one, "split in 4 and 2": two}, "compute", "copies of 2 steps, work of 3 steps, two slots.")

# %% [markdown]
# The next rung goes back to one loop, with the mask in a branch. All threads of a program take the same branch.

# %%
print(changes(fa2_split.fa2_split_kernel, fa2_pipelined.KERNEL))

# %%
pipelined = {d: standing([one for one in gains(forward, "fa2_pipelined_forward") if one[0]["d"] == d]) for d in (64, 128)}
figures.gain_of_rung(forward, "fa2_pipelined_forward")

# %% [markdown]
# With $d = 64$: {{pipelined[64]}}. With $d = 128$: {{pipelined[128]}}. The pipeline fills once, but every tile pays for a branch. Whether these explain the difference is not known.
#
# **Takeaway.** The compiler builds the pipeline. The kernel decides how often it fills.
#
# *End of sitting 5.*

# %% [markdown]
# ## Sitting 6 (further) · TMA, and what is left (20 minutes)
#
# ### TMA
#
# So far, threads copy tiles with `cp.async`, and compute an address and a mask for each 16 bytes. Hopper's *Tensor Memory Accelerator* copies whole tiles. The host describes the tensor in a *descriptor*. Then one thread asks for a tile by its coordinates. TMA fills in zeros past the edges, and it swizzles.

# %%
lines = changes(fa2_pipelined.KERNEL, fa2_tma.KERNEL).splitlines()
print(f"{sum(line.startswith('-') for line in lines)} lines went. These came:")
print("\n".join(line for line in lines if line.startswith("+")))

# %%
for name in ("fa2_pipelined_forward", "fa2_tma_forward"):
    print(f"{label(name)}: {made[name].registers} registers a thread (compiled here)")
show_instructions(("fa2_pipelined_forward", "fa2_tma_forward"), copies_by_threads=r"cp\.async\.cg",
                  copies_by_TMA=r"cp\.async\.bulk\.tensor", comparisons=r"\bsetp\.")

# %%
figures.gain_of_rung(forward, "fa2_tma_forward")

# %% [markdown]
# The threads no longer compute addresses and masks. Both kernels had the same tiles here. The saved registers also allow larger ones:

# %%
by_tiles = {tuple(row["tiles"]): row["ms"] for row in bench.load_results("tune_h200", "TMA")["rows"] if row["causal"]}
faster = by_tiles[128, 64, 8, 3] / by_tiles[128, 128, 8, 3]
print(f"128 keys in a tile instead of 64: {faster:.2f} times as fast (recorded in a search, without ranges: d = 128, N = 4096, causal)")

# %% [markdown]
# For TMA the elements of a row must be neighbors, and rows must start at multiples of 16 bytes. A rung that refuses a call says why, and the operator runs another:

# %%
Q = meta(1, 16, 4096, 128)
for name, given in {"contiguous": Q, "every second column": meta(1, 16, 4096, 256)[..., ::2]}.items():
    print(f"{name}: {fa2_tma.why_not(given, given, given) or 'taken'}")

# %% [markdown]
# **Takeaway.** A unit that copies by itself saves registers and instructions. Only a measurement tells whether that saves time.

# %% [markdown]
# ### Long blocks first
#
# Causal query blocks differ in length, from 2 to 64 tiles here. If an SM gets a long block last, all others wait for it. An ordinary grid gives the next block to the SM that is free first. A *persistent* kernel starts only as many programs as run at the same time, and each takes block after block. The blocks come from a counter that all programs share, or from a fixed list: of $P$ programs, program $p$ takes the blocks $p$, $p + P$, $p + 2P$, …
#
# **Predict.** Four blocks of 2, 4, 6 and 8 tiles, and two SMs. When is the last block done? In the fixed list, SM 0 takes the first and third entry, SM 1 the second and fourth.

# %%
my_ends = {"shortest first, free SM next": None, "longest first, free SM next": None, "longest first, fixed list": None}

# %%
def last_end(lengths, sms):
    """A free SM takes the next block: when is the last one done?"""
    free = [0] * sms
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def three_ways(up, sms):
    down = up[::-1]
    return {"shortest first, free SM next": last_end(up, sms), "longest first, free SM next": last_end(down, sms),
            "longest first, fixed list": max(sum(down[p::sms]) for p in range(sms))}


said = compare("when the last block is done", my_ends, three_ways([2, 4, 6, 8], 2))
lengths = sorted([2 * (i + 1) for i in range(32)] * 64)
lost = {name: 100 * (end / (sum(lengths) / 132) - 1) for name, end in three_ways(lengths, 132).items()}
figures.bars(lost, f"Longest first: a fixed list costs {lost['longest first, fixed list']:.1f} % of the time, "
             f"the next free SM {lost['longest first, free SM next']:.1f} %",
             "Modelled: 64 heads of 32 causal blocks, 2 to 64 tiles long, on 132 SMs with a program each.", "% longer than at best")

# %% [markdown]
# In a fixed list from long to short, the first program gets the longest block of every round. Chapter 12b builds a persistent kernel with a counter.
#
# **Takeaway.** Do long blocks first, and assign blocks dynamically.

# %% [markdown]
# ### Where the ladder continues
#
# What still takes time in the TMA rung? Leave out one part. The result is wrong, but the clock shows what the part costs.

# %%
run = bench.load_results("parts_h200")
ms = {row["left_out"]: row["ms"] for row in run["rows"] if row["d"] == 128}
saved = {name: 100 * (1 - part / ms["nothing"]) for name, part in ms.items() if name != "nothing"}
figures.bars(saved, f"Without its softmax the kernel would be done {saved['softmax']:.0f} % earlier",
             f"Recorded on {bench.where(run)}: fa2_tma_forward with a part left out, d = 128, N = 4096, no mask.", "% of the time saved")

# %% [markdown]
# The softmax needs no tensor cores, but costs {{saved['softmax']:.0f}} % of the time: while a warp computes exponentials, its tensor core waits. The last rung overlaps the two. Chapter 12b builds it in Gluon, the language below Triton.

# %%
d, N, causal = 128, 4096, True                          # change me: 64 or 128; 512, 1024, ... 16384; True or False
figures.kernels_beside_peers(forward, d, N, causal)

# %%
beside_fa4 = bench.load_results("forward_h200", "FlashAttention-4")
larger = [ratio for _, ratio, _ in gains(bench.load_results("forward_h200", "TMA"), "fa2_hopper_forward")]
print(f"{min(larger):.2f} to {max(larger):.2f} times as fast as “+ TMA” with larger tiles (recorded)")
print(f"against cuDNN: {standing(gains(forward, 'fa2_hopper_forward', 'sdpa_cudnn'))} (recorded)")
figures.gain_of_rung(beside_fa4, "fa2_hopper_forward", "fa4")

# %% [markdown]
# FlashAttention-4's algorithm is made for Blackwell GPUs. These are its kernels for Hopper, in NVIDIA's CuTe DSL (Python). FlashAttention-3 has not been timed.
#
# **Predict** for a GPU's counters: 16 heads, $N = 4096$, $d = 128$, bfloat16. How many MB of $Q$, $K$ and $V$ must a kernel read from DRAM at least?

# %%
my_megabytes = None     # a MB is a million bytes

# %%
counted = bench.load_results("counters_h200")
seen = {row["implementation"]: row["kernels"][0] for row in counted["rows"]}
Q_bytes = 16 * 4096 * 128 * 2
dram = [kernel["dram_read"] / (3 * Q_bytes) for kernel in seen.values()]
said = compare("MB that must be read", my_megabytes, 3 * Q_bytes / 1e6, "MB")
for name, kernel in seen.items():
    print(f"{label(name)}: {kernel['dram_read'] / 1e6:.0f} MB read from DRAM, issues in {kernel['issue_slots']:.0f} % of its slots (recorded)")
figures.bars({name: kernel["tensor_pipe"] for name, kernel in seen.items()},
             f"In the last rung the tensor cores work {seen['fa2_hopper_forward']['tensor_pipe']:.0f} % of the time",
             f"Recorded on {bench.where(counted)}, by ncu: 16 heads, d = 128, N = 4096, no mask.", "% of the time")

# %% [markdown]
# From DRAM they read {{min(dram):.3f}} to {{max(dram):.3f}} times $Q$, $K$ and $V$. The L2 cache serves the rest.
#
# Which rung runs your call? `flash_attention` asks from the top of the ladder. Small calls go to a rung without TMA.

# %%
here = "cuda" if torch.cuda.is_available() else "cpu"
X = torch.empty(1, 16, 4096, 128, dtype=torch.bfloat16, device=here)
print(f"on this machine's {here}: {pick.explain(X, X, X, causal=True)}\na call of fewer than {pick.SMALL:,} scores is small")

# %% [markdown]
# **Takeaway.** When bytes and occupancy are equal, ask which unit waits for which.
#
# *End of sitting 6.*

# %% [markdown]
# ## Sitting 7 (further) · Whose turn is it? (35 minutes)
#
# Let two warpgroups, the *consumers*, share the tensor cores. Without coordination both multiply at the same time, at half the speed each. Then both compute exponentials, and the tensor cores wait:

# %%
free_runners = [[(what, n) for n in range(5) for what in ("product", "softmax")] for _ in range(2)]
figures.timelines({"left alone": schedule.take_turns(free_runners, product=2, softmax=2)[0]}, "tensor cores",
                  "two consumers; products at the same time share the tensor cores.")

# %% [markdown]
# **Your turn** ([exercises/ex12_turns.py](../exercises/ex12_turns.py), 30 minutes). Let *barriers* make them alternate: write the program of one consumer. In this model the turn passes when a product has ended. Chapter 12b's kernel passes it as soon as the product has been issued.

# %%
check("ex12_turns")

# %%
reveal("ex12_turns")

# %% [markdown]
# *End of sitting 7.*

# %% [markdown]
# ## Sitting 8 (further) · The backward pass, and the next GPU (35 minutes)
#
# ### Backward: one kernel or two?
#
# Chapter 11 computes $S$ and $dP$ twice: with a key block fixed, for $dK$ and $dV$, and with a query block fixed, for $dQ$. That makes 7 matrix products. One program owns each result and writes it once.
#
# One kernel with the key block fixed needs only 5 products. But then no single program owns $dQ_i$: every key block adds a part to it in memory, in float32.

# %%
sizes = {"B_r": 64, "B_c": 64, "element_size": 2}
models = {"two kernels": cost.fa2_backward_two_pass(4096, 4096, 128, **sizes), "one kernel": cost.fa2_backward(4096, 4096, 128, **sizes)}
moved = {name: (model.read + model.written) / 1e6 for name, model in models.items()}
products = models["one kernel"].matmul_flops / models["two kernels"].matmul_flops
figures.bars(moved, f"One kernel has {products:.0%} of the products and moves {moved['one kernel'] / moved['two kernels']:.0%} of the bytes",
             "Modelled: flashlab.cost, one head, N = 4096, d = 128, tiles of 64 × 64, 16 bits, dQ added up in float32.", "MB moved")

# %% [markdown]
# ### Backward: split loops
#
# The first backward rung splits the loops of both kernels:

# %%
print(f"“+ tuned” after it: {standing(gains(backward, 'fa2_tuned_backward'))} (recorded)")
figures.gain_of_rung(backward, "fa2_split_backward")

# %% [markdown]
# ### Backward: one kernel with atomic additions
#
# Programs add their parts of $dQ$ by atomic operations, in any order, and rounding depends on the order. Here are 64 parts of one element in 200 random orders:

# %%
torch.manual_seed(0)
parts = torch.randn(64) * torch.rand(64)
sums = []
for _ in range(200):
    total = torch.zeros(())
    for part in parts[torch.randperm(64)]:
        total = total + part
    sums.append(total.item())
exact = parts.double().sum().item()
figures.curves({"": {1e6 * (total - exact): sums.count(total) for total in sorted(set(sums))}},
               f"The same {len(parts)} parts in 200 orders: {len(set(sums))} different results in float32",
               "Measured here: one element of dQ, added up in random orders.", "result minus float64's, in 10⁻⁶", "orders", dots=True)

# %% [markdown]
# So this rung refuses a call that asks for the same bits each time:

# %%
print(ladder.rung("fa2_atomic_backward").why_not(Q, Q, Q, causal=True, deterministic=True))
figures.gain_of_rung(backward, "fa2_atomic_backward")

# %% [markdown]
# The gain is at most {{max(ratio for _, ratio, _ in gains(backward, 'fa2_atomic_backward')):.2f}}, below 7 products over 5, since adding in memory takes time.
#
# ### Backward: TMA adds tiles
#
# TMA can add as well as copy: a program hands over a whole tile of $dQ$ and goes on. But if all programs begin at query block 0, all add to $dQ_0$ first, then to $dQ_1$. So let program $j$ begin at query block $j$.
#
# **Your turn** ([exercises/ex12_dq_order.py](../exercises/ex12_dq_order.py), 10 minutes). In which order does program $j$ add to the tiles of $dQ$, with a mask and without?

# %%
check("ex12_dq_order")

# %%
reveal("ex12_dq_order")

# %% [markdown]
# Both were timed.

# %%
starts = {when: bench.load_results("backward_h200", when) for when in ("TMA, begun apart", "TMA, same start")}
by_tma = bench.load_results("backward_h200", "TMA")               # a later run, with the lean program of the next section
added = {(d, causal): standing([one for one in gains(by_tma, "fa2_tma_backward") if (one[0]["d"], one[0]["causal"]) == (d, causal)])
         for d in (64, 128) for causal in (False, True)}
to_cudnn = {when: {f"d = {row['d']}, N = {row['N']}{', causal' * row['causal']}": ratio
                   for row, ratio, _ in gains(run, "fa2_tma_backward", "sdpa_cudnn")} for when, run in starts.items()}
apart = {size: ratio / to_cudnn["TMA, same start"][size] for size, ratio in to_cudnn["TMA, begun apart"].items()}
full, half = ([ratio for size, ratio in apart.items() if ("causal" in size) == masked] for masked in (False, True))
figures.bars(dict(sorted(apart.items(), key=lambda one: "causal" in one[0])),
             f"Begun apart: {min(full):.2f} to {max(full):.2f} times as fast without a mask, {min(half):.2f} to {max(half):.2f} with one",
             f"Recorded on {bench.where(starts['TMA, begun apart'])}: two runs, each compared with its own cuDNN.",
             "times as fast", walls={"begin together": 1}, behind=[f"{ratio:.2f}" for ratio in full + half])

# %% [markdown]
# At $d = 64$ without a mask, this rung's program is also *lean*: two stages instead of three, and a limit on registers. **Predict** how many programs fit on an SM, with a mask and without.

# %%
L, narrow = meta(1, 16, 4096, dtype=torch.float32), meta(1, 16, 4096, 64)
jobs = [(*fa2_tma_backward.launch(*[narrow] * 5, L, None, *[narrow] * 3, causal=causal, scale=1 / 8)[1][::2], 90) for causal in (True, False)]
lean = dict(zip(("causal", "no mask, lean"), compile_all(jobs), strict=True))
for name, gpu in lean.items():
    print(f"{name}: {threads_of(gpu)} threads, {gpu.registers} registers each, {gpu.shared_bytes:,} bytes (compiled here)")
my_backward_programs = {"causal": None, "no mask, lean": None}

# %%
said = compare("programs on an SM", my_backward_programs, {name: occupancy(threads_of(gpu), gpu.registers, gpu.shared_bytes).blocks
                                                           for name, gpu in lean.items()})
figures.gain_of_rung(by_tma, "fa2_tma_backward")

# %% [markdown]
# The lean program has too few registers for two products at the same time. But while one program waits, others work. We do not know why the two $d$ differ:
#
# | against the rung before (recorded) | no mask | causal |
# |---|---|---|
# | $d = 64$ | {{added[64, False]}} | {{added[64, True]}} |
# | $d = 128$ | {{added[128, False]}} | {{added[128, True]}} |
#
# ### Backward: the Hopper kernel, and the same bits each time
#
# In the last rung one warp of each program only lets TMA add tiles of $dQ$.

# %%
figures.kernels_beside_peers(backward, d, min((1024, 4096, 16384), key=lambda size: abs(size - N)), causal)

# %%
print(f"against the TMA rung, in another run: {standing(gains(by_tma, 'fa2_hopper_backward'))} (recorded)")
print(f"against cuDNN: {standing(gains(backward, 'fa2_hopper_backward', 'sdpa_cudnn'))} (recorded)")
figures.gain_of_rung(backward, "fa2_hopper_backward", "fa4")

# %% [markdown]
# If a call asks for the same bits each time, programs take turns. A number in memory says whose turn it is at a tile of $dQ$.
#
# **Predict.** 8 key blocks, 8 tiles of $dQ$, no mask. Each program adds to one tile per step, and only one program at a time may add to a tile. How many steps does it take if every program begins at tile 0, and if program $j$ begins at tile $j$?

# %%
my_steps_in_turns = {"all begin at tile 0": None, "program j begins at tile j": None}

# %%
def steps_in_turns(blocks, begin):
    """At a tile one program adds per step, in a fixed order: steps until each has added to every tile."""
    at, step = {j: 0 for j in range(blocks)}, 0
    while any(k < blocks for k in at.values()):
        taken = set()
        for j in sorted((j for j in at if at[j] < blocks), key=lambda j: (-at[j], j)):
            tile = (begin(j) + at[j]) % blocks
            if tile not in taken:
                taken.add(tile)
                at[j] += 1
        step += 1
    return step


_ = compare("steps of programs that take turns", my_steps_in_turns, {"all begin at tile 0": steps_in_turns(8, lambda j: 0),
                                                                      "program j begins at tile j": steps_in_turns(8, lambda j: j)})

# %% [markdown]
# What do the turns cost? All four bars give the same bits each time. cuDNN does not promise that.

# %%
ordered = bench.load_results("backward_h200", "deterministic")
names = {"Hopper, in turns": "fa2_hopper_backward", "two kernels": "fa2_tuned_backward"}
same_bits = {f"{name}, d = {row['d']}": ratio for name, one in names.items() for row, ratio, _ in gains(ordered, one, "sdpa_cudnn")
             if (row["N"], row["causal"]) == (4096, False)}
figures.bars(same_bits, f"The same bits each time at {min(same_bits.values()):.2f} to {max(same_bits.values()):.2f} times cuDNN's speed",
             f"Recorded on {bench.where(ordered)}; N = 4096, no mask.", "times cuDNN's speed", walls={"cuDNN": 1}, behind=[f"{ratio:.2f}" for ratio in same_bits.values()])

# %% [markdown]
# **Takeaway.** In the backward pass no single program owns $dQ$. Compute it in a second kernel, or add it up in memory: in any order, or in turns for the same bits each time.

# %% [markdown]
# ### Blackwell, and FlashAttention-4, by experiment
#
# [FlashAttention-3](https://arxiv.org/abs/2407.08608) is made for Hopper: it has warps that only copy, consumers that take turns, and FP8. [FlashAttention-4](https://arxiv.org/abs/2603.05451) is made for the next generation, Blackwell. Each generation has a matrix instruction of its own:
#
# | GPU | instruction | issued by | left operand in | right operand in | sums in |
# |---|---|---|---|---|---|
# | A100 | `mma.sync` | a warp | registers | registers | registers |
# | H100 | `wgmma` | a warpgroup | registers or shared memory | shared memory | registers |
# | B200 | `tcgen05.mma` | one thread | tensor or shared memory | shared memory | tensor memory |
#
# *Tensor memory* is new: 256 KiB on each SM, separate from its registers. On a B200 two SMs can also carry out one instruction together. Compile chapter 10's kernel for all three:

# %%
jobs = [(fa2.fa2_forward_kernel, arguments_of("fa2_triton_forward"), arch) for arch in (80, 90, 100)]
for name, gpu in zip(("A100", "H100", "B200"), compile_all(jobs), strict=True):
    product = next(word for word in ("mma.sync", "wgmma.mma_async", "tcgen05.mma") if word in gpu.ptx)
    print(f"{name}: {gpu.ptx.count(product)} of {product}; two SMs together: {'yes' if 'cta_group::2' in gpu.ptx else 'no'} (compiled here)")

# %% [markdown]
# The compiler picks the instruction. But on Blackwell the algorithm has to change, too.
#
# **Predict.** In one clock an SM of a B200 does 8192 FLOPs of products and 16 exponentials. A tile has 128 queries and 128 keys, $d = 128$. How many cycles do its two products take, and its exponentials?

# %%
my_B200_cycles = {"products": None, "exponentials": None}

# %%
# 16 bits, dense. NVIDIA's white papers and data sheets; rates of a clock and SM: CUDA C++ Programming Guide, for the B200 FlashAttention-4
published = {"A100": {"TFLOP/s": 312, "TB/s": 1.555, "SMs": 108, "FLOPs": 2048, "exponentials": 16, "multiply-adds": 64},
             "H100": {"TFLOP/s": 989, "TB/s": 3.35, "SMs": 132, "FLOPs": 4096, "exponentials": 16, "multiply-adds": 128},
             "B200": {"TFLOP/s": 2250, "TB/s": 8, "SMs": 148, "FLOPs": 8192, "exponentials": 16, "multiply-adds": 128}}
cycles = {name: {"products": 4 * 128**3 / gpu["FLOPs"], "exponentials": 128**2 / gpu["exponentials"]} for name, gpu in published.items()}
said = compare("cycles of a tile on a B200", my_B200_cycles, cycles["B200"])
for name, gpu in published.items():
    clock = 1000 * gpu["TFLOP/s"] / gpu["SMs"] / gpu["FLOPs"]
    print(f"{name}: {gpu['TFLOP/s']} TFLOP/s, {gpu['TB/s']} TB/s, {gpu['SMs']} SMs, hence {clock:.2f} GHz; "
          f"{gpu['FLOPs'] // gpu['exponentials']} FLOPs of products for each exponential (published)")
shares = {name: of["exponentials"] / of["products"] for name, of in cycles.items()}
figures.bars({f"{name}: {unit}": count for name, of in cycles.items() for unit, count in of.items()},
             f"Exponentials take {shares['A100']:.0%} of the products' time on an A100, {shares['H100']:.0%} on an H100, {shares['B200']:.0%} on a B200",
             "Modelled from published rates: 128 queries, 128 keys, d = 128. Orange: what takes longest.", "cycles of an SM",
             worse=[f"{name}: {unit}" for name, of in cycles.items() for unit, count in of.items() if count == max(of.values())])

# %% [markdown]
# Products became faster and exponentials did not, and the softmax has further operations. FlashAttention-4 answers with two changes.
#
# **Rescale less often.** Any $m$ gives the same $O / l$ as long as no power overflows. So keep the old maximum until the new one is larger by more than 8, in base 2. Weights then stay at or below $2^8$. Without rescaling, a B200 need not read $O_i$ from tensor memory and write it back.

# %%
import math

from flashlab.oracle import max_error


def with_threshold(threshold, S, V, B_c=64):
    """A query block, scores (B_r, N) in base 2 -> O, the number of tiles that rescale, the largest weight"""
    m_i, l_i, O_i = torch.full((len(S),), -torch.inf), torch.zeros(len(S)), torch.zeros(len(S), V.shape[1])
    rescaled, largest = -1, 0.0                                            # the first tile has nothing to rescale
    for S_ij, V_j in zip(S.split(B_c, 1), V.split(B_c), strict=True):
        m_new = torch.maximum(m_i, S_ij.amax(1))
        if (m_new - m_i > threshold).any():                                # the plain rule: a threshold of 0
            alpha, m_i, rescaled = torch.exp2(m_i - m_new), m_new, rescaled + 1
            l_i, O_i = alpha * l_i, alpha[:, None] * O_i
        P_ij = torch.exp2(S_ij - m_i[:, None])
        l_i, O_i = l_i + P_ij.sum(1), O_i + P_ij @ V_j
        largest = max(largest, P_ij.max().item())
    return O_i / l_i[:, None], rescaled, largest

# %%
torch.manual_seed(0)
values = torch.randn(8192, 64)
for deviation in (1, 4):
    scores = deviation * torch.randn(4, 128, 8192)                         # four query blocks
    truth = torch.softmax(scores.double(), -1) @ values.double()
    for threshold in (0, 8):
        outputs, rescaled, largest = zip(*(with_threshold(threshold, S / math.log(2), values) for S in scores), strict=True)
        print(f"scores of deviation {deviation}, threshold {threshold}: {100 * sum(rescaled) / (4 * 127):.1f} % of tiles rescale, "
              f"largest weight {max(largest):.0f}, error {max_error(torch.stack(outputs), truth):.1e} (measured here)")

# %% [markdown]
# **Compute powers on other units.** $2^x$ is $2^{\lfloor x \rfloor} \cdot 2^f$ with $0 \le f < 1$. The first factor is an addition to the exponent's bits. The second takes a cubic polynomial: three multiply-adds.

# %%
x = (1 - torch.cos(torch.arange(5) * math.pi / 4).double()) / 2            # the error is to be ±E at these five places
system = torch.cat([x[:, None]**torch.arange(4) / 2**x[:, None], (-1.0)**torch.arange(5)[:, None]], 1)
c = torch.linalg.solve(system, torch.ones(5).double())[:4].float()
f = torch.arange(2**16) / 2**16
off = (((c[3] * f + c[2]) * f + c[1]) * f + c[0]).double() / 2**f.double() - 1
half_steps = [2.0**-9, 2.0**-8]                                            # of bfloat16, relative, at the end and the start of [1, 2)
print(f"largest relative error {off.abs().max():.1e}; half a step of bfloat16 is {half_steps[0] / off.abs().max():.0f} to "
      f"{half_steps[1] / off.abs().max():.0f} times as large (measured here)")
print(f"a B200 does {published['B200']['multiply-adds'] // published['B200']['exponentials']} multiply-adds in the time of an exponential; "
      f"a quarter of the powers done so leaves {0.75 * cycles['B200']['exponentials']:.0f} cycles of {cycles['B200']['exponentials']:.0f}")

# %% [markdown]
# $P$ is rounded to bfloat16 in any case, so the polynomial's error hardly matters. FlashAttention-4 computes a part of the powers in this way. The course's kernels have not been timed on a B200.
#
# **Takeaway.** Count the cycles of each unit. If one becomes faster, another sets the pace.

# %% [markdown]
# ## An open question
#
# Suppose that $P$ is stored in e4m3 (chapter 13), whose largest number is 448 and whose smallest is $2^{-9}$. Which threshold would you choose, and which weights does it turn into 0?
#
# ## Sources
#
# NVIDIA, white papers on the A100 and the H100 and data sheet of the B200 · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608) · Zadouri et al. 2026, [FlashAttention-4](https://arxiv.org/abs/2603.05451) · NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/)
#
# **Next:** [12b · The Hopper kernel](12b_the_hopper_kernel.ipynb) opens the last rung · [13 · Decoding](13_decoding.ipynb) has one query and many keys.
