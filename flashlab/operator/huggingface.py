"""flash_attention inside models of Hugging Face's transformers, which nothing else here needs: `pip install -e
.[transformers]`.

    from flashlab.operator import huggingface

    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation=huggingface.register())

A model asks twice. Once in each forward pass `mask` is asked which keys a query sees: it returns a Seen, a few numbers
in place of a tensor N_q x N_k. Then each layer calls `attention` with Q, K, V and that Seen.
"""

from typing import NamedTuple

import torch

from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab.validate import describe

NAME = "FlashLab"    # not flashlab: transformers takes every name that has "flash" in it for a package of its own list
INSTEAD = 'Load this model with attn_implementation="eager".'
OWN_ATTENTION = ("the layers of this model compute their attention themselves and do not ask transformers' "
                 f"AttentionInterface for it: flash_attention cannot take their place. {INSTEAD}")

# What some models hand to their attention, and flash_attention has not got.
LEFT_OUT = {
    "softcap": "capped scores",
    "position_bias": "a bias of the scores",
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "head_mask": "a mask of heads",
    "indices": "a choice of single keys",
    "block_indices": "a choice of blocks of keys",
    "cache": "a paged cache",
}


def register():
    """Make attn_implementation="FlashLab" known to transformers, and return that name. A second time does no harm.

    Taken:   causal attention and attention both ways; grouped heads; sliding windows; a cache that grows (prefill,
             several tokens or one at a time); padding, by packing the tokens that are kept; packed sequences, told by
             position_ids or cu_seq_lens_q; attention to an encoder; dropout where flash_attention has it
    Padding: outputs of padding are 0 where the attention is causal or has a window
    Left out: capped scores, biases, sinks, masks of four dimensions or of a pattern of their own, static and paged
              caches,
             models that compute their attention by themselves, output_attentions where the layer hands it on. Each
             raises, in words
    Compile: torch.compile takes such models, with breaks of its graph where numbers of the mask are looked at
    Raises:  ModuleNotFoundError without transformers
    Tested:  transformers 5.23
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("huggingface.register needs transformers, which flashlab does not install by itself: "
                                  f"pip install 'transformers>=5.23' ({error})") from error
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    return NAME


class Seen(NamedTuple):
    """Which keys a query sees. With `queries` or cu_seqlens the tokens are packed: each sequence sees itself."""

    causal: bool
    window: tuple[int, int] | None = None              # as flash_attention takes it
    queries: torch.Tensor | None = None                # places of the kept tokens among all B * N_q, in order
    keys: torch.Tensor | None = None                   # the same among all B * N_k
    cu_seqlens_q: torch.Tensor | None = None           # where each sequence begins among the kept
    cu_seqlens_k: torch.Tensor | None = None

    def __radd__(self, scores):                        # a layer takes this for a mask and adds it to its scores
        raise ValueError(OWN_ATTENTION)

    def __getattr__(self, name):                       # or wants its size, its dtype, ...
        raise AttributeError(f"{OWN_ATTENTION} (it asks its mask for {name!r})")


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, sliding_window=None,
              output_attentions=False, cu_seq_lens_q=None, cu_seq_lens_k=None, **options):
    """What a layer calls: Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v) -> O (B, N_q, H_q, d_v)."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    seen = Seen(causal) if attention_mask is None else attention_mask
    _refuse(type(module).__name__, seen, key, sliding_window, output_attentions, options)
    if cu_seq_lens_q is not None:
        seen = _packed_by_the_caller(seen, query, cu_seq_lens_q, cu_seq_lens_k)
    # rotary embeddings and norms may leave Q and K in float32 where the model's V is not
    query, key = query.to(value.dtype), key.to(value.dtype)
    chosen = {"causal": seen.causal, "window": seen.window, "scale": scaling, "dropout_p": dropout}
    if seen.cu_seqlens_q is None:
        return flash_attention(query, key, value, **chosen).transpose(1, 2).contiguous(), None
    Q, K, V = _kept(query, seen.queries), _kept(key, seen.keys), _kept(value, seen.keys)
    O = flash_attention_varlen(Q, K, V, seen.cu_seqlens_q, seen.cu_seqlens_k, **chosen)        # (T_q, H_q, d_v)
    B, H_q, N_q, _ = query.shape
    if seen.queries is not None:
        O = O.new_zeros(B * N_q, *O.shape[1:]).index_copy(0, seen.queries, O)                   # 0 in padding
    return O.view(B, N_q, H_q, -1), None


def _kept(T, places):
    """(B, H, N, d) -> (tokens kept, H, d)"""
    tokens = T.transpose(1, 2).flatten(0, 1)
    return tokens if places is None else tokens[places]


