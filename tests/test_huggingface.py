"""flash_attention in transformers' models: as right as their eager attention, or refused. No model is downloaded."""

import copy
import os
import subprocess
import sys
from itertools import pairwise

import pytest
import torch

from flashlab import flash_attention
from flashlab.operator import huggingface
from flashlab.oracle import max_error
from flashlab.triton_mode import import_triton, interpreted

os.environ.setdefault("HF_HUB_OFFLINE", "1")           # read by transformers when it is imported
transformers = pytest.importorskip("transformers", minversion="5.23", reason="transformers, an extra, is not installed")

B, N = 3, 13
TEXT = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
GROUPED = TEXT | dict(num_key_value_heads=2)
CHUNKS = ["chunked_attention", "full_attention"]
MODELS = {                                             # name: class, options, what makes it worth a test
    "llama": ("LlamaForCausalLM", GROUPED),            # grouped heads, causal
    "mistral": ("MistralForCausalLM", GROUPED | dict(sliding_window=5)),                          # a window
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0,
                                     resid_pdrop=0, embd_pdrop=0)),
    "gemma3": ("Gemma3ForCausalLM", GROUPED | dict(sliding_window=5, head_dim=8,        # a window in one layer of two
                                                   layer_types=["sliding_attention", "full_attention"])),
    "llama4": ("Llama4ForCausalLM", GROUPED | dict(attention_chunk_size=4, head_dim=8, intermediate_size_mlp=48,
                                                   num_local_experts=1, layer_types=CHUNKS)),
    "bert": ("BertForMaskedLM", TEXT | dict(hidden_dropout_prob=0, attention_probs_dropout_prob=0)),   # both ways
    "modernbert": ("ModernBertForMaskedLM", TEXT | dict(
        local_attention=6, global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2)),
    "vit": ("ViTForImageClassification", dict(image_size=16, patch_size=4, hidden_size=32, intermediate_size=48,
                                              num_hidden_layers=2, num_attention_heads=4)),
    "bart": ("BartForConditionalGeneration", dict(     # an encoder
        vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=48, decoder_ffn_dim=48,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=64)),
}
DECODERS = ["llama", "mistral", "gpt2", "gemma3", "llama4"]
GREEDY = dict(max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None, output_logits=True,
              return_dict_in_generate=True)
WITH_WINDOWS = ["mistral", "gemma3", "llama4", "modernbert"]
LEFT, RIGHT, BETWEEN = torch.ones(3, B, N, dtype=torch.long)
LEFT[0, :4], LEFT[2, :7], BETWEEN[1, 4:7] = 0, 0, 0
RIGHT[:] = LEFT.flip(1)


def models(name, **changed):
    """(eager, ours) with the same weights, large enough that attention is far from uniform."""
    kind, options = MODELS.get(name) or (name, MORE_MODELS[name])
    kind = getattr(transformers, kind)
    config = kind.config_class(**options | changed)
    for spread in ("initializer_range", "init_std"):
        if hasattr(config, spread):
            setattr(config, spread, 0.3)
    torch.manual_seed(0)
    eager = kind._from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    ours = kind._from_config(copy.deepcopy(config), attn_implementation=huggingface.register()).eval()
    ours.load_state_dict(eager.state_dict())
    assert (eager.config._attn_implementation, ours.config._attn_implementation) == ("eager", "FlashLab")
    return eager, ours


def inputs(name, padding=None):
    if name == "vit":
        return {"pixel_values": torch.randn(B, 3, 16, 16)}
    given = {"input_ids": torch.randint(3, 99, (B, N))}
    if name == "bart":
        given["decoder_input_ids"] = given["input_ids"][:, :5]
    return given | ({} if padding is None else {"attention_mask": padding})


def logits(both, keep=None, **given):
    """Of the tokens to keep, by each of the models."""
    with torch.no_grad():
        results = [model(**given).logits for model in both]
    return [T if keep is None else T[keep.bool()] for T in results]


def same(eager, ours, largest=None):
    """Up to rounding, ten times what is seen. Norms compute in float32, so there is no model in float64."""
    largest = max_error(eager, torch.zeros_like(eager)) if largest is None else largest
    assert max_error(ours, eager) <= 1e-5 * largest


