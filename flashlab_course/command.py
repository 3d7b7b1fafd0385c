"""How to type a command of the course in the reader's terminal, and the letters that a terminal can show."""

import codecs
import os
import shlex
import shutil
import sys
import unicodedata

PLAIN = str.maketrans("−–—─·•×✓✗“”‘’", "----**x+x\"\"''") | str.maketrans(
    {"≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "∞": "inf", "√": "sqrt", "ε": "eps"})


def line(*words):
    """`python -m flashlab check ex03_merge` with the Python that has torch: line("check", "ex03_merge")."""
    return " ".join([python(), "-m", "flashlab", *words])


def python():
    """This Python as a terminal finds it: "python" if that is the one, else a path, relative if it lies below.

    In a notebook the whole path: its terminals may open in another folder and with another PATH.
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
    """Is that this Python? Links are not followed: an environment's python links to one without its packages."""
    return path is not None and os.path.normcase(os.path.abspath(path)) == os.path.normcase(sys.executable)


# ---- what a terminal can show

def readable(*streams):
    """Let these streams replace letters that they cannot write, as in an old terminal or with LC_ALL=C."""
    codecs.register_error("flashlab.plain", _plain)
    for stream in streams:
        if hasattr(stream, "reconfigure"):                               # a notebook's stream takes all letters
            stream.reconfigure(errors="flashlab.plain")


def _plain(error):
    text = error.object[error.start:error.end].translate(PLAIN)
    letters = unicodedata.normalize("NFKD", text)                        # ³ is a 3, é an e and its accent
    return "".join(c if c.isascii() else "?" for c in letters if not unicodedata.combining(c)), error.end
