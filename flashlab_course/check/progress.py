"""Which exercises passed, and how many hints were asked for: files in my/, which git ignores."""

import contextlib
import json
import os

from flashlab_course.check import source

try:
    import fcntl
# Windows has none: there the last of two writers wins
except ImportError:
    fcntl = None

FILE = ".progress.json"


def load(file):
    """The dict in a JSON file of my/; {} for one that is missing or cannot be read."""
    return _read(_path(file)) or {}


def change(file, make):
    """Replace a JSON file of my/ by make(the dict that it holds), in one step and one process after the other: two
    notebooks may do so at the same time.

    Returns "" or what went wrong, in words. A file that cannot be read is set aside; a folder that cannot be written to
    keeps nothing.
    """
    said, path = "", _path(file)
    try:
        path.parent.mkdir(exist_ok=True)
        with _alone(path.parent):
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
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@contextlib.contextmanager
def _alone(place):
    """Within, no other process is: the folder itself is locked, which takes no file, and ends with the process."""
    if fcntl is None:
        yield
        return
    folder = os.open(place, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):                               # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def of(name):
    """{"passed": bool, "tries": int, "hints": int, "mistake": str, "file": str} of an exercise."""
    return _whole(load(FILE).get(name))


def _whole(kept):
    kept = kept if isinstance(kept, dict) else {}
    known = {"passed": False, "tries": 0, "hints": 0, "mistake": "",    # the mistake of the last check
             "file": ""}                             # a digest of the file that failed last
    return known | {k: v for k, v in kept.items() if type(v) is type(known.get(k)) and (type(v) is not int or v >= 0)}


def update(name, **changes):
    """Change what is kept of one exercise. Returns as `change`."""
    return change(FILE, lambda found: found | {name: _whole(found.get(name)) | changes})
