"""Every picture on small data, with the title it must have: tests/test_figures.py draws them.

All measurements are made up.
"""

import math

import numpy as np
import torch

from flashlab import cost
from flashlab.ladder import RUNGS
from flashlab.memory import KiB, Memory
from flashlab.operator.ring import part, zigzag_shard
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward_two_pass
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.naive_backward import naive_backward
from flashlab_course import figures, sweeps
from flashlab_course.compiler.layouts import Layout as Held
from flashlab_course.figures.chapter_05 import tile_bytes
from flashlab_course.gpu.schedule import FOUR_STEPS, iterations
from flashlab_course.gpu.simt import launch, two_paths, vector_add
from flashlab_course.lesson.accesses import Access, Layout, Touched

PAPER = "Recorded on paper."
PROVENANCE = {"device": "Invented GPU", "torch": "0.0", "triton": "0.0", "date": "2000-01-01T00:00:00"}


def results(what, rows, **more):
    return {"what": what, "provenance": PROVENANCE, "rows": rows, **more}


def qkv(N_q, N_k=None, d=16):
    torch.manual_seed(0)
    return torch.randn(N_q, d), torch.randn(N_k or N_q, d), torch.randn(N_k or N_q, d)


def measure(rung, *tensors, **kwargs):
    with Memory() as mem:
        rung(*tensors, **kwargs)
    return mem


def traversals(N_q=64, N_k=64, **kwargs):
    return {f.__name__: measure(f, *qkv(N_q, N_k), B_r=16, B_c=16, **kwargs) for f in (fa1_forward, fa2_forward)}


def logs(*names, **kwargs):
    return {name: mem.log for name, mem in traversals(**kwargs).items() if not names or name in names}


def two_pass_log(causal=False):
    Q, K, V = qkv(64, 96)
    O, L = fa2_forward(Q, K, V, causal=causal)
    return measure(fa2_backward_two_pass, Q, K, V, O, torch.randn(64, 16), L, causal=causal, B_r=16, B_c=32).log


def both_naive():
    Q, K, V = qkv(64, d=8)
    return {"naive_forward": measure(naive_forward, Q, K, V), "naive_backward": measure(naive_backward, Q, K, V, Q)}


SPEED = {"naive_forward": 40, "fa2_triton_forward": 400, "sdpa_math": 30, "sdpa_efficient": 170, "sdpa_flash": 350,
         "sdpa_cudnn": 600}


def timed(name, speed, B, H, N, d=128, causal=False, **more):
    """A row of a benchmark, whose ranges from the 20th to the 80th percentile are 8 % wide."""
    ms = cost.attention_flops(B, H, N, N, d, causal=causal) / speed / 1e9
    return {"implementation": name, "pass": "forward", "dtype": "bfloat16", "B": B, "H": H, "N": N, "d": d,
            "causal": causal, "skipped": None, "ms": ms, "ms_low": 0.97 * ms, "ms_high": 1.05 * ms, "tflops": speed,
            "runs": 50, **more}


def forward():
    """A forward run: SDPA math has no memory left at the largest N."""
    rows = []
    for n, (name, speed) in enumerate(SPEED.items()):
        for N in (512, 1024, 2048, 4096, 8192, 16384):
            B, H, d = 16384 // N, 16, 128
            whole = B * H * N * N * 4 if name in ("naive_forward", "sdpa_math") else 0
            row = timed(name, speed * N / (N + 500), B, H, N, peak_bytes=B * H * N * (2 * d + 4) + whole,
                        rms_error=(n + 3) * 1e-3 / math.sqrt(N))
            if name == "sdpa_math" and N == 16384:
                row |= dict.fromkeys(("ms", "ms_low", "ms_high", "tflops", "peak_bytes", "rms_error"))
                row |= {"skipped": "out of memory"}
            rows.append(row)
    return results("forward", rows, ceilings={"matmul_tflops": 800, "copy_tb_s": 3})


def backward():
    rename = lambda row: {"pass": "backward", "implementation": row["implementation"].replace("_forward", "_backward")}
    return forward() | {"what": "backward", "rows": [row | rename(row) for row in forward()["rows"]]}


def with_masks(slower=1.3):
    """The forward run as if it had been measured at two head dimensions, with and without a mask."""
    rows = []
    for row in (row for row in forward()["rows"] if not row["skipped"]):
        name, B, H, N = (row[key] for key in ("implementation", "B", "H", "N"))
        for d in (64, 128):
            tiles = lambda B_r: {"B_r": B_r, "B_c": 64} if name == "fa2_triton_forward" else {}
            speed, more = row["tflops"] * d / 128, {key: row[key] for key in ("peak_bytes", "rms_error")}
            rows.append(timed(name, speed, B, H, N, d, **more, **tiles(128)))
            rows.append(timed(name, speed / slower, B, H, N, d, causal=True, **more, **tiles(d)))
    return forward() | {"rows": rows}


