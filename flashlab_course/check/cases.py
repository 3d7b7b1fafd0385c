"""Inputs for cases, and the features that go with their sizes."""

import math
from dataclasses import replace

import torch

from flashlab_course.check.form import Case, Mistake

LARGE = 60.0                   # scores times this: exponentials overflow unless they are shifted
HUGE = 250.0                   # scores up to some 500
BELOW = 900.0                  # the stubs promise −1000: what starts, or is cut off, at −800 shows
EDGE = 997.0                   # so near to it that a hidden score of −1000 has some weight beside them
EPSILONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
DIGITS = 2e-9                  # a logarithm of 2 that was typed with ten digits may be off by that
# a score of 500 is known to 500 · 2⁻²⁴ = 3e-5, and so is the logarithm of its exponential
LOOSE = 2e-4


def normal(*shape, seed, dtype=torch.float32, factor=1.0):
    """Reproducible normal numbers, the same on every machine."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * factor).to(dtype)


def exact(*shape, seed):
    """Reproducible numbers with two digits behind the binary point: sums and products of a few are exact, in any
    order."""
    return (normal(*shape, seed=seed) * 4).round() / 4


def apart(T, step):
    """T with its columns `step` elements apart in memory: a stride that is taken for 1 shows."""
    return torch.repeat_interleave(T, step, -1)[..., ::step]


def widest(Q, V):
    """More columns than this no tensor beside the scores has: two of Q's or V's side by side, a column for l and one
    for m."""
    return 2 * max(Q.shape[-1], V.shape[-1]) + 2


def equal_weights(case):
    """The case with the same weight for all keys: what adds up in O is a sum that 16 bits would round more and more
    coarsely."""
    def make():
        inputs = case.make()
        return inputs | {"Q": torch.zeros_like(inputs["Q"]), "V": torch.full_like(inputs["V"], 1 + 7 / 1024)}

    return replace(case, make=make, units=2)


def in_float64(case):
    """The case in float64, where a small number shows that float32 swallows: an ε in a denominator.

    Where its arithmetic is exact in float32, an answer that keeps some of its sums in float32 passes; one that cannot
    take float64 at all is judged by the case as it was.
    """
    return replace(case, name=f"{case.name}, in float64", make=lambda: doubled(case.make()), loose=DIGITS, narrow=case,
                   features=case.features | {"float64 inputs"})


def doubled(value):
    """Tensors of a case's inputs in float64, wherever they are."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(map(doubled, value))
    return {name: doubled(part) for name, part in value.items()} if isinstance(value, dict) else value


def epsilon(*swaps, sizes=EPSILONS, name="epsilon", what="a small number was added to the denominator",
            look="the denominator: an ε changes every row, also those that need none"):
    """The mistake of an ε that nothing asks for, of any of the usual sizes. swaps: (old, new with ε) pairs, each a
    place for it."""
    first, *others = ([(old, new.replace("ε", str(size)))] for old, new in swaps for size in sizes)
    return Mistake(name, what, look, *first, also=others)


def attention_case(name, N_q, N_k, d=3, d_v=None, *, B_r=None, B_c=None, causal=None, scale=None, large=False,
                   factor=None,
                   below=False, exactly=False, dtype=torch.float32, seed=0, features=(), **more):
    """Q, K, V and the arguments that are given, as a Case whose features follow from the sizes.

    factor: what Q is multiplied by, LARGE where large is set. below: every score is far below 0, about −below if that
    is a number. exactly: of `exact` numbers.
    """
    d_v = d if d_v is None else d_v
    given = {k: v for k, v in {"B_r": B_r, "B_c": B_c, "causal": causal, "scale": scale}.items()
             if v is not None} | more
    sizes = {"N_q": N_q, "N_k": N_k, "d": d} | ({"d_v": d_v} if d_v != d else {})
    sizes |= {k: v for k, v in given.items() if k in ("B_r", "B_c", "scale") or k == "causal" and v}

    factor = factor or (LARGE if large else 1.0)
    large = large or factor > 1 or below

    def make():
        Q = normal(N_q, d, seed=3 * seed + 11, dtype=dtype, factor=factor)
        K = normal(N_k, d, seed=3 * seed + 12, dtype=dtype)
        V = normal(N_k, d_v, seed=3 * seed + 13, dtype=dtype)
        if below:
            Q, K = far_below(Q, K, scale, BELOW if below is True else below)
        if exactly:
            Q, K, V = (exact(*T.shape, seed=3 * seed + n) for n, T in ((11, Q), (12, K), (13, V)))
        return {"Q": Q, "K": K, "V": V} | given

    found = features_of(N_q, N_k, d, d_v, B_r, B_c, causal, scale, large, dtype)
    found |= {"only scores far below 0"} if below else set()
    return Case(name, make, frozenset(features) | found, sizes, LOOSE if large else 0.0)


def far_below(Q, K, scale=None, about=BELOW):
    """Q and K changed so that every score is about −BELOW, where a maximum that starts at 0 shows; at −EDGE they differ
    less."""
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    one, other = torch.zeros(Q.shape[-1], dtype=Q.dtype), torch.zeros(Q.shape[-1], dtype=Q.dtype)
    share = 0.5 if about == BELOW else 1.0             # at the edge all of it in Q: K's would be rounded away in dS K
    one[0], other[0] = abs(about / scale) ** share, -math.copysign(abs(about / scale) ** (1 - share), scale)
    return (Q / 4 + one, K / 4 + other) if about == BELOW else (Q / 64 + one, K / 4096 + other)


def features_of(*sizes, **more):
    """What is special about these sizes, in words that end a sentence: "wrong only with ..."."""
    return frozenset(text for text, holds in _features(*sizes, **more).items() if holds)


def _features(N_q, N_k, d, d_v, B_r=None, B_c=None, causal=False, scale=None, large=False, dtype=torch.float32):
    """{feature: whether these sizes have it}, the most telling first."""
    return {
        "queries that see no key": bool(causal) and N_q > N_k,
        "a causal mask and fewer queries than keys": bool(causal) and N_q < N_k,
        "a causal mask": bool(causal),
        "a short last key block": bool(B_c) and N_k % B_c != 0 and N_k > B_c,
        "more than two key blocks": bool(B_c) and N_k > 2 * B_c,
        "more than one key block": bool(B_c) and N_k > B_c,
        "a short last query block": bool(B_r) and N_q % B_r != 0 and N_q > B_r,
        "more than one query block": bool(B_r) and N_q > B_r,
        "only scores far below 0": False,                      # attention_case knows
        "large scores": large,
        "16-bit inputs": dtype in (torch.float16, torch.bfloat16),
        "a scale other than 1/√d": scale is not None and abs(scale - d**-0.5) > 1e-6,
        "d_v ≠ d": d_v != d,
        "fewer queries than keys": N_q < N_k,
        "more queries than keys": N_q > N_k,
        "N_q ≠ N_k": N_q != N_k,
        "B_r ≠ B_c": bool(B_r) and bool(B_c) and B_r != B_c,
        "more than one key": N_k > 1,
        "more than one query": N_q > 1,
    }


ORDER = list(_features(1, 1, 1, 1))            # every feature, whether it holds or not
WEAK = ORDER[ORDER.index("a scale other than 1/√d"):]      # worth a word only where no other feature fits


def in_order(features):
    """An exercise's own features first, then those that follow from sizes."""
    return sorted(features, key=lambda text: (ORDER.index(text) if text in ORDER else -1, text))
