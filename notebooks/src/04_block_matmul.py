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
# **You will be able to** multiply matrices tile by tile and predict the traffic from the tile size; compute $QK^\top$ and the product with $V$ without ever storing $S$; explain why a softmax for each tile gives a wrong answer; and repair it by hand, in five lines.
#
# **You need** chapter 03. · **45 minutes** · **runs on** CPU or GPU
#
# Chapter 03 ended with attention that is exact, needs no $N \times N$ matrix, and reads each key far too often. The cure is to bring in blocks of rows and use each of them many times before it is dropped.

# %% [markdown]
# ## A product from tiles
#
# Cut $A$ ($8 \times 4$) into four tiles of $4 \times 2$, and $B$ ($4 \times 8$) into eight tiles of $2 \times 2$. A grid of tiles multiplies like a grid of numbers: $C_{11} = A_{11} B_{11} + A_{12} B_{21}$. **Predict** how many small products the whole $C$ takes.

# %%
my_products = None

# %% [markdown]
# **Run.** First the picture. It marks the tiles that make one tile of $C$; each pair with the same number is multiplied, and the products are added up.

# %%
from flashlab import figures  # flashlab first, then torch
import torch

A = torch.arange(32.0).reshape(8, 4)
B = torch.arange(32.0).flip(0).reshape(4, 8)
figures.block_product(M=8, K=4, N=8, B_m=4, B_k=2, B_n=2, tile=(0, 0))

# %% [markdown]
# One tile by hand: rows 0 to 3 and columns 0 to 1 of $C$. Shapes first: $(4 \times 2)(2 \times 2)$ is $4 \times 2$, twice, and the two are added.

# %%
A_11, A_12 = A[0:4, 0:2], A[0:4, 2:4]      # (4, 2) each
B_11, B_21 = B[0:2, 0:2], B[2:4, 0:2]      # (2, 2) each
C_11 = A_11 @ B_11 + A_12 @ B_21           # (4, 2)
print(C_11)
print("the same tile of A @ B:", torch.equal(C_11, (A @ B)[0:4, 0:2]))

# %% [markdown]
# **Compare.** Now all tiles, with three loops: the tile's row in $C$, its column, and the shared dimension that is summed over. `tiles(N, B)` cuts $0 \dots N$ into slices.

# %%
from flashlab.memory import tiles

C, products = torch.zeros(8, 8), 0
for rows in tiles(8, 4):
    for cols in tiles(8, 2):
        for inner in tiles(4, 2):
            C[rows, cols] += A[rows, inner] @ B[inner, cols]
            products += 1
print(f"right: {torch.equal(C, A @ B)}; {products} products; your prediction: {my_products}")

# %% [markdown]
# Sizes rarely divide so well. A published walk-through of FlashAttention sets the number of blocks to `N / B`, and loops over `range(N / B)`. This cell fails on purpose: first as printed, then with the obvious repair.

# %%
N, B_r = 10, 4
try:
    range(N / B_r)
except TypeError as error:
    print("range(N / B):  ", error)
