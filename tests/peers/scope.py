"""Which of the peers' tests ask for something that flashlab has not got: known before they run, so that they need not."""

BY_PARAMETER = {           # of flash-attention's tests: the name of a parameter, what is left out if it is set
    "alibi": "ALiBi",
    "softcap": "capped scores",
    "rotary_fraction": "rotary positions inside the attention",
    "has_leftpad": "padding on the left of a cache",
}
BY_TEST = {
    "test_flash_attn_varlen_paged_kv_num_splits": "a private function of flash-attention, _flash_attn_varlen_forward",
    "test_flash_attn_generator_arg_must_be_none": "a private function of flash-attention, flash_attn_gpu.fwd and its kin",
    "test_flash_attn_kvcache_paged_block_table_bounds":
        "an error for lengths beyond the cache on a GPU, which flash_attention_decode does not wait for",
}


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
