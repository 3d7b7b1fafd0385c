"""The learner's own code in every curve: their passing exercises as further implementations, named "yours: ...".

    points = sweeps.over_N([256, 512]) + yours.over_N([256, 512])      # bytes moved, modelled or interpreted
    results = yours.into(results)          # on a GPU: their run time, TFLOP/s and error beside the others'

An exercise that has not passed adds nothing: a notebook runs the same with and without.
"""

from functools import cache, partial

import torch

from flashlab import cost
from flashlab.memory import A100_SRAM, Memory, SRAMOverflow
from flashlab.tiles import largest_square_tile
from flashlab.triton_mode import import_triton, interpreted, kernel_device
from flashlab_course.bench import backward, forward, problems, timing
from flashlab_course.bench.results import why_no_gpu
from flashlab_course.check import checker, form, source
from flashlab_course.compiler.watch import Traffic, watch
from flashlab_course.lesson.reference import own_text

FA1, FA2 = "ex05_fa1_inner_loop", "ex06_fa2_inner_loop"
FUNCTION, FORWARD, BACKWARD = "ex08_autograd_function", "ex10_triton_forward", "ex11_dkdv"
TILE = 64                      # of the learner's kernels: at d = 128 a loop as in the chapters does not spill


def answer(name):
    """The learner's function of that exercise if it passes now, else None."""
    text = own_text(name)
    return None if text is None else _passing(name, text)


@cache
def _passing(name, text):
    """Checked once as long as the text of the file is the same."""
    exercise = form.exercise(name)
    if checker.answer(exercise).passed:
        return source.load_text(text, name, source.exercise_path(name))[exercise.function]
    return None


# ---- bytes

def over_N(Ns, d=64, sram_bytes=A100_SRAM):
    """As sweeps.over_N: a point for each passing exercise at each N, in tiles of the default size."""
    with Memory(sram_bytes):
        B = largest_square_tile(d, d, element_size=4)
    passing = {name: answer(name) for name in (FA1, FA2, *[FORWARD] * interpreted())}
    return [_point(name, fn, N, d, B, sram_bytes) for name, fn in passing.items() if fn for N in Ns]


def _point(name, fn, N, d, B, sram_bytes):
    """The exercise on whole matrices of one head, beside the closed form of its rung."""
    if name == FORWARD:
        B = max(16, 1 << (B.bit_length() - 1))         # a kernel's tiles are powers of two
    title = {FA1: "FA1", FA2: "FA2", FORWARD: "FA2 in Triton"}[name]
    closed_form = cost.fa1_forward if name == FA1 else cost.fa2_forward
    point = {"rung": f"yours: {title}", "N": N, "d": d, "B": B, "sram_bytes": sram_bytes, "causal": False,
             "formula": closed_form(N, N, d, B_r=B, B_c=B).traffic,
             "measured": None, "sram_peak": None, "overflow": None}
    QKV = [torch.randn(N, d) for _ in range(3)]
    if name == FORWARD:
        return point | {"measured": _interpreted_bytes(fn, *QKV, B)}
    try:
        with Memory(sram_bytes) as mem:
            if name == FA1:
                form.exercise(FA1).show(fn, *QKV, B, d**-0.5, B_r=B)
            else:
                form.exercise(FA2).call(fn, *QKV, B, B, d**-0.5)
    except SRAMOverflow as error:
        return point | {"overflow": str(error)}
    return point | {"measured": mem.read + mem.written, "sram_peak": mem.sram_peak}


def _interpreted_bytes(fn, Q, K, V, B):
    """The bytes that the interpreter counts. It knows no SRAM."""
    tensors = {"Q": Q[None], "K": K[None], "V": V[None], "O": torch.empty_like(V)[None], "L": torch.empty(1, len(Q))}
    with watch(Traffic(**tensors)) as traffic:
        form.exercise(FORWARD).call(fn, **tensors, causal=False, scale=Q.shape[1] ** -0.5, B_r=B, B_c=B)
    return sum(traffic.read.values()) + sum(traffic.written.values())


# ---- run time on a GPU, and training

def implementations(what):
    """{name: function} of the learner's kernels for a benchmark; {} if none passes.

    what: "forward" or "backward", whose functions take (Q, K, V, causal) and return (O, L or None); "gpt", see
    `attentions`. Their backward is their dK, dV with D, dQ and the forward pass of the course's kernels.
    """
    if what == "gpt":
        return attentions()[0]
    fn = answer({"forward": FORWARD, "backward": BACKWARD}[what]) if import_triton() else None
    if fn is None:
        return {}
    if what == "forward":
        return {"yours": partial(_forward, fn)}
    return {"yours": lambda Q, K, V, causal: (_OwnKernels.apply(Q, K, V, causal, None, fn), None)}


