"""Decoding, one new query before a cache of N keys: the rate at which K and V are read, beside a copy, SDPA and our other kernels.

The cache is contiguous, and in pages of --page-size that lie in no order. Before anything is timed, random calls are held against
float64, and then every implementation at every size. --sweep tries tiles and numbers of chunks instead, and prints TB/s of each.
"""

from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from tqdm import tqdm

from flashlab import oracle
from flashlab.operator.attention import flash_attention
from flashlab.operator.decoding import flash_attention_decode
from flashlab_course.bench import timing
from flashlab_course.bench.decode_checks import Case, in_pages, shuffled_table, try_case, try_graph
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.launch import host_us
from flashlab_course.bench.options import add_budget_and_out, positive
from flashlab_course.bench.peers import BACKENDS
from flashlab_course.bench.results import finish, save, start

HEADS = {"gqa": (32, 4), "mha": (16, 16)}              # H_q, H_kv
BATCHES, LENGTHS = (1, 4, 16, 32), (1024, 4096, 16384, 65536, 131072)
MOST_BYTES = 60e9                                      # of the caches, both of them
FORWARD = ("fa2_pipelined_forward", "fa2_hopper_forward")                  # what flash_attention runs where keys are not shared out
SWEPT = [(32, 65536), (1, 65536), (16, 16384)]
TILES = [(B_c, warps, stages) for B_c, warps, stages in product((32, 64, 128), (2, 4, 8), (2, 3, 4)) if B_c < 128 or stages < 4]
PROGRAMS_AN_SM = (1, 2, 3, 4, 6)


class Problem(NamedTuple):
    B: int
    H_q: int
    H_kv: int
    N: int
    d: int = 128

    @property
    def bytes(self):
        """Of K and V, in bfloat16."""
        return 2 * self.B * self.H_kv * self.N * self.d * 2

    def __str__(self):
        return f"H {self.H_q}:{self.H_kv} B {self.B} N {self.N}"


def problems(heads=tuple(HEADS), B=BATCHES, N=LENGTHS):
    """Every combination whose caches fit in MOST_BYTES."""
    found = [Problem(b, *HEADS[kind], n) for kind, b, n in product(heads, B, N)]
    return [problem for problem in found if 2 * problem.bytes <= MOST_BYTES]


class Inputs(NamedTuple):
    Q: torch.Tensor
    K: torch.Tensor
    V: torch.Tensor
    lengths: torch.Tensor
    K_pages: torch.Tensor
    V_pages: torch.Tensor
    block_table: torch.Tensor


def inputs(problem, page_size, device="cuda"):
    """Full caches of random numbers, and the same in pages."""
    g = torch.Generator(device).manual_seed(problem.N)
    normal = partial(torch.randn, generator=g, device=device, dtype=torch.bfloat16)
    B, H_q, H_kv, N, d = problem
    Q, K, V = normal(B, H_q, 1, d), normal(B, H_kv, N, d), normal(B, H_kv, N, d)
    lengths, table = torch.full((B,), N, dtype=torch.int32, device=device), shuffled_table(B, N, page_size, g, device)
    return Inputs(Q, K, V, lengths, in_pages(K, table, page_size), in_pages(V, table, page_size), table)


def implementations(given, backend="auto"):
    """{name: a call that gives O}."""
    Q, K, V, lengths, K_pages, V_pages, table = given
    found = {"decode": partial(flash_attention_decode, Q, K, V, lengths, backend=backend),
             "decode, paged": partial(flash_attention_decode, Q, K_pages, V_pages, lengths, block_table=table, backend=backend)}
    found |= {name: partial(run_sdpa, backend, Q, K, V) for name, backend in BACKENDS.items() if name != "sdpa_math"}
    return found | {name: partial(flash_attention, Q, K, V, backend=name) for name in FORWARD}


def run_sdpa(backend, Q, K, V):
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(Q, K, V, enable_gqa=Q.shape[1] != K.shape[1])


def judged(call, given):
    """The Verdict on the last key head of the last sequence, and the query heads that share it."""
    with poisoned_outputs():
        O = call()
    group = given.Q.shape[1] // given.K.shape[1]
    return oracle.judge(O[-1:, -group:], None, given.Q[-1:, -group:], given.K[-1:, -1:], given.V[-1:, -1:])


def copying(device="cuda"):
    """A call that copies COPY_BYTES: what HBM gives, bytes read and written together."""
    source = torch.zeros(timing.COPY_BYTES, dtype=torch.int8, device=device)
    return partial(torch.empty_like(source).copy_, source)


