"""The learner's own code in every curve: their passing exercises as further implementations, named "yours: ...".

    points = sweeps.over_N([256, 512]) + yours.over_N([256, 512])      # bytes: under the memory model, or the interpreter's
    yours.compiled(d=128)                  # registers, spills, shared memory of their kernels and of the course's, for an H100
    results = yours.into(results)          # on a GPU: their run time, TFLOP/s and error beside the others'

What has not passed adds nothing: a notebook runs the same with and without.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from flashlab import cost
from flashlab.memory import A100_SRAM, Memory, SRAMOverflow, kernel, load, store, tiles
from flashlab.tiles import largest_square_tile
from flashlab.triton_mode import import_triton, interpreted
from flashlab_course.bench import backward, forward, passes, problems, timing
from flashlab_course.bench.results import why_no_gpu
from flashlab_course.check import checker, form, source, stubs
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, CompileError, try_all
from flashlab_course.compiler.watch import Traffic, bind, watch

inf = float("inf")
TENSOR_CORES = ("mma.sync", "wgmma.mma_async", "tcgen05.mma")


class Own(NamedTuple):
    """An exercise that can run on whole matrices of one head."""

    exercise: str
    title: str
    cost: Callable             # the closed form of the rung it is part of
    run: Callable              # (fn, Q, K, V, B) -> bytes between HBM and chip


def answer(name, known={}):    # noqa: B006    one memory for the process: an answer is checked once as long as its file is the same
    """The learner's function of that exercise if it passes now, else None."""
    text = stubs.present(name)
    if text is None or not stubs.begun(name, text):
        return None
    if known.get(name, ("",))[0] != text:
        exercise = form.exercise(name)
        passed = checker.examine(exercise).passed
        known[name] = text, source.load_text(text, name, source.exercise_path(name))[exercise.function] if passed else None
    return known[name][1]


# ---- bytes

def over_N(Ns, d=64, sram_bytes=A100_SRAM):
    """As sweeps.over_N: a point for each passing exercise at each N, in tiles of the default size."""
    with Memory(sram_bytes):
        B = largest_square_tile(d, d, element_size=4)
    return [_point(own, fn, N, d, B, sram_bytes) for own, fn in _passing() for N in Ns]


def over_tiles(N, d=64, sizes=(16, 32, 64, 128), sram_bytes=A100_SRAM):
    """As sweeps.over_tiles: a point for each passing exercise at each tile size."""
    return [_point(own, fn, N, d, B, sram_bytes) for own, fn in _passing() for B in sizes]


def _passing():
    """(Own, function) of what the learner has passed. A kernel counts where it can be watched: in the interpreter."""
    known = [own for own in OWN if interpreted() or not form.exercise(own.exercise).triton]
    return [(own, fn) for own in known if (fn := answer(own.exercise)) is not None]


def _point(own, fn, N, d, B, sram_bytes):
    if form.exercise(own.exercise).triton:
        B = max(16, 1 << (B.bit_length() - 1))             # a kernel's tiles are powers of two
    Q, K, V = (torch.randn(N, d) for _ in range(3))
    point = {"rung": f"yours: {own.title}", "N": N, "d": d, "B": B, "sram_bytes": sram_bytes, "causal": False,
             "formula": own.cost(N, N, d, B_r=B, B_c=B).traffic}
    try:
        moved, peak = own.run(fn, Q, K, V, B, sram_bytes)
    except SRAMOverflow as error:
        return point | {"measured": None, "sram_peak": None, "overflow": str(error)}
    return point | {"measured": moved, "sram_peak": peak, "overflow": None}


def _fa1(fn, Q, K, V, B, sram_bytes):
    """The learner's step in FA1's loops: a key block stays, every query block passes with its O, l and m."""
    scale = Q.shape[1] ** -0.5

    def step(rows, K_j, V_j, last):
        found = fn(load(Q, rows), K_j, V_j, load(O, rows), load(l, rows), load(m, rows), scale)
        for T, T_i in zip((O, l, m), found, strict=True):
            store(T, rows, T_i)
        if last:
            store(L, rows, found[2] + torch.log(found[1]))

    def key_block(cols):
        K_j, V_j = load(K, cols), load(V, cols)
        for rows in tiles(len(Q), B):
            step(rows, K_j, V_j, cols.stop == len(K))

    with Memory(sram_bytes) as mem:
        O, l, m = torch.zeros(len(Q), V.shape[1]), torch.zeros(len(Q)), torch.full((len(Q),), -inf)
        L = torch.empty(len(Q))
        with kernel("fa1_forward", Q=Q, K=K, V=V, O=O, l=l, m=m, L=L):
            for cols in tiles(len(K), B):
                key_block(cols)
    return mem.read + mem.written, mem.sram_peak


