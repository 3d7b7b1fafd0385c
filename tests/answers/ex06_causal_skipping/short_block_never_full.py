# kind: one mistake
# what: full is (keys the first query sees) // B_c: a short last key block never counts as seen whole
# shows: B_c does not divide N_k and the query block is the last query alone, (N_q - 1) % B_r == 0: full one too small
"""ex06_causal_skipping · which key blocks a causal query block visits"""


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i."""
    shift = N_k - N_q
    first = i * B_r
    last = min(first + B_r, N_q) - 1
    visited = max(0, (last + shift) // B_c + 1)
    full = max(0, (first + shift + 1) // B_c)
    return full, visited
