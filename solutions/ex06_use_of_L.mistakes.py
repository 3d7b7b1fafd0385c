"""Cases and mistakes of ex06_use_of_L."""

import torch

from flashlab import oracle
from flashlab.check.cases import LOOSE, normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant

inf = float("inf")


def halves(N_q, d_v, keys_a, keys_b, seed, factor):
    d = 4
    Q, K, V = normal(N_q, d, seed=seed, factor=factor), normal(keys_a + keys_b, d, seed=seed + 1), normal(keys_a + keys_b, d_v, seed=seed + 2)
    return Q, K, V


def case(name, N_q, d_v, keys_a, keys_b, *, seed, factor=1.0, features=()):
    def make():
        Q, K, V = halves(N_q, d_v, keys_a, keys_b, seed, factor)
        found = {}
        for half, cut in (("a", slice(0, keys_a)), ("b", slice(keys_a, None))):
            O, L = oracle.attention(Q, K[cut], V[cut]) if len(K[cut]) else (torch.zeros(N_q, d_v), torch.full((N_q,), -inf))
            found |= {f"O_{half}": O.float(), f"L_{half}": L.float()}
        return found

    holds = {"more than one query": N_q > 1, "large scores": factor > 1, "halves of different size": keys_a != keys_b,
             "a half without keys": 0 in (keys_a, keys_b), "two halves without keys": keys_a + keys_b == 0}
    return Case(name, make, frozenset([*features, *(f for f, true in holds.items() if true)]),
                {"N_q": N_q, "d_v": d_v, "keys_a": keys_a, "keys_b": keys_b}, LOOSE if factor > 1 else 0.0)


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
    ],
    mistakes=[
        Mistake("averaged", "the halves were averaged, as if both had the same weight", "the weights: exp(L_a − L) and exp(L_b − L)",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "(O_a + O_b) / 2")),
        Mistake("added", "the halves were added without weights", "O_a and O_b are averages already: they have to be weighted", ("w_a[:, None] * O_a + w_b[:, None] * O_b", "O_a + O_b")),
        Mistake("weighted_by_L", "the weights were L_a and L_b themselves", "the weight of a half is exp(L), the sum of its exponentials",
                ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "L_a / (L_a + L_b), L_b / (L_a + L_b)")),
        Mistake("weights_swapped", "each half got the other's weight", "which L goes with which O", ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp(L_b - L_safe), torch.exp(L_a - L_safe)")),
        Mistake("base_2", "exp was taken as a power of 2: L is a natural logarithm", "torch.exp and torch.log, not exp2 and log2",
                ("torch.logaddexp(L_a, L_b)", "torch.logaddexp2(L_a, L_b)"), ("torch.exp(L_a - L_safe), torch.exp(L_b - L_safe)", "torch.exp2(L_a - L_safe), torch.exp2(L_b - L_safe)")),
        Mistake("unshifted", "exp(L_a) and exp(L_b) were taken as they are, and overflow for large scores", "the shift: subtract the larger of the two before exp",
                ("torch.logaddexp(L_a, L_b)", "torch.log(torch.exp(L_a) + torch.exp(L_b))")),
        Mistake("L_is_sum", "L was L_a + L_b", "the sums are added, not their logarithms", ("torch.logaddexp(L_a, L_b)", "L_a + L_b")),
        Mistake("L_is_sum_only_returned", "the weights are right, but the L that came back was L_a + L_b", "the L that is returned: that of all the keys",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L_a + L_b")),
        Mistake("L_is_max", "L was the larger of L_a and L_b", "L is at least that: log of a sum", ("torch.logaddexp(L_a, L_b)", "torch.maximum(L_a, L_b)")),
        Mistake("L_is_max_weights_normalised", "the weights were right, but L was the larger of L_a and L_b", "the L that is returned: log(exp(L_a) + exp(L_b))",
                ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, torch.maximum(L_a, L_b)")),
        Mistake("L_is_mean", "L was the mean of L_a and L_b", "L of all the keys is larger than either", ("torch.logaddexp(L_a, L_b)", "(L_a + L_b) / 2")),
        Mistake("L_not_log", "L came back as the sum itself, without its logarithm", "the L that is returned: a logarithm", ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, torch.exp(L)")),
        Mistake("no_empty_half", "rows where no half saw a key got NaN, from −inf − (−inf)", "the exponents, where L is −inf", ("L.masked_fill(L == -inf, 0)", "L")),
        Mistake("one_weight", "one weight was taken for all queries", "the shapes: a weight for each query, `[:, None]` against O",
                ("w_a[:, None] * O_a + w_b[:, None] * O_b", "w_a[0] * O_a + w_b[0] * O_b")),
    ],
    variants=[
        Variant("by the maximum", body="""
            top = torch.maximum(L_a, L_b)
            top = torch.where(torch.isfinite(top), top, torch.zeros(()))
            a, b = (L_a - top).exp().unsqueeze(1), (L_b - top).exp().unsqueeze(1)
            total = a + b
            O = (a * O_a + b * O_b) / total.clamp_min(1e-38)
            return O, top + total.squeeze(1).log()
            """),
        Variant("sigmoid", body="""
            w = torch.sigmoid(L_a - L_b).nan_to_num(0.5)[:, None]
            return w * O_a + (1 - w) * O_b, torch.logaddexp(L_a, L_b)
            """),
    ],
    hints=[
        "exp(L_a) is the sum of the exponentials of half a. The sum over all keys is exp(L_a) + exp(L_b).",
        "O_a · exp(L_a) is the undivided sum of half a. Add the two, divide by exp(L): the weights are exp(L_a − L), exp(L_b − L).",
        "Where L is −inf, use 0 in its place in the exponents: both weights are then exp(−inf) = 0.",
    ],
)
