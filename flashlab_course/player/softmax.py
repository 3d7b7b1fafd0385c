"""The player of online softmax: m, l and o as bars, in a unit that grows with m.

    play_softmax(scores=[0.5, 2, -1, 3], values=[10, 20, 30, 40], tile=2)      # without tile: score by score
"""

import inspect
from typing import NamedTuple

import numpy as np
from numpy import exp, inf

from flashlab.ladder import find
from flashlab_course.player.lines import Tracer, code_of
from flashlab_course.player.page import Player
from flashlab_course.player.scene import LINE, Scene

WIDTH, LEFT, ROOM, COLUMN, HIGH, BAR = 442, 80, 290, 36, 104, 22       # pixels
MOST = 8                               # scores that fit
KEYS = """<span>Space plays; ← → step, with Shift by score; Home, End</span>
<span><b class="moving"></b>the newest score's part</span><span><b class="kept"></b>the parts of earlier scores</span>
<span>Only m, l and o are kept. The parts show what each bar is made of.</span>"""
INIT, ARRIVE, GROW, RATE, CONVERT, WEIGH, ADD, KEEP, DIVIDE = range(1, 10)     # the lines of both programs
NEWEST = {WEIGH: "block off glide", ADD: "block new glide"}


def softmax_average(scores, values):
    m, l, o = -inf, 0.0, 0.0
    for s, v in zip(scores, values, strict=True):
        m_new = max(m, s)
        alpha = exp(m - m_new)
        l, o = alpha * l, alpha * o
        p = exp(s - m_new)
        l, o = l + p, o + p * v
        m = m_new
    return o / l


def softmax_by_tiles(scores, values):
    m, l, o = -inf, 0.0, 0.0
    for s_j, v_j in zip(scores, values, strict=True):
        m_new = max(m, s_j.max())
        alpha = exp(m - m_new)
        l, o = alpha * l, alpha * o
        p_j = exp(s_j - m_new)
        l, o = l + p_j.sum(), o + p_j @ v_j
        m = m_new
    return o / l


class Moment(NamedTuple):
    """After a line of either program."""

    line: int
    now: dict              # its variables
    count: int             # scores that have arrived
    newest: range          # those of them that came last
    grows: bool            # is one of these above all others?
    unit: float            # l and o count in e^unit
    parts: list            # the weight of each score in this unit, up to the last that is drawn

    @property
    def mean(self):
        return self.now["o"] / self.now["l"] if self.now["l"] else 0


def play_softmax(scores, values, tile=1):
    """A Player of one query's online softmax, by tiles of so many scores. Raises: ValueError for what it cannot draw"""
    scores, values = np.asarray(scores, float), np.asarray(values, float)
    if (not 2 <= len(scores) == len(values) <= MOST or len(scores) % tile or max(abs(scores)) > 300
            or not min(values) >= 0 < max(values)):
        raise ValueError(f"play_softmax takes 2 to {MOST} scores up to 300, as many values from 0 on, and whole tiles")
    run, jump = (softmax_average, "score") if tile == 1 else (softmax_by_tiles, "tile")
    moments = watch(scores, values, tile, run)
    scene = Scene(f"online softmax, {jump} by {jump}", find("online_softmax_forward").color, WIDTH)
    draw_scores(scene, moments, scores, values, tile)
    draw_sums(scene, moments, values, HIGH + LINE + 20)
    scene.listing(inspect.getsource(run).splitlines(), [{one.line + 1} for one in moments],
                  [sentence(one) for one in moments])
    scene.moved = list(range(len(moments)))
    scene.tiles = [n for n, moment in enumerate(moments) if moment.line in (ADD, DIVIDE)]
    stops = {f"the first {jump}": scene.tiles[0]}
    for n, moment in enumerate(moments):
        if moment.line == CONVERT and moment.count > tile:
            stops.setdefault(f"the unit {'grows' if moment.grows else 'stays'}", n)
    return Player([scene], keys=KEYS.replace("score", jump), units=("line", jump),
                  stops=[(n, name) for name, n in stops.items()], told=True)


def watch(scores, values, tile=1, run=softmax_average):
    """The Moments of run(scores, values), which takes so many scores at a time."""
    moments, code = [], code_of(run)

    def ran(frame, file, statement, how):
        line = statement.start - code.co_firstlineno
        now = {name: np.asarray(x).tolist() for name, x in frame.f_locals.items()}
        if line == KEEP:                       # shown with the line before
            return
        count = min(len(scores), tile * (sum(one.line == ARRIVE for one in moments) + (line == ARRIVE)))
        unit = now["m_new"] if line in (CONVERT, WEIGH, ADD) else now["m"]
        old = count - tile
        drawn = scores[:old if line in (ARRIVE, GROW, RATE, CONVERT) else count]
        grows = old > 0 and max(scores[old:count]) > max(scores[:old])
        moments.append(Moment(line, now, count, range(old, count), grows, unit, [exp(s - unit) for s in drawn]))

    with Tracer(lambda one: one is code, ran).on():
        run(*((scores, values) if tile == 1 else (np.reshape(x, (-1, tile)) for x in (scores, values))))
    return [*moments[:-2], moments[-1]]        # without the line at which the loop asks for more


