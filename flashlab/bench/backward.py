"""As `bench forward`, of the backward pass. Each implementation runs as autograd runs it.

Naive attention, too, keeps its P from the forward pass. TFLOP/s count 2.5 times the forward's operations, five matrix products
for two, as the field does; what a kernel computes twice does not count twice. peak_bytes is that of both passes together.
"""

from functools import partial

import torch

from flashlab import ladder, oracle
from flashlab.attention import flash_attention
from flashlab.bench import passes, problems
from flashlab.bench.problems import Implementation
from flashlab.ladder import BACKWARD_RUNGS

OPERATOR = "fa2_triton_backward"       # the rung that flash_attention runs: measured through it, as a learner calls it
FORWARD = "fa2_triton_forward"         # what all other rungs start from


def implementations():
    """name -> Implementation: naive attention, the rungs that take heads, PyTorch's backends."""
    found = [Implementation(BACKWARD_RUNGS[0].name, problems.naive_over_heads)]
    found += [Implementation(rung.name, through_operator if rung.name == OPERATOR else partial(through_rung, rung))
              for rung in BACKWARD_RUNGS if rung.heads]
    found += problems.peers()
    return {implementation.name: implementation for implementation in found}


def through_operator(Q, K, V, causal):
    return flash_attention(Q, K, V, causal=causal, backend="triton"), None


def through_rung(rung, Q, K, V, causal):
    """FORWARD, its gradients by backward rung `rung`."""
    return RungGradients.apply(Q, K, V, causal, rung)


class RungGradients(torch.autograd.Function):
    """(O, L), of which O can be differentiated."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, rung):
        O, L = ladder.rung(FORWARD).function(Q, K, V, causal=causal)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.rung = causal, rung
        ctx.mark_non_differentiable(L)
        return O, L

    @staticmethod
    def backward(ctx, dO, _):
        Q, K, V, O, L = ctx.saved_tensors
        return *ctx.rung.function(Q, K, V, O, dO, L, causal=ctx.causal), None, None


def inputs(problem, device):
    """Random Q, K, V and dO, the same for every implementation."""
    Q, K, V = problems.inputs(problem, device)
    generator = torch.Generator(device).manual_seed(1)
    return Q, K, V, torch.randn(V.shape, generator=generator, device=device, dtype=V.dtype)


def gradient(forward, Q, K, V, dO, causal):
    """A function that runs the backward pass, of a forward pass that is run here."""
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O = forward(*leaves, causal)[0]
    return lambda: torch.autograd.grad(O, leaves, dO, retain_graph=True)


def check(forward, Q, K, V, dO, causal):
    """Run forward and backward on the whole problem, judge the last heads' gradients in float64: oracle.GradientVerdict."""
    grads = gradient(forward, Q, K, V, dO, causal)()
    H, N = Q.shape[1:3]
    heads = max(1, min(H, passes.CHECKED_SCORES // 2 // N**2))             # it takes about twice the memory of a forward's check
    part = (slice(-1, None), slice(-heads, None))
    return oracle.judge_gradients(*(T[part] for T in (*grads, Q, K, V, dO)), causal=causal)


def errors(verdict):
    """JSON knows no NaN."""
    found = {f"error_{name}": error if error == error else None for name, error in verdict.errors.items()}
    return found | {"error": None if None in found.values() else max(found.values())}


BACKWARD = passes.Pass("backward", implementations, inputs, check, errors, prepare=gradient, flops=5 / 2, quick_sizes=(1024, 4096))
measure, run = partial(passes.measure, BACKWARD), partial(passes.run, BACKWARD)
add_arguments = partial(passes.add_arguments, BACKWARD)
