"""The pictures of chapter 15, each drawn on small made-up data."""

from flashlab_course import figures

SPEEDS = {"naive": 4e4, "SDPA math": 3e4, "flash_attention": 1e5, "SDPA flash": 1e5, "SDPA cuDNN": 1.1e5}
PART = {"attention": 9.0, "projections": 5.0, "mlp": 8.0, "head": 0.5, "the rest": 1.5}


def results():
    """As `bench gpt` writes it: naive attention has no room for the longest contexts."""
    rows = []
    for n in range(6):
        N = 1024 * 2**n
        for name, speed in SPEEDS.items():
            row = {"implementation": name, "context": N, "batch": 1, "tokens_s": speed / (1 + n), "peak_bytes": 2**30 * (1 + 2**n)}
            if name in ("naive", "SDPA math"):
                row["peak_bytes"] *= 2**n
                if n > 3:
                    row |= {"tokens_s": None, "skipped": "out of memory" if n == 4 else "out of memory at a shorter one"}
            rows.append(row)
    return {"what": "gpt", "rows": rows, "provenance": {"device": "paper"}, "shape": {"layers": 12, "width": 1024}}


def pictures():
    memory = [{"implementation": name, "N": N, "bytes": N * 10**5 + quadratic * N * N}
              for name, quadratic in (("naive", 128), ("flash_attention", 0)) for N in (1024, 2048, 4096, 8192, 16384)]
    tokens = [{"how": how, "N": N, "ms": ms} for N in (32, 64, 128) for how, ms in (("with a cache", 2.0), ("without", N / 8))]
    shares = [(2**n, 2**n / (2**n + 9000)) for n in range(10, 18)]
    return {
        "training_memory": lambda: figures.training_memory(memory, {"8 GiB": 2**33, "24 GiB": 3 * 2**33}, "Modelled."),
        "share_of_attention": lambda: figures.share_of_attention(shares, "Modelled."),
        "parts_of_a_step": lambda: figures.parts_of_a_step({"naive": PART | {"attention": 30.0}, "flash_attention": PART},
                                                           "Measured here."),
        "time_of_a_token": lambda: figures.time_of_a_token(tokens, "Measured here."),
        "training_by_context": lambda: figures.training_by_context(results()),
    }
