"""The operator in plain PyTorch, for every batch and head at once: forward and backward, a block of scores at a time.

It runs on CPUs, in float64, and wherever the kernels do not. The arithmetic is that of flashlab/rungs/fa2.py and
fa2_backward.py, with all keys of a block of queries at once; 16-bit inputs are computed in float32. The G query heads
that share a key head are rows of one matrix, so that no key is copied.
"""

import torch

from flashlab.validate import MAX_HEAD_DIM

inf = float("inf")
ROWS = 128                     # queries of a block at most, of each head
SCORES = 2**20                 # of a block, over all batches and heads, unless 16 queries have more


def run_forward(Q, K, V, options):
    """O and L of a call with attention.Options."""
    if options.dropout_p > 0:
        raise NotImplementedError(
            f"only the Triton kernels have dropout, and backend 'torch' was to run, got dropout_p={options.dropout_p}, "
            f"{str(Q.dtype).removeprefix('torch.')} and d, d_v = {Q.shape[-1]}, {V.shape[-1]}. Pass dropout_p=0.0, use "
            f"backend='triton' in float16, bfloat16 or float32 with d and d_v up to {MAX_HEAD_DIM}, or see dropout in "
            "flashlab.rungs.fa1.fa1_forward.")
    O = empty(Q, V.shape[-1], options.cu_seqlens_q is not None).zero_()           # for rows that see no key
    L = empty_L(Q).fill_(-inf)
    masks = {"causal": options.causal, "window": options.window, "scale": options.scale}
    with torch.autocast(Q.device.type, enabled=False):             # it would round float32
        for rows, keys in _sequences(options):
            forward(Q[:, :, rows], K[:, :, keys], V[:, :, keys], O[:, :, rows], L[:, :, rows], **masks)
    return O, L


def run_backward(Q, K, V, O, dO, L, dL, options):
    """dQ, dK and dV of a call with attention.Options."""
    packed = options.cu_seqlens_q is not None
    dQ = empty(Q, Q.shape[-1], packed).zero_()
    dK, dV = (empty(T.to(L.dtype), T.shape[-1], packed).zero_() for T in (K, V))   # sums over blocks of queries
    masks = {"causal": options.causal, "window": options.window, "scale": options.scale}
    with torch.autocast(Q.device.type, enabled=False):
        for rows, keys in _sequences(options):
            Q_s, O_s, dO_s, L_s, dL_s, dQ_s = (T if T is None else T[:, :, rows] for T in (Q, O, dO, L, dL, dQ))
            K_s, V_s, dK_s, dV_s = (T[:, :, keys] for T in (K, V, dK, dV))
            backward(Q_s, K_s, V_s, O_s, dO_s, L_s, dL_s, dQ_s, dK_s, dV_s, **masks)
    return dQ, dK.to(K.dtype), dV.to(V.dtype)


def empty(T, d, packed=False):
    """An output (B, H, N, d) beside T, contiguous; with packed sequences its transpose (1, N, H, d) is contiguous."""
    B, H, N, _ = T.shape
    return T.new_empty(B, N, H, d).transpose(1, 2) if packed else T.new_empty(B, H, N, d)


def empty_L(Q):
    return Q.new_empty(Q.shape[:3], dtype=dtype_of_L(Q))


def dtype_of_L(Q):
    return torch.float64 if Q.dtype == torch.float64 else torch.float32


def _sequences(options):
    """The rows of Q and the rows of K of each sequence."""
    if options.cu_seqlens_q is None:
        return [(slice(None), slice(None))]
    starts = options.cu_seqlens_q.tolist(), options.cu_seqlens_k.tolist()
    return zip(*(map(slice, cu[:-1], cu[1:]) for cu in starts), strict=True)


