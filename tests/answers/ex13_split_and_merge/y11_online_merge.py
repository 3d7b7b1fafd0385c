# kind: right
# what: online softmax per chunk; the merge walks the chunks one by one as an online softmax over L_part, divides at the end
# shows: each row of O_part and L_part is loaded once; -inf shifts are replaced by 0, so empty chunks in any place add nothing
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


def shift(m):
    """The maximum, or 0 where there is none yet."""
    return torch.where(m == -inf, torch.zeros_like(m), m)


def split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale):
    """Attention of all queries to the keys of one chunk; fills O_part[part] and L_part[part].

    blocks: the slices of the chunk's key blocks, of at most B_c keys; an empty list for an empty chunk
    """
    n, d_v = Q.shape[0], V.shape[1]
    acc = torch.zeros(n, d_v)
    l = torch.zeros(n)
    m = torch.full((n,), -inf)
    if len(blocks) == 0:
        store(O_part, part, acc)
        store(L_part, part, m)
        return
    q = load(Q, slice(0, n))
    for block in blocks:
        k = load(K, block)
        v = load(V, block)
        s = (q @ k.T) * scale
        m_new = torch.maximum(m, s.max(dim=1).values)
        p = torch.exp(s - m_new[:, None])
        alpha = torch.exp(m - m_new)
        acc = acc * alpha[:, None] + p @ v
        l = l * alpha + p.sum(dim=1)
        m = m_new
    store(O_part, part, acc / l[:, None])
    store(L_part, part, m + torch.log(l))


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    n, d_v = O.shape
    acc, total, m = torch.zeros(n, d_v), torch.zeros(n), torch.full((n,), -inf)
    for s in range(splits):
        part = slice(s * n, (s + 1) * n)
        o_s, l_s = load(O_part, part), load(L_part, part)
        m_new = torch.maximum(m, l_s)
        old, new = torch.exp(m - shift(m_new)), torch.exp(l_s - shift(m_new))
        acc = acc * old[:, None] + o_s * new[:, None]
        total = total * old + new
        m = m_new
    store(O, slice(0, n), acc / total[:, None])
    store(L, slice(0, n), m + torch.log(total))


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
