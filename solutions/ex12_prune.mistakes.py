"""Cases and mistakes of ex12_prune."""

from itertools import product

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output, whole

KiB = 1024
SHARED, IF = "element_size * (B_r * D + num_stages * B_c * (D + D_v))", "if shared <= limit and B_r >= 16 * num_warps:"
D, D_V = "D, D_v = 16, 16\n    while D < d:\n        D *= 2", "while D_v < d_v:\n        D_v *= 2"
PAD = "D, D_v = 16, 16\n    while D < d:\n        D *= 2\n    while D_v < d_v:\n        D_v *= 2"
GRID = list(product((16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 3, 4, 5)))


def call(fn, grid, d, d_v, element_size, limit):
    """What was kept, as a 1 or 0 for each choice of the grid."""
    found = fn(list(grid), d, d_v, element_size, limit)
    if not isinstance(found, (list, tuple)) or any(not isinstance(one, (list, tuple)) or len(one) != 4 or None in map(whole, one) for one in found):
        raise Breach("wrong_type", f"it returned {str(found)[:80]}; a list of choices, tuples of four whole numbers, was expected")
    kept = {tuple(map(whole, one)) for one in found}
    if foreign := kept - set(grid):
        raise Breach("wrong_type", f"it returned {min(foreign)}, which is no choice of the grid")
    return torch.tensor([int(one in kept) for one in grid])


