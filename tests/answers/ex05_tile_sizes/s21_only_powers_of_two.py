# kind: one mistake
# what: B is doubled from 16 on, so it is the largest power of two; it should be the largest multiple of 16 (48, 80, 96, 112, ... as well)
# shows: SRAM in which 48, 80, 96 or 112 fits and the next power of two does not; the stub's own example comes out right
"""ex05_tile_sizes · tile sizes from the size of the SRAM

Chapter 05 · difficulty 2 of 5 · 20 minutes

First the rule as FlashAttention-1 published it, then one that leaves room for S_ij and P_ij. M is the number of whole
elements that fit the SRAM; bytes may be left over.

    published:     B_c = ⌈M / 4d⌉        B_r = min(⌈M / 4d⌉, d)
    with room:     the largest multiple B of 16 with 8·B·max(d, d_v) + 3·B² ≤ M

8·B·max(d, d_v) is room for Q_i, K_j, V_j, O_i and as much again for results in the making, 3·B² for S_ij, P_ij and one
temporary. sram_bytes is always enough for B = 16. All three results are ints. Example: 192 KiB in float32 with
d = d_v = 64 give B_r = 64, B_c = 192, B = 64.

Not allowed: the finished function from flashlab or solutions/.

Hint: sram_bytes counts bytes, M counts elements. ⌈a / b⌉ is -(-a // b) in whole numbers.
"""


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))
    B_r = min(B_c, d)

    def fits(B):
        return 8 * B * max(d, d_v) + 3 * B * B <= M

    B = 16
    while fits(2 * B):
        B *= 2
    return B_r, B_c, B
