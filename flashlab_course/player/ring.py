"""A ring's run as plain data: who holds, computes, sends and has merged what, from what its ranks noted."""

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from flashlab_course.player.lines import Source
from flashlab_course.player.recording import Line, number

MAX_RANKS = 8
NOW = {False: ("send", "compute"), True: ("merge", "receive")}         # by RingStep.over


class Turn(NamedTuple):
    """What a rank has and does in one step. Chunks are numbered along the sequence, two for each rank."""

    holds: tuple = ()          # chunks of K and V
    arrives: tuple = ()        # those that are on their way to it
    to: int | None = None      # where it sends what it holds
    pairs: tuple = ()          # (query chunk, key chunk, is half of it masked?), which it computes
    before: tuple = ("", "")   # L and O of its last query as the step begins, as text
    after: tuple = ("", "")


@dataclass
class RingStep:
    """All ranks in the first or the second half of a step: they send and compute; they merge and receive."""

    step: int
    over: bool                 # the second half?
    turns: list                # a Turn for each rank
    lines: tuple = ()          # places in Ring.lines
    note: str = ""             # what should not have happened


@dataclass
class Ring:
    """What `play` shows of a ring."""

    title: str
    steps: list
    queries: list              # for each rank its query chunks, and others that it has computed with
    owners: list               # for each key chunk the rank that held it first
    causal: bool
    size: int                  # rows of a chunk
    lines: list

    @property
    def ends(self):
        """When each step is over, in the time of a block of scores without a mask: a step lasts as long as its slowest rank."""
        return list(accumulate(max(map(work, step.turns)) for step in self.steps if step.over))

    @property
    def total(self):
        return self.ends[-1]


def work(turn):
    """The scores of a turn, in blocks: four pairs of chunks are one."""
    return sum(0.125 if half else 0.25 for *_, half in turn.pairs)


def ring_recording(ranks, N, title, causal=None):
    """A Ring for `play`, from the notes of a run.

    ranks    of each rank {"events": [...]}, in the order in which they happened, as flashlab_course.ring_check notes them: "did" ("send",
             "compute", "merge", "receive"), "step", places in the sequence ("keys", "queries"), "causal", "to", "L" and "O", the
             file and line it was done "at"
    N        rows of the whole sequence
    causal   does a query see only its own place and what comes before? None: if some computation says so
    Raises: ValueError for one rank or more than eight, an N that does not divide, or notes without a computation
    """
    if not 2 <= len(ranks) <= MAX_RANKS:
        raise ValueError(f"the player shows rings of 2 to {MAX_RANKS} ranks, got {len(ranks)}")
    events = [event for rank in ranks for event in rank["events"]]
    computed = [event for event in events if event["did"] == "compute"]
    if not computed:
        raise ValueError("ranks must have computed something, got notes without a \"compute\"")
    R = len(ranks)
    size, rest = divmod(N, 2 * R)
    if N < 1 or rest:
        raise ValueError(f"N must be a multiple of {2 * R}, two chunks for each rank, got {N}")
    count = 1 + max(event["step"] for event in events)
    turns = [_turns(rank["events"], count, size) for rank in ranks]
    queries = [sorted({*of_rank[0].holds, *(q for turn in of_rank for q, *_ in turn.pairs)}) for of_rank in turns]
    owners = [next((r for r in range(R) if chunk in turns[r][0].holds), 0) for chunk in range(2 * R)]
    lines, where = _source(events)
    steps = [RingStep(step, over, [of_rank[step] for of_rank in turns],
                      tuple(sorted({n for e in events if e["step"] == step and e["did"] in NOW[over] for n in where(e)})))
             for step in range(count) for over in (False, True)]
    ring = Ring(title, steps, queries, owners, any(event["causal"] for event in computed) if causal is None else causal, size,
                lines)
    _look_for_mistakes(ring)
    return ring


def _turns(events, count, size):
    """The Turns of one rank."""
    found, holds, numbers = [], (), ("", "")
    for step in range(count):
        now = {did: [event for event in events if (event["step"], event["did"]) == (step, did)]
               for did in ("send", "compute", "merge", "receive")}
        sent, arrived = now["send"], tuple(chunk for event in now["receive"] for chunk in _chunks(event["keys"], size))
        known = sent or ([] if holds else now["compute"])
        holds = tuple(chunk for event in known for chunk in _chunks(event["keys"], size)) or holds
        told = (now["merge"] or (now["compute"] if step == 0 else []) or [{}])[-1]         # at first a block's O and L are all
        after = tuple(number(told[name]) if name in told else old for name, old in zip("LO", numbers, strict=True))
        pairs = dict.fromkeys(pair for event in now["compute"] for pair in _pairs(event, size))
        found.append(Turn(holds, arrived, sent[0]["to"] if sent else None, tuple(pairs), numbers, after))
        holds, numbers = arrived, after
    return found


def _chunks(places, size):
    return tuple(dict.fromkeys(place // size for place in places))


def _pairs(event, size):
    """(query chunk, key chunk, half of it?) of a computation, without those that its mask hides whole."""
    return [(q, k, event["causal"] and q == k) for q in _chunks(event["queries"], size) for k in _chunks(event["keys"], size)
            if k <= q or not event["causal"]]


def _source(events):
    """The function in which it all happened, without its docstring, and a function: event -> places among its lines."""
    places = [event["at"] for event in events if "at" in event]
    source = Source(places[0][0]) if places else None
    inside = [first for first, node in source.functions.items() if all(first <= line <= node.end_lineno for _, line in places)] \
        if source else []
    if not inside:
        return [], lambda event: ()
    shown = source.shown(max(inside))
    indent = min(len(source.text[n - 1]) - len(source.text[n - 1].lstrip()) for n in shown if source.text[n - 1].strip())
    lines = [Line(n, source.text[n - 1][indent:]) for n in shown]

    def where(event):
        statement = source.at(event["at"][1]) if "at" in event else None
        return [shown.index(n) for n in range(statement.start, statement.stop + 1) if n in shown] if statement else []

    return lines, where


def _look_for_mistakes(ring):
    """Notes for pairs that are computed twice, without need or by the wrong rank, and at the end for those that are left out.

    A rank's queries stand where the keys do that it begins with.
    """
    chunks, done = range(len(ring.owners)), set()
    wanted = {(q, k) for q in chunks for k in chunks if k <= q or not ring.causal}
    for step in ring.steps:
        if step.over:
            continue
        said = []
        for rank, turn in enumerate(step.turns):
            for q, k, half in turn.pairs:
                wrong = ("there is no such pair" if q not in chunks or k not in chunks
                         else "these keys come after the queries" if (q, k) not in wanted else "a second time" if (q, k) in done
                         else "it does not hold these keys" if k not in turn.holds
                         else "these queries are another rank's" if q not in ring.steps[0].turns[rank].holds
                         else "needs a mask" if ring.causal and q == k and not half else "")
                said += [f"rank {rank} computes queries {q}, keys {k}: {wrong}"] if wrong else []
                done.add((q, k))
        step.note = "".join(said[:1]) + (f"; and {len(said) - 1} more" if len(said) > 1 else "")
    missing = sorted(wanted - done)
    if missing:
        those = ", ".join(f"{q} with {k}" for q, k in missing[:4]) + (" …" if len(missing) > 4 else "")
        ring.steps[-1].note = f"never computed, queries with keys: {those}"
