# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 06 · FlashAttention-2
#
# **You will be able to** write the forward pass of FlashAttention-2, explain why it moves fewer bytes than FlashAttention-1 and keeps more of the GPU busy, and skip the tiles that a causal mask hides.
#
# **You need** chapter 05 · **core:** sittings 1 and 2, 45 and 30 minutes · **further:** sittings 3 and 4, 30 minutes each · **runs on** CPU
#
# In FA1 a key block stays on chip while every query block passes by. [FlashAttention-2](https://arxiv.org/abs/2307.08691) (Dao 2023) swaps the two loops: a query block stays, and the key blocks pass by. The result is the same. What changes is how many bytes move, and how much work can run at the same time.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab_course import figures, sweeps
from flashlab_course.check import check
from flashlab_course.figures.chapter_06 import unit_times
from flashlab_course.lesson import changes, compare, replay, reveal, yours
from flashlab_course.player import play, record
from flashlab.memory import KiB, Memory, kernel, load, store, tiles
from flashlab.oracle import attention as exact_attention, judge, max_error
from flashlab.rungs import fa1, fa2
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward

torch.manual_seed(0)
N, d, B = 1024, 64, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))

# %% [markdown]
# ## Sitting 1 (core) · The loops trade places
#
# ### What FA1 carries back and forth
#
# Every time a query block meets a key block, FA1 loads $Q_i$ and its **running state** ($O_i$, $l_i$, $m_i$), updates the state and stores it again. Here are the bytes of each tensor, for 1024 tokens, $d = 64$ and tiles of $64 \times 64$.

# %%
with Memory() as mem1:
    fa1_forward(Q, K, V, B_r=B, B_c=B)
figures.traffic_by_tensor({"fa1_forward": mem1.log})

# %% [markdown]
# Most of FA1's traffic is running state: unfinished outputs that go to HBM and come back.
#
# ### Swap the loops
#
# Put the query blocks in the outer loop. Now $Q_i$, $O_i$, $l_i$ and $m_i$ stay on chip from the first key block to the last, and $O_i$ is stored once, when it is finished. The work on one query block is called a **program**.
#
# FA2 also divides less. FA1 divides $O_i$ by $l_i$ at every step. FA2 keeps the undivided sum and divides once, after the last key block.
#
# **Your turn** ([exercises/ex06_fa2_inner_loop.py](../exercises/ex06_fa2_inner_loop.py), 30 minutes). Write one program: load $Q_i$ once and each key block once, store $O_i$ and $L_i$ once. The checker counts the bytes.

# %%
check("ex06_fa2_inner_loop")

# %%
reveal("ex06_fa2_inner_loop")

# %% [markdown]
# `replay` shows your program line by line. If a number is wrong, the player opens at the line that makes it.

# %%
replay("ex06_fa2_inner_loop")

# %% [markdown]
# ### What changed
#
# *This part shows a solution of the exercise.* Here is the inner step of FA1 (`-`) against that of FA2 (`+`), which leaves dropout out. `l_safe` has moved to the final division:

# %%
print(changes(fa1._step, fa2._step))

# %% [markdown]
# The larger change is in the loops:
#
# | for each pair of blocks | FA1 | FA2 |
# |---|---|---|
# | loads | $Q_i$, $O_i$, $l_i$, $m_i$ | $K_j$, $V_j$ |
# | stores | $O_i$, $l_i$, $m_i$ | nothing |
#
# **Predict** FA2's bytes as a share of FA1's, with the same tiles.

# %%
my_fa2_share = None     # 1 for equally many

# %% [markdown]
# **Run and compare.** Same inputs, same tiles.

# %%
with Memory() as mem2:
    O, L = fa2_forward(Q, K, V, B_r=B, B_c=B)
print(judge(O, L, Q, K, V))
said = compare("bytes of FA2 as a share of those of FA1", my_fa2_share,
               (mem2.read + mem2.written) / (mem1.read + mem1.written))
