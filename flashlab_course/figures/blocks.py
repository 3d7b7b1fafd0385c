"""The pictures of chapter 04: what a product by tiles moves, and which tiles of Q, K, V and S make one block of O."""


import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from flashlab.validate import check_positive
from flashlab_course.figures.style import FAINT, READ, byte_axis, figure, finish, log_axes
from flashlab_course.figures.words import bytes_text

PRODUCT = "#0072B2"


@figure
def matmul_traffic(points):
    """Bytes that a product by tiles reads, against the tile's edge.

    points: dicts of edge, formula, and measured, None where the tiles do not fit
    """
    points = sorted(points, key=lambda p: p["edge"])
    fits, over = ([p for p in points if (p["measured"] is None) == gone] for gone in (False, True))
    fig, ax = plt.subplots(figsize=(8, 3.8))
    ax.plot([p["edge"] for p in points], [p["formula"] for p in points], "--", color=PRODUCT, lw=1.4)
    ax.plot([p["edge"] for p in fits], [p["measured"] for p in fits], "o", color=PRODUCT)
    ax.plot([p["edge"] for p in over], [p["formula"] for p in over], "x", color=PRODUCT, ms=8, mew=2)
    for p in over:
        ax.annotate("SRAM overflow", (p["edge"], p["formula"]), (-10, -5), textcoords="offset points", ha="right", fontsize=9)
    log_axes(ax, [p["edge"] for p in points], "edge of the square tiles of C", "HBM bytes read")
    ax.margins(y=0.2)                                                  # no fixed limits: a prediction may lie anywhere
    byte_axis(ax.yaxis)
    first, last = fits[0], fits[-1]
    return finish(fig, f"Tiles {last['edge'] // first['edge']} times as wide: {bytes_text(first['measured'])} becomes "
                       f"{bytes_text(last['measured'])}",
                  "Modelled: dots counted by flashlab.memory, dashed the formula MNK/B_n + MNK/B_m, × does not fit.")


@figure
def attention_tiles(T_r=4, T_c=4, i=0, rows=2, d=128, softmax=False):
    """The tiles of Q, Kᵀ, S (or P), V and O, laid out as products: what stands left of and above a tile makes it.

    T_r, T_c: how many blocks of queries and of keys; i: the block of O that is marked; rows, d: a block's shape
    """
    check_positive(T_r=T_r, T_c=T_c, rows=rows, d=d)
    if not 0 <= i < T_r:
        raise ValueError(f"i must be one of the {T_r} blocks of queries, 0 to {T_r - 1}, got {i}")
    fig, ax = plt.subplots(figsize=(8, 6.4))
    S, deep, gap = "P" if softmax else "S", 2.6, 0.7                     # deep: how long the side d is drawn
    grid_x, grid_y, out_x = deep + gap, T_c + gap, deep + T_c + 2 * gap
    for r in range(T_r):
        on = r == i
        _tile(ax, 0, grid_y + r, deep, 1, f"$Q_{r + 1}$", READ if on else None)
        for c in range(T_c):
            _tile(ax, grid_x + c, grid_y + r, 1, 1, f"${S}_{{{r + 1}{c + 1}}}$", PRODUCT if on else None)
        _tile(ax, out_x, grid_y + r, deep, 1, f"$O_{r + 1}$", "#009E73" if on else None)
    for c in range(T_c):
        _tile(ax, grid_x + c, grid_y - gap - deep, 1, deep, f"$K_{c + 1}^T$", READ)
        _tile(ax, out_x, c, deep, 1, f"$V_{c + 1}$", READ)
    N_q, N_k = rows * T_r, rows * T_c
    for x, y, words in ((deep / 2, grid_y, f"Q  {N_q} × {d}"), (grid_x + T_c / 2, grid_y - gap - deep, f"Kᵀ  {d} × {N_k}"),
                        (out_x + deep / 2, 0, f"V  {N_k} × {d}"), (out_x + deep / 2, grid_y, f"O  {N_q} × {d}"),
                        (grid_x + T_c / 2, grid_y, f"{S}  {N_q} × {N_k}")):
        ax.text(x, y - 0.1, words, ha="center", va="bottom", fontsize=10)
    ax.set(xlim=(-0.1, out_x + deep + 0.1), ylim=(grid_y + T_r + 0.1, -0.5), aspect="equal")
    ax.axis("off")
    terms = " + ".join(f"{S}{sub(i + 1, c + 1)} V{sub(c + 1)}" for c in range(T_c))
    return finish(fig, f"O{sub(i + 1)} = {terms}: one row of tiles makes one block of O",
                  f"Definition: blocks of {rows} rows, tiles of {S} {rows} × {rows}; the side d is not to scale. "
                  "Coloured: what this block of O needs.")


def sub(*digits):
    """1, 2 -> ₁₂"""
    return "".join(chr(0x2080 + int(figure)) for digit in digits for figure in str(digit))


def _tile(ax, x, y, width, height, text, fill):
    ax.add_patch(Rectangle((x, y), width, height, fc=fill or "#F3F3F3", ec="white" if fill else FAINT, lw=1.5))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=12, color="white" if fill else "#888888")
