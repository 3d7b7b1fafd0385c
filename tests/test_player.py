"""The player's recordings say what happened, also in a learner's broken function and in a Triton kernel."""

import json
import re
import sys
from dataclasses import asdict
from xml.etree import ElementTree

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import cost
from flashlab.ladder import BACKWARD_RUNGS, DECODING_RUNGS, RUNGS
from flashlab.memory import KiB, Memory, kernel, load, store, tiles
from flashlab.rungs.block_matmul import block_matmul
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab.triton_mode import interpreted
from flashlab_course.player import lines, parts, play, play_traffic, record, record_kernel, recording
from flashlab_course.player.traffic import LABEL

ON_MEMORY = [r for r in RUNGS + BACKWARD_RUNGS + DECODING_RUNGS if not r.heads]
inf = float("inf")


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def toy(N=12, d=4):
    return [normal(N, d, seed=seed) for seed in range(3)]


def arguments(rung):
    """A toy call of a rung, forward or backward."""
    Q, K, V = toy(N=8)
    tiles = {"B_r": 4, "B_c": 4} if rung.tiled else {}
    if rung in RUNGS + DECODING_RUNGS:
        return (Q, K, V), tiles
    O, L = naive_forward(Q, K, V, return_lse=True)
    dO = normal(8, 4, seed=3)
    if rung.name == "fa1_backward":
        O, l, m = fa1_forward(Q, K, V, return_lm=True, **tiles)
        return (Q, K, V, O, dO, l, m), tiles
    return (Q, K, V, dO) if rung.name == "naive_backward" else (Q, K, V, O, dO, L), tiles


@pytest.mark.parametrize("rung", ON_MEMORY, ids=lambda r: r.name)
def test_a_recording_moves_what_the_memory_model_counts(rung):
    """Fails if watching changes the run: a tile kept alive by the tracer, an operation of its own that is counted."""
    args, sizes = arguments(rung)
    recording = record(rung.function, *args, sram_bytes=2 * KiB, **sizes)
    with Memory(2 * KiB) as mem:
        rung.function(*args, **sizes)
    assert (recording.read, recording.written) == (mem.read, mem.written)
    assert max(step.peak for step in recording.steps) == mem.sram_peak
    assert recording.title == rung.title and not recording.error
    assert json.dumps(asdict(recording))


@pytest.mark.parametrize("call, order", [
    (lambda: record(fa1_forward, *toy(), B_r=4, B_c=4), lambda i, j: (j, i)),
    (lambda: record(fa2_forward, *toy(), B_r=4, B_c=4), lambda i, j: (i, j)),
    (lambda: record(block_matmul, normal(12, 6), normal(6, 12), B_m=4, B_n=4, B_k=3), lambda i, j: (i, j)),
], ids=["fa1", "fa2", "matmul"])
def test_tiles_are_visited_in_the_loops_order(call, order):
    visited = list(dict.fromkeys(step.tile for step in call().steps if step.tile))
    every = [((4 * i, 4 * i + 4), (4 * j, 4 * j + 4)) for i in range(3) for j in range(3)]
    assert visited == sorted(every, key=lambda tile: order(tile[0][0], tile[1][0]))


def test_a_step_shows_the_numbers_the_tiles_and_the_bytes_of_its_line():
    Q, K, V = toy()
    recording = record(fa2_forward, Q, K, V, B_r=4, B_c=4, sram_bytes=KiB)
    step = next(step for step in recording.steps if "m_new" in step.sets and step.tile == ((4, 8), (0, 4)))
    maxima = (Q[4:8] @ K[:4].T * 0.5).amax(-1).tolist()
    assert step.values["m_new"] == [[f"{x:.3f}".replace("-", "−")] for x in maxima]
    assert recording.lines[step.line].text.strip().startswith("m_new = torch.maximum")
    assert [step.chip[name] for name in ("K_j", "S_ij", "m_new")] == [((4, 4), 64), ((4, 4), 64), ((4,), 16)]
    first = next(step for step in recording.steps if step.moves)
    assert (first.moves[0].name, first.moves[0].rows, first.read) == ("Q", (0, 4), 64)
    first, *_, last = (step.hbm for step in record(naive_forward, *toy()).steps)
    assert "P" not in first and last["P"] == last["S"] == ((12, 12), 12 * 12 * 4), "matrices in HBM grow"


