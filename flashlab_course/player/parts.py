"""The parts of the picture beside the tensors: traffic, what lies on chip, some numbers, the source.

Each draws itself once and says for every step, in order, what of it changes.
"""

from flashlab_course.player.recording import AXES, blocks
from flashlab_course.player.scene import bytes_text

LINE = 14                              # pixels
LABEL, CHIP, LETTER = 74, 52, 6.6      # where bars begin; the longest side of a tile on chip; a letter of its name
COLUMN, ROWS = 60, 4                   # the table of numbers


class Traffic:
    """Two bars: bytes read from and written to HBM so far."""

    height = 40

    def __init__(self, scene, total):
        self.width, self.bars = scene.width - LABEL - 62, {}
        self.unit = self.width / max(total, 1)
        for y, verb in ((0, "read"), (17, "written")):
            scene.text(0, y + 10, "small", f"HBM {verb}")
            scene.rect(LABEL, y + 3, self.width, 8, "rail")
            self.bars[verb] = scene.rect(LABEL, y + 3, 0, 8, verb), scene.text(scene.width, y + 10, "small end strong")

    def show(self, n, step, frame):
        for verb, (bar, text) in self.bars.items():
            frame[bar, "w"] = round(getattr(step, verb) * self.unit, 1)
            frame[text, "text"] = bytes_text(getattr(step, verb))


class Chip:
    """SRAM: each tile in a place of its own, drawn to size; how full it is, under the budget."""

    def __init__(self, scene, recording, y, row):
        sizes = {}
        for step in recording.steps:
            for T in step.chip:
                sizes[T.name] = max(sizes.get(T.name, (0, 0)), (*T.shape, 1, 1)[:2])
        self.blocks, self.bars, self.bottom = {}, {}, y
        if sizes:
            scene.text(0, y + 12, "head", "on chip")
            if recording.sram_bytes:
                self._gauge(scene, recording, y)
            self._lay_out(scene, sizes, row, y + LINE + 8)

    def _gauge(self, scene, recording, y):
        peak, budget = max(step.peak for step in recording.steps), recording.sram_bytes
        width = scene.width - LABEL - 112
        near = budget <= 8 * peak                      # of a far budget the bar would show nothing
        self.full, self.unit = f" of {bytes_text(budget)}" if near else "", width / (budget if near else 1.25 * peak)
        scene.rect(LABEL, y + 4, width, 8, "rail")
        self.bars = {verb: scene.rect(LABEL, y + 4, 0, 8, verb) for verb in ("peak", "live")}
        if near:
            scene.rect(LABEL + width - 1, y, 3, 16, "budget")
        self.text = scene.text(scene.width, y + 12, "small end strong")

    def _lay_out(self, scene, sizes, row, y):
        unit = max(min(row, CHIP / max(map(max, sizes.values()))), 0.25)
        x, tallest = 0, 0
        for name, (rows, columns) in sizes.items():
            w, h = max(columns * unit, 6), max(rows * unit, 6)
            pitch = max(w, LETTER * len(name))
            if x and x + pitch > scene.width:
                x, y, tallest = 0, y + tallest + LINE + 8, 0
            rect = scene.rect(x + (pitch - w) / 2, y, w, h, "block")
            self.blocks[name] = rect, scene.text(x + pitch / 2, y + h + 12, "small mid", name)
            x, tallest = x + pitch + 8, max(tallest, h)
        self.bottom = y + tallest + LINE + 10

    def show(self, n, step, frame):
        live = {T.name for T in step.chip}
        for name, (rect, label) in self.blocks.items():
            frame[rect, "look"] = "block off" if name not in live else "block new" if name in step.sets else "block"
            frame[label, "look"] = "small mid" if name in live else "small mid off"
        for verb, bar in self.bars.items():
            frame[bar, "w"] = round(getattr(step, verb) * self.unit, 1)
            frame[self.text, "text"] = bytes_text(step.live) + self.full


