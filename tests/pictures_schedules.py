"""The pictures of chapter 12, each drawn on small data."""

from flashlab import figures
from flashlab.gpu.schedule import FOUR_STEPS, iterations


def four_steps(count=3):
    return {name: iterations(FOUR_STEPS, count, overlapped=name == "overlapped") for name in ("one after the other", "overlapped")}


def all_of():
    """name -> a call that draws it."""
    grid = [(B_r, B_c, warps, stages) for B_r in (64, 128) for B_c in (32, 64) for warps in (4, 8) for stages in (1, 2)]
    counts = {name: {"multiplications": n, "copies": 0} for n, name in ((9, "FA2 in Triton"), (4, "+ base 2"))}
    return {
        "timelines": lambda: figures.timelines(four_steps(), "multiply", "four steps."),
        "pieces_in_banks": figures.pieces_in_banks,
        "lanes_of_products": figures.lanes_of_products,
        "left_of_a_grid": lambda: figures.left_of_a_grid(grid, grid[:5], "d = 64."),
        "instructions_of_rungs": lambda: figures.instructions_of_rungs(counts, "PTX", "d = 64."),
    }
