import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach, Output
from flashlab_course.gpu.warps import Ring, simulate

TURN, OFTEN = 12, {0: "never", 1: "once"}
NAMES = "producer", "consumer 0", "consumer 1"
WHEN = ((-1, "never"), (0, "right after issuing"), (1, "before issuing"), (2, "after another wait"))
BEGIN, ISSUE, ENDED = "if me == 1:\n        yield arrive(TURN, 256)", "yield wgmma(K, slot, j)", "yield wgmma_wait(0)"
SYNC, ARRIVE, FREE = "yield sync(TURN + me, 256)", "yield arrive(TURN + 1 - me, 256)", "yield release(K.free[slot])"

outputs = [Output("order of products", ("consumer",), ((0, "0, 1, 0, 1, ..."), (1, "not always that"), (2, "1 first"))),
           Output("wait for the turn", ("consumer", "round"), ((-1, "missing"), (0, "there"), (1, "missing"))),
           Output("turn passed on", ("consumer", "round"), WHEN)]
truth = lambda slots, tiles: (torch.zeros(2).long(), *torch.zeros(2, 2, tiles).long())
features = {"more than one round": lambda tiles: tiles > 1}
case = case_of(lambda slots, tiles: locals())


def call(fn, slots, tiles):
    """Whose product with K comes first; for each consumer, when it waited for its turns and when it passed them on."""
    in_turn, first = [], set()
    for seed in range(4):
        rings = Ring("K", slots, readers=2), Ring("V", slots, readers=2)
        machine = simulate(dict(zip(NAMES, fn(*rings, slots, tiles), strict=True)), seed)
        counts = {request.arguments[1] for _, request in machine.requests if request.kind in ("sync", "arrive")}
        if other := counts - {256}:
            raise Breach("threads", f"a barrier counts to {min(other)}, and two consumers have 256 threads")
        if machine.error:
            came = [OFTEN.get(n := machine.named.get(TURN + c, (0, 0))[1], f"{n} times") for c in (0, 1)]
            raise Breach("machine", f"turn 0 comes {came[0]}, turn 1 {came[1]}, then it stops: {machine.error}")
        order = [name for name, request in machine.requests if issues(request)]
        in_turn.append(order == [*NAMES[1:]] * tiles)
        first |= set(order[:1])
    order = 0 if all(in_turn) else 1 if "consumer 0" in first else 2
    logs = [[request for who, request in machine.requests if who == name] for name in NAMES[1:]]
    waited, passed = zip(*map(turns_of, logs, (0, 1)), strict=True)
    waited, passed = (torch.tensor([(one + [-1] * tiles)[:tiles] for one in both]) for both in (waited, passed))
    waited[0, 0] = passed[1, -1] = 0          # the first turn need not be waited for, nor the last told
    return torch.tensor([order] * 2), waited, passed


def issues(request):
    """Is it a product with K?"""
    return request.kind == "wgmma" and request.arguments[0].name == "K"


def turns_of(log, me):
    """For each product with K: was its turn waited for? For each arrival at the other's barrier: a number of WHEN."""
    since, waited, passed = None, [], []                       # since: requests since the turn came
    for request in log:
        if issues(request):
            waited.append(0 if since is not None and since[:1] != ["issued"] else 1)
            since = ["issued"]
        elif request.kind == "sync":
            since = []
        elif since is not None and request.kind == "arrive" and request.arguments[0] == TURN + 1 - me:
            passed.append(0 if since == ["issued"] else 2 if since[:1] == ["issued"] else 1)
        elif since is not None and request.kind != "arrive":
            since.append(request.kind)
    return waited, passed


cases = [case("one round", 2, 1),
         case("two rounds", 2, 2),
         case("two rounds, one slot", 1, 2),
         case("five rounds", 2, 5),
         case("four rounds, three slots", 3, 4)]
mistakes = [
    Mistake("nobody_begins", "nobody gave consumer 0 its first turn", "what comes before any sync", (BEGIN, "pass")),
    Mistake("both_begin", "both had their first turn at once", "who gives the first turn", (BEGIN, ARRIVE)),
    Mistake("consumer_1_begins", "the first turn went to consumer 1", "whose turn comes first", (BEGIN,
             "if me == 0:\n        yield arrive(TURN + 1, 256)")),
    Mistake("begun_twice", "both consumers arrived for consumer 0's first turn",
            "how many threads the barrier counts before it opens", (BEGIN, "yield arrive(TURN, 256)")),
    Mistake("no_turns", "products were issued without waiting for a turn", "what stands before wgmma", (SYNC, "")),
    Mistake("turn_after_issuing", "the turn was waited for only when the product had been issued",
            "what has to be in order: issuing", (f"{SYNC}\n        {ISSUE}", f"{ISSUE}\n        {SYNC}")),
    Mistake("turn_kept", "the turn was never passed on", "what follows a product", (ARRIVE, "")),
    Mistake("passed_to_itself", "a consumer passed the turn on to itself", "whose barrier the next turn is", (ARRIVE,
             "yield arrive(TURN + me, 256)")),
    Mistake("passed_before_issuing", "the turn was passed on before the product was issued",
            "what the other may do with the turn", (f"{ISSUE}\n        {ARRIVE}", f"{ARRIVE}\n        {ISSUE}")),
    Mistake("passed_when_ended", "the turn was passed on when the product had ended, not when it was issued",
            "what has to be in order", (f"{ARRIVE}\n        {ENDED}", f"{ENDED}\n        {ARRIVE}"),
            also=[[(ARRIVE, ""), (FREE, f"…\n        {ARRIVE}")]]),
    Mistake("nobody_told_at_the_end", "in the last round the turn was not passed on",
            "whose product still comes in the last round", (ARRIVE, f"if j < tiles - 1:\n            {ARRIVE}")),
]
hints = ["Write one round first: wait for your turn, issue, pass it on. What may the other do from then on?",
         "At the very start both stand at a sync. Whose threads have to come to which barrier, and who sends them?",
         "The turn belongs to the other from the moment of issue: sync, wgmma and arrive follow one another."]
