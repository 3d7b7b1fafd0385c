"""The operator on random calls, forward and backward, each held against float64: shapes, strides, dtypes, masks, packed sequences.

A case follows from its number alone: `--first N --cases 1` runs case N again. OF_A_KIND cases one after the other are of one kind,
of other sizes: kernels are compiled for a kind, which takes longer than a case. Inputs lie between rows of NaN, so that a load
beside them shows. Nothing is timed.
"""

import random
import time
from functools import partial
from itertools import accumulate

import torch
from tqdm import tqdm

from flashlab import oracle
from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.options import add_budget_and_out, add_jobs, in_processes, positive
from flashlab_course.bench.orders import judge_in_orders
from flashlab_course.bench.results import finish, save, start
from flashlab_course.bench.timing import deadline

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDTHS = (16, 24, 59, 64, 64, 80, 128, 128, 200, 256)
OF_A_KIND = 8
GUARD = 8                              # rows of NaN before and after


class Case:
    """A random call: what is drawn, by name."""

    def __init__(self, number, longest=500):
        kind, draw = random.Random(number // OF_A_KIND), random.Random(f"sizes of {number}")
        self.number, self.dtype, self.d = number, kind.choice(DTYPES), kind.choice(WIDTHS)
        self.d_v = kind.choice((self.d, self.d, self.d, 16, 64, 100))
        self.H_kv, group = kind.choice((1, 2, 3)), kind.choice((1, 2, 4))
        self.H_q, self.B = self.H_kv * group, draw.choice((1, 2))
        self.causal, self.deterministic = kind.random() < 0.4, kind.random() < 0.3
        wide, narrow = (draw.randint(-1, 300), draw.randint(-1, 300)), (draw.randint(0, 40), draw.randint(-1, 5))
        self.window = draw.choice((wide, narrow)) if kind.random() < 0.5 else None
        self.layout = kind.choice(("heads first", "tokens first", "transposed"))
        self.scale = draw.choice((None, None, None, 0.0, -0.2, 0.7))
        length = lambda: draw.choice((1, draw.randint(1, longest), draw.randint(1, longest), min(longest, 64 * draw.randint(1, 8))))
        self.packed = kind.random() < 0.4
        self.lengths_q, self.lengths_k = [length()], [length()]
        if self.packed:
            self.B, many = 1, draw.randint(1, 5)
            self.lengths_q, self.lengths_k = ([draw.choice((0, length(), length())) for _ in range(many)] for _ in range(2))
            self.lengths_q[0] += not sum(self.lengths_q)
            self.lengths_k[0] += not sum(self.lengths_k)

    def tensors(self, device):
        """Q, K, V and dO (B, H, N, d), the rows of all sequences one after the other."""
        generator = torch.Generator(device).manual_seed(self.number)
        queries, keys = (self.H_q, sum(self.lengths_q)), (self.H_kv, sum(self.lengths_k))
        sizes = (*queries, self.d), (*keys, self.d), (*keys, self.d_v), (*queries, self.d_v)
        return [self.guarded(generator, device, *size) for size in sizes]

    def guarded(self, generator, device, H, N, d):
        """Random numbers (B, H, N, d) in the middle of NaN, in this case's layout."""
        order = {"heads first": (0, 1, 2, 3), "tokens first": (0, 2, 1, 3), "transposed": (0, 1, 3, 2)}[self.layout]
        sizes = [(self.B, H, N + 2 * GUARD, d)[axis] for axis in order]
        whole = torch.full(sizes, torch.nan, device=device, dtype=self.dtype).permute([order.index(axis) for axis in range(4)])
        rows = whole[:, :, GUARD: GUARD + N]
        rows.copy_(torch.randn(self.B, H, N, d, generator=generator, device=device))
        return rows

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def try_case(case, device="cuda", backend="auto"):
    """What is wrong with a call, in words; None where all is right."""
    Q, K, V, dO = case.tensors(device)
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    options = {"causal": case.causal, "window": case.window, "scale": case.scale}
    more = {"deterministic": case.deterministic, "backend": backend, "return_lse": True}
    with poisoned_outputs():
        if case.packed:
            cu_seqlens = [torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
                          for lengths in (case.lengths_q, case.lengths_k)]
            O, L = flash_attention_varlen(*(T[0].transpose(0, 1) for T in leaves), *cu_seqlens, **options, **more)
            O, L = O.transpose(0, 1)[None], L[None]
        else:
            O, L = flash_attention(*leaves, **options, **more)
        grads = torch.autograd.grad(O, leaves, dO)
    with torch.no_grad():
        at_q = at_k = 0
        for n_q, n_k in zip(case.lengths_q, case.lengths_k, strict=True):
            q, k = slice(at_q, at_q + n_q), slice(at_k, at_k + n_k)
            at_q, at_k = q.stop, k.stop
            rows = (q, q, k, k, q, q, k, k)
            one = [T[:, :, of_it] for T, of_it in zip((O, Q, K, V, dO, *grads), rows, strict=True)]
            if wrong := judged(*one, L[:, :, q], options):
                return wrong
    return None


def judged(O, Q, K, V, dO, dQ, dK, dV, L, options):
    """What is wrong with one sequence, in words, or None."""
    passes = [lambda n: oracle.judge_gradients(dQ[..., n], dK[..., n], dV, Q[..., n], K[..., n], V, dO, **options)]
    if Q.numel():
        passes.insert(0, lambda n: oracle.judge(O, L, Q[..., n], K[..., n], V, **options))
    verdicts = (judge_in_orders(judge, Q.shape[-1], Q.device) for judge in passes)
    return next((str(verdict) for verdict in verdicts if not verdict.ok), None)


def outcome(number, device="cuda", backend="auto"):
    """(case, what is wrong with it in words or None) of the case of that number."""
    case = Case(number)
    try:
        return case, try_case(case, device, backend)
    except Exception as error:                         # whatever a kernel may raise: the file says it
        return case, f"{type(error).__name__}: {error}"


def run(numbers, *, out=None, command=None, device="cuda", backend="auto", jobs=1, expired=lambda: False):
    """Try these cases until the time is over, in so many processes. `out` is written at the end, and whenever a case is wrong."""
    results, began = start("fuzz", command, tried=0, packed=0, wrong=[]), time.monotonic()
    with in_processes(jobs) as each:
        for case, wrong in tqdm(each(partial(outcome, device=device, backend=backend), numbers), total=len(numbers), unit="case"):
            results["tried"] += 1
            results["packed"] += case.packed
            if wrong:
                print(f"WRONG: {case}: {wrong}", flush=True)
                results["wrong"].append({"case": case.number, "what": str(case), "how": wrong[:500]})
                save(results, out)
            if expired():
                break
    results["seconds"] = round(time.monotonic() - began, 1)
    return finish(results, out)


def run_asked(args, out, command):
    """What the options ask for."""
    numbers, expired = range(args.first, args.first + args.cases), deadline(args.budget_seconds)
    results = run(numbers, out=out, command=command, jobs=args.jobs, expired=expired)
    print(f"{results['tried']} random calls in {results['seconds']} s, {results['packed']} of packed sequences: "
          f"{len(results['wrong'])} wrong")
    if results["wrong"]:
        raise SystemExit("a call is wrong: see above")
    return results


def add_arguments(parser):
    """The options of `bench fuzz`, and what they run."""
    parser.add_argument("--cases", type=positive(int, "an integer >= 1"), default=5000, help="(5000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    add_jobs(parser)
    add_budget_and_out(parser, 600.0)
    parser.set_defaults(run=run_asked)
