"""The tensors in HBM, all to one scale: around the grid of tiles in a tiled run, all others side by side."""

from itertools import pairwise, product
from typing import NamedTuple

from flashlab_course.player.recording import AXES, VECTORS, Step, blocks, extent
from flashlab_course.player.scene import LINE, bytes_text, shelves

GRID, STRIP, LARGEST = 168, 44, 14     # pixels: the longer side of the grid, a strip's width, one row of a tensor
GAP, VECTOR, LETTER = 9, 8, 7.5        # VECTOR: how deep a vector is, and every tensor at least
FEW = 12                               # blocks along an axis that are numbered
THE_GRID = ("C", "S")                  # tensors whose tiles are the grid's cells


class Box(NamedTuple):
    """A tensor in HBM, its corner, and the pixels of one of its rows and columns."""

    name: str
    shape: tuple
    x: float
    y: float
    row: float
    column: float
    turned: bool = False       # its rows go from left to right

    def place(self, rows, cols):
        """(x, y, w, h) of a part of it."""
        (left, right), (top, bottom) = [n * self.column for n in cols], [n * self.row for n in rows]
        x, y, w, h = left, top, right - left, bottom - top
        return (self.x + y, self.y + x, h, w) if self.turned else (self.x + x, self.y + y, w, h)


def draw_tensors(scene, recording, y, mark=None, scale=1.0):
    """Draw them from y on. Returns where they end, and the pixels of a row. mark, scale: see `picture`"""
    grid, shapes = GRID * scale, recording.tensors
    if any(step.tile for step in recording.steps):
        row = min(LARGEST, grid / max(extent(recording, "i"), extent(recording, "j")))
        boxes, bottom = _draw_around(scene, recording, y + 4, row, grid, STRIP * scale)
        shapes = {name: shape for name, shape in shapes.items() if name not in AXES and name not in THE_GRID}
    else:
        shapes = _all_shapes(recording)
        row = min(LARGEST, grid / max((size for shape in shapes.values() for size in shape), default=1))
        boxes, bottom = [], y + 4
    if shapes:
        more, bottom = _draw_side_by_side(scene, recording, shapes, bottom, row, grid)
        boxes += more
    looks = _looks_outside_kernels(recording)
    for box in boxes:
        _draw_box(scene, recording, box, [look.get(box.name, "tensor") for look in looks])
        if mark and box.name == mark[0]:               # round an element, or round its row where columns are narrow
            row_number, column = (*mark[1][-len(box.shape):], 0)[:2]
            x, y, w, h = box.place((row_number, row_number + 1), (column, column + 1))
            scene.rect(x - 1, y - 1, max(w, 4) + 2, max(h, 4) + 2, "mark")
    return bottom, row


def _draw_box(scene, recording, box, looks):
    """A tensor and the spans of it that move."""
    scene.rect(*box.place((0, box.shape[0]), (0, (*box.shape, 1)[1])), looks)
    for (rows, cols), its in span_looks(recording, box.name).items():
        scene.rect(*box.place(rows, cols or (0, 1)), its)


def span_looks(recording, name):
    """{(rows, cols): a look for each step}: a span moves now, has a copy on chip (here), or has been stored."""
    moves = [move for step in recording.steps for move in step.moves if move.name == name]
    looks, several = {(move.rows, move.cols): [] for move in moves}, len({move.lead for move in moves}) > 1
    here, held, before, stored = None, set(), None, {}
    for step in recording.steps:
        program = (step.phase, step.program)
        if program != before or not step.chip or held and not held & set(step.chip):
            here = None                                # the copy is gone
        before = program
        now = {(move.rows, move.cols): move.kind for move in step.moves if move.name == name}
        there = stored.setdefault(step.head * several, set())
        for span, kind in now.items():
            if kind == "load":
                here, held = span, set(step.sets)
            elif kind == "store":
                there.add(span)
        for span, its in looks.items():
            kept = "here" if span == here else "stored" if span in there else ""
            its.append(f"span {now.get(span, kept)}".strip())
    return looks


def _looks_outside_kernels(recording):
    """For each step {name: look} of the tensors that an operation outside kernels moves, or that are not there."""
    looks, names = [], set(_all_shapes(recording)) - set(recording.tensors)
    for before, step in pairwise([Step(0, 0), *recording.steps]):
        look = {name: "tensor absent" for name in names if name not in step.hbm}
        for moved, uses, verb in ((step.read > before.read, step.uses, "load"),
                                  (step.written > before.written, step.sets, "store")):
            if moved and not step.phase and not step.moves:
                look |= {name: f"tensor {verb}" for name in uses if name in step.hbm}
        looks.append(look)
    return looks


def _all_shapes(recording):
    """{name: shape} of every tensor in HBM; where a name's tensor changes, the shape with the most dimensions."""
    shapes = {}
    for step in recording.steps:
        for name, (shape, _) in step.hbm.items():
            if 1 <= len(shape) <= 2 and len(shape) >= len(shapes.get(name, ())) and not name.startswith("old "):
                shapes[name] = shape
    return shapes | recording.tensors


