"""Every picture in the course: functions that take data and return one matplotlib Figure.

`curves`, `bars` and `matrices` draw whatever a notebook hands them; the other pictures stand in a module for each
chapter.

In a notebook, make the call the last line of a cell: the Figure it returns is shown, once. No plt.show() is needed, and
a call that is not the last line shows nothing; display(...) does there.

    figures.traffic_against(sweeps.over_N([256, 512, 1024]))
    figures.curves({"S": {64: 4096, 128: 16384}}, "S grows with N²", "Modelled: its shape.", "N", "numbers", log="xy")

Elsewhere: `figures.ladder().savefig("ladder.png")`. A title's numbers are computed from the data drawn.
Dashed is a formula, a ceiling or a budget. The line at the bottom says whether the numbers are modelled, measured here,
or recorded.
"""

from importlib import import_module
from pkgutil import iter_modules

from flashlab_course.figures.colors import YOURS
from flashlab_course.figures.style import sharpen
from flashlab_course.figures.words import power_text, series

for module in (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)
               if found.name != "__main__"):
    globals().update({name: found for name, found in vars(module).items() if hasattr(found, "__wrapped__")})

__all__ = ["YOURS", "power_text", "series"]
sharpen()
