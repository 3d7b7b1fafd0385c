"""Cases and mistakes of ex06_published_line: the mistakes are the published ones, left in."""

from flashlab import oracle
from flashlab.check.cases import attention_case
from flashlab.check.form import Exercise, Mistake, Output, Variant

LINE_3 = ("keys > queries", "queries > keys")
LINE_6 = ("l * torch.exp(m - m_new) + P.sum(-1)", "l + torch.exp(m - m_new) + P.sum(-1)")
LINE_7 = ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "1 / torch.exp(m - m_new)[:, None] * O + P @ V_j")
LINE_8 = ("m = m_new", "O = O / l[:, None]\n        m = m_new")

EXERCISE = Exercise(
    function="attention",
    outputs=(Output("O", ("query", "column")), Output("L", ("query",))),
    truth=lambda Q, K, V, B_c, scale: oracle.attention(Q, K, V, causal=True, scale=scale),
    cases=[
        attention_case("one query, one key", 1, 1, 2, B_c=1, scale=1.0),
        attention_case("one block", 3, 3, 3, B_c=3, scale=0.5, seed=1),
        attention_case("two blocks", 4, 4, 3, B_c=2, scale=0.5, seed=6),
        attention_case("one key at a time", 5, 5, 4, 2, B_c=1, scale=0.7, seed=3),
        attention_case("a short last block", 8, 8, 3, B_c=3, scale=0.4, seed=4),
        attention_case("scores in the hundreds", 9, 9, 4, B_c=2, scale=0.5, large=True, seed=5),
    ],
    mistakes=[
        Mistake("line_3", "line 3 is still wrong: it hides the past and shows the future", "line 3: hidden is what comes after the query, key > query", LINE_3),
        Mistake("line_6", "line 6 is still wrong: the factor exp(m − m_new) was added to l, and has to multiply it",
                "line 6: l counts in units of exp(m); changing the unit is a product", LINE_6),
        Mistake("line_6_factor_dropped", "line 6 lost its factor: l was not multiplied by exp(m − m_new)", "line 6: the old l counts in units of exp(m)",
                ("l * torch.exp(m - m_new) + P.sum(-1)", "l + P.sum(-1)")),
        Mistake("line_6_reversed", "in line 6 the exponent is the wrong way round, m_new − m", "line 6: the old sum shrinks when the maximum grows",
                ("l * torch.exp(m - m_new)", "l * torch.exp(m_new - m)")),
        Mistake("line_7", "line 7 is still wrong: the factor exp(m − m_new) was inverted, and has to multiply O as it is",
                "line 7: the old O shrinks when the maximum grows, as l does", LINE_7),
        Mistake("line_7_factor_dropped", "line 7 lost its factor: O was not multiplied by exp(m − m_new)", "line 7: O is in the same units as l",
                ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "O + P @ V_j")),
        Mistake("line_8", "line 8 is still there: O was divided by l in every step, and once more in line 10", "lines 8 and 10: one of them has to go", LINE_8),
        Mistake("line_10_removed", "O was divided by l in every step and not at the end: the wrong one of lines 8 and 10 was removed",
                "line 8: an O divided by l no longer matches line 7, which adds undivided terms", LINE_8, ("O = O / l[:, None]\n    return", "return")),
        Mistake("both_removed", "O was never divided by l: lines 8 and 10 are both gone", "line 10: the weights have to sum to 1", ("O = O / l[:, None]\n    return", "return")),
        Mistake("line_11_base_2", "L was taken to base 2", "line 11: log is the natural logarithm", ("m + torch.log(l)", "m + torch.log2(l)")),
        Mistake("line_11_changed", "line 11 was changed to m − log l, and it was right", "line 11: exp(m) · l is the sum of all exp(S)", ("m + torch.log(l)", "m - torch.log(l)")),
        Mistake("line_9_lost", "line 9 got lost: m was never set to m_new", "line 9: the next block needs to know the maximum", ("m = m_new\n    O", "\n    m = m_new\n    O"),
                ("m_new = torch.maximum(m, S.amax(-1))", "m_new = torch.maximum(torch.full_like(m, -inf), S.amax(-1))")),
        Mistake("as_published", "all four lines are still as published", "lines 3, 6, 7 and 8", LINE_3, LINE_6, LINE_7, LINE_8),
    ],
    variants=[
        Variant("query blocks of one", body="""
            outs, logs = [], []
            for n, q in enumerate(Q):
                s = (K[: n + 1] @ q) * scale
                total = s.logsumexp(0)
                outs.append((s - total).exp() @ V[: n + 1])
                logs.append(total)
            return torch.stack(outs), torch.stack(logs)
            """),
    ],
    hints=[
        "Line 3: may query 0 see key 1? May query 1 see key 0?",
        "Lines 6 and 7 change the unit of a sum from exp(m) to exp(m_new). Both need the same factor, in the same place.",
        "Lines 8 and 10 both divide. O in line 7 is a sum of undivided terms: which of the two has to go?",
    ],
)
