"""Lines and tokens of every folder against its budget, and what is too long: `python tests/house.py` prints them.

Tokens are counted as well as lines, because a budget of lines alone buys dense lines.
"""

import ast
import functools
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

# folder: (lines, tokens). Over its budget, something leaves a folder before something comes. The budgets stay
# near the sizes, and should fall: the goal is 6,000, 14,000, 9,800 and 14,000 lines, at 10 tokens a line.
BUDGETS = {
    "flashlab": (8_935, 85_480),
    "flashlab_course": (14_030, 117_130),
    "solutions": (6_900, 55_600),
    "tests": (15_770, 160_920),
    "site": (440, 3_600),
}
TOKENS_OF_A_LINE = 11.83
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 50


def files(folder):
    """The Python files of a folder, but not the answers of strangers that tests read."""
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "answers" not in path.parts)


@functools.cache
def count(path):
    """(lines, tokens, lines that hold a token) of a file. A docstring is one token."""
    text = path.read_text(encoding="utf-8")
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type not in LAYOUT]
    return len(text.splitlines()), len(tokens), len({one.start[0] for one in tokens})


def total(paths):
    """The sums of `count` over files."""
    return [sum(column) for column in zip((0, 0, 0), *map(count, paths), strict=True)]


def tokens_of_a_line(folders=("flashlab", "flashlab_course")):
    """Tokens of a code line, on average over these folders."""
    _, tokens, code_lines = total([path for folder in folders for path in files(folder)])
    return tokens / code_lines


def functions(path):
    """(name, lines) of every function in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1


def too_long():
    """What is longer than a reader can hold in mind: files and functions of the two packages, in words."""
    for path in files("flashlab") + files("flashlab_course"):
        name = path.relative_to(ROOT)
        if (lines := count(path)[0]) > LINES_OF_A_FILE:
            yield f"{name}: {lines} lines, at most {LINES_OF_A_FILE}"
        for function, lines in functions(path):
            if lines > LINES_OF_A_FUNCTION:
                yield f"{name}: {function}() has {lines} lines, at most {LINES_OF_A_FUNCTION}"


def table():
    """A line a folder, those of the two packages with their rooms."""
    row = "{:<28}{:>8}{:>10}{:>10}{:>10}{:>12}".format
    yield row("folder", "lines", "budget", "tokens", "budget", "tokens/line")
    for folder, (line_budget, token_budget) in BUDGETS.items():
        lines, tokens, code_lines = total(files(folder))
        yield row(folder, lines, line_budget, tokens, token_budget, f"{tokens / max(1, code_lines):.1f}")
        if not folder.startswith("flashlab"):
            continue
        for room in sorted({path.relative_to(ROOT / folder).parts[0] for path in files(folder)}):
            inside = ROOT / folder / room
            lines, tokens, code_lines = total(files(f"{folder}/{room}") if inside.is_dir() else [inside])
            yield row(f"  {room}", lines, "", tokens, "", f"{tokens / max(1, code_lines):.1f}")


def report():
    """The table, and what is too long."""
    return "\n".join([*table(), *too_long()])


if __name__ == "__main__":
    print(report())
