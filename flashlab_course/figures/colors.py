"""The colours and markers of the pictures; a rung's or a peer's are those of flashlab.ladder."""

from matplotlib.colors import LinearSegmentedColormap, to_rgb

from flashlab.ladder import find

INK, READ, WRITTEN = "#222222", "#4A5568", "#B4BDCB"
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#7A1FA2"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, READ, "#A97400", "#56B4E9", "#B03A6F")
PALE = "#F0F0F0"                       # a cell with nothing in it
YOURS = "#C2185B"                      # what the learner predicted or wrote, and nothing else


def color(name, otherwise=READ):
    return one.color if (one := find(name)) else YOURS if str(name).startswith("your") else otherwise


def marker(name):
    return one.marker if (one := find(name)) else "*" if str(name).startswith("your") else "o"


def ramp(dark, lightest=0.15):
    """A colour map from a tint that holds `lightest` of the colour, the rest white, up to the colour itself."""
    return LinearSegmentedColormap.from_list(dark, [tuple(1 - lightest * (1 - c) for c in to_rgb(dark)), dark])


def ink_on(fill):
    """White or INK, whichever can be read on that colour."""
    red, green, blue = to_rgb(fill)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else INK
