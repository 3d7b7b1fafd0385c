"""A run as plain data: its lines, its steps, and where in it something happened."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

MAX_TILES, MAX_STEPS = 24, 3000        # more cannot be followed, and would make a large page

# How the tensors of attention and of a product A B = C lie: i along the query blocks, j along the key blocks.
VECTORS, WHOLE = ("L", "l", "m", "D", "L_log2"), {"K", "V", "dK", "dV"}
AXES = {**dict.fromkeys(("Q", "O", "dO", "dQ", *VECTORS), ("i", "")),
        **dict.fromkeys(WHOLE, ("j", "")), "A": ("i", "k"), "B": ("k", "j"), "C": ("i", "j")}


class Line(NamedTuple):
    """A line of source on show."""

    number: int
    text: str


class Move(NamedTuple):
    """A load or a store of a part of a tensor, the part that a mask lets through; "keep": it stays on chip."""

    kind: str
    name: str
    rows: tuple
    cols: tuple
    lead: tuple = ()           # of batch and head, where there are several


@dataclass
class Step:
    """One line has run."""

    line: int                  # the statement's first and last place in Recording.lines
    last: int
    phase: str = ""            # the running kernel
    moves: tuple = ()
    sets: tuple = ()           # the names that the line sets, and those that it reads
    uses: tuple = ()
    tile: tuple = ()           # (rows, cols) of the scores or of C
    read: int = 0              # bytes so far
    written: int = 0
    hbm: dict = field(default_factory=dict)       # name -> (shape, bytes) of the tensors that have a name
    chip: dict = field(default_factory=dict)
    live: int = 0              # bytes on chip after the line, and at most while it ran
    peak: int = 0
    values: dict = field(default_factory=dict)    # name -> rows of numbers, as text
    program: tuple = ()        # its place in the grid of a GPU kernel
    head: int = 0
    note: str = ""             # an access that went wrong
    told: str = ""             # a sentence about the line
    ops: tuple = ()            # (bytes read, bytes written) of each operation outside kernels


@dataclass
class Recording:
    """What `play` shows. Plain data: dataclasses.asdict(recording) can be written as JSON."""

    title: str
    rung: str                  # the function's name
    lines: list
    steps: list
    tensors: dict              # name -> shape, of the tensors that kernels know by name
    sram_bytes: int | None     # None where it is not modelled
    lead: tuple = ()           # sizes of batch and head, if the tensors have them; the shapes above are of one head
    error: str = ""            # raised by the last line

    @property
    def read(self):
        return self.steps[-1].read

    @property
    def written(self):
        return self.steps[-1].written

    def storing(self, name, index):
        """The step of the last store to T[index], T named as in `kernel(...)`; else the first that works on its tile.

        Raises: ValueError for a name that is no tensor of the run, or an index outside it
        """
        if name not in self.tensors:
            raise ValueError(f"at must name a tensor of the run, one of {', '.join(self.tensors)}; got {name!r}")
        index, shape = tuple(index), self.tensors[name]
        lead, place = index[:-len(shape)], index[-len(shape):]
        sizes = (*(self.lead if lead else ()), *shape)
        if len(index) != len(sizes) or not all(0 <= n < size for n, size in zip(index, sizes, strict=True)):
            raise ValueError(f"at must be an index of {name} {sizes}, got {index}")
        head = int(np.ravel_multi_index(lead, self.lead)) if lead else 0
        steps = [(n, step) for n, step in enumerate(self.steps) if step.head == head]
        stores = [n for n, step in steps for move in step.moves
                  if move[:2] == ("store", name) and _holds(move[2:4], place)]
        axis = "ij".find(AXES.get(name, "i")[0])
        touched = [n for n, step in steps if step.tile and axis >= 0 and _holds([step.tile[axis]], place)]
        return max(stores, default=min(touched, default=0))


def in_rows(steps, B):
    """The steps, with each operation outside kernels in two steps for every B rows of its result: loads, then a store.

    The first operation of a line loads what the line uses, every other what it sets.
    """
    found = []
    for before, step in pairwise([Step(0, 0), *steps]):
        shape = next((step.hbm[name][0] for name in step.sets if name in step.hbm), ())
        if not step.ops or not shape:
            found.append(step)
            continue
        read, written, loaded = before.read, before.written, step.uses
        for more_read, more_written in step.ops:
            start = replace(step, read=read, written=written)
            found += _operation(start, loaded, shape[0], B, more_read, more_written)
            read, written, loaded = read + more_read, written + more_written, step.sets
    return found


def _operation(step, loaded, N, B, read, written):
    """The steps of one operation, which moves so many bytes. What lies along the key blocks is read first."""
    starts = range(0, N, B)
    whole = sum(step.hbm[name][1] for name in WHOLE.intersection(loaded, step.hbm))
    for n, start in enumerate(starts, 1):
        rows = start, min(start + B, N)
        for kind, names, stored in ("load", loaded, n - 1), ("store", step.sets, n):
            yield replace(
                step,
                read=step.read + whole + (read - whole) * n // len(starts),
                written=step.written + written * stored // len(starts),
                moves=tuple(_rows_of(kind, name, step.hbm[name][0], rows) for name in names if name in step.hbm))


def _rows_of(kind, name, shape, rows):
    """The Move of some rows of a tensor; of all rows if it lies along the key blocks."""
    if name in WHOLE:
        kind, rows = "keep" if rows[0] else kind, (0, shape[0])
    return Move(kind, name, rows, (0, shape[1]) if len(shape) > 1 else ())


def _holds(spans, place):
    return all(span[0] <= n < span[1] for span, n in zip(spans, place, strict=False) if span)


def extent(recording, axis):
    """How long an axis is: the largest of the tensors that lie along it. 0 if there is none."""
    return max((size for name, shape in recording.tensors.items()
                for size, along in zip(shape, AXES.get(name, ()), strict=False) if along == axis), default=0)


def blocks(recording, axis):
    """The blocks that cut an axis, of the size that the run's tiles show."""
    N, place = extent(recording, axis), "ij".index(axis)
    seen = {step.tile[place] for step in recording.steps if step.tile}
    B = max((min(stop, N) - start for start, stop in seen), default=N)
    return [(start, min(start + B, N)) for start in range(0, N, B or 1)]


