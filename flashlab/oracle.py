"""The truth every rung is held against: attention in float64, and how far off a correct kernel may be.

It imports no rung and calls no fused library function: those have opinions of their own about NaN and masks.
"""

import warnings
from dataclasses import dataclass

import torch

inf = float("inf")


def attention(Q, K, V, *, dtype=torch.float64, **masks):
    """softmax(scale * Q K^T) V and the logsumexp of each row, computed in `dtype` from start to end.

    Shapes:  Q (..., H_q, N_q, d), K (..., H_kv, N_k, d), V (..., H_kv, N_k, d_v)
             -> O (..., H_q, N_q, d_v), L (..., H_q, N_q)
             the heads may be absent; if H_kv < H_q each key head serves H_q / H_kv query heads in a row
    Masks:   causal=False, window=None, scale=None, dropout_p=0.0, keep=None
    Causal:  bottom-right aligned: the last query sees every key. A row that sees no key gives O = 0, L = -inf.
    Window:  (left, right): query i sees keys i + N_k - N_q - left to i + N_k - N_q + right, -1 for no limit.
    Dropout: keep, bool, of S's shape, marks the weights that stay; they are divided by 1 - dropout_p, and L ignores it.
    """
    return _attention(*(T.detach().to(dtype) for T in (Q, K, V)), **masks)


def gradients(Q, K, V, dO, *, dtype=torch.float64, **masks):
    """dQ, dK, dV of sum(O * dO) by PyTorch's autograd through plain operations, all of it in `dtype`.

    Shapes, masks: as attention; dO like O. A query that sees no key has dQ = 0 and adds nothing to dK and dV.
    """
    return _gradients(*(T.detach().to(dtype) for T in (Q, K, V, dO)), **masks)


def _gradients(Q, K, V, dO, **masks):
    inputs = [T.clone().requires_grad_() for T in (Q, K, V)]
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS")    # autograd's thread makes itself a CUDA context
        return torch.autograd.grad(_attention(*inputs, **masks)[0], inputs, dO)


def _attention(Q, K, V, *, causal=False, window=None, scale=None, dropout_p=0.0, keep=None):
    K, V = (_for_each_query_head(T, Q) for T in (K, V))
    S = _scores(Q, K, causal, window, scale)
    L = torch.logsumexp(S, dim=-1)                              # (..., N_q)
    P = torch.softmax(S, dim=-1).masked_fill((L == -inf)[..., None], 0)    # 0/0 where no key is visible
    if keep is not None:
        P = P * keep / (1 - dropout_p)
    return P.to(V.dtype) @ V, L


