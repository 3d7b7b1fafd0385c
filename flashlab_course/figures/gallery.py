"""python -m flashlab_course.figures [OUT_DIR]: every picture there is data for, as a file."""

import json
from pathlib import Path

import torch

from flashlab.ladder import RUNGS, rung
from flashlab.memory import A100_SRAM, Memory
from flashlab.rungs.online_softmax import softmax_three_pass, softmax_two_pass
from flashlab.tiles import paper_tile_sizes
from flashlab_course import figures, sweeps
from flashlab_course.figures.budget import tile_bytes
from flashlab_course.gpu import schedule

BENCH = (figures.runtime_against_N, figures.peak_memory_against_N, figures.tflops, figures.kernels_beside_peers)
OF_RESULTS = {"forward": {draw.__name__: draw for draw in (*BENCH, figures.error_against_float64)},
              "backward": {draw.__name__: draw for draw in BENCH},
              "counters": {"counters": figures.model_vs_counters},
              "decode": {"steps": figures.decode_steps},
              "fp8": {"times": figures.fp8_times},
              "tune": {"times_of_tiles": figures.times_of_tiles},
              "ring": {"speedup": figures.ring_speedup, "memory": figures.ring_memory},
              "gpt": {"training_by_context": figures.training_by_context}}


def gallery(results_dir="results"):
    """(file name, function that draws it) of every picture: from the rungs, and from recorded results where there are any."""
    torch.manual_seed(0)

    def run(function, *tensors, **options):
        with Memory() as mem:
            function(*tensors, **options)
        return mem

    qkv = lambda N, d: [torch.randn(N, d) for _ in range(3)]
    Q, K, _ = qkv(64, 16)
    passes = {f"{count} passes": run(softmax, torch.randn(4096), B=64)
              for count, softmax in (("three", softmax_three_pass), ("two", softmax_two_pass))}
    tiled = {name: rung(name).function for name in sweeps.tiled_rungs()}
    logs = {causal: {name: run(f, *qkv(64, 16), causal=causal, B_r=16, B_c=16).log for name, f in tiled.items()}
            for causal in (False, True)}
    yield "traffic", lambda: figures.traffic_against_N(sweeps.over_N([256, 512, 1024, 2048, 4096]))
    yield "ladder", figures.ladder
    yield "tile_of_scores", lambda: figures.tile_of_scores(16, 16, 4, 4, 1, 2)
    yield "who_sees_whom", lambda: figures.who_sees_whom(8, 6)
    yield "matrix_sizes", lambda: figures.matrix_sizes([1024, 2048, 4096, 8192, 16384], 64)
    yield "gpu_drawn", figures.gpu_drawn
    yield "on_chip_sizes", figures.on_chip_sizes
    yield "sm_filled", lambda: figures.sm_filled(256, registers=128, shared=48 * 1024)
    yield "halving", lambda: figures.halving([3, 1, 4, 1, 5, 9, 2, 6])
    yield "memory_hierarchy", figures.memory_hierarchy
    yield "crossings", lambda: figures.crossings(run(RUNGS[0].function, *qkv(1024, 64)))
    yield "traffic_by_op", lambda: figures.traffic_by_op(run(RUNGS[0].function, *qkv(1024, 64)))
    yield "attention_matrices", lambda: figures.attention_matrices(1024, 1024, 64)
    yield "causal_mask", lambda: figures.causal_mask(4, 10)
    yield "softmax_passes", lambda: figures.softmax_passes({name: (mem.read, mem.written) for name, mem in passes.items()})
    yield "running_state", lambda: figures.running_state(torch.randn(24))
    yield "block_product", lambda: figures.block_product(64, 96, 80, 16, 24, 20)
    yield "star_weights", lambda: figures.star_weights((Q @ K.T)[5] / 4, 16)
    yield "attention_tiles", figures.attention_tiles
    yield "share_of_S", lambda: figures.share_of_S([32, 64, 128, 256], A100_SRAM)
    yield "tiles_in_sram", lambda: figures.tiles_in_sram({f"{B_r} × {B_c}": tile_bytes(B_r, B_c, 64) for B_r, B_c in
                                                          (paper_tile_sizes(A100_SRAM, 64), (64, 64))}, A100_SRAM)
    yield "traffic_of_state", lambda: figures.traffic_of_state(logs[False])
    yield "time_by_unit", lambda: figures.time_by_unit([64, 128], {64: 6, 128: 8})
    yield "split_among_warps", lambda: figures.split_among_warps(64, 128, 64)
    yield "tile_traversal", lambda: figures.tile_traversal(logs[False], 64, 64)
    yield "tile_traversal_causal", lambda: figures.tile_traversal(logs[True], 64, 64)
    yield "sram_occupancy", lambda: figures.sram_occupancy({name: run(f, *qkv(192, 64)) for name, f in tiled.items()})
    yield "programs_on_sms", lambda: figures.programs_on_sms(1, 16, 4096, 128)
    T = torch.arange(35).view(5, 7)
    yield "tiles_and_addresses", lambda: figures.tiles_and_addresses({"T": (T, (2, 2), (4, 4))})
    yield "address_walk", lambda: figures.address_walk({"T": T, "T.T": T.T})
    yield "float16_range", lambda: figures.float16_range({"1e-4": 1e-4, "(1e-4)²": 1e-8, "300²": 300.0**2})
    yield "traffic_against_tile", lambda: figures.traffic_against_tile(sweeps.over_tiles(1024))
    yield from _backward(run)
    yield from _schedules()
    for path in sorted(Path(results_dir).glob("*.json")):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from None
        for name, draw in OF_RESULTS.get(results.get("what"), {}).items():
            yield f"{path.stem}_{name}", lambda draw=draw, results=results: draw(results)