def check_size(recording, stopped):
    """Raises: ValueError for a run of too many lines, or that was stopped for them, or of too many tiles"""
    if stopped or len(recording.steps) > MAX_STEPS:
        last = recording.lines[recording.steps[-1].line]
        raise ValueError(f"the player shows at most {MAX_STEPS} lines of a run, and {recording.title} has more: take "
                         "shorter tensors or larger tiles. Or is there a loop that never ends? "
                         f"The last line was {last.number}: {last.text.strip()}")
    for axis in "ij":
        if len(cut := blocks(recording, axis)) > MAX_TILES:
            N, B = extent(recording, axis), cut[0][1]
            along = " and ".join(name for name in recording.tensors if axis in AXES.get(name, ()))
            raise ValueError(f"the player shows at most {MAX_TILES} × {MAX_TILES} tiles, and the {N} rows of {along} "
                             f"make {len(cut)} tiles of {B}: take at most {MAX_TILES * B}, or tiles of at least "
                             f"{math.ceil(N / MAX_TILES)}")


def corner(x):
    """The first numbers of a tile as text: four rows, two columns; of a vector one number a row."""
    if x.ndim > 2 or 0 in x.shape:
        return []
    x = x.reshape(-1, 1) if x.ndim < 2 else x
    return [[number(one) for one in row] for row in x[:4, :2].tolist()]


def number(x):
    """A number of the run, in at most eight characters."""
    if not math.isfinite(x):
        return "NaN" if x != x else "∞" if x > 0 else "−∞"
    digits = 3 if abs(x) < 100 else 1 if abs(x) < 10000 else 0
    text = f"{x:.{digits}f}" if 0.001 <= abs(x) < 1e6 or x == 0 else f"{x:.0e}"
    return text.replace("-", "−")
