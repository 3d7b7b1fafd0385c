"""Cases and mistakes of ex03_online_softmax."""

import torch

from flashlab.memory import kernel, store
from flashlab_course.check.cases import LOOSE, in_float64, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def call(fn, x, B):
    m, l = torch.empty(1, dtype=x.dtype), torch.empty(1, dtype=x.dtype)
    with kernel("online_softmax", x=x, m=m, l=l):
        found = fn(x, B)
        if not (isinstance(found, (tuple, list)) and len(found) == 2 and all(isinstance(v, torch.Tensor) and v.ndim == 0 for v in found)):
            return found                       # the checker says what is wrong with it
        one = torch.ones(1, dtype=x.dtype)     # on chip, as the product with it is: a number that came from Python is not
        store(m, slice(0, 1), found[0] * one)
        store(l, slice(0, 1), found[1] * one)
    return m[0].clone(), l[0].clone()


def case(name, N, B, *, seed, factor=1.0, shift=0.0, sort=False, features=()):
    def make():
        x = normal(N, seed=seed, factor=factor) + shift
        return {"x": x.sort(descending=sort == "down").values if sort else x, "B": B}

    more = {"more than one piece": N > B, "more than two pieces": N > 2 * B, "a short last piece": N % B != 0 and N > B}
    return Case(name, make, frozenset([*features, *(f for f, holds in more.items() if holds)]), {"N": N, "B": B}, LOOSE if factor > 1 or shift < -50 else 0.0)


def truth(x, B):
    x = x.double()
    return x.max(), torch.exp(x - x.max()).sum()


