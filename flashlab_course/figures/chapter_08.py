"""The pictures of chapter 08: Jacobians, what feeds what on the way back, who owns which tiles, who moves what."""

import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from flashlab.validate import check_positive
from flashlab_course.figures.chapter_04 import REPLAYED, replay
from flashlab_course.figures.chapter_06 import moved_by_tensor, tensor_panels
from flashlab_course.figures.colors import BLUE, GREEN, INK, ORANGE, READ, WRITTEN, color, ramp, shades
from flashlab_course.figures.plots import box, canvas, cells, curves, grid, panel, panels, stack, wall, write
from flashlab_course.figures.style import figure, finish, note
from flashlab_course.figures.words import by, bytes_text, group, label


@figure
def jacobian_of_product(N, K, M):
    """The Jacobian of Y = XW with respect to X: rows are the elements of Y (N, M), columns those of X (N, K)."""
    check_positive(N=N, K=K, M=M)
    W = torch.randn(K, M, generator=torch.Generator().manual_seed(0))
    J = torch.autograd.functional.jacobian(lambda X: X @ W, torch.zeros(N, K)).reshape(N * M, N * K).tolist()
    fig, ax = panel(max(5, 1.6 + 0.42 * N * K), max(3, 1.5 + 0.42 * N * M))
    cells(ax, [[GREEN if value else "white" for value in row] for row in J],
          [[f"$W_{{{x % K}{y % M}}}$" if value else "0" for x, value in enumerate(row)] for y, row in enumerate(J)],
          xlabel="element of X", ylabel="element of Y", columns=[f"$X_{{{x // K}{x % K}}}$" for x in range(N * K)],
          rows=[f"$Y_{{{y // M}{y % M}}}$" for y in range(N * M)], equal=True, size=10)
    for n in range(N):
        box(ax, n * K, n * M, K, M, "none", edge=INK, lw=1.5)
    return finish(fig, f"1 / {N} of it is not 0, and that is {N} copies of Wᵀ",
                  "Definition: the Jacobian of Y = XW with respect to X, taken by autograd.")


@figure
def traffic_by_tensor(logs):
    """HBM bytes read and written for each tensor, one panel a kernel. logs: {"fa2_backward": mem.log, ...}."""
    # which an eager kernel sets to 0 or casts
    moved = {name: moved_by_tensor(log, eager="dQ") for name, log in logs.items()}
    shares = [f"{label(name)} {100 * sum(m.get('dQ', (0, 0))) / sum(map(sum, m.values())):.0f} %"
              for name, m in moved.items()]
    return finish(tensor_panels(moved), f"dQ's share of the traffic: {'; '.join(shares)}",
                  "Modelled: counted by flashlab.memory. Dark: read from HBM, light: written to HBM.")


@figure
def softmax_jacobian(scores):
    """One row's weights, and how each of them moves when one score is raised: diag(p) - p pᵀ.

    scores: a vector, at most ten.
    """
    p = torch.softmax(torch.as_tensor(scores).double(), 0)
    J, n = torch.diag(p) - p[:, None] * p, len(p)
    fig, (left, right) = panels(2, size=(8.6, 1.5 + 0.42 * n), width_ratios=[1, 2])
    stack(left, {k: [(weight, READ)] for k, weight in enumerate(p.tolist())},
          [f"{weight:.2f}" for weight in p.tolist()], "weight", room=1.25)
    left.set_ylabel("key k")
    gain, loss = ramp(GREEN, 0.1), ramp(ORANGE, 0.1)
    strength = (J.abs() / J.abs().max()).tolist()
    cells(right, [[(gain if J[k, j] > 0 else loss)(strength[k][j])[:3] for j in range(n)] for k in range(n)],
          [[f"{value:+.2f}" for value in row] for row in J.tolist()], xlabel="score j that is raised",
          ylabel="weight k that moves", columns=range(n), rows=range(n), size=10)
    j = int(J.diagonal().argmax())
    return finish(fig, f"Raise score {j}: its own weight gains {J[j, j]:.2f} for each unit, the others lose "
                       f"{J[j, j] - J[:, j].sum():.2f} together",
                  "Definition: the Jacobian of a softmax, diag(p) − p pᵀ, for one row. Green gains, orange loses.")


