import torch

from flashlab_course.check.cases import Mistake, case_of, in_float64, normal

inf = float("inf")
ALL, NONE = slice(None), slice(0)
O_SUM, L_SUM = "alpha[:, None] * O_a + beta[:, None] * O_b", "alpha * l_a + beta * l_b"
MAXIMUM = "torch.maximum(m_a, m_b)"
RETURN, NOT_0 = "return O, m, l", "{0}.masked_fill({0} == 0, 1)".format
DIVIDE = (RETURN, f"return O / {NOT_0('l')}[:, None], m, l")

outputs = [("O", "query", "column"), ("m", "query"), ("l", "query")]
features = {"two halves without keys": lambda a, b: NONE not in (a, b)}


def state(N_q, N_k, d_v, seed, factor, shift, blind):
    """A softmax state over N_k random keys; the `blind` queries saw none of them."""
    S, V = normal(N_q, N_k, seed=seed, factor=factor) + shift, normal(N_k, d_v, seed=seed + 1)
    S[blind] = -inf
    m = S.amax(-1)
    P = torch.exp(S - m.masked_fill(m == -inf, 0)[:, None])
    return P @ V, m, P.sum(-1)


@case_of
def case(N_q, d_v, keys_a, keys_b, *, seed, factor=1.0, shift=0.0, a=NONE, b=NONE):
    return {"state_a": state(N_q, keys_a, d_v, seed, factor, shift, a),
            "state_b": state(N_q, keys_b, d_v, seed + 5, factor, shift, b)}


cases = [case("one query", 1, 3, 4, 5, seed=40),
         case("scores in the hundreds", 3, 4, 5, 6, seed=70, factor=120),
         case("the second half saw no key", 3, 5, 4, 6, seed=80, b=ALL),
         case("no half saw a key", 3, 5, 4, 6, seed=100, a=ALL, b=ALL),
         case("scores far below 0", 3, 5, 4, 6, seed=110, shift=-900),
         case("one query of a half without keys", 3, 5, 4, 6, seed=120, a=1),
         case("one query without a key in either half", 3, 5, 4, 6, seed=125, a=2, b=2),
         in_float64(case("one half alone", 1, 3, 4, 5, seed=130, b=ALL))]
mistakes = [
    Mistake("no_rescale", "both O and l were added up without being rescaled to the common maximum",
            "the unit in which each half counts", (L_SUM, "l_a + l_b"), (O_SUM, "O_a + O_b")),
    Mistake("no_rescale_O", "O_a and O_b were added without being rescaled; l_a and l_b were",
            "the unit of O_a, and that of O_b", (O_SUM, "O_a + O_b")),
    Mistake("no_rescale_l", "l_a and l_b were added without being rescaled; O_a and O_b were",
            "the unit of l_a, and that of l_b", (L_SUM, "l_a + l_b")),
    Mistake("one_half_rescaled", "only one of the two halves was rescaled to the common maximum",
            "the half that is left as it is", ("torch.exp(m_b - m_safe)", "torch.ones_like(m_b)"),
            also=[[("torch.exp(m_a - m_safe)", "torch.ones_like(m_a)")], [(O_SUM, "O_a + beta[:, None] * O_b")],
                  [(O_SUM, "alpha[:, None] * O_a + O_b")],
                  [(L_SUM, "l_a + beta * l_b")], [(L_SUM, "alpha * l_a + l_b")]]),
    Mistake("unshifted", "exp(m_a) and exp(m_b) were taken on their own, which overflows", "what goes into exp",
            ("m.masked_fill(m == -inf, 0)", "torch.zeros_like(m)"), (RETURN,
             f"unit = {NOT_0('torch.exp(m)')}\n    return O / unit[:, None], m, l / unit")),
    Mistake("one_maximum", "one maximum was taken for all queries", "the shape of m", (MAXIMUM,
             MAXIMUM + ".max().repeat(len(m_a))")),
    Mistake("m_is_logsumexp", "m was the logsumexp of m_a and m_b, not the larger one", "what m stands for in a state",
            (MAXIMUM, "torch.logaddexp(m_a, m_b)")),
    Mistake("factor_along_columns", "the factors multiplied the columns of O, not its rows",
            "the shapes of the factor and of O", (O_SUM, "alpha * O_a + beta * O_b")),
    Mistake("divided", "O was divided by l, but in a state it is still undivided", "what O stands for in a state",
            DIVIDE),
    Mistake("averages_merged", "O_a and O_b were weighted with l_a and l_b, as if they were averages",
            "whether O is divided yet", (O_SUM, "(alpha * l_a)[:, None] * O_a + (beta * l_b)[:, None] * O_b"), DIVIDE),
    Mistake("no_empty_half", "a query that saw no key in either half got NaN: −inf − (−inf)",
            "the exponents where m is −inf", ("m.masked_fill(m == -inf, 0)", "m")),
    Mistake("m_safe_returned", "m came back finite for a query that saw no key in either half", "the m returned",
            (RETURN, "return O, m_safe, l"), also=[[(RETURN, "return O, m.nan_to_num(), l")]]),
]
hints = ["exp(score − m) = exp(score − m_a) · exp(m_a − m): one factor turns all of half a's terms at once.",
         "A factor of shape (N_q,) needs a second dimension before it can meet the rows of O (N_q, d_v).",
         "Where neither half saw a key, −inf − (−inf) is NaN: use a finite m in the exponents there, and return −inf."]
