"""What the front page and the page to play with show: recordings, one report of the checker, the speeds on record."""

import itertools
import re

import torch

from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab_course.bench import load_results
from flashlab_course.check import checker, form
from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.figures.words import every, label
from flashlab_course.player import play, record

TOY = 16                                     # queries and keys of a recording, of 4 numbers each
CHIP = 2048                                  # bytes of modelled SRAM
STILL = re.compile(r'<img [^>]*src="data:[^>]*>')    # for where scripts do not run: without them nothing is chosen here
RIVALS = {"naive": "naive PyTorch attention", "sdpa_flash": "FlashAttention-2 in PyTorch",
          "sdpa_cudnn": "cuDNN in PyTorch", "fa4": "FlashAttention-4"}


def recording(rung, N=TOY, tile=4, causal=False, rows=None):
    torch.manual_seed(0)
    Q, K, V = (torch.randn(N, 4) for _ in range(3))
    tiles = {} if rung is naive_forward else {"B_r": tile, "B_c": tile}
    return record(rung, Q, K, V, causal=causal, sram_bytes=CHIP, rows=rows, **tiles)


def race():
    """(naive attention and FlashAttention-2 on one clock, what it shows in a sentence)."""
    runners = [recording(naive_forward, rows=4), recording(fa2_forward)]
    naive, flash = (one.steps[-1].read + one.steps[-1].written for one in runners)
    end = f"Naive attention has moved {naive:,} bytes, FlashAttention-2 {flash:,}. The answer is the same."
    return play(*runners, end=end)._repr_html_(), (
        f"Attention for {TOY} queries and {TOY} keys, counted by the course's memory model: naive attention moves "
        f"{naive:,} bytes between memory and chip, FlashAttention-2 {flash:,}.")


def playground():
    """(choices, HTML of a player) for ten recordings: which algorithm, how many tokens and of what tile, which mask."""
    sizes = (8, 4), (16, 4), (16, 8)
    chosen = [(rung, N, tile, False) for rung, (N, tile) in itertools.product((fa1_forward, fa2_forward), sizes)]
    chosen += [(fa1_forward, 16, 4, True), (fa2_forward, 16, 4, True)]
    chosen += [(naive_forward, 16, None, causal) for causal in (False, True)]
    for rung, N, tile, causal in chosen:
        choices = {"algorithm": label(rung.__name__), "size": f"N = {N}{f', tiles of {tile}' if tile else ''}",
                   "mask": "causal" if causal else "no mask"}
        yield choices, STILL.sub("", play(recording(rung, N, tile, causal))._repr_html_())


def report(name, mistake=None):
    """What the checker says of an answer with a known mistake, by default one from the middle of its list."""
    exercise = form.exercise(name)
    known = exercise.mistake(mistake) if mistake else exercise.mistakes[len(exercise.mistakes) // 2]
    return checker.examine(exercise, exercise.wrong(known))._repr_html_()


def beside():
    """{a rival's title: [(run, gains) of chapter 12's last forward kernel over it, and of the backward one]}"""
    apart = {("naive", "forward"): ("forward_h100",), ("fa4", "forward"): ("forward_h200", "FlashAttention-4")}
    table = {title: [] for title in RIVALS.values()}
    for (rival, title), what in itertools.product(RIVALS.items(), ("forward", "backward")):
        run = load_results(*apart.get((rival, what), [f"{what}_h200"]))
        table[title].append((run, gains(run, f"fa2_hopper_{what}", rival + f"_{what}" * (rival == "naive"))))
    return table


def speeds():
    """The table of chapter 12's last kernels beside others, and where it is from, as HTML."""
    cell = "<td><b>{}</b><small>{}</small></td>".format
    body = "".join(f"<tr><th>{title}</th>{''.join(cell(span(found), standing(found)) for _, found in both)}</tr>"
                   for title, both in beside().items())
    runs = [run for both in beside().values() for run, _ in both]
    dates = sorted(run["provenance"]["date"][:10] for run in runs)
    devices = " (naive forward) and ".join(sorted({run["provenance"]["device"] for run in runs}))
    rows = [row for run in runs for row in run["rows"]]
    return ('<table class="speeds"><thead><tr><th>Speed relative to</th><th>forward</th><th>backward</th></tr></thead>'
            f"<tbody>{body}</tbody></table><p><small>Recorded on {devices}, {dates[0]} to {dates[-1]}, in "
            f"{every(rows, 'dtype')}, d = {every(rows, 'd')}, with and without a causal mask. Tied: the ranges of "
            "the timings overlap. Computed from <code>results/</code> when this page was built.</small></p>")


def slower():
    """What the course's kernels are slower at, in a sentence."""
    found = gains(load_results("backward_h200", "wide heads"), "wide_backward", ("sdpa_flash", "sdpa_cudnn"))
    return f"With heads of 192 and 256 the backward pass runs at {span(found)} the speed of PyTorch's fastest."


def span(found):
    """The least and the largest speed of what `gains` found."""
    low, high = (end(ratio for _, ratio, _ in found) for end in (min, max))
    return f"{low:.2g} to {high:.2g} ×" if high >= 3 else f"{low:.2f} to {high:.2f} ×"
