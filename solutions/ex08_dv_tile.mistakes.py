"""Cases and mistakes of ex08_dv_tile."""

import torch

from flashlab import oracle
from flashlab_course.check.cases import (
    BELOW,
    EDGE,
    LARGE,
    LOOSE,
    attention_case,
    epsilon,
    exact,
    far_below,
    in_float64,
    normal,
)
from flashlab_course.check.form import Case, Exercise, Hint, Mistake, Output

inf = float("inf")


def tile_case(name, N_q, N_k, d, d_v, rows, cols, *, causal=False, large=False, factor=None, below=0, exactly=False, seed, features=(), scale=0.5):
    """The tile (rows, cols) of attention over all N_k keys: L_i belongs to all of them."""
    shape = (len(range(*rows.indices(N_q))), len(range(*cols.indices(N_k))))
    inner = attention_case(name, N_q, N_k, d, d_v, causal=causal, seed=seed).features & {"a causal mask", "queries that see no key"}
    features = {*features, *inner, *(["large scores"] if large or factor or below else []), *(["more keys than this tile has"] if shape[1] < N_k else []),
                *(["a tile that is not square"] if shape[0] != shape[1] else [])}

    def make():
        Q, K = normal(N_q, d, seed=seed, factor=factor or (LARGE if large else 1.0)), normal(N_k, d, seed=seed + 1)
        if exactly:
            Q, K = exact(N_q, d, seed=seed), exact(N_k, d, seed=seed + 1)
        if below:
            Q, K = far_below(Q, K, scale, below)
        V, dO = normal(N_k, d_v, seed=seed + 2), normal(N_q, d_v, seed=seed + 3)
        _, L = oracle.attention(Q, K, V, causal=causal, scale=scale)
        hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_k - N_q + 1)[rows, cols] if causal else None
        return {"Q_i": Q[rows], "K_j": K[cols], "dO_i": dO[rows], "L_i": L[rows].float(), "scale": scale, "hidden": hidden}

    return Case(name, make, frozenset(features), {"B_r": shape[0], "B_c": shape[1], "N_k": N_k}, LOOSE if large or factor or below else 0.0)


def truth(Q_i, K_j, dO_i, L_i, scale, hidden):
    S = Q_i.double() @ K_j.double().T * scale
    S = S if hidden is None else S.masked_fill(hidden, -inf)
    P = torch.exp(S - L_i.double().masked_fill(L_i == -inf, 0)[:, None])
    return P, P.T @ dO_i.double()


WEIGHTS = "torch.exp(S_ij - L_safe[:, None])"

