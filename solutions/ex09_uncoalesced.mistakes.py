"""Cases and mistakes of ex09_uncoalesced."""

import torch

from flashlab_course.check.form import Case, Exercise, Mistake, Output
from flashlab_course.gpu.simt import launch, threadIdx


def case(name, start, stride, itemsize):
    features = {"a stride other than 1": stride != 1, "a start inside a sector": start * itemsize % 32 != 0, "16-bit elements": itemsize == 2,
                "64-bit elements": itemsize == 8,
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
    off_limits=("gpu",),
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
        case("int64, the same element", 2, 0, 8),
        case("float64 along a row", 4, 1, 8),
        case("backwards, every second float16", 100, -2, 2),
        case("float16 from the middle of a sector", 5, 1, 2),
        case("backwards, from the start of a sector", 32, -1, 4),
    ],
    mistakes=[
        Mistake("always_32", "each lane was given a sector of its own", "lanes may share sectors: count different ones",
                ("len(touched), len(touched) <= itemsize", "32, stride in (0, 1)")),
        Mistake("bytes_asked_for", "sectors was the bytes that 32 lanes ask for divided by 32, wherever they lie",
                "where lane n's byte lies: (start + n · stride) · itemsize", (TOUCHED, "range(32 * itemsize // 32)")),
        Mistake("start_ignored", "the load was taken to begin at a sector's start", "start: from the middle of a sector, one sector more is needed",
                (TOUCHED, "{n * stride * itemsize // 32 for n in range(32)}")),
        Mistake("four_bytes_always", "an element was taken to have 4 bytes always", "itemsize: 2 for 16-bit numbers",
                (TOUCHED, "{(start + n * stride) * 4 // 32 for n in range(32)}")),
        Mistake("elements_for_bytes", "32 elements were taken for a sector: elements were counted where bytes belong",
                "a sector has 32 bytes, which are 32 / itemsize elements", (TOUCHED, "{(start + n * stride) // 32 for n in range(32)}")),
        Mistake("span", "all sectors from the first lane's to the last one's were counted, though only those that a lane touches move",
                "sectors in which no lane has an element stay where they are", (TOUCHED, "range(min((start * itemsize) // 32, (start + 31 * stride) * itemsize // "
                 "32), max((start * itemsize) // 32, (start + 31 * stride) * itemsize // 32) + 1)")),
        Mistake("lines_of_128", "lines of 128 bytes were counted, not sectors of 32", "the size of a sector: 32 bytes",
                (TOUCHED, "{(start + n * stride) * itemsize // 128 for n in range(32)}")),
        Mistake("four_is_coalesced", "4 sectors were taken for the least whatever the itemsize", "32 lanes of itemsize bytes fill `itemsize` sectors",
                ("<= itemsize", "<= 4"), also=[[("<= itemsize", "== 4")]]),
        Mistake("stride_one_is_coalesced", "coalesced was read off the stride, 1 or −1, not off the number of sectors",
                "the number of sectors decides: a stride of 0 shares, a start inside a sector costs one more", ("len(touched) <= itemsize", "stride == 1"),
                also=[[("len(touched) <= itemsize", "abs(stride) == 1")]]),
        Mistake("start_in_bytes", "start was taken for a byte, not for an element", "lane n reads byte (start + n · stride) · itemsize",
                (TOUCHED, "{(start + n * stride * itemsize) // 32 for n in range(32)}")),
        Mistake("stride_absolute", "the stride was taken without its sign", "a negative stride walks backwards from start",
                (TOUCHED, "{(start + n * abs(stride)) * itemsize // 32 for n in range(32)}")),
        Mistake("different_elements", "each element was counted as a sector of its own: that is also what `/` gives, which keeps the fraction",
                "a sector holds 32 / itemsize elements: byte // 32 is its number", (TOUCHED, "{(start + n * stride) for n in range(32)}")),
        Mistake("coalesced_exactly", "fewer sectors than the closest packing did not count as coalesced",
                "coalesced: fewer sectors are as good, as where lanes share an element", ("<= itemsize", "== itemsize")),
        Mistake("stride_zero_or_one", "coalesced was read off the stride, 0 or 1 and perhaps −1, not off the number of sectors",
                "coalesced: at most `itemsize` sectors; where the lanes begin and end decides, not the stride alone",
                ("len(touched) <= itemsize", "stride in (0, 1)"), also=[[("len(touched) <= itemsize", "stride in (-1, 0, 1)")]]),
        Mistake("same_start", "coalesced meant no more sectors than a load of stride 1 from the same start, which may itself take one too many",
                "coalesced: itemsize sectors are the fewest, from wherever a load starts",
                ("len(touched) <= itemsize", "len(touched) <= len({(start + n) * itemsize // 32 for n in range(32)})")),
    ],
    hints=[
        "Lane n reads byte (start + n * stride) * itemsize, and that is in sector number byte // 32.",
        "A set keeps each sector once: {... for n in range(32)}.",
        "32 lanes of itemsize bytes fill exactly `itemsize` sectors of 32 bytes. More than that is not coalesced.",
    ],
)
