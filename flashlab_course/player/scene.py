"""A picture that moves: rectangles and texts in fixed places, and for every step what of them changes.

The page moves it, the still draws one step of it: neither knows what attention is.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from flashlab.memory import format_bytes


@dataclass
class Item:
    """A rectangle or the lower left half of one, a text, a stroke, a line of code, or the words below the picture."""

    kind: str                  # rect, half, text, stroke, code, status
    x: float = 0
    y: float = 0
    w: float = 0
    h: float = 0
    look: str = ""             # its class
    text: str = ""
    number: int = 0            # of a line of code


class Words(NamedTuple):
    """What the page says of such a picture."""

    picture: str               # what it shows, for those who cannot see it
    small: str                 # the two lengths of a step
    large: str
    keys: tuple                # (class of a sample, what it means)
    clock: str                 # what several have in common
    milliseconds: tuple        # for each of the two lengths, while it plays


@dataclass
class Scene:
    """frames[n]: {(item, "look" | "text" | "w"): value}, all that moves, at step n."""

    title: str
    color: str
    words: Words | None = None
    width: float = 0
    height: float = 0
    items: list = field(default_factory=list)
    frames: list = field(default_factory=list)
    moved: list = field(default_factory=list)      # the clock at each step: bytes so far, or what `words` says
    summary: str = ""
    tiles: list = field(default_factory=list)      # the last step of each tile

    def rect(self, x, y, w, h, look):
        return self._add(Item("rect", x, y, w, h, look))

    def half(self, x, y, w, h, look):
        return self._add(Item("half", x, y, w, h, look))

    def text(self, x, y, look, text=""):
        return self._add(Item("text", x, y, look=look, text=text))

    def stroke(self, x, y, w, h, look):
        return self._add(Item("stroke", x, y, w, h, look))

    def code(self, number, text):
        return self._add(Item("code", look="line", text=text, number=number))

    def status(self):
        return self._add(Item("status", look="status"))

    def _add(self, item):
        self.items.append(item)
        return len(self.items) - 1

    def at(self, n):
        """The items as they are at step n."""
        changed = {}
        for (item, what), value in self.frames[n].items():
            changed.setdefault(item, {})[what] = value
        return [Item(**{**vars(item), **changed.get(k, {})}) for k, item in enumerate(self.items)]


def bytes_text(n):
    """1024 -> '1 KiB'."""
    return format_bytes(n).replace(".0 ", " ")
