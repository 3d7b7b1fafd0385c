from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.gpu.occupancy import SM

WARP, REGISTERS = "-(-32 * registers // 256) * 256", "65536 // (per_warp * num_warps)"
THREADS, SHARED = "2048 // (32 * num_warps)", "228 * 1024 // (shared + 1024)"

outputs = [("by_threads",), ("by_registers",), ("by_shared",), ("programs",)]
ints_only = True
off_limits = ("gpu",)
features = {"registers that are no multiple of 8": lambda registers: registers % 8}
case = case_of(lambda num_warps, registers, shared: locals())


def truth(num_warps, registers, shared):
    """Programs put on the SM one by one, until one of its stores is used up."""
    sm, allowed = SM(), []
    for store, takes in ((sm.threads, 32 * num_warps), (sm.registers, num_warps * 256 * ((registers + 7) // 8)),
                         (sm.shared, shared + sm.reserved)):
        allowed.append(sum(used <= store for used in range(takes, store + 1, takes)))
    return *allowed, min(*allowed, sm.blocks)


cases = [case("the example", 8, 168, 100_000),
         case("registers that are no multiple of 8", 4, 121, 48 * 1024),
         case("shared memory for two, to the byte", 8, 64, 113 * 1024),
         case("a byte too many for two", 8, 64, 113 * 1024 + 1),
         case("more than an SM has", 16, 255, 227 * 1024),
         case("three warps, a piece that is begun", 3, 170, 20_000),
         case("three warps, many registers", 3, 227, 20_000),
         case("small programs", 1, 16, 0)]
mistakes = [
    Mistake("not_rounded", "a warp's registers were not rounded up to a multiple of 256",
            "what a warp gets: whole pieces", (WARP, "32 * registers")),
    Mistake("one_piece_more", "a warp got one piece too many where its registers fill whole pieces",
            "how the number of pieces is rounded up", (WARP, "(32 * registers // 256 + 1) * 256")),
    Mistake("rounded_per_program", "the registers of the whole program were rounded up, not those of each warp",
            "what is rounded up", (REGISTERS, "65536 // (-(-32 * registers * num_warps // 256) * 256)")),
    Mistake("reserve_once", "the system's 1 KiB was taken off once", "how often it takes its 1 KiB", (SHARED,
             "227 * 1024 // max(1, shared)"), also=[[(SHARED, "(227 * 1024 // shared if shared else 32)")]]),
    Mistake("reserve_as_minimum", "the system's 1 KiB was taken for the least that a program uses",
            "whether the 1 KiB is extra", (SHARED, "228 * 1024 // max(shared, 1024)")),
    Mistake("decimal_kilobytes", "a KiB was taken for 1000 bytes", "how many bytes a KiB has", (SHARED,
             "228 * 1000 // (shared + 1000)")),
    Mistake("no_limit_of_programs", "the limit of 32 programs an SM was left out", "the four limits in the exercise",
            ("by_shared, 32)", "by_shared)")),
    Mistake("each_limited_to_32", "each of the three numbers was cut off at 32", "which number 32 limits", (THREADS,
             f"min(32, {THREADS})"), (REGISTERS, f"min(32, {REGISTERS})"), (SHARED, f"min(32, {SHARED})")),
    Mistake("at_least_one", "a program that does not fit was counted as one", "a program too large for the SM",
            (REGISTERS, "max(1, 65536 // (per_warp * num_warps))")),
]
hints = ["Take the limits one at a time. What does one program need of each: threads, registers, bytes?",
         "Registers come in two steps: first what one warp gets, in whole pieces, then what all of its warps get.",
         "Only odd numbers of registers are wrong: try 121 by hand. How many pieces of 256 does a warp need?"]
