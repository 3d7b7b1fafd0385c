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
# **You will be able to** explain a Hopper kernel line by line, run its signals on a simulator, find its deadlocks, change it, and say what the operator's kernel has beyond it.
#
# **You need** chapters 06 and 12. · **Ten sittings** of 25 to 50 minutes, 6 hours and 40 minutes in all, with seven exercises · **runs on** CPU or GPU; Triton, so Linux
#
# In chapter 12 the compiler decides when a tile is copied and when a product is waited for. Here the kernel says it itself, in Gluon, the language below Triton. Six rungs lead from chapter 12's TMA kernel to the Hopper kernel, one idea a rung. Most ideas are signals between warps, and a small simulator runs them without a GPU.

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
from flashlab_course.figures.chapter_12 import share_of
from flashlab_course.gpu import warp_programs
from flashlab_course.gpu.occupancy import occupancy
from flashlab_course.gpu.warps import Ring, fetch, first_error, simulate, softmax, wait, wgmma, wgmma_wait
from flashlab_course.lesson import changes, compare, excerpt, reveal
from flashlab_course.player.machine import play_warps

# %% [markdown]
# ## Where the six rungs lead
#
# Speeds as multiples of cuDNN's: chapter 12's TMA kernel, the six rungs, and the *operator's kernel*, which `flash_attention` runs (“Gluon, Hopper” in pictures).

# %%
recorded = bench.load_results("hopper_h200")
rungs = dict.fromkeys(["fa2_tma_forward", *(one.name for one in HOPPER_RUNGS), "fa2_hopper_forward"])
figures.speeds_beside(recorded, rungs, "sdpa_cudnn")

# %% [markdown]
# The first two rungs are slower than the compiler's kernel, except the ring at $d = 64$ without a mask. At $d = 128$ the last two rungs are faster than it at every size. At $d = 64$ the rungs after the ring gain 4 % at most.
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
# The first two are *asynchronous*: whoever asks goes on at once. A kernel is fast if all three units work at the same time, and right if nobody reads a tile before it is there or overwrites one that is still being read.
#
# ### An mbarrier counts arrivals and bytes
#
# An *mbarrier* is eight bytes of shared memory that count. It is made for a number of arrivals. `expect` is such an arrival, and adds bytes to come; TMA subtracts the bytes that have landed. When no arrival and no byte is left to come, the barrier's *phase* ends and the next one begins.
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
said = compare("bytes of a block of keys", my_expected_bytes, torch.empty(128, 128, dtype=torch.bfloat16).nbytes)

# %% [markdown]
# In the simulator a program is a Python generator: each `yield` asks the machine for something, and waits for it. Step through this one: the column *full* shows the phase, and what is still to come before it ends. **Stop and look** jumps to the steps that matter.

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
# A slot is used again and again, so its barrier passes through phases 0, 1, 2, … The hardware keeps only whether the current phase is even or odd. In phase 1, phase 0 is over: `wait(full, 0)` goes on, and `wait(full, 1)` blocks until phase 1 is over, too.
#
# In a *ring* of two slots, block $j$ lies in slot $j \bmod 2$ and is that slot's use number $\lfloor j/2 \rfloor$. When the tile of use $u$ has landed, phase $u$ of `full` ends. So the reader of block $j$ waits for parity $\lfloor j/2 \rfloor \bmod 2$.
#
# **Predict** the slot and the parity for block 5.

# %%
my_slot_and_parity = [None, None]

