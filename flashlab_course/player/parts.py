"""The parts of the picture: traffic, what lies in HBM, what lies on chip, some numbers, the source. Each draws itself once, and
says for every step, in order, what of it changes."""

from flashlab_course.player.recording import AXES, PARTS, VECTORS, blocks, extent
from flashlab_course.player.scene import bytes_text

GRID, STRIP, LARGEST = 168, 44, 14     # pixels: the longer side of the grid, a strip's width, one row of a tensor
GAP, LINE, VECTOR, WIDEST = 9, 14, 8, 372
EDGE, CHIP = 74, 52                    # where bars begin; the longest side of a tile on chip
COLUMN, ROWS = 60, 4                   # the table of numbers


class Traffic:
    """Two bars: bytes read from and written to HBM so far."""

    height = 40

    def __init__(self, scene, recording, y, total):
        self.total, self.bars = max(total, 1), {}
        for n, verb in enumerate(("read", "written")):
            at = y + 17 * n
            scene.text(0, at + 10, "small", f"HBM {verb}")
            scene.rect(EDGE, at + 3, self.rail(scene), 8, "rail")
            self.bars[verb] = scene.rect(EDGE, at + 3, 0, 8, verb), scene.text(scene.width, at + 10, "small end strong")
        self.width = self.rail(scene)

    @staticmethod
    def rail(scene):
        return scene.width - EDGE - 62

    def show(self, n, step, frame):
        for verb, (bar, text) in self.bars.items():
            frame[bar, "w"] = round(self.width * getattr(step, verb) / self.total, 1)
            frame[text, "text"] = bytes_text(getattr(step, verb))


class Box:
    """A tensor in HBM: the spans that move, the one that was loaded last, those that are stored."""

    def __init__(self, scene, name, shape, x, y, row, column, turned=False):
        self.scene, self.name, self.x, self.y, self.row, self.column, self.turned = scene, name, x, y, row, column, turned
        self.shape = shape if len(shape) > 1 else (shape[0], 1)
        self.base = scene.rect(*self.place((0, self.shape[0]), (0, self.shape[1])), "tensor")
        self.spans, self.masked = {}, {}
        self.here, self.held = None, set()             # what was loaded last, and the names that the line gave it
        self.stored, self.since = {}, None

    def place(self, rows, cols):
        w, h = (cols[1] - cols[0]) * self.column, (rows[1] - rows[0]) * self.row
        x, y = cols[0] * self.column, rows[0] * self.row
        return (self.x + y, self.y + x, h, w) if self.turned else (self.x + x, self.y + y, w, h)

    def know(self, steps):
        """A rectangle for each span that moves, and an outline for what a mask cuts off."""
        for step in steps:
            for move in step.moves:
                if move.name == self.name:
                    rows, cols = move.kept or (move.rows, move.cols)
                    if (rows, cols) not in self.spans:
                        self.spans[rows, cols] = self.scene.rect(*self.place(rows, cols or (0, 1)), "span")
                    if move.kept and (move.rows, move.cols) not in self.masked:
                        self.masked[move.rows, move.cols] = self.scene.rect(*self.place(move.rows, move.cols or (0, 1)), "none")
        return self

    def show(self, step, eager, frame):
        since = step.phase, step.program, step.head
        if since != self.since:
            self.here, self.since = None, since
        stored = self.stored.setdefault(step.head, set())
        chip, now = {T.name for T in step.chip}, {}
        if self.here and (not chip or self.held and not self.held & chip):
            self.here = None                           # its tile is gone
        for move in step.moves:
            if move.name == self.name:
                span = move.kept or (move.rows, move.cols)
                now[span] = move
                if move.kind == "load":
                    self.here, self.held = span, set(step.sets)
                else:
                    stored.add(span)
        for span, rect in self.spans.items():
            look = now[span].kind if span in now else "here" if span == self.here else "stored" if span in stored else ""
            frame[rect, "look"] = f"span {look}".strip()
        for asked, rect in self.masked.items():
            frame[rect, "look"] = "masked" if any((m.rows, m.cols) == asked for m in now.values()) else "none"
        frame[self.base, "look"] = {"reads": "tensor load", "writes": "tensor store"}.get(eager.get(self.name), "tensor")


def eager_moves(step, before):
    """{name: "reads" or "writes"} of the tensors in HBM that an operation outside kernels names in its line."""
    if step.phase or (step.read, step.written) == before:
        return {}
    there = {T.name for T in step.hbm}
    reads = {name: "reads" for name in step.uses if name in there and step.read > before[0]}
    return reads | {name: "writes" for name in step.sets if name in there and step.written > before[1]}


