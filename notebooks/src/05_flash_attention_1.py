# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 · FlashAttention-1
#
# **You will be able to** write the forward pass of FlashAttention-1: key blocks outside, query blocks inside; choose tiles that fit the SRAM; and explain why its dropout mask is never stored.
#
# **You need** chapters 03 (online softmax) and 04 (tiles). · **40 minutes** · **runs on** CPU
#
# Chapter 03 gave the softmax that can be corrected later. Chapter 04 gave the tiles. Put together they are Algorithm 1 of [Dao et al. 2022](https://arxiv.org/abs/2205.14135).

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost, figures
from flashlab.rungs.fa1 import fa1_forward
from flashlab.tiles import paper_tile_sizes
from flashlab.memory import KiB, Memory, SRAMOverflow, kernel, load, store, tiles
from flashlab.rungs.naive import naive_forward
from flashlab.oracle import attention, judge, max_error

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## One step: key block $j$ meets query block $i$
#
# Between steps three things live in HBM for every query: the running output $O$, the sum $l$ and the maximum $m$. Start with 8 queries, 12 keys and tiles of 4: nothing seen yet.

# %%
N_q, N_k, d, B_r, B_c = 8, 12, 4, 4, 4
Q, K, V = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d)
O = torch.zeros(N_q, d)               # the running output, normalised at every step
l = torch.zeros(N_q)                  # sum of exp(score - m)
m = torch.full((N_q,), -inf)          # -inf: below any score

# %% [markdown]
# A step loads a query tile and its three running values, computes the tile of scores, and finds the new maximum. `alpha` changes the old sum's unit from $e^{m_{old}}$ to $e^{m_{new}}$.

# %%
rows, cols, scale = slice(0, B_r), slice(0, B_c), d**-0.5
S_ij = Q[rows] @ K[cols].T * scale                     # (B_r, B_c)
m_new = torch.maximum(m[rows], S_ij.amax(-1))          # (B_r,)
alpha = torch.exp(m[rows] - m_new)                     # (B_r,)  0 the first time
P_ij = torch.exp(S_ij - m_new[:, None])                # (B_r, B_c)
l_new = alpha * l[rows] + P_ij.sum(-1)                 # (B_r,)
print("alpha:", alpha.tolist())

# %% [markdown]
# $O_i$ in HBM is divided by the old $l_i$. FlashAttention-1 multiplies it back, changes the unit, adds the new tile, and divides by the new $l_i$. After one key tile it is the exact attention over those four keys.

# %%
O_i = ((alpha * l[rows])[:, None] * O[rows] + P_ij @ V[cols]) / l_new[:, None]    # (B_r, d)
truth, _ = attention(Q[rows], K[cols], V[cols])
print("after one key block, error against attention over these 4 keys:", f"{max_error(O_i, truth):.1e}")

# %% [markdown]
# ## Both loops
#
# The same lines in two loops, `j` outside and `i` inside. The key tile is taken once and stays; every query tile passes by and returns to HBM a little further on.

# %%
for cols in tiles(N_k, B_c):                                           # j, outer
    for rows in tiles(N_q, B_r):                                       # i, inner
        S_ij = Q[rows] @ K[cols].T * scale
        m_new = torch.maximum(m[rows], S_ij.amax(-1))
        alpha = torch.exp(m[rows] - m_new)
        P_ij = torch.exp(S_ij - m_new[:, None])
        l_new = alpha * l[rows] + P_ij.sum(-1)
        O[rows] = ((alpha * l[rows])[:, None] * O[rows] + P_ij @ V[cols]) / l_new[:, None]
        l[rows], m[rows] = l_new, m_new
print(judge(O, m + l.log(), Q, K, V))

# %% [markdown]
# **Takeaway.** `O`, `l` and `m` are correct for all keys seen so far, after every single step: attention has become a running computation.
#
# The package's `fa1_forward` is these lines on modelled memory, plus causal mask, dropout, and rows that see no key. Its inner step, as the checker, the tests and the plots use it:

# %%
import inspect

from flashlab.rungs import fa1

print(inspect.getsource(fa1._step))

