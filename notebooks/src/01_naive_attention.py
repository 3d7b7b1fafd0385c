# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 01 · Naive attention
#
# **You will be able to** write attention from its formula, with any number of queries and keys, a causal mask, heads and a batch; and to say before you run it how many FLOPs it takes, how much memory, and how many bytes each operation moves.
#
# **You need** chapter 00. · **100 minutes**, 35 of them for two exercises · **runs on** CPU or GPU
#
# $$S = \frac{QK^\top}{\sqrt{d}} \qquad P = \mathrm{softmax}(S) \text{ row by row} \qquad O = PV$$
#
# FlashAttention computes exactly this. So this chapter first makes sure that we know what *this* is, corner cases included, and then counts what it costs.

# %% [markdown]
# ## One query
#
# A query scores every key with a dot product, softmax turns the scores into weights that sum to 1, and the output is the average of the values under those weights. Below, key 1 points where the query points, key 0 is at a right angle, key 2 points the other way. **Predict** the weight of key 1.

# %%
my_weight = None     # between 0 and 1

# %% [markdown]
# **Run and compare.** With $d = 2$ and three keys the whole computation fits on a line. The values are easy to recognize in the output: (10, 0), (0, 10) and (5, 5).

# %%
from flashlab_course.lesson import compare, reveal  # flashlab first, then torch
from flashlab.oracle import judge
import torch

q = torch.tensor([2.0, 0.0])                                   # (d,)
K = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, 0.0]])        # (N_k, d)
V = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])       # (N_k, d_v)
s = K @ q / 2**0.5                                             # (N_k,)
p = torch.softmax(s, dim=-1)                                   # (N_k,)
print(f"scores  {s.numpy().round(2)}\nweights {p.numpy().round(2)}\noutput  {(p @ V).numpy().round(2)}")
said = compare("weight of the key that points the same way", my_weight, p[1])

# %% [markdown]
# The output is almost the value of key 1.
#
# **Takeaway.** Attention is a weighted average of the rows of $V$; the weights say how well each key fits the query.
#
# ## Many queries
#
# Stack $N_q$ queries into a matrix and nothing else changes: row $i$ of $S$ and $P$ belongs to query $i$. The numbers of queries and keys may differ, and so may the widths of keys and values. $L$, the logsumexp of each row, is not part of attention: the backward pass will need it (chapter 08), and it costs one more reading of $S$. `judge` compares both with float64.

# %%
torch.manual_seed(0)
N_q, N_k, d, d_v = 5, 7, 16, 12
Q, K, V = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)

S = Q @ K.T * d**-0.5              # (N_q, N_k)
P = torch.softmax(S, dim=-1)       # (N_q, N_k)   each row sums to 1
O = P @ V                          # (N_q, d_v)
L = torch.logsumexp(S, dim=-1)     # (N_q,)       log of the sum that softmax divides by
print(judge(O, L, Q, K, V))

# %% [markdown]
# ## What the $\sqrt{d}$ is for
#
# If the entries of two vectors of length $d$ are independent, with mean 0 and variance 1, their dot product has variance $d$: at $d = 64$ scores spread eight times as far as at $d = 1$. **Predict**, for a query that looks at 512 such keys: how large is its largest weight, on average, with the division by $\sqrt{d}$ and without it?

# %%
my_largest = {"with": None, "without": None}     # between 1/512 and 1

# %% [markdown]
# **Run and compare.** Were all keys equally good, each would get 1/512, about 0.002. The more the scores spread, the more weight goes to the winner.

# %%
Q, K = torch.randn(512, 64), torch.randn(512, 64)
largest = {}
for name, scale in [("with", 64**-0.5), ("without", 1.0)]:
    S = Q @ K.T * scale
    largest[name] = torch.softmax(S, dim=-1).amax(-1).mean().item()
    print(f"{name:>7}: scores spread by {S.std():.2f}, largest weight {largest[name]:.3f} (measured here)")
