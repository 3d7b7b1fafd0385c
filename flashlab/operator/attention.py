"""flash_attention(), and flash_attention_varlen() for packed sequences: the public operator, over the best kernel there is.

Both check their arguments and call `torch.ops.flashlab.attention_forward`, which picks a backend and runs it.
Autograd calls `torch.ops.flashlab.attention_backward` when the gradients are due; what is kept for it is Q, K, V, O and L.
"""

import numbers
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from flashlab.operator import again, pick, transforms
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
    Window:  (left, right): query i sees keys i + N_k - N_q - left to i + N_k - N_q + right, -1 for no limit, and causal is
             right = 0. Tiles outside are skipped, forward and backward
    Dropout: seed decides which weights are dropped, for good: the same seed and shapes drop the same ones. Without a seed
             one is drawn from PyTorch's generator of Q's device. No mask is stored. Triton only
    Gradient: of O and of L, once: a second derivative raises, and so does a forward-mode one. Nothing N x N is stored
    Autocast: inputs are cast to its dtype, as those of scaled_dot_product_attention, gradients back to the inputs'
    Scores:  float32: one beyond 3.4e38 is inf, and its row NaN; one below -3.4e38 is -inf and weighs nothing, as if it were hidden
    Deterministic: same inputs, same bits, in dQ too, which the fastest kernels add up in whatever order their programs come;
             None: as torch.are_deterministic_algorithms_enabled() says
    Backend: "triton" runs the best of flashlab/kernels that takes the call, see `pick.pick`, a kernel's name that one or
             raises, "torch" the rungs fa2.py and fa2_backward.py, "auto" see `pick_backend`
    Left out: ALiBi, soft-capped scores, biases and masks of any other shape. PyTorch's FlexAttention
             (torch.nn.attention.flex_attention) compiles a kernel for those; sequences of different lengths want
             flash_attention_varlen rather than a padding mask, and a cache of keys flash_attention_decode
    Raises:  TypeError or ValueError before anything is launched; NotImplementedError for dropout without Triton
    Source:  Dao 2023, arXiv:2307.08691; the window as Beltagy, Peters, Cohan 2020, arXiv:2004.05150
    """
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    call = None
    if type(dropout_p) is float and dropout_p == 0.0:
        call = again.signature((causal, window, scale, seed, return_lse, backend, deterministic), Q, K, V)
    if call and (results := again.made(call, Q=Q, K=K, V=V)):
        return results if return_lse else results[0]
    if torch._C._is_any_autocast_enabled():            # private, and a tenth of what torch.is_autocast_enabled(device) takes
        Q, K, V = transforms.as_autocast(Q, K, V)
    check_qkv(Q, K, V, ndim=4)
    check_heads(Q, K)
    options = _options(Q, K, causal, window, scale, dropout_p, seed, return_lse, backend, deterministic)
    O, L = _attend(Q, K, V, options)
    if call and _taken:
        _remember(call, Q, K, V, options)
    return (O, L) if return_lse else O


def flash_attention_varlen(
    Q, K, V, cu_seqlens_q, cu_seqlens_k, *, causal=False, window=None, scale=None, dropout_p=0.0, seed=None, return_lse=False,
    backend="auto", deterministic=None,
):
    """Exact attention within each of several sequences that lie one after the other in the same tensors, without padding.

    Shapes:  Q (T_q, H_q, d), K (T_k, H_kv, d), V (T_k, H_kv, d_v) -> O (T_q, H_q, d_v) in Q's dtype, contiguous;
             with return_lse also L (H_q, T_q), natural-log logsumexp. Any strides; H_q a multiple of H_kv
             cu_seqlens_q, cu_seqlens_k (batch + 1,), int32, on Q's device: sequence s has the queries cu_seqlens_q[s] to
             cu_seqlens_q[s + 1] and the keys cu_seqlens_k[s] to cu_seqlens_k[s + 1]. Sequences may be empty
    Causal, window: within each sequence, aligned as flash_attention does, with the sequence's own N_q and N_k
    Rows:    beyond the last sequence: O = 0, L = -inf, gradients 0
    No wait: the kernels find their sequences by themselves, so there are no longest lengths to pass, and no call waits for the
             GPU to learn them. So the numbers in cu_seqlens are checked on the CPU only. On a GPU they should begin with 0 and
             never fall; others give meaningless results, but read and write nothing outside of the tensors.
             The torch backend does wait: it walks the sequences one by one
    Dropout, gradient, deterministic, backend, left out, raises: as flash_attention
    Source:  Dao 2023, arXiv:2307.08691
    """
    if torch._C._is_any_autocast_enabled():
        Q, K, V = transforms.as_autocast(Q, K, V)
    check_qkv(Q, K, V, ndim=3)
    Q, K, V = (T.transpose(0, 1)[None] for T in (Q, K, V))               # (1, H, T, d): one batch, in which sequences lie in a row
    check_heads(Q, K)
    check_cu_seqlens(cu_seqlens_q, cu_seqlens_k, Q, K)
    options = _options(Q, K, causal, window, scale, dropout_p, seed, return_lse, backend, deterministic)
    O, L = _attend(Q, K, V, options._replace(cu_seqlens_q=cu_seqlens_q.contiguous(), cu_seqlens_k=cu_seqlens_k.contiguous()))
    O, L = O.squeeze(0).transpose(0, 1), L.squeeze(0)        # O[0] has a gradient that copies, a squeeze's is a view
    return (O, L) if return_lse else O


def _options(Q, K, causal, window, scale, dropout_p, seed, return_lse, backend, deterministic):
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
    """What a call may choose, as both operators take it, after their tensors. A new option is a field here, an argument of
    flash_attention and of kernels/launch.check_call, and what the kernels make of it."""

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
    def of_a_rung(self):
        """Those that every backend's functions take, by name."""
        return {"causal": self.causal, "scale": self.scale} | ({} if self.window is None else {"window": self.window})

    @property
    def of_few(self):
        """Those that few kernels take; a call without them does not name them."""
        few = {"window": self.window, "cu_seqlens_q": self.cu_seqlens_q, "cu_seqlens_k": self.cu_seqlens_k}
        return {name: value for name, value in few.items() if value is not None}

    @property
    def of_a_kernel(self):
        dropout = {"dropout_p": self.dropout_p, "seed": self.seed} if self.dropout_p > 0 else {}
        return self.of_a_rung | self.of_few | dropout

    @property
    def of_a_backward_kernel(self):
        """A forward kernel gives the same bits each time in any case."""
        return self.of_a_kernel | {"deterministic": self.deterministic}


