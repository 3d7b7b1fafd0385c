# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 · FlashAttention-1
#
# **You will be able to** write the forward pass of FlashAttention-1: key blocks outside, query blocks inside; choose tiles that fit the SRAM; read the paper's algorithm line by line; and explain why its dropout mask is never stored.
#
# **You need** chapters 03 (online softmax) and 04 (tiles). · **100 minutes**, 55 of them for two exercises · **runs on** CPU
#
# Chapter 03 gave the softmax that can be corrected later. Chapter 04 gave the tiles. Put together they are FlashAttention, by [Dao et al. 2022](https://arxiv.org/abs/2205.14135): Algorithm 1 there, and with mask and dropout Algorithm 2.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost
from flashlab_course import figures, sweeps
from flashlab_course.check import check
from flashlab_course.figures.chapter_05 import tile_bytes
from flashlab_course.lesson import compare, replay, reveal, yours
from flashlab.memory import KiB, Memory, SRAMOverflow, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.naive import naive_forward
from flashlab.tiles import hidden, paper_tile_sizes

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## Who stays, who moves
#
# FA1 takes one block of keys and values onto the chip and keeps it there while all query blocks pass by; then the next. Between two visits of a query block three things wait for it in HBM: its running output $O_i$, its sum $l_i$ and its maximum $m_i$. Four key blocks, four query blocks. **Predict** how often each number is read from HBM.

# %%
my_reads = {"Q": None, "K": None, "O": None}

# %% [markdown]
# **Run and compare.** `Memory` writes a log of every load and store; the picture replays it: the order in which tiles of $S$ are visited, and how many bytes cross HBM at each step. (We run the package's `fa1_forward` before we write its inner step.)

# %%
Q, K, V = (torch.randn(64, 16) for _ in range(3))
with Memory() as mem:
    fa1_forward(Q, K, V, B_r=16, B_c=16)
