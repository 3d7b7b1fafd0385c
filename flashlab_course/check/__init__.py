"""The exercise checker: it says which mistake was made, where it first shows, and what to look at.

    from flashlab_course.check import check
    check("ex06_fa2_inner_loop")                 # the file in exercises/, read afresh from disk
    check("ex06_fa2_inner_loop", my_function)    # a function from a notebook cell
    check("ex06_fa2_inner_loop", hint=True)      # one more hint at each call
    check("ex06_fa2_inner_loop", debug=True)     # step through the smallest case that fails
    check("ex06_fa2")                            # the start of a name will do
    check()                                      # your progress, and what comes next

`check` returns a Report and raises nothing for what a learner may have written.
"""

from flashlab_course.check.checker import check
from flashlab_course.check.failing import case_inputs, expected, run_case
from flashlab_course.check.report import Report

__all__ = ["Report", "case_inputs", "check", "expected", "run_case"]
