# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 · The forward kernel in Triton
#
# **You will be able to** write FlashAttention-2's forward pass as a Triton kernel, from the launch grid to the last mask; explain each line of it; and say what the interpreter on a CPU proves and what it hides.
#
# **You need** chapters 06 and 09. · **60 minutes** · **runs on** CPU (interpreted) or GPU (compiled); Triton, so Linux
#
# Chapter 06 has the algorithm, in PyTorch. Here it becomes one function that a GPU runs in thousands of copies. Each section adds one thing to a small kernel and checks it.

# %%
import flashlab  # first: it tells Triton where to run
from flashlab.doctor import as_text, check_triton, import_triton
from flashlab.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %% [markdown]
# With a GPU the kernels below are compiled for it. Without one Triton's interpreter runs the same source on CPU tensors, one program after the other: slow, but right, and a `print` or a debugger works inside.

# %%
import inspect
import warnings

import torch
import triton
import triton.language as tl

from flashlab import figures
from flashlab.rungs import fa2
from flashlab.rungs.fa2 import fa2_forward
from flashlab.compiler import interpreted
from flashlab.kernels.fa2 import fa2_forward_kernel, fa2_triton_forward, launch
from flashlab.memory import Memory
from flashlab.oracle import attention, judge, max_error

torch.manual_seed(0)
warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")     # numpy's, where we make NaN on purpose
device, how = ("cpu", "interpreted") if interpreted() else ("cuda", "compiled")

# %% [markdown]
# ## A kernel in five lines
#
# - It is launched as a **grid** of programs that run the same code; only `tl.program_id(0)` tells them apart.
# - It gets **pointers**: element $(n, c)$ lies at `pointer + n * stride_n + c * stride_c`.
# - It works on **tiles**: `tl.arange(0, B)` makes $B$ offsets at once ($B$ a power of two), `tl.load` takes a tile of addresses.
# - A **mask** says which addresses may be touched; `other` stands in for the rest.
# - `tl.constexpr` arguments are known when the kernel is compiled.

# %% [markdown]
# ## 1 · The grid
#
# In chapter 06 no query block needs another's result, so each one becomes a program: $B \cdot H \cdot \lceil N_q/B_r \rceil$ of them. **Predict** how many for 2 sequences, 3 heads, 100 queries and $B_r = 32$, and how many rows the last block of each head really has.

# %%
B, H, N_q, d, B_r = 2, 3, 100, 16, 32
my_programs, my_last_rows = None, None

# %% [markdown]
# **Run.** A program knows its number and nothing else. Division and remainder turn the number into a batch `b`, a head `h` and a query block `i`. This kernel only writes down who it is.

# %%
@triton.jit
def who_am_i_kernel(Out, H, T_r):
    program = tl.program_id(0)
    i, head = program % T_r, program // T_r          # neighbours are blocks of the same head: they share K and V in the L2 cache
    b, h = head // H, head % H
    tl.store(Out + program * 3 + 0, b)
    tl.store(Out + program * 3 + 1, h)
    tl.store(Out + program * 3 + 2, i)


T_r = triton.cdiv(N_q, B_r)                          # rounded up: the last block is short, not dropped
who = torch.full((B * H * T_r, 3), -1, dtype=torch.int32, device=device)
who_am_i_kernel[(B * H * T_r,)](who, H, T_r)

# %% [markdown]
# **Compare.** Every combination of `b`, `h` and `i` has to occur, and none twice.

# %%
seen = {tuple(row) for row in who.tolist()}
assert seen == {(b, h, i) for b in range(B) for h in range(H) for i in range(T_r)}
print(f"{len(who)} programs; your prediction: {my_programs}. Number 17 is (b, h, i) = {tuple(who[17].tolist())}")
print(f"the last block has {N_q - (T_r - 1) * B_r} of {B_r} rows; your prediction: {my_last_rows}")

# %% [markdown]
# **Takeaway.** The loop over query blocks is gone: it has become the grid. The number of tiles, $T_r \cdot T_c$ for each head, is the same as ever; more of them run at once.
#
# ## 2 · Load a tile, store a tile
#
# The first thing a program does is fetch its $Q_i$. A model often keeps $Q$ as (batch, row, head, $d$) and shows it as (batch, head, row, $d$): same memory, other strides. With strides as arguments the kernel need not care.

