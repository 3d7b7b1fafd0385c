import torch

from flashlab_course.check.cases import Mistake, case_of, normal

DS, D = "P * (dP - D)", "(P * dP).sum(-1, keepdim=True)"
ALL = slice(None)

outputs = [("dS", "query", "key")]
forbid = lambda shape, P, dP: P.shape[1] > 6 and shape[-2:] == (P.shape[1], P.shape[1]) and (
    f"a tensor of shape {shape} was made, as large as a row's Jacobian: dS needs one number for each row")
without = ("autograd",)
loops = lambda P, dP: ("rows", len(P)) if len(P) > 6 else None
features = {"a row hidden throughout": lambda hide: ALL in [keys for _, keys in hide],
            "more than one row": lambda N_q: N_q > 1}


@case_of
def case(N_q, N_k, *, seed, hide=()):
    S = normal(N_q, N_k, seed=seed)
    for row, keys in hide:
        S[row, keys] = -torch.inf
    return {"P": torch.softmax(S, -1).nan_to_num(0), "dP": normal(N_q, N_k, seed=seed + 1)}


cases = [case("one row", 1, 5, seed=820),
         case("three rows", 3, 5, seed=822),
         case("one key", 3, 1, seed=826),
         case("some keys hidden", 3, 4, seed=828, hide=[(0, [1]), (2, [0, 3])]),
         case("one row hidden throughout", 3, 4, seed=830, hide=[(1, ALL)]),
         case("many keys", 2, 9, seed=832),
         case("many rows", 8, 3, seed=834)]
mistakes = [
    Mistake("no_D", "the part that all keys of a row share was left out", "the off-diagonal entries of the Jacobian",
            (DS, "P * dP")),
    Mistake("D_added", "D was added, not subtracted", "the sign of the off-diagonal entries", ("dP - D", "dP + D")),
    Mistake("D_not_weighted", "D was the sum of dP alone, without the weights P", "what stands inside the sum",
            ("(P * dP).sum", "dP.sum")),
    Mistake("D_plain_mean", "the plain mean of dP was subtracted, not the mean weighted by P",
            "what stands inside the sum", ("(P * dP).sum(-1", "dP.mean(-1")),
    Mistake("D_mean", "D was a mean over the keys, not a sum", "the reduction over the keys", ("(P * dP).sum(-1",
             "(P * dP).mean(-1")),
    Mistake("D_of_column", "D was summed over the queries, not over the keys", "the dimension of the sum", (D,
             "(P * dP).sum(0, keepdim=True)")),
    Mistake("D_not_a_column", "D was a vector without keepdim, and met the columns, not the rows", "the shape of D",
            ("sum(-1, keepdim=True)", "sum(-1)")),
    Mistake("P_at_D_only", "only D was multiplied by P, dP was not", "the factor that both parts share", (DS,
             "dP - P * D")),
    Mistake("D_outside", "D was subtracted after the product with P", "the brackets", (DS, "P * dP - D")),
    Mistake("diagonal_only", "only the diagonal of the Jacobian was used",
            "how one score moves the other weights of its row", (DS, "P * (1 - P) * dP")),
    Mistake("divided_again", "P was divided by its row sums again: 0/0 in a hidden row",
            "the row that is hidden throughout", ("D = (P * dP)", "P = P / P.sum(-1, keepdim=True)\n    D = (P * dP)")),
    Mistake("jacobian", "the N_k × N_k Jacobian of every row was made", "its product, done on paper first", ("D = (P",
             "import torch\n    …"), (DS,
             "((torch.diag_embed(P) - P[:, :, None] * P[:, None]) @ dP[:, :, None])[..., 0]")),
]
hints = ["Split the sum over k at the minus sign. Which part is the same for all j of a row?",
         "The diagonal part gives dP_j · P_j, the rest −P_j · Σ_k dP_k · P_k. Both have the factor P_j.",
         "The sum over k is one number for each row. keepdim makes it a column, so that row i subtracts its own."]
