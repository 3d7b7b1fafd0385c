"""Is Triton installed, and are its kernels interpreted on the CPU or compiled for a GPU? It imports no kernel."""

import os

import torch

from flashlab.validate import describe


def import_triton():
    """The module, or None where it is not installed: it has wheels for Linux only."""
    try:
        import triton
    except ImportError:
        return None
    return triton


def interpreted():
    """True if Triton's interpreter runs kernels here, on CPU tensors: TRITON_INTERPRET was set as it was imported."""
    triton = import_triton()
    return triton is not None and not isinstance(triton.language.cdiv, triton.JITFunction)    # a kernel of Triton's own


def why_no_kernels():
    """Why Triton can run no kernel in this process, and what to do; "" where it can."""
    if import_triton() is None:
        return "Triton is not installed"
    if interpreted() or torch.cuda.is_available():
        return ""
    if "TRITON_INTERPRET" in os.environ:
        return (f"there is no GPU, and TRITON_INTERPRET={os.environ['TRITON_INTERPRET']} as Triton was imported "
                "forbade its interpreter: unset it and restart Python")
    return ("there is no GPU, and Triton was imported before flashlab, which would have asked for its interpreter: "
            "restart the kernel (or the Python process) and import flashlab first")


def check_device(name, T):
    """Raise RuntimeError if no kernel runs here, ValueError unless T is on the CPU if interpreted, else on a GPU."""
    if why := why_no_kernels():
        raise RuntimeError(f"Triton's kernels cannot run in this process: {why}")
    if T.device.type != ("cpu" if interpreted() else "cuda"):
        where = "a GPU, for which Triton compiles it"
        if interpreted():
            where = "the CPU, where Triton's interpreter runs it"
        raise ValueError(f"{name} must be on {where} (TRITON_INTERPRET decides, on import), got {describe(T)}")