def _fa2(fn, Q, K, V, B, sram_bytes):
    with Memory(sram_bytes) as mem:
        form.exercise("ex06_fa2_inner_loop").call(fn, Q, K, V, B, B, Q.shape[1] ** -0.5)
    return mem.read + mem.written, mem.sram_peak


def _triton(fn, Q, K, V, B, sram_bytes):
    """Counted by the interpreter. It knows no SRAM: a kernel's tiles lie in registers and shared memory as the compiler likes."""
    tensors = {"Q": Q[None], "K": K[None], "V": V[None], "O": torch.empty_like(V)[None], "L": torch.empty(1, len(Q))}
    with watch(Traffic(**tensors)) as traffic:
        form.exercise("ex10_triton_forward").call(fn, **tensors, causal=False, scale=Q.shape[1] ** -0.5, B_r=B, B_c=B)
    return sum(traffic.read.values()) + sum(traffic.written.values()), None


OWN = [Own("ex05_fa1_inner_loop", "FA1", cost.fa1_forward, _fa1), Own("ex06_fa2_inner_loop", "FA2", cost.fa2_forward, _fa2),
       Own("ex10_triton_forward", "FA2 in Triton", cost.fa2_forward, _triton)]


# ---- run time, on a GPU

TILE = 64                      # of the learner's kernels: no spills at d = 128 where the loop is written as the chapters do


def implementations(what):
    """{name: forward} of the learner's own kernels, as `bench forward` and `bench backward` take them; {} if none passes.

    what: "forward" or "backward"; "gpt" gives {name: attention}, see `attentions`.
    Their backward is their dK, dV with D, dQ and the forward pass of the course's kernels.
    """
    if what == "gpt":
        return attentions()[0]
    name, run = {"forward": ("ex10_triton_forward", _forward), "backward": ("ex11_dkdv", _backward)}[what]
    fn = answer(name) if import_triton() else None
    return {} if fn is None else {"yours": partial(run, fn)}


def _forward(fn, Q, K, V, causal):
    Q = Q.contiguous()                                     # and O with it: flattened, it has to stay the same memory
    O, L = torch.empty_like(Q), torch.empty(Q.shape[:3], device=Q.device)
    heads = [T.flatten(0, 1) for T in (Q, K, V, O, L)]
    form.exercise("ex10_triton_forward").call(fn, *heads, causal, Q.shape[-1] ** -0.5, TILE, TILE)
    return O, L


def _backward(fn, Q, K, V, causal):
    return _OwnKernels.apply(Q, K, V, causal, None, fn), None


class _OwnKernels(torch.autograd.Function):
    """O of the learner's forward kernel, whose gradients with respect to K and V are their kernel's; for None the course's."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, forward, dkdv):
        from flashlab.kernels.fa2 import fa2_triton_forward  # here and below: it needs Triton

        O, L = fa2_triton_forward(Q, K, V, causal=causal) if forward is None else _forward(forward, Q, K, V, causal)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.dkdv = causal, dkdv
        return O

    @staticmethod
    def backward(ctx, dO):
        from flashlab.kernels.fa2_backward import fa2_triton_backward

        Q, K, V, O, L = ctx.saved_tensors
        if ctx.dkdv is None:
            return *fa2_triton_backward(Q, K, V, O, dO, L, causal=ctx.causal), None, None, None
        d, D = Q.shape[-1], (dO.float() * O.float()).sum(-1)
        heads = [_whole(T).flatten(0, 1) for T in (Q, K, V, dO)]
        dK, dV = torch.empty_like(heads[1]), torch.empty_like(heads[2])
        form.exercise("ex11_dkdv").call(ctx.dkdv, *heads, L.flatten(0, 1), D.flatten(0, 1), dK, dV, ctx.causal, d**-0.5, TILE, TILE)
        dQ = fa2_triton_backward(Q, K, V, O, dO, L, causal=ctx.causal)[0]
        return dQ, dK[..., :d].reshape(K.shape), dV[..., :d].reshape(V.shape), None, None, None


def _whole(T):
    """With columns of zeros up to a power of two, as the exercise has them: they add nothing to any product."""
    return torch.nn.functional.pad(T, (0, (1 << (T.shape[-1] - 1).bit_length()) - T.shape[-1]))


def into(results):
    """The results with rows of the learner's own kernel, measured here at the same sizes, where there is a GPU and it passes.

    results: of bench forward or backward. Without a GPU, or before it passes, they come back as they are.
    """
    own = {} if why_no_gpu() else implementations(results["what"])
    if not own:
        return results
    which = {"forward": forward.FORWARD, "backward": backward.BACKWARD}[results["what"]]
    sizes = dict.fromkeys(problems.problem_of(row) for row in results["rows"])
    found = [row for size in sizes for row in passes.measure(which, size, own, timer=timing.quick_ms, rounds=1)]
    return results | {"rows": results["rows"] + found}


# ---- training with them

def attentions():
    """What the learner has passed, as a model takes its attention, and what is still open: ({name: attention}, [exercises]).

    attention(Q, K, V, causal=True) -> O with a gradient, Q (B, H_q, N, d), K and V (B, H_kv, N, d). On a CPU that is the
    autograd.Function of chapter 08; the kernels of 10 and 11 too where they can run, in the interpreter or on a GPU. Where one
    of the two has passed, the course's kernel does the other's work.
    """
    found, left = {}, []
    if not torch.cuda.is_available():
        fn = answer("ex08_autograd_function")
        if fn is None:
            left.append("ex08_autograd_function")
        else:
            found["your autograd.Function"] = partial(_head_by_head, fn)
    if interpreted() or torch.cuda.is_available() and import_triton():
        names = "ex10_triton_forward", "ex11_dkdv"
        kernels = [answer(name) for name in names]
        left += [name for name, fn in zip(names, kernels, strict=True) if fn is None]
        if title := {(True, True): "your kernels", (True, False): "your forward kernel", (False, True): "your dK and dV"}.get(
                tuple(fn is not None for fn in kernels)):
            found[title + ", interpreted" * interpreted()] = partial(_by_kernels, *kernels)
    return found, left


def _head_by_head(fn, Q, K, V, causal=True):
    K, V = _for_each_query_head(Q, K, V)
    heads = [fn(q, k, v, causal, Q.shape[-1] ** -0.5) for q, k, v in zip(*(T.flatten(0, 1) for T in (Q, K, V)), strict=True)]
    return torch.stack(heads).view(*Q.shape[:3], V.shape[-1])


def _by_kernels(forward, dkdv, Q, K, V, causal=True):
    return _OwnKernels.apply(Q, *_for_each_query_head(Q, K, V), causal, forward, dkdv)


def _for_each_query_head(Q, K, V):
    """K and V with as many heads as Q: the exercises know no groups."""
    return [T.repeat_interleave(Q.shape[1] // T.shape[1], dim=1) for T in (K, V)]


# ---- without a GPU: what the compiler makes of it

class _Stop(Exception):
    """Ends a launch before it runs."""


class _FirstLaunch:
    """Keeps the first launch's kernel and arguments, and stops there."""

    def launched(self, kernel, args, kwargs, grid):
        self.kernel, self.arguments = kernel, bind(kernel, args, kwargs)
        raise _Stop


