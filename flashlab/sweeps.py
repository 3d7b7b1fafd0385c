"""Experiments under the memory model: the rungs over a range of N, or of tile sizes.

Each returns points, dicts of rung, N, d, B, sram_bytes, causal, formula and measured (HBM bytes), as figures.traffic_against_N
and figures.traffic_against_tile draw them.
"""

import torch

from flashlab.ladder import RUNGS, rung
from flashlab.memory import A100_SRAM, Memory, SRAMOverflow, largest_square_tile


def tiled_rungs():
    """The names of the rungs that walk the tiles of one head."""
    return [r.name for r in RUNGS if r.tiled and not r.heads]


def over_N(Ns, d=64, sram_bytes=A100_SRAM, rungs=None, causal=False):
    """Each rung at each N, in tiles of the default size. rungs: names; naive and the tiled ones if None."""
    points = []
    for N in Ns:
        QKV = [torch.randn(N, d) for _ in range(3)]
        for name in rungs or [RUNGS[0].name, *tiled_rungs()]:
            with Memory(sram_bytes) as mem:
                point, run = _prepare(name, QKV, largest_square_tile(d, d, QKV[0].element_size()), sram_bytes, causal)
                run()
            points.append(point | {"measured": mem.read + mem.written})
    return points


def over_tiles(N, d=64, sizes=(16, 32, 48, 64, 80, 96, 128), sram_bytes=A100_SRAM, rungs=None, causal=False):
    """Each rung with B_r = B_c = B for each size. rungs: names; the tiled ones if None.

    Points also have sram_peak and overflow, the error's text; measured and sram_peak are None where the SRAM overflows.
    """
    QKV = [torch.randn(N, d) for _ in range(3)]
    points = []
    for name in rungs or tiled_rungs():
        for B in sizes:
            point, run = _prepare(name, QKV, B, sram_bytes, causal)
            try:
                with Memory(sram_bytes) as mem:
                    run()
                point |= {"measured": mem.read + mem.written, "sram_peak": mem.sram_peak, "overflow": None}
            except SRAMOverflow as error:
                point |= {"measured": None, "sram_peak": None, "overflow": str(error)}
            points.append(point)
    return points


def _prepare(name, QKV, B, sram_bytes, causal):
    """The point without what is measured, and the run that is to be measured."""
    r, (N, d) = rung(name), QKV[0].shape
    sizes = {"B_r": B, "B_c": B} if r.tiled else {}
    point = {"rung": name, "N": N, "d": d, "B": B, "sram_bytes": sram_bytes, "causal": causal,
             "formula": r.cost(N, N, d, causal=causal, **sizes).traffic}
    return point, lambda: r.function(*QKV, causal=causal, **sizes)
