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
# **You will be able to** turn chapter 08's two passes into GPU kernels, give dropout a mask that nobody stores, and train a model with the result.
#
# **You need** chapters 08 and 10 · **further:** sittings 1 to 4, 25 to 45 minutes each · **runs on** CPU (interpreted) or GPU (compiled); Triton, so Linux

# %%
import flashlab  # first: it tells Triton where to run
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("This chapter needs Triton.")

# %%
import warnings

import torch
import triton
import triton.language as tl

from flashlab.kernels import fa2_backward as kernels
from flashlab.kernels.dropout import dropout_keep_mask
from flashlab.kernels.fa2 import fa2_triton_forward
from flashlab.oracle import attention, gradients, judge_gradients, max_error
from flashlab.rungs.fa2_backward import fa2_backward_two_pass
from flashlab.triton_mode import interpreted
from flashlab_course import figures
from flashlab_course.check import check
from flashlab_course.lesson import compare, replay, reveal, yours

torch.manual_seed(0)
warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")     # numpy's, where we make inf on purpose
device, how = ("cpu", "interpreted") if interpreted() else ("cuda", "compiled")

# %% [markdown]
# ## Sitting 1 (further) · Three launches (25 minutes)
#
# ### Who owns what
#
# | kernel | one program owns | goes over | stores |
# |---|---|---|---|
# | `preprocess` | query block $i$ of a query head | nothing | $D_i$, and $L_i$ in base 2 |
# | `dkdv` | key block $j$ of a key head | query blocks | $dK_j$, $dV_j$ |
# | `dq` | query block $i$ of a query head | key blocks | $dQ_i$ |
#
# Each gradient has one owner, which stores it once. $dK_j$ sums over queries and $dQ_i$ over keys, so one owner cannot finish both.
#
# **Predict** the number of programs of each kernel for 2 sequences, 8 query heads on 2 key heads and $N = 1000$. Tiles are $128 \times 128$; `preprocess` takes 32 rows.

# %%
my_grids = {"preprocess": None, "dkdv": None, "dq": None}

# %%
Q = torch.empty(2, 8, 1000, 64, device="meta")
K = torch.empty(2, 2, 1000, 64, device="meta")
launches = kernels.launch(Q, K, K, Q, Q, Q[..., 0], None, Q, K, K, causal=True, scale=0.125, B_r=128, B_c=128)
compare("programs of the backward pass", my_grids, {kernel.fn.__name__.removesuffix("_kernel"): grid[0] for kernel, grid, _ in launches})

# %% [markdown]
# A program of `dkdv` goes over the query blocks of all query heads that share its key head, because $dK_j$ is the **sum** over them.
#
# ### The first launch: $D$, and $L$ in base 2
#
# $D_i = dO_i \cdot O_i$ is a row sum. The same kernel converts $L$. A GPU has an instruction for powers of 2, not of $e$, and $e^{S-L} = 2^{S \log_2 e - L \log_2 e}$. So $L$ is multiplied by $\log_2 e$ once per row.
#
# A row that sees no key has $L = -\infty$. The kernel stores $+\infty$ in its place: then $2^{S-L} = 0$, without a special case.

# %%
@triton.jit
def preprocess_kernel(O, dO, L, D, L_log2, N, d: tl.constexpr, B_r: tl.constexpr):
    rows = tl.program_id(0) * B_r + tl.arange(0, B_r)                            # (B_r,)
    at = rows[:, None] * d + tl.arange(0, d)                                     # (B_r, d)    contiguous, one head
    O_i = tl.load(O + at, mask=rows[:, None] < N, other=0.0)
    dO_i = tl.load(dO + at, mask=rows[:, None] < N, other=0.0)
    L_i = tl.load(L + rows, mask=rows < N)
    L_i = tl.where(L_i == -float("inf"), float("inf"), L_i)                      # 2^(S - inf) = 0
    tl.store(D + rows, tl.sum(O_i * dO_i, 1), mask=rows < N)
    tl.store(L_log2 + rows, L_i * 1.4426950408889634, mask=rows < N)             # log2(e)


