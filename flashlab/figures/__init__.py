"""Every picture in the course: functions that take data and return one matplotlib Figure.

In a notebook, make the call the last line of a cell: the Figure it returns is shown, once. No plt.show() is needed, and a
call that is not the last line shows nothing; display(...) does there.

    figures.traffic_against_N(sweeps.over_N([256, 512, 1024]))

Elsewhere: `figures.memory_hierarchy().savefig("hierarchy.png")`. `python -m flashlab.figures [OUT_DIR]` draws all that need
no GPU, and those of the results/*.json there are.

A title's numbers are computed from the data drawn. Dashed is a formula, a ceiling or a budget. The line at the bottom says
whether the numbers are modelled, measured here, or recorded on which device.
"""

# ruff: noqa: F401 (the pictures are imported to be found here)

from flashlab.figures.backward import jacobian_of_product, traffic_by_tensor
from flashlab.figures.benchmarks import error_against_float64, model_vs_counters, peak_memory_against_N, runtime_against_N, tflops
from flashlab.figures.gpu import (
    bandwidth_by_footprint,
    grid_and_guard,
    layout_addresses,
    roofline,
    sectors_touched,
    tile_order,
    warp_lanes,
)
from flashlab.figures.memory import A100, attention_matrices, causal_mask, memory_hierarchy, traffic_by_op
from flashlab.figures.softmax import running_state, softmax_passes, softmax_star_error
from flashlab.figures.tiles import block_product, programs_on_sms, sram_occupancy, tile_traversal
from flashlab.figures.traffic import traffic_against_N, traffic_against_tile
