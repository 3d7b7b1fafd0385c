"""Cases and mistakes of ex09_matmul."""

import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import apart, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, M, N, K, B_m=16, B_n=16, B_k=16, dtype=torch.float32, *, steps=(1, 1, 1), cancelling=False, seed):
    """cancelling: products of 1e6, more than float16 holds, of which the second step takes away all but a few hundred."""
    features = {"more than one tile down": M > B_m, "more than one tile across": N > B_n, "more than one step along k": K > B_k, "a short last tile down": M % B_m != 0,
                "a short last tile across": N % B_n != 0,
                "a short last step along k": K % B_k != 0, "16-bit inputs": dtype == torch.float16, "tiles that are not square": len({B_m, B_n, B_k}) > 1,
                "columns that are apart": steps != (1, 1, 1)}

    def make():
        A, B = normal(M, K, seed=seed, dtype=dtype), normal(K, N, seed=seed + 1, dtype=dtype)
        if dtype == torch.float16:                     # 2048 in the first step; then 49 times 0.8, less than half a step of float16 there
            A, B = torch.full_like(A, 0.05), torch.ones_like(B)
            A[:, :16] = 128
        if cancelling:
            A, B = (1 + torch.arange(M * K).view(M, K) % 7).to(dtype) * 50, (1 + torch.arange(K * N).view(K, N) % 5).to(dtype) * 50
            A[:, 16:], B[16:] = 1 - A[:, :16], B[:16]
        A, B, C = map(apart, (A, B, torch.zeros(M, N, dtype=dtype)), steps)
        return {"A": A, "B": B, "C": C, "B_m": B_m, "B_n": B_n, "B_k": B_k}

    return Case(name, make, frozenset(f for f, true in features.items() if true), {"M": M, "N": N, "K": K, "B_m": B_m, "B_n": B_n, "B_k": B_k})


