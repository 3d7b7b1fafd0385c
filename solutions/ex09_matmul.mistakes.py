import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import Mistake, case_of, normal, spread

A_ROWS, A_INNER, B_INNER = "rows * stride_Am", "inner[None, :] * stride_Ak", "inner[:, None] * stride_Bk"
A_MASK, B_MASK = "(rows < M) & (inner[None, :] < K)", "(inner[:, None] < K) & (cols < N)"
ROWS, COLS = "(tl.program_id(0) * B_m + tl.arange(0, B_m))", "(tl.program_id(1) * B_n + tl.arange(0, B_n))"
STEP, PRODUCT = "(k * B_k + tl.arange(0, B_k))", 'tl.dot(a, b, input_precision="ieee")'
DOT, GRID = 'acc = tl.dot(a, b, acc, input_precision="ieee")', "(triton.cdiv(M, B_m), triton.cdiv(N, B_n))"
FIRST, C_AT = "tl.arange(0, B_k)", "rows * stride_Cm + cols * stride_Cn"

outputs = [("C", "row", "column")]
truth = lambda A, B, **rest: A.double() @ B.double()
reads, writes = ("A", "B"), ("C",)
after = [compiled.narrow("int32_offset")]
seconds = 8
most = lambda A, B, C, B_m, B_n, B_k: {"A": B_m * B_k, "B": B_k * B_n}
features = {"more than one step along k": lambda K, B_k: K > B_k, "a short last step along k": lambda K, B_k: K % B_k}
traffic = lambda A, B, C, B_m, B_n, B_k: {"A": (-(-B.shape[1] // B_n) * A.numel(), 0),
                                          "B": (-(-len(A) // B_m) * B.numel(), 0), "C": (0, C.numel())}


@case_of
def case(M, N, K, B_m=16, B_n=16, B_k=16, *, dtype=torch.float32, cancelling=False, seed):
    """cancelling: products of 1e6, beyond float16, of which the second step leaves a few hundred."""
    A, B = normal(M, K, seed=seed, dtype=dtype), normal(K, N, seed=seed + 1, dtype=dtype)
    if dtype == torch.float16:             # 2048, then 49 times 0.8: less than half a step of float16 there
        A, B = torch.full_like(A, 0.05), torch.ones_like(B)
        A[:, :16] = 128
    if cancelling:
        A = (1 + torch.arange(M * K).view(M, K) % 7).to(dtype) * 50
        B = (1 + torch.arange(K * N).view(K, N) % 5).to(dtype) * 50
        A[:, 16:], B[16:] = 1 - A[:, :16], B[:16]
    return {"A": A, "B": B, "C": torch.zeros(M, N, dtype=dtype), "B_m": B_m, "B_n": B_n, "B_k": B_k}


cases = [case("one tile", 16, 16, 16, seed=1000),
         case("two steps along k", 16, 16, 32, seed=1002),
         case("two tiles down", 32, 16, 16, seed=1004),
         case("two tiles across", 16, 32, 16, seed=1006),
         case("a short last step along k", 16, 16, 21, seed=1008),
         case("a short last tile down", 21, 16, 16, seed=1010),
         case("a short last tile across", 16, 27, 16, seed=1016),
         case("everything at once", 37, 150, 41, 32, 64, 16, seed=1012),
         case("a long sum of 16-bit numbers", 16, 16, 800, dtype=torch.float16, seed=1014),
         case("products beyond float16", 16, 16, 32, dtype=torch.float16, cancelling=True, seed=1022),
         case("K less than a step", 16, 16, 5, seed=1018),
         spread(case("columns that are apart", 16, 16, 16, seed=1020))]
mistakes = [
    Mistake("tf32", "tl.dot was called without input_precision, so a GPU rounds float32 to TF32",
            "the arguments of tl.dot: the interpreter does not show the rounding", (', input_precision="ieee"', "")),
    Mistake("not_accumulated", "each step along k replaced the sum instead of adding to it",
            "what a step does with acc", (DOT, f"acc = {PRODUCT}")),
    Mistake("steps_floor", "the number of steps along k was rounded down, so the short last one was lost",
            "the number of steps where B_k does not divide K", ("tl.cdiv(K, B_k)", "K // B_k")),
    Mistake("no_guard_k", "columns of A and rows of B beyond K were not masked",
            "the masks of the two loads in a short last step", (A_MASK, "rows < M"), (B_MASK, "cols < N")),
    Mistake("no_guard_k_in_B", "rows of B beyond K were not masked; 0 times a NaN there is NaN",
            "the mask of B's load in a short last step", (B_MASK, "cols < N"), stray=True),
    Mistake("mask_stays_behind", "the masks along k stayed at the first step's numbers", "the masks in a later step",
            (A_MASK, A_MASK.replace("inner", FIRST)), (B_MASK, B_MASK.replace("inner", FIRST))),
    Mistake("rest_counted_in_blocks", "the rest of K was counted wrongly: k · B_k · B_k was taken off",
            "how much of K is left in step k",
            *((mask, mask.replace("inner", FIRST).replace("K)", "K - k * B_k * B_k)")) for mask in (A_MASK, B_MASK))),
    Mistake("grid_swapped", "the grid's two numbers were swapped", "the order of the grid and of program_id", (GRID,
             "(triton.cdiv(N, B_n), triton.cdiv(M, B_m))")),
    Mistake("grid_floor", "the grid was rounded down, so short last tiles of C got no program",
            "the grid where tiles stick out", (GRID, "(max(1, M // B_m), max(1, N // B_n))")),
    Mistake("strides_of_B_swapped", "the two strides of B were swapped", "what each stride of B passes over",
            (B_INNER + " + cols * stride_Bn", "inner[:, None] * stride_Bn + cols * stride_Bk")),
    Mistake("B_moved_across", "B was walked across its columns, not down its rows", "where k moves B's tile", (B_INNER,
             f"{FIRST}[:, None] * stride_Bk + k * B_k * stride_Bn")),
    Mistake("column_stride_1", "columns were taken to lie next to each other", "the last strides", (A_INNER,
             "inner[None, :]"), ("+ cols * stride_Bn", "+ cols"), ("+ cols * stride_Cn", "+ cols"),
            also=[[(A_INNER, "inner[None, :]")]]),
    Mistake("row_major", "a tensor was addressed by row · width + column", "addresses with a size in place of a stride",
            (C_AT, "rows * N + cols"), also=[[(f"{A_ROWS} + {A_INNER}", "rows * K + inner[None, :]")]]),
    Mistake("sum_in_16_bits", "the sum was kept in the inputs' dtype: every step rounded it", "the dtype of acc",
            ("(B_m, B_n), tl.float32", "(B_m, B_n), C.dtype.element_ty"), (DOT,
             f"acc += {PRODUCT}.to(C.dtype.element_ty)")),
    Mistake("acc_in_16_bits", "the sum is float16, but tl.dot adds in float32", "the dtype of acc",
            ("(B_m, B_n), tl.float32", "(B_m, B_n), C.dtype.element_ty")),
    Mistake("products_in_16_bits", "each product was rounded to the inputs' dtype before it was added",
            "the dtype of what is added to acc", (DOT, f"acc += {PRODUCT}.to(a.dtype).to(tl.float32)")),
    Mistake("int32_offset", "row or column numbers met strides in 32 bits, which overflows beyond 2³¹ elements",
            "their dtype, along k too", *((f"{numbers}.to(tl.int64)", numbers) for numbers in (ROWS, COLS, STEP))),
]
hints = ["Write a single step along k first. Which numbers change with k, and which belong to the tile of C?",
         "A short last step has fewer than B_k numbers. How many steps are there, and what do the loads bring beyond "
         "K?",
         "The sum lives through all steps. In which dtype is it, and where is it rounded?"]
