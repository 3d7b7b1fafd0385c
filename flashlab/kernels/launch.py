"""What the launchers of attention kernels share: one check of a call, and the arguments that all of these kernels take.

A call's options (causal, scale, dropout_p, seed) are checked here once, and travel from here to the kernels as one dictionary.
"""

import torch
import triton

from flashlab import validate
from flashlab.compiler import check_device, interpreted

MAX_HEAD_DIM = 256     # a program keeps Q_i and O_i on chip whole: wider heads do not fit
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def check_call(Q, K, V, *, B_r, B_c, causal, scale, dropout_p, seed, dtypes=FLOATS):
    """Raise TypeError or ValueError unless kernels can take these. Returns the options as kernels take them, by name."""
    validate.check_qkv(Q, K, V, ndim=4, dtypes=dtypes)
    validate.check_heads(Q, K)
    validate.check_head_dims(Q, V, MAX_HEAD_DIM)
    validate.check_bool(causal=causal)
    scale = validate.check_scale(scale, Q.shape[-1])
    validate.check_dropout(dropout_p)
    if dropout_p > 0:
        validate.check_like(seed=(seed, (), torch.int64))
    validate.check_power_of_two(16, **{name: B for name, B in (("B_r", B_r), ("B_c", B_c)) if B is not None})
    check_device("Q, K, V", Q)
    return {"causal": causal, "scale": scale, "dropout_p": float(dropout_p), "seed": seed}


def shared_arguments(Q, K, V, options, **strided):
    """Pointers, strides and sizes that every kernel here takes, and the options. strided: more tensors with strides, dO."""
    (_, H_q, N_q, d), (_, H_kv, N_k, d_v) = Q.shape, V.shape
    arguments = {"dropout_p": 0.0, "seed": None}
    for name, T in {"Q": Q, "K": K, "V": V, **strided}.items():
        arguments |= {name: T} | {f"stride_{name}{axis}": step for axis, step in zip("bhnd", T.stride(), strict=True)}
    arguments |= {"H_q": H_q, "H_kv": H_kv, "N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v} | options
    return arguments | {"B_d": padded(d), "B_dv": padded(d_v)}


def padded(width):
    """Tiles are powers of two wide, and at least 16: tensor cores take no less."""
    return max(16, triton.next_power_of_2(width))


def little_shared_memory(T):
    """True for a tensor on a GPU with 99 KiB of shared memory for a program, as a 4090 has, or less."""
    return T.is_cuda and torch.cuda.get_device_properties(T.device).shared_memory_per_block_optin < 128 * 1024


def needs_widening(T):
    """True where the interpreter would compute in bfloat16, which it gets wrong: widen to float32 first, then round."""
    return T.dtype == torch.bfloat16 and interpreted()


def run(launches, T):
    """Launch each (kernel, grid, arguments) in order, on the GPU of T: Triton launches on the current one."""
    with torch.cuda.device_of(T):
        for kernel, grid, arguments in launches:
            kernel[grid](**arguments)
