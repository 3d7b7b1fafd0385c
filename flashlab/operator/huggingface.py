"""flash_attention inside models of Hugging Face's transformers: `pip install -e .[transformers]`.

    from flashlab.operator import huggingface

    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation=huggingface.register())

Once in each forward pass a model asks `mask` which keys a query sees: it returns a Seen, a few numbers in place of a
tensor N_q x N_k. Then each layer calls `attention` with Q, K, V and that Seen.
"""

from typing import NamedTuple

import torch

from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab.validate import describe

NAME = "FlashLab"    # not flashlab: transformers looks up every name with "flash" in it in its own list of packages
INSTEAD = 'Load this model with attn_implementation="eager".'
OWN_ATTENTION = ("computes its attention itself and does not ask transformers' AttentionInterface for it: "
                 f"flash_attention cannot take its place. {INSTEAD}")
LEFT_OUT = {                                           # arguments of some models' layers that flash_attention lacks
    "softcap": "capped scores", "position_bias": "a bias of the scores", "s_aux": "attention sinks",
    "sinks": "attention sinks", "head_mask": "a mask of heads", "indices": "a choice of single keys",
    "block_indices": "a choice of blocks of keys", "cache": "a paged cache",
}


def register():
    """Make attn_implementation="FlashLab" known to transformers, and return that name. A second time does no harm.

    Taken:   causal attention and attention both ways; grouped heads; sliding windows; a cache that grows (prefill,
             several tokens or one at a time) or a static one; padding, by packing the tokens that are kept; packed sequences, told by
             position_ids or cu_seq_lens_q; attention to an encoder; dropout where flash_attention has it
    Padding: outputs of padding are 0 where the attention is causal or has a window
    Left out: capped scores, biases, sinks, masks of four dimensions or of a pattern of their own, paged caches, models
             that compute their attention themselves (when they are made), output_attentions. Each raises, in words
    Compile: torch.compile takes such models, with breaks of its graph where it looks at numbers of the mask
    Raises:  ModuleNotFoundError without transformers
    Tested:  transformers 5.23
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("huggingface.register needs transformers, which flashlab does not install by itself: "
                                  f"pip install 'transformers>=5.23' ({error})") from error
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    theirs = PreTrainedModel.get_correct_attn_implementation       # each model asks it about its name, as it is made
    if theirs.__module__ != __name__:
        PreTrainedModel.get_correct_attn_implementation = _refusing_own_attention(theirs)
    return NAME


def _refusing_own_attention(check):
    """transformers' check of a name, which takes ours for a model whose layers never look it up, or not in time."""
    def checked(model, name, *args, **options):
        ancestors = [cls for cls in type(model).__mro__ if hasattr(cls, "_can_set_attn_implementation")][:-1]
        if name == NAME and not any(cls._can_set_attn_implementation() for cls in ancestors):
            raise ValueError(f"{type(model).__name__} {OWN_ATTENTION}")
        return check(model, name, *args, **options)

    return checked


