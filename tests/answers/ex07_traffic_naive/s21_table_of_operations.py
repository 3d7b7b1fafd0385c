# kind: right
# what: the hint's table, as a dict of operands and results for each operation, summed by shape
# shows: any sizes, N_q != N_k, d != d_v
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
    n = {"Q": N_q * d, "K": N_k * d, "V": N_k * d_v, "S": N_q * N_k, "P": N_q * N_k, "O": N_q * d_v, "L": N_q}
    table = [
        # reads         writes
        (["Q", "K"], ["S"]),      # S = Q Kᵀ
        (["S"], ["S"]),           # S = S · scale
        (["S"], ["P"]),           # P = softmax(S)
        (["P", "V"], ["O"]),      # O = P V
        (["S"], ["L"]),           # L = logsumexp(S)
    ]
    reads = sum(n[name] for ins, _ in table for name in ins)
    writes = sum(n[name] for _, outs in table for name in outs)
    return reads, writes
