"""The pictures of chapters 04 to 06: tiles in the order that a kernel visits them, replayed from the memory model's log."""

import math

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from flashlab.ladder import find
from flashlab.validate import check_positive
from flashlab_course.figures.style import INK, READ, WRITTEN, bare, byte_axis, color, figure, finish, ink_on, label, ramp
from flashlab_course.figures.words import bytes_text


@figure
def block_product(M, K, N, B_m, B_k, B_n, tile=(1, 1)):
    """Which tiles of A (M, K) and B (K, N) make one tile of C (M, N). tile: the (row, column) of C's tile."""
    check_positive(M=M, K=K, N=N, B_m=B_m, B_k=B_k, B_n=B_n)
    i, j = min(tile[0], math.ceil(M / B_m) - 1), min(tile[1], math.ceil(N / B_n) - 1)
    T_k, gap = math.ceil(K / B_k), 0.12 * max(M, K, N)
    fig, ax = plt.subplots(figsize=(6.4, 6.4 * (K + M + gap) / (K + N + gap) + 0.6))
    for name, x, y, rows, columns, B_rows, B_columns, marked in (
            ("A", 0, K + gap, M, K, B_m, B_k, lambda r, c: c + 1 if r == i else 0),
            ("B", K + gap, 0, K, N, B_k, B_n, lambda r, c: r + 1 if c == j else 0),
            ("C", K + gap, K + gap, M, N, B_m, B_n, lambda r, c: "Σ" if (r, c) == (i, j) else 0)):
        for r in range(math.ceil(rows / B_rows)):
            for c in range(math.ceil(columns / B_columns)):
                height, width = min(B_rows, rows - r * B_rows), min(B_columns, columns - c * B_columns)
                left, up, text = x + c * B_columns, y + r * B_rows, marked(r, c)
                ax.add_patch(Rectangle((left, up), width, height, fc=READ if text else "#F3F3F3", ec="#AAAAAA", lw=0.8))
                if text:
                    ax.text(left + width / 2, up + height / 2, text, ha="center", va="center", color="white", fontweight="bold")
        ax.text(x + columns / 2, y - 0.02 * (M + K), f"{name}  {rows} × {columns}", ha="center", va="bottom")
    ax.set(xlim=(-0.02 * (K + N), 1.02 * (K + gap + N)), ylim=(1.02 * (K + gap + M), -0.08 * (M + K)), aspect="equal")
    ax.axis("off")
    return finish(fig, f"One tile of C is a sum of {T_k} products: a row of A's tiles with a column of B's",
                  f"Definition: tiles of at most {B_m} × {B_k} of A, {B_k} × {B_n} of B. Equal numbers are multiplied.")


def replay(log):
    """The visits (rows, cols) in order, and for each the moves (verb, tensor, bytes) of its step.

    A tile is visited when a matrix product follows the loads of Q_i and K_j. Loads before it and stores after it are its own.
    """
    visits, moves, pending = [], [], []
    Q_rows = K_rows = None
    for event in log:
        if event.kind == "load":
            pending.append((event.kind, event.name, event.read))
            Q_rows = event.rows if event.name == "Q" else Q_rows
            K_rows = event.rows if event.name == "K" else K_rows
        elif event.kind == "store":                                         # pending: of a query block that sees no key at all
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
    fig, axes = plt.subplots(3, len(logs), figsize=(5.2 * len(logs), 7.6), squeeze=False, sharey="row",
                             gridspec_kw={"height_ratios": [3.4, 0.32 * len(tensors) + 0.2, 1.3]})
    totals, longest = {}, max(len(moves) for _, moves in replays.values())
    for column, (name, (visits, moves)) in zip(axes.T, replays.items(), strict=True):
        _draw_tiles(column[0], name, visits, N_q, N_k)
        _draw_moves(column[1], name, moves, tensors)
        totals[name] = _draw_bytes(column[2], moves)
        for ax in column[1:]:
            ax.set_xlim(0.3, longest + 0.7)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("query block i")
    axes[2, 0].set_ylabel("bytes a step")
    byte_axis(axes[2, 0].yaxis, linear_to=axes[2, 0].get_ylim()[1])
    return finish(fig, _traversal_title(replays, totals, N_q, N_k),
                  "Modelled: replayed from the log of flashlab.memory. Numbers: order of visits. "
                  "▼ load from HBM, △ store to HBM; dark bars read, light bars written.")


