"""Cases and mistakes of ex12_exp2."""

import torch
from torch.overrides import TorchFunctionMode

from flashlab_course.check import limits
from flashlab_course.check.cases import LOOSE, normal, widest
from flashlab_course.check.form import Case, Exercise, Mistake, Output

FACTOR, MAXIMUM, ALPHA = "factor = scale * LOG2_E", "torch.maximum(m_i, S_ij.amax(-1) * factor)", "alpha = torch.exp2(m_i - m_new)"
P, L = "P_ij = torch.exp2(S_ij * factor - m_new[:, None])", "(m_i + torch.log2(l_i)) / LOG2_E"
UPDATE_L, UPDATE_O = "alpha * l_i + P_ij.sum(-1)", "alpha[:, None] * O_i + P_ij @ V_j"


def truth(Q, K, V, scale, B_c):
    S = Q.double() @ K.double().T * scale
    return torch.softmax(S, -1) @ V.double(), torch.logsumexp(S, -1)


def forbid(shape, Q, K, V, scale, B_c):
    if len(K) > max(B_c, widest(Q, V)) and len(Q) > 1 and sorted(size for size in shape if size > 1) == sorted((len(Q), len(K))):
        return f"the whole of S, {shape}, was made: no more than B_c = {B_c} of its columns at a time"
    return None


class Factors(TorchFunctionMode):
    """Counts the products of a whole tile of scores and a number."""

    NAMES = {"mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply", "div", "div_", "__truediv__", "__itruediv__", "true_divide", "divide"}

    def __init__(self, *shape):
        super().__init__()
        self.shapes, self.count = (shape, shape[::-1]), 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        tiles = [arg for arg in args if isinstance(arg, torch.Tensor) and tuple(arg.shape) in self.shapes]
        self.count += getattr(func, "__name__", "") in self.NAMES and len(tiles) == 1 and all(
            arg is tiles[0] or not getattr(arg, "ndim", 0) for arg in args)
        return found


def folded(exercise, fn):
    """Does each score meet one factor? In a case where no other tensor has the shape of a tile."""
    inputs = next(case for case in exercise.cases if case.name == "values wider than keys").make()
    N_q, N_k, B_c = len(inputs["Q"]), len(inputs["K"]), inputs["B_c"]
    blocks, factors = N_k // B_c, Factors(N_q, B_c)     # a short block may be as narrow as m or l

    def count():
        with factors:
            fn(**inputs)

    if limits.protected(count, exercise.seconds)[1] is not None or factors.count <= blocks:
        return None
    mistake = next(m for m in exercise.mistakes if m.name == "not_folded")
    return mistake, f"But in {blocks} whole blocks tiles of scores were multiplied by a number {factors.count} times"


def case(name, N_q, N_k, B_c, *, seed, scale=0.5, d=4, d_v=4, factor=1.0, shift=0.0, sort=None, dtype=torch.float32):
    def make():
        Q, K, V = normal(N_q, d, seed=seed, dtype=dtype), normal(N_k, d, seed=seed + 1, dtype=dtype), normal(N_k, d_v, seed=seed + 2, dtype=dtype)
        Q[:, 0], K[:, 0] = 1, K[:, 0] + shift / scale                 # each score is moved by `shift`
        if sort:
            K[:, 0] = shift / scale + torch.linspace(0, 3, N_k, dtype=dtype).flip(0 if sort == "falling" else ())
        return {"Q": Q * factor, "K": K, "V": V, "scale": scale, "B_c": B_c}

    holds = {"more than one key block": N_k > B_c, "a short last key block": N_k % B_c != 0, "d_v ≠ d": d_v != d,
             "large scores": factor > 1 or abs(shift) > 50, "float64 inputs": dtype == torch.float64,
             "a maximum that grows": N_k > B_c and sort != "falling"}
    return Case(name, make, frozenset(f for f, true in holds.items() if true), {"N_q": N_q, "N_k": N_k, "B_c": B_c, "scale": scale},
                LOOSE if factor > 1 or abs(shift) > 50 else 0.0)


