"""flashlab: FlashAttention from softmax(QK^T)V to a GPU kernel, one measured rung at a time."""

import os
import sys

import torch

if not torch.cuda.is_available() and "TRITON_INTERPRET" not in os.environ:
    # Triton reads the variable while it is imported: without a GPU its kernels run in the interpreter, or not at all.
    if "triton" in sys.modules:
        raise ImportError(
            "triton was imported before flashlab, so its kernels cannot run on this machine's CPU. "
            "Restart the kernel (or the Python process) and import flashlab first."
        )
    os.environ["TRITON_INTERPRET"] = "1"


def __getattr__(name):
    if name in ("flash_attention", "flash_attention_varlen"):      # loaded on first use: `import flashlab` stays as cheap as torch
        from flashlab import attention

        return getattr(attention, name)
    raise AttributeError(f"module 'flashlab' has no attribute {name!r}")