said = compare("largest of 512 weights, the scale", my_largest, largest)

# %% [markdown]
# Why does that hurt? A model learns through gradients, and the derivative of a weight $p$ by its own score is $p\,(1 - p)$. **Predict**: without the scale, how many times smaller is this derivative for the median of all keys?

# %%
my_factor = None

# %% [markdown]
# **Run and compare.** The same scores, squeezed and stretched. Where softmax is nearly all or nothing it is **saturated**: a small change of a score changes nothing.

# %%
from flashlab_course import figures

S, mean, median = (Q @ K.T * 64**-0.5).double(), {}, {}
for spread in [0.25, 0.5, 1, 2, 4, 8, 16]:
    P = torch.softmax(spread * S, dim=-1)
    slope = P * (1 - P)
    mean[spread], median[spread] = slope.mean().item(), slope.median().item()
said = compare("loss of gradient without the scale", my_factor, median[1] / median[8])
figures.curves({"mean of all keys": mean, "median key": median},
               f"With scores 8 times as far apart, the median key's gradient is {median[1] / median[8] / 1e6:.0f} million times smaller",
               "Measured here: softmax's derivative, p (1 − p), for 512 queries and 512 keys.",
               "spread of a query's scores (standard deviation)", "∂ weight / ∂ its score", log="xy", ylim=(1e-12, 0.05))

# %% [markdown]
# A few leading keys still get gradients, which is why the mean falls slowly. All others get practically none: a key that is ignored stays ignored.
#
# **Takeaway.** Without the scale a few keys take most of the weight, at random, and the rest cannot learn. Where `scale` is left out in this course, it is $1/\sqrt{d}$.
#
# ## The same in einsum
#
# `einsum` names every axis: `i` walks queries, `j` keys, and a letter that is missing on the right is summed over. These two letters keep that meaning in the whole course, down to the loops of the GPU kernel.

# %%
N, d = 512, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
S = torch.einsum("id,jd->ij", Q, K) * d**-0.5
P = torch.softmax(S, dim=-1)
O = torch.einsum("ij,jd->id", P, V)
L = torch.logsumexp(S, dim=-1)
print(judge(O, L, Q, K, V))

# %% [markdown]
# Both sides of $P$ have length $N$ here, so it is tempting to write the last product as `einsum("nn,nd->nd", P, V)`. **Predict**: how many of $P$'s $512 \times 512 = 262144$ weights does that line read?

# %%
my_weights_read = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose. The first call gives a wrong answer without a word; the second asks only five of the queries, so that $P$ is no longer square.

# %%
O_nn = torch.einsum("nn,nd->nd", P, V)
print(f"shape {tuple(O_nn.shape)}, as it should be, and no error. But:\n{judge(O_nn, L, Q, K, V)}")
print(f"equal to P's diagonal, {len(P.diagonal())} weights, times V:", torch.equal(O_nn, P.diagonal()[:, None] * V))
said = compare("weights that einsum's nn reads", my_weights_read, len(P.diagonal()))
try:
    torch.einsum("nn,nd->nd", P[:5], V)      # 5 queries, 512 keys
except RuntimeError as error:
    print(error)

# %% [markdown]
# One letter is one index: with `nn` both axes step together, along the diagonal, and query $i$ averages value $i$ alone. Shape, dtype and finiteness were all fine. Only five queries instead of 512 made PyTorch complain.
#
# **Takeaway.** Test with $N_q \ne N_k$: a square test cannot tell two axes apart.

# %% [markdown]
# ## Who sees whom
#
# The transformer was built to translate. Its **encoder** reads the whole source text, and every token may look at every other. Its **decoder** writes the target text token by token, and looks at the source through **cross-attention**, with queries from one text and keys from the other. **Predict**: in how many of these three must some keys be hidden from some queries?

# %%
my_masked = None     # 0 to 3

