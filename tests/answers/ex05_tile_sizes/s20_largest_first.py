# kind: right
# what: whole numbers throughout; B starts from the largest multiple of 16 that could fit at all and goes down until it does
# shows: M by whole division, ⌈⌉ by whole division, max(d, d_v), ≤ M; ints

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


def ceil_div(a, b):
    return (a + b - 1) // b


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    B_c = ceil_div(M, 4 * d)
    B_r = min(B_c, d)
    wide = max(d, d_v)
    B = isqrt(M // 3) // 16 * 16                  # 3·B² alone has to fit
    while 8 * B * wide + 3 * B * B > M:
        B -= 16
    return B_r, B_c, B
