# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 07 · Counting HBM traffic
#
# **You will be able to** count the bytes that naive attention, FA1 and FA2 move, say how much SRAM a head needs before FlashAttention pays, and explain why a real GPU moves fewer.
#
# **You need** chapters 01, 05 and 06 · **further:** sittings 1 and 2, 40 and 35 minutes, and sitting 3, 15 minutes · **runs on** CPU; the counters of sitting 3 were recorded on an H100
#
# Papers say how the traffic grows; $M$ is the size of the SRAM in elements:
#
# | | FLOPs | extra memory | HBM accesses |
# |---|---|---|---|
# | naive | $O(N^2 d)$ | $O(N^2)$ | $O(Nd + N^2)$ |
# | FlashAttention | $O(N^2 d)$ | $O(N)$ | $O(N^2 d^2/M)$ |
#
# First you watch the bytes, then you count them, constants included. Sitting 2 derives the last entry.

# %%
import flashlab  # first: it tells Triton where to run
from dataclasses import replace

import torch

from flashlab import cost
from flashlab.memory import KiB
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab_course import figures
from flashlab_course.bench import load_results
from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal
from flashlab_course.player import play_traffic, record

_ = torch.manual_seed(0)

# %% [markdown]
# ## Sitting 1 (further) · Watch, then count (40 minutes)
#
# ### A race in bytes
#
# Naive attention, FA1 and FA2 work on the same 16 queries and 16 keys. FA1 and FA2 cut them into two query blocks and four key blocks. FA1's outer loop walks the key blocks, FA2's the query blocks.
#
# **Predict** how many times all of $Q$ and all of $K$ are loaded.

# %%
my_times = {"FA1 loads Q": None, "FA1 loads K": None, "FA2 loads Q": None, "FA2 loads K": None}

# %% [markdown]
# **Run, compare and play.** At each moment all lanes have moved about as many bytes, so the thriftiest is done first. A dashed box is what you predicted (once, where you left `None`): if it is right, the bar ends at its edge.

# %% jupyter={"source_hidden": true}
def times(run, name):
    loads = [move.rows for step in run.steps for move in step.moves if move[:2] == ("load", name)]
    return len(loads) // len(set(loads))


def boxes(N, d, q=1, k=1, **rest):
    X = 4 * N * d                                         # bytes of Q; each tensor's (read, written) follow
    return {"Q": (q * X, 0), "K": (k * X, 0), "V": (k * X, 0), **rest, "O": rest.get("O", (0, X))}


def naive_boxes(N, d):
    S = 4 * N * N
    return boxes(N, d, S=(2 * S, 2 * S), P=(S, S))


def fa1_boxes(N, d, q, k):                                # O, l and m begin in HBM: stored once more than loaded
    state = {name: (q * n, (q + 1) * n) for name, n in (("O", 4 * N * d), ("l", 4 * N), ("m", 4 * N))}
    return boxes(N, d, q, k, **state, L=(0, 4 * N))

# %%
N, d = 16, 4
q, k, v = (torch.randn(N, d) for _ in range(3))
toy = {"B_r": 8, "B_c": 4, "sram_bytes": 2 * KiB}
runs = {"FA1": record(fa1_forward, q, k, v, **toy), "FA2": record(fa2_forward, q, k, v, **toy)}
_ = compare("how often all of a tensor is loaded", my_times,
            {f"{rung} loads {T}": times(run, T) for rung, run in runs.items() for T in "QK"})
q1, k1, q2, k2 = (n or 1 for n in my_times.values())
play_traffic((record(naive_forward, q, k, v, rows=4), naive_boxes(N, d)), (runs["FA1"], fa1_boxes(N, d, q1, k1)),
             (runs["FA2"], boxes(N, d, q2, k2, L=(0, 4 * N))))

# %% [markdown]
# ### Write the formula
#
# **Your turn: FA2** ([exercises/ex07_traffic_fa2.py](../exercises/ex07_traffic_fa2.py), 10 minutes). Count the elements that one head reads and writes, without a mask. There are $T_r = \lceil N_q/B_r \rceil$ query blocks.

# %%
check("ex07_traffic_fa2")

# %%
reveal("ex07_traffic_fa2")

# %% [markdown]
# **Your turn: FA1** ([exercises/ex07_traffic_fa1.py](../exercises/ex07_traffic_fa1.py), 15 minutes). There are $T_c = \lceil N_k/B_c \rceil$ key blocks. What moves at every step?