# %%
@triton.jit
def copy_kernel(Q, Out, stride_Qb, stride_Qh, stride_Qn, stride_Qd, H, N_q, last, d: tl.constexpr, B_r: tl.constexpr):
    T_r = tl.cdiv(N_q, B_r)
    i, head = tl.program_id(0) % T_r, tl.program_id(0) // T_r
    Q += head // H * stride_Qb + head % H * stride_Qh                # this head's first element
    rows = i * B_r + tl.arange(0, B_r)                               # (B_r,)
    col = tl.arange(0, d)                                            # (d,)
    Q_at = Q + rows[:, None] * stride_Qn + col * stride_Qd           # (B_r, d)   addresses
    Q_i = tl.load(Q_at, mask=rows[:, None] < N_q, other=0.0)         # (B_r, d)   0 where there is no row
    Out_at = Out + (head * N_q + rows)[:, None] * d + col            # (B_r, d)   Out is contiguous
    tl.store(Out_at, Q_i, mask=rows[:, None] < last)                 # right: last = N_q


Q = torch.randn(B, N_q, H, d, device=device).transpose(1, 2)         # (B, H, N_q, d), not contiguous

# %% [markdown]
# The store has a mask too, and its limit is an argument, so that we can get it wrong on purpose: `last = T_r * B_r` writes whole tiles. Behind `Out` lie 1000 numbers of someone else. **Predict** how many of them the unmasked store overwrites.

# %%
my_overwritten = None

# %%
for last in (T_r * B_r, N_q):
    room = torch.full((Q.numel() + 1000,), 7.0, device=device)       # Out, and behind it 1000 sevens
    Out = room[:Q.numel()].view(B, H, N_q, d)
    copy_kernel[(B * H * T_r,)](Q, Out, *Q.stride(), H, N_q, last, d, B_r)
    strays = int((room[Q.numel():] != 7).sum())
    print(f"rows < {last}: {strays} foreign numbers overwritten, Out equals Q: {torch.equal(Out, Q)}")
print("your prediction:", my_overwritten)

# %% [markdown]
# **Compare.** $28$ rows of $16$ zeros went past the end, with no error from anyone. Every other head wrote its 28 rows into the head after it; whether that shows depends on who came last. `Out equals Q` can be true by luck.
#
# **Takeaway.** A tile is always whole, memory is not: the mask is part of the address.

# %% [markdown]
# ## 3 · One tile of scores
#
# `tl.dot` multiplies two tiles, on the GPU's tensor cores where the dtype allows. $K_j$ is loaded by rows, as it lies in memory, so that neighbouring threads read neighbouring addresses; `.T` then turns the tile, not the memory.

# %%
@triton.jit
def one_tile_kernel(Q, K, S, scale, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    rows, keys, col = tl.arange(0, B_r), tl.arange(0, B_c), tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * d + col)                       # (B_r, d)
    K_j = tl.load(K + keys[:, None] * d + col)                       # (B_c, d)
    S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale        # (B_r, B_c)  "ieee": float32 stays float32, not TF32
    tl.store(S + rows[:, None] * B_c + keys, S_ij)


Q, K = (60 * torch.randn(16, 64, device=device, dtype=torch.float16) for _ in range(2))
S = torch.empty(16, 16, device=device)                               # float32
one_tile_kernel[(1,)](Q, K, S, 1.0, 64, 16, 16)
print(f"max |S - truth| = {max_error(S, Q.double() @ K.double().T):.2g}, where the largest |S| is {S.abs().max():.0f}")

# %% [markdown]
# $Q$ and $K$ are float16 and large, the scale is 1. float16 ends at 65504. **Predict**: had `tl.dot` returned float16, how many of the 256 scores would be infinite?

# %%
my_infinite = None

# %%
print(f"{int(S.half().isinf().sum())} of {S.numel()} in float16, {int(S.isinf().sum())} in the kernel's float32; "
      f"your prediction: {my_infinite}")

# %% [markdown]
# **Takeaway.** 16 bits go into `tl.dot`, 32 come out: everything a program adds up ($S_{ij}$, $l_i$, $O_i$) is float32.
#
# ## 4 · The running softmax
#
# Now chapter 06's inner step, line for line. `@triton.jit` functions may call one another and return several tiles. Nothing here touches memory: all of it lives in registers.