@pytest.mark.parametrize("name", MODELS)
def test_logits(name):
    same(*logits(models(name), **inputs(name)))


PADDED = [(name, side) for name in MODELS if name != "vit" for side in ("left", "right", "between")
          if not (name in WITH_WINDOWS and side == "between")]


@pytest.mark.parametrize("name, side", PADDED)
def test_padding(name, side):
    """Of tokens that are kept; fails if padding is seen, or if packing moves a query away from its keys."""
    padding = {"left": LEFT, "right": RIGHT, "between": BETWEEN}[side]
    both, given = models(name), inputs(name, padding)
    keep = None if name == "bart" else padding         # its padding is the encoder's
    eager, ours = logits(both, keep, **given)
    same(eager, ours)
    unpadded, _ = logits(both, keep, **given | {"attention_mask": torch.ones_like(padding)})
    if not (side == "right" and name in DECODERS):     # these never see what comes after them
        assert max_error(eager, unpadded.double()) > 0.01, "this padding makes no difference, so the test shows nothing"


@pytest.mark.parametrize("window", [4, 6])
def test_the_window_is_exact(window):
    """Guards the tests above: one token more or less would show."""
    given = inputs("mistral")
    eager, another = models("mistral")[0], models("mistral", sliding_window=window)[1]
    of_eager, of_another = logits((eager, another), **given)
    assert max_error(of_another, of_eager) > 0.01


def same_text(eager, ours):
    assert torch.equal(eager.sequences, ours.sequences)
    same(torch.cat(eager.logits), torch.cat(ours.logits))


