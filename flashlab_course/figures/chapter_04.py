"""The pictures of chapter 04: products by tiles, and the order in which a kernel visits tiles."""

import math

import torch
from matplotlib.ticker import MaxNLocator

from flashlab.validate import check_positive
from flashlab_course.figures.colors import BLUE, FAINT, GREEN, GREY, ORANGE, PALE, READ, WRITTEN, color, shades
from flashlab_course.figures.plots import axes, box, canvas, grid, panel, panels, plot
from flashlab_course.figures.style import byte_axis, figure, finish, note
from flashlab_course.figures.words import by, bytes_text, label

REPLAYED = "Modelled: replayed from the log of flashlab.memory."


def blocks(N, B):
    """(start, stop) of each block of at most B of N rows."""
    return [(start, min(start + B, N)) for start in range(0, N, B)]


@figure
def block_product(M, K, N, B_m, B_k, B_n, tile=(1, 1)):
    """Which tiles of A (M, K) and B (K, N) make one tile of C (M, N). tile: the (row, column) of C's tile."""
    check_positive(M=M, K=K, N=N, B_m=B_m, B_k=B_k, B_n=B_n)
    rows, inner, columns = blocks(M, B_m), blocks(K, B_k), blocks(N, B_n)
    i, j = min(tile[0], len(rows) - 1), min(tile[1], len(columns) - 1)
    gap = 0.12 * max(M, K, N)
    fig, ax = panel(6.4, 6.4 * (K + M + gap) / (K + N + gap) + 0.6)
    marks = {"A": {(i, n): n + 1 for n in range(len(inner))}, "B": {(n, j): n + 1 for n in range(len(inner))},
             "C": {(i, j): "Σ"}}
    for name, x, y, down, across in (("A", 0, K + gap, rows, inner), ("B", K + gap, 0, inner, columns),
                                     ("C", K + gap, K + gap, rows, columns)):
        for r, (top, bottom) in enumerate(down):
            for c, (left, right) in enumerate(across):
                text = marks[name].get((r, c), "")
                box(ax, x + left, y + top, right - left, bottom - top, READ if text else PALE, text, edge=GREY, lw=0.8,
                    size=10)
        width = across[-1][1]
        ax.text(x + width / 2, y - 0.02 * (M + K), f"{name}  {down[-1][1]} × {width}", ha="center", va="bottom")
    canvas(ax, (-0.02 * (K + N), 1.02 * (K + gap + N)), (1.02 * (K + gap + M), -0.08 * (M + K)))
    return finish(fig, f"One tile of C is a sum of {len(inner)} products: a row of A's tiles with a column of B's",
                  f"Definition: tiles of at most {B_m} × {B_k} of A, {B_k} × {B_n} of B. Equal numbers are multiplied.")


@figure
def matmul_traffic(points):
    """Bytes that a product by tiles reads, against the tile's edge.

    points: dicts of edge, formula, and measured, None where the tiles do not fit
    """
    fig, ax = panel(8, 3.8)
    over = [p for p in points if p["measured"] is None]
    fits = by(points, "edge", "measured")
    plot(ax, "", by(points, "edge", "formula"), BLUE, "--", lw=1.4)
    plot(ax, "", fits, BLUE, "o")
    plot(ax, "", by(over, "edge", "formula"), BLUE, "x", ms=8, mew=2)
    for p in over:
        note(ax, "SRAM overflow", p["edge"], p["formula"], -10, -5, ha="right")
    ax.margins(y=0.2)                                                  # no fixed limits: a prediction may lie anywhere
    axes(ax, "edge of the square tiles of C", "HBM bytes read", log="xy", byte="y", ticks=[p["edge"] for p in points])
    (small, most), (large, least) = fits[0], fits[-1]
    return finish(fig, f"Tiles {large // small} times as wide: {bytes_text(most)} becomes {bytes_text(least)}",
                  "Modelled: dots counted by flashlab.memory, dashed the formula MNK/B_n + MNK/B_m, × does not fit.")


