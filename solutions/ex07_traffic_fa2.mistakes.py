"""Cases and mistakes of ex07_traffic_fa2."""

from flashlab.rungs.fa2 import fa2_forward
from flashlab_course.check.form import Exercise, Mistake, Output
from flashlab_course.check.traffic import TILED_CASES, measured, terms

READS = "N_q * d + T_r * N_k * (d + d_v)"
WRITES = "N_q * d_v + N_q"

EXERCISE = Exercise(
    function="fa2_traffic",
    outputs=(Output("reads"), Output("writes")),
    ints_only=True,
    truth=lambda **sizes: measured(fa2_forward, **sizes),
    terms=terms,
    cases=TILED_CASES,
    mistakes=[
        Mistake("short_blocks_full", "a short last block was counted as a full one", "sizes: a block that sticks out moves only the rows that exist",
                ("T_r = -(-N_q // B_r)", "T_r = -(-N_q // B_r)\n    N_q, N_k = T_r * B_r, -(-N_k // B_c) * B_c"),
                also=[[(READS, "T_r * B_r * d + T_r * -(-N_k // B_c) * B_c * (d + d_v)")], [(READS, "T_r * B_r * d + T_r * -(-N_k // B_c) * B_c * (d + d_v)"), (WRITES, "T_r * B_r * d_v + N_q")]]),
        Mistake("O_and_L_each_step", "O and L were written once for each key block", "O_i and L_i are written after the loop over the key blocks: once for each query block",
                ("writes = N_q * d_v + N_q", "writes = -(-N_k // B_c) * (N_q * d_v + N_q)")),
        Mistake("T_r_floor", "the number of query blocks was rounded down", "T_r = ⌈N_q / B_r⌉: the last block may be short", ("-(-N_q // B_r)", "N_q // B_r")),
        Mistake("B_c_for_B_r", "the queries were cut into blocks of B_c", "which size belongs to queries: B_r", ("-(-N_q // B_r)", "-(-N_q // B_c)")),
        Mistake("T_c_for_T_r", "K and V were counted once per key block, not once per query block", "how often all of K and V pass by: once for each query block, T_r times", ("-(-N_q // B_r)", "-(-N_k // B_c)")),
        Mistake("as_FA1", "Q, O, l and m were counted once per key block, and K, V once: that is FA1", "which loop is outside: in FA2 Q_i, O_i, l_i and m_i stay on chip",
                (READS, "N_k * (d + d_v) + -(-N_k // B_c) * N_q * (d + d_v + 2)"), (WRITES, "(1 + -(-N_k // B_c)) * N_q * (d_v + 2) + N_q")),
        Mistake("Q_each_step", "Q was counted once per key block", "Q_i is read before the inner loop", (READS, "-(-N_k // B_c) * N_q * d + T_r * N_k * (d + d_v)")),
        Mistake("K_V_once", "K and V were counted as read once", "the inner loop reads them again for each query block", (READS, "N_q * d + N_k * (d + d_v)")),
        Mistake("V_once", "V was counted as read once, though K was counted T_r times", "V_j is read in the same loop as K_j", (READS, "N_q * d + T_r * N_k * d + N_k * d_v")),
        Mistake("per_query", "K and V were counted once per query, not once per block of queries", "a query block of B_r shares one read", ("-(-N_q // B_r)", "N_q")),
        Mistake("O_read", "O was counted as read", "O_i starts as zeros on chip, and is never read", (READS, "N_q * (d + d_v) + T_r * N_k * (d + d_v)")),
        Mistake("O_each_step", "O was counted as written in each key step", "O_i is written after the inner loop", (WRITES, "-(-N_k // B_c) * N_q * d_v + N_q")),
        Mistake("l_m_written", "more than one number for each query was counted as written beside O, but l and m stay on chip", "what leaves the chip: O_i and L_i, one number per query", (WRITES, "N_q * d_v + 2 * N_q"), also=[[(WRITES, "N_q * d_v + 3 * N_q")]]),
        Mistake("L_forgotten", "L was not counted", "L_i is written after the loop, like O_i", (WRITES, "N_q * d_v")),
        Mistake("d_for_d_v", "d was taken for the width of V and O", "V is (N_k, d_v), O is (N_q, d_v)", (READS, "N_q * d + T_r * N_k * (d + d)"), (WRITES, "N_q * d + N_q")),
        Mistake("N_q_for_N_k", "N_q was taken for the number of keys", "K and V have N_k rows", (READS, "N_q * d + T_r * N_q * (d + d_v)")),
        Mistake("whole_blocks", "short last key blocks were counted as whole ones", "K and V have N_k rows, not T_c·B_c", (READS, "N_q * d + T_r * -(-N_k // B_c) * B_c * (d + d_v)")),
        Mistake("bytes", "the result is in bytes, not in elements", "the unit: count elements", ("return reads, writes", "return 4 * reads, 4 * writes")),
        Mistake("m_written_too", "m was counted as written beside L", "what leaves the chip: O_i and L_i, one number per query", (WRITES, "N_q * d_v + 2 * N_q"), same_as="l_m_written"),
        Mistake("L_per_block", "L was counted as one number per query block", "L_i has one number for every query", (WRITES, "N_q * d_v + T_r")),
        Mistake("V_forgotten", "V was not counted", "the inner loop reads K_j and V_j", (READS, "N_q * d + T_r * N_k * d")),
        Mistake("Q_forgotten", "Q was not counted", "Q_i is read for each query block", (READS, "T_r * N_k * (d + d_v)")),
        Mistake("blocks_of_B_r_rows", "short last query blocks were counted as whole ones", "all query blocks together are N_q rows", (READS, "T_r * B_r * d + T_r * N_k * (d + d_v)"), (WRITES, "T_r * B_r * (d_v + 1)")),
        Mistake("start_written", "first values of O, l and m were counted as written", "O_i, l_i and m_i start on chip", (WRITES, "2 * N_q * d_v + 3 * N_q")),
        Mistake("per_step", "K and V were counted whole in each of the T_r · T_c steps", "each step reads one block: all steps of a query block read K and V once", (READS, "N_q * d + T_r * -(-N_k // B_c) * N_k * (d + d_v)")),
        Mistake("swapped", "reads and writes came back in the wrong order", "the order of what is returned: reads, writes", ("return reads, writes", "return writes, reads")),
        Mistake("T_r_a_fraction", "T_r was N_q / B_r, a fraction, and the product was rounded at the end", "T_r = ⌈N_q / B_r⌉, before anything is multiplied with it",
                (READS, "int(N_q * d + N_q / B_r * N_k * (d + d_v))"), also=[[(READS, "round(N_q * d + N_q / B_r * N_k * (d + d_v))")]]),
        Mistake("one_block_too_many", "T_r was one too many where B_r divides N_q", "T_r = ⌈N_q / B_r⌉ is -(-N_q // B_r): neither N_q // B_r + 1 nor round(N_q / B_r + 0.5)",
                ("-(-N_q // B_r)", "(N_q // B_r + 1)"), also=[[("-(-N_q // B_r)", "round(N_q / B_r + 0.5)")]]),
        Mistake("one_block_read_once", "K and V were counted as read once where all keys fit into one block", "K and V: once for each query block, T_r times, also where they are one block", ("T_r = -(-N_q // B_r)", "T_r = 1 if B_c >= N_k else -(-N_q // B_r)")),
        Mistake("product_rounded_up", "N_q / B_r stayed a fraction, and the product was rounded up", "T_r: ⌈N_q / B_r⌉, rounded up before it multiplies", (READS, "N_q * d + -(-N_q * N_k * (d + d_v) // B_r)")),
    ],
    hints=[
        "Q, O and L cross HBM once: N_q·d reads, N_q·d_v + N_q writes.",
        "All key blocks together are N_k rows of K and V, whatever B_c is: N_k·(d + d_v) reads per query block.",
        "There are T_r = -(-N_q // B_r) query blocks.",
    ],
)
