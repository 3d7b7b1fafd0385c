"""The pictures of chapter 16's second half, each drawn on small made-up data."""

from flashlab import cost
from flashlab_course import figures

EXP_RATE = 4e12


def with_masks(results, slower=1.3):
    """The results as if they had been measured at two head dimensions, with and without a mask: made up."""
    rows = []
    for row in results["rows"]:
        for d in (64, 128):
            flops = cost.attention_flops(row["B"], row["H"], row["N"], row["N"], d)
            tflops = row["tflops"] and row["tflops"] * d / 128
            plain = row | {"d": d, "tflops": tflops, "ms": tflops and flops / tflops / 1e9, "runs": 50}
            plain |= {"ms_low": tflops and 0.97 * plain["ms"], "ms_high": tflops and 1.05 * plain["ms"]}
            masked = plain | {"causal": True, "tflops": tflops and tflops / slower, "ms": tflops and plain["ms"] * slower / 2}
            if row["implementation"].startswith("fa2_triton"):
                plain |= {"B_r": 128, "B_c": 64}
                masked |= {"B_r": d, "B_c": 64}
            rows += [plain, masked]
    return results | {"rows": rows}


def points():
    return [{"name": name, "N": N, "limit": limit, "tflops": tflops} for N in (1024, 4096) for name, limit, tflops in
            (("naive_forward", 32, 25), (figures.WITHOUT_L, 64, 43 if N == 4096 else None), ("fa2_triton_forward", 800, 330))]


def all_of(results):
    """name -> a call that draws it."""
    many = with_masks(results)
    return {
        "work_against_N": lambda: figures.work_against_N([512, 1024, 2048], 16384),
        "times_of_calls": lambda: figures.times_of_calls([5.0, 1.0, 1.0, 1.2, 4.0], {"mean": 2.44, "yours": 1.2}, "Measured here."),
        "spread_of_runs": lambda: figures.spread_of_runs(many),
        "relative_speed": lambda: figures.relative_speed(results),
        "limit_of_bytes": lambda: figures.limit_of_bytes(points(), "Recorded on paper."),
        "time_of_a_score": lambda: figures.time_of_a_score(many, EXP_RATE),
        "short_sequences": lambda: figures.short_sequences(results, 0.03, "Launch: recorded."),
        "causal_cost": lambda: figures.causal_cost(many),
    }