# %%
slots, j = 2, 5
said = compare("slot and parity of block 5", my_slot_and_parity, [j % slots, j // slots % 2])

# %% [markdown]
# **Exercise: a ring and its phases** ([exercises/ex12b_ring.py](../exercises/ex12b_ring.py), 25 minutes). Write a producer and a consumer that share a ring with any number of slots. The file explains a slot's second barrier, `free`. (In `my/`, where `make lab` works, the link opens your copy, in `my/exercises/`; `check` reads that.)

# %%
check("ex12b_ring")

# %%
reveal("ex12b_ring")

# %% [markdown]
# **Takeaway.** An mbarrier counts arrivals and bytes; its phase ends when nothing is left to come. Who waits names the parity of the phase that must have ended.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 · The first kernel, and who holds what (50 minutes)
#
# ### All warps in step
#
# The first rung is `flashlab/kernels/hopper_ring.py`. Its eight warps share 128 query rows and do everything together:

# %%
print(excerpt(hopper_ring.KERNEL, "for j in range(0, end)", "V_full.index(slot), V_s.index(slot))"))

# %% [markdown]
# The lines that are new, and two from before the loop:
#
# | line | meaning |
# |---|---|
# | `allocate_shared_memory(K.dtype, [SLOTS] + K.block_shape, K.layout)` | `K` is TMA's descriptor: `block_shape` is its tile, $[128, d]$, and `layout` swizzles the tile as `wgmma` reads it |
# | `gl.constexpr`, `gl.static_range` | a value known to the compiler; a loop that it unrolls |
# | `K_s.index(slot).permute((1, 0))` | the tile in that slot, read as $K^\top$; nothing is moved |
# | `zeros`, `use_acc=False` | `zeros` says the result's shape and layout. It costs no registers: a product's first instruction does not add |
# | `wgmma_wait(0, deps=[S])` | wait until no product is under way. `deps` are the results that become tiles here; computing with one earlier does not compile |
# | `thread_barrier()` | all warps meet. Behind `mbarriers`: one thread has made them for all. In the loop: all have read the slot, and TMA may overwrite it |
#
# Two helpers from `flashlab/kernels/hopper_words.py` make and use the signals:

# %%
def show(*helpers):
    for one in helpers:
        print(inspect.getsource(getattr(one, "fn", one)).removeprefix("@jit\n").rstrip())


show(hopper_words.mbarriers, hopper_words.fetch)

# %% [markdown]
# **Which thread does this?** All warps with the same job run the same lines: here all of the program, later those of a consumer or of the producer. From the PTX of these kernels:
#
# | line | who acts | these warps meet |
# |---|---|---|
# | `expect`, `mbarrier.arrive` | their first thread | not by themselves; `release` has a `thread_barrier()` |
# | `tma.load` | one elected thread | before it, after `expect` |
# | `mbarrier.wait` | every thread waits | no |
# | `wgmma`, `wgmma_wait` | all four warps of each warpgroup | no; each warp's threads do |
# | `Q_s.store`, then `fence` | every thread, for what it writes | before the store |
# | `tma.store` | one elected thread | before it, after `fence`: the compiler adds the barrier |
# | `tma.store_wait` | who issued the store waits for TMA | after it, so that all may write there again |
# | `gl.store(L, ...)` | one of the four threads that hold a row | no |
#
# The same program in the simulator. Look at the bars: the tensor cores stand idle in every softmax.

# %%
K, V = Ring("K", slots=2), Ring("V", slots=2)
play_warps(simulate({"all warps": warp_programs.in_step(K, V, 4)}, threads={"all warps": 256}))

# %% [markdown]
# ### Layouts: who holds what of S
#
# `wgmma` reads its right operand from shared memory and its left one from there or from registers; the result lies in registers. A *layout* says which thread holds which number. The kernel names the layout of $S$ as `NVMMADistributedLayout([3, 0], [8, 1], [16, 128, 16])`: version 3 of the instruction, eight warps below one another, 16 rows and 128 columns a warp, and 16 numbers deep an instruction. Within a warp the hardware fixes the pattern:

# %%
figures.holders()

# %% [markdown]
# Four threads share a row. So a row's maximum costs two exchanges between threads, and its sum two more; the rest of the softmax stays within a thread.
#
# **Predict** how many registers of 32 bits a thread needs for $S$: 128 rows and 128 columns in float32, on eight warps.

# %%
my_registers_of_S = None

# %%
warps, threads_of_a_warp = 8, 32
said = compare("registers for S", my_registers_of_S, 128 * 128 // (warps * threads_of_a_warp))

# %% [markdown]
# $O$ takes as many at $d = 128$, and $P$ in 16 bits half as many: $64 + 64 + 32 = 160$ of the 255 that a thread may have. This limits the tiles of all kernels here.
#
# Three helpers compute with such tiles. (`softmax` takes the maximum before it scales; of a negative scale, the host moves the sign to $Q$.) `SliceLayout(1, layout)` has one number a row, in each of the four threads that share it; `SliceLayout(0, layout)` has one a column.

# %%
show(hopper_words.softmax, hopper_words.hide_future, hopper_words.scaled_rows)

# %% [markdown]
# $P$ becomes the left operand of the next product. `DotOperandLayout(0, O_layout, 2)` is the layout of a left operand in registers: with 16-bit numbers every thread already holds what it must hand in, so `convert_layout` moves nothing between threads. In the compiled loop, the exchanges for maxima and sums of a thread's two rows are all:

# %%
def compiled(module, d, causal=False):                 # for an H100: 16 heads, N = 4096
    T, L = torch.empty(1, 16, 4096, d, dtype=torch.bfloat16, device="meta"), torch.empty(1, 16, 4096, device="meta")
    return compile_for(module.KERNEL, module.launch(T, T, T, T, L, causal=causal, scale=d**-0.5)[1], 90)


print(compiled(hopper_ring, 128).ptx.count("shfl.sync.bfly"), "exchanges")

# %% [markdown]
# At the end, $O$ goes through shared memory to HBM by TMA. TMA may overtake what a thread has just written to shared memory; `fence()` forbids that. `tma.store_wait(0)` waits until TMA has read the tile. `/ LOG2_E` makes a natural logarithm of $L$ in base 2.

# %%
print(excerpt(hopper_ring.KERNEL, "Q_s.store", "store_wait"))

# %% [markdown]
# **Exercise: who holds it?** ([exercises/ex12b_layout.py](../exercises/ex12b_layout.py), 20 minutes). Which rows and columns of the accumulator does a thread hold?

# %%
check("ex12b_layout")

# %%
reveal("ex12b_layout")

# %% [markdown]
# **Takeaway.** A layout says which thread holds which number.
#
# *End of sitting 2.*
#
# ## Sitting 3 · Warps with different jobs (50 minutes)
#
# ### A warp that only loads
#
# The second rung gives copies to a warp of their own, the *producer*; the eight others become the *consumer*. The producer runs ahead until the ring is full. So each slot needs a second barrier, `free`: the consumer arrives there when it has read the slot, and the producer waits there before it fills the slot again.

# %%
print(excerpt(hopper_producer.fetch_when_free, "def fetch_when_free", "T_s.index(slot)"))
print(excerpt(hopper_producer.producer, "for j", "V_full, V_free, j)"))
show(hopper_words.release)                             # the consumer's side

# %% [markdown]
# The consumer's reading of use $u$ ends phase $u$ of `free`. The producer may fill use $u$ when use $u - 1$ has been read, so it waits for the other parity, `phase ^ 1`. Before the first use nobody has read anything, and a new barrier lets `wait(free, 1)` pass at once. With the consumer's parity the kernel would hang at the first block. This cell goes wrong on purpose.

# %%
def hopeful_producer(K, V, end):
    for j in range(end):
        for ring in (K, V):
            slot, phase = j % len(ring.slots), j // len(ring.slots) % 2
            yield wait(ring.free[slot], phase)         # the consumer's parity
            yield fetch(ring, j, slot)


K, V = Ring("K", slots=2), Ring("V", slots=2)
print(simulate({"producer": hopeful_producer(K, V, 4), "consumer": warp_programs.consumer(K, V, 4)}).error.replace("; consumer", ";\nconsumer"))

# %% [markdown]
# A *deadlock*: each waits for the other. With the right parity:

# %%
K, V = Ring("K", slots=2), Ring("V", slots=2)
play_warps(simulate({"producer": warp_programs.producer(K, V, 4), "consumer": warp_programs.consumer(K, V, 4)}))

# %% [markdown]
# Both rungs as a still picture: no softmax has anything beside it.

# %%
K, V, K_too, V_too = (Ring(name, slots=2) for name in ("K", "V", "K", "V"))
apart = {"producer": warp_programs.producer(K_too, V_too, 4), "consumer": warp_programs.consumer(K_too, V_too, 4)}
runs_of_rungs = {"ring": simulate({"all warps": warp_programs.in_step(K, V, 4)}, threads={"all warps": 256}, unsteady=False),
                 "producer": simulate(apart, threads={"consumer": 256}, unsteady=False)}
figures.warps_at_work(runs_of_rungs, "flashlab_course.gpu.warps, 4 blocks, two slots.")

# %% [markdown]
# ### Two consumers
#
# The third rung has two consumers, warpgroups of 64 query rows each. They share $K$ and $V$, and each goes at its own pace: while one computes exponentials, the other's products can run.

# %%
print(changes(hopper_producer.attend, hopper_consumers.attend))

# %% [markdown]
# So `free` is made by `mbarriers(SLOTS, CONSUMERS)`, for two arrivals. No `thread_barrier()` follows: `warp_specialize` itself lets all warps meet first. In `release`, `thread_barrier()` now meets the consumer's own warps only.
#
# **Exercise: when may the producer overwrite?** ([exercises/ex12b_overwrite.py](../exercises/ex12b_overwrite.py), 25 minutes). Write the consumer's part: two consumers read each tile, and one may skip it.

# %%
check("ex12b_overwrite")

# %%
reveal("ex12b_overwrite")

# %% [markdown]
# **Takeaway.** A producer runs ahead as far as its ring allows, with the other parity; `free` counts both consumers.
#
# *End of sitting 3.*
#
# ## Sitting 4 · Registers change hands (35 minutes)
#
# An SM has 65,536 registers. The program is launched with 384 threads: two consumers of 128, and the producer's warp, which Triton fills up to a warpgroup: registers change hands by warpgroups. Each thread begins with 168 registers, $65536 / 384$ rounded down to a multiple of 8. The producer needs few. With `setmaxnreg` its warpgroup gives registers away, and keeps 24 a thread, in the second rung, too.
#
# **Predict** how many registers a thread of the two consumers can have then.

# %%
my_registers_of_a_consumer = None

# %%
at_launch, kept, warpgroup = compiled(hopper_consumers, 128).registers, 24, 128
left = (at_launch * 3 * warpgroup - kept * warpgroup) // (2 * warpgroup)
said = compare("registers of a consumer's thread", my_registers_of_a_consumer, left)
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
# In the record a producer with a single consumer is no faster than the ring at any size: where the table says more than 1, the ranges of the runs overlap (pale). With two consumers the kernel is faster than the ring, except at $d = 64$ without a mask:

# %%
figures.speeds_beside(recorded, {"hopper_producer_forward": None, "hopper_consumers_forward": None}, "hopper_ring_forward")

# %% [markdown]
# **Predict** how many programs of 256 threads fit into an SM's registers at 128 a thread, and how many at 132.

# %%
my_programs = {128: None, 132: None}

# %%
said = compare("programs of the ring on an SM", my_programs, {n: 65536 // (n * 256) for n in (128, 132)})
for d, causal in itertools.product((64, 128), (False, True)):
    ring = compiled(hopper_ring, d, causal)
    fit = occupancy(256, ring.registers, ring.shared_bytes)
    print(f"d = {d:3}, {'causal' if causal else 'full  '}: {ring.registers} registers, {ring.shared_bytes:,} bytes: {fit.blocks} on an SM")

# %% [markdown]
# At $d = 64$ the mask costs four registers, and with them the second program. Two programs on an SM can hide each other's waiting, as two consumers do. This may be why the ring is ahead; nobody has measured it.
#
# **Takeaway.** The producer gives registers to the consumers. A kernel that needs few may get a second program on each SM instead.
#
# *End of sitting 4.*
#
# ## Sitting 5 · Products under the softmax (45 minutes)
#
# ### Issue early, wait late
#
# $S$ of the *next* block does not depend on this softmax. So the fourth rung issues $S_{j}$ and then $O \mathrel{+}= P_{j-1} V_{j-1}$, waits for $S_j$ alone, and computes the softmax of block $j$ while the product for $O$ may still run.
#
# `wgmma_wait(n)` returns when at most $n$ of the warpgroup's products are under way; products end in the order in which they were issued. **Predict** $n$ for the line that must have $S$ and leaves $O$'s product alone.

# %%
my_n = None

# %%
issued = ["S", "O"]
said = compare("products that may still be under way", my_n, len(issued) - 1 - issued.index("S"))
print(excerpt(hopper_overlap.attend, "for j in range(1, end)", "O_i = scaled_rows(O_i, alpha)"))

# %% [markdown]
# `wgmma_wait(1, deps=[S])` makes a tile of $S$ only. $O$'s product still writes to its registers, so $O$ is rescaled behind its own wait; before it, `scaled_rows(O_i, alpha)` does not compile. (With `deps=[S, O_i]` it does, and the assembler warns that products wait for each other.) The first `alpha` is thrown away: $O$ is still 0.
#
# `pred` switches a wait off: behind the last block there is no next $K$. The first $S$ and the last $O$ stand outside the loop. Keys are walked from the last block to the first. A tile has 128 queries and a block 128 keys, so a causal mask cuts one block only. It comes before the loop, which needs no mask.

# %%
K, V = Ring("K", slots=2, readers=2), Ring("V", slots=2, readers=2)
consumers = {f"consumer {me}": warp_programs.overlapping_consumer(K, V, 4) for me in (0, 1)}
play_warps(simulate({"producer": warp_programs.producer(K, V, 4)} | consumers))

# %% [markdown]
# **Exercise: find the deadlock** ([exercises/ex12b_deadlock.py](../exercises/ex12b_deadlock.py), 15 minutes). A consumer like this one, and a producer that asks for room in the wrong order: with one slot they wait for each other.

# %%
check("ex12b_deadlock")

# %%
reveal("ex12b_deadlock")

# %% [markdown]
# Why does the loop wait for the next $K$ already before its wait for $O$, and not at its head, where $K$ is needed? Compile both. A product is eight instructions. Of exponentials a thread has 66: 64 of $P$, and `alpha` of its two rows.

# %%
def in_machine_code(made):
    words = {"HGMMA": "product", "WARPGROUP.DEPBAR": "wait", "MUFU.EX2": "exponential"}
    found = [word for line in made.sass.splitlines() for name, word in words.items() if name in line]
    runs = [(word, len(list(run))) for word, run in itertools.groupby(found)]
    parts = [part for word, n in runs for part in ([word] * n if word == "wait" else [f"{n} {word}s"])]
    loop = parts.index("16 products")                  # S and O: the loop issues both, one after the other
    return ", ".join(parts[loop : loop + 4])


wait_for_K = "        mbarrier.wait(K_full.index((j + 1) % SLOTS), (j + 1) // SLOTS % 2, pred=j + 1 < end)\n"
issue = "        S = wgmma(Q_s.index(me), K_s.index(slot)"
moved = [("    mbarrier.wait(K_full.index(1 % SLOTS), 1 // SLOTS % 2, pred=end > 1)\n", ""), (wait_for_K, ""),
         (issue, f"        mbarrier.wait(K_full.index(slot), j // SLOTS % 2)\n{issue}")]
with tempfile.TemporaryDirectory() as folder:
    for name, module in {"as it is": hopper_overlap, "moved": variant(hopper_overlap, moved, folder)}.items():
        made = compiled(module, 128)
        print(f"{name:9} {in_machine_code(made)}; {made.warnings or 'no warnings'}")

# %% [markdown]
# With the wait for $K$ at the head, the assembler has pulled the wait for $O$ above the exponentials. It did not pull it across an `mbarrier.wait`: seen in this compile, promised by nobody. Are the results still right? The tests have a stand-in for Gluon that runs a kernel's own lines on the CPU, a Python thread for each warpgroup. `outcome` changes lines, runs the kernel there, and compares with float64.

# %%
import sys

sys.path.append(flashlab.__path__[0] + "/../tests")
import hopper_stand_in

for name, lines in {"as it is": [], "moved": moved}.items():
    print(f"{name:9} {hopper_stand_in.outcome(hopper_overlap, lines)}")

# %% [markdown]
# Both are right. Only the machine code shows that the overlap is gone. Sitting 9 shows what that costs, as *both products before the softmax*.
#
# **Takeaway.** Issue a product as early, and wait for it as late as you can.
#
# *End of sitting 5.*
#
# ## Sitting 6 · Take turns (40 minutes)
#
# Two consumers may ask for products at the same moment, and then compute exponentials together. The fifth rung makes them alternate, with *named barriers*: a program has sixteen, which count threads. `arrive` arrives and goes on; `sync` arrives and waits until enough threads have come. Gluon has no word for them, so these are instructions in assembly: `$1` is the barrier, `$2` the number of threads, each `r` a register. `is_pure=False`: the compiler must not drop a line whose result nobody uses.

# %%
show(hopper_words.sync, hopper_words.arrive)

# %% [markdown]
# **Predict** how many threads the barrier must count, if one consumer waits there and the other arrives when it passes the turn on.

# %%
my_threads = None

# %%
said = compare("threads at the barrier of a turn", my_threads, 2 * warpgroup)

# %% [markdown]
# **Exercise: pass the turn** ([exercises/ex12b_pass_the_turn.py](../exercises/ex12b_pass_the_turn.py), 20 minutes). When is it passed on: when the product has been issued, or when it has ended?

# %%
check("ex12b_pass_the_turn")

# %%
reveal("ex12b_pass_the_turn")

# %% [markdown]
# The kernel's lines. `TURN = 12`: Triton itself uses the first few of the sixteen barriers. Before the first tile consumer 1 arrives once, so that consumer 0 has the first turn; from then on each `sync` meets the other's `arrive`. All 128 threads of a consumer run both lines, and all count. With $n$ consumers the turn goes to `TURN + (me + 1) % n`, and consumer $n - 1$ arrives before the first tile. 256 stays: one waits, one passes on.

# %%
print(excerpt(hopper_turns.issue_scores, "sync(", "return S"))

# %% [markdown]
# Watch consumer 1 wait for its turn, and the products alternate.

# %%
K, V = Ring("K", slots=2, readers=2), Ring("V", slots=2, readers=2)
consumers = {f"consumer {me}": warp_programs.consumer_in_turn(me, K, V, 3) for me in (0, 1)}
play_warps(simulate({"producer": warp_programs.producer(K, V, 3)} | consumers))

# %% [markdown]
# What turns are for: here two consumers begin together, and all tiles are there. One assumption is built in. Without turns the tensor cores take instructions of both by turns, so that the two products end together. The machine computes one product after the other, so the program waits for both (`TOGETHER`). Then both compute exponentials, and the tensor cores are idle. With turns one's softmax stands beside the other's product.

# %%
from flashlab_course.gpu.warps import arrive, sync

TURN, TOGETHER = 12, 14


def begin_together(me, K, V, turns):
    if turns and me == 1:
        yield arrive(TURN, 256)
    for j in range(len(K.slots)):
        if turns:
            yield sync(TURN + me, 256)
        yield wgmma(K, j, j)                           # S
        if turns:
            yield arrive(TURN + 1 - me, 256)
        yield wgmma_wait(0)
        if not turns:
            yield sync(TOGETHER, 256)
        yield softmax(j)
        yield wgmma(V, j, j)                           # O
    yield wgmma_wait(0)


# %%
def with_all_tiles_there(turns):
    K, V = Ring("K", slots=4), Ring("V", slots=4)
    for ring in (K, V):
        for j, slot in enumerate(ring.slots):
            slot.holds = f"{ring.name} {j}"
    return simulate({f"consumer {me}": begin_together(me, K, V, turns) for me in (0, 1)}, unsteady=False)


figures.warps_at_work({"without turns": with_all_tiles_there(False), "with turns": with_all_tiles_there(True)},
                      "flashlab_course.gpu.warps, 4 blocks, every computation at its mean duration.")

# %% [markdown]
# Three rungs as still pictures. Follow one consumer: in the first its products stand before and after its softmax, in the others $V_{j-1}$ under the softmax of block $j$. Overlap and turns look alike here, but for who begins: the machine computes one product after the other anyway.

# %%
def at_its_mean(program):
    K, V = Ring("K", slots=2, readers=2), Ring("V", slots=2, readers=2)
    pair = {f"consumer {me}": program(me, K, V, 4) for me in (0, 1)}
    return simulate({"producer": warp_programs.producer(K, V, 4)} | pair, unsteady=False)


steps = {"two consumers": at_its_mean(lambda me, *rest: warp_programs.consumer(*rest)),
         "overlap": at_its_mean(lambda me, *rest: warp_programs.overlapping_consumer(*rest)),
         "turns": at_its_mean(warp_programs.consumer_in_turn)}
figures.warps_at_work(steps, "flashlab_course.gpu.warps, 4 blocks, two slots.")

# %% [markdown]
# Nobody waits for the last turn that consumer 1 passes on. How many threads are left at the two barriers?

# %%
def in_turn(stages, begins=0):
    K, V = Ring("K", slots=stages, readers=2), Ring("V", slots=stages, readers=2)
    takers = {f"consumer {me}": warp_programs.consumer_in_turn(me ^ begins, K, V, 9) for me in (0, 1)}
    return {"producer": warp_programs.producer(K, V, 9)} | takers


print("barrier: (threads left, times opened)", simulate(in_turn(2)).named)

# %% [markdown]
# Consumer 1's last arrival stays; named barriers end with their program.
#
# Both rungs in the record, each against the rung before it:

# %%
figures.speeds_beside(recorded, {"hopper_overlap_forward": None}, "hopper_consumers_forward")

# %%
figures.speeds_beside(recorded, {"hopper_turns_forward": None}, "hopper_overlap_forward")

# %% [markdown]
# Overlap pays at $d = 128$ and not at $d = 64$, and at $d = 128$ turns gain less than overlap. Nobody has measured why.
#
# How busy are the tensor cores in the simulator, with every computation at its mean duration? It knows the order of things; it is no model of speed.

# %%
def busy(make, readers, **threads):
    K, V = Ring("K", slots=2, readers=readers), Ring("V", slots=2, readers=readers)
    machine = simulate(make(K, V), unsteady=False, threads=threads)
    return 100 * share_of(machine.spans, "tensor cores")


def two(program):
    return lambda K, V: {"producer": warp_programs.producer(K, V, 8)} | {f"consumer {me}": program(me, K, V, 8) for me in (0, 1)}


shares = {"ring": busy(lambda K, V: {"all": warp_programs.in_step(K, V, 8)}, 1, all=256),
          "+ producer": busy(lambda K, V: {"producer": warp_programs.producer(K, V, 8), "one": warp_programs.consumer(K, V, 8)}, 1, one=256),
          "+ two consumers": busy(two(lambda me, *rest: warp_programs.consumer(*rest)), 2),
          "+ overlap": busy(two(lambda me, *rest: warp_programs.overlapping_consumer(*rest)), 2), "+ turns": busy(two(warp_programs.consumer_in_turn), 2)}
figures.bars(shares, f"Simulated tensor cores work {min(shares.values()):.0f} to {max(shares.values()):.0f} % of the time",
             "Modelled: flashlab_course.gpu.warps, 8 blocks, every computation at its mean duration.", "% of the time")

# %% [markdown]
# **Takeaway.** A turn is passed on when the product has been issued. Whether it paid, only the record says.
#
# *End of sitting 6.*
#
# ## Sitting 7 · Programs that stay (35 minutes)
#
# ### A counter hands out tiles
#
# So far a program computes one tile and ends, and nothing runs beside the next one's first copies. In the last rung one program per SM stays, and takes tile after tile. While the consumers finish one, the producer already loads the next.
#
# Causal tiles have different lengths. **Predict** for two SMs and tiles of 4, 3, 2 and 1 blocks of keys: when is the last one done if SM 0 takes the first and third and SM 1 the others, and when if whoever is free takes the next?

# %%
my_ends = {"fixed": None, "counter": None}

# %%
lengths, free = [4, 3, 2, 1], [0, 0]
for length in lengths:
    free[free.index(min(free))] += length
ends = {"fixed": max(sum(lengths[0::2]), sum(lengths[1::2])), "counter": max(free)}
said = compare("when the last SM is done", my_ends, ends, "blocks")

# %% [markdown]
# A counter in HBM does the second: a producer that needs a tile adds one to it. The answer takes a while to come back, so the producer asks for the next tile before it loads this one. It lays the tile's number down beside $Q$.

# %%
print(excerpt(hopper_persistent.producer, "while tile < how_many", "n, turn, tile"))

# %% [markdown]
# A program's first tile is its own number, `program_id`; the counter hands out those from `num_programs` on. Of the producer's warp, one thread runs `atomic_add`; the others get its answer through shared memory. `n` counts the blocks of all tiles so far, because the rings go on where the tile before has left them. $Q$ has one slot, so there `turn`, the number of tiles, gives the phase.

# %%
show(hopper_persistent.lay_down, hopper_persistent.look_at, hopper_words.place)

# %% [markdown]
# `BlockedLayout([1], [32], [1], [0])` is a layout in registers: 1 number a thread, 32 threads a warp, 1 warp, along axis 0. Of a single number each thread holds a copy. `SwizzledSharedLayout(1, 1, 1, [0])` is the number's layout in shared memory: 1, 1, 1 say that nothing is swizzled.
#
# **Why do consumers see the number?** No barrier counts its bytes. But in PTX arriving at an mbarrier is a *release*, and waiting there an *acquire*: what a thread wrote before it arrived is visible to all who have waited for that phase. All 32 threads of the producer store the same number, so the one that arrives at `Q_full` has stored it, too. `Q_free` keeps the number until it has been read: both consumers arrive there after their last $S$, and the producer waits for them before it stores the next one. At the end the producer stores $-1$ and arrives at `Q_full` without bytes. That ends the phase, and the consumers stop.
#
# **Takeaway.** A counter hands out tiles, and the rings run on from tile to tile.
#
# *End of sitting 7.*
#
# ## Sitting 8 · Which tile when, and how many slots (25 minutes)
#
# Long tiles come first, so that no SM begins one last. One head has few long tiles, so several heads go side by side. But their $K$ and $V$ should stay in the L2 cache, so that HBM is read once. Heads go in groups of `together`, as many as fit. Four heads of two tiles, two heads at a time, as (head, row, blocks):

# %%
print(*[hopper_stand_in.kernels.first_words.place(tile, 256, 2, 128, 128, True) for tile in range(8)])

# %% [markdown]
# The host's side:

# %%
show(hopper_persistent.launch, hopper_words.launch_tiles)

# %% [markdown]
# Without a mask all tiles are equally long, and `together` is 1. `temporary` makes the counter, a zero in HBM, anew in each call.
#
# `programs_at_a_time(Q, 8)` counts the eight warps of the consumers, and gives each SM one such program. With the producer's four a program has 12 warps, 384 threads.
#
# `why_not` refuses other calls than $N_q = N_k$, a multiple of 128. With `KEYS = 96`, `N // keys` would silently drop keys.
#
# Watch the phases in the player: they count on from tile to tile.

# %%
play_warps(simulate(warp_programs.last_rung(slots=2, ends=[3, 1, 2])))     # tiles of 3, 1 and 2 blocks

# %% [markdown]
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
# **Takeaway.** Long tiles come first, and shared memory limits the slots.
#
# *End of sitting 8.*
#
# ## Sitting 9 · Measure it, change it (45 minutes)
#
# ### Which idea carries how much?
#
# Each row is the last rung with one idea changed, against the last rung as it is. *Without the next S ahead* issues $S_j$ only after the wait for $O$; *without the counter* takes the tile `num_programs` further on; in *head after head* `together` is 1.

# %%
last = "hopper_persistent_forward"
figures.speeds_beside(recorded, {f"{last}, {what}": what for what in CHANGES}, last)

# %% [markdown]
# At $d = 128$ the next $S$ ahead carries most without a mask, the counter with one. Turns carry little.
#
# ### From the last rung to the operator
#
# The operator's kernel, `flashlab/operator/hopper_forward.py`, is this one and what a model needs:
#
# | what it adds | why |
# |---|---|
# | three or four consumers at $d = 64$ | $O$ takes fewer registers there, so more consumers fit |
# | named barriers for `free` | a consumer arrives without meeting its own warps first |
# | rows past the end, any $N_q$ and $N_k$ | sequences do not come in multiples of 128 |
# | windows, packed sequences | each tile has its own first and last block of keys |
# | row sums kept in parts, the loop unrolled | fewer exchanges between threads |
#
# At $d = 128$ the last rung is close to it, at $d = 64$ it is not. Nobody has measured the five one by one.

# %%
figures.speeds_beside(recorded, {last: None}, "fa2_hopper_forward")

# %% [markdown]
# ### Change it
#
# `judge` runs the changed lines on CPU threads, with a causal mask, and asks the compiler.

# %%
def judge(lines, *head_dims):
    print("on CPU threads:", hopper_stand_in.outcome(hopper_persistent, lines))
    with tempfile.TemporaryDirectory() as folder:
        for d in head_dims:
            made = compiled(variant(hopper_persistent, lines, folder), d, causal=True)
            print(f"d = {d}: {made.registers} registers at launch, {made.spills} bytes spilled, {made.shared_bytes:,} of "
                  f"{SHARED_LIMIT[90]:,} shared; {made.warnings or 'no warnings'}")

# %% [markdown]
# **A third slot.** Does it fit?

# %%
of_Q_and_O, of_K_and_V = 2 * 128, 3 * 2 * 128          # rows
print("bytes of tiles:", {d: (of_Q_and_O + of_K_and_V) * d * 2 for d in (64, 128)})
judge([("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(3)")], 64, 128)
print("simulated:", first_error(lambda: in_turn(3), seeds=50).error or "50 runs, no error")

# %% [markdown]
# It fits at $d = 64$ only. The compiler does not mind; the launch would.
#
# **A single slot.** The consumer of ex12b_deadlock runs with one slot; this one hangs. Who waits for whom?

# %%
print(simulate(in_turn(1)).error.replace("; consumer", ";\nconsumer"))

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# The consumers wait for $K_2$ before they release the slot of $V_0$. The producer fetches $V_1$ before $K_2$, and $V_1$ needs that slot. With two slots $V_1$ has its own. With the wait for $K$ moved (sitting 5, and the exercise) one slot is enough, but the overlap is gone. The next cell runs that.
#
# </details>

# %%
print(hopper_stand_in.outcome(hopper_overlap, [*moved, ("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)")]))

# %% [markdown]
# **Consumer 1 begins.** Who issues $S$, before and after?

# %%
for begins in (0, 1):
    asked = simulate(in_turn(2, begins)).requests
    print([int(who[-1]) for who, (what, of) in asked if what == "wgmma" and of[0].name == "K"])
judge([("    if me == 1:\n        arrive(TURN, 256) ", "    if me == 0:\n        arrive(TURN + 1, 256) ")], 128)

# %% [markdown]
# **Blocks of 64 keys.** Is it still right?

# %%
half = [("KEYS = gl.constexpr(128)", "KEYS = gl.constexpr(64)")]
print("without a mask:", hopper_stand_in.outcome(hopper_persistent, half, causal=False))
print("with one:      ", hopper_stand_in.outcome(hopper_persistent, half))

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
print("only m:", hopper_stand_in.outcome(hopper_persistent, [*half, finite]))
judge([*half, finite, (after, after + masked)], 128)

# %% [markdown]
# **Other turns**, in the simulator: nobody arrives before the first tile; or the turn is passed on only when $O$'s product has been issued, too.

# %%
begin = "        yield arrive(TURN, BOTH)                       # consumer 0 begins\n    n, turn"
give_away = "    yield arrive(TURN + (me + 1) % K.free[0].count, BOTH)\n"
first_S = "    yield from issue_scores(me, K, n)\n"
S_and_O = ("        yield from issue_scores(me, K, j)\n        yield wait(V.full[before], (j - 1) // slots % 2)\n"
           "        yield wgmma(V, before, j - 1)\n")
other_turns = {"no first arrival": [(begin, "        pass\n    n, turn")],
               "passed after V": [(give_away, ""), (first_S, first_S + give_away), (S_and_O, f"{S_and_O}    {give_away}")]}
with tempfile.TemporaryDirectory() as folder:
    for name, lines in other_turns.items():
        run_turns = first_error(variant(warp_programs, lines, folder).last_rung, seeds=50).error or "50 runs, no error"
        print(f"{name}: {run_turns}".replace("; consumer", ";\nconsumer"))

# %% [markdown]
# The first hangs at once. The second is right, but the other consumer's $S$ now stands behind two products. (On a Hopper GPU, `python -m flashlab bench hopper` times this chapter's kernels.)
#
# **Your turn: one slot without the deadlock.** Only the producer's order may change. Begin in the simulator: `LINES` takes pairs (old text, new text) of `persistent_producer` in `flashlab_course/gpu/warp_programs.py`. You want *50 runs, no error*. The player shows the first run that goes wrong, else the last.

# %%
LINES = []
with tempfile.TemporaryDirectory() as folder:
    simulated = variant(warp_programs, LINES, folder)
    tried = first_error(lambda: simulated.last_rung(slots=1, ends=[3, 1], consumers=2), seeds=50)
    shown = play_warps(tried)
print((tried.error or "50 runs, no error").replace("; consumer", ";\nconsumer"))
shown

# %% [markdown]
# Then change `producer` of `flashlab/kernels/hopper_persistent.py` in the same way. You want `ok`, nothing spilled, and less shared memory than before.

# %%
# Your pairs (old text, new text) go here:
MY_LINES = []
if MY_LINES:
    judge([("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)"), *MY_LINES], 64, 128)

# %% [markdown]
# <details><summary><b>Answer</b></summary>
#
# Each $K$ comes before the $V$ of the block before: $K_0, K_1, V_0, K_2, V_1, \dots$ So $K_2$ no longer waits for $V_1$.
#
# ```python
# MY_LINES = [
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

# %% [markdown]
# **Takeaway.** Without a GPU one can find most wrong changes, and see whether a kernel fits. Whether it is right under every timing, and whether it is faster, only a GPU shows.
#
# *End of sitting 9.*
#
# ## Sitting 10 · Backwards (30 minutes)
#
# The backward kernel, `flashlab/operator/hopper_backward.py`, is built from the same parts. A program owns a block of keys and walks the query tiles of 64 rows. It has a producer warp, two or three consumers with 64 keys each, and a third kind of warp, the *adder*.
#
# Keys lie in rows: a consumer computes $S^\top = K Q^\top$ and $dP^\top = V\,dO^\top$. So $P^\top$ and $dS^\top$ are left operands in registers, and $dV \mathrel{+}= P^\top dO$ and $dK \mathrel{+}= dS^\top Q$ take them from there. $dV$ and $dK$ stay in registers until the end.
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
# Before it, a consumer's step: four products, and the exponentials of $P$ while $dP$ may still run.

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
# Together. Of a consumer's products, `Q` is $S$, then $dK$; `dO` is $dP$, then $dV$; `K` is $dQ$, of the owner alone: consumer 0 at tile 0, consumer 1 at tile 1.

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
# Of the consumers only the owner waits for the others. The owners go round, so the consumers drift apart, and one's exponentials run beside another's products. **Predict** for three consumers: who owns the $dQ$ of query tile 7?

# %%
my_owner = None

# %%
consumers_backward, tile = 3, 7
said = compare("owner of tile 7", my_owner, tile % consumers_backward)

# %% [markdown]
# ## Sources
#
# Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), sections 3.1 and 3.2: warp specialisation, consumers that alternate, products under the softmax · NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): mbarrier, wgmma, `setmaxnreg`, `bar.sync`, the async proxy · [Gluon tutorials](https://github.com/triton-lang/triton/tree/main/python/tutorials/gluon) of Triton · `flashlab/kernels/hopper_*.py`, `flashlab_course/gpu/warps.py`
#
# **Next:** [13 · Decoding](13_decoding.ipynb): one query at a time.
