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
# **You need** chapter 06; chapter 05 for dropout. · **70 minutes** · **runs on** CPU
#
# Training needs more than $O$: the gradients of the loss by $Q$, $K$ and $V$. PyTorch would keep $P$ from the forward pass to compute them, and with it the $N^2$ memory that FlashAttention set out to avoid.

# %%
import difflib
import inspect

import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost, figures
from flashlab.rungs import fa1_backward, fa2_backward
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.memory import Memory, tiles
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.naive_backward import naive_backward
from flashlab.oracle import gradients, judge_gradients, max_error

_ = torch.manual_seed(0)

# %% [markdown]
# ## What arrives, and what is sent on
#
# Write $dX$ for the gradient of the loss by $X$: a tensor of $X$'s shape that says how the loss moves when each element of $X$ moves. A backward pass takes $dO$, which arrives from the layers behind, and sends on $dQ$, $dK$, $dV$.
#
# The textbook way goes through a **Jacobian**: all derivatives of every output by every input. Take $Y = XW$ with $X$ of 4096 rows and 64 columns, and $W$ of 64 by 64. **Predict** how many GB its Jacobian by $X$ takes in float32.

# %%
my_gigabytes = None

# %%
N, K_in, M = 4096, 64, 64
print(f"modelled: {N * M} x {N * K_in} numbers, {4 * N * M * N * K_in / 1e9:.0f} GB; you said {my_gigabytes}")
figures.jacobian_of_product(3, 2, 2)

# %% [markdown]
# Row $n$ of $Y$ depends on row $n$ of $X$ alone, so nearly all of it is 0, and the rest is one small matrix repeated. Nobody forms it. What is needed is its product with $dY$, a **vector-Jacobian product**, and that is short:
#
# $$dX_{nk} = \sum_m dY_{nm}\,\frac{\partial Y_{nm}}{\partial X_{nk}} = \sum_m dY_{nm} W_{km} \quad\Longrightarrow\quad dX = dY\,W^\top, \qquad dW = X^\top dY.$$
#
# **Run.** Held against autograd, which arrives at the same by its own rules.

# %%
X, W, dY = torch.randn(5, 4).double(), torch.randn(4, 3).double(), torch.randn(5, 3).double()
leaves = X.clone().requires_grad_(), W.clone().requires_grad_()
dX_true, dW_true = torch.autograd.grad(leaves[0] @ leaves[1], leaves, dY)
print(f"dX off by {max_error(dY @ W.T, dX_true):.1e}, dW off by {max_error(X.T @ dY, dW_true):.1e}")

# %% [markdown]
# **Takeaway.** The gradient of a matrix product is two matrix products. No Jacobian is formed, here or anywhere below.

# %% [markdown]
# ## Back through attention, one step at a time
#
# Attention is three steps: $S = QK^\top \cdot$ scale, $P = \mathrm{softmax}(S)$, $O = PV$. To check each step of the way back, let autograd keep the gradients of the intermediates, all in float64.

# %%
N, d = 64, 16
scale = d**-0.5
Q, K, V, dO = (torch.randn(N, d).double() for _ in range(4))
q, k, v = (T.clone().requires_grad_() for T in (Q, K, V))
S = q @ k.T * scale
P = torch.softmax(S, dim=-1)
S.retain_grad()
P.retain_grad()
(P @ v).backward(dO)

# %% [markdown]
# **Step 1, through $O = PV$.** A matrix product, so the two products from above: $dV = P^\top dO$ and $dP = dO\,V^\top$.

# %%
P_ = P.detach()
dV = P_.T @ dO
dP = dO @ V.T
print(f"dV off by {max_error(dV, v.grad):.1e}, dP off by {max_error(dP, P.grad):.1e}")

# %% [markdown]
# **Step 2, through the softmax.** Rows do not mix. Within a row, raising one score takes weight from all the others: the Jacobian is $\partial P_k/\partial S_j = P_k(\delta_{jk} - P_j)$. Here it is for one row, by autograd and by formula.

# %%
row = S.detach()[7, :5]
p = torch.softmax(row, dim=0)
J = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=0), row)
print(f"diag(p) - p pᵀ is off by {max_error(torch.diag(p) - p[:, None] * p, J):.1e}")

