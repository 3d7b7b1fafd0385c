"""Cases and mistakes of ex08_dv_tile."""

import torch

from flashlab import oracle
from flashlab.check.cases import LARGE, LOOSE, attention_case, normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant

inf = float("inf")


def tile_case(name, N_q, N_k, d, d_v, rows, cols, *, causal=False, large=False, seed, features=()):
    """The tile (rows, cols) of attention over all N_k keys: L_i belongs to all of them."""
    shape = (len(range(*rows.indices(N_q))), len(range(*cols.indices(N_k))))
    inner = attention_case(name, N_q, N_k, d, d_v, causal=causal, seed=seed).features & {"a causal mask", "queries that see no key"}
    features = {*features, *inner, *(["large scores"] if large else []), *(["more keys than this tile has"] if shape[1] < N_k else []),
                *(["a tile that is not square"] if shape[0] != shape[1] else [])}

    def make():
        Q, K = normal(N_q, d, seed=seed, factor=LARGE if large else 1.0), normal(N_k, d, seed=seed + 1)
        V, dO = normal(N_k, d_v, seed=seed + 2), normal(N_q, d_v, seed=seed + 3)
        _, L = oracle.attention(Q, K, V, causal=causal, scale=0.5)
        hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_k - N_q + 1)[rows, cols] if causal else None
        return {"Q_i": Q[rows], "K_j": K[cols], "dO_i": dO[rows], "L_i": L[rows].float(), "scale": 0.5, "hidden": hidden}

    return Case(name, make, frozenset(features), {"B_r": shape[0], "B_c": shape[1], "N_k": N_k}, LOOSE if large else 0.0)


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
    cases=[
        tile_case("all keys in one tile", 2, 3, 3, 2, slice(0, 2), slice(0, 3), seed=860),
        tile_case("one tile of two", 2, 4, 3, 2, slice(0, 2), slice(2, 4), seed=864),
        tile_case("a wide tile", 4, 9, 3, 2, slice(2, 4), slice(3, 6), seed=868),
        tile_case("a square tile, d = d_v", 6, 6, 3, 3, slice(3, 6), slice(0, 3), seed=872),
        tile_case("scores in the hundreds", 3, 8, 4, 4, slice(0, 3), slice(4, 8), large=True, seed=876),
        tile_case("a tile on the diagonal", 6, 6, 3, 2, slice(2, 5), slice(2, 4), causal=True, seed=880),
        tile_case("a tile with queries that see no key", 5, 3, 3, 2, slice(0, 4), slice(0, 3), causal=True, seed=884),
    ],
    mistakes=[
        Mistake("without_L", "P_ij was exp(S_ij): L was not subtracted, so the rows are not normalised, and large scores overflow", "the exponent: S − L",
                (WEIGHTS, "torch.exp(S_ij)")),
        Mistake("softmax_of_tile", "P_ij was the softmax of this tile alone", "what normalises P: L belongs to all keys, not to the tile's",
                (WEIGHTS, "torch.softmax(S_ij, dim=-1).nan_to_num(0)")),
        Mistake("divided_by_L", "exp(S_ij) was divided by L, which is a logarithm", "P = exp(S − L): L goes into the exponent", (WEIGHTS, "torch.exp(S_ij) / L_safe[:, None]")),
        Mistake("L_along_keys", "L was subtracted along the wrong axis", "the shape of L in the exponent: L_i[:, None], one number for each row", (WEIGHTS, "torch.exp(S_ij - L_safe[None, :])")),
        Mistake("base_2", "exp2 was taken of a natural logarithm's difference", "the exponential: L is a natural logarithm", (WEIGHTS, "torch.exp2(S_ij - L_safe[:, None])")),
        Mistake("scale_missing", "the scores were not multiplied by scale, though L was made from scaled ones", "the line of S_ij", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
        Mistake("scale_twice", "the scores were multiplied by scale twice", "each place where scale appears", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T * scale * scale")),
        Mistake("mask_missing", "the mask was forgotten: hidden keys got weight in the recomputation", "the recomputed S_ij needs the forward's mask", ("S_ij.masked_fill(hidden, -inf)", "S_ij")),
        Mistake("mask_inverted", "the mask hid what should be seen", "what True means in hidden", ("masked_fill(hidden, -inf)", "masked_fill(~hidden, -inf)")),
        Mistake("mask_zero_score", "hidden scores were set to 0, which still weighs exp(−L)", "the value for hidden scores: exp of it must be 0", ("masked_fill(hidden, -inf)", "masked_fill(hidden, 0)")),
        Mistake("no_empty_row", "a row without a visible key got NaN, from −inf − (−inf)", "the exponent, where L_i is −inf", ("L_i.masked_fill(L_i == -inf, 0)", "L_i")),
        Mistake("P_not_transposed", "P was not transposed: P dO", "the shapes of dV_j: (B_c, B_r) times (B_r, d_v)", ("P_ij.T @ dO_i", "P_ij @ dO_i")),
        Mistake("dV_of_S", "dV was made from the scores S, not from the weights P", "O = P V: the factor next to V is P", ("P_ij.T @ dO_i", "S_ij.T.masked_fill(S_ij.T == -inf, 0) @ dO_i")),
        Mistake("dV_normalised", "dV was divided by the column sums of P", "dV_j is a plain product: key j gets as much as it was looked at", ("P_ij.T @ dO_i", "P_ij.T @ dO_i / P_ij.sum(0)[:, None]")),
        Mistake("swapped", "the two results were returned in the other order", "the last line: P_ij, then dV_j", ("return P_ij, P_ij.T @ dO_i", "return P_ij.T @ dO_i, P_ij")),
    ],
    variants=[
        Variant("scaled Q, weights set to 0 where hidden", body="""
            P = torch.exp((Q_i * scale) @ K_j.T - L_i.clamp_min(-1e30)[:, None])
            if hidden is not None:
                P = torch.where(hidden, torch.zeros_like(P), P)
            return P, torch.einsum("rc,rv->cv", P, dO_i)
            """),
    ],
    hints=[
        "exp(S − L) = exp(S − m) / l: the division is inside the exponent already, so there is no second pass over the row.",
        "O_i = Σ_j P_ij V_j, so that dV_j = Σ_i P_ijᵀ dO_i. This tile adds one term.",
        "Where L_i is −inf every score of the row is −inf too. Subtract 0 in its place: exp(−inf − 0) = 0.",
    ],
)
