"""Flashlab's operator upon the stand-in for Gluon that chapter 12b runs the ladder on (lesson/stand_in.py).

The kernels' modules are loaded once more, into `kernels`, from the same files. Beside what the ladder needs there are
tiles past the end of a tensor, packed sequences, aggregates, and sums by TMA, which read their tile when they are
waited for, as products do.
"""

import importlib
import inspect
import itertools
import sys
from types import SimpleNamespace
from unittest import mock

import torch

from flashlab.kernels import plans
from flashlab.kernels.launch import empty
from flashlab_course.lesson import stand_in
from flashlab_course.lesson.stand_in import Pointer, inputs, run_kernel


def tile_in_memory(descriptor, at):
    """The part of a tile within the descriptor's sizes, as TMA finds it: by sums of 64 bits, which wrap around."""
    T, at = descriptor.base, [int(a) for a in at]
    sizes = [max(0, min(n, size - a)) for a, n, size in zip(at, descriptor.block_shape, descriptor.shape, strict=True)]
    if 0 in sizes:
        return T.new_empty(0).view(*[0] * len(sizes))
    first = sum(a * step * T.itemsize for a, step in zip(at, descriptor.strides, strict=True)) % 2**64 // T.itemsize
    strides = [step if n > 1 else 1 for n, step in zip(sizes, descriptor.strides, strict=True)]
    last = first + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    assert min(at) >= 0 and last < T.untyped_storage().nbytes() // T.itemsize - T.storage_offset(), "TMA, outside"
    return T.as_strided(sizes, strides, T.storage_offset() + first)


class Machine(stand_in.Machine):
    """With tiles that end with the tensor, and sums by TMA."""

    def run(self, name, threads, work):
        self.local.sums = []
        super().run(name, threads, work)

    def save(self, descriptor, at, buffer):
        target = tile_in_memory(descriptor, at)
        target.copy_(buffer.view(descriptor.block_shape)[tuple(slice(0, n) for n in target.shape)])

    def add(self, descriptor, at, buffer):
        self.local.sums.append((descriptor, at, buffer))

    def store_wait(self, pendings):
        while self.local.sums:
            descriptor, at, buffer = self.local.sums.pop(0)
            with self.changed:                         # as the L2 cache does it: each sum as a whole
                tile_in_memory(descriptor, at).add_(buffer)


def aggregate(cls):
    """A class with a constructor of its fields."""
    names = f"{cls.fields} {getattr(cls, 'constants', '')}".split()
    cls.__init__ = lambda self, *args, **kwargs: vars(self).update(dict(zip(names, args, strict=False)) | kwargs)
    return cls


def fork(shared, consumer, consumers, others):
    work = [(consumer, (*shared, me)) for me in range(consumers)] + [(one, shared) for one in others]
    stand_in.warp_specialize(work, [4] * (consumers - 1) + [1] * len(others), None)


def on_numbers(scalar, tensor):
    """An operation of numbers or of tiles."""
    tiles = lambda *xs: tensor(*map(torch.as_tensor, xs))
    return lambda *xs: (tiles if any(isinstance(x, torch.Tensor) for x in xs) else scalar)(*xs)


def store(pointer, values, mask=None):
    if mask is None:
        pointer.T.view(-1)[pointer.at] = values
    else:
        pointer.T.view(-1)[pointer.at[mask]] = values[mask].as_subclass(torch.Tensor)


def load(pointer):
    found = pointer.T.view(-1)[int(pointer.at)]
    return found if found.is_floating_point() else int(found)


def adapter():
    """What stands for the module gluon_adapter, with the words that only the operator uses."""
    module = stand_in.adapter()
    vars(module).update(aggregate=aggregate, fork=fork, add_by_tma=stand_in.on_machine("add"))
    return module


def load_kernels():
    """The modules of the Hopper kernels once more, from the same files, upon the stand-in."""
    operator = {"words": "hopper_words", "spans": "spans", "pipeline": "hopper_pipeline", "forward": "hopper_forward",
                "backward_pipeline": "hopper_backward_pipeline", "backward": "hopper_backward", "fp8": "fp8_kernel"}
    names = {"first_words": "flashlab.kernels.hopper_words"}
    names |= {short: f"flashlab.operator.{name}" for short, name in operator.items()}
    import flashlab.operator.fp8_kernel  # first: what the real ones import is then loaded only once
    import flashlab.operator.hopper_backward

    packages = (vars(flashlab.operator), vars(flashlab.kernels))
    with mock.patch.dict(sys.modules), mock.patch.dict(packages[0]), mock.patch.dict(packages[1]):
        for name in names.values():
            sys.modules.pop(name, None)
        sys.modules["flashlab.kernels.gluon_adapter"] = adapter()
        found = {short: importlib.import_module(name) for short, name in names.items()}
    same = lambda x: x
    in_assembly = stand_in.IN_ASSEMBLY | {"opaque": same, "pinned": same, "opaque_zero": lambda n: 0,
                                          "wait_for_sums": stand_in.on_machine("store_wait")}
    for module in found.values():
        vars(module).update({name: value for name, value in in_assembly.items() if hasattr(module, name)})
    return SimpleNamespace(**found)


