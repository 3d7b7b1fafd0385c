import torch

from flashlab import oracle
from flashlab_course.check import compiled
from flashlab_course.check.cases import BELOW, EDGE, LARGE, Mistake, case_of, drawn, spread

UPDATE_O = 'O_i = alpha[:, None] * O_i + tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")'
UPDATE_L, FINISH = "l_i = alpha * l_i + tl.sum(P_ij, 1)", "O_i = O_i / tl.where(l_i == 0, 1.0, l_i)[:, None]"
NO_RESCALE_O = (UPDATE_O, UPDATE_O.replace("alpha[:, None] * ", ""))
NO_RESCALE_L = (UPDATE_L, UPDATE_L.replace("alpha * ", ""))
CAUSAL, BLOCKS = "keys <= rows[:, None] + N_k - N_q", "tl.cdiv(N_k, B_c)"
DOT, START = 'tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")', 'tl.full((B_r,), -float("inf"), tl.float32)'
INF, TILE_MAXIMUM = '-float("inf")', ("tl.maximum(m_i, tl.max(S_ij, 1))", "tl.max(S_ij, 1)")
SAFE, L_SAFE = f"tl.where(m_new == {INF}, 0.0, m_new)", "tl.where(l_i == 0, 1.0, l_i)"
L_FINITE = ("m_i + tl.log(l_i)", f"m_i + tl.log({L_SAFE})")
start = lambda m: [(START, f"tl.full((B_r,), {m}, tl.float32)")]
SEEN, V_AT = "tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q", "V + keys[:, None] * stride_Vn"
V_AS_K = (f"{V_AT} + cols * stride_Vd", "V + keys[:, None] * stride_Kn + cols * stride_Kd")

outputs = [("O", "head", "query", "column"), ("L", "head", "query")]
truth = lambda Q, K, V, causal, scale, **rest: oracle.attention(Q, K, V, causal=causal, scale=scale)
reads, writes = ("Q", "K", "V"), ("O", "L")
after = [compiled.narrow("int32_offset")]
seconds = 6
fewer = lambda causal, **rest: causal           # hidden key blocks may be left out
most = lambda Q, B_r, B_c, **rest: {"Q": B_r * Q.shape[2], "K": B_c * Q.shape[2], "V": B_c * Q.shape[2]}


