"""The pictures of chapter 07: what the rungs move, against N and against the tile size. points: as flashlab_course.sweeps makes them."""

import math

import matplotlib.pyplot as plt

from flashlab import cost
from flashlab.ladder import RUNGS, find
from flashlab_course.figures.budget import BLOCK_LIMITS
from flashlab_course.figures.style import FAINT, HALO, INK, byte_axis, color, figure, finish, label, log_axes, marker, plain_log
from flashlab_course.figures.words import bytes_text, every, group, ratio_text


@figure
def traffic_against_N(points):
    """HBM bytes against N: dots measured under Memory, dashed lines the closed forms. points: as from sweeps.over_N."""
    fig, ax, ends = _against(points, "N", "N (queries = keys, one head)")
    fitting = [p for p in points if p["measured"] is not None]
    tiled = [p for p in points if getattr(find(p["rung"]), "tiled", True)]         # what the ladder does not know: the learner's
    tiles = f", tiles of {every(tiled, 'B')} rows" if tiled else ""
    return finish(fig, _title_at_last_N(fitting),
                  f"{_how_counted(fitting, points)} float32, d = {every(points, 'd')}, "
                  f"SRAM {every(points, 'sram_bytes', bytes_text)}{tiles}{', causal' if points[0]['causal'] else ''}.",
                  ends={ax: ends})


def _how_counted(fitting, points):
    exact = all(p["measured"] == p["formula"] for p in fitting)
    crosses = "" if len(fitting) == len(points) else ", × does not fit"
    return (f"Modelled: dots counted by flashlab.memory{', equal to' if exact else '; NOT all equal to'} the formulas "
            f"(dashed){crosses}.")


def _title_at_last_N(fitting):
    """Who moves most and least at the largest N; where something moves more than naive attention, that comes first."""
    N, naive = max(p["N"] for p in fitting), RUNGS[0].name
    last = {p["rung"]: p["measured"] for p in fitting if p["N"] == N}
    moves = {name: f"{label(name)} moves {bytes_text(moved)}" for name, moved in last.items()}
    most, least = max(last, key=last.get), min(last, key=last.get)
    if len(last) == 1:
        return f"At N = {N}, {moves[most]}"
    if naive in last and most != naive:
        more = [f"{moves[name]}, {ratio_text(moved, last[naive])} times as much" for name, moved in last.items()
                if moved > last[naive]]
        return f"At N = {N}, {moves[naive]}; {'; '.join(more)}"
    without_L = last[most] - cost.logsumexp(N, N).traffic
    also = f", {ratio_text(without_L, last[least])} without L in naive" if most == naive else ""
    return (f"At N = {N}, {moves[most]}, {label(least)} {bytes_text(last[least])}: "
            f"{ratio_text(last[most], last[least])} times less{also}")


@figure
def share_of_naive(points):
    """Each rung's bytes as a share of naive attention's, with and without the logsumexp in it, against N. points: sweeps.over_N."""
    naive = {p["N"]: p["measured"] for p in points if p["rung"] == RUNGS[0].name}
    fig, ax = plt.subplots(figsize=(8, 4.6))
    ends, last = [], {}
    for name, series in group(sorted(points, key=lambda p: p["N"]), "rung").items():
        if name == RUNGS[0].name:
            continue
        fits = [p for p in series if p["measured"] is not None]
        for without, fill, words in ((0, color(name), ""), (1, "white", ", no L in naive")):
            shares = [p["measured"] / (naive[p["N"]] - without * cost.logsumexp(p["N"], p["N"]).traffic) for p in fits]
            ax.plot([p["N"] for p in fits], shares, f"-{marker(name)}", color=color(name), mfc=fill, lw=1.4)
            ends.append((fits[-1]["N"], shares[-1], f"{label(name)}: {100 * shares[-1]:.0f} %{words}", color(name)))
            last.setdefault(name, []).append(shares[-1])
    _line_of_naive(ax)
    log_axes(ax, sorted(naive), "N (queries = keys, one head)", "share of naive attention's bytes")
    ax.set(yscale="linear", ylim=(0, None))
    ax.yaxis.set_major_formatter("{x:.0%}")
    least = min(last, key=lambda name: last[name][0])
    return finish(fig, f"At N = {max(naive)}, {label(least)} moves {100 * last[least][0]:.0f} % of naive attention's bytes; "
                       f"{100 * last[least][1]:.0f} % if naive attention need not compute L",
                  "Modelled: counted by flashlab.memory. Filled: naive attention with its seven crossings of S; hollow: with the "
                  f"six that are left without logsumexp. float32, d = {every(points, 'd')}, "
                  f"SRAM {every(points, 'sram_bytes', bytes_text)}.",
                  ends={ax: ends})


