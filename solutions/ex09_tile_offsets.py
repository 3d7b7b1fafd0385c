"""ex09_tile_offsets · the addresses of a tile

Chapter 09 · difficulty 2 of 5 · 15 minutes

Tile (i, j) of a matrix (M, N): rows i·B_m, i·B_m + 1, ..., B_m of them, and B_n columns likewise. Compute where its elements
lie, and which of them exist. In PyTorch here; in a kernel the same lines read tl.arange for torch.arange.

    ->   offsets (B_m, B_n) int64        row · stride_m + col · stride_n
         inside (B_m, B_n) bool          is the element within the matrix?

Elements outside get an offset too; a kernel masks them.

Hint: rows[:, None] is a column, cols[None, :] a row. What do they become when they are added?
"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    # >>> your turn: rows, cols, offsets, inside
    rows = i * B_m + torch.arange(B_m)[:, None]                    # (B_m, 1)
    cols = j * B_n + torch.arange(B_n)[None, :]                    # (1, B_n)
    offsets = rows * stride_m + cols * stride_n                    # (B_m, B_n)
    inside = (rows < M) & (cols < N)                               # (B_m, B_n)
    return offsets, inside
    # <<<
