"""Cases and mistakes of ex09_tile_offsets."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, i, j, B_m, B_n, M, N, stride_m, stride_n):
    features = {"a tile below the first": i > 0, "a tile right of the first": j > 0, "a tile that is not square": B_m != B_n,
                "a tile that sticks out below": (i + 1) * B_m > M,
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
        Mistake("corner_without_stride", "the tile's corner was counted without the strides, or without one of them",
                "the corner: i · B_m rows and j · B_n columns, each times its stride",
                ("rows * stride_m + cols * stride_n", "rows * stride_m + j * B_n + (cols - j * B_n) * stride_n"),
                also=[[("rows * stride_m + cols * stride_n", "i * B_m + (rows - i * B_m) * stride_m + cols * stride_n")]]),
        Mistake("i_and_j_swapped", "i counted columns of tiles and j rows", "i walks down, j to the right", (ROWS, "rows = j * B_m + torch.arange(B_m)[:, None]"),
                (COLS, "cols = i * B_n + torch.arange(B_n)[None, :]")),
        Mistake("strides_swapped", "the strides were swapped", "stride_m passes from one row to the next", (OFFSETS, "rows * stride_n + cols * stride_m")),
        Mistake("N_for_stride_m", "a row was taken to be N elements long in memory: row · N for row · stride_m",
                "stride_m: the step from one row to the next, also where rows lie further apart", (OFFSETS, "rows * N + cols * stride_n"),
                also=[[(OFFSETS, "(rows * N + cols) * stride_n")]]),
        Mistake("guard_of_offsets", "inside was asked of the offset, not of row and column: an element past the end of a row can have the offset of one of the "
                "next row or of a gap, and one of the matrix a large offset", "inside: row < M and column < N, each number against its own size",
                (INSIDE, "offsets < M * N"), also=[[(INSIDE, "(rows * N + cols < M * N)")]]),
        Mistake("counted_from_the_back",
                "a tile wholly outside had rows or columns inside: what M − i · B_m or N − j · B_n leaves is negative there, and was counted from the back",
                "inside: row < M and column < N; of a tile wholly outside nothing is",
                (INSIDE, "torch.zeros(B_m, B_n, dtype=torch.bool)\n    inside[:M - i * B_m, :N - j * B_n] = True")),
        Mistake("or_for_and", "an element was taken to be inside if its row or its column is", "inside: both, &", (INSIDE, "(rows < M) | (cols < N)")),
        Mistake("off_by_one", "one row and one column too many counted as inside: ≤ for <", "the last row is M − 1, the last column N − 1: row < M and column < N",
                (INSIDE, "(rows <= M) & (cols <= N)")),
        Mistake("cols_in_steps_of_B_m", "columns were counted in steps of B_m", "cols: j · B_n", (COLS, "cols = j * B_m + torch.arange(B_n)[None, :]")),
        Mistake("tile_stride", "within a tile the rows were taken to be B_n elements apart, as if each tile lay in one piece",
                "offsets: rows are stride_m apart and columns stride_n, within a tile as between tiles",
                (OFFSETS, "i * B_m * stride_m + j * B_n * stride_n + torch.arange(B_m)[:, None] * B_n + torch.arange(B_n)[None, :]")),
        Mistake("outside_set_to_0", "offsets outside the matrix were set to 0",
                "elements outside get an offset too: row · stride_m + col · stride_n, as everywhere",
                ("return offsets, inside", "return torch.where(inside, offsets, 0), inside")),
        Mistake("transposed", "the tile came out transposed: columns in rows", "rows[:, None], cols[None, :]",
                ("return offsets, inside", "return offsets.T.contiguous(), inside.T.contiguous()")),
        Mistake("clamped_at_the_edge", "rows and columns outside the matrix got the offset of its last row or column",
                "elements outside get an offset too: row · stride_m + col · stride_n, as everywhere",
                (OFFSETS, "rows.clamp(max=M - 1) * stride_m + cols.clamp(max=N - 1) * stride_n"), also=
                     [[(OFFSETS, "rows.clamp(max=M - 1) * stride_m + cols * stride_n")]]),
        Mistake("wrapped_at_the_edge", "rows and columns outside the matrix began again at 0",
                "elements outside get an offset too: row · stride_m + col · stride_n, as everywhere", (OFFSETS, "rows % M * stride_m + cols % N * stride_n")),
        Mistake("in_int32", "the offsets were counted in 32 bits, and turned into 64 bits when they had overflowed",
                "rows and cols: int64 before they meet a stride", (OFFSETS, "(rows.int() * stride_m + cols.int() * stride_n).long()")),
        ],
    hints=[
        "rows = i * B_m + torch.arange(B_m), and its column shape is rows[:, None].",
        "offsets = rows * stride_m + cols * stride_n: a (B_m, 1) and a (1, B_n) broadcast to (B_m, B_n).",
        "inside = (rows < M) & (cols < N), with the same shapes.",
    ],
)
