"""Where an answer goes wrong: the first wrong number, and which outputs are wrong."""

import math

import torch

BLOCKS = {"query": ("query block i", "B_r"), "key": ("key block j", "B_c")}


def first_wrong(exercise, judged, expected):
    """(sentence) where the first wrong output first goes wrong, counted in blocks too."""
    n, _, bound = judged.wrong[0]
    output, value, truth = exercise.outputs[n], judged.outcome.values[n], expected.truth[n]
    if not isinstance(truth, torch.Tensor):
        return f"{_code(output.name)} is {value!r} instead of {truth!r}"
    index = first_index(value, truth, bound)
    words, numbers = dict(output.codes), [float(T[index]) for T in (value, truth)]
    if index and exercise.ints_only or words.keys() & set(numbers):
        at = ", ".join(f"{axis} {i}" for axis, i in zip(output.axes, index, strict=True))
        called = [f"“{words[x]}”" if x in words else f"{x:g}" for x in numbers]
        return f"{_code(output.name)} of {at} is {called[0]} instead of {called[1]}"
    place = f"{output.name}[{', '.join(map(str, index))}]" if index else output.name
    blocks = _blocks(output.axes, index, truth.shape, judged.case.sizes)
    return f"{place} is {_numbers(value[index], truth[index])}{blocks}"


def first_index(value, truth, bound):
    """Where the first wrong number of a result is; () for one that stands alone. NaN is right where NaN belongs."""
    if not isinstance(truth, torch.Tensor):
        return ()
    x, y = value.double(), truth.double()
    right = ((x - y).abs() <= bound) | (x == y) | (x.isnan() & y.isnan())
    return tuple((~right).nonzero()[0].tolist())


def _blocks(axes, index, shape, sizes):
    """" (query block i = 0, its query 1; key block j = 2, its key 0)", as far as there are several blocks."""
    said = []
    for axis, i, n in zip(axes, index, shape, strict=False):
        letter, size = BLOCKS.get(axis, (None, None))
        if size in sizes and n > sizes[size]:
            said.append(f"{letter} = {i // sizes[size]}, its {axis} {i % sizes[size]}")
    return f" ({'; '.join(said)})" if said else ""


def _numbers(x, y):
    """Both with as many digits as tell them apart."""
    x, y = float(x), float(y)
    digits = next((n for n in (4, 6, 8) if f"{x:.{n}g}" != f"{y:.{n}g}"), 12)
    return f"{'NaN' if math.isnan(x) else f'{x:.{digits}g}'} instead of {y:.{digits}g}"


def outputs(exercise, failing):
    """"O is right; dQ and dK are wrong", where some of several outputs are right. failing: all cases that fail"""
    compared = [k for k in failing if k.problem is None and (k.wrong or not k.structure)]
    bad = {n for k in compared for n, *_ in k.wrong}
    right, wrong = ([o.name for n, o in enumerate(exercise.outputs) if (n in bad) == which] for which in (False, True))
    are = [f"{listing([*map(_code, names)])} {'is' if len(names) == 1 else 'are'}" for names in (right, wrong) if names]
    return f"{are[0]} right; {are[1]} wrong." if right and wrong else ""


def _code(name):
    """A name as code, unless it is a formula's letter or several words."""
    return f"`{name}`" if name.isidentifier() and name.islower() and len(name) > 3 else name


def listing(names):
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
