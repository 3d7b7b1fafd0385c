"""What the launchers of attention kernels share: the check of a call, the kernels' arguments, tile sizes, and TMA.

`check_call` checks a call's options once; from there to the kernels they travel as one dictionary.
"""

import functools
from functools import partial

import torch
import triton

from flashlab import validate
from flashlab.kernels import plans
from flashlab.triton_mode import check_device, interpreted

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
SMALLEST_SCALE = 1e-30 # stands for 0: scores vanish beside 1, and -inf stays -inf where -inf * 0 would be NaN


# ---- a call: checked, and given to its launches

def check_call(Q, K, V, *, causal=False, scale=None, B_r=None, B_c=None, dropout_p=0.0, seed=None, window=None,
               cu_seqlens_q=None, cu_seqlens_k=None, deterministic=False):
    """The options of a call as kernels take them, by name, without those that the call does not set.

    deterministic: only checked here; it decides which kernel runs, and no kernel takes it
    Raises: TypeError or ValueError that names the argument
    """
    validate.check_qkv(Q, K, V, ndim=4, dtypes=FLOATS)
    validate.check_heads(Q, K)
    validate.check_head_dims(Q, V, validate.MAX_HEAD_DIM)
    validate.check_bool(deterministic=deterministic)
    causal, window = validate.check_window(window, causal, Q.shape[2], K.shape[2])
    options = {"causal": causal, "scale": validate.check_scale(scale, Q.shape[-1])}
    validate.check_dropout(dropout_p)
    if dropout_p > 0:
        validate.check_like(seed=(seed, (), torch.int64))
        options |= {"dropout_p": float(dropout_p), "seed": seed}
    validate.check_power_of_two(16, **{name: B for name, B in (("B_r", B_r), ("B_c", B_c)) if B is not None})
    check_device("Q, K, V", Q)
    if window is not None:                             # kernels know no -1: the limit is then one that no key reaches
        left, right = window
        options |= {"left": K.shape[2] if left == -1 else left, "right": Q.shape[2] if right == -1 else right}
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        validate.check_cu_seqlens(cu_seqlens_q, cu_seqlens_k, Q, K)
        options |= {"cu_seqlens_q": cu_seqlens_q.contiguous(), "cu_seqlens_k": cu_seqlens_k.contiguous()}
        options |= {"batch": len(cu_seqlens_q) - 1}
    return options


def checked_forward(kernel, launch, Q, K, V, *, B_r, B_c, why_not=None, **options):
    """`forward` of a call that has not been checked. why_not: why_not(Q, K, V, **options), as a rung's module has it"""
    options = check_call(Q, K, V, B_r=B_r, B_c=B_c, **options)
    refuse(why_not and why_not(Q, K, V, B_r=B_r, B_c=B_c, **options))
    return forward(kernel, launch, Q, K, V, B_r=B_r, B_c=B_c, **options)


def forward(kernel, launch, Q, K, V, **options):
    """O and L by a forward kernel, for a call that has been checked.

    launch: launch(Q, K, V, O, L, **options) -> the kernel's grid and arguments; among the arguments may be launches
            that come "before". If kernel is None it returns all launches, each (kernel, grid, arguments)
    """
    O = empty(*Q.shape[:3], V.shape[-1], Q, packed="batch" in options)
    L = torch.empty(Q.shape[:3], dtype=torch.float32, device=Q.device)
    if O.numel() == 0:
        return O, L
    if needs_widening(Q):
        O_wide, L = forward(kernel, launch, Q.float(), K.float(), V.float(), **options)
        return O.copy_(O_wide), L
    inputs = {"Q": Q, "K": K, "V": V} | tensors_among(options)
    key = plans.key(options.items(), *inputs.values())

    def launches(**tensors):
        if kernel is None:
            return launch(**tensors, **options)
        grid, arguments = launch(**tensors, **options)
        return *arguments.pop("before", ()), (kernel, grid, arguments)

    plans.run((launch, key), launches, inputs | {"O": O, "L": L})
    return O, L


