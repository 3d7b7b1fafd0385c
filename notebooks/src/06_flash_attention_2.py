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
# **You will be able to** write the forward pass of FlashAttention-2, say what each of its changes buys, count the programs a GPU can run at the same time, and read a published algorithm with a pencil in your hand.
#
# **You need** chapter 05. · **140 minutes**, 90 of them for four exercises · **runs on** CPU
#
# FA1 keeps a key block on chip and lets all queries pass. [FlashAttention-2](https://arxiv.org/abs/2307.08691) (Dao 2023) does it the other way round. The mathematics stays; what changes is who has to wait, and what has to travel. The paper names three improvements: fewer operations outside matrix products, parallel work along the sequence, and a better division of work among the warps of a program. We take them in the order in which they can be seen.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost
from flashlab_course import figures, sweeps
from flashlab_course.check import check
from flashlab_course.figures.chapter_06 import share_of, unit_times
from flashlab_course.lesson import changes, compare, replay, reveal, yours
from flashlab.memory import KiB, Memory, kernel, load, store, tiles
from flashlab.oracle import attention as exact_attention, judge, max_error
from flashlab.rungs import fa1, fa2
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.online_softmax import merge

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## What travels in FA1?
#
# **Predict**: of all bytes that FA1's kernel moves between HBM and chip, what share is the *running state*, that is $O$, $l$ and $m$ on their way in and out?

# %%
my_share = None     # between 0 and 1

# %% [markdown]
# **Run and compare.** 1024 tokens, $d = 64$, tiles of 64: the bytes of each tensor, from the log.

# %%
N, d, B = 1024, 64, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
with Memory() as mem1:
    fa1_forward(Q, K, V, B_r=B, B_c=B)
said = compare("share of running state in FA1", my_share, share_of(mem1.log))
figures.traffic_by_tensor({"fa1_forward": mem1.log})

# %% [markdown]
# About two thirds of FA1's traffic is unfinished business: outputs that go back to HBM only to be fetched again for the next key block.
#
# ## The loops trade places
#
# Put the queries outside. A query block then stays on chip, with its $O_i$, $l_i$ and $m_i$, from the first key block to the last, and is written once. One such stay is a **program**. The order of the loops was Phil Tillet's idea: the paper (section 3.2) says that he first suggested and implemented it, and the parallelism below, in Triton.
#
# **Your turn** ([exercises/ex06_fa2_inner_loop.py](../exercises/ex06_fa2_inner_loop.py), 30 minutes): one program, with every byte counted. $Q_i$ is read once, $K$ and $V$ once, $O_i$ and $L_i$ are written once, and there is one division.

# %%
check("ex06_fa2_inner_loop")

# %%
reveal("ex06_fa2_inner_loop")

# %% [markdown]
# `replay` shows your own program at work, line by line. If a number is wrong, the player opens where it was stored.

# %%
replay("ex06_fa2_inner_loop")

# %% [markdown]
# Once it passes, its bytes stand among the curves, as "yours".

# %%
Ns = [128, 256, 512, 1024]
figures.traffic_against(sweeps.over_N(Ns) + yours.over_N(Ns))

# %% [markdown]
# From here on the program is no secret. What changed in the inner step, against FA1, comments left out: `-` is FA1, `+` is FA2.

# %%
print(changes(fa1._step, fa2._step))

# %% [markdown]
# And the loop around it, its loads and stores alone. `i` still walks query blocks and `j` key blocks; only the nesting changed.

# %%
print(changes(fa1._key_block, fa2._program, most=6))

# %% [markdown]
# FA1 loads and stores $O_i$, $l_i$ and $m_i$ inside the loop. FA2 keeps them on chip. In return $K$ and $V$ are now read by every query block. **Predict** FA2's bytes as a share of FA1's, at the same tiles.

# %%
my_fa2_share = None     # between 0 and 1, or more

# %% [markdown]
# **Run and compare.** The same inputs, the same tiles of 64. (Bytes that the programs ask for: on a GPU, L2 serves many of the repeated reads of $K$ and $V$.)