# %%
@triton.jit
def step(S_ij, V_j, O_i, l_i, m_i):
    m_new = tl.maximum(m_i, tl.max(S_ij, 1))                         # (B_r,)
    alpha = tl.exp(m_i - m_new)                                      # (B_r,)      0 the first time: m_i = -inf
    P_ij = tl.exp(S_ij - m_new[:, None])                             # (B_r, B_c)
    l_i = alpha * l_i + tl.sum(P_ij, 1)                              # (B_r,)
    PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")     # (B_r, d_v)  both sides of a dot have one dtype
    O_i = alpha[:, None] * O_i + PV                                  # (B_r, d_v)
    return O_i, l_i, m_new

# %% [markdown]
# Around it goes the loop over key tiles. To keep it bare, this kernel takes one head, contiguous, and pretends that $N_q$ and $N_k$ are multiples of the tile sizes: no masks at all.

# %%
@triton.jit
def row_block_kernel(Q, K, V, O, scale, N_k, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    rows, col = tl.program_id(0) * B_r + tl.arange(0, B_r), tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * d + col)                       # (B_r, d)    stays here for the whole loop
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                 # (B_r,)      below any score
    l_i = tl.zeros((B_r,), tl.float32)                               # (B_r,)
    O_i = tl.zeros((B_r, d), tl.float32)                             # (B_r, d)
    for j in range(0, N_k // B_c):
        keys = j * B_c + tl.arange(0, B_c)                           # (B_c,)
        K_j = tl.load(K + keys[:, None] * d + col)                   # (B_c, d)
        V_j = tl.load(V + keys[:, None] * d + col)                   # (B_c, d)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale    # (B_r, B_c)
        O_i, l_i, m_i = step(S_ij, V_j, O_i, l_i, m_i)
    tl.store(O + rows[:, None] * d + col, O_i / l_i[:, None])        # one division, at the end

# %% [markdown]
# **Predict**: 64 queries, 96 keys, tiles of $16 \times 16$, and logits 60 times larger than usual, which chapter 03 used to find missing corrections. How far off will $O$ be: about $10^{-7}$, $10^{-5}$, $10^{-1}$, or infinitely?

# %%
my_error = None

# %%
Q, K, V = 60 * torch.randn(64, 64, device=device), torch.randn(96, 64, device=device), torch.randn(96, 64, device=device)
O = torch.empty_like(Q)
row_block_kernel[(64 // 16,)](Q, K, V, O, 64**-0.5, 96, 64, 16, 16)
verdict = judge(O, None, Q, K, V)
print(f"ok: {verdict.ok}, O is off by {verdict.error_O:.1e}, naive attention may be by {verdict.bound_O:.1e}; your prediction: {my_error}")

# %% [markdown]
# The largest score of a row becomes $e^0$ and all others less, so nothing can overflow. Scores in the hundreds cost two of float32's seven digits, since $e^x$ turns an absolute error of $x$ into a relative one. Naive attention loses the same two.
#
# **Takeaway.** The body of a FlashAttention kernel is six lines of running softmax between two dots.
#
# ## 5 · Ragged tails
#
# 40 keys in tiles of 16 make two and a half tiles. What the last half contains is a choice, and three of four are wrong. `load_mask` guards the loads, `score_mask` the scores.

# %%
@triton.jit
def tail_kernel(Q, K, V, O, scale, N_q, N_k, load_mask: tl.constexpr, score_mask: tl.constexpr,
                d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    rows, col = tl.program_id(0) * B_r + tl.arange(0, B_r), tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * d + col, mask=rows[:, None] < N_q, other=0.0)
    m_i, l_i = tl.full((B_r,), -float("inf"), tl.float32), tl.zeros((B_r,), tl.float32)
    O_i = tl.zeros((B_r, d), tl.float32)
    for j in range(0, tl.cdiv(N_k, B_c)):                            # rounded up: the last tile is ragged
        keys = j * B_c + tl.arange(0, B_c)
        key_ok = keys < (N_k if load_mask else N_k + B_c)            # (B_c,)
        K_j = tl.load(K + keys[:, None] * d + col, mask=key_ok[:, None], other=0.0)
        V_j = tl.load(V + keys[:, None] * d + col, mask=key_ok[:, None], other=0.0)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale
        if score_mask:
            S_ij = tl.where(keys < N_k, S_ij, -float("inf"))         # e^-inf = 0: no weight
        O_i, l_i, m_i = step(S_ij, V_j, O_i, l_i, m_i)
    tl.store(O + rows[:, None] * d + col, O_i / l_i[:, None], mask=rows[:, None] < N_q)

# %% [markdown]
# Neither the interpreter nor a GPU complains when a load runs a little past a tensor: it gets whatever lies there. So we put something there that cannot be overlooked. `in_nan` places a tensor in a larger one that is NaN behind its last row.

# %%
def in_nan(T, rows=16):
    """The same values, with `rows` rows of NaN right behind them in memory."""
    room = T.new_full((len(T) + rows, T.shape[1]), float("nan"))
    room[:len(T)] = T
    return room[:len(T)]


N_q, N_k, d = 50, 40, 32
Q, K, V = (in_nan(torch.randn(n, d, device=device)) for n in (N_q, N_k, N_k))

# %% [markdown]
# **Predict** for each of the four: right, wrong but finite, or NaN? Mind the third: hidden scores, unguarded loads. Its weights for the keys that do not exist are exactly 0.

# %%
my_guess = {"no mask": None, "loads": None, "scores": None, "both": None}

# %% [markdown]
# **Run.** This cell goes wrong on purpose, three times.

# %%
results = {}
for name, masks in [("no mask", (False, False)), ("loads", (True, False)), ("scores", (False, True)), ("both", (True, True))]:
    O = torch.empty(N_q, d, device=device)
    tail_kernel[(triton.cdiv(N_q, 16),)](Q, K, V, O, d**-0.5, N_q, N_k, *masks, d, 16, 16)
    results[name] = O
    verdict = judge(O, None, Q, K, V)
    words = "right" if verdict.ok else "NaN" if O.isnan().any() else "wrong"
    print(f"{name:<8} {words:<6} off by {verdict.error_O:.1e}; your prediction: {my_guess[name]}")

# %% [markdown]
# **Compare.** With no mask, NaN keys make NaN scores. With scores alone, the weight is 0, but $0 \cdot \mathrm{NaN} = \mathrm{NaN}$: $P_{ij} V_j$ multiplies before it adds. Had ordinary numbers lain behind $V$, this one would have passed, until the day they are not ordinary.
#
# The second is the sly one: finite, smooth, wrong. A key of zeros scores 0, and $e^{0 - m}$ is a weight. It is attention over 48 keys, eight of them zero:

# %%
zeros = torch.zeros(8, d, device=device)
phantom, _ = attention(Q, torch.cat([K, zeros]), torch.cat([V, zeros]))
print(f"'loads' against attention with eight keys of zeros: {max_error(results['loads'], phantom):.1e}")

# %% [markdown]
# **Takeaway.** The load mask keeps garbage out of $V_j$, the score mask keeps padding out of the softmax. A ragged tail needs both.
#
# Padding $d$ is different: a head of 59 columns is loaded into a tile of 64, and five zeros add nothing to a dot product. There the load mask alone is right.

# %% [markdown]
# ## 6 · Causal: where to stop, what to hide
#
# The last query of block $i$ has number $\min(N_q, (i+1) B_r) - 1$. Aligned bottom-right it sees as many keys as `end` says, and the loop stops there. **Predict**: 64 queries, 96 keys, tiles of $16 \times 16$: how many of the 24 tiles are visited?

# %%
my_tiles = None

# %%
@triton.jit
def count_tiles_kernel(Out, N_q, N_k, B_r: tl.constexpr, B_c: tl.constexpr):
    i = tl.program_id(0)
    end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q                 # keys that the block's last query sees
    tl.store(Out + i, tl.cdiv(end, B_c))


tiles = torch.zeros(4, dtype=torch.int32, device=device)
count_tiles_kernel[(4,)](tiles, 64, 96, 16, 16)
with Memory() as mem:
    fa2_forward(torch.randn(64, 16), torch.randn(96, 16), torch.randn(96, 16), causal=True, B_r=16, B_c=16)
print(f"tiles of each program: {tiles.tolist()}, together {int(tiles.sum())}; your prediction: {my_tiles}")
print(f"key tiles loaded by chapter 06's rung (modelled): {sum(event.name == 'K' for event in mem.log)}")

# %% [markdown]
# The rung's log shows the same thing as a picture: each row of tiles is one program of the kernel. The last program has the most to do. If it starts last, everyone waits for it; so the real kernel numbers its blocks backwards.

# %%
figures.tile_traversal({"fa2_forward": mem.log}, 64, 96)

# %% [markdown]
# Inside the tiles on the edge the mask is one comparison, $j \le i + N_k - N_q$ in token numbers. For real rows that is below $N_k$, so it hides the ragged tail as well. And with more queries than keys, some rows see nothing: chapter 05's `m_safe` comes back.

# %%
@triton.jit
def safe_step(S_ij, V_j, O_i, l_i, m_i):
    m_new = tl.maximum(m_i, tl.max(S_ij, 1))                         # (B_r,)
    m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)            # (B_r,)      -inf minus -inf would be NaN
    alpha = tl.exp(m_i - m_safe)                                     # (B_r,)
    P_ij = tl.exp(S_ij - m_safe[:, None])                            # (B_r, B_c)
    l_i = alpha * l_i + tl.sum(P_ij, 1)                              # (B_r,)
    PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")     # (B_r, d_v)
    O_i = alpha[:, None] * O_i + PV                                  # (B_r, d_v)
    return O_i, l_i, m_new

# %% [markdown]
# The kernel with bound and mask. `safe` picks the step, so that we can see what `m_safe` is for. After the loop a row that saw no key has $l_i = 0$; dividing by 1 instead leaves its $O_i = 0$.

# %%
@triton.jit
def causal_kernel(Q, K, V, O, scale, N_q, N_k, safe: tl.constexpr, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    i, col = tl.program_id(0), tl.arange(0, d)
    rows = i * B_r + tl.arange(0, B_r)
    Q_i = tl.load(Q + rows[:, None] * d + col, mask=rows[:, None] < N_q, other=0.0)
    m_i, l_i = tl.full((B_r,), -float("inf"), tl.float32), tl.zeros((B_r,), tl.float32)
    O_i = tl.zeros((B_r, d), tl.float32)
    end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q
    for j in range(0, tl.cdiv(end, B_c)):
        keys = j * B_c + tl.arange(0, B_c)
        K_j = tl.load(K + keys[:, None] * d + col, mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(V + keys[:, None] * d + col, mask=keys[:, None] < N_k, other=0.0)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale
        S_ij = tl.where(keys <= rows[:, None] + N_k - N_q, S_ij, -float("inf"))
        if safe:
            O_i, l_i, m_i = safe_step(S_ij, V_j, O_i, l_i, m_i)
        else:
            O_i, l_i, m_i = step(S_ij, V_j, O_i, l_i, m_i)
    l_safe = tl.where(l_i == 0, 1.0, l_i)
    tl.store(O + rows[:, None] * d + col, O_i / l_safe[:, None], mask=rows[:, None] < N_q)

# %% [markdown]
# Fifty queries, forty keys: bottom-right, the first ten queries see nothing. **Predict** how many of the 50 rows are NaN without `m_safe`.

# %%
my_nan_rows = None

# %% [markdown]
# **Run.** The first of the two calls goes wrong on purpose.

# %%
for safe in (False, True):
    O = torch.empty(N_q, d, device=device)
    causal_kernel[(triton.cdiv(N_q, 16),)](Q, K, V, O, d**-0.5, N_q, N_k, safe, d, 16, 16)
    verdict = judge(O, None, Q, K, V, causal=True)
    print(f"safe={safe}: {int(O.isnan().any(1).sum())} rows with NaN, off by {verdict.error_O:.1e}, right: {verdict.ok}")
print("your prediction:", my_nan_rows)

# %% [markdown]
# **Compare.** The ten blind rows share a block with six that see keys, so the block's loop runs. For the blind ones $m_i$ and $m_{new}$ are both $-\infty$.
#
# **Takeaway.** The bound saves the work, the mask makes it right, and `m_safe` covers rows that the mask empties.
#
# ## 7 · Heads that share keys
#
# In grouped-query attention several query heads use one key head. Copying $K$ and $V$ for each would cost memory; in a kernel it is one integer division. **Predict**: 8 query heads, 2 key heads: which key head serves query head 5?

# %%
H_q, H_kv = 8, 2
my_key_head = None

# %%
print("key head of each query head:", [h // (H_q // H_kv) for h in range(H_q)], "· your prediction for 5:", my_key_head)
Q = torch.randn(1, H_q, 70, 32, device=device)
K, V = (torch.randn(1, H_kv, 90, 32, device=device) for _ in range(2))
shared, _ = fa2_triton_forward(Q, K, V, B_r=32, B_c=32)
copied, _ = fa2_triton_forward(Q, *(T.repeat_interleave(H_q // H_kv, 1) for T in (K, V)), B_r=32, B_c=32)
print(f"{how}: same bits as with {H_q // H_kv} copies of every key head: {torch.equal(shared, copied)}")

# %% [markdown]
# **Takeaway.** Sharing a head is a pointer, not a tensor: `K += b * stride_Kb + h_kv * stride_Kh`.
#
# ## The real kernel
#
# `fa2_forward_kernel` is these seven parts in one function, and one more store: $L_i = m_i + \ln l_i$, which the backward pass will want. Here it is in full; find the parts.

# %%
print(inspect.getsource(fa2_forward_kernel.fn))

# %% [markdown]
# What the small kernels left out: offsets are `int64`, see below; `d` and `d_v` are padded to powers of two, with a column mask; blocks run last first; dropout, for chapter 11. What stands under an `if` on a `constexpr` is compiled only where it is asked for. Now hold it against chapter 06's inner step: same names, same order.

# %%
def last_lines(function):
    """name -> the last value that the function's source assigns to it, in order."""
    found = {}
    for line in inspect.getsource(function).splitlines():
        name, equals, value = line.split("#")[0].partition(" = ")
        if equals and name.strip().isidentifier():
            found.pop(name.strip(), None)
            found[name.strip()] = value.strip()
    return found


rung, kernel = last_lines(fa2._step), last_lines(fa2_forward_kernel.fn)
both = [name for name in rung if name in kernel]
assert both == [name for name in kernel if name in rung]             # the same order
for name in both:
    print(f"{name:<7} PyTorch  {rung[name]}\n{'':<7} Triton   {kernel[name]}")

# %% [markdown]
# **Takeaway.** A Triton kernel is not another algorithm. It is the same lines, with the outer loop turned into a grid, slices into addresses, and short tiles into masks.
#
# ## Is it right?
#
# Every dtype, with and without mask, ragged in every direction: $N_q \ne N_k$, $d_v \ne d$, neither a power of two. **Predict** the order of the three dtypes, from the smallest error to the largest.

# %%
my_order = None     # for example ["float32", "bfloat16", "float16"]

# %%
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    for causal in (False, True):
        Q, K, V = (torch.randn(1, 2, n, width, device=device).to(dtype) for n, width in ((97, 59), (113, 59), (113, 40)))
        O, L = fa2_triton_forward(Q, K, V, causal=causal, B_r=32, B_c=64)
        verdict = judge(O, L, Q, K, V, causal=causal)
        assert verdict.ok
        print(f"{how}, {str(dtype)[6:]:<8} {'causal ' if causal else 'no mask'} {verdict}")
print("your prediction:", my_order)

# %% [markdown]
# **Compare.** $O$ is stored in the inputs' dtype, and that last rounding is most of the error: bfloat16 keeps 8 bits, float16 keeps 11, float32 keeps 24. $L$ is float32 in all three.
#
# The allowed error is twice that of naive attention in the same dtype, plus a rounding. Should the kernel not give exactly the bits of `fa2_forward`, with the same tiles in float32? **Predict**.

# %%
my_same_bits = None     # True or False

# %%
O_rung, L_rung = fa2_forward(Q[0, 0], K[0, 0], V[0, 0], causal=True, B_r=32, B_c=64)
print(f"same bits: {torch.equal(O[0, 0], O_rung)}, your prediction: {my_same_bits}")
print(f"O differs by at most {max_error(O[0, 0], O_rung):.1e}, L by {max_error(L[0, 0], L_rung):.1e}")

# %% [markdown]
# Same formula, same tiles, but not the same order of additions inside a dot product and a row sum; floating-point addition is not associative. So no test of this course asks for equal bits between implementations.
#
# **Takeaway.** Compare with float64 and a bound, not with another implementation's bits.
#
# ## The operator
#
# `flash_attention` is what a user calls: (B, H, N, d) in, the best backend for these tensors picked, $L$ on request. `backend="torch"` is chapter 06's rung, head by head.

# %%
from flashlab.attention import pick_backend

Q, K, V = (torch.randn(1, h, 64, 32, device=device) for h in (4, 2, 2))
print("auto picks here: {} ({})".format(*pick_backend(Q.device, Q.dtype, 32)))
for backend in ("triton", "torch", "auto"):
    O, L = flashlab.flash_attention(Q, K, V, causal=True, return_lse=True, backend=backend)
    print(f"{backend:<7} {judge(O, L, Q, K, V, causal=True)}")

# %% [markdown]
# A kernel trusts its pointers, so whoever calls it must not. Arguments are checked before anything is launched, and the message names the argument, what it was, and what was expected. These calls fail on purpose.

# %%
for q, k, v in [(Q[:, :3], K, V), (Q, K.half(), V), (Q, K, V[:, :, :60])]:
    try:
        flashlab.flash_attention(q, k, v)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The third is the one that matters. Past the checks nobody would notice that four values are missing. PyTorch's own attention, told that heads are shared, is handed the same three tensors:

# %%
from torch.nn.functional import scaled_dot_product_attention

print(f"torch {torch.__version__.split('+')[0]} on {device}, {K.shape[2]} keys and 60 values:", end=" ")
try:
    print("an output of shape", tuple(scaled_dot_product_attention(Q, K, V[:, :, :60], enable_gqa=True).shape))
except RuntimeError as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# Where a shape came back it is full of numbers, and nothing says that they are not attention.
#
# **Takeaway.** Past the checks there are only addresses, and a wrong address is rarely an error message.

# %% [markdown]
# ## What the interpreter hides
#
# It runs the same source, so it proves the algorithm and the masks. It is not a GPU. Section 5 showed the first gap: reading out of bounds is silent there. The second is bfloat16. **Predict** the error of a $16 \times 16$ product of bfloat16 tiles.

# %%
my_bf16_error = None

# %%
@triton.jit
def product_kernel(A, B, C, upcast: tl.constexpr, n: tl.constexpr):
    at = tl.arange(0, n)[:, None] * n + tl.arange(0, n)
    a, b = tl.load(A + at), tl.load(B + at)
    if upcast:
        a, b = a.to(tl.float32), b.to(tl.float32)
    tl.store(C + at, tl.dot(a, b, input_precision="ieee"))


A, B = (torch.randn(16, 16, device=device, dtype=torch.bfloat16) for _ in range(2))
for upcast in (False, True):
    C = torch.empty(16, 16, device=device)
    product_kernel[(1,)](A, B, C, upcast, 16)
    print(f"{how}, upcast={upcast}: off by {max_error(C, A.double() @ B.double()):.1e}; your prediction: {my_bf16_error}")

# %% [markdown]
# numpy has no bfloat16: an interpreted product multiplies the raw 16-bit patterns as integers. So `fa2_triton_forward` widens bfloat16 to float32 when it is interpreted, and only then.
#
# ### Offsets beyond $2^{31}$
#
# Triton passes small integers as 32-bit numbers, and their products stay 32-bit. **Predict**: how many GB is a float16 tensor of $2^{31}$ elements, and which offset does 32-bit arithmetic give for its end?

# %%
my_gigabytes, my_offset = None, None

# %%
@triton.jit
def offset_kernel(Out, head, stride_h):
    tl.store(Out, (head * stride_h).to(tl.int64))                    # multiplied in 32 bits, widened too late
    tl.store(Out + 1, head.to(tl.int64) * stride_h)                  # widened first


Q = torch.empty(16, 32, 65536, 64, dtype=torch.float16, device="meta")       # batch 16, 32 heads: no memory is taken
offsets = torch.zeros(2, dtype=torch.int64, device=device)
offset_kernel[(1,)](offsets, 16 * 32, Q.stride(1))
print(f"{Q.nbytes / 1e9:.1f} GB, your prediction: {my_gigabytes}. The end of the last head is at offset 2^31:")
print(f"32 bits: {offsets[0]}, 64 bits: {offsets[1]}; your prediction: {my_offset}")

# %% [markdown]
# 4 GB is no exotic tensor on an 80 GB card. With 32-bit offsets the next batch would be read from 4 GB *before* the tensor.
#
# **Takeaway.** Widen the program's own index to `int64` before it meets a stride; the arithmetic inside a tile can stay small.
#
# ### A GPU you do not have
#
# Triton compiles without a GPU. `compile_for` does it in a process that does not interpret, and reports what the compiler made of the kernel: registers a thread, bytes that spilled out of them, shared memory, and which tensor-core instruction it chose. A100, H100, B200:

# %%
from flashlab.compiler.ahead_of_time import compile_all, compile_for

Q = torch.empty(1, 16, 4096, 128, dtype=torch.float16, device="meta")        # only shapes, strides and dtypes matter
_, arguments = launch(Q, Q, Q, Q, torch.empty(1, 16, 4096, device="meta"), causal=True, scale=128**-0.5)
for gpu in compile_all([(fa2_forward_kernel, arguments, arch) for arch in (80, 90, 100)]):
    names = [name for name in ("mma.sync", "wgmma.mma_async", "tcgen05.mma") if name in gpu.ptx]
    print(f"sm_{gpu.arch}: {gpu.registers} registers, {gpu.spills} bytes spilled, "
          f"{gpu.shared_bytes / 1024:.0f} KiB shared memory, {', '.join(names)}")

# %% [markdown]
# No spills, and tensor cores on each. `wgmma` is Hopper's: four warps multiply together, straight from shared memory. The tests of this repository hold all three architectures to that.
#
# The third gap is sizes. The interpreter multiplies tiles of any shape; ask the compiler about $8 \times 8$. This fails on purpose.

# %%
try:
    compile_for(fa2_forward_kernel, arguments | {"B_r": 8, "B_c": 8}, 90)
except RuntimeError as error:
    print(str(error).strip().splitlines()[-1])

# %% [markdown]
# $P_{ij} V_j$ sums over $B_c = 8$ keys, and tensor cores want 16 at least; hence tiles of 16 and more in the whole chapter.
#
# ### All of it at once
#
# `lint_kernel` closes these gaps for a kernel of your own. It compiles it for an H100, and where kernels are interpreted it runs it once more and holds every address against the tensors. Here are two of this chapter's with a flaw: section 5's without its load mask, and the product of bfloat16 tiles. (On a GPU only the compiler speaks; there NVIDIA's `compute-sanitizer` watches the addresses.)

# %%
from flashlab.compiler import lint

X, Y, C = torch.randn(50, 32), torch.randn(40, 32), torch.empty(16, 16)
tail = {"Q": X, "K": Y, "V": Y, "O": torch.empty(50, 32), "scale": 0.2, "N_q": 50, "N_k": 40, "load_mask": False, "score_mask": True}
tail |= {"d": 32, "B_r": 16, "B_c": 16}
A = torch.randn(16, 16, dtype=torch.bfloat16)
product = {"A": A, "B": A, "C": C, "upcast": False, "n": 16}
for kernel, launched, grid in [(tail_kernel, tail, (4,)), (product_kernel, product, (1,))]:
    print(lint.as_text(lint.lint_kernel(kernel, launched, grid=grid)))

# %% [markdown]
# **Takeaway.** The interpreter for the algorithm, the compiler for the machine, a GPU for the time. Two of the three you always have.
#
# ## Your turn
#
# **One tile of scores** ([exercises/ex10_tile_of_scores.py](../exercises/ex10_tile_of_scores.py), 30 minutes). $S_{ij} = Q_i K_j^\top \cdot$ `scale`, with strides, both guards, 64-bit offsets and the grid. The checker puts NaN around every tensor.

# %%
from flashlab.check import check

check("ex10_tile_of_scores")

# %% [markdown]
# **The whole kernel** ([exercises/ex10_triton_forward.py](../exercises/ex10_triton_forward.py), 40 minutes). Query block $i$ of one head: $O_i \leftarrow \alpha\, O_i + P_{ij} V_j$ over all key blocks, causal or not, ragged, with $O_i$ and $L_i$ out.

# %%
check("ex10_triton_forward")

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 1 · Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · Triton's tutorial on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html) and its page on [debugging](https://triton-lang.org/main/programming-guide/chapter-3/debugging.html)
#
# **Next:** [11 · The backward kernels](11_triton_backward.ipynb) makes it trainable. [16 · Benchmarks](16_benchmarks.ipynb) puts a clock on it, beside every attention that PyTorch has.
