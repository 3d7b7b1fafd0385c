"""FA2's backward pass in one kernel: the program that computes dK and dV also adds its share of dQ to HBM.

Two kernels compute S and dP twice: seven matrix products for a gradient that takes five. With keys fixed, each
program has a share of every dQ_i that sees its keys, and adds it to a float32 dQ in HBM by atomic operations. Programs
arrive in any order, and float32 addition is not associative: the last bits of dQ change from run to run.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.fa2_backward import preprocess
from flashlab.kernels.launch import (
    LOG2_E,
    capability,
    checked_backward,
    descriptor,
    fit_for_tma,
    little_shared_memory,
    only_wanted,
    padded,
    shared_arguments,
)
from flashlab.kernels.plans import temporary
from flashlab.kernels.tuning import Tiles, choose


@triton.jit
def atomic_backward_kernel(
    Q, K, V, dO, L_log2, D, dQ_sum, dK, dV,            # pointers; L_log2, D, dQ_sum, dK, dV are contiguous
    stride_Qb, stride_Qh, stride_Qn, stride_Qd, stride_dOb, stride_dOh, stride_dOn, stride_dOd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd, stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    T_c = tl.cdiv(N_k, B_c)                            # which key block? First ones first: most rows see them
    j, head_kv = tl.program_id(0) % T_c, (tl.program_id(0) // T_c).to(tl.int64)
    b, h_kv, group = head_kv // H_kv, head_kv % H_kv, H_q // H_kv
    keys = (j * B_c + tl.arange(0, B_c))[:, None]      # (B_c, 1)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    K_at = K + b * stride_Kb + h_kv * stride_Kh + keys.to(tl.int64) * stride_Kn + col * stride_Kd
    K_j = tl.load(K_at, mask=(keys < N_k) & (col < d), other=0.0)                  # (B_c, B_d)
    V_at = V + b * stride_Vb + h_kv * stride_Vh + keys.to(tl.int64) * stride_Vn + col_v * stride_Vd
    V_j = tl.load(V_at, mask=(keys < N_k) & (col_v < d_v), other=0.0)              # (B_c, B_dv)
    dK_j, dV_j = tl.zeros((B_c, B_d), tl.float32), tl.zeros((B_c, B_dv), tl.float32)
    # Every query block that sees a key of this block, of every query head that shares these keys.
    first, end = tl.maximum(0, j * B_c + N_q - N_k) // B_r if causal else 0, tl.cdiv(N_q, B_r)
    whole_from = tl.minimum(end, tl.cdiv(tl.maximum(0, (j + 1) * B_c - 1 + N_q - N_k), B_r)) if causal else 0
    whole = tl.maximum(0, N_q // B_r - whole_from) if (j + 1) * B_c <= N_k else 0  # tiles of visible scores only
    for masked in tl.static_range(2):                  # unrolled: two loops, of which only the second has masks
        count = end - first - whole if masked else whole
        for step in range(0, group * count):
            each = tl.maximum(1, count)                # after step // count the compiler assumes count > 0
            h, i = h_kv * group + step // each, (first if masked else whole_from) + step % each
            i += tl.where(i >= whole_from, whole, 0) if masked else 0
            head, rows = b * H_q + h, i * B_r + tl.arange(0, B_r)                  # (B_r,)
            row_ok = rows < N_q if masked else None                                # (B_r,)
            Q_at = Q + b * stride_Qb + h * stride_Qh + rows[:, None].to(tl.int64) * stride_Qn + col * stride_Qd
            Q_i = tl.load(Q_at, mask=row_ok[:, None] & (col < d) if masked else (col < d)[None, :], other=0.0)
            dO_at = dO + b * stride_dOb + h * stride_dOh + rows[:, None].to(tl.int64) * stride_dOn + col_v * stride_dOd
            dO_i = tl.load(dO_at, mask=row_ok[:, None] & (col_v < d_v) if masked else (col_v < d_v)[None, :], other=0.0)
            L_i = tl.load(L_log2 + head * N_q + rows, mask=row_ok, other=0.0 if masked else None)
            S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                       # (B_c, B_r)
            P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                            # (B_c, B_r)
            if masked:                                 # keys past the end, too: there exp2(-L) may be inf
                P_T = tl.where(row_ok & (keys <= rows + (N_k - N_q) if causal else keys < N_k), P_T, 0.0)
            dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                     # (B_c, B_r)
            D_i = tl.load(D + head * N_q + rows, mask=row_ok, other=0.0 if masked else None)    # here: fewer registers
            dS_T = P_T * (dP_T * scale - D_i)                                      # (B_c, B_r)
            dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")       # (B_c, B_dv)
            dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")        # (B_c, B_d)
            dQ_i, row = tl.dot(dS_T.to(Q_i.dtype).T, K_j, input_precision="ieee"), tl.arange(0, B_r)[:, None]
            dQ_at = dQ_sum + (head * N_q + i * B_r) * d + row * d + tl.arange(0, B_d)
            tl.atomic_add(dQ_at, dQ_i, mask=(row < N_q - i * B_r) & (tl.arange(0, B_d) < d), sem="relaxed")
    local, col, col_v = tl.arange(0, B_c)[:, None], tl.arange(0, B_d), tl.arange(0, B_dv)      # again: fewer registers
    dK, dV = dK + (head_kv * N_k + j * B_c) * d, dV + (head_kv * N_k + j * B_c) * d_v
    tl.store(dK + local * d + col, dK_j, mask=(local < N_k - j * B_c) & (col < d))
    tl.store(dV + local * d_v + col_v, dV_j, mask=(local < N_k - j * B_c) & (col_v < d_v))


@triton.jit
def finish_kernel(dQ_sum, dQ, n, B: tl.constexpr):
    """dQ = dQ_sum in dQ's dtype."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)                       # (B,)
    tl.store(dQ + at, tl.load(dQ_sum + at, mask=at < n), mask=at < n)


