"""Calls that are compared with float64 on a GPU: a table of awkward shapes, and random ones."""

import random
from itertools import accumulate
from typing import NamedTuple

import torch
from orders import judge_in_orders

from flashlab import oracle
from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab.operator.decoding import flash_attention_decode
from flashlab_course.bench.checks import poisoned_outputs
from flashlab_course.bench.decode import in_pages, shuffled_table

GUARD = 8                              # rows of NaN before and after a tensor: reading them spoils the result
KEY_SIDE = {"K", "V", "dK", "dV"}


class Call(NamedTuple):
    """A call of flash_attention; with lengths (of queries, of keys) a call of flash_attention_varlen."""

    B: int
    H_q: int
    H_kv: int
    N_q: int
    N_k: int
    d: int
    d_v: int
    causal: bool = False
    window: tuple | None = None
    lengths: tuple | None = None
    scale: float | None = None
    dtype: torch.dtype = torch.bfloat16
    layout: tuple = (0, 2, 1, 3)       # the order in memory: a token's heads side by side, as models have them
    seed: int = 0
    spoilt: int | None = None          # a sequence full of NaN, which must not reach the others

    def tensors(self, device):
        """Q, K, V, dO (B, H, N, d), in the middle of NaN."""
        generator = torch.Generator(device).manual_seed(self.seed)
        queries, keys = (self.H_q, self.N_q), (self.H_kv, self.N_k)
        sizes = (*queries, self.d), (*keys, self.d), (*keys, self.d_v), (*queries, self.d_v)
        tensors = [self.guarded(generator, *size) for size in sizes]
        if self.spoilt is not None:
            of_queries, of_keys = self.sequences()[self.spoilt]
            for T, rows in zip(tensors, (of_queries, of_keys, of_keys, of_queries), strict=True):
                T[:, :, rows] = torch.nan
        return tensors

    def guarded(self, generator, H, N, d):
        sizes, device = (self.B, H, N + 2 * GUARD, d), generator.device
        whole = torch.full([sizes[axis] for axis in self.layout], torch.nan, device=device, dtype=self.dtype)
        rows = whole.permute([self.layout.index(axis) for axis in range(4)])[:, :, GUARD: GUARD + N]
        rows.copy_(torch.randn(self.B, H, N, d, generator=generator, device=device))
        return rows

    def options(self, device):
        """The call's arguments beside its tensors; the kernels' `why_not` takes the same."""
        found = {"causal": self.causal} | ({} if self.scale is None else {"scale": self.scale})
        if self.window is not None:
            found["window"] = list(self.window)
        for side, lengths in zip("qk", self.lengths or (), strict=False):
            ends = [0, *accumulate(lengths)]
            found[f"cu_seqlens_{side}"] = torch.tensor(ends, dtype=torch.int32, device=device)
        return found

    def sequences(self):
        """The rows of queries and of keys of each sequence."""
        if self.lengths is None:
            return [(slice(None), slice(None))]
        ends = [[0, *accumulate(lengths)] for lengths in self.lengths]
        return list(zip(*(list(map(slice, cu[:-1], cu[1:])) for cu in ends), strict=True))

    def attend(self, Q, K, V, backend, **more):
        """O and L."""
        options = self.options(Q.device) | more | {"backend": backend, "return_lse": True}
        with poisoned_outputs():
            if self.lengths is None:
                return flash_attention(Q, K, V, **options)
            O, L = flash_attention_varlen(*(T[0].transpose(0, 1) for T in (Q, K, V)), **options)
            return O.transpose(0, 1)[None], L[None]

    def forward(self, tensors, backend):
        return dict(zip("OL", self.attend(*tensors[:3], backend), strict=True))

    def backward(self, tensors, backend, deterministic=False):
        leaves = [T.detach().requires_grad_() for T in tensors[:3]]
        O, _ = self.attend(*leaves, backend, deterministic=deterministic)
        with poisoned_outputs():
            return dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(O, leaves, tensors[3]), strict=True))

    def wrong(self, found, tensors):
        """What is wrong with outputs or gradients, in words, or None. Each sequence is judged alone."""
        named = dict(zip(("Q", "K", "V", "dO"), tensors, strict=True)) | found
        masks = {"causal": self.causal, "window": self.window, "scale": self.scale}
        for sequence, (queries, keys) in enumerate(self.sequences()):
            if sequence == self.spoilt:
                continue
            one = {name: T[:, :, keys if name in KEY_SIDE else queries] for name, T in named.items()}
            if "O" in found and not one["Q"].numel():
                continue
            verdict = judge_in_orders(lambda n, one=one: judge(one, n, masks), self.d, tensors[0].device)
            if not verdict.ok:
                return f"{self}: {verdict}"
        return None


