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
# **You will be able to** turn chapter 08's two passes into GPU kernels, say why they are two, give dropout a mask that nobody stores, and train a model with the result.
#
# **You need** chapters 08 and 10. · **two hours**, 60 minutes of them exercises · **runs on** CPU (interpreted) or GPU (compiled); Triton, so Linux
#
# The mathematics is done and so are the tiles. What is new is who runs what at the same time, how a tile lies in registers, and a few places where the forward's habits would be wrong.

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

from flashlab_course import figures
from flashlab_course.check import check
from flashlab.triton_mode import interpreted
from flashlab.kernels import fa2_backward as kernels
from flashlab.kernels.dropout import dropout_keep_mask
from flashlab.kernels.fa2 import fa2_triton_forward
from flashlab_course.lesson import compare, nearest, replay, reveal, yours
from flashlab.memory import Memory, tiles
from flashlab.oracle import attention, gradients, judge_gradients, max_error
from flashlab.rungs.fa2_backward import fa2_backward_two_pass

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
# Each gradient has one owner, which writes it once. One loop for all three would have to add to $dQ$ from many programs at once (chapter 08). **Predict** the three grids for 2 sequences, 8 query heads on 2 key heads, $N = 1000$, and tiles of 128 by 128 (`preprocess`: 32 rows).

# %%
my_grids = {"preprocess": None, "dkdv": None, "dq": None}

# %%
Q = torch.empty(2, 8, 1000, 64, device="meta")
K = torch.empty(2, 2, 1000, 64, device="meta")
launches = kernels.launch(Q, K, K, Q, Q, Q[..., 0], None, Q, K, K, causal=True, scale=0.125, B_r=128, B_c=128)
grids = {kernel.fn.__name__.removesuffix("_kernel"): grid[0] for kernel, grid, _ in launches}
print("programs:", grids)
_ = compare("programs of the backward pass", my_grids, grids)

# %% [markdown]
# **Takeaway.** Ownership decides the grid: `dkdv` has fewer programs where key heads are shared, and each of them works for a whole group of query heads.

# %% [markdown]
# ## First launch: $D$, and $L$ in another base
#
# $D_i = dO_i \cdot O_i$ is a row sum. The same kernel also prepares $L$: a GPU has an instruction for powers of 2, not of $e$, and $e^{S-L} = 2^{S \log_2 e - L \log_2 e}$. Multiplying $L$ once per row here spares a multiplication per element later. (The forward kernel still takes `exp`; chapter 12 changes that.)
#
# **Predict**: a row that sees no key has $L = -\infty$, and its weights must come out as 0. What should the kernel store as its $L$, so that $2^{S - L}$ needs no special case?

# %%
my_stored_L = None     # a number, or float("inf"), or ...

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


N, d, scale = 96, 16, 0.25
Q, K, V, dO = (torch.randn(N, d, device=device) for _ in range(4))
O, L = (T[0, 0] for T in fa2_triton_forward(Q[None, None], K[None, None], V[None, None], scale=scale))
L[0] = -float("inf")                                                             # as if row 0 saw no key
D, L_log2 = torch.empty_like(L), torch.empty_like(L)
preprocess_kernel[(triton.cdiv(N, 32),)](O, dO, L, D, L_log2, N, d, 32)

# %%
print(f"{how}: D off by {max_error(D, (dO.double() * O.double()).sum(-1)):.0e}, weights of row 0: {torch.exp2(Q[0, :4] - L_log2[0])}")
_ = compare("L of a row that sees nothing", my_stored_L, L_log2[0].item())

# %% [markdown]
# **Takeaway.** What a whole row needs is prepared once. $+\infty$ in place of $-\infty$ gives such a row no weight, no gradient, and the two large kernels no special case.

# %% [markdown]
# ## Second launch: stand the tile on its side
#
# `dkdv` computes $dV_j \mathrel{+}= P_{ij}^\top dO_i$. A tensor core takes its left factor from registers, where the last product left it, if the layout fits. $P_{ij}^\top$ would not fit: transposing crosses threads, through shared memory. **Predict** which product gives $P^\top$ without any transposing of results.

