# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 13 · Decoding
#
# **You will be able to** say why a model that writes one token at a time leaves most of a GPU idle, and what its speed depends on; to split the keys among programs and merge their results; to keep a cache of keys that grows, in one piece or in pages; to count what a window saves; and to say what 8-bit numbers cost.
#
# **You need** chapters 06 and 07; for the Triton part chapter 10, too. · **170 minutes** in five sittings of at most 45, 100 of these minutes for five exercises; a line marks the end of each · **runs on** CPU; its Triton part on Linux
#
# A language model reads its prompt at once. Then it writes one token after the other, each with all tokens before it. Such a *decode step* has one new query for each head, $N_q = 1$, and $N_k$ is the whole text so far.

# %%
import math

import flashlab  # first: it tells Triton whether to compile or to interpret
import torch

from flashlab import cost
from flashlab_course import bench, figures
from flashlab_course.chapters import after
from flashlab_course.check import check
from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.lesson import changes, compare, replay, reveal
from flashlab.memory import Memory, format_bytes, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab_course.player import play, record
from flashlab.rungs import fa2, split_kv
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.split_kv import split_kv_forward

torch.manual_seed(0)
inf = float("inf")

# %% [markdown]
# ## One query
#
# The model of this chapter has 32 query heads and 8 key heads of $d = 128$, in 16 bits; it writes one text, so the batch is 1. FA2 has a program for each query block of each head. **Predict** how many programs that is in a decode step, and how many per cent of a GPU's 132 SMs have work.

# %%
my_idle_GPU = {"programs": None, "% of the SMs": None}

# %%
H_q, H_kv, d, SMs = 32, 8, 128, 132
said = compare("FA2 in a decode step", my_idle_GPU, {"programs": H_q, "% of the SMs": 100 * H_q / SMs})
figures.programs_on_sms({f"a decode step's {H_q} programs": H_q, "the 2048 of a prompt of 8192": 2048}, SMs)

# %% [markdown]
# What do those programs wait for? Each key and value that is read serves one product with each query that shares it. **Predict** the arithmetic intensity of a decode step over a long text, in FLOPs for each byte read: with a key head for each query head, and with 4 query heads to a key head (*grouped-query attention*, GQA), whose rows share one reading of it.

# %%
my_intensity = {"a key head each": None, "4 to a key head": None}

# %%
def decode_step(N_k, group, B=1):
    """FLOPs and bytes of one key head's share of a decode step, in 16 bits: its group of query heads as the rows of one tile."""
    moved = cost.fa2_forward(group, N_k, d, B_r=group, B_c=64, element_size=2)
    return {"flops": B * moved.matmul_flops, "bytes": B * moved.traffic}


steps = {"a key head each": decode_step(65536, 1), "4 to a key head": decode_step(65536, 4)}
found = {name: step["flops"] / step["bytes"] for name, step in steps.items()}
said = compare("FLOPs for each byte of a decode step", my_intensity, found, "FLOPs a byte")

# %% [markdown]
# **Compare.** Two FLOPs for each number of $K$ and of $V$, two bytes a number: the group's size is the intensity, whatever $N_k$ and $d$. On the roofline of chapter 02 that is far to the left. The prompt, with thousands of queries, is far to the right.

# %%
recorded = bench.load_results("forward_h200")
copy_tb_s, matmul_tflops = (recorded["ceilings"][name] for name in ("copy_tb_s", "matmul_tflops"))
prompt = cost.attention_flops(1, 1, 8192, 8192, d), 2 * 4 * 8192 * d
points = [{"op": name} | step for name, step in steps.items()] + [{"op": "16 to a key head"} | decode_step(65536, 16)]
points.append({"op": "a prompt of 8192", "flops": prompt[0], "bytes": prompt[1]})
figures.roofline(points, copy_tb_s, matmul_tflops, f"Modelled points; ceilings recorded on {bench.where(recorded)}.")

# %% [markdown]
# So a decode step can be no faster than its cache can be read once. **Predict** for 131,072 tokens, our 8 key heads, and the copy rate above: megabytes of $K$ and $V$ in one layer, and microseconds to read them.

# %%
my_floor = {"MB": None, "µs": None}

# %%
cache_bytes = 2 * 131072 * H_kv * d * 2
said = compare("reading one layer's cache", my_floor, {"MB": cache_bytes / 1e6, "µs": cache_bytes / copy_tb_s / 1e6})
print(f"{cache_bytes / 1e6:.0f} MB at {copy_tb_s} TB/s (recorded): {cache_bytes / copy_tb_s / 1e6:.0f} µs")

# %% [markdown]
# To come near that floor all SMs have to pull on memory together: one SM alone has only so many bytes on their way at a time (chapter 02). 32 of 132 are too few. A longer text does not add programs. A larger batch does, but each of its texts brings a cache of its own to read.
#
# **Takeaway.** Decoding is limited by bytes, and by how many SMs ask for them. The arithmetic is free.

# %% [markdown]
# ## Split, and merge
#
# There are no more queries to hand out, but plenty of keys. Let several programs share one query: each attends to its *chunk* of the keys, as if there were no others, and a second kernel merges the results. This was chapter 06's open question; the field calls it **Flash-Decoding**.
#
# **Exercise: one query, many programs** ([exercises/ex13_split_and_merge.py](../exercises/ex13_split_and_merge.py), 30 minutes). Both kernels on modelled memory, every byte counted.

# %%
check("ex13_split_and_merge")

# %%
reveal("ex13_split_and_merge")

# %%
replay("ex13_split_and_merge")

# %% [markdown]
# The course's version is the rung `split_kv_forward`. The diff from FA2's program to its own shows that it walks `chunk` instead of all key blocks, and stores to a place of its own.

# %%
print(changes(fa2._program, split_kv._program))

# %% [markdown]
# And the merge? Read it beside FA2's inner step: the same running softmax, over chunks in place of keys. The "score" of a chunk is its $L_s$, its "value" the finished $O_s$.