# %%
with Memory() as mem2:
    O, L = fa2_forward(Q, K, V, B_r=B, B_c=B)
print(judge(O, L, Q, K, V))
said = compare("bytes of FA2 as a share of those of FA1", my_fa2_share, (mem2.read + mem2.written) / (mem1.read + mem1.written))
figures.traffic_by_tensor({"fa1_forward": mem1.log, "fa2_forward": mem2.log})

# %% [markdown]
# Replay both logs on a small grid: the order in which the tiles of $S$ are visited, and how many bytes move at each step. In which step does each of them need the most bytes, and why?

# %%
q, k, v = (torch.randn(64, 16) for _ in range(3))
logs = {}
for f in (fa1_forward, fa2_forward):
    with Memory() as mem:
        f(q, k, v, B_r=16, B_c=16)
    logs[f.__name__] = mem.log
figures.tile_traversal(logs, 64, 64)

# %% [markdown]
# Both at work, side by side on one clock: at each moment they have moved about as many bytes. Which is done first, and what did the other one carry back and forth meanwhile?

# %%
from flashlab_course.player import play, record

q, k, v = (torch.randn(16, 4) for _ in range(3))
toy = {"B_r": 4, "B_c": 4, "sram_bytes": 1024}
play(record(fa1_forward, q, k, v, **toy), record(fa2_forward, q, k, v, **toy))

# %% [markdown]
# **Takeaway.** FA2 writes each output once. $K$ and $V$ are read once per query block instead; that costs less than it saves, since they are only read.
#
# ## Fewer operations outside the products
#
# FA1 keeps $O_i$ normalised: at every step it multiplies by the old $l_i$ and divides by the new one. FA2 leaves $O_i$ unnormalised and divides after the loop. Matrix products are the same in both. **Predict**: by how many per cent does everything else shrink, from the printed Algorithm 2 of FA1 to FA2?

# %%
my_saving = None     # per cent

# %% [markdown]
# Our rung of FA1 is not quite that algorithm: it shifts by the running maximum, and so corrects once where the paper corrects twice (chapter 05). So here are the printed lines, too, as a kernel.

# %%
def published_step(Q_i, K_j, V_j, O_i, l_i, m_i):
    S_ij = Q_i @ K_j.T * d**-0.5
    m_tile = S_ij.amax(-1)
    P_ij = torch.exp(S_ij - m_tile[:, None])
    m_new = torch.maximum(m_i, m_tile)
    alpha, beta = torch.exp(m_i - m_new), torch.exp(m_tile - m_new)
    l_new = alpha * l_i + beta * P_ij.sum(-1)
    O_i = ((l_i * alpha)[:, None] * O_i + beta[:, None] * (P_ij @ V_j)) / l_new[:, None]
    return O_i, l_new, m_new

# %% [markdown]
# **Run and compare.** The model counts one operation for each element of a result, and for each element that a reduction reads.

# %%
O1, l1, m1 = torch.zeros(N, d), torch.zeros(N), torch.full((N,), -inf)
with Memory() as published, kernel("published", Q=Q, K=K, V=V, O=O1, l=l1, m=m1):
    for cols in tiles(N, B):
        K_j, V_j = load(K, cols), load(V, cols)
        for rows in tiles(N, B):
            new = published_step(load(Q, rows), K_j, V_j, load(O1, rows), load(l1, rows), load(m1, rows))
            for T, tile in zip((O1, l1, m1), new, strict=True):
                store(T, rows, tile)
print(f"modelled, FLOPs a score: in products {mem2.matmul_flops / N**2:.0f} in all three, everything else {mem2.other_flops / N**2:.2f} in FA2")
for name, mem in [("FA1 as printed", published), ("FA1, our rung", mem1)]:
    print(f"{name}: {mem.other_flops / N**2:.2f}; FA2 has {1 - mem2.other_flops / mem.other_flops:.0%} fewer")
said = compare("operations saved outside products", my_saving, 100 * (1 - mem2.other_flops / published.other_flops), "%")

