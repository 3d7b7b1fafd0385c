"""Cases and mistakes of ex12_turns."""

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output
from flashlab_course.gpu.schedule import finish, take_turns

FIRST = "if me == 1:\n        todo.append((\"arrive\", 0))"
SYNC, PRODUCT = 'todo.append(("sync", me))', 'if n >= skip:\n            todo.append(("product", n))'
ARRIVE, SOFTMAX = 'todo.append(("arrive", other))', 'if n >= skip:\n            todo.append(("softmax", n))'
KINDS, NEVER = ("sync", "arrive", "product", "softmax"), -1


def call(fn, rounds, skips, product, softmax):
    """Of the two programs together: whose product comes when, from when to when each, and when all is done."""
    programs = [checked(fn(me, rounds, skips[me]), me) for me in (0, 1)]
    spans, hung = take_turns(programs, product, softmax)
    found = {(span.unit, int(span.name)): span for span in reversed(spans)}
    times = [found.get((f"tensor cores, {me}", n)) for n in range(rounds) for me in (0, 1)]
    rest = [found.get((f"exponentials, {me}", n)) for n in range(rounds) for me in (0, 1)]
    starts, ends, done = ([getattr(span, edge) if span else NEVER for span in of] for of, edge in ((times, "start"), (times, "end"), (rest, "end")))
    return torch.tensor(starts), torch.tensor(ends), torch.tensor(done), torch.tensor(NEVER if hung else finish(spans))


def checked(found, me):
    if not isinstance(found, (list, tuple)) or any(not isinstance(one, (list, tuple)) or len(one) != 2 for one in found):
        raise Breach("wrong_type", f"program({me}, ...) returned {str(found)[:80]}; a list of (instruction, number) was expected")
    if wrong := [one for one in found if one[0] not in KINDS or type(one[1]) is not int]:
        raise Breach("wrong_type", f"program({me}, ...) holds {wrong[0]!r}; an instruction is one of {', '.join(KINDS)}, with a whole number")
    return list(found)


def truth(rounds, skips, product, softmax):
    """Round by round: a product begins when the one before it, of either consumer, and its own consumer's softmax have ended."""
    starts, ends, done, tensor, free = [], [], [], 0, [0, 0]
    for n in range(rounds):
        for me in (0, 1):
            if n < skips[me]:
                starts, ends, done = starts + [NEVER], ends + [NEVER], done + [NEVER]
                continue
            begin = max(tensor, free[me])
            tensor, free[me] = begin + product, begin + product + softmax
            starts, ends, done = starts + [begin], ends + [tensor], done + [free[me]]
    return torch.tensor(starts), torch.tensor(ends), torch.tensor(done), torch.tensor(max(free))


def case(name, rounds, skips=(0, 0), product=2, softmax=2):
    holds = {"more than one round": rounds > 1, "a consumer that sits out": max(skips) > 0, "a softmax longer than a product": softmax > product,
             "a product longer than a softmax": product > softmax}
    inputs = {"rounds": rounds, "skips": skips, "product": product, "softmax": softmax}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in holds.items() if true), inputs)


