# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 12b · The Hopper kernel
#
# **You will be able to** explain a Hopper kernel line by line, run its signals on a simulator, find its deadlocks, and change it so that it still compiles and is right.
#
# **You need** chapters 06 and 12. · **Eleven sittings** of 25 to 45 minutes, 6 hours and 45 minutes in all, with seven exercises · **runs on** CPU or GPU; Triton, so Linux
#
# In chapter 12 the compiler decides when a tile is copied and when a product is waited for. Here the kernel decides, in Gluon, the language below Triton. Six rungs lead to the Hopper kernel, one idea a rung.

# %%
import flashlab  # first: it tells Triton whether to compile or to interpret
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import inspect
import itertools
import tempfile

import torch

from flashlab.kernels import hopper_consumers, hopper_overlap, hopper_persistent, hopper_producer, hopper_ring, hopper_turns, hopper_words
from flashlab.ladder import HOPPER_RUNGS
from flashlab.operator import hopper_backward_pipeline
from flashlab_course import bench, figures
from flashlab_course.bench.hopper import CHANGES
from flashlab_course.bench.parts import variant
from flashlab_course.check import check
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_for
from flashlab_course.gpu import warp_programs
from flashlab_course.gpu.warps import Ring, arrive, fetch, first_error, release, simulate, softmax, sync, wait, wgmma, wgmma_wait
from flashlab_course.lesson import changes, compare, excerpt, reveal
from flashlab_course.lesson.stand_in import changed, outcome
from flashlab_course.player.machine import play_warps

# %% [markdown]
# ## Where the six rungs lead
#
# Speeds as multiples of cuDNN's: chapter 12's TMA kernel, the six rungs, and the *operator's kernel*, which `flash_attention` runs (“Gluon, Hopper”).

# %%
recorded = bench.load_results("hopper_h200")
rungs = dict.fromkeys(["fa2_tma_forward", *(one.name for one in HOPPER_RUNGS), "fa2_hopper_forward"])
figures.speeds_beside(recorded, rungs, "sdpa_cudnn")

# %% [markdown]
# At $d = 128$ the first two rungs are slower than the compiler's kernel, and the last two are faster at every size. At $d = 64$ the rungs after the ring gain at most 4 % over the compiler's kernel.
#
# ## Sitting 1 · Copies that report back (45 minutes)
#
# ### Three units that work by themselves
#
# | unit | who asks | how the asker learns that it is done |
# |---|---|---|
# | TMA copies a tile from HBM to shared memory | one thread | an mbarrier in shared memory |
# | tensor cores multiply tiles: `wgmma` | a *warpgroup*, 128 threads | `wgmma_wait` |
# | threads compute exponentials and sums | the same threads | the next line simply comes later |
#
# The first two are *asynchronous*: the asker goes on at once. A kernel is fast if all three units work at the same time. It is right if nobody reads a tile before it has landed, or overwrites one that is still being read.
#
# ### An mbarrier counts arrivals and bytes
#
# An *mbarrier* is eight bytes of shared memory, made for a number of arrivals. `expect` is one arrival and announces bytes; TMA subtracts the bytes that have landed. When no arrival and no byte is left to come, the barrier's *phase* ends and the next one begins.
#
# | Gluon | simulator |
# |---|---|
# | `mbarrier.init(full, count=1)` | `Ring("K", slots=1)` makes `K.full[0]` and `K.free[0]` |
# | `mbarrier.expect(full, bytes)`, then `tma.load(K, [row, 0], full, K_s)` | `yield fetch(K, tile, slot)` |
# | `mbarrier.wait(full, 0)` | `yield wait(K.full[slot], 0)` |
# | `wgmma(Q_s, K_s, zeros, is_async=True)` | `yield wgmma(K, slot, tile)` |
# | `wgmma_wait(0)` | `yield wgmma_wait(0)` |
#
# **Predict** how many bytes a barrier expects for 128 keys of $d = 128$ in bfloat16.

# %%
my_expected_bytes = None

# %%
said = compare("bytes of a block of keys", my_expected_bytes)

# %% [markdown]
# In the simulator a program is a Python generator: each `yield` asks the machine for something. Step through this one. The column *full* shows the phase, and what is still to come. **Stop and look** jumps to the steps that matter.

# %%
def one_tile(K):
    yield fetch(K, 0, 0)
    yield wait(K.full[0], 0)
    yield wgmma(K, 0, 0)                               # S = Q Kᵀ
    yield wgmma_wait(0)
    yield softmax(0)


play_warps(simulate({"warpgroup": one_tile(Ring("K", slots=1))}))

# %% [markdown]
# A GPU says nothing about a forgotten wait. The machine does; this cell goes wrong on purpose.

# %%
def without_a_wait(K):
    yield fetch(K, 0, 0)
    yield wgmma(K, 0, 0)


print(simulate({"warpgroup": without_a_wait(Ring("K", slots=1))}).error)

# %% [markdown]
# ### Why a wait names a parity
#
# A slot is used again and again, so its barrier passes through phases 0, 1, 2, … The hardware knows only whether the current phase is even or odd. `wait(full, 0)` blocks while the phase is even, and `wait(full, 1)` while it is odd.
#
# **Predict**: tile 1 is on its way to the slot that tile 0 has used. What does `wait(K.full[0], 0)` do now, “goes on” or “waits”?

# %%
my_second_wait = None

# %%
said = compare("a second wait for parity 0", my_second_wait)

# %% [markdown]
# **Your turn: a second tile** (5 minutes). Add four lines: fetch tile 1 into the same slot, wait for it, multiply, wait for the product. Try both parities. The simulator runs the program with 50 sets of durations. You want *50 runs, no error* and both tiles.

# %%
# Your four lines go at the end:
def two_tiles(K):
    yield fetch(K, 0, 0)
    yield wait(K.full[0], 0)
    yield wgmma(K, 0, 0)
    yield wgmma_wait(0)


def fifty_runs(make):
    return first_error(make, seeds=50).error.replace("; consumer", ";\nconsumer") or "50 runs, no error"


print(fifty_runs(lambda: {"warpgroup": two_tiles(Ring("K", slots=1))}))
asked = simulate({"warpgroup": two_tiles(Ring("K", slots=1))}).requests
print("tiles multiplied:", [of[2] for _, (what, of) in asked if what == "wgmma"])

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# `yield fetch(K, 1, 0)`, `yield wait(K.full[0], 1)`, `yield wgmma(K, 0, 1)`, `yield wgmma_wait(0)`. With parity 0 the wait goes on at once, and the machine says that K 1 is still on its way.
#
# </details>
#
# In a *ring* of two slots, block $j$ lies in slot $j \bmod 2$ and is that slot's use number $\lfloor j/2 \rfloor$. When the tile of use $u$ has landed, phase $u$ of `full` ends.
#
# **Predict** the slot of block 5, and the parity that its reader waits for.

# %%
my_slot_and_parity = [None, None]

# %%
said = compare("slot and parity of block 5", my_slot_and_parity)

