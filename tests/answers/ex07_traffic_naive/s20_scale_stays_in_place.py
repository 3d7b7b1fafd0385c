# kind: one mistake
# what: thinks that S = S * scale, as the name stays the same, writes nothing new; each operation writes its result back, N_q * N_k more
# shows: every size: writes are N_q * N_k too few

"""ex07_traffic_naive · predict the traffic of naive attention

Chapter 07 · difficulty 2 of 5 · 15 minutes

How many elements does naive attention move? Each PyTorch operation is a kernel of its own: it reads its operands from HBM
and writes its result back. These are the five operations, for one head without a mask:

    S = Q Kᵀ        S = S · scale        P = softmax(S)        O = P V        L = logsumexp(S)

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   S, P (N_q, N_k)   O (N_q, d_v)   L (N_q,)

Your formula is held against the memory model, which counts what flashlab.rungs.naive.naive_forward moves, at sizes you have
not seen.
No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: make a table of the five operations, with one column for what each reads and one for what it writes.
"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    table = [
        # reads                       writes
        (N_q * d + N_k * d,           N_q * N_k),      # S = Q K^T
        (N_q * N_k,                   0),              # S = S * scale: S is there already
        (N_q * N_k,                   N_q * N_k),      # P
        (N_q * N_k + N_k * d_v,       N_q * d_v),      # O
        (N_q * N_k,                   N_q),            # L
    ]
    return tuple(sum(column) for column in zip(*table))
