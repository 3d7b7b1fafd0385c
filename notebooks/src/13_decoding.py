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
# **You will be able to** say why a model that writes one token at a time leaves most of a GPU idle; split the keys among programs and merge their results; keep keys in a cache, in one piece or in pages; and count what a window and 8-bit numbers save.
#
# **You need** chapters 06 and 07, and chapter 10 for sitting 4 · **further:** sittings 1 to 4, 40 to 45 minutes each · **runs on** CPU; the kernel in sitting 4 needs Triton, so Linux
#
# A language model reads its prompt at once. Then it writes one token after the other. In each such *decode step* every head has one new query, $N_q = 1$. The query attends to all $N_k$ tokens so far.

# %%
import math

import flashlab  # first: it tells Triton whether to compile or to interpret
import torch

from flashlab import cost
from flashlab_course import bench, figures
from flashlab_course.chapters import after
from flashlab_course.check import check
from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.lesson import changes, compare, excerpt, replay, reveal
from flashlab.memory import Memory, format_bytes, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab_course.player import play, record, record_kernel
from flashlab.rungs import fa2, split_kv
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.split_kv import split_kv_forward

torch.manual_seed(0)
H_q, H_kv, d, SMs = 32, 8, 128, 132                      # the model of this chapter; the GPU is an H100 or H200

# %% [markdown]
# ## Sitting 1 (further) · One query, many programs (45 minutes)
#
# ### One query
#
# Our model has 32 query heads and 8 key heads of $d = 128$, in 16 bits. It writes one text, so the batch is 1. FA2 has one program for each query block of each query head. The GPU has 132 SMs. **Predict** the programs of a decode step, and the share of the SMs that have work.

# %%
my_idle_GPU = {"programs": None, "% of the SMs": None}

# %%
said = compare("FA2 in a decode step", my_idle_GPU, {"programs": H_q, "% of the SMs": 100 * H_q / SMs})
figures.programs_on_sms({f"a decode step's {H_q} programs": H_q, "the 2048 of a prompt of 8192": 2048}, SMs)

# %% [markdown]
# A longer text does not add programs. A larger batch does, but each text brings its own keys to read.
#
# Each number of $K$ and $V$ takes part in one multiplication and one addition for each query that uses it. In *grouped-query attention* (GQA) several query heads share a key head, and read it once together. **Predict** the FLOPs for each byte read, for a long text in 16 bits.

# %%
my_intensity = {"a key head each": None, "4 to a key head": None}

# %%
def decode_step(N_k, group):
    """FLOPs and bytes of one key head: its group of query heads are the rows of one tile."""
    moved = cost.fa2_forward(group, N_k, d, B_r=group, B_c=64, element_size=2)
    return {"flops": moved.matmul_flops, "bytes": moved.traffic}


named = {"a key head each": decode_step(65536, 1), "4 to a key head": decode_step(65536, 4)}
said = compare("FLOPs for each byte of a decode step", my_intensity, {name: step["flops"] / step["bytes"] for name, step in named.items()}, "FLOPs a byte")

# %%
ceilings = bench.load_results("forward_h200")
copy_tb_s, matmul_tflops = (ceilings["ceilings"][name] for name in ("copy_tb_s", "matmul_tflops"))
cache_bytes = 2 * 131072 * H_kv * d * 2                                  # of one layer, 131,072 tokens
prompt = {"op": "a prompt of 8192", "flops": cost.attention_flops(1, 1, 8192, 8192, d), "bytes": 2 * 4 * 8192 * d}
points = [{"op": name} | step for name, step in named.items()] + [{"op": "16 to a key head"} | decode_step(65536, 16), prompt]
figures.roofline(points, copy_tb_s, matmul_tflops, f"Modelled points; ceilings recorded on {bench.where(ceilings)}.")

# %% [markdown]
# A decode step cannot be faster than one reading of its keys and values. For 131,072 tokens one layer of our model holds {{cache_bytes / 1e6:.0f}} MB. At a copy's recorded rate, {{copy_tb_s:.2f}} TB/s, reading them takes {{cache_bytes / copy_tb_s / 1e6:.0f}} µs. But one SM can have only so many bytes on their way at a time (chapter 02). To reach that rate, all SMs must load.
#
# **Takeaway.** Decoding is limited by bytes, and by the number of SMs that ask for them.
#
# ### Split, and merge
#
# There is one query, but there are many keys. So let several programs share a query. Each attends to its own *chunk* of the keys, as if there were no others. A second kernel merges their results. This is **Flash-Decoding**.
#
# **Your turn** ([exercises/ex13_split_and_merge.py](../exercises/ex13_split_and_merge.py), 30 minutes). Write both kernels on modelled memory. The checker counts the bytes.

