"""Cases and mistakes of ex12_registers."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output
from flashlab_course.gpu.occupancy import SM

THREADS, WARP, REGISTERS = "2048 // (32 * num_warps)", "-(-32 * registers // 256) * 256", "65536 // (per_warp * num_warps)"
SHARED, LEAST = "228 * 1024 // (shared + 1024)", "min(by_threads, by_registers, by_shared, 32)"


def truth(num_warps, registers, shared):
    """Programs put on the SM one by one, until one of its stores is used up."""
    sm = SM()
    takes = {"threads": 32 * num_warps, "registers": num_warps * 256 * ((registers + 7) // 8), "shared": shared + sm.reserved}
    allowed = []
    for name, each in takes.items():
        left, count = getattr(sm, name), 0
        while left >= each:
            left, count = left - each, count + 1
        allowed.append(count)
    return *allowed, min(*allowed, sm.blocks)


def case(name, num_warps, registers, shared, features=()):
    inputs = {"num_warps": num_warps, "registers": registers, "shared": shared}
    holds = {"registers that are no multiple of 8": registers % 8 != 0, "no shared memory": shared == 0,
             "a limit of 32 programs": min(truth(**inputs)[:3]) > 32, "more registers than an SM has": truth(**inputs)[1] == 0}
    return Case(name, lambda: dict(inputs), frozenset([*features, *(f for f, true in holds.items() if true)]), inputs)


EXERCISE = Exercise(
    function="resident",
    outputs=(Output("by_threads"), Output("by_registers"), Output("by_shared"), Output("programs")),
    truth=truth,
    ints_only=True,
    off_limits=("gpu",),
    cases=[
        case("the example", 8, 168, 100_000),
        case("limited by threads", 8, 24, 1024),
        case("limited by registers", 4, 168, 32 * 1024),
        case("limited by shared memory", 4, 96, 80 * 1024),
        case("registers that are no multiple of 8", 4, 121, 48 * 1024),
        case("one register more than a step", 8, 129, 16 * 1024),
        case("small programs", 1, 16, 0),
        case("all of the shared memory", 12, 168, 227 * 1024),
        case("shared memory for two, to the byte", 8, 64, 113 * 1024),
        case("a byte too many for two", 8, 64, 113 * 1024 + 1),
        case("the most a thread can have", 8, 255, 65536),
        case("more than an SM has", 16, 255, 65536),
        case("three warps", 3, 90, 20_000),
        case("a piece that is begun", 4, 170, 20_000),
        case("three warps, a piece that is begun", 3, 170, 20_000),
        case("three warps, many registers", 3, 227, 20_000),
        case("32 warps", 32, 64, 10_000),
    ],
    mistakes=[
        Mistake("not_rounded", "a warp's registers were not rounded up to a multiple of 256", "per warp: 32 · registers, in pieces of 256",
                (WARP, "32 * registers")),
        Mistake("rounded_down", "a warp's registers were rounded down to a multiple of 256", "per warp: a piece that is begun is taken whole",
                (WARP, "32 * registers // 256 * 256")),
        Mistake("rounded_per_program", "the registers of the whole program were rounded up, not those of each warp",
                "per warp: the pieces go to warps, and two warps share none", (REGISTERS, "65536 // (-(-32 * registers * num_warps // 256) * 256)")),
        Mistake("rounded_to_power_of_two", "registers were rounded up to a power of two", "per warp: multiples of 256, which are many more than the powers of two",
                (WARP, "32 * (1 << (registers - 1).bit_length())")),
        Mistake("threads_forgotten", "registers were counted for one thread of each warp", "registers: each of a warp's 32 threads has its own",
                (WARP, "registers")),
        Mistake("reserve_once", "the system's KiB was taken off once, not for each program", "shared memory: 1 KiB more for each program",
                (SHARED, "227 * 1024 // max(1, shared)"), also=[
                      *([(SHARED, f"(227 * 1024 // shared if shared else {none})")] for none in ("32", "228", "227", "by_threads", "227 * 1024", "2048", "10**9"))]),
        Mistake("decimal_kilobytes", "a KiB was taken for 1000 bytes", "1 KiB is 1024 bytes", (SHARED, "228 * 1000 // (shared + 1000)")),
        Mistake("no_limit_of_programs", "the limit of 32 programs an SM was left out", "programs: the least of the three and 32",
                (LEAST, "min(by_threads, by_registers, by_shared)")),
        Mistake("at_least_one", "a program that does not fit was counted as one", "registers may allow 0 programs",
                (LEAST, "max(1, min(by_threads, by_registers, by_shared, 32))"), also=[[(REGISTERS, "max(1, 65536 // (per_warp * num_warps))")]]),
        Mistake("four_partitions", "the registers were dealt out to four partitions of the SM, each for whole warps of its own",
                "registers: 65,536 an SM, in one store here", (REGISTERS, "4 * (16384 // per_warp) // num_warps")),
        Mistake("largest", "the largest of the limits was taken, not the smallest", "all limits hold at once: min",
                (LEAST, "max(by_threads, by_registers, by_shared, 32)")),
        Mistake("each_limited_to_32", "each of the three numbers was held to 32, the limit of programs", "the limit of 32: it belongs to the least of them alone",
                (THREADS, f"min(32, {THREADS})"), (REGISTERS, f"min(32, {REGISTERS})"), (SHARED, f"min(32, {SHARED})")),
        Mistake("one_piece_more", "a warp was counted with 32 · registers // 256 + 1 pieces, one too many where they fit exactly",
                "per warp: 32 · registers rounded up to a multiple of 256", (WARP, "(32 * registers // 256 + 1) * 256")),
        Mistake("reserve_as_minimum", "the system's KiB was taken for the least that a program takes: the larger of shared and 1024",
                "shared memory: 1 KiB more for each program, on top of its own", (SHARED, "228 * 1024 // max(shared, 1024)")),
        Mistake("whole_kib", "shared memory was rounded up to whole KiB", "shared memory: bytes, none of them rounded",
                (SHARED, "228 * 1024 // (-(-shared // 1024) * 1024 + 1024)")),
    ],
    hints=[
        "by_threads = 2048 // (32 * num_warps). The other limits have the same form.",
        "A warp's registers: -(-32 * registers // 256) * 256. A program has num_warps of those.",
        "by_shared = 228 * 1024 // (shared + 1024); programs is the least of the three and 32.",
        "Only numbers of registers that 8 does not divide are wrong: a warp gets its registers in pieces of 256.",
        "Only tiny programs are wrong: an SM has places for 32 programs.",
    ],
)