# %% [markdown]
# Two operations a score, beside 256 FLOPs in the products: why bother? Because they are the expensive ones. An A100 does 312 TFLOP/s in 16-bit products and 19.5 in ordinary float32: per FLOP, says the paper, everything else costs 16 times as much. That rate counts a multiply-add as two FLOPs. A lone multiplication takes the place of a whole multiply-add, and with it the time of 32 FLOPs in a product, which are 16 multiply-adds.
#
# And an exponential has units of its own, fewer still. **Predict** for an H100 (989 TFLOP/s in products, 3.9 T exponentials/s) at $d = 64$: the time for one score's exponential, in per cent of the time for its $4d$ FLOPs in products.

# %%
my_exp_time = None     # per cent

# %% [markdown]
# **Run and compare.** Rates are published; the number of other operations is counted by the model, with FA2's usual tiles of $128 \times 64$.

# %%
others = {}
for head in (64, 128):
    Q_h, K_h, V_h = (torch.randn(256, head) for _ in range(3))
    with Memory(sram_bytes=512 * KiB) as mem:             # tiles of 128 x 64: a GPU keeps O_i and S_ij in registers
        fa2_forward(Q_h, K_h, V_h, B_r=128, B_c=64)
    others[head] = mem.other_flops / 256**2 - 1                          # one of them is the exponential
times = unit_times(64, others[64])
units = {f"d = {d}, {unit}": 1e12 * time for d in others for unit, time in unit_times(d, others[d]).items()}
said = compare("time of the exponentials at d = 64", my_exp_time, 100 * times["exponential"] / times["products"], "%")
figures.bars(units, "At d = 64 the exponentials take as long as the products, at d = 128 half as long",
             "Published rates of an H100, each unit alone; operations counted by flashlab.memory.", "picoseconds a score, on the whole GPU",
             worse=[name for name in units if "exponential" in name])

# %% [markdown]
# At $d = 64$ the exponentials alone take as long as the products, and no rewriting of the algorithm removes one: there is one for each score. Kernels do them *while* tensor cores multiply (FlashAttention-3 is built around that), or some of them on other units (FlashAttention-4; chapter 12). A real kernel also needs fewer other operations than the model counts: the scale goes into one multiply-add with the shift, and the products add to $O_i$ for free.
#
# **Takeaway.** On a GPU, operations outside matrix products are the expensive ones: FA2 removes those it can.
#
# ## One number per row, $L$
#
# The other half of the same improvement. FA1 hands $l$ and $m$ to its backward pass; FA2 stores only $L = m + \ln l$, the logsumexp of the row. It is enough: $P = e^{S - L}$ is the finished softmax, with no maximum and no division.

# %%
rows, cols = slice(0, 64), slice(128, 192)
S_ij = Q[rows] @ K[cols].T * d**-0.5
P_ij = torch.exp(S_ij - L[rows, None])                                   # one tile of P from Q, K and L alone
P = torch.softmax(Q.double() @ K.double().T * d**-0.5, dim=-1)
print(f"error of the tile of P: {max_error(P_ij, P[rows, cols]):.1e}")

# %% [markdown]
# **Find the slip.** One summary says that the backward pass gets $S$ and $P$ back from $O$ and the softmax statistics. Could it? **Predict**: are there two different rows of weights that give the same output, with 1024 keys and $d_v = 64$?

# %%
my_two_rows = None     # True or False

# %% [markdown]
# **Run and compare.** $p$ is a row of $P$. Anything orthogonal to all columns of $V$, and to the vector of ones, can be added without changing $pV$ or the sum of the weights.

# %%
p, columns = P[0], torch.cat([V.double(), torch.ones(N, 1)], dim=1)      # (1024,), (1024, 65)
change = torch.randn(N, dtype=torch.float64)
change -= columns @ torch.linalg.lstsq(columns, change[:, None]).solution[:, 0]
other = p + change * (p / change.abs()).min()                            # small enough that no weight turns negative
print(f"weights differ by {(other - p).abs().max():.1e}, outputs by {((other - p) @ V.double()).abs().max():.1e}")
same_output = bool(((other - p) @ V.double()).abs().max() < 1e-12 < (other - p).abs().max())
said = compare("two rows of weights with one output", my_two_rows, same_output)

