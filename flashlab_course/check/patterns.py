"""What the error looks like where no formula explains it: a permutation, a factor, a shift, a logarithm, digits lost, a part.

Each function looks at one output in all the cases where it is wrong, and says only what holds in every one of them.
"""

import math
from dataclasses import dataclass, field
from itertools import combinations

import torch

from flashlab_course.check import where

LN2 = math.log(2)
ENOUGH = 3                     # so many numbers have to fit before it is no chance


@dataclass
class Seen:
    """One output in one case where it is wrong."""

    x: torch.Tensor            # the learner's, in float64
    y: torch.Tensor            # the truth
    bound: float
    inputs: dict
    sizes: dict
    dtype: object
    case: str = ""
    known: dict = field(default_factory=dict)    # {name: tensor}: the right results and the inputs, in float64

    def near(self, other):
        """Is the learner's answer `other`, as far as rounding allows, and ten times nearer to it than to the truth? NaN for NaN."""
        if other.shape != self.x.shape:
            return False
        same = (self.x == other) | (self.x.isnan() & other.isnan())
        finite = other[other.isfinite()]
        tolerance = 2 * self.bound + 1e-5 * (finite.abs().max().item() if finite.numel() else 0)
        if self.ok.any():
            tolerance = min(tolerance, max(2 * self.bound, (self.x - self.y)[self.ok].abs().max().item() / 10))
        return bool((((self.x - other).abs() <= tolerance) | same).all())

    @property
    def ok(self):
        return self.x.isfinite() & self.y.isfinite()

    @property
    def settled(self):
        """Is what is not finite right: are the finite entries all that has to be explained?"""
        return bool((self.ok | (self.x == self.y) | (self.x.isnan() & self.y.isnan())).all())


def say(output, cases, shown=None, always=True):
    """Sentences on an output, from what explains all of it to which part of it is wrong.

    cases:  those where it is wrong. always: it is wrong in every case there is
    shown:  the case that the report has just shown a number of: a sentence on it begins with "there", one on another case names it
    """
    if all(not s.x.is_floating_point() for s in cases):
        return []
    name, axes = output.name, output.axes
    odd = [s for s in cases if (~s.x.isfinite() & s.y.isfinite()).any()]
    if odd and len(odd) == len(cases):
        texts = [_not_finite(name, axes, s) for s in odd]
        of_all = len(set(texts)) == 1 and always
        return [texts[0] if of_all else _in(odd[0], shown) + texts[0]]
    if odd:
        rest = [s for s in cases if all(s is not other for other in odd)]
        apart = f"in “{rest[0].case}” " if len(rest) == 1 else f"where {name} is wrong and finite, "
        finite = [apart + said.removeprefix("there ") for said in say(output, rest, rest[0].case)]
        return [*finite, f"in “{odd[0].case}” {_not_finite(name, axes, odd[0])}"]
    for look in (_zero, _combined, _permuted, _transposed, _factor, _shift, _function, _rounded, _row_factor, _nearly):
        if said := look(name, axes, cases):
            return [said if always else f"where {name} is wrong, {said}"]
    first = cases[0]
    said = where.region(name, axes, where.wrong_entries(first.x, first.y, first.bound), first.sizes)
    return [_in(first, shown) + said] if said else []


def _in(seen, shown):
    return "there " if seen.case == shown else f"in “{seen.case}” "


def _not_finite(name, axes, seen):
    bad = seen.x.isnan() & ~seen.y.isnan()
    if not bad.any():
        if (seen.x[~seen.x.isfinite() & seen.y.isfinite()] == -float("inf")).all():
            return f"{name} holds −inf: the logarithm of 0, or a −inf that stayed"
        return f"{name} holds infinities: an exponential overflowed, or something was divided by 0"
    if bad.all():
        return f"every entry of {name} is NaN (or was never written)"
    bad |= seen.x.isinf() & seen.y.isfinite()
    what = "infinite or NaN" if seen.x[bad].isinf().any() else "NaN, or never written,"
    return f"{what} in {name} for {where.part(axes or ('row',), bad, seen.sizes)}, and only there"


def _zero(name, axes, cases):
    return f"{name} is 0 everywhere" if all((s.x == 0).all() for s in cases) else ""


def _transposed(name, axes, cases):
    square = [s.y.ndim > 1 and s.y.shape[-1] == s.y.shape[-2] > 1 for s in cases]
    if any(square) and all(s.near(s.y.mT) for s, holds in zip(cases, square, strict=True) if holds):
        return f"{name} is the transpose of the right answer" + ("" if all(square) else " (where it is square)")
    return ""


