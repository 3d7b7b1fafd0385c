from flashlab_course.check.cases import Mistake, case_of, padded
from flashlab_course.check.form import Breach, Output
from flashlab_course.gpu.warps import Ring, first_error

FREE, FULL = "yield wait(K.free[slot], phase ^ 1)", "yield wait(K.full[slot], use % 2)"
ENDED, RELEASE = "yield wgmma_wait(0)", "yield release(K.free[slot])"
LATER = f"if j >= slots:\n            {FREE}".replace(" ^ 1", "")

outputs = [Output(name, ("tile",), ((-1, "nothing"),)) for name in ("slot_of", "multiplied")]
truth = lambda slots, tiles: (padded((j % slots for j in range(tiles)), tiles), padded(range(tiles), tiles))
features = {"more than two rounds": lambda slots, tiles: tiles > 2 * slots}
case = case_of(lambda slots, tiles: locals())


def call(fn, slots, tiles):
    """The slot of each tile that is fetched, and the tiles of the products, in order."""
    names = "producer", "consumer"
    machine = first_error(lambda: dict(zip(names, fn(Ring("K", slots), slots, tiles), strict=True)), seeds=8)
    if machine.error:
        raise Breach("machine", f"the machine stops: {machine.error}")
    return tuple(padded((request.arguments[2] for _, request in machine.requests if request.kind == kind), tiles)
                 for kind in ("fetch", "wgmma"))


cases = [case("one tile, one slot", 1, 1),
         case("two tiles, two slots", 2, 2),
         case("two tiles, one slot", 1, 2),
         case("three tiles, two slots", 2, 3),
         case("seven tiles, two slots", 2, 7),
         case("eight tiles, three slots", 3, 8)]
mistakes = [
    Mistake("first_wait_never_ends", "the producer waited for a slot's first use to end before it had begun",
            "the phase of `free`", (FREE, FREE.replace(" ^ 1", "")), also=[[(FREE, FREE.replace("phase ^ 1", "0"))]]),
    Mistake("free_not_waited_for", "the producer did not wait for a slot that is used again", "a constant parity",
            (FREE, ""), also=[[(FREE, FREE.replace("phase ^ 1", "1"))], [(FREE, LATER)]]),
    Mistake("waited_for_full", "the producer waited at `full`, for its own tile to land",
            "who arrives at which mbarrier", (FREE, FREE.replace("free", "full"))),
    Mistake("read_too_early", "the consumer waited for the phase before its tile's", "a wait for parity 1", (FULL,
             FULL.replace("2", "2 ^ 1")), also=[[(FULL, FULL.replace("use % 2", "1"))], [(FULL, "")]]),
    Mistake("constant_parity", "the consumer waited for parity 0 in every round",
            "what such a wait finds in the second round", (FULL, FULL.replace("use % 2", "0"))),
    Mistake("parity_of_the_tile", "the consumer took the parity of the tile's number, not of its slot's use",
            "how often a slot has been used before tile j", (FULL, FULL.replace("use % 2", "j % 2"))),
    Mistake("producers_parity_of_the_tile", "the producer took the parity of the tile's number, not of its slot's use",
            "how often a slot has been used before tile j", (FREE, FREE.replace("phase ^ 1", "j % 2 ^ 1"))),
    Mistake("never_released", "no slot was ever released", "what ends a phase of `free`", (RELEASE, "")),
    Mistake("full_released", "the consumer arrived at `full`, where only TMA does",
            "which mbarrier says that a slot has been read", (RELEASE, RELEASE.replace("free", "full"))),
    Mistake("released_too_early", "a slot was released while its product was under way", "what ends with wgmma",
            (f"{ENDED}\n        {RELEASE}", f"{RELEASE}\n        {ENDED}"), also=[[(ENDED, "")]]),
]
hints = ["Take one slot first. Say for tile 0, 1 and 2 which use of the slot that is, and which phase of `full` it "
         "ends.",
         "The producer fills a slot for the n-th time once it has been read n − 1 times. Which phase of `free` is "
         "over?",
         "A wait of the consumer is for its own use, one of the producer for the use before: the other parity."]
