# kind: right
# what: web developer's way: the table of the five kernels as data, with sizes by name
# shows: within the contract: every operand read once, every result written once, the number scale is free

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


def sizes(N_q, N_k, d, d_v):
    return {
        "Q": N_q * d,
        "K": N_k * d,
        "V": N_k * d_v,
        "S": N_q * N_k,
        "P": N_q * N_k,
        "O": N_q * d_v,
        "L": N_q,
    }


KERNELS = [
    {"name": "matmul", "in": ["Q", "K"], "out": ["S"]},
    {"name": "scale", "in": ["S"], "out": ["S"]},
    {"name": "softmax", "in": ["S"], "out": ["P"]},
    {"name": "matmul", "in": ["P", "V"], "out": ["O"]},
    {"name": "logsumexp", "in": ["S"], "out": ["L"]},
]


def add_up(column, size_of):
    return sum(size_of[name] for kernel in KERNELS for name in kernel[column])


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements, two whole numbers."""
    size_of = sizes(N_q, N_k, d, d_v)
    return add_up("in", size_of), add_up("out", size_of)
