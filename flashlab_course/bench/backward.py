"""As `bench forward`, of the backward pass. Each implementation runs as autograd runs it.

Naive attention, too, keeps its P from the forward pass. TFLOP/s count 2.5 times the forward's operations, five matrix
products for two, as is usual; what a kernel computes twice counts once. peak_bytes is that of both passes.
"""

from functools import partial

import torch

from flashlab.ladder import BACKWARD_KERNELS, BACKWARD_RUNGS
from flashlab.operator.attention import flash_attention
from flashlab.operator.pick import WIDE_BACKWARD
from flashlab_course.bench import forward, problems, timing
from flashlab_course.bench.checks import check_gradients
from flashlab_course.bench.peers import peers

SECONDS = 900.0


def implementations(deterministic=False):
    """{name: forward}, differentiable: naive attention, the rungs that take heads, wide_backward, the peers.

    deterministic: the rungs give the same bits each time; the row of a rung that cannot says why
    """
    kernels = [*BACKWARD_KERNELS, WIDE_BACKWARD]
    rungs = {kernel.name: partial(through_operator, kernel.name, deterministic) for kernel in kernels}
    return {BACKWARD_RUNGS[0].name: problems.naive_over_heads} | rungs | peers()


def through_operator(name, deterministic, Q, K, V, causal):
    """flash_attention, its gradients by the backward kernel of that name: as a learner calls it."""
    return flash_attention(Q, K, V, causal=causal, backend=name, deterministic=deterministic), None


def measure(problem, forwards, *, device="cuda", timer=timing.time_ms, **timed):
    """As forward.measure, of the backward pass of each."""
    Q, K, V = problems.inputs(problem, device)
    dO = problems.drawn(1, device, Q.dtype)(*Q.shape)

    def gradient(attention):
        """A backward pass, of a forward pass that runs here.

        Each turn at the clock makes its own: all that naive attention keeps for it would starve the others.
        """
        leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
        O = attention(*leaves, problem.causal)[0]
        return lambda: torch.autograd.grad(O, leaves, dO, retain_graph=True)

    rows = timing.measure(
        {name: partial(gradient, attention) for name, attention in forwards.items()},
        lambda prepare: check_gradients(lambda: prepare()(), Q, K, V, dO, causal=problem.causal),
        timer=lambda prepare: timer(prepare()),
        flops=5 / 2 * problem.flops,
        **timed,
    )
    return forward.labelled(rows, problem, "backward")


def pieces(args):
    return forward.sweep(measure, implementations(args.deterministic), args)


def add_arguments(parser):
    forward.add_pass_arguments(parser, implementations())
    words = "the course's kernels give the same bits each time"
    parser.add_argument("--deterministic", action="store_true", help=words)