# %%
print(changes(fa2._step, split_kv._merge, most=7))

# %% [markdown]
# Watch it: two programs with two key blocks each, then the merge. Which lines touch $K$ and $V$, and what do the last ones read instead?

# %%
q, k, v = torch.randn(1, 4), torch.randn(16, 4), torch.randn(16, 4)
play(record(split_kv_forward, q, k, v, splits=2, B_r=1, B_c=4, sram_bytes=1024))

# %% [markdown]
# What does it cost? Partial results are written and read again, and $Q$ is read by every program. **Predict** for one query, 4096 keys, $d = 64$, 16 splits: how many per cent more bytes than without a split?

# %%
my_extra = None     # per cent

# %% [markdown]
# **Run and compare.** Measured under the memory model, and held against the closed form, to the byte.

# %%
N_k, Q, K, V = 4096, torch.randn(1, 64), torch.randn(4096, 64), torch.randn(4096, 64)
longest, moved = {}, {}
for splits in (1, 2, 4, 8, 16, 32, 64):
    with Memory() as mem:
        O, L = split_kv_forward(Q, K, V, splits=splits, B_r=1, B_c=64)
    assert judge(O, L, Q, K, V).ok
    formula = cost.split_kv_forward(1, N_k, 64, B_r=1, B_c=64, splits=splits)
    assert (mem.read, mem.written) == (formula.read, formula.written)
    longest[splits], moved[splits] = 100 / splits, mem.read + mem.written
said = compare("bytes that 16 splits add", my_extra, 100 * (moved[16] / moved[1] - 1), "%")
figures.curves({"keys of the longest program": longest, "bytes in all": {s: 100 * n / moved[1] for s, n in moved.items()}},
               f"16 splits: programs 16 times as short, {100 * (moved[16] / moved[1] - 1):.1f} % more bytes",
               "Modelled: flashlab.memory, one query, 4096 keys, d = 64, float32.", "splits", "% of what one split takes", log="xy")

# %% [markdown]
# **Compare.** A chunk adds $O_s$ and $L_s$, twice, and $Q$ once more: some $3d$ numbers beside the $2d$ of each of its keys. As long as a chunk is hundreds of keys long that is next to nothing. (One split is not quite FA2: it is merged all the same.)
#
# With 8192 queries it would be another matter. **Predict**: the bytes of 16 splits there as a multiple of FA2's, in tiles of $64 \times 64$.

# %%
my_prompt_split = None     # times

# %%
sizes = {"B_r": 64, "B_c": 64, "element_size": 2}
fa2_bytes = cost.fa2_forward(8192, 8192, 128, **sizes).traffic
split_bytes = cost.split_kv_forward(8192, 8192, 128, splits=16, **sizes).traffic
said = compare("16 splits of a prompt", my_prompt_split, split_bytes / fa2_bytes, "times")
print(f"8192 queries: FA2 {format_bytes(fa2_bytes)}, 16 splits {format_bytes(split_bytes)} (modelled), and {8192 // 64} programs a head as it is")

# %% [markdown]
# **Takeaway.** Where queries are few, share out the keys: programs become as short as you like for a few bytes more. $(O, L)$ of any set of keys is all that has to be handed on.
#
# *End of sitting 1. To continue later, run the notebook from the top.*

# %% [markdown]
# ## How many splits?
#
# With 4 query heads as rows of one tile our model has 8 programs, one for each key head. 16 splits make 128 of them, 17 make 136, on 132 SMs. **Predict** how many times as long 17 splits take as 16, if all programs of a wave are equally long, and there are 1024 key blocks.

# %%
my_seventeen = None     # times

# %%
def steps_of(s, P=8, T=1024):
    """Waves of programs times the steps of one: its key blocks, and 2 for beginning and storing."""
    return math.ceil(P * s / SMs) * (math.ceil(T / s) + 2)


said = compare("17 splits against 16", my_seventeen, steps_of(17) / steps_of(16), "times")
figures.programs_on_sms({f"{s} splits": 8 * s for s in (16, 17, 33)}, SMs)

# %% [markdown]
# **Exercise: how many splits** ([exercises/ex13_choose_splits.py](../exercises/ex13_choose_splits.py), 20 minutes). The number with the least time, by this model.

# %%
check("ex13_choose_splits")

# %%
reveal("ex13_choose_splits")

# %% [markdown]
# **Predict** the best number of splits for a batch of 1, of 9 and of 32 texts: 8, 72 and 256 programs before the split.

# %%
my_best = {1: None, 9: None, 32: None}

# %%
best = {batch: min(range(1, 1025), key=lambda s: steps_of(s, 8 * batch)) for batch in my_best}     # noqa: B023    called at once
said = compare("best number of splits, batch", my_best, best)
print(f"splits for a batch of 1, 9, 32: {list(best.values())} (modelled)")
steps = {s: steps_of(s) for s in range(1, 81)}
figures.curves({"steps": steps}, f"{best[1]} splits are {steps[1] / steps[best[1]]:.1f} times as fast as none",
               "Modelled: 8 programs before the split, 1024 key blocks each, 132 SMs; waves of programs times the steps of one.", "splits",
               "steps of one key block", log="y", walls={f"{best[1]} splits: {steps[best[1]]} steps": best[1]})

# %% [markdown]
# **Compare.** The curve is a saw. Each tooth begins with a wave that is nearly empty. More splits do not help far to the right, since each program has to begin and to store. `flashlab/operator/splits.py` decides by this rule. It is a model: programs share SMs, and the programs of a wave do not end all at once. Recorded times follow at the end.
#
# **Takeaway.** Split until every SM has work, and look where the last wave ends.
#
# *End of sitting 2.*

# %% [markdown]
# ## A cache that grows
#
# Keys and values of old tokens do not change, so they are kept: the **KV cache**. Without it each step would compute all of them again, through all layers. **Predict** the KiB that one token takes in the cache of a model with 32 layers, 8 key heads, $d = 128$, 16 bits.

