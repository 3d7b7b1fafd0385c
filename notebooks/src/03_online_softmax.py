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
# **You will be able to** compute a softmax that cannot overflow, and its weighted sum in one pass over the scores; explain why rescaling is exact; merge two half-finished softmaxes; and say what is still wrong with attention that reads one key at a time.
#
# **You need** chapter 01 · **core:** sittings 1 and 2, 40 and 25 minutes · **further:** sitting 3, 15 minutes · **runs on** CPU or GPU
#
# $$\mathrm{softmax}(s)_j = \frac{e^{s_j}}{\sum_k e^{s_k}}$$
#
# The sum runs over the whole row of scores. But to keep $S$ out of HBM, we must use and forget each score before the row is complete.

# %%
from flashlab_course import figures  # flashlab first, then torch
import torch

from flashlab_course.check import check
from flashlab_course.lesson import compare, reveal
from flashlab_course.player.softmax import play_softmax

inf = float("inf")

# %% [markdown]
# ## Sitting 1 (core) · Softmax in one pass
#
# ### The formula overflows
#
# Float32 ends at $3.4 \cdot 10^{38}$, float16 at 65504. Exponentials get there soon, since $e^x = 10^{x / 2.303}$. **Predict** the largest whole number $x$ for which $e^x$ is still finite in float32.

# %%
my_largest_x = None

# %% [markdown]
# **Run and compare.**

# %%
x = torch.arange(1, 200)
largest = {dtype: x[torch.exp(x.to(dtype)).isfinite()].max().item() for dtype in (torch.float32, torch.float16)}
said = compare("largest x with a finite exponential", my_largest_x, largest[torch.float32])
ends = {f"largest {str(dtype)[6:]}": torch.finfo(dtype).max for dtype in largest}
inf_at = ", ".join(f"{str(dtype)[6:]} at x = {end + 1}" for dtype, end in largest.items())
said.on(figures.curves({"exp(x)": {x: 2.718281828**x for x in range(0, 96, 4)}}, f"exp(x) becomes inf: {inf_at}",
                       "Measured here: the largest whole x with a finite exponential. Dashed: torch.finfo(dtype).max.", "x", "",
                       log="y", ceilings=ends), axis="x")

# %% [markdown]
# One large score breaks the formula. This cell fails on purpose:

# %%
def softmax_by_formula(x):
    return torch.exp(x) / torch.exp(x).sum()

with_a_large_one = torch.tensor([1.0, 2.0, 100.0])
print("by the formula:", softmax_by_formula(with_a_large_one))
print("torch.softmax: ", torch.softmax(with_a_large_one, dim=-1))

# %% [markdown]
# Divide numerator and denominator by $e^m$, for any $m$: on paper, the quotient stays the same.
#
# $$\frac{e^{s_j}}{\sum_k e^{s_k}} = \frac{e^{s_j - m}}{\sum_k e^{s_k - m}}$$
#
# Run the cell, then try other shifts and scores. The computer fails in two ways: find both.

# %%
three = torch.tensor([1.0, 2.0, 3.0])
for m in [0.0, 1.0, -5.0, 60.0, 200.0]:
    shifted = torch.exp(three - m)
    print(f"m = {m:>5}: sum {shifted.sum():<12.4g} softmax {(shifted / shifted.sum()).numpy()}")

# %% [markdown]
# With $m = 200$ every exponential becomes 0, and $0/0$ is not a number. With a shift that is too small, they overflow.
#
# **Your turn** ([exercises/ex03_safe_softmax.py](../exercises/ex03_safe_softmax.py), 10 minutes). Choose a shift that is safe for every row, whatever its scores, and write the softmax of each row of $S$. Save the file and run the cell.

# %%
check("ex03_safe_softmax")

# %%
reveal("ex03_safe_softmax")

# %% [markdown]
# **Takeaway.** Shift by the maximum. No exponential exceeds 1 then, and the sum lies between 1 and $N$.
#
# ### One score at a time
#
# Scores $s_j$ arrive one by one, each with a value $v_j$, and none can be kept. We want the average $y = \sum_j \mathrm{softmax}(s)_j\, v_j$. Two running numbers are enough, starting from $c = y = 0$:
#
# $$c^{(j)} = c^{(j-1)} + e^{s_j} \qquad y^{(j)} = \frac{c^{(j-1)}\, y^{(j-1)} + e^{s_j}\, v_j}{c^{(j)}}$$
#
# Multiplying $y$ by the old $c$ undoes the old division. Then the new term is added, and the new $c$ divides.

