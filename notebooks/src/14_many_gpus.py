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
# **You will be able to** split a sequence among several GPUs and still compute exact attention; deal out a causal sequence so that all of them work equally long; and say what they send each other, and what that costs.
#
# **You need** chapters 03, 06 and 08. · **110 minutes** in three sittings of at most 45, 65 of these minutes for three exercises; a line marks the end of each · **runs on** CPU, in four processes of its own; NVIDIA GPUs for the speed
#
# FlashAttention never stores $S$. The rest grows only with $N$, but at some length it no longer fits on one GPU, or takes too long there.

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

torch.manual_seed(0)

# %% [markdown]
# ## Too long for one
#
# **Predict**: a million tokens, $N = 2^{20}$, in one layer with 32 heads of $d = 128$, bfloat16. How many GiB do $Q$, $K$, $V$, $O$ and the gradients of these four take together?

# %%
my_gib = None

# %%
N, H, d = 2**20, 32, 128
bytes_of_one = N * H * d * 2
print(f"Q, K, V, O, dQ, dK, dV, dO: {8 * bytes_of_one / 2**30:.0f} GiB; S alone would be {H * N * N * 2 / 2**40:.0f} TiB")
said = compare("GiB of one layer's attention at a million tokens", my_gib, 8 * bytes_of_one / 2**30, "GiB")

# %% [markdown]
# One layer fills most of an 80 GB GPU. So we cut the sequence: with $R$ processes, one GPU each, *rank* $r$ keeps $n = N/R$ rows of $Q$, $K$, $V$ and $O$. But its queries have to meet *all* keys. Gathering them first would bring back the $N$ rows that did not fit.
#
# ## Two ranks, two halves of a softmax
#
# Chapter 03 merged two half-finished softmaxes. `flash_attention` returns a finished pair: $O$, already divided, and $L$, the logarithm of what it was divided by. As a state of chapter 03 that is $(O, L, 1)$. **Predict**: over its own keys a query has $L = 3$, over the other rank's $L = 5$. What share of the final $O$ comes from its own keys?

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
# Off by rounding only. $e^L$ is the sum of exponentials behind each half, so the halves count as $e^3 : e^5$, 12 to 88. Ring attention needs no more: a rank meets one block of keys after the other, in any order, and merges each result into its $O$ and $L$.
#
# **Takeaway.** $O$ and $L$ of some keys are all that has to be kept of them.

# %% [markdown]
# ## One step of a ring
#
# The ranks sit in a ring. Each attends to the block of keys and values that it holds, and passes the block on to the next rank. After $R$ steps every rank has met every block. **Your turn** ([exercises/ex14_ring_step.py](../exercises/ex14_ring_step.py), 25 minutes): one step, for all ranks, here in one process.

# %%
check("ex14_ring_step")

# %%
reveal("ex14_ring_step")

# %% [markdown]
# Blocks go from rank $r$ to rank $r + 1$. **Predict**: of four ranks, whose keys does rank 0 hold in step 1, after each block has been passed on once?

# %%
my_owner = None     # a rank, 0 to 3

# %% [markdown]
# **Run and compare.** The cell starts four processes, as `torchrun` would for four GPUs. They find one another by [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html); on a CPU its backend gloo carries the messages. Each notes which rows its calls of `flash_attention` are given, and how many bytes it sends.