def measure(problem, page_size, copy, *, device="cuda", backend="auto", timer=timing.quick_ms, rounds=2, expired=lambda: False):
    """The rows of one size, all implementations by turns."""
    given, reason = timing.attempt(inputs, problem, page_size, device)
    if reason:
        return [problem._asdict() | {"implementation": "decode", "ms": None, "skipped": reason}]
    calls, rows = implementations(given, backend), {}
    for name, call in calls.items():
        verdict, reason = timing.attempt(judged, call, given)
        if verdict is not None and not verdict.ok:
            reason = f"refused: {verdict}"
        rows[name] = problem._asdict() | {"implementation": name, "ms": None} | ({"skipped": reason} if reason else {})
        if name == "decode, paged":
            rows[name]["page_size"] = page_size
        if not reason:
            rows[name]["error"] = verdict.error_O
    good = {name: call for name, call in calls.items() if "skipped" not in rows[name]}
    times, failed = timing.interleaved_times(good | {"copy": copy}, timer, rounds, expired)
    copied = timing.statistics(times["copy"], moved=2 * timing.COPY_BYTES)["tb_s"] if times["copy"] else None
    for name in good:
        if name in failed or not times[name] or not copied:
            rows[name]["skipped"] = failed.get(name, timing.OUT_OF_TIME)
        else:
            rows[name] |= timing.statistics(times[name], moved=problem.bytes) | {"copy_tb_s": copied}
            rows[name]["of_copy"] = round(rows[name]["tb_s"] / copied, 4)
    return with_ratios(list(rows.values()))


def with_ratios(rows):
    """How many times faster a row is than the best SDPA and the best forward kernel of the same size: vs_sdpa, vs_forward."""
    for what, names in (("vs_sdpa", tuple(BACKENDS)), ("vs_forward", FORWARD)):
        best = min((row["ms"] for row in rows if row["implementation"] in names and row["ms"]), default=None)
        for row in rows:
            if best and row["ms"]:
                row[what] = round(best / row["ms"], 3)
    return rows


def run(chosen, *, cases=24, page_size=64, out=None, command=None, expired=lambda: False):
    """Check, then measure every size. `out` is written after each. Raises: SystemExit if a random call is wrong"""
    results = start("decode", command, page_size=page_size, wrong=[], graph=None, host_us={}, rows=[])
    for number in tqdm(range(cases), desc="against float64", unit="call"):
        wrong, reason = timing.attempt(try_case, Case(number))
        if wrong or reason:
            results["wrong"].append({"case": number, "what": str(Case(number)), "how": (wrong or reason)[:500]})
            print(f"WRONG: {results['wrong'][-1]}", flush=True)
    differs, reason = timing.attempt(try_graph)
    results["graph"] = differs or reason or "the same bits as without a graph"
    save(results, out)
    print(f"{cases} random calls, {len(results['wrong'])} wrong; CUDA graph: {results['graph']}", flush=True)
    if results["wrong"]:
        raise SystemExit("a call is wrong: see above")
    copy = copying()
    for problem in tqdm(chosen, unit="size"):
        results["rows"] += measure(problem, page_size, copy, expired=expired)
        save(results, out)
    results["host_us"] = host_times(page_size)
    return finish(results, out)


def host_times(page_size):
    """Microseconds that a call takes the host, or why not: {name: one or the other}."""
    least, failed = host_us(implementations(inputs(Problem(1, 32, 4, 1024), page_size)))
    return {name: round(us, 2) for name, us in least.items()} | failed


def table(results):
    """A line for each size: TB/s and share of the copy, contiguous and paged, and how many times the others' speed."""
    sizes = {}
    for row in results["rows"]:
        size = Problem(*(row[name] for name in Problem._fields))
        sizes.setdefault(str(size), {})[row["implementation"]] = row
    lines = [f"{'':<24}{'ms':>9}{'TB/s':>8}{'of copy':>9}{'paged':>8}{'x SDPA':>8}{'x ours':>8}"]
    for size, rows in sizes.items():
        row, pages = rows["decode"], rows.get("decode, paged", {})
        if not row["ms"]:
            lines.append(f"{size:<24} {row['skipped']}")
            continue
        paged = f"{row['ms'] / pages['ms']:8.3f}" if pages.get("ms") else f"{'-':>8}"
        ratios = "".join(f"{row[name]:8.2f}" if name in row else f"{'-':>8}" for name in ("vs_sdpa", "vs_forward"))
        lines.append(f"{size:<24}{row['ms']:9.4f}{row['tb_s']:8.3f}{row['of_copy']:9.1%}{paged}{ratios}")
    reasons = {f"skipped: {row['implementation']}: {row['skipped']}" for row in results["rows"] if row.get("skipped")}
    return "\n".join([*lines, *sorted(reasons), f"microseconds of the host: {results['host_us']}"])


