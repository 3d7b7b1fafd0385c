# kind: one mistake
# what: rotates the keys read from the cache by their positions, although they are rotated there already; they should be used as they are
# shows: any key at a position above 0, i.e. length + n >= 2 with two keys to choose from

"""ex15_generate_step · new tokens, old keys

Chapter 15 · difficulty 3 of 5 · 25 minutes

A model that writes keeps the keys and values of the tokens so far. `length` tokens are in the cache; now n more come at once: a
piece of the prompt, or a single one, the last that was chosen. This is the attention of one layer for them.

    Q        (H_q, n, d)          queries of the new tokens, not yet rotated
    K, V     (H_kv, n, d)         their keys, not yet rotated, and values
    K_cache  (H_kv, longest, d)   rows 0 to length − 1: keys of the tokens so far, as they are after the rotation
    V_cache  (H_kv, longest, d)   the same for values. The other rows hold anything

- The token after `length` others has the position `length`, since the first one has 0. rotate(X, positions) turns each row of
  X (H, n, d) by its position; queries and keys are rotated, values never.
- The new keys and values go into the cache, behind those that are there.
- A new token sees all tokens so far, itself, and none after it. Scores are divided by √d.
- H_q is a multiple of H_kv: each key head serves H_q / H_kv query heads, those that stand next to each other.

Return O (H_q, n, d). Change the caches in place; nothing else may change. There is always room: length + n ≤ longest.
Scores lie between −1000 and 1000. Tensors are float32; length is a Python int, 0 or more; no other size is 0.

Not allowed: the finished function from flashlab_course.gpt, flashlab.flash_attention, or solutions/.

Hint: write down the positions of the new tokens, and which columns of the scores each of them may see.
"""

import torch


def rotate(X, positions):
    """X (H, n, d) with each row turned by its position: columns m and m + d/2 are a pair."""
    half = X.shape[-1] // 2
    angle = positions[:, None].to(X.dtype) * 10.0 ** (-torch.arange(half, dtype=X.dtype) / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = X[..., :half], X[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def generate_step(Q, K, V, K_cache, V_cache, length):
    """O (H_q, n, d) of n new tokens, whose keys and values are in the cache afterwards."""
    H_q, n, d = Q.shape
    group = H_q // K.shape[0]
    pos = torch.arange(length, length + n)
    K_cache[:, length:length + n] = rotate(K, pos)
    V_cache[:, length:length + n] = V
    # all keys and values so far, each turned by its own position
    all_pos = torch.arange(length + n)
    keys = rotate(K_cache[:, :length + n], all_pos).repeat_interleave(group, dim=0)
    values = V_cache[:, :length + n].repeat_interleave(group, dim=0)
    S = rotate(Q, pos) @ keys.transpose(1, 2) / d**0.5
    mask = torch.ones(n, length + n, dtype=torch.bool).tril(length)
    S = S.masked_fill(~mask, -torch.inf)
    return torch.softmax(S, dim=-1) @ values
