# kind: one mistake
# what: the merge takes rows n*splits .. (n+1)*splits - 1 for query n, as if the parts of a query lay together; chunk s has rows s*N_q + n
# shows: more than one query and more than one chunk; one query or one chunk is right

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
    n_rows = part.stop - part.start
    m = torch.full((n_rows, 1), -inf)
    l = torch.zeros(n_rows, 1)
    acc = torch.zeros(n_rows, V.shape[1])

    if not blocks:
        store(O_part, part, acc)
        store(L_part, part, m[:, 0])
        return

    q = load(Q, slice(0, n_rows))
    for block in blocks:
        k = load(K, block)
        s = q @ k.T * scale
        m_new = torch.maximum(m, s.max(dim=1, keepdim=True).values)
        p = torch.exp(s - m_new)
        alpha = torch.exp(m - m_new)
        l = alpha * l + p.sum(dim=1, keepdim=True)
        v = load(V, block)
        acc = alpha * acc + p @ v
        m = m_new
    store(O_part, part, acc / l)
    store(L_part, part, (m + torch.log(l))[:, 0])


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    for n in range(len(O)):
        mine = slice(n * splits, (n + 1) * splits)              # the parts of query n
        l_parts = load(L_part, mine)                            # (splits,)
        o_parts = load(O_part, mine)                            # (splits, d_v)
        share = torch.softmax(l_parts, dim=0)                   # (splits,)
        store(O, slice(n, n + 1), share[None, :] @ o_parts)
        store(L, slice(n, n + 1), torch.logsumexp(l_parts, dim=0, keepdim=True))


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
