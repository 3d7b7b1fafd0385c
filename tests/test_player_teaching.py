"""The players of chapters 02 and 03 show what the code computes, step by step."""

import pytest
import torch

from flashlab_course.gpu import simt
from flashlab_course.gpu.simt import launch, threadIdx
from flashlab_course.player.lanes import clock, play_lanes
from flashlab_course.player.ring import play_ring
from flashlab_course.player.softmax import ADD, CONVERT, WEIGH, play_softmax, softmax_average, softmax_by_tiles, watch
from tests.pictures import ring_logs

SCORES, VALUES = [0.5, 2.0, -1.0, 3.0, 3.0, 2.5], [10.0, 20.0, 60.0, 30.0, 50.0, 40.0]


def texts(player, kind="status"):
    """What the player says at each of its steps."""
    item = next(item for item in player.scenes[0].items if item.kind == kind)
    return [item.at(n).text for n in range(len(player.scenes[0].moved))]


@pytest.mark.parametrize(("tile", "run", "growths"), [(1, softmax_average, 2), (2, softmax_by_tiles, 1)])
def test_the_bars_of_online_softmax_are_as_long_as_its_sums(tile, run, growths):
    """Fails if a bar is drawn in another unit than the sum beside it."""
    moments = watch(SCORES, VALUES, tile, run)
    for one in moments:
        parts = one.parts[:-tile] if one.line == WEIGH else one.parts          # the last are only announced
        assert sum(parts) == pytest.approx(one.now["l"])
        assert sum(p * v for p, v in zip(parts, VALUES, strict=False)) == pytest.approx(one.now["o"])
    converted = [one.now["alpha"] < 1 for one in moments if one.line == CONVERT and one.count > tile]
    assert converted == [one.grows for one in moments if one.line == CONVERT and one.count > tile]
    assert sum(converted) == growths, "an equal score is no new maximum"


@pytest.mark.parametrize(("tile", "run"), [(1, softmax_average), (2, softmax_by_tiles), (3, softmax_by_tiles)])
def test_every_step_of_online_softmax_has_a_sentence_and_its_averages_are_right(tile, run):
    said, moments = texts(play_softmax(SCORES, VALUES, tile)), watch(SCORES, VALUES, tile, run)
    assert all(said)
    scores, values = torch.tensor([SCORES, VALUES], dtype=torch.float64)
    for n, one in enumerate(moments):
        if one.line == ADD:
            seen = torch.softmax(scores[:one.count], 0) @ values[:one.count]
            assert f"o / l = {seen:.3g}, the softmax average" in said[n]
        elif one.line == CONVERT and one.grows:
            assert f"shrink to {one.now['alpha']:.3g}" in said[n]
    assert sum("shrink" in words for words in said) == sum(one.grows and one.line == CONVERT for one in moments) > 0


def test_scores_that_cannot_be_drawn_are_refused():
    for scores, values in (([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 1e9], [1.0, 2.0]), ([1.0, 2.0], [1.0, -2.0])):
        with pytest.raises(ValueError, match="takes 2 to 8 scores"):
            play_softmax(scores, values)
    with pytest.raises(ValueError, match="whole tiles"):
        play_softmax([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], tile=2)


# ---- lanes

def two_loads(X, Out, stride):
    i = threadIdx.x
    near = X[i]
    far = X[i * stride]
    Out[i] = near + far


def test_lanes_that_disagree_take_turns():
    trace = launch(simt.two_paths, 1, 32)(torch.randn(32), 32, 16, 3)
    said = texts(play_lanes(trace))
    assert len(said) == trace.warp_steps
    paths = [sum(f"only 16 lanes, from lane {first} on, take" in words for words in said) for first in (0, 16)]
    assert paths == [7, 7]
    assert said[-1].startswith("The lanes are together again. Warp 0 stores 128 bytes of X")


def test_a_warp_waits_at_a_barrier_until_the_last_one_comes():
    """Two warps add in the first round; the other two must not pass the barrier before them."""
    trace = launch(simt.block_sum, 1, 128, shared=128)(torch.randn(128), torch.zeros(1))
    ticks = clock([trace.warp(0, warp) for warp in range(4)])
    waits = next(n for n, tick in enumerate(ticks) if tick.waits)
    assert ticks[waits].waits == {2, 3} and "Warps 2 and 3 must wait" in ticks[waits].words
    assert [ticks[waits].steps[warp].line for warp in (0, 3)] == [8, 9]
    assert ticks[waits + 1].kind == "the barrier opens" and "Warps 0 and 1 came last" in ticks[waits + 1].words
    taken = [step for tick in ticks for warp, step in tick.steps.items() if step and warp not in tick.waits]
    assert len(taken) == trace.warp_steps, "a step is lost, or counted twice"


def test_shared_memory_shows_the_pairs_that_are_added_and_who_is_not_at_work():
    """Round 3 of 128 numbers: warp 0 adds 16 to 32 to the first 16, and three warps of four wait."""
    player = play_lanes(launch(simt.block_sum, 1, 128, shared=128)(torch.randn(128), torch.zeros(1)))
    words = "Warp 0 adds shared[16:32] to shared[0:16]. Warps 1, 2 and 3 must wait"
    at = next(n for n, said in enumerate(texts(player)) if said.startswith(words))
    now = [item.at(at) for item in player.scenes[0].items]
    top = next(item.y for item in now if item.text == "shared")
    row = [item.look for item in now if item.kind == "rect" and item.y == top - 11]
    assert row == ["block new"] * 16 + ["written"] * 16
    assert "12% of lanes" in [item.text for item in now], "waiting lanes count as working"
    assert not any(item.text == "shared" for item in play_lanes(launch(two_loads, 1, 32)(
        torch.randn(256), torch.zeros(32), 8)).scenes[0].items)


def test_a_strided_load_moves_more_than_it_uses():
    player = play_lanes(launch(two_loads, 1, 32)(torch.randn(256), torch.zeros(32), 8))
    near, far, _ = [name for _, name in player.stops]
    assert (near, far) == ("load: 128 of 128 bytes used", "load: 128 of 1024 bytes used")
    boxes = [item for item in player.scenes[0].items if item.kind == "rect" and item.look == "live" and item.h == 14]
    full = [sum(item.w[n] for item in boxes) for n in range(4)]
    assert full[1] == pytest.approx(full[2]) and full[1] == pytest.approx(4 * 8)


def test_a_block_that_cannot_be_followed_is_refused():
    with pytest.raises(ValueError, match="at most 4 warps .* got 5 warps"):
        play_lanes(launch(simt.vector_add, 1, 160)(*(torch.ones(8) for _ in range(3)), 8))


# ---- a ring

@pytest.mark.parametrize(("options", "busy"), [({"causal": False}, ["0, 1"] * 2), ({"zigzag": False}, ["0, 1", "1"])])
def test_blocks_of_keys_travel_and_the_ranks_that_compute_are_told(options, busy):
    player = play_ring(ring_logs(**options), 8)
    assert [words.split(": ")[-1] for words in texts(player)[1::2]] == [f"{ranks}." for ranks in busy]
    held = [item for item in player.scenes[0].items if "glide" in item.look]
    assert [held[0].y[n] for n in (0, 2)] == [held[1].y[n] for n in (2, 0)] and held[0].y[0] < held[1].y[0]
