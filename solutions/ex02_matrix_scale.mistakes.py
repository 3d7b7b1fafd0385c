"""Cases and mistakes of ex02_matrix_scale."""

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, rows, cols, block, *, seed):
    features = {"more than one block across": cols > block[0], "more than one block down": rows > block[1],
                "columns that are no multiple of the block": cols % block[0] != 0, "rows that are no multiple of the block": rows % block[1] != 0,
                "more blocks across than down": -(-cols // block[0]) > -(-rows // block[1]),
                "more blocks down than across": -(-cols // block[0]) < -(-rows // block[1]), "a block that is not square": block[0] != block[1]}
    inputs = lambda: {"X": normal(rows, cols, seed=seed), "factors": normal(rows, seed=seed + 1), "block": block}
    return Case(name, inputs, frozenset(f for f, true in features.items() if true), {"rows": rows, "cols": cols, "block": block})


def truth(X, factors, block):
    from flashlab_course.gpu import simt

    rows, cols = X.shape
    A, C = X.clone(), X.clone()
    trace = simt.launch(simt.matrix_add, (-(-cols // block[0]), -(-rows // block[1])), block)(A, A, C, rows, cols)
    return factors.double()[:, None] * X.double(), trace.sectors("store")[0]


X_COL, Y_ROW = "col = blockIdx.x * blockDim.x + threadIdx.x", "row = blockIdx.y * blockDim.y + threadIdx.y"
GRID = "-(-cols // block[0]), -(-rows // block[1])"

EXERCISE = Exercise(
    function="scale_rows",
    outputs=(Output("Y", ("row", "column")), Output("sectors")),
    truth=truth,
    cases=[
        case("one block", 4, 8, (8, 4), seed=240),
        case("more columns than a block", 4, 24, (8, 4), seed=242),
        case("more rows than a block", 12, 8, (8, 4), seed=244),
        case("a short last block across", 4, 21, (8, 4), seed=246),
        case("a short last block down", 10, 8, (8, 4), seed=248),
        case("whole warps along a row", 6, 64, (32, 2), seed=250),
        case("short in both directions", 7, 37, (16, 4), seed=252),
        case("one row", 1, 8, (8, 4), seed=254),
        case("blocks of 5 by 3", 7, 12, (5, 3), seed=256),
    ],
    mistakes=[
        Mistake("grid_swapped", "the grid's two numbers were swapped: x counted rows where the kernel takes its column from x",
                "grid_for: x comes first, and x belongs to the columns", (GRID, "-(-rows // block[1]), -(-cols // block[0])")),
        Mistake("sides_swapped", "the grid's two numbers were swapped, and each was divided by the other side of the block",
                "grid_for: x comes first, and x belongs to the columns, of which a block takes block[0]", (GRID, "-(-rows // block[0]), -(-cols // block[1])")),
        Mistake("down_columns", "x walked down the rows: every result was right, but neighbouring lanes wrote far apart",
                "which of row and col comes from x, the lanes' own direction", (X_COL, "row = blockIdx.x * blockDim.x + threadIdx.x"),
                (Y_ROW, "col = blockIdx.y * blockDim.y + threadIdx.y"), (GRID, "-(-rows // block[0]), -(-cols // block[1])")),
        Mistake("floor_down", "the blocks down were rounded down", "grid_for: ceil in both directions", ("-(-rows // block[1])", "max(1, rows // block[1])")),
        Mistake("one_block_more", "a row or a column of blocks too many was launched",
                "grid_for: where block[0] divides cols, cols / block[0] are enough, and for rows likewise", ("-(-rows // block[1])", "rows // block[1] + 1"),
                also=[[("-(-cols // block[0])", "cols // block[0] + 1")]]),
        Mistake("one_thread_a_row", "the first thread of each row did the whole row, and the others nothing", "one thread for each element: no loop",
                ("if row < rows and col < cols:\n        Y[row * cols + col] = factors[row] * X[row * cols + col]",
                 "if row < rows and col == 0:\n        for c in range(cols):\n            Y[row * cols + c] = factors[row] * X[row * cols + c]")),
        Mistake("renumbered_down", "the threads of a block were numbered anew, down the columns: neighbouring lanes wrote far apart",
                "x, the lanes' own direction, walks along a row",
                (X_COL, "t = threadIdx.y * blockDim.x + threadIdx.x\n    col = blockIdx.x * blockDim.x + t // blockDim.y"),
                (Y_ROW, "row = blockIdx.y * blockDim.y + t % blockDim.y")),
        Mistake("no_guard_for_columns", "columns were not guarded, or rows taken to be longer than `cols`: what lies past the end of a row went into the next one",
                "the guard: row < rows and col < cols; and the index: row · cols + col, whatever the grid is", ("row < rows and col < cols", "row < rows")),
        Mistake("rows_for_cols", "`row` was multiplied by the number of rows: a step to the next row passes `cols` numbers", "the index: row * cols + col",
                ("Y[row * cols + col] = factors[row] * X[row * cols + col]", "Y[row * rows + col] = factors[row] * X[row * rows + col]")),
        Mistake("factor_of_the_column", "the factor was taken by column, not by row", "factors[row]", ("factors[row]", "factors[col]")),
        Mistake("blockDim_x_for_y", "rows were counted with blockDim.x, the block's width", "row: blockDim.y",
                ("blockIdx.y * blockDim.y", "blockIdx.y * blockDim.x")),
        Mistake("guard_of_the_flat_index",
                "the flat index row · cols + col was guarded and the column by itself was not, so threads past the end of a row worked on the next one",
                "the guard: row and column each, since row · cols + col < rows · cols lets columns past the end through",
                ("row < rows and col < cols", "row * cols + col < rows * cols"), ("factors[row]", "factors[min(row, rows - 1)]"),
                also=[[("row < rows and col < cols", "row * cols + col < rows * cols")]]),
        Mistake("column_major", "Y and X were addressed column by column, col · rows + row", "the index: rows lie one after the other, so row · cols + col",
                ("Y[row * cols + col] = factors[row] * X[row * cols + col]", "Y[col * rows + row] = factors[row] * X[col * rows + row]")),
        Mistake("factor_of_the_thread", "the factor was that of the row within the block", "factors[row]: the row in the matrix",
                ("factors[row]", "factors[threadIdx.y]")),
        Mistake("blocks_taken_as_square", "rows were divided by the block's size along x, as if blocks were square",
                "the grid: block[0] goes along a row, block[1] down", (GRID, "-(-cols // block[0]), -(-rows // block[0])")),
    ],
    hints=[
        "col = blockIdx.x * blockDim.x + threadIdx.x; row is the same with y.",
        "Guard both: `if row < rows and col < cols:`.",
        "The grid is (blocks across, blocks down): ceil(cols / block[0]), ceil(rows / block[1]).",
    ],
)
