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
# **You will be able to** count the bytes that naive attention, FA1 and FA2 move, say which tiles are too small to pay, and explain why a real GPU moves fewer.
#
# **You need** chapters 01, 05 and 06 · **further:** sitting 1, 35 minutes, and sitting 2, 40 minutes · **runs on** CPU; the counters of sitting 2 were recorded on an H100
#
# Papers say how the traffic grows; $M$ is the size of the SRAM in elements:
#
# | | FLOPs | extra memory | HBM accesses |
# |---|---|---|---|
# | naive | $O(N^2 d)$ | $O(N^2)$ | $O(Nd + N^2)$ |
# | FlashAttention | $O(N^2 d)$ | $O(N)$ | $O(N^2 d^2/M)$ |
#
# First you watch the bytes, then you count every one of them, constants included. In the end you derive the last entry.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab import cost
from flashlab.memory import KiB
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab_course import figures, sweeps
from flashlab_course.bench import load_results
from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal, yours
from flashlab_course.player import play_traffic, record

_ = torch.manual_seed(0)

# %% [markdown]
# ## Sitting 1 (further) · Watch, then count
#
# ### Watch the traffic fill up
#
# A dashed box is as long as its tensor. A bar is as long as the bytes moved so far, so a bar of two boxes has crossed HBM twice. There are four query blocks and four key blocks.
#
# Play it and look for two things. In FA1, which tensors are read four times? In FA2, which ones?

# %%
N, d, B = 16, 4, 4
X, S, x = 4 * N * d, 4 * N * N, 4 * N                     # the bytes of Q, of S, and of l
of_naive = {"Q": (X, 0), "K": (X, 0), "V": (X, 0), "S": (S, S), "P": (S, S), "O": (0, X)}
of_fa1 = {"Q": (X, 0), "K": (X, 0), "V": (X, 0), "O": (X, X), "l": (x, x), "m": (x, x), "L": (0, x)}
of_fa2 = {"Q": (X, 0), "K": (X, 0), "V": (X, 0), "O": (0, X), "L": (0, x)}

q, k, v = (torch.randn(N, d) for _ in range(3))
toy = {"B_r": B, "B_c": B, "sram_bytes": 1024}
play_traffic((record(naive_forward, q, k, v), of_naive), (record(fa1_forward, q, k, v, **toy), of_fa1),
             (record(fa2_forward, q, k, v, **toy), of_fa2))

# %% [markdown]
# <details><summary><b>Why?</b> (after you have played it)</summary>
#
# FA1 loads $Q$, $O$, $l$ and $m$ once for each key block. FA2 loads $K$ and $V$ once for each query block. Neither moves $S$ or $P$.
#
# </details>
#
# ### Count every byte
#
# Count the elements that one head reads and writes in the forward pass, without a mask. There are $T_r = \lceil N_q/B_r \rceil$ query blocks and $T_c = \lceil N_k/B_c \rceil$ key blocks. The checker compares your formula with the memory model.
#
# **Your turn: naive** ([exercises/ex07_traffic_naive.py](../exercises/ex07_traffic_naive.py), 10 minutes). Four operations, each a kernel of its own.

# %%
check("ex07_traffic_naive")

# %%
reveal("ex07_traffic_naive")

# %% [markdown]
# **Your turn: FA1** ([exercises/ex07_traffic_fa1.py](../exercises/ex07_traffic_fa1.py), 15 minutes). The outer loop walks the key blocks. Every step loads and stores $O_i$, $l_i$ and $m_i$.

# %%
check("ex07_traffic_fa1")

# %%
reveal("ex07_traffic_fa1")

# %% [markdown]
# **Takeaway.** FA1 moves no $N \times N$ matrix, but each of its key blocks moves all of $Q$ and $O$.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (further) · Which tiles pay, and what a GPU moves
#
# ### Count FA2's bytes
#
# **Your turn: FA2** ([exercises/ex07_traffic_fa2.py](../exercises/ex07_traffic_fa2.py), 10 minutes). The outer loop walks the query blocks. Each of them reads all of $K$ and $V$.

# %%
check("ex07_traffic_fa2")

# %%
reveal("ex07_traffic_fa2")

# %% [markdown]
# ### Traffic against N
#
# For large $N$ only the terms with $N^2$ count. **Predict** FA2's bytes as a share of naive attention's, with $d = 64$ and $B_r = 64$.

# %%
my_share = None     # 1 for equally many

# %% [markdown]
# **Run and compare.** In the picture the tiles fill the model's SRAM. Your own FA1 and FA2 join in once they pass.