# %% [markdown]
# In code: `j % slots` and `j // slots % 2`.
#
# **Exercise: a ring and its phases** ([exercises/ex12b_ring.py](../exercises/ex12b_ring.py), 25 minutes). Write a producer and a consumer that share a ring. The file explains a slot's second barrier, `free`.

# %%
check("ex12b_ring")

# %%
reveal("ex12b_ring")

# %% [markdown]
# **Takeaway.** An mbarrier counts arrivals and bytes; its phase ends when nothing is left to come. A wait names the parity of the phase that must be over.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 · The first kernel (35 minutes)
#
# ### All warps in step
#
# The first rung is `flashlab/kernels/hopper_ring.py`. Its eight warps share 128 query rows and do everything together:

# %%
print(excerpt(hopper_ring.KERNEL, "for j in range(0, end)", "V_full.index(slot), V_s.index(slot))"))

# %% [markdown]
# | line | meaning |
# |---|---|
# | `allocate_shared_memory(K.dtype, [SLOTS] + K.block_shape, K.layout)` | before the loop. `K` is TMA's descriptor: `block_shape` is its tile, $[128, d]$, and `layout` swizzles the tile as `wgmma` reads it |
# | `gl.constexpr`, `gl.static_range` | a value known to the compiler; a loop that it unrolls |
# | `K_s.index(slot).permute((1, 0))` | the tile in that slot, read as $K^\top$; nothing is moved |
# | `zeros`, `use_acc=False` | `zeros` says the result's shape and layout. It costs no registers: a product's first instruction does not add |
# | `wgmma_wait(0, deps=[S])` | wait until no product is under way. `deps` are the results that become tiles here; computing with one earlier does not compile |
# | `thread_barrier()` | all warps meet: all have read the slot, and TMA may overwrite it |
#
# Two helpers from `flashlab/kernels/hopper_words.py` make and use the signals:

# %%
def show(*helpers):
    for one in helpers:
        print(inspect.getsource(getattr(one, "fn", one)).removeprefix("@jit\n").rstrip())


show(hopper_words.mbarriers, hopper_words.fetch)

# %% [markdown]
# <details><summary><b>Which thread does which line?</b> (to look up)</summary>
#
# All warps with the same job run the same lines. From the PTX of these kernels:
#
# | line | who acts | do the warps meet? |
# |---|---|---|
# | `expect`, `mbarrier.arrive` | their first thread | no; `release` has a `thread_barrier()` for it |
# | `tma.load` | one elected thread | before it |
# | `mbarrier.wait` | every thread | no |
# | `Q_s.store`, then `fence` | every thread, for what it writes | before the store |
# | `tma.store` | one elected thread | before it, after `fence` |
# | `tma.store_wait` | the thread that issued the store | after it |
# | `mbarrier.init` | one elected thread | after all of them |
# | `gl.atomic_add` | the warp's first thread; all 32 get the result | after it |
# | `lay_down`, `look_at` | every thread writes, or reads, the same number | no |
#
# </details>
#
# The same program in the simulator. Look at the bars: the tensor cores stand idle in every softmax.

# %%
K, V = Ring("K", slots=2), Ring("V", slots=2)
play_warps(simulate({"all warps": warp_programs.in_step(K, V, 4)}, threads={"all warps": 256}))

# %% [markdown]
# ### Change it: one slot
#
# With one slot each for $K$ and $V$, shared memory is saved, but the warps stand idle during copies. The loop asks for both tiles at its end, later than it has to for $K$.
#
# **Predict** behind which line of the loop `fetch(K, ...)` may stand at the earliest: “wgmma”, “wgmma_wait” (of each the first), or “softmax”?

# %%
my_earliest_place = None

# %%
said = compare("the earliest place of K's fetch", my_earliest_place)

# %% [markdown]
# **Your turn** (5 minutes). This is the rung's program. Move the last `fetch(K, ...)` there, with an `if` of its own, and run both cells. You want *50 runs, no error*, and 27,900 cycles with one slot.

# %%
# Your change goes into this loop:
def my_ring(K, V, end):
    slots = len(K.slots)
    for j in range(min(slots, end)):
        yield fetch(K, j, j)
        yield fetch(V, j, j)
    for j in range(end):
        slot, phase = j % slots, j // slots % 2
        yield wait(K.full[slot], phase)
        yield wgmma(K, slot, j)                        # S = Q Kᵀ
        yield wgmma_wait(0)
        yield softmax(j)
        yield wait(V.full[slot], phase)
        yield wgmma(V, slot, j)                        # O += P V
        yield wgmma_wait(0)
        if j + slots < end:
            yield fetch(K, j + slots, slot)
            yield fetch(V, j + slots, slot)

# %%
def ring_of(program, slots):
    return {"all warps": program(Ring("K", slots), Ring("V", slots), 8)}


print("yours, one slot:", fifty_runs(lambda: ring_of(my_ring, 1)))
for name, program, slots in [("the rung, two slots", warp_programs.in_step, 2), ("the rung, one slot ", warp_programs.in_step, 1),
                             ("yours, one slot    ", my_ring, 1)]:
    print(name, simulate(ring_of(program, slots), threads={"all warps": 256}, unsteady=False).now, "cycles of the model")

# %% [markdown]
# Now change the kernel itself. `outcome` changes lines of a rung's file, given as pairs (old text, new text). It runs the kernel's own lines on the CPU, with a Python thread for each warpgroup, and compares with float64. If it is right, `judge` also compiles it for an H100; no GPU is needed. A call takes 10 to 25 seconds.
#
# Four mistakes are called right, because a warpgroup is one thread there and copies by TMA never lag behind: no `thread_barrier()`, no `fence()`, no `tma.store_wait(0)`, and a bare `mbarrier.arrive` in place of `release`.

# %%
def compiled(module, d, causal=False):                 # for an H100: 16 heads, N = 4096
    T, L = torch.empty(1, 16, 4096, d, dtype=torch.bfloat16, device="meta"), torch.empty(1, 16, 4096, device="meta")
    return compile_for(module.KERNEL, module.launch(T, T, T, T, L, causal=causal, scale=d**-0.5)[1], 90)


def judge(module, lines, *head_dims):
    good = (words := outcome(module, lines)).startswith("ok")
    print("on CPU threads:", words)
    for d in head_dims if good else ():                # only what is right is compiled
        with tempfile.TemporaryDirectory() as folder:
            made = compiled(variant(module, lines, folder), d, causal=True)
        fits = made.shared_bytes <= SHARED_LIMIT[90]
        good = good and fits and not made.spills
        print(f"d = {d}: {made.registers} registers at launch, {made.spills} bytes spilled, "
              f"{made.shared_bytes:,} bytes shared: {'fits' if fits else 'does not fit'}; {made.warnings or 'no warnings'}")
    print("Passed." if good else "Not yet.")

# %% [markdown]
# **Your turn** (10 minutes). Two pairs are given: one slot, and no fetch of $K$ at the end. So the kernel hangs. Add a pair that puts the fetch where it belongs. Which line must stand before it, so that *all* warps have read the slot? (`judge` does not see if it is missing.)

