# kind: right
# what: never keeps a maximum or a sum: every key block gives a finished pair (O, L), and one function merges two pairs, within a chunk as among chunks
# shows: logaddexp is stable for scores to 1000; while nothing has been met L is -inf and the guard keeps the weights 0; each block, row and Q is loaded once

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


def merged(O_a, L_a, O_b, L_b):
    """Two finished results over different keys -> the finished result over both."""
    L = torch.logaddexp(L_a, L_b)                               # (N_q,)
    unit = torch.where(L == -inf, 0.0, L)                       # both empty: exp(-inf - 0) = 0
    w_a, w_b = torch.exp(L_a - unit), torch.exp(L_b - unit)     # (N_q,) each
    return w_a[:, None] * O_a + w_b[:, None] * O_b, L


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    N_q = part.stop - part.start
    O_s, L_s = torch.zeros(N_q, V.shape[1]), torch.full((N_q,), -inf)
    if blocks:
        Q_s = load(Q, slice(0, N_q))
    for cols in blocks:
        S = scale * (Q_s @ load(K, cols).T)                     # (N_q, B_c)
        O_s, L_s = merged(O_s, L_s, torch.softmax(S, -1) @ load(V, cols), torch.logsumexp(S, -1))
    store(O_part, part, O_s)
    store(L_part, part, L_s)


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q = len(L)
    rows = slice(0, N_q)
    O_all, L_all = load(O_part, rows), load(L_part, rows)       # chunk 0
    for s in range(1, splits):
        part = slice(s * N_q, s * N_q + N_q)
        O_all, L_all = merged(O_all, L_all, load(O_part, part), load(L_part, part))
    store(O, rows, O_all)
    store(L, rows, L_all)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
