# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11 · The backward kernels in Triton
#
# **You will be able to** turn chapter 08's two passes into GPU kernels, say why they are two, give dropout a mask that nobody stores, and train with the result.
#
# **You need** chapters 08 and 10. · **60 minutes** · **runs on** CPU (interpreted) or GPU (compiled); Triton, so Linux
#
# The mathematics is done and so are the tiles. What is new is who runs what at the same time, how a tile lies in registers, and a few places where the forward's habits would be wrong.

# %%
import flashlab  # first: it tells Triton where to run
from flashlab.doctor import as_text, check_triton, import_triton
from flashlab.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import inspect
import warnings

import torch
import triton
import triton.language as tl

from flashlab import figures
from flashlab.rungs import fa2_backward
from flashlab.kernels import fa2_backward as kernels
from flashlab.kernels.dropout import dropout_keep_mask
from flashlab.compiler import interpreted
from flashlab.kernels.fa2 import fa2_triton_forward
from flashlab.kernels.fa2_backward import fa2_triton_backward
from flashlab.rungs.naive_backward import naive_backward
from flashlab.oracle import attention, judge_gradients, max_error

torch.manual_seed(0)
warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")     # numpy's, where we make inf on purpose
device, how = ("cpu", "interpreted") if interpreted() else ("cuda", "compiled")

# %% [markdown]
# ## Three launches
#
# | kernel | one program owns | walks over | writes |
# |---|---|---|---|
# | `preprocess` | query block $i$ | nothing | $D_i$, and $L_i$ in base 2 |
# | `dkdv` | key block $j$ | query blocks | $dK_j$, $dV_j$ |
# | `dq` | query block $i$ | key blocks | $dQ_i$ |
#
# Each gradient has one owner, which writes it once. One kernel for all three would have to add to $dQ$ from many programs at once (chapter 08). **Predict** the three grids for 2 sequences, 8 query heads on 2 key heads, $N = 1000$, and tiles of 128 by 128 (`preprocess`: 32 rows).

# %%
my_grids = {"preprocess": None, "dkdv": None, "dq": None}

# %%
Q = torch.empty(2, 8, 1000, 64, device="meta")
K = torch.empty(2, 2, 1000, 64, device="meta")
launches = kernels.launch(Q, K, K, Q, Q, Q[..., 0], None, Q, K, K, causal=True, scale=0.125, B_r=128, B_c=128)
print("programs:", {kernel.fn.__name__: grid[0] for kernel, grid, _ in launches})
print("you said:", my_grids)

# %% [markdown]
# **Takeaway.** Ownership decides the grid: `dkdv` has fewer programs where key heads are shared, and each of them works for a whole group of query heads.

# %% [markdown]
# ## First launch: $D$, and $L$ in another base
#
# $D_i = dO_i \cdot O_i$ is a row sum. The same kernel also prepares $L$: a GPU has an instruction for powers of 2, not of $e$, and $e^{S-L} = 2^{S \log_2 e - L \log_2 e}$. Multiplying $L$ once per row here spares it once per element later.

# %%
@triton.jit
def preprocess_kernel(O, dO, L, D, L_log2, N, d: tl.constexpr, B_r: tl.constexpr):
    rows = tl.program_id(0) * B_r + tl.arange(0, B_r)                            # (B_r,)
    at = rows[:, None] * d + tl.arange(0, d)                                     # (B_r, d)    contiguous, one head
    O_i = tl.load(O + at, mask=rows[:, None] < N, other=0.0)
    dO_i = tl.load(dO + at, mask=rows[:, None] < N, other=0.0)
    L_i = tl.load(L + rows, mask=rows < N)
    L_i = tl.where(L_i == -float("inf"), float("inf"), L_i)                      # see below
    tl.store(D + rows, tl.sum(O_i * dO_i, 1), mask=rows < N)
    tl.store(L_log2 + rows, L_i * 1.4426950408889634, mask=rows < N)             # log2(e)


N, d, scale = 96, 16, 0.25
Q, K, V, dO = (torch.randn(N, d, device=device) for _ in range(4))
O, L = (T[0, 0] for T in fa2_triton_forward(Q[None, None], K[None, None], V[None, None], scale=scale))
D, L_log2 = torch.empty_like(L), torch.empty_like(L)
preprocess_kernel[(triton.cdiv(N, 32),)](O, dO, L, D, L_log2, N, d, 32)
print(f"{how}: D off by {max_error(D, (dO.double() * O.double()).sum(-1)):.0e}")

