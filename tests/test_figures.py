"""Figures: they render, their titles tell the truth about their data, and no text falls off the page."""

import ast
import json
import math
import re
import sys
import types
from importlib import import_module
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402

from flashlab import cost
from flashlab.ladder import RUNGS, Rung, find  # noqa: E402
from flashlab.memory import KiB, Memory  # noqa: E402
from flashlab.rungs.fa1 import fa1_forward  # noqa: E402
from flashlab.rungs.fa2 import fa2_forward  # noqa: E402
from flashlab.rungs.naive import naive_forward  # noqa: E402
from flashlab_course import figures, sweeps  # noqa: E402
from flashlab_course.compiler.layouts import Layout as Held  # noqa: E402
from flashlab_course.figures import gallery, style  # noqa: E402
from flashlab_course.figures.budget import tile_bytes  # noqa: E402
from flashlab_course.figures.softmax import softmax_states  # noqa: E402
from flashlab_course.figures.tiles import replay  # noqa: E402
from flashlab_course.figures.words import bytes_text  # noqa: E402
from flashlab_course.gpu.simt import launch, vector_add  # noqa: E402
from flashlab_course.lesson.accesses import Access, Layout, Touched  # noqa: E402
from tests import (  # noqa: E402
    pictures_backward,
    pictures_decoding,
    pictures_reasons,
    pictures_ring,
    pictures_schedules,
    pictures_training,
)

PROVENANCE = {"device": "Invented GPU", "torch": "0.0", "triton": "0.0", "cuda": "0", "python": "3", "date": "2000-01-01T00:00:00",
              "commit": "0", "command": "-"}                           # made up, like every number below: never a result
SPEED = {"naive_forward": 40, "fa2_triton_forward": 400, "sdpa_math": 30, "sdpa_efficient": 170, "sdpa_flash": 350,
         "sdpa_cudnn": 600}


def invented_results():
    rows = []
    for n, (name, speed) in enumerate(SPEED.items()):
        for N in (512, 1024, 2048, 4096, 8192, 16384):
            B, H, d = 16384 // N, 16, 128
            row = {"implementation": name, "pass": "forward", "dtype": "bfloat16", "B": B, "H": H, "N": N, "d": d,
                   "causal": False, "skipped": None}
            if name == "sdpa_math" and N == 16384:
                rows.append(row | dict.fromkeys(("ms", "ms_low", "ms_high", "tflops", "peak_bytes", "error")) |
                            {"skipped": "out of memory"})
                continue
            rate = speed * N / (N + 500)
            ms = cost.attention_flops(B, H, N, N, d) / rate / 1e9
            whole = B * H * N * N * 4 if name in ("naive_forward", "sdpa_math") else 0
            rows.append(row | {"ms": ms, "ms_low": 0.97 * ms, "ms_high": 1.05 * ms, "tflops": rate,
                               "peak_bytes": B * H * N * (2 * d + 4) + whole, "error": (n + 3) * 1e-3 / math.sqrt(N)})
    return {"what": "forward", "provenance": PROVENANCE, "ceilings": {"matmul_tflops": 800, "copy_tb_s": 3}, "rows": rows}


