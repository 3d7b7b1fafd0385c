"""The player of online softmax: m, l and o as bars, in a unit that grows with m.

    play_softmax(scores=[0.5, 2, -1, 3], values=[10, 20, 30, 40])
"""

import inspect
from math import exp, inf
from typing import NamedTuple

from flashlab.ladder import find
from flashlab_course.player.lines import Tracer, code_of
from flashlab_course.player.page import Player
from flashlab_course.player.scene import LINE, Scene

WIDTH, LEFT, ROOM, COLUMN, HIGH, BAR = 442, 80, 290, 36, 104, 22       # pixels
MOST = 8                               # scores that fit
KEYS = """<span>Space plays; ← → step, with Shift by score; Home, End</span>
<span><b class="moving"></b>the newest score's part</span><span><b class="kept"></b>the parts of earlier scores</span>
<span>Only m, l and o are kept. The parts show what each bar is made of.</span>"""
INIT, ARRIVE, GROW, RATE, CONVERT, WEIGH, ADD, KEEP, DIVIDE = range(1, 10)     # the lines of softmax_average
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


class Moment(NamedTuple):
    """After a line of softmax_average."""

    line: int
    now: dict              # its variables
    count: int             # scores that have arrived
    grows: bool            # is the last of them above all others?
    unit: float            # l and o count in e^unit
    parts: list            # the weight of each score in this unit, up to the last that is drawn

    @property
    def mean(self):
        return self.now["o"] / self.now["l"] if self.now["l"] else 0


def play_softmax(scores, values):
    """A Player of softmax_average, line by line. Raises: ValueError for scores or values that cannot be drawn"""
    if not 2 <= len(scores) == len(values) <= MOST or max(map(abs, scores)) > 300 or min(values) <= 0:
        raise ValueError(f"play_softmax takes 2 to {MOST} scores, at most 300, and as many values above 0")
    moments = watch(scores, values)
    scene = Scene("online softmax, score by score", find("online_softmax_forward").color, WIDTH)
    draw_scores(scene, moments, scores, values)
    draw_sums(scene, moments, values, HIGH + LINE + 20)
    scene.listing(inspect.getsource(softmax_average).splitlines(), [{one.line + 1} for one in moments],
                  [sentence(one) for one in moments])
    scene.moved = list(range(len(moments)))
    scene.tiles = [n for n, moment in enumerate(moments) if moment.line in (ADD, DIVIDE)]
    stops = {"the first score": scene.tiles[0]}
    for n, moment in enumerate(moments):
        if moment.line == CONVERT and moment.count > 1:
            stops.setdefault(f"the unit {'grows' if moment.grows else 'stays'}", n)
    return Player([scene], keys=KEYS, units=("line", "score"),
                  stops=[(n, name) for name, n in stops.items()], told=True)


def watch(scores, values):
    """The Moments of softmax_average(scores, values)."""
    moments, code = [], code_of(softmax_average)

    def ran(frame, file, statement, how):
        line, now = statement.start - code.co_firstlineno, dict(frame.f_locals)
        if line == KEEP:                       # shown with the line before
            return
        count = min(len(scores), sum(one.line == ARRIVE for one in moments) + (line == ARRIVE))
        unit = now["m_new"] if line in (CONVERT, WEIGH, ADD) else now["m"]
        drawn = scores[:count - (line in (ARRIVE, GROW, RATE, CONVERT))]
        grows = count > 1 and scores[count - 1] > max(scores[:count - 1])
        moments.append(Moment(line, now, count, grows, unit, [exp(s - unit) for s in drawn]))

    with Tracer(lambda one: one is code, ran).on():
        softmax_average(scores, values)
    return [*moments[:-2], moments[-1]]        # without the line at which the loop asks for one more score


def draw_scores(scene, moments, scores, values):
    """A column for each score that has arrived; a line at m."""
    low = min(scores) - 0.5
    scale = (HIGH - 16) / (max(scores) - low)
    scene.text(0, HIGH, "small", "scores s")
    scene.text(0, HIGH + LINE + 2, "small", "values v")
    for k, (s, v) in enumerate(zip(scores, values, strict=True)):
        x, come = LEFT + COLUMN * k, [moment.count > k for moment in moments]
        looks = [f"block{' new' * (one.count == k + 1 and one.line < DIVIDE)} glide" for one in moments]
        tall = [round((s - low) * scale, 1) * here for here in come]
        scene.rect(x, [HIGH - h for h in tall], COLUMN - 8, tall, looks)
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
            looks = [NEWEST.get(one.line * (len(one.parts) == k + 1), "block glide") for one in moments]
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
    now = {name: plain(x) for name, x in moment.now.items() if not isinstance(x, list)}
    s, m, alpha, p, v = (now.get(name) for name in ("s", "m", "alpha", "p", "v"))
    mean = plain(moment.mean)
    grows = {
        GROW: f"{s} is the new maximum: m grows from {m} to {s}, but both sums still count in units of e^{m}.",
        RATE: f"An old unit, e^{m}, is worth α = e^({m} − {s}) = {alpha} of the new unit, e^{s}.",
        CONVERT: f"Rescale: l and o shrink to {alpha} of their length, and o / l stays {mean}.",
        WEIGH: "The largest score so far weighs p = e^0 = 1, exactly one new unit."}
    begins = {
        GROW: f"The first score is the largest so far: m = {s}.",
        RATE: "α = e^(−∞) = 0, because there is no old unit.",
        CONVERT: "Both sums are still 0, so there is nothing to convert.",
        ADD: f"l grows by 1 and o by 1·{v}, so the average o / l is the first value."}
    stays = {
        INIT: "No score has arrived: m is −∞, and both sums are 0.",
        ARRIVE: f"Score {moment.count} arrives: s = {s}, with the value v = {v}.",
        GROW: f"{s} is not above m = {m}, so the unit stays.",
        RATE: "α = e^0 = 1, because the old unit is the new unit.",
        CONVERT: "Both sums are multiplied by 1, which changes nothing.",
        WEIGH: f"The new score weighs p = e^({s} − {now.get('m_new')}) = {p} of a unit.",
        ADD: f"l grows by p and o by p·v: now o / l = {mean}, "
             f"the softmax average of the {moment.count} scores so far.",
        DIVIDE: f"One division at the end gives {mean}, as if the whole row had been there at once."}
    return (stays | (grows if moment.grows else {}) | (begins if moment.count == 1 else {}))[moment.line]


def plain(x):
    """A number in three digits."""
    return f"{x:.3g}".replace("-", "−").replace("inf", "∞")
