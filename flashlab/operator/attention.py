"""flash_attention(), and flash_attention_varlen() for packed sequences: the public operators.

Both check their arguments and call `torch.ops.flashlab.attention_forward`, which runs a backend. Autograd calls
`torch.ops.flashlab.attention_backward`, with Q, K, V, O and L, which it has kept. A call like one before is not checked
again: flashlab/kernels/plans.py has kept its launches.
"""

import numbers
from typing import NamedTuple

import torch

from flashlab import torch_internals
from flashlab.kernels import plans
from flashlab.operator import pick, torch_backend, transforms
from flashlab.triton_mode import import_triton, interpreted
from flashlab.validate import (
    MAX_HEAD_DIM,
    check_bool,
    check_cu_seqlens,
    check_dropout,
    check_heads,
    check_qkv,
    check_scale,
    check_window,
    describe,
)

BACKENDS = ("auto", "triton", "torch")
KERNELS = tuple(kernel.name for kernel in [*pick.KERNELS, pick.DECODE])
BACKWARD_KERNELS = tuple(kernel.name for kernel in pick.BACKWARD_KERNELS)


def flash_attention(
    Q, K, V, *, causal=False, window=None, scale=None, dropout_p=0.0, seed=None, return_lse=False, backend="auto",
    deterministic=None,
):
    """Exact attention that never stores S.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v) -> O (B, H_q, N_q, d_v) in Q's dtype;
             with return_lse also L (B, H_q, N_q), natural-log logsumexp, float32 (float64 for float64 inputs)
             any strides; H_q a multiple of H_kv, whose heads are shared and not copied
    Causal:  bottom-right aligned where N_q != N_k. A row that sees no key gives O = 0, L = -inf
    Window:  (left, right): query i sees keys i + N_k - N_q - left to i + N_k - N_q + right, -1 for no limit, and causal
             is right = 0. Tiles outside are skipped, forward and backward
    Dropout: seed decides which weights are dropped: the same seed and shapes drop the same ones. Without a seed one is
             drawn from PyTorch's generator of Q's device. No mask is stored. Triton only
    Gradient: of O and of L, once: a second derivative raises, and so does a forward-mode one. Nothing N x N is stored
    Autocast: inputs are cast to its dtype, as those of scaled_dot_product_attention, gradients back to the inputs'
    Scores:  float32: one beyond 3.4e38 is inf, and its row NaN; one below -3.4e38 is -inf and weighs nothing, as if it
             were hidden
    Deterministic: same inputs, same bits. The fastest kernels add up dQ in whatever order their programs finish.
             None: as torch.are_deterministic_algorithms_enabled() says
    Backend: "triton" runs the best of flashlab/kernels that takes the call, see `pick.pick`; a kernel's name that
             kernel, or raises; "torch" operator/torch_backend.py; "auto" see `pick_backend`
    Left out: ALiBi, soft-capped scores, biases and masks of any other shape, for which PyTorch's FlexAttention
             (torch.nn.attention.flex_attention) compiles a kernel. For sequences of different lengths see
             flash_attention_varlen, for a cache of keys flash_attention_decode
    Raises:  TypeError or ValueError before anything is launched; NotImplementedError for dropout without Triton
    Source:  Dao 2023, arXiv:2307.08691; the window as Beltagy, Peters, Cohan 2020, arXiv:2004.05150
    """
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    key = None
    if type(dropout_p) is float and dropout_p == 0.0:
        key = plans.key_of_call((causal, window, scale, seed, return_lse, backend, deterministic), Q, K, V)
    if key and (results := plans.again(key, ("O", "L"), {"Q": Q, "K": K, "V": V})):
        return results if return_lse else results[0]
    if torch_internals.autocast_is_on():
        Q, K, V = transforms.as_autocast(Q, K, V)
    check_qkv(Q, K, V, ndim=4)
    check_heads(Q, K)
    options = checked_options(Q, K, causal, window, scale, dropout_p, seed, return_lse, backend, deterministic)
    if key:
        O, L = plans.remember(key, {"Q": Q, "K": K, "V": V}, ATTENTION_FORWARD, Q, K, V, *options)
    else:
        O, L = ATTENTION_FORWARD(Q, K, V, *options)
    return (O, L) if return_lse else O


