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
# **You will be able to** compute a softmax that cannot overflow, in three passes over its input, in two, and in one; say why rescaling is exact and how far rounding can take it; merge two half-finished softmaxes; and tell what is still wrong with attention that walks the keys one at a time.
#
# **You need** chapter 01. · **95 minutes**, 45 of them for three exercises · **runs on** CPU or GPU
#
# $$\mathrm{softmax}(s)_j = \frac{e^{s_j}}{\sum_k e^{s_k}}$$
#
# The sum runs over the whole row. That is the obstacle: to keep $S$ out of HBM we have to use each score when it is made and forget it, long before the row is complete. This chapter removes the obstacle.

# %% [markdown]
# ## The formula overflows
#
# Every float format has a largest number: float32 ends at $3.4 \cdot 10^{38}$, float16 at 65504. Exponentials get there soon. **Predict** the largest whole number $x$ for which $e^x$ is still finite in float32.

# %%
my_largest_x = None

# %% [markdown]
# **Run and compare.** Count upwards until the exponential is infinite. A score is a sum of $d$ products, and nothing in attention keeps it small.

# %%
from flashlab_course import figures  # flashlab first, then torch
import torch
from flashlab_course.lesson import compare, nearest, reveal

x = torch.arange(1, 200)
largest = {dtype: x[torch.exp(x.to(dtype)).isfinite()].max().item() for dtype in (torch.float32, torch.float16)}
said = compare("largest x with a finite exponential", my_largest_x, largest[torch.float32])
ends = {f"largest {str(dtype)[6:]}": torch.finfo(dtype).max for dtype in largest}
inf_at = ", ".join(f"{str(dtype)[6:]} at x = {end + 1}" for dtype, end in largest.items())
said.on(figures.curves({"exp(x)": {x: 2.718281828**x for x in range(0, 96, 4)}}, f"exp(x) becomes inf: {inf_at}",
                       "Measured here: the largest whole x with a finite exponential. Dashed: torch.finfo(dtype).max.", "x", "",
                       log="y", ceilings=ends), axis="x")

# %% [markdown]
# So the formula as it stands fails as soon as a single score is large. This cell fails on purpose: $\infty/\infty$ is not a number, and the small scores are lost with the large one.

# %%
def softmax_by_formula(x):
    return torch.exp(x) / torch.exp(x).sum()

x = torch.tensor([1.0, 2.0, 100.0])
print("by the formula:", softmax_by_formula(x))
print("torch.softmax: ", torch.softmax(x, dim=-1))

# %% [markdown]
# **The repair** starts from an identity: divide numerator and denominator by $e^m$, for any $m$, and nothing changes: $\frac{e^{s_j}}{\sum_k e^{s_k}} = \frac{e^{s_j - m}}{\sum_k e^{s_k - m}}$. At least on paper. Run it, then change the shifts or the scores and run it again: when does it break, and in which two ways?

# %%
x = torch.tensor([1.0, 2.0, 3.0])
for m in [0.0, 1.0, -5.0, 60.0, 200.0]:
    shifted = torch.exp(x - m)
    print(f"m = {m:>5}: sum {shifted.sum():<12.4g} softmax {(shifted / shifted.sum()).numpy()}")

# %% [markdown]
# All shifts agree but the last: $e^{3 - 200}$ is too small for a float32, becomes 0, and $0/0$ follows. So a shift can be too small or too large. **Your turn** ([exercises/ex03_safe_softmax.py](../exercises/ex03_safe_softmax.py), 10 minutes): choose one that is safe for every row, whatever its scores, and write the softmax of each row of $S$. Save the file and run the cell; it also takes a function from a cell, `check("ex03_safe_softmax", my_function)`.

# %%
from flashlab_course.check import check

check("ex03_safe_softmax")

# %% [markdown]
# Once it passes, the next cell puts our version beside yours. With the right shift no exponential exceeds 1, and the sum lies between 1 and $N$.

# %%
reveal("ex03_safe_softmax")

# %% [markdown]
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
c, ys = 0.0, [0.0]
for j in range(len(s)):
    c_new = c + exp(s[j])
    ys.append((c * ys[-1] + exp(s[j]) * v[j]) / c_new)
    c = c_new
    seen = slice(0, j + 1)
    truth = torch.softmax(torch.tensor(s[seen]), 0) @ torch.tensor(v[seen])
    print(f"s = {s[j]:>4}: c = {c:5.2f}, y = {ys[-1]:.4f}, softmax over the scores seen so far: {truth:.4f}")
