"""Cases and mistakes of ex08_matmul_gradient."""

import torch

from flashlab.check.cases import normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant


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
    cases=[
        case("one row, square W", 1, 2, 2, seed=800),
        case("two rows, square W", 2, 2, 2, seed=803),
        case("all sizes different", 4, 3, 2, seed=806),
        case("a wide W", 3, 2, 5, seed=809),
        case("larger", 8, 9, 7, seed=812),
    ],
    mistakes=[
        Mistake("W_not_transposed", "dY was multiplied by W, not by its transpose", "the shapes of dX: (N, M) times (M, K)", (DX, "dY @ W")),
        Mistake("X_not_transposed", "X was multiplied by dY without being transposed", "the shapes of dW: (K, N) times (N, M)", (DW, "X @ dY")),
        Mistake("dW_transposed", "dW came out transposed: dYᵀ X", "the order of the factors: dW has the shape of W", (DW, "dY.T @ X")),
        Mistake("dW_averaged", "dW was averaged over the rows of X, not summed", "dW: each row of X adds its part to the loss", (DW, "X.T @ dY / len(X)")),
        Mistake("swapped", "the two gradients were returned in the other order", "the last line: dX, then dW", ("return dX, dW", "return dW, dX")),
        Mistake("dX_of_ones", "dX was the row sums of W: dY was taken to be all ones", "dX: every column of dY weighs a column of W", (DX, "(dY * 0 + 1) @ W.T")),
        Mistake("dW_of_ones", "dW was the column sums of X: dY was taken to be all ones", "dW: every row of dY weighs a row of X", (DW, "X.T @ (dY * 0 + 1)")),
        Mistake("X_for_dY", "dX was computed from the forward's Y = X W, not from dY", "what arrives from behind: dY", (DX, "(X @ W) @ W.T")),
        Mistake("jacobian", "the full Jacobian of Y by X was made and multiplied by dY: right, and N times too large",
                "the Jacobian's block for rows n ≠ n' is 0: dX needs only dY and W",
                body="""
                import torch
                jacobian = torch.einsum("ni,km->nmik", torch.eye(len(X)), W)       # by how much Y[n, m] moves with X[i, k]
                return torch.einsum("nm,nmik->ik", dY, jacobian), X.T @ dY
                """),
    ],
    variants=[
        Variant("einsum", (DX, "__import__('torch').einsum('nm,km->nk', dY, W)"), (DW, "__import__('torch').einsum('nk,nm->km', X, dY)")),
        Variant("row by row", body="""
            dX, dW = X * 0, W * 0
            for n in range(len(X)):
                dX[n] = W @ dY[n]
                dW += X[n][:, None] * dY[n][None, :]
            return dX, dW
            """),
    ],
    hints=[
        "Write the product for one element: Y[n, m] = Σ_k X[n, k] · W[k, m]. By how much does Y[n, m] move when X[n, k] moves by 1?",
        "dX[n, k] = Σ_m dY[n, m] · W[k, m]: the sum runs over what dY and W share. As matrices that is dY Wᵀ.",
        "dW[k, m] = Σ_n X[n, k] · dY[n, m], which is Xᵀ dY.",
    ],
)