# %%
my_product = None     # "Q K^T" or "K Q^T"

# %%
_ = compare("the product that needs no transposing", my_product, "K Q^T")
print("K Q^T has keys in rows: L and D, one number for each query, lie along its columns")

# %% [markdown]
# $K_j Q_i^\top$ has the same numbers with keys in rows. $Q_i$ is transposed while it is read from shared memory, which costs nothing. What you wrote `[:, None]` for in chapter 10 now lies along the columns.
#
# **Takeaway.** Choose the orientation in which the next product wants the tile.

# %% [markdown]
# ## Causal: where the loop starts
#
# The forward stops early. `dkdv` has it the other way round: key block $j$ is seen by *late* queries, so its loop starts late. **Predict** the first query block that key block $j = 3$ needs, for $B_c = 128$, $B_r = 64$, $N_q = N_k$.

# %%
my_start = None

# %%
Q, K, V, dO = (torch.randn(96, 16) for _ in range(4))
O, L = (T[0, 0] for T in flashlab.flash_attention(*(T[None, None] for T in (Q, K, V)), causal=True, return_lse=True))
with Memory() as mem:
    fa2_backward_two_pass(Q, K, V, O, dO, L, causal=True, B_r=16, B_c=32)
first = next(i for i in range(100) if (i + 1) * 64 - 1 >= 3 * 128)               # its last query is not before the first key
_ = compare("first query block of key block 3", my_start, first)
figures.causal_tiles([event for event in mem.log if event.kernel == "fa2_backward_dkdv"], 96, 96, owner="key")

# %% [markdown]
# The other kernel, `dq`, walks as the forward does, and its *last* programs are the long ones.
#
# **Takeaway.** Causal work is uneven. `dkdv` launches the first key blocks first, `dq` the last query blocks, so that the long programs do not start late.

# %% [markdown]
# ## Shared key heads
#
# With grouped-query attention several query heads read one key head, and $dK$ is the **sum** over them. The program that owns $dK_j$ walks all of them: no atomics, no extra memory, the same bits every time. **Predict** for the example above (8 query heads on 2 key heads, $N = 1000$, blocks of 128 queries, no mask): how many steps has one `dkdv` program?

# %%
my_steps = None

