import torch

from flashlab_course.check.cases import Mistake, case_of, padded
from flashlab_course.check.form import Breach, Output
from flashlab_course.gpu.warps import Ring, first_error

NAMES = ("producer", "consumer 0", "consumer 1")
HELD = ((-1, "without end"), (0, "as short as can be"), (1, "1 step too long"), (2, "2 steps too long"))
WAIT_K, WAIT_V = "yield wait(K.full[slot], phase)", "yield wait(V.full[slot], phase)"
FREE_K, FREE_V = "yield release(K.free[slot])", "yield release(V.free[slot])"
S, O = (f"yield wgmma({ring}, slot, j)\n            yield wgmma_wait(0)" for ring in "KV")
SOFTMAX, ENDED = "if sees:\n            yield softmax(j)", "\n        if sees:\n            yield wgmma_wait(0)"

outputs = [*(Output(f"products with {ring}", ("consumer", "step"), ((-1, "nothing"),)) for ring in "KV"),
           *(Output(f"use of {ring}'s slot", ("consumer", "tile"), HELD) for ring in "KV")]
features = {"a consumer that sits out": lambda skips: max(skips) > 0}
case = case_of(lambda slots, tiles, skips=(0, 0): locals())


def call(fn, slots, tiles, skips):
    """For K and V, and each consumer: the tiles of the products; how long each slot was in use."""
    def make():
        K, V = Ring("K", slots, readers=2), Ring("V", slots, readers=2)
        return dict(zip(NAMES, fn(K, V, slots, tiles, skips), strict=True))

    machine = first_error(make, seeds=4)
    if machine.error:
        raise Breach("machine", f"the machine stops: {machine.error}")
    logs = [[request for who, request in machine.requests if who == name] for name in NAMES[1:]]
    return tuple(torch.stack([padded(look(log, ring), tiles) for log in logs])
                 for look in (products, held) for ring in "KV")


def products(log, ring):
    """The tiles of a ring's products."""
    return [arguments[-1] for kind, arguments in log if kind == "wgmma" and arguments[0].name == ring]


def held(log, ring):
    """How many other products and softmaxes were begun between the wait for each tile and the release of its slot."""
    steps, since, found = 0, 0, []
    for kind, (what, *_) in log:
        steps += kind == "softmax" or kind == "wgmma" and what.name != ring
        if kind == "wait" and what.name.startswith(f"{ring}_full"):
            since = steps
        if kind == "release" and what.name.startswith(f"{ring}_free"):
            found.append(steps - since)
    return found


def truth(slots, tiles, skips):
    seen = torch.stack([padded(range(skip, tiles), tiles) for skip in skips])
    no_longer = torch.stack([padded([0] * tiles, tiles)] * 2)
    return seen, seen, no_longer, no_longer


cases = [case("one tile", 2, 1),
         case("two tiles, two slots", 2, 2),
         case("two tiles, one slot", 1, 2),
         case("consumer 1 sits out two", 1, 4, (0, 2)),
         case("consumer 0 sees nothing", 2, 4, (4, 0)),
         case("both sit out", 2, 6, (3, 1))]
mistakes = [
    Mistake("K_after_softmax", "K's slot was released only after the softmax", "what the softmax reads",
            (f"{FREE_K}\n        {SOFTMAX}", f"{SOFTMAX}\n        {FREE_K}")),
    Mistake("K_with_V", "K's slot was released only together with V's", "when K's slot has been read", (FREE_K, "pass"),
            (FREE_V, f"{FREE_K}\n        {FREE_V}")),
    Mistake("V_waited_for_early", "V was waited for before the softmax, which does not need it", "which step needs V",
            (f"{SOFTMAX}\n        {WAIT_V}", f"{WAIT_V}\n        {SOFTMAX}"),
            also=[[(WAIT_V, "pass"), (WAIT_K, f"…\n        {WAIT_V}")]]),
    Mistake("K_before_the_end", "K's slot was released while the product still read it",
            "what has happened when wgmma goes on", (S, S.partition("\n")[0]), (FREE_K, f"…{ENDED}")),
    Mistake("V_before_the_end", "V's slot was released while the product still read it",
            "what has happened when wgmma goes on", (O, O.partition("\n")[0]), (FREE_V, f"…{ENDED}")),
    Mistake("softmax_before_S", "the softmax began while the product S was under way", "what the softmax needs", (S,
             S.replace("wgmma_wait(0)", "softmax(j)")), (SOFTMAX, ENDED.lstrip()), (FREE_K, "pass"), (WAIT_V,
             f"{FREE_K}\n        …")),
    Mistake("K_never_released", "K's slots were never released", "whom the producer waits for", (FREE_K, "pass")),
    Mistake("V_never_released", "V's slots were never released", "whom the producer waits for", (FREE_V, "pass")),
    Mistake("sat_out_without_a_word", "tiles that are sat out were not released", "the arrivals that `free` counts",
            (WAIT_K, "if not sees:\n            continue\n        …")),
    Mistake("sat_out_unseen", "tiles that are sat out were released before they had landed",
            "the phase of an early arrival", *((wait, "if sees:\n            …") for wait in (WAIT_K, WAIT_V))),
]
hints = ["Write it for skip = 0: each of K and V is waited for, multiplied with, waited for again, and released.",
         "K is done with once S is there. Which request says that S is there, and what may come right after it?",
         "Only tiles that are sat out are wrong: `free` counts two arrivals a phase. An arrival for a tile that has "
         "not landed yet would be counted for the tile before."]
