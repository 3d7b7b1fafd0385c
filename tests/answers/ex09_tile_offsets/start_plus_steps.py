# kind: right
# what: the tile's first address, plus strides counted in its own rows and columns; the mask from what is left
"""ex09_tile_offsets · the addresses of a tile"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    top, left = i * B_m, j * B_n
    r, c = torch.meshgrid(torch.arange(B_m), torch.arange(B_n), indexing="ij")
    first = top * stride_m + left * stride_n
    return first + r * stride_m + c * stride_n, (r < M - top) & (c < N - left)
