# kind: right
# what: the hint's table as a list of operations, each with its operands' and result's (rows, columns), added up
# shows: plain arithmetic in whole numbers; S = S · scale, softmax and logsumexp each read S, O = P V reads P
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
    Q, K, V = (N_q, d), (N_k, d), (N_k, d_v)
    S = P = (N_q, N_k)
    O, L = (N_q, d_v), (N_q, 1)
    table = [
        # reads      writes
        ([Q, K],     S),          # S = Q Kᵀ
        ([S],        S),          # S = S · scale: scale is a number, not a tensor
        ([S],        P),          # P = softmax(S)
        ([P, V],     O),          # O = P V
        ([S],        L),          # L = logsumexp(S)
    ]
    reads = sum(rows * cols for operands, _ in table for rows, cols in operands)
    writes = sum(rows * cols for _, (rows, cols) in table)
    return reads, writes
