import torch

from flashlab import oracle
from flashlab.memory import KiB, kernel, tiles
from flashlab_course.check.cases import BELOW, LARGE, Mistake, attention_case, epsilon, in_float64

MAXIMUM, NEW_O = "torch.maximum(m_i, S_ij.amax(-1))", "alpha[:, None] * O_i + P_ij @ V_j"
NEW_L = "alpha * l_i + P_ij.sum(-1)"
NO_RESCALE_O, NO_RESCALE_L = (NEW_O, "O_i + P_ij @ V_j"), (NEW_L, "l_i + P_ij.sum(-1)")

outputs = [("O", "query", "column"), ("L", "query")]
# room for the tiles three times over, none for a row of all keys
sram_bytes = lambda Q, K, V, B_r, B_c, scale: 64 * KiB if len(K) <= 40 else (
    4 * (8 * max(B_r, B_c) * max(Q.shape[-1], V.shape[-1]) + 5 * B_r * B_c + 64))
truth = lambda Q, K, V, B_r, B_c, scale: oracle.attention(Q, K, V, scale=scale)
most = lambda Q, K, V, B_r, B_c, scale: {"K": B_c * K.shape[1], "V": B_c * V.shape[1]}


def call(fn, Q, K, V, B_r, B_c, scale):
    O = torch.empty(len(Q), V.shape[-1], dtype=Q.dtype)
    L = torch.empty(len(Q), dtype=torch.float64 if Q.dtype == torch.float64 else torch.float32)
    with kernel("fa2_program", Q=Q, K=K, V=V, O=O, L=L):
        for rows in tiles(len(Q), B_r):
            fn(Q, K, V, O, L, rows, B_c, scale)
    return O, L


cases = [attention_case("one key block", 3, 5, 4, 6, B_r=3, B_c=5, scale=1.0),
         attention_case("two key blocks", 3, 8, 5, 6, B_r=3, B_c=4, scale=1.0, seed=8),
         attention_case("three key blocks, three query blocks", 6, 9, 4, 5, B_r=2, B_c=3, scale=0.5, seed=3),
         attention_case("short last blocks", 5, 7, 4, 3, B_r=3, B_c=2, scale=0.6, seed=4),
         attention_case("square tiles, scores in the hundreds", 4, 12, 4, B_r=2, B_c=4, scale=-0.5, factor=LARGE,
                        seed=5),
         attention_case("16-bit inputs", 4, 40, 8, B_r=4, B_c=8, scale=0.35, dtype=torch.float16, seed=6),
         attention_case("many keys, little SRAM", 4, 96, 4, B_r=4, B_c=4, scale=0.5, seed=7),
         attention_case("scores up to 500", 4, 6, 4, B_r=2, B_c=3, scale=0.5, factor=250, seed=10),
         attention_case("scores far below 0", 3, 6, 4, B_r=2, B_c=2, scale=0.5, below=BELOW, seed=9),
         attention_case("16-bit inputs, many keys", 2, 512, 4, B_r=2, B_c=16, scale=0.5, seed=14, dtype=torch.float16,
                        equal=True, units=2),
         attention_case("a scale of 0", 2, 6, 3, B_r=2, B_c=3, scale=0.0, seed=15),
         in_float64(attention_case("a single key", 1, 1, 4, B_r=2, B_c=2, scale=0.5, exact=True, seed=13))]
mistakes = [
    epsilon(("O_i / l_i[:, None]", "O_i / (l_i + ε)[:, None]")),
    Mistake("no_rescale_O", "O_i was not rescaled when the maximum grew; l_i was",
            "the sum of the earlier blocks, and the maximum it was made with", NO_RESCALE_O),
    Mistake("no_rescale_l", "l_i was not rescaled when the maximum grew; O_i was",
            "the sum of the earlier blocks, and the maximum it was made with", NO_RESCALE_L),
    Mistake("no_rescale", "neither O_i nor l_i was rescaled when the maximum grew",
            "the old sums, and whether m_i is still the old maximum there", NO_RESCALE_L, NO_RESCALE_O),
    Mistake("m_not_carried", "m_i was not set to m_new at the end of a step", "what a step leaves for the next one",
            ("m_i = m_new", "")),
    Mistake("m_of_this_tile", "m_new was the maximum of this tile alone", "m_new: it covers all keys so far", (MAXIMUM,
             "S_ij.amax(-1)")),
    Mistake("m_of_the_whole_tile", "one maximum was taken for all rows of the tile",
            "the dimension over which the maximum is taken", ("S_ij.amax(-1)", "S_ij.max()")),
    Mistake("m_starts_at_0", "m_i started at 0, which scores can fall below", "the value of m_i before the first block",
            ("torch.full((len(Q_i),), -inf, dtype=L.dtype)", "torch.zeros(len(Q_i), dtype=L.dtype)")),
    Mistake("alpha_along_columns", "exp(m_i − m_new) multiplied the columns of O_i, not its rows",
            "the shape of the factor next to O_i", ("alpha[:, None] * O_i", "alpha * O_i")),
    Mistake("divided_inside", "O_i was divided by l_i in every step", "where the division by l_i stands", (NEW_O,
             "(alpha[:, None] * O_i + P_ij @ V_j) / l_i[:, None]"), ("O_i / l_i[:, None])", "O_i)")),
    Mistake("not_divided", "O_i was stored without being divided by l_i", "the O that is stored",
            ("O_i / l_i[:, None])", "O_i)")),
    Mistake("scale_missing", "the scores were not multiplied by scale", "how the scores are computed",
            ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
    Mistake("tail_dropped", "the short last key block was never visited", "the number of key blocks",
            ("tiles(len(K), B_c)", "tiles(len(K) // B_c * B_c, B_c)")),
    Mistake("L_without_m", "L was log(l_i): the maximum was not added back", "what the terms of l_i were divided by",
            ("m_i + torch.log(l_i)", "torch.log(l_i)")),
    Mistake("L_base_2", "L was a logarithm to base 2", "the base of the logarithm in L", ("m_i + torch.log(l_i)",
             "(m_i + torch.log(l_i)) / 0.6931471805599453")),
    Mistake("O_in_16_bits", "O_i was kept in O's dtype, so that every step rounded it", "the dtype of the running sums",
            (NEW_O, "(…).to(O.dtype).to(L.dtype)")),
]
hints = ["Write a single key block first. Which of O_i, l_i and m_i are stale once a second one raises the maximum.",
         "O_i and l_i are sums of exp(score − m_i). Times exp(m_i − m_new) they are sums of exp(score − m_new).",
         "Start with O_i = 0, l_i = 0, m_i = −inf: then the factor is exp(−inf) = 0 in the first step."]
