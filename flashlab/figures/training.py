"""The picture of chapter 11's training run: do two implementations of attention learn the same?"""

import matplotlib.pyplot as plt

from flashlab.figures.style import YOURS, figure, finish

COLOURS = ("#222222", "#7A1FA2", "#009E73", "#D55E00")


@figure
def loss_curves(losses, reference, words):
    """Training losses, and how far each run is from the reference. losses: name -> one number a step; words: from where."""
    fig, (ax, below) = plt.subplots(2, 1, figsize=(8.4, 5), sharex=True, gridspec_kw={"height_ratios": [2.2, 1]})
    theirs = [name for name in losses if not name.startswith("your")]
    colours, ends, last = dict.fromkeys(losses, YOURS) | dict(zip(theirs, COLOURS, strict=False)), [], {}
    for name, values in losses.items():
        ax.plot(values, color=colours[name], lw=3.2 if name == reference else 1.6, alpha=0.45 if name == reference else 1)
        last[name] = values[-1]
        if len(values) == max(map(len, losses.values())):
            ends.append((len(values) - 1, values[-1], name, colours[name]))
        else:
            ax.annotate(name, (len(values) - 1, values[-1]), (6, 8 if name in theirs else 21), textcoords="offset points",
                        fontsize=9, fontweight="bold", color=colours[name])
        if name != reference:
            apart = [max(abs(a - b), 1e-9) for a, b in zip(values, losses[reference], strict=False)]
            below.plot(apart, color=colours[name])
    ax.set(ylabel="loss (nats a character)", ylim=(0, 1.05 * max(max(values) for values in losses.values())))
    below.set(yscale="log", xlabel="step", ylabel=f"|loss − {reference}'s|")
    for axis in (ax, below):
        axis.grid(axis="y")
    behind = {name: values[-1] - losses[reference][len(values) - 1] for name, values in losses.items() if name != reference}
    main = next(iter(behind))
    title = f"{main} and {reference} end {abs(behind[main]):.0e} apart"
    worst = max(behind, key=behind.get)
    if behind[worst] > 100 * abs(behind[main]):
        gap = next((n for n, (x, y) in enumerate(zip(losses[worst], losses[reference], strict=False)) if x - y > 0.2), None)
        title += f"; “{worst}” ends {behind[worst]:.2f} behind" + (f", but looks right for {gap} steps" if gap else "")
    return finish(fig, title, words, ends={ax: ends})