# %% [markdown]
# A row that sees no key has $L = -\infty$, and $S - (-\infty)$ would be $+\infty$. Stored as $+\infty$ instead, the same row gives $2^{S - \infty} = 0$: no weight, no gradient, and no special case in the two large kernels.

# %% [markdown]
# ## Second launch: stand the tile on its side
#
# `dkdv` computes $dV_j \mathrel{+}= P_{ij}^\top dO_i$. A tensor core takes its left factor from registers, where the last product left it, if the layout fits. $P_{ij}^\top$ would not fit: transposing crosses threads, through shared memory. **Predict** which product gives $P^\top$ without any transposing of results.

# %%
my_product = None     # "Q K^T" or "K Q^T"

# %% [markdown]
# $S^\top = K_j Q_i^\top$: the same numbers with keys in rows. $Q_i$ is transposed while it is read from shared memory, which costs nothing. The per-row numbers $L_i$ and $D_i$ now lie along the columns.

# %%
@triton.jit
def dkdv_kernel(Q, K, V, dO, L_log2, D, dK, dV, scale, N_q, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    keys, col = tl.program_id(0) * B_c + tl.arange(0, B_c), tl.arange(0, d)
    K_j, V_j = tl.load(K + keys[:, None] * d + col), tl.load(V + keys[:, None] * d + col)     # (B_c, d)
    dK_j, dV_j = tl.zeros((B_c, d), tl.float32), tl.zeros((B_c, d), tl.float32)
    for i in range(0, tl.cdiv(N_q, B_r)):
        rows = i * B_r + tl.arange(0, B_r)
        Q_i = tl.load(Q + rows[:, None] * d + col, mask=rows[:, None] < N_q, other=0.0)       # (B_r, d)
        dO_i = tl.load(dO + rows[:, None] * d + col, mask=rows[:, None] < N_q, other=0.0)     # (B_r, d)
        L_i = tl.load(L_log2 + rows, mask=rows < N_q, other=float("inf"))                     # (B_r,)   past the end: P = 0
        D_i = tl.load(D + rows, mask=rows < N_q, other=0.0)                                   # (B_r,)
        S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                                      # (B_c, B_r)
        P_T = tl.exp2(S_T * (scale * 1.4426950408889634) - L_i)                               # (B_c, B_r)
        dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                                    # (B_c, B_r)
        dS_T = P_T * (dP_T - D_i)                                                             # (B_c, B_r)
        dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")                      # (B_c, d)
        dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")                       # (B_c, d)
    tl.store(dK + keys[:, None] * d + col, dK_j * scale)
    tl.store(dV + keys[:, None] * d + col, dV_j)

# %% [markdown]
# Hold it against chapter 08's second rung, tile for tile: the same $Q$, $K$, $V$, $O$, $dO$, $L$ go into both.

# %%
dK, dV = torch.empty_like(K), torch.empty_like(V)
dkdv_kernel[(N // 32,)](Q, K, V, dO, L_log2, D, dK, dV, scale, N, d, 16, 32)
_, dK_rung, dV_rung = fa2_backward.fa2_backward_two_pass(Q, K, V, O, dO, L, scale=scale, B_r=16, B_c=32)
print(f"{how}: dK differs from the rung's by {max_error(dK, dK_rung.double()):.0e}, dV by {max_error(dV, dV_rung.double()):.0e}")

# %% [markdown]
# **Takeaway.** Choose the orientation in which the next product wants the tile. Here that is $S^\top$, and nothing is ever transposed.

# %% [markdown]
# ## Third launch: a mask that must not be forgotten
#
# In `dkdv` no mask was needed beyond the loads: a key past the end has a row of its own, which is not stored. In `dq` keys lie along the sum. A padded key is loaded as 0, its score is 0, and its weight is $2^{0 - L}$. It meets $K_j = 0$, so why care? **Predict** what comes out if all scores are about $-300$.

# %%
my_padded = None

# %%
@triton.jit
def dq_kernel(Q, K, V, dO, L_log2, D, dQ, scale, N_k, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr, masked: tl.constexpr):
    rows, col = tl.program_id(0) * B_r + tl.arange(0, B_r), tl.arange(0, d)
    Q_i, dO_i = tl.load(Q + rows[:, None] * d + col), tl.load(dO + rows[:, None] * d + col)   # (B_r, d)
    L_i, D_i = tl.load(L_log2 + rows), tl.load(D + rows)                                      # (B_r,)
    dQ_i = tl.zeros((B_r, d), tl.float32)
    for j in range(0, tl.cdiv(N_k, B_c)):
        keys = j * B_c + tl.arange(0, B_c)
        K_j = tl.load(K + keys[:, None] * d + col, mask=keys[:, None] < N_k, other=0.0)       # (B_c, d)
        V_j = tl.load(V + keys[:, None] * d + col, mask=keys[:, None] < N_k, other=0.0)       # (B_c, d)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                                     # (B_r, B_c)
        P_ij = tl.exp2(S_ij * (scale * 1.4426950408889634) - L_i[:, None])                    # (B_r, B_c)
        if masked:
            P_ij = tl.where(keys < N_k, P_ij, 0.0)
        dP_ij = tl.dot(dO_i, V_j.T, input_precision="ieee")                                   # (B_r, B_c)
        dS_ij = P_ij * (dP_ij - D_i[:, None])                                                 # (B_r, B_c)
        dQ_i += tl.dot(dS_ij.to(K_j.dtype), K_j, input_precision="ieee")                      # (B_r, d)
    tl.store(dQ + rows[:, None] * d + col, dQ_i * scale)

# %%
for far, N_k in ((False, 96), (False, 90), (True, 90)):
    q, k, v = (Q.abs() * 10, -K.abs() * 10, V) if far else (Q, K, V)
    O, L = (T[0, 0] for T in fa2_triton_forward(q[None, None], k[None, None, :N_k], v[None, None, :N_k], scale=scale))
    preprocess_kernel[(3,)](O, dO, L, D, L_log2, N, d, 32)
    for masked in (True, False):
        dQ = torch.empty_like(Q)
        dq_kernel[(N // 32,)](q, k, v, dO, L_log2, D, dQ, scale, N_k, d, 32, 32, masked)
        truth, _, _ = fa2_backward.fa2_backward_two_pass(q, k[:N_k], v[:N_k], O, dO, L, scale=scale)
        print(f"{N_k} keys, {'far below 0' if far else 'around 0':<11} {'masked' if masked else 'no mask':<8}"
              f"off by {max_error(dQ, truth.double()):.0e}")
print("you said:", my_padded)

# %% [markdown]
# **Compare.** Without the mask ordinary scores give the right answer, since the weight meets $K_j = 0$. Far below zero the weight overflows, and $\infty \cdot 0$ is NaN. A test with ordinary random numbers would never have told.
#
# **Takeaway.** "It is multiplied by 0 anyway" is true of numbers, not of $\infty$.

# %% [markdown]
# ## Causal: where each loop starts and ends
#
# `dq` stops early, as the forward does. `dkdv` has it the other way round: key block $j$ is seen by *late* queries, so its loop starts late, at query block $\lfloor \max(0,\; j B_c + N_q - N_k)/B_r \rfloor$. **Predict** that start for $j = 3$, $B_c = 128$, $B_r = 64$, $N_q = N_k$.

# %%
my_start = None

# %%
from flashlab.memory import Memory, tiles

print("start:", max(0, 3 * 128 + 0) // 64, "you said:", my_start)
O, L = (T[0, 0] for T in fa2_triton_forward(*(T[None, None] for T in (Q, K, V)), causal=True))
with Memory() as mem:
    fa2_backward.fa2_backward_two_pass(Q, K, V, O, dO, L, causal=True, B_r=16, B_c=32)
seen = [(event.kernel, event.rows) for event in mem.log if event.kind == "load" and event.name == "Q"]
loads = [rows[0] // 16 for kernel, rows in seen if kernel == "fa2_backward_dkdv"]
print("query blocks that each key block of 32 visits, modelled:", loads, f"of {len(tiles(N, 16))} each")

# %% [markdown]
# **Takeaway.** Causal work is uneven. The first key block sees all queries, the last only a few: `dkdv` launches the first ones first, `dq` the last ones, so that the long programs do not start late.

# %% [markdown]
# ## Shared key heads
#
# With grouped-query attention several query heads read one key head, and $dK$ is the **sum** over them. The program that owns $dK_j$ simply walks all of them: one loop over pairs (head of the group, query block). No atomics, no extra memory, the same bits every time. Here is the real kernel; find that loop.

# %%
print(inspect.getsource(kernels.dkdv_kernel.fn))

# %% [markdown]
# New besides: strides and 64-bit offsets as in chapter 10, column masks for $d$ that is no power of two, and the addresses of the outputs, made from scratch at the end so that they take up no registers during the loop.

# %% [markdown]
# ## Is it right?
#
# Every dtype, masked or not, ragged, $d_v \ne d$, grouped heads. Allowed is three times the error of naive attention's gradients in the same dtype, against float64.

# %%
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    for causal in (False, True):
        Q, K, V, dO = (torch.randn(1, h, n, x, device=device).to(dtype) for h, n, x in
                       ((4, 97, 59), (2, 113, 59), (2, 113, 40), (4, 97, 40)))
        O, L = fa2_triton_forward(Q, K, V, causal=causal, B_r=32, B_c=64)
        grads = fa2_triton_backward(Q, K, V, O, dO, L, causal=causal, B_r=32, B_c=64)
        verdict = judge_gradients(*grads, Q, K, V, dO, causal=causal)
        assert verdict.ok
        print(f"{how}, {str(dtype)[6:]:<8} {'causal ' if causal else 'no mask'} {verdict}")
again = fa2_triton_backward(Q, K, V, O, dO, L, causal=causal, B_r=32, B_c=64)
print("same bits on a second run:", all(torch.equal(a, b) for a, b in zip(grads, again, strict=True)))

# %% [markdown]
# ## Dropout that nobody stores
#
# Chapter 05 drew the mask from a generator whose state moves with each draw, so the order of the tiles mattered. A **counter-based** generator has no state: a random number is a function of a seed and a counter, $u = f(\text{seed}, c)$, scrambled so well that neighbours look unrelated. Take the weight's place in $P$ for the counter. **Predict**: what must now agree between forward and backward?

# %%
my_agreement = None     # some of: "seed", "tile sizes", "order of the programs", "number of warps"

# %%
@triton.jit
def keep_kernel(Out, seed, N_k, p, B_r: tl.constexpr, B_c: tl.constexpr):
    rows = tl.program_id(0) * B_r + tl.arange(0, B_r)
    keys = tl.program_id(1) * B_c + tl.arange(0, B_c)
    position = rows[:, None] * N_k + keys                                        # (B_r, B_c)   the weight's place in P
    tl.store(Out + position, tl.rand(seed, position) >= p)                       # Philox: ten rounds of multiply and xor


masks = []
for B_r, B_c in ((16, 64), (32, 16)):
    mask = torch.empty(64, 64, dtype=torch.int8, device=device)
    keep_kernel[(64 // B_r, 64 // B_c)](mask, 7, 64, 0.25, B_r, B_c)
    masks.append(mask.bool())
print("same mask from other tiles:", torch.equal(*masks), "- and from PyTorch:",
      torch.equal(masks[0].cpu(), dropout_keep_mask(1, 1, 64, 64, 0.25, 7)[0, 0]), "- you said", my_agreement)
print(f"kept: {masks[0].float().mean():.3f}")

# %% [markdown]
# Only the seed. Forward, `dkdv` and `dq` each draw what they need, wherever they are. In the kernels it is one line each: $P$ and $dP$ are multiplied by `kept`, which is 0 or $1/(1-p)$. Against the PyTorch rung, given the same mask as a tensor:

# %%
p, seed = 0.25, torch.tensor(7, device=device)
Q, K, V, dO = (torch.randn(1, 1, 64, 16, device=device) for _ in range(4))
O, L = fa2_triton_forward(Q, K, V, causal=True, dropout_p=p, seed=seed, B_r=32, B_c=16)
grads = fa2_triton_backward(Q, K, V, O, dO, L, causal=True, dropout_p=p, seed=seed, B_r=16, B_c=32)
keep = dropout_keep_mask(1, 1, 64, 64, p, seed)[0, 0].to(device)
rung = naive_backward(*(T[0, 0] for T in (Q, K, V, dO)), causal=True, dropout_p=p, keep=keep)
print(f"{how}: O off by {max_error(O, attention(Q, K, V, causal=True, dropout_p=p, keep=keep)[0]):.0e}, gradients differ from "
      f"naive's by {max(max_error(a[0, 0], b.double()) for a, b in zip(grads, rung, strict=True)):.0e}")

# %% [markdown]
# **Takeaway.** A random number as a function of its place needs no order, no state and no memory. The price is arithmetic: each of the three kernels makes every number again; we have not timed it.

# %% [markdown]
# ## Train with it
#
# `flashlab.flash_attention` puts it together. Without a seed it draws one from PyTorch's own generator, so `torch.manual_seed` makes a run reproducible.

# %%
results = []
for _ in range(2):
    torch.manual_seed(3)
    Q, K, V = (torch.randn(1, h, 40, 16, device=device, requires_grad=True) for h in (4, 2, 2))
    O = flashlab.flash_attention(Q, K, V, causal=True, dropout_p=0.1, backend="triton")
    O.square().mean().backward()
    results.append([O, Q.grad, K.grad, V.grad])
print("same bits after the same torch.manual_seed:", all(torch.equal(a, b) for a, b in zip(*results, strict=True)))

# %% [markdown]
# ## What the compiler makes of it
#
# `dkdv` holds two sums of $B_c \times d$ in float32 beside $P^\top$ and $dP^\top$: far more than the forward. A thread has 255 registers at most; what does not fit *spills* to memory. **Predict** which of these tiles spill on an H100 at $d = 128$.

# %%
my_spills = {"64 x 128, 8 warps": None, "32 x 128, 4 warps": None, "128 x 128, 8 warps": None}

# %%
from flashlab.compiler.ahead_of_time import compile_all

X = torch.empty(1, 16, 4096, 128, dtype=torch.bfloat16, device="meta")
_, dkdv, dq = kernels.launch(X, X, X, X, X, torch.empty(1, 16, 4096, device="meta"), None, X, X, X, causal=True, scale=128**-0.5)
choices = [(dkdv[0], dkdv[2], 64, 128, 8), (dkdv[0], dkdv[2], 32, 128, 4), (dkdv[0], dkdv[2], 128, 128, 8), (dq[0], dq[2], 128, 64, 8)]
jobs = [(kernel, given | {"B_r": B_r, "B_c": B_c, "num_warps": warps}, 90) for kernel, given, B_r, B_c, warps in choices]
for (kernel, _, B_r, B_c, warps), gpu in zip(choices, compile_all(jobs), strict=True):
    print(f"{kernel.fn.__name__:<12}{B_r:>4} x {B_c:<4}{warps} warps: {gpu.registers} registers, {gpu.spills:>4} bytes spilled, "
          f"{gpu.shared_bytes // 1024} KiB shared, wgmma {'yes' if 'wgmma' in gpu.ptx else 'no'}{' (serialised)' if gpu.warnings else ''}")
print("you said:", my_spills)

# %% [markdown]
# **Takeaway.** Registers set the tile size of a backward kernel, long before shared memory does.

# %% [markdown]
# ## On an H100
#
# The backward counts 2.5 times the forward's operations, five products for two; what the second pass computes again does not count. So 7 products at a matmul's speed would show as five sevenths of the dashed line. **Predict** how the kernel stands beside PyTorch's own FlashAttention-2 (SDPA flash) at $N = 4096$, causal.

# %%
my_ratio = None     # of TFLOP/s

# %%
from flashlab.bench import load_results, where

results = load_results("backward_h100")
at = {row["implementation"]: row for row in results["rows"] if (row["d"], row["N"], row["causal"]) == (128, 4096, True)}
print(f"recorded on {where(results)}: {at['fa2_triton_backward']['vs_sdpa_flash']:.2f} times; you said {my_ratio}")
figures.tflops(results, causal=True)

# %%
figures.peak_memory_against_N(results, causal=True)

# %% [markdown]
# **Compare.** Memory, forward and backward together, is where it all began: naive attention's doubles with every doubling of $N$ at the same number of tokens, the kernel's does not move. cuDNN's kernel is faster still; where such factors come from is the subject of chapter 12.
#
# **Takeaway.** Three plain kernels, exact and reproducible, train at any length that fits.

# %% [markdown]
# ## Your turn
#
# **$dK$ and $dV$** ([exercises/ex11_dkdv.py](../exercises/ex11_dkdv.py), 40 minutes). The inner loops of the kernel: strides, tails, causal, and every query head of the group.

# %%
from flashlab.check import check

check("ex11_dkdv")

# %% [markdown]
# **Dropout, backwards** ([exercises/ex11_dropout.py](../exercises/ex11_dropout.py), 20 minutes). Which $P$ meets $V$, which $P$ is in the softmax's gradient, and what multiplies $dP$.

# %%
check("ex11_dropout")

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 2 · Salmon, Moraes, Dror, Shaw 2011, [Parallel random numbers: as easy as 1, 2, 3](https://doi.org/10.1145/2063384.2063405) · Ainslie et al. 2023, [GQA](https://arxiv.org/abs/2305.13245) · Triton's tutorials on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html) and [low-memory dropout](https://triton-lang.org/main/getting-started/tutorials/04-low-memory-dropout.html)
#
# **Next:** [16 · Benchmarks](16_benchmarks.ipynb) puts a clock on the forward kernel, beside every attention that PyTorch has.
