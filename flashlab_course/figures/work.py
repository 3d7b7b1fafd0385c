"""The pictures of chapter 06: what travels, what waits for which unit, and which warp does what."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from flashlab.validate import check_positive
from flashlab_course.figures.style import INK, READ, WRITTEN, byte_axis, color, figure, finish, ink_on, label, ramp
from flashlab_course.figures.words import bytes_text

# Dense rates of one H100 SXM. Products (bfloat16) and float32: NVIDIA's data sheet, a multiply-add counted as two.
# Exponentials: 16 a clock and SM (CUDA C++ Programming Guide) x 132 SMs x 1.83 GHz, as in FlashAttention-3, arXiv:2407.08608, 3.1.
H100 = {"product": 989e12, "float32": 67e12, "exp": 3.9e12}
STATE = ("O", "l", "m")


def moved_by_tensor(log):
    """tensor -> (bytes read, bytes written) by the loads and stores of a log."""
    moved = {}
    for event in log:
        if event.kind in ("load", "store"):
            read, written = moved.get(event.name, (0, 0))
            moved[event.name] = (read + event.read, written + event.written)
    return moved


def state_share(log):
    """The part of a log's loaded and stored bytes that is running state: O, l and m."""
    moved = moved_by_tensor(log)
    return sum(sum(moved.get(T, (0, 0))) for T in STATE) / sum(map(sum, moved.values()))


@figure
def traffic_of_state(logs):
    """HBM bytes of each tensor, kernel by kernel; O, l and m, the running state, stand out. logs: rung's name -> log."""
    moved = {name: moved_by_tensor(log) for name, log in logs.items()}
    tensors = [T for T in ("Q", "K", "V", "O", "l", "m", "L") if any(T in tensor for tensor in moved.values())]
    size = 4.4 * max(len(logs), 1.6), 1.4 + 0.36 * len(tensors)
    fig, axes = plt.subplots(1, len(logs), figsize=size, squeeze=False, sharey=True, sharex=True)
    for ax, (name, parts) in zip(axes[0], moved.items(), strict=True):
        for y, T in enumerate(tensors):
            read, written = parts.get(T, (0, 0))
            ax.barh(y, read, 0.7, color=READ)
            ax.barh(y, written, 0.7, left=read, color=WRITTEN)
        ax.set_title(f"{label(name)}: {bytes_text(sum(map(sum, parts.values())))}", color=color(name), fontweight="bold")
        ax.set_xlabel("HBM traffic (bytes)")
        ax.grid(axis="x")
    axes[0, 0].set_yticks(range(len(tensors)), tensors)
    axes[0, 0].set_ylim(len(tensors) - 0.4, -0.6)
    byte_axis(axes[0, 0].xaxis, linear_to=max(sum(part) for parts in moved.values() for part in parts.values()))
    first = next(iter(logs))
    if len(logs) == 1:
        claim = f"{100 * state_share(logs[first]):.0f} % of what {label(first)} moves is running state: O, l and m"
    else:
        shares = (f"{100 * state_share(log):.0f} % of {label(name)}'s traffic" for name, log in logs.items())
        claim = "O, l and m take " + ", ".join(shares)
    return finish(fig, claim, "Modelled: counted by flashlab.memory. Dark: read from HBM, light: written to HBM.")


