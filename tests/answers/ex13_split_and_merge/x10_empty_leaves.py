# kind: one mistake
# what: the program of an empty chunk returns at once and stores nothing; should store O_part = 0 and L_part = -inf
# shows: an empty chunk: whatever O_part and L_part held before is merged as if it were a result

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


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    if not blocks:
        return                                                 # nothing to do: save the loads and the stores
    n = len(Q)
    Q_i = load(Q, slice(0, n))
    Q_i *= scale                                               # once, not for each block; it is a copy on chip
    acc = torch.zeros(n, V.shape[1])
    m = torch.full((n, 1), -inf)
    l = torch.zeros(n, 1)
    for cols in blocks:
        S = Q_i @ load(K, cols).T
        m_new = torch.maximum(m, S.amax(1, keepdim=True))
        P = (S - m_new).exp_()
        a = (m - m_new).exp_()
        l = l * a + P.sum(1, keepdim=True)
        acc = acc * a + P @ load(V, cols)
        m = m_new
    store(O_part, part, acc / l)
    store(L_part, part, (m + l.log())[:, 0])


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    n = len(O)
    acc = torch.zeros(n, O.shape[1])
    m = torch.full((n,), -inf)
    l = torch.zeros(n)
    for s in range(splits):
        part = slice(s * n, s * n + n)
        L_s = load(L_part, part)
        O_s = load(O_part, part)
        m_new = torch.maximum(m, L_s)
        base = m_new.masked_fill(m_new == -inf, 0.0)
        a, w = (m - base).exp(), (L_s - base).exp()
        acc = acc * a[:, None] + O_s * w[:, None]
        l = l * a + w
        m = m_new
    store(O, slice(0, n), acc / l[:, None])
    store(L, slice(0, n), m + l.log())


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
