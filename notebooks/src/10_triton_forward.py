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
# **You need** chapters 06 and 09. · **two hours and twenty minutes**, 70 minutes of them exercises · **runs on** CPU (interpreted) or GPU (compiled); Triton, so Linux
#
# Chapter 06 has the algorithm, in PyTorch. Here it becomes one function that a GPU runs in thousands of copies. You write it, in two steps; each section before them settles one question.

# %%
import flashlab  # first: it tells Triton where to run
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %% [markdown]
# With a GPU the kernels below are compiled for it. Without one, Triton's interpreter runs the same source on CPU tensors, one program after the other: slowly, but a `print` or a debugger works inside. Where it differs from a GPU is the subject of the last section.

# %%
import inspect
import warnings

import torch
import triton
import triton.language as tl

from flashlab_course import figures
from flashlab_course.check import check
from flashlab.triton_mode import interpreted
from flashlab.kernels.fa2 import fa2_forward_kernel, fa2_triton_forward, launch
from flashlab_course.gpu.guards import forward_with
from flashlab_course.lesson import compare, nearest, replay, reveal
from flashlab.memory import Memory, kernel, load, store, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab.rungs import fa2

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
# In chapter 06 no query block needs another's result, so each one becomes a program. **Predict** how many there are for 2 sequences, 3 heads, 100 queries and $B_r = 32$, and how many rows the last block of each head really has.

# %%
B, H, N_q, d, B_r = 2, 3, 100, 16, 32
my_grid = {"programs": None, "rows of the last block": None}

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
assert {tuple(row) for row in who.tolist()} == {(b, h, i) for b in range(B) for h in range(H) for i in range(T_r)}
print(f"every (b, h, i) once; number 17 is {tuple(who[17].tolist())}")

# %%
_ = compare("grid of the forward kernel", my_grid, {"programs": len(who), "rows of the last block": N_q - (T_r - 1) * B_r})
figures.matrices({"": torch.arange(len(who)).view(B * H, T_r).T}, f"{len(who)} programs, one for each query block of each head",
                 "Definition: in the cells tl.program_id(0).", "head b · H + h", "query block i")

# %% [markdown]
# One axis of numbers and not three: a GPU's second and third axis of the grid end at 65,535, which batch times heads can pass.
#
# **Takeaway.** The loop over query blocks is gone: it has become the grid. The number of tiles, $T_r \cdot T_c$ for each head, is the same as ever; more of them run at once.

# %% [markdown]
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
strays = {}
for last in (T_r * B_r, N_q):
    room = torch.full((Q.numel() + 1000,), 7.0, device=device)       # Out, and behind it 1000 sevens
    Out = room[:Q.numel()].view(B, H, N_q, d)
    copy_kernel[(B * H * T_r,)](Q, Out, *Q.stride(), H, N_q, last, d, B_r)
    strays[last] = int((room[Q.numel():] != 7).sum())
    print(f"rows < {last}: {strays[last]} foreign numbers overwritten, Out equals Q: {torch.equal(Out, Q)}")
_ = compare("numbers overwritten by an unmasked store", my_overwritten, strays[T_r * B_r])

# %% [markdown]
# **Compare.** The zeros went past the end with no error from anyone. Every other head wrote its surplus rows into the head after it; whether that shows depends on who came last. `Out equals Q` can be true by luck.
#
# **Takeaway.** A tile is always whole, memory is not: the mask is part of the address.

# %% [markdown]
# ## 3 · Offsets beyond $2^{31}$
#
# Triton passes small integers as 32-bit numbers, and their products stay 32-bit. **Predict**: how many GB is a float16 tensor of $2^{31}$ elements, and which offset does 32-bit arithmetic give for its end?

# %%
my_end = {"GB": None, "offset in 32 bits": None}

# %%
@triton.jit
def offset_kernel(Out, head, stride_h):
    tl.store(Out, (head * stride_h).to(tl.int64))                    # multiplied in 32 bits, widened too late
    tl.store(Out + 1, head.to(tl.int64) * stride_h)                  # widened first


big = torch.empty(16, 32, 65536, 64, dtype=torch.float16, device="meta")     # batch 16, 32 heads: no memory is taken
offsets = torch.zeros(2, dtype=torch.int64, device=device)
offset_kernel[(1,)](offsets, 16 * 32, big.stride(1))
print(f"the end of the last head: in 32 bits {offsets[0]:,}, in 64 bits {offsets[1]:,}")
_ = compare("2^31 elements", my_end, {"GB": big.nbytes / 1e9, "offset in 32 bits": offsets[0].item()})

