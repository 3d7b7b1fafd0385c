from flashlab.rungs.fa2 import fa2_forward
from flashlab_course.check.cases import Mistake, case_of, measured

READS, WRITES = "N_q * d + T_r * N_k * (d + d_v)", "N_q * d_v + N_q"
T_c = "-(-N_k // B_c)"

outputs = [("reads",), ("writes",)]
ints_only = True
truth = lambda **sizes: measured(fa2_forward, **sizes)
case = case_of(lambda N_q, N_k, d, d_v, B_r, B_c: locals())
cases = [case("one block of each", 3, 3, 2, 2, 3, 3),
         case("two query blocks", 6, 3, 2, 2, 3, 3),
         case("B_r ≠ B_c", 12, 12, 4, 4, 2, 3),
         case("a short last key block", 9, 8, 3, 2, 3, 3),
         case("a short last query block", 8, 9, 3, 2, 3, 3),
         case("short last blocks", 11, 13, 4, 3, 4, 5)]
mistakes = [
    Mistake("T_r_floor", "the number of query blocks was rounded down", "T_r where the last block is short",
            ("-(-N_q // B_r)", "N_q // B_r")),
    Mistake("one_block_too_many", "T_r was one too many where B_r divides N_q", "how T_r is rounded", ("-(-N_q // B_r)",
             "(N_q // B_r + 1)")),
    Mistake("T_c_for_T_r", "K and V were counted once per key block", "how often all of K and V pass by",
            ("-(-N_q // B_r)", "-(-N_k // B_c)")),
    Mistake("Q_each_step", "Q was counted once per key block", "the loop in which Q_i is read", (READS,
             "-(-N_k // B_c) * N_q * d + T_r * N_k * (d + d_v)")),
    Mistake("K_V_once", "K and V were counted as read once", "the loop in which K_j and V_j are read", (READS,
             "N_q * d + N_k * (d + d_v)")),
    Mistake("O_and_L_each_step", "O and L were counted as written in each key step", "when O_i and L_i are written",
            ("writes = N_q * d_v + N_q", "writes = -(-N_k // B_c) * (N_q * d_v + N_q)")),
    Mistake("l_m_written", "l and m were counted as written beside O", "what leaves the chip at the end", (WRITES,
             "N_q * d_v + 2 * N_q"), also=[[(WRITES, "N_q * d_v + 3 * N_q")]]),
    Mistake("d_for_d_v", "d was taken for the width of V and O", "the shapes of V and O", (READS,
             "N_q * d + T_r * N_k * (d + d)"), (WRITES, "N_q * d + N_q")),
    Mistake("bytes", "the result was in bytes, not in elements", "the unit of the result", ("return reads, writes",
             "return 4 * reads, 4 * writes")),
]
hints = ["Q, O and L cross HBM once. How often do K and V?",
         "All key blocks together are N_k rows of K and V, whatever B_c is: N_k·(d + d_v) reads per query block.",
         "There are T_r = -(-N_q // B_r) query blocks."]
