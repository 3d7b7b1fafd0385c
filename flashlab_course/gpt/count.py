"""The cost of a training step by formula: FLOPs a token, and the bytes that are kept for the backward pass.

A multiplication and an addition are 2 FLOPs. Only matrix products count. With a causal mask half of the pairs of query
and key count, as everywhere in this course. A result that the backward pass computes again counts once.
"""


def weights(shape):
    """Weights that a token is multiplied with: all but the norms' and the embedding's."""
    d, H_q, H_kv, width = shape.d, shape.heads, shape.kv_heads, shape.width
    layer = width * (H_q + 2 * H_kv) * d + width * width + 2 * 4 * width * width      # qkv, out, up and down
    return shape.layers * layer + width * shape.tokens                               # and the head


def flops_per_token(shape, N, causal=True):
    """FLOPs of a training step per token of a context of N: 6 for each weight, 12 · layers · width · N for QKᵀ and PV.

    In the forward pass 2 FLOPs for each weight, and two products of 2 · width FLOPs for each key that a query sees,
    N / 2 on average with a mask. The backward pass takes twice as many: a product's gradients are two products.
    """
    keys = N / 2 if causal else N
    return 3 * (2 * weights(shape) + shape.layers * 2 * 2 * shape.width * keys)


def mfu(tokens_per_second, shape, N, peak, causal=True):
    """Model FLOPs utilisation: the model's own FLOPs as a share of `peak` FLOP/s.

    Source: Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B, which counts masked pairs as well
    """
    return tokens_per_second * flops_per_token(shape, N, causal) / peak


def kept_bytes(shape, batch, N, naive=False):
    """Bytes that autograd keeps from the forward to the backward pass, in float32 on a CPU, without the weights.

    naive: naive attention keeps P, N × N for each head, and a mask; flash_attention keeps O and L.
    """
    width, kv = shape.width, shape.kv_heads * shape.d
    norm = 3 * width + 1                                         # input, input / rms, the same times weights; 1 / rms
    fused = width + kv + (width + 2 * kv) + width + shape.heads  # rotated Q and K; V inside its product; O; L
    attention = 3 * width + shape.heads * N if naive else fused  # Q, K and V with as many heads as Q, P
    layer = 2 * norm + attention + width + 2 * 4 * width         # inputs of the matrices out and down, and of the GELU
    numbers = shape.layers * layer + norm + shape.tokens         # and the loss: a probability for each token there is
    mask = shape.layers * N * N if naive else 0                  # a byte for each pair
    tokens = 8 * batch * (2 * N + 1)                             # inputs and targets, whole numbers of 8 bytes
    return 4 * (batch * N * numbers + N * shape.d + 1) + mask + tokens     # N · d: the angles' cos and sin


def training_bytes(shape, batch, N, naive=False):
    """Bytes in float32 after a forward pass: weights, gradients, AdamW's two averages, and what autograd keeps."""
    return 4 * 4 * (weights(shape) + shape.tokens * shape.width) + kept_bytes(shape, batch, N, naive)


def decode_bytes(shape, batch, N, element_size):
    """Bytes that one step of generation reads for `batch` texts of N tokens: weights once, each text's K and V once."""
    cache = 2 * shape.layers * shape.kv_heads * shape.d * N
    return element_size * (weights(shape) + batch * cache)
