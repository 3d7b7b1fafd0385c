import torch
from torch.overrides import TorchFunctionMode

from flashlab_course.check import limits
from flashlab_course.check.cases import Mistake, case_of, no_scores, normal

FACTOR, MAXIMUM = "factor = scale * LOG2_E", "S_ij.amax(-1) * factor"
L = "(m_i + torch.log2(l_i)) / LOG2_E"


class Factors(TorchFunctionMode):
    """Counts the products of a whole tile of scores and a number."""

    def __init__(self, *shape):
        super().__init__()
        self.shapes, self.count = (shape, shape[::-1]), 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "").strip("_")
        if name in ("mul", "rmul", "imul", "multiply", "div", "truediv", "itruediv", "true_divide", "divide"):
            tiles = [isinstance(arg, torch.Tensor) and tuple(arg.shape) in self.shapes for arg in args]
            self.count += any(tiles) and any(not getattr(arg, "ndim", 0) for arg in args)
        return func(*args, **(kwargs or {}))


def folded(exercise, fn):
    """Does each score meet one factor? In a case where no other tensor has the shape of a tile."""
    inputs = exercise.case("values wider than keys").make()
    blocks = len(inputs["K"]) // inputs["B_c"]          # a short block may be as narrow as m or l
    with Factors(len(inputs["Q"]), inputs["B_c"]) as factors:
        error = limits.protected(lambda: fn(**inputs), exercise.seconds)[1]
    if error is not None or factors.count <= blocks:
        return None
    said = f"But in {blocks} whole blocks tiles of scores were multiplied by a number {factors.count} times"
    return exercise.mistake("not_folded"), said


outputs = [("O", "query", "column"), ("L", "query")]
forbid = no_scores
without = ("softmax", "attention", "base_e")
after = [folded]
features = {"a maximum that grows": lambda N_k, B_c, sort: N_k > B_c and sort != "falling"}


def truth(Q, K, V, scale, B_c):
    S = Q.double() @ K.double().T * scale
    return torch.softmax(S, -1) @ V.double(), torch.logsumexp(S, -1)


@case_of
def case(N_q, N_k, B_c, *, seed, scale=0.5, d=4, d_v=4, factor=1.0, shift=0.0, sort="", dtype=torch.float32):
    Q, K = (normal(N, d, seed=seed + n, dtype=dtype) for n, N in enumerate((N_q, N_k)))
    ramp = torch.linspace(0, 3, N_k, dtype=dtype)
    Q[:, 0] = 1                                     # so that K's first column is a part of every score
    K[:, 0] = {"rising": ramp, "falling": ramp.flip(0), "": K[:, 0]}[sort] + shift / scale
    return {"Q": Q * factor, "K": K, "V": normal(N_k, d_v, seed=seed + 2, dtype=dtype), "scale": scale, "B_c": B_c}


cases = [case("one block", 3, 4, 4, seed=1203, d=5, d_v=6),
         case("two blocks, rising", 3, 8, 4, seed=1206, sort="rising"),
         case("values wider than keys", 3, 7, 2, seed=1215, d=3, d_v=5),
         case("many blocks", 3, 44, 4, seed=1248),
         case("one key at a time", 2, 5, 1, seed=1224),
         case("float64", 3, 7, 3, seed=1227, dtype=torch.float64),
         case("scores around 800, falling", 3, 8, 2, seed=1230, shift=800, scale=0.25, sort="falling"),
         case("scores around −800", 3, 8, 2, seed=1233, shift=-800, scale=0.25, sort="rising"),
         case("scores rising by hundreds", 3, 6, 2, seed=1242, d=1, factor=150.0, scale=1.0, sort="rising")]
mistakes = [
    Mistake("no_log2e", "the weights were 2^score, not e^score", "the factor", (FACTOR, "factor = scale")),
    Mistake("not_folded", "the scores were multiplied twice, by the scale and by log2(e)",
            "how many factors each score meets", (FACTOR, "factor = LOG2_E"), ("Q @ K_j.T", "Q @ K_j.T * scale")),
    Mistake("alpha_converted_again", "the exponent of alpha got log2(e) once more", "the base that m_i is kept in",
            ("(m_i - m_new)", "((m_i - m_new) * LOG2_E)")),
    Mistake("alpha_without_factor", "the maxima had no factor yet when alpha was computed",
            "the exponent of alpha, beside that of P_ij", ("(m_i - m_new)", "((m_i - m_new) / factor)")),
    Mistake("maximum_in_base_e", "the maximum was kept in base e beside exponents in base 2",
            "the factor that the maximum gets", (MAXIMUM, "S_ij.amax(-1) * scale")),
    Mistake("maximum_of_first_block", "the maximum of the first block was kept for all others",
            "the maximum after the first block", ("torch.maximum(m_i,", "torch.where(m_i != -inf, m_i,")),
    Mistake("m_starts_at_0", "the running maximum started at 0, which scores can fall below",
            "the value of m_i before the first block", ("Q.new_full((len(Q),), -inf)", "Q.new_zeros(len(Q))")),
    Mistake("l_not_rescaled", "l_i was not rescaled when the maximum grew", "the old sum", ("alpha * l_i", "l_i")),
    Mistake("L_in_base_2", "L was left in base 2", "the base of the logarithm in L", (L, "m_i + torch.log2(l_i)")),
    Mistake("only_m_converted", "in L m_i was converted to base e, log2(l_i) was not", "both terms of L", (L,
             "m_i / LOG2_E + torch.log2(l_i)")),
    Mistake("only_l_converted", "in L log2(l_i) was converted to base e, m_i was not", "both terms of L", (L,
             "m_i + torch.log2(l_i) / LOG2_E")),
    Mistake("last_block_lost", "the short last key block was never visited", "the number of key blocks",
            ("range(0, len(K), B_c)", "range(0, len(K) - B_c + 1, B_c)")),
    Mistake("in_float32", "float64 inputs were turned into float32", "the dtype of what is summed up", (FACTOR,
             f"{FACTOR}\n    Q, K, V = Q.float(), K.float(), V.float()")),
]
hints = ["Every exponent is a difference of two numbers. Both have to be in the same base, and carry the same factor.",
         "Only L is wrong: log2 of the whole sum has two terms. What turns their sum into a natural logarithm?",
         "One block is right, more are not: what do l_i and O_i count in, once the maximum has grown?"]
