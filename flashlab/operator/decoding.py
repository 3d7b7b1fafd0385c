"""flash_attention_decode(): the public operator for generating text, a few new queries before a cache of keys.

It checks its arguments, writes new keys into the cache by `torch.ops.flashlab.cache_append`, and attends by
`torch.ops.flashlab.attention_decode`. Neither waits for the GPU, so that a CUDA graph can capture both.
"""

import torch

from flashlab import torch_internals, validate
from flashlab.kernels import plans
from flashlab.operator import torch_backend
from flashlab.operator.attention import BACKENDS, backend_for
from flashlab.operator.transforms import as_autocast, refuse_derivatives
from flashlab.triton_mode import check_device
from flashlab.validate import describe


def flash_attention_decode(
    Q, K_cache, V_cache, lengths, *, block_table=None, K_new=None, V_new=None, window=None, scale=None, splits=None,
    return_lse=False, backend="auto",
):
    """Exact attention of N_q new queries to the keys and values in a cache, for sequences of different lengths.

    Shapes:  Q (B, H_q, N_q, d), K_cache (B, H_kv, N_max, d), V_cache (B, H_kv, N_max, d_v) -> O (B, H_q, N_q, d_v) in
             Q's dtype; with return_lse also L, as flash_attention. Any strides; H_q a multiple of H_kv. N_q is small:
             1, or as many tokens as are verified at a time
    Lengths: (B,) int32, on Q's device. Sequence b has the keys 0 to lengths[b] - 1 of its cache; the new queries are
             its last N_q. What the cache holds behind them has no effect
    New:     K_new (B, H_kv, N_q, d) and V_new (B, H_kv, N_q, d_v) are first written into the cache, at lengths[b] to
             lengths[b] + N_q - 1, and lengths counts only the keys before them. The caller adds N_q to lengths
    Paged:   with block_table (B, max_pages), int32, K_cache is (pages, H_kv, page_size, d), V_cache likewise: key n of
             sequence b lies in page block_table[b, n // page_size], at n % page_size. N_max is max_pages * page_size
    Causal:  always, bottom-right aligned: new query i sees the keys up to lengths - N_q + i; if there are none, O = 0,
             L = -inf
    Window:  (left, right): query i sees `left` keys before its own, -1 for all; right adds nothing to causal
    Splits:  into how many chunks the keys of a head are cut; None: `splits.choose_splits` decides, by N_max and the GPU
    No wait: the numbers in lengths and block_table are checked on the CPU only. On a GPU wrong ones give meaningless
             results, but nothing outside of the caches is read or written; a new key for which there is no room is not
             written. The torch backend does wait: it computes one sequence after the other
    Gradient: none. flash_attention has one
    Scores, autocast: as flash_attention; a cache keeps its dtype, and is cast whole in each call
    Backend: "triton" runs operator/decode_kernels.py, "torch" torch_backend.py, for "auto" see `attention.pick_backend`
    Raises:  TypeError or ValueError before anything is launched; RuntimeError where a gradient is asked for
    Source:  Dao, Haziza, Massa, Sizov 2023, "Flash-Decoding for long-context inference"; pages: Kwon et al. 2023,
             arXiv:2309.06180
    """
    tensors = {"Q": Q, "K": K_cache, "V": V_cache, "lengths": lengths, "block_table": block_table, "K_new": K_new,
               "V_new": V_new}
    key = None
    if not torch_internals.autocast_is_on():           # else casts come first
        key = plans.key_of_call((window, scale, splits, return_lse, backend), *tensors.values())
    O, L = plans.call(key, ("O", "L"), tensors, _checked_step, *tensors.values(),
                      window, scale, splits, return_lse, backend)
    return (O, L) if return_lse else O