# %% [markdown]
# So $O$ does not determine $P$. It is recomputed from $Q$, $K$ and $L$; what $O$ is good for in the backward pass comes in chapter 08. But a finished pair $(O, L)$ can do something else. **Your turn** ([exercises/ex06_use_of_L.py](../exercises/ex06_use_of_L.py), 15 minutes): two programs saw half of the keys each and have finished, with one division each. Put their results together.

# %%
check("ex06_use_of_L")

# %%
reveal("ex06_use_of_L")

# %% [markdown]
# Another way to see it (it spoils the exercise): a finished pair is a softmax state, $(O, L, 1)$. In units of $e^L$ the weights sum to 1, so that chapter 03's `merge` applies as it is.

# %%
ones, halves = torch.ones(N), []
for part in (slice(0, 300), slice(300, N)):
    O_half, L_half = fa2_forward(Q, K[part], V[part])
    halves.append((O_half, L_half, ones))                                # O, m, l
O_both, m_both, l_both = merge(*halves)
print(judge(O_both / l_both[:, None], m_both + torch.log(l_both), Q, K, V))

# %% [markdown]
# **Takeaway.** With $L$, any tile of $P$ can be made again, alone, in any order. The backward pass and the merging of results across machines depend on this.
#
# ## What can run at the same time?
#
# In FA2 no query block needs another's result. So they may run in any order, or all at once. Check it: shuffle the programs, and compare bits.

# %%
order = tiles(N, B)
shuffled = [order[n] for n in torch.randperm(len(order))]
O_shuffled, L_shuffled = torch.empty_like(O), torch.empty_like(L)
for rows in shuffled:
    fa2._program(Q, K, V, O_shuffled, L_shuffled, rows, B, None, d**-0.5)       # None: no mask
print("same bits in any order:", torch.equal(O, O_shuffled) and torch.equal(L, L_shuffled))

# %% [markdown]
# Now let two of FA1's *key blocks* run at the same time. `_key_block` is FA1's outer step: one key block, all queries. Both read the old $O$, both write a new one, and one writes last. This cell goes wrong on purpose.

# %%
two = slice(0, 2 * B)
for cols in tiles(2 * B, B):
    O1, l1, m1, L1 = torch.zeros(N, d), torch.zeros(N), torch.full((N,), -inf), torch.empty(N)    # each starts from nothing
    fa1._key_block(Q, K[two], V[two], O1, l1, m1, L1, cols, B, None, d**-0.5, lambda rows, cols: None, 0.0)
truth, _ = exact_attention(Q, K[two], V[two])                            # O1 is what the last one wrote
print(f"error when two key blocks race: {max_error(O1, truth):.2f}, where the largest |O| is {truth.abs().max():.2f}")

# %% [markdown]
# The first block's work is lost. FA1 must therefore walk its key blocks one after the other, and offers a GPU only $B \cdot H$ independent programs: one for each head of each sequence. FA2 offers $B \cdot H \cdot \lceil N/B_r \rceil$.
#
# **Predict**: 1 long sequence, 16 heads, $N = 8192$, $B_r = 128$, and a GPU of 132 multiprocessors (SMs). How many programs has each, and how many times sooner is FA2 done, if an SM runs one program at a time?

# %%
my_programs, my_times_sooner = {"FA1": None, "FA2": None}, None

# %% [markdown]
# **Run and compare.** A program of FA1 is as long as all of FA2's for the same head together. Change the batch to 16: who gains now?

