"""ex15_generate_step · new tokens, old keys

Chapter 15 · difficulty 3 of 5 · 25 minutes

A model that writes keeps the keys and values of the tokens so far. `length` tokens are in the cache. Now n more
arrive at once: a piece of the prompt, or only the token that was chosen last. Compute one layer's attention for them.

    Q        (H_q, n, d)          queries of the new tokens, not yet rotated
    K, V     (H_kv, n, d)         their keys, not yet rotated, and values
    K_cache  (H_kv, longest, d)   rows 0 to length − 1: keys of the tokens so far, as they are after the rotation
    V_cache  (H_kv, longest, d)   the same for values. The other rows hold anything

- The token after `length` others has the position `length`, since the first one has 0. rotate(X, positions) turns each
  row of X (H, n, d) by its position; queries and keys are rotated, values never.
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
    # your turn: positions, cache, scores, mask, O
    raise NotImplementedError("ex15_generate_step: positions, cache, scores, mask, O")
