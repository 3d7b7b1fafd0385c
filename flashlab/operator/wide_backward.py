"""The gradients of attention with heads wider than 128: fa2_tma_backward with every tile in two parts, and windows.

A tile of 256 columns takes so many registers and so much shared memory that few rows are left, and 192 columns would be
padded to 256. Here a tile is one of 128 columns and one of the rest, padded by itself. A product over the columns is a
sum of two, and dQ_i is added to HBM one part after the other, by atomic operations.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels import fa2_atomic_backward
from flashlab.kernels.fa2_atomic_backward import launch_by_key_blocks
from flashlab.kernels.launch import LOG2_E, capability, checked_backward, padded, why_odd_rows
from flashlab.kernels.tuning import Tiles
from flashlab.operator.sequences import query_blocks_that_see, visible

FIRST = tl.constexpr(128)                              # columns of the first part


@triton.jit
def load_parts(T, T_2, b, h, row):
    """A tile's first 128 columns, and its others; 0 past the ends."""
    X, X_2 = T.load([b, h, row, 0]), T_2.load([b, h, row, FIRST])
    return X.reshape(X.shape[2], X.shape[3]), X_2.reshape(X_2.shape[2], X_2.shape[3])


@triton.jit
def store_part(T, X, N, width: tl.constexpr, first: tl.constexpr, adds: tl.constexpr):
    """Write, or add up, the columns of a tile from `first` on. T: the first of its N rows; it is `width` wide.

    Not by TMA: that would take a part of shared memory, which is full.
    """
    row, col = tl.arange(0, X.shape[0])[:, None], first + tl.arange(0, X.shape[1])
    if adds:
        tl.atomic_add(T + row * width + col, X, mask=(row < N) & (col < width), sem="relaxed")
    else:
        tl.store(T + row * width + col, X, mask=(row < N) & (col < width))


@triton.jit
def wide_backward_kernel(
    Q, Q_2, K, K_2, V, V_2, dO, dO_2,                  # descriptors of (B, H, N, d), one for each part
    L_log2, D, dQ_sum, dK, dV,                         # pointers
    scale, H_q, H_kv, N_q, N_k, left, right, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr,
    stages: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr, B_2: tl.constexpr,
):
    T_c = tl.cdiv(N_k, B_c)                            # which key block? First ones first: most rows see them
    j, head_kv = tl.program_id(0) % T_c, tl.program_id(0) // T_c
    b, h_kv, group = head_kv // H_kv, head_kv % H_kv, H_q // H_kv
    keys = (j * B_c + tl.arange(0, B_c))[:, None]      # (B_c, 1)
    K_j, K_j2 = load_parts(K, K_2, b, h_kv, j * B_c)                               # (B_c, 128), (B_c, B_2)
    V_j, V_j2 = load_parts(V, V_2, b, h_kv, j * B_c)                               # (B_c, 128), (B_c, B_2)
    dK_j, dK_j2 = tl.zeros((B_c, FIRST), tl.float32), tl.zeros((B_c, B_2), tl.float32)
    dV_j, dV_j2 = tl.zeros((B_c, FIRST), tl.float32), tl.zeros((B_c, B_2), tl.float32)
    first, count = query_blocks_that_see(j, B_r, B_c, N_q, N_k, causal, left, right)
    each = tl.maximum(1, count)                        # after step // count the compiler assumes count > 0
    begin = 0 if causal else j % each                  # all programs of a head would add to the same dQ_i at one time
    for step in tl.range(0, group * count, num_stages=stages):                     # `stages` - 1 tiles of Q, dO ahead
        h, i = h_kv * group + step // each, first + (step + begin) % each
        rows, head = i * B_r + tl.arange(0, B_r), (b * H_q + h).to(tl.int64)       # (B_r,)
        Q_i, Q_i2 = load_parts(Q, Q_2, b, h, i * B_r)                              # (B_r, 128), (B_r, B_2)
        dO_i, dO_i2 = load_parts(dO, dO_2, b, h, i * B_r)                          # (B_r, 128), (B_r, B_2)
        L_i = tl.load(L_log2 + head * N_q + rows, mask=rows < N_q, other=float("inf"))         # (B_r,)   there P is 0
        D_i = tl.load(D + head * N_q + rows, mask=rows < N_q, other=0.0)           # (B_r,)
        S_T = tl.dot(K_j2, Q_i2.T, acc=tl.dot(K_j, Q_i.T))                         # (B_c, B_r)
        P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                                # (B_c, B_r)
        P_T = tl.where(visible(rows, keys, N_q, N_k, causal, left, right), P_T, 0.0)
        dP_T = tl.dot(V_j2, dO_i2.T, acc=tl.dot(V_j, dO_i.T))                      # (B_c, B_r)
        dS_T = (P_T * (dP_T * scale - D_i)).to(Q_i.dtype)                          # (B_c, B_r)
        dV_j, dV_j2 = tl.dot(P_T.to(dO_i.dtype), dO_i, dV_j), tl.dot(P_T.to(dO_i.dtype), dO_i2, dV_j2)
        dK_j, dK_j2 = tl.dot(dS_T, Q_i, dK_j), tl.dot(dS_T, Q_i2, dK_j2)
        dQ_i = dQ_sum + (head * N_q + i * B_r) * d
        store_part(dQ_i, tl.dot(dS_T.T, K_j), N_q - i * B_r, d, 0, True)
        store_part(dQ_i, tl.dot(dS_T.T, K_j2), N_q - i * B_r, d, FIRST, True)
    first_row = head_kv.to(tl.int64) * N_k + j * B_c
    store_part(dK + first_row * d, dK_j, N_k - j * B_c, d, 0, False)
    store_part(dK + first_row * d, dK_j2, N_k - j * B_c, d, FIRST, False)
    store_part(dV + first_row * d_v, dV_j, N_k - j * B_c, d_v, 0, False)
    store_part(dV + first_row * d_v, dV_j2, N_k - j * B_c, d_v, FIRST, False)


def wide_backward(Q, K, V, O, dO, L, *, dL=None, B_r=None, B_c=None, **options):
    """The gradients of attention for every batch and head, in three launches, for heads of 129 to 256 columns.

    Options: as kernels/launch.check_call takes them, but no packed sequences, no dropout, no same bits each time
    Shapes:  as fa2_triton_backward; float16 or bfloat16
    Raises:  TypeError or ValueError before anything is launched
    """
    return checked_backward(launch, Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, why_not=why_not, **options)


def why_not(Q, K, V, *, deterministic=False, **options):
    """Why this kernel does not take a call, in words; None if it does."""
    if Q.dtype == torch.float32 or max(Q.shape[-1], V.shape[-1]) <= FIRST.value:
        return "it is for 16 bits, and head dimensions above 128"
    if (capability(Q) or (9, 0))[0] != 9:
        return "its tiles are those of Hopper's shared memory"
    return fa2_atomic_backward.why_not(Q, K, V, deterministic=deterministic) or why_odd_rows(Q=Q, V=V)


def launch(Q, K, V, *tensors, B_r=None, B_c=None, left=None, right=None, **options):
    """The three launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    parts = {"": FIRST.value, "_2": padded(max(Q.shape[-1], V.shape[-1]) - FIRST.value)}
    tiles = Tiles(B_r or 64, B_c or 64, 8, 2)._asdict()
    options |= {"left": left, "right": right, "B_2": parts["_2"], "parts": parts}
    return launch_by_key_blocks(wide_backward_kernel, Q, K, V, *tensors, tiles=tiles, **options)
