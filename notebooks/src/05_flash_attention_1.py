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
# **You will be able to** write the inner step of FlashAttention-1; count the bytes it moves; choose tiles that fit the SRAM; read the paper's algorithm line by line; and explain why its dropout mask is never stored.
#
# **You need** chapters 03 (online softmax) and 04 (tiles) · **core:** sitting 1, 45 minutes, and sitting 2, 10 minutes · **further:** sittings 3 and 4, 20 and 25 minutes · **runs on** CPU
#
# Chapter 03 gave a softmax that can be corrected later. Chapter 04 gave the tiles. Together they are FlashAttention, by [Dao et al. 2022](https://arxiv.org/abs/2205.14135).

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab_course import figures, sweeps
from flashlab_course.check import check
from flashlab_course.lesson import compare, replay, reveal, yours
from flashlab_course.player import play, record
from flashlab.memory import KiB, Memory, SRAMOverflow, kernel, load, store, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab.rungs import fa1
from flashlab.rungs.fa1 import fa1_forward
from flashlab.tiles import hidden, paper_tile_sizes

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## Sitting 1 (core) · Key blocks outside, query blocks inside
#
# ### Two loops
#
# FA1 loads one block of keys and values and keeps it on chip while every query block passes by. Then it takes the next key block. Between two visits of a query block, its running state waits in HBM: the output $O_i$, the sum $l_i$ and the maximum $m_i$.
#
# Here are the loops, with the package's step; you will write your own.

# %%
def FA1(Q, K, V, B):
    O, l, m = torch.zeros_like(Q), torch.zeros(len(Q)), torch.full((len(Q),), -inf)
    with kernel("fa1_forward", Q=Q, K=K, V=V, O=O, l=l, m=m):
        for cols in tiles(len(K), B):                                          # j, outer
            K_j, V_j = load(K, cols), load(V, cols)
            for rows in tiles(len(Q), B):                                      # i, inner
                Q_i, O_i, l_i, m_i = (load(T, rows) for T in (Q, O, l, m))
                O_i, l_i, m_i = fa1._step(Q_i, K_j, V_j, O_i, l_i, m_i, scale=0.5)
                store(l, rows, l_i), store(m, rows, m_i)
                store(O, rows, O_i)
    return O

# %% [markdown]
# Take four key blocks and four query blocks. **Predict** how often each number of $Q$, $K$ and $O$ is read from HBM.

# %%
my_reads = {"Q": None, "K": None, "O": None}

# %% [markdown]
# **Run and compare.** `Memory` writes a log of every load and store.

# %%
q, k, v = (torch.randn(16, 4) for _ in range(3))
with Memory() as mem:
    o = FA1(q, k, v, B=4)
