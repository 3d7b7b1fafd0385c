# kind: right
# what: options kept as a dict on ctx; a gradient nobody asked for is None
"""ex08_autograd_function · telling autograd about it"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        ctx.options = dict(causal=causal, scale=scale)
        O, L = fa2_forward(Q, K, V, **ctx.options)
        ctx.save_for_backward(Q, K, V, O, L)
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        grads = fa2_backward(*ctx.saved_tensors[:4], dO, ctx.saved_tensors[4], **ctx.options)
        wanted = [g if need else None for g, need in zip(grads, ctx.needs_input_grad)]
        return *wanted, None, None


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
