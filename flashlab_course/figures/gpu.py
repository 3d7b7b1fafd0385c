"""The pictures of how a GPU runs code, chapters 02 and 09: lanes, grids, addresses, sectors, the roofline."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from flashlab.ladder import RUNGS
from flashlab.validate import check_positive
from flashlab_course.figures.style import (
    FAINT,
    HALO,
    INK,
    READ,
    WRITTEN,
    bare,
    byte_axis,
    color,
    figure,
    finish,
    ink_on,
    plain_log,
    ramp,
)
from flashlab_course.figures.words import bytes_text, ratio_text
from flashlab_course.gpu.simt import SECTOR, WARP

BUSY = "#0072B2"           # a lane that works, a thread with an element, a tile in the making


@figure
def roofline(points, tb_s, tflops, words):
    """FLOPs a byte against TFLOP/s, under a device's two ceilings.

    points: dicts of "op", "flops", "bytes" and, where it was measured, "tflops"; drawn on the roof where it was not.
            "rung", the name of one, gives the colour, as an "op" that is the title of one does
    tb_s, tflops: the ceilings; words: where the numbers come from
    """
    ridge = tflops / tb_s
    xs = [point["flops"] / point["bytes"] for point in points]
    low, right = min([*xs, 0.1]) / 2, max([*xs, ridge])
    high = right * 12                                                    # room for names
    fig, ax = plt.subplots(figsize=(8, 4.8))
    ax.plot([low, ridge, high], [low * tb_s, tflops, tflops], "--", color=INK, lw=1.3)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low * tb_s / 2, tflops * 3),
           xlabel="arithmetic intensity (FLOPs for each byte of HBM)", ylabel="TFLOP/s")
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
    rungs = {r.title: r.name for r in RUNGS}
    names = {}                                                           # points on top of each other share a line of text
    for point, x in zip(points, xs, strict=True):
        y, measured = point.get("tflops") or min(x * tb_s, tflops), bool(point.get("tflops"))
        colour = color(point.get("rung") or rungs.get(point["op"].replace("(Triton)", "in Triton"), ""))     # results/ has brackets
        ax.plot(x, y, "o", color=colour, mfc=colour if measured else "white", ms=7)
        near = [(u, v, c) for u, v, c in names if max(u / x, x / u, v / y, y / v) < 1.25]
        place = near[0] if near else (x, y, colour)
        names.setdefault(place, []).append(point["op"])
    for (x, y, colour), ops in names.items():
        if x <= ridge:                                                   # under the slope; the others stand at the right
            ax.annotate(", ".join(ops), (x, y), (9, -9), textcoords="offset points", fontsize=9, color=colour,
                        fontweight="bold", va="center", path_effects=HALO)
    on_roof = sorted(((x, ops, colour) for (x, y, colour), ops in names.items() if x > ridge and y == tflops), reverse=True)
    for n, (x, ops, colour) in enumerate(on_roof):                       # above the line, and above the name to the right
        ax.annotate(", ".join(ops), (x, tflops), (-4, 8 + 13 * n), textcoords="offset points", fontsize=9, color=colour,
                    fontweight="bold", path_effects=HALO)
    ends = [(right, y, ", ".join(ops), colour) for (x, y, colour), ops in names.items() if x > ridge and y != tflops]
    ax.annotate(f"{tb_s:.3g} TB/s", (ridge / 20, ridge / 20 * tb_s), (-6, 8), textcoords="offset points", fontsize=9, ha="right")
    ax.annotate(f"{tflops:.0f} TFLOP/s", (ridge, tflops), (-4, 5), textcoords="offset points", fontsize=9, ha="right")
    ax.axvline(ridge, color=FAINT, lw=1, zorder=0)
    hollow = "" if all(point.get("tflops") for point in points) else " Filled: measured; hollow: at best."
    slow = [point["op"] for point, x in zip(points, xs, strict=True) if x < ridge]
    which = f"all {len(points)}" if len(slow) == len(points) else f"{len(slow)} of these {len(points)}"
    return finish(fig, f"Below {ridge:.0f} FLOPs a byte memory is the limit: so for {which} operations",
                  f"{words} FLOPs and bytes: counted. Dashed: ceilings.{hollow}", ends={ax: ends} if ends else None)


@figure
def bandwidth_by_footprint(rows, words, l2_bytes=None):
    """TB/s read against how much memory is read over and over. rows: dicts of "footprint" and "tb_s"."""
    rows = sorted((row for row in rows if row.get("level") != "shared memory"), key=lambda row: row["footprint"])
    sizes, rates = [row["footprint"] for row in rows], [row["tb_s"] for row in rows]
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ax.plot(sizes, rates, "o-", color=BUSY)
    ax.set(xscale="log", ylim=(0, 1.15 * max(rates)), xlabel="memory read again and again (bytes)", ylabel="TB/s read")
    byte_axis(ax.xaxis)
    ax.grid(axis="y")
    if l2_bytes:
        ax.axvline(l2_bytes, ls="--", color=INK, lw=1.2)
        ax.annotate(f"L2 cache, {bytes_text(l2_bytes)}", (l2_bytes, 0.02), (-5, 4), xycoords=("data", "axes fraction"), ha="right",
                    textcoords="offset points", fontsize=9)
    best = rates.index(max(rates))
    return finish(fig, f"{bytes_text(sizes[best])} that the L2 cache holds come {ratio_text(rates[best], rates[-1])} times "
                       f"as fast as {bytes_text(sizes[-1])} from HBM", words)


@figure
def warp_lanes(trace, block=0, warp=0):
    """A warp step by step, lane by lane: who works, who waits. trace: from flashlab_course.gpu.simt.launch; at most 40 steps."""
    steps = trace.warp(block, warp)[:40]
    lines = [step.source.split("#")[0].rstrip() for step in steps]
    fig, ax = plt.subplots(figsize=(9, 0.9 + 0.26 * len(steps) + 0.5))
    for y, step in enumerate(steps):
        for lane, active in enumerate(step.active):
            ax.add_patch(Rectangle((lane + 0.06, y + 0.1), 0.88, 0.8, fc=BUSY if active else "#EFEFEF", lw=0))
    ax.set(xlim=(0, WARP), ylim=(len(steps), 0), xlabel="lane of the warp")
    ax.set_xticks([lane + 0.5 for lane in (0, 7, 15, 23, 31)], [0, 7, 15, 23, 31])
    ax.set_yticks([y + 0.5 for y in range(len(steps))], lines, family="DejaVu Sans Mono", fontsize=8, ha="left")
    bare(ax)
    ax.tick_params(axis="y", pad=5.1 * max(map(len, lines)))
    share = 100 * sum(sum(step.active) for step in steps) / (WARP * len(steps))
    return finish(fig, f"{trace.kernel}, block {_index(steps[0].block)}, warp {warp}: {share:.0f} % of the lanes work",
                  "Modelled: flashlab_course.gpu.simt, one row a step. Blue: active. Grey: idle, its time is paid for.")


@figure
def grid_and_guard(size, block):
    """The threads of a launch over the elements they are for: N and threads a block, or (rows, columns) and (rows, columns)."""
    if isinstance(size, int):
        check_positive(N=size, block=block)
        grid, launched = -(-size // block), -(-size // block) * block
        fig, ax = plt.subplots(figsize=(9, 0.9 + 0.34 * grid + 0.6))
        for i in range(launched):
            _thread(ax, i % block, i // block, i < size)
        ax.set(xlim=(0, block), ylim=(grid, 0), xlabel="threadIdx.x", ylabel="blockIdx.x")
        ax.set_yticks([y + 0.5 for y in range(grid)], range(grid))
        ax.set_xticks([0.5, block - 0.5], [0, block - 1])
        title = (f"⌈{size}/{block}⌉ = {grid} blocks of {block} are {launched} threads for {size} elements: "
                 f"the guard stops {launched - size}")
    else:
        (rows, cols), (b_rows, b_cols) = size, block
        check_positive(rows=rows, columns=cols, block_rows=b_rows, block_columns=b_cols)
        down, across = -(-rows // b_rows), -(-cols // b_cols)
        fig, ax = plt.subplots(figsize=(8, 1.2 + 6 * down * b_rows / (across * b_cols)))
        for y in range(down * b_rows):
            for x in range(across * b_cols):
                _thread(ax, x, y, y < rows and x < cols)
        for y in range(down):
            for x in range(across):
                ax.add_patch(Rectangle((x * b_cols, y * b_rows), b_cols, b_rows, fc="none", ec=INK, lw=1.2))
        ax.set(xlim=(-0.1, across * b_cols + 0.1), ylim=(down * b_rows + 0.1, -0.1), aspect="equal", xlabel="column: x of the grid",
               ylabel="row: y of the grid")
        ax.set_xticks([(x + 0.5) * b_cols for x in range(across)], [f"blockIdx.x = {x}" for x in range(across)], fontsize=8)
        ax.set_yticks([(y + 0.5) * b_rows for y in range(down)], range(down))
        launched = down * across * b_rows * b_cols
        title = (f"⌈{cols}/{b_cols}⌉ × ⌈{rows}/{b_rows}⌉ = {across} × {down} blocks are {launched} threads for "
                 f"{rows * cols} elements: the guard stops {launched - rows * cols}")
    bare(ax)
    return finish(fig, title, "Definition: one square a thread. Blue: it has an element. Grey: it has none.")


@figure
def time_by_period(rows, words, counted=()):
    """ms of two_paths where neighbours agree in groups of `period`. counted: rows of "period" and "lanes_per_instruction"."""
    fig, ax = plt.subplots(figsize=(8, 3.4))
    lanes = {row["period"]: row["lanes_per_instruction"] for row in counted}
    for x, row in enumerate(rows):
        ax.bar(x, row["ms"], 0.66, color=BUSY if row["period"] >= WARP else READ)
        if row["period"] in lanes:
            ax.text(x, row["ms"], f"{lanes[row['period']]:.0f} of {WARP}\nlanes", ha="center", va="bottom", fontsize=8.5)
    ax.set(ylim=(0, 1.3 * max(row["ms"] for row in rows)), xlabel="period: so many neighbours take the same path", ylabel="ms")
    ax.set_xticks(range(len(rows)), ["all" if row["period"] > 1000 else row["period"] for row in rows])
    within, across = (sorted(row["ms"] for row in rows if (row["period"] < WARP) == below) for below in (True, False))
    return finish(fig, f"Where a warp's lanes disagree it takes both paths, {within[-1] / across[0]:.2f} times the time; where "
                       "whole warps disagree, nothing", f"{words}{' Lanes: hardware counter.' if lanes else ''}")


@figure
def time_by_block(rows, words):
    """ms of the same arithmetic against the threads in a block. rows: "block" and "ms"."""
    fig, ax = plt.subplots(figsize=(8, 3.2))
    for x, row in enumerate(rows):
        ax.bar(x, row["ms"], 0.66, color=BUSY if row["block"] >= WARP else READ)
        if row["block"] < WARP:
            ax.text(x, row["ms"], f"{WARP - row['block']} of {WARP} lanes\nhave no thread", ha="center", va="bottom", fontsize=8.5)
    ax.set(ylim=(0, 1.3 * max(row["ms"] for row in rows)), xlabel="threads in a block", ylabel="ms")
    ax.set_xticks(range(len(rows)), [row["block"] for row in rows])
    full = [row["ms"] for row in rows if row["block"] >= WARP]
    return finish(fig, f"A block of {rows[0]['block']} threads takes {ratio_text(rows[0]['ms'], full[0])} times as long as one of "
                       f"{WARP}: the empty lanes are paid for", words)


@figure
def bandwidth_by_block(rows, words):
    """TB/s of vector addition against the threads in a block; as dashed lines those without a "block" of threads."""
    cuda = sorted((row for row in rows if row["by"] == "CUDA C++"), key=lambda row: row["block"])
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ax.plot([row["block"] for row in cuda], [row["tb_s"] for row in cuda], "o-", color=BUSY)
    best = max(row["tb_s"] for row in rows)
    for row in rows:
        if row["by"] == "PyTorch":
            ax.axhline(row["tb_s"], ls="--", color=INK, lw=1.2)
            ax.annotate("PyTorch", (0, row["tb_s"]), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points",
                        fontsize=9)
    ax.set(xscale="log", ylim=(0, 1.15 * best), xlabel="threads in a block", ylabel="TB/s moved")
    ax.set_xticks([row["block"] for row in cuda], [row["block"] for row in cuda])
    ax.minorticks_off()
    ax.grid(axis="y")
    fastest, warp = max(cuda, key=lambda row: row["tb_s"]), next(row for row in cuda if row["block"] == WARP)
    return finish(fig, f"Blocks of {WARP} threads, every lane busy, move {ratio_text(fastest['tb_s'], warp['tb_s'])} times fewer "
                       f"bytes a second than blocks of {fastest['block']}", words)


@figure
def halving(values):
    """A block's sum in shared memory, round by round: in each, the first half of the threads adds what lies in the second half."""
    rounds, half = [list(values)], len(values) // 2
    while half:
        last = rounds[-1]
        rounds.append([last[t] + last[t + half] if t < half else last[t] for t in range(len(values))])
        half //= 2
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.75 * len(rounds)))
    for y, row in enumerate(rounds):
        written = len(values) >> y
        for x, value in enumerate(row):
            ax.add_patch(Rectangle((x + 0.06, 1.5 * y), 0.88, 0.8, fc=BUSY if x < written else "#E9EDF2", lw=0))
            ax.text(x + 0.5, 1.5 * y + 0.4, f"{value:g}", ha="center", va="center", fontsize=9,
                    color="white" if x < written else INK)
        for x in range(written // 2 if y + 1 < len(rounds) else 0):
            for source in (x, x + written // 2):
                ax.annotate("", (x + 0.5, 1.5 * y + 1.5), (source + 0.5, 1.5 * y + 0.8),
                            arrowprops={"arrowstyle": "->", "color": READ, "lw": 1})
        text = "written" if y == 0 else f"round {y}"
        ax.text(-0.2, 1.5 * y + 0.4, text, ha="right", va="center", fontsize=9)
    ax.set(xlim=(-1.4, len(values)), ylim=(1.5 * len(rounds) - 0.5, -0.1))
    ax.axis("off")
    return finish(fig, f"{len(values)} threads sum {len(values)} numbers in {len(rounds) - 1} rounds, with a barrier before each",
                  "Definition: what lies in shared memory. Blue: numbers that still count; arrows: who adds what.")


def _thread(ax, x, y, busy):
    ax.add_patch(Rectangle((x + 0.06, y + 0.06), 0.88, 0.88, fc=BUSY if busy else "#E4E4E4", lw=0))


@figure
def layout_addresses(views):
    """Tensors of one storage: where each element lies. views: name -> two-dimensional tensor, small."""
    first = next(iter(views.values()))
    if any(T.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() for T in views.values()):
        raise ValueError("views must share one storage: a copy has addresses of its own")
    count = first.untyped_storage().nbytes() // first.element_size()
    shades = ramp(BUSY, lightest=0.08)
    height = max(T.shape[0] for T in views.values())
    width = sum(T.shape[1] for T in views.values()) + 1.5 * (len(views) - 1)
    fig, (top, below) = plt.subplots(2, 1, figsize=(9, 2.4 + 9 * height / max(width, count)),
                                     gridspec_kw={"height_ratios": [1, max(1, height) * count / max(width, count) / 1.2]})
    for address in range(count):
        _cell(top, address, 0, address, shades, count)
    top.set(xlim=(-0.1, count + 0.1), ylim=(1.05, -0.05), aspect="equal", title="memory: addresses, counted in elements")
    x = 0
    for name, T in views.items():
        for i in range(T.shape[0]):
            for j in range(T.shape[1]):
                _cell(below, x + j, i, T.storage_offset() + i * T.stride(0) + j * T.stride(1), shades, count)
        below.text(x, -0.25, f"{name}\nshape {tuple(T.shape)}, strides {T.stride()}", va="bottom", fontsize=9)
        x += T.shape[1] + 1.5
    below.set(xlim=(-0.1, x - 1.4), ylim=(height + 0.05, -1.4), aspect="equal")
    for ax in (top, below):
        ax.axis("off")
    return finish(fig, f"{len(views)} tensors, one memory: only the strides differ",
                  "Measured here: T.stride() and T.storage_offset(). Element (i, j) lies at offset + i · stride 0 + j · stride 1.")


def _cell(ax, x, y, address, shades, count):
    shade = shades(address / max(1, count - 1))
    ax.add_patch(Rectangle((x, y), 1, 1, fc=shade, ec="white", lw=1.5))
    ax.text(x + 0.5, y + 0.5, address, ha="center", va="center", fontsize=9, color=ink_on(shade))


@figure
def sectors_touched(traces, columns, array="A", itemsize=4):
    """Which numbers of a matrix a warp's first load asks for, and the 32-byte sectors that move. traces: name -> Trace."""
    per_sector = SECTOR // itemsize
    accesses = {name: next(access for step in trace.warp() for access in step.accesses if access.array == array)
                for name, trace in traces.items()}
    rows = max(max(access.offsets) // itemsize // columns for access in accesses.values()) + 1
    fig, axes = plt.subplots(1, len(traces), figsize=(4.6 * len(traces), 1.6 + 4.2 * rows / columns), squeeze=False)
    for ax, (name, access) in zip(axes[0], accesses.items(), strict=True):
        for first in {offset // SECTOR * per_sector for offset in access.offsets}:
            ax.add_patch(Rectangle((first % columns, first // columns), per_sector, 1, fc=WRITTEN, lw=0))
        for offset in access.offsets:
            number = offset // itemsize
            ax.add_patch(Rectangle((number % columns, number // columns), 1, 1, fc=BUSY, lw=0))
        ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", xlabel="column", ylabel="row",
               title=f"{name}: {len(access.offsets)} numbers, {access.sectors} sectors")
    counts = {name: access.sectors for name, access in accesses.items()}
    lanes = len(next(iter(accesses.values())).offsets)
    return finish(fig, f"A load of {lanes} numbers moves " + ", ".join(f"{n} sectors {name}" for name, n in counts.items()),
                  f"Modelled: flashlab_course.gpu.simt, a sector is {SECTOR} bytes. Dark: asked for. Light: moved along with it.")


@figure
def tile_order(orders, wave):
    """The order in which programs make the tiles of C = A B. orders: name -> list of (i, j); wave: how many run at once."""
    fig, axes = plt.subplots(1, len(orders), figsize=(4.6 * len(orders), 5), squeeze=False)
    needs = {}
    for ax, (name, tiles) in zip(axes[0], orders.items(), strict=True):
        T_m, T_n = (max(tile[axis] for tile in tiles) + 1 for axis in (0, 1))
        now = tiles[:wave]
        needs[name] = len({i for i, _ in now}), len({j for _, j in now})
        for number, (i, j) in enumerate(tiles):
            ax.add_patch(Rectangle((j, i), 1, 1, fc=BUSY if number < wave else "#F3F3F3", ec="white", lw=1))
            if T_n <= 16:
                ax.text(j + 0.5, i + 0.5, number, ha="center", va="center", fontsize=7.5,
                        color="white" if number < wave else "#888888")
        for i in {i for i, _ in now}:
            ax.add_patch(Rectangle((-1.5, i + 0.08), 1, 0.84, fc=READ, lw=0))
        for j in {j for _, j in now}:
            ax.add_patch(Rectangle((j + 0.08, -1.5), 0.84, 1, fc=READ, lw=0))
        ax.text(-1, T_m + 0.2, "A", ha="center", va="top", fontsize=9)
        ax.text(T_n + 0.2, -1, "B", ha="left", va="center", fontsize=9)
        ax.set(xlim=(-1.7, T_n + 0.8), ylim=(T_m + 0.9, -1.7), aspect="equal",
               title=f"{name}: {needs[name][0]} of A's strips, {needs[name][1]} of B's")
        ax.axis("off")
    totals = [sum(need) for need in needs.values()]
    return finish(fig, f"{wave} programs at a time read {' or '.join(map(str, totals))} strips of A and B: the order decides",
                  "Definition: numbers are program ids. Blue: the tiles of C made at the same time; dark: what they read.")


def _index(block):
    """0, or (1, 2) where the grid has more than one axis."""
    block = tuple(block)
    return block[0] if block[1:] == (0, 0) else block[:2] if block[2] == 0 else block

