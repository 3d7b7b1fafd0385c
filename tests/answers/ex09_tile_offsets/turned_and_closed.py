# kind: two mistakes
# what: strides swapped, and the mask says <= M, <= N
# shows: offsets wherever stride_m != stride_n; the mask wherever a tile reaches beyond row M or column N
"""ex09_tile_offsets · the addresses of a tile"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = (i * B_m + torch.arange(B_m)).reshape(B_m, 1)
    cols = (j * B_n + torch.arange(B_n)).reshape(1, B_n)
    offsets = rows * stride_n + cols * stride_m
    inside = (rows <= M) & (cols <= N)
    return offsets, inside