def check_backward_call(Q, K, V, O, dO, L, dL, **options):
    """As `check_call`, of a backward pass."""
    options = check_call(Q, K, V, **options)
    outside, rows = (*Q.shape[:3], V.shape[-1]), (Q.shape[:3], torch.float32)
    validate.check_like(O=(O, outside, Q.dtype), dO=(dO, outside, Q.dtype), L=(L, *rows))
    if dL is not None:
        validate.check_like(dL=(dL, *rows))
    return options


def checked_backward(launch, *tensors, B_r, B_c, why_not=None, **options):
    """`backward` of a call that has not been checked. tensors: Q, K, V, O, dO, L, dL"""
    checked = check_backward_call(*tensors, B_r=B_r, B_c=B_c, **options)
    refuse(why_not and why_not(*tensors[:3], B_r=B_r, B_c=B_c, **options))
    return backward(launch, *tensors, B_r=B_r, B_c=B_c, **checked)


def backward(launch, Q, K, V, O, dO, L, dL, **options):
    """dQ, dK, dV by backward kernels, for a call that has been checked.

    launch: launch(Q, K, V, O, dO, L, dL, dQ, dK, dV, **options) -> launches, each (kernel, grid, arguments)
    """
    packed = "batch" in options
    dQ, dK, dV = (empty(*T.shape, T, packed=packed) for T in (Q, K, V))
    if dQ.numel() == 0 or dK.numel() == 0:
        return dQ.zero_(), dK.zero_(), dV.zero_()
    if needs_widening(Q):
        wide = backward(launch, *(T.float() for T in (Q, K, V, O, dO)), L, dL, **options)
        return tuple(T.copy_(T_wide) for T, T_wide in zip((dQ, dK, dV), wide, strict=True))
    inputs = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, "dL": dL} | tensors_among(options)
    key = plans.key(options.items(), *inputs.values())
    L, dL = (None if T is None else T.contiguous() for T in (L, dL))
    O = O.transpose(1, 2).contiguous().transpose(1, 2) if packed else O.contiguous()
    tensors = inputs | {"O": O, "L": L, "dL": dL, "dQ": dQ, "dK": dK, "dV": dV}
    plans.run((launch, key), partial(launch, **options), tensors)
    return dQ, dK, dV


def tensors_among(options):
    """Take the tensors, such as the seed, out of a call's options: {name: tensor}."""
    return {name: options.pop(name) for name, value in list(options.items()) if isinstance(value, torch.Tensor)}


def empty(B, H, N, d, like, packed=False):
    """An output (B, H, N, d), contiguous; packed: with the strides of a contiguous (B, N, H, d)."""
    if packed:
        return torch.empty(B, N, H, d, dtype=like.dtype, device=like.device).transpose(1, 2)
    return torch.empty(B, H, N, d, dtype=like.dtype, device=like.device)


def needs_widening(T):
    """True if the interpreter would compute in bfloat16, which it gets wrong: it computes in float32 instead."""
    return T.dtype == torch.bfloat16 and interpreted()


def refuse(why_not):
    """Raise ValueError with the reason why a rung does not take a call, if there is one."""
    if why_not:
        raise ValueError(f"this rung does not take the call: {why_not}")


# ---- a launch: arguments, grid, tile sizes

def launch_by_blocks(kernel, Q, K, V, O, L, *, B_r=None, B_c=None, tiles=None, **options):
    """The grid and the arguments of a kernel in base 2 with a program for each query block; nothing is checked or run.

    tiles: tile sizes, warps and stages by name, `pick_tiles` by default
    """
    Q, options["scale"] = positive_scale(Q, options["scale"])
    tiles = tiles or pick_tiles(Q, V, options, B_r, B_c)
    arguments = shared_arguments(Q, K, V, options) | {"O": O, "L": L, "stages": tiles["num_stages"]} | tiles
    return grid_of_blocks(Q, tiles["B_r"]), only_wanted(kernel, arguments)


