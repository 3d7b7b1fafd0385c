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
# **You will be able to** multiply matrices tile by tile and predict the traffic from the tile size; compute $QK^\top$ and the product with $V$ without ever storing $S$; explain why a softmax for each tile gives a wrong answer; and repair it.
#
# **You need** chapter 03. · **100 minutes**, 50 of them for two exercises · **runs on** CPU or GPU
#
# Chapter 03 ended with attention that is exact, needs no $N \times N$ matrix, and reads each key far too often. The cure is to bring in blocks of rows and use each of them many times before it is dropped.

# %% [markdown]
# ## A product from tiles
#
# Cut $A$ ($8 \times 4$) into four tiles of $4 \times 2$, and $B$ ($4 \times 8$) into eight tiles of $2 \times 2$. A grid of tiles multiplies like a grid of numbers: $C_{11} = A_{11} B_{11} + A_{12} B_{21}$. **Predict** how many small products the whole $C$ takes.

# %%
my_products = None

# %% [markdown]
# A square in the picture is a tile. It marks those that make one tile of $C$; each pair with the same number is multiplied, and the products are added up. Change `tile` to see what another one needs.

# %%
from flashlab_course import figures  # flashlab first, then torch
import torch
from flashlab_course.lesson import compare, reveal

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
# Sizes rarely divide so well. One walk-through of FlashAttention sets the number of blocks to `N / B`, and loops over `range(N / B)`. This cell fails on purpose: first as printed, then with the obvious repair.

# %%
from flashlab.memory import tiles

N, B_r = 10, 4
try:
    range(N / B_r)
except TypeError as error:
    print("range(N / B):  ", error)
