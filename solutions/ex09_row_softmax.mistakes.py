"""Cases and mistakes of ex09_row_softmax."""

import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import EPSILONS, apart, epsilon, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, M, N, dtype=torch.float32, factor=1.0, shift=0.0, *, units=16, steps=(1, 1), seed):
    features = {"more than one row": M > 1, "a row that is no power of two": N & (N - 1) != 0, "large numbers": factor > 20, "only negative numbers": shift < 0,
                "16-bit inputs": dtype == torch.float16, "columns that are apart": steps != (1, 1)}
    inputs = lambda: {"X": apart((normal(M, N, seed=seed, factor=factor) + shift).to(dtype), steps[0]), "Y": apart(torch.zeros(M, N, dtype=dtype), steps[1])}
    return Case(name, inputs, frozenset(f for f, true in features.items() if true), {"M": M, "N": N}, 1e-4 if factor > 20 or shift < -100 else 0.0, units)


X_AT, Y_AT = "X + row * stride_Xm + cols * stride_Xn", "Y + row * stride_Ym + cols * stride_Yn"

EXERCISE = Exercise(
    function="row_softmax",
    outputs=(Output("Y", ("row", "column")),),
    truth=lambda X, Y: (torch.softmax(X.double(), 1),),
    reads=("X",),
    writes=("Y",),
    after=[compiled.narrow("int32_offset")],
    seconds=6,
    without=("softmax",),
    traffic=lambda X, Y: {"X": (X.numel(), 0), "Y": (0, X.numel())},
    cases=[
        case("one row", 1, 8, seed=980),
        case("three rows", 3, 8, seed=981),
        case("a row of 11", 2, 11, seed=982),
        case("rows of negative numbers", 3, 21, shift=-6.0, seed=983),
        case("large numbers", 3, 19, factor=60.0, seed=984),
        case("16-bit inputs", 4, 100, torch.float16, seed=985),
        case("one number in each row", 3, 1, units=4, seed=986),        # exp(0) / exp(0): exact
        case("numbers up to 500", 2, 12, factor=200.0, seed=987),
        case("a long row", 1, 1100, seed=994),
        case("numbers around −997", 3, 11, shift=-997.0, factor=0.5, seed=992),
        case("numbers far below 0", 3, 12, shift=-900.0, seed=988),
        case("columns that are apart", 3, 10, steps=(2, 3), seed=989),
    ],
    mistakes=[
        epsilon(("e / tl.sum(e, 0)", "e / (tl.sum(e, 0) + ε)"), sizes=EPSILONS[:4], look=
                     "the denominator: sum of exp(X[row] − max), which is at least 1 and needs no ε"),
        Mistake("padded_with_0", "the padding counted as 0 in the maximum and in the sum",
                "the padding: −inf, which is never the maximum and whose exponential adds 0", ('cols < N, -float("inf")', "cols < N, 0.0")),
        Mistake("padding_not_masked", "no mask kept the load within the row: what lies behind it took part", "the mask of tl.load: column < N",
                (', cols < N, -float("inf"))', ")")),
        Mistake("no_guard_store", "no mask kept the store within the row: it wrote past the end", "the mask of tl.store: column < N", ("y, cols < N)", "y)")),
        Mistake("guard_off_by_one", "the masks let one column too many through: ≤ for <", "the last column is N − 1, so column < N",
                ('cols < N, -float("inf")', 'cols <= N, -float("inf")'), ("y, cols < N)", "y, cols <= N)")),
        Mistake("unshifted", "the numbers went into exp without their maximum being subtracted", "the exponent, X[row] − max: float32 overflows at exp(89)",
                ("x - tl.max(x, 0)", "x")),
        Mistake("divided_by_max", "the maximum was divided out, not subtracted", "the exponent: X[row] − max", ("x - tl.max(x, 0)", "x / tl.max(x, 0)")),
        Mistake("not_divided", "the exponentials were stored without being divided by their sum", "the weights of a row sum to 1",
                ("y = e / tl.sum(e, 0)", "y = e")),
        Mistake("stride_of_X_for_Y", "Y was addressed with the strides of X", "the strides: each tensor has its own",
                (Y_AT, "Y + row * stride_Xm + cols * stride_Xn")),
        Mistake("column_stride_1", "neighbouring columns were taken to lie next to each other: stride_Xn or stride_Yn was not used",
                "the addresses: columns are stride_Xn apart in X, stride_Yn in Y", (X_AT, "X + row * stride_Xm + cols"), (Y_AT, "Y + row * stride_Ym + cols"),
                also=[[(X_AT, "X + row * stride_Xm + cols")]]),
        Mistake("power_below", "B was the largest power of two up to N, so that a row of any other length lost its end", "B ≥ N: triton.next_power_of_2(N)",
                ("triton.next_power_of_2(N)", "triton.next_power_of_2(N + 1) // 2")),
        Mistake("int32_offset", "the row number was multiplied by a stride in 32 bits, which overflows beyond 2³¹ elements",
                "the row number: `.to(tl.int64)` before it meets a stride", ("tl.program_id(0).to(tl.int64)", "tl.program_id(0)")),
        Mistake("padded_low", "the padding was a number that is not low enough: it was the maximum of a low row, or its exponential still added to the sum",
                "the padding: −inf, which is never the maximum and whose exponential is 0", ('cols < N, -float("inf")', "cols < N, -1.0"),
                also=[[('cols < N, -float("inf")', f"cols < N, {x}")] for x in ("-10.0", "-50.0", "-1000.0")]),
        Mistake("nearest_power", "B was the power of two nearest to N, which may be smaller: the row's end was left out", "B ≥ N: triton.next_power_of_2(N)",
                ("triton.next_power_of_2(N)", "max(1, 2 ** round(__import__('math').log2(N)))")),
        Mistake("shift_never_negative", "the maximum was taken over a 0 as well, of the padding or the start: a row far below 0 underflows",
                "the maximum: of the row's own numbers, also where all are negative", ("x - tl.max(x, 0)", "x - tl.maximum(tl.max(x, 0), 0.0)")),
    ],
    hints=[
        'x = tl.load(X + row * stride_Xm + cols * stride_Xn, cols < N, -float("inf")).to(tl.float32), with row = tl.program_id(0).to(tl.int64).',
        "e = tl.exp(x - tl.max(x, 0)), then e / tl.sum(e, 0).",
        "The grid is (M,), and B = triton.next_power_of_2(N).",
    ],
)
