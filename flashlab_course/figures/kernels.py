"""The pictures of chapters 10 and 11: who runs which tile, which addresses exist, what an error is made of, what fits a GPU."""

import math

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle

from flashlab.validate import check_positive
from flashlab_course.figures.style import INK, READ, YOURS, bare, figure, finish, ink_on, ramp
from flashlab_course.figures.tiles import replay
from flashlab_course.figures.words import bytes_text

KERNEL, MISSING, WRONG = "#7A1FA2", "#F6D5C6", "#D55E00"
HEADS = ("#7A1FA2", "#0072B2", "#009E73", "#A97400")


@figure
def program_grid(B, H, N_q, B_r):
    """Which program owns which query block of which head: B·H·⌈N_q/B_r⌉ of them, numbered as the kernel's grid is."""
    check_positive(B=B, H=H, N_q=N_q, B_r=B_r)
    T_r = math.ceil(N_q / B_r)
    fig, ax = plt.subplots(figsize=(max(5.5, 1.1 * B * H + 1), 4.2))
    for head in range(B * H):
        for i in range(T_r):
            rows = min(B_r, N_q - i * B_r)
            shade = ramp(HEADS[head // H % len(HEADS)], lightest=0.25)(i / max(1, T_r - 1))
            ax.add_patch(Rectangle((head + 0.06, i * B_r), 0.88, rows, fc=shade, ec="white", lw=1))
            if B * H * T_r <= 120:
                ax.text(head + 0.5, i * B_r + rows / 2, head * T_r + i, ha="center", va="center",
                        fontsize=9 if rows > N_q / 15 else 6, color=ink_on(shade))
    ax.set(xlim=(0, B * H), ylim=(N_q, 0), ylabel="query row")
    ax.set_yticks([*range(0, T_r * B_r, B_r)])
    ax.set_xticks([head + 0.5 for head in range(B * H)], [f"b = {head // H}\nh = {head % H}" for head in range(B * H)])
    bare(ax)
    last = N_q - (T_r - 1) * B_r
    return finish(fig, f"{B * H * T_r} programs, one for each query block of each head; the last block has {last} of {B_r} rows",
                  f"Definition: the grid of B = {B}, H = {H}, N_q = {N_q}, B_r = {B_r}. In the boxes: tl.program_id(0).")


@figure
def tile_over_memory(N_q, d, B_r, i):
    """The addresses of one tile over two heads that lie one behind the other: those with a row of their own, and the others."""
    check_positive(N_q=N_q, d=d, B_r=B_r)
    first, stop = i * B_r, min((i + 1) * B_r, N_q)
    rows = range(max(0, first - 4), first + B_r + 4)
    fig, ax = plt.subplots(figsize=(8, 1.2 + 0.09 * len(rows)))
    for y, row in enumerate(rows):
        inside, foreign = first <= row < stop, stop <= row < first + B_r
        fill = ramp(KERNEL, 0.6)(0.3) if inside else MISSING if foreign else "#F3F3F3"
        ax.add_patch(Rectangle((0, y), d, 1, fc=fill, ec="white", lw=0.6))
    ax.axhline(N_q - rows[0], color=INK, lw=1.6)
    ax.add_patch(Rectangle((0, first - rows[0]), d, B_r, fill=False, ec=KERNEL, lw=2))
    for row, text in ((first, f"row {first}: the tile begins"), (N_q - 0.5, f"rows {N_q - 1} and 0: the next head begins"),
                      (first + B_r - 1, f"the tile ends: row {first + B_r - 1 - N_q} of the next head")):
        ax.annotate(text, (d, row - rows[0] + 0.5), (8, 0), textcoords="offset points", va="center", fontsize=8.5,
                    annotation_clip=False)
    ax.set(xlim=(0, d * 1.02), ylim=(len(rows), 0), xlabel="column")
    ax.set_xticks([0.5, d - 0.5], [0, d - 1])
    ax.set_yticks([])
    bare(ax)
    missing = first + B_r - stop
    return finish(fig, f"Block {i}: {B_r} rows of addresses, {stop - first} of them its own; the mask holds back {missing} × {d}",
                  f"Definition: contiguous heads of N_q = {N_q} rows and d = {d} columns. Purple: mask true. Orange: mask false.")


@figure
def scores_and_limit(S):
    """How many scores lie beyond the largest float16. S: a tensor of scores."""
    limit = torch.finfo(torch.float16).max
    scores = S.detach().float().abs().flatten().cpu()
    infinite = scores.half().isinf()
    beyond = int(infinite.sum())
    fig, ax = plt.subplots(figsize=(8, 2.9))
    bins = torch.linspace(0, 1.02 * scores.max().item(), 41).tolist()
    ax.hist(scores[~infinite].tolist(), bins, color=READ)
    ax.hist(scores[infinite].tolist(), bins, color=WRONG)
    ax.axvline(limit, ls="--", color=INK, lw=1.2)
    ax.annotate(f"float16 ends at {limit:.0f}", (limit, 1), (5, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                va="top", fontsize=9)
    ax.set(xlabel="|score|", ylabel="scores")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    return finish(fig, f"{beyond} of {len(scores)} scores would be infinite in float16: tl.dot returns float32",
                  "Measured here: one tile of Q Kᵀ from the kernel above.")


@figure
def phantom_weights(P, N_k):
    """Weights of a query block over padded keys. P (rows, keys) with keys beyond N_k that do not exist."""
    P = P.detach().double().cpu()
    share = P[:, N_k:].sum().item() / P.sum().item()
    fig, ax = plt.subplots(figsize=(8.6, 3.2))
    shown = ax.imshow(P.numpy(), cmap=ramp(KERNEL, 0.0), vmin=0, aspect="auto", extent=(0, P.shape[1], len(P), 0))
    ax.axvline(N_k, color=WRONG, lw=2)
    ax.annotate("no such keys", (N_k, 0), (4, 3), textcoords="offset points", color=WRONG, fontsize=9, fontweight="bold",
                annotation_clip=False)
    ax.set(xlabel="key", ylabel="query")
    ax.set_xticks([0, N_k, P.shape[1]])
    fig.colorbar(shown, ax=ax, label="weight", pad=0.02)
    return finish(fig, f"{P.shape[1] - N_k} keys of zeros, loaded behind the last real one, take {100 * share:.0f} % of the weight",
                  "Measured here: the softmax of the scores that a load mask alone leaves.")


@figure
def causal_tiles(log, N_q, N_k, owner="query"):
    """The tiles that causal attention visits, those of them that need a mask, and how many each program has.

    log: of a causal rung, one kernel's events; owner: whose block a program holds, "query" (rows) or "key" (columns).
    """
    visits, _ = replay(log)
    B_r, B_c = (max(stop - start for start, stop in (visit[axis] for visit in visits)) for axis in (0, 1))
    T_r, T_c = math.ceil(N_q / B_r), math.ceil(N_k / B_c)
    fig, (ax, bars) = plt.subplots(1, 2, figsize=(9, 4), gridspec_kw={"width_ratios": [1.5, 1]})
    masked, counts = 0, [0] * (T_r if owner == "query" else T_c)
    for i in range(T_r):
        for j in range(T_c):
            r0, r1, c0, c1 = i * B_r, min(N_q, (i + 1) * B_r), j * B_c, min(N_k, (j + 1) * B_c)
            seen, edge = ((r0, r1), (c0, c1)) in visits, c1 - 1 > r0 + N_k - N_q
            masked += seen and edge
            counts[i if owner == "query" else j] += seen
            fill = "white" if not seen else ramp(KERNEL, 0.5)(0.0) if edge else KERNEL
            ax.add_patch(Rectangle((c0, r0), c1 - c0, r1 - r0, fc=fill, ec="#AAAAAA" if not seen else "white", lw=1,
                                   hatch=None if seen else "///"))
    ax.set(xlim=(0, N_k), ylim=(N_q, 0), aspect="equal", xlabel="key", ylabel="query")
    ax.set_xticks(range(0, N_k + 1, B_c))
    ax.set_yticks(range(0, N_q + 1, B_r))
    bare(ax)
    if owner == "query":
        bars.barh(range(len(counts)), counts, 0.7, color=KERNEL)
        bars.set(ylim=(len(counts) - 0.5, -0.5), xlabel="tiles to visit", ylabel="program (query block i)")
        bars.set_yticks(range(len(counts)))
    else:
        bars.bar(range(len(counts)), counts, 0.7, color=KERNEL)
        bars.set_yticks(range(max(counts) + 1))
        bars.set(ylabel="tiles to visit", xlabel="program (key block j)")
        bars.set_xticks(range(len(counts)))
    busiest, laziest = counts.index(max(counts)), counts.index(min(counts))
    return finish(fig, f"Program {busiest} visits {max(counts)} tiles, program {laziest} visits {min(counts)}; "
                       f"{masked} of {len(visits)} visited tiles need the mask",
                  "Modelled: replayed from the log of flashlab.memory. Dark: all visible, light: masked, hatched: never loaded.")


@figure
def tile_grids(calls, N):
    """The tiles of an N x N matrix S that several calls compute, side by side, and the bytes that each moves.

    calls: {words: [(log, start), ...]}: the kernel's events of each sequence, and the token that the sequence begins at
    Raises: ValueError for a log without tiles
    """
    fig, axes = plt.subplots(1, len(calls), figsize=(3.4 * len(calls), 3.9), squeeze=False)
    counts = []
    for ax, (words, logs) in zip(axes[0], calls.items(), strict=True):
        visits = [[(low + start, high + start) for low, high in visit] for log, start in logs for visit in replay(log)[0]]
        moved = sum(event.read + event.written for log, _ in logs for event in log)
        if not visits:
            raise ValueError(f"the log of {words!r} must have loads of Q and of K before a matrix product: are they one tensor?")
        counts.append(len(visits))
        ax.add_patch(Rectangle((0, 0), N, N, fc="white", ec="#AAAAAA", hatch="///", lw=1))
        for (r0, r1), (c0, c1) in visits:
            ax.add_patch(Rectangle((c0, r0), c1 - c0, r1 - r0, fc=KERNEL, ec="white", lw=1))
        ax.set(xlim=(0, N), ylim=(N, 0), aspect="equal", xlabel="key", title=f"{words}\n{len(visits)} tiles, {bytes_text(moved)}")
        bare(ax)
    axes[0, 0].set_ylabel("query")
    return finish(fig, f"Tiles computed: {', '.join(f'{n} for {words}' for n, words in zip(counts, calls, strict=True))}",
                  "Modelled: replayed from the log of flashlab.memory. Hatched: never loaded.")


@figure
def errors_by_dtype(rows, words):
    """Largest and root-mean-square error of a kernel, for each dtype. rows: dicts of dtype, causal, max, rms; words: from where."""
    fig, ax = plt.subplots(figsize=(8, 3.8))
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    for n, dtype in enumerate(dtypes):
        half = torch.finfo(getattr(torch, dtype)).eps / 2
        ax.hlines(half, n - 0.42, n + 0.42, color=INK, ls="--", lw=1.2)
        for row in (row for row in rows if row["dtype"] == dtype):
            x = n + (0.14 if row["causal"] else -0.14)
            ax.plot([x, x], [row["rms"], row["max"]], color=KERNEL, lw=1)
            ax.plot(x, row["max"], "o", color=KERNEL)
            ax.plot(x, row["rms"], "o", color=KERNEL, mfc="white")
            ax.annotate("causal" if row["causal"] else "no mask", (x, row["rms"]), (0, -6), textcoords="offset points", ha="center",
                        va="top", fontsize=8)
    low, high = min(row["rms"] for row in rows), max(row["max"] for row in rows)
    ax.set(yscale="log", ylabel="error against float64", ylim=(low / 5, 3 * high), xlim=(-0.6, len(dtypes) - 0.4))
    ax.set_xticks(range(len(dtypes)), dtypes)
    ax.grid(axis="y")
    ratios = [row["max"] / row["rms"] for row in rows]
    return finish(fig, f"The largest error is {min(ratios):.0f} to {max(ratios):.0f} times the root mean square: judge by both",
                  f"{words} Filled: maximum, hollow: root mean square; dashed: what rounding a 1 can cost.")


@figure
def rounding_budget(rms, words):
    """What each rounding adds to the error of O. rms: what is rounded -> root-mean-square error; words: from where."""
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.5 * len(rms)))
    for y, error in enumerate(rms.values()):
        ax.barh(y, error, 0.62, color=KERNEL)
        ax.annotate(f"{error:.2e}", (error, y), (4, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set(ylim=(len(rms) - 0.4, -0.6), xlim=(0, 1.2 * max(rms.values())), xlabel="rms error of O against float64")
    ax.set_yticks(range(len(rms)), rms)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    (first, a), (second, b), *_ = rms.items()
    return finish(fig, f"“{second}” makes {100 * b**2 / (a**2 + b**2):.0f} % of the squared error, “{first}” the rest", words)


@figure
def compiled_kernels(rows):
    """Registers, spills and shared memory of kernels as compiled.

    rows: dicts of name, registers, spills, shared and limit (bytes); with refused, the compiler's reason, where there is no more.
    A name that says "yours" has the learner's colour.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.4, 1.2 + 0.5 * len(rows)), sharey=True)
    for y, row in enumerate(rows):
        if row.get("refused"):
            words = f"does not compile: {row['refused'][:60]}"
            left.annotate(words, (0, y), (5, 0), textcoords="offset points", va="center", fontsize=9)
            continue
        colour = YOURS if "yours" in row["name"] else KERNEL
        left.barh(y, row["registers"], 0.6, color=WRONG if row["spills"] else colour)
        text = f"{row['registers']}" + (f", and {row['spills']} bytes spilled" if row["spills"] else "")
        left.annotate(text, (row["registers"], y), (-5, 0), textcoords="offset points", va="center", ha="right", fontsize=9,
                      color="white", fontweight="bold")
        right.barh(y, row["shared"], 0.6, color=colour)
        right.plot([row["limit"]] * 2, [y - 0.4, y + 0.4], "--", color=INK, lw=1.2)
        inside = row["shared"] > 0.6 * row["limit"]                        # behind the bar the limit would cross the number out
        right.annotate(bytes_text(row["shared"]), (row["shared"], y), (-5 if inside else 4, 0), textcoords="offset points",
                       va="center", ha="right" if inside else "left", color="white" if inside else INK, fontsize=9)
    left.axvline(255, ls="--", color=INK, lw=1.2)
    left.set(xlabel="registers a thread (at most 255)", xlim=(0, 270), ylim=(len(rows) - 0.4, -0.6))
    left.set_yticks(range(len(rows)), [row["name"] for row in rows])
    most = max((row["limit"] for row in rows if not row.get("refused")), default=2**16)
    right.set(xlabel="shared memory a program", xlim=(0, 1.12 * most))
    right.set_xticks([n * 2**16 for n in range(int(most / 2**16) + 1)])
    right.xaxis.set_major_formatter(lambda x, _: bytes_text(x))
    return finish(fig, _compiled_title(rows),
                  "Measured here: compiled by Triton for a GPU that need not be here. Dashed: the most there is.")


def _compiled_title(rows):
    if refused := sum(bool(row.get("refused")) for row in rows):
        return f"{refused} of {len(rows)} do not compile"
    spilling = sum(bool(row["spills"]) for row in rows)
    if spilling:
        verb = "spills" if spilling == 1 else "spill"
        return f"{spilling} of {len(rows)} kernels {verb} registers; shared memory would allow all of them"
    return f"None of the {len(rows)} spills a register, and all fit the shared memory"


@figure
def padded_weight(scores, weights):
    """The weight that a padded key gets in the backward pass if it is not hidden, against the level of the real scores."""
    fig, ax = plt.subplots(figsize=(8, 3.4))
    finite = [(s, w) for s, w in zip(scores, weights, strict=True) if math.isfinite(w) and w > 0]
    gone = [s for s, w in zip(scores, weights, strict=True) if math.isinf(w)]
    ax.plot(*zip(*finite, strict=True), "o-", color=KERNEL, ms=4)
    top = torch.finfo(torch.float32).max
    ax.axhline(top, ls="--", color=INK, lw=1.2)
    ax.annotate("float32 ends here", (1, top), (0, -3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
                va="top", fontsize=9)
    ax.plot(gone, [top] * len(gone), "X", color=WRONG, ms=8, clip_on=False)
    ax.set(yscale="log", xlabel="level of the real scores", ylabel="weight of a key that is not there")
    ax.invert_xaxis()
    words = f"from scores of {max(gone):.0f} on it is infinite, and ∞ · 0 is NaN" if gone else "it stays finite here"
    return finish(fig, f"An unhidden padded key weighs exp(0 − L): {words}",
                  "Measured here: exp2 in float32, as the kernel takes it. Crosses: infinite.")


@figure
def tile_on_its_side(B_r, B_c):
    """S with queries in rows, and Sᵀ with keys in rows: where L and D lie, and which product takes the tile as it stands."""
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.7))
    for ax, (rows, columns, down, across, vector) in zip(axes, (
            (B_r, B_c, "queries", "keys", "column"), (B_c, B_r, "keys", "queries", "row")), strict=True):
        ax.add_patch(Rectangle((0, 0), columns, rows, fc=ramp(KERNEL, 0.2)(0.0), ec=KERNEL, lw=1.5))
        size = 0.09 * max(B_r, B_c)
        strip = (-1.6 * size, 0, size, rows) if vector == "column" else (0, -1.6 * size, columns, size)
        ax.add_patch(Rectangle(strip[:2], *strip[2:], fc="#FFF4D6", ec=INK, lw=1))
        ax.text(strip[0] + strip[2] / 2, strip[1] + strip[3] / 2, "L, D", ha="center", va="center", fontsize=8,
                rotation=90 if vector == "column" else 0)
        tile = "P" if vector == "column" else "Pᵀ"
        ax.text(columns / 2, rows / 2, tile, ha="center", va="center", fontsize=16, fontweight="bold")
        ax.text(columns / 2, rows * 1.03, across, ha="center", va="top", fontsize=9)
        ax.text(columns * 1.03, rows / 2, down, va="center", rotation=270, fontsize=9)
        ax.set(xlim=(-2.2 * size, 1.15 * columns), ylim=(1.15 * rows, -2.2 * size), aspect="equal")
        ax.axis("off")
        ax.set_title("Q Kᵀ, as dQ wants it" if vector == "column" else "K Qᵀ, as dK and dV want it", fontweight="bold")
    return finish(fig, "Keys in rows: the next two products take the tile as it stands, and L and D lie along its columns",
                  f"Definition: one tile of B_r = {B_r} queries and B_c = {B_c} keys.")


@figure
def masks_compared(first, second, names):
    """Two dropout masks, and where they differ. first, second: bool, True where a weight stays; names: of the two."""
    differ = (first != second).cpu()
    fig, axes = plt.subplots(1, 3, figsize=(9.4, 3.5), sharey=True)
    shown = zip(axes, (first.cpu(), second.cpu(), differ), (*names, "differ"), (READ, READ, WRONG), strict=True)
    for ax, mask, title, colour in shown:
        ax.imshow(mask.numpy(), cmap=ramp(colour, 0.0), vmin=0, vmax=1, interpolation="nearest")
        ax.set(xlabel="key", xticks=[], yticks=[])
        ax.set_title(title, fontweight="bold")
    axes[0].set_ylabel("query")
    share = differ.double().mean().item()
    title = f"{100 * share:.0f} % are kept in one mask, dropped in the other" if share else "The same mask, whatever the tiles"
    return finish(fig, title, f"Measured here: {first.shape[0]} queries, {first.shape[1]} keys. Dark: kept; orange: kept in one, "
                              "dropped in the other.")
