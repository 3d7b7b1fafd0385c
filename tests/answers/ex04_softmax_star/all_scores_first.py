# kind: point missed
# what: S is computed whole, the loop then walks its columns
# shows: numbers right; a tensor of N_q by N_k appears
"""ex04_softmax_star · my answer."""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    S = Q @ K.T / Q.shape[1] ** 0.5
    m = S.amax(1, keepdim=True)
    O, l = 0, 0
    for S_j, V_j in zip(S.split(B_c, 1), V.split(B_c)):
        P_j = torch.exp(S_j - m)
        O = O + P_j @ V_j
        l = l + P_j.sum(1, keepdim=True)
    return O / l
