"""ex08_autograd_function · telling autograd about it

Chapter 08 · difficulty 3 of 5 · 15 minutes

torch.autograd.Function connects a forward pass with a backward pass of your own. fa2_forward and fa2_backward are
there. Decide what to save between them and which gradients to return.

    forward:    O, L = fa2_forward(Q, K, V, causal=..., scale=...)                            returns O
    backward:   dQ, dK, dV = fa2_backward(Q, K, V, O, dO, L, causal=..., scale=...)

- Save tensors with ctx.save_for_backward(...) and get them back from ctx.saved_tensors: autograd then notices if one of
  them changes in between. Store other values on ctx itself, but no tensors.
- backward returns one gradient for each argument of forward, in the same order. It is None for an argument that has
  none, and may be None for a tensor that needs none (ctx.needs_input_grad).
- Save nothing of size N_q by N_k.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, autograd or its kernels inside forward or backward, any tensor of N_q by N_k, the
finished function from flashlab or solutions/.

Hint: count the arguments of forward after ctx.
"""

import torch

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward


class Attention(torch.autograd.Function):
    """Attention with a backward of its own."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, scale):
        # >>> your turn: run the forward, keep what the backward needs, return O
        O, L = fa2_forward(Q, K, V, causal=causal, scale=scale)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.scale = causal, scale
        return O
        # <<<

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        # >>> your turn: take back what was kept, return a gradient for each argument of forward
        Q, K, V, O, L = ctx.saved_tensors
        dQ, dK, dV = fa2_backward(Q, K, V, O, dO, L, causal=ctx.causal, scale=ctx.scale)
        return dQ, dK, dV, None, None
        # <<<


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