# %%
check("ex07_traffic_fa1")

# %%
reveal("ex07_traffic_fa1")

# %% [markdown]
# **Takeaway.** Neither FA1 nor FA2 moves $S$ or $P$. Instead, FA1 moves all of $Q$ and $O$ for each key block, and FA2 all of $K$ and $V$ for each query block.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (further) · Which tiles pay? (35 minutes)
#
# ### The bytes to beat
#
# **Your turn: naive** ([exercises/ex07_traffic_naive.py](../exercises/ex07_traffic_naive.py), 10 minutes). Four operations, each a kernel of its own.

# %%
check("ex07_traffic_naive")

# %%
reveal("ex07_traffic_naive")

# %% [markdown]
# ### Naive attention wins a race
#
# Short query tiles make many query blocks, and each of them reads all of $K$ and $V$. Play a wider head, $d = 12$, with the formulas as boxes. Then change `heights`: from which height on is FA2 done before naive attention?

# %%
N, d = 16, 12
heights = 2, 8                                            # change me: rows of FA2's query tiles, one lane each
q, k, v = (torch.randn(N, d) for _ in range(3))
lanes = [(record(naive_forward, q, k, v, rows=4), naive_boxes(N, d))]
for B in heights:
    run = record(fa2_forward, q, k, v, B_r=B, B_c=8, sram_bytes=16 * KiB)
    lanes.append((replace(run, title=f"FA2, tiles of {B} rows"), boxes(N, d, k=-(-N // B), L=(0, 4 * N))))
play_traffic(*lanes)

# %% [markdown]
# ### How tall must a tile be?
#
# For large $N$ only the terms with $N^2$ count. Naive attention moves $S$ four times and $P$ twice: $6N^2$ elements. FA2 reads $K$ and $V$ for each of $N/B_r$ query blocks: $2N^2d/B_r$. **Predict** the height $B_r$ at which both are equal.

# %%
my_heights = {64: None, 128: None}     # by d

# %%
def share(d, B, N=65536):
    """FA2's bytes over naive attention's, in 16 bits."""
    naive = cost.naive_forward(N, N, d, element_size=2).traffic
    return cost.fa2_forward(N, N, d, B_r=B, B_c=B, element_size=2).traffic / naive

pay = {d: next(B for B in range(1, 500) if share(d, B) < 1) for d in (64, 128)}
_ = compare("height at which tiles begin to pay, by d", my_heights, pay)
figures.curves({f"d = {d}": {B: share(d, B) for B in (16, 32, 64, 128)} for d in pay},
               "FA2 moves fewer bytes from " + ", ".join(f"{B} rows on at d = {d}" for d, B in pay.items()),
               "Modelled: flashlab.cost, N = 65536, 16 bits.", "height B_r of FA2's query tiles", "share of naive attention's bytes",
               log="xy", ceilings={"naive": 1}, walls={f"{B} rows": B for B in pay.values()})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $2d/B_r = 6$, so $B_r = d/3$. In the race $d/3$ was 4: tiles of 3 rows lose, tiles of 4 win.
#
# </details>
#
# ### How much SRAM is that?
#
# [Chapter 05](05_flash_attention_1.ipynb) gave the rule for the largest tile: $8Bd + 3B^2 \le M$. With $B = d/3$ it needs $\tfrac83d^2 + \tfrac13d^2$ elements. So FA2 begins to pay at
#
# $$M = 3\,d^2.$$
#
# Up to there $3B^2 \le Bd$, so $B$ lies between $M/9d$ and $M/8d$, and $K$ and $V$ cost $2N^2d/B = \Theta(N^2d^2/M)$: the table's last entry. Above $3\,d^2$ square tiles grow only as $\sqrt{M/3}$. To keep the entry there, keep $B_c$ small and let $B_r$ grow as $M/d$.
#
# In 16 bits $3\,d^2$ elements are 24 KiB at $d = 64$. A program gets 227 KiB on an H100, 163 on an A100 and 64 on a T4. Which heads of 64, 128 and 256 pay on each? Write it down, then change `sram`: the title answers.

# %%
heads_that_pay = {"H100": [], "A100": [], "T4": []}        # for example [64]
sram = 227 * KiB                                          # change me
needs = {d: 2 * 3 * d**2 for d in (64, 128, 256)}         # bytes of 3 d² numbers in 16 bits


def share_in(size, d):
    """The same for the largest tile that fits."""
    return share(d, max(B for B in range(1, 600) if 2 * (8 * B * d + 3 * B**2) <= size))


sizes = [16 * KiB * 2**n // 2**3 for n in range(3, 10)]
enough = " and ".join(str(d) for d in needs if needs[d] <= sram) or "none of these"
figures.curves({f"d = {d}": {size: share_in(size, d) for size in sorted([*sizes, needs[d] + 999])} for d in needs},
               f"{sram // KiB} KiB are enough for heads of {enough}",
               "Modelled: flashlab.cost, N = 65536, 16 bits, square tiles. Dashed upwards: 3 d², and `sram`.",
               "SRAM of a program", "share of naive attention's bytes", log="xy", byte="x", ceilings={"naive": 1},
               dashed={"16 N²d²/M, d = 64": {size: 16 * 64**2 / (size / 2) / 6 for size in sizes}},
               walls={f"{need // KiB} KiB": need for need in needs.values()} | {"sram": sram})

# %% [markdown]
# At $M = Nd$ the bound $N^2d^2/M$ is $Nd$, the size of the inputs: nothing is left to save. Could another algorithm move less? [Saha and Ye](https://arxiv.org/abs/2402.07443) proved that for $M \ge d^2$ nothing beats FlashAttention by more than a constant. For $M < d^2$ they have a better algorithm.
#
# **Takeaway.** With the square tiles of chapter 05's rule FlashAttention pays once $M$ is above $3\,d^2$. By this count heads of 64 and 128 get that on an A100 or H100. Heads of 256 need tiles with more rows than columns.
#
# *End of sitting 2. To continue later, run the notebook from the top.*
#
# ## Sitting 3 (further) · What a GPU moves (15 minutes)
#
# ### Model and hardware
#
# In 16 bits FA2 does $4N^2d$ FLOPs for $4N^2d/B_r$ bytes: $B_r$ FLOPs for each byte. An A100 needs 208 ([chapter 01](01_naive_attention.ipynb)). By this count tiles of 128 rows wait for memory. Real kernels have such tiles, and do not wait.
#
# The count charges every load to HBM. A GPU serves a repeated load from its L2 cache if the data are still there; an H100's L2 has 50 MiB. Take 16 heads, $N = 16384$, $d = 64$, bfloat16 and $B_r = 128$.
#
# The model charges naive attention six times the 8 GiB of $S$. It charges the kernel a head's $K$ and $V$, 4 MiB, for each of 128 query blocks and 16 heads: 8 GiB. $Q$, $K$, $V$ and $O$ take 0.125 GiB together.
#
# The query blocks of a head run at about the same time. **Predict** what DRAM moved.

# %%
my_dram = {"naive": None, "kernel": None}     # GiB

# %%
counters = load_results("counters_h100")
recorded = {row["implementation"]: row["dram_read"] + row["dram_written"] for row in counters["rows"] if row["N"] == 16384}
dram = {"naive": recorded["naive_forward"] / 2**30, "kernel": recorded["fa2_triton_forward"] / 2**30}
_ = compare("DRAM bytes at N = 16384", my_dram, dram, "GiB")
figures.model_vs_counters(counters)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $S$ does not fit into L2, so all of its crossings reach DRAM, as the model says. A head's $K$ and $V$ fit: one query block brings $K_j$ and $V_j$ into L2, the others find them there. So $Q$, $K$, $V$ and $O$ cross DRAM once. (A part of $O$ was still in L2 at the end and is not counted.)
#
# Naive attention's line "L2" lies above its model. The model lets $QK^\top$ and $PV$ read each input once, but a real product works in tiles and reads a row again for every tile. L2 answers those loads.
#
# </details>
#
# **Takeaway.** The model counts what programs ask for. The caches decide how much of it reaches DRAM.
#
# *End of sitting 3.*
#
# ## An open question
#
# Our count lets $QK^\top$ read each input once. With square tiles in $M$ elements a product moves about $2N^2d/\sqrt{M}$ (chapter 04, `cost.block_matmul`). Is there then still a height below which FA2 loses?
#
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Theorem 2 and Proposition 3, appendix C · Saha and Ye 2024, [The I/O Complexity of Attention](https://arxiv.org/abs/2402.07443) · CUDA C++ Programming Guide, compute capabilities (shared memory of a block) · [Nsight Compute](https://docs.nvidia.com/nsight-compute/) for the counters
#
# **Next:** [08 · The backward pass](08_backward.ipynb) does to the gradients what chapters 05 and 06 did to the output.
