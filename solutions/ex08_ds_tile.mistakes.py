"""Cases and mistakes of ex08_ds_tile."""

import torch

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N_q, N_k, d, d_v, rows, cols, *, scale=0.5, hide=False, seed):
    """The tile (rows, cols) of attention over all N_k keys: D_i belongs to all of them."""
    shape = (len(range(*rows.indices(N_q))), len(range(*cols.indices(N_k))))
    features = {"more keys than this tile has": shape[1] < N_k, "a tile that is not square": shape[0] != shape[1], "hidden keys": hide,
                "d_v ≠ d": d_v != d, "a scale other than 1": scale != 1.0}

    def make():
        Q, K, V, dO = (normal(n, x, seed=seed + k) for k, (n, x) in enumerate(((N_q, d), (N_k, d), (N_k, d_v), (N_q, d_v))))
        S = Q.double() @ K.double().T * scale
        P = torch.softmax(S.masked_fill(torch.ones(N_q, N_k, dtype=torch.bool).triu(1), -torch.inf) if hide else S, -1)
        D = (dO.double() * (P @ V.double())).sum(-1)
        return {"Q_i": Q[rows], "K_j": K[cols], "V_j": V[cols], "P_ij": P[rows, cols].float(), "dO_i": dO[rows], "D_i": D[rows].float(), "scale": scale}

    return Case(name, make, frozenset(f for f, holds in features.items() if holds), {"B_r": shape[0], "B_c": shape[1], "N_k": N_k, "d": d, "d_v": d_v})


