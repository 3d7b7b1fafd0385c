# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 00 · Start here
#
# **You will be able to** say what FlashAttention does differently, predict how much memory plain attention needs, make
# one tile of scores yourself, and find your way through the course.
#
# **You need** PyTorch tensors: shapes, `@`, `softmax`. Nothing about GPUs. · **40 minutes**, 10 of them for an
# exercise · **runs on** CPU or GPU
#
# Attention is three lines of PyTorch: $S = QK^\top/\sqrt{d}$, $P = \mathrm{softmax}(S)$, $O = PV$. FlashAttention
# computes the same $O$ and never stores $S$ or $P$. You will build it step by step, and measure every claim as you go.

# %% [markdown]
# ## Watch it
#
# A toy: 16 queries, 16 keys, 4 numbers each. Three functions compute attention for it. `naive_forward` is the three
# lines; `fa1_forward` and `fa2_forward` are FlashAttention 1 and 2, with tiles of 4 rows.

# %%
from flashlab.rungs.fa1 import fa1_forward  # flashlab before torch: it tells Triton where to run
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
import torch

torch.manual_seed(0)
Q, K, V = (torch.randn(16, 4) for _ in range(3))
tiles = {"B_r": 4, "B_c": 4}                       # rows of a query tile, rows of a key tile

# %% [markdown]
# Two kinds of memory matter. **HBM** is the GPU's large memory, where tensors live. **SRAM** is the small fast memory
# on the chip, where arithmetic happens. What crosses between them takes time. **Predict**: what share of naive
# attention's bytes does FlashAttention-2 move in this toy? Write your guess in place of `None`, and run the cell.

# %%
my_share = None     # between 0 and 1

# %% [markdown]
# **Run.** Plain attention first: every matrix is written to HBM and read back for the next operation. Watch $S$ and $P$.

# %% tags=["shown"]
from flashlab_course.player import play, record

play(record(naive_forward, Q, K, V))

# %% [markdown]
# Now the two FlashAttentions, side by side on the same $Q$, $K$ and $V$. Each works on one **tile** of $S$ at a time, a
# block of 4 × 4 scores that never leaves the chip. Watch which tensors stay still while the others stream past.

# %% tags=["shown"]
play(*(record(forward, Q, K, V, **tiles, sram_bytes=1024) for forward in (fa1_forward, fa2_forward)))

# %% [markdown]
# **Compare.** Inside `Memory`, the course's model of a GPU's memory, a function runs unchanged, and each byte that
# crosses between HBM and the chip is counted.

# %%
from flashlab_course.lesson import compare
from flashlab import cost
from flashlab.memory import Memory

moved, outputs = {}, {}
for function, sizes in [(naive_forward, {}), (fa1_forward, tiles), (fa2_forward, tiles)]:
    with Memory() as mem:
        outputs[function.__name__], L = function(Q, K, V, **sizes)
    moved[function.__name__] = mem.read + mem.written
    print(f"{function.__name__:<13} {moved[function.__name__]:>5} bytes (modelled)")
share = moved["fa2_forward"] / moved["naive_forward"]
without_L = moved["fa2_forward"] / (moved["naive_forward"] - cost.logsumexp(len(Q), len(K)).traffic)
print(f"FlashAttention-2 moves {share:.0%} of what naive attention moves, {without_L:.0%} if naive leaves out L")
said = compare("FA2's share of naive's bytes in the toy", my_share, share)

# %% [markdown]
# Fewer bytes: is the answer still the same? **Predict** how far FlashAttention-2's $O$ is from that of naive attention:
# `"equal"` to the last bit, `"rounding"` in the last digits, or an `"approximation"`, off by a few percent.

# %%
my_kind = None     # "equal", "rounding" or "approximation"