EXERCISE = Exercise(
    function="attend",
    outputs=(Output("O", ("query", "column")), Output("L", ("query",))),
    truth=truth,
    forbid=forbid,
    without=("softmax", "attention", "base_e"),
    after=[folded],
    cases=[
        case("one key", 2, 1, 1, seed=1200),
        case("one block", 3, 4, 4, seed=1203),
        case("two blocks, rising", 3, 6, 3, seed=1206, sort="rising"),
        case("two blocks, falling", 3, 6, 3, seed=1209, sort="falling"),
        case("three blocks, the last one short", 4, 8, 3, seed=1212),
        case("values wider than keys", 3, 7, 2, seed=1215, d=3, d_v=5),
        case("a scale of 2", 4, 6, 2, seed=1218, scale=2.0),
        case("a small scale", 4, 6, 2, seed=1221, scale=0.125),
        case("many blocks", 3, 44, 4, seed=1248),
        case("two blocks of six", 3, 12, 6, seed=1251),
        case("one key at a time", 2, 5, 1, seed=1224),
        case("float64", 3, 7, 3, seed=1227, dtype=torch.float64),
        case("scores around 800, falling", 3, 8, 2, seed=1230, shift=800, scale=0.25, sort="falling"),
        case("scores around −800", 3, 8, 2, seed=1233, shift=-800, scale=0.25, sort="rising"),
        case("scores around 700, a scale of 4", 3, 8, 2, seed=1236, shift=700, scale=4.0, sort="rising"),
        case("scores rising by hundreds", 3, 6, 2, seed=1242, d=1, factor=150.0, scale=1.0, sort="rising"),
        case("scores falling by hundreds", 3, 6, 2, seed=1245, d=1, factor=150.0, scale=1.0, sort="falling"),
        case("scores in the hundreds", 4, 9, 3, seed=1239, factor=150.0, scale=0.5),
    ],
    mistakes=[
        Mistake("no_log2e", "the factor was the scale alone: the weights were 2^score, not e^score", "the factor: scale · log2(e)", (FACTOR, "factor = scale")),
        Mistake("ln2_for_log2e", "the factor was scale · ln(2), which is the scale divided by log2(e)", "the factor: e^x is 2^(x · log2(e)), and log2(e) is 1.44",
                (FACTOR, "factor = scale / LOG2_E"), also=[[(FACTOR, "factor = scale * 0.6931471805599453")]]),
        Mistake("alpha_converted_again", "alpha was 2^((m_i − m_new) · log2(e)), which is e^(m_i − m_new), though both are in base 2", "alpha: 2^(m_i − m_new)",
                (ALPHA, "alpha = torch.exp2((m_i - m_new) * LOG2_E)")),
        Mistake("only_m_converted", "of L only m_i was taken back to base e, log2(l_i) was not",
                "L: m_i and log2(l_i) are both in base 2, and both have to leave it", (L, "m_i / LOG2_E + torch.log2(l_i)")),
        Mistake("only_l_converted", "of L only log2(l_i) was taken back to base e, m_i was not",
                "L: m_i and log2(l_i) are both in base 2, and both have to leave it", (L, "m_i + torch.log2(l_i) / LOG2_E")),
        Mistake("maximum_in_base_e", "the maximum was kept in base e beside exponents in base 2, which overflows for large scores",
                "m_new: the row's maximum times factor", (MAXIMUM, "torch.maximum(m_i, S_ij.amax(-1) * scale)")),
        Mistake("m_starts_at_0", "the running maximum was never below 0, as if it started there: rows far below 0 underflow",
                "the first value of m_i: below any score, −inf", ("Q.new_full((len(Q),), -inf)", "Q.new_zeros(len(Q))")),
        Mistake("l_not_rescaled", "l_i was not multiplied by 2^(m_i − m_new) when the maximum grew, or by 1: m_i was no longer the old one",
                "l_i: what is there already times 2^(old maximum − new maximum)", ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
        Mistake("last_block_lost", "a short last block of keys was left out", "the blocks of keys: ⌈N_k / B_c⌉ of them, the last may be short",
                ("range(0, len(K), B_c)", "range(0, len(K) - B_c + 1, B_c)")),
        Mistake("maximum_of_first_block", "the maximum was that of the first block for good, and later scores far above it overflowed",
                "m_new: the larger of m_i and the block's maximum", (MAXIMUM, "torch.where(m_i == -inf, S_ij.amax(-1) * factor, m_i)")),
        Mistake("whole_S", "all scores were made at once, N_q × N_k of them, which is what the blocks are there to avoid", "the loop: each step makes the scores of B_c keys", body="""
            S = Q @ K.T * (scale * LOG2_E)
            m = S.amax(-1)
            P = torch.exp2(S - m[:, None])
            return P @ V / P.sum(-1)[:, None], (m + torch.log2(P.sum(-1))) / LOG2_E
            """),
        Mistake("in_float32", "with float64 inputs something was kept in float32: the inputs, or what is summed up",
                "the dtype: that of the inputs throughout, for O_i, l_i and m_i, too",
                ("factor = scale * LOG2_E", "factor = scale * LOG2_E\n    Q, K, V = Q.float(), K.float(), V.float()"),
                also=[[("factor = scale * LOG2_E", "factor = scale * LOG2_E\n    wide, Q, K, V = Q.dtype, Q.float(), K.float(), V.float()"),
                       ("return O_i / l_i[:, None], (m_i + torch.log2(l_i)) / LOG2_E",
                        "return (O_i / l_i[:, None]).to(wide), ((m_i + torch.log2(l_i)) / LOG2_E).to(wide)")]]),
        Mistake("O_as_wide_as_Q", "O was made with d columns, as many as Q has", "the shape of O: it has V's columns, d_v",
                ("Q.new_zeros(len(Q), V.shape[1])", "torch.zeros_like(Q)")),
        Mistake("padded_with_zeros", "a short last block was filled up with zeros, and each of them weighs 2^(0 − m)",
                "the last block: it is short, or what fills it up is hidden with −inf", ("K_j, V_j = K[first:first + B_c], V[first:first + B_c]",
                 "K_j, V_j = (torch.nn.functional.pad(T[first:first + B_c], (0, 0, 0, max(0, first + B_c - len(T)))) for T in (K, V))")),
        Mistake("not_folded", "the scores were multiplied twice, by the scale and by log2(e)", "one factor, scale · log2(e), that each score meets once",
                (FACTOR, "factor = LOG2_E"), ("S_ij = Q @ K_j.T", "S_ij = Q @ K_j.T * scale")),
    ],
    hints=[
        "factor = scale * LOG2_E, once, before the loop. S_ij is Q @ K_j.T, and nothing else.",
        "m_new = max(m_i, row maximum of S_ij times factor); alpha = 2^(m_i − m_new); P_ij = 2^(S_ij · factor − m_new).",
        "At the end log2 of the sum is m_i + log2(l_i). Divide all of it by LOG2_E to get the natural logarithm.",
        "Only large scores are wrong: is m_new the largest exponent, in the same base as the exponents themselves?",
        "One block is right, more are not: what do l_i and O_i count in, once the maximum has grown?",
    ],
)
