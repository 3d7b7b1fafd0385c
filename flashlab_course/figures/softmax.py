"""The pictures of online softmax, and of the softmax that forgets to rescale: chapters 03 and 04."""

import math
from collections import Counter

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import MaxNLocator

from flashlab_course.figures.style import FAINT, HALO, INK, READ, WRITTEN, byte_axis, color, figure, finish
from flashlab_course.figures.words import bytes_text, group

WRONG, SHADES = "#D55E00", ("#0072B2", "#009E73", "#7A1FA2")


@figure
def largest_exponentials(largest):
    """e^x on a log axis, and where each float format ends. largest: torch dtype -> largest whole x whose exponential is finite."""
    fig, ax = plt.subplots(figsize=(8, 3.6))
    right = 1.15 * max(largest.values())
    ax.plot([0, right], [1, math.exp(right)], color=READ)                   # a straight line: the axis is logarithmic
    for dtype, x in largest.items():
        top, name = torch.finfo(dtype).max, str(dtype).removeprefix("torch.")
        ax.axhline(top, color=INK, ls="--", lw=1.2)
        ax.annotate(f"largest {name}: {top:.3g}", (0.6, top), (0, 3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", fontsize=9, ha="center")
        ax.plot(x, math.exp(x), "o", color=READ)
        ax.annotate(f"x = {x}", (x, math.exp(x)), (7, -8), textcoords="offset points", fontsize=9, va="center", fontweight="bold")
    ax.set(yscale="log", xlabel="x", ylabel="exp(x)")
    ax.margins(x=0)                                                    # no fixed limits: a prediction may lie anywhere
    ends = ", ".join(f"{str(dtype).removeprefix('torch.')} at x = {x + 1}" for dtype, x in largest.items())
    return finish(fig, f"exp(x) becomes inf: {ends}",
                  "Measured here: dots, the largest whole x with a finite exponential. Dashed: torch.finfo(dtype).max.")


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
    return finish(fig, f"From {most} to {least}: {bytes_text(totals[most])} of HBM traffic becomes {bytes_text(totals[least])}",
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
    bottom.set(ylabel="sum of weights, l", xlabel="keys seen", ylim=(0, None))
    times = {0: "is never rescaled", 1: "is rescaled once"}.get(len(rescaled), f"is rescaled {len(rescaled)} times")
    why = "whenever the maximum grows, and only then" if rescaled == grew else f"but the maximum grows {len(grew)} times"
    if not rescaled and not grew:
        why = "no score exceeds the first"
    return finish(fig, f"In {len(xs)} keys l {times}: {why}",
                  "Modelled: the recurrence l ← α·l + exp(x − m), α = exp(m_old − m). Dots above: the scores.",
                  ends={top: [(steps[-1], states[-1][0], "m, the largest score so far", colour)],
                        bottom: [(steps[-1], states[-1][1], "l, the sum of exp(score − m)", colour)]})


@figure
def records(counts, N, expected):
    """How often the running maximum of N random scores grows, over many rows. counts: one number a row; expected: their mean."""
    rows = Counter(counts)
    fig, ax = plt.subplots(figsize=(8, 3.2))
    ax.bar(list(rows), list(rows.values()), 0.8, color=color("online_softmax_forward"))
    ax.axvline(expected, color=INK, ls="--", lw=1.2)
    ax.annotate(f"1 + 1/2 + … + 1/{N} = {expected:.2f}", (expected, 1), (6, -4), xycoords=("data", "axes fraction"),
                textcoords="offset points", va="top", fontsize=9, path_effects=HALO)
    ax.set(xlabel="new maxima in a row of scores, the first counted", ylabel="rows")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return finish(fig, f"Among {N} random scores {sum(counts) / len(counts):.1f} set a new maximum, on average",
                  f"Measured here: {len(counts)} rows of {N} normal random scores. Dashed: expected.")


@figure
def rounding_of_l(points):
    """The relative error of l against N, a line for each order of the scores, below what can be proved.

    points: dicts of order, N, error and bound, both in units of the format's rounding error u
    """
    fig, ax = plt.subplots(figsize=(8, 4))
    ends = []
    for (order, series), colour in zip(group(sorted(points, key=lambda p: p["N"]), "order").items(), SHADES, strict=False):
        Ns = [p["N"] for p in series]
        ax.plot(Ns, [p["error"] for p in series], "o-", color=colour)
        ax.plot(Ns, [p["bound"] for p in series], "--", color=colour, lw=1.2)
        ends += [(Ns[-1], series[-1]["error"], order, colour), (Ns[-1], series[-1]["bound"], f"bound, {order}", colour)]
    ax.set(xscale="log", yscale="log", xlabel="scores N", ylabel="relative error of l (in units of u)")
    ax.grid(axis="y")
    worst = max(points, key=lambda p: p["error"])
    longest = [p for p in points if p["N"] == max(p["N"] for p in points)]
    rescaled, best = max(longest, key=lambda p: p["bound"])["order"], min(longest, key=lambda p: p["error"])["order"]
    more = f"; rescaled most often, {rescaled} scores are the most accurate" if rescaled == best else ""
    return finish(fig, f"l is off by at most {worst['error']:.0f} u{more}",
                  "Measured here: dots, float32 against float64, u = 6e-8, several rows each. Dashed: the bound.", ends={ax: ends})


@figure
def shares_of_weight(states, counts):
    """What part of a row's softmax weight each shard of its keys holds. states: (O, m, l) of each shard; counts: its keys."""
    top = max(float(m) for _, m, _ in states)
    weights = [float(l) * math.exp(float(m) - top) for _, m, l in states]
    shares, keys = [w / sum(weights) for w in weights], [n / sum(counts) for n in counts]
    fig, ax = plt.subplots(figsize=(8, 3.2))
    for n, (share, part) in enumerate(zip(shares, keys, strict=True)):
        ax.bar(n - 0.2, 100 * part, 0.38, color=FAINT)
        ax.bar(n + 0.2, 100 * share, 0.38, color=color("online_softmax_forward"))
        ax.annotate(f"{100 * share:.0f}", (n + 0.2, 100 * share), (0, 2), textcoords="offset points", ha="center", fontsize=8.5)
    ax.set(xlabel="worker, and how many keys it had", ylabel="per cent of the row")
    ax.set_xticks(range(len(counts)), [f"{n}\n{count}" for n, count in enumerate(counts)])
    n = max(range(len(counts)), key=lambda n: shares[n] / keys[n])
    return finish(fig, f"Worker {n} had {100 * keys[n]:.0f} % of the keys and found {100 * shares[n]:.0f} % of the weight",
                  "Measured here: grey, the share of the keys; brown, the share of the sum of exp(score), l · exp(m).")


@figure
def star_weights(s, B_c):
    """The softmax weights of one row of scores, and what softmax*, each tile by its own maximum, makes of them."""
    s = s.detach().double()
    true = torch.softmax(s, 0)
    star = torch.cat([torch.exp(tile - tile.amax()) for tile in s.split(B_c)])
    star = star / star.sum()
    starts = range(0, len(s), B_c)
    fig, axes = plt.subplots(2, 1, figsize=(8, 4.4), sharex=True, sharey=True)
    highest = 100 * max(true.max(), star.max()).item()
    for ax, weights, colour, name in ((axes[0], true, READ, "softmax over the row"),
                                      (axes[1], star, WRONG, "softmax* tile by tile, then divided by the sum")):
        ax.bar(range(len(s)), (100 * weights).tolist(), 0.8, color=colour)
        ax.set(ylabel="weight (%)", ylim=(0, 1.35 * highest), title=name)
        for start in starts:
            part = weights[start:start + B_c]
            ax.annotate(f"tile: {100 * part.sum():.0f} %", (start + (len(part) - 1) / 2, 1.17 * highest), ha="center", fontsize=9)
            ax.axvline(start - 0.5, color=FAINT, lw=1) if start else None
    axes[1].set(xlabel="key", xlim=(-0.5, len(s) - 0.5))
    gaps = [abs(star[start:start + B_c].sum() - true[start:start + B_c].sum()).item() for start in starts]
    n = max(range(len(gaps)), key=gaps.__getitem__)
    part = slice(n * B_c, (n + 1) * B_c)
    return finish(fig, f"Tile {n + 1} of this row holds {100 * true[part].sum():.0f} % of the weight; softmax* gives it "
                       f"{100 * star[part].sum():.0f} %", f"Measured here: one query, {len(s)} keys, tiles of {B_c}, in float64.")
