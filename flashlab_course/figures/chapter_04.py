"""The pictures of tiles, from chapter 04 on: in which order a kernel visits them, and what it moves for each."""

import numpy as np

from flashlab.cost import ceil_div
from flashlab.validate import check_positive
from flashlab_course.figures.colors import READ, WRITTEN, color
from flashlab_course.figures.plots import axis_names, heat_map, matrices, panels
from flashlab_course.figures.style import byte_axis, figure, finish
from flashlab_course.figures.words import bytes_text, label

REPLAYED = "Modelled: replayed from the log of flashlab.memory."


def replay(log):
    """The visits (rows, cols) in order, and for each [bytes read, bytes written].

    A tile is visited when a matrix product follows the loads of Q_i and K_j. Loads before it and stores after it are
    its own.
    """
    visits, moves, pending = [], [], [0, 0]
    at, new = {"Q": None, "K": None}, False
    for event in log:
        if event.kind == "load":
            pending[0] += event.read
            if event.name in at:
                at[event.name], new = event.rows, True
        elif event.kind == "store":                      # pending: of a query block that sees no key at all
            (moves[-1] if moves and pending == [0, 0] else pending)[1] += event.written
        elif event.name == "mm" and at["K"]:
            if new:
                visits.append((at["Q"], at["K"]))
                moves.append([0, 0])
            moves[-1] = [a + b for a, b in zip(moves[-1], pending, strict=True)]      # V_j comes between two products
            pending, new = [0, 0], False
    if moves:
        moves[-1] = [a + b for a, b in zip(moves[-1], pending, strict=True)]
    return visits, moves


def tile_size(visits):
    """(B_r, B_c): of the largest tile, as the last ones may be short."""
    rows, cols = zip(*visits, strict=True)
    return max(stop - start for start, stop in rows), max(stop - start for start, stop in cols)


def visit_order(log, N_q, N_k):
    """For each tile of S its place in the order of visits, from 1 on; NaN for a tile that was skipped."""
    visits, _ = replay(log)
    B_r, B_c = tile_size(visits)
    order = np.full((ceil_div(N_q, B_r), ceil_div(N_k, B_c)), np.nan)
    for n, (rows, cols) in enumerate(visits, start=1):
        order[rows[0] // B_r, cols[0] // B_c] = n
    return order


@figure
def tile_traversal(logs, N_q, N_k):
    """The order in which each kernel visits the (i, j) tiles of S, and the bytes that cross HBM at each step.

    logs: {"fa1_forward": mem1.log, "fa2_forward": mem2.log}. Made for small grids such as 4 x 4 tiles.
    """
    check_positive(N_q=N_q, N_k=N_k)
    fig, axs = panels(len(logs), 2, size=(max(6, 4.6 * len(logs)), 5.4), sharey="row", height_ratios=[2, 1])
    said = []
    for n, (name, log) in enumerate(logs.items()):
        order, (visits, moves) = visit_order(log, N_q, N_k), replay(log)
        tiles, nbytes = axs[n], axs[len(logs) + n]
        heat_map(tiles, order / len(visits), np.where(np.isnan(order), "", np.char.mod("%d", np.nan_to_num(order))))
        tiles.set_title(f"{label(name)}: {len(visits)} of {order.size} tiles", color=color(name), fontweight="bold")
        tiles.set(xlabel="key block j", ylabel="query block i")
        axis_names(tiles.set_xticks, range(order.shape[1]), 0)
        axis_names(tiles.set_yticks, range(order.shape[0]), 0)
        read, written = zip(*moves, strict=True)
        nbytes.bar(range(1, len(moves) + 1), read, 0.8, color=READ)
        nbytes.bar(range(1, len(moves) + 1), written, 0.8, bottom=read, color=WRITTEN)
        nbytes.set(xlabel="step", ylabel="bytes")
        nbytes.xaxis.get_major_locator().set_params(integer=True)
        said.append(f"{label(name)} moves {bytes_text(sum(map(sum, moves)))} in {len(visits)} steps")
    byte_axis(nbytes.yaxis)
    return finish(fig, ", ".join(said),
                  f"{REPLAYED} Numbers: the order of visits. Dark: read from HBM, light: written.")


@figure
def causal_tiles(log, N_q, N_k):
    """The tiles that causal attention visits, those of them that need a mask, and how many each key block has.

    log: of a causal rung, the events of a kernel whose programs hold key blocks
    """
    seen = ~np.isnan(visit_order(log, N_q, N_k))
    shades = np.where(seen, 1, np.nan)
    B_r, B_c = tile_size(replay(log)[0])
    for i, j in np.argwhere(seen):
        if min(N_k, (j + 1) * B_c) - 1 > i * B_r + N_k - N_q:                # its last key is after its first query
            shades[i, j] = 0.4
    counts, last = seen.sum(0), seen.shape[1] - 1
    return matrices({"": (shades, np.where(shades < 1, "mask", ""))},
                    f"Key block 0 meets {counts[0]} query blocks; key block {last} meets {counts[last]}, and starts at "
                    f"query block {seen[:, last].argmax()}",
                    f"{REPLAYED} A program holds a key block. White: never loaded.", "key block j",
                    "query block i", rows=range(len(seen)), columns=range(last + 1))


@figure
def tile_grids(calls, N):
    """The tiles of an N x N matrix S that several calls compute, side by side, and the bytes that each moves.

    calls: {words: [(log, start), ...]}: the kernel's events of each sequence, and the token that the sequence begins at
    """
    drawn, said = {}, []
    for words, logs in calls.items():
        visits = [(start, *visit) for log, start in logs for visit in replay(log)[0]]
        moved = sum(event.read + event.written for log, _ in logs for event in log)
        shades = np.full((N, N), np.nan)
        for n, (start, (top, bottom), (left, right)) in enumerate(visits):
            shades[start + top:start + bottom, start + left:start + right] = 1 - 0.4 * (n % 2)
        drawn[f"{words}\n{len(visits)} tiles, {bytes_text(moved)}"] = shades
        said.append(f"{len(visits)} for {words}")
    return matrices(drawn, f"Tiles computed: {', '.join(said)}", f"{REPLAYED} White: never loaded.", "key", "query")
