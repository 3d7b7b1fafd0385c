# kind: one mistake
# what: B is doubled from 16 on: only powers of two are found
# shows: where the largest multiple of 16 is no power of two (48, 80, 96 ...); the stub's example is right
"""ex05_tile_sizes · my answer."""

def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))
    B_r = min(B_c, d)

    def room(B):
        return 8 * B * max(d, d_v) + 3 * B**2

    B = 16
    while room(2 * B) <= M:
        B *= 2
    return B_r, B_c, B
