"""Cases and mistakes of ex06_fa2_inner_loop."""

import torch

from flashlab import oracle
from flashlab.memory import KiB, kernel, tiles
from flashlab_course.check.cases import HUGE, attention_case, epsilon, equal_weights, in_float64, whole_rescaled
from flashlab_course.check.form import Exercise, Hint, Mistake, Output, Variant


def call(fn, Q, K, V, B_r, B_c, scale):
    O = torch.empty(len(Q), V.shape[-1], dtype=Q.dtype)
    L = torch.empty(len(Q), dtype=torch.float64 if Q.dtype == torch.float64 else torch.float32)
    with kernel("fa2_program", Q=Q, K=K, V=V, O=O, L=L):
        for rows in tiles(len(Q), B_r):
            fn(Q, K, V, O, L, rows, B_c, scale)
    return O, L


def sram_bytes(Q, K, V, B_r, B_c, scale):
    """Room for the tiles three times over, none for a row of all keys."""
    d = max(Q.shape[-1], V.shape[-1])
    return 4 * (8 * max(B_r, B_c) * d + 5 * B_r * B_c + 64) if len(K) > 40 else 64 * KiB


def truth(Q, K, V, B_r, B_c, scale):
    return oracle.attention(Q, K, V, scale=scale)


EXERCISE = Exercise(
    function="fa2_program",
    outputs=(Output("O", ("query", "column")), Output("L", ("query",))),
    call=call,
    truth=truth,
    sram_bytes=sram_bytes,
    most=lambda Q, K, V, B_r, B_c, scale: {"K": B_c * K.shape[1], "V": B_c * V.shape[1]},
    cases=[
        attention_case("one key block", 2, 3, 3, B_r=2, B_c=3, scale=1.0),
        attention_case("two key blocks", 2, 6, 3, B_r=2, B_c=3, scale=1.0, seed=8),
        attention_case("a scale", 2, 4, 3, B_r=2, B_c=4, scale=0.3, seed=2),
        attention_case("three key blocks, three query blocks", 6, 9, 4, 5, B_r=2, B_c=3, scale=0.5, seed=3),
        attention_case("short last blocks", 5, 7, 3, B_r=3, B_c=2, scale=0.6, seed=4),
        attention_case("scores in the hundreds", 4, 12, 4, B_r=2, B_c=2, scale=-0.5, large=True, seed=5),
        attention_case("16-bit inputs", 4, 40, 8, B_r=4, B_c=8, scale=0.35, dtype=torch.float16, seed=6),
        attention_case("many keys, little SRAM", 4, 96, 4, B_r=4, B_c=4, scale=0.5, seed=7,
                       features=["an SRAM too small for all keys at once"]),
        attention_case("scores far below 0", 3, 6, 4, B_r=2, B_c=2, scale=0.5, below=True, seed=9),
        attention_case("scores up to 500", 4, 6, 4, B_r=2, B_c=3, scale=0.5, factor=HUGE, seed=10),
        attention_case("one query, one key at a time", 1, 3, 4, B_r=2, B_c=1, scale=0.5, seed=12),
        equal_weights(attention_case("16-bit inputs, many key blocks", 2, 512, 4, B_r=2, B_c=16, scale=0.5, dtype=torch.float16, seed=14)),
        attention_case("a scale of 0", 2, 6, 3, B_r=2, B_c=3, scale=0.0, seed=15),
        in_float64(attention_case("a single key", 1, 1, 4, B_r=2, B_c=2, scale=0.5, exactly=True, seed=13)),
    ],
    mistakes=[
        epsilon(("O_i / l_i[:, None]", "O_i / (l_i + ε)[:, None]")),
        epsilon(("torch.log(l_i)", "torch.log(l_i + ε)"), name="epsilon_in_log", what="a small number was added to l_i before the logarithm", look="L: m_i + log(l_i), where l_i is at least 1"),
        epsilon(("alpha * l_i + P_ij.sum(-1)", "alpha * l_i + P_ij.sum(-1) + ε"), name="epsilon_in_l", what="a small number was added to l_i", look="l_i: a sum that is at least 1 without help"),
        Mistake("no_rescale_O", "O_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "the O_i of the earlier blocks: exp(m_i − m_new) · O_i, with m_i the maximum before this block",
                ("alpha[:, None] * O_i + P_ij @ V_j", "O_i + P_ij @ V_j")),
        Mistake("no_rescale_l", "l_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "the l_i of the earlier blocks: exp(m_i − m_new) · l_i, since its terms are exp(S − m_i), the new ones exp(S − m_new)",
                ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
        Mistake("no_rescale", "O_i and l_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "what happens to the sums of the earlier blocks when a later one holds a larger score, and whether m_i is still the old maximum there",
                ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)"), ("alpha[:, None] * O_i + P_ij @ V_j", "O_i + P_ij @ V_j")),
        Mistake("alpha_inverted", "the old O_i and l_i were multiplied by exp(m_new − m_i), the inverse of the right factor",
                "the factor exp(m_i − m_new), at most 1: sums in units of the old, smaller maximum have to shrink",
                ("torch.exp(m_i - m_new)", "torch.exp(m_new - m_i)"),
                also=[[("torch.exp(m_i - m_new)", "torch.exp(m_new - m_i).masked_fill(m_i == -inf, 0)")]]),
        Mistake("m_not_carried", "each block forgot the maximum of the ones before: m_i was not set to m_new, or was set anew for each block",
                "what a step leaves behind, m_i = m_new, and what is set only once, before the first block: O_i, l_i and m_i",
                ("m_i = m_new", ""),
                also=[[("m_i = m_new", ""), ("m_i + torch.log(l_i)", "m_new + torch.log(l_i)")],
                      [("m_i = m_new", ""), ("torch.exp(m_i - m_new)", "torch.ones_like(m_i)"), ("m_i + torch.log(l_i)", "m_new + torch.log(l_i)")]]),
        Mistake("m_of_this_tile", "m_new was the maximum of this tile alone, not of all tiles so far",
                "m_new: the larger of m_i and the tile's maximum; with a smaller one exp(m_i − m_new) exceeds 1 and overflows for large scores",
                ("torch.maximum(m_i, S_ij.amax(-1))", "S_ij.amax(-1)"),
                also=[[("torch.maximum(m_i, S_ij.amax(-1))", "S_ij.amax(-1)"), ("torch.full((len(Q_i),), -inf, dtype=L.dtype)", "torch.zeros(len(Q_i), dtype=L.dtype)")]]),
        Mistake("unshifted", "the scores went into exp without their maximum being subtracted",
                "the exponents: score − m_new; float32 overflows at exp(89)",
                ("torch.maximum(m_i, S_ij.amax(-1))", "torch.zeros_like(m_i)")),
        Mistake("m_of_the_whole_tile", "the maximum was taken over the whole tile, one number for all its rows",
                "the maximum: each query has a maximum of its own",
                ("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, S_ij.max())")),
        Mistake("divided_inside", "O_i was divided by l_i in every step, which no later step undid",
                "the division by l_i: once, after the last block; in each step it divides the early blocks again and again",
                ("alpha[:, None] * O_i + P_ij @ V_j", "(alpha[:, None] * O_i + P_ij @ V_j) / l_i[:, None]"),
                ("O_i / l_i[:, None])", "O_i)")),
        Mistake("divided_twice", "O_i was divided by l_i in every step and once more at the end",
                "the division by l_i: FA2 has one, after the last block",
                ("alpha[:, None] * O_i + P_ij @ V_j", "(alpha[:, None] * O_i + P_ij @ V_j) / l_i[:, None]")),
        Mistake("not_divided", "O_i was stored without being divided by l_i",
                "the division by l_i: the weights exp(S − m) do not sum to 1",
                ("O_i / l_i[:, None])", "O_i)")),
        Mistake("l_of_last_tile", "l_i held the sum of the last key block alone",
                "l_i: exp(m_i − m_new) · l_i, the sum so far, plus the block's row sum",
                ("alpha * l_i + P_ij.sum(-1)", "P_ij.sum(-1)")),
        Mistake("O_of_last_tile", "O_i held the last key block alone",
                "O_i: exp(m_i − m_new) · O_i, the sum so far, plus the block's P_ij V_j",
                ("alpha[:, None] * O_i + P_ij @ V_j", "P_ij @ V_j")),
        Mistake("scale_missing", "the scores were not multiplied by scale",
                "the scores: Q_i K_jᵀ · scale", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
        Mistake("scale_twice", "the scores held scale twice",
                "each place where scale enters the scores: once", ("Q_i @ K_j.T * scale", "(Q_i * scale) @ K_j.T * scale")),
        Mistake("k_not_transposed", "Q_i was multiplied by K_j, not by its transpose",
                "the shapes of S_ij = Q_i K_jᵀ: (B_r, d) times (d, B_c)", ("Q_i @ K_j.T", "Q_i @ K_j")),
        Mistake("tail_dropped", "the last, short key block was never visited",
                "the number of key blocks: N_k // B_c leaves out the rest, ceil(N_k / B_c) does not",
                ("tiles(len(K), B_c)", "tiles(len(K) // B_c * B_c, B_c)")),
        Mistake("rows_for_cols", "K and V were read at the query block's rows, block i where block j belongs",
                "the index of each load: rows cuts Q, O and L, cols cuts K and V",
                ("load(K, cols)", "load(K, rows)"), ("load(V, cols)", "load(V, rows)")),
        Mistake("L_without_m", "L was log(l_i): the maximum was not added back",
                "L: m_i + log(l_i), since l_i is a sum of exp(S − m_i)", ("m_i + torch.log(l_i)", "torch.log(l_i)")),
        Mistake("L_is_l", "L was l_i itself, not m_i + log(l_i)",
                "L: m_i + log(l_i), a logarithm", ("m_i + torch.log(l_i)", "l_i")),
        Mistake("L_is_m", "L was m_i alone: log(l_i) was left out, or was 0 because l_i had been set to 1",
                "L: m_i + log(l_i), with l_i the sum of all weights", ("m_i + torch.log(l_i)", "m_i")),
        Mistake("L_base_2", "L was taken to base 2",
                "L: the natural logarithm; one to base 2 has to be multiplied by ln 2", ("m_i + torch.log(l_i)", "(m_i + torch.log(l_i)) / 0.6931471805599453")),
        Mistake("Q_read_each_step", "Q_i was loaded again in every step, though it does not change",
                "where load(Q, rows) stands: before the loop it is read once",
                ("Q_i = load(Q, rows).to(L.dtype)", "Q_i = torch.zeros(rows.stop - rows.start, 1)"),
                ("K_j = load(K, cols)", "Q_i = load(Q, rows).to(L.dtype)\n        K_j = load(K, cols)")),
        Mistake("O_stored_each_step", "O was stored to HBM in every step, not once",
                "where store(O, ...) stands: after the loop, it is written once",
                ("m_i = m_new", "m_i = m_new\n        store(O, rows, O_i / l_i[:, None])")),
        Mistake("all_keys_at_once", "all keys were loaded at once",
                "the size of what you load: at most B_c keys at a time, or SRAM must grow with N_k",
                ("tiles(len(K), B_c)", "tiles(len(K), len(K))")),
        Mistake("no_upcast", "the 16-bit tiles were used as they were loaded",
                "each load: `.to(L.dtype)` turns its tile into the dtype of the sums",
                ("load(Q, rows).to(L.dtype)", "load(Q, rows)"), ("load(K, cols).to(L.dtype)", "load(K, cols)"),
                ("load(V, cols).to(L.dtype)", "load(V, cols)")),
        Mistake("P_rounded_before_sum", "P_ij was rounded to 16 bits before its row sum was taken",
                "the order of the cast and the sum: l_i needs the unrounded P_ij",
                ("torch.exp(S_ij - m_new[:, None])", "torch.exp(S_ij - m_new[:, None]).to(Q.dtype).to(L.dtype)")),
        Mistake("m_starts_at_0", "m_i never fell below 0, or below another number that scores can fall below, as if it had started there", "the first value of m_i: below any score, −inf; m_new is the larger of it and the tile's maximum",
                ("torch.full((len(Q_i),), -inf, dtype=L.dtype)", "torch.zeros(len(Q_i), dtype=L.dtype)"),
                also=[[("torch.full((len(Q_i),), -inf, dtype=L.dtype)", f"torch.full((len(Q_i),), {x}, dtype=L.dtype)")] for x in ("-1.0", "-10.0", "-50.0", "-100.0")]),
        Mistake("l_starts_at_1", "l_i was too large by one term, as if a key had been seen before the first block", "the first value of l_i: nothing has been seen, so 0",
                ("l_i = torch.zeros(len(Q_i), dtype=L.dtype)", "l_i = torch.ones(len(Q_i), dtype=L.dtype)"), ("alpha * l_i +", "torch.where(m_i == -inf, 1.0, alpha) * l_i +")),
        Mistake("P_of_own_maximum", "P_ij was shifted by the maximum of its own tile, though O_i and l_i are in units of the common one", "P_ij: exp(S_ij − m_new)",
                ("torch.exp(S_ij - m_new[:, None])", "torch.exp(S_ij - S_ij.amax(-1)[:, None])")),
        Mistake("P_of_old_maximum", "P_ij was shifted by the old maximum", "P_ij: exp(S_ij − m_new), with the m_new that the tile itself has raised",
                ("torch.exp(S_ij - m_new[:, None])", "torch.exp(S_ij - torch.where(m_i == -inf, m_new, m_i)[:, None])")),
        Mistake("whole_rescaled", "exp(m_i − m_new) multiplied the new block's terms as well as the old ones", "what exp(m_i − m_new) belongs to: O_i and l_i as they were before the block, which alone are in the old units",
                ("alpha * l_i + P_ij.sum(-1)", "torch.where(m_i == -inf, 1.0, alpha) * (l_i + P_ij.sum(-1))"), ("alpha[:, None] * O_i + P_ij @ V_j", "torch.where(m_i == -inf, 1.0, alpha)[:, None] * (O_i + P_ij @ V_j)"),
                also=whole_rescaled(("alpha * l_i + P_ij.sum(-1)", "{} * (l_i + P_ij.sum(-1))"), ("alpha[:, None] * O_i + P_ij @ V_j", "{}[:, None] * (O_i + P_ij @ V_j)"),
                                    "alpha", "torch.where(m_i == -inf, 1.0, alpha)")),
        Mistake("factor_added", "exp(m_i − m_new) was added to l_i, not multiplied with it", "l_i: a change of units is a product, exp(m_i − m_new) · l_i", ("alpha * l_i +", "alpha + l_i +")),
        Mistake("only_one_key_block", "only the first key block was visited", "the key blocks: all ⌈N_k / B_c⌉ of them come before O and L are stored", ("m_i = m_new\n", "m_i = m_new\n        break\n")),
        Mistake("V_of_first_block", "every key block met the first block of V", "the index of load(V, ...): the same keys as K", ("load(V, cols)", "load(V, slice(0, cols.stop - cols.start))")),
        Mistake("scale_in_16_bits", "the 16-bit tile was multiplied by scale before it was turned into L.dtype", "the order: first `.to(L.dtype)`, then the product",
                ("Q_i = load(Q, rows).to(L.dtype)", "Q_i = (load(Q, rows) * scale).to(L.dtype)"), ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
        Mistake("product_in_16_bits", "the scores were made as 16-bit numbers, and turned into L.dtype afterwards", "the order: first `.to(L.dtype)`, then the product",
                ("S_ij = Q_i @ K_j.T * scale", "S_ij = (Q_i.to(Q.dtype) @ K_j.T.to(K.dtype)).to(L.dtype) * scale"),
                also=[[("S_ij = Q_i @ K_j.T * scale", "S_ij = (Q_i.to(Q.dtype) @ K_j.T.to(K.dtype) * scale).to(L.dtype)")]]),
        Mistake("sums_in_16_bits", "l_i was kept in 16 bits, so that every step rounded it", "the dtype of O_i, l_i and m_i: L.dtype", ("l_i = alpha * l_i + P_ij.sum(-1)", "l_i = (alpha * l_i + P_ij.sum(-1)).to(O.dtype).to(L.dtype)")),
        Mistake("O_in_16_bits", "O_i was kept in O's dtype: in 16 bits every step rounds it", "the dtype of O_i, l_i and m_i: L.dtype",
                ("O_i = alpha[:, None] * O_i + P_ij @ V_j", "O_i = (alpha[:, None] * O_i + P_ij @ V_j).to(O.dtype).to(L.dtype)")),
        Mistake("scale_zero_replaced", "a scale of 0 was taken for none at all, and 1/√d put in its place", "scale: any number, 0 too; `scale or ...` and `if scale` take 0 for none",
                ("Q_i @ K_j.T * scale", "Q_i @ K_j.T * (scale or Q.shape[-1] ** -0.5)")),
        Mistake("scale_d", "the scores were multiplied by 1/√d: scale was not used", "the scores: Q_i K_jᵀ · scale, with the scale that is given", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T * Q.shape[-1] ** -0.5")),
        Mistake("L_minus_log", "L was m_i − log(l_i)", "the sign in L: exp(m) · l is the sum of all exp(S)", ("m_i + torch.log(l_i)", "m_i - torch.log(l_i)")),
        Mistake("L_log2_of_l", "in L the maximum is natural, but the logarithm of l_i was taken to base 2", "L: m_i + log(l_i), with the natural logarithm", ("m_i + torch.log(l_i)", "m_i + torch.log2(l_i)")),
        Mistake("L_after_division", "L was made from an l_i that had been set to 1", "the order: L needs the sum of the weights", ("m_i + torch.log(l_i)", "m_i + torch.log(l_i / l_i)"), same_as="L_is_m"),
        Mistake("L_negative", "L came out with the other sign", "L: m_i + log(l_i)", ("m_i + torch.log(l_i)", "-m_i - torch.log(l_i)")),
        Mistake("O_divided_by_L", "O_i was divided by L, a logarithm, not by l_i", "the last division: l_i is the sum of the weights", ("O_i / l_i[:, None])", "O_i / (m_i + torch.log(l_i))[:, None])")),
        Mistake("O_multiplied_by_l", "O_i was multiplied by l_i, not divided", "O after the last block: O_i / l_i", ("O_i / l_i[:, None])", "O_i * l_i[:, None])")),
        Mistake("O_not_stored", "O was never stored", "what is stored after the loop: store(O, rows, ...)", ("store(O, rows, O_i / l_i[:, None])", "pass")),
        Mistake("L_not_stored", "L was never stored", "what is stored after the loop: store(L, rows, ...)", ("store(L, rows, m_i + torch.log(l_i))", "pass")),
        Mistake("all_queries", "every program worked on the first query block's queries", "the index of load(Q, ...): rows", ("load(Q, rows)", "load(Q, slice(0, rows.stop - rows.start))")),
        Mistake("K_read_twice", "every K_j was loaded twice, in one step or in two loops", "how often load(K, cols) runs: a single loop over the key blocks is enough", ("V_j = load(V, cols)", "K_j = load(K, cols).to(L.dtype)\n        V_j = load(V, cols)")),
        Mistake("L_stored_each_step", "L was stored to HBM in every step, not once", "where store(L, ...) stands: after the loop, it is written once",
                ("m_i = m_new", "m_i = m_new\n        store(L, rows, m_i + torch.log(l_i))")),
        Mistake("maximum_before_scale", "the maximum was taken before the scores were scaled, and is not the largest of the scaled ones: exp overflows or underflows", "m_new: the largest of the scaled scores, so first the product with scale, then the maximum",
                ("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, (S_ij / scale).amax(-1) * scale)"),
                also=[[("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, (Q_i @ K_j.T).amax(-1))")],
                      [("Q_i @ K_j.T * scale", "Q_i @ K_j.T"), ("torch.exp(m_i - m_new)", "torch.where(m_i == -inf, 0, torch.exp((m_i - m_new) * scale))"),
                       ("torch.exp(S_ij - m_new[:, None])", "torch.exp((S_ij - m_new[:, None]) * scale)"), ("m_i + torch.log(l_i)", "m_i * scale + torch.log(l_i)")],
                      [("Q_i @ K_j.T * scale", "Q_i @ K_j.T"), ("torch.exp(m_i - m_new)", "torch.exp((m_i - m_new) * scale)"),
                       ("torch.exp(S_ij - m_new[:, None])", "torch.exp((S_ij - m_new[:, None]) * scale)"), ("m_i + torch.log(l_i)", "m_i * scale + torch.log(l_i)")]]),
        Mistake("alpha_along_columns", "exp(m_i − m_new) met the columns of O_i, not its rows", "the shape of exp(m_i − m_new): one factor for each row of O_i, `[:, None]`", ("alpha[:, None] * O_i", "alpha * O_i")),
        Mistake("O_as_wide_as_Q", "O_i was made with d columns, as many as Q has", "the shape of O_i: it has V's columns, d_v",
                ("torch.zeros(len(Q_i), V.shape[-1], dtype=L.dtype)", "torch.zeros_like(Q_i)")),
        Mistake("unit_of_the_first_block", "each block was added in the unit of the first block's maximum: what rises far above that overflows", "the unit: the maximum so far, in each block, with O_i and l_i converted to it",
                ("m_new = torch.maximum(m_i, S_ij.amax(-1))", "m_new = S_ij.amax(-1) if cols.start == 0 else m_i")),
    ],
    variants=[
        Variant("scaled Q, state in one list", body="""
            Q_i = load(Q, rows).to(L.dtype) * scale
            state = [torch.zeros(len(Q_i), V.shape[-1], dtype=L.dtype), torch.zeros(len(Q_i), 1, dtype=L.dtype),
                     torch.full((len(Q_i), 1), -1e30, dtype=L.dtype)]
            start = 0
            while start < len(K):
                cols = slice(start, min(start + B_c, len(K)))
                S = Q_i @ load(K, cols).to(L.dtype).T
                m = torch.maximum(state[2], S.max(1, keepdim=True).values)
                S = S.sub_(m).exp_()
                old = (state[2] - m).exp()
                state = [state[0] * old + S @ load(V, cols).to(L.dtype), state[1] * old + S.sum(1, keepdim=True), m]
                start += B_c
            store(O, rows, state[0] / state[1])
            store(L, rows, (state[2] + state[1].log())[:, 0])
            """),
        Variant("normalised in each step, as FA1 does",
                ("l_i = alpha * l_i + P_ij.sum(-1)", "l_old, l_i = l_i, alpha * l_i + P_ij.sum(-1)"),
                ("alpha[:, None] * O_i + P_ij @ V_j", "((alpha * l_old)[:, None] * O_i + P_ij @ V_j) / l_i[:, None]"),
                ("O_i / l_i[:, None])", "O_i)")),
    ],
    hints=[
        "For a single key block: S_ij, its row maximum m, P_ij = exp(S_ij − m), l = rowsum(P_ij), O = P_ij V_j / l, L = m + log l.",
        "O_i and l_i are sums of exp(score − m_i). If m_i becomes m_new, multiply both by exp(m_i − m_new): that turns the one into the other.",
        "Start with O_i = 0, l_i = 0, m_i = −inf. Then alpha is exp(−inf) = 0 in the first step, and no special case is needed.",
        Hint("A single key block is right. Three things are carried to the next one: which of them are in units of the old maximum, and is each turned exactly once?", "more than one key block"),
        Hint("Only 16-bit inputs are wrong: turn each tile into L.dtype right after its load, before any product, and let store round the result.", "16-bit inputs"),
        Hint("Only the small SRAM is too small: what is alive at the same time? A tile of K or V that the next step no longer needs, or scores of all keys?", "an SRAM too small for all keys at once"),
        Hint("The formulas are right. What stands inside the loop is moved once for each key block: which of your loads and stores belong before it, and which after it?", "the numbers are right"),
    ],
)
