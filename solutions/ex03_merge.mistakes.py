"""Cases and mistakes of ex03_merge."""

import torch

from flashlab_course.check.cases import LOOSE, in_float64, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

inf = float("inf")


def state(N_q, N_k, d_v, seed, factor, dtype, shift=0.0):
    """A softmax state over N_k random keys; with N_k = 0 one that saw none."""
    if N_k == 0:
        return torch.zeros(N_q, d_v, dtype=dtype), torch.full((N_q,), -inf, dtype=dtype), torch.zeros(N_q, dtype=dtype)
    S, V = normal(N_q, N_k, seed=seed, factor=factor) + shift, normal(N_k, d_v, seed=seed + 1)
    m = S.amax(-1)
    P = torch.exp(S - m[:, None])
    return (P @ V).to(dtype), m.to(dtype), P.sum(-1).to(dtype)


def case(name, N_q, d_v, keys_a, keys_b, *, seed, factor=1.0, shift=0.0, empty=None, both=None, features=()):
    """empty: the query that saw no key of half a; both: the one that saw none of either half."""
    def make():
        a = state(N_q, keys_a, d_v, seed, factor, torch.float32, shift)
        if empty is not None:
            a[0][empty], a[1][empty], a[2][empty] = 0, -inf, 0
        b = state(N_q, keys_b, d_v, seed + 5, factor, torch.float32, shift)
        if both is not None:
            for O, m, l in (a, b):
                O[both], m[both], l[both] = 0, -inf, 0
        return {"state_a": a, "state_b": b}

    return Case(name, make, frozenset(features), {"N_q": N_q, "d_v": d_v, "keys_a": keys_a, "keys_b": keys_b},
                LOOSE if factor > 1 or shift else 0.0)


