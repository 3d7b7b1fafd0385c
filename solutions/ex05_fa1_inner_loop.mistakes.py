"""Cases and mistakes of ex05_fa1_inner_loop."""

import torch

from flashlab.check.cases import attention_case
from flashlab.check.form import Exercise, Mistake, Output, Variant
from flashlab.check.runner import Breach

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
    for j in range(0, len(K), B_c):
        cols = slice(j, j + B_c)
        state = O.clone(), l.clone(), m.clone()
        found = fn(Q, K[cols], V[cols], O, l, m, scale, None if hidden is None else hidden[:, cols], None if keep is None else keep[:, cols], dropout_p)
        if not all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip((O, l, m), state, strict=True)):
            raise Breach("changed_inputs", "it changed O_i, l_i or m_i in place: return new ones (`O_i = a * O_i`, not `O_i *= a`)")
        if not isinstance(found, (tuple, list)) or len(found) != 3 or not all(isinstance(T, torch.Tensor) for T in found):
            return found                       # the checker says what is wrong with it
        if any(a.shape != b.shape for a, b in zip(found, state, strict=True)):
            return found
        O, l, m = found
    return O, l, m


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
    return attention_case(name, N_q, N_k, d, d_v, features=[*features, *(["dropout"] if dropout_p else [])], scale=0.5, **more)


