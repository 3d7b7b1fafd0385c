"""What a rung changes in the code of the rung before: a diff of bodies without comments, docstrings and indentation."""

import difflib
import inspect
import re
import textwrap


def changes(before, after, most=20):
    """The lines that differ between two functions or kernels, as text: `-` what went, `+` what came.

    most: lines shown of each run of lines that went or came together; the rest is counted
    """
    old, new = _code(before), _code(after)
    stripped = ([line.strip() for line in lines] for lines in (old, new))
    matcher = difflib.SequenceMatcher(None, *stripped, autojunk=False)
    shown = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            shown += _some("-", old[a:b], most) + _some("+", new[c:d], most)
    return "\n".join(shown)


def _some(sign, lines, most):
    rest = [f"{sign} ... and {len(lines) - most} lines more"] if len(lines) > most else []
    return [f"{sign} {line.strip()}" for line in lines[:most]] + rest


def _code(function):
    """The lines of a function's body, comments and docstring left out."""
    text = textwrap.dedent(inspect.getsource(getattr(function, "fn", function)))
    lines = [re.sub(r"\s+# .*$", "", line) for line in text[text.index("def "):].splitlines()]
    head = next(n for n, line in enumerate(lines) if line.endswith(":"))               # the last line of the signature
    lines = lines[head + 1:]
    quoted, kept = False, []
    for line in lines:
        marks = line.count('"""')
        if not quoted and not marks and line and not line.strip().startswith("#"):
            kept.append(line)
        quoted ^= marks % 2 == 1
    return kept