figures.traffic_by_tensor({"fa1_forward": mem1.log, "fa2_forward": mem2.log})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# For each pair of blocks FA1 moves three tiles ($Q_i$ and $O_i$ in, $O_i$ out) and FA2 moves two.
#
# </details>
#
# Is the gain the same at every $N$? Once your program passes, its curve is in this picture, too.

# %%
Ns = [128, 256, 512, 1024]
points = sweeps.over_N(Ns)
moved = {(point["rung"], point["N"]): point["measured"] for point in points}
gain = {n: moved["fa2_forward", n] / moved["fa1_forward", n] for n in Ns}
figures.traffic_against(points + yours.over_N(Ns))

# %% [markdown]
# Nearly: FA2 moves {{gain[128]:.2f}} of FA1's bytes at $N = 128$ and {{gain[1024]:.2f}} at 1024.
#
# Watch both on one clock, without mask, scale and $L$. Follow $O$.

# %%
def FA1(Q, K, V, B):
    O, l, m = torch.zeros_like(Q), torch.zeros(len(Q)), torch.full((len(Q),), -torch.inf)
    with kernel("fa1_forward", Q=Q, K=K, V=V, O=O, l=l, m=m):
        for cols in tiles(len(K), B):                                                # j, outer
            K_j, V_j = load(K, cols), load(V, cols)
            for rows in tiles(len(Q), B):                                            # i, inner
                Q_i, O_i, l_i, m_i = (load(T, rows) for T in (Q, O, l, m))
                O_i, l_i, m_i = fa1._step(Q_i, K_j, V_j, O_i, l_i, m_i, scale=1.0)
                store(l, rows, l_i), store(m, rows, m_i)
                store(O, rows, O_i)

def FA2(Q, K, V, B):
    O = torch.empty_like(Q)
    with kernel("fa2_forward", Q=Q, K=K, V=V, O=O):
        for rows in tiles(len(Q), B):                                                # i, outer
            Q_i, O_i, l_i, m_i = load(Q, rows), torch.zeros(B, 4), torch.zeros(B), torch.full((B,), -torch.inf)
            for cols in tiles(len(K), B):                                            # j, inner
                K_j, V_j = load(K, cols), load(V, cols)
                O_i, l_i, m_i = fa2._step(Q_i, K_j, V_j, O_i, l_i, m_i, scale=1.0)
            store(O, rows, O_i / l_i[:, None])

# %%
q, k, v = (torch.randn(16, 4) for _ in range(3))
play(*(record(algorithm, q, k, v, B=4, sram_bytes=1024) for algorithm in (FA1, FA2)))

# %% [markdown]
# **Takeaway.** FA2 keeps the unfinished output on chip and stores it once. It pays by reading $K$ and $V$ once per query block, which costs less.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · One number per row, many programs, fewer tiles
#
# ### One number per row
#
# FA1 saves two numbers per row for the backward pass, $l$ and $m$. FA2 saves one, the logsumexp $L = m + \ln l$. It is enough, because $P = e^{S - L}$ is the finished softmax, tile by tile:

# %%
rows, cols = slice(0, 64), slice(128, 192)
S_ij = Q[rows] @ K[cols].T * d**-0.5
P_ij = torch.exp(S_ij - L[rows, None])
P = torch.softmax(Q.double() @ K.double().T * d**-0.5, dim=-1)
print(f"error of this tile of P: {max_error(P_ij, P[rows, cols]):.1e}")

# %% [markdown]
# **Takeaway.** With $L$, any tile of $P$ can be recomputed: the backward pass (chapter 08) relies on it.
#
# ### What can run at the same time?
#
# In FA2 no query block needs the result of another, so the programs can run in any order, or all at once. Here they run in random order:

# %%
order = tiles(N, B)
O_any, L_any = torch.empty_like(O), torch.empty_like(L)
for n in torch.randperm(len(order)):
    fa2._program(Q, K, V, O_any, L_any, order[n], B, None, d**-0.5)      # None: no mask
print("same bits in any order:", torch.equal(O, O_any) and torch.equal(L, L_any))