reads = {name: sum(event.read for event in mem.log if event.name == name and event.kind == "load") // Q.nbytes for name in "QKO"}
said = compare("times each number is read by FA1", my_reads, reads)
figures.tile_traversal({"fa1_forward": mem.log}, 64, 64)

# %% [markdown]
# The same, smaller and line by line. Watch which tensors stay while others come and go. (Its last function, `_step`, spoils the second exercise of this chapter. To write it unaided, watch the tiles only.)

# %%
from flashlab_course.player import play, record

q, k, v = (torch.randn(16, 4) for _ in range(3))
play(record(fa1_forward, q, k, v, B_r=4, B_c=4, sram_bytes=1024))

# %% [markdown]
# **Takeaway.** $K$ and $V$ cross HBM once. $Q$ and the running $O$ cross it once per key block, $O$ in both directions.
#
# ## How large may a tile be?
#
# The paper derives its tiles from the SRAM: $B_c = \lceil M/4d \rceil$ and $B_r = \min(\lceil M/4d \rceil, d)$, where $M$ is the number of elements that fit. **Your turn** ([exercises/ex05_tile_sizes.py](../exercises/ex05_tile_sizes.py), 20 minutes): this rule, and a second one that leaves more room.

# %%
check("ex05_tile_sizes")

# %%
reveal("ex05_tile_sizes")

# %% [markdown]
# The model's budget is 192 KiB: an A100's L1 cache and shared memory together, for each multiprocessor. (A program gets less, at most 163 KiB on an A100 and 227 KiB on an H100 or H200; and it keeps its sums in the register file, 256 KiB more, which the model does not have.) In float32 with $d = 64$ the paper's rule gives $B_r = 64$ and $B_c = 192$. **Predict**: will it run?

# %%
my_will_it_run = None     # True or False

# %% [markdown]
# **Run and compare.** Read which tile was one too many, and what else was on the chip at that moment.

# %%
B_r, B_c = paper_tile_sizes(192 * KiB, d=64)
Q, K, V = (torch.randn(512, 64) for _ in range(3))
it_ran = True
try:
    with Memory(sram_bytes=192 * KiB):
        fa1_forward(Q, K, V, B_r=B_r, B_c=B_c)
except SRAMOverflow as error:
    it_ran = False
    print(error)
said = compare("the paper's tiles run in 192 KiB", my_will_it_run, it_ran)

# %% [markdown]
# The scores $S_{ij}$ are there, 48 KiB of them; their scaled copy is one tile too many. Here is what the inner step needs, in the order in which it comes, for the paper's tiles and for the square ones of our second rule. Try tiles of your own.

# %%
figures.tiles_in_sram({f"the paper's {B_r} × {B_c}": tile_bytes(B_r, B_c, d=64), "64 × 64": tile_bytes(64, 64, d=64)}, 192 * KiB)

# %% [markdown]
# So the rule does count $S_{ij}$. The proof of Theorem 2 has three conditions: $K_j$ and $V_j$ must fit, $B_c d = O(M)$; so must $Q_i$ and $O_i$, $B_r d = O(M)$; and so must $S_{ij}$: $B_r B_c = O(M)$. With $B_c = M/4d$ the last one says that $B_r$ is at most about $d$. That is where $\min(\cdot, d)$ comes from. **Predict**: without it, with $B_r = B_c = \lceil M/4d \rceil$, how much of the SRAM would one $S_{ij}$ take at $d = 32$?

# %%
my_share_of_S = None     # 1 is all of the SRAM

# %% [markdown]
# **Run and compare.** The same 192 KiB, for several head dimensions.

# %%
M = 192 * KiB // 4
B = paper_tile_sizes(192 * KiB, d=32)[1]
said = compare("share of the SRAM that S would take", my_share_of_S, B * B / M)
tiles_of = {d: paper_tile_sizes(192 * KiB, d=d) for d in (32, 64, 128, 256)}
shares = {"B_r = min(⌈M/4d⌉, d)": {d: B_r * B_c / M for d, (B_r, B_c) in tiles_of.items()},
          "B_r = ⌈M/4d⌉": {d: B_c * B_c / M for d, (_, B_c) in tiles_of.items()}}
said.on(figures.curves(shares, f"At d = 32 one S_ij would take {B * B / M:.0f} times the SRAM; with min(·, d), {shares['B_r = min(⌈M/4d⌉, d)'][32]:.2f}",
                       "Modelled: the paper's rule, elements of 4 bytes.", "head dimension d", "share of the SRAM that S_ij takes",
                       log="xy", ceilings={"all of the SRAM": 1}), x=32)

# %% [markdown]
# With the minimum, $S_{ij}$ takes a quarter at most. A kernel that scales and exponentiates in place would get by with that; ours, as eager PyTorch does, makes a new tile for every result. So our default leaves room: the largest multiple of 16 with $8 B \max(d, d_v) + 3 B^2 \le M$, that is four strips and as much again for results in the making, and three squares. How full does it get?

# %%
with Memory(sram_bytes=192 * KiB) as mem:
    fa1_forward(Q[:192], K[:192], V[:192])
live = dict(enumerate(event.live for event in mem.log if event.kind != "eager"))
figures.curves({"FA1": live}, f"At the peak, live tiles take {mem.sram_peak / mem.sram_bytes:.0%} of the SRAM",
               "Modelled: replayed from the log of flashlab.memory, one program at a time.", "loads, stores and operations, in order",
               "live SRAM", byte="y", ceilings={"budget": mem.sram_bytes})

# %% [markdown]
# **Takeaway.** Tile sizes are a budget question: strips of $d$ columns, squares of scores, and whatever is being computed at the moment. The paper's rule is about growth, $B_c \sim M/d$.
#
# ## The bytes
#
# Each number of $Q$, $l$ and $m$ is read once per key block, each number of $O$ read and written. **Predict** the HBM traffic in bytes as a function of $N$: float32, $d = 64$, tiles of 64.

# %%
my_bytes = None     # a function of N, for example lambda N: 4 * N * 64 * (N / 64)

# %% [markdown]
# **Run and compare.** Dots are counted under `Memory`, dashed lines are the closed forms of `cost`.

# %%
points = sweeps.over_N([128, 256, 512, 1024], d=64, rungs=["naive_forward", "fa1_forward"])
said = compare("HBM bytes of FA1", my_bytes, {p["N"]: p["measured"] for p in points if p["rung"] == "fa1_forward"}, "bytes")
said.on(figures.traffic_against(points))

# %% [markdown]
# In elements FA1 reads $N_k(d + d_v) + T_c N_q (d + d_v + 2)$ and writes $(T_c + 1) N_q (d_v + 2) + N_q$. No term is a bare $N_q N_k$; but $T_c = \lceil N_k/B_c \rceil$ multiplies everything that belongs to the queries. What share of naive attention's traffic is that at $N = 1024$? Naive attention, as we count it, also computes $L$, which plain attention does not need; so here are both.

# %%
with Memory() as naive:
    naive_forward(*(torch.randn(1024, 64) for _ in range(3)))
logsumexp = next(event for event in naive.log if event.name == "logsumexp")
fa1_bytes = cost.fa1_forward(1024, 1024, 64, B_r=64, B_c=64).traffic
all_bytes = naive.read + naive.written
print(f"modelled: {fa1_bytes / all_bytes:.0%} of naive attention's bytes, "
      f"{fa1_bytes / (all_bytes - logsumexp.read - logsumexp.written):.0%} of them without logsumexp")

# %% [markdown]
# (These are bytes that the algorithm asks for. On a GPU the L2 cache would serve some of the repeated reads, and DRAM would see fewer.)
#
# **Takeaway.** The square is still there, divided by $B_c$: double the tile, halve the traffic.
#
# ## One step: key block $j$ meets query block $i$
#
# Now write it. A step gets $Q_i$, $K_j$, $V_j$ and the three running values. What must hold after every step, for the keys seen so far: $m_i$ is the largest score, $l_i$ the sum of $e^{\text{score} - m_i}$, and $O_i$ is the finished attention over these keys, *divided by* $l_i$ already. Two options come along. `hidden` is True where a score is masked; a row may have seen no key yet, and its $O_i$ is 0. `keep` is True where dropout lets an entry of the softmax through; what is kept is divided by $1 - p$, and $l_i$ knows nothing of it.
#
# **Your turn** ([exercises/ex05_fa1_inner_loop.py](../exercises/ex05_fa1_inner_loop.py), 35 minutes).

# %%
check("ex05_fa1_inner_loop")

# %%
reveal("ex05_fa1_inner_loop")

# %% [markdown]
# `replay` runs your own step inside FA1's loops, line by line. If a number is wrong, the player opens where it was stored.

# %%
replay("ex05_fa1_inner_loop")

# %% [markdown]
# And its bytes, if it passes: your step in FA1's loops, among the curves.

# %%
Ns = [128, 256, 512, 1024]
figures.traffic_against(sweeps.over_N(Ns, rungs=["naive_forward", "fa1_forward"]) + yours.over_N(Ns))

# %% [markdown]
# From here on the step is no secret. Two loops around it, and `fa1_forward` is complete: `j` outside, `i` inside. Between any two steps everything in $O$ is a correct answer to a smaller question. Check it after each key block.

# %%
Q, K, V = (torch.randn(n, 16) for n in (32, 48, 48))
for seen in (16, 32, 48):
    O, L = fa1_forward(Q, K[:seen], V[:seen], B_r=16, B_c=16)
    print(f"after {seen} of 48 keys, against attention to these {seen}: {judge(O, L, Q, K[:seen], V[:seen])}")

# %% [markdown]
# ## The paper's algorithm, line by line
#
# Algorithm 2 of the paper (appendix B.3) with mask $\mathrm{MASK}$, scale $\tau$ and dropout, beside the lines of [flashlab/rungs/fa1.py](../flashlab/rungs/fa1.py). The last column names the differences.
#
# | line | Algorithm 2 | the rung | |
# |---|---|---|---|
# | 1 | save the generator's state $\mathcal R$ | `draw = keep_masks(dropout_p, rng_state, Q.device, acc)` | the caller saves it |
# | 2 | $B_c = \lceil M/4d \rceil$, $B_r = \min(\lceil M/4d \rceil, d)$ | `shift, scale, acc, B_r, B_c = prepare(` | smaller tiles, as above |
# | 3 | $O = 0$, $\ell = 0$, $m = -\infty$ in HBM | `O = torch.zeros(`, `l = torch.zeros(`, `m = torch.full(` | |
# | 4–6 | cut $Q$, $K$, $V$, $O$, $\ell$, $m$; for each $j$ | `for cols in tiles(K.shape[0], B_c):` | |
# | 7 | load $K_j$, $V_j$ | `K_j = load(K, cols)`, `V_j = load(V, cols)` | |
# | 8 | for each $i$ | `for rows in tiles(Q.shape[0], B_r):` | |
# | 9 | load $Q_i$, $O_i$, $\ell_i$, $m_i$ | `Q_i = load(Q, rows)`, `O_i = load(O, rows)`, `l_i, m_i = load(l, rows), load(m, rows)` | |
# | 10 | $S_{ij} = \tau Q_i K_j^\top$ | `S_ij = Q_i @ K_j.T * scale` | |
# | 11 | $S_{ij} = \mathrm{MASK}(S_{ij})$ | `S_ij = S_ij.masked_fill(hidden_ij, -inf)` | |
# | 12 | $\tilde m = \mathrm{rowmax}(S_{ij})$, $\tilde P = e^{S_{ij} - \tilde m}$, $\tilde\ell = \mathrm{rowsum}(\tilde P)$ | `P_ij = torch.exp(S_ij - m_safe[:, None])` | **a**: we shift by the running maximum |
# | 13 | $m^{new} = \max(m_i, \tilde m)$, $\ell^{new} = e^{m_i - m^{new}} \ell_i + e^{\tilde m - m^{new}} \tilde\ell$ | `m_new = torch.maximum(m_i, S_ij.amax(-1))`, `l_new = alpha * l_i + P_ij.sum(-1)` | **a** |
# | 14 | drop entries of $\tilde P$ | `P_ij = P_ij * keep_ij / (1 - dropout_p)` | both after the sum |
# | 15 | $O_i \leftarrow \mathrm{diag}(\ell^{new})^{-1}(\mathrm{diag}(\ell_i)\, e^{m_i - m^{new}} O_i + e^{\tilde m - m^{new}} \tilde P V_j)$ | `O_i = ((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]` | **a**, **b** |
# | 16 | write $\ell_i$, $m_i$ | `store(l, rows, l_i)`, `store(m, rows, m_i)` | |
# | 19 | return $O$, $\ell$, $m$, $\mathcal R$ | `return (O, l, m) if return_lm else (O, L)` | **c** |
#
# **b** is notation: $e^{m_i - m^{new}}$ is a vector with an entry for each row, and belongs inside a $\mathrm{diag}$ like $\ell_i$. **c**: every rung of the ladder returns $(O, L)$, so ours also stores $L_i = m_i + \ln l_i$, in the last key step, when $m_i$ and $l_i$ are final: $N_q$ numbers more than the paper writes. **a** deserves a run.

# %% [markdown]
# ## Whose maximum?
#
# The paper shifts by the tile's own maximum $\tilde m$ and corrects twice, by $e^{m_i - m^{new}}$ and by $e^{\tilde m - m^{new}}$. Here are its lines 10 to 15 as printed. Ordinary causal attention, 64 tokens, tiles of 16: every query sees at least itself. **Predict** how many of the 64 rows come out as NaN.

# %%
my_nan_rows = None

# %%
def published_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden):
    S_ij = (Q_i @ K_j.T * scale).masked_fill(hidden, -inf)                 # lines 10, 11
    m_tile = S_ij.amax(-1)                                                 # line 12
    P_ij = torch.exp(S_ij - m_tile[:, None])
    m_new = torch.maximum(m_i, m_tile)                                     # line 13
    alpha, beta = torch.exp(m_i - m_new), torch.exp(m_tile - m_new)
    l_new = alpha * l_i + beta * P_ij.sum(-1)
    O_i = ((l_i * alpha)[:, None] * O_i + beta[:, None] * (P_ij @ V_j)) / l_new[:, None]    # line 15
    return O_i, l_new, m_new

