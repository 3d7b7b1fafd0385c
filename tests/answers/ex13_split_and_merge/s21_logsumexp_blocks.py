# kind: right
# what: finished (O, L) pairs all the way: each block's own softmax and logsumexp, merged with logaddexp; the merge kernel takes the L of all chunks first, then adds up O chunk by chunk
# shows: within the contract: one load of each block, B_c keys at a time, empty chunks, any scale, scores of ±1000

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
    L_s = torch.full((N_q,), -inf)
    if blocks:
        q = load(Q, slice(0, N_q))
    for block in blocks:
        k = load(K, block)
        v = load(V, block)
        scores = torch.einsum("nd,kd->nk", q, k) * scale
        L_j = scores.logsumexp(dim=1)
        L_both = torch.logaddexp(L_s, L_j)
        O_s = O_s * (L_s - L_both).exp().unsqueeze(1) + (scores - L_both.unsqueeze(1)).exp() @ v
        L_s = L_both
    store(O_part, part, O_s)
    store(L_part, part, L_s)


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    every = load(L_part, slice(0, splits * N_q)).view(splits, N_q)
    total = every.logsumexp(dim=0)
    share = (every - total).exp()                       # (splits, N_q), each column adds up to 1
    out = torch.zeros(N_q, d_v)
    for s in range(splits):
        out += share[s].unsqueeze(1) * load(O_part, slice(s * N_q, (s + 1) * N_q))
    store(O, slice(0, N_q), out)
    store(L, slice(0, N_q), total)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