def shared_arguments(Q, K, V, options, **strided):
    """Pointers, strides and sizes that every kernel takes, and the options. strided: more tensors with strides, dO."""
    (_, H_q, N_q, d), (_, H_kv, N_k, d_v) = Q.shape, V.shape
    arguments = {"H_q": H_q, "H_kv": H_kv, "N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v} | options
    for name, T in {"Q": Q, "K": K, "V": V, **strided}.items():
        arguments |= {name: T} | {f"stride_{name}{axis}": step for axis, step in zip("bhnd", T.stride(), strict=True)}
    return arguments | {"B_d": padded(d), "B_dv": padded(d_v)}


def only_wanted(kernel, arguments):
    """Those of the arguments that the kernel, or its launch, takes."""
    wanted = {*kernel.arg_names, "num_warps", "num_stages", "maxnreg"}
    return {name: value for name, value in arguments.items() if name in wanted}


def grid_of_blocks(Q, B_r):
    """The grid with a program for each query block of each head. One axis: the other two stop at 65535 programs."""
    return (Q.shape[0] * Q.shape[1] * triton.cdiv(Q.shape[2], B_r),)


def programs_at_a_time(T, num_warps, shared_bytes=None):
    """How many programs the GPU of T runs at a time if an SM takes eight warps; interpreted, a few.

    shared_bytes: of one program, where shared memory may be the limit
    """
    if not T.is_cuda:
        return 4                                       # so few that a program takes several blocks
    gpu, of_an_sm = torch.cuda.get_device_properties(T.device), 8 // num_warps
    if shared_bytes:
        of_an_sm = min(of_an_sm, gpu.shared_memory_per_multiprocessor // shared_bytes)
    return gpu.multi_processor_count * max(1, of_an_sm)


def heads_together(Q, K, V, keys=None):
    """How many heads to walk at a time so that their keys and values stay in the L2 cache: a divisor of their number.

    keys: how many of a head's N_k keys are in use at a time, all by default
    """
    heads, L2 = Q.shape[0] * Q.shape[1], 32 * 2**20
    if Q.is_cuda:
        L2 = torch.cuda.get_device_properties(Q.device).L2_cache_size
    in_use = (K[..., :keys, :].numel() + V[..., :keys, :].numel()) * K.itemsize
    return largest_divisor(heads, L2 * heads // max(1, in_use))                    # query heads of a group share theirs


@functools.lru_cache(1024)
def largest_divisor(n, at_most):
    """The largest divisor of n that is at most `at_most`, or 1."""
    return max((k for k in range(1, n + 1) if n % k == 0 and k <= at_most), default=1)


def positive_scale(Q, scale):
    """(Q, scale) that give the same scores, with scale > 0: the largest score is the largest before scaling."""
    return (-Q if scale < 0 else Q), max(abs(scale), SMALLEST_SCALE)


def pick_tiles(Q, V, options, B_r=None, B_c=None):
    """Tile sizes, warps and stages by name: `best_tiles` unless the caller sets B_r or B_c."""
    crowded = options["causal"] or options.get("left") is not None or options.get("dropout_p")   # all take registers
    best_B_r, best_B_c, num_warps, num_stages = best_tiles(max(Q.shape[-1], V.shape[-1]), Q.dtype, crowded)
    B_r, B_c = B_r or best_B_r, B_c or best_B_c
    if B_r != best_B_r and Q.dtype != torch.float32:
        num_warps = 4 if B_r <= 64 else 8              # tensor cores want at least 16 rows a warp
    if little_shared_memory(Q):
        num_stages = min(num_stages, 2)                # three stages of 128-wide tiles fit an A100 or H100, not a 4090
    return {"B_r": B_r, "B_c": B_c, "num_warps": num_warps, "num_stages": num_stages}


def best_tiles(d, dtype, causal=False):
    """(B_r, B_c, num_warps, num_stages): the fastest of those tried on an H100 that spill no registers."""
    if dtype == torch.float32:
        return (64 if d <= 64 else 32, 32 if d <= 128 else 16, 8, 2)
    if d <= 64:
        return (64, 64, 4, 2) if causal else (128, 64, 4, 3)
    return (128, 64, 8, 3) if d <= 128 else (64, 32, 4, 2)


def padded(width):
    """The width of a tile: a power of two, and at least 16, which is the least that tensor cores take."""
    return max(16, triton.next_power_of_2(width))


# ---- what the GPU can do

def capability(T):
    """(9, 0) for a tensor on an H100; None on the CPU, where kernels are interpreted."""
    return torch.cuda.get_device_capability(T.device) if T.is_cuda else None


def little_shared_memory(T):
    """True for a tensor on a GPU with 99 KiB of shared memory for a program, as a 4090 has, or less."""
    return T.is_cuda and torch.cuda.get_device_properties(T.device).shared_memory_per_block_optin < 128 * 1024


def descriptor(T, block):
    """A tensor descriptor of T (..., N, d): what TMA needs to know to copy a tile of this shape by its coordinates."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    strides = lawful_strides(T.shape, T.stride(), T.itemsize)
    return TensorDescriptor(T, list(T.shape), strides, [1] * (T.ndim - len(block)) + list(block))


def lawful_strides(shape, strides, itemsize):
    """Strides that TMA takes: multiples of 16 bytes also for a dimension of one element, whose stride may be any."""
    one_apart = triton.cdiv(shape[-1] * itemsize, 16) * 16 // itemsize * shape[-2]
    return [step if n > 1 else one_apart for n, step in zip(shape[:-1], strides[:-1], strict=True)] + [1]


def why_no_descriptor(**tensors):
    """Why TMA cannot copy tiles of these tensors, in words; None if it can."""
    for name, T in tensors.items():
        steps = [step * T.itemsize for n, step in zip(T.shape[:-1], T.stride()[:-1], strict=True) if n > 1]
        if T.numel() == 0:
            return f"{name} is empty"
        if T.stride(-1) != 1 and T.shape[-1] > 1:
            return f"{name}'s columns lie {T.stride(-1)} elements apart: TMA copies rows whose elements are neighbours"
        if T.data_ptr() % 16 or any(step % 16 or step == 0 for step in steps):
            return (f"{name}'s rows, heads or batches do not all begin at places of their own, multiples of 16 bytes, "
                    "as TMA wants")
    return None


def fit_for_tma(T):
    """T, or a copy of it if TMA cannot copy its tiles."""
    return T.contiguous() if why_no_descriptor(T=T) else T


def why_gpu_too_old(T):
    """Why the GPU of T has no TMA, in words; None if it has."""
    have = capability(T)
    return f"TMA came with compute capability 9.0, this GPU has {have[0]}.{have[1]}" if have and have < (9, 0) else None


def why_no_tma(Q, K, V, **options):
    """Why a forward kernel that copies with TMA cannot take these, in words; None if it can."""
    if V.shape[-1] * V.itemsize % 16:
        return why_gpu_too_old(Q) or (f"a row of O takes {V.shape[-1] * V.itemsize} bytes, not a multiple of 16, "
                                      "as TMA wants")
    return why_gpu_too_old(Q) or why_no_descriptor(Q=Q, K=K, V=V)


def why_not_hopper(Q, V, dropout_p=0.0, B_r=None, B_c=None):
    """Why a kernel with a warp for loads and others for products does not take a call, in words; None if it does."""
    have, (d, d_v) = capability(Q), (Q.shape[-1], V.shape[-1])
    if have is None:
        return "its instructions are Hopper's alone, and no interpreter knows them"
    if have[0] != 9:
        return f"its instructions are Hopper's alone, compute capability 9.0, and this GPU has {have[0]}.{have[1]}"
    if Q.dtype not in (torch.float16, torch.bfloat16):
        return f"it takes float16 and bfloat16, not {str(Q.dtype).removeprefix('torch.')}"
    if d != d_v or d not in (64, 128):
        return f"it takes d = d_v = 64 or 128, not d = {d}, d_v = {d_v}"
    if dropout_p > 0:
        return "it has no dropout"
    return "its tiles are fixed" if B_r or B_c else None