def flash_attention_varlen(
    Q, K, V, cu_seqlens_q, cu_seqlens_k, *, causal=False, window=None, scale=None, dropout_p=0.0, seed=None,
    return_lse=False, backend="auto", deterministic=None,
):
    """Exact attention within each of several sequences, which lie one after the other in the same tensors.

    Shapes:  Q (T_q, H_q, d), K (T_k, H_kv, d), V (T_k, H_kv, d_v) -> O (T_q, H_q, d_v) in Q's dtype, contiguous;
             with return_lse also L (H_q, T_q), natural-log logsumexp. Any strides; H_q a multiple of H_kv
             cu_seqlens_q, cu_seqlens_k (batch + 1,), int32, on Q's device: sequence s has the queries cu_seqlens_q[s]
             to cu_seqlens_q[s + 1] and the keys cu_seqlens_k[s] to cu_seqlens_k[s + 1]. Sequences may be empty
    Causal, window: within each sequence, aligned as flash_attention does, with the sequence's own N_q and N_k
    Rows:    beyond the last sequence: O = 0, L = -inf, gradients 0
    No wait: there are no longest lengths to pass, and no call waits for a GPU: the numbers in cu_seqlens are checked on
             the CPU only. On a GPU they should begin with 0 and never fall; others give meaningless results, but
             nothing outside of the tensors is read or written. The torch backend does wait: it computes one sequence
             after the other
    Dropout, gradient, deterministic, backend, left out, raises: as flash_attention
    Source:  Dao 2023, arXiv:2307.08691
    """
    if torch_internals.autocast_is_on():
        Q, K, V = transforms.as_autocast(Q, K, V)
    check_qkv(Q, K, V, ndim=3)
    Q, K, V = (T.transpose(0, 1)[None] for T in (Q, K, V))    # (1, H, T, d): one batch, in which sequences lie in a row
    check_heads(Q, K)
    check_cu_seqlens(cu_seqlens_q, cu_seqlens_k, Q, K)
    options = checked_options(Q, K, causal, window, scale, dropout_p, seed, return_lse, backend, deterministic)
    options = options._replace(cu_seqlens_q=cu_seqlens_q.contiguous(), cu_seqlens_k=cu_seqlens_k.contiguous())
    O, L = ATTENTION_FORWARD(Q, K, V, *options)
    O, L = O.squeeze(0).transpose(0, 1), L.squeeze(0)        # O[0] has a gradient that copies, a squeeze's is a view
    return (O, L) if return_lse else O


def checked_options(Q, K, causal, window, scale, dropout_p, seed, return_lse, backend, deterministic):
    """The Options of a call. Raises: TypeError or ValueError that names the argument"""
    causal, window = check_window(window, causal, Q.shape[2], K.shape[2])
    deterministic = torch.are_deterministic_algorithms_enabled() if deterministic is None else deterministic
    check_bool(return_lse=return_lse, deterministic=deterministic)
    check_dropout(dropout_p)
    scale = check_scale(scale, Q.shape[-1])
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, numbers.Integral)):
        raise TypeError(f"seed must be an integer or None, got {describe(seed)}")
    if backend not in BACKENDS + KERNELS + BACKWARD_KERNELS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)} or the name of a kernel, got {backend!r}")
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must fit in 64 bits, got {seed}")
    place = _seed_tensor(seed, Q.device) if dropout_p > 0 else None
    return Options(seed=place, causal=causal, scale=scale, dropout_p=float(dropout_p), backend=backend,
                   deterministic=deterministic, window=window)


def _seed_tensor(seed, device):
    """The seed where the kernels read it: on the device, so that drawing one does not wait for the GPU."""
    if seed is None:
        return torch.randint(2**63 - 1, (), device=device)
    return torch.full((), int(seed), dtype=torch.int64, device=device)


