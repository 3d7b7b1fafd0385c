# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 03 · Online softmax
#
# **You will be able to** compute a softmax that cannot overflow, in three passes over its input, in two, and in one; say why rescaling is exact; merge two half-finished softmaxes; and tell what is still wrong with attention that walks the keys one at a time.
#
# **You need** chapter 01. · **50 minutes** · **runs on** CPU or GPU
#
# $$\mathrm{softmax}(s)_j = \frac{e^{s_j}}{\sum_k e^{s_k}}$$
#
# The sum runs over the whole row. That is the obstacle: to keep $S$ out of HBM we have to use each score when it is made and forget it, long before the row is complete. This chapter removes the obstacle.

# %% [markdown]
# ## The formula overflows
#
# Floating-point numbers end somewhere: float32 at $3.4 \cdot 10^{38}$, float16 at 65504. Exponentials get there soon. **Predict** the largest whole number $x$ for which $e^x$ is still finite, in either format.

# %%
my_largest_x = {"float32": None, "float16": None}

# %% [markdown]
# **Run and compare.** Count upwards until the exponential is infinite. A score is a sum of $d$ products, and nothing in attention keeps it small.

# %%
from flashlab import figures  # flashlab first, then torch
import torch

x = torch.arange(1.0, 200.0)
for name, dtype in [("float32", torch.float32), ("float16", torch.float16)]:
    finite = torch.exp(x.to(dtype)).isfinite()
    print(f"{name}: e^{x[finite].max():.0f} is finite, e^{x[~finite].min():.0f} is not; your prediction: {my_largest_x[name]}")

# %% [markdown]
# So the formula as it stands fails as soon as a single score is large. This cell fails on purpose: $\infty/\infty$ is not a number, and the small scores are lost with the large one.

# %%
def softmax_by_formula(x):
    return torch.exp(x) / torch.exp(x).sum()

x = torch.tensor([1.0, 2.0, 100.0])
print("by the formula:", softmax_by_formula(x))
print("torch.softmax: ", torch.softmax(x, dim=-1))

# %% [markdown]
# **The repair.** Divide numerator and denominator by $e^m$, for any $m$: nothing changes, $\frac{e^{s_j}}{\sum_k e^{s_k}} = \frac{e^{s_j - m}}{\sum_k e^{s_k - m}}$. Choose $m = \max_k s_k$, and no exponential exceeds 1, while the sum lies between 1 and $N$. Try shifts of your own.

# %%
x = torch.tensor([1.0, 2.0, 3.0])
for m in [0.0, 1.0, -5.0, x.max().item(), 60.0, 200.0]:
    shifted = torch.exp(x - m)
    print(f"m = {m:>5}: sum {shifted.sum():<12.4g} softmax {(shifted / shifted.sum()).numpy()}")

# %% [markdown]
# All shifts agree but the last. $e^{3 - 200}$ is too small for a float32, becomes 0, and $0/0$ follows. The maximum is safe for every row, whatever its scores.
#
# **Takeaway.** Softmax does not care about a shift; the computer does. Shift by the maximum.

# %% [markdown]
# ## One score at a time
#
# Now forget overflow for a moment and look at the other problem. Scores $s_j$ arrive one by one, each with a value $v_j$, and neither can be kept. We want $y = \sum_j \mathrm{softmax}(s)_j\, v_j$. Two running numbers are enough, starting from $c = y = 0$:
#
# $$c^{(j)} = c^{(j-1)} + e^{s_j} \qquad y^{(j)} = \frac{c^{(j-1)}\, y^{(j-1)} + e^{s_j}\, v_j}{c^{(j)}}$$
#
# The first score below is 0.5, its value 10. **Predict** $y$ after this one step.

# %%
my_first_y = None

# %% [markdown]
# **Run and compare.** $c$ is the sum of exponentials so far. Multiplying $y$ by the old $c$ undoes the old division; then the new term joins, and the new $c$ divides.

# %%
from math import exp

