"""As `bench forward`, of the backward pass. Each implementation runs as autograd runs it.

Naive attention, too, keeps its P from the forward pass. TFLOP/s count 2.5 times the forward's operations, five matrix products
for two, as the field does; what a kernel computes twice does not count twice. peak_bytes is that of both passes together.
"""

from functools import partial

import torch

from flashlab import oracle
from flashlab.ladder import BACKWARD_KERNELS, BACKWARD_RUNGS
from flashlab.operator.attention import flash_attention
from flashlab_course.bench import passes, problems
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.peers import peers
from flashlab_course.bench.problems import Implementation


def implementations(deterministic=False):
    """name -> Implementation: naive attention, the rungs that take heads, PyTorch's backends.

    deterministic: the rungs give the same bits each time, and those that cannot have a reason in their rows
    """
    found = [Implementation(BACKWARD_RUNGS[0].name, problems.naive_over_heads)]
    found += [Implementation(rung.name, partial(through_operator, rung.name, deterministic)) for rung in BACKWARD_KERNELS]
    found += [Implementation(name, forward) for name, forward in peers().items()]
    return {implementation.name: implementation for implementation in found}


def through_operator(name, deterministic, Q, K, V, causal):
    """flash_attention, its gradients by the backward kernel of that name: as a learner calls it."""
    return flash_attention(Q, K, V, causal=causal, backend=name, deterministic=deterministic), None


def inputs(problem, device):
    """Random Q, K, V and dO, the same for every implementation."""
    Q, K, V = problems.inputs(problem, device)
    generator = torch.Generator(device).manual_seed(1)
    return Q, K, V, torch.randn(Q.shape, generator=generator, device=device, dtype=Q.dtype)


def gradient(forward, Q, K, V, dO, causal):
    """A function that runs the backward pass, of a forward pass that is run here."""
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O = forward(*leaves, causal)[0]
    return lambda: torch.autograd.grad(O, leaves, dO, retain_graph=True)


def check(forward, Q, K, V, dO, causal):
    """Run forward and backward on the whole problem, judge the last heads' gradients in float64: oracle.Verdict."""
    run = gradient(forward, Q, K, V, dO, causal)
    with poisoned_outputs():
        grads = run()
    H, N = Q.shape[1:3]
    # it takes about twice the memory of a forward's check
    heads, heads_kv = passes.judged_part(H, N, H // K.shape[1], passes.CHECKED_SCORES // 2)
    queries, keys = ((slice(-1, None), slice(-count, None)) for count in (heads, heads_kv))
    parts = (queries, keys, keys, queries, keys, keys, queries)
    return oracle.judge_gradients(*(T[part] for T, part in zip((*grads, Q, K, V, dO), parts, strict=True)), causal=causal)


def errors(verdict):
    """JSON knows no NaN."""
    found = {f"error_{name}": error if error == error else None for name, error in verdict.errors.items()}
    return found | {"error": None if None in found.values() else max(found.values())}


BACKWARD = passes.Pass("backward", implementations, inputs, check, errors, prepare=gradient, flops=5 / 2, quick_sizes=(1024, 4096))
measure, run = partial(passes.measure, BACKWARD), partial(passes.run, BACKWARD)


def run_asked(args, out, command):
    """What the options ask for."""
    which = BACKWARD._replace(implementations=partial(implementations, args.deterministic))
    return passes.run_asked(which, args, out, command)


def add_arguments(parser):
    """The options of `bench backward`, and what they run."""
    passes.add_arguments(BACKWARD, parser)
    parser.add_argument("--deterministic", action="store_true", help="the course's kernels give the same bits each time")
    parser.set_defaults(run=run_asked)
