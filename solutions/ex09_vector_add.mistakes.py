import torch

from flashlab_course.check.cases import Mistake, case_of, normal

X_AT, Y_AT, GRID = "tl.load(X + i, mine)", "tl.load(Y + i, mine)", "triton.cdiv(N, B)"
MINE = "mine = i < N"

outputs = [("Out", "element")]
truth = lambda a, X, Y, **rest: a * X.double() + Y.double()
reads, writes = ("X", "Y"), ("Out",)
seconds = 6
traffic = lambda a, X, Y, Out, B: {"X": (len(X), 0), "Y": (len(X), 0), "Out": (0, len(X))}
features = {"a short last block": lambda N, B: N % B}
case = case_of(lambda N, B, a=0.5, *, dtype=torch.float32, seed: {
    "a": a, "X": normal(N, seed=seed, dtype=dtype), "Y": normal(N, seed=seed + 1, dtype=dtype),
    "Out": torch.zeros(N, dtype=dtype), "B": B})
cases = [case("one block", 16, 16, seed=960),
         case("two blocks", 32, 16, seed=962),
         case("a short last block", 21, 16, seed=964),
         case("three blocks, the last one short", 70, 32, -2.0, seed=966),
         case("less than a block", 5, 64, seed=968),
         case("16-bit inputs", 100, 64, dtype=torch.float16, seed=970),
         case("one element", 1, 16, seed=972)]
mistakes = [
    Mistake("grid_floor", "the grid was rounded down, so the short last block got no program",
            "the size of the grid where B does not divide N", (GRID, "max(1, N // B)"), also=[[(GRID, "N // B")]]),
    Mistake("grid_one_more", "the grid was N // B + 1: one program too many where B divides N",
            "the size of the grid where B divides N", (GRID, "N // B + 1")),
    Mistake("rounded", "the number of programs was rounded to nearest, so a nearly empty last block was lost",
            "the size of the grid where the last block is short", (GRID, "max(1, round(N / B))")),
    Mistake("no_block_offset", "every program worked on the first block", "how i depends on the program",
            ("tl.program_id(0) * B +", "")),
    Mistake("no_guard_load", "the loads had no mask: they read past the end of X and Y", "the loads in the last block",
            (X_AT, "tl.load(X + i)"), (Y_AT, "tl.load(Y + i)"), stray=True),
    Mistake("no_guard_store", "the store had no mask: it wrote past the end of Out", "the store in the last block",
            ("a * x + y, mine)", "a * x + y)")),
    Mistake("guard_off_by_one", "the mask let element N through, one past the end", "the last i that exists",
            ("mine = i < N", "mine = i <= N")),
    Mistake("guard_of_the_block", "the mask compared the place within the block with N",
            "which number the mask compares with N", ("mine = i < N", "mine = tl.arange(0, B) < N")),
    Mistake("rest_for_the_last", "the last program took N mod B elements, also where that is 0", "its mask", (MINE,
             "mine = tl.arange(0, B) < tl.where(tl.program_id(0) == tl.num_programs(0) - 1, N % B, B)")),
    Mistake("a_times_both", "Y was multiplied by a as well", "what a multiplies", ("a * x + y", "a * (x + y)")),
    Mistake("Y_not_loaded", "X was loaded in place of Y", "the pointer of the second load", (Y_AT,
             "tl.load(X + i, mine)")),
    Mistake("bytes_for_elements", "pointers were counted on in bytes, not in elements",
            "the unit in which a Triton pointer counts", *((f"{T} + i", f"{T} + 4 * i") for T in ("X", "Y", "Out"))),
]
hints = ["Where does program p's block begin? Make the B numbers of its elements from there.",
         "The last block may stick out beyond N. One mask, from the elements' numbers, serves both loads and the "
         "store.",
         "The grid counts blocks, the short one too. How many are there for N = 21 and B = 16?"]
