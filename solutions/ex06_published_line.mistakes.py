"""Cases and mistakes of ex06_published_line: the mistakes are the published ones, left in."""

from flashlab import oracle
from flashlab_course.check.cases import EDGE, HUGE, attention_case, epsilon, in_float64, widest
from flashlab_course.check.form import Exercise, Mistake, Output

LINE_3 = ("keys > queries", "queries > keys")
LINE_6 = ("l * torch.exp(m - m_new) + P.sum(-1)", "l + torch.exp(m - m_new) + P.sum(-1)")
LINE_7 = ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "1 / torch.exp(m - m_new)[:, None] * O + P @ V_j")
LINE_8 = ("m = m_new", "O = O / l[:, None]\n        m = m_new")


def forbid(shape, Q, K, V, B_c, scale):
    if len(K) > max(B_c, widest(Q, V)) and sorted(size for size in shape if size > 1) == [len(Q), len(K)]:
        return f"the scores of all keys, {shape}, were made at once: no more than B_c = {B_c} keys at a time"
    return None


EXERCISE = Exercise(
    function="attention",
    outputs=(Output("O", ("query", "column")), Output("L", ("query",))),
    truth=lambda Q, K, V, B_c, scale: oracle.attention(Q, K, V, causal=True, scale=scale),
    without=("attention",),
    forbid=forbid,
    cases=[
        attention_case("one query, one key", 1, 1, 2, B_c=1, scale=1.0),
        attention_case("one block", 3, 3, 3, B_c=3, scale=0.5, seed=1),
        attention_case("two blocks", 4, 4, 3, B_c=2, scale=0.5, seed=6),
        attention_case("one key at a time", 5, 5, 4, 2, B_c=1, scale=0.7, seed=3),
        attention_case("a short last block", 8, 8, 3, B_c=3, scale=0.4, seed=4),
        attention_case("many blocks", 33, 33, 4, B_c=3, scale=0.5, seed=15),
        attention_case("scores in the hundreds", 13, 13, 4, B_c=2, scale=-0.5, large=True, seed=5),
        attention_case("scores far below 0", 6, 6, 4, B_c=2, scale=0.5, below=True, seed=8),
        attention_case("scores up to 500", 6, 6, 4, B_c=3, scale=0.5, factor=HUGE, seed=9),
        attention_case("one block for more keys than there are", 3, 3, 4, B_c=8, scale=0.5, seed=10),
        attention_case("scores around −997", 6, 6, 4, B_c=2, scale=0.5, below=EDGE, seed=14),
        attention_case("a scale of 0", 4, 4, 3, B_c=2, scale=0.0, seed=12),
        attention_case("a negative scale", 4, 4, 3, B_c=2, scale=-0.4, seed=13),
        in_float64(attention_case("a single key", 1, 1, 4, B_c=2, scale=0.5, exactly=True, seed=11)),
    ],
    mistakes=[
        epsilon(("O = O / l[:, None]", "O = O / (l + ε)[:, None]")),
        epsilon(("torch.log(l)", "torch.log(l + ε)"), name="epsilon_in_log", what="a small number was added to l before the logarithm", look="line 11: m + log l, where l is at least 1"),
        Mistake("line_3", "line 3 is still wrong: it hides the past and shows the future", "line 3: hidden is what comes after the query, key > query", LINE_3),
        Mistake("line_6", "line 6 is still wrong: the factor exp(m − m_new) was added to l, and has to multiply it",
                "line 6: l counts in units of exp(m); changing the unit is a product", LINE_6),
        Mistake("line_6_factor_dropped", "l kept the unit of the old maximum: in line 6 exp(m − m_new) was left out, or was 1 because m was no longer the old one", "line 6: exp(m − m_new) · l + rowsum(P), with the m of before; line 9 comes last",
                ("l * torch.exp(m - m_new) + P.sum(-1)", "l + P.sum(-1)")),
        Mistake("line_6_reversed", "in line 6 the factor is the wrong way round, exp(m_new − m)", "line 6: l is multiplied by exp(m − m_new), the old sum shrinks when the maximum grows",
                ("l * torch.exp(m - m_new)", "l * torch.exp(m_new - m)"),
                also=[[("l * torch.exp(m - m_new)", "l * torch.exp(torch.where(m == -inf, m_new, m_new * 2 - m) - m_new)")]]),
        Mistake("line_7", "line 7 is still wrong: the factor exp(m − m_new) was inverted, and has to multiply O as it is",
                "line 7: the old O shrinks when the maximum grows, as l does", LINE_7,
                also=[[("torch.exp(m - m_new)[:, None] * O + P @ V_j", "torch.where(m == -inf, 1.0, torch.exp(m_new - m))[:, None] * O + P @ V_j")],
                      [("torch.exp(m - m_new)[:, None] * O + P @ V_j", "O / torch.exp(m - m_new).masked_fill(torch.exp(m - m_new) == 0, 1)[:, None] + P @ V_j")]]),
        Mistake("line_7_factor_dropped", "O kept the unit of the old maximum: in line 7 exp(m − m_new) was left out, or was 1 because m was no longer the old one", "line 7: exp(m − m_new) · O + P V_j, with the m of before; line 9 comes last",
                ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "O + P @ V_j")),
        Mistake("lines_6_and_7_without_factor", "l and O kept the unit of the old maximum: exp(m − m_new) was left out of lines 6 and 7, or was 1 because m was no longer the old one", "lines 6 and 7, and whether m is still the old maximum there: line 9 comes last",
                ("l * torch.exp(m - m_new) + P.sum(-1)", "l + P.sum(-1)"), ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "O + P @ V_j")),
        Mistake("mask_before_scale", "hidden scores became −inf · scale, as if line 3 came before the product: a negative scale makes +inf of them, 0 NaN", "hidden scores: −inf whatever the scale, so line 2 with its scale first, then line 3",
                ("S = Q @ K_j.T * scale", "S = Q @ K_j.T"), ("S = S.masked_fill(keys > queries, -inf)", "S = S.masked_fill(keys > queries, -inf) * scale")),
        Mistake("maximum_before_scale", "the maximum was that of the scores before scale, not the largest of the scaled ones: exp may overflow or underflow", "line 4: the largest of the scaled scores, so line 2 with its scale first",
                ("torch.maximum(m, S.amax(-1))", "torch.maximum(m, (Q @ K_j.T).masked_fill(keys > queries, -inf).amax(-1))")),
        Mistake("scale_zero_replaced", "a scale of 0 was taken for none at all, and 1/√d put in its place", "scale: any number, 0 too; `scale or ...` and `if scale` take 0 for none",
                ("Q @ K_j.T * scale", "Q @ K_j.T * (scale or Q.shape[-1] ** -0.5)")),
        Mistake("line_8", "line 8 is still there: O was divided by l in every step, and once more in line 10", "line 8: it has to go, since line 7 adds undivided terms; line 10 divides once at the end", LINE_8),
        Mistake("divided_twice", "O was divided by l twice", "lines 8 and 10: how many divisions are there?",
                ("O = O / l[:, None]\n    return", "O = O / l[:, None] / l[:, None]\n    return")),
        Mistake("line_10_removed", "O was divided by l in every step and not at the end: the wrong one of lines 8 and 10 was removed",
                "line 8: it has to go, and line 10 to stay; an O divided by l no longer matches line 7, which adds undivided terms", LINE_8, ("O = O / l[:, None]\n    return", "return")),
        Mistake("both_removed", "O was never divided by l: lines 8 and 10 are both gone", "line 10: the weights have to sum to 1", ("O = O / l[:, None]\n    return", "return")),
        Mistake("line_11_base_2", "in line 11 the logarithm of l was taken to base 2", "line 11: log is the natural logarithm", ("m + torch.log(l)", "m + torch.log2(l)")),
        Mistake("line_11_changed", "line 11 was changed to m − log l, and it was right", "line 11: exp(m) · l is the sum of all exp(S)", ("m + torch.log(l)", "m - torch.log(l)")),
        Mistake("line_9_lost", "each block forgot the maximum of the ones before: line 9 got lost, or m was set anew for each block", "line 9, which the next block needs, and line 1: it stands before the first block, and sets O, l and m once", ("m = m_new\n    O", "\n    m = m_new\n    O"),
                ("m_new = torch.maximum(m, S.amax(-1))", "m_new = torch.maximum(torch.full_like(m, -inf), S.amax(-1))")),
        Mistake("as_published", "all four lines are still as published", "lines 3, 6, 7 and 8", LINE_3, LINE_6, LINE_7, LINE_8),
        Mistake("line_3_own_key", "line 3 hides each query's own key too", "line 3: a query does see its own key; hidden is key > query", ("keys > queries", "keys >= queries")),
        Mistake("line_3_next_key", "line 3 lets each query see the key after its own", "line 3: hidden is key > query", ("keys > queries", "keys > queries + 1")),
        Mistake("line_3_lost", "nothing was hidden: line 3 got lost, or had no effect", "line 3: S = −∞ where the key comes after the query", ("S = S.masked_fill(keys > queries, -inf)", "")),
        Mistake("line_3_in_block", "in line 3 the key's number within its block was held against the query's", "line 3: key blocks start at j · B_c", ("torch.arange(start, start + len(K_j))", "torch.arange(len(K_j))")),
        Mistake("line_3_zero", "in line 3 hidden scores became 0", "line 3: −∞, since exp(0) is 1", ("S.masked_fill(keys > queries, -inf)", "S.masked_fill(keys > queries, 0.0)")),
        Mistake("line_2_scale", "line 2 lost its scale", "line 2 was right: Q K_jᵀ · scale", ("Q @ K_j.T * scale", "Q @ K_j.T")),
        Mistake("line_4_block_maximum", "line 4 takes the maximum of this block alone", "line 4 was right: max(m, rowmax(S))", ("torch.maximum(m, S.amax(-1))", "S.amax(-1).clamp_min(-1e30)")),
        Mistake("line_5_old_maximum", "line 5 subtracts the old maximum", "line 5 was right: exp(S − m_new)", ("torch.exp(S - m_new[:, None])", "torch.exp(S - torch.where(m == -inf, m_new, m)[:, None])")),
        Mistake("line_6_twice", "line 6 multiplies the new row sum by the factor too", "line 6: only the old l is in units of exp(m)",
                ("l * torch.exp(m - m_new) + P.sum(-1)", "(l + P.sum(-1)) * torch.exp(torch.where(m == -inf, m_new, m) - m_new)"),
                also=[[("l * torch.exp(m - m_new) + P.sum(-1)", "(l + P.sum(-1)) * torch.exp(m - m_new)")]]),
        Mistake("line_7_twice", "line 7 multiplies the new term by the factor too", "line 7: only the old O is in units of exp(m)",
                ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "torch.exp(torch.where(m == -inf, m_new, m) - m_new)[:, None] * (O + P @ V_j)")),
        Mistake("line_10_L", "line 10 divides by L", "line 10 was right: O / l", ("O = O / l[:, None]\n    return", "O = O / (m + torch.log(l))[:, None]\n    return")),
        Mistake("line_11_without_m", "line 11 lost its m", "line 11 was right: m + log l", ("m + torch.log(l)", "torch.log(l)")),
        Mistake("line_11_sum", "line 11 lost its logarithm", "line 11 was right: m + log l", ("m + torch.log(l)", "m + l")),
        Mistake("m_starts_at_0", "m started at 0, and never got below it", "line 1 was right: m = −∞", ("torch.full((N,), -inf)", "torch.zeros(N)")),
        Mistake("tail_dropped", "the last, short key block was never visited", "the number of key blocks: ⌈N / B_c⌉", ("range(0, N, B_c)", "range(0, max(N // B_c, 1) * B_c, B_c)")),
        Mistake("diagonal_block_only", "each query saw only the keys of its own block", "line 3: hidden is key > query, and nothing in earlier blocks", ("keys > queries", "(keys > queries) | (keys // B_c < queries // B_c)")),
        Mistake("lines_3_and_4_swapped", "the keys were hidden after line 4, not before it: the maximum was taken over hidden scores, too, and all visible ones may underflow",
                "the order: first hide, then take the maximum", ("S = S.masked_fill(keys > queries, -inf)", ""),
                ("m_new = torch.maximum(m, S.amax(-1))", "m_new = torch.maximum(m, S.amax(-1))\n        S = S.masked_fill(keys > queries, -inf)")),
        Mistake("O_as_wide_as_Q", "O was made with d columns, as many as Q has", "the shape of O: it has V's columns, d_v",
                ("torch.zeros(N, V.shape[-1])", "torch.zeros_like(Q)")),
        Mistake("line_7_with_the_new_l", "O was divided in every step, and line 7 took that back with the l that line 6 had already changed", "line 8: without it there is nothing to take back; with it, line 7 needs the l of before",
                ("torch.exp(m - m_new)[:, None] * O + P @ V_j", "((torch.exp(m - m_new) * l)[:, None] * O + P @ V_j) / l[:, None]"), ("O = O / l[:, None]\n    return", "return")),
        Mistake("hidden_block_counts_as_0", "the maximum of a block that a query sees nothing of was taken to be 0, and the larger of 0 and m became the new m", "line 4: max(m, rowmax(S)), also where all of S is −inf: m is finite by then, since every query sees key 0",
                ("torch.maximum(m, S.amax(-1))", "torch.maximum(m, S.amax(-1).masked_fill(S.amax(-1) == -inf, 0))")),
        Mistake("block_number_and_place", "a key was numbered by its block's number plus its place in the block", "the keys of block j: j · B_c and the place in the block", ("torch.arange(start, start + len(K_j))", "torch.arange(len(K_j)) + start // B_c")),
    ],
    hints=[
        "Line 3: may query 0 see key 1? May query 1 see key 0?",
        "Lines 6 and 7 change the unit of a sum from exp(m) to exp(m_new). Both need the same factor, in the same place.",
        "Lines 8 and 10 both divide. O in line 7 is a sum of undivided terms: which of the two has to go?",
    ],
)
