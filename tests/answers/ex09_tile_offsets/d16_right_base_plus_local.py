# kind: right
# what: the tile's own first element plus offsets within the tile; the mask from what is left of the matrix below and on the right
# shows: same sums in another order; a tile wholly outside has nothing left (a number <= 0), so its mask is all False
"""ex09_tile_offsets · the addresses of a tile

Chapter 09 · difficulty 2 of 5 · 15 minutes

A matrix (M, N) is cut into tiles of B_m rows and B_n columns, from its first element on. Tile (i, j) is the one with i tiles
above it and j tiles to its left; it may stick out on the right or below, or lie wholly outside. Compute where its elements
lie, and which of them exist. In PyTorch here; in a kernel the same lines read tl.arange for torch.arange.

    ->   offsets (B_m, B_n) int64        how far an element lies from the first one of the matrix, counted in elements
         inside (B_m, B_n) bool          is the element within the matrix?

stride_m passes from one row of the matrix to the next, stride_n from one column to the next; rows may have gaps between them.
Elements outside get the offset that they would have if the matrix went on; a kernel masks them.
No size is 0, and strides are positive.

Not allowed: filling the tensors element by element, the finished function from flashlab or solutions/.

Hint: rows[:, None] is a column, cols[None, :] a row. What do they become when they are added?
"""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    row0, col0 = i * B_m, j * B_n
    base = row0 * stride_m + col0 * stride_n
    offs_m = torch.arange(0, B_m, dtype=torch.int64)
    offs_n = torch.arange(0, B_n, dtype=torch.int64)
    offsets = base + (offs_m * stride_m).unsqueeze(1) + (offs_n * stride_n).unsqueeze(0)
    rows_left, cols_left = M - row0, N - col0
    inside = torch.logical_and((offs_m < rows_left).unsqueeze(1), (offs_n < cols_left).unsqueeze(0))
    return offsets, inside