# %% [markdown]
# Multiply it by $dP$ and the matrix is gone again:
#
# $$dS_j = \sum_k dP_k\, P_k (\delta_{jk} - P_j) = P_j\,\Big(dP_j - \underbrace{\textstyle\sum_k P_k\, dP_k}_{D}\Big).$$
#
# $D$ is one number for each row: the average of $dP$ under the weights $P$. **Predict**: what does each row of $dS$ sum to?

# %%
my_row_sum = None

# %%
D = (P_ * dP).sum(-1, keepdim=True)                              # (N, 1)
dS = P_ * (dP - D)                                               # (N, N)
print(f"dS off by {max_error(dS, S.grad):.1e}; its rows sum to {dS.sum(-1).abs().max():.0e} at most; you said {my_row_sum}")

# %% [markdown]
# A softmax does not see a shift of the whole row, so no gradient goes that way. **Step 3, through $S$**: a matrix product once more, times the scale.

# %%
dQ = scale * dS @ K
dK = scale * dS.T @ Q
print(f"dQ off by {max_error(dQ, q.grad):.1e}, dK off by {max_error(dK, k.grad):.1e}")

# %% [markdown]
# **Takeaway.** Four matrix products, and in between $dS = P \circ (dP - D)$. That is all the calculus there is.

# %% [markdown]
# ## What it costs as it stands
#
# `naive_backward` is those lines, on $S$ and $P$ computed again. **Predict** how many times $N \times N$ numbers cross HBM in it (the forward: seven times).

# %%
my_crossings = None

# %%
N, d = 512, 64
Q, K, V, dO = (torch.randn(N, d) for _ in range(4))
with Memory() as naive:
    grads = naive_backward(Q, K, V, dO)
print(judge_gradients(*grads, Q, K, V, dO))
print(f"modelled: {(naive.read + naive.written) / (4 * N * N):.1f} times; you said {my_crossings}")
print("modelled = formula:", (naive.read, naive.written) == cost.naive_backward(N, N, d)[:2])

# %% [markdown]
# ## Recompute instead of keep
#
# FlashAttention keeps $O$ and $L$ from the forward pass, $d + 1$ numbers a row, and makes each tile of $P$ again where it is needed: $P_{ij} = e^{S_{ij} - L_i}$, already normalised (chapter 06). That is one more matrix product. **Predict**: how much more matrix arithmetic than a forward and backward pass that keeps $P$, in per cent?

# %%
my_extra = None

# %%
def keep_P(Q, K, V, dO):
    """Autograd through the naive forward: it keeps what its formulas need, P among them."""
    leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
    torch.autograd.grad(naive_forward(*leaves)[0], leaves, dO)


def recompute(Q, K, V, dO):
    O, L = fa2_forward(Q, K, V)
    fa2_backward.fa2_backward(Q, K, V, O, dO, L)


for f in (keep_P, recompute):
    with Memory() as mem:
        f(Q, K, V, dO)
    print(f"modelled, {f.__name__:<10} {mem.matmul_flops / 2 / N / N / d:.0f} products, {mem.hbm_peak / 2**20:5.2f} MiB of HBM at the peak")
print(f"you said {my_extra} % more")

# %% [markdown]
# **Compare.** Seven products for six. And the memory? Double $N$ and look at what the peak does.

# %%
print("modelled peak, MiB:        keep P   recompute")
for N in (256, 512, 1024):
    tensors = [torch.randn(N, d) for _ in range(4)]
    peaks = []
    for f in (keep_P, recompute):
        with Memory() as mem:
            f(*tensors)
        peaks.append(mem.hbm_peak / 2**20)
    print(f"N = {N:<6}{peaks[0]:>24.2f}{peaks[1]:>12.2f}")

# %% [markdown]
# **Takeaway.** A sixth more products buy memory that grows with $N$ and not with $N^2$.

# %% [markdown]
# ## $D$ without a row of $P$
#
# One thing stands in the way of tiles: $D_i = \sum_j P_{ij}\, dP_{ij}$ runs over all keys, and a tile shows a few. The forward had the same trouble with the maximum. This time there is a way around it:
#
# $$D_i = \sum_j P_{ij}\,(dO_i \cdot V_j) = dO_i \cdot \sum_j P_{ij} V_j = dO_i \cdot O_i.$$
#
# A sum over $d$ columns of two things that are there already. This cell shows it, and on purpose what a tile's own sum would give.