# name: (x, y, kind), and below what it is made from. An N x N matrix is a tile on chip in FlashAttention, and lies in
# HBM in the textbook.
PLACES = {"L": (0, 5, "row"), "Q": (0, 4, "wide"), "K": (0, 3, "wide"), "V": (0, 2, "wide"), "dO": (0, 1, "wide"),
          "O": (0, 0, "wide"), "S": (1, 4, "square"), "P": (2, 4, "square"), "dP": (2, 2, "square"),
          "D": (2.7, 0, "row"), "dS": (3, 3.5, "square"), "dQ": (4, 4, "out"), "dK": (4, 3, "out"), "dV": (4, 2, "out")}
TEXTBOOK = {"S": "QK", "P": ["S"], "dP": ["dO", "V"], "D": ["P", "dP"], "dS": ["P", "dP", "D"], "dQ": ["dS", "K"],
            "dK": ["dS", "Q"], "dV": ["P", "dO"]}
FLASH = TEXTBOOK | {"P": ["S", "L"], "D": ["dO", "O"]}
KINDS = {"wide": ("#E8EDF3", "N × d"), "row": ("#FFF4D6", "N"), "square": ("white", "N × N"),
         "out": ("#DDF1E8", "N × d")}


@figure
def backward_dataflow(N, d, flash=True):
    """Which tensor feeds which on the way back.

    flash=False: the textbook, with every N x N matrix in HBM and D made from P.
    """
    check_positive(N=N, d=d)
    fig, ax = panel(9, 4.6 if flash else 4.2)
    boxes = {}
    for name, (x, y, kind) in PLACES.items():
        if not flash and name in "LO":
            continue
        fill, shape = KINDS[kind]
        square = kind == "square"
        boxes[name] = FancyBboxPatch((x - 0.2, y - 0.28), 0.4, 0.56, boxstyle="round,pad=0.02", fc=fill,
                                     ec=ORANGE if square else INK, ls="--" if square and flash else "-",
                                     lw=2 if square else 1.2, zorder=3)
        ax.add_patch(boxes[name])
        write(ax, x, y + 0.08, name, 10, fontweight="bold", fontsize=11, zorder=4)
        write(ax, x, y - 0.15, "a tile" if square and flash else shape, 7.5,
                color="#555555", zorder=4)
    for name, sources in (FLASH if flash else TEXTBOOK).items():
        for source in sources:
            arrow(ax, PLACES[source][:2], PLACES[name][:2], boxes[source], boxes[name])
    top = 5.6 if flash else 4.6
    for x, text in ((0, "kept, and dO"), (1, "made again"), (4, "sent on")):
        ax.text(x, top, text, ha="center", fontsize=9, color="#555555")
    canvas(ax, (-0.4, 4.4), (-0.6, top + 0.3), equal=False)
    square, kept = bytes_text(4 * N * N), bytes_text(4 * N * (4 * d + 1))
    title = f"S, P, dP and dS are {square} each, and cross HBM at every arrow"
    if flash:
        title = f"Only rows are kept: Q, K, V, O and L, {kept} where one N × N matrix has {square}"
    return finish(fig, title, f"Definition: the chain rule of attention, one head, N = {N}, d = {d}, 4 bytes each. "
                  + ("Dashed: one tile at a time, on chip." if flash else "Orange: N × N matrices in HBM."))


def arrow(ax, start, stop, leaves, enters):
    """From one box to the next; long ones bend, as there are boxes between."""
    bend = 0.15 if stop[0] - start[0] > 1.5 and 0 < abs(stop[1] - start[1]) < 1.5 else 0
    over = start == PLACES["L"][:2]
    ax.add_patch(FancyArrowPatch(start, stop, patchA=leaves, patchB=enters, arrowstyle="-|>", mutation_scale=11,
                                 color="#8A94A3", lw=1.1, connectionstyle=f"arc3,rad={-0.2 if over and bend else bend}",
                                 zorder=2))