# ---- a learner's function

def my_program(Q, K, V, O, rows, B_c):
    """One query block, with a mistake: O_i is not rescaled when the maximum grows."""
    Q_i = load(Q, rows)
    O_i, l_i, m_i = torch.zeros(4, 4), torch.zeros(4), torch.full((4,), -inf)
    for cols in tiles(len(K), B_c):
        S_ij = Q_i @ load(K, cols).T
        m_new = torch.maximum(m_i, S_ij.amax(-1))
        P_ij = torch.exp(S_ij - m_new[:, None])
        l_i = torch.exp(m_i - m_new) * l_i + P_ij.sum(-1)
        O_i = O_i + P_ij @ load(V, cols)
        m_i = m_new
    store(O, rows, O_i / l_i[:, None])


def broken_program(Q, K, V, O, rows, B_c):
    Q_i = load(Q, rows)
    for cols in tiles(len(K), B_c):
        S_ij = Q_i @ load(K, cols)              # K_j is not transposed
    store(O, rows, S_ij)


def on_blocks(program, d=4):
    Q, K, V = toy(d=d)

    def call():
        O = torch.empty(12, d)
        with kernel("mine", Q=Q, K=K, V=V, O=O):
            for rows in tiles(12, 4):
                program(Q, K, V, O, rows, 4)
    return call


def test_a_learners_function_is_shown_with_its_own_lines_and_opens_where_a_number_was_stored():
    recording = record(on_blocks(my_program), follow=my_program, sram_bytes=KiB)
    shown = [line.text.strip() for line in recording.lines]
    assert recording.title == "my_program" and "O_i = O_i + P_ij @ load(V, cols)" in shown
    assert not any("with a mistake" in text for text in shown), "docstrings take up the place of code"
    step = recording.steps[recording.storing("O", (5, 2))]
    assert step.moves[0][:3] == ("store", "O", (4, 8)) and "store(O, rows" in recording.lines[step.line].text
    assert parts._move_in_words(step.moves[0], (12, 8)) == "stores O[4:8, 0:4]", "a part of the columns"
    player = play(recording, at=("O", (5, 2)))
    assert recording.steps[player.ticks[player.start][0]] is step
    assert any(item.look == "mark" for item in player.scenes[0].items)


def short_fa2(Q):
    with kernel("fa2_forward", Q=Q):
        load(Q, slice(0, 4))


def test_a_lessons_short_version_has_its_rungs_title_and_a_learners_has_its_own():
    Q, *_ = toy()
    assert [record(short_fa2, Q).title, record(lambda: short_fa2(Q), follow=short_fa2).title] == ["FA2", "short_fa2"]


def one_step(Q_i, K_j, O_i):
    return O_i + Q_i @ K_j.T @ K_j


def test_what_an_unseen_caller_moves_counts_too():
    """FA1's inner step gets its tiles from loops around it."""
    Q, K, _ = toy()
    loops = """def loops(Q, K, step):
    O = torch.zeros(12, 4)
    with kernel("steps", Q=Q, K=K, O=O):
        for cols in tiles(12, 4):
            for rows in tiles(12, 4):
                store(O, rows, made := step(load(Q, rows), load(K, cols), load(O, rows)))"""
    elsewhere = {"torch": torch, "kernel": kernel, "tiles": tiles, "store": store, "load": load}
    exec(compile(loops, "elsewhere", "exec"), elsewhere)
    recording = record(elsewhere["loops"], Q, K, one_step, follow=one_step)
    with Memory() as mem:
        elsewhere["loops"](Q, K, one_step)
    assert (recording.read, recording.written) == (mem.read, mem.written)
    assert recording.steps[-1].chip.keys() == {"Q_i", "K_j", "O_i"}, "a name that the learner's lines do not have"
    assert [line.text.split()[0] for line in recording.lines] == ["def", "return"]
    assert len({step.tile for step in recording.steps}) == 9


def forgetful(Q, K, V, O, rows, B_c):
    return load(Q, rows) @ load(K, slice(0, 4)).T


