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
    seed, low = int(seed), 2**32 - 1                   # low: a mask of 32 bits
    position = torch.arange(B * H * N_q * N_k).view(B, H, N_q, N_k)
    c0, c1, c2, c3 = position & low, position >> 32, torch.zeros_like(position), torch.zeros_like(position)
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):                                # rounds, on 32-bit words held in int64
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57         # int64 wraps around: all 64 bits are right
        c0, c1 = (second >> 32 & low) ^ c1 ^ k0, second & low
        c2, c3 = (first >> 32 & low) ^ c3 ^ k1, first & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    x = torch.where(c0 >= 2**31, 2**32 - 1 - c0, c0)   # 31 random bits
    return x.float() * 4.6566127342e-10 >= dropout_p   # times 2^-31, a little less: below 1
