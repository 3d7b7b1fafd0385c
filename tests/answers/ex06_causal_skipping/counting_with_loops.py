# kind: right
# what: beginner's loops: every key block is asked, query by query and key by key, with plain integers
"""ex06_causal_skipping · which key blocks a causal query block visits"""


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i."""
    queries = [n for n in range(i * B_r, (i + 1) * B_r) if n < N_q]
    full = 0
    visited = 0
    start = 0
    while start < N_k:
        keys = range(start, min(start + B_c, N_k))
        seen_by_some = False
        seen_by_all = True
        for n in queries:
            for key in keys:
                if key <= n + N_k - N_q:
                    seen_by_some = True
                else:
                    seen_by_all = False
        if seen_by_some:
            visited = visited + 1
        if seen_by_all:
            full = full + 1
        start = start + B_c
    return full, visited
