# kind: one mistake
# what: inside = offsets < M * N
# shows: a tile past the right edge (wraps into the next row), or strides of a view
"""ex09_tile_offsets: my answer."""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = i * B_m + torch.arange(B_m)
    cols = j * B_n + torch.arange(B_n)
    offsets = rows[:, None] * stride_m + cols[None, :] * stride_n
    inside = offsets < M * N
    return offsets, inside
