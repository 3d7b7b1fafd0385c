"""The pictures of chapters 11 and 16: times, rates, memory and errors that were measured on a GPU.

results: a dict as flashlab_course.bench writes it; live: whether they were measured just now
focus: the name of the implementation that the title is about; None is the ladder's last GPU kernel among those measured
"""

from flashlab import cost
from flashlab.ladder import BACKWARD_RUNGS, RUNGS
from flashlab_course.figures.chapter_07 import kernels_measured, missing
from flashlab_course.figures.colors import color
from flashlab_course.figures.plots import curves
from flashlab_course.figures.style import figure
from flashlab_course.figures.words import bytes_text, every, group, label, mask_text, ratio_text, recorded, series

FLASH = "sdpa_flash"           # the same algorithm in CUDA: the peer that titles compare with
# A backend of SDPA has no line in plots where another line says nearly the same: math's time is much like naive
# attention's, the memory and the error of efficient are much like those of flash.
NO_LINE = {"ms": "sdpa_math", "tflops": "sdpa_math", "peak_bytes": "sdpa_efficient", "rms_error": "sdpa_efficient"}
# of a row's number: (words at the axis, how it is written)
MEASURED = {"ms": ("run time (ms)", "{:.3g} ms".format), "tflops": ("TFLOP/s", "{:.0f} TFLOP/s".format),
            "peak_bytes": ("peak memory beyond the inputs", bytes_text),
            "rms_error": ("rms of O − O in float64", "{:.1e}".format)}


def kernel_name(results):
    """The name of the implementation that a title is about, unless it is told another."""
    return kernels_measured(results)[-1].name


def first_kernel_name(results):
    """The name of the course's first kernel among those measured, the plainest one."""
    return kernels_measured(results)[0].name


def shown(results, key=None, focus=None):
    """The implementations that plots show: of the course's kernels only the first and the last that were measured.

    Those between stand beside each other in chapter 12. key: what a plot is of: see NO_LINE; focus: shown in any case
    """
    between = {rung.name for rung in kernels_measured(results)[1:-1]}
    names = dict.fromkeys(row["implementation"] for row in results["rows"])
    return [name for name in names if name == focus or name not in between and name != NO_LINE.get(key)]


def rows_of(results, key, d, causal, focus=None):
    """The measured rows of the implementations shown, in the dtype with most rows."""
    names = shown(results, key, focus)
    rows = [row for row in results["rows"]
            if (row["d"], row["causal"]) == (d, causal) and row["implementation"] in names
            and row.get("pass", "forward") == results["what"] and not row.get("skipped") and row.get(key) is not None]
    if not rows:
        raise ValueError(f"results hold no measured {key!r} for d = {d}, causal = {causal}")
    return max(group(rows, "dtype").values(), key=len)


@figure
def benchmark(results, key, d=128, causal=False, focus=None, live=False, ceilings=None):
    """Time, TFLOP/s, peak memory or error of every implementation against N.

    key: "ms", with the 20th to 80th percentile shaded, "tflops", with the measured ceiling of a matrix product,
    "peak_bytes" or "rms_error"; ceilings: further ones, as those of `curves`
    """
    focus, (ylabel, text) = focus or kernel_name(results), MEASURED[key]
    rows = rows_of(results, key, d, causal, focus)
    lines = series(sorted(rows, key=lambda row: row["N"]), "N", key)
    top = results.get("ceilings", {}).get("matmul_tflops") if key == "tflops" else None
    asked = [row for row in results["rows"]
             if (row["d"], row["causal"]) == (d, causal) and row["implementation"] in lines]
    tokens = {row["B"] * row["N"] for row in rows}
    fig = curves(lines, duel(results, lines, focus, text),
                 f"{recorded(results, live)} {results['what'].capitalize()}, {every(rows, 'dtype')}, d = {d}, H = "
                 f"{every(rows, 'H')}, {mask_text(causal)}.{missing(asked)}",
                 "N" + (f" (batch × N = {tokens.pop()})" if len(tokens) == 1 else ""), ylabel,
                 log="x" if key == "tflops" else "xy", byte="y" if key == "peak_bytes" else "",
                 ceilings=({f"a plain matmul: {top:.0f} TFLOP/s": top} if top else {}) | (ceilings or {}),
                 **({"ylim": (0, None)} if key == "tflops" else {}))
    for name, part in group([row for row in rows if key == "ms"], "implementation").items():
        fig.axes[0].fill_between([row["N"] for row in part], [row["ms_low"] for row in part],
                                 [row["ms_high"] for row in part], color=color(name), alpha=0.2, lw=0)
    return fig


