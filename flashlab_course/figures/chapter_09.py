"""The pictures of chapter 09: which program loads and stores which element, how often and where.

`runs` is a dict: a name -> flashlab_course.lesson.accesses.Touched, or None, which is left out. A run that ended early
says why.
"""

import numpy as np

from flashlab_course.figures.plots import axis_names, heat_map, matrices, panels
from flashlab_course.figures.style import figure, finish, wrap

SEEN = "Measured here: every address that Triton's interpreter was given."


def drawn(runs, draw, said, source):
    """A row of panels for each run, one for each of its tensors.

    draw: called with the axes, the run and a tensor's name, draws a panel; said: run -> its words in the title
    """
    runs = {words: run for words, run in runs.items() if run is not None}
    across = max(1, *(len(run.tensors) for run in runs.values()))
    fig, axs = panels(across, len(runs), size=(9.6, 1 + 2.4 * len(runs)))
    titles = []
    for n, (words, run) in enumerate(runs.items()):
        line = axs[n * across:(n + 1) * across]
        for ax in line[0 if run.problem else len(run.tensors):]:
            ax.axis("off")
        if run.problem:
            line[0].text(0, 0.5, wrap(f"{words}: {run.problem}", 60), fontsize=9)
            continue
        for ax, name in zip(line, run.tensors, strict=False):
            draw(ax, run, name)
            ax.set_title(f"{words}: {run.kind(name)} {name}", fontsize=9)
        titles.append(f"{words}: {said(run)}")
    return finish(fig, "; ".join(titles) or "No run reached its end", f"{SEEN} {source}")


def outside(run):
    """How many addresses of a run lie outside its tensors, and how many the masks hold back, in words."""
    strays = sum(int(run.strays(access).sum()) for access in run.accesses)
    held = sum(int((~access.mask).sum()) for access in run.accesses)
    return f"the masks hold back {held} addresses, {strays or 'none'} lie outside the tensors"


@figure
def vector_accesses(runs):
    """Which elements of its vectors each program touches: a row a program, a square a place."""
    return drawn(runs, places_of, outside,
                 "Blue: loaded or stored. Light: held back by the mask. Orange: outside the tensor.")


def places_of(ax, run, name):
    """Draws a vector and what lies around it, up to half its size on either side."""
    programs, size = run.programs(), run.tensors[name].shape[0]
    low, high = -(size // 2), size + size // 2
    shares = np.full((len(programs), high - low), np.nan)
    shares[:, -low:size - low] = 0
    for access in run.of(name):
        values = np.where(run.strays(access), -1, np.where(access.mask, 1, 0.15))
        here = (access.elements >= low) & (access.elements < high)
        shares[programs.index(access.program), access.elements[here] - low] = values[here]
    used = ~np.isnan(shares).all(0)
    first = low + int(used.argmax())
    heat_map(ax, shares[:, used])
    ax.set(xlabel="element", ylabel="program")
    ax.set_xticks([0.5 - first, size - first - 0.5], [0, size - 1], fontsize=8)
    axis_names(ax.set_yticks, range(len(programs)), 0)


def owners_of(run, name):
    """element -> the numbers of the programs that touch it, each once."""
    programs, owners = {program: n for n, program in enumerate(run.programs())}, {}
    for access in run.of(name):
        for element in access.elements[access.mask].tolist():
            owners.setdefault(element, {})[programs[access.program]] = None
    return {element: list(found) for element, found in owners.items()}


@figure
def matrix_accesses(runs):
    """Which program touches which element of its matrices: the number in a square is the program's."""
    return drawn(runs, programs_of, lambda run: f"{stored_by(run)}; {outside(run)}",
                 "In a square: the program that touches it. White: no program. Orange: stored by more than one.")


def programs_of(ax, run, name):
    where, owners = np.atleast_2d(run.tensors[name].offsets()), owners_of(run, name)
    shares, texts = np.full(where.shape, np.nan), np.full(where.shape, "", dtype=object)
    for place, element in np.ndenumerate(where):
        if mine := owners.get(int(element)):
            twice = len(mine) > 1 and "store" in run.kind(name)
            shares[place] = -1 if twice else 0.1 + 0.9 * mine[0] / len(run.programs())
            texts[place] = f"{mine[0]}{'+' * (len(mine) > 1)}"
    heat_map(ax, shares, texts if where.size <= 200 else None)
    axis_names(ax.set_xticks, (), where.shape[1])
    axis_names(ax.set_yticks, (), where.shape[0])


def stored_by(run):
    """How many programs store each element of a run's results, in words."""
    said = []
    for name in (name for name in run.tensors if "store" in run.kind(name)):
        owners = owners_of(run, name)
        stored = [len(owners.get(element, ())) for element in run.tensors[name].offsets().ravel().tolist()]
        never, several = stored.count(0), sum(count > 1 for count in stored)
        said.append(f"{name}: {never} of {len(stored)} elements never stored, {several} stored by several programs"
                    if never or several else f"each element of {name} is stored by one program")
    return ", ".join(said)


@figure
def times_touched(runs):
    """How often each element of each matrix is loaded or stored."""
    often = lambda counts: f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else f"{counts.min()}"
    def count(ax, run, name):
        counts = np.atleast_2d(run.times(name))
        heat_map(ax, counts / max(8, counts.max()))
        ax.set(xticks=[], yticks=[], xlabel=f"{counts.shape[0]} × {counts.shape[1]}, touched {often(counts)}×")
    return drawn(runs, count, lambda run: ", ".join(f"{name} {often(run.times(name))}×" for name in run.tensors),
                 "The darker, the more often.")


@figure
def tile_addresses(tiles):
    """The addresses of a tile among those of its matrix; orange where the tile sticks out of the matrix.

    tiles: name -> (matrix, (first row, height), (first column, width))
    """
    panels_of, said = {}, []
    for name, (T, (top, height), (left, width)) in tiles.items():
        rows, columns = max(T.shape[0], top + height), max(T.shape[1], left + width)
        i, j = np.indices((rows, columns))
        exists = (i < T.shape[0]) & (j < T.shape[1])
        tile = (i >= top) & (i < top + height) & (j >= left) & (j < left + width)
        astray = tile & ~exists
        address = i * T.stride(0) + j * T.stride(1)
        shares = np.where(astray, -1, np.where(tile, 1, np.where(exists, 0, np.nan)))
        panels_of[f"{name}: strides {T.stride()}"] = shares, np.where(exists | tile, address.astype(str), "")
        hit, inside = np.isin(address[astray], address[exists]).sum(), ", ".join(map(str, address[tile]))
        said.append(f"{name}: {astray.sum()} of {tile.sum()} places stick out, {hit} at another element's address"
                    if astray.any() else f"{name}: the tile lies at {inside}")
    return matrices(panels_of, "; ".join(said), "Definition: row · stride 0 + column · stride 1. Blue: the tile. "
                    "Orange: outside the matrix.", "column", "row")
