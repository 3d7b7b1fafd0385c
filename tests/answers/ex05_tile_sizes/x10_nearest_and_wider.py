# kind: two mistakes
# what: (1) the largest B that fits is rounded to the nearest multiple of 16 instead of down to one; (2) the published rule takes max(d, d_v) where it says d
# shows: (1) any size whose largest B has a remainder of more than 8 by 16; (2) d_v > d

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


def get_max_dim(d, d_v):
    return d if d > d_v else d_v


def get_published(M, dim):
    quarter = -(-M // (4 * dim))
    return {"B_r": min(quarter, dim), "B_c": quarter}


def get_budget_checker(M, dim):
    def checker(B):
        return 8 * B * dim + 3 * B ** 2 <= M
    return checker


def get_largest(checker):
    B = 16
    while checker(B + 1):
        B += 1
    return B


def snap_to_grid(B, grid=16):
    return round(B / grid) * grid


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    M = sram_bytes // element_size
    dim = get_max_dim(d, d_v)
    published = get_published(M, dim)
    B = snap_to_grid(get_largest(get_budget_checker(M, dim)))
    return published["B_r"], published["B_c"], B
