"""The pictures of chapter 12b: kernels against one of them at every size, and who holds what of a product."""

import numpy as np

from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.figures.plots import matrices
from flashlab_course.figures.style import figure
from flashlab_course.figures.words import label, recorded


@figure
def speeds_beside(results, names, against):
    """A row for each kernel, a column for each size: its speed as a multiple of another kernel's.

    names: name -> the row's words, or None for the ladder's; the title is about the last; against: the other's name
    """
    columns = sorted({(row["d"], row["causal"], row["N"]) for row in results["rows"]})
    signs, texts = np.full((len(names), len(columns)), np.nan), np.full((len(names), len(columns)), "", dtype="<U5")
    for n, name in enumerate(names):
        for row, gain, tied in gains(results, name, against):
            place = n, columns.index((row["d"], row["causal"], row["N"]))
            signs[place], texts[place] = 0 if tied else gain - 1, f"{gain:.2f}"
    rows = [words or label(name) for name, words in names.items()]
    last = standing(gains(results, list(names)[-1], against))
    return matrices({"": (signs, texts)}, f"“{rows[-1]}” and {label(against)}: {last}",
                    f"{recorded(results)} {results['what'].capitalize()}, speed as a multiple of {label(against)}'s.\n"
                    "Blue: faster, orange: slower, pale: ranges (20th to 80th percentile) overlap, white: not "
                    "measured.",
                    rows=rows, columns=[f"d {d}\n{'causal' if causal else 'full'}\n{N}" for d, causal, N in columns])


@figure
def holders(columns=16, rows=16):
    """Which thread of a warp holds each number of a wgmma accumulator, the rows and columns of its first corner."""
    row, column = np.indices((rows, columns))
    lanes = row % 8 * 4 + column % 8 // 2
    own = (lanes == 0).sum()
    return matrices({"": (lanes + 1, lanes.astype(str))},
                    f"Thread 0 of a warp holds {own} of these {rows * columns} numbers, in two rows",
                    "Definition: PTX ISA, wgmma, the accumulator D. In the cells: the thread.", "column", "row",
                    rows=range(rows), columns=range(columns))
