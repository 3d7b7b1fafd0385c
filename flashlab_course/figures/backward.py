"""The pictures of chapter 08: Jacobians, what feeds what on the way back, who owns which tiles, and who moves which bytes."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from flashlab.validate import check_positive
from flashlab_course.figures.style import FAINT, INK, READ, WRITTEN, bare, byte_axis, color, figure, finish, ink_on, label, ramp
from flashlab_course.figures.tiles import replay
from flashlab_course.figures.words import bytes_text, group

NOT_ZERO, LOSES = "#009E73", "#D55E00"


@figure
def jacobian_of_product(N, K, M):
    """The Jacobian of Y = XW with respect to X, entry by entry: rows are the elements of Y (N, M), columns those of X (N, K)."""
    check_positive(N=N, K=K, M=M)
    W = torch.randn(K, M, generator=torch.Generator().manual_seed(0))
    X = torch.zeros(N, K)
    J = torch.autograd.functional.jacobian(lambda X: X @ W, X).reshape(N * M, N * K)
    fig, ax = plt.subplots(figsize=(max(5, 1.6 + 0.42 * N * K), max(3, 1.5 + 0.42 * N * M)))
    for y in range(N * M):
        for x in range(N * K):
            zero = y // M != x // K                                      # another row of X: no path
            assert zero == (J[y, x] == 0)
            ax.add_patch(Rectangle((x, y), 1, 1, fc="white" if zero else NOT_ZERO, ec=FAINT, lw=0.8))
            ax.text(x + 0.5, y + 0.5, "0" if zero else f"$W_{{{x % K}{y % M}}}$", ha="center", va="center", fontsize=9,
                    color="#999999" if zero else "white")
    ax.set(xlim=(0, N * K), ylim=(N * M, 0), aspect="equal", xlabel="element of X", ylabel="element of Y")
    ax.set_xticks([x + 0.5 for x in range(N * K)], [f"$X_{{{x // K}{x % K}}}$" for x in range(N * K)])
    ax.set_yticks([y + 0.5 for y in range(N * M)], [f"$Y_{{{y // M}{y % M}}}$" for y in range(N * M)])
    bare(ax)
    for n in range(N):
        ax.add_patch(Rectangle((n * K, n * M), K, M, fill=False, ec=INK, lw=1.5))
    return finish(fig, f"1 / {N} of it is not 0, and that is {N} copies of Wᵀ",
                  "Definition: the Jacobian of Y = XW with respect to X, taken by autograd.")


@figure
def traffic_by_tensor(logs):
    """HBM bytes read and written for each tensor, one panel a kernel. logs: {"fa2_backward": mem.log, ...}."""
    moved = {name: moved_by_tensor(log) for name, log in logs.items()}
    tensors = [T for T in ("Q", "K", "V", "O", "dO", "l", "m", "L", "D", "dQ", "dK", "dV") if any(T in m for m in moved.values())]
    fig, axes = plt.subplots(1, len(logs), figsize=(3.6 * len(logs), 0.9 + 0.3 * len(tensors) + 0.9), sharex=True, sharey=True,
                             squeeze=False)
    for ax, (name, by_tensor) in zip(axes[0], moved.items(), strict=True):
        for y, T in enumerate(tensors):
            read, written = by_tensor.get(T, (0, 0))
            ax.barh(y, read, 0.7, color=READ)
            ax.barh(y, written, 0.7, left=read, color=WRITTEN)
        total = bytes_text(sum(r + w for r, w in by_tensor.values()))
        ax.set_title(f"{label(name)}: {total}", color=color(name), fontweight="bold")
        ax.grid(axis="x")
    axes[0, 0].set_yticks(range(len(tensors)), tensors)
    axes[0, 0].set_ylim(len(tensors) - 0.4, -0.6)
    byte_axis(axes[0, 0].xaxis, linear_to=max(r + w for m in moved.values() for r, w in m.values()))
    share = {name: sum(m.get("dQ", (0, 0))) / sum(r + w for r, w in m.values()) for name, m in moved.items()}
    return finish(fig, "dQ's share of the traffic: " + "; ".join(f"{label(name)} {100 * x:.0f} %" for name, x in share.items()),
                  "Modelled: counted by flashlab.memory. Dark: read from HBM, light: written to HBM.")


def moved_by_tensor(log):
    """tensor -> (bytes read, bytes written); an eager kernel's bytes go to the dQ that it sets to 0 or casts."""
    moved = {}
    for event in log:
        if event.kind != "compute":
            name = "dQ" if event.kind == "eager" else event.name
            read, written = moved.get(name, (0, 0))
            moved[name] = (read + event.read, written + event.written)
    return moved


