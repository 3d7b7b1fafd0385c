# kind: right
# what: solves the quadratic with math.isqrt, rounds down to 16
"""ex05_tile_sizes: my answer."""

import math


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room. B is at least 16 here."""
    M = sram_bytes // element_size
    w = 8 * max(d, d_v)
    B_c = math.ceil(M / (4 * d))
    root = (math.isqrt(w * w + 12 * M) - w) // 6
    return min(B_c, d), B_c, root // 16 * 16
