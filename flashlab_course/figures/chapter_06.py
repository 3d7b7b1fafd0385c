"""The pictures of chapter 06: what travels, what waits for which unit, which SM and which warp does what."""

import math

from flashlab.validate import check_positive
from flashlab_course.figures.colors import ORANGE, READ, WRITTEN, color, ink_on, shades
from flashlab_course.figures.plots import box, panel, panels, stack, write
from flashlab_course.figures.style import figure, finish, note
from flashlab_course.figures.words import bytes_text, label

# Dense rates of one H100 SXM. Products (bfloat16) and float32: NVIDIA's data sheet, a multiply-add counted as two.
# Exponentials: 16 a clock and SM (CUDA C++ Programming Guide) x 132 SMs x 1.83 GHz, as in FlashAttention-3,
# arXiv:2407.08608, 3.1.
H100 = {"product": 989e12, "float32": 67e12, "exp": 3.9e12}
TENSORS = ("Q", "K", "V", "O", "dO", "l", "m", "L", "D", "dQ", "dK", "dV")


def moved_by_tensor(log, eager=None):
    """tensor -> (bytes read, bytes written) of a log. eager: the tensor that eager kernels count for, if any."""
    moved = {}
    for event in log:
        name = eager if event.kind == "eager" else event.name
        if name and event.kind != "compute":
            read, written = moved.get(name, (0, 0))
            moved[name] = (read + event.read, written + event.written)
    return moved


def state_share(log):
    """The part of a log's loaded and stored bytes that is running state: O, l and m."""
    moved = moved_by_tensor(log)
    return sum(sum(moved.get(T, (0, 0))) for T in ("O", "l", "m")) / sum(map(sum, moved.values()))


def tensor_panels(moved):
    """A new figure with a panel for each kernel: the bytes read and written for each tensor.

    moved: name -> moved_by_tensor(log).
    """
    tensors = [T for T in TENSORS if any(T in parts for parts in moved.values())]
    fig, axs = panels(len(moved), size=(4.4 * max(len(moved), 1.6), 1.8 + 0.3 * len(tensors)), sharey=True, sharex=True)
    longest = max(sum(both) for parts in moved.values() for both in parts.values())
    for ax, (name, parts) in zip(axs, moved.items(), strict=True):
        both = {T: parts.get(T, (0, 0)) for T in tensors}
        stack(ax, {T: [(read, READ), (written, WRITTEN)] for T, (read, written) in both.items()},
              xlabel="HBM traffic (bytes)", room=longest / max(map(sum, both.values())), byte=True, colour=color(name),
              title=f"{label(name)}: {bytes_text(sum(map(sum, parts.values())))}")
        ax.grid(axis="x")
    return fig


@figure
def traffic_of_state(logs):
    """HBM bytes of each tensor, kernel by kernel; the title is about the running state. logs: rung's name -> log."""
    fig = tensor_panels({name: moved_by_tensor(log) for name, log in logs.items()})
    shares = {label(name): f"{100 * state_share(log):.0f} %" for name, log in logs.items()}
    claim = "O, l and m take " + ", ".join(f"{share} of {name}'s traffic" for name, share in shares.items())
    if len(logs) == 1:
        claim = "".join(f"{share} of what {name} moves is running state: O, l and m" for name, share in shares.items())
    return finish(fig, claim, "Modelled: counted by flashlab.memory. Dark: read from HBM, light: written to HBM.")


def unit_times(d, other):
    """Seconds for one score: 4·d FLOPs in the two products, one exponential, and `other` lone float32 operations.

    A lone operation takes the place of a multiply-add, which the float32 rate counts as two.
    """
    return {"products": 4 * d / H100["product"], "exponential": 1 / H100["exp"],
            "other float32": 2 * other / H100["float32"]}


@figure
def time_by_unit(ds, others):
    """How long each unit of an H100 is busy with one score, if it did nothing else.

    ds: head dimensions; others: d -> float32 operations a score, exponentials not counted
    """
    fig, ax = panel(8, 1.3 + 0.95 * len(ds))
    times = {d: unit_times(d, others[d]) for d in ds}
    for y, parts in enumerate(times.values()):
        for n, (words, time) in enumerate(parts.items()):
            ax.barh(y + 0.26 * (n - 1), 1e12 * time, 0.24, color=(color("fa2_forward"), ORANGE, READ)[n])
            note(ax, words, 1e12 * time, y + 0.26 * (n - 1), fontsize=8.5)
    longest = max(max(parts.values()) for parts in times.values())
    ax.set(xlim=(0, 1.45e12 * longest), ylim=(len(ds) - 0.5, -0.5), xlabel="picoseconds a score, on the whole GPU")
    ax.set_yticks(range(len(ds)), [f"d = {d}" for d in ds])
    claim = ", ".join(f"{100 * parts['exponential'] / parts['products']:.0f} % at d = {d}"
                      for d, parts in times.items())
    products, float32, exps = (f"{rate / 1e12:.3g}" for rate in H100.values())
    return finish(fig, f"The exponentials take this much of the products' time: {claim}",
                  f"Published rates of an H100: {products} TFLOP/s in 16-bit products, {float32} in float32, {exps} T "
                  "exponentials/s, each unit alone. Operations: counted by flashlab.memory.")