def truth(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    Q_i, K_j, V_j, P_ij, dO_i, D_i = (T.double() for T in (Q_i, K_j, V_j, P_ij, dO_i, D_i))
    dS = P_ij * (dO_i @ V_j.T - D_i[:, None])
    return scale * dS @ K_j, scale * dS.T @ Q_i


DS, DQ, DK = "P_ij * (dP_ij - D_i[:, None])", "scale * (dS_ij @ K_j)", "scale * (dS_ij.T @ Q_i)"

EXERCISE = Exercise(
    function="ds_tile",
    outputs=(Output("dQ_i", ("query", "column")), Output("dK_j", ("key", "column"))),
    truth=truth,
    without=("autograd",),
    cases=[
        case("all keys in one tile", 2, 3, 3, 3, slice(0, 2), slice(0, 3), scale=1.0, seed=890),
        case("a scale", 2, 3, 3, 3, slice(0, 2), slice(0, 3), seed=890),
        case("one tile of two", 2, 4, 3, 3, slice(0, 2), slice(2, 4), seed=894),
        case("a square tile", 6, 6, 3, 3, slice(3, 6), slice(0, 3), seed=898),
        case("a wide tile, d_v ≠ d", 4, 9, 4, 2, slice(1, 4), slice(2, 7), scale=0.3, seed=902),
        case("hidden keys", 6, 6, 3, 2, slice(2, 5), slice(2, 4), hide=True, seed=906),
        case("a scale of 0", 2, 4, 3, 3, slice(0, 2), slice(2, 4), scale=0.0, seed=919),
        case("a negative scale", 2, 4, 3, 3, slice(0, 2), slice(2, 4), scale=-0.4, seed=923),
        case("one query, one key", 1, 1, 3, 2, slice(0, 1), slice(0, 1), seed=911),
        case("a tall tile, d_v ≠ d", 7, 5, 3, 4, slice(0, 6), slice(1, 3), scale=0.7, seed=915),
    ],
    mistakes=[
        Mistake("no_D", "D was left out: dS was P∘dP", "dS_ij: P∘(dP − D)", (DS, "P_ij * dP_ij")),
        Mistake("D_of_tile", "D was the row sum of P∘dP of this tile alone", "D_i: its sum runs over all keys, and it is given",
                (DS, "P_ij * (dP_ij - (P_ij * dP_ij).sum(-1, keepdim=True))")),
        Mistake("D_along_keys", "D was subtracted along the wrong axis", "the shape of D in the bracket: D_i[:, None], one number for each row",
                (DS, "P_ij * (dP_ij - D_i[None, :])")),
        Mistake("D_added", "D was added, not subtracted", "dS_ij: P∘(dP − D)", (DS, "P_ij * (dP_ij + D_i[:, None])")),
        Mistake("P_at_D_only", "dP was not multiplied by P, D was: dP − P∘D", "the brackets in dS_ij: P∘(dP − D), P in front of both",
                (DS, "dP_ij - P_ij * D_i[:, None]")),
        Mistake("P_missing", "dP − D was not multiplied by P", "dS_ij: P∘(dP − D)", (DS, "dP_ij - D_i[:, None]")),
        Mistake("dS_is_dP", "dP was used for dS: the gradient never went through the softmax", "dS_ij: P∘(dP − D)", (DS, "dP_ij")),
        Mistake("scale_missing_dQ", "dQ was not multiplied by scale", "S = scale · Q Kᵀ: the factor stands in both gradients", (DQ, "dS_ij @ K_j")),
        Mistake("scale_missing_dK", "dK was not multiplied by scale", "S = scale · Q Kᵀ: the factor stands in both gradients", (DK, "dS_ij.T @ Q_i")),
        Mistake("scale_missing", "neither dQ nor dK was multiplied by scale", "S = scale · Q Kᵀ: the factor stands in both gradients", (DQ, "dS_ij @ K_j"),
                (DK, "dS_ij.T @ Q_i")),
        Mistake("scale_twice", "dQ and dK held the scale twice", "each place where the scale enters dQ_i and dK_j: once on the way to each",
                (DS, "scale * " + DS)),
        Mistake("dS_not_transposed", "dS was not transposed for dK", "the shapes of dK_j: (B_c, B_r) times (B_r, d)", (DK, "scale * (dS_ij @ Q_i)")),
        Mistake("K_for_Q", "dK was made from K, not from Q", "dK = scale · dSᵀ Q: the factor next to K is Q",
                (DK, "scale * (dS_ij.T @ K_j[:1].expand(len(Q_i), -1))")),
        Mistake("P_for_dS", "dQ was made from P, not from dS", "what reaches Q has to go through dS", (DQ, "scale * (P_ij @ K_j)")),
        Mistake("V_not_transposed", "dO was multiplied by V, not by its transpose", "the shapes of dP_ij: (B_r, d_v) times (d_v, B_c)",
                ("dO_i @ V_j.T", "dO_i @ V_j")),
        Mistake("K_for_V", "dP was made from K, not from V", "O = P V: the factor next to P is V", ("dO_i @ V_j.T", "dO_i @ K_j[:, : dO_i.shape[1]].T")),
        Mistake("swapped", "the two results changed places", "the results: dQ_i = scale · dS K first, then dK_j = scale · dSᵀ Q",
                ("return dQ_i, dK_j", "return dK_j, dQ_i")),
        Mistake("scale_twice_in_both", "dQ and dK held the scale twice", "each place where the scale enters dQ_i and dK_j: once on the way to each",
                (DQ, "scale * scale * (dS_ij @ K_j)"), (DK, "scale * scale * (dS_ij.T @ Q_i)"), same_as="scale_twice"),
        Mistake("scale_divided", "dQ and dK were divided by scale", "S = scale · Q Kᵀ: the factor stands in both gradients", (DQ, "(dS_ij @ K_j) / scale"),
                (DK, "(dS_ij.T @ Q_i) / scale")),
        Mistake("scale_in_dP", "scale multiplied dP and not D: dS was P∘(scale · dP − D)",
                "dS_ij: scale stands outside the bracket, scale · P∘(dP − D), or comes with K and Q", (DS, "P_ij * (scale * dP_ij - D_i[:, None])"),
                (DQ, "dS_ij @ K_j"), (DK, "dS_ij.T @ Q_i")),
        Mistake("D_twice", "D was subtracted twice", "dS_ij: P∘(dP − D)", (DS, "P_ij * (dP_ij - 2 * D_i[:, None])")),
        Mistake("D_outside", "D was subtracted after the product with P: P∘dP − D", "the brackets in dS_ij: P∘(dP − D)", (DS, "P_ij * dP_ij - D_i[:, None]")),
        Mistake("dS_negative", "dQ and dK had the wrong sign, as if dS were P∘(D − dP)", "the signs: dS = P∘(dP − D), and none in front of dQ and dK",
                (DS, "P_ij * (D_i[:, None] - dP_ij)")),
        Mistake("P_twice", "dS was multiplied by P twice", "dS_ij: P∘(dP − D)", (DS, "P_ij * P_ij * (dP_ij - D_i[:, None])")),
        Mistake("diagonal_only", "only the diagonal of the softmax's Jacobian was used: P∘(1 − P)∘dP", "dS_ij: P∘(dP − D)", (DS, "P_ij * (1 - P_ij) * dP_ij")),
        Mistake("P_for_dS_dK", "dK was made from P, not from dS", "what reaches K has to go through dS", (DK, "scale * (P_ij.T @ Q_i)")),
        Mistake("P_for_dS_both", "dQ and dK were made from P, not from dS", "what reaches Q and K has to go through dS", (DQ, "scale * (P_ij @ K_j)"),
                (DK, "scale * (P_ij.T @ Q_i)")),
        Mistake("dO_for_Q", "dK was made from dO, not from Q", "dK = scale · dSᵀ Q: the factor next to K is Q",
                (DK, "scale * (dS_ij.T @ dO_i.repeat(1, 2)[:, : Q_i.shape[1]])"), also=[[(DK, "scale * (dS_ij.T @ dO_i)")]]),
        Mistake("V_for_K", "dQ was made from V, not from K", "dQ = scale · dS K: the factor next to Q is K",
                (DQ, "scale * (dS_ij @ V_j.repeat(1, 2)[:, : K_j.shape[1]])"), also=[[(DQ, "scale * (dS_ij @ V_j)")]]),
        Mistake("softmax_again", "P was put through a softmax again", "P_ij is given, and final", (DS, "P_ij.softmax(-1) * (dP_ij - D_i[:, None])")),
        Mistake("D_of_everything", "D was one number for the whole tile", "D_i[:, None]: a number for each row", (DS, "P_ij * (dP_ij - D_i.sum())"),
                also=[[(DS, "P_ij * (dP_ij - D_i.mean())")]]),
        Mistake("D_divided_by_keys", "D was divided by the number of keys in the tile", "D_i is subtracted from every entry of its row as it is",
                (DS, "P_ij * (dP_ij - D_i[:, None] / len(K_j))")),
        Mistake("scale_twice_in_one", "dK held the scale twice, dQ once", "each place where the scale enters dK_j, Q and dS with it: once in all",
                (DK, "scale * scale * (dS_ij.T @ Q_i)")),
        Mistake("scale_twice_in_dQ", "dQ held the scale twice, dK once", "each place where the scale enters dQ_i, K and dS with it: once in all",
                (DQ, "scale * scale * (dS_ij @ K_j)")),
        Mistake("D_averaged_in_tile", "D was the mean of dP over this tile alone, weighted by P and divided by the weights' sum in the tile",
                "D_i: its sum runs over all keys, and it is given",
                (DS, "P_ij * (dP_ij - ((P_ij * dP_ij).sum(-1) / P_ij.sum(-1).masked_fill(P_ij.sum(-1) == 0, 1))[:, None])")),
    ],
    hints=[
        "dP_ij is the other gradient of O = P V: dO_i V_jᵀ. dS_ij is the softmax gradient, with the D_i that is given.",
        "D_i[:, None] makes a column: each row subtracts its own number.",
        "S = scale · Q Kᵀ gives dQ = scale · dS K and dK = scale · dSᵀ Q. The scale stands in each once.",
    ],
)
