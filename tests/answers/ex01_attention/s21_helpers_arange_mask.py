# kind: right
# what: two helpers (who sees what; a softmax by hand that divides only where something was seen), mask by comparing two aranges
# shows: causal with N_q < N_k and N_q > N_k, rows without keys give 0/1 = 0, scale compared with None so 0 counts, mask after scale
"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

The three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. Where N_q ≠ N_k the last query is lined up with the last key: query i
sees the keys j ≤ i + N_k − N_q. A query that sees no key at all gets a row of zeros.
Scores lie between −1000 and 1000; scale is any finite number, 0 and negative ones too.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a library's attention (F.scaled_dot_product_attention), the finished function from
flashlab or solutions/.

Hint: set hidden scores to -inf before the softmax. torch.ones(...).triu(diagonal) marks everything from a diagonal on.
"""

import torch

inf = float("inf")


def visible(N_q, N_k, device):
    query = torch.arange(N_q, device=device)[:, None]
    key = torch.arange(N_k, device=device)[None, :]
    return key - (N_k - N_q) <= query


def softmax_of_visible(S, sees):
    S = torch.where(sees, S, torch.full_like(S, -inf))
    top = S.amax(dim=1, keepdim=True)
    top = torch.where(top == -inf, torch.zeros_like(top), top)        # nobody seen: -inf - 0 stays -inf, exp of it is 0
    E = torch.exp(S - top)
    total = E.sum(dim=1, keepdim=True)
    return E / torch.where(total == 0, torch.ones_like(total), total)


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    if scale is None:
        scale = 1 / d ** 0.5
    S = torch.mm(Q, K.t()) * scale
    if causal:
        sees = visible(N_q, N_k, Q.device)
    else:
        sees = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device)
    return torch.mm(softmax_of_visible(S, sees), V)