# %% [markdown]
# ## Who moves when
#
# Run it under `Memory`, which writes a log of every load and store, and replay the log: the order in which tiles of $S$ are visited, and what crosses HBM at each step.

# %%
Q, K, V = (torch.randn(64, 16) for _ in range(3))
with Memory() as mem:
    fa1_forward(Q, K, V, B_r=16, B_c=16)
figures.tile_traversal({"fa1_forward": mem.log}, 64, 64)

# %% [markdown]
# **Takeaway.** $K$ and $V$ cross HBM once. $Q$ and the running $O$ cross it once per key block, $O$ in both directions.
#
# ## How large may a tile be?
#
# The paper sets $B_c = \lceil M/4d \rceil$ and $B_r = \min(B_c, d)$, where $M$ is the SRAM in elements. **Predict**: an A100's 192 KiB, float32, $d = 64$. Which $B_c$? And will it run?

# %%
my_B_c, my_will_it_run = None, None     # a number, True or False

# %%
B_r, B_c = paper_tile_sizes(192 * KiB, d=64)
print(f"the rule gives B_r = {B_r}, B_c = {B_c}; you said {my_B_c}")

# %% [markdown]
# **Run.** This cell fails on purpose: read which tile was one too many, and what else was on the chip at that moment.

# %%
Q, K, V = (torch.randn(512, 64) for _ in range(3))
try:
    with Memory(sram_bytes=192 * KiB):
        fa1_forward(Q, K, V, B_r=B_r, B_c=B_c)
except SRAMOverflow as error:
    print(error)
print("you said it would run:", my_will_it_run)

# %% [markdown]
# **Compare.** The rule counts only $Q_i$, $K_j$, $V_j$, $O_i$: 128 of the 192 KiB here. One $S_{ij}$ of 48 KiB still fits, a second tile of that size (the scaled scores, then $P_{ij}$) does not. The rule is about growth, $B \sim M/d$.
#
# The course's default leaves room: the largest multiple of 16 with $8 B \max(d, d_v) + 3 B^2 \le M$: four strips and as much again for results in the making; $S_{ij}$, $P_{ij}$ and one temporary.

# %%
with Memory(sram_bytes=192 * KiB) as mem:
    fa1_forward(Q[:192], K[:192], V[:192])
print(f"modelled: SRAM peak {mem.sram_peak / mem.sram_bytes:.0%} of the budget")
figures.sram_occupancy({"fa1_forward": mem})

# %% [markdown]
# **Takeaway.** Tile sizes are a budget question: four strips of $B \times d$, the square tiles of $S$ and $P$, and whatever is being computed at the moment.
#
# ## The bytes
#
# **Predict**: at $N = 1024$, $d = 64$, default tiles, what share of naive attention's HBM traffic does FA1 have?

# %%
my_share = None     # between 0 and 1

# %%
Q, K, V = (torch.randn(1024, 64) for _ in range(3))
with Memory() as naive:
    naive_forward(Q, K, V)
with Memory() as fa1_mem:
    O, L = fa1_forward(Q, K, V, B_r=64, B_c=64)
formula = cost.fa1_forward(1024, 1024, 64, B_r=64, B_c=64)
print(fa1_mem.table())
print("modelled = formula:", (fa1_mem.read, fa1_mem.written) == formula[:2])
print(f"modelled: {(fa1_mem.read + fa1_mem.written) / (naive.read + naive.written):.0%} of naive's traffic; you said {my_share}")

# %% [markdown]
# **Compare.** In elements FA1 reads $N_k(d + d_v) + T_c N_q (d + d_v + 2)$ and writes $(T_c + 1) N_q (d_v + 2) + N_q$. No term in $N_q N_k$ alone; but $T_c = \lceil N_k/B_c \rceil$ multiplies everything that belongs to the queries.
#
# **Takeaway.** The square is still there, divided by $B_c$: double the tile, halve the traffic.
#
# ## The published update meets a mask
#
# The paper first takes each tile's own maximum $\tilde m_{ij}$ and shifts by that. With a causal mask some tiles hide all keys from some rows. This cell fails on purpose.