print("range(N // B): ", [(i * B_r, (i + 1) * B_r) for i in range(N // B_r)], "and rows 8 and 9 are never computed")
print("tiles(N, B):   ", [(part.start, part.stop) for part in tiles(N, B_r)])

# %% [markdown]
# The quiet repair is worse than the error. The number of blocks is $\lceil N / B \rceil$ and the last one is short: in this course a tile size always means "at most".
#
# **Takeaway.** A matrix product is a sum over tiles, in any order, with tiles of any size.

# %% [markdown]
# ## Why tiles save traffic
#
# `block_matmul` does the same under `Memory`: it loads a tile of $A$ and one of $B$ for each small product and keeps the tile of $C$ on the chip. **Predict**: when the edge of the tiles doubles, the bytes read are multiplied by what?

# %%
my_factor = None

# %% [markdown]
# **Run and compare.** Three $128 \times 128$ matrices and square tiles of $C$. A number of $A$ that has come in takes part in $B_n$ products, and one of $B$ in $B_m$: so $MNK/B_n + MNK/B_m$ elements are read.

# %%
from flashlab import cost
from flashlab.rungs.block_matmul import block_matmul
from flashlab.memory import Memory, format_bytes

torch.manual_seed(0)
A, B = torch.randn(128, 128), torch.randn(128, 128)
for edge in [8, 16, 32, 64]:
    with Memory() as mem:
        block_matmul(A, B, B_m=edge, B_n=edge, B_k=8)
    formula = cost.block_matmul(128, 128, 128, B_m=edge, B_n=edge)
    assert (mem.read, mem.written) == (formula.read, formula.written)
    print(f"tiles {edge:>2} x {edge:<2}: {format_bytes(mem.read):>9} read (modelled = formula), "
          f"{formula.matmul_flops / formula.traffic:4.1f} FLOPs a byte, SRAM peak {format_bytes(mem.sram_peak):>9}")
print("your prediction:", my_factor)

# %% [markdown]
# Half the bytes for twice the edge. The arithmetic has not changed, so each byte *read* does twice the work; the writes of $C$ stay. Why not make the tile as large as the matrix? This cell fails on purpose.

# %%
from flashlab.memory import SRAMOverflow

try:
    with Memory():
        block_matmul(A, B, B_m=128, B_n=128, B_k=8)
except SRAMOverflow as error:
    print(error)

# %% [markdown]
# The tile of $C$ is there, so is the product to be added, and the sum of both finds no place.
#
# **Takeaway.** Traffic falls with the tile's edge; the SRAM size says how far. That is the whole economy of FlashAttention.

# %% [markdown]
# ## The two products of attention
#
# Leave out the softmax for a moment: $O = (QK^\top)V$, with $Q$, $K$, $V$ of $8 \times 128$, cut into four blocks of two rows. $S_{ij} = Q_i K_j^\top$ is $(2 \times 128)(128 \times 2)$, so $2 \times 2$. Then $O_i = \sum_j S_{ij} V_j$: block row $i$ of $O$ needs each tile of its row of $S$ once.

# %%
torch.manual_seed(0)
Q, K, V = (torch.randn(8, 128) for _ in range(3))
Q_1 = Q[0:2]                                           # (2, 128)
O_1 = torch.zeros(2, 128)
for cols in tiles(8, 2):
    S_1j = Q_1 @ K[cols].T                             # (2, 2)     made …
    O_1 = O_1 + S_1j @ V[cols]                         # (2, 128)   … used, and forgotten
print("the first two rows of (Q Kᵀ) V:", torch.allclose(O_1, ((Q @ K.T) @ V)[0:2], rtol=1e-4))

# %% [markdown]
# With the loop over $i$ around it, this is `attention_without_softmax`. **Predict** the peak of HBM memory for 512 tokens and $d = 64$, in KiB. ($Q$, $K$, $V$ are there before; $S$ would take 1024 KiB.)

# %%
my_peak = None

# %% [markdown]
# **Run and compare.** The tiles are 32 rows high. Their scores exist on the chip only, for the time of one step of the inner loop.

# %%
from flashlab.rungs.block_matmul import attention_without_softmax

torch.manual_seed(0)
Q, K, V = (torch.randn(512, 64) for _ in range(3))
with Memory() as mem:
    O = attention_without_softmax(Q, K, V, B_r=32, B_c=32)
print("equal to (Q Kᵀ) V:", torch.allclose(O, (Q @ K.T) @ V, atol=1e-2))
print(f"HBM peak {format_bytes(mem.hbm_peak)}: O alone takes {format_bytes(O.nbytes)} (modelled); your prediction: {my_peak}")

# %% [markdown]
# (Without a softmax one would rather compute $Q(K^\top V)$, which needs no $S$ at all: that is linear attention. The softmax stands between the two products and forbids it.)
#
# **Takeaway.** Both products of attention run tile by tile, and no score has to leave the chip. What remains is the softmax.

# %% [markdown]
# ## A softmax for each tile?
#
# A tile sees $B_c$ scores of a row, not all. The obvious try is to do what one can with them: $\mathrm{softmax}^*(S_{ij}) = e^{S_{ij} - \mathrm{rowmax}(S_{ij})}$, with the tile's own maximum and no division yet. Then $O_i = \sum_j \mathrm{softmax}^*(S_{ij})\, V_j$. **Predict**: true outputs here are about 0.6 in size; how large is the largest error?

# %%
my_star_error = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose: 64 tokens, tiles of 16. If the idea worked, all dots would lie on the dashed line.

# %%
from flashlab import oracle
from flashlab.rungs.block_matmul import softmax_star_attention

torch.manual_seed(0)
Q, K, V = (torch.randn(64, 16) for _ in range(3))
truth, L = oracle.attention(Q, K, V, scale=1.0)
wrong = softmax_star_attention(Q, K, V, B_r=16, B_c=16)
print(f"measured here: largest error {(wrong - truth).abs().max():.2f}, mean size of the truth {truth.abs().mean():.2f}; "
      f"your prediction: {my_star_error}")
figures.softmax_star_error(wrong, truth)

# %% [markdown]
# Of course, you may say: it was never divided by the sum of the weights. So let us divide. This fails on purpose once more; `ones` in place of $V$ adds up the weights of each row.

# %%
weights = softmax_star_attention(Q, K, torch.ones(64, 1), B_r=16, B_c=16)      # (64, 1)
divided = wrong / weights
print(f"divided: largest error {(divided - truth).abs().max():.2f} (measured here)")
figures.softmax_star_error(divided, truth, divided=True)

# %% [markdown]
# Closer, still wrong: the cloud is flatter than the line, as each tile has the same say and outputs are drawn to the plain average. Look at a single query and its four tiles. In each tile the largest weight is 1, by construction; as parts of the whole row they are nothing of the kind.

# %%
s = (Q @ K.T)[5]                                       # the scores of query 5
m = s.max()
for n, cols in enumerate(tiles(64, 16), start=1):
    m_tile = s[cols].max()
    print(f"tile {n}: its maximum is {m_tile:5.2f}, its largest weight 1.000 in softmax*, "
          f"{torch.exp(m_tile - m):.3f} relative to the row's maximum {m:.2f}")

# %% [markdown]
# Weights of tile $j$ are counted in units of $e^{m_{ij}}$, and each tile has a unit of its own: dollars, cents and yen were added as if they were one currency. Multiply each tile by $e^{m_{ij} - m_i}$ and they are all in the unit of the row.

# %%
s_tiles = [s[cols] for cols in tiles(64, 16)]
o, l = torch.zeros(16), 0.0
for s_j, V_j in zip(s_tiles, V.split(16), strict=True):
    p_star = torch.exp(s_j - s_j.max())                # softmax*, in the tile's unit
    factor = torch.exp(s_j.max() - m)                  # … into the row's
    o, l = o + factor * (p_star @ V_j), l + factor * p_star.sum()
print(f"query 5, converted: largest error {(o / l - truth[5]).abs().max():.1e} (measured here)")

# %% [markdown]
# Right, but it used `m`, the maximum of the whole row, before the first tile. That is a pass over the scores that we wanted to save. Chapter 03 knows how to do without.
#
# **Takeaway.** Tiles of one row may be added only in a common unit.

# %% [markdown]
# ## Two tiles by hand
#
# One block of two queries, two tiles of two keys, small numbers, `scale = 1`. $m$, $l$ and $O$ now hold one entry, or one row, for each query. The maximum of row 0 grows in the second tile, from 1 to 3, that of row 1 does not. The last column of $V$ is all ones: it will show whether the weights sum to 1.

# %%
inf = float("inf")
Q_1 = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
K = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0], [1.0, 1.0]])
V = torch.tensor([[10.0, 0.0, 1.0], [0.0, 10.0, 1.0], [20.0, 0.0, 1.0], [0.0, 20.0, 1.0]])
K_1, K_2, V_1, V_2 = K[:2], K[2:], V[:2], V[2:]
print("S =\n", Q_1 @ K.T)

