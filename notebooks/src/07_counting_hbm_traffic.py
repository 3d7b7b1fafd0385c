# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 07 · Counting HBM traffic
#
# **You will be able to** write down how many bytes naive attention, FA1 and FA2 move, derive the paper's bound from that, say which tiles are too small to pay, and say where a real GPU departs from the count and why.
#
# **You need** chapters 01, 05 and 06. · **100 minutes**, 55 of them for three exercises · **runs on** CPU; the counters of the last part were recorded on an H100
#
# Papers give growth, with $M$ for the SRAM in elements:
#
# | | FLOPs | extra memory | HBM accesses |
# |---|---|---|---|
# | naive | $O(N^2 d)$ | $O(N^2)$ | $O(Nd + N^2)$ |
# | FlashAttention | $O(N^2 d)$ | $O(N)$ | $O(N^2 d^2/M)$ |
#
# That hides constants, tails and masks. First we count every byte; then we derive the last entry of this table ourselves.

# %%
import math

import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost
from flashlab_course import figures, sweeps
from flashlab_course.bench import load_results, where
from flashlab_course.check import check
from flashlab.ladder import RUNGS
from flashlab_course.lesson import compare, reveal, yours
from flashlab.memory import KiB, Memory
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward

_ = torch.manual_seed(0)

# %% [markdown]
# ## Three formulas
#
# Elements read and written, forward, no mask, for any sizes. A query block has at most $B_r$ rows, a key block at most $B_c$; there are $T_r = \lceil N_q/B_r \rceil$ and $T_c = \lceil N_k/B_c \rceil$ of them. The checker holds your formula against what the memory model counts.
#
# **Your turn: naive** ([exercises/ex07_traffic_naive.py](../exercises/ex07_traffic_naive.py), 15 minutes). Five operations, each a kernel of its own.

# %%
check("ex07_traffic_naive")

# %%
reveal("ex07_traffic_naive")

# %% [markdown]
# **Your turn: FA1** ([exercises/ex07_traffic_fa1.py](../exercises/ex07_traffic_fa1.py), 20 minutes). Key blocks outside; $O$, $l$ and $m$ travel. Which of the two tile sizes does not appear?

# %%
check("ex07_traffic_fa1")

# %%
reveal("ex07_traffic_fa1")

# %% [markdown]
# **Your turn: FA2** ([exercises/ex07_traffic_fa2.py](../exercises/ex07_traffic_fa2.py), 20 minutes). Query blocks outside; $K$ and $V$ are read by each of them.

# %%
check("ex07_traffic_fa2")

# %%
reveal("ex07_traffic_fa2")

# %% [markdown]
# *(Spoils the exercises above.)* In elements:
#
# | | read | written |
# |---|---|---|
# | naive | $(N_q+N_k)d + 4N_qN_k + N_kd_v$ | $3N_qN_k + N_q(d_v+1)$ |
# | FA1 | $N_k(d+d_v) + T_cN_q(d+d_v+2)$ | $(T_c+1)N_q(d_v+2) + N_q$ |
# | FA2 | $N_qd + T_rN_k(d+d_v)$ | $N_q(d_v+1)$ |
#
# The promise is modelled = formula. Ten random shapes with ragged tails, every rung, causal or not; not nearly equal, but equal to the byte.

# %%
g = torch.Generator().manual_seed(1)
agree = 0
for _ in range(10):
    N_q, N_k, d, d_v, B_r, B_c = (int(torch.randint(1, top, (), generator=g)) for top in (150, 150, 64, 64, 50, 50))
    Q, K, V = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    for f, sizes in ((naive_forward, {}), (fa1_forward, dict(B_r=B_r, B_c=B_c)), (fa2_forward, dict(B_r=B_r, B_c=B_c))):
        for causal in (False, True):
            with Memory() as mem:
                f(Q, K, V, causal=causal, **sizes)
            formula = getattr(cost, f.__name__)(N_q, N_k, d, d_v, causal=causal, **sizes)
            agree += (mem.read, mem.written, mem.matmul_flops) == formula
