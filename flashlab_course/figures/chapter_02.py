"""The pictures of chapter 02 that need no measurement: a GPU, an SM, warps, blocks, a sum in shared memory."""

from flashlab.validate import check_positive
from flashlab_course.figures.colors import BLUE, GREY, INK, PALE, READ, WRITTEN
from flashlab_course.figures.plots import box, canvas, cells, first_and_last, panel, panels, stack
from flashlab_course.figures.style import bare, figure, finish, note
from flashlab_course.figures.words import bytes_text, ratio_text, si_text
from flashlab_course.gpu.occupancy import SM, occupancy
from flashlab_course.gpu.simt import WARP

KiB, MiB = 2**10, 2**20
# NVIDIA's whitepapers on the A100 (40 GB, SXM) and the H100 (80 GB, SXM).
# `shared` is an SM's L1 cache and shared memory together.
GPUS = {
    "A100": {"SMs": 108, "registers": 256 * KiB, "shared": 192 * KiB, "block": 163 * KiB, "L2": 40 * MiB, "HBM": 40e9,
             "HBM/s": 1.555e12},
    "H100": {"SMs": 132, "registers": 256 * KiB, "shared": 256 * KiB, "block": 227 * KiB, "L2": 50 * MiB, "HBM": 80e9,
             "HBM/s": 3.35e12},
}
ACROSS = 12                # SMs in a row of the drawing
IDLE = "#E9EDF2"