vars(stand_in).update(tile_in_memory=tile_in_memory, Machine=Machine)
vars(stand_in.GL).update(
    store=store, load=load, minimum=on_numbers(min, torch.minimum), maximum=on_numbers(max, torch.maximum),
    where=on_numbers(lambda c, a, b: a if c else b, torch.where), cast=lambda x, dtype: x)
kernels = load_kernels()


def edited(function, *changes):
    """A function of the kernels as it stands, but for some of its text: (old, new), ..."""
    text = inspect.getsource(function)
    text = text[text.index("def "):]
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = {}
    exec(text, function.__globals__, found)
    return found[function.__name__]


# ---- runs


WINDOWS = {                            # inputs, the window
    "whole blocks": ((700, 700, 64), (256, 0)), "edges within blocks": ((450, 450, 128, 1, 2, 1), (200, 30)),
    "one key a row": ((200, 200, 64), (0, 0)), "narrower than a block": ((333, 333, 64), (20, 3)),
    "no limit at the left": ((300, 333, 128), (333, 40)), "no limit at the right": ((300, 333, 64), (33, 300)),
    "rows that see no key": ((500, 77, 64, 1, 2, 2), (30, 9)), "keys that no row sees": ((130, 900, 128), (100, 10)),
    "wide": ((130, 900, 128), (500, 100)),
}
LENGTHS = [130, 1, 0, 64, 200, 9], [70, 300, 64, 0, 200, 128]                      # queries, keys of packed sequences


def packed(d, window):
    """Inputs, the options of a call with packed sequences, and each sequence's rows of queries and keys."""
    cu_q, cu_k = (torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32) for lengths in LENGTHS)
    few = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "batch": len(LENGTHS[0])}
    few |= {"left": window[0], "right": window[1]} if window else {}
    rows = [(slice(*cu_q[s:s + 2]), slice(*cu_k[s:s + 2])) for s in range(len(LENGTHS[0]))]
    return inputs(int(cu_q[-1]) + 30, int(cu_k[-1]) + 9, d, 1, 2, 1), few, rows    # some rows belong to no sequence


def poisoned(tensors, rows, which, every):
    """Copies of tensors with NaN in every second sequence, beginning with sequence `every`; None: in none.

    which: for each tensor 0 if its rows are queries, 1 if they are keys
    """
    copies = [T.clone() for T in tensors]
    for T, n in zip(copies, which, strict=True):
        for s in range(every, len(rows), 2) if every is not None else ():
            T[:, :, rows[s][n]] = torch.nan
    return copies


POINTERS = ("L", "counter", "table", "turns", "Q_scales", "K_scales", "V_scales")


def run_operator(kernel, programs, arguments):
    """A launch of one of the operator's kernels."""
    pointers = {name: Pointer(arguments[name]) for name in POINTERS if isinstance(arguments.get(name), torch.Tensor)}
    run_kernel(kernel, programs, arguments | pointers)


def run(monkeypatch, Q, K, V, causal, choice, **few):
    """O and L by fa2_hopper_kernel, two programs one after the other, so that one goes through many tiles.

    choice: as of how_many. few: left, right, cu_seqlens_q, cu_seqlens_k, batch
    """
    O, L = empty(*Q.shape, Q, packed="batch" in few).fill_(torch.nan), torch.full(Q.shape[:3], torch.nan)
    monkeypatch.setattr(kernels.forward, "how_many", lambda *_: choice)
    monkeypatch.setattr(kernels.forward, "programs_at_a_time", lambda *_: 2)
    grid, arguments = kernels.forward.launch(Q, K, V, O, L, causal=causal, scale=Q.shape[-1] ** -0.5, **few)
    plans.launch(arguments.pop("before", ()))
    run_operator(kernels.forward.fa2_hopper_kernel, grid[0], arguments)
    assert not arguments["counter"].any(), "the next launch would begin to count where this one stopped"
    return O, L


def run_backward(monkeypatch, Q, K, V, O, dO, L, causal, choice, scale=None, **few):
    """dQ, dK, dV by fa2_hopper_backward: the kernels around the large one in Triton's interpreter. few: as of `run`

    ordered among them: programs run one after the other here, so that the test gives a `wait_for` that does not wait
    """
    grads = [empty(*T.shape, T, packed="batch" in few).fill_(torch.nan) for T in (Q, K, V)]
    monkeypatch.setattr(kernels.backward, "how_many", lambda *_: choice)
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    launches = kernels.backward.launch(Q, K, V, O, dO, L, None, *grads, causal=causal, scale=scale, **few)
    for kernel, grid, arguments in launches:
        if kernel is kernels.backward_pipeline.hopper_backward_kernel:
            run_operator(kernel, grid[0], arguments)
        else:
            kernel[grid](**arguments)
    return grads
