"""flash_attention(), and flash_attention_varlen() for packed sequences: the public operators.

Both check their arguments and call `torch.ops.flashlab.attention_forward`, which runs a backend. Autograd calls
`torch.ops.flashlab.attention_backward` with the saved Q, K, V, O and L. A call like an earlier one is not checked
again: kernels/plans.py has kept its launches.
"""

from typing import NamedTuple

import torch

from flashlab import torch_internals, validate
from flashlab.kernels import plans
from flashlab.operator import pick, torch_backend, transforms
from flashlab.triton_mode import import_triton, interpreted, too_old

BACKENDS = ("auto", "triton", "torch")


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
    Dropout: the same seed and shapes drop the same weights. Without a seed one is drawn from PyTorch's generator of Q's
             device. No mask is stored. Triton only
    Gradient: of O and of L, once: a second derivative raises, and so does a forward-mode one. Nothing N x N is stored
    Autocast: as scaled_dot_product_attention: inputs are cast to its dtype, gradients back to the inputs' dtypes
    Scores:  float32, so the relative error of a weight is about 1e-7 times its row's largest score. Where that score is
             beyond 1e8, the row may come out as 0 or NaN. scale is at most 1e8 in size
    Deterministic: same inputs, same bits. The fastest kernels add up dQ in whatever order their programs finish.
             None: as torch.are_deterministic_algorithms_enabled() says
    Backend: "triton" runs the best kernel that takes the call, see `pick.pick`; a kernel's name runs that kernel, or
             raises; "torch" runs operator/torch_backend.py; for "auto" see `pick_backend`
    Left out: ALiBi, soft-capped scores, biases and other masks, for which PyTorch's FlexAttention
             (torch.nn.attention.flex_attention) compiles a kernel. For sequences of different lengths see
             flash_attention_varlen, for a cache of keys flash_attention_decode
    Raises:  TypeError or ValueError before anything is launched; NotImplementedError for dropout without Triton
    Source:  Dao 2023, arXiv:2307.08691; the window as Beltagy, Peters, Cohan 2020, arXiv:2004.05150
    """
    options = Options(seed, causal, scale, dropout_p, backend, in_order(deterministic), window)
    O, L = _attend(return_lse, options, 4, Q, K, V)
    return (O, L) if return_lse else O


def flash_attention_varlen(
    Q, K, V, cu_seqlens_q, cu_seqlens_k, *, causal=False, window=None, scale=None, dropout_p=0.0, seed=None,
    return_lse=False, backend="auto", deterministic=None,
):
    """Exact attention within each of several sequences, which lie one after the other in the same tensors.

    Shapes:  Q (T_q, H_q, d), K (T_k, H_kv, d), V (T_k, H_kv, d_v) -> O (T_q, H_q, d_v) in Q's dtype, contiguous;
             with return_lse also L (H_q, T_q), natural-log logsumexp. Any strides; H_q a multiple of H_kv
             cu_seqlens_q, cu_seqlens_k (batch + 1,), int32, on Q's device: sequence s has the queries cu_seqlens_q[s]
             to cu_seqlens_q[s + 1] and the keys cu_seqlens_k[s] to cu_seqlens_k[s + 1]. Sequences may be empty,
             and there may be none
    Causal, window: within each sequence, aligned as flash_attention does, with the sequence's own N_q and N_k
    Rows:    beyond the last sequence: O = 0, L = -inf, gradients 0
    No wait: no call waits for a GPU, so the numbers in cu_seqlens are checked on the CPU only. On a GPU wrong numbers
             give meaningless results, but nothing outside of the tensors is read or written. The torch backend does
             wait: it computes one sequence after the other
    Dropout, gradient, deterministic, backend, left out, raises: as flash_attention
    Source:  Dao 2023, arXiv:2307.08691
    """
    options = Options(seed, causal, scale, dropout_p, backend, in_order(deterministic), window, cu_seqlens_q,
                      cu_seqlens_k)
    O, L = _attend(return_lse, options, 3, Q, K, V)
    O, L = O.squeeze(0).transpose(0, 1), L.squeeze(0)              # the gradient of O[0] would be a copy
    return (O, L) if return_lse else O


def _attend(return_lse, options, ndim, Q, K, V):
    """O (B, H, N, d_v) and L (B, H, N). ndim: 4, or 3 where Q, K and V are packed, and B is 1"""
    validate.check_bool(return_lse=return_lse)
    Q, K, V = transforms.as_autocast(Q, K, V)
    key, tensors = None, {"Q": Q, "K": K, "V": V} | options.tensors
    if options.dropout_p == 0:                         # with dropout each call needs its own seed
        key = plans.key_of_call((ndim, *options.plain), *tensors.values())
    if key is not None and plans.recorded(Q, K, V):
        return _Recorded.apply(key, options, ndim, Q, K, V)
    return plans.call(key, ("O", "L"), tensors, _forward, options, ndim, Q, K, V)


def _forward(options, ndim, Q, K, V):
    """O and L of a call that is checked first."""
    return ATTENTION_FORWARD(*_checked_call(options, ndim, Q, K, V))


def _backward(options, ndim, Q, K, V, *others):
    """dQ, dK and dV of such a call. others: O, dO, L, dL"""
    Q, K, V, *options = _checked_call(options, ndim, Q, K, V)
    return ATTENTION_BACKWARD(Q, K, V, *others, *options)


def _checked_call(options, ndim, Q, K, V):
    """The arguments of the forward operator for a call. Raises TypeError or ValueError that names the argument."""
    validate.check_qkv(Q, K, V, ndim=ndim)
    if ndim == 3:
        if options.backend not in ("auto", "torch"):   # checked here as well, for the shape in the message
            validate.check_for_kernels(Q, V)
        Q, K, V = (T.transpose(0, 1)[None] for T in (Q, K, V))     # (1, H, T, d): one batch holds all sequences
        validate.check_cu_seqlens(*options[-2:], Q, K)
        options = Options(*options[:-2], *(T.contiguous() for T in options[-2:]))
    return Q, K, V, *checked(Q, K, options)


def in_order(deterministic):
    """Whether sums must come in one order, by what a caller has said or, by default, PyTorch's setting."""
    return torch.are_deterministic_algorithms_enabled() if deterministic is None else deterministic


