# kind: point missed
# what: backward makes P (N_q x N_k) by hand instead of fa2_backward
# shows: numbers right; an N_q by N_k tensor
"""ex08_autograd_function: my answer."""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        O, L = fa2_forward(Q, K, V, causal=causal, scale=scale)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.scale = causal, Q.shape[1] ** -0.5 if scale is None else scale
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        Q, K, V, O, L = ctx.saved_tensors
        S = Q @ K.T * ctx.scale
        if ctx.causal:
            S = S.masked_fill(torch.ones_like(S, dtype=torch.bool).triu(len(K) - len(Q) + 1), float("-inf"))
        P = torch.exp(S - L[:, None]).nan_to_num(0.0)
        dS = P * (dO @ V.T - (dO * O).sum(1, keepdim=True)) * ctx.scale
        return dS @ K, dS.T @ Q, P.T @ dO, None, None


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