# %% [markdown]
# **Run and compare.** The two loops of the paper, key blocks outside, which visit every tile and mask it where the key comes after the query.

# %%
q, k, v = (torch.randn(64, 16) for _ in range(3))
O, l, m = torch.zeros(64, 16), torch.zeros(64), torch.full((64,), -inf)
for cols in tiles(64, 16):
    for rows in tiles(64, 16):
        O[rows], l[rows], m[rows] = published_step(q[rows], k[cols], v[cols], O[rows], l[rows], m[rows], 0.25,
                                                   hidden(rows, cols, 0, "cpu"))
nan_rows = O.isnan().any(-1).sum().item()
error = max_error(O[48:], attention(q, k, v, causal=True)[0][48:])
print(f"rows with NaN: {nan_rows} of 64; the other rows are off by {error:.1e}")
said = compare("rows of NaN by the printed lines", my_nan_rows, nan_rows)

# %% [markdown]
# In a tile beyond the diagonal all scores of a row are $-\infty$, so is $\tilde m$, and $-\infty - (-\infty)$ is NaN for good. All rows but the last block's meet such a tile. The running maximum is finite as soon as one key was visible; before that `m_safe` puts 0 in its place. (The authors' CUDA code never visits those tiles: it starts each key block at the diagonal. Our rung visits and masks them all, as the algorithm says.)

