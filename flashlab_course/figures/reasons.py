"""The pictures of chapter 16 that look behind a time: how far it scatters, which ceiling it is under, what it is spent on.

results, focus, live: as in flashlab_course.figures.benchmarks.
"""

import matplotlib.pyplot as plt

from flashlab import cost
from flashlab.ladder import RUNGS
from flashlab_course.figures.benchmarks import first_kernel_name, kernel_name, recorded, series_of
from flashlab_course.figures.style import HALO, INK, READ, YOURS, color, figure, finish, label, log_axes, marker, plain_log
from flashlab_course.figures.words import group

EXP = "#D55E00"
WITHOUT_L = "naive, O alone"   # the name of naive attention's rows where it computes no logsumexp
SLOW = 3                       # what takes more than this many times the fastest is left out where it would squash the others
FEW = 10                       # runs: a percentile of fewer means little


@figure
def work_against_N(Ns, tokens, d=128, heads=16):
    """FLOPs and input bytes of attention at constant B·N = tokens, and the FLOPs of one sequence: as multiples of the first N's."""
    batches = [tokens // N for N in Ns]
    lines = {"FLOPs": ("-", INK, [cost.attention_flops(B, heads, N, N, d) for B, N in zip(batches, Ns, strict=True)]),
             "bytes of Q, K, V, O": ("-", READ, [4 * B * heads * N * d * 2 for B, N in zip(batches, Ns, strict=True)]),
             "FLOPs of one sequence": ("--", INK, [cost.attention_flops(1, heads, N, N, d) for N in Ns])}
    fig, ax = plt.subplots(figsize=(8, 4.2))
    for dashes, colour, ys in lines.values():
        ax.plot(Ns, [y / ys[0] for y in ys], dashes, marker="o", color=colour)
    log_axes(ax, Ns, f"N (batch × N = {tokens}; dashed: batch 1)", f"times as much as at N = {Ns[0]}")
    plain_log(ax.yaxis)
    factor = Ns[-1] // Ns[0]
    return finish(fig, f"At constant batch × N, {factor} times the length means {factor} times the FLOPs, on as many bytes",
                  f"Modelled: 4·B·H·N²·d FLOPs without a mask, 2·B·H·N·d bytes in each tensor; H = {heads}, d = {d}.",
                  ends={ax: [(Ns[-1], ys[-1] / ys[0], name, colour) for name, (_, colour, ys) in lines.items()]})


@figure
def times_of_calls(ms, marks, words):
    """The time of one call after the other. marks: name -> a number of ms that somebody might report, drawn across."""
    fig, ax = plt.subplots(figsize=(8, 4))
    ax.plot(range(1, len(ms) + 1), ms, ".", color=READ, ms=4)
    right, ends = 1.2 * len(ms), []
    for name, value in marks.items():
        colour = YOURS if name.startswith("yours") else INK
        ax.axhline(value, ls="--", color=colour, lw=1.2)
        ends.append((right, value, name, colour))
    ax.set(xscale="log", yscale="log", xlabel="call", ylabel="ms", xlim=(0.9, right))
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
    median = sorted(ms)[len(ms) // 2]
    title = f"The first call takes {ms[0] / median:.1f} times the median, the slowest {max(ms) / median:.1f} times"
    return finish(fig, title, words, ends={ax: ends})


@figure
def spread_of_runs(results, live=False):
    """How far the 20th and the 80th percentile of each row's runs lie apart, against its time."""
    rows = [row for row in results["rows"] if row.get("ms")]
    spread = lambda row: 100 * (row["ms_high"] - row["ms_low"]) / row["ms"]
    fig, ax = plt.subplots(figsize=(8, 4.2))
    for row in rows:
        name = row["implementation"]
        ax.plot(row["ms"], spread(row), marker(name), color=color(name), mfc="white" if row["runs"] < FEW else color(name))
    ax.set(xscale="log", xlabel="median run time (ms)", ylabel="80th − 20th percentile (%)", ylim=(0, None))
    plain_log(ax.xaxis)
    ax.grid(axis="y")
    worst, spreads = max(rows, key=spread), sorted(map(spread, rows))
    name = worst["implementation"]
    ax.annotate(f"{label(name)}, N = {worst['N']}", (worst["ms"], spread(worst)), (-8, 0), textcoords="offset points", ha="right",
                va="center", fontsize=9, color=color(name), path_effects=HALO)
    return finish(fig, f"Repeated runs usually spread by {spreads[len(rows) // 2]:.1f} %, at most by {spreads[-1]:.0f} %",
                  f"{recorded(results, live)} {len(rows)} rows; colours as in the plots below. Hollow: fewer than {FEW} runs.")


@figure
def relative_speed(results, d=128, causal=False, focus=None, live=False):
    """Each other's speed as a multiple of the kernel's, against N. Hollow: the ranges of the two overlap."""
    focus = focus or kernel_name(results)
    series = series_of(results, "ms", d, causal, None, focus)
    ours = {row["N"]: row for row in series.pop(focus, [])}
    fig, ax = plt.subplots(figsize=(8, 4.4))
    ends, last = [], {}
    for name, rows in series.items():
        rows = [row for row in rows if row["N"] in ours]
        ratios = [ours[row["N"]]["ms"] / row["ms"] for row in rows]
        ax.plot([row["N"] for row in rows], ratios, color=color(name))
        for row, ratio in zip(rows, ratios, strict=True):
            tied = overlap(row, ours[row["N"]])
            ax.plot(row["N"], ratio, marker(name), color=color(name), mfc="white" if tied else color(name))
        if rows:
            ends.append((rows[-1]["N"], ratios[-1], label(name), color(name)))
            last |= {name: ratios[-1]} if rows[-1]["N"] == max(ours) else {}
    ax.axhline(1, color=color(focus), lw=2.8)
    log_axes(ax, sorted(ours), "N", f"speed, as a multiple of {label(focus)}")
    plain_log(ax.yaxis)
    title = f"{label(focus)} was not measured beside another here"
    if last:
        best = max(last, key=last.get)
        title = f"At N = {max(ours)} the fastest other, {label(best)}, has {last[best]:.2f} × the speed of {label(focus)}"
    with_L = " Naive attention also computes L." if RUNGS[0].name in series else ""
    source = (f"{recorded(results, live)} {results['what'].capitalize()}, d = {d}, {_mask(causal)}. Hollow: the ranges from the "
              f"20th to the 80th percentile overlap.{with_L}")
    return finish(fig, title, source, ends={ax: ends})


def overlap(a, b):
    """Do the ranges of two rows, 20th to 80th percentile, overlap?"""
    return a["ms_low"] <= b["ms_high"] and b["ms_low"] <= a["ms_high"]


@figure
def limit_of_bytes(points, words):
    """TFLOP/s against N: dashed what the bytes of DRAM allow, with dots what was measured.

    points: dicts of "name", "N", "limit" and "tflops", which is None where nothing was measured
    """
    fig, ax = plt.subplots(figsize=(8, 4.6))
    ends, allowed = [], {}
    for name, line in group(sorted(points, key=lambda p: p["N"]), "name").items():
        colour, dots = color(name), [(p["N"], p["tflops"]) for p in line if p["tflops"]]
        ax.plot([p["N"] for p in line], [p["limit"] for p in line], "--", color=colour)
        ends.append((line[-1]["N"], line[-1]["limit"], f"allowed: {label(name)}", colour))
        if dots:
            ax.plot(*zip(*dots, strict=True), "-", marker=marker(name), color=colour)
            ends.append((*dots[-1], label(name), colour))
        allowed[name] = line[-1]["limit"]
    log_axes(ax, sorted({p["N"] for p in points}), "N", "TFLOP/s")
    plain_log(ax.yaxis)
    said = [f"{allowed[name]:.0f} TFLOP/s {whom}" for name, whom in ((RUNGS[0].name, "to naive attention"),
                                                                    (WITHOUT_L, "if it computes O alone")) if name in allowed]
    return finish(fig, f"At N = {max(p['N'] for p in points)} its bytes allow {', '.join(said)}", words, ends={ax: ends})


@figure
def time_of_a_score(results, exp_rate=None, focus=None, live=False):
    """The time of one score: its products at a matmul's speed, its exponential, and what kernels take. A panel for each d.

    exp_rate: exponentials a second of the whole GPU; None: not known, not drawn
    """
    focus, said = focus or kernel_name(results), []
    ds = sorted({row["d"] for row in results["rows"] if row["implementation"] == focus})
    fig, axes = plt.subplots(1, len(ds), figsize=(4.6 * max(len(ds), 1.5), 4), squeeze=False)
    for ax, d in zip(axes[0], ds, strict=True):
        series = series_of(results, "tflops", d, False, None, focus)
        best = {name: max(row["tflops"] for row in rows) for name, rows in series.items()}
        units = {"products": (4 * d / results["ceilings"]["matmul_tflops"], READ)}
        units |= {"exponentials": (1e12 / exp_rate, EXP)} if exp_rate else {}
        bars = [(f"{unit} alone", [part]) for unit, part in units.items()]
        bars += [("one after the other", list(units.values()))] if exp_rate else []
        bars += [(label(name), [(4 * d / best[name], color(name))]) for name in sorted(best, key=best.get, reverse=True)
                 if name == focus or SLOW * best[name] >= max(best.values())]
        _stack(ax, bars)
        ax.set_title(f"d = {d}", fontweight="bold")
        said.append(" and ".join(f"{100 * t * best[focus] / 4 / d:.0f} %" for t, _ in units.values()) + f" at d = {d}")
    rate = f"exponentials: published, {exp_rate / 1e12:.1f} T/s" if exp_rate else "this GPU's rate of exponentials is not known"
    return finish(fig, f"Of {label(focus)}'s time {' and '.join(units)} alone would take {', '.join(said)}",
                  f"{recorded(results, live)} No mask, each at its best N. Products: at the measured speed of a plain matmul; "
                  f"{rate}. Left out: what takes more than {SLOW} times the fastest.")


def _stack(ax, bars):
    """Horizontal bars of one or more parts each: (name, [(length, colour)])."""
    for y, (_, parts) in enumerate(bars):
        left = 0
        for length, colour in parts:
            ax.barh(y, length, 0.66, left=left, color=colour)
            left += length
        ax.annotate(f"{left:.2f}", (left, y), (4, 0), textcoords="offset points", va="center", fontsize=9)
    longest = max(sum(length for length, _ in parts) for _, parts in bars)
    ax.set(xlim=(0, 1.2 * longest), ylim=(len(bars) - 0.4, -0.6), xlabel="picoseconds a score, whole GPU")
    ax.set_yticks(range(len(bars)), [name for name, _ in bars])
    ax.tick_params(axis="y", length=0)


@figure
def short_sequences(results, launch_ms, words, d=128, causal=False, focus=None, live=False):
    """Left: how much of the kernel's time copying Q, K, V, O would take. Right: one sequence's share of the time, beside a launch.

    launch_ms: what putting one launch into the GPU's queue takes, in ms, or None; words: where that comes from
    """
    focus = focus or kernel_name(results)
    rows, copy = series_of(results, "ms", d, causal, None, focus)[focus], results["ceilings"]["copy_tb_s"]
    Ns, alone = [row["N"] for row in rows], [1000 * row["ms"] / row["B"] for row in rows]
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9))
    for ax, ys in ((left, [100 * copy_ms(row, copy) / row["ms"] for row in rows]), (right, alone)):
        ax.plot(Ns, ys, marker=marker(focus), color=color(focus))
        log_axes(ax, Ns, "N", "")
        ax.tick_params(axis="x", labelsize=8)
    left.set(yscale="linear", ylim=(0, None), ylabel="% of the time")
    left.set_title("copying Q, K, V, O once", fontweight="bold")
    right.set(ylabel="µs")
    right.set_title(f"one sequence of {rows[0]['H']} heads: its share", fontweight="bold")
    title = f"A sequence of {Ns[0]} tokens takes {alone[0]:.0f} µs of the kernel's time"
    if launch_ms:
        right.axhline(1000 * launch_ms, ls="--", color=INK, lw=1.2)
        right.annotate(f"one launch: {1000 * launch_ms:.0f} µs", (1, 1000 * launch_ms), (-4, 4), fontsize=9, ha="right",
                       xycoords=("axes fraction", "data"), textcoords="offset points", path_effects=HALO)
        title += f"; to launch a kernel takes the CPU {1000 * launch_ms:.0f} µs"
    plain_log(right.yaxis)
    return finish(fig, title, f"{recorded(results, live)} {label(focus)}, d = {d}, {_mask(causal)}. Copy: modelled, at the "
                              f"measured {copy:.2f} TB/s. {words}")