Q, K, V, dO = (torch.randn(96, 16, device=device) for _ in range(4))
O, L = (T[0, 0] for T in fa2_triton_forward(Q[None, None], K[None, None], V[None, None], scale=0.25))
L[0] = -float("inf")                                                             # as if row 0 saw no key
D, L_log2 = torch.empty_like(L), torch.empty_like(L)
preprocess_kernel[(3,)](O, dO, L, D, L_log2, 96, 16, 32)
print(f"{how}: D off by {max_error(D, (dO.double() * O.double()).sum(-1)):.0e}; "
      f"L of row 0 is {L_log2[0]}, its weights {torch.exp2(Q[0, :3] - L_log2[0]).tolist()}")

# %% [markdown]
# ### The second launch: $dK$ and $dV$
#
# `dkdv` computes $dV_j \mathrel{+}= P_{ij}^\top dO_i$. A tensor core can take its left factor, here $P_{ij}^\top$, from registers. The picture says which thread holds a number after a product. The same thread must hand in the number at this place of a left factor. If another thread has it, it goes through shared memory first.
#
# **Predict.** One kernel computes `"Q K^T"` and transposes the result; another computes `"K Q^T"`. Which stores less to shared memory?

# %%
from flashlab_course.player.layouts import holder, play_layouts

my_product = None     # "Q K^T" or "K Q^T"
figures.matrices({"": [[holder(row, column) for column in range(8)] for row in range(8)]}, "Four threads share a row of a product",
                 "Definition: PTX ISA, wgmma. In a cell: the thread that holds the number.", "column", "row")

# %% [markdown]
# **Run and compare.** This kernel, compiled for an H100, computes a tile of $dV$ both ways.

# %%
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all


@triton.jit
def dv_kernel(Q, K, dO, dV, B: tl.constexpr, keys_in_rows: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]                 # B queries, B keys, d = B
    Q_i, K_j, dO_i = tl.load(Q + at), tl.load(K + at), tl.load(dO + at)
    P_T = tl.exp2(tl.dot(K_j, Q_i.T)) if keys_in_rows else tl.exp2(tl.dot(Q_i, K_j.T)).T
    tl.store(dV + at, tl.dot(P_T.to(dO_i.dtype), dO_i))


X = torch.empty(64, 64, dtype=torch.float16, device="meta")
jobs = [(dv_kernel, {"Q": X, "K": X, "dO": X, "dV": X, "B": 64, "keys_in_rows": turned}, 90) for turned in (False, True)]
stores = {name: gpu.ptx.count("stmatrix") + gpu.ptx.count("st.shared")
          for name, gpu in zip(("Q K^T", "K Q^T"), compile_all(jobs), strict=True)}
print("instructions that store to shared memory:", stores)
compare("the product that needs no transposing", my_product, min(stores, key=stores.get))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $K_j Q_i^\top$ has the numbers of $S_{ij}^\top$, with keys in rows, as $P_{ij}^\top$ has. The stores that both need bring $Q_i$, $K_j$ and $dO_i$ to shared memory. $Q_i$ is transposed while it is read from shared memory, which costs nothing.
#
# </details>
#
# Watch both ways, thread by thread. The blue cells are what a thread holds after the product. The red frames are what it must hand in to the next one.

# %%
play_layouts()

# %% [markdown]
# Chapter 10 indexed a number for each query, such as `m_new`, by `[:, None]`: queries were rows. Here queries are columns, so `L` and `D` are indexed by `[None, :]`.
#
# **Takeaway.** Compute a tile in the orientation that the next product needs.
#
# ### Causal: where the loop starts
#
# The forward stops early. `dkdv` starts late, because *late* queries see key block $j$. **Predict** the first query block that key block $j = 3$ needs, for $B_c = 32$, $B_r = 16$ and $N_q = N_k = 128$.