# %%
Q, K, V = torch.randn(100, 64), torch.randn(70, 64), torch.randn(70, 64)
O, L = fa1_forward(Q, K, V, causal=True, B_r=32, B_c=16)
print(judge(O, L, Q, K, V, causal=True))
print("rows that see no key:", int((L == -inf).sum()), "of 100; the largest |O| among them is", O[:30].abs().max().item())

# %% [markdown]
# **Find the bug.** A listing of this step in circulation takes both exponentials relative to `curr_running_max`, a name that it never defines, while $l^{new}$ is counted relative to $m^{new}$. It may mean the tile's maximum or the new running maximum. **Predict** which of the two gives attention, if the name is replaced in both places: `"tile"` or `"running"`.

# %%
my_maximum = None

# %% [markdown]
# **Run and compare.** Two key tiles, without a mask, and each of the two meanings.

# %%
def two_tiles(meaning):
    O, l, m = torch.zeros(8, 64), torch.zeros(8), torch.full((8,), -inf)
    for cols in tiles(32, 16):
        S = Q[:8] @ K[cols].T / 8
        m_new = torch.maximum(m, S.amax(-1))
        l_new = l * torch.exp(m - m_new) + torch.exp(S - m_new[:, None]).sum(-1)
        c = {"tile": S.amax(-1), "running": m_new}[meaning]
        O = ((l * torch.exp(m - c))[:, None] * O + torch.exp(S - c[:, None]) @ V[cols]) / l_new[:, None]
        l, m = l_new, m_new
    return O

