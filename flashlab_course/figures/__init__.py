"""Every picture in the course: functions that take data and return one matplotlib Figure.

In a notebook, make the call the last line of a cell: the Figure it returns is shown, once. No plt.show() is needed, and a
call that is not the last line shows nothing; display(...) does there.

    figures.traffic_against_N(sweeps.over_N([256, 512, 1024]))

Elsewhere: `figures.memory_hierarchy().savefig("hierarchy.png")`. `python -m flashlab_course.figures [OUT_DIR]` draws all that need
no GPU, and those of the results/*.json there are.

A title's numbers are computed from the data drawn. Dashed is a formula, a ceiling or a budget. The line at the bottom says
whether the numbers are modelled, measured here, or recorded on which device.
"""

# ruff: noqa: F401 (the pictures are imported to be found here)

from flashlab_course.figures.accesses import (
    address_walk,
    matrix_accesses,
    memory_line,
    tiles_and_addresses,
    times_touched,
    vector_accesses,
)
from flashlab_course.figures.attention import ladder, saturation, tile_of_scores, who_sees_whom
from flashlab_course.figures.backward import (
    backward_dataflow,
    backward_peak_against_N,
    finite_differences,
    jacobian_of_product,
    matrix_crossings,
    softmax_jacobian,
    sums_by_order,
    traffic_by_tensor,
    two_passes,
)
from flashlab_course.figures.benchmarks import (
    error_against_float64,
    model_vs_counters,
    peak_memory_against_N,
    runtime_against_N,
    tflops,
)
from flashlab_course.figures.blocks import attention_tiles, matmul_traffic
from flashlab_course.figures.budget import share_of_S, tiles_in_sram
from flashlab_course.figures.decoding import (
    bytes_of_steps,
    cost_of_splits,
    decode_steps,
    fp8_times,
    pages_drawn,
    sms_busy,
    time_of_splits,
)
from flashlab_course.figures.formats import float16_range, running_sums
from flashlab_course.figures.gpu import (
    bandwidth_by_block,
    bandwidth_by_footprint,
    grid_and_guard,
    halving,
    layout_addresses,
    roofline,
    sectors_touched,
    tile_order,
    time_by_block,
    time_by_period,
    warp_lanes,
)
from flashlab_course.figures.kernels import (
    causal_tiles,
    compiled_kernels,
    errors_by_dtype,
    masks_compared,
    padded_weight,
    phantom_weights,
    program_grid,
    rounding_budget,
    scores_and_limit,
    tile_grids,
    tile_on_its_side,
    tile_over_memory,
)
from flashlab_course.figures.machine import (
    GPUS,
    bytes_in_flight,
    gpu_drawn,
    host_and_gpu,
    latency_by_footprint,
    on_chip_sizes,
    op_times,
    sm_filled,
)
from flashlab_course.figures.measured import (
    bars,
    order_and_time,
    share_of_copy,
    share_of_library,
    slower_with_stride,
    speed_and_error,
)
from flashlab_course.figures.memory import (
    A100,
    attention_matrices,
    causal_mask,
    crossings,
    matrix_sizes,
    memory_hierarchy,
    peak_against_N,
    traffic_by_op,
)
from flashlab_course.figures.published import algorithm_beside_code
from flashlab_course.figures.reasons import (
    WITHOUT_L,
    causal_cost,
    limit_of_bytes,
    relative_speed,
    short_sequences,
    spread_of_runs,
    time_of_a_score,
    times_of_calls,
    work_against_N,
)
from flashlab_course.figures.ring import ring_memory, ring_parts, ring_speedup, ring_work
from flashlab_course.figures.rungs import gain_of_rung, kernels_beside_peers, times_of_tiles
from flashlab_course.figures.schedules import instructions_of_rungs, lanes_of_products, left_of_a_grid, pieces_in_banks, timelines
from flashlab_course.figures.softmax import (
    largest_exponentials,
    records,
    rounding_of_l,
    running_state,
    shares_of_weight,
    softmax_passes,
    star_weights,
)
from flashlab_course.figures.style import YOURS, sharpen
from flashlab_course.figures.threads import branches_in_code, elements_of_threads, lanes_of_tiles
from flashlab_course.figures.tiles import block_product, programs_on_sms, sram_occupancy, tile_traversal
from flashlab_course.figures.traffic import (
    break_even,
    share_of_naive,
    traffic_against_N,
    traffic_against_sram,
    traffic_against_tile,
)
from flashlab_course.figures.training import (
    loss_curves,
    parts_of_a_step,
    share_of_attention,
    time_of_a_token,
    training_by_context,
    training_memory,
)
from flashlab_course.figures.work import split_among_warps, time_by_unit, traffic_of_state

sharpen()
