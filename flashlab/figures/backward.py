"""The pictures of chapter 08: a Jacobian of mostly zeros, and who moves which bytes."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle

from flashlab.figures.style import FAINT, INK, READ, WRITTEN, bare, byte_axis, color, figure, finish, label
from flashlab.figures.words import bytes_text
from flashlab.validate import check_positive

NOT_ZERO = "#009E73"


@figure
def jacobian_of_product(N, K, M):
    """The Jacobian of Y = XW by X, entry by entry: rows are the elements of Y (N, M), columns those of X (N, K)."""
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
                  "Definition: the Jacobian of Y = XW by X, taken by autograd.")


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
