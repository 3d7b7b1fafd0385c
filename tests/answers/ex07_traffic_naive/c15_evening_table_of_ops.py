# kind: right
# what: a table of shapes and of the five operations with their operands and results, summed up
# shows: every operand is read once and every result written once, as the stub says; sizes are multiplied out as whole numbers
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

from math import prod


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    shape = {
        "Q": (N_q, d),
        "K": (N_k, d),
        "V": (N_k, d_v),
        "S": (N_q, N_k),
        "scaled S": (N_q, N_k),
        "P": (N_q, N_k),
        "O": (N_q, d_v),
        "L": (N_q,),
    }
    kernels = [
        # reads               writes
        (("Q", "K"),          "S"),             # matmul
        (("S",),              "scaled S"),      # mul; the scale itself is a Python number
        (("scaled S",),       "P"),             # softmax
        (("P", "V"),          "O"),             # matmul
        (("scaled S",),       "L"),             # logsumexp
    ]
    numel = {name: prod(size) for name, size in shape.items()}
    reads = sum(numel[operand] for operands, _ in kernels for operand in operands)
    writes = sum(numel[result] for _, result in kernels)
    return reads, writes
