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
# **You will be able to** write attention from its formula, with any number of queries and keys, a causal mask and heads; and to say before you run it how many FLOPs it takes, and how many bytes each operation moves.
#
# **You need** chapter 00 · **core:** sittings 1 and 2, 30 minutes each · **further:** sitting 3, 15 minutes · **runs on** CPU or GPU
#
# $$S = \frac{QK^\top}{\sqrt{d}} \qquad P = \mathrm{softmax}(S) \text{ row by row} \qquad O = PV$$
#
# FlashAttention computes exactly this. This chapter first shows what the formula means in every corner case. Then it counts what it costs.

# %%
import flashlab  # first: it tells Triton where to run
import torch
import torch.nn.functional as F

from flashlab import cost
from flashlab.memory import Memory
from flashlab.oracle import judge
from flashlab.rungs.naive import naive_forward
from flashlab_course import figures
from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal
from flashlab_course.player import play, record

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## Sitting 1 (core) · What attention computes
#
# ### One query
#
# A query scores every key with a dot product. Softmax turns the scores into weights that sum to 1. The output is the average of the values under these weights. Here key 1 points where the query points, key 0 is at a right angle, and key 2 points the other way. Turn the query and run both cells: whose value does the output come near?

# %%
q = torch.tensor([1.5, 0.75])                                      # (d,)   change me
keys = torch.tensor([[-1.0, 2.0], [2.0, 1.0], [-2.0, -1.0]])       # (N_k, d)
values = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-2.0, -1.0]])      # (N_k, d_v)
s = keys @ q / 2**0.5                                              # (N_k,)
p = torch.softmax(s, dim=-1)                                       # (N_k,)
o = p @ values                                                     # (d_v,)
print(f"scores  {s.numpy().round(2)}\nweights {p.numpy().round(2)}\noutput  {o.numpy().round(2)}")

# %% tags=["shown"] jupyter={"source_hidden": true}
from flashlab_course.figures.colors import BLUE, GREEN, ORANGE
from flashlab_course.figures.plots import axes, panels, write
from flashlab_course.figures.style import figure, finish

@figure
def one_query():
    fig, (left, right) = panels(2, size=(9, 3.6))
    for ax, fill, tips in ((left, BLUE, {f"key {j}: weight {p[j]:.2f}": keys[j] for j in range(3)} | {"query": q}),
                           (right, GREEN, {f"value {j}": values[j] for j in range(3)} | {"output": o})):
        for (name, (x, y)), share, color in zip(tips.items(), [*p, 1], [fill] * 3 + [ORANGE], strict=True):
            ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": color, "lw": 1 + 3 * share, "shrinkA": 0})
            write(ax, x + 0.8 * (color == ORANGE), y + (0.25 if y > 0 and color != ORANGE else -0.35), name, color=color)
        axes(ax, "first entry", "second entry", xlim=(-3.5, 3.5), ylim=(-2, 3))
    return finish(fig, f"Key {p.argmax()} takes {p.max():.0%} of the weight, which pulls the output towards value {p.argmax()}",
                  "Computed here: arrows from the origin to each vector. Thick: a large weight.")
one_query()

# %% [markdown]
# **Takeaway.** Attention is a weighted average of the rows of $V$. A weight says how well a key fits the query.
#
# ### Many queries
#
# Stack $N_q$ queries into a matrix. Row $i$ of $S$ and $P$ belongs to query $i$. There may be more keys than queries, and values may be wider than keys. `judge` compares the result with attention in float64: every function of the course has to pass it.

# %%
N_q, N_k, d, d_v = 5, 7, 16, 12
Q, K, V = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)

S = Q @ K.T * d**-0.5              # (N_q, N_k)
P = torch.softmax(S, dim=-1)       # (N_q, N_k)   each row sums to 1
O = P @ V                          # (N_q, d_v)
print(judge(O, None, Q, K, V))

# %% [markdown]
# ### Why divide by $\sqrt{d}$?
#
# Take two vectors of length $d$ whose entries are independent, with mean 0 and variance 1. Their dot product has variance $d$. At $d = 64$ such scores spread by 8. A few keys then get most of the weight, by chance. The other keys hardly learn: a weight $p$ changes with its score at the rate $p\,(1 - p)$, and that is almost 0 for a small $p$. Here 512 queries look at 512 keys.

