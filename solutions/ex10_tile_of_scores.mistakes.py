import torch

from flashlab_course.check import compiled
from flashlab_course.check.cases import Mistake, case_of, normal, spread

K_MASK, S_MASK = "mask=keys < N_k, other=0.0", "mask=(rows < N_q) & (keys < N_k)"
GRID, DOWN, ACROSS = "(triton.cdiv(len(Q), B_r), triton.cdiv(len(K), B_c))", "cdiv(len(Q), B_r)", "cdiv(len(K), B_c)"
S_AT, SCALED = "rows * stride_Sn + keys * stride_Sm", 'input_precision="ieee") * scale'
K_OF_N_q, Q_PLAIN = "mask=keys < N_q, other=0.0", ("cols * stride_Qd", "cols")

outputs = [("S", "query", "key")]
truth = lambda Q, K, S, scale, B_r, B_c: Q.double() @ K.double().T * scale
reads, writes = ("Q", "K"), ("S",)
after = [compiled.narrow("int32_offset")]
seconds = 6
traffic = lambda Q, K, S, scale, B_r, B_c: {"Q": (-(-len(K) // B_c) * Q.numel(), 0),
                                            "K": (-(-len(Q) // B_r) * K.numel(), 0), "S": (0, S.numel())}
case = case_of(lambda N_q, N_k, d=16, B_r=16, B_c=16, *, scale=0.5, seed, dtype=torch.float32: {
    "Q": normal(N_q, d, seed=seed, dtype=dtype), "K": normal(N_k, d, seed=seed + 1, dtype=dtype),
    "S": torch.zeros(N_q, N_k), "scale": scale, "B_r": B_r, "B_c": B_c})
cases = [case("one tile", 16, 16, seed=900),
         case("two query blocks", 32, 16, seed=902),
         case("two key blocks", 16, 32, seed=904),
         case("a short last query block", 21, 16, seed=906),
         case("a short last key block", 16, 25, seed=908),
         case("all at once", 37, 41, 64, 32, 16, scale=0.25, seed=910),
         case("a scale other than a power of two, 16-bit inputs", 16, 32, scale=0.3, seed=912, dtype=torch.float16),
         case("a negative scale", 16, 16, scale=-0.3, seed=918),
         case("a scale of 0", 16, 16, scale=0.0, seed=920),
         case("one query, one key", 1, 1, seed=914),
         spread(case("columns that are apart", 16, 16, seed=916))]
mistakes = [
    Mistake("tf32", "tl.dot was called without input_precision, so a GPU rounds float32 to TF32",
            "the arguments of tl.dot: the interpreter does not show the rounding", (', input_precision="ieee"', "")),
    Mistake("grid_floor", "the grid was rounded down: short last tiles got no program", "the grid's rounding", (GRID,
             "(max(1, len(Q) // B_r), max(1, len(K) // B_c))"), also=[[(GRID, "(len(Q) // B_r, len(K) // B_c)")]]),
    Mistake("grid_swapped", "the grid's two numbers were swapped: key blocks first",
            "the order of the grid, and of program_id(0) and (1)", (GRID, f"(triton.{ACROSS}, triton.{DOWN})")),
    Mistake("grid_of_a_square", "both numbers of the grid were made from one length, as if S were square",
            "the sizes of S", (ACROSS, "cdiv(len(Q), B_c)"), also=[[(DOWN, "cdiv(len(K), B_r)")]]),
    Mistake("tile_returned", "tiles that stick out were left out whole",
            "the guard: it is for rows and keys, not for a tile", ("cols = tl.arange(0, d)[None, :]",
             "…\n    if tl.max(rows) >= N_q or (tl.program_id(1) + 1) * B_c > N_k:\n        return")),
    Mistake("B_r_for_B_c", "key blocks were taken to be B_r apart", "where the second key block begins",
            ("tl.program_id(1).to(tl.int64) * B_c", "tl.program_id(1).to(tl.int64) * B_r")),
    Mistake("store_guards_rows_only", "the store was guarded for rows but not for keys", "the mask of the store",
            (S_MASK, "mask=rows < N_q")),
    Mistake("keys_against_N_q", "keys were compared with N_q where K is loaded", "the number of keys", (K_MASK,
             K_OF_N_q)),
    Mistake("keys_held_against_N_q", "keys were compared with N_q in the load and in the store", "the number of keys",
            (K_MASK, K_OF_N_q), (S_MASK, S_MASK.replace("N_k", "N_q")), stray=True),
    Mistake("row_major", "S was addressed by row · width + column", "addresses with a size in place of a stride", (S_AT,
             "rows * N_k + keys")),
    Mistake("stored_transposed", "S was stored transposed", "what each stride of S passes over", (S_AT,
             "rows * stride_Sm + keys * stride_Sn")),
    Mistake("scale_missing", "the scores were not multiplied by scale", "how the scores are computed", (SCALED,
             SCALED[:-8])),
    Mistake("scale_in_16_bits", "Q was multiplied by scale and rounded to 16 bits before the product",
            "what scale multiplies", ("tl.dot(Q_i,", "tl.dot((Q_i * scale).to(Q_i.dtype),"), (SCALED, SCALED[:-8])),
    Mistake("int32_offset", "row or key numbers met strides in 32 bits, which overflows beyond 2³¹ elements",
            "their dtype", *((f"tl.program_id({n}).to(tl.int64)", f"tl.program_id({n})") for n in (0, 1))),
]
hints = ["Write a single whole tile first. Rows go down, columns across: which of them gets [:, None]?",
         "The last tiles may stick out. Which rows and keys must neither be loaded nor stored?",
         "Keys are the rows of K but the columns of S: their numbers need another shape for the store."]
