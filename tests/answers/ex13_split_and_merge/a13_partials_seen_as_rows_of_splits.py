# kind: one mistake
# what: the merge views the partial results as (N_q, splits, ...), the chunks of a query next to each other; chunk s has N_q rows together, so it is (splits, N_q, ...)
# shows: N_q > 1 and at least two chunks

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
    N_q, d_v = Q.size(0), V.size(1)
    acc = torch.zeros(N_q, d_v)
    row_max = torch.full((N_q,), -inf)
    row_sum = torch.zeros(N_q)
    q = load(Q, slice(0, N_q))
    for block in blocks:
        k, v = load(K, block), load(V, block)
        scores = q @ k.t() * scale
        new_max = torch.max(row_max, scores.max(-1)[0])
        correction = torch.exp(row_max - new_max)
        p = torch.exp(scores - new_max[:, None])
        row_sum = row_sum * correction + p.sum(-1)
        acc = acc * correction[:, None] + p @ v
        row_max = new_max
    denominator = torch.where(row_sum == 0, 1.0, row_sum)        # empty chunk
    store(O_part, part, acc / denominator[:, None])
    store(L_part, part, row_max + torch.log(row_sum))


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    lse = load(L_part, slice(0, splits * N_q)).view(N_q, splits)
    out = load(O_part, slice(0, splits * N_q)).view(N_q, splits, d_v)
    lse_max = lse.max(dim=1, keepdim=True)[0]
    w = torch.exp(lse - lse_max)
    w_sum = w.sum(dim=1)
    store(O, slice(0, N_q), (w[:, :, None] * out).sum(dim=1) / w_sum[:, None])
    store(L, slice(0, N_q), lse_max[:, 0] + torch.log(w_sum))


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
