# kind: right
# what: a jit helper reads a block of rows of either matrix; both tiles are turned into float32 before the product, and K's with tl.trans
# shows: 16-bit numbers are exact in float32, so the product is the same; every mask, 64-bit row numbers, ieee, grid of ceil x ceil
"""ex10_tile_of_scores · one tile of S as a Triton program

Chapter 10 · difficulty 3 of 5 · 30 minutes

S = Q Kᵀ · scale on the GPU, one program for each tile of B_r queries and B_c keys. It has every detail of FA2's kernel
except the loop: pointers, strides, guards, 64-bit offsets, a grid.

    Q (N_q, d)   K (N_k, d)   ->   S (N_q, N_k)        any strides, any N_q, N_k; d = 16, 32, 64, ...

    program (i, j):    rows = i·B_r + (0 ... B_r − 1)     keys = j·B_c + (0 ... B_c − 1)     cols = 0 ... d − 1
                       element (row, col) of Q is at   Q + row · stride_Qn + col · stride_Qd

Each tensor has two strides of its own. stride_Qn, stride_Kn and stride_Sn pass from one row to the next, stride_Qd, stride_Kd
and stride_Sm from one column to the next; the columns of S are the keys, and m counts them.
Q and K have the same dtype, of 16 or 32 bits; S is float32. i is program_id(0), j is program_id(1).

- Load and store only what exists: a mask for rows beyond N_q and for keys beyond N_k.
- row · stride can pass 2³¹ for long sequences: turn the row numbers into 64 bits first (`.to(tl.int64)`).
- tl.dot(..., input_precision="ieee") keeps float32 exact: on a GPU its default rounds to 19 bits (TF32).

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than tiles of S, a second load or
store of the same tile by one program, atomics, the finished function from flashlab or solutions/.

Hint: rows[:, None] is a column of row numbers, cols[None, :] a row of column numbers. Their sum is a tile of addresses.
"""

import triton
import triton.language as tl


@triton.jit
def block_numbers(block, B: tl.constexpr):
    return block * B + tl.arange(0, B)


@triton.jit
def load_rows(T, numbers, N, stride_n, stride_d, d: tl.constexpr):
    """The rows `numbers` of a matrix in float32, zeros for those it does not have."""
    columns = tl.arange(0, d)
    row_pointers = T + numbers.to(tl.int64) * stride_n
    pointers = row_pointers[:, None] + (columns * stride_d)[None, :]
    exists = tl.broadcast_to((numbers < N)[:, None], (numbers.shape[0], d))
    tile = tl.load(pointers, mask=exists, other=0.0)
    return tile.to(tl.float32)


@triton.jit
def scores_kernel(Q, K, S, stride_Qn, stride_Qd, stride_Kn, stride_Kd, stride_Sn, stride_Sm, scale, N_q, N_k,
                  d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr):
    """Tile (i, j) of S. Query `row` and key `key` meet in row `row` and column `key` of S."""
    rows = block_numbers(tl.program_id(0), B_r)
    keys = block_numbers(tl.program_id(1), B_c)

    Q_i = load_rows(Q, rows, N_q, stride_Qn, stride_Qd, d)
    K_j = load_rows(K, keys, N_k, stride_Kn, stride_Kd, d)

    product = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")
    S_ij = scale * product

    S_rows = S + rows.to(tl.int64) * stride_Sn
    S_pointers = S_rows[:, None] + (keys.to(tl.int64) * stride_Sm)[None, :]
    row_exists = (rows < N_q)[:, None]
    key_exists = (keys < N_k)[None, :]
    tl.store(S_pointers, S_ij, mask=row_exists & key_exists)


def scores(Q, K, S, scale, B_r, B_c):
    """Fills S with Q Kᵀ · scale."""
    tiles_down = (len(Q) + B_r - 1) // B_r
    tiles_across = (len(K) + B_c - 1) // B_c
    grid = (tiles_down, tiles_across)
    scores_kernel[grid](Q, K, S, *Q.stride(), *K.stride(), *S.stride(), scale, len(Q), len(K), Q.shape[1], B_r, B_c)
