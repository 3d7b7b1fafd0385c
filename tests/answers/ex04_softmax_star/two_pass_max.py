# kind: point missed
# what: first makes all scores (list of tiles concatenated) to get the row maximum, then loops
# shows: numbers right; the N_q x N_k tensor appears
"""ex04_softmax_star: my answer."""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    d = Q.shape[1]
    S = torch.cat([Q @ K[s:s + B_c].T / d ** 0.5 for s in range(0, len(K), B_c)], 1)
    m = S.amax(1, keepdim=True)
    O, l = 0, 0
    for s in range(0, len(K), B_c):
        P = torch.exp(S[:, s:s + B_c] - m)
        O = O + P @ V[s:s + B_c]
        l = l + P.sum(1, keepdim=True)
    return O / l
