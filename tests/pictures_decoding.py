"""The pictures of chapter 13, each drawn on small data."""

from flashlab_course import figures

RATES = {"decode": 3.6, "decode, paged": 3.5, "sdpa_flash": 0.9, "fa2_hopper_forward": 0.5}     # TB/s, made up
PROVENANCE = {"device": "Invented GPU", "torch": "0.0", "triton": "0.0", "date": "2000-01-01T00:00:00"}


def decode(B=(1, 4, 32), skipped=()):
    """Results of bench decode, made up. skipped: implementations without a time."""
    rows = []
    for name, rate in RATES.items():
        for batch in B:
            for N in (1024, 4096, 16384, 65536):
                row = {"implementation": name, "B": batch, "H_q": 32, "H_kv": 4, "N": N, "d": 128, "ms": None}
                found = rate * N / (N + 4000 / batch)
                seen = {"ms": 1, "tb_s": found, "copy_tb_s": 4, "of_copy": found / 4}
                rows.append(row | ({"skipped": "too large"} if name in skipped else seen))
    return {"what": "decode", "page_size": 64, "provenance": PROVENANCE, "rows": rows}


SPEEDS = {(4096, False): (1.2, 1.05), (4096, True): (1.3, 0.9), (16384, True): (1.4, 1.25)}     # alone, with quantising: made up


def fp8(without=()):
    """Results of bench fp8, made up. without: implementations that have no time."""
    rows = []
    for (N, causal), (kernel, whole) in SPEEDS.items():
        size = {"N": N, "d": 128, "causal": causal, "B": 16384 // N, "H": 16}
        speeds = {"sdpa_cudnn": 0.9, "fa2_hopper_forward": 1.0, "fp8 kernel": kernel, "fp8 quantising": 6.0}
        for name, speed in (speeds | {"flash_attention_fp8": whole}).items():
            found = {"skipped": "refused"} if name in without else {"ms": 1 / speed, "vs_fa2_hopper_forward": speed}
            rows.append(size | {"implementation": name} | found)
    return {"what": "fp8", "provenance": PROVENANCE, "rows": rows}


def all_of():
    """name -> a call that draws it."""
    points = [{"splits": s, "longest": -(-64 // s) * 64, "bytes": 2000 + 10 * s} for s in (1, 2, 16)]
    return {
        "sms_busy": lambda: figures.sms_busy({"16 splits": 128, "17 splits": 136}),
        "cost_of_splits": lambda: figures.cost_of_splits(points, 4096, 64),
        "time_of_splits": lambda: figures.time_of_splits({1: 102, 2: 52, 3: 36, 4: 54}, 2, 100, 6, also=(4,)),
        "pages_drawn": lambda: figures.pages_drawn([[2, 0], [4]], [20, 7], 16, 6),
        "bytes_of_steps": lambda: figures.bytes_of_steps({"no window": {256: 512, 1024: 2048}, "a window": {256: 512, 1024: 512}},
                                                         "Modelled: -."),
        "decode_steps": lambda: figures.decode_steps(decode()),
        "fp8_times": lambda: figures.fp8_times(fp8()),
    }
