"""Cases and mistakes of ex08_softmax_gradient."""

import torch

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N_q, N_k, *, seed, hide=(), features=()):
    def make():
        S = normal(N_q, N_k, seed=seed)
        for row, keys in hide:
            S[row, keys] = -torch.inf
        return {"P": torch.softmax(S, -1).nan_to_num(0), "dP": normal(N_q, N_k, seed=seed + 1)}

    more = {"more than one row": N_q > 1, "hidden keys": bool(hide)}
    return Case(name, make, frozenset([*features, *(f for f, holds in more.items() if holds)]), {"N_q": N_q, "N_k": N_k})


def truth(P, dP):
    P, dP = P.double(), dP.double()
    return (P * (dP - (P * dP).sum(-1, keepdim=True)),)


def forbid(shape, P, dP):
    if P.shape[1] > 6 and shape[-2:] == (P.shape[1], P.shape[1]):
        return f"a tensor of shape {shape} was made, N_k × N_k as a row's Jacobian is: dS needs only P, dP and one number for each row"
    return None


EXERCISE = Exercise(
    function="softmax_backward",
    outputs=(Output("dS", ("query", "key")),),
    truth=truth,
    forbid=forbid,
    without=("autograd",),
    loops=lambda P, dP: ("rows", len(P)) if len(P) > 6 else None,
    cases=[
        case("one row", 1, 3, seed=820),
        case("three rows", 3, 4, seed=822),
        case("square", 3, 3, seed=824),
        case("one key", 2, 1, seed=826, features=["a single key"]),
        case("some keys hidden", 3, 4, seed=828, hide=[(0, [1]), (2, [0, 3])]),
        case("one row hidden throughout", 3, 4, seed=830, hide=[(1, slice(None))], features=["a row hidden throughout"]),
        case("many keys", 2, 9, seed=832),
        case("many rows", 8, 3, seed=834),
        case("a tall matrix", 5, 2, seed=834),
    ],
    mistakes=[
        Mistake("no_D", "D was left out: dS was P∘dP", "what P_j takes from the others: the −P_k P_j of the Jacobian", ("P * (dP - D)", "P * dP")),
        Mistake("D_added", "D was added, not subtracted", "the sign of the off-diagonal part, −P_k P_j", ("dP - D", "dP + D")),
        Mistake("D_not_weighted", "D was the sum of dP alone, not of P∘dP", "D = Σ_k dP_k · P_k", ("(P * dP).sum", "dP.sum")),
        Mistake("D_mean", "D was the mean over the keys, not the sum", "D = Σ_k dP_k · P_k", ("(P * dP).sum(-1", "(P * dP).mean(-1")),
        Mistake("D_of_column", "D was summed down the columns, not along the rows", "D = Σ_k dP_k · P_k: the sum runs over the keys of one row",
                ("(P * dP).sum(-1, keepdim=True)", "(P * dP).sum(0, keepdim=True)")),
        Mistake("D_of_everything", "D was one number for the whole matrix", "the dimension of the sum: each row has a D of its own",
                ("(P * dP).sum(-1, keepdim=True)", "(P * dP).sum()")),
        Mistake("D_not_a_column", "D was a vector that broadcast along the wrong axis", "the shape of D: (N_q, 1), so that row i takes D_i",
                ("sum(-1, keepdim=True)", "sum(-1)")),
        Mistake("P_missing", "dP − D was not multiplied by P", "the factor in front: ∂P_k/∂S_j has P in every entry", ("P * (dP - D)", "dP - D")),
        Mistake("P_at_D_only", "dP was not multiplied by P, D was: dP − P∘D", "the factor in front of dP: its own P", ("P * (dP - D)", "dP - P * D")),
        Mistake("P_squared", "D was multiplied by P twice: P∘(dP − P∘D)", "dS = P∘(dP − D): in the bracket D stands alone", ("P * (dP - D)", "P * (dP - P * D)")),
        Mistake("diagonal_only", "only the diagonal of the Jacobian was used: P∘(1 − P)∘dP", "every S_j moves every P_k of its row, not only its own",
                ("P * (dP - D)", "P * (1 - P) * dP")),
        Mistake("jacobian", "the N_k by N_k Jacobian of every row was made: right, and N_k times as many numbers as dS has",
                "what is left of (diag(P) − P Pᵀ) dP on paper", ("D = (P", "import torch\n    D = (P"),
                ("P * (dP - D)", "((torch.diag_embed(P) - P[:, :, None] * P[:, None, :]) @ dP[:, :, None])[..., 0]")),
        Mistake("D_twice", "D was subtracted twice", "dS = P∘(dP − D)", ("P * (dP - D)", "P * (dP - 2 * D)")),
        Mistake("D_outside", "D was subtracted after the product with P: P∘dP − D", "the brackets: P∘(dP − D)", ("P * (dP - D)", "P * dP - D")),
        Mistake("negative", "dS had the wrong sign: P∘(D − dP)", "dS = P∘(dP − D): the signs", ("P * (dP - D)", "P * (D - dP)")),
        Mistake("P_in_front_twice", "dS was multiplied by P twice", "the factor in front: P once", ("P * (dP - D)", "P * P * (dP - D)")),
        Mistake("sigmoid", "each weight was differentiated as a sigmoid: P∘(1 − P)", "dP belongs to it, and all weights of the row move together",
                ("P * (dP - D)", "P * (1 - P)"), ("(P * dP).sum(-1, keepdim=True)", "dP")),
        Mistake("log_softmax", "dS was dP − P · Σ dP, the gradient of a log-softmax", "dS = P∘(dP − D): P is the softmax, not its logarithm",
                ("P * (dP - D)", "dP - P * dP.sum(-1, keepdim=True)")),
        Mistake("softmax_of_P", "P was put through a softmax first", "P is the softmax already", ("D = (P * dP)", "P = P.softmax(-1)\n    D = (P * dP)")),
        Mistake("dP_for_S", "dP itself was returned", "the gradient has to go through the softmax", ("P * (dP - D)", "dP.clone()")),
        Mistake("D_of_squares", "D was the sum of P², not of P∘dP", "D = Σ_k dP_k · P_k", ("(P * dP).sum", "(P * P).sum")),
        Mistake("D_maximum", "D was the largest P∘dP of the row, not the sum", "D = Σ_k dP_k · P_k",
                ("(P * dP).sum(-1, keepdim=True)", "(P * dP).amax(-1, keepdim=True)")),
        Mistake("divided_by_P", "dP − D was divided by P", "the factor in front: times P", ("P * (dP - D)", "(dP - D) / P")),
        Mistake("scaled", "dS was multiplied by 1/√N_k", "no scale belongs here", ("P * (dP - D)", "P * (dP - D) / P.shape[-1] ** 0.5")),
        Mistake("divided_again", "P or D was divided by the row sums of P, which gives 0/0 in a row that is hidden throughout",
                "the row sums of P: 1, or 0 in a row hidden throughout; dS = P∘(dP − D) needs no division",
                ("D = (P * dP)", "P = P / P.sum(-1, keepdim=True)\n    D = (P * dP)")),
        Mistake("D_plain_mean", "the plain mean of dP was subtracted, not the mean weighted by P", "D = Σ_k dP_k · P_k: the weights P stand in the sum",
                ("(P * dP).sum(-1", "dP.mean(-1")),
        Mistake("own_term_left_out", "the sum behind the minus left out the key itself, k ≠ j",
                "the diagonal of diag(P) − P Pᵀ: P_j − P_j², so the sum runs over all keys, j too", ("P * (dP - D)", "P * (dP - (D - P * dP))")),
    ],
    hints=[
        "Split the sum over k: the diagonal part gives dP_j · P_j, the rest −P_j · Σ_k dP_k · P_k.",
        "Both parts have the factor P_j. What stands in the bracket is dP_j minus the same number D for the whole row.",
        "D = (P * dP).sum(-1, keepdim=True): keepdim makes it a column, so that row i subtracts its own D_i.",
    ],
)