def pick_backend(device, dtype=torch.float16, d=64, dropout_p=0.0):
    """What "auto" runs for tensors of this device, dtype and largest head dimension: (name, why)."""
    device = torch.device(device)
    if device.type == "cpu" and dropout_p > 0 and dtype != torch.float64 and d <= MAX_HEAD_DIM and import_triton():
        return "triton", "only the kernels know dropout; on CPU tensors Triton interprets them, slowly"
    if device.type == "cpu":
        return "torch", "on CPU tensors a Triton kernel could only be interpreted, which is slower"
    if device.type != "cuda":
        return "torch", f"the kernel is for CUDA tensors, these are on {device.type}"
    if import_triton() is None:
        return "torch", "triton is not installed"
    capability = torch.cuda.get_device_capability(device)
    have = ".".join(map(str, capability))
    if interpreted():
        return "torch", "TRITON_INTERPRET is set, so Triton's kernels run on CPU tensors only"
    if capability < (8, 0) and torch.version.cuda:
        return "torch", f"Triton uses the tensor cores of GPUs of compute capability 8.0 or newer, this one has {have}"
    if dtype == torch.float64:
        return "torch", "the kernel computes in float32, the inputs are float64"
    if d > MAX_HEAD_DIM:
        return "torch", f"the kernel takes head dimensions up to {MAX_HEAD_DIM}, got {d}"
    return "triton", f"the kernel compiled for this GPU's compute capability, {have}"


class Options(NamedTuple):
    """What a call may choose, as both operators take it, after their tensors. A new option is a field here, an argument
    of flash_attention and of kernels/launch.check_call, and what the kernels make of it."""

    seed: torch.Tensor | None
    causal: bool
    scale: float
    dropout_p: float
    backend: str
    deterministic: bool
    window: list[int] | None = None                    # both limits, as check_window gives them
    cu_seqlens_q: torch.Tensor | None = None           # packed sequences; B is 1 then
    cu_seqlens_k: torch.Tensor | None = None

    @property
    def packed(self):
        return self.cu_seqlens_q is not None

    @property
    def masks(self):
        """As the torch backend takes them."""
        return {"causal": self.causal, "window": self.window, "scale": self.scale}

    @property
    def tensors(self):
        return {"seed": self.seed, "cu_seqlens_q": self.cu_seqlens_q, "cu_seqlens_k": self.cu_seqlens_k}

    @property
    def of_few(self):
        """window and cu_seqlens, which few kernels take; left out where unset."""
        few = {"window": self.window, "cu_seqlens_q": self.cu_seqlens_q, "cu_seqlens_k": self.cu_seqlens_k}
        return {name: value for name, value in few.items() if value is not None}

    @property
    def of_a_kernel(self):
        dropout = {"dropout_p": self.dropout_p, "seed": self.seed} if self.dropout_p > 0 else {}
        return {"causal": self.causal, "scale": self.scale} | self.of_few | dropout

    def key(self, name, *tensors):
        """The cache key of the operator of this name."""
        plain = self._replace(window=self.window and tuple(self.window), **dict.fromkeys(self.tensors))
        return plans.key((name, *plain), *tensors, *self.tensors.values())


SCHEMA_TYPES = {torch.Tensor | None: "Tensor?", bool: "bool", float: "float", str: "str", list[int] | None: "int[]?"}
OPTIONS = ", ".join(f"{SCHEMA_TYPES[kind]} {name}" for name, kind in Options.__annotations__.items())

# Defined with torch.library, so that torch.compile takes them whole, as one node of the graph.
torch.library.define("flashlab::attention_forward", f"(Tensor Q, Tensor K, Tensor V, {OPTIONS}) -> (Tensor, Tensor)")
torch.library.define("flashlab::attention_backward", "(Tensor Q, Tensor K, Tensor V, Tensor O, Tensor dO, Tensor L, "
                                                     f"Tensor? dL, {OPTIONS}) -> (Tensor, Tensor, Tensor)")
ATTENTION_FORWARD = torch.ops.flashlab.attention_forward.default
ATTENTION_BACKWARD = torch.ops.flashlab.attention_backward.default


@torch.library.impl("flashlab::attention_forward", "default")
def _(Q, K, V, *options):
    options = Options(*options)
    tensors = {"Q": Q, "K": K, "V": V} | options.tensors
    key = options.key("forward", Q, K, V)
    return plans.again(key, ("O", "L"), tensors) or plans.remember(key, tensors, _first_forward, Q, K, V, options)


@torch.library.impl("flashlab::attention_backward", "default")
def _(Q, K, V, O, dO, L, dL, *options):
    options = Options(*options)
    dO = dO.contiguous() if 0 in dO.stride() else dO   # of O.sum() it is one expanded number, which TMA cannot copy
    L, dL = L.contiguous(), None if dL is None else dL.contiguous()
    tensors = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, "dL": dL} | options.tensors
    key = options.key("backward", Q, K, V, O, dO, L, dL)
    return plans.again(key, ("dQ", "dK", "dV"), tensors) or plans.remember(
        key, tensors, _first_backward, Q, K, V, O, dO, L, dL, options)