# %%
_ = compare("steps of a dkdv program", my_steps, 8 // 2 * len(tiles(1000, 128)))
Q, dO = (torch.randn(4, 40, 16) for _ in range(2))                               # four query heads, two key heads
K, V = (torch.randn(2, 40, 16) for _ in range(2))
shared = gradients(Q, K, V, dO)[1]
alone = [gradients(Q[h], K[h // 2], V[h // 2], dO[h])[1] for h in range(4)]
print(f"dK of a shared head against the sum over its query heads: off by {max_error(alone[0] + alone[1], shared[0]):.0e}")

# %% [markdown]
# **Takeaway.** What the forward shares, the backward sums.

# %% [markdown]
# ## Write it
#
# **Exercise: $dK$ and $dV$** ([exercises/ex11_dkdv.py](../exercises/ex11_dkdv.py), 40 minutes). The loops of the kernel: strides, tails, causal, and every query head of the group. The tile itself is your `ex08_dv_tile` and `ex08_ds_tile`, on its side. Start with one head and one query block.

# %%
check("ex11_dkdv")

# %%
reveal("ex11_dkdv")

# %%
replay("ex11_dkdv")

# %% [markdown]
# *(From here on the exercise above is spoiled.)* The repository's own is `dkdv_kernel` in [flashlab/kernels/fa2_backward.py](../flashlab/kernels/fa2_backward.py). It has one loop over pairs (head of the group, query block), starts it where the first visible query is, and makes the addresses of its outputs from scratch at the end, so that they take up no registers during the loop. Against chapter 08's second rung:

# %%
Q, K, V, dO = (torch.randn(1, 1, 96, 16, device=device) for _ in range(4))
O, L = fa2_triton_forward(Q, K, V, causal=True)
grads = kernels.fa2_triton_backward(Q, K, V, O, dO, L, causal=True, B_r=32, B_c=32)
rung = fa2_backward_two_pass(*(T[0, 0] for T in (Q, K, V, O, dO, L)), causal=True, B_r=32, B_c=32)
for name, mine, theirs in zip(("dQ", "dK", "dV"), grads, rung, strict=True):
    print(f"{how}: {name} differs from the rung's by {max_error(mine[0, 0], theirs.double()):.0e}")

# %% [markdown]
# ## Third launch: a mask that must not be forgotten
#
# In `dkdv` a key past the end has a row of its own, which is not stored. In `dq` keys lie along the sum. A padded key is loaded as 0, its score is 0, and its weight is $e^{0 - L}$. It meets $K_j = 0$, so why care? Here is the kernel, with the mask as a switch.

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

# %% [markdown]
# 90 keys in tiles of 32. Two sets of scores: ordinary ones around 0, and large ones, all far below 0. **Predict** what comes out without the mask: "right", "wrong" or "NaN"?

# %%
my_unmasked = {"around 0": None, "far below 0": None}

# %%
N, N_k, words = 96, 90, {}
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
_ = compare("dQ without a mask", my_unmasked, words)

# %%
levels = list(range(0, -210, -10))
weights = [torch.exp2(torch.tensor(-level * 1.4426950408889634)).item() for level in levels]    # exp(0 - L), L about the scores
figures.curves({"weight": dict(zip(levels, weights, strict=True))}, "An unhidden padded key weighs exp(0 − L), until float32 ends",
               "Measured here: exp2 in float32, as the kernel takes it.", "level of the real scores", "weight of a key that is not there",
               log="y", ceilings={"float32 ends here": torch.finfo(torch.float32).max})

# %% [markdown]
# **Compare.** Ordinary scores give the right answer, since the weight meets $K_j = 0$. Far below zero the weight overflows, and $\infty \cdot 0$ is NaN. A test with ordinary random numbers would never have told.
#
# **Takeaway.** "It is multiplied by 0 anyway" is true of numbers, not of $\infty$.

# %% [markdown]
# ## Is it right?
#
# Every dtype, masked or not, ragged, $d_v \ne d$, grouped heads. Allowed is three times the error of naive attention's gradients in the same dtype, against float64. And on a second run: **predict** whether the bits are the same.

# %%
my_bits = None     # True or False

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
        rows.append({"dtype": dtype, "causal": causal, "max": off.abs().max().item(), "rms": off.square().mean().sqrt().item()})
again = kernels.fa2_triton_backward(Q, K, V, O, dO, L, causal=causal, B_r=128, B_c=128)
_ = compare("bits of a second run", my_bits, all(torch.equal(a, b) for a, b in zip(grads, again, strict=True)))
figures.bars({f"{row['dtype']}{', causal' * row['causal']}": row["rms"] for row in rows}, "Each dtype has an error of its own size",
             f"Measured here, {how}: dQ, dK and dV of 97 queries, 113 keys.", "rms error against float64", log=True)

# %% [markdown]
# **Takeaway.** Three kernels, exact in each dtype. Nothing is added up in an order that could change, so a run repeats itself bit for bit.

# %% [markdown]
# ## Dropout that nobody stores
#
# Chapter 05 drew the mask from a generator whose state moves with each draw, so the order of the tiles mattered. A **counter-based** generator has no state: a random number is a function of a seed and a counter, $u = f(\text{seed}, c)$, scrambled so well that neighbours look unrelated. Take the weight's place in $P$ for the counter. **Predict**: which of "seed", "tile sizes", "order of the programs" and "number of warps" must now agree between forward and backward?

# %%
my_agreement = None     # for example "seed and tile sizes"

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
    masks.append(mask.bool().cpu())
print("and PyTorch makes the same from the formula:", torch.equal(masks[0], dropout_keep_mask(1, 1, 64, 64, 0.25, 7)[0, 0]))
_ = compare("what the passes must agree on", my_agreement, "seed")
figures.matrices({"tiles of 16 × 64": masks[0], "tiles of 32 × 16": masks[1]},
                 "The same mask, whatever the tiles" if torch.equal(*masks) else "The tiles change the mask",
                 "Measured here: 64 queries, 64 keys. Blue: kept.", "key", "query")

# %% [markdown]
# Forward, `dkdv` and `dq` each draw what they need, wherever they are. What is left is where the mask goes on the way back.
#
# **Exercise: dropout, backwards** ([exercises/ex11_dropout.py](../exercises/ex11_dropout.py), 20 minutes). One tile: which $P$ meets $V$, which $P$ is in the softmax's gradient, and what happens to $dP$?

# %%
check("ex11_dropout")

# %%
reveal("ex11_dropout")

# %% [markdown]
# With dropout on, the three kernels against the truth, which is given the same mask as a tensor. The second draws with another seed in the backward, on purpose: what a mask that does not match costs.

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
# **Takeaway.** A random number as a function of its place needs no order, no state and no memory. The price is arithmetic: each of the three kernels makes every number again; we have not timed it.

# %% [markdown]
# ## Train with it
#
# Now use it: a small language model, letter by letter, whose attention is `flashlab.flash_attention`. The text is a nursery rhyme in which every verse contains the one before, so a model that looks back has an easy life. It is traditional, and we build it from its parts.

# %%
PARTS = [("malt", "lay in"), ("rat", "ate"), ("cat", "killed"), ("dog", "worried"), ("cow with the crumpled horn", "tossed"),
         ("maiden all forlorn", "milked"), ("man all tattered and torn", "kissed")]
verse = "the house that Jack built"
rhyme = f"This is {verse}.\n"
for who, did in PARTS:
    verse = f"the {who}\nthat {did} {verse}"
    rhyme += f"\nThis is {verse}.\n"
alphabet = sorted(set(rhyme))
letters = torch.tensor([alphabet.index(c) for c in rhyme], device=device)
print(f"{len(rhyme)} characters, {len(alphabet)} different ones; guessing blindly costs ln {len(alphabet)} = "
      f"{torch.tensor(float(len(alphabet))).log():.2f} nats a character")

# %% [markdown]
# Two layers, one head of 96 columns, windows of 64 characters. The attention is an argument: everything else is the same for every run, the random numbers included.

# %%
nn, WINDOW, WIDTH = torch.nn, 64, 96


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend, self.norm, self.norm_2 = attend, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):                                                        # (batch, N, width)
        Q, K, V = self.qkv(self.norm(x))[:, None].chunk(3, dim=-1)               # (batch, 1, N, width) each: one head
        x = x + self.mix(self.attend(Q, K, V)[:, 0])
        return x + self.mlp(self.norm_2(x))

# %%
class TinyGPT(nn.Module):
    def __init__(self, attend):
        super().__init__()
        torch.manual_seed(0)
        self.letters, self.places = nn.Embedding(len(alphabet), WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.blocks = nn.Sequential(Block(attend), Block(attend))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(alphabet)))

    def forward(self, tokens):                                                   # (batch, N) -> (batch, N, letters)
        return self.head(self.blocks(self.letters(tokens) + self.places.weight[: tokens.shape[1]]))

# %% [markdown]
# The training loop draws its windows from a generator of its own: the same ones in every run.

# %%
def train(attend, steps):
    """The trained model, and the loss of each step."""
    model, losses, draw = TinyGPT(attend).to(device), [], torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(steps):
        start = torch.randint(len(letters) - WINDOW - 1, (4, 1), generator=draw)
        window = letters[start.to(device) + torch.arange(WINDOW + 1, device=device)]
        loss = nn.functional.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses

# %% [markdown]
# Four attentions: PyTorch's own (SDPA); ours, on the backend that fits this machine; ours on Triton's kernels for a few steps (interpreted, they are slow); and one with a mistake made on purpose. It leaves $D$ out of the backward pass.

# %%
from torch.nn.functional import scaled_dot_product_attention


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

# %% [markdown]
# **Predict**: after 150 steps, how far apart are the losses of SDPA and of ours: 0, about $10^{-6}$, $10^{-4}$ or $10^{-2}$? And the one without $D$: for how many steps will its loss stay within 0.2 of SDPA's?

# %%
my_training = {"losses apart": None, "steps that look right without D": None}

# %%
flash = lambda Q, K, V, **options: flashlab.flash_attention(Q, K, V, causal=True, **options)
runs = {"SDPA": (lambda Q, K, V: scaled_dot_product_attention(Q, K, V, is_causal=True), 150), "flash_attention": (flash, 150),
        f"Triton, {how}": (lambda Q, K, V: flash(Q, K, V, backend="triton"), 2 if interpreted() else 150),
        "D left out": (WithoutD.apply, 150)}
for own in yours.implementations("backward").values():         # once ex11_dkdv passes
    runs["your dK and dV"] = (lambda Q, K, V, own=own: own.forward(Q, K, V, True)[0], 2 if interpreted() else 150)
models, losses = {}, {}
for name, (attend, steps) in runs.items():
    models[name], losses[name] = train(attend, steps)
apart = [mine - theirs for mine, theirs in zip(losses["D left out"], losses["SDPA"], strict=True)]
off = abs(losses["flash_attention"][-1] - losses["SDPA"][-1])
print(f"the last losses of SDPA and flash_attention are {off:.1e} apart")
_ = compare("training the tiny model", my_training, {"losses apart": nearest(off, (1e-6, 1e-4, 1e-2)),
                                     "steps that look right without D": next((n for n, x in enumerate(apart) if x > 0.2), len(apart))})
figures.curves({name: dict(enumerate(values)) for name, values in losses.items()}, "“D left out” looks right for many steps, and then turns round",
               f"Measured here: {len(rhyme)} characters, 2 layers, float32, AdamW, 4 windows of 64 a step.", "step", "loss (nats a character)",
               ylim=(0, None))

# %% [markdown]
# **Compare.** The same curve, though not the same bits: two correct implementations round differently, and training carries the difference along. The planted mistake is the warning. Its loss falls like the others', for dozens of steps; nothing raises; then it turns round, and without a second curve beside it you would blame the learning rate. Gradients are checked against float64, not by whether a loss falls.
#
# What the model has learned, with the likeliest letter at each step:

# %%
written = letters[:9].tolist()
with torch.no_grad():
    for _ in range(110):
        logits = models["flash_attention"](torch.tensor(written[-WINDOW:], device=device)[None])
        written.append(int(logits[0, -1].argmax()))
print("".join(alphabet[c] for c in written))

# %% [markdown]
# **Change this and run again.** `dropout_p=0.1` in `flash` (on a CPU only the Triton backend has it, so take few steps), or leave $\tau$ out of $dK$ instead of $D$ out of $dS$. Without a seed the operator draws one from PyTorch's generator, so `torch.manual_seed` makes a run with dropout repeatable. On a GPU the fastest kernels add $dQ$ up in any order (chapter 12), so ask for `deterministic=True` as well:

# %%
results = []
for _ in range(2):
    torch.manual_seed(3)
    Q, K, V = (torch.randn(1, h, 20, 16, device=device, requires_grad=True) for h in (2, 1, 1))
    O = flash(Q, K, V, dropout_p=0.1, backend="triton", deterministic=True)
    O.square().mean().backward()
    results.append([O, Q.grad, K.grad, V.grad])
print("same bits after the same torch.manual_seed:", all(torch.equal(a, b) for a, b in zip(*results, strict=True)))

# %% [markdown]
# **Takeaway.** It trains, as SDPA does. A falling loss proves nothing about a gradient.

# %% [markdown]
# ## What the compiler makes of it
#
# `dkdv` holds two sums of $B_c \times d$ in float32 beside $P^\top$ and $dP^\top$: far more than the forward. A thread has 255 registers at most; what does not fit *spills* to memory. **Predict** for each of these tiles ($B_r \times B_c$) whether `dkdv` spills on an H100 at $d = 128$.

# %%
my_spills = {"64 × 128, 8 warps": None, "32 × 128, 4 warps": None, "128 × 128, 8 warps": None}     # True or False

# %%
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all

X = torch.empty(1, 16, 4096, 128, dtype=torch.bfloat16, device="meta")
_, dkdv, dq = kernels.launch(X, X, X, X, X, torch.empty(1, 16, 4096, device="meta"), None, X, X, X, causal=True, scale=128**-0.5)
choices = [(dkdv, 64, 128, 8), (dkdv, 32, 128, 4), (dkdv, 128, 128, 8), (dq, 128, 64, 8)]
jobs = [(kernel, given | {"B_r": B_r, "B_c": B_c, "num_warps": warps}, 90) for (kernel, _, given), B_r, B_c, warps in choices]
rows = []
for ((kernel, *_), B_r, B_c, warps), gpu in zip(choices, compile_all(jobs), strict=True):
    rows.append({"name": f"{kernel.fn.__name__.removesuffix('_kernel')} {B_r} × {B_c}, {warps} warps", "registers": gpu.registers,
                 "spills": gpu.spills, "shared": gpu.shared_bytes, "limit": SHARED_LIMIT[90]})
_ = compare("tiles that spill", my_spills, {row["name"].removeprefix("dkdv "): bool(row["spills"]) for row in rows[:3]})
figures.compiled_kernels(rows)

# %% [markdown]
# **Takeaway.** Registers set the tile size of a backward kernel, long before shared memory does.

# %% [markdown]
# ## On a GPU
#
# The backward counts 2.5 times the forward's operations, five products for two; what the second pass computes again does not count. So 7 products at a matmul's speed would show as five sevenths of the dashed line. **Predict** how many times the TFLOP/s of PyTorch's own FlashAttention-2 (SDPA flash) these kernels reach on an H200, at $d = 128$, $N = 4096$, causal.

# %%
my_ratio = None

# %%
from flashlab_course.bench import load_results, where

recorded = load_results("backward_h200")
at = {row["implementation"]: row for row in recorded["rows"] if (row["d"], row["N"], row["causal"]) == (128, 4096, True)}
ratio = at["sdpa_flash"]["ms"] / at["fa2_triton_backward"]["ms"]
print(f"recorded on {where(recorded)}: {ratio:.2f} times SDPA flash")
_ = compare("backward kernel against SDPA flash", my_ratio, ratio, "times")
figures.benchmark(recorded, "tflops", causal=True, focus="fa2_triton_backward")

# %%
figures.benchmark(recorded, "peak_bytes", causal=True, focus="fa2_triton_backward")

# %% [markdown]
# **Compare.** Memory, forward and backward together, is where it all began: naive attention's doubles with every doubling of $N$ at the same number of tokens, the kernel's does not move. cuDNN's kernel is faster still, and so is the last one of chapter 12, which is about where such factors come from.
#
# **Takeaway.** Three plain kernels, exact and reproducible, train at any length that fits.

# %% [markdown]
# ## An open question
#
# Between the first step and the last, the two runs above drift apart by less than the eye can see. How fast does the difference grow, and does it ever stop? Train for 1000 steps on a GPU, or let SDPA run twice, with inputs changed in the last bit. And then: how would you tell a harmless difference of rounding from a small mistake in a gradient, if all you had were two loss curves?
#
# ## Sources
#
# Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691), Algorithm 2 · Salmon, Moraes, Dror, Shaw 2011, [Parallel random numbers: as easy as 1, 2, 3](https://doi.org/10.1145/2063384.2063405) · Ainslie et al. 2023, [GQA](https://arxiv.org/abs/2305.13245) · Triton's tutorials on [fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html) and [low-memory dropout](https://triton-lang.org/main/getting-started/tutorials/04-low-memory-dropout.html) · the rhyme: "This is the House that Jack built", traditional
#
# **Next:** [12 · Making it fast](12_making_it_fast.ipynb) climbs from these kernels to those that a GPU's units like.