# %%
difference = (outputs["fa2_forward"] - outputs["naive_forward"]).abs().max().item()
kind = "equal" if difference == 0 else "rounding" if difference < 1e-6 else "approximation"
print(f"largest difference: {difference:.1e}; float32 keeps numbers near 1 to {torch.finfo(torch.float32).eps:.1e}")
said = compare("how far FA2's output is from naive's", my_kind, kind)

# %% [markdown]
# **Takeaway.** FlashAttention is exact. It computes the same sums in another order, so that fewer bytes move.

# %% [markdown]
# ## Your first exercise: one tile
#
# A score needs one query and one key, so a tile of scores needs a few rows of each and nothing else. That is what lets
# FlashAttention work on $S$ without ever having all of it.

# %%
from flashlab_course import figures

figures.block_product(16, 4, 16, B_m=4, B_k=4, B_n=4, tile=(1, 2), names=("Q", "Kᵀ", "S"))

# %% [markdown]
# **One tile of scores** ([exercises/ex00_score_tile.py](../exercises/ex00_score_tile.py), 10 minutes). Open the file,
# replace the line that raises an error, save, and run this cell. The checker reads the file afresh and says what is
# wrong, or that it is right. Stuck? `check("ex00_score_tile", hint=True)` gives one hint at a time.

# %%
from flashlab_course.check import check

check("ex00_score_tile")

# %% [markdown]
# Once an exercise passes, `reveal` shows the reference beside your own answer. Two answers may differ and both be right.

# %%
from flashlab_course.lesson import reveal

reveal("ex00_score_tile")

# %% [markdown]
# ## How large is $S$?
#
# One head, $N$ queries and $N$ keys, float32 (4 bytes a number). **Predict** the bytes of $S$ as a function of $N$. A
# prediction can be a number, a word, or, as here, a function: replace `None` by `lambda N: ...`.

# %%
my_bytes = None     # a function of N

# %% [markdown]
# **Run and compare.** On PyTorch's `meta` device a tensor tells its size without being allocated, which spares your
# laptop the longest of them. A function that you predicted is drawn as stars.

# %%
Ns = [1024, 2048, 4096, 8192, 16384]
sizes = {N: torch.empty(N, N, device="meta").nbytes for N in Ns}
said = compare("bytes of S", my_bytes, sizes, "bytes")
said.on(figures.curves({"S": sizes, "Q": {N: 4 * N * 64 for N in Ns}}, f"At N = {Ns[-1]}, S takes {Ns[-1] // 64} times the bytes of Q",
                       "Modelled: from the shapes, d = 64.", "N", "bytes", log="xy", byte="y",
                       ceilings={"L2 cache of an A100 (published)": 40 * 2**20}))

# %% [markdown]
# **Takeaway.** $Q$ grows with $N$, $S$ with $N^2$. Sixteen times the tokens are 256 times the scores, and that for one
# head of one layer.

# %% [markdown]
# ## How often does $S$ cross HBM?
#
# Storing $S$ is half the trouble: it also has to be moved. Each PyTorch operation reads its operands from HBM and
# writes its result back. **Predict**: how many times do $N \times N$ numbers cross HBM in one call of `naive_forward`?
# It scales $S$ in an operation of its own, and also returns $L$, the **logsumexp** of each row of $S$.

# %%
my_crossings = None     # reads + writes of an N x N matrix

# %% [markdown]
# **Run.** The same function, larger, under the memory model. `mm` is both matrix products, $QK^\top$ and $PV$. The
# oracle holds the output against attention in float64: every function of the course has to pass this line.

# %%
from flashlab.oracle import judge

N, d = 1024, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
with Memory() as mem:
    O, L = naive_forward(Q, K, V)
print(judge(O, L, Q, K, V))
print(mem.table())

# %% [markdown]
# **Compare.** Divide the bytes of each operation by those of $S$. What is over a whole number belongs to $Q$, $K$, $V$,
# $O$ and $L$: all that attention has to read and write when nothing is stored on the way.

