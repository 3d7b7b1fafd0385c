"""The six Hopper rungs in one run with the TMA rung before them, the operator's kernel after them, and cuDNN; and the
last rung with one of its ideas changed."""

import tempfile
from functools import partial

from flashlab.ladder import HOPPER_RUNGS, rung
from flashlab_course.bench import forward
from flashlab_course.bench.options import add_integers
from flashlab_course.bench.parts import variant
from flashlab_course.bench.problems import HEAD_DIMS, implementations, problem_grid
from flashlab_course.bench.timing import sweep

SECONDS = 540.0
BEFORE, LAST, AFTER = "fa2_tma_forward", "hopper_persistent_forward", "fa2_hopper_forward"
ISSUE = "        S = issue_scores(me, Q_s.index(me), K_s.index(slot))\n"
WAIT_O = "        O_i = wgmma_wait(0, deps=[O_i])\n"
WAIT_S = "        S = wgmma_wait(1, deps=[S])                    # S is there, O's product still runs\n"
S_AFTER_O = WAIT_O + "        S = wgmma_wait(0, deps=[issue_scores(me, Q_s.index(me), K_s.index(slot))])\n"
CHANGES = {                            # how the last rung is changed: its lines, and what becomes of them
    "without turns": [("        arrive(TURN, 256) ", "        pass "), ("    arrive(TURN + 1 - me, 256)\n", ""),
                      ("    sync(TURN + me, 256) ", "    ")],
    "without the next S ahead": [(ISSUE, ""), (WAIT_S, S_AFTER_O)],
    "both products before the softmax": [(WAIT_S, "        S = wgmma_wait(0, deps=[S])\n" + WAIT_O)],
    "without the counter": [("gl.num_programs(0) + gl.atomic_add(counter, 1)", "tile + gl.num_programs(0)")],
    "head after head": [("    arguments[\"counter\"]", "    arguments[\"together\"] = 1\n    arguments[\"counter\"]")],
    "three slots": [("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(3)")],
}


def forwards(folder):
    """{name: forward(Q, K, V, causal)} of what takes turns at the clock."""
    others, home = implementations(), rung(LAST).home
    rungs = {one.name: one.function for one in HOPPER_RUNGS}
    rungs |= {f"{LAST}, {what}": getattr(variant(home, lines, folder), LAST) for what, lines in CHANGES.items()}
    rungs = {name: partial(run, function) for name, function in rungs.items()}
    return {BEFORE: others[BEFORE]} | rungs | {AFTER: others[AFTER], "sdpa_cudnn": others["sdpa_cudnn"]}


def run(function, Q, K, V, causal):
    return function(Q, K, V, causal=causal)


def pieces(args):
    """A row for each at every size."""
    with tempfile.TemporaryDirectory() as folder:
        timed = forwards(folder)
        yield from sweep(problem_grid(args.N, args.d),
                         lambda problem: forward.measure(problem, timed, expired=args.expired))


def add_arguments(parser):
    add_integers(parser, "--N", (1024, 4096, 16384), "sequence lengths")
    add_integers(parser, "--d", HEAD_DIMS, "head dimensions")
