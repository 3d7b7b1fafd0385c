from flashlab_course.check.cases import Mistake, case_of

BLOCK, FORWARD = "N // R * H_kv * (d + d_v)", "(R - 1) * block * itemsize"
SUMS, RESULT = "R * block * 4 if R > 1 else 0", "return forward, forward + sums"

outputs = [("forward",), ("backward",)]
ints_only = True
features = {"more than one rank": lambda R: R > 1, "16-bit inputs": lambda itemsize: itemsize == 2}
case = case_of(lambda N, R, H_q, H_kv, d, d_v, itemsize: locals())
cases = [case("one rank", 6, 1, 1, 1, 3, 3, 4),
         case("two ranks", 10, 2, 1, 1, 3, 3, 4),
         case("three ranks", 15, 3, 1, 1, 7, 7, 4),
         case("16 bits", 10, 2, 1, 1, 3, 3, 2),
         case("d_v ≠ d", 28, 4, 1, 1, 3, 5, 4),
         case("grouped heads", 21, 3, 10, 5, 4, 4, 2),
         case("all at once", 55, 5, 6, 3, 7, 4, 2),
         case("as on GPUs", 131072, 8, 32, 8, 128, 128, 2)]
mistakes = [
    Mistake("R_times", "K and V were counted R times", "whether a block is passed on after the last step", (FORWARD,
             "R * block * itemsize if R > 1 else 0")),
    Mistake("whole_sequence", "a block was counted with all N rows", "how many rows a rank sends in a step", (BLOCK,
             "N * H_kv * (d + d_v)")),
    Mistake("d_for_d_v", "d was taken for the width of V", "the widths of K and of V", (BLOCK,
             "N // R * H_kv * 2 * d")),
    Mistake("elements", "K and V were counted in elements, not in bytes", "the unit of the result", (FORWARD,
             "(R - 1) * block")),
    Mistake("query_heads", "a block was counted with H_q heads", "whose heads travel", (BLOCK,
             "N // R * H_q * (d + d_v)")),
    Mistake("sums_in_16_bits", "dK and dV were not counted with 4 bytes an element", "the dtype of dK and dV", (SUMS,
             "R * block * itemsize if R > 1 else 0"), also=[[(SUMS, "R * block * 2 if R > 1 else 0")]]),
    Mistake("only_sums", "K and V were not counted in the backward pass", "what P is recomputed from", (RESULT,
             "return forward, sums")),
    Mistake("sums_not_home", "dK and dV were counted R − 1 times, and never reached their owner",
            "where dK and dV end up", (SUMS, "(R - 1) * block * 4")),
    Mistake("keys_home_too", "K and V, too, were counted R times in the backward pass", "which blocks go home", (RESULT,
             "return forward, (R * block * itemsize if R > 1 else 0) + sums")),
    Mistake("sums_in_one_rank", "with one rank, dK and dV were counted as sent", "whom a single rank sends to", (SUMS,
             "R * block * 4")),
    Mistake("sums_of_query_heads", "dK and dV were counted with H_q heads", "the shapes of dK and dV", (SUMS,
             "R * (N // R) * H_q * (d + d_v) * 4 if R > 1 else 0")),
    Mistake("sums_home_in_16_bits", "the last step of dK and dV was counted with itemsize bytes",
            "the dtype of dK and dV in that step", (SUMS, "(R - 1) * block * 4 + block * itemsize if R > 1 else 0")),
]
hints = ["How many elements are in the K and V of N/R rows and H_kv heads?",
         "With R ranks, how many others has a block to be passed on to? Its owner has it already.",
         "The sums of a block start at its owner, and have to come home. A single rank sends nothing."]
