"""ex08_autograd_function · telling autograd about it

Chapter 08 · difficulty 3 of 5 · 20 minutes

torch.autograd.Function ties a forward to a backward of your own. fa2_forward and fa2_backward are there; what is
missing is who keeps what in between, and who gets which gradient.

    forward:    O, L = fa2_forward(Q, K, V, causal=..., scale=...)                            returns O
    backward:   dQ, dK, dV = fa2_backward(Q, K, V, O, dO, L, causal=..., scale=...)

- Tensors are kept with ctx.save_for_backward(...) and come back as ctx.saved_tensors: autograd then sees it if one of
  them is changed in between. No tensor is kept on ctx itself, other values are.
- backward returns one gradient for each argument of forward, in their order, and None for what has none; for a tensor
  that needs none (ctx.needs_input_grad) it may be None too.
- Nothing of size N_q by N_k is kept.
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
        # your turn: run the forward, keep what the backward needs, return O
        raise NotImplementedError("ex08_autograd_function: run the forward, keep what the backward needs, return O")

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        # your turn: take back what was kept, return a gradient for each argument of forward
        raise NotImplementedError("ex08_autograd_function: take back what was kept, return a gradient for each argument of forward")


def attention(Q, K, V, causal, scale):
    """O, with a gradient."""
    return Attention.apply(Q, K, V, causal, scale)