@figure
def attention_tiles(T_r=4, T_c=4, i=0, rows=2, d=128):
    """The tiles of Q, Kᵀ, S, V and O, laid out as products: what stands left of and above a tile makes it.

    T_r, T_c: how many blocks of queries and of keys; i: the block of O that is marked; rows, d: a block's shape
    """
    check_positive(T_r=T_r, T_c=T_c, rows=rows, d=d)
    if not 0 <= i < T_r:
        raise ValueError(f"i must be one of the {T_r} blocks of queries, 0 to {T_r - 1}, got {i}")
    fig, ax = panel(8, 6.4)
    deep, gap = 2.6, 0.7                                                 # deep: how long the side d is drawn
    x, y, out = deep + gap, T_c + gap, deep + T_c + 2 * gap

    def tile(left, top, width, height, name, fill):
        box(ax, left, top, width, height, fill or PALE, name, edge="white" if fill else FAINT, size=12, lw=1.5,
            ink="white" if fill else "#888888")

    for r in range(T_r):
        mine = r == i
        tile(0, y + r, deep, 1, f"$Q_{r + 1}$", READ if mine else None)
        for c in range(T_c):
            tile(x + c, y + r, 1, 1, f"$S_{{{r + 1}{c + 1}}}$", BLUE if mine else None)
        tile(out, y + r, deep, 1, f"$O_{r + 1}$", GREEN if mine else None)
    for c in range(T_c):
        tile(x + c, y - gap - deep, 1, deep, f"$K_{c + 1}^T$", READ)
        tile(out, c, deep, 1, f"$V_{c + 1}$", READ)
    N_q, N_k, middle = rows * T_r, rows * T_c, x + T_c / 2
    for left, top, words in ((deep / 2, y, f"Q  {N_q} × {d}"), (middle, y - gap - deep, f"Kᵀ  {d} × {N_k}"),
                             (out + deep / 2, 0, f"V  {N_k} × {d}"), (out + deep / 2, y, f"O  {N_q} × {d}"),
                             (middle, y, f"S  {N_q} × {N_k}")):
        ax.text(left, top - 0.1, words, ha="center", va="bottom")
    canvas(ax, (-0.1, out + deep + 0.1), (y + T_r + 0.1, -0.5))
    terms = " + ".join(f"S{lowered(i + 1, c + 1)} V{lowered(c + 1)}" for c in range(T_c))
    return finish(fig, f"O{lowered(i + 1)} = {terms}: one row of tiles makes one block of O",
                  f"Definition: blocks of {rows} rows, tiles of S {rows} × {rows}; the side d is not to scale. "
                  "Coloured: what this block of O needs.")


def lowered(*numbers):
    """1, 2 -> ₁₂"""
    return "".join(chr(0x2080 + int(digit)) for number in numbers for digit in str(number))


@figure
def star_weights(s, B_c):
    """The softmax weights of one row of scores, and what softmax*, each tile by its own maximum, makes of them."""
    s = s.detach().double()
    true, star = torch.softmax(s, 0), torch.cat([torch.exp(tile - tile.amax()) for tile in s.split(B_c)])
    rows = {"softmax over the row": (100 * true, READ),
            "softmax* tile by tile, then divided by the sum": (100 * star / star.sum(), ORANGE)}
    highest = max(weights.max().item() for weights, _ in rows.values())
    fig, axs = panels(1, 2, size=(8, 4.4), sharex=True, sharey=True)
    for ax, (name, (weights, colour)) in zip(axs, rows.items(), strict=True):
        ax.bar(range(len(s)), weights.tolist(), 0.8, color=colour)
        ax.set(ylabel="weight (%)", ylim=(0, 1.35 * highest), title=name)
        for start, stop in blocks(len(s), B_c):
            ax.text((start + stop - 1) / 2, 1.17 * highest, f"tile: {weights[start:stop].sum():.0f} %", ha="center",
                    fontsize=9)
        ax.vlines([start - 0.5 for start, _ in blocks(len(s), B_c)[1:]], *ax.get_ylim(), color=FAINT, lw=1)
    axs[1].set(xlabel="key", xlim=(-0.5, len(s) - 0.5))
    whole, mine = ([part.sum().item() for part in weights.split(B_c)] for weights, _ in rows.values())
    n = max(range(len(whole)), key=lambda n: abs(mine[n] - whole[n]))
    return finish(fig,
                  f"Tile {n + 1} of this row holds {whole[n]:.0f} % of the weight; softmax* gives it {mine[n]:.0f} %",
                  f"Measured here: one query, {len(s)} keys, tiles of {B_c}, in float64.")