@torch.library.register_fake("flashlab::attention_forward")
def _(Q, K, V, *options):
    """Shapes and dtypes alone: what torch.compile asks for while it traces."""
    return _empty(Q, V.shape[-1], Options(*options).packed), Q.new_empty(Q.shape[:3], dtype=dtype_of_L(Q))


@torch.library.register_fake("flashlab::attention_backward")
def _(Q, K, V, O, dO, L, dL, *options):
    return tuple(_empty(T, T.shape[-1], Options(*options).packed) for T in (Q, K, V))


def _empty(T, d, packed):
    """An output (B, H, N, d), contiguous; with packed sequences its transpose, (1, T, H, d), is."""
    B, H, N, _ = T.shape
    return T.new_empty(B, N, H, d).transpose(1, 2) if packed else T.new_empty(B, H, N, d)


class _Attention(torch_internals.Function):
    """The forward operator, and its gradients by the backward one."""

    @staticmethod
    def forward(ctx, Q, K, V, *options):
        options = Options(*options)
        with torch_internals.below_autograd():
            O, L = ATTENTION_FORWARD(Q, K, V, *options)
        ctx.save_for_backward(Q, K, V, O, L, *options.tensors.values())
        ctx.options = options._replace(**dict.fromkeys(options.tensors))
        ctx.set_materialize_grads(False)        # L seldom has a gradient, and zeros would have to be written and read
        return O, L

    @staticmethod
    def backward(ctx, dO, dL):
        """dO and dL are None where the loss does not depend on O or on L."""
        Q, K, V, O, L, *tensors = ctx.saved_tensors
        options = ctx.options._replace(**dict(zip(ctx.options.tensors, tensors, strict=True)))
        dO = torch.zeros_like(O) if dO is None else dO
        return *ATTENTION_BACKWARD(Q, K, V, O, dO, L, dL, *options), *[None] * len(options)


class _Gradients(torch_internals.Function):
    """The backward operator, which has no gradient of its own."""

    @staticmethod
    def forward(ctx, *arguments):
        with torch_internals.below_autograd():
            return ATTENTION_BACKWARD(*arguments)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("flash_attention is differentiable once: there is no kernel for its second derivative. "
                           "Leave out create_graph=True, or use flashlab.rungs.naive.naive_forward, whose operations "
                           "autograd knows.")


def _autograd(operator, function, n):
    """The autograd kernel of an operator of n tensors: function.apply if one of them requires a gradient."""
    def run(*arguments):
        tensors = [T for T in arguments[:n] if T is not None]
        if torch_internals.has_tangent(*tensors):
            raise NotImplementedError(
                "flash_attention has no forward-mode derivative, as jvp, jacfwd, linearize and forward_ad want. Use "
                "backward(), torch.func.grad, vjp or jacrev, or flashlab.rungs.naive.naive_forward, whose operations "
                "autograd knows.")
        if torch.is_grad_enabled() and any(T.requires_grad for T in tensors):
            return torch_internals.apply(function, *arguments)
        with torch_internals.below_autograd():
            return operator(*arguments)
    return run


LIBRARY = torch.library.Library("flashlab", "FRAGMENT")
LIBRARY.impl("attention_forward", _autograd(ATTENTION_FORWARD, _Attention, 3), "Autograd")
LIBRARY.impl("attention_backward", _autograd(ATTENTION_BACKWARD, _Gradients, 7), "Autograd")
torch.library.register_vmap(ATTENTION_FORWARD, transforms.vmap_rule(ATTENTION_FORWARD, 3, Options))
torch.library.register_vmap(ATTENTION_BACKWARD, transforms.vmap_rule(ATTENTION_BACKWARD, 7, Options))
transforms.register_flops(torch.ops.flashlab.attention_forward, torch.ops.flashlab.attention_backward, Options)


def _backend(Q, V, options):
    """"torch", "triton" or the name of a kernel. Raises: RuntimeError where Triton is wanted and absent"""
    if options.backend == "auto":
        return pick_backend(Q.device, Q.dtype, max(Q.shape[-1], V.shape[-1]), options.dropout_p)[0]
    if options.backend != "torch":
        needs_triton()
    return options.backend