def _line_of_naive(ax):
    ax.axhline(1, color=color(RUNGS[0].name), lw=1.4)
    ax.annotate("naive", (0, 1), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=9,
                fontweight="bold", color=color(RUNGS[0].name))


@figure
def break_even(points):
    """FA2's bytes as a share of naive attention's against the height of its query tiles. points: of sweeps.over_heights, any d."""
    fig, ax = plt.subplots(figsize=(8, 4.6))
    ends, pays = [], {}
    for d, series in group(sorted(points, key=lambda p: p["B"]), "d").items():
        N, heights = series[0]["N"], range(series[0]["B"], series[-1]["B"] + 1)
        moved = {B: cost.fa2_forward(N, N, d, B_r=B, B_c=B).traffic for B in heights}
        whole = series[0]["naive"]
        for naive, fill, words in ((whole, True, ""), (whole - cost.logsumexp(N, N).traffic, False, ", no L in naive")):
            ax.plot(list(moved), [b / naive for b in moved.values()], "--", color=color("fa2_forward"), lw=1.2 if fill else 0.8)
            ax.plot([p["B"] for p in series], [p["measured"] / naive for p in series], marker("fa2_forward"),
                    color=color("fa2_forward"), mfc=None if fill else "white")
            ends.append((series[-1]["B"], series[-1]["measured"] / naive, f"d = {d}{words}", color("fa2_forward")))
            pays.setdefault(d, []).append(next((B for B in heights if moved[B] < naive), None))
    _line_of_naive(ax)
    log_axes(ax, sorted({p["B"] for p in points}), "height B_r of FA2's query tiles", "share of naive attention's bytes")
    plain_log(ax.yaxis, "{:.0%}".format)
    first = ", ".join(f"{seven} at d = {d} ({six} without logsumexp in naive)" for d, (seven, six) in pays.items())
    return finish(fig, f"FA2 moves fewer bytes than naive attention from B_r = {first}",
                  f"{_how_counted(points, points)} float32, N = {every(points, 'N')}. Filled: against naive's seven crossings of "
                  "S; hollow: six.", ends={ax: ends})


@figure
def traffic_against_sram(points, limits=None):
    """HBM bytes against the size of the SRAM, each rung in tiles that fill it. points: sweeps.over_N of one N at several sizes.

    limits: budgets to mark, words -> bytes; those of a block on two GPUs if None
    """
    fig, ax, ends = _against(points, "sram_bytes", "SRAM (bytes)")
    N, d = points[0]["N"], points[0]["d"]
    byte_axis(ax.xaxis)
    along = ax.get_xaxis_transform()                                 # not heights in bytes: a prediction may widen the picture
    for nbytes, words in ((4 * d * d, "M = d²"), (4 * N * d, "M = Nd")):
        ax.axvline(nbytes, color=INK, ls="--", lw=1)
        ax.annotate(words, (nbytes, 1), (3, -2), xycoords=along, textcoords="offset points", fontsize=9, va="top",
                    path_effects=HALO)
    for n, (words, nbytes) in enumerate((BLOCK_LIMITS if limits is None else limits).items()):
        ax.axvline(nbytes, color=FAINT, lw=1, zorder=0)
        ax.annotate(f"{words}: {bytes_text(nbytes)}", (nbytes, 0), (3, 4 + 12 * n), xycoords=along, textcoords="offset points",
                    fontsize=8, path_effects=HALO)
    fa2 = sorted((p for p in points if p["rung"] == "fa2_forward"), key=lambda p: p["sram_bytes"])
    times = fa2[-1]["sram_bytes"] / fa2[0]["sram_bytes"]
    return finish(fig, f"{times:g} times the SRAM, {ratio_text(fa2[0]['measured'], fa2[-1]['measured'])} times fewer bytes in FA2",
                  f"{_how_counted([p for p in points if p['measured'] is not None], points)} float32, N = {N}, d = {d}, default "
                  f"tiles. M = d² and M = Nd: elements of 4 bytes.", ends={ax: ends})


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
