"""The pictures of chapter 13: SMs that work, what splits cost, a cache in pages, what a window reads, recorded times."""

import math

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from flashlab.ladder import DECODE, rung
from flashlab.validate import check_positive
from flashlab_course.figures.benchmarks import recorded
from flashlab_course.figures.style import (
    FAINT,
    HALO,
    INK,
    READ,
    bare,
    byte_axis,
    color,
    figure,
    finish,
    ink_on,
    label,
    plain_log,
    ramp,
)
from flashlab_course.figures.words import bytes_text, every

PER_ROW = 22                       # SMs in a row of the drawing: 132 are six rows
SEQUENCES = ("#0072B2", "#D55E00", "#009E73", "#A97400", "#7A1FA2")
WHOLE, SPLIT = rung("fa2_forward").color, rung("split_kv_forward").color


@figure
def sms_busy(panels, sms=132):
    """A square for each SM, filled where a program runs on it in the first wave and darker for each wave more.

    panels: {"32 programs, no split": 32}, the number of programs of each
    """
    check_positive(sms=sms)
    rows = math.ceil(sms / PER_ROW)
    fig, axes = plt.subplots(len(panels), 1, figsize=(9, 0.9 + len(panels) * (0.5 + 0.3 * rows)), squeeze=False)
    for ax, (name, programs) in zip(axes[:, 0], panels.items(), strict=True):
        waves = max(1, math.ceil(programs / sms))
        shades = ramp(SPLIT, lightest=0.35)
        for n in range(sms):
            held = len(range(n, programs, sms))        # programs in turn on this SM
            shade = shades(held / waves) if held else FAINT
            ax.add_patch(Rectangle((n % PER_ROW, n // PER_ROW), 0.9, 0.9, fc=shade, lw=0))
            if held:
                ax.text(n % PER_ROW + 0.45, n // PER_ROW + 0.47, held, ha="center", va="center", fontsize=8, color=ink_on(shade))
        ax.set(xlim=(0, PER_ROW), ylim=(rows, 0), xticks=[], yticks=[])
        ax.set_title(f"{name}: {waves} wave{'s' if waves > 1 else ''}, {_occupied(programs, sms):.0%} of the time of all SMs used")
        bare(ax)
    shares = {name: f"{_occupied(programs, sms):.0%}" for name, programs in panels.items()}
    least, *_, most = sorted(panels, key=lambda name: _occupied(panels[name], sms)) * 2
    among = f", with {most} {shares[most]}" if most != least else ""
    return finish(fig, f"With {least} {shares[least]} of {sms} SMs work on average{among}",
                  "Modelled: one program at a time on an SM, all equally long. In a square: its programs, one after the other.")


def _occupied(programs, sms):
    return programs / (sms * max(1, math.ceil(programs / sms)))


@figure
def cost_of_splits(points, N_k, d):
    """What more splits do: the keys that the longest program reads, and the bytes of all programs together.

    points: dicts of splits, longest (keys), bytes; the first without a split
    """
    splits, whole = [p["splits"] for p in points], points[0]
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.9))
    left.plot(splits, [p["longest"] for p in points], "P-", color=SPLIT)
    left.set(xscale="log", yscale="log", xlabel="splits", ylabel="keys", title="that the longest program reads")
    share = [100 * p["bytes"] / whole["bytes"] for p in points]
    right.plot(splits, share, "P-", color=SPLIT)
    right.axhline(100, color=WHOLE, ls="--", lw=1.3)
    right.set(xscale="log", xlabel="splits", ylabel="% of the bytes without a split", title="read and written in all",
              ylim=(min(95, 0.98 * min(share)), 1.03 * max(share)))
    for ax in (left, right):
        ax.set_xticks(splits, splits)
        ax.set_xticks([], minor=True)
        ax.grid(axis="y")
    plain_log(left.yaxis)
    last = points[-1]
    return finish(fig, f"{last['splits']} splits: programs {whole['longest'] / last['longest']:.0f} times as short, "
                       f"{share[-1] - 100:.1f} % more bytes",
                  f"Modelled: flashlab.memory, one query, {N_k} keys, d = {d}, float32. Dashed: without a split.")


@figure
def time_of_splits(times, P, T, SMs, also=()):
    """The time of each number of splits, the least marked.

    times: {splits: steps of one key block}; also: other splits to name
    """
    best = min(times, key=lambda s: (times[s], s))
    fig, ax = plt.subplots(figsize=(8.6, 4))
    ax.plot(list(times), list(times.values()), color=SPLIT, lw=1.2)
    named = {best: f"{best} splits: {times[best]} steps", **{s: f"{s}: {times[s]}" for s in also if s != best and s in times}}
    for s, text in named.items():
        ax.plot(s, times[s], "P", color=SPLIT, ms=9, mec="white", zorder=4)
        ax.annotate(text, (s, times[s]), (5, -13 if s == best else 8), textcoords="offset points", fontsize=9, fontweight="bold",
                    color=INK, path_effects=HALO)
    ax.set(xlabel="splits", ylabel="steps of one key block", yscale="log", xlim=(0, 1.05 * max(times)),
           ylim=(0.7 * times[best], 1.4 * max(times.values())))
    plain_log(ax.yaxis)
    ax.grid(axis="y")
    word = "splits are" if best > 1 else "split is"
    return finish(fig, f"{best} {word} {times[1] / times[best]:.1f} times as fast as none",
                  f"Modelled: P = {P} programs before the split, T = {T} key blocks each, {SMs} SMs; with s splits ⌈P·s / SMs⌉ "
                  "waves of ⌈T / s⌉ + 2 steps.")


@figure
def pages_drawn(block_table, lengths, page_size, pages):
    """Where the keys of each sequence lie in a pool of pages. block_table: a list of page numbers for each sequence."""
    used = [math.ceil(length / page_size) for length in lengths]
    fig, (ax, pool) = plt.subplots(2, 1, figsize=(9.4, 1.7 + 0.62 * (len(lengths) + 2)), height_ratios=[len(lengths) + 0.4, 1.6])
    for b, (row, length) in enumerate(zip(block_table, lengths, strict=True)):
        for p in range(used[b]):
            _page(ax, p, b, row[p], min(page_size, length - p * page_size) / page_size, SEQUENCES[b % len(SEQUENCES)])
    ax.set(xlim=(0, max(pages, 1)), ylim=(len(lengths), 0), title="block table: the pages of each sequence, in order")
    ax.set_yticks([b + 0.4 for b in range(len(lengths))], [f"sequence {b}: {n} keys" for b, n in enumerate(lengths)])
    ax.set_xticks([])
    owner = {row[p]: (b, p) for b, row in enumerate(block_table) for p in range(used[b])}
    for page in range(pages):
        b, p = owner.get(page, (None, 0))
        full = min(page_size, lengths[b] - p * page_size) / page_size if b is not None else 0
        _page(pool, page, 0, page, full, FAINT if b is None else SEQUENCES[b % len(SEQUENCES)])
    pool.set(xlim=(0, pages), ylim=(1, 0), title="the pool, in memory", xticks=[])
    pool.set_yticks([0.4], ["K_pages, V_pages"])
    for one in (ax, pool):
        bare(one)
    kept, taken = sum(lengths), page_size * sum(used)
    return finish(fig, f"{kept} keys in {sum(used)} pages of {page_size}: {kept / taken:.0%} of their room is used",
                  "Definition: the number is the page's place in the pool; the coloured part holds keys.")


def _page(ax, x, y, number, full, colour):
    ax.add_patch(Rectangle((x + 0.04, y), 0.92, 0.8, fc="#F3F3F3", ec="#AAAAAA", lw=0.8))
    ax.add_patch(Rectangle((x + 0.04, y), 0.92 * full, 0.8, fc=colour, lw=0))
    ax.text(x + 0.5, y + 0.42, number, ha="center", va="center", fontsize=9, fontweight="bold",
            color=INK, path_effects=HALO)


@figure
def bytes_of_steps(curves, words):
    """Bytes that one decode step reads, against the length of the text. curves: {name: {length: bytes}}."""
    fig, ax = plt.subplots(figsize=(8.4, 4.2))
    ends = []
    for (name, curve), colour in zip(curves.items(), (WHOLE, SPLIT, *SEQUENCES[:1], READ), strict=False):
        ax.plot(list(curve), list(curve.values()), color=colour)
        ends.append((max(curve), curve[max(curve)], name, colour))
    ax.set(xscale="log", yscale="log", xlabel="keys in the cache", ylabel="bytes read in a step")
    byte_axis(ax.yaxis)
    ax.grid(axis="y")
    longest = max(max(curve) for curve in curves.values())
    ticks = [4**n for n in range(1, 16) if min(map(min, curves.values())) <= 4**n <= longest]
    ax.set_xlim(right=8 * longest)
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.set_xticks([], minor=True)
    last = max(next(iter(curves.values())))
    at = {name: curve[last] for name, curve in curves.items()}
    return finish(fig, f"At {last:,} keys a step reads " + "; ".join(f"{bytes_text(n)} with {name}" for name, n in at.items()),
                  words, ends={ax: ends})


OURS = {"decode": DECODE.title, "decode, paged": f"{DECODE.title}, in pages"}      # as bench decode calls them


@figure
def decode_steps(results, H_q=32, H_kv=4):
    """The rate at which a decode step reads its cache, against the length of the text, for the smallest and the largest batch.

    results: of bench decode. Raises: ValueError where it has no step of these heads
    """
    rows = [row for row in results["rows"] if row.get("tb_s") and (row.get("H_q"), row.get("H_kv")) == (H_q, H_kv)
            and row.get("implementation")]
    if not any(row["implementation"] == "decode" for row in rows):
        raise ValueError(f"results hold no decode step of H_q = {H_q}, H_kv = {H_kv}")
    batches = sorted({row["B"] for row in rows})
    batches = batches[:1] + batches[1:][-1:]
    fig, axes = plt.subplots(1, len(batches), figsize=(5.2 * len(batches), 4.4), squeeze=False, sharey=True)
    ends, said = {}, []
    for ax, B in zip(axes[0], batches, strict=True):
        lines = _lines([row for row in rows if row["B"] == B])
        for name, points in lines.items():
            colour = DECODE.color if name in OURS else color(name)
            ax.plot(list(points), [row["tb_s"] for row in points.values()], color=colour, marker="o",
                    ls="--" if "paged" in name else "-")
            ends.setdefault(ax, []).append((max(points), points[max(points)]["tb_s"], OURS.get(name, label(name)), colour))
        copy = max(row["copy_tb_s"] for row in rows)
        ax.axhline(copy, color=INK, ls="--", lw=1.2)
        ax.annotate(f"copy, {copy:.2f} TB/s", (min(row["N"] for row in rows), copy), (0, 4), textcoords="offset points", fontsize=9)
        Ns = sorted({row["N"] for row in rows if row["B"] == B})
        ax.set(xscale="log", xlabel="keys of a text", title=f"batch of {B}", ylim=(0, 1.15 * copy))
        ax.set_xlim(min(Ns) / 1.3, 20 * max(Ns))
        ax.set_xticks(Ns, [f"{N // 1024}k" for N in Ns])
        ax.set_xticks([], minor=True)
        longest = lines["decode"][max(lines["decode"])] if "decode" in lines else None
        said += [f"{longest['of_copy']:.0%} of a copy's rate at B = {B}, N = {longest['N']}"] if longest else []
    axes[0, 0].set_ylabel("TB/s of K and V")
    return finish(fig, f"{DECODE.title} reads its cache at {' and '.join(said)}",
                  f"{recorded(results)} bfloat16, d = {rows[0]['d']}, {H_q} query heads, {H_kv} key heads, one query each. "
                  f"Dashed: a copy; pages of {results.get('page_size', '?')} keys.", ends=ends)


def _lines(rows):
    """{implementation: {N: row}}, the lengths in order."""
    lines = {}
    for row in sorted(rows, key=lambda row: row["N"]):
        lines.setdefault(row["implementation"], {})[row["N"]] = row
    return lines


HOPPER, FP8 = rung("fa2_hopper_forward"), "#56B4E9"
AS_RECORDED = {"fp8 kernel": "kernel", "flash_attention_fp8": "whole", HOPPER.name: "bfloat16"}     # as bench fp8 calls them


@figure
def fp8_times(results):
    """The time of attention in FP8, and of quantising Q, K and V for it, in percent of the bfloat16 kernel's.

    results: of bench fp8. Raises: ValueError where none of its sizes has the times of all three
    """
    sizes = {}
    for row in results["rows"]:
        if row.get("implementation") in AS_RECORDED and row.get("ms"):
            sizes.setdefault((row["d"], row["causal"], row["N"]), {})[AS_RECORDED[row["implementation"]]] = row
    sizes = {size: found for size, found in sorted(sizes.items()) if len(found) == len(AS_RECORDED)}
    if not sizes:
        raise ValueError(f"results must hold times of {', '.join(AS_RECORDED)} at one size at least, found them at none")
    fig, ax = plt.subplots(figsize=(8.8, 1.7 + 0.46 * len(sizes)))
    speeds = [[found[what][f"vs_{HOPPER.name}"] for what in ("kernel", "whole")] for found in sizes.values()]
    for y, (kernel, whole) in enumerate(speeds):
        ax.barh(y, 100 / kernel, 0.66, color=FP8, label=None if y else "kernel")
        ax.barh(y, 100 / whole - 100 / kernel, 0.66, left=100 / kernel, color=FP8, alpha=0.45,
                label=None if y else "quantising Q, K and V")
        ax.annotate(f"{kernel:.2f} times as fast", (100 / kernel, y), (-6, 0), textcoords="offset points", ha="right", va="center",
                    fontsize=9)
        ax.annotate(f"{whole:.2f} with quantising", (max(100, 100 / whole), y), (6, 0), textcoords="offset points", va="center",
                    fontsize=9)
    ax.axvline(100, color=HOPPER.color, ls="--", lw=1.4)
    ax.annotate(f"bfloat16: {HOPPER.title}", (100, 1), (4, 4), xycoords=("data", "axes fraction"), textcoords="offset points",
                fontsize=9, fontweight="bold", color=HOPPER.color)
    names = [f"N = {N}{f', d = {d}' * (len({d for d, *_ in sizes}) > 1)}{', causal' * causal}" for d, causal, N in sizes]
    ax.set(xlim=(0, 140), ylim=(len(sizes) - 0.4, -0.6), xlabel="% of the bfloat16 kernel's time", xticks=range(0, 101, 20))
    ax.set_yticks(range(len(sizes)), names)
    ax.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=9, handlelength=1)
    alone, together = ([f"{n:.2f}" for n in sorted(ratios)] for ratios in zip(*speeds, strict=True))
    same = next(iter(sizes.values()))["kernel"]
    tokens = " or ".join(f"{n:,}" for n in sorted({found["kernel"]["B"] * found["kernel"]["N"] for found in sizes.values()}))
    return finish(fig, f"FP8's kernel is {_span(alone)} times as fast as bfloat16's, with quantising {_span(together)}",
                  f"{recorded(results)} d = {every([row['kernel'] for row in sizes.values()], 'd')}, {same['H']} heads, "
                  f"{tokens} tokens in all.")


def _span(numbers):
    return numbers[0] if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"
