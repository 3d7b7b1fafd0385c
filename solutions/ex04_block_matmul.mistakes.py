"""Cases and mistakes of ex04_block_matmul."""

import torch

from flashlab.memory import KiB, kernel
from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def call(fn, A, B, B_m, B_n, B_k):
    C = torch.empty(A.shape[0], B.shape[1], dtype=A.dtype)
    with kernel("block_matmul", A=A, B=B, C=C):
        fn(A, B, C, B_m, B_n, B_k)
    return C


def case(name, M, K, N, B_m, B_k, B_n, *, seed, dtype=torch.float32, features=()):
    def make():
        A, B = normal(M, K, seed=seed, dtype=dtype), normal(K, N, seed=seed + 1, dtype=dtype)
        if dtype == torch.float16:             # the sum passes 80000, more than 16 bits can hold, and comes back
            A[:, :16], A[:, 16:32], B[:32] = 100, -100, 50
        if dtype == torch.bfloat16:            # products of 20000, which 8 bits know to 64, and their sum is some 300
            A[:, :12], A[:, 12:], B = 100.5, -100, B / 2 + 50
        return {"A": A, "B": B, "B_m": B_m, "B_n": B_n, "B_k": B_k}

    holds = {"more than one tile of C": M > B_m or N > B_n, "more than one term in the sum": K > B_k,
             "short last tiles": any(size % block for size, block in ((M, B_m), (K, B_k), (N, B_n))),
             "tiles that are not square": not B_m == B_k == B_n, "16-bit inputs": dtype != torch.float32}
    sizes = {"M": M, "K": K, "N": N, "B_m": B_m, "B_k": B_k, "B_n": B_n}
    return Case(name, make, frozenset([*features, *(f for f, true in holds.items() if true)]), sizes)


def sram_bytes(A, B, B_m, B_n, B_k):
    """Room for some tiles, none for a whole panel of rows or columns, nor for all tiles of a row of C."""
    return 4 * (3 * B_m * B_k + 3 * B_k * B_n + 4 * B_m * B_n) if max(A.shape[1], B.shape[1]) > 30 else 64 * KiB


