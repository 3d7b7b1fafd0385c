"""ex07_traffic_naive · predict the traffic of naive attention

Chapter 07 · difficulty 2 of 5 · 10 minutes

How many elements does naive attention move? Each PyTorch operation is a kernel of its own: it reads its operands from
HBM and writes its result back. These are the four operations, for one head without a mask:

    S = Q Kᵀ        S = S · scale        P = softmax(S)        O = P V

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   S, P (N_q, N_k)   O (N_q, d_v)

Your formula is held against the memory model, which counts what flashlab.rungs.naive.naive_forward moves, at sizes you
have not seen. No size is 0.

Not allowed: measuring it (flashlab.rungs), the finished function from flashlab.cost or solutions/.

Hint: make a table of the four operations, with one column for what each reads and one for what it writes.
"""


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    # your turn: the number of elements read and the number written
    raise NotImplementedError("ex07_traffic_naive: the number of elements read and the number written")