EXERCISE = Exercise(
    function="online_softmax",
    outputs=(Output("m"), Output("l")),
    call=call,
    truth=truth,
    sram_bytes=lambda x, B: (32 * B + 128) * x.element_size(),     # a dozen copies of a piece in float64, and no long row
    most=lambda x, B: {"x": B},
    cases=[
        case("one piece", 3, 3, seed=400),
        case("two pieces, falling", 4, 2, seed=401, sort="down"),
        case("two pieces, rising", 4, 2, seed=402, sort="up", features=["a maximum that grows"]),
        case("four pieces, rising", 8, 2, seed=403, sort="up", features=["a maximum that grows"]),
        case("four pieces", 12, 3, seed=404, features=["a maximum that grows"]),
        case("a short last piece", 7, 3, seed=415, sort="up", features=["a maximum that grows"]),
        case("one score at a time", 5, 1, seed=406, features=["a maximum that grows"]),
        case("all scores negative", 6, 2, seed=407, shift=-5, features=["a maximum that grows", "negative scores only"]),
        case("scores in the hundreds", 12, 2, seed=408, factor=150, features=["a maximum that grows", "large scores"]),
        case("scores far below 0", 6, 2, seed=409, shift=-130, features=["a maximum that grows", "negative scores only", "only scores far below 0"]),
        case("one score", 1, 4, seed=410),
        case("scores around 900", 6, 2, seed=413, shift=900, factor=4, features=["a maximum that grows", "large scores"]),
        case("scores around −900", 6, 2, seed=414, shift=-900, factor=4, features=["a maximum that grows", "negative scores only", "only scores far below 0"]),
        in_float64(case("a single score", 1, 4, seed=412)),
        case("a long row", 400, 2, seed=416, features=["a maximum that grows", "a row longer than the chip"]),
        case("scores up to 500", 12, 5, seed=411, factor=300, features=["a maximum that grows", "large scores"]),
    ],
    mistakes=[
        Mistake("no_rescale_l", "l kept the unit of the old maximum when it grew: exp(m − m_new) was left out, or was 1 because m was no longer the old one",
                "l where the maximum grows: its old terms are exp(x − m), the new ones exp(x − m_new), and exp(m − m_new) needs the old m",
                ("l * torch.exp(m - m_new) +", "l +")),
        Mistake("converted_afterwards", "a piece was added in an older unit, of the maximum before it or of the first piece, and converted later, which overflows "
                "where the maximum grows by much", "the order: m_new first, then the exponents of the piece, x − m_new", (
                 "l * torch.exp(m - m_new) + torch.exp(piece - m_new).sum()",
                 "torch.exp(piece - m_new).sum() if part.start == 0 else (l + torch.exp(piece - m).sum()) * torch.exp(m - m_new)")),
        Mistake("m_of_this_piece", "m_new was the maximum of this piece alone",
                "m_new: the larger of m and the piece's maximum", ("torch.maximum(m, piece.amax())", "piece.amax()")),
        Mistake("m_starts_at_0", "m started at 0, or hardly above it, which is above every negative score",
                "the first value of m: below any score, -inf", ("torch.full((), -inf)", "torch.zeros(())")),
        Mistake("l_starts_at_1", "what m and l started from, the first score or the first piece, was counted once more when the pieces were read",
                "the first values: m = −inf and l = 0, or the pieces begin behind what was counted", ("torch.full((), -inf)", "load(x, slice(0, 1))[0]"),
                ("torch.zeros(())", "torch.ones(())"), also=[[("m = torch.full((), -inf)", "first = load(x, slice(0, min(B, len(x))))\n    m = first.amax()"),
                       ("l = torch.zeros(())", "l = torch.exp(first - m).sum()")]]),
        Mistake("tail_dropped", "the last, short piece was never read", "the pieces: ⌈N / B⌉ of them, the last one short",
                ("tiles(len(x), B)", "tiles(len(x) // B * B, B)")),
        Mistake("unshifted", "exp was taken of numbers that no maximum was subtracted from, the scores or m and m_new by themselves, and overflows",
                "the exponents: differences from m_new, subtracted before exp, which overflows at 89",
                ("l * torch.exp(m - m_new) + torch.exp(piece - m_new).sum()", "l + torch.exp(piece).sum()"), ("return m, l", "return m, l * torch.exp(-m)")),
        Mistake("starts_again", "l started again from the new piece when the maximum grew, and forgot the pieces before",
                "l where the maximum grows: what was summed before is rescaled, not thrown away", ("l * torch.exp(m - m_new)", "l * (m == m_new)")),
        Mistake("units_of_the_piece", "the piece's sum was in units of exp(its own maximum), not of exp(m_new)",
                "the exponent of the piece: m_new, which may come from an earlier piece", ("torch.exp(piece - m_new)", "torch.exp(piece - piece.amax())")),
        Mistake("two_passes", "the row was read twice, once for the maximum and once for the sum", "the number of loads: with the rescaling one pass is enough",
                ("for part in tiles(len(x), B):",
                 "for part in tiles(len(x), B):\n        m = torch.maximum(m, load(x, part).amax())\n    for part in tiles(len(x), B):")),
        Mistake("all_at_once", "the whole row was loaded at once", "the pieces: at most B scores fit on the chip", ("tiles(len(x), B)", "tiles(len(x), len(x))")),
        Mistake("logsumexp", "l was the logarithm of the sum", "what is returned: l itself, not log(l)", ("return m, l", "return m, torch.log(l)")),
        Mistake("sum_rescaled_too", "the new piece's sum was multiplied by exp(m − m_new) as well",
                "what exp(m − m_new) multiplies: the old l alone; the new piece is in units of exp(m_new) already", (
                 "l * torch.exp(m - m_new) + torch.exp(piece - m_new).sum()",
                 "(l + torch.exp(piece - m_new).sum()) * torch.exp(torch.where(m == -inf, m_new, m) - m_new)"),
                also=[[("l * torch.exp(m - m_new) + torch.exp(piece - m_new).sum()", "(l + torch.exp(piece - m_new).sum()) * torch.exp(m - m_new)")]]),
        Mistake("in_16_bits", "the scores were rounded to 16 bits after the load", "the piece: it keeps x's dtype",
                ("piece = load(x, part)", "piece = load(x, part).half().to(x.dtype)"), also=
                     [[("piece = load(x, part)", "piece = load(x, part).bfloat16().to(x.dtype)")]]),
        Mistake("padded_with_zeros", "a short last piece was filled up with zeros, and each of them adds exp(0 − m)",
                "the last piece: it is short, or filled up with −inf",
                ("piece = load(x, part)", "piece = torch.nn.functional.pad(load(x, part), (0, B - (part.stop - part.start)))")),
    ],
    hints=[
        "exp(x − m_new) = exp(x − m) · exp(m − m_new): one factor turns all the old terms at once.",
        "With m = −inf and l = 0 at the start, the first step needs no special case: exp(−inf) = 0.",
        "Compute m_new first, then l with both m and m_new, then set m = m_new.",
    ],
)