# %% [markdown]
# In FA1 every key block updates the same $O$. Suppose two key blocks run at the same time: both start from an empty $O$, and the last one to store wins. This cell goes wrong on purpose.

# %%
two = slice(0, 2 * B)
for cols in tiles(2 * B, B):
    O1, l1, m1, L1 = torch.zeros(N, d), torch.zeros(N), torch.full((N,), -torch.inf), torch.empty(N)    # empty
    fa1._key_block(Q, K[two], V[two], O1, l1, m1, L1, cols, B, None, d**-0.5, lambda rows, cols: None, 0.0)
truth, _ = exact_attention(Q, K[two], V[two])
print(f"error when two key blocks race: {max_error(O1, truth):.2f}; the largest |O| is {truth.abs().max():.2f}")

# %% [markdown]
# The first key block's work is lost. FA1 must therefore process key blocks one after the other, and has only $\text{batch} \cdot \text{heads}$ independent programs. (The query blocks of one key block could run in parallel, in a launch for each key block. But each would load $K_j$ and $V_j$: FA2's traffic, and the state besides.) FA2 has $\lceil N/B_r \rceil$ times as many, each shorter by the same factor.
#
# **Predict.** One sequence, 16 heads, $N = 8192$, $B_r = 128$, and a GPU with 132 multiprocessors (SMs) that each run one program at a time. How many times sooner is FA2 done?

# %%
my_times_sooner = None

# %% [markdown]
# **Run and compare.** Then set `batch = 16` and run it again. Does FA2 still win?

