"""Inputs for cases, and the features that go with their sizes."""

import torch

from flashlab.check.form import Case

LARGE = 60.0                   # scores times this: exponentials overflow unless they are shifted
LOOSE = 2e-4                   # a score of 500 is known to 500 · 2⁻²⁴ = 3e-5, and so is the logarithm of its exponential


def normal(*shape, seed, dtype=torch.float32, factor=1.0):
    """Reproducible normal numbers, the same on every machine."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * factor).to(dtype)


def attention_case(name, N_q, N_k, d=3, d_v=None, *, B_r=None, B_c=None, causal=None, scale=None, large=False,
                   dtype=torch.float32, seed=0, features=(), **more):
    """Q, K, V and the arguments that are given, as a Case whose features follow from the sizes."""
    d_v = d if d_v is None else d_v
    given = {k: v for k, v in {"B_r": B_r, "B_c": B_c, "causal": causal, "scale": scale}.items() if v is not None} | more
    sizes = {"N_q": N_q, "N_k": N_k, "d": d} | ({"d_v": d_v} if d_v != d else {})
    sizes |= {k: v for k, v in given.items() if k in ("B_r", "B_c", "scale") or k == "causal" and v}

    def make():
        Q = normal(N_q, d, seed=3 * seed + 11, dtype=dtype, factor=LARGE if large else 1.0)
        K = normal(N_k, d, seed=3 * seed + 12, dtype=dtype)
        return {"Q": Q, "K": K, "V": normal(N_k, d_v, seed=3 * seed + 13, dtype=dtype)} | given

    found = features_of(N_q, N_k, d, d_v, B_r, B_c, causal, scale, large, dtype)
    return Case(name, make, frozenset(features) | found, sizes, LOOSE if large else 0.0)


def features_of(*sizes, **more):
    """What is special about these sizes, in words that end a sentence: "wrong only with ..."."""
    return frozenset(text for text, holds in _features(*sizes, **more).items() if holds)


def _features(N_q, N_k, d, d_v, B_r=None, B_c=None, causal=False, scale=None, large=False, dtype=torch.float32):
    """{feature: whether these sizes have it}, the most telling first."""
    return {
        "a causal mask": bool(causal),
        "queries that see no key": bool(causal) and N_q > N_k,
        "more than one key block": bool(B_c) and N_k > B_c,
        "more than two key blocks": bool(B_c) and N_k > 2 * B_c,
        "a short last key block": bool(B_c) and N_k % B_c != 0 and N_k > B_c,
        "more than one query block": bool(B_r) and N_q > B_r,
        "a short last query block": bool(B_r) and N_q % B_r != 0 and N_q > B_r,
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
# Worth a word only where exactly the cases that have them fail.
WEAK = {"fewer queries than keys", "more queries than keys", "N_q ≠ N_k", "B_r ≠ B_c", "more than one key", "more than one query",
        "a scale other than 1/√d", "d_v ≠ d"}


def in_order(features):
    """An exercise's own features first, then those that follow from sizes."""
    return sorted(features, key=lambda text: (ORDER.index(text) if text in ORDER else -1, text))
