# kind: right
# what: one helper for both kernels: (O, L) is kept finished, divided, all the time, and another finished (O, L) is joined to it by logaddexp
# shows: a key block is a chunk of its own; L = -inf (nothing yet, or an empty chunk) has weight 0; each byte is read once, one block at a time
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
    L = torch.logaddexp(L_a, L_b)
    base = torch.where(L == -inf, 0.0, L)            # no keys at all: both weights are exp(-inf) = 0
    O = O_a * torch.exp(L_a - base)[:, None] + O_b * torch.exp(L_b - base)[:, None]
    return O, L


def nothing(N_q, d_v):
    return torch.zeros(N_q, d_v), torch.full((N_q,), -inf)


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    O, L = nothing(Q.shape[0], V.shape[1])
    if blocks:
        q = load(Q, slice(0, Q.shape[0]))
    for cols in blocks:
        k = load(K, cols)
        v = load(V, cols)
        s = q @ k.T * scale
        lse = torch.logsumexp(s, dim=1)
        O, L = join(O, L, torch.exp(s - lse[:, None]) @ v, lse)
    store(O_part, part, O)
    store(L_part, part, L)


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    O_all, L_all = nothing(N_q, d_v)
    for s in range(splits):
        part = slice(s * N_q, (s + 1) * N_q)
        O_all, L_all = join(O_all, L_all, load(O_part, part), load(L_part, part))
    store(O, slice(0, N_q), O_all)
    store(L, slice(0, N_q), L_all)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
