"""Cases and mistakes of ex05_fa1_inner_loop."""

import torch

from flashlab.memory import kernel, load, store, tiles
from flashlab_course.check.cases import EDGE, HUGE, attention_case, epsilon, in_float64
from flashlab_course.check.form import Breach, Exercise, Hint, Mistake, Output

inf = float("inf")
FINITE = ("-1e4", "-1e9", "-1e30", "torch.finfo(S_ij.dtype).min")
UPDATE = "((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]"
DROPOUT = "P_ij * keep / (1 - dropout_p)"


def masks(Q, K, causal, dropout_p):
    hidden = torch.ones(len(Q), len(K), dtype=torch.bool).triu(len(K) - len(Q) + 1) if causal else None
    draws = torch.rand(len(Q), len(K), generator=torch.Generator().manual_seed(5))
    return hidden, draws >= dropout_p if dropout_p else None


def call(fn, Q, K, V, B_c, scale, causal=False, dropout_p=0.0):
    """One query block, all key blocks, as FA1's outer loop brings them."""
    hidden, keep = masks(Q, K, causal, dropout_p)
    O, l, m = torch.zeros(len(Q), V.shape[-1], dtype=Q.dtype), torch.zeros(len(Q), dtype=Q.dtype), torch.full((len(Q),), -inf, dtype=Q.dtype)
    changed = False
    for j in range(0, len(K), B_c):
        cols = slice(j, j + B_c)
        state = O.clone(), l.clone(), m.clone()
        found = fn(Q, K[cols], V[cols], O, l, m, scale, None if hidden is None else hidden[:, cols], None if keep is None else keep[:, cols], dropout_p)
        changed = changed or not all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip((O, l, m), state, strict=True))
        if not isinstance(found, (tuple, list)) or len(found) != 3 or not all(isinstance(T, torch.Tensor) for T in found):
            return found                       # the checker says what is wrong with it
        if any(a.shape != b.shape for a, b in zip(found, state, strict=True)):
            return found
        O, l, m = found
    if changed:
        raise Breach("changed_inputs", "it changed O_i, l_i or m_i in place: return new ones (`O_i = a * O_i`, not `O_i *= a`)", (O, l, m))
    return O, l, m


def show(fn, Q, K, V, B_c, scale, causal=False, dropout_p=0.0):
    """The step in FA1's loops, on modelled memory: two queries a block."""
    hidden, keep = masks(Q, K, causal, dropout_p)
    O, l, m = torch.zeros(len(Q), V.shape[-1], dtype=Q.dtype), torch.zeros(len(Q), dtype=Q.dtype), torch.full((len(Q),), -inf, dtype=Q.dtype)

    def key_block(cols):
        K_j, V_j = load(K, cols), load(V, cols)
        for rows in tiles(len(Q), 2):
            Q_i, *state = load(Q, rows), load(O, rows), load(l, rows), load(m, rows)
            tile = [None if mask is None else load(mask, rows, cols) for mask in (hidden, keep)]
            for T, T_i in zip((O, l, m), fn(Q_i, K_j, V_j, *state, scale, *tile, dropout_p), strict=True):
                store(T, rows, T_i)

    given = {name: mask for name, mask in (("hidden", hidden), ("keep", keep)) if mask is not None}
    with kernel("fa1_forward", Q=Q, K=K, V=V, O=O, l=l, m=m, **given):
        for cols in tiles(len(K), B_c):
            key_block(cols)


def truth(Q, K, V, B_c, scale, causal=False, dropout_p=0.0):
    hidden, keep = masks(Q, K, causal, dropout_p)
    S = Q.double() @ K.double().T * scale
    S = S if hidden is None else S.masked_fill(hidden, -inf)
    m = S.amax(-1)
    P = torch.exp(S - m.masked_fill(m == -inf, 0)[:, None])
    l = P.sum(-1)
    D = P if keep is None else P * keep / (1 - dropout_p)
    return D @ V.double() / l.masked_fill(l == 0, 1)[:, None], l, m


