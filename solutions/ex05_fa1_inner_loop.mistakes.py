from functools import partial

import torch

from flashlab.memory import kernel, load, store, tiles
from flashlab_course.check.cases import BELOW, EDGE, LARGE, Mistake, attention_case, epsilon, in_float64
from flashlab_course.check.form import Breach

inf = float("inf")
UPDATE = "((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]"
DROPOUT, HIDE = "P_ij * keep / (1 - dropout_p)", "S_ij = S_ij.masked_fill(hidden, -inf)"
DROP = f"if keep is not None:\n        P_ij = {DROPOUT}"

outputs = [("O_i", "query", "column"), ("l_i", "query"), ("m_i", "query")]
features = {"dropout": lambda dropout_p: dropout_p > 0}


def begin(Q, K, V, causal, dropout_p):
    """The masks of all keys, and O, l and m before the first."""
    hidden = torch.ones(len(Q), len(K), dtype=torch.bool).triu(len(K) - len(Q) + 1) if causal else None
    state = Q.new_zeros(len(Q), V.shape[-1]), Q.new_zeros(len(Q)), Q.new_full((len(Q),), -inf)
    if not dropout_p:
        return (hidden, None), state
    return (hidden, torch.rand(len(Q), len(K), generator=torch.Generator().manual_seed(5)) >= dropout_p), state


def call(fn, Q, K, V, B_c, scale, causal=False, dropout_p=0.0):
    """One query block, all key blocks, as FA1's outer loop brings them."""
    masks, state = begin(Q, K, V, causal, dropout_p)
    changed = False
    for cols in tiles(len(K), B_c):
        before = [T.clone() for T in state]
        tile = [None if mask is None else mask[:, cols] for mask in masks]
        found = fn(Q, K[cols], V[cols], *state, scale, *tile, dropout_p)
        changed |= any(not torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(state, before, strict=True))
        shapes = [getattr(T, "shape", None) for T in found] if isinstance(found, (tuple, list)) else None
        if shapes != [T.shape for T in state]:
            return found                       # the checker says what is wrong with it
        state = found
    if changed:
        said = "it changed O_i, l_i or m_i in place: return new ones (`O_i = a * O_i`, not `O_i *= a`)"
        raise Breach("changed_inputs", said, tuple(state))
    return tuple(state)


def show(fn, Q, K, V, B_c, scale, causal=False, dropout_p=0.0, B_r=2):
    """The step in FA1's loops, on modelled memory."""
    masks, state = begin(Q, K, V, causal, dropout_p)
    given = {name: mask for name, mask in zip(("hidden", "keep"), masks, strict=True) if mask is not None}
    L = torch.empty(len(Q))
    with kernel("fa1_forward", Q=Q, K=K, V=V, **dict(zip("Olm", state, strict=True)), L=L, **given):
        for cols in tiles(len(K), B_c):
            K_j, V_j = load(K, cols), load(V, cols)
            for rows in tiles(len(Q), B_r):
                tile = [None if mask is None else load(mask, rows, cols) for mask in masks]
                O_i, l_i, m_i = fn(load(Q, rows), K_j, V_j, *(load(T, rows) for T in state), scale, *tile, dropout_p)
                for T, T_i in zip(state, (O_i, l_i, m_i), strict=True):
                    store(T, rows, T_i)
                if cols.stop == len(K):
                    store(L, rows, m_i + torch.log(l_i))
                del tile, O_i, l_i, m_i, T_i           # the next query block needs their place on chip


