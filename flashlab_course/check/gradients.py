"""The backward of attention computed wrongly on purpose, in float64: what a wrong dQ, dK or dV is held against.

P is made from L, as the exercises do: P = exp(S − L), dS = P∘(dP − D), and L and D are those of the right forward.
"""

import math

import torch

from flashlab_course.check.alternatives import ENDS, KEYS, MASKS, Alternative, Problem

inf = float("inf")
LN2 = math.log(2)


class Backward(Problem):
    """A Problem with dO, and the L and D of the right forward."""

    def __init__(self, inputs):
        super().__init__(inputs)
        self.dO = inputs["dO"].double()
        P, self.L, *_ = self.weights()
        self.D = (self.dO * (P @ self.V)).sum(-1)

    def table(self):
        return GRADIENTS

    def P(self, S=None, visible=None):
        S = (self.S if S is None else S).masked_fill(~(self.visible if visible is None else visible), -inf)
        return torch.exp(S - self.L.masked_fill(self.L == -inf, 0)[..., None])

    def gradients(self, P=None, dS=None, dP=None, D=None, scale=None, **of_P):
        """{dQ, dK, dV}; what is given takes the place of what is right."""
        P = self.P(**of_P) if P is None else P
        dP = self.dO @ self.V.mT if dP is None else dP
        dS = P * (dP - (self.D if D is None else D)[..., None]) if dS is None else dS
        scale = self.scale if scale is None else scale
        return {"dQ": scale * dS @ self.K, "dK": self.of_keys(scale * dS.mT @ self.Q), "dV": self.of_keys(P.mT @ self.dO)}

    def of_keys(self, T):
        """The sum over the query heads that share a key head."""
        return T if self.group == 1 else T.unflatten(-3, (-1, self.group)).sum(-3)

    def dS(self):
        return self.P() * (self.dO @ self.V.mT - self.D[..., None])


def _D_of_tiles(p, size, dim):
    """The row sums of P∘dP of each tile alone."""
    PdP = p.P() * (p.dO @ p.V.mT)
    parts = [part.sum(-1, keepdim=True).expand_as(part) for part in PdP.split(size, dim)]
    return p.P() * (p.dO @ p.V.mT - torch.cat(parts, dim))


def _softmax_of_tiles(p):
    tiles = p.S.masked_fill(~p.visible, -inf).split(p.B_c, -1)
    return torch.cat([torch.softmax(S, -1).nan_to_num(0) for S in tiles], -1)


def _only(make, *names):
    return lambda p: {name: T for name, T in make(p).items() if name in names}


def _rows(keep):
    """Only these queries add to dK and dV."""
    def make(p):
        if not p.B_r or p.N_q <= p.B_r:
            return None
        kept = keep(p)
        P, dS = p.P() * kept, p.dS() * kept
        return {"dK": p.of_keys(p.scale * dS.mT @ p.Q), "dV": p.of_keys(P.mT @ p.dO)}
    return make


def _head(choose):
    """Only some of the query heads of a group add to dK and dV."""
    def make(p):
        if p.group == 1:
            return None
        parts = {"dK": p.scale * p.dS().mT @ p.Q, "dV": p.P().mT @ p.dO}
        return {name: choose(T.unflatten(-3, (-1, p.group))) for name, T in parts.items()}
    return make