# %%
from math import exp

s = [0.5, 2.0, -1.0, 3.0, 0.0]
v = [10.0, 20.0, 30.0, 40.0, 50.0]
c = y = 0.0
for j in range(len(s)):
    c_new = c + exp(s[j])
    y = (c * y + exp(s[j]) * v[j]) / c_new
    c = c_new
    truth = torch.softmax(torch.tensor(s[:j + 1]), 0) @ torch.tensor(v[:j + 1])
    print(f"s = {s[j]:>4}: c = {c:5.2f}, y = {y:.4f}, softmax over the scores seen so far: {truth:.4f}")

# %% [markdown]
# **Takeaway.** Two running numbers are enough for an average under softmax.
#
# ### The same, and safe
#
# But $c$ overflows, and the maximum is not known yet. So shift by the largest score *so far*, $m$: count the sum in units of $e^m$. When a larger score arrives, the unit changes, as from cents to dollars, and what was saved up must be converted.
#
# **Your turn** ([exercises/ex03_online_softmax.py](../exercises/ex03_online_softmax.py), 20 minutes). Find the exchange rate. Compute maximum and sum of a row that lies in HBM: read at most $B$ scores at a time, and each score once.

# %%
check("ex03_online_softmax")

# %%
reveal("ex03_online_softmax")

# %% [markdown]
# *The rest of this sitting tells the solution of the exercise.* Here is the step for one score. The exchange rate is $\alpha = e^{m_{\text{old}} - m_{\text{new}}}$. It converts the sum $l$, and in the same way the weighted sum $o$:
#
# $$m_{\text{new}} = \max(m, s_j) \qquad l \leftarrow \alpha\, l + e^{s_j - m_{\text{new}}} \qquad o \leftarrow \alpha\, o + e^{s_j - m_{\text{new}}}\, v_j$$

# %%
def step(o, m, l, s_j, v_j):
    m_new = torch.maximum(m, s_j)
    alpha = torch.exp(m - m_new)         # old unit -> new unit; e^(-inf) = 0 at the first step
    p = torch.exp(s_j - m_new)           # at most 1
    return alpha * o + p * v_j, m_new, alpha * l + p, alpha

# %% [markdown]
# The old $c$ is $l \cdot e^m$, which is never computed. The old $y$ is $o / l$, so one division at the end is enough.
#
# Five scores arrive: 0.5, 60, 90, 1, 90. **Predict** how often the unit changes after the first score.

# %%
my_rescales = None

# %% [markdown]
# **Run and compare.** A score of 90 would overflow $c$.

# %%
scores, values = torch.tensor([0.5, 60.0, 90.0, 1.0, 90.0]), torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])
o, m, l, rescales = torch.tensor(0.0), torch.tensor(-inf), torch.tensor(0.0), 0
for s_j, v_j in zip(scores, values, strict=True):
    rescales += bool(m < s_j and l > 0)
    o, m, l, alpha = step(o, m, l, s_j, v_j)
    print(f"s = {s_j:>4}: m = {m:>4}, alpha = {alpha:8.2g}, l = {l:.3f}, o / l = {o / l:.4f}")
print(f"softmax(scores) · values = {torch.softmax(scores, 0) @ values:.4f}")
said = compare("changes of unit in five scores", my_rescales, rescales)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The unit changes where the maximum grows: at 60 and at the first 90. Elsewhere $\alpha = e^0 = 1$ changes nothing, so the code needs no `if`.
#
# </details>
#
# Now watch it. Press *the unit grows* and step on: what happens to the bars of $l$ and $o$, and to $o / l$? Then change the scores and run the cell again: can $l$ be below 1 after an addition?

# %%
play_softmax(scores=[0.5, 2, -1, 3, 0, 2.5], values=[10, 20, 60, 30, 50, 40])

