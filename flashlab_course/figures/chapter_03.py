"""The picture of chapter 03: the running state of online softmax."""

import torch

from flashlab_course.figures.colors import INK, READ, color
from flashlab_course.figures.plots import axes, panels
from flashlab_course.figures.style import figure, finish

ONLINE = color("online_softmax_forward")


@figure
def running_state(xs):
    """m and l as the scores xs, a vector, arrive one after the other."""
    xs = torch.as_tensor(xs).double()
    m = xs.cummax(0).values
    l = torch.exp(xs.logcumsumexp(0) - m)
    steps, times = range(1, len(xs) + 1), int((m.diff() > 0).sum())
    fig, (top, bottom) = panels(1, 2, size=(8, 4.6), sharex=True)
    top.plot(steps, xs, "o", color=READ, ms=5)
    top.step(steps, m, where="post", color=ONLINE, label="m, the largest score so far")
    bottom.plot(steps, l, "o-", color=ONLINE, ms=4, drawstyle="steps-post", label="l, the sum of exp(score − m)")
    for step in (m.diff().nonzero() + 2).flatten().tolist():
        top.axvline(step, color=INK, lw=0.9, ls=":")
        bottom.axvline(step, color=INK, lw=0.9, ls=":")
    axes(top, "", "score")
    axes(bottom, "keys seen", "sum of weights, l", ylim=(0, None))
    return finish(fig, f"In {len(xs)} keys the maximum grows {times} times, and l is rescaled as often",
                  "Modelled: l ← α·l + exp(x − m), α = exp(m_old − m). Dots above: the scores. Dotted: m grows.")
