# kind: right
# what: two early returns as guard, offset in a variable of its own, divmod in the grid
"""ex02_matrix_scale · my answer."""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def scale_kernel(X, factors, Y, rows, cols):
    """Written for one thread."""
    row = threadIdx.y + blockDim.y * blockIdx.y
    if row >= rows:
        return
    col = threadIdx.x + blockDim.x * blockIdx.x
    if col >= cols:
        return
    at = col + row * cols
    f = factors[row]
    Y[at] = X[at] * f


def grid_for(rows, cols, block):
    """(x, y): the blocks of block[0] columns and block[1] rows that cover the matrix."""
    across, rest_x = divmod(cols, block[0])
    down, rest_y = divmod(rows, block[1])
    if rest_x > 0:
        across += 1
    if rest_y > 0:
        down += 1
    return across, down


def scale_rows(X, factors, block):
    """Each row times its factor, and the 32-byte sectors that the stores moved."""
    rows, cols = X.shape
    Y = torch.full((rows, cols), float("nan"), dtype=X.dtype)
    trace = launch(scale_kernel, grid_for(rows, cols, block), block)(X, factors, Y, rows, cols)
    return Y, trace.sectors("store")[0]