@figure
def softmax_jacobian(scores):
    """One row's weights, and how each of them moves when one score is raised: diag(p) - p pᵀ. scores: a vector, at most ten."""
    p = torch.softmax(torch.as_tensor(scores).double(), 0)
    J, n = torch.diag(p) - p[:, None] * p, len(p)
    fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 1.5 + 0.42 * n), gridspec_kw={"width_ratios": [1, 2]})
    left.barh(range(n), p.tolist(), 0.7, color=READ)
    for k, weight in enumerate(p.tolist()):
        left.annotate(f"{weight:.2f}", (weight, k), (4, 0), textcoords="offset points", va="center", fontsize=9)
    left.set(ylim=(n - 0.4, -0.6), xlim=(0, 1.25 * p.max().item()), xlabel="weight", ylabel="key k")
    left.set_yticks(range(n), range(n))
    gain, loss = ramp(NOT_ZERO, 0.1), ramp(LOSES, 0.1)
    for k in range(n):
        for j in range(n):
            value = J[k, j].item()
            shade = (gain if value > 0 else loss)(min(1.0, abs(value) / J.abs().max().item()))
            right.add_patch(Rectangle((j, k), 1, 1, fc=shade, ec="white", lw=1))
            right.text(j + 0.5, k + 0.5, f"{value:+.2f}", ha="center", va="center", fontsize=9, color=ink_on(shade))
    right.set(xlim=(0, n), ylim=(n, 0), xlabel="score j that is raised")
    right.set_ylabel("weight k that moves")
    right.set_xticks([j + 0.5 for j in range(n)], range(n))
    right.set_yticks([k + 0.5 for k in range(n)], range(n))
    bare(right)
    j = int(J.diagonal().argmax())
    return finish(fig, f"Raise score {j}: its own weight gains {J[j, j]:.2f} for each unit, "
                       f"the others lose {J[j, j] - J[:, j].sum():.2f} together",
                  "Definition: the Jacobian of a softmax, diag(p) − p pᵀ, for one row. Green gains, orange loses.")


# name: (x, y, kind) and what it is made from. An N x N matrix is a tile on chip in FlashAttention, and lies in HBM in the textbook.
PLACES = {"L": (0, 5, "row"), "Q": (0, 4, "wide"), "K": (0, 3, "wide"), "V": (0, 2, "wide"), "dO": (0, 1, "wide"),
          "O": (0, 0, "wide"),
          "S": (1, 4, "square"), "P": (2, 4, "square"), "dP": (2, 2, "square"), "D": (2.7, 0, "row"), "dS": (3, 3.5, "square"),
          "dQ": (4, 4, "out"), "dK": (4, 3, "out"), "dV": (4, 2, "out")}
TEXTBOOK = {"S": "QK", "P": ["S"], "dP": ["dO", "V"], "D": ["P", "dP"], "dS": ["P", "dP", "D"], "dQ": ["dS", "K"],
            "dK": ["dS", "Q"], "dV": ["P", "dO"]}
FLASH = TEXTBOOK | {"P": ["S", "L"], "D": ["dO", "O"]}
FILL = {"wide": "#E8EDF3", "row": "#FFF4D6", "square": "white", "out": "#DDF1E8"}


