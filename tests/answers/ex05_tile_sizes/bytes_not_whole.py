# kind: one mistake
# what: ⌈M / 4d⌉ from bytes in one go: the fraction of an element at the end is rounded up too
# shows: sram_bytes not a multiple of element_size where the whole elements are just a multiple of 4d: sram_bytes = 4·d·n·4 + 1 gives n + 1
"""ex05_tile_sizes · my answer."""

import math


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    B_c = math.ceil(sram_bytes / element_size / (4 * d))
    B_r = min(B_c, d)
    B = 16
    while (8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2) * element_size <= sram_bytes:
        B += 16
    return B_r, B_c, B
