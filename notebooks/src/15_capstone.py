# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 15 · Capstone: a GPT on your own kernels
#
# **You will be able to** train a small language model whose attention is your own code, say what a training step costs in memory and FLOPs, and let the model write with a KV cache.
#
# **You need** chapters 08 and 11 · **sittings 1 to 3:** 15, 30 and 40 minutes · **runs on** CPU or GPU
#
# The model is small and has all the parts of a large one. Only its attention changes.

# %%
import flashlab  # first: it tells Triton where to run
import torch

from flashlab.memory import kernel, load, store, tiles
from flashlab.triton_mode import kernel_device
from flashlab_course import figures, gpt
from flashlab_course.bench import load_results, where
from flashlab_course.chapters import after
from flashlab_course.check import check
from flashlab_course.lesson import compare, nearest, reveal, yours
from flashlab_course.player import play, record

device = kernel_device()
torch.set_num_threads(1)                             # the matrices are small: a second thread would mostly wait for the first
copy = load_results("forward_h200")["ceilings"]["copy_tb_s"]
print(f"The models below train on {torch.cuda.get_device_name() if device == 'cuda' else 'one core of the CPU'}.")

# %% [markdown]
# This trains for seconds. At the end, come back and set `steps` to 1500: on one core that takes five minutes, and the model begins to spell.

# %%
steps = 120                                          # change me: 1500

# %% [markdown]
# ## Sitting 1 · A model and its attention
#
# ### The text, and the model
#
# The text is from Shakespeare's plays, a million bytes that come with the course. A token is a byte: there are 256 of them, and no tokenizer. The last tenth is held back.

# %%
tokens, held_back = gpt.split(gpt.encode(gpt.text()))
print(f"{len(tokens):,} tokens to train on, {len(held_back):,} held back. It begins:\n")
print(gpt.text()[:148])

# %% [markdown]
# In each layer attention lets a token look at those before it, then an MLP works on each token alone. Positions enter as rotations of $Q$ and $K$, so no table limits the length that the code takes. Here is a layer, from `flashlab_course/gpt/model.py`:

# %%
import inspect

print(inspect.getsource(gpt.model.Block.forward))

# %% [markdown]
# The small model has 2 layers of 128 columns, and 2 query heads of 64 columns that share one head of keys and values. The MLP is four times as wide. An embedding of 256 × 128 comes first, a head of the same size last. **Predict** two things: how many weights are there, without norms? And the loss before training, in nats a token?

# %%
my_model = {"weights": None, "first loss": None}

# %%
shape = gpt.Shape(layers=2, width=128, heads=2, kv_heads=1)
model = gpt.GPT(shape, gpt.ATTENTIONS["flash_attention"]).to(device)
matrices = {name: weight for name, weight in model.named_parameters() if weight.dim() == 2}
first = gpt.held_back_loss(model, held_back)
print(f"{sum(weight.numel() for weight in matrices.values()):,} weights; the first loss is {first:.2f}, "
      f"and ln 256 = {torch.tensor(256.0).log():.2f}")
_ = compare("the small GPT", my_model, {"weights": sum(weight.numel() for weight in matrices.values()), "first loss": first})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# A layer has $2 \cdot 128^2$ weights for $Q$ and the output, $2 \cdot 128 \cdot 64$ for $K$ and $V$, and $2 \cdot 128 \cdot 512$ in the MLP. A model that knows nothing finds all 256 bytes equally likely: its loss is $\ln 256$.
#
# </details>
#
# ### Attention is an argument
#
# All that the model asks for is `attention(Q, K, V, causal=True)`, which returns $O$. Naive attention stores $S$ and $P$ for every head. SDPA math is PyTorch's naive attention. `flash_attention` is the course's operator. Yours is the `autograd.Function` of chapter 08 on a CPU, and your Triton kernels on a GPU.

# %%
mine, still_open = yours.attentions()
attentions = {name: gpt.ATTENTIONS[name] for name in ("naive", "flash_attention", "SDPA math")} | mine
print("These train below:", ", ".join(attentions))
if still_open:
    print("Yours joins them once this passes:", ", ".join(still_open))

# %% [markdown]
# Do they agree before training? Compare gradients in float64, on the same weights and text. **Predict** the largest difference, relative to the largest gradient: about $10^{-16}$, $10^{-12}$, $10^{-8}$ or $10^{-4}$?

# %%
my_difference = None

# %%
pieces = gpt.windows(tokens, 2, 64, torch.Generator().manual_seed(0))


