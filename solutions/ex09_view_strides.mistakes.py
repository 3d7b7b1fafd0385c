import torch

from flashlab_course.check.cases import Mistake, case_of

SHAPE, STRIDES = "shape = [shape[n] for n in order]", "strides = [strides[n] for n in order]"
OFFSET = "offset += sum(start * stride for start, stride in zip(starts, strides, strict=True))"
SIZE = "-(-(size - start) // step)"

outputs = [("shape",), ("strides",), ("offset",)]
ints_only = True
without = ("strides",)
features = {"a start other than 0": lambda starts: any(starts), "three dimensions": lambda shape: len(shape) > 2,
            "starts or steps that differ between dimensions that trade places": lambda order, starts, steps:
            any((starts[n], steps[n]) != (starts[o], steps[o]) for n, o in enumerate(order)),
            "a step that does not divide size − start": lambda shape, order, starts, steps:
            any((shape[o] - starts[n]) % steps[n] for n, o in enumerate(order))}
case = case_of(lambda shape, strides, offset, order, starts, steps: locals())


def truth(shape, strides, offset, order, starts, steps):
    T = torch.as_strided(torch.empty(4096, device="meta"), shape, strides, offset).permute(order)
    T = T[tuple(slice(start, None, step) for start, step in zip(starts, steps, strict=True))]
    return tuple(T.shape), T.stride(), T.storage_offset()


cases = [case("nothing changes", (3, 5), (7, 1), 0, (0, 1), (0, 0), (1, 1)),
         case("a transpose", (3, 5), (7, 1), 0, (1, 0), (0, 0), (1, 1)),
         case("rows from 1 on", (3, 4), (4, 1), 0, (0, 1), (1, 0), (1, 1)),
         case("every second column", (3, 4), (4, 1), 0, (0, 1), (0, 0), (1, 2)),
         case("short last steps", (5, 4), (4, 1), 0, (0, 1), (0, 0), (2, 3)),
         case("every second row of a transpose", (4, 4), (4, 1), 0, (1, 0), (0, 0), (2, 1)),
         case("the example", (3, 4), (4, 1), 0, (1, 0), (1, 0), (2, 1)),
         case("a view of a view", (5, 7), (21, 2), 13, (1, 0), (2, 1), (3, 2)),
         case("three dimensions", (4, 6, 5), (40, 6, 1), 3, (2, 0, 1), (1, 2, 1), (2, 1, 4))]
mistakes = [
    Mistake("order_inverted", "order[n] was read as the place to which the old dimension n goes",
            "what order[n] connects", (SHAPE, "order = [list(order).index(n) for n in range(len(order))]\n    …")),
    Mistake("offset_forgotten", "the tensor's own offset was dropped", "where the tensor itself begins",
            ("offset += sum", "offset = sum")),
    Mistake("starts_of_the_old", "starts[n] was multiplied by the stride of the old dimension n",
            "the dimension that starts[n] belongs to", (f"{STRIDES}\n    {OFFSET}", f"{OFFSET}\n    {STRIDES}")),
    Mistake("start_times_step", "the starts were multiplied by strides that held the step", "the first element",
            ("for start, stride in zip(starts,", "* step for start, step, stride in zip(starts, steps,")),
    Mistake("starts_and_steps_of_the_old", "the tensor was sliced first and permuted afterwards", "whose starts[n] is",
            (SHAPE, "…\n    starts, steps = [starts[n] for n in order], [steps[n] for n in order]")),
    Mistake("start_not_in_size", "the size still counted the elements before the start",
            "how many elements are left from the start on", (SIZE, "-(-size // step)")),
    Mistake("size_floor", "the sizes were rounded down", "a size that the step does not divide", (SIZE,
             "(size - start) // step")),
    Mistake("steps_not_in_shape", "the steps changed the strides, but not the shape", "how many elements a step leaves",
            (SIZE, "(size - start)")),
    Mistake("steps_not_in_strides", "the steps changed the shape, but not the strides",
            "how far apart the view's elements lie", ("stride * step for", "stride for")),
]
hints = ["Permute first, then slice: starts and steps belong to the new dimensions.",
         "Find the view's first element. How far is it from the first one of the tensor?",
         "List which of 0 … 4 a step of 2 takes. How many are they, and how far apart?"]