@figure
def time_by_unit(ds, others, rates=None):
    """How long each unit of a GPU is busy with one score, if it did nothing else.

    ds: head dimensions; others: d -> float32 operations a score, exponentials not counted; rates: those of an H100 if None
    """
    rates = rates or H100
    fig, ax = plt.subplots(figsize=(8, 1.3 + 0.95 * len(ds)))
    times = {d: unit_times(d, others[d], rates) for d in ds}
    longest = max(max(parts.values()) for parts in times.values())
    for y, parts in enumerate(times.values()):
        for n, (words, time) in enumerate(parts.items()):
            ax.barh(y + 0.26 * (n - 1), 1e12 * time, 0.24, color=(color("fa2_forward"), "#D55E00", READ)[n])
            ax.annotate(words, (1e12 * time, y + 0.26 * (n - 1)), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    ax.set(xlim=(0, 1.45e12 * longest), ylim=(len(ds) - 0.5, -0.5), xlabel="picoseconds a score, on the whole GPU")
    ax.set_yticks(range(len(ds)), [f"d = {d}" for d in ds])
    claim = ", ".join(f"{100 * parts['exponential'] / parts['products']:.0f} % at d = {d}" for d, parts in times.items())
    return finish(fig, f"The exponentials take this much of the products' time: {claim}",
                  f"Published rates of an H100: {rates['product'] / 1e12:.0f} TFLOP/s in 16-bit products, "
                  f"{rates['float32'] / 1e12:.0f} in float32, {rates['exp'] / 1e12:.1f} T exponentials/s, each unit alone. "
                  "Operations: counted by flashlab.memory.")


def unit_times(d, other, rates=None):
    """Seconds for one score: 4·d FLOPs in the two products, one exponential, and `other` lone float32 operations.

    A lone operation takes the place of a multiply-add, which the float32 rate counts as two.
    """
    rates = rates or H100
    return {"products": 4 * d / rates["product"], "exponential": 1 / rates["exp"], "other float32": 2 * other / rates["float32"]}


@figure
def split_among_warps(B_r, B_c, d, warps=4):
    """One tile of work shared by warps: split by keys (FA1) and by queries (FA2). Colours are warps; grey is read by all."""
    check_positive(B_r=B_r, B_c=B_c, d=d, warps=warps)
    fig, axes = plt.subplots(1, 2, figsize=(9, 4.9))
    for ax, name, by_keys in ((axes[0], "fa1_forward", True), (axes[1], "fa2_forward", False)):
        shades = [ramp(color(name), 0.35)(n / max(1, warps - 1)) for n in range(warps)]
        deep, side, gap = 1.6, 4.0, 0.55
        x, y, out = deep + gap, side + gap, deep + side + 2 * gap
        _strips(ax, 0, y, deep, side, shades if not by_keys else None, True, "$Q_i$")
        _strips(ax, x, y - gap - deep, side, deep, shades if by_keys else None, False, "$K_j^T$")
        _strips(ax, x, y, side, side, shades, not by_keys, "$P_{ij}$")
        _strips(ax, out, 0, deep, side, shades if by_keys else None, True, "$V_j$")
        for n in reversed(range(warps if by_keys else 1)):                   # split by keys: a whole O_i for each warp
            place = out + 0.16 * n, y + 0.16 * n
            _strips(ax, *place, deep, side, [shades[n]] if by_keys else shades, True, "$O_i$" if n == 0 else "")
        ax.text(x + side / 2, y + side + 0.75, "keys split: 4 partial $O_i$ to add".replace("4", str(warps)) if by_keys
                else "queries split: each warp has its own rows", ha="center", va="top", fontsize=10)
        ax.set(xlim=(-0.1, out + deep + 0.7), ylim=(y + side + 1.3, -0.15), aspect="equal")
        ax.set_title("FA1: split-K" if by_keys else "FA2: split-Q", color=color(name), fontweight="bold", fontsize=11)
        ax.axis("off")
    passed = (warps - 1) * 4 * B_r * (d + 2)
    return finish(fig, f"Split by keys, {bytes_text(passed)} pass between {warps} warps for every tile; split by queries, none",
                  f"Definition, after Dao 2023, section 3.3: B_r = {B_r}, B_c = {B_c}, d = {d}; the float32 O_i, m, l of "
                  f"{warps - 1} warps go through shared memory. A shade is a warp; grey is read by all.")


def _strips(ax, x, y, width, height, shades, across, text):
    """A tile in strips, one a warp: across (of rows) or down (of columns); grey and whole where shades is None."""
    n = len(shades or [0])
    for k in range(n):
        fill = shades[k] if shades else "#E6E6E6"
        place = (x, y + k * height / n, width, height / n) if across else (x + k * width / n, y, width / n, height)
        ax.add_patch(Rectangle(place[:2], *place[2:], fc=fill, ec="white", lw=1.2))
    ink = ink_on(shades[(n - 1) // 2]) if shades else INK
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=12, color=ink)
