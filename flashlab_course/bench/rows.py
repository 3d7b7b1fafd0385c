"""A row of results/*.json: its fields and their units, and the table that a terminal shows."""

from dataclasses import dataclass, field, fields

from flashlab_course.bench.problems import Problem

# These are in the file only where they are known: tiles where a rung has them, errors of gradients where there are gradients.
IF_KNOWN = ("vs_sdpa_cudnn", "vs_fa4", "B_r", "B_c", "error_dQ", "error_dK", "error_dV", "card")


@dataclass
class Row:
    """One pass of one implementation at one size, as `bench forward` and `bench backward` write it."""

    implementation: str
    pass_: str                         # "forward" or "backward"; in the file "pass", a word that Python keeps to itself
    dtype: str
    B: int
    H: int
    N: int
    d: int
    causal: bool
    share: int = 1                     # how many query heads share a key and value head
    B_r: int | None = None             # the kernel's tile of queries
    B_c: int | None = None             # and of keys
    ms: float | None = None            # median of all runs, milliseconds
    ms_low: float | None = None        # 20th percentile
    ms_high: float | None = None       # 80th percentile
    runs: int | None = None
    tflops: float | None = None        # 10^12 FLOPs a second at the median; with a mask half of the FLOPs count
    vs_sdpa_flash: float | None = None     # the median of sdpa_flash over this one's: above 1 where this one is faster
    vs_sdpa_cudnn: float | None = None     # the same against cuDNN, but the median of the ratios of each round
    vs_fa4: float | None = None        # the same against FlashAttention-4, where it is installed
    peak_bytes: int | None = None      # beyond what was held before; backward: of both passes
    error: float | None = None         # max |O − O in float64|; backward: the largest of the three below
    rms_error: float | None = None     # root mean square of the same
    skipped: str | None = None         # why there is no time; None where there is one
    error_dQ: float | None = None      # max |dQ − dQ in float64|
    error_dK: float | None = None
    error_dV: float | None = None
    card: dict | None = None           # clocks, temperature and power while the last kernel of this size ran, see timing.CARD


@dataclass
class CounterRow:
    """What the counters saw of one launch of one implementation, as `bench counters` writes it."""

    implementation: str
    N: int
    d: int
    causal: bool
    dtype: str
    B: int
    H: int
    share: int = 1
    dram_read: int | None = None       # bytes, of all kernels together
    dram_written: int | None = None    # bytes
    l2_bytes: int | None = None        # bytes that L2 served or took, reads and writes
    kernels: list = field(default_factory=list)            # in order of launch: {"name", and the three above}
    skipped: str | None = None         # why nothing was counted; None where something was
    B_r: int | None = None             # the kernel's tile of queries
    B_c: int | None = None             # and of keys


def problem_of(row):
    """The size it was measured at."""
    return Problem(*(getattr(row, name) for name in Problem._fields))


def as_json(row):
    """The row as a file keeps it."""
    known = {key: value for key, value in vars(row).items() if value is not None or key not in IF_KNOWN}
    return {key.rstrip("_"): value for key, value in known.items() if (key, value) != ("share", 1)}


def read(kind, record):
    """The Row or CounterRow of a file's record. A key that this version does not know is left out."""
    return kind(**{f.name: record[f.name.rstrip("_")] for f in fields(kind) if f.name.rstrip("_") in record})


def measured(results):
    """The records that hold a measurement, of a file with rows or with sections of rows."""
    parts = [results, *results.get("sections", {}).values()]
    return [record for part in parts for record in part.get("rows", []) if not record.get("skipped")]


def table(results):
    """The results for a terminal: TFLOP/s (× SDPA flash), or MB; a dash where a row was skipped."""
    counted = results["what"] == "counters"
    rows = [read(CounterRow if counted else Row, record) for record in results["rows"]]
    names = list(dict.fromkeys(row.implementation for row in rows))
    lines = {}
    for row in rows:
        lines.setdefault(str(problem_of(row)), {})[row.implementation] = cell(row)
    unit = "MB: DRAM read + written, L2" if counted else "TFLOP/s (x sdpa_flash, x cudnn)"
    text = [f"{unit:<32}" + "".join(f"{name:>28}" for name in names)]
    text += [f"{size:<32}" + "".join(f"{cells.get(name, ''):>28}" for name in names) for size, cells in lines.items()]
    ceiling = [f"in the same run: {results['ceilings']}"] if "ceilings" in results else []
    reasons = [f"skipped: {row.implementation}, {problem_of(row)}: {row.skipped}" for row in rows if row.skipped]
    return "\n".join(text + ceiling + reasons)


def cell(row):
    if row.skipped:
        return "-"
    if isinstance(row, CounterRow):
        return f"{row.dram_read / 1e6:.1f} + {row.dram_written / 1e6:.1f}, {row.l2_bytes / 1e6:.1f}"
    ratios = [f"{ratio:.2f}x" for ratio in (row.vs_sdpa_flash, row.vs_sdpa_cudnn) if ratio]
    return f"{row.tflops:.1f}" + (f" ({', '.join(ratios)})" if ratios else "")
