"""Cases and mistakes of ex01_heads."""

import torch

from flashlab import oracle
from flashlab_course.check.cases import EPSILONS, LARGE, LOOSE, epsilon, far_below, in_float64, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N_q, N_k, H, d, *, seed, factor=1.0, below=False):
    def make():
        X_q, X_k = normal(N_q, H * d, seed=seed, factor=factor), normal(N_k, H * d, seed=seed + 1)
        if below:
            X_q, X_k = (X.flatten(1) for X in far_below(X_q.view(N_q, H, d), X_k.view(N_k, H, d)))
        return {"X_q": X_q, "X_k": X_k, "X_v": normal(N_k, H * d, seed=seed + 2), "H": H}

    features = {"more than one head": H > 1, "N_q ≠ N_k": N_q != N_k, "as many queries as heads": N_q == H > 1,
                "large scores": factor > 1 or below, "only scores far below 0": below}
    return Case(name, make, frozenset(f for f, holds in features.items() if holds), {"N_q": N_q, "N_k": N_k, "H": H, "d": d},
                LOOSE if factor > 1 or below else 0.0)


def truth(X_q, X_k, X_v, H):
    heads = zip(*(X.tensor_split(H, dim=1) for X in (X_q, X_k, X_v)), strict=True)
    return torch.cat([oracle.attention(*head)[0] for head in heads], dim=1)


EXERCISE = Exercise(
    function="multi_head",
    outputs=(Output("O", ("query", "column")),),
    truth=truth,
    without=("attention",),
    loops=lambda X_q, X_k, X_v, H: ("heads", H) if H > 6 else None,
    cases=[
        case("one head", 2, 2, 1, 3, seed=200),
        case("two heads", 3, 3, 2, 4, seed=210),
        case("as many queries as heads", 3, 3, 3, 2, seed=220),
        case("three heads, N_q ≠ N_k", 4, 6, 3, 2, seed=230),
        case("eight heads", 3, 4, 8, 2, seed=240),
        case("as many columns as heads", 4, 4, 3, 3, seed=240),
        case("four heads, many keys", 2, 9, 4, 2, seed=250),
        case("scores in the hundreds", 4, 6, 2, 4, seed=270, factor=LARGE),
        case("scores far below 0", 3, 4, 2, 4, seed=280, below=True),
        in_float64(case("one query, two keys", 1, 2, 2, 4, seed=260)),
    ],
    mistakes=[
        epsilon(("P = torch.softmax(S, dim=-1)", "P = torch.exp(S - S.amax(-1, keepdim=True))\n    P = P / (P.sum(-1, keepdim=True) + ε)")),
        epsilon(("* d**-0.5", "/ (d**0.5 + ε)"), sizes=EPSILONS[:4], name="epsilon_in_scale", what="a small number was added to √d",
                look="the scale: 1/√d needs no ε"),
        Mistake("split_without_transpose", "each head got some rows of X, cut into pieces of d, not d columns of every row: (H, N, d) was read off X as it lies",
                "the split: view(N, H, d) first, then swap N and H; view(H, N, d) cuts elsewhere",
                ("X.reshape(len(X), H, d).transpose(0, 1)", "X.reshape(H, len(X), d)")),
        Mistake("cut_as_it_lies", "X was read as (H, N, d) as it lies, and the result as (N_q, H·d): each head got some rows of X, not d columns of every row",
                "both ways: (N, H, d) is how the columns fall apart, and N and H trade places before the products and after them",
                ("X.reshape(len(X), H, d).transpose(0, 1)", "X.reshape(H, len(X), d)"),
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.reshape(len(X_q), H * d)")),
        Mistake("not_split_back", "the heads were not swapped back before they were put side by side",
                "the way back: (H, N_q, d) has to become (N_q, H, d) before the reshape",
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.reshape(len(X_q), H * d)")),
        Mistake("rows_of_Q_for_K", "K and V were split with the number of queries: they have rows of their own, N_k",
                "the split: each matrix with its own number of rows, len(X)", ("X.reshape(len(X), H, d)", "X.reshape(len(X_q), H, d)"),
                also=[[("X.reshape(len(X), H, d)", "X.reshape(len(X_q), H, -1)")]]),
        Mistake("columns_interleaved", "the columns were dealt out in turn: column c went to head c mod H",
                "the split, and the way back: head h has columns h · d to (h + 1) · d − 1, view(N, H, d); view(N, d, H) deals them out",
                ("X.reshape(len(X), H, d).transpose(0, 1)", "X.reshape(len(X), d, H).permute(2, 0, 1)"),
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.permute(1, 2, 0).reshape(len(X_q), H * d)")),
        Mistake("heads_in_wrong_order", "the results of the heads stood in the reverse order",
                "the order of the heads, there and back: head h has the columns from h · d to (h + 1) · d − 1",
                ("O.transpose(0, 1).reshape", "O.flip(0).transpose(0, 1).reshape")),
        Mistake("scale_of_the_model", "the scale was 1/√(H·d), that of the whole matrix", "d in the scale: the size of one head",
                ("* d**-0.5", "* (H * d) ** -0.5")),
        Mistake("softmax_over_heads", "the softmax ran over the heads, not over the keys", "the dimension of the softmax: that of the keys",
                ("torch.softmax(S, dim=-1)", "torch.softmax(S, dim=0)")),
        Mistake("softmax_over_queries", "the softmax ran over the queries, not over the keys",
                "the dimension of the softmax: that of the keys, so that each query's weights sum to 1", ("torch.softmax(S, dim=-1)", "torch.softmax(S, dim=1)")),
        Mistake("heads_and_columns_swapped_back", "the way back put the columns of all heads in turn: column c of head h went to c · H + h",
                "the way back: the heads stand side by side, each with its own d columns",
                ("O.transpose(0, 1).reshape(len(X_q), H * d)", "O.permute(1, 2, 0).reshape(len(X_q), H * d)")),
        Mistake("K_for_V", "the weights were multiplied with K, not with V", "what the weights multiply: V_h", ("O = P @ V", "O = P @ K")),
        Mistake("unshifted", "exp of the scores was taken without the row's maximum being subtracted first, which overflows",
                "the softmax: exp of the scores less the row's maximum, as in torch.softmax",
                ("torch.softmax(S, dim=-1)", "S.exp() / S.exp().sum(-1, keepdim=True)")),
        Mistake("one_maximum", "one maximum was subtracted from many rows (all, or those of a head), so that rows far below it underflow to 0 / 0",
                "the maximum: one for each query of each head",
                ("P = torch.softmax(S, dim=-1)", "P = torch.exp(S - S.max())\n    P = P / P.sum(-1, keepdim=True)"),
                also=[[("P = torch.softmax(S, dim=-1)", "P = torch.exp(S - S.max())\n    P = (P / P.sum(-1, keepdim=True)).nan_to_num(0)")]]),
    ],
    hints=[
        "X.view(N, H, d).transpose(0, 1) has shape (H, N, d), and [h] of it is X[:, h*d:(h+1)*d].",
        "Q @ K.transpose(1, 2) multiplies head by head. The scale is 1/√d with the d of one head.",
        "The way back is the way there in reverse: transpose(0, 1), then reshape(N_q, H*d).",
    ],
)