def into(results):
    """The results with rows of the learner's own kernel, measured here at the same sizes.

    results: of bench forward or backward. Without a GPU, or before the kernel passes, they come back as they are.
    """
    own = {} if why_no_gpu() else implementations(results["what"])
    if not own:
        return results
    measure = {"forward": forward.measure, "backward": backward.measure}[results["what"]]
    sizes = dict.fromkeys(problems.problem_of(row) for row in results["rows"])
    found = [row for size in sizes for row in measure(size, own, timer=timing.quick_ms, rounds=1)]
    return results | {"rows": results["rows"] + found}


def attentions():
    """({name: attention} of the passing exercises, the names of the exercises that are still open).

    attention(Q, K, V, causal=True) -> O with a gradient, Q (B, H_q, N, d), K and V (B, H_kv, N, d). On a CPU that is
    the autograd.Function of chapter 08; the kernels of 10 and 11 too where they can run, in the interpreter or on a
    GPU. If only one of the two kernels has passed, the course's does the other's work.
    """
    on_gpu, found = kernel_device() == "cuda", {}
    names = [] if on_gpu else [FUNCTION]
    names += [FORWARD, BACKWARD] if interpreted() or on_gpu and import_triton() else []
    passed = {name: fn for name in names if (fn := answer(name))}
    if FUNCTION in passed:
        found["your autograd.Function"] = partial(_head_by_head, passed[FUNCTION])
    if own := [name for name in (FORWARD, BACKWARD) if name in passed]:
        title = "your kernels" if len(own) > 1 else "your forward kernel" if FORWARD in own else "your dK and dV"
        found[title + ", interpreted" * interpreted()] = partial(_by_kernels, passed.get(FORWARD), passed.get(BACKWARD))
    return found, [name for name in names if name not in passed]


def _head_by_head(fn, Q, K, V, causal=True):
    heads = zip(*(T.flatten(0, 1) for T in (Q, *_for_each_query_head(Q, K, V))), strict=True)
    return torch.stack([fn(*head, causal, Q.shape[-1] ** -0.5) for head in heads]).unflatten(0, Q.shape[:2])


def _by_kernels(forward, dkdv, Q, K, V, causal=True):
    return _OwnKernels.apply(Q, *_for_each_query_head(Q, K, V), causal, forward, dkdv)


def _for_each_query_head(Q, K, V):
    """K and V with as many heads as Q: the exercises know no groups."""
    return [T.repeat_interleave(Q.shape[1] // T.shape[1], dim=1) for T in (K, V)]


def _forward(fn, Q, K, V, causal):
    Q = Q.contiguous()                                 # and O with it: flattened, it has to stay the same memory
    O, L = torch.empty_like(Q), torch.empty(Q.shape[:3], device=Q.device)
    heads = [T.flatten(0, 1) for T in (Q, K, V, O, L)]
    form.exercise(FORWARD).call(fn, *heads, causal, Q.shape[-1] ** -0.5, TILE, TILE)
    return O, L


class _OwnKernels(torch.autograd.Function):
    """O by the learner's forward kernel, dK and dV by their backward kernel. For None the course's kernel runs."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, forward, dkdv):
        from flashlab.kernels.fa2 import fa2_triton_forward  # here and below: it needs Triton

        O, L = _forward(forward, Q, K, V, causal) if forward else fa2_triton_forward(Q, K, V, causal=causal)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.dkdv = causal, dkdv
        return O

    @staticmethod
    def backward(ctx, dO):
        from flashlab.kernels.fa2_backward import fa2_triton_backward

        Q, K, V, O, L = ctx.saved_tensors
        dQ, dK, dV = fa2_triton_backward(Q, K, V, O, dO, L, causal=ctx.causal)
        if ctx.dkdv:
            d = Q.shape[-1]                            # zeros up to a power of two, which the exercise asks for
            padded = [torch.nn.functional.pad(T, (0, (1 << (d - 1).bit_length()) - d)) for T in (Q, K, V, dO)]
            D = (dO.float() * O.float()).sum(-1)
            heads = [T.flatten(0, 1) for T in (*padded, L, D)]
            own_dK, own_dV = torch.empty_like(heads[1]), torch.empty_like(heads[2])
            form.exercise(BACKWARD).call(ctx.dkdv, *heads, own_dK, own_dV, ctx.causal, d**-0.5, TILE, TILE)
            dK, dV = own_dK[..., :d].reshape(K.shape), own_dV[..., :d].reshape(V.shape)
        return dQ, dK, dV, None, None, None
