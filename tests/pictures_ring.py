"""The pictures of chapter 14, each drawn on small data."""

import torch

from flashlab.operator.ring import part, zigzag_shard
from flashlab_course import figures

PROVENANCE = {"device": "Invented GPU", "torch": "0.0", "triton": "0.0", "date": "2000-01-01T00:00:00"}


def logs(R=2, n=4, causal=True, zigzag=True):
    """What flashlab_course.ring_check would note of a run."""
    places = torch.arange(R * n)[:, None]
    owned = [(zigzag_shard(places, r, R) if causal and zigzag else places[r * n:(r + 1) * n])[:, 0].tolist() for r in range(R)]
    found = []
    for r in range(R):
        parts = [part(r, step, R, n, causal=causal, zigzag=zigzag) for step in range(R)]
        found.append({"calls": [{"queries": owned[r][mine.rows], "keys": owned[mine.source][mine.keys], "causal": mine.causal}
                                for mine in parts if mine]})
    return found


def rings(speed=0.9, N=(32768, 65536)):
    """Results of a bench of rings, made up."""
    rows = [{"N": n, "H": 16, "d": 128, "mode": mode, "passes": passes, "dtype": "bfloat16", "ranks": R, "ms": 1.0,
             "speedup": R * speed * (0.6 if mode == "causal, in order" else 1), "peak_bytes": n * 2**15 // R}
            for n in N for mode in ("all", "causal, zig-zag", "causal, in order") for passes in ("forward", "forward+backward")
            for R in (1, 2, 4) if mode != "causal, in order" or (passes == "forward" and R > 1)]
    return {"what": "ring", "provenance": PROVENANCE, "rows": [*rows, rows[-1] | {"ms": None, "skipped": "no time"}]}


def all_of():
    """name -> a call that draws it."""
    return {
        "ring_parts": lambda: figures.ring_parts(logs(), 8, "Measured here: made up."),
        "ring_work": lambda: figures.ring_work({"in order": [[0.5, 0], [0.5, 1]], "zig-zag": [[0.5, 0.5]] * 2}, "2 ranks."),
        "ring_speedup": lambda: figures.ring_speedup(rings()),
        "ring_memory": lambda: figures.ring_memory(rings()),
    }