def needs_triton():
    """Raise RuntimeError where Triton is not installed."""
    if import_triton() is None:
        raise RuntimeError(
            "backend='triton' needs triton, which is not installed and exists for Linux only. Use backend='torch' or "
            "'auto' here; on Linux run `pip install triton`; on Windows work in WSL, anywhere in a remote notebook.")


def _first_forward(Q, K, V, options):
    """O and L of a call whose launches are not known yet."""
    run = _run_torch if _backend(Q, V, options) == "torch" else _run_triton
    return run(Q, K, V, options)


def _first_backward(Q, K, V, O, dO, L, dL, options):
    """dQ, dK and dV of a call whose launches are not known yet."""
    run = _run_torch_backward if _backend(Q, V, options) == "torch" else _run_triton_backward
    return run(Q, K, V, O, dO, L, dL, options)


def _run_triton(Q, K, V, options):
    if options.backend in KERNELS:
        rung = pick.named(options.backend, dropout_p=options.dropout_p, **options.of_few)
    else:
        rung, _ = pick.pick(Q, K, V, causal=options.causal, dropout_p=options.dropout_p, **options.of_few)
    return rung.function(Q, K, V, **options.of_a_kernel)


def _run_triton_backward(Q, K, V, O, dO, L, dL, options):
    if options.backend in BACKWARD_KERNELS:
        rung = pick.named(options.backend, dropout_p=options.dropout_p, **options.of_few)
    else:
        rung, _ = pick.pick(Q, K, V, backward=True, causal=options.causal, dropout_p=options.dropout_p,
                            deterministic=options.deterministic, **options.of_few)
    return rung.function(Q, K, V, O, dO, L, dL=dL, deterministic=options.deterministic, **options.of_a_kernel)


def dtype_of_L(Q):
    return torch.float64 if Q.dtype == torch.float64 else torch.float32


def _run_torch(Q, K, V, options):
    if options.dropout_p > 0:
        raise NotImplementedError(
            f"only the Triton kernels have dropout, and backend 'torch' was to run, got dropout_p={options.dropout_p}, "
            f"{str(Q.dtype).removeprefix('torch.')} and d, d_v = {Q.shape[-1]}, {V.shape[-1]}. Pass dropout_p=0.0, use "
            f"backend='triton' in float16, bfloat16 or float32 with d and d_v up to {MAX_HEAD_DIM}, or see dropout in "
            "flashlab.rungs.fa1.fa1_forward."
        )
    O = _empty(Q, V.shape[-1], options.packed).zero_()                          # rows of no sequence stay as they are
    L = Q.new_full(Q.shape[:3], -torch.inf, dtype=dtype_of_L(Q))
    for rows, keys in _sequences(options):
        Q_s, O_s, L_s = (T[:, :, rows] for T in (Q, O, L))
        torch_backend.forward(Q_s, K[:, :, keys], V[:, :, keys], O_s, L_s, **options.masks)
    return O, L


def _run_torch_backward(Q, K, V, O, dO, L, dL, options):
    dQ = _empty(Q, Q.shape[-1], options.packed).zero_()
    dK, dV = (_empty(T.to(L.dtype), T.shape[-1], options.packed).zero_() for T in (K, V))  # sums over blocks of queries
    for rows, keys in _sequences(options):
        Q_s, O_s, dO_s, L_s, dQ_s = (T[:, :, rows] for T in (Q, O, dO, L, dQ))
        K_s, V_s, dK_s, dV_s = (T[:, :, keys] for T in (K, V, dK, dV))
        torch_backend.backward(Q_s, K_s, V_s, O_s, dO_s, L_s, None if dL is None else dL[:, :, rows], dQ_s, dK_s, dV_s,
                               **options.masks)
    return dQ, dK.to(K.dtype), dV.to(V.dtype)


def _sequences(options):
    """The rows of Q and the rows of K of each sequence."""
    if not options.packed:
        return [(slice(None), slice(None))]
    starts = options.cu_seqlens_q.tolist(), options.cu_seqlens_k.tolist()
    return zip(*(map(slice, cu[:-1], cu[1:]) for cu in starts), strict=True)