s = [0.5, 2.0, -1.0, 3.0, 0.0]
v = [10.0, 20.0, 30.0, 40.0, 50.0]
c = y = 0.0
for j in range(len(s)):
    c_new = c + exp(s[j])
    y = (c * y + exp(s[j]) * v[j]) / c_new
    c = c_new
    seen = slice(0, j + 1)
    truth = torch.softmax(torch.tensor(s[seen]), 0) @ torch.tensor(v[seen])
    print(f"s = {s[j]:>4}: c = {c:5.2f}, y = {y:.4f}, softmax over the scores seen so far: {truth:.4f}")
print("your prediction for the first y:", my_first_y)

# %% [markdown]
# After one step $y$ is the first value, whatever its score: a softmax over one element is 1. And each later line is the exact answer for the scores seen so far. No row of weights was ever stored.
#
# **Takeaway.** A weighted average under softmax can be carried along in two numbers.

# %% [markdown]
# ## The same, and safe
#
# $c$ overflows, of course. But the maximum of the row is not known while the row is still arriving. This cell fails on purpose, at the third score.

# %%
c = y = torch.tensor(0.0)
for s_j, v_j in [(0.5, 10.0), (60.0, 20.0), (90.0, 30.0), (1.0, 40.0)]:
    c_new = c + torch.exp(torch.tensor(s_j))
    y = (c * y + torch.exp(torch.tensor(s_j)) * v_j) / c_new
    c = c_new
    print(f"s = {s_j:>4}: c = {c:9.3g}, y = {y:.4f}")

# %% [markdown]
# So take the largest score *so far* as the shift, and count the sum in units of $e^m$. When a larger score arrives the unit changes, as from cents to dollars: what was saved up is multiplied once by $\alpha = e^{m_{\text{old}} - m_{\text{new}}}$, and all goes on in the new unit.
#
# $$m_{\text{new}} = \max(m, s_j) \qquad l \leftarrow \alpha\, l + e^{s_j - m_{\text{new}}} \qquad o \leftarrow \alpha\, o + e^{s_j - m_{\text{new}}}\, v_j$$

# %%
def step(o, m, l, s_j, v_j):
    m_new = torch.maximum(m, s_j)
    alpha = torch.exp(m - m_new)         # old unit -> new unit; e^(-inf) = 0 at the first step
    p = torch.exp(s_j - m_new)           # at most 1
    return alpha * o + p * v_j, m_new, alpha * l + p, alpha

# %% [markdown]
# $c$ has become $l \cdot e^m$, which is never computed. $y$ has become $o / l$: the division has moved to the very end, where it is needed once. Five scores are coming: 0.5, 60, 90, 1, 90. **Predict** at how many of them sums that are already there get rescaled.

# %%
my_rescales = None

# %% [markdown]
# **Run and compare.** These scores reach 90, where $c$ broke down. The sums are tensors because `-inf` and overflow then behave as they do on a GPU.

# %%
scores, values = torch.tensor([0.5, 60.0, 90.0, 1.0, 90.0]), torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])
o, m, l = torch.tensor(0.0), torch.tensor(-float("inf")), torch.tensor(0.0)
for s_j, v_j in zip(scores, values, strict=True):
    o, m, l, alpha = step(o, m, l, s_j, v_j)
    print(f"s = {s_j:>4}: m = {m:>4}, alpha = {alpha:8.2g}, l = {l:.3f}, o / l = {o / l:.4f}")
print(f"softmax(scores) · values = {torch.softmax(scores, 0) @ values:.4f}; your prediction: {my_rescales}")

# %% [markdown]
# Twice, where the maximum grew. Otherwise $m_{\text{new}} = m$, so $\alpha = e^0 = 1$ and nothing happens; this needs no `if`. How often does a maximum grow at all? **Predict**: among 1000 random scores, how many set a new record, counting the first?

# %%
my_records = None

# %% [markdown]
# **Run and compare.** Five hundred rows of 1000 random scores each. `cummax` is the running maximum, and every place where it rises is a record.

# %%
torch.manual_seed(0)
records = [(torch.randn(1000).cummax(0).values.diff() > 0).sum().item() + 1 for _ in range(500)]
expected = sum(1 / n for n in range(1, 1001))       # the n-th score is the largest of n with probability 1/n
print(f"measured here: {sum(records) / len(records):.2f} on average, between {min(records)} and {max(records)}; "
      f"expected {expected:.2f}; your prediction: {my_records}")

