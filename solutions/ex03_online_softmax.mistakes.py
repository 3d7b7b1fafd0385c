import torch

from flashlab.memory import kernel, store
from flashlab_course.check.cases import Mistake, case_of, in_float64, normal

TERMS, SUM = "torch.exp(piece - m_new).sum()", "l * torch.exp(m - m_new) + torch.exp(piece - m_new).sum()"
FACTOR = "torch.exp(m - m_new)"
LOOP = "for part in tiles(len(x), B):"

outputs = [("m",), ("l",)]
truth = lambda x, B: (x.double().max(), torch.exp(x.double() - x.double().max()).sum())
sram_bytes = lambda x, B: (32 * B + 128) * x.element_size()     # a dozen copies of a piece in float64, no long row
most = lambda x, B: {"x": B}


def call(fn, x, B):
    m, l = torch.empty(1, dtype=x.dtype), torch.empty(1, dtype=x.dtype)
    with kernel("online_softmax", x=x, m_out=m, l_out=l):
        found = fn(x, B)
        scalars = isinstance(found, (tuple, list)) and [isinstance(T, torch.Tensor) and T.ndim == 0 for T in found]
        if scalars != [True, True]:
            return found                       # the checker says what is wrong with it
        one = torch.ones(1, dtype=x.dtype)     # on chip, and so is the product; a number from Python is not
        store(m, slice(0, 1), found[0] * one)
        store(l, slice(0, 1), found[1] * one)
    return m[0].clone(), l[0].clone()


@case_of
def case(N, B, *, seed, factor=1.0, shift=0.0, falling=None):
    x = normal(N, seed=seed, factor=factor) + shift
    return {"x": x if falling is None else x.sort(descending=falling).values, "B": B}


cases = [case("one piece", 3, 4, seed=400),
         case("two pieces, rising", 6, 3, seed=402, falling=False),
         case("a short last piece", 7, 3, seed=415, falling=False),
         case("one score at a time", 5, 1, seed=406),
         case("scores in the hundreds", 12, 5, seed=411, factor=300),
         case("scores around 900", 6, 2, seed=413, shift=900, factor=4),
         case("scores around −900", 6, 2, seed=414, shift=-900, factor=4),
         in_float64(case("a single score", 1, 4, seed=412)),
         case("a long row", 400, 2, seed=416)]
mistakes = [
    Mistake("no_rescale_l", "l was not rescaled when the maximum grew",
            "l, and whether m is still the old maximum there", (SUM, f"l + {TERMS}")),
    Mistake("factor_added", "exp(m − m_new) was added to l, but it has to multiply l", "what the factor does to l",
            ("l * " + FACTOR, "l + " + FACTOR)),
    Mistake("factor_inverted", "the factor of l was upside down: exp(m_new − m)", "the sign of the exponent",
            (FACTOR, "torch.exp(m_new - m)"), also=[[(FACTOR, "torch.exp(torch.where(m == -inf, 0, m_new - m))")]]),
    Mistake("m_not_carried", "m was not set to m_new at the end of a step", "what a step leaves for the next one",
            ("m = m_new", "m = m")),
    Mistake("m_of_this_piece", "m_new was the maximum of this piece alone", "m_new: it covers all scores so far",
            ("torch.maximum(m, piece.amax())", "piece.amax()")),
    Mistake("m_starts_at_0", "m started at 0, which scores can fall below", "the value of m before the first piece",
            ("torch.full((), -inf)", "torch.zeros(())")),
    Mistake("starts_again", "l started again from the new piece when the maximum grew",
            "what becomes of the earlier pieces when m grows", (SUM, f"l * (m == m_new) + {TERMS}")),
    Mistake("units_of_the_piece", "the piece's exponentials were shifted by its own maximum, not by m_new",
            "the unit of the piece's sum", (TERMS, "torch.exp(piece - piece.amax()).sum()")),
    Mistake("sum_rescaled_too", "exp(m − m_new) multiplied the new piece's sum as well",
            "which of the two sums is in the old unit", (SUM, f"(l + {TERMS}) * torch.exp(m - m_new)"),
            also=[[(SUM, f"(l + {TERMS}) * torch.exp(torch.where(m == -inf, m_new, m) - m_new)")]]),
    Mistake("converted_afterwards", "a piece was shifted by the old maximum, which overflows", "when m is known", (SUM,
             f"{TERMS} if part.start == 0 else (l + torch.exp(piece - m).sum()) * torch.exp(m - m_new)")),
    Mistake("unshifted", "exp was taken of numbers that no maximum had been subtracted from", "what goes into exp",
            (SUM, "l + torch.exp(piece).sum()"), ("return m, l", "return m, l * torch.exp(-m)")),
    Mistake("l_starts_at_1", "the first score was counted twice: before the loop and in it", "where the pieces begin",
            ("torch.full((), -inf)", "load(x, slice(0, 1))[0]"), ("torch.zeros(())", "torch.ones(())")),
    Mistake("tail_dropped", "the short last piece was never read", "the number of pieces", ("tiles(len(x), B)",
             "tiles(len(x) // B * B, B)")),
    Mistake("two_passes", "the row was read twice, once for the maximum and once for the sum", "the loads", (LOOP,
             f"{LOOP}\n        m = torch.maximum(m, load(x, part).amax())\n    {LOOP}")),
]
hints = ["Compute m_new first, then l with both m and m_new, then set m = m_new.",
         "With m = −inf and l = 0 at the start, the first step needs no special case: exp(−inf) = 0.",
         "exp(x − m_new) = exp(x − m) · exp(m − m_new): one factor turns all the old terms at once."]
