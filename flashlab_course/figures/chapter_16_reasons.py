"""The pictures of chapter 16 that look behind a time: its scatter, its ceilings, and what it is spent on.

results, live: as in flashlab_course.figures.chapter_16.
"""

from flashlab import cost
from flashlab.ladder import RUNGS
from flashlab_course.figures.chapter_12 import RANGES, overlap
from flashlab_course.figures.chapter_16 import FEW, SLOW, WITHOUT_L, first_kernel_name, kernel_name, series_of
from flashlab_course.figures.colors import INK, ORANGE, READ, YOURS, color, marker
from flashlab_course.figures.plots import axes, ceiling, curves, heading, panel, panels, plot, stack
from flashlab_course.figures.style import HALO, figure, finish, note
from flashlab_course.figures.words import by, group, label, mask_text, recorded


@figure
def work_against_N(Ns, tokens, d=128, heads=16):
    """FLOPs and input bytes of attention at constant B·N = tokens, and of one sequence: multiples of the first N's."""
    flops = {N: cost.attention_flops(tokens // N, heads, N, N, d) for N in Ns}
    nbytes = {N: tokens // N * N for N in Ns}
    alone = {N: cost.attention_flops(1, heads, N, N, d) for N in Ns}
    lines = [(name, {N: n / of[Ns[0]] for N, n in of.items()}, colour, style) for name, of, colour, style in
             (("FLOPs", flops, INK, "o-"), ("bytes of Q, K, V, O", nbytes, READ, "o-"),
              ("FLOPs of one sequence", alone, INK, "o--"))]
    factor = Ns[-1] // Ns[0]
    return curves(lines,
                  f"At constant batch × N, {factor} times the length means {factor} times the FLOPs, on as many bytes",
                  f"Modelled: 4·B·H·N²·d FLOPs without a mask, 2·B·H·N·d bytes in each tensor; H = {heads}, d = {d}.",
                  f"N (batch × N = {tokens}; dashed: batch 1)", f"times as much as at N = {Ns[0]}", size=(8, 4.2),
                  log="xy", ticks=Ns)


@figure
def times_of_calls(ms, marks, words):
    """The time of one call after the other. marks: name -> a number of ms that somebody might report, drawn across."""
    median, right = sorted(ms)[len(ms) // 2], 1.2 * len(ms)
    lines = [("", list(enumerate(ms, start=1)), READ, ".")]
    lines += [(name, [(0.9, value), (right, value)], YOURS if name.startswith("yours") else INK, "--")
              for name, value in marks.items()]
    return curves(lines, f"The first call takes {ms[0] / median:.1f} times the median, the slowest "
                         f"{max(ms) / median:.1f} times", words, "call", "ms", log="xy", xlim=(0.9, right))


@figure
def spread_of_runs(results, live=False):
    """How far the 20th and the 80th percentile of each row's runs lie apart, against its time."""
    rows = [row | {"spread": 100 * (row["ms_high"] - row["ms_low"]) / row["ms"]} for row in results["rows"]
            if row.get("ms")]
    fig, ax = panel(8, 4.2)
    for row in rows:
        name = row["implementation"]
        ax.plot(row["ms"], row["spread"], marker(name), color=color(name),
                mfc="white" if row["runs"] < FEW else color(name))
    axes(ax, "median run time (ms)", "80th − 20th percentile (%)", log="x", ylim=(0, None))
    *_, worst = rows = sorted(rows, key=lambda row: row["spread"])
    name = worst["implementation"]
    note(ax, f"{label(name)}, N = {worst['N']}", worst["ms"], worst["spread"], -8, ha="right", color=color(name),
         path_effects=HALO)
    return finish(fig, f"Repeated runs usually spread by {rows[len(rows) // 2]['spread']:.1f} %, at most by "
                       f"{worst['spread']:.0f} %",
                  f"{recorded(results, live)} {len(rows)} rows; colours as in the plots below. Hollow: fewer than "
                  f"{FEW} runs.")


@figure
def relative_speed(results, d=128, causal=False, live=False):
    """Each other's speed as a multiple of the kernel's, against N. Hollow: the ranges of the two overlap."""
    focus = kernel_name(results)
    series = series_of(results, "ms", d, causal, focus)
    ours = {row["N"]: row for row in series.pop(focus, [])}
    fig, ax = panel(8, 4.4)
    last, N = {}, max(ours, default=None)
    for name, rows in series.items():
        ratios = {row["N"]: ours[row["N"]]["ms"] / row["ms"] for row in rows if row["N"] in ours}
        plot(ax, label(name), ratios, color(name), "-")
        for row in (row for row in rows if row["N"] in ours):
            tied = overlap(row, ours[row["N"]])
            ax.plot(row["N"], ratios[row["N"]], marker(name), color=color(name), mfc="white" if tied else color(name))
        last |= {name: ratios[N]} if N in ratios else {}
    ax.axhline(1, color=color(focus), lw=2.8)
    axes(ax, "N", f"speed, as a multiple of {label(focus)}", log="xy", ticks=sorted(ours))
    title = f"{label(focus)} was not measured beside another here"
    if last:
        best = max(last, key=last.get)
        title = (f"At N = {N} the fastest other, {label(best)}, has {last[best]:.2f} × the speed of "
                 f"{label(focus)}")
    with_L = " Naive attention also computes L." * (RUNGS[0].name in series)
    return finish(fig, title, f"{recorded(results, live)} {results['what'].capitalize()}, d = {d}, "
                              f"{mask_text(causal)}. Hollow: {RANGES}{with_L}")


@figure
def limit_of_bytes(points, words):
    """TFLOP/s against N: dashed what the bytes of DRAM allow, with dots what was measured.

    points: dicts of "name", "N", "limit" and "tflops", which is None where nothing was measured
    """
    lines, allowed = [], {}
    for name, rows in group(points, "name").items():
        limits = by(rows, "N", "limit")
        lines += [(f"allowed: {label(name)}", limits, color(name), "--"),
                  (label(name), by(rows, "N", "tflops"), color(name),
                                                                           f"{marker(name)}-")]
        allowed[name] = limits[-1][1]
    said = [f"{allowed[name]:.0f} TFLOP/s {whom}" for name, whom in ((RUNGS[0].name, "to naive attention"),
                                                                    (WITHOUT_L, "if it computes O alone"))
            if name in allowed]
    Ns = sorted({p["N"] for p in points})
    return curves(lines, f"At N = {Ns[-1]} its bytes allow {', '.join(said)}", words, "N", "TFLOP/s", size=(8, 4.6),
                  log="xy", ticks=Ns)


@figure
def time_of_a_score(results, exp_rate=None, live=False):
    """The time of one score: its products at a matmul's speed, its exponential, and what kernels take.

    A panel for each d.

    exp_rate: exponentials a second of the whole GPU; None: not known, not drawn
    """
    focus, said = kernel_name(results), []
    ds = sorted({row["d"] for row in results["rows"] if row["implementation"] == focus})
    fig, axs = panels(len(ds), size=(4.6 * max(len(ds), 1.5), 4))
    for ax, d in zip(axs, ds, strict=True):
        best = {name: max(row["tflops"] for row in rows)
                for name, rows in series_of(results, "tflops", d, False, focus).items()}
        units = {"products": (4 * d / results["ceilings"]["matmul_tflops"], READ)}
        units |= {"exponentials": (1e12 / exp_rate, ORANGE)} if exp_rate else {}
        rows = {f"{unit} alone": [part] for unit, part in units.items()}
        rows |= {"one after the other": list(units.values())} if exp_rate else {}
        rows |= {label(name): [(4 * d / best[name], color(name))] for name in sorted(best, key=best.get, reverse=True)
                 if name == focus or SLOW * best[name] >= max(best.values())}
        stack(ax, rows, [f"{sum(time for time, _ in parts):.2f}" for parts in rows.values()],
              "picoseconds a score, whole GPU", room=1.2, title=f"d = {d}")
        said.append(" and ".join(f"{100 * time * best[focus] / 4 / d:.0f} %" for time, _ in units.values())
                    + f" at d = {d}")
    rate = "this GPU's rate of exponentials is not known"
    rate = f"exponentials: published, {exp_rate / 1e12:.1f} T/s" if exp_rate else rate
    return finish(fig, f"Of {label(focus)}'s time {' and '.join(units)} alone would take {', '.join(said)}",
                  f"{recorded(results, live)} No mask, each at its best N. Products: at the measured speed of a plain "
                  f"matmul; {rate}. Left out: what takes more than {SLOW} times the fastest.")


@figure
def short_sequences(results, launch_ms, words, d=128, causal=False, live=False):
    """Left: how much of the kernel's time copying Q, K, V, O would take.

    Right: one sequence's share of the time, beside a launch.

    launch_ms: what putting one launch into the GPU's queue takes, in ms, or None; words: where that comes from
    """
    focus, copy = kernel_name(results), results["ceilings"]["copy_tb_s"]
    rows = series_of(results, "ms", d, causal, focus)[focus]
    alone = {row["N"]: 1000 * row["ms"] / row["B"] for row in rows}
    fig, (left, right) = panels(2, size=(9.2, 3.9))
    plot(left, "", {row["N"]: 100 * copy_ms(row, copy) / row["ms"] for row in rows}, color(focus), f"{marker(focus)}-")
    axes(left, "N", "% of the time", log="x", ticks=alone, ylim=(0, None))
    heading(left, "copying Q, K, V, O once")
    plot(right, "", alone, color(focus), f"{marker(focus)}-")
    heading(right, f"one sequence of {rows[0]['H']} heads: its share")
    title = f"A sequence of {rows[0]['N']} tokens takes {alone[rows[0]['N']]:.0f} µs of the kernel's time"
    if launch_ms:
        ceiling(right, f"one launch: {1000 * launch_ms:.0f} µs", 1000 * launch_ms, "right")
        title += f"; to launch a kernel takes the CPU {1000 * launch_ms:.0f} µs"
    axes(right, "N", "µs", log="xy", ticks=alone)
    for ax in (left, right):
        ax.tick_params(axis="x", labelsize=8)
    return finish(fig, title, f"{recorded(results, live)} {label(focus)}, d = {d}, {mask_text(causal)}. Copy: "
                              f"modelled, at the measured {copy:.2f} TB/s. {words}")


def copy_ms(row, tb_s):
    """What moving Q, K, V and O once takes at the speed of a copy, in 16 bits."""
    return 4 * row["B"] * row["H"] * row["N"] * row["d"] * 2 / tb_s / 1e9


@figure
def causal_cost(results, live=False):
    """What the mask costs the first kernel in TFLOP/s, and what of it whole tiles on the diagonal explain.

    A panel for each d.
    """
    focus, said = first_kernel_name(results), []
    ds = sorted({row["d"] for row in results["rows"] if row["implementation"] == focus and row["causal"]
                 and not row["skipped"]})
    fig, axs = panels(len(ds), size=(4.6 * max(len(ds), 1.5), 4.2), sharey=True)
    for ax, d in zip(axs, ds, strict=True):
        masked, plain = ({row["N"]: row for row in series_of(results, "tflops", d, mask, focus)[focus]}
                         for mask in (True, False))
        both = sorted(masked.keys() & plain.keys())
        lost = {N: 100 * (1 - masked[N]["tflops"] / plain[N]["tflops"]) for N in both}
        explained = {N: 100 * (1 - 1 / whole_tiles(masked[N])) for N in both}
        plot(ax, "measured", lost, color(focus), f"{marker(focus)}-")
        plot(ax, "whole tiles", explained, INK, f"{marker(focus)}--")
        axes(ax, "N", log="x", ticks=both)
        ax.tick_params(axis="x", labelsize=8)
        used = [" × ".join(map(str, tiles_of(rows[both[-1]]))) for rows in (masked, plain)]
        same = "with and without the mask" if used[0] == used[1] else f"without the mask {used[1]}: not the same kernel"
        heading(ax, f"d = {d}: tiles of {used[0]},\n{same}")
        said.append(f"{lost[both[-1]]:.0f} % at d = {d} (whole tiles: {explained[both[-1]]:.0f} %)")
    axs[0].set(ylabel="TFLOP/s lost to the mask (%)")
    return finish(fig, f"At the largest N the mask costs {', '.join(said)}",
                  f"{recorded(results, live)} {label(focus)}. Dashed: modelled, tiles that the diagonal touches "
                  "computed whole, though only half of all pairs are counted.")


def tiles_of(row):
    """B_r, B_c of a row; those of the course's first GPU kernel where it does not say."""
    return row.get("B_r", 128), row.get("B_c", 64)


def whole_tiles(row):
    """How many times the counted FLOPs a causal kernel computes if it computes whole tiles on the diagonal."""
    (B_r, B_c), N, d = tiles_of(row), row["N"], row["d"]
    computed = cost.fa2_forward(N, N, d, B_r=B_r, B_c=B_c, causal=True).matmul_flops
    return computed / cost.attention_flops(1, 1, N, N, d, causal=True)
