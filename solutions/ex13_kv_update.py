"""ex13_kv_update · a cache that grows

Chapter 13 · difficulty 2 of 5 · 15 minutes

Each decode step brings N_new new tokens for each sequence of the batch, usually one. Their keys and values are put into
the caches behind those that are there, and then attended to with them. The sequences of a batch are not equally long.

    K_cache (B, H_kv, N_max, d)   V_cache (B, H_kv, N_max, d_v)   lengths (B,), whole numbers: how many keys sequence b
                                  has
    K_new (B, H_kv, N_new, d)     V_new (B, H_kv, N_new, d_v)

The caches are changed in place: whoever holds them sees the new keys. The new lengths are returned, a tensor of the
same dtype as `lengths`, which itself stays as it was. Everything else in the caches stays, too, also behind the new
keys: there may be anything. There is room for the new tokens. Caches and new tokens are float32, lengths int32 or
int64, and no size is 0.

Not allowed: changing K_new, V_new or lengths, the finished function from flashlab or solutions/.

Hint: a sequence with n keys has them in the places 0, ..., n − 1. Which places are the new ones?
"""

import torch


def append(K_cache, V_cache, K_new, V_new, lengths):
    """Puts the new keys and values into the caches, in place; returns the new lengths (B,)."""
    # >>> your turn: write the new tokens of each sequence to their places, return the new lengths
    N_new = K_new.shape[2]
    for b, n in enumerate(lengths.tolist()):
        K_cache[b, :, n:n + N_new] = K_new[b]
        V_cache[b, :, n:n + N_new] = V_new[b]
    return lengths + N_new
    # <<<