# %%
fa2_cost, naive_cost = cost.fa2_forward(65536, 65536, 64, B_r=64, B_c=64), cost.naive_forward(65536, 65536, 64)
said = compare("FA2's share of naive attention's bytes", my_share, fa2_cost.traffic / naive_cost.traffic)
Ns = [128, 256, 512, 1024]
figures.traffic_against(sweeps.over_N(Ns, d=64) + yours.over_N(Ns))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# FA2 reads $K$ and $V$ for each of the $N/B_r$ query blocks: $2N^2d/B_r = 2N^2$ elements. Naive attention moves $S$ four times and $P$ twice: $6N^2$ elements.
#
# </details>
#
# **Takeaway.** FlashAttention's traffic is quadratic, too, but divided by the tile size.
#
# ### Which tiles pay?
#
# Every query block reads all of $K$ and $V$: $2N^2d/B_r$ elements, against naive attention's $6N^2$. **Predict** the height $B_r$ at which both are equal.

# %%
my_heights = {64: None, 128: None}     # by d

# %% [markdown]
# **Run and compare.** A tile pays where its line is below the dashed one.

# %%
def break_even(d, N=65536):
    naive = cost.naive_forward(N, N, d).traffic
    return next(B for B in range(1, 500) if cost.fa2_forward(N, N, d, B_r=B, B_c=B).traffic < naive)

said = compare("height at which tiles begin to pay, by d", my_heights, {64: break_even(64), 128: break_even(128)})
points = [p for d in (64, 128) for p in sweeps.over_heights(1024, d, [16, 32, 64, 128], B_c=512)]
shares = {f"d = {d}": {p["B"]: p["measured"] / p["naive"] for p in points if p["d"] == d} for d in (64, 128)}
figures.curves(shares, "The taller FA2's query tiles, the fewer bytes it moves", "Modelled: counted by flashlab.memory, N = 1024.",
               "height B_r of FA2's query tiles", "share of naive attention's bytes", log="xy", ceilings={"naive": 1})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $2d/B_r = 6$, so $B_r = d/3$. The wider the head, the taller its tiles must be.
#
# </details>
#
# ### From the tile to the paper's bound
#
# Suppose that the SRAM's $M$ elements hold four strips of $B$ rows, $Q_i$, $K_j$, $V_j$ and $O_i$, and nothing else. Then $B = M/4d$, and $K$ and $V$ cost
#
# $$2N^2\frac{d}{B} = 8\,\frac{N^2d^2}{M} = \Theta\!\left(\frac{N^2d^2}{M}\right).$$
#
# That is the last entry of the table. Up to constants it is less than $N^2$ if $d^2 < M$. **Predict** with the constants: how much SRAM does a program need at $d = 256$, in 16 bits, before $8N^2d^2/M$ is less than $6N^2$?

# %%
my_sram = None     # KiB

# %% [markdown]
# **Run and compare.** The picture has $d = 128$ and float32. Its tiles follow the rule of [chapter 05](05_flash_attention_1.ipynb) that leaves room for $S_{ij}$, too: $8Bd + 3B^2 \le M$. FA2 is below naive attention from tiles of 48 rows on.

# %%
said = compare("SRAM that a head of 256 needs", my_sram, unit="KiB")
rungs = ["naive_forward", "fa2_forward"]
room = 4 * (8 * 48 * 128 + 3 * 48**2)                     # bytes for tiles of 48 rows
sizes = 192 * KiB, room, 384 * KiB, 768 * KiB, 1536 * KiB
points_by_sram = [p for size in sizes for p in sweeps.over_N([1024], d=128, sram_bytes=size, rungs=rungs)]
walls = {"M = d²": 4 * 128**2, "48 rows": room, "M = Nd": 4 * 1024 * 128}
figures.traffic_against(points_by_sram, "sram_bytes", walls=walls)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $8d^2/M < 6$ means $M > \tfrac{4}{3}d^2$. In 16 bits:
#
# | $d$ | 64 | 128 | 256 |
# |---|---|---|---|
# | SRAM | 11 KiB | 43 KiB | 171 KiB |
#
# The last is more than a program gets on an A100 ([chapter 02](02_gpu_and_memory.ipynb)).
#
# The picture crosses later, at $M = 3.4\,d^2$. Its tiles hold more than the four strips, and they grow in steps of 16 rows: 32 rows are less than $d/3$, 48 are more. Its 219 KiB are 110 KiB in 16 bits.
#
# At $M = Nd$ the bound $N^2d^2/M$ is $Nd$, the size of the inputs. More SRAM cannot save more, because each input is read at least once.
#
# </details>
#
# **Takeaway.** FlashAttention pays if $M$ is a few times $d^2$. In 16 bits the SRAM of a GPU has room for that at $d = 64$ and $d = 128$, hardly at 256.
#
# Could anything move less? [Saha and Ye](https://arxiv.org/abs/2402.07443) proved that for $M \ge d^2$ nothing beats FlashAttention by more than a constant. For $M < d^2$ they have a better algorithm.
#
# ### FLOPs per byte
#
# An A100 computes 312 TFLOP/s in 16 bits and moves 1.5 TB/s, so its tensor cores need $312/1.5 = 208$ FLOPs for each byte. FA2 does $4N^2d$ FLOPs. **Predict** the tile height at which it reaches 208.

