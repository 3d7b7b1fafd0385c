import torch

from flashlab import oracle
from flashlab_course.check import limits
from flashlab_course.check.cases import Mistake, case_of, drawn, no_scores
from flashlab_course.check.form import Breach

SAVE, UNPACK = "ctx.save_for_backward(Q, K, V, O, L)", "Q, K, V, O, L = ctx.saved_tensors"
GIVE, FORWARD = "return dQ, dK, dV, None, None", "fa2_forward(Q, K, V, causal=causal, scale=scale)"
OPTIONS = "causal=ctx.causal, scale=ctx.scale"


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
    if missing := [name for name, grad in zip("QKV", grads, strict=True) if grad is None]:
        raise Breach("raised", f"backward gave None as the gradient of {', '.join(missing)}")
    large = len(Q) * len(K)
    countable = large > max(T.numel() for T in (Q, K, V, dO))
    return O, *grads, sum(n >= large for n in kept) if countable else 0


def truth(Q, K, V, dO, causal, scale):
    tensors, options = [T.detach() for T in (Q, K, V)], {"causal": causal, "scale": scale}
    return oracle.attention(*tensors, **options)[0], *oracle.gradients(*tensors, dO, **options), 0


def attend(fn, inputs, needing="QKV"):
    """O of a call in which only these of Q, K and V need a gradient."""
    for letter in needing:
        inputs[letter].requires_grad_()
    with torch.enable_grad():
        return fn(*(inputs[name] for name in ("Q", "K", "V", "causal", "scale")))


def wrong_gradient(exercise, fn, needing="QKV", others=()):
    """What is wrong, in words, where only these of Q, K and V need a gradient, or None. others: of a second call."""
    inputs = exercise.cases[0].make()

    def run():
        O = attend(fn, inputs, needing)
        for other in others:
            attend(fn, inputs | other)
        return torch.autograd.grad(O, [inputs[letter] for letter in needing], inputs["dO"], allow_unused=True)

    found, error = limits.protected(run, exercise.seconds)
    if error is not None:
        return f"it raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    right = dict(zip("QKV", truth(**inputs)[1:], strict=False))
    return next((f"the gradient of {letter} was {'missing' if grad is None else 'wrong'}"
                 for letter, grad in zip(needing, found, strict=True)
                 if grad is None or not torch.allclose(grad.double(), right[letter], atol=1e-4)), None)


def two_calls(exercise, fn):
    """Each backward has to know the options of its own forward."""
    said = wrong_gradient(exercise, fn, others=[{"causal": True, "scale": 2.0}])
    return said and (exercise.mistake("options_on_the_class"), f"But after a second call with other options {said}")


def frozen(exercise, fn):
    """Where some of Q, K and V are frozen, the others still have gradients, and the right ones."""
    for needing in ("KV", "QV", "QK", "Q", "K", "V"):
        if said := wrong_gradient(exercise, fn, needing):
            return exercise.mistake("wrong_if_frozen"), f"But where only {' and '.join(needing)} needed one, {said}"
    return None


def on_ctx(exercise, fn):
    """A tensor among the attributes of ctx, which is O's node in autograd's graph."""
    O, error = limits.protected(lambda: attend(fn, exercise.cases[0].make()), exercise.seconds)
    for name, value in getattr(O.grad_fn, "__dict__", {}).items() if error is None else ():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else [value]
        if any(isinstance(T, torch.Tensor) for T in parts):
            return exercise.mistake("tensors_on_ctx"), f"But ctx.{name} holds a tensor"
    return None


@case_of
def case(N_q, N_k, d, d_v, *, causal=False, scale=None, seed):
    Q, K, V, dO = drawn(N_q, N_k, d, d_v, seed=seed)
    return {"Q": Q, "K": K, "V": V, "dO": dO, "causal": causal, "scale": d**-0.5 if scale is None else scale}


outputs = [("O", "query", "column"), ("dQ", "query", "column"), ("dK", "key", "column"), ("dV", "key", "column"),
           ("tensors of size N_q × N_k that were kept",)]
