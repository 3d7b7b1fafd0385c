"""Tiled matrix product in Triton: a program makes one tile of C, in an order that re-reads A and B from the L2 cache.

`matmul_kernel` uses pointers and masks. `matmul_descriptor_kernel` is the same product with tensor descriptors: the
address arithmetic and the masks are gone, and on Hopper and newer TMA, a unit of its own, does the copies.
"""

import torch
import triton
import triton.language as tl

from flashlab_course.gpu.launching import check_tensors, prepare_descriptors

PRECISIONS = ("ieee", "tf32", "tf32x3")


@triton.jit
def tile_in_groups(program, T_m, T_n, group: tl.constexpr):
    """Which tile (i, j) of C the program makes: down a group of `group` tile rows, then on to the next column of tiles.

    Programs that run at the same time then share tiles of A and of B. group = 1 is row by row.
    """
    programs_in_group = group * T_n
    first = program // programs_in_group * group           # first tile row of the group
    height = tl.minimum(T_m - first, group)                # the last group may be short
    rest = program % programs_in_group
    return first + rest % height, rest // height


@triton.jit
def matmul_kernel(
    A, B, C, M, N, K,
    stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
    B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr, group: tl.constexpr, precision: tl.constexpr,
):
    i, j = tile_in_groups(tl.program_id(0), tl.cdiv(M, B_m), tl.cdiv(N, B_n), group)
    rows = i * B_m + tl.arange(0, B_m)                     # (B_m,)
    cols = j * B_n + tl.arange(0, B_n)                     # (B_n,)
    inner = tl.arange(0, B_k)                              # (B_k,)
    A_tile = A + rows[:, None].to(tl.int64) * stride_Am + inner * stride_Ak          # (B_m, B_k)  pointers
    B_tile = B + inner[:, None] * stride_Bk + cols.to(tl.int64) * stride_Bn          # (B_k, B_n)
    acc = tl.zeros((B_m, B_n), tl.float32)                 # float32 whatever the inputs: K roundings would add up
    for k in range(0, tl.cdiv(K, B_k)):
        left = K - k * B_k                                 # columns of A that are left: the last tile is short
        a = tl.load(A_tile, (rows[:, None] < M) & (inner < left), 0.0)
        b = tl.load(B_tile, (inner[:, None] < left) & (cols < N), 0.0)
        acc = tl.dot(a, b, acc, input_precision=precision)
        A_tile += B_k * stride_Ak
        B_tile += B_k * stride_Bk
    C_tile = C + rows[:, None].to(tl.int64) * stride_Cm + cols * stride_Cn
    tl.store(C_tile, acc.to(C.dtype.element_ty), (rows[:, None] < M) & (cols < N))


@triton.jit
def matmul_descriptor_kernel(
    A, B, C, M, N, K, stride_Am, stride_Bk, stride_Cm,     # rows of A, B and C have no gaps
    B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr, group: tl.constexpr, precision: tl.constexpr,
):
    A_tiles = tl.make_tensor_descriptor(A, [M, K], [stride_Am, 1], [B_m, B_k])
    B_tiles = tl.make_tensor_descriptor(B, [K, N], [stride_Bk, 1], [B_k, B_n])
    C_tiles = tl.make_tensor_descriptor(C, [M, N], [stride_Cm, 1], [B_m, B_n])
    i, j = tile_in_groups(tl.program_id(0), tl.cdiv(M, B_m), tl.cdiv(N, B_n), group)
    acc = tl.zeros((B_m, B_n), tl.float32)
    for k in range(0, tl.cdiv(K, B_k)):
        a = A_tiles.load([i * B_m, k * B_k])               # past the edge: 0
        b = B_tiles.load([k * B_k, j * B_n])
        acc = tl.dot(a, b, acc, input_precision=precision)
    C_tiles.store([i * B_m, j * B_n], acc.to(C.dtype.element_ty))


def tiles_in_order(T_m, T_n, group):
    """The tiles (i, j) in the order of the programs that make them: `tile_in_groups` in plain Python, for pictures."""
    tiles = []
    for first in range(0, T_m, group):
        height = min(T_m - first, group)
        tiles += [(first + i, j) for j in range(T_n) for i in range(height)]
    return tiles


def best_tiles(dtype, device):
    """B_m, B_n, B_k, num_warps, num_stages: large tiles re-read less, and have to fit shared memory and registers."""
    if dtype == torch.float32:
        return {"B_m": 128, "B_n": 128, "B_k": 32, "num_warps": 8, "num_stages": 3}
    if torch.device(device).type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10):
        return {"B_m": 128, "B_n": 256, "B_k": 64, "num_warps": 8, "num_stages": 4}     # 192 KiB of the 227 there are
    return {"B_m": 128, "B_n": 128, "B_k": 32, "num_warps": 4, "num_stages": 4}         # 64 KiB: fits consumer GPUs too


def matmul(A, B, *, precision="ieee", group=8, descriptors=False, **tiles):
    """A @ B, accumulated in float32.

    Shapes:    A (M, K), B (K, N) of any strides -> C (M, N) contiguous, in A's dtype; float16, float32.
               With descriptors: rows without gaps, and row strides of whole 16 bytes
    Precision: of float32 inputs: "ieee" multiplies in float32, "tf32" on the tensor cores with 10 bits of mantissa,
               "tf32x3" in three such steps that win most of the bits back
    Grid:      ceil(M / B_m) * ceil(N / B_n) programs, `group` tile rows at a time
    """
    check_tensors(torch.float16, torch.float32, ndim=2, A=A, B=B)
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"B must have as many rows as A has columns, {A.shape[1]}, got {B.shape[0]}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    (M, K), N = A.shape, B.shape[1]
    C = torch.empty(M, N, dtype=A.dtype, device=A.device)
    options = best_tiles(A.dtype, A.device) | tiles | {"group": group, "precision": precision}
    grid = (triton.cdiv(M, options["B_m"]) * triton.cdiv(N, options["B_n"]),)
    with torch.cuda.device_of(A):
        if descriptors:
            prepare_descriptors(A=A, B=B, C=C)
            matmul_descriptor_kernel[grid](A, B, C, M, N, K, A.stride(0), B.stride(0), C.stride(0), **options)
        else:
            matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), **options)
    return C