# %%
S_ij = torch.tensor([[0.3, -inf, -inf], [-inf, -inf, -inf]])     # the second row sees nothing in this tile
m_tile = S_ij.amax(-1)                                           # (2,)
print("per-tile maximum:   ", torch.exp(S_ij - m_tile[:, None]).tolist())
m_new = torch.maximum(torch.tensor([0.1, 0.2]), m_tile)          # with the running maximum of earlier tiles
print("running maximum:    ", [[round(x, 3) for x in row] for row in torch.exp(S_ij - m_new[:, None]).tolist()])

# %% [markdown]
# $-\infty - (-\infty)$ is NaN, and a NaN in $P_{ij}$ poisons the row for good. The running maximum is finite as soon as one key was visible. Before that, `m_safe` puts 0 in its place, so that $e^{-\infty - 0} = 0$.

# %%
O, L = fa1_forward(Q[:100], K[:70], V[:70], causal=True, B_r=32, B_c=16)
print(judge(O, L, Q[:100], K[:70], V[:70], causal=True))
print("rows that see no key:", int((L == -inf).sum()), "of 100; their O is", O[:30].abs().max().item())

# %% [markdown]
# Our FA1, like the paper's algorithm, masks tiles and skips none; the authors' CUDA code starts each key block at the diagonal.
#
# **Takeaway.** A row that never sees a key ends with $O = 0$ and $L = -\infty$, not NaN.
#
# ## Dropout without a mask
#
# Training drops entries of $P$ at random, and the backward pass needs the same mask again: $N^2$ bits to store. FA1 stores the random generator's state instead. **Predict**: how many bytes is it?

# %%
my_state_bytes = None

# %%
state = torch.Generator().manual_seed(7).get_state()
dropped, L_dropped = fa1_forward(Q, K, V, B_r=64, B_c=64, dropout_p=0.1, rng_state=state)
again, _ = fa1_forward(Q, K, V, B_r=64, B_c=64, dropout_p=0.1, rng_state=state)
other, _ = fa1_forward(Q, K, V, B_r=64, B_c=32, dropout_p=0.1, rng_state=state)
print(f"state: {state.nbytes} bytes (you said {my_state_bytes}); a mask of bools for one head: {1024 * 1024} bytes")
print("same state, same tiles, same bits: ", torch.equal(dropped, again))
print("same state, other tiles, same bits:", torch.equal(dropped, other))
print("L is that of the softmax without dropout:", torch.allclose(L_dropped, fa1_forward(Q, K, V)[1]))

# %% [markdown]
# **Compare.** The draws come in the order of the tiles, `j` outside and `i` inside; other key blocks, another order. Replaying the mask therefore needs the state *and* the tile sizes. Kept entries are divided by $1 - p$, so that the expectation stays.
#
# **Takeaway.** Recomputing beats storing when the thing to recompute is cheap and the thing to store is $N^2$.
#
# ## Your turn
#
# Each exercise is a file with a stub. Fill it in and run its cell: the checker reloads the file and says what is wrong, or that it is right. It also takes a function you wrote here: `check("ex05_…", my_function)`.
#
# **Tile sizes** ([exercises/ex05_tile_sizes.py](../exercises/ex05_tile_sizes.py), 20 minutes). The published rule $B_c = \lceil M/4d \rceil$, $B_r = \min(B_c, d)$, and the one with room for $S_{ij}$ and $P_{ij}$.

# %%
from flashlab.check import check

check("ex05_tile_sizes")

# %% [markdown]
# **The inner step** ([exercises/ex05_fa1_inner_loop.py](../exercises/ex05_fa1_inner_loop.py), 35 minutes). $O_i \leftarrow (\alpha\, l_i\, O_i + D_{ij} V_j)/l_{new}$ with mask, dropout $D_{ij}$ of $P_{ij}$, and rows that have seen no key yet.

# %%
check("ex05_fa1_inner_loop")

# %% [markdown]
# ## Sources
#
# Dao, Fu, Ermon, Rudra, Ré 2022, [FlashAttention](https://arxiv.org/abs/2205.14135): Algorithms 1 and 2, and Theorem 2 on HBM accesses.
#
# **Next:** [06 · FlashAttention-2](06_flash_attention_2.ipynb) lets the loops trade places, and $O$, $l$, $m$ never leave the chip.