@figure
def programs_on_sms(B, H, N, B_r, sms=108):
    """FA1's B·H programs against FA2's B·H·⌈N/B_r⌉ on a device's SMs: one program an SM at a time, time to scale."""
    check_positive(B=B, H=H, N=N, B_r=B_r, sms=sms)
    T_r = math.ceil(N / B_r)
    fig, axs = panels(2, size=(9, 3.6), sharey=True, sharex=True)
    times = []
    for ax, name, programs, length in ((axs[0], "fa1_forward", B * H, T_r), (axs[1], "fa2_forward", B * H * T_r, 1)):
        waves = math.ceil(programs / sms)
        for wave in range(waves):
            box(ax, 0, wave * length, sms, length, "#F0F0F0", lw=0)
            box(ax, 0, wave * length, min(sms, programs - wave * sms), length, color(name), lw=0.6)
        times.append(waves * length)
        ax.set_title(f"{label(name)}: {programs} programs on {min(sms, programs)} of {sms} SMs, {waves} "
                     f"wave{'s' * (waves > 1)}", color=color(name), fontweight="bold", fontsize=9)
        note(ax, f"done at {waves * length}", sms, waves * length, 0, -3, ha="right", va="top", fontweight="bold",
             color=color(name))
        ax.set(xlabel="SM", xlim=(0, sms), ylim=(1.12 * max(times), 0))
    axs[0].set(ylabel="time (one FA2 program = 1)")
    ratio = times[0] / times[1]
    claim = f"finish {ratio:.1f} times sooner" if ratio > 1 else "gain nothing here"
    return finish(fig, f"FA2's smaller programs {claim} (B = {B}, H = {H}, N = {N})",
                  f"Modelled: every tile takes equally long, one program an SM; {sms} SMs, B_r = {B_r}. Grey: idle.")


@figure
def split_among_warps(B_r, B_c, d, warps=4):
    """One tile of work shared by warps: split by keys (FA1) and by queries (FA2).

    Colours are warps; grey is read by all.
    """
    check_positive(B_r=B_r, B_c=B_c, d=d, warps=warps)
    fig, axs = panels(2, size=(9, 4.9))
    deep, side, gap = 1.6, 4.0, 0.55
    x, y, out = deep + gap, side + gap, deep + side + 2 * gap
    for ax, name, by_keys, title, words in ((axs[0], "fa1_forward", True, "FA1: split-K",
                                             f"keys split: {warps} partial $O_i$ to add"),
                                            (axs[1], "fa2_forward", False, "FA2: split-Q",
                                             "queries split: each warp has its own rows")):
        tints, whole = shades(color(name), warps, 0.35), ["#E6E6E6"]
        strips(ax, 0, y, deep, side, whole if by_keys else tints, True, "$Q_i$")
        strips(ax, x, y - gap - deep, side, deep, tints if by_keys else whole, False, "$K_j^T$")
        strips(ax, x, y, side, side, tints, not by_keys, "$P_{ij}$")
        strips(ax, out, 0, deep, side, tints if by_keys else whole, True, "$V_j$")
        for n in reversed(range(warps if by_keys else 1)):                   # split by keys: a whole O_i for each warp
            strips(ax, out + 0.16 * n, y + 0.16 * n, deep, side, [tints[n]] if by_keys else tints, True,
                   "" if n else "$O_i$")
        ax.text(x + side / 2, y + side + 0.75, words, ha="center", va="top")
        ax.set(xlim=(-0.1, out + deep + 0.7), ylim=(y + side + 1.3, -0.15), aspect="equal")
        ax.set_title(title, color=color(name), fontweight="bold", fontsize=11)
        ax.axis("off")
    passed = (warps - 1) * 4 * B_r * (d + 2)
    return finish(fig, f"Split by keys, {bytes_text(passed)} pass between {warps} warps for every tile; split by "
                       "queries, none",
                  f"Definition, after Dao 2023, section 3.3: B_r = {B_r}, B_c = {B_c}, d = {d}; the float32 O_i, m, l "
                  f"of {warps - 1} warps go through shared memory. A shade is a warp; grey is read by all.")


def strips(ax, x, y, width, height, fills, across, text):
    """A tile in strips, one a colour: across (of rows) or down (of columns)."""
    n = len(fills)
    for k, fill in enumerate(fills):
        if across:
            box(ax, x, y + k * height / n, width, height / n, fill, lw=1.2)
        else:
            box(ax, x + k * width / n, y, width / n, height, fill, lw=1.2)
    write(ax, x + width / 2, y + height / 2, text, 12,
            color=ink_on(fills[(n - 1) // 2]))
