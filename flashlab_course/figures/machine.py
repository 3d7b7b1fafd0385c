"""The pictures of chapter 02 that show the machine: a GPU with its memories, what an SM holds, how far away a byte is."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from flashlab_course.figures.style import FAINT, INK, READ, WRITTEN, bare, byte_axis, figure, finish, plain_log
from flashlab_course.figures.words import bytes_text, ratio_text, si_text
from flashlab_course.gpu.occupancy import SM, occupancy

KiB, MiB = 2**10, 2**20
# NVIDIA's whitepapers on the A100 (40 GB, SXM) and the H100 (80 GB, SXM). `shared` is an SM's L1 cache and shared memory together.
GPUS = {
    "A100": {"SMs": 108, "across": 12, "registers": 256 * KiB, "shared": 192 * KiB, "block": 163 * KiB, "L2": 40 * MiB,
             "HBM": 40e9, "HBM/s": 1.555e12},
    "H100": {"SMs": 132, "across": 12, "registers": 256 * KiB, "shared": 256 * KiB, "block": 227 * KiB, "L2": 50 * MiB,
             "HBM": 80e9, "HBM/s": 3.35e12},
}
CHIP, CORE = "#EEF2F7", "#0072B2"


@figure
def gpu_drawn(name="A100"):
    """A GPU with its SMs, its L2 cache and its HBM; beside it one SM with its registers and its shared memory."""
    gpu = _gpu(name)
    fig, (chip, one) = plt.subplots(1, 2, figsize=(9, 5.2), gridspec_kw={"width_ratios": [1.15, 1]})
    across, down = gpu["across"], gpu["SMs"] // gpu["across"]
    for n in range(gpu["SMs"]):
        first = n == across - 1
        chip.add_patch(Rectangle((n % across + 0.08, n // across + 0.08), 0.84, 0.84, fc=CORE if first else READ, lw=0))
    _box(chip, 0, down + 0.5, across, 1.3, WRITTEN, f"L2 cache, {bytes_text(gpu['L2'])}, for all SMs")
    chip.add_patch(Rectangle((-0.4, -0.4), across + 0.8, down + 2.6, fc="none", ec=INK, lw=1.2))
    chip.annotate("", (across / 2, down + 3.6), (across / 2, down + 2.2), arrowprops={"arrowstyle": "<->", "lw": 2, "color": INK})
    chip.text(across / 2 + 0.3, down + 2.9, f"{si_text(gpu['HBM/s'], 'B/s')}", va="center", fontsize=9)
    _box(chip, -0.4, down + 3.6, across + 0.8, 2.6, "#F6D8C6", f"HBM, {si_text(gpu['HBM'], 'B')}: Q, K, V, O, every tensor")
    chip.set(xlim=(-0.6, across + 0.6), ylim=(down + 6.4, -0.6), aspect="equal", title=f"the chip: {gpu['SMs']} SMs")
    for quarter in range(4):
        x = 2.5 * quarter
        one.add_patch(Rectangle((x, 0), 2.3, 5.6, fc=CHIP, ec="#AAB4C3", lw=1))
        _box(one, x + 0.15, 0.2, 2.0, 0.9, "white", "scheduler")
        _box(one, x + 0.15, 1.3, 2.0, 1.2, WRITTEN, "lanes")
        _box(one, x + 0.15, 2.7, 2.0, 1.2, WRITTEN, "tensor\ncore")
        _box(one, x + 0.15, 4.1, 2.0, 1.3, READ, f"registers\n{bytes_text(gpu['registers'] / 4)}")
    _box(one, 0, 6.0, 9.8, 1.5, CORE, f"L1 cache and shared memory, {bytes_text(gpu['shared'])};\nat most "
                                      f"{bytes_text(gpu['block'])} of it for one block")
    one.set(xlim=(-0.3, 10.1), ylim=(10, -0.6), title="one SM (blue)")
    for ax in (chip, one):
        ax.axis("off")
    return finish(fig, f"Arithmetic happens in the {gpu['SMs']} SMs of an {name}; the tensors lie outside, in HBM",
                  f"Published: NVIDIA's {name} whitepaper and CUDA C++ Programming Guide. The number of squares is right, their "
                  "places and sizes are not.")


def _gpu(name):
    if name not in GPUS:
        raise ValueError(f"name must be one of {', '.join(GPUS)}, got {name!r}")
    return GPUS[name]


def _box(ax, x, y, width, height, colour, text):
    ax.add_patch(Rectangle((x, y), width, height, fc=colour, lw=0))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8,
            color="white" if colour in (READ, CORE) else INK)


@figure
def on_chip_sizes(name="A100"):
    """Registers, L1 and shared memory, and L2 of a whole chip, beside the part of it that one block may use."""
    gpu = _gpu(name)
    sizes = {"registers, all SMs": gpu["SMs"] * gpu["registers"], "L1 and shared memory, all SMs": gpu["SMs"] * gpu["shared"],
             "L2 cache": gpu["L2"]}
    fig, ax = plt.subplots(figsize=(8, 2.4))
    for y, nbytes in enumerate(sizes.values()):
        ax.barh(y, nbytes, 0.6, color=(READ, CORE, WRITTEN)[y])
        ax.annotate(bytes_text(nbytes), (nbytes, y), (6, 0), textcoords="offset points", va="center", fontweight="bold")
    ax.set(ylim=(2.5, -0.5), xlim=(0, 1.2 * max(sizes.values())), xlabel="bytes")
    ax.set_yticks(range(3), sizes)
    ax.tick_params(axis="y", length=0)
    byte_axis(ax.xaxis, linear_to=max(sizes.values()))
    more = ratio_text(sizes["registers, all SMs"], sizes["L1 and shared memory, all SMs"])
    return finish(fig, f"The registers of an {name} hold {more} times as much as its shared memory",
                  f"Published: NVIDIA's {name} whitepaper. {gpu['SMs']} SMs with {bytes_text(gpu['registers'])} of registers and "
                  f"{bytes_text(gpu['shared'])} of L1 and shared memory each.")


@figure
def latency_by_footprint(rows, words):
    """ns for one load that depends on the load before, against how much memory the loads are spread over."""
    series = sorted((row for row in rows if row["level"] != "shared memory"), key=lambda row: row["footprint"])
    near = [row["ns"] for row in rows if row["level"] == "shared memory"]
    sizes, ns = [row["footprint"] for row in series], [row["ns"] for row in series]
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ax.plot(sizes, ns, "o-", color=CORE)
    ax.set(xscale="log", ylim=(0, 1.15 * max(ns)), xlabel="memory that the loads are spread over (bytes)", ylabel="ns for one load")
    byte_axis(ax.xaxis)
    ax.grid(axis="y")
    if near:
        ax.axhline(near[0], ls="--", color=READ, lw=1.2)
        ax.annotate(f"shared memory, {near[0]:.0f} ns", (1, near[0]), (-4, 4), xycoords=("axes fraction", "data"), ha="right",
                    textcoords="offset points", fontsize=9)
    nearest = near[0] if near else min(ns)
    return finish(fig, f"A load from HBM takes {ns[-1]:.0f} ns, {ratio_text(ns[-1], nearest)} times as long as one from "
                       f"{'shared memory' if near else 'the nearest cache'}", words)


@figure
def op_times(rows, tb_s, tflops, words):
    """Measured time of each operation, beside the times that its bytes and its FLOPs need at best, at tb_s and tflops."""
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.42 * len(rows) + 0.5))
    for y, row in enumerate(rows):
        measured, move, compute = row["ms"] * 1000, row["bytes"] / tb_s / 1e6, row["flops"] / tflops / 1e6        # µs
        ax.barh(y, measured, 0.62, color=FAINT)
        ax.plot(move, y, "|", color=CORE, ms=17, mew=3)
        ax.plot(compute, y, "|", color="#D55E00", ms=17, mew=3)
        ax.annotate(f"{measured:.0f} µs", (measured, y), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, 1.13 * max(row["ms"] * 1000 for row in rows)), xlabel="µs")
    ax.set_yticks(range(len(rows)), [row["op"] for row in rows])
    ax.tick_params(axis="y", length=0)
    waits = [row["op"] for row in rows if row["bytes"] / tb_s > row["flops"] / tflops]
    return finish(fig, f"{len(waits)} of {len(rows)} operations need longer for their bytes (blue) than for their arithmetic "
                       "(orange)",
                  f"{words} Grey: measured time. Marks: at best, at {tb_s:.3g} TB/s and {tflops:.0f} TFLOP/s.")


@figure
def bytes_in_flight(rows, latency_ns, tb_s, words):
    """TB/s against the bytes on their way at once, with Little's law dashed. rows: "in_flight", "tb_s", "each" (bytes a thread)."""
    fig, ax = plt.subplots(figsize=(8, 4))
    low, high = min(row["in_flight"] for row in rows) / 2, max(row["in_flight"] for row in rows) * 2
    enough = latency_ns * 1e-9 * tb_s * 1e12
    ax.plot([low, enough, high], [low / latency_ns / 1e3, tb_s, tb_s], "--", color=INK, lw=1.3)
    for each, marker in zip(sorted({row["each"] for row in rows}), ("o", "s"), strict=False):
        series = [row for row in rows if row["each"] == each]
        ax.plot([row["in_flight"] for row in series], [row["tb_s"] for row in series], marker, color=CORE,
                mfc="white" if each == 4 else CORE, label=f"{each} bytes a thread")
    ax.set(xscale="log", yscale="log", xlim=(low, high), xlabel="bytes on their way at once, all SMs", ylabel="TB/s from HBM")
    byte_axis(ax.xaxis)
    plain_log(ax.yaxis)
    ax.axvline(enough, color=FAINT, lw=1, zorder=0)
    ax.annotate("bytes ÷ latency", (enough / 8, tb_s / 8), (-8, 8), textcoords="offset points", ha="right", fontsize=9)
    ax.annotate(f"{tb_s:.3g} TB/s", (low, tb_s), (4, 5), textcoords="offset points", fontsize=9)
    ax.legend(frameon=False, loc="lower right")
    return finish(fig, f"{bytes_text(enough)} have to be on their way all the time to keep HBM busy",
                  f"{words} Dashed: Little's law, bytes ÷ {latency_ns:.0f} ns, up to the bandwidth measured.")