# %%
N = 512
Q, K, V, dO = (torch.randn(N, d) for _ in range(4))
O, L = fa2_forward(Q, K, V)
P = torch.softmax(Q @ K.T * d**-0.5, dim=-1)
dP = dO @ V.T
D = (P * dP).sum(-1)
print(f"rowsum(dO∘O) is off by {max_error((dO * O).sum(-1), D.double()):.1e}")
print(f"a tile's own sum:      {max_error((P * dP)[:, :64].sum(-1), D.double()):.1e}, where the largest |D| is {D.abs().max():.2f}")

# %% [markdown]
# **Takeaway.** $L$ makes every tile of $P$ independent of the others, and $D$ every tile of $dS$. Nothing is left that has to run along a row.

# %% [markdown]
# ## FA1's backward
#
# [The published Algorithm 4](https://arxiv.org/abs/2205.14135) has FA1's loops: key block outside, query block inside. $dK_j$ and $dV_j$ stay on chip. $dQ_i$ collects a part from every key block, so it travels: fetched, added to, put back, at each step.

# %%
print(inspect.getsource(fa1_backward._step))

# %%
O, l, m = fa1_forward(Q, K, V, return_lm=True)
with Memory() as mem1:
    grads = fa1_backward.fa1_backward(Q, K, V, O, dO, l, m, B_r=48, B_c=48)
print(judge_gradients(*grads, Q, K, V, dO))
print("modelled = formula:", mem1.read == cost.fa1_backward(N, N, d, B_r=48, B_c=48).read)

# %% [markdown]
# **Dropout.** The forward dropped weights with a random mask of $N \times N$ bits. The backward needs the same mask, and keeping it would cost $N^2$ memory again. So keep the random generator's *state*, a few kilobytes, and draw again in the same order. **Predict**: does it matter if the backward uses other tile sizes than the forward?

# %%
my_tiles_matter = None     # True or False

# %%
state = torch.Generator().manual_seed(1).get_state()
options = dict(dropout_p=0.2, rng_state=state)
O, l, m = fa1_forward(Q, K, V, **options, B_r=64, B_c=64, return_lm=True)
right = fa1_backward.fa1_backward(Q, K, V, O, dO, l, m, **options, B_r=64, B_c=64)
again = fa1_backward.fa1_backward(Q, K, V, O, dO, l, m, **options, B_r=64, B_c=64)
other = fa1_backward.fa1_backward(Q, K, V, O, dO, l, m, **options, B_r=64, B_c=32)
print(f"same tiles, dV differs by {max_error(again[2], right[2]):.1f}; other tiles: {max_error(other[2], right[2]):.1f}; "
      f"you said {my_tiles_matter}")

# %% [markdown]
# The numbers come in the order in which they are drawn, so other tiles mean another mask, silently. Chapter 11 does it without this trap.
#
# **Takeaway.** What is random can be recomputed, too, if you keep where the dice stood.

# %% [markdown]
# ## FA2's backward
#
# FA2 changes three things: $D$ is computed once, by a small kernel before the loops, so that $O$ stays out of them; $L$ replaces $l$ and $m$; and causal tiles that nobody sees are skipped. The step, as a diff against FA1's:

# %%
before, after = inspect.getsource(fa1_backward._step), inspect.getsource(fa2_backward._step_j)
for line in difflib.unified_diff(before.splitlines(), after.splitlines(), "fa1_backward", "fa2_backward", lineterm="", n=0):
    if not line.startswith("@@"):
        print(line[:118])

# %%
O, L = fa2_forward(Q, K, V, causal=True)
with Memory() as mem2:
    grads = fa2_backward.fa2_backward(Q, K, V, O, dO, L, causal=True)
print(judge_gradients(*grads, Q, K, V, dO, causal=True))
print(mem2.table())

# %% [markdown]
# ## Who may write $dQ$?
#
# On a GPU the key blocks run at the same time, and each adds to the same $dQ_i$. A hardware addition (an *atomic*) makes that safe. But in which order do the parts arrive? **Predict**: do two orders give the same bits?

# %%
my_same_bits = None     # True or False

# %%
S = Q @ K.T * d**-0.5
dS = torch.softmax(S, dim=-1) * (dP - D[:, None])
parts = [dS[:, cols] @ K[cols] * d**-0.5 for cols in tiles(N, 64)]          # what each key block adds to dQ
dQ_1 = sum(parts)
dQ_2 = sum(parts[n] for n in torch.randperm(len(parts)))
print(f"same bits: {torch.equal(dQ_1, dQ_2)}; they differ by {max_error(dQ_1, dQ_2.double()):.0e}; you said {my_same_bits}")