said = compare("average after one score", my_first_y, ys[1])

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
    print(f"c = {c:.3g}, y = {y:.4f}", end="; ")

# %% [markdown]
# So take the largest score *so far* as the shift, call it $m$, and count the sum in units of $e^m$. When a larger score arrives the unit changes, as from cents to dollars, and what was saved up has to be converted. **Your turn** ([exercises/ex03_online_softmax.py](../exercises/ex03_online_softmax.py), 20 minutes): find the rate of exchange. Maximum and sum of a row that lies in HBM, at most $B$ scores at a time, each read once.

# %%
check("ex03_online_softmax")

# %%
reveal("ex03_online_softmax")

# %% [markdown]
# Here is the step for a single score, with its value. (It spoils the exercise above.) The rate is $\alpha = e^{m_{\text{old}} - m_{\text{new}}}$, and the weighted sum $o$ is converted like $l$:
#
# $$m_{\text{new}} = \max(m, s_j) \qquad l \leftarrow \alpha\, l + e^{s_j - m_{\text{new}}} \qquad o \leftarrow \alpha\, o + e^{s_j - m_{\text{new}}}\, v_j$$

# %%
def step(o, m, l, s_j, v_j):
    m_new = torch.maximum(m, s_j)
    alpha = torch.exp(m - m_new)         # old unit -> new unit; e^(-inf) = 0 at the first step
    p = torch.exp(s_j - m_new)           # at most 1
    return alpha * o + p * v_j, m_new, alpha * l + p, alpha

# %% [markdown]
# $c$ has become $l \cdot e^m$, which is never computed. $y$ has become $o / l$: the division has moved to the very end, where it is needed once. Five scores are coming: 0.5, 60, 90, 1, 90. **Predict** how many of them make the sums that are already there change their unit.

# %%
my_rescales = None

# %% [markdown]
# **Run and compare.** These scores reach 90, where $c$ broke down. The sums are tensors because `-inf` and overflow then behave as they do on a GPU.

# %%
scores, values = torch.tensor([0.5, 60.0, 90.0, 1.0, 90.0]), torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])
o, m, l, rescales = torch.tensor(0.0), torch.tensor(-float("inf")), torch.tensor(0.0), 0
for s_j, v_j in zip(scores, values, strict=True):
    rescales += bool(m < s_j and l > 0)
    o, m, l, alpha = step(o, m, l, s_j, v_j)
    print(f"s = {s_j:>4}: m = {m:>4}, alpha = {alpha:8.2g}, l = {l:.3f}, o / l = {o / l:.4f}")
print(f"softmax(scores) · values = {torch.softmax(scores, 0) @ values:.4f}")
said = compare("changes of unit in five scores", my_rescales, rescales)

# %% [markdown]
# Twice, where the maximum grew. Otherwise $m_{\text{new}} = m$, so $\alpha = e^0 = 1$ and nothing happens; this needs no `if`. How often does a maximum grow at all? **Predict**: among 1000 random scores, how many set a new maximum, counting the first?

# %%
my_records = None

# %% [markdown]
# **Run and compare.** Five hundred rows of 1000 random scores each. `cummax` is the running maximum, and every place where it rises is a record.

# %%
torch.manual_seed(0)
counts = [(torch.randn(1000).cummax(0).values.diff() > 0).sum().item() + 1 for _ in range(500)]
expected = sum(1 / n for n in range(1, 1001))       # the n-th score is the largest of n with probability 1/n
said = compare("new maxima among 1000 scores", my_records, sum(counts) / len(counts))
rows = {n: counts.count(n) for n in range(min(counts), max(counts) + 1)}
said.on(figures.curves({"": rows}, f"Among 1000 random scores {sum(counts) / len(counts):.1f} set a new maximum, on average",
                       "Measured here: 500 rows of normal random scores.", "new maxima in a row, the first counted", "rows",
                       walls={f"1 + 1/2 + … + 1/1000 = {expected:.2f}": expected}), axis="x")

