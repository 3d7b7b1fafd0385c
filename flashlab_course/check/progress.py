"""Which exercises passed, and how many hints were asked for: files in my/, which git ignores."""

import contextlib
import json
import os

from flashlab_course.check import source

FILE = ".progress.json"
NEW = {"passed": False, "tries": 0, "hints": 0, "mistake": "",    # the mistake of the last check
       "file": ""}                               # a digest of the file that failed last


def load(file):
    """The dict in a JSON file of my/, {} if there is no file; None if it holds anything else."""
    try:
        found = json.loads((source.root() / source.MY / file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def change(file, make):
    """Replace a JSON file of my/ by make(the dict that it holds). Returns "" or what went wrong, in words.

    A file that cannot be read is set aside; a folder that cannot be written to keeps nothing.
    """
    path, said = source.root() / source.MY / file, ""
    try:
        path.parent.mkdir(exist_ok=True)
        with _alone(path.parent):
            if (found := load(file)) is None:
                kept = source.set_aside(path, "broken")
                said = f"{path} could not be read. It is kept as {kept.name}, and a new one begins"
            source.put(path, json.dumps(make(found or {}), indent=1))
    except OSError as error:
        return f"{path} could not be written, so this is not remembered: {error.strerror or error}"
    return said


@contextlib.contextmanager
def _alone(folder):
    """Within, no other process is. The folder itself is locked: that takes no file, and ends with the process."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):        # Windows has none, nor do some file systems
            import fcntl
            place = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, place)
            fcntl.flock(place, fcntl.LOCK_EX)
        yield


def of(name, found=None):
    """{"passed": bool, "tries": int, "hints": int, "mistake": str, "file": str} of an exercise, as in NEW where it is
    of another type. found: what the file holds, if that is known"""
    kept = (found or load(FILE) or {}).get(name)
    kept = kept if isinstance(kept, dict) else {}
    return {key: kept[key] if type(kept.get(key)) is type(new) else new for key, new in NEW.items()}


def update(name, **changes):
    """Change what is kept of one exercise. Returns as `change`."""
    return change(FILE, lambda found: found | {name: of(name, found) | changes})
