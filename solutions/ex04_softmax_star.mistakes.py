"""Cases and mistakes of ex04_softmax_star."""

from torch.overrides import TorchFunctionMode

from flashlab import oracle
from flashlab_course.check import limits
from flashlab_course.check.cases import HUGE, attention_case, epsilon, in_float64, whole_rescaled, widest
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
        epsilon(("return O / l", "return O / (l + ε)")),
        Mistake("softmax_star", "this is softmax* still: each tile in units of its own maximum, added up and never divided",
                "two things: the common maximum of all tiles, and the sum of the weights", STAR, ("alpha * O + P_j @ V_j", "O + P_j @ V_j"), ("O / l", "O")),
        Mistake("not_divided", "the tiles were brought to a common maximum, but their sum was never divided by l",
                "the division by l: the weights exp(S − m) do not sum to 1", ("O / l", "O")),
        Mistake("own_units", "each tile counted in units of its own maximum, in O and in l, and the tiles were added as they were, then divided",
                "the units: what counts in exp(m_1) and what counts in exp(m_2) is added only when both are in exp(m)", STAR,
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j"), ("alpha * l + P_j.sum(-1, keepdim=True)", "l + P_j.sum(-1, keepdim=True)")),
        Mistake("softmax_per_tile_averaged", "each tile got a softmax of its own, and the results were averaged",
                "the weight of each tile: a tile with small scores counts less",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True) / -(-len(K) // B_c)"), STAR, ("O / l", "O"),
                also=[[("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True) * len(K_j) / len(K)"), STAR, ("O / l", "O")]]),
        Mistake("softmax_per_tile_added", "each tile got a softmax of its own, and the results were added",
                "the weight of each tile: together, not each by itself, the weights sum to 1",
                ("alpha * O + P_j @ V_j", "O + P_j @ V_j / P_j.sum(-1, keepdim=True)"), STAR, ("O / l", "O")),
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
        Mistake("l_of_last_tile", "O was divided by the sum of the last tile alone", "l: it adds up all tiles, the old ones rescaled",
                ("alpha * l + P_j.sum(-1, keepdim=True)", "P_j.sum(-1, keepdim=True)")),
        Mistake("divided_inside", "O was divided by l in every step and not at the end", "where the division stands: it belongs after the loop",
                ("alpha * O + P_j @ V_j", "(alpha * O + P_j @ V_j) / l"), ("return O / l", "return O")),
        Mistake("divided_twice", "O was divided by l in every step and once more at the end", "the division by l: once, after the last tile",
                ("alpha * O + P_j @ V_j", "(alpha * O + P_j @ V_j) / l")),
        Mistake("m_not_carried", "each tile forgot the ones before: the result is the softmax of the last tile alone",
                "what a step leaves behind: m, l and O of all tiles so far", ("m = m_new", "")),
        Mistake("unshifted", "the scores went into exp without a maximum being subtracted first", "the exponent: float32 overflows at exp(89)",
                ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "torch.zeros_like(m)")),
        Mistake("one_maximum", "one maximum was taken for all queries of the tile", "the maximum: each row has a maximum of its own",
                ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "torch.maximum(m, S_j.max())")),
        Mistake("tail_dropped", "the last, short block was never visited", "the blocks: ⌈N_k / B_c⌉ of them, the last one short",
                ("range(0, len(K), B_c)", "range(0, len(K) // B_c * B_c, B_c)"),
                also=[[("range(0, len(K), B_c)", "range(0, max(1, round(len(K) / B_c)) * B_c, B_c)")]]),
        Mistake("scale_missing", "the scores were not scaled by 1/√d", "S_j = Q K_jᵀ / √d", ("* Q.shape[-1] ** -0.5", "")),
        Mistake("no_keepdim", "the sums of the rows were broadcast along the columns of O",
                "the shapes: l of shape (N_q,) needs `[:, None]` or `keepdim=True` to meet O (N_q, d_v)", ("return O / l", "return O / l[:, 0]")),
        Mistake("whole_S", "S was made as a whole, N_q x N_k, which is what tiles are there to avoid",
                "the loop: each step makes at most B_c columns of S and keeps none of them",
                body="""
                return torch.softmax(Q @ K.T * Q.shape[-1] ** -0.5, -1) @ V
                """),
        Mistake("alpha_of_old", "the new maximum was taken over before alpha was computed, so that alpha was always 1", "the order: alpha needs the old m",
                ("alpha = torch.exp(m - m_new)", "alpha = torch.ones_like(m)"), same_as="no_rescale"),
        Mistake("P_of_old_maximum", "the new tile was shifted by the old maximum", "the tile's exponent: S_j − m_new, which the tile itself has raised",
                ("torch.exp(S_j - m_new)", "torch.exp(S_j - torch.where(m == -inf, m_new, m))")),
        Mistake("P_of_own_maximum", "the new tile was shifted by its own maximum, though O and l are in units of the common one",
                "the tile's exponent: S_j − m_new, not the tile's own maximum", ("torch.exp(S_j - m_new)", "torch.exp(S_j - S_j.amax(-1, keepdim=True))")),
        Mistake("m_starts_at_0", "m was never below 0, as if it started there", "the first value of m: below any score, −inf",
                ("torch.full((len(Q), 1), -inf)", "torch.zeros(len(Q), 1)")),
        Mistake("O_of_last_tile", "O held the last tile alone", "O: it adds up all tiles, the old ones rescaled", ("alpha * O + P_j @ V_j", "P_j @ V_j")),
        Mistake("last_tile_only", "only the last tile counted, in O and in l", "O and l: both add up all tiles, the old ones rescaled",
                ("alpha * O + P_j @ V_j", "P_j @ V_j"), ("alpha * l + P_j.sum(-1, keepdim=True)", "P_j.sum(-1, keepdim=True)"),
                also=[[("alpha = torch.exp(m - m_new)", "alpha = torch.zeros_like(m)")]]),
        Mistake("whole_rescaled", "exp(m − m_new) multiplied the new tile as well",
                "what exp(m − m_new) multiplies: only what is there already is in the old units",
                ("alpha * O + P_j @ V_j", "torch.where(m == -inf, 1.0, alpha) * (O + P_j @ V_j)"),
                ("alpha * l + P_j.sum(-1, keepdim=True)", "torch.where(m == -inf, 1.0, alpha) * (l + P_j.sum(-1, keepdim=True))"),
                also=whole_rescaled(("alpha * l + P_j.sum(-1, keepdim=True)", "{} * (l + P_j.sum(-1, keepdim=True))"),
                             ("alpha * O + P_j @ V_j", "{} * (O + P_j @ V_j)"), "alpha", "torch.where(m == -inf, 1.0, alpha)")),
        Mistake("scale_of_tile", "the scores were scaled by the number of keys in the tile, 1/√B_c", "the scale: 1/√d, whatever the tile",
                ("Q.shape[-1] ** -0.5", "len(K_j) ** -0.5"), also=[[("Q.shape[-1] ** -0.5", "B_c ** -0.5")]]),
        Mistake("scale_of_N_k", "the scores were scaled by 1/√N_k", "the scale: 1/√d", ("Q.shape[-1] ** -0.5", "len(K) ** -0.5")),
        Mistake("scale_of_d_v", "the scores were scaled by 1/√d_v, not by 1/√d", "the scale: d is the number of Q's columns",
                ("Q.shape[-1] ** -0.5", "V.shape[-1] ** -0.5")),
        Mistake("scale_d", "the scores were divided by d where √d belongs", "the scale: 1/√d, once", ("Q.shape[-1] ** -0.5", "Q.shape[-1] ** -1.0")),
        Mistake("scale_multiplied", "the scores were multiplied by √d, not divided", "the scale: 1/√d, which is d ** -0.5",
                ("Q.shape[-1] ** -0.5", "Q.shape[-1] ** 0.5")),
        Mistake("V_at_block_number", "V was cut at the block's number, j, where K was cut at j · B_c", "the slice of V: the same keys as K",
                ("V[start : start + B_c]", "V[start // B_c : start // B_c + len(K_j)]"),
                also=[[("V[start : start + B_c]", "V[start // B_c : start // B_c + B_c]")]]),
        Mistake("V_of_first_block", "every tile met the first block of V", "the slice of V: the same keys as K",
                ("V[start : start + B_c]", "V[: len(K[start : start + B_c])]")),
        Mistake("K_of_first_block", "every tile was made from the first block of K", "the slice of K: block j starts at j · B_c",
                ("K[start : start + B_c]", "K[: len(V[start : start + B_c])]")),
        Mistake("mean_of_V", "O was divided by the number of keys, not by l", "the division: l is the sum of the weights", ("return O / l", "return O / len(K)")),
        Mistake("divided_by_alpha", "O was divided by exp(m − m_new), not multiplied",
                "the old O: times exp(m − m_new), so that it shrinks when the maximum grows", ("alpha * O + P_j", "torch.where(alpha == 0, O, O / alpha) + P_j")),
        Mistake("factor_added", "exp(m − m_new) was added to l, not multiplied with it", "the old l: a change of units is a product, l · exp(m − m_new)",
                ("alpha * l +", "alpha + l +")),
        Mistake("multiplied_by_l", "O was multiplied by l at the end, not divided", "the division by l", ("return O / l", "return O * l")),
        Mistake("scale_whole_root", "√d was rounded down to a whole number", "the scale: 1/√d, √d as it is, no whole number: d ** 0.5 or math.sqrt",
                ("Q.shape[-1] ** -0.5", "int(Q.shape[-1] ** 0.5) ** -1.0")),
        Mistake("m_of_this_tile", "the maximum of the newest tile was the reference, also where an earlier one was larger: exp(m − m_new) overflows",
                "m_new: the largest so far, max(m, the tile's)", ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "S_j.amax(-1, keepdim=True)")),
        Mistake("m_of_the_first_tile", "the maximum of the first tile was the reference for all: exp(S_j − m) overflows where a later one is much larger",
                "m_new: the largest so far, and O and l rescaled to it",
                ("torch.maximum(m, S_j.amax(-1, keepdim=True))", "m if start else S_j.amax(-1, keepdim=True)")),
        Mistake("O_as_wide_as_Q", "O was made with d columns, as many as Q has", "the shape of O: it has V's columns, d_v",
                ("torch.zeros(len(Q), V.shape[-1])", "torch.zeros_like(Q)")),
        Mistake("undone_with_the_new_l", "O was divided in every step, and the division was taken back with the l that had already changed",
                "the order: the old O was divided by the l of before", ("alpha * O + P_j @ V_j", "(alpha * l * O + P_j @ V_j) / l"), ("return O / l", "return O")),
        Mistake("padded_with_zeros", "a short last block was filled up with zeros, and each of them weighs exp(0 − m)",
                "the last block: it is short, or what fills it up is hidden with −inf", ("K_j, V_j = K[start : start + B_c], V[start : start + B_c]",
                 "K_j, V_j = (torch.nn.functional.pad(T[start : start + B_c], (0, 0, 0, max(0, start + B_c - len(T)))) for T in (K, V))")),
        Mistake("cut_into_B_c", "the keys were cut into B_c blocks, not into blocks of B_c",
                "a block has at most B_c keys: `split` takes their size, `chunk` their number", (
                 'for start in range(0, len(K), B_c):\n        K_j, V_j = K[start : start + B_c], V[start : start + B_c]',
                 "for K_j, V_j in zip(K.chunk(B_c), V.chunk(B_c)):")),
    ],
    hints=[
        "A tile in units of its own maximum m_j is exp(m_j − m) times too large against one in units of m. Keep one m for all.",
        "When a new tile raises the maximum, multiply what O and l hold so far by exp(m − m_new).",
        "l adds up the weights of all tiles. O / l is the answer, and the division stands after the loop.",
    ],
)