# %% [markdown]
# 4 GB is no exotic tensor on an 80 GB card. With 32-bit offsets the next batch would be read from 4 GB *before* the tensor.
#
# **Takeaway.** Widen the program's own index to `int64` before it meets a stride; the arithmetic inside a tile can stay small.

# %% [markdown]
# ## 4 · One tile of scores
#
# `tl.dot` multiplies two tiles, on the GPU's tensor cores where the dtype allows. $K_j$ is loaded by rows, as it lies in memory, so that neighbouring threads read neighbouring addresses; `.T` then turns the tile, not the memory.

# %%
@triton.jit
def one_tile_kernel(Q, K, S, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    rows, keys, col = tl.arange(0, B_r), tl.arange(0, B_c), tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * d + col)                       # (B_r, d)
    K_j = tl.load(K + keys[:, None] * d + col)                       # (B_c, d)
    S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                # (B_r, B_c)  "ieee": float32 stays float32, not TF32
    tl.store(S + rows[:, None] * B_c + keys, S_ij)


Q, K = (60 * torch.randn(16, 64, device=device, dtype=torch.float16) for _ in range(2))
S = torch.empty(16, 16, device=device)                               # float32
one_tile_kernel[(1,)](Q, K, S, 64, 16, 16)
print(f"max |S - truth| = {max_error(S, Q.double() @ K.double().T):.2g}, where the largest |S| is {S.abs().max():.0f}")

# %% [markdown]
# $Q$ and $K$ are float16 and large. float16 ends at 65504. **Predict**: had `tl.dot` returned float16, how many of the 256 scores would be infinite?

# %%
my_infinite = None

# %%
_ = compare("infinite scores in float16", my_infinite, int(S.half().isinf().sum()))
print(f"the largest score is {S.abs().max():.0f}; float16 ends at {torch.finfo(torch.float16).max:.0f} (measured here)")

# %% [markdown]
# **Takeaway.** 16 bits go into `tl.dot`, 32 come out: everything a program adds up ($S_{ij}$, $l_i$, $O_i$) is float32.
#
# **Exercise: one tile of scores** ([exercises/ex10_tile_of_scores.py](../exercises/ex10_tile_of_scores.py), 30 minutes). The same with all that sections 1 to 3 brought: a grid of tiles, strides, a mask for each side, 64-bit offsets. The checker puts NaN around every tensor.

# %%
check("ex10_tile_of_scores")

# %%
reveal("ex10_tile_of_scores")

# %%
replay("ex10_tile_of_scores")

# %% [markdown]
# ## 5 · The running softmax, translated
#
# You wrote FA2's program in chapter 06. Most of it only changes its spelling:
#
# | PyTorch, chapter 06 | Triton |
# |---|---|
# | `S_ij.amax(-1)`, `P_ij.sum(-1)` | `tl.max(S_ij, 1)`, `tl.sum(P_ij, 1)` |
# | `Q_i @ K_j.T` | `tl.dot(Q_i, K_j.T)`, both of one dtype |
# | `torch.full((B_r,), -inf)` | `tl.full((B_r,), -float("inf"), tl.float32)` |
# | `S_ij.masked_fill(hidden, -inf)` | `tl.where(visible, S_ij, -float("inf"))` |
# | `load(K, cols)` | `tl.load(addresses, mask=..., other=0.0)` |
#
# As a loop with a state, half of the kernel: the logsumexp of each row. No $V$, no $O$, one head, $N_q$ and $N_k$ multiples of the tiles.

# %%
@triton.jit
def logsumexp_kernel(Q, K, L, scale, N_k, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    rows, col = tl.program_id(0) * B_r + tl.arange(0, B_r), tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * d + col)                       # (B_r, d)    stays here for the whole loop
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                 # (B_r,)      below any score
    l_i = tl.zeros((B_r,), tl.float32)                               # (B_r,)
    for j in range(0, N_k // B_c):
        keys = j * B_c + tl.arange(0, B_c)                           # (B_c,)
        K_j = tl.load(K + keys[:, None] * d + col)                   # (B_c, d)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale    # (B_r, B_c)
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))                     # (B_r,)
        l_i = tl.exp(m_i - m_new) * l_i + tl.sum(tl.exp(S_ij - m_new[:, None]), 1)
        m_i = m_new
    tl.store(L + rows, m_i + tl.log(l_i))

# %% [markdown]
# **Predict**: 64 queries, 96 keys, and logits 60 times larger than usual, which chapter 03 used to find missing corrections. How far off will $L$ be at most: about $10^{-8}$, $10^{-5}$, $10^{-1}$, or infinitely?