# %% [markdown]
# Seven or eight in a thousand, and most of them early. The picture replays a row of 24: at each dotted line the unit grows and $l$ drops; in all other steps it climbs, by at most 1.

# %%
torch.manual_seed(66)
figures.running_state(2 * torch.randn(24))

# %% [markdown]
# **Takeaway.** The factor is 1 unless the maximum grew, and then it converts all that was summed so far with one multiplication.

# %% [markdown]
# ## Why it is exact
#
# Nothing is approximated. Claim: after $j$ scores, $l_j = \sum_{k \le j} e^{s_k - m_j}$, just as if $m_j$ had been known from the start. It holds for $j = 1$. And if it held before, then
#
# $$\alpha\, l_{j-1} + e^{s_j - m_j} = e^{m_{j-1} - m_j} \sum_{k<j} e^{s_k - m_{j-1}} + e^{s_j - m_j} = \sum_{k<j} e^{s_k - m_j} + e^{s_j - m_j} = l_j .$$
#
# The same lines with $v_k$ in the sum prove $o$. They never use that $m$ is a maximum: this only keeps the numbers in range. What remains is rounding: it shrinks in float64, as an error of the method would not.

# %%
for dtype in (torch.float32, torch.float64):
    torch.manual_seed(0)
    scores, values = 20 * torch.randn(1000, dtype=dtype), torch.randn(1000, dtype=dtype)
    o, m, l = scores.new_zeros(()), scores.new_tensor(-float("inf")), scores.new_zeros(())
    for s_j, v_j in zip(scores, values, strict=True):
        o, m, l, _ = step(o, m, l, s_j, v_j)
    truth = torch.softmax(scores.double(), 0) @ values.double()
    print(f"{dtype}: one at a time is off by {abs(o / l - truth):.1e} (measured here)")

# %% [markdown]
# **Takeaway.** Online softmax is softmax. It is a different order of the same sums.
#
# ## Find the bug
#
# Published notes on FlashAttention print the update of $l$ like this. One sign is wrong:
#
# $$l_j = l_{j-1} + e^{m_{j-1} - m_j} + e^{s_j - m_j}$$
#
# Eight equal scores have $l = 8$. **Predict** what this line makes of them.

# %%
my_wrong_l = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose. `math.exp(-inf)` is 0, so the first step is right even here.

# %%
def l_as_published(scores):
    m, l = -float("inf"), 0.0
    for s_j in scores:
        m_new = max(m, s_j)
        l = l + exp(m - m_new) + exp(s_j - m_new)
        m = m_new
    return l

print("eight equal scores:", l_as_published([1.0] * 8), "instead of 8.0; your prediction:", my_wrong_l)
print("one score:         ", l_as_published([1.0]), "instead of 1.0")

# %% [markdown]
# The factor was added instead of multiplied: each step brings in an extra 1. A test with a single key would have passed.
#
# **Takeaway.** Published formulas have misprints. Try them on a case that you can do in your head, with more than one step.

# %% [markdown]
# ## Three passes, two, one
#
# What does this buy in bytes? Say a vector of $N$ scores lies in HBM and is too long for the chip. The safe softmax goes through it for the maximum, again for the sum, again for the result. **Predict** how many times $x$ is read by each function.

# %%
my_reads = {"three_pass": None, "two_pass": None, "weighted_sum": None}

# %% [markdown]
# **Run and compare.** `softmax_two_pass` finds maximum and sum together, as above. `softmax_weighted_sum` returns $\mathrm{softmax}(x) \cdot v$ and never a weight. Under `Memory`, each `load` is counted.

# %%
from flashlab.memory import Memory
from flashlab.rungs.online_softmax import softmax_three_pass, softmax_two_pass, softmax_weighted_sum

