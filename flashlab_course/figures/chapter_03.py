"""The pictures of chapter 03: online softmax, its running state and its rounding."""

import math
from collections import Counter

import torch
from matplotlib.ticker import MaxNLocator

from flashlab_course.figures.colors import BLUE, FAINT, GREEN, INK, PURPLE, READ, WRITTEN, color
from flashlab_course.figures.plots import curves, panel, panels, plot, stack, wall
from flashlab_course.figures.style import figure, finish, note
from flashlab_course.figures.words import by, bytes_text, group

ONLINE = color("online_softmax_forward")


@figure
def largest_exponentials(largest):
    """e^x on a log axis, and where each float format ends.

    largest: torch dtype -> largest whole x whose exponential is finite.
    """
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in largest}
    fig, ax = panel(8, 3.6)
    right = 1.15 * max(largest.values())
    plot(ax, "", [(0, 1), (right, math.exp(right))], style="-")             # a straight line: the axis is logarithmic
    for dtype, x in largest.items():
        top = torch.finfo(dtype).max
        ax.axhline(top, color=INK, ls="--", lw=1.2)
        note(ax, f"largest {names[dtype]}: {top:.3g}", 0.6, top, 0, 7, xycoords=ax.get_yaxis_transform(), ha="center")
        ax.plot(x, math.exp(x), "o", color=READ)
        note(ax, f"x = {x}", x, math.exp(x), 7, -8, fontweight="bold")
    ax.set(yscale="log", xlabel="x", ylabel="exp(x)")
    ax.margins(x=0)                                                    # no fixed limits: a prediction may lie anywhere
    return finish(fig,
                  "exp(x) becomes inf: " + ", ".join(f"{names[dtype]} at x = {x + 1}" for dtype, x in largest.items()),
                  "Measured here: dots, the largest whole x with a finite exponential. Dashed: torch.finfo(dtype).max.")


@figure
def softmax_passes(costs):
    """HBM bytes of each softmax. costs: name -> (read, written), in the order to draw them."""
    fig, ax = panel(8, 1.4 + 0.5 * len(costs))
    stack(ax, {name: [(read, READ), (written, WRITTEN)] for name, (read, written) in costs.items()},
          [f"{bytes_text(read)} read + {bytes_text(written)} written" for read, written in costs.values()],
          "HBM traffic (bytes)", room=1.02, byte=True)
    totals = {name: sum(both) for name, both in costs.items()}
    most, least = max(totals, key=totals.get), min(totals, key=totals.get)
    return finish(fig, f"From {most} to {least}: {bytes_text(totals[most])} of HBM traffic becomes "
                       f"{bytes_text(totals[least])}",
                  "Modelled: bytes counted by flashlab.memory. Dark: read, light: written.")


def softmax_states(xs):
    """The running softmax of the scores xs, one at a time: a list of (m, l, alpha) after each."""
    m, l, states = -math.inf, 0.0, []
    for x in map(float, xs):
        m_new = max(m, x)
        seen = m_new > -math.inf                       # else -inf - -inf: nothing seen yet, nothing to rescale
        alpha = math.exp(m - m_new) if seen else 1.0
        l = alpha * l + (math.exp(x - m_new) if seen else 0.0)
        m = m_new
        states.append((m, l, alpha))
    return states


