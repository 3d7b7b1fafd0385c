"""FA2's forward pass with tensor descriptors: one thread asks for a tile by its coordinates, and TMA copies it.

Since Hopper a GPU has a Tensor Memory Accelerator beside its SMs. It knows a tensor by a descriptor (address, sizes,
strides, the tile's shape), made once per launch on the host. A load is then one instruction of one thread: no
addresses in registers, no masks, zeros past the ends, and the tile lies in shared memory as the tensor cores want it.
Rows must have neighbouring elements and begin at multiples of 16 bytes: see `why_not`.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.launch import LOG2_E, checked_forward, little_shared_memory, pick_tiles, why_no_tma
from flashlab.kernels.tuning import Tiles, launch_with_fastest_tiles


@triton.jit
def fa2_tma_kernel(
    Q, K, V, O, L,                                     # descriptors of (B, H, N, d), and a pointer to L
    scale, H_q, H_kv, N_q, N_k, causal: tl.constexpr, stages: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,   # tile sizes; d, d_v padded to 2^n
):
    # Which query block of which head? Last blocks first: causal ones see most keys, and late long ones leave SMs idle.
    T_r = tl.cdiv(N_q, B_r)
    i = T_r - 1 - tl.program_id(0) % T_r
    head = tl.program_id(0) // T_r
    b, h, h_kv = head // H_q, head % H_q, head % H_q // (H_q // H_kv)              # neighbours share a key head

    scale_log2 = scale * LOG2_E                        # > 0
    rows = i * B_r + tl.arange(0, B_r)                 # (B_r,)
    Q_i = Q.load([b, h, i * B_r, 0]).reshape(B_r, B_d)                             # (B_r, B_d)   0 past the ends
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                               # (B_r,)       below any score
    l_i = tl.zeros((B_r,), tl.float32)                                             # (B_r,)
    O_i = tl.zeros((B_r, B_dv), tl.float32)                                        # (B_r, B_dv)
    end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q if causal else N_k            # keys from here on are hidden
    whole = (tl.maximum(0, i * B_r + N_k - N_q + 1) if causal else N_k) // B_c     # tiles that the first row sees whole
    for j in tl.range(0, tl.cdiv(end, B_c), num_stages=stages):                    # `stages` - 1 tiles of K, V ahead
        keys = j * B_c + tl.arange(0, B_c)             # (B_c,)
        K_j = K.load([b, h_kv, j * B_c, 0]).reshape(B_c, B_d)                      # (B_c, B_d)
        V_j = V.load([b, h_kv, j * B_c, 0]).reshape(B_c, B_dv)                     # (B_c, B_dv)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                          # (B_r, B_c)   "ieee": not TF32
        if j >= whole:                                 # a branch that all threads take or none
            visible = keys <= rows[:, None] + (N_k - N_q) if causal else keys < N_k
            S_ij = tl.where(visible, S_ij, -float("inf"))                          # (B_r, B_c)
        m_new = tl.maximum(m_i, tl.max(S_ij, 1) * scale_log2)                      # (B_r,)       in base 2
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)                      # (B_r,)       no -inf - -inf: NaN
        alpha = tl.exp2(m_i - m_safe)                                              # (B_r,)       0 at first: m_i = -inf
        P_ij = tl.exp2(S_ij * scale_log2 - m_safe[:, None])                        # (B_r, B_c)
        l_i = alpha * l_i + tl.sum(P_ij, 1)                                        # (B_r,)
        PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")               # (B_r, B_dv)
        O_i = alpha[:, None] * O_i + PV                                            # (B_r, B_dv)  divided after the loop
        m_i = m_new
    l_safe = tl.where(l_i == 0, 1.0, l_i)                                          # (B_r,)       no key: O_i stays 0
    O_i = (O_i / l_safe[:, None]).to(Q_i.dtype)                                    # (B_r, B_dv)
    O.store([b, h, i * B_r, 0], O_i.reshape(1, 1, B_r, B_dv))                      #              nothing past the ends
    tl.store(L + head.to(tl.int64) * N_q + rows, (m_i + tl.log2(l_safe)) / LOG2_E, mask=rows < N_q)


KERNEL = fa2_tma_kernel
why_not = why_no_tma


def fa2_tma_forward(Q, K, V, *, causal=False, scale=None, B_r=None, B_c=None):
    """As `fa2_pipelined_forward`, but ValueError if `why_not` has a reason. New: TMA copies the tiles, no addresses."""
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, B_r=B_r, B_c=B_c, why_not=why_not)


def launch(Q, K, V, O, L, *, B_r=None, B_c=None, **options):
    """The grid and the arguments of one launch, tile sizes and warps included; nothing is checked and nothing runs."""
    by_hand = tiles_by_hand(Q, K, V, options, B_r, B_c)
    return launch_with_fastest_tiles(KERNEL, Q, K, V, O, L, B_r=B_r, B_c=B_c, otherwise=by_hand, by_tma=True, **options)


def tiles_by_hand(Q, K, V, options, B_r=None, B_c=None):
    """Tile sizes, warps and stages by name: the fastest of those tried on an H200, where these fit.

    Where there are few keys a program is short, and two small programs an SM hide each other's beginning and end.
    """
    d = max(Q.shape[-1], V.shape[-1])
    if B_r or B_c or d > 128 or Q.dtype == torch.float32 or little_shared_memory(Q):
        return pick_tiles(Q, V, options, B_r, B_c)
    if K.shape[2] <= 1024:
        return Tiles(64, 64, 4, 3)._asdict()
    return Tiles(64, 128, 4, 2)._asdict() if d <= 64 else Tiles(128, 128, 8, 3)._asdict()
