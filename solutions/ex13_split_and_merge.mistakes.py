import torch

from flashlab import oracle
from flashlab.memory import KiB
from flashlab_course.check.cases import BELOW, LARGE, Mistake, attention_case

WEIGHT, ADD = "torch.exp(L_s[s] - L_all)", "O_all + weight[:, None] * O_s"
L_PARTS, NEW_O = "load(L_part, slice(None)).view(splits, N_q)", "alpha[:, None] * O_i + P_ij @ V_j"
ALL, LOAD_O = "torch.logsumexp(L_s, dim=0)", "load(O_part, slice(s * N_q, (s + 1) * N_q))"
STORE_L, LOAD_Q = "store(L, slice(None), L_all)", "Q_i = load(Q, slice(None))"

outputs = [("O", "query", "column"), ("L", "query"), ("O_part", "row", "column"), ("L_part", "row")]
sram_bytes = lambda Q, **rest: 64 * KiB
fewer = lambda cuts, **rest: len({0, *cuts}) <= len(cuts) or len(rest["K"]) in cuts    # an empty chunk need not read Q
most = lambda Q, K, V, cuts, B_c, scale: {"K": B_c * K.shape[1], "V": B_c * V.shape[1]}
features = {"more than one chunk": lambda cuts: cuts, "an empty chunk": lambda cuts, N_k: 0 in cuts or N_k in cuts}
case = attention_case                          # cuts: the keys at which the second and each later chunk begins


def chunks_of(N_k, cuts):
    return [slice(a, b) for a, b in zip((0, *cuts), (*cuts, N_k), strict=True)]


def call(fn, Q, K, V, cuts, B_c, scale):
    chunks = chunks_of(len(K), cuts)
    O, L = torch.empty(len(Q), V.shape[-1], dtype=Q.dtype), torch.empty(len(Q), dtype=Q.dtype)
    O_part, L_part = (T.new_full((len(chunks) * len(Q), *T.shape[1:]), float("nan")) for T in (O, L))
    fn(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale)
    return O, L, O_part, L_part


def truth(Q, K, V, cuts, B_c, scale):
    """Of all keys, and of each chunk's."""
    parts = [oracle.attention(Q, K[chunk], V[chunk], scale=scale) for chunk in chunks_of(len(K), cuts)]
    return *oracle.attention(Q, K, V, scale=scale), *(torch.cat(part) for part in zip(*parts, strict=True))


cases = [case("one chunk", 1, 3, cuts=(), B_c=3, scale=1.0),
         case("two chunks, three queries", 3, 6, cuts=(3,), B_c=3, scale=0.5, seed=2),
         case("two key blocks a chunk", 1, 8, cuts=(4,), B_c=2, scale=0.7, seed=3),
         case("chunks of different size", 2, 9, cuts=(2, 7), B_c=2, scale=-0.6, seed=4),
         case("d_v ≠ d", 3, 8, 4, 2, cuts=(3, 5), B_c=2, scale=0.5, seed=5),
         case("an empty last chunk", 2, 5, cuts=(3, 5), B_c=2, scale=0.5, seed=7),
         case("an empty first chunk", 2, 5, cuts=(0, 3), B_c=2, scale=0.5, seed=8),
         case("a scale of 0", 2, 6, cuts=(2,), B_c=2, scale=0.0, seed=10),
         case("scores in the hundreds", 2, 8, 4, cuts=(3, 6), B_c=2, scale=-0.5, factor=LARGE, seed=11),
         case("scores up to 500", 2, 6, 4, cuts=(3,), B_c=3, scale=0.5, factor=250, seed=12),
         case("scores far below 0", 2, 6, 4, cuts=(2, 4), B_c=2, scale=0.5, below=BELOW, seed=13),
         case("an empty chunk, scores far below 0", 2, 5, 4, cuts=(0, 3), B_c=2, scale=0.5, below=BELOW, seed=15),
         case("one key in all", 1, 1, 4, cuts=(), B_c=2, scale=0.5, exact=True, seed=14)]
mistakes = [
    Mistake("averaged", "every chunk got the same weight", "how much of the softmax belongs to each chunk", (ADD,
             "O_all + O_s / splits")),
    Mistake("not_normalised", "the weights were exp(L_s), which do not add up to 1", "what the weights add up to",
            (WEIGHT, "torch.exp(L_s[s])")),
    Mistake("unshifted", "exp(L_s) was computed as it is, which overflows or becomes 0", "large and low scores", (ALL,
             "torch.log(torch.exp(L_s).sum(0))"), (WEIGHT, "torch.exp(L_s[s]) / torch.exp(L_s).sum(0)"),
            also=[[(ALL, "torch.log(torch.exp(L_s).sum(0))")]]),
    Mistake("parts_undivided", "O_part was stored without the division by l_i", "what O_part is for a single chunk",
            ("O_i / l_safe[:, None]", "O_i")),
    Mistake("sum_of_logs", "L was the sum of the chunks' L", "how two logarithms of sums make one", (STORE_L,
             "store(L, slice(None), L_s.sum(0))")),
    Mistake("chunks_and_queries_swapped", "L_part was read as (N_q, splits)", "the order of the rows in L_part",
            (".view(splits, N_q)", ".view(N_q, splits).T")),
    Mistake("queries_before_chunks", "O_part and L_part were read as if one query's rows lay side by side",
            "the order of these rows", (L_PARTS,
             f"{L_PARTS[:-13]}(N_q, splits).T\n    O_parts = load(O_part, slice(None)).view(N_q, splits, -1)"), (LOAD_O,
             "O_parts[:, s]")),
    Mistake("no_rescale_O", "O_i was not rescaled when the maximum grew", "the sum of the earlier key blocks", (NEW_O,
             "O_i + P_ij @ V_j")),
    Mistake("maximum_before_scale", "the maximum was taken before the scores were scaled", "large scores",
            ("S_ij.amax(-1)", "(Q_i @ K_j.T).amax(-1)"), also=[[("S_ij.amax(-1)", "(Q_i @ K_j.T).amax(-1) * scale")]]),
    Mistake("empty_chunk_stores_nothing", "an empty chunk stored nothing", "what the merge reads there", (LOAD_Q,
             f"if not blocks:\n        return\n    {LOAD_Q}")),
]
hints = ["The first kernel is chapter 06's loop over `blocks`. Where do its rows of O_part and L_part begin?",
         "exp(L_s) is the sum of the exponentials of chunk s. What is it for all the keys?",
         "For an empty chunk l_i is 0. What are 0 / 0 and 0 · NaN?"]
