"""Cases and mistakes of ex06_use_of_L."""

import torch

from flashlab import oracle
from flashlab_course.check.cases import LOOSE, epsilon, in_float64, normal
from flashlab_course.check.form import Case, Exercise, Hint, Mistake, Output

inf = float("inf")


def halves(N_q, d_v, keys_a, keys_b, seed, factor):
    d = 4
    Q, K, V = normal(N_q, d, seed=seed, factor=factor), normal(keys_a + keys_b, d, seed=seed + 1), normal(keys_a + keys_b, d_v, seed=seed + 2)
    return Q, K, V


def case(name, N_q, d_v, keys_a, keys_b, *, seed, factor=1.0, shift=0.0, empty=None, both=None, features=()):
    """empty: the query that saw no key of half a; both: the one that saw none of either half."""
    def make():
        Q, K, V = halves(N_q, d_v, keys_a, keys_b, seed, factor)
        found = {}
        for half, cut in (("a", slice(0, keys_a)), ("b", slice(keys_a, None))):
            O, L = oracle.attention(Q, K[cut], V[cut]) if len(K[cut]) else (torch.zeros(N_q, d_v), torch.full((N_q,), -inf))
            found |= {f"O_{half}": O.float(), f"L_{half}": L.float() + shift}
        if empty is not None:
            found["O_a"][empty], found["L_a"][empty] = 0, -inf
        if both is not None:
            for half in "ab":
                found[f"O_{half}"][both], found[f"L_{half}"][both] = 0, -inf
        return found

    holds = {"more than one query": N_q > 1, "large scores": factor > 1 or shift < 0, "only scores far below 0": shift < 0, "halves of different size": keys_a != keys_b,
             "a half without keys": 0 in (keys_a, keys_b) or empty is not None, "two halves without keys": keys_a + keys_b == 0 or both is not None}
    return Case(name, make, frozenset([*features, *(f for f, true in holds.items() if true)]),
                {"N_q": N_q, "d_v": d_v, "keys_a": keys_a, "keys_b": keys_b}, LOOSE if factor > 1 or shift else 0.0)


ONE_SIDED = "torch.where(L_a == -inf, L_b, torch.where(L_b == -inf, L_a, L_a + torch.log1p(torch.exp(L_b - L_a))))"

WEIGHTS = "torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)"
NORMALISED = ("w_a[:, None] * O_a + w_b[:, None] * O_b, L", "(w_a[:, None] * O_a + w_b[:, None] * O_b) / (w_a + w_b).masked_fill(w_a + w_b == 0, 1)[:, None], L")

