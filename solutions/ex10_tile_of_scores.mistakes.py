"""Cases and mistakes of ex10_tile_of_scores."""

import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import apart, features_of, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

Q_MASK = "mask=rows < N_q, other=0.0"
K_MASK = "mask=keys < N_k, other=0.0"
S_MASK = "mask=(rows < N_q) & (keys < N_k)"


def case(name, N_q, N_k, d, B_r, B_c, scale=0.5, *, seed, steps=(1, 1, 1), dtype=torch.float32):
    def make():
        Q, K, S = map(apart, (normal(N_q, d, seed=seed, dtype=dtype), normal(N_k, d, seed=seed + 1, dtype=dtype), torch.zeros(N_q, N_k)), steps)
        return {"Q": Q, "K": K, "S": S, "scale": scale, "B_r": B_r, "B_c": B_c}

    return Case(name, make, features_of(N_q, N_k, d, d, B_r, B_c, dtype=dtype) | ({"columns that are apart"} if steps != (1, 1, 1) else set()),
                {"N_q": N_q, "N_k": N_k, "d": d, "B_r": B_r, "B_c": B_c})


def traffic(Q, K, S, scale, B_r, B_c):
    T_r, T_c = -(-len(Q) // B_r), -(-len(K) // B_c)
    return {"Q": (T_c * Q.numel(), 0), "K": (T_r * K.numel(), 0), "S": (0, S.numel())}


Q_ROW_MAJOR = ("rows * stride_Qn + cols * stride_Qd", "rows * d + cols")
K_ROW_MAJOR = ("keys * stride_Kn + cols * stride_Kd", "keys * d + cols")
S_ROW_MAJOR = ("rows * stride_Sn + keys * stride_Sm", "rows * N_k + keys")

EXERCISE = Exercise(
    function="scores",
    outputs=(Output("S", ("query", "key")),),
    truth=lambda Q, K, S, scale, B_r, B_c: (Q.double() @ K.double().T * scale,),
    reads=("Q", "K"),
    writes=("S",),
    after=[compiled.narrow("int32_offset")],
    seconds=6,
    traffic=traffic,
    cases=[
        case("one tile", 16, 16, 16, 16, 16, seed=900),
        case("two query blocks", 32, 16, 16, 16, 16, seed=902),
        case("two key blocks", 16, 32, 16, 16, 16, seed=904),
        case("a short last query block", 21, 16, 16, 16, 16, seed=906),
        case("a short last key block", 16, 25, 16, 16, 16, seed=908),
        case("all at once", 37, 41, 64, 32, 16, 0.25, seed=910),
        case("a scale other than a power of two, 16-bit inputs", 16, 32, 16, 16, 16, 0.3, seed=912, dtype=torch.float16),
        case("a negative scale", 16, 16, 16, 16, 16, -0.3, seed=918),
        case("a scale of 0", 16, 16, 16, 16, 16, 0.0, seed=920),
        case("one query, one key", 1, 1, 16, 16, 16, seed=914),
        case("columns that are apart", 16, 16, 16, 16, 16, steps=(2, 3, 4), seed=916),
    ],
    mistakes=[
        Mistake("tf32", "tl.dot was called without input_precision=\"ieee\": a GPU rounds float32 to TF32 then, which the interpreter does not show",
                "every tl.dot: input_precision=\"ieee\"", (', input_precision="ieee"', "")),
        Mistake("grid_floor", "the grid was rounded down, so that the last, short tiles got no program",
                "the grid: N / B rounded up in both directions (triton.cdiv)",
                ("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(max(1, len(Q) // B_r), max(1, len(K) // B_c))"),
                also=[[("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(len(Q) // B_r, len(K) // B_c)")]]),
        Mistake("grid_swapped", "grid and kernel did not agree: one counted key blocks with program_id(0), the other query blocks",
                "i is program_id(0) and counts query blocks, so ⌈N_q / B_r⌉ is the first number of the grid and ⌈N_k / B_c⌉ the second",
                ("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(triton.cdiv(len(K), B_c), triton.cdiv(len(Q), B_r))")),
        Mistake("grid_of_a_square", "both numbers of the grid were made from N_q, or both from N_k, as if S were square",
                "the grid: N_q decides how many tiles there are down, N_k how many across", ("triton.cdiv(len(K), B_c)", "triton.cdiv(len(Q), B_c)"),
                also=[[("triton.cdiv(len(Q), B_r)", "triton.cdiv(len(K), B_r)")]]),
        Mistake("grid_of_rows", "a program was launched for each query, not for each block of queries", "the grid: as many programs as tiles",
                ("triton.cdiv(len(Q), B_r)", "len(Q)")),
        Mistake("B_r_for_B_c", "key blocks were taken to be B_r apart", "keys: program_id(1) · B_c",
                ("tl.program_id(1).to(tl.int64) * B_c", "tl.program_id(1).to(tl.int64) * B_r")),
        Mistake("store_guards_rows_only", "the store was guarded for rows but not for keys", "the mask of the store: (rows < N_q) & (keys < N_k)",
                (S_MASK, "mask=rows < N_q")),
        Mistake("column_stride_1", "neighbouring columns were taken to lie next to each other: stride_Qd, stride_Kd or stride_Sm was not used",
                "the addresses: each tensor's columns are its last stride apart", ("cols * stride_Qd", "cols"), ("cols * stride_Kd", "cols"),
                ("keys * stride_Sm", "keys"), also=[[("cols * stride_Qd", "cols")]]),
        Mistake("stored_transposed", "S was stored transposed", "the addresses of the store: rows · stride_Sn + keys · stride_Sm",
                ("rows * stride_Sn + keys * stride_Sm", "rows * stride_Sm + keys * stride_Sn")),
        Mistake("int32_offset", "row or key numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
                "rows and keys: `.to(tl.int64)` before they meet a stride", ("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
                ("tl.program_id(1).to(tl.int64)", "tl.program_id(1)")),
        Mistake("scale_in_16_bits", "Q was multiplied by scale before the product and rounded to 16 bits again", "scale multiplies the float32 product of tl.dot",
                ("tl.dot(Q_i, tl.trans(K_j)", "tl.dot((Q_i * scale).to(Q_i.dtype), tl.trans(K_j)"),
                ('input_precision="ieee") * scale', 'input_precision="ieee")')),
        Mistake("keys_held_against_N_q", "keys were held against N_q, the number of queries", "the mask of the keys: key < N_k",
                ("mask=keys < N_k, other=0.0)", "mask=keys < N_q, other=0.0)"), ("(rows < N_q) & (keys < N_k)", "(rows < N_q) & (keys < N_q)"), stray=True),
        Mistake("keys_against_N_q", "keys were held against N_q where K is loaded", "the mask of the load of K: keys < N_k",
                (K_MASK, "mask=keys < N_q, other=0.0")),
        Mistake("row_major", "a tensor was addressed by row · width + column, as if it were contiguous", "the addresses: each tensor has two strides of its own",
                S_ROW_MAJOR, also=[[Q_ROW_MAJOR]]),
        Mistake("tile_returned", "the tiles that stick out were left out whole: their program returned at once, or a mask was false for all of them",
                "the edge: a mask for each row and key, not one for the whole tile", ("cols = tl.arange(0, d)[None, :]",
                 "cols = tl.arange(0, d)[None, :]\n    if (tl.program_id(0) + 1) * B_r > N_q or (tl.program_id(1) + 1) * B_c > N_k:\n        return"),
                also=[[("cols = tl.arange(0, d)[None, :]", "cols = tl.arange(0, d)[None, :]\n    if (tl.program_id(0) + 1) * B_r > N_q:\n        return")]]),
        ],
    hints=[
        "rows = tl.program_id(0).to(tl.int64) * B_r + tl.arange(0, B_r)[:, None] has shape (B_r, 1). Keys go the same way with program_id(1).",
        "Q_i = tl.load(Q + rows * stride_Qn + cols * stride_Qd, mask=rows < N_q, other=0.0). K_j likewise; S_ij = tl.dot(Q_i, tl.trans(K_j)).",
        "For the store the keys have to lie along the columns: tl.trans(keys) or a second arange with [None, :].",
        "Only short tiles of queries fail: which rows does the last program hold that do not exist? Who asks, in the load and in the store?",
        "Only short tiles of keys fail: which keys does the last program hold that do not exist? Who asks, in the load and in the store?",
        "Only columns that are apart fail: which addresses leave out a stride?",
    ],
)
