"""Dropout without a stored mask: whether a weight is kept is a function of the seed and of the weight's place.

A counter-based generator (Philox) turns a counter into four random words without any state. The counter is the place of
four weights in P, so every kernel draws the same mask again, in any tiles and any order.
"""

import torch
import triton
import triton.language as tl

from flashlab.validate import check_dropout

ROUNDS = tl.constexpr(7)               # the fewest that pass the tests of Philox's authors; three more are their margin


@triton.jit
def kept(seed, row_0, first_row, first_key, N_k, dropout_p: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Whether the weights of a tile stay, (B_r, B_c). Divide by 1 - p after a sum: float16 may not hold one.

    A counter gives four random words, and two neighbours of a row get two of them each, eight keys apart: tensor cores
    leave these four weights to one thread. row_0: number of the first row of the head, or the sequence, among all rows
    """
    rows = row_0 + first_row + tl.arange(0, B_r)                                   # (B_r,)        int64
    fours = tl.cdiv(N_k, 16) * 4                                                   # counters of a row
    counters = rows[:, None] * fours + first_key // 4 + tl.arange(0, B_c // 4)     # (B_r, B_c / 4)
    w0, w1, w2, w3 = tl.randint4x(tl.load(seed), counters, ROUNDS)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape(B_r, B_c // 16, 4, 2, 2)         # 4 pairs; 8 apart; pair
    words = words.permute(0, 1, 3, 2, 4).reshape(B_r, B_c)                         # (B_r, B_c)
    drops = tl.minimum(tl.full((), dropout_p * 2.0**32, tl.float32), 2.0**32 - 2.0**8)         # below 2^32
    return words.to(tl.uint32, bitcast=True) >= drops.to(tl.uint32)


def dropout_keep_mask(B, H, N_q, N_k, dropout_p, seed):
    """The mask of the kernels as one tensor, computed by PyTorch: for tests, and to look at.

    Shapes: seed, an int or a 0-dim int64 tensor -> (B, H, N_q, N_k), bool, True where the weight is kept
    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": Philox4x32, counters as tl.randint4x
    """
    check_dropout(dropout_p)
    groups = -(-N_k // 16)             # of keys, four counters each
    seed, counter = int(seed), torch.arange(B * H * N_q * groups * 4)
    zero = torch.zeros_like(counter)
    words = _philox([counter & _WORD, counter >> 32, zero, zero], [seed & _WORD, (seed >> 32) & _WORD], ROUNDS.value)
    words = torch.stack(words, -1).view(B, H, N_q, groups, 4, 2, 2).transpose(4, 5).reshape(B, H, N_q, groups * 16)
    drops = torch.tensor(dropout_p * 2.0**32, dtype=torch.float32).clamp(max=2.0**32 - 2**8)
    return words[..., :N_k] >= drops.long()


_WORD = 2**32 - 1


def _philox(counter, key, rounds=10):
    """Rounds of Philox on four 32-bit words, held in int64."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(rounds):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57         # int64 wraps around: all 64 bits are right
        c0, c1 = (second >> 32 & _WORD) ^ c1 ^ k0, second & _WORD
        c2, c3 = (first >> 32 & _WORD) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3