# %% [markdown]
# Seven or eight in a thousand, and most of them early. The picture replays one row of 24: at each dotted line the unit grows and all of $l$ is converted; in all other steps $l$ climbs, by at most 1. Change the seed or the factor 2 and run it again: can $l$ ever fall below 1?

# %%
torch.manual_seed(66)
figures.running_state(2 * torch.randn(24))

# %% [markdown]
# **Takeaway.** The factor is 1 unless the maximum grew, and then it converts all that was summed so far with one multiplication.

# %% [markdown]
# ## Why it is exact
#
# Nothing is approximated. The proof is by **induction**. Claim: after $j$ scores, $l_j = \sum_{k \le j} e^{s_k - m_j}$, just as if $m_j$ had been known from the start. Base: it holds for $j = 1$, where $l_1 = e^0$. Step: if it held for $j - 1$, then
#
# $$\alpha\, l_{j-1} + e^{s_j - m_j} = e^{m_{j-1} - m_j} \sum_{k<j} e^{s_k - m_{j-1}} + e^{s_j - m_j} = \sum_{k<j} e^{s_k - m_j} + e^{s_j - m_j} = l_j .$$
#
# The same lines with $v_k$ in the sum prove $o$. They never use that $m$ is a maximum: this only keeps the numbers in range. What remains is rounding. It shrinks in float64, as an error of the method would not.

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
# **How large can rounding get?** Let $u = 2^{-24}$ be float32's rounding error. All terms of $l$ are positive, so nothing cancels and relative errors add up. A term goes through at most $N$ additions, $u$ each. At each of the $R$ new maxima it meets an exponential and a product, together $3u$; elsewhere $\alpha$ is exactly 1 and rounds nothing. Rounded exponents add up to $m - s_k$ for term $k$, on weighted average at most $\ln N$. To first order, then, $l$ is off by at most $(N + 3R + \ln N)\,u$.
#
# Sorted upwards, *every* score is a new maximum. **Predict** which order of the same scores gives the largest error: `"rising"`, `"random"` or `"falling"`.

# %%
my_worst_order = None

# %% [markdown]
# **Run and compare.** The largest error of ten rows, for each order and length, in units of $u$.

# %%
errors, bounds = ({order: {} for order in ("rising", "random", "falling")} for _ in range(2))
for N in (10, 100, 1000):
    worst = {"rising": (0, 0), "random": (0, 0), "falling": (0, 0)}
    for seed in range(10):
        scores = 3 * torch.randn(N, generator=torch.Generator().manual_seed(seed))
        for order, s in zip(worst, (scores.sort().values, scores, scores.sort(descending=True).values), strict=True):
            R = len(s.cummax(0).values.unique())                 # each value of the running maximum is a record
            o, m, l = torch.tensor(0.0), torch.tensor(-float("inf")), torch.tensor(0.0)
            for s_j in s:
                o, m, l, _ = step(o, m, l, s_j, s_j)
            truth = torch.exp(s.double() - s.double().max()).sum()
            error, bound = abs(l / truth - 1).item() * 2**24, N + 3 * R + torch.tensor(N).log().item()
            worst[order] = max(error, worst[order][0]), max(bound, worst[order][1])
    for order, (error, bound) in worst.items():
        errors[order][N], bounds[order][N] = error, bound
said = compare("order with the largest rounding error", my_worst_order, max(errors, key=lambda order: errors[order][1000]))
figures.curves(errors, f"l is off by at most {max(max(line.values()) for line in errors.values()):.0f} u", "Measured here: float32 against float64. Dashed: the bound.",
               "scores N", "relative error of l, in units of u", log="xy", dashed=bounds)

# %% [markdown]
# The bound holds with room to spare, and a thousand conversions do no harm: rising scores are the *most* accurate, since small terms are added to small sums. Plain summation from large to small loses more than all the rescaling.
#
# **Takeaway.** Online softmax is softmax: the same sums in another order, with the rounding errors of a sum.
#
# ## Find the bug
#
# Formulas get copied by hand. This update of $l$ is in circulation in notes on FlashAttention. Is it the one that was proved above?
#
# $$l_j = l_{j-1} + e^{m_{j-1} - m_j} + e^{s_j - m_j}$$
#
# Eight equal scores have $l = 8$. **Predict** what this line makes of them.

