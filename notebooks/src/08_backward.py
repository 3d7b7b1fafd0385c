# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 08 · The backward pass
#
# **You will be able to** derive the gradients of attention, compute them tile by tile without storing an $N \times N$ matrix, and hand them to autograd.
#
# **You need** chapter 06; chapter 05 for dropout · **further:** five sittings of 40, 25, 35, 45 and 20 minutes · **runs on** CPU
#
# Training needs the gradients of the loss with respect to $Q$, $K$ and $V$. PyTorch would keep $P$ from the forward pass for them, and with it the $N^2$ memory that FlashAttention avoids.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost
from flashlab.memory import Memory, kernel, load, store, tiles
from flashlab.oracle import gradients, judge_gradients, max_error
from flashlab.rungs import fa1_backward as fa1
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa1_backward import fa1_backward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.naive_backward import naive_backward
from flashlab.tiles import keep_masks
from flashlab_course import figures
from flashlab_course.check import check
from flashlab_course.lesson import compare, replay, reveal
from flashlab_course.player import play, record

_ = torch.manual_seed(0)

# %% [markdown]
# ## Sitting 1 (further) · The gradients
#
# ### What arrives, and what is sent on
#
# Write $dX$ for the gradient of the loss with respect to $X$: a tensor of $X$'s shape that says how the loss changes when each element of $X$ changes. The backward pass of attention receives $dO$ and returns $dQ$, $dK$ and $dV$.
#
# Textbooks use a **Jacobian**: the derivative of every output with respect to every input. Take $Y = XW$ with 4096 rows and 64 columns in both $X$ and $Y$. **Predict** how many GB the Jacobian of $Y$ with respect to $X$ takes in float32.

# %%
my_gigabytes = None

# %%
inputs, outputs = 4096 * 64, 4096 * 64
_ = compare("a Jacobian's size", my_gigabytes, 4 * outputs * inputs / 1e9, "GB")
print(f"modelled: {outputs:,} outputs times {inputs:,} inputs. A small one, 3 rows of X, entry by entry:")
W = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
J = torch.autograd.functional.jacobian(lambda X: X @ W, torch.zeros(3, 2)).reshape(6, 6)
figures.matrices({"": J}, "1 / 3 of it is not 0, and that is 3 copies of Wᵀ", "Definition: the Jacobian of Y = XW for X, taken by autograd.",
                 "element of X", "element of Y")

# %% [markdown]
# Nobody stores it. A backward pass needs only its product with $dY$, and most terms of that product are zero. Row $n$ of $Y$ depends on row $n$ of $X$ alone. What is left of the sum?
#
# **Your turn: a matrix product** ([exercises/ex08_matmul_gradient.py](../exercises/ex08_matmul_gradient.py), 10 minutes). Compute $dX$ and $dW$ from $dY$. The shapes leave few choices.

# %%
check("ex08_matmul_gradient")

# %%
reveal("ex08_matmul_gradient")

# %% [markdown]
# *This answers the exercise above.* In row $n$ the sum is $dX_{nk} = \sum_m dY_{nm} W_{km}$: a matrix product again. Autograd agrees.

# %%
def product_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    return dY @ W.T, X.T @ dY


X, W, dY = torch.randn(5, 4).double(), torch.randn(4, 3).double(), torch.randn(5, 3).double()
leaves = X.clone().requires_grad_(), W.clone().requires_grad_()
truths = torch.autograd.grad(leaves[0] @ leaves[1], leaves, dY)
print("off by", *(f"{max_error(mine, truth):.0e}" for mine, truth in zip(product_backward(X, W, dY), truths, strict=True)))

# %% [markdown]
# **Takeaway.** The gradient of a matrix product is two matrix products, without a Jacobian.
#
# ### Back through attention, one step at a time
#
# Attention has three steps: $S = QK^\top \cdot$ scale, $P = \mathrm{softmax}(S)$ and $O = PV$. Let autograd keep the gradients of all intermediates, in float64, so that we can check each step.
#
# **Step 1: through $O = PV$.** This is a product, so your rule gives $dP$ and $dV$.

