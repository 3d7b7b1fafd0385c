"""Cases and mistakes of ex07_traffic_naive."""

from flashlab.rungs.naive import naive_forward
from flashlab_course.check.form import Exercise, Mistake, Output
from flashlab_course.check.traffic import case, measured, terms

READS = "(N_q + N_k) * d + 4 * N_q * N_k + N_k * d_v"
WRITES = "3 * N_q * N_k + N_q * d_v + N_q"

EXERCISE = Exercise(
    function="naive_traffic",
    outputs=(Output("reads"), Output("writes")),
    ints_only=True,
    truth=lambda **sizes: measured(naive_forward, **sizes),
    terms=terms,
    cases=[
        case("square", 4, 4, 3, 3),
        case("N_q ≠ N_k", 3, 5, 4, 4),
        case("d_v ≠ d", 6, 6, 2, 5),
        case("all different", 7, 11, 3, 5),
        case("larger", 40, 30, 16, 24),
    ],
    mistakes=[
        Mistake("each_matrix_once", "each matrix was counted as read once and as written once, however many operations read or write it", "a read for each operand of each operation and a write for each result: S is read three times and written twice",
                ("4 * N_q * N_k", "2 * N_q * N_k"), (WRITES, "2 * N_q * N_k + N_q * d_v + N_q")),
        Mistake("each_tensor_once", "S was counted as read once, though each of the operations that take it reads it again", "one read for each operation: the scaling, the softmax and logsumexp each take S from HBM",
                ("4 * N_q * N_k", "2 * N_q * N_k")),
        Mistake("L_like_O", "L was counted as a matrix of the size of O", "L: one number for each query", ("+ N_q * d_v + N_q", "+ N_q * d_v + N_q * d_v")),
        Mistake("logsumexp_forgotten", "the logsumexp was forgotten: it reads S once more and writes L", "the last of the five operations",
                (READS, "(N_q + N_k) * d + 3 * N_q * N_k + N_k * d_v"), (WRITES, "3 * N_q * N_k + N_q * d_v")),
        Mistake("L_not_written", "L was not counted: N_q elements are written", "what logsumexp writes", (WRITES, "3 * N_q * N_k + N_q * d_v")),
        Mistake("scale_forgotten", "the scaling was forgotten: it is an operation of its own, which reads S and writes it again", "S · scale, which eager PyTorch does not fuse with QKᵀ",
                (READS, "(N_q + N_k) * d + 3 * N_q * N_k + N_k * d_v"), (WRITES, "2 * N_q * N_k + N_q * d_v + N_q")),
        Mistake("S_never_moved", "S and P were not counted at all: only Q, K, V, O and L", "the intermediate matrices: each operation writes its result to HBM",
                (READS, "(N_q + N_k) * d + N_k * d_v"), (WRITES, "N_q * d_v + N_q")),
        Mistake("S_read_once", "all matrices of N_q × N_k together were counted as one read and one write", "which of the five operations read an N_q × N_k matrix, and which write one",
                (READS, "(N_q + N_k) * d + N_q * N_k + N_k * d_v"), (WRITES, "N_q * N_k + N_q * d_v + N_q")),
        Mistake("P_not_read", "one of the reads of an N_q × N_k matrix is missing: P, by P V, or S, by one of the three operations that take it", "which of the five operations reads what", (READS, "(N_q + N_k) * d + 3 * N_q * N_k + N_k * d_v")),
        Mistake("inputs_forgotten", "Q, K and V were not counted", "what the two matrix products read besides S and P", (READS, "4 * N_q * N_k")),
        Mistake("V_forgotten", "V was not counted", "the operands of P V", (READS, "(N_q + N_k) * d + 4 * N_q * N_k")),
        Mistake("O_forgotten", "O was not counted as written", "the result of P V", (WRITES, "3 * N_q * N_k + N_q")),
        Mistake("d_for_d_v", "d was taken for the width of V and O", "V is (N_k, d_v), O is (N_q, d_v)", (READS, "(N_q + N_k) * d + 4 * N_q * N_k + N_k * d"), (WRITES, "3 * N_q * N_k + N_q * d + N_q")),
        Mistake("N_q_for_N_k", "N_q and N_k were taken to be the same", "the shapes: K and V have N_k rows, S has N_k columns",
                (READS, "2 * N_q * d + 4 * N_q * N_q + N_q * d_v"), (WRITES, "3 * N_q * N_q + N_q * d_v + N_q")),
        Mistake("matmul_reads_per_product", "a matrix product was counted as reading an operand for every multiplication, N_q·N_k·d", "an operation reads each operand once",
                (READS, "2 * N_q * N_k * d + 4 * N_q * N_k + N_k * d_v"),
                also=[[(READS, "2 * N_q * N_k * d + 2 * N_q * N_k * d_v + 3 * N_q * N_k")], [(READS, "N_q * N_k * d + N_q * N_k * d_v + 3 * N_q * N_k")]]),
        Mistake("transpose_copied", "Kᵀ was counted as an operation of its own, which reads K, writes it again, or both", "a transpose: it is a view and moves nothing", (READS, READS + " + N_k * d"), (WRITES, WRITES + " + N_k * d"),
                also=[[(READS, READS + " + N_k * d")], [(WRITES, WRITES + " + N_k * d")]]),
        Mistake("bytes", "the result is in bytes, not in elements", "the unit: a float32 element has 4 bytes, count elements", ("return reads, writes", "return 4 * reads, 4 * writes")),
        Mistake("swapped", "reads and writes came back in the wrong order", "the order of what is returned: reads, writes", ("return reads, writes", "return writes, reads")),
        Mistake("K_forgotten", "K was not counted", "the operands of QKᵀ", (READS, "N_q * d + 4 * N_q * N_k + N_k * d_v")),
        Mistake("written_in_place", "one result of N_q × N_k was not counted as written, S · scale or P, as if it took the place of S", "what eager PyTorch writes: QKᵀ, S · scale and the softmax make a matrix each", (WRITES, "2 * N_q * N_k + N_q * d_v + N_q")),
        Mistake("logsumexp_not_read", "the logsumexp was not counted as reading S", "the last of the five operations reads S once more", (READS, "(N_q + N_k) * d + 3 * N_q * N_k + N_k * d_v"), same_as="P_not_read"),
        Mistake("softmax_three_passes", "the softmax was counted as three passes over S: maximum, sum and quotient", "one operation reads its operand once, whatever it computes", (READS, "(N_q + N_k) * d + 6 * N_q * N_k + N_k * d_v")),
        Mistake("L_a_matrix", "L was counted as a matrix N_q × N_k", "L has one number for each query", (WRITES, "4 * N_q * N_k + N_q * d_v")),
        Mistake("O_read", "O was counted as read", "O is written and not read again", (READS, "(N_q + N_k) * d + 4 * N_q * N_k + N_k * d_v + N_q * d_v")),
        Mistake("flops", "for the reads, multiplications were counted, not elements", "what is asked: elements read and written", (READS, "N_q * N_k * (d + d_v)")),
        Mistake("V_of_N_q", "V was counted with N_q rows", "V is (N_k, d_v)", (READS, "(N_q + N_k) * d + 4 * N_q * N_k + N_q * d_v")),
        Mistake("K_of_N_q", "K was counted with N_q rows", "K is (N_k, d)", (READS, "2 * N_q * d + 4 * N_q * N_k + N_k * d_v")),
        Mistake("L_of_N_k", "L was counted with one number for each key", "L has one number for each query", (WRITES, "3 * N_q * N_k + N_q * d_v + N_k")),
        Mistake("O_of_N_k", "O was counted with N_k rows", "O is (N_q, d_v)", (WRITES, "3 * N_q * N_k + N_k * d_v + N_q")),
        Mistake("scale_read", "the scale was counted as an element that is read", "S · scale: the scale is a number in the program, not a tensor in HBM", (READS, READS + " + 1")),
        Mistake("d_for_V", "V was counted with d columns", "V is (N_k, d_v)", (READS, "(N_q + N_k) * d + 4 * N_q * N_k + N_k * d")),
        Mistake("d_for_O", "O was counted with d columns", "O is (N_q, d_v)", (WRITES, "3 * N_q * N_k + N_q * d + N_q")),
        Mistake("softmax_two_passes", "the softmax was counted as two passes over S", "one operation reads its operand once, whatever it computes", (READS, "(N_q + N_k) * d + 5 * N_q * N_k + N_k * d_v")),
    ],
    hints=[
        "S = QKᵀ reads N_q·d + N_k·d and writes N_q·N_k. S · scale reads N_q·N_k and writes N_q·N_k.",
        "An N_q x N_k matrix is read by the scaling, the softmax, P V and logsumexp, and written by QKᵀ, the scaling and the softmax.",
        "reads = (N_q + N_k)·d + 4·N_q·N_k + N_k·d_v. The writes go the same way.",
    ],
)
