"""transformers' own tests: where they ask for sdpa or flash_attention_2, a model gets flashlab, by its own name.

plugin.py calls `install` before it collects the tests. What flashlab refuses in words skips a test, if scope.py knows
the words.
"""

import functools

import pytest
import scope
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, testing_utils

from flashlab.operator import huggingface

UNWANTED = "require_flash_attn", "require_torch_accelerator", "require_torch_gpu", "slow"
calls = 0                                              # of flashlab's attention, ever


def install():
    huggingface.register()
    AttentionInterface.register(huggingface.NAME, counted(in_words(huggingface.attention)))
    AttentionMaskInterface.register(huggingface.NAME, in_words(huggingface.mask))
    theirs = PreTrainedModel._check_and_adjust_attn_implementation    # private, and where each model's choice comes by

    def ours(self, name, *args, **options):
        if name != "flash_attention_2":                # whose package is not installed
            name = theirs(self, name, *args, **options)
        return huggingface.NAME if name in ("sdpa", "flash_attention_2") else name

    PreTrainedModel._check_and_adjust_attn_implementation = ours
    for name in UNWANTED:                              # what flash_attention_2 wants, flashlab does not
        setattr(testing_utils, name, lambda test: test)
    testing_utils.is_flaky = lambda *_, **__: lambda test: test        # a test runs once, and so fails if it fails once


def counted(function):
    @functools.wraps(function)
    def call(*args, **options):
        global calls
        calls += 1
        return function(*args, **options)

    return call


def in_words(function):
    @functools.wraps(function)
    def call(*args, **options):
        try:
            return function(*args, **options)
        except ValueError as error:
            if why := scope.refused(str(error)):
                pytest.skip(f"flashlab has not got {why}")
            raise

    return call