def duel(results, lines, focus, text):
    """The kernel beside the first rung and SDPA flash, each at the largest N that both were measured at."""
    if focus not in lines:
        return f"{label(focus)} was not measured here"
    ours, said = lines[focus], []
    for name in ((BACKWARD_RUNGS if results["what"] == "backward" else RUNGS)[0].name, FLASH):
        if N := max(ours.keys() & lines.get(name, {}).keys(), default=None):
            theirs = lines[name][N]
            said.append(f"{label(name)} {text(theirs)}" + (f" at N = {N}" if N < max(ours) else "")
                        + f", {ratio_text(theirs, ours[N]) if theirs > ours[N] else f'{theirs / ours[N]:.2f}'} times")
    return f"At N = {max(ours)}, {'; '.join([f'{label(focus)}: {text(ours[max(ours)])}', *said])}"


@figure
def relative_speed(results, d=128, causal=False, live=False):
    """Each other's speed as a multiple of the kernel's, against N."""
    focus = kernel_name(results)
    lines = series(rows_of(results, "ms", d, causal), "N", "ms")
    ours = lines.pop(focus, {})
    ratios = {name: {N: ours[N] / ms for N, ms in line.items() if N in ours} for name, line in lines.items()}
    N = max(ours, default=None)
    best = max((name for name in ratios if N in ratios[name]), key=lambda name: ratios[name][N], default=None)
    title = (f"At N = {N} the fastest other, {label(best)}, has {ratios[best][N]:.2f} × the speed of {label(focus)}"
             if best else f"{label(focus)} was not measured beside another here")
    return curves(ratios, title, f"{recorded(results, live)} {results['what'].capitalize()}, d = {d}, "
                  f"{mask_text(causal)}.", "N", f"times the speed of {label(focus)}",
                  log="xy", ceilings={label(focus): 1})


@figure
def causal_cost(results, d=128, live=False):
    """What the mask costs the first kernel in TFLOP/s, and what of it whole tiles on the diagonal explain."""
    focus = first_kernel_name(results)
    rows = {mask: rows_of(results, "tflops", d, mask, focus) for mask in (True, False)}
    masked, plain = ({row["N"]: row for row in rows[mask] if row["implementation"] == focus} for mask in rows)
    Ns = sorted(masked.keys() & plain.keys())
    lost = {N: 100 * (1 - masked[N]["tflops"] / plain[N]["tflops"]) for N in Ns}
    explained = {N: 100 * (1 - 1 / whole_tiles(masked[N])) for N in Ns}
    used = [" × ".join(map(str, tiles_of(kernel[Ns[-1]]))) for kernel in (masked, plain)]
    same = " and without it" if used[0] == used[1] else f", without it {used[1]}: not the same kernel"
    return curves({"measured": lost}, f"At N = {Ns[-1]} the mask costs {lost[Ns[-1]]:.0f} % of the TFLOP/s, whole "
                  f"tiles explain {explained[Ns[-1]]:.0f} %", f"{recorded(results, live)} {label(focus)}, d = {d}. "
                  f"Tiles of {used[0]} with the mask{same}. Dashed: modelled: whole tiles on the diagonal.",
                  "N", "TFLOP/s lost to the mask (%)", log="x", dashed={"whole tiles": explained})


def copy_ms(row, tb_s):
    """What moving Q, K, V and O once takes at the speed of a copy, in 16 bits."""
    return 4 * row["B"] * row["H"] * row["N"] * row["d"] * 2 / tb_s / 1e9


def tiles_of(row):
    """B_r, B_c of a row; those of the course's first GPU kernel where it does not say."""
    return row.get("B_r", 128), row.get("B_c", 64)


def whole_tiles(row):
    """How many times the counted FLOPs a causal kernel computes if it computes whole tiles on the diagonal."""
    (B_r, B_c), N, d = tiles_of(row), row["N"], row["d"]
    computed = cost.fa2_forward(N, N, d, B_r=B_r, B_c=B_c, causal=True).matmul_flops
    return computed / cost.attention_flops(1, 1, N, N, d, causal=True)
