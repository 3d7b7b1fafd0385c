"""Cases and mistakes of ex07_traffic_fa1."""

from flashlab.rungs.fa1 import fa1_forward
from flashlab_course.check.form import Exercise, Mistake, Output
from flashlab_course.check.traffic import TILED_CASES, measured, terms

READS = "N_k * (d + d_v) + T_c * N_q * (d + d_v + 2)"
WRITES = "N_q * (d_v + 2) + T_c * N_q * (d_v + 2) + N_q"
ROWS = "-(-N_q // B_r) * B_r"
WHOLE_READS = f"T_c * B_c * (d + d_v) + T_c * {ROWS} * (d + d_v + 2)"

EXERCISE = Exercise(
    function="fa1_traffic",
    outputs=(Output("reads"), Output("writes")),
    ints_only=True,
    truth=lambda **sizes: measured(fa1_forward, **sizes),
    terms=terms,
    cases=TILED_CASES,
    mistakes=[
        Mistake("short_blocks_full", "a short last block was counted as a full one", "sizes: a block that sticks out moves only the rows that exist",
                ("T_c = -(-N_k // B_c)", "T_c = -(-N_k // B_c)\n    N_q, N_k = -(-N_q // B_r) * B_r, T_c * B_c"),
                also=
                     [[(READS, WHOLE_READS), (WRITES, f"{rows} * (d_v + 2) + T_c * {ROWS} * (d_v + 2) + {L_rows}")] for rows in ("N_q", ROWS) for L_rows in ("N_q", ROWS)]),
        Mistake("T_c_floor", "the number of key blocks was rounded down", "T_c = ⌈N_k / B_c⌉: the last block may be short", ("-(-N_k // B_c)", "N_k // B_c")),
        Mistake("B_r_for_B_c", "the keys were cut into blocks of B_r", "which size belongs to keys: B_c", ("-(-N_k // B_c)", "-(-N_k // B_r)")),
        Mistake("T_r_for_T_c", "Q, O, l and m were counted once per query block, T_r times, not once per key block",
                "how often all of Q, O, l and m pass by: once for each key block, T_c times", ("-(-N_k // B_c)", "-(-N_q // B_r)")),
        Mistake("as_FA2", "K and V were counted once per query block, and Q once: that is FA2", "which loop is outside: in FA1 K_j and V_j stay on chip",
                (READS, "N_q * d + -(-N_q // B_r) * N_k * (d + d_v)"), (WRITES, "N_q * (d_v + 1)")),
        Mistake("Q_once", "Q was counted as read once", "Q_i is read in the inner loop, for every key block",
                (READS, "N_k * (d + d_v) + N_q * d + T_c * N_q * (d_v + 2)")),
        Mistake("O_not_read", "O was not counted as read back in each step", "the inner loop reads O_i before it adds to it",
                (READS, "N_k * (d + d_v) + T_c * N_q * (d + 2)")),
        Mistake("l_m_forgotten", "l and m were not counted", "l_i and m_i: two numbers per query, read and written in each step",
                (READS, "N_k * (d + d_v) + T_c * N_q * (d + d_v)"), (WRITES, "N_q * d_v + T_c * N_q * d_v + N_q")),
        Mistake("l_m_not_read", "l and m were counted as written but not as read", "the inner loop reads l_i and m_i too",
                (READS, "N_k * (d + d_v) + T_c * N_q * (d + d_v)")),
        Mistake("start_forgotten", "the first values of O, l and m were not counted as written", "what FA1 starts with: zeros have to be written to HBM too",
                (WRITES, "T_c * N_q * (d_v + 2) + N_q")),
        Mistake("one_l_and_m_to_start", "the first values of l and m were counted as one number each, not as one for each query",
                "l and m are vectors of N_q numbers, also at the start", (WRITES, "N_q * d_v + 2 + T_c * N_q * (d_v + 2) + N_q")),
        Mistake("L_forgotten", "L was not counted", "the last key step writes L_i", (WRITES, "N_q * (d_v + 2) + T_c * N_q * (d_v + 2)")),
        Mistake("L_each_step", "L was counted once per key block", "L_i is written in the last key step alone",
                (WRITES, "N_q * (d_v + 2) + T_c * N_q * (d_v + 3)")),
        Mistake("written_once", "O, l and m were counted as written back once, not in each key step", "the inner loop writes them in each step",
                (WRITES, "N_q * (d_v + 2) + N_q * (d_v + 2) + N_q")),
        Mistake("d_for_d_v", "d was taken for the width of V and O", "V is (N_k, d_v), O is (N_q, d_v)",
                (READS, "N_k * (d + d) + T_c * N_q * (d + d + 2)"), (WRITES, "N_q * (d + 2) + T_c * N_q * (d + 2) + N_q")),
        Mistake("whole_blocks", "a short last key block was counted as a whole one", "K and V have N_k rows, not T_c·B_c",
                (READS, "T_c * B_c * (d + d_v) + T_c * N_q * (d + d_v + 2)")),
        Mistake("bytes", "the result is in bytes, not in elements", "the unit: count elements", ("return reads, writes", "return 4 * reads, 4 * writes")),
        Mistake("K_V_per_query_block", "K and V were counted once per query block too", "K_j and V_j are read in the outer loop, and stay on chip",
                (READS, "-(-N_q // B_r) * N_k * (d + d_v) + T_c * N_q * (d + d_v + 2)")),
        Mistake("per_block_not_row", "l and m were counted as two numbers per query block, not two per query", "l_i and m_i: one number of each for every query",
                (READS, "N_k * (d + d_v) + T_c * (N_q * (d + d_v) + 2 * -(-N_q // B_r))"),
                (WRITES, "N_q * (d_v + 2) + T_c * (N_q * d_v + 2 * -(-N_q // B_r)) + N_q")),
        Mistake("one_of_l_and_m", "only one of l and m was counted", "l_i and m_i: two numbers per query", (READS, "N_k * (d + d_v) + T_c * N_q * (d + d_v + 1)"),
                (WRITES, "N_q * (d_v + 1) + T_c * N_q * (d_v + 1) + N_q")),
        Mistake("Q_written", "Q was counted as written", "Q is read, and never written", (WRITES, "N_q * (d_v + 2) + T_c * N_q * (d_v + 2) + N_q + N_q * d")),
        Mistake("l_and_m_once_too_few", "l and m were counted as written once too few: at the start, or in the last step, where L comes on top",
                "what is written at the start and in each step: O, l and m", (WRITES, "N_q * d_v + T_c * N_q * (d_v + 2) + N_q")),
        Mistake("last_read_missing", "the first key block was taken to read no O, l and m", "the inner loop reads them in each step, also in the first",
                (READS, "N_k * (d + d_v) + T_c * N_q * d + (T_c - 1) * N_q * (d_v + 2)")),
        Mistake("swapped", "reads and writes came back in the wrong order", "the order of what is returned: reads, writes",
                ("return reads, writes", "return writes, reads")),
        Mistake("whole_query_blocks", "short last query blocks were counted as whole ones", "all query blocks together are N_q rows, not T_r·B_r",
                (READS, "N_k * (d + d_v) + T_c * -(-N_q // B_r) * B_r * (d + d_v + 2)"),
                (WRITES, "N_q * (d_v + 2) + T_c * -(-N_q // B_r) * B_r * (d_v + 2) + N_q"), also=[
                      [(READS, "N_k * (d + d_v) + T_c * -(-N_q // B_r) * B_r * (d + d_v + 2)")],
                      [("T_c = -(-N_k // B_c)", "T_c = -(-N_k // B_c)\n    N_q = -(-N_q // B_r) * B_r")], [
                       (READS, "N_k * (d + d_v) + T_c * -(-N_q // B_r) * B_r * (d + d_v + 2)"),
                       (WRITES, "-(-N_q // B_r) * B_r * (d_v + 2) + T_c * -(-N_q // B_r) * B_r * (d_v + 2) + N_q")], [
                       (READS, "N_k * (d + d_v) + T_c * -(-N_q // B_r) * B_r * (d + d_v + 2)"),
                       (WRITES, "-(-N_q // B_r) * B_r * (d_v + 2) + T_c * -(-N_q // B_r) * B_r * (d_v + 2) + -(-N_q // B_r) * B_r")]]),
        Mistake("T_c_a_fraction", "T_c was N_k / B_c, a fraction, and the product was rounded at the end",
                "T_c = ⌈N_k / B_c⌉, before anything is multiplied with it", (READS, "int(N_k * (d + d_v) + N_k / B_c * N_q * (d + d_v + 2))"),
                (WRITES, "int(N_q * (d_v + 2) + N_k / B_c * N_q * (d_v + 2) + N_q)")),
        Mistake("one_block_too_many", "T_c was one too many where B_c divides N_k",
                "T_c = ⌈N_k / B_c⌉ is -(-N_k // B_c): neither N_k // B_c + 1 nor round(N_k / B_c + 0.5)", ("-(-N_k // B_c)", "(N_k // B_c + 1)"),
                also=[[("-(-N_k // B_c)", "round(N_k / B_c + 0.5)")]]),
    ],
    hints=[
        "K and V are read once: N_k·(d + d_v). All query blocks together are N_q rows, whatever B_r is.",
        "Each of the T_c key blocks lets Q (d), O (d_v), l and m (2) pass: T_c·N_q·(d + d_v + 2) reads.",
        "Writes: the first O, l, m; then O, l, m for each key block; then L once.",
    ],
)
