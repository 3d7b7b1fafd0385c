"""Cases and mistakes of ex11_dropout."""

import torch

from flashlab_course.check.cases import EPSILONS, epsilon, in_float64, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N_q, N_k, d_v, rows, cols, *, p, seed):
    shape = (len(range(*rows.indices(N_q))), len(range(*cols.indices(N_k))))
    features = {"dropout": p > 0, "more keys than this tile has": shape[1] < N_k, "a tile that is not square": shape[0] != shape[1]}

    def make():
        P = torch.softmax(normal(N_q, N_k, seed=seed), -1)
        V, dO = normal(N_k, d_v, seed=seed + 1), normal(N_q, d_v, seed=seed + 2)
        keep = torch.rand(N_q, N_k, generator=torch.Generator().manual_seed(seed)) >= p
        D = (dO * ((P * keep / (1 - p)) @ V)).sum(-1)
        return {"P_ij": P[rows, cols], "dO_i": dO[rows], "V_j": V[cols], "D_i": D[rows], "keep": keep[rows, cols], "dropout_p": p}

    return Case(name, make, frozenset(f for f, holds in features.items() if holds), {"B_r": shape[0], "B_c": shape[1], "N_k": N_k, "p": p})


def truth(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    P, dO, V, D = (T.double() for T in (P_ij, dO_i, V_j, D_i))
    Z = keep.double() / (1 - dropout_p)
    return (P * Z).T @ dO, P * (dO @ V.T * Z - D[:, None])


Z, DV, DP, DS = "keep / (1 - dropout_p)", "(P_ij * Z_ij).T @ dO_i", "(dO_i @ V_j.T) * Z_ij", "P_ij * (dP_ij - D_i[:, None])"

EXERCISE = Exercise(
    function="dropout_tile",
    outputs=(Output("dV_j", ("key", "column")), Output("dS_ij", ("query", "key"))),
    truth=truth,
    without=("autograd",),
    cases=[
        case("nothing dropped", 2, 3, 2, slice(0, 2), slice(0, 3), p=0.0, seed=1100),
        case("all keys in one tile", 3, 4, 2, slice(0, 3), slice(0, 4), p=0.4, seed=1103),
        case("one tile of two", 4, 8, 3, slice(0, 4), slice(4, 8), p=0.25, seed=1106),
        case("half dropped", 4, 9, 3, slice(0, 4), slice(2, 7), p=0.5, seed=1109),
        case("most dropped", 6, 12, 4, slice(2, 6), slice(0, 8), p=0.8, seed=1112),
        case("a square tile", 4, 8, 4, slice(0, 4), slice(2, 6), p=0.3, seed=1115),
        case("one query, one key", 1, 2, 2, slice(0, 1), slice(0, 1), p=0.4, seed=1118),
        in_float64(case("half dropped, one query", 1, 6, 2, slice(0, 1), slice(0, 4), p=0.5, seed=1124)),
    ],
    mistakes=[
        epsilon((Z, "keep / (1 - dropout_p + ε)"), sizes=EPSILONS[:5], what="a small number was added to 1 − p",
                look="Z: p is less than 1, so the division needs no ε"),
        Mistake("one_plus_p", "what stays was divided by 1 + p, not by 1 − p", "Z: the mean of keep is 1 − p, and keep / (1 − p) has the mean 1",
                (Z, "keep / (1 + dropout_p)")),
        Mistake("not_rescaled", "what stays was not divided by 1 − p", "Z: dropout must leave the mean as it was", (Z, "keep * 1.0")),
        Mistake("multiplied", "what stays was multiplied by 1 − p, not divided", "Z = keep / (1 − p)", (Z, "keep * (1 - dropout_p)")),
        Mistake("mask_inverted", "what was dropped in the forward was kept, and the other way round", "what True means in keep", (Z, "~keep / (1 - dropout_p)")),
        Mistake("dV_not_rescaled", "dV was made from P∘keep, without the division by 1 − p", "what met V in the forward: P∘Z", (DV, "(P_ij * keep).T @ dO_i")),
        Mistake("dP_not_rescaled", "dP was masked, but not divided by 1 − p", "dP = (dO Vᵀ)∘Z: times Z, not times keep", (DP, "(dO_i @ V_j.T) * keep")),
        Mistake("dropped_P_in_dS", "dS was made from P∘Z where P belongs", "the softmax gradient: its P is what the softmax gave, before dropout",
                (DS, "P_ij * Z_ij * (dP_ij - D_i[:, None])")),
        Mistake("D_masked", "D was multiplied by Z, too: dS was P∘Z∘(dO Vᵀ − D)",
                "where a weight was dropped, S still moves the others through the softmax: −P·D stays", (DS, "P_ij * (dP_ij - D_i[:, None] * Z_ij)")),
        Mistake("D_of_tile", "D was the row sum of P∘dP of this tile alone", "D_i: its sum runs over all keys, and it is given",
                (DS, "P_ij * (dP_ij - (P_ij * dP_ij).sum(-1, keepdim=True))")),
        Mistake("D_added", "D was added, not subtracted", "the sign of D: dS = P∘(dP − D)", (DS, "P_ij * (dP_ij + D_i[:, None])")),
        Mistake("D_along_keys", "D was subtracted along the wrong axis", "D_i[:, None]: one number for each row",
                (DS, "P_ij * (dP_ij - D_i.repeat(P_ij.shape[1])[: P_ij.shape[1]])"), also=[[(DS, "P_ij * (dP_ij - D_i)")]]),
        Mistake("dS_keep_only", "dS was set to 0 where a weight was dropped", "where a weight was dropped, S still moves the others: −P·D stays",
                (DS, "P_ij * (dP_ij - D_i[:, None]) * keep")),
        Mistake("D_divided", "D was divided by 1 − p", "D_i comes from the O that dropout went into: it needs nothing more",
                (DS, "P_ij * (dP_ij - D_i[:, None] / (1 - dropout_p))")),
        Mistake("measured_rate", "what stays was divided by the share that happened to stay in this tile, not by 1 − p",
                "Z: 1 − p is the chance to stay, whatever this tile has drawn", (Z, "keep / (keep * 1.0).mean().clamp_min(1e-9)"),
                also=[[(Z, "keep / (keep * 1.0).mean()")]]),
    ],
    hints=[
        "Z_ij = keep / (1 − p) is a constant of this step: it multiplies P on the way forward and dP on the way back.",
        "dV_j = (P_ij ∘ Z_ij)ᵀ dO_i, since P∘Z is what V was multiplied by.",
        "dS_ij = P_ij ∘ (dP_ij − D_i): this P is the softmax's own. Only dP has Z in it.",
    ],
)