class Hbm:
    """What Grid and Flow share: boxes, and bytes before the step."""

    def __init__(self, scene, recording):
        self.scene, self.recording, self.boxes, self.before = scene, recording, [], (0, 0)

    def show(self, n, step, frame):
        eager = eager_moves(step, self.before)
        self.before = step.read, step.written
        for box in self.boxes:
            box.show(step, eager, frame)


class Grid(Hbm):
    """The tiles of S, or of C, in the middle; beside them what lies along the query blocks, above and below the key blocks'."""

    def __init__(self, scene, recording, y, mark, scale):
        super().__init__(scene, recording)
        self.grid, self.strip, scene.width = GRID * scale, STRIP * scale, WIDEST * scale
        moved = {(move.kind, move.name) for step in recording.steps for move in step.moves}
        names = [name for name in recording.tensors if name in AXES and name != "C"]
        results = {name for name in names if ("store", name) in moved or ("load", name) not in moved}
        self.left, self.right, self.top, self.below = (
            [name for name in names if (AXES[name][0] == "i") == (side in "lr") and (name in results) == (side in "rb")]
            for side in "lrtb")
        longest = max(extent(recording, "i"), extent(recording, "j"))
        self.row = min(LARGEST, self.grid / longest)
        self.over = {axis: self._beyond(axis) for axis in "ij"}
        self.lay_out(y)
        self.tiles, self.never, self.seen, self.since = {}, set(), set(), None
        self._cells()
        for box in self.boxes:
            box.know(recording.steps)
        if mark:
            _mark(scene, self.boxes, recording, *mark)

    def _beyond(self, axis):
        """How far a masked access reaches beyond the end of an axis, in rows."""
        N = extent(self.recording, axis)
        return max([0, *(move.rows[1] - N for step in self.recording.steps for move in step.moves
                         if AXES.get(move.name, ("",))[0] == axis)])

    def depth(self, name):
        """A strip's width, and the pixels of one of its columns."""
        shape, product = self.recording.tensors[name], "k" in AXES[name]
        if len(shape) == 1:
            return VECTOR, VECTOR
        columns = shape[AXES[name].index("k")] if product else shape[1]
        reach = [move.cols[1] for step in self.recording.steps for move in step.moves if move.name == name and not product]
        column = min(self.row, (self.grid if product else self.strip) / columns)
        return max([columns, *reach]) * column, column

    def lay_out(self, y):
        scene, row = self.scene, self.row
        widths = {name: self.depth(name) for name in (*self.left, *self.right, *self.top, *self.below)}
        height, width = ((extent(self.recording, axis) + self.over[axis]) * row for axis in "ij")
        pitch = {name: max(wide, 7.5 * len(name)) + GAP + 3 for name, (wide, _) in widths.items()}    # room for the name too
        x0 = max(sum(pitch[name] for name in self.left) + 14, 28)
        used = x0 + width + sum(pitch[name] for name in self.right)
        scene.width = max(used, scene.width)
        shift = (scene.width - used) / 2
        self.x, at = x0 + shift, y + 4
        for name in self.top:
            self._box(name, self.x, at, widths[name][1], turned=AXES[name][0] == "j")
            scene.text(self.x - 6, at + widths[name][0] / 2 + 4, "name end", name)
            at += widths[name][0] + GAP
        self.y = at + LINE + 4
        x = shift
        for name in self.left:
            self._strip(name, x, widths[name], pitch[name])
            x += pitch[name]
        x = self.x + width + GAP + 3
        for name in self.right:
            self._strip(name, x, widths[name], pitch[name])
            x += pitch[name]
        stored = next((name for name in ("C", "S") if name in self.recording.tensors), None)
        what = f"tiles of {stored}" if stored else "tiles of S, which HBM never holds"
        scene.text(self.x + width / 2, self.y + height + 13, "small mid off", what)
        at = self.y + height + GAP + LINE
        for name in self.below:
            self._box(name, self.x, at, widths[name][1], turned=True)
            scene.text(self.x - 6, at + widths[name][0] / 2 + 4, "name end", name)
            at += widths[name][0] + GAP
        self.bottom = self._parts(at) + 4

    def _parts(self, y):
        """Partial results in HBM, below the grid; where they end."""
        x, end = self.x, y
        for name, shape in ((name, self.recording.tensors[name]) for name in PARTS if name in self.recording.tensors):
            column = min(self.row, self.strip / shape[1]) if len(shape) > 1 else VECTOR
            self.boxes.append(Box(self.scene, name, shape, x, y + LINE + 4, self.row, column))
            self.scene.text(x, y + LINE - 1, "name", name)
            x, end = x + max(column * (*shape, 1)[1], 7.5 * len(name)) + GAP, y + LINE + 4 + shape[0] * self.row + GAP
        return end

    def _strip(self, name, x, width, pitch):
        x += (pitch - GAP - 3 - width[0]) / 2
        self._box(name, x, self.y, width[1])
        self.scene.text(x + min(width[0], self.strip) / 2, self.y - 5, "name mid", name)

    def _box(self, name, x, y, column, turned=False):
        shape = self.recording.tensors[name]
        row = self.row
        if AXES[name][0] == "k":                       # B: its columns lie along the grid
            row, column = column, self.row
        self.boxes.append(Box(self.scene, name, shape, x, y, row, column, turned))

    def _cells(self):
        """Every tile of the grid, visited or not, and whatever else was visited."""
        scene, row = self.scene, self.row
        rows, cols = blocks(self.recording, "i"), blocks(self.recording, "j")
        visited = dict.fromkeys(step.tile for step in self.recording.steps if step.tile)
        for tile in dict.fromkeys([*((r, c) for r in rows for c in cols), *visited]):
            (r0, r1), (c0, c1) = tile
            place = self.x + c0 * row, self.y + r0 * row, (c1 - c0) * row, (r1 - r0) * row
            self.tiles[tile] = scene.rect(*place, "cell")
            if tile not in visited:
                scene.stroke(*place, "never")
        for axis, cut in (("i", rows), ("j", cols)):
            for n, (start, stop) in enumerate(cut if len(cut) <= 12 else []):
                middle = (start + stop) / 2 * row
                scene.text(*((self.x - 6, self.y + middle + 4) if axis == "i" else (self.x + middle, self.y - 5)),
                           "small end" if axis == "i" else "small mid", str(n))

    def show(self, n, step, frame):
        super().show(n, step, frame)
        since = step.phase, step.head
        if since != self.since:
            self.seen, self.since = set(), since
        for tile, rect in self.tiles.items():
            frame[rect, "look"] = "cell lit" if tile == step.tile else "cell seen" if tile in self.seen else "cell"
        if step.tile:
            self.seen.add(step.tile)