# %%
FETCH_K = "            fetch(K, [first_key + (j + SLOTS) * KEYS, 0], K_full.index(slot), K_s.index(slot))\n"
# Your pair (old text, new text) goes behind these two:
MY_RING = [("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)"), (FETCH_K, "")]
judge(hopper_ring, MY_RING, 128)

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# ```python
# WAIT_S = "        S = wgmma_wait(0, deps=[S])\n"
# MY_RING += [(WAIT_S, WAIT_S + "        thread_barrier()\n        if j + SLOTS < end:\n" + FETCH_K)]
# ```
#
# `thread_barrier()` must stand before the fetch: the waits of other warps may not be over yet.
#
# </details>
#
# **Takeaway.** A slot is free as soon as the product that reads it has ended, not at the end of the loop.
#
# *End of sitting 2.*
#
# ## Sitting 3 · Layouts: who holds what (35 minutes)
#
# `wgmma` reads its right operand from shared memory and its left one from there or from registers; the result lies in registers. A *layout* says which thread holds which number. The kernel names the layout of $S$ as `NVMMADistributedLayout([3, 0], [8, 1], [16, 128, 16])`: version 3 of the instruction, eight warps below one another, 16 rows and 128 columns a warp, and 16 numbers deep an instruction. Within a warp the hardware fixes the pattern:

# %%
figures.holders()

# %% [markdown]
# Four threads share a row, and a thread holds numbers of two rows. A maximum over four threads takes two exchanges between threads, and a sum takes two more. The rest of the softmax stays within a thread.
#
# **Predict** how many registers of 32 bits a thread needs for $S$: 128 rows and 128 columns in float32, on eight warps.

# %%
my_registers_of_S = None

# %%
said = compare("registers for S", my_registers_of_S)

# %% [markdown]
# At $d = 128$, $O$ takes as many registers as $S$, and $P$ in 16 bits half as many. A thread may have 255. This limits the tiles of all kernels here.
#
# Three helpers compute with such tiles. `SliceLayout(1, layout)` has one number a row, in each of the four threads that share it; `SliceLayout(0, layout)` has one a column.

# %%
show(hopper_words.softmax, hopper_words.hide_future, hopper_words.scaled_rows)

# %% [markdown]
# ### P becomes an operand
#
# The second product takes $P$ as its left operand, from registers:

# %%
print(excerpt(hopper_ring.KERNEL, "P = gl.convert_layout", "P = gl.convert_layout"))

# %% [markdown]
# `DotOperandLayout(0, O_layout, 2)` says: operand 0, the left one; of a product whose result has `O_layout`; with 2 numbers in each register of 32 bits. As a left operand, a thread must hand in two neighbouring columns of every eight, in the same two rows. These are the numbers of $S$ that it already holds. So the conversion is free: two neighbours are packed into one register, and no number changes threads.
#
# **Predict** how many exchanges (`shfl.sync.bfly` in PTX) the loop has for each block, if the conversion costs none.

# %%
my_exchanges = None

# %%
said = compare("exchanges of a block", my_exchanges)
print(compiled(hopper_ring, 128).ptx.count("shfl.sync.bfly"), "in the compiled kernel")

# %% [markdown]
# At the end, $O$ goes through shared memory to HBM by TMA. TMA may overtake what a thread has just written to shared memory; `fence()` forbids that. `tma.store_wait(0)` waits until TMA has read the tile. `/ LOG2_E` turns $L$ in base 2 into a natural logarithm.

# %%
print(excerpt(hopper_ring.KERNEL, "Q_s.store", "store_wait"))

# %% [markdown]
# **Exercise: who holds it?** ([exercises/ex12b_layout.py](../exercises/ex12b_layout.py), 20 minutes). Which rows and columns of the accumulator does a thread hold?

# %%
check("ex12b_layout")

# %%
reveal("ex12b_layout")

# %% [markdown]
# **Takeaway.** A layout says which thread holds which number. $P$ is already where the next product wants it.
#
# *End of sitting 3.*
#
# ## Sitting 4 · Warps with different jobs (40 minutes)
#
# ### A warp that only loads
#
# In the second rung one more warp, the *producer*, does all copies; the other eight are the *consumer*. The producer runs ahead until the ring is full. Each slot has its second barrier, `free`: the consumer arrives there when it has read the slot, and the producer waits there before it fills the slot again.

# %%
print(excerpt(hopper_producer.fetch_when_free, "def fetch_when_free", "T_s.index(slot)"))
print(excerpt(hopper_producer.producer, "for j", "V_full, V_free, j)"))
show(hopper_words.release)                             # the consumer's side

# %% [markdown]
# The consumer's reading of use $u$ ends phase $u$ of `free`. The producer may fill use $u$ when use $u - 1$ has been read, so it waits for the other parity, `phase ^ 1`. Before the first use nobody has read anything, and a new barrier lets `wait(free, 1)` pass at once.
#
# **Predict**: the producer below waits for the consumer's parity. How many tiles does it fetch?

# %%
my_fetched = None

# %%
def hopeful_producer(K, V, end):
    for j in range(end):
        for ring in (K, V):
            slot, phase = j % len(ring.slots), j // len(ring.slots) % 2
            yield wait(ring.free[slot], phase)         # the consumer's parity
            yield fetch(ring, j, slot)


said = compare("tiles fetched with the wrong parity", my_fetched)
K, V = Ring("K", slots=2), Ring("V", slots=2)
play_warps(simulate({"producer": hopeful_producer(K, V, 4), "consumer": warp_programs.consumer(K, V, 4)}))

# %% [markdown]
# A *deadlock*: each waits for the other. The player opens at the hang, and says who alone could end each wait. With the right parity:

# %%
K, V = Ring("K", slots=2), Ring("V", slots=2)
play_warps(simulate({"producer": warp_programs.producer(K, V, 4), "consumer": warp_programs.consumer(K, V, 4)}))

# %% [markdown]
# ### Two consumers
#
# So far no softmax has a product beside it. The third rung has two consumers, warpgroups of 64 query rows each. They share $K$ and $V$, and each goes at its own pace: while one computes exponentials, the other's products can run.

# %%
print(changes(hopper_producer.attend, hopper_consumers.attend))

# %%
def at_its_mean(program, end=4, **threads):            # durations do not vary: runs can be compared
    readers = 1 if threads else 2
    K, V = Ring("K", slots=2, readers=readers), Ring("V", slots=2, readers=readers)
    pair = {f"consumer {me}": program(me, K, V, end) for me in range(readers)}
    return simulate({"producer": warp_programs.producer(K, V, end)} | pair, threads=threads, unsteady=False)


plain = lambda me, *rest: warp_programs.consumer(*rest)
one_or_two = {"one consumer": at_its_mean(plain, **{"consumer 0": 256}), "two consumers": at_its_mean(plain)}
figures.warps_at_work(one_or_two, "flashlab_course.gpu.warps, 4 blocks, two slots.")

