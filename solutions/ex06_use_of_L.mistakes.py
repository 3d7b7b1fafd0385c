import torch

from flashlab import oracle
from flashlab_course.check.cases import Mistake, case_of, in_float64, normal

inf = float("inf")
WEIGHTS, O = "torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "w_a[:, None] * O_a + w_b[:, None] * O_b"
L, GIVE, RETURNED = "torch.logaddexp(L_a, L_b)", "w_b[:, None] * O_b, ", "w_b[:, None] * O_b, L"
LOG_SUM = "torch.log(torch.exp(L_a) + torch.exp(L_b))"

outputs = [("O", "query", "column"), ("L", "query")]
features = {"two halves without keys": lambda keys_a, keys_b, both: not keys_a + keys_b or both > 0,
            "a half without keys": lambda keys_a, keys_b, one, both: not keys_a * keys_b or one + both > 0,
            "a query of its own without keys": lambda one, both: one + both > 0}


@case_of
def case(N_q, d_v, keys_a, keys_b, *, seed, factor=1.0, shift=0.0, one=0, both=0):
    """one: the number of the query that saw no key of half a, if it is not 0; both: of either half."""
    Q, K = normal(N_q, 4, seed=seed, factor=factor), normal(keys_a + keys_b, 4, seed=seed + 1)
    V, found = normal(keys_a + keys_b, d_v, seed=seed + 2), {}
    for half, cut, blind in (("a", slice(keys_a), one + both), ("b", slice(keys_a, None), both)):
        nothing = torch.zeros(N_q, d_v), torch.full((N_q,), -inf)
        O, L = oracle.attention(Q, K[cut], V[cut]) if len(K[cut]) else nothing
        if blind:
            O[blind], L[blind] = 0, -inf
        found |= {f"O_{half}": O.float(), f"L_{half}": L.float() + shift}
    return found


cases = [case("one query", 1, 5, 3, 4, seed=600),
         case("the second half saw no key", 2, 3, 4, 0, seed=612),
         case("no half saw a key", 2, 3, 0, 0, seed=615),
         case("scores up to 500", 3, 5, 4, 4, seed=618, factor=300),
         case("scores far below 0", 3, 2, 4, 3, seed=639, shift=-150),
         case("one query of a half without keys", 3, 2, 3, 4, seed=624, one=1),
         case("one query without a key in either half", 3, 2, 4, 3, seed=633, both=2),
         in_float64(case("one half alone", 1, 3, 4, 0, seed=630))]
mistakes = [
    Mistake("averaged", "the halves were averaged, as if both had the same weight",
            "how much of the sum over all keys each half holds", (O, "(O_a + O_b) / 2")),
    Mistake("weights_swapped", "each half got the other's weight", "which weight meets which half", (WEIGHTS,
             "torch.exp(L_b - L_safe), torch.exp(L_a - L_safe)")),
    Mistake("maximum_for_L", "the weights were relative to the larger L: they did not add up to 1", "their sum",
            ("L.masked_fill(L == -inf, 0)", "torch.maximum(L_a, L_b).masked_fill(L == -inf, 0)")),
    Mistake("base_2", "exp and log were taken to base 2 throughout", "the base of the logarithms L_a and L_b", (L,
             "torch.logaddexp2(L_a, L_b)"), (WEIGHTS, "torch.exp2(L_a - L_safe), torch.exp2(L_b - L_safe)")),
    Mistake("L_is_max_weights_normalised", "the L that came back was the larger of L_a and L_b",
            "the L that is returned", (RETURNED, f"{GIVE}torch.maximum(L_a, L_b)")),
    Mistake("L_not_log", "L came back as the sum itself, without its logarithm", "the L that is returned", (RETURNED,
             "w_b[:, None] * O_b, torch.exp(L)")),
    Mistake("unshifted", "exp(L_a) and exp(L_b) were taken as they are: both overflow", "the exponents for large L", (L,
             LOG_SUM), ("L.masked_fill(L == -inf, 0)", "torch.zeros_like(L)"), (O + ", L",
             f"({O}) / (w_a + w_b)[:, None], L")),
    Mistake("one_sided_shift", "the shift was always L_a: exp(L_b − L_a) overflows", "what is subtracted before exp",
            (L, "torch.where(L_a == -inf, L_b, L_a + torch.log1p(torch.exp(L_b - L_a)))")),
    Mistake("no_empty_half", "a query that neither half saw a key for got NaN",
            "the exponents where L_a and L_b are both −inf", ("L.masked_fill(L == -inf, 0)", "L")),
    Mistake("empty_half_weighs_1", "a half without keys counted as if its L were 0", "the weight where L is −inf",
            (f"L = {L}", "L_a, L_b = (T.masked_fill(T == -inf, 0) for T in (L_a, L_b))\n    …")),
    Mistake("L_safe_returned", "L came back as 0 where no half saw a key, not as −inf", "the L that is returned",
            (RETURNED, "w_b[:, None] * O_b, L_safe")),
]
hints = ["exp(L_a) is the sum of the exponentials of half a. What is the sum over all keys?",
         "O_a · exp(L_a) is the undivided sum of half a. Add the two, then divide by exp(L).",
         "Only where neither half saw a key is L −inf: put 0 in its place in the exponents, and return the −inf."]
