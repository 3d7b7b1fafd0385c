"""The pictures of what was measured on a GPU: chapters 07, 11 and 16. results: a dict as flashlab_course.bench writes it.

focus: the name of the implementation that the title is about; None is the ladder's last GPU kernel among those measured.
live: whether the results were measured just now.
"""

import textwrap

import matplotlib.pyplot as plt
import torch

from flashlab.ladder import BACKWARD_RUNGS, RUNGS
from flashlab_course.figures.style import INK, byte_axis, color, figure, finish, label, log_axes, marker, plain_log
from flashlab_course.figures.words import bytes_text, every, group, ratio_text

FLASH = "sdpa_flash"       # the same algorithm in CUDA: the peer that titles compare with
# A backend of SDPA has no line in plots where another line says nearly the same: math's time is much like naive attention's, the
# memory and the error of efficient are much like those of flash.
NO_LINE = {"ms": "sdpa_math", "tflops": "sdpa_math", "peak_bytes": "sdpa_efficient", "error": "sdpa_efficient",
           "rms_error": "sdpa_efficient"}


@figure
def runtime_against_N(results, d=128, causal=False, dtype=None, focus=None, live=False):
    """Median run time against N for every implementation, with the 20th to 80th percentile shaded."""
    ax, series, focus = _against_N(results, "ms", "run time (ms)", d, causal, dtype, focus)
    for name, rows in series.items():
        ax.fill_between([r["N"] for r in rows], [r.get("ms_low", r["ms"]) for r in rows],
                        [r.get("ms_high", r["ms"]) for r in rows], color=color(name), alpha=0.2, lw=0)
    plain_log(ax.yaxis)
    title = _duel(results, series, "ms", focus, "takes", "{:.3g} ms".format, "as long")
    return _finish(ax, title, results, series, "ms", live)


@figure
def peak_memory_against_N(results, d=128, causal=False, dtype=None, focus=None, live=False):
    """Peak memory beyond the inputs, against N."""
    ylabel = "peak memory beyond Q, K, V (bytes)" if results["what"] == "forward" else "peak memory, both passes (bytes)"
    ax, series, focus = _against_N(results, "peak_bytes", ylabel, d, causal, dtype, focus)
    byte_axis(ax.yaxis)
    title = _duel(results, series, "peak_bytes", focus, "needs", bytes_text, "as much")
    return _finish(ax, title, results, series, "peak_bytes", live)