def _draw_around(scene, recording, y, row, grid, strip):
    """The grid of tiles and the tensors around it. Returns their boxes, and where they end.

    Tensors along the query blocks lie beside the grid, those along the key blocks above and below it. Inputs lie at
    the left and above, results at the right and below.
    """
    tensors = {name: shape for name, shape in recording.tensors.items() if name in AXES and name not in THE_GRID}
    strips = {name: _strip(name, shape, row, grid if "k" in AXES[name] else strip) for name, shape in tensors.items()}
    room = {name: max(depth, LETTER * len(name)) + GAP + 3 for name, (depth, _) in strips.items()}
    moved = {(move.kind, move.name) for step in recording.steps for move in step.moves}
    sides = {name: (AXES[name][0] == "i", ("store", name) in moved or ("load", name) not in moved) for name in tensors}
    left, right, above, below = ([name for name in tensors if sides[name] == side]
                                 for side in product((True, False), (False, True)))
    queries, wide = extent(recording, "i"), extent(recording, "j") * row
    tall = max(queries * row, VECTOR)
    high = tall / queries
    start = max(sum(room[name] for name in left) + 14, 28)
    used = start + wide + sum(room[name] for name in right)
    scene.width = max(used, scene.width)
    shift, boxes = (scene.width - used) / 2, []
    x = start + shift

    def stack(names, y):
        for name in names:
            depth, column = strips[name]
            turned = AXES[name][0] == "j"              # not B, whose columns lie along the grid as they are
            pixels = (row, column) if turned else (column, row)
            boxes.append(Box(name, tensors[name], x, y, *pixels, turned))
            scene.text(x - 6, y + depth / 2 + 4, "name end", name)
            y += depth + GAP
        return y

    def line_up(names, x, y):
        for name in names:
            depth, column = strips[name]
            middle = x + (room[name] - GAP - 3) / 2
            boxes.append(Box(name, tensors[name], middle - depth / 2, y, high, column))
            scene.text(middle, y - 5, "name mid", name)
            x += room[name]

    y = stack(above, y) + LINE + 4
    line_up(left, shift, y)
    line_up(right, x + wide + GAP + 3, y)
    _draw_cells(scene, recording, x, y, high, row)
    stored = next((name for name in THE_GRID if name in recording.tensors), None)
    caption = f"tiles of {stored}" if stored else "tiles of S, which HBM never holds"
    scene.text(x + wide / 2, y + tall + 13, "small mid off", caption)
    return boxes, stack(below, y + tall + GAP + LINE)


def _strip(name, shape, row, room):
    """How deep a tensor is across the grid, and the pixels of one of its columns."""
    if len(shape) == 1:
        return VECTOR, VECTOR
    columns = shape[AXES[name].index("k")] if "k" in AXES[name] else shape[1]
    column = min(row, room / columns)
    return columns * column, column


def _draw_cells(scene, recording, x, y, high, row):
    """Every tile of the grid, crossed out if it is never visited, and whatever else was visited."""
    cut = {axis: blocks(recording, axis) for axis in "ij"}
    visited = dict.fromkeys(step.tile for step in recording.steps if step.tile)
    looks = {tile: [] for tile in [*product(cut["i"], cut["j"]), *visited]}
    done = {}
    for step in recording.steps:
        seen = done.setdefault((step.phase, step.head), set())
        for tile, its in looks.items():
            its.append("cell lit" if tile == step.tile else "cell seen" if tile in seen else "cell")
        seen.add(step.tile)
    for tile, its in looks.items():
        (top, bottom), (left, right) = tile
        place = x + left * row, y + top * high, (right - left) * row, (bottom - top) * high
        scene.rect(*place, its)
        if tile not in visited:
            scene.add("stroke", *place, look="never")
    for axis, spans in cut.items():
        for n, (start, stop) in enumerate(spans if len(spans) <= FEW else []):
            middle = (start + stop) / 2
            place = (-6, middle * high + 4, "small end") if axis == "i" else (middle * row, -5, "small mid")
            scene.text(x + place[0], y + place[1], place[2], str(n))


def _draw_side_by_side(scene, recording, shapes, y, row, grid):
    """Tensors with their names and bytes under them. Returns their boxes, and where they end."""
    rows = {name: max(row, VECTOR / shape[0]) for name, shape in shapes.items()}
    columns = {name: VECTOR if len(shape) == 1 else max(min(row, grid / shape[1]), VECTOR / shape[1])
               for name, shape in shapes.items()}
    lying = {name for name, shape in shapes.items() if len(shape) == 1 and name not in VECTORS}
    sizes = {}
    for name, shape in shapes.items():
        w, h = (*shape, 1)[1] * columns[name], shape[0] * rows[name]
        sizes[name] = (h, w) if name in lying else (w, h)
    places, bottom = shelves(sizes, scene.width, y + 4, label=2 * LINE + 6, least=40)
    for name, (x, top) in places.items():
        middle, under = x + sizes[name][0] / 2, top + sizes[name][1]
        scene.text(middle, under + 12, "name mid", name)
        nbytes = [step.hbm[name][1] if name in step.hbm else None for step in recording.steps]
        scene.text(middle, under + 25, "small mid", ["" if n is None else bytes_text(n) for n in nbytes])
    return [Box(name, shape, *places[name], rows[name], columns[name], name in lying)
            for name, shape in shapes.items()], bottom