def call(fn, Q, K, V, O, L, causal, scale, B_r, B_c):
    H, N_q, d = Q.shape
    strides = [step for T in (Q, K, V, O, L) for step in T.stride()]
    fn[(-(-N_q // B_r), H)](Q, K, V, O, L, *strides, scale, N_q, K.shape[1], d, causal, B_r, B_c)


def traffic(Q, K, V, O, L, causal, scale, B_r, B_c):
    """Q once, K and V once for each query block."""
    T_r = -(-Q.shape[1] // B_r)
    return {"Q": (Q.numel(), 0), "K": (T_r * K.numel(), 0), "V": (T_r * V.numel(), 0), "O": (0, O.numel()),
            "L": (0, L.numel())}


@case_of
def case(N_q, N_k, H=1, d=16, B_r=16, B_c=16, *, causal=False, scale=0.25, small=1.0, **how):
    """small: what K is multiplied by."""
    Q, K, V, _ = drawn(N_q, N_k, d, H=(H,), H_kv=(H,), scale=scale, **how)
    return {"Q": Q, "K": K * small, "V": V, "O": torch.zeros_like(Q), "L": torch.zeros(H, N_q), "causal": causal,
            "scale": scale, "B_r": B_r, "B_c": B_c}


cases = [case("one tile", 16, 16, seed=1000),
         case("two key blocks", 16, 32, seed=1003),
         case("a short last key block", 16, 39, seed=1006),
         case("short last query block, two heads", 21, 16, 2, seed=1009),
         case("scores in the hundreds", 16, 64, scale=-0.25, factor=LARGE, seed=1012),
         case("causal", 32, 32, causal=True, seed=1015),
         case("causal, N_q ≠ N_k", 18, 33, causal=True, seed=1018),
         case("causal, queries that see no key", 23, 5, causal=True, seed=1021),
         case("causal, scores in the hundreds", 32, 32, causal=True, factor=LARGE, seed=1048),
         case("causal, a negative scale", 16, 18, causal=True, scale=-0.3, seed=1051),
         case("causal, a short last key block, scores around −997", 16, 25, causal=True, below=EDGE, seed=1057),
         case("causal, a scale of 0", 16, 18, causal=True, scale=0.0, seed=1054),
         case("16-bit inputs", 16, 80, seed=1024, dtype=torch.float16, scale=0.5, B_c=32),
         case("16-bit inputs, many key blocks", 16, 512, seed=1045, dtype=torch.float16, equal=True, units=2),
         case("16-bit inputs, small keys and a large scale", 16, 32, seed=1063, dtype=torch.float16, scale=1e5,
              small=1e-4),
         case("scores far below 0", 16, 32, below=BELOW, seed=1027),
         case("causal, fewer queries than keys, whole blocks", 16, 32, causal=True, seed=1030),
         case("one query, one key", 1, 1, exact=True, units=4, seed=1033),
         spread(case("columns that are apart", 16, 16, seed=1036)),
         case("causal, wide query blocks", 40, 48, d=64, causal=True, B_r=32, seed=1060)]
mistakes = [
    Mistake("tf32", 'tl.dot was called without input_precision="ieee": a GPU rounds float32 to TF32 then',
            "every tl.dot", ('tl.trans(K_j), input_precision="ieee")', "tl.trans(K_j))"),
            ('V_j, input_precision="ieee")', "V_j)")),
    Mistake("no_rescale_O", "O_i was not multiplied by alpha when the maximum grew, or alpha was 1",
            "O_i, and which maximum m_i still is", NO_RESCALE_O),
    Mistake("no_rescale_l", "l_i was not multiplied by alpha when the maximum grew, or alpha was 1",
            "l_i, and which maximum m_i still is", NO_RESCALE_L),
    Mistake("not_divided", "O_i was stored without being divided by l_i", "O_i / l_i, after the last key block",
            (FINISH, "")),
    Mistake("scale_in_16_bits", "Q_i · scale was rounded to 16 bits before the product", "what scale multiplies", (DOT,
             DOT.replace("Q_i", "(Q_i * scale).to(Q_i.dtype)")), (" * scale\n", "\n")),
    Mistake("tail_not_masked", "keys beyond N_k were not hidden, or with causal alone: they weighed exp(0 − m)",
            "S_ij where keys ≥ N_k: −inf", ('tl.where(keys < N_k, S_ij, -float("inf"))', "S_ij")),
    Mistake("mask_top_left", "the causal mask lined up the first query with the first key",
            "N_k − N_q: the last query sees all keys", (CAUSAL, "keys <= rows[:, None]")),
    Mistake("mask_missing", "the causal mask was missing, or hid nothing",
            "the scores of keys after n + N_k − N_q: −inf", (f'tl.where({CAUSAL}, S_ij, -float("inf"))', "S_ij")),
    Mistake("mask_before_scale", "scores were hidden before they were scaled: −inf · scale is +inf or NaN", "the order",
            (" * scale\n", "\n"), ("        m_new = tl.maximum", "        S_ij = S_ij * scale\n…")),
    Mistake("no_empty_row", "a row without a visible key got NaN, from −inf − (−inf)",
            "the exponents, where m_new is −inf", (SAFE, "m_new"), also=[[(SAFE, "m_new"), (L_SAFE, "l_i")],
            [(SAFE, "m_new"), (BLOCKS, f"tl.cdiv({SEEN} if causal else N_k, B_c)")]]),
    Mistake("stride_of_K_for_V", "V was addressed with the strides of K", "the strides: each tensor has its own", (V_AT,
             V_AT.replace("Vn", "Kn")), also=[[V_AS_K]]),
    Mistake("L_without_m", "L was log(l_i): the maximum was not added back", "L: m_i + log(l_i)", ("m_i + tl.log(l_i)",
             "tl.log(l_i)")),
    Mistake("L_base_2", "L was taken to base 2", "the logarithm: L is the natural one", ("m_i + tl.log(l_i)",
             "(m_i + tl.log(l_i)) * 1.4426950408889634")),
    Mistake("int32_offset", "row or key numbers met strides in 32 bits: too few beyond 2³¹ elements", "`.to(tl.int64)`",
            ("i.to(tl.int64) * B_r", "i * B_r"), ("tl.arange(0, B_c).to(tl.int64)", "tl.arange(0, B_c)")),
    Mistake("m_starts_at_0", "m_i started at 0, or at another number that scores can fall below",
            "the first value of m_i: −inf", *start(0.0), also=map(start, (-10.0, -50.0, -100.0))),
    Mistake("m_of_this_tile", "the new maximum was that of this tile alone, and m_i was forgotten",
            "the new maximum: the larger of m_i and the tile's", TILE_MAXIMUM, also=[[TILE_MAXIMUM, *start(0.0)]]),
    Mistake("no_rescale", "O_i and l_i kept the unit of the old maximum: alpha was left out, or was 1",
            "alpha = exp(m_i − m_new)", NO_RESCALE_O, NO_RESCALE_L),
    Mistake("loop_ends_without_shift", "the key blocks ended as if N_q and N_k were the same",
            "the loop's end: N_k − N_q", (BLOCKS, "tl.cdiv(tl.minimum(N_k, (i + 1) * B_r) if causal else N_k, B_c)")),
    Mistake("loop_end_rounded_down", "the number of key blocks was rounded down, and the last of them left out",
            "the rounding of the loop's end", (BLOCKS, f"(tl.maximum(0, {SEEN} - 1) // B_c if causal else {BLOCKS})"),
            also=[[(BLOCKS, f"(tl.maximum(0, {SEEN}) // B_c if causal else {BLOCKS})")]]),
    Mistake("L_finite", "L was a large negative number for a query that sees no key, not −inf", "L of such a query",
            *start(-1e30), L_FINITE, also=[[*start(m), L_FINITE] for m in (-1e4, -1e9)]),
    Mistake("O_in_16_bits", "O_i was rounded to 16 bits in every step", "the dtype of O_i, through the whole loop",
            (UPDATE_O, "…\n        O_i = O_i.to(V_j.dtype).to(tl.float32)")),
    Mistake("P_not_cast", "tl.dot got P_ij in float32 and V_j in float16, and takes two tiles of one dtype",
            "the product with V_j: P_ij.to(V_j.dtype)", ("P_ij.to(V_j.dtype)", "P_ij")),
    Mistake("maximum_scaled_afterwards",
            "the maximum was taken before the scores were scaled: with a negative scale it is the smallest",
            "the maximum: that of the scaled scores", ("m_new = tl.maximum(",
             f"unscaled = tl.where(S_ij == {INF}, {INF}, {DOT})\n        …"), ("tl.max(S_ij, 1)",
             f"tl.where(tl.max(S_ij, 1) == {INF}, {INF}, scale * tl.max(unscaled, 1))")),
    Mistake("column_stride_1", "numbers of L, or of a row, were taken to lie next to each other", "the last strides",
            ("L + rows * stride_Ln", "L + rows"), also=[[(f"cols * stride_{T}d", "cols")] for T in "QKVO"]),
    Mistake("hidden_in_the_maximum", "the maximum was taken over hidden scores, too: all visible weights may underflow",
            "the order: first −inf for what is not seen, then the maximum", ("S_ij = tl.where(keys < N_k, S_ij,",
             "seen = tl.where(keys < N_k, S_ij * 0,"), (f"S_ij = tl.where({CAUSAL}, S_ij",
             f"seen = tl.where({CAUSAL}, seen"), ("tl.exp(S_ij", "tl.exp(seen + S_ij")),
    Mistake("end_by_first_query", "with causal, the key blocks ended where the first query's end", "the last query",
            (BLOCKS, "tl.cdiv(tl.maximum(0, tl.minimum(N_k, i * B_r + 1 + N_k - N_q)) if causal else N_k, B_c)")),
    Mistake("last_key_left_out", "with causal, the key blocks ended one key early: before the last query's own key",
            "where the key blocks end", (BLOCKS, f"tl.cdiv(tl.maximum(0, {SEEN} - 1) if causal else N_k, B_c)")),
]
hints = ["Addresses of a tile: Q + rows[:, None] * stride_Qn + cols * stride_Qd, mask=rows[:, None] < N_q, other=0.0.",
         "Scores of keys beyond N_k, and hidden ones, become −inf by tl.where. Where m_new is −inf, subtract 0 in its "
         "place.",
         "Without causal all is right. Two places know the mask, if you leave out blocks: the scores of a tile, and "
         "the end of the loop. Do both have the shift N_k − N_q?"]
