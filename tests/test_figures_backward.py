"""The pictures of chapter 08: they render, and their numbers come from what they show."""

import re

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from flashlab import cost
from flashlab.memory import Memory
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass
from flashlab_course import figures
from flashlab_course.figures.backward import moved_by_tensor


def whole(fig):
    """Nothing falls off the page."""
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    box, (width, height) = fig.get_tightbbox(canvas.get_renderer()), fig.get_size_inches()
    return box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02


@pytest.mark.parametrize("N, K, M", [(3, 2, 2), (2, 1, 1), (2, 3, 4)])
def test_the_jacobian_is_drawn_as_it_is(N, K, M):
    fig = figures.jacobian_of_product(N, K, M)
    assert whole(fig) and fig._suptitle.get_text().startswith(f"1 / {N} of it is not 0")
    entries = [text.get_text() for text in fig.axes[0].texts]
    assert len(entries) == N * M * N * K and sum(text != "0" for text in entries) == N * K * M
    with pytest.raises(ValueError, match="N must be an integer >= 1, got 0"):
        figures.jacobian_of_product(0, 2, 2)


def test_traffic_by_tensor_adds_up_to_what_was_measured():
    Q, K, V, dO = (torch.randn(40, 8).half() for _ in range(4))
    O, L = fa2_forward(Q, K, V)
    logs = {}
    for f in (fa2_backward, fa2_backward_two_pass):
        with Memory() as mem:
            f(Q, K, V, O, dO, L, B_r=8, B_c=8)
        logs[f.__name__] = mem.log
        moved = moved_by_tensor(mem.log)
        read, written, _ = getattr(cost, f.__name__)(40, 40, 8, B_r=8, B_c=8, element_size=2)
        assert (sum(r for r, _ in moved.values()), sum(w for _, w in moved.values())) == (read, written)
    fig = figures.traffic_by_tensor(logs)
    assert whole(fig) and re.match(r"dQ's share of the traffic: FA2 \d+ %; FA2, two passes \d+ %", fig._suptitle.get_text())
