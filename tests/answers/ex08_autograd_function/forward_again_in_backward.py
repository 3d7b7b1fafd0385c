# kind: right
# what: keeps only Q, K and V, and runs fa2_forward once more in backward for O and L (more work, less memory)
"""ex08_autograd_function · telling autograd about it"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        ctx.save_for_backward(Q, K, V)
        ctx.causal = causal
        ctx.scale = scale
        return fa2_forward(Q, K, V, causal=causal, scale=scale)[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        Q, K, V = ctx.saved_tensors
        O, L = fa2_forward(Q, K, V, causal=ctx.causal, scale=ctx.scale)
        dQ, dK, dV = fa2_backward(Q, K, V, O, dO, L, causal=ctx.causal, scale=ctx.scale)
        return dQ, dK, dV, None, None


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
