# kind: two mistakes
# what: softmax is thought to read S three times (max, sum, divide; should be once), and logsumexp is thought to reuse softmax's numbers, so its read of S is left out
# shows: any size; reads has 5 N_q N_k instead of 4 (each alone: 6 or 3)
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
    n = N_q * N_k

    read_scores = N_q * d + N_k * d
    read_scaling = n
    read_softmax = n + n + n          # the maximum, the sum, the division
    read_output = n + N_k * d_v
    read_lse = 0                      # max and sum are there from the softmax

    write_scores = n
    write_scaling = n
    write_softmax = n
    write_output = N_q * d_v
    write_lse = N_q

    reads = read_scores + read_scaling + read_softmax + read_output + read_lse
    writes = write_scores + write_scaling + write_softmax + write_output + write_lse
    return reads, writes
