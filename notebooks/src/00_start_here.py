# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 00 · Start here
#
# **You will be able to** say what FlashAttention does differently and what that gains, make one tile of scores yourself, and find your way through the course.
#
# **You need** PyTorch tensors: shapes, `@`, `softmax`. Nothing about GPUs. · **core:** one sitting, 40 minutes · **runs on** CPU or GPU
#
# Attention is three lines: $S = QK^\top/\sqrt{d}$, $P = \mathrm{softmax}(S)$, $O = PV$. FlashAttention computes the same $O$ and never stores $S$ or $P$. You will build it step by step and measure every claim.
#
# ## Sitting 1 (core) · A race, and why it ends as it does
#
# ### Watch it
#
# Two kinds of memory matter. **HBM** is the GPU's large memory, where tensors live. **SRAM** is a small, fast memory on the chip. Arithmetic happens on the chip, so every number must be loaded from HBM first. That takes time.

# %%
import flashlab  # first: it tells Triton where to run
import torch
from IPython.display import display

from flashlab.memory import Memory, SRAMOverflow, kernel, load
from flashlab.rungs.fa2 import fa2_forward
from flashlab_course import figures, sweeps
from flashlab_course.bench import load_results, where
from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal
from flashlab_course.player import play, record

# %% jupyter={"source_hidden": true}
timed, counted = load_results("forward_h100"), load_results("counters_h100")     # what was measured on a GPU
ms = {row["implementation"]: row["ms"] for row in timed["rows"] if (row["N"], row["d"], row["causal"]) == (4096, 64, False)}
ms = {name: ms[name] for name in ("naive_forward", "fa2_triton_forward", "fa2_hopper_forward")}
slow, first, last = ms.values()
GB = {row["implementation"]: (row["dram_read"] + row["dram_written"]) / 1e9 for row in counted["rows"] if row["N"] == 4096}
friend = (f"Both have the same output. With 4096 tokens on an H100, plain attention takes {slow:.1f} ms "
          f"and this course's last kernel {last:.1f} ms: FlashAttention is {slow / last:.0f} times as fast.")

def first_look(run):
    """Leave out what chapters 03 and 06 explain, and say what happens."""
    keep, run.lines = ("Q_i", "O_i", "K_j", "V_j", "S_ij", "P_ij"), []
    run.steps = [step for step in run.steps if step.moves or "S_ij" in step.chip]
    for step in run.steps:
        step.chip, step.values = ({name: its[name] for name in keep if name in its} for its in (step.chip, step.values))
        step.told = ("The scores are used. They never go to HBM." if "P_ij" in step.chip
                     else "4 queries and 4 keys make 16 scores on the chip." if "S_ij" in step.chip and not step.moves
                     else "A part of the output goes to HBM, once." if step.moves[0].kind == "store"
                     else "A tile comes from HBM.")

# %% [markdown]
# Press ▶ and watch for twenty seconds. At the left, plain (“naive”) attention moves $S$ and $P$ to HBM and back. At the right, FlashAttention-2 works on one **tile** of $S$ at a time, 4 × 4 scores that never leave the chip. One clock drives both, and it counts bytes. **Predict** how many percent of plain attention's bytes FlashAttention-2 moves: a guess will do.

# %%
my_percent = None

# %% tags=["shown"]
def naive_forward(Q, K, V):
    S = Q @ K.T / Q.shape[-1] ** 0.5
    P = torch.softmax(S, dim=-1)
    O = P @ V
    return O

torch.manual_seed(0)
toy = [torch.randn(16, 4) for _ in range(3)]           # Q, K, V: 16 queries, 16 keys, d = 4
race = [record(naive_forward, *toy, rows=4), record(fa2_forward, *toy, B_r=4, B_c=4, sram_bytes=1024)]
first_look(race[1])
display(play(*race, end=friend))
said = compare("bytes of FlashAttention-2 in the race", my_percent,
               100 * (race[1].read + race[1].written) / (race[0].read + race[0].written), "%")
figures.bars(ms, f"With 4096 tokens, {slow:.1f} ms become {last:.1f} ms",
             f"Recorded on {where(timed)}; batch 4, 32 heads, d = 64, bfloat16, no mask.", "milliseconds")