errors = {meaning: max_error(two_tiles(meaning), attention(Q[:8], K[:32], V[:32])[0]) for meaning in ("tile", "running")}
print({meaning: f"{error:.1e}" for meaning, error in errors.items()}, "(errors, measured here)")
said = compare("maximum that the listing means", my_maximum, min(errors, key=errors.get))

# %% [markdown]
# **Takeaway.** Numerator and denominator must be in one unit. A row that never sees a key ends with $O = 0$ and $L = -\infty$, not NaN.
#
# ## Dropout without a mask
#
# Training drops entries of $P$ at random. The backward pass computes $P$ again, tile by tile, and needs the very same entries dropped. A mask would have $N^2$ entries, more than anything else in the kernel. So line 1 saves the random generator's state instead: whoever starts from it draws the same numbers again. **Predict**: how many bytes is it, for PyTorch's CPU generator? And does the same state give the same mask if the tiles are cut differently?

# %%
my_state_bytes, my_same_mask = None, None     # a number, True or False

# %% [markdown]
# **Run and compare.** The same state three times, the last time with narrower key blocks.

# %%
Q, K, V = (torch.randn(1024, 64) for _ in range(3))
state = torch.Generator().manual_seed(7).get_state()
dropped, L_dropped = fa1_forward(Q, K, V, B_r=64, B_c=64, dropout_p=0.1, rng_state=state)
again, _ = fa1_forward(Q, K, V, B_r=64, B_c=64, dropout_p=0.1, rng_state=state)
other, _ = fa1_forward(Q, K, V, B_r=64, B_c=32, dropout_p=0.1, rng_state=state)
print(f"state: {state.nbytes} bytes; a mask of bools for one head: {1024 * 1024} bytes")
print("same state, same tiles, same bits: ", torch.equal(dropped, again))
print("L is that of the softmax without dropout:", torch.allclose(L_dropped, fa1_forward(Q, K, V)[1]))
said = compare("bytes of the generator's state", my_state_bytes, state.nbytes)
said = compare("other tiles draw the same mask", my_same_mask, torch.equal(dropped, other))

# %% [markdown]
# The draws come in the order of the tiles, `j` outside and `i` inside; other key blocks, another order. Replaying the mask therefore needs the state *and* the tile sizes. A GPU's generator is counter-based (Salmon et al. 2011): a draw is a function of a seed and a position, the state is two numbers, and programs can draw in any order; chapter 11 uses that.
#
# **Takeaway.** Recomputing beats storing when the thing to recompute is cheap and the thing to store is $N^2$.
#
# ## An open question
#
# FA1's traffic depends on $B_c$ alone: $B_r$ appears nowhere in the formula. So short query tiles and long key tiles should win. Take $B_r = 1$: how large can $B_c$ get in 192 KiB, and how few bytes does `Memory` then count? What speaks against it on a real GPU, and where does it show, if not in the bytes? There is no check for this one.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao, Fu, Ermon, Rudra, Ré 2022, [FlashAttention](https://arxiv.org/abs/2205.14135): Algorithm 1, Algorithm 2 (appendix B.3), Theorem 2 and its proof (appendix C) · Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3 (SC11) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), compute capabilities, for shared memory and registers
#
# **Next:** [06 · FlashAttention-2](06_flash_attention_2.ipynb) lets the loops trade places, and $O$, $l$, $m$ never leave the chip.