# %%
scale = 16**-0.5
q, k, v = (torch.randn(64, 16).double().requires_grad_() for _ in range(3))
do = torch.randn(64, 16).double()
S = q @ k.T * scale
p = torch.softmax(S, dim=-1)
S.retain_grad()
p.retain_grad()
(p @ v).backward(do)
dP, dV = product_backward(p.detach(), v.detach(), do)            # step 1
print(f"dP off by {max_error(dP, p.grad):.0e}, dV off by {max_error(dV, v.grad):.0e}")

# %% [markdown]
# **Step 2: through the softmax.** Rows do not mix, so look at one row. Its Jacobian is $\partial P_k/\partial S_j = P_k(\delta_{jk} - P_j)$, where $\delta_{jk}$ is 1 for $j = k$ and 0 otherwise. Raise one score by a small amount $h$. **Predict** the change of the *sum* of the row's weights, divided by $h$.

# %%
my_column_sum = None

# %%
row = S.detach()[7, :6]
J = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=0), row)
p_row = torch.softmax(row, dim=0)
print(f"diag(p) - p pᵀ is off by {max_error(torch.diag(p_row) - p_row[:, None] * p_row, J):.0e}")
_ = compare("change of a row's sum", my_column_sum, round(J.sum(0).abs().max().item(), 9))
n = int(J.diagonal().argmax())
figures.matrices({"diag(P) − P Pᵀ": J}, f"Raise score {n}: its own weight gains {J[n, n]:.2f} for each unit, every other weight loses",
                 "Definition: the Jacobian of one row's softmax. Blue gains, orange loses.", "score that is raised", "weight that changes",
                 number="{:+.2f}")

# %% [markdown]
# For 4096 keys this Jacobian has 16.8 million numbers, and there are 4096 rows. You need none of them.
#
# **Your turn: a softmax** ([exercises/ex08_softmax_gradient.py](../exercises/ex08_softmax_gradient.py), 20 minutes). Multiply the Jacobian by $dP$ on paper and simplify. Then write the result for all rows at once.

# %%
check("ex08_softmax_gradient")

# %%
reveal("ex08_softmax_gradient")

# %% [markdown]
# *This answers the exercise above.* The Jacobian is gone:
#
# $$dS_j = \sum_k dP_k\, P_k (\delta_{jk} - P_j) = P_j\,\Big(dP_j - \underbrace{\textstyle\sum_k P_k\, dP_k}_{D}\Big).$$
#
# $D$ is one number for each row: the mean of $dP$ with the weights $P$. **Step 3: through $S$** uses your first rule again, times the scale.

# %%
mean = (p.detach() * dP).sum(-1, keepdim=True)                   # (N, 1)  this is D
dS = p.detach() * (dP - mean)                                    # (N, N)
dQ, dK_T = product_backward(q.detach(), k.detach().T, scale * dS)      # S = scale · Q Kᵀ
print(f"dS off by {max_error(dS, S.grad):.0e}, dQ by {max_error(dQ, q.grad):.0e}, dK by {max_error(dK_T.T, k.grad):.0e}")

# %% [markdown]
# That is all the calculus. In one picture:

# %%
figures.backward_dataflow(4096, 64, flash=False)

