"""Measurements on a GPU, recorded with everything needed to do them again. Here is what notebooks use.

    cli                          `python -m flashlab bench`; forward, backward, counters and basics/ are its subjects
    passes  problems  options    what these share: checked first, then timed; at which sizes; chosen how
    timing  ncu                  the two instruments
    rows  results                a row's fields and units; results/*.json, written and read
"""

from flashlab_course.bench.basics.sections import numbers, pick
from flashlab_course.bench.forward import live_or_recorded, measure
from flashlab_course.bench.problems import Implementation, Problem, implementations, inputs, naive_over_heads, tiles
from flashlab_course.bench.results import ROOT, load_results, where

__all__ = ["ROOT", "Implementation", "Problem", "implementations", "inputs", "live_or_recorded", "load_results", "measure",
           "naive_over_heads", "numbers", "pick", "tiles", "where"]
