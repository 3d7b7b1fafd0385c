"""Pictures of what a kernel touches: which program loads and stores which element, masked, astray, once or often.

`runs` is a dict: a name -> flashlab_course.lesson.accesses.Touched, or None, which is left out. A run that ended early says why.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from flashlab_course.figures.style import FAINT, INK, READ, bare, figure, finish, ink_on, ramp, wrap

LOADED, STORED, WRONG = "#0072B2", "#4A5568", "#D55E00"
SEEN = "Measured here: every address that Triton's interpreter was given."


@figure
def vector_accesses(runs):
    """Which elements of its vectors each program touches: a row a program, a square a lane."""
    runs = _present(runs)
    across = max(1, *(len(run.tensors) for run in runs.values()))
    rows = max((len(run.programs()) for run in runs.values()), default=1)
    fig, axes = plt.subplots(len(runs), across, figsize=(9.6, 0.9 + len(runs) * (0.95 + 0.32 * rows)), squeeze=False)
    for line, (label, run) in zip(axes, runs.items(), strict=True):
        if not _opened(line, label, run):
            continue
        for ax, name in zip(line, run.tensors, strict=False):
            _lanes(ax, run, name)
        line[0].set_ylabel(f"{label}\nprogram")
    return finish(fig, "; ".join(filter(None, (_vector_title(label, run) for label, run in runs.items()))),
                  f"{SEEN} Blue: loaded. Grey: stored. Dashed: held back by the mask. Orange: outside the tensor.")


def _lanes(ax, run, name):
    programs, size = run.programs(), run.tensors[name].shape[0]
    reach = [0, size - 1]
    for access in run.of(name):
        strays = run.strays(access)
        reach += [int(access.elements.min()), int(access.elements.max())]
        for element, on, stray in zip(access.elements.ravel(), access.mask.ravel(), strays.ravel(), strict=True):
            fill = WRONG if stray else LOADED if access.kind == "load" else STORED
            ax.add_patch(Rectangle((element + 0.08, programs.index(access.program) + 0.1), 0.84, 0.8, lw=0 if on else 0.9,
                                   fc=fill if on else "none", ec=INK if not on else "none", ls="-" if on else (0, (2, 2))))
    low, high = max(min(reach), -size), min(max(reach), 3 * size)
    ax.axvspan(0, size, color="#F1F1F1", lw=0, zorder=0)
    ax.set(xlim=(low - 0.2, high + 1.2), ylim=(len(programs), 0), title=f"{run.kind(name)} {name}", xlabel="element")
    ax.set_yticks([n + 0.5 for n in range(len(programs))], [_number(program) for program in programs])
    ax.set_xticks([0.5, size - 0.5], [0, size - 1])
    bare(ax)


def _vector_title(label, run):
    if run.problem:
        return ""
    strays = sum(int(run.strays(access).sum()) for access in run.accesses)
    held = sum(int((~access.mask).sum()) for access in run.accesses)
    lanes = sum(access.mask.size for access in run.accesses)
    found = f"{strays} lie outside the tensors" if strays else "none lies outside the tensors"
    return f"{label}: {lanes} addresses, {f'the masks hold back {held}' if held else 'no mask holds one back'}, {found}"


@figure
def matrix_accesses(runs):
    """Which program touches which element of its matrices: the number in a square is the program's."""
    runs = _present(runs)
    across = max(1, *(len(run.tensors) for run in runs.values()))
    shapes = [layout.shape for run in runs.values() for layout in run.tensors.values()] or [(1, 1)]
    tall = max(shape[0] / (shape[1] if len(shape) > 1 else 1) for shape in shapes)
    fig, axes = plt.subplots(len(runs), across, figsize=(9.6, 1 + len(runs) * (0.55 + min(4.5, 9 / max(across, 2) * tall))),
                             squeeze=False)
    for line, (label, run) in zip(axes, runs.items(), strict=True):
        if not _opened(line, label, run):
            continue
        for ax, name in zip(line, run.tensors, strict=False):
            _owners(ax, run, name, f"{label}: " if len(runs) > 1 else "")
    title = "; ".join(filter(None, (_owner_title(label, run, len(runs) > 1) for label, run in runs.items())))
    return finish(fig, title[:1].upper() + title[1:],
                  f"{SEEN} In a square: the program that touches it, counted in the order in which they run. "
                  "White: no program. Orange: stored by more than one.")


