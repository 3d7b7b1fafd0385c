import torch

from flashlab import oracle
from flashlab_course.check import compiled
from flashlab_course.check.cases import EDGE, LARGE, LOOSE, L_and_D, Mistake, case_of, drawn, spread

P_T, VISIBLE = "tl.exp(S_T - L_i)", "keys[:, None] <= rows + N_k - N_q"
DK, DS = "dK_j += scale * tl.dot(dS_T.to(Q_i.dtype), Q_i", "P_T * (dP_T - D_i)"
IEEE, BLOCKS, HEAD = ', input_precision="ieee")', "for i in range(0, tl.cdiv(N_q, B_r)):", "h = h_kv * group + g"
L_GUARD, D_GUARD = ((f"rows * stride_{T}n, mask=rows < N_q, other=0.0)", f"rows * stride_{T}n)") for T in "LD")
L_TURNED, D_TURNED = (P_T, "tl.exp(S_T - L_i[:, None])"), (DS, "P_T * (dP_T - D_i[:, None])")

outputs = [("dK", "head", "key", "column"), ("dV", "head", "key", "column")]
truth = lambda Q, K, V, dO, causal, scale, **rest: oracle.gradients(Q, K, V, dO, causal=causal, scale=scale)[1:]
reads, writes = ("Q", "K", "V", "dO", "L", "D"), ("dK", "dV")
after = [compiled.narrow("int32_offset")]
seconds = 6
fewer = lambda causal, **rest: causal           # hidden query blocks may be left out
most = lambda Q, B_r, B_c, **rest: dict(Q=B_r * Q.shape[2], dO=B_r * Q.shape[2], K=B_c * Q.shape[2], V=B_c * Q.shape[2])
features = {"more than one query head for each key head": lambda group: group > 1,
            "more than one key head": lambda H_kv: H_kv > 1}