class Flow(Hbm):
    """Matrices in HBM to one scale, one after the other: runs that have no grid of tiles."""

    def __init__(self, scene, recording, y, mark, scale):
        super().__init__(scene, recording)
        grid, shapes = GRID * scale, {}
        for step in recording.steps:
            for T in step.hbm:
                if 1 <= len(T.shape) <= 2 and len(T.shape) >= len(shapes.get(T.name, ())):
                    shapes[T.name] = T.shape
        shapes |= recording.tensors
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith("old ")}
        longest = max((size for shape in shapes.values() for size in shape), default=1)
        self.row, scene.width = min(LARGEST, grid / longest), WIDEST * scale
        x, y, tallest = 0, y + LINE + 4, 0
        self.texts = {}
        for name, shape in shapes.items():
            along = len(shape) == 1 and name not in VECTORS
            column = VECTOR if len(shape) == 1 and not along else min(self.row, grid / shape[-1])
            size = (shape[0] * self.row, VECTOR) if along else ((shape[1] if len(shape) > 1 else 1) * column, shape[0] * self.row)
            if x and x + size[0] > scene.width:
                x, y, tallest = 0, y + tallest + 2 * LINE + 10, 0
            self.boxes.append(Box(scene, name, shape, x, y, self.row, VECTOR if along else column, along).know(recording.steps))
            scene.text(x + size[0] / 2, y - 5, "name mid", name)
            self.texts[name] = scene.text(x + size[0] / 2, y + size[1] + 12, "small mid")
            x, tallest = x + max(size[0], 30) + GAP + 5, max(tallest, size[1])
        self.bottom = y + tallest + LINE + 8
        if mark:
            _mark(scene, self.boxes, recording, *mark)

    def show(self, n, step, frame):
        super().show(n, step, frame)
        there = {T.name: T.nbytes for T in step.hbm}
        for box in self.boxes:
            known = box.name in there or box.name in self.recording.tensors
            if not known:
                frame[box.base, "look"] = "tensor absent"
            frame[self.texts[box.name], "text"] = bytes_text(there[box.name]) if box.name in there else ""