EXERCISE = Exercise(
    function="dv_tile",
    outputs=(Output("P_ij", ("query", "key")), Output("dV_j", ("key", "column"))),
    truth=truth,
    without=("autograd",),
    cases=[
        tile_case("all keys in one tile", 2, 3, 3, 2, slice(0, 2), slice(0, 3), seed=860),
        tile_case("one tile of two", 2, 4, 3, 2, slice(0, 2), slice(2, 4), seed=864),
        tile_case("a wide tile", 4, 9, 3, 2, slice(2, 4), slice(3, 6), seed=868),
        tile_case("a square tile, d = d_v", 6, 6, 3, 3, slice(3, 6), slice(0, 3), seed=872),
        tile_case("scores far below 0", 3, 6, 4, 3, slice(0, 3), slice(0, 3), below=BELOW, seed=878, features=["only scores far below 0"]),
        tile_case("scores in the hundreds", 3, 8, 4, 4, slice(0, 3), slice(4, 8), large=True, seed=876),
        tile_case("a tile on the diagonal", 6, 6, 3, 2, slice(2, 5), slice(2, 4), causal=True, seed=880),
        tile_case("a tile with queries that see no key", 5, 3, 3, 2, slice(0, 4), slice(0, 3), causal=True, seed=884),
        tile_case("a tile on the diagonal, scores in the hundreds", 6, 6, 4, 2, slice(2, 5), slice(2, 5), causal=True, factor=300, seed=908),
        tile_case("a tile on the diagonal, scores around −997", 6, 6, 3, 2, slice(2, 5), slice(2, 5), causal=True, below=EDGE, seed=904, features=["only scores far below 0"]),
        tile_case("a tile on the diagonal, a negative scale", 6, 6, 3, 2, slice(2, 5), slice(2, 4), causal=True, scale=-0.4, seed=912),
        tile_case("a tile on the diagonal, a scale of 0", 6, 6, 3, 2, slice(2, 5), slice(2, 4), causal=True, scale=0.0, seed=916),
        tile_case("one query, one key", 1, 1, 3, 2, slice(0, 1), slice(0, 1), seed=888),
        tile_case("scores up to 500", 3, 8, 4, 4, slice(0, 3), slice(2, 6), factor=300, seed=892),
        in_float64(tile_case("a single key", 1, 1, 4, 2, slice(0, 1), slice(0, 1), exactly=True, seed=896)),
    ],
    mistakes=[
        epsilon((WEIGHTS, WEIGHTS + " / (1 + ε)"), what="a small number stood beside L, or under the fraction",
                look="the exponent of P_ij: S − L, with nothing added"),
        Mistake("without_L", "P_ij was exp(S_ij): L was not subtracted, so the rows are not normalised, and large scores overflow", "the exponent: S − L",
                (WEIGHTS, "torch.exp(S_ij)")),
        Mistake("softmax_of_tile", "P_ij was the softmax of this tile alone", "what normalises P: L belongs to all keys, not to the tile's",
                (WEIGHTS, "torch.softmax(S_ij, dim=-1).nan_to_num(0)")),
        Mistake("divided_by_L", "exp(S_ij) was divided by L, which is a logarithm", "P = exp(S − L): L goes into the exponent",
                (WEIGHTS, "torch.exp(S_ij) / L_safe[:, None]"), also=[[(WEIGHTS, "torch.exp(S_ij) / L_i[:, None]")]]),
        Mistake("masked_after_exp", "hidden weights were multiplied by 0 after exp: where exp overflows, inf · 0 is NaN",
                "the mask: masked_fill or torch.where on P_ij, which keeps no inf; −inf before exp needs something other than −inf in the place of L = −inf",
                ("        S_ij = S_ij.masked_fill(hidden, -inf)\n", "        pass\n"), ("torch.exp(S_ij - L_safe[:, None])",
                 "torch.exp(S_ij.masked_fill((L_i == -inf)[:, None], -inf) - L_safe[:, None]) * (1.0 if hidden is None else (~hidden).to(S_ij.dtype))"),
                also=[[("        S_ij = S_ij.masked_fill(hidden, -inf)\n", "        pass\n"), ("L_i.masked_fill(L_i == -inf, 0)", "L_i"),
                       ("torch.exp(S_ij - L_safe[:, None])", "torch.exp(S_ij - L_safe[:, None]) * (1.0 if hidden is None else (~hidden).to(S_ij.dtype))")]]),
        Mistake("hidden_is_a_number", "hidden scores were set to a number such as −1000, and scores near that are not small beside it",
                "the mask: −inf, which no score reaches", ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1000.0)"),
                also=[[("masked_fill(hidden, -inf)", "masked_fill(hidden, -100.0)")], [("masked_fill(hidden, -inf)", "masked_fill(hidden, -999.0)")]]),
        Mistake("number_for_infinity", "a number such as −1000 stood for −inf, in hidden scores and in L: a row without a visible key got weights, and scores "
                "near that number are not small beside it", "−inf, which no score reaches, for hidden scores; and weights of 0 where L_i is −inf",
                ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1000.0)"), ("L_i.masked_fill(L_i == -inf, 0)", "L_i.clamp(min=-1000.0)")),
        Mistake("L_along_keys", "L was subtracted along the wrong axis", "the shape of L in the exponent: L_i[:, None], one number for each row",
                (WEIGHTS, "torch.exp(S_ij - L_safe[None, :])")),
        Mistake("base_2", "2, not e, was raised to the power S − L", "the exponential, exp(S − L): L is a natural logarithm",
                (WEIGHTS, "torch.exp2(S_ij - L_safe[:, None])")),
        Mistake("scale_zero_replaced", "a scale of 0 was taken for no scale at all", "scale is any number, and 0 is one: it multiplies as it is",
                ("Q_i @ K_j.T * scale", "Q_i @ K_j.T * (scale or Q_i.shape[-1] ** -0.5)")),
        Mistake("scale_missing", "the scores were not multiplied by scale, though L was made from scaled ones", "S_ij: Q Kᵀ · scale",
                ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
        Mistake("scale_twice", "the scores were multiplied by scale twice", "S_ij, Q Kᵀ · scale: the scale once in all",
                ("Q_i @ K_j.T * scale", "Q_i @ K_j.T * scale * scale")),
        Mistake("mask_missing", "the mask did not reach P_ij: hidden keys got weight in the recomputation", "P_ij: 0 where hidden, as in the forward",
                ("S_ij.masked_fill(hidden, -inf)", "S_ij")),
        Mistake("mask_inverted", "the mask hid what should be seen", "hidden: True where the key is hidden",
                ("masked_fill(hidden, -inf)", "masked_fill(~hidden, -inf)")),
        Mistake("mask_zero_score", "hidden scores became 0, which still weighs exp(−L)", "the value for hidden scores: exp of it must be 0",
                ("masked_fill(hidden, -inf)", "masked_fill(hidden, 0)")),
        Mistake("no_empty_row", "a row without a visible key got NaN, from its L = −inf", "P_ij where L_i is −inf: every weight is 0",
                ("L_i.masked_fill(L_i == -inf, 0)", "L_i")),
        Mistake("P_not_transposed", "P was not transposed: P dO", "the shapes of dV_j: (B_c, B_r) times (B_r, d_v)", ("P_ij.T @ dO_i", "P_ij @ dO_i")),
        Mistake("dV_of_S", "dV was made from the scores S, not from the weights P", "O = P V: the factor next to V is P",
                ("P_ij.T @ dO_i", "S_ij.T.masked_fill(S_ij.T == -inf, 0) @ dO_i")),
        Mistake("dV_normalised", "dV was divided by the column sums of P", "dV_j is a plain product: key j gets as much as it was looked at",
                ("P_ij.T @ dO_i", "P_ij.T @ dO_i / P_ij.sum(0)[:, None]")),
        Mistake("swapped", "the two results changed places", "the results: P_ij, the weights, first, then dV_j",
                ("return P_ij, P_ij.T @ dO_i", "return P_ij.T @ dO_i, P_ij")),
        Mistake("divided_by_l", "exp(S) and exp(L) were taken one by one: both overflow, or vanish, for large scores",
                "P = exp(S − L): the division stands in the exponent", (WEIGHTS, "torch.exp(S_ij) / torch.exp(L_safe)[:, None]"),
                also=[[(WEIGHTS, "(torch.exp(S_ij) / torch.exp(L_safe)[:, None]).masked_fill(S_ij == -inf, 0)")],
                      [(WEIGHTS, "torch.exp(S_ij) * torch.exp(-L_safe)[:, None]")],
                      [(WEIGHTS, "(torch.exp(S_ij) * torch.exp(-L_safe)[:, None]).masked_fill(S_ij == -inf, 0)")]]),
        Mistake("maximum_for_L", "the row's maximum was subtracted, not L, so the rows are not normalised", "the exponent: S − L",
                (WEIGHTS, "torch.exp(S_ij - S_ij.amax(-1).masked_fill(L_i == -inf, 0)[:, None])"), also=
                     [[(WEIGHTS, "torch.exp(S_ij - S_ij.amax(-1).masked_fill(S_ij.amax(-1) == -inf, 0)[:, None])")]]),
        Mistake("L_added", "L was added in the exponent, not subtracted", "the exponent: S − L", (WEIGHTS, "torch.exp(S_ij + L_safe[:, None])")),
        Mistake("L_scaled", "scale multiplied L as well as the scores: exp((Q Kᵀ − L) · scale)", "the exponent, Q Kᵀ · scale − L: L has the scale in it already",
                ("Q_i @ K_j.T * scale", "Q_i @ K_j.T"), (WEIGHTS, "torch.exp((S_ij - L_safe[:, None]) * scale)")),
        Mistake("divided_twice", "P was divided by the row sums of this tile", "P = exp(S − L) is normalised already, over all keys",
                (WEIGHTS, WEIGHTS + "\n    P_ij = (P_ij / P_ij.sum(-1, keepdim=True)).nan_to_num(0)")),
        Mistake("log_P", "P was S − L, without exp", "P = exp(S − L)", (WEIGHTS, "(S_ij - L_safe[:, None]).masked_fill(S_ij == -inf, 0)"),
                also=[[(WEIGHTS, "S_ij - L_safe[:, None]")]]),
        Mistake("scale_d", "the scores were multiplied by 1/√d: scale was not used", "S_ij, Q Kᵀ · scale: scale is an argument",
                ("* scale", "* Q_i.shape[-1] ** -0.5")),
        Mistake("mask_after_dV", "P came back masked, but dV was made from weights without the mask", "dV_j = Pᵀ dO, where P is 0 for hidden keys",
                ("S_ij = S_ij.masked_fill(hidden, -inf)", "pass"),
                ("return P_ij, P_ij.T @ dO_i", "return P_ij if hidden is None else P_ij.masked_fill(hidden, 0), P_ij.T @ dO_i"),
                also=[[("S_ij = S_ij.masked_fill(hidden, -inf)", "pass"),
                       ("return P_ij, P_ij.T @ dO_i", "return P_ij if hidden is None else P_ij.masked_fill(hidden, 0), P_ij.T @ dO_i"),
                       ("L_i.masked_fill(L_i == -inf, 0)", "L_i")]]),
        Mistake("mask_only_in_dV", "hidden weights were left out of dV, but P came back with them", "P_ij: 0 where hidden, for dV_j and as it comes back",
                ("S_ij = S_ij.masked_fill(hidden, -inf)", "pass"),
                ("return P_ij, P_ij.T @ dO_i", "return P_ij, (P_ij if hidden is None else P_ij.masked_fill(hidden, 0)).T @ dO_i"),
                also=[[("S_ij = S_ij.masked_fill(hidden, -inf)", "pass"), ("L_i.masked_fill(L_i == -inf, 0)", "L_i"),
                       ("return P_ij, P_ij.T @ dO_i", "return P_ij, (P_ij if hidden is None else P_ij.masked_fill(hidden, 0)).T @ dO_i")]]),
        Mistake("empty_row_equal", "a row without a visible key got weights, not 0", "P_ij where L_i is −inf: every weight is 0",
                ("S_ij.masked_fill(hidden, -inf)", "S_ij.masked_fill(hidden, -1e30)"), ("L_i.masked_fill(L_i == -inf, 0)", "L_i.clamp(min=-1e30)")),
        Mistake("dV_scaled", "dV was multiplied by scale", "dV_j = Pᵀ dO: scale belongs to S alone", ("P_ij.T @ dO_i", "scale * (P_ij.T @ dO_i)")),
        Mistake("dV_averaged", "dV was divided by the number of queries", "dV_j is a plain product", ("P_ij.T @ dO_i", "P_ij.T @ dO_i / len(Q_i)")),
        Mistake("Q_for_dO", "dV was made from Q, not from dO", "dV_j = Pᵀ dO", ("P_ij.T @ dO_i", "P_ij.T @ Q_i[:, : dO_i.shape[1]]")),
        Mistake("L_clamped", "L was cut off at a number that scores can fall below, so that rows far below 0 lost their weights",
                "the exponent: L as it is; only −inf needs a stand-in", ("L_i.masked_fill(L_i == -inf, 0)", "L_i.clamp(min=-100)"),
                also=[[("L_i.masked_fill(L_i == -inf, 0)", f"L_i.clamp(min={x})")] for x in (0, -1, -10, -50, -80, -88, -500)]),
        Mistake("indexed_by_none", "every key was hidden where hidden is None: as an index, S[None], it means all of S",
                "hidden may be None: then no key of the tile is hidden", ("if hidden is not None:", "if True:"),
                ("S_ij.masked_fill(hidden, -inf)", "S_ij.masked_fill(S_ij == S_ij if hidden is None else hidden, -inf)")),
        Mistake("mask_before_scale", "hidden scores were set to −inf before they were multiplied by scale: a negative scale makes +inf of them, 0 NaN",
                "the order: first the product with scale, then the mask", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T"),
                ("L_safe =", "S_ij = S_ij * scale\n    L_safe =")),
        Mistake("L_left_natural", "S was taken to base 2 and L was not: 2 to the power of S · log2(e) − L",
                "the exponent: L is a natural logarithm, so exp(S − L), or 2 to the power of (S − L) · log2(e)",
                (WEIGHTS, "torch.exp2(S_ij * 1.4426950408889634 - L_safe[:, None])")),
        Mistake("lowest_number_and_L", "hidden scores were a finite number, and L = −inf was subtracted from it: that is inf, and so is its exponential",
                "rows with L_i = −inf: weights of 0, whatever stands for hidden scores",
                ("masked_fill(hidden, -inf)", "masked_fill(hidden, torch.finfo(S_ij.dtype).min)"), ("L_i.masked_fill(L_i == -inf, 0)", "L_i")),
    ],
    hints=[
        "exp(S − L) = exp(S − m) / l: the division is inside the exponent already, so there is no second pass over the row.",
        "O_i = Σ_j P_ij V_j, so that dV_j = Σ_i P_ijᵀ dO_i. This tile adds one term.",
        "Where L_i is −inf every score of the row is −inf too. Subtract 0 in its place: exp(−inf − 0) = 0.",
        Hint("A tile with all keys is right: so P_ij is normalised over the keys of this tile alone. What has L_i to do with the keys that are elsewhere?",
             "more keys than this tile has"),
        Hint("Only queries that see no key fail: their L_i is −inf, and so are all their scores. What is the difference, and which weight do they want?",
             "queries that see no key"),
        Hint("Only large scores fail: exp(S) and exp(L) overflow one by one. Where can they meet before exp?", "large scores"),
    ],
)
