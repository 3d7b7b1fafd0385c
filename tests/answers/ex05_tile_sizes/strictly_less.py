# kind: one mistake
# what: the loop stops where room is exactly used up: < in place of <=
# shows: 8·B·max(d, d_v) + 3·B² = M exactly: B is 16 too small (d = d_v = 64, M = 8960 gives 0)
"""ex05_tile_sizes · my answer."""

def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))
    wide = max(d, d_v)
    fits = [b for b in range(16, M + 1, 16) if 8 * b * wide + 3 * b * b < M]
    return min(B_c, d), B_c, max(fits, default=0)
