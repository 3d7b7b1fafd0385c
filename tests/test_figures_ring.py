"""The pictures of chapter 14: what their titles claim comes from what they are given, and changes with it."""

import pytest

from flashlab_course import figures
from tests import pictures_ring as data


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


def names(fig):
    return [ax.get_title() or ax.get_title(loc="center") for ax in fig.axes]


@pytest.mark.parametrize("options", [{"causal": False}, {}, {"zigzag": False}, {"R": 4, "n": 6}])
def test_every_score_once(options):
    found = data.logs(**options)
    assert title(figures.ring_parts(found, 24 if "R" in options else 8, "Measured here: x.")).endswith("computed once")


def test_a_part_that_is_missing_or_done_twice_is_said():
    found = data.logs()
    found[1]["calls"].pop()
    assert "missing or computed twice" in title(figures.ring_parts(found, 8, "Measured here: x."))
    found = data.logs()
    found[0]["calls"].append(found[0]["calls"][-1])
    assert "missing or computed twice" in title(figures.ring_parts(found, 8, "Measured here: x."))


def test_whose_keys_a_rank_holds_is_read_off_the_run():
    assert names(figures.ring_parts(data.logs(), 8, "Measured here: x.")) == [f"keys of rank {r}" for r in (0, 1, 1, 0)]
    assert "nothing to do" in names(figures.ring_parts(data.logs(zigzag=False), 8, "Measured here: x."))


def test_the_slowest_rank_sets_the_pace():
    fig = figures.ring_work({"in order": [[0.5, 0], [0.5, 1]], "zig-zag": [[0.5, 0.5], [0.5, 0.5]]}, "x.")
    assert "1.3 times one GPU's speed in order, 2 times zig-zag" in title(fig)


def test_speed_and_memory_are_those_of_the_record():
    assert "4 GPUs are 3.60 times as fast as one at N = 65536" in title(figures.ring_speedup(data.rings()))
    assert "4 GPUs are 2.00 times" in title(figures.ring_speedup(data.rings(0.5)))
    assert title(figures.ring_memory(data.rings())) == "At N = 65536 each of 4 GPUs holds 0.5 GiB, one GPU alone 2.0"
    with pytest.raises(ValueError, match="rings of two GPUs or more"):
        figures.ring_speedup(data.rings() | {"rows": []})
    with pytest.raises(ValueError, match="rows of mode 'all'"):
        figures.ring_memory(data.rings() | {"rows": []}, mode="all")
