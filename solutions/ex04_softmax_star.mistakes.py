"""Cases and mistakes of ex04_softmax_star."""

from flashlab import oracle
from flashlab.check.cases import attention_case
from flashlab.check.form import Exercise, Mistake, Output, Variant

STAR = ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "S_j.amax(-1, keepdim=True)")


def forbid(shape, Q, K, V, B_c):
    if len(K) > B_c and shape in ((len(Q), len(K)), (len(K), len(Q))) and len(Q) != Q.shape[-1]:
        return f"the whole of S, {shape}, was made: no more than B_c = {B_c} of its columns at a time"
    return None


EXERCISE = Exercise(
    function="attention_by_tiles",
    outputs=(Output("O", ("query", "column")),),
    truth=lambda Q, K, V, B_c: oracle.attention(Q, K, V)[0],
    forbid=forbid,
    cases=[
        attention_case("one key, one block", 1, 1, 2, B_c=1),
        attention_case("one block", 2, 3, 3, B_c=3, seed=1),
        attention_case("two blocks", 2, 4, 3, B_c=2, seed=3),
        attention_case("three blocks", 3, 6, 4, B_c=2, seed=3),
        attention_case("square tiles", 4, 12, 4, B_c=4, seed=4),
        attention_case("a short last block", 3, 7, 4, 2, B_c=3, seed=5),
        attention_case("scores in the hundreds", 4, 15, 4, B_c=3, large=True, seed=6),
    ],
    mistakes=[
        Mistake("softmax_star", "this is softmax* still: each tile in units of its own maximum, added up and never divided",
                "two things: the common maximum of all tiles, and the sum of the weights",
                STAR, ("alpha * O + P_j @ V_j", "O + P_j @ V_j"), ("O / l", "O")),
        Mistake("not_divided", "the tiles were brought to a common maximum, but their sum was never divided by l",
                "the last line: the weights exp(S − m) do not sum to 1", ("O / l", "O")),
        Mistake("own_units", "each tile was shifted by its own maximum and the tiles were added as they were, then divided by l",
                "the units: exp(S − m_1) and exp(S − m_2) cannot be added", STAR, ("alpha * O + P_j @ V_j", "O + P_j @ V_j"),
                ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("softmax_per_tile_averaged", "each tile got a softmax of its own, and the results were averaged",
                "the weight of each tile: a tile with small scores counts less",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True) / -(-len(K) // B_c)"), STAR, ("O / l", "O")),
        Mistake("softmax_per_tile_added", "each tile got a softmax of its own, and the results were added",
                "the weight of each tile: together, not each by itself, the weights sum to 1",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True)"), STAR, ("O / l", "O")),
        Mistake("no_rescale_O", "O was not multiplied by exp(m − m_new) when the maximum grew", "the line of O: l is rescaled, O has to be as well",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j")),
        Mistake("no_rescale_l", "l was not multiplied by exp(m − m_new) when the maximum grew", "the line of l: O is rescaled, l has to be as well",
                ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("no_rescale", "neither O nor l was multiplied by exp(m − m_new) when the maximum grew", "what becomes of the earlier tiles when m grows",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j"), ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("alpha_inverted", "the factor was exp(m_new − m), the inverse of the right one", "the sign in alpha", ("torch.exp(m - m_new)", "torch.exp(m_new - m)")),
        Mistake("l_of_last_tile", "O was divided by the sum of the last tile alone", "the line of l: it adds up all tiles",
                ("alpha * l + P_j.sum(-1, keepdim=True)", "P_j.sum(-1, keepdim=True)")),
        Mistake("divided_inside", "O was divided by l in every step and not at the end", "where the division stands: it belongs after the loop",
                ("alpha * O + P_j @ V_j", "(alpha * O + P_j @ V_j) / l"), ("return O / l", "return O")),
        Mistake("divided_twice", "O was divided by l in every step and once more at the end", "how many divisions there are",
                ("alpha * O + P_j @ V_j", "(alpha * O + P_j @ V_j) / l")),
        Mistake("m_not_carried", "m was never set to m_new", "the end of the loop body", ("m = m_new", "")),
        Mistake("unshifted", "the scores went into exp without a maximum being subtracted", "the exponent: float32 overflows at exp(89)",
                ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "torch.zeros_like(m)")),
        Mistake("one_maximum", "one maximum was taken for all queries of the tile", "the dimension in amax: each row has a maximum of its own",
                ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "torch.maximum(m, S_j.max())")),
        Mistake("tail_dropped", "the last, short block was never visited", "the number of blocks: N_k // B_c leaves out the rest",
                ("range(0, len(K), B_c)", "range(0, len(K) // B_c * B_c, B_c)")),
        Mistake("scale_missing", "the scores were not scaled by 1/√d", "the line of S_j", ("* Q.shape[-1] ** -0.5", "")),
        Mistake("no_keepdim", "the sums of the rows were broadcast along the columns of the tile",
                "the shapes: rowsum(P_j) is (N_q,); against (N_q, d_v) it needs `[:, None]` or `keepdim=True`",
                ("return O / l", "return O / l[:, 0]")),
        Mistake("whole_S", "S was made as a whole, N_q x N_k, which is what tiles are there to avoid", "the loop: each step makes B_c columns of S",
                body="""
                return torch.softmax(Q @ K.T * Q.shape[-1] ** -0.5, -1) @ V
                """),
    ],
    variants=[
        Variant("weights of finished tiles, merged by their logsumexp", body="""
            O, L = torch.zeros(len(Q), V.shape[1]), torch.full((len(Q),), -inf)
            for k, v in zip(K.split(B_c), V.split(B_c)):
                s = Q @ k.T / Q.shape[1] ** 0.5
                L_j = s.logsumexp(1)
                L_new = torch.logaddexp(L, L_j)
                O = O * (L - L_new).exp()[:, None] + s.softmax(1) @ v * (L_j - L_new).exp()[:, None]
                L = L_new
            return O
            """),
    ],
    hints=[
        "A tile in units of its own maximum m_j is exp(m_j − m) times too large against one in units of m. Keep one m for all.",
        "When a new tile raises the maximum, multiply what O and l hold so far by exp(m − m_new).",
        "l adds up the weights of all tiles. O / l is the answer, and the division stands after the loop.",
    ],
)
