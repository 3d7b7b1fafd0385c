# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 14 · Many GPUs
#
# **You will be able to** split a sequence among several GPUs and still compute exact attention; deal out a causal sequence so that all of them work equally long; and count what they send.
#
# **You need** chapters 03, 06 and 08 · **further:** sittings 1 to 3, 35 minutes each · **runs on** CPU, in four processes that the chapter starts; NVIDIA GPUs only for the recorded speeds
#
# FlashAttention never stores $S$. But at some length even $Q$, $K$ and $V$ no longer fit on one GPU, or take too long there.

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import flashlab  # first: it tells Triton where to run
import torch

from flashlab import flash_attention
from flashlab.operator import ring
from flashlab_course import bench, figures
from flashlab_course.chapters import after
from flashlab_course.check import check
from flashlab_course.gpu.schedule import Span
from flashlab_course.lesson import compare, reveal, yours
from flashlab.oracle import attention, max_error
from flashlab.rungs.online_softmax import merge

_ = torch.manual_seed(0)

# %% [markdown]
# ## Sitting 1 (further) · A ring of ranks (35 minutes)
#
# ### Too long for one
#
# **Predict**: a layer has 32 heads of $d = 128$ in bfloat16, and a million tokens, $N = 2^{20}$. How many GiB do $Q$, $K$, $V$, $O$ and the gradients of these four take together?

# %%
my_gib = None

# %%
N, H, d = 2**20, 32, 128
bytes_of_one = N * H * d * 2
print(f"Q, K, V, O, dQ, dK, dV, dO: {8 * bytes_of_one / 2**30:.0f} GiB; S alone would be {H * N * N * 2 / 2**40:.0f} TiB")
said = compare("GiB of one layer's attention at a million tokens", my_gib, 8 * bytes_of_one / 2**30, "GiB")

# %% [markdown]
# One layer fills most of an 80 GB GPU. So we split the sequence among $R$ processes with one GPU each. *Rank* $r$ keeps $n = N/R$ rows of $Q$, $K$, $V$ and $O$. But its queries must meet *all* keys.
#
# ### Two ranks, two halves of a softmax
#
# Chapter 03 merged the states of two halves of a row. `flash_attention` returns $O$, already divided, and $L$, the logarithm of the sum that it was divided by. As a state of chapter 03 this is $(O, L, 1)$: each half counts as $e^L$. **Predict**: over its own keys a query has $L = 3$, over the other rank's keys $L = 5$. What share of the final $O$ comes from its own keys?

# %%
my_own_share = None     # between 0 and 1

# %%
Q, K, V = (torch.randn(1, 2, 64, 16) for _ in range(3))
first = flash_attention(Q, K[:, :, :32], V[:, :, :32], return_lse=True)
second = flash_attention(Q, K[:, :, 32:], V[:, :, 32:], return_lse=True)
O, m, l = merge(*((O, L, torch.ones_like(L)) for O, L in (first, second)))
truth, L_truth = attention(Q, K, V)
print(f"O / l is off by {max_error(O / l[..., None], truth):.1e}, m + log l by {max_error(m + l.log(), L_truth):.1e}")
own, other = torch.tensor([3.0, 5.0]).exp()
said = compare("share of the own keys", my_own_share, (own / (own + other)).item())

# %% [markdown]
# So a rank can meet the blocks of keys in any order, and merge each result into its $O$ and $L$.
#
# **Takeaway.** $O$ and $L$ are all that must be kept of keys that are gone.
#
# ### One step of a ring
#
# The ranks form a ring. Each attends to the block of keys and values that it holds, and passes the block on to the next rank. After $R$ steps every rank has met every block.
#
# **Your turn** ([exercises/ex14_ring_step.py](../exercises/ex14_ring_step.py), 25 minutes). Write one step, for all ranks, in one process.

# %%
check("ex14_ring_step")

# %%
reveal("ex14_ring_step")

# %% [markdown]
# Blocks go from rank $r$ to rank $r + 1$, and from the last rank to rank 0. **Predict**: there are four ranks. Whose keys does rank 0 hold in step 1, after each block has been passed on once?