# ---- the right numbers in the wrong place

def _permuted(name, axes, cases):
    """Slices along one axis that stand where others belong."""
    for dim, axis in enumerate(axes):
        found = [_places(s, dim) for s in cases]
        if all(places is not None for places in found):
            return _told(name, axis, found)
    return ""


def _places(seen, dim):
    """For each slice along dim, the number of the right slice that stands there; None if one stands nowhere in the truth."""
    x, y = (T.movedim(dim, 0).reshape(T.shape[dim], -1) for T in (seen.x, seen.y))
    tolerance = 2 * seen.bound + 1e-6 * y[y.isfinite()].abs().max().item() if y.isfinite().any() else 0
    far = (x[:, None] - y[None]).abs().nan_to_num(math.inf).amax(-1) if y.shape[1] else None
    if far is None or len(y) < 2 or not bool((far.min(1).values <= tolerance).all()):
        return None
    places = far.argmin(1).tolist()
    return None if places == list(range(len(places))) or len(set(places)) < 2 else places


def _told(name, axis, found):
    what = where.plural(axis)
    sizes = [len(places) for places in found]
    if all(places == list(range(n))[::-1] for places, n in zip(found, sizes, strict=True)):
        return f"the {what} of {name} are right, but stand in reverse order"
    for step in (1, -1):
        if all(places == [(i + step) % n for i in range(n)] for places, n in zip(found, sizes, strict=True)):
            return f"the {what} of {name} are right, but each stands one place too {'early' if step == 1 else 'late'}"
    places = next(p for p in found)
    moved = [(i, place) for i, place in enumerate(places) if i != place]
    i, place = moved[0]
    if len(set(places)) < len(places):
        return f"the {what} of {name} are right numbers in the wrong place: {axis} {i} holds what belongs into {axis} {place}"
    return f"the {what} of {name} are right, but stand in another order: {axis} {i} holds what belongs into {axis} {place}"


# ---- one number in all entries

def _usable(cases):
    return all(s.settled and s.ok.any() and s.y[s.ok].abs().max() > 1e-6 for s in cases) and sum(int(s.ok.sum()) for s in cases) > 2


def factor_of(x, y):
    """The number that y is multiplied by in x, if it is one."""
    ok = x.isfinite() & y.isfinite()
    return ((x[ok] * y[ok]).sum() / (y[ok] * y[ok]).sum().clamp_min(1e-30)).item()


def _tolerance(s):
    return s.bound + 1e-4 * s.y[s.ok].abs().max().item()


def _factor(name, axes, cases):
    if not _usable(cases):
        return ""
    factors = [factor_of(s.x, s.y) for s in cases]
    if not all(abs(f) > 1e-6 and abs(f - 1) > 1e-3 and bool(((s.x - f * s.y).abs()[s.ok] <= s.bound * max(1, abs(f)) + 1e-4 * abs(f)
               * s.y[s.ok].abs().max()).all()) for f, s in zip(factors, cases, strict=True)):
        return ""
    known = _constant([(f, s) for f, s in zip(factors, cases, strict=True)])
    if known or all(abs(f - factors[0]) < 1e-3 * abs(factors[0]) for f in factors):
        return f"every entry of {name} is {factors[0]:.4g} times what it should be{known}"
    if not all(s.y.numel() > 1 for s in cases):        # one number is always some number times another
        return ""
    return f"every entry of {name} is the same number times what it should be, in “{cases[0].case}” {factors[0]:.4g}"


