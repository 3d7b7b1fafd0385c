# kind: right
# what: B from the quadratic formula in whole numbers (isqrt), rounded down to a multiple of 16; ceil by (a + b - 1) // b
# shows: 3 B^2 + 8 B D <= M is (3 B + 4 D)^2 <= 3 M + 16 D^2, and 3 B + 4 D is whole, so isqrt is exact; bytes left over fall away with //
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

from math import isqrt


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = (M + 4 * d - 1) // (4 * d)
    B_r = min(B_c, d)
    D = max(d, d_v)
    B = (isqrt(3 * M + 16 * D * D) - 4 * D) // 3
    return B_r, B_c, B // 16 * 16
