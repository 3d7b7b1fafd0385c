"""Cases and mistakes of ex08_autograd_function."""

import torch

from flashlab import oracle
from flashlab_course.check import limits
from flashlab_course.check.cases import features_of, normal, widest
from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output


def call(fn, Q, K, V, dO, causal, scale):
    """O, its gradients by autograd, and how many tensors as large as S were kept for them."""
    leaves, kept = [T.clone().requires_grad_() for T in (Q, K, V)], []
    keep = torch.autograd.graph.saved_tensors_hooks(lambda T: kept.append(T.numel()) or T, lambda T: T)
    with torch.enable_grad(), keep:
        O = fn(*leaves, causal, scale)
    if not isinstance(O, torch.Tensor):
        return O
    if O.grad_fn is None:
        raise Breach("raised", "O has no grad_fn: autograd knows no way back. Is it what Attention.apply returned?")
    grads = torch.autograd.grad(O, leaves, dO, allow_unused=True)
    missing = [name for name, grad in zip("QKV", grads, strict=True) if grad is None]
    if missing:
        raise Breach("raised", f"backward gave None as the gradient of {', '.join(missing)}")
    large = len(Q) * len(K)
    countable = large > max(Q.numel(), K.numel(), V.numel(), dO.numel())
    return O, *grads, sum(n >= large for n in kept) if countable else 0


def named(exercise, name, seen):
    return next(m for m in exercise.mistakes if m.name == name), seen


def attend(fn, inputs, needing="QKV"):
    """O of a call in which only these of Q, K and V need a gradient."""
    for letter in needing:
        inputs[letter].requires_grad_()
    with torch.enable_grad():
        return fn(inputs["Q"], inputs["K"], inputs["V"], inputs["causal"], inputs["scale"])


def close(found, right):
    return found.shape == right.shape and torch.allclose(found.double(), right, atol=1e-4)


def two_calls(exercise, fn):
    """Each backward has to know the options of its own forward."""
    inputs = exercise.cases[1].make()

    def both():
        O = attend(fn, inputs)
        attend(fn, inputs | {"causal": True, "scale": 2.0})
        return torch.autograd.grad(O, [inputs[letter] for letter in "QKV"], inputs["dO"])

    found, error = limits.protected(both, exercise.seconds)
    if error is None and all(map(close, found, truth(**inputs)[1:])):
        return None
    happened = "gradients were wrong" if error is None else f"backward raised {type(error).__name__}"
    return named(exercise, "options_on_the_class",
                 f"But after a second call with other options the first one's {happened}")


def frozen(exercise, fn):
    """Where some of Q, K and V are frozen, the others still have gradients, and the right ones."""
    for needing in ("KV", "QV", "QK", "Q", "K", "V"):
        inputs = exercise.cases[0].make()
        leaves, right = [inputs[letter] for letter in needing], dict(zip("QKV", truth(**inputs)[1:], strict=False))

        def some(inputs=inputs, needing=needing, leaves=leaves):
            return torch.autograd.grad(attend(fn, inputs, needing), leaves, inputs["dO"], allow_unused=True)

        found, error = limits.protected(some, exercise.seconds)
        seen = None if error is None else f"it raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        for letter, grad in zip(needing, found or (), strict=error is None):
            if grad is None or not close(grad, right[letter]):
                seen = f"the gradient of {letter} was {'missing' if grad is None else 'wrong'}"
        if seen:
            who = " and ".join(needing)
            return named(exercise, "wrong_if_frozen", f"But where only {who} needed a gradient, {seen}")
    return None


def on_ctx(exercise, fn):
    """A tensor among the attributes of ctx, which is O's node in autograd's graph."""
    O, error = limits.protected(lambda: attend(fn, exercise.cases[0].make()), exercise.seconds)
    for name, value in getattr(O.grad_fn, "__dict__", {}).items() if error is None else ():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else [value]
        if any(isinstance(T, torch.Tensor) for T in parts):
            return named(exercise, "tensors_on_ctx", f"But ctx.{name} holds a tensor")
    return None


def forbid(shape, Q, K, V, dO, causal, scale):
    inputs = {tuple(T.shape) for T in (Q, K, V, dO)} | {tuple(T.T.shape) for T in (Q, K, V, dO)}
    if len(K) > widest(Q, V) and shape in ((len(Q), len(K)), (len(K), len(Q))) and shape not in inputs:
        return f"a tensor of shape {shape}, N_q by N_k, was made: fa2_forward and fa2_backward need none"
    return None


