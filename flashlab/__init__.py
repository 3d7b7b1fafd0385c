"""flashlab: FlashAttention from softmax(QK^T)V to a GPU kernel, one measured rung at a time."""

import os
import sys

import torch

__version__ = "0.1.0"

if not torch.cuda.is_available() and "triton" not in sys.modules:
    # Triton reads the variable while it is imported: without a GPU its kernels run in the interpreter, or not at all.
    # If Triton was imported first, as transformers does, only the kernels fail: see triton_mode.why_no_kernels().
    os.environ.setdefault("TRITON_INTERPRET", "1")


def __getattr__(name):
    # loaded on first use: `import flashlab` stays as cheap as torch
    if name in ("flash_attention", "flash_attention_varlen"):
        from flashlab.operator import attention

        return getattr(attention, name)
    if name == "flash_attention_decode":
        from flashlab.operator import decoding

        return decoding.flash_attention_decode
    raise AttributeError(f"module 'flashlab' has no attribute {name!r}")
