"""Is Triton installed, and are its kernels interpreted on the CPU or compiled for a GPU? It imports no kernel."""

import os
import re

import numpy
import torch

OLDEST = (8, 0)                        # compute capability of a GPU that Triton compiles for


def release(version):
    """(3, 6) of "3.6.0+cu130": enough to compare releases."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


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


def compiles_here():
    """Is there a GPU that Triton compiles for?"""
    return torch.cuda.is_available() and not too_old()


def too_old(device=None):
    """Why Triton does not compile for this GPU, the current one by default; "" where it does."""
    if not torch.version.cuda:                         # AMD's GPUs count otherwise
        return ""
    have = torch.cuda.get_device_capability(device)
    if have >= OLDEST:
        return ""
    return "this GPU has compute capability {}.{}, and Triton needs {}.{}".format(*have, *OLDEST)


def kernel_device():
    """Where the course's kernels run: "cuda", or "cpu" if they are interpreted or Triton is not for this GPU."""
    return "cuda" if compiles_here() and not interpreted() else "cpu"


def why_no_kernels():
    """Why Triton can run no kernel in this process, and what to do; "" where it can."""
    triton = import_triton()
    if triton is None:
        return "Triton is not installed"
    if interpreted():
        if release(triton.__version__) >= (3, 7) or release(numpy.__version__) < (2, 4):
            return ""
        return f"Triton {triton.__version__}'s interpreter fails with NumPy {numpy.__version__}: install numpy<2.4"
    if compiles_here():
        return ""
    no_gpu = too_old() if torch.cuda.is_available() else "there is no GPU"
    if "TRITON_INTERPRET" in os.environ:
        return (f"{no_gpu}, and TRITON_INTERPRET={os.environ['TRITON_INTERPRET']} as Triton was imported "
                "forbade its interpreter: unset it and restart Python")
    return (f"{no_gpu}, and Triton was imported before flashlab, which would have asked for its interpreter: "
            "restart the kernel (or the Python process) and import flashlab first")


def check_device(name, T):
    """Raise RuntimeError if no kernel runs here, ValueError unless T is on the CPU if interpreted, else on a GPU."""
    if why := why_no_kernels():
        raise RuntimeError(f"Triton's kernels cannot run in this process: {why}")
    if T.device.type != ("cpu" if interpreted() else "cuda"):
        where = "a GPU, for which Triton compiles it"
        if interpreted():
            where = "the CPU, where Triton's interpreter runs it"
        why = T.is_cuda and too_old(T.device) or "TRITON_INTERPRET decides, on import"
        raise ValueError(f"{name} must be on {where} ({why}), got one on {T.device}")
