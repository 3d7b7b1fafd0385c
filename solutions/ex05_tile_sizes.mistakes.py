from flashlab_course.check.cases import Mistake, case_of

STEP = "8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2 <= M:\n        B += 16"
FIT = 4 * (8 * 48 * 40 + 3 * 48**2)

outputs = [("B_r",), ("B_c",), ("B",)]
ints_only = True
off_limits = ("tiles",)
features = {"elements of other than 4 bytes": lambda element_size: element_size != 4,
            "M not a multiple of 4d": lambda sram_bytes, d, element_size: sram_bytes // element_size % (4 * d)}
case = case_of(lambda sram_bytes, d, d_v, element_size: locals())
cases = [case("the example", 192 * 1024, 64, 64, 4),
         case("16-bit elements", 100 * 1024, 64, 64, 2),
         case("values wider than keys", 164 * 1024, 64, 128, 4),
         case("values narrower than keys", 227 * 1024, 96, 32, 4),
         case("a tile that fills the SRAM exactly", FIT, 40, 40, 4),
         case("one element short of a fit", FIT - 4, 40, 40, 4),
         case("float64", 99 * 1024 + 8, 24, 56, 8),
         case("bytes that make no whole element", 4 * 4 * 64 * 50 + 3, 64, 64, 4)]
mistakes = [
    Mistake("four_bytes_always", "an element was taken to have 4 bytes always", "M where elements have 16 bits",
            ("// element_size", "// 4")),
    Mistake("bytes_for_elements", "M was the number of bytes, not of elements", "M: it counts whole elements",
            (" // element_size", "")),
    Mistake("floor", "B_c was rounded down, not up", "the brackets around M/4d", ("-(-M // (4 * d))", "M // (4 * d)")),
    Mistake("one_more", "B_c was one too many where 4d divides M", "how you round up where nothing is left over",
            ("-(-M // (4 * d))", "M // (4 * d) + 1")),
    Mistake("no_min", "B_r was not limited to d", "B_r where d is small", ("min(B_c, d)", "B_c")),
    Mistake("no_room_for_S", "B left no room for S_ij and P_ij", "the condition on B: the tiles of B × B",
            ("+ 3 * (B + 16) ** 2 <= M", "<= M")),
    Mistake("d_v_forgotten", "B was chosen for d alone", "the condition on B where d_v is larger", ("max(d, d_v)",
             "d")),
    Mistake("one_too_far", "B was the first multiple of 16 that no longer fits",
            "the B that the condition is asked about", ("return B_r, B_c, B", "return B_r, B_c, B + 16")),
    Mistake("strictly_less", "a tile that fills the SRAM exactly was refused", "the comparison in the condition",
            ("<= M", "< M")),
    Mistake("power_of_two", "B was the largest power of two that fits", "how B grows from one try to the next", (STEP,
             "8 * (2 * B) * max(d, d_v) + 3 * (2 * B) ** 2 <= M:\n        B *= 2")),
]
hints = ["How many whole elements does the SRAM hold? That is M, and // rounds down.",
         "In whole numbers ⌈a / b⌉ is -(-a // b). The published B_r is limited to d, B_c is not.",
         "For B, start at 16 and add 16 for as long as the next one still fits."]
