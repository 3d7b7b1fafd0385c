"""What the error of a tensor looks like: NaN, zeros, a permutation, a factor, a shift, a part.

Each function looks at one output in all the cases where it is wrong, and says only what holds in every one of them.
"""

import math
from dataclasses import dataclass

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
    case: str = ""

    @property
    def ok(self):
        return self.x.isfinite() & self.y.isfinite()

    @property
    def settled(self):
        """Do all entries that are not finite match the truth, so that only finite ones have to be explained?"""
        return bool((self.ok | (self.x == self.y) | (self.x.isnan() & self.y.isnan())).all())

    @property
    def tolerance(self):
        return self.bound + 1e-4 * self.y[self.ok].abs().max().item()


def say(output, cases, shown=None, always=True):
    """Sentences on an output, from what explains all of it to which part of it is wrong.

    cases:  those where it is wrong. always: it is wrong in every case there is
    shown:  the case that the report has just shown a number of: a sentence on it begins with "there", one on another
            case names it
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
    for look in (_zero, _permuted, _factor, _shift, _row_factor):
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
    what = "infinite or NaN" if seen.x[bad].isinf().any() else "NaN, or was never written,"
    return f"{name} is {what} in {where.part(axes or ('row',), bad, seen.sizes)} and nowhere else"


def _zero(name, axes, cases):
    return f"{name} is 0 everywhere" if all((s.x == 0).all() for s in cases) else ""


# ---- the right numbers in the wrong place

def _permuted(name, axes, cases):
    """Slices along one axis that stand where others belong."""
    for dim, axis in enumerate(axes):
        found = [_places(s, dim) for s in cases]
        if all(places is not None for places in found):
            return _told(name, axis, found)
    return ""


def _places(seen, dim):
    """For each slice along dim, the number of the right slice that stands there; None if that is not certain.

    A slice that is right stays where it is, and one whose numbers are all the same proves nothing by moving.
    """
    x, y = (T.movedim(dim, 0).reshape(T.shape[dim], -1) for T in (seen.x, seen.y))
    if len(y) < 2 or not y.shape[1]:
        return None
    tolerance = 2 * seen.bound + 1e-6 * y[y.isfinite()].abs().max().item() if y.isfinite().any() else 0
    near = (x[:, None] - y[None]).abs().nan_to_num(math.inf).amax(-1) <= tolerance
    if not near.any(1).all():
        return None
    places = [n if row[n] else row.tolist().index(True) for n, row in enumerate(near)]
    moved = [n for n, place in enumerate(places) if n != place]
    telling = len(moved) > 1 and len(set(places)) > 1
    return places if telling and (y.shape[1] == 1 or any(len(x[n].unique()) > 1 for n in moved)) else None


def _told(name, axis, found):
    what = where.plural(axis)
    sizes = [len(places) for places in found]
    if all(places == list(range(n))[::-1] for places, n in zip(found, sizes, strict=True)):
        return f"the {what} of {name} are right, but stand in reverse order"
    for step in (1, -1):
        if all(places == [(i + step) % n for i in range(n)] for places, n in zip(found, sizes, strict=True)):
            return f"the {what} of {name} are right, but each stands one place too {'early' if step == 1 else 'late'}"
    places = found[0]
    i, place = next((i, place) for i, place in enumerate(places) if i != place)
    kind = "right numbers in the wrong place" if len(set(places)) < len(places) else "right, but stand in another order"
    return f"the {what} of {name} are {kind}: {axis} {i} holds what belongs in {axis} {place}"


# ---- one number in all entries

def _usable(cases):
    compared = sum(int(s.ok.sum()) for s in cases)
    return compared >= ENOUGH and all(s.settled and s.ok.any() and s.y[s.ok].abs().max() > 1e-6 for s in cases)


def _factor(name, axes, cases):
    if not _usable(cases):
        return ""
    factors = [_factor_of(s.x[s.ok], s.y[s.ok]) for s in cases]
    if not all(map(_is_factor, cases, factors)):
        return ""
    known = _constant(factors, cases)
    if known or all(abs(f - factors[0]) < 1e-3 * abs(factors[0]) for f in factors):
        return f"every entry of {name} is {factors[0]:.4g} times what it should be{known}"
    if not all(s.y.numel() > 1 for s in cases):        # one number is always some number times another
        return ""
    return f"every entry of {name} is the same number times what it should be, in “{cases[0].case}” {factors[0]:.4g}"


def _factor_of(x, y):
    """The number that y is multiplied by in x, if it is one."""
    return ((x * y).sum() / (y * y).sum().clamp_min(1e-30)).item()


def _is_factor(s, f):
    """Is the learner's answer f times the truth, and f neither 0 nor 1?"""
    largest = s.y[s.ok].abs().max()
    tolerance = s.bound * max(1, abs(f)) + 1e-4 * abs(f) * largest
    return abs(f) > 1e-6 and abs(f - 1) > 1e-3 and bool(((s.x - f * s.y).abs()[s.ok] <= tolerance).all())