# %% [markdown]
# (The one consumer has eight warps; each of two has four, and half of the rows.) `free` is now made by `mbarriers(SLOTS, CONSUMERS)`, for two arrivals. In `release`, `thread_barrier()` now meets the consumer's own warps only.
#
# What if `free` counted one arrival? Change the kernel; this cell goes wrong on purpose.

# %%
said_of_it = outcome(hopper_consumers, [("mbarriers(SLOTS, CONSUMERS))\n", "mbarriers(SLOTS, 1))\n")])
print("right:", said_of_it.startswith("ok"))

# %% [markdown]
# Each arrival ends a phase: the producer overwrites a tile that the other consumer still reads, or the parities get out of step. `said_of_it` says what happened.
#
# **Exercise: when may the producer overwrite?** ([exercises/ex12b_overwrite.py](../exercises/ex12b_overwrite.py), 25 minutes). Write the consumer's part: two consumers read each tile, and one may skip it.

# %%
check("ex12b_overwrite")

# %%
reveal("ex12b_overwrite")

# %% [markdown]
# **Takeaway.** A producer runs ahead as far as its ring allows, with the other parity; `free` counts both consumers.
#
# *End of sitting 4.*
#
# ## Sitting 5 · Registers change hands (30 minutes)
#
# An SM has 65,536 registers. The program is launched with 384 threads: two consumers of 128, and the producer's warp, filled up to a warpgroup. Each thread begins with 168 registers, $65536 / 384$ rounded down to a multiple of 8. The producer needs few. With `setmaxnreg`, which takes multiples of 8 only, its warpgroup keeps 24 a thread and gives the rest away.
#
# **Predict** how many registers a thread of the two consumers can have then.

# %%
my_registers_of_a_consumer = None

# %%
said = compare("registers of a consumer's thread", my_registers_of_a_consumer)
print(excerpt(hopper_consumers.KERNEL, "gl.warp_specialize", "of all but the first"))

# %% [markdown]
# `[4, 1]` are the warps of consumer 1 and of the producer, `[240, 24]` the registers of their threads. Consumer 0 has the launch's own warps and gets the rest.
#
# **Exercise: what fits into registers** ([exercises/ex12b_registers.py](../exercises/ex12b_registers.py), 20 minutes).

# %%
check("ex12b_registers")

# %%
reveal("ex12b_registers")

# %% [markdown]
# ### What the record says
#
# A producer with a single consumer is no faster than the ring at any size (pale: the ranges of the runs overlap). With two consumers the kernel is faster than the ring, except at $d = 64$ without a mask:

# %%
figures.speeds_beside(recorded, {"hopper_producer_forward": None, "hopper_consumers_forward": None}, "hopper_ring_forward")

# %% [markdown]
# **Takeaway.** The producer gives registers to the consumers.
#
# *End of sitting 5.*
#
# ## Sitting 6 · Products under the softmax (35 minutes)
#
# ### Issue early, wait late
#
# $S$ of the *next* block does not depend on this softmax. So the fourth rung issues $S_{j}$ and then $O \mathrel{+}= P_{j-1} V_{j-1}$, waits for $S_j$ alone, and computes the softmax of block $j$ while the product for $O$ may still run.
#
# `wgmma_wait(n)` returns when at most $n$ of the warpgroup's products are under way; products end in the order in which they were issued. **Predict** $n$ for the wait that must have $S_j$ and leaves $O$'s product alone.

# %%
my_n = None

# %%
said = compare("products that may still be under way", my_n)
print(excerpt(hopper_overlap.attend, "for j in range(1, end)", "O_i = scaled_rows(O_i, alpha)"))

# %% [markdown]
# What the lines rely on:
#
# - `wgmma_wait(1, deps=[S])` makes a tile of $S$ only. $O$'s product still writes to $O$'s registers, so $O$ is rescaled behind its own wait. Before it, `scaled_rows(O_i, alpha)` does not compile.
# - $O$'s product also still *reads* $P$ from registers. So the compiler gives the new tile other registers. The name `P_next` only tells you so: with `P` in its place the machine code is the same.
# - `pred` switches a wait off: behind the last block there is no next $K$.
# - Keys are walked from the last block to the first. A causal mask cuts only the last block of a tile. It comes before the loop, and the loop needs no mask.

# %%
K, V = Ring("K", slots=2, readers=2), Ring("V", slots=2, readers=2)
consumers = {f"consumer {me}": warp_programs.overlapping_consumer(K, V, 4) for me in (0, 1)}
play_warps(simulate({"producer": warp_programs.producer(K, V, 4)} | consumers))

# %%
overlapping = lambda me, *rest: warp_programs.overlapping_consumer(*rest)
figures.warps_at_work({"two consumers": at_its_mean(plain), "overlap": at_its_mean(overlapping)},
                      "flashlab_course.gpu.warps, 4 blocks, two slots.")

# %% [markdown]
# **Exercise: find the deadlock** ([exercises/ex12b_deadlock.py](../exercises/ex12b_deadlock.py), 15 minutes). A consumer like this one, and a producer that asks for room in the wrong order: with one slot they wait for each other.

# %%
check("ex12b_deadlock")

# %%
reveal("ex12b_deadlock")

# %% [markdown]
# ### A wait in an odd place
#
# Why does the loop wait for the next $K$ before its wait for $O$, and not at its head, where $K$ is needed? Compile both. A product is eight instructions. A thread has 66 exponentials: 64 of $P$, and `alpha` of its two rows.

# %%
wait_for_K = "        mbarrier.wait(K_full.index((j + 1) % SLOTS), (j + 1) // SLOTS % 2, pred=j + 1 < end)\n"
issue = "        S = wgmma(Q_s.index(me), K_s.index(slot)"
moved = [("    mbarrier.wait(K_full.index(1 % SLOTS), 1 // SLOTS % 2, pred=end > 1)\n", ""), (wait_for_K, ""),
         (issue, f"        mbarrier.wait(K_full.index(slot), j // SLOTS % 2)\n{issue}")]


def in_machine_code(made):
    words = {"HGMMA": "product", "WARPGROUP.DEPBAR": "wait", "MUFU.EX2": "exponential"}
    found = [word for line in made.sass.splitlines() for name, word in words.items() if name in line]
    runs = [(word, len(list(run))) for word, run in itertools.groupby(found)]
    parts = [part for word, n in runs for part in ([word] * n if word == "wait" else [f"{n} {word}s"])]
    loop = parts.index("16 products")                  # S and O: the loop issues both, one after the other
    return ", ".join(parts[loop : loop + 4])

# %%
for name, lines in {"as it is": [], "moved": moved}.items():
    with tempfile.TemporaryDirectory() as folder:
        print(f"{name:9}", in_machine_code(compiled(variant(hopper_overlap, lines, folder), 128)))
    print(" " * 9, outcome(hopper_overlap, lines))