without = ("autograd",)
forbid = no_scores
after = [on_ctx, two_calls, frozen]
cases = [case("small and square", 3, 3, 3, 3, seed=950),
         case("larger", 12, 12, 4, 4, seed=954),
         case("N_q ≠ N_k, d_v ≠ d", 4, 6, 3, 5, seed=958),
         case("a scale", 3, 4, 3, 3, scale=1.3, seed=962),
         case("causal", 6, 6, 3, 3, causal=True, seed=966),
         case("causal, queries that see no key", 6, 4, 3, 3, causal=True, seed=970),
         case("a scale of 0", 3, 4, 3, 3, scale=0.0, seed=974),
         case("causal, a negative scale", 3, 5, 3, 3, scale=-0.4, causal=True, seed=986)]
mistakes = [
    Mistake("dQ_dK_swapped", "dQ and dK changed places in what backward returned", "the order of forward's arguments",
            (GIVE, "return dK, dQ, dV, None, None")),
    Mistake("nones_missing", "backward returned fewer values than forward has arguments",
            "how many arguments forward has after ctx", (GIVE, "return dQ, dK, dV")),
    Mistake("tensors_on_ctx", "tensors were kept where autograd does not see that they change",
            "how the tensors are kept", (SAVE, "ctx.kept = Q, K, V, O, L"), (UNPACK, "Q, K, V, O, L = ctx.kept")),
    Mistake("saved_twice", "save_for_backward was called twice, and only the last call counts",
            "what saved_tensors holds", (SAVE, "ctx.save_for_backward(Q, K, V)\n        ctx.save_for_backward(O, L)")),
    Mistake("options_on_the_class", "what belongs to one call was kept where the next call overwrites it",
            "where the options are kept", ("ctx.causal, ctx.scale = causal",
             "Attention.causal, Attention.scale = causal"), (OPTIONS, OPTIONS.replace("ctx", "Attention"))),
    Mistake("causal_lost", "the backward ran without the mask", "what fa2_backward is given",
            ("causal=ctx.causal, scale=ctx.scale", "scale=ctx.scale")),
    Mistake("scale_lost", "the backward did not get the scale of the forward", "what fa2_backward is given",
            ("causal=ctx.causal, scale=ctx.scale", "causal=ctx.causal")),
    Mistake("no_zero_scale", "a scale of 0 was taken for no scale at all", "how scale is passed on", (FORWARD,
             FORWARD[:-1] + " or None)"), ("scale=ctx.scale", "… or None")),
    Mistake("dO_ignored", "ones took the place of the gradient that arrived", "backward's argument after ctx",
            ("O, dO, L, causal", "O, torch.ones_like(O), L, causal")),
    Mistake("O_for_dO", "O and dO changed places on the way to fa2_backward", "the order of fa2_backward's arguments",
            ("O, dO, L, causal", "dO, O, L, causal")),
    Mistake("scale_once_more", "dQ and dK were multiplied by scale a second time", "what fa2_backward has done already",
            (GIVE, "return dQ * ctx.scale, dK * ctx.scale, dV, None, None")),
    Mistake("wrong_if_frozen", "a gradient was missing or wrong where not all of Q, K and V need one", "a frozen input",
            (UNPACK, "…\n        if not all(ctx.needs_input_grad[:3]):"
             "\n            return Q * 0, K * 0, V * 0, None, None")),
    Mistake("P_kept", "a tensor of size N_q × N_k was kept for the backward",
            "what is saved: P is made again tile by tile", (SAVE, SAVE[:-1] + ", torch.softmax(Q @ K.T * scale, -1))"),
            (UNPACK, UNPACK.replace("L", "L, P"))),
]
hints = ["ctx.save_for_backward takes tensors only. Other values go on ctx as attributes: ctx.causal = causal.",
         "backward returns one value for each argument of forward after ctx: five of them.",
         "In backward: unpack ctx.saved_tensors, then call fa2_backward with ctx.causal and ctx.scale."]
