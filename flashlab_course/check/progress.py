"""Which exercises passed, and how many hints were asked for: files in my/, which git ignores."""

import json

from flashlab_course.check import source

FILE = ".progress.json"
NEW = {"passed": False, "tries": 0, "hints": 0, "mistake": "",    # the mistake of the last check
       "file": ""}                               # a digest of the file that failed last


def load(file):
    """The dict in a JSON file of my/; {} for one that is missing or cannot be read."""
    try:
        found = json.loads((source.root() / source.MY / file).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def change(file, make):
    """Replace a JSON file of my/ by make(the dict that it holds). Returns "" or what went wrong, in words.

    A file that cannot be read is set aside; a folder that cannot be written to keeps nothing.
    """
    path, said, found = source.root() / source.MY / file, "", load(file)
    try:
        if path.exists() and not found:
            kept = source.set_aside(path, "broken")
            said = f"{path} could not be read. It is kept as {kept.name}, and a new one begins"
        source.put(path, json.dumps(make(found), indent=1))
    except OSError as error:
        return f"{path} could not be written, so this is not remembered: {error.strerror or error}"
    return said


def of(name):
    """{"passed": bool, "tries": int, "hints": int, "mistake": str, "file": str} of an exercise."""
    return NEW | load(FILE).get(name, {})


def update(name, **changes):
    """Change what is kept of one exercise. Returns as `change`."""
    return change(FILE, lambda found: found | {name: NEW | found.get(name, {}) | changes})
