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
# **You will be able to** write down how many bytes naive attention, FA1 and FA2 move, prove the formulas against measurement, and say where a real GPU departs from them and why.
#
# **You need** chapters 01, 05 and 06. · **30 minutes** · **runs on** CPU; the counters of the last part were recorded on an H100
#
# Papers give growth, with $M$ for the SRAM in elements:
#
# | | FLOPs | extra memory | HBM accesses |
# |---|---|---|---|
# | naive | $O(N^2 d)$ | $O(N^2)$ | $O(Nd + N^2)$ |
# | FlashAttention | $O(N^2 d)$ | $O(N)$ | $O(N^2 d^2/M)$ |
#
# That hides constants, tails and masks. Here every byte is counted.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost, figures, sweeps
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.memory import KiB, Memory
from flashlab.rungs.naive import naive_forward

_ = torch.manual_seed(0)

# %% [markdown]
# ## The formulas
#
# In elements, forward, no mask, with $T_r = \lceil N_q/B_r \rceil$ and $T_c = \lceil N_k/B_c \rceil$:
#
# | | read | written |
# |---|---|---|
# | naive | $(N_q+N_k)d + 4N_qN_k + N_kd_v$ | $3N_qN_k + N_q(d_v+1)$ |
# | FA1 | $N_k(d+d_v) + T_cN_q(d+d_v+2)$ | $(T_c+1)N_q(d_v+2) + N_q$ |
# | FA2 | $N_qd + T_rN_k(d+d_v)$ | $N_q(d_v+1)$ |
#
# **Predict**: which of the two fused ones moves less for the same square tile, and by what factor, when $N$ is large and $d_v = d$?

# %%
my_factor = None     # FA1's traffic / FA2's traffic

# %% [markdown]
# **Run.** First the promise: modelled = formula. Thirty random shapes with ragged tails, every rung, causal or not; not nearly equal, but equal to the byte.

# %%
g = torch.Generator().manual_seed(1)
agree = 0
for _ in range(30):
    N_q, N_k, d, d_v, B_r, B_c = (int(torch.randint(1, top, (), generator=g)) for top in (150, 150, 64, 64, 50, 50))
    Q, K, V = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    for f, sizes in ((naive_forward, {}), (fa1_forward, dict(B_r=B_r, B_c=B_c)), (fa2_forward, dict(B_r=B_r, B_c=B_c))):
        for causal in (False, True):
            with Memory() as mem:
                f(Q, K, V, causal=causal, **sizes)
            formula = getattr(cost, f.__name__)(N_q, N_k, d, d_v, causal=causal, **sizes)
            agree += (mem.read, mem.written, mem.matmul_flops) == formula
print(f"modelled: {agree} of 180 runs agree with their formula, to the byte and to the FLOP")

# %% [markdown]
# **Compare** your factor. At large $N$ only the terms with $T$ matter: FA1 moves $T N (3d + 4)$, FA2 $2 T N d$.

# %%
N, d, B = 4096, 64, 64
fa1_cost, fa2_cost = (f(N, N, d, B_r=B, B_c=B) for f in (cost.fa1_forward, cost.fa2_forward))
print(f"modelled at N = {N}: FA1 moves {fa1_cost.traffic / fa2_cost.traffic:.2f} times FA2's bytes; you said {my_factor}")

# %% [markdown]
# **Takeaway.** FA2 moves two thirds of FA1's bytes at equal tiles: a read-only $K, V$ is cheaper to revisit than an $O$ that must be read and written.
#
# ## Traffic against N
#
# Dots are counted by the memory model, lines are the formulas. Both axes are logarithmic: a slope of 2 is a square. **Predict**: naive's bytes divided by FA2's, at $N = 128$ and at $N = 2048$.

# %%
my_ratios = None, None

# %%
points = sweeps.over_N([128, 256, 512, 1024, 2048], d=64, sram_bytes=192 * KiB)
figures.traffic_against_N(points)

