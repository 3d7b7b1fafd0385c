# kind: one mistake
# what: rows and columns past the edge are clamped to the last one, so that no address is outside
# shows: tiles that stick out: offsets of elements outside repeat the edge instead of going on; the mask is right
"""ex09_tile_offsets · the addresses of a tile"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    rows = torch.arange(i * B_m, (i + 1) * B_m)
    cols = torch.arange(j * B_n, (j + 1) * B_n)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    rows, cols = rows.clamp(max=M - 1), cols.clamp(max=N - 1)
    offsets = rows[:, None] * stride_m + cols[None, :] * stride_n
    return offsets, inside
