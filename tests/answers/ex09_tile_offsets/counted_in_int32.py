# kind: one mistake
# what: row and column numbers are int32, and are turned into int64 after the multiplication
# shows: offsets of 2^31 and more (a large stride): they wrap; small ones are right and int64
"""ex09_tile_offsets · the addresses of a tile"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = (i * B_m + torch.arange(B_m, dtype=torch.int32))[:, None]
    cols = (j * B_n + torch.arange(B_n, dtype=torch.int32))[None, :]
    offsets = (rows * stride_m + cols * stride_n).to(torch.int64)
    inside = (rows < M) & (cols < N)
    return offsets, inside
