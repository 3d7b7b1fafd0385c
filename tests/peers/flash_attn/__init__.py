"""The functions of the package flash_attn, over flashlab's operators: what flash-attention's own tests import instead.

They take (B, N, H, d) where flashlab takes (B, H, N, d). Modules that are no attention, such as
flash_attn.bert_padding, come from the checkout, whose folder `tests/peers/plugin.py` adds to this package's path. What
flashlab has not got is skipped, in words.
"""

import functools

import pytest
import torch

from flashlab import flash_attention, flash_attention_decode, flash_attention_varlen

MASK_LIMIT = 2**28        # of entries: PyTorch draws the mask in int64, a dozen tensors of this size at a time


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False,
):
    refuse(softcap=softcap, alibi_slopes=alibi_slopes)
    options = dict(causal=causal, window=limits(window_size), scale=softmax_scale)
    seed = draw(dropout_p)
    Q, K, V = (T.transpose(1, 2) for T in (q, k, v))
    O, L = flash_attention(Q, K, V, **options, dropout_p=dropout_p, seed=seed, deterministic=deterministic,
                           return_lse=True)
    if not return_attn_probs:
        return O.transpose(1, 2)
    return O.transpose(1, 2), L, probs(Q, K, dropout_p, seed, **options) if dropout_p > 0 else None


def flash_attn_kvpacked_func(q, kv, *args, **options):
    return flash_attn_func(q, *kv.unbind(2), *args, **options)


def flash_attn_qkvpacked_func(qkv, *args, **options):
    return flash_attn_func(*qkv.unbind(2), *args, **options)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
    block_table=None,
):
    refuse(softcap=softcap, alibi_slopes=alibi_slopes, block_table=block_table)
    options = dict(causal=causal, window=limits(window_size), scale=softmax_scale)
    seed = draw(dropout_p)
    O, L = flash_attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **options, dropout_p=dropout_p, seed=seed,
                                  deterministic=deterministic, return_lse=True)
    if not return_attn_probs:
        return O
    if dropout_p == 0:
        return O, L, None
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    S = q.new_zeros(len(ends_q) - 1, q.shape[1], max_seqlen_q, max_seqlen_k, dtype=torch.float32)
    for b in range(len(S)):
        queries, keys = slice(*ends_q[b : b + 2]), slice(*ends_k[b : b + 2])
        Q, K = (T.transpose(0, 1)[None] for T in (q[queries], k[keys]))
        part = probs(Q, K, dropout_p, seed, among=(len(q), len(k)), first=queries.start, **options)
        S[b, :, : part.shape[2], : part.shape[3]] = part[0]
    return O, L, S


def flash_attn_varlen_kvpacked_func(q, kv, *args, **options):
    return flash_attn_varlen_func(q, *kv.unbind(1), *args, **options)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *args, **options):
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **options)


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False,
):
    refuse(softcap=softcap, alibi_slopes=alibi_slopes, rotary_cos=rotary_cos, cache_leftpad=cache_leftpad,
           cache_batch_idx=cache_batch_idx)
    if q.shape[1] > 1 and not causal:
        pytest.skip("several queries before a cache, not causal: flash_attention_decode always is")
    if k is not None and k.shape[1] != q.shape[1]:
        pytest.skip("other numbers of new keys and of queries: flash_attention_decode wants the same")
    if not isinstance(cache_seqlens, torch.Tensor):
        N = k_cache.shape[1] if cache_seqlens is None else cache_seqlens
        cache_seqlens = torch.full((len(q),), N, dtype=torch.int32, device=q.device)
    Q, K, V = (T.transpose(1, 2) for T in (q, k_cache, v_cache))
    K_new, V_new = (None, None) if k is None else (k.transpose(1, 2), v.transpose(1, 2))
    O, L = flash_attention_decode(Q, K, V, cache_seqlens, block_table=block_table, K_new=K_new, V_new=V_new,
                                  scale=softmax_scale, window=limits(window_size), splits=num_splits or None,
                                  return_lse=True)
    return (O.transpose(1, 2), L) if return_softmax_lse else O.transpose(1, 2)


# ---- what flashlab has not got

REFUSED = {
    "softcap": "capped scores",
    "alibi_slopes": "ALiBi",
    "block_table": "a paged cache before packed queries",
    "rotary_cos": "rotary positions inside the attention",
    "cache_leftpad": "padding on the left of a cache",
    "cache_batch_idx": "an index into a cache's batch",
}


def refuse(**options):
    for name, value in options.items():
        if isinstance(value, torch.Tensor) or value:
            pytest.skip(f"flashlab has not got {REFUSED[name]}")


# ---- windows; dropout, which these tests look at through the third result

def limits(window_size):
    """A tensor of two numbers, a tuple, or (-1, -1) for none."""
    return tuple(map(int, window_size))


def draw(dropout_p):
    """From the generator that torch.random.manual_seed sets."""
    return int(torch.randint(2**63 - 1, ())) if dropout_p > 0 else None


@torch.no_grad()
def probs(Q, K, dropout_p, seed, *, causal, window, scale, among=None, first=0):
    """P as these tests want it: exp(S - the row's largest), float32, negative where the weight was dropped.

    among: the rows and keys of all packed sequences, of which these queries begin at `first`. The signs are flashlab's
           draws; the sizes follow from the formula, since flashlab's kernels store none
    """
    N_q, N_k = Q.shape[2], K.shape[2]
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    S = Q.float() @ K.float().repeat_interleave(Q.shape[1] // K.shape[1], 1).mT * scale
    left, right = window[0], 0 if causal else window[1]
    ahead = torch.arange(N_k, device=Q.device) - torch.arange(N_q, device=Q.device)[:, None] - (N_k - N_q)
    hidden = (ahead > right) & (right >= 0) | (ahead < -left) & (left >= 0)
    S = S.masked_fill(hidden, -torch.inf)
    P = (S - S.amax(-1, keepdim=True)).exp().masked_fill(hidden, 0)
    keep = keep_mask(len(Q), Q.shape[1], *(among or (N_q, N_k)), dropout_p, seed, Q.device)
    return torch.where(keep[:, :, first : first + N_q, :N_k], P, -P)


@functools.lru_cache(maxsize=1)
def keep_mask(B, H, N_q, N_k, dropout_p, seed, device):
    from flashlab.kernels.dropout import dropout_keep_mask

    if B * H * N_q * N_k > MASK_LIMIT:
        pytest.skip(f"a dropout mask of more than {MASK_LIMIT} entries, too many to draw again in PyTorch")
    with device:
        return dropout_keep_mask(B, H, N_q, N_k, dropout_p, seed)
