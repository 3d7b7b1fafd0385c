"""The pictures of chapter 09 that show which program loads and stores which element, how often and where.

`runs` is a dict: a name -> flashlab_course.lesson.accesses.Touched, or None, which is left out. A run that ended early
says why.
"""

from itertools import pairwise

import numpy as np

from flashlab_course.figures.colors import BLUE, FAINT, INK, ORANGE, READ, ramp, shades
from flashlab_course.figures.plots import box, grid, panels, write
from flashlab_course.figures.style import bare, figure, finish, wrap

SEEN = "Measured here: every address that Triton's interpreter was given."


def run_panels(runs, height):
    """A new figure with a row of axes for each run and an axis for each of its tensors.

    height: of a row in inches. Returns (figure, {label: (run, axes)}) of the runs that reached their end.
    """
    runs = {label: run for label, run in runs.items() if run is not None}
    across = max(1, *(len(run.tensors) for run in runs.values()))
    fig, axs = panels(across, len(runs), size=(9.6, 1 + len(runs) * height))
    done = {}
    for n, (label, run) in enumerate(runs.items()):
        line = axs[n * across:(n + 1) * across]
        for ax in line[0 if run.problem else len(run.tensors):]:
            ax.axis("off")
        if run.problem:
            line[0].text(0, 0.5, wrap(f"{label}: {run.problem}", 60), transform=line[0].transAxes, va="center",
                         fontsize=9, color=READ)
        else:
            done[label] = run, list(zip(line, run.tensors, strict=False))
    return fig, done


def strays_of(run):
    """How many addresses of a run lie outside its tensors, and how many the masks hold back."""
    return (sum(int(run.strays(access).sum()) for access in run.accesses),
            sum(int((~access.mask).sum()) for access in run.accesses))


@figure
def vector_accesses(runs):
    """Which elements of its vectors each program touches: a row a program, a square a lane."""
    rows = max((len(run.programs()) for run in runs.values() if run), default=1)
    fig, done = run_panels(runs, 0.95 + 0.32 * rows)
    said = []
    for label, (run, line) in done.items():
        for ax, name in line:
            lanes_of(ax, run, name)
        line[0][0].set_ylabel(f"{label}\nprogram")
        strays, held = strays_of(run)
        said.append(f"{label}: {sum(access.mask.size for access in run.accesses)} addresses, "
                    f"{f'the masks hold back {held}' if held else 'no mask holds one back'}, {strays or 'none'} "
                    f"{'lie' if strays else 'lies'} outside the tensors")
    return finish(fig, "; ".join(said),
                  f"{SEEN} Blue: loaded. Grey: stored. Dashed: held back by the mask. Orange: outside the tensor.")


def lanes_of(ax, run, name):
    programs, size = run.programs(), run.tensors[name].shape[0]
    reach = [0, size - 1]
    for access in run.of(name):
        strays, y = run.strays(access), programs.index(access.program) + 0.1
        reach += [int(access.elements.min()), int(access.elements.max())]
        for element, on, stray in zip(access.elements.ravel(), access.mask.ravel(), strays.ravel(), strict=True):
            if on:
                box(ax, element + 0.08, y, 0.84, 0.8, ORANGE if stray else BLUE if access.kind == "load" else READ,
                    lw=0)
            else:
                box(ax, element + 0.08, y, 0.84, 0.8, "none", edge=INK, lw=0.9, ls=(0, (2, 2)))
    ax.axvspan(0, size, color="#F1F1F1", lw=0, zorder=0)
    ax.set(xlim=(max(min(reach), -size) - 0.2, min(max(reach), 3 * size) + 1.2), ylim=(len(programs), 0),
           title=f"{run.kind(name)} {name}", xlabel="element")
    ax.set_yticks([n + 0.5 for n in range(len(programs))], [number(program) for program in programs])
    ax.set_xticks([0.5, size - 0.5], [0, size - 1])
    bare(ax)


def number(program):
    return str(program[0] if len(program) == 1 else program)


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
    present = [run for run in runs.values() if run]
    shapes = [layout.shape for run in present for layout in run.tensors.values() if layout] or [(1, 1)]
    tall = max(shape[0] / (shape[1] if len(shape) > 1 else 1) for shape in shapes)
    fig, done = run_panels(runs, 0.55 + min(4.5, 9 / max(2, *(len(run.tensors) for run in present)) * tall))
    several, said = len(present) > 1, []
    for label, (run, line) in done.items():
        lead = f"{label}: " if several else ""
        for ax, name in line:
            draw_owners(ax, run, name, lead)
        said.append(lead + owner_text(run))
    title = "; ".join(said)
    return finish(fig, title[:1].upper() + title[1:],
                  f"{SEEN} In a square: the program that touches it, counted in the order in which they run. White: no "
                  "program. Orange: stored by more than one.")


