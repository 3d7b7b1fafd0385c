# kind: one mistake
# what: the leading dimension is the padded one: gridDim.x * blockDim.x in place of cols
# shows: cols not a multiple of block[0] and more than one row: IndexError or elements that stay NaN
"""ex02_matrix_scale · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, gridDim, launch, threadIdx


def scale_kernel(X, factors, Y, rows, cols):
    """Written for one thread."""
    col = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    pitch = gridDim.x * blockDim.x                         # threads in a row of the grid
    if col < cols and row < rows:
        Y[row * pitch + col] = factors[row] * X[row * pitch + col]


def grid_for(rows, cols, block):
    """(x, y): the blocks of block[0] columns and block[1] rows that cover the matrix."""
    bx, by = block
    return (cols - 1) // bx + 1, (rows - 1) // by + 1


def scale_rows(X, factors, block):
    """Each row times its factor, and the 32-byte sectors that the stores moved."""
    rows, cols = X.shape
    Y = torch.full((rows, cols), float("nan"), dtype=X.dtype)
    trace = launch(scale_kernel, grid_for(rows, cols, block), block)(X, factors, Y, rows, cols)
    return Y, trace.sectors("store")[0]
