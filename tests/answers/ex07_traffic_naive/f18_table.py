# kind: right
# what: a table of the five operations, as the hint says, summed by column
# shows: plain whole-number arithmetic
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
    q, k, v = N_q * d, N_k * d, N_k * d_v
    s = p = N_q * N_k
    o, l = N_q * d_v, N_q
    table = [
        # operation          reads   writes
        ("S = Q K^T",        q + k,  s),
        ("S = S * scale",    s,      s),
        ("P = softmax(S)",   s,      p),
        ("O = P V",          p + v,  o),
        ("L = logsumexp(S)", s,      l),
    ]
    reads, writes = 0, 0
    for _, r, w in table:
        reads += r
        writes += w
    return reads, writes
