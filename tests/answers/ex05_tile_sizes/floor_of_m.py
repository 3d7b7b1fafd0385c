# kind: one mistake
# what: M // 4d without rounding up
# shows: M not a multiple of 4d: B_c (and B_r where it is below d) is one too small
"""ex05_tile_sizes · my answer."""

def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = M // (4 * d)
    B_r = min(B_c, d)
    B = max(b for b in range(16, 16 + B_c * 4, 16) if 8 * b * max(d, d_v) + 3 * b * b <= M)
    return B_r, B_c, B