def judge(one, n, masks):
    """The Verdict on outputs or gradients, the head dimension in the order n."""
    Q, K = (one[name][..., n] for name in "QK")
    if "O" in one:
        return oracle.judge(one["O"], one["L"], Q, K, one["V"], **masks)
    dQ, dK = (one[name][..., n] for name in ("dQ", "dK"))
    return oracle.judge_gradients(dQ, dK, one["dV"], Q, K, one["V"], one["dO"], **masks)


# ---- the table: whole tiles, ragged ends, grouped heads, bottom-right, rows without keys, odd widths; windows; packed

LENGTHS = (333, 50, 0, 1, 640, 200, 1000), (500, 60, 77, 300, 640, 0, 999)
WINDOWED, PACKED = (1, 4, 2, 4095, 4095), (1, 4, 2, sum(LENGTHS[0]) + 20, sum(LENGTHS[1]) + 5)
SHAPES = [Call(*sizes) for sizes in (
    (1, 2, 2, 128, 128, 128, 128), (2, 3, 3, 1024, 1024, 64, 64, True), (1, 96, 96, 640, 640, 128, 128, True),
    (1, 4, 4, 4095, 4095, 128, 128), (1, 4, 4, 4095, 4095, 128, 128, True), (1, 4, 4, 4095, 4095, 64, 64, True),
    (2, 16, 2, 1000, 1000, 128, 128, True), (2, 16, 2, 1000, 1000, 64, 64), (1, 8, 1, 301, 2000, 64, 64, True),
    (1, 8, 8, 333, 690, 128, 128, True), (4, 8, 8, 1, 5000, 128, 128, True), (1, 2, 2, 500, 7, 64, 64),
    (1, 2, 2, 500, 77, 128, 128, True), (1, 2, 2, 200, 300, 80, 64, True), (1, 2, 1, 97, 113, 59, 24, True),
    (1, 1, 1, 200, 200, 256, 256), (300, 7, 7, 64, 64, 64, 64, True), (1, 2, 2, 128, 32768, 128, 128),
    (*WINDOWED, 64, 64, False, (512, 0)), (*WINDOWED, 128, 128, False, (512, 0)),
    (*WINDOWED, 128, 128, False, (70, 3000)),
    (1, 4, 4, 9000, 9000, 64, 64, False, (4500, 100)), (1, 8, 1, 301, 2000, 64, 64, False, (33, 5)),
    (1, 2, 2, 2000, 301, 128, 128, False, (90, 40)), (1, 2, 2, 700, 700, 64, 64, False, (0, 0)),
    (1, 4, 2, 1500, 1500, 96, 96, True), (1, 2, 2, 700, 700, 48, 48), (1, 4, 1, 333, 690, 80, 80, True),
    (1, 4, 2, 1000, 1300, 256, 256, True), (2, 4, 4, 640, 640, 192, 192), (1, 2, 2, 1100, 1100, 256, 128, True),
    (1, 2, 1, 900, 700, 192, 192, False, (90, 40)), (*WINDOWED, 256, 256, False, (512, 0)),
    (*WINDOWED, 80, 80, False, (512, 0)),
)]
SHAPES += [Call(*PACKED, d, d, *masks, LENGTHS, spoilt=1)
           for d in (64, 96, 128, 192) for masks in ((False, None), (True, None), (False, (90, 20)))]
# compute-sanitizer makes a kernel take hundreds of times as long
SMALL = [Call(1, 2, H_kv, N_q, N_k, d, d, causal) for H_kv, N_q, N_k in ((2, 256, 256), (1, 97, 213), (2, 300, 300))
         for d in (64, 128) for causal in (False, True)]
SMALL += [Call(1, 2, 1, 97, 213, d, d, False, (70, 10)) for d in (64, 128)]
SMALL += [Call(1, 2, 1, 501, 501, d, d, True, None, ((70, 0, 230, 201), (70, 0, 230, 201))) for d in (64, 128)]


# ---- random calls

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OF_A_KIND = 8                          # calls in a row need the same kernels: compiling takes longer than a call