# ---- --sweep

def sweep(page_size, *, device="cuda", timer=timing.quick_ms, tiles=TILES, sizes=SWEPT, out=None, command=None,
          expired=lambda: False):
    """TB/s of every tile at a few sizes, for chunks that make 1, 2, ... programs an SM, and of 2 in pages; printed as it goes."""
    results, sms = start("decode", command, page_size=page_size, rows=[]), multiprocessors(device)
    for B, N in sizes:
        problem = Problem(B, *HEADS["gqa"], N)
        given = inputs(problem, page_size, device)
        columns = "".join(f"{k:>4} an SM" for k in PROGRAMS_AN_SM) + f"{'2, paged':>10}"
        print(f"\n{problem}, TB/s by programs\n{'B_c':<6}{'warps':<6}stages{columns}", flush=True)
        for tile in tiles:
            cells = []
            for k, paged in [*((k, False) for k in PROGRAMS_AN_SM), (2, True)]:
                splits = max(1, k * sms // (B * problem.H_kv))
                call = with_tiles(given, tile, splits, paged)
                row = problem._asdict() | {"tiles": list(tile), "splits": splits, "paged": paged}
                row |= rate(call, given, problem, timer) if not expired() else {"skipped": timing.OUT_OF_TIME}
                results["rows"].append(row)
                cells.append(f"{row['tb_s']:10.3f}" if "tb_s" in row else f"{'-':>10}")
            print("{:<6}{:<6}{:<6}".format(*tile) + "".join(cells), flush=True)
        save(results, out)
    return finish(results, out)


def multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def with_tiles(given, tiles, splits, paged):
    """A call of the kernels with these tiles."""
    from flashlab.operator import decode_kernels as decode  # here: it needs Triton

    launch = partial(decode.launch, tiles=tiles)
    cache = (given.K_pages, given.V_pages) if paged else (given.K, given.V)
    options = {"lengths": given.lengths, "block_table": given.block_table if paged else None, "splits": splits,
               "scale": given.Q.shape[-1] ** -0.5}
    return lambda: decode.forward(None, launch, given.Q, *cache, **options)[0]


def rate(call, given, problem, timer):
    """{"ms", "tb_s", ...} of a call that has been checked, or {"skipped": why not}."""
    verdict, reason = timing.attempt(judged, call, given)
    if reason or not verdict.ok:
        return {"skipped": reason or f"refused: {verdict}"}
    ms, reason = timing.attempt(timer, call)
    return {"skipped": reason} if reason else timing.statistics(ms, moved=problem.bytes)


def run_asked(args, out, command):
    """What the options ask for."""
    expired = timing.deadline(args.budget_seconds)
    if args.sweep:
        return sweep(args.page_size, out=out, command=command, expired=expired)
    chosen = problems(args.heads, args.B, args.N)
    results = run(chosen, cases=args.cases, page_size=args.page_size, out=out, command=command, expired=expired)
    print(table(results))
    return results


def add_arguments(parser):
    """The options of `bench decode`, and what they run."""
    integer = positive(int, "an integer >= 1")
    parser.add_argument("--heads", choices=list(HEADS), nargs="+", default=list(HEADS), help=f"({' '.join(HEADS)})")
    parser.add_argument("--B", type=integer, nargs="+", default=list(BATCHES), help=f"batch sizes ({' '.join(map(str, BATCHES))})")
    parser.add_argument("--N", type=integer, nargs="+", default=list(LENGTHS), help=f"keys ({' '.join(map(str, LENGTHS))})")
    parser.add_argument("--page-size", type=integer, default=64, help="(64)")
    parser.add_argument("--cases", type=integer, default=24, help="random calls to hold against float64 (24)")
    parser.add_argument("--sweep", action="store_true", help="tiles and numbers of chunks at three sizes, instead of all the above")
    add_budget_and_out(parser, 240.0)
    parser.set_defaults(run=run_asked)
