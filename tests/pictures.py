"""Every picture on small data, with what its title must say: tests/test_figures.py draws them.

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
from flashlab_course import figures, sweeps
from flashlab_course.gpu.schedule import FOUR_STEPS, iterations
from flashlab_course.gpu.warp_programs import consumer, producer
from flashlab_course.gpu.warps import Ring, simulate
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


def at_work():
    K, V = Ring("K", slots=2), Ring("V", slots=2)
    return simulate({"producer": producer(K, V, 4), "consumer": consumer(K, V, 4)}, unsteady=False)


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
         "fa2_tma_forward": 400, "fa2_hopper_forward": 500, "sdpa_cudnn": 480}


def climb():
    """A forward run of kernels of the ladder and two peers: TFLOP/s at d = 128 without a mask."""
    return results("forward", [timed(name, speed * d / 128 * (0.8 if causal else 1), 1, 16, N, d, causal)
                               for name, speed in CLIMB.items() for N in (1024, 2048) for d in (64, 128)
                               for causal in (False, True)])


def search():
    """Rows of a search over tiles that did not try 64 rows with 8 warps, the fastest first."""
    grid = [(B_r, B_c, warps, stages) for B_r in (64, 128) for B_c in (32, 64) for warps in (4, 8) for stages in (1, 2)]
    return [{"tiles": list(tiles), "ms": 1 + n / 10}
            for n, tiles in enumerate(one for one in grid if one[:3:2] != (64, 8))]


def ring_logs(R=2, n=4, causal=True, zigzag=True):
    """What flashlab_course.ring_check would note of a run."""
    places = torch.arange(R * n)[:, None]
    owned = [(zigzag_shard(places, r, R) if causal and zigzag else places[r * n:(r + 1) * n])[:, 0].tolist()
             for r in range(R)]
    parts = [[part(r, step, R, n, causal=causal, zigzag=zigzag) for step in range(R)] for r in range(R)]
    return [{"calls": [{"queries": owned[r][mine.rows], "keys": owned[mine.source][mine.keys], "causal": mine.causal}
                       for mine in parts[r] if mine]} for r in range(R)]


STRIDED = Layout((4, 6), (1, 4))
PLACES = np.arange(2)[:, None] + 4 * np.arange(4)
MATRIX = Touched({"X": STRIDED, "Out": STRIDED}, [Access(kind, name, (p,), PLACES + 2 * p, PLACES < 99) for p in (0, 1)
                                                 for kind, name in (("load", "X"), ("store", "Out"))])
LANES = np.arange(8).reshape(2, 4)
VECTOR = Touched({"X": Layout((6,), (1,))}, [Access("load", "X", (p,), LANES[p], LANES[p] < 6) for p in (0, 1)])
T = torch.arange(35).view(5, 7)
COMPILED = [{"name": "64 × 128, 8 warps", "registers": 253, "spills": 0, "shared": 100 * KiB, "limit": 227 * KiB},
            {"name": "32 × 128, 4 warps", "registers": 255, "spills": 1244, "shared": 80 * KiB, "limit": 227 * KiB}]
ROOFLINE = [{"op": "add", "flops": 1, "bytes": 12, "tflops": 0.2},
            {"op": "one", "flops": 60, "bytes": 1, "tflops": 100},
            {"op": "two", "flops": 61, "bytes": 1, "tflops": 101}, {"op": "matmul", "flops": 1000, "bytes": 1},
            {"op": "naive, N = 64", "rung": "naive_forward", "flops": 10, "bytes": 1, "tflops": 20},
            {"op": "FA2 (Triton)", "flops": 1000, "bytes": 1, "tflops": 300}]


def four_steps(count=3):
    return {name: iterations(FOUR_STEPS, count, overlapped=name == "overlapped")
            for name in ("one after the other", "overlapped")}


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


# name, and after a colon the variant -> (a call that draws it, what its title must say)
CALLS = {
    "ladder": (figures.ladder, f"{len(RUNGS)} ways to compute the same attention"),
    "block_product": (lambda: figures.block_product(7, 5, 9, 3, 2, 4, (2, 1)),
                      "Tile (2, 1) of C needs row 2 of A's tiles, column 1 of B's"),
    "curves": (lambda: figures.curves({"fa2_forward": {1: 10, 2: 20}, "yours": {1: 12, 2: 21}}, "Two lines", PAPER, "N",
                                      "bytes", log="xy", byte="y", dashed={"fa2_forward": {1: 10, 2: 20, 4: 40}},
                                      ceilings={"a ceiling": 60}, walls={"a wall": 3}), "Two lines"),
    "curves: names at one place": (lambda: figures.curves({f"line {n}": {0: n, 1: 5 + n / 100} for n in range(6)},
                                                          "Six names", PAPER, "x", "y"), "Six names"),
    "bars": (lambda: figures.bars({"a": 1.0, "b": 300.0}, "b takes 300 times as long", PAPER, "ms", log=True,
                                  worse=("b",)), "b takes 300 times as long"),
    "bars: in parts": (lambda: figures.bars({"a": {"read": 2**20, "written": 2**10}, "b": {"read": 2**19}},
                                            "a moves more", PAPER, "bytes", byte=True, walls={"a budget": 2**21}),
                       "a moves more"),
    "matrices": (lambda: figures.matrices({"numbers": [[1, -2], [math.nan, 0]], "a mask": torch.eye(3).bool(),
                                           "texts": ([[0.5, 1]], [["a", "b"]])}, "Three matrices", PAPER, "x", "y"),
                 "Three matrices"),
    "traffic_by_op": (lambda: figures.traffic_by_op(measure(naive_forward, *qkv(64))), "112 KiB in 4 kernels"),
    "blocks_that_fit": (lambda: figures.blocks_that_fit(256, 128, 48 * KiB),
                        "room for 2 blocks of 256 threads, 25% of all it could hold: the limit is registers"),
    "roofline": (lambda: figures.roofline(ROOFLINE, 3, 600, PAPER),
                 "Below 200 FLOPs a byte memory is the limit: so for 4 of these 6 operations"),
    "tile_traversal": (lambda: figures.tile_traversal(logs(), 64, 64),
                       "FA1 moves 60.2 KiB in 16 steps, FA2 moves 40.2 KiB in 16 steps"),
    "causal_tiles": (lambda: figures.causal_tiles(
        [event for event in two_pass_log(causal=True) if event.kernel == "fa2_backward_dkdv"], 64, 96),
        "Key block 0 meets 4 query blocks; key block 2 meets 2, and starts at query block 2"),
    "tile_grids": (lambda: figures.tile_grids({
        "one text": [(logs("fa2_forward", N_q=96, N_k=96, causal=True)["fa2_forward"], 0)],
        "two texts": [(logs("fa2_forward", N_q=n, N_k=n, causal=True)["fa2_forward"], start)
                      for n, start in ((48, 0), (32, 48))]}, 96),
        "21 for one text, 9 for two texts"),
    "traffic_by_tensor": (lambda: figures.traffic_by_tensor(logs()),
                          "O, l, m: 60 % of the traffic in FA1, 10 % of the traffic in FA2"),
    "programs_on_sms": (lambda: figures.programs_on_sms({"FA1": (16, 32), "FA2": 512}, 108),
                        "108 SMs are busy 15% with FA1, 95% with FA2"),
    "split_among_warps": (lambda: figures.split_among_warps(64, 128, 64), "49.5 KiB pass between 4 warps"),
    "traffic_against": (lambda: figures.traffic_against(sweeps.over_N([32, 64, 128], d=16)),
                        "HBM bytes at N = 128: naive 416 KiB, FA1 77.5 KiB, FA2 48.5 KiB"),
    "model_vs_counters": (lambda: figures.model_vs_counters(counters()),
                          "36 GiB for naive attention, 128 MiB for the kernel: 290 times less"),
    "backward_dataflow": (lambda: figures.backward_dataflow(4096, 64), "and L: 4 MiB. One N × N matrix has 64 MiB"),
    "backward_dataflow: textbook": (lambda: figures.backward_dataflow(4096, 64, flash=False), "are 64 MiB each"),
    "vector_accesses": (lambda: figures.vector_accesses({"wanted": VECTOR, "yours": Touched(problem="it broke")}),
                        "the masks hold back 2 addresses, none lie outside the tensors"),
    "matrix_accesses": (lambda: figures.matrix_accesses({"wanted": MATRIX, "absent": None}),
                        "Out: 8 of 24 elements never stored, 0 stored by several programs; the masks hold back 0"),
    "times_touched": (lambda: figures.times_touched({"wanted": MATRIX}), "wanted: X 0 to 1×, Out 0 to 1×"),
    "tile_addresses": (lambda: figures.tile_addresses({"T": (T, (2, 2), (4, 4)), "T.T": (T.T, (0, 2), (1, 3))}),
                       "T: 2 of 8 places stick out, 2 at another element's address; T.T: the tile lies at 7, 14, 21"),
    "compiled_kernels": (lambda: figures.compiled_kernels(COMPILED), "1 of 2 kernels spills registers"),
    "compiled_kernels: none spills": (lambda: figures.compiled_kernels(COMPILED[:1]), "None of 1 kernels spills"),
    **{f"gain_of_rung: {name}": (lambda name=name: figures.gain_of_rung(climb(), f"fa2_{name}_forward"), words)
       for name, words in (("hopper", "1.25 to 1.25 × the speed of “+ TMA”, ahead at 8 of 8 sizes, tied at 0"),
                           ("split", "1.00 to 1.00 × the speed of “+ base 2”, ahead at 0 of 8 sizes, tied at 8"))},
    "speeds_beside": (lambda: figures.speeds_beside(climb(), {"fa2_tma_forward": "TMA", "fa2_split_forward": None},
                                                    "sdpa_cudnn"),
                      "Against “SDPA cuDNN” on average: from 0.69 × (“+ split loop”) to 0.83 × (“TMA”)"),
    "speeds_beside: one": (lambda: figures.speeds_beside(climb(), {"fa2_split_forward": None}, "sdpa_cudnn"),
                           "“+ split loop” against “SDPA cuDNN”: ahead at 0 of 8 sizes, tied at 0, behind at 8"),
    "warps_at_work": (lambda: figures.warps_at_work({"ring": at_work()}, "four blocks."),
                      "The time in which tensor cores work: 53 % (ring)"),
    "holders": (figures.holders, "Thread 0 of a warp holds 8 of these 256 numbers, in two rows"),
    "kernels_beside_peers": (lambda: figures.kernels_beside_peers(climb(), N=2048),
                             "500 TFLOP/s, 1.61 × SDPA flash, 1.04 × SDPA cuDNN"),
    "times_of_tiles": (lambda: figures.times_of_tiles(search(), PAPER),
                       "Of 12 choices the slowest takes 2.10 times as long as the fastest"),
    "timelines": (lambda: figures.timelines(four_steps(5), "multiply", "four steps."),
                  "“multiply” works: 25 % (one after the other), 62 % (overlapped)"),
    "benchmark": (lambda: figures.benchmark(forward(), "ms"),
                  "FA2 in Triton: 5.67 ms; naive 56.7 ms, 10 times; SDPA flash 6.47 ms, 1.1 times"),
    "benchmark: memory": (lambda: figures.benchmark(backward(), "peak_bytes"),
                          "FA2 in Triton: 65 MiB; naive 16.1 GiB, 250 times; SDPA flash 65 MiB, 1.00 times"),
    "benchmark: rate": (lambda: figures.benchmark(climb(), "tflops", focus="fa2_tma_forward"),
                        "At N = 2048, + TMA: 400 TFLOP/s; SDPA flash 310 TFLOP/s, 0.78 times"),
    "relative_speed": (lambda: figures.relative_speed(forward()),
                       "At N = 16384 the fastest other, SDPA cuDNN, has 1.50 × the speed of FA2 in Triton"),
    "causal_cost": (lambda: figures.causal_cost(with_masks()),
                    "the mask costs 23 % of the TFLOP/s, whole tiles explain 1 %"),
}
