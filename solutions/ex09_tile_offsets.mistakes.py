from flashlab_course.check.cases import Mistake, case_of

ROWS, COLS = "rows = i * B_m + torch.arange(B_m)[:, None]", "cols = j * B_n + torch.arange(B_n)[None, :]"
OFFSETS, INSIDE = "rows * stride_m + cols * stride_n", "(rows < M) & (cols < N)"

outputs = [("offsets", "row", "column"), ("inside", "row", "column")]
ints_only = True
loops = lambda B_m, B_n, **rest: ("elements", B_m * B_n) if B_m * B_n > 6 else None
features = {"a tile right of the first": lambda j: j > 0, "a last stride other than 1": lambda stride_n: stride_n != 1}
case = case_of(lambda i, j, B_m, B_n, M, N, stride_m, stride_n: locals())
cases = [case("the first tile", 0, 0, 3, 4, 7, 9, 9, 1),
         case("the second row of tiles", 1, 0, 3, 4, 7, 9, 9, 1),
         case("the second column of tiles", 0, 1, 3, 4, 7, 9, 9, 1),
         case("rows with gaps", 1, 1, 3, 4, 7, 9, 13, 1),
         case("a transposed matrix", 2, 1, 4, 3, 13, 7, 1, 13),
         case("a short last tile on the right", 1, 2, 4, 5, 13, 12, 12, 1),
         case("a short last tile below", 3, 1, 4, 5, 13, 12, 12, 1),
         case("a tile less than its size outside", 2, 2, 4, 5, 5, 8, 8, 1),
         case("a matrix smaller than a tile", 0, 0, 4, 6, 3, 2, 5, 1),
         case("rows 2 GiB apart", 1, 1, 2, 3, 8, 7, 2**30 + 7, 2**29)]
mistakes = [
    Mistake("i_and_j_swapped", "i counted tiles across and j counted tiles down", "which of i and j moves down", (ROWS,
             "rows = j * B_m + torch.arange(B_m)[:, None]"), (COLS, "cols = i * B_n + torch.arange(B_n)[None, :]")),
    Mistake("cols_in_steps_of_B_m", "the tiles to the left were taken to be B_m columns wide",
            "how many columns lie left of tile j", (COLS, "cols = j * B_m + torch.arange(B_n)[None, :]")),
    Mistake("strides_swapped", "the two strides were swapped", "which stride passes from one row to the next", (OFFSETS,
             "rows * stride_n + cols * stride_m")),
    Mistake("N_for_stride_m", "rows were taken to lie N elements apart; stride_m was not used", "gaps between rows",
            (OFFSETS, "rows * N + cols * stride_n"), also=[[(OFFSETS, "(rows * N + cols) * stride_n")]]),
    Mistake("corner_without_stride", "the columns left of the tile were not multiplied by stride_n",
            "the tile's first element", (OFFSETS, "rows * stride_m + j * B_n + (cols - j * B_n) * stride_n")),
    Mistake("tile_stride", "within a tile the rows were taken to lie B_n elements apart", "rows inside a tile",
            (OFFSETS, "i * B_m * (stride_m - B_n) + j * B_n * (stride_n - 1) + rows * B_n + cols")),
    Mistake("M_and_N_swapped", "rows were compared with N and columns with M", "which size limits the rows", (INSIDE,
             "(rows < N) & (cols < M)")),
    Mistake("off_by_one", "one row and one column too many counted as inside", "the number of the last row", (INSIDE,
             "(rows <= M) & (cols <= N)")),
    Mistake("or_for_and", "an element counted as inside if only its row or only its column was",
            "how the two conditions are joined", (INSIDE, "(rows < M) | (cols < N)")),
    Mistake("guard_of_offsets", "inside was decided by the offset, not by row and column",
            "an element just past the end of a row", (INSIDE, "offsets < M * N")),
    Mistake("clamped_at_the_edge", "rows and columns outside got the offset of the last one inside", "offsets outside",
            (OFFSETS, "rows.clamp(max=M - 1) * stride_m + cols.clamp(max=N - 1) * stride_n")),
    Mistake("outside_set_to_0", "offsets outside the matrix were set to 0",
            "the offsets that the stub asks for outside", ("return offsets", "return torch.where(inside, offsets, 0)")),
    Mistake("in_int32", "the offsets were computed in 32 bits and overflowed", "the dtype of rows and cols", (OFFSETS,
             "(rows.int() * stride_m + cols.int() * stride_n).long()")),
]
hints = ["Number the tile's rows and columns within the whole matrix first.",
         "A (B_m, 1) tensor and a (1, B_n) tensor broadcast to (B_m, B_n) when they are added.",
         "The mask needs only the row and column numbers, not the offsets."]