@figure
def backward_dataflow(N, d, flash=True, element_size=4):
    """Which tensor feeds which on the way back. flash=False: the textbook, with every N x N matrix in HBM and D made from P."""
    check_positive(N=N, d=d)
    made = FLASH if flash else TEXTBOOK
    names = [name for name in PLACES if flash or name not in "LO"]
    fig, ax = plt.subplots(figsize=(9, 4.6 if flash else 4.2))
    boxes = {}
    for name in names:
        x, y, kind = PLACES[name]
        stays = kind != "square" or not flash
        boxes[name] = FancyBboxPatch((x - 0.2, y - 0.28), 0.4, 0.56, boxstyle="round,pad=0.02", fc=FILL[kind],
                                     ec=LOSES if kind == "square" else INK, ls="-" if stays else "--",
                                     lw=2 if kind == "square" else 1.2, zorder=3)
        ax.add_patch(boxes[name])
        rows = {"wide": "N × d", "out": "N × d", "row": "N", "square": "N × N" if stays else "a tile"}[kind]
        ax.text(x, y + 0.08, name, ha="center", va="center", fontweight="bold", fontsize=11, zorder=4)
        ax.text(x, y - 0.15, rows, ha="center", va="center", fontsize=7.5, color="#555555", zorder=4)
    for name, sources in made.items():
        for source in sources:
            _arrow(ax, PLACES[source][:2], PLACES[name][:2], boxes[source], boxes[name])
    heads = ((0, "kept, and dO"), (1, "made again"), (2, ""), (3, ""), (4, "sent on"))
    for x, text in heads:
        ax.text(x, 5.6 if flash else 4.6, text, ha="center", fontsize=9, color="#555555")
    ax.set(xlim=(-0.4, 4.4), ylim=(-0.5 if flash else -0.6, 5.9 if flash else 4.9))
    ax.axis("off")
    square, kept = element_size * N * N, element_size * N * ((4 * d) + 1)
    title = f"S, P, dP and dS are {bytes_text(square)} each, and cross HBM at every arrow"
    if flash:
        title = f"Only rows are kept: Q, K, V, O and L, {bytes_text(kept)} where one N × N matrix has {bytes_text(square)}"
    return finish(fig, title, f"Definition: the chain rule of attention, one head, N = {N}, d = {d}, {element_size} bytes each. "
                  + ("Dashed: one tile at a time, on chip." if flash else "Orange: N × N matrices in HBM."))


def _arrow(ax, start, stop, leaves, enters):
    """From one box to the next; long ones bend, as there are boxes between."""
    bends = stop[0] - start[0] > 1.5 and 0 < abs(stop[1] - start[1]) < 1.5
    over = start == PLACES["L"][:2]
    ax.add_patch(FancyArrowPatch(start, stop, patchA=leaves, patchB=enters, arrowstyle="-|>", mutation_scale=11, color="#8A94A3",
                                 lw=1.1, connectionstyle=f"arc3,rad={(-0.2 if over else 0.15) if bends else 0}", zorder=2))


