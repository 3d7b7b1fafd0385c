# kind: one mistake
# what: < instead of <= in the room rule
# shows: exact fit, e.g. M = 8*16*k*d+3*..
"""ex05_tile_sizes: my answer."""

def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room. B is at least 16 here."""
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))
    B_r = min(B_c, d)
    w = max(d, d_v)
    B = 16
    while 8 * (B + 16) * w + 3 * (B + 16) ** 2 < M:
        B += 16
    return B_r, B_c, B
