"""Cases and mistakes of ex09_view_strides."""

import torch

from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, shape, strides, offset, order, starts, steps):
    features = {"dimensions that trade places": list(order) != sorted(order), "a start other than 0": any(starts), "a step other than 1": any(s > 1 for s in steps),
                "starts or steps that differ between dimensions that trade places": any((starts[n], steps[n]) != (starts[o], steps[o]) for n, o in enumerate(order)),
                "a step that does not divide size − start": any((shape[o] - a) % s for o, a, s in zip(order, starts, steps, strict=True)),
                "a tensor that starts inside its memory": offset > 0, "three dimensions": len(shape) > 2}
    inputs = {"shape": shape, "strides": strides, "offset": offset, "order": order, "starts": starts, "steps": steps}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in features.items() if true), inputs)


def truth(shape, strides, offset, order, starts, steps):
    T = torch.as_strided(torch.empty(4096, device="meta"), shape, strides, offset).permute(order)
    T = T[tuple(slice(start, None, step) for start, step in zip(starts, steps, strict=True))]
    return tuple(T.shape), T.stride(), T.storage_offset()


EXERCISE = Exercise(
    function="view",
    outputs=(Output("shape"), Output("strides"), Output("offset")),
    truth=truth,
    ints_only=True,
    without=("strides",),
    cases=[
        case("nothing changes", (3, 4), (4, 1), 0, (0, 1), (0, 0), (1, 1)),
        case("a transpose", (3, 4), (4, 1), 0, (1, 0), (0, 0), (1, 1)),
        case("rows from 1 on", (3, 4), (4, 1), 0, (0, 1), (1, 0), (1, 1)),
        case("every second column", (3, 4), (4, 1), 0, (0, 1), (0, 0), (1, 2)),
        case("short last steps", (5, 4), (4, 1), 0, (0, 1), (0, 0), (2, 3)),
        case("every second row from 2 on", (6, 4), (4, 1), 0, (0, 1), (2, 0), (2, 1)),
        case("every second row of a transpose", (4, 4), (4, 1), 0, (1, 0), (0, 0), (2, 1)),
        case("the example", (3, 4), (4, 1), 0, (1, 0), (1, 0), (2, 1)),
        case("a view of a view", (5, 7), (21, 2), 13, (1, 0), (2, 1), (3, 2)),
        case("three dimensions", (4, 6, 5), (40, 6, 1), 3, (2, 0, 1), (1, 2, 1), (2, 1, 4)),
        case("a transposed tensor, sliced", (6, 8), (1, 6), 2, (1, 0), (3, 2), (2, 3)),
        case("three dimensions in another order", (3, 4, 5), (20, 5, 1), 0, (1, 2, 0), (0, 0, 0), (1, 1, 1)),
    ],
    mistakes=[
        Mistake("strides_not_permuted", "the shape was permuted, the strides were not", "strides belong to dimensions and move with them",
                ("strides = [strides[n] for n in order]", "strides = list(strides)")),
        Mistake("shape_not_permuted", "the strides were permuted, the shape was not", "sizes belong to dimensions and move with them",
                ("shape = [shape[n] for n in order]", "shape = list(shape)")),
        Mistake("nothing_permuted", "neither the shape nor the strides were permuted", "order[n] is the old dimension that becomes number n",
                ("shape = [shape[n] for n in order]", "shape = list(shape)"), ("strides = [strides[n] for n in order]", "strides = list(strides)")),
        Mistake("order_inverted", "order was read the wrong way round: as where each old dimension goes", "order[n]: which old dimension becomes the new number n",
                ("shape = [shape[n] for n in order]", "order = [list(order).index(n) for n in range(len(order))]\n    shape = [shape[n] for n in order]")),
        Mistake("starts_without_strides", "the starts were added to the offset as they are", "the offset: a start of n passes n · stride elements",
                ("start * stride for", "start for")),
        Mistake("starts_of_the_old", "starts[n] met the stride of the old dimension n, not that of the new one", "starts[n] belongs to the new dimension n",
                ("strides = [strides[n] for n in order]\n    offset += sum(start * stride for start, stride in zip(starts, strides, strict=True))",
                 "offset += sum(start * stride for start, stride in zip(starts, strides, strict=True))\n    strides = [strides[n] for n in order]")),
        Mistake("starts_ignored", "the view was taken to start where the tensor does",
                "the address of the view's first element: start · stride further on, for each dimension",
                ("offset += sum(start * stride for start, stride in zip(starts, strides, strict=True))", "")),
        Mistake("offset_forgotten", "the tensor's own offset was dropped", "the view lies in the same memory: its starts come on top of the offset",
                ("offset += sum", "offset = sum")),
        Mistake("steps_not_in_strides", "the steps changed the shape and not the strides", "how far the next element of the view is: step · stride",
                ("stride * step for", "stride for")),
        Mistake("step_added", "the step, or step − 1, was added to the stride, and has to multiply it", "how far the next element of the view is: step · stride",
                ("stride * step for", "stride + step - 1 for"), also=[[("stride * step for", "stride + step for")]]),
        Mistake("size_floor", "sizes were rounded down", "0, 2 and 4 are three elements of 0 ... 4 in steps of 2: ceil",
                ("-(-(size - start) // step)", "(size - start) // step")),
        Mistake("start_not_in_size", "the elements before the start were counted in the size", "how many elements are left from the start on",
                ("-(-(size - start) // step)", "-(-size // step)")),
        Mistake("start_times_step", "the offset counted start · step · stride: the starts met the step, or strides that had it in them already",
                "the offset: start times the stride before the step, since [start::step] starts at start", (
                 "start * stride for start, stride in zip(starts, strides, strict=True)",
                 "start * step * stride for start, step, stride in zip(starts, steps, strides, strict=True)")),
        Mistake("steps_not_in_shape", "the steps changed the strides and not the shape", "a step leaves every step-th element",
                ("-(-(size - start) // step)", "(size - start)")),
        Mistake("starts_and_steps_of_the_old", "starts[n] and steps[n] were applied to the old dimension n, as if T were sliced first and permuted afterwards",
                "starts[n] and steps[n] belong to the new dimension n", ("shape = [shape[n] for n in order]",
                 "shape = [shape[n] for n in order]\n    starts, steps = [starts[n] for n in order], [steps[n] for n in order]")),
    ],
    hints=[
        "Permute first: shape = [shape[n] for n in order], and the strides in the same way.",
        "The view starts start · stride elements further on, for each of its dimensions.",
        "A step makes the stride that many times larger, and the size ceil((size − start) / step).",
    ],
)
