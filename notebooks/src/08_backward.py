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
# **You will be able to** derive the gradients of attention, compute them tile by tile without ever storing an $N \times N$ matrix, and hand them to autograd.
#
# **You need** chapter 06; chapter 05 for dropout. · **two sittings of about two hours each**, 150 minutes of them exercises; the break is marked · **runs on** CPU
#
# Training needs more than $O$: the gradients of the loss with respect to $Q$, $K$ and $V$. To compute them PyTorch would keep $P$ from the forward pass, and with it the $N^2$ memory that FlashAttention set out to avoid.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost
from flashlab_course import figures
from flashlab_course.check import check
from flashlab_course.lesson import compare, nearest, reveal
from flashlab.memory import Memory, tiles
from flashlab.oracle import gradients, judge_gradients, max_error
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa1_backward import fa1_backward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.naive_backward import naive_backward

_ = torch.manual_seed(0)

# %% [markdown]
# # First sitting: the gradients
#
# ## What arrives, and what is sent on
#
# Write $dX$ for the gradient of the loss with respect to $X$: a tensor of $X$'s shape that says how the loss moves when each element of $X$ moves. A backward pass takes $dO$, which arrives from the layers behind, and sends on $dQ$, $dK$, $dV$.
#
# The textbook way goes through a **Jacobian**: the derivative of every output with respect to every input. Take $Y = XW$ with $X$ of 4096 rows and 64 columns, and $W$ of 64 by 64. **Predict** how many GB the Jacobian of $Y$ with respect to $X$ takes in float32.

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
# Nobody forms it. What a backward pass needs is its product with $dY$, a **vector-Jacobian product**, and most of that multiplies zeros. Row $n$ of $Y$ depends on row $n$ of $X$ alone: what is left of the sum?
#
# **Exercise: the gradient of a matrix product** ([exercises/ex08_matmul_gradient.py](../exercises/ex08_matmul_gradient.py), 15 minutes). From $dY$ to $dX$ and to $dW$. The shapes leave few choices.

# %%
check("ex08_matmul_gradient")

# %%
reveal("ex08_matmul_gradient")

# %% [markdown]
# *(Spoils the exercise above.)* Of the sum over all outputs, only row $n$'s are left: $dX_{nk} = \sum_m dY_{nm} W_{km}$, which is a matrix product again. `product_backward` is the rule we use from here on; autograd, which has rules of its own, agrees.

# %%
def product_backward(X, W, dY):
    """(dX, dW) of Y = X W."""
    return dY @ W.T, X.T @ dY


X, W, dY = torch.randn(5, 4).double(), torch.randn(4, 3).double(), torch.randn(5, 3).double()
leaves = X.clone().requires_grad_(), W.clone().requires_grad_()
truths = torch.autograd.grad(leaves[0] @ leaves[1], leaves, dY)
print("off by", *(f"{max_error(mine, truth):.0e}" for mine, truth in zip(product_backward(X, W, dY), truths, strict=True)))

# %% [markdown]
# **Takeaway.** The gradient of a matrix product is two matrix products. No Jacobian is formed, here or anywhere below.

# %% [markdown]
# ## Back through attention, one step at a time
#
# Attention is three steps: $S = QK^\top \cdot$ scale, $P = \mathrm{softmax}(S)$, $O = PV$. Two of the three are matrix products. To check each step of the way back, let autograd keep the gradients of the intermediates, all in float64 and, so that capitals stay free for what comes below, in small letters.

# %%
scale = 16**-0.5
q, k, v = (torch.randn(64, 16).double().requires_grad_() for _ in range(3))
do = torch.randn(64, 16).double()
S = q @ k.T * scale
p = torch.softmax(S, dim=-1)
S.retain_grad()
p.retain_grad()
(p @ v).backward(do)

# %% [markdown]
# **Step 1, through $O = PV$.** A product, so your rule applies as it stands: $dP$ and $dV$ in one call.

# %%
dP, dV = product_backward(p.detach(), v.detach(), do)
print(f"dP off by {max_error(dP, p.grad):.0e}, dV off by {max_error(dV, v.grad):.0e}")

# %% [markdown]
# **Step 2, through the softmax.** Rows do not mix, so one row is enough. Its Jacobian is $\partial P_k/\partial S_j = P_k(\delta_{jk} - P_j)$, where $\delta_{jk}$ is 1 for $j = k$ and else 0. **Predict**: raise one score a little. By how much does the *sum* of the row's weights change, for each unit?

