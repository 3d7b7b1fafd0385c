# kind: right
# what: the split keeps O divided at every block, merging each block's finished pair by L with a helper; the merge uses the same helper, chunk by chunk
# shows: the helper takes −inf on either side or both (empty chunks, also the first); each row of O_part and L_part is loaded once, Q once, each key block once

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
    """Two finished results over different keys -> the result over both."""
    top = torch.maximum(L_a, L_b)
    top = torch.where(top == -inf, torch.zeros_like(top), top)
    a, b = torch.exp(L_a - top), torch.exp(L_b - top)
    both = a + b
    safe = torch.where(both == 0, torch.ones_like(both), both)
    O = O_a * (a / safe)[:, None] + O_b * (b / safe)[:, None]
    return O, top + torch.log(both)


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    N_q, d_v = Q.shape[0], V.shape[1]
    O_s, L_s = torch.zeros(N_q, d_v), torch.full((N_q,), -inf)
    if blocks:
        Q_all = load(Q, slice(None))
        for block in blocks:
            S = Q_all @ load(K, block).T * scale
            m = S.amax(1)
            P = torch.exp(S - m[:, None])
            l = P.sum(1)
            O_b = P @ load(V, block) / l[:, None]
            O_s, L_s = join(O_s, L_s, O_b, m + torch.log(l))
    store(O_part, part, O_s)
    store(L_part, part, L_s)


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    O_all, L_all = torch.zeros(N_q, d_v), torch.full((N_q,), -inf)
    for s in range(splits):
        rows = slice(s * N_q, s * N_q + N_q)
        O_all, L_all = join(O_all, L_all, load(O_part, rows), load(L_part, rows))
    store(O, slice(None), O_all)
    store(L, slice(None), L_all)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
