"""Cases and mistakes of ex08_autograd_function."""

import torch

from flashlab import oracle
from flashlab_course.check import limits
from flashlab_course.check.cases import features_of, normal, widest
from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output


def call(fn, Q, K, V, dO, causal, scale):
    """O, its gradients by autograd, and how many tensors as large as S were kept for them."""
    leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
    kept = []
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda T: kept.append(T.numel()) or T, lambda T: T):
        O = fn(*leaves, causal, scale)
    if not isinstance(O, torch.Tensor):
        return O
    if O.grad_fn is None:
        raise Breach("raised", "O has no grad_fn: autograd knows of no way back from it. Is it what Attention.apply returned?")
    grads = torch.autograd.grad(O, leaves, dO, allow_unused=True)
    if any(grad is None for grad in grads):
        missing = ", ".join(name for name, grad in zip("QKV", grads, strict=True) if grad is None)
        raise Breach("raised", f"backward gave None as the gradient of {missing}")
    large = len(Q) * len(K)
    return O, *grads, sum(n >= large for n in kept) if large > max(Q.numel(), K.numel(), V.numel(), dO.numel()) else 0


def named(exercise, name, seen):
    return next(m for m in exercise.mistakes if m.name == name), seen


def two_calls(exercise, fn):
    """Each backward has to know the options of its own forward."""
    inputs = exercise.cases[1].make()
    leaves = [inputs[letter].requires_grad_() for letter in "QKV"]

    def both():
        with torch.enable_grad():
            O = fn(*leaves, False, 0.5)
            fn(*leaves, True, 2.0)
        return torch.autograd.grad(O, leaves, inputs["dO"])

    found, error = limits.protected(both, exercise.seconds)
    right = oracle.gradients(*leaves, inputs["dO"], causal=False, scale=0.5)
    if error is None and all(torch.allclose(a.double(), b, atol=1e-4) for a, b in zip(found, right, strict=True)):
        return None
    happened = "gradients were wrong" if error is None else f"backward raised {type(error).__name__}"
    return named(exercise, "options_on_the_class", f"But after a second call with other options the first one's {happened}")


def frozen(exercise, fn):
    """Where some of Q, K and V are frozen, the others still have gradients, and the right ones."""
    found = [(needing, *wrong) for needing in ("KV", "QV", "QK", "Q", "K", "V") if (wrong := _needing(exercise, fn, needing))]
    if not found:
        return None
    needing, name, seen = found[0]
    if all(name == "none_if_frozen" and "Q" not in needing for needing, name, _ in found):
        name = "nothing_if_Q_is_frozen"
    return named(exercise, name, f"But where only {' and '.join(needing)} {'have' if len(needing) > 1 else 'has'} requires_grad, {seen}")


def _needing(exercise, fn, needing):
    """(name, what was seen) if it goes wrong where just these of Q, K and V need a gradient, else None."""
    inputs = exercise.cases[0].make()
    for letter in needing:
        inputs[letter].requires_grad_()

    def some():
        with torch.enable_grad():
            O = fn(inputs["Q"], inputs["K"], inputs["V"], inputs["causal"], inputs["scale"])
        return torch.autograd.grad(O, [inputs[letter] for letter in needing], inputs["dO"], allow_unused=True)

    found, error = limits.protected(some, exercise.seconds)
    if error is not None:
        name = "left_out" if "incorrect number of gradients" in str(error) else "error_if_frozen"
        return name, f"it raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    missing = [letter for letter, grad in zip(needing, found, strict=True) if grad is None]
    if missing:
        return "none_if_frozen", f"{' and '.join(missing)} got no gradient"
    right = dict(zip("QKV", oracle.gradients(*(inputs[name] for name in ("Q", "K", "V", "dO")), causal=inputs["causal"],
                                             scale=inputs["scale"]), strict=True))
    for letter, grad in zip(needing, found, strict=True):
        if grad.shape != right[letter].shape or not torch.allclose(grad.double(), right[letter], atol=1e-4):
            return "wrong_if_frozen", f"the gradient of {letter} was wrong"
    return None


