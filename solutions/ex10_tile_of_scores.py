"""ex10_tile_of_scores · one tile of S as a Triton program

Chapter 10 · difficulty 3 of 5 · 25 minutes

S = Q Kᵀ · scale on the GPU, one program for each tile of B_r queries and B_c keys. It has every detail of FA2's kernel
except the loop: pointers, strides, guards, 64-bit offsets, a grid.

    Q (N_q, d)   K (N_k, d)   ->   S (N_q, N_k)        any strides, any N_q, N_k; d = 16, 32, 64, ...

    program (i, j):    rows = i·B_r + (0 ... B_r − 1)     keys = j·B_c + (0 ... B_c − 1)     cols = 0 ... d − 1
                       element (row, col) of Q is at   Q + row · stride_Qn + col · stride_Qd

Each tensor has two strides of its own. stride_Qn, stride_Kn and stride_Sn pass from one row to the next, stride_Qd,
stride_Kd and stride_Sm from one column to the next; the columns of S are the keys, and m counts them. Q and K have the
same dtype, float16 or float32; S is float32, and scale multiplies the float32 product. i is program_id(0), j is
program_id(1).

- Load and store only what exists: a mask for rows beyond N_q and for keys beyond N_k.
- row · stride can pass 2³¹ for long sequences: turn the row numbers into 64 bits first (`.to(tl.int64)`).
- tl.dot(..., input_precision="ieee") keeps float32 exact: on a GPU its default rounds to 19 bits (TF32).
- No size is 0.

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than tiles of S, a second load
or store of the same tile by one program, atomics, the finished function from flashlab or solutions/.

Hint: rows[:, None] is a column of row numbers, cols[None, :] a row of column numbers. Their sum is a tile of addresses.
"""

import triton
import triton.language as tl


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    # >>> your turn: load Q_i and K_j, multiply, store S_ij
    rows = tl.program_id(0).to(tl.int64) * B_r + tl.arange(0, B_r)[:, None]         # (B_r, 1)
    keys = tl.program_id(1).to(tl.int64) * B_c + tl.arange(0, B_c)[:, None]         # (B_c, 1)
    cols = tl.arange(0, d)[None, :]                                 # (1, d)
    Q_i = tl.load(Q + rows * stride_Qn + cols * stride_Qd, mask=rows < N_q, other=0.0)
    K_j = tl.load(K + keys * stride_Kn + cols * stride_Kd, mask=keys < N_k, other=0.0)
    S_ij = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
    keys = tl.trans(keys)                                           # (1, B_c)
    tl.store(S + rows * stride_Sn + keys * stride_Sm, S_ij, mask=(rows < N_q) & (keys < N_k))
    # <<<


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    # >>> your turn: the grid, as many programs as there are tiles in each direction
    grid = (triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))
    # <<<
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
