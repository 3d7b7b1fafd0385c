"""An experiment under the memory model: the rungs over a range of N.

It returns points for figures.traffic_against: dicts of rung, N, d, B, sram_bytes, causal, formula and measured (HBM
bytes), sram_peak. Where the SRAM overflows, measured is None and overflow is the error's text.
"""

import torch

from flashlab.ladder import RUNGS, rung
from flashlab.memory import A100_SRAM, Memory, SRAMOverflow
from flashlab.tiles import largest_square_tile


def tiled_rungs():
    """The names of the rungs that walk the tiles of one head."""
    return [r.name for r in RUNGS if r.tiled and not r.heads]


def over_N(Ns, d=64, sram_bytes=A100_SRAM, rungs=None):
    """Each rung at each N, in tiles of the default size. rungs: names; naive and the tiled ones if None."""
    with Memory(sram_bytes):
        B = largest_square_tile(d, d, element_size=4)
    names = rungs or [RUNGS[0].name, *tiled_rungs()]
    return [_point(name, QKV, B, sram_bytes) for QKV in (_inputs(N, d) for N in Ns) for name in names]


def _inputs(N, d):
    return [torch.randn(N, d) for _ in range(3)]


def _point(name, QKV, B, sram_bytes):
    r, (N, d) = rung(name), QKV[0].shape
    sizes = {"B_r": B, "B_c": B} if r.tiled else {}
    point = {"rung": name, "N": N, "d": d, "B": B, "sram_bytes": sram_bytes, "causal": False,
             "formula": r.cost(N, N, d, **sizes).traffic, "measured": None, "sram_peak": None, "overflow": None}
    try:
        with Memory(sram_bytes) as mem:
            r.function(*QKV, **sizes)
    except SRAMOverflow as error:
        return point | {"overflow": str(error)}
    return point | {"measured": mem.read + mem.written, "sram_peak": mem.sram_peak}
