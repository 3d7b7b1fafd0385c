"""Rules of an operator for PyTorch: for vmap, for autocast and for counting FLOPs."""

import torch
from torch.utils.flop_counter import register_flop_formula

from flashlab import torch_internals


def as_autocast(*tensors):
    """Tensors in autocast's dtype where it is on for their device, except float64: as scaled_dot_product_attention."""
    if not torch_internals.autocast_is_on():           # one quick question for all tensors
        return tensors
    return [T.to(torch.get_autocast_dtype(T.device.type)) if _is_cast(T) else T for T in tensors]


def _is_cast(T):
    # the meta device knows no autocast; PyTorch 2.11's compiler cannot trace torch.amp.is_autocast_available
    return (isinstance(T, torch.Tensor) and T.is_floating_point() and T.dtype != torch.float64
            and not T.is_meta and torch.is_autocast_enabled(T.device.type))


def refuse_derivatives(name, **tensors):
    """Raise RuntimeError if a derivative is asked of the function of this name, which has none."""
    if torch_internals.has_tangent(*tensors.values()):
        raise RuntimeError(f"{name} has no gradient, nor a forward-mode derivative, as jvp, jacfwd, linearize and "
                           "forward_ad want. Use flashlab.rungs.naive.naive_forward, whose operations autograd knows")
    for argument, T in tensors.items():
        if T is not None and T.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name} has no gradient, and {argument} requires one. Call it under torch.no_grad(), "
                               "or use flash_attention, which has one")


def vmap_rule(run, n, Options):
    """vmap's rule for run(*tensors, *options) of n tensors: the mapped dimension becomes part of the batch.

    Packed sequences share one batch: there it becomes part of the heads. A tensor that is not mapped is copied.
    """
    @torch_internals.not_compiled                      # the compiler's tracer fails on what a rule does
    def rule(info, in_dims, *arguments):
        options = Options(*arguments[n:])
        if options.dropout_p > 0:
            raise NotImplementedError(
                "flash_attention has no dropout under torch.vmap, which could not say whether places share their "
                f"draws, got dropout_p={options.dropout_p}. Pass the mapped dimension as part of B")
        if any(dim is not None for dim in in_dims[n:] if not isinstance(dim, (list, tuple))):
            raise NotImplementedError(
                "flash_attention_varlen under torch.vmap wants the same cu_seqlens_q and cu_seqlens_k for all: map Q, "
                "K, V alone, or pack all sequences into one call")
        into = 0 if options.cu_seqlens_q is None else 1
        tensors = [folded(T, dim, info.batch_size, into) for T, dim in zip(arguments[:n], in_dims[:n], strict=True)]
        results = run(*tensors, *options)
        results = [T.unflatten(into, (info.batch_size, T.shape[into] // info.batch_size)) for T in results]
        return tuple(results), (into,) * len(results)
    return rule


def folded(T, dim, size, into):
    """T with its mapped dimension folded into another one; dim None: the same for all."""
    if T is None:
        return None
    if dim is None:
        T, dim = T.expand(size, *T.shape), 0
    return T.movedim(dim, into).flatten(into, into + 1)


def register_flops(operator, per_score, Options):
    """Tell torch.utils.flop_counter what an operator multiplies and adds: per_score(d, d_v) for each visible score."""
    def flops(Q, K, V, *rest, out_val=None, **_):
        options = Options(*rest[-len(Options._fields):])
        return 2 * _scores(Q, K, options) * per_score(Q.shape[-1], V.shape[-1])

    register_flop_formula(operator, get_raw=True)(flops)


def _scores(Q, K, options):
    """Visible scores of all batches and heads, half if causal. Packed sequences without numbers count as equal."""
    B, H, N_q, _ = Q.shape
    sizes, cu_seqlens = [(N_q, K.shape[2])], (options.cu_seqlens_q, options.cu_seqlens_k)
    if cu_seqlens[0] is not None:
        n = len(cu_seqlens[0]) - 1                     # may be 0
        sizes = [(N_q // max(1, n), K.shape[2] // max(1, n))] * n
        if all(map(torch_internals.has_numbers, cu_seqlens)):
            sizes = zip(*(cu.diff().tolist() for cu in cu_seqlens), strict=True)
    return B * H * sum(_scores_of_a_head(N_q, N_k, options) for N_q, N_k in sizes)


def _scores_of_a_head(N_q, N_k, options):
    if options.window is None:
        return N_q * N_k // (2 if options.causal else 1)
    left, right = (N_q + N_k if limit == -1 else limit for limit in options.window)
    places = range(N_k - N_q, N_k)                     # each query's own key
    return sum(max(0, min(N_k, place + right + 1) - max(0, place - left)) for place in places)
