"""Cases and mistakes of ex10_triton_forward."""

import torch

from flashlab import oracle
from flashlab.check import compiled
from flashlab.check.cases import LARGE, LOOSE, features_of, normal
from flashlab.check.form import Case, Exercise, Mistake, Output, Variant

UPDATE_O = 'O_i = alpha[:, None] * O_i + tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")'
UPDATE_L = "l_i = alpha * l_i + tl.sum(P_ij, 1)"
FINISH = "O_i = O_i / tl.where(l_i == 0, 1.0, l_i)[:, None]"
CAUSAL = "keys <= rows[:, None] + N_k - N_q"


def call(fn, Q, K, V, O, L, causal, scale, B_r, B_c):
    H, N_q, d = Q.shape
    grid = (-(-N_q // B_r), H)
    fn[grid](Q, K, V, O, L, *Q.stride(), *K.stride(), *V.stride(), *O.stride(), *L.stride(), scale, N_q, K.shape[1], d, causal, B_r, B_c)


def case(name, N_q, N_k, H=1, d=16, *, seed, causal=False, large=False, dtype=torch.float32, features=(), scale=0.25, B_r=16, B_c=16):
    def make():
        Q, K, V = (normal(H, n, d, seed=seed + k, dtype=dtype, factor=f) for k, (n, f) in
                   enumerate(((N_q, LARGE if large else 1.0), (N_k, 1.0), (N_k, 1.0))))
        return {"Q": Q, "K": K, "V": V, "O": torch.zeros(H, N_q, d, dtype=dtype), "L": torch.zeros(H, N_q), "causal": causal, "scale": scale,
                "B_r": B_r, "B_c": B_c}

    found = features_of(N_q, N_k, d, d, B_r, B_c, causal, scale if scale != 0.25 else None, large, dtype)
    sizes = {"H": H, "N_q": N_q, "N_k": N_k, "d": d, "B_r": B_r, "B_c": B_c} | ({"causal": True} if causal else {})
    return Case(name, make, frozenset([*features, *found, *(["more than one head"] if H > 1 else [])]), sizes, LOOSE if large else 0.0)


EXERCISE = Exercise(
    function="fa2_kernel",
    outputs=(Output("O", ("head", "query", "column")), Output("L", ("head", "query"))),
    truth=lambda Q, K, V, O, L, causal, scale, B_r, B_c: oracle.attention(Q, K, V, causal=causal, scale=scale),
    call=call,
    reads=("Q", "K", "V"),
    writes=("O", "L"),
    after=[compiled.narrow("int32_offset")],
    seconds=6,
    cases=[
        case("one tile", 16, 16, seed=1000),
        case("two key blocks", 16, 32, seed=1003),
        case("a short last key block", 16, 39, seed=1006),
        case("short last query block, two heads", 21, 16, 2, seed=1009),
        case("scores in the hundreds", 16, 64, large=True, seed=1012),
        case("causal", 32, 32, causal=True, seed=1015),
        case("causal, N_q ≠ N_k", 18, 25, causal=True, seed=1018),
        case("causal, queries that see no key", 23, 5, causal=True, seed=1021),
        case("16-bit inputs", 16, 80, seed=1024, dtype=torch.float16, scale=0.5, B_c=32),
    ],
    mistakes=[
        Mistake("no_rescale_O", "O_i was not multiplied by alpha when the maximum grew", "the line of O_i", (UPDATE_O, UPDATE_O.replace("alpha[:, None] * ", ""))),
        Mistake("no_rescale_l", "l_i was not multiplied by alpha when the maximum grew", "the line of l_i", (UPDATE_L, UPDATE_L.replace("alpha * ", ""))),
        Mistake("alpha_inverted", "alpha was exp(m_new − m_i), the inverse of the right factor", "the sign in alpha", ("tl.exp(m_i - m_safe)", "tl.exp(m_safe - m_i)")),
        Mistake("m_not_carried", "m_i was never set to m_new", "the end of the loop body", ("m_i = m_new", "")),
        Mistake("unshifted", "the scores went into exp without their maximum being subtracted", "the exponents: float32 overflows at exp(89)",
                ("tl.maximum(m_i, tl.max(S_ij, 1))", "tl.zeros_like(m_i)")),
        Mistake("not_divided", "O_i was stored without being divided by l_i", "the lines after the loop", (FINISH, "")),
        Mistake("divided_inside", "O_i was divided by l_i in every step and not at the end", "where the division stands", (UPDATE_O, UPDATE_O.replace("O_i = ", "O_i = (") + ") / l_i[:, None]"), (FINISH, "")),
        Mistake("l_of_last_tile", "l_i held the sum of the last key block alone", "the line of l_i: it adds to the rescaled sum", (UPDATE_L, "l_i = tl.sum(P_ij, 1)")),
        Mistake("scale_missing", "the scores were not multiplied by scale", "the line of S_ij", ('tl.trans(K_j), input_precision="ieee") * scale', 'tl.trans(K_j), input_precision="ieee")')),
        Mistake("scale_twice", "the scores were multiplied by scale twice", "each place where scale appears", ('tl.trans(K_j), input_precision="ieee") * scale', 'tl.trans(K_j), input_precision="ieee") * scale * scale')),
        Mistake("k_not_transposed", "Q_i was multiplied by K_j, not by its transpose", "tl.dot(Q_i, tl.trans(K_j))", ("tl.dot(Q_i, tl.trans(K_j)", "tl.dot(Q_i, K_j")),
        Mistake("tail_dropped", "the last, short key block was never visited", "the loop: tl.cdiv(N_k, B_c), not N_k // B_c", ("tl.cdiv(N_k, B_c)", "tl.maximum(1, N_k // B_c)")),
        Mistake("tail_not_masked", "keys beyond N_k were not hidden: they were loaded as 0, and a score of 0 weighs exp(0)",
                "S_ij where keys ≥ N_k: it has to be −inf", ("tl.where(keys < N_k, S_ij, -float(\"inf\"))", "S_ij")),
        Mistake("no_guard_K_V", "K and V were loaded without a guard for keys beyond N_k", "the masks of the loads of K and V",
                ("stride_Kd, mask=keys[:, None] < N_k, other=0.0)", "stride_Kd)"), ("stride_Vd, mask=keys[:, None] < N_k, other=0.0)", "stride_Vd)")),
        Mistake("no_guard_Q", "Q was loaded without a guard for rows beyond N_q", "the mask of the load of Q", ("stride_Qd, mask=rows[:, None] < N_q, other=0.0)", "stride_Qd)"), stray=True),
        Mistake("no_guard_O", "O was stored without a guard for rows beyond N_q", "the mask of the store of O", ("O_i, mask=rows[:, None] < N_q)", "O_i)"), stray=True),
        Mistake("no_guard_L", "L was stored without a guard for rows beyond N_q", "the mask of the store of L", ("tl.log(l_i), mask=rows < N_q)", "tl.log(l_i))")),
        Mistake("mask_hides_own_key", "the causal mask also hid each query's own key", "the comparison: key ≤ query", (CAUSAL, CAUSAL.replace("<=", "<"))),
        Mistake("mask_lower", "the causal mask hid the past and showed the future", "the comparison: a key is seen if it is not after the query", (CAUSAL, CAUSAL.replace("<=", ">="))),
        Mistake("mask_top_left", "the causal mask lined up the first query with the first key", "N_k − N_q: the last query sees all keys", (CAUSAL, "keys <= rows[:, None]")),
        Mistake("mask_missing", "the causal mask was missing", "the branch for causal", (f"tl.where({CAUSAL}, S_ij, -float(\"inf\"))", "S_ij")),
        Mistake("mask_minus_1e6", "hidden scores were set to a large negative number, not to −inf", "queries that see no key: with a finite value they see all keys alike",
                (f"tl.where({CAUSAL}, S_ij, -float(\"inf\"))", f"tl.where({CAUSAL}, S_ij, -1e6)"),
                also=[[(f"tl.where({CAUSAL}, S_ij, -float(\"inf\"))", f"tl.where({CAUSAL}, S_ij, {x})")] for x in ("-1e4", "-1e9", "-1e30")]),
        Mistake("no_empty_row", "a row without a visible key got NaN, from −inf − (−inf)", "the exponents, where m_new is −inf", ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new")),
        Mistake("zero_over_zero", "a row without a visible key was divided by its sum, which is 0", "the division, where l_i is 0", ("tl.where(l_i == 0, 1.0, l_i)", "l_i")),
        Mistake("stride_of_K_for_V", "V was addressed with the strides of K", "the strides: each tensor has its own", ("V + keys[:, None] * stride_Vn", "V + keys[:, None] * stride_Kn")),
        Mistake("L_without_m", "L was log(l_i): the maximum was not added back", "the line that stores L", ("m_i + tl.log(l_i)", "tl.log(l_i)")),
        Mistake("L_base_2", "L was taken to base 2", "the logarithm: L is the natural one", ("m_i + tl.log(l_i)", "(m_i + tl.log(l_i)) * 1.4426950408889634")),
        Mistake("P_rounded_before_sum", "P_ij was rounded to 16 bits before its row sum was taken", "the order: sum first, cast for tl.dot afterwards",
                ("tl.exp(S_ij - m_safe[:, None])", "tl.exp(S_ij - m_safe[:, None]).to(V_j.dtype).to(tl.float32)")),
        Mistake("dot_of_two_dtypes", "tl.dot got two different dtypes: float32 weights and 16-bit values",
                "the second tl.dot: P_ij.to(V_j.dtype)", ("P_ij.to(V_j.dtype)", "P_ij")),
        Mistake("int32_offset", "row or key numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
                "rows and keys: `.to(tl.int64)` before they meet a stride", ("i.to(tl.int64) * B_r", "i * B_r"), ("tl.arange(0, B_c).to(tl.int64)", "tl.arange(0, B_c)")),
    ],
    variants=[
        Variant("causal blocks skipped, exp2, K transposed in the load",
                ("for j in range(0, tl.cdiv(N_k, B_c)):", "end = N_k\n    if causal:\n        end = tl.minimum(N_k, tl.maximum(0, tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q))\n    for j in range(0, tl.cdiv(end, B_c)):"),
                ("K + keys[:, None] * stride_Kn + cols * stride_Kd, mask=keys[:, None] < N_k", "K + keys[None, :] * stride_Kn + cols[:, None] * stride_Kd, mask=keys[None, :] < N_k"),
                ("tl.trans(K_j)", "K_j"), ("tl.exp(m_i - m_safe)", "tl.exp2((m_i - m_safe) * 1.4426950408889634)"),
                ("tl.exp(S_ij - m_safe[:, None])", "tl.exp2((S_ij - m_safe[:, None]) * 1.4426950408889634)")),
    ],
    hints=[
        "Addresses of a tile: Q + rows[:, None] * stride_Qn + cols * stride_Qd, mask=rows[:, None] < N_q, other=0.0.",
        "m_i starts as tl.full((B_r,), -float('inf'), tl.float32), l_i and O_i as tl.zeros. The loop is range(0, tl.cdiv(N_k, B_c)).",
        "Scores of keys beyond N_k, and hidden ones, become −inf by tl.where. Where m_new is −inf, subtract 0 in its place.",
    ],
)