# %%
my_token = None     # KiB

# %%
per_token = 32 * H_kv * d * 2 * 2
said = compare("a token in the cache", my_token, per_token / 1024, "KiB")
print(f"{format_bytes(per_token)} a token; with 131,072 tokens {format_bytes(131072 * per_token)} for one text, "
      f"{format_bytes(131072 * per_token * 4)} if all 32 heads had keys of their own")

# %% [markdown]
# Nobody moves that much memory about. It is reserved with room to grow, and each step writes its few numbers where they belong.
#
# **Exercise: a cache that grows** ([exercises/ex13_kv_update.py](../exercises/ex13_kv_update.py), 15 minutes). The texts of a batch are not equally long.

# %%
check("ex13_kv_update")

# %%
reveal("ex13_kv_update")

# %% [markdown]
# Twelve tokens, one at a time, each attending to the cache as it is then. Nobody masks anything. **Predict** what the twelve outputs are together: "attention without a mask", "causal attention", or "neither".

# %%
my_twelve = None

# %%
q, k, v = (torch.randn(12, 16) for _ in range(3))
K_cache, V_cache, rows = torch.full((20, 16), torch.nan), torch.full((20, 16), torch.nan), []
for n in range(12):
    K_cache[n], V_cache[n] = k[n], v[n]
    rows.append(split_kv_forward(q[n:n + 1], K_cache[:n + 1], V_cache[:n + 1], splits=3, B_c=2)[0])
errors = {name: max_error(torch.cat(rows), attention(q, k, v, causal=causal)[0])
          for name, causal in (("attention without a mask", False), ("causal attention", True))}
said = compare("twelve steps together", my_twelve, min(errors, key=errors.get))
print(", ".join(f"{name}: off by {error:.1e}" for name, error in errors.items()))

# %% [markdown]
# A prompt needs a mask. A text that is being written does not: later tokens are not there yet. What lies behind the last key, here NaN, must not be read, not even with weight 0.
#
# **Pages.** How long will a text become? Nobody knows, so room for the longest is reserved: most of it stays empty. **Predict** for these five texts, with room for 2048 tokens each, how many per cent of the room is used; and how many if room is given in pages of 16 tokens as it is needed.

# %%
lengths = [40, 700, 130, 1515, 12]
my_room = {"one piece each": None, "pages of 16": None}

# %%
taken = {"one piece each": 2048 * len(lengths), "pages of 16": sum(16 * math.ceil(n / 16) for n in lengths)}
used = {name: 100 * sum(lengths) / room for name, room in taken.items()}
said = compare("room that is used", my_room, used, "%")
figures.bars(used, f"{used['one piece each']:.0f} % of the room is used in one piece, {used['pages of 16']:.0f} % in pages",
             f"Modelled: texts of {', '.join(map(str, lengths))} tokens.", "% of the room that is taken")

# %% [markdown]
# A **paged** cache is one pool for all texts. Pages are handed out as texts grow and come back when they end, so a text's pages lie anywhere. Its row of the **block table** says where, as an operating system's page table does for programs: that is where PagedAttention (Kwon et al. 2023) has it from.

# %%
block_table = [[7, 2, 11], [0, 5], [9, 1, 3, 6]]
filled = [[1, 1, 8 / 16, 0], [1, 1 / 16, 0, 0], [1, 1, 1, 12 / 16]]                       # of 40, 17 and 60 keys
figures.matrices({"": (filled, [row + [""] * (4 - len(row)) for row in block_table])}, "117 keys in 9 pages of 16: 81 % of their room is used",
                 "Definition: in a cell the page's place in the pool; the darker, the fuller.", "page of the sequence", "sequence")

# %% [markdown]
# **Predict** where key 45 of sequence 2 lies in this picture: its page in the pool, and its row in that page.

# %%
my_key_45 = {"page": None, "row": None}

