"""Which exercises passed, and how many hints were asked for. Kept in a file that git ignores."""

import contextlib
import json
import os
import tempfile

from flashlab.check import source

FILE = ".progress.json"


def read():
    """{exercise: what `of` gives}; a file that cannot be read counts as empty."""
    return {k: v for k, v in load(FILE).items() if isinstance(v, dict)}


def load(file):
    """The dict in a JSON file of the root; {} for one that is missing or cannot be read."""
    try:
        found = json.loads((source.root() / file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(file, data):
    """Replace a JSON file of the root in one step: two notebooks may do so at the same time. A folder that cannot be written to
    loses it, nothing else."""
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=source.root(), prefix=file)
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump(data, f, indent=1)
        os.replace(temporary, source.root() / file)


def of(name):
    """{"passed": bool, "tries": int, "hints": int, "stub": str, "file": str} of an exercise."""
    known = {"passed": False, "tries": 0, "hints": 0, "stub": "",       # stub: see stubs.write
             "file": ""}                                                 # digest of the file that failed last
    return known | {k: v for k, v in read().get(name, {}).items() if type(v) is type(known.get(k))}


def update(name, **changes):
    """Change what is kept of one exercise."""
    save(FILE, dict(sorted((read() | {name: of(name) | changes}).items())))