def test_at_opens_at_the_last_store_of_a_place_or_at_its_first_tile():
    """FA1 stores O once per key block: only the last one decides."""
    recording = record(fa1_forward, *toy(), B_r=4, B_c=4, sram_bytes=KiB)
    assert recording.steps[recording.storing("O", (5, 0))].tile == ((4, 8), (8, 12))
    recording = record(on_blocks(forgetful), follow=forgetful, sram_bytes=KiB)
    step = recording.storing("O", (5, 0))
    assert recording.steps[step].tile[0] == (4, 8) and recording.steps[step - 1].tile[0] == (0, 4)


def test_an_exception_ends_the_recording_at_its_line():
    """Most functions that a learner wants to watch do not work yet."""
    mine, before = lambda *_: None, sys.gettrace()
    sys.settrace(mine)
    try:
        recording = record(on_blocks(broken_program, d=3), follow=broken_program)
        assert sys.gettrace() is mine, "the trace function is put back"
    finally:
        sys.settrace(before)
    assert recording.error.startswith("RuntimeError: ")
    assert "S_ij = Q_i @ load(K, cols)" in recording.lines[recording.steps[-1].line].text
    assert recording.read == 2 * 4 * 3 * 4, "what moved before counts"
    scene = play(recording).scenes[0]
    status = next(item for item in scene.items if item.kind == "status").at(-1)
    assert status.text.startswith("RuntimeError") and "bad" in status.look
    assert record(on_blocks(my_program), follow=my_program, sram_bytes=300).error.startswith("SRAMOverflow")


# ---- what is too large

def endless_on_two_lines(Q):
    with kernel("endless", Q=Q):
        while True:
            Q_i = load(Q, slice(0, 4))  # noqa: F841


def endless_on_one(Q):
    with kernel("endless", Q=Q):
        while True: load(Q, slice(0, 4))  # noqa: E701


@pytest.mark.parametrize("call, said", [
    (lambda: record(fa2_forward, normal(4, 4), normal(10, 4), normal(10, 4), B_r=4, B_c=2),
     "K and V make 5 tiles of 2: take at most 8, or tiles of at least 3"),
    (lambda: record(fa2_forward, *toy(), B_r=4, B_c=4), "at most 150 lines .* take shorter tensors"),
    (lambda: record(endless_on_two_lines, normal(4, 4)), "loop that never ends"),
    (lambda: record(endless_on_one, normal(4, 4)), "loop that never ends"),
], ids=["tiles", "lines", "endless", "endless on one line"])
def test_too_much_is_refused_with_what_would_fit(call, said, monkeypatch):
    monkeypatch.setattr(recording, "MAX_STEPS", 150)
    monkeypatch.setattr(recording, "MAX_TILES", 4)
    monkeypatch.setattr(lines, "MAX_EVENTS", 400)
    with pytest.raises(ValueError, match=said):
        call()


# ---- Triton kernels

needs_triton = pytest.mark.skipif(not interpreted(), reason="kernels are recorded in Triton's interpreter")


@needs_triton
def test_a_kernel_moves_what_the_closed_form_says_and_shows_its_numbers():
    """40 rows in tiles of 16: what the masks cut off must not be counted."""
    from flashlab.kernels.fa2 import fa2_triton_forward

    Q, K, V = (normal(1, 2, 40, 16, seed=seed) for seed in range(3))
    recording = record_kernel(fa2_triton_forward, Q, K, V, B_r=16, B_c=16)
    read, written = cost.fa2_forward(40, 40, 16, B_r=16, B_c=16, element_size=4)[:2]
    assert (recording.read, recording.written) == (2 * read, 2 * written)
    assert recording.title == "FA2 in Triton" and recording.lead == (1, 2)
    assert {(one.head, one.moves[0].lead[1]) for one in recording.steps if one.moves} == {(0, (0, 1)), (1, (1, 2))}
    loaded = {move.rows for step in recording.steps for move in step.moves if move.name == "K"}
    assert loaded == {(0, 16), (16, 32), (32, 40)}
    assert any("K_j = tl.load" in recording.lines[step.line].text for step in recording.steps if step.moves)
    step = next(step for step in recording.steps if "m_new" in step.sets)
    (r0, r1), (c0, c1) = step.tile
    maxima = (Q[0, 0, r0:r1] @ K[0, 0, c0:c1].T * 0.25).amax(-1)[:4].tolist()
    assert step.values["m_new"] == [[f"{x:.3f}".replace("-", "−")] for x in maxima]
    before = recording.steps[:recording.steps.index(step)]
    assert all(one.program == step.program for one in before), "also before its first load"


