"""Softmax in three passes, in two, in one; merging two halves; and attention that walks the keys one at a time.

A softmax state is (O, m, l): m the largest score seen, l the sum of exp(score − m), O the sum of exp(score − m)·value.
"""

import torch
from torch import inf

from flashlab.memory import kernel, load, store, tiles
from flashlab.validate import check_bool, check_positive, check_qkv, check_scale, describe


def softmax_three_pass(x, *, B=1):
    """softmax of a vector that is too long for the chip: a pass for the maximum, one for the sum, one for the result.

    Shapes:  x (N,) -> (N,); B elements are read at a time
    Traffic: reads 3·N, writes N   [elements]
    """
    _check(x, B)
    y = torch.empty_like(x)
    with kernel("softmax_three_pass", x=x, y=y):
        m = x.new_full((), -inf)
        for part in tiles(len(x), B):                      # pass 1
            m = torch.maximum(m, load(x, part).amax())
        l = x.new_zeros(())
        for part in tiles(len(x), B):                      # pass 2
            l = l + torch.exp(load(x, part) - m).sum()
        for part in tiles(len(x), B):                      # pass 3
            store(y, part, torch.exp(load(x, part) - m) / l)
    return y


def softmax_two_pass(x, *, B=1):
    """softmax of a vector with maximum and sum found together: when the maximum grows, the old sum is rescaled.

    Traffic: reads 2·N, writes N   [elements]
    Source:  Milakov and Gimelshein 2018, arXiv:1805.02867, Algorithm 3
    New:     against softmax_three_pass: the first two passes become one
    """
    _check(x, B)
    y = torch.empty_like(x)
    with kernel("softmax_two_pass", x=x, y=y):
        m = x.new_full((), -inf)
        l = x.new_zeros(())
        for part in tiles(len(x), B):                      # pass 1
            x_part = load(x, part)
            m_new = torch.maximum(m, x_part.amax())
            l = l * torch.exp(m - m_new) + torch.exp(x_part - m_new).sum()    # l was in units of exp(m)
            m = m_new
        for part in tiles(len(x), B):                      # pass 2
            store(y, part, torch.exp(load(x, part) - m) / l)
    return y


def softmax_weighted_sum(x, v, *, B=1):
    """softmax(x) · v in a single pass: the weights are never written down, so nothing has to be visited again.

    Shapes:  x (N,), v (N, d_v) -> (d_v,)
    Traffic: reads N + N·d_v, writes d_v   [elements]
    New:     against softmax_two_pass: the weighted sum is rescaled like l, and divided once at the end
    """
    _check(x, B)
    if not isinstance(v, torch.Tensor) or v.ndim != 2 or len(v) != len(x):
        raise ValueError(f"v must be (N, d_v) with N = {len(x)}, got {describe(v)}")
    y = v.new_empty(v.shape[1])
    with kernel("softmax_weighted_sum", x=x, v=v, y=y):
        m = x.new_full((), -inf)
        l = x.new_zeros(())
        o = v.new_zeros(v.shape[1])
        for part in tiles(len(x), B):
            x_part, v_part = load(x, part), load(v, part)
            m_new = torch.maximum(m, x_part.amax())
            alpha, p = torch.exp(m - m_new), torch.exp(x_part - m_new)
            l = alpha * l + p.sum()
            o = alpha * o + p @ v_part
            m = m_new
        store(y, slice(None), o / l)
    return y


def merge(state_a, state_b):
    """The softmax state of two sets of keys together, from the states of each. The order does not matter.

    Shapes:  each state (O (..., d_v) not yet divided by l, m (...), l (...)) -> the same
             a finished pair (O, L) is a state too: (O, L, 1)
    """
    (O_a, m_a, l_a), (O_b, m_b, l_b) = state_a, state_b
    if O_a.shape != O_b.shape or m_a.shape != m_b.shape:
        raise ValueError(f"the states must have equal shapes, got O {tuple(O_a.shape)} and {tuple(O_b.shape)}, "
                         f"m {tuple(m_a.shape)} and {tuple(m_b.shape)}")
    m_new = torch.maximum(m_a, m_b)                        # (...)
    m_safe = m_new.masked_fill(m_new == -inf, 0)           # (...)  neither side saw a key: -inf − -inf would be NaN
    alpha, beta = torch.exp(m_a - m_safe), torch.exp(m_b - m_safe)
    return alpha[..., None] * O_a + beta[..., None] * O_b, m_new, alpha * l_a + beta * l_b


def online_softmax_forward(Q, K, V, *, causal=False, scale=None):
    """Exact attention that never stores S: each query walks the keys one at a time.

    Traffic: reads N_q·d + N_q·N_k·(d + d_v), fewer if causal, writes N_q·(d_v + 1)   [elements]
    Source:  Rabe and Staats 2021, arXiv:2112.05682
    New:     against naive: no N_q x N_k matrix; but every query reads all keys and values again
    """
    check_qkv(Q, K, V)
    check_bool(causal=causal)
    scale = check_scale(scale, Q.shape[-1])
    acc = torch.float64 if Q.dtype == torch.float64 else torch.float32    # sums in 16 bits would lose the answer

    O = Q.new_empty(Q.shape[0], V.shape[-1])                                    # (N_q, d_v)
    L = Q.new_empty(Q.shape[0], dtype=acc)                                      # (N_q,)
    with kernel("online_softmax_forward", Q=Q, K=K, V=V, O=O, L=L):
        for row in tiles(Q.shape[0], 1):
            _program(Q, K, V, O, L, row, causal, scale)
    return O, L


def _program(Q, K, V, O, L, row, causal, scale):
    """One query from its first key to its last: its o, l and m never leave the chip."""
    q = load(Q, row).to(L.dtype)                                                    # (1, d)
    o = q.new_zeros(1, V.shape[-1])                                                 # (1, d_v)
    l = q.new_zeros(1)                                                              # (1,)
    m = q.new_full((1,), -inf)                                                      # (1,)  -inf: below any score

    seen = min(len(K), max(0, row.stop + len(K) - len(Q))) if causal else len(K)    # the last query sees every key
    for col in tiles(seen, 1):
        o, l, m = _step(q, o, l, m, load(K, col).to(L.dtype), load(V, col).to(L.dtype), scale)

    l_safe = l.masked_fill(l == 0, 1)                      # (1,)  no visible key: o stays 0
    store(O, row, o / l_safe[:, None])
    store(L, row, m + torch.log(l))                        # log 0 = -inf where no key is visible


def _step(q, o, l, m, k, v, scale):
    """Add one key to the running softmax of one query."""
    s = (q @ k.T * scale)[:, 0]                            # (1,)
    m_new = torch.maximum(m, s)                            # (1,)
    m_safe = m_new.masked_fill(m_new == -inf, 0)           # (1,)    no finite score yet: -inf − -inf would be NaN
    alpha = torch.exp(m - m_safe)                          # (1,)    0 the first time: m = -inf
    p = torch.exp(s - m_safe)                              # (1,)
    l = alpha * l + p                                      # (1,)
    o = alpha[:, None] * o + p[:, None] * v                # (1, d_v)  divided by l after the loop
    return o, l, m_new


def _check(x, B=1):
    if not isinstance(x, torch.Tensor) or x.ndim != 1 or not x.is_floating_point() or len(x) == 0:
        raise ValueError(f"x must be a vector of at least one floating-point number, got {describe(x)}")
    check_positive(B=B)