@pytest.mark.parametrize("padding", [None, LEFT], ids=["full", "padded"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name, window", [*((name, 5) for name in [*DECODERS, "bart"]), ("mistral", N + 3)])
def test_generate(name, window, cache, padding, monkeypatch):
    """Prefill, then one token at a time against a cache; a window is full at once or before the end."""
    both = models(name, **{"sliding_window": window} if name == "mistral" else {})
    sizes, attention = [], transformers.AttentionInterface()["FlashLab"]

    def spy(module, Q, K, *rest, **options):
        sizes.append((Q.shape[2], K.shape[2]))
        return attention(module, Q, K, *rest, **options)

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "FlashLab", spy)
    given = inputs(name, padding) | GREEDY
    same_text(*(model.generate(**given, cache_implementation=cache) for model in both))
    assert sizes[-1] == (1, {"mistral": window, "bart": N}.get(name, N + 5))
    assert name != "llama" or sizes[0] == (N, N if cache == "dynamic" else N + 5)


def test_compiled_generate():
    """One graph for the first token against a static cache, and two for all others: the mask breaks none."""
    compiled, given = transformers.CompileConfig(backend="eager", mode=None), inputs("llama", LEFT) | GREEDY
    compiled._compile_all_devices = True
    eager, ours = models("llama", num_hidden_layers=1)
    counters = torch._dynamo.utils.counters
    counters.clear()
    same_text(eager.generate(**given), ours.generate(**given, cache_implementation="static", compile_config=compiled))
    assert 1 <= counters["stats"]["unique_graphs"] <= 3 and not counters["graph_break"]


@pytest.mark.parametrize("name", DECODERS)
def test_several_tokens_against_a_cache(name):
    """N_q = 4 and N_k = 13, bottom-right: what the whole sequence gives at once."""
    (eager, ours), given = models(name), inputs(name, LEFT)
    at_once, = logits([eager], **given)
    ids, positions = given["input_ids"], torch.arange(9, N)[None].expand(B, -1)
    if name == "gpt2":                                 # without positions, it counts the tokens that are kept
        given["position_ids"] = torch.arange(N)[None].expand(B, -1)
        at_once, = logits([eager], **given)
    with torch.no_grad():
        first = ours(ids[:, :9], attention_mask=LEFT[:, :9], use_cache=True)
        then = ours(ids[:, 9:], attention_mask=LEFT, past_key_values=first.past_key_values,
                    position_ids=positions).logits
    same(at_once[:, 9:], then)


BY_POSITIONS = [(name, "position_ids") for name in ("llama", "mistral", "llama4")]


@pytest.mark.parametrize("name, by", [*BY_POSITIONS, ("llama", "cu_seq_lens"), ("mistral", "cu_seq_lens"),
                                      ("llama", "both")])
def test_packed_sequences(name, by):
    """Three sequences in one row, as a padding-free collator packs them, give what each gives alone."""
    (eager, ours), starts = models(name), [0, 4, 10, 13]
    parts = [slice(*ends) for ends in pairwise(starts)]
    ids = inputs(name)["input_ids"][:1]
    packed = {"position_ids": torch.cat([torch.arange(part.stop - part.start) for part in parts])[None],
              "use_cache": False}
    if by != "position_ids":            # with a cache, transformers does not look whether positions begin anew
        packed |= {"use_cache": by == "cu_seq_lens", "cu_seq_lens_q": torch.tensor(starts),
                   "cu_seq_lens_k": torch.tensor(starts)}
    with torch.no_grad():
        together = ours(ids, **packed).logits
    same(torch.cat([logits([eager], input_ids=ids[:, part])[0] for part in parts], 1), together)


@pytest.mark.parametrize("name, padding", [("llama", "right"), ("mistral", "none"), ("gpt2", "right"),
                                           ("bert", "right"), ("vit", "none")])
def test_a_training_step(name, padding):
    """Loss and the gradient of every weight."""
    given, losses, grads = inputs(name, RIGHT if padding == "right" else None), [], []
    labels = torch.tensor([0, 1, 0])
    if name != "vit":
        labels = given["input_ids"].masked_fill(RIGHT == 0, -100) if padding == "right" else given["input_ids"]
    both = models(name)
    for model in both:
        loss = model.train()(**given, labels=labels).loss
        loss.backward()
        losses.append(loss.detach())
        grads.append([weight.grad for weight in model.parameters() if weight.grad is not None])
    same(*losses)
    largest = max(grad.abs().max().item() for grad in grads[0])    # some gradients are zeros, rounded
    for eager, ours in zip(*grads, strict=True):
        same(eager, ours, largest)


@pytest.mark.skipif(import_triton() is None, reason="dropout needs Triton")
def test_dropout_in_training(monkeypatch):
    """The layer's own probability, drawn from PyTorch's generator, and none in evaluation."""
    if not interpreted() and not torch.cuda.is_available():
        pytest.skip("Triton was imported before flashlab, so its kernels cannot run here")
    both, taken = models("llama", num_hidden_layers=1, attention_dropout=0.4), []
    ids = inputs("llama")["input_ids"][:1, :6]
    same(*logits(both, input_ids=ids))
    spy = lambda *tensors, **options: taken.append(options["dropout_p"]) or flash_attention(*tensors, **options)
    monkeypatch.setattr(huggingface, "flash_attention", spy)
    trained = both[1].train()
    torch.manual_seed(1)
    loss = trained(ids, labels=ids).loss
    loss.backward()
    torch.manual_seed(1)
    again = trained(ids, labels=ids).loss
    assert torch.equal(loss, again) and not torch.equal(loss, trained(ids, labels=ids).loss)
    assert taken == [0.4] * 3
    assert all(weight.grad.isfinite().all() for weight in trained.parameters())


def test_a_float32_query_in_a_half_precision_model():
    """As under autocast, where rotary embeddings leave Q and K in float32."""
    Q, K, V = torch.randn(3, 1, 2, 5, 8)
    O, weights = huggingface.attention(torch.nn.Module(), Q, K, V.bfloat16(), None)
    assert weights is None and (O.dtype, O.shape) == (torch.bfloat16, (1, 5, 2, 8))
    assert max_error(O.transpose(1, 2), flash_attention(Q, K, V, causal=True).double()) < 0.05
    both, given = models("llama"), inputs("llama")
    with torch.autocast("cpu", torch.bfloat16):
        eager, ours = (model(**given, labels=given["input_ids"]).loss for model in both)
    assert abs(eager - ours) < 0.05 * eager


def test_compiled():
    both, given = models("mistral", num_hidden_layers=1), inputs("mistral", LEFT)
    eager, _ = logits(both, LEFT, **given)
    compiled, = logits([torch.compile(both[1], backend="aot_eager")], LEFT, **given)
    same(eager, compiled)


def test_a_single_key_of_an_encoder():
    same(*logits(models("bart"), **inputs("bart") | {"input_ids": torch.full((B, 1), 7)}))


ASKS_NOBODY = ["BloomForCausalLM", "FalconForCausalLM", "GPTJForCausalLM", "XLNetLMHeadModel", "GitForCausalLM"]
MORE_MODELS = dict.fromkeys(ASKS_NOBODY, TEXT | dict(rotary_dim=4, d_head=8, vision_config=MODELS["vit"][1])) | {
    "OPTForCausalLM": TEXT | dict(ffn_dim=48, word_embed_proj_dim=32),      # its layers are not told what it returns
    "Gemma2ForCausalLM": GROUPED | dict(head_dim=8),
    "T5ForConditionalGeneration": dict(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4),
    "BigBirdPegasusForConditionalGeneration": MODELS["bart"][1] | dict(block_size=4),
}
DECODER = dict(decoder_input_ids=torch.ones(B, 2, dtype=torch.long))
REFUSED = [                                            # model, what it is called with, words of the error
    *((name, dict(output_attentions=True), "output_attentions=True .* never stores.*eager")
      for name in ("llama", "gpt2", "OPTForCausalLM")),
    ("llama", dict(attention_mask=torch.zeros(B, 1, N, N)),
     "attention_mask must be 2-D.*LlamaAttention passes a float32 tensor"),
    ("llama", dict(attention_mask=LEFT[:, :-1]), "must have 13 numbers for each of 3 rows"),
    ("llama", dict(cu_seq_lens_q=torch.tensor([0, N])), "packed into a batch of size 1, which is 3"),
    ("llama4", dict(cu_seq_lens_q=torch.tensor([0, N])), "cu_seq_lens_q tells of 1 sequences, .* chunks of 12"),
    ("mistral", dict(attention_mask=BETWEEN), "padding between tokens to keep.*Pad on the left"),
    *((name, {}, f"{name} computes its attention itself.*eager") for name in ASKS_NOBODY),
    ("Gemma2ForCausalLM", {}, "Gemma2Attention asks for capped scores .softcap.*eager"),
    ("T5ForConditionalGeneration", DECODER, "asks for a bias of the scores .position_bias.*eager"),
    ("BigBirdPegasusForConditionalGeneration", DECODER | dict(attention_mask=LEFT), "A layer of this model computes"),
]


@pytest.mark.parametrize("name, options, words", REFUSED, ids=[words for *_, words in REFUSED])
def test_what_is_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        models(name)[1](torch.randint(3, 99, (B, N)), **options)


def test_a_layer_that_asks_its_mask_for_its_size_is_refused():
    with pytest.raises(AttributeError, match="computes its attention itself.*it asks its mask for 'size'.*eager"):
        huggingface.Seen(causal=True).size()


def test_patterns_of_a_model_are_refused():
    """Image tokens that see one another ahead of time, and functions of which nothing is known."""
    from transformers.masking_utils import causal_mask_function, create_causal_mask

    config, embeds = models("llama")[1].config, torch.zeros(B, N, 32)
    blocks = torch.full((B, N), -1)
    assert create_causal_mask(config, embeds, None, None, block_sequence_ids=blocks) == huggingface.Seen(True, N_k=N)
    blocks[1, 3:6] = 0
    with pytest.raises(ValueError, match="some tokens of this model see the next one"):
        create_causal_mask(config, embeds, None, None, block_sequence_ids=blocks)
    with pytest.raises(ValueError, match="adds a pattern of its own"):
        create_causal_mask(config, embeds, None, None, or_mask_function=causal_mask_function)


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'transformers"):
        huggingface.register()


def test_flashlab_after_transformers():
    """transformers imports Triton: without a GPU flash_attention runs on its PyTorch rungs all the same."""
    code = """if True:
        from transformers import LlamaForCausalLM
        import torch, flashlab
        from flashlab.operator import huggingface
        huggingface.register()
        Q = torch.randn(1, 1, 5, 8)
        print(flashlab.flash_attention(Q, Q, Q).shape)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and "[1, 1, 5, 8]" in run.stdout, run.stderr
