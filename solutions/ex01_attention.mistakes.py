from flashlab import oracle
from flashlab_course.check.cases import EDGE, LARGE, Mistake, attention_case, in_float64

SCORES, SOFTMAX, DIAGONAL = "S = Q @ K.T * scale", "P = torch.softmax(S, dim=-1)", ".triu(N_k - N_q + 1)"
HIDE, DEFAULT = "S.masked_fill(hidden, -inf)", "Q.shape[-1] ** -0.5 if scale is None else scale"

outputs = [("O", "query", "column")]
truth = lambda Q, K, V, causal=False, scale=None: oracle.attention(Q, K, V, causal=causal, scale=scale)[0]
without = ("attention",)
cases = [attention_case("one query, three keys", 1, 3, 4, 5, seed=1),
         attention_case("square", 4, 4, 4, seed=2),
         attention_case("d_v ≠ d", 5, 3, 9, 2, seed=4),
         attention_case("causal, square", 4, 4, 4, causal=True, seed=5),
         attention_case("causal, scores in the hundreds", 5, 5, 4, causal=True, factor=LARGE, seed=6),
         attention_case("causal, fewer queries than keys", 2, 5, 3, causal=True, seed=7),
         attention_case("causal, more queries than keys", 5, 3, 3, causal=True, seed=8),
         attention_case("causal, one query fewer than keys", 3, 4, 3, causal=True, seed=41),
         attention_case("a scale of 0", 3, 4, 4, scale=0.0, seed=31),
         attention_case("causal, scores around −997", 4, 4, 4, causal=True, below=EDGE, seed=40),
         attention_case("causal, a scale of 0", 3, 3, 4, scale=0.0, causal=True, seed=36),
         attention_case("causal, a negative scale", 4, 4, 3, scale=-0.7, causal=True, seed=37),
         attention_case("a negative scale, scores in the hundreds", 4, 5, 4, scale=-0.5, factor=LARGE, seed=38),
         in_float64(attention_case("two keys", 1, 2, 4, seed=35))]
mistakes = [
    Mistake("softmax_over_queries", "the softmax ran over the queries, not over the keys",
            "the dimension of the softmax", (SOFTMAX, "P = torch.softmax(S, dim=0)")),
    Mistake("scale_missing", "the scores were not multiplied by scale", "how S is computed", (SCORES, "S = Q @ K.T")),
    Mistake("scale_on_top", "a given scale was multiplied by 1/√d as well", "what a given scale replaces", (DEFAULT,
             "Q.shape[-1] ** -0.5 * (1 if scale is None else scale)")),
    Mistake("scale_of_d_v", "the default scale was 1/√d_v, not 1/√d", "the tensor from which d is taken", (DEFAULT,
             "V.shape[-1] ** -0.5 if scale is None else scale")),
    Mistake("scale_zero_replaced", "a scale of 0 was replaced by the default", "how a missing scale is recognized",
            (DEFAULT, "scale or Q.shape[-1] ** -0.5")),
    Mistake("mask_missing", "nothing was masked, though causal was True", "what happens to S where causal is True",
            (f"S = {HIDE}", "pass")),
    Mistake("mask_hides_own_key", "the mask hid each query's own key as well", "the diagonal the mask starts from",
            (DIAGONAL, ".triu(N_k - N_q)")),
    Mistake("mask_inverted", "the mask hid the keys that should be seen and showed the others",
            "whether your mask means seen or hidden", (HIDE, "S.masked_fill(~hidden, -inf)")),
    Mistake("mask_top_left", "the mask lined up the first query with the first key",
            "the diagonal of the mask where N_q ≠ N_k", (DIAGONAL, ".triu(1)")),
    Mistake("mask_shift_never_negative", "the mask's shift was cut off at 0, though it can be negative",
            "the mask where there are more queries than keys", (DIAGONAL, ".triu(max(N_k - N_q, 0) + 1)")),
    Mistake("mask_after_softmax", "the mask came after the softmax: the weights no longer sum to 1",
            "mask or softmax first", (f"S = {HIDE}", "pass"), (SOFTMAX,
             "…\n    P = P.masked_fill(hidden, 0) if causal else P")),
    Mistake("mask_zero_score", "hidden scores were set to 0, which still has the weight exp(0) = 1",
            "the value of a hidden score", (HIDE, "S.masked_fill(hidden, 0.0)")),
    Mistake("mask_minus_1e6", "a query that sees no key got the mean of all values",
            "rows in which every key is hidden", (HIDE, "S.masked_fill(hidden, -1e6)")),
    Mistake("empty_rows_nan", "a query that sees no key got 0/0", "rows in which every key is hidden",
            ("P = P.masked_fill((S == -inf).all(-1, keepdim=True), 0)", "pass")),
    Mistake("mask_before_scale", "scores were hidden before they were scaled: scale can be 0 or negative",
            "what −inf · scale is", (SCORES, "S = Q @ K.T"), (SOFTMAX, "P = torch.softmax(S * scale, dim=-1)")),
]
hints = ["Which keys does the last query see? And the one before it? That gives the diagonal the mask starts from.",
         "torch.ones(N_q, N_k, dtype=torch.bool).triu(n) is True from the n-th diagonal on, and n may be negative.",
         "A row that is −inf throughout becomes 0/0 = NaN in the softmax. Fill those rows of P with 0."]
