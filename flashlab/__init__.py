"""flashlab: FlashAttention from softmax(QK^T)V to a GPU kernel, one measured rung at a time."""

import os
import signal
import sys

_typed = "".join(sys.orig_argv[-len(sys.argv):][:1])        # flashlab after -m, or the path of the script of that name
if os.path.basename(_typed) == "flashlab" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Importing torch takes seconds, in which Ctrl-C would end in a long traceback. main() puts Python's handler back.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from flashlab.triton_mode import compiles_here  # noqa: E402

__version__ = "0.1.0"

if "triton" not in sys.modules and not compiles_here():
    # Triton reads the variable while it is imported. Without a GPU, or with one that is too old for it, as Colab's T4,
    # its kernels run in the interpreter, or not at all.
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
