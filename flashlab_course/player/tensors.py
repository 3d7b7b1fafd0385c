"""The tensors in HBM, all to one scale: those of a tiled run lie round its grid of tiles, all others in rows."""

from flashlab_course.player.recording import AXES, VECTORS, blocks, extent
from flashlab_course.player.scene import bytes_text

GRID, STRIP, LARGEST = 168, 44, 14     # pixels: the longer side of the grid, a strip's width, one row of a tensor
GAP, LINE, VECTOR, LETTER = 9, 14, 8, 7.5
FEW = 12                               # blocks along an axis that are numbered
THE_GRID = ("C", "S")                  # tensors whose tiles are its cells


class Box:
    """A tensor in HBM: the spans that move, the one that was loaded last, those that are stored."""

    def __init__(self, scene, name, shape, x, y, row, column, turned):
        self.name, self.x, self.y, self.row, self.column, self.turned = name, x, y, row, column, turned
        self.rows, self.columns = (*shape, 1)[:2]
        self.scene, self.base = scene, scene.rect(*self.place((0, self.rows), (0, self.columns)), "tensor")
        self.spans, self.stored = {}, {}
        self.here, self.held = None, set()             # what was loaded last, and the names that the line gave it
        self.program = None

    def place(self, rows, cols):
        x, w = cols[0] * self.column, (cols[1] - cols[0]) * self.column
        y, h = rows[0] * self.row, (rows[1] - rows[0]) * self.row
        return (self.x + y, self.y + x, h, w) if self.turned else (self.x + x, self.y + y, w, h)

    def know(self, steps):
        """A rectangle for each span that moves."""
        for move in (move for step in steps for move in step.moves if move.name == self.name):
            if (move.rows, move.cols) not in self.spans:
                place = self.place(move.rows, move.cols or (0, 1))
                self.spans[move.rows, move.cols] = self.scene.rect(*place, "span")

    def mark(self, index):
        """An outline round an element, or round its row where columns are too narrow."""
        row, column = (*index, 0)[:2]
        x, y, w, h = self.place((row, row + 1), (column, column + 1))
        self.scene.rect(x - 1, y - 1, max(w, 4) + 2, max(h, 4) + 2, "mark")

    def show(self, step, eager, frame):
        program, chip = (step.phase, step.program, step.head), {T.name for T in step.chip}
        if program != self.program or not chip or self.held and not self.held & chip:
            self.here = None                           # its tile is gone
        self.program = program
        stored = self.stored.setdefault(step.head, set())
        now = {(move.rows, move.cols): move.kind for move in step.moves if move.name == self.name}
        for span, kind in now.items():
            if kind == "load":
                self.here, self.held = span, set(step.sets)
            else:
                stored.add(span)
        for span, rect in self.spans.items():
            look = now.get(span) or ("here" if span == self.here else "stored" if span in stored else "")
            frame[rect, "look"] = f"span {look}".strip()
        frame[self.base, "look"] = f"tensor {eager.get(self.name, '')}".strip()


