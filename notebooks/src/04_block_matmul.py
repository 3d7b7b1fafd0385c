# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 · Block matmul
#
# **You will be able to** multiply matrices tile by tile and predict the traffic from the tile size; compute both products of attention without ever storing $S$; explain why a softmax for each tile gives a wrong answer; and repair it.
#
# **You need** chapter 03 · **core:** sitting 1, 45 minutes, and sitting 2, 10 minutes · **further:** sitting 3, 35 minutes · **runs on** CPU or GPU
#
# Chapter 03 ended with attention that is exact and needs no $N \times N$ matrix, but reads each key once for every query. A tile of many queries reads it once for all of them.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost, oracle
from flashlab_course import figures
from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal
from flashlab_course.player import play, record
from flashlab_course.player.softmax import play_softmax
from flashlab.memory import Memory, SRAMOverflow, kernel, load, store, tiles
from flashlab.rungs.block_matmul import softmax_star_attention
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.online_softmax import merge

# %% [markdown]
# ## Sitting 1 (core) · Two products, and a softmax between them
#
# ### A product from tiles
#
# Cut $A$ ($8 \times 4$) into four tiles of $4 \times 2$, and $B$ ($4 \times 8$) into eight tiles of $2 \times 2$. A grid of tiles multiplies like a grid of numbers: $C_{00} = A_{00} B_{00} + A_{01} B_{10}$.
#
# Each square in the picture is a tile. Tiles of the same shade are multiplied, and the products are added up to one tile of $C$. Change `tile` to see which tiles another one needs.

# %%
figures.block_product(M=8, K=4, N=8, B_m=4, B_k=2, B_n=2, tile=(0, 0))      # change me

# %% [markdown]
# Here is one tile by hand: rows 0 to 3 and columns 0 to 1 of $C$. It is the sum of two products, $(4 \times 2)(2 \times 2)$ each.

# %%
A = torch.arange(32.0).reshape(8, 4)
B = torch.arange(32.0).flip(0).reshape(4, 8)
A_00, A_01 = A[0:4, 0:2], A[0:4, 2:4]      # (4, 2) each
B_00, B_10 = B[0:2, 0:2], B[2:4, 0:2]      # (2, 2) each
C_00 = A_00 @ B_00 + A_01 @ B_10           # (4, 2)
print(C_00)
print("the same tile of A @ B:", torch.equal(C_00, (A @ B)[0:4, 0:2]))

# %% [markdown]
# Sizes rarely divide so well. `tiles(10, 4)` gives the slices 0:4, 4:8 and 8:10. In this course a tile size always means "at most", and the last tile may be short.
#
# **Takeaway.** A tile of a product is a sum of products of tiles. They may be added in any order, and tiles may have any size.
#
# ### Why tiles save traffic
#
# `block_matmul` does this on modelled memory. For each small product it loads a tile of $A$ and one of $B$. The tile of $C$ stays on chip until it is finished. So a number of $A$, once it is loaded, is used for every column of $C$'s tile, and a number of $B$ for every row.
#
# Multiply two $128 \times 128$ matrices, with square tiles of $C$. **Predict**: with tiles of $64 \times 64$ in place of $16 \times 16$, how many times fewer bytes are read?

# %%
my_times_fewer = None

# %% [markdown]
# **Run and compare.** Four sizes of tile. The last one fails on purpose.

# %%
from flashlab.rungs.block_matmul import block_matmul

torch.manual_seed(0)
A, B, formula, counted = torch.randn(128, 128), torch.randn(128, 128), {}, {}
for edge in [16, 32, 64, 128]:
    formula[edge] = cost.block_matmul(128, 128, 128, B_m=edge, B_n=edge).read
    try:
        with Memory() as mem:
            block_matmul(A, B, B_m=edge, B_n=edge, B_k=16)
        counted[edge] = mem.read
    except SRAMOverflow as error:
        print(error)