def constants(inputs, sizes):
    """{name: value} of the numbers that a factor may be made of in this case."""
    found = {"2": 2.0, "−1": -1.0, "1/2": 0.5, "4": 4.0, "1/4": 0.25, "ln 2": LN2, "1/ln 2": 1 / LN2}
    numbers = {**sizes, **{k: v for k, v in inputs.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}}
    if "d" not in numbers and (Q := inputs.get("Q", inputs.get("Q_i"))) is not None:
        numbers["d"] = Q.shape[-1]
    if "d" in numbers:
        found |= {"√d": numbers["d"] ** 0.5, "1/√d": numbers["d"] ** -0.5}
    for key, value in numbers.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value:
            found |= {key: float(value), f"1/{key}": 1 / value, f"{key}²": float(value) ** 2}
            if 0 < value < 1 and "p" in key:
                found |= {f"1 − {key}": 1 - value, f"1/(1 − {key})": 1 / (1 - value)}
    if "B_c" in numbers and "N_k" in numbers:
        blocks = float(-(-numbers["N_k"] // numbers["B_c"]))
        found |= {"the number of key blocks": blocks, "one by the number of key blocks": 1 / blocks}
    return found


def _constant(factors):
    """What the factor is, where it is one of the usual suspects in every case."""
    tables = [constants(s.inputs, s.sizes) for _, s in factors]
    plain = {f"{f:.4g}" for f, _ in factors}
    for text in tables[0]:
        if all(text in table and abs(f / table[text] - 1) < 2e-3 for (f, _), table in zip(factors, tables, strict=True)):
            return "" if plain == {text} else f", which is {text}"
    return ""


def _shift(name, axes, cases):
    if not _usable(cases):
        return ""
    shifts = [(s.x - s.y)[s.ok].mean().item() for s in cases]
    if not all(abs(shift) > 1e-3 and bool(((s.x - s.y - shift)[s.ok].abs() <= _tolerance(s)).all())
               for shift, s in zip(shifts, cases, strict=True)):
        return ""
    tables = [_positive(constants(s.inputs, s.sizes)) for s in cases]
    for text in tables[0]:
        if all(text in table and abs(abs(shift) - table[text]) < 1e-4 * abs(shift) and shift * shifts[0] > 0
               for shift, table in zip(shifts, tables, strict=True)):
            return f"every entry of {name} is too {'large' if shifts[0] > 0 else 'small'} by {text}"
    if all(abs(shift - shifts[0]) < 1e-3 * abs(shifts[0]) for shift in shifts):
        return f"every entry of {name} is {shifts[0]:+.4g} off, the same everywhere"
    if not all(s.y.numel() > 1 for s in cases):        # one number is always off by some number
        return ""
    return f"every entry of {name} is off by the same number, in “{cases[0].case}” by {shifts[0]:+.4g}"


def _positive(table):
    """The positive ones of these numbers, and their logarithms."""
    return {text: v for text, v in table.items() if v > 0} | {f"log({text})": math.log(v) for text, v in table.items() if v > 1}


# ---- a function of the right number

FUNCTIONS = [
    ("the exponential of what it should be: a logarithm is missing, or exp is too much", torch.exp),
    ("the logarithm of what it should be", torch.log),
    ("2 to the power of what it should be", torch.exp2),
    ("the logarithm to base 2 of what it should be", torch.log2),
    ("the square of what it should be", torch.square),
    ("the square root of what it should be", torch.sqrt),
    ("one divided by what it should be", torch.reciprocal),
    ("1 minus what it should be", lambda y: 1 - y),
    ("the absolute value of what it should be", torch.abs),
    ("what it should be with everything below 0 set to 0", lambda y: y.clamp_min(0)),
]


def _function(name, axes, cases):
    if sum(s.x.numel() for s in cases) < 3:
        return ""
    for text, function in FUNCTIONS:
        if all(s.near(function(s.y)) for s in cases):
            return f"every entry of {name} is {text}"
    return ""


def _rounded(name, axes, cases):
    """Are all entries numbers of a shorter format?"""
    for dtype in (torch.float16, torch.bfloat16):              # float32 is what the stubs ask for
        wider = all(s.dtype.is_floating_point and torch.finfo(s.dtype).bits > 16 for s in cases)
        if wider and all(s.ok.all() and torch.equal(s.x.to(dtype).double(), s.x)
                         and (s.x - s.y).abs().max() < 2e-2 * s.y.abs().max() for s in cases):
            text = str(dtype).removeprefix("torch.")
            return f"every entry of {name} is a number that {text} can hold: it was rounded to 16 bits on the way"
    return ""


def _row_factor(name, axes, cases):
    for dim in (-1, -2) if len(axes) > 1 else ():
        told = sum(s.y.numel() - s.y.numel() // max(1, s.y.shape[dim]) for s in cases)
        if told >= ENOUGH and all(_scaled_along(s, dim) for s in cases) and not all(_right_or_0(s, dim) for s in cases):
            axis = axes[-2] if dim == -1 else axes[-1]
            s = next((s for s in cases if s.y.shape[dim] > 1 and s.y.numel() > s.y.shape[dim]), cases[0])
            factors = _factors(s, dim).flatten()
            n = (factors - 1).abs().argmax().item()
            which = f", which is {text}" if (text := _vector([(_factors(s, dim).squeeze(dim), s) for s in cases])) else ""
            example = f"that of {axis} {n} in “{s.case}” is {factors[n].item():.4g}"
            return f"each {axis} of {name} is right up to a factor of its own{which} ({example})"
    return ""


def _factors(s, dim):
    x, y = s.x.masked_fill(~s.ok, 0), s.y.masked_fill(~s.ok, 0)
    return (x * y).sum(dim, keepdim=True) / (y * y).sum(dim, keepdim=True).clamp_min(1e-30)


def _right_or_0(s, dim):
    """Is what can be compared right, but for rows of 0? What is not may be NaN, and 0 is no factor that tells anything."""
    zero = (s.x == 0).all(dim, keepdim=True).expand_as(s.x)
    return bool(((s.x - s.y).abs()[s.ok & ~zero] <= _tolerance(s)).all())


def _scaled_along(s, dim):
    if s.y.ndim < 2 or not s.ok.any():
        return False
    return bool(((s.x - _factors(s, dim) * s.y).abs()[s.ok] <= _tolerance(s)).all())


def _vector(pairs):
    """The name of what these factors are in every case: l, 1/l, exp(m)."""
    for text in _unary(pairs[0][1].known):
        vectors = [_unary(s.known).get(text) for _, s in pairs]
        if all(v is not None and v.shape == f.shape for (f, _), v in zip(pairs, vectors, strict=True)):
            told = [v.isfinite() & (f != 0) for (f, _), v in zip(pairs, vectors, strict=True)]
            near = [(f - v).abs() <= 1e-3 * v.abs().clamp_min(1e-6) for (f, _), v in zip(pairs, vectors, strict=True)]
            if sum(int(t.sum()) for t in told) >= ENOUGH and all(n[t].all() for n, t in zip(near, told, strict=True)):
                return text
    return ""


def _unary(known):
    found = {}
    for name, v in known.items():
        found |= {name: v, f"1/{name}": 1 / v, f"exp({name})": v.exp(), f"exp(−{name})": (-v).exp()}
        found |= {f"{name}²": v * v, f"−{name}": -v}
    return found


# ---- two tensors put together

BINARY = [
    ("{a} + {b}", torch.add), ("{a} − {b}", torch.sub), ("{b} − {a}", lambda a, b: b - a), ("{a} · {b}", torch.mul),
    ("{a} / {b}", torch.div), ("{b} / {a}", lambda a, b: b / a), ("max({a}, {b})", torch.maximum), ("min({a}, {b})", torch.minimum),
    ("log(exp({a}) + exp({b}))", torch.logaddexp), ("({a} + {b}) / 2", lambda a, b: (a + b) / 2),
    ("{a} + log({b})", lambda a, b: a + b.log()), ("{a} − log({b})", lambda a, b: a - b.log()), ("{b} + log({a})",
     lambda a, b: b + a.log()),
]
UNARY = [("{a}", lambda a: a), ("exp({a})", torch.exp), ("log({a})", torch.log), ("−{a}", torch.neg), ("2·{a}", lambda a: 2 * a)]


def _combined(name, axes, cases):
    """An input or another result, or two of them put together."""
    if len(torch.cat([s.x[s.x.isfinite() & (s.x != 0)].flatten() for s in cases]).unique()) < ENOUGH:
        return ""
    first = max(cases, key=lambda s: s.x.numel())
    for names, text, make in _combinations(first):
        if first.near(make(*(first.known[n] for n in names))) and \
           all(all(n in s.known for n in names) and s.near(make(*(s.known[n] for n in names))) for s in cases):
            said = text.format(a=names[0], b=names[-1])
            if said == name:
                return f"{name} is what it was before the call"
            return f"{name} is {said}" if any(mark in said for mark in "(+−·/") else f"{name} is {said}, nothing else"
    return ""


def _combinations(seen):
    alike = [n for n, T in seen.known.items() if T.shape == seen.x.shape]
    for n in alike:
        for text, make in UNARY:
            yield (n,), text, make
    for pair in combinations(alike, 2):
        for text, make in BINARY:
            yield pair, text, make


def _nearly(name, axes, cases):
    if not all(s.settled and s.ok.any() and (s.x - s.y)[s.ok].abs().max() < 5e-3 * s.y[s.ok].abs().max() for s in cases):
        return ""
    error = max((s.x - s.y)[s.ok].abs().max().item() for s in cases)
    return (f"all of {name} is nearly right: the largest error is {error:.1e}, and rounding alone explains {cases[0].bound:.1e}. "
            "Where are digits lost?")