@figure
def running_state(xs):
    """m and l as the scores xs arrive."""
    xs = [float(x) for x in xs]
    ms, ls, alphas = zip(*softmax_states(xs), strict=True)
    rescaled = [n for n in range(2, len(xs) + 1) if ls[n - 2] > 0 and alphas[n - 1] != 1]
    fig, (top, bottom) = panels(1, 2, size=(8, 4.6), sharex=True)
    steps = range(1, len(xs) + 1)
    plot(top, "", zip(steps, xs, strict=True), READ, "o", ms=5)
    plot(top, "m, the largest score so far", zip(steps, ms, strict=True), ONLINE, "-", drawstyle="steps-post")
    plot(bottom, "l, the sum of exp(score − m)", zip(steps, ls, strict=True), ONLINE, "o-", ms=4,
         drawstyle="steps-post")
    for ax in (top, bottom):
        ax.vlines(rescaled, 0, 1, transform=ax.get_xaxis_transform(), color=INK, lw=0.9, ls=":")
    last, raised = -math.inf, 0
    for n in rescaled:                                                 # neighbours' labels stand on top of one another
        raised = (raised + 1) % 4 if n - last < len(xs) / 8 else 0
        note(top, f"α = {alphas[n - 1]:.2g}", n, 1, 0, 6 + 10 * raised, xycoords=top.get_xaxis_transform(), fontsize=8,
             ha="center")
        last = n
    top.set_ylabel("score")
    top.xaxis.set_major_locator(MaxNLocator(integer=True))
    bottom.set(ylabel="sum of weights, l", xlabel="keys seen", ylim=(0, None))
    times = {0: "is never rescaled", 1: "is rescaled once"}.get(len(rescaled), f"is rescaled {len(rescaled)} times")
    why = "whenever the maximum grows, and only then" if rescaled else "no score exceeds the first"
    return finish(fig, f"In {len(xs)} keys l {times}: {why}",
                  "Modelled: the recurrence l ← α·l + exp(x − m), α = exp(m_old − m). Dots above: the scores.")


@figure
def records(counts, N, expected):
    """How often the running maximum of N random scores grows, over many rows.

    counts: one number a row; expected: their mean.
    """
    rows = Counter(counts)
    fig, ax = panel(8, 3.2)
    ax.bar(list(rows), list(rows.values()), 0.8, color=ONLINE)
    wall(ax, f"1 + 1/2 + … + 1/{N} = {expected:.2f}", expected)
    ax.set(xlabel="new maxima in a row of scores, the first counted", ylabel="rows")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return finish(fig, f"Among {N} random scores {sum(counts) / len(counts):.1f} set a new maximum, on average",
                  f"Measured here: {len(counts)} rows of {N} normal random scores. Dashed: expected.")


@figure
def rounding_of_l(points):
    """The relative error of l against N, a line for each order of the scores, below what can be proved.

    points: dicts of order, N, error and bound, both in units of the format's rounding error u
    """
    lines = []
    for (order, rows), colour in zip(group(points, "order").items(), (BLUE, GREEN, PURPLE), strict=False):
        lines += [(order, by(rows, "N", "error"), colour), (f"bound, {order}", by(rows, "N", "bound"), colour, "--")]
    longest = group(points, "N")[max(p["N"] for p in points)]
    rescaled, best = max(longest, key=lambda p: p["bound"])["order"], min(longest, key=lambda p: p["error"])["order"]
    more = f"; rescaled most often, {rescaled} scores are the most accurate" if rescaled == best else ""
    return curves(lines, f"l is off by at most {max(p['error'] for p in points):.0f} u{more}",
                  "Measured here: dots, float32 against float64, u = 6e-8, several rows each. Dashed: the bound.",
                  "scores N", "relative error of l (in units of u)", log="xy")


@figure
def shares_of_weight(states, counts):
    """What part of a row's softmax weight each shard of its keys holds.

    states: (O, m, l) of each shard; counts: its keys.
    """
    top = max(float(m) for _, m, _ in states)
    weights = [float(l) * math.exp(float(m) - top) for _, m, l in states]
    shares, keys = ([100 * part / sum(parts) for part in parts] for parts in (weights, counts))
    fig, ax = panel(8, 3.2)
    for n, (share, part) in enumerate(zip(shares, keys, strict=True)):
        ax.bar(n - 0.2, part, 0.38, color=FAINT)
        ax.bar(n + 0.2, share, 0.38, color=ONLINE)
        note(ax, f"{share:.0f}", n + 0.2, share, 0, 6, ha="center", fontsize=8.5)
    ax.set(xlabel="worker, and how many keys it had", ylabel="per cent of the row")
    ax.set_xticks(range(len(counts)), [f"{n}\n{count}" for n, count in enumerate(counts)])
    n = max(range(len(counts)), key=lambda n: shares[n] / keys[n])
    return finish(fig, f"Worker {n} had {keys[n]:.0f} % of the keys and found {shares[n]:.0f} % of the weight",
                  "Measured here: grey, the share of the keys; brown, the share of the sum of exp(score), l · exp(m).")