# %%
batch, heads, N_long, B_r, sms = 1, 16, 8192, 128, 132
T_r = -(-N_long // B_r)                                                  # query blocks of one head
done1 = -(-batch * heads // sms) * T_r                                   # waves times length; unit: a program of FA2
done2 = -(-batch * heads * T_r // sms)
said = compare("times sooner that FA2 is done", my_times_sooner, done1 / done2)
figures.programs_on_sms({"fa1_forward": (batch * heads, T_r), "fa2_forward": (batch * heads * T_r, 1)}, sms)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The programs that run at the same time form a wave. FA2's $16 \cdot 64 = 1024$ programs make 8 waves on 132 SMs. FA1's only wave lasts as long as 64 of these. With `batch = 16` both fill the GPU, and FA2 gains 2 %.
#
# </details>
#
# **Takeaway.** FA1 leaves most of the GPU idle when batch times heads is small. FA2 fills it whenever the sequence is long.
#
# ### Causal attention: skip the tiles that no query sees
#
# With a causal mask, a query block can stop at the last key that its last query sees. (Our FA1 visits every tile.)
#
# **Your turn** ([exercises/ex06_causal_skipping.py](../exercises/ex06_causal_skipping.py), 20 minutes). How many key blocks does query block $i$ visit? How many of these need no mask, because every query of the block sees all of their keys?

# %%
check("ex06_causal_skipping")

# %%
reveal("ex06_causal_skipping")

# %% [markdown]
# **Predict** the share of tiles that FA2 visits at $N = 1024$, with tiles of $64 \times 64$.

# %%
my_visited = None     # between 0 and 1

# %% [markdown]
# **Run and compare.** The log tells how many tiles FA2 visited.

# %%
with Memory() as causal:
    O_causal, L_causal = fa2_forward(Q, K, V, causal=True, B_r=B, B_c=B)
visits = sum(event.name == "K" for event in causal.log)
print(judge(O_causal, L_causal, Q, K, V, causal=True))
print(f"modelled: {visits} of {(N // B) ** 2} tiles")
said = compare("share of tiles under a causal mask", my_visited, visits / (N // B) ** 2)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# There are $T = 16$ blocks each of queries and keys. The first query block visits one key block, the second visits two, and so on: $T(T+1)/2 = 136$ of $T^2 = 256$ tiles.
#
# </details>
#
# On a smaller grid, the numbers give the order of the visits:

# %%
q, k, v = (torch.randn(64, 16) for _ in range(3))
logs = {}
for f in (fa1_forward, fa2_forward):
    with Memory() as mem:
        f(q, k, v, causal=True, B_r=16, B_c=16)
    logs[f.__name__] = mem.log
figures.tile_traversal(logs, 64, 64)

# %% [markdown]
# **Takeaway.** Causal FA2 skips every tile above the diagonal, and only the tiles on the diagonal need the mask.
#
# *End of sitting 2 and of the core. You can go on to [chapter 07](07_counting_hbm_traffic.ipynb), or to [chapter 09](09_triton_basics.ipynb) on the way to your Triton kernel.*
#
# ## Sitting 3 (further) · Operations, warps, and results that combine
#
# ### Operations outside the matrix products
#
# Dividing once also saves operations. The model counts one for each element of a result, and one for each element that a sum or maximum reads. For each score FA1 has {{mem1.other_flops / N**2:.2f}} of them and FA2 {{mem2.other_flops / N**2:.2f}}, beside {{mem2.matmul_flops / N**2:.0f}} FLOPs in products.
#
# Why save one operation beside 256 FLOPs? It runs on slower units. An H100 does 989 TFLOP/s in 16-bit products but 67 in float32 arithmetic, 15 times fewer. A multiply-add counts as two FLOPs, and a multiplication alone takes as long. So it costs the time of $2 \cdot 15 = 30$ FLOPs in products.
#
# Exponentials run on fewer units still: 3.9 T/s. Each score needs $4d$ FLOPs in products, and one exponential.
#
# **Predict** for $d = 64$: the time of the exponentials, in per cent of the time of the products.

# %%
my_exp_time = None     # per cent

# %% [markdown]
# **Run and compare.** Other operations are counted with tiles of $128 \times 64$.

# %%
others = {}
for head in (64, 128):
    with Memory(sram_bytes=512 * KiB) as mem:                            # room for tiles of 128 x 64
        fa2_forward(*(torch.randn(256, head) for _ in range(3)), B_r=128, B_c=64)
    others[head] = mem.other_flops / 256**2 - 1                          # one of them is the exponential
times = {head: unit_times(head, others[head]) for head in others}
share = 100 * times[64]["exponential"] / times[64]["products"]
said = compare("time of the exponentials at d = 64", my_exp_time, share, "%")
figures.bars({f"d = {head}, {unit}": 1e12 * time for head in times for unit, time in times[head].items()},
             f"At d = 64 the exponentials take {share:.0f} % of the products' time",
             "Published rates of an H100, each unit alone; operations counted by flashlab.memory.",
             "picoseconds a score, on the whole GPU", worse=[f"d = {head}, exponential" for head in times])

# %% [markdown]
# FlashAttention-3 overlaps the exponentials of one tile with the products of another. FlashAttention-4 also computes some of them as polynomials, on the multiply-add units of a Blackwell GPU.
#
# **Takeaway.** Count operations by the unit that does them. A few operations on a slow unit can matter as much as many on a fast one.
#
# ### Sharing one tile among warps
#
# A program runs on several **warps**, groups of 32 threads. FA1 gave each warp a part of the keys (split-K). Each warp then has its own partial $O_i$, $m_i$ and $l_i$, which must be combined through shared memory. FA2 gives each warp a part of the queries (split-Q), so each owns its rows from start to end.

# %%
figures.split_among_warps(B_r=64, B_c=128, d=64, warps=4)

# %% [markdown]
# **Takeaway.** Give each worker its own output rows, and no partial result has to be exchanged.
#
# ### Combine two results
#
# **Your turn** ([exercises/ex06_use_of_L.py](../exercises/ex06_use_of_L.py), 15 minutes). Two programs have each processed half of the keys and divided by their own $l$. Combine their $(O, L)$ into the result for all keys.

# %%
check("ex06_use_of_L")

# %%
reveal("ex06_use_of_L")

# %% [markdown]
# **Takeaway.** Results for different keys combine by their $L$. Decoding (chapter 13) and attention on many GPUs (14) rely on this.
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · A printed algorithm
#
# ### Find the bugs
#
# **Your turn** ([exercises/ex06_published_line.py](../exercises/ex06_published_line.py), 25 minutes). The file lists eleven lines of causal attention, collected from printed versions. Four are wrong, and one of these is in the paper itself. Write them as they should be.

# %%
check("ex06_published_line")

# %%
reveal("ex06_published_line")

# %% [markdown]
# **Takeaway.** Run a printed algorithm on two key blocks, against float64, before you trust it.
#
# ### The paper's algorithm, line by line
#
# *This answers part of the exercise above.* Algorithm 1 of the paper, beside [flashlab/rungs/fa2.py](../flashlab/rungs/fa2.py):
#
# | line | Algorithm 1 | the rung | |
# |---|---|---|---|
# | 1–2 | cut $Q$, $O$, $L$ into $T_r$ blocks, $K$, $V$ into $T_c$ | `tiles(Q.shape[0], B_r)`, `tiles(K.shape[0], B_c)` | |
# | 3 | for each $i$ | `for rows in tiles(Q.shape[0], B_r):` | on a GPU: one program each |
# | 4 | load $Q_i$ | `Q_i = load(Q, rows).to(L.dtype)` | |
# | 5 | $O_i = 0$, $\ell_i = 0$, $m_i = -\infty$ on chip | `O_i = Q_i.new_zeros(`, `l_i = Q_i.new_zeros(`, `m_i = Q_i.new_full(` | |
# | 6 | for each $j$ | `for cols in tiles(K.shape[0], B_c):` | causal: tiles above the diagonal are skipped |
# | 7 | load $K_j$, $V_j$ | `K_j = load(K, cols)`, `V_j = load(V, cols)` | |
# | 8 | $S_i = Q_i K_j^\top$ | `S_ij = Q_i @ K_j.T * scale` | the paper leaves out scale and mask |
# | 9 | $m_i^{(j)} = \max(m_i^{(j-1)}, \mathrm{rowmax}(S_i))$ | `m_new = torch.maximum(m_i, S_ij.amax(-1))` | |
# | 9 | $\tilde P_i = \exp(S_i - m_i^{(j)})$ | `P_ij = torch.exp(S_ij - m_safe[:, None])` | 0 in place of $-\infty$ |
# | 9 | $\ell_i^{(j)} = e^{m_i^{(j-1)} - m_i^{(j)}} \ell_i^{(j-1)} + \mathrm{rowsum}(\tilde P_i)$ | `l_i = alpha * l_i + P_ij.sum(-1)` | |
# | 10 | $O_i^{(j)} = \mathrm{diag}(e^{m_i^{(j-1)} - m_i^{(j)}})^{-1} O_i^{(j-1)} + \tilde P_i V_j$ | `O_i = alpha[:, None] * O_i + P_ij @ V_j` | [misprint: the inverse](../docs/errata.md) |
# | 12 | $O_i = \mathrm{diag}(\ell_i)^{-1} O_i$ | `O_i / l_safe[:, None]` | 1 in place of 0, for rows that see no key |
# | 13 | $L_i = m_i + \log \ell_i$ | `m_i + torch.log(l_i)` | |
# | 14–15 | write $O_i$, $L_i$ | `store(O, rows, O_i`, `store(L, rows, m_i` | |
#
# ### An open question
#
# A language model writes one token at a time: one query, a hundred thousand keys, 16 heads, batch 1. How many of 132 SMs does FA2 use? Split the keys among programs and combine their results with $L$. How many splits would you choose, and what does combining them cost? (Chapter 13 builds this.)

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691): section 3.1 (algorithm), 3.2 (parallelism; Phil Tillet first suggested and implemented this loop order, in Triton), 3.3 (warps) · Tillet's [Triton tutorial](https://github.com/triton-lang/triton/blob/main/python/tutorials/06-fused-attention.py) · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), section 3.1 (H100 exponentials) · Zadouri et al. 2026, [FlashAttention-4](https://arxiv.org/abs/2603.05451) · NVIDIA H100 data sheet
#
# **Next:** [07 · Counting HBM traffic](07_counting_hbm_traffic.ipynb) compares every formula with measured bytes.
