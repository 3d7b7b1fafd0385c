# kind: one mistake
# what: the running logsumexp of the merge begins at 0, as a sum would; it should begin at -inf, for 0 is the logsumexp of one key with score 0
# shows: L not far above 0, i.e. ordinary and negative scores with few keys: O is too small and L too large

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
    if not blocks:
        store(O_part, part, torch.zeros(N_q, d_v))
        store(L_part, part, torch.full((N_q,), -inf))
        return
    Q_i = load(Q, slice(0, N_q))
    O_i, l_i, m_i = torch.zeros(N_q, d_v), torch.zeros(N_q), torch.full((N_q,), -inf)
    for cols in blocks:
        K_j, V_j = load(K, cols), load(V, cols)
        S = Q_i @ K_j.T * scale
        m_new = torch.maximum(m_i, S.max(dim=1).values)
        alpha = torch.exp(m_i - m_new)
        P = torch.exp(S - m_new[:, None])
        l_i = alpha * l_i + P.sum(dim=1)
        O_i = alpha[:, None] * O_i + P @ V_j
        m_i = m_new
    store(O_part, part, O_i / l_i[:, None])
    store(L_part, part, m_i + torch.log(l_i))


def merge_program(O_part, L_part, O, L, splits):
    """The result of all chunks; fills O and L."""
    N_q, d_v = O.shape
    O_i = torch.zeros(N_q, d_v)
    L_i = torch.zeros(N_q)
    for s in range(splits):
        rows = slice(s * N_q, (s + 1) * N_q)
        O_s, L_s = load(O_part, rows), load(L_part, rows)
        L_new = torch.logaddexp(L_i, L_s)
        O_i = torch.exp(L_i - L_new)[:, None] * O_i + torch.exp(L_s - L_new)[:, None] * O_s
        L_i = L_new
    store(O, slice(0, N_q), O_i)
    store(L, slice(0, N_q), L_i)


def split_and_merge(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale):
    """Both kernels. chunks: a slice of the keys for each program."""
    with kernel("split", Q=Q, K=K, V=V, O_part=O_part, L_part=L_part):
        for s, chunk in enumerate(chunks):
            blocks = [slice(first, min(first + B_c, chunk.stop)) for first in range(chunk.start, chunk.stop, B_c)]
            part = slice(s * len(Q), (s + 1) * len(Q))
            split_program(Q, K, V, O_part, L_part, part, blocks, B_c, scale)
    with kernel("merge", O_part=O_part, L_part=L_part, O=O, L=L):
        merge_program(O_part, L_part, O, L, len(chunks))