@figure
def matrix_crossings(memories, N):
    """How often whole N x N matrices cross HBM, operation by operation.

    memories: {"naive_forward": mem, "naive_backward": mem}.
    """
    fig, axs = panels(len(memories), size=(9, 4))
    totals = []
    for ax, (name, mem) in zip(axs, memories.items(), strict=True):
        whole = [(event.name.strip("_"), event.read // (4 * N * N), event.written // (4 * N * N)) for event in mem.log]
        totals.append(f"{sum(read + written for _, read, written in whole)} times in {name}")
        stack(ax, {y: [(read, READ), (written, WRITTEN)] for y, (_, read, written) in enumerate(whole)},
              xlabel="matrices of N × N", title=f"{name}: {totals[-1].split()[0]} crossings")
        ax.set_yticks(range(len(whole)), [op for op, *_ in whole], fontsize=8)
        ax.set(xticks=range(5), xlim=(0, 4.2))
        ax.grid(axis="x")
    return finish(fig, f"N × N matrices cross HBM {' and '.join(totals)}",
                  f"Modelled: counted by flashlab.memory, float32, N = {N}. Dark: read, light: written. In order.")


@figure
def two_passes(log, N_q, N_k):
    """Who owns which tiles of S in the two large kernels of a two-pass backward. log: of fa2_backward_two_pass."""
    fig, axs = panels(2, size=(9.4, 4.9))
    for ax, kernel, block, written, axis in ((axs[0], "fa2_backward_dkdv", "key block", "dK j, dV j", 1),
                                             (axs[1], "fa2_backward_dq", "query block", "dQ i", 0)):
        visits, _ = replay([event for event in log if event.kernel == kernel])
        own = sorted({visit[axis] for visit in visits})
        fills, steps = shades(color("fa2_backward_two_pass"), len(own), 0.25), [0] * len(own)
        for visit in visits:
            (top, bottom), (left, right) = visit
            n = own.index(visit[axis])
            steps[n] += 1
            box(ax, left, top, right - left, bottom - top, fills[n], f"{n}.{steps[n]}", lw=1.2)
        for start, stop in own:
            middle = (start + stop) / 2
            if axis:
                note(ax, "↓", middle, N_q, 0, -4, va="top", ha="center", fontsize=13, fontweight="bold",
                     annotation_clip=False)
            else:
                note(ax, "→", N_k, middle, fontsize=13, fontweight="bold", annotation_clip=False)
        grid(ax, N_k, N_q, ylabel="queries", equal=True, title=f"one program a {block}; it writes {written}")
        ax.set_xlabel("keys", labelpad=18)
    return finish(fig, "Columns for dK and dV, rows for dQ: each gradient has one writer, and S is made twice",
                  f"{REPLAYED} 2.3: program 2, third step. Arrows: written at the end.")


@figure
def backward_peak_against_N(points):
    """Peak HBM against N.

    points: dicts of name, N and peak (bytes); the title compares the last name with the one before it.
    """
    series = {name: by(rows, "N", "peak") for name, rows in group(points, "name").items()}
    *_, (first, much), (last, little) = ((name, line[-1][1]) for name, line in series.items())
    lines = [(name, line, colour) for (name, line), colour in zip(series.items(), (ORANGE, GREEN, BLUE), strict=False)]
    return curves(lines, f"At N = {points[-1]['N']} “{last}” needs {bytes_text(little)}, “{first}” {bytes_text(much)}",
                  "Modelled: counted by flashlab.memory, float32, forward and backward pass.", "N", "HBM at the peak",
                  size=(8, 3.8), byte="y", ticks=sorted({p["N"] for p in points}),
                  ylim=(0, 1.1 * max(p["peak"] for p in points)))


@figure
def sums_by_order(sums, exact, parts):
    """How many different results one sum has, added up in many orders. sums: float32 numbers; exact: in float64."""
    values, counts = torch.as_tensor(sums).double().unique(return_counts=True)
    fig, ax = panel(8, 3.2)
    ax.vlines((values - exact).tolist(), 0, counts.tolist(), color=READ, lw=4)
    wall(ax, "float64", 0)
    ax.set(xlabel="result minus float64's", ylabel="orders", ylim=(0, 1.15 * counts.max().item()))
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    words = f"{len(values)} different results" if len(values) > 1 else "one result"
    return finish(fig, f"The same {parts} parts in {len(sums)} orders: {words} in float32",
                  "Measured here: one element of dQ, added up in random orders. Dashed: the sum in float64.")


@figure
def finite_differences(errors, step=1e-6):
    """How far a gradient measured by finite differences is off, against the step.

    errors: dtype -> [(step, relative error)].
    """
    best = [f"{min(error for _, error in points):.0e} in {name}" for name, points in errors.items()]
    lines = [(name, points, colour) for (name, points), colour in zip(errors.items(), (ORANGE, BLUE), strict=True)]
    return curves(lines, f"At their best step, differences are off by {' and '.join(best)}",
                  "Measured here: central differences of sum(O∘dO) against the gradient in float64.", "step",
                  "relative error of dQ", size=(8, 3.6), log="xy", walls={"gradcheck's step": step})
