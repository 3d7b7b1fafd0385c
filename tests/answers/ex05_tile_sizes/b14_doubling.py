# kind: one mistake
# what: B is doubled from 16 on while it fits, so only powers of two are tried; it may be any multiple of 16
# shows: sizes whose answer is no power of two: 192 KiB in float16 with d = d_v = 64 should give 112, not 64
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
    per_block = -(-M // (4 * d))

    widest = max(d, d_v)
    B = 16
    while 8 * (2 * B) * widest + 3 * (2 * B) ** 2 <= M:
        B *= 2                       # tile sizes are powers of two, like textures
    return min(per_block, d), per_block, B
