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
# **You will be able to** write the forward pass of FlashAttention-2, say what each of its three changes buys, and count the programs a GPU can run at the same time.
#
# **You need** chapter 05. · **40 minutes** · **runs on** CPU
#
# FA1 keeps a key block on chip and lets all queries pass. [FlashAttention-2](https://arxiv.org/abs/2307.08691) does it the other way round. The mathematics stays; what changes is who has to wait, and what has to travel.

# %%
import difflib
import inspect

import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost, figures
from flashlab.rungs import fa1, fa2
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.memory import Memory, tiles
from flashlab.rungs.online_softmax import merge
from flashlab.oracle import attention, judge, max_error

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## What travels in FA1?
#
# **Predict**: of all bytes that FA1 moves between HBM and chip, what share is the *running state*, that is $O$, $l$ and $m$ on their way in and out?

# %%
my_share = None     # between 0 and 1

# %%
N, d, B = 1024, 64, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
with Memory() as mem1:
    fa1_forward(Q, K, V, B_r=B, B_c=B)
by_tensor = {}
for event in mem1.log:
    if event.kind in ("load", "store"):
        by_tensor[event.name] = by_tensor.get(event.name, 0) + event.read + event.written
total = sum(by_tensor.values())
print("modelled:", {name: f"{nbytes / total:.1%}" for name, nbytes in by_tensor.items()})
print(f"running state: {(by_tensor['O'] + by_tensor['l'] + by_tensor['m']) / total:.0%}; you said {my_share}")

# %% [markdown]
# **Compare.** About two thirds of FA1's traffic is unfinished business: outputs that go back to HBM only to be fetched again for the next key block.
#
# ## First change: the loops trade places
#
# Put the queries outside. A query block then stays on chip with its $O_i$, $l_i$, $m_i$ from the first key to the last. Here is what changes in the program, as a diff of the two rungs' inner steps.

# %%
before, after = (inspect.getsource(module._step).splitlines() for module in (fa1, fa2))
for line in difflib.unified_diff(before, after, "fa1._step", "fa2._step", lineterm="", n=0):
    if not line.startswith("@@"):
        print(line[:118])

# %% [markdown]
# `i` still walks query blocks and `j` key blocks; only the nesting changed. What FA1 loads and stores in the step, FA2 receives and returns. The loads of $Q_i$ and the stores of $O_i$ and $L_i$ moved into the program around it:

# %%
print(inspect.getsource(fa2._program))

# %%
with Memory() as mem2:
    O, L = fa2_forward(Q, K, V, B_r=B, B_c=B)
print(judge(O, L, Q, K, V))
for name, mem in (("FA1", mem1), ("FA2", mem2)):
    print(f"modelled {name}: read {mem.read / 2**20:5.1f} MiB, written {mem.written / 2**20:5.2f} MiB")

# %% [markdown]
# Replay both logs on a small grid: the order in which the tiles of $S$ are visited, and what moves at each step.

# %%
q, k, v = (torch.randn(64, 16) for _ in range(3))
logs = {}
for f in (fa1_forward, fa2_forward):
    with Memory() as mem:
        f(q, k, v, B_r=16, B_c=16)
    logs[f.__name__] = mem.log
figures.tile_traversal(logs, 64, 64)

# %% [markdown]
# **Takeaway.** FA2 writes each output once. In return $K$ and $V$ are read once per query block; that costs less than what it saves, since they are only read.
#
# ## Second change: divide once, at the end
#
# FA1 keeps $O_i$ normalised: it multiplies by the old $l_i$ and divides by the new one at every step. FA2 leaves $O_i$ unnormalised and divides after the loop. **Predict**: by how many per cent do FA1's non-matmul operations shrink?

# %%
my_saving = None     # per cent

# %%
saving = 1 - mem2.other_flops / mem1.other_flops
print(f"modelled, matrix products:  FA1 {mem1.matmul_flops:>12,}   FA2 {mem2.matmul_flops:>12,}")
print(f"modelled, everything else:  FA1 {mem1.other_flops:>12,}   FA2 {mem2.other_flops:>12,}   ({saving:.0%} fewer; you said {my_saving})")

# %% [markdown]
# **Compare.** The products are the same. The rest counts more than its share: an H100's tensor cores do about 990 TFLOP/s in 16 bits, its other units 67 in float32 (NVIDIA's data sheet), and those 67 count a multiply-add as two. One lone multiplication costs as much time as thirty in a product, an exponential more.
#
# **Takeaway.** On a GPU, operations outside matrix products are the dear ones: FA2 removes those it can.
#
# ## Third change: one number per row, $L$
#
# In the paper FA1 hands $l$ and $m$ to its backward pass. FA2 stores only $L = m + \ln l$, the logsumexp of the row. It is enough: $P = e^{S - L}$ is the finished softmax, with no maximum and no division.

