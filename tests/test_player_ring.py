"""A ring in the player: what it shows is what the ranks of a real run have noted, and a learner's mistakes in it are named."""

import copy
import json
import re
import subprocess
import sys

import pytest
import torch

from flashlab import oracle
from flashlab.operator.ring import part, zigzag_shard
from flashlab.rungs.naive import naive_forward
from flashlab_course import ring_check
from flashlab_course.check import form
from flashlab_course.figures.chapter_14 import RANKS
from flashlab_course.lesson import replay
from flashlab_course.player import play, record, ring_recording
from flashlab_course.player.page import CSS
from flashlab_course.player.still import RANKS as OF_STILLS
from tests.test_player_page import BROWSER, in_browser

N, R = 64, 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The notes of four processes, each case forward and backward."""
    log = tmp_path_factory.mktemp("ring") / "ring.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(R), "-m", "flashlab_course.ring_check"]
    done = subprocess.run([*command, "--N", str(N), "--json", str(log)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(log.read_text(encoding="utf-8"))["runs"]


def notes(R, n=2, causal=True, zigzag=True):
    """What the ranks of a ring that is right would note, L and O left out."""
    places = torch.arange(R * n)[:, None]
    owned = [(zigzag_shard(places, r, R) if causal and zigzag else places[r * n:(r + 1) * n])[:, 0].tolist() for r in range(R)]
    ranks = []
    for rank in range(R):
        events = []
        for step in range(R):
            mine, held = part(rank, step, R, n, causal=causal, zigzag=zigzag), owned[(rank - step) % R]
            if mine:
                events.append({"did": "compute", "step": step, "queries": owned[rank][mine.rows], "keys": held[mine.keys],
                               "causal": mine.causal})
            if step < R - 1:
                events.append({"did": "send", "step": step, "keys": held, "to": (rank + 1) % R})
                events.append({"did": "receive", "step": step, "keys": owned[(rank - step - 1) % R]})
        ranks.append({"events": events})
    return ranks


def said(ring):
    return [step.note for step in ring.steps if step.note]


# ---- a real run

@pytest.mark.parametrize("name, ends", [("all", [1, 2, 3, 4]), ("causal, in order", [0.5, 1.5, 2.5, 3.5]),
                                        ("causal, zig-zag", [0.5, 1, 1.5, 2])])
def test_blocks_go_round_and_steps_last_as_long_as_their_slowest_rank(run, name, ends):
    ring = ring_recording(run[name], N, name)
    assert not said(ring) and ring.ends == ends and ring.total == ends[-1]
    for step in ring.steps:
        for rank, turn in enumerate(step.turns):
            assert {ring.owners[chunk] for chunk in turn.holds} == {(rank - step.step) % R}
            assert turn.to == ((rank + 1) % R if step.step < R - 1 else None)
            if step.step < R - 1:
                assert turn.arrives == ring.steps[2 * step.step + 2].turns[rank].holds
    assert ring.queries == ([[0, 7], [1, 6], [2, 5], [3, 4]] if "zig" in name else [[0, 1], [2, 3], [4, 5], [6, 7]])


def test_what_is_merged_is_in_the_end_the_L_and_O_of_float64(run):
    """Fails if the notes are of a block alone, or of another row than the rank's last."""
    g = torch.Generator().manual_seed(0)
    heads = ring_check.H_q, ring_check.H_kv, ring_check.H_kv
    Q, K, V = (torch.randn(ring_check.B, H, N, ring_check.d, generator=g) for H in heads)
    O, L = oracle.attention(Q, K, V, causal=True)
    ring = ring_recording(run["causal, in order"], N, "in order")
    for rank, turn in enumerate(ring.steps[-1].turns):
        last = (rank + 1) * N // R - 1
        shown = [float(text.replace("−", "-")) for text in turn.after]
        assert shown == pytest.approx([L[0, 0, last].item(), O[0, 0, last, 0].item()], abs=2e-3)
    first = ring.steps[0].turns[3]
    assert first.before == ("", "") and ring.steps[1].turns[3].after != ring.steps[3].turns[3].after, "nothing was merged"


def test_the_lines_are_those_that_ran(run):
    ring = ring_recording(run["all"], N, "all")
    ran = [[ring.lines[n].text.strip() for n in step.lines] for step in ring.steps]
    assert ran[2][0].startswith("arriving = pass_on(") and ran[2][1].startswith("O_j, L_j = flash_attention(")
    assert ran[3][0].startswith("merge(") and ran[3][1] == "block = arriving()"
    assert len(ran[1]) == 1, "in the first step there is nothing to merge into"


