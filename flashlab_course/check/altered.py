"""What the right formula gives for other inputs: with D all 0, with K and V exchanged, with scale squared, without the last key.

A wrong answer that is right for altered inputs tells which input was left out, taken for another or used twice.
"""

from collections.abc import Iterator
from itertools import combinations

import torch

from flashlab_course.check import judge, limits

SECONDS = 0.3                  # for one truth: other sizes than an exercise allows may take for ever
KEYS, QUERIES = ("K", "V"), ("Q", "dO")
LN2 = 0.6931471805599453


def alterations(inputs, triton_outputs=()) -> Iterator[tuple[str, dict]]:
    """(what is altered, in words that follow "right for", the altered inputs), the most likely first."""
    given = {name: value for name, value in inputs.items() if name not in triton_outputs}
    for name, value in given.items():
        for text, other in _of_one(name, value, given):
            yield text, inputs | {name: other}
    for name, value in given.items():
        if isinstance(value, tuple) and not _numbers(value):
            yield from ((text, inputs | {name: other}) for text, other in _of_parts(name, value))
    for a, b in combinations(given, 2):
        if _alike(given[a], given[b]):
            yield f"{a} and {b} exchanged", inputs | {a: given[b], b: given[a]}
            yield f"{b} in the place of {a}", inputs | {a: given[b]}
            yield f"{a} in the place of {b}", inputs | {b: given[a]}
        if type(given[a]) is type(given[b]) is int:
            for text, other in (("larger", max(given[a], given[b])), ("smaller", min(given[a], given[b]))):
                yield f"the {text} of {a} and {b} in the place of both", inputs | {a: other, b: other}
                for name in (a, b):
                    yield f"the {text} of {a} and {b} in the place of {name}", inputs | {name: other}
    yield from _fewer_keys(inputs)


def _alike(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and a.numel() > 1
    return type(a) is type(b) and isinstance(a, (int, float)) and not isinstance(a, bool) and a != b


def _numbers(value):
    return isinstance(value, tuple) and all(isinstance(part, int) for part in value)


def _of_one(name, value, given):
    if isinstance(value, torch.Tensor):
        yield from _of_tensor(name, value)
    elif isinstance(value, bool):
        yield f"{name}={not value}", not value
    elif isinstance(value, float):
        for text, other in ((f"{name} = 1, as if it were left out", 1.0), (f"{name} = 0, as if it were left out", 0.0),
                            (f"{name} used twice, {name}²", value**2), (f"1/{name} for {name}", 1 / value if value else value),
                            (f"1/√d for {name}", _inverse_root(given)), (f"−{name} for {name}", -value),
                            (f"1 − {name} for {name}", 1 - value), (f"2·{name} for {name}", 2 * value),
                            (f"{name}/2 for {name}", value / 2)):
            if other is not None and other != value:
                yield text, other
    elif isinstance(value, int):
        for text, other in ((f"{name} + 1", value + 1), (f"{name} − 1", value - 1), (f"{name} = 1", 1), (f"2·{name}", 2 * value),
                            (f"{name}/2", value // 2 if value % 2 == 0 else value)):
            if other != value and other > 0:
                yield f"{text} in the place of {name}" if "=" not in text else text, other
    elif _numbers(value):
        yield f"{name} reversed", value[::-1]


def _of_parts(name, parts):
    """A tuple of tensors, with one of them altered."""
    for n, part in enumerate(parts):
        if isinstance(part, torch.Tensor):
            for text, other in _of_tensor(f"{name}[{n}]", part):
                yield text, (*parts[:n], other, *parts[n + 1 :])


def _inverse_root(given):
    Q = given.get("Q", given.get("Q_i"))
    return None if Q is None else Q.shape[-1] ** -0.5


def _of_tensor(name, T):
    if T.dtype == torch.bool:
        yield f"{name} inverted", ~T
        yield f"{name} all True", torch.ones_like(T)
        yield f"{name} all False, as if it were left out", torch.zeros_like(T)
    elif T.is_floating_point():
        yield f"{name} = 0 throughout, as if it were left out", torch.zeros_like(T)
        yield f"{name} = 1 throughout, as if it were left out", torch.ones_like(T)
        yield f"−{name} for {name}", -T
        if T.ndim == 1:
            yield f"{name} / ln 2, a logarithm to base 2", T / LN2
            yield f"{name} · ln 2", T * LN2
            yield f"exp({name}) for {name}", T.exp()
            yield f"log({name}) for {name}", T.log()
    if T.ndim > 1 and T.shape[-1] == T.shape[-2] > 1:
        yield f"{name} transposed", T.mT.contiguous()
    if T.ndim == 2 and min(T.shape) > 1:
        yield f"{name} transposed by `reshape` or `view`, which moves no number", T.reshape(T.shape[::-1]).mT.contiguous()
    if T.ndim and len(T) > 1:
        yield f"the rows of {name} in reverse order", T.flip(0)
        yield f"the rows of {name} shifted by one", T.roll(1, 0)
        yield f"the rows of {name} shifted by one the other way", T.roll(-1, 0)


def _fewer_keys(inputs):
    """Without the last key, the first, the last block, ...: where K and V are whole."""
    if not all(isinstance(inputs.get(name), torch.Tensor) for name in KEYS):
        return
    N, B = inputs["K"].shape[-2], inputs.get("B_c")
    cuts = {"all but the last key": slice(0, N - 1), "all but the first key": slice(1, N), "the first key alone": slice(0, 1)}
    if B and B < N:
        last = (N - 1) // B * B
        cuts = {"the first key block alone": slice(0, B), "the last key block alone": slice(last, N),
                "all but the last key block": slice(0, last), "all but the first key block": slice(B, N)} | cuts
        if N % B:
            cuts |= {"all but the last key of each block": [n for n in range(N) if n % B != B - 1 and n != N - 1]}
    for text, cut in cuts.items():
        if N > 1:
            yield text, inputs | {name: inputs[name][..., cut, :] for name in KEYS}


def truth_of(exercise, inputs):
    """The outputs for altered inputs in float64, or None where the formula is not defined for them, or takes too long."""
    box = []

    def compute():
        box.append(exercise.truth(**inputs) if exercise.truth is not None else judge.wide(exercise, inputs, limit=SECONDS))

    try:
        limits.limited(compute, SECONDS)
    except (Exception, limits.TimeUp, limits.MemoryUp):        # altered inputs need not make sense
        return None
    found = box[0] if isinstance(box[0], tuple) else (box[0],)
    return found if len(found) == len(exercise.outputs) else None
