import torch

from flashlab.memory import KiB, kernel
from flashlab_course.check.cases import Mistake, case_of, normal

ZEROS = "C_tile = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)"
ROWS, COLS, INNER = "tiles(A.shape[0], B_m)", "tiles(B.shape[1], B_n)", "tiles(A.shape[1], B_k)"

outputs = [("C", "row", "column")]
# room for some tiles, none for a whole panel of rows or columns, nor for all tiles of a row of C
sram_bytes = lambda A, B, B_m, B_n, B_k: (4 * (3 * B_m * B_k + 3 * B_k * B_n + 4 * B_m * B_n)
                                          if max(A.shape[1], B.shape[1]) > 30 else 64 * KiB)
truth = lambda A, B, B_m, B_n, B_k: A.double() @ B.double()
fewer = lambda A, B, B_m, B_n, B_k: A.shape[0] > B_m or B.shape[1] > B_n     # tiles kept for the next tile of C
most = lambda A, B, B_m, B_n, B_k: {"A": B_m * B_k, "B": B_k * B_n}
features = {"short last tiles": lambda M, K, N, B_m, B_k, B_n: M % B_m or K % B_k or N % B_n,
            "more than one tile of C": lambda M, N, B_m, B_n: M > B_m or N > B_n}


def call(fn, A, B, B_m, B_n, B_k):
    C = torch.empty(A.shape[0], B.shape[1], dtype=A.dtype)
    with kernel("block_matmul", A=A, B=B, C=C):
        fn(A, B, C, B_m, B_n, B_k)
    return C


@case_of
def case(M, K, N, B_m, B_k, B_n, *, seed, dtype=torch.float32):
    A, B = normal(M, K, seed=seed, dtype=dtype), normal(K, N, seed=seed + 1, dtype=dtype)
    if dtype == torch.float16:             # the sum passes 80000, more than 16 bits can hold, and comes back
        A[:, :16], A[:, 16:32], B[:32] = 100, -100, 50
    if dtype == torch.bfloat16:            # products of 20000, which 8 bits know to 64, and their sum is some 300
        A[:, :12], A[:, 12:], B = 100.5, -100, B / 2 + 50
    return {"A": A, "B": B, "B_m": B_m, "B_n": B_n, "B_k": B_k}


cases = [case("one tile", 3, 4, 5, 3, 4, 5, seed=500),
         case("two terms in the sum", 4, 2, 3, 4, 1, 3, seed=502),
         case("four tiles of C", 8, 3, 10, 4, 3, 5, seed=504),
         case("short last tiles", 5, 7, 4, 2, 3, 3, seed=510),
         case("16-bit inputs", 4, 64, 4, 4, 4, 4, seed=512, dtype=torch.float16),
         case("one row, one column", 1, 5, 1, 2, 2, 2, seed=514),
         case("many tiles across", 2, 4, 40, 2, 2, 2, seed=520),
         case("16-bit inputs with many digits", 4, 24, 4, 4, 4, 4, seed=516, dtype=torch.bfloat16)]
mistakes = [
    Mistake("overwritten", "each product replaced the sum so far", "what a step does with the earlier products",
            ("C_tile = C_tile + A_tile @ B_tile", "C_tile = A_tile @ B_tile")),
    Mistake("not_reset_in_a_row", "the sum was set to 0 once for a row of tiles, not for each tile of C",
            "where the sum starts at 0", (ZEROS, f"if cols.start == 0:\n                {ZEROS}")),
    Mistake("added_to_C", "the sum started from what C held", "the value of a sum before its first term", (ZEROS,
             "C_tile = load(C, rows, cols).float()")),
    Mistake("tail_dropped", "the short last tiles were never visited", "the number of tiles, in all three loops", (ROWS,
             "tiles(A.shape[0] // B_m * B_m, B_m)"), (COLS, "tiles(B.shape[1] // B_n * B_n, B_n)"), (INNER,
             "tiles(A.shape[1] // B_k * B_k, B_k)")),
    Mistake("sum_tail_dropped", "the short last step of the sum was left out", "the number of steps along the sum",
            (INNER, "tiles(A.shape[1] // B_k * B_k, B_k)")),
    Mistake("diagonal_only", "rows and cols went together: only diagonal tiles were made", "which rows meet which cols",
            (f"for rows in {ROWS}:\n        for cols in {COLS}:",
             f"for rows, cols in zip({ROWS}, {COLS}):\n        if True:")),
    Mistake("inner_over_another_size", "the sum ran over M or N, not over K", "the length of the sum", (INNER,
             "tiles(B.shape[1], B_k)"), also=[[(INNER, "tiles(A.shape[0], B_k)")]]),
    Mistake("sum_cut_by_another_size", "the steps along the sum were B_n or B_m long", "the size of such a step",
            (INNER, "tiles(A.shape[1], B_n)"), also=[[(INNER, "tiles(A.shape[1], B_m)")]]),
    Mistake("B_k_and_B_n_swapped", "B_k and B_n had changed places", "what each of the two sizes cuts", (COLS,
             "tiles(B.shape[1], B_k)"), (INNER, "tiles(A.shape[1], B_n)")),
    Mistake("whole_panels", "the tiles of A and B held the whole sum at once", "the size of what is loaded", (INNER,
             "tiles(A.shape[1], A.shape[1])")),
    Mistake("summed_in_16_bits", "the sum was kept in 16 bits", "the dtype of the sum in each step",
            ("C_tile + A_tile @ B_tile", "(C_tile + A_tile @ B_tile).to(A.dtype).float()")),
    Mistake("product_in_16_bits", "the tiles were multiplied in 16 bits and became float32 afterwards",
            "the dtype of the two tiles", ("A_tile @ B_tile", "(A_tile.to(A.dtype) @ B_tile.to(B.dtype)).float()")),
]
hints = ["Two loops go over the tiles of C, and the third over the terms of one tile's sum, which starts at 0.",
         "A's tile has the rows of C's tile, B's tile its columns. They share the third slice.",
         "The last tile is short: take its shape from the slices, not from the block sizes."]
