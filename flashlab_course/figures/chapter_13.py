"""The pictures of chapter 13: busy SMs, what splits cost, a cache in pages, what a window reads, recorded times."""

import math

from flashlab.ladder import DECODE, rung
from flashlab.validate import check_positive
from flashlab_course.figures.colors import BLUE, FAINT, GREEN, GREY, ORANGE, PURPLE, READ, color, shades
from flashlab_course.figures.plots import axes, box, ceiling, curves, panel, panels, plot, stack, write
from flashlab_course.figures.style import HALO, figure, finish, note
from flashlab_course.figures.words import bytes_text, every, group, label, recorded

PER_ROW = 22                       # SMs in a row of the drawing: 132 are six rows
SEQUENCES = (BLUE, ORANGE, GREEN, "#A97400", PURPLE)
WHOLE, SPLIT = color("fa2_forward"), color("split_kv_forward")


@figure
def sms_busy(programs, sms=132):
    """A square for each SM, filled where a program runs on it in the first wave and darker for each wave more.

    programs: {"32 programs, no split": 32}, how many each has
    """
    check_positive(sms=sms)
    rows = math.ceil(sms / PER_ROW)
    fig, axs = panels(1, len(programs), size=(9, 0.9 + len(programs) * (0.5 + 0.3 * rows)))
    shares = {}
    for ax, (name, count) in zip(axs, programs.items(), strict=True):
        waves = max(1, math.ceil(count / sms))
        shares[name] = count / (sms * waves)
        tints = [FAINT, *shades(SPLIT, waves + 1, 0.35)[1:]]
        held = [len(range(n, count, sms)) for n in range(sms)]              # programs in turn on each SM
        for n, many in enumerate(held):
            box(ax, n % PER_ROW, n // PER_ROW, 0.9, 0.9, tints[many], many or "", lw=0, size=8)
        ax.set(xlim=(0, PER_ROW), ylim=(rows, 0), xticks=[], yticks=[],
               title=f"{name}: {waves} wave{'s' * (waves > 1)}, {shares[name]:.0%} of the time of all SMs used")
        ax.spines[:].set_visible(False)
    least, most = min(shares, key=shares.get), max(shares, key=shares.get)
    among = f", with {most} {shares[most]:.0%}" if most != least else ""
    return finish(fig, f"With {least} {shares[least]:.0%} of {sms} SMs work on average{among}",
                  "Modelled: one program at a time on an SM, all equally long. In a square: its programs, one after "
                  "the other.")


@figure
def cost_of_splits(points, N_k, d):
    """What more splits do: the keys that the longest program reads, and the bytes of all programs together.

    points: dicts of splits, longest (keys), bytes; the first without a split
    """
    whole, last = points[0], points[-1]
    share = {p["splits"]: 100 * p["bytes"] / whole["bytes"] for p in points}
    fig, (left, right) = panels(2, size=(9.4, 3.9))
    plot(left, "", {p["splits"]: p["longest"] for p in points}, SPLIT, "P-")
    axes(left, "splits", "keys", log="xy", ticks=share, title="that the longest program reads")
    plot(right, "", share, SPLIT, "P-")
    right.axhline(100, color=WHOLE, ls="--", lw=1.3)
    axes(right, "splits", "% of the bytes without a split", log="x", ticks=share, title="read and written in all",
         ylim=(min(95, 0.98 * min(share.values())), 1.03 * max(share.values())))
    return finish(fig, f"{last['splits']} splits: programs {whole['longest'] / last['longest']:.0f} times as short, "
                       f"{share[last['splits']] - 100:.1f} % more bytes",
                  f"Modelled: flashlab.memory, one query, {N_k} keys, d = {d}, float32. Dashed: without a split.")


@figure
def time_of_splits(times, P, T, SMs, also=()):
    """The time of each number of splits, the least marked.

    times: {splits: steps of one key block}; also: other splits to name.
    """
    best = min(times, key=lambda s: (times[s], s))
    fig, ax = panel(8.6, 4)
    plot(ax, "", times, SPLIT, "-", lw=1.2)
    for s, text, up in ((best, f"{best} splits: {times[best]} steps", -9),
                        *((s, f"{s}: {times[s]}", 12) for s in also)):
        ax.plot(s, times[s], "P", color=SPLIT, ms=9, mec="white", zorder=4)
        note(ax, text, s, times[s], 5, up, fontweight="bold", path_effects=HALO)
    axes(ax, "splits", "steps of one key block", log="y", xlim=(0, 1.05 * max(times)),
         ylim=(0.7 * times[best], 1.4 * max(times.values())))
    word = "splits are" if best > 1 else "split is"
    return finish(fig, f"{best} {word} {times[1] / times[best]:.1f} times as fast as none",
                  f"Modelled: P = {P} programs before the split, T = {T} key blocks each, {SMs} SMs; with s splits "
                  "⌈P·s / SMs⌉ waves of ⌈T / s⌉ + 2 steps.")


@figure
def pages_drawn(block_table, lengths, page_size, pages):
    """Where the keys of each sequence lie in a pool of pages. block_table: a list of page numbers for each sequence."""
    fig, (ax, pool) = panels(1, 2, size=(9.4, 1.7 + 0.62 * (len(lengths) + 2)), height_ratios=[len(lengths) + 0.4, 1.6])
    used, drawn = [math.ceil(length / page_size) for length in lengths], dict.fromkeys(range(pages), (0, FAINT))
    for b, length in enumerate(lengths):
        for p, number in enumerate(block_table[b][:used[b]]):
            drawn[number] = min(1, length / page_size - p), SEQUENCES[b % len(SEQUENCES)]
            page(ax, p, b, number, *drawn[number])
    for number in range(pages):
        page(pool, number, 0, number, *drawn[number])
    ax.set(xlim=(0, pages), ylim=(len(lengths), 0), title="block table: the pages of each sequence, in order",
           xticks=[])
    ax.set_yticks([b + 0.4 for b in range(len(lengths))], [f"sequence {b}: {n} keys" for b, n in enumerate(lengths)])
    pool.set(xlim=(0, pages), ylim=(1, 0), title="the pool, in memory", xticks=[])
    pool.set_yticks([0.4], ["K_pages, V_pages"])
    for one in (ax, pool):
        one.tick_params(length=0)
        one.spines[:].set_visible(False)
    return finish(fig, f"{sum(lengths)} keys in {sum(used)} pages of {page_size}: "
                       f"{sum(lengths) / (page_size * sum(used)):.0%} of their room is used",
                  "Definition: the number is the page's place in the pool; the coloured part holds keys.")


def page(ax, x, y, number, full, colour):
    box(ax, x + 0.04, y, 0.92, 0.8, "#F3F3F3", edge=GREY, lw=0.8)
    box(ax, x + 0.04, y, 0.92 * full, 0.8, colour, lw=0)
    write(ax, x + 0.5, y + 0.42, number, 9, fontweight="bold", path_effects=HALO)


@figure
def bytes_of_steps(found, words):
    """Bytes that one decode step reads, against the length of the text. found: {name: {length: bytes}}."""
    lengths = sorted({length for curve in found.values() for length in curve})
    last = max(next(iter(found.values())))
    said = "; ".join(f"{bytes_text(curve[last])} with {name}" for name, curve in found.items())
    return curves([(name, curve, colour, "-") for (name, curve),
                   colour in zip(found.items(), (WHOLE, SPLIT, BLUE, READ), strict=False)],
                  f"At {last:,} keys a step reads {said}", words, "keys in the cache", "bytes read in a step",
                  size=(8.4, 4.2), log="xy", byte="y",
                  ticks=[4**n for n in range(1, 16) if lengths[0] <= 4**n <= lengths[-1]], names="{:,.0f}".format,
                  xlim=(0.8 * lengths[0], 8 * lengths[-1]))


@figure
def decode_steps(results, H_q=32, H_kv=4):
    """The rate at which a decode step reads its cache, against the text's length, for the smallest and largest batch.

    results: of bench decode. Raises: ValueError where it has no step of these heads
    """
    rows = [row for row in results["rows"] if row.get("tb_s") and (row.get("H_q"), row.get("H_kv")) == (H_q, H_kv)
            and row.get("implementation")]
    if not any(row["implementation"] == "decode" for row in rows):
        raise ValueError(f"results hold no decode step of H_q = {H_q}, H_kv = {H_kv}")
    names = {"decode": DECODE.title, "decode, paged": f"{DECODE.title}, in pages"}      # as bench decode calls them
    batches, copy = sorted({row["B"] for row in rows}), max(row["copy_tb_s"] for row in rows)
    batches = list(dict.fromkeys((batches[0], batches[-1])))
    fig, axs = panels(len(batches), size=(5.2 * len(batches), 4.4), sharey=True)
    said = []
    for ax, B in zip(axs, batches, strict=True):
        mine = sorted((row for row in rows if row["B"] == B), key=lambda row: row["N"])
        for name, line in group(mine, "implementation").items():
            plot(ax, names.get(name, label(name)), {row["N"]: row["tb_s"] for row in line},
                 DECODE.color if name in names else color(name), "o--" if "paged" in name else "o-")
        Ns = sorted({row["N"] for row in mine})
        axes(ax, "keys of a text", log="x", ticks=Ns, names=lambda N: f"{N / 1024:.0f}k", title=f"batch of {B}",
             ylim=(0, 1.15 * copy), xlim=(Ns[0] / 1.3, 20 * Ns[-1]))
        ax.grid(False)
        ceiling(ax, f"copy, {copy:.2f} TB/s", copy)
        said += [f"{row['of_copy']:.0%} of a copy's rate at B = {B}, N = {row['N']}"
                 for row in [row for row in mine if row["implementation"] == "decode"][-1:]]
    axs[0].set_ylabel("TB/s of K and V")
    return finish(fig, f"{DECODE.title} reads its cache at {' and '.join(said)}",
                  f"{recorded(results)} bfloat16, d = {rows[0]['d']}, {H_q} query heads, {H_kv} key heads, one query "
                  f"each. Dashed: a copy; pages of {results.get('page_size', '?')} keys.")


HOPPER, FP8 = rung("fa2_hopper_forward"), "#56B4E9"
FP8_ROWS = ("fp8 kernel", "flash_attention_fp8", HOPPER.name)     # as bench fp8 calls them


@figure
def fp8_times(results):
    """The time of attention in FP8, and of quantising Q, K and V for it, in percent of the bfloat16 kernel's.

    results: of bench fp8. Raises: ValueError where none of its sizes has the times of all three
    """
    sizes = {}
    for row in results["rows"]:
        if row.get("implementation") in FP8_ROWS and row.get("ms"):
            sizes.setdefault((row["d"], row["causal"], row["N"]), {})[row["implementation"]] = row
    found = [rows for _, rows in sorted(sizes.items()) if len(rows) == len(FP8_ROWS)]
    if not found:
        raise ValueError(f"results must hold times of {', '.join(FP8_ROWS)} at one size at least, found them at none")
    alone, together = ([rows[name][f"vs_{HOPPER.name}"] for rows in found] for name in FP8_ROWS[:2])
    kernels = [rows[FP8_ROWS[0]] for rows in found]
    several = len({row["d"] for row in kernels}) > 1
    names = [f"N = {row['N']}" + f", d = {row['d']}" * several + ", causal" * row["causal"] for row in kernels]
    fig, ax = panel(8.8, 1.7 + 0.46 * len(found))
    stack(ax, {name: [(100 / kernel, FP8), (100 / whole - 100 / kernel, "#B0DBF5")]
               for name, kernel, whole in zip(names, alone, together, strict=True)},
          xlabel="% of the bfloat16 kernel's time")
    for y, (kernel, whole) in enumerate(zip(alone, together, strict=True)):
        note(ax, f"{kernel:.2f} times as fast", 100 / kernel, y, -6, ha="right")
        note(ax, f"{whole:.2f} with quantising", max(100, 100 / whole), y, 6)
    ax.axvline(100, color=HOPPER.color, ls="--", lw=1.4)
    note(ax, f"bfloat16: {HOPPER.title}", 100, 1, 4, 8, xycoords=ax.get_xaxis_transform(), fontweight="bold",
         color=HOPPER.color)
    ax.set(xlim=(0, 140), xticks=range(0, 101, 20))
    ax.legend(ax.patches[:2], ["kernel", "quantising Q, K and V"], ncols=2, loc="lower left", bbox_to_anchor=(0, 1),
              frameon=False, fontsize=9, handlelength=1)
    tokens = " or ".join(f"{n:,}" for n in sorted({row["B"] * row["N"] for row in kernels}))
    return finish(fig, f"FP8's kernel is {span(alone)} times as fast as bfloat16's, with quantising {span(together)}",
                  f"{recorded(results)} d = {every(kernels, 'd')}, {kernels[0]['H']} heads, {tokens} tokens in all.")


def span(numbers):
    low, high = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return low if low == high else f"{low} to {high}"
