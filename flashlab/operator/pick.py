"""Which kernel flash_attention runs for a call, and why not the others."""

from flashlab.ladder import BACKWARD_KERNELS, DECODE, KERNELS

SMALL = 2**22              # scores: a GPU computes as many in the microseconds that a descriptor takes
FEW_ROWS, MANY_KEYS = 64, 1024             # where sharing out the keys pays: rows that read the same key head, and keys


def pick(Q, K, V, *, backward=False, **options):
    """The kernel that flash_attention runs for a call, and why not each of those above it: (rung, {name: reason})."""
    kernels, reasons = BACKWARD_KERNELS if backward else KERNELS, {}
    small = Q.shape[0] * Q.shape[1] * Q.shape[2] * K.shape[2] < SMALL
    if not Q.is_cuda:                                  # interpreted: speed says nothing, and the first is the one to read
        return kernels[0], reasons
    for kernel in reversed(kernels[1:] + ([DECODE] if not backward and decodes(Q, K) else [])):
        unproven = None if kernel.proven else "it has not been held against float64 on a GPU yet"
        slower = "the one before it is faster" if kernel.detour else None
        if small and kernel.by_tma:
            slower = "to prepare TMA's descriptors takes longer than so small a call"
        reason = kernel.why_not(Q, K, V, **options) or unproven or slower
        if reason is None:
            return kernel, reasons
        reasons[kernel.name] = reason
    return kernels[0], reasons                         # it takes everything that a kernel may be given


def decodes(Q, K):
    """Whether a call has so few queries and so many keys that the keys should be shared out."""
    return Q.shape[2] * Q.shape[1] <= FEW_ROWS * K.shape[1] and K.shape[2] >= MANY_KEYS


def explain(Q, K, V, *, backward=False, **options):
    """`pick` in words, a line each."""
    kernel, reasons = pick(Q, K, V, backward=backward, **options)
    return "\n".join([f"{kernel.name} runs", *(f"not {name}: {reason}" for name, reason in reasons.items())])
