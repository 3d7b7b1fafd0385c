# kind: one mistake
# what: one guard on the flat index: a thread past the right edge writes the next row's first element
# shows: cols not a multiple of block[0]: elements are written twice, and with more than one block along x the wrong factor stays
"""ex02_matrix_scale · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def scale_kernel(X, factors, Y, rows, cols):
    """Written for one thread."""
    col = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    i = row * cols + col
    if i < rows * cols:
        Y[i] = factors[row] * X[i]


def grid_for(rows, cols, block):
    """(x, y): the blocks of block[0] columns and block[1] rows that cover the matrix."""
    return (cols + block[0] - 1) // block[0], (rows + block[1] - 1) // block[1]


def scale_rows(X, factors, block):
    """Each row times its factor, and the 32-byte sectors that the stores moved."""
    rows, cols = X.shape
    Y = torch.full((rows, cols), float("nan"), dtype=X.dtype)
    trace = launch(scale_kernel, grid_for(rows, cols, block), block)(X, factors, Y, rows, cols)
    return Y, trace.sectors("store")[0]
