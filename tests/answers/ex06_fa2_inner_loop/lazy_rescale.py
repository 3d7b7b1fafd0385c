# kind: right
# what: the reference m is moved only where a row's maximum has grown by more than 4; in-place sums, V loaded first
"""ex06_fa2_inner_loop · one query block of FlashAttention-2"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Fills O[rows] and L[rows]."""
    q = load(Q, rows).to(L.dtype)
    q = q * scale
    acc = torch.zeros(q.shape[0], V.shape[1], dtype=L.dtype, device=Q.device)
    den = torch.zeros_like(acc[:, :1])
    ref = torch.full_like(den, -inf)
    for cols in tiles(K.shape[0], B_c):
        v = load(V, cols).to(L.dtype)
        k = load(K, cols).to(L.dtype)
        s = torch.matmul(q, k.transpose(0, 1))
        top = s.max(dim=1, keepdim=True).values
        new = torch.where(top > ref + 4, top, ref)
        shrink = (ref - new).exp()
        acc.mul_(shrink)
        den.mul_(shrink)
        s.sub_(new).exp_()
        den.add_(s.sum(1, keepdim=True))
        acc.addmm_(s, v)
        ref = new
    L_i = (ref + den.log()).squeeze(1)
    den.masked_fill_(den == 0, 1)
    store(L, rows, L_i)
    store(O, rows, acc / den)
