# kind: one mistake
# what: the running maximum is that of Q Kᵀ, and is multiplied by scale afterwards; with a negative scale that is the smallest score, and exp overflows. The maximum of the scaled scores should be taken
# shows: a negative scale with scores some hundred apart: exp gives inf, O is NaN (with small scores it comes out right all the same)
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
    acc = torch.zeros(n, V.shape[1])
    if len(blocks) == 0:
        store(O_part, part, acc)
        store(L_part, part, torch.full((n,), -inf))
        return
    q = load(Q, slice(0, n))
    row_max, row_sum = None, torch.zeros(n)
    for block in blocks:
        qk = q @ load(K, block).T
        block_max = qk.amax(1) * scale            # one multiplication a row is enough
        if row_max is None:
            new_max, keep = block_max, torch.zeros(n)
        else:
            new_max = torch.maximum(row_max, block_max)
            keep = torch.exp(row_max - new_max)
        p = torch.exp(qk * scale - new_max[:, None])
        row_sum = row_sum * keep + p.sum(1)
        acc = acc * keep[:, None] + p @ load(V, block)
        row_max = new_max
    store(O_part, part, acc / row_sum[:, None])
    store(L_part, part, row_max + row_sum.log())


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    n = len(L)
    top, total = torch.full((n,), -inf), torch.zeros(n)
    acc = torch.zeros(n, O.shape[1])
    for s in range(splits):
        rows = slice(s * n, (s + 1) * n)
        l_s = load(L_part, rows)
        o_s = load(O_part, rows)
        new_top = torch.maximum(top, l_s)
        base = torch.where(new_top == -inf, 0.0, new_top)        # only empty chunks so far
        old, new = torch.exp(top - base), torch.exp(l_s - base)
        total = total * old + new
        acc = acc * old[:, None] + o_s * new[:, None]
        top = new_top
    store(O, slice(0, n), acc / total[:, None])
    store(L, slice(0, n), top + total.log())


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
