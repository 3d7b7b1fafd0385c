"""Measurements on a GPU, recorded with everything needed to do them again. Notebooks use the names below.

    cli       `python -m flashlab bench`; forward, backward, counters, basics/ ... are its subjects
    timing    `measure`, the loop of all measurements, and the clock
    problems  the sizes; checks: the comparison with float64 before anything is timed; options: of the command
    results   results/*.json, written and read
"""

from flashlab_course.bench.basics.sections import numbers, pick
from flashlab_course.bench.checks import check
from flashlab_course.bench.forward import live_or_recorded
from flashlab_course.bench.problems import Problem, inputs, naive_over_heads
from flashlab_course.bench.results import ROOT, load_results, where
from flashlab_course.bench.timing import measure

__all__ = ["ROOT", "Problem", "check", "inputs", "live_or_recorded", "load_results", "measure", "naive_over_heads",
           "numbers", "pick", "where"]
