"""The rungs in order. Tests, benchmark, tables and plots loop over this list."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Rung(NamedTuple):
    """One step of the ladder. `heads` says whether it takes (B, H, N, d) or one head (N, d)."""

    number: int
    name: str              # the function's name
    module: str
    title: str
    new: str               # what changed against the rung before
    chapter: str
    heads: bool = False
    tiled: bool = False    # takes B_r and B_c

    @property
    def function(self) -> Callable:
        """Imported on use: the Triton rungs need Triton."""
        return getattr(import_module(self.module), self.name)


RUNGS = [
    Rung(0, "naive_forward", "flashlab.rungs.naive", "naive",
         "the formula, one PyTorch operation after the other; S and P in HBM", "01"),
    Rung(1, "online_softmax_forward", "flashlab.rungs.online_softmax", "online softmax",
         "no N x N matrix: each query walks the keys one at a time", "03"),
    Rung(2, "fa1_forward", "flashlab.rungs.fa1", "FA1",
         "blocks: each key block serves all queries; O, l, m travel through HBM", "05", tiled=True),
    Rung(3, "fa2_forward", "flashlab.rungs.fa2", "FA2",
         "the loops trade places: O, l, m stay on chip, one division at the end", "06", tiled=True),
    Rung(4, "fa2_triton_forward", "flashlab.kernels.fa2", "FA2 in Triton",
         "a GPU kernel: one program for each query block of each head", "10", heads=True, tiled=True),
]

BACKWARD_RUNGS = [         # all return (dQ, dK, dV); what they start from differs
    Rung(0, "naive_backward", "flashlab.rungs.naive_backward", "naive",
         "the chain rule, one PyTorch operation after the other; S, P, dP and dS in HBM", "08"),
    Rung(1, "fa1_backward", "flashlab.rungs.fa1_backward", "FA1",
         "tiles: P is computed again from Q, K, l and m; dQ travels through HBM", "08", tiled=True),
    Rung(2, "fa2_backward", "flashlab.rungs.fa2_backward", "FA2",
         "D once, before the loops; L instead of l and m; causal tiles skipped", "08", tiled=True),
    Rung(3, "fa2_backward_two_pass", "flashlab.rungs.fa2_backward", "FA2, two passes",
         "dK, dV with the key block fixed, dQ with the query block fixed: each written once", "08", tiled=True),
    Rung(4, "fa2_triton_backward", "flashlab.kernels.fa2_backward", "FA2 in Triton",
         "three GPU kernels: D, then one program for each key block, then one for each query block", "11", heads=True, tiled=True),
]


def rung(name):
    """The rung of that function name, forward or backward. Raises: ValueError for an unknown one."""
    for candidate in RUNGS + BACKWARD_RUNGS:
        if candidate.name == name:
            return candidate
    raise ValueError(f"name must be one of {', '.join(r.name for r in RUNGS + BACKWARD_RUNGS)}, got {name!r}")