def checked(Q, K, options):
    """Options as the kernels take them, of a call whose tensors have been checked; the seed may be an integer there.

    Raises: TypeError or ValueError that names the argument
    """
    seed, causal, scale, dropout_p, backend, deterministic, window, *cu_seqlens = options
    validate.check_heads(Q, K)
    causal, window = validate.check_window(window, causal, Q.shape[2], K.shape[2])
    validate.check_bool(deterministic=deterministic)
    validate.check_dropout(dropout_p)
    scale = validate.check_scale(scale, Q.shape[-1])
    if backend not in (*BACKENDS, *pick.ALL):
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)} or the name of a kernel, got {backend!r}")
    if not (seed is None or isinstance(seed, torch.Tensor)):
        if not validate.is_integer(seed):
            raise TypeError(f"seed must be an integer or None, got {validate.describe(seed)}")
        if not -(2**63) <= seed < 2**63:
            raise ValueError(f"seed must fit in 64 bits, got {seed}")
        seed = torch.full((), int(seed), device=Q.device) if dropout_p > 0 else None
    elif seed is None and dropout_p > 0:               # a tensor: to read a number would wait for the GPU
        seed = torch.randint(2**63 - 1, (), device=Q.device)
    return Options(seed, causal, scale, float(dropout_p), backend, deterministic, window, *cu_seqlens)


def pick_backend(device, dtype=torch.float16, d=64, dropout_p=0.0):
    """What "auto" runs for tensors of this device, dtype and largest head dimension: (name, why)."""
    device, wide = torch.device(device), d > validate.MAX_HEAD_DIM
    if device.type == "cpu" and dropout_p > 0 and dtype != torch.float64 and not wide and import_triton():
        return "triton", "only the kernels know dropout; on CPU tensors Triton interprets them, slowly"
    if device.type == "cpu":
        return "torch", "on CPU tensors a Triton kernel could only be interpreted, which is slower"
    if device.type != "cuda":
        return "torch", f"the kernel is for CUDA tensors, these are on {device.type}"
    if import_triton() is None:
        return "torch", "triton is not installed"
    if reason := too_old(device):
        return "torch", reason
    if interpreted():
        return "torch", "TRITON_INTERPRET is set, so Triton's kernels run on CPU tensors only"
    if dtype == torch.float64:
        return "torch", "the kernel computes in float32, the inputs are float64"
    if wide:
        return "torch", f"the kernel takes head dimensions up to {validate.MAX_HEAD_DIM}, got {d}"
    have = ".".join(map(str, torch.cuda.get_device_capability(device)))
    return "triton", f"the kernel compiled for this GPU's compute capability, {have}"


