import torch

from flashlab_course.check.cases import Mistake, case_of, epsilon, normal

inf, ALL = float("inf"), slice(None)
MAXIMUM, QUOTIENT = "S.amax(-1, keepdim=True)", "P / l.masked_fill(l == 0, 1)"
WHOLE = "S.max().repeat(len(S), 1)"

outputs = [("P", "query", "key")]
truth = lambda S: torch.softmax(S.double(), -1).nan_to_num(0)       # a row of −inf: NaN
without = ("softmax",)
features = {"a row hidden throughout": lambda hide: ALL in [keys for _, keys in hide],
            "rows far apart": lambda factor: factor > 1, "only scores far below 0": lambda shift: shift < 0}


@case_of
def case(N_q, N_k, *, seed, factor=1.0, shift=0.0, hide=(), dtype=torch.float32):
    """hide: (row, keys) pairs."""
    S = normal(N_q, N_k, seed=seed, factor=factor, dtype=dtype) + shift
    for row, keys in hide:
        S[row, keys] = -inf
    return {"S": S}


cases = [case("one row", 1, 3, seed=300),
         case("three rows", 3, 4, seed=301),
         case("scores around 200", 3, 4, seed=303, shift=200),
         case("scores around −900", 3, 4, seed=304, shift=-900),
         case("some keys hidden", 3, 4, seed=306, hide=[(0, [1]), (2, [0, 3])]),
         case("some keys hidden, scores around −900", 3, 4, seed=311, shift=-900, hide=[(0, [1]), (2, [0, 3])]),
         case("one row hidden throughout", 3, 4, seed=307, hide=[(1, ALL)]),
         case("scores from −500 to 500", 4, 5, seed=308, factor=250),
         case("float64, where a millionth shows", 3, 4, seed=310, dtype=torch.float64)]
mistakes = [
    epsilon(("l.masked_fill(l == 0, 1)", "(l + ε)")),
    Mistake("unshifted", "exp was taken of the scores themselves: they overflow, or all become 0", "what goes into exp",
            ("torch.exp(S - m)", "torch.exp(S)")),
    Mistake("one_maximum", "one maximum of the whole matrix was subtracted from all rows",
            "the dimension of the maximum", (MAXIMUM, WHOLE), also=[[(MAXIMUM, WHOLE), (QUOTIENT, "P / l")]]),
    Mistake("maximum_of_column", "the maximum was taken down the columns", "the dimension of the maximum", (MAXIMUM,
             "S.amax(0, keepdim=True)")),
    Mistake("sum_of_column", "each number was divided by the sum of its column", "the dimension of the sum",
            ("P.sum(-1, keepdim=True)", "P.sum(0, keepdim=True)")),
    Mistake("not_divided", "the exponentials were returned without being divided", "what each row of P sums to",
            (QUOTIENT, "P")),
    Mistake("clamped", "the scores were clamped, so that the largest ones became alike", "what keeps exp small",
            (f"m = {MAXIMUM}", "S = S.clamp(-80, 80).masked_fill(S == -inf, -inf)\n    …")),
    Mistake("shift_never_negative", "the maximum could not fall below 0", "a row with negative scores only",
            ("m.masked_fill(m == -inf, 0)", "m.clamp(min=0)")),
    Mistake("hidden_in_maximum", "hidden keys counted as 0 in the maximum", "the maximum of a row with hidden keys",
            (MAXIMUM, "S.masked_fill(S == -inf, 0).amax(-1, keepdim=True)")),
    Mistake("no_hidden_row", "a row of −inf gave NaN: −inf − (−inf), or 0/0", "the maximum and the sum of such a row",
            ("m.masked_fill(m == -inf, 0)", "m")),
    Mistake("zeroed_where_anything_is_hidden", "every row with a hidden key was set to 0",
            "the condition for a row of zeros", (QUOTIENT, f"({QUOTIENT}) * (S > -inf).all(-1, keepdim=True)")),
    Mistake("in_float32", "float64 scores went through float32", "the dtype of each step", ("torch.exp(S - m)",
             "torch.exp(S.float() - m.float())"), (QUOTIENT, f"({QUOTIENT}).to(S.dtype)")),
]
hints = ["Subtract each row's maximum: the largest exponent of a row is then 0, and exp cannot overflow.",
         "Keep the dimension of the maximum and of the sum: (N_q, 1) lines up with the rows, (N_q,) with the columns.",
         "In a row of −inf neither the maximum nor the sum can be used: put finite numbers in their place."]