def gradients(attention):
    model = gpt.GPT(shape, attention).double()
    model.loss(pieces).backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


truth, ours = (gradients(gpt.ATTENTIONS[name]) for name in ("naive", "flash_attention"))
off = ((truth - ours).abs().max() / truth.abs().max()).item()
print(f"naive and flash_attention differ by {off:.0e} of the largest gradient (measured here, in float64)")
_ = compare("difference of gradients in float64", my_difference, nearest(off, (1e-16, 1e-12, 1e-8, 1e-4)))

# %% [markdown]
# ### The same loss curve
#
# Now train in float32, with AdamW and 4 windows of 128 tokens a step. Each run begins with the same weights and sees the same windows.

# %%
models, losses = {}, {}
for name, attention in attentions.items():
    models[name] = gpt.GPT(shape, attention).to(device)
    many = 2 if name.endswith("interpreted") else steps        # Triton's interpreter is slow
    losses[name] = gpt.train(models[name], tokens, many, batch=4, context=128, learning_rate=5e-3, report=gpt.progress(name))
apart = abs(losses["flash_attention"][-1] - losses["naive"][-1])
seen = steps * 4 * 128 / len(tokens)
print(f"The last losses of naive attention and flash_attention are {apart:.0e} apart; a run has seen {seen:.2f} of the text.")
words = f"Measured here: {shape.layers} layers of {shape.width} columns, float32, AdamW, 4 windows of 128 tokens a step."
figures.curves({name: dict(enumerate(values)) for name, values in losses.items()}, f"Two exact attentions, one curve: they end {apart:.0e} apart", words,
               "step", "loss (nats a character)", ylim=(0, None))

# %% [markdown]
# Only the order of additions differs, and training carries that along.
#
# Here is the loss on unseen text, and some writing:

# %%
learned = models["flash_attention"]
print(f"loss on text that was held back: {gpt.held_back_loss(learned, held_back, batch=16):.2f}\n")
written = gpt.generate(learned, gpt.encode("ROMEO:\n")[None].to(device), 160, temperature=0.7)
print(gpt.decode(written[0]))

# %% [markdown]
# Where does a head look, before training and after?

# %%
line = "ROMEO:\nWhat light is this?"


def weights_of(model):
    """The weights (N, N) of the last layer's first head on that line."""
    kept = []

    def keep(Q, K, V, causal=True):
        hidden = torch.ones(Q.shape[2], K.shape[2], device=Q.device).triu(1).bool()
        P = torch.softmax((Q @ K.mT * Q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf), -1)
        kept.append(P[0, 0].cpu())
        return P @ V

    watched = gpt.GPT(shape, keep).to(device)
    watched.load_state_dict(model.state_dict())
    with torch.no_grad():
        watched(gpt.encode(line)[None].to(device))
    return kept[-1]

# %%
looks = {"before training": weights_of(model), f"after {steps} steps": weights_of(learned)}
largest = [P[8:].amax(-1).mean().item() for P in looks.values()]
figures.matrices({name: (P, None) for name, P in looks.items()}, f"A token's largest weight grows from {largest[0]:.2f} to {largest[1]:.2f} on average",
                 "Measured here: last layer, first head. The darker, the larger the weight.", "key", "query", number="",
                 rows=line.replace("\n", "¶"), columns=line.replace("\n", "¶"))

# %% [markdown]
# **Takeaway.** A right attention can replace any other in a model, and nothing else changes.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 · What training costs
#
# ### What training keeps
#
# Between forward and backward pass autograd keeps what the gradients need. Take a larger model in float32: 12 layers of 1024 columns, 8 heads. In each layer, `flash_attention` and the rest of the model keep about 21 numbers for each token and column. Naive attention also keeps $P$, a number for each pair of tokens and head. **Predict** the longest context, a power of two, that 80 GiB have room for with each.

# %%
my_context = {"naive": None, "flash_attention": None}

# %%
large = gpt.Shape(layers=12, width=1024, heads=8, kv_heads=8)
Ns = [1024 * 2**n for n in range(9)]
needs = {name: {N: gpt.training_bytes(large, 1, N, naive=name == "naive") for N in Ns} for name in ("naive", "flash_attention")}
fits = {name: max(N for N, nbytes in needs[name].items() if nbytes <= 80 * 2**30) for name in my_context}
fewer = {name: 1 - gpt.training_bytes(large._replace(kv_heads=1), 1, fits["flash_attention"], naive=name == "naive") / of[fits["flash_attention"]]
         for name, of in needs.items()}
