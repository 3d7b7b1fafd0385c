"""The rungs in order, and the peers beside them. Tests, benchmarks, tables and plots loop over these lists.

A rung says everything that others need to know of it. A new one is a line here; no test, figure or benchmark names it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from flashlab import cost


class Rung(NamedTuple):
    """One step of the ladder."""

    number: int
    name: str              # the function's name
    module: str
    title: str
    chapter: str
    cost: Callable         # the closed form of what it moves and computes, for one head
    color: str             # in every picture (after Okabe and Ito 2008, made for colour-blind readers)
    marker: str
    new: str               # what changed against the rung before
    heads: bool = False    # takes (B, H, N, d), not one head (N, d)
    tiled: bool = False    # takes B_r and B_c
    by_tma: bool = False   # its launch makes tensor descriptors for TMA, which takes the host some microseconds
    proven: bool = False   # held against float64 on a GPU: flash_attention runs no other kernel there
    launcher: str = "launch"       # of a kernel: the function in its module that makes its launches

    def tiles(self, B_r, B_c) -> dict:
        """The tile sizes as `cost` takes them: a kernel has tiles even where its caller may not choose them."""
        return {"B_r": B_r, "B_c": B_c} if self.tiled or self.heads else {}

    @property
    def home(self):
        """Its module, imported on use: the Triton rungs need Triton."""
        return import_module(self.module)

    @property
    def function(self) -> Callable:
        return getattr(self.home, self.name)

    @property
    def launch(self) -> Callable:
        """What makes a kernel's launches, for a call that has been checked."""
        return getattr(self.home, self.launcher)

    def why_not(self, Q, K, V, **options):
        """Why this kernel does not take these tensors on this GPU, in words; None where it does."""
        try:
            module = self.home
        except ImportError as error:
            return f"this Triton lacks what it needs ({error})"
        return getattr(module, "why_not", lambda *_, **__: None)(Q, K, V, **options)


class Peer(NamedTuple):
    """An implementation of others that the ladder is measured against."""

    name: str
    title: str
    color: str
    marker: str


TRITON = {"heads": True, "tiled": True, "proven": True}

RUNGS = [
    Rung(0, "naive_forward", "flashlab.rungs.naive", "naive", "01", cost.naive_forward, "#D55E00", "o",
         "the formula, one PyTorch operation after the other; S and P in HBM"),
    Rung(1, "online_softmax_forward", "flashlab.rungs.online_softmax", "online softmax", "03",
         cost.online_softmax_forward, "#A97400", "v", "no N x N matrix: each query walks the keys one at a time"),
    Rung(2, "fa1_forward", "flashlab.rungs.fa1", "FA1", "05", cost.fa1_forward, "#0072B2", "s",
         "blocks: each key block serves all queries; O, l, m travel through HBM", tiled=True),
    Rung(3, "fa2_forward", "flashlab.rungs.fa2", "FA2", "06", cost.fa2_forward, "#009E73", "D",
         "the loops trade places: O, l, m stay on chip, one division at the end", tiled=True),
    Rung(4, "fa2_triton_forward", "flashlab.kernels.fa2", "FA2 in Triton", "10", cost.fa2_forward, "#7A1FA2", "o",
         "a GPU kernel: one program for each query block of each head", **TRITON),
    Rung(5, "fa2_exp2_forward", "flashlab.kernels.fa2_exp2", "+ base 2", "12", cost.fa2_forward, "#B0479F", "v",
         "exponentials to base 2, the scale and log2(e) folded into one factor", **TRITON),
    Rung(6, "fa2_split_forward", "flashlab.kernels.fa2_split", "+ split loop", "12", cost.fa2_forward, "#C2185B", "s",
         "tiles that every row sees whole have a loop of their own, without masks", **TRITON),
    Rung(7, "fa2_tuned_forward", "flashlab.kernels.fa2_split", "+ tuned", "12", cost.fa2_forward, "#8C564B", "D",
         "tile sizes, warps and stages by a search on the GPU at hand", launcher="launch_tuned", **TRITON),
    Rung(8, "fa2_pipelined_forward", "flashlab.kernels.fa2_pipelined", "+ one pipeline", "12", cost.fa2_forward,
         "#4B5D16", "^", "one loop again, so that loads fill and drain one pipeline; masks in a branch", **TRITON),
    Rung(9, "fa2_tma_forward", "flashlab.kernels.fa2_tma", "+ TMA", "12", cost.fa2_forward, "#17807E", "o",
         "tiles are copied by TMA, from tensor descriptors: no addresses, no masks", by_tma=True, **TRITON),
    Rung(10, "fa2_hopper_forward", "flashlab.operator.hopper_forward", "Gluon, Hopper", "12", cost.fa2_forward,
         "#E6194B", "D", "warps that only load, warps that only compute, and products under exponentials", by_tma=True,
         heads=True, proven=True),
]

# Between fa2_tma_forward and fa2_hopper_forward: the same kernel by hand, one idea a rung.
HOPPER = {"chapter": "12b", "cost": cost.fa2_forward, "by_tma": True, "heads": True}
HOPPER_RUNGS = [
    Rung(0, "hopper_ring_forward", "flashlab.kernels.hopper_ring", "ring", color="#17807E", marker="o",
         new="TMA, mbarriers and wgmma by hand: a ring of slots, and all warps in step", **HOPPER),
    Rung(1, "hopper_producer_forward", "flashlab.kernels.hopper_producer", "+ producer", color="#0072B2", marker="v",
         new="a warp that only loads, and waits until a slot is free", **HOPPER),
    Rung(2, "hopper_consumers_forward", "flashlab.kernels.hopper_consumers", "+ two consumers", color="#7A1FA2",
         marker="s", new="two warpgroups with queries of their own, which share K and V", **HOPPER),
    Rung(3, "hopper_overlap_forward", "flashlab.kernels.hopper_overlap", "+ overlap", color="#8C564B", marker="D",
         new="the next S and this O are issued before the softmax is computed", **HOPPER),
    Rung(4, "hopper_turns_forward", "flashlab.kernels.hopper_turns", "+ turns", color="#C2185B", marker="^",
         new="consumers take turns at issuing products", **HOPPER),
    Rung(5, "hopper_persistent_forward", "flashlab.kernels.hopper_persistent", "+ persistent", color="#1F3FA8",
         marker="P", new="programs that stay, and a counter that hands out tiles", **HOPPER),
]