# %% [markdown]
# <details><summary><b>Why?</b> (after watching)</summary>
#
# Never. The largest score so far weighs $e^0 = 1$, one whole unit, and every other term is positive.
#
# </details>
#
# New maxima are rare. In random order, score number $n$ is the largest so far with probability $1/n$. Among 1000 scores there are $1 + \frac12 + \dots + \frac1{1000} \approx 7.5$ on average.
#
# **Takeaway.** When the maximum grows, one multiplication converts everything that was summed so far.
#
# ### Why it is exact
#
# Nothing is approximated. Claim: after $j$ scores, $l_j = \sum_{k \le j} e^{s_k - m_j}$, as if $m_j$ had been known from the start. The proof is by induction. For $j = 1$ this holds, because $l_1 = e^0$. If it holds for $j - 1$, then
#
# $$\alpha\, l_{j-1} + e^{s_j - m_j} = e^{m_{j-1} - m_j} \sum_{k<j} e^{s_k - m_{j-1}} + e^{s_j - m_j} = \sum_{k<j} e^{s_k - m_j} + e^{s_j - m_j} = l_j .$$
#
# With $v_k$ in the sums, the same lines prove $o$. They do not use that $m$ is a maximum: the maximum only keeps the numbers in range. What remains is rounding, so the error must shrink in float64:

# %%
for dtype in (torch.float32, torch.float64):
    torch.manual_seed(0)
    many, theirs = 20 * torch.randn(1000, dtype=dtype), torch.randn(1000, dtype=dtype)
    state = many.new_zeros(()), many.new_tensor(-inf), many.new_zeros(())
    for s_j, v_j in zip(many, theirs, strict=True):
        state = step(*state, s_j, v_j)[:3]
    exact = torch.softmax(many.double(), 0) @ theirs.double()
    print(f"{dtype}: one at a time is off by {abs(state[0] / state[2] - exact):.1e} (measured here)")

# %% [markdown]
# **Takeaway.** Online softmax is softmax, with the rounding errors of a sum.
#
# *End of sitting 1. To continue later, run the notebook from the top.*
#
# ## Sitting 2 (core) · Merge two states, then a first attention
#
# ### Two workers
#
# Two workers share the keys: each computes attention to one half. Can we average the two outputs? This cell fails on purpose:

# %%
torch.manual_seed(0)
row, V = 3 * torch.randn(200), torch.randn(200, 16)
wanted = torch.softmax(row, 0) @ V
halves = [torch.softmax(row[part], 0) @ V[part] for part in (slice(0, 100), slice(100, 200))]
error = ((halves[0] + halves[1]) / 2 - wanted).abs().max()
print(f"average of the halves: off by {error:.2f} (measured here); outputs are {wanted.abs().mean():.2f} in size on average")

# %% [markdown]
# A plain average gives both halves the same weight, wherever the large scores were. Each worker must also return the weight that it found: its $m$ and $l$. Call $(O, m, l)$ a **state**, with $O$ not yet divided by $l$.
#
# Here are two workers with three scores each. A bar is a worker's $l$; each part is one score. Try other scores.

# %%
two = {"A": [1.0, 2.0, 0.5], "B": [3.0, 2.5, 1.0]}          # change me
top = max(max(scores) for scores in two.values())
units = {f"worker {name}, in units of e^{unit:g}": {f"score {k}": exp(s - unit) for k, s in enumerate(scores, 1)}
         for name, scores in two.items() for unit in dict.fromkeys((max(scores), top))}
figures.bars(units, f"The bars can be added once both count in units of e^{top:g}",
             "Definition: each part is exp(score − unit).", "l, in units")

# %% [markdown]
# Each worker counts in units of its own maximum, so the bars of A and B cannot be added yet. Whose unit changes, and by what factor?
#
# <details><summary><b>Why?</b> (after watching)</summary>
#
# The common unit is that of the larger maximum, $e^3$. So A's bar is multiplied by $e^{2 - 3} = 0.37$: the middle bar. $O$ takes the same factor as $l$.
#
# </details>
#
# **Your turn** ([exercises/ex03_merge.py](../exercises/ex03_merge.py), 15 minutes). Make one state of two, also where a half saw no key.

# %%
check("ex03_merge")

# %%
reveal("ex03_merge")

# %% [markdown]
# Now merge the states of eight workers in fifty random orders, with the package's `merge`. The division comes last.

