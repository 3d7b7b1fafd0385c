"""As `bench forward`, of the backward pass. Each implementation runs as autograd runs it.

Naive attention, too, keeps its P from the forward pass. TFLOP/s count 2.5 times the forward's operations, five matrix
products for two, as the field does; what a kernel computes twice counts once. peak_bytes is that of both passes.
"""

from functools import partial

import torch

from flashlab.ladder import BACKWARD_KERNELS, BACKWARD_RUNGS
from flashlab.operator.attention import flash_attention
from flashlab_course.bench import passes, problems
from flashlab_course.bench.checks import check_gradients
from flashlab_course.bench.peers import peers

SECONDS = 900.0


def implementations(deterministic=False):
    """{name: forward}, differentiable: naive attention, the rungs that take heads, the peers.

    deterministic: the rungs give the same bits each time, and those that cannot have a reason in their rows
    """
    rungs = {rung.name: partial(through_operator, rung.name, deterministic) for rung in BACKWARD_KERNELS}
    return {BACKWARD_RUNGS[0].name: problems.naive_over_heads} | rungs | peers()


def through_operator(name, deterministic, Q, K, V, causal):
    """flash_attention, its gradients by the backward kernel of that name: as a learner calls it."""
    return flash_attention(Q, K, V, causal=causal, backend=name, deterministic=deterministic), None


def inputs(problem, device):
    """Random Q, K, V and dO, the same for every implementation."""
    Q, K, V = problems.inputs(problem, device)
    return Q, K, V, problems.drawn(1, device, Q.dtype)(*Q.shape)


def gradient(forward, tensors, causal):
    """A function that runs the backward pass, of a forward pass that is run here.

    Made anew for each turn at the clock: all that naive attention keeps for its backward would starve the others.
    """
    *leaves, dO = tensors()
    leaves = [T.detach().requires_grad_() for T in leaves]
    O = forward(*leaves, causal)[0]
    return lambda: torch.autograd.grad(O, leaves, dO, retain_graph=True)


BACKWARD = passes.Pass(
    "backward",
    inputs,
    call=gradient,
    check=lambda call, tensors, causal: check_gradients(lambda: call()(), *tensors, causal),
    timed=lambda timer, call: timer(call()),
    flops=5 / 2,
    quick_sizes=(1024, 4096),
)
measure = partial(passes.measure, BACKWARD)


def pieces(args):
    """What the options ask for."""
    return passes.pieces(BACKWARD, args, implementations(args.deterministic))


def add_arguments(parser):
    """The options of `bench backward`."""
    passes.add_arguments(BACKWARD, parser, implementations())
    words = "the course's kernels give the same bits each time"
    parser.add_argument("--deterministic", action="store_true", help=words)