@figure
def host_and_gpu(rows, words):
    """The sum of two vectors in the CPU's memory: added there, or copied to the GPU, added and copied back. rows: host_copies."""
    ms = {(row["what"], row["memory"]): row["ms"] for row in rows}
    parts = {"on the CPU": [("x + y", ms["x + y on the CPU", ""])]}
    for memory in ("pinned", "pageable"):
        parts[f"on the GPU, {memory} memory"] = [("x, y there", ms["two copies to the GPU", memory]),
                                                 ("x + y", ms["x + y on the GPU", ""]), ("sum back", ms["one copy back", memory])]
    fig, ax = plt.subplots(figsize=(8, 2.5))
    for y, steps in enumerate(parts.values()):
        left = 0
        for name, took in steps:
            ax.barh(y, took, 0.6, left=left, color=CORE if name == "x + y" else WRITTEN)
            if took > 0.15 * max(ms.values()):
                ax.text(left + took / 2, y, name, ha="center", va="center", fontsize=8, color="white" if name == "x + y" else INK)
            left += took
        ax.annotate(f"{left:.0f} ms", (left, y), (6, 0), textcoords="offset points", va="center", fontweight="bold")
    ax.set(ylim=(2.5, -0.5), xlim=(0, 1.12 * left), xlabel="ms")
    ax.set_yticks(range(3), parts)
    ax.tick_params(axis="y", length=0)
    added = ms["x + y on the GPU", ""]
    slow = ratio_text(ms["two copies to the GPU", "pinned"] + ms["one copy back", "pinned"], added)
    return finish(fig, f"The GPU adds in {added:.2g} ms; the copies there and back take {slow} times as long at best",
                  f"{words} Blue: the sum. Light: copies.")


