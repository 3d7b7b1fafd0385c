# kind: one mistake
# what: backward skips everything when Q needs no gradient, though K or V may need one
# shows: Q.requires_grad False, K or V True: their grad stays None; all three True is right
"""ex08_autograd_function · telling autograd about it"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        O, L = fa2_forward(Q, K, V, causal=causal, scale=scale)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.scale = causal, scale
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        if not ctx.needs_input_grad[0]:            # nothing to do
            return None, None, None, None, None
        Q, K, V, O, L = ctx.saved_tensors
        dQ, dK, dV = fa2_backward(Q, K, V, O, dO, L, causal=ctx.causal, scale=ctx.scale)
        return dQ, dK, dV, None, None


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