# %% [markdown]
# **Step 0.** No key seen: no weight, no output, and a maximum below any score.

# %%
m_0 = torch.full((2,), -inf)                           # (B_r,)
l_0 = torch.zeros(2)                                   # (B_r,)
O_0 = torch.zeros(2, 3)                                # (B_r, d_v)

# %% [markdown]
# **Step 1, tile 1.** $m_1 = \max(\mathrm{rowmax}(S_{11}), m_0)$, and everything is counted in units of $e^{m_1}$. The old sums are multiplied by $e^{m_0 - m_1} = e^{-\infty} = 0$, which is just as well.

# %%
S_11 = Q_1 @ K_1.T                                     # (B_r, B_c)
m_1 = torch.maximum(m_0, S_11.amax(-1))                # (B_r,)
alpha = torch.exp(m_0 - m_1)                           # (B_r,)
P_11 = torch.exp(S_11 - m_1[:, None])                  # (B_r, B_c)
l_1 = alpha * l_0 + P_11.sum(-1)                       # (B_r,)
O_1 = alpha[:, None] * O_0 + P_11 @ V_1                # (B_r, d_v)
print("m_1", m_1, " alpha", alpha, " l_1", l_1, "\nO_1 =\n", O_1)

# %% [markdown]
# **Step 2, tile 2.** The same lines. $l$ and $O$ of tile 1 are in units of $e^{m_1}$ and have to be converted: $l_2 = e^{m_1 - m_2}\, l_1 + \mathrm{rowsum}(P_{12})$ and $O_2 = \mathrm{diag}(e^{m_1 - m_2})\, O_1 + P_{12} V_2$. **Predict** `alpha` for the two rows, from the maxima 1 and 2 before and the scores above.

