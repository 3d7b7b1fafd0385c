"""Attention in FP8: Q, K, V and P in e4m3, a byte each. Tensor cores multiply them twice as fast as bfloat16.

An e4m3 number has 3 bits of mantissa, a relative step of 1/8, and reaches from 2^-9 to 448. Attention stays useful by

    a scale for each block     64 rows of Q, 128 of K or V share one, so that a large row costs its neighbours only
    rotation                   Q and K are multiplied by one random orthogonal matrix: Q K^T stays, outliers are spread
    P times 2^8                weights lie in (0, 1]; moved up, the small ones keep their bits
    float32                    for S, the softmax, its sums and O

The scales cost nothing: those of Q and K join the factor that scales S, V's the factor that rescales O between blocks.
On a Hopper GPU quantize.py and fp8_kernel.py do it; elsewhere the same steps run in PyTorch, and show the error.
Source: Shah et al. 2024, arXiv:2407.08608, FlashAttention-3, section 3.3.
"""

import functools
import math
from typing import NamedTuple

import torch

from flashlab import validate
from flashlab.operator.transforms import as_autocast, folded, refuse_derivatives
from flashlab.triton_mode import import_triton, interpreted
from flashlab.validate import describe

LARGEST = 448.0                        # of e4m3
SMALLEST = 1e-12                       # stands for 0: a block of zeros has a scale, and -inf * 0 would be NaN
ROWS, KEYS = 64, 128                   # of Q, and of K and V, that share a scale
P_BITS = 8                             # P is computed 2^8 times too large: at most 256
LOG2_E = math.log2(math.e)
HEAD_DIMS = (64, 128, 256)

# The root mean square of e4m3's relative rounding error. A step is 1/8 of the power of two below a number, and the
# error is uniform within it: 1/8 / sqrt(12) = 0.036 of that power; of the number, sqrt(0.54) times that on average.
EPS = 0.0265


class Quantized(NamedTuple):
    """X as e4m3 numbers, and for each block of rows the scale that they are to be multiplied by."""

    values: torch.Tensor               # (B, H, N, d) float8_e4m3fn
    scales: torch.Tensor               # (B, H, blocks) float32
    block: int                         # rows that share a scale; the last block may be short

    def of_rows(self):
        """The scale of each row, (B, H, N, 1)."""
        return self.scales.repeat_interleave(self.block, -1)[..., :self.values.shape[-2], None]