# %%
check("ex13_split_and_merge")

# %%
reveal("ex13_split_and_merge")

# %%
replay("ex13_split_and_merge")

# %% [markdown]
# Our version is the rung `split_kv_forward`. Against FA2's program (`-`), its program (`+`) walks the key blocks of one chunk, and stores to a place of its own.

# %%
print(changes(fa2._program, split_kv._program))

# %% [markdown]
# The merge is a running softmax over chunks (chapter 03). The "score" of a chunk is $L_s$, its "value" is the finished $O_s$. Watch two programs with two key blocks each, then the merge.

# %%
q, k, v = torch.randn(1, 4), torch.randn(16, 4), torch.randn(16, 4)
play(record(split_kv_forward, q, k, v, splits=2, B_r=1, B_c=4, sram_bytes=1024))

# %% [markdown]
# Each chunk stores one row of $O_s$ and one number $L_s$, and the merge reads them again. Each program also loads $Q$. **Predict** for one query, 4096 keys, $d = 64$: how many per cent more bytes do 16 splits move than one?

# %%
my_extra = None     # per cent

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
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# A chunk adds about $3d$ numbers: $O_s$ twice, and $Q$. Each of its 256 keys takes $2d$ numbers.
#
# </details>
#
# **Takeaway.** Where queries are few, split the keys: programs become short for few bytes more. $O$ and $L$ are all that a chunk hands on.
#
# *End of sitting 1. To continue later, run the notebook from the top.*

# %% [markdown]
# ## Sitting 2 (further) · A cache, and its pages (45 minutes)
#
# ### A cache that grows
#
# Keys and values of old tokens do not change, so they are kept in the **KV cache**. **Predict** the KiB that one token takes in our model with 32 layers.

# %%
my_token = None     # KiB

# %%
per_token = 32 * H_kv * d * 2 * 2
said = compare("a token in the cache", my_token, per_token / 1024, "KiB")
print(f"{format_bytes(per_token)} a token; with 131,072 tokens {format_bytes(131072 * per_token)} for one text")

# %% [markdown]
# Room for the cache is reserved, and each step writes its few numbers behind the last token.
#
# **Your turn** ([exercises/ex13_kv_update.py](../exercises/ex13_kv_update.py), 15 minutes). The texts of a batch have different lengths.

# %%
check("ex13_kv_update")

# %%
reveal("ex13_kv_update")

# %% [markdown]
# The next cell writes twelve tokens, one at a time. Each query attends to the cache as it is at that moment, without a mask. **Predict** what the twelve outputs are together: `"attention without a mask"`, `"causal attention"`, or `"neither"`.

# %%
my_twelve = None

# %%
new_q, new_k, new_v = (torch.randn(12, 16) for _ in range(3))
cache_K, cache_V, outputs = torch.full((20, 16), torch.nan), torch.full((20, 16), torch.nan), []
for n in range(12):
    cache_K[n], cache_V[n] = new_k[n], new_v[n]
    outputs.append(split_kv_forward(new_q[n:n + 1], cache_K[:n + 1], cache_V[:n + 1], splits=3, B_c=2)[0])
off_by = {name: max_error(torch.cat(outputs), attention(new_q, new_k, new_v, causal=causal)[0])
          for name, causal in (("attention without a mask", False), ("causal attention", True))}
said = compare("twelve steps together", my_twelve, min(off_by, key=off_by.get))
print(", ".join(f"{name}: off by {error:.1e}" for name, error in off_by.items()))

# %% [markdown]
# **Takeaway.** A prompt needs a mask. A decode step does not: later tokens are not in the cache yet. What lies behind the last key, here NaN, must not be read.
#
# ### Pages
#
# Nobody knows how long a text will become. If room for the longest is reserved, most of it stays empty. Here are five texts, with room for 2048 tokens each, or with room in pages of 16 tokens as they need it.

# %%
lengths = [40, 700, 130, 1515, 12]
taken = {"one piece each": 2048 * len(lengths), "pages of 16": sum(16 * math.ceil(n / 16) for n in lengths)}
used = {name: 100 * sum(lengths) / room for name, room in taken.items()}
figures.bars(used, f"{used['one piece each']:.0f} % of the room is used in one piece, {used['pages of 16']:.0f} % in pages",
             f"Modelled: texts of {', '.join(map(str, lengths))} tokens.", "% of the room that is taken")

# %% [markdown]
# A **paged** cache is one pool of pages for all texts. A text takes a page when it needs one, and returns its pages when it ends. So its pages lie anywhere in the pool. Its row of the **block table** names them, in order. The idea comes from the page tables of operating systems (PagedAttention, Kwon et al. 2023).