@figure
def tflops(results, d=128, causal=False, dtype=None, focus=None, live=False):
    """TFLOP/s against N for every implementation, under the measured matmul ceiling (dashed)."""
    ax, series, focus = _against_N(results, "tflops", "TFLOP/s", d, causal, dtype, focus)
    ceiling = results.get("ceilings", {}).get("matmul_tflops")
    top = max([r["tflops"] for rows in series.values() for r in rows] + [ceiling or 0])
    ax.set(yscale="linear", ylim=(0, 1.08 * top))
    if ceiling:
        ax.axhline(ceiling, ls="--", color=INK, lw=1.2)
        ax.annotate(f"a plain matmul: {ceiling:.0f} TFLOP/s", (0.01, ceiling), (0, -3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", va="top", fontsize=9)
    title = f"{label(focus)} was not measured here"
    if rows := series.get(focus):
        best = max(rows, key=lambda r: r["tflops"])
        share = f", {100 * best['tflops'] / ceiling:.0f} % of a plain matmul" if ceiling else ""
        flash = _at(series, FLASH, "tflops").get(best["N"])
        against = f", {best['tflops'] / flash:.2f} × {label(FLASH)}" if flash else ""
        title = f"{label(focus)} reaches {best['tflops']:.0f} TFLOP/s at N = {best['N']}{share}{against}"
    return _finish(ax, title, results, series, "tflops", live)


@figure
def error_against_float64(results, d=128, causal=False, dtype=None, focus=None, live=False, key="error"):
    """Error of O against float64, against N: the largest (key="error"), or the root mean square (key="rms_error")."""
    of = {"error": ("max |O − O in float64|", "error"), "rms_error": ("rms of O − O in float64", "rms error")}
    ylabel, word = of[key]
    ax, series, focus = _against_N(results, key, ylabel, d, causal, dtype, focus)
    plain_log(ax.yaxis, "{:.0e}".format)
    title = f"{label(focus)} and {label(FLASH)} were not both measured here"
    flash = _at(series, FLASH, key)
    if ratios := [error / flash[N] for N, error in _at(series, focus, key).items() if flash.get(N)]:
        title = f"{label(focus)} is off by at most {max(ratios):.2f} × the {word} of {label(FLASH)}"
    return _finish(ax, title, results, series, key, live)


@figure
def model_vs_counters(results, d=None, causal=False, B_r=128, B_c=64, without_L=None):
    """Modelled HBM traffic against a GPU's hardware counters, one panel an implementation.

    results: a dict with "what": "counters". d None: the first row's. B_r, B_c: the kernel's tiles where its row has none.
    without_L: N -> the bytes of DRAM that naive attention moves for O alone, a line of its own in its panel
    """
    d = results["rows"][0]["d"] if d is None and results["rows"] else d
    asked = [r for r in results["rows"] if r["d"] == d and r.get("causal", False) == causal]
    rows = [r | {"dram": r["dram_read"] + r["dram_written"]} for r in asked if not r.get("skipped")]
    panels = group(sorted(rows, key=lambda r: r["N"]), "implementation")
    if not panels:
        raise ValueError(f"results hold no row with counters for d = {d}, causal = {causal}; 'skipped' in a row says why")
    kernel, models = _last_kernel(results), {r.name: r for r in RUNGS}
    fig, axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels), 4.4), sharey=True, squeeze=False)
    ends = {ax: _draw_counters(ax, name, series, models.get(name, kernel), B_r, B_c)     # a peer does what the kernel does
            for ax, (name, series) in zip(axes[0], panels.items(), strict=True)}
    for ax, name in zip(axes[0], panels, strict=True):
        if without_L and name == RUNGS[0].name:
            ax.plot(*zip(*sorted(without_L.items()), strict=True), "-", color=color(name), marker=".", lw=1)
            ends[ax].append((max(without_L), without_L[max(without_L)], "DRAM, O alone", color(name)))
    axes[0, 0].set_ylabel("bytes moved")
    byte_axis(axes[0, 0].yaxis)
    title = "Modelled traffic against the GPU's counters"
    naive, ours = (_at(panels, one.name, "dram") for one in (RUNGS[0], kernel))
    if both := sorted(naive.keys() & ours.keys()):
        N = both[-1]
        title = (f"At N = {N} DRAM moves {bytes_text(naive[N])} for {RUNGS[0].title} attention, {bytes_text(ours[N])} for the "
                 f"kernel: {ratio_text(naive[N], ours[N])} times less")
        if N in (without_L or {}):
            title += f", {ratio_text(without_L[N], ours[N])} times if naive attention computes no L"
    return finish(fig, title, f"{recorded(results)} DRAM and L2: counters of ncu; {every(rows, 'dtype')}, B = {every(rows, 'B')}, "
                              f"H = {every(rows, 'H')}, d = {every(rows, 'd')}, "
                              f"{_masks(rows)}. Dashed: modelled. Where L2 is above DRAM, the cache served the rest.",
                  _missing(results, asked), ends=ends)