# %%
said = compare("uses of attention that need a mask", my_masked, 1)
print("Only the decoder's own text is still being written: its queries must not see later keys.")

# %% [markdown]
# Encoders such as BERT, vision transformers and cross-attention run without a causal mask; language models such as GPT are decoders alone, and always causal. So a kernel needs both, with any $N_q$ and $N_k$.
#
# ## The causal mask
#
# A language model predicts the next token, so a query must not see keys that come after it. Those scores become $-\infty$ before the softmax, and $e^{-\infty}$ is exactly 0. Query $i$ and key $j$ are both token numbers here: hidden is $j > i$.

# %%
N = 6
Q, K, V = (torch.randn(N, 16) for _ in range(3))
token = torch.arange(N)
hidden = token[None, :] > token[:, None]                                   # (N, N)   True where j > i
S = (Q @ K.T * 16**-0.5).masked_fill(hidden, -float("inf"))
P = torch.softmax(S, dim=-1)
O_causal = P @ V
print(P[:5].numpy().round(2))                                              # of the sixth query nothing is hidden
print(judge(O_causal, torch.logsumexp(S, dim=-1), Q, K, V, causal=True))

# %% [markdown]
# Now the text grows. Keys and values of six tokens are there already, and queries come only for the last two of them. The scores are $2 \times 6$, and the mask has to be chosen. **Predict**: how many keys may the first of these two queries see?

# %%
my_keys_seen = None

# %% [markdown]
# **Run and compare.** Asking two queries or all six must make no difference to the two: the test of a mask is that their rows come out the same.

# %%
from flashlab.rungs.naive import naive_forward

O_last, L_last = naive_forward(Q[4:], K, V, causal=True)
print("equal to the last two rows of before:", torch.allclose(O_last, O_causal[4:]))
said = compare("keys that the first of the two last queries sees", my_keys_seen, 5)      # token 4 sees tokens 0 to 4
seen = torch.ones(6, 6).tril().bool()
figures.matrices({"6 queries, 6 keys": seen, "the last 2 queries": seen[4:]}, "The last query sees every key, however many queries ask",
                 "Definition: query i sees key j if j ≤ i + N_k − N_q. Blue: visible.", "key j", "query i")

# %% [markdown]
# The mask is aligned **bottom-right**: the last query sees every key. The other choice, top-left, counts queries from token 0. PyTorch's `scaled_dot_product_attention` takes that one. Here the last token asks alone, as in every step of text generation. This cell fails on purpose.

# %%
import torch.nn.functional as F

q, k, v = Q[5:][None, None], K[None, None], V[None, None]     # SDPA wants (B, H, N, d)
top_left = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]
bottom_right, _ = naive_forward(Q[5:], K, V, causal=True)
print("bottom-right, equal to the last row of before:", torch.allclose(bottom_right, O_causal[5:]))
print("top-left, equal to the last row of before:    ", torch.allclose(top_left, O_causal[5:]))
print("top-left, equal to the value of token 0:      ", torch.allclose(top_left, V[:1]))

# %% [markdown]
# With top-left alignment the newest token sees the first one and nothing else: the text would make no sense, and no error would say so.
#
# **Takeaway.** With bottom-right alignment the rows of a causal attention do not depend on which other queries are asked along with them.

# %% [markdown]
# ## A query that sees no key
#
# More queries than keys, and causal: four queries meet two keys, and the first two queries have nothing to look at. Their whole row of scores is $-\infty$. **Predict** how many of the $4 \times 16$ outputs are not a number.

# %%
my_nans = None

# %% [markdown]
# **Run and compare.** The plain formula fails on purpose, `naive_forward` does not. The mask is written out by hand, and $S$ is printed first, so that you see the empty rows.