# %% [markdown]
# Here are the figures to repeat to a friend, for 4096 tokens and $d = 64$ on an H100. A **kernel** is a function that runs on the GPU.
#
# | | plain attention | first Triton kernel (chapter 10) | last kernel (chapter 12) |
# |---|---|---|---|
# | time | {{slow:.1f}} ms | {{first:.2f}} ms | {{last:.2f}} ms |
# | times as fast | 1 | {{slow / first:.0f}} | {{slow / last:.0f}} |
#
# HBM traffic was recorded for 16 heads, on {{where(counted)}}. Plain attention moves {{GB["naive_forward"]:.2f}} GB, and the first Triton kernel {{GB["fa2_triton_forward"]:.3f}} GB: {{100 * GB["fa2_triton_forward"] / GB["naive_forward"]:.1f}} %. That is a smaller share than in the toy, because tensors are larger there, and a cache serves repeated reads (chapter 02).
#
# ### Is the output the same?
#
# Some fast methods only approximate attention. Does this one? Inside `Memory`, the course's model of a GPU's memory, a function runs unchanged and each byte that it moves is counted.

# %%
with Memory() as naive_mem:
    O_naive = naive_forward(*toy)
with Memory() as flash_mem:
    O_flash, L = fa2_forward(*toy, B_r=4, B_c=4)
print(f"largest difference: {(O_flash - O_naive).abs().max():.1e}; "
      f"float32 rounds numbers near 1 to {torch.finfo(torch.float32).eps:.1e}")
for name, mem in [("naive attention", naive_mem), ("FlashAttention-2", flash_mem)]:
    print(f"{name:<16} {mem.read + mem.written:>5} bytes (modelled)")

# %% [markdown]
# **Takeaway.** FlashAttention is exact: the outputs differ only by rounding. It adds the same numbers in another order, so that fewer bytes move.
#
# ### Your first exercise: one tile
#
# A score needs one query and one key. A tile of scores therefore needs a few rows of $Q$ and a few rows of $K$, and nothing else. This is why FlashAttention can work on $S$ without ever having all of it.

# %%
figures.block_product(16, 4, 16, B_m=4, B_k=4, B_n=4, tile=(1, 2), names=("Q", "Kᵀ", "S"))

# %% [markdown]
# **Your turn** ([exercises/ex00_score_tile.py](../exercises/ex00_score_tile.py), 10 minutes). Compute one tile of scores. Open the file, replace the line that raises an error, save, and run this cell. The checker says what is wrong, or that it is right. `check("ex00_score_tile", hint=True)` gives one hint at a time.

# %%
check("ex00_score_tile")

# %% [markdown]
# Once an exercise passes, `reveal` shows our solution beside yours. Two answers may differ and both be right.

# %%
reveal("ex00_score_tile")

# %% [markdown]
# ### How large is $S$?
#
# Take one head, $N$ queries and $N$ keys, and float32 (4 bytes a number). **Predict** the bytes of $S$ as a function of $N$: replace `None` by `lambda N: ...` and run the cell.

# %%
my_bytes = None     # a function of N

# %% [markdown]
# **Run and compare.** Your function is drawn as stars. (On PyTorch's `meta` device a tensor knows its size without being allocated.)

# %%
Ns = [1024, 2048, 4096, 8192, 16384]
sizes = {N: torch.empty(N, N, device="meta").nbytes for N in Ns}
said = compare("bytes of S", my_bytes, sizes, "bytes")
said.on(figures.curves({"S": sizes, "Q": {N: 4 * N * 64 for N in Ns}}, f"At N = {Ns[-1]}, S takes {Ns[-1] // 64} times the bytes of Q",
                       "Modelled: from the shapes, d = 64.", "N", "bytes", log="xy", byte="y",
                       ceilings={"L2 cache of an A100 (published)": 40 * 2**20}))

# %% [markdown]
# **Takeaway.** $Q$ grows with $N$, $S$ with $N^2$. Sixteen times as many tokens have 256 times as many scores, in every head.
#
# ### Why not keep $S$ on the chip?
#
# Then it would not have to move. In the model, `kernel` opens one GPU program, and `load` copies rows from HBM into its SRAM of 192 KiB. Try it with 256 tokens. This cell fails on purpose.