# %%
my_start = None

# %%
from flashlab.memory import Memory

Q, K, V, dO = (torch.randn(128, 16) for _ in range(4))
O, L = (T[0, 0] for T in flashlab.flash_attention(*(T[None, None] for T in (Q, K, V)), causal=True, return_lse=True))
with Memory() as mem:
    fa2_backward_two_pass(Q, K, V, O, dO, L, causal=True, B_r=16, B_c=32)
_ = compare("first query block of key block 3", my_start)
figures.causal_tiles([event for event in mem.log if event.kernel == "fa2_backward_dkdv"], 128, 128)

# %% [markdown]
# The long programs should start first. So `dkdv` launches the first key blocks first, and `dq` the last query blocks.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (further) · Write dK and dV (45 minutes)
#
# **Your turn** ([exercises/ex11_dkdv.py](../exercises/ex11_dkdv.py), 40 minutes). Write the loops of the kernel: strides, short tiles, causal, and every query head of the group. Its $L$ is chapter 06's, in base $e$ and $-\infty$ where a query sees no key. The tile itself is your `ex08_dv_tile` and `ex08_ds_tile`, on its side. Start with one head and one query block.

# %%
check("ex11_dkdv")

# %%
reveal("ex11_dkdv")

# %%
replay("ex11_dkdv")

# %% [markdown]
# *This shows a solution.* The package's kernel, `dkdv_kernel` in [flashlab/kernels/fa2_backward.py](../flashlab/kernels/fa2_backward.py), has one loop over pairs (head of the group, query block). Play it, causal, with two query heads on one key head. With which query block does each program start, when does it go on to head 1, and how often does it store?

# %%
from flashlab_course.player import play, record_kernel

Q, K, V, dO = (torch.randn(1, heads, 32, 16, device=device) for heads in (2, 1, 1, 2))
O, L = fa2_triton_forward(Q, K, V, causal=True)
grads = [torch.empty_like(T) for T in (Q, K, V)]
preprocess, dkdv, dq = (lambda kernel=kernel, grid=grid, given=given: kernel[grid](**given) for kernel, grid, given in
                        kernels.launch(Q, K, V, O, dO, L, None, *grads, causal=True, scale=0.25, B_r=16, B_c=16))
preprocess(), dkdv(), dq()
truth = gradients(Q, K, V, dO, causal=True)
print(f"{how}: dQ, dK and dV are off by", *(f"{max_error(*pair):.0e}" for pair in zip(grads, truth, strict=True)))
play(record_kernel(dkdv)) if interpreted() else print("Kernels are compiled here. Set TRITON_INTERPRET=1 to see the player.")

# %% [markdown]
# *End of sitting 2. To continue later, run the notebook from the top.*
#
# ## Sitting 3 (further) · The mask of dQ, and dropout (35 minutes)
#
# ### A mask that must not be forgotten
#
# In `dkdv` a key past the end has a row of its own, which is not stored. In `dq` keys lie along the sum. A padded key is loaded as 0. Its score is 0, its weight is $e^{0 - L}$, and the weight meets $K_j = 0$. Does `dq` need a mask? Here it is a switch:

# %%
@triton.jit
def dq_kernel(Q, K, V, dO, L_log2, D, dQ, scale, N_k,
              d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr, masked: tl.constexpr):
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

# %% [markdown]
# **Predict** what comes out without the mask for 90 keys in tiles of 32: `"right"`, `"wrong"` or `"NaN"`? First the scores are around 0, then they are far below 0, so that $L$ is mostly below $-100$. float32 ends at about $e^{89}$.

# %%
my_unmasked = {"around 0": None, "far below 0": None}