# %%
Q, K, V = (torch.randn(n, 16) for n in (4, 2, 2))
hidden = torch.tensor([[True, True], [True, True], [False, True], [False, False]])
S = (Q @ K.T * 16**-0.5).masked_fill(hidden, -float("inf"))
O_formula = torch.softmax(S, dim=-1) @ V
O_rung, L_rung = naive_forward(Q, K, V, causal=True)
print(S.numpy().round(2))
print(f"the formula: {O_formula.isnan().sum()} NaN; naive_forward: {O_rung.isnan().sum()} NaN")
print(f"naive_forward: O starts {O_rung[0, :3].numpy()}, L is {L_rung.numpy().round(2)}")
said = compare("NaN where two queries see no key", my_nans, O_formula.isnan().sum())

# %% [markdown]
# Softmax divides 0 by 0 there. Every function of this course returns $O = 0$ and $L = -\infty$ instead: the sum over no values is 0, and the logarithm of a sum over no keys is $\log 0$. Chapter 03 shows that these two are exactly the neutral element when partial results are merged.
#
# **Takeaway.** An empty row is a legal input: $O = 0$, $L = -\infty$, never NaN.
#
# ## Exercise: attention
#
# **Attention** ([exercises/ex01_attention.py](../exercises/ex01_attention.py), 20 minutes). One head, causal or not, any $N_q$ and $N_k$, empty rows included. Fill in the stub, save, and run this cell. The checker also takes a function that you wrote in a cell: `check("ex01_attention", my_function)`.

# %%
from flashlab_course.check import check

check("ex01_attention")

# %%
reveal("ex01_attention")

# %% [markdown]
# ## Heads and batch
#
# A model runs attention for $H$ heads of $B$ texts. `einsum` takes two more letters, which occur on both sides and are therefore not summed: no head ever looks at another one.

# %%
B, H, N, d = 2, 3, 50, 16
Q4, K4, V4 = (torch.randn(B, H, N, d) for _ in range(3))
S4 = torch.einsum("bhid,bhjd->bhij", Q4, K4) * d**-0.5
O4 = torch.einsum("bhij,bhjd->bhid", torch.softmax(S4, dim=-1), V4)

one_by_one = [naive_forward(Q4[b, h], K4[b, h], V4[b, h])[0] for b in range(B) for h in range(H)]
same = torch.allclose(O4, torch.stack(one_by_one).view(B, H, N, d), atol=1e-6)
print("all heads at once = one head after the other:", same)

# %% [markdown]
# **Takeaway.** A batch of heads is $B \cdot H$ separate problems. So the PyTorch functions of this course take one head, $(N, d)$, and the GPU kernel of chapter 10 runs the heads side by side.
#
# **Heads** ([exercises/ex01_heads.py](../exercises/ex01_heads.py), 15 minutes). Models keep their heads side by side in the columns of one matrix: head $h$ has columns $hd \dots (h+1)d$. Split them, attend, and join them again, without a loop.

# %%
check("ex01_heads")

# %%
reveal("ex01_heads")

# %% [markdown]
# ## What it costs: FLOPs
#
# Each score is a dot product: $d$ multiplications, $d$ additions. Each output is a sum of $N_k$ products, so again two operations for each weight. Softmax touches each score a few times. **Predict** the FLOPs in the two matrix products at $N_q = N_k = 512$ and $d = d_v = 64$, in millions.

# %%
my_mflop = None

# %% [markdown]
# **Run and compare.** `Memory` counts the FLOPs of matrix products as well as the bytes.

# %%
from flashlab import cost
from flashlab.memory import Memory, format_bytes

torch.manual_seed(0)
N, d = 512, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
with Memory() as mem:
    O, L = naive_forward(Q, K, V)
assert mem.matmul_flops == cost.naive_forward(N, N, d).matmul_flops == 2 * N * N * d + 2 * N * N * d
print(f"modelled: {mem.matmul_flops / 1e6:.1f} million FLOPs in matrix products, {mem.other_flops / 1e6:.2f} million "
      f"elementwise results, {mem.other_flops / mem.matmul_flops:.1%} of that")