def random_call(number, longest=500):
    """(a Call, whether deterministic)."""
    kind, draw = random.Random(number // OF_A_KIND), random.Random(f"sizes of {number}")
    dtype, d = kind.choice(DTYPES), kind.choice((16, 24, 40, 59, 64, 80, 96, 128, 192, 200, 256))
    d_v, H_kv, group = kind.choice((d, d, d, 16, 64, 100)), kind.choice((1, 2, 3)), kind.choice((1, 2, 4))
    causal, deterministic, packed = (kind.random() < share for share in (0.4, 0.3, 0.4))
    wide, narrow = (draw.randint(-1, 300), draw.randint(-1, 300)), (draw.randint(0, 40), draw.randint(-1, 5))
    window = draw.choice((wide, narrow)) if kind.random() < 0.5 else None
    layout = kind.choice(((0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)))       # heads first, tokens first, transposed
    size = lambda: draw.randint(1, longest)
    length = lambda: draw.choice((1, size(), size(), min(longest, 64 * draw.randint(1, 8))))
    lengths, many = None, draw.randint(1, 5)
    if packed:
        lengths = [[draw.choice((0, length(), length())) for _ in range(many)] for _ in range(2)]
        lengths = tuple((one[0] + (not sum(one)), *one[1:]) for one in lengths)
    N_q, N_k = map(sum, lengths) if packed else (length(), length())
    B, scale = 1 if packed else draw.choice((1, 2)), draw.choice((None, None, None, 0.0, -0.2, 0.7))
    shape = (B, H_kv * group, H_kv, N_q, N_k, d, d_v)
    return Call(*shape, causal, window, lengths, scale, dtype, layout, number), deterministic


class DecodeCall:
    """A random call of flash_attention_decode."""

    def __init__(self, number, longest=3000):
        draw = random.Random(number)
        self.number, self.dtype = number, draw.choice((*DTYPES, torch.bfloat16))
        self.d, self.d_v = draw.choice(((64, 64), (128, 128), (128, 128), (80, 48), (256, 256)))
        self.H_kv, self.group, self.N_q = draw.choice((1, 2, 4)), draw.choice((1, 4, 8)), draw.choice((1, 1, 2, 3, 9))
        self.page_size = draw.choice((None, None, 16, 64, 256, 48))
        self.splits = draw.choice((None, None, 1, 3, 16, 50))
        self.window, self.append = draw.choice((None, None, (100, 0), (0, 0))), draw.random() < 0.5
        self.N_max = draw.randint(40, longest)
        most = self.N_max - self.N_q * self.append
        drawn = [draw.choice((0, 1, 63, 64, 65, draw.randint(0, most), most)) for _ in range(draw.choice((1, 3, 8)))]
        self.lengths = [min(length, most) for length in drawn]

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())

    def wrong(self, device, backend):
        """What is wrong with the call, in words; None if it is right. The rest of the cache is full of NaN."""
        g, B, N = torch.Generator(device).manual_seed(self.number), len(self.lengths), self.N_max
        normal = lambda H, N, d: torch.randn(B, H, N, d, generator=g, device=device, dtype=self.dtype)
        Q = normal(self.H_kv * self.group, self.N_q, self.d)
        K, V = normal(self.H_kv, N, self.d), normal(self.H_kv, N, self.d_v)
        ends = [length + self.N_q * self.append for length in self.lengths]    # new keys are taken out, to be put back
        last = lambda T: torch.stack([T[b, :, end - self.N_q: end] for b, end in enumerate(ends)])
        options = {"K_new": last(K), "V_new": last(V)} if self.append else {}
        caches = [T.clone() for T in (K, V)]
        for cache in caches:
            for b, length in enumerate(self.lengths):
                cache[b, :, length:] = torch.nan
        if self.page_size:
            options["block_table"] = table = shuffled_table(B, N, self.page_size, g, device)
            caches = [in_pages(cache, table, self.page_size) for cache in caches]
        lengths = torch.tensor(self.lengths, dtype=torch.int32, device=device)
        options |= {"window": self.window, "splits": self.splits, "return_lse": True, "backend": backend}
        with poisoned_outputs():
            O, L = flash_attention_decode(Q, *caches, lengths, **options)
        for b, end in enumerate(ends):
            one = {"O": O[b], "L": L[b], "Q": Q[b], "K": K[b, :, :end], "V": V[b, :, :end]}
            masks = {"causal": True, "window": self.window}
            verdict = judge_in_orders(lambda n, one=one, masks=masks: judge(one, n, masks), self.d, device)
            if not verdict.ok:
                return f"{self}: sequence {b}: {verdict}"
        return None
