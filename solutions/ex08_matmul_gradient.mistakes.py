"""Cases and mistakes of ex08_matmul_gradient."""

import torch

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N, K, M, *, seed, dY=None):
    features = {"more than one row": N > 1, "a matrix W that is not square": K != M, "more than one column of W": M > 1}

    def make():
        return {"X": normal(N, K, seed=seed), "W": normal(K, M, seed=seed + 1), "dY": normal(N, M, seed=seed + 2)}

    return Case(name, make, frozenset(f for f, holds in features.items() if holds), {"N": N, "K": K, "M": M})


def forbid(shape, X, W, dY):
    if torch.Size(shape).numel() >= dY.numel() * min(X.numel(), W.numel()) and X.numel() > 40:
        return f"it made a tensor of shape {shape}: that is a Jacobian, and the product with dY needs none of it"


DX, DW = "dY @ W.T", "X.T @ dY"

EXERCISE = Exercise(
    function="matmul_backward",
    outputs=(Output("dX", ("row", "column")), Output("dW", ("row", "column"))),
    truth=lambda X, W, dY: (dY.double() @ W.double().T, X.double().T @ dY.double()),
    forbid=forbid,
    without=("autograd",),
    cases=[
        case("one row, square W", 1, 2, 2, seed=800),
        case("two rows, square W", 2, 2, 2, seed=803),
        case("all sizes different", 4, 3, 2, seed=806),
        case("a wide W", 3, 2, 5, seed=809),
        case("larger", 8, 9, 7, seed=812),
        case("one row and column", 1, 3, 1, seed=815),
        case("a tall X", 6, 2, 2, seed=818),
    ],
    mistakes=[
        Mistake("W_not_transposed", "dY was multiplied by W, not by its transpose", "the shapes of dX: (N, M) times (M, K)", (DX, "dY @ W")),
        Mistake("X_not_transposed", "X was multiplied by dY without being transposed", "the shapes of dW: (K, N) times (N, M)", (DW, "X @ dY")),
        Mistake("dW_transposed", "dW came out transposed: dYᵀ X", "the order of the factors: dW has the shape of W", (DW, "dY.T @ X")),
        Mistake("reshaped_at_the_end", "dX or dW held the numbers of its transpose, brought into shape by a reshape, which deals them out in another order",
                "dX = dY Wᵀ and dW = Xᵀ dY: both have their shapes without a reshape", (DX, "(W @ dY.T).reshape(X.shape)"), (DW, "(dY.T @ X).reshape(W.shape)"),
                also=[[(DX, "(W @ dY.T).reshape(X.shape)")], [(DW, "(dY.T @ X).reshape(W.shape)")]]),
        Mistake("dW_averaged", "dW was averaged over the rows of X, not summed", "dW: each row of X adds its part to the loss", (DW, "X.T @ dY / len(X)")),
        Mistake("swapped", "the two gradients changed places", "the results: dX = dY Wᵀ first, then dW = Xᵀ dY", ("return dX, dW", "return dW, dX")),
        Mistake("dX_of_ones", "dX was the row sums of W: dY was taken to be all ones", "dX: every column of dY weighs a column of W", (DX, "(dY * 0 + 1) @ W.T")),
        Mistake("dW_of_ones", "dW was the column sums of X: dY was taken to be all ones", "dW: every row of dY weighs a row of X", (DW, "X.T @ (dY * 0 + 1)")),
        Mistake("X_for_dY", "dX was computed from the forward's Y = X W, not from dY", "what arrives from behind: dY", (DX, "(X @ W) @ W.T")),
        Mistake("jacobian", "a whole Jacobian of Y, by X or by W, was made and multiplied by dY: right, but nearly all of it is 0",
                "dX = dY Wᵀ and dW = Xᵀ dY: all that is left of the Jacobians once the zeros are gone",
                body="""
                import torch
                jacobian = torch.einsum("ni,km->nmik", torch.eye(len(X)), W)       # by how much Y[n, m] moves with X[i, k]
                return torch.einsum("nm,nmik->ik", dY, jacobian), X.T @ dY
                """),
        Mistake("dX_transposed", "dX came out transposed: W dYᵀ", "the order of the factors: dX has the shape of X", ("dY @ W.T", "W @ dY.T")),
        Mistake("dX_averaged", "dX was averaged over the columns of dY, not summed", "dX: each column of dY adds its part", (DX, "dY @ W.T / dY.shape[1]")),
        Mistake("dX_negative", "both gradients had the wrong sign", "the signs: no minus in dY Wᵀ, none in Xᵀ dY", (DX, "-dY @ W.T"), (DW, "-X.T @ dY")),
        Mistake("both_averaged", "both gradients were divided by the number of rows", "dX and dW: no mean is taken in Y = X W", (DX, "dY @ W.T / len(X)"),
                (DW, "X.T @ dY / len(X)")),
        Mistake("dW_of_Y", "dW was computed from the forward's Y = X W, not from dY", "what arrives from behind: dY", (DW, "X.T @ (X @ W)")),
        Mistake("dW_first_row", "only the first row of X counted for dW", "dW: each row of X adds its part", (DW, "X[:1].T @ dY[:1]")),
        Mistake("row_sums", "dX was made from the row sums of dY", "dX: every column of dY weighs a column of W", (DX, "dY.sum(1, keepdim=True) @ W.T[:1]")),
        Mistake("W_returned", "the other factor was returned as the gradient: W for dX, X for dW", "dX = dY Wᵀ, dW = Xᵀ dY",
                (DX, "W.T[:1].expand(len(X), -1).clone()"), (DW, "X.T[:, :1].expand(-1, dY.shape[1]).clone()")),
        Mistake("elementwise", "dX was multiplied element by element with X", "dX = dY Wᵀ, a matrix product and nothing more", (DX, "dY @ W.T * X")),
        Mistake("updated", "the gradients were subtracted from X and W, as a training step does", "what is asked: the gradients themselves",
                ("return dX, dW", "return X - dX, W - dW")),
        Mistake("reshaped", "W or X was reshaped to the shape of its transpose, which deals the numbers out in another order", "the transpose: W.T and X.T",
                (DX, "dY @ W.reshape(W.shape[1], W.shape[0])"), (DW, "X.reshape(X.shape[1], X.shape[0]) @ dY"),
                also=[[(DX, "dY @ W.reshape(W.shape[1], W.shape[0])")], [(DW, "X.reshape(X.shape[1], X.shape[0]) @ dY")]]),
    ],
    hints=[
        "Write the product for one element: Y[n, m] = Σ_k X[n, k] · W[k, m]. By how much does Y[n, m] move when X[n, k] moves by 1?",
        "dX[n, k] = Σ_m dY[n, m] · W[k, m]: the sum runs over what dY and W share. As matrices that is dY Wᵀ.",
        "dW[k, m] = Σ_n X[n, k] · dY[n, m], which is Xᵀ dY.",
    ],
)