SCHEMA_TYPES = {torch.Tensor | None: "Tensor?", bool: "bool", float: "float", str: "str", list[int] | None: "int[]?"}
OPTIONS = ", ".join(f"{SCHEMA_TYPES[kind]} {name}" for name, kind in Options.__annotations__.items())

# Defined with torch.library, so that torch.compile takes them whole, as one node of the graph.
torch.library.define("flashlab::attention_forward", f"(Tensor Q, Tensor K, Tensor V, {OPTIONS}) -> (Tensor, Tensor)")
torch.library.define("flashlab::attention_backward", "(Tensor Q, Tensor K, Tensor V, Tensor O, Tensor dO, Tensor L, Tensor? dL, "
                                                     f"{OPTIONS}) -> (Tensor, Tensor, Tensor)")
ATTENTION_FORWARD = torch.ops.flashlab.attention_forward.default
ATTENTION_BACKWARD = torch.ops.flashlab.attention_backward.default


@torch.library.impl("flashlab::attention_forward", "default")
def _(Q, K, V, *options):
    options = Options(*options)
    run = _run_torch if _resolve(Q, V, options) == "torch" else _run_triton
    return run(Q, K, V, options)


@torch.library.impl("flashlab::attention_backward", "default")
def _(Q, K, V, O, dO, L, dL, *options):
    options = Options(*options)
    run = _run_torch_backward if _resolve(Q, V, options) == "torch" else _run_triton_backward
    return run(Q, K, V, O, dO, L, dL, options)


@torch.library.register_fake("flashlab::attention_forward")
def _(Q, K, V, *options):
    """Shapes and dtypes alone: what torch.compile asks for while it traces."""
    packed = Options(*options).cu_seqlens_q is not None
    return _empty(Q, V.shape[-1], packed), Q.new_empty(Q.shape[:3], dtype=_dtype_of_L(Q))


@torch.library.register_fake("flashlab::attention_backward")
def _(Q, K, V, O, dO, L, dL, *options):
    packed = Options(*options).cu_seqlens_q is not None
    return tuple(_empty(T, T.shape[-1], packed) for T in (Q, K, V))


def _empty(T, d, packed):
    """An output (B, H, N, d), contiguous; with packed sequences its transpose, (1, T, H, d), is."""
    B, H, N, _ = T.shape
    return T.new_empty(B, N, H, d).transpose(1, 2) if packed else T.new_empty(B, H, N, d)


def _attend(Q, K, V, options):
    """O and L; by way of autograd where a gradient may be asked for."""
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():          # private, and the only way to ask
        return _attend_transformed(Q, K, V, options)
    differentiable = torch.is_grad_enabled() and (Q.requires_grad or K.requires_grad or V.requires_grad)
    return (_Attention.apply if differentiable else ATTENTION_FORWARD)(Q, K, V, *options)