_ = compare("longest context in 80 GiB", my_context, fits)
figures.curves(needs, "80 GiB have room for " + ", ".join(f"{N:,} tokens with {name}" for name, N in fits.items()),
               "Modelled: weights, gradients, AdamW's averages, and what autograd keeps, float32, one text. Tests hold the formula against "
               "what autograd keeps, to the byte.", "context N, one text", "bytes while training", log="xy", byte="y", ticks=Ns[::2],
               ceilings={"24 GiB": 24 * 2**30, "80 GiB": 80 * 2**30})

# %% [markdown]
# At short contexts the lines run together, since the MLP keeps more than attention.
#
# **Your turn** (5 minutes). Whom does grouping the heads help here? Change `kv_heads` to 1 in `large`.

# %%
# Your experiment goes here.

# %% [markdown]
# <details><summary><b>Why?</b></summary>
#
# At {{fits["flash_attention"]:,}} tokens one key head saves `flash_attention` {{fewer["flash_attention"]:.0%}}, naive attention {{fewer["naive"]:.0%}}: $P$ is a matrix for each *query* head.
#
# </details>
#
# **Takeaway.** FlashAttention removes the one part of training's memory that grows with $N^2$.
#
# ### How much of a machine
#
# A model's work is 6 FLOPs for each weight and token, and attention's own products. Divided by the time and by what the machine can do, it is the *model FLOPs utilisation*, MFU. This course counts half of the pairs under a causal mask, and never what is computed twice.
#
# **Exercise: MFU** ([exercises/ex15_mfu.py](../exercises/ex15_mfu.py), 15 minutes).

# %%
check("ex15_mfu")

# %%
reveal("ex15_mfu")

# %% [markdown]
# How much of that is attention? For each token it takes 12 FLOPs a layer and column for each key that a query sees. A layer of the larger model has $12 \cdot 1024^2$ weights. **Predict** the context from which on attention is half of the FLOPs.

# %%
my_half = None

# %%
without = gpt.flops_per_token(large, 0)
shares = [(N, 1 - without / gpt.flops_per_token(large, N)) for N in Ns]
half = int(without / (gpt.flops_per_token(large, 1) - without))
print(f"Attention is half of the FLOPs at N = {half:,} (modelled).")
said = compare("context at which attention is half", my_half, half, "tokens", reasons={
    half / 2: "A query sees half of the keys on average, because of the mask.", 2 * half: "Each weight takes 6 FLOPs, a multiplication and an addition three times."})
said.on(figures.curves({"": {N: 100 * share for N, share in shares}}, f"From N = {half:,} on, attention is most of the work",
                       "Modelled: 12 layers of 1024 columns, causal, masked pairs not counted.", "context N", "% of the FLOPs", log="x",
                       ylim=(0, 100), ceilings={"": 50}), axis="x")

# %% [markdown]
# And here? A large matrix product in float32 shows what this machine can do at most. It takes turns with training; the best of six times counts.

# %%
import time

clock = time.perf_counter if device == "cuda" else time.process_time     # the time of this one thread, whatever else runs here
A = torch.randn(2048, 2048, device=device)
fresh = {name: gpt.GPT(shape, gpt.ATTENTIONS[name]).to(device) for name in ("naive", "flash_attention")}
contest = {name: lambda model=model: gpt.train(model, tokens, 4, batch=4, context=128) for name, model in fresh.items()}
contest["a product"] = lambda: (A @ A)[0, 0].item()                      # waits for a GPU too
took = {name: [] for name in contest}
for _ in range(6):
    for name, call in contest.items():
        began = clock()
        call()
        took[name].append(clock() - began)
peak = 2 * 2048**3 / min(took["a product"])
print(f"A product of 2048 × 2048 matrices: {peak / 1e9:,.0f} GFLOP/s (measured here)")
for name in fresh:
    speed = 4 * 4 * 128 / min(took[name])
    print(f"{name}: {speed:,.0f} tokens/s, MFU {100 * gpt.mfu(speed, shape, 128, peak):.0f} %")

# %% [markdown]
# On a CPU `flash_attention` is made of PyTorch operations, more and smaller ones than naive attention's: it saves memory, not time.
#
# **Takeaway.** Ask of a published MFU how it counts masked pairs and recomputation.
#
# ### Where the time goes
#
# `torch.profiler` notes every operation.