# %%
my_owner = None     # a rank, 0 to 3

# %% [markdown]
# **Run and compare.** The cell starts four processes, as `torchrun` would for four GPUs. They send messages with [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html).

# %%
from flashlab_course.player import play_ring

with tempfile.TemporaryDirectory() as folder:
    log = Path(folder, "ring.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "-m", "flashlab_course.ring_check", "--json", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    print(done.stderr[-2000:] if done.returncode else done.stdout.splitlines()[0])
    run = json.loads(log.read_text())
for name, verdicts in run["verdicts"].items():
    print(name, *verdicts, sep="\n    ")
calls = run["runs"]["all"][0]["calls"]
said = compare("whose keys rank 0 holds in step 1", my_owner, calls[1]["keys"][0] // (run["N"] // 4))
play_ring(run["runs"]["all"], run["N"])

# %% [markdown]
# This ring had no mask. Each rank keeps its queries, so it fills its rows of scores. Follow one block of keys: which cells does it fill, and where does it end?
#
# <details><summary><b>Why?</b> (after watching)</summary>
#
# It fills its own columns, one rank a step, and ends one rank before its owner.
#
# </details>
#
# **Takeaway.** Queries stay, keys and values travel. A rank holds one block of keys, and the next one on its way.
#
# *End of sitting 1. To continue later, run the notebook from the top.*

# %% [markdown]
# ## Sitting 2 (further) · Work for all ranks (35 minutes)
#
# ### The time between two steps
#
# A message that is sent after a step adds to its time. But computing only reads the block. So each rank *first* starts to send it and to receive the next one, *then* computes, then waits. These lines of `flashlab/operator/ring.py` do it.

# %%
source = Path(ring.__file__).read_text().splitlines()
at = next(n for n, line in enumerate(source) if "for step in range(place.world)" in line)
print("\n".join(source[at:at + 13]))

# %% [markdown]
# Say a step computes for 3 units of time, and a message takes 2. There are four steps, and a message between any two. **Predict** how long they take if each message is sent after computing, and if it is sent while computing.

# %%
my_time = {"sent after computing": None, "sent while computing": None}

# %%
def timeline(hidden, steps=4, compute=3, message=2):
    spans, now = [], 0
    for step in range(steps):
        sent = now if hidden else now + compute
        spans.append(Span("compute", str(step), now, now + compute))
        if step < steps - 1:
            spans.append(Span("copy, to the next rank", str(step), sent, sent + message))
        now = max(now + compute, sent + message if step < steps - 1 else 0)
    return spans, now


both = {"sent after computing": timeline(False), "sent while computing": timeline(True)}
compare("time of four steps of a ring", my_time, {name: end for name, (_, end) in both.items()})
figures.timelines({name: spans for name, (spans, _) in both.items()}, "compute", "one of four ranks; a message takes 2, computing 3.")

# %% [markdown]
# By this model a message costs no time if it takes no longer than a step. A step computes $4\,n^2 d\,H_q$ operations and sends $2\,n d\,H_{kv}$ elements. The cell sets the two times equal and solves for $n$. It takes 600 TFLOP/s for a GPU. NVLink's published speed between H200s is 450 GB/s in each direction.

# %%
def rows_to_hide(flops, bytes_a_second, itemsize=2, group=1):
    """Where 4 n² d H_q / flops = 2 n d H_kv itemsize / bytes_a_second; group: H_q / H_kv."""
    return flops * 2 * itemsize / (4 * bytes_a_second * group)


for name, speed in {"NVLink, 450 GB/s": 450e9, "network, 50 GB/s": 50e9}.items():
    print(f"{name}: {rows_to_hide(600e12, speed):,.0f} rows a rank, {rows_to_hide(600e12, speed, group=4):,.0f} where 32 query heads share "
          "8 key heads (modelled; twice as many where a mask leaves half the scores)")

# %% [markdown]
# Neither $d$ nor $R$ matters. Of the heads only the group $H_q / H_{kv}$ counts: all query heads compute, only key heads travel.
#
# **Takeaway.** Messages grow with $n$, work with $n^2$. The longer a rank's share, the less messages matter.
#
# ### Causal: who has nothing to do?
#
# With a causal mask a block of later keys is hidden, so a rank need not compute it. Give rank 0 the first quarter of the sequence, and rank 3 the last. A step is over when its slowest rank is done. A rank's own block is half hidden, so it takes half the time. **Predict**: how many times as fast as one GPU are the four ranks, if messages take no time?

# %%
my_speedup_in_order = None

# %%
def work_of_ranks(zigzag, R=4, n=64):
    """Scores in units of a block without a mask: [[of a rank in each step]]."""
    parts = [[ring.part(rank, step, R, n, causal=True, zigzag=zigzag) for step in range(R)] for rank in range(R)]
    rows = lambda which: which.stop - which.start
    return [[rows(p.rows) * rows(p.keys) / n**2 / (2 if p.causal else 1) if p else 0 for p in of_rank] for of_rank in parts]


slowest = sum(max(step) for step in zip(*work_of_ranks(False), strict=True))
said = compare("speed-up of four ranks in order", my_speedup_in_order, sum(map(sum, work_of_ranks(False))) / slowest, "times")
play_ring(run["runs"]["causal, in order"], run["N"])

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Rank 3 needs half a block's time for its own block and three blocks' time for the others: 3.5 together. One GPU has 16 blocks to compute, half of them hidden: 8.
#
# </details>
#
# What if each rank had a piece of the beginning and a piece of the end?
#
# **Your turn** ([exercises/ex14_zigzag.py](../exercises/ex14_zigzag.py), 20 minutes). Cut the sequence into $2R$ chunks and deal them out zig-zag. Then say which pairs of chunks a rank computes in each step.

# %%
check("ex14_zigzag")

# %%
reveal("ex14_zigzag")

# %% [markdown]
# Your answer joins in once it passes.

# %%
R = 4                                                       # change me: 8, 16
works = {"in order": work_of_ranks(False, R), "zig-zag": work_of_ranks(True, R)}
if mine := yours.answer("ex14_zigzag"):                     # once it passes
    works["yours"] = [[sum(0.125 if masked else 0.25 for *_, masked in mine(rank, step, R)) for step in range(R)] for rank in range(R)]
needed = {name: sum(max(step) for step in zip(*of_ranks, strict=True)) for name, of_ranks in works.items()}
figures.matrices({f"{name}: {needed[name]:g} blocks' time": of_ranks for name, of_ranks in works.items()},
                 "The slowest rank sets the pace: " + ", ".join(f"{R * R / 2 / time:.2g} times one GPU's speed {name}" for name, time in needed.items()),
                 f"Modelled: a causal sequence on {R} ranks, messages for free. 1 is a block of scores without a mask.", "step", "rank")

# %% [markdown]
# **Change** `R` to 8 and 16. How many times as long as zig-zag does the ring in order take, with more and more ranks?
#
# <details><summary><b>Why?</b> (after the change)</summary>
#
# In order, the last rank takes $R - \frac12$ blocks' time; with zig-zag, each takes $R/2$. The ratio is $2 - 1/R$.
#
# </details>
#
# Zig-zag needs no new mask. A rank's own two chunks are in the sequence's order, so its own block is causal as it stands. Of a lower rank's block, all its queries see the first chunk, and none sees the second. Of a higher rank's block, only the rank's own later chunk of queries sees the keys, and sees all of them. So each step is one call of `flash_attention` on slices, here in the four processes:

# %%
play_ring(run["runs"]["causal, zig-zag"], run["N"])

# %% [markdown]
# Now let the two ways race. A unit of time is half a block of scores. **Predict**: when zig-zag is done with all four steps, in which step, 0 to 3, is the ring in order?

# %%
my_step_in_order = None

# %%
def race(work):
    """The Spans in which each rank computes, in half blocks of scores: a step begins when the slowest rank is done."""
    spans, begin = [], 0
    for step, of_step in enumerate(zip(*work, strict=True)):
        spans += [Span(f"rank {rank}", str(step), begin, begin + int(2 * own)) for rank, own in enumerate(of_step) if own]
        begin += int(2 * max(of_step))
    return spans


in_order, zigzag = (race(work_of_ranks(dealt)) for dealt in (False, True))
end = max(span.end for span in zigzag)
now = next(int(span.name) for span in in_order if span.end > end)
said = compare("step of the ring in order when zig-zag is done", my_step_in_order, now)
drawn = figures.timelines({"in order": in_order, "zig-zag": zigzag}, "rank 0", "causal; a unit of time is half a block of scores; dashed: zig-zag is done.")
drawn.suptitle(f"When zig-zag is done, the ring in order is in step {now}", x=0.01, ha="left", weight="bold")
for ax in drawn.axes:
    ax.axvline(end, color="black", ls="--", lw=0.8)
drawn

# %% [markdown]
# Zig-zag has a price: position embeddings have to be dealt out in the same way, and $N$ has to be a multiple of $2R$.
#
# **Takeaway.** A ring is as fast as its slowest rank. Deal out work, not rows.
#
# *End of sitting 2.*

# %% [markdown]
# ## Sitting 3 (further) · Backwards, and on GPUs (35 minutes)
#
# ### Backwards
#
# Chapter 08 recomputes $P$ from $L$: $P_{ij} = e^{S_{ij} - L_i}$. The ring uses the *final* $L$, of all blocks. **Predict**: what do the weights of one query add up to, over all four blocks together?

# %%
my_sum = None

# %%
blocks = K.split(16, dim=2)
_, L = flash_attention(Q, K, V, return_lse=True)
shares = torch.stack([torch.exp(Q @ K_j.mT * 16**-0.5 - L[..., None]).sum(-1) for K_j in blocks])      # (4, B, H, N)
print("weights of the first query in each block:", [round(share, 3) for share in shares[:, 0, 0, 0].tolist()])
said = compare("sum of the weights over all blocks", my_sum, shares.sum(0).mean().item())

# %% [markdown]
# So the backward pass is another trip round the ring. Each step calls chapter 11's kernels on one block, with the final $O$ and $L$. $dQ$ stays with its queries. $dK$ and $dV$ travel behind their block, and every rank adds its part. One step after the last they are back with their owner. `ring_attention` sums all three in float32.
#
# ### What travels
#
# **Your turn** ([exercises/ex14_ring_traffic.py](../exercises/ex14_ring_traffic.py), 20 minutes). Count the bytes that one rank sends, forward and backward.

# %%
check("ex14_ring_traffic")

# %%
reveal("ex14_ring_traffic")

# %% [markdown]
# **Predict** how many bytes the backward pass sends for each byte of the forward pass. There are many ranks, $K$ and $V$ have 16 bits, $dK$ and $dV$ 32.

# %%
my_ratio = None

# %%
forward, backward = ring.bytes_sent(64, 4096, 8, 128, 128, 2)
said = compare("bytes backward for each byte forward", my_ratio, backward / forward, "times")
measured = run["runs"]["all"][0]["sent"]
formula = ring.bytes_sent(4, run["N"] // 4, run["H_kv"], run["d"], run["d"], 4)
print(f"rank 0 of the four processes sent {measured[0]} bytes forward, {measured[1]} backward (measured here)")
print(f"the formula says {formula[0]} and {formula[1]}: {'equal' if measured == list(formula) else 'not equal'}")
print(f"64 ranks, 16 bits: {backward / forward:.2f} bytes backward for each forward")

# %% [markdown]
# ### The other way: trade rows for heads
#
# Heads do not need one another. In **Ulysses** (Jacobs et al. 2023) the ranks trade: each sends every other rank its rows of some heads. Then each rank has *all rows of $H/R$ heads*, runs plain attention on them, and trades $O$ back. This is what a rank sends, in elements:
#
# | | |
# |---|---|
# | Ulysses | $\frac{R-1}{R}\,n\,(H_q + H_{kv})(d + d_v)$ |
# | ring | $(R-1)\,n\,H_{kv}\,(d + d_v)$ |
#
# **Predict** for eight ranks, and 32 heads of queries and of keys: how many times as much does the ring send?

# %%
my_times_ulysses = None

# %%
def ulysses(R, n, H_q, H_kv, d, d_v):
    return (R - 1) * n // R * (H_q + H_kv) * (d + d_v)


for H_kv in (32, 8):
    sent = {"ring": ring.bytes_sent(8, 4096, H_kv, 128, 128, 2)[0], "Ulysses": 2 * ulysses(8, 4096, 32, H_kv, 128, 128)}
    print(f"H_q = 32, H_kv = {H_kv}: " + ", ".join(f"{name} {count / 2**20:.0f} MiB" for name, count in sent.items()))
    if H_kv == 32:
        said = compare("the ring's bytes for each of Ulysses", my_times_ulysses, sent["ring"] / sent["Ulysses"], "times")

# %% [markdown]
# | | Ulysses | ring |
# |---|---|---|
# | merge, zig-zag | not needed | needed |
# | computing while sending | nothing | a block |
# | limit on $R$ | has to divide the heads, also those of the keys | none by the heads |
#
# USP (Fang and Zhao 2024) combines the two. `flashlab.operator.ring.ulysses_attention` is 20 lines: compare it with the ring.
#
# **Takeaway.** With many ranks Ulysses sends less. But it hides nothing, and the heads limit it.
#
# ### On GPUs
#
# Here are two H200s of one host against one of them.

# %%
recorded = bench.load_results("ring_h200")
timed = [row for row in recorded["rows"] if row["ms"] and row["runs"] >= 3]
alone = {(row["N"], row["mode"].split(",")[0], row["passes"]): row for row in timed if row["ranks"] == 1}
rings = [row for row in timed if row["ranks"] > 1 and (row["N"], row["mode"].split(",")[0], row["passes"]) in alone]
zigzagged = [row for row in rings if (row["mode"], row["passes"]) == ("causal, zig-zag", "forward")]
last = max(zigzagged, key=lambda row: (row["ranks"], row["N"]))
longest = {(row["ranks"], row["mode"]): row["peak_bytes"] / 2**30 for row in recorded["rows"]         # the rows grow with N
           if row["ms"] and row["passes"] == "forward+backward"}
in_order = max((row for row in rings if row["mode"] == "causal, in order"), key=lambda row: row["N"])
lines = figures.series([row | {"line": f"{row['mode'].replace('all', 'no mask')}, {row['passes']}"} for row in rings], "N", "speedup", of="line")
lines = {name: points for name, points in lines.items() if len(points) > 1}
figures.curves(lines, f"{last['ranks']} GPUs are {last['speedup']:.2f} times as fast as one at N = {last['N']:,}, causal, zig-zag, forward",
               f"Recorded on {bench.where(recorded)}; sizes with three runs or more, lines of two such sizes or more.", "N, rows of the whole sequence",
               "times as fast as one GPU", log="x", ceilings={f"{last['ranks']} GPUs": last["ranks"]}, ylim=(0, None))

# %% [markdown]
# Were the messages hidden? If they were, and nothing else took time, two GPUs would need half of one GPU's time. Here is the time beyond this half, in two parts: each ring was timed again without its messages, and its messages without computing.

# %%
shares = []
for row in rings:
    if (row["mode"], row["passes"]) == ("causal, zig-zag", "forward"):
        half, late = alone[row["N"], "causal", "forward"]["ms"] / row["ranks"], row["ms"] - row["compute_ms"]
        sent = ring.bytes_sent(row["ranks"], row["N"] // row["ranks"], row["H"], row["d"], row["d"], 2)[0]
        shares.append({"rows": row["N"] // row["ranks"], "beyond": 100 * (row["ms"] / half - 1), "shorter calls": 100 * (row["compute_ms"] / half - 1),
                       "messages not hidden": 100 * late / half, "hidden": row["hidden"], "GB/s": sent / row["send_ms"] / 1e6,
                       "told": row["ms_high"] - row["ms_low"] < row["send_ms"]})       # else runs differ by more than the messages take
begin, end = shares[0], shares[-1]
hidden = ", ".join(f"{share['hidden']:.0%} at {share['rows']:,} rows" for share in shares if share["told"])
speeds = [share["GB/s"] for share in shares]
figures.bars({f"{share['rows']:,} rows": {part: share[part] for part in ("shorter calls", "messages not hidden")} for share in shares},
             f"Beyond half of one GPU's time: {begin['beyond']:.0f} % at {begin['rows']:,} rows, {end['beyond']:.1f} % at {end['rows']:,}",
             f"Recorded on {bench.where(recorded)}; causal, zig-zag, forward.", "% of half of one GPU's time",
             behind=[f"{share['hidden']:.0%} of the messages' time is hidden" if share["told"] else "runs differ by more than the messages take"
                     for share in shares])

# %% [markdown]
# The model promises that all messages are hidden from {{2 * rows_to_hide(600e12, 450e9):,.0f}} rows on, with a causal mask. The record shows less of their time hidden: {{hidden}}. Alone they moved {{min(speeds):.0f}} to {{max(speeds):.0f}} GB/s. What keeps the rest in the open has not been profiled.
#
# With more rows all of this matters less:
#
# | causal, forward | rows of a rank | times as fast as one GPU |
# |---|---|---|
# | zig-zag | {{zigzagged[0]['N'] // last['ranks']:,}} | {{zigzagged[0]['speedup']:.2f}} |
# | zig-zag | {{last['N'] // last['ranks']:,}} | {{last['speedup']:.2f}} |
# | in order | {{in_order['N'] // in_order['ranks']:,}} | {{in_order['speedup']:.2f}} |
#
# Memory does not halve: forward and backward, each GPU also holds blocks on their way, and sums in float32. At $N = 262{,}144$ that was {{longest[2, 'all']:.1f}} GiB each, and {{longest[2, 'causal, zig-zag']:.1f}} with zig-zag, against {{longest[1, 'all']:.1f}} on one GPU alone.
#
# ### Gather K and V instead
#
# Ranks could also send all of $K$ and $V$ to each other first (*all-gather*). [Llama 3](https://arxiv.org/abs/2407.21783) was trained in this way (section 3.3.2). Any mask is easy then. Here are 16 ranks, 131,072 tokens, 8 key heads, $d = 128$ and 16 bits.

# %%
tokens, ranks = 131072, 16
token_bytes, shard = 8 * (128 + 128) * 2, tokens // ranks
room = {"gathered": tokens * token_bytes / 2**20, "ring": 2 * shard * token_bytes / 2**20}      # the ring: a block, and the next one
arriving = {"gathered": (tokens - shard) * token_bytes, "ring": ring.bytes_sent(ranks, shard, 8, 128, 128, 2)[0]}
for way, count in arriving.items():
    print(f"{way}: a rank receives {count / 2**20:.0f} MiB, and has to hold {room[way]:.0f} MiB (modelled)")

# %% [markdown]
# The same bytes travel. But gathering takes more room, and at first a rank has only its own keys to compute with.
#
# **Takeaway.** Gather while $K$ and $V$ of a layer fit on a GPU. Use the ring when they no longer do.
#
# ### An open question
#
# Real batches pack sequences of many lengths. A causal mask within each of them leaves few pairs of chunks to compute. How would you deal out the chunks then? Draw lengths at random, count each rank's visible pairs, and look for a rule.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Liu, Zaharia, Abbeel 2023, [Ring Attention with Blockwise Transformers](https://arxiv.org/abs/2310.01889) · Brandon et al. 2023, [Striped Attention](https://arxiv.org/abs/2311.09431) · zhuzilin, [ring-flash-attention](https://github.com/zhuzilin/ring-flash-attention), for zig-zag · Jacobs et al. 2023, [DeepSpeed Ulysses](https://arxiv.org/abs/2309.14509) · Fang and Zhao 2024, [USP](https://arxiv.org/abs/2405.07719) · NVIDIA's H200 data sheet, for NVLink
#
# **Next:** {{after("14")}}.
