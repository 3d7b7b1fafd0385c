"""Decoding, one new query before a cache of N keys: the rate at which K and V are read, beside a copy and others.

The cache is contiguous, and in pages of --page-size that lie in no order. Beside it are SDPA's backends and the forward
kernels. Every implementation is checked against float64 at every size before it is timed.
"""

from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from flashlab.operator.attention import flash_attention
from flashlab.operator.decoding import flash_attention_decode
from flashlab_course.bench import timing
from flashlab_course.bench.checks import check
from flashlab_course.bench.options import add_integers, integer
from flashlab_course.bench.peers import BACKENDS, run_sdpa
from flashlab_course.bench.problems import drawn

SECONDS = 240.0
HEADS = ((32, 4), (16, 16))                            # H_q, H_kv
BATCHES, LENGTHS = (1, 4, 16, 32), (1024, 4096, 16384, 65536, 131072)
MOST_BYTES = 60e9
FORWARD = ("fa2_pipelined_forward", "fa2_hopper_forward")      # what flash_attention runs without splitting the keys
SDPA = tuple(name for name in BACKENDS if name != "sdpa_math")


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


def problems(B=BATCHES, N=LENGTHS):
    """Every combination whose caches fit in MOST_BYTES, the contiguous and the paged ones together."""
    found = [Problem(b, *heads, n) for heads, b, n in product(HEADS, B, N)]
    return [problem for problem in found if 2 * problem.bytes <= MOST_BYTES]


def in_pages(cache, table, page_size):
    """A cache (B, H, N, d) in the pages of a table: (pages, H, page_size, d), NaN where a page has no keys."""
    B, H, N, d = cache.shape
    pages = cache.new_empty(table.numel(), H, page_size, d)
    for n in range(table.shape[1]):
        rows = cache[:, :, n * page_size: (n + 1) * page_size]
        pages[table[:, n].long()] = pad(rows, (0, 0, 0, page_size - rows.shape[2]), value=torch.nan)
    return pages


def shuffled_table(B, N, page_size, generator, device):
    """A block table (B, pages of a sequence) whose pages lie in no order."""
    each = -(-N // page_size)
    return torch.randperm(B * each, generator=generator, device=device).reshape(B, each).to(torch.int32)


def implementations(Q, K, V, page_size, backend="auto"):
    """{name: a call that gives O}."""
    B, N, device = K.shape[0], K.shape[2], K.device
    lengths = torch.full((B,), N, dtype=torch.int32, device=device)
    table = shuffled_table(B, N, page_size, torch.Generator(device).manual_seed(N), device)
    pages = [in_pages(cache, table, page_size) for cache in (K, V)]
    decode = partial(flash_attention_decode, backend=backend)
    found = {
        "decode": partial(decode, Q, K, V, lengths),
        "decode, paged": partial(decode, Q, *pages, lengths, block_table=table),
    }
    found |= {name: lambda name=name: run_sdpa(BACKENDS[name], Q, K, V, False)[0] for name in SDPA}
    return found | {name: partial(flash_attention, Q, K, V, backend=name) for name in FORWARD}


def measure(problem, page_size, *, device="cuda", backend="auto", timer=timing.quick_ms, rounds=2, **options):
    """The rows of one size; all implementations and a copy take turns.

    of_copy: its share of the copy's TB/s, bytes read and written together
    """
    normal = drawn(problem.N, device)
    B, H_q, H_kv, N, d = problem
    tensors = normal(B, H_q, 1, d), normal(B, H_kv, N, d), normal(B, H_kv, N, d)
    source = torch.zeros(timing.COPY_BYTES, dtype=torch.int8, device=device)
    copy = partial(torch.empty_like(source).copy_, source)
    calls = implementations(*tensors, page_size, backend) | {"copy": copy}
    right = lambda call: {"skipped": None} if call is copy else check(lambda: (call(), None), *tensors)
    rows = timing.measure(calls, right, rounds, timer=timer, moved=problem.bytes, **options)
    copied = rows.pop("copy")["ms"]
    copy_tb_s = copied and round(2 * timing.COPY_BYTES / copied / 1e9, 4)
    for row in rows.values():
        if row["ms"]:
            row |= {"copy_tb_s": copy_tb_s, "of_copy": copy_tb_s and round(row["tb_s"] / copy_tb_s, 4)}
    return [problem._asdict() | {"implementation": name, "page_size": page_size} | row for name, row in rows.items()]


def pieces(args):
    asked = problems(args.B, args.N)
    return timing.sweep(asked, lambda problem: measure(problem, args.page_size, expired=args.expired))


def add_arguments(parser):
    add_integers(parser, "--B", BATCHES, "batch sizes")
    add_integers(parser, "--N", LENGTHS, "keys")
    parser.add_argument("--page-size", type=integer, default=64, help="(64)")