def _traversal_title(replays, totals, N_q, N_k):
    """Of one kernel: what moves in every step. Of several: what the one that moves least keeps on the chip."""
    most, least = max(totals, key=totals.get), min(totals, key=totals.get)
    visits, moves = replays[least]
    if len(replays) == 1:
        always = [T for T in "QKVOlmL" if moves and all(any(tensor == T for _, tensor, _ in step) for step in moves)]
        each = ", ".join(always) or "something"
        return f"{label(least)} moves {each} in each of its {len(moves)} steps: {bytes_text(totals[least])}"
    loads = {name: {T for step in moves for verb, T, _ in step if verb == "load"} for name, (_, moves) in replays.items()}
    spared = [T for T in ("O", "l", "m") if T in loads[most] - loads[least]]
    if not spared:
        return ", ".join(f"{label(name)} moves {bytes_text(total)}" for name, total in totals.items())
    there = math.prod(len(_blocks([visit[axis] for visit in visits], N)) for axis, N in ((0, N_q), (1, N_k)))
    if len(visits) < there:                                # two causes for one difference: the title claims neither
        return (f"{label(least)} skips {there - len(visits)} of {there} tiles: {bytes_text(totals[least])}, "
                f"{label(most)} {bytes_text(totals[most])}")
    return (f"{label(least)} keeps {', '.join(spared)} on the chip and moves {bytes_text(totals[least])} where {label(most)} moves "
            f"{bytes_text(totals[most])}")


def _draw_tiles(ax, name, visits, N_q, N_k):
    rows, cols = (_blocks([v[axis] for v in visits], N) for axis, N in ((0, N_q), (1, N_k)))
    shades = ramp(color(name), lightest=0.12)
    order = {visit: n for n, visit in enumerate(visits)}
    widest, tallest = (max(stop - start for start, stop in blocks) for blocks in (cols, rows))
    for row in rows:
        for col in cols:
            n = order.get((row, col))
            place = (col[0], row[0]), col[1] - col[0], row[1] - row[0]
            if n is None:
                ax.add_patch(Rectangle(*place, fc="white", ec="#AAAAAA", hatch="///", lw=0.8))
                continue
            shade = shades(n / max(1, len(visits) - 1))
            ax.add_patch(Rectangle(*place, fc=shade, ec="white", lw=1.5))
            roomy = 2 * place[1] > widest and 2 * place[2] > tallest      # a short last tile has no room for its number
            if len(visits) <= 100 and roomy:
                ax.text((col[0] + col[1]) / 2, (row[0] + row[1]) / 2, n + 1, ha="center", va="center",
                        color=ink_on(shade), fontsize=10 if len(visits) <= 36 else 7)
    ax.set(xlim=(0, N_k), ylim=(N_q, 0), aspect="equal")
    for ticks, blocks in ((ax.set_xticks, cols), (ax.set_yticks, rows)):
        named = range(0, len(blocks), math.ceil(len(blocks) / 10))        # at most ten names, or they overlap
        ticks([sum(blocks[n]) / 2 for n in named], named)
    bare(ax)
    skipped = len(rows) * len(cols) - len(visits)
    ax.set_title(f"{label(name)}: {len(visits)} tiles" + (f", {skipped} skipped" if skipped else ""), color=color(name),
                 fontweight="bold")
    ax.set_xlabel("key block j")


def _draw_moves(ax, name, moves, tensors):
    for n, step in enumerate(moves, start=1):
        for verb, tensor, _ in step:
            if tensor in tensors:
                y, load = tensors.index(tensor), verb == "load"
                ax.plot(n, y + (-0.18 if load else 0.18), "v" if load else "^", ms=5, color=color(name), mew=1,
                        mfc=color(name) if load else "white")
    ax.set(ylim=(len(tensors) - 0.4, -0.6))
    ax.set_yticks(range(len(tensors)), tensors)
    ax.tick_params(axis="x", labelbottom=False)
    ax.grid(axis="y")


def _draw_bytes(ax, moves):
    """Bars of the bytes read and written in each step. Returns their sum."""
    read, written = ([sum(nbytes for v, _, nbytes in step if v == verb) for step in moves] for verb in ("load", "store"))
    steps = range(1, len(moves) + 1)
    ax.bar(steps, read, 0.8, color=READ)
    ax.bar(steps, written, 0.8, bottom=read, color=WRITTEN)
    ax.set_xlabel("step")
    ax.set_title(f"{bytes_text(sum(read + written))} in {len(moves)} steps", fontsize=9)
    return sum(read + written)