def draw_scores(scene, moments, scores, values, tile):
    """A column for each score that has arrived, those of a tile together; a line at m."""
    low = min(scores) - 0.5
    scale = (HIGH - 16) / (max(scores) - low)
    scene.text(0, HIGH, "small", "scores s")
    scene.text(0, HIGH + LINE + 2, "small", "values v")
    for k, (s, v) in enumerate(zip(scores, values, strict=True)):
        x, come = LEFT + COLUMN * k, [moment.count > k for moment in moments]
        looks = [f"block{' new' * (k in one.newest and one.line < DIVIDE)} glide" for one in moments]
        tall = [round((s - low) * scale, 1) * here for here in come]
        scene.rect(x, [HIGH - h for h in tall], COLUMN - (1 if (k + 1) % tile else 8), tall, looks)
        scene.text(x + 14, HIGH - round((s - low) * scale) - 4, "small mid strong", [plain(s) * here for here in come])
        scene.text(x + 14, HIGH + LINE + 2, "small mid", [plain(v) * here for here in come])
    m = [one.now["m"] if one.line in (INIT, ARRIVE) else one.now["m_new"] for one in moments]
    tops = [round(HIGH - max(0, (level - low) * scale), 1) for level in m]
    scene.rect(LEFT - 6, tops, ROOM + 12, 2, "read glide")
    scene.text(WIDTH, [top + 5 for top in tops], "small end strong", [f"m = {plain(level)}" for level in m])


def draw_sums(scene, moments, values, y):
    """The unit; l and o, with a part for each score that is dashed until it is added; and o / l."""
    unit = ROOM / max(sum(one.parts) for one in moments)
    scene.text(0, y + 10, "small", "1 unit, e^m")
    scene.rect(LEFT, y + 4, round(unit), 6, "read")
    scene.text(LEFT + unit + 8, y + 10, "small",
               [f"e^{plain(one.unit)} = {plain(exp(one.unit))}" * (one.unit > -inf) for one in moments])
    for name, factors in (("l", [1] * len(values)), ("o", values)):
        y += BAR + 6
        products = [[p * factor for p, factor in zip(one.parts, factors, strict=False)] for one in moments]
        scale = ROOM / max(map(sum, products))
        scene.rect(LEFT, y, ROOM, BAR, "rail")
        for k in range(len(values)):
            looks = [NEWEST.get(one.line * (k in one.newest), "block glide") for one in moments]
            starts = [round(LEFT + scale * sum(one[:k]), 1) for one in products]
            scene.rect(starts, y, [round(scale * sum(one[k:k + 1]), 1) for one in products], BAR, looks)
        scene.text(0, y + 15, "small", f"{name}, in units")
        scene.text(WIDTH, y + 15, "small end strong", [f"{name} = {plain(one.now[name])}" for one in moments])
    y += BAR + 10
    scene.text(0, y + 10, "small", "o / l")
    scene.rect(LEFT, y + 2, ROOM, 9, "rail")
    scene.rect(LEFT, y + 2, [round(ROOM * one.mean / max(values), 1) for one in moments], 9, "written glide")
    scene.text(WIDTH, y + 10, "small end strong", [plain(one.mean) * (one.now["l"] > 0) for one in moments])
    scene.height = y + LINE


def sentence(moment):
    """What this line did."""
    now = {name.removesuffix("_j"): plain(x) for name, x in moment.now.items()}
    s, m, new, alpha, p, v = (now.get(name) for name in ("s", "m", "m_new", "alpha", "p", "v"))
    mean, size = plain(moment.mean), len(moment.newest)
    which, added = ("A tile", "p_j.sum(), o by p_j @ v_j") if size > 1 else (f"Score {moment.count}", "p, o by p·v")
    grows = {
        GROW: f"{new} is the new maximum: m grows from {m} to {new}, but both sums still count in units of e^{m}.",
        RATE: f"An old unit, e^{m}, is worth α = e^({m} − {new}) = {alpha} of the new unit, e^{new}.",
        CONVERT: f"Rescale: l and o shrink to {alpha} of their length, and o / l stays {mean}.",
        WEIGH: "The largest score so far weighs p = e^0 = 1, exactly one new unit."}
    begins = {
        GROW: f"The largest score so far is m = {new}.",
        RATE: "α = e^(−∞) = 0, because there is no old unit.",
        CONVERT: "Both sums are still 0, so there is nothing to convert."}
    stays = {
        INIT: "No score has arrived: m is −∞, and both sums are 0.",
        ARRIVE: f"{which} arrives: s = {s}, with v = {v}.",
        GROW: f"No new score is above m = {m}, so the unit stays.",
        RATE: "α = e^0 = 1, because the old unit is the new unit.",
        CONVERT: "Both sums are multiplied by 1, which changes nothing.",
        WEIGH: f"Each new score weighs e^(s − {new}) units: p = {p}.",
        ADD: f"l grows by {added}: now o / l = {mean}, the softmax average of the scores so far.",
        DIVIDE: f"One division at the end gives {mean}, as if the whole row had been there at once."}
    return (stays | (grows if moment.grows else {}) | (begins if moment.count == size else {}))[moment.line]


def plain(x):
    """A number in three digits, or several."""
    return " and ".join(f"{one:.3g}" for one in np.ravel(x)).replace("-", "−").replace("inf", "∞")
