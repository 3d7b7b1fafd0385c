"""Cases and mistakes of ex03_safe_softmax."""

import torch

from flashlab.check.cases import LOOSE, normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant

inf = float("inf")


def case(name, N_q, N_k, *, seed, factor=1.0, shift=0.0, hide=(), features=()):
    def make():
        S = normal(N_q, N_k, seed=seed, factor=factor) + shift
        for row, keys in hide:
            S[row, keys] = -inf
        return {"S": S}

    more = {"more than one row": N_q > 1, "hidden keys": bool(hide)}
    return Case(name, make, frozenset([*features, *(f for f, holds in more.items() if holds)]), {"N_q": N_q, "N_k": N_k}, LOOSE if factor > 1 or shift else 0.0)


def truth(S):
    S = S.double()
    return torch.softmax(S, -1).masked_fill((S == -inf).all(-1, keepdim=True), 0)


EXERCISE = Exercise(
    function="safe_softmax",
    outputs=(Output("P", ("query", "key")),),
    truth=truth,
    cases=[
        case("one row", 1, 3, seed=300),
        case("three rows", 3, 4, seed=301),
        case("square", 3, 3, seed=302),
        case("scores around 200", 2, 4, seed=303, shift=200, features=["large scores"]),
        case("scores around −200", 2, 4, seed=304, shift=-200, features=["very negative scores"]),
        case("one row high, one row low", 3, 4, seed=305, factor=150, features=["large scores", "rows far apart"]),
        case("some keys hidden", 3, 4, seed=306, hide=[(0, [1]), (2, [0, 3])]),
        case("one row hidden throughout", 3, 4, seed=307, hide=[(1, slice(None))], features=["a row hidden throughout"]),
    ],
    mistakes=[
        Mistake("unshifted", "the scores went into exp without their maximum being subtracted",
                "the exponent: exp(S − m), or float32 overflows to inf and inf/inf is NaN", ("torch.exp(S - m)", "torch.exp(S)")),
        Mistake("one_maximum", "one maximum of the whole matrix was subtracted, so that rows far below it underflow to 0",
                "the maximum: one for each row (`amax(-1, keepdim=True)`)", ("S.amax(-1, keepdim=True)", "S.max().expand(len(S), 1)")),
        Mistake("maximum_of_column", "the maximum was taken down the columns", "the dimension of the maximum: -1 runs along a row",
                ("S.amax(-1, keepdim=True)", "S.amax(0, keepdim=True)")),
        Mistake("mean_for_maximum", "the mean was subtracted, not the maximum, so that exponents can still be large",
                "what is subtracted: only the maximum makes every exponent at most 0", ("S.amax(-1, keepdim=True)", "S.masked_fill(S == -inf, 0).mean(-1, keepdim=True)")),
        Mistake("minimum", "the minimum was subtracted, so that exponents grow", "what is subtracted: the maximum",
                ("S.amax(-1, keepdim=True)", "S.amin(-1, keepdim=True)")),
        Mistake("absolute_maximum", "the largest absolute value was subtracted, and very negative scores underflow to 0",
                "what is subtracted: the maximum, not the maximum of |S|", ("S.amax(-1, keepdim=True)", "S.abs().amax(-1, keepdim=True)")),
        Mistake("added", "the maximum was added, not subtracted", "the sign in the exponent", ("torch.exp(S - m)", "torch.exp(S + m)")),
        Mistake("not_divided", "the exponentials were not divided by their sum", "the last line",
                ("P / l.masked_fill(l == 0, 1)", "P")),
        Mistake("sum_of_column", "each entry was divided by the sum of its column", "the dimension of the sum: -1 runs along a row",
                ("P.sum(-1, keepdim=True)", "P.sum(0, keepdim=True)")),
        Mistake("sum_of_everything", "each entry was divided by the sum of the whole matrix", "the sum: one for each row",
                ("P.sum(-1, keepdim=True)", "P.sum().expand(len(S), 1)")),
        Mistake("no_keepdim", "the sums of the rows were broadcast along the columns: (N_q, N_k) / (N_q,) divides column by column",
                "the shape of the sum: `keepdim=True`, or `[:, None]`", ("P.sum(-1, keepdim=True)", "P.sum(-1)")),
        Mistake("no_hidden_row", "a row that is −inf throughout gave NaN, from −inf − (−inf) or from 0/0",
                "the row of −inf: its maximum is −inf, its sum 0", ("m.masked_fill(m == -inf, 0)", "m")),
    ],
    variants=[
        Variant("through logsumexp", body="""
            L = torch.logsumexp(S, dim=1, keepdim=True)
            return torch.where(L == -inf, torch.zeros_like(S), torch.exp(S - torch.where(L == -inf, torch.zeros_like(L), L)))
            """),
        Variant("row by row", body="""
            rows = []
            for s in S:
                if bool((s == -inf).all()):
                    rows.append(torch.zeros_like(s))
                    continue
                e = (s - s.max()).exp()
                rows.append(e / e.sum())
            return torch.stack(rows)
            """),
    ],
    hints=[
        "S.amax(-1, keepdim=True) has shape (N_q, 1): it broadcasts against S.",
        "Divide by P.sum(-1, keepdim=True). Without keepdim the shape is (N_q,), which meets the columns.",
        "In a row of −inf, replace the maximum by 0 and the sum by 1: then exp(−inf − 0) / 1 = 0.",
    ],
)