EXERCISE = Exercise(
    function="program",
    outputs=(*(Output(what, ("turn",), ((NEVER, "never"),)) for what in ("start of products", "end of products", "end of softmaxes")), Output("time")),
    call=call,
    truth=truth,
    cases=[
        case("one round", 1),
        case("two rounds", 2),
        case("four rounds", 4),
        case("a long softmax", 4, softmax=3),
        case("a short softmax", 4, product=3, softmax=1),
        case("consumer 0 sits out one round", 3, (1, 0)),
        case("consumer 1 sits out one round", 3, (0, 1)),
        case("consumer 0 sits out two rounds", 4, (2, 0), softmax=3),
        case("consumer 0 sees nothing", 2, (2, 0)),
        case("consumer 1 sees nothing", 2, (0, 2), product=1, softmax=3),
        case("both sit out a round", 4, (1, 2), product=3, softmax=2),
    ],
    mistakes=[
        Mistake("nobody_begins", "nobody arrived at barrier 0 before the first sync, and both waited for ever",
                "before the first sync: one of the two says that the first turn is consumer 0's", (FIRST, "")),
        Mistake("both_begin", "barrier 1 was signalled at the start as well, so that both began at once", "at the start: the first turn is consumer 0's alone",
                (FIRST, 'todo.append(("arrive", other))')),
        Mistake("begun_twice", "consumer 0 was given its first turn twice, and had a turn too many",
                "consumer 0's first turn: one arrive on barrier 0 before the first round, or none if it does not wait for it",
                (FIRST, 'todo.append(("arrive", 0))'), also=[[(FIRST, 'if me == 1:\n        todo += [("arrive", 0)] * 2')]]),
        Mistake("consumer_1_begins", "the first turn went to consumer 1", "at the start: the first turn is consumer 0's",
                (FIRST, 'if me == 0:\n        todo.append(("arrive", 1))')),
        Mistake("no_barriers", "nobody waited for anybody: both multiplied at once", "a sync before each product", (SYNC, "pass"),
                also=[[(FIRST, ""), (SYNC, "pass"), (ARRIVE, "pass")]]),
        Mistake("no_arrive", "the turn was never passed on, and the other waited for ever", "an arrive on the other's barrier after the product",
                (ARRIVE, "pass")),
        Mistake("waits_for_the_others_turn", "the sync was on the other's barrier", "the sync: barrier b stands for consumer b's turn, so wait on barrier me",
                (SYNC, 'todo.append(("sync", other))')),
        Mistake("passes_to_itself", "the turn was passed on to oneself", "the arrive: on barrier 1 − me", (ARRIVE, 'todo.append(("arrive", me))')),
        Mistake("passed_before_the_product", "the turn was passed on before the product, so that both multiplied at once", "the order: product, then arrive",
                (PRODUCT, "pass"), (ARRIVE, 'todo.append(("arrive", other))\n        if n >= skip:\n            todo.append(("product", n))')),
        Mistake("passed_after_the_softmax", "the turn was passed on after the softmax only: the tensor cores stood idle meanwhile",
                "the order: product, arrive, softmax", (ARRIVE, "pass"),
                (SOFTMAX, 'if n >= skip:\n            todo.append(("softmax", n))\n        todo.append(("arrive", other))')),
        Mistake("sync_after_the_product", "the turn was waited for after the product", "the order: sync, then product", (SYNC, "pass"),
                (PRODUCT, 'if n >= skip:\n            todo.append(("product", n))\n        todo.append(("sync", me))')),
        Mistake("rounds_left_out", "rounds that a consumer sits out were left out altogether: no sync, no arrive, and the other waited for ever",
                "a round that is sat out: the turn is passed on all the same", ("for n in range(rounds):", "for n in range(skip, rounds):")),
        Mistake("no_sync_when_skipping",
                "in rounds that were sat out the turn was passed on and none was waited for: signals were left over, and a later product began too early",
                "a round that is sat out: sync, then arrive, as in any other", (SYNC, 'if n >= skip:\n            todo.append(("sync", me))')),
        Mistake("numbered_from_0", "products were numbered from 0 on, not by their round", "(\"product\", n): n is the round",
                ('todo.append(("product", n))', 'todo.append(("product", n - skip))'), ('todo.append(("softmax", n))', 'todo.append(("softmax", n - skip))')),
        Mistake("first_turn_only_without_skip",
                "consumer 0 got its first turn only where its first round, or consumer 1's, is not sat out: else both wait for ever",
                "the first turn: somebody gives it, whoever sits out what", (FIRST, "if me == 1 and skip == 0:\n        todo.append((\"arrive\", 0))"),
                also=[[(FIRST, "if me == 0 and skip == 0:\n        todo.append((\"arrive\", 0))")]]),
    ],
    hints=[
        "One round: (\"sync\", me), (\"product\", n), (\"arrive\", 1 − me), (\"softmax\", n).",
        "Before the first round consumer 1 does (\"arrive\", 0), as if it had just had a turn.",
        "A round that is sat out keeps its sync and its arrive.",
        "Only rounds that are sat out are wrong: the other consumer counts on one arrive a round.",
    ],
)
