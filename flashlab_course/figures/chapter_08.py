"""The picture of chapter 08: which tensor of the backward pass is computed from which."""

from matplotlib.patches import FancyArrowPatch

from flashlab.validate import check_positive
from flashlab_course.figures.colors import INK, ORANGE
from flashlab_course.figures.plots import box, canvas, panel
from flashlab_course.figures.style import figure, finish
from flashlab_course.figures.words import bytes_text

# name: (x, y), and below what it is computed from. An N x N matrix is a tile on chip in FlashAttention, and lies in HBM
# in the textbook.
PLACES = {"L": (0, 5), "Q": (0, 4), "K": (0, 3), "V": (0, 2), "dO": (0, 1), "O": (0, 0), "S": (1, 4), "P": (2, 4),
          "dP": (2, 2), "D": (2.7, 0), "dS": (3, 3.5), "dQ": (4, 4), "dK": (4, 3), "dV": (4, 2)}
SQUARE, ROW = ("S", "P", "dP", "dS"), ("L", "D")
TEXTBOOK = {"S": "QK", "P": ["S"], "dP": ["dO", "V"], "D": ["P", "dP"], "dS": ["P", "dP", "D"], "dQ": ["dS", "K"],
            "dK": ["dS", "Q"], "dV": ["P", "dO"]}
FLASH = TEXTBOOK | {"P": ["S", "L"], "D": ["dO", "O"]}


@figure
def backward_dataflow(N, d, flash=True):
    """Which tensor of the backward pass is computed from which.

    flash=False: the textbook, with every N x N matrix in HBM and D computed from P.
    """
    check_positive(N=N, d=d)
    fig, ax = panel(9, 4.6)
    boxes = {}
    for name, (x, y) in PLACES.items():
        if flash or name not in "LO":
            shape = "N" if name in ROW else "N × d" if name not in SQUARE else "a tile" if flash else "N × N"
            fill, edge = ("white", ORANGE) if name in SQUARE else ("#EEF2F7", INK)
            boxes[name] = box(ax, x - 0.2, y - 0.3, 0.4, 0.6, fill, f"{name}\n{shape}", ec=edge, lw=1.6, zorder=3,
                              ls="--" if flash and name in SQUARE else "-")
    for name, sources in (FLASH if flash else TEXTBOOK).items():
        for source in sources:
            right, down = (b - a for a, b in zip(PLACES[source], PLACES[name], strict=True))
            bend = -0.2 if source == "L" else 0.15 if right > 1.5 and down else 0             # past other boxes
            ax.add_patch(FancyArrowPatch(PLACES[source], PLACES[name], patchA=boxes[source], patchB=boxes[name],
                                         arrowstyle="-|>", mutation_scale=11, color="#8A94A3",
                                         connectionstyle=f"arc3,rad={bend}"))
    for x, text in ((0, "saved, and dO"), (1, "computed again" * flash), (4, "returned")):
        ax.text(x, 5.6, text, ha="center", fontsize=9)
    canvas(ax, (-0.4, 4.4), (-0.6, 6), equal=False)
    square, kept = bytes_text(4 * N * N), bytes_text(4 * N * (4 * d + 1))
    title = f"S, P, dP and dS are {square} each, and cross HBM at every arrow"
    if flash:
        title = f"FlashAttention saves Q, K, V, O and L: {kept}. One N × N matrix has {square}"
    return finish(fig, title, f"Definition: the chain rule of attention, one head, N = {N}, d = {d}, 4 bytes each. "
                  + ("Dashed: one tile at a time, on chip." if flash else "Orange: N × N matrices in HBM."))
