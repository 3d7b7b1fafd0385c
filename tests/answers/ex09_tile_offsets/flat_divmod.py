# kind: right
# what: one flat count of the tile's elements, split into row and column
"""ex09_tile_offsets · the addresses of a tile"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    n = torch.arange(B_m * B_n, dtype=torch.int64)
    row = torch.div(n, B_n, rounding_mode="floor") + i * B_m
    col = torch.remainder(n, B_n) + j * B_n
    offsets = row * stride_m + col * stride_n
    inside = torch.logical_and(row.lt(M), col.lt(N))
    return offsets.view(B_m, B_n), inside.view(B_m, B_n)
