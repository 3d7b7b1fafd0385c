"""Prose and records: where a number in a record changes, the sentences and titles that it stands in change with it.

Of chapters 12 to 16 only those cells run that a sentence's {{expressions}} need; nothing is drawn, titles are kept.
"""

import contextlib
import functools
import io
import re
import sys
from unittest.mock import MagicMock

import jupytext
import pytest
from test_going_back import ROOT, SOURCES, reads_and_bindings
from test_lessons import build

from flashlab_course import figures
from flashlab_course.bench import load_results, pick, results
from flashlab_course.bench.decode import SDPA
from flashlab_course.figures.chapter_12 import gains, standing

sys.path += [str(ROOT / "docs"), str(ROOT / "site")]
import front  # noqa: E402    docs/ and site/ are no packages
from race import race  # noqa: E402


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


@functools.cache
def chapter(number):
    """The cells of a chapter, and the numbers of those that its expressions need."""
    source, = (path for path in SOURCES if build.number_of(path) == number)
    cells = [cell for cell in jupytext.read(source).cells if "later[" not in cell.source]     # by the compiler
    for cell in cells:
        if "cpu_ms" in cell.source:                    # by a clock, which never says the same twice
            cell.source = "\n".join(re.findall("^import .*", cell.source, re.MULTILINE))
    return cells, needed(cells)


def told(number):
    """What a chapter's sentences, titles and printed lines say, by the records as they are now."""
    if number == "README":
        return readme()
    (cells, run), space, drawn, said = chapter(number), {}, Undrawn(), io.StringIO()
    with contextlib.redirect_stdout(said):
        for n, cell in enumerate(cells):
            exec(cell.source if n in run else build.asking(cell), space)         # the code of the course itself
            space |= {"figures": drawn} if "figures" in space else {}
    return said.getvalue(), drawn.titles


unchanged = functools.cache(told)
WIDE = "wide heads", "wide heads, second", "wide heads, third"


def readme():
    """{file: the rows about speed in its tables}, by the records as they are now."""
    row = lambda *cells: f"| {' | '.join(cells)} |"
    between = lambda numbers, form: f"{min(numbers):{form}} to {max(numbers):{form}}"
    speed = lambda run, name, rivals=SDPA: front.span(gains(run, name, rivals))
    beside = front.beside()
    speeds = [row(title, *(front.span(found) + " (H100)" * ("H100" in run["provenance"]["device"])
                           for run, found in both)) for title, both in beside.items()]
    peer, torch = (beside["FlashAttention-4"][1][0]["provenance"].get(name) for name in ("flash-attn-4", "torch"))
    us = {one["call"]: f"{one['us']:.0f} µs" for one in load_results("launch_h100")["rows"]}
    host = {"forward": "", "forward with gradients": ", recorded", "forward and backward": ", both"}
    fp8, decode, ring = (load_results(f"{what}_h200") for what in ("fp8", "decode", "ring"))
    full = [one["of_copy"] for one in pick(decode["rows"], implementation="decode") if one["bytes"] >= 2**29]
    rings = [one for one in pick(ring["rows"], mode="causal, zig-zag") if one["runs"] >= 3]
    one, two = ({(row["N"], row["passes"]): row["speedup"] for row in pick(rings, ranks=n)} for n in (1, 2))
    shared = {size: two[size] for size in one.keys() & two}
    heads = lambda what, kernel, *dims: front.span([
        found for label in WIDE for found in gains(load_results(f"{what}_h200", label), kernel, "sdpa_cudnn")
        if found[0]["d"] in dims])
    return {
        "README.md": [
            *speeds,
            row("backward with `deterministic=True`, PyTorch's without",
                speed(load_results("backward_h200", "deterministic"), "fa2_hopper_backward")),
            row("heads of 192, forward", heads("forward", "fa2_hopper_forward", 192)),
            row("heads of 192 and 256, backward", heads("backward", "wide_backward", 192, 256)),
            row("one new token against a cache", speed(decode, "decode")),
            *(row(f"host, small call: {words}", f"{us['flash_attention' + name]}; PyTorch {us['sdpa' + name]}")
              for words, name in host.items())],
        "docs/results.md": [
            *(row(title, *(standing(found) for _, found in both)) for title, both in beside.items()),
            f"Versions: torch {torch}; FlashAttention-4, {peer or 'version not recorded'}.",
            row("heads of 80 and 96", f"{heads('forward', 'fa2_hopper_forward', 80, 96)} the speed of cuDNN, backward "
                f"{heads('backward', 'fa2_hopper_backward', 80, 96)}",
                "`results/forward_h200.json`, `results/backward_h200.json`"),
            row("heads of 256, forward", f"{heads('forward', 'fa2_hopper_forward', 256)} the speed of cuDNN",
                "`results/forward_h200.json`"),
            row("a decode step, caches of half a gigabyte and more", f"{between(full, '.2f')} × the rate of a copy",
                "`results/decode_h200.json`"),
            *(row(words, f"{speed(fp8, name, 'fa2_hopper_forward')} the speed of bfloat16", "`results/fp8_h200.json`")
              for words, name in (("FP8, numbers that are already quantised", "fp8 kernel"),
                                  ("FP8, with quantising", "flash_attention_fp8"))),
            row(f"two GPUs, causal, {between([N for N, _ in shared], ',')} tokens",
                f"{between(shared.values(), '.2f')} × the speed of one", "`results/ring_h200.json`")]}


