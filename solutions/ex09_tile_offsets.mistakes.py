"""Cases and mistakes of ex09_tile_offsets."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, i, j, B_m, B_n, M, N, stride_m, stride_n):
    features = {"a tile below the first": i > 0, "a tile right of the first": j > 0, "a tile that is not square": B_m != B_n, "a tile that sticks out below": (i + 1) * B_m > M,
                "a tile that sticks out on the right": (j + 1) * B_n > N, "a last stride other than 1": stride_n != 1, "rows with gaps": stride_n == 1 and stride_m != N,
                "a matrix that is not square": M != N}
    inputs = {"i": i, "j": j, "B_m": B_m, "B_n": B_n, "M": M, "N": N, "stride_m": stride_m, "stride_n": stride_n}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in features.items() if true), inputs)


ROWS, COLS = "rows = i * B_m + torch.arange(B_m)[:, None]", "cols = j * B_n + torch.arange(B_n)[None, :]"
OFFSETS, INSIDE = "rows * stride_m + cols * stride_n", "(rows < M) & (cols < N)"

EXERCISE = Exercise(
    function="tile_offsets",
    outputs=(Output("offsets", ("row", "column")), Output("inside", ("row", "column"))),
    ints_only=True,
    loops=lambda i, j, B_m, B_n, M, N, stride_m, stride_n: ("elements", B_m * B_n) if B_m * B_n > 6 else None,
    cases=[
        case("the first tile", 0, 0, 2, 2, 8, 8, 8, 1),
        case("the second row of tiles", 1, 0, 2, 2, 8, 8, 8, 1),
        case("the second column of tiles", 0, 1, 2, 2, 8, 8, 8, 1),
        case("a flat tile", 1, 2, 2, 4, 8, 16, 16, 1),
        case("rows with gaps", 1, 1, 2, 4, 8, 8, 11, 1),
        case("a transposed matrix", 2, 1, 4, 2, 12, 8, 1, 12),
        case("a short last tile on the right", 1, 2, 4, 4, 12, 10, 10, 1),
        case("a short last tile below", 2, 1, 4, 4, 11, 12, 12, 1),
        case("the last tile", 2, 2, 4, 4, 11, 10, 10, 1),
        case("a tile that sticks out below", 2, 0, 4, 2, 10, 8, 8, 1),
        case("a tile that sticks out on the right", 0, 2, 2, 4, 8, 10, 10, 1),
        case("a tile wholly outside", 3, 1, 2, 2, 6, 4, 4, 1),
        case("a tile less than its size outside", 2, 2, 4, 4, 5, 6, 6, 1),
        case("a matrix smaller than a tile", 0, 0, 4, 4, 3, 2, 5, 1),
        case("rows 2 GiB apart", 1, 1, 2, 2, 8, 6, 2**30 + 7, 2**29),
    ],
    mistakes=[
        Mistake("corner_without_stride", "the tile's corner was counted without the strides, or without one of them", "the corner: i · B_m rows and j · B_n columns, each times its stride",
                ("rows * stride_m + cols * stride_n", "rows * stride_m + j * B_n + (cols - j * B_n) * stride_n"), also=[[("rows * stride_m + cols * stride_n", "i * B_m + (rows - i * B_m) * stride_m + cols * stride_n")], [("rows * stride_m + cols * stride_n", "i * B_m + (rows - i * B_m) * stride_m + j * B_n + (cols - j * B_n) * stride_n")]]),
        Mistake("no_row_offset", "every tile started at row 0: i was not used", "rows: tile i starts at row i · B_m", (ROWS, "rows = torch.arange(B_m)[:, None]")),
        Mistake("no_col_offset", "every tile started at column 0: j was not used", "cols: tile j starts at column j · B_n", (COLS, "cols = torch.arange(B_n)[None, :]")),
        Mistake("i_not_times_B", "tile i was taken to start at row i, tile j at column j", "each tile before it has B_m rows, or B_n columns",
                (ROWS, "rows = i + torch.arange(B_m)[:, None]"), (COLS, "cols = j + torch.arange(B_n)[None, :]")),
        Mistake("B_m_and_B_n_swapped", "rows were counted in steps of B_n and columns in steps of B_m", "a tile has B_m rows and B_n columns",
                (ROWS, "rows = i * B_n + torch.arange(B_m)[:, None]"), (COLS, "cols = j * B_m + torch.arange(B_n)[None, :]")),
        Mistake("i_and_j_swapped", "i counted columns of tiles and j rows", "i walks down, j to the right", (ROWS, "rows = j * B_m + torch.arange(B_m)[:, None]"), (COLS, "cols = i * B_n + torch.arange(B_n)[None, :]")),
        Mistake("strides_swapped", "the strides were swapped", "stride_m passes from one row to the next", (OFFSETS, "rows * stride_n + cols * stride_m")),
        Mistake("N_for_stride", "N was taken for the step to the next row, and 1 for the step to the next column", "strides: a view into a larger matrix has others",
                (OFFSETS, "rows * N + cols")),
        Mistake("N_for_stride_m", "a row was taken to be N elements long in memory: row · N for row · stride_m", "stride_m: the step from one row to the next, also where rows lie further apart",
                (OFFSETS, "rows * N + cols * stride_n"), also=[[(OFFSETS, "(rows * N + cols) * stride_n")]]),
        Mistake("last_stride_1", "stride_n was taken to be 1: neighbouring columns next to each other", "stride_n: the step from one column to the next, more than 1 in a transposed matrix", (OFFSETS, "rows * stride_m + cols")),
        Mistake("rows_only", "only rows were held against the matrix", "inside: rows < M and cols < N", (INSIDE, "(rows < M) & (cols >= 0)")),
        Mistake("cols_only", "only columns were held against the matrix", "inside: rows < M and cols < N", (INSIDE, "(rows >= 0) & (cols < N)")),
        Mistake("guard_of_offsets", "inside was asked of the offset, not of row and column: an element past the end of a row can have the offset of one of the next row or of a gap, and one of the matrix a large offset",
                "inside: row < M and column < N, each number against its own size", (INSIDE, "offsets < M * N"), also=[[(INSIDE, "(rows * N + cols < M * N)")], [(INSIDE, "offsets <= (M - 1) * stride_m + (N - 1) * stride_n")], [(INSIDE, "offsets < M * stride_m")]]),
        Mistake("counted_from_the_back", "a tile wholly outside had rows or columns inside: what M − i · B_m or N − j · B_n leaves is negative there, and was counted from the back", "inside: row < M and column < N; of a tile wholly outside nothing is",
                (INSIDE, "torch.zeros(B_m, B_n, dtype=torch.bool)\n    inside[:M - i * B_m, :N - j * B_n] = True")),
        Mistake("or_for_and", "an element was taken to be inside if its row or its column is", "inside: both, &", (INSIDE, "(rows < M) | (cols < N)")),
        Mistake("off_by_one", "one row and one column too many counted as inside: ≤ for <", "the last row is M − 1, the last column N − 1: row < M and column < N", (INSIDE, "(rows <= M) & (cols <= N)")),
        Mistake("M_and_N_swapped", "rows were held against N and columns against M", "M counts rows, N columns", (INSIDE, "(rows < N) & (cols < M)")),
        Mistake("row_i_not_times_B", "tile i was taken to start at row i; columns were right", "rows: each tile above has B_m rows", (ROWS, "rows = i + torch.arange(B_m)[:, None]")),
        Mistake("col_j_not_times_B", "tile j was taken to start at column j; rows were right", "cols: each tile to the left has B_n columns", (COLS, "cols = j + torch.arange(B_n)[None, :]")),
        Mistake("rows_in_steps_of_B_n", "rows were counted in steps of B_n", "rows: i · B_m", (ROWS, "rows = i * B_n + torch.arange(B_m)[:, None]")),
        Mistake("cols_in_steps_of_B_m", "columns were counted in steps of B_m", "cols: j · B_n", (COLS, "cols = j * B_m + torch.arange(B_n)[None, :]")),
        Mistake("mask_within_tile", "positions within the tile were held against the matrix", "inside: rows and cols of the matrix", (INSIDE, "(rows - i * B_m < M) & (cols - j * B_n < N)")),
        Mistake("inverted", "inside was True for what is outside", "inside: rows < M and cols < N", (INSIDE, "~((rows < M) & (cols < N))")),
        Mistake("one_too_few", "the last row and the last column were left out", "the last row is M − 1, which is < M", (INSIDE, "(rows < M - 1) & (cols < N - 1)")),
        Mistake("M_for_stride", "rows were M elements apart", "stride_m: the step from one row to the next", (OFFSETS, "rows * M + cols * stride_n")),
        Mistake("strides_added", "the strides were added to rows and columns, not multiplied", "offsets = row · stride_m + col · stride_n", (OFFSETS, "rows + stride_m + cols + stride_n")),
        Mistake("tile_stride", "within a tile the rows were taken to be B_n elements apart, as if each tile lay in one piece", "offsets: rows are stride_m apart and columns stride_n, within a tile as between tiles", (OFFSETS, "i * B_m * stride_m + j * B_n * stride_n + torch.arange(B_m)[:, None] * B_n + torch.arange(B_n)[None, :]")),
        Mistake("outside_set_to_0", "offsets outside the matrix were set to 0", "elements outside get an offset too: row · stride_m + col · stride_n, as everywhere", ("return offsets, inside", "return torch.where(inside, offsets, 0), inside")),
        Mistake("swapped", "the two results changed places", "the results: offsets, int64, first, then inside, bool", ("return offsets, inside", "return inside, offsets")),
        Mistake("transposed", "the tile came out transposed: columns in rows", "rows[:, None], cols[None, :]", ("return offsets, inside", "return offsets.T.contiguous(), inside.T.contiguous()")),
        Mistake("clamped_at_the_edge", "rows and columns outside the matrix got the offset of its last row or column", "elements outside get an offset too: row · stride_m + col · stride_n, as everywhere",
                (OFFSETS, "rows.clamp(max=M - 1) * stride_m + cols.clamp(max=N - 1) * stride_n"),
                also=[[(OFFSETS, "rows.clamp(max=M - 1) * stride_m + cols * stride_n")], [(OFFSETS, "rows * stride_m + cols.clamp(max=N - 1) * stride_n")]]),
        Mistake("wrapped_at_the_edge", "rows and columns outside the matrix began again at 0", "elements outside get an offset too: row · stride_m + col · stride_n, as everywhere",
                (OFFSETS, "rows % M * stride_m + cols % N * stride_n")),
        Mistake("in_int32", "the offsets were counted in 32 bits, and turned into 64 bits when they had overflowed", "rows and cols: int64 before they meet a stride",
                (OFFSETS, "(rows.int() * stride_m + cols.int() * stride_n).long()")),
        Mistake("rows_within_tile", "the row's number within the tile was held against M", "inside: rows of the matrix, of which the tile begins at i · B_m", (INSIDE, "(rows - i * B_m < M) & (cols < N)")),
        Mistake("cols_within_tile", "the column's number within the tile was held against N", "inside: columns of the matrix, of which the tile begins at j · B_n", (INSIDE, "(rows < M) & (cols - j * B_n < N)")),
    ],
    hints=[
        "rows = i * B_m + torch.arange(B_m), and its column shape is rows[:, None].",
        "offsets = rows * stride_m + cols * stride_n: a (B_m, 1) and a (1, B_n) broadcast to (B_m, B_n).",
        "inside = (rows < M) & (cols < N), with the same shapes.",
    ],
)
