"""Tile sizes, warps and stages: which can be tried, which fit, and which a search on this GPU found fastest.

Large tiles read less, and take registers and shared memory from the other programs of an SM. `python -m flashlab bench
tune` times those that fit on the GPU at hand and keeps its table in a file. A call looks its head dimension up there
and takes the nearest N that was searched; without a search it takes the sizes picked by hand.
"""

import functools
import hashlib
import inspect
import json
import math
import os
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
import triton

from flashlab.kernels import plans
from flashlab.kernels.launch import launch_by_blocks, padded, pick_tiles


class Tiles(NamedTuple):
    """What a launch of an attention kernel may choose."""

    B_r: int
    B_c: int
    num_warps: int
    num_stages: int        # tiles of K and V (backward: Q and dO) in the pipeline; 1: each load is waited for


# by what a program keeps on chip, and what stands in the rows of its scores
GRIDS = {"queries": [Tiles(*choice) for choice in product((64, 128), (32, 64, 128), (4, 8), (1, 2, 3, 4))],
         "keys": [Tiles(*choice) for choice in product((32, 64, 128), (64, 128), (4, 8), (1, 2, 3))]}


def shared_bytes(tiles, d, d_v, dtype, stays="queries"):
    """The least shared memory that a program of these tiles takes: Q_i, and K_j, V_j for each stage; or the reverse."""
    B, B_of_a_stage = (tiles.B_r, tiles.B_c) if stays == "queries" else (tiles.B_c, tiles.B_r)
    return dtype.itemsize * (B * padded(d) + tiles.num_stages * B_of_a_stage * (padded(d) + padded(d_v)))


def candidates(d, d_v, dtype, limit, grid=None, stays="queries"):
    """The tiles worth compiling: they fit in `limit` bytes of shared memory, and each warp has at least 16 rows."""
    rows = {"queries": "B_r", "keys": "B_c"}[stays]
    return [tiles for tiles in grid or GRIDS[stays]
            if shared_bytes(tiles, d, d_v, dtype, stays) <= limit and getattr(tiles, rows) >= 16 * tiles.num_warps]


def launch_with_fastest_tiles(kernel, Q, K, V, O, L, *, B_r=None, B_c=None, tiles=None, otherwise=None, **options):
    """`launch_by_blocks` with the tiles of `choose`."""
    tiles = choose(kernel, Q, K, V, options, B_r, B_c, tiles, otherwise)
    return launch_by_blocks(kernel, Q, K, V, O, L, tiles=tiles, **options)


def choose(kernel, Q, K, V, options, B_r=None, B_c=None, tiles=None, otherwise=None):
    """The tiles of one launch, by name: those given, else the fastest that a search found, else `otherwise`."""
    if tiles is None and not (B_r or B_c):
        tiles = fastest(kernel, Q.shape[-1], V.shape[-1], Q.dtype, options["causal"], K.shape[2])
    return tiles._asdict() if tiles else otherwise or pick_tiles(Q, V, options, B_r, B_c)


def fastest(kernel, d, d_v, dtype, causal, N):
    """The Tiles found fastest for this head dimension at the nearest N that was searched; None without a search."""
    found = tables().get(key(kernel, d, d_v, dtype, causal))
    if not found:
        return None
    nearest = min(found, key=lambda size: abs(math.log2(max(1, N) / int(size))))
    timed = [(ms, tiles) for tiles, ms, _ in found[nearest] if ms]
    return Tiles(*min(timed)[1]) if timed else None


def key(kernel, d, d_v, dtype, causal):
    """The key of a table: another GPU, another Triton or an edited kernel has a table of its own."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    sizes = f"d {d}, d_v {d_v}, {str(dtype).removeprefix('torch.')}{', causal' if causal else ''}"
    return f"{kernel.fn.__name__} {edition(kernel)}, {sizes}, {gpu}, triton {triton.__version__}"


@functools.lru_cache
def edition(kernel):
    """A name for the text of a kernel."""
    return hashlib.sha256(inspect.getsource(kernel.fn).encode()).hexdigest()[:12]


def cache_file():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flashlab" / "tiles.json"


@functools.lru_cache(1)
def tables():
    """{key: {N: [[tiles, ms or None, why not or None], ...]}}; empty without a file that can be read."""
    try:
        return json.loads(cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def remember(key, N, table):
    """Keep the table of a search. The file is replaced whole, so that no reader sees half of it."""
    tables.cache_clear()
    found = tables()
    found.setdefault(key, {})[str(N)] = table
    file = cache_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(f".{os.getpid()}")
    half.write_text(json.dumps(found, indent=1), encoding="utf-8")
    half.replace(file)
    plans.forget()
