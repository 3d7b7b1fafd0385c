"""Dropout without a stored mask: whether a weight is kept is a function of the seed and of the weight's place.

A counter-based generator (Philox) turns a counter into a random number without any state. The counter is the position
of the weight in P, so every kernel draws the same mask again, in any tiles and any order.
"""

import torch
import triton
import triton.language as tl

from flashlab.validate import check_dropout


@triton.jit
def kept(seed, head, row, key, N_q, N_k, dropout_p: tl.constexpr):
    """Whether the weights of these rows and keys stay. Divide by 1 - p after a sum: float16 may not hold one."""
    position = (head * N_q + row) * N_k + key          # int64, one for each weight of each batch and head
    return tl.rand(tl.load(seed), position) >= dropout_p


def dropout_keep_mask(B, H, N_q, N_k, dropout_p, seed):
    """The mask of the kernels as one tensor, computed by PyTorch: for tests, and to look at.

    Shapes: seed, an int or a 0-dim int64 tensor -> (B, H, N_q, N_k), bool, True where the weight is kept
    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": Philox4x32-10 with tl.rand's counter, key
    """
    check_dropout(dropout_p)
    seed, position = int(seed), torch.arange(B * H * N_q * N_k).view(B, H, N_q, N_k)
    zero = torch.zeros_like(position)
    x = _philox([position & _WORD, position >> 32, zero, zero], [seed & _WORD, (seed >> 32) & _WORD])
    x = torch.where(x >= 2**31, _WORD - x, x)          # 31 random bits
    return x.float() * 4.6566127342e-10 >= dropout_p   # times 2^-31, a little less: below 1


_WORD = 2**32 - 1


def _philox(counter, key):
    """Ten rounds of Philox on four 32-bit words, held in int64; the first word of the result."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57         # int64 wraps around: all 64 bits are right
        c0, c1 = (second >> 32 & _WORD) ^ c1 ^ k0, second & _WORD
        c2, c3 = (first >> 32 & _WORD) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0