def _draw_counters(ax, name, series, model, B_r, B_c):
    """One implementation's bytes against N: by the cost of the rung `model`, of DRAM, of L2. Returns the lines' ends."""
    lines = [("model", "--", {}, [(r["N"], _modelled_traffic(model, r, B_r, B_c)) for r in series]),
             ("DRAM", "-", {"marker": "o"}, [(r["N"], r["dram"]) for r in series]),
             ("L2", ":", {"marker": "s", "mfc": "white"}, [(r["N"], r["l2_bytes"]) for r in series if r.get("l2_bytes")])]
    lines = [line for line in lines if line[-1]]
    for _, dashes, dots, points in lines:
        ax.plot(*zip(*points, strict=True), dashes, color=color(name), **dots)
    log_axes(ax, [r["N"] for r in series], "N", "")
    (_, modelled), (N, dram) = (points[-1] for *_, points in lines[:2])
    ax.set_title(f"{label(name)}: DRAM is {dram / modelled:.2g} × model at N = {N}", color=color(name), fontweight="bold",
                 fontsize=9)
    return [(*points[-1], text, color(name)) for text, _, _, points in lines]


def _modelled_traffic(model, row, B_r, B_c):
    sizes = model.tiles(row.get("B_r", B_r), row.get("B_c", B_c))
    one = model.cost(row["N"], row["N"], row["d"], causal=row.get("causal", False),
                     element_size=getattr(torch, row["dtype"]).itemsize, **sizes)
    return row["B"] * row["H"] * one.traffic


def _against_N(results, key, ylabel, d, causal, dtype, focus):
    """Axes in a new figure with one line an implementation; the rows it shows, as from series_of; and whom the title is about."""
    focus = focus or kernel_name(results)
    series = series_of(results, key, d, causal, dtype, focus)
    turns = on_each_other({name: _at(series, name, key) for name in series})
    _, ax = plt.subplots(figsize=(8, 4.8))
    for name, rows in series.items():
        strong, (turn, n) = name == focus, turns[name]
        ax.plot([r["N"] for r in rows], [r[key] for r in rows], marker=marker(name), color=color(name),
                lw=2.8 if strong or n > 1 else 1.5, ms=6 if strong else 5, zorder=3 if strong else 2,
                ls=(5 * turn, (5, 5 * (n - 1))) if n > 1 else "-", markevery=(turn % len(rows), n))
    rows = [r for part in series.values() for r in part]
    tokens = {r["B"] * r["N"] for r in rows}
    log_axes(ax, sorted({r["N"] for r in rows}), "N" + (f" (batch × N = {tokens.pop()})" if len(tokens) == 1 else ""), ylabel)
    return ax, series, focus


def shown(results, key=None, focus=None):
    """The implementations that plots show, in the order of the rows: of the course's kernels the first and the last measured.

    Those between stand beside each other in chapter 12. key: what a plot is of: see NO_LINE; focus: who is shown in any case
    """
    between = {rung.name for rung in _kernels(results)[1:-1]}
    names = dict.fromkeys(row["implementation"] for row in results["rows"])
    return [name for name in names if name == focus or name not in between and name != NO_LINE.get(key)]


def series_of(results, key, d, causal, dtype, focus=None):
    """implementation -> its measured rows in order of N, of those shown. dtype None: the one with most rows."""
    names = shown(results, key, focus)
    rows = [r for r in results["rows"] if r["d"] == d and r["causal"] == causal and r.get("pass", "forward") == results["what"]
            and r["implementation"] in names and not r.get("skipped") and r.get(key) is not None]
    by_dtype = group(rows, "dtype")
    dtype = dtype or max(by_dtype, key=lambda name: len(by_dtype[name]), default=None)
    if dtype not in by_dtype:
        raise ValueError(f"results hold no measured {key!r} for d = {d}, causal = {causal}, dtype = {dtype}")
    return {name: sorted(part, key=lambda r: r["N"]) for name, part in group(by_dtype[dtype], "implementation").items()}


def on_each_other(lines, closeness=0.04):
    """name -> (turn, of how many): lines that differ by less than `closeness` wherever both are, and so hide each other.

    lines: name -> {x: y}. They are drawn in dashes of alternating colour, each in its turn.
    """
    groups = []
    for name, line in lines.items():
        same = [group for group in groups if (common := line.keys() & lines[group[0]].keys())
                and all(abs(line[x] / lines[group[0]][x] - 1) < closeness for x in common)]
        same[0].append(name) if same else groups.append([name])
    return {name: (turn, len(group)) for group in groups for turn, name in enumerate(group)}