said = compare("FLOPs of attention at N = 512", my_mflop, mem.matmul_flops / 1e6, "million")

# %% [markdown]
# **Takeaway.** $2 N_q N_k (d + d_v)$ FLOPs, nearly all in the two products: quadratic in $N$, linear in $d$ (some notes say $O(D^2)$, the wrong letter). FlashAttention does not save a single one of these. Exact attention has to look at every pair.
#
# What if it need not be exact? Leave out the softmax and the brackets can move: $(QK^\top)V = Q(K^\top V)$. **Predict**: at $N = 2048$, $d = 64$, how many times fewer FLOPs does the right-hand side take?

# %%
my_saving = None

# %%
Q2, K2, V2 = (torch.randn(2048, 64) for _ in range(3))
with Memory() as left:
    scores_first = (Q2 @ K2.T) @ V2
with Memory() as right:
    values_first = Q2 @ (K2.T @ V2)
saving = left.matmul_flops / right.matmul_flops
print(f"the same result: {torch.allclose(scores_first, values_first, rtol=1e-3, atol=0.05)}; {saving:.0f} times fewer FLOPs (modelled)")
said = compare("FLOPs saved by moving the brackets", my_saving, saving)

# %% [markdown]
# The factor is $N/d$: cost that grows with $N$, no longer with $N^2$. Softmax forbids it, since it needs whole rows of $QK^\top$. **Approximate attention** replaces $e^{q \cdot k}$ by a product $\phi(q) \cdot \phi(k)$ and then moves the brackets: Linear Attention takes a fixed $\phi$, Performer random features whose average is $e^{q \cdot k}$. Other methods score only some pairs. All of them change the output. FlashAttention keeps every FLOP and saves bytes instead. In its paper's measurements (section 4.3) that is faster than the approximate methods on short texts; some of them begin to win between 512 and 1024 tokens.

# %% [markdown]
# ## What it costs: memory
#
# $Q$, $K$, $V$ and $O$ are tall and thin, $S$ and $P$ are as wide as they are tall. Here are their bytes for 512 tokens. The longer the text, the longer the two orange bars beside the others.

# %%
matrices = {name: 4 * 512 * (512 if name in "SP" else 64) for name in "QKVSPO"}
figures.bars(matrices, f"S and P hold {(matrices['S'] + matrices['P']) / sum(matrices.values()):.0%} of the numbers",
             "Modelled: from the shapes, N = 512, d = 64, 4 bytes a number.", "bytes", byte=True, worse="SP")

# %% [markdown]
# The code makes $QK^\top$, then the scaled scores, then $P$. **Predict** how many $N \times N$ matrices are alive at the same moment, at most.

# %%
my_matrices = None

# %% [markdown]
# **Run and compare.** `mem.hbm_peak` is the largest number of bytes that the function had allocated at any moment, besides its inputs.

# %%
peaks, d = {}, 64
for N in [256, 512, 1024, 2048]:
    q, k, v = (torch.randn(N, d) for _ in range(3))
    with Memory() as peak:
        naive_forward(q, k, v)
    peaks[N] = peak.hbm_peak
