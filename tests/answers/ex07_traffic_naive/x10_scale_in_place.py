# kind: one mistake
# what: takes S = S · scale for a change in place that writes nothing back; the operation writes its N_q·N_k results like any other
# shows: writes, always: too small by N_q·N_k; reads are right

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


def matmul_cost(rows, inner, cols):
    return rows * inner + inner * cols, rows * cols


def elementwise_cost(rows, cols, in_place=False):
    reads = rows * cols
    writes = 0 if in_place else rows * cols
    return reads, writes


def reduction_cost(rows, cols):
    return rows * cols, rows


def add_costs(costs):
    reads, writes = zip(*costs)
    return sum(reads), sum(writes)


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    return add_costs([
        matmul_cost(N_q, d, N_k),
        elementwise_cost(N_q, N_k, in_place=True),         # S = S * scale: same name, same memory
        elementwise_cost(N_q, N_k),                        # softmax
        matmul_cost(N_q, N_k, d_v),
        reduction_cost(N_q, N_k),                          # logsumexp
    ])