EXERCISE = Exercise(
    function="combine",
    outputs=(Output("O", ("query", "column")), Output("L", ("query",))),
    cases=[
        case("one query", 1, 3, 2, 2, seed=600),
        case("three queries", 3, 2, 4, 4, seed=603),
        case("halves of different size", 3, 3, 1, 6, seed=606),
        case("scores in the hundreds", 3, 2, 4, 4, seed=609, factor=150),
        case("the second half saw no key", 2, 3, 4, 0, seed=612),
        case("no half saw a key", 2, 3, 0, 0, seed=615),
        case("scores up to 500", 3, 2, 3, 3, seed=618, factor=300),
        case("the first half saw no key", 2, 3, 0, 4, seed=621),
        case("a half without keys, scores far below 0", 2, 3, 0, 4, seed=636, shift=-150),
        case("scores far below 0", 3, 2, 4, 3, seed=639, shift=-150),
        case("one query of a half without keys", 3, 2, 3, 4, seed=624, empty=1, features=["a query of its own without keys"]),
        case("one query without a key in either half", 3, 2, 4, 3, seed=633, both=2, features=["a half without keys", "a query of its own without keys"]),
        case("square O", 3, 3, 3, 4, seed=627, features=["N_q = d_v"]),
        in_float64(case("one half alone", 1, 3, 4, 0, seed=630)),
    ],
    mistakes=[
        Mistake("averaged", "the halves were averaged, as if both had the same weight", "the weights: exp(L_a − L) and exp(L_b − L)",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "(O_a + O_b) / 2")),
        Mistake("added", "the halves were added without weights", "O_a and O_b are averages already: they have to be weighted",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "O_a + O_b")),
        Mistake("weighted_by_L", "the weights were L_a and L_b themselves, or in proportion to them",
                "the weight of a half: exp(L_a − L) and exp(L_b − L), its share of the sum of the exponentials",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "L_a / (L_a + L_b), L_b / (L_a + L_b)")),
        Mistake("weights_swapped", "each half got the other's weight", "the weights: exp(L_a − L) belongs to O_a, exp(L_b − L) to O_b",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp(L_b - L_safe), torch.exp(L_a - L_safe)")),
        Mistake("base_2", "exp and log were taken to base 2, but L is a natural logarithm", "the weights and L: natural exp and log, no powers of 2",
                ("torch.logaddexp(L_a, L_b)", "torch.logaddexp2(L_a, L_b)"),
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp2(L_a - L_safe), torch.exp2(L_b - L_safe)")),
        Mistake("L_base_2", "L was the logarithm of 2^L_a + 2^L_b: L_a and L_b are natural logarithms",
                "L: log(exp(L_a) + exp(L_b)), with the natural exp and log", ("torch.logaddexp(L_a, L_b)", "torch.logaddexp2(L_a, L_b)")),
        Mistake("share_of_the_other", "a weight was 1 minus its own half's share, which is the other half's",
                "the weights: exp(L_a − L) belongs to O_a, exp(L_b − L) to O_b",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp(L_a - L_safe), 1 - torch.exp(L_b - L_safe)"),
                also=[[("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "1 - torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)")]]),
        Mistake("unshifted", "exp(L_a) and exp(L_b) were taken as they are, and overflow or underflow for L in the hundreds",
                "the shift: the larger of L_a and L_b, 0 where both are −inf, is subtracted before exp and added again after log",
                ("torch.logaddexp(L_a, L_b)", "torch.log(torch.exp(L_a) + torch.exp(L_b))"), also=[
                      [("torch.logaddexp(L_a, L_b)", "torch.log(torch.exp(L_a) + torch.exp(L_b))"), (WEIGHTS, "torch.exp(L_a), torch.exp(L_b)"), NORMALISED],
                      [("torch.logaddexp(L_a, L_b)", "torch.log(torch.exp(L_a) + torch.exp(L_b))"), (WEIGHTS, "torch.exp(L_a), torch.exp(L_b)"),
                       ("w_a[:, None] * O_a + w_b[:, None] * O_b, L", "(w_a[:, None] * O_a + w_b[:, None] * O_b) / (w_a + w_b)[:, None], L")]]),
        Mistake("L_is_sum", "L was L_a + L_b", "L: log(exp(L_a) + exp(L_b)); the sums are added, not their logarithms",
                ("torch.logaddexp(L_a, L_b)", "L_a + L_b")),
        Mistake("L_is_sum_only_returned", "the weights were right, but the L that came back was L_a + L_b", "the L that is returned: log(exp(L_a) + exp(L_b))",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L_a + L_b")),
        Mistake("L_is_max", "L was the larger of L_a and L_b, and the weights were made from that", "L: log(exp(L_a) + exp(L_b)), at least the larger of the two",
                ("torch.logaddexp(L_a, L_b)", "torch.maximum(L_a, L_b)")),
        Mistake("L_is_max_weights_normalised", "the weights were right, but L was the larger of L_a and L_b", "the L that is returned: log(exp(L_a) + exp(L_b))",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, torch.maximum(L_a, L_b)")),
        Mistake("L_is_mean", "L was the mean of L_a and L_b", "L: log(exp(L_a) + exp(L_b)), at least the larger of the two",
                ("torch.logaddexp(L_a, L_b)", "(L_a + L_b) / 2")),
        Mistake("L_not_log", "L came back as the sum itself, without its logarithm", "the L that is returned: log(exp(L_a) + exp(L_b))",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, torch.exp(L)")),
        Mistake("no_empty_half", "rows where no half saw a key got NaN, from −inf − (−inf) or 0 / 0",
                "where L_a and L_b are −inf: O = 0; a finite number has to stand for −inf in the exponents, and 0 may not divide",
                ("L.masked_fill(L == -inf, 0)", "L")),
        Mistake("one_weight", "one weight was taken for all queries", "the shapes: a weight for each query, `[:, None]` against O",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "w_a[0] * O_a + w_b[0] * O_b")),
        Mistake("weighted_by_L_of_all", "the weights were L_a / L and L_b / L, without an exponential", "the weights: exp(L_a − L), exp(L_b − L)",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "(L_a / L_safe).nan_to_num(0, 0, 0), (L_b / L_safe).nan_to_num(0, 0, 0)"),
                also=[[("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.where(L_a == -inf, 0.0, L_a / L), torch.where(L_b == -inf, 0.0, L_b / L)")]]),
        Mistake("L_safe_returned", "the L that came back was 0 where no half saw a key, not −inf",
                "the L that is returned: −inf stays −inf, also through the log; a stand-in, for m or for the sum, is for the weights alone",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L_safe")),
        Mistake("L_finite_returned", "the L that came back was a large negative number where no half saw a key, not −inf", "which L is returned: −inf stays −inf",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L.clamp(min=-1e30)"), also=
                     [[("w_b[:, None] * O_b, L", f"w_b[:, None] * O_b, L.clamp(min={x})")] for x in ("-1e4", "-1e9", "torch.finfo(L.dtype).min")]),
        Mistake("weights_not_normalised", "the weights were exp(L_a) and exp(L_b), not divided by their sum", "the weights: exp(L_a − L), exp(L_b − L)",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp(L_a), torch.exp(L_b)")),
        Mistake("maximum_for_L", "the weights were exp(L_a − max) and exp(L_b − max): they do not sum to 1",
                "the weights: exp(L_a − L), exp(L_b − L), with L of all the keys", ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)",
                 "torch.exp(L_a - torch.maximum(L_a, L_b).masked_fill(L == -inf, 0)), torch.exp(L_b - torch.maximum(L_a, L_b).masked_fill(L == -inf, 0))")),
        Mistake("larger_wins", "each query took the half with the larger L alone", "both halves have a weight: exp(L_a − L), exp(L_b − L)",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "(L_a >= L_b).float(), (L_a < L_b).float()")),
        Mistake("exponents_negative", "the exponents were L − L_a and L − L_b, with the wrong sign",
                "the exponents: L_a − L and L_b − L, so that no weight exceeds 1",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp(L_safe - L_a), torch.exp(L_safe - L_b)"),
                also=[[(WEIGHTS, "torch.exp(L_safe - L_a).masked_fill(L_a == -inf, 0), torch.exp(L_safe - L_b).masked_fill(L_b == -inf, 0)"), NORMALISED]]),
        Mistake("divided_again", "O was divided by the sum exp(L) once more", "O_a and O_b are divided already",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b, L", "(w_a[:, None] * O_a + w_b[:, None] * O_b) / torch.exp(L)[:, None], L")),
        Mistake("undivided", "O came back undivided, exp(L) times too large", "the weights: exp(L_a − L), exp(L_b − L) sum to 1",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b, L", "(w_a[:, None] * O_a + w_b[:, None] * O_b) * torch.exp(L_safe)[:, None], L")),
        Mistake("weights_along_columns", "the weights were multiplied along the columns of O", "the shapes: a weight for each query, `[:, None]` against O",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "w_a * O_a + w_b * O_b")),
        Mistake("only_a", "only half a was weighted: O_b was added as it is", "both halves have a weight: exp(L_a − L) and exp(L_b − L)",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "w_a[:, None] * O_a + O_b")),
        Mistake("log_of_mean", "L was the logarithm of the mean of the two sums", "L = log(exp(L_a) + exp(L_b))",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L - 0.6931471805599453")),
        Mistake("L_of_a", "the L that came back was L_a", "the L that is returned: log(exp(L_a) + exp(L_b)), that of all the keys",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L_a.clone()")),
        epsilon(("w_a[:, None] * O_a + w_b[:, None] * O_b, L", "(w_a[:, None] * O_a + w_b[:, None] * O_b) / (1 + ε), L"),
                what="a small number was added to the sum of the weights", look="the weights: they sum to 1 without help"),
        epsilon(("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L + ε"), name="epsilon_in_log", what=
                     "a small number was added to L, or to the sum before its logarithm", look="L: log(exp(L_a) + exp(L_b)), also where it is −inf"),
        Mistake("swapped", "L and O came back in the wrong order", "the order in `return`: O, L",
                ("return w_a[:, None] * O_a + w_b[:, None] * O_b, L", "return L, w_a[:, None] * O_a + w_b[:, None] * O_b")),
        Mistake("empty_half_weighs_1", "a half without keys was given L = 0, and so the weight exp(0 − L) instead of none",
                "where a half's L is −inf: its weight is exp(−inf − L) = 0; a finite number stands in for L alone, where both are −inf",
                ("L = torch.logaddexp(L_a, L_b)",
                 "L_a, L_b = L_a.masked_fill(L_a == -inf, 0), L_b.masked_fill(L_b == -inf, 0)\n    L = torch.logaddexp(L_a, L_b)")),
        Mistake("units_of_a", "everything was counted in units of exp(L_a), and exp(L_b − L_a) overflows where b's scores are much larger",
                "the shift: the larger of L_a and L_b, for each query, 0 where both are −inf",
                ("return w_a[:, None] * O_a + w_b[:, None] * O_b, L", """r = torch.exp(L_b - L_a.masked_fill(L_a == -inf, 0))
    O = torch.where((L_a == -inf)[:, None], O_b, (O_a + r[:, None] * O_b) / (1 + r)[:, None])
    return O, torch.where(L_a == -inf, L_b, L_a + torch.log(1 + r))""")),
        Mistake("one_query_decides", "a half was left out for all queries because one of them sees no key of it",
                "each query by itself: where one has L = −inf, the others may not", ("return w_a[:, None] * O_a + w_b[:, None] * O_b, L",
                 "if (L_a == -inf).any():\n        return O_b, L_b\n    if (L_b == -inf).any():\n        return O_a, L_a\n"
                 "    return w_a[:, None] * O_a + w_b[:, None] * O_b, L")),
        Mistake("one_sided_shift", "L was L_a + log(1 + exp(L_b − L_a)), or the same with a and b exchanged, which overflows where the other half's L is much larger",
                "the shift: the larger of L_a and L_b, for each query, 0 where both are −inf", ("torch.logaddexp(L_a, L_b)", ONE_SIDED),
                also=[[("torch.logaddexp(L_a, L_b)", new)] for new in (ONE_SIDED.replace("L_a + torch.log1p(torch.exp(L_b - L_a))", "L_b + torch.log1p(torch.exp(L_a - L_b))"),
                      "L_a + torch.log1p(torch.exp(L_b - L_a))", "L_b + torch.log1p(torch.exp(L_a - L_b))")]),
        Mistake("all_rows_or_none", "whether a query saw a key was asked of all queries together: one that saw none beside others that did got NaN",
                "each query by itself: where both of its L are −inf, O = 0 and L = −inf",
                ("L_safe = L", "if (L == -inf).all():\n        return torch.zeros_like(O_a), L\n    L_safe = L"), ("L.masked_fill(L == -inf, 0)", "L"),
                also=[[("L = torch.logaddexp(L_a, L_b)", "m = torch.maximum(L_a, L_b)\n    if (m == -inf).all():\n        return torch.zeros_like(O_a), m\n"
                        "    L = m + torch.log(torch.exp(L_a - m) + torch.exp(L_b - m))"), ("L.masked_fill(L == -inf, 0)", "L")]]),
        Mistake("from_the_middle", "L_a and L_b were taken relative to the middle between them: where they lie far apart, the larger one overflows",
                "the reference: the larger of L_a and L_b, so that no exponent is above 0", ("L = torch.logaddexp(L_a, L_b)",
                 "m = ((L_a + L_b) / 2).masked_fill((L_a == -inf) | (L_b == -inf), 0)\n"
                 "    m = torch.where((L_a == -inf) | (L_b == -inf), torch.maximum(L_a, L_b).masked_fill((L_a == -inf) & (L_b == -inf), 0), m)\n"
                 "    L = m + torch.log(torch.exp(L_a - m) + torch.exp(L_b - m))"), NORMALISED, (WEIGHTS, "torch.exp(L_a - m), torch.exp(L_b - m)")),
        Mistake("one_reference_for_all", "all rows were taken relative to one number, the largest L of all: in a row far below it both weights underflow",
                "the reference: in each row the larger of its own L_a and L_b", ("L = torch.logaddexp(L_a, L_b)",
                 "m = torch.maximum(L_a, L_b).max()\n    m = 0.0 if m == -inf else m\n    L = m + torch.log(torch.exp(L_a - m) + torch.exp(L_b - m))"),
                (WEIGHTS, "torch.exp(L_a - m), torch.exp(L_b - m)"), NORMALISED),
        Mistake("relative_to_b", "L_b was the reference also where L_a is the larger: exp(L_a − L_b) overflows",
                "the reference: the larger of L_a and L_b, so that no exponent is above 0", ("L = torch.logaddexp(L_a, L_b)",
                 "m = torch.where(L_b == -inf, L_a, L_b).masked_fill((L_a == -inf) & (L_b == -inf), 0)\n"
                 "    L = m + torch.log(torch.exp(L_a - m) + torch.exp(L_b - m))"), (WEIGHTS, "torch.exp(L_a - m), torch.exp(L_b - m)"), NORMALISED),
        Mistake("nothing_weighs_1", "an L of −inf became 0 before the weights were made: a half without keys weighed exp(0)",
                "a half without keys: its weight is exp(−inf), 0", ("L = torch.logaddexp(L_a, L_b)", "none = (L_a == -inf) & (L_b == -inf)\n"
                 "    L_a, L_b = (x.masked_fill((x == -inf) & ~none, 0) for x in (L_a, L_b))\n    L = torch.logaddexp(L_a, L_b)")),
    ],
    hints=[
        "exp(L_a) is the sum of the exponentials of half a. The sum over all keys is exp(L_a) + exp(L_b).",
        "O_a · exp(L_a) is the undivided sum of half a. Add the two, divide by exp(L): the weights are exp(L_a − L), exp(L_b − L).",
        "Where L is −inf, use 0 in its place in the exponents: both weights are then exp(−inf) = 0.",
        Hint("Only rows of which a half saw no key: its L is −inf, and exp(−inf − L) = 0 is just right, as long as L is finite.", "a half without keys"),
        Hint("Only where neither half saw a key: L is −inf, L_a − L is −inf − (−inf). Which finite number may stand there in the exponents? The L that is returned stays −inf.", "two halves without keys"),
        Hint("Only large scores fail: exp of L overflows at 89, exp of a difference does not.", "large scores"),
    ],
)