def _packed_by_the_caller(seen, query, cu_seq_lens_q, cu_seq_lens_k):
    """The sequences that a data collator has packed. Its cu_seq_lens_q means what cu_seqlens_q means here."""
    if seen.cu_seqlens_q is not None:                  # from position_ids, which tell the same; or from something else
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
    """Raise on what would be left out in silence."""
    if output_attentions:
        raise ValueError("output_attentions=True asks for attention weights, which flash_attention never stores. "
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
         local_size=None,
         allow_is_bidirectional_skip=False, use_vmap=False, device="cpu", **_):
    """What a model asks once in a forward pass: the Seen of its queries, or None where each sees every key. That alone
    is None, since layers that compute their attention themselves take it for no mask at all.

    attention_mask (B, tokens so far), False for padding. mask_function(b, h, q, k) tells whether token q sees token k;
    it is asked about neighbours only, which tells causal attention from attention both ways, and where a sequence
    begins. local_size is the length of a window, or that of chunks, which are sequences of their own.
    """
    if use_vmap:
        raise ValueError("this model adds a pattern of its own to the mask (or_mask_function or and_mask_function), "
                         f"which may be anything: flash_attention takes causal masks, windows and padding. {INSTEAD}")
    causal, begins = _neighbours(mask_function, kv_offset + torch.arange(kv_length, device=device), batch_size)
    window = None if local_size is None else (local_size - 1, 0) if causal else (local_size, local_size)
    several = bool(begins[:, 1:].any())                # sequences in a row of the batch
    ordered = causal or window is not None or several  # it matters where a query stands among the keys
    ends = int(q_offset) + q_length, kv_offset + kv_length
    if ordered and ends[0] != ends[1]:
        raise ValueError(f"the last query must stand at the last key, but queries end at {ends[0]} and keys at "
                         f"{ends[1]}. A static "
                         'cache does that, whose keys are not all there yet: use one that grows, '
                         'cache_implementation="dynamic" '
                         "or past_key_values=DynamicCache()")
    keep = _keep(attention_mask, kv_offset, begins)
    if not several and keep.all():
        return Seen(causal, window) if ordered or not allow_is_bidirectional_skip else None
    if window is not None and _has_holes(keep):
        raise ValueError("attention_mask has padding between tokens to keep, and this model counts tokens, padding "
                         "too, in its window or chunks. Pad on the left, as generate wants it, or on the right")
    return _packed(causal, window, keep, begins, q_length, ordered)


def _neighbours(mask_function, tokens, B):
    """Is the attention causal?, and (B, N_k): does a sequence begin at this token?"""
    rows, head = torch.arange(B, device=tokens.device)[:, None], torch.zeros((), dtype=torch.long, device=tokens.device)
    left, right = tokens[None, :-1], tokens[None, 1:]
    # (B, N_k - 1)
    ahead, back = (mask_function(rows, head, *pair).expand(B, -1) for pair in ((left, right), (right, left)))
    begins = torch.ones(B, len(tokens), dtype=torch.bool, device=tokens.device)
    begins[:, 1:] = ~back
    causal = len(tokens) > 1 and not ahead.any()       # a single key has nothing ahead of it
    if not causal and not torch.equal(ahead, back):
        raise ValueError("some tokens of this model see the next one and some do not, as those of an image may. "
                         f"{INSTEAD}")
    return causal, begins


def _keep(attention_mask, first, begins):
    """(B, N_k): is this key kept? attention_mask (B, tokens so far); a sliding cache has the keys from `first` on."""
    if attention_mask is None:
        return torch.ones_like(begins)
    keep = attention_mask[:, first : first + begins.shape[1]].bool()
    if keep.shape != begins.shape:
        raise ValueError(f"attention_mask must have {first + begins.shape[1]} numbers for each of {len(begins)} rows, "
                         f"one for each token so far, got {describe(attention_mask)}")
    return keep


def _has_holes(keep):
    """Is there padding between kept tokens?"""
    starts = keep & ~torch.nn.functional.pad(keep, (1, 0))[:, :-1]
    return bool((starts.sum(1) > 1).any())


def _packed(causal, window, keep, begins, N_q, ordered):
    """The Seen of the kept tokens, sequence after sequence."""
    B, N_k = keep.shape
    if ordered:            # padding among the queries goes too: the rest keeps its place among the keys
        sequence = begins.flatten().cumsum(0).view(B, N_k) - 1
        rows = slice(N_k - N_q, N_k)
        kept_q, sequence_q, count = keep[:, rows], sequence[:, rows], int(sequence.max()) + 1
    else:                                              # every query sees all kept keys of its row
        sequence = torch.arange(B, device=keep.device)[:, None].expand(B, N_k)
        kept_q, sequence_q, count = keep.new_ones(B, N_q), sequence[:, :1].expand(B, N_q), B
    return Seen(causal, window, _places(kept_q), _places(keep), _starts(sequence_q[kept_q], count),
                _starts(sequence[keep], count))


def _places(kept):
    return kept.flatten().nonzero().squeeze(1)


def _starts(sequence, count):
    """cu_seqlens (count + 1,) of tokens that belong to these sequences."""
    lengths = torch.bincount(sequence, minlength=count)
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
