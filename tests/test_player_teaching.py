"""The players of chapters 02 and 03 show what the code computes, step by step."""

from math import exp

import pytest
import torch

from flashlab_course.player.softmax import ADD, CONVERT, WEIGH, play_softmax, watch

SCORES, VALUES = [0.5, 2.0, -1.0, 3.0, 3.0, 2.5], [10.0, 20.0, 60.0, 30.0, 50.0, 40.0]


def texts(player, kind="status"):
    """What the player says at each of its steps."""
    item = next(item for item in player.scenes[0].items if item.kind == kind)
    return [item.at(n).text for n in range(len(player.scenes[0].moved))]


def test_the_bars_of_online_softmax_are_as_long_as_its_sums():
    """Fails if a bar is drawn in another unit than the sum beside it."""
    moments = watch(SCORES, VALUES)
    for one in moments:
        parts = one.parts[:-1] if one.line == WEIGH else one.parts             # the last is only announced
        assert sum(parts) == pytest.approx(one.now["l"])
        assert sum(p * v for p, v in zip(parts, VALUES, strict=False)) == pytest.approx(one.now["o"])
    converted = [one.now["alpha"] < 1 for one in moments if one.line == CONVERT and one.count > 1]
    assert converted == [one.grows for one in moments if one.line == CONVERT and one.count > 1]
    assert sum(converted) == 2, "an equal score is no new maximum"


def test_every_step_of_online_softmax_has_a_sentence_and_its_averages_are_right():
    said = texts(play_softmax(SCORES, VALUES))
    assert all(said)
    added = [n for n, one in enumerate(watch(SCORES, VALUES)) if one.line == ADD]
    scores, values = torch.tensor([SCORES, VALUES], dtype=torch.float64)
    for n in range(1, len(SCORES)):
        seen = torch.softmax(scores[:n + 1], 0) @ values[:n + 1]
        assert f"o / l = {seen:.3g}, the softmax average of the {n + 1} scores" in said[added[n]]
    assert f"shrink to {exp(-1.5):.3g}" in said[[one.line == CONVERT for one in watch(SCORES, VALUES)].index(True, 7)]


def test_scores_that_cannot_be_drawn_are_refused():
    for scores, values in (([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 1e9], [1.0, 2.0]), ([1.0, 2.0], [1.0, -2.0])):
        with pytest.raises(ValueError, match="takes 2 to 8 scores"):
            play_softmax(scores, values)
