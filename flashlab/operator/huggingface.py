"""flash_attention inside models of Hugging Face's transformers: `pip install -e .[transformers]`.

    from flashlab.operator import huggingface
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation=huggingface.register())

Once in each forward pass a model asks `mask` which keys a query sees: it returns a Seen, a few numbers in place of a
tensor N_q x N_k. Then each layer calls `attention` with Q, K, V and that Seen.
"""

import sys
from typing import NamedTuple

import torch

from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab.validate import describe

NAME = "FlashLab"    # not flashlab: transformers looks up every name with "flash" in it in its own list of packages
OWN_ATTENTION = "computes its attention itself and does not ask transformers' AttentionInterface for it"
LEFT_OUT = {                                           # arguments of some models' layers that flash_attention lacks
    "softcap": "capped scores", "position_bias": "a bias of the scores", "s_aux": "attention sinks",
    "sinks": "attention sinks", "indices": "a choice of single keys", "block_indices": "a choice of blocks of keys",
    "cache": "a paged cache",
}


def refusal(why, error=ValueError):
    return error(f'{why}. Load this model with attn_implementation="eager".')


def register():
    """Make attn_implementation="FlashLab" known to transformers, and return that name. A second time does no harm.

    Taken:   causal attention and attention both ways; grouped heads; sliding windows; dynamic and static caches;
             padding, by packing the tokens that are kept; packed sequences, told by position_ids or cu_seq_lens_q;
             attention to an encoder; dropout where flash_attention has it
    Padding: outputs of padding are 0 where the attention is causal or has a window
    Left out: capped scores, biases, sinks, masks of four dimensions or of a pattern of their own, paged caches,
             output_attentions. Each raises ValueError, as does loading a model that computes its attention itself
    Compile: torch.compile breaks its graph where the mask is made. For a static cache, generate makes it beforehand
    Raises:  ModuleNotFoundError without transformers. Tested with transformers 5.23
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"register needs transformers: pip install 'transformers>=5.23' ({error})") from error
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    if PreTrainedModel.get_correct_attn_implementation.__module__ != __name__:
        _refuse_own_attention(PreTrainedModel)
    return NAME


def _refuse_own_attention(PreTrainedModel):
    """transformers checks that it knows the name when it makes a model. Check that the model's layers use it, too."""
    check = PreTrainedModel.get_correct_attn_implementation

    def checked(model, name, *args, **options):
        family = [cls for cls in type(model).__mro__ if issubclass(cls, PreTrainedModel)][-2]
        own_list = any(each.endswith("ATTENTION_CLASSES") for each in vars(sys.modules[family.__module__]))
        if name == NAME and (own_list or not family._can_set_attn_implementation()):
            raise refusal(f"{type(model).__name__} {OWN_ATTENTION}")
        return check(model, name, *args, **options)

    PreTrainedModel.get_correct_attn_implementation = checked


