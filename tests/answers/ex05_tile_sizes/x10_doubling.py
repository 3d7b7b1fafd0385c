# kind: one mistake
# what: the search doubles B (16, 32, 64, ...), so it finds the largest power of two; it should go up in steps of 16
# shows: sizes where the answer is 48, 80, 96, 112, ...: 192 KiB, element_size 4, d = d_v = 80 gives 32 instead of 48

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


def ceil_div(a, b):
    return -(-a // b)


def elements_in_sram(sram_bytes, element_size):
    return sram_bytes // element_size


def published_rule(M, d):
    B_c = ceil_div(M, 4 * d)
    B_r = min(B_c, d)
    return B_r, B_c


def space_needed(B, d, d_v):
    strips = 8 * B * max(d, d_v)
    squares = 3 * B * B
    return strips + squares


def fits(B, d, d_v, M):
    return space_needed(B, d, d_v) <= M


def find_square_tile(M, d, d_v):
    B = 16
    while fits(B * 2, d, d_v, M):
        B *= 2
    return B


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = elements_in_sram(sram_bytes, element_size)
    B_r, B_c = published_rule(M, d)
    return B_r, B_c, find_square_tile(M, d, d_v)
