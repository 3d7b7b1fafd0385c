"""Attention computed wrongly on purpose, in float64: what a wrong O, L, m, l or gradient is held against.

An exercise that is attention in some form has `alternatives=Problem`. Each entry of the table is computed from the inputs alone, so
that it says what came out whatever the code looks like that made it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

inf = float("inf")
LN2 = math.log(2)


@dataclass(frozen=True)
class Alternative:
    """One wrong way. `make` takes a Problem and returns {output: tensor}, or None where it does not apply."""

    name: str
    what: str                  # what was done, in the past tense, as in a Mistake
    look: str
    make: Callable


class Problem:
    """The inputs of one case and what is computed from them, in float64."""

    def __init__(self, inputs):
        self.inputs = inputs
        Q, K, V = (inputs[name].double() for name in ("Q", "K", "V"))
        group = Q.shape[-3] // K.shape[-3] if Q.ndim > 2 else 1
        self.Q, self.K, self.V, self.group = Q, *(T.repeat_interleave(group, dim=-3) if group > 1 else T for T in (K, V)), group
        self.N_q, self.d, self.N_k = *Q.shape[-2:], K.shape[-2]
        scale = inputs.get("scale")
        self.scale = self.d**-0.5 if scale is None else scale
        self.causal = bool(inputs.get("causal", False))
        self.B_r, self.B_c = inputs.get("B_r"), inputs.get("B_c")
        self.shift = self.N_k - self.N_q
        self.queries, self.keys = torch.arange(self.N_q)[:, None], torch.arange(self.N_k)[None, :]

    def table(self):
        return ATTENTION

    @cached_property
    def S0(self):
        return self.Q @ self.K.mT

    @cached_property
    def S(self):
        return self.S0 * self.scale

    @cached_property
    def visible(self):
        return self.up_to(self.shift) if self.causal else torch.ones(self.N_q, self.N_k, dtype=torch.bool)

    def up_to(self, shift):
        return self.keys <= self.queries + shift

    def weights(self, S=None, visible=None):
        """(P, L, m, l) of a softmax over the keys that are visible; rows that see none are 0 and -inf."""
        S = self.S if S is None else S
        S = S.masked_fill(~(self.visible if visible is None else visible), -inf)
        m = S.amax(-1)
        E = torch.exp(S - m.masked_fill(m == -inf, 0)[..., None])
        l = E.sum(-1)
        return E / l.masked_fill(l == 0, 1)[..., None], m + l.log(), m, l

    def forward(self, S=None, visible=None, V=None):
        P, L, m, l = self.weights(S, visible)
        return _forward(P @ (self.V if V is None else V), L, m, l)

    def within(self, visible):
        return self.visible & visible

    def blocks(self):
        """Which query block each query is in: (N_q, 1)."""
        return self.queries // self.B_r


def _forward(O, L=None, m=None, l=None):
    found = {"O": O, "L": L, "m": m, "l": l, "O_i": O, "m_i": m, "l_i": l}
    return {name: T for name, T in found.items() if T is not None}


def _where(holds, make):
    """make, for problems for which holds(p) is true."""
    return lambda p: make(p) if holds(p) else None


def _causal(make):
    return _where(lambda p: p.causal, make)


def _in_blocks(make):
    return _where(lambda p: p.B_c and p.B_c < p.N_k, make)


def _causal_blocks(end):
    """A causal loop over key blocks that ends before block ⌈end / B_c⌉; end (p, i) in keys, i the query block of each query."""
    def make(p):
        last = end(p, p.blocks())
        return p.within(p.keys < -(-torch.as_tensor(last) // p.B_c) * p.B_c)
    return lambda p: make(p) if p.causal and p.B_r and p.B_c else None


SCALES = [
    ("scale_missing", "the scores were not multiplied by scale", lambda p: 1.0),
    ("scale_twice", "the scores were multiplied by scale twice", lambda p: p.scale**2),
    ("scale_ignored", "the scores were multiplied by 1/√d, not by the scale that was given", lambda p: p.d**-0.5),
    ("scale_divided", "the scores were divided by scale, not multiplied", lambda p: 1 / p.scale if p.scale else None),
    ("scale_d", "the scores were divided by d", lambda p: 1 / p.d),
    ("scale_sqrt_d_multiplied", "the scores were multiplied by √d", lambda p: p.d**0.5),
    ("scale_of_d_v", "the scores were scaled by 1/√d_v, not by 1/√d", lambda p: p.V.shape[-1] ** -0.5),
    ("scale_of_N_k", "the scores were scaled by 1/√N_k, not by 1/√d", lambda p: p.N_k**-0.5),
    ("scale_of_N", "the scores were scaled by 1/√N_q, not by 1/√d", lambda p: p.N_q**-0.5),
    ("scale_root", "the scores were multiplied by √scale", lambda p: abs(p.scale) ** 0.5),
    ("scale_negative", "the scores had the wrong sign", lambda p: -p.scale),
    ("base_2", "the scores weighed as powers of 2, not of e", lambda p: p.scale * LN2),
    ("base_2_factor", "the scores were multiplied by log2(e), which belongs to powers of 2 alone", lambda p: p.scale / LN2),
]

MASKS = [
    ("mask_missing", "nothing was masked, though causal is True", "causal: keys after the query are hidden",
     lambda p: torch.ones_like(p.visible)),
    ("mask_hides_own_key", "the mask also hid each query's own key: it was off by one",
     "the comparison: key ≤ query is seen", lambda p: p.up_to(p.shift - 1)),
    ("mask_shows_next_key", "the mask let each query see one key of the future: it was off by one",
     "the comparison: the first hidden key is the one after the query", lambda p: p.up_to(p.shift + 1)),
    ("mask_shift_never_negative", "the shift N_k − N_q was kept from falling below 0: with more queries than keys the mask lined "
     "up the first query with the first key", "the case N_q > N_k: the shift is negative, and the first queries see nothing",
     lambda p: p.up_to(max(p.shift, 0))),
    ("mask_top_left", "the mask lined up the first query with the first key, not the last with the last",
     "the case N_q ≠ N_k: query n sees the keys up to n + N_k − N_q", lambda p: p.up_to(0)),
    ("mask_top_left_strict", "the mask lined up the first query with the first key, and also hid each query's own key",
     "query n sees the keys up to n + N_k − N_q", lambda p: p.up_to(-1)),
    ("mask_shift_reversed", "the mask was shifted by N_q − N_k, with the wrong sign",
     "query n sees the keys up to n + N_k − N_q", lambda p: p.up_to(-p.shift)),
    ("mask_lower", "the mask hid the past and showed the future", "the comparison: a key is hidden if it comes after the query",
     lambda p: p.keys >= p.queries + p.shift),
    ("mask_inverted", "the mask hid what should be seen and showed what should be hidden",
     "what True means in the mask", lambda p: p.keys > p.queries + p.shift),
    ("mask_own_key_only", "each query saw its own key alone", "a query sees all keys up to its own",
     lambda p: p.keys == p.queries + p.shift),
]

ENDS = [
    ("end_without_shift",
     "the key blocks ended as if N_q and N_k were the same: the shift N_k − N_q was left out of its bound",
     "where the key blocks end: the block's last query n sees the keys up to n + N_k − N_q", lambda p, i: (i + 1) * p.B_r),
    ("end_by_first_query", "the key blocks ended where the block's first query ends, not its last",
     "where the key blocks end: the last query of the block sees the most keys", lambda p, i: i * p.B_r + 1 + p.shift),
    ("end_one_query_short", "the key blocks left out the block's last query, or its own key",
     "where the key blocks end: query n sees n + 1 + N_k − N_q keys", lambda p, i: (i + 1) * p.B_r - 1 + p.shift),
    ("end_at_first_row", "the key blocks ended before the block's own keys",
     "where the key blocks end: the last query of the block sees the most keys", lambda p, i: i * p.B_r + p.shift),
    ("end_without_shift_first",
     "the key blocks ended at i · B_r: without the shift N_k − N_q, and at the block's first query",
     "where the key blocks end: the block's last query n sees the keys up to n + N_k − N_q", lambda p, i: i * p.B_r),
    ("end_floor", "the number of key blocks was rounded down, so that the block on the diagonal was left out",
     "where the key blocks end: ⌈end / B_c⌉ blocks", lambda p, i: ((i + 1) * p.B_r + p.shift) // p.B_c * p.B_c),
    ("end_is_i", "query block i visited key blocks 0 to i, as if B_r were B_c and N_q were N_k",
     "where the key blocks end: count in keys, then divide by B_c", lambda p, i: (i + 1) * p.B_c),
]


def _last_block(p):
    return p.keys // p.B_c == (p.N_k - 1) // p.B_c


KEYS = [
    ("last_key_left_out", "the last key was left out", "which keys are read: up to N_k − 1",
     lambda p: p.keys < p.N_k - 1, lambda p: p.N_k > 1),
    ("first_key_left_out", "the first key was left out", "which keys are read: from 0 on",
     lambda p: p.keys > 0, lambda p: p.N_k > 1),
    ("first_block_only", "only the first key block counted", "all key blocks count: what the later ones add",
     lambda p: p.keys < p.B_c, None),
    ("last_block_only", "only the last key block counted", "the sums: what the earlier blocks have added stays",
     _last_block, None),
    ("last_block_left_out", "the last key block was left out", "the number of key blocks: ⌈N_k / B_c⌉",
     lambda p: ~_last_block(p), None),
    ("first_block_left_out", "the first key block was left out", "which key blocks are read: from the first on",
     lambda p: p.keys >= p.B_c, None),
    ("short_block_left_out", "the last, short key block was left out", "the number of key blocks: ⌈N_k / B_c⌉",
     lambda p: p.keys < p.N_k // p.B_c * p.B_c, lambda p: p.B_c and p.N_k % p.B_c and p.B_c < p.N_k),
    ("last_key_of_blocks_left_out", "the last key of every block was left out", "the keys of a block: B_c of them, or up to N_k",
     lambda p: (p.keys + 1) % p.B_c != 0, lambda p: p.B_c and 1 < p.B_c),
    ("every_other_block", "every second key block was left out", "which key blocks are read: all",
     lambda p: p.keys // p.B_c % 2 == 0, None),
]


def _padded(p):
    """Keys up to a whole number of blocks, with scores of 0 and values of 0."""
    P, L, m, l = p.weights()
    more = -p.N_k % p.B_c
    top = m.clamp_min(0)
    l = l * torch.exp(m - top) + more * torch.exp(-top)
    return _forward(P * torch.exp(L - top)[..., None] / l[..., None] @ p.V, top + l.log(), top, l)


def _unnormalised(p):
    P, L, m, l = p.weights()
    return _forward(P * l[..., None] @ p.V, L, m, l)


def _each_block(p, combine):
    """A softmax for each key block; the results added or averaged."""
    parts = [p.weights(visible=p.within(p.keys // p.B_c == j))[0] @ p.V for j in range(-(-p.N_k // p.B_c))]
    return {"O": combine(torch.stack(parts), 0)}


def _hidden_as(p, score):
    return p.forward(S=p.S.masked_fill(~p.visible, score), visible=torch.ones_like(p.visible))


def _after_softmax(p):
    P = p.weights(visible=torch.ones_like(p.visible))[0]
    return {"O": P * p.visible @ p.V}


def _L(change):
    def make(p):
        P, L, m, l = p.weights()
        return {"L": change(p, L, m, l)}
    return make


OTHERS = [
    ("no_softmax", "no softmax was taken: the scores themselves were multiplied with V", "P: the softmax of S",
     lambda p: {"O": p.S.masked_fill(~p.visible, 0) @ p.V}),
    ("softmax_over_queries", "the softmax ran over the queries, not over the keys",
     "the dimension of the softmax: each row of P sums to 1",
     lambda p: {"O": torch.softmax(p.S.masked_fill(~p.visible, -inf), -2).nan_to_num(0) @ p.V}),
    ("softmax_over_all", "the softmax ran over the whole matrix", "the dimension of the softmax: each row of P sums to 1",
     lambda p: {"O": torch.softmax(p.S.masked_fill(~p.visible, -inf).flatten(-2), -1).view_as(p.S) @ p.V}),
    ("log_softmax", "the logarithm of the weights was multiplied with V", "P: the weights themselves",
     _where(lambda p: not p.causal, lambda p: {"O": torch.log_softmax(p.S, -1) @ p.V})),
    ("weights_equal", "all visible keys had the same weight: a mean of V came out", "the scores: do Q and K reach the softmax?",
     lambda p: {"O": p.forward(S=p.S * 0)["O"]}),
    ("weights_hard", "each query took the value of its best key alone",
     "the weights: exp(S − m) for all keys, not only the largest",
     lambda p: p.forward(S=1e6 * p.S)),
    ("not_divided", "the sum of exp(S − m) V was not divided by l, the sum of the weights",
     "the division: the weights of a row sum to 1",
     _unnormalised),
    ("not_normalised", "exp(S) V was not divided by the sum of exp(S)", "the division: the weights of a row sum to 1",
     lambda p: {"O": p.S.exp().masked_fill(~p.visible, 0) @ p.V}),
    ("divided_twice", "O was divided by l twice", "how many divisions there are",
     lambda p: {"O": p.forward()["O"] / p.weights()[3][..., None]}),
    ("divided_by_N", "the sum was divided by N_k, not by l", "the division: l is the sum of the weights",
     lambda p: {"O": _unnormalised(p)["O"] / p.N_k}),
    ("divided_by_L", "O was divided by L, a logarithm, not by l", "the division: l is the sum of the weights",
     lambda p: {"O": _unnormalised(p)["O"] / p.weights()[1][..., None]}),
    ("multiplied_by_l", "O was multiplied by l where it has to be divided", "O: divided by l, since the weights of a row sum to 1",
     lambda p: {"O": _unnormalised(p)["O"] * p.weights()[3][..., None]}),
    ("V_shifted", "each weight met the value of the next key", "which rows of V go with which keys",
     lambda p: {"O": p.forward(V=p.V.roll(-1, -2))["O"]}),
    ("V_of_the_first_block",
     "every key block was multiplied with the first block of V", "which rows of V: those of the same keys as K's",
     _where(lambda p: p.B_c and p.N_k > p.B_c and p.N_k % p.B_c == 0,
            lambda p: {"O": p.forward(V=p.V[..., torch.arange(p.N_k) % p.B_c, :])["O"]})),
    ("K_of_the_first_block", "every key block was scored with the first block of K", "which rows of K: block j starts at j · B_c",
     _where(lambda p: p.B_c and p.N_k > p.B_c and p.N_k % p.B_c == 0,
            lambda p: p.forward(S=p.S[..., torch.arange(p.N_k) % p.B_c]))),
    ("K_for_V", "the weights were multiplied with K, not with V", "the last product: P V",
     _where(lambda p: p.V.shape == p.K.shape, lambda p: {"O": p.forward(V=p.K)["O"]})),
    ("mask_zero_score", "hidden scores were set to 0, which still weighs exp(0) = 1", "the value for hidden scores: −inf",
     _causal(lambda p: _hidden_as(p, 0.0))),
    ("mask_after_softmax", "the mask was applied after the softmax, so that the rows no longer sum to 1",
     "the order: hidden scores must be gone before the sum is taken", _causal(_after_softmax)),
    ("mask_minus_1e9", "hidden scores were set to a large negative number, not to −inf",
     "queries that see no key: with a finite value they see all keys alike", _causal(lambda p: {"O": _hidden_as(p, -1e9)["O"]})),
    ("softmax_per_block_added", "each key block got a softmax of its own, and the results were added",
     "the weights of all blocks together sum to 1", _in_blocks(lambda p: _each_block(p, torch.sum))),
    ("softmax_per_block_averaged", "each key block got a softmax of its own, and the results were averaged",
     "the weight of each block: one with small scores counts less", _in_blocks(lambda p: _each_block(p, torch.mean))),
    ("tail_not_masked", "keys beyond N_k were not hidden: they were loaded as 0, and a score of 0 weighs exp(0)",
     "the scores of keys ≥ N_k: they have to be −inf", _where(lambda p: p.B_c and p.N_k % p.B_c, _padded)),
    ("L_without_m", "L was log(l): the maximum was not added back", "L: m + log(l)", _L(lambda p, L, m, l: l.log())),
    ("L_is_m", "L was the maximum alone, without log(l)", "L: m + log(l)", _L(lambda p, L, m, l: m)),
    ("L_is_l", "L was l itself, not m + log(l)", "L: it is a logarithm", _L(lambda p, L, m, l: l)),
    ("L_added_l", "L was m + l: the logarithm of l is missing", "L: m + log(l)", _L(lambda p, L, m, l: m + l)),
    ("L_minus_log", "L was m − log(l)", "the sign in L: exp(m) · l is the sum of all exp(S)", _L(lambda p, L, m, l: m - l.log())),
    ("L_negative", "L was log(l) − m", "the sign in L: m + log(l)", _L(lambda p, L, m, l: l.log() - m)),
    ("L_times_log", "L was m · log(l)", "L: the two are added", _L(lambda p, L, m, l: m * l.log())),
    ("L_base_2", "L was taken to base 2", "the logarithm: L is the natural one", _L(lambda p, L, m, l: L / LN2)),
    ("L_log2_of_l",
     "in L the maximum is natural, but the logarithm of l was taken to base 2", "the logarithm of l: the natural one",
     _L(lambda p, L, m, l: m + l.log2())),
    ("L_log10", "in L the logarithm of l was taken to base 10", "the logarithm: the natural one",
     _L(lambda p, L, m, l: m + l.log10())),
    ("L_log1p", "in L log(1 + l) was taken", "the logarithm of l itself", _L(lambda p, L, m, l: m + l.log1p())),
    ("L_is_sum", "L was the sum exp(m) · l, without its logarithm", "L: it is a logarithm",
     _L(lambda p, L, m, l: L.exp())),
    ("L_not_scaled", "L was made from scores that were not multiplied by scale", "the scores that L is made from",
     lambda p: {"L": p.forward(S=p.S0)["L"]}),
    ("L_scaled", "L was multiplied by scale once more", "L: the scores in it are scaled already",
     _L(lambda p, L, m, l: L * p.scale)),
    ("L_of_weights", "L was made after l had become 1: log of the sum of weights that are normalised already",
     "the order: L before O / l",
     _L(lambda p, L, m, l: m)),
]


def _table():
    for name, what, factor in SCALES:
        look = "S: the factor of Q Kᵀ, wherever it comes in"
        yield Alternative(name, what, look, lambda p, f=factor: None if f(p) is None else p.forward(S=p.S0 * f(p)))
    for name, what, look, visible in MASKS:
        yield Alternative(name, what, look, _causal(lambda p, v=visible: p.forward(visible=v(p))))
    for name, what, look, end in ENDS:
        blocks = _causal_blocks(end)
        yield Alternative(name, what, look, lambda p, b=blocks: None if (v := b(p)) is None else p.forward(visible=v))
    for name, what, look, visible, holds in KEYS:
        holds = holds or (lambda p: p.B_c and p.B_c < p.N_k)
        yield Alternative(name, what, look, _where(holds, lambda p, v=visible: p.forward(visible=p.within(v(p)))))
    for name, what, look, make in OTHERS:
        yield Alternative(name, what, look, make)


ATTENTION = list(_table())
