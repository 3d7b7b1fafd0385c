"""The truth every rung is held against: attention in float64, and how far off a correct kernel may be.

It imports no rung, and uses no fused library call: those have opinions of their own about NaN and masks.
"""

import functools
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import torch

inf = float("inf")


def _once(function):
    """On a GPU, what was computed for the same tensors a moment ago: a benchmark judges a dozen kernels against one truth."""
    last = OrderedDict()

    @functools.wraps(function)
    def remembering(*tensors, **options):
        masked = any(isinstance(value, torch.Tensor) for value in options.values())
        if masked or not all(T.is_cuda and not T.is_inference() for T in tensors):
            return function(*tensors, **options)
        # a tensor that is written to has another version; kept with the result, its place is nobody else's
        kinds = tuple((T.data_ptr(), T.shape, T.stride(), T.dtype, T._version) for T in tensors)
        same = kinds, str(sorted(options.items()))
        if same not in last:
            last[same] = function(*tensors, **options), tensors
            while len(last) > 4:                       # what one judgement asks for
                last.popitem(last=False)
        return last[same][0]

    return remembering


@_once
def attention(Q, K, V, *, causal=False, window=None, scale=None, dtype=torch.float64, dropout_p=0.0, keep=None):
    """softmax(scale * Q K^T) V and the logsumexp of each row, computed in `dtype` from start to end.

    Shapes: Q (..., H_q, N_q, d), K (..., H_kv, N_k, d), V (..., H_kv, N_k, d_v) -> O (..., H_q, N_q, d_v), L (..., H_q, N_q)
            the heads may be absent; where H_kv < H_q each key head serves H_q / H_kv query heads in a row
    Causal: bottom-right aligned: the last query sees every key. A row that sees no key gives O = 0, L = -inf.
    Window: (left, right): query i sees keys i + N_k - N_q - left to i + N_k - N_q + right, -1 for no limit.
    Dropout: keep, bool, of S's shape, says which weights stay; they are divided by 1 - dropout_p. L knows nothing of it.
    """
    return _attention(*(T.detach().to(dtype) for T in (Q, K, V)), causal, window, scale, dropout_p, keep)


@_once
def gradients(Q, K, V, dO, *, causal=False, window=None, scale=None, dtype=torch.float64, dropout_p=0.0, keep=None):
    """dQ, dK, dV of sum(O * dO) by PyTorch's autograd through plain operations, all of it in `dtype`.

    Shapes: as attention; dO like O. A query that sees no key has dQ = 0 and adds nothing to dK and dV.
    """
    return _gradients(*(T.detach().to(dtype) for T in (Q, K, V, dO)), causal, window, scale, dropout_p, keep)


def _gradients(Q, K, V, dO, causal, window, scale, dropout_p, keep):
    inputs = [T.clone().requires_grad_() for T in (Q, K, V)]
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS")    # autograd's thread has no CUDA context yet: it makes one
        O, _ = _attention(*inputs, causal, window, scale, dropout_p, keep)
        return torch.autograd.grad(O, inputs, dO)


def _attention(Q, K, V, causal, window, scale, dropout_p, keep):
    if Q.ndim > 2 and K.shape[-3] != Q.shape[-3]:
        groups = Q.shape[-3] // K.shape[-3]
        K, V = (T.repeat_interleave(groups, dim=-3) for T in (K, V))
    S = _scores(Q, K, causal, window, scale)
    L = torch.logsumexp(S, dim=-1)                              # (..., N_q)
    P = torch.softmax(S, dim=-1).masked_fill((L == -inf)[..., None], 0)    # 0/0 where no key is visible
    if keep is not None:
        P = P * keep / (1 - dropout_p)
    return P.to(V.dtype) @ V, L


def _scores(Q, K, causal, window, scale):
    """(..., N_q, N_k), -inf where a query does not see a key. As many heads in K as in Q."""
    (N_q, d), N_k = Q.shape[-2:], K.shape[-2]
    S = Q @ K.mT * (d**-0.5 if scale is None else scale)
    return S.masked_fill(_hidden(N_q, N_k, causal, window, Q.device), -inf) if causal or window is not None else S


def _naive(compute, truth, Q, K, *others):
    """What naive attention gives in the inputs' dtype: compute(Q, K, *others), `truth` being what float64 gives.

    Where that dtype cannot hold the scores, as float16 those beyond 65504, its NaN would say nothing about what is correct:
    scores and weights are then computed in the next wider dtype, and all that follows in the inputs' own.
    """
    found = compute(Q, K, *others)
    if all((n.isfinite() | ~t.isfinite()).all() for n, t in zip(found, truth, strict=True)):
        return found
    wide = torch.float32 if Q.dtype.itemsize == 2 else torch.float64
    return compute(Q.to(wide), K.to(wide), *others)


