"""What the front page and the page to play with show: recordings, one report of the checker, the speeds on record."""

import html
import itertools
import re

import torch

from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab_course.bench import load_results
from flashlab_course.check import checker, form
from flashlab_course.figures.chapter_12 import gains, standing
from flashlab_course.figures.words import label
from flashlab_course.player import play, record

TOY = 16                                     # queries and keys of a recording, of 4 numbers each
CHIP = 2048                                  # bytes of modelled SRAM
STILL = re.compile(r'<img [^>]*src="data:[^>]*>')    # for where scripts do not run: without them nothing is chosen here
RIVALS = {"forward": ("naive_forward", "sdpa_flash", "sdpa_cudnn", "fa4"),
          "backward": ("naive_backward", "sdpa_flash", "sdpa_cudnn", "fa4")}


def recording(rung, N=TOY, tile=4, causal=False):
    torch.manual_seed(0)
    Q, K, V = (torch.randn(N, 4) for _ in range(3))
    tiles = {} if rung is naive_forward else {"B_r": tile, "B_c": tile}
    return record(rung, Q, K, V, causal=causal, sram_bytes=CHIP, **tiles)


def race():
    """(naive attention and FlashAttention-2 on one clock, what it shows in a sentence)."""
    runners = [recording(rung) for rung in (naive_forward, fa2_forward)]
    naive, flash = (one.steps[-1].read + one.steps[-1].written for one in runners)
    return play(*runners)._repr_html_(), (
        f"Attention for {TOY} queries and {TOY} keys, counted by the course's memory model: naive attention moves "
        f"{naive:,} bytes between memory and chip, FlashAttention {flash:,}. The answer is the same.")


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
    """What the checker says of an answer with a known mistake, a real report; the mistake by default one of its list."""
    exercise = form.exercise(name)
    known = exercise.mistake(mistake) if mistake else exercise.mistakes[len(exercise.mistakes) // 2]
    return checker.examine(exercise, exercise.wrong(known))._repr_html_()


def speeds():
    """The table of chapter 12's last kernels against others, and where it is from, as HTML."""
    rows, sources = {}, []
    for what, rivals in RIVALS.items():
        kernel = f"fa2_hopper_{what}"
        for rival in rivals:
            beside = rival == "fa4" and what == "forward"            # timed in a run of its own
            run = load_results(f"{what}_h200", "FlashAttention-4" if beside else None)
            found = gains(run, kernel, rival)
            ratios = [ratio for _, ratio, _ in found]
            name = "naive PyTorch attention" if rival.startswith("naive") else label(rival)
            rows.setdefault(name, []).append(f"<td><b>{span(min(ratios), max(ratios))}</b><small>{standing(found)}"
                                             "</small></td>")
            sources.append((run["provenance"]["device"], run["provenance"]["date"][:10]))
    body = "".join(f"<tr><th>{html.escape(name)}</th>{''.join(cells)}</tr>" for name, cells in rows.items())
    devices, dates = (sorted(set(column)) for column in zip(*sources, strict=True))
    return (f'<table class="speeds"><thead><tr><th>speed relative to</th><th>forward</th><th>backward</th></tr></thead>'
            f"<tbody>{body}</tbody></table><p><small>Recorded on {' and '.join(devices)}, {' to '.join(dates)}, in "
            "bfloat16, d = 64 and 128, with and without a causal mask. Tied: the ranges of the timings overlap. "
            "Computed from <code>results/</code> when this page was built.</small></p>")


def span(low, high):
    return f"{low:.2g} to {high:.2g} ×" if high >= 3 else f"{low:.2f} to {high:.2f} ×"
