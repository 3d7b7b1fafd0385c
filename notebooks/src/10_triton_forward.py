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
# **You need** chapters 06 and 09 (core) · **core:** sittings 1 and 2, 45 minutes each · **further:** sitting 3, 20 minutes, and sitting 4, 35 minutes · **runs on** CPU (interpreted) or GPU (compiled); Triton, so Linux
#
# You wrote this algorithm in PyTorch in chapter 06. Now you write it as one function that a GPU runs in thousands of copies: first one tile of scores, then the whole program.

# %%
import flashlab  # first: it tells Triton where to run
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import inspect
import warnings

import torch
import triton
import triton.language as tl

from flashlab.kernels.fa2 import fa2_forward_kernel, fa2_triton_forward, launch
from flashlab.memory import Memory, kernel, load, store, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab.rungs import fa2
from flashlab.triton_mode import interpreted
from flashlab_course import figures
from flashlab_course.check import check
from flashlab_course.gpu.guards import forward_with
from flashlab_course.lesson import compare, replay, reveal

torch.manual_seed(0)
warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")     # numpy's, where we make NaN on purpose
device, how = ("cpu", "interpreted") if interpreted() else ("cuda", "compiled")

# %% [markdown]
# ## Sitting 1 (core) · What changes on the way to Triton
#
# ### The outer loop becomes the grid
#
# No query block needs another's result, so each query block of each head becomes a program. **Predict** the number of programs for 2 sequences, 3 heads, 100 queries and $B_r = 32$. How many rows does the last block of a head have?

# %%
my_grid = {"programs": None, "rows of the last block": None}

# %%
T_r = triton.cdiv(100, 32)                           # rounded up: the last block is short, not dropped
numbers = torch.arange(2 * 3 * T_r)                  # tl.program_id(0) of each program
compare("grid of the forward kernel", my_grid, {"programs": len(numbers), "rows of the last block": 100 - (T_r - 1) * 32})
figures.matrices({"": numbers.view(2 * 3, T_r).T}, f"{len(numbers)} programs, one for each query block of each head",
                 "Definition: in the cells tl.program_id(0).", "head b · H + h", "query block i")

# %% [markdown]
# A program knows its number and nothing else. Division and remainder give the query block and the head: `i, head = program % T_r, program // T_r`. (Grids of two axes, as in the exercises, save this step.)
#
# A program multiplies its own number by strides. Triton passes small integers as 32-bit numbers, and 32-bit products overflow at $2^{31}$. So write `.to(tl.int64)` on the program's own index before it meets a stride.
#
# ### One tile of scores
#
# `tl.dot(Q_i, K_j.T)` multiplies two tiles of one dtype, on tensor cores where that dtype allows it. The operands may have 16 bits; the scores are float32. $K_j$ is loaded by rows, so that neighboring threads read neighboring addresses. `.T` then turns the tile, not the memory.
#
# **Your turn** ([exercises/ex10_tile_of_scores.py](../exercises/ex10_tile_of_scores.py), 25 minutes). One program computes one tile of $S$: strides, a mask for each side, and 64-bit offsets. The checker puts NaN around every tensor.

# %%
check("ex10_tile_of_scores")

# %%
reveal("ex10_tile_of_scores")

# %%
replay("ex10_tile_of_scores")

# %% [markdown]
# ### The running softmax changes its spelling
#
# | PyTorch, chapter 06 | Triton |
# |---|---|
# | `S_ij.amax(-1)`, `P_ij.sum(-1)` | `tl.max(S_ij, 1)`, `tl.sum(P_ij, 1)` |
# | `torch.full((B_r,), -inf)` | `tl.full((B_r,), -float("inf"), tl.float32)` |
# | `S_ij.masked_fill(hidden, -inf)` | `tl.where(visible, S_ij, -float("inf"))` |
#
# Everything that a program adds up ($S_{ij}$, $l_i$, $O_i$) is float32. Here is half of the kernel: a loop that computes the logsumexp of each row. It has no $V$, no $O$, one head, and no short tiles.

