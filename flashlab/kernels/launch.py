"""What the launchers of attention kernels share: the check of a call, the kernels' arguments, tile sizes, and TMA.

`check_call` checks a call's options once; from there to the kernels they travel as one dictionary.
"""

import functools
from functools import partial

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashlab import validate
from flashlab.kernels import plans
from flashlab.triton_mode import check_device, interpreted

LOG2_E = tl.constexpr(1.4426950408889634)              # exp(x) = exp2(x · log2(e))
SMALLEST_SCALE = 1e-30 # stands for 0: scores vanish beside 1, and -inf stays -inf where -inf * 0 would be NaN


# ---- a call: checked, and given to its launches

def check_call(Q, K, V, *, causal=False, scale=None, B_r=None, B_c=None, dropout_p=0.0, seed=None, window=None,
               cu_seqlens_q=None, cu_seqlens_k=None, deterministic=False):
    """The options of a call as kernels take them, by name, without those that it does not set. Raises if one is wrong.

    deterministic: only checked here; it decides which kernel runs, and no kernel takes it
    """
    validate.check_qkv(Q, K, V, ndim=4)
    validate.check_heads(Q, K)
    validate.check_for_kernels(Q, V)
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

    launch: launch(Q, K, V, O, L, **options) -> the kernel's grid and arguments, among them launches to come "before".
            If kernel is None it returns all launches, each (kernel, grid, arguments)
    """
    O = empty(*Q.shape[:3], V.shape[-1], Q, packed="batch" in options)
    L = torch.empty(Q.shape[:3], dtype=torch.float32, device=Q.device)

    def launches(**arguments):
        found = launch(**arguments)
        return found if kernel is None else [*found[1].pop("before", ()), (kernel, *found)]

    if O.numel() > 0:
        run(launch, launches, {"Q": Q, "K": K, "V": V}, {"O": O, "L": L}, options)
    return O, L


def run(launch, launches, inputs, outputs, options):
    """Make the launches of a call, or those of an earlier call with its key. launch: part of the key"""
    if interpreted() and inputs["Q"].dtype == torch.bfloat16:  # the interpreter gets it wrong: float32 instead
        wide_inputs, wide = ({name: T if T is None or T.dtype != torch.bfloat16 else T.float()
                              for name, T in tensors.items()} for tensors in (inputs, outputs))
        run(launch, launches, wide_inputs, wide, options)
        for name, T in outputs.items():
            T.copy_(wide[name])
        return
    inputs |= {name: value for name, value in options.items() if isinstance(value, torch.Tensor)}
    plain = {name: value for name, value in options.items() if name not in inputs}
    key = (launch, plans.key(plain.items(), *inputs.values()))
    plans.run(key, partial(launches, **plain), inputs | outputs)


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
    dQ, dK, dV = (empty(*T.shape, T, packed) for T in (Q, K, V))
    if dQ.numel() == 0 or dK.numel() == 0:
        return dQ.zero_(), dK.zero_(), dV.zero_()
    L, dL = (None if T is None else T.contiguous() for T in (L, dL))
    O = O.transpose(1, 2).contiguous().transpose(1, 2) if packed else O.contiguous()
    inputs = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, "dL": dL}
    run(launch, launch, inputs, {"dQ": dQ, "dK": dK, "dV": dV}, options)
    return dQ, dK, dV


def empty(B, H, N, d, like, packed=False):
    """An output (B, H, N, d), contiguous; packed: with the strides of a contiguous (B, N, H, d)."""
    if packed:
        return empty(B, N, H, d, like).transpose(1, 2)
    return torch.empty(B, H, N, d, dtype=like.dtype, device=like.device)


def refuse(why_not):
    """Raise ValueError with the reason why a rung does not take a call, if there is one."""
    if why_not:
        raise ValueError(f"this rung does not take the call: {why_not}")


# ---- a launch: arguments, grid, tile sizes

def launch_by_blocks(kernel, Q, K, V, O, L, *, B_r=None, B_c=None, tiles=None, by_tma=False, **options):
    """The grid and the arguments of a kernel with a program for each query block. tiles: `pick_tiles` by default

    by_tma: the kernel takes Q, K, V and O as tensor descriptors
    """
    Q, options["scale"] = positive_scale(Q, options["scale"])
    tiles = tiles or pick_tiles(Q, V, options, B_r, B_c)
    arguments = shared_arguments(Q, K, V, options) | {"O": O, "L": L, "stages": tiles["num_stages"]} | tiles
    if by_tma:
        for name, T, rows in (("Q", Q, "B_r"), ("K", K, "B_c"), ("V", V, "B_c"), ("O", O, "B_r")):
            arguments[name] = descriptor(T, (tiles[rows], padded(T.shape[-1])))
    blocks = Q.shape[0] * Q.shape[1] * triton.cdiv(Q.shape[2], tiles["B_r"])
    return (blocks,), only_wanted(kernel, arguments)             # one axis: the other two stop at 65535 programs


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


def programs_at_a_time(T, num_warps, shared_bytes=None):
    """How many programs of so many bytes of shared memory the GPU of T runs at a time if an SM takes eight warps."""
    if not T.is_cuda:
        return 4                                       # so few that a program takes several blocks
    gpu, of_an_sm = torch.cuda.get_device_properties(T.device), 8 // num_warps
    if shared_bytes:
        of_an_sm = min(of_an_sm, gpu.shared_memory_per_multiprocessor // shared_bytes)
    return gpu.multi_processor_count * max(1, of_an_sm)


def heads_together(Q, K, V, keys=None):
    """How many heads to walk at a time so that the `keys` keys and values in use of each stay in the L2 cache."""
    heads, L2 = Q.shape[0] * Q.shape[1], 32 * 2**20
    if Q.is_cuda:
        L2 = torch.cuda.get_device_properties(Q.device).L2_cache_size
    in_use = (K[..., :keys, :].numel() + V[..., :keys, :].numel()) * K.itemsize
    return largest_divisor(heads, L2 * heads // max(1, in_use))                    # query heads of a group share theirs


@functools.lru_cache(1024)
def largest_divisor(n, at_most):
    """The largest divisor of n that is at most `at_most`, or 1."""
    return max((k for k in range(1, n + 1) if n % k == 0 and k <= at_most), default=1)


def how_many_parts(programs, group, enough):
    """How many programs are to share the query heads of a key head, so that there are enough to keep all SMs busy."""
    parts = 1
    while programs * parts < enough and group % (2 * parts) == 0:
        parts *= 2
    return parts


def in_parts(dK, dV, parts):
    """(dK_parts, dV_parts, launches): tensors (B, parts * H_kv, N_k, d) to write, and the launch that adds them up."""
    (B, H, N, d), block = dK.shape, 2048
    if parts == 1:
        return dK, dV, []
    dK_parts, dV_parts = (plans.temporary(torch.empty, B, H * parts, N, d, dtype=T.dtype, device=T.device)
                          for T in (dK, dV))
    arguments = {"dK_parts": dK_parts, "dV_parts": dV_parts, "dK": dK, "dV": dV, "size": N * d, "parts": parts}
    grid = (B * H * triton.cdiv(N * d, block),)
    return dK_parts, dV_parts, [(add_parts_kernel, grid, arguments | {"block": block})]


@triton.jit
def add_parts_kernel(dK_parts, dV_parts, dK, dV, size, parts: tl.constexpr, block: tl.constexpr):
    """dK and dV: sums, in float32, of the results of `parts` programs. size: elements of a head"""
    blocks = tl.cdiv(size, block)
    head, n = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    at = n.to(tl.int64) * block + tl.arange(0, block)
    dK_sum, dV_sum = tl.zeros((block,), tl.float32), tl.zeros((block,), tl.float32)
    for part in tl.static_range(parts):
        dK_sum += tl.load(dK_parts + (head * parts + part) * size + at, mask=at < size, other=0.0).to(tl.float32)
        dV_sum += tl.load(dV_parts + (head * parts + part) * size + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(dK + head * size + at, dK_sum, mask=at < size)
    tl.store(dV + head * size + at, dV_sum, mask=at < size)


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
    return T.clone(memory_format=torch.contiguous_format) if why_no_descriptor(T=T) else T


def why_gpu_too_old(T):
    """Why the GPU of T has no TMA, in words; None if it has."""
    have = capability(T)
    return f"TMA came with compute capability 9.0, this GPU has {have[0]}.{have[1]}" if have and have < (9, 0) else None


def why_odd_rows(**tensors):
    """Why TMA cannot copy new tensors like these, in words; None if it can."""
    for name, T in tensors.items():
        if T.shape[-1] * T.itemsize % 16:
            return f"a row of {name} takes {T.shape[-1] * T.itemsize} bytes, not a multiple of 16, as TMA wants"
    return None


def why_no_tma(Q, K, V, **options):
    """Why a forward kernel that copies with TMA cannot take these, in words; None if it can."""
    return why_gpu_too_old(Q) or why_odd_rows(O=V) or why_no_descriptor(Q=Q, K=K, V=V)


def why_not_hopper(Q, V, widest=128, dropout_p=0.0, B_r=None, B_c=None):
    """Why a kernel with a warp for loads and others for products does not take a call, in words; None if it does."""
    have, d = capability(Q), max(Q.shape[-1], V.shape[-1])
    if have is None:
        return "its instructions are Hopper's alone, and no interpreter knows them"
    if have[0] != 9:
        return f"its instructions are Hopper's alone, compute capability 9.0, and this GPU has {have[0]}.{have[1]}"
    if Q.dtype not in (torch.float16, torch.bfloat16):
        return f"it takes float16 and bfloat16, not {str(Q.dtype).removeprefix('torch.')}"
    if not 32 < d <= widest:
        return f"it takes head dimensions from 33 to {widest}, in tiles at least 64 wide, not {d}"
    if dropout_p > 0:
        return "it has no dropout"
    return "its tiles are fixed" if B_r or B_c else None
