# kind: right
# what: the quadratic inequality solved with isqrt, then rounded down to 16
"""ex05_tile_sizes · my answer."""

from math import isqrt


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = (M + 4 * d - 1) // (4 * d)
    w = 4 * max(d, d_v)                                    # 3 B² + 2 w B <= M
    B = (isqrt(w * w + 3 * M) - w) // 3
    return (B_c if B_c < d else d), B_c, B - B % 16
