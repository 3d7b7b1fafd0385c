"""Cases and mistakes of ex08_autograd_function."""

import torch

from flashlab import oracle
from flashlab.check.cases import features_of, normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant
from flashlab.check.runner import Breach


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
    cases=[
        case("small and square", 3, 3, 3, 3, seed=950),
        case("larger", 12, 12, 4, 4, seed=954),
        case("N_q ≠ N_k, d_v ≠ d", 4, 6, 3, 2, seed=958),
        case("a scale", 3, 4, 3, 3, scale=1.3, seed=962),
        case("causal", 6, 6, 3, 3, causal=True, seed=966),
        case("causal, queries that see no key", 6, 4, 3, 3, causal=True, seed=970),
    ],
    mistakes=[
        Mistake("wrong_order", "the gradients were returned in another order than forward's arguments", "the return of backward: the gradient of Q first, then K, then V", (GIVE, "return dK, dV, dQ, None, None")),
        Mistake("dV_first", "the gradients were returned as dV, dQ, dK", "the return of backward: in the order of forward's arguments", (GIVE, "return dV, dQ, dK, None, None")),
        Mistake("dQ_dK_swapped", "dQ and dK changed places", "the return of backward: the gradient of Q first", (GIVE, "return dK, dQ, dV, None, None")),
        Mistake("nones_missing", "backward returned three gradients, but forward has five arguments", "one value for each argument after ctx, None for causal and scale", (GIVE, "return dQ, dK, dV")),
        Mistake("one_none_too_many", "backward returned more values than forward has arguments", "one value for each argument after ctx", (GIVE, "return None, dQ, dK, dV, None, None")),
        Mistake("causal_lost", "the backward did not know causal: it ran without the mask", "what is kept on ctx, and what fa2_backward is given", ("causal=ctx.causal, scale=ctx.scale", "scale=ctx.scale")),
        Mistake("scale_lost", "the backward did not know the scale: it took 1/√d", "what is kept on ctx, and what fa2_backward is given", ("causal=ctx.causal, scale=ctx.scale", "causal=ctx.causal")),
        Mistake("scale_lost_forward", "the forward did not pass the scale on: it took 1/√d, and the backward did not", "the call of fa2_forward", ("fa2_forward(Q, K, V, causal=causal, scale=scale)", "fa2_forward(Q, K, V, causal=causal)")),
        Mistake("dO_ignored", "the gradient that arrived was ignored: ones took its place", "dO is an argument of backward, and of fa2_backward", ("O, dO, L, causal", "O, torch.ones_like(O), L, causal")),
        Mistake("O_for_dO", "O and dO changed places", "the order of fa2_backward's arguments: Q, K, V, O, dO, L", ("O, dO, L, causal", "dO, O, L, causal")),
        Mistake("unpacked_in_another_order", "the saved tensors were unpacked in another order than they were saved in", "save_for_backward and saved_tensors: the same order", (UNPACK, "K, Q, V, O, L = ctx.saved_tensors")),
        Mistake("gradient_of_the_inputs", "the inputs themselves were returned as their gradients", "the return of backward", (GIVE, "return Q, K, V, None, None")),
        Mistake("P_kept", "P, a tensor of size N_q × N_k, was kept for the backward: right, but that is the memory FlashAttention saves",
                "save_for_backward: Q, K, V, O and L are enough, P is made again tile by tile", (SAVE, "ctx.save_for_backward(Q, K, V, O, L, torch.softmax(Q @ K.T * scale, -1))"), (UNPACK, "Q, K, V, O, L, P = ctx.saved_tensors")),
        Mistake("autograd_of_naive", "attention was written out of plain operations: right, but autograd then keeps S and P", "Attention.forward: no operation inside it is recorded",
                code="""
                def attention(Q, K, V, causal, scale):
                    S = Q @ K.T * scale
                    if causal:
                        S = S.masked_fill(torch.ones(len(Q), len(K), dtype=torch.bool).triu(len(K) - len(Q) + 1), -torch.inf)
                    seen = (S > -torch.inf).any(-1, keepdim=True)
                    return torch.softmax(torch.where(seen, S, torch.zeros_like(S)), -1) @ V * seen
                """),
    ],
    variants=[
        Variant("the backward in two passes, options in one tuple",
                ("ctx.causal, ctx.scale = causal, scale", "ctx.options = {\"causal\": causal, \"scale\": scale}"),
                ("fa2_backward(Q, K, V, O, dO, L, causal=ctx.causal, scale=ctx.scale)", "__import__(\"flashlab.rungs.fa2_backward\", fromlist=[\"x\"]).fa2_backward_two_pass(Q, K, V, O, dO, L, **ctx.options)")),
    ],
    hints=[
        "ctx.save_for_backward(Q, K, V, O, L) takes tensors only. causal and scale go on ctx as attributes: ctx.causal = causal.",
        "In backward: Q, K, V, O, L = ctx.saved_tensors, then fa2_backward with ctx.causal and ctx.scale.",
        "forward has five arguments after ctx, so backward returns five values: dQ, dK, dV, None, None.",
    ],
)
