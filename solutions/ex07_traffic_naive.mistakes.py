from flashlab.rungs.naive import naive_forward
from flashlab_course.check.cases import Mistake, case_of, measured

READS, WRITES = "(N_q + N_k) * d + 3 * N_q * N_k + N_k * d_v", "3 * N_q * N_k + N_q * d_v"
ONE_LESS = (WRITES, "2 * N_q * N_k + N_q * d_v")
ONE_READ_LESS = (READS, "(N_q + N_k) * d + 2 * N_q * N_k + N_k * d_v")

outputs = [("reads",), ("writes",)]
ints_only = True
truth = lambda **sizes: measured(naive_forward, **sizes)
case = case_of(lambda N_q, N_k, d, d_v: locals())
cases = [case("small", 5, 7, 3, 4),
         case("all different", 7, 11, 3, 5),
         case("larger", 40, 30, 16, 24)]
mistakes = [
    Mistake("each_matrix_once", "each matrix was counted as read once and written once",
            "how many operations read and write S", (READS, "(N_q + N_k) * d + N_q * N_k + N_k * d_v"), ONE_LESS),
    Mistake("each_tensor_once", "S was counted as read once in all", "how many of the four operations read S",
            (READS, "(N_q + N_k) * d + N_q * N_k + N_k * d_v")),
    Mistake("scale_forgotten", "the scaling was not counted", "the second of the four operations", ONE_READ_LESS,
            ONE_LESS),
    Mistake("logsumexp_counted", "a logsumexp was counted that is not among the operations", "the four operations",
            (READS, "(N_q + N_k) * d + 4 * N_q * N_k + N_k * d_v"), (WRITES, WRITES + " + N_q")),
    Mistake("P_not_read", "one of the reads of an N_q × N_k matrix was left out",
            "what each of the four operations reads", ONE_READ_LESS),
    Mistake("written_in_place", "one of the N_q × N_k results was not counted as written", "what each operation writes",
            ONE_LESS),
    Mistake("softmax_three_passes", "the softmax was counted as three passes over S",
            "how often one operation reads its operand", (READS, "(N_q + N_k) * d + 5 * N_q * N_k + N_k * d_v")),
    Mistake("transpose_copied", "the transpose of K was counted as an operation of its own", "what a transpose moves",
            (READS, READS + " + N_k * d"), (WRITES, WRITES + " + N_k * d")),
    Mistake("d_for_d_v", "d was taken for the width of V and O", "the shapes of V and O", (READS,
             "(N_q + N_k) * d + 3 * N_q * N_k + N_k * d"), (WRITES, "3 * N_q * N_k + N_q * d")),
]
hints = ["S = QKᵀ reads Q and K and writes N_q·N_k elements. Write down the other three operations the same way.",
         "Which operations read an N_q × N_k matrix? The scaling, the softmax and P V.",
         "Which write one? QKᵀ, the scaling and the softmax."]
