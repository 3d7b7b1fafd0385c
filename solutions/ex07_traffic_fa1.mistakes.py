from flashlab.rungs.fa1 import fa1_forward
from flashlab_course.check.cases import Mistake, case_of, measured

READS = "N_k * (d + d_v) + T_c * N_q * (d + d_v + 2)"
WRITES = "N_q * (d_v + 2) + T_c * N_q * (d_v + 2) + N_q"

outputs = [("reads",), ("writes",)]
ints_only = True
truth = lambda **sizes: measured(fa1_forward, **sizes)
case = case_of(lambda N_q, N_k, d, d_v, B_r, B_c: locals())
cases = [case("one block of each", 3, 3, 2, 2, 3, 3),
         case("two query blocks", 6, 3, 2, 2, 3, 3),
         case("B_r ≠ B_c", 12, 12, 4, 4, 2, 3),
         case("a short last key block", 9, 8, 3, 2, 3, 3),
         case("a short last query block", 8, 9, 3, 2, 3, 3),
         case("short last blocks", 11, 13, 4, 3, 4, 5)]
mistakes = [
    Mistake("T_c_floor", "the number of key blocks was rounded down", "T_c where the last block is short",
            ("-(-N_k // B_c)", "N_k // B_c")),
    Mistake("one_block_too_many", "T_c was one too many where B_c divides N_k", "how T_c is rounded", ("-(-N_k // B_c)",
             "(N_k // B_c + 1)")),
    Mistake("short_blocks_full", "a short last block was counted as a full one", "how many rows a short block moves",
            ("T_c = -(-N_k // B_c)", "T_c = -(-N_k // B_c)\n    N_q, N_k = -(-N_q // B_r) * B_r, T_c * B_c")),
    Mistake("K_V_per_query_block", "K and V were counted once per query block",
            "the loop in which K_j and V_j are read", (READS, f"-(-N_q // B_r) * {READS}")),
    Mistake("l_m_forgotten", "l and m were not counted", "what is read and written beside Q and O", (READS,
             "N_k * (d + d_v) + T_c * N_q * (d + d_v)"), (WRITES, "N_q * d_v + T_c * N_q * d_v + N_q")),
    Mistake("start_forgotten", "the first values of O, l and m were not counted as written",
            "what is written before the loops", (WRITES, "T_c * N_q * (d_v + 2) + N_q")),
    Mistake("L_forgotten", "L was not counted", "what the last key step writes", (WRITES,
             "N_q * (d_v + 2) + T_c * N_q * (d_v + 2)")),
    Mistake("L_each_step", "L was counted once per key block", "when L_i is written", (WRITES,
             "N_q * (d_v + 2) + T_c * N_q * (d_v + 3)")),
    Mistake("d_for_d_v", "d was taken for the width of V and O", "the shapes of V and O", (READS,
             "N_k * (d + d) + T_c * N_q * (d + d + 2)"), (WRITES, "N_q * (d + 2) + T_c * N_q * (d + 2) + N_q")),
]
hints = ["Q, O, l and m pass by once for each key block, whatever B_r is. How many key blocks are there?",
         "All query blocks together are N_q rows: each key block reads N_q·(d + d_v + 2) elements of them.",
         "Writes: the first O, l, m; then O, l, m for each key block; then L once."]
