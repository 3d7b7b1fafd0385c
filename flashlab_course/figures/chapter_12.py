"""The pictures of chapter 12: kernels beside each other, a search over tiles, and when each unit works.

results: a dict as flashlab_course.bench writes it.
"""

from operator import itemgetter

import numpy as np

from flashlab.ladder import BACKWARD_KERNELS, KERNELS
from flashlab_course.figures.colors import CYCLE
from flashlab_course.figures.plots import bars, box, curves, matrices, panels
from flashlab_course.figures.style import bare, figure, finish
from flashlab_course.figures.words import label, mask_text, recorded
from flashlab_course.gpu.schedule import finish as end_of

SIZE = ("d", "causal", "N", "B", "H", "H_q", "H_kv", "dtype")     # where two rows agree in these, they compare
PEERS = ("sdpa_flash", "sdpa_cudnn")       # the algorithm in CUDA, and the fastest that PyTorch brings along


def rung_before(name):
    """The name of the rung before a kernel's. None for the first."""
    names = [one.name for one in (BACKWARD_KERNELS if name.endswith("backward") else KERNELS)]
    return [None, *names][names.index(name)]


def tie(a, b):
    """Is neither of two rows ahead? Their ranges, 20th to 80th percentile, overlap, or one has fewer than 3 runs."""
    few = min(row.get("runs", 3) for row in (a, b)) < 3
    return few or a["ms_low"] <= b["ms_high"] and b["ms_low"] <= a["ms_high"]


def gains(results, name, against=None):
    """(row, its speed over another's, whether the two are tied) for each size that both were measured at.

    against: the other's name, or a tuple of names, of which the fastest counts; the rung before it if None
    """
    rivals = against if isinstance(against, tuple) else (against or rung_before(name),)
    ours, theirs = {}, {}
    for row in results["rows"]:
        size = tuple(row.get(key) for key in SIZE)
        if row["ms"] and row["implementation"] == name:
            ours[size] = row
        elif row["ms"] and row["implementation"] in rivals:
            theirs[size] = min(theirs.get(size, row), row, key=itemgetter("ms"))
    return [(row, theirs[at]["ms"] / row["ms"], tie(row, theirs[at])) for at, row in ours.items() if at in theirs]


def standing(found):
    """At how many sizes of `gains` a kernel is ahead, tied and behind, in words."""
    tied = sum(tie for *_, tie in found)
    ahead = sum(gain > 1 and not tie for _, gain, tie in found)
    return f"ahead at {ahead} of {len(found)} sizes, tied at {tied}, behind at {len(found) - ahead - tied}"


@figure
def gain_of_rung(results, name, against=None, live=False):
    """A kernel's speed as a multiple of another's, against N: a line for each d and mask.

    against: the other's name; the rung before it if None
    """
    against, lines = against or rung_before(name), {}
    found = gains(results, name, against)
    if not found:
        raise ValueError(f"results hold no size at which {name!r} and {against!r} were both measured")
    for row, gain, _ in sorted(found, key=lambda one: one[0]["N"]):
        lines.setdefault(f"d = {row['d']}{', causal' * row['causal']}", {})[row["N"]] = gain
    ratios = [gain for _, gain, _ in found]
    return curves(lines, f"“{label(name)}”: {min(ratios):.2f} to {max(ratios):.2f} × the speed of “{label(against)}”, "
                  f"{standing(found)}",
                  f"{recorded(results, live)} {results['what'].capitalize()}. Tied: the ranges from the 20th to the "
                  "80th percentile overlap, or fewer than 3 runs.",
                  "N", f"times the speed of {label(against)}", log="x", ceilings={"": 1})


