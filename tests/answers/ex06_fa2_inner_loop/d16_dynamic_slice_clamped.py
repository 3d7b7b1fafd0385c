# kind: one mistake
# what: the key blocks all have B_c keys and the last start is moved back to fit, as lax.dynamic_slice does, so its first keys are loaded and summed a second time. The last block should be short
# shows: any N_k > B_c that B_c does not divide: those keys weigh twice, in O and in L, and K and V are read more than once
"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

One program of FA2: query block i stays on chip, the key blocks j = 0, 1, ... pass by, O[rows] and L[rows] are written
once. HBM is touched through load and store only, and each byte is counted: Q[rows] is read once, K and V are read once
per program.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. O_i may be divided once, after the last block: that is what FA2 changes in the arithmetic.
Scores lie between −1000 and 1000; scale is any finite number.
Q, K, V and O are float16 or float32, L is float32. No size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load of a key block, a store in each step, the
finished function from flashlab or solutions/.

Hint: write the case of a single key block first. What of O_i and l_i is stale once a second one raises the maximum?
"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dynamic_block(N, j, B):
    """The slice of block j."""
    B = min(B, N)
    start = min(j * B, N - B)                            # keep the whole block inside of the array
    return slice(start, start + B)


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    N_k = K.shape[0]
    Q_i = load(Q, rows).to(L.dtype)

    def body(j, carry):
        O_i, l_i, m_i = carry
        block = dynamic_block(N_k, j, B_c)
        K_j, V_j = load(K, block).to(L.dtype), load(V, block).to(L.dtype)
        S = (Q_i @ K_j.T) * scale
        m_new = torch.maximum(m_i, S.max(dim=-1).values)
        correction = torch.exp(m_i - m_new)
        P = torch.exp(S - m_new[:, None])
        return correction[:, None] * O_i + P @ V_j, correction * l_i + P.sum(dim=-1), m_new

    carry = torch.zeros(len(Q_i), V.shape[1], dtype=L.dtype), torch.zeros(len(Q_i), dtype=L.dtype), torch.full((len(Q_i),), -inf, dtype=L.dtype)
    num_blocks = (N_k + B_c - 1) // B_c
    for j in range(num_blocks):                          # fori_loop
        carry = body(j, carry)

    O_i, l_i, m_i = carry
    store(O, rows, O_i / l_i[:, None])
    store(L, rows, m_i + torch.log(l_i))
