"""FA2's backward pass with tensor descriptors: TMA copies the tiles of Q and dO, and adds the tiles of dQ to HBM.

The L2 cache adds a tile in shared memory to one in HBM, element by element. A program hands over dQ_i with one
instruction of one thread and goes on with the next tile; in fa2_atomic_backward each thread works out addresses and
sends its own elements. As in the forward, one loop is enough: past the ends TMA reads zeros and adds nothing, so loads
need no masks, and hidden scores are masked in a branch.
"""

import triton
import triton.language as tl

from flashlab.kernels import fa2_atomic_backward
from flashlab.kernels.fa2_atomic_backward import launch_by_key_blocks, tiles_of_five_products
from flashlab.kernels.launch import LOG2_E, capability, checked_backward, why_gpu_too_old, why_odd_rows
from flashlab.kernels.tuning import Tiles, choose


@triton.jit
def tma_backward_kernel(
    Q, K, V, dO, L_log2, D, dQ_sum, dK, dV,            # descriptors of (B, H, N, d), but pointers L_log2, D, dK, dV
    scale, H_q, H_kv, N_q, N_k, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr, stages: tl.constexpr,
    adds: tl.constexpr, lean: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    T_c = tl.cdiv(N_k, B_c)                            # which key block? First ones first: most rows see them
    j, head_kv = tl.program_id(0) % T_c, tl.program_id(0) // T_c
    b, h_kv, group = head_kv // H_kv, head_kv % H_kv, H_q // H_kv
    keys = (j * B_c + tl.arange(0, B_c))[:, None]      # (B_c, 1)
    K_j = K.load([b, h_kv, j * B_c, 0]).reshape(B_c, B_d)                          # (B_c, B_d)   0 past the ends
    V_j = V.load([b, h_kv, j * B_c, 0]).reshape(B_c, B_dv)                         # (B_c, B_dv)
    dK_j, dV_j = tl.zeros((B_c, B_d), tl.float32), tl.zeros((B_c, B_dv), tl.float32)
    # Every query block that sees a key of this block, of every query head that shares these keys.
    first, end = tl.maximum(0, j * B_c + N_q - N_k) // B_r if causal else 0, tl.cdiv(N_q, B_r)
    whole_from = tl.minimum(end, tl.cdiv(tl.maximum(0, (j + 1) * B_c - 1 + N_q - N_k), B_r)) if causal else 0
    whole = tl.maximum(0, N_q // B_r - whole_from) if (j + 1) * B_c <= N_k else 0  # tiles of visible scores only
    count = tl.maximum(0, end - first)
    each = tl.maximum(1, count)                        # after step // count the compiler assumes count > 0
    begin = 0 if causal else j % each                  # all programs of a head would add to the same dQ_i at one time
    h, i = h_kv * group, first + begin
    for step in tl.range(0, group * count, num_stages=stages):                     # `stages` - 1 tiles of Q, dO ahead
        if not lean:                                   # lean: counted on below, which takes fewer registers
            h, i = h_kv * group + step // each, first + (step + begin) % each
        rows, head = i * B_r + tl.arange(0, B_r), (b * H_q + h).to(tl.int64)       # (B_r,)
        Q_i = Q.load([b, h, i * B_r, 0]).reshape(B_r, B_d)                         # (B_r, B_d)   0 past the ends
        dO_i = dO.load([b, h, i * B_r, 0]).reshape(B_r, B_dv)                      # (B_r, B_dv)
        L_i = tl.load(L_log2 + head * N_q + rows, mask=rows < N_q, other=0.0)                  # (B_r,)
        D_i = tl.load(D + head * N_q + rows, mask=rows < N_q, other=0.0)           # (B_r,)
        S_T = tl.dot(K_j, Q_i.T, input_precision="ieee")                           # (B_c, B_r)
        P_T = tl.exp2(S_T * (scale * LOG2_E) - L_i)                                # (B_c, B_r)
        if (i < whole_from) | (i >= whole_from + whole):                           # a branch all threads take or none
            P_T = tl.where((rows < N_q) & (keys <= rows + (N_k - N_q) if causal else keys < N_k), P_T, 0.0)
        dP_T = tl.dot(V_j, dO_i.T, input_precision="ieee")                         # (B_c, B_r)
        dS_T = P_T * (dP_T * scale - D_i)                                          # (B_c, B_r)
        dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i, input_precision="ieee")           # (B_c, B_dv)
        dK_j += tl.dot(dS_T.to(Q_i.dtype), Q_i, input_precision="ieee")            # (B_c, B_d)
        dQ_i = tl.dot(dS_T.to(Q_i.dtype).T, K_j, input_precision="ieee")           # (B_r, B_d)
        if adds:
            dQ_sum.atomic_add([b, h, i * B_r, 0], dQ_i.reshape(1, 1, B_r, B_d))    #              nothing past the ends
        else:                                          # the interpreter knows no such descriptor: dQ_sum is a pointer
            dQ_at = dQ_sum + (head * N_q + rows)[:, None] * d + tl.arange(0, B_d)
            tl.atomic_add(dQ_at, dQ_i, mask=(rows[:, None] < N_q) & (tl.arange(0, B_d) < d), sem="relaxed")
        if lean:
            i = tl.where(i + 1 == end, first, i + 1)
            h = tl.where(i == first + begin, h + 1, h)
    first_row = head_kv.to(tl.int64) * N_k + j * B_c
    local, col, col_v = tl.arange(0, B_c)[:, None], tl.arange(0, B_d), tl.arange(0, B_dv)      # again: fewer registers
    dK, dV = dK + first_row * d, dV + first_row * d_v
    tl.store(dK + local * d + col, dK_j, mask=(local < N_k - j * B_c) & (col < d))
    tl.store(dV + local * d_v + col_v, dV_j, mask=(local < N_k - j * B_c) & (col_v < d_v))


KERNELS = {"keys": tma_backward_kernel}                # by what its programs keep on chip


def fa2_tma_backward(Q, K, V, O, dO, L, *, dL=None, causal=False, scale=None, deterministic=False, B_r=None, B_c=None):
    """As `fa2_atomic_backward`, but ValueError also for rows that are no multiple of 16 bytes.

    New: TMA copies the tiles and adds dQ up; one loop, whose masks stand in a branch
    """
    return checked_backward(launch, Q, K, V, O, dO, L, dL, causal=causal, scale=scale, deterministic=deterministic,
                            B_r=B_r, B_c=B_c, why_not=why_not)


def why_not(Q, K, V, *, deterministic=False, **options):
    """Why this rung does not take a call, in words; None if it does."""
    reason = fa2_atomic_backward.why_not(Q, K, V, deterministic=deterministic)
    return reason or why_gpu_too_old(Q) or why_odd_rows(Q=Q, V=V)


def launch(Q, K, V, *tensors, B_r=None, B_c=None, tiles=None, **options):
    """The three launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    by_hand, lean = tiles_by_hand(Q, V, options, B_r, B_c)
    tiles = choose(tma_backward_kernel, Q, K, V, options, B_r, B_c, (tiles or {}).get("keys"), by_hand)
    options["lean"] = lean and tiles == by_hand
    tiles = tiles | {"maxnreg": 168} if options["lean"] else tiles
    return launch_by_key_blocks(tma_backward_kernel, Q, K, V, *tensors, tiles=tiles, by_tma=True, **options)


def tiles_by_hand(Q, V, options, B_r=None, B_c=None):
    """Tile sizes, warps and stages by name, and whether the program is lean.

    At d = 64 a Hopper SM has shared memory for three programs of two stages, and registers if none takes more than 168
    a thread: while one waits for its products, two others work. With a mask it is no gain.
    """
    tiles = tiles_of_five_products(Q, V, B_r, B_c)
    lean = tiles == Tiles(64, 64, 4, 3)._asdict() and not options["causal"] and (capability(Q) or (9, 0)) < (10, 0)
    return tiles | {"num_stages": 2} if lean else tiles, lean
