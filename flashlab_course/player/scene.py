"""A picture that moves: items in fixed places, some of which change from step to step.

The page shows any Scene. Only the functions that draw one know what it means.
"""

from dataclasses import dataclass, field, replace

from flashlab.memory import format_bytes

LINE, LETTER = 14, 6.6                 # pixels: a line of text, and a letter


@dataclass
class Item:
    """A rectangle, its diagonal, a text, a line of code, or the words beside the picture.

    Each of x, y, w, h, look and text may be a list, with a value for each step.
    """

    kind: str                  # rect, stroke, text, code, status
    x: float | list = 0
    y: float | list = 0
    w: float | list = 0
    h: float | list = 0
    look: str | list = ""      # its class on the page
    text: str | list = ""
    number: int = 0            # of a line of code

    def moving(self):
        """{field: a value for each step}"""
        return {name: values for name, values in vars(self).items() if isinstance(values, list)}

    def at(self, n):
        """The item as it is at step n."""
        return replace(self, **{name: values[n] for name, values in self.moving().items()})


@dataclass
class Scene:
    """One lane of a player."""

    title: str
    color: str
    width: float
    height: float = 0
    items: list = field(default_factory=list)
    moved: list = field(default_factory=list)      # bytes so far at each step: the clock that lanes share
    tiles: list = field(default_factory=list)      # the last step of each tile

    def add(self, kind, *place, **more):
        self.items.append(Item(kind, *place, **more))

    def rect(self, x, y, w, h, look):
        self.add("rect", x, y, w, h, look)

    def text(self, x, y, look, text):
        self.add("text", x, y, look=look, text=text)

    def listing(self, lines, lit, words):
        """Source lines, and words beside them. lit: at each step the numbers, from 1, of the lines that run"""
        for number, text in enumerate(lines, 1):
            look = ["line" + " now" * (number in numbers) for numbers in lit]
            self.add("code", look=look, text=text.split("  #")[0].rstrip(), number=number)
        self.add("status", look=["status"] * len(words), text=words)


def shelves(sizes, width, y, label, least=0):
    """Put rectangles side by side, and below where a shelf is full.

    sizes  {name: (w, h)}
    label  the room under each rectangle; least: the room that each takes from left to right
    Returns {name: (x, y)} and where the last shelf ends.
    """
    places, x, tallest = {}, 0, 0
    for name, (w, h) in sizes.items():
        room = max(w, LETTER * len(name), least)
        if x and x + room > width:
            x, y, tallest = 0, y + tallest + label, 0
        places[name] = x + (room - w) / 2, y
        x, tallest = x + room + 10, max(tallest, h)
    return places, y + tallest + label


def bytes_text(n):
    """1024 -> '1 KiB'."""
    return format_bytes(n).replace(".0 ", " ")
