"""A ring as a Scene: its ranks one below the other, each with its rows of the scores, the keys that it holds, and its time."""

from flashlab_course.player.parts import GRID, LINE
from flashlab_course.player.ring import work
from flashlab_course.player.scene import Scene, Words

COLOR = "#4A5568"
WIDE, LEFT, GAP = 430, 82, 14          # pixels: of all, of the labels, beside the scores
LANE, BELOW, BLOCK = 44, 26, 40        # a rank's least height, what lies below it; a block of K and V
WORDS = Words(
    "For each rank its rows of the scores, the block of keys and values that it holds, and how long it has computed",
    "half step", "step",
    (("own0", "computed now: the colour says with whose keys"), ("own0 past", "computed before, or on its way"),
     ("stored", "time computing: a block of scores is 1"), ("waits", "waiting"),
     ("", "L, O: of the rank's last query, O's first number")),
    "a step takes as long as its slowest rank", (1200, 1800))


def ring_picture(ring, total, scale):
    """The Scene of a Ring. total: the time at which bars end; scale: less than 1 where several stand side by side."""
    scene = Scene(ring.title, COLOR, WORDS, width=WIDE * scale)
    cell = GRID * scale / len(ring.owners)
    clock = [0, *ring.ends]
    y = _columns(scene, ring, cell)
    parts = []
    for rank in range(len(ring.queries)):
        parts.append(_Rank(scene, ring, rank, y, cell, clock, total))
        y = parts[-1].bottom
    parts.append(_Said(scene, ring, code=scale == 1))
    scene.height = y
    for n, step in enumerate(ring.steps):
        frame = {}
        for part in parts:
            part.show(n, step, frame)
        scene.frames.append(frame)
        scene.moved.append(clock[step.step + step.over])
    scene.tiles = [n for n, step in enumerate(ring.steps) if step.over]
    scene.summary = f"{len(ring.queries)} ranks, {len(scene.tiles)} steps, {ring.total:g} blocks' time"
    return scene


def _columns(scene, ring, cell):
    """The key chunks above the scores, and what stands beside them; where the first rank begins."""
    middle = LEFT + len(ring.owners) * cell / 2
    scene.text(middle, 11, "small mid off", "keys across, queries down")
    for chunk, owner in enumerate(ring.owners):
        if chunk % 2 == 0 or cell > 13:                    # narrower, two digits would touch
            scene.text(LEFT + (chunk + 0.5) * cell, LINE + 10, "small mid", str(chunk))
        scene.rect(LEFT + chunk * cell + 0.5, LINE + 14, cell - 1, 5, f"own{owner}")
    for x, said in zip(_slots(scene, ring, cell), ("holds", "gets"), strict=True):
        scene.text(x, LINE + 10, "small off", said)
    return 2 * LINE + 10


def _slots(scene, ring, cell):
    """Where the block that a rank holds is drawn, and the one that is on its way to it."""
    left = LEFT + len(ring.owners) * cell + GAP
    return left, left + (scene.width - left) / 2