# %%
Q, K, ranked = torch.randn(512, 64), torch.randn(512, 64), {}
for name, scale in [("with the scale", 64**-0.5), ("without the scale", 1.0)]:
    P = torch.softmax(Q @ K.T * scale, dim=-1)
    ranked[name] = dict(enumerate(P.sort(descending=True).values.mean(0).tolist(), start=1))
    print(f"{name:>17}: largest weight {P.amax(-1).mean():.3f}, median rate {(P * (1 - P)).median():.0e} (measured here)")
figures.curves(ranked, f"Without the scale, one of 512 keys gets {ranked['without the scale'][1]:.0%} of the weight",
               "Measured here: the weights of a query in order, mean of 512 queries.", "keys, from the largest weight on",
               "weight", log="xy", ticks=[1, 8, 64, 512])

# %% [markdown]
# **Takeaway.** Without the scale, softmax chooses a few keys at random, and most others get practically no gradient. Where the course leaves out `scale`, it is $1/\sqrt{d}$.
#
# ### The causal mask
#
# A language model predicts the next token, so a query must not see keys that come after it. These scores become $-\infty$ before the softmax, and $e^{-\infty}$ is exactly 0. Here query $i$ and key $j$ both count tokens: key $j$ is hidden if $j > i$.

# %%
N = 6
Q, K, V = (torch.randn(N, 16) for _ in range(3))
token = torch.arange(N)
hidden = token[None, :] > token[:, None]                                   # (N, N)   True where j > i
S = (Q @ K.T * 16**-0.5).masked_fill(hidden, -inf)
O_causal = torch.softmax(S, dim=-1) @ V
print(judge(O_causal, None, Q, K, V, causal=True))
first_three = torch.softmax(S, dim=-1).masked_fill(hidden, torch.nan)[:3]
figures.matrices({"": first_three}, "A hidden key has no weight, and the others sum to 1", "Computed here: the first three queries. White: hidden.",
                 "key j", "query i", number="{:.2f}")

# %% [markdown]
# Now the text grows. Keys and values of all six tokens are there, but only the last two tokens ask: $S$ is $2 \times 6$. **Predict** how many keys the first of these two queries may see.

# %%
my_keys_seen = None

# %% [markdown]
# **Run and compare.** The other queries must not matter: the two outputs have to equal the last two rows of `O_causal`.

# %%
O_last, _ = naive_forward(Q[4:], K, V, causal=True)
print("equal to the last two rows of before:", torch.allclose(O_last, O_causal[4:]))
seen = torch.ones(6, 6).tril().bool()
said = compare("keys that the first of the two last queries sees", my_keys_seen, seen[4].sum())
figures.matrices({"6 queries, 6 keys": seen, "the last 2 queries": seen[4:]},
                 "The last query sees every key, however many queries ask",
                 "Definition: query i sees key j if j ≤ i + N_k − N_q. Blue: visible.", "key j", "query i")

# %% [markdown]
# The mask is aligned **bottom-right**: the last query sees every key. PyTorch's `scaled_dot_product_attention` aligns it top-left. Let the last token ask alone, as in every step of text generation. This cell goes wrong on purpose.

# %%
top_left = F.scaled_dot_product_attention(Q[5:][None, None], K[None, None], V[None, None], is_causal=True)[0, 0]
bottom_right, _ = naive_forward(Q[5:], K, V, causal=True)
print("bottom-right, equal to the last row of before:", torch.allclose(bottom_right, O_causal[5:]))
print("top-left, equal to the last row of before:    ", torch.allclose(top_left, O_causal[5:]))
print("top-left, equal to the value of token 0:      ", torch.allclose(top_left, V[:1]))

# %% [markdown]
# With top-left alignment the newest token sees only the first one, and no error says so.
#
# **Takeaway.** With bottom-right alignment, a row of causal attention does not depend on the other queries.
#
# ### A query that sees no key
#
# Now there are more queries than keys: four queries, two keys, $d_v = 16$. With a causal mask, the first two queries see nothing. All their scores are $-\infty$, so the plain formula divides 0 by 0. **Predict** how many of the $4 \times 16$ outputs are not a number.

# %%
my_nans = None

# %% [markdown]
# **Run and compare.** The plain formula fails on purpose. `naive_forward` does not.