# %% [markdown]
# Tiny, but the next run of your training differs from this one, and a bug that you are hunting moves. There is a second price: $dQ$ crosses HBM twice in every step, in float32 even where the inputs have 16 bits, because a sum must not be rounded on the way.

# %% [markdown]
# The way out is **two passes**: one kernel holds a key block and collects $dK_j$, $dV_j$; another holds a query block and collects $dQ_i$. Each gradient is written once, by one program. The price: $S$ and $dP$ are computed twice. **Predict** which moves fewer bytes in bfloat16, and how many products the two passes take (one kernel: five).

# %%
my_choice, my_products = None, None     # "one kernel" or "two passes", a number

# %%
Q, K, V, dO = (torch.randn(N, d).bfloat16() for _ in range(4))
O, L = fa2_forward(Q, K, V)
O1, l, m = fa1_forward(Q, K, V, return_lm=True)
logs = {}
for f, saved in ((fa1_backward.fa1_backward, (O1, dO, l, m)), (fa2_backward.fa2_backward, (O, dO, L)),
                 (fa2_backward.fa2_backward_two_pass, (O, dO, L))):
    with Memory() as mem:
        grads = f(Q, K, V, *saved)
    logs[f.__name__] = mem.log
    assert judge_gradients(*grads, Q, K, V, dO).ok
    print(f"modelled: {f.__name__:<22} {mem.matmul_flops / 2 / N / N / d:.0f} products, {mem.read + mem.written:>9,} bytes")
print(f"you said {my_choice}, {my_products} products")

# %%
figures.traffic_by_tensor(logs)

# %% [markdown]
# **Compare.** More than half of the one-kernel traffic is $dQ$ on its way in and out. Two passes read $K$ and $V$ again instead, which is cheaper. FlashAttention's own CUDA code takes the one kernel with atomics, five products, and offers a slower deterministic mode. Triton's tutorial takes two passes, and so does chapter 11.
#
# **Takeaway.** Two passes: each gradient written once, the same bits every time, less traffic in 16 bits, and 7 products for 5.

# %% [markdown]
# ## Hand it to autograd
#
# `torch.autograd.Function` ties a forward pass to a backward pass of your own. Between the two it keeps what you save, here $Q$, $K$, $V$, $O$ and $L$: nothing with $N^2$ elements.

# %%
class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Q, K, V, causal):
        O, L = fa2_forward(Q, K, V, causal=causal)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal = causal                                      # what is no tensor is kept on ctx itself
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable                 # of the gradients themselves there is no derivative
    def backward(ctx, dO):
        Q, K, V, O, L = ctx.saved_tensors
        dQ, dK, dV = fa2_backward.fa2_backward_two_pass(Q, K, V, O, dO, L, causal=ctx.causal)
        return dQ, dK, dV, None                                  # one for each argument of forward

# %% [markdown]
# `gradcheck` trusts nobody: it moves every input by a millionth, watches the output, and compares the differences with what the backward claims. It wants float64, or the differences drown in rounding.

# %%
Q, K, V = (torch.randn(n, x).double().requires_grad_() for n, x in ((6, 4), (5, 4), (5, 3)))
for causal in (False, True):
    print("gradcheck:", torch.autograd.gradcheck(lambda Q, K, V: Attention.apply(Q, K, V, causal), (Q, K, V)))

# %% [markdown]
# Does gradcheck notice a mistake? Here is a backward that forgets the scale in $dK$. This cell fails on purpose.

# %%
class Forgetful(Attention):
    @staticmethod
    def backward(ctx, dO):
        dQ, dK, dV, _ = Attention.backward(ctx, dO)
        return dQ, dK / Q.shape[1]**-0.5, dV, None


try:
    torch.autograd.gradcheck(lambda Q, K, V: Forgetful.apply(Q, K, V, False), (Q, K, V))
except RuntimeError as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# And the derivative of a derivative? $dQ$ depends on $Q$, but autograd cannot see how. `once_differentiable` makes $dQ$ look like a constant: this sum fails, but inside a larger loss the term would be lost in silence. The course's own operator, below, refuses in words. Both fail on purpose.