def _naive_gradients(truth, Q, K, V, dO, *masks):
    """As `_naive`, of gradients. Where dP does not fit the dtype either, of a smaller dO: they are linear in it. Where the weights
    do not, as with dropout of nearly all, everything is computed in the next wider dtype."""
    compute = lambda *tensors: _gradients(*tensors, *masks)
    for shift in (0, 4, 8, 12):
        found = _naive(compute, truth, Q, K, V, dO * 2.0**-shift)
        found = [T.to(torch.float64) * 2.0**shift for T in found]
        if all((n.isfinite() | ~t.isfinite()).all() for n, t in zip(found, truth, strict=True)):
            return found
    wide = torch.float32 if Q.dtype.itemsize == 2 else torch.float64
    return compute(*(T.to(wide) for T in (Q, K, V, dO)))


def _hidden(N_q, N_k, causal, window, device):
    """True where the query does not see the key, (N_q, N_k)."""
    left, right = (-1, -1) if window is None else window
    place = torch.arange(N_q, device=device)[:, None] + N_k - N_q        # (N_q, 1)   the key that a query stands at
    keys = torch.arange(N_k, device=device)                              # (N_k,)
    hidden = (keys > place) if causal else torch.zeros(N_q, N_k, dtype=torch.bool, device=device)
    if right >= 0:
        hidden = hidden | (keys > place + right)
    if left >= 0:
        hidden = hidden | (keys < place - left)
    return hidden


@dataclass
class Verdict:
    """Errors of O and L against float64, and the largest that would pass. Errors are max |x - truth|.

    rms_O is the root mean square of O's error: steadier than the maximum when two correct kernels are compared.
    """

    error_O: float
    bound_O: float
    error_L: float
    bound_L: float
    rms_O: float

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


