from itertools import product

import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach, Output, whole

KiB = 1024
SHARED = "element_size * (B_r * D + num_stages * B_c * (D + D_v))"
PAD = "D, D_v = 16, 16\n    while D < d:\n        D *= 2\n    while D_v < d_v:\n        D_v *= 2"
GRID = list(product((16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 3, 4, 5)))

outputs = [Output("kept", ("choice",), ((0, "left out"), (1, "kept")))]
features = {"d no power of two": lambda d, d_v: d & (d - 1) or d_v & (d_v - 1),
            "d below 16": lambda d, d_v: min(d, d_v) < 16}


def call(fn, grid, d, d_v, element_size, limit):
    """What was kept, as a 1 or 0 for each choice of the grid."""
    found = fn(list(grid), d, d_v, element_size, limit)
    try:
        kept = {tuple(map(whole, one)) for one in found} if isinstance(found, (list, tuple)) else {None}
    except TypeError:
        kept = {None}
    if kept - set(grid):
        raise Breach("wrong_type", f"it returned {str(found)[:80]}; a list of choices of the grid was expected")
    return torch.tensor([int(one in kept) for one in grid])


def truth(grid, d, d_v, element_size, limit):
    D, D_v = (1 << max(4, (width - 1).bit_length()) for width in (d, d_v))
    return torch.tensor([int(B_r // warps >= 16 and (B_r * D + stages * B_c * (D + D_v)) * element_size <= limit)
                         for B_r, B_c, warps, stages in grid])


case = case_of(lambda d, d_v, element_size, limit, *, grid=GRID: locals())
cases = [case("one with too many warps", 64, 128, 2, 99 * KiB, grid=[(32, 64, 4, 3)]),
         case("one that fits to the byte", 64, 128, 2, 76 * KiB, grid=[(32, 64, 2, 3)]),
         case("one that is a byte too large", 64, 128, 2, 76 * KiB - 1, grid=[(32, 64, 2, 3)]),
         case("an H100, d 128", 128, 128, 2, 227 * KiB),
         case("values narrower than keys", 192, 128, 2, 227 * KiB),
         case("values wider than keys", 32, 72, 2, 99 * KiB),
         case("a small head", 8, 8, 4, 32 * KiB)]
mistakes = [
    Mistake("stages_for_all", "Q_i was counted once for each stage as well", "what is there only once", (SHARED,
             "element_size * num_stages * (B_r * D + B_c * (D + D_v))")),
    Mistake("one_stage_too_few", "K_j and V_j were counted num_stages − 1 times", "how many stages hold tiles", (SHARED,
             "element_size * (B_r * D + (num_stages - 1) * B_c * (D + D_v))")),
    Mistake("one_buffer_for_both", "a stage was counted as one tile, as wide as the wider of K_j and V_j",
            "what a stage holds", (SHARED, "element_size * (B_r * D + num_stages * B_c * max(D, D_v))")),
    Mistake("d_v_forgotten", "V_j was taken to have D columns, as K_j has", "the width of V_j", (SHARED,
             "element_size * (B_r * D + num_stages * B_c * (D + D))")),
    Mistake("O_counted", "O_i was counted, and it lives in registers", "which tiles take shared memory", (SHARED,
             "element_size * (B_r * (D + D_v) + num_stages * B_c * (D + D_v))")),
    Mistake("bytes_of_K_and_V_only", "Q_i was counted in elements, K_j and V_j in bytes",
            "the brackets after element_size", (SHARED, "B_r * D + element_size * num_stages * B_c * (D + D_v)")),
    Mistake("no_least_width", "a width below 16 was not padded to 16", "the least width of a tile", ("D, D_v = 16, 16",
             "D, D_v = 1, 1")),
    Mistake("multiple_of_16", "d and d_v were padded to multiples of 16", "which widths a tile can have", (PAD,
             "D, D_v = -(-d // 16) * 16, -(-d_v // 16) * 16")),
    Mistake("padded_too_far", "a width that is a power of two already was padded to the next one",
            "what becomes of a width of 64", ("D < d", "D <= d"), ("D_v < d_v", "D_v <= d_v")),
    Mistake("strictly_less", "a choice of exactly limit bytes was refused", "the limit", ("<= limit", "< limit")),
    Mistake("strictly_more_rows", "a warp of exactly 16 rows was refused", "the least rows", (">= 16 *", "> 16 *")),
]
hints = ["Take one choice and list what lies in shared memory: which tiles, how many of each, how wide.",
         "A tile cannot have 80 columns. How many does it have? And with a width of 64, or of 8?",
         "One choice is decided wrongly: print its bytes next to limit, and its rows next to 16 · num_warps."]