def case(name, N_q, N_k, d, d_v=None, *, dropout_p=0.0, features=(), **more):
    more = more | ({"dropout_p": dropout_p} if dropout_p else {})
    return attention_case(name, N_q, N_k, d, d_v, features=[*features, *(["dropout"] if dropout_p else [])], **{"scale": 0.5} | more)


EXERCISE = Exercise(
    function="fa1_step",
    outputs=(Output("O_i", ("query", "column")), Output("l_i", ("query",)), Output("m_i", ("query",))),
    call=call,
    show=show,
    truth=truth,
    cases=[
        case("one step", 2, 3, 3, B_c=3),
        case("two steps", 2, 4, 3, B_c=2, seed=11),
        case("three steps", 4, 9, 4, 2, B_c=3, seed=2),
        case("square tiles", 4, 12, 4, B_c=4, seed=3),
        case("scores in the hundreds", 4, 15, 4, B_c=3, scale=-0.5, large=True, seed=4),
        case("causal", 6, 6, 3, B_c=2, causal=True, seed=5, features=["a causal mask over several steps"]),
        case("causal, queries that see no key", 5, 3, 3, B_c=2, causal=True, seed=6),
        case("dropout, one step", 3, 4, 3, B_c=4, dropout_p=0.3, seed=7),
        case("dropout, three steps", 3, 9, 3, B_c=3, dropout_p=0.4, seed=8),
        case("scores far below 0", 3, 6, 4, B_c=2, below=True, seed=9),
        case("scores up to 500", 4, 6, 4, B_c=3, factor=HUGE, seed=10),
        case("causal, many keys before the first query", 2, 8, 4, B_c=3, causal=True, seed=12),
        case("causal, scores in the hundreds", 6, 6, 3, B_c=2, causal=True, large=True, seed=14),
        case("causal, with dropout", 4, 6, 4, B_c=2, causal=True, dropout_p=0.25, seed=13),
        case("causal, a negative scale", 4, 6, 4, B_c=2, causal=True, scale=-0.4, seed=15),
        case("causal, scores around −997", 4, 6, 4, B_c=2, causal=True, below=EDGE, seed=17),
        case("causal, a scale of 0", 4, 6, 4, B_c=2, causal=True, scale=0.0, seed=16),
        in_float64(case("a single key", 1, 1, 4, B_c=1, exactly=True, seed=14)),
    ],
    mistakes=[
        epsilon((UPDATE, "((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / (l_new + ε)[:, None]")),
        epsilon(("alpha * l_i + P_ij.sum(-1)", "alpha * l_i + P_ij.sum(-1) + ε"), name="epsilon_in_l", what="a small number was added to l_i",
                look="the new l_i: an ε changes every row, and only a row without visible keys could need one"),
        Mistake("old_division_not_undone", "the old O_i was multiplied by exp(m_i − m_new) alone, not by l_i too: its last division was not undone",
                "the old O_i's part of the sum: exp(m_i − m_new) · l_i · O_i, with the m_i and l_i that came in",
                (UPDATE, "(alpha[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
        Mistake("mask_before_scale", "hidden scores became −inf · scale, as if the mask came before the product: a negative scale makes +inf of them, 0 NaN",
                "hidden scores: −inf whatever the scale, so first the product with scale, then the mask",
                ("Q_i @ K_j.T * scale                                      # (B_r, B_c)", "Q_i @ K_j.T"),
                ("S_ij = S_ij.masked_fill(hidden, -inf)", "S_ij = S_ij.masked_fill(hidden, -inf)\n    S_ij = S_ij * scale")),
        Mistake("maximum_before_scale", "the maximum was that of the scores before scale, not the largest of the scaled ones: exp may overflow or underflow",
                "m_new: the largest of the scaled scores, so first the product with scale, then the maximum", ("torch.maximum(m_i, S_ij.amax(-1))",
                 "torch.maximum(m_i, (Q_i @ K_j.T if hidden is None else (Q_i @ K_j.T).masked_fill(hidden, -inf)).amax(-1))")),
        Mistake("hidden_tile_erases_row", "O_i was set to 0 where this tile has no visible key, though earlier ones had",
                "which rows stay 0: those that have seen no key in any tile, so that the new l_i is 0",
                ("return O_i, l_new, m_new", "return O_i if hidden is None else O_i.masked_fill(hidden.all(-1)[:, None], 0), l_new, m_new")),
        Mistake("tile_in_units_of_its_own", "the weights that met V_j were in units of the tile's own maximum, not of m_new",
                "the weights that meet V_j: exp(score − m_new), as in the new l_i",
                ("+ P_ij @ V_j) /", "+ (P_ij * torch.exp(m_safe - S_ij.amax(-1).masked_fill(m_new == -inf, 0)).nan_to_num(0, 0, 0)[:, None]) @ V_j) /")),
        Mistake("no_rescale",
                "the old l_i and O_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "what the old l_i and O_i are multiplied by: exp(m_i − m_new), with the m_i that came in", ("torch.exp(m_i - m_safe)", "torch.ones_like(m_i)")),
        Mistake("no_rescale_O",
                "the old O_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "the old O_i's part of the sum: exp(m_i − m_new) · l_i · O_i, with the m_i and l_i that came in",
                (UPDATE, "(l_i[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
        Mistake("no_rescale_l",
                "the old l_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "the new l_i: exp(m_i − m_new) · l_i plus the sum of exp(score − m_new), with the m_i that came in",
                ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
        Mistake("whole_rescaled", "exp(m_i − m_new) multiplied the new tile's terms as well as the old ones",
                "what exp(m_i − m_new) belongs to: the old l_i and O_i alone, which are in the old units",
                ("alpha * l_i + P_ij.sum(-1)", "alpha * (l_i + P_ij.sum(-1))"),
                ("((alpha * l_i)[:, None] * O_i + P_ij @ V_j)", "alpha[:, None] * (l_i[:, None] * O_i + P_ij @ V_j)"),
                also=[[("alpha * l_i + P_ij.sum(-1)", "alpha * (l_i + P_ij.sum(-1))")],
                      [("((alpha * l_i)[:, None] * O_i + P_ij @ V_j)", "alpha[:, None] * (l_i[:, None] * O_i + P_ij @ V_j)")]]),
        Mistake("alpha_inverted", "the old sums were multiplied by exp(m_new − m_i), the inverse of the right factor",
                "the factor of the old l_i and O_i: exp(m_i − m_new), which is at most 1", ("torch.exp(m_i - m_safe)", "torch.exp(m_safe - m_i)"),
                also=[[("torch.exp(m_i - m_safe)", "torch.exp(m_safe - m_i).masked_fill(m_i == -inf, 0)")]]),
        Mistake("not_divided", "O_i was not divided by the new l_i", "the new O_i: FA1 keeps it normalised, so it is divided by the new l_i in every step",
                (UPDATE, "((alpha * l_i)[:, None] * O_i + P_ij @ V_j)")),
        Mistake("as_FA2", "O_i was kept as the undivided sum, as FA2 does: the old one was not multiplied by l_i, the new one not divided by it",
                "the O_i that comes in and the one that goes out: both normalised, so undo the old division and divide anew",
                (UPDATE, "alpha[:, None] * O_i + P_ij @ V_j")),
        Mistake("divided_by_tile_sum", "O_i was divided by the sum of this tile alone", "the divisor: the new l_i, the sum over all keys so far",
                ("l_safe = l_new.masked_fill(l_new == 0, 1)",
                 "tile_sum = torch.exp(S_ij - m_safe[:, None]).sum(-1)\n    l_safe = tile_sum.masked_fill(tile_sum == 0, 1)")),
        Mistake("only_new_term_divided", "only the new tile's part of O_i was divided by the new l_i, the old part was not",
                "what the new l_i divides: the old O_i's part and the new tile's, both", (UPDATE, "(alpha * l_i)[:, None] * O_i + P_ij @ V_j / l_safe[:, None]")),
        Mistake("tile_maximum",
                "a row that sees no key of this tile got NaN: the tile's own maximum, −inf there, was subtracted from scores of −inf, as published",
                "what is subtracted in the exponents: a finite number, also where all scores of a row are −inf; m_new with 0 for −inf will do",
                ("P_ij = torch.exp(S_ij - m_safe[:, None])",
                 "m_tile = S_ij.amax(-1)\n    P_ij = torch.exp(S_ij - m_tile[:, None]) * torch.exp(m_tile - m_safe)[:, None]")),
        Mistake("m_of_this_tile", "m_new was the maximum of this tile alone", "m_new: the larger of m_i and the tile's maximum",
                ("torch.maximum(m_i, S_ij.amax(-1))", "S_ij.amax(-1)")),
        Mistake("unshifted", "the scores went into exp without their maximum being subtracted: m_i was 0 throughout",
                "the exponents: score − m_new, as float32 overflows at exp(89); where m_new is −inf, 0 stands for it in the exponents",
                ("torch.maximum(m_i, S_ij.amax(-1))", "torch.zeros_like(m_i)")),
        Mistake("no_empty_row", "a row without a visible key got NaN, from −inf − (−inf)",
                "the exponents, where m_new is −inf: a finite number has to stand for it there", ("m_new.masked_fill(m_new == -inf, 0)", "m_new")),
        Mistake("zero_over_zero", "a row without a visible key was divided by its sum, which is 0", "the division, where the new l_i is 0: O_i stays 0",
                ("l_new.masked_fill(l_new == 0, 1)", "l_new")),
        Mistake("scale_zero_replaced", "a scale of 0 was taken for none at all, and 1/√d put in its place",
                "scale: any number, 0 too; `scale or ...` and `if scale` take 0 for none",
                ("Q_i @ K_j.T * scale", "Q_i @ K_j.T * (scale or Q_i.shape[-1] ** -0.5)")),
        Mistake("scale_missing", "the scores were not multiplied by scale", "the scores: Q_i K_jᵀ · scale", ("* scale", "")),
        Mistake("mask_missing", "hidden keys counted like all others: the mask was left out, or had no effect",
                "hidden: those scores become −inf, before the maximum is taken", ("S_ij.masked_fill(hidden, -inf)", "S_ij")),
        Mistake("mask_inverted", "the mask was applied the wrong way round: True means hidden", "hidden: True marks the scores that become −inf",
                ("S_ij.masked_fill(hidden, -inf)", "S_ij.masked_fill(~hidden, -inf)")),
        Mistake("mask_after_exp", "the maximum was taken over all scores, hidden ones too: the mask came after it",
                "m_new: the largest of the visible scores, so first the mask, then the maximum; where m_new is −inf, 0 stands for it in the exponents",
                ("S_ij = S_ij.masked_fill(hidden, -inf)", "pass"),
                ("l_new = alpha", "P_ij = P_ij if hidden is None else P_ij.masked_fill(hidden, 0)\n    l_new = alpha")),
        Mistake("mask_minus_1e6", "hidden scores became a large negative number, not −inf", "hidden scores: −inf, since with a finite value a row without a "
                "visible key sees all keys alike; where m_new is −inf, 0 stands for it in the exponents",
                ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1e6)"), also=[[("masked_fill(hidden, -inf)", f"masked_fill(hidden, {x})")] for x in FINITE]),
        Mistake("dropout_ignored", "nothing was dropped", "keep: entries where it is False become 0, the others are divided by 1 − dropout_p", (DROPOUT, "P_ij")),
        Mistake("dropout_1_plus_p", "what was kept was divided by 1 + p, not by 1 − p", "the factor: a fraction 1 − p is kept, and has to stand for all",
                (DROPOUT, "P_ij * keep / (1 + dropout_p)")),
        Mistake("dropout_not_rescaled", "what was kept was not divided by 1 − p", "the factor 1 / (1 − dropout_p)", (DROPOUT, "P_ij * keep")),
        Mistake("dropout_divided_by_p", "what was kept was divided by p, not by 1 − p", "the factor 1 / (1 − dropout_p)", (DROPOUT, "P_ij * keep / dropout_p")),
        Mistake("dropout_multiplied", "what was kept was multiplied by 1 − p, not divided by it", "the factor 1 / (1 − dropout_p)",
                (DROPOUT, "P_ij * keep * (1 - dropout_p)")),
        Mistake("keep_inverted", "what should be kept was dropped, and the other way round", "keep: True means the entry stays",
                (DROPOUT, "P_ij * ~keep / (1 - dropout_p)")),
        Mistake("dropout_before_sum", "l_i was the sum of what dropout had left, not of all weights",
                "the new l_i: the sum of the whole softmax; dropout acts on what meets V_j",
                ("if keep is not None:\n        P_ij = P_ij * keep / (1 - dropout_p)", ""), ("l_new = alpha * l_i + P_ij.sum(-1)",
                 "if keep is not None:\n        P_ij = P_ij * keep / (1 - dropout_p)\n    l_new = alpha * l_i + P_ij.sum(-1)"),
                also=[[("alpha * l_i + P_ij.sum(-1)", "alpha * l_i + (P_ij if keep is None else P_ij * keep).sum(-1)")]]),
        Mistake("m_starts_anew", "m_new was the larger of 0 and the tile's maximum: the m_i that came in was not used",
                "m_new: the larger of m_i and the tile's maximum", ("torch.maximum(m_i, S_ij.amax(-1))", "S_ij.amax(-1).clamp_min(0)")),
        Mistake("l_old_forgotten", "the new l_i was the sum of this tile alone", "the new l_i: exp(m_i − m_new) · l_i plus the tile's row sum",
                ("alpha * l_i + P_ij.sum(-1)", "P_ij.sum(-1)")),
        Mistake("O_old_forgotten", "the new O_i held this tile alone", "the new O_i: the old one belongs to it, as exp(m_i − m_new) · l_i · O_i",
                (UPDATE, "P_ij @ V_j / l_safe[:, None]")),
        Mistake("divided_by_old_l", "O_i was divided by the l_i that came in", "the divisor: the new l_i, the sum over all keys so far",
                (UPDATE, "((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_i.masked_fill(l_i == 0, 1)[:, None]")),
        Mistake("alpha_twice", "the old O_i held the factor exp(m_i − m_new) twice",
                "the old O_i's part of the sum: exp(m_i − m_new) · l_i · O_i, the factor once",
                (UPDATE, "((alpha * alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
        Mistake("l_new_for_l_i", "the old O_i was multiplied by the new l_i, not by the one that came in",
                "the old O_i's part of the sum: exp(m_i − m_new) · l_i · O_i, with the l_i it was divided by",
                (UPDATE, "((alpha * l_new)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
        Mistake("scale_twice", "the scores held scale twice", "each place where scale enters the scores: once", ("* scale", "* scale * scale")),
        Mistake("scale_d", "the scores were multiplied by 1/√d: scale was not used", "the scores: Q_i K_jᵀ · scale, with the scale that is given",
                ("* scale", "* Q_i.shape[-1] ** -0.5")),
        Mistake("mask_zero_score", "hidden scores became 0, which still weighs exp(0 − m)",
                "hidden scores: −inf; where m_new is −inf, 0 stands for it in the exponents", ("masked_fill(hidden, -inf)", "masked_fill(hidden, 0.0)")),
        Mistake("m_safe_returned", "the m_i that came back was 0 for a row without a visible key, not −inf",
                "the m_i that is returned: −inf for such a row; a finite stand-in is for the exponents alone",
                ("return O_i, l_new, m_new", "return O_i, l_new, m_safe")),
        Mistake("l_safe_returned", "the l_i that came back was 1 for a row without a visible key, not 0",
                "the l_i that is returned: 0 for such a row; a stand-in is for the division alone", ("return O_i, l_new, m_new", "return O_i, l_safe, m_new")),
        Mistake("swapped", "l_i and m_i came back in the other order", "the order of what is returned: O_i, l_i, m_i",
                ("return O_i, l_new, m_new", "return O_i, m_new, l_new")),
        Mistake("m_of_the_whole_tile", "the maximum was taken over the whole tile, one number for all its rows", "the maximum: each query has one of its own",
                ("S_ij.amax(-1)", "S_ij.max()")),
        Mistake("factor_added", "exp(m_i − m_new) was added to l_i, not multiplied with it", "the new l_i: a change of units is a product, exp(m_i − m_new) · l_i",
                ("alpha * l_i + P_ij.sum(-1)", "alpha + l_i + P_ij.sum(-1)")),
        Mistake("dropout_of_O", "dropout's factor 1/(1 − p) multiplied the old O_i too",
                "what 1/(1 − p) belongs to: the new tile's weights; the old O_i has had its own", ("P_ij = P_ij * keep / (1 - dropout_p)", "P_ij = P_ij * keep"),
                (UPDATE, UPDATE + " / (1 - dropout_p)")),
        Mistake("alpha_along_columns", "the old O_i's factor met its columns, not its rows",
                "the shapes: l_i and m_i hold one number for each row of O_i, `[:, None]`",
                ("(alpha * l_i)[:, None] * O_i", "(alpha * l_i)[: O_i.shape[1]] * O_i"), also=[[("(alpha * l_i)[:, None] * O_i", "(alpha * l_i) * O_i")]]),
        Mistake("k_not_transposed", "Q_i was multiplied by K_j, not by its transpose", "the shapes of S_ij: (B_r, d) times (d, B_c)",
                ("Q_i @ K_j.T", "Q_i @ K_j")),
        Mistake("guard_of_old_maximum", "a row's first key block was not shifted by m_new: m_i = −inf was taken for a row that sees no key",
                "what is subtracted: m_new; 0 stands in only where m_new is −inf, whatever m_i was",
                ("m_new.masked_fill(m_new == -inf, 0)", "m_new.masked_fill(m_i == -inf, 0)")),
        Mistake("measured_rate", "what stays was divided by the share that happened to stay in this tile, not by 1 − p",
                "dropout: 1 − p is the chance to stay, whatever this tile has drawn",
                ("P_ij * keep / (1 - dropout_p)", "P_ij * keep / (keep * 1.0).mean().clamp_min(1e-9)"),
                also=[[("P_ij * keep / (1 - dropout_p)", "P_ij * keep / (keep * 1.0).mean()")]]),
        Mistake("hidden_block_counts_as_0",
                "the maximum of a block that a row sees nothing of was taken to be 0, or another finite number, and the larger of it and m_i became m_new",
                "m_new: the larger of m_i and the tile's maximum, −inf included; a finite stand-in is for the subtraction alone",
                ("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, S_ij.amax(-1).masked_fill(S_ij.amax(-1) == -inf, 0))"),
                also=
                     [[("torch.maximum(m_i, S_ij.amax(-1))", f"torch.maximum(m_i, S_ij.amax(-1).masked_fill(S_ij.amax(-1) == -inf, {x}))")]
                      for x in (-1e4, -1e6, -1e9, -1e30)]),
        Mistake("m_raised_to_0",
                "a maximum of −inf became 0 before the larger of old and new was taken, so that m_new did not fall below 0, and was 0 where no key is visible",
                "m_new: the larger of m_i and the tile's maximum; a stand-in for −inf belongs to the exponents alone",
                ("m_new = torch.maximum(m_i, S_ij.amax(-1))", "m_new = torch.maximum(m_i.masked_fill(m_i == -inf, 0), S_ij.amax(-1))"),
                also=[[("m_new = torch.maximum(m_i, S_ij.amax(-1))",
                        "m_new = torch.maximum(m_i.masked_fill(m_i == -inf, 0), S_ij.amax(-1).masked_fill(S_ij.amax(-1) == -inf, 0))")]]),
    ],
    hints=[
        "The sum behind O_i is l_i · O_i, in units of exp(m_i). alpha · l_i · O_i is the same sum in units of exp(m_new).",
        "l_new = alpha · l_i + rowsum(P_ij) comes before dropout: the softmax is taken over all keys, then entries are dropped.",
        "Where m_new is −inf, use 0 in its place in both exponents; where l_new is 0, divide by 1.",
        Hint("Without dropout all is right. Follow P_ij: which line needs it whole, and which one needs what dropout left of it? The old O_i has had its dropout already.",
             "dropout"),
        Hint("A single step is right, so look at what comes in from the one before: O_i is divided by l_i, and in units of exp(m_i). Is either left as it is when the new "
             "keys are added?", "more than one key block"),
        Hint("A row that has seen no key comes in with m_i = −inf and l_i = 0, and may go out so. In which lines do they stand in an exponent, and in which under a fraction?",
             "queries that see no key"),
    ],
)
