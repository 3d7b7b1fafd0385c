"""Cases and mistakes of ex10_tile_of_scores."""

import torch

from flashlab.check import compiled
from flashlab.check.cases import features_of, normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant

Q_MASK = "mask=rows < N_q, other=0.0"
K_MASK = "mask=keys < N_k, other=0.0"
S_MASK = "mask=(rows < N_q) & (keys < N_k)"


def case(name, N_q, N_k, d, B_r, B_c, scale=0.5, *, seed):
    def make():
        return {"Q": normal(N_q, d, seed=seed), "K": normal(N_k, d, seed=seed + 1), "S": torch.zeros(N_q, N_k), "scale": scale, "B_r": B_r, "B_c": B_c}

    return Case(name, make, features_of(N_q, N_k, d, d, B_r, B_c), {"N_q": N_q, "N_k": N_k, "d": d, "B_r": B_r, "B_c": B_c})


EXERCISE = Exercise(
    function="scores",
    outputs=(Output("S", ("query", "key")),),
    truth=lambda Q, K, S, scale, B_r, B_c: (Q.double() @ K.double().T * scale,),
    reads=("Q", "K"),
    writes=("S",),
    after=[compiled.narrow("int32_offset")],
    seconds=6,
    cases=[
        case("one tile", 16, 16, 16, 16, 16, seed=900),
        case("two query blocks", 32, 16, 16, 16, 16, seed=902),
        case("two key blocks", 16, 32, 16, 16, 16, seed=904),
        case("a short last query block", 21, 16, 16, 16, 16, seed=906),
        case("a short last key block", 16, 25, 16, 16, 16, seed=908),
        case("all at once", 37, 41, 32, 32, 16, 0.25, seed=910),
    ],
    mistakes=[
        Mistake("grid_floor", "the grid was rounded down, so that the last, short tiles got no program", "the grid: triton.cdiv(N, B), not N // B",
                ("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(max(1, len(Q) // B_r), max(1, len(K) // B_c))")),
        Mistake("grid_swapped", "the two directions of the grid were swapped: program_id(0) counted key blocks where the kernel counts query blocks",
                "the order in the grid, and which program_id the rows come from",
                ("(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "(triton.cdiv(len(K), B_c), triton.cdiv(len(Q), B_r))")),
        Mistake("grid_of_rows", "a program was launched for each query, not for each block of queries", "the grid: as many programs as tiles",
                ("triton.cdiv(len(Q), B_r)", "len(Q)")),
        Mistake("no_block_offset", "every program worked on the first tile", "rows and keys: program_id · B is where a block starts",
                ("tl.program_id(0).to(tl.int64) * B_r +", ""), ("tl.program_id(1).to(tl.int64) * B_c +", "")),
        Mistake("B_r_for_B_c", "key blocks were taken to be B_r apart", "keys: program_id(1) · B_c", ("tl.program_id(1).to(tl.int64) * B_c", "tl.program_id(1).to(tl.int64) * B_r")),
        Mistake("no_guard_load_Q", "Q was loaded without a guard for rows beyond N_q", "the mask of the load of Q: rows < N_q", (", " + Q_MASK, ""), stray=True),
        Mistake("no_guard_load_K", "K was loaded without a guard for keys beyond N_k", "the mask of the load of K: keys < N_k", (", " + K_MASK, ""), stray=True),
        Mistake("no_guard_store", "S was stored without a guard: a short tile writes over what follows", "the mask of the store: both rows and keys", (", " + S_MASK, "")),
        Mistake("store_guards_rows_only", "the store was guarded for rows but not for keys", "the mask of the store: (rows < N_q) & (keys < N_k)", (S_MASK, "mask=rows < N_q")),
        Mistake("store_guards_keys_only", "the store was guarded for keys but not for rows", "the mask of the store: (rows < N_q) & (keys < N_k)", (S_MASK, "mask=keys < N_k")),
        Mistake("guards_swapped", "rows were held against N_k and keys against N_q", "which size belongs to rows: N_q", (Q_MASK, "mask=rows < N_k, other=0.0"), (K_MASK, "mask=keys < N_q, other=0.0"),
                (S_MASK, "mask=(rows < N_k) & (keys < N_q)")),
        Mistake("guard_off_by_one", "the guards let one row and one key too many through (≤ for <)", "the comparison: the last row is N_q − 1",
                (Q_MASK, "mask=rows <= N_q, other=0.0"), (K_MASK, "mask=keys <= N_k, other=0.0"), (S_MASK, "mask=(rows <= N_q) & (keys <= N_k)")),
        Mistake("stride_of_Q_for_K", "K was addressed with the strides of Q", "the strides: each tensor has its own", ("keys * stride_Kn + cols * stride_Kd", "keys * stride_Qn + cols * stride_Qd")),
        Mistake("d_for_stride", "d was taken for the step from one row to the next, as if Q, K were contiguous", "the strides: a view into a larger tensor has others",
                ("rows * stride_Qn", "rows * d"), ("keys * stride_Kn", "keys * d")),
        Mistake("N_k_for_stride", "N_k was taken for the step from one row of S to the next, as if S were contiguous", "the strides of S", ("rows * stride_Sn", "rows * N_k")),
        Mistake("strides_swapped", "the two strides of Q were swapped", "stride_Qn goes with row numbers, stride_Qd with column numbers", ("rows * stride_Qn + cols * stride_Qd", "rows * stride_Qd + cols * stride_Qn")),
        Mistake("stored_transposed", "S was stored transposed", "the addresses of the store: rows · stride_Sn + keys · stride_Sm", ("rows * stride_Sn + keys * stride_Sm", "rows * stride_Sm + keys * stride_Sn")),
        Mistake("k_not_transposed", "Q_i was multiplied by K_j, not by its transpose", "the shapes in tl.dot: (B_r, d) times (d, B_c)", ("tl.dot(Q_i, tl.trans(K_j)", "tl.dot(Q_i, K_j")),
        Mistake("scale_missing", "the scores were not multiplied by scale", "the line of S_ij", ('input_precision="ieee") * scale', 'input_precision="ieee")')),
        Mistake("never_stored", "nothing was stored", "the last line: tl.store", ("tl.store(S + rows * stride_Sn + keys * stride_Sm, S_ij, " + S_MASK + ")", "pass")),
        Mistake("int32_offset", "row numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
                "rows and keys: `.to(tl.int64)` before they meet a stride", ("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"), ("tl.program_id(1).to(tl.int64)", "tl.program_id(1)")),
    ],
    variants=[
        Variant("K loaded transposed, offsets cast later",
                ("tl.program_id(0).to(tl.int64) * B_r", "tl.program_id(0) * B_r"), ("tl.program_id(1).to(tl.int64) * B_c", "tl.program_id(1) * B_c"),
                ("rows * stride_Qn", "rows.to(tl.int64) * stride_Qn"),
                ("keys = tl.trans(keys)", ""),
                ("K_j = tl.load(K + keys * stride_Kn + cols * stride_Kd, " + K_MASK + ")", "keys = tl.trans(keys)\n    K_j = tl.load(K + keys.to(tl.int64) * stride_Kn + tl.trans(cols) * stride_Kd, " + K_MASK + ")"),
                ("tl.trans(K_j)", "K_j"),
                ("rows * stride_Sn + keys * stride_Sm", "rows.to(tl.int64) * stride_Sn + keys.to(tl.int64) * stride_Sm")),
    ],
    hints=[
        "rows = tl.program_id(0).to(tl.int64) * B_r + tl.arange(0, B_r)[:, None] has shape (B_r, 1). Keys go the same way with program_id(1).",
        "Q_i = tl.load(Q + rows * stride_Qn + cols * stride_Qd, mask=rows < N_q, other=0.0). K_j likewise; S_ij = tl.dot(Q_i, tl.trans(K_j)).",
        "For the store the keys have to lie along the columns: tl.trans(keys) or a second arange with [None, :].",
    ],
)
