"""The pictures of chapter 06: which tensor takes the traffic, and which SM and which warp has which part."""

import math

import numpy as np

from flashlab_course.figures.colors import color
from flashlab_course.figures.plots import bars, box, matrices, panels
from flashlab_course.figures.style import figure, finish
from flashlab_course.figures.words import bytes_text, label

# Dense rates of one H100 SXM. Products (bfloat16) and float32: NVIDIA's data sheet, a multiply-add counted as two.
# Exponentials: 16 a clock and SM (CUDA C++ Programming Guide) x 132 SMs x 1.83 GHz, as in FlashAttention-3,
# arXiv:2407.08608, 3.1.
H100 = {"product": 989e12, "float32": 67e12, "exp": 3.9e12}
STATE = ("O", "l", "m")


def moved_by_tensor(log, eager=None):
    """tensor -> bytes read and written, of a log. eager: the tensor that eager kernels set to 0 or cast, if any."""
    moved = {}
    for event in log:
        name = eager if event.kind == "eager" else event.name
        if name and event.kind != "compute":
            moved[name] = moved.get(name, 0) + event.read + event.written
    return moved


@figure
def traffic_by_tensor(logs, tensors=STATE, eager=None):
    """HBM bytes of each tensor, a bar for each rung.

    logs: rung's name -> log; tensors: whose share the title says; eager: as moved_by_tensor takes it
    """
    moved = {name: moved_by_tensor(log, eager) for name, log in logs.items()}
    shares = {name: sum(one.get(T, 0) for T in tensors) / sum(one.values()) for name, one in moved.items()}
    said = ", ".join(f"{100 * share:.0f} % of the traffic in {label(name)}" for name, share in shares.items())
    return bars(moved, f"{', '.join(tensors)}: {said}",
                "Modelled: counted by flashlab.memory, reads and writes together.", "HBM traffic", byte=True)


def unit_times(d, other):
    """Seconds for one score: 4·d FLOPs in the two products, one exponential, and `other` lone float32 operations.

    A lone operation takes the place of a multiply-add, which the float32 rate counts as two.
    """
    return {"products": 4 * d / H100["product"], "exponential": 1 / H100["exp"],
            "other float32": 2 * other / H100["float32"]}


@figure
def programs_on_sms(programs, sms=132):
    """Programs on a device's SMs, one at a time on each; time to scale.

    programs: name -> their number, or (number, how long each takes)
    """
    fig, axs = panels(len(programs), size=(9, 3.4), sharey=True)
    said, last = [], 0
    for ax, (name, one) in zip(axs, programs.items(), strict=True):
        count, length = one if isinstance(one, tuple) else (one, 1)
        waves = math.ceil(count / sms)
        box(ax, 0, 0, sms, waves * length, "#E4E4E4")
        for wave in range(waves):
            box(ax, 0, wave * length, min(sms, count - wave * sms), length, color(name, "#0072B2"), lw=0.6)
        last = max(last, waves * length)
        ax.set_title(f"{label(name)}\n{waves} wave{'s' * (waves > 1)}, done at {waves * length}", fontweight="bold")
        ax.set(xlabel="SM", xlim=(0, sms), ylim=(1.05 * last, 0))
        said.append(f"{count / sms / waves:.0%} with {label(name)}")
    axs[0].set_ylabel("time")
    axs[0].yaxis.get_major_locator().set_params(integer=True)
    return finish(fig, f"{sms} SMs are busy {', '.join(said)}",
                  "Modelled: all tiles take equally long, each SM runs one program at a time. Grey: idle; white: done.")


@figure
def split_among_warps(B_r, B_c, d, warps=4):
    """Which warp holds which part of P_ij, split by keys (FA1) and by queries (FA2)."""
    mine = np.tile(np.arange(1, warps + 1), (warps, 1))
    passed = (warps - 1) * 4 * B_r * (d + 2)
    return matrices({"FA1, split by keys:\nall warps add to each row of O": mine,
                     "FA2, split by queries:\neach warp has its own rows of O": mine.T},
                    f"Split by keys, {bytes_text(passed)} pass between {warps} warps for every tile; split by queries, "
                    "none", f"Definition, after Dao 2023, section 3.3: P of {B_r} × {B_c}, d = {d}; the float32 O, m, "
                    f"l of {warps - 1} warps go through shared memory. In the cells: the warp.", "keys", "queries",
                    rows=[""], columns=[""])
