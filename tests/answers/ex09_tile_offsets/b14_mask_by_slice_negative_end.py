# kind: one mistake
# what: the mask is filled with inside[:M - i * B_m, :N - j * B_n] = True; for a tile below or right of the matrix the end of the slice is negative and counts from the back; it should be clamped at 0
# shows: a tile wholly outside, less than a tile away from the edge: e.g. M = 5, B_m = 4, i = 2, where 5 - 8 = -3 marks the first row
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
    top, left = i * B_m, j * B_n

    row_part = (top + torch.arange(B_m)) * stride_m
    col_part = (left + torch.arange(B_n)) * stride_n
    offsets = torch.add(row_part.unsqueeze(1), col_part.unsqueeze(0))

    # M - top rows and N - left columns of the matrix are left for this tile
    inside = torch.zeros(B_m, B_n, dtype=torch.bool)
    inside[:M - top, :N - left] = True
    return offsets, inside