def compiled(d=128, causal=True, arch=90, dtype=torch.bfloat16):
    """What the compiler makes of the learner's passing kernels, and of the course's, for a GPU that need not be here.

    A list of dicts as figures.compiled_kernels draws them: name (with tile sizes and tensor-core instruction), registers a thread,
    spills in bytes a thread, shared and limit in bytes a program; or name and refused, the compiler's reason.
    """
    jobs = [*_course(d, causal, dtype), *_own_launches(d, causal, dtype)]
    found = try_all([(kernel, arguments, arch) for _, kernel, arguments in jobs])
    return [_facts(title, arguments, result) for (title, _, arguments), result in zip(jobs, found, strict=True)]


def _course(d, causal, dtype):
    from flashlab.kernels import fa2, fa2_backward

    X, L = torch.empty(1, 16, 4096, d, dtype=dtype, device="meta"), torch.empty(1, 16, 4096, device="meta")
    _, arguments = fa2.launch(X, X, X, X, L, causal=causal, scale=d**-0.5)
    yield "forward, the course's", fa2.fa2_forward_kernel, arguments
    _, (kernel, _, arguments), _ = fa2_backward.launch(X, X, X, X, X, L, None, X, X, X, causal=causal, scale=d**-0.5)
    yield "dK and dV, the course's", kernel, arguments


def _own_launches(d, causal, dtype):
    X, L = torch.empty(16, 4096, d, dtype=dtype, device="meta"), torch.empty(16, 4096, device="meta")
    for title, name, tensors in (("forward, yours", "ex10_triton_forward", [X, X, X, X, L]),
                                 ("dK and dV, yours", "ex11_dkdv", [X, X, X, X, L, L, X, X])):
        if (fn := answer(name)) is None:
            continue
        first = _FirstLaunch()
        try:
            with watch(first):
                form.exercise(name).call(fn, *tensors, causal, d**-0.5, TILE, TILE)
        except _Stop:
            yield title, first.kernel, first.arguments


def _facts(title, arguments, result):
    name = f"{title}, {arguments['B_r']} × {arguments['B_c']}"
    if isinstance(result, CompileError):
        return {"name": name, "refused": result.reason}
    instruction = next((op for op in TENSOR_CORES[::-1] if op in result.ptx), "no tensor cores")
    return {"name": f"{name}: {instruction}", "registers": result.registers, "spills": result.spills, "shared": result.shared_bytes,
            "limit": SHARED_LIMIT[result.arch]}
