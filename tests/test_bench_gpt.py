"""`bench gpt`: what is written, what is skipped and why."""

import json

import pytest
import torch

import flashlab  # noqa: F401
from flashlab_course import gpt
from flashlab_course.bench import cli, timing
from flashlab_course.bench import gpt as bench_gpt

TINY = gpt.Shape(layers=1, width=32, heads=2, kv_heads=2)
SMALL = {"device": "cpu", "ceilings": lambda: {"matmul_tflops": 0.1, "copy_tb_s": 0.01}, "shape": TINY, "sizes": (16, 32, 64),
         "curve": {"shape": TINY, "batch": 2, "context": 16, "steps": 3}, "tokens_a_step": 32, "prompts": (8,), "batches": (1, 2),
         "written": 3, "profile_at": 32}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A whole run of a tiny model, with an attention that has room for 16 tokens."""
    def narrow(Q, K, V, causal=True):
        if Q.shape[2] > 16:
            raise torch.OutOfMemoryError("no room")
        return gpt.ATTENTIONS["naive"](Q, K, V, causal)

    out = tmp_path_factory.mktemp("gpt") / "gpt_x.json"
    attentions = {"narrow": narrow, "flash_attention": gpt.ATTENTIONS["flash_attention"]}
    return out, bench_gpt.run(attentions, out=out, command="it", **SMALL)


def test_what_is_written_is_what_is_returned(measured):
    out, results = measured
    assert json.loads(out.read_text()) == results and results["complete"] and results["what"] == "gpt"
    assert results["shape"] == TINY._asdict() and results["provenance"]["command"] == "it"


def test_an_attention_without_room_is_not_tried_at_longer_contexts(measured):
    rows = {(row["implementation"], row["context"]): row for row in measured[1]["rows"]}
    assert rows["narrow", 16]["tokens_s"] > 0 and rows["narrow", 16]["batch"] == 2
    assert rows["narrow", 32]["skipped"] == "out of memory"
    assert rows["narrow", 64]["skipped"] == "out of memory at a shorter one"
    assert rows["flash_attention", 64]["tokens_s"] > 0 and rows["flash_attention", 64]["batch"] == 1
    row = rows["flash_attention", 32]
    assert row["mfu"] == pytest.approx(gpt.mfu(row["tokens_s"], TINY, 32, 1e11), abs=1e-4)


def test_curves_are_of_the_same_model_on_the_same_text(measured):
    narrow, flash = measured[1]["curves"]
    assert narrow["losses"] == pytest.approx(flash["losses"], abs=0.05) and len(flash["losses"]) == 3     # in bfloat16
    assert flash["text"].startswith("ROMEO:") and len(flash["text"]) > 100


def test_generation_and_parts(measured):
    rows = measured[1]["generation"]
    ways = [(True, True), (True, False), (False, False)]
    assert [(row["batch"], row["cached"], row["graph"]) for row in rows] == [(batch, *way) for batch in (1, 2) for way in ways]
    read = gpt.weights(TINY) * 2 + 2 * 2 * 32 * 8
    assert rows[0]["bound_tokens_s"] == pytest.approx(1e10 / read, rel=1e-3)
    assert all("graph must be False" in row["skipped"] if row["graph"] else row["tokens_s"] for row in rows)       # on a CPU
    narrow, flash = measured[1]["profile"]
    assert narrow["skipped"] == "out of memory" and flash["parts"]["attention"] > 0 and flash["kernels"][0]["ms"] > 0


def test_the_table_says_all_of_it(measured):
    said = bench_gpt.table(measured[1])
    for words in ("narrow: loss", "context 32, narrow: out of memory", "context 64, flash_attention: ", "MFU", "attention ",
                  "2 prompts of 8, no cache: "):
        assert words in said


def test_a_run_out_of_time_says_so():
    results = bench_gpt.run({"naive": gpt.ATTENTIONS["naive"]}, expired=lambda: True, **SMALL)
    assert {row["skipped"] for part in ("curves", "rows", "generation") for row in results[part]} == {timing.OUT_OF_TIME}


def test_its_options():
    parser, each = cli.parsers()
    args = parser.parse_args(["gpt"])
    assert args.run is bench_gpt.run_asked and cli.is_full_set(args, each["gpt"]) and args.budget_seconds == 150
    assert not cli.is_full_set(parser.parse_args(["gpt", "--longest", "4096"]), each["gpt"])
