"""The lessons around the exercises: predictions, the reference beside an answer, the learner's code in the curves.

    my_share = None                                        # in one cell: replace None
    said = compare("share of the running state", my_share, share)
    said.on(figures.traffic_against(points), x=1024)     # the same picture, with the prediction on it
    reveal("ex06_fa2_inner_loop")                          # once it passes
    replay("ex06_fa2_inner_loop")                          # their own lines in the player
    points = sweeps.over_N(Ns) + yours.over_N(Ns)          # their own code among the curves
    print(changes(fa2._step, another._step))               # what one rung changes in the code of another
    print(excerpt(kernel, "for j", "release"))             # some lines of a kernel
"""

from flashlab_course.lesson import yours
from flashlab_course.lesson.changes import changes, excerpt
from flashlab_course.lesson.moving import replay
from flashlab_course.lesson.predictions import compare, nearest
from flashlab_course.lesson.reference import reveal

__all__ = ["changes", "compare", "excerpt", "nearest", "replay", "reveal", "yours"]