KERNELS = {"keys": atomic_backward_kernel}             # by what its programs keep on chip


def fa2_atomic_backward(Q, K, V, O, dO, L, *, dL=None, causal=False, scale=None, deterministic=False, B_r=None,
                        B_c=None):
    """As `fa2_tuned_backward`, but the bits of dQ change from run to run; ValueError if deterministic.

    New: dQ is added up by atomic operations, five matrix products instead of seven
    """
    return checked_backward(launch, Q, K, V, O, dO, L, dL, causal=causal, scale=scale, deterministic=deterministic,
                            B_r=B_r, B_c=B_c, why_not=why_not)


def why_not(Q, K, V, *, deterministic=False, **options):
    """Why this rung does not take a call, in words; None if it does."""
    reason = "it adds dQ up in whatever order its programs come, and the same bits each time were asked for"
    return reason if deterministic else None


def launch(Q, K, V, *tensors, B_r=None, B_c=None, tiles=None, **options):
    """The three launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    by_hand = tiles_of_five_products(Q, V, B_r, B_c)
    tiles = choose(atomic_backward_kernel, Q, K, V, options, B_r, B_c, (tiles or {}).get("keys"), by_hand)
    return launch_by_key_blocks(atomic_backward_kernel, Q, K, V, *tensors, tiles=tiles, **options)


def launch_by_key_blocks(kernel, Q, K, V, O, dO, L, dL, dQ, dK, dV, *, tiles, by_tma=False, parts=None, **options):
    """D first, then a kernel with a program for each key block of each key head, then dQ in its own dtype.

    by_tma: the kernel takes Q, K, V, dO and, compiled, the sum of dQ as tensor descriptors
    parts:  it takes Q, K, V, dO as several each, of tiles of these widths; their names end with the keys
    """
    shared = shared_arguments(Q, K, V, options, dO=dO)
    first, rows = preprocess(shared, O, L, dL)
    dQ_sum = temporary(torch.zeros, *Q.shape, dtype=L.dtype, device=Q.device)
    arguments = shared | rows | {"dQ_sum": dQ_sum, "dK": dK, "dV": dV, "stages": tiles["num_stages"]} | tiles
    copied = [("Q", Q, "B_r"), ("dO", dO, "B_r"), ("K", K, "B_c"), ("V", V, "B_c")] if by_tma or parts else []
    if by_tma:
        arguments["adds"] = Q.device.type != "cpu"
        copied += [("dQ_sum", dQ_sum, "B_r")] if arguments["adds"] else []
    for name, T, size in copied:
        T = fit_for_tma(T)
        for end, width in (parts or {"": padded(T.shape[-1])}).items():
            arguments[name + end] = descriptor(T, (tiles[size], width))
    grid = (K.shape[0] * K.shape[1] * triton.cdiv(K.shape[2], tiles["B_c"]),)
    last = {"dQ_sum": dQ_sum, "dQ": dQ, "n": dQ.numel(), "B": 4096, "num_warps": 8}
    return (first, (kernel, grid, only_wanted(kernel, arguments)),
            (finish_kernel, (triton.cdiv(dQ.numel(), 4096),), last))


def tiles_of_five_products(Q, V, B_r=None, B_c=None):
    """Tile sizes, warps and stages by name, if B_r and B_c are not set: dQ_i takes registers, too."""
    d, small = max(Q.shape[-1], V.shape[-1]), little_shared_memory(Q)
    if Q.dtype == torch.float32:
        tiles = Tiles(32 if d <= 64 else 16, 32 if d <= 128 else 16, 8, 2)
    elif d <= 64:
        tiles = Tiles(64, 64, 4, 3)
    elif d <= 128:
        tiles = Tiles(32 if small else 64, 64 if small else 128, 8, 2)
    else:
        tiles = Tiles(16, 64, 8, 2)
    if (capability(Q) or (0, 0)) >= (10, 0):
        tiles = tiles._replace(B_c=64)                 # five products of 128 columns overflow tensor memory
    return tiles._replace(B_r=B_r or tiles.B_r, B_c=B_c or tiles.B_c)._asdict()