# %%
rows, cols = slice(0, 64), slice(128, 192)
S_ij = Q[rows] @ K[cols].T * d**-0.5
P_ij = torch.exp(S_ij - L[rows, None])                                   # one tile of P from Q, K and L alone
P = torch.softmax(Q.double() @ K.double().T * d**-0.5, dim=-1)
print(f"error of the tile of P: {max_error(P_ij, P[rows, cols]):.1e}")

# %% [markdown]
# **Takeaway.** With $L$, any tile of $P$ can be made again, alone, in any order. The backward pass and the merging of results across machines live from that.
#
# ## What can run at the same time?
#
# In FA2 no query block needs another's result. So they may run in any order, or all at once. Check it: shuffle the programs, and compare bits.

# %%
order = tiles(N, B)
shuffled = [order[n] for n in torch.randperm(len(order))]
O_shuffled, L_shuffled = torch.empty_like(O), torch.empty_like(L)
for rows in shuffled:
    fa2._program(Q, K, V, O_shuffled, L_shuffled, rows, B, False, d**-0.5)
print("same bits in any order:", torch.equal(O, O_shuffled) and torch.equal(L, L_shuffled))

# %% [markdown]
# Now let two of FA1's *key blocks* run at the same time. `_key_block` is FA1's outer step: one key block, all queries. Both read the old $O$, both write a new one, and one writes last. This cell goes wrong on purpose.

# %%
O1, l1, m1, L1 = torch.zeros(N, d), torch.zeros(N), torch.full((N,), -inf), torch.empty(N)
two = slice(0, 2 * B)
for cols in tiles(2 * B, B):
    snapshot = torch.zeros_like(O1), torch.zeros_like(l1), torch.full((N,), -inf)    # each starts from the same empty state
    fa1._key_block(Q, K[two], V[two], *snapshot, L1, cols, B, False, d**-0.5, 0.0, None)
    O1, l1, m1 = snapshot                                                # the last writer wins
truth, _ = attention(Q, K[two], V[two])
print(f"error when two key blocks race: {max_error(O1, truth):.2f}, where the largest |O| is {truth.abs().max():.2f}")

# %% [markdown]
# The first block's work is lost. FA1 must therefore walk its key blocks one after the other, and offers a GPU only $B \cdot H$ independent programs: one for each head of each sequence. FA2 offers $B \cdot H \cdot \lceil N/B_r \rceil$.
#
# **Predict**: 1 long sequence, 16 heads, $N = 8192$, $B_r = 128$, and a GPU of 132 multiprocessors. How many programs has FA1, how many FA2?

# %%
my_programs = {"FA1": None, "FA2": None}

# %%
batch, heads, N_long, B_r = 1, 16, 8192, 128
print(f"FA1: {batch * heads} programs, FA2: {batch * heads * -(-N_long // B_r)}; you said {my_programs}")
figures.programs_on_sms(batch, heads, N_long, B_r, sms=132)

# %% [markdown]
# **Takeaway.** FA1 leaves most of the chip idle when batch times heads is small; FA2 fills it as soon as the sequence is long.
#
# ## Causal: skip what nobody sees
#
# A query block knows the last key it can see, and stops there. (FA1 could start its inner loop at the diagonal, and its CUDA code does; our rung follows the paper.) **Predict**: what share of the tiles is visited at $N = 1024$ with tiles of 64?

# %%
my_visited = None     # between 0 and 1

# %%
with Memory() as causal:
    O_causal, L_causal = fa2_forward(Q, K, V, causal=True, B_r=B, B_c=B)
visits = sum(event.name == "K" for event in causal.log)
print(judge(O_causal, L_causal, Q, K, V, causal=True))
print(f"modelled: {visits} of {(N // B) ** 2} tiles, {visits / (N // B) ** 2:.0%}; you said {my_visited}")
print("modelled = formula:", causal.read == cost.fa2_forward(N, N, d, B_r=B, B_c=B, causal=True).read)

# %%
logs = {}
for f in (fa1_forward, fa2_forward):
    with Memory() as mem:
        f(q, k, v, causal=True, B_r=16, B_c=16)
    logs[f.__name__] = mem.log
figures.tile_traversal(logs, 64, 64)