def _mark(scene, boxes, recording, name, index):
    """An outline round an element of a tensor, or round its row where columns are too narrow."""
    for box in boxes:
        if box.name == name:
            row, column = (*index[-len(recording.tensors.get(name, box.shape)):], 0)[:2]
            x, y, w, h = box.place((row, row + 1), (column, column + 1))
            scene.rect(x - 1, y - 1, max(w, 4) + 2, max(h, 4) + 2, "mark")


class Chip:
    """SRAM: each tile in a place of its own, drawn to size; how full it is, under the budget."""

    def __init__(self, scene, recording, y, row):
        self.sizes = {}
        for step in recording.steps:
            for T in step.chip:
                shape = (*T.shape, 1, 1)[:2]
                self.sizes[T.name] = max(self.sizes.get(T.name, (0, 0)), shape)
        self.blocks, self.gauge, self.bottom = {}, None, y
        if not self.sizes:
            return
        scene.text(0, y + 12, "head", "on chip")
        self.bottom = y + LINE + 6
        if recording.sram_bytes:
            self._gauge(scene, recording, y)
        self._lay_out(scene, row)

    def _gauge(self, scene, recording, y):
        peak = max(step.peak for step in recording.steps)
        budget, near = recording.sram_bytes, recording.sram_bytes <= 8 * peak
        self.full, rail = (budget if near else 1.25 * peak), scene.width - EDGE - 112
        scene.rect(EDGE, y + 4, rail, 8, "rail")
        most, live = scene.rect(EDGE, y + 4, 0, 8, "peak"), scene.rect(EDGE, y + 4, 0, 8, "live")
        if near:
            scene.rect(EDGE + rail - 1, y, 3, 16, "budget")
        self.gauge = most, live, scene.text(scene.width, y + 12, "small end strong")
        self.rail, self.budget = rail, f" of {bytes_text(budget)}" if near else ""       # of a far budget the bar shows nothing

    def _lay_out(self, scene, row):
        longest = max(max(size) for size in self.sizes.values())
        unit = max(min(row, CHIP / longest), 0.25)
        x, y, tallest = 0, self.bottom + 2, 0
        for name, (rows, columns) in self.sizes.items():
            w, h = max(columns * unit, 6), max(rows * unit, 6)
            pitch = max(w, 6.6 * len(name))
            if x and x + pitch > scene.width:
                x, y, tallest = 0, y + tallest + LINE + 8, 0
            rect = scene.rect(x + (pitch - w) / 2, y, w, h, "block")
            self.blocks[name] = rect, scene.text(x + pitch / 2, y + h + 12, "small mid", name)
            x, tallest = x + pitch + 8, max(tallest, h)
        self.bottom = y + tallest + LINE + 10

    def show(self, n, step, frame):
        live = {T.name for T in step.chip}
        for name, (rect, label) in self.blocks.items():
            look = "block off" if name not in live else "block new" if name in step.sets else "block"
            frame[rect, "look"] = look
            frame[label, "look"] = "small mid" if name in live else "small mid off"
        if self.gauge:
            most, bar, text = self.gauge
            frame[most, "w"] = round(self.rail * min(step.peak / self.full, 1), 1)
            frame[bar, "w"] = round(self.rail * min(step.live / self.full, 1), 1)
            frame[text, "text"] = f"{bytes_text(step.live)}{self.budget}"