# %%
bytes_of = {(p["rung"], p["N"]): p["measured"] for p in points}
ratios = [f"{bytes_of['naive_forward', N] / bytes_of['fa2_forward', N]:.1f}" for N in (128, 2048)]
print("modelled: naive / FA2 at 128 and 2048:", ratios, "; you said", my_ratios)

# %% [markdown]
# **Compare.** All three lines end with slope 2. FlashAttention does not remove the square: it divides it by the tile size, and the gap settles at a constant factor.
#
# **Takeaway.** Exact attention still looks at every pair of tokens; FlashAttention only stops sending each pair through HBM.
#
# ## Traffic against tile size
#
# The factor is in our hands: larger tiles, fewer trips. Until the SRAM is full.

# %%
points = sweeps.over_tiles(512, 64, [16, 32, 48, 64, 80, 96, 128], sram_bytes=192 * KiB)
figures.traffic_against_tile(points)

# %% [markdown]
# **Takeaway.** In the model, traffic falls as $1/B$ and stops at the SRAM's edge.
#
# ## What more SRAM buys
#
# The paper's bound is $\Theta(N^2 d^2/M)$. **Predict**: with four times the SRAM, by what factor does FA2's traffic fall?

# %%
my_fall = None

# %%
N, d = 1024, 128
Q, K, V = (torch.randn(N, d) for _ in range(3))
for sram in (192, 384, 768, 1536, 3072):
    with Memory(sram_bytes=sram * KiB) as mem:
        fa2_forward(Q, K, V)
    traffic = mem.read + mem.written
    print(f"modelled: M = {sram:5} KiB, traffic {traffic / 2**20:6.1f} MiB, traffic x M = {traffic * sram / 2**20:7.0f}, "
          f"SRAM peak {mem.sram_peak / mem.sram_bytes:.0%}")
print("you said:", my_fall)

# %% [markdown]
# **Compare.** Were $N^2d^2/M$ the whole story, the product in the third column would be constant. It creeps up because $Q$ and $O$ cross once whatever $M$ is, and $S_{ij}$, $P_{ij}$ take a growing share of the room. $T_r$ is a whole number, hence the jumps. And the theorem speaks of $d \le M \le Nd$ only, here up to 512 KiB.
#
# **Takeaway.** The bound describes growth within its range; the formula with $T_r$ is right everywhere.
#
# ## FLOPs per byte
#
# A GPU that computes $F$ FLOP/s and moves $W$ byte/s is kept busy only above $F/W$ FLOPs per byte. An A100 with 312 TFLOP/s in 16 bits and 1.5 TB/s needs about 200. Who reaches it?

# %%
N, d = 8192, 128
for name, c in [("naive", cost.naive_forward(N, N, d, element_size=2)),
                *((f"FA2, tiles of {B}", cost.fa2_forward(N, N, d, B_r=B, B_c=B, element_size=2)) for B in (16, 32, 64, 128))]:
    print(f"modelled: {name:<17} {c.matmul_flops / c.traffic:6.0f} FLOPs per byte of HBM")

# %% [markdown]
# **Compare.** Naive stays at one number however long the sequence is. FA2's is about its $B_r$: with tiles of 16 it is *worse* than naive, which at least reads each $K$ only once; with tiles of 128 it comes near what an A100 asks for.
#
# **Takeaway.** Tiles pay through their height: each key that arrives serves $B_r$ queries.
#
# ## Model and hardware
#
# The model has no L2 cache: each load is charged to HBM. A GPU has one, 50 MB on an H100, and its counters tell what really crossed. **Predict**: does an H100 read more or fewer bytes from DRAM than the model says?

# %%
my_more_or_fewer = None     # "more" or "fewer", for naive and for the fused kernel

# %%
from flashlab.bench import load_results, where

counters = load_results("counters_h100")
figures.model_vs_counters(counters)

