# kind: right
# what: JAX manner: a pure step function takes a carry (O, l, m) and a block and returns the next carry
# shows: no tensor is wider than B_c or d_v; everything is in units of the running maximum, one division at the end
"""ex04_softmax_star · repair the tile-wise softmax*

Chapter 04 · difficulty 3 of 5 · 25 minutes

This is attention by key blocks, and it is wrong: each tile is shifted by its own maximum, and the tiles are added up as if
they were in the same units.

    O = 0
    for each key block j:
        S_j = Q K_jᵀ / √d
        O   = O + exp(S_j − rowmax(S_j)) V_j            # softmax*
    return O

Repair it. Keep the loop over blocks of at most B_c keys: no tensor of N_k columns may appear.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)
Scores lie between −1000 and 1000.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a tensor of N_q by N_k, a library's attention (F.scaled_dot_product_attention), the
finished function from flashlab or solutions/.

Hint: two things are missing. One concerns every tile but the first, the other a single tile too.
"""

import torch

inf = float("inf")


def attention_by_tiles(Q, K, V, B_c):
    """softmax(Q Kᵀ / √d) V, at most B_c keys at a time."""
    scale = 1.0 / Q.shape[-1] ** 0.5

    def step(carry, kv):
        O, l, m = carry
        k, v = kv
        s = (Q @ k.T) * scale
        m_next = torch.maximum(m, s.amax(dim=1, keepdim=True))
        decay, p = torch.exp(m - m_next), torch.exp(s - m_next)
        return O * decay + p @ v, l * decay + p.sum(dim=1, keepdim=True), m_next

    N_q, d_v = Q.shape[0], V.shape[1]
    carry = torch.zeros(N_q, d_v), torch.zeros(N_q, 1), torch.full((N_q, 1), -inf)
    for kv in zip(K.split(B_c), V.split(B_c)):
        carry = step(carry, kv)
    O, l, _ = carry
    return O / l
