"""A rung's code in a notebook: some of its lines, or what it changes in the rung before.

A diff is of bodies without comments, docstrings and indentation.
"""

import difflib
import inspect
import re
import textwrap


def changes(before, after, most=20):
    """The lines that differ between two functions or kernels: `-` was removed, `+` was added.

    most: lines shown of each run of lines that were removed or added together; the others are counted
    """
    old, new, shown = _code(before), _code(after), []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            shown += _some("-", old[a:b], most) + _some("+", new[c:d], most)
    return "\n".join(shown)


def excerpt(function, first, last):
    """The lines of a function or kernel from the one that holds `first` to the next that holds `last`, unindented.

    Raises: ValueError if there are none
    """
    lines = inspect.getsource(getattr(function, "fn", function)).splitlines()
    begin = next((n for n, line in enumerate(lines) if first in line), None)
    end = next((n for n, line in enumerate(lines) if begin is not None and n >= begin and last in line), None)
    if end is None:
        raise ValueError(f"first and last must be in lines of {function.__name__}, got {first!r} and {last!r}")
    return textwrap.dedent("\n".join(lines[begin:end + 1]))


def _some(sign, lines, most):
    rest = [f"{sign} ... and {len(lines) - most} lines more"] if len(lines) > most else []
    return [f"{sign} {line}" for line in lines[:most]] + rest


def _code(function):
    """The lines of a function's body without comments, docstring and indentation."""
    text = inspect.getsource(getattr(function, "fn", function))
    text = re.sub(r'"""(?s:.*?)"""', "", text[text.index("def "):])
    lines = [re.sub(r"(^|\s+)#( .*)?$", "", line.strip()) for line in text.splitlines()]
    head = next(n for n, line in enumerate(lines) if line.endswith(":"))               # the last line of the signature
    return [line for line in lines[head + 1:] if line]
