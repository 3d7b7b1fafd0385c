from torch.overrides import TorchFunctionMode

from flashlab import oracle
from flashlab_course.check import limits
from flashlab_course.check.cases import BELOW, Mistake, attention_case, in_float64, no_scores

MAXIMUM, BLOCKS = "torch.maximum(m, S_j.amax(-1, keepdim=True))", "range(0, len(K), B_c)"
NEW_O, NEW_L = "alpha * O + P_j @ V_j", "alpha * l + P_j.sum(-1, keepdim=True)"
NO_RESCALE_O, NO_RESCALE_L = (NEW_O, "O + P_j @ V_j"), (NEW_L, "l + P_j.sum(-1, keepdim=True)")
STAR = (MAXIMUM, "S_j.amax(-1, keepdim=True)")


class Products(TorchFunctionMode):
    """The widest tile of scores that a product of matrices has made, with `rows` rows."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.widest = rows, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        product = getattr(func, "__name__", "") in ("matmul", "__matmul__", "mm", "einsum")
        if product and found.ndim == 2 and self.rows in found.shape and found.shape != (self.rows, self.rows):
            self.widest = max(self.widest, *found.shape)
        return found


def narrow(exercise, fn):
    """Has a block at most B_c keys? In a case where no other product is wider than its 5 rows."""
    inputs = exercise.case("many blocks").make()
    with Products(len(inputs["Q"])) as products:
        error = limits.protected(lambda: fn(**inputs), exercise.seconds)[1]
    if error is not None or products.widest <= len(inputs["Q"]):
        return None
    return exercise.mistake("cut_into_B_c"), f"But with B_c = {inputs['B_c']} a tile had {products.widest} keys"


outputs = [("O", "query", "column")]
truth = lambda Q, K, V, B_c: oracle.attention(Q, K, V)[0]
forbid = no_scores
after = [narrow]
without = ("attention",)
cases = [attention_case("one block", 3, 5, 4, 6, B_c=5, seed=1),
         attention_case("two blocks", 3, 8, 5, 6, B_c=4, seed=3),
         attention_case("a short last block", 3, 9, 5, 6, B_c=4, seed=5),
         attention_case("scores far below 0", 3, 6, 4, B_c=2, below=BELOW, seed=7),
         attention_case("scores up to 500", 4, 15, 5, 6, B_c=3, factor=250, seed=8),
         attention_case("fewer keys than B_c", 3, 5, 4, 6, B_c=8, seed=9),
         attention_case("many blocks", 5, 33, 4, 2, B_c=3, seed=12),
         in_float64(attention_case("a single key", 1, 1, 4, B_c=2, exact=True, seed=11))]
mistakes = [
    Mistake("own_units", "each tile was shifted by its own maximum, and added to O and l in that unit",
            "the unit of each tile", STAR, NO_RESCALE_O, NO_RESCALE_L,
            also=[[("S_j - m_new", f"S_j - {tile}")] for tile in (STAR[1], "S_j.amax()")]),
    Mistake("no_rescale", "neither O nor l was rescaled when the maximum grew",
            "the old sums, and whether m is still the old maximum there", NO_RESCALE_O, NO_RESCALE_L),
    Mistake("no_rescale_O", "O was not rescaled when the maximum grew; l was",
            "the sum of the earlier tiles, and the maximum it was made with", NO_RESCALE_O),
    Mistake("no_rescale_l", "l was not rescaled when the maximum grew; O was",
            "the sum of the earlier tiles, and the maximum it was made with", NO_RESCALE_L),
    Mistake("new_tile_rescaled", "exp(m − m_new) multiplied the new tile too", "which sum is in the old unit", (NEW_O,
             "torch.where(m == -inf, 1.0, alpha) * (O + P_j @ V_j)")),
    Mistake("alpha_inverted", "the factor was exp(m_new − m), not its inverse", "the sign of the exponent",
            ("torch.exp(m - m_new)", "torch.exp(m_new - m)")),
    Mistake("m_not_carried", "m was not set to m_new at the end of a step", "what a step leaves for the next one",
            ("m = m_new", "m = m")),
    Mistake("m_of_this_tile", "m_new was the maximum of this tile alone", "m_new: it covers all keys so far", STAR),
    Mistake("m_starts_at_0", "m started at 0, which scores can fall below", "the value of m before the first tile",
            ("torch.full((len(Q), 1), -inf)", "torch.zeros(len(Q), 1)")),
    Mistake("one_maximum", "one maximum was taken for all rows of the tile", "the dimension of the maximum", (MAXIMUM,
             "torch.maximum(m, S_j.max())")),
    Mistake("divided_inside", "O was divided by l in every step", "where the division by l stands", (NEW_O,
             f"({NEW_O}) / l"), ("return O / l", "return O"), also=[[(NEW_O, f"({NEW_O}) / l")]]),
    Mistake("not_divided", "O was returned without being divided by l", "the sum of a row's weights", ("return O / l",
             "return O")),
    Mistake("scale_missing", "the scores were not multiplied by 1/√d", "how the scores are computed",
            ("* Q.shape[-1] ** -0.5", "")),
    Mistake("scale_of_d_v", "the scores were multiplied by 1/√d_v", "the tensor that d is taken from",
            ("Q.shape[-1] ** -0.5", "V.shape[-1] ** -0.5")),
    Mistake("tail_dropped", "the short last block was never visited", "the number of blocks", (BLOCKS,
             "range(0, len(K) // B_c * B_c, B_c)")),
    Mistake("cut_into_B_c", "the keys were cut into B_c blocks, not blocks of B_c keys", "the size of a block",
            (f"for start in {BLOCKS}", "for K_j, V_j in zip(K.chunk(B_c), V.chunk(B_c))"),
            ("K_j, V_j = K[start : start + B_c], V[start : start + B_c]", "pass")),
]
hints = ["exp(S_j − m_j) is exp(m − m_j) times what it would be with m. Which m can all tiles share?",
         "When a new tile raises the maximum, what O holds is in an old unit. Which factor converts it?",
         "A row's weights sum to 1. Keep the sum l of all exponentials next to O, in the same unit."]
