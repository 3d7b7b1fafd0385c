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
# **You will be able to** say what each step of a kernel ladder changes in the code, in the compiled kernel and in the schedule of a GPU's units; to fold a factor, split a loop, prune a search, read a register report, fill a pipeline and make two groups of warps take turns.
#
# **You need** chapters 06, 10 and 11 with their exercises; 09b helps. · **180 minutes**, 135 of them for six exercises · **runs on** CPU or GPU; Triton, so Linux
#
# Any machine with Triton can compile for any NVIDIA GPU. So registers, shared memory and instructions below are found here, for an H100. Run times need the GPU itself: they are recorded, on an H200, which is an H100's chip with more memory.

# %%
import flashlab  # first: it tells Triton whether to compile or to interpret
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import re

import torch

from flashlab import cost, ladder
from flashlab_course import bench, figures
from flashlab_course.check import check
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all
from flashlab_course.figures.chapter_12 import gains, rung_before, search_rows, share_of
from flashlab_course.figures.words import label                       # "fa2_exp2_forward" -> "+ base 2"
from flashlab_course.gpu import banks, schedule
from flashlab_course.gpu.occupancy import occupancy
from flashlab.kernels import fa2, fa2_exp2, fa2_persistent, fa2_pipelined, fa2_split, fa2_tma, tuning
from flashlab.operator import hopper_forward as fa2_hopper, pick
from flashlab.kernels.launch import best_tiles
from flashlab_course.lesson import changes, compare, reveal

# %% [markdown]
# ## The ladder
#
# Chapter 10's kernel is correct and leaves time on the table. Each rung above it has one idea more. The rungs keep its lines in its order, so that a diff shows that idea alone.

# %%
figures.ladder([one for one in ladder.KERNELS if one.chapter in ("10", "12")])

# %% [markdown]
# All of them are compiled once, for an H100: 16 heads, $N = 4096$, $d = 128$, causal, bfloat16. Tensors on the device `meta` have a shape and no numbers, which is all that a compiler needs.

# %%
kernels = {"fa2_triton_forward": fa2.fa2_forward_kernel, "fa2_exp2_forward": fa2_exp2.fa2_exp2_kernel,
           "fa2_split_forward": fa2_split.fa2_split_kernel, "fa2_tuned_forward": fa2_split.KERNEL,
           "fa2_pipelined_forward": fa2_pipelined.KERNEL, "fa2_tma_forward": fa2_tma.KERNEL,
           "fa2_persistent_forward": fa2_persistent.KERNEL, "fa2_hopper_forward": fa2_hopper.fa2_hopper_kernel}


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def arguments_of(name, d=128):
    Q, L = meta(1, 16, 4096, d), meta(1, 16, 4096, dtype=torch.float32)
    tiles = {"tiles": tuning.Tiles(*best_tiles(d, Q.dtype, True))} if name == "fa2_tma_forward" else {}     # those of the rungs before
    return ladder.rung(name).launch(Q, Q, Q, Q, L, causal=True, scale=d**-0.5, **tiles)[1]


made = dict(zip(kernels, compile_all([(kernel, arguments_of(name), 90) for name, kernel in kernels.items()]), strict=True))
print(f"{len(made)} kernels compiled for an H100")

# %% [markdown]
# And the clock. Each rung's kernel has been held against float64 and then timed, the forward pass at 24 sizes, the backward pass at 12. You will predict each rung's gain over the one before it at the size below, and then see it at all of them. A gain counts where the ranges of repeated runs do not overlap (chapter 16).

# %%
forward, backward, searched = (bench.load_results(f"{what}_h200") for what in ("forward", "backward", "tune"))
d, N, causal = 128, 4096, True                          # change me: 64 or 128; 512, 1024, ... 16384; True or False


def chosen(row):
    return (row["d"], row["N"], row["causal"]) == (d, N, causal)


def speed(name):
    return next(row["tflops"] for row in forward["rows"] if chosen(row) and row["implementation"] == name)


print(f"recorded on {bench.where(forward)}")
print(f"{label('fa2_triton_forward')}: {speed('fa2_triton_forward'):.0f} TFLOP/s at d = {d}, N = {N}, {'causal' if causal else 'no mask'}")

# %%
def gain(name, results=forward):
    """(how many times as fast as the rung before, whether that is a tie) at the size chosen, or the nearest that was timed."""
    found = [one for one in gains(results, name) if (one[0]["d"], one[0]["causal"]) == (d, causal)]
    return min(found, key=lambda one: abs(one[0]["N"] - N))[1:]


def clock(name, guess):
    """A rung's gain: held against the guess at the size chosen, and drawn at all sizes."""
    ratio, tied = gain(name)
    print(f"{speed(name):.0f} TFLOP/s, {ratio:.2f} times “{label(rung_before(name))}”{', a tie' if tied else ''} (recorded)")
    return compare(f"gain of “{label(name)}”", guess, ratio, "times").on(figures.gain_of_rung(forward, name), x=N)

# %% [markdown]
# ## Powers of two
#
# A GPU has an instruction for $2^x$ and none for $e^x$: `exp` multiplies by $\log_2 e$ first. And a score has met the scale before that.
#
# **Exercise: attention in powers of two** ([exercises/ex12_exp2.py](../exercises/ex12_exp2.py), 20 minutes). The loop in base 2, and $L$ as a natural logarithm all the same.

# %%
check("ex12_exp2")

# %%
reveal("ex12_exp2")

# %% [markdown]
# The same change in the kernel, as the diff of two rungs: `-` is chapter 10's line, `+` the new one, comments left out. Dropout was chapter 11's: this rung and those after it have none.

# %%
print(changes(fa2.fa2_forward_kernel, fa2_exp2.fa2_exp2_kernel))

# %% [markdown]
# **Predict**: how many per cent of the float32 multiplications in the compiled kernel are left once both factors are one?

# %%
my_multiplications = None     # per cent of chapter 10's

# %%
def instructions(name, **kinds):
    """How often each pattern stands in the PTX of a rung."""
    return {kind.replace("_", " "): len(re.findall(pattern, made[name].ptx)) for kind, pattern in kinds.items()}


def show(counts):
    for name, found in counts.items():
        print(f"{name}: {', '.join(f'{kind} {many:,}' for kind, many in found.items())} (in the PTX compiled here)")


kinds = {"multiply": r"\bmul\.f32", "subtract": r"\bsub\.f32", "multiply_and_add": r"\bfma\.rn\.f32", "power_of_2": r"\bex2\."}
counts = {label(name): instructions(name, **kinds) for name in ("fa2_triton_forward", "fa2_exp2_forward")}
before, after = counts.values()
said = compare("multiplications that base 2 leaves", my_multiplications, 100 * after["multiply"] / before["multiply"], "%")
show(counts)