def backend_for(backend, Q, V, dropout_p=0.0):
    """"torch", "triton" or the name of a kernel. Raises: RuntimeError where Triton is wanted and absent"""
    if backend == "auto":
        return pick_backend(Q.device, Q.dtype, max(Q.shape[-1], V.shape[-1]), dropout_p)[0]
    if backend != "torch" and import_triton() is None:
        raise RuntimeError(
            "backend='triton' needs triton, which is not installed and exists for Linux only. Use backend='torch' or "
            "'auto' here; on Linux run `pip install triton`; on Windows work in WSL, anywhere in a remote notebook.")
    return backend


# ---- the operators, defined with torch.library, so that torch.compile takes them whole, as one node of the graph


class Options(NamedTuple):
    """The arguments of both operators after their tensors. A new option is a field here, a word of SCHEMA, and an
    argument of flash_attention and of kernels/launch.check_call."""

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
    def tensors(self):
        return {"seed": self.seed, "cu_seqlens_q": self.cu_seqlens_q, "cu_seqlens_k": self.cu_seqlens_k}

    @property
    def of_kernels(self):
        """The options that a kernel's function takes. Few take window, cu_seqlens and dropout: left out if unset."""
        unset = {"dropout_p", "seed"} if self.dropout_p == 0 else ()
        return {name: value for name, value in self._asdict().items()
                if value is not None and name not in {"backend", "deterministic", *unset}}

    @property
    def plain(self):
        """What is no tensor: numbers, words and None, also the window's limits."""
        return self[1:6] + (tuple(self.window) if type(self.window) in (tuple, list) else (self.window,))

    def key(self, name, *tensors):
        """The cache key of the operator of this name."""
        return plans.key((name, *self.plain), *tensors, *self.tensors.values())


SCHEMA = ("Tensor? seed, bool causal, float scale, float dropout_p, str backend, bool deterministic, int[]? window, "
          "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k")
torch.library.define("flashlab::attention_forward", f"(Tensor Q, Tensor K, Tensor V, {SCHEMA}) -> (Tensor, Tensor)")
torch.library.define("flashlab::attention_backward", "(Tensor Q, Tensor K, Tensor V, Tensor O, Tensor dO, Tensor L, "
                                                     f"Tensor? dL, {SCHEMA}) -> (Tensor, Tensor, Tensor)")
ATTENTION_FORWARD = torch.ops.flashlab.attention_forward.default
ATTENTION_BACKWARD = torch.ops.flashlab.attention_backward.default


@torch.library.impl("flashlab::attention_forward", "default")
def _(Q, K, V, *options):
    options = Options(*options)
    tensors = {"Q": Q, "K": K, "V": V} | options.tensors
    return plans.call(options.key("forward", Q, K, V), ("O", "L"), tensors, run_forward, Q, K, V, options)


@torch.library.impl("flashlab::attention_backward", "default")
def _(Q, K, V, O, dO, L, dL, *options):
    options = Options(*options)
    dO, L, dL = plain_gradients(dO, L, dL)
    inputs = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, "dL": dL}
    key = options.key("backward", *inputs.values())
    return plans.call(key, ("dQ", "dK", "dV"), inputs | options.tensors, run_backward, *inputs.values(), options)


def plain_gradients(dO, L, dL):
    """dO, L and dL as kernels take them. dO of O.sum() is one expanded number, which TMA cannot copy."""
    return dO.contiguous() if 0 in dO.stride() else dO, L.contiguous(), None if dL is None else dL.contiguous()


def check_operator(Q, K, V, options):
    """Raise TypeError or ValueError unless an operator can take these. It is asked once for each key of a call."""
    validate.check_qkv(Q, K, V, ndim=4)
    checked(Q, K, options)
    if options.cu_seqlens_q is not None or options.cu_seqlens_k is not None:
        validate.check_cu_seqlens(options.cu_seqlens_q, options.cu_seqlens_k, Q, K)
        if len(Q) != 1:
            raise ValueError(f"Q must have B = 1 with cu_seqlens_q, got {validate.describe(Q)}")


def run_forward(Q, K, V, options):
    """O and L, by the backend that the options name."""
    check_operator(Q, K, V, options)
    backend = backend_for(options.backend, Q, V, options.dropout_p)
    if backend == "torch":
        return torch_backend.run_forward(Q, K, V, options)
    return pick.choose(backend, Q, K, V, **options.of_kernels).function(Q, K, V, **options.of_kernels)