print(f"error: {max_error(o, attention(q, k, v)[0]):.1e}")
reads = {name: sum(event.read for event in mem.log if event.name == name and event.kind == "load") // q.nbytes for name in "QKO"}
said = compare("times each number is read by FA1", my_reads, reads)

# %% [markdown]
# Watch it. Which tensors stay on chip, and which come and go?

# %%
play(record(FA1, q, k, v, B=4, sram_bytes=1024))

# %% [markdown]
# ### One step: key block $j$ meets query block $i$
#
# Now write the step. It gets $Q_i$, $K_j$, $V_j$ and the running state. After every step this must hold, for the keys seen so far:
#
# | | |
# |---|---|
# | $m_i$ | the largest score of each row |
# | $l_i$ | the sum of $e^{\text{score} - m_i}$ |
# | $O_i$ | the finished attention over these keys, already divided by $l_i$ |
#
# One row as an example: two keys with scores 1 and 3 and values 10 and 20, then two with scores 2 and 5 and values 30 and 40.
#
# | after | $m$ | $l$ | weighted sum of values | $O$ |
# |---|---|---|---|---|
# | keys 0, 1 | 3 | 1.135 | 21.35 | 18.81 |
# | the same, in the new unit | 5 | 0.154 | 2.89 | 18.81 |
# | keys 0 to 3 | 5 | 1.203 | 44.38 | 36.88 |
#
# There are two options. `hidden` is True where a query must not see a key. A row may have seen no key yet: its $O_i$ is 0, its $m_i$ is $-\infty$, and $-\infty - (-\infty)$ is NaN. Dropout, in training, sets finished weights to 0 where `keep` is False, and divides the others by $1 - p$ to keep the mean. $l_i$ is the sum without dropout.
#
# **Your turn** ([exercises/ex05_fa1_inner_loop.py](../exercises/ex05_fa1_inner_loop.py), 35 minutes). Begin without the options: the checker tells you which cases pass. It needs them all.

# %%
check("ex05_fa1_inner_loop")

# %%
reveal("ex05_fa1_inner_loop")

# %% [markdown]
# `replay` runs your step inside FA1's loops, and opens at the first visit that makes a wrong number.

# %%
replay("ex05_fa1_inner_loop")

# %% [markdown]
# After each key block, $O$ is the correct answer to a smaller question: attention to the keys seen so far. Check it.

# %%
Q, K, V = (torch.randn(n, 16) for n in (32, 48, 48))
for seen in (16, 32, 48):
    O, L = fa1_forward(Q, K[:seen], V[:seen], B_r=16, B_c=16)
    print(f"after {seen} of 48 keys, against attention to these {seen}: {judge(O, L, Q, K[:seen], V[:seen])}")

# %% [markdown]
# **Takeaway.** Undo the last division, convert the old sums into the new unit, add the new keys, divide again.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · The bytes
#
# | | moved between HBM and chip |
# |---|---|
# | naive attention | $Q$, $K$, $V$ and $O$ once; $S$, scaled $S$ and $P$ each stored and loaded |
# | FA1, once | $K$, $V$ |
# | FA1, for each key block | $Q$ loaded; $O$, $l$, $m$ loaded and stored |
#
# Take $N = 1024$, $d = 64$ and tiles of $64 \times 64$: 16 key blocks. An $N \times N$ matrix is as large as 16 of $N \times d$. **Predict** FA1's bytes as a share of naive attention's.

# %%
my_share = None     # 1 for equally many

# %% [markdown]
# **Run and compare.** Marks are counted, dashed lines are formulas. Once your step passes, its bytes are in the picture, too.

# %%
Ns = [128, 256, 512, 1024]
points = sweeps.over_N(Ns, rungs=["naive_forward", "fa1_forward"]) + yours.over_N(Ns)
last = {point["rung"]: point["measured"] for point in points if point["N"] == 1024}
said = compare("bytes of FA1 as a share of naive attention's", my_share, last["fa1_forward"] / last["naive_forward"])
figures.traffic_against(points)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Count matrices of $N \times d$. For each of 16 key blocks, FA1 loads $Q$, loads $O$ and stores $O$: 48. Everything else adds 4. Naive attention moves $4 + 6 \cdot 16 = 100$.
#
# </details>
#
# **Takeaway.** The traffic still grows with $N^2$, but divided by $B_c$: a $B_c$ twice as large halves it.
#
# *End of sitting 2 and of the core. You can go on to [chapter 06](06_flash_attention_2.ipynb).*
#
# ## Sitting 3 (further) · How large may a tile be? (20 minutes)
#
# Fewer bytes move if $B_c$ is as large as the SRAM allows. Let $M$ be the number of elements that fit. The paper's rule is $B_c = \lceil M/4d \rceil$ and $B_r = \min(\lceil M/4d \rceil, d)$. $K_j$ and $V_j$ then take a quarter of $M$ each, and the minimum keeps $S_{ij}$ to about a quarter.
#
# **Your turn** ([exercises/ex05_tile_sizes.py](../exercises/ex05_tile_sizes.py), 15 minutes). Write this rule, and a second one that leaves more room.

# %%
check("ex05_tile_sizes")

# %%
reveal("ex05_tile_sizes")

# %% [markdown]
# Does the paper's rule fit our step? In 192 KiB of float32, with $d = 64$, it gives $B_r = 64$ and $B_c = 192$. Eager PyTorch makes a new tile for every result, so the chip holds $K_j$, $V_j$, $Q_i$ and $O_i$, and up to three tiles of the size of $S_{ij}$. **Predict** how many KiB that is.

# %%
my_KiB = None

# %% [markdown]
# **Run and compare.** The error names what filled the SRAM. Then try tiles of your own.

# %%
def on_chip(B_r, B_c, d=64):
    strips = {"K_j": B_c * d, "V_j": B_c * d, "Q_i": B_r * d, "O_i": B_r * d}
    return {name: 4 * n for name, n in (strips | dict.fromkeys(("S_ij", "scaled S_ij", "P_ij"), B_r * B_c)).items()}


mine = 64, 64                                             # change me: B_r and B_c
B_r, B_c = paper_tile_sizes(192 * KiB, d=64)
Q, K, V = (torch.randn(512, 64) for _ in range(3))
try:
    with Memory(sram_bytes=192 * KiB):
        fa1_forward(Q, K, V, B_r=B_r, B_c=B_c)
except SRAMOverflow as error:
    print(error)
stacks = {f"{whose} {r} × {c}": on_chip(r, c) for whose, r, c in (("The paper's", B_r, B_c), ("your", *mine))}
needed = {name: sum(stack.values()) // KiB for name, stack in stacks.items()}
said = compare("KiB on chip with the paper's tiles", my_KiB, next(iter(needed.values())), "KiB")
figures.bars(stacks, "; ".join(f"{name} tiles take {n} KiB" for name, n in needed.items()) + "; the SRAM has 192 KiB",
             "Modelled: tiles of FA1's inner step in the order in which they are made.", "bytes on chip", byte=True,
             walls={"the model's SRAM": 192 * KiB})

# %% [markdown]
# A kernel that works in place needs one tile of scores. Our step needs three, so our default is the second rule of the exercise.
#
# **Takeaway.** Tile sizes are a budget: strips of $d$ columns, squares of scores, and whatever is being computed at the moment.
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · The paper, masks and dropout (25 minutes)
#
# ### The paper's algorithm, line by line
#
# Algorithm 2 of the paper (appendix B.3), with mask, scale $\tau$ and dropout, beside the lines of [flashlab/rungs/fa1.py](../flashlab/rungs/fa1.py):
#
# | line | Algorithm 2 | the rung | |
# |---|---|---|---|
# | 1 | save the generator's state $\mathcal R$ | `draw = keep_masks(dropout_p, rng_state, Q.device, acc)` | the caller saves it |
# | 2 | $B_c = \lceil M/4d \rceil$, $B_r = \min(\lceil M/4d \rceil, d)$ | `shift, scale, acc, B_r, B_c = prepare(` | smaller tiles, as above |
# | 3 | $O = 0$, $\ell = 0$, $m = -\infty$ in HBM | `O = torch.zeros(`, `l = torch.zeros(`, `m = torch.full(` | |
# | 4–6 | cut $Q$, $K$, $V$, $O$, $\ell$, $m$; for each $j$ | `for cols in tiles(K.shape[0], B_c):` | |
# | 7 | load $K_j$, $V_j$ | `K_j = load(K, cols)`, `V_j = load(V, cols)` | |
# | 8 | for each $i$ | `for rows in tiles(Q.shape[0], B_r):` | |
# | 9 | load $Q_i$, $O_i$, $\ell_i$, $m_i$ | `Q_i = load(Q, rows)`, `O_i = load(O, rows)`, `l_i, m_i = load(l, rows), load(m, rows)` | |
# | 10 | $S_{ij} = \tau Q_i K_j^\top$ | `S_ij = Q_i @ K_j.T * scale` | |
# | 11 | $S_{ij} = \mathrm{MASK}(S_{ij})$ | `S_ij = S_ij.masked_fill(hidden_ij, -inf)` | |
# | 12 | $\tilde m = \mathrm{rowmax}(S_{ij})$, $\tilde P = e^{S_{ij} - \tilde m}$, $\tilde\ell = \mathrm{rowsum}(\tilde P)$ | `P_ij = torch.exp(S_ij - m_safe[:, None])` | **a** |
# | 13 | $m^{new} = \max(m_i, \tilde m)$, $\ell^{new} = e^{m_i - m^{new}} \ell_i + e^{\tilde m - m^{new}} \tilde\ell$ | `m_new = torch.maximum(m_i, S_ij.amax(-1))`, `l_new = alpha * l_i + P_ij.sum(-1)` | **a** |
# | 14 | drop entries of $\tilde P$ | `P_ij = P_ij * keep_ij / (1 - dropout_p)` | both after the sum |
# | 15 | $O_i \leftarrow \mathrm{diag}(\ell^{new})^{-1}(\mathrm{diag}(\ell_i)\, e^{m_i - m^{new}} O_i + e^{\tilde m - m^{new}} \tilde P V_j)$ | `O_i = ((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]` | **a** |
# | 16 | write $\ell_i$, $m_i$ | `store(l, rows, l_i)`, `store(m, rows, m_i)` | |
# | 19 | return $O$, $\ell$, $m$, $\mathcal R$ | `return (O, l, m) if return_lm else (O, L)` | **b** |
#
# **a**: the paper subtracts the maximum of the tile and rescales twice; we subtract the running maximum and rescale once. **b**: every rung returns $(O, L)$, so ours also stores $L_i = m_i + \ln l_i$ after the last key block.
#
# ### Whose maximum?
#
# Difference **a** matters as soon as there is a mask. Here are lines 10 to 15 as printed, with the tile's maximum.

# %%
def published_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden):
    S_ij = (Q_i @ K_j.T * scale).masked_fill(hidden, -inf)                 # lines 10, 11
    m_tile = S_ij.amax(-1)                                                 # line 12
    P_ij = torch.exp(S_ij - m_tile[:, None])
    m_new = torch.maximum(m_i, m_tile)                                     # line 13
    alpha, beta = torch.exp(m_i - m_new), torch.exp(m_tile - m_new)
    l_new = alpha * l_i + beta * P_ij.sum(-1)
    O_i = ((l_i * alpha)[:, None] * O_i + beta[:, None] * (P_ij @ V_j)) / l_new[:, None]    # line 15
    return O_i, l_new, m_new

# %% [markdown]
# Take causal attention over 64 tokens, with tiles of $16 \times 16$. Every tile is visited. Above the diagonal all keys are hidden. **Predict** how many of the 64 rows come out as NaN.

# %%
my_nan_rows = None

# %% [markdown]
# **Run and compare.** The picture shows where NaN is born and that it stays.

# %%
q, k, v = (torch.randn(64, 16) for _ in range(3))
O, l, m = torch.zeros(64, 16), torch.zeros(64), torch.full((64,), -inf)
after = torch.empty(4, 4)                                 # by query block and key block: -1 for NaN
for j, cols in enumerate(tiles(64, 16)):
    for i, rows in enumerate(tiles(64, 16)):
        O[rows], l[rows], m[rows] = published_step(q[rows], k[cols], v[cols], O[rows], l[rows], m[rows], 0.25,
                                                   hidden(rows, cols, 0, "cpu"))
        after[i, j] = -1 if O[rows].isnan().any() else 0.3
nan_rows = O.isnan().any(-1).sum().item()
error = max_error(O[48:], attention(q, k, v, causal=True)[0][48:])
print(f"rows with NaN: {nan_rows} of 64; the other rows are off by {error:.1e}")
said = compare("rows of NaN by the printed lines", my_nan_rows, nan_rows)
words = [["" if after[i, j] > 0 else "born" if after[i, j - 1] > 0 else "stays" for j in range(4)] for i in range(4)]
figures.matrices({"": (after, words)}, f"NaN reaches {nan_rows} rows, and no later key block repairs them",
                 "Measured here: rows of O after each visit, orange where they are NaN.", "key block, from left to right", "query block")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Above the diagonal $\tilde m = -\infty$, and $-\infty - (-\infty)$ is NaN. The last query block meets no such tile. The running maximum is finite once a key was visible; before that, `m_safe` puts 0 in its place.
#
# </details>
#
# Our rung even handles rows that see no key at all:

# %%
Q, K, V = torch.randn(100, 64), torch.randn(70, 64), torch.randn(70, 64)
O, L = fa1_forward(Q, K, V, causal=True, B_r=32, B_c=16)
print(judge(O, L, Q, K, V, causal=True))
print("rows that see no key:", int((L == -inf).sum()), "of 100; the largest |O| among them is", O[:30].abs().max().item())

# %% [markdown]
# **Takeaway.** A row that never sees a key ends with $O = 0$ and $L = -\infty$, not NaN.
#
# ### Dropout without a mask
#
# Training drops entries of $P$ at random, and the backward pass has to drop the same ones. Storing the mask would take $N^2$ entries. So line 1 saves the random generator's state: from it, the same numbers are drawn again.

# %%
Q, K, V = (torch.randn(1024, 64) for _ in range(3))
state = torch.Generator().manual_seed(7).get_state()
dropped, L_dropped = fa1_forward(Q, K, V, B_r=64, B_c=64, dropout_p=0.1, rng_state=state)
again, _ = fa1_forward(Q, K, V, B_r=64, B_c=64, dropout_p=0.1, rng_state=state)
narrower, _ = fa1_forward(Q, K, V, B_r=64, B_c=32, dropout_p=0.1, rng_state=state)
print(f"state: {state.nbytes} bytes; a mask of bools for one head: {1024 * 1024} bytes")
print("same state, same tiles, same bits:        ", torch.equal(dropped, again))
print(f"same state, narrower key blocks:           {max_error(narrower, dropped):.0e} apart at most")
print(f"without dropout, narrower key blocks:       {max_error(*(fa1_forward(Q, K, V, B_r=64, B_c=n)[0] for n in (32, 64))):.0e} apart (rounding)")
print("L is that of the softmax without dropout: ", torch.allclose(L_dropped, fa1_forward(Q, K, V)[1]))

# %% [markdown]
# The draws come in the order of the tiles. So the same mask needs the same state *and* the same tile sizes. A GPU's generator has no such order: each draw is a function of a seed and a position (Salmon et al. 2011). Chapter 11 uses that.
#
# **Takeaway.** Recompute what is cheap to compute and large to store.
#
# ### An open question
#
# FA1's traffic depends on $B_c$ alone. So take $B_r = 1$: how large can $B_c$ get in 192 KiB, and how few bytes does `Memory` then count? What would be slow about it on a real GPU?

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao, Fu, Ermon, Rudra, Ré 2022, [FlashAttention](https://arxiv.org/abs/2205.14135): Algorithm 2 (appendix B.3), Theorem 2 and its proof (appendix C) · Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3 (SC11)
#
# **Next:** [06 · FlashAttention-2](06_flash_attention_2.ipynb) lets the loops trade places, and $O$, $l$, $m$ never leave the chip.