# %%
my_L_error = None     # a number, or float("inf")

# %%
Q, K = 60 * torch.randn(64, 64, device=device), torch.randn(96, 64, device=device)
L = torch.empty(64, device=device)
logsumexp_kernel[(64 // 16,)](Q, K, L, 64**-0.5, 96, 64, 16, 16)
_, truth = attention(Q, K, K)
print(f"{how}: the largest L is {truth.max():.0f}, the error {max_error(L, truth):.1e}")
_ = compare("error of L with large logits", my_L_error, nearest(max_error(L, truth), (1e-8, 1e-5, 1e-1)))

# %% [markdown]
# The largest score of a row becomes $e^0$ and all others less, so nothing can overflow. An error of $10^{-5}$ in a number of some hundreds is float32's last digit.
#
# **Takeaway.** The state of a program is a few tiles in registers. Nothing of the softmax touches memory.

# %% [markdown]
# ## 6 · Ragged tails
#
# 40 keys in tiles of 16 make two and a half tiles. What the last half contains is a choice, and three of four are wrong. `forward_with` runs a forward kernel with the guards it is given: `"loads"` masks the loads of $K_j$ and $V_j$, `"scores"` sets the scores of keys that do not exist to $-\infty$.
#
# Neither the interpreter nor a GPU complains when a load runs a little past a tensor: it gets whatever lies there. So `in_nan` puts something there that cannot be overlooked.

# %%
def in_nan(T, rows=16):
    """The same values, with `rows` rows of NaN right behind them in memory."""
    room = T.new_full((len(T) + rows, T.shape[1]), float("nan"))
    room[:len(T)] = T
    return room[:len(T)]


N_k = 40
Q, K, V = (in_nan(torch.randn(n, 32, device=device)) for n in (50, N_k, N_k))

# %% [markdown]
# **Predict** for each of the four: "right", "wrong" but finite, or "NaN"? Mind the third: hidden scores, unguarded loads. Its weights for the keys that do not exist are exactly 0.

# %%
my_tails = {"neither": None, "loads": None, "scores": None, "loads and scores": None}

# %% [markdown]
# **Run.** This cell goes wrong on purpose, three times.

# %%
results, words = {}, {}
for name in ("neither", "loads", "scores", "loads and scores"):
    O = results[name] = forward_with(name.split(" and "), Q, K, V)
    verdict = judge(O, None, Q, K, V)
    words[name] = "right" if verdict.ok else "NaN" if O.isnan().any() else "wrong"
    print(f"{name:<17}{words[name]:<6} off by {verdict.error_O:.1e}")
_ = compare("ragged tail with these guards", my_tails, words)

# %% [markdown]
# **Compare.** With neither, NaN keys make NaN scores. With hidden scores alone the weight is 0, but $0 \cdot \mathrm{NaN} = \mathrm{NaN}$: $P_{ij} V_j$ multiplies before it adds. Had ordinary numbers lain behind $V$, this one would have passed, until the day they are not ordinary.
#
# The second is the sly one: finite, smooth, wrong. A key of zeros scores 0, and $e^{0 - m}$ is a weight. It is attention over 48 keys, eight of them zero:

# %%
zeros = torch.zeros(8, 32, device=device)
phantom, _ = attention(Q, torch.cat([K, zeros]), torch.cat([V, zeros]))
print(f"'loads' against attention with eight keys of zeros: {max_error(results['loads'], phantom):.1e}")
P = torch.softmax(Q @ torch.cat([K, zeros]).T * 32**-0.5, -1)
figures.matrices({"": P.cpu()}, f"Eight keys of zeros behind the last real one take {P[:, N_k:].sum() / P.sum():.0%} of the weight",
                 f"Measured here: the softmax of the scores that a load mask alone leaves; keys from {N_k} on do not exist.", "key", "query",
                 number="")

# %% [markdown]
# **Takeaway.** The load mask keeps garbage out of $V_j$, the score mask keeps padding out of the softmax. A ragged tail needs both.
#
# Padding $d$ is different: a head of 59 columns is loaded into a tile of 64, and five zeros add nothing to a dot product. There the load mask alone is right.

# %% [markdown]
# ## 7 · Causal: where to stop, what to hide
#
# The last query of block $i$ has number $\min(N_q, (i+1) B_r) - 1$. Aligned bottom-right it sees $\min(N_q, (i+1) B_r) + N_k - N_q$ keys, and the loop may stop there. **Predict**: 64 queries, 96 keys, tiles of $16 \times 16$: how many of the 24 tiles are visited, and in how many of those does a query see only a part?

# %%
my_tiles = {"visited": None, "need a mask": None}

# %%
with Memory() as mem:
    fa2.fa2_forward(torch.randn(64, 16), torch.randn(96, 16), torch.randn(96, 16), causal=True, B_r=16, B_c=16)
visited = sum(event.name == "K" for event in mem.log)
needing = sum(j * 16 + 15 > i * 16 + 96 - 64 for i in range(4) for j in range(i + 3))     # last key after the first query's own
_ = compare("tiles of the causal kernel", my_tiles, {"visited": visited, "need a mask": needing})
figures.causal_tiles(mem.log, 64, 96)

# %% [markdown]
# The last program has the most to do. If it starts last, everyone waits for it; so the real kernel numbers its blocks backwards.
#
# Inside the tiles on the edge the mask is one comparison of token numbers, $j \le i + N_k - N_q$. For real rows that is below $N_k$, so it hides the ragged tail as well. And with more queries than keys some rows see nothing: chapter 05's `m_safe` comes back. Fifty queries, forty keys: **predict** how many of the 50 rows are NaN without it.

# %%
my_nan_rows = None

# %% [markdown]
# **Run.** The first of the two calls goes wrong on purpose.

# %%
Q, K, V = (in_nan(torch.randn(n, 32, device=device)) for n in (50, 40, 40))
for guards in (("loads", "scores"), ("loads", "scores", "m_safe")):
    O = forward_with(guards, Q, K, V, causal=True)
    verdict = judge(O, None, Q, K, V, causal=True)
    nan_rows = int(O.isnan().any(1).sum())
    print(f"{', '.join(guards)}: {nan_rows} rows with NaN, off by {verdict.error_O:.1e}, right: {verdict.ok}")
    if "m_safe" not in guards:
        _ = compare("NaN rows without m_safe", my_nan_rows, nan_rows)

# %% [markdown]
# **Compare.** The blind rows share a block with six that see keys, so the block's loop runs. For the blind ones $m_i$ and $m_{new}$ are both $-\infty$, and their difference is NaN.
#
# **Takeaway.** The bound saves the work, the mask makes it right, and `m_safe` covers rows that the mask empties.

# %% [markdown]
# ## 8 · Write it
#
# Sections 1 to 7 hold every part except $O_i$.
#
# **Exercise: the whole kernel** ([exercises/ex10_triton_forward.py](../exercises/ex10_triton_forward.py), 40 minutes). Query block $i$ of one head, causal or not, ragged, with $O_i$ and $L_i$ out. Start with one key block and no mask, and let the checker tell you what comes next.

# %%
check("ex10_triton_forward")

# %%
reveal("ex10_triton_forward")

# %%
replay("ex10_triton_forward")

# %% [markdown]
# *(From here on the exercise above is spoiled.)* The repository's own is [flashlab/kernels/fa2.py](../flashlab/kernels/fa2.py), one function of 50 lines. It adds batches, `d` and `d_v` that are no powers of two, dropout for chapter 11, and heads that share keys. Held against chapter 06's inner step: the same names in the same order.

# %%
def last_lines(function):
    """name -> the last value that the function's source assigns to it, in order."""
    found = {}
    for line in inspect.getsource(function).splitlines():
        name, equals, value = line.split("#")[0].partition(" = ")
        if equals and name.strip().isidentifier() and "kept(" not in value:      # dropout is chapter 11's
            found.pop(name.strip(), None)
            found[name.strip()] = value.strip()
    return found


in_rung, in_kernel = last_lines(fa2._step), last_lines(fa2_forward_kernel.fn)
both = [name for name in in_rung if name in in_kernel]
assert both == [name for name in in_kernel if name in in_rung]             # the same order
for name in both:
    print(f"{name:<7} PyTorch  {in_rung[name]}\n{'':<7} Triton   {in_kernel[name]}")

# %% [markdown]
# **Takeaway.** A Triton kernel is not another algorithm. It is the same lines, with the outer loop turned into a grid, slices into addresses, and short tiles into masks.

# %% [markdown]
# ## Heads that share keys
#
# In grouped-query attention several query heads use one key head. Copying $K$ and $V$ for each would cost memory; in a kernel it is one integer division. **Predict**: 8 query heads, 2 key heads: which key head serves query head 5?

# %%
H_q, H_kv = 8, 2
my_key_head = None

# %%
_ = compare("key head of query head 5", my_key_head, 5 // (H_q // H_kv))
Q = torch.randn(1, H_q, 70, 32, device=device)
K, V = (torch.randn(1, H_kv, 90, 32, device=device) for _ in range(2))
shared, _ = fa2_triton_forward(Q, K, V, B_r=64, B_c=64)
copied, _ = fa2_triton_forward(Q, *(T.repeat_interleave(H_q // H_kv, 1) for T in (K, V)), B_r=64, B_c=64)
print("key head of each query head:", [h // (H_q // H_kv) for h in range(H_q)])
print(f"{how}: same bits as with {H_q // H_kv} copies of every key head: {torch.equal(shared, copied)}")

# %% [markdown]
# **Takeaway.** Sharing a head is a pointer, not a tensor: `K += b * stride_Kb + h_kv * stride_Kh`.

# %% [markdown]
# ## A window, and sequences in a row
#
# Two things that models ask for change which tiles there are, and nothing inside one. With a **window** `(left, right)` a query sees `left` keys before its own place and `right` after it; causal is the window without a left end and `right = 0`. And sequences of different lengths need no padding: they are **packed** one after the other along $N$, and each sees itself alone. The ladder's kernels know neither; [flashlab/operator/windows.py](../flashlab/operator/windows.py) is this chapter's kernel with both.
#
# 128 tokens, tiles of $16 \times 16$; causal attention visits 36 of the 64. **Predict** how many are left with the window $(32, 0)$, and how many if the tokens are three causal sequences of 50, 30 and 48.

# %%
my_left = {"window": None, "packed": None}

# %%
X = [torch.randn(128, 16) for _ in range(3)]                             # Q, K, V


def walk(start, stop, left=128):
    """The tiles of one causal sequence that hold a visible score, and where the sequence begins."""
    Q, K, V = (T[start:stop] for T in X)
    with Memory() as mem, kernel("walk", Q=Q, K=K, V=V):
        for rows in tiles(stop - start, 16):
            Q_i = load(Q, rows)
            for cols in tiles(stop - start, 16):
                if cols.start < rows.stop and cols.stop > rows.start - left:
                    Q_i @ load(K, cols).T @ load(V, cols)
    return mem.log, start


# %%
places = [(0, 50), (50, 80), (80, 128)]
calls = {"causal": [walk(0, 128)], "window (32, 0)": [walk(0, 128, left=32)], "three sequences": [walk(*place) for place in places]}
visits = [sum(event.name == "K" for log, _ in logs for event in log) for logs in calls.values()]
_ = compare("tiles left", my_left, {"window": visits[1], "packed": visits[2]})
figures.tile_grids(calls, 128)

# %% [markdown]
# A window's tiles grow with $N \cdot$ `left`, not with $N^2$. Packed, a program must first find out whose block it holds. Sequence $s$ begins at token $c_s$, and its blocks stand from slot $\lfloor c_s / B_r \rfloor + s$ on in the grid: slots enough wherever it begins and ends, and no CPU that waits to learn the longest length. The price is a program without work here and there.

# %%
Q = torch.randn(128, 4, 32, device=device)                               # (T, H, d): heads inside, as models have them
K, V = (torch.randn(128, 2, 32, device=device) for _ in range(2))
cu_seqlens = torch.tensor([0, 50, 80, 128], dtype=torch.int32, device=device)
O = flashlab.flash_attention_varlen(Q, K, V, cu_seqlens, cu_seqlens, causal=True, backend="triton")
for start, stop in places:
    alone, _ = attention(*(T[start:stop].transpose(0, 1) for T in (Q, K, V)), causal=True)
    print(f"{how}: tokens {start} to {stop} differ from a call of their own by {max_error(O[start:stop].transpose(0, 1), alone):.1e}")

# %% [markdown]
# **Change this and run again.** Give that call a `window=(8, 0)`, and `attention` too.
#
# **Takeaway.** What whole tiles do not see sets where the loop begins and ends; a mask is for the tiles on the edge.

# %% [markdown]
# ## A list of tiles
#
# A window or a document leaves a range of tiles. Any other pattern leaves a *list*: `lists[i]` holds the key blocks that query block $i$ walks. That is block-sparse attention. [FlexAttention](https://pytorch.org/blog/flexattention/) makes such lists from a function of query and key and calls them a *block mask*. Here is FA2's program with one:

# %%
def attend(Q, K, V, visible, B=16):
    """Attention where visible(query, key) is True -> O, its Memory, the lists of tiles"""
    blocks, O, token = list(tiles(len(Q), B)), torch.empty_like(Q), torch.arange
    sees = lambda rows, cols: visible(token(rows.start, rows.stop)[:, None], token(cols.start, cols.stop))     # (B_r, B_c)
    lists = [[cols for cols in blocks if sees(rows, cols).any()] for rows in blocks]          # once for all heads and layers
    with Memory() as mem, kernel("attend", Q=Q, K=K, V=V, O=O):
        for rows, walked in zip(blocks, lists, strict=True):
            Q_i = load(Q, rows)
            O_i, l_i, m_i = torch.zeros_like(Q_i), Q_i.new_zeros(len(Q_i)), Q_i.new_full((len(Q_i),), -torch.inf)
            for cols in walked:                                          # FA2 has a range of key blocks here
                O_i, l_i, m_i = fa2._step(Q_i, load(K, cols), load(V, cols), O_i, l_i, m_i, Q.shape[1]**-0.5, ~sees(rows, cols))
            store(O, rows, O_i / l_i[:, None])
    return O, mem, lists

# %% [markdown]
# **Predict.** 128 tokens, causal, tiles of $16 \times 16$. A query sees the first tile of keys, its own tile and the one before. How many of the 64 tiles are walked?

# %%
my_walked = None

# %%
document = lambda n: (n >= 50).int() + (n >= 80).int()
masks = {"documents": lambda q, k: (k <= q) & (document(k) == document(q)),
         "first and near": lambda q, k: (k <= q) & ((k < 16) | (k // 16 >= q // 16 - 1))}
logs, n, (Q, K, V) = {}, torch.arange(128), (torch.randn(128, 16) for _ in range(3))
for name, visible in masks.items():
    O, mem, lists = attend(Q, K, V, visible)
    truth = torch.softmax((Q @ K.T / 4).double().masked_fill(~visible(n[:, None], n), -torch.inf), -1) @ V.double()
    walked = sum(map(len, lists))
    assert mem.read == Q.nbytes + walked * 2 * 16 * 16 * 4              # each tile in a list is read once, K_j and V_j
    logs[name] = [(mem.log, 0)]
    print(f"{name}: {walked} tiles in the lists and in the bytes read; O differs from masked naive attention by {max_error(O, truth):.1e}")
_ = compare("tiles walked, first and near", my_walked, walked)
figures.tile_grids(logs, 128)

# %% [markdown]
# FlexAttention keeps tiles without any hidden score in a second list, so that only the others compute the mask.
#
# **Takeaway.** A list of tiles saves the work that a mask hides, but only in whole tiles.

# %% [markdown]
# ## Is it right?
#
# Every dtype, with and without mask, ragged in every direction: $N_q \ne N_k$, $d_v \ne d$, neither a power of two. The allowed error is twice that of naive attention in the same dtype, plus a rounding. **Predict** the order of the three dtypes, from the smallest error to the largest.

# %%
my_order = [None, None, None]     # of "bfloat16", "float16", "float32"

# %%
rows = []
for dtype in ("float16", "bfloat16", "float32"):
    for causal in (False, True):
        Q, K, V = (torch.randn(1, 2, n, w, device=device).to(getattr(torch, dtype)) for n, w in ((97, 59), (113, 59), (113, 40)))
        O, L = fa2_triton_forward(Q, K, V, causal=causal, B_r=32, B_c=64)
        verdict = judge(O, L, Q, K, V, causal=causal)
        assert verdict.ok
        rows.append({"dtype": dtype, "causal": causal, "max": verdict.error_O, "rms": verdict.rms_O})
_ = compare("dtypes by error", my_order, [row["dtype"] for row in sorted(rows, key=lambda row: row["rms"]) if row["causal"]])
print(f"the largest error is {min(r['max'] / r['rms'] for r in rows):.0f} to {max(r['max'] / r['rms'] for r in rows):.0f} times the root mean square")
figures.bars({f"{row['dtype']}{', causal' * row['causal']}": row["rms"] for row in rows}, "Each dtype has an error of its own size",
             f"Measured here, {how}: O of 97 queries, 113 keys.", "rms error against float64", log=True)

# %% [markdown]
# **Where does a 16-bit error come from?** The kernel rounds twice: $P_{ij}$ before it meets $V_j$, and $O$ when it is stored. (Interpreted bfloat16 rows above never round $P$: there the kernel runs in float32, see the last section.) **Predict** what share of the squared error is $O$'s rounding, for bfloat16 at $N = 512$.

# %%
my_O_share = None     # between 0 and 1

# %%
Q, K, V = (torch.randn(8, 512, 64).bfloat16().double() for _ in range(3))
weights = torch.exp((S := Q @ K.mT / 8) - S.amax(-1, keepdim=True))
l, rounded = weights.sum(-1, keepdim=True), lambda T: T.bfloat16().double()
truth = weights @ V / l
cases = {"P to bfloat16": rounded(weights) @ V / l, "O to bfloat16": rounded(truth), "both": rounded(rounded(weights) @ V / l)}
rms = {name: (O - truth).square().mean().sqrt().item() for name, O in cases.items()}
print("largest error:", ", ".join(f"{name} {max_error(O, truth):.1e}" for name, O in cases.items()))
other = rounded(weights) @ V / rounded(weights).sum(-1, keepdim=True)
print(f"P rounded, with l the sum of the rounded P: rms error {(other - truth).square().mean().sqrt():.2e}")
_ = compare("share of O's rounding", my_O_share, rms["O to bfloat16"]**2 / (rms["P to bfloat16"]**2 + rms["O to bfloat16"]**2))
figures.bars({name: 1e4 * error for name, error in rms.items()}, "Neither of the two roundings is most of the error",
             "Measured here: exact arithmetic in float64 but for the rounding named; 8 heads, N = 512, d = 64.", "rms error of O, in 10⁻⁴")

# %% [markdown]
# **Compare.** Neither is most of the error. In the *maximum* $O$'s rounding is the larger: the largest $O$ has the largest unit in its last place. Note that $l_i$ adds the weights before they are rounded, while the product takes them after: the weights that met $V$ do not quite sum to 1. The printed line says that the other choice would be no better.
#
# Should the kernel give exactly the bits of chapter 06's rung, with the same tiles in float32? **Predict**.

# %%
my_same_bits = None     # True or False

# %%
Q, K, V = (torch.randn(1, 1, n, 64, device=device) for n in (97, 113, 113))
O, L = fa2_triton_forward(Q, K, V, causal=True, B_r=32, B_c=64)
O_rung, L_rung = fa2.fa2_forward(Q[0, 0], K[0, 0], V[0, 0], causal=True, B_r=32, B_c=64)
_ = compare("kernel and rung bit for bit", my_same_bits, torch.equal(O[0, 0], O_rung))
print(f"O differs by at most {max_error(O[0, 0], O_rung.double()):.1e}, L by {max_error(L[0, 0], L_rung.double()):.1e}")

# %% [markdown]
# Same formula, same tiles, but not the same order of additions inside a dot product and a row sum; floating-point addition is not associative. So no test of this course asks for equal bits between implementations.
#
# **Takeaway.** Compare with float64 and a bound, by maximum and by root mean square, not with another implementation's bits.

# %% [markdown]
# ## The operator
#
# `flash_attention` is what a user calls: (B, H, N, d) in, the best backend for these tensors picked, $L$ on request. A kernel trusts its pointers, so whoever calls it must not: arguments are checked before anything is launched. These calls fail on purpose. **Predict** which of the three PyTorch's own attention would accept on a CPU: 1, 2, 3 or none?

# %%
my_accepted = None     # 1, 2, 3 or "none"

# %%
from flashlab.operator.attention import pick_backend

Q, K, V = (torch.randn(1, h, 64, 32, device=device) for h in (4, 2, 2))
print("auto picks here: {} ({})".format(*pick_backend(Q.device, Q.dtype, 32)))
calls = [(Q[:, :3], K, V), (Q, K.half(), V), (Q, K, V[:, :, :60])]
for tensors in calls:
    try:
        flashlab.flash_attention(*tensors)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The third is the one that matters: four values are missing. Here are the same calls to PyTorch's own, told that heads are shared:

# %%
from torch.nn.functional import scaled_dot_product_attention

accepted = []
for n, tensors in enumerate(calls, 1):
    try:
        accepted += [n] if scaled_dot_product_attention(*tensors, enable_gqa=True) is not None else []
    except RuntimeError as error:
        print(f"{n}: {str(error).splitlines()[0][:110]}")
print(f"torch {torch.__version__.split('+')[0]} on {device} accepts {accepted or 'none'}")
_ = compare("bad calls that SDPA accepts", my_accepted, str(accepted[0]) if accepted else "none")

# %% [markdown]
# Where a call is accepted an output comes back, full of numbers, and nothing says that they are not attention.
#
# **Takeaway.** Past the checks there are only addresses, and a wrong address is rarely an error message.

# %% [markdown]
# ## What the interpreter hides
#
# It runs the same source, so it proves the algorithm and the masks. It is not a GPU. Section 6 showed the first gap: reading out of bounds is silent there. The second is bfloat16. **Predict** the error of a $16 \times 16$ product of bfloat16 tiles, interpreted.

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


left, right = (torch.randn(16, 16, device=device, dtype=torch.bfloat16) for _ in range(2))
errors = {}
for upcast in (False, True):
    C = torch.empty(16, 16, device=device)
    product_kernel[(1,)](left, right, C, upcast, 16)
    errors[upcast] = max_error(C, left.double() @ right.double())
    print(f"{how}, upcast={upcast}: off by {errors[upcast]:.1e}")
_ = compare("a bfloat16 product here", my_bf16_error, errors[False])

# %% [markdown]
# numpy has no bfloat16: an interpreted product multiplies the raw 16-bit patterns as integers. So `fa2_triton_forward` widens bfloat16 to float32 when it is interpreted, and only then.
#
# The third gap is the machine itself. Triton compiles without a GPU: `compile_for` does it in a process that does not interpret, and reports registers, bytes that spilled out of them, shared memory, and which tensor-core instruction was chosen. **Predict**: a thread has 255 registers at most. How many does the kernel take on an H100, at $d = 128$, causal?

# %%
my_registers = None

# %%
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all, compile_for

Q = torch.empty(1, 16, 4096, 128, dtype=torch.float16, device="meta")        # only shapes, strides and dtypes matter
_, arguments = launch(Q, Q, Q, Q, torch.empty(1, 16, 4096, device="meta"), causal=True, scale=128**-0.5)
rows = []
for gpu, name in zip(compile_all([(fa2_forward_kernel, arguments, arch) for arch in (80, 90, 100)]), ("A100", "H100", "B200"), strict=True):
    product, = (op for op in ("mma.sync", "wgmma.mma_async", "tcgen05.mma") if op in gpu.ptx)
    rows.append({"name": f"{name}: {product}", "registers": gpu.registers, "spills": gpu.spills, "shared": gpu.shared_bytes,
                 "limit": SHARED_LIMIT[gpu.arch]})
_ = compare("registers of the forward kernel", my_registers, rows[1]["registers"])
figures.compiled_kernels(rows)

# %% [markdown]
# No spills, and tensor cores on each. The limits at the right are what one *program* may use, 163 KiB on an A100 and 227 KiB on an H100; the memory model's 192 KiB are an A100's shared memory and L1 cache together. $O_i$ is in neither: it lives in registers, which the model does not have.
#
# The fourth gap is sizes. The interpreter multiplies tiles of any shape; ask the compiler about $8 \times 8$. This fails on purpose.

# %%
try:
    compile_for(fa2_forward_kernel, arguments | {"B_r": 8, "B_c": 8}, 90)
except RuntimeError as error:
    print(str(error).strip().splitlines()[-1])

# %% [markdown]
# $P_{ij} V_j$ sums over $B_c = 8$ keys, and a product sums over 16 numbers at least. With $B_r = 8$ and $B_c = 16$ the kernel compiles.
#
# `lint_kernel` closes these gaps for a kernel of your own. It compiles it for an H100, and where kernels are interpreted it runs it once more and holds every address against the tensors. Here is this section's product of bfloat16 tiles, not upcast. (On a GPU only the compiler speaks; there NVIDIA's `compute-sanitizer` watches the addresses.)

# %%
from flashlab_course.compiler import lint

tile = torch.randn(16, 16, dtype=torch.bfloat16)
launched = {"A": tile, "B": tile, "C": torch.empty(16, 16), "upcast": False, "n": 16}
print(lint.as_text(lint.lint_kernel(product_kernel, launched, grid=(1,))))

# %% [markdown]
# **Change this and run again.** Hand it section 2's `copy_kernel` with `last = T_r * B_r`, or your own kernel with a mask taken out. From a terminal, `python -m flashlab doctor --help` says how.
#
# **Takeaway.** The interpreter for the algorithm, the compiler for the machine, a GPU for the time. Two of the three you always have.

# %% [markdown]
# ## An open question
#
# In a causal grid the last query blocks see the most keys, so the last programs are the longest, and towards the end most SMs wait for a few of them. In which order would you hand out the blocks, or which two would you give to one program, so that all end together? And what does the L2 cache say to it, when neighbours no longer read the same keys? There is no check for this one.
#
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 1 · Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · Triton's tutorial on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html) and its page on [debugging](https://triton-lang.org/main/programming-guide/chapter-3/debugging.html)
#
# **Next:** [11 · The backward kernels](11_triton_backward.ipynb) makes it trainable. [16 · Benchmarks](16_benchmarks.ipynb) puts a clock on it, beside every attention that PyTorch has.
