import torch

from flashlab_course.check.cases import Mistake, case_of, drawn

DS, DQ, DK = "P_ij * (dP_ij - D_i[:, None])", "scale * (dS_ij @ K_j)", "scale * (dS_ij.T @ Q_i)"

outputs = [("dQ_i", "query", "column"), ("dK_j", "key", "column")]
without = ("autograd",)
features = {"a scale other than 1": lambda scale: scale != 1}


@case_of
def case(N_q, N_k, d, d_v, rows, cols, *, scale=0.4, hide=False, seed):
    """The tile (rows, cols) of attention over all N_k keys: D_i belongs to all of them."""
    (Q, K, V, dO), rows, cols = drawn(N_q, N_k, d, d_v, seed=seed), slice(*rows), slice(*cols)
    hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(1) & hide
    P = torch.softmax((Q @ K.T * scale).masked_fill(hidden, -torch.inf), -1)
    return {"Q_i": Q[rows], "K_j": K[cols], "V_j": V[cols], "P_ij": P[rows, cols], "dO_i": dO[rows],
            "D_i": (dO * (P @ V)).sum(-1)[rows], "scale": scale}


cases = [case("all keys in one tile", 3, 5, 4, 6, (0, 3), (0, 5), scale=1.0, seed=890),
         case("a scale", 3, 5, 4, 6, (0, 3), (0, 5), seed=890),
         case("one tile of two", 3, 8, 5, 6, (0, 3), (4, 8), seed=894),
         case("hidden keys", 6, 6, 3, 2, (2, 5), (2, 4), hide=True, seed=906),
         case("a scale of 0", 2, 4, 3, 3, (0, 2), (2, 4), scale=0.0, seed=919),
         case("a negative scale", 2, 4, 3, 3, (0, 2), (2, 4), scale=-0.4, seed=923),
         case("a tall tile, d_v ≠ d", 7, 5, 3, 4, (0, 6), (1, 3), scale=0.7, seed=915)]
mistakes = [
    Mistake("D_added", "D was added, not subtracted", "the sign of D in dS_ij", (DS, "P_ij * (dP_ij + D_i[:, None])")),
    Mistake("D_outside", "D was subtracted after the product with P", "the brackets in dS_ij", (DS,
             "P_ij * dP_ij - D_i[:, None]")),
    Mistake("D_along_keys", "D was subtracted along the keys, not along the queries", "the shape of D in dS_ij", (DS,
             "P_ij * (dP_ij - D_i[None, :])")),
    Mistake("D_of_tile", "D was summed over this tile's keys alone", "the keys over which D sums", (DS,
             "P_ij * (dP_ij - (P_ij * dP_ij).sum(-1, keepdim=True))")),
    Mistake("diagonal_only", "only the diagonal of the softmax's Jacobian was used",
            "how one score moves the other weights of its row", (DS, "P_ij * (1 - P_ij) * dP_ij")),
    Mistake("scale_missing_dQ", "dQ was not multiplied by scale", "where scale enters dQ", (DQ, "dS_ij @ K_j")),
    Mistake("scale_missing_dK", "dK was not multiplied by scale", "where scale enters dK", (DK, "dS_ij.T @ Q_i")),
    Mistake("scale_missing", "neither dQ nor dK was multiplied by scale", "where scale enters between S and Q, K", (DQ,
             "dS_ij @ K_j"), (DK, "dS_ij.T @ Q_i")),
    Mistake("scale_twice", "dQ and dK were multiplied by scale twice", "how often scale enters on the way to dQ and dK",
            (DS, "scale * " + DS)),
    Mistake("scale_twice_in_one", "dK was multiplied by scale twice, dQ once",
            "how often scale enters on the way to dK", (DK, "scale * scale * (dS_ij.T @ Q_i)")),
    Mistake("dS_not_transposed", "dS was not transposed for dK", "the shape of dK_j", (DK, "scale * (dS_ij @ Q_i)")),
]
hints = ["Go back one step at a time: from dO to dP, from dP to dS, from dS to dQ and dK.",
         "D_i[:, None] makes a column, so that each row subtracts its own number.",
         "S = scale · Q Kᵀ: the scale stands in dQ once and in dK once."]
