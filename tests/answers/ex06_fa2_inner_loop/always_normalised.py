# kind: right
# what: a class that keeps O_i normalised over the keys so far, undoing and renewing the division in each step, as FA1 does ("may be divided once")
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


class State:
    """Attention over the keys so far: O normalised, their maximum m, and the sum l of exp(score - m)."""

    def __init__(self, n, d_v, like):
        self.O = torch.zeros(n, d_v, dtype=like.dtype, device=like.device)
        self.m = torch.full((n, 1), -inf, dtype=like.dtype, device=like.device)
        self.l = torch.zeros((n, 1), dtype=like.dtype, device=like.device)

    def absorb(self, S, V_j):
        m = torch.maximum(self.m, S.amax(dim=1, keepdim=True))
        old = self.l * torch.exp(self.m - m)
        P = torch.exp(S - m)
        l = old + P.sum(dim=1, keepdim=True)
        self.O = (old / l) * self.O + (P / l) @ V_j
        self.m, self.l = m, l

    @property
    def L(self):
        return (self.m + torch.log(self.l))[:, 0]


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    Q_i = load(Q, rows).to(L.dtype)
    state = State(len(Q_i), V.shape[1], Q_i)
    for cols in tiles(len(K), B_c):
        K_j, V_j = (load(T, cols).to(L.dtype) for T in (K, V))
        state.absorb(Q_i @ K_j.T * scale, V_j)
    store(O, rows, state.O)
    store(L, rows, state.L)