# %% [markdown]
# **Takeaway.** $T(T+1)/2$ of $T^2$ tiles: a little over half, and half in the limit. Only the tiles on the diagonal need the mask at all.
#
# ## Within one program: split Q, not K
#
# A program is several *warps*, groups of 32 threads, that share one tile of work. FA1 gave each warp a part of the keys (split-K); FA2 gives each a part of the queries (split-Q). With split-K every warp ends with a partial $O_i$ that must be merged:

# %%
Q_i, K_j, V_j = Q[:64], K[:128], V[:128]
warps = []
for part in tiles(128, 32):                                              # split-K: four warps, 32 keys each
    S = Q_i @ K_j[part].T * d**-0.5
    m_w = S.amax(-1)
    P = torch.exp(S - m_w[:, None])
    warps.append((P @ V_j[part], m_w, P.sum(-1)))
O_i, m_i, l_i = merge(merge(warps[0], warps[1]), merge(warps[2], warps[3]))
print(f"split-K, merged: error {max_error(O_i / l_i[:, None], attention(Q_i, K_j, V_j)[0]):.1e}")
exchanged = sum(x.nbytes for state in warps[1:] for x in state)
print(f"modelled: {exchanged / 1024:.0f} KiB pass between the warps for each tile; with split-Q none, by construction")

# %% [markdown]
# **Takeaway.** With split-Q each warp owns its rows from start to end, as each program does: the same idea one level down. No partial $O_i$ is exchanged.
#
# ## Find the bug in the published line
#
# Algorithm 1 in the first version of the paper updates the output with $\mathrm{diag}(e^{m^{(j-1)} - m^{(j)}})^{-1} O$, the line that chapter 04 stumbled over. **Predict** the error of the printed line after two tiles. This cell goes wrong on purpose.

# %%
def two_tiles(factor):
    """Attention of 4 queries over two key tiles, with the given correction of the old output."""
    m, l, O = torch.full((4,), -inf), torch.zeros(4), torch.zeros(4, d)
    for cols in tiles(16, 8):
        S = Q[:4] @ K[cols].T * d**-0.5
        m_new = torch.maximum(m, S.amax(-1))
        alpha, P = torch.exp(m - m_new), torch.exp(S - m_new[:, None])
        l, O, m = alpha * l + P.sum(-1), factor(alpha)[:, None] * O + P @ V[cols], m_new
    return O / l[:, None]


truth, _ = attention(Q[:4], K[:16], V[:16])
print(f"multiplied by alpha: error {max_error(two_tiles(lambda alpha: alpha), truth):.1e}")
print(f"as printed, inverse: error {max_error(two_tiles(lambda alpha: 1 / alpha), truth)}")

# %% [markdown]
# $\alpha = e^{m_{old} - m_{new}}$ is at most 1: what was summed in the old unit shrinks when the unit grows. The inverse blows it up; at the first tile, $1/\alpha = \infty$ meets $O = 0$ and makes NaN.
#
# **Takeaway.** Check a printed algorithm on two tiles before you trust it, against float64.
#
# ## Your turn
#
# **One query block** ([exercises/ex06_fa2_inner_loop.py](../exercises/ex06_fa2_inner_loop.py), 30 minutes). The program of FA2, with every byte counted: $O_i \leftarrow \alpha\, O_i + P_{ij} V_j$, divided by $l_i$ once.

# %%
from flashlab.check import check

check("ex06_fa2_inner_loop")

# %% [markdown]
# **Causal skipping** ([exercises/ex06_causal_skipping.py](../exercises/ex06_causal_skipping.py), 20 minutes). Which key blocks does query block $i$ visit, and which of them need no mask? Query $n$ sees keys $0 \dots n + N_k - N_q$.

# %%
check("ex06_causal_skipping")

# %% [markdown]
# **The published lines** ([exercises/ex06_published_line.py](../exercises/ex06_published_line.py), 25 minutes). Four lines of a widely copied algorithm are wrong. Write it as it should be.

# %%
check("ex06_published_line")

# %% [markdown]
# **Use $L$** ([exercises/ex06_use_of_L.py](../exercises/ex06_use_of_L.py), 15 minutes). Two halves of the keys, each finished: $L = \ln(e^{L_a} + e^{L_b})$, $O = e^{L_a - L} O_a + e^{L_b - L} O_b$.

# %%
check("ex06_use_of_L")

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning](https://arxiv.org/abs/2307.08691), sections 3.1 to 3.3. NVIDIA H100 SXM data sheet for the two FLOP rates.
#
# **Next:** [07 · Counting HBM traffic](07_counting_hbm_traffic.ipynb) holds every formula so far against measured bytes, in the model and on an H100.