# %%
my_copied_l = None

# %% [markdown]
# **Run and compare.** `math.exp(-inf)` is 0, so the first step of either line starts from nothing.

# %%
def l_as_copied(scores):
    m, l = -float("inf"), 0.0
    for s_j in scores:
        m_new = max(m, s_j)
        l = l + exp(m - m_new) + exp(s_j - m_new)
        m = m_new
    return l

print("one score:         ", l_as_copied([1.0]), "where 1.0 is right")
print("eight equal scores:", l_as_copied([1.0] * 8), "where 8.0 is right")
said = compare("l of eight equal scores by the copied line", my_copied_l, l_as_copied([1.0] * 8))

# %% [markdown]
# The factor was added instead of multiplied: each step after the first brings in an extra 1. A test with a single key would have passed.
#
# **Takeaway.** Formulas in print can have misprints. Try them on a case that you can do in your head, with more than one step.

# %% [markdown]
# ## What it buys in bytes
#
# Say a vector of $N = 1000$ scores lies in HBM, too long for the chip, with $v$ of shape $(1000, 4)$ beside it, and we want $\mathrm{softmax}(x) \cdot v$. Three ways: maximum, then sum, then weights (three passes over $x$), and the average of $v$ afterwards; maximum and sum in one pass, then weights, then the average; or all in a single pass. **Predict** the bytes of the last, as a share of the first.

# %%
my_share = None     # between 0 and 1

# %% [markdown]
# **Run and compare.** Under `Memory`, each `load` and `store` is counted. The first two ways have written the weights to HBM, and must read them back together with $v$.

# %%
from flashlab.memory import Memory
from flashlab.rungs.online_softmax import softmax_three_pass, softmax_two_pass, softmax_weighted_sum

torch.manual_seed(0)
N, d_v = 1000, 4
x, v = torch.randn(N), torch.randn(N, d_v)
whole = {}
ways = [("three passes", softmax_three_pass, (x,)), ("two passes", softmax_two_pass, (x,)), ("one pass", softmax_weighted_sum, (x, v))]
for name, f, args in ways:
    with Memory() as mem:
        f(*args, B=64)                       # 64 elements at a time
    later = (x.nbytes + v.nbytes, 4 * d_v) if len(args) == 1 else (0, 0)       # weights and v come in, the average goes out
    whole[name] = mem.read + later[0], mem.written + later[1]
said = compare("share of bytes that one pass needs", my_share, sum(whole["one pass"]) / sum(whole["three passes"]))
read, written = ({name: both[n] for name, both in whole.items()} for n in (0, 1))
figures.bars({name: {"read": read[name], "written": written[name]} for name in whole},
             f"One pass moves {sum(whole['one pass']) / sum(whole['three passes']):.0%} of the bytes of three", "Modelled: counted by flashlab.memory.",
             "HBM traffic", byte=True)

# %% [markdown]
# Counted in elements: $3N + N$ and then $N + 4N$ for three passes, $2N + N$ and $N + 4N$ for two, $N + 4N$ for one. Why is there no single pass for the weights themselves? Each weight is divided by the final $l$, so none can be written before the last score has come. Only because attention wants a *sum* of weights times values can one factor at the end put everything right.
#
# **Takeaway.** One pass suffices for the weighted sum, and attention is a weighted sum.

# %% [markdown]
# ## Two workers
#
# Now let two workers share the keys. Each runs over its half and comes back with an output. Outputs are about 0.6 in size. **Predict** how far the average of the two is from the truth: about 0.0000001, about 0.01, or about 0.6?

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
error = (average - truth).abs().max()
print(f"average of the halves: off by {error:.2f} (measured here); outputs are {truth.abs().mean():.2f} in size on average")
said = compare("error of the plain average", my_error_of_average, nearest(error, (1e-7, 0.01, 0.6)))

# %% [markdown]
# What is missing is how much weight each half found: its $m$ and $l$. A **state** is $(O, m, l)$ with $O$ not yet divided by $l$. **Your turn** ([exercises/ex03_merge.py](../exercises/ex03_merge.py), 15 minutes): one state from two, also where a half saw no key.

# %%
check("ex03_merge")

# %%
reveal("ex03_merge")

# %% [markdown]
# Does it work? Each half makes its state; the package's `merge`, here `merge_states`, joins them, and the division comes last.

