# kind: one mistake
# what: visited by int(a / b), which rounds towards 0 and not down: -1/B_c becomes block 0
# shows: N_q > N_k, a query block whose last query sees no key, but by less than B_c: visited 1, not 0
"""ex06_causal_skipping · which key blocks a causal query block visits"""

import math


def key_blocks(i, N_q, N_k, B_r, B_c):
    """(full, visited) for query block i."""
    last_key_of_last = min((i + 1) * B_r, N_q) - 1 + N_k - N_q
    last_key_of_first = i * B_r + N_k - N_q

    visited = max(0, int(last_key_of_last / B_c) + 1)
    if last_key_of_first == N_k - 1:
        full = math.ceil(N_k / B_c)
    else:
        full = max(0, (last_key_of_first + 1) // B_c)
    return full, visited
