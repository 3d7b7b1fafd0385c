"""A small GPT, in the form that large ones have today: RMS norms, rotary positions, grouped heads, no biases.

Attention is an argument, `attention(Q, K, V, causal=True) -> O`; everything else stays the same.
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torch.profiler import record_function

from flashlab.validate import check_positive

BYTES = 256                    # a token is a byte of text: no tokenizer to train or to ship
BASE = 10_000.0                # rotary wavelengths run from 2π to about 2π · BASE tokens


class Shape(NamedTuple):
    """The sizes of a model."""

    layers: int = 4
    width: int = 128           # of the residual stream
    heads: int = 4             # H_q; the head dimension d is width / heads
    kv_heads: int = 4          # H_kv; fewer than heads: groups of query heads share keys and values
    tokens: int = BYTES        # different ones

    @property
    def d(self):
        return self.width // self.heads


class GPT(nn.Module):
    """Tokens (B, N) -> logits (B, N, tokens) of the token after each.

    shape:     a Shape
    attention: Q (B, H_q, N_q, d), K, V (B, H_kv, N_k, d), causal -> O (B, H_q, N_q, d), bottom-right aligned
    seed:      of the weights. They are drawn on the CPU, so they are the same for every attention and on every machine
    """

    def __init__(self, shape, attention, *, seed=0):
        super().__init__()
        check_positive(**shape._asdict())
        if shape.width % (2 * shape.heads):
            raise ValueError("shape.width must be a multiple of 2 · heads, since rotary positions turn pairs of "
                             f"columns, got width {shape.width} and {shape.heads} heads")
        if shape.heads % shape.kv_heads:
            raise ValueError(f"shape.heads must be a multiple of kv_heads, got {shape.heads} and {shape.kv_heads}")
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.ModuleList(Block(shape, attention, layer) for layer in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.tokens, bias=False)
        draw_weights(self, torch.Generator().manual_seed(seed))

    def forward(self, tokens, cache=None):
        """With a Cache, the tokens follow those that it holds, and are appended to it."""
        first = 0 if cache is None else cache.lengths[:1]                     # on the GPU: no launch depends on it
        turn = angles(first, tokens.shape[1], self.shape.d, tokens.device)
        x = self.embedding(tokens)                                           # (B, N, width)
        for block in self.blocks:
            x = block(x, turn, cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
        with record_function("head"):
            return self.head(self.norm(x))

    def loss(self, tokens):
        """Mean cross entropy, in nats a token, of predicting tokens[:, 1:] from the tokens before."""
        logits = self(tokens[:, :-1])
        return cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Block(nn.Module):
    """One layer: in attention a token looks at earlier ones, the MLP works on each token alone."""

    def __init__(self, shape, attention, layer):
        super().__init__()
        self.shape, self.attention, self.layer = shape, attention, layer
        self.norm_1, self.norm_2 = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, (shape.heads + 2 * shape.kv_heads) * shape.d, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, x, turn, cache):
        with record_function("projections"):
            H_q, H_kv, d = self.shape.heads, self.shape.kv_heads, self.shape.d
            heads = self.qkv(self.norm_1(x)).unflatten(-1, (H_q + 2 * H_kv, d)).transpose(1, 2)
            Q, K, V = heads.split((H_q, H_kv, H_kv), dim=1)                   # (B, H, N, d)
            Q, K = rotate(Q, turn), rotate(K, turn)
        with record_function("attention"):
            O = cache.attend(self, Q, K, V) if cache else self.attention(Q, K, V, causal=True)
        with record_function("projections"):
            x = x + self.out(O.transpose(1, 2).flatten(2))                   # (B, H_q, N, d) -> (B, N, width)
        with record_function("mlp"):
            return x + self.down(gelu(self.up(self.norm_2(x))))


def angles(first, N, d, device):
    """cos and sin (N, d/2) of position · BASE^(−2n/d), at N positions from `first` on, a number or a tensor of one."""
    positions = first + torch.arange(N, device=device, dtype=torch.float32)
    frequencies = BASE ** (-torch.arange(0, d, 2, device=device, dtype=torch.float32) / d)
    angle = positions[:, None] * frequencies
    return angle.cos(), angle.sin()


def rotate(X, turn):
    """X (B, H, N, d) with column n and column n + d/2 turned as a pair, by the token's angle.

    A product of two rotated rows depends only on the difference of their positions. Nothing is learned.
    """
    cos, sin = turn
    a, b = X.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(X.dtype)


def draw_weights(model, generator):
    """Normal numbers of 0.02, less where a layer adds to the residual stream: 2 · layers such sums keep its size."""
    into_the_stream = ("out.weight", "down.weight")
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            std = 0.02 / math.sqrt(2 * model.shape.layers) if name.endswith(into_the_stream) else 0.02
            nn.init.normal_(weight, std=std, generator=generator)
