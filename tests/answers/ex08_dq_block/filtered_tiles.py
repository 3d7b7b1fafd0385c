# kind: right
# what: functional: the visible tiles are filtered first, contributions summed
"""ex08_dq_block: my answer."""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows], with at most B_c keys on chip at a time.

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    hidden_tile(rows, cols, N_q, N_k) is the mask of a tile, True where the key is hidden; tiles(N, B) gives the slices.
    """
    shift = len(K) - len(Q)
    q, g = (load(T, rows).to(L.dtype) for T in (Q, dO))
    lse, delta = load(L, rows)[:, None], load(D, rows)[:, None]
    seen = [c for c in tiles(len(K), B_c) if not causal or c.start <= rows.stop - 1 + shift]


    def part(c):
        k, v = load(K, c).to(L.dtype), load(V, c).to(L.dtype)
        p = torch.exp(q @ k.T * scale - lse)
        if causal:
            p = torch.where(hidden_tile(rows, c, len(Q), len(K)), torch.zeros_like(p), p)
        return (p * (g @ v.T - delta)) @ k * scale


    store(dQ, rows, sum((part(c) for c in seen), torch.zeros_like(q)))


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
