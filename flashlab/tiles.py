"""What all tiled rungs share: how large a tile may be, which of its scores are hidden, which of its weights are dropped.

Rungs repeat each other's arithmetic, so that the difference between two of them is the lesson. Sizes, masks and draws are no
lesson, and stand here once.
"""

from typing import NamedTuple

import torch

from flashlab.memory import A100_SRAM, active
from flashlab.validate import check_dropout, check_positive, check_window

inf = float("inf")


def paper_tile_sizes(sram_bytes, d, element_size=4):
    """The published rule B_c = ⌈M/4d⌉, B_r = min(⌈M/4d⌉, d), M in elements.

    K_j and V_j take a quarter of M each. The min(·, d) is there for S_ij, which then takes a quarter at most. So one S_ij fits
    beside the strips of d columns; a second tile of its size, a scaled copy or P_ij, does not.
    Returns: (B_r, B_c)
    Source:  Dao et al. 2022, arXiv:2205.14135, Algorithm 1, line 1, and the proof of Theorem 2: B_r·B_c = O(M)
    """
    check_positive(sram_bytes=sram_bytes, d=d, element_size=element_size)
    M = sram_bytes // element_size
    B_c = -(-M // (4 * d))                                 # ⌈M/4d⌉
    return min(B_c, d), B_c                                # at most d: B_r·B_c is about M/4


def largest_square_tile(d, d_v, element_size, *, wide=8, square=3, multiple=16):
    """The default B_r = B_c = B: the largest multiple of 16 with wide·B·max(d, d_v) + square·B² elements within SRAM.

    In the forward 8·B·max(d, d_v) is room for Q_i, K_j, V_j, O_i and as much again for results in the making, 3·B² for
    S_ij, P_ij and one temporary. The backward, with dQ_i, dK_j, dV_j, dO_i, dP_ij and dS_ij on chip too, takes wide=9 and
    square=5, and multiples of 8 because its tiles are small. The SRAM is that of the active Memory, else 192 KiB. Below
    `multiple` it falls back to the largest B that fits.
    """
    mem = active()
    M = (mem.sram_bytes if mem else A100_SRAM) // element_size
    B = 1
    while wide * (B + 1) * max(d, d_v) + square * (B + 1) ** 2 <= M:
        B += 1
    return B - B % multiple if B >= multiple else B


def hidden(rows, cols, shift, device):
    """True where the key comes after the query, (B_r, B_c). shift = N_k - N_q lines the last query up with the last key."""
    queries = torch.arange(rows.start, rows.stop, device=device)        # (B_r,)
    keys = torch.arange(cols.start, cols.stop, device=device)           # (B_c,)
    return keys > queries[:, None] + shift                              # (B_r, B_c)


def causal_mask(causal, shift):
    """mask(S_ij, rows, cols): S_ij with -inf where the key comes after the query, or S_ij as it is where `causal` is False."""
    def mask(S_ij, rows, cols):
        return S_ij.masked_fill(hidden(rows, cols, shift, S_ij.device), -inf)
    return mask if causal else lambda S_ij, rows, cols: S_ij


class Band(NamedTuple):
    """Which keys a query sees: those from `left` before its own place to `right` after it, None for no limit.

    Query i stands at key i + shift, shift = N_k - N_q: the last query at the last key. Causal is right = 0.
    """

    left: int | None
    right: int | None
    shift: int

    def misses(self, rows, cols):
        """True where no query of these rows sees a key of these columns: their tile is skipped."""
        after = self.right is not None and cols.start > rows.stop - 1 + self.shift + self.right
        before = self.left is not None and cols.stop - 1 < rows.start + self.shift - self.left
        return after or before

    def mask(self, S_ij, rows, cols):
        """S_ij with -inf where the query does not see the key."""
        if self.right is not None:
            S_ij = S_ij.masked_fill(hidden(rows, cols, self.shift + self.right, S_ij.device), -inf)
        if self.left is not None:                          # seen are the keys after place left + 1 before the query's own
            seen = hidden(rows, cols, self.shift - self.left - 1, S_ij.device)
            S_ij = S_ij.masked_fill(~seen, -inf)
        return S_ij


def band(causal, window, N_q, N_k):
    """The Band of a call. window: None or (left, right), -1 for no limit. Raises: TypeError or ValueError as check_window."""
    causal, window = check_window(window, causal, N_q, N_k)
    left, right = (None if limit == -1 else limit for limit in window or (-1, 0 if causal else -1))
    return Band(left, right, N_k - N_q)


def keep_masks(dropout_p, rng_state, device):
    """A function that draws the next tile's mask of kept weights, like P_ij: the order of the calls fixes the masks.

    rng_state: a torch.Generator's get_state(). The same state and tile sizes draw the same masks again, which is how the
    backward comes by those of the forward: nobody stores them.
    Returns: None without dropout.  Raises: TypeError or ValueError for dropout_p; ValueError if dropout has no rng_state
    """
    check_dropout(dropout_p)
    if dropout_p == 0:
        return None
    if not isinstance(rng_state, torch.Tensor):
        raise ValueError(f"rng_state must be a torch.Generator's get_state() when dropout_p > 0, got {rng_state!r}: "
                         "forward and backward need the same one")
    generator = torch.Generator(device).set_state(rng_state)
    return lambda P_ij: torch.rand(P_ij.shape, generator=generator, dtype=P_ij.dtype, device=device) >= dropout_p