print(f"modelled: {agree} of 60 runs agree with their formula, to the byte and to the FLOP")

# %% [markdown]
# **Predict** from the table: for the same square tile, $d_v = d = 64$ and $N$ large, FA1 moves how many times FA2's bytes?

# %%
my_factor = None

# %%
N, d, B = 65536, 64, 64
fa1_cost, fa2_cost = (f(N, N, d, B_r=B, B_c=B) for f in (cost.fa1_forward, cost.fa2_forward))
said = compare("bytes of FA1 over those of FA2", my_factor, fa1_cost.traffic / fa2_cost.traffic)

# %% [markdown]
# Only the terms with $T$ matter there: $T N (3d + 4)$ for FA1, $2\,T N d$ for FA2.
#
# **Takeaway.** FA2 moves two thirds of FA1's bytes at equal tiles: $K$ and $V$ are only read, $O$ must be read and written.
#
# ## Traffic against N
#
# $d = 64$ and tiles that fit the model's SRAM. **Predict** FA2's bytes as a share of naive attention's, for a short sequence and a longer one.

# %%
my_shares = {128: None, 1024: None}     # N: between 0 and 1, or more

# %% [markdown]
# **Run.** Dots are counted by the memory model, lines are the formulas. Both axes are logarithmic: a slope of 2 is a square. Your own FA1 and FA2 join in once they pass.

# %%
Ns = [128, 256, 512, 1024]
points = sweeps.over_N(Ns, d=64) + yours.over_N(Ns)
figures.traffic_against(points)

# %% [markdown]
# **Compare.** One of naive attention's seven crossings of $S$ is there for $L$ alone, which plain attention does not return. A fair ratio says which of the two it is: the dashed lines leave $L$ out of naive attention, though FA1 and FA2 still deliver it.

# %%
bytes_of = {(p["rung"], p["N"]): p["measured"] for p in points}
shares = {N: bytes_of["fa2_forward", N] / bytes_of["naive_forward", N] for N in (128, 1024)}
said = compare("share of naive attention's bytes", my_shares, shares)
share = lambda name, without_L=False: {N: bytes_of[name, N] / (bytes_of["naive_forward", N] - without_L * cost.logsumexp(N, N).traffic) for N in Ns}
said.on(figures.curves({name: share(name) for name in ("fa1_forward", "fa2_forward")},
                       f"FA2 moves {shares[1024]:.0%} of naive attention's bytes at N = 1024", "Modelled: counted by flashlab.memory. Dashed: no L in naive.",
                       "N (queries = keys, one head)", "share of naive attention's bytes", log="x", ylim=(0, None), ceilings={"naive": 1},
                       dashed={f"{name}, no L in naive": share(f"{name.lower()}_forward", True) for name in ("FA1", "FA2")}))

# %% [markdown]
# The shares level off: all of it is quadratic in the end. **Predict** the slope at which FA2's line in the first picture ends, far to the right.

# %%
my_slope = None

# %%
def slope(r, far=2**20):
    """From the formula: by what power of N the traffic grows, far out."""
    near, twice = (r.cost(N, N, 64, **r.tiles(64, 64)).traffic for N in (far, 2 * far))
    return math.log2(twice / near)


slopes = {r.name: slope(r) for r in RUNGS}
print(f"modelled: {len(slopes)} rungs, whose lines end with slopes from {min(slopes.values()):.3f} to {max(slopes.values()):.3f}")
said = compare("slope of FA2's line", my_slope, round(slopes["fa2_forward"], 3))

# %% [markdown]
# **Takeaway.** Exact attention still looks at every pair of tokens. FlashAttention does not remove the square; it divides it by the tile size.
#
# ## Traffic against tile size
#
# So the factor is in our hands: larger tiles, fewer trips, until the SRAM is full. The model's budget is 192 KiB, an A100 multiprocessor's L1 cache and shared memory together. A block gets less of it: at most 163 KiB on an A100; on an H100 or H200, 227 KiB.
#
# **Predict** FA2's bytes as a function of the tile size, for $N = 512$, $d = 64$ and float32.