class Tensors:
    """Boxes, and in a tiled run the grid between them: the tiles of S, or of C."""

    def __init__(self, scene, recording, y, mark, scale):
        self.scene, self.recording, self.boxes, self.sizes, self.tiles = scene, recording, [], {}, {}
        self.grid, self.strip, self.before = GRID * scale, STRIP * scale, (0, 0)
        self.seen, self.since = set(), None
        if any(step.tile for step in recording.steps):
            names = [name for name in recording.tensors if name not in THE_GRID]
            tiled = [name for name in names if name in AXES]
            rest = {name: recording.tensors[name] for name in names if name not in tiled}
            self.row = min(LARGEST, self.grid / max(extent(recording, "i"), extent(recording, "j")))
            y = self._around(tiled, y + 4)
            self._cells()
        else:
            rest = _shapes(recording)
            self.row = min(LARGEST, self.grid / max((size for shape in rest.values() for size in shape), default=1))
        self.bottom = self._one_after_the_other(rest, y) if rest else y + 4
        for box in self.boxes:
            box.know(recording.steps)
            if mark and box.name == mark[0]:
                box.mark(mark[1][-len(recording.tensors[box.name]):])

    def _around(self, names, y):
        """Tensors along the query blocks lie beside the grid, those along the key blocks above and below it.

        Results lie at the right and below. Returns where it ends.
        """
        moved = {(move.kind, move.name) for step in self.recording.steps for move in step.moves}
        results = {name for name in names if ("store", name) in moved or ("load", name) not in moved}
        places = {name: (AXES[name][0] == "i", name in results) for name in names}
        left, right, top, below = ([name for name in names if places[name] == (beside, after)]
                                   for beside in (True, False) for after in (False, True))
        height, width = (extent(self.recording, axis) * self.row for axis in "ij")
        start = max(sum(map(self._pitch, left)) + 14, 28)
        used = start + width + sum(map(self._pitch, right))
        self.scene.width = max(used, self.scene.width)
        shift = (self.scene.width - used) / 2
        self.x = start + shift
        self.y = self._rows(top, y) + LINE + 4
        self._columns(left, shift)
        self._columns(right, self.x + width + GAP + 3)
        stored = next((name for name in THE_GRID if name in self.recording.tensors), None)
        what = f"tiles of {stored}" if stored else "tiles of S, which HBM never holds"
        self.scene.text(self.x + width / 2, self.y + height + 13, "small mid off", what)
        return self._rows(below, self.y + height + GAP + LINE)

    def _depth(self, name):
        """Across the grid: a strip's width, and the pixels of one of its columns."""
        shape = self.recording.tensors[name]
        if len(shape) == 1:
            return VECTOR, VECTOR
        product = "k" in AXES[name]
        columns = shape[AXES[name].index("k")] if product else shape[1]
        column = min(self.row, (self.grid if product else self.strip) / columns)
        return columns * column, column

    def _pitch(self, name):
        """Room for a strip and for its name."""
        return max(self._depth(name)[0], LETTER * len(name)) + GAP + 3

    def _columns(self, names, x):
        for name in names:
            width, column = self._depth(name)
            at = x + (self._pitch(name) - GAP - 3 - width) / 2
            self._box(name, self.recording.tensors[name], at, self.y, self.row, column)
            self.scene.text(at + width / 2, self.y - 5, "name mid", name)
            x += self._pitch(name)

    def _rows(self, names, y):
        for name in names:
            width, column = self._depth(name)
            turned = AXES[name][0] == "j"
            row, column = (self.row, column) if turned else (column, self.row)      # B's columns lie along the grid
            self._box(name, self.recording.tensors[name], self.x, y, row, column, turned)
            self.scene.text(self.x - 6, y + width / 2 + 4, "name end", name)
            y += width + GAP
        return y

    def _one_after_the_other(self, shapes, y):
        x, y, tallest = 0, y + LINE + 4, 0
        for name, shape in shapes.items():
            lying = len(shape) == 1 and name not in VECTORS
            column = VECTOR if len(shape) == 1 else min(self.row, self.grid / shape[1])
            across, down = (*shape, 1)[1] * column, shape[0] * self.row
            w, h = (down, across) if lying else (across, down)
            if x and x + w > self.scene.width:
                x, y, tallest = 0, y + tallest + 2 * LINE + 10, 0
            self._box(name, shape, x, y, self.row, column, lying)
            self.scene.text(x + w / 2, y - 5, "name mid", name)
            self.sizes[name] = self.scene.text(x + w / 2, y + h + 12, "small mid")
            x, tallest = x + max(w, 30) + GAP + 5, max(tallest, h)
        return y + tallest + LINE + 8

    def _box(self, name, shape, x, y, row, column, turned=False):
        self.boxes.append(Box(self.scene, name, shape, x, y, row, column, turned))

    def _cells(self):
        """Every tile of the grid, crossed out if it is never visited, and whatever else was visited."""
        cut = {axis: blocks(self.recording, axis) for axis in "ij"}
        visited = dict.fromkeys(step.tile for step in self.recording.steps if step.tile)
        for tile in dict.fromkeys([*((rows, cols) for rows in cut["i"] for cols in cut["j"]), *visited]):
            (top, bottom), (left, right) = ([edge * self.row for edge in span] for span in tile)
            place = self.x + left, self.y + top, right - left, bottom - top
            self.tiles[tile] = self.scene.rect(*place, "cell")
            if tile not in visited:
                self.scene.add("stroke", *place, look="never")
        for axis, spans in cut.items():
            for n, (start, stop) in enumerate(spans if len(spans) <= FEW else []):
                middle = (start + stop) / 2 * self.row
                if axis == "i":
                    self.scene.text(self.x - 6, self.y + middle + 4, "small end", str(n))
                else:
                    self.scene.text(self.x + middle, self.y - 5, "small mid", str(n))

    def show(self, n, step, frame):
        eager = self._eager(step)
        self.before = step.read, step.written
        for box in self.boxes:
            box.show(step, eager, frame)
        there = {T.name: bytes_text(T.nbytes) for T in step.hbm}
        for box in self.boxes:
            if box.name in self.sizes:
                frame[self.sizes[box.name], "text"] = there.get(box.name, "")
                if box.name not in there and box.name not in self.recording.tensors:
                    frame[box.base, "look"] = "tensor absent"
        if (step.phase, step.head) != self.since:
            self.seen, self.since = set(), (step.phase, step.head)
        for tile, rect in self.tiles.items():
            frame[rect, "look"] = "cell lit" if tile == step.tile else "cell seen" if tile in self.seen else "cell"
        self.seen.add(step.tile)

    def _eager(self, step):
        """{name: "load" or "store"} of the tensors in HBM that an operation outside kernels names in its line."""
        if step.phase:
            return {}
        there = {T.name for T in step.hbm}
        loads = {name: "load" for name in step.uses if name in there and step.read > self.before[0]}
        return loads | {name: "store" for name in step.sets if name in there and step.written > self.before[1]}


def _shapes(recording):
    """Of every tensor in HBM; of one that changes, that with the most dimensions."""
    shapes = {}
    for step in recording.steps:
        for T in step.hbm:
            if 1 <= len(T.shape) <= 2 and len(T.shape) >= len(shapes.get(T.name, ())) and not T.name.startswith("old "):
                shapes[T.name] = T.shape
    return shapes | recording.tensors
