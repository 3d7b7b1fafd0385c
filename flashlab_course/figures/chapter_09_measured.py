"""The other pictures of chapter 09 and its appendix: sectors, strides, formats, threads, speeds, errors."""

import numpy as np
from matplotlib.colors import to_rgb

from flashlab_course.figures.colors import BLUE, FAINT, INK, ORANGE, PALE, READ, WRITTEN, YOURS, ramp
from flashlab_course.figures.plots import axes, box, cells, curves, first_and_last, grid, panel, panels, plot
from flashlab_course.figures.style import HALO, bare, figure, finish, note, plain_log, set_ticks
from flashlab_course.figures.words import by
from flashlab_course.gpu.simt import SECTOR

COMPILED = "Measured here: compiled, not run."


@figure
def sectors_touched(traces, columns):
    """Which float32 numbers of A a warp's first load asks for, and the 32-byte sectors that move.

    traces: name -> Trace.
    """
    width = SECTOR // 4
    accesses = {name: next(access for step in trace.warp() for access in step.accesses if access.array == "A")
                for name, trace in traces.items()}
    rows = max(max(access.offsets) // 4 // columns for access in accesses.values()) + 1
    fig, axs = panels(len(traces), size=(4.6 * len(traces), 1.6 + 4.2 * rows / columns))
    for ax, (name, access) in zip(axs, accesses.items(), strict=True):
        for sector in {offset // SECTOR for offset in access.offsets}:
            box(ax, sector * width % columns, sector * width // columns, width, fill=WRITTEN, lw=0)
        for offset in access.offsets:
            box(ax, offset // 4 % columns, offset // 4 // columns, fill=BLUE, lw=0)
        ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", xlabel="column", ylabel="row",
               title=f"{name}: {len(access.offsets)} numbers, {access.sectors} sectors")
    counts = ", ".join(f"{access.sectors} sectors {name}" for name, access in accesses.items())
    return finish(fig, f"A load of {len(next(iter(accesses.values())).offsets)} numbers moves {counts}",
                  f"Modelled: flashlab_course.gpu.simt, a sector is {SECTOR} bytes. Dark: asked for. Light: moved "
                  "along with it.")


@figure
def slower_with_stride(rows, words, sectors=None):
    """Time of an addition of strided matrices against stride 1. rows: dicts of stride, ms.

    sectors: stride -> what somebody's ex09_uncoalesced says of it, (sectors, coalesced); what says nothing is left out
    """
    times = dict(by(rows, "stride", "ms"))
    ratios = {stride: ms / times[1] for stride, ms in times.items()}
    last = max(ratios)
    fig, ax = panel(8, 3.9)
    plot(ax, "time", ratios, BLUE)
    counts = {stride: said[0] for stride, said in (sectors or {}).items()
              if isinstance(said, tuple) and said and isinstance(said[0], int)}
    if counts.get(1):
        plot(ax, "sectors, by your\nex09_uncoalesced", {stride: count / counts[1] for stride, count in counts.items()},
             YOURS, "*--", ms=10)
    axes(ax, "stride, in elements of 4 bytes", "times as long as stride 1", log="xy", ticks=ratios, ylim=(0.7, 40),
         xlim=(0.9, 1.9 * last))
    set_ticks(ax.yaxis, [1, 2, 4, 8, 16, 32])
    return finish(fig, f"The same number of elements takes {ratios[8]:.1f} times as long at stride 8, "
                       f"{ratios[last]:.0f} times at stride "
                       f"{last}", f"{words} The matrices have the same number of elements at each stride.")


@figure
def share_of_copy(rows, words, dtype="float16"):
    """How fast softmaxes are against a copy of the same matrix, in percent. rows: dicts of N, dtype, by, ms."""
    times = {who: dict(by([row for row in rows if row["dtype"] == dtype and row["by"] == who], "N", "ms"))
             for who in ("copy", "kernel", "torch", "eager")}
    copy = times.pop("copy")
    shares = {who: {N: 100 * copy[N] / ms for N, ms in found.items() if N in copy} for who, found in times.items()}
    names = ("one program a row", BLUE), ("torch.softmax", READ), ("five kernels", ORANGE)
    lines = [(name, found, colour) for (name, colour), found in zip(names, shares.values(), strict=True)]
    ours = shares["kernel"].values()
    return curves(lines, f"The fused softmax runs at {min(ours):.0f} to {max(ours):.0f} % of a copy's speed ({dtype})",
                  words, "columns N", "% of a copy's speed", size=(8, 3.9), log="x", ticks=[256, 1024, 4096, 16384],
                  ylim=(0, 115), xlim=(0.85 * min(copy), 2.6 * max(copy)), ceilings={"a copy": 100})


@figure
def running_sums(sums, added):
    """Sums that grow by the same number again and again. sums: name of a dtype -> its sum after 1, 2, ... additions."""
    stops = {name for name, values in sums.items() if values[-1] < added * len(values)}
    count = len(next(iter(sums.values())))
    lines = [(f"{name}: {values[-1]:,.0f}", list(enumerate(values, start=1)), ORANGE if name in stops else BLUE, "-")
             for name, values in sums.items()]
    said = [f"{name} stops at {sums[name][-1]:,.0f}, where its numbers are "
            f"{np.spacing(np.dtype(name).type(sums[name][-1])):g} apart" for name in sums if name in stops]
    return curves(lines, ", ".join(said) or "Every sum arrives", "Measured here: one addition after the other.",
                  f"how many times {added:g} was added", "sum", size=(8, 3.6), xlim=(0, 1.22 * count), ylim=(0, None))


SMALLEST, NORMAL, LARGEST = 2.0**-24, 2.0**-14, 65504.0        # of float16; from NORMAL on in full precision


@figure
def float16_range(values):
    """Numbers on the line of what float16 holds. values: what it is -> positive number."""
    fig, ax = panel(9, 2.9)
    for left, right, alpha in ((NORMAL, LARGEST, 0.28), (SMALLEST, NORMAL, 0.12)):
        ax.axvspan(left, right, ymax=0.42, color=BLUE, alpha=alpha, lw=0)
    for x, text in ((SMALLEST, "6.0e-8\nsmallest"), (NORMAL, "6.1e-5\nfrom here on\n3 digits"),
                    (LARGEST, "65504\nlargest")):
        ax.axvline(x, ymax=0.42, color=INK, lw=1)
        note(ax, text, x, 0.03, 3, fontsize=8, va="bottom")
    lost = []
    for n, (name, value) in enumerate(sorted(values.items(), key=lambda pair: pair[1])):
        gone = value <= SMALLEST / 2 or value >= LARGEST + 16              # it rounds to 0 or to infinity
        y = 0.56 + 0.14 * (n % 3)
        colour = ORANGE if gone else READ
        ax.plot([value, value], [0.42, y], color=FAINT, lw=1)
        ax.plot(value, 0.42, "o", color=colour, zorder=5)
        note(ax, f"{name}: {value:.2g}", value, y, 0, 5, ha="center", fontsize=8.5, path_effects=HALO, color=colour,
             fontweight="bold")
        lost += [name] * gone
    ax.set(xscale="log", xlim=(1e-13, 1e8), ylim=(0, 1), xlabel="size of a number", yticks=[])
    ax.spines["left"].set_visible(False)
    return finish(fig, f"float16 has no room for {', '.join(lost)}" if lost else "float16 holds all of these",
                  "Definition: IEEE 754 binary16; a number becomes 0 from half the smallest down, and infinite from "
                  "65520 up.")


@figure
def elements_of_threads(layout, columns=128):
    """A block of elements in rows of `columns`: which of the first warp's lanes holds each.

    layout: of a one-dimensional block.
    """
    warp, lane = layout.holders()
    rows = -(-layout.shape[0] // columns)
    fig, ax = panel(9.6, 1.2 + 0.3 * rows)
    palette = np.array([to_rgb(fill) for fill in ("#EFEFEF", "#DCDCDC", "#C9C9C9", "#B6B6B6", ramp(BLUE, 0.15)(0.0),
                                                  ramp(BLUE, 0.15)(0.45), BLUE, "white")])
    chosen = np.full(rows * columns, 7)
    chosen[:len(warp)] = np.where(warp == 0, np.where(lane == 0, 6, 4 + lane % 2), warp % 4)
    ax.imshow(palette[chosen].reshape(rows, columns, 3), extent=(0, columns, rows, 0), aspect="auto",
              interpolation="nearest")
    ax.hlines(range(1, rows), 0, columns, color="white", lw=4)
    held = np.flatnonzero((warp == 0) & (lane == 0))
    runs = np.split(held, np.flatnonzero(np.diff(held) > 1) + 1)
    for run in runs:
        note(ax, "thread 0", run[0] % columns + len(run), run[0] // columns + 0.5, 3, fontsize=8, fontweight="bold")
    grid(ax, columns, rows, "element of the row", "row starts\nat element", first_and_last(columns),
         [n * columns for n in range(rows)], size=10)
    return finish(fig, f"Thread 0 takes {len(held)} of the {layout.shape[0]} elements, in {len(runs)} pieces of "
                       f"{len(runs[0])}", f"{COMPILED} Blue: warp 0, every second lane darker. Greys: the other warps.")


@figure
def lanes_of_tiles(layouts):
    """The first warp's lanes on a tile.

    layouts: name -> flashlab_course.compiler.layouts.Layout of a two-dimensional tile.
    """
    fig, axs = panels(len(layouts), size=(9.6, 2.9))
    along = {name: ("down a column", "along a row")[layout.order[0]] for name, layout in layouts.items()}
    for ax, (name, layout) in zip(axs, layouts.items(), strict=True):
        warp, lane = layout.holders()
        fills = np.where((warp == 0)[..., None], ramp(BLUE, lightest=0.2)(lane / 31)[..., :3], to_rgb("#F0F0F0"))
        ax.imshow(fills, extent=(0, layout.shape[1], layout.shape[0], 0), interpolation="nearest")
        ax.set(title=f"{layout.kind} {name}: {along[name]}", xticks=[], yticks=[])
        bare(ax)
    return finish(fig, "Neighbouring lanes go " + ", ".join(f"{way} of {name}" for name, way in along.items()),
                  f"{COMPILED} Blue: warp 0, lane 0 light to lane 31 dark. Grey: the other warps.")


@figure
def branches_in_code(counts):
    """Instructions left in compiled kernels. counts: kernel and flag -> {instruction: how many}."""
    fig, ax = panel(8, 0.9 + 0.5 * len(counts))
    words = list(next(iter(counts.values())))
    found = [list(kernel.values()) for kernel in counts.values()]
    cells(ax, [[READ if n else PALE for n in row] for row in found], found, gap=0.05, columns=words, rows=list(counts),
          size=10)
    with_branch = sum(bool(kernel.get("bra")) for kernel in counts.values())
    return finish(fig, f"{with_branch} of {len(counts)} compiled kernels hold a branch",
                  f"{COMPILED[:-1]}; counted in the PTX.")


@figure
def tile_order(orders, wave):
    """The order in which programs make the tiles of C = A B.

    orders: name -> list of (i, j); wave: how many run at once.
    """
    fig, axs = panels(len(orders), size=(4.6 * len(orders), 5))
    totals = []
    for ax, (name, tiles) in zip(axs, orders.items(), strict=True):
        rows, columns = ({tile[axis] for tile in tiles[:wave]} for axis in (0, 1))
        T_m, T_n = (max(tile[axis] for tile in tiles) + 1 for axis in (0, 1))
        for n, (i, j) in enumerate(tiles):
            box(ax, j, i, fill=BLUE if n < wave else PALE, text=n if T_n <= 16 else "", size=7.5,
                ink="white" if n < wave else "#888888")
        for i in rows:
            box(ax, -1.5, i + 0.08, 1, 0.84, READ, lw=0)
        for j in columns:
            box(ax, j + 0.08, -1.5, 0.84, 1, READ, lw=0)
        ax.text(-1, T_m + 0.2, "A", ha="center", va="top", fontsize=9)
        ax.text(T_n + 0.2, -1, "B", va="center", fontsize=9)
        ax.set(xlim=(-1.7, T_n + 0.8), ylim=(T_m + 0.9, -1.7), aspect="equal",
               title=f"{name}: {len(rows)} of A's strips, {len(columns)} of B's")
        ax.axis("off")
        totals.append(str(len(rows) + len(columns)))
    return finish(fig, f"{wave} programs at a time read {' or '.join(totals)} strips of A and B: the order decides",
                  "Definition: numbers are program ids. Blue: the tiles of C made at the same time; dark: what they "
                  "read.")


@figure
def order_and_time(rows, counted, words):
    """What the order of programs changes. rows: dicts of group, ms; counted: dicts of group, dram_read."""
    times, read = {row["group"]: row["ms"] for row in rows}, {row["group"]: row["dram_read"] / 1e9 for row in counted}
    fig, (left, right) = panels(2, size=(9, 3.4), width_ratios=[1, 1.6])
    left.bar(range(len(read)), list(read.values()), 0.6, color=[READ, BLUE][:len(read)])
    left.set(ylabel="GB read from DRAM", xlabel="tile rows a group")
    left.set_xticks(range(len(read)), list(read))
    plot(right, "", times, BLUE)
    axes(right, "tile rows a group", "ms", log="x", ticks=times, ylim=(0, 1.25 * max(times.values())))
    return finish(fig, f"Groups of 8 read {100 * read[8] / read[1]:.0f} % of the bytes and take "
                       f"{100 * times[8] / times[1]:.0f} % of the time of row by row", words)


@figure
def speed_and_error(rows, words):
    """What a precision costs and what it gives. rows: dicts of by, precision, tflops, mean_error."""
    fig, ax = panel(8.6, 4.4)
    for row in rows:
        x, y, ours = row["tflops"], row["mean_error"], row["by"].startswith("kernel")
        colour, hollow = BLUE if ours else READ, row["by"] == "kernel, B by columns"
        ax.plot(x, y, "o" if ours else "s", color=colour, ms=8, mfc="white" if hollow else colour)
        right, up, side = (-5, -12, "right") if row["by"] == "kernel" else (0, 12, "center")
        note(ax, row["precision"] + row["by"].removeprefix("kernel").replace("torch", ", torch"), x, y, right, up,
             ha=side, fontsize=8.5, color=colour, path_effects=HALO)
    errors = [row["mean_error"] for row in rows]
    ax.set(xscale="log", yscale="log", xlabel="TFLOP/s", ylabel="error, of the mean", xlim=(13, 2000),
           ylim=(min(errors) / 4, 4 * max(errors)))
    plain_log(ax.xaxis)
    ax.grid()
    fastest = {name: max(row["tflops"] for row in rows if row["precision"] == name) for name in ("ieee", "tf32")}
    return finish(fig, f"TF32 runs up to {fastest['tf32'] / fastest['ieee']:.1f} times as fast as float32, with three "
                       "digits", f"{words} Filled: B by rows; hollow: B by columns; squares: PyTorch.")


@figure
def share_of_library(rows, words):
    """A matrix product's speed against PyTorch's, by size. rows: dicts of n, by, tflops."""
    speeds = {who: dict(by([row for row in rows if row["by"] == who], "n", "tflops"))
              for who in ("torch", "pointers", "descriptors")}
    torch = speeds.pop("torch")
    shares = {who: {n: 100 * speed / torch[n] for n, speed in found.items() if n in torch}
              for who, found in speeds.items()}
    small, large = min(torch), max(torch)
    said = ", ".join(f"{who} {found[large]:.0f} %" for who, found in shares.items())
    said += f"; at {small}³ both are far behind" * all(found[small] < 60 for found in shares.values())
    return curves([(who, found, colour) for (who, found), colour in zip(shares.items(), (BLUE, READ), strict=True)],
                  f"Against PyTorch's product at {large}³: {said}", words, "n, of an n × n × n product", "% of torch",
                  size=(8, 3.7), log="x", ticks=sorted(torch), ylim=(0, 115), xlim=(0.9 * small, 2 * large),
                  ceilings={"torch": 100})
