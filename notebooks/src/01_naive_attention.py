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
# **You need** chapter 00. · **45 minutes** · **runs on** CPU or GPU
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
# **Run and compare.** With $d = 2$ and three keys the whole computation fits on a line. The values are easy to recognise in the output: (10, 0), (0, 10) and (5, 5).

# %%
from flashlab.oracle import judge  # flashlab first, then torch
import torch

q = torch.tensor([2.0, 0.0])                                   # (d,)
K = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, 0.0]])        # (N_k, d)
V = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])       # (N_k, d_v)
s = K @ q / 2**0.5                                             # (N_k,)
p = torch.softmax(s, dim=-1)                                   # (N_k,)
print(f"scores  {s.numpy().round(2)}\nweights {p.numpy().round(2)}   your prediction for key 1: {my_weight}")
print(f"output  {(p @ V).numpy().round(2)}")

# %% [markdown]
# The output is almost the value of key 1.
#
# **Takeaway.** Attention is a weighted average of the rows of $V$; the weights say how well each key fits the query.
#
# ## Many queries
#
# Stack $N_q$ queries into a matrix and nothing else changes: row $i$ of $S$ and $P$ belongs to query $i$. The numbers of queries and keys may differ, and so may the widths of keys and values. $L$, the logsumexp of each row, comes for free and will earn its keep in chapter 03. `judge` compares with float64.

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
# A dot product of two random vectors of length $d$ has variance $d$: at $d = 64$ scores spread eight times as far as at $d = 1$. **Predict**, for a query that looks at 512 random keys: how large is its largest weight, on average, with the division by $\sqrt{d}$ and without it?

# %%
my_largest = {"with": None, "without": None}     # between 1/512 and 1

# %% [markdown]
# **Run and compare.** Were all keys equally good, each would get 1/512, about 0.002. The more the scores spread, the more weight goes to the winner.

# %%
Q, K = torch.randn(512, 64), torch.randn(512, 64)
for name, scale in [("with", 64**-0.5), ("without", 1.0)]:
    S = Q @ K.T * scale
    largest = torch.softmax(S, dim=-1).amax(-1).mean()
    print(f"{name:>7}: scores spread by {S.std():.2f}, largest weight {largest:.3f} (measured here); "
          f"your prediction: {my_largest[name]}")

# %% [markdown]
# **Takeaway.** Without the scale a single key takes most of the weight, at random. Where `scale` is left out in this course, it is $1/\sqrt{d}$.
#
# ## The same in einsum
#
# `einsum` names every axis: `i` walks queries, `j` keys, and a letter that is missing on the right is summed over. These two letters keep that meaning in the whole course, down to the loops of the GPU kernel.

# %%
N, d = 512, 64
V = torch.randn(N, d)
S = torch.einsum("id,jd->ij", Q, K) * d**-0.5
P = torch.softmax(S, dim=-1)
O = torch.einsum("ij,jd->id", P, V)
L = torch.logsumexp(S, dim=-1)
print(judge(O, L, Q, K, V))

# %% [markdown]
# A published walk-through of FlashAttention writes the last product as `einsum("nn,nd->nd", P, V)`, since both sides of $P$ have length $N$. **Predict**: how many of $P$'s $512 \times 512 = 262144$ weights does that line read?

# %%
my_weights_read = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose. The first call gives a wrong answer without a word; the second asks only five of the queries, so that $P$ is no longer square.

# %%
O_published = torch.einsum("nn,nd->nd", P, V)
print(f"shape {tuple(O_published.shape)}, as it should be, and no error. But:\n{judge(O_published, L, Q, K, V)}")
print("equal to P's diagonal times V:", torch.equal(O_published, P.diagonal()[:, None] * V))
print(f"so it reads {len(P.diagonal())} weights; your prediction: {my_weights_read}")
try:
    torch.einsum("nn,nd->nd", P[:5], V)      # 5 queries, 512 keys
except RuntimeError as error:
    print(error)

# %% [markdown]
# One letter is one index: with `nn` both axes step together, along the diagonal, and query $i$ averages value $i$ alone. Shape, dtype and finiteness were all fine. Only five queries instead of 512 made PyTorch complain.
#
# **Takeaway.** Test with $N_q \ne N_k$: a square test cannot tell two axes apart.