# %%
pieces = gpt.windows(tokens, 4, 128, torch.Generator().manual_seed(0)).to(device)
parts = {}
for name in ("naive", "flash_attention"):
    profiled = gpt.GPT(shape, gpt.ATTENTIONS[name]).to(device)
    of, operations = min((gpt.parts(profiled, pieces) for _ in range(3)), key=lambda run: sum(run[0].values()))      # the least disturbed run
    parts[name] = {part: 100 * ms / sum(of.values()) for part, ms in of.items()}
    operation, ms, calls = operations[0]
    print(f"{name}: most time is in {operation}, {ms / sum(of.values()):.0%} of a step in {calls:.0f} calls (measured here)")
figures.bars(parts, "Attention takes " + ", ".join(f"{of['attention']:.0f}% of a step with {name}" for name, of in parts.items()),
             "Measured here: 2 layers of 128 columns, 4 windows of 128 tokens, float32.", "% of a step, forward and backward")

# %% [markdown]
# **Takeaway.** Measure before you tune: a kernel that is twice as fast saves half of its share.
#
# *End of sitting 2.*
#
# ## Sitting 3 · Writing, and larger models
#
# ### One token at a time
#
# To write a token the model needs the keys and values of all tokens before it. They depend on nothing that comes later, so compute each once and keep it: the KV cache. Watch one head: which rows are computed for a new token, and which are only read?

# %%
def with_a_cache(X, W):
    d, (K, V, O) = X.shape[1], (torch.zeros_like(X) for _ in range(3))
    with kernel("with_a_cache", X=X, W=W, K=K, V=V, O=O):
        for new in tiles(len(X), 1):                     # one more token
            x = load(X, new)
            q, k, v = (x @ load(W, slice(0, d))).split(d, dim=1)
            store(K, new, k)
            store(V, new, v)
            seen = slice(0, new.stop)                    # old tokens, and this one
            keys, values = load(K, seen), load(V, seen)
            p = torch.softmax(q @ keys.T * d**-0.5, dim=-1)
            store(O, new, p @ values)
    return O


told = {"q, k, v =": "Only the new token's row is multiplied: its query, key and value.",
        "store(K": "Its key goes into the cache, behind the old ones.", "store(V": "So does its value.",
        "keys, values": "The keys and values of all tokens so far are read. No old one is computed again.",
        "p =": "The new query meets every key: one row of scores.", "store(O": "One row of output is stored."}
play(record(with_a_cache, torch.randn(6, 4), torch.randn(4, 12), sram_bytes=1024, say=told), start=44)

# %% [markdown]
# **Exercise: new tokens, old keys** ([exercises/ex15_generate_step.py](../exercises/ex15_generate_step.py), 25 minutes).

# %%
check("ex15_generate_step")

# %%
reveal("ex15_generate_step")

# %% [markdown]
# **Predict**: of 100 tokens, each the likeliest one, how many differ from those that are written without a cache?

# %%
my_changed = None

# %%
prompt = gpt.encode("First Citizen:\nWe are")[None].to(device)
cached, whole = (gpt.generate(learned, prompt, 100, cached=cached) for cached in (True, False))
changed = (cached != whole).sum().item()
print(f"{changed} of 100 tokens differ.")
_ = compare("tokens that a cache changes", my_changed, changed)

# %% [markdown]
# And how long does a token take? Without a cache the whole text passes through the model again: after 512 tokens that is more than 512 times the FLOPs.

# %%
def ms_of_a_token(N, cached):
    """ms of one more token behind N: the best of three runs with more tokens, less the best of three with one."""
    prompt, more, took = tokens[None, :N].to(device), 32 if cached else 4, {}
    for count in (1, 1 + more):
        for _ in range(3):
            began = clock()
            gpt.generate(learned, prompt, count, cached=cached)[0, -1].item()
            took[count] = min(took.get(count, 1e9), clock() - began)
    return 1e3 * (took[1 + more] - took[1]) / more


times = {how: {N: ms_of_a_token(N, cached) for N in (64, 128, 256, 512)} for how, cached in (("with a cache", True), ("without", False))}
at_512 = {how: ms[512] for how, ms in times.items()}
print(", ".join(f"{how}: {1e3 / ms:,.0f} tokens/s" for how, ms in at_512.items()), "after 512 tokens (measured here)")
figures.curves(times, f"After 512 tokens a cache saves {1 - at_512['with a cache'] / at_512['without']:.0%} of the time of one more",
               "Measured here: 2 layers of 128 columns, the likeliest token each time.", "tokens so far", "ms for one more", log="xy")

