"""The pictures of chapter 07: what the rungs move, against N and against the tile size. points: as flashlab.sweeps makes them."""

import math

import matplotlib.pyplot as plt

from flashlab.figures.style import byte_axis, color, figure, finish, label, log_axes, marker
from flashlab.figures.words import bytes_text, every, group, ratio_text


@figure
def traffic_against_N(points):
    """HBM bytes against N: dots measured under Memory, dashed lines the closed forms. points: as from sweeps.over_N."""
    fig, ax, ends = _against(points, "N", "N (queries = keys, one head)")
    fitting = [p for p in points if p["measured"] is not None]
    N = max(p["N"] for p in fitting)
    last = {p["rung"]: p["measured"] for p in fitting if p["N"] == N}
    most, least = max(last, key=last.get), min(last, key=last.get)
    exact = all(p["measured"] == p["formula"] for p in fitting)
    crosses = "" if fitting == points else ", × does not fit"
    return finish(fig, f"At N = {N}, {label(most)} moves {bytes_text(last[most])}, {label(least)} {bytes_text(last[least])}: "
                       f"{ratio_text(last[most], last[least])} times less",
                  f"Modelled: dots counted by flashlab.memory{', equal to' if exact else '; NOT all equal to'} the formulas "
                  f"(dashed){crosses}. float32, d = {every(points, 'd')}, SRAM {every(points, 'sram_bytes', bytes_text)}, "
                  f"tiles of {every(points, 'B')} rows{', causal' if points[0]['causal'] else ''}.", ends={ax: ends})


@figure
def traffic_against_tile(points):
    """HBM bytes against the tile size B; where the tiles overflow the SRAM, only the formula is left. points: sweeps.over_tiles."""
    fig, ax, ends = _against(points, "B", "tile size B (B_r = B_c = B rows)")
    right, first = ax.get_xlim()[1], {}
    for name, series in group(points, "rung").items():
        over, fits = ([p["B"] for p in series if (p["measured"] is None) == gone] for gone in (True, False))
        if over:
            first[name] = min(over)                            # shaded from half-way, on a log axis
            left = math.sqrt(max(fits, default=first[name] / 2) * first[name])
            ax.axvspan(left, right, color=color(name), alpha=0.09, lw=0, zorder=0)
    if first:
        ax.set_xlim(right=right)
        who = "\n".join(f"{label(name)} from B = {B}" for name, B in first.items())
        ax.annotate(f"SRAM overflow\n(budget {every(points, 'sram_bytes', bytes_text)})\n{who}", (1, 1), (-6, -4),
                    xycoords="axes fraction", textcoords="offset points", ha="right", va="top", fontsize=9)
    return finish(fig, _tile_title(points), f"Modelled: dots counted by flashlab.memory, dashed the formulas, × does not fit. "
                  f"float32, N = {every(points, 'N')}, d = {every(points, 'd')}{', causal' if points[0]['causal'] else ''}.",
                  ends={ax: ends})


def _against(points, key, xlabel):
    """A new figure with a dashed line and dots for each rung, crosses where its tiles do not fit; and the lines' ends."""
    fig, ax = plt.subplots(figsize=(8, 4.6))
    ends = []
    for name, series in group(sorted(points, key=lambda p: p[key]), "rung").items():
        fits, over = ([p for p in series if (p["measured"] is None) == gone] for gone in (False, True))
        ax.plot([p[key] for p in series], [p["formula"] for p in series], "--", color=color(name), lw=1.4)
        ax.plot([p[key] for p in fits], [p["measured"] for p in fits], marker(name), color=color(name))
        ax.plot([p[key] for p in over], [p["formula"] for p in over], "x", color=color(name), ms=8, mew=2)
        ends.append((series[-1][key], series[-1]["formula"], label(name), color(name)))
    log_axes(ax, sorted({p[key] for p in points}), xlabel, "HBM traffic (bytes)")
    byte_axis(ax.yaxis)
    return fig, ax, ends


def _tile_title(points):
    fitting = sorted((p for p in points if p["measured"] is not None), key=lambda p: p["B"])
    if not fitting:
        return "No tile size fits the SRAM"
    best = min(fitting, key=lambda p: p["measured"])
    falling = all(a["measured"] >= b["measured"] for series in group(fitting, "rung").values()
                  for a, b in zip(series, series[1:], strict=False))
    until = " until the SRAM overflows" if len(fitting) < len(points) else ""
    claim = f"Larger tiles move fewer bytes{until}" if falling else "The best tile is not the largest"
    return f"{claim}: {label(best['rung'])} gets down to {bytes_text(best['measured'])} at B = {best['B']}"
