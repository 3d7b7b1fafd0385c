# kind: right
# what: meshgrid and logical_and
"""ex09_tile_offsets: my answer."""

import torch


def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
    """Offsets and mask of tile (i, j)."""
    r, c = torch.meshgrid(torch.arange(i * B_m, (i + 1) * B_m), torch.arange(j * B_n, (j + 1) * B_n), indexing="ij")
    return r.mul(stride_m).add(c.mul(stride_n)), torch.logical_and(r.lt(M), c.lt(N))
