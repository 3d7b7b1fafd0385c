"""The pictures of chapter 12, each drawn on small data."""

from flashlab.cost import attention_flops
from flashlab_course import figures
from flashlab_course.gpu.schedule import FOUR_STEPS, iterations


def four_steps(count=3):
    return {name: iterations(FOUR_STEPS, count, overlapped=name == "overlapped") for name in ("one after the other", "overlapped")}


def climb(speeds=None, N=(1024, 2048)):
    """Results of a forward run, made up: kernels of the ladder and two peers. speeds: name -> TFLOP/s at d = 128 without a mask."""
    speeds = speeds or {"fa2_triton_forward": 300, "fa2_exp2_forward": 330, "fa2_split_forward": 329, "sdpa_flash": 310,
                        "fa2_tma_forward": 400, "fa2_persistent_forward": 360, "fa2_hopper_forward": 500, "sdpa_cudnn": 480}
    rows = []
    for name, speed in speeds.items():
        for n, d, causal in ((n, d, causal) for n in N for d in (64, 128) for causal in (False, True)):
            rate = speed * d / 128 * (0.8 if causal else 1)
            ms = attention_flops(1, 16, n, n, d, causal=causal) / rate / 1e9
            rows.append({"implementation": name, "pass": "forward", "dtype": "bfloat16", "B": 1, "H": 16, "N": n, "d": d, "ms": ms,
                         "causal": causal, "ms_low": 0.99 * ms, "ms_high": 1.01 * ms, "tflops": rate, "skipped": None})
    return {"what": "forward", "provenance": PROVENANCE, "rows": rows}


PROVENANCE = {"device": "Invented GPU", "torch": "0.0", "triton": "0.0", "date": "2000-01-01T00:00:00"}
GRID = [(B_r, B_c, warps, stages) for B_r in (64, 128) for B_c in (32, 64) for warps in (4, 8) for stages in (1, 2)]


def search():
    """A search over tiles, made up: what has 64 rows and 8 warps was not tried."""
    rows = [{"implementation": "fa2_tuned_forward", "d": 64, "N": 4096, "causal": False, "tiles": list(tiles), "ms": 1 + n / 10}
            for n, tiles in enumerate(tiles for tiles in GRID if tiles[:3:2] != (64, 8))]
    return {"what": "tune", "provenance": PROVENANCE, "rows": [*rows, rows[0] | {"causal": True, "ms": None}]}


def all_of():
    """name -> a call that draws it."""
    counts = {name: {"multiplications": n, "copies": 0} for n, name in ((9, "FA2 in Triton"), (4, "+ base 2"))}
    return {
        "timelines": lambda: figures.timelines(four_steps(), "multiply", "four steps."),
        "pieces_in_banks": figures.pieces_in_banks,
        "lanes_of_products": figures.lanes_of_products,
        "left_of_a_grid": lambda: figures.left_of_a_grid(GRID, GRID[:5], "d = 64."),
        "gain_of_rung": lambda: figures.gain_of_rung(climb(), "fa2_hopper_forward"),
        "kernels_beside_peers": lambda: figures.kernels_beside_peers(climb(), N=2048),
        "times_of_tiles": lambda: figures.times_of_tiles(search(), GRID, GRID[-1]),
        "instructions_of_rungs": lambda: figures.instructions_of_rungs(counts, "PTX", "d = 64."),
    }
