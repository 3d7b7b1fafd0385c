"""Two ways to hand K to a matrix product, compared by their memory access: the largest score of every query.

`transposed_load` computes pointers to a (d, B_c) tile, so the load itself transposes. Otherwise the tile is loaded as
it lies, (B_c, d), and transposed on chip. The `blind` kernel is compiled without knowing that K's last stride is 1.
"""

import torch
import triton
import triton.language as tl


def largest_score(Q, K, Out, stride_Qn, stride_Kn, stride_Kd, N_k, d: tl.constexpr,
                  B_r: tl.constexpr, B_c: tl.constexpr, transposed_load: tl.constexpr):
    rows = tl.program_id(0) * B_r + tl.arange(0, B_r)      # (B_r,)
    col = tl.arange(0, d)                                  # (d,)
    Q_i = tl.load(Q + rows[:, None] * stride_Qn + col)     # (B_r, d)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)
    for j in range(0, N_k // B_c):                         # for measuring: N_k is a multiple of B_c, N_q of B_r
        keys = j * B_c + tl.arange(0, B_c)                 # (B_c,)
        if transposed_load:
            K_jT = tl.load(K + keys * stride_Kn + col[:, None] * stride_Kd)              # (d, B_c)  a column per key
        else:
            K_jT = tl.load(K + keys[:, None] * stride_Kn + col * stride_Kd).T            # (B_c, d), then transposed
        m_i = tl.maximum(m_i, tl.max(tl.dot(Q_i, K_jT, input_precision="ieee"), 1))      # (B_r,)
    tl.store(Out + rows, m_i)


largest_score_kernel = triton.jit(largest_score)
largest_score_blind_kernel = triton.jit(largest_score, do_not_specialize=["stride_Kd"])


def largest_scores(Q, K, *, transposed_load=False, blind=False, B_r=128, B_c=64):
    """max over j of (Q Kᵀ)_ij.

    Shapes:  Q (N_q, d), K (N_k, d) -> (N_q,) float32; N_q a multiple of B_r, N_k of B_c, d a power of two
    """
    (N_q, d), N_k = Q.shape, K.shape[0]
    if N_q % B_r or N_k % B_c or d != triton.next_power_of_2(d):
        raise ValueError(f"N_q must be a multiple of {B_r}, N_k of {B_c}, d a power of two; got {N_q}, {N_k}, {d}")
    Out = torch.empty(N_q, dtype=torch.float32, device=Q.device)
    kernel = largest_score_blind_kernel if blind else largest_score_kernel
    with torch.cuda.device_of(Q):
        kernel[(N_q // B_r,)](Q, K, Out, Q.stride(0), K.stride(0), K.stride(1), N_k, d, B_r, B_c, transposed_load)
    return Out