def _checked_step(Q, K_cache, V_cache, lengths, block_table, K_new, V_new, window, scale, splits, return_lse, backend):
    """Check the arguments, append to the cache and attend to it: O and L."""
    given = K_cache, V_cache
    Q, K_cache, V_cache, K_new, V_new = as_autocast(Q, K_cache, V_cache, K_new, V_new)
    _check_cache(Q, K_cache, V_cache, lengths, block_table)
    added = 0 if K_new is None and V_new is None else _check_new(Q, K_cache, V_cache, K_new, V_new)
    N_max = _room(K_cache, block_table)
    _, window = validate.check_window(window, True, Q.shape[2], N_max)
    scale = validate.check_scale(scale, Q.shape[-1])
    validate.check_bool(return_lse=return_lse)
    if splits is not None:
        validate.check_positive(splits=splits)
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "triton":
        validate.check_for_kernels(Q, V_cache, "V_cache")
    if lengths.device.type == "cpu" and torch_internals.has_numbers(lengths):
        _check_numbers(lengths.tolist(), block_table, K_cache, added, N_max)
    refuse_derivatives("flash_attention_decode", Q=Q, K_cache=K_cache, V_cache=V_cache, K_new=K_new, V_new=V_new)
    if added:
        CACHE_APPEND(K_new, V_new, K_cache, V_cache, lengths, block_table, backend)
        if K_cache is not given[0] or V_cache is not given[1]:     # copies in autocast's dtype: write to both
            CACHE_APPEND(K_new, V_new, *given, lengths, block_table, backend)
    return ATTENTION_DECODE(Q, K_cache, V_cache, lengths, block_table, added, window, scale, splits, backend)


def _room(cache, block_table):
    """N_max, how many keys of one sequence the cache can hold."""
    return cache.shape[2] if block_table is None else block_table.shape[1] * cache.shape[2]


# ---- the checks of the arguments

def _check_cache(Q, K_cache, V_cache, lengths, block_table):
    validate.check_qkv(Q, K_cache, V_cache, ndim=4, names=("K_cache", "V_cache"))
    (B, H_q), (pages, H_kv, page_size, _) = Q.shape[:2], K_cache.shape
    if H_q == 0 or H_kv == 0 or H_q % H_kv:
        raise ValueError(f"Q must have a multiple of K_cache's heads, at least one, got H_q = {H_q} and H_kv = {H_kv}")
    validate.check_int32("lengths", lengths, Q)
    if lengths.shape != (B,):
        raise ValueError(f"lengths must have the shape (B,) with Q's batch size B = {B}, got {describe(lengths)}")
    if block_table is None:
        if pages != B:
            raise ValueError(f"K_cache must have Q's batch size B = {B}, or come with a block_table, got "
                             f"{describe(K_cache)}")
        return
    validate.check_int32("block_table", block_table, Q)
    if block_table.ndim != 2 or len(block_table) != B:
        raise ValueError(f"block_table must have the shape (B, max_pages) with Q's batch size B = {B}, got "
                         f"{describe(block_table)}")
    if pages == 0 or page_size == 0:
        raise ValueError("K_cache must have at least one page of at least one row with a block_table, got "
                         f"{describe(K_cache)}")