said = compare("times fewer bytes with tiles of 64", my_times_fewer, counted[16] / counted[64])
figures.curves({"read": counted}, f"Tiles 4 times as wide: {counted[16] // 2**10} KiB becomes {counted[64] // 2**10} KiB",
               "Modelled: marks counted by flashlab.memory, dashed MNK/B_n + MNK/B_m. No mark: the tiles do not fit.",
               "edge of the square tiles of C", "HBM bytes read", log="xy", byte="y", ticks=list(formula), dashed={"read": formula})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $A$ is read once for each of the $N/B_n$ columns of tiles, and $B$ once for each of the $M/B_m$ rows. That makes $MNK/B_n + MNK/B_m$ elements: half as many when the edge doubles.
#
# </details>
#
# Why not take one tile as large as $C$? The error message says why: the tile of $C$ is on chip, and so is the product to be added. Their sum has no room.
#
# **Takeaway.** Traffic falls with the edge of the tile, and the size of the fast memory limits the edge. FlashAttention saves its bytes in this way.
#
# ### The two products of attention
#
# Leave out the softmax for a moment: $O = (QK^\top)V$. Block $i$ of $O$ needs each tile of its row of $S$ once: $O_i = \sum_j S_{ij} V_j$. So a tile of $S$ can be made, used, and overwritten by the next.
#
# `kernel` names the tensors in HBM, `load` brings a tile on chip, and `store` writes one back. Watch it line by line. Which tensors stay on chip, and which come and go? How many bytes of $S$ reach HBM?

# %%
def without_softmax(Q, K, V, B):
    O = torch.empty_like(Q)
    with kernel("without_softmax", Q=Q, K=K, V=V, O=O):
        for rows in tiles(len(Q), B):                    # i
            Q_i, O_i = load(Q, rows), torch.zeros(B, 4)  # (B, d) each
            for cols in tiles(len(K), B):                # j
                K_j, V_j = load(K, cols), load(V, cols)  # (B, d) each
                S_ij = Q_i @ K_j.T                       # (B, B)
                O_i = O_i + S_ij @ V_j                   # (B, d)
            store(O, rows, O_i)
    return O

q, k, v = (torch.randn(N, 4) for N in (8, 12, 12))
print("the same as (Q Kᵀ) V:", torch.allclose(without_softmax(q, k, v, 4), (q @ k.T) @ v, atol=1e-4))
told = {"Q_i, O_i =": "A block of queries comes on chip. Its output begins at 0.",
        "K_j, V_j =": "The next keys and values come on chip.",
        "S_ij = Q_i": "A tile of scores is made on chip.",
        "O_i = O_i": "The scores are used. They stay on chip until the next tile takes their place.",
        "store(O": "Only the finished output goes back to HBM."}
play(record(without_softmax, q, k, v, B=4, sram_bytes=1024, say=told))

# %% [markdown]
# <details><summary><b>Why?</b> (after watching)</summary>
#
# $Q_i$ and $O_i$ stay while all keys pass. $K_j$, $V_j$ and $S_{ij}$ are replaced at each step. No byte of $S$ reaches HBM: `store` only ever takes $O_i$.
#
# </details>
#
# **Takeaway.** Both products of attention run tile by tile, and no score has to leave the chip. What remains is the softmax.
#
# ### A softmax for each tile?
#
# A tile sees only $B_c$ scores of a row. Suppose that each tile uses its own maximum: $\mathrm{softmax}^*(S_{ij}) = e^{S_{ij} - \mathrm{rowmax}(S_{ij})}$. Then $O_i = \sum_j \mathrm{softmax}^*(S_{ij})\, V_j$, divided at the end by the sum of all weights.
#
# A row has two tiles of one score each: 0 and 10. **Predict** the share of the weight that the score 0 gets.

# %%
my_star_share = None     # 1 for all of it

# %% [markdown]
# **Run and compare.** The second half goes wrong on purpose: 64 tokens, tiles of 16. `ones` in place of $V$ adds up the weights of each row.

# %%
each = softmax_star_attention(torch.ones(1, 1), torch.tensor([[0.0], [10.0]]), torch.eye(2), B_r=1, B_c=1)     # (1, 2)
said = compare("share of the score 0 under softmax*", my_star_share, each[0, 0] / each.sum())

