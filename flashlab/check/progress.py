"""Which exercises passed, and how many hints were asked for. Kept in a file that git ignores."""

import contextlib
import json
import os
import tempfile

from flashlab.check import source

FILE = ".progress.json"


def path():
    return source.root() / FILE


def read():
    """{exercise: {"passed": bool, "tries": int, "hints": int, "stub": str}}; a file that cannot be read counts as empty."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}


def of(name):
    known = {"passed": False, "tries": 0, "hints": 0, "stub": ""}       # stub: see build.write
    return known | {k: v for k, v in read().get(name, {}).items() if type(v) is type(known.get(k))}


def update(name, **changes):
    """Replace the file in one step: two notebooks may check at the same time."""
    everything = read()
    everything[name] = of(name) | changes
    with contextlib.suppress(OSError):                 # a folder that cannot be written to loses progress, nothing else
        handle, temporary = tempfile.mkstemp(dir=path().parent, prefix=FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump(dict(sorted(everything.items())), f, indent=1)
        os.replace(temporary, path())
