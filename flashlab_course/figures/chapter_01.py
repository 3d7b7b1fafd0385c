"""The picture of chapter 01: the bytes that each operation moves between HBM and the chip."""

from flashlab_course.figures.plots import bars
from flashlab_course.figures.style import figure
from flashlab_course.figures.words import bytes_text


def eager_ops(mem):
    """(name as in the formula, event) of each eager kernel that `mem` saw, in order."""
    events = [event for event in mem.log if event.kind == "eager"]
    plain = {"mul": "scale", "_softmax": "softmax", "_to_copy": "cast", "masked_fill": "mask"}
    products = iter(("QKᵀ", "PV")) if [event.name for event in events].count("mm") == 2 else iter(())
    return [(next(products, "mm") if event.name == "mm" else
             "mul" if event.name == "mul" and event.read > event.written else plain.get(event.name, event.name), event)
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