def test_in_order_waits_where_zigzag_is_over(run):
    """Side by side on the clock of the slowest rank: zig-zag's last place comes long before the other's."""
    player = play(*(ring_recording(run[f"causal, {name}"], N, name) for name in ("in order", "zig-zag")))
    done = next(tick for tick in player.ticks if tick[1] == 7)
    assert done[0] // 2 == 2, "in order is in step 2"
    times = [item.text for item in player.scenes[0].at(7) if " of " in item.text and item.text[0].isdigit()]
    assert times == ["0.5 of 3.5", "1.5 of 3.5", "2.5 of 3.5", "3.5 of 3.5"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome here to run the player's script in")
def test_the_page_shows_every_half_step(run, tmp_path):
    """One ring with its source, and two without."""
    rings = [ring_recording(run[f"causal, {name}"], N, name) for name in ("in order", "zig-zag")]
    shown = in_browser(tmp_path, [play(rings[0]), play(*rings)], """
      const look = (n) => ({ text: roots[n].querySelector(".said p").textContent,
        now: roots[n].querySelectorAll(".picture :is(.own0, .own1, .own2, .own3):is(rect, path):not(.past)").length,
        lit: roots[n].querySelectorAll(".source .now").length });
      for (let step = 0; step < 8; step++) { say(look(0)); key(0, "ArrowRight"); }
      key(1, "End"); say(look(1));
      say([...roots[1].querySelectorAll("option")].map((one) => one.textContent));
    """)
    *halves, last, units = shown
    assert [half["text"].split(":")[0] for half in halves] == [f"step {n // 2}" for n in range(8)]
    assert "nothing to compute on ranks 0, 1" in halves[4]["text"] and "sent on" in halves[4]["text"]
    assert halves[4]["lit"] == 2 and halves[4]["now"] == 8 + 4 + 4 + 8, "columns, ranks, blocks held, chunk pairs of ranks 2 and 3"
    assert last["lit"] == 0 and units == ["by half step", "by step"]


# ---- mistakes

@pytest.mark.parametrize("change, words", [
    (lambda events: events.remove(next(e for e in events if e["did"] == "compute" and e["step"] == 1)), "never computed"),
    (lambda events: events.append({**events[0], "step": 2}), "a second time"),
    (lambda events: events[0].update(causal=False), "needs a mask; and 2 more"),
    (lambda events: events[0].update(queries=[3], keys=[6], causal=False), "come after the queries"),
    (lambda events: events[0].update(queries=[3], keys=[1]), "another rank's"),
    (lambda events: [e.update(keys=[0, 1]) for e in events if e["did"] == "send"], "does not hold these keys"),
])
def test_what_is_wrong_is_said(change, words):
    ranks = notes(4)
    assert not said(ring_recording(ranks, 8, "right"))
    broken = copy.deepcopy(ranks)
    change(broken[1]["events"])
    assert words in " ".join(said(ring_recording(broken, 8, "wrong")))


# Right on numbers of ordinary size, in a ring that begins with its own blocks: only `check` finds them.
NOT_HERE = {"no_maximum", "no_empty_queries", "divided_by_0", "clamped_L"}
MISTAKES = [(name, mistake) for name in ("ex14_ring_step", "ex14_zigzag") for mistake in form.exercise(name).mistakes]


@pytest.mark.parametrize("name, mistake", MISTAKES, ids=lambda one: getattr(one, "name", one))
def test_a_learners_mistake_opens_where_it_shows(name, mistake):
    player = replay(name, form.exercise(name).wrong(mistake))
    bad = [n for n in range(len(player.scenes[0].frames)) if any(item.look == "status bad" for item in player.scenes[0].at(n))]
    assert (player.start in bad) if mistake.name not in NOT_HERE else not bad


@pytest.mark.parametrize("name", ["ex14_ring_step", "ex14_zigzag"])
def test_a_right_answer_goes_all_the_way_round(name, sandbox):
    player = replay(name, form.exercise(name).solution())
    looks = {item.look for n in range(8) for item in player.scenes[0].at(n)}
    assert len(player.scenes[0].frames) == 2 * R and "status bad" not in looks
    assert f"once {name} is written" in str(replay(name))
    with pytest.raises(ValueError, match="case must be None"):
        replay(name, form.exercise(name).solution(), case="one rank")


def test_an_answer_that_raises_or_computes_nothing_is_shown_or_said():
    def stops(rank, step, world):
        return [(rank, rank, True)] if step == 0 else [][rank]

    assert "IndexError" in "".join(item.text for item in replay("ex14_zigzag", stops).scenes[0].at(1))
    assert "ZeroDivisionError" in str(replay("ex14_zigzag", lambda rank, step, world: 1 / 0))
    assert "No rank computed anything" in str(replay("ex14_zigzag", lambda rank, step, world: []))
    assert "must stand beside `attend`" in str(replay("ex14_ring_step", max))


# ---- the picture

@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("zigzag", [True, False])
def test_rings_of_other_sizes_fit_in(ranks, zigzag):
    player = play(ring_recording(notes(ranks, zigzag=zigzag), 2 * ranks, "small"))
    scene = player.scenes[0]
    assert len(scene.frames) == 2 * ranks and not said(ring_recording(notes(ranks, zigzag=zigzag), 2 * ranks, ""))
    assert all(item.x + item.w <= scene.width and item.y + item.h <= scene.height for item in scene.at(len(scene.frames) - 1))
    assert player.still(0).tobytes() != player.still(2).tobytes()


def test_a_ranks_colour_is_the_same_everywhere():
    on_pages = re.findall(r"^\.flashlab-player \.own\d \{ fill: (#\w+)", CSS, re.MULTILINE)
    assert [color.upper() for color in on_pages] == list(RANKS) == list(OF_STILLS)


@pytest.mark.parametrize("call, error, words", [
    (lambda: ring_recording(notes(1), 2, ""), ValueError, "2 to 8 ranks, got 1"),
    (lambda: ring_recording(notes(9), 18, ""), ValueError, "2 to 8 ranks, got 9"),
    (lambda: ring_recording(notes(2), 6, ""), ValueError, "N must be a multiple of 4, two chunks for each rank, got 6"),
    (lambda: ring_recording([{"events": []}] * 2, 4, ""), ValueError, 'without a "compute"'),
    (lambda: play(ring_recording(notes(2), 4, ""), at=("O", (0, 0))), ValueError, "at names a place in a tensor"),
    (lambda: play(ring_recording(notes(2), 4, ""), record(naive_forward, *torch.ones(3, 4, 4))), TypeError, "or rings"),
])
def test_arguments_are_checked(call, error, words):
    with pytest.raises(error, match=words):
        call()