# %% [markdown]
# Both are right. With the wait for $K$ at the head, the assembler has pulled the wait for $O$ above the exponentials, and the overlap is gone. It did not pull it across an `mbarrier.wait`: seen in this compile, promised by nobody. Sitting 10 shows what that costs, as *both products before the softmax*.
#
# **Takeaway.** Issue a product as early, and wait for it as late as you can. Only the machine code shows whether it stays so.
#
# *End of sitting 6.*
#
# ## Sitting 7 · Take turns (35 minutes)
#
# Two consumers may ask for products at the same moment, and then compute exponentials together. The fifth rung makes them alternate, with *named barriers*: a program has sixteen, which count threads. `arrive` counts and goes on; `sync` counts and waits until enough threads have come. Gluon has no word for them, so they are assembly: `$1` is the barrier, `$2` the number of threads. `"=r,r,r"`: one result and two operands, in registers of 32 bits. `pack=1`: one number at a time. `is_pure=False`: the compiler must not drop a line whose result nobody uses.

# %%
show(hopper_words.sync, hopper_words.arrive)

# %% [markdown]
# **Predict** how many threads the barrier must count, if one consumer waits there and the other arrives when it passes the turn on.

# %%
my_threads = None

# %%
said = compare("threads at the barrier of a turn", my_threads)

# %% [markdown]
# ### What turns do
#
# Two consumers begin together, and all tiles are there. In the worst case the tensor cores take instructions of both alternately, and both products end together (`TOGETHER` forces that). Then both compute exponentials, and the tensor cores are idle. With turns, one's softmax stands beside the other's product. The machine finds this order by itself, too, if nothing forces the worst case: turns only make sure of it.

# %%
TURN, TOGETHER = 12, 14


def begin_together(me, K, V, turns, forced):
    if turns and me == 1:
        yield arrive(TURN, 256)
    for j in range(len(K.slots)):
        if turns:
            yield sync(TURN + me, 256)
        yield wgmma(K, j, j)                           # S
        if turns:
            yield arrive(TURN + 1 - me, 256)
        yield wgmma_wait(0)
        if forced:
            yield sync(TOGETHER, 256)
        yield softmax(j)
        yield wgmma(V, j, j)                           # O
    yield wgmma_wait(0)

# %%
def with_all_tiles_there(turns=False, forced=False):
    K, V = Ring("K", slots=4), Ring("V", slots=4)
    for ring in (K, V):
        for j, slot in enumerate(ring.slots):
            slot.holds = f"{ring.name} {j}"
    return simulate({f"consumer {me}": begin_together(me, K, V, turns, forced) for me in (0, 1)}, unsteady=False)


orders = {"worst case": with_all_tiles_there(forced=True), "not forced": with_all_tiles_there(),
          "turns": with_all_tiles_there(turns=True)}
figures.warps_at_work(orders, "flashlab_course.gpu.warps, 4 blocks, every computation at its mean duration.")

# %% [markdown]
# **Exercise: pass the turn** ([exercises/ex12b_pass_the_turn.py](../exercises/ex12b_pass_the_turn.py), 20 minutes). When is it passed on: when the product has been issued, or when it has ended?

# %%
check("ex12b_pass_the_turn")

# %%
reveal("ex12b_pass_the_turn")

# %% [markdown]
# The kernel's lines. `TURN = 12`: Triton itself uses the first few of the sixteen barriers. All 128 threads of a consumer run both lines, and all count. With $n$ consumers the turn goes to `TURN + (me + 1) % n`. 256 stays: one waits, one passes on.

# %%
print(excerpt(hopper_turns.issue_scores, "sync(", "return S"))
print(excerpt(hopper_turns.attend, "if me == 1", "arrive"))

# %% [markdown]
# Before the first tile consumer 1 arrives once, so consumer 0 has the first turn. From then on each `sync` meets the other's `arrive`. Watch consumer 1 wait for its turn, and the products alternate.

# %%
K, V = Ring("K", slots=2, readers=2), Ring("V", slots=2, readers=2)
consumers = {f"consumer {me}": warp_programs.consumer_in_turn(me, K, V, 3) for me in (0, 1)}
play_warps(simulate({"producer": warp_programs.producer(K, V, 3)} | consumers))

# %% [markdown]
# ### Change it: the first turn
#
# **Your turn** (5 minutes). Here nobody arrives before the first tile, and the kernel hangs. Change `MY_START` so that *consumer 1* has the first turn.

# %%
START = "    if me == 1:\n        arrive(TURN, 256) "
# Your change goes into the second text:
MY_START = "    if me == 1:\n        pass "
judge(hopper_turns, [(START, MY_START)], 128)

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# Consumer 0 arrives where consumer 1 waits: `"    if me == 0:\n        arrive(TURN + 1, 256) "`. If the other consumer begins, it also arrives last. Nobody waits for that arrival. (`arrive(TURN + 1, 256)` by consumer 1 itself passes, too: a barrier counts threads, not who they are.)
#
# </details>
#
# Both rungs in the record, each against the rung before it:

# %%
figures.speeds_beside(recorded, {"hopper_overlap_forward": None}, "hopper_consumers_forward")

# %%
figures.speeds_beside(recorded, {"hopper_turns_forward": None}, "hopper_overlap_forward")

# %% [markdown]
# Overlap pays at $d = 128$ and not at $d = 64$, and at $d = 128$ turns gain less than overlap. Nobody has measured why.
#
# **Takeaway.** A turn is passed on when the product has been issued.
#
# *End of sitting 7.*
#
# ## Sitting 8 · Programs that stay (40 minutes)
#
# ### A counter hands out tiles
#
# So far a program computes one tile and ends. In the last rung one program per SM takes tile after tile: while the consumers finish one, the producer loads the next.
#
# Causal tiles have different lengths. **Predict** for two SMs and tiles of 4, 3, 2 and 1 blocks of keys: when is the last one done if SM 0 takes the first and third and SM 1 the others, and when if whoever is free takes the next?

# %%
my_ends = {"fixed": None, "counter": None}

# %%
said = compare("when the last SM is done", my_ends, unit="blocks")

# %% [markdown]
# A counter in HBM does the second: a producer that needs a tile adds one to it. The answer takes a while to come back, so the producer asks for the next tile before it loads this one. It lays the tile's number down beside $Q$.

# %%
print(excerpt(hopper_persistent.producer, "while tile < how_many", "lay_down"))

# %% [markdown]
# A program's first tile is its own number, `program_id`; the counter hands out the others. `n` counts the blocks of all tiles so far, because the rings go on where the tile before has left them. $Q$ has one slot, so there `turn`, the number of tiles, gives the phase.

# %%
show(hopper_persistent.lay_down, hopper_persistent.look_at, hopper_words.place)

# %% [markdown]
# `BlockedLayout([1], [32], [1], [0])`: 1 number a thread, 32 threads a warp, 1 warp, along axis 0. So each thread holds a copy.
#
# **Why do consumers see the number?** No barrier counts its bytes. But in PTX arriving at an mbarrier is a *release*, and waiting there an *acquire*: what a thread wrote before it arrived is visible to all who have waited for that phase. The thread that arrives at `Q_full` has stored the number before. Both consumers arrive at `Q_free` after their last $S$; only then the producer stores the next number.
#
# Watch the phases: they count on from tile to tile.

