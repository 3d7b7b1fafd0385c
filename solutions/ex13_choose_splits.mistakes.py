"""Cases and mistakes of ex13_choose_splits."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output

TIME, START = "-(-(P * s) // SMs) * (-(-T // s) + 2)", "-(-P // SMs) * (T + 2)"
RANGE, IF = "range(2, T + 1)", "if time < least:"


def case(name, P, T, SMs, features=()):
    inputs = {"P": P, "T": T, "SMs": SMs}
    holds = {"fewer programs than SMs": P < SMs, "more programs than SMs": P > SMs, "SMs that P does not divide": SMs % P != 0,
             "fewer key blocks than idle SMs": T < SMs // P}
    return Case(name, lambda: dict(inputs), frozenset([*features, *(f for f, true in holds.items() if true)]), inputs)


EXERCISE = Exercise(
    function="choose_splits",
    outputs=(Output("splits"),),
    ints_only=True,
    cases=[
        case("one key block", 1, 1, 4),
        case("two key blocks, two SMs", 1, 2, 2),
        case("as many programs as SMs", 8, 16, 8),
        case("one program, four SMs", 1, 64, 4),
        case("more programs than SMs", 10, 100, 8),
        case("one more program than SMs", 9, 100, 8),
        case("one program too few", 7, 100, 8),
        case("five programs, eight SMs", 5, 24, 8),
        case("three programs, eight SMs", 3, 90, 8),
        case("a short context", 2, 3, 132),
        case("eight key blocks, many SMs", 1, 8, 132),
        case("several with the least time", 1, 12, 7),
        case("a long context, 8 heads", 8, 1024, 132),
        case("a long context, 32 heads", 32, 1024, 132),
        case("a long context, one head", 1, 2048, 132),
        case("a batch of 16, 8 heads", 128, 256, 132),
        case("a batch of 17, 8 heads", 136, 256, 132),
        case("an H200's 132 SMs, 66 programs", 66, 512, 132),
        case("a small GPU", 8, 300, 24),
        case("a split that gains nothing", 1, 4, 4),
        case("4096 key blocks", 1, 4096, 1000),
    ],
    mistakes=[
        Mistake("fills_the_SMs", "s was SMs // P, as many splits as there are SMs for each program",
                "the time of the other s: a smaller one can be as fast, and one of more waves faster", body="return min(T, max(1, SMs // P))"),
        Mistake("fills_the_SMs_rounded_up", "s was ⌈SMs / P⌉: a second wave begins with the first program that finds no SM", "the waves: ⌈P · s / SMs⌉",
                body="return min(T, -(-SMs // P))"),
        Mistake("always_one", "s was 1: nothing was split", "the times of the other s: ⌈P · s / SMs⌉ · (⌈T / s⌉ + 2)", body="return 1"),
        Mistake("one_block_a_split", "s was T, one key block a split, as if the 2 steps of each wave cost nothing",
                "the time: ⌈P · s / SMs⌉ waves of ⌈T / s⌉ + 2 steps each, and the smallest s with the least", body="return T"),
        Mistake("start_forgotten", "the 2 steps to begin and to store were left out, or counted once for all waves", "the time of a wave: ⌈T / s⌉ + 2",
                (TIME, "-(-(P * s) // SMs) * -(-T // s)"), (START, "-(-P // SMs) * T"), also=
                     [[(TIME, "-(-(P * s) // SMs) * -(-T // s) + 2"), (START, "-(-P // SMs) * T + 2")]]),
        Mistake("start_of_splits_only", "the 2 steps were counted where there is a split, and not for s = 1", "s = 1: its programs begin and store, too",
                (START, "-(-P // SMs) * T")),
        Mistake("waves_not_rounded", "the waves were P · s / SMs, a fraction", "the waves: a last one that is not full takes as long as a full one",
                (TIME, "max(1, P * s / SMs) * (-(-T // s) + 2)"), (START, "max(1, P / SMs) * (T + 2)")),
        Mistake("programs_ignored", "the waves were rounded up for s programs alone, not for all P · s", "the waves: ⌈P · s / SMs⌉",
                (TIME, "-(-s // SMs) * (-(-T // s) + 2)"), (START, "T + 2")),
        Mistake("largest_of_equals", "of several s with the least time the largest was taken", "several s that share the least time: the smallest of them",
                (IF, "if time <= least:")),
        Mistake("T_left_out", "s = T was never tried", "the last s to try: T itself", (RANGE, "range(2, T)")),
        Mistake("only_one_wave_tried", "only those s were tried that fit in one wave", "all s up to T: more waves of shorter programs may be faster",
                (RANGE, "range(2, min(T, SMs // P) + 1)")),
        Mistake("full_gpu_not_split", "no split was tried where there are as many programs as SMs, or more",
                "P ≥ SMs: a last wave that is nearly empty takes as long as a full one, and shorter programs make it shorter",
                (RANGE, "range(2, T + 1 if P < SMs else 2)")),
        Mistake("powers_of_two", "only powers of two were tried", "all s up to T", (RANGE, "[2**n for n in range(1, T.bit_length()) if 2**n <= T]")),
        Mistake("first_rise_ends", "the search ended where the time first rose, or first stopped falling, and a faster s comes later",
                "all s up to T: the time rises and falls more than once", ("best, least = s, time", "best, least = s, time\n        else:\n            break"),
                also=[[("best, least = s, time", "best, least = s, time\n        elif time > least:\n            break")]]),
        Mistake("no_waves", "the work was shared out evenly over the SMs, as if there were no waves: P · s · (⌈T / s⌉ + 2) / SMs",
                "the waves: a last one that is not full takes as long as a full one", (TIME, "max(-(-P * s * (-(-T // s) + 2) // SMs), -(-T // s) + 2)"),
                (START, "max(-(-P * (T + 2) // SMs), T + 2)")),
    ],
    hints=[
        "⌈a / b⌉ of whole numbers is -(-a // b).",
        "The time with s splits: ⌈P · s / SMs⌉ · (⌈T / s⌉ + 2) steps.",
        "Go through all s from 1 to T, keep the best so far, and replace it only by one that is faster.",
        "Only where there are more programs than SMs: a last wave that is not full takes as long as a full one.",
    ],
)