# Beside the ladder, for calls of another kind: few queries before many keys. With many queries, as in every table and
# curve over RUNGS, sharing out the keys only moves more.
DECODING_RUNGS = [
    Rung(0, "split_kv_forward", "flashlab.rungs.split_kv", "split K/V", "13", cost.split_kv_forward, "#00838F", "P",
         "the keys of a query block go to several programs; a second kernel merges their O and L", tiled=True),
    Rung(1, "fa2_decode_forward", "flashlab.operator.decode_kernels", "Flash-Decoding", "13", cost.fa2_forward,
         "#5B8DB8", "P", "the keys are shared out among programs, and their results merged", heads=True, proven=True),
]
DECODE = DECODING_RUNGS[1]

# All return (dQ, dK, dV); what they start from differs. A backward pass looks like its forward pass.
BACKWARD_RUNGS = [
    Rung(0, "naive_backward", "flashlab.rungs.naive_backward", "naive", "08", cost.naive_backward, "#D55E00", "o",
         "the chain rule, one PyTorch operation after the other; S, P, dP and dS in HBM"),
    Rung(1, "fa1_backward", "flashlab.rungs.fa1_backward", "FA1", "08", cost.fa1_backward, "#0072B2", "s",
         "tiles: P is computed again from Q, K, l and m; dQ travels through HBM", tiled=True),
    Rung(2, "fa2_backward", "flashlab.rungs.fa2_backward", "FA2", "08", cost.fa2_backward, "#009E73", "D",
         "D once, before the loops; L instead of l and m; causal tiles skipped", tiled=True),
    Rung(3, "fa2_backward_two_pass", "flashlab.rungs.fa2_backward", "FA2, two passes", "08",
         cost.fa2_backward_two_pass, "#5E8C1F", "^",
         "dK, dV with the key block fixed, dQ with the query block fixed: each written once", tiled=True),
    Rung(4, "fa2_triton_backward", "flashlab.kernels.fa2_backward", "FA2 in Triton", "11", cost.fa2_backward_two_pass,
         "#7A1FA2", "o", "three GPU kernels: D, then one program for each key block, then one for each query block",
         **TRITON),
    Rung(5, "fa2_split_backward", "flashlab.kernels.fa2_split_backward", "+ split loops", "12",
         cost.fa2_backward_two_pass, "#C2185B", "s",
         "tiles without a hidden score have loops of their own, without masks", **TRITON),
    Rung(6, "fa2_tuned_backward", "flashlab.kernels.fa2_split_backward", "+ tuned", "12", cost.fa2_backward_two_pass,
         "#8C564B", "D", "tile sizes, warps and stages of each kernel by a search on the GPU at hand",
         launcher="launch_tuned", **TRITON),
    Rung(7, "fa2_atomic_backward", "flashlab.kernels.fa2_atomic_backward", "+ one kernel", "12", cost.fa2_backward,
         "#1F3FA8", "v", "dQ added up by atomic operations: five matrix products instead of seven", **TRITON),
    Rung(8, "fa2_tma_backward", "flashlab.kernels.fa2_tma_backward", "+ TMA", "12", cost.fa2_backward, "#17807E", "o",
         "TMA copies the tiles of Q and dO, and adds the tiles of dQ to HBM", by_tma=True, **TRITON),
    Rung(9, "fa2_hopper_backward", "flashlab.operator.hopper_backward", "Gluon, Hopper", "12", cost.fa2_backward,
         "#E6194B", "D", "a warp that loads, warpgroups that take turns at dQ, which TMA adds up", by_tma=True,
         heads=True, proven=True),
]

PEERS = [                  # PyTorch's scaled_dot_product_attention, by backend; what else may be installed
    Peer("sdpa_math", "SDPA math", "#8A8A8A", "x"),
    Peer("sdpa_efficient", "SDPA efficient", "#3FA0DD", "^"),
    Peer("sdpa_flash", "SDPA flash", "#222222", "s"),
    Peer("sdpa_cudnn", "SDPA cuDNN", "#D0609F", "D"),
    Peer("flex_attention", "FlexAttention", "#B8A000", "v"),
    Peer("fa4", "FlashAttention-4", "#6B7A8F", "P"),
]

ALL = (RUNGS, HOPPER_RUNGS, BACKWARD_RUNGS, DECODING_RUNGS, PEERS)      # lists: a rung appended to one is found
KERNELS = [one for one in RUNGS if one.heads]
BACKWARD_KERNELS = [one for one in BACKWARD_RUNGS if one.heads]


def rung(name):
    """The rung of that function name, forward, backward or for decoding. Raises: ValueError for an unknown one."""
    if not isinstance(found := find(name), Rung):
        known = ", ".join(one.name for some in ALL for one in some if isinstance(one, Rung))
        raise ValueError(f"name must be one of {known}, got {name!r}")
    return found


def find(name):
    """The rung or peer of that name, or None: how a row of results/ is labelled and drawn."""
    return next((one for some in ALL for one in some if one.name == name), None)
