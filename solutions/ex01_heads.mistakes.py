"""Cases and mistakes of ex01_heads."""

import torch

from flashlab import oracle
from flashlab.check.cases import normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant


def case(name, N_q, N_k, H, d, *, seed):
    def make():
        return {"X_q": normal(N_q, H * d, seed=seed), "X_k": normal(N_k, H * d, seed=seed + 1),
                "X_v": normal(N_k, H * d, seed=seed + 2), "H": H}

    features = {"more than one head": H > 1, "N_q ≠ N_k": N_q != N_k, "as many queries as heads": N_q == H > 1}
    return Case(name, make, frozenset(f for f, holds in features.items() if holds), {"N_q": N_q, "N_k": N_k, "H": H, "d": d})


def truth(X_q, X_k, X_v, H):
    heads = zip(*(X.tensor_split(H, dim=1) for X in (X_q, X_k, X_v)), strict=True)
    return torch.cat([oracle.attention(*head)[0] for head in heads], dim=1)


EXERCISE = Exercise(
    function="multi_head",
    outputs=(Output("O", ("query", "column")),),
    truth=truth,
    cases=[
        case("one head", 2, 2, 1, 3, seed=200),
        case("two heads", 3, 3, 2, 4, seed=210),
        case("as many queries as heads", 3, 3, 3, 2, seed=220),
        case("three heads, N_q ≠ N_k", 4, 6, 3, 2, seed=230),
    ],
    mistakes=[
        Mistake("split_without_transpose", "each head got a few whole rows of X, because the matrix was cut into (H, N, d) directly",
                "the split: view(N, H, d) first, then swap N and H; view(H, N, d) cuts elsewhere",
                ("X.reshape(len(X), H, d).transpose(0, 1)", "X.reshape(H, len(X), d)")),
        Mistake("not_split_back", "the heads were not swapped back before they were put side by side",
                "the last line: (H, N_q, d) has to become (N_q, H, d) before the reshape",
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.reshape(len(X_q), H * d)")),
        Mistake("columns_interleaved", "the columns were dealt out in turn: column c went to head c mod H",
                "view(N, H, d): the first d columns are head 0; view(N, d, H) deals them out",
                ("X.reshape(len(X), H, d).transpose(0, 1)", "X.reshape(len(X), d, H).permute(2, 0, 1)"),
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.permute(1, 2, 0).reshape(len(X_q), H * d)")),
        Mistake("heads_in_wrong_order", "the results of the heads stood in the reverse order", "the order of the heads in the last line",
                ("O.transpose(0, 1).reshape", "O.flip(0).transpose(0, 1).reshape")),
        Mistake("scale_of_the_model", "the scale was 1/√(H·d), that of the whole matrix", "d in the scale: the size of one head",
                ("* d**-0.5", "* (H * d) ** -0.5")),
        Mistake("scale_missing", "the scores were not scaled by 1/√d", "the line of S", ("* d**-0.5", "")),
        Mistake("softmax_over_heads", "the softmax ran over the heads, not over the keys", "the dimension of the softmax: the last",
                ("torch.softmax(S, dim=-1)", "torch.softmax(S, dim=0)")),
        Mistake("softmax_over_queries", "the softmax ran over the queries, not over the keys", "the dimension of the softmax: the last",
                ("torch.softmax(S, dim=-1)", "torch.softmax(S, dim=1)")),
        Mistake("one_head", "all heads were treated as a single one of size H·d", "whether H is used",
                ("d = X_q.shape[-1] // H", "H, d = 1, X_q.shape[-1]")),
        Mistake("heads_attend_to_heads", "each position attended over its own heads, not over the other positions",
                "the first dimension of the product: the heads are the batch, so they stand in front",
                ("X.reshape(len(X), H, d).transpose(0, 1)", "X.reshape(len(X), H, d)"),
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.reshape(len(X_q), H * d)")),
    ],
    variants=[
        Variant("einsum", body="""
            d = X_q.size(1) // H
            q, k, v = (X.unflatten(1, (H, d)) for X in (X_q, X_k, X_v))
            p = (torch.einsum("ihd,jhd->hij", q, k) / d**0.5).softmax(2)
            return torch.einsum("hij,jhd->ihd", p, v).flatten(1)
            """),
        Variant("a loop after all", body="""
            parts = [X.chunk(H, dim=1) for X in (X_q, X_k, X_v)]
            return torch.cat([torch.softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v for q, k, v in zip(*parts)], 1)
            """),
    ],
    hints=[
        "X.view(N, H, d).transpose(0, 1) has shape (H, N, d), and [h] of it is X[:, h*d:(h+1)*d].",
        "Q @ K.transpose(1, 2) multiplies head by head. The scale is 1/√d with the d of one head.",
        "The way back is the way there in reverse: transpose(0, 1), then reshape(N_q, H*d).",
    ],
)
