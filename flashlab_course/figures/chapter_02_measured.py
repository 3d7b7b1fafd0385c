"""The pictures of chapter 02's measurements: rates, latencies, copies and the roofline."""

from flashlab.ladder import RUNGS
from flashlab_course.figures.colors import BLUE, FAINT, INK, ORANGE, READ, WRITTEN, color
from flashlab_course.figures.plots import axes, curves, panel, plot, stack
from flashlab_course.figures.style import HALO, figure, finish, note
from flashlab_course.figures.words import bytes_text, ratio_text
from flashlab_course.gpu.simt import WARP

NAME = {"fontweight": "bold", "path_effects": HALO}


@figure
def bandwidth_by_footprint(rows, words, l2_bytes):
    """TB/s read against how much memory is read over and over. rows: dicts of "footprint" and "tb_s"."""
    points = sorted((row["footprint"], row["tb_s"]) for row in rows if row.get("level") != "shared memory")
    (near, fast), (far, slow) = max(points, key=lambda point: point[1]), points[-1]
    return curves([("", points, BLUE)],
                  f"{bytes_text(near)} that the L2 cache holds come {ratio_text(fast, slow)} times as fast as "
                  f"{bytes_text(far)} from HBM", words, "memory read again and again (bytes)", "TB/s read",
                  size=(8, 3.6), log="x", byte="x", ylim=(0, 1.15 * fast),
                  walls={f"L2 cache, {bytes_text(l2_bytes)}": l2_bytes})


@figure
def latency_by_footprint(rows, words):
    """ns for one load that depends on the load before, against how much memory the loads are spread over."""
    points = sorted((row["footprint"], row["ns"]) for row in rows if row["level"] != "shared memory")
    near, far = next(row["ns"] for row in rows if row["level"] == "shared memory"), points[-1][1]
    return curves([("", points, BLUE)],
                  f"A load from HBM takes {far:.0f} ns, {ratio_text(far, near)} times as long as one from shared "
                  "memory", words, "memory that the loads are spread over (bytes)", "ns for one load", size=(8, 3.6),
                  log="x", byte="x", ylim=(0, 1.15 * max(ns for _, ns in points)),
                  ceilings={f"shared memory, {near:.0f} ns": near})


@figure
def op_times(rows, tb_s, tflops, words):
    """Measured time of each operation, beside what its bytes and its FLOPs need at best, at tb_s and tflops."""
    fig, ax = panel(8, 1.4 + 0.42 * len(rows))
    stack(ax, {row["op"]: [(row["ms"] * 1000, FAINT)] for row in rows}, [f"{row['ms'] * 1000:.0f} µs" for row in rows],
          "µs")
    needs = [(row["bytes"] / tb_s / 1e6, row["flops"] / tflops / 1e6) for row in rows]
    for colour, times in zip((BLUE, ORANGE), zip(*needs, strict=True), strict=True):
        ax.plot(times, range(len(rows)), "|", color=colour, ms=17, mew=3)
    waits = sum(move > compute for move, compute in needs)
    return finish(fig, f"{waits} of {len(rows)} operations need longer for their bytes (blue) than for their "
                       "arithmetic (orange)",
                  f"{words} Grey: measured time. Marks: at best, at {tb_s:.3g} TB/s and {tflops:.0f} TFLOP/s.")