def forward(Q, K, V, O, L, *, causal, window, scale):
    """Write O (B, H_q, N_q, d_v) and L (B, H_q, N_q), whose dtype is the one to compute in."""
    G, dtype = Q.shape[1] // K.shape[1], L.dtype
    for rows, cols, hidden in _blocks(Q, K, causal, window):
        K_j, V_j = (T[:, :, cols].to(dtype) for T in (K, V))                       # (B, H_kv, n, d or d_v)
        S_i = _scores(_fold(Q, rows, G, dtype), K_j, scale, hidden)                # (B, H_kv, G·B_r, n)
        m_i = S_i.amax(-1)                                                         # (B, H_kv, G·B_r)
        m_safe = m_i.masked_fill(m_i == -inf, 0)         # no visible key: -inf − -inf would be NaN
        P_i = torch.exp(S_i.sub_(m_safe[..., None]))                               # (B, H_kv, G·B_r, n)
        l_i = P_i.sum(-1)                                                          # (B, H_kv, G·B_r)
        l_safe = l_i.masked_fill(l_i == 0, 1)            # no visible key: O = 0, L = -inf
        O[:, :, rows] = (P_i @ V_j / l_safe[..., None]).reshape(O[:, :, rows].shape)
        L[:, :, rows] = (m_i + torch.log(l_safe)).reshape(L[:, :, rows].shape)


def backward(Q, K, V, O, dO, L, dL, dQ, dK, dV, *, causal, window, scale):
    """Write dQ and add to dK and dV, all in L's dtype. dL is None if the loss does not depend on L."""
    G, dtype = Q.shape[1] // K.shape[1], L.dtype
    for rows, cols, hidden in _blocks(Q, K, causal, window):
        Q_i, O_i, dO_i = (_fold(T, rows, G, dtype) for T in (Q, O, dO))            # (B, H_kv, G·B_r, d or d_v)
        K_j, V_j = (T[:, :, cols].to(dtype) for T in (K, V))                       # (B, H_kv, n, d or d_v)
        D_i = (dO_i * O_i).sum(-1, keepdim=True)                                   # (B, H_kv, G·B_r, 1)
        if dL is not None:
            D_i = D_i - _fold(dL[..., None], rows, G, dtype)                       # S moves L by P
        L_i = _fold(L[..., None], rows, G, dtype)                                  # (B, H_kv, G·B_r, 1)
        L_i = L_i.masked_fill(L_i == -inf, 0)                                      # no visible key: P is exp(-inf), 0
        P_i = torch.exp(_scores(Q_i, K_j, scale, hidden).sub_(L_i))                # (B, H_kv, G·B_r, n)
        dS_i = P_i * (dO_i @ V_j.mT - D_i) * scale                                 # (B, H_kv, G·B_r, n)
        dV[:, :, cols] += P_i.mT @ dO_i                  # the sum over G·B_r adds up a group's heads
        dK[:, :, cols] += dS_i.mT @ Q_i
        dQ[:, :, rows] = (dS_i @ K_j).reshape(dQ[:, :, rows].shape)


def _fold(T, rows, G, dtype):
    """These rows of T (B, H_q, N_q, d) as (B, H_kv, G·B_r, d)."""
    T_i = T[:, :, rows].to(dtype)
    B, H_q, B_r, d = T_i.shape
    return T_i.reshape(B, H_q // G, G * B_r, d)


def _scores(Q_i, K_j, scale, hidden):
    """S_i, -inf where `hidden` (B_r, n) says so."""
    S_i = (Q_i @ K_j.mT).mul_(scale)
    if hidden is not None:
        S_i.unflatten(2, (-1, len(hidden))).masked_fill_(hidden, -inf)
    return S_i


def _blocks(Q, K, causal, window):
    """(rows, cols, hidden) of each block of queries.

    cols are the keys that some row sees. hidden (B_r, n) is True where a row does not see a key of cols, None if every
    row sees them all. Query i stands at key i + N_k - N_q.
    """
    (B, H_q, N_q, _), N_k = Q.shape, K.shape[2]
    shift = N_k - N_q
    left, right = window or (-1, 0 if causal else -1)
    left, right = (N_q + N_k if limit < 0 else limit for limit in (left, right))   # -1: no limit
    B_r = min(ROWS, max(16, SCORES // max(1, B * H_q * N_k)))
    for start in range(0, N_q, B_r):
        rows = slice(start, min(start + B_r, N_q))
        cols = slice(max(0, start + shift - left), min(N_k, rows.stop + shift + right))
        if cols.start >= cols.stop:                      # no key: O, L and dQ stay as they were made
            continue
        hidden = None
        if cols.stop - 1 > start + shift + right or cols.start < rows.stop - 1 + shift - left:
            places = torch.arange(start, rows.stop, device=Q.device)[:, None] + shift
            ahead = torch.arange(cols.start, cols.stop, device=Q.device) - places  # (B_r, n)
            hidden = (ahead > right) | (ahead < -left)
        yield rows, cols, hidden
