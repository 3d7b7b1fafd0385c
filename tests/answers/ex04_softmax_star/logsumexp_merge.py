# kind: right
# what: keeps a normalised O and L, merging by logaddexp
"""ex04_softmax_star: my answer."""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    O = Q.new_zeros(len(Q), V.shape[1])
    L = Q.new_full((len(Q),), -inf)
    for K_j, V_j in zip(K.split(B_c), V.split(B_c)):
        S = Q @ K_j.T / Q.shape[1] ** 0.5
        L_j = S.logsumexp(1)
        L_new = torch.logaddexp(L, L_j)
        O = (L - L_new).exp()[:, None] * O + (S - L_new[:, None]).exp() @ V_j
        L = L_new
    return O
