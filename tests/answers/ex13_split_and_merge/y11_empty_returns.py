# kind: one mistake
# what: a program with an empty chunk returns at once and stores nothing; it has to store O_part 0 and L_part -inf
# shows: an empty chunk with O_part, L_part that held something else before (NaN, zeros, an earlier result)
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
        return                                   # nothing to do

    Q_i = load(Q, slice(None))
    m = torch.full((len(Q),), -inf)
    l = torch.zeros(len(Q))
    O_i = torch.zeros(len(Q), V.shape[-1])
    for j in blocks:
        K_j, V_j = load(K, j), load(V, j)
        S_ij = scale * (Q_i @ K_j.T)
        m_new = torch.maximum(m, S_ij.amax(dim=-1))
        P_ij = torch.exp(S_ij - m_new.unsqueeze(1))
        c = torch.exp(m - m_new)
        l = c * l + P_ij.sum(dim=-1)
        O_i = c.unsqueeze(1) * O_i + P_ij @ V_j
        m = m_new
    store(O_part, part, O_i / l.unsqueeze(1))
    store(L_part, part, m + l.log())


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    L_s = load(L_part, slice(None)).reshape(splits, N_q)
    m = L_s.amax(0)
    w = torch.exp(L_s - m)                       # (splits, N_q)
    total = w.sum(0)
    O_s = load(O_part, slice(None)).reshape(splits, N_q, d_v)
    store(O, slice(None), (O_s * (w / total).unsqueeze(-1)).sum(0))
    store(L, slice(None), m + total.log())


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