# %%
one, needed = N * N * 4, Q.nbytes + K.nbytes + V.nbytes + O.nbytes + L.nbytes
total, for_L = mem.read + mem.written, sum(event.read for event in mem.log if event.name == "logsumexp")
print(f"modelled: {total / one:.2f} times the size of S, {(total - for_L) / one:.2f} without logsumexp")
print(f"modelled: {total / needed:.0f} times the bytes of Q, K, V, O and L together, {(total - for_L) / needed:.0f} without logsumexp")
said = compare("how often an N x N matrix crosses HBM in naive attention", my_crossings, total // one)

# %% [markdown]
# **Takeaway.** Naive attention moves $S$ and $P$ seven times (six without $L$) to produce an output that needs neither in
# the end.

# %% [markdown]
# ## So keep $S$ on the chip?
#
# Then nothing would have to move. `kernel` opens one GPU program, and `load` brings rows from HBM into its SRAM. The
# model's SRAM has 192 KiB: all the L1 cache and shared memory that one processor of an A100 has. A real program gets
# less, at most 163 KiB there. Try it with only 256 tokens; this cell fails on purpose.

# %%
from flashlab.memory import SRAMOverflow, kernel, load

N = 256             # change me
Q, K = (torch.randn(1024, 64) for _ in range(2))
try:
    with Memory(), kernel("all_at_once", Q=Q, K=K):
        Q_all = load(Q, slice(0, N))
        K_all = load(K, slice(0, N))
        S_all = Q_all @ K_all.T
    print(f"the scores of {N} tokens fit")
except SRAMOverflow as error:
    print(error)

# %% [markdown]
# The message names the operation, the tile, its size, what else is in SRAM and the budget. Change `N` and run the cell
# again until you know the largest number of tokens whose scores fit.
#
# **Takeaway.** Moving $S$ to and from HBM is too slow, and SRAM is too small to hold it. So $S$ has to be made and used
# up tile by tile. But softmax needs whole rows: how that can work is the idea of this course.

# %% [markdown]
# ## Where this leads
#
# The two FlashAttentions do just that. Now at growing $N$, with $d = 64$ and tiles of 64 rows. Naive attention moves 29
# MiB at $N = 1024$. **Predict**: how many bytes does FlashAttention-2 move there?

# %%
MiB = 2**20
my_traffic = None     # bytes, e.g. 20 * MiB

# %% [markdown]
# **Run.** Each dot is a run under the memory model, each dashed line a formula. Both axes are logarithmic: the same step
# up is the same factor everywhere.

# %%
from flashlab_course import sweeps

points = sweeps.over_N([128, 256, 512, 1024], d=64)
last = {p["rung"]: p["measured"] for p in points if p["N"] == 1024}
print(f"naive without logsumexp: {(last['naive_forward'] - for_L) / last['fa2_forward']:.1f} times the bytes of FA2 (modelled)")
said = compare("HBM bytes of FA2 at N = 1024", my_traffic, last["fa2_forward"], "bytes")
said.on(figures.traffic_against(points), x=1024)

# %% [markdown]
# One caution. The model counts every byte that leaves or enters the chip's SRAM. A real GPU has a cache between SRAM and
# HBM, the **L2**, and it answers most of FlashAttention's repeated reads. So model bytes are not HBM bytes. Here is what
# an H100 counted, for 16 heads in 16 bits; its naive attention spends half of its HBM bytes on $L$. The SRAM of 192 KiB is
# generous, too: a block gets at most 163 KiB on an A100, 227 KiB on an H100 or H200, and keeps its sums in registers.

# %%
from flashlab_course.bench import load_results, where

counted = load_results("counters_h100")
for row in counted["rows"]:
    if row["N"] == 4096:
        hbm = row["dram_read"] + row["dram_written"]
        print(f"{row['implementation']:>18}: {row['l2_bytes'] / 1e9:6.3f} GB through L2, {hbm / 1e9:6.3f} GB through HBM")
print(f"Recorded on {where(counted)}")

# %% [markdown]
# **Takeaway.** The same output from fewer bytes, and no $S$ in HBM at all. Chapters 01 to 07 take you from the top line
# to the bottom one and show what sets the distance between them. Chapter 10 puts the result on a GPU.

# %% [markdown]
# ## Your machine
#
# `doctor` looks at this machine, measures its two speed limits, and says what to fix. A line that says `broken` comes
# with the command that fixes it: run that in a terminal, then restart the kernel. A `note` is no fault; the course works
# around it, and without a GPU every chapter still runs to its end.

# %%
from flashlab_course import doctor

print(doctor.as_text(doctor.report()))

# %% [markdown]
# ## The map
#
# The course climbs a ladder. Each rung is one function that computes attention, and changes one idea against the rung
# below.

# %%
figures.ladder()

# %% [markdown]
# The chapters lead you up. Take them in order: each uses what the one before has built. Where a line says what a GPU
# adds, that chapter has more to show on an NVIDIA GPU; for the others a laptop is all you need. Chapters 13 to 15 are
# planned.

# %%
from IPython.display import Markdown
from flashlab_course.chapters import CHAPTERS

lines = [f"- [{c.number}]({c.number}_{c.name}.ipynb) {c.builds}" + (f" · *a GPU adds {c.gpu_adds}*" if c.gpu_adds else "")
         for c in CHAPTERS]
Markdown("\n".join(lines))

# %% [markdown]
# ## How a chapter works
#
# A question, then four steps: **predict** (you write a number into a cell), **run**, **compare**, **takeaway**. The
# guess matters most, above all a wrong one: write it before you run on. An empty prediction is passed over in silence,
# and a given one is kept, so that a restarted notebook still knows it.
#
# **Exercises** stand where their idea comes up. `check("…")` names the mistake, `check("…", hint=True)` gives one hint
# more at each call, and `reveal("…")` shows the reference once yours passes. Save the file before you check it.
#
# Every number says where it comes from. **Modelled**: counted by the memory model, exact and the same on every machine.
# **Measured here**: timed or allocated on this machine. **Recorded**: measured on a named GPU and kept in `results/`.
#
# Some cells fail on purpose. They catch the error and print it, so *Run All* always reaches the end. Each chapter closes
# with an open question that nobody checks.

# %% [markdown]
# ## The letters
#
# The code uses the letters of the papers, and a letter never changes its meaning.
#
# | letter | shape | meaning |
# |---|---|---|
# | $Q$, $K$, $V$ | $(N_q, d)$, $(N_k, d)$, $(N_k, d_v)$ | queries, keys, values of one head |
# | $S = QK^\top \cdot$ `scale` | $(N_q, N_k)$ | scores; `scale` is $1/\sqrt{d}$ unless you say otherwise |
# | $P = \mathrm{softmax}(S)$ | $(N_q, N_k)$ | weights: each row sums to 1 |
# | $O = PV$ | $(N_q, d_v)$ | the output |
# | $m$, $l$, $L = m + \ln l$ | $(N_q,)$ | per row of $S$: maximum, sum of $e^{S - m}$, logsumexp |
# | $Q_i$, $K_j$, $V_j$, $S_{ij}$, $P_{ij}$, $O_i$ | **tiles** | blocks of the above: `i` walks query blocks, `j` key blocks |
# | $B_r$, $B_c$ | | rows of a query tile, rows of a key tile |
# | $T_r = \lceil N_q/B_r \rceil$, $T_c = \lceil N_k/B_c \rceil$ | | how many query tiles, key tiles |

# %% [markdown]
# ## The words
#
# You need none of these yet: each is introduced where it is used. Come back when one has slipped your mind.
#
# | word | meaning |
# |---|---|
# | arithmetic intensity | floating-point operations for each byte moved; decides whether memory or arithmetic is the limit |
# | atomic addition | `x += y` in memory that many threads may do at once without losing a term |
# | autotuning | trying several tile sizes on the machine itself and keeping the fastest |
# | bandwidth, latency | bytes a second once the stream flows; the time until the first byte is there |
# | barrier | a line at which the threads of a block wait for one another |
# | block (CUDA) | threads that run on one SM and share its shared memory |
# | causal mask | hides the keys that come after a query |
# | coalesced | neighbouring threads read neighbouring addresses, so that one transfer serves them all |
# | divergence | threads of a warp disagree on a branch, and the warp walks through both sides |
# | eager | PyTorch's way to run: each operation is a kernel of its own |
# | FLOP, TFLOP/s | one floating-point addition or multiplication; 10¹² of them a second |
# | fused | several operations in one kernel: nothing between them goes through HBM |
# | grid | all blocks, or all programs, of one launch |
# | head | one of several attentions that a layer runs side by side |
# | HBM | the GPU's large memory (40 to 141 GB), outside the processor chip; `x.cuda()` puts a tensor there |
# | kernel | a function that runs on the GPU |
# | L2 cache | 40 to 60 MB on the chip, shared by all SMs, filled by the hardware without being asked |
# | lane | one of the 32 places of a warp |
# | launch | starting a kernel from the CPU |
# | logsumexp | $\ln \sum_j e^{S_j}$: one number that says all the backward pass needs about a row of scores |
# | mask | which elements count: those that exist, or those that a query may see |
# | occupancy | how many of the warps that an SM could hold it does hold |
# | online softmax | softmax in one pass: maximum and sum are corrected as scores arrive |
# | pointer, stride | address of a tensor's first number; how far to step for the next row or column |
# | program (Triton) | what runs on one tile, like a block of CUDA; you write it for tiles and not for threads |
# | recomputation | making $P$ a second time in the backward pass instead of storing it |
# | register | the fastest memory: a few numbers for each thread; 256 KiB on each SM |
# | rescale | multiply what was summed so far by $e^{m_{\text{old}} - m_{\text{new}}}$ because the maximum has grown |
# | roofline | a plot of speed against arithmetic intensity, under the two limits of a machine |
# | running state | $m$, $l$ and $O$ of the keys seen so far |
# | SDPA | PyTorch's `scaled_dot_product_attention`, which the course is measured against |
# | shared memory | SRAM on an SM that a block's threads fill and read themselves |
# | SM | streaming multiprocessor: one of the GPU's 100 or so processors |
# | spill | registers that did not fit and went to slower memory |
# | SRAM | fast memory on the chip; in the model, the one place where a program keeps its tiles |
# | stage | one of several tiles in flight, so that loading the next overlaps with computing on this one |
# | tensor core | a unit that multiplies small matrices in one instruction |
# | TF32 | float32 with its mantissa cut to 10 bits, as tensor cores take it |
# | thread | one run of a CUDA kernel's lines, with its own number and its own registers |
# | tile | a block of rows, or of rows and columns, small enough for the chip |
# | TMA | the unit of a Hopper GPU that copies whole tiles between HBM and shared memory |
# | warp | 32 threads that take every step together |

# %% [markdown]
# ## An open question
#
# In the cell that overflowed, $N$ queries met $N$ keys. Suppose instead that you may choose: many queries and few keys,
# or few queries and many keys, as long as everything fits. Which choice makes the most scores for each byte that was
# loaded? Does the answer change when the tile of $Q$ stays while tiles of $K$ come and go?
#
# ## Sources
#
# Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762) · Dao et al. 2022,
# [FlashAttention](https://arxiv.org/abs/2205.14135) · Dao 2023,
# [FlashAttention-2](https://arxiv.org/abs/2307.08691) · NVIDIA,
# [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), compute capabilities (shared
# memory for one block)
#
# **Next:** [01 · Naive attention](01_naive_attention.ipynb) takes the three lines apart, operation by operation.
