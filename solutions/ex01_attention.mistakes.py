"""Cases and mistakes of ex01_attention."""

from flashlab import oracle
from flashlab.check.alternatives import Problem
from flashlab.check.cases import EDGE, EPSILONS, HUGE, attention_case, epsilon, in_float64
from flashlab.check.form import Exercise, Mistake, Output, Variant

EXERCISE = Exercise(
    function="attention",
    outputs=(Output("O", ("query", "column")),),
    truth=lambda Q, K, V, causal=False, scale=None: oracle.attention(Q, K, V, causal=causal, scale=scale)[0],
    without=("attention",),
    alternatives=Problem,
    cases=[
        attention_case("one query, three keys", 1, 3, 4, seed=1),
        attention_case("square", 4, 4, 4, seed=2),
        attention_case("a scale of its own", 3, 4, 4, scale=0.8, seed=3),
        attention_case("d_v ≠ d", 5, 3, 9, 2, seed=4),
        attention_case("causal, square", 4, 4, 4, causal=True, seed=5),
        attention_case("causal, scores in the hundreds", 5, 5, 4, causal=True, large=True, seed=6),
        attention_case("causal, fewer queries than keys", 2, 5, 3, causal=True, seed=7),
        attention_case("causal, more queries than keys", 5, 3, 3, causal=True, seed=8),
        attention_case("a scale of 0", 3, 4, 4, scale=0.0, seed=31),
        attention_case("one key", 3, 1, 4, seed=32),
        attention_case("scores up to 500", 4, 6, 4, factor=HUGE, seed=33),
        attention_case("causal, many keys before the first query", 3, 9, 4, 2, causal=True, seed=34),
        attention_case("causal, scores around −997", 4, 4, 4, causal=True, below=EDGE, seed=40),
        attention_case("causal, a scale of 0", 3, 3, 4, scale=0.0, causal=True, seed=36),
        attention_case("causal, a negative scale", 4, 4, 3, scale=-0.7, causal=True, seed=37),
        attention_case("a negative scale, scores in the hundreds", 4, 5, 4, scale=-0.5, large=True, seed=38),
        in_float64(attention_case("two keys", 1, 2, 4, seed=35)),
    ],
    mistakes=[
        epsilon(("P = torch.softmax(S, dim=-1)", "P = torch.exp(S - S.amax(-1, keepdim=True).clamp_min(-1e38))\n    P = P / (P.sum(-1, keepdim=True) + ε)")),
        epsilon(("Q.shape[-1] ** -0.5 if", "1 / (Q.shape[-1] ** 0.5 + ε) if"), sizes=EPSILONS[:4], name="epsilon_in_scale",
                what="a small number was added to √d", look="the scale: 1/√d needs no ε"),
        Mistake("scale_missing", "the scores were not scaled by 1/√d", "the line of S: Q Kᵀ · scale",
                ("S = Q @ K.T * scale", "S = Q @ K.T")),
        Mistake("scale_twice", "the scores were scaled twice", "each place where scale appears",
                ("S = Q @ K.T * scale", "S = Q @ K.T * scale * scale")),
        Mistake("scale_d", "the scores were divided by d where √d belongs", "the default scale: d ** -0.5",
                ("Q.shape[-1] ** -0.5 if scale is None", "Q.shape[-1] ** -1.0 if scale is None")),
        Mistake("scale_sqrt_d_multiplied", "the scores were multiplied by √d, not divided", "the sign of the exponent in the default scale",
                ("Q.shape[-1] ** -0.5 if scale is None", "Q.shape[-1] ** 0.5 if scale is None")),
        Mistake("scale_ignored", "the argument scale was ignored: 1/√d was used always", "what happens where scale is given",
                ("Q.shape[-1] ** -0.5 if scale is None else scale", "Q.shape[-1] ** -0.5")),
        Mistake("scale_of_N", "the default scale was 1/√N_q, not 1/√d", "the dimension whose size you take: d is the last one of Q",
                ("Q.shape[-1] ** -0.5 if scale is None", "Q.shape[0] ** -0.5 if scale is None")),
        Mistake("k_not_transposed", "Q was multiplied by K, not by its transpose", "the shapes: (N_q, d) times (d, N_k)",
                ("Q @ K.T * scale", "Q @ K * scale")),
        Mistake("softmax_over_queries", "the softmax ran over the queries (down the columns), not over the keys",
                "the dimension of the softmax: each row of P sums to 1", ("torch.softmax(S, dim=-1)", "torch.softmax(S, dim=0)")),
        Mistake("no_softmax", "no softmax was taken: S went straight into S V", "the line of P",
                ("torch.softmax(S, dim=-1)", "S.masked_fill(S == -inf, 0)")),
        Mistake("unshifted", "the softmax was exp(S) / sum without its maximum being subtracted, which overflows",
                "the exponent: float32 overflows at exp(89); torch.softmax subtracts the maximum",
                ("torch.softmax(S, dim=-1)", "torch.exp(S) / torch.exp(S).sum(-1, keepdim=True)")),
        Mistake("mask_missing", "nothing was masked, though causal was True", "the branch for causal",
                ("S = S.masked_fill(hidden, -inf)", "pass")),
        Mistake("mask_hides_own_key", "the mask also hid each query's own key: it was off by one",
                "the diagonal: query i does see key i", (".triu(N_k - N_q + 1)", ".triu(N_k - N_q)")),
        Mistake("mask_shows_next_key", "the mask let each query see one key of the future: it was off by one",
                "the diagonal: the first hidden key of query i is i + 1", (".triu(N_k - N_q + 1)", ".triu(N_k - N_q + 2)")),
        Mistake("mask_lower", "the mask hid the past and showed the future: lower triangle for upper",
                "which triangle is hidden: keys after the query, j > i", (".triu(N_k - N_q + 1)", ".tril(N_k - N_q - 1)")),
        Mistake("mask_inverted", "the mask hid what should be seen and showed what should be hidden",
                "what True means in masked_fill: this entry is replaced", ("S.masked_fill(hidden, -inf)", "S.masked_fill(~hidden, -inf)")),
        Mistake("mask_top_left", "the mask lined up the first query with the first key, not the last with the last",
                "the case N_q ≠ N_k: query i sees keys up to i + N_k − N_q", (".triu(N_k - N_q + 1)", ".triu(1)")),
        Mistake("mask_after_softmax", "the mask was applied after the softmax, so the rows no longer sum to 1",
                "the order: hidden scores must be gone before the softmax divides by their sum",
                ("S = S.masked_fill(hidden, -inf)\n    P = torch.softmax(S, dim=-1)",
                 "S_hidden = S.masked_fill(hidden, -inf)\n    P = torch.softmax(S, dim=-1)\n"
                 "    if causal:\n        P, S = P.masked_fill(hidden, 0), S_hidden")),
        Mistake("mask_zero_score", "hidden scores were set to 0, or a number close to it, which still weighs about exp(0) = 1",
                "the value for hidden scores: exp of it must be 0", ("S.masked_fill(hidden, -inf)", "S.masked_fill(hidden, 0.0)"),
                also=[[("S.masked_fill(hidden, -inf)", "S.masked_fill(hidden, 0.0)"),
                       ("(S == -inf).all(-1, keepdim=True)", "torch.full((N_q, 1), causal) & (torch.arange(N_q)[:, None] < N_q - N_k)")]]),
        Mistake("mask_minus_1e6", "hidden scores were set to a large negative number such as −10⁶, not to −inf",
                "queries that see no key: with a finite value they see all keys alike",
                ("S.masked_fill(hidden, -inf)", "S.masked_fill(hidden, -1e6)"),
                also=[[("S.masked_fill(hidden, -inf)", f"S.masked_fill(hidden, {x})")] for x in ("-1e4", "-1e9", "-1e30")]),
        Mistake("no_zero_row", "a query that sees no key got NaN, not 0: its softmax is 0/0",
                "rows of S that are −inf throughout", ("P.masked_fill((S == -inf).all(-1, keepdim=True), 0)", "P")),
        Mistake("scale_on_top", "a scale that was given was multiplied with 1/√d, instead of taking its place", "scale: 1/√d only where it is None",
                ("scale = Q.shape[-1] ** -0.5 if scale is None else scale", "scale = Q.shape[-1] ** -0.5 * (1 if scale is None else scale)")),
        Mistake("maximum_before_scale", "the maximum that was subtracted is that of Q Kᵀ, before the scale: a negative scale makes the smallest of it", "the shift: the largest of the scaled scores",
                ("P = torch.softmax(S, dim=-1)", "m = (Q @ K.T).masked_fill(S == -inf, -inf).amax(-1, keepdim=True) * scale\n    P = torch.exp(S - m)\n    P = P / P.sum(-1, keepdim=True)")),
        Mistake("scale_zero_replaced", "a scale of 0 was taken for no scale at all", "the test for None: `scale or ...` is also false for 0",
                ("if scale is None else scale", "if not scale else scale")),
        Mistake("scale_of_d_v", "the default scale was 1/√d_v, not 1/√d", "the dimension whose size you take: d is the last one of Q",
                ("Q.shape[-1] ** -0.5 if scale is None", "V.shape[-1] ** -0.5 if scale is None")),
        Mistake("scale_of_N_k", "the default scale was 1/√N_k, not 1/√d", "the dimension whose size you take: d is the last one of Q",
                ("Q.shape[-1] ** -0.5 if scale is None", "N_k ** -0.5 if scale is None")),
        Mistake("scale_divided", "the scores were divided by scale, not multiplied", "the line of S: Q Kᵀ · scale",
                ("S = Q @ K.T * scale", "S = Q @ K.T / scale")),
        Mistake("mask_shift_reversed", "the mask was shifted by N_q − N_k, with the wrong sign", "query i sees the keys up to i + N_k − N_q",
                (".triu(N_k - N_q + 1)", ".triu(N_q - N_k + 1)")),
        Mistake("mask_always", "the mask was applied without being asked for", "the branch for causal: its default is False", ("if causal:", "if True:")),
        Mistake("mask_when_not_asked", "causal was read the wrong way round", "the branch for causal", ("if causal:", "if not causal:")),
        Mistake("mask_added_as_number", "the mask was added to the scores as ones and zeros, which moves them by 1 and hides nothing",
                "hidden scores: −inf", ("S.masked_fill(hidden, -inf)", "S - hidden.float()")),
        Mistake("mask_all_hidden_as_nan", "0 · −inf, which is NaN, was added where nothing is hidden", "hidden · −inf: use masked_fill or torch.where",
                ("S.masked_fill(hidden, -inf)", "S + hidden * -inf")),
        Mistake("wrong_rows_zeroed", "the rows of zeros were the last N_q − N_k ones, but it is the first queries that see no key",
                "which queries see no key: those with i + N_k − N_q < 0", ("P.masked_fill((S == -inf).all(-1, keepdim=True), 0)",
                "P.masked_fill(torch.arange(N_q)[:, None] >= N_k, 0) if causal and N_q > N_k else P")),
        Mistake("hidden_as_0_weight", "the hidden weights were zeroed after the softmax and the rows divided by their sum, which is 0/0 for a row without keys",
                "rows that see no key", ("S = S.masked_fill(hidden, -inf)\n    P = torch.softmax(S, dim=-1)",
                "S_hidden = S.masked_fill(hidden, -inf)\n    P = torch.softmax(S, dim=-1)\n"
                "    if causal:\n        P, S = P.masked_fill(hidden, 0), S_hidden * 0\n        P = P / P.sum(-1, keepdim=True)")),
        Mistake("log_softmax", "the logarithm of the softmax was multiplied with V", "the line of P: the weights themselves",
                ("torch.softmax(S, dim=-1)", "torch.log_softmax(S, dim=-1)")),
        Mistake("not_normalised", "exp(S) was not divided by its row sum", "the softmax: the weights of a row sum to 1",
                ("torch.softmax(S, dim=-1)", "torch.exp(S)"), also=[[("torch.softmax(S, dim=-1)", "torch.exp(S - S.amax(-1, keepdim=True)).nan_to_num(0)")]]),
        Mistake("V_scaled", "the result was multiplied by scale as well", "the product P V: no scale in it", ("return P @ V", "return P @ V * scale")),
        Mistake("K_for_V", "the weights were multiplied with K, not with V", "the product P V", ("return P @ V", "return P @ K[:, :V.shape[-1]]")),
        Mistake("mask_before_scale", "the scores were hidden before they were scaled: −inf times a negative scale is +inf, times 0 NaN", "the order: first scale, then hide",
                ("S = Q @ K.T * scale", "S = Q @ K.T"), ("P = torch.softmax(S, dim=-1)", "S = S * scale\n    P = torch.softmax(S, dim=-1)")),
    ],
    variants=[
        Variant("by hand, mask from indices", body="""
            d = Q.size(1)
            q = Q / d**0.5 if scale is None else Q * scale
            scores = torch.einsum("id,jd->ij", q, K)
            visible = torch.full_like(scores, True, dtype=torch.bool)
            if causal:
                i, j = torch.arange(len(Q)), torch.arange(len(K))
                visible = j[None, :] <= i[:, None] + len(K) - len(Q)
            weights = torch.where(visible, scores, torch.tensor(-inf))
            top = weights.max(dim=1, keepdim=True).values
            e = torch.where(visible, torch.exp(weights - top), torch.zeros(()))
            total = e.sum(1, keepdim=True)
            return (e / torch.where(total == 0, torch.ones(()), total)) @ V
            """),
        Variant("nan_to_num", ("P.masked_fill((S == -inf).all(-1, keepdim=True), 0)", "P.nan_to_num(0)")),
    ],
    hints=[
        "Without the mask it is three lines: S = Q @ K.T * scale, P = torch.softmax(S, dim=-1), O = P @ V.",
        "hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_k - N_q + 1) is True where the key comes after the query.",
        "A row that is −inf throughout becomes 0/0 = NaN in the softmax. Fill those rows of P with 0.",
    ],
)
