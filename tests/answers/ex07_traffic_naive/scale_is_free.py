# kind: one mistake
# what: S = S * scale is left out of both sums, as if the product did it on the way; eagerly it reads S and writes S
# shows: every input: N_q N_k too few reads and as many too few writes
"""ex07_traffic_naive · predict the traffic of naive attention

Chapter 07 · difficulty 2 of 5 · 15 minutes

How many elements does naive attention move? Each PyTorch operation is a kernel of its own: it reads its operands from HBM
and writes its result back. These are the five operations, for one head without a mask:

    S = Q Kᵀ        S = S · scale        P = softmax(S)        O = P V        L = logsumexp(S)

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   S, P (N_q, N_k)   O (N_q, d_v)   L (N_q,)

Your formula is held against the memory model, which counts what flashlab.rungs.naive.naive_forward moves, at sizes you have
not seen.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: make a table of the five operations, with one column for what each reads and one for what it writes.
"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    nn = N_q * N_k
    reads = 0
    reads += N_q * d + N_k * d      # Q K^T (and its scale)
    reads += nn                     # softmax
    reads += nn + N_k * d_v         # P V
    reads += nn                     # logsumexp
    writes = 0
    writes += nn                    # S
    writes += nn                    # P
    writes += N_q * d_v             # O
    writes += N_q                   # L
    return reads, writes