def _owners(ax, run, name, lead):
    where, programs = np.atleast_2d(run.tensors[name].offsets()), run.programs()
    owners = _owners_of(run, name)
    shades, small = ramp(LOADED, lightest=0.15), where.size <= 200
    for (row, col), element in np.ndenumerate(where):
        mine = owners.get(int(element), [])
        twice = len(mine) > 1 and "store" in run.kind(name)
        shade = shades(mine[0] / max(1, len(programs) - 1)) if mine else (1, 1, 1, 1)
        ax.add_patch(Rectangle((col, row), 1, 1, fc=WRONG if twice else shade, ec="white" if mine else FAINT, lw=1 if small else 0))
        if small:
            text = "" if not mine else str(mine[0]) if len(mine) == 1 else f"{mine[0]}+" if not twice else "!"
            ax.text(col + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color="white" if twice else ink_on(shade))
    ax.set(xlim=(-0.05, where.shape[1] + 0.05), ylim=(where.shape[0] + 0.05, -0.05), aspect="equal",
           title=f"{lead}{run.kind(name)} {name}")
    ax.set_xticks([])
    ax.set_yticks([])
    bare(ax)


def _owners_of(run, name):
    """element -> the numbers of the programs that touch it, each once."""
    programs, owners = {program: n for n, program in enumerate(run.programs())}, {}
    for access in run.of(name):
        for element in access.elements[access.mask]:
            mine = owners.setdefault(int(element), [])
            if programs[access.program] not in mine:
                mine.append(programs[access.program])
    return owners


def _owner_title(label, run, several):
    if run.problem:
        return ""
    stored = [name for name in run.tensors if "store" in run.kind(name)]
    strays = sum(int(run.strays(access).sum()) for access in run.accesses)
    said = []
    for name in stored:
        owners = _owners_of(run, name)
        elements = run.tensors[name].offsets().ravel().tolist()
        missed, twice = sum(e not in owners for e in elements), sum(len(owners.get(e, [])) > 1 for e in elements)
        good = f"each element of {name} is stored by one of {len(run.programs())} programs"
        bad = [f"{n} of {len(elements)} elements of {name} {what}"
               for n, what in ((missed, "never stored"), (twice, "stored by several")) if n]
        said.append(", ".join(bad) or good)
    held = sum(int((~access.mask).sum()) for access in run.accesses)
    said += [f"the masks hold back {held} addresses"] if held else []
    said += [f"{strays} addresses outside the tensors"] if strays else []
    return (f"{label}: " if several else "") + ", ".join(said)