# %% [markdown]
# **Compare.** As many powers as before, but what leads up to one is a single *fused multiply-add*, factor times score minus maximum, where it was two multiplications and a subtraction. **Predict** how many times as fast as chapter 10's kernel this rung is, at the size chosen above.

# %%
my_gain_of_base_2 = None

# %%
clock("fa2_exp2_forward", my_gain_of_base_2)

# %% [markdown]
# **Compare.** The gain is larger at $d = 64$: there a score needs half the products, and as many single operations. It is smaller under the causal mask, whose comparisons are left as they were: the next rung's subject.
#
# **Takeaway.** A score costs two products of $d$ numbers, which the tensor cores do, and a handful of single operations, which they do not. Every one of that handful counts.

# %% [markdown]
# ## The loop in two
#
# A mask costs a comparison and a selection for each score. **Predict** for $N = 4096$ and tiles of $128 \times 64$: in how many per cent of the tiles that causal attention visits is anything hidden?

# %%
my_crossed = None     # per cent

# %%
visible = torch.ones(4096, 4096, dtype=torch.bool).tril().unflatten(0, (-1, 128)).unflatten(2, (-1, 64))    # (T_r, B_r, T_c, B_c)
visited, whole = visible.any(3).any(1), visible.all(3).all(1)
crossed = visited & ~whole
said = compare("visited tiles that need a mask", my_crossed, 100 * crossed.sum().item() / visited.sum().item(), "%")
print(f"{crossed.sum()} of {visited.sum()} tiles cross the diagonal; a query block has {crossed.sum(1).max()} of them at most")

# %% [markdown]
# So the loop is split: first the tiles without masks, then the few with.
#
# **Exercise: which key blocks need a mask** ([exercises/ex12_split.py](../exercises/ex12_split.py), 20 minutes). Where does the first loop end, where the second? Chapter 06 asked something like it; a kernel's tile has one more reason for a mask.

# %%
check("ex12_split")

# %%
reveal("ex12_split")

# %% [markdown]
# In the kernel `tl.static_range` is unrolled while compiling, so the two passes of the outer loop become two loops, and `if masked` leaves no branch behind.

# %%
print(changes(fa2_exp2.fa2_exp2_kernel, fa2_split.fa2_split_kernel))

# %% [markdown]
# Two loops are more code. **Predict** how many times as many powers of 2 and how many times as many selections stand in it.

# %%
my_code = {"powers of 2": None, "selections": None}

# %%
kinds = {"selections": r"\bselp\.", "comparisons": r"\bsetp\.", "powers_of_2": r"\bex2\.", "products": r"wgmma\.mma_async"}
counts = {label(name): instructions(name, **kinds) for name in ("fa2_exp2_forward", "fa2_split_forward")}
before, after = counts.values()
said = compare("code of the split loop", my_code, {kind: after[kind] / before[kind] for kind in my_code}, "times")
show(counts)

# %% [markdown]
# **Compare.** Powers and products are there twice, since there are two loops; selections are not: the first loop, which runs most often, has none of the mask's. **Predict** how many times as fast as the rung before.

# %%
my_gain_of_split = None

# %%
clock("fa2_split_forward", my_gain_of_split)

# %% [markdown]
# **Compare.** Under the mask the gain grows with $N$, as the share of tiles on the diagonal shrinks. Without one there is something to gain as well: the rung before compares every key with $N_k$. At $N = 512$ nearly nothing is left, for the second loop has a price. The section on pipelining shows what a loop costs before its first tile is there.
#
# **Takeaway.** Work that most tiles do not need belongs out of the loop that most tiles run through.

# %% [markdown]
# ## Tile sizes by search
#
# Large tiles read less and take registers and shared memory from other programs of the SM. No formula settles that bargain, so a search tries it, on the GPU at hand. But first arithmetic rules out what cannot run.
#
# **Exercise: what is worth trying** ([exercises/ex12_prune.py](../exercises/ex12_prune.py), 20 minutes). Shared memory and rows for each warp.

# %%
check("ex12_prune")

# %%
reveal("ex12_prune")

# %% [markdown]
# The course's own grid, at $d = 128$ on an H100. **Predict** how many of its choices are left, and how many seconds this machine takes to compile one.

# %%
my_search = {"choices left": None, "seconds for one": None}

# %%
import time

