from flashlab_course.check.cases import Mistake, case_of, normal

COL, ROW = "col = blockIdx.x * blockDim.x + threadIdx.x", "row = blockIdx.y * blockDim.y + threadIdx.y"
GRID, GUARD = "-(-cols // block[0]), -(-rows // block[1])", "row < rows and col < cols"
PRODUCT = "Y[row * cols + col] = factors[row] * X[row * cols + col]"
FLAT = "row * cols + col < rows * cols"

outputs = [("Y", "row", "column"), ("sectors",)]
features = {"more than one block down": lambda rows, block: rows > block[1],
            "columns that are no multiple of the block": lambda cols, block: cols % block[0]}


def truth(X, factors, block):
    from flashlab_course.gpu import simt

    rows, cols = X.shape
    A, C = X.clone(), X.clone()
    trace = simt.launch(simt.matrix_add, (-(-cols // block[0]), -(-rows // block[1])), block)(A, A, C, rows, cols)
    return factors.double()[:, None] * X.double(), trace.sectors("store")[0]


case = case_of(lambda rows, cols, block, *, seed: {"X": normal(rows, cols, seed=seed), "block": block,
                                                   "factors": normal(rows, seed=seed + 1)})
cases = [case("one block", 4, 8, (8, 4), seed=240),
         case("more columns than a block", 4, 24, (8, 4), seed=242),
         case("more rows than a block", 12, 8, (8, 4), seed=244),
         case("a short last block across", 4, 21, (8, 4), seed=246),
         case("a short last block down", 10, 8, (8, 4), seed=248),
         case("short in both directions", 7, 37, (16, 4), seed=252),
         case("blocks of 5 by 3", 7, 12, (5, 3), seed=256)]
mistakes = [
    Mistake("grid_swapped", "the grid's two numbers were swapped", "which direction comes first in the grid", (GRID,
             "-(-rows // block[1]), -(-cols // block[0])")),
    Mistake("sides_swapped", "the grid's x was computed from rows and its y from cols",
            "which of rows and cols lies along x", (GRID, "-(-rows // block[0]), -(-cols // block[1])")),
    Mistake("blocks_taken_as_square", "both directions of the grid were divided by the block's size along x",
            "the block's size down", (GRID, "-(-cols // block[0]), -(-rows // block[0])")),
    Mistake("floor_down", "the blocks down were rounded down", "a short last block down", ("-(-rows // block[1])",
             "max(1, rows // block[1])")),
    Mistake("down_columns", "x ran down the rows, so neighbouring lanes wrote far apart", "what threadIdx.x moves",
            (COL, f"row{COL[3:]}"), (ROW, f"col{ROW[3:]}"), (GRID, "-(-rows // block[0]), -(-cols // block[1])")),
    Mistake("blockDim_x_for_y", "rows were counted with blockDim.x, the block's width", "the height of a block",
            ("blockIdx.y * blockDim.y", "blockIdx.y * blockDim.x")),
    Mistake("no_guard_for_columns", "columns past the end of a row were written into the next row",
            "what the guard says about col", (GUARD, "row < rows")),
    Mistake("guard_of_the_flat_index", "only the flat index was guarded, so columns past the end came through",
            "the guard of col", (GUARD, FLAT), ("factors[row]", "factors[min(row, rows - 1)]"), also=[[(GUARD, FLAT)]]),
    Mistake("rows_for_cols", "`row` was multiplied by the number of rows", "how far it is from one row to the next",
            (PRODUCT, PRODUCT.replace("row * cols", "row * rows"))),
    Mistake("column_major", "X and Y were indexed column by column", "the order of the numbers in memory", (PRODUCT,
             PRODUCT.replace("row * cols + col", "col * rows + row"))),
    Mistake("factor_of_the_column", "the factor was taken by column, not by row", "the index into factors",
            ("factors[row]", "factors[col]")),
    Mistake("factor_of_the_thread", "the factor was that of the row within the block", "the index into factors",
            ("factors[row]", "factors[threadIdx.y]")),
]
hints = ["The column comes from x as in a vector: blocks before mine, then my place in the block. The row comes from "
         "y.",
         "A thread may stick out on the right or at the bottom, so both its numbers need a guard.",
         "The grid is (blocks across, blocks down), and both are rounded up."]