@figure
def memory_line(run):
    """The elements of each matrix in the order in which they lie in memory, coloured by the program that touches them."""
    names, programs = list(run.tensors), run.programs()
    fig, axes = plt.subplots(max(1, len(names)), 1, figsize=(9.6, 1.1 + 0.75 * max(1, len(names))), squeeze=False)
    shades, pieces = ramp(LOADED, lightest=0.15), {}
    if run.problem:
        _say(axes[0, 0], run.problem)
        return finish(fig, "Where the tiles lie in memory", SEEN)
    for ax, name in zip(axes[:, 0], names, strict=True):
        owners = _owners_of(run, name)
        last = max(owners, default=0)
        for element in range(last + 1):
            mine = owners.get(element)
            shade = shades(mine[0] / max(1, len(programs) - 1)) if mine else (0.93, 0.93, 0.93, 1)
            ax.add_patch(Rectangle((element, 0), 1, 1, fc=shade, ec="white", lw=0.6))
            if last < 60 and mine:
                ax.text(element + 0.5, 0.5, mine[0], ha="center", va="center", fontsize=7.5, color=ink_on(shade))
        first = sorted(element for element, mine in owners.items() if mine[0] == 0)
        pieces[name] = 1 + sum(b - a > 1 for a, b in zip(first, first[1:], strict=False))
        ax.set(xlim=(-0.2, last + 1.2), ylim=(-0.02, 1.02), ylabel=name)
        ax.set_xticks([0.5, last + 0.5], [0, last])
        ax.set_yticks([])
        bare(ax)
    axes[-1, 0].set_xlabel("address, in elements from the tensor's first")
    return finish(fig, "Program 0's tile lies in " + ", ".join(f"{n} piece{'s' * (n > 1)} of {name}" for name, n in pieces.items()),
                  f"{SEEN} In a square: the program that touches it.")


@figure
def times_touched(runs):
    """How often each element of each matrix is loaded or stored."""
    runs = _present(runs)
    across = max(1, *(len(run.tensors) for run in runs.values()))
    fig, axes = plt.subplots(len(runs), across, figsize=(9.6, 0.9 + 2.6 * len(runs)), squeeze=False)
    said = []
    for line, (label, run) in zip(axes, runs.items(), strict=True):
        if not _opened(line, label, run):
            continue
        words = []
        for ax, name in zip(line, run.tensors, strict=False):
            counts = np.atleast_2d(run.times(name))
            ax.imshow(counts, cmap=ramp(STORED if run.kind(name) == "store" else LOADED, 0.0), vmin=0, vmax=max(8, counts.max()))
            often = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
            ax.text(0.5, 0.5, f"{often}×", transform=ax.transAxes, ha="center", va="center", fontsize=15, fontweight="bold",
                    color="white" if counts.mean() > 0.5 * max(8, counts.max()) else INK)
            ax.set(title=f"{label + ': ' if len(runs) > 1 else ''}{run.kind(name)} {name}, {counts.shape[0]} × {counts.shape[1]}")
            ax.set_xticks([])
            ax.set_yticks([])
            words.append(f"{name} {often}")
        said.append((f"{label}: " if len(runs) > 1 else "") + ", ".join(words))
    return finish(fig, "How often each element is touched" + (": " + "; ".join(said) if said else ""), SEEN)


@figure
def tiles_and_addresses(tiles, offsets=None):
    """Tiles of matrices, and the address that each of their elements has.

    tiles: name -> (matrix, (row, height), (column, width)); what sticks out is drawn too, with the address it would have
    offsets: name -> somebody's (height, width) offsets for that tile: those are written in, and wrong ones are orange; what
             has another shape is left out
    """
    fig, axes = plt.subplots(1, len(tiles), figsize=(min(9.6, 4.8 * len(tiles)), 4.1), squeeze=False)
    said = []
    for ax, (name, (T, (top, height), (left, width))) in zip(axes[0], tiles.items(), strict=True):
        given = (offsets or {}).get(name)
        given = given if np.shape(given) == (height, width) else None
        (M, N), foreign, wrong = T.shape, 0, 0
        real = {i * T.stride(0) + j * T.stride(1): (i, j) for i in range(M) for j in range(N)}
        hit = set()
        for i in range(max(M, top + height)):
            for j in range(max(N, left + width)):
                inside, mine = i < M and j < N, top <= i < top + height and left <= j < left + width
                if not inside and not mine:
                    continue
                address = i * T.stride(0) + j * T.stride(1)
                shown = address if given is None or not mine else int(given[i - top][j - left])
                wrong += shown != address
                if not inside and address in real:
                    hit.add(real[address])
                foreign += not inside
                _place(ax, i, j, shown, inside, mine, shown != address)
        for i, j in hit:
            ax.add_patch(Rectangle((j + 0.06, i + 0.06), 0.88, 0.88, fc="none", ec=WRONG, lw=2.2))
        ax.set(xlim=(-0.1, max(N, left + width) + 0.1), ylim=(max(M, top + height) + 0.1, -0.1), aspect="equal",
               title=f"{name}: shape {tuple(T.shape)}, strides {T.stride()}")
        ax.axis("off")
        inside = [i * T.stride(0) + j * T.stride(1)
                  for i in range(top, min(M, top + height)) for j in range(left, min(N, left + width))]
        said.append(_tile_words(name, wrong, foreign, len(hit), inside, given is not None))
    return finish(fig, "; ".join(said), "Definition: row · stride 0 + column · stride 1. Blue: the tile. Dashed: no element of the "
                  "matrix. Orange frame: the element that really lies at such an address.")


