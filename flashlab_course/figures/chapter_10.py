"""The pictures of chapters 10 and 11: programs, addresses, masks, errors, and what fits a GPU."""

import math

import torch

from flashlab.validate import check_positive
from flashlab_course.figures.chapter_04 import REPLAYED, blocks, replay
from flashlab_course.figures.colors import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, READ, YOURS, ramp, shades
from flashlab_course.figures.plots import box, canvas, first_and_last, grid, heading, panel, panels, stack, wall, write
from flashlab_course.figures.style import figure, finish, note, set_ticks
from flashlab_course.figures.words import bytes_text

LIGHT, MISSING = "#BD90D1", "#F6D5C6"      # half of PURPLE; an address outside the tensor
HEADS = (PURPLE, BLUE, GREEN, "#A97400")


@figure
def program_grid(B, H, N_q, B_r):
    """Which program owns which query block of which head: B·H·⌈N_q/B_r⌉ of them, numbered as the kernel's grid is."""
    check_positive(B=B, H=H, N_q=N_q, B_r=B_r)
    rows = blocks(N_q, B_r)
    programs = B * H * len(rows)
    fig, ax = panel(max(5.5, 1.1 * B * H + 1), 4.2)
    for head in range(B * H):
        fills = shades(HEADS[head // H % len(HEADS)], len(rows), 0.25)
        for i, (top, bottom) in enumerate(rows):
            box(ax, head + 0.06, top, 0.88, bottom - top, fills[i], head * len(rows) + i if programs <= 120 else "",
                size=9 if bottom - top > N_q / 15 else 6)
    grid(ax, B * H, N_q, ylabel="query row", columns=[f"b = {head // H}\nh = {head % H}" for head in range(B * H)],
         size=10)
    ax.set_yticks([top for top, _ in rows])
    return finish(fig, f"{programs} programs, one for each query block of each head; the last block has "
                       f"{N_q - rows[-1][0]} of {B_r} "
                       "rows", f"Definition: the grid of B = {B}, H = {H}, N_q = {N_q}, B_r = {B_r}. In the boxes: "
                               "tl.program_id(0).")


@figure
def tile_over_memory(N_q, d, B_r, i):
    """The addresses of one tile over two heads that lie one behind the other: its own rows, and the next head's."""
    check_positive(N_q=N_q, d=d, B_r=B_r)
    first, stop = i * B_r, min((i + 1) * B_r, N_q)
    begin, end = max(0, first - 4), first + B_r
    fig, ax = panel(8, 1.2 + 0.09 * (end + 4 - begin))
    for row in range(begin, end + 4):
        box(ax, 0, row - begin, d, 1, LIGHT if first <= row < stop else MISSING if stop <= row < end else PALE, lw=0.6)
    ax.axhline(N_q - begin, color=INK, lw=1.6)
    box(ax, 0, first - begin, d, B_r, "none", edge=PURPLE, lw=2)
    for row, text in ((first, f"row {first}: the tile begins"),
                      (N_q - 0.5, f"rows {N_q - 1} and 0: the next head begins"),
                      (end - 1, f"the tile ends: row {end - 1 - N_q} of the next head")):
        note(ax, text, d, row - begin + 0.5, 8, fontsize=8.5, annotation_clip=False)
    grid(ax, d, end + 4 - begin, xlabel="column", columns=first_and_last(d), size=10)
    return finish(fig, f"Block {i}: {B_r} rows of addresses, {stop - first} of them its own; the mask holds back "
                       f"{end - stop} × {d}",
                  f"Definition: contiguous heads of N_q = {N_q} rows and d = {d} columns. Purple: mask true. Orange: "
                  "mask false.")


@figure
def scores_and_limit(S):
    """How many scores lie beyond the largest float16. S: a tensor of scores."""
    scores, limit = S.detach().float().abs().flatten().cpu(), torch.finfo(torch.float16).max
    infinite = scores.half().isinf()
    fig, ax = panel(8, 2.9)
    bins = torch.linspace(0, 1.02 * scores.max().item(), 41).tolist()
    ax.hist(scores[~infinite].tolist(), bins, color=READ)
    ax.hist(scores[infinite].tolist(), bins, color=ORANGE)
    wall(ax, f"float16 ends at {limit:.0f}", limit)
    ax.set(xlabel="|score|", ylabel="scores")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    return finish(fig,
                  f"{int(infinite.sum())} of {len(scores)} scores would be infinite in float16: tl.dot returns float32",
                  "Measured here: one tile of Q Kᵀ from the kernel above.")


@figure
def phantom_weights(P, N_k):
    """Weights of a query block over padded keys. P (rows, keys) with keys beyond N_k that do not exist."""
    P = P.detach().double().cpu()
    rows, keys = P.shape
    fig, ax = panel(8.6, 3.2)
    shown = ax.imshow(P.numpy(), cmap=ramp(PURPLE, 0.0), vmin=0, aspect="auto", extent=(0, keys, rows, 0))
    ax.axvline(N_k, color=ORANGE, lw=2)
    note(ax, "no such keys", N_k, 0, 4, 7, color=ORANGE, fontweight="bold", annotation_clip=False)
    ax.set(xlabel="key", ylabel="query", xticks=[0, N_k, keys])
    fig.colorbar(shown, ax=ax, label="weight", pad=0.02)
    share = P[:, N_k:].sum() / P.sum()
    return finish(fig, f"{keys - N_k} keys of zeros, loaded behind the last real one, take {100 * share:.0f} % of the "
                       "weight", "Measured here: the softmax of the scores that a load mask alone leaves.")


@figure
def causal_tiles(log, N_q, N_k, owner="query"):
    """The tiles that causal attention visits, those of them that need a mask, and how many each program has.

    log: of a causal rung, one kernel's events; owner: whose block a program holds, "query" (rows) or "key" (columns).
    """
    visits, _ = replay(log)
    B_r, B_c = (max(stop - start for start, stop in (visit[axis] for visit in visits)) for axis in (0, 1))
    fig, (ax, programs) = panels(2, size=(9, 4), width_ratios=[1.5, 1])
    own = blocks(N_q, B_r) if owner == "query" else blocks(N_k, B_c)
    counts, masked = dict.fromkeys(own, 0), 0
    for rows in blocks(N_q, B_r):
        for cols in blocks(N_k, B_c):
            seen, edge = (rows, cols) in visits, cols[1] - 1 > rows[0] + N_k - N_q
            masked += seen and edge
            counts[rows if owner == "query" else cols] += seen
            box(ax, cols[0], rows[0], cols[1] - cols[0], rows[1] - rows[0],
                "white" if not seen else LIGHT if edge else PURPLE, edge="white" if seen else GREY,
                hatch=None if seen else "///")
    grid(ax, N_k, N_q, "key", "query", equal=True)
    ax.set(xticks=range(0, N_k + 1, B_c), yticks=range(0, N_q + 1, B_r))
    counts = list(counts.values())
    if owner == "query":
        stack(programs, {i: [(n, PURPLE)] for i, n in enumerate(counts)}, xlabel="tiles to visit")
        programs.set(ylabel="program (query block i)")
    else:
        programs.bar(range(len(counts)), counts, 0.7, color=PURPLE)
        programs.set(yticks=range(max(counts) + 1), ylabel="tiles to visit", xlabel="program (key block j)",
                     xticks=range(len(counts)))
    most, least = max(counts), min(counts)
    return finish(fig,
                  f"Program {counts.index(most)} visits {most} tiles, program {counts.index(least)} visits {least}; "
                  f"{masked} of {len(visits)} visited tiles need the mask",
                  f"{REPLAYED} Dark: all visible, light: masked, hatched: never loaded.")


@figure
def tile_grids(calls, N):
    """The tiles of an N x N matrix S that several calls compute, side by side, and the bytes that each moves.

    calls: {words: [(log, start), ...]}: the kernel's events of each sequence, and the token that the sequence begins at
    Raises: ValueError for a log without tiles
    """
    fig, axs = panels(len(calls), size=(3.4 * len(calls), 3.9))
    said = []
    for ax, (words, logs) in zip(axs, calls.items(), strict=True):
        visits = [(start, *visit) for log, start in logs for visit in replay(log)[0]]
        moved = sum(event.read + event.written for log, _ in logs for event in log)
        if not visits:
            raise ValueError(f"the log of {words!r} must have loads of Q and of K before a matrix product: are they "
                             "one tensor?")
        said.append(f"{len(visits)} for {words}")
        box(ax, 0, 0, N, N, "white", edge=GREY, hatch="///")
        for start, (top, bottom), (left, right) in visits:
            box(ax, left + start, top + start, right - left, bottom - top, PURPLE)
        grid(ax, N, N, xlabel="key", equal=True)
        ax.set_title(f"{words}\n{len(visits)} tiles, {bytes_text(moved)}")
    axs[0].set_ylabel("query")
    return finish(fig, f"Tiles computed: {', '.join(said)}", f"{REPLAYED} Hatched: never loaded.")


@figure
def errors_by_dtype(rows, words):
    """Largest and root-mean-square error of a kernel, for each dtype.

    rows: dicts of dtype, causal, max, rms; words: from where.
    """
    fig, ax = panel(8, 3.8)
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    for n, dtype in enumerate(dtypes):
        ax.hlines(torch.finfo(getattr(torch, dtype)).eps / 2, n - 0.42, n + 0.42, color=INK, ls="--", lw=1.2)
    for row in rows:
        x = dtypes.index(row["dtype"]) + (0.14 if row["causal"] else -0.14)
        ax.plot([x, x], [row["rms"], row["max"]], color=PURPLE, lw=1)
        ax.plot(x, row["max"], "o", color=PURPLE)
        ax.plot(x, row["rms"], "o", color=PURPLE, mfc="white")
        note(ax, "causal" if row["causal"] else "no mask", x, row["rms"], 0, -6, ha="center", va="top", fontsize=8)
    low, high = min(row["rms"] for row in rows), max(row["max"] for row in rows)
    ax.set(yscale="log", ylabel="error against float64", ylim=(low / 5, 3 * high), xlim=(-0.6, len(dtypes) - 0.4))
    ax.set_xticks(range(len(dtypes)), dtypes)
    ax.grid(axis="y")
    ratios = [row["max"] / row["rms"] for row in rows]
    return finish(fig, f"The largest error is {min(ratios):.0f} to {max(ratios):.0f} times the root mean square: judge "
                       "by both",
                  f"{words} Filled: maximum, hollow: root mean square; dashed: what rounding a 1 can cost.")


@figure
def rounding_budget(rms, words):
    """What each rounding adds to the error of O. rms: what is rounded -> root-mean-square error; words: from where."""
    fig, ax = panel(8, 0.9 + 0.5 * len(rms))
    stack(ax, {name: [(error, PURPLE)] for name, error in rms.items()}, [f"{error:.2e}" for error in rms.values()],
          "rms error of O against float64", room=1.2)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    (first, a), (second, b), *_ = rms.items()
    return finish(fig, f"“{second}” makes {100 * b**2 / (a**2 + b**2):.0f} % of the squared error, “{first}” the rest",
                  words)


@figure
def compiled_kernels(rows):
    """Registers, spills and shared memory of kernels as compiled.

    rows: dicts of name, registers, spills, shared and limit (bytes); with refused, the compiler's reason, where there
    is no more. A name that says "yours" has the learner's colour.
    """
    fig, (left, right) = panels(2, size=(9.4, 1.2 + 0.5 * len(rows)), sharey=True)
    for y, row in enumerate(rows):
        if row.get("refused"):
            note(left, f"does not compile: {row['refused'][:60]}", 0, y, 5)
            continue
        spills, fill = row["spills"], YOURS if "yours" in row["name"] else PURPLE
        left.barh(y, row["registers"], 0.6, color=ORANGE if spills else fill)
        note(left, f"{row['registers']}{f', and {spills} bytes spilled' if spills else ''}", row["registers"], y, -5,
             ha="right", color="white", fontweight="bold")
        right.barh(y, row["shared"], 0.6, color=fill)
        right.plot([row["limit"]] * 2, [y - 0.4, y + 0.4], "--", color=INK, lw=1.2)
        inside = row["shared"] > 0.6 * row["limit"]            # behind the bar the limit would cross the number out
        note(right, bytes_text(row["shared"]), row["shared"], y, -5 if inside else 4, ha="right" if inside else "left",
             color="white" if inside else INK)
    left.axvline(255, ls="--", color=INK, lw=1.2)
    left.set(xlabel="registers a thread (at most 255)", xlim=(0, 270), ylim=(len(rows) - 0.4, -0.6))
    left.set_yticks(range(len(rows)), [row["name"] for row in rows])
    most = max((row["limit"] for row in rows if not row.get("refused")), default=2**16)
    right.set(xlabel="shared memory a program", xlim=(0, 1.12 * most))
    set_ticks(right.xaxis, list(range(0, most + 1, 64 * 2**10)), bytes_text)
    return finish(fig, compiled_text(rows),
                  "Measured here: compiled by Triton for a GPU that need not be here. Dashed: the most there is.")


def compiled_text(rows):
    refused, spilling = (sum(bool(row.get(key)) for row in rows) for key in ("refused", "spills"))
    if refused:
        return f"{refused} of {len(rows)} do not compile"
    if spilling:
        verb = "spills" if spilling == 1 else "spill"
        return f"{spilling} of {len(rows)} kernels {verb} registers; shared memory would allow all of them"
    return f"None of the {len(rows)} spills a register, and all fit the shared memory"


@figure
def padded_weight(scores, weights):
    """The weight of a padded key in the backward pass if it is not hidden, against the level of the real scores."""
    top = torch.finfo(torch.float32).max
    finite = [(s, w) for s, w in zip(scores, weights, strict=True) if 0 < w < math.inf]
    gone = [s for s, w in zip(scores, weights, strict=True) if w == math.inf]
    fig, ax = panel(8, 3.4)
    ax.plot(*zip(*finite, strict=True), "o-", color=PURPLE, ms=4)
    ax.plot(gone, [top] * len(gone), "X", color=ORANGE, ms=8, clip_on=False)
    ax.axhline(top, ls="--", color=INK, lw=1.2)
    note(ax, "float32 ends here", 1, top, 0, -3, xycoords=ax.get_yaxis_transform(), ha="right", va="top")
    ax.set(yscale="log", xlabel="level of the real scores", ylabel="weight of a key that is not there")
    ax.invert_xaxis()
    words = f"from scores of {max(gone):.0f} on it is infinite, and ∞ · 0 is NaN" if gone else "it stays finite here"
    return finish(fig, f"An unhidden padded key weighs exp(0 − L): {words}",
                  "Measured here: exp2 in float32, as the kernel takes it. Crosses: infinite.")


@figure
def tile_on_its_side(B_r, B_c):
    """S with queries in rows, and Sᵀ with keys in rows: where L and D lie, and which product takes which tile."""
    size = 0.09 * max(B_r, B_c)
    fig, axs = panels(2, size=(9, 3.7))
    for ax, tile, rows, columns, down, across, strip, words in (
            (axs[0], "P", B_r, B_c, "queries", "keys", (-1.6 * size, 0, size, B_r), "Q Kᵀ, as dQ wants it"),
            (axs[1], "Pᵀ", B_c, B_r, "keys", "queries", (0, -1.6 * size, B_r, size), "K Qᵀ, as dK and dV want it")):
        box(ax, 0, 0, columns, rows, "#E4D2ED", tile, edge=PURPLE, lw=1.5, size=16)
        box(ax, *strip, "#FFF4D6", edge=INK)
        write(ax, strip[0] + strip[2] / 2, strip[1] + strip[3] / 2, "L, D", 8,
                rotation=90 if tile == "P" else 0)
        ax.text(columns / 2, rows * 1.03, across, ha="center", va="top", fontsize=9)
        ax.text(columns * 1.03, rows / 2, down, va="center", rotation=270, fontsize=9)
        canvas(ax, (-2.2 * size, 1.15 * columns), (1.15 * rows, -2.2 * size))
        heading(ax, words)
    return finish(fig,
                  "Keys in rows: the next two products take the tile as it stands, and L and D lie along its columns",
                  f"Definition: one tile of B_r = {B_r} queries and B_c = {B_c} keys.")


@figure
def masks_compared(first, second, names):
    """Two dropout masks, and where they differ. first, second: bool, True where a weight stays; names: of the two."""
    differ = first != second
    fig, axs = panels(3, size=(9.4, 3.5), sharey=True)
    for ax, mask, title, colour in zip(axs, (first, second, differ), (*names, "differ"), (READ, READ, ORANGE),
                                       strict=True):
        ax.imshow(mask.cpu().numpy(), cmap=ramp(colour, 0.0), vmin=0, vmax=1, interpolation="nearest")
        ax.set(xlabel="key", xticks=[], yticks=[])
        heading(ax, title)
    axs[0].set_ylabel("query")
    share = differ.double().mean().item()
    title = f"{100 * share:.0f} % are kept in one mask, dropped in the other"
    return finish(fig, title if share else "The same mask, whatever the tiles",
                  f"Measured here: {len(first)} queries, {first.shape[1]} keys. Dark: kept; orange: kept in one, "
                  "dropped in the other.")