# %% [markdown]
# **Takeaway.** The backward pass of attention is four matrix products, with $dS = P \circ (dP - D)$ between them.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (further) · Memory, and P once more
#
# ### What the textbook's way costs
#
# `naive_backward` is Algorithm 3 of [FlashAttention](https://arxiv.org/abs/2205.14135), one PyTorch operation after the other. The algorithm reads $P$; here bars 1 to 3 compute it again. An $N \times N$ matrix has 1 MiB here. In the naive forward pass such matrices cross HBM six times ([chapter 01](01_naive_attention.ipynb)).
#
# | bars of the picture | line of the algorithm |
# |---|---|
# | 1 to 3 | $P$ again: $S = QK^\top$, times the scale, softmax |
# | 4, 5 | $dP = dO\,V^\top$ and $dV = P^\top dO$ |
# | 6, 7 | $D$: the product $P \circ dP$, and its sum over each row |
# | 8, 9 | $dS$: the difference $dP - D$, then $P$ times it |
# | 10 to 13 | $dQ = dS\,K$ and $dK = dS^\top Q$, each times the scale |

# %%
N, d = 512, 64
Q, K, V, dO = (torch.randn(N, d) for _ in range(4))
with Memory() as backward:
    grads = naive_backward(Q, K, V, dO)
