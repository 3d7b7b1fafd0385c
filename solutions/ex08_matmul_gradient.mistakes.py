import math

from flashlab_course.check.cases import Mistake, case_of, normal

DX, DW, RETURN = "dY @ W.T", "X.T @ dY", "return dX, dW"

outputs = [("dX", "row", "column"), ("dW", "row", "column")]
without = ("autograd",)
features = {"more than one row": lambda N: N > 1}
forbid = lambda shape, X, W, dY: X.numel() > 40 and math.prod(shape) >= dY.numel() * min(X.numel(), W.numel()) and (
    f"it made a tensor of shape {shape}: that is a Jacobian, and the product with dY needs none of it")
case = case_of(lambda N, K, M, *, seed: {"X": normal(N, K, seed=seed), "W": normal(K, M, seed=seed + 1),
                                         "dY": normal(N, M, seed=seed + 2)})
cases = [case("one row, square W", 1, 3, 3, seed=800),
         case("three rows, square matrices", 3, 3, 3, seed=803),
         case("all sizes different", 5, 4, 3, seed=806),
         case("larger", 8, 9, 7, seed=812)]
mistakes = [
    Mistake("W_not_transposed", "dY was multiplied by W, not by its transpose", "the shape of dX", (DX, "dY @ W")),
    Mistake("X_not_transposed", "X was multiplied by dY without being transposed", "the shape of dW", (DW, "X @ dY")),
    Mistake("dX_transposed", "dX came out transposed", "the shape of dX", (DX, "W @ dY.T")),
    Mistake("dW_transposed", "dW came out transposed", "the shape of dW", (DW, "dY.T @ X")),
    Mistake("reshaped", "reshape or view took the place of a transpose and mixed up the numbers", "what reshape does",
            (DX, "dY @ W.reshape(W.shape[1], W.shape[0])"), (DW, "X.reshape(X.shape[1], X.shape[0]) @ dY")),
    Mistake("reshaped_at_the_end", "a result was reshaped where it should have been transposed",
            "what reshape does to the order of the numbers", (DW, "(dY.T @ X).reshape(W.shape)")),
    Mistake("dW_averaged", "dW was averaged over the rows of X, not summed", "what each row of X adds to the loss", (DW,
             "X.T @ dY / len(X)")),
    Mistake("elementwise", "dX was multiplied element by element with X", "what dX depends on: Y is linear in X", (DX,
             "dY @ W.T * X")),
    Mistake("jacobian", "a whole Jacobian was made, though nearly all of it is 0", "what is left of the sum", (DX,
             'torch.einsum("nm,nmik->ik", dY, torch.einsum("ni,km->nmik", torch.eye(len(X)), W))')),
]
hints = ["Write one element: Y[n, m] = Σ_k X[n, k] · W[k, m]. By how much does it move when X[n, k] moves by 1?",
         "dX[n, k] = Σ_m dY[n, m] · W[k, m]: the sum runs over m. Which matrix product is that?",
         "dW[k, m] = Σ_n X[n, k] · dY[n, m]: the sum runs over the rows."]