# %%
my_column_sum = None

# %%
row = S.detach()[7, :6]
J = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=0), row)
p_row = torch.softmax(row, dim=0)
print(f"diag(p) - p pᵀ is off by {max_error(torch.diag(p_row) - p_row[:, None] * p_row, J):.0e}")
_ = compare("change of a row's sum", my_column_sum, round(J.sum(0).abs().max().item(), 9))
n = int(J.diagonal().argmax())
figures.matrices({"diag(p) − p pᵀ": J}, f"Raise score {n}: its own weight gains {J[n, n]:.2f} for each unit, the others lose as much together",
                 "Definition: the Jacobian of one row's softmax. Blue gains, orange loses.", "score that is raised", "weight that moves",
                 number="{:+.2f}")

# %% [markdown]
# A row of 4096 keys would have a Jacobian of 16.8 million numbers, and there are 4096 rows. You will not need one of them.
#
# **Exercise: the gradient of a softmax** ([exercises/ex08_softmax_gradient.py](../exercises/ex08_softmax_gradient.py), 20 minutes). Multiply the Jacobian by $dP$ on paper and see what is left. Then write it, for all rows at once.

# %%
check("ex08_softmax_gradient")

# %%
reveal("ex08_softmax_gradient")

# %% [markdown]
# *(Spoils the exercise above.)* The matrix is gone again:
#
# $$dS_j = \sum_k dP_k\, P_k (\delta_{jk} - P_j) = P_j\,\Big(dP_j - \underbrace{\textstyle\sum_k P_k\, dP_k}_{D}\Big).$$
#
# $D$ is one number a row: the average of $dP$ under the weights $P$. **Step 3, through $S$**, is your rule once more, with the scale in front.

# %%
P_ = p.detach()
D_ = (P_ * dP).sum(-1, keepdim=True)                             # (N, 1)
dS = P_ * (dP - D_)                                              # (N, N)
dQ, dK_T = product_backward(q.detach(), k.detach().T, scale * dS)      # S = scale · Q Kᵀ
print(f"dS off by {max_error(dS, S.grad):.0e}, dQ by {max_error(dQ, q.grad):.0e}, dK by {max_error(dK_T.T, k.grad):.0e}")

# %% [markdown]
# That is all the calculus there is. As a picture: what feeds what, and what has $N \times N$ elements.

# %%
figures.backward_dataflow(4096, 64, flash=False)

# %% [markdown]
# **Takeaway.** Four matrix products, and in between $dS = P \circ (dP - D)$.

# %% [markdown]
# ## What it costs as it stands
#
# `naive_backward` is the standard backward pass (Algorithm 3 of [FlashAttention](https://arxiv.org/abs/2205.14135)), one PyTorch operation after the other, with $P$ computed again from $Q$ and $K$. In the naive forward pass $N \times N$ matrices cross HBM seven times: four in the three steps, two for the scale, one for $L$. **Predict** how often they do in the backward pass.

# %%
my_crossings = None

# %%
N, d = 512, 64
Q, K, V, dO = (torch.randn(N, d) for _ in range(4))
with Memory() as forward:
    naive_forward(Q, K, V)
with Memory() as backward:
    grads = naive_backward(Q, K, V, dO)
