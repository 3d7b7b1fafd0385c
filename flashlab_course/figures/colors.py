"""The colours and markers of the pictures; a rung's or a peer's are those of flashlab.ladder."""

from matplotlib.colors import LinearSegmentedColormap, to_rgb

from flashlab.ladder import find

INK, FAINT, READ, WRITTEN = "#222222", "#D9D9D9", "#4A5568", "#B4BDCB"
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#7A1FA2"
PALE, GREY = "#F3F3F3", "#AAAAAA"      # a cell with nothing in it, and its edge
YOURS = "#C2185B"                      # what the learner predicted or wrote, and nothing else


def color(name):
    return one.color if (one := find(name)) else YOURS if str(name).startswith("yours") else READ


def marker(name):
    return one.marker if (one := find(name)) else "*" if str(name).startswith("yours") else "o"


def ramp(dark, lightest):
    """A colour map from a tint that holds `lightest` of the colour, the rest white, up to the colour itself."""
    return LinearSegmentedColormap.from_list(dark, [tuple(1 - lightest * (1 - c) for c in to_rgb(dark)), dark])


def shades(dark, count, lightest=0.15):
    """So many colours, from a light tint to the colour itself."""
    return [ramp(dark, lightest)(n / max(1, count - 1)) for n in range(count)]


def ink_on(fill):
    """White or INK, whichever can be read on that colour."""
    red, green, blue = to_rgb(fill)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else INK
