"""How to type a command of the course, so that it runs where the reader stands."""

import os
import shlex
import shutil
import sys


def line(*words):
    """`python -m flashlab check ex03_merge` with the Python that has torch: line("check", "ex03_merge")."""
    return " ".join([python(), "-m", "flashlab", *words])


def python():
    """This Python as a terminal finds it: "python" if that is the one, a relative path below the working directory, or the whole.

    A notebook's terminal opens in the folder that the file browser shows, and its shell may set PATH anew: the whole path there.
    """
    if "ipykernel" in sys.modules:
        return shlex.quote(sys.executable)
    for name in ("python", "python3"):
        if _same(shutil.which(name)):
            return name
    try:
        below = os.path.relpath(sys.executable)
    except (OSError, ValueError):                      # the working directory is gone, or on another drive
        return shlex.quote(sys.executable)
    return shlex.quote(sys.executable if below.startswith(os.pardir) else below)


def _same(path):
    """Is that this Python? Links are not followed: an environment's python is a link to the one that lacks its packages."""
    return path is not None and os.path.normcase(os.path.abspath(path)) == os.path.normcase(sys.executable)