def call(fn, Q, K, V, dO, L, D, dK, dV, causal, scale, B_r, B_c):
    (H_q, N_q, d), (H_kv, N_k, _), tensors = Q.shape, K.shape, (Q, K, V, dO, L, D, dK, dV)
    strides = [step for T in tensors for step in T.stride()]
    fn[(-(-N_k // B_c), H_kv)](*tensors, *strides, scale, N_q, N_k, H_q // H_kv, d, causal, B_r, B_c)


def traffic(K, V, dK, dV, causal, scale, B_r, B_c, **of_queries):
    """K and V once, the query blocks once for each key block."""
    T_c = -(-K.shape[1] // B_c)
    return {name: (T_c * T.numel(), 0) for name, T in of_queries.items()} | {
        "K": (K.numel(), 0), "V": (V.numel(), 0), "dK": (0, dK.numel()), "dV": (0, dV.numel())}


@case_of
def case(N_q, N_k, H_kv=1, group=1, d=16, B_r=16, B_c=16, *, causal=False, scale=0.25, small=1.0, **how):
    """small: what K is multiplied by, and what dO is multiplied by that much less."""
    Q, K, V, dO = drawn(N_q, N_k, d, H=(H_kv * group,), H_kv=(H_kv,), scale=scale, **how)
    K, dO = K * small, dO * min(1.0, 300 * small)
    L, D = L_and_D(Q, K, V, dO, causal, scale)
    return {"Q": Q, "K": K, "V": V, "dO": dO, "L": L, "D": D, "dK": torch.zeros_like(K), "dV": torch.zeros_like(V),
            "causal": causal, "scale": scale, "B_r": B_r, "B_c": B_c}


cases = [case("one tile", 16, 16, scale=1.0, seed=1200),
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
         case("scores in the hundreds", 16, 32, scale=-0.25, factor=LARGE, loose=20 * LOOSE, seed=1244),
         case("causal, scores in the hundreds", 32, 32, causal=True, factor=LARGE, loose=20 * LOOSE, seed=1260),
         case("causal, scores around −997", 16, 16, causal=True, below=EDGE, loose=20 * LOOSE, seed=1264),
         case("causal, a negative scale", 16, 18, causal=True, scale=-0.3, seed=1268),
         case("causal, a scale of 0", 16, 18, causal=True, scale=0.0, seed=1276),
         case("16-bit inputs", 32, 16, dtype=torch.float16, seed=1248),
         case("16-bit inputs, small keys and a large scale", 16, 16, dtype=torch.float16, scale=3e4, small=3e-4,
              seed=1275),
         case("16-bit inputs, many query blocks", 512, 16, dtype=torch.float16, rising=True, units=2, seed=1272),
         case("causal, more keys, whole blocks", 16, 48, causal=True, seed=1252),
         case("one query, one key", 1, 1, seed=1256),
         spread(case("columns that are apart", 16, 16, seed=1260)),
         case("causal, wide key blocks", 40, 48, d=64, causal=True, B_c=32, seed=1280)]
mistakes = [
    Mistake("tf32", 'tl.dot was called without input_precision="ieee": a GPU rounds float32 to TF32 then',
            "every tl.dot",
            *((f"{factor}{IEEE}", f"{factor})") for factor in ("tl.trans(Q_i)", " dO_i", "tl.trans(dO_i)", " Q_i"))),
    Mistake("heads_interleaved", "the query heads of a group were taken to lie H_kv apart",
            "which query heads read key head h_kv", (HEAD, "h = g * tl.num_programs(1) + h_kv")),
    Mistake("heads_overlap", "the first query head of key head h_kv was taken to be h_kv",
            "which query heads read key head h_kv", (HEAD, "h = h_kv + g")),
    Mistake("last_head_wins", "each query head replaced the sums of the one before",
            "dK_j and dV_j: 0 once, before the first head", (HEAD, "…\n        dK_j, dV_j = dK_j * 0, dV_j * 0")),
    Mistake("no_guard_L_D", "L and D were loaded for rows beyond N_q", "the masks of these loads", L_GUARD, D_GUARD,
            also=[[L_GUARD, D_GUARD, (P_T, "tl.where(rows < N_q, tl.exp(S_T - L_i), 0.0)")]]),
    Mistake("L_along_keys", "L was subtracted along the wrong axis",
            "L_i has a number for each query: the columns of S_T", L_TURNED),
    Mistake("D_along_keys", "D was subtracted along the wrong axis",
            "D_i has a number for each query: the columns of S_T", D_TURNED),
    Mistake("L_and_D_along_keys", "L and D were subtracted along the wrong axis",
            "their numbers belong to queries: the columns of S_T", L_TURNED, D_TURNED),
    Mistake("mask_missing", "the mask was missing in the recomputation, or hid nothing: hidden keys got weight",
            "with causal, the weights of keys after n + N_k − N_q: 0", (f"tl.where({VISIBLE}, P_T, 0.0)", "P_T")),
    Mistake("mask_top_left", "the mask lined up the first query with the first key",
            "N_k − N_q: the last query sees all keys", (VISIBLE, "keys[:, None] <= rows")),
    Mistake("scale_missing_in_dK", "dK was not multiplied by scale",
            "S = scale · Q Kᵀ: the factor stands in its gradient", (DK, DK.replace("scale * ", ""))),
    Mistake("scale_twice", "dK held the scale twice", "each place where the scale enters dK", (DK,
             DK.replace("scale", "scale * scale"))),
    Mistake("K_for_V", "dP was made from K, not from V", "O = P V: the factor next to P is V",
            ("tl.dot(V_j, tl.trans(dO_i)", "tl.dot(K_j, tl.trans(dO_i)")),
    Mistake("int32_offset", "row numbers were multiplied by strides in 32 bits, which overflows beyond 2³¹ elements",
            "rows: `.to(tl.int64)` before they meet a stride", ("tl.arange(0, B_r).to(tl.int64)", "tl.arange(0, B_r)")),
    Mistake("D_added", "D was added, not subtracted", "the sign of D: dS = P∘(dP − D)", (DS, "P_T * (dP_T + D_i)")),
    Mistake("loop_starts_without_shift", "the query blocks started as if N_q and N_k were the same",
            "which query sees key k", (BLOCKS,
             BLOCKS.replace("(0", "(tl.program_id(0) * B_c // B_r if causal else 0"))),
]
hints = ["Two loops: over the query heads h = h_kv · group + g, and over the query blocks i of each. dK_j and dV_j "
         "live through both.",
         "If only a short last query block fails: rows beyond N_q come as 0 from a masked load. What is exp(0 − L) of "
         "such a row, and does anything take it away again?",
         "If only the causal cases fail: S_T has keys in its rows and queries in its columns: which of the two gets "
         "[:, None] in the comparison, and where is N_k − N_q?"]
