# kind: right
# what: beginner loop over the key blocks, comparing last and first key of each
"""ex06_causal_skipping: my answer."""

def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i, two whole numbers with 0 ≤ full ≤ visited ≤ ⌈N_k / B_c⌉."""
    full = 0
    visited = 0
    j = 0
    top = i * B_r
    bottom = top + B_r - 1
    if bottom > N_q - 1:
        bottom = N_q - 1
    while j * B_c < N_k:
        first_key = j * B_c
        last_key = min(first_key + B_c, N_k) - 1
        if first_key <= bottom + N_k - N_q:
            visited = visited + 1
        if last_key <= top + N_k - N_q:
            full = full + 1
        j = j + 1
    return full, visited
