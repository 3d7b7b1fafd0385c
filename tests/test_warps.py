"""The simulator of warps: the course's programs are right whatever takes how long, and a wrong line is named."""

import inspect
import re

import pytest

from flashlab_course.check import form
from flashlab_course.gpu import warp_programs
from flashlab_course.gpu.warps import Ring, fetch, first_error, release, simulate, wait
from flashlab_course.player.layouts import holder, play_layouts
from flashlab_course.player.machine import play_warps

ENDS = [3, 1, 4, 2]                    # blocks of keys of the persistent programs' tiles


def programs(rung, slots=2, end=7, of=None):
    """{name: program} of one program of a rung. of: name -> function"""
    of, readers = of or vars(warp_programs), 1 if rung in ("in_step", "consumer") else 2
    K, V = (Ring(name, slots, readers) for name in "KV")
    if rung == "in_step":
        return {"all warps": of["in_step"](K, V, end)}
    if rung == "persistent_consumer":
        return of["last_rung"](slots, ENDS)
    turn = lambda me: (me,) * (rung == "consumer_in_turn")
    return {"producer": of["producer"](K, V, end)} | {
        f"consumer {me}": of[rung](*turn(me), K, V, end) for me in range(readers)}


RUNGS = ("in_step", "consumer", "overlapping_consumer", "consumer_in_turn", "persistent_consumer")


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("rung", RUNGS)
def test_the_programs_of_the_rungs_are_right(rung, slots):
    """Fails if a slot, a phase or a count is wrong for some order of events, or if a tile is read out of order."""
    machine = first_error(lambda: programs(rung, slots), seeds=30)
    assert machine.error == "" and all(one.done for one in machine.warps)
    blocks = [str(j) for j in range(sum(ENDS) if rung == "persistent_consumer" else 7)]
    for unit in {span.unit for span in machine.spans if span.unit.startswith("softmax")}:
        assert [span.name for span in machine.spans if span.unit == unit] == blocks


@pytest.mark.parametrize("consumers", [1, 2, 3])
@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize("ends", [[1], [1, 1, 1], [5, 2, 1, 3]], ids=str)
def test_the_last_rung_computes_every_tile_once_and_in_turn(slots, ends, consumers):
    """Fails if a phase does not go on from tile to tile, if a turn is lost, or if a signal comes too early or never."""
    machine = first_error(lambda: warp_programs.last_rung(slots, ends, consumers), seeds=15)
    assert machine.error == "" and all(one.done for one in machine.warps)
    issued = [(who, request.arguments[2]) for who, request in machine.requests
              if request.kind == "wgmma" and request.arguments[0].name == "K"]
    assert issued == [(f"consumer {me}", j) for j in range(sum(ends)) for me in range(consumers)]
    for unit in [f"softmax, consumer {me}" for me in range(consumers)]:
        assert [span.name for span in machine.spans if span.unit == unit] == [str(j) for j in range(sum(ends))]
    read = [request.arguments[2] for _, request in machine.requests
            if request.kind == "wgmma" and request.arguments[0].name == "V"]
    assert sorted(read) == sorted([*range(sum(ends))] * consumers)


def test_the_last_rung_hangs_with_one_slot_and_with_lost_turns():
    assert "deadlock" in first_error(lambda: warp_programs.last_rung(slots=1)).error
    source = inspect.getsource(warp_programs).replace("if me == K.free[0].count - 1:", "if me == -1:")
    scope = {}
    exec(source, scope)
    assert "named barrier 12" in first_error(scope["last_rung"]).error


