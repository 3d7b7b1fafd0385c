# kind: one mistake
# what: softmax is counted with three passes over S (maximum, sum, quotient); it is one kernel that reads its operand once
# shows: any sizes: the reads are too many by 2 * N_q * N_k
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
    square = N_q * N_k
    ld = st = 0

    # gemm
    ld += N_q * d + N_k * d
    st += square
    # elementwise scale
    ld += square
    st += square
    # softmax: reduce max, reduce sum of exp, normalise
    ld += square
    ld += square
    ld += square
    st += square
    # gemm
    ld += square + N_k * d_v
    st += N_q * d_v
    # reduce
    ld += square
    st += N_q
    return ld, st