# %%
my_height = None

# %%
def per_byte(count):
    return count.matmul_flops / count.traffic

fa2_at = {B: cost.fa2_forward(65536, 65536, 128, B_r=B, B_c=B, element_size=2) for B in range(16, 400)}
naive_at = cost.naive_forward(65536, 65536, 128, element_size=2)
said = compare("height that feeds an A100", my_height, next(B for B in fa2_at if per_byte(fa2_at[B]) >= 208))
rows = [{"op": "naive", "rung": "naive_forward", "flops": naive_at.matmul_flops, "bytes": naive_at.traffic}]
rows += [{"op": f"tiles of {B}", "rung": "fa2_forward", "flops": fa2_at[B].matmul_flops, "bytes": fa2_at[B].traffic} for B in (16, 32, 64, 128)]
figures.roofline(rows, 1.5, 312, "Modelled for an A100, d = 128, N = 65536, 16 bits.")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# FA2 moves $2N^2d/B_r$ numbers of two bytes. So $4N^2d$ FLOPs make $B_r$ FLOPs per byte. By this count tiles of 128 rows are too short, yet real kernels keep tensor cores busy with them.
#
# </details>
#
# ### Model and hardware
#
# Real kernels do better than this count, which charges every load to HBM. A GPU serves a repeated load from its L2 cache if the data are still there; an H100's L2 has 50 MB. Take 16 heads, $N = 16384$, $d = 64$, bfloat16 and $B_r = 128$.

# %%
counters = load_results("counters_h100")
asked = {"naive": 16 * cost.naive_forward(16384, 16384, 64, element_size=2).traffic,
         "kernel": 16 * cost.fa2_forward(16384, 16384, 64, B_r=128, B_c=64, element_size=2).traffic}
print("modelled:", ", ".join(f"{name} {moved / 1e9:.1f} GB" for name, moved in asked.items()))
print(f"S takes {16 * 2 * 16384**2 / 1e9:.1f} GB; Q, K, V and O take {4 * 16 * 2 * 16384 * 64 / 1e9:.3f} GB together, a head's K and V 0.004 GB")

# %% [markdown]
# The query blocks of a head run at about the same time. **Predict** what DRAM moved.

# %%
my_dram = {"naive": None, "kernel": None}     # GB

# %%
recorded = {row["implementation"]: row["dram_read"] + row["dram_written"] for row in counters["rows"] if row["N"] == 16384}
dram = {"naive": recorded["naive_forward"] / 1e9, "kernel": recorded["fa2_triton_forward"] / 1e9}
said = compare("DRAM bytes at N = 16384", my_dram, dram, "GB")
figures.model_vs_counters(counters)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $S$ does not fit into L2, so all of its crossings reach DRAM, as the model says. A head's $K$ and $V$ fit: one query block brings $K_j$ and $V_j$ into L2, the others find them there. So $Q$, $K$, $V$ and $O$ cross DRAM once. (A part of $O$ was still in L2 at the end and is not counted.)
#
# Naive attention's line "L2" lies above its model. The model lets $QK^\top$ and $PV$ read each input once, but a real product works in tiles and reads a row again for every tile. L2 answers those loads. (The counters do not say how much each operation adds.)
#
# </details>
#
# **Takeaway.** The model counts what programs ask for. The caches decide how much of it reaches DRAM.
#
# *End of sitting 2.*
#
# ## An open question
#
# Our count lets $QK^\top$ read each input once. With square tiles in $M$ elements a product moves about $2N^2d/\sqrt{M}$ (chapter 04, `cost.block_matmul`). Is there then still a height below which FA2 loses?
#
# ## Sources
#
# Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), Theorem 2 and Proposition 3, appendix C · Saha and Ye 2024, [The I/O Complexity of Attention](https://arxiv.org/abs/2402.07443) · NVIDIA A100 data sheet (312 TFLOP/s, 1.5 TB/s) · [Nsight Compute](https://docs.nvidia.com/nsight-compute/) for the counters
#
# **Next:** [08 · The backward pass](08_backward.ipynb) does to the gradients what chapters 05 and 06 did to the output.
