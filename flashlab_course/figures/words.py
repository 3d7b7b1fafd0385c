"""Numbers as the pictures' titles and axes say them, and rows of measurements grouped and listed."""

import math

from flashlab.ladder import find
from flashlab.memory import format_bytes


def label(name):
    """The title of a rung or peer; a name that the ladder does not know stays as it is."""
    return one.title if (one := find(name)) else name


def bytes_text(n):
    return format_bytes(n).replace(".0 ", " ")


def power_text(x, digits=0):
    """A number as a power of ten: 10⁻⁶, 2·10⁻⁵, and with two digits 2.42·10⁻⁷."""
    factor, power = f"{x:.{digits}e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(factor):g}·10{raised}".removeprefix("1·") if x != 1 else "1"


def ratio_text(a, b):
    """a / b in two significant digits, written out: 4.3, 43, 1900."""
    x = a / b
    return f"{round(x, 1 - int(math.floor(math.log10(abs(x))))):.0f}" if x >= 10 else f"{x:.1f}"


def every(rows, key, text=str):
    """Every value that the rows hold under key, as text: '64', or '64/128'."""
    return "/".join(text(value) for value in sorted({row[key] for row in rows}))


def group(rows, key):
    """value under key -> the rows that have it."""
    groups = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def by(rows, x, y):
    """The points (row[x], row[y]) in order of x, without the rows that have no y."""
    return sorted((row[x], row[y]) for row in rows if row.get(y) is not None)


def series(rows, x, y, of="implementation"):
    """What `curves` draws of a benchmark's rows: row[of] -> {row[x]: row[y]}."""
    return {name: dict(by(part, x, y)) for name, part in group(rows, of).items()}


def mask_text(causal):
    return "causal" if causal else "no mask"


def recorded(results, live=False):
    """Where and when results of a benchmark were measured, and the version of a rival that is not PyTorch's."""
    p = results["provenance"]
    verb = "Measured here" if live else "Recorded"
    rival = any("fa4" in row.values() for row in results["rows"])
    version = f" FlashAttention-4: {p.get('flash-attn-4') or 'version not recorded'}." * rival
    return f"{verb} on {p['device']}, {p['date'][:10]}, torch {p['torch']}, triton {p['triton']}.{version}"
