import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach, Output
from flashlab_course.gpu.schedule import finish, take_turns

BEGIN = 'if me == 1:\n        todo.append(("arrive", 0))'
SYNC, ARRIVE = 'todo.append(("sync", me))', 'todo.append(("arrive", other))'
PRODUCT, SOFTMAX = (f'if n >= skip:\n            todo.append(("{what}", n))' for what in ("product", "softmax"))
KINDS, NEVER = ("sync", "arrive", "product", "softmax"), -1

outputs = [*(Output(what, ("turn",), ((NEVER, "never"),))
             for what in ("start of products", "end of products", "end of softmaxes")), ("time",)]
features = {"a consumer that sits out": lambda skips: max(skips) > 0}
case = case_of(lambda rounds, skips=(0, 0), product=2, softmax=2: locals())


def call(fn, rounds, skips, product, softmax):
    """Of the two programs together: when each product begins and ends, when each softmax ends, when all is done."""
    programs = [checked(fn(me, rounds, skips[me]), me) for me in (0, 1)]
    spans, hung = take_turns(programs, product, softmax)
    found = {(span.unit, int(span.name)): span for span in reversed(spans)}

    def times(unit, edge):
        turns = [found.get((f"{unit}, {me}", n)) for n in range(rounds) for me in (0, 1)]
        return torch.tensor([getattr(span, edge) if span else NEVER for span in turns])

    end = torch.tensor(NEVER if hung else finish(spans))
    return times("tensor cores", "start"), times("tensor cores", "end"), times("exponentials", "end"), end


def checked(found, me):
    """Every instruction has to be one of KINDS, with a whole number."""
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    for one in found:
        if not isinstance(one, (list, tuple)) or len(one) != 2 or one[0] not in KINDS or type(one[1]) is not int:
            raise Breach("wrong_type", f"program({me}, ...) holds {str(one)[:80]}, no instruction and its whole number")
    return found


def truth(rounds, skips, product, softmax):
    """A product begins when the one before it, of either consumer, and its own consumer's softmax have ended."""
    times, tensor, free = [], 0, [0, 0]
    for n in range(rounds):
        for me in (0, 1):
            begin = max(tensor, free[me])
            if n >= skips[me]:
                tensor, free[me] = begin + product, begin + product + softmax
            times.append((begin, tensor, free[me]) if n >= skips[me] else (NEVER, NEVER, NEVER))
    return *torch.tensor(times).T, torch.tensor(max(free))


cases = [case("one round", 1, product=3, softmax=2),
         case("two rounds", 2),
         case("consumer 0 sits out one round", 3, (1, 0)),
         case("consumer 0 sees nothing", 2, (2, 0)),
         case("consumer 1 sees nothing", 2, (0, 2), product=1, softmax=3),
         case("both sit out a round", 4, (1, 2), product=3, softmax=2)]
mistakes = [
    Mistake("nobody_begins", "nobody gave consumer 0 its first turn", "what comes before any sync", (BEGIN, "")),
    Mistake("both_begin", "both had their first turn at once", "who gives the first turn", (BEGIN, ARRIVE)),
    Mistake("begun_twice", "consumer 0 was given its first turn twice", "how often barrier 0 is signalled at first",
            (BEGIN, 'todo.append(("arrive", 0))')),
    Mistake("consumer_1_begins", "the first turn went to consumer 1", "whose turn comes first", (BEGIN,
             'if me == 0:\n        todo.append(("arrive", 1))')),
    Mistake("first_turn_only_without_skip", "consumer 0 got its first turn only from one that sits nothing out",
            "the first turn", ("me == 1", "me == 1 and skip == 0"), also=[[("me == 1", "me == 0 and skip == 0")]]),
    Mistake("no_barriers", "no turn was waited for", "what stands before a product", (SYNC, "pass")),
    Mistake("no_arrive", "the turn was never passed on", "what follows a product", (ARRIVE, "pass")),
    Mistake("nobody_told_at_the_end", "after the last product the turn was not passed on",
            "whose product still comes in the last round", (ARRIVE, f"if n < rounds - 1:\n            {ARRIVE}")),
    Mistake("passed_before_the_product", "the turn was passed on before the product", "when the tensor cores are free",
            (PRODUCT, "pass"), (ARRIVE, f"{ARRIVE}\n        {PRODUCT}")),
    Mistake("passed_after_the_softmax", "the turn was passed on only after the softmax",
            "when the tensor cores are free", (ARRIVE, "pass"), (SOFTMAX, f"{SOFTMAX}\n        {ARRIVE}")),
    Mistake("rounds_left_out", "in rounds that are sat out nothing was done, and the other waited",
            "what the other expects of every round", ("range(rounds)", "range(skip, rounds)")),
    Mistake("no_sync_when_skipping", "in rounds that are sat out the turn was passed on without a sync",
            "signals that are left over", (SYNC, f"if n >= skip:\n            {SYNC}")),
    Mistake("numbered_from_0", "products and softmaxes were not numbered by their round", "the number n",
            ('("product", n)', '("product", n - skip)'), ('("softmax", n)', '("softmax", n - skip)')),
]
hints = ["Write one round without skip: wait for your turn, work, pass it on. Which part needs the tensor cores?",
         "Run both programs by hand: at the very start both stand at a sync. Who is told, and by whom?",
         "Only rounds that are sat out are wrong: the other consumer counts on one signal a round."]