torch.manual_seed(0)
Q, K, V = torch.randn(64, 16) / 2, torch.randn(64, 16), torch.randn(64, 16)
truth, L = oracle.attention(Q, K, V, scale=1.0)
weights = softmax_star_attention(Q, K, torch.ones(64, 1), B_r=16, B_c=16)      # (64, 1)
wrong = softmax_star_attention(Q, K, V, B_r=16, B_c=16) / weights
print(f"largest error {(wrong - truth).abs().max():.2f}, mean size of the truth {truth.abs().mean():.2f} (measured here)")

# %% [markdown]
# The error is several times a typical output. Look at one query and its four tiles: the share of the weight that each tile should get, and the share that it gets.

# %%
s = (Q @ K.T)[5]                                       # the scores of query 5
true, star = torch.softmax(s, 0), torch.cat([torch.exp(tile - tile.amax()) for tile in s.split(16)])
shares = {name: [tile.sum().item() for tile in (100 * w / w.sum()).split(16)] for name, w in (("softmax", true), ("softmax*", star))}
figures.bars({f"tile {n}, {name}": share[n] for n in range(4) for name, share in shares.items()},
             f"Tile 3 has the largest score. Its share is {shares['softmax'][3]:.0f}%, and softmax* gives it {shares['softmax*'][3]:.0f}%",
             "Measured here: one query, 64 keys, tiles of 16.", "% of the weight", worse=[f"tile {n}, softmax*" for n in range(4)])

# %% [markdown]
# The largest weight of every tile is 1: no tile knows how large its scores are beside those of the others. Tile $j$ counts its weights in units of $e^{m_{ij}}$, and each tile has a unit of its own. We added dollars, cents and yen as if they were one currency. Multiply each tile by $e^{m_{ij} - m_i}$, and all of them are in the unit of the row.

# %%
m = s.max()
o, l = torch.zeros(16), 0.0
for s_j, V_j in zip(s.split(16), V.split(16), strict=True):
    p_star = torch.exp(s_j - s_j.max())                # softmax*, in the tile's unit
    factor = torch.exp(s_j.max() - m)                  # … into the row's
    o, l = o + factor * (p_star @ V_j), l + factor * p_star.sum()
    print(f"this tile's maximum {s_j.max():5.2f}, factor {factor:.3f}")
print(f"query 5, converted: largest error {(o / l - truth[5]).abs().max():.1e} (measured here)")

# %% [markdown]
# This is right. But `m`, the maximum of the whole row, must be known before the first tile, so the scores are made twice. Chapter 03 showed how to make them once.
#
# **Your turn** ([exercises/ex04_softmax_star.py](../exercises/ex04_softmax_star.py), 25 minutes). The file shows softmax* as pseudocode. Write the repaired version, in one pass over the tiles.

# %%
check("ex04_softmax_star")

# %%
reveal("ex04_softmax_star")

# %% [markdown]
# **Takeaway.** Tiles of one row may be added only in a common unit.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · Two tiles by hand
#
# *This shows a solution of the exercise.* One block of two queries meets two tiles of two keys; the scale is 1. $m$, $l$ and $O$ hold one entry, or one row, for each query. The last column of $V$ is all ones: it will show whether the weights sum to 1.

# %%
inf = float("inf")
Q_1 = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
K = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0], [1.0, 1.0]])
V = torch.tensor([[10.0, 0.0, 1.0], [0.0, 10.0, 1.0], [20.0, 0.0, 1.0], [0.0, 20.0, 1.0]])
K_1, K_2, V_1, V_2 = K[:2], K[2:], V[:2], V[2:]
print("S =\n", Q_1 @ K.T)

# %% [markdown]
# **Step 0.** No key was seen: no weight, no output, and a maximum below any score.
#
# **Step 1, tile 1.** $m_1 = \max(m_0, \mathrm{rowmax}(S_{11}))$, and from now on everything is counted in units of $e^{m_1}$. The old sums are multiplied by $\alpha = e^{m_0 - m_1} = e^{-\infty} = 0$. They are 0 anyway.

