"""The pictures of chapters 11 and 16: times, rates, memory and errors that were measured on a GPU.

results: a dict as flashlab_course.bench writes it; live: whether they were measured just now
focus: the name of the implementation that the title is about; None is the ladder's last GPU kernel among those measured
"""

from flashlab.ladder import BACKWARD_RUNGS, RUNGS
from flashlab_course.figures.chapter_07 import kernels_measured, missing
from flashlab_course.figures.colors import color, marker
from flashlab_course.figures.plots import axes, ceiling, panel, plot
from flashlab_course.figures.style import figure, finish, plain_log
from flashlab_course.figures.words import by, bytes_text, every, group, label, mask_text, ratio_text, recorded

FLASH = "sdpa_flash"           # the same algorithm in CUDA: the peer that titles compare with
# A backend of SDPA has no line in plots where another line says nearly the same: math's time is much like naive
# attention's, the memory and the error of efficient are much like those of flash.
NO_LINE = {"ms": "sdpa_math", "tflops": "sdpa_math", "peak_bytes": "sdpa_efficient", "rms_error": "sdpa_efficient"}
WITHOUT_L = "naive, O alone"   # the name of naive attention's rows where it computes no logsumexp
SLOW = 3                       # a bar of more than this many times the fastest is left out: it would squash the others
FEW = 10                       # runs: a percentile of fewer means little


def kernel_name(results):
    """The name of the implementation that a title is about, unless it is told another."""
    return kernels_measured(results)[-1].name


def first_kernel_name(results):
    """The name of the course's first kernel among those measured, the plainest one."""
    return kernels_measured(results)[0].name


def shown(results, key=None, focus=None):
    """The implementations that plots show: of the course's kernels only the first and the last that were measured.

    Those between stand beside each other in chapter 12. key: what a plot is of: see NO_LINE; focus: who is shown in any
    case
    """
    between = {rung.name for rung in kernels_measured(results)[1:-1]}
    names = dict.fromkeys(row["implementation"] for row in results["rows"])
    return [name for name in names if name == focus or name not in between and name != NO_LINE.get(key)]


def series_of(results, key, d, causal, focus=None):
    """implementation -> its measured rows in order of N, of those shown, in the dtype with most rows."""
    names = shown(results, key, focus)
    rows = [r for r in results["rows"] if r["d"] == d and r["causal"] == causal
            and r.get("pass", "forward") == results["what"]
            and r["implementation"] in names and not r.get("skipped") and r.get(key) is not None]
    if not rows:
        raise ValueError(f"results hold no measured {key!r} for d = {d}, causal = {causal}")
    most = max(group(rows, "dtype").values(), key=len)
    return group(sorted(most, key=lambda row: (names.index(row["implementation"]), row["N"])), "implementation")


def on_each_other(lines, closeness=0.04):
    """name -> (turn, of how many): lines that differ by less than `closeness` throughout, and so hide each other.

    lines: name -> {x: y}. They are drawn in dashes of alternating colour, each in its turn.
    """
    groups = []
    for name, line in lines.items():
        same = [group for group in groups if (common := line.keys() & lines[group[0]].keys())
                and all(abs(line[x] / lines[group[0]][x] - 1) < closeness for x in common)]
        same[0].append(name) if same else groups.append([name])
    return {name: (turn, len(group)) for group in groups for turn, name in enumerate(group)}


def against_N(results, key, ylabel, d, causal, focus, byte="", log="xy"):
    """A new figure with one line an implementation; and its rows, as from series_of."""
    series = series_of(results, key, d, causal, focus)
    turns = on_each_other({name: dict(by(rows, "N", key)) for name, rows in series.items()})
    fig, ax = panel(8, 4.8)
    for name, rows in series.items():
        strong, (turn, n) = name == focus, turns[name]
        plot(ax, label(name), by(rows, "N", key), color(name), marker(name), lw=2.8 if strong or n > 1 else 1.5,
             ms=6 if strong else 5, zorder=3 if strong else 2, ls=(5 * turn, (5, 5 * (n - 1))) if n > 1 else "-",
             markevery=(turn % len(rows), n))
    rows = [row for part in series.values() for row in part]
    tokens = {row["B"] * row["N"] for row in rows}
    axes(ax, "N" + (f" (batch × N = {tokens.pop()})" if len(tokens) == 1 else ""), ylabel, log=log, byte=byte,
         ticks=sorted({row["N"] for row in rows}))
    return fig, ax, series