def replay(log):
    """The visits (rows, cols) in order, and for each the moves (verb, tensor, bytes) of its step.

    A tile is visited when a matrix product follows the loads of Q_i and K_j. Loads before it and stores after it are
    its own.
    """
    visits, moves, pending = [], [], []
    Q_rows = K_rows = None
    for event in log:
        if event.kind == "load":
            pending.append((event.kind, event.name, event.read))
            Q_rows = event.rows if event.name == "Q" else Q_rows
            K_rows = event.rows if event.name == "K" else K_rows
        elif event.kind == "store":                      # pending: of a query block that sees no key at all
            (moves[-1] if moves and not pending else pending).append((event.kind, event.name, event.written))
        elif event.name == "mm" and K_rows:
            if not visits or visits[-1] != (Q_rows, K_rows) or any(name in "QK" for _, name, _ in pending):
                visits.append((Q_rows, K_rows))
                moves.append([])
            moves[-1] += pending                                             # V_j comes between the step's two products
            pending = []
    if pending and moves:
        moves[-1] += pending
    return visits, moves


@figure
def tile_traversal(logs, N_q, N_k):
    """The order in which each kernel visits the (i, j) tiles of S, and what crosses HBM at each step.

    logs: {"fa1_forward": mem1.log, "fa2_forward": mem2.log}. Made for small grids such as 4 x 4 tiles.
    Raises: ValueError where a log is of other sizes than N_q queries and N_k keys.
    """
    check_positive(N_q=N_q, N_k=N_k)
    for name, log in logs.items():
        seen = [max((e.rows[1] for e in log if e.kind == "load" and e.name == T), default=0) for T in "QK"]
        if seen != [N_q, N_k]:
            raise ValueError(f"the log of {name} must be of N_q = {N_q} queries and N_k = {N_k} keys, got one of "
                             f"{seen[0]} and {seen[1]}")
    replays = {name: replay(log) for name, log in logs.items()}
    tensors = [T for T in ("Q", "K", "V", "O", "l", "m", "L") if any(e.name == T for log in logs.values() for e in log)]
    fig, axs = panels(len(logs), 3, size=(5.2 * len(logs), 7.6), sharey="row",
                      height_ratios=[3.4, 0.32 * len(tensors) + 0.2, 1.3])
    longest = max(len(moves) for _, moves in replays.values())
    for n, (name, (visits, moves)) in enumerate(replays.items()):
        tiles, moved, nbytes = axs[n::len(logs)]
        draw_tiles(tiles, name, visits, N_q, N_k)
        draw_moves(moved, color(name), moves, tensors)
        draw_bytes(nbytes, moves)
        for ax in (moved, nbytes):
            ax.set_xlim(0.3, longest + 0.7)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axs[0].set_ylabel("query block i")
    axs[2 * len(logs)].set_ylabel("bytes a step")
    byte_axis(axs[2 * len(logs)].yaxis)
    return finish(fig, traversal_title(replays, N_q, N_k), f"{REPLAYED} Numbers: order of visits. ▼ load from HBM, △ "
                                                           "store to HBM; dark bars read, light bars written.")


