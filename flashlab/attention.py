"""flash_attention(): the one public operator, over the best kernel there is.

`flash_attention` checks its arguments and calls `torch.ops.flashlab.attention_forward`, which picks a backend and runs it.
The operator is registered with torch.library, so torch.compile and opcheck take it whole, as one node of the graph.
"""

import torch

from flashlab.validate import (
    check_bool,
    check_dropout,
    check_heads,
    check_qkv,
    check_scale,
    describe,
)

BACKENDS = ("auto", "triton", "torch")


def flash_attention(
    Q, K, V, *, causal=False, scale=None, dropout_p=0.0, seed=None, return_lse=False, backend="auto"
):
    """Exact attention that never stores S.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v) -> O (B, H_q, N_q, d_v) in Q's dtype;
             with return_lse also L (B, H_q, N_q), natural-log logsumexp, float32 (float64 for float64 inputs)
             any strides; H_q a multiple of H_kv, whose heads are shared and not copied
    Causal:  bottom-right aligned where N_q != N_k. A row that sees no key gives O = 0, L = -inf
    Backend: "triton" runs the kernel of flashlab/kernels, "torch" the rung of flashlab/fa2.py, "auto" see `pick_backend`
    Raises:  TypeError or ValueError before anything is launched; NotImplementedError for dropout and for gradients
    Source:  Dao 2023, arXiv:2307.08691
    """
    check_qkv(Q, K, V, ndim=4)
    check_heads(Q, K)
    check_bool(causal=causal, return_lse=return_lse)
    check_dropout(dropout_p)
    scale = check_scale(scale, Q.shape[-1])
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"seed must be an integer or None, got {describe(seed)}")
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if dropout_p > 0:
        raise NotImplementedError(
            f"flash_attention has no dropout yet, got dropout_p={dropout_p}. Pass dropout_p=0.0, or see dropout at work "
            "in flashlab.fa1.fa1_forward."
        )
    if torch.is_grad_enabled() and (Q.requires_grad or K.requires_grad or V.requires_grad):
        raise NotImplementedError(
            "flash_attention has no backward pass yet, and an input requires grad. Call it under torch.no_grad(), "
            "detach the inputs, or use torch.nn.functional.scaled_dot_product_attention where you need gradients."
        )
    O, L = torch.ops.flashlab.attention_forward(Q, K, V, causal, scale, backend)
    return (O, L) if return_lse else O


def pick_backend(device, dtype=torch.float16, d=64):
    """What "auto" runs for tensors of this device, dtype and largest head dimension: (name, why)."""
    device = torch.device(device)
    if device.type == "cpu":
        return "torch", "on CPU tensors a Triton kernel could only be interpreted, which is slower"
    if device.type != "cuda":
        return "torch", f"the kernel is for CUDA tensors, these are on {device.type}"
    try:
        from flashlab.kernels import fa2
    except ImportError:
        return "torch", "triton is not installed"
    capability = torch.cuda.get_device_capability(device)
    if fa2.INTERPRETED:
        return "torch", "TRITON_INTERPRET is set, so Triton's kernels run on CPU tensors only"
    if capability < (8, 0) and torch.version.cuda:
        have = ".".join(map(str, capability))
        return "torch", f"Triton uses the tensor cores of GPUs of compute capability 8.0 or newer, this one has {have}"
    if dtype == torch.float64:
        return "torch", "the kernel computes in float32, the inputs are float64"
    if d > fa2.MAX_HEAD_DIM:
        return "torch", f"the kernel takes head dimensions up to {fa2.MAX_HEAD_DIM}, got {d}"
    return "triton", f"the kernel compiled for {torch.cuda.get_device_name(device)}"


@torch.library.custom_op("flashlab::attention_forward", mutates_args=())
def attention_forward(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, causal: bool, scale: float, backend: str
) -> tuple[torch.Tensor, torch.Tensor]:
    if backend == "auto":
        backend, _ = pick_backend(Q.device, Q.dtype, max(Q.shape[-1], V.shape[-1]))
    run = _run_triton if backend == "triton" else _run_torch
    return run(Q, K, V, causal, scale)


@attention_forward.register_fake
def _(Q, K, V, causal, scale, backend):
    """Shapes and dtypes alone: what torch.compile asks for while it traces."""
    shape = (*Q.shape[:3], V.shape[-1])
    return Q.new_empty(shape), Q.new_empty(shape[:3], dtype=_dtype_of_L(Q))


def _dtype_of_L(Q):
    return torch.float64 if Q.dtype == torch.float64 else torch.float32


def _run_triton(Q, K, V, causal, scale):
    try:
        from flashlab.kernels.fa2 import fa2_triton_forward
    except ImportError as error:
        raise RuntimeError(
            "backend='triton' needs triton, which is not installed and exists for Linux only. Use backend='torch' or "
            "'auto' here; on Linux run `pip install triton`; on Windows work in WSL, anywhere in a remote notebook."
        ) from error
    return fa2_triton_forward(Q, K, V, causal=causal, scale=scale)


def _run_torch(Q, K, V, causal, scale):
    from flashlab.fa2 import fa2_forward

    B, H_q, N_q, _ = Q.shape
    O = Q.new_empty(B, H_q, N_q, V.shape[-1])
    L = Q.new_empty(B, H_q, N_q, dtype=_dtype_of_L(Q))
    for b in range(B):
        for h in range(H_q):
            h_kv = h // (H_q // K.shape[1])
            O[b, h], L[b, h] = fa2_forward(Q[b, h], K[b, h_kv], V[b, h_kv], causal=causal, scale=scale)
    return O, L