def error_bound(naive, truth, eps, factor=2):
    """factor * error(naive in the same dtype) + 4 * eps * max|truth|, the rule of flash-attention's own tests."""
    finite = truth[truth.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return factor * max_error(naive, truth) + 4 * eps * largest


def judge(O, L, Q, K, V, *, causal=False, window=None, scale=None):
    """Hold a rung's O and L against float64. L may be None for kernels that do not return it (its error is then 0).

    Returns a Verdict; `verdict.ok` is False for any NaN the truth does not have.
    """
    O_ref, L_ref = attention(Q, K, V, causal=causal, window=window, scale=scale)
    O_naive, L_naive = _naive(lambda *tensors: _attention(*tensors, causal, window, scale, 0.0, None), (O_ref, L_ref),
                              *(T.detach() for T in (Q, K, V)))
    eps = torch.finfo(Q.dtype).eps * (16 if Q.dtype == torch.float64 else 1)    # there the truth rounds as much itself
    # the logarithm of a sum of weights, the largest of which is 1: where L itself is near 0, its rounding is not
    bound_L = error_bound(L_naive, L_ref, eps) + 4 * min(eps, torch.finfo(torch.float32).eps)
    error_L, bound_L = (0.0, 0.0) if L is None else (max_error(L, L_ref), bound_L)
    rms_O = (O.detach().to(torch.float64) - O_ref).square().mean().sqrt().item() if O.numel() else 0.0
    return Verdict(max_error(O, O_ref), error_bound(O_naive, O_ref, eps), error_L, bound_L, rms_O)


def judge_in_orders(judge, d, device, draws=8):
    """judge(order), and where that is not ok again in other orders of the head dimension d; the first that is ok, or the first.

    The bound is what naive attention errs, which adds up its scores in that order: where few rows are judged, as in random calls,
    it may err little by luck. Another order is another draw. And a library's product of a single row adds up in a tree, and errs
    less than whoever adds one term after the other, as a kernel may: in the last draw naive attention does that, too.
    """
    first = judge(slice(None))
    if first.ok:
        return first
    others = (judge(torch.randperm(d, device=device)) for _ in range(draws))
    if found := next((verdict for verdict in others if verdict.ok), None):
        return found
    with _OneTermAfterTheOther():
        last = judge(slice(None))
    return last if last.ok else first


class _OneTermAfterTheOther(torch.overrides.TorchFunctionMode):
    """Matrix products, and their gradients, add up in this order, in float32 at least; those in float64 are left as they are."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.__matmul__, torch.Tensor.matmul, torch.matmul) and args[0].dtype != torch.float64:
            return _Product.apply(*args)
        return function(*args, **(kwargs or {}))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return _product(A, B)

    @staticmethod
    def backward(ctx, dC):
        A, B = ctx.saved_tensors
        return _product(dC, B.mT), _product(A.mT, dC)


def _product(A, B):
    C = torch.zeros((*A.shape[:-1], B.shape[-1]), dtype=torch.promote_types(A.dtype, torch.float32), device=A.device)
    for k in range(A.shape[-1]):
        C += A[..., k: k + 1].to(C.dtype) * B[..., k: k + 1, :]
    return C.to(A.dtype)


@dataclass
class GradientVerdict:
    """Errors of dQ, dK and dV against float64, and the largest that would pass. Errors are max |x - truth|."""

    errors: dict          # {"dQ": ..., "dK": ..., "dV": ...}
    bounds: dict

    @property
    def ok(self):
        return all(self.errors[name] <= self.bounds[name] for name in self.errors)     # NaN compares false: it fails

    def __str__(self):
        parts = [f"{name} off by {self.errors[name]:.2e} (allowed {self.bounds[name]:.2e})" for name in self.errors]
        return f"{'ok' if self.ok else 'WRONG'}: {', '.join(parts)}"


def judge_gradients(dQ, dK, dV, Q, K, V, dO, *, causal=False, window=None, scale=None, dropout_p=0.0, keep=None):
    """Hold gradients against float64: at most 3 times as far off as those of naive attention in the same dtype.

    As in error_bound, some eps come on top: 4 * eps * max|truth|, and what the gradients move when O and L are rounded to
    the dtypes they are stored in, since a backward that starts from O and L cannot know better (naive attention keeps P).
    Returns a GradientVerdict; `verdict.ok` is False for any NaN the truth does not have.
    """
    masks = dict(causal=causal, window=window, scale=scale, dropout_p=dropout_p, keep=keep)
    truth = gradients(Q, K, V, dO, **masks)
    naive = _naive_gradients(truth, *(T.detach() for T in (Q, K, V, dO)), *masks.values())
    eps = torch.finfo(Q.dtype).eps * (16 if Q.dtype == torch.float64 else 1)    # there the truth rounds as much itself
    stored = _from_storing_O_and_L(Q, K, V, dO, eps, **masks)
    names = ("dQ", "dK", "dV")
    errors = {name: max_error(x, t) for name, x, t in zip(names, (dQ, dK, dV), truth, strict=True)}
    bounds = {name: error_bound(n, t, eps, factor=3) + x for name, n, t, x in zip(names, naive, truth, stored, strict=True)}
    return GradientVerdict(errors, bounds)


def _from_storing_O_and_L(Q, K, V, dO, eps, *, causal, window, scale, dropout_p, keep):
    """The most that dQ, dK, dV move when O and L are a rounding to their dtype off, and some of the sums they came from.

    O moves D, and with it dS = P * (dP - D). L moves P by a part of it, and with it dV and dS. Large scores make that much: L is
    as large as they are, and its last digit as coarse, where naive attention, which keeps P, has their differences alone.
    """
    Q, K, V, dO = (T.detach().to(torch.float64) for T in (Q, K, V, dO))
    groups = 1 if Q.ndim == 2 else Q.shape[-3] // K.shape[-3]
    per_query_head = [T if groups == 1 else T.repeat_interleave(groups, dim=-3) for T in (K, V)]
    S = _scores(Q, per_query_head[0], causal, window, scale)
    L = torch.logsumexp(S, dim=-1, keepdim=True)                                        # (..., N_q, 1)
    P = (S - L).exp().masked_fill(L == -inf, 0)                                         # (..., N_q, N_k)
    kept = 1 if keep is None else keep / (1 - dropout_p)
    O, dP = P * kept @ per_query_head[1], dO @ per_query_head[1].mT * kept
    eps_sum = min(eps, torch.finfo(torch.float32).eps)                                  # sums are float32 at least
    move_D = (eps / 2 + 4 * eps_sum) * (dO * O).abs().sum(-1, keepdim=True)             # (..., N_q, 1)
    move_P = 3 * eps_sum * L.abs().masked_fill(L.isinf(), 0) * P                        # L, L to base 2, the score beside it
    move_dS = P * move_D + move_P * (dP - (dO * O).sum(-1, keepdim=True)).abs()
    size = abs(Q.shape[-1] ** -0.5 if scale is None else scale)
    dQ = size * move_dS @ per_query_head[0].abs()
    dK, dV = size * move_dS.mT @ Q.abs(), (move_P * kept).mT @ dO.abs()
    if groups > 1:                                                                      # each key head sums over its query heads
        dK, dV = (T.unflatten(-3, (-1, groups)).sum(-3) for T in (dK, dV))
    return [T.max().item() if T.numel() else 0.0 for T in (dQ, dK, dV)]