def unnoticed(exercise, fn):
    """Is an input that is changed between forward and backward noticed? It is where autograd keeps the tensors; and where copies are
    kept, the gradients are those of the forward that ran."""
    for n, name in enumerate("QKV"):
        inputs = exercise.cases[0].make()
        leaves = [inputs[letter].requires_grad_() for letter in "QKV"]
        right = oracle.gradients(*(inputs[letter].detach() for letter in ("Q", "K", "V", "dO")), causal=inputs["causal"], scale=inputs["scale"])

        def change_and_go_back(changed=n, leaves=leaves, inputs=inputs):
            with torch.enable_grad():
                O = fn(*leaves, inputs["causal"], inputs["scale"])
            with torch.no_grad():
                leaves[changed].add_(1)
            return torch.autograd.grad(O, leaves, inputs["dO"])

        found, error = limits.protected(change_and_go_back, exercise.seconds)
        if error is None and not all(torch.allclose(a.double(), b, atol=1e-4) for a, b in zip(found, right, strict=True)):
            return named(exercise, "tensors_on_ctx", f"But {name} was changed between the two, and backward gave gradients all the same, wrong ones")
    return None


def on_ctx(exercise, fn):
    """Is there a tensor among what was left on ctx itself, which is a node of the graph that leads back from O?"""
    inputs = exercise.cases[0].make()
    leaves = [inputs[letter].requires_grad_() for letter in "QKV"]

    def attributes():
        with torch.enable_grad():
            O = fn(*leaves, inputs["causal"], inputs["scale"])
        nodes, seen = [O.grad_fn], []
        while nodes:
            node = nodes.pop()
            if node is not None and node not in seen:
                seen.append(node)
                nodes += [other for other, _ in node.next_functions]
        return [name for node in seen for name, value in getattr(node, "__dict__", {}).items() if holds_a_tensor(value)]

    found, _ = limits.protected(attributes, exercise.seconds)
    return named(exercise, "tensors_on_ctx", f"But ctx.{found[0]} holds a tensor") if found else None


