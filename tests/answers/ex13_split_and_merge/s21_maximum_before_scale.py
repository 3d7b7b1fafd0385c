# kind: one mistake
# what: takes the row maximum of QKᵀ and multiplies it by scale afterwards; with a negative scale that is the minimum of the scores, and exp overflows
# shows: negative scale and scores that lie more than 88 apart

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
    n = len(Q)
    if len(blocks) == 0:
        store(O_part, part, torch.zeros(n, V.shape[1]))
        store(L_part, part, torch.full((n,), -inf))
        return
    Q_i = load(Q, slice(0, n))
    O_i, l, m = None, None, None
    for block in blocks:
        K_j, V_j = load(K, block), load(V, block)
        QK = Q_i @ K_j.T
        m_j = QK.max(dim=1).values * scale              # scale (n,) numbers only, not all of QK twice
        m_new = m_j if m is None else torch.maximum(m, m_j)
        P = torch.exp(QK * scale - m_new[:, None])
        if m is None:
            O_i, l = P @ V_j, P.sum(1)
        else:
            alpha = torch.exp(m - m_new)
            O_i = alpha[:, None] * O_i + P @ V_j
            l = alpha * l + P.sum(1)
        m = m_new
    store(O_part, part, O_i / l[:, None])
    store(L_part, part, m + torch.log(l))


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    n = len(O)
    O_all, L_all = None, None
    for s in range(splits):
        rows = slice(s * n, (s + 1) * n)
        O_s, L_s = load(O_part, rows), load(L_part, rows)
        if O_all is None:
            O_all, L_all = O_s, L_s
            continue
        L_new = torch.logaddexp(L_all, L_s)
        known = torch.where(L_new == -inf, 0.0, L_new)
        O_all = torch.exp(L_all - known)[:, None] * O_all + torch.exp(L_s - known)[:, None] * O_s
        L_all = L_new
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
