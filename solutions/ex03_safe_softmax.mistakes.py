"""Cases and mistakes of ex03_safe_softmax."""

import torch

from flashlab_course.check.cases import LOOSE, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

inf = float("inf")


def case(name, N_q, N_k, *, seed, factor=1.0, shift=0.0, hide=(), features=(), dtype=torch.float32):
    def make():
        S = normal(N_q, N_k, seed=seed, factor=factor, dtype=dtype) + shift
        for row, keys in hide:
            S[row, keys] = -inf
        return {"S": S}

    more = {"more than one row": N_q > 1, "hidden keys": bool(hide)}
    return Case(name, make, frozenset([*features, *(f for f, holds in more.items() if holds)]), {"N_q": N_q, "N_k": N_k}, LOOSE if factor > 1 or shift else 0.0)


def truth(S):
    S = S.double()
    return torch.softmax(S, -1).masked_fill((S == -inf).all(-1, keepdim=True), 0)


UNGUARDED = ("P / l.masked_fill(l == 0, 1)", "(P / l).masked_fill((S == -inf).all(-1, keepdim=True), 0)")     # a row that underflows: 0/0

EXERCISE = Exercise(
    function="safe_softmax",
    outputs=(Output("P", ("query", "key")),),
    truth=truth,
    without=("softmax",),
    cases=[
        case("one row", 1, 3, seed=300),
        case("three rows", 3, 4, seed=301),
        case("square", 3, 3, seed=302),
        case("scores around 200", 2, 4, seed=303, shift=200, features=["large scores"]),
        case("scores around −200", 2, 4, seed=304, shift=-200, features=["scores around −200"]),
        case("one row high, one row low", 3, 4, seed=305, factor=150, features=["large scores", "rows far apart"]),
        case("some keys hidden", 3, 4, seed=306, hide=[(0, [1]), (2, [0, 3])]),
        case("some keys hidden, scores around −200", 3, 4, seed=311, shift=-200, hide=[(0, [1]), (2, [0, 3])], features=["scores around −200"]),
        case("one row hidden throughout", 3, 4, seed=307, hide=[(1, slice(None))], features=["a row hidden throughout"]),
        case("scores from −500 to 500", 4, 5, seed=308, factor=250, features=["large scores", "rows far apart"]),
        case("one key", 1, 1, seed=309),
        case("float64, where a millionth shows", 2, 3, seed=310, dtype=torch.float64, features=["float64 inputs"]),
    ],
    mistakes=[
        Mistake("clamped", "the scores were clamped so that exp cannot overflow, which makes all large ones alike",
                "the shift: subtract the row's maximum, and no score has to be cut off",
                ("m = S.amax(-1, keepdim=True)", "S = S.clamp(-80, 80).masked_fill(S == -inf, -inf)\n    m = S.amax(-1, keepdim=True)"),
                also=[[("m = S.amax(-1, keepdim=True)", f"S = S.clamp(max={x})\n    m = S.amax(-1, keepdim=True)")] for x in (80, 88, 50)]),
        Mistake("unshifted", "the scores went into exp without their maximum being subtracted first",
                "the exponent: exp(S − m), or float32 overflows to inf and inf/inf is NaN", ("torch.exp(S - m)", "torch.exp(S)")),
        Mistake("one_maximum", "one maximum of the whole matrix was subtracted, so that rows far below it underflow to 0",
                "the maximum: one for each row, not one for all", ("S.amax(-1, keepdim=True)", "S.max().expand(len(S), 1)"),
                also=[[("S.amax(-1, keepdim=True)", "S.max().expand(len(S), 1)"), UNGUARDED]]),
        Mistake("maximum_of_column", "the maximum was taken down the columns", "the dimension of the maximum: -1 runs along a row",
                ("S.amax(-1, keepdim=True)", "S.amax(0, keepdim=True)"), also=[[("S.amax(-1, keepdim=True)", "S.amax(0, keepdim=True)"), UNGUARDED]]),
        Mistake("mean_for_maximum", "the mean was subtracted, not the maximum, so that exponents can still be large",
                "what is subtracted: only the maximum makes every exponent at most 0",
                ("S.amax(-1, keepdim=True)", "S.masked_fill(S == -inf, 0).mean(-1, keepdim=True)")),
        Mistake("minimum", "the minimum was subtracted, so that exponents grow", "what is subtracted: the maximum",
                ("S.amax(-1, keepdim=True)", "S.amin(-1, keepdim=True)")),
        Mistake("absolute_maximum", "the largest absolute value was subtracted, and very negative scores underflow to 0",
                "what is subtracted: the maximum, not the maximum of |S|", ("S.amax(-1, keepdim=True)", "S.abs().amax(-1, keepdim=True)"),
                also=[[("S.amax(-1, keepdim=True)", "S.masked_fill(S == -inf, 0).abs().amax(-1, keepdim=True)")]]),
        Mistake("sum_of_column", "each entry was divided by the sum of its column", "the dimension of the sum: -1 runs along a row",
                ("P.sum(-1, keepdim=True)", "P.sum(0, keepdim=True)")),
        Mistake("no_hidden_row", "a row that is −inf throughout gave NaN, from −inf − (−inf) or from 0/0",
                "a row of −inf: zeros; neither its maximum, −inf, nor its sum, 0, can be used as it is", ("m.masked_fill(m == -inf, 0)", "m")),
        Mistake("sum_padded", "a small number was added to every row's sum, so that the weights do not sum to 1",
                "the divisor: only a row without any visible key needs help, and its sum is exactly 0", ("P / l.masked_fill(l == 0, 1)", "P / (l + 1e-6)"),
                also=[[("P / l.masked_fill(l == 0, 1)", "P / (l + 1e-8)")]]),
        Mistake("epsilon", "a small number was added to the sum, so that the rows no longer sum to 1",
                "the divisor: the sum alone; only a row of −inf needs a stand-in", ("l.masked_fill(l == 0, 1)", "(l + 1e-3)"),
                also=[[("l.masked_fill(l == 0, 1)", f"(l + {x})")] for x in (1e-4, 1e-5, 1e-2)]),
        Mistake("shift_never_negative", "the shift was kept above a bound such as 0, so that a row far below it underflows",
                "the shift: the row's maximum, also where it is negative; only −inf needs a stand-in", ("m.masked_fill(m == -inf, 0)", "m.clamp(min=0)"),
                also=[[("m.masked_fill(m == -inf, 0)", "m.clamp(min=0)"), ("P / l.masked_fill(l == 0, 1)", "P / l")]]),
        Mistake("hidden_in_maximum", "hidden keys counted as 0 in the maximum, so that a row whose scores are all far below 0 underflows",
                "the maximum: of the keys that are not hidden; only a row of −inf needs a stand-in",
                ("S.amax(-1, keepdim=True)", "S.masked_fill(S == -inf, 0).amax(-1, keepdim=True)"),
                also=[[("S.amax(-1, keepdim=True)", "S.masked_fill(S == -inf, 0).amax(-1, keepdim=True)"), UNGUARDED]]),
        Mistake("in_float32", "float64 scores were turned into float32 on the way", "the dtype: S's own throughout",
                ("m = S.amax(-1, keepdim=True)", "wide, S = S.dtype, S.float()\n    m = S.amax(-1, keepdim=True)"),
                ("return P / l.masked_fill(l == 0, 1)", "return (P / l.masked_fill(l == 0, 1)).to(wide)")),
        Mistake("zeroed_where_anything_is_hidden", "each row with a hidden key was set to 0, not only those hidden throughout",
                "the rows of zeros: only those whose scores are −inf throughout",
                ("return P / l.masked_fill(l == 0, 1)", "return (P / l.masked_fill(l == 0, 1)).masked_fill((S == -inf).any(-1, keepdim=True), 0)")),
    ],
    hints=[
        "S.amax(-1, keepdim=True) has shape (N_q, 1): it broadcasts against S.",
        "Divide by P.sum(-1, keepdim=True). Without keepdim the shape is (N_q,), which meets the columns.",
        "In a row of −inf, replace the maximum by 0 and the sum by 1: then exp(−inf − 0) / 1 = 0.",
    ],
)
