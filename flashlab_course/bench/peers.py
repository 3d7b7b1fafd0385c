"""Others' attention: PyTorch's SDPA by backend, its FlexAttention, and FlashAttention-4 where it is installed."""

import functools
import importlib.util
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from flashlab.ladder import PEERS

BACKENDS = {"sdpa_math": SDPBackend.MATH, "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
            "sdpa_flash": SDPBackend.FLASH_ATTENTION, "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION}


def peers():
    """name -> forward(Q, K, V, causal) -> (O, None), all (B, H, N, d), of those in ladder.PEERS that are installed."""
    found = {name: partial(run_sdpa, backend) for name, backend in BACKENDS.items()} | {"flex_attention": run_flex}
    # FlashAttention-4: the CuTe kernels of the package flash-attn-4
    if importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.cute"):
        found["fa4"] = run_fa4
    return {peer.name: found[peer.name] for peer in PEERS if peer.name in found}


def run_sdpa(backend, Q, K, V, causal):
    """Its mask is top-left: the same, as N_q = N_k."""
    with sdpa_kernel(backend):                         # this one or an error, never another in its place
        return scaled_dot_product_attention(Q, K, V, is_causal=causal, enable_gqa=Q.shape[1] != K.shape[1]), None


def run_flex(Q, K, V, causal):
    mask = causal_blocks(Q.shape[2], str(Q.device)) if causal else None
    return compiled_flex(*Q.shape, causal)(Q, K, V, block_mask=mask, enable_gqa=Q.shape[1] != K.shape[1]), None


@functools.lru_cache(1)
def compiled_flex(*problem):
    """FlexAttention, compiled anew for each problem: compiled again for another size, it falls back to storing S."""
    from torch.nn.attention.flex_attention import flex_attention

    torch.compiler.reset()
    return torch.compile(flex_attention, dynamic=False)


@functools.lru_cache(16)
def causal_blocks(N, device):
    """Which tiles FlexAttention may skip."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, query, key: query >= key, None, None, N, N, device=device)


def run_fa4(Q, K, V, causal):
    from flash_attn.cute import flash_attn_func

    result = flash_attn_func(*(T.transpose(1, 2) for T in (Q, K, V)), causal=causal)     # (B, N, H, d)
    return (result[0] if isinstance(result, tuple) else result).transpose(1, 2), None
