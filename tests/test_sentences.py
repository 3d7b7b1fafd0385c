"""Prose and records: where a number in a record changes, the sentences and titles that it stands in change with it.

Of chapters 13 to 16 only those cells run that a sentence's {{expressions}} need; nothing is drawn, titles are kept.
"""

import contextlib
import functools
import io
from unittest.mock import MagicMock

import jupytext
import pytest
from test_going_back import ROOT, SOURCES, reads_and_bindings
from test_lessons import build

from flashlab_course import figures
from flashlab_course.bench import load_results, pick, results
from flashlab_course.figures.chapter_12 import gains, standing


class Undrawn:
    """figures, whose pictures are only their titles."""

    def __init__(self):
        self.titles = []

    def __getattr__(self, name):
        return getattr(figures, name) if name in figures.__all__ else self.draw

    def draw(self, *args, **kwargs):
        self.titles += [text for text in args if isinstance(text, str)]
        return MagicMock()


def needed(cells):
    """The numbers of the code cells that the expressions in prose need, and those cells in turn."""
    functions, known, found = {}, {}, set()

    def need(names, above):
        for name in names:
            at = max((n for n, (_, bound) in known.items() if n < above and name in bound), default=None)
            if at is not None and at not in found:
                found.add(at)
                need(known[at][0], at + 1)

    for n, cell in enumerate(cells):
        if cell.cell_type == "code":
            known[n] = reads_and_bindings(compile(cell.source, "", "exec"), functions)
        elif code := build.asking(cell):
            need(reads_and_bindings(compile(code, "", "exec"), functions)[0], n)
    return found


def told(number):
    """What a chapter's sentences, titles and printed lines say, by the records as they are now."""
    if number == "README":
        return readme()
    source, = (path for path in SOURCES if build.number_of(path) == number)
    cells = [cell for cell in jupytext.read(source).cells if "later[" not in cell.source]     # by the compiler
    run, space, drawn, said = needed(cells), {}, Undrawn(), io.StringIO()
    with contextlib.redirect_stdout(said):
        for n, cell in enumerate(cells):
            exec(cell.source if n in run else build.asking(cell), space)         # the code of the course itself
            space |= {"figures": drawn} if "figures" in space else {}
    return said.getvalue(), drawn.titles


unchanged = functools.cache(told)


def readme():
    """The README's sentences about speed, by the records as they are now."""
    last = {what: f"fa2_hopper_{what}" for what in ("forward", "backward")}
    run = {what: load_results(f"{what}_h200") for what in last}
    beside_4 = {"forward": load_results("forward_h200", "FlashAttention-4"), "backward": run["backward"]}
    span = lambda found: f"{min(found):.2f} to {max(found):.2f}"
    speed = {(what, who): gains(run[what], last[what], who) for what in last for who in ("sdpa_flash", "sdpa_cudnn")}
    speed |= {(what, "fa4"): gains(beside_4[what], last[what], "fa4") for what in last}
    times = {key: span([ratio for _, ratio, _ in found]) for key, found in speed.items()}
    place = {who: f"the forward pass is {standing(speed['forward', who])}, the backward pass "
             f"{standing(speed['backward', who])}" for who in ("sdpa_cudnn", "fa4")}
    fa4 = run["backward"]["provenance"].get("flash-attn-4", "version not recorded")
    fp8, decode, ring = (load_results(f"{what}_h200") for what in ("fp8", "decode", "ring"))
    eights = {name: span([ratio for _, ratio, _ in gains(fp8, name, "fa2_hopper_forward")])
              for name in ("fp8 kernel", "flash_attention_fp8")}
    full = [row["of_copy"] for row in pick(decode["rows"], implementation="decode") if row["bytes"] >= 2**29]
    two = [row for row in pick(ring["rows"], mode="causal, zig-zag", ranks=2) if row["runs"] >= 3]
    one = {(row["N"], row["passes"]): row["runs"] for row in pick(ring["rows"], mode="causal, zig-zag", ranks=1)}
    two = [row for row in two if one[row["N"], row["passes"]] >= 3]
    Ns = [row["N"] for row in two]
    return [
        f"chapter 12's last kernel runs the forward pass at {times['forward', 'sdpa_flash']} times the speed of SDPA's "
        f"FlashAttention-2 and {times['forward', 'sdpa_cudnn']} times that of cuDNN, the backward pass at "
        f"{times['backward', 'sdpa_flash']} and {times['backward', 'sdpa_cudnn']} times. Against cuDNN (of torch "
        f"{run['forward']['provenance']['torch']}), beyond the scatter of repeated runs, {place['sdpa_cudnn']}. "
        f"Against FlashAttention-4 ({fa4}), the fastest rival that was timed, {place['fa4']}.",
        f"a decode step reads caches of half a gigabyte and more at {span(full)} times a copy's rate "
        f"(`results/decode_h200.json`), FP8 is {eights['fp8 kernel']} times as fast as bfloat16 on numbers that are "
        f"already quantised and {eights['flash_attention_fp8']} times with quantising (`results/fp8_h200.json`), and "
        f"two GPUs are {span([row['speedup'] for row in two])} times as fast as one on causal sequences of "
        f"{min(Ns):,} to {max(Ns):,} tokens (`results/ring_h200.json`, sizes with three runs or more; four GPUs "
        "have not been tried)"]