def holds_a_tensor(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return isinstance(value, torch.Tensor) or any(map(holds_a_tensor, inside))


def forbid(shape, Q, K, V, dO, causal, scale):
    inputs = {tuple(T.shape) for T in (Q, K, V, dO)} | {tuple(T.T.shape) for T in (Q, K, V, dO)}
    if len(K) > widest(Q, V) and shape in ((len(Q), len(K)), (len(K), len(Q))) and shape not in inputs:
        return f"a tensor of shape {shape}, N_q by N_k, was made: fa2_forward and fa2_backward need none"
    return None


def case(name, N_q, N_k, d, d_v, *, causal=False, scale=None, seed):
    scale = d**-0.5 if scale is None else scale

    def make():
        Q, K, V, dO = (normal(n, x, seed=seed + k) for k, (n, x) in enumerate(((N_q, d), (N_k, d), (N_k, d_v), (N_q, d_v))))
        return {"Q": Q, "K": K, "V": V, "dO": dO, "causal": causal, "scale": scale}

    return Case(name, make, features_of(N_q, N_k, d, d_v, causal=causal, scale=scale), {"N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v})


def truth(Q, K, V, dO, causal, scale):
    return oracle.attention(Q, K, V, causal=causal, scale=scale)[0], *oracle.gradients(Q, K, V, dO, causal=causal, scale=scale), 0


SAVE, UNPACK, GIVE = "ctx.save_for_backward(Q, K, V, O, L)", "Q, K, V, O, L = ctx.saved_tensors", "return dQ, dK, dV, None, None"

EXERCISE = Exercise(
    function="attention",
    outputs=(Output("O", ("query", "column")), Output("dQ", ("query", "column")), Output("dK", ("key", "column")), Output("dV", ("key", "column")),
             Output("tensors of size N_q × N_k that were kept")),
    call=call,
    truth=truth,
    without=("autograd",),
    forbid=forbid,
    after=[unnoticed, on_ctx, two_calls, frozen],
    cases=[
        case("small and square", 3, 3, 3, 3, seed=950),
        case("larger", 12, 12, 4, 4, seed=954),
        case("N_q ≠ N_k, d_v ≠ d", 4, 6, 3, 2, seed=958),
        case("a scale", 3, 4, 3, 3, scale=1.3, seed=962),
        case("causal", 6, 6, 3, 3, causal=True, seed=966),
        case("causal, queries that see no key", 6, 4, 3, 3, causal=True, seed=970),
        case("a scale of 0", 3, 4, 3, 3, scale=0.0, seed=974),
        case("causal, fewer queries than keys", 3, 7, 3, 3, causal=True, seed=978),
        case("causal, a negative scale", 3, 5, 3, 3, scale=-0.4, causal=True, seed=986),
        case("one query, one key", 1, 1, 3, 3, seed=982),
    ],
    mistakes=[
        Mistake("wrong_order", "the gradients came back in another order than forward's arguments: dK, dV, dQ",
                "what fa2_backward gives and backward returns: the gradient of Q first, then K, then V", (GIVE, "return dK, dV, dQ, None, None")),
        Mistake("tensors_on_ctx", "a tensor was kept where autograd does not see it change: on ctx itself, or beside save_for_backward in another way",
                "what is kept: each tensor itself, with ctx.save_for_backward(...)", (SAVE, "ctx.kept = Q, K, V, O, L"), (UNPACK, "Q, K, V, O, L = ctx.kept")),
        Mistake("saved_twice", "ctx.saved_tensors held fewer tensors than backward took from it: not all were saved, or in several calls of save_for_backward, of "
                "which the last one counts", "save_for_backward: one call with all five",
                ("ctx.save_for_backward(Q, K, V, O, L)", "ctx.save_for_backward(Q, K, V)\n        ctx.save_for_backward(O, L)")),
        Mistake("options_on_the_class",
                "what belongs to one call, such as causal or scale, was kept on the class or in a global, where a second call overwrites it",
                "ctx: each call has one of its own", ("ctx.causal, ctx.scale = causal, scale", "Attention.causal, Attention.scale = causal, scale"),
                ("causal=ctx.causal, scale=ctx.scale", "causal=Attention.causal, scale=Attention.scale")),
        Mistake("nothing_if_Q_is_frozen", "backward gave no gradient at all where Q needs none",
                "backward: each gradient is asked for by itself, ctx.needs_input_grad",
                (UNPACK, "Q, K, V, O, L = ctx.saved_tensors\n        if not ctx.needs_input_grad[0]:\n            return None, None, None, None, None")),
        Mistake("left_out", "backward returned fewer values where some gradient is not needed: None belongs in its place, or the gradient all the same",
                "the return of backward: one value for each argument of forward, whoever needs it",
                (GIVE, "return *(grad for grad, needed in zip((dQ, dK, dV), ctx.needs_input_grad) if needed), None, None")),
        Mistake("none_if_frozen", "backward gave no gradient to a tensor that needs one, because another needs none",
                "backward: each gradient is asked for by itself, ctx.needs_input_grad",
                (UNPACK, "Q, K, V, O, L = ctx.saved_tensors\n        if not all(ctx.needs_input_grad[1:3]):\n            return None, None, None, None, None")),
        Mistake("wrong_if_frozen", "a gradient was right only where Q, K and V all need theirs",
                "backward: who needs a gradient decides which may be None, not what the others are", (UNPACK,
                 "Q, K, V, O, L = ctx.saved_tensors\n        if not all(ctx.needs_input_grad[:3]):\n"
                 "            return torch.zeros_like(Q), torch.zeros_like(K), torch.zeros_like(V), None, None")),
        Mistake("error_if_frozen", "it works only where Q, K and V all need their gradients",
                "backward where one of Q, K and V needs no gradient: None in its place, or the gradient all the same",
                (GIVE, "assert all(ctx.needs_input_grad[:3])\n        return dQ, dK, dV, None, None")),
        Mistake("dV_first", "the gradients came back in the order dV, dQ, dK",
                "what fa2_backward gives and backward returns: the gradient of Q first, then K, then V", (GIVE, "return dV, dQ, dK, None, None")),
        Mistake("dQ_dK_swapped", "dQ and dK changed places", "what fa2_backward gives and backward returns: the gradient of Q first, then K, then V",
                (GIVE, "return dK, dQ, dV, None, None")),
        Mistake("nones_missing", "backward returned another number of values than forward has arguments: those are five",
                "one value for each argument after ctx, None for causal and scale", (GIVE, "return dQ, dK, dV")),
        Mistake("one_none_too_many", "a gradient stood in the place of causal or scale in what backward returned",
                "the return of backward: one value for each argument after ctx, from dQ on; ctx itself has none", (GIVE, "return None, dQ, dK, dV, None, None")),
        Mistake("causal_lost", "the backward ran without the mask, also where causal is True", "what is kept on ctx, and what fa2_backward is given",
                ("causal=ctx.causal, scale=ctx.scale", "scale=ctx.scale")),
        Mistake("scale_lost", "the backward took 1/√d for the scale, not the scale of the forward", "what is kept on ctx, and what fa2_backward is given",
                ("causal=ctx.causal, scale=ctx.scale", "causal=ctx.causal")),
        Mistake("scale_lost_forward", "the forward took 1/√d for the scale, the backward the scale that was given", "what fa2_forward is given: scale",
                ("fa2_forward(Q, K, V, causal=causal, scale=scale)", "fa2_forward(Q, K, V, causal=causal)")),
        Mistake("dO_ignored", "the gradient that arrived was ignored: ones took its place", "dO is an argument of backward, and of fa2_backward",
                ("O, dO, L, causal", "O, torch.ones_like(O), L, causal")),
        Mistake("O_for_dO", "O and dO changed places", "the order of fa2_backward's arguments: Q, K, V, O, dO, L", ("O, dO, L, causal", "dO, O, L, causal")),
        Mistake("unpacked_in_another_order", "Q and K changed places on the way to fa2_backward",
                "the order in save_for_backward, in saved_tensors and in what fa2_backward is given: Q first, then K",
                (UNPACK, "K, Q, V, O, L = ctx.saved_tensors")),
        Mistake("gradient_of_the_inputs", "the inputs themselves were returned as their gradients", "the return of backward",
                (GIVE, "return Q, K, V, None, None")),
        Mistake("P_kept", "a tensor of size N_q × N_k, as S and P are, was kept for the backward: right, but that is the memory FlashAttention saves",
                "save_for_backward: Q, K, V, O and L are enough, P is made again tile by tile",
                (SAVE, "ctx.save_for_backward(Q, K, V, O, L, torch.softmax(Q @ K.T * scale, -1))"), (UNPACK, "Q, K, V, O, L, P = ctx.saved_tensors")),
        Mistake("autograd_of_naive", "attention was written out of plain operations: right, but autograd then keeps S and P",
                "Attention.forward: no operation inside it is recorded",
                code="""
                def attention(Q, K, V, causal, scale):
                    S = Q @ K.T * scale
                    if causal:
                        S = S.masked_fill(torch.ones(len(Q), len(K), dtype=torch.bool).triu(len(K) - len(Q) + 1), -torch.inf)
                    seen = (S > -torch.inf).any(-1, keepdim=True)
                    return torch.softmax(torch.where(seen, S, torch.zeros_like(S)), -1) @ V * seen
                """),
        Mistake("no_zero_scale", "a scale of 0 was taken for no scale at all, and 1/√d took its place", "what both calls are given: scale as it came",
                ("fa2_forward(Q, K, V, causal=causal, scale=scale)", "fa2_forward(Q, K, V, causal=causal, scale=scale or None)"),
                ("scale=ctx.scale", "scale=ctx.scale or None")),
        Mistake("causal_lost_forward", "the forward ran without the mask, also where causal is True", "what fa2_forward is given: causal",
                ("fa2_forward(Q, K, V, causal=causal, scale=scale)", "fa2_forward(Q, K, V, scale=scale)")),
        Mistake("causal_always", "the backward ran with the mask, also where causal is False",
                "what is kept on ctx, and what fa2_backward is given: causal as it came", ("causal=ctx.causal", "causal=True")),
        Mistake("both_lost", "the backward ran without the mask and with 1/√d for the scale: it knew neither causal nor scale",
                "what is kept on ctx, and what fa2_backward is given", ("L, causal=ctx.causal, scale=ctx.scale)", "L)")),
        Mistake("scale_once_more", "dQ and dK were multiplied by scale once more", "what fa2_backward gives: scale stands in it already",
                (GIVE, "return dQ * ctx.scale, dK * ctx.scale, dV, None, None")),
        Mistake("dV_first_dQ_last", "the gradients came back in the order dV, dK, dQ",
                "what fa2_backward gives and backward returns: the gradient of Q first, then K, then V", (GIVE, "return dV, dK, dQ, None, None")),
        Mistake("dK_dV_swapped", "dK and dV changed places", "what fa2_backward gives and backward returns: the gradient of Q first, then K, then V",
                (GIVE, "return dQ, dV, dK, None, None")),
        Mistake("gradients_of_dO", "the backward began with dO's sum in every place of dO, as if O were a number", "dO: fa2_backward takes it whole",
                ("O, dO, L, causal", "O, dO.sum().expand_as(dO).contiguous(), L, causal")),
        Mistake("O_recomputed_as_zeros", "fa2_backward got zeros for O, so that D was 0",
                "what fa2_backward is given for O: what forward returns, kept with save_for_backward",
                (SAVE, "ctx.save_for_backward(Q, K, V, torch.zeros_like(O), L)")),
        Mistake("L_of_zeros", "fa2_backward got zeros for L, so that P was not normalised",
                "what fa2_backward is given for L: what fa2_forward made, kept with save_for_backward",
                (SAVE, "ctx.save_for_backward(Q, K, V, O, torch.zeros_like(L))")),
        Mistake("K_V_swapped_when_saved", "K and V changed places on the way to fa2_backward",
                "the order in save_for_backward, in saved_tensors and in what fa2_backward is given: Q, K, V", (UNPACK, "Q, V, K, O, L = ctx.saved_tensors")),
        Mistake("none_for_dV", "backward gave None as the gradient of V", "the return of backward: one gradient for each of Q, K and V",
                (GIVE, "return dQ, dK, None, None, None")),
        Mistake("L_returned", "forward returned L beside O", "the return of forward: O alone", ("return O\n", "return O, L\n")),
        Mistake("gradient_of_the_scaled", "dQ or dK lacked the factor scale, as where it is the gradient of scale · Q or scale · K",
                "dQ and dK: gradients of Q and K themselves, with the factor scale in each",
                ("fa2_forward(Q, K, V, causal=causal, scale=scale)", "fa2_forward(scale * Q, K, V, causal=causal, scale=1.0)"),
                ("ctx.save_for_backward(Q, K, V, O, L)", "ctx.save_for_backward(scale * Q, K, V, O, L)"), ("scale=ctx.scale)", "scale=1.0)"),
                also=[[("fa2_forward(Q, K, V, causal=causal, scale=scale)", "fa2_forward(Q, scale * K, V, causal=causal, scale=1.0)"),
                       ("ctx.save_for_backward(Q, K, V, O, L)", "ctx.save_for_backward(Q, scale * K, V, O, L)"), ("scale=ctx.scale)", "scale=1.0)")]]),
    ],
    hints=[
        "ctx.save_for_backward(Q, K, V, O, L) takes tensors only. causal and scale go on ctx as attributes: ctx.causal = causal.",
        "In backward: Q, K, V, O, L = ctx.saved_tensors, then fa2_backward with ctx.causal and ctx.scale.",
        "forward has five arguments after ctx, so backward returns five values: dQ, dK, dV, None, None.",
    ],
)
