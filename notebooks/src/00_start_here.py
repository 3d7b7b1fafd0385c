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
# **You will be able to** say what this course builds and in which order, know what your machine can run of it, and
# predict how much memory plain attention needs.
#
# **You need** PyTorch tensors: shapes, `@`, `softmax`. Nothing about GPUs. · **10 minutes** · **runs on** CPU or GPU
#
# Attention is three lines of PyTorch: $S = QK^\top/\sqrt{d}$, $P = \mathrm{softmax}(S)$, $O = PV$. FlashAttention
# computes the same $O$ and never stores $S$ or $P$. You will build it, one rung at a time, and measure every claim
# as you go.

# %% [markdown]
# ## Your machine
#
# `flashlab` comes first in every notebook: it tells Triton whether to compile for a GPU or to interpret kernels on
# the CPU. `doctor` then looks at this machine, measures its two speed limits, and says what to fix.

# %%
from flashlab import doctor

print(doctor.as_text(doctor.report()))

# %% [markdown]
# A line that starts with `broken` comes with the command that fixes it; run that in a terminal, then restart the
# kernel. A `note` is no fault: the course works around it. Without a GPU every chapter still runs to its end.
#
# ## The map
#
# The course climbs a ladder. Each rung is one function that computes attention, and changes one idea against the
# rung below. This table is the list that the tests and the benchmarks loop over.

# %%
from IPython.display import Markdown

from flashlab.ladder import RUNGS

rows = [f"| {r.number} | {r.title} | `{r.name}` | {r.new} | {r.chapter} |" for r in RUNGS]
Markdown("\n".join(["| rung | | function | what is new | chapter |", "|---|---|---|---|---|", *rows]))

# %% [markdown]
# The chapters lead you up. Take them in order: each one uses what the one before has built. The last column says
# what an NVIDIA GPU changes; where it is empty, a laptop shows everything.

# %%
from flashlab.chapters import CHAPTERS

rows = [f"| [{c.number}]({c.number}_{c.name}.ipynb) | {c.builds} | {c.gpu_adds} |" for c in CHAPTERS]
Markdown("\n".join(["| chapter | what you build or see | a GPU adds |", "|---|---|---|", *rows]))

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
# Two kinds of memory matter. **HBM** is the GPU's large memory, where tensors live. **SRAM** is the small fast
# memory on the chip, where arithmetic happens. Every byte that crosses between them takes time.

# %% [markdown]
# ## How a chapter works
#
# A question, then four steps: **predict** (you write a number into a cell), **run**, **compare**, **takeaway**. The
# guess matters most, above all a wrong one: write it before you run on.
#
# Every number says where it comes from. **Modelled**: counted by the memory model, exact and the same on every
# machine. **Measured here**: timed or allocated on this machine. **Recorded**: measured on a named GPU and kept in
# `results/`.
#
# Some cells fail on purpose. They catch the error and print it, so *Run All* always reaches the end.

# %% [markdown]
# ## A first measurement: how large is $S$?
#
# One head, $N$ queries and $N$ keys, $d = 64$, float32 (4 bytes a number). **Predict** how many MiB $S$ takes for a
# short text of 1024 tokens, and for a long one of 16384. Replace each `None`.

# %%
prediction = {1024: None, 16384: None}     # MiB of S; 1 MiB is 2**20 bytes

# %% [markdown]
# **Run.** Here is naive attention, rung 0, as PyTorch computes it. The oracle holds its output against attention in
# float64: every rung of the course has to pass this line.

# %%
import torch

from flashlab.rungs.naive import naive_forward
from flashlab.oracle import judge

torch.manual_seed(0)
N, d = 1024, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
O, L = naive_forward(Q, K, V)
print(judge(O, L, Q, K, V))

# %% [markdown]
# **Compare.** $S$ at 1024 is small enough to make and weigh. At 16384 a tensor on PyTorch's `meta` device tells its
# size without being allocated, which spares your laptop.

# %%
MiB = 2**20
S = Q @ K.T
S_long = torch.empty(16384, 16384, device="meta")
for n, nbytes, how in [(1024, S.nbytes, "measured here"), (16384, S_long.nbytes, "modelled")]:
    print(f"N = {n:>5}: S takes {nbytes / MiB:6.0f} MiB ({how}); your prediction: {prediction[n]}; "
          f"Q takes {n * d * 4 / MiB:.2f} MiB")

