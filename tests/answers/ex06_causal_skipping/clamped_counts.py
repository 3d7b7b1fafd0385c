# kind: right
# what: counts of keys, not indices; the short query block is not clipped, the clamp to N_k keys does it
"""ex06_causal_skipping · which key blocks a causal query block visits"""


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i."""
    def clamp(keys):
        return sorted((0, keys, N_k))[1]

    by_first = clamp(i * B_r + 1 + N_k - N_q)
    by_last = clamp((i + 1) * B_r + N_k - N_q)
    blocks, rest = divmod(by_last, B_c)
    visited = blocks + (rest > 0)
    full = visited if by_first == N_k else by_first // B_c
    return int(full), int(visited)
