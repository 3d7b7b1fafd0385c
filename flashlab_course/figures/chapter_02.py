"""The pictures of chapter 02: the blocks that fit on an SM, and the roofline."""

from flashlab.ladder import RUNGS
from flashlab_course.figures.colors import INK, color
from flashlab_course.figures.plots import axes, bars, panel
from flashlab_course.figures.style import figure, finish, note
from flashlab_course.figures.words import bytes_text
from flashlab_course.gpu.occupancy import occupancy


@figure
def blocks_that_fit(threads, registers=32, shared=0):
    """How many blocks an SM has room for, by each of its limits: the smallest decides."""
    fit = occupancy(threads, registers, shared)
    tight = [name for name, room in fit.each.items() if room == fit.blocks]
    return bars(fit.each, f"The SM has room for {fit.blocks} block{'s' * (fit.blocks != 1)} of {threads} threads, "
                f"{fit.share:.0%} of all it could hold: the limit is {' and '.join(tight)}",
                f"Modelled: flashlab_course.gpu.occupancy, an SM of an H100 or H200. {registers} registers a thread, "
                f"{bytes_text(shared)} of shared memory a block.", "blocks that there is room for",
                worse=tight)


@figure
def roofline(points, tb_s, tflops, words):
    """FLOPs a byte against TFLOP/s, under a device's two ceilings.

    points: dicts of "op", "flops", "bytes" and, where it was measured, "tflops"; drawn hollow on the roof where it was
    not. "rung", the name of one, gives the colour, as an "op" that is the title of one does
    """
    ridge, titles = tflops / tb_s, {rung.title: rung.name for rung in RUNGS}
    at = [point["flops"] / point["bytes"] for point in points]
    low, high = min([*at, ridge / 20]) / 2, max([*at, ridge])
    fig, ax = panel(8, 4.8)
    roof = [low * tb_s, tflops, tflops]
    ax.plot([low, ridge, 6 * high], roof, "--", color=INK, lw=1.3)
    note(ax, f"{tflops:.0f} TFLOP/s", 1, tflops, xycoords=ax.get_yaxis_transform(), fontweight="bold")
    for x, point in zip(at, points, strict=True):
        measured, op = point.get("tflops"), point["op"]
        colour = color(point.get("rung") or titles.get(op.replace("(Triton)", "in Triton"), ""))   # as in results/
        ax.plot(x, measured or min(x * tb_s, tflops), "o", color=colour, label=op, zorder=6,
                mfc=colour if measured else "white")
    axes(ax, "arithmetic intensity (FLOPs for each byte of HBM)", "TFLOP/s", log="xy", xlim=(low, 6 * high),
         ylim=(low * tb_s / 2, tflops * 3))
    slow = sum(x < ridge for x in at)
    hollow = " Filled: measured; hollow: at best." * any(not point.get("tflops") for point in points)
    which = f"all {slow}" if slow == len(points) else f"{slow} of these {len(points)}"
    return finish(fig, f"Below {ridge:.0f} FLOPs a byte memory is the limit: so for {which} operations",
                  f"{words} FLOPs and bytes: counted. Dashed: {tb_s:.3g} TB/s and {tflops:.0f} TFLOP/s.{hollow}",
                  roof=tflops)
