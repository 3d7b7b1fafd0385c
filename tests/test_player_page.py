"""The player in a real browser, without a window: what it shows after each key is what the recording says."""

import json
import re
import shutil
import subprocess

import pytest
import torch

from flashlab.memory import KiB
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab_course.gpu.warp_programs import in_step
from flashlab_course.gpu.warps import Ring, simulate
from flashlab_course.player import play, play_traffic, record
from flashlab_course.player.machine import play_warps
from flashlab_course.player.softmax import play_softmax

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
BROWSER = next(filter(None, map(shutil.which, (*NAMES, MAC))), None)
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
         "--virtual-time-budget=20000"]
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome here to run the player's script in")

# What a scenario has at hand, and how its answers come out: as JSON in the page, which the browser prints at the end.
HARNESS = """
const roots = [...document.querySelectorAll(".flashlab-player")];
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const key = (n, name, more = {}) => roots[n].querySelector(".stage").dispatchEvent(
  new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
const seen = (n = 0) => {
  const text = (selector) => roots[n].querySelector(selector).textContent;
  const lane = roots[n].querySelector(".lane"), lit = lane.querySelector(".cell.lit");
  return { at: Number(text("output").split(" ")[0]) - 1, line: Number(lane.querySelector(".source .now i").textContent),
           status: text(".said p"), bytes: [...lane.querySelectorAll(".picture .strong")].map((one) => one.textContent),
           lit: lit && [lit.getAttribute("x"), lit.getAttribute("y")] };
};
const answers = [];
const say = (answer) => answers.push(answer);
window.onerror = (message) => say({ error: message });
(async () => { %s })().catch((error) => say({ error: String(error) })).then(() => {
  const pre = document.createElement("pre");
  pre.id = "answers";
  pre.textContent = JSON.stringify(answers);
  document.body.append(pre);
});
"""


