# kind: one mistake
# what: the tensors are put on ctx itself and not into save_for_backward
# shows: Q, K or V changed in place between forward and backward: wrong gradients in silence where autograd would raise;
#        O on its own ctx is a cycle that keeps all five alive; ctx.saved_tensors is empty, saved-tensor hooks see nothing
"""ex08_autograd_function · telling autograd about it"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        O, L = fa2_forward(Q, K, V, causal=causal, scale=scale)
        ctx.Q, ctx.K, ctx.V, ctx.O, ctx.L = Q, K, V, O, L
        ctx.causal, ctx.scale = causal, scale
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        dQ, dK, dV = fa2_backward(ctx.Q, ctx.K, ctx.V, ctx.O, dO, ctx.L, causal=ctx.causal, scale=ctx.scale)
        return dQ, dK, dV, None, None


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