# %% [markdown]
# The cache saves less than the FLOPs promise: one token is a matrix times a vector, and each weight is read for two FLOPs. Here PyTorch's time to call its small operations is longer still.
#
# On a GPU each token reads all weights and the whole cache. **Predict** the most tokens a second that an H200, which copies {{copy:.1f}} TB/s, could write for one reader with the larger model in bfloat16, after 32,768 tokens: with 8 key heads of 128 columns, and with 2.

# %%
my_bound = {"8 key heads": None, "2 key heads": None}

# %%
from flashlab_course.gpt.count import decode_bytes

bounds = {}
for kv_heads in (8, 2):
    of = large._replace(kv_heads=kv_heads)
    cache = decode_bytes(of, 1, 32768, 2) - decode_bytes(of, 1, 0, 2)
    bounds[f"{kv_heads} key heads"] = copy * 1e12 / decode_bytes(of, 1, 32768, 2)
    print(f"{kv_heads} key heads: weights {decode_bytes(of, 1, 0, 2) / 2**20:,.0f} MiB, cache {cache / 2**20:,.0f} MiB, "
          f"at most {bounds[f'{kv_heads} key heads']:,.0f} tokens/s")
_ = compare("most tokens a second on an H200", my_bound, bounds, "tokens/s", reasons={
    copy * 1e12 / decode_bytes(large, 1, 0, 2): "That is without the cache: keys and values of 32,768 tokens in 12 layers.",
    copy * 1e12 / decode_bytes(large, 1, 32768, 4): "A bfloat16 has 2 bytes."})

# %% [markdown]
# **Takeaway.** Training is limited by FLOPs, decoding by bytes. So models group their heads.
#
# ### On a GPU
#
# This is what training the larger model took on an H200 (`python -m flashlab bench gpt`):

# %%
recorded, writing = (load_results("gpt_h200", run) for run in ("training", "generation"))
rows = {(row["implementation"], row["context"]): row for row in recorded["rows"]}
longest = {name: max(N for one, N in rows if one == name and rows[one, N]["tokens_s"]) for name in ("naive", "SDPA math")}
print(f"recorded on {where(recorded)}")
memory = figures.series([row for row in recorded["rows"] if row["tokens_s"]], "context", "peak_bytes")
leads, used = {}, {}                                                    # context -> a number of each run
for run in (recorded, writing):
    thrice = [row for row in run["rows"] if row["tokens_s"] and row["steps"] >= 3]
    for row in thrice:
        if row["implementation"] == "flash_attention":
            best = max(one["tokens_s"] for one in thrice if one["context"] == row["context"] and one["implementation"].startswith("SDPA"))
            leads.setdefault(row["context"], []).append(row["tokens_s"] / best)
            used.setdefault(row["context"], []).append(row["mfu"])
at, end = max(used), max(memory["flash_attention"])
also = [name for name in memory if name != "flash_attention" and max(memory[name]) == end]
ends = sorted(row["losses"][-1] for row in recorded["curves"] if row["losses"])
figures.curves(memory, f"Naive attention ends at {longest['naive']:,} tokens, flash_attention and {len(also)} others are still there at {end:,}",
               f"Recorded on {where(recorded)}.", "context N", "peak memory", log="xy", byte="y", ticks=[1024, 4096, 16384, 65536, 262144])

# %% [markdown]
# Naive attention ends at {{longest['naive']:,}} tokens, SDPA math at {{longest['SDPA math']:,}}. `flash_attention` still trains at {{end:,}}, in {{memory['flash_attention'][end] / 2**30:.0f}} GiB, and so do {{' and '.join(also)}}.
#
# Beside the fastest SDPA two runs gave it {{leads[at][0]:.2f}} and {{leads[at][1]:.2f}} times the speed at {{at:,}} tokens, but {{leads[2048][0]:.2f}} and {{leads[2048][1]:.2f}} at 2,048. So no lead is claimed. Its MFU rose from {{used[2048][0]:.0%}} to {{used[at][0]:.0%}} in one, from {{used[2048][1]:.0%}} to {{used[at][1]:.0%}} in the other. The last losses of {{len(ends)}} attentions in bfloat16 differ by {{ends[-1] - ends[0]:.4f}}.

# %% [markdown]
# In writing, a token's step is hundreds of short launches, and the host cannot keep up. `generate(..., graph=True)` captures the step as a CUDA graph and replays it (chapter 13).