print("range(N // B): ", [(i * B_r, (i + 1) * B_r) for i in range(N // B_r)], "and rows 8 and 9 are never computed")
print("tiles(N, B):   ", [(part.start, part.stop) for part in tiles(N, B_r)])

# %% [markdown]
# The quiet repair is worse than the error. The number of blocks is $\lceil N / B \rceil$ and the last one is short: in this course a tile size always means "at most". **Your turn** ([exercises/ex04_block_matmul.py](../exercises/ex04_block_matmul.py), 25 minutes): the whole product by tiles, on modelled memory, with each byte counted, 16-bit inputs and sizes that no tile divides.

# %%
from flashlab_course.check import check

check("ex04_block_matmul")

# %%
reveal("ex04_block_matmul")

# %% [markdown]
# **Compare.** Here are the loops for the small example, without the memory: the tile's row in $C$, its column, and the shared dimension that is summed over. (They spoil the exercise above.) How many products were there?

# %%
C, products = torch.zeros(8, 8), 0
for rows in tiles(8, 4):
    for cols in tiles(8, 2):
        for inner in tiles(4, 2):
            C[rows, cols] += A[rows, inner] @ B[inner, cols]
            products += 1
print(f"right: {torch.equal(C, A @ B)}; {products} products")
said = compare("small products in all of C", my_products, products)

# %% [markdown]
# **Takeaway.** A matrix product is a sum over tiles, in any order, with tiles of any size.

# %% [markdown]
# ## Why tiles save traffic
#
# `block_matmul` does the same under `Memory`: for each small product it loads a tile of $A$ and one of $B$, and keeps the tile of $C$ on the chip. Take three $128 \times 128$ float32 matrices and square tiles of $C$. **Predict** the bytes read as a function of the tile's edge. (Hint: in how many products does a number of $A$ take part once it has come in?)

# %%
my_bytes = None     # a function of the edge, for example lambda edge: 4 * 128 * 128 * 2

# %% [markdown]
# **Run and compare.** Four edges, each run under the model, and the last one fails on purpose.

# %%
from flashlab import cost
from flashlab.memory import Memory, SRAMOverflow, format_bytes
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
        overflow = error
said = compare("bytes read by a product in tiles", my_bytes, formula, "bytes")
said.on(figures.curves({"read": counted}, f"Tiles 4 times as wide: {counted[16] // 2**10} KiB becomes {counted[64] // 2**10} KiB",
                       "Modelled: marks counted by flashlab.memory, dashed MNK/B_n + MNK/B_m. No mark: the tiles do not fit.",
                       "edge of the square tiles of C", "HBM bytes read", log="xy", byte="y", ticks=list(formula), dashed={"read": formula}))

# %% [markdown]
# A number of $A$ that has come in takes part in $B_n$ products, and one of $B$ in $B_m$: so $MNK/B_n + MNK/B_m$ elements are read. The arithmetic has not changed; each byte *read* does twice the work when the edge doubles. Why not make the tile as large as the matrix? The model says:

# %%
print(overflow)

# %% [markdown]
# The tile of $C$ is there, so is the product to be added, and no room is left for their sum. (The model's 192 KiB are an A100's L1 cache and shared memory, of which a block gets at most 163 KiB, 227 on an H100 or H200; a GPU would keep this sum in registers, 256 KiB for each multiprocessor, and run out of those instead.)
#
# **Takeaway.** Traffic falls with the tile's edge; the size of the fast memory says how far. That is the whole economy of FlashAttention.

# %% [markdown]
# ## The two products of attention
#
# Leave out the softmax for a moment: $O = (QK^\top)V$, with $Q$, $K$, $V$ of $8 \times 128$, cut into four blocks of two rows. $S_{ij} = Q_i K_j^\top$ is $(2 \times 128)(128 \times 2)$, so $2 \times 2$. The first picture has shown such a product; this is the second, $O = SV$: each block of $O$ is made from the tiles of $S$ to its left and the blocks of $V$ above it. Change `tile`.

# %%
figures.block_product(M=8, K=8, N=128, B_m=2, B_k=2, B_n=128, tile=(0, 0), names=("S", "V", "O"))

# %% [markdown]
# Block row $i$ of $O$ needs each tile of its row of $S$ once: $O_i = \sum_j S_{ij} V_j$. So a tile can be made, used, and forgotten. Here is $O_1$, the first two rows.

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
# **Find the bug.** Slides on FlashAttention go through $O_1$ step by step: $S_1 = Q_1 k_1^\top$ in step 1, and $S_2 = Q_2 k_2^\top$ in step 2. One letter of step 2 has the wrong index. **Predict** which one; the first row of $S$ comes from one block of $Q$.

# %%
my_wrong_letter = None     # "Q" or "k"

# %% [markdown]
# **Run and compare.** The first two steps of $O_1$ in three versions, against $S_{11} V_1 + S_{12} V_2$ cut from the full matrices.

# %%
Q_2, k_1, k_2, V_1, V_2 = Q[2:4], K[0:2], K[2:4], V[0:2], V[2:4]
truth = (Q @ K.T)[0:2, 0:4] @ V[0:4]
versions = {"as printed": Q_2 @ k_2.T, "Q": Q_1 @ k_2.T, "k": Q_2 @ k_1.T}
errors = {name: (Q_1 @ k_1.T @ V_1 + S_2 @ V_2 - truth).abs().max().item() for name, S_2 in versions.items()}
for name, error in errors.items():
    print(f"{name if name == 'as printed' else name + ' corrected':<12}: off by {error:.1e} (measured here)")
said = compare("letter with the wrong index", my_wrong_letter, min(errors, key=errors.get))

# %% [markdown]
# While one block of $O$ is being made, $Q_i$ stays and only the keys move on. With the loop over $i$ around it, this is `attention_without_softmax`. **Predict** the peak of HBM memory for 512 tokens and $d = 64$, in KiB ($Q$, $K$, $V$ are there before; $S$ would take 1024 KiB), and how many numbers of $Q$ one program, with 32 queries, reads.

# %%
my_peak, my_numbers_of_Q = None, None

# %% [markdown]
# **Run and compare.** The tiles are 32 rows high. Their scores exist on the chip only, for the time of one step of the inner loop.

# %%
from flashlab.rungs.block_matmul import attention_without_softmax

torch.manual_seed(0)
q, k, v = (torch.randn(512, 64) for _ in range(3))
with Memory() as mem:
    O = attention_without_softmax(q, k, v, B_r=32, B_c=32)
reads_of_Q = [event.read for event in mem.log if event.name == "Q"]
print("equal to (Q Kᵀ) V:", torch.allclose(O, (q @ k.T) @ v, atol=1e-2))
print(f"HBM peak {format_bytes(mem.hbm_peak)}: O alone takes {format_bytes(O.nbytes)} (modelled)")
said = compare("HBM peak without softmax", my_peak, mem.hbm_peak / 1024, "KiB")
said = compare("numbers of Q that one program reads", my_numbers_of_Q, reads_of_Q[0] // 4)

# %% [markdown]
# One program reads $B d = 2048$ numbers of $Q$ and writes as many of $O$, whatever $N$ is. (An estimate in circulation says $O(NB)$, which would be eight times as many here and grow with the text.) And without a softmax one would rather compute $Q(K^\top V)$, which needs no $S$ at all: that is linear attention. The softmax stands between the two products and forbids it.
#
# **Takeaway.** Both products of attention run tile by tile, and no score has to leave the chip. What remains is the softmax.

# %% [markdown]
# ## A softmax for each tile?
#
# A tile sees $B_c$ scores of a row, not all. The obvious try is to do what one can with them: $\mathrm{softmax}^*(S_{ij}) = e^{S_{ij} - \mathrm{rowmax}(S_{ij})}$, with the tile's own maximum. Then $O_i = \sum_j \mathrm{softmax}^*(S_{ij})\, V_j$, divided at the end by the sum of all weights. **Predict**: true outputs here are about 0.4 in size; how large is the largest error?

# %%
my_star_error = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose: 64 tokens, tiles of 16. `ones` in place of $V$ adds up the weights of each row.

# %%
from flashlab import oracle
from flashlab.rungs.block_matmul import softmax_star_attention

torch.manual_seed(0)
Q, K, V = torch.randn(64, 16) / 2, torch.randn(64, 16), torch.randn(64, 16)
truth, L = oracle.attention(Q, K, V, scale=1.0)
weights = softmax_star_attention(Q, K, torch.ones(64, 1), B_r=16, B_c=16)      # (64, 1)
wrong = softmax_star_attention(Q, K, V, B_r=16, B_c=16) / weights
error = (wrong - truth).abs().max()
print(f"measured here: largest error {error:.2f}, mean size of the truth {truth.abs().mean():.2f}")
said = compare("largest error of softmax tile by tile", my_star_error, error)

# %% [markdown]
# The largest error is several times a typical output. Look at a single query and its four tiles: the share of the weight that each tile should get, and the one that it gets.

# %%
s = (Q @ K.T)[5]                                       # the scores of query 5
true, star = torch.softmax(s, 0), torch.cat([torch.exp(tile - tile.amax()) for tile in s.split(16)])
shares = {name: [tile.sum().item() for tile in (100 * w / w.sum()).split(16)] for name, w in (("softmax", true), ("softmax*", star))}
figures.bars({f"tile {n}, {name}": share[n] for n in range(4) for name, share in shares.items()},
             "softmax* gives each tile a weight that its own maximum decides", "Measured here: one query, 64 keys, tiles of 16.",
             "% of the weight", worse=[f"tile {n}, softmax*" for n in range(4)])

# %% [markdown]
# In each tile the largest weight is 1 before the division, by construction: no tile knows how large its scores are beside those of the others. Weights of tile $j$ are counted in units of $e^{m_{ij}}$, and each tile has a unit of its own: dollars, cents and yen were added as if they were one currency. Multiply each tile by $e^{m_{ij} - m_i}$ and they are all in the unit of the row.

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
# Right, but it used `m`, the maximum of the whole row, before the first tile. That is a pass over the scores that we wanted to save. **Your turn** ([exercises/ex04_softmax_star.py](../exercises/ex04_softmax_star.py), 25 minutes): the file holds the wrong algorithm. Repair it, in one pass over the tiles. Chapter 03 knows how to do without `m`.

# %%
check("ex04_softmax_star")

# %%
reveal("ex04_softmax_star")

# %% [markdown]
# **Takeaway.** Tiles of one row may be added only in a common unit.

# %% [markdown]
# ## Two tiles by hand
#
# The same with numbers small enough to follow (it spoils the exercise above). One block of two queries, two tiles of two keys, `scale = 1`. $m$, $l$ and $O$ hold one entry, or one row, for each query. The last column of $V$ is all ones: it will show whether the weights sum to 1.

# %%
inf = float("inf")
Q_1 = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
K = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0], [1.0, 1.0]])
V = torch.tensor([[10.0, 0.0, 1.0], [0.0, 10.0, 1.0], [20.0, 0.0, 1.0], [0.0, 20.0, 1.0]])
K_1, K_2, V_1, V_2 = K[:2], K[2:], V[:2], V[2:]
print("S =\n", Q_1 @ K.T)

# %% [markdown]
# **Step 0.** No key seen: no weight, no output, and a maximum below any score. **Step 1, tile 1.** $m_1 = \max(\mathrm{rowmax}(S_{11}), m_0)$, and everything is counted in units of $e^{m_1}$. The old sums are multiplied by $e^{m_0 - m_1} = e^{-\infty} = 0$, which is just as well.

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
print("m_2", m_2, " alpha", alpha, " l_2", l_2)
said = compare("factor of the two rows in step 2", my_alpha, alpha.tolist())

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
# ## Two brackets
#
# $S_{ij} - m$ wants one $m$ for each row, hence `m[:, None]`. Leave the brackets out, once with a tile of $2 \times 2$ and once with a tile of $2 \times 3$. **Predict** what happens in each case: `"right"`, `"wrong"` or `"error"`.

# %%
my_outcome = {"2 x 2": None, "2 x 3": None}

# %% [markdown]
# **Run and compare.** This cell fails on purpose.

# %%
outcome, m = {}, torch.tensor([1.0, 2.0])                 # a maximum for each of two queries
for keys in (2, 3):
    S = torch.randn(2, keys)
    try:
        same = torch.equal(S - m, S - m[:, None])
        outcome[f"2 x {keys}"] = "right" if same else "wrong"
    except RuntimeError as error:
        outcome[f"2 x {keys}"] = "error"
        print(f"tile of 2 x {keys}: {error}")
print(outcome)
said = compare("what a missing [:, None] does", my_outcome, outcome)

# %% [markdown]
# PyTorch lines $m$ up with the columns, and wherever $B_r = B_c$ the wrong broadcast fits without a word. The same holds for `alpha * O_i` where $B_r = d_v$.
#
# **Takeaway.** Test with $B_r \ne B_c \ne d_v$: square tiles hide transposed mistakes.

# %% [markdown]
# ## All tiles
#
# Now with any number of tiles: the five lines from above in two loops, `i` over query blocks outside and `j` over key blocks inside. You have written the inner one; with `load` and `store` in the right places it is a rung of the ladder, and chapter 06 will ask you for it. Here we only run it, and look at what it moves. (The picture calls it FA2, after its rung.)

# %%
from flashlab.rungs.fa2 import fa2_forward as attention_by_tiles

Q, K, V = (torch.randn(64, 16) for _ in range(3))
with Memory() as mem:
    attention_by_tiles(Q, K, V, B_r=16, B_c=16)
figures.tile_traversal({"fa2_forward": mem.log}, 64, 64)

# %% [markdown]
# The same, smaller and line by line. Watch $Q_i$, $O_i$, $l_i$ and $m_i$: how long does each stay on the chip? (The lines are those that chapter 06 asks for. To write them unaided, watch the tiles only.)

# %%
from flashlab_course.player import play, record
from flashlab.rungs.fa2 import fa2_forward

q, k, v = (torch.randn(16, 4) for _ in range(3))
play(record(fa2_forward, q, k, v, B_r=4, B_c=4, sram_bytes=1024))

# %% [markdown]
# Try it where it hurts: lengths that no tile size divides, more keys than queries, $d_v \ne d$, $B_r \ne B_c$, and scores sixty times as large as usual. Add a case of your own.

# %%
torch.manual_seed(0)
for N_q, N_k, d, d_v, large in [(64, 64, 16, 16, 1), (97, 200, 59, 16, 1), (113, 128, 64, 80, 60), (1, 7, 16, 24, 60)]:
    q, k, v = large * torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    verdict = oracle.judge(*attention_by_tiles(q, k, v, B_r=32, B_c=48), q, k, v)
    print(f"N_q = {N_q:>3}, N_k = {N_k:>3}, d = {d}, d_v = {d_v}, scores x {large:>2}: {verdict}")

# %% [markdown]
# It holds. And the bytes? At 256 tokens and $d = 64$, chapter 03's rung needs 16 times the traffic of naive attention (18 times what it needs without its logsumexp). **Predict**: tiles of 64 rows need how many times the traffic of naive attention?

# %%
my_ratio = None

# %% [markdown]
# **Run and compare.** The bar in the middle comes from the formula of chapter 03, the other two from `Memory`.

# %%
from flashlab.rungs.naive import naive_forward

Q, K, V = (torch.randn(256, 64) for _ in range(3))
with Memory() as naive:
    naive_forward(Q, K, V)
with Memory() as by_tiles:
    attention_by_tiles(Q, K, V, B_r=64, B_c=64)
one_key = cost.online_softmax_forward(256, 256, 64)
ratio = (by_tiles.read + by_tiles.written) / (naive.read + naive.written)
said = compare("traffic by tiles against naive", my_ratio, ratio, "times")
ways = {"naive": naive, "one key at a time": one_key, "by tiles": by_tiles}
figures.bars({name: {"read": way.read, "written": way.written} for name, way in ways.items()},
             f"By tiles, {ratio:.0%} of naive attention's bytes", "Modelled: counted by flashlab.memory, one key at a time by its formula.",
             "HBM traffic", byte=True)

# %% [markdown]
# A third of naive attention's bytes, and not for want of a fair rival. Naive attention here also computes $L$, one crossing of $S$ in seven, which plain attention does not need. And these are bytes that programs ask for: on a GPU the L2 cache would serve many of the re-reads.

# %%
logsumexp = next(event for event in naive.log if event.name == "logsumexp")
without = naive.read + naive.written - logsumexp.read - logsumexp.written
print(f"by tiles: {ratio:.2f} times naive, {(by_tiles.read + by_tiles.written) / without:.2f} times naive without logsumexp (modelled)")
print(f"peak in HBM: naive {format_bytes(naive.hbm_peak)}, by tiles {format_bytes(by_tiles.hbm_peak)}; "
      f"in SRAM, by tiles: {format_bytes(by_tiles.sram_peak)} of {format_bytes(by_tiles.sram_bytes)} (modelled)")

# %% [markdown]
# Less memory than naive attention *and* less traffic, with the same arithmetic and the same answer. This is FlashAttention, and its heart is the loop you repaired. What is left is to do it well: which loop goes outside, how large the tiles can be, which tiles a causal mask makes superfluous.
#
# **Takeaway.** Tiles, an online softmax, one division: exact attention whose scores never leave the chip.

# %% [markdown]
# ## An open question
#
# The traversal above keeps the queries and lets the keys pass. Turn the loops around: keep a block of keys, and let all queries pass. What would now have to go to HBM and come back between two visits of the same query block, and how many bytes is that? Is there a shape of $Q$ and $K$ for which this order is the better one? Try it with `kernel`, `load`, `store` and `Memory`. There is no check for this one; the next chapter does it.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1 · Milakov and Gimelshein 2018, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867) · Katharopoulos et al. 2020, [Transformers are RNNs](https://arxiv.org/abs/2006.16236), for linear attention
#
# **Next:** [05 · FlashAttention-1](05_flash_attention_1.ipynb) puts the keys into the outer loop, and lets the SRAM size choose the tiles.