# %%
play_warps(simulate(warp_programs.last_rung(slots=2, ends=[3, 1, 2])))     # tiles of 3, 1 and 2 blocks

# %% [markdown]
# ### Which tile when
#
# Long tiles come first, so that no SM begins a long one last. One head has few long tiles, so several heads go side by side: `together`, as many as have their $K$ and $V$ in the L2 cache. `heads_together` takes a divisor of the number of heads, so no group is short. `tile % together` is the head in its group. Four heads of two tiles, two heads at a time, as (head, row, blocks):

# %%
with changed(hopper_persistent) as on_the_cpu:
    print(*[on_the_cpu.place(tile, 256, 2, 128, 128, True) for tile in range(8)])

# %% [markdown]
# The host's side:

# %%
show(hopper_persistent.launch, hopper_words.launch_tiles)

# %% [markdown]
# - `temporary` makes the counter, a zero in HBM, anew in each call.
# - `programs_at_a_time(Q, 8)` gives each SM one program: by its rule, an SM takes eight warps.
# - `positive_scale` moves a negative scale to $Q$: otherwise the largest score would become the smallest.
# - `operator.index(size)` is the plain number in a `gl.constexpr`.
#
# `hopper_persistent_forward` calls `checked_forward` with `B_r=None, B_c=None`, because its tiles are fixed, and with `why_not`, which refuses all but $N_q = N_k$, a multiple of 128.
#
# ### How many slots fit?
#
# $O$ now has a place of its own in shared memory, from which TMA writes while the next tile is computed.
#
# **Exercise: how many slots fit** ([exercises/ex12b_slots.py](../exercises/ex12b_slots.py), 20 minutes).

# %%
check("ex12b_slots")

# %%
reveal("ex12b_slots")

# %% [markdown]
# **Takeaway.** A counter hands out tiles, long ones first, and the rings run on from tile to tile.
#
# *End of sitting 8.*
#
# ## Sitting 9 · The whole kernel, line by line (40 minutes)
#
# The last rung from its first buffer to its last wait. You have seen what it calls: `fetch_when_free` (sitting 4), `issue_scores` (sitting 7), `lay_down`, `look_at` and `place` (sitting 8).
#
# ### Buffers, barriers, jobs

# %%
print(excerpt(hopper_persistent.KERNEL, "def hopper_persistent_kernel", "of all but the first"))

# %% [markdown]
# | lines | what they do |
# |---|---|
# | `number` | four bytes for the tile's number. `1, 1, 1` means no swizzle, `[0]` is its only axis |
# | `full`: one arrival | `expect` is that arrival. There is a `Q_full` for each consumer: each waits for its own rows only |
# | `mbarriers(1, CONSUMERS)` | `Q_free`: two arrivals, one barrier, because the producer overwrites both parts of $Q$ and the number at once |
# | `num_warps` | an option of the launch, 4: these warps become consumer 0 |
#
# **Who makes the new barriers visible?** The kernel has no line for it. This is the PTX from the last `init` on, and the PTX of `atomic_add`:

# %%
ptx = [line.strip() for line in compiled(hopper_persistent, 128).ptx.splitlines() if not line.strip().startswith((".loc", "//", "$"))]
inits = [n for n, line in enumerate(ptx) if "mbarrier.init" in line]
atom = next(n for n, line in enumerate(ptx) if "atom.global" in line)
print(len(inits), "barriers, the last:", *ptx[inits[-1] : inits[-1] + 3], "", *ptx[atom - 3 : atom + 5], sep="\n")
print("\nfences:", [(word, sum(word in line for line in ptx)) for word in ("fence.proxy.async", "fence.mbarrier_init")])

# %% [markdown]
# - One elected thread makes the barriers. Then all warps meet at `barrier.sync 1`, where consumer 1 and the producer have waited for their jobs: all threads see them.
# - No fence for TMA stands there. The two `fence.proxy.async` are the consumers' `fence()` before they store $O$.
# - `@%p…` is a predicate: the warp's first thread adds 1, and hands the old value to all 32 through shared memory.
#
# ### The producer

# %%
show(hopper_persistent.producer)

# %% [markdown]
# | lines | what they do |
# |---|---|
# | `head // group * N` | `group` query heads share a key head, which begins in this row of $K$ and $V$ |
# | the last `wait(Q_free)` | both consumers have read the last number; $-1$, no more tiles, may replace it |
# | `mbarrier.arrive(Q_full…)` | so far `expect` was the one arrival of each phase. Now nothing is fetched, so the producer arrives by hand |
#
# ### A consumer's tile: before the loop

# %%
print(excerpt(hopper_persistent.attend, "def attend", "pred=end > 1"))

# %% [markdown]
# | lines | what they do |
# |---|---|
# | `n % SLOTS`, `n // SLOTS % 2` | the tile's first block is the rings' block `n`: its slot and parity |
# | `pred=end > 1` | a tile of one block has no second $K$. The ring's next $K$ is of the next tile, and comes only after this consumer has released $Q$: both would wait |
#
# ### The loop and its end

# %%
print(excerpt(hopper_persistent.attend, "for j in range(n + 1", "return scaled_rows"))

# %% [markdown]
# | lines | what they do |
# |---|---|
# | `wait(V_full…)` between two products | $S$ needs no $V$, so it is already under way while this waits |
# | `release(Q_free…)` | the last $S$ is there: the next $Q$ may come while the last product for $O$ runs |
# | `n + end - 1` | the tile's last block, whose $V$ is still to be multiplied |
#
# ### A consumer's loop over tiles

# %%
show(hopper_persistent.consumer)

# %% [markdown]
# | lines | what they do |
# |---|---|
# | `wait(Q_full.index(me), turn % 2)` | tile number `turn` ends phase `turn`: its $Q$ is there, and its number |
# | `tma.store_wait(0)` before `O_s…store` | TMA may read the tile before during all of `attend`. Only now is its place needed |
#
# ### Do you know it?
#
# **Predict** what each of these changes does on the CPU threads: “hangs”, “wrong” or “ok”?

# %%
my_five = {
    "no arrivals at Q_full at the end": None,
    "no pred=end > 1": None,
    "no first_row += me * ROWS": None,
    "K released before wgmma_wait(1)": None,
    "V released before wgmma_wait(0)": None,
}

# %%
RELEASE_K, RELEASE_V = "        release(K_free.index(slot))\n", "        release(V_free.index(before))\n"
WAIT_S = "        S = wgmma_wait(1, deps=[S])                    # S is there, O's product still runs\n"
WAIT_O = "        O_i = wgmma_wait(0, deps=[O_i])\n"
five = dict(zip(my_five, [
    ("        mbarrier.arrive(Q_full.index(me), count=1)", "        pass"),
    (", pred=end > 1)", ")"),
    ("        first_row += me * ROWS\n", ""),
    (WAIT_S + RELEASE_K, RELEASE_K + WAIT_S),
    (WAIT_O + RELEASE_V, RELEASE_V + WAIT_O)], strict=True))