# %%
operator = lambda Q, K, V: flashlab.flash_attention(Q[None, None], K[None, None], V[None, None])
for function in (lambda Q, K, V: Attention.apply(Q, K, V, False), operator):
    dQ, = torch.autograd.grad(function(Q, K, V).sum(), Q, create_graph=True)
    try:
        dQ.sum().backward()
    except RuntimeError as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")

# %% [markdown]
# `flashlab.flash_attention` is the same thing grown up: batches and heads, shared key heads, $L$ as a second output with a gradient of its own, and `torch.compile` takes it. A few steps of gradient descent, to see it move:

# %%
Q, K, V, target = (torch.randn(1, 2, 32, 8) for _ in range(4))
weights = [T.clone().requires_grad_() for T in (Q, K, V)]
for step in range(4):
    loss = (flashlab.flash_attention(*weights, causal=True) - target).square().mean()
    truth = torch.autograd.grad(loss, weights)
    print(f"step {step}: loss {loss.item():.4f}")
    weights = [(w - 20 * g).detach().requires_grad_() for w, g in zip(weights, truth, strict=True)]

# %% [markdown]
# **Takeaway.** Save inputs, output and $L$; return one gradient for each input; check with gradcheck; refuse what you have no formula for.

# %% [markdown]
# ## Find the bug in the published line
#
# Notes on this algorithm circulate with small errors, copied by hand. In one set, FA1's backward divides what dropout keeps by $1 + p$. Training would still run: a wrong scale raises no error and changes no shape. This cell goes wrong on purpose.

# %%
keep = torch.rand(N, N) >= 0.2
Q, K, V, dO = (torch.randn(N, d) for _ in range(4))
dQ, dK, dV = gradients(Q, K, V, dO, dropout_p=0.2, keep=keep)
wrong = gradients(Q, K, V, dO, dropout_p=-0.2, keep=keep)                   # 1 - (-p) = 1 + p
print(f"dV too small by a factor of {(dV / wrong[2]).mean():.3f}, everywhere: (1 + p) / (1 - p) = {1.2 / 0.8:.3f}")

# %% [markdown]
# ## Your turn
#
# **The gradient of a matrix product** ([exercises/ex08_matmul_gradient.py](../exercises/ex08_matmul_gradient.py), 15 minutes). $dX = dY\,W^\top$, $dW = X^\top dY$.

# %%
from flashlab.check import check

check("ex08_matmul_gradient")

# %% [markdown]
# **The gradient of a softmax** ([exercises/ex08_softmax_gradient.py](../exercises/ex08_softmax_gradient.py), 20 minutes). From $P$ and $dP$ to $dS$, without a Jacobian.

# %%
check("ex08_softmax_gradient")

# %% [markdown]
# **$D$ without $P$** ([exercises/ex08_D.py](../exercises/ex08_D.py), 20 minutes). One program of the small kernel before the loops, every byte counted: $D_i = dO_i \cdot O_i$.

# %%
check("ex08_D")

# %% [markdown]
# **A tile of $P$, and of $dV$** ([exercises/ex08_dv_tile.py](../exercises/ex08_dv_tile.py), 20 minutes). $P_{ij} = e^{S_{ij} - L_i}$, then $P_{ij}^\top dO_i$.

# %%
check("ex08_dv_tile")

# %% [markdown]
# **A tile of $dS$** ([exercises/ex08_ds_tile.py](../exercises/ex08_ds_tile.py), 20 minutes). $dS_{ij} = P_{ij} \circ (dP_{ij} - D_i)$, and what it gives to $dQ_i$ and $dK_j$.

# %%
check("ex08_ds_tile")

# %% [markdown]
# **$dQ$ of a query block** ([exercises/ex08_dq_block.py](../exercises/ex08_dq_block.py), 35 minutes). The second pass as a whole program: causal, ragged, every byte counted.

# %%
check("ex08_dq_block")

# %% [markdown]
# **autograd.Function** ([exercises/ex08_autograd_function.py](../exercises/ex08_autograd_function.py), 20 minutes). Who keeps what, and who gets which gradient.

# %%
check("ex08_autograd_function")

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Algorithm 4 and appendix B. Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), section 3.1.2 and Algorithm 2. PyTorch's notes on [extending autograd](https://docs.pytorch.org/docs/stable/notes/extending.html).
#
# **Next:** [09 · Triton basics](09_triton_basics.ipynb): the language in which chapters 10 and 11 write the kernels.
