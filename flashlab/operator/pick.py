"""Which kernel flash_attention runs for a call, and why not the others.

The ladder's kernels are dense or causal. Windows, packed sequences and dropout have kernels of the operator's own.
"""

from flashlab import cost, ladder
from flashlab.ladder import DECODE, TRITON, Rung

WINDOWS = Rung(0, "windows_forward", "flashlab.operator.windows", "windows", "13", cost.fa2_forward, "#7A1FA2", "x",
               "fa2_triton_forward with windows, packed sequences and dropout", **TRITON)
WINDOWS_BACKWARD = Rung(0, "windows_backward", "flashlab.operator.windows_backward", "windows", "13",
                        cost.fa2_backward_two_pass, "#7A1FA2", "x",
                        "fa2_triton_backward with windows, packed sequences and dropout", **TRITON)
WIDE_BACKWARD = Rung(0, "wide_backward", "flashlab.operator.wide_backward", "wide heads", "13", cost.fa2_backward,
                     "#17807E", "x", "fa2_tma_backward with windows, for heads wider than 128", by_tma=True, **TRITON)

# On a GPU the last kernel that takes a call runs; WINDOWS takes every call.
KERNELS = [ladder.KERNELS[0], WINDOWS, *ladder.KERNELS[1:]]
BACKWARD_KERNELS = [ladder.BACKWARD_KERNELS[0], WINDOWS_BACKWARD, *ladder.BACKWARD_KERNELS[1:], WIDE_BACKWARD]
ALL = {kernel.name: kernel for kernel in [*KERNELS, *BACKWARD_KERNELS, DECODE]}

# The options that each kernel takes besides causal and scale
TAKES = {"windows_forward": ("window", "packed sequences", "dropout"),
         "windows_backward": ("window", "packed sequences", "dropout"), "wide_backward": ("window",),
         "fa2_triton_forward": ("dropout",), "fa2_triton_backward": ("dropout",),
         "fa2_hopper_forward": ("window", "packed sequences"), "fa2_hopper_backward": ("window", "packed sequences"),
         "fa2_decode_forward": ("window",)}

SMALL = 2**22              # scores: a GPU computes as many in the microseconds that a descriptor takes
FEW_ROWS, MANY_KEYS = 64, 1024             # decoding pays for so few rows of a key head and so many keys


def pick(Q, K, V, *, backward=False, **options):
    """The kernel that flash_attention runs for a call, and why not each of those above it: (rung, {name: reason}).

    options: those of the call among causal, dropout_p, window, cu_seqlens_q, cu_seqlens_k and, backward, deterministic
    """
    kernels, reasons = BACKWARD_KERNELS if backward else KERNELS, {}
    if not Q.is_cuda:                                  # interpreted: speed says nothing, the first is the one to read
        return kernels[1 if lacks(kernels[0], **options) else 0], reasons
    small = Q.shape[0] * Q.shape[1] * Q.shape[2] * K.shape[2] < SMALL
    decodes = Q.shape[2] * Q.shape[1] <= FEW_ROWS * K.shape[1] and K.shape[2] >= MANY_KEYS
    for kernel in reversed(kernels[2:] + ([DECODE] if decodes and not backward else [])):
        reason = why_not(kernel, Q, K, V, **options)
        if not reason and not kernel.proven:
            reason = "it has not been held against float64 on a GPU yet"
        elif not reason and small and kernel.by_tma:
            reason = "to prepare TMA's descriptors takes longer than so small a call"
        if not reason:
            return kernel, reasons
        reasons[kernel.name] = reason
    return kernels[1], reasons


def choose(name, Q, K, V, *, backward=False, **options):
    """The kernel of that name; `pick`'s where no kernel of this direction has it. Raises: ValueError as `lacks`"""
    for kernel in BACKWARD_KERNELS if backward else [*KERNELS, DECODE]:
        if kernel.name == name:
            if reason := lacks(kernel, **options):
                raise ValueError(f"{name} does not take the call: {reason}")
            return kernel
    return pick(Q, K, V, backward=backward, **options)[0]


def why_not(kernel, Q, K, V, **options):
    """Why a kernel does not take a call on this GPU, in words; None where it does."""
    return lacks(kernel, **options) or kernel.why_not(Q, K, V, **options)


def lacks(kernel, *, window=None, cu_seqlens_q=None, dropout_p=0.0, **options):
    """The first of the options asked for that a kernel does not take, in words; None where it takes them all."""
    asked = {"window": window is not None, "packed sequences": cu_seqlens_q is not None, "dropout": dropout_p > 0}
    return next((f"it takes no {name}" for name, there in asked.items()
                 if there and name not in TAKES.get(kernel.name, ())), None)


def explain(Q, K, V, *, backward=False, **options):
    """`pick` in words, a line each."""
    kernel, reasons = pick(Q, K, V, backward=backward, **options)
    return "\n".join([f"{kernel.name} runs", *(f"not {name}: {reason}" for name, reason in reasons.items())])