class Seen(NamedTuple):
    """The keys that a query sees. With cu_seqlens the tokens are packed: each sequence sees itself."""

    causal: bool
    window: tuple[int, int] | None = None              # as flash_attention takes it
    N_k: int | None = None                             # so many keys are there; a static cache has room for more
    queries: torch.Tensor | None = None                # places of the kept tokens among all B * N_q, in order
    keys: torch.Tensor | None = None                   # the same among all B * N_k
    cu_seqlens_q: torch.Tensor | None = None           # where each sequence begins among the kept
    cu_seqlens_k: torch.Tensor | None = None

    ndim = 4                                           # generate makes the mask of a static cache ahead of the model

    def contiguous(self):
        return self

    def __radd__(self, scores):                        # a layer takes this for a mask and adds it to its scores
        raise ValueError(f"A layer of this model {OWN_ATTENTION}")

    def __getattr__(self, name):                       # or asks for its size, its dtype, ...
        raise AttributeError(f"A layer of this model {OWN_ATTENTION} (it asks its mask for {name!r})")


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, sliding_window=None,
              output_attentions=False, cu_seq_lens_q=None, cu_seq_lens_k=None, **options):
    """What a layer calls: Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v) -> O (B, N_q, H_q, d_v)."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    seen = Seen(causal) if attention_mask is None else attention_mask
    _refuse(type(module).__name__, seen, key, sliding_window, output_attentions, options)
    if cu_seq_lens_q is not None:
        seen = _packed_by_the_caller(seen, query, cu_seq_lens_q, cu_seq_lens_k)
    key, value = key[:, :, : seen.N_k], value[:, :, : seen.N_k]
    query, key = query.to(value.dtype), key.to(value.dtype)        # rotary embeddings may leave Q and K in float32
    chosen = {"causal": seen.causal, "window": seen.window, "scale": scaling, "dropout_p": dropout}
    if seen.cu_seqlens_q is None:
        return flash_attention(query, key, value, **chosen).transpose(1, 2).contiguous(), None
    B, H_q, N_q, _ = query.shape
    Q, K, V = (T.transpose(1, 2).flatten(0, 1) for T in (query, key, value))       # (B * N, H, d)
    if seen.queries is not None:
        Q, K, V = Q[seen.queries], K[seen.keys], V[seen.keys]
    O = flash_attention_varlen(Q, K, V, seen.cu_seqlens_q, seen.cu_seqlens_k, **chosen)
    if seen.queries is not None:
        O = O.new_zeros(B * N_q, *O.shape[1:]).index_copy(0, seen.queries, O)      # 0 in padding
    return O.view(B, N_q, H_q, -1), None


def _packed_by_the_caller(seen, query, cu_seq_lens_q, cu_seq_lens_k):
    """The sequences that a data collator has packed. Its cu_seq_lens_q means what cu_seqlens_q means here."""
    if seen.cu_seqlens_q is not None:                  # the mask has found sequences in position_ids: the same?
        if len(seen.cu_seqlens_q) != len(cu_seq_lens_q):
            raise ValueError(f"cu_seq_lens_q tells of {len(cu_seq_lens_q) - 1} sequences, attention_mask, position_ids "
                             f"and chunks, where the model has some, of {len(seen.cu_seqlens_q) - 1}. Leave out one of "
                             "them")
        return seen
    if query.shape[0] != 1:
        raise ValueError("cu_seq_lens_q tells apart sequences packed into one, so the batch size must be 1, got "
                         f"{query.shape[0]}")
    cu_seq_lens_k = cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
    return seen._replace(cu_seqlens_q=cu_seq_lens_q.int(), cu_seqlens_k=cu_seq_lens_k.int())


def _refuse(layer, seen, key, sliding_window, output_attentions, options):
    """Raise ValueError on every request that would be ignored in silence."""
    if output_attentions:
        raise ValueError(f"output_attentions=True asks for attention weights, which flash_attention never stores. "
                         f"{INSTEAD}")
    for name, what in LEFT_OUT.items():
        if options.get(name) is not None:
            raise ValueError(f"{layer} asks for {what} ({name}), which flash_attention has not got. {INSTEAD}")
    if not isinstance(seen, Seen):
        raise ValueError("attention_mask must be 2-D, (batch, tokens so far) with 1 for tokens to keep and 0 for "
                         f"padding, and be given to a model that hands it to transformers.masking_utils; {layer} "
                         f"passes {describe(seen)}. {INSTEAD}")
    if sliding_window is not None and seen.window is None and key.shape[2] > sliding_window:
        raise ValueError(f"{layer} passes sliding_window={sliding_window}, but its model made a mask without a window. "
                         f"{INSTEAD}")


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
         local_size=None, allow_is_bidirectional_skip=False, use_vmap=False, device="cpu", **_):
    """What a model asks once in a forward pass: the Seen of its queries; None only where each query sees every key,
    since layers that compute their attention themselves take None for no mask at all.

    attention_mask (B, tokens so far), False for padding. mask_function(b, h, q, k) tells whether token q sees token k.
    It is asked about neighbours only: that tells causal attention from attention both ways, and where sequences begin.
    local_size is the length of a window, or that of chunks, which are sequences of their own.
    """
    if isinstance(attention_mask, Seen):               # made by generate
        return attention_mask
    if use_vmap:
        raise ValueError("this model adds a pattern of its own to the mask (or_mask_function or and_mask_function), "
                         f"which may be anything: flash_attention takes causal masks, windows and padding. {INSTEAD}")
    causal, begins = _neighbours(mask_function, kv_offset + torch.arange(kv_length, device=device), batch_size)
    window = None if local_size is None else (local_size - 1, 0) if causal else (local_size, local_size)
    end = int(q_offset) + q_length
    begins = begins[:, : end - kv_offset] if causal else begins        # a static cache: the other keys are still to come
    N_k = begins.shape[1]
    several = bool(begins[:, 1:].any())                # sequences in a row of the batch
    ordered = causal or window is not None or several  # it matters where a query stands among the keys
    if ordered and end != kv_offset + N_k:
        raise ValueError(f"the last query must stand at the last key, but queries end at {end} and keys at "
                         f"{kv_offset + N_k}")
    keep = _keep(attention_mask, kv_offset, begins)
    if not several and keep.all():
        return Seen(causal, window, N_k) if ordered or not allow_is_bidirectional_skip else None
    holes = (keep[:, 1:] & ~keep[:, :-1]).sum(1) + keep[:, 0] > 1      # kept tokens begin more than once in the row
    if window is not None and holes.any():
        raise ValueError("attention_mask has padding between tokens to keep, and this model counts tokens, padding "
                         "too, in its window or chunks. Pad on the left, as generate wants it, or on the right")
    # Causal queries that are padding go, too, so that the rest keep their places among the keys.
    sequence = begins.flatten().cumsum(0).view(begins.shape) - 1
    keep_q, sequence_q = keep[:, N_k - q_length:], sequence[:, N_k - q_length:]
    if not ordered:                                    # every query sees all kept keys of its row
        keep_q = keep.new_ones(batch_size, q_length)
        sequence_q = sequence[:, :1].expand(batch_size, q_length)
    count = int(begins.sum())
    lengths = [torch.bincount(kept, minlength=count) for kept in (sequence_q[keep_q], sequence[keep])]
    cu_seqlens = [torch.nn.functional.pad(each.cumsum(0), (1, 0)).int() for each in lengths]
    places = [kept.flatten().nonzero().squeeze(1) for kept in (keep_q, keep)]
    return Seen(causal, window, N_k, *places, *cu_seqlens)


def _neighbours(mask_function, tokens, B):
    """Is the attention causal?, and (B, N_k): does a sequence begin at this token?"""
    rows, head = torch.arange(B, device=tokens.device)[:, None], torch.zeros((), dtype=torch.long, device=tokens.device)
    left, right = tokens[None, :-1], tokens[None, 1:]
    ahead = mask_function(rows, head, left, right).expand(B, -1)       # (B, N_k - 1)
    back = mask_function(rows, head, right, left).expand(B, -1)        # (B, N_k - 1)
    causal = len(tokens) > 1 and not ahead.any()       # a single key has nothing ahead of it
    if not causal and not torch.equal(ahead, back):
        raise ValueError("some tokens of this model see the next one and some do not, as those of an image may. "
                         f"{INSTEAD}")
    return causal, torch.cat([back.new_ones(B, 1), ~back], 1)


def _keep(attention_mask, first, begins):
    """(B, N_k): is this key kept? attention_mask (B, tokens so far); a sliding cache has the keys from `first` on."""
    if attention_mask is None:
        return torch.ones_like(begins)
    keep = attention_mask[:, first : first + begins.shape[1]].bool()
    if keep.shape != begins.shape:
        raise ValueError(f"attention_mask must have {first + begins.shape[1]} numbers for each of {len(begins)} rows, "
                         f"one for each token so far, got {describe(attention_mask)}")
    return keep