@functools.lru_cache(16)
def hadamard(d, device="cpu", dtype=torch.float32):
    """H (d, d) of +1 and -1 with H H^T = d·I: a Hadamard matrix whose rows have random signs.

    X @ H / sqrt(d) rotates X's rows: an outlier x becomes d elements of x / sqrt(d).
    Raises: TypeError, ValueError if d is not a power of two
    """
    validate.check_power_of_two(1, d=d)
    H = torch.ones(1, 1)
    while len(H) < d:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])               # Sylvester's construction
    signs = torch.randint(0, 2, (d, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1
    return (signs * H).to(device, dtype)


def quantize(X, block=KEYS, *, rotate=False):
    """X (B, H, N, d) in e4m3 with a scale for each `block` rows of a head: Quantized. rotate: by `hadamard(d)` first.

    Raises: TypeError, ValueError
    """
    if not isinstance(X, torch.Tensor) or X.ndim != 4 or not X.is_floating_point():
        raise TypeError(f"X must be a tensor of floats (B, H, N, d), got {describe(X)}")
    validate.check_positive(block=block)
    validate.check_bool(rotate=rotate)
    N, d = X.shape[-2:]
    X = X.float()
    if rotate:
        X = X @ hadamard(d, device=X.device) * d**-0.5
    padded = torch.nn.functional.pad(X, (0, 0, 0, -N % block)).unflatten(-2, (-1, block))    # (B, H, blocks, block, d)
    scales = padded.abs().amax((-2, -1)).clamp(min=SMALLEST) / LARGEST             # (B, H, blocks)
    values = (padded / scales[..., None, None]).to(torch.float8_e4m3fn)
    return Quantized(values.flatten(-3, -2)[..., :N, :].contiguous(), scales, block)


def flash_attention_fp8(Q, K, V, *, causal=False, scale=None, rotate=True):
    """Attention whose products are of e4m3 numbers: O close to softmax(scale · Q Kᵀ) V.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d) -> O (B, H_q, N_q, d) in bfloat16
             float16 or bfloat16, finite; d 64, 128 or 256; H_q a multiple of H_kv; if causal, N_q <= N_k
    rotate:  Q and K by the same random matrix, against outliers. It leaves exact scores as they are
    Error:   root mean square; of Gaussian inputs 2 EPS = 5.3 % of O's own: Q, K, P and V are rounded, each by EPS
    Autocast: as flash_attention
    Raises:  TypeError, ValueError; RuntimeError where a gradient is asked for: there is no backward pass
    Source:  Shah et al. 2024, arXiv:2407.08608, section 3.3
    """
    Q, K, V = as_autocast(Q, K, V)
    validate.check_qkv(Q, K, V, ndim=4, dtypes=(torch.float16, torch.bfloat16))
    validate.check_heads(Q, K)
    validate.check_bool(causal=causal, rotate=rotate)
    refuse_derivatives("flash_attention_fp8", Q=Q, K=K, V=V)
    (N_q, d), N_k = Q.shape[2:], K.shape[2]
    if d not in HEAD_DIMS:
        raise ValueError(f"Q must have head dimension 64, 128 or 256 for FP8, got {describe(Q)}")
    if V.shape[-1] != d:
        raise ValueError(f"V must have Q's head dimension d = {d} for FP8, got {describe(V)}")
    if causal and N_q > N_k:
        raise ValueError(f"causal FP8 attention takes N_q <= N_k, got N_q = {N_q}, N_k = {N_k}: "
                         "with more queries than keys some rows see no key")
    return ATTENTION_FP8(Q, K, V, causal, validate.check_scale(scale, d), rotate)


torch.library.define("flashlab::attention_fp8",
                     "(Tensor Q, Tensor K, Tensor V, bool causal, float scale, bool rotate) -> Tensor")
ATTENTION_FP8 = torch.ops.flashlab.attention_fp8.default


@torch.library.impl("flashlab::attention_fp8", "default")
def _(Q, K, V, causal, scale, rotate):
    if Q.numel() == 0 or K.numel() == 0:
        return torch.zeros(Q.shape, dtype=torch.bfloat16, device=Q.device)
    if scale < 0:                                      # the maximum of a row is taken before the scale is applied
        Q, scale = -Q, -scale
    scale = max(scale, SMALLEST)
    hopper = Q.is_cuda and torch.cuda.get_device_capability(Q.device)[0] == 9
    if hopper and import_triton() is not None and not interpreted():
        from flashlab.operator import fp8_kernel  # here: it needs Triton

        H = hadamard(Q.shape[-1], device=Q.device, dtype=Q.dtype) if rotate else None
        return fp8_kernel.forward(Q, K, V, H, causal=causal, scale=scale)
    with torch.autocast(Q.device.type, enabled=False):
        Q, K, V = quantize(Q, ROWS, rotate=rotate), quantize(K, KEYS, rotate=rotate), quantize(V, KEYS)
        return emulated(Q, K, V, causal, scale)


@torch.library.register_fake("flashlab::attention_fp8")
def _(Q, *arguments):
    return Q.new_empty(Q.shape, dtype=torch.bfloat16)


@torch.library.register_vmap("flashlab::attention_fp8")
def _(info, in_dims, *arguments):
    n, options = info.batch_size, arguments[3:]
    O = ATTENTION_FP8(*(folded(T, dim, n, 0) for T, dim in zip(arguments[:3], in_dims[:3], strict=True)), *options)
    return O.unflatten(0, (n, O.shape[0] // n)), 0


def emulated(Q, K, V, causal, scale):
    """The kernel's steps on three Quantized, all heads and queries at a time, from the last block of keys to the first.

    O in bfloat16. Sums are float32 here; those of the tensor cores are a little shorter.
    """
    group = Q.values.shape[1] // K.values.shape[1]
    K, V = (Quantized(*(T.repeat_interleave(group, 1) for T in X[:2]), X.block) for X in (K, V))
    (B, heads, N_q, _), N_k = Q.values.shape, K.values.shape[2]
    Q_i, factor_i = Q.values.float(), scale * LOG2_E * Q.of_rows()                 # (B, H, N_q, d), (B, H, N_q, 1)
    place = torch.arange(N_q, device=Q_i.device)[:, None] + N_k - N_q        # (N_q, 1)   the key that a query stands at
    m_i = Q_i.new_full((B, heads, N_q, 1), -1e30)            # below any score; -inf minus -inf would be NaN
    l_i = torch.zeros_like(m_i)
    O_i = torch.zeros_like(Q_i)
    V_scale = V.scales[..., -1]            # (B, H)     O has the scale of V's last block
    for j in reversed(range(K.scales.shape[-1])):
        keys = slice(j * K.block, min((j + 1) * K.block, N_k))
        S_ij = Q_i @ K.values[..., keys, :].float().mT                             # (B, H, N_q, B_c)
        if causal:
            S_ij = S_ij.masked_fill(torch.arange(N_k, device=Q_i.device)[keys] > place, -torch.inf)
        factor = factor_i * K.scales[..., j, None, None]                           # (B, H, N_q, 1)
        m_new = torch.maximum(m_i, S_ij.amax(-1, keepdim=True) * factor)           # in base 2
        P_ij = torch.exp2(S_ij * factor - (m_new - P_BITS))                        # (B, H, N_q, B_c)   at most 2^8
        alpha = torch.exp2(m_i - m_new)
        l_i = alpha * l_i + P_ij.sum(-1, keepdim=True)                             # of weights before they are rounded
        rescale = alpha * (V_scale / V.scales[..., j])[..., None, None]
        O_i = rescale * O_i + P_ij.to(torch.float8_e4m3fn).float() @ V.values[..., keys, :].float()
        m_i, V_scale = m_new, V.scales[..., j]
    return (O_i * V_scale[..., None, None] / l_i).to(torch.bfloat16)               # 2^8 is in both