def _place(ax, i, j, address, inside, mine, wrong):
    fill = WRONG if wrong else LOADED if mine and inside else "white" if not inside else "#EFEFEF"
    ax.add_patch(Rectangle((j + 0.03, i + 0.03), 0.94, 0.94, fc=fill, ec=INK if not inside else "none", lw=0.9 if not inside else 0,
                           ls="-" if inside else (0, (2, 2))))
    ax.text(j + 0.5, i + 0.5, address, ha="center", va="center", fontsize=9, color="white" if mine and inside or wrong else INK)


def _tile_words(name, wrong, foreign, hit, inside, given):
    if wrong:
        return f"{name}: {wrong} of your addresses are wrong"
    lead = f"{name}: {'your addresses are right, ' if given else ''}"
    if foreign:
        return f"{lead}{foreign} places stick out, {hit} of them at the address of another element"
    return f"{lead}the tile lies at {', '.join(map(str, inside)) if len(inside) <= 6 else f'{len(inside)} addresses'}"


@figure
def address_walk(views):
    """Where the elements lie that one meets row by row, first to last. views: name -> two-dimensional tensor."""
    fig, axes = plt.subplots(1, len(views), figsize=(4.6 * len(views), 3.1), squeeze=False, sharey=True)
    straight = {}
    for ax, (name, T) in zip(axes[0], views.items(), strict=True):
        walk = [i * T.stride(0) + j * T.stride(1) for i in range(T.shape[0]) for j in range(T.shape[1])]
        straight[name] = len({b - a for a, b in zip(walk, walk[1:], strict=False)}) == 1
        ax.plot(walk, "o-", color=LOADED if straight[name] else WRONG)
        ax.set(xlabel="element, row by row", title=name)
        ax.set_xticks(range(0, len(walk), 3))
        ax.set_yticks(range(0, max(walk) + 1, 4))
        ax.grid(axis="y")
    axes[0, 0].set_ylabel("address, in elements")
    lines, bent = ([name for name in straight if straight[name] == yes] for yes in (True, False))
    title = " and ".join(filter(None, (f"one stride describes {', '.join(lines)}" if lines else "",
                                       f"none describes {', '.join(bent)}, read row by row" if bent else "")))
    return finish(fig, title[0].upper() + title[1:], "Measured here: T.stride().")


def _present(runs):
    return {label: run for label, run in runs.items() if run is not None}


def _opened(line, label, run):
    """Clear the axes of a line that the run does not need; False if it ended early, which is then said there."""
    for ax in line[1 if run.problem else max(1, len(run.tensors)):]:
        ax.axis("off")
    if run.problem:
        _say(line[0], f"{label}: {run.problem}")
    return not run.problem


def _number(program):
    return str(program[0]) if len(program) == 1 else str(program)


def _say(ax, text):
    ax.text(0, 0.5, wrap(text, 60), transform=ax.transAxes, va="center", fontsize=9, color=READ)
    ax.axis("off")