class Numbers:
    """The first rows of what a row of the output is made of: m, l, O and their like."""

    def __init__(self, scene, recording, y):
        self.columns, self.bottom = [], y
        for name, wide in _worth_showing(recording):
            if len(self.columns) + wide <= (scene.width - 34) // COLUMN:
                self.columns += [(name, c) for c in range(wide)]
        if not self.columns:
            return
        ends = [44 + COLUMN * (n + 0.75) for n in range(len(self.columns))]
        for end, (name, c) in zip(ends, self.columns, strict=True):
            scene.text(end, y + 12, "small end", f"{name}[:, {c}]" if (name, 1) in self.columns else name)
        places = [y + 12 + LINE * (r + 1) for r in range(ROWS)]
        self.rows = [scene.text(0, place, "small") for place in places]
        self.cells = [[scene.text(end, place, "digits end") for end in ends] for place in places]
        self.bottom = places[-1] + 8

    def show(self, n, step, frame):
        if not self.columns:
            return
        axes = {"j" if name.endswith("_j") else "i" for name, _ in self.columns}
        start = step.tile["ij".index(axes.pop())][0] if step.tile and len(axes) == 1 else None
        for r, (label, cells) in enumerate(zip(self.rows, self.cells, strict=True)):
            texts = [_cell(step.values.get(name, []), r, c) for name, c in self.columns]
            for cell, text in zip(cells, texts, strict=True):
                frame[cell, "text"] = text
            frame[label, "text"] = f"row {start + r}" if any(texts) and start is not None else ""


def _cell(rows, r, c):
    return rows[r][c] if r < len(rows) and c < len(rows[r]) else ""


def _worth_showing(recording):
    """(name, columns) of the tiles that are computed on chip: m and l first, then sums that are stored, then others."""
    stored = {"O"} | {move.name for step in recording.steps for move in step.moves if move.kind == "store"}
    made, columns, computed = [], {}, set()
    for step in recording.steps:
        made += [name for name in step.sets if name not in made]
        computed.update(() if step.moves else step.sets)
        columns |= {name: max(len(rows[0]), columns.get(name, 0)) for name, rows in step.values.items() if rows}

    def rank(name):
        stem, of_block = name.partition("_")[0], name.endswith(("_i", "_j")) or "_" not in name
        if of_block:
            return {"m": 0, "l": 1}.get(stem, 2 if columns[name] > 1 and stem in stored else 4)
        return 3 if stem in "ml" else 5

    names = [name for name in made if name in columns and name not in recording.tensors]
    return [(name, columns[name]) for name in sorted(names, key=lambda name: (rank(name), columns[name]))
            if name in computed or rank(name) < 4]


class Code:
    """The source, with the line that has just run, and what it did in words."""

    def __init__(self, scene, recording):
        self.recording, self.before = recording, (0, 0)
        self.blocks = [blocks(recording, axis) for axis in "ij"]
        self.phases = {step.phase for step in recording.steps} - {""}
        ran = {n for step in recording.steps for n in range(step.line, step.last + 1)}
        self.looks = {scene.add("code", text=line.text, number=line.number): "line" if n in ran else "line idle"
                      for n, line in enumerate(recording.lines)}
        self.status = scene.add("status")

    def show(self, n, step, frame):
        failed = self.recording.error and n == len(self.recording.steps) - 1
        for k, (item, look) in enumerate(self.looks.items()):
            now = step.line <= k <= step.last
            frame[item, "look"] = look + " now" * now + " bad" * bool(now and failed)
        said = [self.recording.error] if failed else [self._where(step), self._what(step), step.note]
        frame[self.status, "look"] = "status bad" if failed or step.note else "status"
        frame[self.status, "text"] = "\n".join(filter(None, said))
        self.before = step.read, step.written

    def _where(self, step):
        parts = [step.phase] if step.phase and len(self.phases) > 1 else []
        if step.program:
            parts.append(f"program {step.program if len(step.program) > 1 else step.program[0]}")
        if step.tile:
            i, j = (next((n for n, (start, stop) in enumerate(cuts) if start <= span[0] < stop), "?")
                    for cuts, span in zip(self.blocks, step.tile, strict=True))
            rows, columns = (f"{start}–{stop - 1}" for start, stop in step.tile)
            names = ("rows", "columns") if "C" in self.recording.tensors else ("queries", "keys")
            parts.append(f"tile ({i}, {j}): {names[0]} {rows}, {names[1]} {columns}")
        return " · ".join(parts)

    def _what(self, step):
        moved = [_in_words(move) for move in step.moves]
        changes = (step.read - self.before[0], "read"), (step.written - self.before[1], "written")
        count = [f"{bytes_text(nbytes)} {verb}" for nbytes, verb in changes if nbytes]
        if moved or count:
            return "; ".join([*moved, " and ".join(count)])
        made = [T.name for T in step.chip if T.name in step.sets]
        return f"on chip: {', '.join(sorted(made))}" if made else ""


def _in_words(move):
    """'loads K[4:8]'; of a matrix product both spans."""
    spans = [move.rows, move.cols] if "k" in AXES.get(move.name, ()) else [move.rows]
    return f"{move.kind}s {move.name}[{', '.join(f'{start}:{stop}' for start, stop in spans)}]"