def truth(grid, d, d_v, element_size, limit):
    D, D_v = (1 << max(4, (width - 1).bit_length()) for width in (d, d_v))
    return torch.tensor([int(B_r // warps >= 16 and (B_r * D + stages * B_c * D + stages * B_c * D_v) * element_size <= limit)
                         for B_r, B_c, warps, stages in grid])


def case(name, d, d_v, element_size, limit, grid=GRID, features=()):
    holds = {"d_v ≠ d": d_v != d, "d no power of two": d & (d - 1) != 0 or d_v & (d_v - 1) != 0, "d below 16": min(d, d_v) < 16,
             "elements of other than 2 bytes": element_size != 2}
    inputs = {"grid": grid, "d": d, "d_v": d_v, "element_size": element_size, "limit": limit}
    return Case(name, lambda: inputs | {"grid": list(grid)}, frozenset([*features, *(f for f, true in holds.items() if true)]),
                {"choices": len(grid), "d": d, "d_v": d_v, "element_size": element_size, "limit": limit})


EXERCISE = Exercise(
    function="prune",
    outputs=(Output("kept", ("choice",)),),
    call=call,
    truth=truth,
    cases=[
        case("one choice that fits", 64, 64, 2, 99 * KiB, [(64, 64, 4, 2)]),
        case("one choice that does not", 64, 64, 2, 32 * KiB, [(64, 64, 4, 2)]),
        case("one with too many warps", 64, 64, 2, 99 * KiB, [(64, 64, 8, 2)]),
        case("one that fits to the byte", 64, 64, 2, 40 * KiB, [(64, 64, 4, 2)], ["a choice that takes the limit exactly"]),
        case("one that is a byte too large", 64, 64, 2, 40 * KiB - 1, [(64, 64, 4, 2)]),
        case("an RTX 4090, d 64", 64, 64, 2, 99 * KiB),
        case("an H100, d 128", 128, 128, 2, 227 * KiB),
        case("d 80", 80, 80, 2, 163 * KiB),
        case("values narrower than keys", 192, 128, 2, 227 * KiB),
        case("values wider than keys", 32, 72, 2, 99 * KiB),
        case("a small head", 8, 8, 2, 16 * KiB),
        case("float32", 64, 64, 4, 163 * KiB),
        case("hardly any memory", 256, 256, 4, 64),
    ],
    mistakes=[
        Mistake("stages_forgotten", "K_j and V_j were counted once, not once for each stage", "the bytes: num_stages tiles of K and of V are on chip together",
                (SHARED, "element_size * (B_r * D + B_c * (D + D_v))")),
        Mistake("stages_for_all", "Q_i was counted once for each stage as well", "the bytes: Q_i stays, it is there once",
                (SHARED, "element_size * num_stages * (B_r * D + B_c * (D + D_v))")),
        Mistake("stages_of_K_only", "V_j was counted once, K_j once for each stage", "the bytes: V_j waits in the pipeline, too",
                (SHARED, "element_size * (B_r * D + num_stages * B_c * D + B_c * D_v)")),
        Mistake("one_stage_too_few", "K_j and V_j were counted num_stages − 1 times", "the bytes: each of the num_stages stages holds a K_j and a V_j",
                (SHARED, "element_size * (B_r * D + (num_stages - 1) * B_c * (D + D_v))")),
        Mistake("one_stage_too_many", "K_j and V_j were counted num_stages + 1 times", "the bytes: each of the num_stages stages holds a K_j and a V_j",
                (SHARED, "element_size * (B_r * D + (num_stages + 1) * B_c * (D + D_v))")),
        Mistake("d_v_forgotten", "V_j was taken to have D columns, as K_j has", "the bytes: V_j has D_v columns",
                (SHARED, "element_size * (B_r * D + num_stages * B_c * (D + D))")),
        Mistake("no_least_width", "a width below 16 was not padded to 16", "D and D_v: 16 at least", ("D, D_v = 16, 16", "D, D_v = 1, 1")),
        Mistake("multiple_of_16", "d and d_v were padded to multiples of 16", "D and D_v: powers of two", (PAD, "D, D_v = -(-d // 16) * 16, -(-d_v // 16) * 16")),
        Mistake("padded_too_far", "a width that is a power of two was padded to the next one all the same",
                "D and D_v: the smallest power of two that is at least the width, so that 64 stays 64", ("while D < d:", "while D <= d:"),
                ("while D_v < d_v:", "while D_v <= d_v:")),
        Mistake("bytes_of_K_and_V_only", "Q_i was counted in elements, K_j and V_j in bytes", "element_size: it belongs to the whole sum, so mind the brackets",
                (SHARED, "B_r * D + element_size * num_stages * B_c * (D + D_v)")),
        Mistake("strictly_less", "a choice that takes the limit exactly was refused", "the first condition: at most `limit` bytes, the limit itself among them",
                (IF, "if shared < limit and B_r >= 16 * num_warps:")),
        Mistake("strictly_more_rows", "a warp with exactly 16 rows was refused", "the second condition: B_r ≥ 16 · num_warps, so 16 rows a warp are enough",
                (IF, "if shared <= limit and B_r > 16 * num_warps:")),
        Mistake("O_counted", "O_i was counted, and it lives in registers", "the bytes: Q_i, K_j and V_j alone",
                (SHARED, "element_size * (B_r * (D + D_v) + num_stages * B_c * (D + D_v))")),
        Mistake("wider_for_all", "tiles were taken to be as wide as the wider of D and D_v, where only one of them is",
                "the bytes: each tile has its own width, D for Q_i and K_j, D_v for V_j",
                (SHARED, "element_size * (B_r * max(D, D_v) + num_stages * B_c * 2 * max(D, D_v))"),
                also=[[(SHARED, "element_size * (B_r * D + num_stages * B_c * 2 * max(D, D_v))")]]),
        Mistake("one_buffer_for_both", "a stage was counted as one buffer, as wide as the wider of K_j and V_j",
                "a stage: a tile of K and a tile of V, D + D_v columns", (SHARED, "element_size * (B_r * D + num_stages * B_c * max(D, D_v))")),
    ],
    hints=[
        "D is 16, doubled for as long as it is smaller than d; D_v the same with d_v.",
        "Bytes: element_size * (B_r * D + num_stages * B_c * (D + D_v)).",
        "Keep a choice if its bytes are at most limit and B_r is at least 16 * num_warps.",
        "Only widths that are no power of two are wrong: a tile cannot have 80 columns. How many has it?",
    ],
)
