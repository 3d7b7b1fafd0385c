import torch

from flashlab_course.check.cases import BELOW, EDGE, LARGE, L_and_D, Mistake, case_of, drawn, in_float64

P, L_SAFE = "torch.exp(S_ij - L_safe[:, None])", "L_i.masked_fill(L_i == -inf, 0)"
MASK, GIVE = "S_ij = S_ij.masked_fill(hidden, -inf)", "return P_ij, P_ij.T @ dO_i"
MASKED = "(P_ij if hidden is None else P_ij.masked_fill(hidden, 0))"

outputs = [("P_ij", "query", "key"), ("dV_j", "key", "column")]
without = ("autograd",)
features = {"more keys than this tile has": lambda N_k, cols: cols[1] - cols[0] < N_k}


@case_of
def case(N_q, N_k, d, d_v, rows, cols, *, causal=False, scale=0.4, **how):
    """The tile (rows, cols) of attention over all N_k keys: L_i belongs to all of them."""
    Q, K, V, dO = drawn(N_q, N_k, d, d_v, scale=scale, **how)
    (L, _), rows, cols = L_and_D(Q, K, V, dO, causal, scale), slice(*rows), slice(*cols)
    hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_k - N_q + 1)[rows, cols] if causal else None
    return {"Q_i": Q[rows], "K_j": K[cols], "dO_i": dO[rows], "L_i": L[rows], "scale": scale, "hidden": hidden}


cases = [case("all keys in one tile", 3, 5, 4, 6, (0, 3), (0, 5), seed=860),
         case("one tile of two", 3, 8, 5, 6, (0, 3), (4, 8), seed=864),
         case("scores far below 0", 3, 6, 4, 3, (0, 3), (0, 3), below=BELOW, seed=878),
         case("scores in the hundreds", 3, 8, 4, 4, (0, 3), (4, 8), factor=LARGE, seed=876),
         case("a tile on the diagonal", 6, 6, 3, 2, (2, 5), (2, 4), causal=True, seed=880),
         case("a tile with queries that see no key", 5, 3, 3, 2, (0, 4), (0, 3), causal=True, seed=884),
         case("a tile on the diagonal, scores around −997", 6, 6, 3, 2, (2, 5), (2, 5), causal=True, below=EDGE,
              seed=904),
         case("a tile on the diagonal, a negative scale", 6, 6, 3, 2, (2, 5), (2, 4), causal=True, scale=-0.4,
              seed=912),
         case("a tile on the diagonal, a scale of 0", 6, 6, 3, 2, (2, 5), (2, 4), causal=True, scale=0.0, seed=916),
         in_float64(case("a single key", 1, 1, 4, 3, (0, 1), (0, 1), exact=True, scale=0.5, seed=896))]
mistakes = [
    Mistake("softmax_of_tile", "P_ij was the softmax of this tile alone", "the keys over which P_ij is normalised", (P,
             "torch.softmax(S_ij, dim=-1).nan_to_num(0)")),
    Mistake("divided_by_l", "exp(S) was divided by exp(L): each overflows for large scores",
            "where the division by the row's sum stands", (P, "torch.exp(S_ij) / torch.exp(L_safe)[:, None]")),
    Mistake("base_2", "2 was raised to the power S − L, not e", "the base of L's logarithm", (P,
             "torch.exp2(S_ij - L_safe[:, None])")),
    Mistake("scale_missing", "the scores were not multiplied by scale",
            "the scores: they have to be those of the forward pass", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
    Mistake("dV_scaled", "dV was multiplied by scale", "which product scale belongs to", ("P_ij.T @ dO_i",
             "scale * (P_ij.T @ dO_i)")),
    Mistake("mask_missing", "the mask did not reach P_ij: hidden keys got weight",
            "where hidden enters, and whether its result is used", (MASK, "pass")),
    Mistake("mask_inverted", "the mask was used the wrong way round: visible keys were hidden",
            "hidden: what True stands for", ("masked_fill(hidden, -inf)", "masked_fill(~hidden, -inf)")),
    Mistake("mask_before_scale", "the mask came before scale, which turned −inf into +inf or NaN",
            "mask or scale first", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T"), ("L_safe =", "S_ij = S_ij * scale\n    …")),
    Mistake("mask_after_dV", "dV was made from weights without the mask", "the weights that meet dO_i", (MASK, "pass"),
            (GIVE, f"return {MASKED}, P_ij.T @ dO_i")),
    Mistake("hidden_is_a_number", "hidden scores became a number that real scores can reach",
            "the value of a hidden score", ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1000.0)")),
    Mistake("no_empty_row", "a row without a visible key got NaN, from its L of −inf", "the exponent where L_i is −inf",
            (L_SAFE, "L_i")),
    Mistake("empty_row_equal", "a row without a visible key got weights other than 0", "P_ij where L_i is −inf",
            ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1e30)"), (L_SAFE, "L_i.clamp(min=-1e30)")),
]
hints = ["O_i = Σ_j P_ij V_j, so dV_j = Σ_i P_ijᵀ dO_i, and this tile adds one term.",
         "L_i belongs to all keys, also those elsewhere: nothing has to be summed over this tile.",
         "Where L_i is −inf every score of the row is −inf too. Subtract 0 in its place: exp(−inf − 0) = 0."]