@needs_triton
def test_the_backward_kernels_go_one_after_the_other():
    from flashlab.kernels.fa2 import fa2_triton_forward
    from flashlab.kernels.fa2_backward import fa2_triton_backward

    Q, K, V, dO = (normal(1, 1, 32, 16, seed=seed) for seed in range(4))
    O, L = fa2_triton_forward(Q, K, V)
    recording = record_kernel(fa2_triton_backward, Q, K, V, O, dO, L, B_r=16, B_c=16)
    orders = [list(dict.fromkeys(step.tile for step in recording.steps if step.phase == phase and step.tile))
              for phase in dict.fromkeys(step.phase for step in recording.steps)]
    first, second = ((0, 16), (16, 32))
    assert len(orders) == 3 and orders[0] == [] and orders[1][:2] == [(first, first), (second, first)], "K_j is fixed"
    assert orders[2][:2] in ([(first, first), (first, second)], [(second, first), (second, second)]), "Q_i is fixed"


@needs_triton
def test_a_load_outside_is_shown_and_not_carried_out():
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def stray(Q, O, N, B: tl.constexpr):
        rows = tl.arange(0, B)
        tl.store(O + rows, tl.load(Q + rows), mask=rows < N)

    Q, O = normal(5), torch.zeros(5)
    recording = record_kernel(lambda: stray[(1,)](Q, O, 5, 16))
    assert recording.title == "stray" and torch.equal(O, Q)
    notes = [step.note for step in recording.steps if step.note]
    assert notes == ["11 of its loads are outside every tensor and were not carried out"]


# ---- the page

def test_a_page_is_small_and_leaves_a_still_where_no_script_runs():
    page, again = (play(record(fa1_forward, *toy(N=16), sram_bytes=KiB, B_r=4, B_c=4))._repr_html_() for _ in range(2))
    assert page == again, "a rebuilt notebook would differ from the committed one where nothing has changed"
    assert len(page.encode()) < 300_000
    left = re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)
    image = r'<img style="[^"]*" alt="[^"]*" src="data:image/svg\+xml;base64,[^"]{5000,}">'
    assert re.fullmatch(rf'<div class="flashlab-player" data-flashlab="\w+">{image}</div>', left)
    assert not re.search(r"https?://(?!www.w3.org)", page), "nothing is fetched"


def test_the_still_shows_the_step_it_opens_at():
    """Well-formed XML, which browsers demand of an image, and the running line lit in it."""
    recording = record(fa2_forward, *toy(), B_r=4, B_c=4, sram_bytes=KiB)
    for start in (40, 41):
        still = ElementTree.fromstring(play(recording, start=start).still())
        now, = (element for element in still.iter() if element.get("class") == "line now")
        assert int(now[0].text) == recording.lines[recording.steps[start].line].number


def test_a_saved_page_needs_nothing_else_and_source_that_looks_like_html_stays_source(tmp_path):
    def odd(Q):
        with kernel("odd", Q=Q):
            text = "</script><b>&amp;"  # noqa: F841
            load(Q, slice(0, 2))

    path, recording = tmp_path / "player.html", record(odd, normal(4, 4))
    recording.title = "mine & yours"
    play(recording).save(path)
    page = path.read_text(encoding="utf-8")
    assert page.count("</script>") == 1 and "&lt;b&gt;&amp;amp;" in page
    assert "<title>mine &amp; yours</title>" in page and not re.search(r'(src|href)="(?!data:)', page)


def test_lanes_share_a_clock_of_bytes():
    lanes = [record(forward, *toy(), B_r=4, B_c=4) for forward in (fa1_forward, fa2_forward)]
    player = play(*lanes)
    assert player.ticks[-1] == [len(lane.steps) - 1 for lane in lanes]
    assert all(lane == sorted(lane) for lane in map(list, zip(*player.ticks, strict=True)))
    moved = [[scene.moved[step] for scene, step in zip(player.scenes, tick, strict=True)] for tick in player.ticks]
    running = [(a, b) for a, b in moved if b < lanes[1].read + lanes[1].written]
    assert max(abs(a - b) for a, b in running) <= 12 * 4 * 4, "never further apart than the largest move, O set to zero"