# %% [markdown]
# **Takeaway.** $Q$ grows with $N$, $S$ with $N^2$: sixteen times the tokens, 256 times the scores, and that for one
# head of one layer.
#
# ## How often does $S$ cross HBM?
#
# Storing $S$ is half the trouble: it also has to be moved. Each PyTorch operation reads its operands from HBM and
# writes its result back. **Predict**: how many times do $N \times N$ numbers cross HBM in one call of
# `naive_forward`?

# %%
crossings = None     # reads + writes of an N x N matrix

# %% [markdown]
# **Run.** Inside `Memory`, the course's model of a GPU's memory, the same function runs unchanged, and each byte
# between HBM and chip is counted: these are modelled bytes. `mm` is both matrix products, $QK^\top$ and $PV$.

# %%
from flashlab.memory import Memory

with Memory() as mem:
    O, L = naive_forward(Q, K, V)
print(mem.table())

# %% [markdown]
# **Compare.** Divide all traffic by the size of $S$. What is over the whole number belongs to $Q$, $K$, $V$, $O$
# and $L$: all that attention has to read and write when nothing is stored on the way.

# %%
total, needed = mem.read + mem.written, Q.nbytes + K.nbytes + V.nbytes + O.nbytes + L.nbytes
print(f"modelled: {total / S.nbytes:.2f} times the size of S; your prediction: {crossings}")
print(f"modelled: {total / needed:.0f} times the bytes of Q, K, V, O and L together")

# %% [markdown]
# **Takeaway.** Naive attention moves $S$ and $P$ seven times to produce an output that needs neither in the end.
#
# ## So keep $S$ on the chip?
#
# Then nothing would have to move. `kernel` opens one GPU program, and `load` brings rows from HBM into its SRAM:
# 192 KiB, as on an A100. Try it with only 256 tokens. This cell fails on purpose.

# %%
from flashlab.memory import SRAMOverflow, kernel, load

try:
    with Memory(), kernel("all_at_once", Q=Q, K=K):
        Q_all = load(Q, slice(0, 256))
        K_all = load(K, slice(0, 256))
        S_all = Q_all @ K_all.T
except SRAMOverflow as error:
    print(error)

# %% [markdown]
# The message names the operation, the tile, its size, what else is in SRAM and the budget. The scores of even 256
# tokens do not fit. Parts of them do.
#
# **Takeaway.** $S$ is too slow to keep in HBM and too large for SRAM, so it has to be made and used up tile by
# tile. But softmax needs whole rows: how that can work is the idea of this course.

# %% [markdown]
# ## Where this leads
#
# The two FlashAttention rungs do just that. Here they run beside naive attention, inside the same `Memory` and at
# growing $N$. **Predict** first: how many times less will the best of them move at $N = 1024$?

# %%
fewer = None     # naive's bytes divided by FlashAttention's

# %% [markdown]
# **Run.** Each dot is a run of the rung under the memory model, each dashed line its formula. Both axes
# are logarithmic: the same step up is the same factor everywhere.

# %%
from flashlab import figures, sweeps

points = sweeps.over_N([128, 256, 512, 1024], d=64)
print(f"your prediction: {fewer}")
figures.traffic_against_N(points)

# %% [markdown]
# **Takeaway.** The same output from fewer bytes, and no $S$ in HBM at all. Chapters 01 to 07 take you from the top line
# to the bottom one, show what sets the distance between them, and 10 puts the result on a GPU.

# %% [markdown]
# ## Your turn
#
# Change `256` in the cell that failed. What is the largest number of tokens whose scores fit, and which bytes fill the
# rest of the 192 KiB?
#
# ## Sources
#
# Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762) · Dao et al. 2022,
# [FlashAttention](https://arxiv.org/abs/2205.14135) · Dao 2023,
# [FlashAttention-2](https://arxiv.org/abs/2307.08691)
#
# **Next:** [01 · Naive attention](01_naive_attention.ipynb) takes the three lines apart, operation by operation.
