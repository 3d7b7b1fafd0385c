"""check(..., debug=True): the smallest failing case once more, without protection, under Python's debugger."""

import contextlib
import pdb
import traceback

from flashlab_course.check import runner

KEYS = "n: next line · s: step into a call · p x: print x · u, d: up and down the stack · c: go on · q: leave"


class Stepper(pdb.Pdb):
    """Goes on until the first line of the learner's function."""

    def __init__(self, code):
        super().__init__(nosigint=True)
        self.target, self.arrived = (code.co_filename, code.co_name), False     # the interpreter has a copy of a kernel

    def stop_here(self, frame):
        self.arrived = self.arrived or (frame.f_code.co_filename, frame.f_code.co_name) == self.target
        return self.arrived and super().stop_here(frame)

    def user_call(self, frame, arguments):
        """Stops at the first line of a function, not at the call as well."""


def step(exercise, fn, report):
    """Run fn on the smallest case that fails (the smallest, if none does) and stop in it."""
    results = list(zip(exercise.cases, report.cases, strict=True))
    case = next((case for case, result in results if result.passed is False), results[0][0])
    print(f"{report}\n\nThe case “{case}” once more, in this process: without a time limit, with your output shown.")
    if report.mistake == "debugger":
        print(f"It stops where you wrote breakpoint().\n{KEYS}")
        _run(exercise, fn, case)
    elif report.trace and report.mistake == "raised":
        print(f"It stops where the exception was raised.\n{KEYS}")
        _post_mortem(exercise, fn, case)
    else:
        print(f"It stops at the first line of {exercise.function}.\n{KEYS}")
        with contextlib.suppress(pdb.bdb.BdbQuit):
            Stepper(runner.code_of(fn)).runcall(_run, exercise, fn, case)


def _run(exercise, fn, case):
    with contextlib.suppress(pdb.bdb.BdbQuit), runner.unprotected(exercise, fn, case.make()) as inputs:
        result = exercise.invoke(fn, inputs)
        if not exercise.triton:
            print(f"It returned {result!r}"[:2000])


def _post_mortem(exercise, fn, case):
    try:
        _run(exercise, fn, case)
    except Exception as error:
        error = runner.unwrapped(error)
        print("".join(traceback.format_exception_only(error)).rstrip())
        own, tb = None, error.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == runner.file_of(fn):
                own = tb
            tb = tb.tb_next
        if own is not None:
            own.tb_next = None                         # the debugger opens in the innermost frame
        pdb.post_mortem(error.__traceback__)