class Numbers:
    """The first rows of what a row of the output is made of: m, l, O and their like."""

    def __init__(self, scene, recording, y):
        self.columns, self.tables = [], []
        for name, wide in self._chosen(recording):
            if len(self.columns) + wide <= (scene.width - 34) // COLUMN:
                self.columns += [(name, c) for c in range(wide)]
        self.bottom = y
        if not self.columns:
            return
        ends = [44 + COLUMN * (n + 0.75) for n in range(len(self.columns))]
        for end, (name, c) in zip(ends, self.columns, strict=True):
            wide = (name, 1) in self.columns
            scene.text(end, y + 12, "small end", f"{name}[:, {c}]" if wide else name)
        self.rows = [scene.text(0, y + 12 + LINE * (r + 1), "small") for r in range(ROWS)]
        self.cells = [[scene.text(end, y + 12 + LINE * (r + 1), "digits end") for end in ends] for r in range(ROWS)]
        self.bottom = y + 12 + LINE * ROWS + 8

    @staticmethod
    def _chosen(recording):
        """(name, columns) of what is worth showing, the most telling first."""
        stored = {move.name for step in recording.steps for move in step.moves if move.kind == "store"}
        made, wide, computed = {}, {}, set()
        for step in recording.steps:
            for name in step.sets:
                made.setdefault(name, len(made))
            computed |= set() if step.moves else set(step.sets)
            for name, rows in step.values.items():
                if rows:
                    wide[name] = max(wide.get(name, 0), len(rows[0]))

        def rank(name):
            stem, own = name.partition("_")[0], name.endswith(("_i", "_j")) or "_" not in name
            sum_of_steps = wide[name] > 1 and stem in stored | {"O"}
            order = {"m": 0, "l": 1}.get(stem, 2 if sum_of_steps else 4) if own else 3 if stem in "ml" else 5
            return order, wide[name], made[name]

        known = set(recording.tensors)
        return [(name, wide[name]) for name in sorted((n for n in wide if n in made and n not in known), key=rank)
                if name in computed or rank(name)[0] < 4]

    def show(self, n, step, frame):
        if not self.columns:
            return
        axis = {"j" if name.endswith("_j") else "i" for name, _ in self.columns}
        start = step.tile["ij".index(axis.pop())][0] if step.tile and len(axis) == 1 else None
        for r in range(ROWS):
            filled = False
            for cell, (name, c) in zip(self.cells[r], self.columns, strict=True):
                rows = step.values.get(name, [])
                frame[cell, "text"] = rows[r][c] if r < len(rows) and c < len(rows[r]) else ""
                filled |= bool(frame[cell, "text"])
            frame[self.rows[r], "text"] = f"row {start + r}" if filled and start is not None else ""


class Code:
    """The source, with the line that has just run, and what it did in words."""

    def __init__(self, scene, recording):
        self.recording, self.before = recording, (0, 0)
        self.blocks = [blocks(recording, axis) for axis in "ij"]
        self.phases = {step.phase for step in recording.steps} - {""}
        ran = {n for step in recording.steps for n in range(step.line, step.last + 1)}
        self.lines = {n: scene.code(line.number, line.text) for n, line in enumerate(recording.lines)}
        for n, item in self.lines.items():
            scene.items[item].look = "line" if n in ran else "line idle"
        self.looks = {n: scene.items[item].look for n, item in self.lines.items()}
        self.status = scene.status()

    def show(self, n, step, frame):
        failed = self.recording.error and n == len(self.recording.steps) - 1
        for k, item in self.lines.items():
            now = step.line <= k <= step.last
            frame[item, "look"] = (self.looks[k] + (" now" if now else "") + (" bad" if now and failed else ""))
        frame[self.status, "look"] = "status bad" if failed or step.note else "status"
        said = [self.recording.error] if failed else [self._where(step), self._what(step), step.note]
        frame[self.status, "text"] = "\n".join(filter(None, said))
        self.before = step.read, step.written

    def _where(self, step):
        parts = [step.phase if len(self.phases) > 1 else ""]
        if step.program:
            parts.append(f"program {step.program if len(step.program) > 1 else step.program[0]}")
        if step.tile:
            i, j = (next((n for n, cut in enumerate(cuts) if cut[0] <= span[0] < cut[1]), "?")
                    for cuts, span in zip(self.blocks, step.tile, strict=True))
            rows, cols = (f"{start}–{stop - 1}" for start, stop in step.tile)
            names = ("rows", "columns") if "C" in self.recording.tensors else ("queries", "keys")
            parts.append(f"tile ({i}, {j}): {names[0]} {rows}, {names[1]} {cols}")
        return " · ".join(filter(None, parts))

    def _what(self, step):
        moved = [f"{move.kind}s {move.name}[{_span(move.rows)}{', ' + _span(move.cols) if 'k' in AXES.get(move.name, ()) else ''}]"
                 + (f", of which {_span(move.kept[0])} are carried out" if move.kept and move.kept[0] != move.rows else "")
                 for move in step.moves]
        read, written = step.read - self.before[0], step.written - self.before[1]
        count = [f"{bytes_text(n)} {verb}" for n, verb in ((read, "read"), (written, "written")) if n]
        made = [name for name in step.sets if any(T.name == name for T in step.chip)]
        if moved or count:
            return "; ".join([*moved, " and ".join(count)])
        return f"on chip: {', '.join(made)}" if made else ""


def _span(span):
    return f"{span[0]}:{span[1]}"