# %%
m_0, l_0, O_0 = torch.full((2,), -inf), torch.zeros(2), torch.zeros(2, 3)      # (B_r,) (B_r,) (B_r, d_v)
S_11 = Q_1 @ K_1.T                                     # (B_r, B_c)
m_1 = torch.maximum(m_0, S_11.amax(-1))                # (B_r,)
alpha = torch.exp(m_0 - m_1)                           # (B_r,)
P_11 = torch.exp(S_11 - m_1[:, None])                  # (B_r, B_c)
l_1 = alpha * l_0 + P_11.sum(-1)                       # (B_r,)
O_1 = alpha[:, None] * O_0 + P_11 @ V_1                # (B_r, d_v)
print("m_1", m_1, " alpha", alpha, " l_1", l_1, "\nO_1 =\n", O_1)

# %% [markdown]
# **Step 2, tile 2.** The same lines. But $l_1$ and $O_1$ are in units of $e^{m_1}$, and have to be converted into units of $e^{m_2}$: $l_2 = \alpha\, l_1 + \mathrm{rowsum}(P_{12})$ and $O_2 = \mathrm{diag}(\alpha)\, O_1 + P_{12} V_2$, with $\alpha = e^{m_1 - m_2}$.
#
# **Predict** $\alpha$ for the two rows. You have $m_1$, and the scores of both tiles.

# %%
my_alpha = [None, None]

# %% [markdown]
# **Run and compare.** `diag(a) @ O` multiplies row $r$ of $O$ by $a_r$. `a[:, None] * O` does the same without making a matrix.

# %%
S_12 = Q_1 @ K_2.T                                     # (B_r, B_c)
m_2 = torch.maximum(m_1, S_12.amax(-1))                # (B_r,)
alpha_2 = torch.exp(m_1 - m_2)                         # (B_r,)
P_12 = torch.exp(S_12 - m_2[:, None])                  # (B_r, B_c)
l_2 = alpha_2 * l_1 + P_12.sum(-1)                     # (B_r,)
O_2 = alpha_2[:, None] * O_1 + P_12 @ V_2              # (B_r, d_v)
assert torch.allclose(O_2, torch.diag(alpha_2) @ O_1 + P_12 @ V_2)
print("m_2", m_2, " alpha", alpha_2, " l_2", l_2)
said = compare("factor of the two rows in step 2", my_alpha, alpha_2.tolist())

# %% [markdown]
# **The last step** comes after the loop: one division, $O = \mathrm{diag}(l_2)^{-1} O_2$, and $L = m_2 + \log l_2$.

# %%
O, L = O_2 / l_2[:, None], m_2 + torch.log(l_2)
print("O =\n", O)
print(oracle.judge(O, L, Q_1, K, V, scale=1.0))

# %% [markdown]
# The result is exact, though neither step knew the whole row. Watch one query and the first column of $V$.

# %%
query = 0     # change me: 1 is the other query
play_softmax(scores=(Q_1 @ K.T)[query], values=V[:, 0], tile=2)

# %% [markdown]
# This is the recurrence of chapter 03 with tiles in place of single keys. It is also chapter 03's `merge`: what softmax* makes of tile 2 is a state $(O, m, l)$ in the tile's own unit.

# %%
m_star = S_12.amax(-1)                                 # (B_r,)
P_star = torch.exp(S_12 - m_star[:, None])             # (B_r, B_c)   softmax* of tile 2
O_merged, m_merged, l_merged = merge((O_1, m_1, l_1), (P_star @ V_2, m_star, P_star.sum(-1)))
print("merge gives the same O, m, l:",
      torch.allclose(O_merged, O_2), torch.equal(m_merged, m_2), torch.allclose(l_merged, l_2))

# %% [markdown]
# So softmax* was not wrong in itself. It only forgot to keep its unit, $m$.
#
# **Takeaway.** Keep $m$, $l$ and $O$ for each row. When a tile raises the maximum, convert $l$ and $O$ with $\alpha$. Divide at the end.
#
# *End of sitting 2 and of the core. You can go on to [chapter 05](05_flash_attention_1.ipynb).*
#
# ## Sitting 3 (further) · A product of your own, a trap, and the bytes
#
# ### A product of your own
#
# **Your turn** ([exercises/ex04_block_matmul.py](../exercises/ex04_block_matmul.py), 25 minutes). Write the whole product by tiles, on modelled memory. Every byte is counted; inputs may be 16-bit, and the tiles need not divide the sizes.

# %%
check("ex04_block_matmul")

# %%
reveal("ex04_block_matmul")