# %%
@triton.jit
def logsumexp_kernel(Q, K, L, scale, N_k, d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    rows, col = tl.program_id(0) * B_r + tl.arange(0, B_r), tl.arange(0, d)
    Q_i = tl.load(Q + rows[:, None] * d + col[None, :])              # (B_r, d)    stays here for the whole loop
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                 # (B_r,)      below any score
    l_i = tl.zeros((B_r,), tl.float32)                               # (B_r,)
    for j in range(0, N_k // B_c):
        keys = j * B_c + tl.arange(0, B_c)                           # (B_c,)
        K_j = tl.load(K + keys[:, None] * d + col[None, :])          # (B_c, d)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale    # (B_r, B_c)   "ieee": not TF32
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))                     # (B_r,)
        l_i = tl.exp(m_i - m_new) * l_i + tl.sum(tl.exp(S_ij - m_new[:, None]), 1)
        m_i = m_new
    tl.store(L + rows, m_i + tl.log(l_i))

# %%
Q, K, L = 60 * torch.randn(64, 64, device=device), torch.randn(96, 64, device=device), torch.empty(64, device=device)
logsumexp_kernel[(64 // 16,)](Q, K, L, 64**-0.5, 96, 64, 16, 16)
_, truth = attention(Q, K, K)
print(f"{how}: off by {max_error(L, truth):.1e}, although exp({truth.max():.0f}) overflows float32")

# %% [markdown]
# Step through two programs and three key blocks. What is loaded once, what again, and what is stored?

# %%
from flashlab_course.player import play, record_kernel

Q, K, L = torch.randn(32, 16), torch.randn(48, 16), torch.empty(32)
run = lambda: logsumexp_kernel[(2,)](Q, K, L, 0.25, 48, 16, 16, 16)
play(record_kernel(run)) if interpreted() else print("Kernels are compiled here. Set TRITON_INTERPRET=1 to see the player.")

# %% [markdown]
# **Takeaway.** The running state of a program is a few tiles on chip. Nothing of the softmax touches memory.
#
# ### Short tiles need two guards
#
# 40 keys in tiles of 16 make two and a half tiles. `forward_with` runs a forward kernel with the guards that you name:
#
# - `"loads"` masks the loads of $K_j$ and $V_j$, with 0 in place of what does not exist.
# - `"scores"` sets the scores of keys that do not exist to $-\infty$, so their weights are exactly 0.
#
# A load past the end of a tensor gets whatever is there, without an error. So `in_nan` puts NaN there.

# %%
def in_nan(T, rows=16):
    """The same values, with `rows` rows of NaN right behind them in memory."""
    room = T.new_full((len(T) + rows, T.shape[1]), float("nan"))
    room[:len(T)] = T
    return room[:len(T)]


N_k = 40
Q, K, V = (in_nan(torch.randn(n, 32, device=device)) for n in (50, N_k, N_k))

# %% [markdown]
# **Predict** for each choice of guards: is the output `"right"`, `"wrong"` but finite, or `"NaN"`?

# %%
my_tails = {"neither": None, "loads": None, "scores": None, "loads and scores": None}

# %% [markdown]
# **Run and compare.** This cell goes wrong on purpose, three times.

# %%
results, words = {}, {}
for name in ("neither", "loads", "scores", "loads and scores"):
    O = results[name] = forward_with(name.split(" and "), Q, K, V)
    verdict = judge(O, None, Q, K, V)
    words[name] = "right" if verdict.ok else "NaN" if O.isnan().any() else "wrong"
    print(f"{name:<17}{words[name]:<6} off by {verdict.error_O:.1e}")
_ = compare("ragged tail with these guards", my_tails, words)
zeros = torch.zeros(8, 32, device=device)
P = torch.softmax(Q @ torch.cat([K, zeros]).T * 32**-0.5, -1)
ghosts = torch.arange(48, device=device) >= N_k
figures.matrices({"": torch.where(ghosts, -P, P).cpu()}, f"With load masks alone, eight keys of zeros take {P[:, ghosts].sum() / P.sum():.0%} of the weight",
                 "Measured here: the softmax of the scores that a load mask alone leaves. Orange: keys that do not exist.", "key", "query",
                 number="", top=0.1)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# - *Neither:* keys of NaN give scores of NaN.
# - *Scores alone:* the weight is 0, but $0 \cdot \mathrm{NaN} = \mathrm{NaN}$ in the product $P_{ij} V_j$. With ordinary numbers behind $V$, this case would have passed.
# - *Loads alone:* finite, smooth and wrong. It is attention over 48 keys, eight of them zero.
#
# </details>
#
# Padding $d$ is different. A head of 59 columns is loaded into a tile of 64, and five zeros add nothing to a dot product.
#
# ### Causal: stop early, hide the edge, mind blind rows
#
# As in chapter 06, the loop ends after the last key that the block's last query sees: after $\min(N_q, (i+1) B_r) + N_k - N_q$ keys. In the tiles on the diagonal the mask is one comparison, `keys <= rows[:, None] + N_k - N_q`. It hides the short tail as well.
#
# With more queries than keys some rows see nothing. `m_safe` is $m_{new}$, with 0 in place of $-\infty$; the exponents subtract it. **Predict.** 50 queries, 40 keys, tiles of $16 \times 16$, causal: how many rows are NaN if they subtract $m_{new}$ itself?

# %%
my_nan_rows = None

# %%
Q, K, V = (in_nan(torch.randn(n, 32, device=device)) for n in (50, 40, 40))
nan_rows = {}
for guards in (("loads", "scores"), ("loads", "scores", "m_safe")):
    O = forward_with(guards, Q, K, V, causal=True)
    nan_rows[guards[-1]] = int(O.isnan().any(1).sum())
    print(f"{', '.join(guards)}: {nan_rows[guards[-1]]} rows with NaN, right: {judge(O, None, Q, K, V, causal=True).ok}")
_ = compare("NaN rows without m_safe", my_nan_rows, nan_rows["scores"])

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Queries 0 to 9 see no key. For them $m_i$ and $m_{new}$ are both $-\infty$, and their difference is NaN.
#
# </details>
#
# **Takeaway.** The loop's end saves work. The masks make the result right. `m_safe` covers the rows that the mask empties.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · Write it
#
# Before you write it, watch one program: query block 1 of three, causal, in chapter 06's PyTorch. Which of $Q_i$, $O_i$, $K_j$ and $V_j$ stay on chip for the whole loop? Then change `i` and run it again: how many key blocks does block 2 load?

# %%
from flashlab_course.player import play, record


def one_program(i, Q, K, V, B):
    O, L = torch.empty_like(Q), torch.empty(len(Q))
    with kernel("fa2_forward", Q=Q, K=K, V=V, O=O, L=L):
        fa2._program(Q, K, V, O, L, slice(i * B, (i + 1) * B), B, len(K) - len(Q), 0.5)


i = 1                                                                    # change me: 0, 1 or 2
watched = record(one_program, i, *(torch.randn(n, 4) for n in (12, 16, 16)), 4, follow=fa2._program, sram_bytes=1024)
watched.title = f"program {i} of 3"
play(watched)

# %% [markdown]
# **Your turn** ([exercises/ex10_triton_forward.py](../exercises/ex10_triton_forward.py), 35 minutes). Compute query block $i$ of one head, causal or not, any sizes, with $O_i$ and $L_i$ as results. Begin with your tile of scores, for one key block and without a mask; the checker tells you what comes next. It is the hardest exercise of the core. After "two key blocks" you may stop, and go on next time.

# %%
check("ex10_triton_forward")

# %%
reveal("ex10_triton_forward")

# %%
replay("ex10_triton_forward")

# %% [markdown]
# The solution visits every key block and hides what is not seen; to stay short, it does not stop early. [flashlab/kernels/fa2.py](../flashlab/kernels/fa2.py) stops early. It adds batches, any `d` and `d_v`, heads that share keys, and dropout for chapter 11. Here are its lines beside those of chapter 06's inner step: the same names in the same order.

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
# The kernel also numbers its query blocks backwards: under a causal mask the last block has the most work, so it must not start last.
#
# **Takeaway.** A Triton kernel is the same algorithm. The outer loop is the grid, slices are addresses, and short tiles are masks.
#
# *End of sitting 2 and of the core. [Chapter 11](11_triton_backward.ipynb) has the backward pass; [chapter 16](16_benchmarks.ipynb) measures your kernel.*
#
# ## Sitting 3 (further) · Shared heads, windows, lists of tiles (20 minutes)
#
# ### Heads that share keys
#
# In grouped-query attention neighboring query heads share a key head. A kernel needs no copies of $K$ and $V$: it computes the number of the key head. **Change this and run again**, until all eight query heads agree with the kernel:

# %%
def key_head(h, H_q, H_kv):
    return h % H_kv                                                      # change me


Q = torch.randn(1, 8, 70, 32, device=device)
K, V = (torch.randn(1, 2, 90, 32, device=device) for _ in range(2))
shared, _ = fa2_triton_forward(Q, K, V, B_r=64, B_c=64)
yours = [attention(Q[0, h], K[0, key_head(h, 8, 2)], V[0, key_head(h, 8, 2)])[0] for h in range(8)]
print(f"{how}: your key head is right for the query heads", [h for h in range(8) if max_error(shared[0, h], yours[h]) < 1e-3])

# %% [markdown]
# <details><summary><b>Why?</b> (after the run)</summary>
#
# $H_q / H_{kv} = 4$ query heads share a key head, so $h_{kv} = \lfloor h / 4 \rfloor$: one integer division.
#
# </details>
#
# ### A window, and sequences in a row
#
# Two features of models change which tiles there are, and nothing inside a tile:
#
# - With a **window** `(left, right)` a query sees `left` keys before its own place and `right` after it. Causal is `right = 0` without a left end.
# - Sequences of different lengths can be **packed** one after the other along $N$, without padding. Each sees only itself.
#
# The ladder's kernels do neither. [flashlab/operator/windows.py](../flashlab/operator/windows.py) is this chapter's kernel with both.
#
# **Predict.** There are 128 tokens and tiles of $16 \times 16$; causal attention visits 36 of the 64 tiles. How many does it visit with the window $(32, 0)$? And if the tokens are three causal sequences of 50, 30 and 48, each cut into tiles from its own start?

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
walks = {"causal": [walk(0, 128)], "window (32, 0)": [walk(0, 128, left=32)], "three sequences": [walk(*place) for place in places]}
visits = [sum(event.name == "K" for log, _ in logs for event in log) for logs in walks.values()]
_ = compare("tiles left", my_left, {"window": visits[1], "packed": visits[2]})
figures.tile_grids(walks, 128)

# %% [markdown]
# The tiles of a window grow with $N \cdot$ `left`, not with $N^2$.
#
# In a packed call, a program must find its sequence and its query block. The rule: sequence $s$, which begins at token $c_s$, owns the programs from number $\lfloor c_s / B_r \rfloor + s$ on, up to those of the next sequence. So each sequence has at least as many programs as query blocks; a program without a block stops at once.

# %%
Q = torch.randn(128, 4, 32, device=device)                               # (T, H, d): heads inside, as models have them
K, V = (torch.randn(128, 2, 32, device=device) for _ in range(2))
starts = torch.tensor([0, 50, 80, 128], dtype=torch.int32, device=device)
O = flashlab.flash_attention_varlen(Q, K, V, starts, starts, causal=True, backend="triton")
for start, stop in places:
    alone, _ = attention(*(T[start:stop].transpose(0, 1) for T in (Q, K, V)), causal=True)
    print(f"{how}: tokens {start} to {stop} differ from a call of their own by {max_error(O[start:stop].transpose(0, 1), alone):.1e}")

# %% [markdown]
# **Takeaway.** Tiles that no query sees move the start and the end of the loop. Masks are for the tiles on the edge.
#
# ### A list of tiles
#
# A window or a sequence leaves a range of tiles. Any other pattern leaves a *list*: `lists[i]` holds the key blocks of query block $i$. This is block-sparse attention. [FlexAttention](https://pytorch.org/blog/flexattention/) makes such lists from a function of query and key, and calls them a *block mask*. Here is FA2's program with a list:

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

# %%
document = lambda n: (n >= 50).int() + (n >= 80).int()
masks = {"documents": lambda q, k: (k <= q) & (document(k) == document(q)),
         "first and near": lambda q, k: (k <= q) & ((k < 16) | (k // 16 >= q // 16 - 1))}
logs, n, (Q, K, V) = {}, torch.arange(128), (torch.randn(128, 16) for _ in range(3))
for name, visible in masks.items():
    O, mem, lists = attend(Q, K, V, visible)
    truth = torch.softmax((Q @ K.T / 4).double().masked_fill(~visible(n[:, None], n), -torch.inf), -1) @ V.double()
    logs[name] = [(mem.log, 0)]
    print(f"{name}: {sum(map(len, lists))} of 64 tiles; O differs from masked naive attention by {max_error(O, truth):.1e}")
figures.tile_grids(logs, 128)

# %% [markdown]
# **Change this and run again**: add a mask of your own to `masks`. How many tiles does it leave?
#
# **Takeaway.** A list saves the work that a mask hides, but only in whole tiles.
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · Is it right, and on a GPU? (35 minutes)
#
# ### Each dtype against float64
#
# The inputs are ragged in every direction: $N_q \ne N_k$, $d_v \ne d$, neither a power of two. The allowed error is twice that of naive attention in the same dtype, plus a rounding. A float16 number has 11 significant bits, bfloat16 has 8 and float32 has 24. **Predict** the order of the three, from the smallest error to the largest.

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
        rows.append({"dtype": dtype, "causal": causal, "rms": verdict.rms_O})
_ = compare("dtypes by error", my_order, [row["dtype"] for row in sorted(rows, key=lambda row: row["rms"]) if row["causal"]])
figures.bars({f"{row['dtype']}{', causal' * row['causal']}": row["rms"] for row in rows}, "Each dtype has an error of its own size",
             f"Measured here, {how}: O of 97 queries, 113 keys.", "rms error against float64", log=True)

# %% [markdown]
# ### The same bits?
#
# **Predict.** This kernel and chapter 06's PyTorch get the same float32 inputs and the same tiles. Do they return the same $O$, to the last bit?

# %%
my_same_bits = None     # True or False

# %%
Q, K, V = (torch.randn(1, 1, n, 64, device=device) for n in (97, 113, 113))
O, L = fa2_triton_forward(Q, K, V, causal=True, B_r=32, B_c=64)
O_rung, L_rung = fa2.fa2_forward(Q[0, 0], K[0, 0], V[0, 0], causal=True, B_r=32, B_c=64)
_ = compare("kernel and rung bit for bit", my_same_bits, torch.equal(O[0, 0], O_rung))
print(f"O differs by at most {max_error(O[0, 0], O_rung.double()):.1e}, L by {max_error(L[0, 0], L_rung.double()):.1e}")

# %% [markdown]
# Inside a tile, the two add up in different orders.
#
# **Takeaway.** Compare with float64 and a bound, not with another implementation's bits.
#
# ### The operator checks what a kernel cannot
#
# A kernel trusts its pointers, so whoever launches it must check the tensors. `flash_attention`, which users call, does so. Three calls fail here on purpose: three query heads for two key heads; float32 $Q$ and $V$ with float16 $K$; 64 keys with 60 values. Which of them does PyTorch's own attention accept?

# %%
from flashlab.operator.attention import pick_backend

Q, K, V = (torch.randn(1, h, 64, 32, device=device) for h in (4, 2, 2))
print("auto picks here: {} ({})".format(*pick_backend(Q.device, Q.dtype, 32)))
accepted = []
for n, tensors in enumerate([(Q[:, :3], K, V), (Q, K.half(), V), (Q, K, V[:, :, :60])], 1):
    try:
        flashlab.flash_attention(*tensors)
    except (TypeError, ValueError) as error:
        print(f"{n}: {type(error).__name__}: {error}")
    try:
        accepted += [n] if torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True) is not None else []
    except RuntimeError:
        pass
print(f"PyTorch's own attention (torch {torch.__version__.split('+')[0]}, {device}) accepts call {accepted or 'none'}")

# %% [markdown]
# Where such a call is accepted, an output comes back, full of numbers that are not attention.
#
# ### Offsets beyond 32 bits
#
# **Predict.** A float16 tensor has $2^{31}$ elements. How many GB is it, and which offset does 32-bit arithmetic give for its end?

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
# The next batch would be read from 4 GB *before* the tensor.
#
# ### bfloat16
#
# The interpreter runs the same source as a GPU, so it proves the algorithm and the masks. It does not notice stray addresses (sitting 1). Nor does it know bfloat16: a product multiplies the raw 16-bit patterns as integers.

# %%
@triton.jit
def product_kernel(A, B, C, upcast: tl.constexpr, n: tl.constexpr):
    at = tl.arange(0, n)[:, None] * n + tl.arange(0, n)
    a, b = tl.load(A + at), tl.load(B + at)
    if upcast:
        a, b = a.to(tl.float32), b.to(tl.float32)
    tl.store(C + at, tl.dot(a, b, input_precision="ieee"))


left, right = (torch.randn(16, 16, device=device, dtype=torch.bfloat16) for _ in range(2))
for upcast in (False, True):
    C = torch.empty(16, 16, device=device)
    product_kernel[(1,)](left, right, C, upcast, 16)
    print(f"{how}, upcast={upcast}: off by {max_error(C, left.double() @ right.double()):.1e}")

# %% [markdown]
# So `fa2_triton_forward` widens bfloat16 to float32 when it is interpreted, and only then.
#
# ### Registers and instructions
#
# Triton compiles for any NVIDIA GPU on a machine without one. The compiler reports registers (a thread has 255 at most), bytes that spilled out of them into memory, shared memory, and the instruction that multiplies. **Change `tile` and run again**: on which of the three GPUs do 128 keys spill?

# %%
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all, compile_for

Q = torch.empty(1, 16, 4096, 128, dtype=torch.float16, device="meta")        # only shapes, strides and dtypes matter
_, arguments = launch(Q, Q, Q, Q, torch.empty(1, 16, 4096, device="meta"), causal=True, scale=128**-0.5)
tile, rows = {"B_r": 128, "B_c": 64}, []                                      # change the tile
for gpu, name in zip(compile_all([(fa2_forward_kernel, arguments | tile, arch) for arch in (80, 90, 100)]), ("A100", "H100", "B200"), strict=True):
    product, = (op for op in ("mma.sync", "wgmma.mma_async", "tcgen05.mma") if op in gpu.ptx)
    rows.append({"name": f"{name}: {product}", "registers": gpu.registers, "spills": gpu.spills, "shared": gpu.shared_bytes,
                 "limit": SHARED_LIMIT[gpu.arch]})
figures.compiled_kernels(rows)

# %% [markdown]
# ### Sizes
#
# The interpreter multiplies tiles of any shape. The compiler wants each `tl.dot` to sum over at least 16 numbers; rows and columns of the result may be fewer, and are padded. **Predict** for three tiles $B_r \times B_c$, at $d = 128$, whether the forward kernel `"compiles"` or `"fails"`. (Over what does $Q_i K_j^\top$ sum, and over what $P_{ij} V_j$?)

# %%
my_small_tiles = {"8 × 8": None, "8 × 16": None, "16 × 8": None}

# %%
outcomes = {}
for B_r, B_c in ((8, 8), (8, 16), (16, 8)):
    name = f"{B_r} × {B_c}"
    try:
        outcomes[name] = "compiles" * bool(compile_for(fa2_forward_kernel, arguments | {"B_r": B_r, "B_c": B_c}, 90).ptx)
    except RuntimeError as error:
        outcomes[name] = "fails"
        print(f"{name}: {str(error).strip().splitlines()[-1]}")
_ = compare("small tiles", my_small_tiles, outcomes)

# %% [markdown]
# `lint_kernel` (chapter 09) closes these gaps for a kernel of your own. On a GPU, NVIDIA's `compute-sanitizer` watches the addresses.
#
# **Takeaway.** Use the interpreter for the algorithm, the compiler for the machine, and a GPU for the time. Two of the three you always have.
#
# ### An open question
#
# In a causal grid the last query blocks see the most keys, so towards the end most SMs wait for a few long programs. In which order would you hand out the blocks? Which two would you give to one program, so that all end together?

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 1 · Tillet, Kung, Cox 2019, [Triton](https://doi.org/10.1145/3315508.3329973) · Triton's tutorial on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html) and its page on [debugging](https://triton-lang.org/main/programming-guide/chapter-3/debugging.html)
#
# **Next:** [11 · The backward kernels](11_triton_backward.ipynb) makes it trainable. [16 · Benchmarks](16_benchmarks.ipynb) measures it beside every attention that PyTorch has.