def _check_new(Q, K_cache, V_cache, K_new, V_new):
    """Returns how many keys are to be written, N_q."""
    for name, T, cache in (("K_new", K_new, K_cache), ("V_new", V_new, V_cache)):
        shape = Q.shape[0], cache.shape[1], Q.shape[2], cache.shape[3]
        if not isinstance(T, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, as K_new and V_new come together, got {describe(T)}")
        if T.dtype != Q.dtype or T.device != Q.device:
            raise TypeError(f"{name} must match Q's dtype and device, {Q.dtype} on {Q.device}, got {describe(T)}")
        if T.shape != shape:
            raise ValueError(f"{name} must have the shape (B, H_kv, N_q, d) = {tuple(shape)}, got {describe(T)}")
    return Q.shape[2]


def _check_numbers(lengths, block_table, cache, added, N_max):
    """On the CPU only: a call should not wait for a GPU. lengths: a list of its numbers"""
    if min(lengths, default=0) < 0 or max(lengths, default=0) + added > N_max:
        raise ValueError(f"lengths must lie between 0 and {N_max - added}, the cache's room for {N_max} keys"
                         f"{f' less {added} new ones' if added else ''}, got {describe(lengths)}")
    if block_table is not None:
        pages, page_size = cache.shape[:3:2]
        for row, length in zip(block_table.tolist(), lengths, strict=True):
            used = row[:-(-(length + added) // page_size)]
            if used and not 0 <= min(used) <= max(used) < pages:
                raise ValueError(f"block_table must name pages 0 to {pages - 1} of K_cache for all keys of a sequence, "
                                 f"got {describe(used)}")


# ---- the two operators, defined with torch.library, so that torch.compile takes them whole

torch.library.define("flashlab::cache_append",
                     "(Tensor K_new, Tensor V_new, Tensor(a!) K_cache, Tensor(b!) V_cache, Tensor lengths, "
                     "Tensor? block_table, str backend) -> ()")
torch.library.define("flashlab::attention_decode",
                     "(Tensor Q, Tensor K_cache, Tensor V_cache, Tensor lengths, Tensor? block_table, "
                     "int added, int[]? window, float scale, int? splits, str backend) -> (Tensor, Tensor)")
CACHE_APPEND = torch.ops.flashlab.cache_append.default
ATTENTION_DECODE = torch.ops.flashlab.attention_decode.default


@torch.library.impl("flashlab::cache_append", "default")
def _(K_new, V_new, K_cache, V_cache, lengths, block_table, backend):
    if kernels := _kernels(backend, K_new, V_new):
        kernels.append(K_new, V_new, K_cache, V_cache, lengths, block_table)
        return
    room, page_size = _room(K_cache, block_table), K_cache.shape[2]
    for b, length in enumerate(lengths.tolist()):
        for n, key in enumerate(range(length, length + K_new.shape[2])):
            if not 0 <= key < room:
                continue
            page = b if block_table is None else int(block_table[b, key // page_size])
            if 0 <= page < len(K_cache):
                K_cache[page, :, key % page_size] = K_new[b, :, n]
                V_cache[page, :, key % page_size] = V_new[b, :, n]


@torch.library.impl("flashlab::attention_decode", "default")
def _(Q, K_cache, V_cache, lengths, block_table, added, window, scale, splits, backend):
    if kernels := _kernels(backend, Q, V_cache):
        limits = {} if window is None else {"causal": False, "left": window[0], "right": 0}
        return kernels.forward(kernels.KERNEL, kernels.launch, Q, K_cache, V_cache, lengths=lengths,
                               block_table=block_table, added=added, scale=scale, splits=splits, **limits)
    O, L = torch_backend.empty(Q, V_cache.shape[-1]).zero_(), torch_backend.empty_L(Q).fill_(-torch.inf)
    masks = {"causal": True, "window": window and (window[0], 0), "scale": scale}
    with torch.autocast(Q.device.type, enabled=False):             # it would round float32
        for b, N_k in enumerate((lengths + added).tolist()):
            K, V = (_keys(cache, block_table, b, N_k)[None] for cache in (K_cache, V_cache))
            torch_backend.forward(Q[b : b + 1], K, V, O[b : b + 1], L[b : b + 1], **masks)
    return O, L


@torch.library.register_fake("flashlab::cache_append")
def _(*arguments):
    """Returns nothing."""


@torch.library.register_vmap("flashlab::cache_append")
def _(info, in_dims, *arguments):
    raise NotImplementedError("flash_attention_decode writes no new keys under torch.vmap: pass the mapped dimension "
                              "as part of B, or write K_new and V_new into the cache before the call")


@torch.library.register_fake("flashlab::attention_decode")
def _(Q, K_cache, V_cache, *options):
    """Shapes and dtypes alone, for torch.compile as it traces."""
    return torch_backend.empty(Q, V_cache.shape[-1]), torch_backend.empty_L(Q)


def _kernels(backend, Q, V):
    """The module of the kernels, None where they are not to run. Raises: RuntimeError where they cannot"""
    if backend_for(backend, Q, V) == "torch":
        return None
    check_device("Q, K_cache, V_cache", Q)
    from flashlab.operator import decode_kernels

    return decode_kernels


def _keys(cache, block_table, b, N_k):
    """(H_kv, N_k, d): what the cache holds of sequence b."""
    if block_table is None:
        return cache[b, :, :N_k]
    pages = block_table[b, :-(-N_k // cache.shape[2])]
    return cache[pages.long()].transpose(0, 1).flatten(1, 2)[:, :N_k]