def draw_owners(ax, run, name, lead):
    where, owners = np.atleast_2d(run.tensors[name].offsets()), owners_of(run, name)
    tints, small = shades(BLUE, len(run.programs())), where.size <= 200
    for (row, col), element in np.ndenumerate(where):
        mine = owners.get(int(element), [])
        twice = len(mine) > 1 and "store" in run.kind(name)
        text = "!" if twice else "" if not mine else f"{mine[0]}{'+' * (len(mine) > 1)}"
        box(ax, col, row, fill=ORANGE if twice else tints[mine[0]] if mine else "white", text=text if small else "",
            size=8, edge="white" if mine else FAINT, lw=1 if small else 0)
    grid(ax, where.shape[1], where.shape[0], equal=True)
    ax.set_title(f"{lead}{run.kind(name)} {name}")


def owner_text(run):
    """Who stores the elements of a run's results, and what the masks do."""
    said = []
    for name in (name for name in run.tensors if "store" in run.kind(name)):
        owners = owners_of(run, name)
        stored = [len(owners.get(e, ())) for e in run.tensors[name].offsets().ravel().tolist()]
        bad = [f"{n} of {len(stored)} elements of {name} {what}" for n, what in
               ((stored.count(0), "never stored"), (sum(n > 1 for n in stored), "stored by several")) if n]
        said += bad or [f"each element of {name} is stored by one of {len(run.programs())} programs"]
    strays, held = strays_of(run)
    said += [f"the masks hold back {held} addresses"] * bool(held)
    said += [f"{strays} addresses outside the tensors"] * bool(strays)
    return ", ".join(said)


@figure
def memory_line(run):
    """The elements of each matrix as they lie in memory, coloured by the program that touches them."""
    if run.problem:
        return finish(run_panels({"Where the tiles lie in memory": run}, 1)[0], "Where the tiles lie in memory", SEEN)
    fig, axs = panels(1, len(run.tensors), size=(9.6, 1.1 + 0.75 * len(run.tensors)))
    tints, pieces = shades(BLUE, len(run.programs())), []
    for ax, name in zip(axs, run.tensors, strict=True):
        owners = owners_of(run, name)
        last = max(owners, default=0)
        for element in range(last + 1):
            mine = owners.get(element)
            box(ax, element, 0, fill=tints[mine[0]] if mine else "#EDEDED", text=mine[0] if mine and last < 60 else "",
                lw=0.6, size=7.5)
        first = sorted(element for element, mine in owners.items() if mine[0] == 0)
        count = 1 + sum(b - a > 1 for a, b in pairwise(first))
        pieces.append(f"{count} piece{'s' * (count > 1)} of {name}")
        grid(ax, last + 1, 1, ylabel=name, columns={0: 0, last: last})
    axs[-1].set_xlabel("address, in elements from the tensor's first")
    return finish(fig, f"Program 0's tile lies in {', '.join(pieces)}",
                  f"{SEEN} In a square: the program that touches it.")


@figure
def times_touched(runs):
    """How often each element of each matrix is loaded or stored."""
    fig, done = run_panels(runs, 2.6)
    several, said = sum(run is not None for run in runs.values()) > 1, []
    for label, (run, line) in done.items():
        lead, words = f"{label}: " if several else "", []
        for ax, name in line:
            counts = np.atleast_2d(run.times(name))
            low, high, top = counts.min(), counts.max(), max(8, counts.max())
            often = f"{low}" if low == high else f"{low} to {high}"
            ax.imshow(counts, cmap=ramp(READ if run.kind(name) == "store" else BLUE, 0.0), vmin=0, vmax=top)
            write(ax, 0.5, 0.5, f"{often}×", 15, transform=ax.transAxes,
                    fontweight="bold", color="white" if counts.mean() > 0.5 * top else INK)
            ax.set(title=f"{lead}{run.kind(name)} {name}, {counts.shape[0]} × {counts.shape[1]}", xticks=[], yticks=[])
            words.append(f"{name} {often}")
        said.append(lead + ", ".join(words))
    return finish(fig, "How often each element is touched" + (": " + "; ".join(said) if said else ""), SEEN)