def _backward(run):
    """Those of chapters 08, 10 and 11 that need no kernel to be run."""
    Q, K, V, dO = (torch.randn(64, 16) for _ in range(4))
    O, L = rung("fa2_forward").function(Q, K, V)
    yield "jacobian_of_product", lambda: figures.jacobian_of_product(3, 2, 2)
    yield "softmax_jacobian", lambda: figures.softmax_jacobian(torch.randn(6))
    for name, flash in (("backward_dataflow", True), ("backward_dataflow_textbook", False)):
        yield name, lambda flash=flash: figures.backward_dataflow(4096, 64, flash=flash)
    for name in ("fa1_backward", "fa2_backward"):
        yield f"published_{name}", lambda name=name: figures.algorithm_beside_code(name)
    yield "two_passes", lambda: figures.two_passes(
        run(rung("fa2_backward_two_pass").function, Q, K, V, O, dO, L, B_r=16, B_c=16).log, 64, 64)
    yield "program_grid", lambda: figures.program_grid(2, 3, 100, 32)
    yield "tile_over_memory", lambda: figures.tile_over_memory(100, 16, 32, 3)
    yield "causal_tiles", lambda: figures.causal_tiles(
        run(rung("fa2_forward").function, Q, K, V, causal=True, B_r=16, B_c=16).log, 64, 64)
    masks = {"no mask": {}, "causal": {"causal": True}}
    yield "tile_grids", lambda: figures.tile_grids(
        {words: [(run(rung("fa2_forward").function, Q, K, V, B_r=16, B_c=16, **mask).log, 0)] for words, mask in masks.items()}, 64)
    yield "tile_on_its_side", lambda: figures.tile_on_its_side(64, 128)


def _schedules():
    """Those of chapters 12 and 13 that need no compiler."""
    loops = {name: schedule.iterations(schedule.FOUR_STEPS, 6, overlapped=name == "overlapped")
             for name in ("one after the other", "overlapped")}
    yield "timelines", lambda: figures.timelines(loops, "multiply", "load A, load B, multiply, store C; every step takes as long.")
    yield "warpgroups_in_turns", lambda: figures.timelines(
        {"in turns": schedule.alternating(5, product=2, softmax=2)}, "tensor cores", "two consumers, five products each.")
    yield "sms_busy", lambda: figures.sms_busy({"16 splits": 128, "17 splits": 136})
    yield "pages_drawn", lambda: figures.pages_drawn([[7, 2, 11], [0, 5], [9, 1, 3, 6]], [40, 17, 60], 16, 14)
    yield "pieces_in_banks", figures.pieces_in_banks
    yield "lanes_of_products", figures.lanes_of_products


def main(arguments):
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        raise SystemExit("usage: python -m flashlab_course.figures [OUT_DIR]    (default: docs)")
    folder = Path(arguments[0] if arguments else "docs")
    if not folder.is_dir():
        raise SystemExit(f"python -m flashlab_course.figures: OUT_DIR must be a folder that is there, got {str(folder)!r}")
    for name, draw in gallery():
        draw().savefig(folder / f"{name}.png", dpi=130)
        print(f"wrote {folder / name}.png")
