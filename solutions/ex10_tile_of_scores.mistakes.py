"""Cases and mistakes of ex10_tile_of_scores."""

import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import apart, features_of, normal
from flashlab_course.check.form import Case, Exercise, Hint, Mistake, Output

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
                also=[[("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(len(Q) // B_r, len(K) // B_c)")],
                      [("triton.cdiv(len(Q), B_r)", "len(Q) // B_r")], [("triton.cdiv(len(K), B_c)", "len(K) // B_c")],
                      [("triton.cdiv(len(Q), B_r)", "max(1, len(Q) // B_r)")], [("triton.cdiv(len(K), B_c)", "max(1, len(K) // B_c)")]]),
        Mistake("grid_swapped", "grid and kernel did not agree: one counted key blocks with program_id(0), the other query blocks",
                "i is program_id(0) and counts query blocks, so ⌈N_q / B_r⌉ is the first number of the grid and ⌈N_k / B_c⌉ the second",
                ("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(triton.cdiv(len(K), B_c), triton.cdiv(len(Q), B_r))")),
        Mistake("grid_of_a_square", "both numbers of the grid were made from N_q, or both from N_k, as if S were square",
                "the grid: N_q decides how many tiles there are down, N_k how many across", ("triton.cdiv(len(K), B_c)", "triton.cdiv(len(Q), B_c)"),
                also=[[("triton.cdiv(len(Q), B_r)", "triton.cdiv(len(K), B_r)")]]),
        Mistake("grid_of_rows", "a program was launched for each query, not for each block of queries", "the grid: as many programs as tiles",
                ("triton.cdiv(len(Q), B_r)", "len(Q)")),
        Mistake("no_block_offset", "every program worked on the first tile", "rows and keys: program_id · B is where a block starts",
                ("tl.program_id(0).to(tl.int64) * B_r +", ""), ("tl.program_id(1).to(tl.int64) * B_c +", "")),
        Mistake("B_r_for_B_c", "key blocks were taken to be B_r apart", "keys: program_id(1) · B_c",
                ("tl.program_id(1).to(tl.int64) * B_c", "tl.program_id(1).to(tl.int64) * B_r")),
        Mistake("no_guard_load_Q", "Q was loaded for rows beyond N_q: without a guard, or with one that lets them through",
                "the mask of the load of Q: rows < N_q", (", " + Q_MASK, ""), stray=True),
        Mistake("no_guard_load_K", "K was loaded for keys beyond N_k: without a guard, or with one that lets them through",
                "the mask of the load of K: keys < N_k", (", " + K_MASK, ""), stray=True),
        Mistake("no_guard_store", "S was stored without a guard: a short tile writes over what follows", "the mask of the store: (rows < N_q) & (keys < N_k)",
                (", " + S_MASK, "")),
        Mistake("store_guards_rows_only", "the store was guarded for rows but not for keys", "the mask of the store: (rows < N_q) & (keys < N_k)",
                (S_MASK, "mask=rows < N_q")),
        Mistake("store_guards_keys_only", "the store was guarded for keys but not for rows", "the mask of the store: (rows < N_q) & (keys < N_k)",
                (S_MASK, "mask=keys < N_k")),
        Mistake("guards_swapped", "rows were held against N_k and keys against N_q", "which size belongs to which: rows < N_q, keys < N_k",
                (Q_MASK, "mask=rows < N_k, other=0.0"), (K_MASK, "mask=keys < N_q, other=0.0"), (S_MASK, "mask=(rows < N_k) & (keys < N_q)")),
        Mistake("guard_off_by_one", "the guards let one row and one key too many through, as ≤ does", "the guards: the last row is N_q − 1, the last key N_k − 1",
                (Q_MASK, "mask=rows <= N_q, other=0.0"), (K_MASK, "mask=keys <= N_k, other=0.0"), (S_MASK, "mask=(rows <= N_q) & (keys <= N_k)")),
        Mistake("stride_of_Q_for_K", "K was addressed with the strides of Q", "the strides: each tensor has its own",
                ("keys * stride_Kn + cols * stride_Kd", "keys * stride_Qn + cols * stride_Qd")),
        Mistake("d_for_stride", "d was taken for the step from one row to the next, as if Q, K were contiguous",
                "the strides: a view into a larger tensor has others", ("rows * stride_Qn", "rows * d"), ("keys * stride_Kn", "keys * d")),
        Mistake("N_k_for_stride", "N_k was taken for the step from one row of S to the next, as if S were contiguous", "the strides of S",
                ("rows * stride_Sn", "rows * N_k")),
        Mistake("column_stride_1", "neighbouring columns were taken to lie next to each other: stride_Qd, stride_Kd or stride_Sm was not used",
                "the addresses: each tensor's columns are its last stride apart", ("cols * stride_Qd", "cols"), ("cols * stride_Kd", "cols"),
                ("keys * stride_Sm", "keys"), also=[[("cols * stride_Qd", "cols")], [("cols * stride_Kd", "cols")], [("keys * stride_Sm", "keys")]]),
        Mistake("strides_swapped", "the two strides of Q were swapped", "stride_Qn goes with row numbers, stride_Qd with column numbers",
                ("rows * stride_Qn + cols * stride_Qd", "rows * stride_Qd + cols * stride_Qn")),
        Mistake("stored_transposed", "S was stored transposed", "the addresses of the store: rows · stride_Sn + keys · stride_Sm",
                ("rows * stride_Sn + keys * stride_Sm", "rows * stride_Sm + keys * stride_Sn")),
        Mistake("k_not_transposed", "Q_i was multiplied by K_j, not by its transpose", "the shapes in tl.dot: (B_r, d) times (d, B_c)",
                ("tl.dot(Q_i, tl.trans(K_j)", "tl.dot(Q_i, K_j")),
        Mistake("scale_missing", "the scores were not multiplied by scale", "S_ij: Q_i K_jᵀ · scale",
                ('input_precision="ieee") * scale', 'input_precision="ieee")')),
        Mistake("never_stored", "nothing was stored", "the tl.store of S_ij, and its mask: true where row and key exist",
                ("tl.store(S + rows * stride_Sn + keys * stride_Sm, S_ij, " + S_MASK + ")", "pass")),
        Mistake("int32_offset", "row or key numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
                "rows and keys: `.to(tl.int64)` before they meet a stride", ("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
                ("tl.program_id(1).to(tl.int64)", "tl.program_id(1)")),
        Mistake("scale_twice", "the scores held the scale twice", "each place where the scale enters S_ij: once",
                ('input_precision="ieee") * scale', 'input_precision="ieee") * scale * scale')),
        Mistake("scale_in_16_bits", "Q was multiplied by scale before the product and rounded to 16 bits again", "scale multiplies the float32 product of tl.dot",
                ("tl.dot(Q_i, tl.trans(K_j)", "tl.dot((Q_i * scale).to(Q_i.dtype), tl.trans(K_j)"),
                ('input_precision="ieee") * scale', 'input_precision="ieee")')),
        Mistake("scale_divided", "the scores were divided by scale", "S_ij: Q_i K_jᵀ · scale",
                ('input_precision="ieee") * scale', 'input_precision="ieee") / scale')),
        Mistake("program_ids_swapped", "rows came from program_id(1) and keys from program_id(0)", "program_id(0) counts query blocks",
                ("tl.program_id(0).to(tl.int64) * B_r", "tl.program_id(1).to(tl.int64) * B_r"),
                ("tl.program_id(1).to(tl.int64) * B_c", "tl.program_id(0).to(tl.int64) * B_c"), same_as="grid_swapped"),
        Mistake("rows_not_moved", "every program worked on the first query block", "rows: program_id(0) · B_r is where a block starts",
                ("tl.program_id(0).to(tl.int64) * B_r +", "")),
        Mistake("keys_held_against_N_q", "keys were held against N_q, the number of queries", "the mask of the keys: key < N_k",
                ("mask=keys < N_k, other=0.0)", "mask=keys < N_q, other=0.0)"), ("(rows < N_q) & (keys < N_k)", "(rows < N_q) & (keys < N_q)"), stray=True),
        Mistake("keys_not_moved", "every program worked on the first key block", "keys: program_id(1) · B_c is where a block starts",
                ("tl.program_id(1).to(tl.int64) * B_c +", "")),
        Mistake("stride_of_K_for_S", "S was addressed with a stride of K", "the strides of S: stride_Sn from row to row",
                ("rows * stride_Sn", "rows * stride_Kn")),
        Mistake("q_times_itself", "Q was multiplied by itself", "tl.dot(Q_i, tl.trans(K_j))", ("tl.dot(Q_i, tl.trans(K_j)", "tl.dot(Q_i, tl.trans(Q_i)")),
        Mistake("keys_against_N_q", "keys were held against N_q where K is loaded", "the mask of the load of K: keys < N_k",
                (K_MASK, "mask=keys < N_q, other=0.0")),
        Mistake("rows_against_N_k", "rows were held against N_k where Q is loaded", "the mask of the load of Q: rows < N_q",
                (Q_MASK, "mask=rows < N_k, other=0.0")),
        Mistake("row_major", "a tensor was addressed by row · width + column, as if it were contiguous", "the addresses: each tensor has two strides of its own",
                S_ROW_MAJOR, also=[[Q_ROW_MAJOR], [K_ROW_MAJOR], [Q_ROW_MAJOR, K_ROW_MAJOR], [Q_ROW_MAJOR, S_ROW_MAJOR], [Q_ROW_MAJOR, K_ROW_MAJOR, S_ROW_MAJOR]]),
        Mistake("tile_returned", "the tiles that stick out were left out whole: their program returned at once, or a mask was false for all of them",
                "the edge: a mask for each row and key, not one for the whole tile", ("cols = tl.arange(0, d)[None, :]",
                 "cols = tl.arange(0, d)[None, :]\n    if (tl.program_id(0) + 1) * B_r > N_q or (tl.program_id(1) + 1) * B_c > N_k:\n        return"),
                also=[[("cols = tl.arange(0, d)[None, :]", "cols = tl.arange(0, d)[None, :]\n    if (tl.program_id(0) + 1) * B_r > N_q:\n        return")],
                      [("cols = tl.arange(0, d)[None, :]", "cols = tl.arange(0, d)[None, :]\n    if (tl.program_id(1) + 1) * B_c > N_k:\n        return")]]),
        Mistake("grid_one_more", "the grid was N_q // B_r + 1 by N_k // B_c + 1: a program too many wherever a tile size divides",
                "the grid: triton.cdiv in both directions", ("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(len(Q) // B_r + 1, len(K) // B_c + 1)")),
    ],
    hints=[
        "rows = tl.program_id(0).to(tl.int64) * B_r + tl.arange(0, B_r)[:, None] has shape (B_r, 1). Keys go the same way with program_id(1).",
        "Q_i = tl.load(Q + rows * stride_Qn + cols * stride_Qd, mask=rows < N_q, other=0.0). K_j likewise; S_ij = tl.dot(Q_i, tl.trans(K_j)).",
        "For the store the keys have to lie along the columns: tl.trans(keys) or a second arange with [None, :].",
        Hint("Only short tiles of queries fail: which rows does the last program hold that do not exist? Who asks, in the load and in the store?", "a short last query block"),
        Hint("Only short tiles of keys fail: which keys does the last program hold that do not exist? Who asks, in the load and in the store?", "a short last key block"),
        Hint("Only columns that are apart fail: which addresses leave out a stride?", "columns that are apart"),
    ],
)