# %%
became = {name: outcome(hopper_persistent, [pair]) for name, pair in five.items()}
in_a_word = {name: "ok" if words.startswith("ok") else "hangs" if "deadlock" in words else "wrong" for name, words in became.items()}
said = compare("what a changed line does", my_five, in_a_word)

# %%
for name, word in in_a_word.items():
    print(f"{name}: {word}")                           # became[name] says more

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $K$ may be released early *because of the producer's order*. Before it overwrites $K_j$ it fetches $V_{j+1}$, whose slot is free only after $V_{j-1}$ has been read. That is behind the wait for $S_j$. Nothing protects $V$ in this way.
#
# </details>
#
# **Takeaway.** Each line of the kernel computes, asks a unit for work, or says who may go on.
#
# *End of sitting 9.*
#
# ## Sitting 10 · Measure it, change it (40 minutes)
#
# ### Which idea carries how much?
#
# Each row is the last rung with one idea changed, against the last rung as it is. *Without the next S ahead* issues $S_j$ only after the wait for $O$; in *head after head* `together` is 1.

# %%
last = "hopper_persistent_forward"
figures.speeds_beside(recorded, {f"{last}, {what}": what for what in CHANGES}, last)

# %% [markdown]
# At $d = 128$ the next $S$ ahead carries most without a mask, the counter with one. Turns carry little.
#
# ### From the last rung to the operator
#
# The operator's kernel, `flashlab/operator/hopper_forward.py`, adds what a model needs: any length, windows, packed sequences. Three or four consumers fit at $d = 64$, where $O$ takes fewer registers. For `free` it has named barriers: a consumer arrives without meeting its own warps first. Its loop is unrolled, with row sums in parts.
#
# At $d = 128$ the last rung is close to it, at $d = 64$ it is not.
#
# <details><summary><b>Optional: three consumers at d = 64</b> (20 minutes)</summary>
#
# Change `CONSUMERS`, who begins, to whom the turn goes, and the jobs: `[4, 4, 1], [160, 160, 24]`. A tile now has 192 queries, but the host counts tiles of 128: `launch` needs `tiles = tiles * 2 // 3`. $N$ must be a multiple of 192: `outcome(hopper_persistent, MY_THREE, causal=False, N=768)`. A mask needs more, as in the next section.
#
# </details>

# %%
figures.speeds_beside(recorded, {last: None}, "fa2_hopper_forward")

# %% [markdown]
# ### Smaller blocks: is it still right?
#
# Blocks of 64 keys, with a causal mask and without one:

# %%
half = [("KEYS = gl.constexpr(128)", "KEYS = gl.constexpr(64)")]
print("without a mask:", outcome(hopper_persistent, half, causal=False))
print("with a mask:   ", outcome(hopper_persistent, half))

# %% [markdown]
# <details><summary><b>Why, and which lines must change?</b></summary>
#
# The last block of a tile now lies after all queries of consumer 0. There $S$ is $-\infty$ everywhere, so is $m$, and $-\infty - (-\infty)$ is NaN. If $m$ begins with a finite number, $P$ is 0. But the mask also cuts consumer 0's second block, in the loop. Both must change, as the next cell does.
#
# </details>

# %%
after = "        release(K_free.index(slot))\n"
masked = "        if causal:\n            if j == n + 1:\n                S = hide_future(S, first_row, (end - 2) * KEYS)\n"
finite = ('gl.full([ROWS], -float("inf")', "gl.full([ROWS], -1e30")
print("only m:", outcome(hopper_persistent, [*half, finite]))
judge(hopper_persistent, [*half, finite, (after, after + masked)], 128)

# %% [markdown]
# ### Your turn: 256 keys in the last rung (10 minutes)
#
# At $d = 64$ shared memory has room for blocks of 256 keys. **Predict** how many registers $S$, $P$ and $O$ take together in a consumer's thread, of the 240 that it has.

# %%
my_three_tiles = None

# %%
said = compare("registers of S, P and O at 256 keys", my_three_tiles)

# %% [markdown]
# The rest is too small for maxima, sums and addresses, and the compiler spills. Which idea of this chapter needs $S$ and $P$ at the same time? Give it up. You want *Passed*.

# %%
# Your pairs go behind the first:
MY_LARGE = [("KEYS = gl.constexpr(128)", "KEYS = gl.constexpr(256)")]
judge(hopper_persistent, MY_LARGE, 64)

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# While $P_{j-1}$ is an operand of $O$'s product, $S_j$ is written: the next $S$ ahead. Issue $S_j$ only behind the wait for $O$:
#
# ```python
# ISSUE = "        S = issue_scores(me, Q_s.index(me), K_s.index(slot))\n"
# WAIT = "        S = wgmma_wait(1, deps=[S])                    # S is there, O's product still runs\n"
# MY_LARGE += [(ISSUE, ""), (WAIT, "        O_i = wgmma_wait(0, deps=[O_i])\n"
#     "        S = wgmma_wait(0, deps=[issue_scores(me, Q_s.index(me), K_s.index(slot))])\n")]
# ```
#
# It fits, but the table above says what the next $S$ ahead is worth.
#
# </details>
#
# ### Your turn: one slot without the deadlock (10 minutes)
#
# With one slot the last rung hangs:

# %%
print(outcome(hopper_persistent, [("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)")]))

# %% [markdown]
# The consumers wait for $K_2$ before they release the slot of $V_0$. The producer fetches $V_1$ before $K_2$, and $V_1$ needs that slot. Change only the producer's order. Begin in the simulator: `LINES` takes pairs (old text, new text) of `persistent_producer` in `flashlab_course/gpu/warp_programs.py`. The player shows the first run that goes wrong, else the last.

# %%
show(warp_programs.persistent_producer)

# %%
# Your pairs go here:
LINES = []
with tempfile.TemporaryDirectory() as folder:
    simulated = variant(warp_programs, LINES, folder)
    tried = first_error(lambda: simulated.last_rung(slots=1, ends=[3, 1], consumers=2), seeds=50)
    shown = play_warps(tried)
print(tried.error.replace("; consumer", ";\nconsumer") or "50 runs, no error")
shown

# %% [markdown]
# Then change `producer` of `flashlab/kernels/hopper_persistent.py` in the same way.

