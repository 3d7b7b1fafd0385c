"""The learner's ring exercises in the player: four ranks go all the way round with their code, and note what they do."""

import sys

import torch

from flashlab_course.check import form
from flashlab_course.lesson.reference import Reveal
from flashlab_course.player import play, ring_recording

R, inf = 4, float("inf")


def replay_ring(name, fn):
    """A player of that exercise's answer. Where something is wrong it opens there; what it raises ends the run."""
    ranks = [{"events": []} for _ in range(R)]
    wrong = {}                                             # step -> what is wrong in it
    walk, N = RINGS[name]
    try:
        walk(fn, ranks, wrong)
    except Exception as error:
        step = max([event["step"] for rank in ranks for event in rank["events"]], default=0)
        wrong[step] = f"{type(error).__name__}: {error}"
    if not any(event["did"] == "compute" for rank in ranks for event in rank["events"]):
        return Reveal(next(iter(wrong.values()), f"No rank computed anything in {name}, so there is nothing to see of it yet."))
    recording = ring_recording(ranks, N, f"{name}, {R} ranks", causal=True)
    for step, words in wrong.items():
        recording.steps[2 * step + 1].note = words
    return play(recording, start=next((n for n, step in enumerate(recording.steps) if step.note), None))


def _zigzag(fn, ranks, wrong):
    """Chunks of one row each: the exercise says how blocks travel, the answer what is computed."""
    for step in range(R):
        for rank, log in enumerate(ranks):
            pairs = [(int(q), int(k), bool(masked)) for q, k, masked in fn(rank, step, R)]
            mine, next_one = ([source, 2 * R - 1 - source] for source in ((rank - step) % R, (rank - step - 1) % R))
            if step < R - 1:
                log["events"].append({"did": "send", "step": step, "keys": mine, "to": (rank + 1) % R})
                log["events"].append({"did": "receive", "step": step, "keys": next_one})
            if needless := [(q, k) for q, k, masked in pairs if masked and q != k]:
                q, k = needless[0]
                wrong.setdefault(step, f"rank {rank} masks queries {q}, keys {k}: they see all of them, or none")
            log["events"] += [{"did": "compute", "step": step, "queries": [q], "keys": [k], "causal": masked}
                              for q, k, masked in pairs]


def _ring_step(fn, ranks, wrong):
    """Two rows a rank. What was computed is read off the tensors that `attend` is given, what was sent off those that come back."""
    if "attend" not in getattr(fn, "__globals__", {}):
        raise ValueError("ring_step must stand beside `attend`, as in the exercise's file: its calls are followed")
    Q, K, V = (torch.randn(R, 2, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    state = K, V, torch.arange(R), torch.zeros(R, 2, 3), torch.full((R, 2), -inf)
    whole_Q, whole_K = Q.flatten(0, 1), K.flatten(0, 1)
    attend, right = fn.__globals__["attend"], form.exercise("ex14_ring_step").solution()

    def places(rows, whole):
        return [n for row in rows for n in range(len(whole)) if torch.equal(row, whole[n])]

    def noting(Q_r, K_r, V_r, rank, owner):
        frame, queries = sys._getframe(1), places(Q_r, whole_Q)
        ranks[queries[0] // 2 if queries else rank]["events"].append(
            {"did": "compute", "step": step, "queries": queries, "keys": places(K_r, whole_K), "causal": True,
             "at": [frame.f_code.co_filename, frame.f_lineno]})
        return attend(Q_r, K_r, V_r, rank, owner)

    for step in range(R):
        expected = right(Q, *state)
        fn.__globals__["attend"] = noting
        try:
            found = fn(Q.clone(), *(T.clone() for T in state))
        finally:
            fn.__globals__["attend"] = attend
        _note_step(ranks, step, *([places(block, whole_K) for block in blocks] for blocks in (state[0], found[0])), found)
        if words := _difference(found, expected):
            wrong.setdefault(step, words)
            return
        state = found


def _note_step(ranks, step, held, holds_now, state):
    """What each rank sent, received and merged, from the blocks before and after."""
    *_, O, L = state
    for rank, log in enumerate(ranks):
        if held[rank] in holds_now:
            log["events"].append({"did": "send", "step": step, "keys": held[rank], "to": holds_now.index(held[rank])})
        log["events"].append({"did": "receive", "step": step, "keys": holds_now[rank]})
        log["events"].append({"did": "merge", "step": step, "L": L[rank, -1].item(), "O": O[rank, -1, 0].item()})


def _difference(found, expected):
    """The first rank and tensor that are not as expected, in words; "" if all are."""
    for rank in range(R):
        for name, T, truth in zip(("K", "V", "owner", "O", "L"), found, expected, strict=True):
            if not torch.allclose(T[rank].double(), truth[rank].double(), atol=1e-4, equal_nan=False):
                return f"rank {rank}: its {name} after this step is not what it should be; here the run ends"
    return ""


RINGS = {"ex14_zigzag": (_zigzag, 2 * R), "ex14_ring_step": (_ring_step, 2 * R)}       # with the rows of the whole sequence
