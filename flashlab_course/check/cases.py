"""What lists of cases are made with: builders of cases, their inputs, and mistakes that many exercises share."""

import inspect
import math
from dataclasses import replace

import torch

from flashlab import memory, oracle
from flashlab_course.check.form import Breach, Case, Mistake, whole

LARGE = 60.0                   # scores times this: exponentials overflow unless they are shifted
BELOW = 900.0                  # the stubs promise −1000: what starts, or is cut off, at −800 shows
EDGE = 997.0                   # so near to it that a hidden score of −1000 has some weight beside them
EPSILONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
# a score of 500 is known to 500 · 2⁻²⁴ = 3e-5, and so is the logarithm of its exponential
LOOSE = 2e-4
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


# ---- a case of its arguments

def case_of(make):
    """Turn make(*sizes, **options) -> {argument: value} into case(name, *sizes, **options) -> Case.

    Sizes, and options that are given, are printed in reports; features follow from all but None. units, loose: of the
    Case; loose follows from large scores, which `factor`, `below` and `shift` make.
    """
    signature = inspect.signature(make)

    def case(name, *sizes, units=16, loose=None, **options):
        bound = signature.bind(*sizes, **options)
        bound.apply_defaults()
        given = {key: value for key, value in (bound.arguments | options).items() if value is not None}
        large = given.get("factor", 1) > 4 or given.get("below", 0) > 0 or abs(given.get("shift", 0)) > 50
        return Case(name, lambda: make(*sizes, **options), given=given | {"large": large}, units=units,
                    sizes={key: value for key, value in given.items() if key not in ("seed", "exact") and
                           (key in options or signature.parameters[key].kind <= POSITIONAL)},
                    loose=loose or LOOSE * large)

    return case


def in_float64(case):
    """The case in float64, where a small number shows that float32 swallows: an ε in a denominator.

    An answer that cannot take float64 at all is judged by the case as it was. A logarithm of 2 that was typed with ten
    digits may be off by 2e-9.
    """
    return replace(case, name=f"{case.name}, in float64", make=lambda: doubled(case.make()), loose=2e-9, narrow=case,
                   features=case.features | {"float64 inputs"})


def spread(case):
    """The case with the columns of its first tensor 2 elements apart in memory, of the second 3, and so on: a stride
    that is taken for 1, or from another tensor, shows."""
    def make():
        inputs = case.make()
        names = [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]
        return inputs | {name: inputs[name].repeat_interleave(n, -1)[..., ::n] for n, name in enumerate(names, 2)}

    return replace(case, make=make, features=case.features | {"columns that are apart"})


def doubled(value):
    """Tensors of a case's inputs in float64, wherever they are."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(map(doubled, value))
    return {name: doubled(part) for name, part in value.items()} if isinstance(value, dict) else value


# ---- inputs

def normal(*shape, seed, dtype=torch.float32, factor=1.0):
    """Reproducible normal numbers, the same on every machine."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * factor).to(dtype)


