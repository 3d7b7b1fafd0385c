"""A picture that moves: rectangles and texts in fixed places, and for every step what of them changes.

The page moves it, the still draws one step of it: neither knows what attention is.
"""

from dataclasses import dataclass, field

from flashlab.memory import format_bytes


@dataclass
class Item:
    """A rectangle, a text, a stroke, a line of code, or the words below the picture."""

    kind: str                  # rect, text, stroke, code, status
    x: float = 0
    y: float = 0
    w: float = 0
    h: float = 0
    look: str = ""             # its class
    text: str = ""
    number: int = 0            # of a line of code


@dataclass
class Scene:
    """frames[n]: {(item, "look" | "text" | "w"): value}, all that moves, at step n."""

    title: str
    color: str
    width: float = 0
    height: float = 0
    items: list = field(default_factory=list)
    frames: list = field(default_factory=list)
    moved: list = field(default_factory=list)      # bytes so far, at each step
    tiles: list = field(default_factory=list)      # the last step of each tile

    def rect(self, x, y, w, h, look):
        return self._add(Item("rect", x, y, w, h, look))

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
