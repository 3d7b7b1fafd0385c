"""The truth every rung is held against: attention in float64, and how far off a correct kernel may be.

It imports no rung, and uses no fused library call: those have opinions of their own about NaN and masks.
"""

from dataclasses import dataclass

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None, dtype=torch.float64):
    """softmax(scale * Q K^T) V and the logsumexp of each row, computed in `dtype` from start to end.

    Shapes: Q (..., H_q, N_q, d), K (..., H_kv, N_k, d), V (..., H_kv, N_k, d_v) -> O (..., H_q, N_q, d_v), L (..., H_q, N_q)
            the heads may be absent; where H_kv < H_q each key head serves H_q / H_kv query heads in a row
    Causal: bottom-right aligned: the last query sees every key. A row that sees no key gives O = 0, L = -inf.
    """
    Q, K, V = (T.detach().to(dtype) for T in (Q, K, V))
    if Q.ndim > 2 and K.shape[-3] != Q.shape[-3]:
        groups = Q.shape[-3] // K.shape[-3]
        K, V = (T.repeat_interleave(groups, dim=-3) for T in (K, V))
    N_q, d = Q.shape[-2:]
    N_k = K.shape[-2]
    S = Q @ K.mT * (d**-0.5 if scale is None else scale)        # (..., N_q, N_k)
    if causal:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).triu(N_k - N_q + 1)
        S = S.masked_fill(hidden, -inf)
    L = torch.logsumexp(S, dim=-1)                              # (..., N_q)
    P = torch.softmax(S, dim=-1).masked_fill((L == -inf)[..., None], 0)    # 0/0 where no key is visible
    return P @ V, L


@dataclass
class Verdict:
    """Errors of O and L against float64, and the largest that would pass. Errors are max |x - truth|."""

    error_O: float
    bound_O: float
    error_L: float
    bound_L: float

    @property
    def ok(self):
        return self.error_O <= self.bound_O and self.error_L <= self.bound_L     # NaN compares false: it fails

    def __str__(self):
        return (
            f"{'ok' if self.ok else 'WRONG'}: O off by {self.error_O:.2e} (allowed {self.bound_O:.2e}), "
            f"L off by {self.error_L:.2e} (allowed {self.bound_L:.2e})"
        )


def max_error(x, truth):
    """max |x - truth| in float64; equal infinities count as 0, a NaN on one side only as NaN, an empty tensor as 0."""
    x, truth = x.detach().to(torch.float64), truth.to(torch.float64)
    if x.shape != truth.shape:
        raise ValueError(f"shape {tuple(x.shape)} where {tuple(truth.shape)} was expected")
    same = (x == truth) | (x.isnan() & truth.isnan())
    return (x - truth).abs().masked_fill(same, 0).max().item() if x.numel() else 0.0


def error_bound(naive, truth, eps):
    """2 * error(naive in the same dtype) + 4 * eps * max|truth|, the rule of flash-attention's own tests."""
    finite = truth[truth.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return 2 * max_error(naive, truth) + 4 * eps * largest


def judge(O, L, Q, K, V, *, causal=False, scale=None):
    """Hold a rung's O and L against float64. L may be None for kernels that do not return it (its error is then 0).

    Returns a Verdict; `verdict.ok` is False for any NaN the truth does not have.
    """
    O_ref, L_ref = attention(Q, K, V, causal=causal, scale=scale)
    O_naive, L_naive = attention(Q, K, V, causal=causal, scale=scale, dtype=Q.dtype)
    eps = torch.finfo(Q.dtype).eps * (16 if Q.dtype == torch.float64 else 1)    # there the truth rounds as much itself
    error_L, bound_L = (0.0, 0.0) if L is None else (max_error(L, L_ref), error_bound(L_naive, L_ref, eps))
    return Verdict(max_error(O, O_ref), error_bound(O_naive, O_ref, eps), error_L, bound_L)
