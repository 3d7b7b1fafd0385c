# kind: one mistake
# what: the mask compares the query's index with the key's index inside its block (0 ... B_c-1); the block's start, j·B_c, is missing
# shows: two or more key blocks (B_c < N): early queries see keys of later blocks

"""ex06_published_line · find the bugs in the published lines

Chapter 06 · difficulty 3 of 5 · 25 minutes

Algorithms get copied by hand, and copies go wrong. Below is causal attention by key blocks, N_q = N_k = N, with mistakes
that stand in widely read texts: one in a paper's first version, the others in notes made from it. Four lines are wrong.
Write the function as it should be: these lines repaired, or lines of your own that give the same O and L block by block.

     1   O = 0, l = 0, m = −∞
         for each key block j = 0, 1, ...
     2       S = Q K_jᵀ · scale
     3       S = −∞ where (query's index) > (key's index)
     4       m_new = max(m, rowmax(S))
     5       P = exp(S − m_new)
     6       l = l + exp(m − m_new) + rowsum(P)
     7       O = diag(exp(m − m_new))⁻¹ · O + P V_j
     8       O = diag(l)⁻¹ · O
     9       m = m_new
    10   O = diag(l)⁻¹ · O
    11   L = m + log l

    Q (N, d)   K (N, d)   V (N, d_v)   ->   O (N, d_v), L (N,)
Scores lie between −1000 and 1000; scale is any finite number.
Tensors are float32, which is exact enough for the sums too, and no size is 0.

Not allowed: changing the inputs, the N by N scores at once (unless B_c is N or more), a library's attention
(F.scaled_dot_product_attention), the finished function from flashlab or solutions/.

Hint: take N = 1 and B_c = 1 and go through the lines with numbers. Then two key blocks, where the second one has the larger score.
"""

import torch

inf = float("inf")


def split_into_blocks(X, B_c):
    return [X[start:start + B_c] for start in range(0, len(X), B_c)]


def build_causal_mask(S):
    """True where the key comes after the query."""
    n_queries, n_keys = S.shape
    query_index = torch.arange(n_queries).view(-1, 1)
    key_index = torch.arange(n_keys).view(1, -1)
    return key_index > query_index


def compute_scores(Q, K_j, scale):
    S = Q @ K_j.T * scale
    return S.masked_fill(build_causal_mask(S), -inf)


def update(state, S, V_j):
    m_new = torch.maximum(state["m"], S.max(dim=-1).values)
    alpha = torch.exp(state["m"] - m_new)
    P = torch.exp(S - m_new[:, None])
    return {
        "m": m_new,
        "l": state["l"] * alpha + P.sum(dim=-1),
        "O": state["O"] * alpha[:, None] + P @ V_j,
    }


def finish(state):
    return state["O"] / state["l"][:, None], state["m"] + torch.log(state["l"])


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N = Q.shape[0]
    state = {"m": torch.full((N,), -inf), "l": torch.zeros(N), "O": torch.zeros(N, V.shape[1])}
    for K_j, V_j in zip(split_into_blocks(K, B_c), split_into_blocks(V, B_c)):
        state = update(state, compute_scores(Q, K_j, scale), V_j)
    return finish(state)
