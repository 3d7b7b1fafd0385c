"""python -m flashlab.figures [OUT_DIR]: every picture there is data for, as a file."""

import json
from pathlib import Path

import torch

from flashlab import figures, sweeps
from flashlab.ladder import RUNGS, rung
from flashlab.memory import Memory
from flashlab.oracle import attention
from flashlab.rungs.block_matmul import softmax_star_attention
from flashlab.rungs.online_softmax import softmax_three_pass, softmax_two_pass

BENCH = (figures.runtime_against_N, figures.peak_memory_against_N, figures.tflops)
OF_RESULTS = {"forward": {draw.__name__: draw for draw in (*BENCH, figures.error_against_float64)},
              "backward": {draw.__name__: draw for draw in BENCH},
              "counters": {"counters": figures.model_vs_counters}}


def gallery(results_dir="results"):
    """(file name, function that draws it) of every picture: from the rungs, and from recorded results where there are any."""
    torch.manual_seed(0)

    def run(function, *tensors, **options):
        with Memory() as mem:
            function(*tensors, **options)
        return mem

    qkv = lambda N, d: [torch.randn(N, d) for _ in range(3)]
    Q, K, V = qkv(64, 16)
    passes = {f"{count} passes": run(softmax, torch.randn(4096), B=64)
              for count, softmax in (("three", softmax_three_pass), ("two", softmax_two_pass))}
    tiled = {name: rung(name).function for name in sweeps.tiled_rungs()}
    logs = {causal: {name: run(f, *qkv(64, 16), causal=causal, B_r=16, B_c=16).log for name, f in tiled.items()}
            for causal in (False, True)}
    yield "traffic", lambda: figures.traffic_against_N(sweeps.over_N([256, 512, 1024, 2048, 4096]))
    yield "memory_hierarchy", figures.memory_hierarchy
    yield "traffic_by_op", lambda: figures.traffic_by_op(run(RUNGS[0].function, *qkv(1024, 64)))
    yield "attention_matrices", lambda: figures.attention_matrices(1024, 1024, 64)
    yield "causal_mask", lambda: figures.causal_mask(4, 10)
    yield "softmax_passes", lambda: figures.softmax_passes({name: (mem.read, mem.written) for name, mem in passes.items()})
    yield "running_state", lambda: figures.running_state(torch.randn(24))
    yield "block_product", lambda: figures.block_product(64, 96, 80, 16, 24, 20)
    yield "softmax_star_error", lambda: figures.softmax_star_error(softmax_star_attention(Q, K, V, B_r=16, B_c=16),
                                                                   attention(Q, K, V, scale=1)[0])
    yield "tile_traversal", lambda: figures.tile_traversal(logs[False], 64, 64)
    yield "tile_traversal_causal", lambda: figures.tile_traversal(logs[True], 64, 64)
    yield "sram_occupancy", lambda: figures.sram_occupancy({name: run(f, *qkv(192, 64)) for name, f in tiled.items()})
    yield "programs_on_sms", lambda: figures.programs_on_sms(1, 16, 4096, 128)
    yield "traffic_against_tile", lambda: figures.traffic_against_tile(sweeps.over_tiles(1024))
    for path in sorted(Path(results_dir).glob("*.json")):
        results = json.loads(path.read_text())
        for name, draw in OF_RESULTS.get(results.get("what"), {}).items():
            yield f"{path.stem}_{name}", lambda draw=draw, results=results: draw(results)


def main(arguments):
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        raise SystemExit("usage: python -m flashlab.figures [OUT_DIR]    (default: docs)")
    folder = Path(arguments[0] if arguments else "docs")
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in gallery():
        draw().savefig(folder / f"{name}.png", dpi=130)
        print(f"wrote {folder / name}.png")