def in_browser(tmp_path, players, scenario):
    """The answers of a scenario on a page with these players, one below the other."""
    page = tmp_path / "page.html"
    bodies = "".join(player._repr_html_() for player in players)
    script = HARNESS.replace("%s", scenario)
    body = f"<body>{bodies}<script>{script}</script></body>"
    page.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{body}", encoding="utf-8")
    command = [BROWSER, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    found = re.search(r'<pre id="answers">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    answers = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert not [answer for answer in answers if isinstance(answer, dict) and "error" in answer], answers
    return answers


def inputs():
    return [torch.randn(12, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


@pytest.fixture(scope="module")
def fa2():
    return record(fa2_forward, *inputs(), B_r=4, B_c=4, sram_bytes=KiB)


def line(recording, step):
    return recording.lines[recording.steps[step].line].number


def test_every_step_shows_its_own_line(tmp_path, fa2):
    """Fails if a delta is lost on the way, forwards or backwards."""
    forwards, backwards = in_browser(tmp_path, [play(fa2)], """
      const last = Number(roots[0].querySelector("input").max), on = [], back = [];
      for (let n = 0; n <= last; n++) { on.push(seen()); key(0, "ArrowRight"); }
      for (let n = 0; n <= last; n++) { back.unshift(seen()); key(0, "ArrowLeft"); }
      say(on); say(back);
    """)
    assert [shown["line"] for shown in forwards] == [line(fa2, n) for n in range(len(fa2.steps))]
    assert forwards == backwards
    assert forwards[-1]["bytes"][:2] == [f"{fa2.read / 1024:.1f} KiB", f"{fa2.written} B"]
    assert forwards[30]["lit"] != forwards[-1]["lit"]


def test_keys_slider_buttons_and_space(tmp_path, fa2):
    answers = in_browser(tmp_path, [play(fa2)], """
      key(0, "End"); say(seen().at);
      key(0, "Home"); say(seen().at);
      key(0, "ArrowRight", { shiftKey: true }); say(seen().at);
      key(0, "ArrowRight", { shiftKey: true }); say(seen().at);
      key(0, "ArrowLeft", { shiftKey: true }); say(seen().at);
      const slider = roots[0].querySelector("input");
      slider.value = 40; slider.dispatchEvent(new Event("input")); say(seen());
      roots[0].querySelector("[data-do=on]").click(); say(seen().at);
      roots[0].querySelector("[data-do=back]").click(); say(seen().at);
      key(0, "Home"); key(0, "ArrowLeft"); say(seen().at);
      say(roots[0].querySelector("input").getAttribute("aria-valuetext"));
      const named = () => roots[0].querySelector(".play").getAttribute("aria-label");
      key(0, " "); say(named());
      await wait(1500); key(0, " ");
      const at = seen().at; say(at); await wait(1000); say(seen().at === at && named() === "Play");
      key(0, "End"); key(0, " "); say(seen().at); key(0, " ");
    """)
    ends = [step for step in play(fa2).scenes[0].tiles if step > 0]
    assert answers[:5] == [len(fa2.steps) - 1, 0, ends[0], ends[1], ends[0]]
    assert answers[5]["at"] == 40 and answers[5]["line"] == line(fa2, 40)
    assert answers[6:9] == [41, 40, 0] and answers[9].startswith("step 1 of")
    playing, at, still_there, again = answers[10:]
    assert (playing, still_there, again) == ("Pause", True, 0) and 3 <= at <= 5, "three lines a second"


def test_sentences_can_be_switched_off_and_the_last_word_comes_last(tmp_path):
    player = play(record(fa2_forward, *inputs(), B_r=4, B_c=4, say={"store(O": "O is done"}), end="faster")
    told, hidden = in_browser(tmp_path, [player], """
      const told = roots[0].querySelector(".told"), word = roots[0].querySelector(".verdict");
      const shown = () => [told.textContent, getComputedStyle(told).display, word.hidden];
      const seen = [shown()];
      for (let n = 0; n < 200 && told.textContent === ""; n++) key(0, "ArrowRight");
      seen.push(shown()); key(0, "End"); seen.push(shown()); say(seen);
      roots[0].querySelector("[type=checkbox]").click(); say(shown());
    """)
    assert told[0] == ["", "block", True] and told[1] == ["O is done", "block", True] and told[2][2] is False
    assert hidden[1] == "none"


def test_players_do_not_disturb_each_other_and_a_mark_lies_in_the_tile_that_was_stored(tmp_path, fa2):
    """Not even two of the same run, whose pages are equal."""
    side_by_side = play(record(fa1_forward, *inputs(), B_r=4, B_c=4, sram_bytes=KiB), fa2)
    answers = in_browser(tmp_path, [play(fa2), side_by_side, play(fa2), play(fa2, at=("O", (9, 1)))], """
      key(0, "End"); key(1, "ArrowRight", { shiftKey: true });
      say([0, 1, 2].map((n) => seen(n).at)); say(roots.map((root) => root.querySelectorAll("img").length));
      key(1, "End"); say(roots[1].querySelectorAll(".cell.seen").length); say([0, 2].map((n) => seen(n).at));
      say(seen(3));
      const box = (look) => roots[3].querySelector(look);
      say([".mark", ".span.store"].map((look) => ["x", "y", "width", "height"].map(
        (name) => Number(box(look).getAttribute(name)))));
    """)
    assert answers[0][0] == len(fa2.steps) - 1 and answers[0][1] > 0 and answers[0][2] == 0
    assert answers[1] == [0, 0, 0, 0], "the stills are gone where the script runs"
    assert answers[2] == 8 + 8 and answers[3] == [len(fa2.steps) - 1, 0]
    shown, (mark, stored), step = answers[4], answers[5], fa2.storing("O", (9, 1))
    assert (shown["at"], shown["line"]) == (step, line(fa2, step)) and "stores O[8:12]" in shown["status"]
    assert all(stored[n] < mark[n] + mark[n + 2] / 2 < stored[n] + stored[n + 2] for n in (0, 1))


def test_a_button_jumps_to_each_stop_and_says_what_to_see_there(tmp_path):
    K, V = Ring("K", slots=2), Ring("V", slots=2)
    player = play_warps(simulate({"all warps": in_step(K, V, 4)}))
    found = in_browser(tmp_path, [player], """
      for (const button of roots[0].querySelectorAll("[data-to]")) {
        button.click();
        const marked = roots[0].querySelectorAll("[aria-current=true]");
        say([seen().at, button.textContent, seen().status, marked.length === 1 && marked[0] === button]);
      }
    """)
    assert [(at, name) for at, name, *_ in found] == player.stops and len(found) == 3
    assert all(marked for *_, marked in found) and "the tensor cores were idle" in found[1][2]


def test_the_narration_can_be_switched_off(tmp_path, fa2):
    """By mouse and by Space, which then does not play. Players without narration have no such switch."""
    found = in_browser(tmp_path, [play_traffic((fa2, {"K": (576, 0)})), play(fa2)], """
      const box = roots[0].querySelector("[type=checkbox]"), told = roots[0].querySelector(".told");
      const shown = () => getComputedStyle(told).display !== "none";
      say(told.textContent); say(shown());
      box.click(); say(shown());
      box.dispatchEvent(new KeyboardEvent("keydown", { key: " ", bubbles: true }));
      say(roots[0].querySelector(".play").getAttribute("aria-label"));
      say(roots[1].querySelectorAll("[type=checkbox]").length);
    """)
    assert found == ["Q[0:4] is loaded: once.", True, False, "Play", 0]


# What each text is written in, and on what, in the player's own light colours and in its dark ones.
COLOURS = """
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour.startsWith("rgba(") ? ground(element.parentElement) : colour;
  };
  const stage = roots[0].querySelector(".stage");
  key(0, "ArrowRight");
  for (const [ink, paper, code] of [["#222222", "#ffffff", "#f5f6f8"], ["#e6e6e6", "#161616", "#222222"]]) {
    stage.style = `--own-ink: ${ink}; --own-paper: ${paper}; --own-code: ${code}`;
    say([...stage.querySelectorAll("h4, p, .source *, .keys span, output, button, select, text")].map((one) => [
      one.outerHTML.slice(0, 60), getComputedStyle(one)[one.tagName === "text" ? "fill" : "color"], ground(one)]));
  }
"""


def light(colour):
    """The luminance of rgb(0-255, ...) or color(srgb 0-1 ...)."""
    parts = [float(part) / (255 if colour.startswith("rgb") else 1) for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_can_be_read_in_light_and_dark(tmp_path, fa2):
    """WCAG AA: text stands out from its ground by 4.5 to 1."""
    for texts in in_browser(tmp_path, [play(fa2)], COLOURS):
        assert len({ink for _, ink, _ in texts}) > 4
        for text, ink, ground in texts:
            low, high = sorted((light(ink), light(ground)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ink, ground)


def test_the_narration_can_be_switched_off_and_bars_change_in_place_and_size(tmp_path):
    """Online softmax: the column of a new score grows, and the line at m rises."""
    shown, hidden, bars = in_browser(tmp_path, [play_softmax([0.5, 2.0], [1.0, 2.0])], """
        const explain = roots[0].querySelector("[type=checkbox]"), p = roots[0].querySelector(".said p");
        say([explain.checked, getComputedStyle(p).visibility]);
        explain.click();
        say([explain.checked, getComputedStyle(p).visibility]);
        const size = () => [...roots[0].querySelectorAll(".picture rect.glide")].slice(0, 3).map(
          (bar) => ["y", "height"].map((what) => Number(bar.getAttribute(what))));
        const before = size();
        key(0, "End");
        say([before, size()]);""")
    assert (shown, hidden) == ([True, "visible"], [False, "hidden"])
    (first, second, line), (tall, taller, high) = bars
    assert first[1] == second[1] == 0 < tall[1] < taller[1] and tall[0] + tall[1] == taller[0] + taller[1] == 104
    assert line[0] == 104 and high[0] == taller[0]