# %% [markdown]
# ## The causal mask
#
# A language model predicts the next token, so a query must not see keys that come after it. Those scores become $-\infty$ before the softmax, and $e^{-\infty}$ is exactly 0. Query $i$ and key $j$ are both token numbers here: hidden is $j > i$.

# %%
N = 6
Q, K, V = (torch.randn(N, 16) for _ in range(3))
hidden = torch.ones(N, N, dtype=torch.bool).triu(1)                        # True where j > i
S = (Q @ K.T * 16**-0.5).masked_fill(hidden, -float("inf"))
P = torch.softmax(S, dim=-1)
O_causal = P @ V
print(P.numpy().round(2))
print(judge(O_causal, torch.logsumexp(S, dim=-1), Q, K, V, causal=True))

# %% [markdown]
# Now the text grows. Keys and values of six tokens are there already, and queries come only for the last two of them. The scores are $2 \times 6$, and the mask has to be chosen. **Predict**: how many keys may the first of these two queries see?

# %%
my_keys_seen = None

# %% [markdown]
# **Run and compare.** Asking two queries or all six must make no difference to the two: the test of a mask is that their rows come out the same.

# %%
from flashlab import figures
from flashlab.rungs.naive import naive_forward

O_last, L_last = naive_forward(Q[4:], K, V, causal=True)
print("equal to the last two rows of before:", torch.allclose(O_last, O_causal[4:]))
print(f"token 4 sees tokens 0 to 4, so 5 keys; your prediction: {my_keys_seen}")
figures.causal_mask(2, 6)

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
# More queries than keys, and causal: now the first queries have nothing to look at. Their whole row of scores is $-\infty$. **Predict** how many of the $4 \times 16$ outputs are not a number when four queries meet two keys.

# %%
my_nans = None

# %% [markdown]
# **Run and compare.** The plain formula fails on purpose, `naive_forward` does not. $S$ is printed first, so that you see the empty rows.

# %%
hidden = torch.ones(4, 2, dtype=torch.bool).triu(2 - 4 + 1)                # bottom-right
S = (Q[:4] @ K[:2].T * 16**-0.5).masked_fill(hidden, -float("inf"))
O_formula = torch.softmax(S, dim=-1) @ V[:2]
O_rung, L_rung = naive_forward(Q[:4], K[:2], V[:2], causal=True)
print(S.numpy().round(2))
print(f"the formula: {O_formula.isnan().sum()} NaN; your prediction: {my_nans}")
print(f"naive_forward: {O_rung.isnan().sum()} NaN; O starts {O_rung[0, :3].numpy()}, L is {L_rung.numpy().round(2)}")

# %% [markdown]
# Softmax divides 0 by 0 there. Every rung of this course returns $O = 0$ and $L = -\infty$ instead: the sum over no values is 0, and the logarithm of a sum over no keys is $\log 0$. Chapter 03 shows that these two are exactly the neutral element when partial results are merged.
#
# **Takeaway.** An empty row is a legal input: $O = 0$, $L = -\infty$, never NaN.

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
print("all heads at once = one head after the other:", torch.allclose(O4, torch.stack(one_by_one).view(B, H, N, d), atol=1e-6))

# %% [markdown]
# **Takeaway.** A batch of heads is $B \cdot H$ separate problems. So the PyTorch rungs take one head, $(N, d)$, and the GPU kernel of chapter 10 runs the heads side by side.

# %% [markdown]
# ## What it costs: FLOPs
#
# Each score is a dot product: $d$ multiplications, $d$ additions. Each output is a sum of $N_k$ products, so again two operations for each weight. Softmax touches each score a few times. **Predict** the FLOPs in the two matrix products at $N_q = N_k = 512$ and $d = d_v = 64$, in millions.

# %%
my_mflop = None

# %% [markdown]
# **Run.** `Memory` counts the FLOPs of matrix products as well as the bytes. $2 N_q N_k d$ for $QK^\top$ and $2 N_q N_k d_v$ for $PV$ is what we expect.

# %%
from flashlab import cost
from flashlab.memory import Memory, format_bytes

torch.manual_seed(0)
N, d = 512, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
with Memory() as mem:
    O, L = naive_forward(Q, K, V)