# %%
N, N_k, d, scale, words = 96, 90, 16, 0.25, {}
Q, K, V, dO = (torch.randn(N, d, device=device) for _ in range(4))
for name, q, k in (("around 0", Q, K), ("far below 0", Q.abs() * 10, -K.abs() * 10)):
    O, L = (T[0, 0] for T in fa2_triton_forward(q[None, None], k[None, None, :N_k], V[None, None, :N_k], scale=scale))
    D, L_log2, dQ = torch.empty_like(L), torch.empty_like(L), torch.empty_like(q)
    preprocess_kernel[(3,)](O, dO, L, D, L_log2, N, d, 32)
    truth, _, _ = gradients(q, k[:N_k], V[:N_k], dO, scale=scale)
    for masked in (True, False):
        dq_kernel[(N // 32,)](q, k, V, dO, L_log2, D, dQ, scale, N_k, d, 32, 32, masked)
        words[name] = "NaN" if dQ.isnan().any() else "right" if max_error(dQ, truth) < 1e-3 else "wrong"
        print(f"scores {name:<12}{'masked' if masked else 'no mask':<8} {words[name]:<6} off by {max_error(dQ, truth):.0e}")
compare("dQ without a mask", my_unmasked, words)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# A finite weight times a key of zeros is 0. Far below 0 the weight is $\infty$, and $\infty \cdot 0$ is NaN. A test with ordinary random numbers passes without the mask.
#
# </details>
#
# ### Is it right?
#
# The inputs are ragged, with $d_v \ne d$ and grouped heads. The allowed error is three times that of naive attention's gradients in the same dtype, against float64. The order of all additions is fixed, so a second run gives the same bits.

# %%
rows, names = [], ("float16", "bfloat16", "float32")
for dtype in names:
    for causal in (False, True):
        Q, K, V, dO = (torch.randn(1, h, n, x, device=device).to(getattr(torch, dtype)) for h, n, x in
                       ((4, 97, 59), (2, 113, 59), (2, 113, 40), (4, 97, 40)))
        O, L = fa2_triton_forward(Q, K, V, causal=causal, B_r=128, B_c=128)
        grads = kernels.fa2_triton_backward(Q, K, V, O, dO, L, causal=causal, B_r=128, B_c=128)
        assert judge_gradients(*grads, Q, K, V, dO, causal=causal).ok
        off = torch.cat([(g.double() - t).flatten() for g, t in zip(grads, gradients(Q, K, V, dO, causal=causal), strict=True)])
        rows.append({"dtype": dtype, "causal": causal, "rms": off.square().mean().sqrt().item()})
again = kernels.fa2_triton_backward(Q, K, V, O, dO, L, causal=causal, B_r=128, B_c=128)
print("same bits in a second run:", all(torch.equal(a, b) for a, b in zip(grads, again, strict=True)))
figures.bars({f"{row['dtype']}{', causal' * row['causal']}": row["rms"] for row in rows}, "Each dtype has an error of its own size",
             f"Measured here, {how}: dQ, dK and dV of 97 queries, 113 keys.", "rms error against float64", log=True)

# %% [markdown]
# ### Dropout that nobody stores
#
# Chapter 05 drew the mask from a generator whose state changes with each draw, so the order of the tiles mattered. A kernel can call `tl.rand(seed, place)` instead, with the weight's place in $P$.
#
# Both passes need the same mask. Below, the backward has another seed and other tiles. Which of them spoils the mask, or do both? Say it first. Then set one back at a time.

# %%
@triton.jit
def keep_kernel(Out, seed, N_k, p, B_r: tl.constexpr, B_c: tl.constexpr):
    rows = tl.program_id(0) * B_r + tl.arange(0, B_r)
    keys = tl.program_id(1) * B_c + tl.arange(0, B_c)
    position = rows[:, None] * N_k + keys                                        # (B_r, B_c)   the weight's place in P
    tl.store(Out + position, tl.rand(seed, position) >= p)                       # Philox: ten rounds of multiply and xor


def mask_of(seed, B_r, B_c):
    mask = torch.empty(64, 64, dtype=torch.int8, device=device)
    keep_kernel[(64 // B_r, 64 // B_c)](mask, seed, 64, 0.25, B_r, B_c)
    return mask.bool().cpu()


forward, backward = {"seed": 7, "B_r": 16, "B_c": 64}, {"seed": 8, "B_r": 32, "B_c": 16}       # change me
ours, theirs = mask_of(**forward), mask_of(**backward)
figures.matrices({f"forward {forward}": ours, f"backward {backward}": theirs}, f"{(ours != theirs).double().mean():.0%} of the weights differ",
                 "Measured here: 64 queries, 64 keys. Blue: kept.", "key", "query")

# %% [markdown]
# <details><summary><b>Why?</b> (after you have changed it)</summary>
#
# `tl.rand` is a **counter-based** generator. It has no state: the number is a function of seed and place. So tiles, warps and the order of the programs do not matter.
#
# </details>
#
# Philox makes four random words of each counter, and `tl.rand` throws three of them away. The course's kernels use all four, in [flashlab/kernels/dropout.py](../flashlab/kernels/dropout.py): one counter decides about four weights that lie in the registers of the same thread, so a tile's mask takes a quarter of the arithmetic.
#
# **Your turn** ([exercises/ex11_dropout.py](../exercises/ex11_dropout.py), 20 minutes). Go back through one tile: which $P$ meets $V$, which $P$ is in the softmax's gradient, and what happens to $dP$?

# %%
check("ex11_dropout")

# %%
reveal("ex11_dropout")

# %% [markdown]
# These are the three kernels with dropout, against a truth that gets the mask as a tensor. The second run has another seed in the backward, on purpose.

# %%
p = 0.25
Q, K, V, dO = (torch.randn(1, 1, 64, 16, device=device) for _ in range(4))
O, L = fa2_triton_forward(Q, K, V, causal=True, dropout_p=p, seed=torch.tensor(7, device=device), B_r=32, B_c=16)
keep = dropout_keep_mask(1, 1, 64, 64, p, 7)[0, 0].to(device)
truth = gradients(Q, K, V, dO, causal=True, dropout_p=p, keep=keep)
print(f"{how}: O off by {max_error(O, attention(Q, K, V, causal=True, dropout_p=p, keep=keep)[0]):.0e}")
for seed in (7, 8):
    grads = kernels.fa2_triton_backward(Q, K, V, O, dO, L, causal=True, dropout_p=p, seed=torch.tensor(seed, device=device), B_r=16, B_c=32)
    print(f"backward with seed {seed}: off by {max(max_error(a, b) for a, b in zip(grads, truth, strict=True)):.0e}")

# %% [markdown]
# **Takeaway.** A random number that is a function of its place needs no order, no state and no memory. Each of the three kernels computes every number again.
#
# *End of sitting 3. To continue later, run the notebook from the top.*
#
# ## Sitting 4 (further) · Train with it (25 minutes)
#
# ### A tiny language model
#
# Chapter 15's GPT, here with two layers, learns a nursery rhyme letter by letter. Its attention is an argument; all else is equal, even the random numbers.

# %%
from flashlab_course import gpt
from flashlab_course.gpt.train import train_step

PARTS = [("malt", "lay in"), ("rat", "ate"), ("cat", "killed"), ("dog", "worried"), ("cow with the crumpled horn", "tossed"),
         ("maiden all forlorn", "milked"), ("man all tattered and torn", "kissed")]
verse = "the house that Jack built"
rhyme = f"This is {verse}.\n"
for who, did in PARTS:
    verse = f"the {who}\nthat {did} {verse}"
    rhyme += f"\nThis is {verse}.\n"
print(f"{len(rhyme)} characters: {rhyme[:60]!r} ...")


def train(attend, steps):
    """The trained model, and the loss of each step."""
    model = gpt.GPT(gpt.Shape(layers=2, width=96, heads=3, kv_heads=3), attend).to(device)
    optimizer, draw = torch.optim.AdamW(model.parameters(), lr=4e-3), torch.Generator().manual_seed(1)
    pieces = (gpt.windows(gpt.encode(rhyme), 4, 64, draw) for _ in range(steps))
    return model, [train_step(model, optimizer, piece.to(device)).item() for piece in pieces]

# %% [markdown]
# Four attentions train it: PyTorch's own (SDPA); ours; ours on Triton's kernels, for a few steps if interpreted; and one with a mistake made on purpose, which leaves $D$ out of the backward pass. Once `ex11_dkdv` passes, yours is the fifth.
#
# **Predict.** Here is the mistake. Which of $dQ$, $dK$ and $dV$ does it make wrong?

# %%
class WithoutD(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Q, K, V):
        hidden = torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool, device=Q.device).triu(1)
        P = torch.softmax((Q @ K.mT * Q.shape[-1]**-0.5).masked_fill(hidden, -float("inf")), -1)
        ctx.save_for_backward(Q, K, V, P)
        return P @ V

    @staticmethod
    def backward(ctx, dO):
        Q, K, V, P = ctx.saved_tensors
        dS = P * (dO @ V.mT) * Q.shape[-1]**-0.5                                 # should be P * (dP - D)
        return dS @ K, dS.mT @ Q, P.mT @ dO


my_wrong = None     # for example "dQ and dV"

# %%
Q, K, V, dO = (torch.randn(1, 1, 48, 16, device=device) for _ in range(4))
inputs = [T.requires_grad_() for T in (Q, K, V)]
grads = torch.autograd.grad(WithoutD.apply(*inputs), inputs, dO)
truth = gradients(*(T.detach() for T in inputs), dO, causal=True)
off = {name: max_error(mine, true) for name, mine, true in zip(("dQ", "dK", "dV"), grads, truth, strict=True)}
print("off by", {name: f"{error:.0e}" for name, error in off.items()})
compare("gradients wrong without D", my_wrong, {name for name, error in off.items() if error > 1e-3})

# %% [markdown]
# Now train, for about a minute. **Predict** when the wrong curve leaves the others.

# %%
my_parting = None     # "at once", "later" or "never"

# %%
flash = lambda Q, K, V, causal=True, **options: flashlab.flash_attention(Q, K, V, causal=causal, **options)
runs = {"SDPA": (gpt.ATTENTIONS["SDPA math"], 110), "flash_attention": (flash, 110),
        f"Triton, {how}": (lambda Q, K, V, causal: flash(Q, K, V, backend="triton"), 2 if interpreted() else 110),
        "D left out": (lambda Q, K, V, causal: WithoutD.apply(Q, K, V), 110)}
for own in yours.implementations("backward").values():         # once ex11_dkdv passes
    runs["your dK and dV"] = (lambda Q, K, V, causal, own=own: own(Q, K, V, True)[0], 2 if interpreted() else 110)
models, losses = {}, {}
for name, (attend, steps) in runs.items():
    models[name], losses[name] = train(attend, steps)
pairs = enumerate(zip(losses["D left out"], losses["SDPA"], strict=True))
parted = next((step for step, (wrong, right) in pairs if abs(wrong - right) > 0.1), None)     # nats
_ = compare("when the curve without D leaves the others", my_parting,
            "never" if parted is None else "at once" if parted < 3 else "later")
curves = {name: dict(enumerate(values)) for name, values in losses.items()}
over = {"flash_attention": curves.pop("flash_attention")}                       # dashed, above SDPA
figures.curves(curves, dashed=over, title=f"The mistake shows {'nowhere' if parted is None else f'from step {parted} on'}",
               source=f"Measured here: {len(rhyme)} characters, 2 layers, float32, AdamW, 4 windows of 64 a step.",
               x="step", y="loss (nats a character)", ylim=(0, None))

# %% [markdown]
# The wrong curve falls like the others at first, then turns, without any error message. Without a second curve you would blame the learning rate. What has each model learned?

# %%
for name in ("flash_attention", "D left out"):
    written = gpt.generate(models[name], gpt.encode("This is ")[None].to(device), 80, cached=False)
    print(f"{name}: {gpt.decode(written[0])!r}")

# %% [markdown]
# **Change this and run again.** Another mistake: $D$ is there, but $dK$ lacks the scale.
#
# ```python
# dS = P * (dO @ V.mT - (P * (dO @ V.mT)).sum(-1, keepdim=True))
# return dS @ K * Q.shape[-1]**-0.5, dS.mT @ Q, P.mT @ dO
# ```
#
# Or set `dropout_p=0.1` in `flash` (on a CPU only the Triton backend has it, so take few steps).
#
# **Takeaway.** A falling loss proves nothing about a gradient. Check gradients against float64.
#
# ### What the compiler makes of it
#
# `dkdv` holds two sums of $B_c \times d$ in float32 beside $P^\top$ and $dP^\top$: far more than the forward. A thread has 255 registers at most; the rest *spills* to memory. Here four tiles ($B_r \times B_c$) are compiled for an H100 at $d = 128$. Change the numbers of `dq` until it spills, too.

# %%
X = torch.empty(1, 16, 4096, 128, dtype=torch.bfloat16, device="meta")
_, dkdv, dq = kernels.launch(X, X, X, X, X, torch.empty(1, 16, 4096, device="meta"), None, X, X, X, causal=True, scale=128**-0.5)
choices = [(dkdv, 64, 128, 8), (dkdv, 32, 128, 4), (dkdv, 128, 128, 8), (dq, 128, 64, 8)]       # change me: B_r, B_c, warps
jobs = [(kernel, given | {"B_r": B_r, "B_c": B_c, "num_warps": warps}, 90) for (kernel, _, given), B_r, B_c, warps in choices]
rows = []
for ((kernel, *_), B_r, B_c, warps), gpu in zip(choices, compile_all(jobs), strict=True):
    rows.append({"name": f"{kernel.fn.__name__.removesuffix('_kernel')} {B_r} × {B_c}, {warps} warps", "registers": gpu.registers,
                 "spills": gpu.spills, "shared": gpu.shared_bytes, "limit": SHARED_LIMIT[90]})
figures.compiled_kernels(rows)

# %% [markdown]
# **Takeaway.** A backward kernel fills its registers first: `dkdv` has all 255 in use at every one of these tiles, and shared memory to spare.
#
# ### On a GPU
#
# The backward counts 2.5 times the operations of the forward: five products for two. These kernels compute seven, so they could reach at most five sevenths of a matrix product's speed.

# %%
from flashlab_course.bench import load_results

recorded = load_results("backward_h200")
figures.benchmark(recorded, "tflops", causal=True, focus="fa2_triton_backward",
                  ceilings={"with seven products": 5 / 7 * recorded["ceilings"]["matmul_tflops"]})

# %% [markdown]
# Two lines end above five sevenths: FlashAttention-4, and "Gluon, Hopper", the last kernel of [chapter 12](12_making_it_fast.ipynb). Both compute five products in one kernel, and add $dQ$ up in memory. [Chapter 16](16_benchmarks.ipynb) compares the memory.
#
# ### An open question
#
# The losses of two correct attentions drift slowly apart. How would you tell a harmless difference of rounding from a small mistake in a gradient, if all you had were two loss curves?

# %% [markdown]
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 2 · Salmon, Moraes, Dror, Shaw 2011, [Parallel random numbers: as easy as 1, 2, 3](https://doi.org/10.1145/2063384.2063405) · Ainslie et al. 2023, [GQA](https://arxiv.org/abs/2305.13245) · Triton's tutorials on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html) and [low-memory dropout](https://triton-lang.org/main/getting-started/tutorials/04-low-memory-dropout.html) · the rhyme: "This is the House that Jack built", traditional
#
# **Next:** [12 · Making it fast](12_making_it_fast.ipynb) climbs from these kernels to faster ones.
