"""Which thread holds which element of a tile: the compiler's choice, read from a kernel's ttgir."""

import re
from typing import NamedTuple

import numpy as np

BLOCKED = re.compile(r"^(#\w+) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\], "
                     r"warpsPerCTA = \[([\d, ]+)\], order = \[([\d, ]+)\]", re.MULTILINE)
ACCESS = re.compile(r"tt\.(load|store) .*: tensor<([\dx]+)x!tt\.ptr<\w+>, (#\w+)>")


class Layout(NamedTuple):
    """One load or store of a tile. The tuples have a number for each dimension; `order` begins with the fastest."""

    kind: str                  # "load" or "store"
    shape: tuple
    per_thread: tuple          # neighbouring elements that one thread takes
    lanes: tuple               # lanes of a warp along each dimension
    warps: tuple
    order: tuple

    def holders(self):
        """Two arrays of the tile's shape: the warp that holds each element, and the lane in it."""
        places = np.indices(self.shape)
        warp, lane, warps, lanes = 0, 0, 1, 1
        for d in self.order:
            block = places[d] // self.per_thread[d]
            lane = lane + block % self.lanes[d] * lanes
            warp = warp + block // self.lanes[d] % self.warps[d] * warps
            lanes, warps = lanes * self.lanes[d], warps * self.warps[d]
        return warp, lane


def layouts(ttgir):
    """The Layout of each load and store of a kernel, in order, if it is of kind #ttg.blocked."""
    numbers = lambda text: tuple(int(n) for n in text.split(","))
    known = {name: tuple(map(numbers, parts)) for name, *parts in BLOCKED.findall(ttgir)}
    return [Layout(kind, tuple(int(n) for n in shape.split("x")), *known[name])
            for kind, shape, name in ACCESS.findall(ttgir) if name in known]