case = partial(attention_case, scale=0.4)
cases = [case("one step", 3, 5, 4, 6, B_c=5),
         case("two steps", 3, 8, 5, 6, B_c=4, seed=11),
         case("scores in the hundreds", 4, 15, 4, B_c=3, scale=-0.5, factor=LARGE, seed=4),
         case("causal", 6, 6, 3, B_c=2, causal=True, seed=5),
         case("causal, queries that see no key", 5, 3, 3, B_c=2, causal=True, seed=6),
         case("dropout, three steps", 3, 9, 3, B_c=3, dropout_p=0.4, seed=8),
         case("scores far below 0", 3, 6, 4, B_c=2, below=BELOW, seed=9),
         case("causal, scores in the hundreds", 6, 6, 3, B_c=2, causal=True, factor=LARGE, seed=14),
         case("causal, a negative scale", 4, 6, 4, B_c=2, causal=True, scale=-0.4, seed=15),
         case("causal, scores around −997", 4, 6, 4, B_c=2, causal=True, below=EDGE, seed=17),
         case("causal, a scale of 0", 4, 6, 4, B_c=2, causal=True, scale=0.0, seed=16),
         in_float64(case("a single key", 1, 1, 4, B_c=1, exact=True, seed=14))]
mistakes = [
    epsilon((UPDATE, "((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / (l_new + ε)[:, None]")),
    Mistake("old_division_not_undone", "the old O_i was not multiplied by the old l_i", "what O_i was divided by",
            (UPDATE, "(alpha[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]")),
    Mistake("no_rescale", "the old l_i and O_i were not rescaled when the maximum grew",
            "the old sums, and which maximum m_i still is", ("torch.exp(m_i - m_safe)", "torch.ones_like(m_i)")),
    Mistake("no_rescale_l", "the old l_i was not rescaled when the maximum grew; O_i was",
            "the new l_i, and the unit of the old one", ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
    Mistake("not_divided", "O_i was not divided by the new l_i",
            "the new O_i: FA1 keeps it normalised after every step", (" / l_safe[:, None]", "")),
    Mistake("m_of_this_tile", "m_new was the maximum of this tile alone", "m_new: it covers all keys so far",
            ("torch.maximum(m_i, S_ij.amax(-1))", "S_ij.amax(-1)")),
    Mistake("scale_missing", "the scores were not multiplied by scale", "how the scores are computed", ("* scale", "")),
    Mistake("mask_missing", "hidden keys counted like all the others",
            "where hidden enters, and whether its result is used", (HIDE, "pass")),
    Mistake("mask_before_scale", "the mask came before scale, which turned −inf into +inf or NaN",
            "mask or scale first", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T"), (HIDE, "…\n    S_ij = S_ij * scale")),
    Mistake("mask_after_exp", "the maximum was taken over hidden scores too", "the order of mask and maximum", (HIDE,
             "pass"), ("l_new = alpha", "P_ij = P_ij if hidden is None else P_ij.masked_fill(hidden, 0)\n    …")),
    Mistake("mask_minus_1e6", "hidden scores became a large negative number, not −inf",
            "what a row without any visible key gets", ("masked_fill(hidden, -inf)", "masked_fill(hidden, -1e9)")),
    Mistake("no_empty_row", "a row without a visible key got NaN, from −inf − (−inf)",
            "the exponents of a row whose m_new is −inf", ("m_new.masked_fill(m_new == -inf, 0)", "m_new")),
    Mistake("m_safe_returned", "m_i came back as 0 for a row without a visible key, not as −inf",
            "the m_i that is returned", ("return O_i, l_new, m_new", "return O_i, l_new, m_safe")),
    Mistake("dropout_not_rescaled", "the weights that dropout kept were not divided by 1 − dropout_p",
            "what happens to the weights that stay", (DROPOUT, "P_ij * keep")),
    Mistake("dropout_before_sum", "l_i was the sum of the weights that dropout had left",
            "the order of dropout and the row sum", (DROP, ""), ("l_new = alpha", f"{DROP}\n    …")),
]
hints = ["A single step is easy: what is stale about O_i and l_i when a later tile raises the maximum?",
         "The sum behind O_i is l_i · O_i, in units of exp(m_i). Convert it to units of exp(m_new) first.",
         "A row without keys has m_new = −inf and l_new = 0: put 0 in the exponents and divide by 1."]
