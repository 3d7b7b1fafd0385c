"""What each guard of the forward kernel is for: chapter 10 leaves one out at a time and looks at what comes of it.

One head, contiguous, every guard a switch. The kernel to use is the one in flashlab/kernels/fa2.py, which has them all.
"""

import torch
import triton
import triton.language as tl

GUARDS = ("loads", "scores", "m_safe")


@triton.jit
def guards_kernel(
    Q, K, V, O, scale, N_q, N_k,
    causal: tl.constexpr, loads: tl.constexpr, scores: tl.constexpr, m_safe: tl.constexpr,
    d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr,
):
    i, col = tl.program_id(0), tl.arange(0, d)
    rows = i * B_r + tl.arange(0, B_r)                                             # (B_r,)
    Q_i = tl.load(Q + rows[:, None] * d + col, mask=rows[:, None] < N_q, other=0.0)
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                               # (B_r,)
    l_i = tl.zeros((B_r,), tl.float32)                                             # (B_r,)
    O_i = tl.zeros((B_r, d), tl.float32)                                           # (B_r, d)
    end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q if causal else N_k
    for j in range(0, tl.cdiv(end, B_c)):
        keys = j * B_c + tl.arange(0, B_c)                                         # (B_c,)
        key_ok = keys[:, None] < (N_k if loads else N_k + B_c)                     # (B_c, 1)
        K_j = tl.load(K + keys[:, None] * d + col, mask=key_ok, other=0.0)         # (B_c, d)
        V_j = tl.load(V + keys[:, None] * d + col, mask=key_ok, other=0.0)         # (B_c, d)
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee") * scale                  # (B_r, B_c)
        if scores:
            visible = keys <= rows[:, None] + (N_k - N_q) if causal else keys < N_k
            S_ij = tl.where(visible, S_ij, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(S_ij, 1))                                   # (B_r,)
        unit = tl.where(m_new == -float("inf"), 0.0, m_new) if m_safe else m_new   # (B_r,)
        alpha = tl.exp(m_i - unit)                                                 # (B_r,)
        P_ij = tl.exp(S_ij - unit[:, None])                                        # (B_r, B_c)
        l_i = alpha * l_i + tl.sum(P_ij, 1)                                        # (B_r,)
        PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")               # (B_r, d)
        O_i = alpha[:, None] * O_i + PV                                            # (B_r, d)
        m_i = m_new
    O_i = O_i / tl.where(l_i == 0, 1.0, l_i)[:, None]
    tl.store(O + rows[:, None] * d + col, O_i, mask=rows[:, None] < N_q)


def forward_with(guards, Q, K, V, *, causal=False, B=16):
    """O of one head by a kernel that has these guards alone. guards: any of GUARDS.

    Shapes: Q (N_q, d), K, V (N_k, d), contiguous, d a power of two; without "loads" B rows behind K and V are read
    """
    O = torch.empty_like(Q)
    N_q, d = Q.shape
    given = {name: name in guards for name in GUARDS}
    guards_kernel[(triton.cdiv(N_q, B),)](Q, K, V, O, d**-0.5, N_q, len(K), causal=causal, **given, d=d, B_r=B, B_c=B)
    return O