# %%
said = compare("key 45 of sequence 2", my_key_45, {"page": block_table[2][45 // 16], "row": 45 % 16})

# %% [markdown]
# **Exercise: a tile of keys from pages** ([exercises/ex13_page_lookup.py](../exercises/ex13_page_lookup.py), 20 minutes). What a program loads in place of `K[cols]`.

# %%
check("ex13_page_lookup")

# %%
reveal("ex13_page_lookup")

# %% [markdown]
# **Takeaway.** Old keys and values are kept, and each step adds its own. Pages cost one address for thousands of numbers, and waste little room.
#
# *End of sitting 3.*

# %% [markdown]
# ## What a window leaves to read
#
# With a sliding window a query sees its own key and the `left` keys before it. **Predict** for a window of 4096 keys: the share of the cache that a step reads at 131,072 tokens, in per cent.

# %%
my_window = None     # per cent

# %%
Ns = [2**n for n in range(8, 18)]
curves = {}
for name, window in (("no window", max(Ns)), ("a window of 4096 keys", 4096)):
    curves[name] = {N: H_kv * cost.fa2_forward(1, min(N, window), d, B_r=1, B_c=64, element_size=2).read for N in Ns}
last = {name: curve[131072] for name, curve in curves.items()}
said = compare("what a window reads", my_window, 100 * last["a window of 4096 keys"] / last["no window"], "%")
figures.curves(curves, f"At 131,072 keys a window of 4096 reads {last['a window of 4096 keys'] / last['no window']:.1%} of the bytes",
               f"Modelled: cost.fa2_forward for {H_kv} key heads, d = {d}, 16 bits, one layer.", "keys in the cache", "bytes read in a step",
               log="xy", byte="y", ticks=Ns[::3])

# %% [markdown]
# Which tiles are those? Only the first and the last of them can need a mask.
#
# **Exercise: what a window leaves to read** ([exercises/ex13_window_tiles.py](../exercises/ex13_window_tiles.py), 15 minutes). The first tile, the end, and how many need a mask.

# %%
check("ex13_window_tiles")

# %%
reveal("ex13_window_tiles")

# %% [markdown]
# Now both at once: 65,536 keys in 16 chunks, a window of 4096. The rung cuts the *text* into chunks. **Predict** how many of 16 such programs would load a key at all.

# %%
my_programs_at_work = None

# %%
chunks = tiles(65536, 65536 // 16)
first = 65536 - 4096                                       # the first key that the last query sees
at_work = sum(chunk.stop > first for chunk in chunks)
said = compare("programs with a key in the window", my_programs_at_work, at_work)
print(f"{at_work} of {len(chunks)} programs load keys")

# %% [markdown]
# **Compare.** Idle again: the others have nothing but a weight of 0 to report. A launcher has to cut the *window* into chunks. The Triton kernel below finds the first and the last tile that is seen, and shares out those.
#
# **Takeaway.** A window bounds the bytes of a step, however long the text: skip the tiles outside it, mask the one or two that it cuts, and share out those that are left.

# %% [markdown]
# ## Eight bits
#
# Decoding is limited by bytes, and a Hopper GPU multiplies 8-bit numbers twice as fast as 16-bit ones. So FlashAttention-3 (Shah et al. 2024) has a forward pass in **FP8**. It is one of its three additions for Hopper. Chapter 12b builds the other two: warps that load while others compute, and two consumers that take turns.
#
# First a slip. With each key block the paper's Algorithm 1 updates the output by the line below, where $m_i$ is the new maximum and $\tilde P$ the weights in its units. **Predict** what that gives on two blocks: "right", "too small" or "too large".
#
# $$O_i = \mathrm{diag}\left(e^{m_i^{\mathrm{old}} - m_i}\right)^{-1} O_i + \tilde P_i^{(j)} V_j$$

# %%
my_line_of_FA3 = None

# %%
s, values, m_old, m_new = torch.tensor([1.0, 3.0]), torch.tensor([10.0, 20.0]), 1.0, 3.0      # two tiles of one key each
old, l = values[0], math.exp(m_old - m_new) + 1                          # the sum over both keys, in units of exp(m_new)
printed, right = ((factor * old + values[1]) / l for factor in (1 / math.exp(m_old - m_new), math.exp(m_old - m_new)))
truth = torch.softmax(s, 0) @ values
said = compare("the printed line of FA3", my_line_of_FA3, "too large" if printed > truth + 1e-3 else "right")
print(f"attention {truth:.3f}, with the factor {right:.3f}, with its inverse {printed:.1f}")

# %% [markdown]
# The old sum has to shrink as the maximum grows: no inverse. It is chapter 06's slip, [handed down](https://github.com/Dao-AILab/flash-attention/issues/1303).
#
# Now the numbers. A float8 of type e4m3 has 4 bits of exponent and 3 of fraction. **Predict** how many different finite numbers from 1 to 2, with 1 and without 2, and the largest of all.

# %%
my_e4m3 = {"from 1 to 2": None, "largest": None}

# %%
every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
every = every[every.isfinite()]
_ = compare("numbers of e4m3", my_e4m3, {"from 1 to 2": int(((every >= 1) & (every < 2)).sum()), "largest": every.max().item()})
print("from 1 to 2:", ", ".join(f"{x:g}" for x in every[(every >= 1) & (every < 2)].tolist()))

# %% [markdown]
# Before the cast numbers are divided by a scale, one for each block of rows, so that the block's largest becomes 448. The cast then takes each to the nearest number there is. PyTorch makes it on any machine, so it can be tried here. **Predict** the largest error of a number from 1 to 448, in per cent of itself.

# %%
my_step = None     # per cent

# %%
x = torch.linspace(1, 448, 100_000)
off = ((x.to(torch.float8_e4m3fn).float() - x).abs() / x).max().item()
said = compare("largest relative error of e4m3", my_step, 100 * off, "%")
print(f"up to {100 * off:.1f} % of a number (measured here): of 1 that is {off:.2f}, of 30 {30 * off:.1f}")

# %% [markdown]
# A large number therefore has a large error, whatever the scale, and a score that is made of one large product inherits it. FlashAttention-3's remedy is **incoherent processing**: multiply $Q$ and $K$ by the same random orthogonal matrix $M$. **Predict** what that does to the scores before any rounding: "nothing", "scales them" or "mixes them".

# %%
my_rotation = None

# %%
from flashlab.operator.fp8 import flash_attention_fp8, hadamard

N = 1024
few = [torch.randn(N, d) + 10 * torch.randn(N, d) * (torch.rand(N, d) < 0.001) for _ in range(2)]    # one in a thousand is large
M = hadamard(d) / d**0.5                                                 # signs, divided: each row mixes all columns alike
Q, K = few
same = max_error((Q @ M) @ (K @ M).T, Q.double() @ K.double().T) < 1e-3
_ = compare("what a rotation does to the scores", my_rotation, "nothing" if same else "mixes them")
print(f"largest of |Q|: {Q.abs().max():.0f}; of |QM|: {(Q @ M).abs().max():.0f}. The scores are the same: {same}")

# %% [markdown]
# $(QM)(KM)^\top = QMM^\top K^\top = QK^\top$. One large product becomes a sum of many middling ones, whose errors have different signs. Here is the error of attention with and without a rotation, where one number in a thousand is large, and where four whole columns are, as can happen in trained models.

# %%
columns = [torch.randn(N, d) + torch.where(torch.arange(d) % 32 == 3, 10.0, 0.0) for _ in range(2)]
V, errors = torch.randn(N, d), {}
for name, (Q, K) in {"few numbers": few, "four columns": columns}.items():
    QKV = [T.half()[None, None] for T in (Q, K, V)]                      # (1, 1, N, d)
    truth, _ = attention(*QKV)
    for how, O in (("8 bits", flash_attention_fp8(*QKV, rotate=False)), ("8 bits, rotated", flash_attention_fp8(*QKV)),
                   ("16 bits", fa2_forward(*(T[0, 0] for T in QKV))[0])):
        errors[f"{name}: {how}"] = (O - truth).square().mean().sqrt().item()
left = {name: 100 * errors[f"{name}: 8 bits, rotated"] / errors[f"{name}: 8 bits"] for name in ("few numbers", "four columns")}
figures.bars(errors, f"A rotation leaves {left['few numbers']:.0f} % of the error where few numbers are large, "
             f"{left['four columns']:.0f} % where four columns are",
             "Measured here: 1024 queries and keys, d = 128, casts emulated on the CPU; large numbers are about 10 times the others.",
             "root mean square of the error, against float64", log=True)

# %% [markdown]
# **Compare.** The paper reports 2.6 times less error than plain FP8 attention, on numbers like the first kind. `flashlab/operator/fp8.py` takes the same steps here as the Hopper kernel `flashlab/operator/fp8_kernel.py` does on a GPU, but for one: Hopper's tensor cores add FP8 products with about 14 bits. So at $d = 128$ they sum one key block, and the kernel's threads add up the blocks in float32. **Change this and run again**: larger outliers, more columns. When does the rotation stop helping?
#
# And its speed? The tensor cores take half the time for a product. The exponentials take as long as before, and weights have to be rounded besides. **Predict** for an H200, $N = 16384$, $d = 128$, no mask: how many times as fast as chapter 12's last rung in bfloat16 is the FP8 kernel, on numbers that are already quantised? And together with quantising $Q$, $K$ and $V$?

# %%
my_fp8_speed = {"kernel": None, "with quantising": None}

# %%
in_8_bits = bench.load_results("fp8_h200")
rows = {row["implementation"]: row for row in in_8_bits["rows"] if (row["N"], row["d"], row["causal"]) == (16384, 128, False)}
alone, whole, quantising, in_16_bits = (rows[name] for name in ("fp8 kernel", "flash_attention_fp8", "fp8 quantising",
                                                                "fa2_hopper_forward"))
times = {name: in_16_bits["ms"] / row["ms"] for name, row in {"kernel": alone, "with quantising": whole}.items()}
said = compare("the FP8 kernel against bfloat16's", my_fp8_speed, times, "times")
moved = 3 * alone["B"] * alone["H"] * alone["N"] * alone["d"] * (2 + 1)    # Q, K and V, read in 16 bits and written in 8
print(f"quantising moves {moved / 1e6:.0f} MB in {quantising['ms']:.2f} ms, "
      f"{moved / quantising['ms'] / 1e7 / in_8_bits['ceilings']['copy_tb_s']:.0f} % of a copy's rate; the error of O is "
      f"{100 * alone['error']:.1f} % of its size, in bfloat16 {100 * in_16_bits['error']:.2f} % (recorded)")

# %%
faster = {name: {f"N = {row['N']}{', causal' * row['causal']}": (ratio, tied) for row, ratio, tied in gains(in_8_bits, name, "fa2_hopper_forward")}
          for name in ("fp8 kernel", "flash_attention_fp8")}
kernel_takes, call_takes = ({size: 100 / ratio for size, (ratio, _) in found.items()} for found in faster.values())
place = lambda ratio, tied: "level with" if tied else "ahead of" if ratio > 1 else "behind"
whole_calls = ", ".join(f"{place(*found)} it at {size} ({found[0]:.2f} times its speed)" for size, found in faster["flash_attention_fp8"].items())
figures.bars({size: {"kernel": kernel_takes[size], "quantising Q, K, V": call_takes[size] - kernel_takes[size]} for size in kernel_takes},
             "FP8 pays where quantising is a small part of the call", f"Recorded on {bench.where(in_8_bits)}; d = 128.",
             "% of the bfloat16 kernel's time", walls={"bfloat16": 100})

# %% [markdown]
# **Compare.** Only the products are twice as fast. Quantising is a pass over three tensors, with the same cost for each token at any $N$. Attention's work for a token grows with $N$, and so does what FP8 saves. Beside the bfloat16 kernel, the whole call is {{whole_calls}}. The price is an error {{alone['error'] / in_16_bits['error']:.0f}} times as large.
#
# A decode step has one query, so nothing makes up for a pass over the cache. **Predict** how many bytes a step moves for each number of $K$ and $V$: with a cache in 16 bits, with the same cache quantised in every call, and with a cache whose tokens were quantised once, as they came.

# %%
my_bytes_a_number = {"16 bits": None, "quantised in every call": None, "quantised once": None}

# %%
wide, narrow = torch.bfloat16.itemsize, torch.float8_e4m3fn.itemsize
moved = {"16 bits": wide, "quantised in every call": wide + 2 * narrow, "quantised once": narrow}    # each call: written, read again
said = compare("bytes for a number of the cache", my_bytes_a_number, moved, "bytes")
print(", ".join(f"{name}: {100 * n / wide:.0f} % of the time" for name, n in moved.items()), "(modelled: where bytes are all that counts)")

# %% [markdown]
# **Compare.** A token's key and value are written once and read in every later step: quantise them once, when they are cached, and never in a call. (A scale stands for a block of keys here, so the block that is still growing has to stay in 16 bits, or take a scale that is known beforehand.) `flash_attention_fp8` quantises in every call: it is for prompts, and for long ones.
#
# **Takeaway.** Half the bytes cost digits. A scale keeps numbers in range and a rotation spreads large ones, yet much is lost against 16 bits: measure it on your own numbers. Quantise once what is read often.
#
# *End of sitting 4.*

# %% [markdown]
# ## The kernel in Triton
#
# The rest of the chapter needs Triton.

# %%
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("The rest of this chapter needs Triton.")

# %%
import inspect

from flashlab.triton_mode import kernel_device
from flashlab.operator.decode_kernels import decode_kernel, merge_kernel, with_tile
from flashlab.operator.splits import choose_splits

device = kernel_device()


def part(kernel, first, last):
    """The lines of a kernel from the first that holds `first` to the next that holds `last`, without comments at their ends."""
    lines = [line.split("  #")[0].rstrip() for line in inspect.getsource(kernel.fn).splitlines()]
    lines = lines[next(n for n, line in enumerate(lines) if first in line):]
    lines = lines[:1 + next(n for n, line in enumerate(lines) if last in line)]
    return "\n".join(line.strip() for line in lines if line)

# %% [markdown]
# `decode_kernel` is chapter 12's kernel in base 2 with other loads. Step one, **who am I?** A program's number says which rows, which chunk, which key head.

# %%
print(part(decode_kernel, "heads_rows =", "b, h ="))

# %% [markdown]
# **Predict** for a batch of 2, our 8 key heads and 16 splits, one query each: how many programs, and which split and key head number 37 has.

# %%
my_number_37 = {"programs": None, "split": None, "key head": None}

# %%
number, splits, T_r = 37, 16, 1                                          # 4 rows a key head are one block
head = number // T_r // splits
_ = compare("program 37", my_number_37, {"programs": 2 * H_kv * splits, "split": number // T_r % splits, "key head": head % H_kv})

# %% [markdown]
# Step two, **the rows**. All query heads of a group stand in one tile, so that a key is read once for all of them. The tile has 16 rows, since tensor cores compute that many anyway.

# %%
print(part(decode_kernel, "rows = i", "Q_i ="))

# %% [markdown]
# **Predict**: how many of the 16 rows hold a query in our model, and how many times as many bytes of $K$ and $V$ would be read with a program for each query head.

# %%
my_packing = {"rows": None, "times the bytes": None}

# %%
group = H_q // H_kv
_ = compare("packing a group", my_packing, {"rows": group, "times the bytes": group})
print(f"row r: query head {group}·h + r // N_q, query r % N_q; rows from {group} on are padding, and cost no time that counts")

# %% [markdown]
# Step three, **the chunk**. `start` and `stop` are the tiles that some row sees: from 0 to the text's end, or the window's. Each sequence cuts its own: a short one has short chunks.

# %%
print(part(decode_kernel, "start, stop =", "first, end ="))

# %% [markdown]
# Step four, **where a tile lies**. In a paged cache a key's address is its page's, and its row in it: your `tile_of_keys`. The page of the next tile is looked up before this one is used, so that no load has to wait for another.

# %%
print(part(decode_kernel, "keys = j", "page = page_of(j + 1"))

# %% [markdown]
# Then the tile joins the running state, line for line as in chapter 12's kernel in base 2.

# %%
print(part(with_tile, "m_new =", "PV ="))

# %% [markdown]
# And the merge: one program for each row, 16 chunks at a time.

# %%
print(part(merge_kernel, "L_s =", "O_i = alpha"))

# %% [markdown]
# Does it work? Here are three texts of different length, a cache with NaN behind their ends, and new keys that the same call writes. `splits=None` asks `choose_splits`. **Predict** how many splits it takes for one text of 8 key heads and 512 key tiles where 132 programs run at a time.

# %%
my_splits_taken = None

# %%
_ = compare("splits that the launcher takes", my_splits_taken, choose_splits(8, 512, 132))
Q = torch.randn(3, 8, 1, 32, device=device)                              # 8 query heads, 2 key heads
K_cache, V_cache = (torch.full((3, 2, 128, 32), torch.nan, device=device) for _ in range(2))
K, V = (torch.randn(3, 2, 128, 32, device=device) for _ in range(2))
lengths = torch.tensor([5, 100, 64], dtype=torch.int32, device=device)
for b, n in enumerate(lengths.tolist()):
    K_cache[b, :, :n], V_cache[b, :, :n] = K[b, :, :n], V[b, :, :n]
new = {"K_new": torch.stack([K[b, :, n:n + 1] for b, n in enumerate(lengths.tolist())]),
       "V_new": torch.stack([V[b, :, n:n + 1] for b, n in enumerate(lengths.tolist())])}
O, L = flashlab.flash_attention_decode(Q, K_cache, V_cache, lengths, **new, splits=4, return_lse=True, backend="triton")
for b, n in enumerate((lengths + 1).tolist()):
    print(f"text {b}, {n} keys: {judge(O[b:b + 1], L[b:b + 1], Q[b:b + 1], K[b:b + 1, :, :n], V[b:b + 1, :, :n])}")

# %% [markdown]
# Which program reads which keys? The interpreter sees every load. The texts have 6, 101 and 65 keys now, in tiles of 32. **Predict** how many of one key head's 12 programs read no key.

# %%
my_idle_programs = None

# %%
from flashlab_course.lesson.accesses import touched

step = lambda: flashlab.flash_attention_decode(Q, K_cache, V_cache, lengths + 1, splits=4, backend="triton")
seen = touched(step)
reads = torch.full((3, 4, 128), torch.nan)
for access in seen.of("K"):
    head, split = access.program[0] // 4, access.program[0] % 4                      # as printed in step one, with 1 row block
    if head % 2 == 0:                                                                # key head 0
        reads[head // 2, split, torch.from_numpy(access.elements[access.mask] // 32 % 128).unique()] = split + 1
idle = reads.isnan().all(-1).sum().item()
_ = compare("programs without a key", my_idle_programs, idle if not seen.problem else "unseen")
figures.matrices({"": (reads.flatten(0, 1), None)}, f"Each text shares out its own keys, and {idle} of 12 programs get none",
                 f"Measured here: loads of K by the programs of key head 0. {seen.problem}", "key", "program", number="",
                 rows=[f"text {b}, split {s}" for b in range(3) for s in range(4)])

# %% [markdown]
# The same cache in pages, in any order: the same keys in the same tiles. **Predict**: the same bits?

# %%
my_same_bits = None     # True or False

# %%
page_size, pages = 16, 3 * 128 // 16
order = torch.randperm(pages, device=device)
table = order.view(3, -1).to(torch.int32)                                # (B, max_pages)
pool_K, pool_V = (torch.empty(pages, 2, page_size, 32, device=device) for _ in range(2))
for pool, cache in ((pool_K, K_cache), (pool_V, V_cache)):
    pool[order] = cache.unflatten(2, (-1, page_size)).transpose(1, 2).flatten(0, 1)
paged = flashlab.flash_attention_decode(Q, pool_K, pool_V, lengths + 1, block_table=table, splits=4, backend="triton")
_ = compare("pages against one piece", my_same_bits, torch.equal(paged, O))
print("same bits:", torch.equal(paged, O))

# %% [markdown]
# And a window of 16 keys on the text of 101: each of the 4 chunks gets its share of the window's tiles, where there are enough.

# %%
one = slice(1, 2)                                                        # the second text
seen = flashlab.flash_attention_decode(Q[one], K_cache[one], V_cache[one], lengths[one] + 1, window=(15, 0),
                                       return_lse=True, backend="triton")
print(judge(*seen, Q[one], K[one, :, :101], V[one, :, :101], window=(15, 0)))

# %% [markdown]
# **Takeaway.** The kernel is FA2's loop with other bounds and other addresses. What is new in decoding is which program gets which keys.

# %% [markdown]
# ## One launch for a thousand
#
# A decode step is short: a few hundred kernels for the whole model, each started by the host. **Predict** for a text of 2048 tokens how many microseconds it takes to read one layer's cache at the copy rate above, and how many the host takes to launch one Triton kernel from Python.

# %%
my_short_step = {"reading": None, "launching": None}

# %%
ways, ways_words = bench.numbers("timing_ways", name="basics_h200")
launch = next(1000 * row["ms"] for row in ways if row["how"] == "Python's clock, not synchronized")
short = {"reading": 2 * 2048 * H_kv * d * 2 / copy_tb_s / 1e6, "launching": launch}
_ = compare("a short cache and a launch", my_short_step, short, "µs")
print(f"2048 tokens: {short['reading']:.1f} µs to read (modelled); a launch takes the host {launch:.1f} µs. {ways_words}")

# %% [markdown]
# If the host needs longer to start a kernel than the GPU to run it, the GPU waits for Python. A **CUDA graph** records a step's launches once and replays them all with one call. Then nothing may depend on numbers that the host would have to read. So `lengths` stays on the GPU, and the number of splits follows from the cache's room, not from the text's length. This cell needs a GPU.

# %%
def graph_of(step):
    """A CUDA graph of what step() launches; graph.replay() launches it all again, on the same tensors."""
    step()                                                               # compiles, and allocates what is kept
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


if device == "cuda":
    Q, counts = torch.randn(3, 8, 1, 32, device=device), torch.tensor([6, 101, 65], dtype=torch.int32, device=device)
    (K_cache, V_cache), out = torch.randn(2, 3, 2, 128, 32, device=device), torch.empty_like(Q)
    graph = graph_of(lambda: out.copy_(flashlab.flash_attention_decode(Q, K_cache, V_cache, counts)))
    counts -= 1                                                          # other numbers in the same tensor
    graph.replay()
    print("replayed with one key less:", judge(out[:1], None, Q[:1], K_cache[:1, :, :5], V_cache[:1, :, :5]))
else:
    print("no GPU here: nothing to launch, nothing to record")

# %% [markdown]
# **Takeaway.** A step that is short for the GPU is long for the host. Give it a graph, and let no step ask the GPU for a number.

# %% [markdown]
# ## The clock
#
# Bytes are the bound, so the score is the rate at which $K$ and $V$ are read, beside a copy's rate: {{copy_tb_s:.1f}} TB/s on an H200, read and written together. **Predict**, for 32 query heads on 4 key heads, $d = 128$, one query and 65,536 keys: how much faster is a step than the best kernel of chapter 12, which shares out no keys, for one text and for 32 of them?

# %%
my_gain_of_splitting = {"1 text": None, "32 texts": None}

# %%
from flashlab_course.bench.decode import FORWARD, SDPA

decode = bench.load_results("decode_h200")
steps = {(row["H_kv"], row["B"], row["N"]): row for row in decode["rows"] if row["implementation"] == "decode" and row["ms"]}
over = {whose: {(row["H_kv"], row["B"], row["N"]): (ratio, tied) for row, ratio, tied in gains(decode, "decode", rivals)}
        for whose, rivals in (("chapter 12's", FORWARD), ("SDPA's", SDPA))}                     # the fastest of these
_ = compare("a decode step against chapter 12's kernel", my_gain_of_splitting,
            {"1 text": over["chapter 12's"][4, 1, 65536][0], "32 texts": over["chapter 12's"][4, 32, 65536][0]}, "times")
rows = {B: [row | {"implementation": row["implementation"].replace("decode", "Flash-Decoding")} for row in decode["rows"] if row["ms"] and (row["H_kv"], row["B"]) == (4, B)] for B in (1, 32)}


def rates(B):
    """TB/s of K and V for a batch, beside a copy's."""
    return figures.curves(figures.series(rows[B], "N", "tb_s"), f"A batch of {B}: Flash-Decoding reads at {steps[4, B, 65536]['of_copy']:.0%} of a "
                          "copy's rate", f"Recorded on {bench.where(decode)}; 32 query heads, 4 key heads.", "keys of a text", "TB/s of K and V",
                          log="x", ylim=(0, None), ceilings={"a copy": rows[B][0]["copy_tb_s"]})


rates(1)

# %%
rates(32)

# %%
for heads, words in ((4, "4 key heads for 32"), (16, "16 key heads for 16")):
    for B in (1, 32):
        row = steps[heads, B, 65536]
        print(f"{words}, {B:>2} texts: {row['of_copy']:4.0%} of a copy's rate, " + ", ".join(
            f"{found[heads, B, 65536][0]:.2f} x {whose} fastest{' (tied)' * found[heads, B, 65536][1]}" for whose, found in over.items()))
full = [row for row in steps.values() if row["bytes"] >= 2**29]
pages = {label: max(row["ms"] / other["ms"] - 1 for row in run["rows"] for other in run["rows"] if row["ms"] and row["bytes"] >= 2**29
                    and row["implementation"] == "decode, paged" and other["implementation"] == "decode"
                    and all(row[key] == other[key] for key in ("H_kv", "B", "N")))
         for label, run in (("now", decode), ("four stages", bench.load_results("decode_h200", "four stages")))}
unsplit = [(row, *found) for row, *found in gains(decode, "decode", FORWARD) if (row["H_kv"], row["B"]) == (16, 32)]

# %% [markdown]
# **Compare.** For one text chapter 12's kernel has {{steps[4, 1, 65536]['H_q']}} programs, one for each query head, on 132 SMs: sharing out the keys is worth most there. It still does not reach memory's rate: {{steps[4, 1, 65536]['bytes'] / 1e6:.0f}} MB take {{1000 * steps[4, 1, 65536]['ms']:.0f}} µs, partly for starting and merging. 32 texts with 16 key heads fill the GPU without splits: there the split kernel is {{standing(unsplit)}}. Against the fastest of SDPA's backends it is {{standing(gains(decode, 'decode', SDPA))}}. Steps that read half a gigabyte and more run at {{min(row['of_copy'] for row in full):.2f}} to {{max(row['of_copy'] for row in full):.2f}} times a copy's rate; a copy also has to write. Pages add up to {{100 * pages['now']:.0f}} % of their time. With four stages they added up to {{100 * pages['four stages']:.0f}} % (`results/decode_h200.json`, the run “four stages”): an SM had room for one such program, which seems to wait for each page's address. So where pages are looked up, and there are fewer programs than SMs, the kernel takes three stages, and two programs fit on an SM.

# %% [markdown]
# ## A latent for all heads
#
# DeepSeek-V2's *multi-head latent attention* ([MLA](https://arxiv.org/abs/2405.04434)) caches one row of 576 numbers a token for all 128 query heads. In a decode step the row serves as the key, its first 512 columns as the value: they are read once. **Predict** the FLOPs for each byte of such a step, in 16 bits, for a long text.

# %%
my_latent_intensity = None

# %%
latent = {"flops": cost.attention_flops(1, 128, 1, 65536, 576, 512), "bytes": 65536 * 576 * 2}      # one text, one layer
h200 = bench.load_results("forward_h200")
copy_rate, matmul_rate = h200["ceilings"]["copy_tb_s"], h200["ceilings"]["matmul_tflops"]
intensity = latent["flops"] / latent["bytes"]
said = compare("FLOPs for each byte of MLA's step", my_latent_intensity, intensity, "FLOPs a byte")
print(f"MLA: {intensity:.0f} FLOPs a byte (modelled); from {matmul_rate / copy_rate:.0f} on products take longer than bytes (recorded)")
figures.roofline([{"op": f"{group} to a key head"} | decode_step(65536, group) for group in (1, 16)] + [{"op": "MLA"} | latent],
                 copy_rate, matmul_rate, f"Modelled points; ceilings recorded on {bench.where(h200)}.")

# %% [markdown]
# All 128 queries use the same row, and most of its columns serve twice, as key and as value. So this decode step is limited by products, not by bytes.
#
# **Takeaway.** The more queries share a cached row, the further right a decode step lies.

# %% [markdown]
# ## Attention sinks
#
# Softmax gives away all of its weight, even where no key is worth reading. So [gpt-oss](https://arxiv.org/abs/2508.10925) learns a score $s$ for each head that joins the denominator and has no value: an *attention sink*, after the first tokens that [collect such weight](https://arxiv.org/abs/2309.17453) by themselves. No kernel has to change. A sink is a key with value 0, so its state is $(O, m, l) = (0, s, 1)$, and `merge` takes it in.
#
# **Predict.** A row has $L = 2$, and the sink's score is 2 as well. What share of its $O$ remains?

# %%
my_share_kept = None     # between 0 and 1

# %%
from flashlab.rungs.online_softmax import merge

query, keys, values = torch.randn(1, 64), torch.randn(40, 64), torch.randn(40, 64)
O, L = fa2_forward(query, keys, values)
sink = L                                                                 # as in the prediction; a model learns it
O_new, m, l = merge((O, L, torch.ones_like(L)), (torch.zeros_like(O), sink, torch.ones_like(L)))
scores = torch.cat([query @ keys.T / 8, sink[:, None]], 1).double()      # one column more
error = max_error(O_new / l[:, None], torch.softmax(scores, 1)[:, :-1] @ values.double())
assert error < 1e-6
said = compare("share of O that a sink leaves", my_share_kept, (O_new / l[:, None] / O).mean().item())
print(f"merged with a sink: {error:.1e} from a softmax with one more column")

# %% [markdown]
# **Takeaway.** A sink is one more `merge`.

# %% [markdown]
# ## An open question
#
# *Speculative decoding* lets a small model propose, say, 8 tokens, and the large one judge all of them in one step: $N_q = 8$. What does that change about the intensity, the rows of a tile, and the best number of splits? Which mask do the new tokens need among themselves? `flash_attention_decode` takes such calls: try it.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao, Haziza, Massa, Sizov 2023, [Flash-Decoding for long-context inference](https://crfm.stanford.edu/2023/10/12/flashdecoding.html) · Kwon et al. 2023, [PagedAttention](https://arxiv.org/abs/2309.06180) · Ainslie et al. 2023, [GQA](https://arxiv.org/abs/2305.13245) · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), section 3.3 on FP8 · Micikevicius et al. 2022, [FP8 formats for deep learning](https://arxiv.org/abs/2209.05433) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), on CUDA graphs
#
# **Next:** {{after("13")}}.
