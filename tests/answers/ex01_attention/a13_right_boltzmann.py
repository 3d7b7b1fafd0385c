# kind: right
# what: written as Boltzmann weights and a partition function; hidden scores are -inf after the scale, the shift of a row without keys is 0, and Z = 0 divides by 1
# shows: holds for scale None, 0 and negative, N_q < N_k and N_q > N_k (rows of zeros), scores up to 1000 in size; inputs are only read
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


def log_weights(Q, K, causal, beta):
    """beta * (q . k) for every pair, -inf for pairs that are forbidden."""
    S = torch.einsum("qd,kd->qk", Q, K) * beta
    if causal:
        n_q, n_k = S.shape
        query = torch.arange(n_q, device=S.device).unsqueeze(1)
        key = torch.arange(n_k, device=S.device).unsqueeze(0)
        allowed = key <= query + (n_k - n_q)
        S = torch.where(allowed, S, torch.full_like(S, -inf))
    return S


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        beta = Q.shape[1] ** -0.5
    else:
        beta = scale

    S = log_weights(Q, K, causal, beta)
    top = S.max(dim=1, keepdim=True).values
    top[top == -inf] = 0.0                       # a query without keys: any finite zero of the scale will do
    S -= top                                     # S is ours, not an input
    weights = S.exp_()
    Z = weights.sum(dim=1, keepdim=True)         # the partition function of each query
    Z[Z == 0] = 1.0
    return torch.einsum("qk,kv->qv", weights, V) / Z
