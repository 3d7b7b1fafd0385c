import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import Mistake, case_of, epsilon, normal, spread

X_AT, Y_AT = "X + row * stride_Xm + cols * stride_Xn", "Y + row * stride_Ym + cols * stride_Yn"
PADDED, EXP = 'cols < N, -float("inf")', "tl.exp(x - tl.max(x, 0))"
X_PLAIN = (X_AT, "X + row * stride_Xm + cols")

outputs = [("Y", "row", "column")]
truth = lambda X, Y: torch.softmax(X.double(), 1)
reads, writes = ("X",), ("Y",)
after = [compiled.narrow("int32_offset")]
seconds = 6
without = ("softmax",)
traffic = lambda X, Y: {"X": (X.numel(), 0), "Y": (0, X.numel())}
features = {"more than one row": lambda M: M > 1, "a row that is no power of two": lambda N: N & (N - 1)}
case = case_of(lambda M, N, *, dtype=torch.float32, factor=1.0, shift=0.0, Y_dtype=None, seed: {
    "X": (normal(M, N, seed=seed, factor=factor) + shift).to(dtype), "Y": torch.zeros(M, N, dtype=Y_dtype or dtype)})
cases = [case("one row", 1, 8, seed=980),
         case("three rows", 3, 8, seed=981),
         case("a row of 11", 2, 11, seed=982),
         case("rows of negative numbers", 3, 21, shift=-6.0, seed=983),
         case("large numbers", 3, 19, factor=60.0, seed=984),
         case("16-bit inputs", 4, 100, dtype=torch.float16, seed=985),
         case("16-bit inputs, 32-bit results", 2, 100, dtype=torch.float16, Y_dtype=torch.float32, seed=990),
         case("one number in each row", 3, 1, units=4, seed=986),
         case("a long row", 1, 1100, seed=994),
         case("numbers around −997", 3, 11, shift=-997.0, factor=0.5, seed=992),
         case("numbers far below 0", 3, 12, shift=-900.0, seed=988),
         spread(case("columns that are apart", 3, 10, seed=989))]
mistakes = [
    epsilon(("e / tl.sum(e, 0)", "e / (tl.sum(e, 0) + ε)"), sizes=(1e-3, 1e-4, 1e-5, 1e-6)),
    Mistake("padded_with_0", "the padding was 0 and counted in the maximum and the sum", "the value of the padding",
            (PADDED, "cols < N, 0.0")),
    Mistake("padded_low", "the padding was a number that a row can be as low as", "the value of the padding", (PADDED,
             "cols < N, -1.0"), also=[[(PADDED, f"cols < N, {x}")] for x in ("-10.0", "-1000.0")]),
    Mistake("no_guard_store", "the store had no mask and wrote past the end of the row", "the mask of tl.store",
            ("y, cols < N)", "y)")),
    Mistake("unshifted", "the maximum was not subtracted before exp", "the exponent", ("x - tl.max(x, 0)", "x")),
    Mistake("shift_never_negative", "the maximum was never below 0", "the maximum of a row of negative numbers",
            ("x - tl.max(x, 0)", "x - tl.maximum(tl.max(x, 0), 0.0)")),
    Mistake("not_divided", "the exponentials were stored without being divided by their sum",
            "what the weights of a row add up to", ("y = e / tl.sum(e, 0)", "y = e")),
    Mistake("stride_of_X_for_Y", "Y was addressed with the strides of X", "the strides in the store", (Y_AT,
             "Y + row * stride_Xm + cols * stride_Xn")),
    Mistake("column_stride_1", "neighbouring columns were taken to lie side by side", "the stride of the columns",
            X_PLAIN, (Y_AT, "Y + row * stride_Ym + cols"), also=[[X_PLAIN]]),
    Mistake("power_below", "B was the power of two below N, so a row lost its end", "the size of a block",
            ("triton.next_power_of_2(N)", "triton.next_power_of_2(N + 1) // 2")),
    Mistake("int32_offset", "the row number was multiplied by a stride in 32 bits, which overflow at 2³¹ elements",
            "the dtype of the row number", ("tl.program_id(0).to(tl.int64)", "tl.program_id(0)")),
]
hints = ["One program takes one row: the grid has M programs, and B is a power of two that holds N columns.",
         "Load the row with a mask and a padding that is never the maximum; cast it to float32 at once.",
         "e = tl.exp(x - tl.max(x, 0)), then e / tl.sum(e, 0)."]