@figure
def sm_filled(threads, registers=32, shared=0):
    """What block after block takes of an SM's threads, places, registers and shared memory, until one of them is used up."""
    sm, fit = SM(), occupancy(threads, registers, shared)
    warps = -(-threads // 32)
    limits = {"threads": (32 * warps, sm.threads), "blocks": (1, sm.blocks),
              "registers": (-(-registers * 32 // 256) * 256 * warps, sm.registers),
              "shared memory": (shared + sm.reserved, sm.shared)}
    fig, ax = plt.subplots(figsize=(8, 2.9))
    tight = [name for name, room in fit.each.items() if room == fit.blocks]
    for y, (name, (takes, has)) in enumerate(limits.items()):
        ax.add_patch(Rectangle((0, y - 0.3), 1, 0.6, fc="#F3F3F3", ec="#AAAAAA", lw=1))
        for block in range(fit.blocks):
            ax.add_patch(Rectangle((block * takes / has, y - 0.3), takes / has, 0.6, fc=CORE, ec="white", lw=1))
        text = (bytes_text(takes), bytes_text(has)) if name == "shared memory" else (f"{takes:,}", f"{has:,}")
        ax.annotate(f"{text[0]} a block, of {text[1]}: room for {fit.each[name]}", (1, y), (8, 0), textcoords="offset points",
                    va="center", fontsize=9, fontweight="bold" if name in tight else "normal", annotation_clip=False)
    ax.set(xlim=(0, 1.75), ylim=(3.5, -0.5), xticks=[])
    ax.set_yticks(range(4), limits)
    bare(ax)
    blocks = "1 block" if fit.blocks == 1 else f"{fit.blocks} blocks"
    one = tight == ["shared memory"]
    return finish(fig, f"The SM has room for {blocks} of {threads} threads, {fit.share:.0%} of all it could hold: "
                       f"{' and '.join(tight)} allow{'s' if one else ''} no more",
                  f"Modelled: flashlab_course.gpu.occupancy, an SM of an H100 or H200. {registers} registers a thread, "
                  f"{bytes_text(shared)} of shared memory a block and {bytes_text(sm.reserved)} for the system.")
