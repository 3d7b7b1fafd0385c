from flashlab_course.check.cases import Mistake, case_of

OWN, LEFT = "once += consumers * 64 * d * 2", "227 * 1024 - 1024 - once"
ONCE, SLOT, FITS = "once = consumers * 64 * d * size", "a_slot = 2 * keys * d * size", "max(0, left // a_slot)"

outputs = [("once",), ("a_slot",), ("slots",)]
ints_only = True
features = {"FP8": lambda size: size == 1, "O in Q's place": lambda own_O: not own_O}
case = case_of(lambda d, keys, consumers, size=2, own_O=True: locals())


def truth(d, keys, consumers, size, own_O):
    """As many slots as fit beside 1 KiB, by trying."""
    once, a_slot = 64 * consumers * d * (size + 2 * own_O), 2 * keys * d * size
    return once, a_slot, max((n for n in range(100) if 1024 + once + n * a_slot <= 232_448), default=0)


cases = [case("the example", 128, 128, 2),
         case("O in Q's place", 128, 128, 2, own_O=False),
         case("three consumers", 64, 128, 3),
         case("FP8", 128, 128, 2, 1),
         case("FP8, three consumers", 128, 224, 3, 1),
         case("wide heads, O in Q's place", 256, 128, 2, own_O=False),
         case("too wide", 256, 128, 4),
         case("nearly one more", 64, 232, 2, 1)]
mistakes = [
    Mistake("one_ring", "a slot was counted for K alone", "how many rings there are", (SLOT,
             "a_slot = keys * d * size")),
    Mistake("a_ring_for_each", "each consumer was given K and V of its own", "who reads a tile of K", (SLOT,
             "a_slot = consumers * 2 * keys * d * size")),
    Mistake("O_always", "O was counted where it takes Q's place", "own_O", ("if own_O", "if True")),
    Mistake("O_never", "O was left out", "own_O", ("if own_O", "if False")),
    Mistake("O_as_wide_as_Q", "O was counted with the bytes of Q's numbers", "how many bytes a number of O has", (OWN,
             OWN.replace("* 2", "* size"))),
    Mistake("one_consumers_rows", "Q and O were counted for one consumer", "how many rows all consumers have", (ONCE,
             ONCE.replace("consumers * ", "")), (OWN, OWN.replace("consumers * ", ""))),
    Mistake("rows_for_each", "each consumer was counted with 128 rows", "how many rows a consumer has", (ONCE,
             ONCE.replace("64", "128")), (OWN, OWN.replace("64", "128"))),
    Mistake("numbers_for_bytes", "numbers were counted, not their bytes", "how many bytes a number has", (ONCE,
             ONCE.replace(" * size", "")), (OWN, OWN.replace(" * 2", "")), (SLOT, SLOT.replace(" * size", ""))),
    Mistake("nothing_set_aside", "nothing was set aside for the signals", "what lies in shared memory beside tiles",
            (LEFT, "227 * 1024 - once"), also=[[(LEFT, "228 * 1024 - 1024 - once")]]),
    Mistake("below_zero", "the number of slots fell below 0", "a program whose Q and O do not fit", (FITS,
             "left // a_slot")),
    Mistake("one_more", "the slot that no longer fits was counted", "which way the division is rounded", (FITS,
             "max(0, -(-left // a_slot))"), also=[[(FITS, "max(0, left // a_slot + 1)")]]),
]
hints = ["First what there is once, whatever the number of slots: Q, and O if it has a place of its own.",
         "A slot is one tile of K and one of V. All consumers share them.",
         "227 KiB less 1 KiB less Q and O, divided by a slot of both rings and rounded down; never below 0."]