WRONG = {                              # what the machine says: rung, function, a piece of it, what stands in its place
    "deadlock: producer waits for K_free[0] to end a phase of parity 0":
        ("consumer", "producer", "phase ^ 1", "phase"),
    "K_free[0]": ("consumer", "consumer", "        yield release(K.free[slot])\n", ""),
    "issues the product of K": ("consumer", "consumer", "        yield wait(K.full[slot], phase)\n", ""),
    "product still reads V 0":
        ("overlapping_consumer", "overlapping_consumer",
         "        yield wgmma_wait(0)\n        yield release(V.free[before])",
         "        yield release(V.free[before])\n        yield wgmma_wait(0)"),
    "computes the softmax of S": ("overlapping_consumer", "overlapping_consumer", "yield wgmma_wait(1)", "pass"),
    "256 threads at named barrier": ("consumer_in_turn", "consumer_in_turn", "yield arrive(TURN, BOTH)", "pass"),
    "V_full[0]": ("overlapping_consumer", "overlapping_consumer", "V.full[before], (j - 1) // slots % 2",
                  "V.full[before], 0"),
    "K_full[": ("persistent_consumer", "persistent_consumer", "n, turn = end", "n, turn = 0"),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_line_is_named(words):
    """Each is an everyday mistake: a parity, a forgotten wait, a slot freed too early, a turn that nobody begins."""
    rung, function, old, new = WRONG[words]
    module, source, scope = inspect.getsource(warp_programs), inspect.getsource(getattr(warp_programs, function)), {}
    assert source.count(old) >= 1
    exec(module.replace(source, source.replace(old, new, 1)), scope)
    machine = first_error(lambda: programs(rung, of=scope), seeds=30)
    assert words in machine.error


def test_what_the_machine_refuses():
    K = Ring("K", slots=1)

    def not_a_request():
        yield "wait"

    def two_arrivals():
        yield release(K.free[0])
        yield wait(K.free[0], 0)
        yield fetch(K, 0, 0)
        yield fetch(K, 1, 0)

    assert "yields 'wait', which is no request" in simulate({"consumer": not_a_request()}).error
    assert "K 1 is copied into K_s[0] while K 0 is on its way there" in simulate({"producer": two_arrivals()}).error
    with pytest.raises(ValueError, match="slots must be an integer >= 1, got 0"):
        Ring("K", slots=0)


def test_the_player_shows_slots_barriers_waits_and_lines():
    machine = simulate(programs("consumer", end=3))
    scene = play_warps(machine).scenes[0]
    texts = {text for item in scene.items for text in ([item.text] if isinstance(item.text, str) else item.text)}
    assert {"K 0", "K 0 on its way", "1; to come: 1 arrival", "runs"} <= texts
    assert "waits for K_full[0] to end a phase of parity 0" in texts
    lit = [item for item in scene.items if item.kind == "code" and any(" now" in look for look in item.look)]
    assert all(re.search(r"yield|def ", item.text) for item in lit) and len(lit) == 11
    bars = [item for item in scene.items if item.kind == "rect" and item.look in ("product", "softmax", "copy")]
    assert len(bars) == len(machine.spans) and all(bar.w[-1] > 0 for bar in bars)


STOPS = {                              # an event: a rung that has it, what is so at its first moment, what is said
    "a tile lands": ("consumer", lambda now: "has landed" in now.what, "goes from phase 0 to phase 1"),
    "no slot is free": ("consumer", lambda now: "_free[" in now.waits["producer"], "The producer waits"),
    "a slot is free again": ("consumer", lambda now: any(phase for name, (phase, *_) in now.barriers.items()
                                                         if "_free" in name), "The slot may be filled again"),
    "a slot is used again": ("consumer", lambda now: any(holds and coming for holds, coming, _ in now.slots.values()),
                             "wait for parity 1"),
    "tensor cores idle":
        ("in_step", lambda now: now.what == "all warps has the softmax of S 0", "tensor cores were idle"),
    "a signal at a named barrier":
        ("consumer_in_turn", lambda now: now.what == "consumer 0: arrive", "of K 0 is issued, and has not ended"),
    "a wait at a named barrier":
        ("consumer_in_turn", lambda now: any("named barrier" in what for what in now.waits.values()), "256 threads"),
    "the next Q comes": ("persistent_consumer", lambda now: now.slots.get("Q_s[0]", "..")[1] == "Q 1" and any(
        readers for *_, readers in now.slots.values()), "works with Q 0"),
}


@pytest.mark.parametrize("name", STOPS)
def test_stops_are_found_in_the_trace(name):
    """Whatever takes how long: fails if a stop is elsewhere than its event."""
    rung, sees, words = STOPS[name]
    for seed in range(5):
        player = play_warps(simulate(programs(rung), seed))
        moments = simulate(programs(rung), seed).moments
        step = next(n for n, moment in enumerate(moments) if sees(moment))
        status = next(item for item in player.scenes[0].items if item.kind == "status")
        assert (step, name) in player.stops and words in status.text[step] and status.look[step] == "status look"


@pytest.mark.parametrize("rung", RUNGS)
def test_stops_lie_where_both_bars_are_seen_and_no_two_on_one_step(rung):
    """Fails if a stop lies where a bar has no length yet, says what is only queued, or hides another stop."""
    for machine in [simulate(programs(rung), seed) for seed in range(5)]:
        player = play_warps(machine)
        assert len({step for step, _ in player.stops}) == len(player.stops)
        words = next(item for item in player.scenes[0].items if item.kind == "status").text
        for step in [step for step, name in player.stops if "product beside" in name]:
            who, block, whose, tile = re.search(r"of (.+) for block (\d+) was computed, (.+) product of (.+) ran\.",
                                                words[step]).groups()
            whose = who if whose == "its own" else whose.removesuffix("'s")
            beside = [(one, other) for one in machine.spans for other in machine.spans
                      if (one.unit, one.name) == (f"softmax, {who}", block)
                      and (other.unit, other.name) == (f"tensor cores, {whose}", tile)]
            now = machine.moments[step].time
            assert any(max(one.start, other.start) < now == min(one.end, other.end) for one, other in beside)


def test_the_player_shows_named_barriers_and_leaves_out_columns_that_never_move():
    texts = [item.text for item in play_warps(simulate(programs("consumer_in_turn"))).scenes[0].items]
    assert "named barrier 13" in texts and any("128 of 256 threads have come" in text for text in texts)
    texts = [item.text for item in play_warps(simulate(programs("in_step"))).scenes[0].items]
    assert "full: phase" in texts and "free: phase" not in texts


def test_the_player_opens_where_a_run_went_wrong():
    K, V = Ring("K", 1), Ring("V", 1)
    stuck = simulate({"consumer": warp_programs.consumer(K, V, 1)})
    player = play_warps(stuck)
    assert player.start == len(player.ticks) - 1 and stuck.error.startswith("deadlock: consumer waits for K_full[0]")
    assert player.stops == [(player.start, "the hang")]
    last = [item.text[-1] for item in player.scenes[0].items if item.kind == "status"]
    assert last == ["time 0: deadlock\nconsumer waits for K_full[0], which nobody can end.\nSo nobody goes on."]


def test_the_hang_says_who_could_end_each_wait():
    """Fails if the stop at a deadlock is missing, or names the wrong programs."""
    hang = lambda machine: play_warps(machine).scenes[0].items[-1].text[-1].splitlines()[1:-1]
    source = inspect.getsource(warp_programs.producer).replace("phase ^ 1", "phase")
    exec(source, scope := vars(warp_programs).copy())
    assert hang(simulate(programs("consumer", of=scope))) == [
        "producer waits for K_free[0], which only consumer 0 can end.",
        "consumer 0 waits for K_full[0], which only producer can end."]
    nobody_begins = inspect.getsource(warp_programs.consumer_in_turn).replace("yield arrive(TURN, BOTH)", "pass")
    exec(nobody_begins, scope := vars(warp_programs).copy())
    assert hang(simulate(programs("consumer_in_turn", of=scope)))[1:] == [
        "consumer 0 waits for 256 threads at named barrier 12, which only consumer 1 can end.",
        "consumer 1 waits for 256 threads at named barrier 13, which only consumer 0 can end."]


def test_bars_have_the_names_of_their_tiles():
    """Fails if a bar that is wide enough says nothing, or speaks before it is drawn."""
    machine = simulate(programs("consumer", end=3), unsteady=False)
    names = [item.text for item in play_warps(machine).scenes[0].items if item.look == "on"]
    assert [text[-1] for text in names] == [span.name.replace(" ", "") for span in machine.spans]
    assert {text[0] for text in names} == {""}


def test_after_k_q_every_thread_holds_what_the_next_product_takes_from_it():
    """Fails if a cell of the player of layouts names a wrong thread; ex12b_layout says who holds what."""
    holds = form.exercise("ex12b_layout").solution()
    assert all(holder(row, column) == thread for thread in range(32) for row in holds(thread, 8)[0][:1]
               for column in holds(thread, 8)[1])
    rects = [item for item in play_layouts().scenes[0].items if item.kind == "rect"]
    pairs = list(zip(rects[::2], rects[1::2], strict=True))                # a cell, and its mark
    for thread in range(32):
        held = [cell.look[thread] == "block" for cell, _ in pairs]
        taken = [mark.w[thread] > 0 for _, mark in pairs]
        assert sum(held[:64]) == sum(taken[:64]) == 2 and held[64:] == taken[64:] and held[:64] != taken[:64]