def _starts(start):
    """A causal loop over query blocks that starts at block ⌊start / B_r⌋; start (p, j) in queries."""
    def make(p):
        if not (p.causal and p.B_r and p.B_c):
            return None
        first = torch.as_tensor(start(p, p.keys // p.B_c)).clamp_min(0) // p.B_r * p.B_r
        return p.gradients(visible=p.within(p.queries >= first))
    return make


OTHERS = [
    ("no_D", "D was left out: dS was P∘dP", "dS: P∘(dP − D)", lambda p: p.gradients(D=p.D * 0)),
    ("D_added", "D was added, not subtracted", "dS: P∘(dP − D)", lambda p: p.gradients(D=-p.D)),
    ("D_twice", "D was subtracted twice", "dS: P∘(dP − D)", lambda p: p.gradients(D=2 * p.D)),
    ("D_outside", "D was subtracted after the product with P: P∘dP − D", "dS: P∘(dP − D)",
     lambda p: p.gradients(dS=p.P() * (p.dO @ p.V.mT) - p.D[..., None])),
    ("dS_negative", "dS had the wrong sign: P∘(D − dP)", "dS: P∘(dP − D)", lambda p: p.gradients(dS=-p.dS())),
    ("P_missing", "dP − D was not multiplied by P", "dS: P∘(dP − D)",
     lambda p: p.gradients(dS=(p.dO @ p.V.mT - p.D[..., None]) * p.visible)),
    ("dS_is_dP", "dP was used for dS: the gradient never went through the softmax", "dS: P∘(dP − D)",
     lambda p: p.gradients(dS=p.dO @ p.V.mT * p.visible)),
    ("P_for_dS", "P was used for dS", "what reaches Q and K has to go through dS", lambda p: p.gradients(dS=p.P())),
    ("P_twice", "dS was multiplied by P twice", "dS: P∘(dP − D)", lambda p: p.gradients(dS=p.P() * p.dS())),
    ("diagonal_only", "only the diagonal of the softmax's Jacobian was used: P∘(1 − P)∘dP", "dS: P∘(dP − D)",
     lambda p: p.gradients(dS=p.P() * (1 - p.P()) * (p.dO @ p.V.mT))),
    ("D_of_tile", "D was the row sum of P∘dP of each key block alone", "D: its sum runs over all keys; it is given",
     lambda p: p.gradients(dS=_D_of_tiles(p, p.B_c, -1)) if p.B_c and p.N_k > p.B_c else None),
    ("dV_of_dS", "dV was made from dS, not from P", "O = P V: the factor next to V is P",
     lambda p: {"dV": p.of_keys(p.dS().mT @ p.dO)}),
    ("dV_scaled", "dV was multiplied by scale, though only S has that factor", "dV = Pᵀ dO: no scale in it",
     lambda p: {"dV": p.scale * p.gradients()["dV"]}),
    ("K_for_V", "dP was made from K, not from V", "O = P V: the factor next to P is V",
     lambda p: p.gradients(dP=p.dO @ p.K.mT) if p.K.shape == p.V.shape else None),
    ("Q_for_dO", "Q was used where dO belongs", "dV = Pᵀ dO",
     lambda p: {"dV": p.of_keys(p.P().mT @ p.Q)} if p.Q.shape == p.dO.shape else None),
    ("dO_for_Q", "dO was used where Q belongs", "dK = scale · dSᵀ Q: the factor next to K is Q",
     lambda p: {"dK": p.of_keys(p.scale * p.dS().mT @ p.dO)} if p.Q.shape == p.dO.shape else None),
    ("V_for_K", "V was used where K belongs", "dQ = scale · dS K: the factor next to Q is K",
     lambda p: {"dQ": p.scale * p.dS() @ p.V} if p.K.shape == p.V.shape else None),
    ("Q_for_K", "Q was used where K belongs", "dQ = scale · dS K: the factor next to Q is K",
     lambda p: {"dQ": p.scale * p.dS() @ p.Q} if p.Q.shape == p.K.shape else None),
    ("dS_not_transposed", "dS was not transposed for dK", "dK = scale · dSᵀ Q",
     lambda p: {"dK": p.of_keys(p.scale * p.dS() @ p.Q)} if p.N_q == p.N_k else None),
    ("P_not_transposed", "P was not transposed for dV", "dV = Pᵀ dO", lambda p: {"dV": p.of_keys(p.P() @ p.dO)}
     if p.N_q == p.N_k else None),
    ("without_L", "P was exp(S): L was not subtracted", "the exponent: S − L", lambda p: p.gradients(P=p.S.exp() * p.visible)),
    ("L_along_keys", "L was subtracted along the wrong axis", "L in the exponent: one number for each query",
     lambda p: p.gradients(P=torch.exp(p.S - p.L[..., None, :]) * p.visible) if p.N_q == p.N_k else None),
    ("D_along_keys", "D was subtracted along the wrong axis", "D: one number for each query",
     lambda p: p.gradients(dS=p.P() * (p.dO @ p.V.mT - p.D[..., None, :])) if p.N_q == p.N_k else None),
    ("L_added", "L was added in the exponent, not subtracted", "the exponent: S − L",
     lambda p: p.gradients(P=torch.exp(p.S + p.L.masked_fill(p.L == -inf, 0)[..., None]) * p.visible)),
    ("L_not_for_the_scale", "scale multiplied L as well: the exponent was (Q Kᵀ − L) · scale", "the exponent: scale · Q Kᵀ − L",
     lambda p: p.gradients(P=torch.exp((p.S0 - p.L.masked_fill(p.L == -inf, 0)[..., None]) * p.scale) * p.visible)),
    ("base_2", "P was a power of 2, 2^(S − L), where S and L are natural", "the exponential: L is a natural logarithm",
     lambda p: p.gradients(P=p.P() ** LN2)),
    ("base_2_scores",
     "P was 2^(S · log2(e) − L): the scores were taken to base 2, L was not", "the exponent: S and L in the same base",
     lambda p: p.gradients(P=torch.exp2(p.S / LN2 - p.L.masked_fill(p.L == -inf, 0)[..., None]) * p.visible)),
    ("softmax_of_tile", "P was the softmax of each key block alone", "what normalises P: L belongs to all keys",
     lambda p: p.gradients(P=_softmax_of_tiles(p)) if p.B_c and p.N_k > p.B_c else None),
    ("scale_missing_in_S", "the recomputed scores were not multiplied by scale", "P has to be the forward's P",
     lambda p: p.gradients(S=p.S0)),
    ("scale_missing", "scale was left out everywhere: in the recomputed scores and in the gradients",
     "each place where scale belongs",
     lambda p: p.gradients(S=p.S0, scale=1.0)),
    ("scale_missing_in_gradients", "the gradients were not multiplied by scale",
     "S = scale · Q Kᵀ: the factor stands in its gradients",
     lambda p: p.gradients(scale=1.0)),
    ("scale_twice", "the gradients were multiplied by scale twice",
     "each place where scale appears: one in S, one in the gradients",
     lambda p: p.gradients(scale=p.scale**2)),
    ("scale_twice_in_S", "the recomputed scores were multiplied by scale twice", "P has to be the forward's P",
     lambda p: p.gradients(S=p.S * p.scale)),
    ("first_head_of_group", "only the first query head of each group was counted",
     "dK and dV are sums over all the query heads that read these keys", _head(lambda T: T[..., 0, :, :])),
    ("last_head_of_group", "only the last query head of each group was counted",
     "dK and dV are sums over all the query heads that read these keys", _head(lambda T: T[..., -1, :, :])),
    ("heads_averaged", "the query heads of a group were averaged, not added", "dK and dV are sums over the query heads",
     _head(lambda T: T.mean(-3))),
    ("last_query_block_only", "only the last query block counted", "dK and dV: sums over all query blocks",
     _rows(lambda p: p.queries // p.B_r == (p.N_q - 1) // p.B_r)),
    ("first_query_block_only", "only the first query block counted", "dK and dV: sums over all query blocks",
     _rows(lambda p: p.queries < p.B_r)),
    ("tail_dropped", "the last, short query block was left out", "the number of query blocks: ⌈N_q / B_r⌉",
     _rows(lambda p: p.queries < p.N_q // p.B_r * p.B_r)),
    ("last_query_left_out", "the last query was left out", "which queries count: up to N_q − 1",
     _rows(lambda p: p.queries < p.N_q - 1)),
    ("start_without_shift", "the query blocks started as if N_q and N_k were the same: the shift N_k − N_q was left out",
     "where the query blocks start: key k is seen by the queries from k − (N_k − N_q) on", _starts(lambda p, j: j * p.B_c)),
    ("start_shift_reversed", "the query blocks started with the shift N_k − N_q of the wrong sign",
     "where the query blocks start: key k is seen by the queries from k − (N_k − N_q) on",
     _starts(lambda p, j: j * p.B_c + p.shift)),
    ("start_by_last_key", "the query blocks started where the block's last key is first seen, not its first",
     "where the query blocks start: the first key of the block is seen the earliest",
     _starts(lambda p, j: (j + 1) * p.B_c - 1 - p.shift)),
    ("start_one_block_late", "the query blocks started one block too late",
     "where the query blocks start: the block on the diagonal belongs to it", _starts(lambda p, j: j * p.B_c - p.shift + p.B_r)),
]


def _table():
    for name, what, look, make in OTHERS:
        yield Alternative(name, what, look, make)
    for name, what, look, visible in MASKS:
        yield Alternative(name, what, look, lambda p, v=visible: p.gradients(visible=v(p)) if p.causal else None)
    for name, what, look, visible, holds in KEYS:
        yield Alternative(name, what, look, _keys(visible, holds))
    for name, what, look, end in ENDS:
        yield Alternative(name, what, look, _end(end))


def _keys(visible, holds):
    def make(p):
        if not (holds(p) if holds else p.B_c and p.B_c < p.N_k):
            return None
        return _only(lambda p: p.gradients(visible=p.within(visible(p))), "dQ")(p)
    return make


def _end(end):
    def make(p):
        if not (p.causal and p.B_r and p.B_c):
            return None
        last = torch.as_tensor(end(p, p.blocks()))
        return _only(lambda p: p.gradients(visible=p.within(p.keys < -(-last // p.B_c) * p.B_c)), "dQ")(p)
    return make


GRADIENTS = list(_table())
