"""A run as plain data: its lines, its steps, and where in it something happened."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_TILES, MAX_STEPS = 24, 3000        # nobody can follow more than that, and a page should stay small

# Which way the tensors of attention and of a product A B = C lie: i along the query blocks, j along the key blocks.
VECTORS = ("L", "l", "m", "D", "L_log2")
AXES = {**dict.fromkeys(("Q", "O", "dO", "dQ", *VECTORS), ("i", "")),
        **dict.fromkeys(("K", "V", "dK", "dV"), ("j", "")), "A": ("i", "k"), "B": ("k", "j"), "C": ("i", "j")}


class Line(NamedTuple):
    """A line of source on show; number 0: lines left out."""

    number: int
    text: str


class Move(NamedTuple):
    """A load or a store: which part of which tensor. Of a masked one, what the mask lets through."""

    kind: str
    name: str
    rows: tuple
    cols: tuple


class Tensor(NamedTuple):
    """A tensor in HBM or a tile on chip."""

    name: str
    shape: tuple
    nbytes: int


@dataclass
class Step:
    """One line has run."""

    line: int                  # the statement's first and last place in Recording.lines
    last: int
    phase: str = ""            # the kernel that is on
    moves: tuple = ()
    sets: tuple = ()           # the names that the line sets
    uses: tuple = ()           # the names that it reads
    tile: tuple = ()           # (rows, cols) of the scores or of C
    read: int = 0              # bytes so far
    written: int = 0
    hbm: tuple = ()            # Tensor, as long as they have a name
    chip: tuple = ()
    live: int = 0              # bytes on chip after the line, and at most while it ran
    peak: int = 0
    values: dict = field(default_factory=dict)    # name -> rows of numbers, as text
    program: tuple = ()        # of a GPU kernel's grid
    head: int = 0
    note: str = ""             # what should not have happened


@dataclass
class Recording:
    """What `play` shows. Plain data: dataclasses.asdict(recording) can be written as JSON."""

    title: str
    rung: str                  # the function's name
    lines: list
    steps: list
    tensors: dict              # name -> shape, of what the kernels know by name
    sram_bytes: int | None     # None where it is not modelled
    lead: tuple = ()           # sizes of batch and head, if the tensors have them; the shapes above are of one head
    error: str = ""            # what the last line raised

    @property
    def read(self):
        return self.steps[-1].read

    @property
    def written(self):
        return self.steps[-1].written

    @property
    def total(self):
        """The larger of the two, to which bars are drawn."""
        return max(self.read, self.written)

    def storing(self, name, index):
        """The step of the last store to T[index], T named as in `kernel(...)`; else the first that touches its rows.

        Raises: ValueError for a name that is no tensor of the run, or an index outside it
        """
        if name not in self.tensors:
            raise ValueError(f"at must name a tensor of the run, one of {', '.join(self.tensors)}; got {name!r}")
        index, shape = tuple(index), self.tensors[name]
        sizes = (*(self.lead if len(index) > len(shape) else ()), *shape)
        if len(index) != len(sizes) or not all(0 <= n < size for n, size in zip(index, sizes, strict=True)):
            raise ValueError(f"at must be an index of {name} {sizes}, got {index}")
        head, place = 0, index[-len(shape):]
        for n, size in zip(index[:-len(shape)], sizes, strict=False):
            head = head * size + n
        axis, stores, touched = AXES.get(name, ("i",))[0], [], []
        for n, step in enumerate(self.steps):
            if step.head != head:
                continue
            if any(move[:2] == ("store", name) and _holds(move[2:], place) for move in step.moves):
                stores.append(n)
            elif step.tile and axis in "ij" and _holds([step.tile["ij".index(axis)]], place):
                touched.append(n)
        return stores[-1] if stores else touched[0] if touched else 0


def _holds(spans, place):
    return all(span[0] <= n < span[1] for span, n in zip(spans, place, strict=False) if span)


def extent(recording, axis):
    """How long an axis is: the largest of the tensors that lie along it. 0 if there is none."""
    return max((shape[AXES[name].index(axis)] for name, shape in recording.tensors.items()
                if axis in AXES.get(name, ()) and AXES[name].index(axis) < len(shape)), default=0)


def blocks(recording, axis):
    """The blocks that cut an axis, of the size that the run's tiles show."""
    N, place = extent(recording, axis), "ij".index(axis)
    seen = {step.tile[place] for step in recording.steps if step.tile}
    B = max((min(stop, N) - start for start, stop in seen), default=N) or N
    return [(start, min(start + B, N)) for start in range(0, N, B)] if N else []


def refuse_if_too_large(recording):
    """Raise ValueError, with what would fit, for a run of too many tiles."""
    for axis in "ij":
        cut = blocks(recording, axis)
        if len(cut) > MAX_TILES:
            N, B = extent(recording, axis), cut[0][1]
            along = " and ".join(name for name in recording.tensors if axis in AXES.get(name, ()))
            raise ValueError(f"the player shows at most {MAX_TILES} × {MAX_TILES} tiles, and the {N} rows of {along} "
                             f"make {len(cut)} tiles of {B}: take at most {MAX_TILES * B}, or tiles of at least "
                             f"{math.ceil(N / MAX_TILES)}")


def too_long(recording):
    """The ValueError for a run of more than MAX_STEPS lines."""
    last = recording.lines[recording.steps[-1].line]
    sizes = ", ".join(f"{name} {shape}" for name, shape in recording.tensors.items())
    tiles = sum(bool(b.tile) and a.tile != b.tile for a, b in zip(recording.steps, recording.steps[1:], strict=False))
    side = max(1, math.isqrt(tiles))
    return ValueError(f"the player shows at most {MAX_STEPS} lines of a run; {recording.title} with {sizes} has more. "
                      f"Take shorter tensors or larger tiles, {side} × {side} of them at most. Or is there a loop that "
                      f"never ends? The last line was {last.number}: {last.text.strip()}")


def number(x):
    """A number of the run, in at most eight characters."""
    if x != x:
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    digits = 3 if abs(x) < 100 else 1 if abs(x) < 10000 else 0
    text = f"{x:.{digits}f}" if 0.001 <= abs(x) < 1e6 or x == 0 else f"{x:.0e}"
    return text.replace("-", "−")