torch.manual_seed(0)
N, d_v = 1000, 4
x, v = torch.randn(N), torch.randn(N, d_v)
costs = {}
for f, args in [(softmax_three_pass, (x,)), (softmax_two_pass, (x,)), (softmax_weighted_sum, (x, v))]:
    with Memory() as mem:
        f(*args, B=64)                   # 64 elements at a time
    name = f.__name__.removeprefix("softmax_")
    costs[name] = (mem.read, mem.written)
    reads_of_x = sum(event.read for event in mem.log if event.name == "x") / x.nbytes
    print(f"{name:<13} reads x {reads_of_x:.0f} times, {mem.read / x.nbytes:.0f} N elements in all, "
          f"writes {mem.written // 4} (modelled); your prediction: {my_reads[name]}")

# %% [markdown]
# $3N$, $2N$ and $N(1 + d_v)$ elements: the single pass reads $x$ once and, on the way, all of $v$. The other two have only produced weights; to average $v$ they still have to write them, and read them back together with $v$. Here is the whole job, for each.

# %%
from flashlab.memory import format_bytes

whole = {}
for name, (read, written) in costs.items():
    if name != "weighted_sum":           # the weights come back in, with v, and the average goes out
        read, written = read + x.nbytes + v.nbytes, written + 4 * d_v
    whole[name] = (read, written)
    print(f"{name:<13} to the weighted sum: {format_bytes(sum(whole[name]))} (modelled)")
figures.softmax_passes(whole)

# %% [markdown]
# Why is there no single pass for the weights themselves? Each weight is divided by the final $l$, so none can be written before the last score has come. Only because attention wants a *sum* of weights times values can one factor at the end put everything right.
#
# **Takeaway.** One pass suffices for the weighted sum, and attention is a weighted sum.

# %% [markdown]
# ## Merging two states
#
# Now let two workers share the keys. Each runs over its half and comes back with an output. Outputs are about 0.6 in size. **Predict** how far the average of the two is from the truth: about 0.0000001, about 0.01, or as far as the outputs are large?

# %%
my_error_of_average = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose: a plain average gives both halves the same say, wherever the large scores happened to be.

# %%
torch.manual_seed(0)
s, V = 3 * torch.randn(200), torch.randn(200, 16)
truth = torch.softmax(s, 0) @ V
halves = [torch.softmax(s[part], 0) @ V[part] for part in (slice(0, 100), slice(100, 200))]
average = (halves[0] + halves[1]) / 2
print(f"average of the halves: off by {(average - truth).abs().max():.2f} (measured here); "
      f"outputs are {truth.abs().mean():.2f} in size on average; your prediction: {my_error_of_average}")

# %% [markdown]
# What is missing is how much weight each half found: its $m$ and $l$. A **state** is $(O, m, l)$ with $O$ not yet divided. Two states are brought to the larger of the two maxima and added. It is the step from above, with a factor on both sides.

# %%
from flashlab.rungs.online_softmax import merge

def state(s, V):
    m = s.max()
    p = torch.exp(s - m)
    return p @ V, m, p.sum()             # O, m, l

O, m, l = merge(state(s[:100], V[:100]), state(s[100:], V[100:]))
print(f"merged: off by {(O / l - truth).abs().max():.1e} (measured here)")

# %% [markdown]
# `merge` is to states what + is to numbers: the order does not matter, nor the grouping. So eight workers can take shards of any size, finish in any order, and be merged as they come in. **Predict**: will all orders agree to the last bit?

# %%
my_bits_agree = None     # True or False

# %% [markdown]
# **Run and compare.** Eight shards of the same 200 keys, one of them a single key, are merged in fifty random orders.

# %%
from functools import reduce

