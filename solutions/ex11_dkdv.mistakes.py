"""Cases and mistakes of ex11_dkdv."""

import torch

from flashlab import oracle
from flashlab_course.check import compiled
from flashlab_course.check.cases import EDGE, LARGE, LOOSE, apart, far_below, features_of, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def call(fn, Q, K, V, dO, L, D, dK, dV, causal, scale, B_r, B_c):
    (H_q, N_q, d), (H_kv, N_k, _) = Q.shape, K.shape
    strides = [step for T in (Q, K, V, dO, L, D, dK, dV) for step in T.stride()]
    fn[(-(-N_k // B_c), H_kv)](Q, K, V, dO, L, D, dK, dV, *strides, scale, N_q, N_k, H_q // H_kv, d, causal, B_r, B_c)


def case(name, N_q, N_k, H_kv=1, group=1, d=16, *, seed, causal=False, large=False, edge=False, rising=False, small=1.0, dtype=torch.float32, scale=0.25, B_r=16, B_c=16,
         steps=(1, 1, 1, 1, 1, 1)):
    found = features_of(N_q, N_k, d, d, B_r, B_c, causal, scale if scale != 0.25 else None, large or edge, dtype)
    more = {"only scores far below 0": edge, "more than one key head": H_kv > 1, "more than one query head for each key head": group > 1,
            "columns that are apart": steps[0] > 1}

    def make():
        Q, K, V, dO = (normal(h, n, d, seed=seed + k, dtype=dtype, factor=LARGE if large and k == 0 else 1.0)
                       for k, (h, n) in enumerate(((H_kv * group, N_q), (H_kv, N_k), (H_kv, N_k), (H_kv * group, N_q))))
        K, dO = K * small, dO * min(1.0, 300 * small)
        if edge:
            Q, K = far_below(Q, K, scale, EDGE)
        if rising:                             # what a query block adds never falls: 16 bits would keep less and less of it
            Q, K, dO = torch.full_like(Q, 1 + 7 / 1024), torch.zeros_like(K), torch.full_like(dO, 1 + 7 / 1024)
            V = torch.where((torch.arange(N_k) < N_k // 2)[:, None], 1.0, -1.0).to(dtype).expand(H_kv, N_k, d).contiguous()
        O, L = oracle.attention(Q, K, V, causal=causal, scale=scale)
        Q, K, V, dO, L, D = map(apart, (Q, K, V, dO, L.float(), (dO.double() * O).sum(-1).float()), steps)
        return {"Q": Q, "K": K, "V": V, "dO": dO, "L": L, "D": D, "dK": torch.zeros_like(K), "dV": torch.zeros_like(V),
                "causal": causal, "scale": scale, "B_r": B_r, "B_c": B_c}

    sizes = {"H_kv": H_kv, "group": group, "N_q": N_q, "N_k": N_k, "B_r": B_r, "B_c": B_c} | ({"causal": True} if causal else {})
    return Case(name, make, found | {f for f, holds in more.items() if holds}, sizes, 20 * LOOSE if large or edge else 0.0, 2 if rising else 16)


def truth(Q, K, V, dO, L, D, dK, dV, causal, scale, B_r, B_c):
    return oracle.gradients(Q, K, V, dO, causal=causal, scale=scale)[1:]


def traffic(Q, K, V, dO, L, D, dK, dV, causal, scale, B_r, B_c):
    """Without a mask: K and V once, the query blocks once for each key block. With one, hidden query blocks may be left out."""
    T_c = -(-K.shape[1] // B_c)
    return {name: (T_c * T.numel(), 0) for name, T in (("Q", Q), ("dO", dO), ("L", L), ("D", D))} | {
        "K": (K.numel(), 0), "V": (V.numel(), 0), "dK": (0, dK.numel()), "dV": (0, dV.numel())}


P_T, VISIBLE = "tl.exp(S_T - L_i)", "keys[:, None] <= rows + N_k - N_q"
DV, DK, DS = "dV_j += tl.dot(P_T.to(dO_i.dtype), dO_i", "dK_j += scale * tl.dot(dS_T.to(Q_i.dtype), Q_i", "P_T * (dP_T - D_i)"

EXERCISE = Exercise(
    function="dkdv_kernel",
    outputs=(Output("dK", ("head", "key", "column")), Output("dV", ("head", "key", "column"))),
    call=call,
    truth=truth,
    reads=("Q", "K", "V", "dO", "L", "D"),
    writes=("dK", "dV"),
    after=[compiled.narrow("int32_offset")],
    seconds=8,
    traffic=traffic,
    fewer=lambda causal, **rest: causal,
    most=lambda Q, B_r, **rest: {"Q": B_r * Q.shape[2], "dO": B_r * Q.shape[2]},
    cases=[
        case("one tile", 16, 16, scale=1.0, seed=1200),
        case("a scale", 16, 16, seed=1204),
        case("two query blocks", 32, 16, seed=1208),
        case("two key blocks", 16, 32, seed=1212),
        case("a short last query block", 21, 16, seed=1216),
        case("two heads", 16, 16, H_kv=2, seed=1220),
        case("two query heads on one key head", 16, 16, group=2, seed=1224),
        case("two groups of two heads", 20, 16, H_kv=2, group=2, seed=1228),
        case("causal", 32, 32, causal=True, seed=1232),
        case("causal, N_q ≠ N_k", 18, 25, causal=True, seed=1236),
        case("causal, queries that see no key", 23, 5, causal=True, seed=1240),
        case("scores in the hundreds", 16, 32, scale=-0.25, large=True, seed=1244),
        case("causal, scores in the hundreds", 32, 32, causal=True, large=True, seed=1260),
        case("causal, scores around −997", 16, 16, causal=True, edge=True, seed=1264),
        case("causal, a negative scale", 16, 18, causal=True, scale=-0.3, seed=1268),
        case("causal, a scale of 0", 16, 18, causal=True, scale=0.0, seed=1276),
        case("16-bit inputs", 32, 16, dtype=torch.float16, seed=1248),
        case("16-bit inputs, small keys and a large scale", 16, 16, dtype=torch.float16, scale=3e4, small=3e-4, seed=1275),
        case("16-bit inputs, many query blocks", 512, 16, dtype=torch.float16, rising=True, seed=1272),
        case("causal, more keys, whole blocks", 16, 48, causal=True, seed=1252),
        case("one query, one key", 1, 1, seed=1256),
        case("columns that are apart", 16, 16, steps=(2, 3, 4, 5, 6, 7), seed=1260),
        case("causal, wide key blocks", 40, 48, d=64, causal=True, B_c=32, seed=1280),
    ],
    mistakes=[
        Mistake("tf32", "tl.dot was called without input_precision=\"ieee\": a GPU rounds float32 to TF32 then, which the interpreter does not show",
                "every tl.dot: input_precision=\"ieee\"", ('tl.trans(Q_i), input_precision="ieee")', 'tl.trans(Q_i))'),
                (' dO_i, input_precision="ieee")', ' dO_i)'), ('tl.trans(dO_i), input_precision="ieee")', 'tl.trans(dO_i))'),
                (' Q_i, input_precision="ieee")', ' Q_i)')),
        Mistake("heads_interleaved", "the query heads of a group were taken to lie H_kv apart",
                "which query heads read key head h_kv: the `group` in a row from h_kv · group", ("h = h_kv * group + g", "h = g * tl.num_programs(1) + h_kv")),
        Mistake("last_head_wins", "each query head replaced the sums of the one before",
                "dK_j and dV_j: 0 once, before the first head, and every head adds to them",
                ("h = h_kv * group + g", "h = h_kv * group + g\n        dK_j, dV_j = dK_j * 0, dV_j * 0")),
        Mistake("no_guard_L_D", "L and D were loaded for rows beyond N_q: without a guard, or with one that lets them through",
                "the masks of the loads of L and D: rows < N_q", ("rows * stride_Ln, mask=rows < N_q, other=0.0)", "rows * stride_Ln)"),
                ("rows * stride_Dn, mask=rows < N_q, other=0.0)", "rows * stride_Dn)"), also=[[
                       ("rows * stride_Ln, mask=rows < N_q, other=0.0)", "rows * stride_Ln)"),
                       ("rows * stride_Dn, mask=rows < N_q, other=0.0)", "rows * stride_Dn)"), (P_T, "tl.where(rows < N_q, tl.exp(S_T - L_i), 0.0)")]]),
        Mistake("L_along_keys", "L was subtracted along the wrong axis", "L_i has a number for each query: queries are the columns of S_T, the rows of S",
                (P_T, "tl.exp(S_T - L_i[:, None])")),
        Mistake("D_along_keys", "D was subtracted along the wrong axis", "D_i has a number for each query: queries are the columns of S_T, the rows of S",
                (DS, "P_T * (dP_T - D_i[:, None])")),
        Mistake("L_and_D_along_keys", "L and D were subtracted along the wrong axis",
                "L_i and D_i have a number for each query: queries are the columns of S_T, the rows of S", (P_T, "tl.exp(S_T - L_i[:, None])"),
                (DS, "P_T * (dP_T - D_i[:, None])")),
        Mistake("mask_missing", "the mask was missing in the recomputation, or hid nothing: hidden keys got weight",
                "with causal, the weights of keys after n + N_k − N_q: 0", (f"tl.where({VISIBLE}, P_T, 0.0)", "P_T")),
        Mistake("mask_top_left", "the mask lined up the first query with the first key", "N_k − N_q: the last query sees all keys",
                (VISIBLE, "keys[:, None] <= rows")),
        Mistake("scale_missing_in_dK", "dK was not multiplied by scale", "S = scale · Q Kᵀ: the factor stands in its gradient", (DK, DK.replace("scale * ", ""))),
        Mistake("scale_twice", "dK held the scale twice", "each place where the scale enters dK: once, in dS, in Q or after the product",
                (DK, DK.replace("scale * ", "scale * scale * "))),
        Mistake("K_for_V", "dP was made from K, not from V", "O = P V: the factor next to P is V", ("tl.dot(V_j, tl.trans(dO_i)", "tl.dot(K_j, tl.trans(dO_i)")),
        Mistake("int32_offset", "row numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
                "rows: `.to(tl.int64)` before they meet a stride", ("tl.arange(0, B_r).to(tl.int64)", "tl.arange(0, B_r)")),
        Mistake("D_added", "D was added, not subtracted", "the sign of D: dS = P∘(dP − D)", (DS, "P_T * (dP_T + D_i)")),
        Mistake("loop_starts_without_shift", "the query blocks started as if N_q and N_k were the same: the shift N_k − N_q was left out",
                "the first query block: key k is seen by the queries from k − (N_k − N_q) on", ("for i in range(0, tl.cdiv(N_q, B_r)):",
                 "first = 0\n        if causal:\n            first = tl.program_id(0) * B_c // B_r\n        for i in range(first, tl.cdiv(N_q, B_r)):")),
        ],
    hints=[
        "Two loops: over the query heads h = h_kv · group + g, and over the query blocks i of each. dK_j and dV_j live through both.",
        "P_T = tl.exp(S_T - L_i): L_i is broadcast along the rows, as it should be, since queries lie along the columns.",
        "Rows beyond N_q are loaded as 0: then dO_i, D_i and Q_i are 0 there, and whatever P_T is, nothing is added.",
        "Each key head with one query head is right. How many query heads read key head h_kv, which are they, and where do the sums start at 0?",
        "Only a short last query block fails: rows beyond N_q come as 0 from a masked load. What is exp(0 − L) of such a row, and does anything take it away again?",
        "Without causal all is right. S_T has keys in its rows and queries in its columns: which of the two gets [:, None] in the comparison, and where is N_k − N_q?",
        "Only columns that are apart fail: which addresses leave out a stride?",
    ],
)
