"""Which exercises passed, and how many hints were asked for. Kept in a file that git ignores."""

import contextlib
import json
import os
import tempfile

from flashlab_course.check import source

try:
    import fcntl
# Windows has none: there the last of two writers wins
except ImportError:
    fcntl = None

FILE = ".progress.json"


def load(file):
    """The dict in a JSON file of the root; {} for one that is missing or cannot be read."""
    try:
        found = json.loads((source.root() / file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def change(file, make):
    """Replace a JSON file of the root by make(the dict that it holds), in one step and one process after the other: two
    notebooks may do so at the same time. Returns "", or why it could not be kept: a folder that cannot be written to
    loses it, nothing else.
    """
    try:
        with _alone():
            _replace(file, make(load(file)))
    except OSError as error:
        return f"{source.root() / file} could not be written: {error.strerror or error}"
    return ""


@contextlib.contextmanager
def _alone():
    """Within, no other process is: the root itself is locked, which takes no file, and ends with the process."""
    if fcntl is None:
        yield
        return
    folder = os.open(source.root(), os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):                               # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(file, data):
    handle, temporary = tempfile.mkstemp(dir=source.root(), prefix=file)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump(data, f, indent=1)
        os.replace(temporary, source.root() / file)
    except BaseException:
        os.unlink(temporary)
        raise


def of(name):
    """{"passed": bool, "tries": int, "hints": int, "mistake": str, "stub": str, "file": str} of an exercise."""
    return _whole(load(FILE).get(name))


def _whole(kept):
    kept = kept if isinstance(kept, dict) else {}
    known = {"passed": False, "tries": 0, "hints": 0, "mistake": "",    # the mistake of the last check
             "stub": "", "file": ""}                 # stub: see stubs.write; file: digest of the file that failed last
    return known | {k: v for k, v in kept.items() if type(v) is type(known.get(k)) and (type(v) is not int or v >= 0)}


def update(name, **changes):
    """Change what is kept of one exercise. Returns as `change`."""
    return change(FILE, lambda found: found | {name: _whole(found.get(name)) | changes})
