"""A picture that moves: rectangles and texts in fixed places, and for every step what of them changes.

The page moves it, the still draws one step of it: neither knows what attention is.
"""

from dataclasses import dataclass, field

from flashlab.memory import format_bytes


@dataclass
class Item:
    """A rectangle, its diagonal, a text, a line of code, or the words beside the picture."""

    kind: str                  # rect, stroke, text, code, status
    x: float = 0
    y: float = 0
    w: float = 0
    h: float = 0
    look: str = ""             # its class on the page
    text: str = ""
    number: int = 0            # of a line of code


@dataclass
class Scene:
    """frames[n]: {(item, "look" | "text" | "w"): value}, all that moves, at step n."""

    title: str
    color: str
    width: float
    height: float = 0
    items: list = field(default_factory=list)
    frames: list = field(default_factory=list)
    moved: list = field(default_factory=list)      # bytes so far, at each step
    tiles: list = field(default_factory=list)      # the last step of each tile

    def add(self, kind, *place, **more):
        """Add an Item and return its number."""
        self.items.append(Item(kind, *place, **more))
        return len(self.items) - 1

    def rect(self, x, y, w, h, look):
        return self.add("rect", x, y, w, h, look)

    def text(self, x, y, look, text=""):
        return self.add("text", x, y, look=look, text=text)

    def at(self, n):
        """The items as they are at step n."""
        changed = [{} for _ in self.items]
        for (item, what), value in self.frames[n].items():
            changed[item][what] = value
        return [Item(**(vars(item) | change)) for item, change in zip(self.items, changed, strict=True)]


def bytes_text(n):
    """1024 -> '1 KiB'."""
    return format_bytes(n).replace(".0 ", " ")