# %%
my_alpha = [None, None]

# %% [markdown]
# **Run and compare.** `diag(a) @ O` multiplies row $r$ of $O$ by $a_r$, and so does `a[:, None] * O`, without making a matrix.

# %%
S_12 = Q_1 @ K_2.T                                     # (B_r, B_c)
m_2 = torch.maximum(m_1, S_12.amax(-1))                # (B_r,)
alpha = torch.exp(m_1 - m_2)                           # (B_r,)
P_12 = torch.exp(S_12 - m_2[:, None])                  # (B_r, B_c)
l_2 = alpha * l_1 + P_12.sum(-1)                       # (B_r,)
O_2 = alpha[:, None] * O_1 + P_12 @ V_2                # (B_r, d_v)
assert torch.allclose(O_2, torch.diag(alpha) @ O_1 + P_12 @ V_2)
print("m_2", m_2, " alpha", alpha, " l_2", l_2, " your prediction:", my_alpha)

# %% [markdown]
# Row 0 was converted with $e^{1-3} = 0.135$, row 1 with $e^{2-2} = 1$. **The last step** comes after the loop: one division, $O = \mathrm{diag}(l_2)^{-1} O_2$, and $L = m_2 + \log l_2$.

# %%
O, L = O_2 / l_2[:, None], m_2 + torch.log(l_2)
print("O =\n", O)
print(oracle.judge(O, L, Q_1, K, V, scale=1.0))

# %% [markdown]
# Exact, from two tiles, and neither step knew the whole row. It is the recurrence of chapter 03 with tiles in place of single keys. It is also its `merge`: what softmax* makes of tile 2 is a state in its own right, in the tile's own unit.

# %%
from flashlab.rungs.online_softmax import merge

m_star = S_12.amax(-1)                                 # (B_r,)
P_star = torch.exp(S_12 - m_star[:, None])             # (B_r, B_c)   softmax* of tile 2
O_merged, m_merged, l_merged = merge((O_1, m_1, l_1), (P_star @ V_2, m_star, P_star.sum(-1)))
print("merge gives the same O, m, l:",
      torch.allclose(O_merged, O_2), torch.equal(m_merged, m_2), torch.allclose(l_merged, l_2))

