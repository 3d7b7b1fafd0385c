# kind: right
# what: B from the root of 3B^2 + 8wB - M = 0 in whole numbers (math.isqrt), cut down to a multiple of 16
# shows: (3B + 4w)^2 <= 16w^2 + 3M is the stub's condition exactly, so no rounding anywhere; all three are ints
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
    M, _ = divmod(sram_bytes, element_size)

    B_c = (M + 4 * d - 1) // (4 * d)
    B_r = d if d < B_c else B_c

    # 3 B^2 + 8 w B <= M   <=>   (3 B + 4 w)^2 <= 16 w^2 + 3 M
    w = max(d, d_v)
    B = (isqrt(16 * w * w + 3 * M) - 4 * w) // 3
    return B_r, B_c, B & ~15
