"""Tile sizes, causal masks and dropout draws, which are the same in all tiled rungs and no part of their lesson."""

import torch

from flashlab.memory import A100_SRAM, active
from flashlab.validate import check_bool, check_dropout, check_like, check_positive, check_qkv, check_scale


def paper_tile_sizes(sram_bytes, d, element_size=4):
    """The published rule B_c = ⌈M/4d⌉, B_r = min(⌈M/4d⌉, d), M in elements.

    K_j and V_j take a quarter of M each, and min(·, d) keeps S_ij to a quarter. So one S_ij fits beside them; a second
    tile of its size, a scaled copy or P_ij, does not. Returns: (B_r, B_c)
    Source:  Dao et al. 2022, arXiv:2205.14135, Algorithm 1, line 1, and the proof of Theorem 2: B_r·B_c = O(M)
    """
    check_positive(sram_bytes=sram_bytes, d=d, element_size=element_size)
    B_c = -(-(sram_bytes // element_size) // (4 * d))      # ⌈M/4d⌉
    return min(B_c, d), B_c                                # at most d: B_r·B_c is about M/4


def largest_square_tile(d, d_v, element_size, *, wide=8, square=3, multiple=16):
    """The default B_r = B_c = B: the largest multiple of 16 with wide·B·max(d, d_v) + square·B² elements within SRAM.

    In the forward 8·B·max(d, d_v) is room for Q_i, K_j, V_j, O_i and as much again for results in the making, 3·B² for
    S_ij, P_ij and one temporary. The SRAM is that of the active Memory, else 192 KiB. Below `multiple` it falls back to
    the largest B that fits.
    """
    mem = active()
    M = (mem.sram_bytes if mem else A100_SRAM) // element_size
    B = 1
    while wide * (B + 1) * max(d, d_v) + square * (B + 1) ** 2 <= M:
        B += 1
    return B - B % multiple if B >= multiple else B


def prepare(Q, K, V, causal, scale, B_r, B_c, **room):
    """Check what all tiled rungs take, and fill in the defaults. room: as largest_square_tile takes it.

    Returns: shift, scale, acc, B_r, B_c. shift is N_k - N_q, which puts query i at key i + shift and the last query at
             the last key, or None if not causal. acc is the dtype of sums: in 16 bits they would lose the answer
    """
    check_qkv(Q, K, V)
    check_bool(causal=causal)
    acc = torch.float64 if Q.dtype == torch.float64 else torch.float32
    B = largest_square_tile(Q.shape[-1], V.shape[-1], acc.itemsize, **room)
    B_r, B_c = B if B_r is None else B_r, B if B_c is None else B_c
    check_positive(B_r=B_r, B_c=B_c)
    return len(K) - len(Q) if causal else None, check_scale(scale, Q.shape[-1]), acc, B_r, B_c


def prepare_backward(Q, K, V, O, dO, causal, scale, B_r, B_c, **statistics):
    """As `prepare`, of a backward rung. statistics: l and m, or L, by name. Tiles are small, hence multiples of 8."""
    found = prepare(Q, K, V, causal, scale, B_r, B_c, wide=9, square=5, multiple=8)    # dQ_i, dK_j, dV_j, dO_i, dS_ij
    like_O, like_L = ((len(Q), V.shape[1]), Q.dtype), ((len(Q),), found[2])
    check_like(O=(O, *like_O), dO=(dO, *like_O), **{name: (T, *like_L) for name, T in statistics.items()})
    return found


def hidden(rows, cols, shift, device):
    """True where the key comes after the query, (B_r, B_c); None where shift is None and no key is hidden."""
    if shift is None:
        return None
    queries = torch.arange(rows.start, rows.stop, device=device)        # (B_r,)
    keys = torch.arange(cols.start, cols.stop, device=device)           # (B_c,)
    return keys > queries[:, None] + shift                              # (B_r, B_c)


def all_hidden(rows, cols, shift):
    """True where no query of these rows sees a key of these columns: their tile is skipped."""
    return shift is not None and cols.start > rows.stop - 1 + shift


def keep_masks(dropout_p, rng_state, device, dtype=torch.float32):
    """draw(rows, cols) for the next tile's mask of kept weights (B_r, B_c), None without dropout.

    rng_state: a torch.Generator's get_state(). With the same state and tile sizes the backward draws the masks of the
    forward again, in the order of the calls: no mask is stored.
    """
    check_dropout(dropout_p)
    if dropout_p == 0:
        return lambda rows, cols: None
    if not isinstance(rng_state, torch.Tensor):
        raise ValueError(f"rng_state must be a torch.Generator's get_state() when dropout_p > 0, got {rng_state!r}: "
                         "forward and backward need the same one")
    generator = torch.Generator(device).set_state(rng_state)


    def draw(rows, cols):
        size = rows.stop - rows.start, cols.stop - cols.start
        return torch.rand(size, generator=generator, dtype=dtype, device=device) >= dropout_p
    return draw