# %%
from flashlab.rungs.online_softmax import merge as merge_states

def state(s, V):
    m = s.max()
    p = torch.exp(s - m)
    return p @ V, m, p.sum()             # O, m, l

O, m, l = merge_states(state(s[:100], V[:100]), state(s[100:], V[100:]))
print(f"merged: off by {(O / l - truth).abs().max():.1e} (measured here)")

# %% [markdown]
# This operator on pairs $(m, l)$ is due to Milakov and Gimelshein (2018, section 3.1), who introduced online softmax: it is associative and commutative, like +. So eight workers can take shards of any size, finish in any order, and be merged as they come in. How unequal are their shares?

# %%
cuts = [0, 1, 20, 55, 60, 110, 111, 150, 200]                                    # eight shards, some tiny
states = [state(s[a:b], V[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
top = max(m for _, m, _ in states)
weights = torch.tensor([l * torch.exp(m - top) for _, m, l in states])
keys = [b - a for a, b in zip(cuts, cuts[1:], strict=False)]
figures.bars({f"worker {n}, {keys[n]} of 200 keys": 100 * share for n, share in enumerate((weights / weights.sum()).tolist())},
             "A worker's share of the weight is not its share of the keys", "Measured here: the sum of exp(score), l · exp(m).",
             "% of the row's weight")

# %% [markdown]
# Now merge the eight in fifty random orders. **Predict**: will all orders agree to the last bit?

# %%
my_bits_agree = None     # True or False

# %% [markdown]
# **Run and compare.** One state stands for nothing at all: $(0, -\infty, 0)$, no keys seen. Merging with it must change nothing; it is to `merge_states` what 0 is to +.

# %%
from functools import reduce

results = []
for _ in range(50):
    O, m, l = reduce(merge_states, [states[n] for n in torch.randperm(8)])
    results.append(O / l)
spread = torch.stack(results).sub(truth).abs().amax()
nothing = (torch.zeros(16), torch.tensor(-float("inf")), torch.tensor(0.0))
print(f"50 orders: off by at most {spread:.1e} (measured here)")
print("merging with no keys changes nothing:", torch.equal(merge_states(states[0], nothing)[0], states[0][0]))
said = compare("all orders of merging agree to the bit", my_bits_agree, all(torch.equal(r, results[0]) for r in results))

# %% [markdown]
# In mathematics all orders are equal; in floating point they differ in the last digits, as sums do. Partial attention over any set of keys can be combined later, on another core or another machine: that is why every rung of the ladder returns more than $O$.
#
# **Takeaway.** Softmax states merge in any order, so keys may be split any way you like: by tiles, by processors, by machines.

# %% [markdown]
# ## When the first score is hidden
#
# A causal mask sets scores to $-\infty$. If such a score comes first, `step` has seen nothing and sees nothing: its maximum stays $-\infty$. **Predict** what it makes of the scores $-\infty$, 1, 2: `"a number"` or `"nan"`?

# %%
my_guess = None

# %% [markdown]
# **Run and compare.** The true answer averages the values 20 and 30 only.

# %%
def walk(step):
    o, m, l = torch.tensor(0.0), torch.tensor(-float("inf")), torch.tensor(0.0)
    for s_j, v_j in zip(torch.tensor([-float("inf"), 1.0, 2.0]), torch.tensor([10.0, 20.0, 30.0]), strict=True):
        o, m, l, alpha = step(o, m, l, s_j, v_j)
        print(f"alpha = {alpha:.3f}, l = {l:.3f}", end="; ")
    return o / l

result = walk(step)
print(f"result {result:.4f}")
said = compare("what a hidden first score gives", my_guess, "nan" if result.isnan() else "a number")

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
# The next rung of the ladder. Each query walks all keys with the lines of `safe_step`, for a row of $V$ instead of a number; its $o$, $m$, $l$ stay on the chip, and $S$ exists only as one number at a time (Rabe and Staats 2021). Is the answer right, and what does it need in HBM?

# %%
from flashlab.memory import format_bytes
from flashlab.oracle import judge
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.online_softmax import online_softmax_forward

torch.manual_seed(0)
N, d = 32, 64
Q, K, V = (torch.randn(N, d) for _ in range(3))
for f in (naive_forward, online_softmax_forward):
    with Memory() as online:
        O, L = f(Q, K, V)
    print(f"{f.__name__:<23} peak in HBM {format_bytes(online.hbm_peak):>8} (modelled); {judge(O, L, Q, K, V)}")

# %% [markdown]
# The matrices are gone, and the answer is right. Have we won? Each query reads itself once and, one after the other, all keys and values. **Predict** the HBM traffic in bytes as a function of $N$, for $N$ queries and keys of $d = d_v = 64$ in float32.

# %%
my_bytes = None     # a function of N, for example lambda N: 4 * N * 64

# %% [markdown]
# **Run and compare.** Dots are counted under `Memory`, dashed lines are the closed forms. A function that you predicted is drawn as stars.

# %%
from flashlab import cost
from flashlab_course import sweeps

points = sweeps.over_N([8, 16, 32], d=64, rungs=["naive_forward", "online_softmax_forward"])
measured = {p["N"]: p["measured"] for p in points if p["rung"] == "online_softmax_forward"}
said = compare("traffic of one key at a time", my_bytes, measured, "bytes")
said.on(figures.traffic_against(points))

# %% [markdown]
# Less memory and far more traffic: $N_q d + N_q N_k (d + d_v)$ elements read, $N_q (d_v + 1)$ written. For each score naive attention moves 7 numbers (6 without the logsumexp, which plain attention does not compute), this rung $d + d_v = 128$. The formulas agree with the model to the byte, so they may speak for longer texts. (Bytes here are those a program asks for; on a GPU the L2 cache would serve many of these re-reads.)

# %%
for N in (1024, 4096):
    one, other = cost.naive_forward(N, N, d), cost.online_softmax_forward(N, N, d)
    print(f"N = {N}: naive {format_bytes(one.traffic)}, one key at a time {format_bytes(other.traffic)}, "
          f"{other.traffic / one.traffic:.1f} times as much, {other.traffic / (one.traffic - cost.logsumexp(N, N).traffic):.1f} "
          "times without logsumexp (modelled)")

# %% [markdown]
# It fetches every key once for each query and throws it away after one use. Meanwhile the SRAM could have held much more. **Predict** what percentage of the model's 192 KiB was ever in use. (That is an A100's L1 cache and shared memory together; a program there gets at most 163 KiB of it, on an H100 or H200 227 KiB. Running sums live in registers besides, which the model does not have.)

# %%
my_percent = None

# %% [markdown]
# **Run and compare.** On the chip there are one query, one key, one value, one output row, and a few numbers in between.

# %%
percent = 100 * online.sram_peak / online.sram_bytes
print(f"SRAM peak {format_bytes(online.sram_peak)} of {format_bytes(online.sram_bytes)}: {percent:.1f} % (modelled)")
said = compare("SRAM used by one key at a time", my_percent, percent, "%")

# %% [markdown]
# There is the way out. If a program kept 64 queries on the chip instead of one, each key that comes in would serve 64 of them, and $K$ and $V$ would be read 64 times less often. Tiles, then.
#
# **Takeaway.** Online softmax removes the need to store $S$; only tiles remove the traffic.

# %% [markdown]
# ## An open question
#
# After the first few keys $\alpha$ is nearly always 1, and multiplying by it is work for nothing. Could a kernel skip it? For one row that is an `if`. But a GPU program handles 64 or 128 rows at a time, and can skip only when *no* row has a new maximum. At the hundredth block of 64 random keys, how often is that? And what if rows were allowed to keep a slightly stale $m$, as long as nothing overflows? Try it: nothing in the induction needs $m$ to be the maximum. There is no check for this one.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Milakov and Gimelshein 2018, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867): the recurrence (Algorithm 3) and the operator that merges (section 3.1) · Rabe and Staats 2021, [Self-attention does not need $O(n^2)$ memory](https://arxiv.org/abs/2112.05682) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1 · Higham 2002, *Accuracy and Stability of Numerical Algorithms*, chapter 4, for the errors of sums · NVIDIA, [CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), compute capabilities, for shared memory a block
#
# **Next:** [04 · Block matmul](04_block_matmul.ipynb) cuts the matrices into tiles, goes wrong with the softmax, and puts it right with the step of this chapter.
