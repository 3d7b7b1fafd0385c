import torch

from flashlab import oracle
from flashlab.memory import KiB, kernel, tiles
from flashlab_course.check.cases import EDGE, LARGE, LOOSE, L_and_D, Mistake, case_of, drawn

SUM, DS = "dQ_i + scale * (dS_ij @ K_j)", "P_ij * (dP_ij - D_i[:, None])"
P, MASK = "torch.exp(Q_i @ K_j.T * scale - L_i[:, None])", "P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)"
SCORES, HIDDEN = "Q_i @ K_j.T * scale", "hidden_tile(rows, cols, N_q, N_k)"
L_SAFE, END = "L_i.masked_fill(L_i == -inf, 0)", "cols.start > rows.stop - 1 + N_k - N_q"

function = "dq_program"
outputs = [("dQ", "query", "column")]
# room for the tiles three times over, none for a row of all keys
sram_bytes = lambda Q, K, V, B_r, B_c, **rest: 64 * KiB if len(K) <= 40 else (
    4 * (10 * max(B_r, B_c) * max(Q.shape[1], V.shape[1]) + 6 * B_r * B_c + 64))
truth = lambda Q, K, V, dO, causal, scale, **rest: oracle.gradients(Q, K, V, dO, causal=causal, scale=scale)[0]
without = ("autograd",)
most = lambda Q, K, V, dO, L, D, B_r, B_c, scale, causal: {"K": B_c * K.shape[1], "V": B_c * V.shape[1]}


def call(fn, Q, K, V, dO, L, D, B_r, B_c, scale, causal):
    dQ = torch.full_like(Q, 7.0)
    with kernel("dq_program", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dQ=dQ):
        for rows in tiles(len(Q), B_r):
            fn(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal)
    return dQ


@case_of
def case(N_q, N_k, d=3, d_v=3, B_r=2, B_c=2, *, scale=0.4, causal=False, **how):
    Q, K, V, dO = drawn(N_q, N_k, d, d_v, scale=scale, **how)
    L, D = L_and_D(Q, K, V, dO, causal, scale)
    return {"Q": Q, "K": K, "V": V, "dO": dO, "L": L, "D": D, "B_r": B_r, "B_c": B_c, "scale": scale, "causal": causal}


cases = [case("one key block", 3, 5, 4, 6, 3, 5, scale=1.0, seed=910),
         case("three key blocks, two query blocks", 4, 9, 4, 5, 2, 3, scale=0.3, seed=918),
         case("short last blocks", 5, 7, B_r=3, seed=922),
         case("scores in the hundreds", 4, 12, 4, 4, B_c=3, scale=-0.5, factor=LARGE, loose=4 * LOOSE, seed=926),
         case("causal", 6, 6, causal=True, seed=930),
         case("causal, fewer queries than keys", 4, 9, causal=True, seed=934),
         case("causal, queries that see no key", 7, 4, causal=True, seed=938),
         case("causal, scores in the hundreds", 6, 6, B_r=3, B_c=3, causal=True, factor=LARGE, loose=4 * LOOSE,
              seed=976),
         case("causal, scores around −997", 6, 6, B_r=3, B_c=3, causal=True, below=EDGE, loose=4 * LOOSE, seed=980),
         case("causal, a negative scale", 4, 6, scale=-0.4, causal=True, seed=984),
         case("causal, a scale of 0", 4, 6, scale=0.0, causal=True, seed=992),
         case("16-bit inputs", 4, 40, 8, 8, 4, 8, dtype=torch.float16, seed=942),
         case("16-bit inputs, many key blocks", 2, 512, 8, 8, 2, 8, rising=True, units=2, dtype=torch.float16,
              seed=988),
         case("many keys, little SRAM", 4, 96, 4, 4, 4, 4, seed=946)]
mistakes = [
    Mistake("D_outside", "D was subtracted after the product with P", "the brackets in dS_ij", (DS,
             "P_ij * dP_ij - D_i[:, None]")),
    Mistake("softmax_of_tile", "P_ij was the softmax of each tile alone", "P_ij: the keys over which L normalises", (P,
             "torch.softmax(Q_i @ K_j.T * scale, -1)")),
    Mistake("scale_missing_in_S", "the recomputed scores were not multiplied by scale",
            "the scores: those of the forward pass", ("Q_i @ K_j.T * scale - L_i", "Q_i @ K_j.T - L_i")),
    Mistake("scale_missing_in_dQ", "dQ was not multiplied by scale", "where scale enters between S and Q", (SUM,
             "dQ_i + dS_ij @ K_j")),
    Mistake("scale_each_step", "the running dQ_i was multiplied by scale in every step",
            "what scale multiplies in the sum", (SUM, "scale * (dQ_i + dS_ij @ K_j)")),
    Mistake("mask_missing", "the mask did not reach P_ij: hidden keys got weight", "P_ij with a causal mask", (MASK,
             "P_ij")),
    Mistake("mask_top_left", "the mask lined up the first query with the first key", "the diagonal if N_q ≠ N_k",
            ("cols, N_q, N_k), 0)", "cols, 0, 0), 0)")),
    Mistake("no_empty_row", "a query that sees no key got NaN, from its L of −inf", "the exponent where L_i is −inf",
            (L_SAFE, "L_i"), (f"{SCORES} -", f"({SCORES}).masked_fill({HIDDEN} & causal, -inf) -"), (MASK, "P_ij"),
            ("break", "pass")),
    Mistake("no_skipping", "key blocks that no query of the block sees were loaded",
            "the end of the loop with a causal mask", ("break", "pass")),
    Mistake("loop_ends_without_shift", "the loop ended as if there were as many queries as keys",
            "the last key that the block sees", (END, "cols.start > rows.stop - 1")),
    Mistake("skipped_too_early", "a key block that the last query sees was skipped", "who sees most keys", (END,
             f"{END.replace('start', 'stop')} and cols.start > rows.start + N_k - N_q")),
    Mistake("tail_dropped", "the short last key block was left out", "the number of key blocks", ("tiles(N_k, B_c)",
             "tiles(N_k // B_c * B_c, B_c)")),
    Mistake("leaves_early", "nothing was stored where no query of the block sees a key",
            "dQ[rows] of queries without keys", (f"L_i = {L_SAFE}", "if (L_i == -inf).all():\n        return\n    …")),
    Mistake("sum_in_16_bits", "dQ_i was kept in dQ's dtype, so that every step rounded it", "the dtype of dQ_i", (SUM,
             f"({SUM}).to(dQ.dtype).to(L.dtype)")),
]
hints = ["Nothing is corrected later, because L makes each P_ij final: dQ_i starts at 0 and only adds.",
         "Where L_i is −inf, S − L is +inf or NaN before any mask comes. Which finite number may stand for L there?",
         "One step: P_ij from S_ij and L_i, dP_ij from dO_i and V_j, dS_ij from both and D_i, then scale · dS_ij K_j."]
