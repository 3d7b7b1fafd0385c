"""Cases and mistakes of ex04_softmax_star."""

from torch.overrides import TorchFunctionMode

from flashlab import oracle
from flashlab_course.check import limits
from flashlab_course.check.cases import HUGE, attention_case, in_float64, whole_rescaled, widest
from flashlab_course.check.form import Exercise, Mistake, Output

STAR = ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "S_j.amax(-1, keepdim=True)")


class Products(TorchFunctionMode):
    """The widest tile of scores that a product of matrices has made: rows of Q, at most so many columns."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.widest = rows, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("matmul", "__matmul__", "mm", "einsum") and self.rows in found.shape and found.ndim == 2:
            self.widest = max(self.widest, *found.shape) if found.shape != (self.rows, self.rows) else self.widest
        return found


def narrow(exercise, fn):
    """Has a block at most B_c keys? In a case where no other product is as wide: with rows of 5, O and a column of ones have 3."""
    inputs = next(case for case in exercise.cases if case.name == "many blocks").make()
    products = Products(len(inputs["Q"]))

    def watch():
        with products:
            fn(**inputs)

    if limits.protected(watch, exercise.seconds)[1] is not None or products.widest <= len(inputs["Q"]):
        return None
    mistake = next(m for m in exercise.mistakes if m.name == "cut_into_B_c")
    return mistake, f"But with B_c = {inputs['B_c']} a tile had {products.widest} keys"


def forbid(shape, Q, K, V, B_c):
    if len(K) > max(B_c, widest(Q, V)) and len(Q) > 1 and sorted(size for size in shape if size > 1) == sorted((len(Q), len(K))):
        return f"the whole of S, {shape}, was made: no more than B_c = {B_c} of its columns at a time"
    return None


EXERCISE = Exercise(
    function="attention_by_tiles",
    outputs=(Output("O", ("query", "column")),),
    truth=lambda Q, K, V, B_c: oracle.attention(Q, K, V)[0],
    forbid=forbid,
    after=[narrow],
    without=("attention",),
    cases=[
        attention_case("one key, one block", 1, 1, 2, B_c=1),
        attention_case("one block", 2, 3, 3, B_c=3, seed=1),
        attention_case("two blocks", 2, 4, 3, B_c=2, seed=3),
        attention_case("three blocks", 3, 6, 4, B_c=2, seed=3),
        attention_case("square tiles", 4, 12, 4, B_c=4, seed=4),
        attention_case("a short last block", 3, 7, 4, 2, B_c=3, seed=5),
        attention_case("scores in the hundreds", 4, 15, 4, B_c=3, large=True, seed=6),
        attention_case("scores far below 0", 3, 6, 4, B_c=2, below=True, seed=7),
        attention_case("scores up to 500", 4, 8, 4, B_c=4, factor=HUGE, seed=8),
        attention_case("two short blocks' worth of keys", 3, 5, 4, B_c=8, seed=9),
        attention_case("many blocks", 5, 33, 4, 2, B_c=3, seed=12),
        attention_case("one key at a time", 3, 5, 4, 2, B_c=1, seed=10),
        in_float64(attention_case("a single key", 1, 1, 4, B_c=2, exactly=True, seed=11)),
    ],
    mistakes=[
        Mistake("own_units", "each tile counted in units of its own maximum, in O and in l, and the tiles were added as they were, then divided",
                "the units: what counts in exp(m_1) and what counts in exp(m_2) is added only when both are in exp(m)", STAR,
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j"), ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("softmax_per_tile_averaged", "each tile got a softmax of its own, and the results were averaged",
                "the weight of each tile: a tile with small scores counts less",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True) / -(-len(K) // B_c)"), STAR, ("O / l", "O"),
                also=[[("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True) * len(K_j) / len(K)"), STAR, ("O / l", "O")]]),
        Mistake("no_rescale_O", "O kept the unit of the old maximum when it grew, though l did not: exp(m − m_new) was left out there, or was 1",
                "what becomes of O when m grows: like l it is multiplied by exp(m − m_new), with the old m", ("alpha * O + P_j @ V_j", "O + P_j @ V_j")),
        Mistake("no_rescale_l", "l kept the unit of the old maximum when it grew, though O did not: exp(m − m_new) was left out there, or was 1",
                "what becomes of l when m grows: like O it is multiplied by exp(m − m_new), with the old m",
                ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("no_rescale", "O and l kept the unit of the old maximum when it grew: exp(m − m_new) was left out, or was 1 because m was no longer the old one",
                "what becomes of the earlier tiles when m grows, and whether m is still the old one there", ("alpha * O + P_j @ V_j", "O + P_j @ V_j"),
                ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("alpha_inverted", "the factor was exp(m_new − m), the inverse of the right one",
                "the factor of the old sums: exp(m − m_new), which never exceeds 1", ("torch.exp(m - m_new)", "torch.exp(m_new - m)"),
                also=[[("torch.exp(m - m_new)", "torch.exp(torch.where(m == -inf, m_new, m_new * 2 - m) - m_new)")]]),
        Mistake("divided_inside", "O was divided by l in every step and not at the end", "where the division stands: it belongs after the loop",
                ("alpha * O + P_j @ V_j", "(alpha * O + P_j @ V_j) / l"), ("return O / l", "return O")),
        Mistake("one_maximum", "one maximum was taken for all queries of the tile", "the maximum: each row has a maximum of its own",
                ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "torch.maximum(m, S_j.max())")),
        Mistake("tail_dropped", "the last, short block was never visited", "the blocks: ⌈N_k / B_c⌉ of them, the last one short",
                ("range(0, len(K), B_c)", "range(0, len(K) // B_c * B_c, B_c)"),
                also=[[("range(0, len(K), B_c)", "range(0, max(1, round(len(K) / B_c)) * B_c, B_c)")]]),
        Mistake("scale_missing", "the scores were not scaled by 1/√d", "S_j = Q K_jᵀ / √d", ("* Q.shape[-1] ** -0.5", "")),
        Mistake("whole_S", "S was made as a whole, N_q x N_k, which is what tiles are there to avoid",
                "the loop: each step makes at most B_c columns of S and keeps none of them",
                body="""
                return torch.softmax(Q @ K.T * Q.shape[-1] ** -0.5, -1) @ V
                """),
        Mistake("cut_into_B_c", "the keys were cut into B_c blocks, not into blocks of B_c keys",
                "what `chunk` and `split` take: a number of parts, or a size",
                ("for start in range(0, len(K), B_c):\n        K_j, V_j = K[start : start + B_c], V[start : start + B_c]",
                 "for K_j, V_j in zip(K.chunk(B_c), V.chunk(B_c)):")),
        Mistake("m_starts_at_0", "m was never below 0, as if it started there", "the first value of m: below any score, −inf",
                ("torch.full((len(Q), 1), -inf)", "torch.zeros(len(Q), 1)")),
        Mistake("whole_rescaled", "exp(m − m_new) multiplied the new tile as well",
                "what exp(m − m_new) multiplies: only what is there already is in the old units",
                ("alpha * O + P_j @ V_j", "torch.where(m == -inf, 1.0, alpha) * (O + P_j @ V_j)"),
                ("alpha * l + P_j.sum(-1, keepdim=True)", "torch.where(m == -inf, 1.0, alpha) * (l + P_j.sum(-1, keepdim=True))"),
                also=whole_rescaled(("alpha * l + P_j.sum(-1, keepdim=True)", "{} * (l + P_j.sum(-1, keepdim=True))"),
                             ("alpha * O + P_j @ V_j", "{} * (O + P_j @ V_j)"), "alpha", "torch.where(m == -inf, 1.0, alpha)")),
        Mistake("scale_of_d_v", "the scores were scaled by 1/√d_v, not by 1/√d", "the scale: d is the number of Q's columns",
                ("Q.shape[-1] ** -0.5", "V.shape[-1] ** -0.5")),
        Mistake("m_of_this_tile", "the maximum of the newest tile was the reference, also where an earlier one was larger: exp(m − m_new) overflows",
                "m_new: the largest so far, max(m, the tile's)", ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "S_j.amax(-1, keepdim=True)")),
        ],
    hints=[
        "A tile in units of its own maximum m_j is exp(m_j − m) times too large against one in units of m. Keep one m for all.",
        "When a new tile raises the maximum, multiply what O and l hold so far by exp(m − m_new).",
        "l adds up the weights of all tiles. O / l is the answer, and the division stands after the loop.",
    ],
)