# %%
my_bytes = None     # a function of B, for example lambda B: 4 * 512 * 64 * B

# %%
sizes = [32, 48, 64, 80, 96, 128]
points = sweeps.over_tiles(512, 64, sizes) + yours.over_tiles(512, 64, sizes)
measured = {p["B"]: p["measured"] for p in points if p["rung"] == "fa2_forward" and p["measured"]}
said = compare("FA2's bytes by tile size", my_bytes, measured, "bytes")
said.on(figures.traffic_against(points, "B"))

# %% [markdown]
# **Takeaway.** In the model, traffic falls as $1/B$ and stops at the SRAM's edge.
#
# ## When does a tile pay?
#
# Small tiles have a price: each query block reads all of $K$ and $V$. For large $N$, FA2 moves $2 N^2 d/B_r$ elements and naive attention $7 N^2$. **Predict** the height $B_r$ at which the two are equal.

# %%
my_height_64, my_height_128 = None, None     # at d = 64, at d = 128

# %% [markdown]
# **Run and compare.** Heights from 8 to 128, counted by the model; $N = 512$. Where a line crosses the dashed one, the tiles begin to pay.

# %%
points = [p for d in (64, 128) for p in sweeps.over_heights(512, d, [8, 16, 32, 64, 128], B_c=512)]
said_64 = compare("break-even height at d = 64", my_height_64, 2 * 64 / 7)
said_128 = compare("break-even height at d = 128", my_height_128, 2 * 128 / 7)
shares = {f"d = {d}": {p["B"]: p["measured"] / p["naive"] for p in points if p["d"] == d} for d in (64, 128)}
fig = figures.curves(shares, "The taller FA2's query tiles, the fewer bytes it moves", "Modelled: counted by flashlab.memory, N = 512.",
                     "height B_r of FA2's query tiles", "share of naive attention's bytes", log="xy", ceilings={"naive": 1})
said_64.on(said_128.on(fig, axis="x"), axis="x")

# %% [markdown]
# The first whole tiles that pay, from `cost`, in 16 bits and for $N = 65536$, where tails hardly count. FA2's answer is the same in 32 bits, since every term shrinks alike. FA1 carries its running $O$ in float32 and needs about 2.5 times the height (its $B_c$).

# %%
def first_that_pays(form, d, logsumexp=True, N=65536):
    naive = cost.naive_forward(N, N, d, element_size=2).traffic - (not logsumexp) * cost.logsumexp(N, N, element_size=2).traffic
    return next(B for B in range(1, 500) if form(N, N, d, B_r=B, B_c=B, element_size=2).traffic < naive)


for form in (cost.fa2_forward, cost.fa1_forward):
    found = [f"{first_that_pays(form, d)} at d = {d} ({first_that_pays(form, d, logsumexp=False)} without logsumexp)" for d in (64, 128)]
    print(f"modelled: {form.__name__} moves less than naive from {', '.join(found)}")

# %% [markdown]
# A tile of 16 rows, the smallest that tensor cores take, loses to naive attention in this count; at $d = 128$ so does one of 32. **Takeaway.** Break-even is at $B_r = 2d/7$ ($2d/6$ if naive attention leaves out $L$): the larger the head, the taller the tile has to be.
#
# ## From the tile to the paper's bound
#
# Now the entry $N^2d^2/M$ of the table, in three steps of your own. **Step 1: the tile.** Four strips of $B$ rows and $d$ columns, $Q_i$, $K_j$, $V_j$, $O_i$, have to fit into $M$ elements; leave $S_{ij}$ out for now. How large may $B$ be?

# %%
my_tile = None     # a function of M, the SRAM in elements, at d = 128; for example lambda M: M / 2

