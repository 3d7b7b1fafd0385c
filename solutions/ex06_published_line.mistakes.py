from flashlab import oracle
from flashlab_course.check.cases import BELOW, EDGE, LARGE, Mistake, attention_case, in_float64, no_scores

# as published
LINE_3 = ("keys > queries", "queries > keys")
LINE_6 = ("l * torch.exp(m - m_new) + P.sum(-1)", "l + torch.exp(m - m_new) + P.sum(-1)")
LINE_7 = ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "1 / torch.exp(m - m_new)[:, None] * O + P @ V_j")
LINE_8 = ("m = m_new", "O = O / l[:, None]\n        m = m_new")
NO_FACTOR_6, NO_FACTOR_7 = (LINE_6[0], "l + P.sum(-1)"), (LINE_7[0], "O + P @ V_j")
HIDE = "S = S.masked_fill(keys > queries, -inf)"

outputs = [("O", "query", "column"), ("L", "query")]
truth = lambda Q, K, V, B_c, scale: oracle.attention(Q, K, V, causal=True, scale=scale)
without = ("attention",)
forbid = no_scores


def case(name, N, d, d_v=None, *, B_c, scale=0.4, **how):
    return attention_case(name, N, N, d, d_v, B_c=B_c, scale=scale, **how)


cases = [case("one query, one key", 1, 3, 4, B_c=1, scale=1.0),
         case("one block", 5, 3, 4, B_c=5, seed=1),
         case("two blocks", 6, 4, 5, B_c=3, seed=6),
         case("a short last block", 8, 3, B_c=3, seed=4),
         case("many blocks", 33, 4, B_c=3, scale=0.5, seed=15),
         case("scores in the hundreds", 13, 4, B_c=2, scale=-0.5, factor=LARGE, seed=5),
         case("scores far below 0", 6, 4, B_c=2, scale=0.5, below=BELOW, seed=8),
         case("one block for more keys than there are", 3, 4, B_c=8, seed=10),
         case("scores around −997", 6, 4, B_c=2, scale=0.5, below=EDGE, seed=14),
         case("a scale of 0", 4, 3, B_c=2, scale=0.0, seed=12),
         in_float64(case("a single key", 1, 4, B_c=2, scale=0.5, exact=True, seed=11))]
mistakes = [
    Mistake("as_published", "all four wrong lines are still as published", "lines 3, 6, 7 and 8", LINE_3, LINE_6,
            LINE_7, LINE_8),
    Mistake("line_3", "line 3 is as published: it hides the past and shows the future",
            "line 3: which keys query 0 may see", LINE_3),
    Mistake("line_3_own_key", "line 3 hides each query's own key too", "line 3: which keys query 0 may see",
            ("keys > queries", "keys >= queries")),
    Mistake("line_3_in_block", "line 3 counts keys from the start of their block", "line 3: key numbers in block j",
            ("torch.arange(start, start + len(K_j))", "torch.arange(len(K_j))")),
    Mistake("lines_3_and_4_swapped", "the maximum was taken before the keys were hidden", "the order of lines 3 and 4",
            (HIDE, ""), ("m_new = torch.maximum(m, S.amax(-1))", f"…\n        {HIDE}")),
    Mistake("line_6", "line 6 is as published: it adds exp(m − m_new) to l", "line 6: how a sum changes its unit",
            LINE_6),
    Mistake("line_6_factor_dropped", "l was not rescaled when the maximum grew", "line 6, and which maximum m still is",
            NO_FACTOR_6),
    Mistake("line_7", "line 7 is as published: its factor is inverted", "line 7: whether the old O grows or shrinks",
            LINE_7),
    Mistake("lines_6_and_7_without_factor", "neither l nor O was rescaled when the maximum grew",
            "lines 6 and 7, and where m becomes m_new", NO_FACTOR_6, NO_FACTOR_7),
    Mistake("line_8", "line 8 is still there: O is divided in every step and again at the end", "lines 8 and 10",
            LINE_8),
    Mistake("line_10_removed", "O was divided in every step and not at the end", "which of lines 8 and 10 has to go",
            LINE_8, ("O = O / l[:, None]\n    return", "return")),
]
hints = ["Line 3: may query 0 see key 1? May query 1 see key 0?",
         "Lines 6 and 7 change the unit of a sum from exp(m) to exp(m_new). Both need the same factor.",
         "Lines 8 and 10 both divide. O in line 7 is a sum of undivided terms: which of the two has to go?"]