cuts = [0, 1, 20, 55, 60, 110, 111, 150, 200]                                    # eight shards, some tiny
states = [state(s[a:b], V[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
results = []
for _ in range(50):
    O, m, l = reduce(merge, [states[n] for n in torch.randperm(8)])
    results.append(O / l)
spread = torch.stack(results).sub(truth).abs().amax()
print(f"50 orders: off by at most {spread:.1e} (measured here); "
      f"all bits equal: {all(torch.equal(r, results[0]) for r in results)}; your prediction: {my_bits_agree}")

# %% [markdown]
# In mathematics all orders are equal; in floating point they differ in the last digits, as sums do. Two special states are worth knowing: **no keys at all**, $(0, -\infty, 0)$, is neutral, and a **finished output** with its logsumexp is a state too, $(O, L, 1)$: in units of $e^L$ the weights sum to 1.

# %%
nothing = (torch.zeros(16), torch.tensor(-float("inf")), torch.tensor(0.0))
print("merging with no keys changes nothing:", torch.equal(merge(states[0], nothing)[0], states[0][0]))

finished = [(torch.softmax(s[part], 0) @ V[part], torch.logsumexp(s[part], 0), torch.tensor(1.0))
            for part in (slice(0, 100), slice(100, 200))]
O, m, l = merge(*finished)
print(f"two finished halves, merged by their L: off by {(O / l - truth).abs().max():.1e} (measured here)")
print(f"L of both together: {m + torch.log(l):.4f}, directly: {torch.logsumexp(s, 0):.4f}")

# %% [markdown]
# This is why every rung returns $L$ next to $O$: with the two, partial attention over any set of keys can be combined later, on another core or another machine. And it is why a query without keys returned $O = 0$, $L = -\infty$ in chapter 01.
#
# **Takeaway.** Softmax states merge in any order, so keys may be split any way you like: by tiles, by processors, by machines.

# %% [markdown]
# ## The trap of the first $-\infty$
#
# A causal mask sets scores to $-\infty$. If such a score comes first, `step` has seen nothing and sees nothing: its maximum stays $-\infty$. **Predict** what it makes of the scores $-\infty$, 1, 2: a number, or not a number?

# %%
my_guess = None

# %% [markdown]
# **Run and compare.** This cell fails on purpose. The true answer averages the values 20 and 30 only.

# %%
def walk(step):
    o, m, l = torch.tensor(0.0), torch.tensor(-float("inf")), torch.tensor(0.0)
    for s_j, v_j in zip(torch.tensor([-float("inf"), 1.0, 2.0]), torch.tensor([10.0, 20.0, 30.0]), strict=True):
        o, m, l, alpha = step(o, m, l, s_j, v_j)
        print(f"s = {s_j:>4}: m = {m:>4}, alpha = {alpha:.3f}, l = {l:.3f}")
    return o / l

print(f"result {walk(step):.4f}; your prediction: {my_guess}")

# %% [markdown]
# $-\infty - (-\infty)$ is not a number, and every later step inherits it. The repair is to shift by 0 as long as nothing has been seen: $e^{-\infty - 0} = 0$ is the right weight for a hidden key. The rungs call this shift `m_safe`.

# %%
def safe_step(o, m, l, s_j, v_j):
    m_new = torch.maximum(m, s_j)
    m_safe = m_new.masked_fill(m_new == -float("inf"), 0)
    alpha = torch.exp(m - m_safe)
    p = torch.exp(s_j - m_safe)
    return alpha * o + p * v_j, m_new, alpha * l + p, alpha

visible = torch.softmax(torch.tensor([1.0, 2.0]), 0) @ torch.tensor([20.0, 30.0])
print(f"result {walk(safe_step):.4f}, attention to the two visible keys: {visible:.4f}")

# %% [markdown]
# **Takeaway.** $m = -\infty$ means that nothing was seen yet; never subtract it from itself.

# %% [markdown]
# ## Attention, one key at a time
#
# The next rung of the ladder. Each query walks all keys; its $o$, $m$, $l$ stay on the chip, and $S$ exists only as one number at a time. Here is its inner step, as the rung has it: the lines of `safe_step`, for a row of $V$ instead of a number.

# %%
import inspect

from flashlab.rungs import online_softmax
from flashlab.rungs.online_softmax import online_softmax_forward
from flashlab.oracle import judge

print(inspect.getsource(online_softmax._step))
torch.manual_seed(0)
N, d = 64, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
print(judge(*online_softmax_forward(Q, K, V), Q, K, V))

# %% [markdown]
# The matrices are gone, and the answer is right. Have we won? **Predict** the HBM traffic of this rung, divided by the traffic of `naive_forward`, at $N = 64$ and $d = 64$.

# %%
my_traffic_ratio = None

# %% [markdown]
# **Run and compare.** Both under `Memory`, and the new one against its formula: each query reads itself and all keys and values, and writes its output and $L$.

# %%
from flashlab import cost
from flashlab.rungs.naive import naive_forward

with Memory() as naive:
    naive_forward(Q, K, V)
with Memory() as online:
    online_softmax_forward(Q, K, V)
expected = cost.online_softmax_forward(N, N, d)
assert (online.read, online.written) == (expected.read, expected.written)
for name, mem in [("naive", naive), ("one key at a time", online)]:
    print(f"{name:<18} peak in HBM {format_bytes(mem.hbm_peak):>9}, traffic {format_bytes(mem.read + mem.written):>9} (modelled)")
ratio = (online.read + online.written) / (naive.read + naive.written)
print(f"{ratio:.1f} times the traffic; your prediction: {my_traffic_ratio}")

# %% [markdown]
# Less memory and far more traffic. Each query reads all of $K$ and $V$: $N_q d + N_q N_k (d + d_v)$ elements. The model agreed with this formula to the byte, so the formula may speak for longer texts.

# %%
for N in [64, 256, 1024, 4096]:
    one, other = cost.naive_forward(N, N, d), cost.online_softmax_forward(N, N, d)
    print(f"N = {N:>4}: naive {format_bytes(one.traffic):>9}, one key at a time {format_bytes(other.traffic):>9}, "
          f"{other.traffic / one.traffic:4.1f} times (modelled)")

# %% [markdown]
# For each score naive attention moves 7 numbers, this rung $d + d_v = 128$. It uses every key once per visit and throws it away. Meanwhile the SRAM could have held much more. **Predict** what percentage of its 192 KiB was ever in use.

# %%
my_percent = None

# %% [markdown]
# **Run and compare.** On the chip there are one query, one key, one value, one output row, and a few numbers in between.

# %%
print(f"SRAM peak {format_bytes(online.sram_peak)} of {format_bytes(online.sram_bytes)}: "
      f"{online.sram_peak / online.sram_bytes:.1%} (modelled); your prediction: {my_percent}")

# %% [markdown]
# There is the way out. If a program kept 64 queries on the chip instead of one, each key that comes in would serve 64 of them, and $K$ and $V$ would be read 64 times less often. Tiles, then.
#
# **Takeaway.** Online softmax removes the need to store $S$; only tiles remove the traffic.

# %% [markdown]
# ## Your turn
#
# Each exercise is a file with a stub. Fill it in and run its cell: the checker reads the file afresh and says what is wrong, or that it is right. It also takes a function that you wrote in a cell: `check("ex03_safe_softmax", my_function)`.
#
# **Safe softmax** ([exercises/ex03_safe_softmax.py](../exercises/ex03_safe_softmax.py), 10 minutes). The softmax of each row of $S$ for scores of any size, and zeros for a row that is $-\infty$ throughout: $P_{ij} = e^{S_{ij} - m_i} / \sum_j e^{S_{ij} - m_i}$.

# %%
from flashlab.check import check

check("ex03_safe_softmax")

# %% [markdown]
# **One pass** ([exercises/ex03_online_softmax.py](../exercises/ex03_online_softmax.py), 20 minutes). Maximum and sum of a row that lies in HBM, at most $B$ scores at a time, each read once: $l \leftarrow e^{m - m_{new}}\, l + \sum_{\text{piece}} e^{x - m_{new}}$.

# %%
check("ex03_online_softmax")

# %% [markdown]
# **Merge** ([exercises/ex03_merge.py](../exercises/ex03_merge.py), 15 minutes). One state from two, also where a half saw no key: $m = \max(m_a, m_b)$, $l = e^{m_a - m}\, l_a + e^{m_b - m}\, l_b$, and $O$ likewise.

# %%
check("ex03_merge")

# %% [markdown]
# ## Sources
#
# Milakov and Gimelshein 2018, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867) · Rabe and Staats 2021, [Self-attention does not need $O(n^2)$ memory](https://arxiv.org/abs/2112.05682) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1
#
# **Next:** [04 · Block matmul](04_block_matmul.ipynb) cuts the matrices into tiles, goes wrong with the softmax, and puts it right with the step of this chapter.
