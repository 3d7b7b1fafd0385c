"""Spoilt solutions: whatever a random edit makes of one, the checker has a verdict, and names a mistake or says it
cannot."""

import random
import re

import pytest

from flashlab.triton_mode import import_triton
from flashlab_course.check import Report, checker, form, limits, line, source

pytestmark = pytest.mark.filterwarnings("ignore")        # spoilt code gives SyntaxWarnings

TOKEN = re.compile(r"\w+|\*\*|//|[^\w\s]")
SECONDS = 1.0                  # per case: a loop that never ends is common here
EXERCISES = [name for name in form.names() if import_triton() or not form.exercise(name).triton]
RESULTS = ("None", "3", "()", "'text'", "[x]", "x, x", "lambda: x", "(y for y in [x])", "x[0]", "x.double()", "x.T",
           "x.to('meta')", "x.long()", "x.bool()", "x.reshape(-1)", "x + 1j", "x.to_sparse()", "float('nan')", "{x}",
           "x[:0]",
           "x * float('inf')", "object()", "x.numpy()", "x is x", "[x] * 200", "print")


def another_token(rng, lines):
    """A name, number or operator in the place of another."""
    at = rng.randrange(len(lines))
    tokens = TOKEN.findall("\n".join(lines))
    if here := list(TOKEN.finditer(lines[at])):
        start, stop = rng.choice(here).span()
        lines[at] = lines[at][:start] + rng.choice([*tokens, "0", "1e30", "None"]) + lines[at][stop:]


def line_dropped(rng, lines):
    lines.pop(rng.randrange(len(lines)))


def lines_exchanged(rng, lines):
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]


def another_result(rng, lines):
    for n, text in enumerate(lines):
        before, found, value = text.partition("return ")
        if found and not before.strip():
            lines[n] = f"{before}x = {value}\n{before}return {rng.choice(RESULTS)}"


EDITS = (another_token, another_token, line_dropped, lines_exchanged, another_result)


def spoilt(exercise, k):
    """The k-th version with one to three random edits in its first region, as text; None where they leave no Python."""
    rng = random.Random(f"{exercise.name} {k}")
    code = exercise.parsed.regions[0]["code"]
    lines = code.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        if lines:
            rng.choice(EDITS)(rng, lines)
    text = exercise.parsed.text.replace(code, "\n".join(lines))
    try:
        compile(text, exercise.name, "exec")
    except (SyntaxError, ValueError):
        return None
    return text


@pytest.mark.parametrize("name", EXERCISES)
def test_every_spoilt_solution_gets_its_verdict(name, monkeypatch):
    exercise = form.exercise(name)
    monkeypatch.setattr(exercise, "seconds", SECONDS)
    monkeypatch.setattr(line, "SECONDS", 0.2)
    texts = [text for k in range(20) if (text := spoilt(exercise, k))]
    for text in texts[: 1 if exercise.triton else 4]:
        namespace, error = limits.protected(lambda text=text: source.load_text(text, f"spoilt {name}"), 5)
        if error is None and exercise.function in namespace:
            report = checker.examine(exercise, namespace[exercise.function])
            assert isinstance(report, Report) and "could not be compared" not in str(report), text
            assert report._repr_html_()


def test_edits_are_of_many_kinds_and_the_same_ones_each_time():
    exercise = form.exercise("ex06_fa2_inner_loop")
    versions = [[spoilt(exercise, k) for k in range(20)] for _ in range(2)]
    assert versions[0] == versions[1] and len(set(versions[0])) > 8
