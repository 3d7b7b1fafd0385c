"""The picture of chapters 10 to 12 about compiled kernels."""

from flashlab_course.figures.plots import bars
from flashlab_course.figures.style import figure
from flashlab_course.figures.words import bytes_text


@figure
def compiled_kernels(rows):
    """Registers, spills and shared memory of kernels as compiled.

    rows: dicts of name, registers, spills (bytes), shared and limit (bytes)
    """
    spilling = [row["name"] for row in rows if row["spills"]]
    spilt = [f", {row['spills']} bytes spilled" * (row["spills"] > 0) for row in rows]
    texts = [f"{row['registers']}{more}; {bytes_text(row['shared'])} of {bytes_text(row['limit'])} shared"
             for row, more in zip(rows, spilt, strict=True)]
    return bars({row["name"]: row["registers"] for row in rows},
                f"{len(spilling) or 'None'} of {len(rows)} kernels spill{'s' * (len(spilling) < 2)} registers",
                "Measured here: compiled by Triton for a GPU that need not be here. Behind a bar: registers of a "
                "thread, at most 255; shared memory of a program.", "registers a thread", worse=spilling, behind=texts)