EXERCISE = Exercise(
    function="fa1_step",
    outputs=(Output("O_i", ("query", "column")), Output("l_i", ("query",)), Output("m_i", ("query",))),
    call=call,
    truth=truth,
    cases=[
        case("one step", 2, 3, 3, B_c=3),
        case("two steps", 2, 4, 3, B_c=2, seed=11),
        case("three steps", 4, 9, 4, 2, B_c=3, seed=2),
        case("square tiles", 4, 12, 4, B_c=4, seed=3),
        case("scores in the hundreds", 4, 15, 4, B_c=3, large=True, seed=4),
        case("causal", 6, 6, 3, B_c=2, causal=True, seed=5, features=["a causal mask over several steps"]),
        case("causal, queries that see no key", 5, 3, 3, B_c=2, causal=True, seed=6),
        case("dropout, one step", 3, 4, 3, B_c=4, dropout_p=0.3, seed=7),
        case("dropout, three steps", 3, 9, 3, B_c=3, dropout_p=0.4, seed=8),
    ],
    mistakes=[
        Mistake("old_division_not_undone", "O_i was rescaled by alpha alone: its last division by l_i was not undone",
                "the first term of O_i: alpha · l_i · O_i", (UPDATE, "(alpha[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
        Mistake("no_rescale_O", "O_i was not multiplied by alpha when the maximum grew", "the first term of O_i: alpha · l_i · O_i",
                (UPDATE, "(l_i[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
        Mistake("no_rescale_l", "l_i was not multiplied by alpha when the maximum grew", "the line of l_new",
                ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
        Mistake("alpha_inverted", "alpha was exp(m_new − m_i), the inverse of the right factor", "the sign in alpha",
                ("torch.exp(m_i - m_safe)", "torch.exp(m_safe - m_i)")),
        Mistake("not_divided", "O_i was not divided by l_new", "the end of the line of O_i: FA1 keeps O_i normalised", (UPDATE, "((alpha * l_i)[:, None] * O_i + P_ij @ V_j)")),
        Mistake("divided_by_tile_sum", "O_i was divided by the sum of this tile alone", "the divisor: l_new, the sum over all keys so far",
                ("l_safe = l_new.masked_fill(l_new == 0, 1)", "tile_sum = torch.exp(S_ij - m_safe[:, None]).sum(-1)\n    l_safe = tile_sum.masked_fill(tile_sum == 0, 1)")),
        Mistake("only_new_term_divided", "only the new term was divided by l_new, the old one was not", "the brackets: both terms are divided",
                (UPDATE, "(alpha * l_i)[:, None] * O_i + P_ij @ V_j / l_safe[:, None]")),
        Mistake("tile_maximum", "P_ij was shifted by the maximum of its own tile, as published, which is NaN for a tile that is hidden throughout",
                "the exponent of P_ij: m_new, made finite where no key is visible",
                ("P_ij = torch.exp(S_ij - m_safe[:, None])", "m_tile = S_ij.amax(-1)\n    P_ij = torch.exp(S_ij - m_tile[:, None]) * torch.exp(m_tile - m_safe)[:, None]")),
        Mistake("m_of_this_tile", "m_new was the maximum of this tile alone", "the line of m_new: the larger of m_i and the tile's maximum",
                ("torch.maximum(m_i, S_ij.amax(-1))", "S_ij.amax(-1)")),
        Mistake("unshifted", "the scores went into exp without their maximum being subtracted", "the exponents: float32 overflows at exp(89)",
                ("torch.maximum(m_i, S_ij.amax(-1))", "torch.zeros_like(m_i)")),
        Mistake("no_empty_row", "a row without a visible key got NaN, from −inf − (−inf)", "the exponents, where m_new is −inf",
                ("m_new.masked_fill(m_new == -inf, 0)", "m_new")),
        Mistake("zero_over_zero", "a row without a visible key was divided by its sum, which is 0", "the division, where l_new is 0",
                ("l_new.masked_fill(l_new == 0, 1)", "l_new")),
        Mistake("scale_missing", "the scores were not multiplied by scale", "the line of S_ij", ("* scale", "")),
        Mistake("mask_missing", "the mask was ignored", "hidden: those scores become −inf", ("S_ij.masked_fill(hidden, -inf)", "S_ij")),
        Mistake("mask_inverted", "the mask was applied the wrong way round: True means hidden", "masked_fill replaces where the mask is True",
                ("S_ij.masked_fill(hidden, -inf)", "S_ij.masked_fill(~hidden, -inf)")),
        Mistake("mask_after_exp", "hidden entries were set to 0 after exp, so that the maximum still saw their scores",
                "the order: mask first, then the maximum",
                ("S_ij = S_ij.masked_fill(hidden, -inf)", "pass"),
                ("l_new = alpha", "P_ij = P_ij if hidden is None else P_ij.masked_fill(hidden, 0)\n    l_new = alpha")),
        Mistake("mask_minus_1e6", "hidden scores were set to a large negative number, not to −inf", "rows without a visible key: with a finite value they see all keys alike",
                ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1e6)"),
                also=[[("masked_fill(hidden, -inf)", f"masked_fill(hidden, {x})")] for x in FINITE]),
        Mistake("dropout_ignored", "nothing was dropped", "keep: entries where it is False become 0", (DROPOUT, "P_ij")),
        Mistake("dropout_1_plus_p", "what was kept was divided by 1 + p, not by 1 − p", "the factor: a fraction 1 − p is kept, and has to stand for all",
                (DROPOUT, "P_ij * keep / (1 + dropout_p)")),
        Mistake("dropout_not_rescaled", "what was kept was not divided by 1 − p", "the factor 1 / (1 − dropout_p)", (DROPOUT, "P_ij * keep")),
        Mistake("dropout_divided_by_p", "what was kept was divided by p, not by 1 − p", "the factor 1 / (1 − dropout_p)", (DROPOUT, "P_ij * keep / dropout_p")),
        Mistake("keep_inverted", "what should be kept was dropped, and the other way round", "keep: True means the entry stays", (DROPOUT, "P_ij * ~keep / (1 - dropout_p)")),
        Mistake("dropout_before_sum", "dropout came before the row sum, so that l_new held only what was kept",
                "the order: l_new is the sum of the whole softmax, dropout acts on what meets V_j",
                ("if keep is not None:\n        P_ij = P_ij * keep / (1 - dropout_p)", ""),
                ("l_new = alpha * l_i + P_ij.sum(-1)", "if keep is not None:\n        P_ij = P_ij * keep / (1 - dropout_p)\n    l_new = alpha * l_i + P_ij.sum(-1)")),
    ],
    variants=[
        Variant("unnormalised inside", body="""
            s = (Q_i * scale) @ K_j.transpose(0, 1)
            if hidden is not None:
                s = torch.where(hidden, torch.tensor(-inf, dtype=s.dtype), s)
            top = torch.cat([m_i[:, None], s], 1).max(1, keepdim=True).values
            finite = torch.where(top == -inf, torch.zeros_like(top), top)
            w = (s - finite).exp()
            old = (m_i[:, None] - finite).exp() * l_i[:, None]
            l = old + w.sum(1, keepdim=True)
            if keep is not None:
                w = torch.where(keep, w / (1 - dropout_p), torch.zeros_like(w))
            O = torch.where(l > 0, (O_i * old + w @ V_j) / l, torch.zeros_like(O_i))
            return O, l[:, 0], top[:, 0]
            """),
    ],
    hints=[
        "The sum behind O_i is l_i · O_i, in units of exp(m_i). alpha · l_i · O_i is the same sum in units of exp(m_new).",
        "l_new = alpha · l_i + rowsum(P_ij) comes before dropout: the softmax is taken over all keys, then entries are dropped.",
        "Where m_new is −inf, use 0 in its place in both exponents; where l_new is 0, divide by 1.",
    ],
)
