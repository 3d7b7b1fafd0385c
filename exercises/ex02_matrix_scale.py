"""ex02_matrix_scale · a matrix on a two-dimensional grid

Chapter 02 · difficulty 2 of 5 · 20 minutes

Multiply every row of a matrix by its own factor, with one thread for each element.

    X (rows, cols)   factors (rows,)   ->   Y (rows, cols)        Y[row, col] = factors[row] · X[row, col]

    block = (x, y): a block has x threads along the columns and y along the rows
    grid = (x, y):  x blocks along the columns and y along the rows, as few as cover the whole matrix

Write two functions: the kernel, which every thread of every block runs, and the size of the grid. rows and cols may be
any numbers from 1 on. Blocks at the right and the lower edge may stick out, and a thread without an element does
nothing. In the kernel, X, factors and Y are pointers to their first numbers, with one index each. X and Y lie in memory
row after row, without gaps, `cols` numbers in each row. The thread with number c along x and r along y in the whole
grid takes the element in column c of row r. Neighbouring lanes differ in threadIdx.x, so they walk along a row and
share sectors of memory; the sectors of the stores are counted. Tensors are float32, and no size is 0.

Not allowed: PyTorch in place of the kernel, fewer or more blocks than cover X in either direction, the finished
function from flashlab or solutions/.

Hint: both directions need a ceil in the grid and a guard in the kernel. Which of x and y belongs to the columns?
"""

import torch

from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx


def scale_kernel(X, factors, Y, rows, cols):
    """Written for one thread."""
    # your turn: my row and column, the guard, the product
    raise NotImplementedError("ex02_matrix_scale: my row and column, the guard, the product")


def grid_for(rows, cols, block):
    """(x, y): the blocks of block[0] columns and block[1] rows that cover the matrix."""
    # your turn: the number of blocks in both directions
    raise NotImplementedError("ex02_matrix_scale: the number of blocks in both directions")


def scale_rows(X, factors, block):
    """Each row times its factor, and the 32-byte sectors that the stores moved."""
    rows, cols = X.shape
    Y = torch.full((rows, cols), float("nan"), dtype=X.dtype)
    trace = launch(scale_kernel, grid_for(rows, cols, block), block)(X, factors, Y, rows, cols)
    return Y, trace.sectors("store")[0]
