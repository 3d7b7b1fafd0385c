# kind: right
# what: options in a dict on ctx, star unpacking
"""ex08_autograd_function: my answer."""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        ctx.how = dict(causal=causal, scale=scale)
        O, L = fa2_forward(Q, K, V, **ctx.how)
        ctx.save_for_backward(Q, K, V, O, L)
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        *qkv, O, L = ctx.saved_tensors
        return (*fa2_backward(*qkv, O, dO, L, **ctx.how), None, None)


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