def traffic(A, B, C, B_m, B_n, B_k):
    tiles_down, tiles_across = -(-len(A) // B_m), -(-B.shape[1] // B_n)
    return {"A": (tiles_across * A.numel(), 0), "B": (tiles_down * B.numel(), 0), "C": (0, C.numel())}


A_MASK, B_MASK, C_MASK = "(rows < M) & (inner[None, :] < K), 0.0", "(inner[:, None] < K) & (cols < N), 0.0", "acc.to(C.dtype.element_ty), (rows < M) & (cols < N)"
ROWS, COLS = "(tl.program_id(0) * B_m + tl.arange(0, B_m))", "(tl.program_id(1) * B_n + tl.arange(0, B_n))"
GRID, DOT = "(triton.cdiv(M, B_m), triton.cdiv(N, B_n))", 'acc = tl.dot(a, b, acc, input_precision="ieee")'

A_ROW_MAJOR = ("rows * stride_Am + inner[None, :] * stride_Ak", "rows * K + inner[None, :]")
B_ROW_MAJOR = ("inner[:, None] * stride_Bk + cols * stride_Bn", "inner[:, None] * N + cols")
C_ROW_MAJOR = ("rows * stride_Cm + cols * stride_Cn", "rows * N + cols")

EXERCISE = Exercise(
    function="matmul",
    outputs=(Output("C", ("row", "column")),),
    truth=lambda A, B, C, B_m, B_n, B_k: (A.double() @ B.double(),),
    reads=("A", "B"),
    writes=("C",),
    after=[compiled.narrow("int32_offset")],
    seconds=8,
    traffic=traffic,
    most=lambda A, B, C, B_m, B_n, B_k: {"A": B_m * B_k, "B": B_k * B_n},
    cases=[
        case("one tile", 16, 16, 16, seed=1000),
        case("two steps along k", 16, 16, 32, seed=1002),
        case("two tiles down", 32, 16, 16, seed=1004),
        case("two tiles across", 16, 32, 16, seed=1006),
        case("a short last step along k", 16, 16, 21, seed=1008),
        case("a short last tile down", 21, 16, 16, seed=1010),
        case("a short last tile across", 16, 27, 16, seed=1016),
        case("many steps along k", 16, 16, 300, seed=1024),
        case("everything at once", 37, 150, 41, 32, 64, 16, seed=1012),
        case("a long sum of 16-bit numbers", 16, 16, 800, dtype=torch.float16, seed=1014),
        case("products beyond float16", 16, 16, 32, dtype=torch.float16, cancelling=True, seed=1022),
        case("K less than a step", 16, 16, 5, seed=1018),
        case("columns that are apart", 16, 16, 16, steps=(2, 3, 4), seed=1020),
    ],
    mistakes=[
        Mistake("tf32", "tl.dot was called without input_precision=\"ieee\": a GPU rounds float32 to TF32 then, which the interpreter does not show",
                "every tl.dot: input_precision=\"ieee\"", (', input_precision="ieee"', "")),
        Mistake("not_accumulated", "each step along k replaced the sum instead of adding to it", "acc: a step adds its product to what the steps before have left",
                (DOT, 'acc = tl.dot(a, b, input_precision="ieee")')),
        Mistake("steps_floor", "the steps along k were rounded down, so the short last one was never made", "the steps along k: ⌈K / B_k⌉, tl.cdiv",
                ("tl.cdiv(K, B_k)", "max(1, K // B_k)"), also=[[("tl.cdiv(K, B_k)", "K // B_k")]]),
        Mistake("no_guard_k", "columns of A and rows of B beyond K were not masked: foreign numbers came into the sum",
                "the masks of the loads: A's columns and B's rows against K", (A_MASK, "rows < M, 0.0"), (B_MASK, "cols < N, 0.0")),
        Mistake("grid_swapped", "the grid and the kernel counted tiles in different orders: one down first, the other across first",
                "program_id(0) counts tiles down, program_id(1) across, and the grid is (⌈M / B_m⌉, ⌈N / B_n⌉)",
                (GRID, "(triton.cdiv(N, B_n), triton.cdiv(M, B_m))")),
        Mistake("strides_of_B_swapped", "the two strides of B were swapped", "stride_Bk passes from one row of B to the next",
                ("inner[:, None] * stride_Bk + cols * stride_Bn", "inner[:, None] * stride_Bn + cols * stride_Bk")),
        Mistake("column_stride_1", "neighbouring columns were taken to lie next to each other: a stride of A, B or C was not used",
                "the addresses: columns are stride_Ak, stride_Bn and stride_Cn apart", ("inner[None, :] * stride_Ak", "inner[None, :]"),
                ("+ cols * stride_Bn", "+ cols"), ("+ cols * stride_Cn", "+ cols"), also=
                     [[("inner[None, :] * stride_Ak", "inner[None, :]")]]),
        Mistake("rest_counted_in_blocks", "what is left of K was counted wrongly: the masks along k shut too early, or too late",
                "the masks along k: step k has the columns k · B_k + 0, 1, …, as far as they lie below K",
                ("(rows < M) & (inner[None, :] < K)", "(rows < M) & (tl.arange(0, B_k)[None, :] < K - k * B_k * B_k)"),
                ("(inner[:, None] < K) & (cols < N)", "(tl.arange(0, B_k)[:, None] < K - k * B_k * B_k) & (cols < N)")),
        Mistake("mask_stays_behind", "the mask over k did not move on with the tiles: the last step read past the end of A and B",
                "the mask over k: the numbers of this step, k · B_k + 0, 1, …, against K, in A's columns and B's rows",
                ("(rows < M) & (inner[None, :] < K)", "(rows < M) & (tl.arange(0, B_k)[None, :] < K)"),
                ("(inner[:, None] < K) & (cols < N)", "(tl.arange(0, B_k)[:, None] < K) & (cols < N)")),
        Mistake("sum_in_16_bits", "the sum was kept in the inputs' dtype: in 16 bits every step rounds it", "acc: tl.float32, cast once at the end",
                ("acc = tl.zeros((B_m, B_n), tl.float32)", "acc = tl.zeros((B_m, B_n), C.dtype.element_ty)"),
                (DOT, 'acc += tl.dot(a, b, input_precision="ieee").to(C.dtype.element_ty)')),
        Mistake("products_in_16_bits", "each product of two tiles was rounded to the inputs' dtype before it was added",
                "the products: float32 as the sum is, which alone is rounded, once",
                (DOT, 'acc += tl.dot(a, b, input_precision="ieee").to(a.dtype).to(tl.float32)')),
        Mistake("int32_offset", "row or column numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
                "row and column numbers, those along k too: `.to(tl.int64)` before they meet a stride", (ROWS + ".to(tl.int64)", ROWS),
                (COLS + ".to(tl.int64)", COLS), ("(k * B_k + tl.arange(0, B_k)).to(tl.int64)", "(k * B_k + tl.arange(0, B_k))")),
        Mistake("B_moved_across", "B was walked across its columns, by B_k · stride_Bn in each step, not down its rows",
                "the rows of B: a step along k is B_k · stride_Bk",
                ("inner[:, None] * stride_Bk", "(inner - k * B_k)[:, None] * stride_Bk + k * B_k * stride_Bn")),
        Mistake("no_guard_k_in_B", "rows of B beyond K were not masked: 0 in A does not help against a NaN", "the mask of the load of B: row < K and column < N",
                (B_MASK, "cols < N, 0.0"), stray=True),
        Mistake("row_major", "a tensor was addressed by row · width + column, as if it were contiguous", "the addresses: each tensor has two strides of its own",
                C_ROW_MAJOR, also=[[A_ROW_MAJOR]]),
        ],
    hints=[
        "rows = tl.program_id(0) * B_m + tl.arange(0, B_m) and cols likewise; inner = k * B_k + tl.arange(0, B_k) changes in the loop.",
        "a = tl.load(A + rows[:, None] * stride_Am + inner[None, :] * stride_Ak, (rows[:, None] < M) & (inner[None, :] < K), 0.0).",
        "acc starts as tl.zeros((B_m, B_n), tl.float32); after the loop it is stored once, with the mask rows < M and cols < N.",
        "One step along k is right. Which index moves with k, in A's columns and in B's rows, and what becomes of acc at the end of a step?",
        "Only a short last step along k fails: there are fewer than B_k numbers left. How many steps are there, and what do the loads bring for the rest?",
        "Only 16-bit inputs fail: in which dtype is acc, and where is it rounded to C's?",
        "Only columns that are apart fail: which addresses leave out a stride?",
    ],
)
