"""A case in the learner's own hands: its inputs, what should come out, and a run without the checker around it.

    from flashlab_course.check import case_inputs, expected, run_case
    inputs = case_inputs("ex06_fa2_inner_loop", "two key blocks")
    expected("ex06_fa2_inner_loop", "two key blocks")["O"]
    run_case("ex06_fa2_inner_loop", "two key blocks", fa2_program)["O"]
"""

import pdb

import torch

from flashlab_course.check import form, judge, loading, runner, source


def case_inputs(name, case):
    """{argument: value} of one case, new at each call: print them, change them, call your function with them."""
    return form.exercise(name).case(case).make()


def expected(name, case):
    """{result: what it should be}, in the dtype of the solution's results."""
    exercise = form.exercise(name)
    found = judge.expect(exercise, exercise.case(case))
    pairs = zip(found.truth, found.outcome.values, strict=True)
    values = [true.to(mine.dtype) if isinstance(true, torch.Tensor) else true for true, mine in pairs]
    return {output.name: value for output, value in zip(exercise.outputs, values, strict=True)}


def run_case(name, case, fn=None):
    """{result: what fn, or without it the function in exercises/, makes of this case}.

    It is called as the checker calls it, in your own process: print and debug in it.
    """
    exercise = form.exercise(name)
    fn = loading.function_from_file(exercise)[0] if fn is None else fn
    inputs = exercise.case(case).make()
    values = exercise.invoke(fn, inputs)
    if exercise.triton:
        values = tuple(inputs[output] for output in exercise.writes)
    values = values if isinstance(values, (tuple, list)) else (values,)
    return {output.name: value for output, value in zip(exercise.outputs, values, strict=False)}


class Stepper(pdb.Pdb):
    """Goes on until a function is called, even the copy that Triton's interpreter makes of a kernel."""

    def __init__(self, code):
        super().__init__(nosigint=True)
        self.target, self.arrived = (code.co_filename, code.co_name), False

    def stop_here(self, frame):
        self.arrived = self.arrived or (frame.f_code.co_filename, frame.f_code.co_name) == self.target
        return self.arrived and super().stop_here(frame)


def step(report, fn=None):
    """Run fn, or the function in exercises/, on the smallest case that fails, else the smallest, and stop in it."""
    if not report.cases:                                       # nothing ran
        return
    fn = loading.function_from_file(form.exercise(report.exercise))[0] if fn is None else fn
    case = next((case for case in report.cases if case.passed is False), report.cases[0])
    print(f"\nThe case “{case.name}” once more, in this process, unguarded. n: next line, s: step in, q: quit")
    try:
        run = lambda: print(f"It returned {run_case(report.exercise, case.name, fn)}"[:2000])
        Stepper(source.inner(fn).__code__).runcall(run)
    except Exception as error:
        print(f"It raised {type(error).__name__}: {error}")
        pdb.post_mortem(runner.unwrapped(error).__traceback__)


def lines(exercise, case):
    """What to paste into a notebook cell to have this case at hand."""
    name = f'"{exercise.name}", "{case.name}"'
    direct = exercise.call is None and not exercise.triton
    use = f"{exercise.function}(**inputs)" if direct else f"run_case({name}, {exercise.function})"
    return "\n".join([f"from flashlab_course.check import case_inputs, expected{'' if direct else ', run_case'}",
                      f"inputs = case_inputs({name})", f"right = expected({name})", f"found = {use}"])
