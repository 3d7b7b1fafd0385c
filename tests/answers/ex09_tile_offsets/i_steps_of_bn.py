# kind: one mistake
# what: cols start at j * B_m
# shows: B_m != B_n and j > 0
"""ex09_tile_offsets: my answer."""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = i * B_m + torch.arange(B_m)
    cols = j * B_m + torch.arange(B_n)
    offsets = rows[:, None] * stride_m + cols[None, :] * stride_n
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    return offsets, inside
