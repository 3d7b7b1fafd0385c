# kind: two mistakes
# what: B_r is cut at d_v and not at d; and the room counts d alone
# shows: d_v != d: B_r if d_v < B_c or d < B_c; B if d_v > d
"""ex05_tile_sizes · my answer."""

def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))
    B_r = min(B_c, d_v)
    B = 0
    while 8 * (B + 16) * d + 3 * (B + 16) ** 2 <= M:
        B = B + 16
    return B_r, B_c, B