@torch.compiler.disable(reason="flash_attention under vmap, grad or jvp runs uncompiled: traced, it would lose gradients")
def _attend_transformed(Q, K, V, options):
    """O and L under vmap, grad, jvp or forward_ad, where tensors do not say whether those that they wrap require a gradient."""
    return _TransformedAttention.apply(Q, K, V, *options)


class _Attention(torch.autograd.Function):
    """The forward operator, and its gradients by the backward one."""

    @staticmethod
    def forward(Q, K, V, *options):
        return ATTENTION_FORWARD(Q, K, V, *options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        Q, K, V, *options = inputs
        options = Options(*options)
        ctx.save_for_backward(Q, K, V, *output, options.seed, options.cu_seqlens_q, options.cu_seqlens_k)
        ctx.options = options._replace(seed=None, cu_seqlens_q=None, cu_seqlens_k=None)     # tensors are saved as tensors are
        ctx.set_materialize_grads(False)                   # L seldom has a gradient, and zeros would have to be written and read

    @staticmethod
    def backward(ctx, dO, dL):
        """dO and dL are None where the loss does not depend on O or on L."""
        Q, K, V, O, L, seed, cu_seqlens_q, cu_seqlens_k = ctx.saved_tensors
        options = ctx.options._replace(seed=seed, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        dO = torch.zeros_like(O) if dO is None else dO
        again = torch.is_grad_enabled() or forward_ad._current_level >= 0      # create_graph=True, or a tangent of a gradient
        differentiate = _Gradients.apply if again else ATTENTION_BACKWARD
        return *differentiate(Q, K, V, O, dO, L, dL, *options), *(None for _ in Options._fields)


class _TransformedAttention(_Attention):
    """What torch.func asks of a Function. A class of its own, since torch.compile takes none that has a jvp."""

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotImplementedError("flash_attention has no forward-mode derivative, as jvp, jacfwd, linearize and forward_ad want. "
                                  "Use backward(), torch.func.grad, vjp or jacrev, or flashlab.rungs.naive.naive_forward, whose "
                                  "operations autograd knows.")

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return transforms.vmap_rule(lambda *inputs: _attend(*inputs[:3], Options(*inputs[3:])), 3, Options)(info, in_dims, *inputs)


class _Gradients(torch.autograd.Function):
    """The backward operator where its own gradients may be asked for."""

    @staticmethod
    def forward(*inputs):
        return ATTENTION_BACKWARD(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("flash_attention is differentiable once: there is no kernel for its second derivative. Leave out "
                           "create_graph=True, or use flashlab.rungs.naive.naive_forward, whose operations autograd knows.")

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return transforms.vmap_rule(_Gradients.apply, 7, Options)(info, in_dims, *inputs)


torch.library.register_vmap(ATTENTION_FORWARD, transforms.vmap_rule(ATTENTION_FORWARD, 3, Options))
torch.library.register_vmap(ATTENTION_BACKWARD, transforms.vmap_rule(ATTENTION_BACKWARD, 7, Options))
transforms.register_flops(torch.ops.flashlab.attention_forward, torch.ops.flashlab.attention_backward, Options)


def _resolve(Q, V, options):
    if options.backend != "auto":
        return options.backend
    return pick_backend(Q.device, Q.dtype, max(Q.shape[-1], V.shape[-1]), options.dropout_p)[0]


def _dtype_of_L(Q):
    return torch.float64 if Q.dtype == torch.float64 else torch.float32


def _needs_triton():
    if import_triton() is None:
        raise RuntimeError(
            "backend='triton' needs triton, which is not installed and exists for Linux only. Use backend='torch' or "
            "'auto' here; on Linux run `pip install triton`; on Windows work in WSL, anywhere in a remote notebook.")


_taken: dict[tuple, tuple] = {}                # by kind of call, what launches it on a GPU: a rung has checked such a call


def _run_triton(Q, K, V, options):
    _needs_triton()
    from flashlab.kernels import launch

    kind = _kind(options, Q, K, V)
    if of_a_rung := _taken.get(kind):
        return launch.forward(*of_a_rung, Q, K, V, kind=kind, **launch.as_kernels_take(Q, K, **options.of_a_kernel))
    if options.backend in KERNELS:
        rung = pick.named(options.backend, dropout_p=options.dropout_p, **options.of_few)
    else:
        rung, _ = pick.pick(Q, K, V, causal=options.causal, dropout_p=options.dropout_p, **options.of_few)
    results = rung.function(Q, K, V, **options.of_a_kernel)
    _keep(kind, Q, rung.home.KERNEL, rung.launch)
    return results


def _run_triton_backward(Q, K, V, O, dO, L, dL, options):
    _needs_triton()
    from flashlab.kernels import launch

    kind = _kind(options, Q, K, V, O, dO, L, dL)
    if of_a_rung := _taken.get(kind):
        return launch.backward(*of_a_rung, Q, K, V, O, dO, L, dL, kind=kind, **launch.as_kernels_take(Q, K, **options.of_a_kernel))
    if options.backend in BACKWARD_KERNELS:
        rung = pick.named(options.backend, dropout_p=options.dropout_p, **options.of_few)
    else:
        rung, _ = pick.pick(Q, K, V, backward=True, causal=options.causal, dropout_p=options.dropout_p,
                              deterministic=options.deterministic, **options.of_few)
    grads = rung.function(Q, K, V, O, dO, L, dL=dL, **options.of_a_backward_kernel)
    _keep(kind, Q, options.deterministic and pick.ordered(rung) or rung.launch)
    return grads


def _kind(options, *tensors):
    """What decides which kernel takes a call, and how it is launched."""
    from flashlab.kernels import plans

    seed, causal, scale, dropout_p, backend, deterministic, window, *cu_seqlens = options
    plain = causal, scale, dropout_p, backend, deterministic, window and tuple(window)
    return plans.kind(plain, *tensors, seed, *cu_seqlens)


def _keep(kind, Q, *of_a_rung):
    """Only on a GPU, where a call is over before Python is: interpreted, checks cost nothing beside the work."""
    if Q.is_cuda:
        if len(_taken) >= 512:
            _taken.pop(next(iter(_taken)), None)               # the oldest
        _taken[kind] = of_a_rung


def _remember(call, Q, K, V, options):
    """The plan of the launches that this call has just made, where it has one."""
    from flashlab.kernels import plans

    kind = _kind(options, Q, K, V)
    if of_a_rung := _taken.get(kind):
        if plan := plans.known((of_a_rung[1], kind)):
            again.remember(call, plans.again, plan)


def _run_torch(Q, K, V, options):
    from flashlab.rungs.fa2 import fa2_forward

    if options.dropout_p > 0:
        raise NotImplementedError(
            f"only the Triton kernels have dropout, and backend 'torch' was to run, got dropout_p={options.dropout_p}, "
            f"{str(Q.dtype).removeprefix('torch.')} and d, d_v = {Q.shape[-1]}, {V.shape[-1]}. Pass dropout_p=0.0, use "
            f"backend='triton' in float16, bfloat16 or float32 with d and d_v up to {MAX_HEAD_DIM}, or see dropout in "
            "flashlab.rungs.fa1.fa1_forward."
        )
    O = _empty(Q, V.shape[-1], options.cu_seqlens_q is not None).zero_()                    # rows of no sequence stay as they are
    L = Q.new_full(Q.shape[:3], -torch.inf, dtype=_dtype_of_L(Q))
    with torch.autocast(Q.device.type, enabled=False):                                      # it would round float32 tiles
        for q, k in _parts(Q, K, options):
            O[q], L[q] = fa2_forward(Q[q], K[k], V[k], **options.of_a_rung)
    return O, L


def _run_torch_backward(Q, K, V, O, dO, L, dL, options):
    from flashlab.rungs.fa2_backward import fa2_backward_two_pass

    packed = options.cu_seqlens_q is not None
    dQ = _empty(Q, Q.shape[-1], packed).zero_()
    dK, dV = (_empty(T.to(L.dtype), T.shape[-1], packed).zero_() for T in (K, V))           # sums over the heads of a group
    with torch.autocast(Q.device.type, enabled=False):
        for q, k in _parts(Q, K, options):
            dQ[q], dK_h, dV_h = fa2_backward_two_pass(Q[q], K[k], V[k], O[q], dO[q], L[q], dL=None if dL is None else dL[q],
                                                      **options.of_a_rung)
            dK[k] += dK_h
            dV[k] += dV_h
    return dQ, dK.to(K.dtype), dV.to(V.dtype)


def _parts(Q, K, options):
    """Where in Q and where in K: (batch, head, rows) of each query head of each sequence, and of the keys that it reads."""
    group, spans = Q.shape[1] // K.shape[1], [(slice(None), slice(None))]
    if options.cu_seqlens_q is not None:
        spans = zip(*(map(slice, cu[:-1], cu[1:]) for cu in (options.cu_seqlens_q.tolist(), options.cu_seqlens_k.tolist())),
                    strict=True)
    return [((b, h, rows), (b, h // group, keys)) for rows, keys in spans for b in range(Q.shape[0]) for h in range(Q.shape[1])]
