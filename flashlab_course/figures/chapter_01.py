"""The pictures of chapter 01: a GPU's two memories, and the bytes that each operation moves between them."""

from flashlab.memory import A100_SRAM
from flashlab_course.figures.colors import READ, WRITTEN
from flashlab_course.figures.plots import bars, box, canvas, panel
from flashlab_course.figures.style import figure, finish
from flashlab_course.figures.words import bytes_text, ratio_text

# NVIDIA A100 40 GB, as in Dao et al. 2022 (arXiv:2205.14135), section 2.1 and figure 1.
A100 = {"HBM": {"bytes": 40e9, "bytes_per_s": 1.5e12}, "SRAM": {"bytes": 108 * A100_SRAM, "bytes_per_s": 19e12}}


@figure
def memory_hierarchy():
    """The capacity of HBM and SRAM as areas, to scale."""
    large, fast = A100["HBM"], A100["SRAM"]
    side = (fast["bytes"] / large["bytes"]) ** 0.5                     # of the small square, if the large one's is 1
    fig, ax = panel(7, 3.6)
    box(ax, 0, 0, 1, 1, WRITTEN, f"HBM\n{large['bytes'] / 1e9:.0f} GB\n{large['bytes_per_s'] / 1e12:g} TB/s")
    box(ax, 1.1, 0, side, side, READ, lw=0)
    ax.text(1.1, 0.06, f"SRAM\n{fast['bytes'] / 1e6:.0f} MB\n{fast['bytes_per_s'] / 1e12:g} TB/s", fontsize=9)
    canvas(ax, (0, 1.6), (0, 1))
    return finish(fig, f"SRAM is {fast['bytes_per_s'] / large['bytes_per_s']:.0f} times as fast as HBM and "
                       f"{ratio_text(large['bytes'], fast['bytes'])} times smaller",
                  f"Published: A100 40 GB, Dao et al. 2022, arXiv:2205.14135, figure 1; SRAM: {A100_SRAM // 2**10} KiB "
                  "× 108 SMs.")


def eager_ops(mem):
    """(name as in the formula, event) of each eager kernel that `mem` saw, in order."""
    events = [event for event in mem.log if event.kind == "eager"]
    plain = {"mul": "scale", "_softmax": "softmax", "_to_copy": "cast", "masked_fill": "mask"}
    products = iter(("QKᵀ", "PV")) if [event.name for event in events].count("mm") == 2 else iter(())
    return [(next(products, "mm") if event.name == "mm" else plain.get(event.name, event.name), event)
            for event in events]


@figure
def traffic_by_op(mem):
    """HBM bytes read and written by each eager kernel that `mem` saw, in order."""
    ops = eager_ops(mem)
    return bars({f"{n}  {name}": {"read": event.read, "written": event.written}
                 for n, (name, event) in enumerate(ops, start=1)},
                "Each operation reads its operands from HBM and writes its result back: "
                f"{bytes_text(mem.read + mem.written)} in {len(ops)} kernels",
                "Modelled: counted by flashlab.memory, operation by operation.", "HBM traffic", byte=True)