assert mem.matmul_flops == cost.naive_forward(N, N, d).matmul_flops == 2 * N * N * d + 2 * N * N * d
print(f"modelled: {mem.matmul_flops / 1e6:.1f} million FLOPs in matrix products; your prediction: {my_mflop}")
print(f"modelled: {mem.other_flops / 1e6:.2f} million elementwise results, {mem.other_flops / mem.matmul_flops:.1%} of that")

# %% [markdown]
# **Takeaway.** $2 N_q N_k (d + d_v)$ FLOPs, nearly all in the two products. FlashAttention does not save a single one of these; exact attention has no way around them.

# %% [markdown]
# ## What it costs: memory
#
# $Q$, $K$, $V$ and $O$ are tall and thin, $S$ and $P$ are as wide as they are tall. Here they are to scale, for 512 tokens. The longer the text, the more of the picture is orange.

# %%
figures.attention_matrices(512, 512, 64)

# %% [markdown]
# The code makes $QK^\top$, then the scaled scores, then $P$. **Predict** how many $N \times N$ matrices are alive at the same moment, at most.

# %%
my_matrices = None

# %% [markdown]
# **Run and compare.** `mem.hbm_peak` is the largest number of bytes that the function had allocated at any moment, besides its inputs. Watch what happens when $N$ doubles.

# %%
for N in [256, 512, 1024, 2048]:
    q, k, v = (torch.randn(N, d) for _ in range(3))
    with Memory() as peak:
        naive_forward(q, k, v)
    print(f"N = {N:>4}: peak {format_bytes(peak.hbm_peak):>9} (modelled) = {peak.hbm_peak / (N * N * 4):.2f} matrices N x N; "
          f"your prediction: {my_matrices}")

# %% [markdown]
# Two at a time: PyTorch frees $QK^\top$ as soon as the name `S` points to the scaled scores. The rest is $O$.
#
# **Takeaway.** Twice the tokens, four times the memory, for matrices that nobody asked for.

# %% [markdown]
# ## What it costs: bytes
#
# HBM is large and slow, SRAM is fast and tiny. Arithmetic happens on the chip, so each PyTorch operation fetches its operands from HBM and puts its result back there, even when the next operation wants it at once.

# %%
figures.memory_hierarchy()

# %% [markdown]
# Five operations, numbered: (1) $QK^\top$, (2) scaling, (3) softmax, (4) $PV$, (5) logsumexp, which gives $L$. **Predict** which of them moves the most bytes.

# %%
my_operation = None     # 1 … 5

# %% [markdown]
# **Run and compare.** The log of `Memory` has one event for each operation. PyTorch calls a matrix product `mm` and the scaling `mul`.

# %%
with Memory() as mem:
    naive_forward(Q, K, V)
for n, event in enumerate(mem.log, start=1):
    print(f"{n} {event.name:<10} reads {format_bytes(event.read):>9}, writes {format_bytes(event.written):>9}, "
          f"together {format_bytes(event.read + event.written):>9} (modelled)")
print("your prediction:", my_operation)

# %% [markdown]
# Scaling and softmax share the first place, and neither is a matrix product. Multiplying by one number costs more traffic than $QK^\top$ does. The picture shows the same bytes: nearly all of them are $S$ and $P$, on their way out or back in.

# %%
figures.traffic_by_op(mem)

# %% [markdown]
# **By hand.** An operation reads its operands once and writes its result once. In elements:
#
# | operation | reads | writes |
# |---|---|---|
# | $S = QK^\top$ | $N_q d + N_k d$ | $N_q N_k$ |
# | $S \cdot$ `scale` | $N_q N_k$ | $N_q N_k$ |
# | $P = \mathrm{softmax}(S)$ | $N_q N_k$ | $N_q N_k$ |
# | $O = PV$ | $N_q N_k + N_k d_v$ | $N_q d_v$ |
# | $L = \mathrm{logsumexp}(S)$ | $N_q N_k$ | $N_q$ |
# | **sum** | $(N_q + N_k)\,d + 4 N_q N_k + N_k d_v$ | $3 N_q N_k + N_q (d_v + 1)$ |
#
# `cost.naive_forward` holds the last row. The model and the formula must agree to the byte, for any sizes. If they do not, this cell stops.

