# kind: one mistake
# what: the tile must need less than M, it may need M exactly: < where <= is asked for
# shows: an SRAM that a tile fills exactly, such as M = 128 d + 768 (B = 16, comes out as 0) or d = d_v = 64, M = 45056 = 8*64*64 + 3*64*64

"""ex05_tile_sizes · tile sizes from the size of the SRAM

Chapter 05 · difficulty 2 of 5 · 20 minutes

First the rule as FlashAttention-1 published it, then one that leaves room for S_ij and P_ij. M is the number of whole
elements that fit the SRAM.

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
    elements = sram_bytes // element_size
    b_c = elements // (4 * d)
    if elements % (4 * d) != 0:
        b_c += 1
    b_r = b_c if b_c < d else d

    wide = d if d > d_v else d_v
    b = 0
    while 8 * (b + 16) * wide + 3 * (b + 16) * (b + 16) < elements:
        b += 16
    return b_r, b_c, b
