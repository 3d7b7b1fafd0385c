"""Triton's two ways to run a kernel, interpreted or compiled: which it is here, what a run did, what a GPU would make of it."""

from flashlab.validate import describe


def import_triton():
    """The module, or None where it is not installed: it has wheels for Linux only."""
    try:
        import triton
    except ImportError:
        return None
    return triton


def interpreted():
    """True if Triton's interpreter runs kernels here, on CPU tensors: TRITON_INTERPRET decided it as triton was imported.

    False where kernels are compiled for a GPU, and where Triton is not installed.
    """
    triton = import_triton()
    return triton is not None and not isinstance(triton.language.cdiv, triton.JITFunction)    # a kernel of Triton's own


def check_device(name, T):
    """Raise ValueError unless T is where kernels run here: on the CPU if they are interpreted, else on a GPU."""
    if T.device.type != ("cpu" if interpreted() else "cuda"):
        where = "the CPU, where Triton's interpreter runs it" if interpreted() else "a GPU, for which Triton compiles it"
        raise ValueError(f"{name} must be on {where} (TRITON_INTERPRET decides, on import), got {describe(T)}")
