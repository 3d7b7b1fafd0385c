# kind: point missed
# what: x walks down a column, y along the row, in the kernel and in the grid
# shows: numbers right; neighbouring lanes are `cols` apart, many more sectors, and the grid is not (columns, rows)
"""ex02_matrix_scale · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def scale_kernel(X, factors, Y, rows, cols):
    """Written for one thread."""
    row = blockIdx.x * blockDim.x + threadIdx.x
    col = blockIdx.y * blockDim.y + threadIdx.y
    if row < rows and col < cols:
        Y[row * cols + col] = factors[row] * X[row * cols + col]


def grid_for(rows, cols, block):
    """(x, y): the blocks of block[0] columns and block[1] rows that cover the matrix."""
    return -(-rows // block[0]), -(-cols // block[1])


def scale_rows(X, factors, block):
    """Each row times its factor, and the 32-byte sectors that the stores moved."""
    rows, cols = X.shape
    Y = torch.full((rows, cols), float("nan"), dtype=X.dtype)
    trace = launch(scale_kernel, grid_for(rows, cols, block), block)(X, factors, Y, rows, cols)
    return Y, trace.sectors("store")[0]