# %% [markdown]
# So softmax* was not wrong in itself: it forgot to say in which unit it counts.
#
# **Takeaway.** Keep $m$, $l$ and $O$ for each row; when a tile raises the maximum, convert $l$ and $O$ with $\alpha$; divide at the end.

# %% [markdown]
# ## Two ways to get it wrong
#
# The first is one line of a well-known preprint. It prints the conversion with an inverse: $O_2 = \mathrm{diag}(e^{m_1 - m_2})^{-1}\, O_1 + P_{12} V_2$. **Predict** which of our two rows comes out right nevertheless.

# %%
my_lucky_row = None     # 0 or 1

# %% [markdown]
# **Run and compare.** This cell fails on purpose. The last line applies the same inverse in step 1, where $m_0 = -\infty$.

# %%
O_inverse = torch.diag(alpha).inverse() @ O_1 + P_12 @ V_2
print("with the inverse:\n", O_inverse / l_2[:, None])
print("errors of the rows:", (O_inverse / l_2[:, None] - O).abs().amax(-1), "your prediction:", my_lucky_row)
print("step 1 with the inverse:", (1 / torch.exp(m_0 - m_1))[:, None] * O_0 + P_11 @ V_1)

# %% [markdown]
# Row 1 is right: its maximum did not grow, and the inverse of 1 is 1. Row 0 was converted the wrong way round, so that its weights sum to 8.5. And the very first step divides by $e^{-\infty} = 0$: $\infty \cdot 0$ is not a number.
#
# **Takeaway.** A test in which the maximum never grows cannot see this error. Use more than one tile, and large scores.

# %% [markdown]
# The second is a matter of two brackets. $S_{ij} - m$ wants one $m$ for each row; without `[:, None]`, PyTorch lines $m$ up with the columns. This cell fails on purpose, once silently and once aloud.

# %%
print("as it should be:\n", S_12 - m_2[:, None])
print("without [:, None], tile 2 x 2:\n", S_12 - m_2)
try:
    Q_1 @ K[:3].T - m_2                                # a tile of 2 x 3
except RuntimeError as error:
    print("without [:, None], tile 2 x 3:", error)

# %% [markdown]
# Wherever $B_r = B_c$, the wrong broadcast fits. The same holds for `alpha * O_i` where $B_r = d_v$.
#
# **Takeaway.** Test with $B_r \ne B_c \ne d_v$: square tiles hide transposed mistakes.

# %% [markdown]
# ## Your turn: repair softmax*
#
# Before you read on, write the loop yourself; the next section shows one. The file holds the wrong algorithm and asks for the right one ([exercises/ex04_softmax_star.py](../exercises/ex04_softmax_star.py), 25 minutes): $m_{new} = \max(m, \mathrm{rowmax}\, S_j)$, $\alpha = e^{m - m_{new}}$, $l \leftarrow \alpha\, l + \mathrm{rowsum}\, P_j$, $O \leftarrow \alpha\, O + P_j V_j$.

# %%
from flashlab.check import check

check("ex04_softmax_star")

# %% [markdown]
# ## The whole of it
#
# Now with any number of tiles. One function adds a tile to the state of a query block: these are the five lines from above.

# %%
def add_tile(Q_i, K_j, V_j, O_i, m_i, l_i):
    S_ij = Q_i @ K_j.T * Q_i.shape[1] ** -0.5              # (B_r, B_c)
    m_new = torch.maximum(m_i, S_ij.amax(-1))              # (B_r,)
    alpha = torch.exp(m_i - m_new)                         # (B_r,)
    P_ij = torch.exp(S_ij - m_new[:, None])                # (B_r, B_c)
    return alpha[:, None] * O_i + P_ij @ V_j, m_new, alpha * l_i + P_ij.sum(-1)

# %% [markdown]
# And two loops around it. `load` and `store` stand exactly where data crosses between HBM and the chip; all between is SRAM. There is no mask here, so each row has seen a key after the first tile, and $m$ is finite.

# %%
from flashlab.memory import kernel, load, store

