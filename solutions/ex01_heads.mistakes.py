import torch

from flashlab import oracle
from flashlab_course.check.cases import BELOW, LARGE, Mistake, case_of, far_below, in_float64, normal

SPLIT, BACK = "X.reshape(len(X), H, d).transpose(0, 1)", "O.transpose(0, 1).reshape(len(X_q), H * d)"
SCALE, SOFTMAX = "* d**-0.5", "P = torch.softmax(S, dim=-1)"

outputs = [("O", "query", "column")]
features = {"more than one head": lambda H: H > 1}
without = ("attention",)
loops = lambda X_q, X_k, X_v, H: ("heads", H) if H > 6 else None


def truth(X_q, X_k, X_v, H):
    heads = zip(*(X.tensor_split(H, dim=1) for X in (X_q, X_k, X_v)), strict=True)
    return torch.cat([oracle.attention(*head)[0] for head in heads], dim=1)


@case_of
def case(N_q, N_k, H, d, *, seed, factor=1.0, below=0):
    X_q, X_k = normal(N_q, H * d, seed=seed, factor=factor), normal(N_k, H * d, seed=seed + 1)
    if below:
        X_q, X_k = (X.flatten(1) for X in far_below(X_q.view(N_q, H, d), X_k.view(N_k, H, d)))
    return {"X_q": X_q, "X_k": X_k, "X_v": normal(N_k, H * d, seed=seed + 2), "H": H}


cases = [case("one head", 4, 4, 1, 5, seed=200),
         case("as many queries as heads", 3, 3, 3, 2, seed=220),
         case("three heads, N_q ≠ N_k", 4, 6, 3, 2, seed=230),
         case("eight heads", 3, 4, 8, 2, seed=240),
         case("scores in the hundreds", 4, 6, 2, 4, seed=270, factor=LARGE),
         case("scores far below 0", 3, 4, 2, 4, seed=280, below=BELOW),
         in_float64(case("one query, two keys", 1, 2, 2, 4, seed=260))]
mistakes = [
    Mistake("split_without_transpose", "each head got some rows of X, not d columns of every row",
            "the order of the sizes in the view of X", (SPLIT, "X.reshape(H, len(X), d)")),
    Mistake("not_split_back", "the heads were not swapped back before they were put side by side",
            "the order of dimensions before the last reshape", (BACK, "O.reshape(len(X_q), H * d)")),
    Mistake("columns_interleaved", "the columns were dealt out to the heads in turn", "which columns belong to head 0",
            (SPLIT, "X.reshape(len(X), d, H).permute(2, 0, 1)"), (BACK, "O.permute(1, 2, 0).reshape(len(X_q), H * d)")),
    Mistake("heads_and_columns_swapped_back", "the columns of the heads alternated in the result",
            "which of H and d comes last", (BACK, "O.permute(1, 2, 0).reshape(len(X_q), H * d)")),
    Mistake("scale_missing", "the scores were not divided by √d", "how the scores are computed", (SCALE, "")),
    Mistake("keys_not_transposed", "K was reshaped to (H, d, N_k), which does not transpose it",
            "how the last two dimensions of K trade places", ("K.transpose(1, 2)", "K.reshape(H, d, len(X_k))")),
    Mistake("scale_of_the_model", "the scale was 1/√(H·d), that of the whole matrix", "the d in the scale", (SCALE,
             "* (H * d) ** -0.5")),
    Mistake("softmax_over_heads", "the softmax ran over the heads, not over the keys", "the dimension of the softmax",
            (SOFTMAX, "P = torch.softmax(S, dim=0)")),
    Mistake("softmax_over_queries", "the softmax ran over the queries, not over the keys",
            "the dimension of the softmax", (SOFTMAX, "P = torch.softmax(S, dim=1)")),
    Mistake("unshifted", "exp was taken without subtracting each row's maximum, and it overflowed",
            "what exp is taken of", (SOFTMAX, "P = S.exp() / S.exp().sum(-1, keepdim=True)")),
    Mistake("one_maximum", "one maximum was subtracted from all rows, so rows far below it became 0 / 0",
            "the maximum's dimension", (SOFTMAX, "P = torch.exp(S - S.max())\n    P = P / P.sum(-1, keepdim=True)")),
]
hints = ["X.view(N, H, d) tells the columns of a row apart by head. The heads have to come first for the products.",
         "Matrix products treat all leading dimensions alike: (H, N_q, d) @ (H, d, N_k) gives (H, N_q, N_k).",
         "The way back is the way there in reverse, one step after the other."]