print(judge_gradients(*grads, Q, K, V, dO))
_ = compare("crossings of the naive backward pass", my_crossings,
            sum(event.read // (4 * N * N) + event.written // (4 * N * N) for event in backward.log))
figures.traffic_by_op(backward)

# %% [markdown]
# **Compare.** A matrix of $N \times N$ has 1 MiB here, and 18 of them cross HBM. $Q$, $K$, $V$ and their gradients are thin beside them: at $N = 512$ they add as many bytes as 1.8 more.
#
# **Takeaway.** The backward pass has two and a half times the forward's $N^2$ problem.

# %% [markdown]
# ## Recompute instead of keep
#
# FlashAttention keeps $O$ and $L$ from the forward pass, $d + 1$ numbers a row, and makes each tile of $P$ again where it is needed. That costs $QK^\top$ a second time. **Predict**: how many per cent more matrix products than a forward and a backward pass that keep $P$?

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
# Now the memory. **Predict** the peak of HBM when $P$ is kept, forward and backward together, as a function of $N$: how many matrices of $N \times N$ float32 numbers lie there at the worst moment?

# %%
my_peak = None     # bytes, for example lambda N: 4 * N * N * ...

# %%
peaks = {"keep P": {}, "recompute": {}}
for N_here in (128, 256, 512, 1024):
    tensors = [torch.randn(N_here, d) for _ in range(4)]
    for name, f in (("keep P", keep_P), ("recompute", recompute)):
        with Memory() as mem:
            f(*tensors)
        peaks[name][N_here] = mem.hbm_peak
said = compare("peak memory when P is kept", my_peak, peaks["keep P"], "bytes")
said.on(figures.curves(peaks, f"At N = 1024 recomputing P needs {peaks['recompute'][1024] / peaks['keep P'][1024]:.0%} of the memory of keeping it",
                       "Modelled: counted by flashlab.memory, float32, forward and backward pass.", "N", "HBM at the peak", byte="y"))

# %% [markdown]
# **Compare.** Three matrices of $N \times N$, and beside them five of $N \times d$: $12 N^2 + 20 N d$ bytes. So three alone fall short where $N$ is small.
#
# **Takeaway.** A sixth more products buy memory that grows with $N$ and not with $N^2$.

# %% [markdown]
# ## $P$ again, a tile at a time
#
# Chapter 06 found that $L$ alone makes any tile of $P$ again, already normalised, with no maximum and no division. In the backward pass that is the first line of every step, and $dV$ is its first use.
#
# **Exercise: a tile of $P$, and of $dV$** ([exercises/ex08_dv_tile.py](../exercises/ex08_dv_tile.py), 20 minutes). Mind the row that sees no key: what is its $L$?

# %%
check("ex08_dv_tile")

# %%
reveal("ex08_dv_tile")

# %% [markdown]
# ## $D$ without a row of $P$
#
# One thing still stands in the way of tiles: $D_i = \sum_j P_{ij}\, dP_{ij}$ runs over all keys, and a tile shows a few. The forward pass had the same trouble with the maximum. This cell goes wrong on purpose: it takes the sum over one tile of 64 keys.

# %%
O, L = fa2_forward(Q, K, V)
P = torch.softmax(Q @ K.T * d**-0.5, dim=-1)
dP = dO @ V.T
D = (P * dP).sum(-1)
print(f"a tile's own sum is off by {max_error((P * dP)[:, :64].sum(-1), D.double()):.2f}, where the largest |D| is {D.abs().max():.2f}")

# %% [markdown]
# This time no running correction is needed. Write $dP_{ij}$ out, as a dot product of $dO_i$ with a row of $V$, and change the order of the two sums. Something turns up that is there already.
#
# **Exercise: $D$ without $P$** ([exercises/ex08_D.py](../exercises/ex08_D.py), 20 minutes). One program of the small kernel that runs before the loops, every byte counted.

# %%
check("ex08_D")

# %%
reveal("ex08_D")

# %% [markdown]
# *(Spoils the exercise above.)* $D_i = \sum_j P_{ij}\,(dO_i \cdot V_j) = dO_i \cdot \sum_j P_{ij} V_j = dO_i \cdot O_i$: a sum over $d$ columns instead of $N$ keys. So the picture changes:

# %%
print(f"rowsum(dO∘O) is off by {max_error((dO * O).sum(-1), D.double()):.0e}")
figures.backward_dataflow(4096, 64)

# %% [markdown]
# **Takeaway.** $L$ makes every tile of $P$ independent of the others, and $D$ every tile of $dS$. Nothing is left that has to run along a row.

# %% [markdown]
# ## A tile of $dS$
#
# Everything is there now: $P_{ij}$ from $L_i$, $D_i$ prepared, and two rules of your own, for products and for the softmax.
#
# **Exercise: a tile of $dS$, and what it gives to $dQ$ and $dK$** ([exercises/ex08_ds_tile.py](../exercises/ex08_ds_tile.py), 20 minutes). The full-size lines of step 2 and 3 above, for one tile. Where does the scale go?

# %%
check("ex08_ds_tile")

# %%
reveal("ex08_ds_tile")

# %% [markdown]
# *(Spoils the exercise above.)* The same for a single row, $dq_i$ of one query and $dk_j$, $dv_j$ of one key:
#
# $$dq_i = \tau \sum_j P_{ij}(dP_{ij} - D_i)\, k_j, \qquad dk_j = \tau \sum_i P_{ij}(dP_{ij} - D_i)\, q_i, \qquad dv_j = \sum_i P_{ij}\, do_i,$$
#
# with $\tau$ the scale. (Some notes write $P_{ij} = e^{S_{ij}}/L_i$ and sum $dq_i$ over $i$: their $L_i$ is our $l_i$ without the shift, not the logsumexp, and the sum is over $j$.) $dq_i$ is a sum over keys, $dk_j$ and $dv_j$ over queries. **Predict** with the sums in mind: a program that holds one key block and walks all queries can finish which of the three gradients by itself?

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
_ = compare("what one key block finishes", my_finished, "dK and dV")

# %% [markdown]
# **Takeaway.** $dK_j$ and $dV_j$ are whole when the last query block has passed; $dQ_i$ needs every key block. The second sitting is about that difference.
#
# ---
# **Half-way: a good place to stop.** You have every formula, and you have written each of them for a tile. What is left is order: who walks past whom, who writes what, and how autograd learns of it. After a break, run this notebook again from the top.

# %% [markdown]
# # Second sitting: the algorithms
#
# ## FA1's backward
#
# [FlashAttention's Algorithm 4](https://arxiv.org/abs/2205.14135) has FA1's loops: key block outside, query block inside. $dK_j$ and $dV_j$ stay on chip. $dQ_i$ collects a part from every key block, so it travels: fetched, added to, put back, at each step. **Predict** its share: of all bytes that this backward pass moves, how many belong to $dQ$?

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
# **Play it**, in small: watch the column of $dQ$, which fills and empties at each step, and $dK_j$, $dV_j$, which leave the chip once.

# %%
from flashlab_course.player import play, record

q, k, v, do = (torch.randn(16, 4) for _ in range(4))
o, l, m = fa1_forward(q, k, v, return_lm=True)
play(record(fa1_backward, q, k, v, o, do, l, m, B_r=4, B_c=4, sram_bytes=2048))

# %% [markdown]
# Hold the published algorithm (arXiv:2205.14135, appendix B.4) beside `flashlab/rungs/fa1_backward.py`. There line 1 sets the state of the random generator, 2 to 4 cut the blocks; 11 holds the mask of line 12 as well; 14 to 16 and 18 have dropout in them, which is 1 where nothing is dropped, and an exercise of chapter 11.

# %% [markdown]
# Ours sets no zeros for $dK$ and $dV$ in HBM: each of their blocks is stored once, whole, so nobody would read the zeros. **Predict** what the published line 5 writes more, in per cent of the traffic.

# %%
my_zeros = None     # per cent

# %%
zeros = 4 * 2 * N * d                                            # float32, N_k · d for dK and for dV
print(f"modelled: {zeros:,} bytes of zeros beside {moved:,}")
_ = compare("the zeros of dK and dV", my_zeros, 100 * zeros / moved, "%")

# %% [markdown]
# ## Dropout: draw the mask again
#
# The forward pass dropped weights with a random mask of $N \times N$ bits. The backward pass needs the same mask, and to keep it would cost $N^2$ memory again. So keep the *state of the generator*, a few kilobytes, and draw again in the same order. **Predict**: does it matter if the backward pass uses other tile sizes than the forward?

# %%
my_tiles_matter = None     # True or False

# %%
from flashlab.tiles import keep_masks

state = torch.Generator().manual_seed(1).get_state()


def mask_drawn(B_r, B_c, N=64):
    """The mask that FA1's loops draw, put together from its tiles."""
    draw, keep = keep_masks(0.2, state, "cpu"), torch.empty(N, N)
    for cols in tiles(N, B_c):                                   # j, outer
        for rows in tiles(N, B_r):                               # i, inner
            keep[rows, cols] = draw(rows, cols).float()
    return keep > 0


forward_mask, backward_mask = mask_drawn(16, 16), mask_drawn(16, 8)
_ = compare("dropout and tile sizes", my_tiles_matter, not torch.equal(forward_mask, backward_mask))
differ = forward_mask != backward_mask
figures.matrices({"tiles of 16 × 16": forward_mask, "tiles of 16 × 8": backward_mask, "differ": differ},
                 f"{differ.double().mean():.0%} are kept in one mask, dropped in the other", "Measured here: 64 queries, 64 keys. Blue: kept.",
                 "key", "query")

# %% [markdown]
# The numbers come in the order in which they are drawn, so other tiles mean another mask, and nothing says so. With equal tiles the rung is right to the bit. Chapter 11 has a mask without this trap.

# %%
options = dict(dropout_p=0.2, rng_state=state)
O, l, m = fa1_forward(Q, K, V, **options, B_r=64, B_c=64, return_lm=True)
runs = [fa1_backward(Q, K, V, O, dO, l, m, **options, B_r=64, B_c=B_c) for B_c in (64, 64, 32)]
for name, run in (("same tiles", runs[1]), ("other tiles", runs[2])):
    print(f"{name}: dV differs by {max_error(run[2], runs[0][2].double()):.2f} from the first run's")

# %% [markdown]
# **A misprint.** In a set of notes on this algorithm, what dropout keeps is divided by $1 + p$; the paper has $1 - p$. Training would still run: a wrong factor raises no error and changes no shape. **Predict** for $p = 0.2$ by which factor the misprint's $dV$ would have to be multiplied to be right.

# %%
my_factor = None

# %%
keep = torch.rand(N, N) >= 0.2
right = gradients(Q, K, V, dO, dropout_p=0.2, keep=keep)[2]
wrong = gradients(Q, K, V, dO, dropout_p=-0.2, keep=keep)[2]     # 1 - (-p) = 1 + p
print(f"right / wrong lies between {(right / wrong).min():.4f} and {(right / wrong).max():.4f}")
_ = compare("the factor of 1 + p", my_factor, (right / wrong).mean().item())

# %% [markdown]
# **Takeaway.** What is random can be recomputed, too, if you keep the generator's state.

# %% [markdown]
# ## FA2's backward
#
# [FlashAttention-2's Algorithm 2](https://arxiv.org/abs/2307.08691) is almost the same. The paper names one tweak: $L$ instead of $l$ and $m$. Its line 4 also computes $D$ once, before the loops. That whole causal tiles are skipped is our addition; the paper says it of the forward pass.
#
# At its inner step, line 9 loads $Q_i, O_i, dO_i, dQ_i, L_i, D_i$. Line 15 says: load $dQ_i$, add to it, write it back. **Predict** which of the six nothing needs in the loop, and which is loaded twice.

# %%
my_loads = {"never used": None, "loaded twice": None}     # for example "Q_i"

# %%
B = 48
T_c = len(tiles(N, B))
O, L = fa2_forward(Q, K, V)
with Memory() as mem2:
    grads = fa2_backward(Q, K, V, O, dO, L, B_r=B, B_c=B)
print(judge_gradients(*grads, Q, K, V, dO))
extra = 4 * T_c * N * 2 * d                                      # O_i, and dQ_i once more, in every step
print(f"modelled: those two loads would be {extra / (mem2.read + mem2.written):.0%} more traffic")
_ = compare("line 9 of Algorithm 2", my_loads, {"never used": "O_i", "loaded twice": "dQ_i"})

# %% [markdown]
# Three small slips in one published box: those two, and $D \in \mathbb{R}^d$ in line 4, where $D$ has one number a row. (FlashAttention-3's Algorithm 3 repeats the last.) None hurts the mathematics. `flashlab/rungs/fa2_backward.py` has our lines:

# %%
O, L = fa2_forward(Q, K, V, causal=True)
with Memory() as causal:
    grads = fa2_backward(Q, K, V, O, dO, L, causal=True, B_r=B, B_c=B)
print(judge_gradients(*grads, Q, K, V, dO, causal=True))
for name, mem in (("FA1", mem1), ("FA2", mem2), ("FA2, causal", causal)):
    print(f"modelled {name:<12} read {mem.read / 2**20:5.2f} MiB, written {mem.written / 2**20:5.2f} MiB")

# %% [markdown]
# **Takeaway.** $D$ and $L$ before the loops take $O$, $l$ and $m$ out of them. $dQ$ still travels.

# %% [markdown]
# ## Find the misprints
#
# Algorithms get copied by hand, and the copies circulate. Here are both of them from such a set of notes, set as code that runs. A line counts as wrong if it alone, in a program that is right otherwise, changes a gradient, moves bytes for nothing, or does not run. First FA1, with dropout; $B_r \ne B_c$ and $N_q \ne N_k$.

# %%
from flashlab_course.lesson import misprints

copied = misprints.COPIES["FA1"]
copied

# %% [markdown]
# **Predict** how many lines are wrong, and which. Scroll up to your own formulas as you like, but leave the boxes alone.

# %%
my_how_many, my_wrong_lines = None, None     # a number; and which, in order, for example [2, 9]

# %% [markdown]
# Repair them one by one. Until the last line that does not run is mended you only hear of that one; then of gradients and of bytes.

# %%
my_fixes = {}     # line number: code, for example {2: "with ..."}; "" drops a line
print(copied.verdict(my_fixes))

# %% [markdown]
# **Run and compare.** The wrong lines are found by running: each of them alone, among right ones.

# %%
wrong = copied.wrong()
_ = compare("wrong lines of FA1's copy, how many", my_how_many, len(wrong))
_ = compare("wrong lines of FA1's copy, which", my_wrong_lines, wrong)
print(*(f"line {n}: {copied.corrected(n)}" for n in wrong), sep="\n")
print(copied.verdict({n: copied.corrected(n) for n in wrong}))

# %% [markdown]
# None of these seven stands in the paper. Two stop the program, which is the good case. One only moves bytes: line 3 cuts the keys into blocks of the wrong size. The other four run and give other numbers: a loop over the wrong blocks, no scale, a square root for an inverse, and $1 + p$ once more.
#
# Now FA2. This time some of the wrong lines do not change a single digit, and all but one go back to the paper itself.

# %%
copied_FA2 = misprints.COPIES["FA2"]
copied_FA2

# %%
my_how_many_FA2, my_wrong_lines_FA2 = None, None

# %%
my_fixes_FA2 = {}     # as above
print(copied_FA2.verdict(my_fixes_FA2))

# %%
wrong = copied_FA2.wrong()
_ = compare("wrong lines of FA2's copy, how many", my_how_many_FA2, len(wrong))
_ = compare("wrong lines of FA2's copy, which", my_wrong_lines_FA2, wrong)
print(*(f"line {n}: {copied_FA2.corrected(n) or 'drop it'}" for n in wrong), sep="\n")
for n in wrong:
    print(f"all mended but line {n}: {copied_FA2.verdict({k: copied_FA2.corrected(k) for k in wrong if k != n})}")

# %% [markdown]
# Lines 9 and 10 are line 9 of the paper, which loads $O_i$ for nothing and $dQ_i$ twice; line 1 takes its $D \in \mathbb{R}^d$ at its word. Only the missing $dO_i$ is the copyist's.
#
# **Takeaway.** Run a printed algorithm on sizes that all differ, and count its bytes as well as its error: a useless load is right to the last digit.

# %% [markdown]
# ## Who may write $dQ$?
#
# On a GPU the key blocks run at the same time, and each adds to the same $dQ_i$. A hardware addition (an *atomic*) makes that safe; FlashAttention-2 does so (section 3.2). But in which order do the parts arrive? **Predict**: added up in 300 random orders, how many different results has one element of $dQ$, in float32?

# %%
my_results = None

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
_ = compare("results of one sum", my_results, len(set(sums)))
exact = parts.double().sum().item()
figures.curves({"": {1e9 * (total - exact): sums.count(total) for total in sorted(set(sums))}},
               f"The same {len(parts)} parts in 300 orders: {len(set(sums))} different results in float32",
               "Measured here: one element of dQ, added up in random orders.", "result minus float64's, in 10⁻⁹", "orders",
               dots=True, names="{:.1f}".format)

# %% [markdown]
# Tiny, but the next run of your training differs from this one, and a bug that you are hunting moves. There is a second price: $dQ$ crosses HBM twice in every step, in float32 even where the inputs have 16 bits, because a sum must not be rounded on the way.
#
# The way out is **two passes**: one kernel holds a key block and collects $dK_j$, $dV_j$; another holds a query block and collects $dQ_i$.

# %%
q, k, v, do = (torch.randn(64, 16) for _ in range(4))
o, lse = fa2_forward(q, k, v)
with Memory() as mem:
    fa2_backward_two_pass(q, k, v, o, do, lse, B_r=16, B_c=16)
one_kernel = lambda name: [event for event in mem.log if event.kernel == f"fa2_backward_{name}"]
figures.tile_traversal({"fa2_backward_dkdv": one_kernel("dkdv"), "fa2_backward_dq": one_kernel("dq")}, 64, 64)

# %% [markdown]
# **Play them** beside each other: the left one fetches and stores $dQ_i$ in every step, the right one walks the tiles twice, first down, then across.

# %%
q, k, v, do = (torch.randn(16, 4) for _ in range(4))
o, lse = fa2_forward(q, k, v)
play(*(record(backward, q, k, v, o, do, lse, B_r=4, B_c=4, sram_bytes=2048) for backward in (fa2_backward, fa2_backward_two_pass)))

# %% [markdown]
# **Exercise: $dQ$ of a query block** ([exercises/ex08_dq_block.py](../exercises/ex08_dq_block.py), 35 minutes). The second pass as a whole program: causal, ragged, every byte counted. It is the forward's loop with another body.

# %%
check("ex08_dq_block")

# %%
reveal("ex08_dq_block")

# %% [markdown]
# The price of two passes: $S$ and $dP$ are computed twice. **Predict** how many matrix products they take (one kernel: five), and which of the two moves fewer bytes in bfloat16.

# %%
my_passes = {"products": None, "fewer bytes": None}     # a number; "one kernel" or "two passes"

# %%
Q16, K16, V16, dO16 = (torch.randn(N, d).bfloat16() for _ in range(4))
O, L = fa2_forward(Q16, K16, V16)
O1, l, m = fa1_forward(Q16, K16, V16, return_lm=True)
runs = {}
for f, saved in ((fa1_backward, (O1, dO16, l, m)), (fa2_backward, (O, dO16, L)), (fa2_backward_two_pass, (O, dO16, L))):
    with Memory() as mem:
        grads = f(Q16, K16, V16, *saved)
    runs[f.__name__] = mem
    assert judge_gradients(*grads, Q16, K16, V16, dO16).ok
one, two = (runs[name].read + runs[name].written for name in ("fa2_backward", "fa2_backward_two_pass"))
truth = {"products": runs["fa2_backward_two_pass"].matmul_flops / 2 / N / N / d, "fewer bytes": "two passes" if two < one else "one kernel"}
_ = compare("backward in two passes", my_passes, truth)
figures.traffic_by_tensor({name: mem.log for name, mem in runs.items()}, ["dQ"], eager="dQ")

# %% [markdown]
# **Compare.** More than half of the one-kernel traffic is $dQ$ on its way in and out. Two passes read $K$ and $V$ again instead, which is cheaper in 16 bits. These are the model's bytes: on a GPU the L2 cache serves many of the re-reads (chapter 07).
#
# FlashAttention's own CUDA code takes the one kernel with atomics and offers a slower deterministic mode. Triton's tutorial has both loops in one kernel: each program first walks the queries for its $dK_j$, $dV_j$, then the keys for its $dQ_i$. Chapter 11 makes two kernels of them.
#
# **Takeaway.** Two passes: each gradient written once, the same bits every time, less traffic in 16 bits, and 7 products for 5.

# %% [markdown]
# ## Hand it to autograd
#
# `torch.autograd.Function` ties a forward to a backward of your own. Between the two it keeps what you save on `ctx`. A small one, $y = x^3$: forward saves $x$, backward multiplies what arrives by $3x^2$.

# %%
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable                 # of the gradient itself there is no derivative
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        return 3 * x**2 * dy                                     # one value for each argument of forward


x = torch.tensor(2.0, requires_grad=True)
Cube.apply(x).backward()
print("dx at x = 2:", x.grad.item())

# %% [markdown]
# **Exercise: autograd.Function** ([exercises/ex08_autograd_function.py](../exercises/ex08_autograd_function.py), 20 minutes). The same for attention: who keeps what, and who gets which gradient. Nothing of $N \times N$ elements may be kept.

# %%
check("ex08_autograd_function")

# %%
reveal("ex08_autograd_function")

# %% [markdown]
# `gradcheck` trusts nobody: it moves every input by a millionth, watches the output, and compares the differences with what the backward pass claims. `flashlab.flash_attention` is the grown-up version of your class: batches, heads, $L$ as a second output.

# %%
operator = lambda Q, K, V, **options: flashlab.flash_attention(Q[None, None], K[None, None], V[None, None], **options)[0, 0]
few = [torch.randn(n, x).double().requires_grad_() for n, x in ((6, 4), (5, 4), (5, 3))]      # queries, keys, values
for causal in (False, True):
    print("gradcheck:", torch.autograd.gradcheck(lambda Q, K, V: operator(Q, K, V, causal=causal), few))

# %% [markdown]
# gradcheck wants float64. **Predict** why that matters: what is the smallest relative error that differences in *float32* reach, whatever the step: $10^{-7}$, $10^{-5}$ or $10^{-3}$?

# %%
my_best_error = None     # of float32

# %%
X = [torch.randn(6, 4).double() for _ in range(4)]
truth, curves = gradients(*X)[0], {}
for dtype in (torch.float32, torch.float64):
    q, k, v, do = (T.to(dtype) for T in X)
    loss = lambda q: (operator(q, k, v) * do).sum()
    curve = []
    for h in [10.0**-e for e in range(1, 10)]:
        there, back = (torch.stack([loss(q + sign * h * e.view(6, 4)) for e in torch.eye(24, dtype=dtype)]) for sign in (1, -1))
        measured = ((there - back) / (2 * h)).view(6, 4)
        curve.append((h, max(1e-16, max_error(measured, truth) / truth.abs().max().item())))
    curves[str(dtype)[6:]] = curve
_ = compare("differences in float32", my_best_error, nearest(min(error for _, error in curves["float32"]), (1e-7, 1e-5, 1e-3)))
errors = {name: dict(points) for name, points in curves.items()}
figures.curves(errors, f"At its best step float32 is off by {min(errors['float32'].values()):.0e}, float64 by {min(errors['float64'].values()):.0e}",
               "Measured here: central differences of sum(O∘dO) against the gradient in float64.", "step", "relative error of dQ",
               log="xy", names=figures.power_text, walls={"gradcheck's step": 1e-6})

# %% [markdown]
# Does gradcheck notice a mistake? This one fails on purpose: $K$ passes through a function that hands back twice its gradient, as a backward pass with a forgotten factor would.

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
# **And the derivative of a derivative?** $dx = 3x^2$ depends on $x$, but autograd cannot see how: `Cube` is differentiable once. Take the loss $x + (dx)^2$ at $x = 2$. Its true derivative is $1 + 36x^3 = 289$. **Predict** what `backward` puts into `x.grad` if $dx$ is the gradient of $y$ itself, a `dy` of plain 1: 289, 1, or an error?

# %%
my_second = None     # 289, 1 or "an error"

# %%
seen = []
for name, y in (("of y", lambda x: Cube.apply(x)), ("of y²", lambda x: Cube.apply(x).square())):
    x = torch.tensor(2.0, requires_grad=True)
    dx, = torch.autograd.grad(y(x), x, create_graph=True)
    try:
        (x + dx.square()).backward()
        seen.append(f"{x.grad.item():g}")
    except RuntimeError:
        seen.append("an error")
    print(f"dx is the gradient {name}: {seen[-1]}")
_ = compare("second derivative of a cube", my_second, seen[0])

# %% [markdown]
# Where the gradient that arrives carries no graph (a constant 1, as after `.sum()`), $dx$ looks like a constant and its term is lost in silence. Where it does carry one, as after a square, PyTorch raises. The course's operator refuses in words in both cases. This fails on purpose.

# %%
for name, loss in (("sum", lambda O: O.sum()), ("square", lambda O: O.square().sum())):
    dQ, = torch.autograd.grad(loss(operator(*few)), few[0], create_graph=True)
    try:
        (few[0].sum() + dQ.square().sum()).backward()
    except RuntimeError as error:
        print(f"after {name}: {str(error).split(':')[0]}")

# %% [markdown]
# **Takeaway.** Save inputs, output and $L$; return one gradient for each input; check with gradcheck in float64; refuse what you have no formula for.

# %% [markdown]
# ## An open question
#
# $D$ has a kernel of its own, which reads $O$ and $dO$ once and writes $N$ numbers. FA1 computes $D_i$ inside the loop instead, and so reads $O_i$ in every step. A third way: let the $dQ$ kernel, which holds $dO_i$ anyway, compute it, and run that kernel first. What does each way move, as a formula in $N$, $d$, $T_r$ and $T_c$? Change `fa2_backward_two_pass` and measure. And is there a reason left for the small kernel?
#
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Algorithms 3 and 4, appendix B. Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), sections 3.1.2 and 3.2, Algorithm 2. Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), appendix B.1. PyTorch's notes on [extending autograd](https://docs.pytorch.org/docs/stable/notes/extending.html). Triton's tutorial on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html).
#
# **Next:** [09 · Triton basics](09_triton_basics.ipynb): the language in which chapters 10 and 11 write the kernels.
