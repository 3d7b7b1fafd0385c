"""Windows and packed sequences: a window beside the causal mask at one long N, packed sequences of equal lengths beside the batch.

Forward and backward, each pair by turns. The last head of each call is held against float64 first.
"""

from functools import partial
from typing import NamedTuple

import torch
from tqdm import tqdm

from flashlab import oracle
from flashlab.operator import pick
from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab_course.bench import timing
from flashlab_course.bench.options import add_budget_and_out, positive
from flashlab_course.bench.problems import HEAD_DIMS, TOKENS, WIDTH
from flashlab_course.bench.results import finish, save, start


class Problem(NamedTuple):
    """B sequences of N tokens, packed or not; in a window each query sees the `left` keys before it, and its own."""

    B: int
    H: int
    N: int
    d: int
    causal: bool = False
    packed: bool = False
    left: int | None = None

    @property
    def masks(self):
        return {"causal": self.causal} | ({} if self.left is None else {"window": (self.left, 0)})

    def __str__(self):
        what = "packed" if self.packed else "batched" if self.left is None else f"window {self.left}"
        return f"d {self.d} N {self.N} B {self.B} {'causal ' if self.causal else ''}{what}"


def pairs(d=HEAD_DIMS, long_N=TOKENS, packed_N=(1024, 4096)):
    """(a problem, what it is timed beside): a window of an eighth of the keys and the causal mask, then packed and batched."""
    found = []
    for width in d:
        H = max(1, WIDTH // width)
        found.append((Problem(1, H, long_N, width, left=long_N // 8), Problem(1, H, long_N, width, causal=True)))
        for N in packed_N:
            for causal in (False, True):
                batched = Problem(max(1, TOKENS // N), H, N, width, causal)
                found.append((batched._replace(packed=True), batched))
    return found


def attend(problem, cu_seqlens, Q, K, V):
    """O of Q, K and V (B, N, H, d), packed or batched, as (B, N, H, d)."""
    if not problem.packed:
        return flash_attention(*(T.transpose(1, 2) for T in (Q, K, V)), **problem.masks).transpose(1, 2)
    return flash_attention_varlen(*(T.flatten(0, 1) for T in (Q, K, V)), cu_seqlens, cu_seqlens, **problem.masks).view_as(Q)


def calls(problem, tensors):
    """({"forward", "backward"}: a call, the Verdicts' words where they are wrong, else None)."""
    Q, K, V, dO = tensors
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    cu_seqlens = torch.arange(0, problem.B * problem.N + 1, problem.N, device=Q.device, dtype=torch.int32)     # all layers share it
    O = attend(problem, cu_seqlens, *leaves)
    backward = partial(torch.autograd.grad, O, leaves, dO, retain_graph=True)
    one = [T[-1:, :, -1:].transpose(1, 2) for T in (O.detach(), Q, K, V, dO, *backward())]
    verdicts = (oracle.judge(one[0], None, *one[1:4], **problem.masks),
                oracle.judge_gradients(*one[5:], *one[1:5], **problem.masks))
    wrong = next((f"refused: {problem}: {verdict}" for verdict in verdicts if not verdict.ok), None)
    return {"forward": partial(attend, problem, cu_seqlens, Q, K, V), "backward": backward}, wrong


def kernels(problem, tensors):
    """The rungs that run it, by name."""
    Q, K, V = (T.transpose(1, 2) for T in tensors[:3])
    options = {"causal": problem.causal, "dropout_p": 0.0, "window": None if problem.left is None else [problem.left, 0]}
    return {"forward": pick.pick(Q, K, V, **options)[0].name,
            "backward": pick.pick(Q, K, V, **options, deterministic=False, backward=True)[0].name}


def measure(pair, *, device="cuda", timer=timing.time_ms, rounds=3, expired=lambda: False):
    """Two rows, one for each pass."""
    it, beside = pair
    g = torch.Generator(device).manual_seed(it.N)
    sizes = (it.B, it.N, it.H, it.d)
    tensors = [torch.randn(sizes, generator=g, device=device, dtype=torch.bfloat16) for _ in range(4)]
    found = [calls(problem, tensors) for problem in pair]
    names, rows = kernels(it, tensors) if torch.device(device).type == "cuda" else {}, []
    for which in ("forward", "backward"):
        row = it._asdict() | {"pass": which, "beside": str(beside), "kernel": names.get(which), "ms": None}
        reason = found[0][1] or found[1][1]
        if not reason:
            both = {"it": found[0][0][which], "beside": found[1][0][which]}
            times, failed = timing.interleaved_times(both, timer, rounds, expired)
            reason = next(iter(failed.values()), None) or (None if all(times.values()) else timing.OUT_OF_TIME)
        if reason:
            rows.append(row | {"skipped": reason})
            continue
        row |= timing.statistics(times["it"]) | {"beside_ms": timing.statistics(times["beside"])["ms"]}
        rows.append(row | {"times_faster": round(row["beside_ms"] / row["ms"], 4)})
    return rows


def run(chosen, *, out=None, command=None, **how):
    """Measure every pair. `out` is written after each."""
    results = start("spans", command, rows=[])
    for pair in tqdm(chosen, unit="pair"):
        rows, reason = timing.attempt(partial(measure, **how), pair)
        results["rows"] += rows or [pair[0]._asdict() | {"pass": None, "ms": None, "skipped": reason}]
        save(results, out)
    return finish(results, out)


def run_asked(args, out, command):
    """What the options ask for."""
    results = run(pairs(args.d, args.N), out=out, command=command, expired=timing.deadline(args.budget_seconds))
    for row in results["rows"]:
        words = f"{row['times_faster']:6.3f} x the speed of {row['beside']}" if row["ms"] else row["skipped"]
        print(f"{Problem(*(row[name] for name in Problem._fields))!s:<36}{row['pass'] or '':<10}{words}")
    return results


def add_arguments(parser):
    """The options of `bench spans`, and what they run."""
    integer = positive(int, "an integer >= 1")
    parser.add_argument("--d", type=integer, nargs="+", default=list(HEAD_DIMS), help="head dimensions (64 128)")
    parser.add_argument("--N", type=integer, default=TOKENS, help=f"sequence length of the window, which is N/8 ({TOKENS})")
    add_budget_and_out(parser, 120.0)
    parser.set_defaults(run=run_asked)
