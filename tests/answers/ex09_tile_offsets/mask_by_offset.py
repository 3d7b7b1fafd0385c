# kind: one mistake
# what: an element counts as inside if its offset is no more than that of the matrix's last element
# shows: tiles that stick out on the right: all but the last rows' columns beyond N pass as inside
"""ex09_tile_offsets · the addresses of a tile"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = i * B_m + torch.arange(B_m)
    cols = j * B_n + torch.arange(B_n)
    offsets = rows[:, None] * stride_m + cols[None, :] * stride_n
    last = (M - 1) * stride_m + (N - 1) * stride_n
    return offsets, offsets <= last
