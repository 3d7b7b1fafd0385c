"""What number formats can hold: sums that stop growing, numbers that fall out at either end."""

import matplotlib.pyplot as plt
import numpy as np

from flashlab_course.figures.style import FAINT, HALO, INK, READ, figure, finish

NARROW, WIDE = "#D55E00", "#0072B2"
SMALLEST, NORMAL, LARGEST = 2.0**-24, 2.0**-14, 65504.0        # of float16; from NORMAL on in full precision


@figure
def running_sums(sums, added):
    """Sums that grow by the same number again and again. sums: name of a dtype -> its sum after 1, 2, ... additions."""
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ends = []
    for name, values in sums.items():
        colour = NARROW if values[-1] < added * len(values) else WIDE
        ax.plot(range(1, len(values) + 1), values, color=colour)
        ends.append((len(values), values[-1], f"{name}: {values[-1]:,.0f}", colour))
    ax.set(xlabel=f"how many times {added:g} was added", ylabel="sum", xlim=(0, 1.22 * len(values)), ylim=(0, None))
    ax.grid(axis="y")
    stopped = [f"{name} stops at {values[-1]:,.0f}, where its numbers are {np.spacing(np.dtype(name).type(values[-1])):g} apart"
               for name, values in sums.items() if values[-1] < added * len(values)]
    return finish(fig, ", ".join(stopped) or "Every sum arrives", "Measured here: one addition after the other.", ends={ax: ends})


@figure
def float16_range(values):
    """Numbers on the line of what float16 holds. values: what it is -> positive number."""
    fig, ax = plt.subplots(figsize=(9, 2.9))
    ax.axvspan(NORMAL, LARGEST, ymax=0.42, color=WIDE, alpha=0.28, lw=0)
    ax.axvspan(SMALLEST, NORMAL, ymax=0.42, color=WIDE, alpha=0.12, lw=0)
    for x, text in ((SMALLEST, "6.0e-8\nsmallest"), (NORMAL, "6.1e-5\nfrom here on\n3 digits"), (LARGEST, "65504\nlargest")):
        ax.axvline(x, ymax=0.42, color=INK, lw=1)
        ax.annotate(text, (x, 0.03), (3, 0), textcoords="offset points", fontsize=8, va="bottom")
    lost = {}
    for n, (name, value) in enumerate(sorted(values.items(), key=lambda pair: pair[1])):
        lost[name] = value <= SMALLEST / 2 or value >= LARGEST + 16                          # what rounds to 0 or to infinity
        y = 0.56 + 0.14 * (n % 3)
        ax.plot([value, value], [0.42, y], color=FAINT, lw=1)
        ax.plot(value, 0.42, "o", color=NARROW if lost[name] else READ, zorder=5)
        ax.annotate(f"{name}: {value:.2g}", (value, y), (0, 1), textcoords="offset points", ha="center", fontsize=8.5,
                    path_effects=HALO, color=NARROW if lost[name] else READ, fontweight="bold")
    ax.set(xscale="log", xlim=(1e-13, 1e8), ylim=(0, 1), xlabel="size of a number")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    gone = [name for name, out in lost.items() if out]
    return finish(fig, f"float16 has no room for {', '.join(gone)}" if gone else "float16 holds all of these",
                  "Definition: IEEE 754 binary16; a number becomes 0 from half the smallest down, and infinite from 65520 up.")
