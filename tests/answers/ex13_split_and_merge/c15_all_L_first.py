# kind: right
# what: FA2's loop for a chunk; the merge takes all of L_part in one load, its logsumexp over the chunks is L, and O is a sum with weights exp(L_s − L)
# shows: an empty chunk stores 0 and -inf without a load; L is finite since one chunk has keys, so an empty one has weight exp(-inf) = 0 and no NaN arises; each row is read once
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
    N_q, d_v = Q.shape[0], V.shape[1]
    O_s = torch.zeros(N_q, d_v)
    l = torch.zeros(N_q)
    m = torch.full((N_q,), -inf)
    if not blocks:
        store(O_part, part, O_s)
        store(L_part, part, m)
        return

    Q_s = load(Q, slice(0, N_q))
    for cols in blocks:
        K_j = load(K, cols)
        S = Q_s @ K_j.T * scale
        m_new = torch.maximum(m, S.max(dim=1).values)
        P = torch.exp(S - m_new[:, None])
        alpha = torch.exp(m - m_new)
        l = alpha * l + P.sum(dim=1)
        V_j = load(V, cols)
        O_s = alpha[:, None] * O_s + P @ V_j
        m = m_new
    store(O_part, part, O_s / l[:, None])
    store(L_part, part, m + torch.log(l))


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    L_s = load(L_part, slice(0, splits * N_q)).view(splits, N_q)
    L_all = torch.logsumexp(L_s, dim=0)
    weight = torch.exp(L_s - L_all)
    O_all = torch.zeros(N_q, d_v)
    for s in range(splits):
        O_s = load(O_part, slice(s * N_q, (s + 1) * N_q))
        O_all += weight[s, :, None] * O_s
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
