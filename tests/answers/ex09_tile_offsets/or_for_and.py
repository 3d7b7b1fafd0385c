# kind: one mistake
# what: | for & in the mask
# shows: tile at an edge or corner
"""ex09_tile_offsets: my answer."""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = i * B_m + torch.arange(B_m)
    cols = j * B_n + torch.arange(B_n)
    offsets = rows[:, None] * stride_m + cols[None, :] * stride_n
    inside = (rows[:, None] < M) | (cols[None, :] < N)
    return offsets, inside
