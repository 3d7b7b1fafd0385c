# kind: right
# what: counts the keys seen by first and last query, clamps
"""ex06_causal_skipping: my answer."""

def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    shift = N_k - N_q
    T_c = -(-N_k // B_c)
    first = i * B_r
    last = min((i + 1) * B_r, N_q) - 1
    seen_last = max(0, min(N_k, last + shift + 1))
    seen_first = max(0, min(N_k, first + shift + 1))
    visited = -(-seen_last // B_c)
    full = visited if seen_first >= N_k else seen_first // B_c
    return full, visited
