import torch

from flashlab_course.check.cases import Mistake, case_of, in_float64, normal

Z, DV, DP = "keep / (1 - dropout_p)", "(P_ij * Z_ij).T @ dO_i", "(dO_i @ V_j.T) * Z_ij"
DS = "P_ij * (dP_ij - D_i[:, None])"

outputs = [("dV_j", "key", "column"), ("dS_ij", "query", "key")]
without = ("autograd",)
features = {"dropout": lambda p: p > 0, "more keys than this tile has": lambda N_k, cols: cols[1] - cols[0] < N_k}


def truth(P_ij, dO_i, V_j, D_i, keep, dropout_p):
    P, dO, V, D = (T.double() for T in (P_ij, dO_i, V_j, D_i))
    Z = keep.double() / (1 - dropout_p)
    return (P * Z).T @ dO, P * (dO @ V.T * Z - D[:, None])


@case_of
def case(N_q, N_k, d_v, rows, cols, p, *, seed):
    S, V, dO = (normal(*shape, seed=seed + n) for n, shape in enumerate(((N_q, N_k), (N_k, d_v), (N_q, d_v))))
    P = torch.softmax(S, -1)
    keep = torch.rand(N_q, N_k, generator=torch.Generator().manual_seed(seed)) >= p
    D, rows, cols = (dO * ((P * keep / (1 - p)) @ V)).sum(-1), slice(*rows), slice(*cols)
    return {"P_ij": P[rows, cols], "dO_i": dO[rows], "V_j": V[cols], "D_i": D[rows], "keep": keep[rows, cols],
            "dropout_p": p}


cases = [case("nothing dropped", 3, 5, 4, (0, 3), (0, 5), p=0.0, seed=1100),
         case("all keys in one tile", 3, 4, 5, (0, 3), (0, 4), p=0.4, seed=1103),
         case("one tile of two", 4, 8, 3, (0, 4), (4, 8), p=0.25, seed=1106),
         case("most dropped", 6, 12, 5, (2, 6), (0, 8), p=0.8, seed=1112),
         case("one query, one key", 1, 2, 2, (0, 1), (0, 1), p=0.4, seed=1118),
         in_float64(case("half dropped, one query", 1, 6, 2, (0, 1), (0, 4), p=0.5, seed=1124))]
mistakes = [
    Mistake("divided_by_p", "what stays was divided by p, not by 1 − p", "the share of the weights that stays", (Z,
             "keep / max(dropout_p, 1e-9)")),
    Mistake("not_rescaled", "what stays was not divided by 1 − p", "the mean of the weights after dropout", (Z,
             "keep * 1.0")),
    Mistake("multiplied", "what stays was multiplied by 1 − p, not divided",
            "whether Z leaves the mean of the weights as it was", (Z, "keep * (1 - dropout_p)")),
    Mistake("mask_inverted", "dropped weights were kept, and kept ones dropped", "what True means in keep", (Z,
             "~keep / (1 - dropout_p)")),
    Mistake("measured_rate", "what stays was divided by the share that stayed in this tile", "the denominator of Z", (Z,
             "keep / (keep * 1.0).mean().clamp_min(1e-9)"), also=[[(Z, "keep / (keep * 1.0).mean()")]]),
    Mistake("dV_not_rescaled", "dV was made from P∘keep, without the division by 1 − p",
            "what V was multiplied by in the forward", (DV, "(P_ij * keep).T @ dO_i")),
    Mistake("dV_without_dropout", "dV was made from P as it was before dropout",
            "what V was multiplied by in the forward", (DV, "P_ij.T @ dO_i")),
    Mistake("dP_not_rescaled", "dP was masked, but not divided by 1 − p", "the factor that took P to what met V", (DP,
             "(dO_i @ V_j.T) * keep")),
    Mistake("dropped_P_in_dS", "dS was made from P∘Z in place of P", "which P the softmax gave", (DS,
             "P_ij * Z_ij * (dP_ij - D_i[:, None])")),
    Mistake("D_masked", "D was multiplied by Z as well", "what Z multiplies in dS: only one of the two terms", (DS,
             "P_ij * (dP_ij - D_i[:, None] * Z_ij)")),
    Mistake("dS_keep_only", "dS was set to 0 where a weight was dropped",
            "dropped weights: they were still part of the softmax", (DS, DS + " * keep")),
    Mistake("D_of_tile", "D was computed anew, from the keys of this tile alone",
            "D_i: it is given, and it covers all keys", (DS, "P_ij * (dP_ij - (P_ij * dP_ij).sum(-1, keepdim=True))")),
    Mistake("D_along_keys", "D was subtracted along the keys, not along the queries", "the shape of D_i in dS", (DS,
             "P_ij * (dP_ij - D_i.repeat(P_ij.shape[1])[: P_ij.shape[1]])"), also=[[(DS, "P_ij * (dP_ij - D_i)")]]),
    Mistake("D_divided", "D was divided by 1 − p", "the O that D was made from", (DS,
             "P_ij * (dP_ij - D_i[:, None] / (1 - dropout_p))")),
    Mistake("D_added", "D was added, not subtracted", "the sign of D", (DS, "P_ij * (dP_ij + D_i[:, None])")),
]
hints = ["The mask is given, so Z_ij is a constant here: dropout multiplies by it, forward and backward.",
         "V met P∘Z in the forward. What is the gradient of a product with respect to V?",
         "Go back in order: first through the product with V, then dropout, then the softmax."]
