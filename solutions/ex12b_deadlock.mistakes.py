from flashlab_course.check.cases import Mistake, case_of, padded
from flashlab_course.check.form import Breach, Output
from flashlab_course.gpu.warps import Ring, first_error

FREE_K, FREE_V = "yield wait(K.free[slot], phase ^ 1)", "yield wait(V.free[slot], phase ^ 1)"
FETCH_K, FETCH_V = "yield fetch(K, j, slot)", "yield fetch(V, j, slot)"
V_WHEN_FREE = f"{FREE_V}\n        {FETCH_V}"
V_OF_N = "yield wait(V.free[n % slots], n // slots % 2 ^ 1)\n            yield fetch(V, n, n % slots)"
TILES = [f"{ring} {j}" for j in range(6) for ring in "KV"]
V_FIRST = [(FREE_K, FREE_V), (f"{FETCH_K}\n        {FREE_V}", f"{FETCH_V}\n        {FREE_K}"),
           (f"{FREE_K}\n        {FETCH_V}", f"{FREE_K}\n        {FETCH_K}")]

outputs = [Output(name, ("step",), ((-1, "nothing"), *enumerate(TILES)))
           for name in ("fetched K", "fetched V", "products")]
features = {"more than one tile": lambda tiles: tiles > 1}
case = case_of(lambda slots, tiles: locals())


def call(fn, slots, tiles):
    """The tiles in the order in which they are fetched, and in that of the products."""
    def make():
        return dict(zip(("producer", "consumer"), fn(Ring("K", slots), Ring("V", slots), slots, tiles), strict=True))

    machine = first_error(make, seeds=6)
    if machine.error:
        raise Breach("machine", f"the machine stops: {machine.error}")
    fetched = [f"{request.arguments[0].name} {request.arguments[1]}" for _, request in machine.requests
               if request.kind == "fetch"]
    read = [span.name for span in machine.spans if "tensor" in span.unit]
    return *(numbered([name for name in fetched if ring in name], tiles) for ring in "KV"), numbered(read, 2 * tiles)


def numbered(names, count):
    return padded((TILES.index(name) if name in TILES else -1 for name in names), count)


def truth(slots, tiles):
    ahead = [name for j in range(1, tiles) for name in (f"K {j}", f"V {j - 1}")]
    return *(numbered([f"{ring} {j}" for j in range(tiles)], tiles) for ring in "KV"), numbered(
        ["K 0", *ahead, f"V {tiles - 1}"], 2 * tiles)


cases = [case("one tile", 2, 1),
         case("two tiles, two slots", 2, 2),
         case("two tiles, one slot", 1, 2),
         case("five tiles, one slot", 1, 5),
         case("five tiles, two slots", 2, 5),
         case("six tiles, three slots", 3, 6)]
mistakes = [
    Mistake("K_held_back", "a tile of K was held back until V's slot was free", "what the consumer needs first",
            (f"{FETCH_K}\n        {FREE_V}", f"{FREE_V}\n        {FETCH_K}"), also=[V_FIRST]),
    Mistake("V_not_waited_for", "V was fetched before its slot was free", "what comes before V's fetch", (FREE_V, ""),
            also=[[(V_WHEN_FREE, f"{FETCH_V}\n        {FREE_V}")], [(FREE_V, FREE_K)]]),
    Mistake("K_not_waited_for", "K was fetched before its slot was free", "what comes before K's fetch", (FREE_K, ""),
            also=[[(f"{FREE_K}\n        {FETCH_K}", f"{FETCH_K}\n        {FREE_K}")]]),
    Mistake("all_K_first", "all tiles of K were to be fetched before the first of V", "the tiles of K before V 0",
            (V_WHEN_FREE, f"for n in range(tiles if j == tiles - 1 else 0):\n            {V_OF_N}")),
    Mistake("first_V_never_comes", "the parity of V's wait was that of the consumer's",
            "what a new mbarrier says to a wait for parity 0", (FREE_V, FREE_V.replace(" ^ 1", ""))),
    Mistake("first_K_never_comes", "the parity of K's wait was that of the consumer's",
            "what a new mbarrier says to a wait for parity 0", (FREE_K, FREE_K.replace(" ^ 1", ""))),
]
hints = ["The machine's sentence is a circle: the producer waits for the consumer, and the consumer for the producer.",
         "The consumer releases V 0 at the end of the round with S of tile 1. What has that round waited for first?",
         "A fetch needs its own slot, no other. Wait for V's slot only when K is under way."]
