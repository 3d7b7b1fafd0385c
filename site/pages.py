"""A built notebook as a page: predictions become fields that open the answer, figures become files."""

import ast
import base64
import hashlib
import html
import io
import re
from pathlib import Path

import nbformat
from PIL import Image

from flashlab_course.lesson.truths import TRUTHS

LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s]+)\)")
EXERCISE = re.compile(r'\bcheck\("(ex\w+)"')
COMPARED = re.compile(r'\bcompare\("([^"]+)"')
GATE = ('<div class="gate"><span>The answer comes when you have made your prediction.</span> '
        '<button type="button">Show it anyway</button></div>')


class Page:
    """The cells of a chapter's page, made from those of its notebook.

    figures   the folder that pictures are written to
    link      (target of a link in the notebook) -> target on the site, or None if there is no such page
    """

    def __init__(self, figures, link):
        self.figures, self.link, self.cells = figures, link, []
        self.asked = self.answering = False       # a prediction waits for its answer; the answer is being given

    def add(self, notebook):
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                self.text(LINK.sub(self._target, cell.source))
            elif fields := list(predictions(cell.source)):
                self.predict(cell.source, fields)
            else:
                self.code(cell)
        return nbformat.v4.new_notebook(cells=self.cells, metadata=notebook.metadata)

    def text(self, source):
        self.cells.append(nbformat.v4.new_markdown_cell(source))

    def predict(self, source, fields):
        rest = without(source, fields)
        if rest.strip():
            self.cells.append(nbformat.v4.new_code_cell(rest))
        rows = "".join(f'<label><span>{html.escape(label)}</span><input name="{html.escape(key)}" autocomplete="off">'
                       f'<small>{html.escape(note)}</small></label>' for key, label, note, _ in fields)
        self.text(f'<form class="predict">{rows}</form>')
        self.asked = True

    def code(self, cell):
        outputs = [self.output(one) for one in cell.outputs if one.get("data") != {}]
        names = COMPARED.findall(cell.source)
        truths = [f"{name}: it is {said(TRUTHS[name])}\n" for name in names if name in TRUTHS]
        outputs += [nbformat.v4.new_output("stream", name="stdout", text="".join(truths))] if truths else []
        hidden = cell.metadata.get("jupyter", {}).get("outputs_hidden", False)
        card = any("flashlab-check" in one.get("data", {}).get("text/html", "") for one in outputs)
        if self.asked and (hidden or names) and not card:
            self.cells.append(nbformat.v4.new_code_cell(cell.source))
            self.text(GATE)
            self.asked, self.answering = False, True
            shown = nbformat.v4.new_code_cell(cell.source, outputs=outputs, metadata={"tags": ["remove-input"]})
            self.cells += [shown] if outputs else []
        else:
            toggled = hidden and outputs and not card and not self.answering
            tags = ["hide-output"] if toggled else []
            self.cells.append(nbformat.v4.new_code_cell(cell.source, outputs=outputs, metadata={"tags": tags}))
        self.answering &= not names
        if card and (found := EXERCISE.search(cell.source)):
            self.text(f"[The stub, and what a wrong answer is told](../exercises/{found[1]}.md)")

    def output(self, output):
        """The output with its picture as a file of its own; in its text, links to pages as they will be called."""
        if text := output.get("data", {}).get("text/markdown"):
            data = {"text/markdown": re.sub(r"\.(ipynb|md)\)", ".html)", LINK.sub(self._target, text))}
            return nbformat.v4.new_output("display_data", data)
        picture = output.get("data", {}).get("image/png")
        if picture is None:
            return output
        metadata = output.metadata.get("image/png", {})
        name = save(base64.b64decode(picture), self.figures)
        with Image.open(self.figures / name) as image:
            size = metadata.get("width", image.width), metadata.get("height", image.height)
        alt = html.escape(metadata.get("alt", output.data.get("text/plain", "")), quote=True)
        tag = (f'<img class="figure" src="../figures/{name}" alt="{alt}" width="{size[0]}" height="{size[1]}" '
               'loading="lazy">')
        return nbformat.v4.new_output("display_data", {"text/html": tag})

    def _target(self, match):
        target = self.link(match[2])
        return f"[{match[1]}]({target})" if target else match[1]


def save(png, folder):
    """Write a picture as lossless WebP. Returns the file's name, which its content decides."""
    path = Path(folder) / f"{hashlib.sha1(png).hexdigest()[:12]}.webp"
    if not path.exists():
        Image.open(io.BytesIO(png)).convert("RGB").save(path, lossless=True, method=2, quality=20)     # fast
    return path.name


def said(truth):
    """An answer in words; a set of labels as a list."""
    return ", ".join(map(str, sorted(truth, key=str))) if isinstance(truth, set) else str(truth)


def predictions(source):
    """(key, label, note, line numbers) of each number that a cell asks for: `my_x = None     # note`."""
    try:
        tree = ast.parse(source)
    except SyntaxError:                           # a magic command
        return
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not ast.unparse(node.targets[0]).lstrip("(").startswith("my_"):
            continue
        target, lines = node.targets[0], range(node.lineno, node.end_lineno + 1)
        _, _, note = source.splitlines()[node.end_lineno - 1].partition("  # ")
        many = isinstance(target, ast.Tuple)
        pairs = zip(target.elts, node.value.elts, strict=True) if many else [(target, node.value)]
        for name, value in pairs:
            words = name.id.removeprefix("my_").replace("_", " ") if many else "Your prediction"
            for part in parts(value):
                yield f"{name.id}:{part}", part or words, note.strip(), lines
                note = ""                         # said once


def parts(value):
    """"" for None, the keys of a dict of Nones, the places of a list of them; nothing for other values."""
    empty = lambda node: isinstance(node, ast.Constant) and node.value is None
    if empty(value):
        yield ""
    elif isinstance(value, ast.Dict) and all(map(empty, value.values)):
        yield from (str(ast.literal_eval(key)) for key in value.keys)
    elif isinstance(value, ast.List) and all(map(empty, value.elts)):
        yield from (f"number {n}" for n, _ in enumerate(value.elts, 1))


def without(source, fields):
    """The lines of a cell that are no predictions."""
    asking = {number for *_, lines in fields for number in lines}
    return "\n".join(line for number, line in enumerate(source.splitlines(), 1) if number not in asking)
