# kind: one mistake
# what: the alignment N_k - N_q is clamped at 0 "for safety", so more queries than keys are lined up at the top
# shows: N_q > N_k: early query blocks get visited and full that are too large
"""ex06_causal_skipping · which key blocks a causal query block visits"""


def ceil_div(a, b):
    return (a + b - 1) // b


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i."""
    offset = max(N_k - N_q, 0)                     # the last query sees the last key
    q_lo = i * B_r
    q_hi = min(q_lo + B_r, N_q) - 1
    n_lo = min(q_lo + offset + 1, N_k)             # keys seen by the first query of the block
    n_hi = min(q_hi + offset + 1, N_k)             # ... and by its last one
    visited = ceil_div(n_hi, B_c)
    full = ceil_div(N_k, B_c) if n_lo == N_k else n_lo // B_c
    return full, visited
