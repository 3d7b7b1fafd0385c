"""The parts of the picture beside the tensors: traffic, tiles on chip, some numbers, the source.

Each function draws its part for all steps; those that take y return where the part ends.
"""

from itertools import pairwise

from flashlab_course.player.recording import Step, blocks
from flashlab_course.player.scene import LINE, bytes_text, shelves

LABEL, CHIP = 74, 52                   # pixels: where bars begin, and the longest side of a tile on chip
COLUMN, ROWS = 60, 4                   # the table of numbers


def draw_traffic(scene, recording, total):
    """Two bars: bytes read from and written to HBM so far. They are full at `total` bytes."""
    width = scene.width - LABEL - 62
    for y, verb in ((0, "read"), (17, "written")):
        so_far = [getattr(step, verb) for step in recording.steps]
        scene.text(0, y + 10, "small", f"HBM {verb}")
        scene.rect(LABEL, y + 3, width, 8, "rail")
        scene.rect(LABEL, y + 3, [round(width * n / max(total, 1), 1) for n in so_far], 8, verb)
        scene.text(scene.width, y + 10, "small end strong", [bytes_text(n) for n in so_far])


def draw_chip(scene, recording, y, row):
    """SRAM: every tile in a place of its own, drawn to size. row: pixels of a tensor's row in HBM"""
    largest = {}
    for step in recording.steps:
        for name, (shape, _) in step.chip.items():
            largest[name] = max(largest.get(name, (0, 0)), (*shape, 1, 1)[:2])
    if not largest:
        return y
    scene.text(0, y + 12, "head", "on chip")
    if recording.sram_bytes:
        _draw_gauge(scene, recording, y)
    unit = max(min(row, CHIP / max(map(max, largest.values()))), 0.25)
    sizes = {name: (max(columns * unit, 6), max(rows * unit, 6)) for name, (rows, columns) in largest.items()}
    places, bottom = shelves(sizes, scene.width, y + LINE + 8, label=LINE + 8)
    for name, (x, top) in places.items():
        w, h = sizes[name]
        looks = ["" if name not in step.chip else "new" if name in step.sets else "live" for step in recording.steps]
        scene.rect(x, top, w, h, [{"": "block off", "new": "block new", "live": "block"}[look] for look in looks])
        scene.text(x + w / 2, top + h + 12, ["small mid" if look else "small mid off" for look in looks], name)
    return bottom


def _draw_gauge(scene, recording, y):
    """How full SRAM is, after each line and at most while it ran. The bar is the budget, unless that is far away."""
    steps, budget, width = recording.steps, recording.sram_bytes, scene.width - LABEL - 112
    peak = max(step.peak for step in steps)
    full = budget if budget <= 8 * peak else 1.25 * peak
    scene.rect(LABEL, y + 4, width, 8, "rail")
    for verb in ("peak", "live"):
        scene.rect(LABEL, y + 4, [round(width * getattr(step, verb) / full, 1) for step in steps], 8, verb)
    if full == budget:
        scene.rect(LABEL + width - 1, y, 3, 16, "budget")
    text = [f"{bytes_text(step.live)} of {bytes_text(budget)}" for step in steps]
    scene.text(scene.width, y + 12, "small end strong", text)


def draw_numbers(scene, recording, y):
    """The first rows of m, l, O and similar tiles."""
    columns = []
    for name, wide in _worth_showing(recording):
        if len(columns) + wide <= (scene.width - 34) // COLUMN:
            columns += [(name, c) for c in range(wide)]
    if not columns:
        return y
    axes = {"j" if name.endswith("_j") else "i" for name, _ in columns}
    axis = "ij".index(axes.pop()) if len(axes) == 1 else None
    for r in range(ROWS):
        place, shown = y + 12 + LINE * (r + 1), [False] * len(recording.steps)
        for n, (name, c) in enumerate(columns):
            texts = [_cell(step.values.get(name, []), r, c) for step in recording.steps]
            shown = [bool(before or text) for before, text in zip(shown, texts, strict=True)]
            scene.text(44 + COLUMN * (n + 0.75), place, "digits end", texts)
        scene.text(0, place, "small", [
            f"row {step.tile[axis][0] + r}" if any_number and step.tile and axis is not None else ""
            for any_number, step in zip(shown, recording.steps, strict=True)])
    for n, (name, c) in enumerate(columns):
        title = f"{name}[:, {c}]" if (name, 1) in columns else name
        scene.text(44 + COLUMN * (n + 0.75), y + 12, "small end", title)
    return y + 20 + LINE * ROWS