# %%
from functools import reduce

from flashlab.rungs.online_softmax import merge as merge_states

def state_of(s, V):
    m = s.max()
    p = torch.exp(s - m)
    return p @ V, m, p.sum()             # O, m, l

cuts = [0, 1, 20, 55, 60, 110, 111, 150, 200]                                    # eight shards, some tiny
states = [state_of(row[a:b], V[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
results = []
for _ in range(50):
    O, m, l = reduce(merge_states, [states[n] for n in torch.randperm(8)])
    results.append(O / l)
print(f"50 orders: off by at most {(torch.stack(results) - wanted).abs().max():.1e} (measured here)")
print("all orders agree to the last bit:", all(torch.equal(result, results[0]) for result in results))

# %% [markdown]
# On paper all orders give the same result: merging is associative and commutative, like $+$ (Milakov and Gimelshein 2018). In floating point the last digits differ, as they do for sums.
#
# **Takeaway.** States merge in any order, so keys may be split among tiles, processors or machines.
#
# ### When the first score is hidden
#
# A causal mask sets scores to $-\infty$. **Predict** what `step` makes of the scores $-\infty$, 1, 2: `"a number"` or `"nan"`?

# %%
my_guess = None

# %% [markdown]
# **Run and compare.** The true answer averages the values 20 and 30 only.

# %%
def walk(step):
    o, m, l = torch.tensor(0.0), torch.tensor(-inf), torch.tensor(0.0)
    for s_j, v_j in zip(torch.tensor([-inf, 1.0, 2.0]), torch.tensor([10.0, 20.0, 30.0]), strict=True):
        o, m, l, alpha = step(o, m, l, s_j, v_j)
        print(f"alpha = {alpha:.3f}, l = {l:.3f}", end="; ")
    return o / l

result = walk(step)
print(f"result {result:.4f}")
said = compare("what a hidden first score gives", my_guess, "nan" if result.isnan() else "a number")

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The maximum stays $-\infty$, and $-\infty - (-\infty)$ is not a number. Every later step inherits it.
#
# </details>
#
# The repair: shift by 0 as long as nothing has been seen. The weight $e^{-\infty - 0} = 0$ is right for a hidden key. The rungs call this shift `m_safe`.

# %%
def safe_step(o, m, l, s_j, v_j):
    m_new = torch.maximum(m, s_j)
    m_safe = m_new.masked_fill(m_new == -inf, 0)
    alpha = torch.exp(m - m_safe)
    p = torch.exp(s_j - m_safe)
    return alpha * o + p * v_j, m_new, alpha * l + p, alpha

visible = torch.softmax(torch.tensor([1.0, 2.0]), 0) @ torch.tensor([20.0, 30.0])
print(f"result {walk(safe_step):.4f}, attention to the two visible keys: {visible:.4f}")

# %% [markdown]
# **Takeaway.** $m = -\infty$ means that nothing was seen yet. Never subtract it from itself.
#
# ### Attention, one key at a time
#
# In the next rung of the ladder (Rabe and Staats 2021), each query reads one key after the other and takes `safe_step` with a row of $V$. Its $o$, $m$ and $l$ stay on the chip. Is the answer right, and how much HBM does it need?

# %%
from flashlab.memory import Memory, format_bytes
from flashlab.oracle import judge
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.online_softmax import online_softmax_forward

torch.manual_seed(0)
Q, K, V_all = (torch.randn(32, 64) for _ in range(3))
for f in (naive_forward, online_softmax_forward):
    with Memory() as mem:
        O_all, L_all = f(Q, K, V_all)
    print(f"{f.__name__:<23} peak in HBM {format_bytes(mem.hbm_peak):>8} (modelled); {judge(O_all, L_all, Q, K, V_all)}")

# %% [markdown]
# The answer is right, and the matrices $S$ and $P$ are gone. But for each query, the kernel loads the row of $Q$, then all keys and all values. It stores one row of $O$ and one number $L$.
#
# **Predict** the HBM traffic in bytes as a function of $N$, for $N$ queries and $N$ keys of $d = d_v = 64$ in float32.

# %%
my_bytes = None     # a function of N, for example lambda N: 4 * N * 64

# %% [markdown]
# **Run and compare.** Your function is drawn as stars.

# %%
from flashlab import cost
from flashlab_course import sweeps

points = sweeps.over_N([8, 16, 32], d=64, rungs=["naive_forward", "online_softmax_forward"])
measured = {p["N"]: p["measured"] for p in points if p["rung"] == "online_softmax_forward"}
said = compare("traffic of one key at a time", my_bytes, measured, "bytes", reasons={
    4 * 257 * 8: "You loaded every key once. Nothing keeps it on the chip: each query loads all keys and values again."})
said.on(figures.traffic_against(points))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# In elements: $N d$ for the queries, $N^2 (d + d_v)$ for the keys and values, $N (d_v + 1)$ for the results. With four bytes each, that is $4 (128 N^2 + 129 N)$.
#
# </details>
#
# For each score, naive attention moves 6 numbers, and this rung $d + d_v = 128$. At $N = 4096$ that is {{cost.online_softmax_forward(4096, 4096, 64).traffic / cost.naive_forward(4096, 4096, 64).traffic:.0f}} times as many bytes, by the formulas.
#
# Each key that is loaded serves one query. If a program kept 64 queries on the chip, it would serve 64, and $K$ and $V$ would be read 64 times less often. Hence the tiles of the next chapter.
#
# **Takeaway.** Online softmax removes the need to store $S$. Only tiles remove the traffic.
#
# *End of sitting 2 and of the core. You can go on to [chapter 04](04_block_matmul.ipynb).*
#
# ## Sitting 3 (further) · Passes, rounding, and a copied formula
#
# ### Three passes, two, one
#
# A vector $x$ of $N = 1000$ scores lies in HBM, beside values $v$ of shape $(1000, 4)$. There are three ways to $\mathrm{softmax}(x) \cdot v$:
#
# | way | passes over $x$ | at the end |
# |---|---|---|
# | three passes | maximum; sum; weights, stored | load weights and $v$ |
# | two passes | maximum and sum; weights, stored | load weights and $v$ |
# | one pass | maximum, sum and weighted sum, loading $v$ too | |
#
# **Predict** the bytes of the last way as a share of the first.

# %%
my_share = None     # between 0 and 1

# %% jupyter={"source_hidden": true}
from flashlab.rungs.online_softmax import softmax_three_pass, softmax_two_pass, softmax_weighted_sum

torch.manual_seed(0)
long_row, its_values = torch.randn(1000), torch.randn(1000, 4)
whole = {}
for name, f, args in [("three passes", softmax_three_pass, (long_row,)), ("two passes", softmax_two_pass, (long_row,)),
                      ("one pass", softmax_weighted_sum, (long_row, its_values))]:
    with Memory() as counted:
        f(*args, B=64)                                                             # 64 elements at a time
    average = len(args) == 1                                                       # weights and v come in, the average goes out
    whole[name] = {"read": counted.read + average * (long_row.nbytes + its_values.nbytes), "written": counted.written + average * 16}
share = sum(whole["one pass"].values()) / sum(whole["three passes"].values())
said = compare("share of bytes that one pass needs", my_share, share,
               reasons={1 / 3: "That is x alone. The values v are four times as large, and every way loads them once.",
                        0.2: "That leaves out v, which is loaded once in every way."})
figures.bars(whole, f"One pass moves {share:.0%} of the bytes of three", "Modelled: counted by flashlab.memory.", "HBM traffic", byte=True)

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# In elements, three passes read $3N$ and write $N$, then read $N + 4N$: $9N$ in all. One pass reads $N + 4N = 5N$.
#
# </details>
#
# The weights themselves still need two passes, because each is divided by the final $l$. For a *sum* of weights times values, one division at the end is enough.
#
# **Takeaway.** One pass is enough for a weighted sum, and attention is a weighted sum.
#
# ### How large can rounding get?
#
# Let $u = 2^{-24}$ be float32's rounding error, and $R$ the number of new maxima. All terms of $l$ are positive, so its relative error is at most the sum of these:
#
# | what rounds | at most, in units of $u$ | because |
# |---|---|---|
# | the additions | $N$ | each rounds once |
# | the conversions | $3R$ | $\alpha$ is off by up to $2u$, and the product rounds once |
# | the exponents | $\ln N$ | $s - m$ is off by up to $\lvert s - m \rvert\, u$, and over the terms of $l$ the average of $\lvert s - m \rvert$ is at most $\ln N$ |
#
# Rising scores set $N$ new maxima, falling scores one. **Predict** which order has the larger error: `"rising"` or `"falling"`?

# %%
my_order = None

# %% [markdown]
# **Run and compare.** Both, and a random order, against float64.

# %% jupyter={"source_hidden": true}
errors, bounds = ({order: {} for order in ("rising", "random", "falling")} for _ in range(2))
for N in (10, 100, 1000):
    for seed in range(10):
        drawn = 3 * torch.randn(N, generator=torch.Generator().manual_seed(seed))
        ordered = {"rising": drawn.sort().values, "random": drawn, "falling": drawn.sort(descending=True).values}
        for order, line in ordered.items():
            state = torch.tensor(0.0), torch.tensor(-inf), torch.tensor(0.0)
            for s_j in line:
                state = step(*state, s_j, s_j)[:3]
            exact = torch.exp(line.double() - line.double().max()).sum()
            bound = N + 3 * len(line.cummax(0).values.unique()) + torch.tensor(N).log().item()
            errors[order][N] = max(abs(state[2] / exact - 1).item() * 2**24, errors[order].get(N, 0))
            bounds[order][N] = max(bound, bounds[order].get(N, 0))
said = compare("order with the larger error", my_order, max("rising", "falling", key=lambda order: errors[order][1000]))
figures.curves(errors, f"l is off by at most {max(max(line.values()) for line in errors.values()):.0f} u",
               "Measured here: float32 against float64, the largest of ten rows.", "scores N", "relative error of l, in units of u",
               log="xy", dashed={f"bound, {order}": bounds[order] for order in ("rising", "falling")})

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# Rising scores are the *most* accurate, although they are converted a thousand times: small terms are added to small sums.
#
# </details>
#
# **Takeaway.** Rescaling costs no accuracy that matters.
#
# ### Find the bug
#
# This update of $l$ is in circulation in notes on FlashAttention. Is it the one that sitting 1 proved?
#
# $$l_j = l_{j-1} + e^{m_{j-1} - m_j} + e^{s_j - m_j}$$
#
# Eight equal scores have $l = 8$. **Predict** what this line makes of them.

# %%
my_copied_l = None

# %% [markdown]
# **Run and compare.**

# %%
def l_as_copied(scores):
    m, l = -inf, 0.0
    for s_j in scores:
        m_new = max(m, s_j)
        l = l + exp(m - m_new) + exp(s_j - m_new)
        m = m_new
    return l

print("one score:         ", l_as_copied([1.0]), "where 1.0 is right")
print("eight equal scores:", l_as_copied([1.0] * 8), "where 8.0 is right")
said = compare("l of eight equal scores by the copied line", my_copied_l, l_as_copied([1.0] * 8))

# %% [markdown]
# <details><summary><b>Why?</b> (after the comparison)</summary>
#
# The factor $e^{m_{j-1} - m_j}$ was added instead of multiplied. The first step adds 1, and each of the other seven adds 2.
#
# </details>
#
# A test with one key would have passed.
#
# **Takeaway.** Try a printed formula on a case that you can do in your head, with more than one step.
#
# ### An open question
#
# After the first few keys $\alpha$ is nearly always 1. Could a kernel skip the multiplication? A GPU program handles 64 or 128 rows at a time, and can skip only when *no* row has a new maximum. How often is that, at the hundredth block of 64 random keys? And what if a row may keep a slightly stale $m$? The induction allows it.

# %%
# Your experiment goes here.

# %% [markdown]
# ## Sources
#
# Milakov and Gimelshein 2018, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867): the recurrence (Algorithm 3) and the operator that merges (section 3.1) · Rabe and Staats 2021, [Self-attention does not need $O(n^2)$ memory](https://arxiv.org/abs/2112.05682) · Dao et al. 2022, [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1 · Higham 2002, *Accuracy and Stability of Numerical Algorithms*, chapter 4, for the errors of sums
#
# **Next:** [04 · Block matmul](04_block_matmul.ipynb) cuts the matrices into tiles, goes wrong with the softmax, and repairs it with the step of this chapter.
