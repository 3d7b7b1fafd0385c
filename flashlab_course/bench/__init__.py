"""Measurements on a GPU, recorded with everything needed to do them again. Here is what notebooks use.

    cli                          `python -m flashlab bench`; forward, backward, counters, basics/ ... are its subjects
    timing                       the loop of all measurements, `measure`, and the clock
    problems  checks  options    at which sizes; held against float64 first; chosen how
    results                      results/*.json, written and read
"""

from flashlab_course.bench.basics.sections import numbers, pick
from flashlab_course.bench.checks import check
from flashlab_course.bench.forward import live_or_recorded
from flashlab_course.bench.problems import Problem, inputs, naive_over_heads
from flashlab_course.bench.results import ROOT, load_results, where
from flashlab_course.bench.timing import measure

__all__ = ["ROOT", "Problem", "check", "inputs", "live_or_recorded", "load_results", "measure", "naive_over_heads",
           "numbers", "pick", "where"]
