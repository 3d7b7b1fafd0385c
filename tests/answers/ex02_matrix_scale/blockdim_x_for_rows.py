# kind: one mistake
# what: the row is counted with blockDim.x
# shows: block[0] != block[1] and more than one block along y: rows stay NaN, or are made twice
"""ex02_matrix_scale · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def scale_kernel(X, factors, Y, rows, cols):
    """Written for one thread."""
    row = blockIdx.y * blockDim.x + threadIdx.y
    col = blockIdx.x * blockDim.x + threadIdx.x
    if row < rows and col < cols:
        Y[row * cols + col] = X[row * cols + col] * factors[row]


def grid_for(rows, cols, block):
    """(x, y): the blocks of block[0] columns and block[1] rows that cover the matrix."""
    x, y = block
    return -(-cols // x), -(-rows // y)


def scale_rows(X, factors, block):
    """Each row times its factor, and the 32-byte sectors that the stores moved."""
    rows, cols = X.shape
    Y = torch.full((rows, cols), float("nan"), dtype=X.dtype)
    trace = launch(scale_kernel, grid_for(rows, cols, block), block)(X, factors, Y, rows, cols)
    return Y, trace.sectors("store")[0]