said = compare("N x N matrices alive at once", my_matrices, peaks[2048] // (2048 * 2048 * 4))
squares = {words: {N: count * 4 * N * N for N in range(0, 2049, 64)} for count, words in ((1, "one N × N matrix"), (2, "two of them"))}
figures.curves({"peak": peaks}, f"Twice the tokens, {peaks[2048] / peaks[1024]:.1f} times the memory",
               f"Modelled: mem.hbm_peak, what naive_forward holds at once beside its inputs; d = {d}.", "N", "bytes", byte="y", dashed=squares)

# %% [markdown]
# Two at a time: PyTorch frees $QK^\top$ as soon as the name `S` points to the scaled scores. The rest is $O$.
#
# **Takeaway.** Twice the tokens, four times the memory, for intermediates the caller never sees.

# %% [markdown]
# ## What it costs: bytes
#
# Tensors live in HBM, arithmetic happens on the chip. So each PyTorch operation fetches its operands from HBM and puts its result back there, even when the next operation wants it at once. How unequal the two memories are takes a picture to believe. **Predict**: if the HBM of an A100 (40 GB) were a square 100 mm wide, how wide would the square of all its SRAM be?

# %%
my_width = None     # mm

# %%
width = 100 * (figures.A100["SRAM"]["bytes"] / figures.A100["HBM"]["bytes"]) ** 0.5
print(f"the SRAM's square: {width:.1f} mm")
said = compare("width of the SRAM's square", my_width, width, "mm")
figures.memory_hierarchy()

# %% [markdown]
# Five operations make up `naive_forward`: $QK^\top$, scaling, softmax, $PV$ and logsumexp, which gives $L$. **Predict** which of them moves the most bytes.

# %%
my_operation = None     # "QKᵀ", "scale", "softmax", "PV" or "logsumexp"

# %% [markdown]
# **Run and compare.** The log of `Memory` has one event for each operation.

# %%
Q, K, V = (torch.randn(512, 64) for _ in range(3))
with Memory() as mem:
    naive_forward(Q, K, V)
moved = dict(zip(["QKᵀ", "scale", "softmax", "PV", "logsumexp"], [e.read + e.written for e in mem.log], strict=True))
for name, event in zip(moved, mem.log, strict=True):
    print(f"{name:<10} reads {format_bytes(event.read):>9}, writes {format_bytes(event.written):>9} (modelled)")
most = [name for name in moved if moved[name] == max(moved.values())]
said = compare("operation that moves most", my_operation, my_operation if my_operation in most else " and ".join(most))

# %% [markdown]
# Scaling and softmax share the first place, and neither is a matrix product. Here is what each of them moves; an $N \times N$ matrix has 1 MiB. A textbook counts four crossings of such a matrix, since it takes the scale for part of $QK^\top$ and needs no $L$; our code makes two more for the scale and one for $L$.

# %%
figures.traffic_by_op(mem)

# %% [markdown]
# As an operation of its own, multiplying $S$ by one number moves more bytes than $QK^\top$ itself. It need not: scaling $Q$ first gives the same scores. Try it with `K` in place of `Q`, too.

# %%
with Memory() as scale_S:
    S = (Q @ K.T) * 64**-0.5
with Memory() as scale_Q:
    S_other = (Q * 64**-0.5) @ K.T
print("the same scores:", torch.allclose(S, S_other, atol=1e-5))
for name, m in [("scale S", scale_S), ("scale Q", scale_Q)]:
    print(f"{name}: {format_bytes(m.read + m.written)} for QKᵀ and the scale together (modelled)")

# %% [markdown]
# Now all of it **by hand**. An operation reads its operands once and writes its result once: $QK^\top$, for one, reads $2Nd$ numbers and writes $N^2$. **Predict** the bytes of the whole of `naive_forward` as a function of $N$, at $d = 64$ and 4 bytes a number.

# %%
my_bytes = None     # a function of N: lambda N: ...

# %%
points = {}
for N in [128, 256, 512, 1024]:
    q, k, v = (torch.randn(N, 64) for _ in range(3))
    with Memory() as m:
        naive_forward(q, k, v)
    assert (m.read, m.written) == cost.naive_forward(N, N, 64)[:2]         # to the byte, or this cell stops
    points[N] = m.read + m.written
said = compare("bytes of naive attention", my_bytes, points, "bytes")
print(f"The model and flashlab/cost.py agree to the byte; at N = 1024: {points[1024]:,} bytes (modelled)")

# %% [markdown]
# Model and formula agree at any sizes. Chapter 07 will ask you for the formula in full, with $N_q \ne N_k$.
#
# **Takeaway.** $7 N_q N_k$ numbers cross HBM for the sake of $S$, $P$ and $L$; inputs and outputs are small change.

# %% [markdown]
# Under a causal mask half of the scores are thrown away. **Predict** what that does to the traffic of `naive_forward`: the bytes with the mask, divided by those without.

# %%
my_ratio = None

# %% [markdown]
# **Run and compare.** `ones` and `triu` make the mask, one byte for each pair; `mask` applies it.

# %%
with Memory() as masked:
    naive_forward(Q, K, V, causal=True)
plain, causal = (m.read + m.written for m in (mem, masked))
print(f"modelled: {causal / plain:.2f} times the bytes, {masked.matmul_flops / mem.matmul_flops:.0f} times the FLOPs")
said = compare("bytes with a causal mask over bytes without", my_ratio, causal / plain)
figures.traffic_by_op(masked)

# %% [markdown]
# The mask itself is made, read and applied, and every hidden score is computed, moved and turned into a 0 all the same.
#
# **Takeaway.** Naive attention pays extra for the half it throws away; chapter 06 skips it.
#
# ## Does it matter?
#
# An A100 does 312 TFLOP/s in 16 bits (published: NVIDIA's data sheet) and moves 1.5 TB/s from HBM: it could do 208 FLOPs while one byte arrives, and idles when there are fewer to do. **Predict** the FLOPs for each byte of naive attention at $N = 4096$, $d = 64$, 2 bytes a number.

# %%
my_flops_per_byte = None

# %% [markdown]
# **Run and compare.** First `naive_forward` as it is, then the textbook's four crossings alone, then the least that any algorithm has to move: $Q$, $K$, $V$ in, $O$ and $L$ out, once.

# %%
N, d = 4096, 64
naive = cost.naive_forward(N, N, d, element_size=2)
once = 2 * 4 * N * d                                     # Q, K, V and O, 2 bytes a number
machine = 312e12 / figures.A100["HBM"]["bytes_per_s"]
for name, nbytes in [("naive_forward", naive.traffic), ("four crossings of S", once + 4 * N * N * 2), ("no S at all", once + 4 * N)]:
    balance = naive.matmul_flops / nbytes
    print(f"{name:<20} {balance:7.1f} FLOPs a byte (modelled), at most {min(1, balance / machine):.0%} of the A100's speed")
said = compare("FLOPs a byte of naive attention", my_flops_per_byte, naive.matmul_flops / naive.traffic)

# %% [markdown]
# The arithmetic is the same in all three lines. If $S$ and $P$ never travelled, the chip would not have to wait for memory. All of FlashAttention is about getting from the first lines to the last.
#
# **Takeaway.** Naive attention is slow because of the bytes it moves, not because of the arithmetic it does.

# %% [markdown]
# ## An open question
#
# A chatbot writes its answer one token at a time. Each step asks a single query, $N_q = 1$, of all keys so far. Which matrix is large now, and which crosses HBM most? Run `naive_forward` under `Memory` with one query and 4096 keys. How much of its traffic could an algorithm that never stores $S$ save? What would you do instead to make that step faster?
#
# ## Sources
#
# Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2 and its footnote 4 on the variance · Katharopoulos et al. 2020, [Transformers are RNNs](https://arxiv.org/abs/2006.16236) (Linear Attention) · Choromanski et al. 2021, [Rethinking Attention with Performers](https://arxiv.org/abs/2009.14794) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 2 and Algorithm 0 (four crossings), section 4.3 (against approximate attention) · flash-attention, [README](https://github.com/Dao-AILab/flash-attention), "2.1: change behavior of causal flag" · NVIDIA, [A100](https://www.nvidia.com/en-us/data-center/a100/)
#
# **Next:** [02 · How a GPU runs your code](02_gpu_and_memory.ipynb) looks at the machine that all these bytes have to cross.
