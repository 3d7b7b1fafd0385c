"""Writes text token by token, with or without a cache of keys and values (the KV cache)."""

from functools import partial

import torch

from flashlab.operator.decoding import flash_attention_decode


class Cache:
    """Keys and values of the tokens so far, of every layer: K, V (layers, B, H_kv, longest, d), filled from the left.

    A token's key and value depend only on the tokens before it, so they never change. Keys are kept rotated.
    """

    def __init__(self, model, batch, longest):
        shape, weight = model.shape, model.head.weight
        self.K = weight.new_empty(shape.layers, batch, shape.kv_heads, longest, shape.d)
        self.V = torch.empty_like(self.K)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=weight.device)
        self.length, self.longest = 0, longest

    def attend(self, block, Q, K, V):
        """A layer's attention: append the new tokens' K and V, and let their queries see all keys."""
        end = self.length + K.shape[2]
        if end > self.longest:
            raise ValueError(f"longest must be at least the tokens that are written, got {self.longest} for {end}")
        keys, values = self.K[block.layer], self.V[block.layer]
        if Q.shape[2] == 1:                                                  # one token: few queries, many keys
            return flash_attention_decode(Q, keys, values, self.lengths, K_new=K, V_new=V)
        keys[:, :, self.length : end], values[:, :, self.length : end] = K, V
        return block.attention(Q, keys[:, :, :end], values[:, :, :end], causal=True)

    def advance(self, N):
        """Every layer holds N tokens more now."""
        self.length += N
        self.lengths += N                                                    # the same number, for the GPU


class Captured:
    """The step of one token as a CUDA graph: each call replays hundreds of launches at once.

    Only the numbers in its tensors may change between calls, so the GPU reads the token's position from cache.lengths.
    """

    def __init__(self, model, cache, new):
        self.cache, self.new, self.graph = cache, new.clone(), torch.cuda.CUDAGraph()
        length = cache.length
        with torch.cuda.graph(self.graph):             # records the launches and makes none
            self.logits = model(self.new, cache)
        cache.length = length

    def __call__(self, new):
        self.new.copy_(new)
        self.graph.replay()
        self.cache.length += 1
        return self.logits


@torch.no_grad()
def generate(model, prompt, count, *, cached=True, graph=False, temperature=0.0, seed=0):
    """The prompt (B, N) with `count` tokens written behind it, (B, N + count).

    cached:      False: the whole text passes through the model again for each token
    graph:       with a cache on a GPU: capture the third token's step in a CUDA graph, and replay it afterwards
    temperature: 0 takes the likeliest token; above it, one is drawn with probabilities softmax(logits / temperature)
    """
    if prompt.dim() != 2 or prompt.shape[1] < 1:
        raise ValueError(f"prompt must be (B, N) with a token at least, got {tuple(prompt.shape)}")
    if graph and not (cached and prompt.is_cuda):
        raise ValueError("graph must be False without a cache or a GPU, "
                         f"got {graph} with cached={cached} on {prompt.device}")
    tokens, draw = prompt, torch.Generator(prompt.device).manual_seed(seed)
    cache = Cache(model, len(prompt), prompt.shape[1] + count) if cached else None
    new, step = prompt, partial(model, cache=cache)                          # the first call reads the prompt
    for n in range(count):
        if graph and n == 2:                                                 # all kernels have been compiled
            step = Captured(model, cache, new)
        logits = step(new) if cached else model(tokens)
        chosen = choose(logits[:, -1].float(), temperature, draw)            # (B, 1)
        tokens, new = torch.cat((tokens, chosen), dim=1), chosen
    return tokens


def choose(logits, temperature, generator):
    """A token (B, 1) by logits (B, tokens)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)