def _constants(inputs, sizes):
    """{name: value} of the numbers that a factor may be made of in this case."""
    found = {"2": 2.0, "−1": -1.0, "1/2": 0.5, "4": 4.0, "1/4": 0.25, "ln 2": LN2, "1/ln 2": 1 / LN2}
    numbers = {k: v for k, v in (sizes | inputs).items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    if "d" not in numbers and (Q := inputs.get("Q", inputs.get("Q_i"))) is not None:
        numbers["d"] = Q.shape[-1]
    if "d" in numbers:
        found |= {"√d": numbers["d"] ** 0.5, "1/√d": numbers["d"] ** -0.5}
    for key, value in numbers.items():
        if value:
            found |= {key: float(value), f"1/{key}": 1 / value, f"{key}²": float(value) ** 2}
            if 0 < value < 1 and "p" in key:
                found |= {f"1 − {key}": 1 - value, f"1/(1 − {key})": 1 / (1 - value)}
    if "B_c" in numbers and "N_k" in numbers:
        blocks = float(-(-numbers["N_k"] // numbers["B_c"]))
        found |= {"the number of key blocks": blocks, "one by the number of key blocks": 1 / blocks}
    return found


def _constant(factors, cases):
    """", which is √d", where the factor has the same name in every case."""
    tables = [_constants(s.inputs, s.sizes) for s in cases]
    plain = {f"{f:.4g}" for f in factors}
    for text in tables[0]:
        if all(text in table and abs(f / table[text] - 1) < 2e-3 for f, table in zip(factors, tables, strict=True)):
            return "" if plain == {text} else f", which is {text}"
    return ""


def _shift(name, axes, cases):
    if not _usable(cases):
        return ""
    shifts = [(s.x - s.y)[s.ok].mean().item() for s in cases]
    if not all(abs(shift) > 1e-3 and bool(((s.x - s.y - shift)[s.ok].abs() <= s.tolerance).all())
               for shift, s in zip(shifts, cases, strict=True)):
        return ""
    if all(abs(shift - shifts[0]) < 1e-3 * abs(shifts[0]) for shift in shifts):
        return f"every entry of {name} is {shifts[0]:+.4g} off, the same everywhere"
    if not all(s.y.numel() > 1 for s in cases):        # one number is always off by some number
        return ""
    return f"every entry of {name} is off by the same number, in “{cases[0].case}” by {shifts[0]:+.4g}"


# ---- a number for each row, or each column

def _row_factor(name, axes, cases):
    for dim in (-1, -2) if len(axes) > 1 else ():
        told = sum(s.y.numel() - s.y.numel() // max(1, s.y.shape[dim]) for s in cases)
        if told >= ENOUGH and all(_scaled_along(s, dim) for s in cases) and not all(_right_or_0(s, dim) for s in cases):
            axis = axes[-2] if dim == -1 else axes[-1]
            s = next((s for s in cases if s.y.shape[dim] > 1 and s.y.numel() > s.y.shape[dim]), cases[0])
            factors = _factors(s, dim).flatten()
            n = (factors - 1).abs().argmax().item()
            example = f"that of {axis} {n} in “{s.case}” is {factors[n].item():.4g}"
            return f"each {axis} of {name} is right up to a factor of its own ({example})"
    return ""


def _factors(s, dim):
    x, y = s.x.masked_fill(~s.ok, 0), s.y.masked_fill(~s.ok, 0)
    return (x * y).sum(dim, keepdim=True) / (y * y).sum(dim, keepdim=True).clamp_min(1e-30)


def _right_or_0(s, dim):
    """Is everything finite right, except rows of zeros? 0 is no factor that tells anything."""
    zero = (s.x == 0).all(dim, keepdim=True).expand_as(s.x)
    return bool(((s.x - s.y).abs()[s.ok & ~zero] <= s.tolerance).all())


def _scaled_along(s, dim):
    if s.y.ndim < 2 or not s.ok.any():
        return False
    return bool(((s.x - _factors(s, dim) * s.y).abs()[s.ok] <= s.tolerance).all())
