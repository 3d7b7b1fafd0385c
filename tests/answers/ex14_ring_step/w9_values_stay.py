# kind: two mistakes
# what: (1) V is not passed on, only K and owner are; (2) the new L is the larger of the two, should be log(exp(L) + exp(L_new))
# shows: (1) R > 1; (2) queries that have met keys before and meet more in this step

"""ex14_ring_step · one step of the ring, for all ranks

Chapter 14 · difficulty 3 of 5 · 25 minutes

R ranks share a sequence: rank r keeps queries r·n to (r+1)·n − 1. Each also holds one block of n keys and values, and owner[r]
says whose block that is. In a step every rank attends to the block that it holds, takes the result into its O and L, and
passes the block on to rank r + 1, the last rank to rank 0. Here all ranks are in one process, as the first dimension:

    Q (R, n, d)   K (R, n, d)   V (R, n, d_v)   owner (R,)   O (R, n, d_v)   L (R, n)   ->   K, V, owner, O, L after the step

O is finished: the output over the keys met so far, already divided. L is their natural-log logsumexp. A query that has met no
key it may see has O = 0 and L = -inf, before the step or after it. `attend`, which is given, hides the keys that come after
a query and returns such a finished pair for one rank and one block.
Scores lie between −1000 and 1000. Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: exp(L) is the sum of exponentials that O was divided by. What share of the two sums together is the old one's?
"""

import torch

inf = float("inf")


def attend(Q, K, V, rank, owner):
    """Causal attention of one rank's queries (n, d) to one block of keys (n, d): O (n, d_v), L (n,)."""
    n, d = Q.shape
    after = torch.arange(n) + owner * n > (torch.arange(n) + rank * n)[:, None]        # (n, n)  key after query
    S = (Q @ K.T * d**-0.5).masked_fill(after, -inf)                                   # (n, n)
    L = torch.logsumexp(S, -1)                                                         # (n,)
    P = torch.exp(S - L.masked_fill(L == -inf, 0)[:, None])                            # (n, n)
    return P @ V, L



def ring_step(Q, K, V, owner, O, L):
    """(K, V, owner, O, L) after one step of all ranks."""
    R = Q.shape[0]
    O2 = O.clone()
    L2 = L.clone()
    for r in range(R):
        O_j, L_j = attend(Q[r], K[r], V[r], r, owner[r])
        m = torch.maximum(L[r], L_j)
        safe = torch.where(torch.isinf(m), 0.0, m)
        a = torch.exp(L[r] - safe)
        b = torch.exp(L_j - safe)
        s = (a + b).clamp(min=1e-30)
        O2[r] = (a / s)[:, None] * O[r] + (b / s)[:, None] * O_j
        L2[r] = m

    K2 = torch.empty_like(K)
    owner2 = torch.empty_like(owner)
    for r in range(R):
        to = r + 1 if r + 1 < R else 0
        K2[to] = K[r]
        owner2[to] = owner[r]
    return K2, V, owner2, O2, L2