# %%
N, d = 1024, 128
srams = [n * KiB for n in (192, 384, 768, 1536)]
said = compare("tile from four strips", my_tile, {sram // 4: sram / 4 / (4 * d) for sram in srams})

# %% [markdown]
# **Step 2: the traffic.** FA2 reads $K$ and $V$ once for each of the $N/B$ query blocks. Put step 1's $B$ into that term, all in bytes of float32: `sram` bytes are $M$ = `sram / 4` elements, and each element moved is 4 bytes.

# %%
my_traffic = None     # a function of the SRAM in bytes, for example lambda sram: 4 * N * d * sram

# %% [markdown]
# **Step 3: the condition.** Forget constants: $N^2d^2/M$ against naive attention's $N^2$. How many bytes of SRAM does it take at least, at $d = 128$ in float32, for FlashAttention's entry to be the smaller one?

# %%
my_least_sram = None     # bytes

# %% [markdown]
# **Run and compare.** Each rung with its default tiles, at $N = 1024$ and four sizes of SRAM; your traffic and your limit join in.

# %%
points = [p for sram in srams for p in sweeps.over_N([N], d=d, sram_bytes=sram)]
said_traffic = compare("K and V's bytes by SRAM", my_traffic, {sram: 4 * 2 * N * N * d / (sram / 4 / (4 * d)) for sram in srams}, "bytes")
said_least = compare("least SRAM for the bound to pay", my_least_sram, 4 * d * d, "bytes")
fig = figures.traffic_against(points, "sram_bytes", walls={"M = d²": 4 * d * d, "M = Nd": 4 * N * d})
said_least.on(said_traffic.on(fig), axis="x")

# %% [markdown]
# *(Spoils the three steps.)* $B = M/4d$ gives
#
# $$2\,d\,\frac{N^2}{B} = 8\,\frac{N^2d^2}{M} = \Theta\!\left(\frac{N^2d^2}{M}\right),$$
#
# and with $3d + 4$ in place of $2d$ the same for FA1: about $12\,N^2d^2/M$. It is smaller than $N^2$, up to constants, if and only if $d^2 < M$: a head's columns, squared, must fit. Our default tiles leave room for $S_{ij}$, $P_{ij}$ and results in the making, so their dots lie higher than $8N^2d^2/M$; but the slope is that of $1/M$, until $M$ nears $Nd$, where $Q$ and $O$, which cross once whatever $M$ is, begin to show. (At 192 KiB our tiles have 32 rows, less than the break-even height of 37: FA2's first dot is above naive.)
#
# Constants decide in practice. How much SRAM must a program have for four strips alone to beat naive attention, in 16 bits?

# %%
for crossings, which in ((7, "with logsumexp"), (6, "without")):
    needs = ", ".join(f"{2 * 8 * d * d / crossings / KiB:.0f} KiB at d = {d}" for d in (64, 128, 256))
    print(f"modelled: 8 N²d²/M < {crossings} N², naive {which}: {needs}")

# %% [markdown]
# At $d = 256$ that is 146 of the 163 KiB that a block gets on an A100, or more than it gets where naive attention leaves out $L$; and $S_{ij}$ is not even in it. **Takeaway.** $d^2 < M$ is why FlashAttention works for heads of 64 or 128, and why larger ones are hard.
#
# ## Could anything move less?
#
# The paper's Proposition 3 is a lower bound. Let $d \le M \le Nd$. Then no algorithm computes exact attention with $o(N^2d^2/M)$ HBM accesses *for all* $M$ in the range $[d, Nd]$. The proof looks at one end: at $M = \Theta(Nd)$ the bound says $\Theta(Nd)$, and so much have inputs and output.
#
# Mind the *for all*. Suppose someone has an algorithm of $N^2d/\sqrt M$ accesses. **Predict**: does the proposition rule it out?

# %%
my_ruled_out = None     # True or False

# %% [markdown]
# **Run and compare.** What it would move, as a multiple of $N^2d^2/M$, from one end of the range to the other.

# %%
N, d = 4096, 64
ratios = {M: (N * N * d / math.sqrt(M)) / (N * N * d * d / M) for M in (d, d * d // 16, d * d, N * d)}
print("multiples of N²d²/M:", ", ".join(f"{ratio:.3g} at M = {M}" for M, ratio in ratios.items()))
said = compare("ruled out by Proposition 3", my_ruled_out, all(ratio < 1 for ratio in ratios.values()))

# %% [markdown]
# It moves less where $M < d^2$ and more above: not less for all $M$, so the proposition allows it. And it exists: [Saha and Ye 2024](https://arxiv.org/abs/2402.07443) close the gap. For $M \ge d^2$, nothing beats $N^2d^2/M$ by more than a constant; for $M < d^2$, there is a better algorithm than FlashAttention.
#
# **Takeaway.** Where FlashAttention pays, it is optimal up to a constant; the condition is the same $d^2 < M$.
#
# ## FLOPs per byte
#
# A GPU that computes $F$ FLOP/s and moves $W$ byte/s is kept busy only above $F/W$ FLOPs per byte: 208 for an A100 with 312 TFLOP/s in 16 bits and 1.5 TB/s. **Predict** for FA2 in 16 bits, $N = 8192$, $d = 128$: its FLOPs per byte with tiles of 128, and the tile height that reaches 208.

# %%
my_intensity, my_height = None, None

# %%
N, d, need = 8192, 128, 312 / 1.5
naive, fa2 = cost.naive_forward(N, N, d, element_size=2), {B: cost.fa2_forward(N, N, d, B_r=B, B_c=B, element_size=2) for B in range(16, 400)}
rows = {"naive": ("naive_forward", naive.traffic), "naive without L": ("naive_forward", naive.traffic - cost.logsumexp(N, N, element_size=2).traffic),
        **{f"tiles of {B}": ("fa2_forward", fa2[B].traffic) for B in (16, 32, 64, 128)}}
reached = fa2[128].matmul_flops / fa2[128].traffic
print(f"modelled: tiles of 128 reach {reached:.0f} FLOPs a byte, {reached / need:.0%} of what an A100 asks for")
said = compare("FLOPs a byte with tiles of 128", my_intensity, reached)
_ = compare("height that feeds an A100", my_height, next(B for B, c in fa2.items() if c.matmul_flops / c.traffic >= need))
said.on(figures.roofline([{"op": op, "rung": rung, "flops": naive.matmul_flops, "bytes": moved} for op, (rung, moved) in rows.items()],
                         1.5, 312, "Modelled for an A100, d = 128, N = 8192, 16 bits."), axis="x")

# %% [markdown]
# Naive attention stays at one number however long the sequence is. FA2's is about its $B_r$: with tiles of 16 or 32 it is *worse* than naive attention, which reads each $K$ only once. Tiles of 128 are still short of what an A100 asks for, by the model's count. Yet real kernels with such tiles keep tensor cores busy. Something must serve their loads.
#
# **Takeaway.** The taller the query tile, the more each loaded key is reused.
#
# ## Model and hardware
#
# That something is the L2 cache. The model has none: each load is charged to HBM. An H100 has 50 MB, and its counters tell what really crossed. For $N = 16384$, 16 heads, $d = 64$, bfloat16, the model says:

# %%
counters = load_results("counters_h100")
rows = {r["implementation"]: r for r in counters["rows"] if r["N"] == 16384}
naive, fused = rows["naive_forward"], rows["fa2_triton_forward"]
size = {"element_size": 2}
asked = {"naive": 16 * cost.naive_forward(16384, 16384, 64, **size).traffic,
         "kernel": 16 * cost.fa2_forward(16384, 16384, 64, B_r=fused["B_r"], B_c=fused["B_c"], **size).traffic}
print("modelled:", ", ".join(f"{name} {moved / 1e9:.1f} GB" for name, moved in asked.items()))

# %% [markdown]
# **Predict** what DRAM moved: more than that, or less, and how much?

# %%
my_dram = {"naive": None, "kernel": None}     # bytes, for example 2e9

# %%
dram = {name: row["dram_read"] + row["dram_written"] for name, row in (("naive", naive), ("kernel", fused))}
fig = figures.model_vs_counters(counters)
mine = my_dram if isinstance(my_dram, dict) else dict.fromkeys(dram, my_dram)
for n, name in enumerate(dram):
    fig = compare(f"DRAM bytes, {name}", mine.get(name), dram[name], "bytes").on(fig, x=16384, ax=n)
fig

# %% [markdown]
# Naive attention moves more than the model says, the fused kernel far less. First naive: which of its five operations moves more than it should? In the model `logsumexp` reads $S$ once. **Predict** how often $S$ crosses DRAM in PyTorch's `logsumexp`, reads and writes together.

# %%
my_crossings = None

# %%
WORDS = {"nvjet": "QKᵀ and PV (model: 2)", "MulFunct": "scale (model: 2)", "SoftMax": "softmax (model: 2)"}
S_bytes, crossings = 2 * naive["H"] * 16384**2, {}
for k in naive["kernels"]:
    op = next((op for word, op in WORDS.items() if word in k["name"]), "logsumexp (model: 1)")
    crossings[op] = crossings.get(op, 0) + (k["dram_read"] + k["dram_written"]) / S_bytes
said = compare("crossings of S in logsumexp", my_crossings, crossings["logsumexp (model: 1)"])
said.on(figures.bars(crossings, f"{crossings['logsumexp (model: 1)']:.1f} of {sum(crossings.values()):.1f} crossings of S are logsumexp's",
                     f"Recorded on {where(counters)}.", "times that S crosses DRAM", worse=["logsumexp (model: 1)"]), axis="x")

# %% [markdown]
# Maximum, subtract, exp, sum: four reads and two writes, where the model has one kernel and one read. So half of what naive attention moves on this GPU is there for $L$; keep that in mind when someone, chapter 16 say, divides by naive attention's time. Now the kernel:

# %%
QKV_bytes = 3 * 2 * fused["H"] * 16384 * fused["d"]
print(f"recorded on {where(counters)}")
print(f"the kernel reads Q, K, V from DRAM {fused['dram_read'] / QKV_bytes:.2f} times each")
print(f"L2 moves {fused['l2_bytes'] / asked['kernel']:.0%} of the bytes the model says the kernel asks for")

# %% [markdown]
# Each input leaves DRAM once. The query blocks of a head run at about the same time and want the same $K_j$, $V_j$: the first brings them into L2, the others find them there. L2 itself moves nearly all that the programs ask for; some requests are joined or served before it, and these counters do not say where. They also start with empty caches and miss what of $O$ is still in L2 at the end: read the kernel's bytes as slightly too few.
#
# **Takeaway.** The model counts what a program asks for; caches decide how much of it reaches DRAM. Tiles decide both.
#
# ## An open question
#
# Our count of naive attention is generous: it lets $QK^\top$ read each input once, as if the product had all the SRAM it wants. In $M$ elements, a product by square tiles moves about $2N^2d/\sqrt{M}$ (chapter 04; `cost.block_matmul` counts it exactly). How many bytes does naive attention move if both of its products must live in the SRAM that FA2 gets? Is there still a height below which FA2 loses, and what happens for $M < d^2$? Saha and Ye's algorithm is not far from here. There is no check for this one.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Theorem 2 and Proposition 3, proofs in appendix C · Saha and Ye 2024, [The I/O Complexity of Attention, or How Optimal is FlashAttention?](https://arxiv.org/abs/2402.07443) · NVIDIA A100 data sheet (312 TFLOP/s, 1.5 TB/s), [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/) for a block's shared memory · [Nsight Compute](https://docs.nvidia.com/nsight-compute/) for the counters.
#
# **Next:** [08 · The backward pass](08_backward.ipynb) does to the gradients what chapters 05 and 06 did to the output.