# %%
def overflow(N):
    """Load N queries and N keys and compute their scores, all on chip. What goes wrong, or ""."""
    Q, K = (torch.zeros(N, 64) for _ in range(2))
    try:
        with Memory(), kernel("all_at_once", Q=Q, K=K):
            Q_all = load(Q, slice(0, N))
            K_all = load(K, slice(0, N))
            Q_all @ K_all.T
        return ""
    except SRAMOverflow as error:
        return str(error)

print(overflow(256))

# %% [markdown]
# The message names the operation, its result, and what else is in SRAM. **Predict** the largest number of tokens whose scores fit. $Q$ and $K$ have 64 columns of 4-byte numbers and are in SRAM, too; 192 KiB are 196,608 bytes.

# %%
my_tokens = None

# %% [markdown]
# **Run and compare.**

# %%
largest = max(N for N in range(1, 257) if not overflow(N))
said = compare("tokens whose scores fit into SRAM", my_tokens, largest)
print(overflow(largest + 1))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# $Q$ and $K$ have $2 \cdot 64 N$ numbers, $S$ has $N^2$: $4\,(N^2 + 128 N) \le 196{,}608$, so $N \le$ {{largest}}.
#
# </details>
#
# **Takeaway.** It takes too long to move $S$ to HBM and back, and SRAM is too small to hold it. So FlashAttention makes $S$ tile by tile and uses each tile at once. But softmax needs whole rows. How can this work? The answer is the idea of this course.
#
# ### Where this leads
#
# Here are naive attention and two versions of FlashAttention for growing $N$. The memory model counted each dot; the dashed lines are formulas.

# %%
figures.traffic_against(sweeps.over_N([128, 256, 512, 1024], d=64))

# %% [markdown]
# **Takeaway.** Chapters 01 to 06 take you from the top line to the bottom line. Chapter 10 makes it a GPU kernel.
#
# ### Your machine
#
# `doctor` looks at this machine and says what to fix. A line that says `broken` names the command that repairs it: run that in a terminal, then restart the kernel. A `note` is no fault. Without a GPU every chapter still runs to its end.

# %%
from flashlab_course import doctor

print(doctor.as_text(doctor.report()))

# %% [markdown]
# ### The map
#
# Each rung computes attention and changes one idea of the rung below.
#
# The **core** is the shortest way to your own FlashAttention kernel in Triton: the sittings marked *core*, at most 45 minutes each. All other sittings go **further**. Take the chapters in order.

# %%
from IPython.display import Markdown
from flashlab_course.chapters import CHAPTERS

lines = [f"- [{c.number}]({c.number}_{c.name}.ipynb) " + f"**core, {c.core_minutes} minutes** · " * (c.core_minutes > 0)
         + c.builds + f" · *a GPU adds {c.gpu_adds}*" * bool(c.gpu_adds) for c in CHAPTERS]
display(figures.ladder())
Markdown("\n".join([*lines, f"\nThe core takes {sum(c.core_minutes for c in CHAPTERS) / 60:.1f} hours."]))

