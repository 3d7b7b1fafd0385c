# kind: two mistakes
# what: the shift has the wrong sign, and visited is rounded down instead of up
# shows: N_q != N_k; diagonal inside a key block
"""ex06_causal_skipping: my answer."""

def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    shift = N_q - N_k
    first, last = i * B_r, min((i + 1) * B_r, N_q) - 1
    clamp = lambda n: min(max(n, 0), N_k)
    visited = clamp(last + shift + 1) // B_c
    full = min(visited, clamp(first + shift + 1) // B_c)
    return full, visited