def copy_ms(row, tb_s):
    """What moving Q, K, V and O once takes at the speed of a copy, in 16 bits."""
    return 4 * row["B"] * row["H"] * row["N"] * row["d"] * 2 / tb_s / 1e9


@figure
def causal_cost(results, focus=None, live=False):
    """What the mask costs a kernel in TFLOP/s, and what of it whole tiles on the diagonal explain. A panel for each d.

    focus: its name; the course's first kernel if None
    """
    focus, ends, said = focus or first_kernel_name(results), {}, []
    ds = sorted({row["d"] for row in results["rows"] if row["implementation"] == focus and row["causal"] and not row["skipped"]})
    fig, axes = plt.subplots(1, len(ds), figsize=(4.6 * max(len(ds), 1.5), 4.2), squeeze=False, sharey=True)
    for ax, d in zip(axes[0], ds, strict=True):
        masked, plain = ({row["N"]: row for row in series_of(results, "tflops", d, mask, None, focus)[focus]}
                         for mask in (True, False))
        both = sorted(masked.keys() & plain.keys())
        for name, lost, dashes, colour in (("measured", lambda N: masked[N]["tflops"] / plain[N]["tflops"], "-", color(focus)),
                                           ("whole tiles", lambda N: 1 / whole_tiles(masked[N]), "--", INK)):
            ys = [100 * (1 - lost(N)) for N in both]
            ax.plot(both, ys, dashes, marker=marker(focus), color=colour)
            ends.setdefault(ax, []).append((both[-1], ys[-1], name, colour))
        log_axes(ax, both, "N", "")
        ax.set(yscale="linear")
        ax.tick_params(axis="x", labelsize=8)
        used = [" × ".join(map(str, tiles_of(rows[both[-1]]))) for rows in (masked, plain)]
        ax.set_title(f"d = {d}: tiles of {used[0]},\n" + ("with and without the mask" if len(set(used)) == 1 else
                                                          f"without the mask {used[1]}: not the same kernel"), fontweight="bold")
        (_, real, *_), (_, explained, *_) = ends[ax]
        said.append(f"{real:.0f} % at d = {d} (whole tiles: {explained:.0f} %)")
    axes[0, 0].set(ylabel="TFLOP/s lost to the mask (%)")
    return finish(fig, f"At the largest N the mask costs {', '.join(said)}",
                  f"{recorded(results, live)} {label(focus)}. Dashed: modelled, tiles that the diagonal touches computed whole, "
                  "though only half of all pairs are counted.", ends=ends)


def tiles_of(row):
    """B_r, B_c of a row; those of the course's first GPU kernel where it does not say."""
    return row.get("B_r", 128), row.get("B_c", 64)


def whole_tiles(row):
    """How many times the counted FLOPs a causal kernel computes, if every tile that the diagonal touches is computed whole."""
    (B_r, B_c), N, d = tiles_of(row), row["N"], row["d"]
    computed = cost.fa2_forward(N, N, d, B_r=B_r, B_c=B_c, causal=True).matmul_flops
    return computed / cost.attention_flops(1, 1, N, N, d, causal=True)


def _mask(causal):
    return "causal" if causal else "no mask"