def _cell(rows, r, c):
    return rows[r][c] if r < len(rows) and c < len(rows[r]) else ""


def _worth_showing(recording):
    """(name, columns) of the tiles that are computed or stored: the block's m, l and O first, then the others."""
    stored = {"O"} | {move.name for step in recording.steps for move in step.moves if move.kind == "store"}
    columns, computed, made = {}, set(), {}
    for step in recording.steps:
        made |= dict.fromkeys(step.sets)
        computed.update(() if step.moves else step.sets)
        columns |= {name: max(len(rows[0]), columns.get(name, 0)) for name, rows in step.values.items() if rows}

    def order(name):
        stem, of_block = name.partition("_")[0], name.endswith(("_i", "_j")) or "_" not in name
        first = of_block and (stem in ("m", "l") or stem in stored and columns[name] > 1)
        return not first, {"m": 0, "l": 1}.get(stem, 2), columns[name]

    shown = [name for name in made if name in columns and name not in recording.tensors
             and (name in computed or name.partition("_")[0] in stored)]
    return [(name, columns[name]) for name in sorted(shown, key=order)]


def draw_source(scene, recording):
    """The source, with the line that has just run, and in words what it did."""
    steps, last = recording.steps, len(recording.steps) - 1
    ran = {n for step in steps for n in range(step.line, step.last + 1)}
    for n, line in enumerate(recording.lines):
        looks = ["line" + " idle" * (n not in ran) + " now" * (step.line <= n <= step.last) for step in steps]
        if recording.error and "now" in looks[last]:
            looks[last] += " bad"
        scene.add("code", look=looks, text=line.text, number=line.number)
    where, shapes = _places(recording), recording.tensors
    said = [[where(step), _what(shapes, before, step), step.note] for before, step in pairwise([Step(0, 0), *steps])]
    looks = ["status bad" if step.note else "status" for step in steps]
    said[last].append(f"Done: {bytes_text(recording.read + recording.written)} moved.")
    if recording.error:
        said[last], looks[last] = [recording.error], "status bad"
    scene.add("status", look=looks, text=["\n".join(filter(None, parts)) for parts in said])
    if any(step.told for step in steps):
        scene.add("status", look="told", text=[step.told for step in steps])


def _places(recording):
    """A function that says where a step is: its kernel, its program and its tile."""
    cuts = [blocks(recording, axis) for axis in "ij"]
    phases = {step.phase for step in recording.steps} - {""}
    names = ("rows", "columns") if "C" in recording.tensors else ("queries", "keys")

    def block(axis, span):
        return next((n for n, (start, stop) in enumerate(cuts[axis]) if start <= span[0] < stop), "?")

    def place(step):
        parts = [step.phase] if step.phase and len(phases) > 1 else []
        if step.program:
            parts.append(f"program {step.program if len(step.program) > 1 else step.program[0]}")
        if step.tile:
            number = ", ".join(str(block(axis, span)) for axis, span in enumerate(step.tile))
            spans = ", ".join(f"{name} {a}–{b - 1}" for name, (a, b) in zip(names, step.tile, strict=True))
            parts.append(f"tile ({number}): {spans}")
        return " · ".join(parts)

    return place


def _what(shapes, before, step):
    """'loads K[4:8]; 64 B read', or 'on chip: S_ij'."""
    changes = (step.read - before.read, "read"), (step.written - before.written, "written")
    count = " and ".join(f"{bytes_text(nbytes)} {verb}" for nbytes, verb in changes if nbytes)
    if step.moves or count:
        return "; ".join([*(_move_in_words(move, shapes.get(move.name)) for move in step.moves), count])
    made = sorted(set(step.chip) & set(step.sets))
    return f"on chip: {', '.join(made)}" if made else ""


def _move_in_words(move, shape):
    """'loads K[4:8]'; both spans of a part of the columns; 'loads K[0:1, 2:3, 4:8]' where there are several heads."""
    columns = [move.cols] if shape and move.cols not in ((), (0, *shape[-1:])) else []
    spans = [*move.lead, move.rows, *columns]
    return f"{move.kind}s {move.name}[{', '.join(f'{start}:{stop}' for start, stop in spans)}]"
