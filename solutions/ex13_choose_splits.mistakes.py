from flashlab_course.check.cases import Mistake, case_of

# the same in the line for s = 1 and in the loop
FIRST, TIME = "-(-P // SMs) * (T + 2)", "-(-(P * s) // SMs) * (-(-T // s) + 2)"
RANGE, KEPT, IF = "range(2, T + 1)", "best, least = s, time", "if time < least:"

outputs = [("splits",)]
ints_only = True
features = {"fewer programs than SMs": lambda P, SMs: P < SMs, "more programs than SMs": lambda P, SMs: P > SMs}
case = case_of(lambda P, T, SMs: locals())
cases = [case("one key block", 1, 1, 4),
         case("two key blocks, three SMs", 1, 2, 3),
         case("one program, four SMs", 1, 64, 4),
         case("more programs than SMs", 10, 100, 8),
         case("three programs, eight SMs", 3, 90, 8),
         case("a short context", 2, 3, 132),
         case("several with the least time", 1, 12, 7),
         case("a long context, 32 heads", 32, 1024, 132),
         case("a batch of 17, 8 heads", 136, 256, 132),
         case("4096 key blocks", 1, 4096, 1000)]
mistakes = [
    Mistake("fills_the_SMs", "s was SMs // P, just enough programs to fill the GPU", "other s that are as fast",
            ("return best", "return min(T, max(1, SMs // P))")),
    Mistake("start_forgotten", "the 2 extra steps were left out, or counted once", "what each wave costs", (FIRST,
             "-(-P // SMs) * T"), (TIME, "-(-(P * s) // SMs) * -(-T // s)")),
    Mistake("waves_not_rounded", "the number of waves was left a fraction", "a last wave that is not full", (FIRST,
             "max(1, P / SMs) * (T + 2)"), (TIME, "max(1, P * s / SMs) * (-(-T // s) + 2)")),
    Mistake("no_waves", "the work was shared out evenly over the SMs, as if there were no waves",
            "how long one full wave takes", (FIRST, "max(-(-P * (T + 2) // SMs), T + 2)"), (TIME,
             "max(-(-P * s * (-(-T // s) + 2) // SMs), -(-T // s) + 2)")),
    Mistake("programs_ignored", "the waves were counted for s programs, not for all P · s",
            "how many programs there are in all", (FIRST, "T + 2"), (TIME, "-(-s // SMs) * (-(-T // s) + 2)")),
    Mistake("largest_of_equals", "of several s with the least time, the largest was returned",
            "what happens when two times are equal", (IF, "if time <= least:")),
    Mistake("T_left_out", "s = T was never tried", "where the range of s ends", (RANGE, "range(2, T)")),
    Mistake("only_one_wave_tried", "only those s were tried whose programs fit in one wave",
            "more waves of shorter programs", (RANGE, "range(2, min(T, SMs // P) + 1)")),
    Mistake("full_gpu_not_split", "nothing was split when there were at least as many programs as SMs",
            "a last wave that is nearly empty", (RANGE, "range(2, T + 1 if P < SMs else 2)")),
    Mistake("powers_of_two", "only powers of two were tried", "which s are allowed", (RANGE,
             "[2**n for n in range(1, T.bit_length()) if 2**n <= T]")),
    Mistake("first_rise_ends", "the search stopped when the time first rose", "the times of all s, side by side", (KEPT,
             "…\n        elif time > least:\n            break"),
            also=[[(KEPT, "…\n        else:\n            break")]]),
]
hints = ["Put the time into a function of s, and print it for s = 1, 2, 3, ... with one of the cases' numbers.",
         "In whole numbers, ⌈a / b⌉ is -(-a // b).",
         "Keep the best s so far. Another one replaces it only if it is faster, not if it is as fast."]
