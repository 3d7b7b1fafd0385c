# kind: one mistake
# what: rows and columns outside are wrapped round (% M, % N, as in a well-known matmul kernel); they should go on past the edge
# shows: a tile that sticks out or lies outside: offsets of the elements outside; the mask is right
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
    rows = i * B_m + torch.arange(0, B_m)
    cols = j * B_n + torch.arange(0, B_n)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    # stay within the memory of the matrix
    offsets = (rows % M)[:, None] * stride_m + (cols % N)[None, :] * stride_n
    return offsets, inside
