"""ex14_ring_step · one step of the ring, for all ranks

Chapter 14 · difficulty 3 of 5 · 25 minutes

R ranks share a sequence: rank r keeps queries r·n to (r+1)·n − 1. Each also holds one block of n keys and values, and
the whole number owner[r] says whose block that is. In a step every rank attends to the block that it holds, takes the
result into its O and L, and passes the block, and its owner's number, on to rank r + 1, the last rank to rank 0. Here
all ranks are in one process, as the first dimension:

    Q (R, n, d)  K (R, n, d)  V (R, n, d_v)  owner (R,)  O (R, n, d_v)  L (R, n)   ->   K, V, owner, O, L after the step

O is finished: the output over the keys met so far, already divided. L is their natural-log logsumexp. A query that has
met no key it may see has O = 0 and L = -inf, before the step or after it. `attend`, which is given, hides the keys that
come after a query and returns such a finished pair for one rank and one block. Scores lie between −1000 and 1000.
Tensors are float32, and no size is 0.

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
    # your turn: every rank attends to the block that it holds, merges by L, passes the block on to rank r + 1
    raise NotImplementedError("ex14_ring_step: every rank attends to the block that it holds, merges by L, passes the block on to rank r + 1")
