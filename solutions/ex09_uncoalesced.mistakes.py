import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.gpu.simt import launch, threadIdx

TOUCHED, COALESCED = "{(start + n * stride) * itemsize // 32 for n in range(32)}", "len(touched) <= itemsize"

outputs = [("sectors",), ("coalesced",)]
ints_only = True
off_limits = ("gpu",)
features = {"lanes that share an element": lambda stride: stride == 0,
            "a stride of more than a sector": lambda stride, itemsize: abs(stride) * itemsize > 32}
case = case_of(lambda start, stride, itemsize: locals())


def read(X, Out, start, stride):
    Out[threadIdx.x] = X[start + threadIdx.x * stride]


def truth(start, stride, itemsize):
    """Asked of the interpreter."""
    dtype = {2: torch.int16, 4: torch.int32, 8: torch.int64}[itemsize]
    X, Out = torch.zeros(start + 32 * abs(stride) + 1, dtype=dtype), torch.zeros(32, dtype=dtype)
    accesses = [access for step in launch(read, 1, 32)(X, Out, start, stride).steps for access in step.accesses]
    sectors = next(access.sectors for access in accesses if access.kind == "load")
    return sectors, sectors <= itemsize


cases = [case("float32 along a row", 0, 1, 4),
         case("every second float32", 0, 2, 4),
         case("down a column of 1024", 5, 1024, 4),
         case("the same element", 3, 0, 4),
         case("float16 along a row", 0, 1, 2),
         case("every second float16", 16, 2, 2),
         case("from the middle of a sector", 3, 1, 4),
         case("every eighth float64", 1, 8, 8),
         case("backwards", 63, -1, 4),
         case("float16 from the middle of a sector", 5, 1, 2),
         case("float64 along a row", 4, 1, 8),
         case("backwards, from the start of a sector", 32, -1, 4)]
mistakes = [
    Mistake("different_elements", "each different element was counted as a sector of its own",
            "how many elements fit into one sector", (TOUCHED, "{start + n * stride for n in range(32)}")),
    Mistake("elements_for_bytes", "a sector was taken to hold 32 elements, not 32 bytes",
            "how many elements fit into one sector", (TOUCHED, "{(start + n * stride) // 32 for n in range(32)}")),
    Mistake("start_in_bytes", "start was not multiplied by itemsize", "the unit in which start is given", (TOUCHED,
             "{(start + n * stride * itemsize) // 32 for n in range(32)}")),
    Mistake("span", "every sector between the first and the last lane was counted",
            "sectors in which no lane has an element", (f"touched = {TOUCHED}",
             "ends = sorted((start + n * stride) * itemsize // 32 for n in (0, 31))"
             "\n    touched = range(ends[0], ends[1] + 1)")),
    Mistake("stride_absolute", "a negative stride was taken to walk forwards", "the direction of the stride", (TOUCHED,
             "{(start + n * abs(stride)) * itemsize // 32 for n in range(32)}")),
    Mistake("four_is_coalesced", "4 sectors were taken as the limit for every itemsize",
            "how many sectors 32 neighbours fill", (COALESCED, "len(touched) <= 4")),
    Mistake("coalesced_exactly", "a load of fewer sectors than the limit was not called coalesced",
            "lanes that share an element", (COALESCED, "len(touched) == itemsize")),
    Mistake("stride_one_is_coalesced", "coalesced was decided by the stride, not by the number of sectors",
            "a start inside a sector", (COALESCED, "stride == 1"), also=[[(COALESCED, "abs(stride) == 1")]]),
    Mistake("stride_zero_or_one", "every stride of 0 or 1 was called coalesced", "stride 1 from inside a sector",
            (COALESCED, "stride in (0, 1)"), also=[[(COALESCED, "stride in (-1, 0, 1)")]]),
    Mistake("same_start", "the load was compared with one of stride 1 from the same start", "its start", (COALESCED,
             "len(touched) <= len({(start + n) * itemsize // 32 for n in range(32)})")),
]
hints = ["Take one lane: find the byte it reads, then the sector that holds this byte.",
         "Two lanes in one sector move it once. Which Python type keeps each number once?",
         "How many sectors do 32 neighbouring elements fill, for 2, 4 and 8 bytes?"]