def three_lines(Q, K, V):
    S = Q @ K.T / 2
    P = torch.softmax(S, dim=-1)
    O = P @ V
    return O


def test_an_operation_outside_kernels_moves_some_rows_at_a_time_with_a_sentence():
    whole, cut = (record(three_lines, *toy(N=10), rows=rows, say={"P = ": "weights"}) for rows in (None, 4))
    assert (cut.read, cut.written) == (whole.read, whole.written) and len(whole.steps) == 3
    moves = [(move.kind, move.name, move.rows) for step in cut.steps for move in step.moves]
    whole = {(0, 4): "load", (4, 8): "keep", (8, 10): "keep"}   # K lies along the key blocks: loaded whole, and once
    product = [x for n, kind in whole.items() for x in ((kind, "K", (0, 10)), ("load", "Q", n), ("store", "S", n))]
    assert [step.read for step in cut.steps[:5:2]] == [213, 266, 320], "160 bytes of K at once, 160 of Q bit by bit"
    assert moves[:15] == product + [(kind, "S", n) for n in whole for kind in ("load", "store")]
    assert {step.told for step in cut.steps if "P" in step.sets} == {"weights"}
    told = next(item for item in play(cut).scenes[0].items if item.look == "told")
    assert told.text[0] == "" and "weights" in told.text


def test_a_race_takes_twenty_seconds_whatever_moves_and_ends_with_a_sentence():
    race = [record(three_lines, *toy(N=16), rows=4), record(fa2_forward, *toy(N=16), B_r=4, B_c=4)]
    page = play(*race, end="the <last> word")._repr_html_()
    clock = json.loads(re.search(r'"clock":(\[.*?\])', page)[1])
    assert clock == sorted(clock) and clock[-1] == 20_000 and "the &lt;last&gt; word" in page
    done = play(*race).scenes[1].items
    assert next(item for item in done if item.kind == "status").text[-1].endswith("Done: 2.6 KiB moved.")


@pytest.mark.parametrize("forward, formula, said", [
    (naive_forward, {"Q": (64, 0), "K": (64, 0), "V": (64, 0), "S": (128, 128), "P": (64, 64), "O": (0, 64)},
     "K[0:4] is loaded: once. Q[0:2] is loaded: once."),
    (fa1_forward, {"Q": (128, 0), "K": (64, 0), "V": (64, 0), "O": (128, 192),
                   "l": (32, 48), "m": (32, 48), "L": (0, 16)}, "Q[0:3] is loaded: time 2 of 2."),
], ids=lambda one: getattr(one, "__name__", ""))
def test_traffic_fills_up_to_the_formula_of_each_tensor(forward, formula, said):
    """Fails if a move is given to another tensor, or an operation outside kernels to none."""
    run = record(forward, *toy(N=4), **({"rows": 2} if forward is naive_forward else {"B_r": 3, "B_c": 2}))
    scene, = play_traffic((run, formula)).scenes
    bars = [item.w[-1] for item in scene.items if isinstance(item.w, list)]
    assert bars == pytest.approx([item.w for item in scene.items if item.look == "formula"], abs=0.1)
    assert sum(map(sum, formula.values())) == scene.moved[-1] == run.read + run.written
    assert said in next(item.text for item in scene.items if item.look == "told")


def test_a_bar_that_runs_past_its_box_stays_in_the_picture():
    """Fails if the scale comes from the boxes alone."""
    run = record(fa1_forward, *toy(N=4), B_r=3, B_c=2)
    scene, = play_traffic((run, {"Q": (64, 0), "O": (64, 64)})).scenes
    assert max(item.w[-1] for item in scene.items if isinstance(item.w, list)) == scene.width - LABEL


@pytest.mark.parametrize("make, said", [
    (lambda r: play(), "takes recordings"),
    (lambda r: play(r, start=-1), "start must be a step"),
    (lambda r: play(r, at=("X", (0, 0))), "at must name a tensor"),
    (lambda r: play(r, at=("O", (0, 99))), "index of O"),
    (lambda r: record(on_blocks(my_program), follow=json.dumps), "no line of dumps ran: `follow` must name"),
    (lambda r: record(len, []), "written in Python"),
])
def test_arguments_are_checked(make, said):
    recording = record(fa2_forward, *toy(), B_r=4, B_c=4)
    with pytest.raises((TypeError, ValueError), match=said):
        make(recording)