print(judge_gradients(*grads, Q, K, V, dO))
print("modelled, crossings of N x N matrices:", sum(event.read // (4 * N * N) + event.written // (4 * N * N) for event in backward.log))
figures.traffic_by_op(backward)

# %% [markdown]
# **Takeaway.** The naive backward pass moves 18 $N \times N$ matrices, 13 without bars 1 to 3, and the forward pass 6.
#
# ### Compute it again instead of keeping it
#
# FlashAttention keeps $O$ and $L$, $d + 1$ numbers for each row. It computes each tile of $P$ again where it needs it, which takes $QK^\top$ a second time. **Predict** how many per cent more matrix products that is, compared with a forward and a backward pass that keep $P$.

# %%
my_extra = None     # per cent

# %%
def keep_P(Q, K, V, dO):
    """Autograd through the naive forward: it keeps what its formulas need, P among them."""
    leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
    torch.autograd.grad(naive_forward(*leaves)[0], leaves, dO)


def recompute(Q, K, V, dO):
    O, L = fa2_forward(Q, K, V)
    fa2_backward(Q, K, V, O, dO, L)


products = {}
for f in (keep_P, recompute):
    with Memory() as mem:
        f(Q, K, V, dO)
    products[f.__name__] = mem.matmul_flops / 2 / N / N / d
print("modelled, products of N x N x d:", products)
_ = compare("extra products of recomputing", my_extra, 100 * (products["recompute"] / products["keep_P"] - 1), "%")

# %% [markdown]
# And the memory?

# %%
peaks = {"keep P": {}, "recompute": {}}
for N_here in (128, 256, 512, 1024):
    tensors = [torch.randn(N_here, d) for _ in range(4)]
    for name, f in (("keep P", keep_P), ("recompute", recompute)):
        with Memory() as mem:
            f(*tensors)
        peaks[name][N_here] = mem.hbm_peak
figures.curves(peaks, f"At N = 1024 recomputing P needs {peaks['recompute'][1024] / peaks['keep P'][1024]:.0%} of the memory of keeping it",
               "Modelled: counted by flashlab.memory, float32, forward and backward pass.", "N", "HBM at the peak", byte="y")

# %% [markdown]
# At $N = 1024$ an $N \times N$ matrix has 4 MiB, and keeping $P$ means three of them at the peak.
#
# **Takeaway.** One product more, and the memory grows with $N$ instead of $N^2$.
#
# ### P again, a tile at a time
#
# $P = e^{S - L}$ is the finished softmax ([chapter 06](06_flash_attention_2.ipynb)). So a tile of $P$ needs no maximum and no division, and no other tile.
#
# **Your turn: a tile of P, and of dV** ([exercises/ex08_dv_tile.py](../exercises/ex08_dv_tile.py), 15 minutes). Mind the row that sees no key: what is its $L$?

# %%
check("ex08_dv_tile")

# %%
reveal("ex08_dv_tile")

# %% [markdown]
# *End of sitting 2. To continue later, run the notebook from the top.*
#
# ## Sitting 3 (further) · Tiles of dS
#
# ### D without a row of P
#
# One obstacle is left: $D_i = \sum_j P_{ij}\, dP_{ij}$ is a sum over all keys, and a tile has few of them. This cell goes wrong on purpose: it takes the sum over one tile of 64 keys.

# %%
O, L = fa2_forward(Q, K, V)
P = torch.softmax(Q @ K.T * d**-0.5, dim=-1)
dP = dO @ V.T
D = (P * dP).sum(-1)
print(f"a tile's own sum is off by {max_error((P * dP)[:, :64].sum(-1), D.double()):.2f}, where the largest |D| is {D.abs().max():.2f}")

# %% [markdown]
# No running correction is needed this time. Write $dP_{ij}$ as the dot product of $dO_i$ with a row of $V$, and change the order of the two sums. You find a tensor that is already there.
#
# **Your turn: D without P** ([exercises/ex08_D.py](../exercises/ex08_D.py), 15 minutes). Write one program of a small kernel that runs before the loops. The checker counts its bytes.

# %%
check("ex08_D")

# %%
reveal("ex08_D")

# %% [markdown]
# *This answers the exercise above.* $D_i = \sum_j P_{ij}\,(dO_i \cdot V_j) = dO_i \cdot \sum_j P_{ij} V_j = dO_i \cdot O_i$. This sum has $d$ terms instead of $N$. So the picture changes:

# %%
print(f"rowsum(dO∘O) is off by {max_error((dO * O).sum(-1), D.double()):.0e}")
figures.backward_dataflow(4096, 64)

# %% [markdown]
# **Takeaway.** With $L$ and $D$, every tile of $P$ and $dS$ can be computed without the others.
#
# ### A tile of dS
#
# **Your turn: dS, and its parts of dQ and dK** ([exercises/ex08_ds_tile.py](../exercises/ex08_ds_tile.py), 15 minutes). Do steps 2 and 3 of sitting 1 for one tile. Where does the scale go?

# %%
check("ex08_ds_tile")

# %%
reveal("ex08_ds_tile")

# %% [markdown]
# *This answers the exercise above.* Here are the gradients of one query $i$ and of one key $j$, with $\tau$ for the scale:
#
# $$dq_i = \tau \sum_j P_{ij}(dP_{ij} - D_i)\, k_j, \qquad dk_j = \tau \sum_i P_{ij}(dP_{ij} - D_i)\, q_i, \qquad dv_j = \sum_i P_{ij}\, do_i.$$
#
# Look at what each sum runs over. **Predict** which of the three gradients a program can finish if it holds one key block and walks through all query blocks.

# %%
my_finished = None     # for example "dQ", or "dQ and dV"

# %%
block = slice(0, 64)                                             # one key block, all queries
P_block = P[:, block]
dS_block = P_block * (dO @ V[block].T - D[:, None])
parts = {"dQ": (d**-0.5 * dS_block @ K[block], Q), "dK": (d**-0.5 * dS_block.T @ Q, K[block]), "dV": (P_block.T @ dO, V[block])}
whole = dict(zip(("dQ", "dK", "dV"), gradients(Q, K, V, dO), strict=True))
for name, (part, like) in parts.items():
    print(f"{name}: off by {max_error(part, whole[name][: len(like)]):.0e}")
_ = compare("gradients that one key block finishes", my_finished)

# %% [markdown]
# <details><summary><b>Takeaway</b> (after the comparison)</summary>
#
# $dK_j$ and $dV_j$ are sums over queries: they are finished after the last query block. $dQ_i$ is a sum over keys and needs every key block.
#
# </details>
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · The loops
#
# ### FA1's backward pass
#
# [FlashAttention's Algorithm 4](https://arxiv.org/abs/2205.14135) has FA1's loops: key blocks outside, query blocks inside. $dK_j$ and $dV_j$ stay on chip. $dQ_i$ gets a part from every key block. So every step moves:
#
# | | tiles of $d$ columns | numbers per row |
# |---|---|---|
# | loads | $Q_i$, $O_i$, $dO_i$, $dQ_i$ | $l_i$, $m_i$ |
# | stores | $dQ_i$ | |
#
# **Predict** $dQ$'s share of all bytes.

# %%
my_dQ_share = None     # between 0 and 1

# %%
O, l, m = fa1_forward(Q, K, V, return_lm=True)
with Memory() as mem1:
    grads = fa1_backward(Q, K, V, O, dO, l, m, B_r=48, B_c=48)
print(judge_gradients(*grads, Q, K, V, dO))
moved = mem1.read + mem1.written
print("modelled = formula:", moved == cost.fa1_backward(N, N, d, B_r=48, B_c=48).traffic)
_ = compare("dQ's share of FA1's backward", my_dQ_share,
            sum(event.read + event.written for event in mem1.log if event.name in ("dQ", "zeros")) / moved)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Every step moves five tiles, and two of them are $dQ_i$: 2/5. The rest makes it a little less: $K_j$, $V_j$, $dK_j$ and $dV_j$ move once for each key block, and $l_i$ and $m_i$ at every step.
#
# </details>
#
# **Watch it**, in small. Follow $dQ$, which moves at every step, and $dK$ and $dV$, which leave the chip once.

# %%
def backward_1(Q, K, V, O, dO, l, m, dQ, dK, dV, B=4):
    with kernel("fa1_backward", Q=Q, K=K, V=V, O=O, dO=dO, l=l, m=m, dQ=dQ, dK=dK, dV=dV):
        for cols in tiles(len(K), B):                                                    # j, outer
            K_j, V_j, dK_j, dV_j = load(K, cols), load(V, cols), torch.zeros(B, 4), torch.zeros(B, 4)
            for rows in tiles(len(Q), B):                                                # i, inner
                Q_i, O_i, dO_i, l_i, m_i = (load(T, rows) for T in (Q, O, dO, l, m))
                P_ij, dS_ij = fa1._tile(Q_i, K_j, V_j, dO_i, l_i, m_i, (dO_i * O_i).sum(-1), 0.5)
                dV_j += P_ij.T @ dO_i
                dK_j += 0.5 * dS_ij.T @ Q_i
                store(dQ, rows, load(dQ, rows) + 0.5 * dS_ij @ K_j)
            store(dK, cols, dK_j), store(dV, cols, dV_j)


q, k, v, do = (torch.randn(12, 4) for _ in range(4))
dq, dk, dv = (torch.zeros(12, 4) for _ in range(3))
o, l, m = fa1_forward(q, k, v, return_lm=True)
told = {"P_ij, dS_ij": "P is computed again.", "dV_j +=": "dV grows on chip.", "dK_j +=": "dK grows on chip.",
        "store(dQ": "dQ is loaded, gains its part, and is stored.", "store(dK": "dK and dV are finished: stored once."}
play(record(backward_1, q, k, v, o, do, l, m, dq, dk, dv, sram_bytes=2048, say=told))

# %% [markdown]
# This is the step of the published algorithm (appendix B.4), without mask and dropout, beside [flashlab/rungs/fa1_backward.py](../flashlab/rungs/fa1_backward.py):
#
# | Algorithm 4 | the rung |
# |---|---|
# | $P_{ij} = e^{S_{ij} - m_i} / l_i$ with $S_{ij} = \tau Q_i K_j^\top$ | `P_ij = torch.exp(S_ij - m_safe[:, None]) / l_safe[:, None]` |
# | $dV_j$ gains $P_{ij}^\top dO_i$ | `dV_j += P_ij.T @ dO_i` |
# | $D_i = \mathrm{rowsum}(dO_i \circ O_i)$ | `D_i = (dO_i * load(O, rows)).sum(-1)` |
# | $dS_{ij} = P_{ij} \circ (dP_{ij} - D_i)$ with $dP_{ij} = dO_i V_j^\top$ | `P_ij * (dP_ij - D_i[:, None])` |
# | $dQ_i$ gains $\tau\,dS_{ij} K_j$, $dK_j$ gains $\tau\,dS_{ij}^\top Q_i$ | `dQ_i += scale * dS_ij @ K_j`, `dK_j += scale * dS_ij.T @ Q_i` |
#
# ### Dropout: draw the mask again
#
# With dropout the forward pass is $O = (P \circ Z)V$, where $Z_{ij}$ is 0 or $1/(1-p)$. So $dV = (P \circ Z)^\top dO$, and $dP = (dO\,V^\top) \circ Z$. Then $dS = P \circ (dP - D)$ as before, with the whole $P$: the softmax came before the dropout. Still $D = \mathrm{rowsum}(dO \circ O)$: $O$ contains $Z$.
#
# The same $Z$ is needed, $N \times N$ bits. So the generator's *state* is kept, a few kilobytes, and $Z$ is drawn again, tile by tile in the same order. Other tiles, another order:

# %%
state = torch.Generator().manual_seed(1).get_state()


def mask_drawn(B_r, B_c, N=64):
    """The mask that FA1's loops draw, put together from its tiles."""
    draw, keep = keep_masks(0.2, state, "cpu"), torch.empty(N, N)
    for cols in tiles(N, B_c):                                   # j, outer
        for rows in tiles(N, B_r):                               # i, inner
            keep[rows, cols] = draw(rows, cols).float()
    return keep > 0


forward_mask, backward_mask = mask_drawn(16, 16), mask_drawn(16, 8)
differ = forward_mask != backward_mask
figures.matrices({"tiles of 16 × 16": forward_mask, "tiles of 16 × 8": backward_mask, "differ": differ},
                 f"{differ.double().mean():.0%} are kept in one mask and dropped in the other", "Measured here: 64 queries, 64 keys. Blue: kept; on the right: kept in one mask only.",
                 "key", "query")

# %% [markdown]
# **Takeaway.** A random mask can be drawn again instead of kept, in the same order. (Chapter 11's does not depend on it.)
#
# ### FA2's backward pass
#
# [FlashAttention-2's Algorithm 2](https://arxiv.org/abs/2307.08691) has the same loops. New, beside [flashlab/rungs/fa2_backward.py](../flashlab/rungs/fa2_backward.py):
#
# | Algorithm 2 | the rung |
# |---|---|
# | $D = \mathrm{rowsum}(dO \circ O)$ once, before the loops, which no longer load $O_i$ | `_preprocess` |
# | $P_{ij} = e^{S_{ij} - L_i}$, one number for a row instead of $l_i$ and $m_i$ | `torch.exp(S_ij - L_safe[:, None])` |
# | (our addition: hidden causal tiles are skipped) | `if all_hidden(rows, cols, shift)` |

# %%
O, L = fa2_forward(Q, K, V)
O_causal, L_causal = fa2_forward(Q, K, V, causal=True)
with Memory() as mem2:
    grads = fa2_backward(Q, K, V, O, dO, L, B_r=48, B_c=48)
with Memory() as causal:
    grads_causal = fa2_backward(Q, K, V, O_causal, dO, L_causal, causal=True, B_r=48, B_c=48)
print(judge_gradients(*grads, Q, K, V, dO), judge_gradients(*grads_causal, Q, K, V, dO, causal=True), sep="\n")
for name, mem in (("FA1", mem1), ("FA2", mem2), ("FA2, causal", causal)):
    print(f"modelled {name:<12} read {mem.read / 2**20:5.2f} MiB, written {mem.written / 2**20:5.2f} MiB")

# %% [markdown]
# ### Who may write dQ?
#
# On a GPU the key blocks run at the same time, and each adds to the same $dQ_i$. An **atomic** addition makes that safe, and FlashAttention-2 uses it. But the parts arrive in any order, and float32 rounds each order differently. Here is one element of $dQ$, added up in 300 random orders:

# %%
O, L = fa2_forward(Q, K, V)
dS = torch.exp(Q @ K.T * d**-0.5 - L[:, None]) * (dO @ V.T - (dO * O).sum(-1, keepdim=True))
parts = torch.stack([d**-0.5 * dS[0, cols] @ K[cols, 0] for cols in tiles(N, 64)])      # what each key block adds to dQ[0, 0]
sums = []
for _ in range(300):
    total = torch.tensor(0.0)
    for n in torch.randperm(len(parts)):
        total = total + parts[n]
    sums.append(total.item())
exact = parts.double().sum().item()
for total in sorted(set(sums)):
    print(f"off by {total - exact:+.1e} in {sums.count(total)} of 300 orders")

# %% [markdown]
# The differences are tiny, but no run of your training repeats exactly. There is a second price: $dQ_i$ crosses HBM twice in every step, in float32 even if the inputs have 16 bits.
#
# **Two passes** avoid both. One kernel holds a key block and sums up $dK_j$ and $dV_j$; another holds a query block and sums up $dQ_i$. Watch the loads and stores of $dQ$: both at every step of the single kernel, one store in two passes.

# %%
q, k, v, do = (torch.randn(16, 4) for _ in range(4))
o, lse = fa2_forward(q, k, v)
both = {"store(dK": "dK is finished: it is stored once.", "store(dV": "dV is finished: it is stored once.", "store(D,": "D is stored."}
one = both | {"load(dQ": "dQ is loaded.", "store(dQ": "dQ has gained a part and is stored again."}
two = both | {"store(dQ": "dQ is finished: it is stored once."}
watched = [record(backward, q, k, v, o, do, lse, B_r=8, B_c=8, sram_bytes=4096, say=say)
           for backward, say in ((fa2_backward, one), (fa2_backward_two_pass, two))]
for run in watched:
    run.steps = [step for step in run.steps if step.moves]               # loads and stores only
play(*watched)

# %% [markdown]
# **Your turn: dQ of a query block** ([exercises/ex08_dq_block.py](../exercises/ex08_dq_block.py), 30 minutes). Write one program of the second pass, causal and with any sizes. It is the forward pass's loop with another body.

# %%
check("ex08_dq_block")

# %%
reveal("ex08_dq_block")

# %%
replay("ex08_dq_block")

# %% [markdown]
# Both passes compute $S_{ij}$ and $dP_{ij}$. One kernel takes five products for each tile. **Predict** how many two passes take, and which way moves fewer bytes in bfloat16:
#
# | for each pair of blocks | 16 bits | 32 bits |
# |---|---|---|
# | one kernel | loads $Q_i$, $dO_i$ | loads and stores $dQ_i$ |
# | two passes | load $Q_i$, $dO_i$, $K_j$, $V_j$ | |

# %%
my_passes = {"products": None, "fewer bytes": None}     # a number; "one kernel" or "two passes"

# %%
Q16, K16, V16, dO16 = (torch.randn(N, d).bfloat16() for _ in range(4))
O, L = fa2_forward(Q16, K16, V16)
runs = {}
for f in (fa2_backward, fa2_backward_two_pass):
    with Memory() as mem:
        grads = f(Q16, K16, V16, O, dO16, L)
    runs[f.__name__] = mem
    assert judge_gradients(*grads, Q16, K16, V16, dO16).ok
one, two = (runs[name].read + runs[name].written for name in ("fa2_backward", "fa2_backward_two_pass"))
truth = {"products": runs["fa2_backward_two_pass"].matmul_flops / 2 / N / N / d, "fewer bytes": "two passes" if two < one else "one kernel"}
_ = compare("backward in two passes", my_passes, truth)
figures.traffic_by_tensor({name: mem.log for name, mem in runs.items()}, ["dQ"], eager="dQ")

# %% [markdown]
# <details><summary><b>Why, and the takeaway</b> (after the comparison)</summary>
#
# Count in tiles of 16 bits, for each pair of blocks. The single kernel loads 2 tiles. $dQ_i$ has 32 bits and crosses twice, so it counts as 4. Together that is 6. The two passes load 4.
#
# Two passes write each gradient once, give the same bits in every run and move fewer bytes in 16 bits. They take 7 products instead of 5.
#
# </details>
#
# FlashAttention's CUDA code has one kernel with atomics, and a slower deterministic mode. Chapter 11 writes two kernels.
#
# *End of sitting 4. To continue later, run the notebook from the top.*
#
# ## Sitting 5 (further) · Hand it to autograd
#
# `torch.autograd.Function` connects a forward pass with a backward pass of your own. Between them it keeps what you save on `ctx`. A small example is $y = x^3$.

# %%
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable                 # the gradient itself cannot be differentiated
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        return 3 * x**2 * dy                                     # one value for each argument of forward


x = torch.tensor(2.0, requires_grad=True)
Cube.apply(x).backward()
print("dx at x = 2:", x.grad.item())

# %% [markdown]
# **Your turn: autograd.Function** ([exercises/ex08_autograd_function.py](../exercises/ex08_autograd_function.py), 15 minutes). Do the same for attention: what do you save, and which gradients do you return? Save nothing with $N \times N$ elements.

# %%
check("ex08_autograd_function")

# %%
reveal("ex08_autograd_function")

# %% [markdown]
# `gradcheck` tests a backward pass: it changes every input by a millionth, looks at the output, and compares. So small a change needs float64. `flashlab.flash_attention` is your class with batches, heads and $L$ as a second output.

# %%
operator = lambda Q, K, V, **options: flashlab.flash_attention(Q[None, None], K[None, None], V[None, None], **options)[0, 0]
few = [torch.randn(n, x).double().requires_grad_() for n, x in ((6, 4), (5, 4), (5, 3))]      # queries, keys, values
for causal in (False, True):
    print("gradcheck:", torch.autograd.gradcheck(lambda Q, K, V: operator(Q, K, V, causal=causal), few))

# %% [markdown]
# Does it notice a mistake? Here $K$'s gradient is doubled on purpose.

# %%
class TwiceItsGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, K):
        return K.clone()

    @staticmethod
    def backward(ctx, dK):
        return 2 * dK


try:
    torch.autograd.gradcheck(lambda Q, K, V: operator(Q, TwiceItsGradient.apply(K), V), few)
except RuntimeError as error:
    print(str(error).splitlines()[0].rstrip(","))

# %% [markdown]
# A class like `Cube` is differentiable once: else a second derivative could be wrong without an error. Our operator refuses:

# %%
dQ, = torch.autograd.grad(operator(*few).sum(), few[0], create_graph=True)
try:
    (few[0].sum() + dQ.square().sum()).backward()
except RuntimeError as error:
    print(str(error).split(":")[0])

# %% [markdown]
# **Takeaway.** Save the inputs, $O$ and $L$. Return one gradient for each argument. Check with gradcheck in float64.
#
# ## An open question
#
# $D$ has a kernel of its own, which reads $O$ and $dO$ once. FA1 computes $D_i$ inside the loop instead. A third way: the $dQ$ kernel holds $dO_i$ anyway, so let it compute $D_i$, and run it first. How many bytes does each way move? Change `fa2_backward_two_pass` and measure.
#
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Algorithms 3 and 4, appendix B · Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), sections 3.1.2 and 3.2, Algorithm 2 · PyTorch's notes on [extending autograd](https://docs.pytorch.org/docs/stable/notes/extending.html) · misprints in these algorithms: [docs/errata.md](../docs/errata.md)
#
# **Next:** [09 · Triton basics](09_triton_basics.ipynb), the language of the kernels in chapters 10 and 11.
