# kind: right
# what: one helper that merges two finished pairs (O, L) serves both kernels: blocks within a chunk, and chunks
# shows: within the contract: one load of each key block, -inf is never subtracted from -inf, empty chunks store 0 and -inf

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


def absorb(O_a, L_a, O_b, L_b):
    """Two finished pairs over different keys -> the pair over both."""
    L = torch.logaddexp(L_a, L_b)
    safe = torch.where(L == -inf, 0.0, L)                      # no key on either side: both weights exp(-inf) = 0
    w_a, w_b = torch.exp(L_a - safe), torch.exp(L_b - safe)
    return w_a[:, None] * O_a + w_b[:, None] * O_b, L


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    N_q = Q.shape[0]
    O, L = torch.zeros(N_q, V.shape[1]), torch.full((N_q,), -inf)
    if blocks:
        Q_i = load(Q, slice(0, N_q))                           # an empty chunk does not pay for Q
    for block in blocks:
        S = Q_i @ load(K, block).T * scale
        L_j = torch.logsumexp(S, 1)
        O_j = torch.exp(S - L_j[:, None]) @ load(V, block)
        O, L = absorb(O, L, O_j, L_j)
    store(O_part, part, O)
    store(L_part, part, L)


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q = O.shape[0]
    O_all, L_all = torch.zeros(N_q, O.shape[1]), torch.full((N_q,), -inf)
    for s in range(splits):
        part = slice(s * N_q, (s + 1) * N_q)
        O_all, L_all = absorb(O_all, L_all, load(O_part, part), load(L_part, part))
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