# %%
Q, K, V = (torch.randn(n, 16) for n in (4, 2, 2))
hidden = torch.tensor([[True, True], [True, True], [False, True], [False, False]])
S = (Q @ K.T * 16**-0.5).masked_fill(hidden, -inf)
O_formula = torch.softmax(S, dim=-1) @ V
O_rung, _ = naive_forward(Q, K, V, causal=True)
print(f"NaN in the formula's result: {O_formula.isnan().sum()}, in naive_forward's: {O_rung.isnan().sum()}")
print(f"the first row of naive_forward's result: {O_rung[0, :3].numpy()} ...")
said = compare("NaN where two queries see no key", my_nans, O_formula.isnan().sum())

# %% [markdown]
# **Takeaway.** An empty row is a legal input. The sum over no values is 0, so every function of this course returns $O = 0$ there.
#
# ### Write it yourself
#
# **Your turn** ([exercises/ex01_attention.py](../exercises/ex01_attention.py), 20 minutes). Write attention for one head, causal or not, for any $N_q$ and $N_k$, with empty rows. Fill in the stub, save, and run this cell. The checker also takes a function from a cell: `check("ex01_attention", my_function)`.

# %%
check("ex01_attention")

# %%
reveal("ex01_attention")

# %% [markdown]
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · Heads, and what attention costs
#
# ### Heads and batch
#
# A model runs attention for $H$ heads of $B$ texts. A matrix product in PyTorch works on the last two dimensions and treats all others alike. No head looks at another.

