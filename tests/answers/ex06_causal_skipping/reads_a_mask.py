# kind: point missed
# what: builds the whole mask as an (N_q, N_k) tensor and looks at its tiles, which the stub forbids
# shows: numbers are right; a tensor of N_q by N_k is made for each call
"""ex06_causal_skipping · which key blocks a causal query block visits"""

import torch


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i."""
    seen = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q)[i * B_r : (i + 1) * B_r]
    blocks = seen.split(B_c, dim=1) if N_k else ()
    visited = sum(bool(b.any()) for b in blocks)
    full = sum(bool(b.all()) for b in blocks)
    return full, visited
