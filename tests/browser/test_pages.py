"""Every page of build/site/html in a real browser: python -m pytest tests/browser, after make site."""

import os
import shutil

import pytest

from tests.house import ROOT

HTML = ROOT / "build" / "site" / "html"
KNOWN = filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome")))
BROWSER = os.environ.get("FLASHLAB_BROWSER") or next(KNOWN, None)
PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html") if "_static" not in path.parts)
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

pytestmark = [
    pytest.mark.skipif(sync_playwright is None, reason="Playwright comes with `make browser-test`"),
    pytest.mark.skipif(BROWSER is None, reason="no chromium, google-chrome or chrome here; FLASHLAB_BROWSER names one"),
    pytest.mark.skipif(not PAGES, reason="no pages: make site"),
]


@pytest.fixture(scope="module", params=[1280, 390])
def window(request):
    """open(path) -> a page of that width, and the list that its errors and requests to elsewhere go to."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"] * (os.geteuid() == 0))
        context = browser.new_context(viewport={"width": request.param, "height": 900}, reduced_motion="reduce")
        page, wrong = context.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))

        def open_page(path):
            wrong.clear()
            page.goto("about:blank")                       # else a new fragment alone loads nothing
            page.goto(f"{HTML.as_uri()}/{path}")
            page.wait_for_function("!window.MathJax?.startup?.promise || "
                                   "window.MathJax.startup.promise.then(() => true)")
            return page, wrong

        yield open_page
        browser.close()


def wider_than_the_window(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") > 0


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_itself_and_everything_that_it_hides(window, path):
    page, wrong = window(path)
    assert not wider_than_the_window(page)
    if (button := page.locator(".show-all")).count():
        button.click()
        assert page.locator(".gate:not(.open)").count() == 0
    assert not wider_than_the_window(page)
    assert page.locator("mjx-merror").count() == 0
    assert page.locator("mjx-container").count() > 0 or page.locator(".math").count() == 0
    pictures = page.locator("img.figure")
    assert pictures.evaluate_all("all => all.every(one => one.alt)")
    pictures.evaluate_all("all => Promise.all(all.map(one => (one.loading = 'eager', one.decode())))")
    assert wrong == []


@pytest.mark.parametrize("path", [path for path in PAGES if "flashlab-player" in (HTML / path).read_text()])
def test_every_player_moves(window, path):
    page, wrong = window(path)
    moved = page.locator(".flashlab-player").evaluate_all("""all => all.map(player => {
        player.querySelector(".first").click();
        const said = player.querySelector("output"), before = said.textContent;
        player.querySelector(".last").click();
        return said.textContent !== before && player.querySelectorAll(".lane svg").length > 0; })""")
    assert moved and all(moved) and wrong == []


CHAPTER = next((path for path in PAGES if path.startswith("chapters/06")), None)


@pytest.mark.skipif(CHAPTER is None, reason="chapter 06 is not built")
def test_an_answer_opens_when_it_is_predicted_and_the_page_remembers(window):
    page, _ = window(CHAPTER)
    gate, field = page.locator(".gate").first, page.locator(".predict input").first
    assert gate.is_visible()
    field.fill("0.5")
    field.press("Tab")
    assert not gate.is_visible()
    page.reload()
    assert field.input_value() == "0.5" and not gate.is_visible()
    page.evaluate("localStorage.clear()")


@pytest.mark.skipif(CHAPTER is None, reason="chapter 06 is not built")
def test_a_link_leads_to_a_step_of_a_player_also_behind_a_gate(window):
    page, _ = window(f"{CHAPTER}#player-1-17")
    player = page.locator(".flashlab-player").first
    assert player.is_visible() and player.locator("output").text_content().startswith("17 of ")
    page.locator(".player-link").first.hover()
    assert page.locator(".player-link").first.get_attribute("href") == "#player-1-17"


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_player_follows_the_page(window, theme):
    page, _ = window("index.html")
    page.emulate_media(color_scheme="light" if theme == "dark" else "dark")     # the system says the opposite
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    ground = "one => getComputedStyle(one).backgroundColor"
    assert page.locator(".stage").first.evaluate(ground) == page.locator("body").evaluate(ground)


def test_every_recording_can_be_chosen(window):
    page, _ = window("play.html")
    seen = set()
    for select in page.locator(".choices select").all():
        for option in select.locator("option").all_text_contents():
            select.select_option(option)
            assert select.input_value() == option and page.locator(".recording:visible").count() == 1
            seen.add(page.locator(".recording.chosen").evaluate("one => JSON.stringify(one.dataset)"))
    assert len(seen) > 4


def test_the_search_finds_a_chapter(window):
    page, wrong = window("search.html?q=logsumexp")
    page.wait_for_selector("#search-results li a")
    assert wrong == []