def _blocks(seen, N):
    """The blocks of 0 … N, with the size that the visits show, whether visited or not."""
    B = max((stop - start for start, stop in seen), default=N)
    return [(start, min(start + B, N)) for start in range(0, N, B)]


@figure
def sram_occupancy(memories, sram_bytes=None):
    """Bytes live in SRAM over the log's events. memories: {"fa2_forward": mem}; sram_bytes: the budget, if not mem's own."""
    fig, axes = plt.subplots(len(memories), 1, figsize=(8, 1.1 + 2.1 * len(memories)), squeeze=False, sharey=True)
    shares = {}
    for ax, (name, mem) in zip(axes[:, 0], memories.items(), strict=True):
        colour = color(name if find(name) else next(e.kernel for e in mem.log if e.kind != "eager"))
        budget = sram_bytes or mem.sram_bytes
        live = [event.live for event in mem.log if event.kind != "eager"]
        peak, shares[name] = max(live), max(live) / budget
        at = live.index(peak) + 1
        ax.fill_between(range(1, len(live) + 1), live, step="mid", color=colour, alpha=0.25, lw=0)
        ax.step(range(1, len(live) + 1), live, where="mid", color=colour, lw=1)
        ax.axhline(budget, color=INK, ls="--", lw=1.2)
        ax.annotate(f"budget {bytes_text(budget)}", (1, budget), (0, 3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", ha="right", va="bottom", fontsize=9)
        ax.plot(at, peak, "o", color=colour, clip_on=False)
        ax.annotate(f"peak {bytes_text(peak)}", (at, peak), (6, 4), textcoords="offset points", fontsize=9, color=colour,
                    fontweight="bold")
        ax.set(ylim=(0, 1.2 * max(budget, peak)), xlim=(0, len(live) + 1), ylabel="live SRAM")
        ax.set_title(label(name), color=colour, fontweight="bold")
        byte_axis(ax.yaxis, linear_to=1.2 * max(budget, peak))
    axes[-1, 0].set_xlabel("loads, stores and operations, in order")
    return finish(fig, "At the peak, live tiles take " + ", ".join(
        f"{100 * share:.0f} %{'' if n else ' of the SRAM'} in {label(name)}" for n, (name, share) in enumerate(shares.items())),
                  "Modelled: replayed from the log of flashlab.memory, one program at a time.")


@figure
def programs_on_sms(B, H, N, B_r, sms=108):
    """FA1's B·H programs against FA2's B·H·⌈N/B_r⌉ on a device's SMs: one program an SM at a time, time to scale."""
    check_positive(B=B, H=H, N=N, B_r=B_r, sms=sms)
    T_r = math.ceil(N / B_r)
    jobs = {"fa1_forward": (B * H, T_r), "fa2_forward": (B * H * T_r, 1)}    # how many programs, and how long each runs
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, sharex=True)
    times = {}
    for ax, (name, (programs, length)) in zip(axes, jobs.items(), strict=True):
        waves = math.ceil(programs / sms)
        for wave in range(waves):
            busy = min(sms, programs - wave * sms)
            ax.add_patch(Rectangle((0, wave * length), sms, length, fc="#F0F0F0", lw=0))
            ax.add_patch(Rectangle((0, wave * length), busy, length, fc=color(name), ec="white", lw=0.6))
        times[name] = waves * length
        ax.set_title(f"{label(name)}: {programs} programs on {min(sms, programs)} of {sms} SMs, {waves} "
                     f"wave{'s' if waves > 1 else ''}", color=color(name), fontweight="bold", fontsize=9)
        ax.annotate(f"done at {times[name]}", (sms, times[name]), (0, -3), textcoords="offset points", ha="right", va="top",
                    fontsize=9, fontweight="bold", color=color(name))
        ax.set(xlabel="SM")
    axes[0].set(xlim=(0, sms), ylim=(0, 1.12 * max(times.values())), ylabel="time (one FA2 program = 1)")
    axes[0].invert_yaxis()
    ratio = times["fa1_forward"] / times["fa2_forward"]
    claim = f"FA2's smaller programs finish {ratio:.1f} times sooner" if ratio > 1 else "FA2's smaller programs gain nothing here"
    return finish(fig, f"{claim} (B = {B}, H = {H}, N = {N})",
                  f"Modelled: every tile takes equally long, one program an SM; {sms} SMs, B_r = {B_r}. Grey: idle.")