@figure
def matrix_crossings(memories, N):
    """How often whole N x N matrices cross HBM, operation by operation. memories: {"naive_forward": mem, "naive_backward": mem}."""
    fig, axes = plt.subplots(1, len(memories), figsize=(9, 4), squeeze=False, sharex=True)
    totals = {}
    for ax, (name, mem) in zip(axes[0], memories.items(), strict=True):
        whole = [(event.name.strip("_"), *(moved // (4 * N * N) for moved in (event.read, event.written))) for event in mem.log]
        for y, (_, read, written) in enumerate(whole):
            ax.barh(y, read, 0.7, color=READ)
            ax.barh(y, written, 0.7, left=read, color=WRITTEN)
        ax.set(ylim=(len(whole) - 0.4, -0.6), xlabel="matrices of N × N", xticks=range(5))
        ax.set_yticks(range(len(whole)), [op for op, _, _ in whole], fontsize=8)
        ax.grid(axis="x")
        totals[name] = sum(read + written for _, read, written in whole)
        ax.set_title(f"{name}: {totals[name]} crossings", fontweight="bold")
    return finish(fig, "N × N matrices cross HBM " + " and ".join(f"{n} times in {name}" for name, n in totals.items()),
                  f"Modelled: counted by flashlab.memory, float32, N = {N}. Dark: read, light: written. In order.")


@figure
def two_passes(log, N_q, N_k):
    """Who owns which tiles of S in the two large kernels of a two-pass backward. log: of fa2_backward_two_pass."""
    owners = {"fa2_backward_dkdv": ("key block", "dK_j, dV_j", 1), "fa2_backward_dq": ("query block", "dQ_i", 0)}
    fig, axes = plt.subplots(1, 2, figsize=(9.4, 4.9))
    for ax, (kernel, (block, written, axis)) in zip(axes, owners.items(), strict=True):
        visits, _ = replay([event for event in log if event.kernel == kernel])
        own = sorted({visit[axis] for visit in visits})
        shades = ramp(color("fa2_backward_two_pass"), lightest=0.25)
        steps = {}
        for visit in visits:
            (r0, r1), (c0, c1) = visit
            n = own.index(visit[axis])
            shade = shades(n / max(1, len(own) - 1))
            steps[n] = steps.get(n, 0) + 1
            ax.add_patch(Rectangle((c0, r0), c1 - c0, r1 - r0, fc=shade, ec="white", lw=1.2))
            ax.text((c0 + c1) / 2, (r0 + r1) / 2, f"{n}.{steps[n]}", ha="center", va="center", fontsize=9, color=ink_on(shade))
        for start, stop in own:
            place = ((start + stop) / 2, N_q) if axis else (N_k, (start + stop) / 2)
            ax.annotate("↓" if axis else "→", place, (0, -4) if axis else (4, 0), textcoords="offset points", annotation_clip=False,
                        ha="center" if axis else "left", va="top" if axis else "center", fontsize=13, fontweight="bold")
        ax.set(xlim=(0, N_k), ylim=(N_q, 0), aspect="equal", xticks=[], yticks=[], ylabel="queries")
        ax.set_xlabel("keys", labelpad=18)
        bare(ax)
        ax.set_title(f"one program a {block}; it writes {written.replace('_', ' ')}", fontweight="bold")
    return finish(fig, "Columns for dK and dV, rows for dQ: each gradient has one writer, and S is made twice",
                  "Modelled: replayed from the log of flashlab.memory. 2.3: program 2, third step. Arrows: written at the end.")


@figure
def backward_peak_against_N(points):
    """Peak HBM against N. points: dicts of name, N and peak (bytes); the last name is the one that the title praises."""
    series = group(points, "name")
    fig, ax = plt.subplots(figsize=(8, 3.8))
    colours, ends = ("#D55E00", "#009E73", "#0072B2"), []
    for (name, rows), colour in zip(series.items(), colours, strict=False):
        ax.plot([row["N"] for row in rows], [row["peak"] for row in rows], "o-", color=colour)
        ends.append((rows[-1]["N"], rows[-1]["peak"], name, colour))
    top = max(point["peak"] for point in points)
    ax.set(xlabel="N", ylabel="HBM at the peak", ylim=(0, 1.1 * top))
    ax.set_xticks(sorted({point["N"] for point in points}))
    byte_axis(ax.yaxis, linear_to=1.1 * top)
    ax.grid(axis="y")
    *_, first, last = ((rows[-1]["peak"], name) for name, rows in series.items())
    return finish(fig, f"At N = {points[-1]['N']} “{last[1]}” needs {bytes_text(last[0])}, “{first[1]}” {bytes_text(first[0])}",
                  "Modelled: counted by flashlab.memory, float32, forward and backward pass.", ends={ax: ends})


@figure
def sums_by_order(sums, exact, parts):
    """How many different results one sum has, added up in many orders. sums: float32 numbers; exact: in float64."""
    sums = torch.as_tensor(sums).double()
    values, counts = sums.unique(return_counts=True)
    off = (values - exact).tolist()
    fig, ax = plt.subplots(figsize=(8, 3.2))
    ax.vlines(off, 0, counts.tolist(), color=READ, lw=4)
    ax.axvline(0, ls="--", color=INK, lw=1.2)
    ax.annotate("float64", (0, 1), (4, -2), xycoords=("data", "axes fraction"), textcoords="offset points", va="top", fontsize=9)
    ax.set(xlabel="result minus float64's", ylabel="orders", ylim=(0, 1.15 * counts.max().item()))
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    words = f"{len(values)} different results" if len(values) > 1 else "one result"
    return finish(fig, f"The same {parts} parts in {len(sums)} orders: {words} in float32",
                  "Measured here: one element of dQ, added up in random orders. Dashed: the sum in float64.")


@figure
def finite_differences(curves, step=1e-6):
    """How far a gradient measured by finite differences is off, against the step. curves: dtype -> [(step, relative error)]."""
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ends, best = [], {}
    for (name, points), colour in zip(curves.items(), ("#D55E00", "#0072B2"), strict=True):
        steps, errors = zip(*points, strict=True)
        ax.plot(steps, errors, "o-", color=colour, ms=4)
        best[name] = min(errors)
        ends.append((steps[0], errors[0], name, colour))
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="relative error of dQ")
    ax.axvline(step, ls="--", color=INK, lw=1.2)
    ax.annotate("gradcheck's step", (step, 1), (5, -2), xycoords=("data", "axes fraction"), textcoords="offset points", va="top",
                fontsize=9)
    ax.grid(axis="y")
    words = " and ".join(f"{error:.0e} in {name}" for name, error in best.items())
    return finish(fig, f"At their best step, differences are off by {words}",
                  "Measured here: central differences of sum(O∘dO) against the gradient in float64.", ends={ax: ends})