kept = tuning.candidates(128, 128, torch.bfloat16, SHARED_LIMIT[90])
some = kept[::len(kept) // 4][:4]
start = time.perf_counter()
tried = compile_all([(fa2_split.KERNEL, arguments_of("fa2_split_forward") | tiles._asdict(), 90) for tiles in some])
seconds = (time.perf_counter() - start) / len(some)
said = compare("the search over tiles", my_search, {"choices left": len(kept), "seconds for one": seconds})
print(f"{len(kept)} choices at {seconds:.1f} s (measured here, compiling alone): {len(kept) * seconds:.0f} s for one head dimension and mask")

# %% [markdown]
# What arithmetic lets through may still be bad. Of the four just compiled:

# %%
rows = [{"name": f"{t.B_r} × {t.B_c}, {t.num_warps} warps, {t.num_stages} stages", "registers": gpu.registers, "spills": gpu.spills,
         "shared": gpu.shared_bytes, "limit": SHARED_LIMIT[90]} for t, gpu in zip(some, tried, strict=True)]
figures.compiled_kernels(rows)

# %% [markdown]
# A search is done once and kept. `python -m flashlab bench tune` writes its table to a file; a call looks up the head dimension, the mask and the dtype there, and takes the nearest $N$ that was searched. **Predict** which of these make a table useless when they change: "the GPU", "Triton's version", "the kernel's source", "the batch".

# %%
my_key = None     # for example "the GPU and the batch"

# %%
print(tuning.key(fa2_split.KERNEL, 128, 128, torch.bfloat16, True))
_ = compare("what makes a table of tiles useless", my_key, "the GPU and Triton's version and the kernel's source")
found = tuning.fastest(fa2_split.KERNEL, 128, 128, torch.bfloat16, True, 4096)
print("on this machine:", found or "nothing has been searched, so the sizes picked by hand stand")

# %% [markdown]
# A search that has been recorded: every choice that fits at $d = 64$, $N = 4096$ without a mask, on the H200. Before there was a search, somebody had picked sizes by trying some on an H100. **Predict** how many times as long as the fastest choice the slowest takes, and how many per cent longer the one picked by hand.

# %%
my_tiles = {"the slowest, times": None, "by hand, per cent longer": None}

# %%
timed, by_hand = search_rows(searched, "fa2_tuned_forward", 64, 4096, False), best_tiles(64, torch.bfloat16, False)
fastest, slowest = timed[0], timed[-1]
hand_ms = next(row["ms"] for row in timed if tuple(row["tiles"]) == by_hand)
said = compare("a search over tiles against the hand", my_tiles, {"the slowest, times": slowest["ms"] / fastest["ms"],
                                                                 "by hand, per cent longer": 100 * (hand_ms / fastest["ms"] - 1)})
for what, tiles in {"fastest": fastest["tiles"], "slowest": slowest["tiles"], "by hand": by_hand}.items():
    print(f"{what}: {tiles[0]} × {tiles[1]}, {tiles[2]} warps, {tiles[3]} stages")
done = sum(row["ms"] is not None for row in searched["rows"])
whose = {row["implementation"] for row in searched["rows"]}
print(f"that run tried {done} of {len(searched['rows'])} choices in the time it had, for {len(whose)} rungs")
figures.times_of_tiles(timed, f"Recorded on {bench.where(searched)}: {label('fa2_tuned_forward')}, "
                       "d = 64, N = 4096, no mask.")

# %% [markdown]
# **Compare.** With one stage nothing is loaded ahead, and no tile is at its best. Four are the best for some tiles and the worst for others. And the cost: each choice is compiled, held against float64 and timed, for each head dimension, mask and dtype, on each kind of GPU. **Predict** what the search adds to the rung before.

# %%
my_gain_of_tuning = None

# %%
clock("fa2_tuned_forward", my_gain_of_tuning)

# %% [markdown]
# **Compare.** Next to nothing, on this GPU: the kernel is the one before it, so a search can only repair a wrong guess, and here the hand had guessed well. On a GPU that nobody has tried by hand the table is the only guess there is.
#
# **Takeaway.** Rule out by arithmetic, compile, time, keep. The kernel's own source belongs in the key: an edited kernel is another kernel.

# %% [markdown]
# ## Registers and what an SM holds
#
# Programs that live on an SM together hide one another's waiting. How many fit depends on what each takes.
#
# **Exercise: reading a register report** ([exercises/ex12_registers.py](../exercises/ex12_registers.py), 20 minutes). From warps, registers and shared memory to programs on an SM.

# %%
check("ex12_registers")

# %%
reveal("ex12_registers")

# %% [markdown]
# The register report of chapter 10's kernel, as this machine compiled it. **Predict** how many of its programs an SM holds.

# %%
my_programs = None

# %%
def threads_of(gpu):
    return int(re.search(r"\.reqntid\s+(\d+)", gpu.ptx)[1])


gpu = made["fa2_triton_forward"]
fit = occupancy(threads_of(gpu), gpu.registers, gpu.shared_bytes)
print(f"{threads_of(gpu)} threads, {gpu.registers} registers each, {gpu.shared_bytes:,} bytes of shared memory")
said = compare("programs of chapter 10's kernel on an SM", my_programs, fit.blocks)
figures.blocks_that_fit(threads_of(gpu), gpu.registers, gpu.shared_bytes)

# %% [markdown]
# **Takeaway.** *Occupancy*, the share of an SM's threads that are there, is no goal in itself. A kernel with few large programs has to hide its waiting by itself. How, is the rest of this chapter.

# %% [markdown]
# ## Software pipelining
#
# A loop loads $A$, loads $B$, multiplies and stores. Each step has a unit of its own, and takes one step of time. **Predict** for 6 iterations: how many steps one after the other, and how many if each unit goes on to the next iteration as soon as it is free?

# %%
my_steps = {"one after the other": None, "overlapped": None}

# %%
loops = {name: schedule.iterations(schedule.FOUR_STEPS, 6, overlapped=name == "overlapped") for name in my_steps}
said = compare("six iterations of four steps", my_steps, {name: schedule.finish(spans) for name, spans in loops.items()})
figures.timelines(loops, "multiply", "six iterations of load A, load B, multiply, store C; every step takes as long.")

# %% [markdown]
# **Compare.** $4n$ steps become $n + 3$: three to fill the *pipeline*, then one an iteration. It pays where there are many more iterations than stages. And it needs room: iteration 3 loads while iteration 0 has not been stored, so several tiles of $A$ are on chip at once.
#
# Attention's loop has two such parts: the copy of $K_j$ and $V_j$, and the work with them, two products and a softmax. The number of *slots* for tiles is Triton's `num_stages`. **Predict** the time with 1, 2 and 3 slots for 8 tiles, if a copy takes 2 steps, but two of the eight take 6, and the work takes 3.

# %%
my_slots = {"1 slot": None, "2 slots": None, "3 slots": None}

# %%
copies, work = [2, 2, 2, 6, 2, 2, 6, 2], [3] * 8
timed = {name: schedule.pipelined(copies, work, slots) for slots, name in enumerate(my_slots, 1)}
said = compare("time with so many slots", my_slots, {name: schedule.finish(spans) for name, spans in timed.items()})
figures.timelines(timed, "compute", "copies of 2 steps, two of them of 6, beside work of 3 steps a tile.")

# %% [markdown]
# **Compare.** One slot overlaps nothing. The second hides copies that are shorter than the work. Further slots help where a copy is late now and then, and cost shared memory always.
#
# **Exercise: a pipeline by hand** ([exercises/ex12_pipeline.py](../exercises/ex12_pipeline.py), 25 minutes). The order of start, wait and compute on a modelled machine.

# %%
check("ex12_pipeline")

# %%
reveal("ex12_pipeline")

# %% [markdown]
# Now the price of the split loop: two loops are two pipelines, and the second fills after the first is empty. **Predict** how many steps 6 tiles, split into 4 and 2, take longer than in one loop: copies of 2 steps, work of 3, two slots.

# %%
my_second_filling = None

# %%
one, first, second = (schedule.pipelined([2] * n, [3] * n, 2) for n in (6, 4, 2))
end = schedule.finish(first)
two = first + [span._replace(start=span.start + end, end=span.end + end, name=str(int(span.name) + 4)) for span in second]
said = compare("what a second filling costs", my_second_filling, schedule.finish(two) - schedule.finish(one), "steps")
figures.timelines({"one loop": one, "split in 4 and 2": two}, "compute", "copies of 2 steps, work of 3 steps, two slots.")

# %% [markdown]
# The next rung is one loop again. Its mask stands in a branch that whole tiles do not take: the condition is the same for all threads of a program, so nobody diverges.

# %%
print(changes(fa2_split.fa2_split_kernel, fa2_pipelined.KERNEL))

# %%
kinds = {"copies": r"cp\.async\.cg", "selections": r"\bselp\.", "products": r"wgmma\.mma_async", "branches": r"\bbra\b"}
rungs = ("fa2_exp2_forward", "fa2_split_forward", "fa2_pipelined_forward")
show({label(name): instructions(name, **kinds) for name in rungs})

# %% [markdown]
# **Predict** the gain over the rung before, at the size chosen above. At which $N$ will it be largest?

# %%
my_gain_of_one_pipeline = None

# %%
clock("fa2_pipelined_forward", my_gain_of_one_pipeline)

# %% [markdown]
# **Compare.** Largest at small $N$ and $d = 128$, where a filling is a large share of a short loop. At $d = 64$ next to nothing is gained, and for long sequences the rung is behind: now every tile passes a branch that only the last ones need. It stays on the ladder because the next rung's copies are for one loop, and because short sequences are common.
#
# **Takeaway.** `cp.async` copies from global to shared memory while the threads go on. The compiler arranges the pipeline; the kernel decides how often it is filled.

# %% [markdown]
# ## Where a tile lies: banks and swizzling
#
# Shared memory has 32 *banks* of 4 bytes. In one step each gives one word. A row of a tile of 64 numbers of 16 bits is 128 bytes, as wide as all banks; a matrix instruction reads the same 16 bytes of eight rows at once. **Predict** how many steps that takes.

# %%
my_bank_steps = {"rows as they are": None, "swizzled": None, "rows padded to 144 bytes": None}

# %%
found = {"rows as they are": banks.steps(banks.column_of_pieces(2)),
         "swizzled": banks.steps(banks.column_of_pieces(2, banks.swizzled)),
         "rows padded to 144 bytes": banks.steps(banks.column_of_pieces(2, row_bytes=144))}
said = compare("steps to read a column of pieces", my_bank_steps, found)
lies = {name: torch.tensor([sorted(range(8), key=lambda piece: place(row, piece)) for row in range(8)])       # noqa: B023
        for name, place in (("row after row", banks.plain), ("swizzled", banks.swizzled))}
figures.matrices({name: ((pieces == 2).float(), pieces.tolist()) for name, pieces in lies.items()}, "Swizzled, piece 2 of eight rows lies in eight different banks",
                 "Modelled: rows of 64 numbers of 16 bits in pieces of 16 bytes; a column is four banks of 4 bytes.", "place in the row", "row")

# %% [markdown]
# **Compare.** As they are, all eight pieces lie in the same four banks: a *bank conflict*. *Swizzling* puts piece $p$ of row $r$ at place $p \oplus (r \bmod 8)$. Padding would do as well, but costs memory, and Hopper's units, which the next sections are about, are made for swizzled tiles.
#
# **Your turn** (5 minutes). Is there another rule without conflicts? Write a place for each piece; it must lose none.

# %%
def my_place(row, piece):
    return piece     # TODO: your rule, numbers from 0 to 7


taken = all(sorted(my_place(row, piece) for piece in range(8)) == list(range(8)) for row in range(8))
steps = max(banks.steps(banks.column_of_pieces(piece, my_place)) for piece in range(8))
print(f"your rule: {steps} steps, {'every piece has a place of its own' if taken else 'some pieces share a place'}")

# %% [markdown]
# **Takeaway.** Where a tile lies decides how fast it is read. In Triton the compiler chooses; in Gluon and CUDA you do.

# %% [markdown]
# ## The matrix instruction and its operands
#
# An A100's `mma.sync` is an instruction of one warp, with operands in registers. Hopper's `wgmma` is one of four warps, a *warpgroup*: 64 rows, up to 256 columns, 16 numbers deep. It reads its right operand straight from swizzled shared memory, and it is *asynchronous*: issue it, do something else, wait for it later. **Predict** how many stand in the loop for a tile of $128 \times 64$ at $d = 128$ on two warpgroups, both products together.

# %%
my_wgmma = None

# %%
_ = compare("matrix instructions for a tile", my_wgmma, instructions("fa2_pipelined_forward", products=r"wgmma\.mma_async")["products"])
shapes = re.findall(r"wgmma\.mma_async\.sync\.aligned\.(m\d+n\d+k\d+)", made["fa2_pipelined_forward"].ptx)
print("their shapes:", ", ".join(f"{shapes.count(shape)} of {shape}" for shape in dict.fromkeys(shapes)))

# %% [markdown]
# An instruction is named after rows (m), columns (n) and depth (k). $S$ needs $d / 16 = 8$ of them, $PV$ needs $B_c / 16 = 4$; each warpgroup executes the same ones for its own 64 rows. Between the two products $S$ becomes $P$ and changes its role: a result becomes a left operand. **Predict** how many of its 256 elements a $16 \times 16$ tile has to move to another lane for that.

# %%
my_moves = None

# %%
moved = sum(banks.accumulator_lane(row, column) != banks.operand_lane(row, column) for row in range(16) for column in range(16))
said = compare("elements that change their lane", my_moves, moved)
lanes = {name: [[lane(row, column) for column in range(16)] for row in range(16)] for name, lane in
         (("S, the result of the first product", banks.accumulator_lane), ("P, the left operand of the second", banks.operand_lane))}
figures.matrices(lanes, "Every lane holds the same elements of S and of P: nothing has to move",
                 "Definition: PTX, mma.m16n8 and m16k16 with 16-bit operands. In the cells: the lane of the warp.", "column", "row")

# %% [markdown]
# **Takeaway.** $P$ never leaves the registers it was computed in. FlashAttention-2 splits the rows of $Q$ among warps (chapter 06) for this reason too: each warp has whole rows of $P$.

# %% [markdown]
# ## TMA
#
# A tile's copy by `cp.async` still costs threads' time: an address and a mask for every 16 bytes. Hopper's *Tensor Memory Accelerator* takes a *descriptor*, made once on the host, and a tile's coordinates. One thread asks; edges are filled with zeros and the swizzling is done on the way. **Predict** the registers of a thread, in per cent of those of the rung before.

# %%
my_registers_by_tma = None     # per cent

# %%
lines = changes(fa2_pipelined.KERNEL, fa2_tma.KERNEL).splitlines()
print(f"{sum(line.startswith('-') for line in lines)} lines went. What came:")
print("\n".join(line for line in lines if line.startswith("+")))

# %%
kinds = {"copies_by_threads": r"cp\.async\.cg", "copies_by_TMA": r"cp\.async\.bulk\.tensor", "comparisons": r"\bsetp\."}
rungs = ("fa2_pipelined_forward", "fa2_tma_forward")
share = 100 * made["fa2_tma_forward"].registers / made["fa2_pipelined_forward"].registers
said = compare("registers that TMA leaves", my_registers_by_tma, share, "%")
counts = {label(name): {"registers": made[name].registers} | instructions(name, **kinds) for name in rungs}
show(counts)

# %% [markdown]
# **Predict** what that is worth in time.

# %%
my_gain_of_tma = None

# %%
clock("fa2_tma_forward", my_gain_of_tma)

# %% [markdown]
# **Compare.** Ahead at every size: instructions that threads no longer spend on addresses and masks are left for the softmax. These were the tiles of the rungs before, 128 × 64. The registers that TMA leaves have room for more keys: **predict** what tiles of 128 × 128 are worth, causal.

# %%
my_gain_of_more_keys = None

# %%
by_tiles = {tuple(row["tiles"]): row["ms"] for row in bench.load_results("tune_h200", "TMA")["rows"] if row["causal"]}
said = compare("128 keys in place of 64", my_gain_of_more_keys, by_tiles[128, 64, 8, 3] / by_tiles[128, 128, 8, 3], "times")
print("recorded: the search for TMA's tiles, d = 128, N = 4096")

# %% [markdown]
# The price of TMA: rows of neighbouring elements that begin at multiples of 16 bytes. What a rung does not take it says in words, and the operator runs another:

# %%
Q = meta(1, 16, 4096, 128)
for name, given in {"contiguous": Q, "every second column": meta(1, 16, 4096, 256)[..., ::2]}.items():
    print(f"{name}: {fa2_tma.why_not(given, given, given) or 'taken'}")

# %% [markdown]
# **Takeaway.** Copies made by a unit of their own free threads, registers and instructions. Whether that is time, a measurement says: here it is, for chapter 09b's product it was not.

# %% [markdown]
# What takes the time in this kernel? With one part left out it computes nonsense, but the clock says what that part had cost. **Predict**, in per cent of the time: what is saved without the powers of two, without the maxima and sums of rows, and without $PV$, one product of two, and its copies of $V$?

# %%
my_savings = {"exponentials of P": None, "row maxima and sums": None, "P V, and the copies of V": None}

# %%
run = bench.load_results("parts_h200")
ms = {row["left_out"]: row["ms"] for row in run["rows"] if row["d"] == 128}
saved = {name: 100 * (1 - part / ms["nothing"]) for name, part in ms.items() if name != "nothing"}
_ = compare("what a part of the kernel costs", my_savings, {name: saved[name] for name in my_savings}, "%")
figures.bars(saved, f"Without its softmax the kernel would be done {saved['softmax']:.0f} % earlier",
             f"Recorded on {bench.where(run)}: fa2_tma_forward with a part left out, d = 128, N = 4096, no mask.", "% of the time saved")

# %% [markdown]
# **Compare.** Parts run beside one another, so what they save need not add up. Half of the products would be half of the time if the tensor cores were all that counts; it is less. And the softmax, in which they have no part, costs a quarter: while a warp computes powers, its products wait. The rungs that remain are about that.

# %% [markdown]
# ## Programs that stay
#
# Causal query blocks differ in length, from 2 tiles to 64 here, and an SM that gets a long one last keeps the rest waiting. A *persistent* kernel starts as many programs as run at a time, and each takes block after block from a list. **Predict** for 16 heads on 132 SMs, one program each: how many per cent longer than at best does it take with the shortest blocks first, and with the longest first?

# %%
my_order_of_blocks = {"shortest first": None, "longest first": None}

# %%
import heapq


def last_end(lengths, sms=132):
    """Whoever is free takes the next block: when is the last one done?"""
    free = [0] * sms
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


lengths = [2 * (i + 1) for i in range(32)] * 16
ends = {"as they come": last_end(lengths), "shortest first": last_end(sorted(lengths)), "longest first": last_end(sorted(lengths)[::-1])}
longer = {name: 100 * (end / (sum(lengths) / 132) - 1) for name, end in ends.items()}
said = compare("time lost to the order of blocks", my_order_of_blocks, {name: longer[name] for name in my_order_of_blocks}, "%")
figures.bars(longer, f"The order of the blocks costs {longer['longest first']:.1f} to {max(longer.values()):.1f} % of the time",
             "Modelled: 16 heads of 32 causal blocks, 2 to 64 tiles long, on 132 SMs with a program each.", "% longer than at best")

# %%
print(changes(fa2_tma.KERNEL, fa2_persistent.KERNEL))

# %% [markdown]
# **Change this and run again**: 128 heads instead of 16 in `lengths`. When does the order matter less? The rungs before take the long blocks first within a head; this one does so across heads, a few at a time (`together`), whose $K$ and $V$ stay in L2. **Predict** its gain over the rung before.

# %%
my_gain_of_persistence = None

# %%
clock("fa2_persistent_forward", my_gain_of_persistence)

# %% [markdown]
# **Compare.** It did not help: at most sizes it is behind or tied. The list is why, at least in part. Program $p$ takes the blocks $p$, $p + P$, $p + 2P$, and so on, whatever the others do, and in a list that falls the first program's block is the longest of every round. **Predict** for 64 heads, as many as at $N = 4096$ in the recorded run: how many per cent longer than at best with such a fixed list, and how many where whoever is free takes the next?

# %%
my_lists = {"a fixed list": None, "who is free": None}

# %%
falling = sorted([2 * (i + 1) for i in range(32)] * 64)[::-1]
best = sum(falling) / 132
lists = {"a fixed list": max(sum(falling[p::132]) for p in range(132)), "who is free": last_end(falling)}
lost = {name: 100 * (end / best - 1) for name, end in lists.items()}
said = compare("time lost to a fixed list", my_lists, lost, "%")
figures.bars(lost, f"A fixed list costs {lost['a fixed list']:.1f} % of the time, a counter {lost['who is free']:.1f} %",
             "Modelled: 64 heads of 32 causal blocks, the longest first, on 132 SMs with a program each.", "% longer than at best")

# %% [markdown]
# **Compare.** A grid with a program for each block has the counter built in: the hardware gives the next block to the SM that is free. So the rung before had it all along. `ladder.py` marks this rung as a `detour`: it stays to be read, `flash_attention` passes over it unless it is asked for by name, and the next rung is compared with the one before it. What it loses without a mask, where all blocks are equally long, has not been taken apart.
#
# **Takeaway.** At the end of a kernel SMs stand idle: long work first, short work last, and nobody's work settled in advance.

# %% [markdown]
# ## Warps that do different things
#
# So far all warps of a program do the same. The compiler overlaps copies with work, but within a warp softmax and products still follow one another. **Warp specialisation** gives warps different programs. One *producer* warp asks TMA for tiles; two *consumers*, warpgroups of 64 rows each, compute. **Predict** the share of time in which the tensor cores work, if product and softmax take 2 steps each and nobody coordinates the two consumers.

# %%
my_alone = None     # per cent

# %%
free = [[(what, n) for n in range(5) for what in ("product", "softmax")] for _ in range(2)]
alone, _ = schedule.take_turns(free, product=2, softmax=2)
said = compare("tensor cores of consumers left alone", my_alone, 100 * share_of(alone, "tensor cores"), "%")
figures.timelines({"left alone": alone}, "tensor cores", "two consumers; products at the same time share the tensor cores.")

# %% [markdown]
# **Exercise: whose turn is it** ([exercises/ex12_turns.py](../exercises/ex12_turns.py), 30 minutes). *Barriers* make them alternate: one waits on a barrier until the other has arrived there. Write the program of one consumer.

# %%
check("ex12_turns")

# %%
reveal("ex12_turns")

# %% [markdown]
# The same work in turns. **Predict** the share of the tensor cores now, and what it becomes with a softmax of 3 steps.

# %%
my_in_turns = {"softmax of 2": None, "softmax of 3": None}

# %%
turns = {f"softmax of {softmax}": schedule.alternating(5, product=2, softmax=softmax) for softmax in (2, 3)}
busy = {name: 100 * share_of(spans, "tensor cores") for name, spans in turns.items()}
said = compare("tensor cores of consumers in turns", my_in_turns, busy, "%")
figures.timelines(turns, "tensor cores", "two consumers that take turns, five products and five softmaxes each.")

# %% [markdown]
# The kernel in `flashlab/operator/hopper_forward.py` does this in Gluon, the language under Triton, and one thing more: a consumer issues the next block's $QK^\top$ before it has finished this block's softmax. Its docstring lists who signals whom. How it was compiled:

# %%
gpu = made["fa2_hopper_forward"]
print(f"{threads_of(gpu)} threads at launch, {gpu.registers} registers each, {gpu.shared_bytes:,} bytes of shared memory, {gpu.spills} bytes spilled")
given = sorted({int(n) for n in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", gpu.ptx)})
print(f"then registers change hands: {given[0]} for the producer; a thread asks for one of {', '.join(map(str, given))}")

# %% [markdown]
# It is persistent as well, but its programs take their blocks from a counter. **Predict** how many times as fast it is as the rung before the detour.

# %%
my_gain_of_warps = None

# %%
clock("fa2_hopper_forward", my_gain_of_warps)

# %% [markdown]
# **Compare.** Ahead at every size. In the model turns help most where product and softmax take equally long. In the kernel `setmaxnreg` takes registers from the producer, which needs few, and gives them to the consumers, which hold $O$, $S$ and $P$. One program fills the SM, so no other hides its waiting: its own warps hide one another's.
#
# Which rung runs? `flash_attention` asks from the top of the ladder: on an H100 or H200 the Hopper rung takes most calls, elsewhere and for what it refuses a rung below does. A small call goes to a rung without TMA, since the host needs longer to make descriptors than the GPU for the scores. `pick.explain` says which rung it is here, and why none above:

# %%
here = "cuda" if torch.cuda.is_available() else "cpu"
X = torch.empty(1, 16, 4096, 128, dtype=torch.bfloat16, device=here)
print(f"on this machine's {here}: {pick.explain(X, X, X, causal=True)}\na call of fewer than {pick.SMALL:,} scores is small")

# %% [markdown]
# **Takeaway.** Copies, products and exponentials each have a unit of their own. A fast kernel keeps the tensor cores busy and does the other two meanwhile.

# %% [markdown]
# ## All rungs beside each other
#
# The whole climb at one size, beside PyTorch's FlashAttention-2 and NVIDIA's cuDNN, timed in the same run. **Predict** the speed of the last rung in multiples of the first, and of cuDNN.

# %%
my_climb = {"the first kernel": None, "cuDNN": None}

# %%
others = {"the first kernel": "fa2_triton_forward", "cuDNN": "sdpa_cudnn"}
said = compare("the last rung against others", my_climb,
               {who: speed("fa2_hopper_forward") / speed(name) for who, name in others.items()}, "times")
figures.kernels_beside_peers(forward, d, N, causal)

# %% [markdown]
# **Change this and run again**: `d, N, causal` near the top of the chapter, and then this cell. Where is cuDNN ahead?
#
# FlashAttention-4's kernels, written in NVIDIA's CuTe by FlashAttention's authors, are the other mark. **Predict** at how many of 12 sizes the last rung is faster than they are, forward and backward.

# %%
my_sizes_ahead = {"forward": None, "backward": None}

# %%
beside = {"forward": bench.load_results("forward_h200", "FlashAttention-4"), "backward": backward}
against = {what: [row for row in run["rows"] if row["implementation"] == f"fa2_hopper_{what}"] for what, run in beside.items()}
_ = compare("sizes ahead of FlashAttention-4", my_sizes_ahead,
            {what: sum(row["vs_fa4"] > 1 for row in rows) for what, rows in against.items()})
ratios = {what: {f"d = {row['d']}, N = {row['N']}{', causal' if row['causal'] else ''}": row["vs_fa4"] for row in rows}
          for what, rows in against.items()}


def beside_flashattention_4(what):
    low, high = min(ratios[what].values()), max(ratios[what].values())
    return figures.bars(ratios[what], f"The {what} pass at {low:.2f} to {high:.2f} times the speed of FlashAttention-4",
                        f"Recorded on {bench.where(beside[what])}; medians of ratios, by turns.", "its time over the last rung's")


beside_flashattention_4("forward")

# %%
beside_flashattention_4("backward")

# %% [markdown]
# **Compare.** Forward the course's kernel is ahead up to $N = 4096$, and at 16,384 with a mask; without one FlashAttention-4 is. Backward FlashAttention-4 is ahead everywhere, most at $d = 64$. Why has not been taken apart.
#
# Now the compiler's view. **Predict**: which rung needs the fewest registers a thread, and which the most shared memory? Answer with the names in the picture of the ladder.

# %%
my_extremes = {"fewest registers": None, "most shared memory": None}

# %%
_ = compare("the rungs' extremes", my_extremes, {"fewest registers": label(min(made, key=lambda name: made[name].registers)),
                                                 "most shared memory": label(max(made, key=lambda name: made[name].shared_bytes))})
figures.compiled_kernels([{"name": label(name), "registers": gpu.registers, "spills": gpu.spills, "shared": gpu.shared_bytes,
                           "limit": SHARED_LIMIT[90]} for name, gpu in made.items()])

# %%
fits = {label(name): occupancy(threads_of(gpu), gpu.registers, gpu.shared_bytes) for name, gpu in made.items()}
low, high = min(fit.share for fit in fits.values()), max(fit.share for fit in fits.values())
figures.bars({name: 100 * fit.share for name, fit in fits.items()}, f"Every rung fills {low:.0%} to {high:.0%} of an SM's threads",
             "Modelled: flashlab_course.gpu.occupancy, from the compiled kernels' registers, threads and shared memory; H100, d = 128.",
             "% of the 2048 threads of an SM")

# %% [markdown]
# And the roofline of chapter 02. The model counts each program's reads of $K$ and $V$ in full; at the other extreme, the L2 cache serves all of them but the first. **Predict** what limits the rungs in each case: "memory" or "arithmetic".

# %%
my_limits = {"every read from HBM": None, "each byte once": None}

# %%
ceilings, flops = forward["ceilings"], cost.attention_flops(1, 1, 4096, 4096, 128, causal=True)
points = []
for B_r in (128, 64, 256):                                      # the rungs' own height, and two others
    moved = cost.fa2_forward(4096, 4096, 128, B_r=B_r, B_c=64, causal=True, element_size=2)
    points.append({"op": f"every read, {B_r} rows", "flops": flops, "bytes": moved.read + moved.written})
points.append({"op": "each byte once", "flops": flops, "bytes": 2 * 4 * 4096 * 128 + 4 * 4096})
ridge = ceilings["matmul_tflops"] / ceilings["copy_tb_s"]
limits = ["memory" if point["flops"] / point["bytes"] < ridge else "arithmetic" for point in (points[0], points[-1])]
_ = compare("what limits the rungs", my_limits, dict(zip(my_limits, limits, strict=True)))
figures.roofline(points, ceilings["copy_tb_s"], ceilings["matmul_tflops"], f"Ceilings: recorded on {bench.where(forward)}.")

# %% [markdown]
# **Compare.** If every read came from HBM, no schedule could lift a rung above its point on the slope, and only taller tiles would: a kernel lives on the L2 cache, and the order of its programs decides how well. A point on the roof is where a rung could be at best. What keeps it below is the time in which tensor cores wait: for copies, for exponentials, for one another.
#
# Neither occupancy nor the roofline tells these rungs apart: nearly all have one program on an SM and the same tiles. The difference is in the schedule, and the GPU counts it. Nsight Compute ran one launch of the first rung, one in the middle, the last, and cuDNN's. **Predict** for each the share of the time in which the tensor cores had work.

# %%
my_tensor_time = {"FA2 in Triton": None, "+ TMA": None, "Gluon, Hopper": None}     # per cent

# %%
counted = bench.load_results("counters_h200")
seen = {label(row["implementation"]): row["kernels"][0] for row in counted["rows"]}
_ = compare("time in which tensor cores work", my_tensor_time, {name: seen[name]["tensor_pipe"] for name in my_tensor_time}, "%")
where_counted = f"Recorded on {bench.where(counted)}, by ncu: 16 heads, d = 128, N = 4096, no mask."
figures.bars({name: kernel["tensor_pipe"] for name, kernel in seen.items()},
             f"In the last rung the tensor cores work {seen['Gluon, Hopper']['tensor_pipe']:.0f} % of the time", where_counted,
             "% of the time")

# %%
figures.bars({name: kernel["issue_slots"] for name, kernel in seen.items()}, "The first rung issues the most instructions a cycle",
             where_counted, "% of the slots in which a warp could issue an instruction")

# %%
for name, kernel in seen.items():
    print(f"{name}: {kernel['dram_read'] / 1e6:.0f} MB read from DRAM, {kernel['l2_bytes'] / 1e6:.0f} MB through the L2 cache")

# %% [markdown]
# **Compare.** From DRAM all read the same 50 MB, $Q$, $K$ and $V$ once: none of these rungs is about that any more. The first fills half of its issue slots, mostly with instructions that no product needs, and its tensor cores wait. Those of the last work four fifths of the time, with fewer instructions.
#
# **Takeaway.** When bytes and occupancy are equal, look at who waits for whom: the last rungs win by keeping the tensor cores busy, and by nothing else.

# %% [markdown]
# ## Backwards
#
# The backward ladder climbs the same way: split loops, a search, one kernel in place of two, TMA, Hopper. Its own question is $dQ$. Chapter 11 computes $S$ and $dP$ twice, once for $dK$ and $dV$, once for $dQ$: 7 products. One kernel needs 5, but then all key blocks add to each $dQ$ in memory. **Predict** for $N = 4096$, $d = 128$, tiles of 64, no mask: products and bytes of the one kernel, in per cent of the two.

# %%
my_one_kernel = {"products": None, "bytes": None}

# %%
sizes = {"B_r": 64, "B_c": 64, "element_size": 2}
two, one = cost.fa2_backward_two_pass(4096, 4096, 128, **sizes), cost.fa2_backward(4096, 4096, 128, **sizes)
shares = {"products": 100 * one.matmul_flops / two.matmul_flops, "bytes": 100 * (one.read + one.written) / (two.read + two.written)}
said = compare("one backward kernel against two", my_one_kernel, shares, "%")
figures.bars({"two passes": (two.read + two.written) / 1e6, "one kernel, dQ added up in memory": (one.read + one.written) / 1e6},
             f"Fewer products, {shares['products']:.0f} %, and more traffic, {shares['bytes']:.0f} % of the two passes",
             "Modelled: flashlab.cost, one head, N = 4096, d = 128, tiles of 64 × 64, 16 bits, dQ added up in float32.", "MB moved")

# %% [markdown]
# The traffic of $dQ$ is float32, and reads and writes: that is what eats the gain. Much of it stays in the L2 cache, where atomic additions are done. The second price is the order. **Predict**: one element of $dQ$, the sum of 64 key blocks' parts, added up in 200 orders. How many different float32 numbers?

# %%
my_dQ_results = None

# %%
torch.manual_seed(0)
parts = torch.randn(64) * torch.rand(64)
sums = []
for _ in range(200):
    total = torch.zeros(())
    for part in parts[torch.randperm(64)]:
        total = total + part
    sums.append(total.item())
said = compare("different results of one dQ", my_dQ_results, len(set(sums)))
exact = parts.double().sum().item()
figures.curves({"": {1e6 * (total - exact): sums.count(total) for total in sorted(set(sums))}},
               f"The same {len(parts)} parts in 200 orders: {len(set(sums))} different results in float32",
               "Measured here: one element of dQ, added up in random orders.", "result minus float64's, in 10⁻⁶", "orders", dots=True)

# %% [markdown]
# Programs arrive in whatever order the hardware runs them. So a rung of this kind says no where the same bits are asked for, and the operator runs one that writes each $dQ$ once:

# %%
print(ladder.rung("fa2_atomic_backward").why_not(Q, Q, Q, causal=True, deterministic=True))

# %% [markdown]
# Or the programs take turns. In the Hopper rung one warp of each program does nothing but add tiles of $dQ$. Where the same bits are asked for, each tile has a number in memory that says whose turn it is, and that warp waits for its own. If all programs walked the tiles from the first to the last, they would queue at each. **Predict** for 8 blocks of keys and 8 tiles of queries, no mask: in how many steps do all get through if all begin at tile 0, and in how many if block $j$ begins at tile $j$?

# %%
my_steps_in_turns = {"all begin at tile 0": None, "block j begins at tile j": None}

# %%
def steps_in_turns(blocks, begin):
    """Steps until all blocks have been at all tiles; at a tile, one block a step, in the order in which they would come."""
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
                                                                      "block j begins at tile j": steps_in_turns(8, lambda j: j)})

# %% [markdown]
# What do the turns cost? **Predict** the speed of the Hopper rung with the same bits each time, $d = 128$, $N = 4096$, as a multiple of cuDNN's, which does not promise them, and that of the two passes.

# %%
my_ordered = {"Hopper, in turns": None, "two passes": None}

# %%
ordered = bench.load_results("backward_h200", "deterministic")
names = {"Hopper, in turns": "fa2_hopper_backward", "two passes": "fa2_tuned_backward"}
timed = {name: {row["d"]: row["vs_sdpa_cudnn"] for row in ordered["rows"]
                if (row["implementation"], row["N"], row["causal"]) == (one, 4096, False)} for name, one in names.items()}
_ = compare("the same bits each time", my_ordered, {name: by_d[128] for name, by_d in timed.items()}, "times")
figures.bars({f"{name}, d = {width}": ratio for name, by_d in timed.items() for width, ratio in by_d.items()},
             f"The same bits each time at {timed['Hopper, in turns'][128]:.2f} times cuDNN's speed",
             f"Recorded on {bench.where(ordered)}; N = 4096, no mask.", "cuDNN's time over this one's")

# %% [markdown]
# The compiler's view of the kernel that holds most, the one with $dK$ and $dV$. **Predict** which of the four needs the most shared memory: "two passes", "one kernel", "TMA" or "Hopper".

# %%
my_largest = None

# %%
from flashlab.kernels import fa2_atomic_backward, fa2_split_backward, fa2_tma_backward
from flashlab.operator import hopper_backward as fa2_hopper_backward

modules = {"two passes": fa2_split_backward, "one kernel": fa2_atomic_backward, "TMA": fa2_tma_backward, "Hopper": fa2_hopper_backward}
jobs, L = [], meta(1, 16, 4096, dtype=torch.float32)
for module in modules.values():
    kernel, _, arguments = module.launch(Q, Q, Q, Q, Q, L, None, Q, Q, Q, causal=True, scale=128**-0.5)[1]
    jobs.append((kernel, arguments, 90))
rows = [{"name": name, "registers": gpu.registers, "spills": gpu.spills, "shared": gpu.shared_bytes, "limit": SHARED_LIMIT[90]}
        for name, gpu in zip(modules, compile_all(jobs), strict=True)]
_ = compare("shared memory of backward kernels", my_largest, max(rows, key=lambda row: row["shared"])["name"])
figures.compiled_kernels(rows)

# %% [markdown]
# **Compare.** Two sums and two matrices of scores: registers are the limit here, as in chapter 11, and all four spill a little. The Hopper rung lets its two consumers take turns with $dQ$: one computes it for even tiles, the other for odd ones, while the other runs ahead; TMA adds the tile up in memory. **Predict** each rung's gain over the one before it, at the size chosen near the top.

# %%
my_backward_gains = {"+ split loops": None, "+ tuned": None, "+ one kernel": None, "+ TMA": None, "Gluon, Hopper": None}

# %%
by_tma = bench.load_results("backward_h200", "TMA")               # that rung came later: a run of its own, with those beside it
runs = {rung.name: by_tma if gains(by_tma, rung.name) else backward for rung in ladder.BACKWARD_KERNELS if rung_before(rung.name)}
climbed = {ladder.rung(name).title: gain(name, run)[0] for name, run in runs.items()}
said = compare("gains of the backward rungs", my_backward_gains, climbed, "times")
for name, run in runs.items():
    all_sizes = gains(run, name)
    ahead, behind = (sum(not tied and (ratio > 1) == up for _, ratio, tied in all_sizes) for up in (True, False))
    print(f"{label(name)}: ahead at {ahead} of {len(all_sizes)} sizes, behind at {behind} (recorded)")
figures.kernels_beside_peers(backward, d, min((1024, 4096, 16384), key=lambda size: abs(size - N)), causal)

# %% [markdown]
# **Compare.** The split's gain grows with the length of the loops, and for short ones it can cost. The search adds next to nothing. One kernel in place of two gains less than the share of its products says, next to nothing without a mask, and at $d = 64$ it can be behind: the sum in memory is what it pays with. Here are all sizes:

# %%
figures.gain_of_rung(backward, "fa2_atomic_backward")

# %% [markdown]
# TMA can add as well as copy: a program hands over a whole tile of $dQ$ and goes on. Its first version gained more with a mask than without, where all programs of a head begin at tile 0 and add to the same $dQ_0$, then all to $dQ_1$; with a mask they begin where their keys are first seen. **Predict** what it was worth without a mask to have block $j$ begin at tile $j$, at $d = 64$, $N = 16384$.

# %%
my_gain_of_beginning_apart = None

# %%
together = bench.load_results("backward_h200", "TMA, same start")


def unmasked(run):
    """Multiples of cuDNN's speed in the same run."""
    return {f"d = {row['d']}, N = {row['N']}": row["vs_sdpa_cudnn"] for row in run["rows"]
            if row["implementation"] == "fa2_tma_backward" and not row["causal"]}


begun_apart = bench.load_results("backward_h200", "TMA, begun apart")
apart = {size: ratio / unmasked(together)[size] for size, ratio in unmasked(begun_apart).items()}
_ = compare("programs that begin apart", my_gain_of_beginning_apart, apart["d = 64, N = 16384"], "times")
figures.bars(apart, "It pays at every size to begin apart",
             f"Recorded on {bench.where(begun_apart)}: two runs, each as a multiple of cuDNN's speed in the same run.", "times as fast")

# %%
figures.gain_of_rung(by_tma, "fa2_tma_backward")

# %% [markdown]
# **Compare.** At $d = 64$ TMA's rung is ahead everywhere. At $d = 128$ it is even without a mask, or a little behind, and behind with one; why has not been taken apart.
#
# At $d = 64$ without a mask its programs have become *lean* since: two stages in place of three, and 168 registers a thread at most, so that an SM runs three in place of two. The assembler warns that so few registers let no two products be under way at once, and counting on is cheaper there than dividing to find the next head and tile. While one program waits, two others work: 0.84 to 0.86 times cuDNN's speed, after 0.78 to 0.79 (`results/backward_h200.json`, the run “TMA, begun apart”).
#
# The last rung takes the largest step here, too. Its gain over the one before, by size:

# %%
figures.gain_of_rung(by_tma, "fa2_hopper_backward")

# %% [markdown]
# **Takeaway.** The backward pass has more products for each byte on chip, and one sum too many to own. Recompute it, or add it up in memory; then give up the same bits each time, or take turns.

# %% [markdown]
# ## An open question
#
# FlashAttention-3 puts an H100 at 989 TFLOP/s of products and 3.9 T exponentials a second: at $d = 128$ the exponentials take half as long as the products, at $d = 64$ as long. What would you do with a GPU whose tensor cores are twice as fast and whose exponentials are not? Change `product` and `softmax` in the last timelines, and try three consumers on paper. Then there are polynomials: $2^x$ can also be computed with multiply-adds. When would that pay, and which unit would you take the time from?
#
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691) · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), on turns and on products under the softmax · NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), on mma, wgmma, cp.async.bulk.tensor and setmaxnreg · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), on shared memory's banks and on an SM's limits · Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973)
#
# **Next:** [13 · Decoding](13_decoding.ipynb) has one query and many keys: the ladder stands idle there.
