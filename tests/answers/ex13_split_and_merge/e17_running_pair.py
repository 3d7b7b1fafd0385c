# kind: right
# what: keeps O finished and L after each block by one helper that merges two finished pairs; both kernels use it
# shows: no exp of anything above 0; pairs that are both empty stay 0 and -inf; each block and each part loaded once

"""ex13_split_and_merge · one query, many programs

Chapter 13 · difficulty 3 of 5 · 30 minutes

Flash-Decoding on modelled memory, for queries so few that all of them fit on one chip. In a first kernel program s attends to
the keys of chunk s alone, as if there were no others, and writes its own O and L to HBM. A second kernel reads them and makes one
result of all. HBM is touched through load and store only, and each byte is counted.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row
    O_part (splits · N_q, d_v)   L_part (splits · N_q,)              chunk s has the N_q rows from s · N_q on

Program s reads Q once, its own keys and values once, and stores to O_part[part] and L_part[part]. The merge reads each row of
O_part and L_part once. O and L are what one program would have written after all the keys.
A chunk may be empty: then O_part is 0 there and L_part -inf, and Q need not be read. At least one chunk has keys.
Scores lie between −1000 and 1000; scale is any number. Tensors are float32, and no size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load of a key block, the finished function from
flashlab or solutions/.

Hint: the first part is chapter 06's program with other bounds. The second asks how much of the softmax belongs to each chunk: what
does L_part say about that?
"""

import torch

from flashlab.memory import kernel, load, store

inf = float("inf")


def join(O_a, L_a, O_b, L_b):
    """Two finished pairs over different keys -> the finished pair over all of them."""
    top = torch.maximum(L_a, L_b)
    top = torch.where(top == -inf, torch.zeros_like(top), top)
    a = torch.exp(L_a - top)
    b = torch.exp(L_b - top)
    total = a + b
    safe = torch.where(total == 0, torch.ones_like(total), total)
    O = (a / safe)[:, None] * O_a + (b / safe)[:, None] * O_b
    return O, top + torch.log(total)


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    n, d_v = Q.shape[0], V.shape[1]
    O_i = torch.zeros(n, d_v)
    L_i = torch.full((n,), -inf)
    if blocks:
        Q_i = load(Q, slice(0, n))
        for cols in blocks:
            K_j = load(K, cols)
            V_j = load(V, cols)
            S = (Q_i @ K_j.T) * scale
            L_j = torch.logsumexp(S, 1)
            O_j = torch.exp(S - L_j[:, None]) @ V_j
            O_i, L_i = join(O_i, L_i, O_j, L_j)
    store(O_part, part, O_i)
    store(L_part, part, L_i)


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    n, d_v = O.shape
    O_all = torch.zeros(n, d_v)
    L_all = torch.full((n,), -inf)
    for s in range(splits):
        part = slice(s * n, (s + 1) * n)
        O_all, L_all = join(O_all, L_all, load(O_part, part), load(L_part, part))
    store(O, slice(0, n), O_all)
    store(L, slice(0, n), L_all)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
