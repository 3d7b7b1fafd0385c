"""Numbers as the pictures' titles and axes say them, and rows of measurements grouped and listed."""

import math

from flashlab.memory import format_bytes


def bytes_text(n):
    return format_bytes(n).replace(".0 ", " ")


def si_text(n, unit):
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if n >= 10**power:
            return f"{n / 10**power:.3g} {prefix}{unit}"
    return f"{n:.3g} {unit}"


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
