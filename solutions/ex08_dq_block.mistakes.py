"""Cases and mistakes of ex08_dq_block."""

import torch

from flashlab import oracle
from flashlab.memory import KiB, kernel, tiles
from flashlab_course.check.cases import EDGE, LARGE, LOOSE, far_below, features_of, normal
from flashlab_course.check.form import Case, Exercise, Hint, Mistake, Output


def call(fn, Q, K, V, dO, L, D, B_r, B_c, scale, causal):
    dQ = torch.full_like(Q, 7.0)
    with kernel("dq_program", Q=Q, K=K, V=V, dO=dO, L=L, D=D, dQ=dQ):
        for rows in tiles(len(Q), B_r):
            fn(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal)
    return dQ


def sram_bytes(Q, K, V, dO, L, D, B_r, B_c, scale, causal):
    """Room for the tiles three times over, none for a row of all keys."""
    return 4 * (10 * max(B_r, B_c) * max(Q.shape[1], V.shape[1]) + 6 * B_r * B_c + 64) if len(K) > 40 else 64 * KiB


def case(name, N_q, N_k, d=3, d_v=3, B_r=2, B_c=2, *, scale=0.5, causal=False, large=False, factor=None, edge=False, rising=False, dtype=torch.float32, seed, features=()):
    factor = factor or (LARGE if large else 1.0)
    found = features_of(N_q, N_k, d, d_v, B_r, B_c, causal, scale if scale != 0.5 else None, factor > 1 or edge, dtype)

    def make():
        Q, K, V, dO = (normal(n, x, seed=seed + k, dtype=dtype, factor=factor if k == 0 else 1.0)
                       for k, (n, x) in enumerate(((N_q, d), (N_k, d), (N_k, d_v), (N_q, d_v))))
        if edge:
            Q, K = far_below(Q, K, scale, EDGE)
        if rising:                             # what a key block adds to dQ never falls: 16 bits would keep less and less of it
            first = (torch.arange(N_k) < N_k // 2)[:, None]
            Q, dO = torch.zeros_like(Q), torch.ones_like(dO)
            K, V = (torch.where(first, x, -x).to(dtype).expand(N_k, n).contiguous() for x, n in ((torch.tensor(1.0), d), (torch.tensor(1 + 7 / 1024), d_v)))
        O, L = oracle.attention(Q, K, V, causal=causal, scale=scale)
        return {"Q": Q, "K": K, "V": V, "dO": dO, "L": L.float(), "D": (dO.double() * O).sum(-1).float(), "B_r": B_r, "B_c": B_c, "scale": scale, "causal": causal}

    sizes = {"N_q": N_q, "N_k": N_k, "d": d, "B_r": B_r, "B_c": B_c} | ({"causal": True} if causal else {})
    if scale == 0:                             # dQ is 0, whatever the mask does
        found -= {feature for feature in found if "causal" in feature}
    return Case(name, make, frozenset(features) | found, sizes, 4 * LOOSE if factor > 1 or edge else 0.0, 2 if rising else 16)


def truth(Q, K, V, dO, L, D, B_r, B_c, scale, causal):
    return (oracle.gradients(Q, K, V, dO, causal=causal, scale=scale)[0],)


SUM, DS = "dQ_i + scale * (dS_ij @ K_j)", "P_ij * (dP_ij - D_i[:, None])"

EXERCISE = Exercise(
    function="dq_program",
    outputs=(Output("dQ", ("query", "column")),),
    call=call,
    truth=truth,
    sram_bytes=sram_bytes,
    without=("autograd",),
    most=lambda Q, K, V, dO, L, D, B_r, B_c, scale, causal: {"K": B_c * K.shape[1], "V": B_c * V.shape[1]},
    cases=[
        case("one key block", 2, 3, B_c=3, scale=1.0, seed=910),
        case("a scale", 2, 3, B_c=3, seed=910),
        case("two key blocks", 2, 4, seed=914),
        case("three key blocks, two query blocks", 4, 9, 4, 5, 2, 3, scale=0.3, seed=918),
        case("short last blocks", 5, 7, B_r=3, B_c=2, seed=922),
        case("scores in the hundreds", 4, 12, 4, 4, B_r=2, B_c=3, scale=-0.5, large=True, seed=926),
        case("causal", 6, 6, B_r=2, B_c=2, causal=True, seed=930),
        case("causal, fewer queries than keys", 4, 9, B_r=2, B_c=2, causal=True, seed=934),
        case("causal, queries that see no key", 7, 4, B_r=2, B_c=2, causal=True, seed=938),
        case("causal, scores in the hundreds", 6, 6, B_r=3, B_c=3, causal=True, large=True, seed=976),
        case("causal, scores around −997", 6, 6, B_r=3, B_c=3, causal=True, edge=True, seed=980, features=["only scores far below 0"]),
        case("causal, a negative scale", 4, 6, B_r=2, B_c=2, scale=-0.4, causal=True, seed=984),
        case("causal, a scale of 0", 4, 6, B_r=2, B_c=2, scale=0.0, causal=True, seed=992),
        case("16-bit inputs", 4, 40, 8, 8, 4, 8, dtype=torch.float16, seed=942),
        case("16-bit inputs, many key blocks", 2, 512, 8, 8, 2, 8, rising=True, dtype=torch.float16, seed=988),
        case("many keys, little SRAM", 4, 96, 4, 4, 4, 4, seed=946, features=["an SRAM too small for all keys at once"]),
        case("scores up to 500", 4, 6, 4, 4, B_r=2, B_c=3, factor=250, seed=964),
        case("causal, whole blocks, more keys", 2, 6, B_r=2, B_c=2, causal=True, seed=968),
        case("one query, one key", 1, 1, B_r=2, B_c=2, seed=972),
        case("causal, B_r ≠ B_c", 7, 9, B_r=3, B_c=2, causal=True, seed=996),
    ],
    mistakes=[
        Mistake("not_accumulated", "dQ_i held what the last key block gave, not the sum over all key blocks",
                "dQ_i: a sum over the key blocks, to which each adds its part", (SUM, "scale * (dS_ij @ K_j)")),
        Mistake("no_D", "D was left out: dS was P∘dP", "dS_ij: P∘(dP − D)", (DS, "P_ij * dP_ij")),
        Mistake("D_of_tile", "D was the row sum of P∘dP of each tile alone", "D_i: its sum runs over all keys; it was prepared and is there to be loaded",
                (DS, "P_ij * (dP_ij - (P_ij * dP_ij).sum(-1, keepdim=True))"), ("load(L, rows), load(D, rows)", "load(L, rows), load(D, rows) * 0")),
        Mistake("without_L", "P_ij was exp of the score: L was not subtracted", "the exponent: S − L", ("scale - L_i[:, None])", "scale)")),
        Mistake("softmax_of_tile", "P_ij was the softmax of each tile alone", "what normalises P: L belongs to all keys",
                ("torch.exp(Q_i @ K_j.T * scale - L_i[:, None])", "torch.softmax(Q_i @ K_j.T * scale, -1)")),
        Mistake("rescaled", "dQ_i was rescaled with a running maximum, as O_i is in the forward",
                "what L is for: P_ij is final from the start, nothing has to be corrected later",
                (SUM, "torch.exp(-P_ij.amax(-1))[:, None] * dQ_i + scale * (dS_ij @ K_j)")),
        Mistake("scale_missing_in_S", "the recomputed scores were not multiplied by scale", "the scores, Q Kᵀ · scale: P has to be the forward's P",
                ("Q_i @ K_j.T * scale - L_i", "Q_i @ K_j.T - L_i")),
        Mistake("scale_missing_in_dQ", "dQ was not multiplied by scale", "S = scale · Q Kᵀ: the factor stands in its gradient", (SUM, "dQ_i + dS_ij @ K_j")),
        Mistake("scale_twice", "dQ held the scale twice", "dQ = scale · dS K: the scale once, next to it K as it was loaded",
                (SUM, "dQ_i + scale * scale * (dS_ij @ K_j)")),
        Mistake("P_for_dS", "dQ was made from P, not from dS", "what reaches Q has to go through dS", (SUM, "dQ_i + scale * (P_ij @ K_j)")),
        Mistake("V_for_K", "dS was multiplied by V, not by K", "S = scale · Q Kᵀ: the factor next to Q is K",
                (SUM, "dQ_i + scale * (dS_ij @ V_j[:, :1].expand(-1, K.shape[1]))")),
        Mistake("mask_missing", "the mask did not reach P_ij: hidden keys got weight in the recomputation", "P_ij where causal is True: 0 where hidden",
                ("P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "P_ij")),
        Mistake("mask_top_left", "the mask lined up the first query with the first key",
                "query n sees the keys up to n + N_k − N_q: the last query and the last key are in line",
                ("hidden_tile(rows, cols, N_q, N_k), 0)", "hidden_tile(rows, cols, 0, 0), 0)")),
        Mistake("no_empty_row", "a query that sees no key got NaN or inf, from L = −inf", "the exponent where L_i is −inf: a finite number may stand for it there",
                ("L_i.masked_fill(L_i == -inf, 0)", "L_i"),
                ("P_ij = P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "P_ij = P_ij * ~hidden_tile(rows, cols, N_q, N_k)"), ("break", "pass"),
                also=[[("L_i.masked_fill(L_i == -inf, 0)", "L_i"), ("torch.exp(Q_i @ K_j.T * scale - L_i[:, None])",
                        "torch.exp((Q_i @ K_j.T * scale).masked_fill(hidden_tile(rows, cols, N_q, N_k) & torch.tensor(causal), -inf) - L_i[:, None])"),
                       ("P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "P_ij")]]),
        Mistake("no_skipping", "key blocks that the whole query block cannot see were loaded all the same",
                "a key block of which no query of the block sees any key: it is not loaded", ("break", "pass")),
        Mistake("skipped_too_early", "a key block was left out of which some query of the block still sees a key",
                "the last query of the block, rows.stop − 1, decides: it sees the keys up to rows.stop − 1 + N_k − N_q",
                ("cols.start > rows.stop - 1 + N_k - N_q", "cols.stop > rows.stop - 1 + N_k - N_q and cols.start > rows.start + N_k - N_q"),
                also=[[("cols.start > rows.stop - 1 + N_k - N_q", "cols.stop > rows.stop + N_k - N_q")],
                      [("cols.start > rows.stop - 1 + N_k - N_q", "cols.stop > rows.stop - 1 + N_k - N_q")]]),
        Mistake("tail_dropped", "the last, short key block was left out", "the key blocks: ⌈N_k / B_c⌉, of which the last may be short",
                ("tiles(N_k, B_c)", "tiles(N_k // B_c * B_c, B_c)")),
        Mistake("stored_each_step", "dQ was stored to HBM in every step, not once for each program",
                "store(dQ, rows, ...): once, when every key block has added its part",
                ("dQ_i + scale * (dS_ij @ K_j)", "dQ_i + scale * (dS_ij @ K_j)\n        store(dQ, rows, dQ_i)")),
        Mistake("read_each_step", "Q and dO were loaded again in every step", "Q_i and dO_i: loaded once, they stay on chip while the key blocks pass by",
                ("K_j = load(K, cols)", "Q_i, dO_i = load(Q, rows).to(L.dtype), load(dO, rows).to(L.dtype)\n        K_j = load(K, cols)"),
                ("dO_i = load(dO, rows).to(L.dtype)", ""), ("Q_i = load(Q, rows).to(L.dtype)", ""),
                ("torch.zeros_like(Q_i)", "torch.zeros(rows.stop - rows.start, Q.shape[1], dtype=L.dtype)")),
        Mistake("all_keys_at_once", "all keys were loaded at once", "the size of what you load: at most B_c keys at a time",
                ("tiles(N_k, B_c)", "tiles(N_k, N_k)")),
        Mistake("sum_in_16_bits", "dQ_i was kept in dQ's dtype: in 16 bits every step rounds it", "the dtype of dQ_i: L.dtype, rounded once by the store",
                (SUM, f"({SUM}).to(dQ.dtype).to(L.dtype)")),
        Mistake("no_upcast", "the 16-bit tiles were used as they were loaded", "each load: `.to(L.dtype)`", ("load(Q, rows).to(L.dtype)", "load(Q, rows)"),
                ("load(dO, rows).to(L.dtype)", "load(dO, rows)"), ("load(K, cols).to(L.dtype)", "load(K, cols)"), ("load(V, cols).to(L.dtype)", "load(V, cols)")),
        Mistake("never_stored", "nothing was stored", "the end of each program: store(dQ, rows, ...)", ("store(dQ, rows, dQ_i)", "pass")),
        Mistake("L_added", "L was added in the exponent, not subtracted", "the exponent: S − L", ("scale - L_i[:, None])", "scale + L_i[:, None])")),
        Mistake("L_not_scaled", "scale multiplied L as well as the scores: exp((Q Kᵀ − L) · scale)",
                "the exponent, Q Kᵀ · scale − L: L has the scale in it already",
                ("torch.exp(Q_i @ K_j.T * scale - L_i[:, None])", "torch.exp((Q_i @ K_j.T - L_i[:, None]) * scale)")),
        Mistake("base_2", "2, not e, was raised to the power S − L", "the exponential, exp(S − L): L is a natural logarithm",
                ("torch.exp(Q_i @", "torch.exp2(Q_i @")),
        Mistake("divided_by_L", "exp(S) was divided by L, which is a logarithm", "P = exp(S − L): L goes into the exponent",
                ("torch.exp(Q_i @ K_j.T * scale - L_i[:, None])", "torch.exp(Q_i @ K_j.T * scale) / L_i[:, None]")),
        Mistake("D_added", "D was added, not subtracted", "the sign in dS_ij: P∘(dP − D)", (DS, "P_ij * (dP_ij + D_i[:, None])")),
        Mistake("D_outside", "D was subtracted after the product with P: P∘dP − D", "the brackets in dS_ij: P∘(dP − D)", (DS, "P_ij * dP_ij - D_i[:, None]")),
        Mistake("D_along_keys", "D was subtracted along the wrong axis", "the shape of D in the bracket: D_i[:, None], one number for each row",
                (DS, "P_ij * (dP_ij - D_i[: P_ij.shape[1]].repeat(P_ij.shape[1])[: P_ij.shape[1]])"), also=[[(DS, "P_ij * (dP_ij - D_i)")]]),
        Mistake("P_at_D_only", "dP was not multiplied by P, D was: dP − P∘D", "the brackets in dS_ij: P∘(dP − D), P in front of both",
                (DS, "dP_ij - P_ij * D_i[:, None]")),
        Mistake("P_missing", "dP − D was not multiplied by P", "dS_ij: P∘(dP − D)", (DS, "dP_ij - D_i[:, None]"),
                also=[[(DS, "(dP_ij - D_i[:, None]) * (P_ij > 0)")]]),
        Mistake("dS_negative", "dQ had the wrong sign, as if dS were P∘(D − dP)", "the signs: dS = P∘(dP − D), and dQ = +scale · dS K",
                (DS, "P_ij * (D_i[:, None] - dP_ij)")),
        Mistake("K_for_V", "dP was made from K, not from V", "O = P V: the factor next to P is V",
                ("dO_i @ V_j.T", "dO_i[:, : K.shape[1]] @ K_j[:, : dO.shape[1]].T")),
        Mistake("Q_for_K", "dS was multiplied by Q, not by K", "dQ = scale · dS K: the factor next to Q is K",
                (SUM, "dQ_i + scale * (dS_ij.sum(-1, keepdim=True) * Q_i)")),
        Mistake("mask_hides_own_key", "the mask also hid each query's own key", "query n sees the keys up to n + N_k − N_q, that one too",
                ("hidden_tile(rows, cols, N_q, N_k), 0)", "hidden_tile(rows, cols, N_q + 1, N_k), 0)")),
        Mistake("mask_shows_next_key", "the mask let each query see one key of the future", "query n sees the keys up to n + N_k − N_q, and none after it",
                ("hidden_tile(rows, cols, N_q, N_k), 0)", "hidden_tile(rows, cols, N_q - 1, N_k), 0)")),
        Mistake("mask_shift_reversed", "the mask was shifted by N_q − N_k, with the wrong sign", "query n sees the keys up to n + N_k − N_q",
                ("hidden_tile(rows, cols, N_q, N_k), 0)", "hidden_tile(rows, cols, N_k, N_q), 0)")),
        Mistake("mask_inverted", "the mask hid what should be seen", "what is hidden: a key after the query, where hidden_tile is True",
                ("P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "P_ij.masked_fill(~hidden_tile(rows, cols, N_q, N_k), 0)")),
        Mistake("loop_ends_without_shift", "the key blocks to visit were chosen as if N_q and N_k were the same, without the shift N_k − N_q",
                "the last key that a block sees: rows.stop − 1 + N_k − N_q", ("cols.start > rows.stop - 1 + N_k - N_q", "cols.start > rows.stop - 1")),
        Mistake("loop_ends_one_key_late", "a key block was loaded that starts right after the last key the block's queries see",
                "the last key that a block sees: rows.stop − 1 + N_k − N_q; the next one is hidden",
                ("cols.start > rows.stop - 1 + N_k - N_q", "cols.start > rows.stop + N_k - N_q")),
        Mistake("no_scale_at_all", "scale was left out everywhere", "scale stands in S and in dQ", ("Q_i @ K_j.T * scale - L_i", "Q_i @ K_j.T - L_i"),
                (SUM, "dQ_i + dS_ij @ K_j")),
        Mistake("scale_each_step", "what dQ_i held so far was multiplied by scale in every step", "where scale stands: at the new term, or once at the end",
                (SUM, "scale * (dQ_i + dS_ij @ K_j)")),
        Mistake("scale_of_d", "scale was taken to be 1/√d", "scale is an argument", ("Q_i @ K_j.T * scale - L_i", "Q_i @ K_j.T * Q.shape[1] ** -0.5 - L_i"),
                (SUM, "dQ_i + Q.shape[1] ** -0.5 * (dS_ij @ K_j)")),
        Mistake("first_block_of_V", "every key block met the first block of V", "the index of load(V, ...): the same keys as K",
                ("load(V, cols)", "load(V, slice(0, cols.stop - cols.start))")),
        Mistake("first_queries", "every program loaded the first query block's dO", "the index of load(dO, ...): rows",
                ("load(dO, rows)", "load(dO, slice(0, rows.stop - rows.start))")),
        Mistake("D_for_L", "L and D changed places", "load(L, rows) belongs into the exponent, load(D, rows) into dS",
                ("load(L, rows), load(D, rows)", "load(D, rows), load(L, rows)")),
        Mistake("dS_transposed", "dS was transposed before the product with K", "dQ = scale · dS K: rows are queries",
                (SUM, "dQ_i + scale * (dS_ij.T[: len(dS_ij), :1] * K_j[:1])"), also=[[(SUM, "dQ_i + scale * (dS_ij.T @ K_j)")]]),
        Mistake("leaves_early", "where no query of the block sees a key, nothing was stored",
                "dQ[rows] where no query sees a key: it is stored there, too, as zeros",
                ("L_i = L_i.masked_fill(L_i == -inf, 0)", "if (L_i == -inf).all():\n        return\n    L_i = L_i.masked_fill(L_i == -inf, 0)")),
        Mistake("mask_as_a_factor", "what is hidden was multiplied by 0 after exp: where exp of a hidden score overflowed, inf · 0 is NaN",
                "the mask: masked_fill or torch.where on P_ij, which keeps no inf; −inf before exp needs something other than −inf in the place of L = −inf",
                ("P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "P_ij * ~hidden_tile(rows, cols, N_q, N_k)"),
                also=[[("L_i.masked_fill(L_i == -inf, 0)", "L_i"),
                       ("P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "P_ij * ~hidden_tile(rows, cols, N_q, N_k)")]]),
        Mistake("diagonal_without_shift", "the mask was put only on tiles that cross the diagonal of a square matrix, where N_q is N_k",
                "which tiles need the mask: those with keys after the first query's last one, and that depends on N_k − N_q",
                ("if causal:", "if causal and cols.stop > rows.start:"),
                also=[[("if causal:", "if causal and cols.stop - 1 > rows.start:")], [("if causal:", "if causal and cols.start >= rows.start:")],
                      [("if causal:", "if causal and cols.stop > rows.start + 1:")],
                      *([("L_i.masked_fill(L_i == -inf, 0)", "L_i"), ("if causal:", f"if causal and {test}:")]
                        for test in ("cols.stop > rows.start", "cols.stop - 1 > rows.start", "cols.start >= rows.start"))]),
        Mistake("mask_before_scale", "hidden scores were set to −inf before they were multiplied by scale: a negative scale makes +inf of them, 0 NaN",
                "the order: first the product with scale, then the mask", ("P_ij = torch.exp(Q_i @ K_j.T * scale - L_i[:, None])",
                 "S_ij = Q_i @ K_j.T\n        S_ij = S_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), -torch.inf) if causal else S_ij\n"
                 "        P_ij = torch.exp(S_ij * scale - L_i[:, None])"), ("P_ij = P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)", "pass")),
        Mistake("L_left_natural", "S was taken to base 2 and L was not: 2 to the power of S · log2(e) − L",
                "the exponent: L is a natural logarithm, so exp(S − L), or 2 to the power of (S − L) · log2(e)",
                ("torch.exp(Q_i @ K_j.T * scale - L_i[:, None])", "torch.exp2(Q_i @ K_j.T * (scale * 1.4426950408889634) - L_i[:, None])")),
    ],
    hints=[
        "Nothing is corrected later, because L makes each P_ij final. So dQ_i starts at 0 and only adds.",
        "One step: P_ij = exp(S_ij − L_i[:, None]), dP_ij = dO_i V_jᵀ, dS_ij = P_ij ∘ (dP_ij − D_i[:, None]), dQ_i += scale · dS_ij K_j.",
        "With causal the block's last query, rows.stop − 1, sees the keys up to rows.stop − 1 + N_k − N_q. A key block that starts after that is hidden whole.",
        Hint("A single key block is right. L makes each P_ij final: is there anything that still gets rescaled, replaced or summed anew in the second step?",
             "more than one key block"),
        Hint("Only causal fails. Two lines know the mask: the tile of P_ij, and the end of the loop. Do both line up the last query with the last key?", "a causal mask"),
        Hint("Only queries without keys fail: their L is −inf, so that S − L is +inf or NaN before any mask comes. Which finite number may stand for L there?",
             "queries that see no key"),
        Hint("The gradient is right. Which rows of Q, dO, L and D stay for the whole loop? And from which key block on does no query of the block see anything?",
             "the numbers are right"),
    ],
)
