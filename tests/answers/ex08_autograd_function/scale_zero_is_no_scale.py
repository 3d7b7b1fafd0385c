# kind: one mistake
# what: `scale or d ** -0.5` for a scale left out also replaces a scale of 0
# shows: scale = 0.0: O and gradients are those of 1/sqrt(d); every other scale is right
"""ex08_autograd_function · telling autograd about it"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        ctx.causal = causal
        ctx.scale = scale or Q.shape[-1] ** -0.5
        O, L = fa2_forward(Q, K, V, causal=ctx.causal, scale=ctx.scale)
        ctx.save_for_backward(Q, K, V, O, L)
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        Q, K, V, O, L = ctx.saved_tensors
        return (*fa2_backward(Q, K, V, O, dO, L, causal=ctx.causal, scale=ctx.scale), None, None)


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
