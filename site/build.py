"""The course as static pages, from the built notebooks: nothing is executed in them, nothing is fetched.

    python site/build.py              all of it, into build/site/html
    python site/build.py 03 06        only these chapters, with their exercises
"""

import argparse
import html
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from string import Template

import nbformat

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

import front  # noqa: E402    beside this file; it imports flashlab, which is above it
import pages  # noqa: E402

from flashlab_course.chapters import CHAPTERS  # noqa: E402
from flashlab_course.check import form, stubs  # noqa: E402

FENCE = "`" * 8
SHOWN = "ex06_fa2_inner_loop"             # the exercise whose report stands on the front page


def link(source, chosen, target):
    """Where a link of a notebook leads on the site. None: to a chapter that is not built."""
    path = target.partition("#")[0]
    if ":" in path or not path:
        return target
    if path.endswith(".ipynb"):
        return target if path.removesuffix(".ipynb") in chosen else None
    inside = path.removeprefix("../")
    if inside.startswith("exercises/ex"):
        return f"../{inside.removesuffix('.py')}.md"
    source_page(source, inside)
    return f"../source/{inside}.md"


def chapter_page(source, chosen, chapter):
    """Write a chapter, and the source files that it links to."""
    notebook = nbformat.read(ROOT / chapter.path, as_version=4)
    page = pages.Page(source / "extra" / "figures", partial(link, source, chosen)).add(notebook)
    nbformat.write(page, source / "chapters" / Path(chapter.path).name)


def source_page(source, path):
    page = source / "source" / f"{path}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"---\norphan: true\n---\n# {path}\n\n{FENCE}python\n"
                    f"{(ROOT / path).read_text(encoding='utf-8')}\n{FENCE}\n", encoding="utf-8")


def exercise_page(source, chapters, name):
    """Write an exercise: its stub, and a report on a wrong answer, made now."""
    exercise = form.exercise(name)
    known = "".join(f"<li>{html.escape(mistake.what)}</li>" for mistake in exercise.mistakes)
    known = (f"<details class='known'><summary>All {len(exercise.mistakes)} mistakes that it knows here. They give "
             f"away much of the answer.</summary><ul>{known}</ul></details>")
    fill(HERE / "exercise.md", source / "exercises" / f"{name}.md", exercise.head._asdict() | {
        "name": name, "notebook": Path(chapters[exercise.head.chapter].path).name, "stub": stubs.stub(name),
        "report": raw(front.report(name)), "known": raw(known)})


def fill(template, path, known):
    """Write a template with its $names replaced."""
    path.write_text(Template(template.read_text(encoding="utf-8")).substitute(known), encoding="utf-8")


def raw(text):
    return f"{FENCE}{{raw}} html\n{text}\n{FENCE}"


def front_pages(source, chapters, names):
    """index.md, play.md and the list of exercises."""
    player, sentence = front.race()
    recordings = list(front.playground())
    mistakes = sum(len(form.exercise(name).mistakes) for name in form.names())
    row = lambda one: f"- [](chapters/{Path(one.path).name}): {one.builds}"
    core, further = ("\n".join(row(one) for one in chapters.values() if (one.core_minutes > 0) == is_core)
                     for is_core in (True, False))
    words = "the inner loop of FlashAttention-2"
    known = {
        "race": raw(player), "race_sentence": sentence, "core": core, "further": further,
        "card": raw(front.report(SHOWN, "no_rescale_O")), "speeds": raw(front.speeds()), "slower": front.slower(),
        "inner_loop": f"[{words}](exercises/{SHOWN}.md)" if SHOWN in names else words,
        "first": Path(next(iter(chapters.values())).path).name,
        "exercise_count": len(form.names()), "mistake_count": mistakes,
        "toctree": "\n".join(f"chapters/{Path(one.path).stem}" for one in chapters.values()),
        "players": raw("".join(f'<div class="recording" {attributes(choices)}>{player}</div>'
                               for choices, player in recordings)),
        "exercise_list": "\n".join(f"| {form.exercise(name).head.chapter} | [{name}]({name}.md) | "
                                   f"{form.exercise(name).head.title} | {form.exercise(name).head.minutes} |"
                                   for name in names),
        "exercise_tree": "\n".join(names)}
    for template in sorted((HERE / "pages").rglob("*.md")):
        fill(template, source / template.relative_to(HERE / "pages"), known)


def attributes(choices):
    return " ".join(f'data-{name}="{html.escape(value)}"' for name, value in choices.items())


def write(source, numbers):
    """Every page as Sphinx reads it. Two processes: as many as the smallest machine has cores."""
    chapters = {one.number: one for one in CHAPTERS if not numbers or one.number in numbers}
    chosen = {Path(one.path).stem for one in chapters.values()}
    names = [name for name in form.names() if form.exercise(name).head.chapter in chapters]
    for folder in ("chapters", "exercises", "extra/figures"):
        (source / folder).mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(front_pages, source, chapters, names)]
        jobs += [pool.submit(chapter_page, source, chosen, one) for one in chapters.values()]
        jobs += [pool.submit(exercise_page, source, chapters, name) for name in names]
        for job in jobs:
            job.result()


def build(out, numbers=()):
    """Build the site in `out`. Returns Sphinx's exit code: a broken link or reference is an error."""
    from sphinx.cmd.build import build_main

    shutil.rmtree(out, ignore_errors=True)
    write(out / "source", numbers)
    return build_main(["-q", "-j", "2", "-W", "--keep-going", "-c", str(HERE), "-d", str(out / "doctrees"),
                       str(out / "source"), str(out / "html")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NN", choices=[[], *(one.number for one in CHAPTERS)])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    args = parser.parse_args()
    start = time.perf_counter()
    failed = build(args.out.resolve(), args.numbers)
    print(f"{args.out / 'html' / 'index.html'}: {time.perf_counter() - start:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
