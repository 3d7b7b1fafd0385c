# kind: right
# what: a column of ones beside V makes l the last column of O; one rescale for both
"""ex04_softmax_star · my answer."""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    N_q, d = Q.shape
    acc = Q.new_zeros(N_q, V.shape[1] + 1)
    m = Q.new_full((N_q, 1), -inf)
    for K_j, V_j in zip(K.split(B_c), V.split(B_c)):
        S = (Q / d**0.5) @ K_j.T
        top = torch.maximum(m, S.amax(1, keepdim=True))
        acc *= torch.exp(m - top)
        acc += torch.exp(S - top) @ torch.cat([V_j, V_j.new_ones(len(V_j), 1)], 1)
        m = top
    return acc[:, :-1] / acc[:, -1:]