def invented_counters():
    rows = []
    for N in (1024, 2048, 4096, 8192, 16384):
        size = {"N": N, "B": 1, "H": 16, "d": 64, "dtype": "bfloat16", "kernels": ["-"]}
        unit = 16 * N * 64 * 2
        rows.append(size | {"implementation": "naive_forward", "dram_read": 16 * N * N * 5, "dram_written": 16 * N * N * 4,
                            "l2_bytes": 16 * N * N * 16})
        rows.append(size | {"implementation": "fa2_triton_forward", "dram_read": 3 * unit, "dram_written": unit,
                            "l2_bytes": unit * (2 + 2 * N // 128)})
    return {"what": "counters", "provenance": PROVENANCE, "rows": rows}


def qkv(N_q, N_k=None, d=16):
    torch.manual_seed(0)
    return torch.randn(N_q, d), torch.randn(N_k or N_q, d), torch.randn(N_k or N_q, d)


def measure(rung, N_q, N_k=None, d=16, sram_bytes=192 * KiB, **kwargs):
    Q, K, V = qkv(N_q, N_k, d)
    with Memory(sram_bytes) as mem:
        rung(Q, K, V, **kwargs)
    return mem


def traversals(N_q=64, N_k=64, **kwargs):
    return {f.__name__: measure(f, N_q, N_k, B_r=16, B_c=16, **kwargs) for f in (fa1_forward, fa2_forward)}


def draw(name):
    """Every figure, on small data."""
    logs = {name: mem.log for name, mem in traversals().items()}
    A = torch.arange(12.0).view(3, 4)
    added = launch(vector_add, 1, 32)(A.flatten(), A.flatten(), torch.zeros(12), 12)
    return {
        **pictures_schedules.all_of(),
        **pictures_ring.all_of(),
        **pictures_decoding.all_of(),
        "ladder": figures.ladder,
        "tile_of_scores": lambda: figures.tile_of_scores(7, 9, 3, 4, 2, 1),
        "who_sees_whom": lambda: figures.who_sees_whom(8, 6),
        "saturation": lambda: figures.saturation([{"spread": s, "mean": 1e-3, "median": 1e-3 / s**4} for s in (0.5, 1, 4, 8)]),
        "memory_hierarchy": lambda: figures.memory_hierarchy(),
        "matrix_sizes": lambda: figures.matrix_sizes([256, 1024, 4096], 64),
        "crossings": lambda: figures.crossings(measure(naive_forward, 64)),
        "peak_against_N": lambda: figures.peak_against_N({32: 9000, 64: 34000}, 16),
        "gpu_drawn": lambda: figures.gpu_drawn("H100"),
        "on_chip_sizes": figures.on_chip_sizes,
        "sm_filled": lambda: figures.sm_filled(256, 128, 48 * KiB),
        **{name: lambda name=name: getattr(figures, name)(*measured(name)) for name in MEASURED},
        "traffic_by_op": lambda: figures.traffic_by_op(measure(naive_forward, 64)),
        "attention_matrices": lambda: figures.attention_matrices(512, 512, 64),
        "causal_mask": lambda: figures.causal_mask(3, 8),
        "softmax_passes": lambda: figures.softmax_passes({"three passes": (12288, 4096), "two passes": (8192, 4096)}),
        "running_state": lambda: figures.running_state([0.0, 1.0, 2.0, 3.0] + [0.0] * 20),
        "block_product": lambda: figures.block_product(48, 50, 40, 16, 16, 20),
        "largest_exponentials": lambda: figures.largest_exponentials({torch.float32: 88, torch.float16: 11}),
        "records": lambda: figures.records([3, 4, 4, 6], N=50, expected=4.5),
        "rounding_of_l": lambda: figures.rounding_of_l([{"order": order, "N": N, "error": N / k, "bound": k * N}
                                                        for k, order in ((2, "falling"), (3, "rising")) for N in (10, 100)]),
        "shares_of_weight": lambda: figures.shares_of_weight([(0, 1.0, 2.0), (0, 3.0, 1.0)], [3, 1]),
        "star_weights": lambda: figures.star_weights(torch.tensor([0.0, 1.0, 3.0, 0.0, 0.0]), 2),
        "matmul_traffic": lambda: figures.matmul_traffic([{"edge": B, "formula": 2**20 // B, "measured": fits and 2**20 // B}
                                                          for B, fits in ((8, True), (16, True), (32, None))]),
        "attention_tiles": lambda: figures.attention_tiles(3, 5, i=1),
        "tiles_in_sram": lambda: figures.tiles_in_sram({"64 × 192": tile_bytes(64, 192, 64)}, 192 * KiB),
        "share_of_S": lambda: figures.share_of_S([32, 64, 128], 192 * KiB),
        "traffic_of_state": lambda: figures.traffic_of_state(logs),
        "time_by_unit": lambda: figures.time_by_unit([64, 128], {64: 6, 128: 8}),
        "split_among_warps": lambda: figures.split_among_warps(64, 128, 64),
        "tile_traversal": lambda: figures.tile_traversal(logs, 64, 64),
        "sram_occupancy": lambda: figures.sram_occupancy(traversals()),
        "programs_on_sms": lambda: figures.programs_on_sms(1, 16, 4096, 128),
        "traffic_against_N": lambda: figures.traffic_against_N(sweeps.over_N([32, 64, 128], d=16)),
        "share_of_naive": lambda: figures.share_of_naive(sweeps.over_N([32, 64, 128], d=16)),
        "break_even": lambda: figures.break_even([p for d in (16, 32) for p in sweeps.over_heights(64, d, [2, 8, 32], B_c=64)]),
        "traffic_against_sram": lambda: figures.traffic_against_sram(
            [p for sram in (16, 64) for p in sweeps.over_N([128], d=32, sram_bytes=sram * KiB)]),
        "traffic_against_tile": lambda: figures.traffic_against_tile(sweeps.over_tiles(64, 16, (8, 16, 32, 64), 16 * KiB)),
        "model_vs_counters": lambda: figures.model_vs_counters(invented_counters()),
        "runtime_against_N": lambda: figures.runtime_against_N(invented_results()),
        "peak_memory_against_N": lambda: figures.peak_memory_against_N(invented_results()),
        "tflops": lambda: figures.tflops(invented_results()),
        "error_against_float64": lambda: figures.error_against_float64(invented_results()),
        **pictures_reasons.all_of(invented_results()),
        "roofline": lambda: figures.roofline([{"op": "FA2", "flops": 4000, "bytes": 1}, {"op": "add", "flops": 1, "bytes": 12}],
                                             3, 600, "Modelled."),
        "bandwidth_by_footprint": lambda: figures.bandwidth_by_footprint(
            [{"footprint": 2**n, "tb_s": 40.0 - n} for n in range(20, 30)], "Recorded on paper.", l2_bytes=2**25),
        "halving": lambda: figures.halving([3, 1, 4, 1]),
        "warp_lanes": lambda: figures.warp_lanes(added),
        "grid_and_guard": lambda: figures.grid_and_guard((10, 20), (4, 8)),
        "layout_addresses": lambda: figures.layout_addresses({"T": A, "T.T": A.T}),
        "sectors_touched": lambda: figures.sectors_touched({"in a row": added}, columns=16),
        "tile_order": lambda: figures.tile_order({"rows": [(i, j) for i in range(4) for j in range(4)]}, wave=4),
        "jacobian_of_product": lambda: figures.jacobian_of_product(3, 2, 2),
        "traffic_by_tensor": lambda: figures.traffic_by_tensor(logs),
        **pictures_backward.pictures(),
        **pictures_training.pictures(),
        **of_chapter_09(),
    }[name]()


# Invented, as a GPU would measure it: rows, and what else the figure takes.
MEASURED = {
    "latency_by_footprint": ([{"level": "cache or HBM", "footprint": 2**n, "ns": 10.0 * n} for n in (14, 20, 30)] +
                             [{"level": "shared memory", "footprint": 2**14, "ns": 20.0}],),
    "op_times": ([{"op": "add", "ms": 0.5, "bytes": 10**9, "flops": 10**8},
                  {"op": "matmul", "ms": 0.2, "bytes": 10**8, "flops": 10**11}], 3.0, 600),
    "bytes_in_flight": ([{"each": each, "in_flight": each * n, "tb_s": min(4.0, each * n / 4e5)} for each in (4, 16)
                         for n in (10**4, 10**5, 10**6)], 400, 4.0),
    "host_and_gpu": ([{"what": what, "memory": memory, "ms": ms} for what, memory, ms in (
        ("two copies to the GPU", "pageable", 60.0), ("one copy back", "pageable", 16.0), ("two copies to the GPU", "pinned", 10.0),
        ("one copy back", "pinned", 5.0), ("x + y on the GPU", "", 0.2), ("x + y on the CPU", "", 20.0))],),
    "time_by_period": ([{"period": p, "ms": 2.0 if p < 32 else 1.0} for p in (1, 16, 32, 2**30)],),
    "time_by_block": ([{"block": b, "ms": max(1.0, 32 / b)} for b in (8, 16, 32, 64)],),
    "bandwidth_by_block": ([{"by": "CUDA C++", "block": b, "tb_s": min(3.0, b / 50)} for b in (1, 32, 128, 256)] +
                           [{"by": "PyTorch", "tb_s": 3.1}],),
}


def measured(name, words="Recorded on paper."):
    return (*MEASURED[name], words)


def of_chapter_09():
    strided = Layout((4, 6), (1, 4))
    places = np.arange(2)[:, None] + 4 * np.arange(4)
    run = Touched({"X": strided, "Out": strided}, [Access(kind, name, (p,), places + 2 * p, places < 99) for p in (0, 1)
                                                   for kind, name in (("load", "X"), ("store", "Out"))])
    places = np.arange(8).reshape(2, 4)
    vector = Touched({"X": Layout((6,), (1,))}, [Access("load", "X", (p,), places[p], places[p] < 6) for p in (0, 1)])
    tile = Held("load", (32, 64), (1, 4), (2, 16), (4, 1), (1, 0))
    strides = [{"stride": n, "ms": float(n)} for n in (1, 2, 4, 8, 16)]
    softmaxes = [{"N": N, "dtype": "float16", "by": by, "ms": ms} for N in (256, 4096) for by, ms in
                 (("kernel", 1.0), ("torch", 2.0), ("copy", 1.0), ("eager", 6.0))]
    precisions = [{"by": by, "precision": name, "tflops": speed, "mean_error": error} for by, name, speed, error in
                  (("kernel", "ieee", 40, 1e-6), ("kernel, B by columns", "tf32", 240, 1e-3), ("torch", "tf32", 400, 3e-4))]
    products = [{"n": n, "by": by, "tflops": n * share} for n in (1024, 8192) for by, share in
                (("torch", 0.1), ("pointers", 0.08), ("descriptors", 0.09))]
    orders = [{"group": group, "ms": 2.0 - group / 100, "dram_read": 2e9 / group} for group in (1, 8)]
    paper, T = "Recorded on paper.", torch.arange(35).view(5, 7)
    return {
        "vector_accesses": lambda: figures.vector_accesses({"wanted": vector, "yours": Touched(problem="it raised ValueError")}),
        "matrix_accesses": lambda: figures.matrix_accesses({"wanted": run, "yours": run}),
        "memory_line": lambda: figures.memory_line(run),
        "times_touched": lambda: figures.times_touched({"wanted": run}),
        "tiles_and_addresses": lambda: figures.tiles_and_addresses({"T": (T, (2, 2), (4, 4)), "T.T": (T.T, (0, 2), (1, 3))}),
        "address_walk": lambda: figures.address_walk({"T": T, "T.T": T.T}),
        "elements_of_threads": lambda: figures.elements_of_threads(Held("load", (1024,), (4,), (32,), (4,), (0,))),
        "lanes_of_tiles": lambda: figures.lanes_of_tiles({"X": tile, "Y": tile, "Out": tile}),
        "branches_in_code": lambda: figures.branches_in_code({"run-time, flag 0": {"ex2": 8, "sqrt": 8, "bra": 3}}),
        "running_sums": lambda: figures.running_sums({"float16": [1, 2, 3, 3], "float32": [1, 2, 3, 4]}, added=1),
        "float16_range": lambda: figures.float16_range({"1e-4": 1e-4, "its square": 1e-8, "300²": 9e4}),
        "bars": lambda: figures.bars({"a": 1.0, "b": 300.0}, "b takes 300 times as long", paper, "ms", log=True, worse=("b",)),
        "slower_with_stride": lambda: figures.slower_with_stride(strides, paper, {n: (min(32, 4 * n), True) for n in (1, 2, 8)}),
        "share_of_copy": lambda: figures.share_of_copy(softmaxes, paper),
        "speed_and_error": lambda: figures.speed_and_error(precisions, paper),
        "share_of_library": lambda: figures.share_of_library(products, paper),
        "order_and_time": lambda: figures.order_and_time(orders, orders, paper),
    }


DRAWN = [name for name, f in vars(figures).items() if hasattr(f, "__wrapped__")]


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


def source(fig):
    return fig.get_supxlabel().replace("\n", " ")


def labels(ax):
    return [text.get_text() for text in ax.texts]


def boxes_overlap(fig, texts):
    renderer = FigureCanvasAgg(fig).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_visible() and text.get_text()]
    return [(a, b) for n, (a, box_a) in enumerate(boxes) for b, box_b in boxes[n + 1:]
            if box_a.x0 < box_b.x1 - 1 and box_b.x0 < box_a.x1 - 1 and box_a.y0 < box_b.y1 - 2 and box_b.y0 < box_a.y1 - 2]


@pytest.mark.parametrize("name", DRAWN)
def test_renders_and_nothing_falls_off_the_page(name):
    fig = draw(name)
    assert isinstance(fig, Figure)
    assert not plt.get_fignums(), "pyplot still holds the figure: a notebook would show it twice"
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    everything = fig.get_tightbbox(canvas.get_renderer())                # inches
    width, height = fig.get_size_inches()
    assert everything.x0 > -0.02 and everything.y0 > -0.02 and everything.x1 < width + 0.02 and everything.y1 < height + 0.02
    written = [fig._suptitle, fig._supxlabel]
    for ax in fig.axes:
        written += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    assert boxes_overlap(fig, written) == []
    assert re.match(r"(Modelled|Measured here|Recorded on|Published|Definition)", source(fig)), "where the numbers come from"


def test_every_implementation_has_one_color_of_its_own():
    names = {rung.name for rung in RUNGS} | {"sdpa_math", "sdpa_efficient", "sdpa_flash", "sdpa_cudnn"}
    assert all(find(name) and style.label(name) != name and style.marker(name) == find(name).marker for name in names)
    assert len({style.color(name) for name in names}) == len(names)
    for name in ("naive", "fa1", "fa2", "fa2_triton"):
        assert style.color(f"{name}_backward") == style.color(f"{name}_forward")


def test_every_picture_is_found_in_figures():
    folder = Path(figures.__file__).parent
    for module in (import_module(f"flashlab_course.figures.{path.stem}") for path in folder.glob("*.py") if "__" not in path.stem):
        here = {name for name, f in vars(module).items() if hasattr(f, "__wrapped__") and f.__module__ == module.__name__}
        assert here <= set(DRAWN), f"{module.__name__} draws what flashlab_course.figures does not have"


def test_figures_import_what_they_draw_and_nobody_s_private_names():
    """A picture gets its data: it measures nothing, and judges nothing."""
    for path in Path(figures.__file__).parent.glob("*.py"):
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom | ast.Import)]
        modules = {getattr(node, "module", None) or node.names[0].name for node in imports}
        assert not [m for m in modules if m.startswith(("flashlab_course.bench", "flashlab_course.check"))], path.name
        assert not [alias.name for node in imports for alias in node.names if alias.name.startswith("_")], path.name
    assert "matplotlib" not in Path(sweeps.__file__).read_text()


@pytest.fixture
def add_rung(monkeypatch):
    """One more line in the ladder: FA2 under another name, in a colour and with a marker that no other has."""
    module = types.ModuleType("scratch")
    module.scratch_forward = lambda *QKV, **options: fa2_forward(*QKV, **options)
    monkeypatch.setitem(sys.modules, "scratch", module)
    before = RUNGS[:]
    yield lambda **more: RUNGS.append(Rung(99, "scratch_forward", "scratch", "the next idea", chapter="99", new="-",
                                           cost=cost.fa2_forward, color="#123456", marker="P", tiled=True, **more))
    RUNGS[:] = before


def as_scratch(rows, doubled=()):
    """What the Triton kernel's rows would say of the scratch rung."""
    return [r | {"implementation": "scratch_forward"} | {key: 2 * r[key] for key in doubled} for r in rows
            if r["implementation"] == "fa2_triton_forward"]


def drawn_in(fig, color):
    return {line.get_marker() for ax in fig.axes for line in ax.lines if line.get_color() == color}


def test_a_new_rung_is_drawn_without_a_change_to_any_figure(add_rung):
    add_rung()
    points, sizes = sweeps.over_N([32, 64], d=16), sweeps.over_tiles(64, 16, (8, 16, 64), 16 * KiB)
    assert all(p["measured"] == p["formula"] for p in points) and points[-1]["rung"] == sizes[-1]["rung"] == "scratch_forward"
    for fig in (figures.traffic_against_N(points), figures.traffic_against_tile(sizes)):
        assert "the next idea" in labels(fig.axes[0]) and "P" in drawn_in(fig, "#123456")
    log = measure(fa2_forward, 32, B_r=16, B_c=16).log
    assert title(figures.tile_traversal({"scratch_forward": log}, 32, 32)).startswith("the next idea moves K, V")
    results = invented_results()
    results["rows"] += as_scratch(results["rows"])
    fig = figures.runtime_against_N(results)
    assert "the next idea" in labels(fig.axes[0]) and drawn_in(fig, "#123456") == {"P"}
    assert "FA2 in Triton takes" in title(fig)                           # the next idea runs on no GPU
    assert "the next idea takes" in title(figures.runtime_against_N(results, focus="scratch_forward"))


@pytest.mark.parametrize("measured", [True, False])
def test_titles_are_about_the_last_gpu_kernel_that_was_measured(add_rung, measured):
    add_rung(heads=True)
    results, counters = invented_results(), invented_counters()
    if measured:
        results["rows"] += as_scratch(results["rows"])
        counters["rows"] += as_scratch(counters["rows"], doubled=["dram_read"])
    for draw_ in (figures.runtime_against_N, figures.peak_memory_against_N, figures.tflops, figures.error_against_float64):
        says = title(draw_(results))
        assert ("the next idea" if measured else "FA2 in Triton") in says and "not" not in says
    moved = (7 if measured else 4) * 16 * 16384 * 64 * 2
    assert f"{bytes_text(moved)} for the kernel" in title(figures.model_vs_counters(counters))


def test_pictures_of_the_backward_pass():
    """Its rows are found, and a forward's are not; the source says which pass it is."""
    invented = invented_results()
    rename = lambda row: {"pass": "backward", "implementation": row["implementation"].replace("_forward", "_backward")}
    rows = [row | rename(row) for row in invented["rows"]]
    results = invented | {"what": "backward", "rows": rows}
    for draw_ in (figures.runtime_against_N, figures.peak_memory_against_N, figures.tflops):
        fig = draw_(results, focus="fa2_triton_backward")
        assert title(fig) == title(draw_(results))                       # the kernel is found without being named
        assert "Backward, bfloat16" in source(fig) and "FA2 in Triton" in title(fig) and "not" not in title(fig)
        with pytest.raises(ValueError, match="no measured"):
            draw_(results | {"what": "forward"})


def test_pictures_of_who_works_when():
    """Their titles say what their data do, whatever those are."""
    says = title(figures.timelines(pictures_schedules.four_steps(5), "multiply", "-"))
    assert says.endswith("one after the other: 25 %; overlapped: 62 %")
    assert title(figures.left_of_a_grid([(64, 64, 4, 1), (64, 64, 4, 2)], [(64, 64, 4, 1)], "-")).startswith("1 of 2 choices")
    assert "8 steps where the rows lie as they are, 1 where" in title(figures.pieces_in_banks(3))
    assert "nothing has to move" in title(figures.lanes_of_products())
    counts = {name: {"copies": n} for n, name in ((24, "before"), (2, "after"))}
    assert title(figures.instructions_of_rungs(counts, "PTX", "-")) == "before to after: copies 24 → 2"


def test_a_figure_leaves_the_callers_style_alone():
    before = dict(plt.rcParams)
    figures.memory_hierarchy()
    assert dict(plt.rcParams) == before


def test_memory_hierarchy_ratios_follow_the_constants():
    assert title(figures.memory_hierarchy()) == "SRAM is 13 times as fast as HBM and 1900 times smaller"
    halved = {"HBM": {"bytes": 100e6, "bytes_per_s": 1e12}, "SRAM": {"bytes": 1e6, "bytes_per_s": 5e12}}
    assert title(figures.memory_hierarchy(halved)) == "SRAM is 5 times as fast as HBM and 100 times smaller"


def test_traffic_by_op_adds_up_to_the_memory():
    mem = measure(naive_forward, 64)
    fig = figures.traffic_by_op(mem)
    ax = fig.axes[0]
    assert sum(bar.get_width() for bar in ax.patches) == mem.read + mem.written
    assert [t.get_text() for t in ax.get_yticklabels()] == ["QKᵀ", "scale", "softmax", "PV", "logsumexp"]
    assert title(fig).endswith(f"{(mem.read + mem.written) / KiB:.1f} KiB in 5 kernels")


def test_traffic_by_op_names_the_mask_too():
    ax = figures.traffic_by_op(measure(naive_forward, 64, causal=True)).axes[0]
    assert "mask" in [t.get_text() for t in ax.get_yticklabels()]


def test_attention_matrices_are_to_scale():
    fig = figures.attention_matrices(100, 200, 10, 30)
    sizes = [(patch.get_height(), patch.get_width()) for patch in fig.axes[0].patches]
    assert sizes == [(100, 10), (200, 10), (200, 30), (100, 200), (100, 200), (100, 30)]
    numbers = [a * b for a, b in sizes]
    assert f"{100 * (numbers[3] + numbers[4]) / sum(numbers):.0f} %" in title(fig)


@pytest.mark.parametrize("N_q, N_k", [(4, 4), (3, 8), (8, 3)])
def test_causal_mask_is_the_oracles(N_q, N_k):
    fig = figures.causal_mask(N_q, N_k)
    filled = [patch for patch in fig.axes[-1].patches if patch.get_facecolor()[:3] != (1, 1, 1)]
    visible = {(int(patch.get_y()), int(patch.get_x())) for patch in filled}
    assert visible == {(i, j) for i in range(N_q) for j in range(N_k) if j <= i + N_k - N_q}
    assert ("see none" in title(fig)) == (N_q > N_k)


def test_softmax_states_are_the_softmax_of_each_prefix():
    xs = torch.randn(20, dtype=torch.float64)
    for n, (m, l, _) in enumerate(softmax_states(xs), start=1):
        assert m == xs[:n].max().item()
        assert l == pytest.approx(torch.exp(xs[:n] - m).sum().item())
    assert softmax_states([-math.inf, 1.0])[-1] == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("xs, claim", [([0, 2, 1, 3], "l is rescaled 2 times: whenever the maximum grows, and only then"),
                                       ([0, 1, 0], "l is rescaled once"), ([3, 2, 1], "never rescaled: no score exceeds the first"),
                                       ([-math.inf, 0, 1], "l is rescaled once")])
def test_running_state_counts_the_rescales(xs, claim):
    assert claim in title(figures.running_state(xs))


def test_running_state_tells_when_a_learners_state_forgot_to_rescale():
    assert "but the maximum grows 1 times" in title(figures.running_state([0, 1], states=[(0, 1, 0), (1, 2, 1)]))


@pytest.mark.parametrize("N_q, N_k, causal", [(64, 64, False), (64, 64, True), (40, 72, True), (72, 40, True), (50, 33, False)])
def test_replay_visits_every_tile_once_and_accounts_for_every_byte(N_q, N_k, causal):
    for name, mem in traversals(N_q, N_k, causal=causal).items():
        visits, moves = replay(mem.log)
        T_r, T_c = math.ceil(N_q / 16), math.ceil(N_k / 16)
        tiles = [(i, j) for i in range(T_r) for j in range(T_c)]
        if name == "fa1_forward":
            tiles.sort(key=lambda tile: tile[1])                         # key blocks outside, queries inside; skips none
        elif causal:
            tiles = [(i, j) for i, j in tiles if j * 16 <= min(N_q, (i + 1) * 16) - 1 + N_k - N_q]
        assert [(rows[0] // 16, cols[0] // 16) for rows, cols in visits] == tiles
        moved = sum(event.read + event.written for event in mem.log if event.kind in ("load", "store"))
        assert sum(nbytes for step in moves for _, _, nbytes in step) == moved


def test_replay_gives_each_step_its_own_moves():
    mems = traversals()
    _, fa1 = replay(mems["fa1_forward"].log)
    _, fa2 = replay(mems["fa2_forward"].log)
    moved = lambda step: [(verb, T) for verb, T, _ in step]
    assert moved(fa1[1]) == [("load", "Q"), ("load", "O"), ("load", "l"), ("load", "m"),
                             ("store", "O"), ("store", "l"), ("store", "m")]
    assert moved(fa1[4])[:2] == [("load", "K"), ("load", "V")]           # the second key block
    assert moved(fa2[1]) == [("load", "K"), ("load", "V")]
    assert moved(fa2[3]) == [("load", "K"), ("load", "V"), ("store", "O"), ("store", "L")]


def test_tile_traversal_title_and_skipped_tiles():
    mems = traversals(causal=True)
    fig = figures.tile_traversal({name: mem.log for name, mem in mems.items()}, 64, 64)
    kernel_bytes = {name: sum(e.read + e.written for e in mem.log if e.kind != "eager") for name, mem in mems.items()}
    FA1, FA2 = (f"{kernel_bytes[name] / KiB:.1f} KiB" for name in ("fa1_forward", "fa2_forward"))
    assert title(fig) == f"FA2 skips 6 of 16 tiles: {FA2}, FA1 {FA1}"
    plain = figures.tile_traversal({name: mem.log for name, mem in traversals().items()}, 64, 64)
    assert title(plain).startswith("FA2 keeps O, l, m on the chip and moves ")
    assert fig.axes[1].get_title("left") == "FA2: 10 tiles, 6 skipped"
    assert sum(patch.get_hatch() is not None for patch in fig.axes[1].patches) == 6
    assert labels(fig.axes[0])[:5] == ["1", "5", "9", "13", "2"]         # row by row of the picture


def test_tile_traversal_of_one_kernel_and_of_blind_rows():
    log = measure(fa2_forward, 72, 40, B_r=16, B_c=16, causal=True).log
    fig = figures.tile_traversal({"fa2_forward": log}, 72, 40)
    assert title(fig).startswith("FA2 moves K, V in each of its 6 steps")
    log = measure(fa1_forward, 32, B_r=16, B_c=16).log
    assert title(figures.tile_traversal({"fa1_forward": log}, 32, 32)).startswith("FA1 moves Q, O, l, m in each of its 4 steps")


def test_sram_occupancy_marks_the_memorys_own_peak():
    mems = traversals()
    fig = figures.sram_occupancy(mems)
    for ax, mem in zip(fig.axes, mems.values(), strict=True):
        assert f"peak {mem.sram_peak / KiB:.1f} KiB".replace(".0 ", " ") in labels(ax)
        assert "budget 192 KiB" in labels(ax)
    share = 100 * mems["fa1_forward"].sram_peak / (192 * KiB)
    assert f"{share:.0f} % of the SRAM in FA1" in title(fig)


@pytest.mark.parametrize("B, H, N, B_r, sms, claim", [(1, 16, 4096, 128, 108, "32 / 5 = 6.4"), (1, 108, 128, 128, 108, "nothing"),
                                                      (2, 8, 1000, 128, 16, "nothing")])
def test_programs_on_sms_counts_waves(B, H, N, B_r, sms, claim):
    fig = figures.programs_on_sms(B, H, N, B_r, sms)
    assert claim.split("= ")[-1] in title(fig)
    assert f"{B * H * math.ceil(N / B_r)} programs" in fig.axes[1].get_title("left")


def test_sweep_over_N_measures_what_the_formula_says_and_the_dots_lie_on_the_line():
    points = sweeps.over_N([32, 64, 128], d=16)
    assert all(p["measured"] == p["formula"] > 0 for p in points) and len(points) == 9
    fig = figures.traffic_against_N(points)
    line, dots = fig.axes[0].lines[:2]
    assert line.get_linestyle() == "--" and list(line.get_ydata()) == list(dots.get_ydata())
    last = {p["rung"]: p["measured"] for p in points if p["N"] == 128}
    ratio = max(last.values()) / min(last.values())
    assert f"{ratio:.1f} times less" in title(fig) and "equal to the formulas" in source(fig)
    points[0]["measured"] += 4
    assert "NOT all equal" in source(figures.traffic_against_N(points))


def test_a_title_says_so_where_something_moves_more_than_naive_attention():
    """Short sequences with wide heads: "1.4 times less" in favour of naive attention would be read the wrong way round."""
    points = sweeps.over_N([64], d=128)
    moved = {p["rung"]: p["measured"] for p in points}
    assert moved["fa1_forward"] > moved["naive_forward"] > moved["fa2_forward"]
    text = title(figures.traffic_against_N(points))
    assert f"naive moves {bytes_text(moved['naive_forward'])}; FA1 moves {bytes_text(moved['fa1_forward'])}" in text
    assert "times as much" in text and "FA2" not in text and "less" not in text
    one = [p for p in points if p["rung"] == "fa2_forward"]
    assert title(figures.traffic_against_N(one)) == f"At N = 64, FA2 moves {bytes_text(moved['fa2_forward'])}"


def test_tiles_are_named_where_something_has_them():
    points = sweeps.over_N([8], d=4, rungs=["naive_forward", "online_softmax_forward"])
    assert "tiles of" not in source(figures.traffic_against_N(points))
    mine = [points[0] | {"rung": "yours: FA2", "B": 16}]
    assert "tiles of 16 rows" in source(figures.traffic_against_N(points + mine)), "the learner's code has tiles"


def test_shares_are_of_naive_attention_with_and_without_logsumexp():
    points = sweeps.over_N([32, 64], d=16)
    with Memory() as mem:
        naive_forward(*qkv(64))
    alone = next(event for event in mem.log if event.name == "logsumexp")
    moved = {p["rung"]: p["measured"] for p in points if p["N"] == 64}
    fa2, naive = moved["fa2_forward"], moved["naive_forward"]
    lines = [line.get_ydata()[-1] for line in figures.share_of_naive(points).axes[0].lines]
    assert fa2 / naive in lines and fa2 / (naive - alone.read - alone.written) in lines


def test_break_even_is_where_the_formula_crosses():
    points = sweeps.over_heights(256, 32, [2, 4, 8, 16, 32], B_c=256)
    assert all(p["measured"] == p["formula"] for p in points)
    pays = [B for B in range(2, 33) if cost.fa2_forward(256, 256, 32, B_r=B, B_c=256).traffic < points[0]["naive"]]
    assert 2 < pays[0] < 32 and f"from B_r = {pays[0]} at d = 32 (" in title(figures.break_even(points))


def test_sweep_over_tiles_records_the_overflow():
    points = sweeps.over_tiles(64, 16, (8, 16, 32, 64), 16 * KiB)
    assert all(p["measured"] in (None, p["formula"]) for p in points)
    over = [p for p in points if p["measured"] is None]
    assert over and all("SRAM" in p["overflow"] for p in over) and max(p["B"] for p in over) == 64
    fig = figures.traffic_against_tile(points)
    best = min(p["measured"] for p in points if p["measured"] is not None)
    assert f"gets down to {best / KiB:.1f} KiB".replace(".0 ", " ") in title(fig)
    text = next(text for text in labels(fig.axes[0]) if "SRAM overflow" in text)
    for rung in ("fa1_forward", "fa2_forward"):
        first = min(p["B"] for p in over if p["rung"] == rung)
        assert f"{style.label(rung)} from B = {first}" in text


def test_tile_sweep_where_everything_or_nothing_fits():
    assert "No tile size fits" in title(figures.traffic_against_tile(sweeps.over_tiles(32, 16, (16, 32), 1 * KiB)))
    fig = figures.traffic_against_tile(sweeps.over_tiles(32, 16, (8, 16)))
    assert "until" not in title(fig) and not any("overflow" in text for text in labels(fig.axes[0]))


def test_model_vs_counters_draws_model_and_counters():
    results = invented_counters()
    fig = figures.model_vs_counters(results)
    model, dram, l2 = fig.axes[1].lines
    assert model.get_linestyle() == "--"
    assert model.get_ydata()[0] == 16 * cost.fa2_forward(1024, 1024, 64, B_r=128, B_c=64, element_size=2).traffic
    kernel = [r for r in results["rows"] if r["implementation"] == "fa2_triton_forward"]
    assert list(dram.get_ydata()) == [r["dram_read"] + r["dram_written"] for r in kernel]
    naive = 16 * 16384**2 * 9
    assert f"{round(naive / dram.get_ydata()[-1], -1):.0f} times less" in title(fig)
    assert set(labels(fig.axes[1])) == {"model", "DRAM", "L2"} and "Invented GPU" in source(fig)


def test_counters_of_one_implementation_without_l2():
    rows = [r | {"l2_bytes": None} for r in invented_counters()["rows"] if r["implementation"] == "naive_forward"]
    fig = figures.model_vs_counters({"provenance": PROVENANCE, "rows": rows})
    assert "L2" not in labels(fig.axes[0])


def test_bench_titles_are_computed():
    results = invented_results()
    at = {(r["implementation"], r["N"]): r for r in results["rows"]}
    ours, naive, flash = (at[name, 16384] for name in ("fa2_triton_forward", "naive_forward", "sdpa_flash"))
    times = naive["ms"] / ours["ms"]
    assert times == pytest.approx(10) and "10 times as long" in title(figures.runtime_against_N(results)).replace("10.0", "10")
    assert f"{ours['tflops'] / 800:.0%}".replace("%", " %") in title(figures.tflops(results))
    assert f"{ours['tflops'] / flash['tflops']:.2f} × SDPA flash" in title(figures.tflops(results))
    assert f"{ours['error'] / flash['error']:.2f} ×" in title(figures.error_against_float64(results))
    assert "16.1 GiB" in title(figures.peak_memory_against_N(results))


def test_ceiling_is_dashed_and_every_line_is_labelled():
    ax = figures.tflops(invented_results()).axes[0]
    assert [line for line in ax.lines if line.get_linestyle() == "--" and set(line.get_ydata()) == {800}]
    assert set(labels(ax)) >= {style.label(name) for name in SPEED} - {"SDPA math"} and "Not drawn: SDPA math." in source(ax.figure)


def test_missing_rows_are_named():
    fig = figures.peak_memory_against_N(invented_results())
    assert "Missing: SDPA math at N = 16384: out of memory." in source(fig)
    results = invented_results()
    results["rows"] = [r for r in results["rows"] if r["implementation"] == "sdpa_flash"]
    for draw_one in (figures.runtime_against_N, figures.tflops, figures.peak_memory_against_N, figures.error_against_float64):
        assert "measured here" in title(draw_one(results))               # says that the kernel was not


def test_counters_that_failed_are_named_and_never_drawn():
    results = invented_counters()
    results["rows"][-1] |= dict.fromkeys(("dram_read", "dram_written", "l2_bytes")) | {"skipped": "RuntimeError: no permission"}
    fig = figures.model_vs_counters(results)
    assert "At N = 8192 DRAM moves" in title(fig)                        # the largest N that both have
    assert "Missing: FA2 in Triton at N = 16384: RuntimeError: no permission." in source(fig)
    with pytest.raises(ValueError, match="no row with counters"):
        figures.model_vs_counters(results | {"rows": results["rows"][-1:]})


def test_a_run_that_was_cut_off_says_so():
    assert "cut off" in source(figures.tflops(invented_results() | {"complete": False}))


def test_results_without_such_rows_say_so():
    with pytest.raises(ValueError, match="d = 64, causal = True"):
        figures.tflops(invented_results(), d=64, causal=True)


def test_live_measurements_are_not_called_recorded():
    assert source(figures.tflops(invented_results(), live=True)).startswith("Measured here on Invented GPU")


def test_command_line_draws_into_the_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "bench.json").write_text(json.dumps({"runs": [invented_results()]}))
    (tmp_path / "counters.json").write_text(json.dumps({"runs": [invented_counters()]}))
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "search.json").write_text(json.dumps({"runs": [pictures_schedules.search()]}))
    pictures = dict(gallery.gallery(tmp_path))
    assert {"traffic", "tile_traversal", "counters_counters", "bench_tflops", "timelines"} <= pictures.keys()
    assert "choices the slowest" in title(pictures["search_times_of_tiles"]())
    monkeypatch.setattr(gallery, "gallery", lambda: [("bench_tflops", pictures["bench_tflops"])])
    with pytest.raises(SystemExit, match="OUT_DIR must be a folder that is there, got"):
        gallery.main([str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    gallery.main([str(tmp_path / "out")])
    assert (tmp_path / "out" / "bench_tflops.png").stat().st_size > 5000
    with pytest.raises(SystemExit, match="usage"):
        gallery.main(["--nonsense"])


def test_text_wraps_between_words_but_not_inside_a_quantity():
    assert style.wrap("moves 29 MiB at N = 4096", 14).split("\n") == ["moves 29 MiB", "at N = 4096"]
    assert isinstance(figures.memory_hierarchy()._suptitle, Text)


def test_tile_traversal_refuses_a_log_of_other_sizes():
    logs = {name: mem.log for name, mem in traversals().items()}
    with pytest.raises(ValueError, match="must be of N_q = 16 queries and N_k = 64 keys, got one of 64 and 64"):
        figures.tile_traversal(logs, 16, 64)