# %%
for N_q, N_k, d, d_v in [(512, 512, 64, 64), (1, 300, 64, 64), (97, 200, 59, 16)]:
    q, k, v = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    with Memory() as mem:
        naive_forward(q, k, v)
    by_hand = cost.naive_forward(N_q, N_k, d, d_v)
    assert mem.read == by_hand.read == 4 * ((N_q + N_k) * d + 4 * N_q * N_k + N_k * d_v)
    assert mem.written == by_hand.written == 4 * (3 * N_q * N_k + N_q * (d_v + 1))
    print(f"N_q = {N_q:>3}, N_k = {N_k}: {mem.read:>7} bytes read, {mem.written:>7} written, modelled = formula")

# %% [markdown]
# **Takeaway.** $7 N_q N_k$ elements cross HBM for the sake of $S$ and $P$; inputs and outputs are small change.

# %% [markdown]
# Under a causal mask half of the scores are thrown away. **Predict** what that does to the traffic of `naive_forward`: the bytes with the mask, divided by those without.

# %%
my_ratio = None

# %% [markdown]
# **Run and compare.** `mem.table()` sums the log for each kind of operation. `ones` and `triu` make the mask, one byte for each pair; `masked_fill` applies it.

# %%
with Memory() as plain:
    naive_forward(Q, K, V)
with Memory() as masked:
    naive_forward(Q, K, V, causal=True)
ratio = (masked.read + masked.written) / (plain.read + plain.written)
print(masked.table())
print(f"modelled: {ratio:.2f} times the bytes, {masked.matmul_flops / plain.matmul_flops:.0f} times the FLOPs; "
      f"your prediction: {my_ratio}")

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
# **Run and compare.** Beside naive attention stands the least that any algorithm has to move: $Q$, $K$, $V$ in, $O$ and $L$ out, once.

# %%
naive = cost.naive_forward(4096, 4096, 64, element_size=2)
needed = 2 * 4 * 4096 * 64 + 4 * 4096                    # Q, K, V, O in 16 bits, L in 32
machine = 312e12 / figures.A100["HBM"]["bytes_per_s"]
for name, nbytes in [("naive attention", naive.traffic), ("inputs and outputs once", needed)]:
    balance = naive.matmul_flops / nbytes
    print(f"{name:<24} {balance:7.1f} FLOPs a byte (modelled), at most {min(1, balance / machine):.0%} of the A100's speed")
print("your prediction:", my_flops_per_byte)

# %% [markdown]
# The arithmetic is the same in both lines. If $S$ and $P$ never travelled, the chip would not have to wait for memory. All of FlashAttention is about getting from the first line to the second.
#
# **Takeaway.** Naive attention is slow because of the bytes it moves, not because of the arithmetic it does.

# %% [markdown]
# ## Your turn
#
# Each exercise is a file with a stub. Fill it in and run its cell: the checker reads the file afresh and says what is wrong, or that it is right. It also takes a function that you wrote in a cell: `check("ex01_attention", my_function)`.
#
# **Attention** ([exercises/ex01_attention.py](../exercises/ex01_attention.py), 20 minutes). One head, causal or not, empty rows included: $O = \mathrm{softmax}(QK^\top \cdot \texttt{scale})\, V$, and query $i$ sees the keys $j \le i + N_k - N_q$.

# %%
from flashlab.check import check

check("ex01_attention")

# %% [markdown]
# **Heads** ([exercises/ex01_heads.py](../exercises/ex01_heads.py), 15 minutes). Models keep their heads side by side in the columns of one matrix. Split, attend and join them without a loop: $\mathrm{softmax}(Q_h K_h^\top/\sqrt{d})\, V_h$ with $Q_h$ in columns $hd \dots (h+1)d$.

# %%
check("ex01_heads")

# %% [markdown]
# ## Sources
#
# Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 2 · flash-attention, [README](https://github.com/Dao-AILab/flash-attention), "2.1: change behavior of causal flag" · NVIDIA, [A100](https://www.nvidia.com/en-us/data-center/a100/)
#
# **Next:** [02 · How a GPU runs your code](02_gpu_and_memory.ipynb) looks at the machine that all these bytes have to cross.