# %% [markdown]
# ### Two brackets
#
# $S_{ij} - m$ subtracts one maximum from each row, hence `m[:, None]`. Leave out the brackets, once with a tile of $2 \times 2$ and once with a tile of $2 \times 3$. PyTorch then lines $m$ up with the columns. **Predict** what happens in each case: `"right"`, `"wrong"` or `"error"`.

# %%
my_outcome = {"2 x 2": None, "2 x 3": None}

# %% [markdown]
# **Run and compare.** This cell goes wrong on purpose.

# %%
outcome, m = {}, torch.tensor([1.0, 2.0])              # a maximum for each of two queries
for keys in (2, 3):
    S = torch.randn(2, keys)
    try:
        same = torch.equal(S - m, S - m[:, None])
        outcome[f"2 x {keys}"] = "right" if same else "wrong"
    except RuntimeError as error:
        outcome[f"2 x {keys}"] = "error"
        print(f"tile of 2 x {keys}: {error}")
said = compare("what a missing [:, None] does", my_outcome, outcome)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Two maxima fit two columns, so a square tile gives wrong numbers without an error.
#
# </details>
#
# **Takeaway.** Test with $B_r \ne B_c \ne d_v$.
#
# ### All tiles, and their bytes
#
# Put query blocks in the outer loop and key blocks in the inner one: that is a rung of the ladder, `fa2_forward`, which you will write in chapter 06. Try difficult inputs: lengths that no tile divides, more keys than queries, $d_v \ne d$, and scores sixty times as large as usual. Add a case of your own.

# %%
torch.manual_seed(0)
for N_q, N_k, d, d_v, large in [(64, 64, 16, 16, 1), (97, 200, 59, 16, 1), (113, 128, 64, 80, 60), (1, 7, 16, 24, 60)]:
    q, k, v = large * torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    verdict = oracle.judge(*fa2_forward(q, k, v, B_r=32, B_c=48), q, k, v)
    print(f"N_q = {N_q:>3}, N_k = {N_k:>3}, d = {d}, d_v = {d_v}, scores x {large:>2}: {verdict}")

# %% [markdown]
# And the bytes, for 256 tokens, $d = 64$ and query blocks of 64 rows?
#
# | | moved between HBM and chip |
# |---|---|
# | naive attention | $Q$, $K$, $V$ and $O$ once; $S$, scaled $S$ and $P$ each stored and loaded |
# | by tiles | $Q$ and $O$ once; $K$ and $V$ once for each query block |
#
# An $N \times N$ matrix is as large as four $N \times d$ matrices here. **Predict** the bytes by tiles as a share of naive attention's.

# %%
my_share_of_naive = None     # 1 for equally many

# %% [markdown]
# **Run and compare.**

# %%
Q, K, V = (torch.randn(256, 64) for _ in range(3))
with Memory() as naive:
    naive_forward(Q, K, V)
with Memory() as by_tiles:
    _, L = fa2_forward(Q, K, V, B_r=64, B_c=64)
share = (by_tiles.read + by_tiles.written - L.nbytes) / (naive.read + naive.written)
said = compare("bytes by tiles as a share of naive attention's", my_share_of_naive, share)
one_key = cost.online_softmax_forward(256, 256, 64).traffic
figures.bars({name: {"read": way.read, "written": way.written} for name, way in {"naive": naive, "by tiles": by_tiles}.items()},
             f"By tiles, {share:.0%} of naive attention's bytes; one key at a time, {one_key / (naive.read + naive.written):.0f} times as many",
             "Modelled: counted by flashlab.memory, one key at a time by its formula.", "HBM traffic", byte=True)

# %% [markdown]
# **Takeaway.** Tiles, an online softmax, one division: exact attention whose scores never leave the chip. This is FlashAttention.
#
# ### An open question
#
# The queries stay here, and the keys pass by. Swap the loops: keep a block of keys, and let all queries pass. What has to go to HBM and come back between two visits of the same query block, and how many bytes is that? For which shapes of $Q$ and $K$ is this order better?

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1 · Milakov and Gimelshein 2018, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867)
#
# **Next:** [05 · FlashAttention-1](05_flash_attention_1.ipynb) puts the keys into the outer loop, and lets the SRAM size choose the tiles.
