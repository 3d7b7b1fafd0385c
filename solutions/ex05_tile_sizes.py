"""ex05_tile_sizes · tile sizes from the size of the SRAM

Chapter 05 · difficulty 2 of 5 · 15 minutes

Write two rules. The first is the one that FlashAttention-1 published. The second leaves room for S_ij and P_ij. M is
the number of whole elements that fit the SRAM.

    published:     B_c = ⌈M / 4d⌉        B_r = min(⌈M / 4d⌉, d)
    with room:     the largest multiple B of 16 with 8·B·max(d, d_v) + 3·B² ≤ M

8·B·max(d, d_v) is room for Q_i, K_j, V_j and O_i, and as much again for intermediate results. 3·B² is room for S_ij,
P_ij and one intermediate result. sram_bytes is always enough for B = 16. All three results are ints. Example: 192 KiB
in float32 with d = d_v = 64 give B_r = 64, B_c = 192, B = 64.

Not allowed: the finished function from flashlab or solutions/.

Hint: sram_bytes counts bytes, M counts elements. ⌈a / b⌉ is -(-a // b) in whole numbers.
"""


def tile_sizes(sram_bytes, d, d_v, element_size):
    """(B_r, B_c, B): the two of the published rule and the square tile that leaves room."""
    # >>> your turn: M, the published B_r and B_c, the largest B
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))
    B_r = min(B_c, d)
    B = 16
    while 8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2 <= M:
        B += 16
    return B_r, B_c, B
    # <<<