class _Rank:
    """One rank: its rows of scores, two blocks of K and V, what is merged, and a bar of time."""

    def __init__(self, scene, ring, rank, y, cell, clock, total):
        self.ring, self.rank, self.clock = ring, rank, clock
        rows, width = ring.queries[rank], len(ring.owners) * cell
        high = max(LANE, len(rows) * cell)
        scene.rect(0, y, 5, high, f"own{rank}")
        scene.text(10, y + 11, "name", f"rank {rank}")
        self.pairs = self._scores(scene, rows, y, cell)
        slots = _slots(scene, ring, cell)
        self.blocks = [(scene.rect(x, y, BLOCK, 13, "none"), scene.text(x, y + 25, "small")) for x in slots]
        self.numbers = [scene.text(x, y + 40, "digits") for x in slots]
        self.sends = scene.text(slots[0], y + high + 14, "small strong")
        self.unit = width / (total or 1)
        self.rail = scene.rect(LEFT, y + high + 6, 0, 7, "rail")
        self.bars = [scene.rect(LEFT + start * self.unit, y + high + 6, work(step.turns[rank]) * self.unit, 7, "none")
                     for start, step in zip(clock, ring.steps[::2], strict=False)]
        self.time = scene.text(10, y + high + 13, "small")
        self.bottom = y + high + BELOW

    def _scores(self, scene, rows, y, cell):
        """{(query chunk, key chunk): (item, colour)} of what the rank computes."""
        found = {}
        kinds = {(q, k): half for step in self.ring.steps for q, k, half in step.turns[self.rank].pairs}
        for n, q in enumerate(rows):
            scene.text(LEFT - 5, y + (n + 0.5) * cell + 4, "small end", str(q))
            for k, owner in enumerate(self.ring.owners):
                place = LEFT + k * cell, y + n * cell, cell, cell
                scene.rect(*place, "cell")
                if (q, k) in kinds:
                    inside = place[0] + 0.5, place[1] + 0.5, cell - 1, cell - 1
                    found[q, k] = (scene.half if kinds[q, k] else scene.rect)(*inside, "none"), owner
                else:
                    scene.stroke(*place, "never")
        return found

    def show(self, n, step, frame):
        turn, before = step.turns[self.rank], [one.turns[self.rank] for one in self.ring.steps[:n - step.over:2]]
        now, past = ({(q, k) for one in those for q, k, _ in one.pairs} for those in ([turn], before))
        for pair, (item, owner) in self.pairs.items():
            frame[item, "look"] = f"own{owner}" if pair in now else f"own{owner} past" if pair in past else "none"
        for (rect, text), chunks, away in zip(self.blocks, (turn.holds, turn.arrives), (False, not step.over), strict=True):
            owner = self.ring.owners[chunks[0]] if chunks else None
            frame[rect, "look"] = "none" if owner is None else f"own{owner} past" if away else f"own{owner}"
            frame[text, "text"] = "" if owner is None else f"K, V of {owner}"
        for item, name, value in zip(self.numbers, "LO", turn.after if step.over else turn.before, strict=True):
            frame[item, "text"] = f"{name} {value}" if value else ""
        sends = turn.to is not None and not step.over
        frame[self.sends, "text"] = f"{'↘' if turn.to > self.rank else '↗'} rank {turn.to}" if sends else ""
        frame[self.rail, "w"] = round(self.clock[step.step + 1] * self.unit, 1)
        for k, bar in enumerate(self.bars):
            frame[bar, "look"] = "read" if k == step.step else "written" if k < step.step else "none"
        busy = sum(map(work, [*before, turn]))
        frame[self.time, "text"] = f"{busy:.3g} of {self.clock[step.step + 1]:.3g}"


class _Said:
    """What happens, in words; and the source, if it is shown."""

    def __init__(self, scene, ring, code):
        self.lines = {n: scene.code(line.number, line.text) for n, line in enumerate(ring.lines if code else [])}
        self.status = scene.status()
        self.ran = {n for step in ring.steps for n in step.lines}

    def show(self, n, step, frame):
        for k, item in self.lines.items():
            frame[item, "look"] = "line now" if k in step.lines else "line" if k in self.ran else "line idle"
        idle = [str(rank) for rank, turn in enumerate(step.turns) if not turn.pairs]
        sends, merges = any(turn.to is not None for turn in step.turns), any(turn.before != turn.after for turn in step.turns)
        if step.over:
            said = [*["merged into O and L"] * merges, *["the next block is here"] * sends] or ["over"]
        else:
            said = [*["blocks are sent on"] * sends, "meanwhile scores are computed" if sends else "scores are computed"]
        waits = f"nothing to compute on rank{'s' * (len(idle) > 1)} {', '.join(idle)}" if idle else ""
        frame[self.status, "text"] = "\n".join(filter(None, [f"step {step.step}: {'; '.join(said)}", step.note or waits]))
        frame[self.status, "look"] = "status bad" if step.note else "status"
