# kind: one mistake
# what: B is doubled as long as it fits, so only powers of two are tried; it should be the largest multiple of 16
# shows: inputs whose B is 48, 80, 96 ..., for example 192 KiB, 2-byte elements, d = d_v = 64: 64 instead of 112 (the example of the stub has B = 64 and hides it)
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
    B_c = (M + 4 * d - 1) // (4 * d)
    B_r = B_c if B_c < d else d

    widest = d if d > d_v else d_v
    B = 16
    while 8 * (2 * B) * widest + 3 * (2 * B) ** 2 <= M:
        B = 2 * B
    return B_r, B_c, B