def _for_each_query_head(T, Q):
    """T (..., H_kv, N_k, d), K or V, with as many heads as Q."""
    return T if Q.ndim == 2 else T.repeat_interleave(Q.shape[-3] // T.shape[-3], dim=-3)


def _scores(Q, K, causal, window, scale):
    """(..., N_q, N_k), -inf where a query does not see a key."""
    (N_q, d), N_k = Q.shape[-2:], K.shape[-2]
    S = Q @ K.mT * (d**-0.5 if scale is None else scale)
    left, right = window or (-1, -1)
    right = 0 if causal else right
    place = torch.arange(N_q, device=Q.device)[:, None] + N_k - N_q     # (N_q, 1)   the key at the query's own place
    distance = torch.arange(N_k, device=Q.device) - place               # (N_q, N_k) how many keys after it
    if right >= 0:
        S = S.masked_fill(distance > right, -inf)
    if left >= 0:
        S = S.masked_fill(distance < -left, -inf)
    return S


@dataclass
class Verdict:
    """Errors of results against float64, by name, and the largest that would pass. An error is max |x - truth|.

    rms_O is the root mean square of O's error: steadier than the maximum when two correct kernels are compared.
    """

    errors: dict           # {"O": ..., "L": ...} or {"dQ": ..., "dK": ..., "dV": ...}
    bounds: dict
    rms_O: float = 0.0

    @property
    def ok(self):
        return all(self.errors[name] <= self.bounds[name] for name in self.errors)     # NaN compares false: it fails

    @property
    def error_O(self):
        return self.errors["O"]

    def add(self, name, x, naive, truth, eps, factor, more=0.0):
        """Judge one result. Its bound is that of error_bound, and so much more."""
        self.errors[name], self.bounds[name] = max_error(x, truth), error_bound(naive, truth, eps, factor) + more

    def __str__(self):
        parts = [f"{name} off by {self.errors[name]:.2e} (allowed {self.bounds[name]:.2e})" for name in self.errors]
        return f"{'ok' if self.ok else 'WRONG'}: {', '.join(parts)}"


def max_error(x, truth):
    """max |x - truth| in float64; equal infinities count as 0, a NaN on one side only as NaN, an empty tensor as 0."""
    x, truth = x.detach().to(torch.float64), truth.to(torch.float64)
    if x.shape != truth.shape:
        raise ValueError(f"shape {tuple(x.shape)} where {tuple(truth.shape)} was expected")
    same = (x == truth) | (x.isnan() & truth.isnan())
    return (x - truth).abs().masked_fill(same, 0).max().item() if x.numel() else 0.0


def error_bound(naive, truth, eps, factor=2):
    """factor * error(naive in the same dtype) + 4 * eps * max|truth|, the rule of flash-attention's own tests."""
    finite = truth[truth.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return factor * max_error(naive, truth) + 4 * eps * largest


def judge(O, L, Q, K, V, **masks):
    """A Verdict on a rung's O and L, which is None for kernels that do not return it. L is held to its own dtype.

    `verdict.ok` is False for any NaN that the truth does not have. masks: as attention takes them
    """
    truth = attention(Q, K, V, **masks)
    Q, K, V = (T.detach() for T in (Q, K, V))
    naive_O, naive_L = _naive(truth, (_attention(*of_scores, V, **masks) for of_scores in ((Q, K), _wider(Q, K))))
    verdict = Verdict({}, {})
    verdict.add("O", O, naive_O, truth[0], _eps(Q.dtype), 2)
    if L is not None:
        eps = _eps(L.dtype)
        if L.dtype != Q.dtype:                       # float32 beside 16-bit inputs: then scores are float32 too
            _, naive_L = attention(Q, K, V, dtype=L.dtype, **masks)
            eps *= 2                                 # tensor cores truncate what they add up, and do not round it
        # L is the logarithm of a sum whose largest weight is 1: its rounding does not vanish where L is near 0
        verdict.add("L", L, naive_L, truth[1], eps, 2, 4 * _eps_of_sums(eps))
    verdict.rms_O = (O.detach().to(torch.float64) - truth[0]).square().mean().sqrt().item() if O.numel() else 0.0
    return verdict


def judge_gradients(dQ, dK, dV, Q, K, V, dO, **masks):
    """A Verdict on gradients: at most 3 times as far off as those of naive attention in the same dtype.

    Two terms come on top: 4 * eps * max|truth|, as in error_bound, and the effect of rounding O and L, which a backward
    pass starts from and naive attention, which keeps P, does not.
    """
    truth = gradients(Q, K, V, dO, **masks)
    naive = _naive(truth, _attempts(*(T.detach() for T in (Q, K, V, dO)), masks))
    eps = _eps(Q.dtype)
    stored = _effect_of_rounding_O_and_L(Q, K, V, dO, eps, **masks)
    verdict = Verdict({}, {})
    for name, x, n, t, more in zip(("dQ", "dK", "dV"), (dQ, dK, dV), naive, truth, stored, strict=True):
        if x is not None:                            # a result of None is not judged
            verdict.add(name, x, n, t, eps, 3, more)
    return verdict


def _eps(dtype):
    return torch.finfo(dtype).eps * (16 if dtype == torch.float64 else 1)    # the truth, in float64, rounds as much


def _eps_of_sums(eps):
    return min(eps, torch.finfo(torch.float32).eps)                          # sums are float32 at least


def _wider(*tensors):
    return [T.to(torch.float32 if T.dtype.itemsize == 2 else torch.float64) for T in tensors]


def _naive(truth, attempts):
    """The first results of naive attention that are finite where float64 is; the last if none are.

    float16 cannot hold scores beyond 65504, and a bound of NaN would say nothing. Then scores and weights are computed
    in the next wider dtype, and everything after them in the inputs' own.
    """
    for found in attempts:
        if all((n.isfinite() | ~t.isfinite()).all() for n, t in zip(found, truth, strict=True)):
            break
    return found


def _attempts(Q, K, V, dO, masks):
    """Gradients for `_naive`. They are linear in dO: where dP does not fit the dtype, a smaller dO is taken."""
    for shift in (0, 4, 8, 12):
        for of_scores in ((Q, K), _wider(Q, K)):
            found = _gradients(*of_scores, V, dO * 2.0**-shift, **masks)
            yield [T.to(torch.float64) * 2.0**shift for T in found]
    yield _gradients(*_wider(Q, K, V, dO), **masks)    # the weights do not fit, as with dropout of nearly all of them


def _effect_of_rounding_O_and_L(Q, K, V, dO, eps, *, causal=False, window=None, scale=None, dropout_p=0.0, keep=None):
    """The most that dQ, dK, dV move when O and L, and some of the sums they came from, are a rounding off.

    O moves D, and with it dS = P * (dP - D). L moves P by a part of it, and with it dV and dS: with large scores by
    much, since L is as large as they are and its last digit as coarse.
    """
    Q, K, V, dO = (T.detach().to(torch.float64) for T in (Q, K, V, dO))
    heads = K.shape[:-2]
    K, V = (_for_each_query_head(T, Q) for T in (K, V))
    S = _scores(Q, K, causal, window, scale)
    L = torch.logsumexp(S, dim=-1, keepdim=True)                                        # (..., N_q, 1)
    P = (S - L).exp().masked_fill(L == -inf, 0)                                         # (..., N_q, N_k)
    kept = 1 if keep is None else keep / (1 - dropout_p)
    O, dP = P * kept @ V, dO @ V.mT * kept
    move_D = (eps / 2 + 4 * _eps_of_sums(eps)) * (dO * O).abs().sum(-1, keepdim=True)   # (..., N_q, 1)
    move_P = 3 * _eps_of_sums(eps) * L.abs().masked_fill(L.isinf(), 0) * P              # L, L to base 2, the score
    move_dS = P * move_D + move_P * (dP - (dO * O).sum(-1, keepdim=True)).abs()
    size = abs(Q.shape[-1] ** -0.5 if scale is None else scale)
    dQ = size * move_dS @ K.abs()
    dK, dV = size * move_dS.mT @ Q.abs(), (move_P * kept).mT @ dO.abs()
    if heads:                                                                           # sum over a key head's queries
        dK, dV = (T.unflatten(-3, (heads[-1], -1)).sum(-3) for T in (dK, dV))
    return [T.max().item() if T.numel() else 0.0 for T in (dQ, dK, dV)]