def traversal_title(replays, N_q, N_k):
    """Of one kernel: what moves in every step. Of several: what the one that moves least keeps on the chip."""
    totals = {name: sum(nbytes for step in moves for *_, nbytes in step) for name, (_, moves) in replays.items()}
    most, least = max(totals, key=totals.get), min(totals, key=totals.get)
    visits, moves = replays[least]
    if len(replays) == 1:
        always = [T for T in "QKVOlmL" if all(any(tensor == T for _, tensor, _ in step) for step in moves)]
        each = ", ".join(always)
        return f"{label(least)} moves {each} in each of its {len(moves)} steps: {bytes_text(totals[least])}"
    there = math.prod(len(blocks_of(visits, axis, N)) for axis, N in ((0, N_q), (1, N_k)))
    if len(visits) < there:                                # two causes for one difference: the title claims neither
        return (f"{label(least)} skips {there - len(visits)} of {there} tiles: {bytes_text(totals[least])}, "
                f"{label(most)} {bytes_text(totals[most])}")
    loads = {name: {T for step in moves for verb, T, _ in step if verb == "load"}
             for name, (_, moves) in replays.items()}
    spared = ", ".join(T for T in ("O", "l", "m") if T in loads[most] - loads[least])
    return (f"{label(least)} keeps {spared} on the chip and moves {bytes_text(totals[least])} where {label(most)} "
            f"moves {bytes_text(totals[most])}")


def blocks_of(visits, axis, N):
    """The blocks of 0 … N, with the size that the visits show, whether visited or not."""
    return blocks(N, max((visit[axis][1] - visit[axis][0] for visit in visits), default=N))


def draw_tiles(ax, name, visits, N_q, N_k):
    rows, cols = blocks_of(visits, 0, N_q), blocks_of(visits, 1, N_k)
    order, fills = {visit: n for n, visit in enumerate(visits)}, shades(color(name), len(visits), 0.12)
    for top, bottom in rows:
        for left, right in cols:
            n, width, height = order.get(((top, bottom), (left, right))), right - left, bottom - top
            if n is None:
                box(ax, left, top, width, height, "white", edge=GREY, hatch="///", lw=0.8)
                continue
            roomy = 2 * width > cols[0][1] and 2 * height > rows[0][1]    # not a short last tile
            box(ax, left, top, width, height, fills[n], n + 1 if len(visits) <= 100 and roomy else "", lw=1.5,
                size=10 if len(visits) <= 36 else 7)
    skipped = len(rows) * len(cols) - len(visits)
    grid(ax, N_k, N_q, xlabel="key block j", equal=True, colour=color(name),
         title=f"{label(name)}: {len(visits)} tiles" + (f", {skipped} skipped" if skipped else ""))
    for ticks, found in ((ax.set_xticks, cols), (ax.set_yticks, rows)):
        named = range(0, len(found), math.ceil(len(found) / 10))        # at most ten names, or they overlap
        ticks([sum(found[n]) / 2 for n in named], named)


def draw_moves(ax, colour, moves, tensors):
    for n, step in enumerate(moves, start=1):
        for verb, tensor, _ in step:
            shape, down, fill = ("v", -0.18, colour) if verb == "load" else ("^", 0.18, "white")
            if tensor in tensors:
                ax.plot(n, tensors.index(tensor) + down, shape, ms=5, color=colour, mfc=fill)
    ax.set(ylim=(len(tensors) - 0.4, -0.6))
    ax.set_yticks(range(len(tensors)), tensors)
    ax.tick_params(axis="x", labelbottom=False)
    ax.grid(axis="y")


def draw_bytes(ax, moves):
    """Bars of the bytes read and written in each step."""
    read, written = ([sum(nbytes for v, _, nbytes in step if v == verb) for step in moves]
                     for verb in ("load", "store"))
    steps = range(1, len(moves) + 1)
    ax.bar(steps, read, 0.8, color=READ)
    ax.bar(steps, written, 0.8, bottom=read, color=WRITTEN)
    ax.set_xlabel("step")
    ax.set_title(f"{bytes_text(sum(read + written))} in {len(moves)} steps", fontsize=9)