EXERCISE = Exercise(
    function="merge",
    outputs=(Output("O", ("query", "column")), Output("m", ("query",)), Output("l", ("query",))),
    cases=[
        case("one query", 1, 2, 3, 4, seed=40),
        case("three queries", 3, 2, 3, 4, seed=50, features=["more than one query"]),
        case("square O", 4, 4, 5, 2, seed=60, features=["more than one query", "N_q = d_v"]),
        case("scores in the hundreds", 3, 2, 4, 4, seed=70, factor=120, features=["large scores", "more than one query"]),
        case("the second half saw no key", 3, 2, 4, 0, seed=80, features=["a half without keys", "more than one query"]),
        case("the first half saw no key", 3, 2, 0, 4, seed=90, features=["a half without keys", "more than one query"]),
        case("no half saw a key", 2, 3, 0, 0, seed=100, features=["two halves without keys", "a half without keys", "more than one query"]),
        case("scores far below 0", 3, 2, 4, 3, seed=110, shift=-150, features=["only scores far below 0", "more than one query"]),
        case("a half without keys, scores far below 0", 3, 2, 0, 4, seed=135, shift=-150, features=["a half without keys", "only scores far below 0", "more than one query"]),
        case("one query of a half without keys", 3, 2, 4, 3, seed=120, empty=1, features=["a half without keys", "more than one query", "a query of its own without keys"]),
        case("one query without a key in either half", 3, 2, 4, 3, seed=125, both=2,
             features=["two halves without keys", "a half without keys", "more than one query", "a query of its own without keys"]),
        in_float64(case("one half alone", 1, 2, 3, 0, seed=130, features=["a half without keys"])),
    ],
    mistakes=[
        Mistake("no_rescale_O", "O_a and O_b were added without being rescaled to the common maximum", "O: like l, each half is a sum in units of its own exp(m)",
                ("alpha[:, None] * O_a + beta[:, None] * O_b", "O_a + O_b")),
        Mistake("no_rescale_l", "l_a and l_b were added without being rescaled to the common maximum", "l: l_a is in units of exp(m_a), l_b in units of exp(m_b)",
                ("alpha * l_a + beta * l_b", "l_a + l_b")),
        Mistake("no_rescale", "the states were added as they were, each in units of its own maximum", "the factors exp(m_a − m) and exp(m_b − m)",
                ("alpha * l_a + beta * l_b", "l_a + l_b"), ("alpha[:, None] * O_a + beta[:, None] * O_b", "O_a + O_b")),
        Mistake("no_empty_half", "a query without a key in either half got NaN, as −inf − (−inf) is",
                "rows with m = −inf: subtract something finite there, exp(−inf) is then 0", ("m.masked_fill(m == -inf, 0)", "m")),
        Mistake("unshifted", "exp(m_a) and exp(m_b) were taken, and divided by exp(m) only afterwards: they overflow, or underflow far below 0",
                "the exponents: m_a − m and m_b − m, subtracted before exp", ("m_safe = m.masked_fill(m == -inf, 0)", "m_safe = torch.zeros_like(m)"),
                ("return O, m, l", "return O / torch.exp(m.masked_fill(m == -inf, 0))[:, None], m, l / torch.exp(m.masked_fill(m == -inf, 0))"),
                also=[[("m_safe = m.masked_fill(m == -inf, 0)", "m_safe = torch.zeros_like(m)"),
                       ("return O, m, l", "unit = torch.exp(m)\n    unit = unit.masked_fill(unit == 0, 1)\n    return O / unit[:, None], m, l / unit")]]),
        Mistake("divided", "O was divided by l, though a state holds the sum before the division", "what the state is: O is a sum, not yet divided by l",
                ("return O, m, l", "return O / l[:, None], m, l")),
        Mistake("one_maximum", "one maximum was taken for all queries", "m: each query has a maximum of its own",
                ("torch.maximum(m_a, m_b)", "torch.maximum(m_a, m_b).max().expand_as(m_a).clone()")),
        Mistake("factor_along_columns", "the factors were multiplied along the columns of O, one per column, not one per query",
                "the shapes: a factor of shape (N_q,) needs `[:, None]` to meet the rows of O (N_q, d_v)",
                ("alpha[:, None] * O_a + beta[:, None] * O_b", "alpha * O_a + beta * O_b")),
        Mistake("m_is_logsumexp", "m was log(exp(m_a) + exp(m_b)), not the larger of the two", "m: the larger of m_a and m_b",
                ("torch.maximum(m_a, m_b)", "torch.logaddexp(m_a, m_b)")),
        Mistake("m_safe_returned", "the m that came back was 0 where no half saw a key: the finite stand-in for −inf was returned",
                "which m is returned: −inf stays −inf", ("return O, m, l", "return O, m_safe, l")),
        Mistake("m_finite_returned", "the m that came back was a large negative number where no half saw a key, not −inf", "which m is returned: −inf stays −inf",
                ("return O, m, l", "return O, m.clamp(min=-1e30), l"), also=
                     [[("return O, m, l", f"return O, m.clamp(min={x}), l")] for x in ("-1000", "-1e4", "-1e9", "torch.finfo(m.dtype).min")]),
        Mistake("multiplied_by_l", "O_a and O_b were multiplied by l_a and l_b, as if they were averages", "what the state is: O is a sum, not divided by l yet",
                ("alpha[:, None] * O_a + beta[:, None] * O_b", "(alpha * l_a)[:, None] * O_a + (beta * l_b)[:, None] * O_b")),
        Mistake("averages_merged", "O was treated as an average: multiplied by l_a and l_b, and divided by l at the end",
                "what the state is: O is a sum, not divided by l", ("alpha[:, None] * O_a + beta[:, None] * O_b",
                 "((alpha * l_a)[:, None] * O_a + (beta * l_b)[:, None] * O_b) / l.masked_fill(l == 0, 1)[:, None]")),
        Mistake("only_a_rescaled", "only half a was rescaled to the common maximum", "both halves: either may have the smaller maximum",
                ("beta = torch.exp(m_b - m_safe)", "beta = torch.ones_like(m_b)")),
        Mistake("all_rows_or_none", "whether a half saw a key was asked for all rows together, not for each query",
                "the condition: a query of its own may have seen no key",
                ("return O, m, l", "return (O_b.clone(), m_b.clone(), l_b.clone()) if (m_a == -inf).any() else (O, m, l)"),
                also=[[("m_safe = m.masked_fill(m == -inf, 0)",
                        "if (m == -inf).all():\n        return torch.zeros_like(O_a), m, torch.zeros_like(l_a)\n    m_safe = m")]]),
        ],
    hints=[
        "exp(score − m) = exp(score − m_a) · exp(m_a − m): one factor turns all of half a's terms at once.",
        "The factors have shape (N_q,). O has shape (N_q, d_v): `alpha[:, None] * O_a`.",
        "Where m is −inf, m_a − m is NaN. Replace m by 0 in the exponents of those rows: exp(−inf − 0) is 0, as it should be.",
        "One half without keys needs no special case: its m is −inf, so its factor is exp(−inf − m) = 0, as long as m is that of the other half.",
        "Where neither half saw a key, m is −inf, and so is m_a: their difference is NaN. The exponents want a finite number there; the m that you return stays −inf.",
        "Only scores in the hundreds fail: no exponent may be above 0. From which of the three maxima is each one counted?",
        "Only scores far below 0 fail: is a 0 in the place of a maximum somewhere, where one of the two is below it?",
    ],
)
