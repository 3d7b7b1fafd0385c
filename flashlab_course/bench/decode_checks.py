"""What has to be right before decoding is timed: random calls against float64, and a CUDA graph that does what the calls do."""

import random

import torch
from torch.nn.functional import pad

from flashlab import oracle
from flashlab.operator.decoding import flash_attention_decode
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.orders import judge_in_orders


class Case:
    """A random call, which follows from its number alone."""

    def __init__(self, number, longest=3000):
        draw = random.Random(number)
        self.number, self.dtype = number, draw.choice((torch.float16, torch.bfloat16, torch.bfloat16, torch.float32))
        self.d, self.d_v = draw.choice(((64, 64), (128, 128), (128, 128), (80, 48), (256, 256)))
        self.H_kv, self.group, self.N_q = draw.choice((1, 2, 4)), draw.choice((1, 4, 8)), draw.choice((1, 1, 2, 3, 9))
        self.page_size, self.splits = draw.choice((None, None, 16, 64, 256, 48)), draw.choice((None, None, 1, 3, 16, 50))
        self.window, self.append = draw.choice((None, None, (100, 0), (0, 0))), draw.random() < 0.5
        self.N_max = draw.randint(40, longest)
        most = self.N_max - self.N_q * self.append
        self.lengths = [draw.choice((0, 1, 63, 64, 65, draw.randint(0, most), most)) for _ in range(draw.choice((1, 3, 8)))]
        self.lengths = [min(length, most) for length in self.lengths]

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def try_case(case, device="cuda", backend="triton"):
    """What is wrong with a call, in words; None where all is right. Behind its keys the cache is full of NaN."""
    g, B, N = torch.Generator(device).manual_seed(case.number), len(case.lengths), case.N_max
    normal = lambda H, N, d: torch.randn(B, H, N, d, generator=g, device=device, dtype=case.dtype)
    Q, K, V = normal(case.H_kv * case.group, case.N_q, case.d), normal(case.H_kv, N, case.d), normal(case.H_kv, N, case.d_v)
    ends = [length + case.N_q * case.append for length in case.lengths]    # new keys are taken out of the cache, to be put back
    last = lambda T: torch.stack([T[b, :, end - case.N_q: end] for b, end in enumerate(ends)])
    K_new, V_new = (last(K), last(V)) if case.append else (None, None)
    table, caches = None, [T.clone() for T in (K, V)]
    for cache in caches:
        for b, length in enumerate(case.lengths):
            cache[b, :, length:] = torch.nan
    if case.page_size:
        table = shuffled_table(B, N, case.page_size, g, device)
        caches = [in_pages(cache, table, case.page_size) for cache in caches]
    lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
    with poisoned_outputs():
        O, L = flash_attention_decode(Q, *caches, lengths, block_table=table, K_new=K_new, V_new=V_new, window=case.window,
                                      splits=case.splits, return_lse=True, backend=backend)
    for b, end in enumerate(ends):
        verdict = judge_in_orders(
            lambda n: oracle.judge(O[b], L[b], Q[b][..., n], K[b, :, :end, n], V[b, :, :end], causal=True, window=case.window),
            case.d, device)
        if not verdict.ok:
            return f"sequence {b}: {verdict}"
    return None


def shuffled_table(B, N, page_size, generator, device):
    """A block table (B, pages of a sequence) whose pages lie in no order."""
    each = -(-N // page_size)
    return torch.randperm(B * each, generator=generator, device=device).reshape(B, each).to(torch.int32)


def in_pages(cache, table, page_size):
    """The keys of a cache (B, H, N, d) where the table says: (pages, H, page_size, d), NaN in what is left of the last pages."""
    B, H, N, d = cache.shape
    pages = cache.new_empty(table.numel(), H, page_size, d)
    for n in range(table.shape[1]):
        rows = cache[:, :, n * page_size: (n + 1) * page_size]
        pages[table[:, n].long()] = pad(rows, (0, 0, 0, page_size - rows.shape[2]), value=torch.nan)
    return pages


def try_graph(steps=3):
    """What is wrong with decoding captured in a CUDA graph, in words, or None: each replay is a token, as the calls give it."""
    B, H_q, H_kv, N, d, page_size = 4, 32, 4, 4096, 128, 64
    g = torch.Generator("cuda").manual_seed(0)
    normal = lambda *sizes: torch.randn(*sizes, generator=g, device="cuda", dtype=torch.bfloat16)
    table = shuffled_table(B, N, page_size, g, "cuda")
    K, V = (normal(table.numel(), H_kv, page_size, d) for _ in range(2))
    lengths = torch.tensor([0, 63, 2000, 4000], dtype=torch.int32, device="cuda")
    tokens = [(normal(B, H_q, 1, d), normal(B, H_kv, 1, d), normal(B, H_kv, 1, d)) for _ in range(steps)]

    def step(token, K, V, lengths):
        O = flash_attention_decode(token[0], K, V, lengths, block_table=table, K_new=token[1], V_new=token[2])
        lengths += 1
        return O

    state = [T.clone() for T in (K, V, lengths)]
    expected = [step(token, *state) for token in tokens]
    state, place = [T.clone() for T in (K, V, lengths)], [T.clone() for T in tokens[0]]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):                      # nothing runs, so the state stays
        O = step(place, *state)
    for n, token in enumerate(tokens):
        for T, T_new in zip(place, token, strict=True):
            T.copy_(T_new)
        graph.replay()
        if not torch.equal(O, expected[n]):
            return f"replay {n + 1} differs by up to {(O - expected[n]).abs().max().item():.2e}"
    return None