# %% [markdown]
# ### How a chapter works
#
# Each question takes four steps: **predict** (write your guess into a cell), **run**, **compare**, **takeaway**. A wrong guess teaches most. If you guess nothing, the cell asks you to, or repeats your last guess.
#
# **Exercises** come where their idea does. Save the file before you check it. `check("…")` names the mistake, and `reveal("…")` shows our solution once yours passes.
#
# Every number says where it comes from:
#
# | | |
# |---|---|
# | **modelled** | counted by the memory model: exact, and the same on every machine |
# | **measured here** | timed or allocated on this machine |
# | **recorded** | measured on a named GPU and kept in `results/` |
#
# Some cells fail on purpose. They print the error, and *Run All* still reaches the end. Each chapter closes with an open question that nobody checks.
#
# *End of sitting 1. Go on with [01 · Naive attention](01_naive_attention.ipynb).*
#
# ## To look up · Letters and words
#
# ### The letters
#
# The code uses the letters of the papers, and a letter never changes its meaning.
#
# | letter | shape | meaning |
# |---|---|---|
# | $Q$, $K$, $V$ | $(N_q, d)$, $(N_k, d)$, $(N_k, d_v)$ | queries, keys, values of one head |
# | $S = QK^\top \cdot$ `scale` | $(N_q, N_k)$ | scores; `scale` is $1/\sqrt{d}$ unless you say otherwise |
# | $P = \mathrm{softmax}(S)$ | $(N_q, N_k)$ | weights: each row sums to 1 |
# | $O = PV$ | $(N_q, d_v)$ | the output |
# | $m$, $l$, $L = m + \ln l$ | $(N_q,)$ | per row of $S$: maximum, sum of $e^{S - m}$, logsumexp |
# | $Q_i$, $K_j$, $V_j$, $S_{ij}$, $P_{ij}$, $O_i$ | **tiles** | blocks of the above: `i` walks query blocks, `j` key blocks |
# | $B_r$, $B_c$ | | rows of a query tile, rows of a key tile |
# | $T_r = \lceil N_q/B_r \rceil$, $T_c = \lceil N_k/B_c \rceil$ | | how many query tiles, key tiles |
#
# ### The words
#
# You need none of these yet: each is introduced where it is used.
#
# | word | meaning |
# |---|---|
# | arithmetic intensity | FLOPs for each byte moved: tells whether memory or arithmetic is the limit |
# | bandwidth, latency | bytes a second; the time until the first byte is there |
# | barrier | a line at which threads wait for one another |
# | block (CUDA) | threads that run on one SM and share its shared memory |
# | causal mask | hides the keys that come after a query |
# | coalesced | neighboring threads read neighboring addresses: one transfer serves them all |
# | divergence | threads of a warp disagree on a branch, and the warp takes both sides in turn |
# | eager | PyTorch's way to run: each operation is a kernel of its own |
# | FLOP, TFLOP/s | one floating-point addition or multiplication; 10¹² of them a second |
# | fused | several operations in one kernel, with nothing between them in HBM |
# | grid | all blocks or programs of a launch |
# | head | one of several attentions that a layer runs side by side |
# | HBM | the GPU's large memory: 40 GB (A100) to 180 GB (B200) |
# | kernel | a function that runs on the GPU |
# | L2 cache | memory on the chip that all SMs share: 40 MB (A100), 50 MB (H100), 126 MB (B200) |
# | logsumexp | $\ln \sum_j e^{S_j}$ of a row of scores; the backward pass needs it |
# | occupancy | how many of the warps that fit on an SM are there |
# | online softmax | softmax in one pass: maximum and sum are updated as scores arrive |
# | pointer, stride | address of a tensor's first number; the step to the next row or column |
# | program (Triton) | the work on one tile; like a block of CUDA, but written for tiles |
# | register | the fastest memory: a few numbers for each thread; 256 KiB on each SM |
# | rescale | multiply the sum so far by $e^{m_{\text{old}} - m_{\text{new}}}$ because the maximum has grown |
# | roofline | a plot of speed against arithmetic intensity, under a machine's two limits |
# | running state | $m$, $l$ and $O$ of the keys seen so far |
# | SDPA | PyTorch's `scaled_dot_product_attention` |
# | shared memory | SRAM on an SM that a block's threads fill and read themselves |
# | SM | streaming multiprocessor: one of the GPU's 100 or so processors |
# | spill | registers that did not fit and went to slower memory |
# | SRAM | fast memory on the chip; in the model, where a program keeps its tiles |
# | stage | one of several tiles in flight: the next loads while this one is computed |
# | tensor core | a unit that multiplies small matrices in one instruction |
# | thread | one run of a CUDA kernel's lines, with its own number and registers |
# | TMA | the unit of a Hopper GPU that copies tiles between HBM and shared memory |
# | warp | 32 threads that take every step together |
#
# ### An open question
#
# In the cell that overflowed, $N$ queries met $N$ keys. Suppose you may choose: many queries and few keys, or few queries and many keys, as long as everything fits. Which choice makes the most scores for each byte loaded? Does the answer change if the tile of $Q$ stays while tiles of $K$ come and go?
#
# ## Sources
#
# Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135) · Dao 2023, [FlashAttention-2](https://arxiv.org/abs/2307.08691) · NVIDIA, data sheets of the A100, H100 and B200 (sizes of HBM and L2)
#
# **Next:** [01 · Naive attention](01_naive_attention.ipynb) takes the three lines apart, operation by operation.