@figure
def gpu_drawn(name="A100"):
    """A GPU with its SMs, its L2 cache and its HBM; beside it one SM with its registers and its shared memory."""
    gpu = of_gpu(name)
    fig, (chip, one) = panels(2, size=(9, 5.2), width_ratios=[1.15, 1])
    down = gpu["SMs"] // ACROSS
    for n in range(gpu["SMs"]):
        box(chip, n % ACROSS + 0.08, n // ACROSS + 0.08, 0.84, 0.84, BLUE if n == ACROSS - 1 else READ, lw=0)
    part(chip, 0, down + 0.5, ACROSS, 1.3, WRITTEN, f"L2 cache, {bytes_text(gpu['L2'])}, for all SMs")
    box(chip, -0.4, -0.4, ACROSS + 0.8, down + 2.6, "none", edge=INK, lw=1.2)
    chip.annotate("", (ACROSS / 2, down + 3.6), (ACROSS / 2, down + 2.2),
                  arrowprops={"arrowstyle": "<->", "lw": 2, "color": INK})
    chip.text(ACROSS / 2 + 0.3, down + 2.9, si_text(gpu["HBM/s"], "B/s"), va="center", fontsize=9)
    part(chip, -0.4, down + 3.6, ACROSS + 0.8, 2.6, "#F6D8C6",
         f"HBM, {si_text(gpu['HBM'], 'B')}: Q, K, V, O, every tensor")
    chip.set(xlim=(-0.6, ACROSS + 0.6), ylim=(down + 6.4, -0.6), aspect="equal", title=f"the chip: {gpu['SMs']} SMs")
    for x in (0, 2.5, 5, 7.5):                                             # its four quarters
        box(one, x, 0, 2.3, 5.6, "#EEF2F7", edge="#AAB4C3")
        for y, height, fill, words in ((0.2, 0.9, "white", "scheduler"), (1.3, 1.2, WRITTEN, "lanes"),
                                       (2.7, 1.2, WRITTEN, "tensor\ncore"),
                                       (4.1, 1.3, READ, f"registers\n{bytes_text(gpu['registers'] / 4)}")):
            part(one, x + 0.15, y, 2.0, height, fill, words)
    part(one, 0, 6.0, 9.8, 1.5, BLUE, f"L1 cache and shared memory, {bytes_text(gpu['shared'])};\nat most "
                                      f"{bytes_text(gpu['block'])} of it for one block")
    one.set(xlim=(-0.3, 10.1), ylim=(10, -0.6), title="one SM (blue)")
    for ax in (chip, one):
        ax.axis("off")
    return finish(fig, f"Arithmetic happens in the {gpu['SMs']} SMs of an {name}; the tensors lie outside, in HBM",
                  f"Published: NVIDIA's {name} whitepaper and CUDA C++ Programming Guide. The number of squares is "
                  "right, their places and sizes are not.")


def of_gpu(name):
    if name not in GPUS:
        raise ValueError(f"name must be one of {', '.join(GPUS)}, got {name!r}")
    return GPUS[name]


def part(ax, x, y, width, height, fill, words):
    box(ax, x, y, width, height, fill, words, lw=0, size=8)


@figure
def on_chip_sizes(name="A100"):
    """Registers, L1 and shared memory, and L2 of a whole chip."""
    gpu = of_gpu(name)
    sizes = {"registers, all SMs": gpu["SMs"] * gpu["registers"],
             "L1 and shared memory, all SMs": gpu["SMs"] * gpu["shared"], "L2 cache": gpu["L2"]}
    fig, ax = panel(8, 2.4)
    stack(ax,
          {words: [(nbytes, fill)] for (words, nbytes), fill in zip(sizes.items(), (READ, BLUE, WRITTEN), strict=True)},
          [bytes_text(nbytes) for nbytes in sizes.values()], "bytes", room=1.2, byte=True)
    return finish(fig, f"The registers of an {name} hold {ratio_text(gpu['registers'], gpu['shared'])} times as much "
                       "as its shared memory",
                  f"Published: NVIDIA's {name} whitepaper. {gpu['SMs']} SMs with {bytes_text(gpu['registers'])} of "
                  f"registers and {bytes_text(gpu['shared'])} of L1 and shared memory each.")


@figure
def sm_filled(threads, registers=32, shared=0):
    """Blocks take an SM's threads, places, registers and shared memory, until one of them is used up."""
    sm, fit, warps = SM(), occupancy(threads, registers, shared), -(-threads // WARP)
    plain = "{:,}".format
    limits = {"threads": (WARP * warps, sm.threads, plain), "blocks": (1, sm.blocks, plain),
              "registers": (-(-registers * WARP // 256) * 256 * warps, sm.registers, plain),
              "shared memory": (shared + sm.reserved, sm.shared, bytes_text)}
    fig, ax = panel(8, 2.9)
    tight = [name for name, room in fit.each.items() if room == fit.blocks]
    for y, (name, (takes, has, words)) in enumerate(limits.items()):
        box(ax, 0, y - 0.3, 1, 0.6, PALE, edge=GREY)
        for block in range(fit.blocks):
            box(ax, block * takes / has, y - 0.3, takes / has, 0.6, BLUE)
        note(ax, f"{words(takes)} a block, of {words(has)}: room for {fit.each[name]}", 1, y, 8, annotation_clip=False,
             fontweight="bold" if name in tight else "normal")
    ax.set(xlim=(0, 1.75), ylim=(3.5, -0.5), xticks=[])
    ax.set_yticks(range(4), limits)
    bare(ax)
    verb = "allows" if tight == ["shared memory"] else "allow"
    return finish(fig, f"The SM has room for {fit.blocks} block{'s' * (fit.blocks != 1)} of {threads} threads, "
                       f"{fit.share:.0%} of all it could hold: {' and '.join(tight)} {verb} no more",
                  f"Modelled: flashlab_course.gpu.occupancy, an SM of an H100 or H200. {registers} registers a thread, "
                  f"{bytes_text(shared)} of shared memory a block and {bytes_text(sm.reserved)} for the system.")


@figure
def warp_lanes(trace, block=0, warp=0):
    """A warp step by step, lane by lane: who works, who waits.

    trace: from flashlab_course.gpu.simt.launch; at most 40 steps.
    """
    steps = trace.warp(block, warp)[:40]
    lines = [step.source.split("#")[0].rstrip() for step in steps]
    fig, ax = panel(9, 1.4 + 0.26 * len(steps))
    cells(ax, [[BLUE if active else "#EFEFEF" for active in step.active] for step in steps], gap=0.07, rows=lines,
          xlabel="lane of the warp", columns={lane: lane for lane in (0, 7, 15, 23, 31)})
    for name in ax.get_yticklabels():
        name.set(family="DejaVu Sans Mono", ha="left")
    ax.tick_params(axis="y", pad=5.1 * max(map(len, lines)))
    share = sum(sum(step.active) for step in steps) / (WARP * len(steps))
    x, y, z = steps[0].block
    place = x if (y, z) == (0, 0) else (x, y) if z == 0 else (x, y, z)
    return finish(fig, f"{trace.kernel}, block {place}, warp {warp}: {100 * share:.0f} % of the lanes work",
                  "Modelled: flashlab_course.gpu.simt, one row a step. Blue: active. Grey: idle, its time is paid for.")


@figure
def grid_and_guard(size, block):
    """The threads of a launch over their elements. size, block: N and threads a block, or (rows, columns) of both."""
    if isinstance(size, int):
        check_positive(N=size, block=block)
        grid, launched = -(-size // block), -(-size // block) * block
        fig, ax = panel(9, 1.5 + 0.34 * grid)
        cells(ax, [[BLUE if y * block + x < size else "#E4E4E4" for x in range(block)] for y in range(grid)], gap=0.06,
              xlabel="threadIdx.x", ylabel="blockIdx.x", rows=range(grid), columns=first_and_last(block), size=10)
        blocks, elements = f"⌈{size}/{block}⌉ = {grid} blocks of {block}", size
    else:
        (rows, cols), (b_rows, b_cols) = size, block
        check_positive(rows=rows, columns=cols, block_rows=b_rows, block_columns=b_cols)
        down, across = -(-rows // b_rows), -(-cols // b_cols)
        fig, ax = panel(8, 1.2 + 6 * down * b_rows / (across * b_cols))
        cells(ax, [[BLUE if y < rows and x < cols else "#E4E4E4" for x in range(across * b_cols)]
                   for y in range(down * b_rows)], gap=0.06, xlabel="column: x of the grid",
              ylabel="row: y of the grid", equal=True)
        for n in range(down * across):
            box(ax, n % across * b_cols, n // across * b_rows, b_cols, b_rows, "none", edge=INK, lw=1.2)
        ax.set_xticks([(x + 0.5) * b_cols for x in range(across)], [f"blockIdx.x = {x}" for x in range(across)],
                      fontsize=8)
        ax.set_yticks([(y + 0.5) * b_rows for y in range(down)], range(down))
        blocks, elements = f"⌈{cols}/{b_cols}⌉ × ⌈{rows}/{b_rows}⌉ = {across} × {down} blocks", rows * cols
        launched = down * across * b_rows * b_cols
    return finish(fig,
                  f"{blocks} are {launched} threads for {elements} elements: the guard stops {launched - elements}",
                  "Definition: one square a thread. Blue: it has an element. Grey: it has none.")


@figure
def halving(values):
    """A block's sum in shared memory: in each round the first half of the threads adds the second half's numbers."""
    rounds, half = [list(values)], len(values) // 2
    while half:
        rounds.append([value + rounds[-1][t + half] if t < half else value for t, value in enumerate(rounds[-1])])
        half //= 2
    fig, ax = panel(8, 0.9 + 0.75 * len(rounds))
    for n, row in enumerate(rounds):
        y, written = 1.5 * n, len(values) >> n
        for x, value in enumerate(row):
            box(ax, x + 0.06, y, 0.88, 0.8, BLUE if x < written else IDLE, f"{value:g}", lw=0)
        for x in range(written if n + 1 < len(rounds) else 0):
            ax.annotate("", (x % (written // 2) + 0.5, y + 1.5), (x + 0.5, y + 0.8),
                        arrowprops={"arrowstyle": "->", "color": READ})
        ax.text(-0.2, y + 0.4, f"round {n}" if n else "written", ha="right", va="center", fontsize=9)
    canvas(ax, (-1.4, len(values)), (1.5 * len(rounds) - 0.5, -0.1), equal=False)
    return finish(fig, f"{len(values)} threads sum {len(values)} numbers in {len(rounds) - 1} rounds, with a barrier "
                       "before each",
                  "Definition: what lies in shared memory. Blue: numbers that still count; arrows: who adds what.")
