# kind: point missed
# what: backward writes the formula once more under enable_grad and asks torch.autograd.grad; S and P are N_q by N_k
# shows: numbers right; autograd inside backward and tensors of N_q by N_k there
"""ex08_autograd_function · telling autograd about it"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        O, L = fa2_forward(Q, K, V, causal=causal, scale=scale)
        ctx.save_for_backward(Q, K, V)
        ctx.causal, ctx.scale = causal, scale
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        with torch.enable_grad():
            Q, K, V = (T.detach().requires_grad_() for T in ctx.saved_tensors)
            scale = Q.shape[-1] ** -0.5 if ctx.scale is None else ctx.scale
            S = Q @ K.T * scale
            if ctx.causal:
                S = S.masked_fill(torch.ones_like(S, dtype=torch.bool).triu(len(K) - len(Q) + 1), -1e30)
            P = torch.softmax(S, -1)
            if ctx.causal and len(Q) > len(K):
                P = P * (torch.arange(len(Q)) >= len(Q) - len(K))[:, None]
            return (*torch.autograd.grad(P @ V, (Q, K, V), dO), None, None)


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
