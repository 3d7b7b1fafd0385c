"""Cases and mistakes of ex09_vector_add."""

import torch

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N, B, a=0.5, dtype=torch.float32, *, seed):
    features = {"more than one block": N > B, "a short last block": N % B != 0, "16-bit inputs": dtype == torch.float16, "an a other than 1": a != 1}
    inputs = lambda: {"a": a, "X": normal(N, seed=seed, dtype=dtype), "Y": normal(N, seed=seed + 1, dtype=dtype), "Out": torch.zeros(N, dtype=dtype), "B": B}
    return Case(name, inputs, frozenset(f for f, true in features.items() if true), {"N": N, "B": B, "a": a})


BYTES = "(X.dtype.element_ty.primitive_bitwidth // 8)"

EXERCISE = Exercise(
    function="axpy",
    outputs=(Output("Out", ("element",)),),
    truth=lambda a, X, Y, Out, B: (a * X.double() + Y.double(),),
    reads=("X", "Y"),
    writes=("Out",),
    seconds=6,
    traffic=lambda a, X, Y, Out, B: {"X": (len(X), 0), "Y": (len(X), 0), "Out": (0, len(X))},
    cases=[
        case("one block", 16, 16, seed=960),
        case("two blocks", 32, 16, seed=962),
        case("a short last block", 21, 16, seed=964),
        case("three blocks, the last one short", 70, 32, -2.0, seed=966),
        case("less than a block", 5, 64, seed=968),
        case("16-bit inputs", 100, 64, dtype=torch.float16, seed=970),
        case("one element", 1, 16, seed=972),
    ],
    mistakes=[
        Mistake("grid_floor", "the grid was rounded down, so that the last, short block got no program", "the grid: N / B rounded up, triton.cdiv(N, B)",
                ("triton.cdiv(N, B)", "max(1, N // B)"), also=[[("triton.cdiv(N, B)", "N // B")]]),
        Mistake("grid_of_elements", "a program was launched for each element, not for each block", "the grid: a program takes B elements",
                ("triton.cdiv(N, B)", "N")),
        Mistake("one_program", "a single program was launched", "the grid: as many programs as blocks", ("triton.cdiv(N, B)", "1")),
        Mistake("no_block_offset", "every program worked on the first block", "i: program p starts at p · B", ("tl.program_id(0) * B +", "")),
        Mistake("no_guard_load", "no mask kept the loads within the vectors: they read past the end of X and Y", "the mask of tl.load: i < N",
                ("tl.load(X + i, mine)", "tl.load(X + i)"), ("tl.load(Y + i, mine)", "tl.load(Y + i)"), stray=True),
        Mistake("no_guard_store", "no mask kept the store within Out: it wrote past the end", "the mask of tl.store: i < N", ("a * x + y, mine)", "a * x + y)")),
        Mistake("number_clamped", "numbers beyond the end became that of the last element, which was then loaded and stored again and again",
                "the mask: a position without an element neither loads nor stores", ("mine = i < N", "i = tl.minimum(i, N - 1)\n    mine = i < N")),
        Mistake("guard_off_by_one", "the mask let element N through, one too many: ≤ for <", "the last element is N − 1, so i < N",
                ("mine = i < N", "mine = i <= N"), stray=True),
        Mistake("guard_of_the_block", "positions within the block were held against N, not within the vector",
                "the mask: the number in the vector, p · B and the place in the block, against N", ("mine = i < N", "mine = tl.arange(0, B) < N")),
        Mistake("a_times_both", "Y was multiplied by a too", "a · x + y", ("a * x + y", "a * (x + y)")),
        Mistake("Y_not_loaded", "X took the place of Y: a · X + X", "a · x + y, with y loaded from Y", ("tl.load(Y + i, mine)", "tl.load(X + i, mine)")),
        Mistake("rounded", "the number of programs was rounded to the nearest whole number, so that a last block less than half full got no program",
                "the grid: rounded up, triton.cdiv(N, B)", ("triton.cdiv(N, B)", "max(1, round(N / B))")),
        Mistake("bytes_for_elements", "element numbers were turned into bytes before they were added to the pointers",
                "the addresses: a kernel's pointer counts elements, X + i", ("tl.load(X + i, mine)", f"tl.load(X + {BYTES} * i, mine)"),
                ("tl.load(Y + i, mine)", f"tl.load(Y + {BYTES} * i, mine)"), ("Out + i", f"Out + {BYTES} * i"),
                also=[[("tl.load(X + i, mine)", "tl.load(X + 4 * i, mine)"), ("tl.load(Y + i, mine)", "tl.load(Y + 4 * i, mine)"), ("Out + i", "Out + 4 * i")]]),
        Mistake("grid_one_more", "the grid was N // B + 1: a program too many wherever B divides N", "the grid: triton.cdiv(N, B)",
                ("(triton.cdiv(N, B),)", "(N // B + 1,)")),
        Mistake("rest_for_the_last", "the last program took N mod B elements, none where B divides N", "the mask: i < N, whatever N mod B is",
                ("mine = i < N", "mine = tl.arange(0, B) < tl.where(tl.program_id(0) == tl.num_programs(0) - 1, N % B, B)")),
    ],
    hints=[
        "i = tl.program_id(0) * B + tl.arange(0, B) are the numbers of my elements.",
        "mine = i < N; x = tl.load(X + i, mine), and Y likewise.",
        "tl.store(Out + i, a * x + y, mine), with the grid (triton.cdiv(N, B),).",
    ],
)