# %%
block_table = [[7, 2, 11], [0, 5], [9, 1, 3, 6]]
filled = [[1, 1, 8 / 16, 0], [1, 1 / 16, 0, 0], [1, 1, 1, 12 / 16]]                       # of 40, 17 and 60 keys
figures.matrices({"": (filled, [row + [""] * (4 - len(row)) for row in block_table])}, f"117 keys in 9 pages of 16: {117 / 144:.0%} of their room is used",
                 "Definition: in a cell the page's place in the pool; the darker, the fuller.", "page of the sequence", "sequence")

# %% [markdown]
# **Predict** where key 45 of sequence 2 (the last row of the picture) lies: the number of its page in the pool, and its row in that page. All of them count from 0.

# %%
my_key_45 = {"page": None, "row": None}

# %%
said = compare("key 45 of sequence 2", my_key_45, {"page": block_table[2][45 // 16], "row": 45 % 16})

# %% [markdown]
# **Your turn** ([exercises/ex13_page_lookup.py](../exercises/ex13_page_lookup.py), 20 minutes). Load a tile of keys from a paged cache.

# %%
check("ex13_page_lookup")

# %%
reveal("ex13_page_lookup")

# %% [markdown]
# **Takeaway.** A page costs one address for thousands of numbers, and wastes little room.
#
# *End of sitting 2.*

# %% [markdown]
# ## Sitting 3 (further) · Fewer bytes (40 minutes)
#
# ### What a window leaves to read
#
# With a sliding window a query sees its own key and the `left` keys before it. The bytes of a step then stop growing.

# %%
Ns = [2**n for n in range(8, 18)]
curves = {name: {N: H_kv * cost.fa2_forward(1, min(N, window), d, B_r=1, B_c=64, element_size=2).read for N in Ns}
          for name, window in (("no window", max(Ns)), ("a window of 4096 keys", 4096))}
figures.curves(curves, f"At 131,072 keys a window of 4096 reads {curves['a window of 4096 keys'][131072] / curves['no window'][131072]:.1%} of the bytes",
               f"Modelled: cost.fa2_forward for {H_kv} key heads, d = {d}, 16 bits, one layer.", "keys in the cache", "bytes read in a step",
               log="xy", byte="y", ticks=Ns[::3])

# %% [markdown]
# **Your turn** ([exercises/ex13_window_tiles.py](../exercises/ex13_window_tiles.py), 15 minutes). Find the tiles that a window reaches, and how many of them need a mask.

# %%
check("ex13_window_tiles")

# %%
reveal("ex13_window_tiles")

# %% [markdown]
# Now combine a window of 4096 keys with 16 splits of 65,536 keys. The rung cuts the *text* into 16 equal chunks. **Predict** how many of the 16 programs load a key.

# %%
my_programs_at_work = None

# %%
first = 65536 - 4096                                       # the first key that the last query sees
at_work = sum(chunk.stop > first for chunk in tiles(65536, 65536 // 16))
said = compare("programs with a key in the window", my_programs_at_work, at_work)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# A chunk has 4096 keys, and the window is the last chunk. A launcher therefore has to cut the *window* into chunks, as the Triton kernel of sitting 4 does.
#
# </details>
#
# **Takeaway.** A window bounds the bytes of a step. Skip the tiles outside it, and split the tiles that are left.
#
# ### Eight bits
#
# FlashAttention-3 has a forward pass in **FP8**. Numbers take half the bytes, and a Hopper GPU multiplies them twice as fast. What is the price?
#
# A float8 of type e4m3 has 4 bits of exponent and 3 of fraction. So there are 8 numbers from 1 to 2, with 1 and without 2; then 8 from 2 to 4, and so on to 448. A cast takes each number to the nearest of them. **Predict** the largest error of a number from 1 to 448, in per cent of itself.

# %%
my_step = None     # per cent

# %%
x = torch.linspace(1, 448, 100_000)
rounded = x.to(torch.float8_e4m3fn).float()
off = (rounded - x).abs() / x
said = compare("largest relative error of e4m3", my_step, 100 * off.max().item(), "%")
print(f"{x[off.argmax()]:.2f} becomes {rounded[off.argmax()]:.2f}: {off.max():.1%} (measured here)")

# %% [markdown]
# Before the cast, each block of rows is divided by a scale of its own, which makes its largest number 448. A scale does not help against the relative error: a large number keeps a large error.
#
# So FlashAttention-3 multiplies $Q$ and $K$ by the same random orthogonal matrix $M$ (*incoherent processing*). The scores stay the same, since $(QM)(KM)^\top = QMM^\top K^\top = QK^\top$. But one large product becomes a sum of many middling ones, whose errors partly cancel. Here large numbers are about 10 times the others: once in a thousand numbers, and in four whole columns, as in some trained models.

# %%
from flashlab.operator.fp8 import flash_attention_fp8

N = 1024
few = [torch.randn(N, d) + 10 * torch.randn(N, d) * (torch.rand(N, d) < 0.001) for _ in range(2)]
columns = [torch.randn(N, d) + torch.where(torch.arange(d) % 32 == 3, 10.0, 0.0) for _ in range(2)]
values, errors = torch.randn(N, d), {}
for name, (queries, keys) in {"few numbers": few, "four columns": columns}.items():
    QKV = [T.half()[None, None] for T in (queries, keys, values)]        # (1, 1, N, d)
    truth, _ = attention(*QKV)
    for way, result in (("8 bits", flash_attention_fp8(*QKV, rotate=False)), ("8 bits, rotated", flash_attention_fp8(*QKV)),
                        ("16 bits", fa2_forward(*(T[0, 0] for T in QKV))[0])):
        errors[f"{name}: {way}"] = (result - truth).square().mean().sqrt().item()
left = {name: 100 * errors[f"{name}: 8 bits, rotated"] / errors[f"{name}: 8 bits"] for name in ("few numbers", "four columns")}
figures.bars(errors, f"A rotation leaves {left['few numbers']:.0f} % of the error where few numbers are large, "
             f"{left['four columns']:.0f} % where four columns are", "Measured here: 1024 queries and keys, d = 128, casts emulated on the CPU.",
             "root mean square of the error, against float64")

# %% [markdown]
# **Change this and run again**: `< 1` instead of `< 0.001` makes all numbers large. Does the rotation still help?
#
# <details><summary><b>Why?</b> (after the change)</summary>
#
# Little: where all numbers are large, there is nothing to spread.
#
# </details>
#
# Hopper's tensor cores add FP8 products with about 14 bits. So `flashlab/operator/fp8_kernel.py` adds up the results of key blocks itself, in float32.
#
# Only the products are twice as fast. Exponentials take as long as before. Quantizing is one more pass over $Q$, $K$ and $V$.

# %%
in_8_bits = bench.load_results("fp8_h200")
pick = {row["implementation"]: row for row in in_8_bits["rows"] if (row["N"], row["d"], row["causal"]) == (16384, 128, False)}
error_times = pick["fp8 kernel"]["error"] / pick["fa2_hopper_forward"]["error"]
faster = {name: {f"N = {row['N']}{', causal' * row['causal']}": (ratio, tied) for row, ratio, tied in gains(in_8_bits, name, "fa2_hopper_forward")}
          for name in ("fp8 kernel", "flash_attention_fp8")}
kernel_takes, call_takes = ({size: 100 / ratio for size, (ratio, _) in found.items()} for found in faster.values())
place = lambda ratio, tied: "level" if tied else "ahead" if ratio > 1 else "behind"
figures.bars({size: {"kernel": kernel_takes[size], "quantizing Q, K, V": call_takes[size] - kernel_takes[size]} for size in kernel_takes},
             "With quantizing, the FP8 call is " + ", ".join(f"{place(*one)} at {size} ({one[0]:.2f}x)" for size, one in faster["flash_attention_fp8"].items()),
             f"Recorded on {bench.where(in_8_bits)}; d = 128; beside chapter 12's last rung.", "% of the bfloat16 kernel's time", walls={"bfloat16": 100})

# %% [markdown]
# Quantizing costs the same for each token at any $N$. Attention's work for a token grows with $N$, and so does what FP8 saves. At $N = 16384$ the error is {{error_times:.0f}} times that of bfloat16.
#
# A decode step has one query, so every pass over the cache counts. **Predict** the bytes that a step moves for each number of $K$ and $V$: with a cache in 16 bits; with the same cache, quantized in every call into a second one that attention reads; and with a cache whose tokens were quantized once, when they came.

# %%
my_bytes_a_number = {"16 bits": None, "quantized in every call": None, "quantized once": None}

# %%
wide, narrow = torch.bfloat16.itemsize, torch.float8_e4m3fn.itemsize
said = compare("bytes for a number of the cache", my_bytes_a_number,
               {"16 bits": wide, "quantized in every call": wide + 2 * narrow, "quantized once": narrow}, "bytes")

# %% [markdown]
# **Takeaway.** FP8 saves bytes and costs digits: measure the error on your own numbers. Quantize a token when it enters the cache, not in every call.
#
# ### A latent for all heads
#
# *Multi-head latent attention* ([MLA](https://arxiv.org/abs/2405.04434), DeepSeek-V2) caches one row of 576 numbers for each token. All 128 query heads use it: as the key, and its first 512 columns as the value. A step reads the row once. **Predict** the FLOPs for each byte of such a step, in 16 bits, for a long text.

# %%
my_latent_intensity = None

# %%
latent = {"flops": cost.attention_flops(1, 128, 1, 65536, 576, 512), "bytes": 65536 * 576 * 2}      # one text, one layer
intensity = latent["flops"] / latent["bytes"]
said = compare("FLOPs for each byte of MLA's step", my_latent_intensity, intensity, "FLOPs a byte")
print(f"from {matmul_tflops / copy_tb_s:.0f} FLOPs a byte on, products take longer than bytes (recorded)")
figures.roofline([{"op": f"{group} to a key head"} | decode_step(65536, group) for group in (1, 16)] + [{"op": "MLA"} | latent],
                 copy_tb_s, matmul_tflops, f"Modelled points; ceilings recorded on {bench.where(ceilings)}.")

# %% [markdown]
# **Takeaway.** The more queries share a cached row, the further right a decode step lies in the roofline.
#
# ### Attention sinks
#
# The weights of a softmax add up to 1, even where no key is worth reading. [gpt-oss](https://arxiv.org/abs/2508.10925) therefore learns one more score $s$ for each head. It joins the denominator and has no value: an *attention sink*, named after the first tokens, which [collect such weight](https://arxiv.org/abs/2309.17453). No kernel has to change. A sink is a key with value 0. Its state is $(O, m, l) = (0, s, 1)$, and chapter 03's `merge` takes it in.
#
# **Predict.** A row has $L = 2$, and the sink's score is 2, too. What share of its $O$ remains?

# %%
my_share_kept = None     # between 0 and 1

# %%
from flashlab.rungs.online_softmax import merge

one_q, some_k, some_v = torch.randn(1, 64), torch.randn(40, 64), torch.randn(40, 64)
O_1, L_1 = fa2_forward(one_q, some_k, some_v)
sink = L_1                                                               # as in the prediction; a model learns it
O_2, m_2, l_2 = merge((O_1, L_1, torch.ones_like(L_1)), (torch.zeros_like(O_1), sink, torch.ones_like(L_1)))
scores = torch.cat([one_q @ some_k.T / 8, sink[:, None]], 1).double()    # one column more
sink_error = max_error(O_2 / l_2[:, None], torch.softmax(scores, 1)[:, :-1] @ some_v.double())
assert sink_error < 1e-6
said = compare("share of O that a sink leaves", my_share_kept, (O_2 / l_2[:, None] / O_1).mean().item())
print(f"merged with a sink: {sink_error:.1e} from a softmax with one more column")

# %% [markdown]
# **Takeaway.** A sink is one more `merge`.
#
# *End of sitting 3.*

# %% [markdown]
# ## Sitting 4 (further) · How many splits, the kernel, and the clock (45 minutes)
#
# ### How many splits?
#
# The 4 query heads of a group are now rows of one tile, so there are 8 programs, one for each key head. 16 splits make 128 programs, 17 make 136. The GPU has 132 SMs and each runs one program at a time. A program takes one step for each of its key blocks, and two more for beginning and storing. Each key head has 1024 key blocks. **Predict** the time of 17 splits as a multiple of that of 16.

# %%
my_seventeen = None     # times

# %%
length = {s: math.ceil(1024 / s) + 2 for s in (16, 17)}                  # steps of a program
said = compare("17 splits against 16", my_seventeen, 2 * length[17] / length[16], "times")
figures.programs_on_sms({f"{s} splits": (8 * s, steps) for s, steps in length.items()}, SMs)

# %% [markdown]
# **Your turn** ([exercises/ex13_choose_splits.py](../exercises/ex13_choose_splits.py), 20 minutes). Find the number of splits that takes the least time by this model.

# %%
check("ex13_choose_splits")

# %%
reveal("ex13_choose_splits")

# %%
def steps_of(s, P=8, T=1024):
    """Waves of programs times the steps of one."""
    return math.ceil(P * s / SMs) * (math.ceil(T / s) + 2)


best = {batch: min(range(1, 1025), key=lambda s: steps_of(s, 8 * batch)) for batch in (1, 9, 32)}     # noqa: B023    called at once
print(f"splits for a batch of 1, 9, 32: {list(best.values())} (modelled)")
of_splits = {s: steps_of(s) for s in range(1, 81)}
figures.curves({"steps": of_splits}, f"{best[1]} splits are {of_splits[1] / of_splits[best[1]]:.1f} times as fast as none",
               "Modelled: 8 programs before the split, 1024 key blocks each, 132 SMs; waves of programs times the steps of one.", "splits",
               "steps of one key block", log="y", walls={f"{best[1]} splits: {of_splits[best[1]]} steps": best[1]})

# %% [markdown]
# The curve jumps wherever a new wave begins, since that wave is nearly empty. Many splits do not help either, because each program has to begin and to store. `flashlab/operator/splits.py` decides by this rule. It is a model: real SMs run several programs at a time.
#
# **Takeaway.** Split until every SM has work, and avoid a last wave that is nearly empty.
#
# ### The kernel in Triton

# %%
from flashlab_course.doctor import as_text, check_triton, import_triton
from flashlab_course.skip import skip_the_rest

print(as_text([check_triton()]))
if import_triton() is None:
    skip_the_rest("The rest of this chapter needs Triton.")

# %%
from flashlab.operator.decode_kernels import decode_kernel, merge_kernel
from flashlab.operator.splits import choose_splits
from flashlab.triton_mode import interpreted, kernel_device
from flashlab_course.lesson.yours import answer

device = kernel_device()


def play_decode():
    """One text of 80 keys, 4 query heads on one key head, d = 16, two splits of tiles of 32 keys."""
    Q, K, V, n = torch.randn(1, 4, 1, 16), torch.randn(1, 1, 80, 16), torch.randn(1, 1, 80, 16), torch.tensor([80])
    run = record_kernel(flashlab.flash_attention_decode, Q, K, V, n.int(), splits=2, backend="triton")
    for step in run.steps:
        if step.phase == "decode_kernel":                 # its parameters O and L are given O_split and L_split
            step.moves = tuple(move._replace(name=f"{move.name}_split", cols=move.cols or (0, 1))
                               if move.name in "OL" else move for move in step.moves)
    run.title = "decode_kernel, then merge_kernel"
    return play(run)

# %% [markdown]
# `flash_attention_decode` launches two kernels: `decode_kernel`, with a program for each chunk of each key head, and `merge_kernel`. Here is a small step: 4 query heads share one key head, and 80 keys in 3 tiles are split in two. Follow one program from its first line to its two stores, then the merge of a row.

# %%
play_decode() if interpreted() else print("Kernels are compiled here. Set TRITON_INTERPRET=1 to see the player.")

# %% [markdown]
# Four things differ from chapter 10's kernel. First, the program's number says which rows, which chunk and which key head it works on. A tile holds the rows of all query heads of a group, so each key is loaded once for all of them.

# %%
print(excerpt(decode_kernel, "heads_rows =", "Q_i = "))

# %% [markdown]
# Second, `start` and `stop` are the tiles that some row sees: up to the text's end, or within its window. Each text splits its own tiles.

# %%
print(excerpt(decode_kernel, "start, stop =", "first, end ="))

# %% [markdown]
# Third, in a paged cache the address of a key is its page's address, and its row in that page: your `tile_of_keys`. The page of the next tile is looked up early, so that no load waits for another.

# %%
print(excerpt(decode_kernel, "keys = j", "page = page_of(j + 1"))

# %% [markdown]
# Fourth, the merge has one program for each row, and takes 16 chunks at a time.

# %%
print(excerpt(merge_kernel, "L_s =", "O_i = alpha"))

# %% [markdown]
# Here are three texts of different lengths. The cache holds NaN behind their ends, and the same call writes one new key to each. Once your `choose_splits` passes, it chooses the splits.

# %%
Q = torch.randn(3, 8, 1, 32, device=device)                              # 8 query heads, 2 key heads
K_cache, V_cache = (torch.full((3, 2, 128, 32), torch.nan, device=device) for _ in range(2))
K, V = (torch.randn(3, 2, 128, 32, device=device) for _ in range(2))
counts = torch.tensor([5, 100, 64], dtype=torch.int32, device=device)
for b, n in enumerate(counts.tolist()):
    K_cache[b, :, :n], V_cache[b, :, :n] = K[b, :, :n], V[b, :, :n]
new = {f"{name}_new": torch.stack([T[b, :, n:n + 1] for b, n in enumerate(counts.tolist())]) for name, T in (("K", K), ("V", V))}
choose = answer("ex13_choose_splits") or choose_splits                   # yours, once it passes
splits = choose(3 * 2, 128 // 32, SMs)
print(f"{splits} splits, chosen by {'flashlab' if choose is choose_splits else 'your choose_splits'}")
O, L = flashlab.flash_attention_decode(Q, K_cache, V_cache, counts, **new, splits=splits, return_lse=True, backend="triton")
for b, n in enumerate((counts + 1).tolist()):
    print(f"text {b}, {n} keys: {judge(O[b:b + 1], L[b:b + 1], Q[b:b + 1], K[b:b + 1, :, :n], V[b:b + 1, :, :n])}")

# %% [markdown]
# The texts now have 6, 101 and 65 keys, in tiles of 32. Each text splits its tiles among 4 programs for each key head. **Predict** how many of one key head's 12 programs read no key.

# %%
my_idle_programs = None

# %%
from flashlab_course.lesson.accesses import touched

seen = touched(lambda: flashlab.flash_attention_decode(Q, K_cache, V_cache, counts + 1, splits=4, backend="triton"))
reads = torch.full((3, 4, 4), torch.nan)                                             # text, split, tile of 32 keys
for access in seen.of("K"):
    head, split = access.program[0] // 4, access.program[0] % 4                      # as printed above, with 1 row block
    if head % 2 == 0:                                                                # key head 0
        keys = torch.from_numpy(access.elements[access.mask] // 32 % 128).unique()
        reads[head // 2, split, keys[0] // 32] = len(keys)
idle = reads.isnan().all(-1).sum().item()
compare("programs without a key", my_idle_programs, idle if not seen.problem else "unseen")
figures.matrices({f"text {b}, {n} keys": (reads[b], None) for b, n in enumerate((counts + 1).tolist())},
                 f"Each text splits its own keys, and {idle} of 12 programs get none",
                 f"Measured here: the keys that the programs of key head 0 load, in tiles of 32. {seen.problem}", "tile",
                 rows=[f"split {s}" for s in range(4)])

# %% [markdown]
# Now the same cache in random pages. The same keys lie in the same tiles, so the result has the same bits.

# %%
page_size, pages = 16, 3 * 128 // 16
order = torch.randperm(pages, device=device)
pools = [torch.empty(pages, 2, page_size, 32, device=device) for _ in range(2)]
for pool, cache in zip(pools, (K_cache, V_cache), strict=True):
    pool[order] = cache.unflatten(2, (-1, page_size)).transpose(1, 2).flatten(0, 1)
paged = flashlab.flash_attention_decode(Q, *pools, counts + 1, block_table=order.view(3, -1).to(torch.int32), splits=4, backend="triton")
print("pages, same bits:", torch.equal(paged, O))
one = slice(1, 2)                                                        # the second text
in_window = flashlab.flash_attention_decode(Q[one], K_cache[one], V_cache[one], counts[one] + 1, window=(15, 0), return_lse=True, backend="triton")
print("window:", judge(*in_window, Q[one], K[one, :, :101], V[one, :, :101], window=(15, 0)))

# %% [markdown]
# **Takeaway.** The kernel is FA2's loop with other bounds and other addresses.
#
# ### One launch for a thousand
#
# A decode step consists of hundreds of short kernels, and Python launches each of them. The next cell compares two times: reading one layer's cache of 2048 tokens, and launching one kernel.

# %%
ways, ways_words = bench.numbers("timing_ways", name="basics_h200")
launch = next(1000 * row["ms"] for row in ways if row["how"] == "Python's clock, not synchronized")
reading = 2 * 2048 * H_kv * d * 2 / copy_tb_s / 1e6
print(f"2048 tokens: {reading:.1f} µs to read (modelled); a launch takes the host {launch:.1f} µs. {ways_words}")

# %% [markdown]
# If a launch takes longer than the kernel, the GPU waits for Python. A **CUDA graph** records the launches of a step once, and replays all of them with one call. Then no launch may depend on a number that the host has to read. So `lengths` stays on the GPU, and the number of splits follows from the size of the cache, not from the length of the text.

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
    q_1, held = torch.randn(3, 8, 1, 32, device=device), torch.tensor([6, 101, 65], dtype=torch.int32, device=device)
    (K_1, V_1), out = torch.randn(2, 3, 2, 128, 32, device=device), torch.empty_like(q_1)
    graph = graph_of(lambda: out.copy_(flashlab.flash_attention_decode(q_1, K_1, V_1, held)))
    held -= 1                                                            # other numbers in the same tensor
    graph.replay()
    print("replayed with one key less:", judge(out[:1], None, q_1[:1], K_1[:1, :, :5], V_1[:1, :, :5]))
else:
    print("no GPU here: nothing to launch, nothing to record")

# %% [markdown]
# **Takeaway.** Replay short steps as a graph, and let no step ask the GPU for a number.
#
# ### The clock
#
# Decoding is limited by bytes, so the score is the rate at which $K$ and $V$ are read. A copy on an H200 moves {{copy_tb_s:.1f}} TB/s, reading and writing together. “+ one pipeline” and “Gluon, Hopper” are chapter 12's kernels.

# %%
from flashlab_course.bench.decode import FORWARD, SDPA

decode = bench.load_results("decode_h200")
timed = {(row["H_kv"], row["B"], row["N"]): row for row in decode["rows"] if row["implementation"] == "decode" and row["ms"]}
rows = {B: [row | {"implementation": row["implementation"].replace("decode", "Flash-Decoding")} for row in decode["rows"]
            if row["ms"] and (row["H_kv"], row["B"]) == (4, B)] for B in (1, 32)}


def rates(B):
    """TB/s of K and V for a batch, beside a copy's."""
    return figures.curves(figures.series(rows[B], "N", "tb_s"), f"A batch of {B}: at 65,536 keys Flash-Decoding reads at "
                          f"{timed[4, B, 65536]['of_copy']:.0%} of a copy's rate", f"Recorded on {bench.where(decode)}; 32 query heads of one query, 4 key heads, d = 128.", "keys of a text", "TB/s of K and V",
                          log="x", ylim=(0, None), ceilings={"a copy": rows[B][0]["copy_tb_s"]})


rates(1)

# %%
rates(32)

# %%
over = {whose: {(row["H_kv"], row["B"], row["N"]): (ratio, tied) for row, ratio, tied in gains(decode, "decode", rivals)}
        for whose, rivals in (("chapter 12's", FORWARD), ("SDPA's", SDPA))}                     # the fastest of these
for heads, words in ((4, "4 key heads for 32"), (16, "16 key heads for 16")):
    for B in (1, 32):
        print(f"{words}, {B:>2} texts: {timed[heads, B, 65536]['of_copy']:4.0%} of a copy's rate, " + ", ".join(
            f"{found[heads, B, 65536][0]:.2f} x {whose} fastest{' (tied)' * found[heads, B, 65536][1]}" for whose, found in over.items()))
full = [row for row in timed.values() if row["bytes"] >= 2**29]
page_cost = {(label, long): max(
    100 * (row["ms"] / other["ms"] - 1) for row in run["rows"] for other in run["rows"] if row["ms"] and (row["bytes"] >= 2**29) == long
    and row["implementation"] == "decode, paged" and other["implementation"] == "decode" and all(row[key] == other[key] for key in ("H_kv", "B", "N")))
    for label, run in (("now", decode), ("four stages", bench.load_results("decode_h200", "four stages"))) for long in (True, False)}
by_splits = over["chapter 12's"][4, 1, 131072][0]
unsplit = [(row, *found) for row, *found in gains(decode, "decode", FORWARD) if (row["H_kv"], row["B"]) == (16, 32)]

# %% [markdown]
# For one text chapter 12's kernel has only {{timed[4, 1, 65536]['H_q']}} programs on 132 SMs. At 131,072 keys, splitting is {{by_splits:.1f}} times as fast.
#
# | recorded | |
# |---|---|
# | one text, {{timed[4, 1, 65536]['bytes'] / 1e6:.0f}} MB of $K$ and $V$ | {{1000 * timed[4, 1, 65536]['ms']:.0f}} µs, with starting and merging |
# | 32 texts, 16 key heads, beside chapter 12's kernels | {{standing(unsplit)}} |
# | all sizes, beside the fastest of SDPA's backends | {{standing(gains(decode, 'decode', SDPA))}} |
# | steps that read half a gigabyte or more | {{min(row['of_copy'] for row in full):.2f}} to {{max(row['of_copy'] for row in full):.2f}} times a copy's rate |
# | pages add to their time, at most | {{page_cost['now', True]:.0f}} %; with four stages {{page_cost['four stages', True]:.0f}} % |
# | pages add to a shorter step's, at most | {{page_cost['now', False]:.0f}} %; with four stages {{page_cost['four stages', False]:.0f}} % |
#
# A step can be faster than a copy's rate, since a copy also has to write. With four stages (chapter 12) only one program fits on an SM, with three stages two. While one waits for a page's address, the other can work. So the kernel takes three where it looks up pages and there are fewer programs than SMs.

# %% [markdown]
# ### An open question
#
# In *speculative decoding* a small model proposes, say, 8 tokens, and the large one judges all of them in one step: $N_q = 8$. What does that change about the intensity, the rows of a tile and the best number of splits? Which mask do the new tokens need? `flash_attention_decode` takes such calls: try it.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Dao, Haziza, Massa, Sizov 2023, [Flash-Decoding for long-context inference](https://crfm.stanford.edu/2023/10/12/flashdecoding.html) · Kwon et al. 2023, [PagedAttention](https://arxiv.org/abs/2309.06180) · Ainslie et al. 2023, [GQA](https://arxiv.org/abs/2305.13245) · Shah et al. 2024, [FlashAttention-3](https://arxiv.org/abs/2407.08608), section 3.3 on FP8 · Micikevicius et al. 2022, [FP8 formats for deep learning](https://arxiv.org/abs/2209.05433) · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), on CUDA graphs
#
# **Next:** {{after("13")}}.