@figure
def tiles_and_addresses(tiles, offsets=None):
    """Tiles of matrices, and the address that each of their elements has.

    tiles: name -> (matrix, (row, height), (column, width)); what sticks out is drawn too, with the address it would
    have
    offsets: name -> somebody's (height, width) offsets for that tile: those are written in, and wrong ones are orange;
    what
             has another shape is left out
    """
    fig, axs = panels(len(tiles), size=(min(9.6, 4.8 * len(tiles)), 4.1))
    said = []
    for ax, (name, (T, (top, height), (left, width))) in zip(axs, tiles.items(), strict=True):
        given = (offsets or {}).get(name)
        given = given if np.shape(given) == (height, width) else None
        tile = [(i, j) for i in range(top, top + height) for j in range(left, left + width)]
        matrix = [(i, j) for i in range(T.shape[0]) for j in range(T.shape[1])]
        address = {(i, j): i * T.stride(0) + j * T.stride(1) for i, j in [*matrix, *tile]}
        shown = address if given is None else address | {(i, j): int(given[i - top][j - left]) for i, j in tile}
        real = {address[place]: place for place in matrix}
        outside = [place for place in tile if place not in matrix]
        hit = {real[address[place]] for place in outside if address[place] in real}
        for (i, j), number in shown.items():
            mine, astray = (i, j) in tile, (i, j) in outside
            fill = ORANGE if number != address[i, j] else "white" if astray else BLUE if mine else "#EFEFEF"
            box(ax, j + 0.03, i + 0.03, 0.94, 0.94, fill, number, edge=INK if astray else "none", lw=0.9 * astray,
                ls=(0, (2, 2)) if astray else "-")
        for i, j in hit:
            box(ax, j + 0.06, i + 0.06, 0.88, 0.88, "none", edge=ORANGE, lw=2.2)
        ax.set(xlim=(-0.1, 1.1 + max(j for _, j in shown)), ylim=(1.1 + max(i for i, _ in shown), -0.1), aspect="equal",
               title=f"{name}: shape {tuple(T.shape)}, strides {T.stride()}")
        ax.axis("off")
        wrong = sum(shown[place] != address[place] for place in tile)
        inside = [address[place] for place in tile if place in matrix]
        said.append(f"{name}: {tile_text(wrong, len(outside), len(hit), inside, given is not None)}")
    return finish(fig, "; ".join(said),
                  "Definition: row · stride 0 + column · stride 1. Blue: the tile. Dashed: no element of the matrix. "
                  "Orange frame: the element that really lies at such an address.")


def tile_text(wrong, outside, hit, inside, given):
    if wrong:
        return f"{wrong} of your addresses are wrong"
    lead = "your addresses are right, " if given else ""
    if outside:
        return f"{lead}{outside} places stick out, {hit} of them at the address of another element"
    return f"{lead}the tile lies at {', '.join(map(str, inside)) if len(inside) <= 6 else f'{len(inside)} addresses'}"


@figure
def address_walk(views):
    """Where the elements lie that one meets row by row, first to last. views: name -> two-dimensional tensor."""
    fig, axs = panels(len(views), size=(4.6 * len(views), 3.1), sharey=True)
    straight = {}
    for ax, (name, T) in zip(axs, views.items(), strict=True):
        walk = [i * T.stride(0) + j * T.stride(1) for i in range(T.shape[0]) for j in range(T.shape[1])]
        straight[name] = len({b - a for a, b in pairwise(walk)}) == 1
        ax.plot(walk, "o-", color=BLUE if straight[name] else ORANGE)
        ax.set(xlabel="element, row by row", title=name, xticks=range(0, len(walk), 3),
               yticks=range(0, max(walk) + 1, 4))
        ax.grid(axis="y")
    axs[0].set_ylabel("address, in elements")
    lines, bent = (", ".join(name for name in straight if straight[name] == yes) for yes in (True, False))
    title = " and ".join([f"one stride describes {lines}"] * bool(lines) + [f"none describes {bent}, read row by row"]
                         * bool(bent))
    return finish(fig, title[0].upper() + title[1:], "Measured here: T.stride().")


@figure
def layout_addresses(views):
    """Tensors of one storage: where each element lies. views: name -> two-dimensional tensor, small."""
    first = next(iter(views.values()))
    if any(T.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() for T in views.values()):
        raise ValueError("views must share one storage: a copy has addresses of its own")
    count = first.untyped_storage().nbytes() // first.element_size()
    tints = shades(BLUE, count, 0.08)
    height, widths = max(T.shape[0] for T in views.values()), [T.shape[1] + 1.5 for T in views.values()]
    longest = max(sum(widths) - 1.5, count)
    fig, (top, below) = panels(1, 2, size=(9, 2.4 + 9 * height / longest),
                               height_ratios=[1, height * count / longest / 1.2])
    for address in range(count):
        box(top, address, 0, fill=tints[address], text=address, lw=1.5)
    top.set(xlim=(-0.1, count + 0.1), ylim=(1.05, -0.05), aspect="equal",
            title="memory: addresses, counted in elements")
    x = 0
    for (name, T), width in zip(views.items(), widths, strict=True):
        for i, j in np.ndindex(*T.shape):
            address = T.storage_offset() + i * T.stride(0) + j * T.stride(1)
            box(below, x + j, i, fill=tints[address], text=address, lw=1.5)
        below.text(x, -0.25, f"{name}\nshape {tuple(T.shape)}, strides {T.stride()}", va="bottom", fontsize=9)
        x += width
    below.set(xlim=(-0.1, x - 1.4), ylim=(height + 0.05, -1.4), aspect="equal")
    for ax in (top, below):
        ax.axis("off")
    return finish(fig, f"{len(views)} tensors, one memory: only the strides differ",
                  "Measured here: T.stride() and T.storage_offset(). Element (i, j) lies at offset + i · stride 0 + j "
                  "· stride 1.")