def case(name, N_q, N_k, d, d_v, *, causal=False, scale=None, seed):
    scale = d**-0.5 if scale is None else scale

    def make():
        shapes = (N_q, d), (N_k, d), (N_k, d_v), (N_q, d_v)
        Q, K, V, dO = (normal(*shape, seed=seed + k) for k, shape in enumerate(shapes))
        return {"Q": Q, "K": K, "V": V, "dO": dO, "causal": causal, "scale": scale}

    return Case(name, make, features_of(N_q, N_k, d, d_v, causal=causal, scale=scale),
                {"N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v})


def truth(Q, K, V, dO, causal, scale):
    Q, K, V = (T.detach() for T in (Q, K, V))
    return (oracle.attention(Q, K, V, causal=causal, scale=scale)[0],
            *oracle.gradients(Q, K, V, dO, causal=causal, scale=scale), 0)


SAVE, UNPACK = "ctx.save_for_backward(Q, K, V, O, L)", "Q, K, V, O, L = ctx.saved_tensors"
GIVE, FORWARD = "return dQ, dK, dV, None, None", "fa2_forward(Q, K, V, causal=causal, scale=scale)"

EXERCISE = Exercise(
    function="attention",
    outputs=(Output("O", ("query", "column")), Output("dQ", ("query", "column")), Output("dK", ("key", "column")),
             Output("dV", ("key", "column")), Output("tensors of size N_q × N_k that were kept")),
    call=call,
    truth=truth,
    without=("autograd",),
    forbid=forbid,
    after=[on_ctx, two_calls, frozen],
    cases=[
        case("small and square", 3, 3, 3, 3, seed=950),
        case("larger", 12, 12, 4, 4, seed=954),
        case("N_q ≠ N_k, d_v ≠ d", 4, 6, 3, 5, seed=958),
        case("a scale", 3, 4, 3, 3, scale=1.3, seed=962),
        case("causal", 6, 6, 3, 3, causal=True, seed=966),
        case("causal, queries that see no key", 6, 4, 3, 3, causal=True, seed=970),
        case("a scale of 0", 3, 4, 3, 3, scale=0.0, seed=974),
        case("causal, a negative scale", 3, 5, 3, 3, scale=-0.4, causal=True, seed=986),
    ],
    mistakes=[
        Mistake("dQ_dK_swapped", "dQ and dK changed places in what backward returned",
                "the order of forward's arguments", (GIVE, "return dK, dQ, dV, None, None")),
        Mistake("nones_missing", "backward returned fewer values than forward has arguments",
                "how many arguments forward has after ctx", (GIVE, "return dQ, dK, dV")),
        Mistake("tensors_on_ctx", "tensors were kept where autograd does not see that they change",
                "how the tensors are kept", (SAVE, "ctx.kept = Q, K, V, O, L"), (UNPACK, "Q, K, V, O, L = ctx.kept")),
        Mistake("saved_twice", "save_for_backward was called twice, and only the last call counts",
                "what ctx.saved_tensors holds",
                (SAVE, "ctx.save_for_backward(Q, K, V)\n        ctx.save_for_backward(O, L)")),
        Mistake("options_on_the_class",
                "something that belongs to one call was kept where the next call overwrites it",
                "where causal and scale are kept",
                ("ctx.causal, ctx.scale = causal, scale", "Attention.causal, Attention.scale = causal, scale"),
                ("causal=ctx.causal, scale=ctx.scale", "causal=Attention.causal, scale=Attention.scale")),
        Mistake("causal_lost", "the backward ran without the mask", "what fa2_backward is given",
                ("causal=ctx.causal, scale=ctx.scale", "scale=ctx.scale")),
        Mistake("scale_lost", "the backward did not get the scale of the forward", "what fa2_backward is given",
                ("causal=ctx.causal, scale=ctx.scale", "causal=ctx.causal")),
        Mistake("no_zero_scale", "a scale of 0 was taken for no scale at all", "how scale is passed on",
                (FORWARD, "fa2_forward(Q, K, V, causal=causal, scale=scale or None)"),
                ("scale=ctx.scale", "scale=ctx.scale or None")),
        Mistake("dO_ignored", "ones took the place of the gradient that arrived", "backward's argument after ctx",
                ("O, dO, L, causal", "O, torch.ones_like(O), L, causal")),
        Mistake("O_for_dO", "O and dO changed places on the way to fa2_backward",
                "the order of fa2_backward's arguments", ("O, dO, L, causal", "dO, O, L, causal")),
        Mistake("scale_once_more", "dQ and dK were multiplied by scale a second time",
                "what fa2_backward has done already", (GIVE, "return dQ * ctx.scale, dK * ctx.scale, dV, None, None")),
        Mistake("wrong_if_frozen", "a gradient was missing or wrong where not all of Q, K and V need one",
                "what backward returns where an input is frozen", (UNPACK,
                 "Q, K, V, O, L = ctx.saved_tensors\n        if not all(ctx.needs_input_grad[:3]):\n"
                 "            return torch.zeros_like(Q), torch.zeros_like(K), torch.zeros_like(V), None, None")),
        Mistake("P_kept", "a tensor of size N_q × N_k was kept for the backward",
                "what is saved: the backward makes P again tile by tile",
                (SAVE, "ctx.save_for_backward(Q, K, V, O, L, torch.softmax(Q @ K.T * scale, -1))"),
                (UNPACK, "Q, K, V, O, L, P = ctx.saved_tensors")),
    ],
    hints=[
        "ctx.save_for_backward takes tensors only. Other values go on ctx as attributes: ctx.causal = causal.",
        "backward returns one value for each argument of forward after ctx: five of them.",
        "In backward: unpack ctx.saved_tensors, then call fa2_backward with ctx.causal and ctx.scale.",
    ],
)