def source_of(results, series, key, live):
    """The line at the bottom: where and what was measured, which lines hide each other, and who has none."""
    rows = [row for part in series.values() for row in part]
    d, causal = rows[0]["d"], rows[0]["causal"]
    asked = [row for row in results["rows"] if (row["d"], row["causal"]) == (d, causal)]
    drawn = {*shown(results, key), *series}
    turns = on_each_other({name: dict(by(part, "N", key)) for name, part in series.items()})
    twins = " Dashes of two or more colours: lines that lie on each other." * any(n > 1 for _, n in turns.values())
    absent = [name for name in dict.fromkeys(row["implementation"] for row in asked) if name not in drawn]
    peers = [label(name) for name in absent if name in NO_LINE.values()]
    between = len(absent) - len(peers)
    absent = [f"the {between} kernels between the first and the last (chapter 12)"] * bool(between) + peers
    without = f" Not drawn: {', '.join(absent)}." if absent else ""
    return (f"{recorded(results, live)} {results['what'].capitalize()}, {every(rows, 'dtype')}, d = {d}, H = "
            f"{every(rows, 'H')}, {mask_text(causal)}.{twins}{without}"
            + missing(results, [row for row in asked if row["implementation"] in drawn]))


def duel(results, series, key, focus, sentence, text):
    """The kernel against the first rung, at the largest N that both were measured at.

    sentence: with {N}, {name}, {ours}, {naive}, {theirs} and {ratio} to fill in
    """
    first = (BACKWARD_RUNGS if results["what"] == "backward" else RUNGS)[0]
    ours, theirs = (dict(by(series.get(name, []), "N", key)) for name in (focus, first.name))
    if (N := max(ours.keys() & theirs.keys(), default=None)) is None:
        return f"{label(focus)} and {first.title} attention were not both measured here"
    whole = ", L included," if results["what"] == "forward" else ""      # its logsumexp takes about half of its bytes
    return sentence.format(N=N, name=label(focus), ours=text(ours[N]), naive=f"{first.title} attention{whole}",
                           theirs=text(theirs[N]), ratio=ratio_text(theirs[N], ours[N]))


@figure
def runtime_against_N(results, d=128, causal=False, focus=None, live=False):
    """Median run time against N for every implementation, with the 20th to 80th percentile shaded."""
    focus = focus or kernel_name(results)
    fig, ax, series = against_N(results, "ms", "run time (ms)", d, causal, focus)
    for name, rows in series.items():
        low, high = ([row.get(key, row["ms"]) for row in rows] for key in ("ms_low", "ms_high"))
        ax.fill_between([row["N"] for row in rows], low, high, color=color(name), alpha=0.2, lw=0)
    title = duel(results, series, "ms", focus,
                 "At N = {N}, {name} takes {ours}; {naive} {theirs}, {ratio} times as long", "{:.3g} ms".format)
    return finish(fig, title, source_of(results, series, "ms", live))


@figure
def peak_memory_against_N(results, d=128, causal=False, focus=None, live=False):
    """Peak memory beyond the inputs, against N."""
    focus = focus or kernel_name(results)
    ylabel = f"peak memory{' beyond Q, K, V' if results['what'] == 'forward' else ', both passes'} (bytes)"
    fig, _, series = against_N(results, "peak_bytes", ylabel, d, causal, focus, byte="y")
    title = duel(results, series, "peak_bytes", focus,
                 "At N = {N}, {name} needs {ours}; {naive} {theirs}, {ratio} times as much", bytes_text)
    return finish(fig, title, source_of(results, series, "peak_bytes", live))


@figure
def tflops(results, d=128, causal=False, focus=None, live=False):
    """TFLOP/s against N for every implementation, under the measured matmul ceiling (dashed)."""
    focus = focus or kernel_name(results)
    fig, ax, series = against_N(results, "tflops", "TFLOP/s", d, causal, focus, log="x")
    top = results.get("ceilings", {}).get("matmul_tflops")
    most = max(row["tflops"] for rows in series.values() for row in rows)
    ax.set_ylim(0, 1.08 * max(most, top or 0))
    if top:
        ceiling(ax, f"a plain matmul: {top:.0f} TFLOP/s", top)
    title = f"{label(focus)} was not measured here"
    if rows := series.get(focus):
        best = max(rows, key=lambda row: row["tflops"])
        flash = dict(by(series.get(FLASH, []), "N", "tflops")).get(best["N"])
        title = (f"{label(focus)} reaches {best['tflops']:.0f} TFLOP/s at N = {best['N']}"
                 + (f", {100 * best['tflops'] / top:.0f} % of a plain matmul" if top else "")
                 + (f", {best['tflops'] / flash:.2f} × {label(FLASH)}" if flash else ""))
    return finish(fig, title, source_of(results, series, "tflops", live))


@figure
def error_against_float64(results, d=128, causal=False, live=False):
    """Root mean square error of O against float64, against N."""
    focus = kernel_name(results)
    fig, ax, series = against_N(results, "rms_error", "rms of O − O in float64", d, causal, focus)
    plain_log(ax.yaxis, "{:.0e}".format)
    ours, flash = (dict(by(series.get(name, []), "N", "rms_error")) for name in (focus, FLASH))
    ratios = [ours[N] / flash[N] for N in ours if flash.get(N)]
    title = f"{label(focus)} and {label(FLASH)} were not both measured here"
    if ratios:
        title = f"{label(focus)} is off by at most {max(ratios):.2f} × the rms error of {label(FLASH)}"
    return finish(fig, title, source_of(results, series, "rms_error", live))