# %%
# Your pairs go behind the first:
MY_LINES = [("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)")]
judge(hopper_persistent, MY_LINES, 64, 128)

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# Each $K$ comes before the $V$ of the block before: $K_0, K_1, V_0, K_2, V_1, \dots$ So $K_2$ no longer waits for $V_1$.
#
# ```python
# MY_LINES += [
#     ("        for j in range(0, end):\n",
#      "        fetch_when_free(K, first_key + (end - 1) * KEYS, K_s, K_full, K_free, n)\n        for j in range(0, end):\n"),
#     ("            fetch_when_free(K, row, K_s, K_full, K_free, n + j)\n",
#      "            if j + 1 < end:\n                fetch_when_free(K, row - KEYS, K_s, K_full, K_free, n + j + 1)\n")]
# ```
#
# In the simulator the loop walks these pairs, with the three lines that are in it now:
#
# ```python
# last = n + ends[tile] - 1
# for ring, j in [(K, n)] + [one for j in range(n, last) for one in ((K, j + 1), (V, j))] + [(V, last)]:
# ```
#
# </details>
#
# **Takeaway.** Without a GPU one can find most wrong changes, and see whether a kernel fits. Whether it is right under every timing, and whether it is faster, only a GPU shows. (On a Hopper GPU, `python -m flashlab bench hopper` times this chapter's kernels.)
#
# *End of sitting 10.*
#
# ## Sitting 11 · Backwards (30 minutes)
#
# The backward kernel, `flashlab/operator/hopper_backward.py`, is built from the same parts. A program owns a block of keys and walks query tiles of 64 rows. It has a producer, two or three consumers with 64 keys each, and a third kind of warp, the *adder*.
#
# Keys lie in rows: a consumer computes $S^\top = K Q^\top$ and $dP^\top = V\,dO^\top$. So $P^\top$ and $dS^\top$ are left operands in registers, and $dV \mathrel{+}= P^\top dO$ and $dK \mathrel{+}= dS^\top Q$ take them from there.
#
# $dQ$ of a tile is a sum over the keys of *all* consumers. They put $dS$ into shared memory, too, and one of them, the tile's *owner*, computes all of $dQ$. The adder has TMA add the finished tile to $dQ$ in HBM.
#
# | signal | kind | who waits |
# |---|---|---|
# | `Q_full`, `dO_full`: a tile has landed | mbarrier, counts bytes | a consumer |
# | `SLOT_FREE`: all consumers have read a slot | named barrier | the producer |
# | `DS_READY`: the $dS$ of all consumers is in shared memory | named barrier | the consumer that owns the tile's $dQ$ |
# | `DQ_READY`: a tile of $dQ$ is in shared memory | named barrier | the adder |
# | `DQ_FREE`: TMA has read that tile | named barrier | the next owner |
#
# Here is the end of a consumer's step for one tile. `sync` waits, `arrive` does not: a consumer that is not the owner announces its $dS$ and runs ahead.

# %%
print(excerpt(hopper_backward_pipeline.step, "if me == owner", "return dK"))

# %% [markdown]
# In the simulator, for two consumers:

# %%
SLOT_FREE, DS_READY, DQ_READY, DQ_FREE = 6, 10, 14, 15 # named barriers; of the first two kinds two each


def end_of_step(me, owner, slot, K):
    if me == owner:
        yield wgmma_wait(1)
        yield sync(DS_READY + owner, 256)
        yield wgmma(K, 0, 0)                           # dQ = dS K
        yield wgmma_wait(0)
        yield arrive(SLOT_FREE + slot, 288)
        yield sync(DQ_FREE, 160)
        yield arrive(DQ_READY, 160)
    else:
        yield arrive(DS_READY + owner, 256)
        yield wgmma_wait(0)
        yield arrive(SLOT_FREE + slot, 288)

# %% [markdown]
# Before that, a consumer issues four products. It computes the exponentials of $P$ while $dP$ may still run.

# %%
def walk_queries(me, K, Q, dO, tiles):
    yield wait(K.full[0], 0)
    for n in range(tiles):
        slot, phase = n % 2, n // 2 % 2
        yield wait(Q.full[slot], phase)
        yield wgmma(Q, slot, n)                        # S = K Qᵀ
        yield wait(dO.full[slot], phase)
        yield wgmma(dO, slot, n)                       # dP = V dOᵀ
        yield wgmma_wait(1)
        yield softmax(n)                               # P
        yield wgmma(dO, slot, n)                       # dV += Pᵀ dO
        yield wgmma_wait(1)
        yield wgmma(Q, slot, n)                        # dK += dSᵀ Q
        yield from end_of_step(me, n % 2, slot, K)

# %% [markdown]
# The producer and the adder:

# %%
def load_queries(K, Q, dO, tiles):
    yield fetch(K, 0, 0)
    for n in range(tiles):
        slot = n % 2
        if n >= 2:
            yield sync(SLOT_FREE + slot, 288)
        yield fetch(Q, n, slot)
        yield fetch(dO, n, slot)


def add_dQ(tiles):
    yield arrive(DQ_FREE, 160)
    for n in range(tiles):
        yield sync(DQ_READY, 160)
        if n + 1 < tiles:
            yield arrive(DQ_FREE, 160)

# %% [markdown]
# All together. A product is named after the tile that it reads: `Q` is first $S$, then $dK$; `dO` is first $dP$, then $dV$; `K` is $dQ$, which only the owner computes.

# %%
def backward(tiles):
    K, Q, dO = Ring("K", slots=1), Ring("Q", slots=2), Ring("dO", slots=2)
    walkers = {f"consumer {me}": walk_queries(me, K, Q, dO, tiles) for me in (0, 1)}
    return {"producer": load_queries(K, Q, dO, tiles)} | walkers | {"adder": add_dQ(tiles)}


of_adder = {"adder": 32}
figures.warps_at_work({"backward": simulate(backward(3), threads=of_adder, unsteady=False)}, "flashlab_course.gpu.warps, 3 tiles of queries, two slots.")

# %% [markdown]
# Who waits for whom, and when:

# %%
play_warps(simulate(backward(3), threads=of_adder))

# %% [markdown]
# **Your turn** (5 minutes). Which of these changes hangs, and where? Predict, then change the cells above, one at a time: the other consumers `sync` at `DS_READY`; the adder's first `arrive` is gone.

# %%
for words in {simulate(backward(6), seed=seed, threads=of_adder).error or "50 runs, no error" for seed in range(50)}:
    print(words.replace("; ", ";\n"))

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# With `sync` nothing hangs: all come, and wait for the slowest. Without the first `arrive` the owner of tile 0 waits at `DQ_FREE` for an adder that waits at `DQ_READY` for the owner.
#
# (The simulator has no registers. In the kernel `wgmma_wait(1)` stands before `sync` to give back those of $P$ before $dQ$ takes its own.)
#
# </details>
#
# Only the owner waits for the other consumers. The owners go round: tile $n$ belongs to consumer $n$ modulo their number. So the consumers drift apart, and one's exponentials run beside another's products.

# %% [markdown]
# ## Sources
#
# Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), sections 3.1 and 3.2: warp specialisation, consumers that alternate, products under the softmax · NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): mbarrier, wgmma, `setmaxnreg`, `bar.sync`, the async proxy · [Gluon tutorials](https://github.com/triton-lang/triton/tree/main/python/tutorials/gluon) of Triton · `flashlab/kernels/hopper_*.py`, `flashlab_course/gpu/warps.py`
#
# **Next:** [13 · Decoding](13_decoding.ipynb): one query at a time.