@figure
def kernels_beside_peers(results, d=128, N=4096, causal=False):
    """TFLOP/s of each kernel of the ladder at one size as a bar; SDPA flash and cuDNN as lines."""
    speeds = {row["implementation"]: row["tflops"] for row in results["rows"]
              if (row["d"], row["N"], row["causal"]) == (d, N, causal) and not row["skipped"]}
    kernels = [one for one in (BACKWARD_KERNELS if results["what"] == "backward" else KERNELS) if one.name in speeds]
    if not kernels:
        raise ValueError(f"results hold no measured kernel of the ladder for d = {d}, N = {N}, causal = {causal}")
    ours, peers = ({name: speeds[name] for name in names if name in speeds}
                   for names in ([one.name for one in kernels], PEERS))
    gain = {name: f"  {speed / speeds[before]:.2f} ×" if (before := rung_before(name)) in speeds else ""
            for name, speed in ours.items()}
    last = kernels[-1]
    said = "".join(f", {speeds[last.name] / speed:.2f} × {label(name)}" for name, speed in peers.items())
    return bars(ours, f"{last.title} runs at {speeds[last.name]:.0f} TFLOP/s{said}",
                f"{recorded(results)} {results['what'].capitalize()}, d = {d}, N = {N}, {mask_text(causal)}. ×: the "
                "speed as a multiple of the rung's before.", "TFLOP/s",
                walls={f"{label(name)}: {speed:.0f}" + "\n" * n: speed         # the second on a line of its own
                       for n, (name, speed) in enumerate(peers.items())},
                behind=[f"{speed:.0f}{gain[name]}" for name, speed in ours.items()])


def search_rows(results, implementation, d, N, causal):
    """Of a recorded search: the rows of one rung's kernel at one size that have a time, the fastest first."""
    size = itemgetter("implementation", "d", "N", "causal")
    rows = [row for row in results["rows"] if row["ms"] and size(row) == (implementation, d, N, causal)]
    return sorted(rows, key=itemgetter("ms"))


@figure
def times_of_tiles(rows, source):
    """The time of every choice that a search tried, a row for each tile. rows: as search_rows returns them."""
    times = {tuple(row["tiles"]): row["ms"] for row in rows}
    tiles, ways = sorted({one[:2] for one in times}), sorted({one[2:] for one in times})
    ms = np.array([[times.get((*tile, *way), np.nan) for way in ways] for tile in tiles])
    return matrices({"": (np.nanmin(ms) / ms, np.where(np.isnan(ms), "", np.char.mod("%.2f", ms)))},
                    f"Of {len(times)} choices the slowest takes {np.nanmax(ms) / np.nanmin(ms):.2f} times as long as "
                    "the fastest", f"{source} In the cells: ms; the darker, the faster. White: not tried.",
                    rows=[f"{B_r} × {B_c}" for B_r, B_c in tiles],
                    columns=[f"{warps} warps\n{stages} stage{'s' * (stages > 1)}" for warps, stages in ways])


@figure
def timelines(runs, unit, words):
    """When each unit works: a panel for each name, a row for each unit, a bar for each Span of gpu.schedule.

    unit: the one whose idle time the title is about, by the beginning of its name; words: what is modelled
    """
    heights = [0.6 + 0.4 * len({span.unit for span in spans}) for spans in runs.values()]
    last = max(map(end_of, runs.values()))
    fig, axs = panels(1, len(runs), size=(9.4, 1.4 + sum(heights)), sharex=True, height_ratios=heights)
    for ax, (name, spans) in zip(axs, runs.items(), strict=True):
        units = sorted({span.unit for span in spans})
        for span in spans:
            y = units.index(span.unit)
            box(ax, span.start, y - 0.4, span.end - span.start, 0.8, CYCLE[y % len(CYCLE)], span.name, size=8)
        ax.set(xlim=(0, 1.02 * last), ylim=(len(units) - 0.4, -0.6), title=f"{name}: {end_of(spans)} steps of time")
        ax.set_yticks(range(len(units)), units)
        bare(ax)
    axs[-1].set_xlabel("time, in steps of no particular length")
    axs[-1].xaxis.get_major_locator().set_params(integer=True)
    parts = [f"{100 * share_of(spans, unit):.0f} % ({name})" for name, spans in runs.items()]
    return finish(fig, f"The time in which “{unit}” works: {', '.join(parts)}",
                  f"Modelled: {words} The number in a bar is the iteration or tile.")


def share_of(spans, unit):
    """The share of the whole time in which at least one unit works whose name begins so."""
    covered = {t for span in spans if span.unit.startswith(unit) for t in range(span.start, span.end)}
    return len(covered) / max(1, end_of(spans))