# %%
with tempfile.TemporaryDirectory() as folder:
    log = Path(folder, "ring.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "-m", "flashlab_course.ring_check", "--json", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    print(done.stderr[-2000:] if done.returncode else done.stdout.splitlines()[0])
    run = json.loads(log.read_text())
for name, verdicts in run["verdicts"].items():
    print(name, *verdicts, sep="\n    ")

# %%
calls = run["runs"]["all"][0]["calls"]
said = compare("whose keys rank 0 holds in step 1", my_owner, calls[1]["keys"][0] // (run["N"] // 4))
figures.ring_parts(run["runs"]["all"], run["N"], "Measured here: four processes over gloo, no mask.")

# %% [markdown]
# Each cell is a chunk of scores, with the rank that computes it and the step. In each step a rank sends its block on and, meanwhile, computes with it; then it merges the result into its $O$ and $L$, and the next block is there. Follow rank 0: its queries meet their own keys, then those of rank 3, which came round the end of the ring, then of 2 and 1. In every step all ranks compute, each with another block, and wait only for their neighbour.
#
# **Takeaway.** Queries stay, keys and values travel; no rank holds more than one block of them, and the next one.
#
# *End of sitting 1. To continue later, run the notebook from the top.*

# %% [markdown]
# ## The time between two steps
#
# A message that is sent after a step adds its time to it. But the block is not needed until the next step, and computing only reads it. So each rank *first* asks for the next block, *then* computes, then waits. These lines of `flashlab/operator/ring.py` do it. Between GPUs NCCL carries the messages, on a CUDA stream of its own; its copies are kernels, too, and take up a few SMs.

# %%
source = Path(ring.__file__).read_text().splitlines()
at = next(n for n, line in enumerate(source) if "for step in range(place.world)" in line)
print("\n".join(source[at:at + 13]))

# %% [markdown]
# Say computing takes 3 units of time a step and a message 2. **Predict** how long four steps take if the messages are hidden, and if they are not.

# %%
my_hidden, my_not_hidden = None, None

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
compare("four steps with messages hidden", my_hidden, both["sent while computing"][1])
compare("four steps with messages in the open", my_not_hidden, both["sent after computing"][1])
figures.timelines({name: spans for name, (spans, _) in both.items()}, "compute", "one of four ranks; a message takes 2, computing 3.")

# %% [markdown]
# By this model a message is hidden if it takes no longer than a step. A step computes $4\,n^2 d\,H_q$ operations, and sends $2\,n d\,H_{kv}$ elements: one grows with $n^2$, the other with $n$. **Predict**: from how many rows $n$ on does the model hide messages between two H200s of one host, with $H_q = H_{kv}$? Take 600 TFLOP/s, and 450 GB/s in each direction, the published speed of their NVLink.

# %%
my_rows = None

# %%
def rows_to_hide(flops, bytes_a_second, itemsize=2, group=1):
    """Where 4 n² d H_q / flops = 2 n d H_kv itemsize / bytes_a_second; group: H_q / H_kv."""
    return flops * 2 * itemsize / (4 * bytes_a_second * group)


for name, speed in {"NVLink, 450 GB/s": 450e9, "network, 50 GB/s": 50e9}.items():
    print(f"{name}: {rows_to_hide(600e12, speed):,.0f} rows a rank, {rows_to_hide(600e12, speed, group=4):,.0f} where 32 query heads share "
          "8 key heads (modelled; twice as many where a mask leaves half the scores)")
said = compare("rows that hide a message over NVLink", my_rows, rows_to_hide(600e12, 450e9), "rows")

# %% [markdown]
# Neither $d$ nor $R$ matters. Of the heads only the group counts, since all query heads compute and only key heads travel. Over a network of 400 Gbit/s it takes nine times as many rows. Sequences that need many GPUs have them. Whether messages really are hidden, the last section measures.
#
# **Takeaway.** Messages grow with $n$, work with $n^2$: the longer the shards, the less messages weigh.

# %% [markdown]
# ## Causal: who has nothing to do?
#
# With a causal mask a block of later keys is hidden whole, so a rank need not compute it. Deal the sequence out in its own order, rank 0 the first quarter, rank 3 the last. **Predict**: four ranks, causal, in order. How many times as fast as one GPU can that be at best, messages for free?

# %%
my_speedup_in_order = None

# %%
figures.ring_parts(run["runs"]["causal, in order"], run["N"], "Measured here: four processes over gloo, causal, shards in order.")

# %% [markdown]
# Rank 0 is done after one step. Rank 3 has work in all four, and all ranks wait for it before the next layer. In whole blocks: $\frac12 + 3$ steps, where one GPU has $\frac{4 \cdot 4}{2} = 8$ blocks to compute. What if each rank had a piece of the beginning and a piece of the end?
#
# **Your turn** ([exercises/ex14_zigzag.py](../exercises/ex14_zigzag.py), 20 minutes): cut the sequence into $2R$ chunks, deal them out zig-zag, and say which pairs of chunks a rank computes in each step.

# %%
check("ex14_zigzag")

# %%
reveal("ex14_zigzag")

# %% [markdown]
# How much does each rank compute in each step? Once your own way to deal out the sequence passes, it joins in.

# %%
def work(zigzag, R=4, n=64):
    """Scores in units of a block without a mask: [[of a rank in each step]]."""
    parts = [[ring.part(rank, step, R, n, causal=True, zigzag=zigzag) for step in range(R)] for rank in range(R)]
    rows = lambda which: which.stop - which.start
    return [[rows(p.rows) * rows(p.keys) / n**2 / (2 if p.causal else 1) if p else 0 for p in of_rank] for of_rank in parts]


works = {"in order": work(False), "zig-zag": work(True)}
slowest = sum(max(step) for step in zip(*works["in order"], strict=True))
said = compare("speed-up of four ranks in order", my_speedup_in_order, sum(map(sum, works["in order"])) / slowest, "times")
if mine := yours.answer("ex14_zigzag"):                     # once it passes
    works["yours"] = [[sum(0.125 if masked else 0.25 for *_, masked in mine(rank, step, 4)) for step in range(4)] for rank in range(4)]
needed = {name: sum(max(step) for step in zip(*of_ranks, strict=True)) for name, of_ranks in works.items()}
figures.matrices({f"{name}: {needed[name]:g} blocks' time": of_ranks for name, of_ranks in works.items()},
                 "The slowest rank sets the pace: " + ", ".join(f"{8 / time:.2g} times one GPU's speed {name}" for name, time in needed.items()),
                 "Modelled: a causal sequence on 4 ranks, messages for free. 1 is a block of scores without a mask.", "step", "rank")

# %% [markdown]
# With zig-zag, every rank has half a block in every step. No new mask is needed: a rank's own block is causal as it stands, since its rows are still in the sequence's order. All its queries see the whole first chunk of a lower rank's block, and none sees the second. Its later queries see both chunks of a higher rank's block. So each call is `flash_attention` on slices. The four processes have done that, too:

# %%
figures.ring_parts(run["runs"]["causal, zig-zag"], run["N"], "Measured here: four processes over gloo, causal, zig-zag.")

# %% [markdown]
# Now let the two ways race, on a clock that counts scores: a step takes as long as its slowest rank. **Predict**: at the moment when zig-zag is done with all four steps, in which step, 0 to 3, is the ring in order?

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


in_order, zigzag = (race(works[name]) for name in ("in order", "zig-zag"))
now = next(int(span.name) for span in in_order if span.end > max(span.end for span in zigzag))
said = compare("step of the ring in order when zig-zag is done", my_step_in_order, now)
figures.timelines({"in order": in_order, "zig-zag": zigzag}, "rank 0", "four ranks, causal; a unit of time is half a block of scores.")

# %% [markdown]
# In the gaps ranks wait. In order, rank 0 waits for 6 of the 7 units of time, and rank 3 never. With zig-zag no rank waits, and all are done after 4.
#
# Change `R=4` in `work` above to 8 and 16. What does order cost in the limit? Zig-zag has a price, too: everything that asks for a token's *place*, as position embeddings do, has to be dealt out the same way, and a length that does not divide has to be padded. The next cell fails on purpose.

# %%
X = torch.arange(16)[:, None]
print([ring.zigzag_shard(X, rank, 4)[:, 0].tolist() for rank in range(4)])
for wrong in (lambda: ring.zigzag_shard(torch.randn(100, 8), 0, 8), lambda: ring.ring_attention(Q, K, V)):
    try:
        wrong()
    except (ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")

# %% [markdown]
# **Takeaway.** A ring is as fast as its slowest rank: deal out work, not rows.
#
# *End of sitting 2.*

# %% [markdown]
# ## Backwards
#
# Chapter 08 recomputes $P$ from $L$: $P_{ij} = e^{S_{ij} - L_i}$. Which $L$? A block's own would make each block's weights add up to 1. **Predict**: with the *final* $L$, what do the weights of one query add up to, over all four blocks together?

# %%
my_sum = None

# %%
blocks = K.split(16, dim=2)
_, L = flash_attention(Q, K, V, return_lse=True)
shares = torch.stack([torch.exp(Q @ K_j.mT * 16**-0.5 - L[..., None]).sum(-1) for K_j in blocks])      # (4, B, H, N)
print("weights of the first query in each block:", [round(share, 3) for share in shares[:, 0, 0, 0].tolist()])
said = compare("sum of the weights over all blocks", my_sum, shares.sum(0).mean().item())

# %% [markdown]
# So the backward pass is one more walk round the ring: each step calls chapter 11's kernels on one block, with the final $O$ and $L$, and needs nothing else from the forward pass. $dQ$ stays with its queries. $dK$ and $dV$ travel behind their block: every rank adds its part, and one step after the last they are back with their owner. `ring_attention` sums all three in float32; the check above included its gradients.
#
# ## What travels
#
# **Your turn** ([exercises/ex14_ring_traffic.py](../exercises/ex14_ring_traffic.py), 20 minutes): the bytes that one rank sends, forward and backward.

# %%
check("ex14_ring_traffic")

# %%
reveal("ex14_ring_traffic")

# %% [markdown]
# **Predict** how many bytes the backward pass sends for each byte of the forward pass: many ranks, 16-bit inputs.

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
# Three times: $K$ and $V$ once more, and $dK$ and $dV$ in twice the bytes. The backward pass also computes 2.5 times as much, so messages weigh only a little more than forward.
#
# ## The other way: trade rows for heads
#
# Heads do not need one another. **Ulysses** (Jacobs et al. 2023) lets every rank send each other rank its rows of some heads, all at once. Then each has *all rows of $H/R$ heads*, runs plain attention on them, and trades the result back. A rank sends all but $1/R$ of its shard of $Q$, $K$, $V$ and $O$: $\frac{R-1}{R}\,n\,(H_q + H_{kv})(d + d_v)$ elements, against the ring's $(R-1)\,n\,H_{kv}\,(d + d_v)$. **Predict**: eight ranks, 32 heads of queries and of keys. How many times as much does the ring send?

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
# Half of $R$ times, without groups. Ulysses sends less and needs neither merge nor zig-zag, since its kernel sees the whole sequence. But nothing is computed while it trades, and $R$ has to divide the heads, those of the keys as well: $H_{kv} = 8$ allows eight ranks, unless key heads are copied. The ring has no such limit, and can compute while it sends. USP (Fang and Zhao 2024) combines both. Llama 3 does neither: each rank gathers all of $K$ and $V$, which grouped heads keep small. `flashlab.operator.ring.ulysses_attention` is 20 lines; compare it with the ring's.
#
# **Takeaway.** Ulysses sends less, but computes nothing meanwhile; its limit is the number of heads. The ring's limit is the number of rows.

# %% [markdown]
# ## On GPUs
#
# Now the clock. **Predict**, for two H200s of one host, causal and zig-zag, forward: how many times as fast as one are they, at the longest sequence with three runs or more?

# %%
my_speedup = None

# %%
recorded = bench.load_results("ring_h200")
timed = [row for row in recorded["rows"] if row["ms"] and row["runs"] >= 3]
alone = {(row["N"], row["mode"].split(",")[0], row["passes"]): row for row in timed if row["ranks"] == 1}
rings = [row for row in timed if row["ranks"] > 1 and (row["N"], row["mode"].split(",")[0], row["passes"]) in alone]
zigzagged = [row for row in rings if (row["mode"], row["passes"]) == ("causal, zig-zag", "forward")]
last = max(zigzagged, key=lambda row: (row["ranks"], row["N"]))
said = compare("speed-up of the largest ring", my_speedup, last["speedup"], "times")
lines = figures.series([row | {"line": f"{row['mode'].replace('all', 'no mask')}, {row['passes']}"} for row in rings], "N", "speedup", of="line")
figures.curves(lines, f"{last['ranks']} GPUs are {last['speedup']:.2f} times as fast as one at N = {last['N']:,}, causal, zig-zag, forward",
               f"Recorded on {bench.where(recorded)}; sizes with three runs or more.", "N, rows of the whole sequence",
               "times as fast as one GPU", log="x", ceilings={f"{last['ranks']} GPUs": last["ranks"]}, ylim=(0, None))

# %% [markdown]
# Were the messages hidden? This ring was also timed computing without sending, and sending without computing. **Predict**: each rank has 16,384 rows or more, where the model asks for 1,333, or twice that if causal. How many per cent of the messages' time are hidden, at most and at least?

# %%
my_hidden_share = {"most": None, "least": None}

# %%
shares = [row | {"rows": row["N"] // row["ranks"], "line": f"{row['mode'].replace('all', 'no mask')}, {row['passes']}", "sending": 100 * row["send_ms"] / row["compute_ms"],
                 "more": 100 * (row["ms"] / row["compute_ms"] - 1),
                 "hidden": 100 * min(1, max(0, (row["compute_ms"] + row["send_ms"] - row["ms"]) / row["send_ms"]))} for row in rings]
hidden = [row["hidden"] for row in shares]
_ = compare("hidden, per cent", my_hidden_share, {"most": max(hidden), "least": min(hidden)})
figures.curves(figures.series(shares, "rows", "hidden", of="line"), f"Recorded, {min(hidden):.0f} to {max(hidden):.0f} % of the messages' time is hidden; modelled, all of it",
               f"Recorded on {bench.where(recorded)}: computing and sending, each alone, less both.", "rows of a rank", "% of their time hidden",
               log="x", ylim=(0, 105), walls={"hidden from here on, by the model": rows_to_hide(600e12, 450e9)})

# %%
of_zigzag = [row for row in shares if row["line"] == "causal, zig-zag, forward"]
figures.curves({"sending alone": {row["rows"]: row["sending"] for row in of_zigzag}, "the ring, beyond computing": {row["rows"]: row["more"] for row in of_zigzag}},
               f"Sending takes {of_zigzag[0]['sending']:.0f} % of the computing's time at {of_zigzag[0]['rows']:,} rows, {of_zigzag[-1]['sending']:.0f} % at {of_zigzag[-1]['rows']:,}",
               f"Recorded on {bench.where(recorded)}; causal, zig-zag, forward.", "rows of a rank", "% of the time of computing alone", log="x",
               ylim=(0, None))

# %%
held = [row | {"line": f"{row['ranks']} GPU{'s' * (row['ranks'] > 1)}"} for row in recorded["rows"]
        if row["ms"] and (row["mode"], row["passes"]) == ("causal, zig-zag", "forward+backward")]
longest = {row["ranks"]: row["peak_bytes"] / 2**30 for row in held if row["N"] == max(row["N"] for row in held)}
gb_s = [ring.bytes_sent(row["ranks"], row["rows"], row["H"], row["d"], row["d"], 2)[0] / row["send_ms"] / 1e6
        for row in shares if row["passes"] == "forward"]
in_order = max((row for row in rings if row["mode"] == "causal, in order"), key=lambda row: row["N"])
figures.curves(figures.series(held, "N", "peak_bytes", of="line"), "What one GPU holds, alone and in a ring",
               f"Recorded on {bench.where(recorded)}; causal, zig-zag, forward and backward.", "N, rows of the whole sequence",
               "bytes on one GPU, at most", log="xy", byte="y")

# %% [markdown]
# **Compare.** The model promises more than the clock shows. Messages run at {{min(gb_s):.0f}} to {{max(gb_s):.0f}} GB/s, not 450, and NCCL's kernels take SMs from the computing; how much each explains has not been profiled. The speed-up has another source: messages are *small*. At {{of_zigzag[-1]['rows']:,}} rows sending takes {{of_zigzag[-1]['sending']:.1f}} % of the time of computing, hidden or not, at {{of_zigzag[0]['rows']:,}} rows {{of_zigzag[0]['sending']:.0f}} %. So the ring is {{of_zigzag[0]['speedup']:.2f}} times as fast as one GPU there, and {{last['speedup']:.2f}} times at N = {{last['N']:,}}; in order it is {{in_order['speedup']:.2f}} times at {{in_order['N']:,}}. Memory is another matter. Besides its shard a rank holds blocks on their way, and sums in float32. On two GPUs that is {{longest[2]:.1f}} GiB each, against {{longest[1]:.1f}} on one GPU alone; only more GPUs make it less.
#
# ## Gather K and V instead
#
# Ranks could also send all of $K$ and $V$ to each other first (*all-gather*), then compute as one GPU does, each for its own queries. [Llama 3](https://arxiv.org/abs/2407.21783) was trained so (section 3.3.2): any mask is easy then, and grouped heads keep $K$ and $V$ small. **Predict** for 16 ranks, 131,072 tokens, 8 key heads, $d = 128$ and 16 bits: the MiB of $K$ and $V$ that a rank has to hold, gathered and in a ring (its block, and the next one).

# %%
my_held = {"gathered": None, "ring": None}

# %%
tokens, ranks = 131072, 16
token_bytes, shard = 8 * (128 + 128) * 2, tokens // ranks
room = {"gathered": tokens * token_bytes / 2**20, "ring": 2 * shard * token_bytes / 2**20}
_ = compare("K and V that a rank holds", my_held, room, "MiB")
arriving = {"gathered": (tokens - shard) * token_bytes, "ring": ring.bytes_sent(ranks, shard, 8, 128, 128, 2)[0]}
print(", ".join(f"{way}: {count / 2**20:.0f} MiB received by each rank" for way, count in arriving.items()), "(modelled)")

# %% [markdown]
# The bytes that travel are equal. Gathering takes more room, and until it has ended a rank has only its own keys to compute with.
#
# **Takeaway.** Gather while $K$ and $V$ of a layer fit on a GPU; walk round the ring when they no longer do.
#
# ## An open question
#
# Real batches hold sequences of many lengths, packed one after the other. A causal mask within each of them leaves few pairs of chunks to compute, and which ones is different in every batch. How would you deal out the chunks then? Try it with `ring.part` as a model: draw lengths at random, count the visible pairs of each rank, and look for a rule that keeps the slowest rank close to the mean. There is no check for this one.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Liu, Zaharia, Abbeel 2023, [Ring Attention with Blockwise Transformers](https://arxiv.org/abs/2310.01889) · Brandon et al. 2023, [Striped Attention](https://arxiv.org/abs/2311.09431), for the uneven work of a causal ring, and a second way to even it out · zhuzilin, [ring-flash-attention](https://github.com/zhuzilin/ring-flash-attention), for zig-zag · Jacobs et al. 2023, [DeepSpeed Ulysses](https://arxiv.org/abs/2309.14509) · Fang and Zhao 2024, [USP](https://arxiv.org/abs/2405.07719) · Llama Team 2024, [Llama 3](https://arxiv.org/abs/2407.21783), section 3.3.2 · Milakov and Gimelshein 2018, [Online normalizer calculation](https://arxiv.org/abs/1805.02867), for the merge · NVIDIA's H200 data sheet for NVLink's 900 GB/s, both directions together
#
# **Next:** {{after("14")}}.
