# kind: right
# what: blocks by the online softmax, rescaled with alpha; the merge reads all of L_part first, makes weights exp(L_part - L) of it and then reads O_part chunk by chunk
# shows: weights of empty chunks are exp(-inf) = 0; max subtracted everywhere, so scores up to 1000 are fine; each row of O_part and L_part is read once

"""ex13_split_and_merge · one query, many programs

Chapter 13 · difficulty 3 of 5 · 30 minutes

Flash-Decoding on modelled memory, for queries so few that all of them fit on one chip. In a first kernel program s attends to
the keys of chunk s alone, as if there were no others, and writes its own O and L to HBM. A second kernel reads them and makes one
result of all. HBM is touched through load and store only, and each byte is counted.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row
    O_part (splits · N_q, d_v)   L_part (splits · N_q,)              chunk s has the N_q rows from s · N_q on

Program s reads Q once, its own keys and values once, and stores to O_part[part] and L_part[part]. The merge reads each row of
O_part and L_part once. O and L are what one program would have written after all the keys.
A chunk may be empty: then O_part is 0 there and L_part -inf. At least one chunk has keys.
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
    q = load(Q, slice(0, Q.shape[0])) * scale                      # (N_q, d)
    acc = torch.zeros(Q.shape[0], V.shape[1])                      # (N_q, d_v)
    total = torch.zeros(Q.shape[0])                                # (N_q,)
    if not blocks:
        store(O_part, part, acc)
        store(L_part, part, torch.full((Q.shape[0],), -inf))
        return
    top = torch.full((Q.shape[0],), -inf)                          # (N_q,)
    for cols in blocks:
        s = q @ load(K, cols).T
        new_top = torch.maximum(top, s.amax(dim=1))
        alpha = torch.exp(top - new_top)
        p = torch.exp(s - new_top[:, None])
        total = total * alpha + p.sum(dim=1)
        acc = acc * alpha[:, None] + p @ load(V, cols)
        top = new_top
    store(O_part, part, acc / total[:, None])
    store(L_part, part, top + torch.log(total))


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    n = L.shape[0]
    l_parts = load(L_part, slice(0, splits * n)).reshape(splits, n)
    top = l_parts.amax(dim=0)
    lse = top + torch.log(torch.exp(l_parts - top).sum(dim=0))
    weights = torch.exp(l_parts - lse)
    out = torch.zeros(n, O.shape[1])
    for s in range(splits):
        out += weights[s][:, None] * load(O_part, slice(s * n, (s + 1) * n))
    store(O, slice(0, n), out)
    store(L, slice(0, n), lse)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