def run_backward(Q, K, V, O, dO, L, dL, options):
    """dQ, dK and dV, by the backend that the options name."""
    check_operator(Q, K, V, options)
    outside, rows = ((*Q.shape[:3], V.shape[-1]), Q.dtype), (Q.shape[:3], torch_backend.dtype_of_L(Q))
    validate.check_like(O=(O, *outside), dO=(dO, *outside), L=(L, *rows), dL=(L if dL is None else dL, *rows))
    backend = backend_for(options.backend, Q, V, options.dropout_p)
    if backend == "torch":
        return torch_backend.run_backward(Q, K, V, O, dO, L, dL, options)
    given = options.of_kernels | {"deterministic": options.deterministic}
    return pick.choose(backend, Q, K, V, backward=True, **given).function(Q, K, V, O, dO, L, dL=dL, **given)


@torch.library.register_fake("flashlab::attention_forward")
def _(Q, K, V, *options):
    """Shapes and dtypes alone, for torch.compile as it traces."""
    packed = Options(*options).cu_seqlens_q is not None
    return torch_backend.empty(Q, V.shape[-1], packed), torch_backend.empty_L(Q)


@torch.library.register_fake("flashlab::attention_backward")
def _(Q, K, V, O, dO, L, dL, *options):
    packed = Options(*options).cu_seqlens_q is not None
    return tuple(torch_backend.empty(T, T.shape[-1], packed) for T in (Q, K, V))


class _Attention(torch_internals.Function):
    """The forward operator, whose gradients are those of the backward one."""

    @staticmethod
    def forward(ctx, Q, K, V, *options):
        options = Options(*options)
        with torch_internals.below_autograd():
            O, L = ATTENTION_FORWARD(Q, K, V, *options)
        return _keep(ctx, options, Q, K, V, O, L)

    @staticmethod
    def backward(ctx, *grads):
        options, *tensors = _kept(ctx, *grads)
        return *ATTENTION_BACKWARD(*tensors, *options), *[None] * len(options)


class _Recorded(torch_internals.Function):
    """A call with gradients whose launches are kept, forward and backward: it goes past PyTorch's dispatcher."""

    @staticmethod
    def forward(ctx, key, options, ndim, Q, K, V):
        tensors = {"Q": Q, "K": K, "V": V} | options.tensors
        O, L = plans.call(key, ("O", "L"), tensors, _forward, options, ndim, Q, K, V)
        ctx.key, ctx.ndim, ctx.places = key, ndim, _places(Q, K, V, O, L, *options.tensors.values())
        return _keep(ctx, options, Q, K, V, O, L)

    @staticmethod
    def backward(ctx, *grads):
        options, Q, K, V, O, dO, L, dL = _kept(ctx, *grads)
        tensors = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, "dL": dL}
        key = None     # where gradients may have gradients of their own, or hooks have replaced what was saved
        if not torch.is_grad_enabled() and _places(Q, K, V, O, L, *options.tensors.values()) == ctx.places:
            key = plans.key_of_call(("backward",), dO, dL)
        found = plans.call(key and (ctx.key, key), ("dQ", "dK", "dV"), tensors | options.tensors,
                           _backward, options, ctx.ndim, *tensors.values())
        return None, None, None, *(found if ctx.ndim == 4 else [T.squeeze(0).transpose(0, 1) for T in found])


def _places(*tensors):
    return [T is not None and (T.data_ptr(), T.stride()) for T in tensors]


def _keep(ctx, options, Q, K, V, O, L):
    """Keep what a backward pass needs; returns O and L."""
    ctx.save_for_backward(Q, K, V, O, L, *options.tensors.values())
    ctx.options = Options(None, *options[1:7])
    ctx.set_materialize_grads(False)                   # L seldom has a gradient: write and read no zeros
    return O, L


def _kept(ctx, dO, dL):
    """(options, Q, K, V, O, dO, L, dL). dO and dL are None where the loss does not depend on O or on L."""
    Q, K, V, O, L, seed, *cu_seqlens = ctx.saved_tensors
    dO = torch.zeros_like(O) if dO is None else dO
    return Options(seed, *ctx.options[1:7], *cu_seqlens), Q, K, V, O, *plain_gradients(dO, L, dL)


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
for operator, function, n, per_score in (
        (ATTENTION_FORWARD, _Attention, 3, lambda d, d_v: d + d_v),                # S; O
        (ATTENTION_BACKWARD, _Gradients, 7, lambda d, d_v: 3 * d + 2 * d_v)):      # S, dQ, dK; dP, dV
    LIBRARY.impl(operator, _autograd(operator, function, n), "Autograd")
    torch.library.register_vmap(operator, transforms.vmap_rule(operator, n, Options))
    transforms.register_flops(operator.overloadpacket, per_score, Options)
