import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach

outputs = [("intensity",), ("ms",), ("reached",)]
off_limits = ("figures",)
features = {"arithmetic is the limit": lambda flops, moved, tflops, tb_s: flops / tflops > moved / tb_s,
            "memory is the limit": lambda flops, moved, tflops, tb_s: flops / tflops < moved / tb_s}
case = case_of(lambda flops, moved, tflops, tb_s: locals())


def call(fn, **inputs):
    found = fn(**inputs)
    if not isinstance(found, (tuple, list)) or [type(value) for value in found] != [float] * 3:
        raise Breach("wrong_type", f"it returned {found!r}; (intensity, ms, reached), three floats, was expected")
    return tuple(torch.tensor(value, dtype=torch.float64) for value in found)


cases = [case("left of the ridge", 3e9, 2e9, 8.0, 4.0),
         case("right of the ridge", 9e12, 2e9, 600.0, 4.0),
         case("a decode step", 5.4e8, 2.7e8, 776.0, 4.2),
         case("a prompt", 5.5e11, 1.3e8, 776.0, 4.2)]
mistakes = [
    Mistake("bytes_a_flop", "bytes were divided by FLOPs", "intensity: what is divided by what",
            ("return flops / moved", "return moved / flops")),
    Mistake("one_after_the_other", "the two times were added", "ms: whether one waits for the other",
            ("max(computing, moving)", "computing + moving")),
    Mistake("seconds", "the time was returned in seconds", "ms: its unit",
            ("flops / moved, ms,", "flops / moved, ms / 1000,")),
    Mistake("the_faster", "the shorter of the two times was taken", "ms: which of the two ends later",
            ("max(", "min(")),
    Mistake("arithmetic_only", "only the arithmetic was timed", "ms: where memory is the limit",
            ("max(computing, moving)", "computing")),
    Mistake("memory_only", "only the bytes were timed", "ms: where arithmetic is the limit",
            ("max(computing, moving)", "moving")),
]
hints = ["Time the arithmetic alone, then the bytes alone.", "Both go on together: which of them ends last?"]