@figure
def bytes_in_flight(rows, latency_ns, tb_s, words):
    """TB/s against the bytes on their way at once, with Little's law dashed.

    rows: "in_flight", "tb_s", "each" (bytes a thread).
    """
    fig, ax = panel()
    low, high = min(row["in_flight"] for row in rows) / 2, max(row["in_flight"] for row in rows) * 2
    enough = latency_ns * tb_s * 1000
    plot(ax, "", [(low, low / latency_ns / 1000), (enough, tb_s), (high, tb_s)], INK, "--", lw=1.3)
    for each, marker, fill in ((4, "o", "white"), (16, "s", BLUE)):
        points = [(row["in_flight"], row["tb_s"]) for row in rows if row["each"] == each]
        plot(ax, f"{each} bytes a thread", points, BLUE, marker, fill)
    axes(ax, "bytes on their way at once, all SMs", "TB/s from HBM", log="xy", byte="x", xlim=(low, high))
    ax.axvline(enough, color=FAINT, lw=1, zorder=0)
    note(ax, "bytes ÷ latency", enough / 8, tb_s / 8, -8, 8, ha="right")
    note(ax, f"{tb_s:.3g} TB/s", low, tb_s, 4, 9)
    ax.legend(frameon=False, loc="lower right")
    return finish(fig, f"{bytes_text(enough)} have to be on their way all the time to keep HBM busy",
                  f"{words} Dashed: Little's law, bytes ÷ {latency_ns:.0f} ns, up to the bandwidth measured.")


@figure
def host_and_gpu(rows, words):
    """The sum of two vectors in the CPU's memory: added there, or copied to the GPU, added and copied back.

    rows: host_copies.
    """
    ms = {(row["what"], row["memory"]): row["ms"] for row in rows}
    added = ms["x + y on the GPU", ""]
    parts = {"on the CPU": [(ms["x + y on the CPU", ""], BLUE, "x + y")]}
    for memory in ("pinned", "pageable"):
        parts[f"on the GPU, {memory} memory"] = [(ms["two copies to the GPU", memory], WRITTEN, "x, y there"),
                                                 (added, BLUE, "x + y"),
                                                 (ms["one copy back", memory], WRITTEN, "sum back")]
    totals = [sum(took for took, *_ in steps) for steps in parts.values()]
    fig, ax = panel(8, 2.5)
    stack(ax, parts, [f"{total:.0f} ms" for total in totals], "ms")
    slow = ratio_text(totals[1] - added, added)
    return finish(fig, f"The GPU adds in {added:.2g} ms; the copies there and back take {slow} times as long at best",
                  f"{words} Blue: the sum. Light: copies.")


def upright(rows, key, names, texts, xlabel):
    """A new figure with a bar of ms for each row, its text on top: blue from a whole warp on, grey below."""
    fig, ax = panel(8, 3.3)
    for x, (row, text) in enumerate(zip(rows, texts, strict=True)):
        ax.bar(x, row["ms"], 0.66, color=BLUE if row[key] >= WARP else READ)
        ax.text(x, row["ms"], text, ha="center", va="bottom", fontsize=8.5)
    ax.set(ylim=(0, 1.3 * max(row["ms"] for row in rows)), xlabel=xlabel, ylabel="ms")
    ax.set_xticks(range(len(rows)), names)
    return fig


@figure
def time_by_period(rows, words, counted=()):
    """ms of two_paths where neighbours agree in groups of `period`.

    counted: rows of "period" and "lanes_per_instruction".
    """
    lanes = {row["period"]: f"{row['lanes_per_instruction']:.0f} of {WARP}\nlanes" for row in counted}
    fig = upright(rows, "period", ["all" if row["period"] > 1000 else row["period"] for row in rows],
                  [lanes.get(row["period"], "") for row in rows], "period: so many neighbours take the same path")
    within = max(row["ms"] for row in rows if row["period"] < WARP)
    across = min(row["ms"] for row in rows if row["period"] >= WARP)
    return finish(fig, f"Where a warp's lanes disagree it takes both paths, {within / across:.2f} times the time; "
                       "where whole warps disagree, nothing", f"{words}{' Lanes: hardware counter.' if lanes else ''}")


@figure
def time_by_block(rows, words):
    """ms of the same arithmetic against the threads in a block. rows: "block" and "ms"."""
    blocks = [row["block"] for row in rows]
    idle = [f"{WARP - block} of {WARP} lanes\nhave no thread" if block < WARP else "" for block in blocks]
    fig = upright(rows, "block", blocks, idle, "threads in a block")
    full = next(row["ms"] for row in rows if row["block"] >= WARP)
    return finish(fig, f"A block of {blocks[0]} threads takes {ratio_text(rows[0]['ms'], full)} times as long as one "
                       f"of {WARP}: the empty lanes are paid for", words)