class Seen(NamedTuple):
    """The keys that a query sees. With cu_seqlens the tokens are packed: each sequence sees itself."""

    causal: bool
    window: tuple | None = None                        # as flash_attention takes it
    N_k: int | None = None                             # keys so far; a static cache has room for more
    places: list | None = None                         # of the kept queries among all B * N_q, and of the kept keys
    cu_seqlens: list | None = None                     # where each sequence begins among the kept queries, and keys

    ndim = 4                                           # with a static cache, generate handles this like a mask
    contiguous = lambda self: self

    def __radd__(self, scores):                        # a layer takes this for a mask and adds it to its scores
        raise refusal(f"A layer of this model {OWN_ATTENTION}")

    def __getattr__(self, name):                       # or asks for its size, its dtype, ...
        raise refusal(f"A layer of this model {OWN_ATTENTION}: it asks its mask for {name!r}", AttributeError)


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
              output_attentions=False, cu_seq_lens_q=None, cu_seq_lens_k=None, **options):
    """What a layer calls: Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v) -> O (B, N_q, H_q, d_v)."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    seen = Seen(causal) if attention_mask is None else attention_mask
    _refuse(type(module).__name__, seen, output_attentions, options)
    if cu_seq_lens_q is not None:
        seen = _packed_by_the_caller(seen, query, cu_seq_lens_q, cu_seq_lens_k)
    key, value = key[:, :, : seen.N_k], value[:, :, : seen.N_k]
    query, key = query.to(value.dtype), key.to(value.dtype)        # rotary embeddings may leave Q and K in float32
    chosen = {"causal": seen.causal, "window": seen.window, "scale": scaling, "dropout_p": dropout}
    if seen.cu_seqlens is None:
        return flash_attention(query, key, value, **chosen).transpose(1, 2).contiguous(), None
    B, H_q, N_q, _ = query.shape
    Q, K, V = (T.transpose(1, 2).flatten(0, 1) for T in (query, key, value))       # (B * N, H, d)
    if seen.places is not None:
        queries, keys = seen.places
        Q, K, V = Q[queries], K[keys], V[keys]
    O = flash_attention_varlen(Q, K, V, *seen.cu_seqlens, **chosen)
    if seen.places is not None:
        O = O.new_zeros(B * N_q, *O.shape[1:]).index_copy(0, queries, O)           # 0 in padding
    return O.view(B, N_q, H_q, -1), None


def _packed_by_the_caller(seen, query, cu_seq_lens_q, cu_seq_lens_k):
    """The sequences that a data collator has packed. Its cu_seq_lens_q means what cu_seqlens_q means here."""
    if seen.cu_seqlens is not None:                    # the mask has found sequences in position_ids: the same?
        if len(seen.cu_seqlens[0]) != len(cu_seq_lens_q):
            raise ValueError(f"cu_seq_lens_q tells of {len(cu_seq_lens_q) - 1} sequences, attention_mask, position_ids "
                             f"or chunks of {len(seen.cu_seqlens[0]) - 1}. Leave out one of them")
        return seen
    if len(query) != 1:
        raise ValueError(f"cu_seq_lens_q is for sequences packed into a batch of size 1, which is {len(query)}")
    return seen._replace(cu_seqlens=[cu_seq_lens_q.int(), cu_seq_lens_k.int()])


def _refuse(layer, seen, output_attentions, options):
    """Raise ValueError on every request that would be ignored in silence."""
    if not torch.compiler.is_compiling():              # not every layer is told, and Dynamo cannot read it
        from transformers.utils.output_capturing import _active_collector as collected

        output_attentions = output_attentions or any("attentions" in name for name in collected.get() or ())
    if output_attentions:
        raise refusal("output_attentions=True asks for attention weights, which flash_attention never stores")
    for name, what in LEFT_OUT.items():
        if options.get(name) is not None:
            raise refusal(f"{layer} asks for {what} ({name}), which flash_attention has not got")
    if not isinstance(seen, Seen):
        raise refusal("attention_mask must be 2-D, (batch, tokens so far) with 1 for tokens to keep and 0 for padding, "
                      f"and be given to a model that hands it to transformers.masking_utils; {layer} passes "
                      f"{describe(seen)}")


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
         local_size=None, allow_is_bidirectional_skip=False, use_vmap=False, device="cpu", **_):
    """What a model asks once in a forward pass: the Seen of its queries. None means that each query sees every key.

    attention_mask (B, tokens so far), False for padding. mask_function(b, h, q, k) tells whether token q sees token k.
    It is asked about neighbours only: that tells causal attention from attention both ways, and where sequences begin.
    local_size is the length of a window, or that of chunks, which are sequences of their own. A sliding cache has the
    keys from kv_offset on.
    """
    if isinstance(attention_mask, Seen):               # generate has asked before
        return attention_mask
    if use_vmap:
        raise refusal("this model adds a pattern of its own to the mask (or_mask_function or and_mask_function), which "
                      "may be anything: flash_attention takes causal masks, windows and padding")
    causal, begins = _neighbours(mask_function, kv_offset + torch.arange(kv_length, device=device), batch_size)
    window = None if local_size is None else (local_size - 1, 0) if causal else (local_size, local_size)
    end = int(q_offset) + q_length
    begins = begins[:, : end - kv_offset] if causal else begins        # the rest of a static cache is not filled yet
    N_k = begins.shape[1]
    several = bool(begins[:, 1:].any())                # sequences in a row of the batch
    ordered = causal or window is not None or several  # it matters where a query stands among the keys
    if ordered and end != kv_offset + N_k:
        raise refusal(f"the last query must stand at the last key, but queries end at {end}, keys at {kv_offset + N_k}")
    keep = torch.ones_like(begins) if attention_mask is None else attention_mask[:, kv_offset : kv_offset + N_k].bool()
    if keep.shape != begins.shape:
        raise ValueError(f"attention_mask must have {kv_offset + N_k} numbers for each of {batch_size} rows, one for "
                         f"each token so far, got {describe(attention_mask)}")
    if not several and keep.all():
        return Seen(causal, window, N_k) if ordered or not allow_is_bidirectional_skip else None
    parts = (keep[:, 1:] & ~keep[:, :-1]).sum(1) + keep[:, 0]          # (B,) runs of kept tokens in a row
    if window is not None and parts.max() > 1:
        raise ValueError("attention_mask has padding between tokens to keep, and this model counts tokens, padding "
                         "too, in its window or chunks. Pad on the left, as generate wants it, or on the right")
    # Causal queries that are padding go, too, so that the rest keep their places among the keys.
    sequence = begins.flatten().cumsum(0).view(begins.shape) - 1
    keep_q, sequence_q = keep[:, N_k - q_length:], sequence[:, N_k - q_length:]
    if not ordered:                                    # every query sees all kept keys of its row
        keep_q, sequence_q = keep.new_ones(batch_size, q_length), sequence[:, :1].expand(batch_size, q_length)
    sequences = torch.arange(int(begins.sum()) + 1, device=device)
    cu_seqlens = [torch.searchsorted(kept, sequences, out_int32=True) for kept in (sequence_q[keep_q], sequence[keep])]
    places = [kept.flatten().nonzero().squeeze(1) for kept in (keep_q, keep)]
    return Seen(causal, window, N_k, places, cu_seqlens)


def _neighbours(mask_function, tokens, B):
    """Is the attention causal?, and (B, N_k): does a sequence begin at this token?"""
    rows, head = torch.arange(B, device=tokens.device)[:, None], tokens.new_zeros(())
    left, right = tokens[None, :-1], tokens[None, 1:]
    ahead, back = (mask_function(rows, head, *pair).expand(B, -1) for pair in ((left, right), (right, left)))
    causal = len(tokens) > 1 and not ahead.any()       # a single key has nothing ahead of it
    if not causal and not torch.equal(ahead, back):
        raise refusal("some tokens of this model see the next one and some do not, as those of an image may")
    return causal, torch.cat([back.new_ones(B, 1), ~back], 1)