# %%
B, H, N, d = 2, 3, 50, 16
Q4, K4, V4 = (torch.randn(B, H, N, d) for _ in range(3))
S4 = Q4 @ K4.transpose(-2, -1) * d**-0.5                  # (B, H, N, N)
O4 = torch.softmax(S4, dim=-1) @ V4                       # (B, H, N, d)
each = [naive_forward(Q4[b, h], K4[b, h], V4[b, h])[0] for b in range(B) for h in range(H)]
same = torch.allclose(O4, torch.stack(each).view(B, H, N, d), atol=1e-6)
print("all heads at once = one head after the other:", same)
side_by_side = {"Q of a model": torch.arange(12).expand(5, 12) // 4 + 1}
figures.matrices(side_by_side | {f"head {h}": torch.full((5, 4), h + 1) for h in range(3)}, "A row holds a token's queries of all heads",
                 "Definition: 5 tokens, 3 heads, d = 4. A shade is a head.", "column", "token", number="")

# %% [markdown]
# So the PyTorch functions of this course take one head, $(N, d)$. The GPU kernel of chapter 10 runs $B \cdot H$ heads side by side.
#
# **Your turn** ([exercises/ex01_heads.py](../exercises/ex01_heads.py), 15 minutes). Models keep their heads side by side in the columns of one matrix: head $h$ has columns $hd \dots (h+1)d$. Split them, attend, and join them again, without a loop.

# %%
check("ex01_heads")

# %%
reveal("ex01_heads")

# %% [markdown]
# ### FLOPs
#
# A FLOP is one floating-point addition or multiplication. Each score is a dot product: $d$ multiplications and $d$ additions. Each output is a sum of $N_k$ products. Softmax touches each score a few times. **Predict** the FLOPs of the two matrix products for $N_q = N_k = 512$ and $d = d_v = 64$, in millions.

# %%
my_mflop = None

# %% [markdown]
# **Run and compare.** `Memory` counts FLOPs as well as bytes. `hbm_peak` is the most that the function has allocated at any moment.

# %%
Q, K, V = (torch.randn(512, 64) for _ in range(3))
with Memory() as mem:
    naive_forward(Q, K, V)
print(f"modelled: {mem.other_flops / mem.matmul_flops:.1%} more operations outside the products; "
      f"at most {mem.hbm_peak // (512 * 512 * 4)} N × N matrices in HBM at the same time")
said = compare("FLOPs of attention at N = 512", my_mflop, mem.matmul_flops / 1e6, "million")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $2d$ FLOPs for each score, $2N_k$ for each output: $2 N_q N_k (d + d_v)$ together, or {{mem.matmul_flops / 1e6:.1f}} million.
#
# </details>
#
# **Takeaway.** The FLOPs grow with $N^2$. FlashAttention saves none of them: exact attention has to look at every pair.
#
# ### Which bytes cross HBM?
#
# Tensors live in HBM, and arithmetic happens on the chip. In PyTorch each operation is a GPU kernel of its own. It loads its operands from HBM and stores its result there, even if the next operation wants it at once. Here is attention with one operation in each line:

# %%
def one_by_one(Q, K, V):
    d = Q.shape[-1]
    S = Q @ K.T
    S = S * d**-0.5
    P = torch.softmax(S, dim=-1)
    O = P @ V
    return O

# %% [markdown]
# **Predict** how many times an $N \times N$ matrix crosses HBM, loads and stores together.

# %%
my_crossings = None

# %% [markdown]
# **Run and compare.** With $N = 512$, an $N \times N$ matrix has 1 MiB, and $Q$, $K$, $V$ and $O$ have 128 KiB each.

# %%
Q, K, V = (torch.randn(512, 64) for _ in range(3))
with Memory() as moved:
    one_by_one(Q, K, V)
crossings = (moved.read + moved.written) // 2**20
said = compare("how often an N x N matrix crosses HBM in naive attention", my_crossings, crossings)
figures.traffic_by_op(moved)

# %% [markdown]
# Watch it happen on a toy, four rows at a time. The sentences say what each line moves; the box *explain* switches them off.

# %% jupyter={"source_hidden": true}
told = {"S = Q @ K.T": "The product loads Q and K and stores S: one crossing of an N × N matrix.",
        "S = S *": "S is loaded, multiplied by one number, and stored again: two more crossings.",
        "softmax": "Softmax loads S and stores P, which is as large: two more.",
        "P @ V": "The product loads P: one more. O, which it stores, is small."}

play(record(one_by_one, *(torch.randn(16, 4) for _ in range(3)), rows=4, say=told))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $S$ is stored by the first product, loaded and stored by the scale, and loaded by softmax. $P$ is stored by softmax and loaded by the last product: {{crossings}} crossings, $6 N_q N_k$ numbers. Multiply $Q$ by the scale instead of $S$, and two crossings are gone.
#
# </details>
#
# **Takeaway.** Nearly all bytes of naive attention belong to $S$ and $P$, which nobody wants in the end. Scaling moves as many bytes as softmax, and more than either matrix product.
#
# ### Does it matter?
#
# An A100 does 312 TFLOP/s in 16 bits and moves 1.5 TB/s from HBM (NVIDIA's data sheet). It can do 208 FLOPs in the time of one byte, and idles if there are fewer to do. **Predict** the FLOPs for each byte of naive attention at $N = 4096$ and $d = 64$, with 2 bytes a number. There are $4N^2d$ FLOPs. For the bytes, take the crossings of $S$ and $P$.

# %%
my_flops_per_byte = None

# %% [markdown]
# **Run and compare.** The first bar also counts $Q$, $K$, $V$ and $O$. The second has the textbook's crossings, the third the least that any algorithm must move: $Q$, $K$, $V$ in and $O$ out, once.

# %%
N, d = 4096, 64
naive = cost.naive_forward(N, N, d, element_size=2)
once, machine = 2 * 4 * N * d, 312e12 / 1.5e12
balances = {"naive attention": naive.matmul_flops / naive.traffic, "four crossings": naive.matmul_flops / (once + 4 * N * N * 2),
            "no S in HBM": naive.matmul_flops / once}
said = compare("FLOPs a byte of naive attention", my_flops_per_byte, naive.matmul_flops / (crossings * N * N * 2))
figures.bars({f"{name}, {balance:.4g} FLOPs a byte": 100 * min(1, balance / machine) for name, balance in balances.items()},
             f"Naive attention reaches at most {balances['naive attention'] / machine:.0%} of an A100's speed",
             "Modelled: flashlab.cost, and an A100's published limits.", "% of the A100's speed, at most")

# %% [markdown]
# The arithmetic is the same in all three. If $S$ and $P$ never crossed HBM, the chip would not have to wait.
#
# **Takeaway.** Naive attention is slow because of the bytes it moves, not because of its arithmetic.
#
# *End of sitting 2 and of the core. You can go on to [chapter 03](03_online_softmax.ipynb).*
#
# ## Sitting 3 (further) · Axes, masks, and attention that is not exact
#
# ### Name every axis
#
# `einsum` names every axis: `i` counts queries, `j` keys, and a letter that is missing on the right is summed over. These two letters keep their meaning in the whole course.

# %%
Q, K, V = (torch.randn(512, 64) for _ in range(3))
S = torch.einsum("id,jd->ij", Q, K) * 64**-0.5
P = torch.softmax(S, dim=-1)
O = torch.einsum("ij,jd->id", P, V)
print(judge(O, None, Q, K, V))

# %% [markdown]
# Both axes of $P$ have length $N$ here, so it is tempting to write `einsum("nn,nd->nd", P, V)`. One letter is one index. **Predict** how many of $P$'s $512 \times 512$ weights this line reads.

# %%
my_weights_read = None

# %% [markdown]
# **Run and compare.** The first call gives a wrong answer without an error. The second asks only five of the queries.

# %%
O_nn = torch.einsum("nn,nd->nd", P, V)
print(f"shape {tuple(O_nn.shape)}, as it should be, and no error. But:\n{judge(O_nn, None, Q, K, V)}")
said = compare("weights that einsum's nn reads", my_weights_read, reasons={
    512 * 512: "That would be ij. With nn, both axes move together."})
try:
    torch.einsum("nn,nd->nd", P[:5], V)      # 5 queries, 512 keys
except RuntimeError as error:
    print(error)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Both axes step together, along $P$'s diagonal. Query $i$ gets value $i$ alone, with one weight.
#
# </details>
#
# **Takeaway.** Test with $N_q \ne N_k$: a square test cannot tell two axes apart.

# %% [markdown]
# ### What a causal mask costs
#
# Under a causal mask half of the scores are thrown away. Naive attention saves nothing: it computes and moves every hidden score, and makes a mask, too. Chapter 06 skips the hidden half.

# %%
Q, K, V = (torch.randn(512, 64) for _ in range(3))
with Memory() as plain:
    naive_forward(Q, K, V)
with Memory() as masked:
    naive_forward(Q, K, V, causal=True)
more = (masked.read + masked.written) / (plain.read + plain.written)
print(f"modelled, with a causal mask: {more:.2f} times the bytes, "
      f"{masked.matmul_flops / plain.matmul_flops:.0f} times the FLOPs")

# %% [markdown]
# ### What if it need not be exact?
#
# Leave out the softmax, and the brackets can move: $(QK^\top)V = Q(K^\top V)$. **Predict** for $N = 2048$ and $d = 64$: how many times fewer FLOPs does the right-hand side take?

# %%
my_saving = None

# %%
Q, K, V = (torch.randn(2048, 64) for _ in range(3))
with Memory() as left:
    scores_first = (Q @ K.T) @ V
with Memory() as right:
    values_first = Q @ (K.T @ V)
print("the same result:", torch.allclose(scores_first, values_first, rtol=1e-3, atol=0.05))
said = compare("FLOPs saved by moving the brackets", my_saving, left.matmul_flops / right.matmul_flops)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The left-hand side takes $4N^2d$ FLOPs, the right-hand side $4Nd^2$: the factor is $N/d$.
#
# </details>
#
# Softmax forbids this, because it needs whole rows of $QK^\top$. **Approximate attention** replaces $e^{q \cdot k}$ by a product $\phi(q) \cdot \phi(k)$ and then moves the brackets. Linear Attention takes a fixed $\phi$, Performer random features. Other methods score only some pairs. All of them change the output. FlashAttention keeps every FLOP and saves bytes. In its paper (section 4.3) it is faster than the approximate methods on short texts; some of them win from 512 to 1024 tokens on.
#
# ### An open question
#
# A chatbot writes one token at a time. Each step asks one query, $N_q = 1$, of all keys so far. Which matrix is large now, and which crosses HBM most? Run `naive_forward` under `Memory` with one query and 4096 keys. How much of its traffic could an algorithm save that never stores $S$? What would you do to make this step faster?

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2 and its footnote 4 on the variance · Katharopoulos et al. 2020, [Transformers are RNNs](https://arxiv.org/abs/2006.16236) (Linear Attention) · Choromanski et al. 2021, [Rethinking Attention with Performers](https://arxiv.org/abs/2009.14794) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 2 and Algorithm 0 (four crossings), section 4.3 · flash-attention, [README](https://github.com/Dao-AILab/flash-attention), "2.1: change behavior of causal flag" · NVIDIA, [A100](https://www.nvidia.com/en-us/data-center/a100/)
#
# **Next:** [02 · How a GPU runs your code](02_gpu_and_memory.ipynb) looks at the machine that these bytes have to cross.