def drawn(N_q, N_k, d, d_v=None, *, H=(), H_kv=(), scale=None, factor=1.0, below=0, rising=False, equal=False,
          exact=False, dtype=torch.float32, seed):
    """Q, K, V and dO. H, H_kv: (heads,) of queries and keys, where there are any.

    factor: what Q is multiplied by. below: about −below is every score. rising, equal: what each block adds to a
    gradient, or to O, has the same sign, so that a sum in 16 bits keeps less and less of it. exact: numbers of two
    digits behind the binary point, a few of which make exact sums and products, in any order.
    """
    shapes = (*H, N_q, d), (*H_kv, N_k, d), (*H_kv, N_k, d_v or d), (*H, N_q, d_v or d)
    Q, K, V, dO = (normal(*shape, seed=seed + n, dtype=dtype, factor=1.0 if n else factor)
                   for n, shape in enumerate(shapes))
    if below:
        Q, K = far_below(Q, K, scale, below)
    if rising:
        Q, K, V, dO = (torch.full_like(T, 1 + 7 / 1024) for T in (Q, K, V, dO))
        for T in (K, V):
            T[..., N_k // 2 :, :] *= -1
        K[..., ::2] *= -1                              # so that all scores are 0
    if equal:
        Q, V = torch.zeros_like(Q), torch.full_like(V, 1 + 7 / 1024)
    return tuple((T * 4).round() / 4 for T in (Q, K, V, dO)) if exact else (Q, K, V, dO)


def far_below(Q, K, scale=None, about=BELOW):
    """Q and K changed so that every score is about −BELOW, where a maximum that starts at 0 shows, or −EDGE."""
    scale = scale or Q.shape[-1] ** -0.5
    size, share = abs(about / scale), 0.5 if about == BELOW else 1.0    # K's share would be rounded away in dS K
    Q, K = (Q / 4, K / 4) if about == BELOW else (Q / 64, K / 4096)
    Q[..., 0] += size**share
    K[..., 0] -= math.copysign(size ** (1 - share), scale)
    return Q, K


def L_and_D(Q, K, V, dO, causal, scale):
    """What a backward pass is given beside its tensors, in float32."""
    O, L = oracle.attention(Q, K, V, causal=causal, scale=scale)
    return L.float(), (dO.double() * O).sum(-1).float()


@case_of
def attention_case(N_q, N_k, d=3, d_v=None, *, B_r=None, B_c=None, causal=None, scale=None, seed=0, cuts=None,
                   dropout_p=None, **how):
    """Q, K, V and the arguments that are given. how: of `drawn`."""
    Q, K, V, _ = drawn(N_q, N_k, d, d_v, scale=scale, seed=3 * seed + 11, **how)
    given = {"B_r": B_r, "B_c": B_c, "causal": causal, "scale": scale, "cuts": cuts, "dropout_p": dropout_p}
    return {"Q": Q, "K": K, "V": V} | {name: value for name, value in given.items() if value is not None}


# ---- what answers and mistakes share

def measured(rung, N_q, N_k, d, d_v, **tiles):
    """(reads, writes) of a rung in elements, counted by the memory model on float32 tensors."""
    Q, K, V = torch.ones(N_q, d), torch.ones(N_k, d), torch.ones(N_k, d_v)
    with memory.Memory(2**20) as mem:
        rung(Q, K, V, **tiles)
    return mem.read // 4, mem.written // 4

def whole_numbers(found, at, count=None):
    """The whole numbers in a list that was returned. at: where, for the Breach if it is none, or of another length."""
    numbers = [whole(number) for number in found] if isinstance(found, (tuple, list, range)) else [None]
    if None in numbers or count not in (None, len(numbers)):
        raise Breach("wrong_type", f"{at} it returned {str(found)[:80]}, not {count or 'a list of'} whole numbers")
    return numbers


def no_scores(shape, Q, K, V, B_c=0, **rest):
    """For an exercise's `forbid`: no tensor of all scores, where no other tensor is as wide."""
    widest = max(B_c, 2 * max(Q.shape[1], V.shape[1]) + 2)
    if len(K) > widest and len(Q) > 1 and sorted(size for size in shape if size > 1) == sorted((len(Q), len(K))):
        return f"the whole of S, {shape}, was made: no more than a tile of it at a time"


def padded(numbers, count):
    """As many numbers as are expected, and one for what is too much; −1 stands for nothing."""
    return torch.tensor([*numbers, *[-1] * (count + 1)][:count + 1])


def epsilon(*swaps, sizes=EPSILONS):
    """The mistake of an ε that nothing asks for. swaps: (old, new with ε) pairs, each a place for it."""
    first, *others = ([(old, new.replace("ε", str(size)))] for old, new in swaps for size in sizes)
    return Mistake("epsilon", "a small number was added to the denominator",
                   "the denominator: an ε changes every result, also those that need none", *first, also=others)