def attention_by_tiles(Q, K, V, B_r, B_c):
    O, L = torch.empty(len(Q), V.shape[1]), torch.empty(len(Q))
    with kernel("attention_by_tiles", Q=Q, K=K, V=V, O=O, L=L):
        for rows in tiles(len(Q), B_r):                    # i walks query blocks
            Q_i = load(Q, rows)
            O_i, m_i, l_i = torch.zeros(len(Q_i), V.shape[1]), torch.full((len(Q_i),), -inf), torch.zeros(len(Q_i))
            for cols in tiles(len(K), B_c):                # j walks key blocks
                O_i, m_i, l_i = add_tile(Q_i, load(K, cols), load(V, cols), O_i, m_i, l_i)
            store(O, rows, O_i / l_i[:, None])
            store(L, rows, m_i + torch.log(l_i))
    return O, L

# %% [markdown]
# Try it where it hurts: lengths that no tile size divides, more keys than queries, $d_v \ne d$, $B_r \ne B_c$, and scores sixty times as large as usual.

# %%
torch.manual_seed(0)
for N_q, N_k, d, d_v, large in [(64, 64, 16, 16, 1), (97, 200, 59, 16, 1), (113, 128, 64, 80, 60), (1, 7, 16, 24, 60)]:
    q, k, v = large * torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    verdict = oracle.judge(*attention_by_tiles(q, k, v, B_r=32, B_c=48), q, k, v)
    print(f"N_q = {N_q:>3}, N_k = {N_k:>3}, d = {d}, d_v = {d_v}, scores x {large:>2}: {verdict}")

# %% [markdown]
# It holds. And the bytes? At 256 tokens and $d = 64$, chapter 03 needed 16 times the traffic of naive attention. **Predict**: tiles of 64 rows need how many times the traffic of naive attention?

# %%
my_ratio = None

# %% [markdown]
# **Run and compare.** The line in the middle comes from the formula of chapter 03, the other two from `Memory`.

# %%
from flashlab.rungs.naive import naive_forward

Q, K, V = (torch.randn(256, 64) for _ in range(3))
with Memory() as naive:
    naive_forward(Q, K, V)
with Memory() as by_tiles:
    attention_by_tiles(Q, K, V, B_r=64, B_c=64)
one_key = cost.online_softmax_forward(256, 256, 64).traffic
base = naive.read + naive.written
for name, nbytes in [("naive", base), ("one key at a time", one_key), ("by tiles", by_tiles.read + by_tiles.written)]:
    print(f"{name:<18} {format_bytes(nbytes):>9} (modelled), {nbytes / base:5.2f} times naive")
print("your prediction:", my_ratio)
print(f"peak in HBM: naive {format_bytes(naive.hbm_peak)}, by tiles {format_bytes(by_tiles.hbm_peak)} (modelled)")
print(f"peak in SRAM by tiles: {format_bytes(by_tiles.sram_peak)} of {format_bytes(by_tiles.sram_bytes)} (modelled)")

# %% [markdown]
# Less memory than naive attention *and* less traffic, with the same arithmetic and the same answer. This is FlashAttention; you have built it. What is left is to do it well: which loop goes outside, how large the tiles can be, which tiles a causal mask makes superfluous.
#
# **Takeaway.** Tiles, an online softmax, one division: exact attention whose scores never leave the chip.

# %% [markdown]
# ## Your turn: a product by tiles
#
# On modelled memory, with each byte counted, 16-bit inputs and sizes that no tile divides ([exercises/ex04_block_matmul.py](../exercises/ex04_block_matmul.py), 25 minutes): $C_{\text{rows},\text{cols}} = \sum_{\text{inner}} A_{\text{rows},\text{inner}} B_{\text{inner},\text{cols}}$, one store for each tile of $C$.

# %%
check("ex04_block_matmul")

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1 · Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 1; its line 10 has the inverse, as was [reported](https://github.com/Dao-AILab/flash-attention/issues/991) · Milakov and Gimelshein 2018, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867)
#
# **Next:** [05 · FlashAttention-1](05_flash_attention_1.ipynb) puts the keys into the outer loop, and lets the SRAM size choose the tiles.
