"""The peers' tests that ask for something that flashlab has not got: known before they run."""

BY_PARAMETER = {           # of flash-attention's tests: the name of a parameter, what is left out if it is set
    "alibi": "ALiBi",
    "softcap": "capped scores",
    "rotary_fraction": "rotary positions inside the attention",
    "has_leftpad": "padding on the left of a cache",
}
BY_TEST = {
    "test_flash_attn_varlen_paged_kv_num_splits": "a private function of flash-attention, _flash_attn_varlen_forward",
    "test_flash_attn_generator_arg_must_be_none": "a private function of flash-attention",
    "test_flash_attn_kvcache_paged_block_table_bounds":
        "an error for lengths beyond the cache on a GPU, which flash_attention_decode does not wait for",
    "test_sdpa_can_dispatch_non_composite_models": "the name sdpa in a config",
    "test_sdpa_can_dispatch_composite_models": "the name sdpa in a config",
    "test_flash_attn_2_can_dispatch_composite_models": "the name flash_attention_2 in a config",
    "test_flash_attn_2_can_compile_with_attention_mask_None_without_graph_break":
        "torch.compile without a break of its graph",
}
# Of transformers' tests: words of an error of flashlab/operator/huggingface.py, and what is left out if they are in it.
REFUSALS = {
    "output_attentions=True": "attention weights",
    "attention_mask must be 2-D": "masks of four dimensions",
    "padding between tokens to keep": "padding between tokens under a window",
    "a pattern of its own": "tokens of an image that see one another",
    "some tokens of this model see the next one and some do not": "tokens of an image that see one another",
}


def refused(error):
    return next((what for words, what in REFUSALS.items() if words in error), None)


def why_not_class(cls):
    """Of transformers' classes of tests: those without the common tests load a model from its hub."""
    return None if hasattr(cls, "all_model_classes") else "weights of a trained model"


def why_not(test, parameters):
    """What flashlab has not got and this test wants, or None. test: its name without parameters"""
    if test in BY_TEST:
        return BY_TEST[test]
    for name, what in BY_PARAMETER.items():
        if parameters.get(name):
            return what
    if test == "test_flash_attn_varlen_causal" and parameters["paged_kv_block_size"]:
        return "a paged cache before packed queries"
    if test == "test_flash_attn_kvcache" and not parameters["causal"] and parameters["seqlen_q"] > 1:
        return "several queries before a cache, not causal: flash_attention_decode always is"
    return None


def length(parameters):
    """The longest sequence that a test is about; 0 if it has no parameter that says so."""
    return max((parameters.get(name, 0) for name in ("seqlen", "seqlen_q", "seqlen_k")), default=0)