# %%
batch, heads, N_long, B_r, sms = 1, 16, 8192, 128, 132
programs = {"FA1": batch * heads, "FA2": batch * heads * -(-N_long // B_r)}
waves = {name: -(-count // sms) for name, count in programs.items()}
said = compare("independent programs of a long sequence", my_programs, programs)
said = compare("times sooner that FA2 is done", my_times_sooner, waves["FA1"] * (N_long // B_r) / waves["FA2"])
figures.programs_on_sms({"fa1_forward": (programs["FA1"], N_long // B_r), "fa2_forward": (programs["FA2"], 1)}, sms)

# %% [markdown]
# **Takeaway.** FA1 leaves most of the chip idle when batch times heads is small; FA2 fills it as soon as the sequence is long.
#
# ## Causal: skip what nobody sees
#
# A query block knows the last key it can see, and can stop there. (FA1 could start its inner loop at the diagonal, and its CUDA code does; our rung follows the paper.) **Predict**: what share of the tiles is visited at $N = 1024$ with tiles of 64?

# %%
my_visited = None     # between 0 and 1

# %% [markdown]
# **Your turn** ([exercises/ex06_causal_skipping.py](../exercises/ex06_causal_skipping.py), 20 minutes). Which key blocks does query block $i$ visit, and which of them are seen whole, so that they need no mask? With $N_q \ne N_k$ the last query lines up with the last key.

# %%
check("ex06_causal_skipping")

# %%
reveal("ex06_causal_skipping")

# %% [markdown]
# **Run and compare.** The tiles that FA2 visits, counted in the log, and both logs on the small grid.

# %%
with Memory() as causal:
    O_causal, L_causal = fa2_forward(Q, K, V, causal=True, B_r=B, B_c=B)
visits = sum(event.name == "K" for event in causal.log)
print(judge(O_causal, L_causal, Q, K, V, causal=True))
print(f"modelled: {visits} of {(N // B) ** 2} tiles; bytes read as in the formula:",
      causal.read == cost.fa2_forward(N, N, d, B_r=B, B_c=B, causal=True).read)
said = compare("share of tiles under a causal mask", my_visited, visits / (N // B) ** 2)

# %%
q, k, v = (torch.randn(64, 16) for _ in range(3))
logs = {}
for f in (fa1_forward, fa2_forward):
    with Memory() as mem:
        f(q, k, v, causal=True, B_r=16, B_c=16)
    logs[f.__name__] = mem.log
figures.tile_traversal(logs, 64, 64)

# %%
q, k, v = (torch.randn(16, 4) for _ in range(3))
play(record(fa1_forward, q, k, v, causal=True, **toy), record(fa2_forward, q, k, v, causal=True, **toy))

# %% [markdown]
# **Takeaway.** $T(T+1)/2$ of $T^2$ tiles: a little over half, and half in the limit. Only the tiles on the diagonal need the mask at all. (Section 3.1.1 of the paper has a slip here: it says that a block needs no mask where its row indices are all *less* than its column indices. Those blocks are skipped; *greater* is the word.)
#
# ## Within one program: split Q, not K
#
# A program is several *warps*, groups of 32 threads, that share one tile of work. The third improvement is how they share it. FA1 gave each warp a part of the keys (split-K); FA2 gives each a part of the queries (split-Q). With split-K every warp ends with a partial $O_i$, $m_i$, $l_i$, and three of four have to hand theirs over through shared memory. **Predict** how many KiB that is for each tile: 64 queries, 128 keys, $d = 64$, four warps, float32.

# %%
my_exchange = None     # KiB

# %% [markdown]
# **Run and compare.** Four warps with 32 keys each, and the merge of chapter 03.

# %%
Q_i, K_j, V_j = Q[:64], K[:128], V[:128]
warps = []
for part in tiles(128, 32):                                              # split-K: four warps, 32 keys each
    S = Q_i @ K_j[part].T * d**-0.5
    m_w = S.amax(-1)
    P_w = torch.exp(S - m_w[:, None])
    warps.append((P_w @ V_j[part], m_w, P_w.sum(-1)))
O_i, m_i, l_i = merge(merge(warps[0], warps[1]), merge(warps[2], warps[3]))
print(f"split-K, merged: error {max_error(O_i / l_i[:, None], exact_attention(Q_i, K_j, V_j)[0]):.1e}")
said = compare("exchange between warps for each tile", my_exchange, sum(x.nbytes for state in warps[1:] for x in state) / 1024, "KiB")
figures.split_among_warps(B_r=64, B_c=128, d=64, warps=4)

# %% [markdown]
# **Takeaway.** With split-Q each warp owns its rows from start to end, as each program does: the same idea one level down. No partial $O_i$ is exchanged.
#
# ## Find the bugs
#
# Algorithms get copied by hand. **Your turn** ([exercises/ex06_published_line.py](../exercises/ex06_published_line.py), 25 minutes): eleven lines of causal attention by key blocks, put together from printed versions. Four are wrong, and one of those stands in the paper itself. Write it as it should be.

# %%
check("ex06_published_line")

# %%
reveal("ex06_published_line")

# %% [markdown]
# ## The paper's algorithm, line by line
#
# Algorithm 1 of the paper, beside [flashlab/rungs/fa2.py](../flashlab/rungs/fa2.py). (It spoils the exercise above.)
#
# | line | Algorithm 1 | the rung | |
# |---|---|---|---|
# | 1–2 | cut $Q$, $O$, $L$ into $T_r$ blocks, $K$, $V$ into $T_c$ | `tiles(Q.shape[0], B_r)`, `tiles(K.shape[0], B_c)` | |
# | 3 | for each $i$ | `for rows in tiles(Q.shape[0], B_r):` | on a GPU: one program each |
# | 4 | load $Q_i$ | `Q_i = load(Q, rows).to(L.dtype)` | |
# | 5 | $O_i = 0$, $\ell_i = 0$, $m_i = -\infty$ on chip | `O_i = Q_i.new_zeros(`, `l_i = Q_i.new_zeros(`, `m_i = Q_i.new_full(` | |
# | 6 | for each $j$ | `for cols in tiles(K.shape[0], B_c):` | causal: tiles above the diagonal are passed over (section 3.1.1) |
# | 7 | load $K_j$, $V_j$ | `K_j = load(K, cols)`, `V_j = load(V, cols)` | |
# | 8 | $S_i = Q_i K_j^\top$ | `S_ij = Q_i @ K_j.T * scale` | the paper leaves out scale and mask |
# | 9 | $m_i^{(j)} = \max(m_i^{(j-1)}, \mathrm{rowmax}(S_i))$ | `m_new = torch.maximum(m_i, S_ij.amax(-1))` | |
# | 9 | $\tilde P_i = \exp(S_i - m_i^{(j)})$ | `P_ij = torch.exp(S_ij - m_safe[:, None])` | 0 in place of $-\infty$ |
# | 9 | $\ell_i^{(j)} = e^{m_i^{(j-1)} - m_i^{(j)}} \ell_i^{(j-1)} + \mathrm{rowsum}(\tilde P_i)$ | `l_i = alpha * l_i + P_ij.sum(-1)` | |
# | 10 | $O_i^{(j)} = \mathrm{diag}(e^{m_i^{(j-1)} - m_i^{(j)}})^{-1} O_i^{(j-1)} + \tilde P_i V_j$ | `O_i = alpha[:, None] * O_i + P_ij @ V_j` | **the inverse is a misprint** |
# | 12 | $O_i = \mathrm{diag}(\ell_i)^{-1} O_i$ | `O_i / l_safe[:, None]` | 1 in place of 0, for rows that see no key |
# | 13 | $L_i = m_i + \log \ell_i$ | `m_i + torch.log(l_i)` | |
# | 14–15 | write $O_i$, $L_i$ | `store(O, rows, O_i`, `store(L, rows, m_i` | |
#
# Section 3.1.1 introduces the update with two blocks, and has the inverse twice: once as in line 10, and once where it undoes the division, $\mathrm{diag}(\ell^{(1)})^{-1} O^{(1)}$ for what must be $\mathrm{diag}(\ell^{(1)})\, e^{m^{(1)} - m^{(2)}} O^{(1)}$. **Predict** what line 10 as printed gives after two tiles, starting from $m_i = -\infty$: `"right"`, `"a number"` or `"nan"`.

# %%
my_line_10 = None

# %% [markdown]
# **Run and compare.** Four queries, two key tiles, and the factor before the old $O_i$ in three versions; the third starts from the first block, as section 3.1.1 does.

# %%
def two_tiles(factor, O=None, m=None, l=None, keys=((0, 8), (8, 16))):
    """Attention of 4 queries over key tiles, with the given correction of the old output."""
    O, m, l = (torch.zeros(4, d), torch.full((4,), -inf), torch.zeros(4)) if O is None else (O, m, l)
    for start, stop in keys:
        S = Q[:4] @ K[start:stop].T * d**-0.5
        m_new = torch.maximum(m, S.amax(-1))
        alpha, P = torch.exp(m - m_new), torch.exp(S - m_new[:, None])
        O, l, m = factor(alpha, l)[:, None] * O + P @ V[start:stop], alpha * l + P.sum(-1), m_new
    return O / l[:, None]

S = Q[:4] @ K[:8].T * d**-0.5
first = two_tiles(lambda alpha, l: alpha, keys=((0, 8),)), S.amax(-1), torch.exp(S - S.amax(-1, keepdim=True)).sum(-1)
truth, _ = exact_attention(Q[:4], K[:16], V[:16])

# %%
printed = max_error(two_tiles(lambda alpha, l: 1 / alpha), truth)
print(f"multiplied by alpha:                   error {max_error(two_tiles(lambda alpha, l: alpha), truth):.1e}")
print(f"line 10 as printed, inverse:           error {printed}")
print(f"3.1.1, first block divided by l:       error {max_error(two_tiles(lambda alpha, l: 1 / l, *first, keys=((8, 16),)), truth):.1e}")
print(f"first block times l and alpha instead: error {max_error(two_tiles(lambda a, l: a * l, *first, keys=((8, 16),)), truth):.1e}")
said = compare("line 10 as printed", my_line_10, "nan" if printed != printed else "right" if printed < 1e-5 else "a number")

# %% [markdown]
# $\alpha = e^{m_{old} - m_{new}}$ is at most 1: what was summed in the old unit shrinks when the unit grows. The inverse blows it up; at the first tile, $1/\alpha = \infty$ meets $O = 0$ and makes NaN. The inverse [was reported](https://github.com/Dao-AILab/flash-attention/issues/991) to the authors, and so was [the same slip](https://github.com/Dao-AILab/flash-attention/issues/1303) in FlashAttention-3's Algorithm 1.
#
# Three more slips to look for when chapter 08 reaches the paper's Algorithm 2, the backward pass: $D \in \mathbb{R}^d$ (line 4) has an entry for each of the $N$ rows; line 9 loads $O_i$, which no line uses; and $dQ_i$ is loaded in line 9 and again in line 15.
#
# **Takeaway.** Check a printed algorithm on two tiles before you trust it, against float64.
#
# ## An open question
#
# A language model writes one token at a time: one new query, a hundred thousand keys, 16 heads, batch 1. How many programs does FA2 start, and on how many of 132 SMs? You have all it takes to do better: split the keys among programs and put their results together. How many splits would you choose, what does each of them write, and what does it cost to merge them? There is no check for this one. (The field's name for it is Flash-Decoding; chapter 13 builds it.)

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning](https://arxiv.org/abs/2307.08691): section 3.1 (algorithm, FLOP rates of the A100), 3.2 (parallelism, Phil Tillet's part), 3.3 and figure 3 (warps) · Tillet's [Triton tutorial](https://github.com/triton-lang/triton/blob/main/python/tutorials/06-fused-attention.py) · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), section 3.1, for the rate of exponentials on an H100 · NVIDIA H100 SXM data sheet for the two FLOP rates
#
# **Next:** [07 · Counting HBM traffic](07_counting_hbm_traffic.ipynb) holds every formula so far against measured bytes, in the model and on an H100.
