"""Which exercises passed, and how many hints were asked for: files in my/, which git ignores."""

import json

from flashlab_course.check import source

FILE = ".progress.json"
# of each exercise; the mistake is that of the last check, the file a digest of the one that failed last
KEPT = {"passed": False, "tries": 0, "hints": 0, "mistake": "", "file": ""}


def load(file):
    """The dict in a JSON file of my/; {} for one that is missing or cannot be read."""
    return _read(_path(file)) or {}


def change(file, make):
    """Replace a JSON file of my/ by make(the dict that it holds). Returns "" or what went wrong, in words.

    A file that cannot be read is set aside; a folder that cannot be written to keeps nothing.
    """
    said, path = "", _path(file)
    try:
        if (found := _read(path)) is None:
            kept = source.set_aside(path, "broken")
            said = f"{path} could not be read. It is kept as {kept.name}, and a new one begins"
        source.put(path, json.dumps(make(found or {}), indent=1))
    except OSError as error:
        return f"{path} could not be written, so this is not remembered: {error.strerror or error}"
    return said


def _path(file):
    return source.root() / source.MY / file


def _read(path):
    """The dict in a JSON file, {} if there is no file; None if it holds anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def of(name):
    return KEPT | load(FILE).get(name, {})


def update(name, **changes):
    """Change what is kept of one exercise. Returns as `change`."""
    return change(FILE, lambda found: found | {name: KEPT | found.get(name, {}) | changes})