def _at(series, name, key):
    """N -> what was measured there."""
    return {r["N"]: r[key] for r in series.get(name, [])}


def _rungs(results):
    """The rungs of the pass that was measured."""
    return BACKWARD_RUNGS if results.get("what") == "backward" else RUNGS


def _kernels(results):
    """The rungs that run on a GPU and were measured, in the ladder's order; all that run on one, where none was."""
    there = {row["implementation"] for row in results["rows"] if not row.get("skipped")}
    kernels = [r for r in _rungs(results) if r.heads]
    return [r for r in kernels if r.name in there] or kernels


def _last_kernel(results):
    return _kernels(results)[-1]


def kernel_name(results):
    """The name of the implementation that a title is about, unless it is told another."""
    return _last_kernel(results).name


def first_kernel_name(results):
    """The name of the course's first kernel among those measured, the plainest one: its rows say which tiles it took."""
    return _kernels(results)[0].name


def _duel(results, series, key, focus, verb, text, comparison):
    """The title: the kernel against the first rung, at the largest N that both were measured at."""
    first = _rungs(results)[0]
    ours, theirs = (_at(series, name, key) for name in (focus, first.name))
    if not (both := sorted(ours.keys() & theirs.keys())):
        return f"{label(focus)} and {first.title} attention were not both measured here"
    N = both[-1]
    whole = ", L included," if results["what"] == "forward" else ""      # its logsumexp takes about half of its bytes
    return (f"At N = {N}, {label(focus)} {verb} {text(ours[N])}; {first.title} attention{whole} {text(theirs[N])}, "
            f"{ratio_text(theirs[N], ours[N])} times {comparison}")


def _finish(ax, title, results, series, key, live):
    rows = [r for part in series.values() for r in part]
    d, causal = rows[0]["d"], rows[0]["causal"]
    asked = [r for r in results["rows"] if (r["d"], r["causal"]) == (d, causal)]
    names = {*shown(results, key), *series}
    note = _missing(results, [r for r in asked if r["implementation"] in names])
    source = (f"{recorded(results, live)} {results['what'].capitalize()}, {every(rows, 'dtype')}, d = {d}, "
              f"H = {every(rows, 'H')}, {_masks(rows)}.")
    if any(n > 1 for _, n in on_each_other({name: _at(series, name, key) for name in series}).values()):
        source += " Dashes of two or more colours: lines that lie on each other."
    source += _left_out(dict.fromkeys(r["implementation"] for r in asked if r["implementation"] not in names))
    return finish(ax.figure, title, source, note, ends={
        ax: [(part[-1]["N"], part[-1][key], label(name), color(name)) for name, part in series.items()]})


def _left_out(names):
    """Who has been measured and has no line."""
    peers = [label(name) for name in names if name in NO_LINE.values()]
    rungs = len(names) - len(peers)
    said = [f"the {rungs} kernels between the first and the last (chapter 12)"] * bool(rungs) + peers
    return f" Not drawn: {', '.join(said)}." if said else ""


def recorded(results, live=False):
    p = results["provenance"]
    verb = "Measured here" if live else "Recorded"
    return f"{verb} on {p['device']}, {p['date'][:10]}, torch {p['torch']}, triton {p['triton']}."


def _masks(rows):
    return "/".join(sorted({"causal" if r.get("causal") else "no mask" for r in rows}))


def _missing(results, rows):
    """What was not measured and why, in words; "" where all was."""
    missing = {}
    for r in rows:
        if r.get("skipped"):
            missing.setdefault((label(r["implementation"]), textwrap.shorten(r["skipped"], 90)), []).append(r["N"])
    notes = [f"{name} at N = {', '.join(map(str, sorted(Ns)))}: {why}" for (name, why), Ns in missing.items()]
    if not results.get("complete", True):
        notes.append("what the run had not reached when it was cut off")
    return "; ".join(notes)