# %% [markdown]
# **Compare.** Naive attention moves more than the model says, the fused kernel far less. Look at each at the largest $N$, in units that mean something: how often naive touches $S$, and how often the kernel reads its inputs.

# %%
rows = {r["implementation"]: r for r in counters["rows"] if r["N"] == 16384}
naive, fused = rows["naive_forward"], rows["fa2_triton_forward"]
S_bytes, QKV_bytes = 2 * naive["H"] * 16384**2, 3 * 2 * fused["H"] * 16384 * fused["d"]
asked = fused["H"] * cost.fa2_forward(16384, 16384, 64, B_r=fused["B_r"], B_c=fused["B_c"], element_size=2).traffic
print(f"recorded on {where(counters)}")
print(f"naive reads S {naive['dram_read'] / S_bytes:.1f} times and writes it {naive['dram_written'] / S_bytes:.1f} times; model: 4 and 3")
print(f"the kernel reads Q, K, V from DRAM {fused['dram_read'] / QKV_bytes:.2f} times each")
print(f"L2 moves {fused['l2_bytes'] / asked:.0%} of the bytes the model says the kernel asks for; you said", my_more_or_fewer)

# %% [markdown]
# Seven reads and five writes: PyTorch runs `logsumexp` on a GPU as maximum, subtract, exp and sum, which touch $S$ with four reads and two writes. The model takes it for one kernel with one read. Which kernels ran, the counters name:

# %%
by_kernel = {}
for k in naive["kernels"]:
    short = next((word for word in ("softmax", "SoftMax", "reduce", "exp_kernel", "nvjet") if word in k["name"]), "other elementwise")
    read, written = by_kernel.get(short, (0, 0))
    by_kernel[short] = (read + k["dram_read"] / S_bytes, written + k["dram_written"] / S_bytes)
for short, (read, written) in by_kernel.items():
    print(f"recorded: {short:<18} reads S {read:4.2f} times, writes it {written:4.2f} times")

# %% [markdown]
# For the fused kernel each input leaves DRAM once. The query blocks of a head run at about the same time and want the same $K_j$, $V_j$: the first brings them into L2, the others find them there. L2 itself moves nearly all that the programs ask for; some requests are joined or served before it, and these counters do not say where. They also start with empty caches and miss what of $O$ is still in L2 at the end: read the kernel's bytes as slightly too few.
#
# **Takeaway.** The model counts what a program asks for; caches decide how much of it reaches DRAM. Tiles decide both.
#
# ## Your turn
#
# Three formulas, to be predicted and then held against the memory model at sizes you have not seen. Try them without looking at the table above.
#
# **Naive** ([exercises/ex07_traffic_naive.py](../exercises/ex07_traffic_naive.py), 15 minutes): five operations, each a kernel of its own.

# %%
from flashlab.check import check

check("ex07_traffic_naive")

# %% [markdown]
# **FA1** ([exercises/ex07_traffic_fa1.py](../exercises/ex07_traffic_fa1.py), 20 minutes): key blocks outside, $T_c = \lceil N_k/B_c \rceil$ of them; $O$, $l$, $m$ travel.

# %%
check("ex07_traffic_fa1")

# %% [markdown]
# **FA2** ([exercises/ex07_traffic_fa2.py](../exercises/ex07_traffic_fa2.py), 20 minutes): query blocks outside, $T_r = \lceil N_q/B_r \rceil$ of them; $K$, $V$ are read by each.

# %%
check("ex07_traffic_fa2")

# %% [markdown]
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Theorem 2 and Proposition 3 · NVIDIA A100 data sheet (312 TFLOP/s, 1.5 TB/s) · [Nsight Compute](https://docs.nvidia.com/nsight-compute/) for the counters.
#
# **Next:** [08 · The backward pass](08_backward.ipynb) does to the gradients what chapters 05 and 06 did to the output.
