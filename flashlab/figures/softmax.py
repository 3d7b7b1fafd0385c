"""The pictures of online softmax, and of the softmax that forgets to rescale: chapters 03 and 04."""

import math

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from flashlab.figures.style import INK, READ, WRITTEN, byte_axis, color, figure, finish
from flashlab.figures.words import bytes_text

WRONG = "#D55E00"


@figure
def softmax_passes(costs):
    """HBM bytes of each softmax. costs: name -> (read, written), in the order to draw them."""
    fig, ax = plt.subplots(figsize=(8, 1.4 + 0.5 * len(costs)))
    for y, (read, written) in enumerate(costs.values()):
        ax.barh(y, read, 0.6, color=READ)
        ax.barh(y, written, 0.6, left=read, color=WRITTEN)
        ax.annotate(f"{bytes_text(read)} read + {bytes_text(written)} written", (read + written, y), (5, 0),
                    textcoords="offset points", va="center", fontsize=9)
    totals = {name: read + written for name, (read, written) in costs.items()}
    ax.set(ylim=(len(costs) - 0.5, -0.5), xlim=(0, 1.02 * max(totals.values())), xlabel="HBM traffic (bytes)")
    ax.set_yticks(range(len(costs)), costs)
    byte_axis(ax.xaxis, linear_to=max(totals.values()))
    most, least = max(totals, key=totals.get), min(totals, key=totals.get)
    return finish(fig, f"From {most} to {least}: {bytes_text(totals[most])} of HBM traffic become {bytes_text(totals[least])}",
                  "Modelled: bytes counted by flashlab.memory. Dark: read, light: written.")


def softmax_states(xs):
    """The running softmax of the scores xs, one at a time: a list of (m, l, alpha) after each."""
    m, l, states = -math.inf, 0.0, []
    for x in map(float, xs):
        m_new = max(m, x)
        alpha = math.exp(m - m_new) if m_new > -math.inf else 1.0     # -inf - -inf: nothing seen yet, nothing to rescale
        l = alpha * l + (math.exp(x - m_new) if m_new > -math.inf else 0.0)
        m = m_new
        states.append((m, l, alpha))
    return states


@figure
def running_state(xs, states=None):
    """m and l as the scores xs arrive. states: a list of (m, l, alpha) to draw instead of the recurrence's own."""
    xs = [float(x) for x in xs]
    states = softmax_states(xs) if states is None else [tuple(map(float, state)) for state in states]
    steps = list(range(1, len(xs) + 1))
    before = [(-math.inf, 0.0), *((m, l) for m, l, _ in states)]
    rescaled = [n for n in steps if before[n - 1][1] > 0 and states[n - 1][2] != 1]
    grew = [n for n in steps if before[n - 1][1] > 0 and states[n - 1][0] > before[n - 1][0]]
    fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True)
    colour = color("online_softmax_forward")
    top.plot(steps, xs, "o", color=READ, ms=5)
    top.step(steps, [m for m, _, _ in states], where="post", color=colour)
    bottom.step(steps, [l for _, l, _ in states], where="post", color=colour)
    bottom.plot(steps, [l for _, l, _ in states], "o", color=colour, ms=4)
    for ax in (top, bottom):
        ax.vlines(rescaled, 0, 1, transform=ax.get_xaxis_transform(), color=INK, lw=0.9, ls=":")
    last, raised = -math.inf, 0
    for n in rescaled:                                                 # neighbours' labels stand on top of one another
        raised = (raised + 1) % 4 if n - last < len(xs) / 8 else 0
        top.annotate(f"α = {states[n - 1][2]:.2g}", (n, 1), (0, 2 + 10 * raised), xycoords=top.get_xaxis_transform(),
                     textcoords="offset points", fontsize=8, ha="center")
        last = n
    top.set_ylabel("score")
    top.xaxis.set_major_locator(MaxNLocator(integer=True))
    bottom.set(ylabel="l", xlabel="keys seen", ylim=(0, None))
    times = {0: "is never rescaled", 1: "is rescaled once"}.get(len(rescaled), f"is rescaled {len(rescaled)} times")
    why = "whenever the maximum grows, and only then" if rescaled == grew else f"but the maximum grows {len(grew)} times"
    if not rescaled and not grew:
        why = "no score exceeds the first"
    return finish(fig, f"In {len(xs)} keys l {times}: {why}",
                  "Modelled: the recurrence l ← α·l + exp(x − m), α = exp(m_old − m). Dots above: the scores.",
                  ends={top: [(steps[-1], states[-1][0], "m, the largest score so far", colour)],
                        bottom: [(steps[-1], states[-1][1], "l, the sum of exp(score − m)", colour)]})


@figure
def softmax_star_error(wrong, right, divided=False):
    """Each output of the tile-wise softmax* against the true one; correct outputs lie on the dashed line.

    divided: whether `wrong` was divided by the sum of its weights
    """
    wrong, right = wrong.detach().double().flatten(), right.detach().double().flatten()
    fig, ax = plt.subplots(figsize=(6.4, 4.6))
    ends = (right.min().item(), right.max().item())
    ax.plot(right, wrong, "o", color=WRONG, ms=3, alpha=0.5, mew=0)
    ax.plot(ends, ends, "--", color=INK, lw=1.2)
    ax.set(xlabel="true output", ylabel=f"output of softmax*{', divided' if divided else ''}")
    off = ((wrong - right).abs().max() / right.abs().max()).item()
    what = "Divided by its weights, softmax tile by tile is still" if divided else "Softmax tile by tile is"
    return finish(fig, f"{what} off by up to {off:.2g} times the largest true output",
                  f"Measured here: {len(right)} outputs, dots, against attention in float64, dashed.",
                  ends={ax: [(ends[1], ends[1], "correct", INK)]})