def test_the_readme_says_what_was_recorded():
    for name, rows in readme().items():
        text = (ROOT / name).read_text(encoding="utf-8")
        missing = [row for row in rows if f"{row}\n" not in text]
        assert not missing, "\n".join([f"{name} should say", *missing])


def test_the_readme_shows_the_race_it_tells_of():
    """Its bytes are those that the player counts. `make figures` draws it anew."""
    naive, flash = (f"{scene.moved[-1]:,}" for scene in race().scenes)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"naive attention moves {naive} bytes, FlashAttention-2 {flash}](docs/race.gif)" in readme
    assert (ROOT / "docs/race.gif").stat().st_size < 400_000


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
    ("README", "forward_h100", "all", {"implementation": "naive_forward"}, "ms"),
    ("README", "backward_h200", "deterministic", BACK, "ms"),
    ("README", "forward_h200", "wide heads", HOPPER | {"d": 192}, "ms"),
    ("README", "backward_h200", "wide heads", {"implementation": "wide_backward", "d": 192, "causal": True}, "ms"),
    ("README", "launch_h100", "all", {"call": "sdpa, both"}, "us"),
    ("12", "parts_h200", "all", {"left_out": "softmax", "d": 128}, "ms"),
    ("12", "counters_h200", None, {"implementation": "fa2_tma_forward"}, "dram_read"),
    ("12", "backward_h200", "all", {"implementation": "fa2_atomic_backward"}, "ms"),
    ("12", "backward_h200", "TMA, same start", {"implementation": "fa2_tma_backward"}, "ms"),
    ("12", "backward_h200", "TMA", {"implementation": "fa2_tma_backward", "d": 128, "causal": True}, "ms"),
    ("13", "forward_h200", "all", None, "copy_tb_s"),
    ("13", "decode_h200", "all", {"implementation": "decode", "B": 1, "N": 65536}, "ms"),
    ("13", "decode_h200", "four stages", {"implementation": "decode", "B": 32, "N": 65536}, "ms"),
    ("13", "fp8_h200", "d = 128", {"implementation": "flash_attention_fp8"}, "ms"),
    ("14", "ring_h200", "two GPUs", ZIGZAG, "ms"),
    ("14", "ring_h200", "two GPUs", ZIGZAG | {"ranks": 1}, "ms"),
    ("14", "ring_h200", "two GPUs", ZIGZAG, "hidden"),
    ("14", "ring_h200", "two GPUs", ZIGZAG | {"passes": "forward+backward", "N": 262144}, "peak_bytes"),
    ("15", "forward_h200", "all", None, "copy_tb_s"),
    ("15", "gpt_h200", "training", {"implementation": "flash_attention", "context": 262144}, "peak_bytes"),
    ("15", "gpt_h200", "training", {"implementation": "SDPA cuDNN", "context": 16384}, "tokens_s"),
    ("15", "gpt_h200", "generation", {"prompt": 1024, "batch": 1, "cached": True, "graph": True}, "tokens_s"),
    ("16", "forward_h100", "all", HOPPER | {"N": 512, "d": 128, "causal": False}, "ms"),
    ("16", "forward_h100", "all", {"implementation": "naive_forward", "N": 1024}, "tflops"),
    ("16", "forward_h200", "all", {"implementation": "sdpa_math", "N": 512}, "rms_error"),
    ("16", "forward_h200", "all", {"implementation": "sdpa_efficient", "N": 512}, "tflops"),
    ("16", "forward_h200", "FlashAttention-4", {"implementation": "fa4"}, "ms"),
    ("16", "forward_h200", "float16", {"implementation": "fa2_tma_forward", "N": 16384, "d": 128}, "ms"),
    ("16", "forward_h200", "wide heads", HOPPER | {"N": 16384, "d": 256, "causal": False}, "ms"),
    ("16", "forward_h200", "FlexAttention", {"implementation": "flex_attention"}, "ms"),
    ("16", "forward_h200", "ragged", HOPPER | {"N": 4095}, "tflops"),
    ("16", "forward_h200", "shared heads", {"implementation": "sdpa_cudnn"}, "ms"),
    ("16", "backward_h200", "ragged", BACK | {"N": 4095}, "tflops"),
    ("16", "backward_h200", "shared heads", BACK | {"N": 4096, "d": 128, "causal": True}, "tflops"),
    ("16", "backward_h200", "shared heads, whole groups", BACK | {"causal": True, "N": 4096, "d": 128}, "tflops"),
    ("16", "spans_h200", "all", {"packed": True}, "times_faster"),
    ("16", "spans_h200", "before", {"packed": True}, "times_faster"),
    ("16", "launch_h100", "all", {"call": "flash_attention, both of a layer"}, "us"),
    ("16", "counters_h100", None, {"implementation": "naive_forward", "N": 4096}, "dram_read"),
]


def change(run, which, key):
    """One number of a run, in place: a ceiling, or one of the first row that is meant."""
    rows = [run["ceilings"]] if which is None else [row for part in (run["rows"], run.get("generation", ()))
                                                    for row in pick(part, **which)]
    for place in (rows[0], *rows[0].get("kernels", ())[:1]):       # a count stands in both
        place[key] *= 0.3


@pytest.mark.parametrize("reader", sorted({reader for reader, *_ in NUMBERS}))
def test_the_same_records_say_the_same(reader):
    """Fails if a clock has its say: then the next test could not fail."""
    assert told(reader) == unchanged(reader)


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
