"""Cases and mistakes of ex09_uncoalesced."""

import torch

from flashlab.check.form import Case, Exercise, Mistake, Output, Variant
from flashlab.gpu.simt import launch, threadIdx


def case(name, start, stride, itemsize):
    features = {"a stride other than 1": stride != 1, "a start inside a sector": start * itemsize % 32 != 0, "16-bit elements": itemsize == 2, "64-bit elements": itemsize == 8,
                "a stride of more than a sector": abs(stride) * itemsize > 32, "a negative stride": stride < 0, "lanes that share an element": stride == 0}
    inputs = {"start": start, "stride": stride, "itemsize": itemsize}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in features.items() if true), inputs)


def truth(start, stride, itemsize):
    """Asked of the interpreter."""
    dtype = {2: torch.int16, 4: torch.int32, 8: torch.int64}[itemsize]
    X, Out = torch.zeros(start + 32 * abs(stride) + 1, dtype=dtype), torch.zeros(32, dtype=dtype)
    step = next(step for step in launch(_read, 1, 32)(X, Out, start, stride).steps if step.accesses)
    sectors = next(access for access in step.accesses if access.kind == "load").sectors
    return sectors, sectors <= itemsize


def _read(X, Out, start, stride):
    Out[threadIdx.x] = X[start + threadIdx.x * stride]


TOUCHED = "{(start + n * stride) * itemsize // 32 for n in range(32)}"

EXERCISE = Exercise(
    function="load",
    outputs=(Output("sectors"), Output("coalesced")),
    truth=truth,
    ints_only=True,
    cases=[
        case("float32 along a row", 0, 1, 4),
        case("every second float32", 0, 2, 4),
        case("down a column of 1024", 5, 1024, 4),
        case("the same element", 3, 0, 4),
        case("float16 along a row", 0, 1, 2),
        case("every second float16", 16, 2, 2),
        case("from the middle of a sector", 3, 1, 4),
        case("every eighth float64", 1, 8, 8),
        case("every third float32", 0, 3, 4),
        case("backwards", 63, -1, 4),
    ],
    mistakes=[
        Mistake("always_32", "each lane was given a sector of its own", "lanes may share sectors: count different ones",
                ("len(touched), len(touched) <= itemsize", "32, stride in (0, 1)")),
        Mistake("bytes_asked_for", "the bytes that the lanes ask for were divided by 32, wherever they lie", "where each lane's byte lies",
                (TOUCHED, "range(32 * itemsize // 32)")),
        Mistake("start_ignored", "the load was taken to begin at a sector's start", "start: from the middle of a sector, one sector more is needed",
                (TOUCHED, "{n * stride * itemsize // 32 for n in range(32)}")),
        Mistake("four_bytes_always", "an element was taken to have 4 bytes always", "itemsize: 2 for 16-bit numbers", (TOUCHED, "{(start + n * stride) * 4 // 32 for n in range(32)}")),
        Mistake("elements_for_bytes", "elements were counted where bytes belong", "a sector has 32 bytes, which are 32 / itemsize elements",
                (TOUCHED, "{(start + n * stride) // 32 for n in range(32)}")),
        Mistake("span", "all sectors from the first lane's to the last one's were counted, though only those that a lane touches move",
                "sectors in which no lane has an element stay where they are", (TOUCHED, "range(min((start * itemsize) // 32, (start + 31 * stride) * itemsize // 32), max((start * itemsize) // 32, (start + 31 * stride) * itemsize // 32) + 1)")),
        Mistake("lines_of_128", "lines of 128 bytes were counted, not sectors of 32", "the size of a sector: 32 bytes", (TOUCHED, "{(start + n * stride) * itemsize // 128 for n in range(32)}")),
        Mistake("four_is_coalesced", "4 sectors were taken for the least whatever the itemsize", "32 lanes of itemsize bytes fill `itemsize` sectors", ("<= itemsize", "<= 4")),
        Mistake("stride_one_is_coalesced", "only a stride of 1 counted as coalesced, always", "the number of sectors decides: a stride of 0 shares, a start inside a sector costs one more",
                ("len(touched) <= itemsize", "stride == 1")),
        Mistake("strictly_less", "the closest packing itself was not taken for coalesced", "≤: 32 float32 need 4 sectors", ("<= itemsize", "< itemsize")),
    ],
    variants=[
        Variant("a list of bytes", body="""
            first_bytes = [itemsize * (start + stride * lane) for lane in range(32)]
            sectors = sorted(set(byte // 32 for byte in first_bytes))
            least = 32 * itemsize // 32
            return len(sectors), not len(sectors) > least
            """),
    ],
    hints=[
        "Lane n reads byte (start + n * stride) * itemsize, and that is in sector number byte // 32.",
        "A set keeps each sector once: {... for n in range(32)}.",
        "32 lanes of itemsize bytes fill exactly `itemsize` sectors of 32 bytes. More than that is not coalesced.",
    ],
)
