"""Cases and mistakes of ex05_tile_sizes."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, sram_bytes, d, d_v, element_size, features=()):
    inputs = {"sram_bytes": sram_bytes, "d": d, "d_v": d_v, "element_size": element_size}
    holds = {"d_v ≠ d": d_v != d, "elements of other than 4 bytes": element_size != 4, "M not a multiple of 4d": sram_bytes // element_size % (4 * d) != 0,
             "d larger than ⌈M/4d⌉": d > -(-sram_bytes // element_size // (4 * d))}
    return Case(name, lambda: dict(inputs), frozenset([*features, *(f for f, true in holds.items() if true)]), inputs)


EXERCISE = Exercise(
    function="tile_sizes",
    outputs=(Output("B_r"), Output("B_c"), Output("B")),
    ints_only=True,
    off_limits=("tiles",),
    cases=[
        case("the example", 192 * 1024, 64, 64, 4),
        case("a small SRAM", 48 * 1024, 32, 32, 4),
        case("16-bit elements", 100 * 1024, 64, 64, 2),
        case("a large head", 64 * 1024, 160, 160, 2),
        case("values wider than keys", 164 * 1024, 64, 128, 4),
        case("values narrower than keys", 227 * 1024, 96, 32, 4),
        case("an exact fit", 4 * (8 * 48 * 40 + 3 * 48**2), 40, 40, 4, ["a tile that fills the SRAM exactly"]),
        case("one element short of a fit", 4 * (8 * 48 * 40 + 3 * 48**2 - 1), 40, 40, 4),
        case("float64", 99 * 1024 + 8, 24, 56, 8),
        case("M a multiple of 4d", 4 * 4 * 48 * 50, 48, 48, 4),
        case("bytes that make no whole element", 4 * 4 * 64 * 50 + 3, 64, 64, 4, ["bytes left over"]),
        case("a large SRAM", 1024 * 1024, 64, 96, 2),
    ],
    mistakes=[
        Mistake("bytes_for_elements", "sram_bytes was taken for M, though M counts elements", "M: an element takes element_size bytes",
                ("sram_bytes // element_size", "sram_bytes")),
        Mistake("four_bytes_always", "an element was taken to have 4 bytes always", "element_size: 2 for 16-bit numbers", ("// element_size", "// 4")),
        Mistake("floor", "B_c was rounded down, not up", "the brackets in ⌈M/4d⌉: -(-a // b), or math.ceil", ("-(-M // (4 * d))", "M // (4 * d)")),
        Mistake("r_and_c_swapped", "B_r and B_c were swapped", "the order of what is returned, B_r, B_c, B, and which of the first two is limited by d: B_r, the rows of the query tile",
                ("return B_r, B_c, B", "return B_c, B_r, B")),
        Mistake("max_for_min", "B_r was the larger of ⌈M/4d⌉ and d, not the smaller", "B_r: min(⌈M/4d⌉, d)", ("min(B_c, d)", "max(B_c, d)")),
        Mistake("no_min", "B_r was not limited to d", "B_r: min(⌈M/4d⌉, d)", ("min(B_c, d)", "B_c")),
        Mistake("four_missing", "B_c was ⌈M/d⌉: the 4 is missing", "the divisor: Q_i, K_j, V_j and O_i share M, so 4d", ("-(-M // (4 * d))", "-(-M // d)")),
        Mistake("d_missing", "B_c was ⌈M/4⌉: the d is missing", "the divisor: a row of a tile has d elements", ("-(-M // (4 * d))", "-(-M // 4)")),
        Mistake("divided_by_4_times_d", "B_c was ⌈M/4⌉ · d: M/4 was multiplied by d, not divided", "the divisor 4d: without brackets, `// 4 * d` multiplies by d", ("-(-M // (4 * d))", "-(-M // 4 * d)")),
        Mistake("no_room_for_S", "B left no room for S_ij and P_ij: the term 3·B² is missing", "the condition: 8·B·max(d, d_v) + 3·B² ≤ M",
                ("+ 3 * (B + 16) ** 2 <= M", "<= M")),
        Mistake("inputs_only", "B left room for Q_i, K_j, V_j and O_i alone, 4·B·max(d, d_v)", "the 8: results in the making need as much again",
                ("8 * (B + 16)", "4 * (B + 16)")),
        Mistake("one_too_far", "B was the first multiple of 16 that no longer fits", "B: the largest multiple of 16 that fits, not the one after it",
                ("return B_r, B_c, B", "return B_r, B_c, B + 16")),
        Mistake("strictly_less", "a tile that fills the SRAM exactly was refused", "the condition: 8·B·max(d, d_v) + 3·B² ≤ M, which holds where both are equal", ("<= M", "< M")),
        Mistake("not_a_multiple", "B was not rounded down to a multiple of 16", "B: the largest multiple of 16 that fits",
                ("B = 16\n    while 8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2 <= M:\n        B += 16",
                 "B = 16\n    while 8 * (B + 1) * max(d, d_v) + 3 * (B + 1) ** 2 <= M:\n        B += 1")),
        Mistake("d_v_forgotten", "B was chosen for d alone, though the tiles of V and O have d_v columns", "max(d, d_v)",
                ("max(d, d_v)", "d")),
        Mistake("smaller_of_the_two", "B was chosen for the smaller of d and d_v", "max(d, d_v): the wider tiles must fit too", ("max(d, d_v)", "min(d, d_v)")),
        Mistake("sum_of_the_two", "B was chosen for d + d_v columns", "max(d, d_v)", ("max(d, d_v)", "(d + d_v)")),
        Mistake("power_of_two", "B was the largest power of two that fits, not the largest multiple of 16", "B: any multiple of 16, 48 too",
                ("while 8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2 <= M:\n        B += 16", "while 8 * (2 * B) * max(d, d_v) + 3 * (2 * B) ** 2 <= M:\n        B *= 2")),
        Mistake("steps_of_32", "only every second multiple of 16 was considered for B", "B: the largest multiple of 16 that fits, none left out", ("while 8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2 <= M:\n        B += 16", "while 8 * (B + 32) * max(d, d_v) + 3 * (B + 32) ** 2 <= M:\n        B += 32"),
                also=[[("return B_r, B_c, B", "return B_r, B_c, max(16, B // 32 * 32)")]]),
        Mistake("one_too_few", "B was one step of 16 too small", "B: the largest multiple of 16 that fits, not the one before it", ("return B_r, B_c, B", "return B_r, B_c, max(16, B - 16)")),
        Mistake("S_once", "room was left for one B × B tile, not for three", "the term 3·B²: S_ij, P_ij and one temporary", ("3 * (B + 16) ** 2", "(B + 16) ** 2")),
        Mistake("S_twice", "room was left for two B × B tiles, not for three", "the term 3·B²: S_ij, P_ij and one temporary", ("3 * (B + 16) ** 2", "2 * (B + 16) ** 2")),
        Mistake("three_B_squared", "the term was (3·B)², not 3·B²", "the term 3·B²: only B is squared", ("3 * (B + 16) ** 2", "(3 * (B + 16)) ** 2")),
        Mistake("d_v_in_published", "⌈M/4d⌉ was taken with d_v in place of d", "the published rule knows d alone", ("-(-M // (4 * d))", "-(-M // (4 * d_v))")),
        Mistake("max_in_published", "the published rule took the larger of d and d_v", "the published rule, ⌈M/4d⌉ and min(⌈M/4d⌉, d): it knows d alone", ("-(-M // (4 * d))", "-(-M // (4 * max(d, d_v)))"),
                also=[[("-(-M // (4 * d))", "-(-M // (4 * max(d, d_v)))"), ("min(B_c, d)", "min(B_c, max(d, d_v))")]]),
        Mistake("min_with_d_v", "B_r was limited to d_v, not to d", "B_r: min(⌈M/4d⌉, d)", ("min(B_c, d)", "min(B_c, d_v)")),
        Mistake("B_for_bytes", "for B, sram_bytes was taken for M", "the condition: M counts elements", ("3 * (B + 16) ** 2 <= M", "3 * (B + 16) ** 2 <= sram_bytes")),
        Mistake("one_more", "B_c was one too many where 4d divides M, as ⌊M/4d⌋ + 1 is", "⌈a / b⌉ is -(-a // b), and a / b itself where b divides a", ("-(-M // (4 * d))", "M // (4 * d) + 1")),
        Mistake("bits", "an element was taken to have element_size bits", "M: element_size counts bytes", ("sram_bytes // element_size", "sram_bytes * 8 // element_size")),
        Mistake("d_squared", "the term 8·B·max(d, d_v) was 8·max(d, d_v)², as if tiles had as many rows as columns", "8·B·max(d, d_v): each tile has B rows", ("8 * (B + 16) * max(d, d_v)", "8 * max(d, d_v) ** 2")),
        Mistake("bytes_in_one_go", "B_c was ⌈sram_bytes / (4d · element_size)⌉: bytes that make no whole element were rounded up as well", "M: whole elements, sram_bytes // element_size",
                ("-(-M // (4 * d))", "-(-sram_bytes // (4 * d * element_size))")),
        Mistake("four_for_the_element_size", "M was divided by d · element_size, as if the 4 in 4d were the bytes of an element", "the 4 in 4d: tiles of Q, K, V and O, whatever an element takes",
                ("-(-M // (4 * d))", "-(-M // (element_size * d))")),
    ],
    hints=[
        "M = sram_bytes // element_size. Then B_c = -(-M // (4 * d)) and B_r = min(B_c, d).",
        "For B, start at 16 and add 16 for as long as the next one still fits.",
        "Fits means 8*B*max(d, d_v) + 3*B*B <= M. Test the B you would go to, not the one you have.",
    ],
)
