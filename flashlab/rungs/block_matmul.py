"""Matrix products by tiles, and the tile-wise softmax* that goes wrong."""

import torch

from flashlab.memory import kernel, load, store, tiles
from flashlab.validate import check_positive, check_qkv, describe


def block_matmul(A, B, *, B_m, B_n, B_k):
    """A @ B from tiles: each output tile is a sum of products of a row of A's tiles with a column of B's.

    Shapes:  A (M, K), B (K, N) -> C (M, N) in A's dtype; tiles of at most B_m x B_k, B_k x B_n and B_m x B_n
    Traffic: reads ⌈N/B_n⌉·M·K + ⌈M/B_m⌉·K·N, writes M·N   [elements; exactly cost.block_matmul]
    """
    check_positive(B_m=B_m, B_n=B_n, B_k=B_k)
    if not isinstance(A, torch.Tensor) or A.ndim != 2:
        raise ValueError(f"A must be a matrix (M, K), got {describe(A)}")
    if not isinstance(B, torch.Tensor) or B.ndim != 2 or B.shape[0] != A.shape[1] or B.dtype != A.dtype:
        raise ValueError(f"B must be a matrix (K, N) with K = {A.shape[1]} and A's dtype {A.dtype}, got {describe(B)}")
    C = A.new_empty(A.shape[0], B.shape[1])
    with kernel("block_matmul", A=A, B=B, C=C):
        for rows in tiles(A.shape[0], B_m):
            for cols in tiles(B.shape[1], B_n):            # on a GPU: one program for each output tile
                store(C, rows, _output_tile(A, B, rows, cols, B_k), cols)
    return C


def _output_tile(A, B, rows, cols, B_k):
    """One tile of C: walk along the shared dimension and add up. Sums of 16-bit numbers are kept in float32."""
    acc = torch.float64 if A.dtype == torch.float64 else torch.float32
    C_ij = A.new_zeros(rows.stop - rows.start, cols.stop - cols.start, dtype=acc)    # (B_m, B_n)
    for inner in tiles(A.shape[1], B_k):
        C_ij = _add_product(C_ij, A, B, rows, inner, cols)
    return C_ij


def _add_product(C_ij, A, B, rows, inner, cols):
    A_ik = load(A, rows, inner).to(C_ij.dtype)             # (B_m, B_k)
    B_kj = load(B, inner, cols).to(C_ij.dtype)             # (B_k, B_n)
    return C_ij + A_ik @ B_kj                              # (B_m, B_n)


def softmax_star_attention(Q, K, V, *, B_r, B_c):
    """WRONG on purpose: each tile's scores are shifted by the tile's own maximum, and the tiles are then added up.

    softmax*(S_ij) = exp(S_ij − rowmax(S_ij)). Two tiles of one row are in different units, e^(their maximum), and the
    sum of the weights is never divided out. Chapter 04 shows it fail, and repairs it.
    """
    check_qkv(Q, K, V)
    check_positive(B_r=B_r, B_c=B_c)
    O = Q.new_empty(len(Q), V.shape[-1])
    with kernel("softmax_star_attention", Q=Q, K=K, V=V, O=O):
        for rows in tiles(len(Q), B_r):
            Q_i = load(Q, rows)                            # (B_r, d)
            O_i = Q_i.new_zeros(len(Q_i), V.shape[-1])
            for cols in tiles(len(K), B_c):
                S_ij = Q_i @ load(K, cols).T               # (B_r, B_c)
                O_i = O_i + torch.exp(S_ij - S_ij.amax(-1, keepdim=True)) @ load(V, cols)    # (B_r, d_v)
            store(O, rows, O_i)
    return O