# %%
generation = {(row["prompt"], row["batch"], row["cached"], row["graph"]): row for row in writing["generation"]}
gain = generation[1024, 1, True, True]["tokens_s"] / generation[1024, 1, True, False]["tokens_s"]
step_ms = [1000 * row["batch"] / row["tokens_s"] for (*_, cached, graph), row in generation.items() if cached and not graph]
share = {size: generation[*size, True, True]["tokens_s"] / generation[*size, True, True]["bound_tokens_s"] for size in ((1024, 1), (32768, 8))}
for N, batch in ((1024, 1), (32768, 8)):
    ways = (False, False), (True, False), (True, True)
    without, cached, graph = (generation[N, batch, *way]["tokens_s"] for way in ways)
    print(f"{batch} x {N:,} tokens: {without:,.0f} tokens/s without a cache, {cached:,.0f} with one, {graph:,.0f} in a graph, "
          f"{generation[N, batch, True, True]['bound_tokens_s']:,.0f} at most")

# %% [markdown]
# Without a graph a step takes {{min(step_ms):.0f}} to {{max(step_ms):.0f}} ms whether after few tokens or after many: that is the host's time. In a graph the GPU writes {{gain:.1f}} times as many tokens for one reader after 1,024. That is {{share[1024, 1]:.0%}} of what memory allows: it still waits for hundreds of small kernels to start. For eight readers after 32,768 tokens it is {{share[32768, 8]:.0%}}.

# %% [markdown]
# ### Inside models of others
#
# A model from Hugging Face's transformers takes its attention by name, and `huggingface.register()` makes the course's operator one of those names. The package is an extra: `pip install -e .[transformers]`. The model here is small and random: nothing is downloaded.

# %%
import importlib.util

if with_transformers := importlib.util.find_spec("transformers") is not None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from flashlab.operator import huggingface

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, initializer_range=0.2)
    llama = LlamaForCausalLM._from_config(config, attn_implementation=huggingface.register()).to(device).eval()
    print("a Llama whose attention is", llama.config._attn_implementation)
else:
    print("transformers is not installed here: the next two cells do nothing.")

# %% [markdown]
# Two texts of 9 and 6 tokens share a batch, so the shorter one is padded on the left. **Predict**: does the padding change the logits of its real tokens, `"yes"` or `"no"`?

# %%
my_padding = None

# %%
if with_transformers:
    long, short = tokens[:9].to(device), tokens[20:26].to(device)
    batch = torch.stack([long, torch.nn.functional.pad(short, (3, 0))])
    keep = torch.ones_like(batch)
    keep[1, :3] = 0
    with torch.no_grad():
        alone, padded = llama(short[None]).logits[0], llama(batch, attention_mask=keep).logits[1, 3:]
    off = (alone - padded).abs().max().item()
    print(f"padding changes the logits of the real tokens by at most {off:.0e}, of {alone.abs().max():.1f}")
    _ = compare("does padding change a text's logits", my_padding, "no" if off < 1e-3 else "yes")
    print(llama.generate(short[None], max_new_tokens=8, do_sample=False)[0].tolist())

# %% [markdown]
# The padding is taken out, and the other tokens are packed one after the other, with `cu_seqlens` to tell them apart. No mask of $N \times N$ is made.
#
# ### An open question
#
# How small a mistake in an attention can hide in a loss curve? Multiply the scores by 1.01, or drop the last key, and train. Which mistakes does the curve show that another seed does not, and after how many steps? Which test of this course would have found them in a second?

# %%
# Your experiment goes here: attentions take any function of Q, K, V, causal.

# %% [markdown]
# ## Sources
#
# The text: William Shakespeare, public domain, as excerpted for Karpathy's [char-rnn](https://github.com/karpathy/char-rnn) · [nanoGPT](https://github.com/karpathy/nanoGPT), for how small a GPT can be · Su et al. 2021, [rotary positions](https://arxiv.org/abs/2104.09864) · Zhang, Sennrich 2019, [RMS norm](https://arxiv.org/abs/1910.07467) · Ainslie et al. 2023, [GQA](https://arxiv.org/abs/2305.13245) · Chowdhery et al. 2022, [PaLM](https://arxiv.org/abs/2204.02311), appendix B, for MFU · Pope et al. 2022, [Efficiently scaling transformer inference](https://arxiv.org/abs/2211.05102), for what bounds decoding
#
# **Next:** {{after("15")}}.