@figure
def bandwidth_by_block(rows, words):
    """TB/s of vector addition against the threads in a block, with PyTorch's dashed."""
    cuda = {row["block"]: row["tb_s"] for row in rows if row["by"] == "CUDA C++"}
    best = max(cuda, key=cuda.get)
    return curves([("", sorted(cuda.items()), BLUE)], f"Blocks of {WARP} threads, every lane busy, move "
                  f"{ratio_text(cuda[best], cuda[WARP])} times fewer bytes a second than blocks of {best}", words,
                  "threads in a block", "TB/s moved", size=(8, 3.6), log="x", ticks=sorted(cuda),
                  ylim=(0, 1.15 * max(row["tb_s"] for row in rows)),
                  ceilings={row["by"]: row["tb_s"] for row in rows if row["by"] == "PyTorch"})


@figure
def roofline(points, tb_s, tflops, words):
    """FLOPs a byte against TFLOP/s, under a device's two ceilings.

    points: dicts of "op", "flops", "bytes" and, where it was measured, "tflops"; drawn on the roof where it was not.
            "rung", the name of one, gives the colour, as an "op" that is the title of one does
    tb_s, tflops: the ceilings; words: where the numbers come from
    """
    ridge = tflops / tb_s
    at = {point["op"]: point["flops"] / point["bytes"] for point in points}
    low, right = min([*at.values(), 0.1]) / 2, max([*at.values(), ridge])
    fig, ax = panel(8, 4.8)
    # room for names at the right
    plot(ax, "", [(low, low * tb_s), (ridge, tflops), (12 * right, tflops)], INK, "--", lw=1.3)
    titles, places = {r.title: r.name for r in RUNGS}, {}
    for point in points:
        op, x, measured = point["op"], at[point["op"]], point.get("tflops")
        y = measured or min(x * tb_s, tflops)
        # results/ has brackets
        colour = color(point.get("rung") or titles.get(op.replace("(Triton)", "in Triton"), ""))
        ax.plot(x, y, "o", color=colour, mfc=colour if measured else "white", ms=7)
        near = [place for place in places if max(place[0] / x, x / place[0], place[1] / y, y / place[1]) < 1.25]
        # points on each other share a line of text
        places.setdefault(near[0] if near else (x, y, colour), []).append(op)
    above = 0
    for (x, y, colour), ops in sorted(places.items(), reverse=True):
        if x <= ridge:                                                   # under the slope
            note(ax, ", ".join(ops), x, y, 9, -9, color=colour, **NAME)
        elif y == tflops:                                                # on the roof: above the name to the right
            note(ax, ", ".join(ops), x, y, -4, 12 + 13 * above, color=colour, **NAME)
            above += 1
        else:
            plot(ax, ", ".join(ops), [(right, y)], colour, "")
    axes(ax, "arithmetic intensity (FLOPs for each byte of HBM)", "TFLOP/s", log="xy", xlim=(low, 12 * right),
         ylim=(low * tb_s / 2, tflops * 3))
    ax.grid(False)
    note(ax, f"{tb_s:.3g} TB/s", ridge / 20, ridge / 20 * tb_s, -6, 12, ha="right")
    note(ax, f"{tflops:.0f} TFLOP/s", ridge, tflops, -4, 9, ha="right")
    ax.axvline(ridge, color=FAINT, lw=1, zorder=0)
    hollow = "" if all(point.get("tflops") for point in points) else " Filled: measured; hollow: at best."
    slow = sum(point["flops"] / point["bytes"] < ridge for point in points)
    which = f"all {slow}" if slow == len(points) else f"{slow} of these {len(points)}"
    return finish(fig, f"Below {ridge:.0f} FLOPs a byte memory is the limit: so for {which} operations",
                  f"{words} FLOPs and bytes: counted. Dashed: ceilings.{hollow}")