def counters():
    rows = []
    for N in (1024, 2048, 4096, 8192, 16384):
        size, unit = {"N": N, "B": 1, "H": 16, "d": 64, "dtype": "bfloat16"}, 16 * N * 64 * 2
        rows.append(size
                    | {"implementation": "naive_forward", "dram_read": 16 * N * N * 5, "dram_written": 16 * N * N * 4,
                            "l2_bytes": 16 * N * N * 16})
        rows.append(size | {"implementation": "fa2_triton_forward", "dram_read": 3 * unit, "dram_written": unit,
                            "l2_bytes": unit * (2 + 2 * N // 128)})
    return results("counters", rows)


CLIMB = {"fa2_triton_forward": 300, "fa2_exp2_forward": 330, "fa2_split_forward": 329, "sdpa_flash": 310,
         "fa2_tma_forward": 400, "fa2_persistent_forward": 360, "fa2_hopper_forward": 500, "sdpa_cudnn": 480}


def climb():
    """A forward run of kernels of the ladder and two peers: TFLOP/s at d = 128 without a mask."""
    return results("forward", [timed(name, speed * d / 128 * (0.8 if causal else 1), 1, 16, N, d, causal)
                               for name, speed in CLIMB.items() for N in (1024, 2048) for d in (64, 128)
                               for causal in (False, True)])


GRID = [(B_r, B_c, warps, stages) for B_r in (64, 128) for B_c in (32, 64) for warps in (4, 8) for stages in (1, 2)]


def search():
    """A search over tiles that did not try 64 rows with 8 warps."""
    rows = [{"implementation": "fa2_tuned_forward", "d": 64, "N": 4096, "causal": False, "tiles": list(tiles),
             "ms": 1 + n / 10} for n, tiles in enumerate(tiles for tiles in GRID if tiles[:3:2] != (64, 8))]
    return results("tune", [*rows, rows[0] | {"causal": True, "ms": None}])


def decode(B=(1, 4, 32), skipped=()):
    """Results of bench decode. skipped: implementations without a time."""
    rows = []
    for name, rate in {"decode": 3.6, "decode, paged": 3.5, "sdpa_flash": 0.9, "fa2_hopper_forward": 0.5}.items():
        for batch in B:
            for N in (1024, 4096, 16384, 65536):
                found = rate * N / (N + 4000 / batch)
                seen = {} if name in skipped else {"tb_s": found, "copy_tb_s": 4, "of_copy": found / 4}
                rows.append({"implementation": name, "B": batch, "H_q": 32, "H_kv": 4, "N": N, "d": 128} | seen)
    return results("decode", rows, page_size=64)


def fp8(without=()):
    """Results of bench fp8. without: implementations that have no time."""
    rows = []
    for N, causal, kernel, whole in ((4096, False, 1.2, 1.05), (4096, True, 1.3, 0.9), (16384, True, 1.4, 1.25)):
        size = {"N": N, "d": 128, "causal": causal, "B": 16384 // N, "H": 16}
        speeds = {"sdpa_cudnn": 0.9, "fa2_hopper_forward": 1.0, "fp8 kernel": kernel, "flash_attention_fp8": whole}
        rows += [size | {"implementation": name}
                 | ({} if name in without else {"ms": 1 / speed, "vs_fa2_hopper_forward": speed})
                 for name, speed in speeds.items()]
    return results("fp8", rows)


def ring_logs(R=2, n=4, causal=True, zigzag=True):
    """What flashlab_course.ring_check would note of a run."""
    places = torch.arange(R * n)[:, None]
    owned = [(zigzag_shard(places, r, R) if causal and zigzag else places[r * n:(r + 1) * n])[:, 0].tolist()
             for r in range(R)]
    parts = [[part(r, step, R, n, causal=causal, zigzag=zigzag) for step in range(R)] for r in range(R)]
    return [{"calls": [{"queries": owned[r][mine.rows], "keys": owned[mine.source][mine.keys], "causal": mine.causal}
                       for mine in parts[r] if mine]} for r in range(R)]


def rings(speed=0.9):
    rows = [{"N": n, "H": 16, "d": 128, "mode": mode, "passes": passes, "dtype": "bfloat16", "ranks": R, "ms": 1.0,
             "speedup": R * speed * (0.6 if mode == "causal, in order" else 1), "peak_bytes": n * 2**15 // R}
            for n in (32768, 65536) for mode in ("all", "causal, zig-zag", "causal, in order")
            for passes in ("forward", "forward+backward") for R in (1, 2, 4)
            if mode != "causal, in order" or (passes == "forward" and R > 1)]
    return results("ring", [*rows, rows[-1] | {"ms": None, "skipped": "no time"}])


def contexts():
    """Results of bench gpt: naive attention has no room for the longest contexts."""
    rows = []
    for n in range(6):
        for name, quadratic in (("naive", True), ("SDPA math", True), ("flash_attention", False),
                                ("SDPA flash", False)):
            row = {"implementation": name, "context": 1024 * 2**n, "tokens_s": 1e5 / (1 + n),
                   "peak_bytes": 2**30 * (1 + 2**n) * (2**n if quadratic else 1)}
            if quadratic and n > 3:
                row |= {"tokens_s": None, "skipped": "out of memory" if n == 4 else "out of memory at a shorter one"}
            rows.append(row)
    return results("gpt", rows, shape={"layers": 12, "width": 1024})


STRIDED = Layout((4, 6), (1, 4))
PLACES = np.arange(2)[:, None] + 4 * np.arange(4)
MATRIX = Touched({"X": STRIDED, "Out": STRIDED}, [Access(kind, name, (p,), PLACES + 2 * p, PLACES < 99) for p in (0, 1)
                                                 for kind, name in (("load", "X"), ("store", "Out"))])
LANES = np.arange(8).reshape(2, 4)
VECTOR = Touched({"X": Layout((6,), (1,))}, [Access("load", "X", (p,), LANES[p], LANES[p] < 6) for p in (0, 1)])
T, A = torch.arange(35).view(5, 7), torch.arange(12.0).view(3, 4)
TILE = Held("load", (32, 64), (1, 4), (2, 16), (4, 1), (1, 0))
STEPS = [10.0**-n for n in range(1, 9)]
ERRORS = [{"dtype": dtype, "causal": causal, "max": 9 * rms, "rms": rms}
          for dtype, rms in (("float16", 5e-5), ("bfloat16", 4e-4), ("float32", 5e-8)) for causal in (False, True)]
COMPILED = [{"name": "64 × 128, 8 warps", "registers": 253, "spills": 0, "shared": 100 * KiB, "limit": 227 * KiB},
            {"name": "32 × 128, 4 warps", "registers": 255, "spills": 1244, "shared": 80 * KiB, "limit": 227 * KiB}]
LOSSES = {"SDPA": [3 * 0.98**n for n in range(60)], "ours": [3 * 0.98**n + 1e-6 * n for n in range(60)],
          "Triton": [3.0, 2.94], "D left out": [3 * 0.98**n + 0.02 * n for n in range(60)],
          "your dK and dV": [3 * 0.97**n for n in range(60)]}
PART = {"attention": 9.0, "projections": 5.0, "mlp": 8.0, "head": 0.5, "the rest": 1.5}
COPIES = [{"what": what, "memory": memory, "ms": ms} for what, memory, ms in (
    ("two copies to the GPU", "pageable", 60.0), ("one copy back", "pageable", 16.0),
                                                                              ("two copies to the GPU", "pinned", 10.0),
    ("one copy back", "pinned", 5.0), ("x + y on the GPU", "", 0.2), ("x + y on the CPU", "", 20.0))]
ROOFLINE = [{"op": "add", "flops": 1, "bytes": 12, "tflops": 0.2},
            {"op": "one", "flops": 60, "bytes": 1, "tflops": 100},
            {"op": "two", "flops": 61, "bytes": 1, "tflops": 101}, {"op": "matmul", "flops": 1000, "bytes": 1},
            {"op": "naive, N = 64", "rung": "naive_forward", "flops": 10, "bytes": 1, "tflops": 20},
            {"op": "FA2 (Triton)", "flops": 1000, "bytes": 1, "tflops": 300}]


def four_steps(count=3):
    return {name: iterations(FOUR_STEPS, count, overlapped=name == "overlapped")
            for name in ("one after the other", "overlapped")}


def limits():
    return [{"name": name, "N": N, "limit": limit, "tflops": tflops} for N in (1024, 4096) for name, limit, tflops in
            (("naive_forward", 32, 25), (figures.WITHOUT_L, 64, 43 if N == 4096 else None),
             ("fa2_triton_forward", 800, 330))]


def rows_of(**columns):
    """Dicts with one value of each column: rows_of(N=[1, 2], ms=[3, 4]) -> [{"N": 1, "ms": 3}, {"N": 2, "ms": 4}]."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


# name, and after a colon the variant -> (a call that draws it, the title it must have)
CALLS = {
    "ladder": (figures.ladder, f"{len(RUNGS)} ways to compute the same attention, each one idea above the last"),
    "tile_of_scores": (lambda: figures.tile_of_scores(7, 9, 3, 4, 2, 1),
                       "Tile (2, 1) of S needs 1 row of Q and 4 rows of K, and nothing else"),
    "matrix_sizes": (lambda: figures.matrix_sizes([256, 1024, 4096], 64),
                     "At N = 4096, S takes 64 times the bytes of Q"),
    "saturation": (lambda: figures.saturation([{"spread": s, "mean": 1e-3, "median": 1e-3 / s**4}
                                               for s in (0.5, 1, 4, 8)]),
                   "With scores 8 times as far apart, the gradient of the median key is 4,100 times smaller"),
    "who_sees_whom": (lambda: figures.who_sees_whom(8, 6),
                      "Only text that is still being written needs the causal mask"),
    "causal_mask": (lambda: figures.causal_mask(3, 8),
                    "The mask is aligned bottom right: the last query sees every key"),
    "causal_mask: blind rows": (lambda: figures.causal_mask(8, 3),
                                "The mask is aligned bottom right: the last query sees every key; the first 5 of 8 "
                                "queries see none"),
    "attention_matrices": (lambda: figures.attention_matrices(512, 512, 64),
                           "S and P hold 80 % of the numbers in Q, K, V, S, P and O"),
    "peak_against_N": (lambda: figures.peak_against_N({32: 9000, 64: 34000}, 16),
                       "Twice the tokens, 3.8 times the memory"),
    "memory_hierarchy": (figures.memory_hierarchy, "SRAM is 13 times as fast as HBM and 1900 times smaller"),
    "crossings": (lambda: figures.crossings(measure(naive_forward, *qkv(64))),
                  "An N × N matrix crosses HBM 7 times: 4 for the formula (orange), 2 for the scale (dark), 1 for L "
                  "(light)"),
    "traffic_by_op": (lambda: figures.traffic_by_op(measure(naive_forward, *qkv(64))),
                      "Each operation reads its operands from HBM and writes its result back: 128.2 KiB in 5 kernels"),
    "gpu_drawn": (lambda: figures.gpu_drawn("H100"),
                  "Arithmetic happens in the 132 SMs of an H100; the tensors lie outside, in HBM"),
    "on_chip_sizes": (figures.on_chip_sizes, "The registers of an A100 hold 1.3 times as much as its shared memory"),
    "sm_filled": (lambda: figures.sm_filled(256, 128, 48 * KiB),
                  "The SM has room for 2 blocks of 256 threads, 25% of all it could hold: registers allow no more"),
    "warp_lanes": (lambda: figures.warp_lanes(launch(vector_add, 1, 64)(*(torch.ones(8) for _ in range(3)), 8)),
                   "vector_add, block 0, warp 0: 75 % of the lanes work"),
    "warp_lanes: diverging": (lambda: figures.warp_lanes(launch(two_paths, 1, 32)(torch.ones(32), 32, 16, 3)),
                              "two_paths, block 0, warp 0: 63 % of the lanes work"),
    "grid_and_guard": (lambda: figures.grid_and_guard(70, 32),
                       "⌈70/32⌉ = 3 blocks of 32 are 96 threads for 70 elements: the guard stops 26"),
    "grid_and_guard: two axes": (lambda: figures.grid_and_guard((10, 20), (4, 8)),
                                 "⌈20/8⌉ × ⌈10/4⌉ = 3 × 3 blocks are 288 threads for 200 elements: the guard stops 88"),
    "halving": (lambda: figures.halving([3, 1, 4, 1]),
                "4 threads sum 4 numbers in 2 rounds, with a barrier before each"),
    "bandwidth_by_footprint": (lambda: figures.bandwidth_by_footprint(
        [{"footprint": 2**n, "tb_s": 40.0 - n}
         for n in range(20, 30)] + [{"level": "shared memory", "footprint": 9, "tb_s": 99}],
        PAPER, l2_bytes=2**25), "1 MiB that the L2 cache holds come 1.8 times as fast as 512 MiB from HBM"),
    "latency_by_footprint": (lambda: figures.latency_by_footprint(rows_of(
        level=["HBM", "HBM", "shared memory"], footprint=[2**14, 2**30, 2**14], ns=[140.0, 300.0, 20.0]), PAPER),
        "A load from HBM takes 300 ns, 15 times as long as one from shared memory"),
    "roofline": (lambda: figures.roofline(ROOFLINE, 3, 600, PAPER),
                 "Below 200 FLOPs a byte memory is the limit: so for 4 of these 6 operations"),
    "op_times": (lambda: figures.op_times(rows_of(op=["add", "matmul"], ms=[0.5, 0.2], bytes=[1e9, 1e8],
                                                  flops=[1e8, 1e11]), 3, 600, PAPER),
                 "1 of 2 operations need longer for their bytes (blue) than for their arithmetic (orange)"),
    "bytes_in_flight": (lambda: figures.bytes_in_flight([{"each": each, "in_flight": each * n,
                                                          "tb_s": min(4.0, each * n / 4e5)}
                                                         for each in (4, 16) for n in (10**4, 10**5, 10**6)], 400, 4.0,
                                                        PAPER),
                        "1.5 MiB have to be on their way all the time to keep HBM busy"),
    "host_and_gpu": (lambda: figures.host_and_gpu(COPIES, PAPER),
                     "The GPU adds in 0.2 ms; the copies there and back take 75 times as long at best"),
    "time_by_period": (lambda: figures.time_by_period(rows_of(period=[1, 16, 32, 2**30], ms=[2.0, 2.0, 1.0, 1.0]),
                                                      PAPER),
                       "Where a warp's lanes disagree it takes both paths, 2.00 times the time; where whole warps "
                       "disagree, nothing"),
    "time_by_block": (lambda: figures.time_by_block(rows_of(block=[8, 16, 32, 64], ms=[4.0, 2.0, 1.0, 1.0]), PAPER),
                      "A block of 8 threads takes 4.0 times as long as one of 32: the empty lanes are paid for"),
    "bandwidth_by_block": (lambda: figures.bandwidth_by_block(rows_of(
        by=["CUDA C++"] * 3 + ["PyTorch"], block=[1, 32, 256, None], tb_s=[0.02, 0.64, 3.0, 3.1]), PAPER),
        "Blocks of 32 threads, every lane busy, move 4.7 times fewer bytes a second than blocks of 256"),
    "largest_exponentials": (lambda: figures.largest_exponentials({torch.float32: 88, torch.float16: 11}),
                             "exp(x) becomes inf: float32 at x = 89, float16 at x = 12"),
    "softmax_passes": (lambda: figures.softmax_passes({"three passes": (12288, 4096), "two passes": (8192, 4096)}),
                       "From three passes to two passes: 16 KiB of HBM traffic becomes 12 KiB"),
    "running_state": (lambda: figures.running_state([0.0, 1.0, 2.0, 3.0] + [0.0] * 20),
                      "In 24 keys l is rescaled 3 times: whenever the maximum grows, and only then"),
    "running_state: once": (lambda: figures.running_state([-math.inf, 0, 1]),
                            "In 3 keys l is rescaled once: whenever the maximum grows, and only then"),
    "running_state: never": (lambda: figures.running_state([3, 2, 1]),
                             "In 3 keys l is never rescaled: no score exceeds the first"),
    "records": (lambda: figures.records([3, 4, 4, 6], N=50, expected=4.5),
                "Among 50 random scores 4.2 set a new maximum, on average"),
    "rounding_of_l": (lambda: figures.rounding_of_l([{"order": order, "N": N, "error": N / k, "bound": k * N}
                                                     for k,
                                                     order in ((2, "falling"), (3, "rising")) for N in (10, 100)]),
                      "l is off by at most 50 u; rescaled most often, rising scores are the most accurate"),
    "rounding_of_l: no such luck": (lambda: figures.rounding_of_l(rows_of(order=["a", "b"], N=[9, 9], error=[3, 7],
                                                                          bound=[1, 2])), "l is off by at most 7 u"),
    "shares_of_weight": (lambda: figures.shares_of_weight([(0, 1.0, 2.0), (0, 3.0, 1.0)], [3, 1]),
                         "Worker 1 had 25 % of the keys and found 79 % of the weight"),
    "block_product": (lambda: figures.block_product(48, 50, 40, 16, 16, 20),
                      "One tile of C is a sum of 4 products: a row of A's tiles with a column of B's"),
    "matmul_traffic": (lambda: figures.matmul_traffic([{"edge": B, "formula": 2**20 // B,
                                                        "measured": fits and 2**20 // B}
                                                       for B, fits in ((8, True), (16, True), (32, None))]),
                       "Tiles 2 times as wide: 128 KiB becomes 64 KiB"),
    "attention_tiles": (lambda: figures.attention_tiles(3, 2, i=2),
                        "O₃ = S₃₁ V₁ + S₃₂ V₂: one row of tiles makes one block of O"),
    "star_weights": (lambda: figures.star_weights(torch.tensor([0.0, 1.0, 3.0, 0.0, 0.0]), 2),
                     "Tile 2 of this row holds 82 % of the weight; softmax* gives it 31 %"),
    "star_weights: one tile": (lambda: figures.star_weights(torch.tensor([0.0, 4.0]), 2),
                               "Tile 1 of this row holds 100 % of the weight; softmax* gives it 100 %"),
    "tile_traversal": (lambda: figures.tile_traversal(logs(), 64, 64),
                       "FA2 keeps O, l, m on the chip and moves 40.2 KiB where FA1 moves 60.2 KiB"),
    "tile_traversal: one": (lambda: figures.tile_traversal(logs("fa1_forward"), 64, 64),
                            "FA1 moves Q, O, l, m in each of its 16 steps: 60.2 KiB"),
    "tile_traversal: blind rows": (lambda: figures.tile_traversal(logs("fa2_forward", N_q=72, N_k=40, causal=True), 72,
                                                                  40),
                                   "FA2 moves K, V in each of its 6 steps: 20.3 KiB"),
    "tiles_in_sram": (lambda: figures.tiles_in_sram({name: tile_bytes(64, B_c, 64)
                                                     for name, B_c in (("A", 192), ("B", 64))}, 192 * KiB),
                      "A: 176 KiB without scaled S_ij, which no longer fits; B: 112 KiB fit"),
    "share_of_S": (lambda: figures.share_of_S([32, 64, 128], 192 * KiB),
                   "At d = 32 one S_ij would take 3 times the SRAM; with min(·, d) it takes 0.25"),
    "sram_occupancy": (lambda: figures.sram_occupancy(traversals()),
                       "At the peak, live tiles take 5 % of the SRAM in FA1, 5 % in FA2"),
    "traffic_of_state": (lambda: figures.traffic_of_state(logs()),
                         "O, l and m take 60 % of FA1's traffic, 10 % of FA2's traffic"),
    "traffic_of_state: one": (lambda: figures.traffic_of_state(logs("fa1_forward")),
                              "60 % of what FA1 moves is running state: O, l and m"),
    "time_by_unit": (lambda: figures.time_by_unit([64, 128], {64: 6, 128: 8}),
                     "The exponentials take this much of the products' time: 99 % at d = 64, 50 % at d = 128"),
    "programs_on_sms": (lambda: figures.programs_on_sms(1, 16, 4096, 128),
                        "FA2's smaller programs finish 6.4 times sooner (B = 1, H = 16, N = 4096)"),
    "programs_on_sms: no gain": (lambda: figures.programs_on_sms(2, 8, 1000, 128, 16),
                                 "FA2's smaller programs gain nothing here (B = 2, H = 8, N = 1000)"),
    "split_among_warps": (lambda: figures.split_among_warps(64, 128, 64),
                          "Split by keys, 49.5 KiB pass between 4 warps for every tile; split by queries, none"),
    "traffic_against_N": (lambda: figures.traffic_against_N(sweeps.over_N([32, 64, 128], d=16)),
                          "At N = 128, naive moves 480.5 KiB, FA2 48.5 KiB: 9.9 times less, 8.6 without L in naive"),
    "traffic_against_N: more than naive": (lambda: figures.traffic_against_N(sweeps.over_N([64], d=128)),
                                           "At N = 64, naive moves 240.2 KiB; FA1 moves 290.8 KiB, 1.2 times as much"),
    "traffic_against_N: one": (lambda: figures.traffic_against_N(sweeps.over_N([64, 128], d=16, rungs=["fa2_forward"])),
                               "At N = 128, FA2 moves 48.5 KiB"),
    "share_of_naive": (lambda: figures.share_of_naive(sweeps.over_N([32, 64, 128], d=16)),
                       "At N = 128, FA2 moves 10 % of naive attention's bytes; 12 % if naive attention need not "
                       "compute L"),
    "break_even": (lambda: figures.break_even([p for d in (16, 32)
                                               for p in sweeps.over_heights(64, d, [2, 8, 32], B_c=64)]),
                   "FA2 moves fewer bytes than naive attention from B_r = 5 at d = 16 (6 without logsumexp in naive), "
                   "10 at d = 32 (11 without logsumexp in naive)"),
    "traffic_against_sram": (lambda: figures.traffic_against_sram(
        [p for sram in (16, 64) for p in sweeps.over_N([128], d=32, sram_bytes=sram * KiB)]),
        "4 times the SRAM, 2.2 times fewer bytes in FA2"),
    "traffic_against_tile": (lambda: figures.traffic_against_tile(sweeps.over_tiles(64, 16, (8, 16, 32, 64), 16 * KiB)),
                             "Larger tiles move fewer bytes until the SRAM overflows: FA2 gets down to 40.2 KiB at B = "
                             "16"),
    "traffic_against_tile: all fit": (lambda: figures.traffic_against_tile(sweeps.over_tiles(32, 16, (8, 16))),
                                      "Larger tiles move fewer bytes: FA2 gets down to 12.1 KiB at B = 16"),
    "traffic_against_tile: none fits": (lambda: figures.traffic_against_tile(sweeps.over_tiles(32, 16, (16, 32), KiB)),
                                        "No tile size fits the SRAM"),
    "model_vs_counters": (lambda: figures.model_vs_counters(counters()),
                          "At N = 16384 DRAM moves 36 GiB for naive attention, 128 MiB for the kernel: 290 times less"),
    "model_vs_counters: O alone": (lambda: figures.model_vs_counters(counters(), {16384: 72 * 2**28}),
                                   "At N = 16384 DRAM moves 36 GiB for naive attention, 128 MiB for the kernel: 290 "
                                   "times less, 140 times if naive attention computes no L"),
    "jacobian_of_product": (lambda: figures.jacobian_of_product(3, 2, 2),
                            "1 / 3 of it is not 0, and that is 3 copies of Wᵀ"),
    "softmax_jacobian": (lambda: figures.softmax_jacobian([0.3, -1.0, 2.0, 1.5]),
                         "Raise score 2: its own weight gains 0.25 for each unit, the others lose 0.25 together"),
    "backward_dataflow": (lambda: figures.backward_dataflow(4096, 64),
                          "Only rows are kept: Q, K, V, O and L, 4 MiB where one N × N matrix has 64 MiB"),
    "backward_dataflow: textbook": (lambda: figures.backward_dataflow(4096, 64, flash=False),
                                    "S, P, dP and dS are 64 MiB each, and cross HBM at every arrow"),
    "matrix_crossings": (lambda: figures.matrix_crossings(both_naive(), 64),
                         "N × N matrices cross HBM 7 times in naive_forward and 18 times in naive_backward"),
    "two_passes": (lambda: figures.two_passes(two_pass_log(), 64, 96),
                   "Columns for dK and dV, rows for dQ: each gradient has one writer, and S is made twice"),
    "traffic_by_tensor": (lambda: figures.traffic_by_tensor(logs()), "dQ's share of the traffic: FA1 7 %; FA2 0 %"),
    "backward_peak_against_N": (lambda: figures.backward_peak_against_N(
        [{"name": name, "N": N, "peak": peak(N)} for N in (128, 256, 512) for name, peak in
         (("keep P", lambda N: 12 * N * N), ("recompute", lambda N: 900 * N))]),
        "At N = 512 “recompute” needs 450 KiB, “keep P” 3 MiB"),
    "sums_by_order": (lambda: figures.sums_by_order([1.0, 1.0, 1.0 + 1e-6, 1.0 - 1e-6], 1.0, 8),
                      "The same 8 parts in 4 orders: 3 different results in float32"),
    "sums_by_order: one": (lambda: figures.sums_by_order([1.0, 1.0], 1.0, 4),
                           "The same 4 parts in 2 orders: one result in float32"),
    "finite_differences": (lambda: figures.finite_differences(
        {"float32": [(h, h * h + 1e-8 / h) for h in STEPS], "float64": [(h, h * h + 1e-16 / h) for h in STEPS]}),
        "At their best step, differences are off by 1e-05 in float32 and 1e-10 in float64"),
    "algorithm_beside_code": (lambda: figures.algorithm_beside_code("fa2_backward"),
                              "Algorithm 2 of FA2 beside our lines: 7 of 15 are not the same"),
    "algorithm_beside_code: FA1": (lambda: figures.algorithm_beside_code("fa1_backward"),
                                   "Algorithm 4 of FA1 beside our lines: 8 of 18 are not the same"),
    "vector_accesses": (lambda: figures.vector_accesses({"wanted": VECTOR,
                                                         "yours": Touched(problem="it raised ValueError")}),
                        "wanted: 8 addresses, the masks hold back 2, none lies outside the tensors"),
    "matrix_accesses": (lambda: figures.matrix_accesses({"wanted": MATRIX, "yours": MATRIX}),
                        "Wanted: 8 of 24 elements of Out never stored; yours: 8 of 24 elements of Out never stored"),
    "memory_line": (lambda: figures.memory_line(MATRIX), "Program 0's tile lies in 4 pieces of X, 4 pieces of Out"),
    "times_touched": (lambda: figures.times_touched({"wanted": MATRIX}),
                      "How often each element is touched: X 0 to 1, Out 0 to 1"),
    "tiles_and_addresses": (lambda: figures.tiles_and_addresses({"T": (T, (2, 2), (4, 4)),
                                                                 "T.T": (T.T, (0, 2), (1, 3))}),
                            "T: 2 places stick out, 2 of them at the address of another element; T.T: the tile lies at "
                            "7, 14, 21, 8, 15, 22"),
    "tiles_and_addresses: at the end": (lambda: figures.tiles_and_addresses({"T": (T, (4, 2), (4, 4))}),
                                        "T: 5 places stick out, 0 of them at the address of another element"),
    "tiles_and_addresses: wrong": (lambda: figures.tiles_and_addresses(
        {"T": (T, (2, 2), (4, 4))}, {"T": torch.tensor([[18, 19, 20, 21], [25, 26, 27, 29]])}),
        "T: 1 of your addresses are wrong"),
    "address_walk": (lambda: figures.address_walk({"T": T, "T.T": T.T}),
                     "One stride describes T and none describes T.T, read row by row"),
    "layout_addresses": (lambda: figures.layout_addresses({"T": A, "T.T": A.T}),
                         "2 tensors, one memory: only the strides differ"),
    "sectors_touched": (lambda: figures.sectors_touched({"in a row": launch(vector_add, 1, 32)(
        *(torch.ones(12) for _ in range(3)), 12)}, columns=16), "A load of 12 numbers moves 2 sectors in a row"),
    "slower_with_stride": (lambda: figures.slower_with_stride([{"stride": n, "ms": float(n)}
                                                               for n in (1, 2, 4, 8, 16)], PAPER,
                                                              {n: (min(32, 4 * n), True) for n in (1, 2, 8)}),
                           "The same number of elements takes 8.0 times as long at stride 8, 16 times at stride 16"),
    "share_of_copy": (lambda: figures.share_of_copy(
        [{"N": N, "dtype": "float16", "by": by, "ms": ms} for N in (256, 4096) for by, ms in
         (("kernel", 1.0 + (N == 256)), ("torch", 2.0), ("copy", 1.0), ("eager", 6.0))], PAPER),
        "The fused softmax runs at 50 to 100 % of a copy's speed (float16)"),
    "running_sums": (lambda: figures.running_sums({"float16": [1, 2, 3, 3], "float32": [1, 2, 3, 4]}, added=1),
                     "float16 stops at 3, where its numbers are 0.00195312 apart"),
    "running_sums: none stops": (lambda: figures.running_sums({"float32": [1, 2]}, added=1), "Every sum arrives"),
    "float16_range": (lambda: figures.float16_range({"1e-4": 1e-4, "its square": 1e-8, "300²": 9e4}),
                      "float16 has no room for its square, 300²"),
    "elements_of_threads": (lambda: figures.elements_of_threads(Held("load", (1024,), (4,), (32,), (4,), (0,))),
                            "Thread 0 takes 8 of the 1024 elements, in 2 pieces of 4"),
    "lanes_of_tiles": (lambda: figures.lanes_of_tiles({"X": TILE,
                                                       "Y": Held("load", (32, 64), (4, 1), (8, 4), (1, 4), (0, 1))}),
                       "Neighbouring lanes go along a row of X, down a column of Y"),
    "branches_in_code": (lambda: figures.branches_in_code({"constexpr": {"ex2": 8, "bra": 0},
                                                           "run-time": {"ex2": 8, "bra": 3}}),
                         "1 of 2 compiled kernels hold a branch"),
    "tile_order": (lambda: figures.tile_order({"rows": [(i, j) for i in range(4) for j in range(4)],
                                               "groups": [(0, 0), (1, 0), (0, 1), (1, 1)]}, wave=4),
                   "4 programs at a time read 5 or 4 strips of A and B: the order decides"),
    "order_and_time": (lambda: figures.order_and_time(*[rows_of(group=[1, 8], ms=[2.0, 1.9], dram_read=[2e9, 1e9])]
                                                      * 2, PAPER),
                       "Groups of 8 read 50 % of the bytes and take 95 % of the time of row by row"),
    "speed_and_error": (lambda: figures.speed_and_error(rows_of(
        by=["kernel", "kernel, B by columns", "torch"], precision=["ieee", "tf32", "tf32"], tflops=[40, 240, 400],
        mean_error=[1e-6, 1e-3, 3e-4]), PAPER), "TF32 runs up to 10.0 times as fast as float32, with three digits"),
    "share_of_library": (lambda: figures.share_of_library(rows_of(
        n=[1024] * 3 + [4096] * 3, by=["torch", "pointers", "descriptors"] * 2, tflops=[100, 30, 40, 700, 600, 650]),
                                                          PAPER),
        "Against PyTorch's product at 4096³: pointers 86 %, descriptors 93 %; at 1024³ both are far behind"),
    "bars": (lambda: figures.bars({"a": 1.0, "b": 300.0}, "b takes 300 times as long", PAPER, "ms", log=True,
                                  worse=("b",)), "b takes 300 times as long"),
    "program_grid": (lambda: figures.program_grid(2, 3, 100, 32),
                     "24 programs, one for each query block of each head; the last block has 4 of 32 rows"),
    "tile_over_memory": (lambda: figures.tile_over_memory(100, 16, 32, 3),
                         "Block 3: 32 rows of addresses, 4 of them its own; the mask holds back 28 × 16"),
    "scores_and_limit": (lambda: figures.scores_and_limit(torch.tensor([65504.0, 70000.0, -1e5, 1.0])),
                         "2 of 4 scores would be infinite in float16: tl.dot returns float32"),
    "phantom_weights": (lambda: figures.phantom_weights(torch.full((8, 10), 0.1), 8),
                        "2 keys of zeros, loaded behind the last real one, take 20 % of the weight"),
    "causal_tiles": (lambda: figures.causal_tiles(logs("fa2_forward", N_k=96, causal=True)["fa2_forward"], 64, 96),
                     "Program 3 visits 6 tiles, program 0 visits 3; 4 of 18 visited tiles need the mask"),
    "causal_tiles: by key": (lambda: figures.causal_tiles(
        [event for event in two_pass_log(causal=True) if event.kernel == "fa2_backward_dkdv"], 64, 96, owner="key"),
        "Program 0 visits 4 tiles, program 2 visits 2; 4 of 10 visited tiles need the mask"),
    "tile_grids": (lambda: figures.tile_grids({
        "one text": [(logs("fa2_forward", N_q=96, N_k=96, causal=True)["fa2_forward"], 0)],
        "two texts": [(logs("fa2_forward", N_q=n, N_k=n, causal=True)["fa2_forward"], start)
                      for n, start in ((48, 0), (32, 48))]}, 96),
        "Tiles computed: 21 for one text, 9 for two texts"),
    "errors_by_dtype": (lambda: figures.errors_by_dtype(ERRORS, "Measured here."),
                        "The largest error is 9 to 9 times the root mean square: judge by both"),
    "rounding_budget": (lambda: figures.rounding_budget({"P": 3e-4, "O": 4e-4, "both": 5e-4}, "Measured here."),
                        "“O” makes 64 % of the squared error, “P” the rest"),
    "compiled_kernels": (lambda: figures.compiled_kernels(COMPILED),
                         "1 of 2 kernels spills registers; shared memory would allow all of them"),
    "compiled_kernels: none spills": (lambda: figures.compiled_kernels(COMPILED[:1]),
                                      "None of the 1 spills a register, and all fit the shared memory"),
    "compiled_kernels: refused": (lambda: figures.compiled_kernels([COMPILED[0], {"name": "yours", "refused": "no"}]),
                                  "1 of 2 do not compile"),
    "padded_weight": (lambda: figures.padded_weight([0, -50, -100, -150], [1.0, 1e20, math.inf, math.inf]),
                      "An unhidden padded key weighs exp(0 − L): from scores of -100 on it is infinite, and ∞ · 0 is "
                      "NaN"),
    "tile_on_its_side": (lambda: figures.tile_on_its_side(64, 128),
                         "Keys in rows: the next two products take the tile as it stands, and L and D lie along its "
                         "columns"),
    "masks_compared": (lambda: figures.masks_compared(torch.eye(2).bool(), ~torch.eye(2).bool(), ("a", "b")),
                       "100 % are kept in one mask, dropped in the other"),
    "masks_compared: same": (lambda: figures.masks_compared(torch.eye(2).bool(), torch.eye(2).bool(), ("a", "b")),
                             "The same mask, whatever the tiles"),
    "gain_of_rung": (lambda: figures.gain_of_rung(climb(), "fa2_hopper_forward"),
                     "“Gluon, Hopper”: 1.25 to 1.25 × the speed of “+ TMA”, ahead at 8 of 8 sizes, behind at 0"),
    "gain_of_rung: tie": (lambda: figures.gain_of_rung(climb(), "fa2_split_forward"),
                          "“+ split loop”: 1.00 to 1.00 × the speed of “+ base 2”, ahead at 0 of 8 sizes, behind at 0"),
    "gain_of_rung: behind": (lambda: figures.gain_of_rung(climb(), "fa2_persistent_forward"),
                             "“+ persistent”: 0.90 to 0.90 × the speed of “+ TMA”, ahead at 0 of 8 sizes, behind at 8"),
    "kernels_beside_peers": (lambda: figures.kernels_beside_peers(climb(), N=2048),
                             "Gluon, Hopper runs at 500 TFLOP/s: 1.67 × the first kernel, 1.61 × SDPA flash, 1.04 × "
                             "SDPA cuDNN"),
    "times_of_tiles": (lambda: figures.times_of_tiles(search(), GRID, GRID[-1]),
                       "Of 12 choices the slowest takes 2.10 times as long as the fastest; what the hand had picked "
                       "takes 110.0 % longer than the fastest"),
    "times_of_tiles: no hand": (lambda: figures.times_of_tiles(search()),
                                "Of 12 choices the slowest takes 2.10 times as long as the fastest"),
    "left_of_a_grid": (lambda: figures.left_of_a_grid(GRID, GRID[:5], "d = 64."),
                       "5 of 16 choices are worth compiling"),
    "timelines": (lambda: figures.timelines(four_steps(5), "multiply", "four steps."),
                  "The time in which “multiply” works. one after the other: 25 %; overlapped: 62 %"),
    "pieces_in_banks": (lambda: figures.pieces_in_banks(3),
                        "Piece 3 of eight rows: 8 steps where the rows lie as they are, 1 where they are swizzled"),
    "lanes_of_products": (figures.lanes_of_products,
                          "Every lane holds the same elements of S and of P: nothing has to move"),
    "instructions_of_rungs": (lambda: figures.instructions_of_rungs(
        {"FA2 in Triton": {"multiplications": 9, "copies": 0}, "+ base 2": {"multiplications": 4, "copies": 0}}, "PTX",
                                                                    "d = 64."),
        "FA2 in Triton to + base 2: multiplications 9 → 4"),
    "sms_busy": (lambda: figures.sms_busy({"16 splits": 128, "17 splits": 136}),
                 "With 17 splits 52% of 132 SMs work on average, with 16 splits 97%"),
    "cost_of_splits": (lambda: figures.cost_of_splits([{"splits": s, "longest": -(-64 // s) * 64,
                                                        "bytes": 2000 + 10 * s} for s in (1, 2, 16)], 4096, 64),
                       "16 splits: programs 16 times as short, 7.5 % more bytes"),
    "time_of_splits": (lambda: figures.time_of_splits({1: 102, 2: 52, 3: 36, 4: 54}, 2, 100, 6, also=(4,)),
                       "3 splits are 2.8 times as fast as none"),
    "pages_drawn": (lambda: figures.pages_drawn([[2, 0], [4]], [20, 7], 16, 6),
                    "27 keys in 3 pages of 16: 56% of their room is used"),
    "bytes_of_steps": (lambda: figures.bytes_of_steps({"no window": {256: 512, 1024: 2048},
                                                       "a window": {256: 512, 1024: 512}}, "Modelled: -."),
                       "At 1,024 keys a step reads 2 KiB with no window; 512 B with a window"),
    "decode_steps": (lambda: figures.decode_steps(decode()),
                     "Flash-Decoding reads its cache at 85% of a copy's rate at B = 1, N = 65536 and 90% of a copy's "
                     "rate at B = 32, N = 65536"),
    "decode_steps: one batch": (lambda: figures.decode_steps(decode(B=(1,), skipped=("sdpa_flash",))),
                                "Flash-Decoding reads its cache at 85% of a copy's rate at B = 1, N = 65536"),
    "fp8_times": (lambda: figures.fp8_times(fp8()),
                  "FP8's kernel is 1.20 to 1.40 times as fast as bfloat16's, with quantising 0.90 to 1.25"),
    **{f"ring_parts: {options}": (lambda options=options: figures.ring_parts(ring_logs(**options), 8,
                                                                             "Measured here: made up."),
                                  "After 2 steps of 2 ranks every score has been computed once")
       for options in ({}, {"causal": False}, {"zigzag": False})},
    "ring_parts: four": (lambda: figures.ring_parts(ring_logs(R=4, n=6), 24, "Measured here: made up."),
                         "After 4 steps of 4 ranks every score has been computed once"),
    "ring_work": (lambda: figures.ring_work({"in order": [[0.5, 0], [0.5, 1]], "zig-zag": [[0.5, 0.5]] * 2},
                                            "2 ranks."),
                  "The slowest rank sets the pace: 1.3 times one GPU's speed in order, 2 times zig-zag"),
    "ring_speedup": (lambda: figures.ring_speedup(rings()), "4 GPUs are 3.60 times as fast as one at N = 65536"),
    "ring_speedup: slower": (lambda: figures.ring_speedup(rings(0.5)),
                             "4 GPUs are 2.00 times as fast as one at N = 65536"),
    "ring_memory": (lambda: figures.ring_memory(rings()),
                    "At N = 65536 each of 4 GPUs holds 0.5 GiB, one GPU alone 2.0"),
    "loss_curves": (lambda: figures.loss_curves(LOSSES, "SDPA", "Measured here."),
                    "ours and SDPA end 6e-05 apart; “D left out” ends 1.18 behind, but looks right for 10 steps"),
    "loss_curves: two": (lambda: figures.loss_curves({"SDPA": [2.0, 1.0, 0.5], "ours": [2.0, 1.0, 0.5001]}, "SDPA",
                                                     "Measured here."), "ours and SDPA end 1e-04 apart"),
    "training_memory": (lambda: figures.training_memory(
        [{"implementation": name, "N": N, "bytes": N * 10**5 + quadratic * N * N}
         for name, quadratic in (("naive", 128), ("flash_attention", 0)) for N in (1024, 2048, 4096, 8192, 16384)],
        {"8 GiB": 2**33, "24 GiB": 3 * 2**33}, "Modelled."),
        "24 GiB has room for 8,192 tokens with naive, 16,384 tokens with flash_attention"),
    "share_of_attention": (lambda: figures.share_of_attention([(2**n, 2**n / (2**n + 9000)) for n in range(10, 18)],
                                                              "Modelled."),
                           "From N = 16,384 on, attention is most of the work"),
    "parts_of_a_step": (lambda: figures.parts_of_a_step({"naive": PART | {"attention": 30.0}, "flash_attention": PART},
                                                        "Measured here."),
                        "Attention takes 67 % of a step with naive, 38 % of a step with flash_attention"),
    "time_of_a_token": (lambda: figures.time_of_a_token([{"how": how, "N": N, "ms": ms} for N in (32, 64, 128)
                                                         for how, ms in (("with a cache", 2.0), ("without", N / 8))],
                                                        "Measured here."),
                        "After 128 tokens, one more takes 16 ms without and 2 ms with a cache: 8.0 times less"),
    "training_by_context": (lambda: figures.training_by_context(contexts()),
                            "The longest context that fits, in tokens: 8,192 with naive, 8,192 with SDPA math, at "
                            "least 32,768 with flash_attention, at least 32,768 with SDPA flash"),
    "runtime_against_N": (lambda: figures.runtime_against_N(forward()),
                          "At N = 16384, FA2 in Triton takes 5.67 ms; naive attention, L included, 56.7 ms, 10 times "
                          "as long"),
    "peak_memory_against_N": (lambda: figures.peak_memory_against_N(forward()),
                              "At N = 16384, FA2 in Triton needs 65 MiB; naive attention, L included, 16.1 GiB, 250 "
                              "times as much"),
    "peak_memory_against_N: backward": (lambda: figures.peak_memory_against_N(backward()),
                                        "At N = 16384, FA2 in Triton needs 65 MiB; naive attention 16.1 GiB, 250 times "
                                        "as much"),
    "tflops": (lambda: figures.tflops(forward()),
               "FA2 in Triton reaches 388 TFLOP/s at N = 16384, 49 % of a plain matmul, 1.14 × SDPA flash"),
    "tflops: another focus": (lambda: figures.tflops(climb(), focus="fa2_tma_forward"),
                              "+ TMA reaches 400 TFLOP/s at N = 1024, 1.29 × SDPA flash"),
    "error_against_float64": (lambda: figures.error_against_float64(forward()),
                              "FA2 in Triton is off by at most 0.57 × the rms error of SDPA flash"),
    "work_against_N": (lambda: figures.work_against_N([512, 1024, 2048], 16384),
                       "At constant batch × N, 4 times the length means 4 times the FLOPs, on as many bytes"),
    "times_of_calls": (lambda: figures.times_of_calls([5.0, 1.0, 1.0, 1.2, 4.0], {"mean": 2.44, "yours": 1.2},
                                                      "Measured here."),
                       "The first call takes 4.2 times the median, the slowest 4.2 times"),
    "spread_of_runs": (lambda: figures.spread_of_runs(with_masks()),
                       "Repeated runs usually spread by 8.0 %, at most by 8 %"),
    "relative_speed": (lambda: figures.relative_speed(forward()),
                       "At N = 16384 the fastest other, SDPA cuDNN, has 1.50 × the speed of FA2 in Triton"),
    "limit_of_bytes": (lambda: figures.limit_of_bytes(limits(), PAPER),
                       "At N = 4096 its bytes allow 32 TFLOP/s to naive attention, 64 TFLOP/s if it computes O alone"),
    "time_of_a_score": (lambda: figures.time_of_a_score(with_masks(), 4e12),
                        "Of FA2 in Triton's time products and exponentials alone would take 24 % and 19 % at d = 64, "
                        "49 % and 19 % at d = 128"),
    "time_of_a_score: no rate": (lambda: figures.time_of_a_score(with_masks()),
                                 "Of FA2 in Triton's time products alone would take 24 % at d = 64, 49 % at d = 128"),
    "short_sequences": (lambda: figures.short_sequences(forward(), 0.03, "Launch: recorded."),
                        "A sequence of 512 tokens takes 11 µs of the kernel's time; to launch a kernel takes the CPU "
                        "30 µs"),
    "short_sequences: no launch": (lambda: figures.short_sequences(forward(), None, ""),
                                   "A sequence of 512 tokens takes 11 µs of the kernel's time"),
    "causal_cost": (lambda: figures.causal_cost(with_masks()),
                    "At the largest N the mask costs 23 % at d = 64 (whole tiles: 0 %), 23 % at d = 128 (whole tiles: "
                    "1 %)"),
}