EXERCISE = Exercise(
    function="block_matmul",
    outputs=(Output("C", ("row", "column")),),
    call=call,
    truth=lambda A, B, B_m, B_n, B_k: A.double() @ B.double(),
    sram_bytes=sram_bytes,
    fewer=lambda A, B, B_m, B_n, B_k: A.shape[0] > B_m or B.shape[1] > B_n,        # tiles that are kept for the next tile of C
    most=lambda A, B, B_m, B_n, B_k: {"A": B_m * B_k, "B": B_k * B_n},
    cases=[
        case("one tile", 2, 2, 2, 2, 2, 2, seed=500),
        case("two terms in the sum", 2, 4, 2, 2, 2, 2, seed=502),
        case("four tiles of C", 4, 2, 4, 2, 2, 2, seed=504),
        case("square, all of it", 4, 4, 4, 2, 2, 2, seed=506),
        case("three different sizes", 6, 8, 12, 2, 4, 3, seed=508),
        case("short last tiles", 5, 7, 4, 2, 3, 3, seed=510),
        case("16-bit inputs", 4, 64, 4, 4, 4, 4, seed=512, dtype=torch.float16, features=["an SRAM too small for a whole row of tiles"]),
        case("one row, one column", 1, 5, 1, 2, 2, 2, seed=514),
        case("small steps along the sum", 8, 6, 6, 4, 2, 3, seed=518),
        case("many tiles across", 2, 4, 40, 2, 2, 2, seed=520, features=["an SRAM too small for a whole row of tiles"]),
        case("16-bit inputs with many digits", 4, 24, 4, 4, 4, 4, seed=516, dtype=torch.bfloat16),
    ],
    mistakes=[
        Mistake("overwritten", "each product replaced the sum so far, so that only the last one was left",
                "the sum over inner: each product is added to those before it", ("C_tile = C_tile + A_tile @ B_tile", "C_tile = A_tile @ B_tile")),
        Mistake("not_reset", "the sum was not set back to 0 for the next tile of C", "each tile of C: its sum starts at 0", ("for rows in tiles(A.shape[0], "
                 "B_m):\n        for cols in tiles(B.shape[1], B_n):\n            C_tile = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)",
                 "total = torch.zeros(B_m, B_n)\n    for rows in tiles(A.shape[0], B_m):\n        for cols in tiles(B.shape[1], B_n):\n"
                 "            C_tile = total[: rows.stop - rows.start, : cols.stop - cols.start]"), ("store(C, rows, C_tile, cols)",
                 "store(C, rows, C_tile, cols)\n            total = torch.nn.functional.pad(C_tile, (0, B_n - C_tile.shape[1], 0, B_m - C_tile.shape[0]))")),
        Mistake("tail_dropped", "the last, short tiles were never visited",
                "the tiles: ⌈M / B_m⌉ by ⌈N / B_n⌉ of C and ⌈K / B_k⌉ steps of the sum, the last ones short",
                ("tiles(A.shape[0], B_m)", "tiles(A.shape[0] // B_m * B_m, B_m)"), ("tiles(B.shape[1], B_n)", "tiles(B.shape[1] // B_n * B_n, B_n)"),
                ("tiles(A.shape[1], B_k)", "tiles(A.shape[1] // B_k * B_k, B_k)")),
        Mistake("sum_tail_dropped", "the last, short step of the sum was left out", "the sum over inner: ⌈K / B_k⌉ steps, the last one short",
                ("tiles(A.shape[1], B_k)", "tiles(A.shape[1] // B_k * B_k, B_k)")),
        Mistake("same_block_twice", "A's tile was taken at [rows, cols], as if the inner dimension were that of C's columns",
                "the indices: A[rows, inner], B[inner, cols]", ("load(A, rows, inner)", "load(A, rows, cols)")),
        Mistake("summed_in_16_bits", "the sum was kept in 16 bits", "the dtype of the sum: float32 in every step, whatever A and B are",
                ("C_tile + A_tile @ B_tile", "(C_tile + A_tile @ B_tile).to(A.dtype).float()"),
                also=[[("C_tile + A_tile @ B_tile", "(C_tile + (A_tile @ B_tile).to(A.dtype)).to(A.dtype).float()")]]),
        Mistake("whole_panels", "a whole row of A's tiles and a whole column of B's were loaded at once",
                "the size of what you load: B_m x B_k and B_k x B_n", ("tiles(A.shape[1], B_k)", "tiles(A.shape[1], A.shape[1])")),
        Mistake("not_reset_in_a_row", "the sum was set back to 0 for each row of tiles, not for each tile of C",
                "each tile of C: its sum starts at 0, within a row of tiles, too",
                ("C_tile = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)",
                 "C_tile = torch.zeros(rows.stop - rows.start, B.shape[1])[:, cols] if cols.start == 0 else C_tile[:, : cols.stop - cols.start]"),
                also=[[("C_tile = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)",
                        f"C_tile = torch.zeros(rows.stop - rows.start, cols.stop - cols.start) if cols.start == 0 else C_tile{part}")]
                      for part in ("", "[:, : cols.stop - cols.start]")]),
        Mistake("inner_over_N", "the sum ran over N, the columns of B, not over K", "inner: it cuts A's columns and B's rows, K of them",
                ("tiles(A.shape[1], B_k)", "tiles(min(B.shape[1], A.shape[1]), B_k)"), also=[[("tiles(A.shape[1], B_k)", "tiles(B.shape[1], B_k)")]]),
        Mistake("inner_over_M", "the sum ran over M, the rows of A, not over K", "inner: it cuts A's columns and B's rows, K of them",
                ("tiles(A.shape[1], B_k)", "tiles(min(A.shape[0], A.shape[1]), B_k)"), also=[[("tiles(A.shape[1], B_k)", "tiles(A.shape[0], B_k)")]]),
        Mistake("sum_cut_by_another_size", "the sum was cut into steps of B_n or of B_m", "the steps along the sum: at most B_k each",
                ("tiles(A.shape[1], B_k)", "tiles(A.shape[1], B_n)"), also=[[("tiles(A.shape[1], B_k)", "tiles(A.shape[1], B_m)")]]),
        Mistake("B_k_and_B_n_swapped", "the columns of B were cut with B_k and the sum with B_n", "what each size cuts: B_n the columns of C, B_k the sum",
                ("tiles(B.shape[1], B_n)", "tiles(B.shape[1], B_k)"), ("tiles(A.shape[1], B_k)", "tiles(A.shape[1], B_n)")),
        Mistake("product_in_16_bits", "the tiles were multiplied as 16-bit numbers, and the product turned into float32 afterwards",
                "each load: `.float()` before the product", ("A_tile @ B_tile", "(A_tile.to(A.dtype) @ B_tile.to(B.dtype)).float()")),
        Mistake("diagonal_only", "only the tiles on the diagonal of C were made", "the tiles of C: every rows with every cols",
                ("store(C, rows, C_tile, cols)", "store(C, rows, C_tile if rows.start // B_m == cols.start // B_n else C_tile * 0, cols)"),
                also=[[("for rows in tiles(A.shape[0], B_m):\n        for cols in tiles(B.shape[1], B_n):",
                        "for rows, cols in zip(tiles(A.shape[0], B_m), tiles(B.shape[1], B_n)):\n        if True:")]]),
        Mistake("added_to_C", "the sum began with what C held", "each tile of C: its sum starts at 0, whatever C held",
                ("C_tile = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)", "C_tile = load(C, rows, cols).float()")),
    ],
    hints=[
        "for rows in tiles(M, B_m): for cols in tiles(N, B_n): one tile of C. The sum starts at 0 here.",
        "for inner in tiles(K, B_k): load(A, rows, inner).float() @ load(B, inner, cols).float() is one term.",
        "The last tile is short: its shape is (rows.stop - rows.start, cols.stop - cols.start).",
    ],
)