def test_the_readme_says_what_was_recorded():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for sentence in readme():
        assert sentence in text, sentence


HOPPER, BACK = {"implementation": "fa2_hopper_forward"}, {"implementation": "fa2_hopper_backward"}
ZIGZAG = {"mode": "causal, zig-zag", "passes": "forward", "ranks": 2}
# (who reads it, file, run, which row, the number)
NUMBERS = [
    ("README", "forward_h200", "all", HOPPER | {"N": 512}, "ms"),
    ("README", "forward_h200", "FlashAttention-4", {"implementation": "fa4"}, "ms"),
    ("README", "backward_h200", "all", BACK, "ms"),
    ("README", "decode_h200", "all", {"implementation": "decode", "B": 32, "N": 65536}, "of_copy"),
    ("README", "fp8_h200", "d = 128", {"implementation": "flash_attention_fp8"}, "ms"),
    ("README", "ring_h200", "two GPUs", ZIGZAG, "speedup"),
    ("13", "forward_h200", "all", None, "copy_tb_s"),
    ("13", "decode_h200", "all", {"implementation": "decode", "B": 1, "N": 65536}, "ms"),
    ("13", "decode_h200", "four stages", {"implementation": "decode", "B": 32, "N": 65536}, "ms"),
    ("13", "fp8_h200", "d = 128", {"implementation": "flash_attention_fp8"}, "ms"),
    ("14", "ring_h200", "two GPUs", ZIGZAG, "ms"),
    ("14", "ring_h200", "two GPUs", ZIGZAG | {"ranks": 1}, "ms"),
    ("14", "ring_h200", "two GPUs", ZIGZAG | {"passes": "forward+backward", "N": 262144}, "peak_bytes"),
    ("15", "gpt_h200", "training", {"implementation": "flash_attention", "context": 262144}, "peak_bytes"),
    ("15", "gpt_h200", "generation", {"prompt": 1024, "batch": 1, "cached": True, "graph": True}, "tokens_s"),
    ("16", "forward_h200", "all", HOPPER | {"N": 512}, "ms"),
    ("16", "forward_h200", "FlashAttention-4", {"implementation": "fa4"}, "ms"),
    ("16", "forward_h200", "float16", HOPPER | {"N": 16384, "d": 64}, "ms"),
    ("16", "forward_h200", "d = 256", {"implementation": "fa2_tma_forward", "N": 16384}, "ms"),
    ("16", "forward_h200", "long", HOPPER | {"N": 32768}, "ms"),
    ("16", "forward_h200", "FlexAttention", {"implementation": "flex_attention"}, "ms"),
    ("16", "forward_h200", "ragged", HOPPER | {"N": 4095}, "tflops"),
    ("16", "forward_h200", "shared heads", HOPPER, "tflops"),
    ("16", "forward_h200", "TMA", HOPPER | {"N": 4096, "d": 128}, "tflops"),
    ("16", "backward_h200", "all", {"implementation": "fa4"}, "ms"),
    ("16", "backward_h200", "TMA", BACK | {"N": 4096, "d": 128, "causal": True}, "tflops"),
    ("16", "backward_h200", "ragged", BACK | {"N": 4095}, "tflops"),
    ("16", "backward_h200", "shared heads", BACK, "tflops"),
    ("16", "backward_h200", "shared heads, whole groups", BACK | {"causal": True, "N": 4096, "d": 128}, "tflops"),
    ("16", "spans_h200", "all", {"packed": True}, "times_faster"),
    ("16", "spans_h200", "before", {"packed": True}, "times_faster"),
    ("16", "launch_h200", "all", {"call": "flash_attention, backward"}, "us"),
    ("16", "launch_h200", "checked each time", {"call": "flash_attention"}, "us"),
    ("16", "counters_h100", None, {"implementation": "naive_forward", "N": 4096}, "dram_read"),
]


def change(run, which, key):
    """One number of a run, in place: a ceiling, of the first row that is meant, or of that row's first kernel."""
    rows = [run["ceilings"]] if which is None else [row for part in (run["rows"], run.get("generation", ()))
                                                    for row in pick(part, **which)]
    row = rows[0]["kernels"][0] if key == "dram_read" else rows[0]
    row[key] *= 0.3


@pytest.mark.parametrize("reader, file, label, which, key", NUMBERS)
def test_what_is_said_changes_with_the_record(monkeypatch, reader, file, label, which, key):
    """Fails if a sentence would outlive the number that it was written from."""
    before, real = unchanged(reader), results.read

    def read(path):
        runs = real(path)
        for run in runs[:1] if label is None else pick(runs, label=label):
            if path.stem == file:
                change(run, which, key)
        return runs

    monkeypatch.setattr(results, "read", read)
    assert told(reader) != before
