"""Variants of a kernel with a part left out: each leaves out what it says, and only that."""

import json

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab_course.bench import parts
from flashlab_course.bench.problems import Problem

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")

from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course.compiler.ahead_of_time import compile_all  # noqa: E402


@pytest.fixture(scope="module")
def made():
    """What the compiler makes of each variant for an H100, by name."""
    Q, L = torch.empty(1, 16, 4096, 128, dtype=torch.bfloat16, device="meta"), torch.empty(1, 16, 4096, device="meta")
    found = {}
    for name in parts.LEFT_OUT:
        with parts.variant(name) as module:
            arguments = module.launch(Q, Q, Q, Q, L, causal=False, scale=0.1)[1]
            found[name], = compile_all([(module.KERNEL, arguments, 90)])
    return found


def test_a_variant_lacks_its_part(made):
    """Fails if the compiler's code still has what is said to be left out, or has lost what is said to be there."""
    count = lambda word: {name: gpu.ptx.count(word) for name, gpu in made.items()}
    exponentials, products, copies = count("ex2.approx"), count("wgmma.mma_async"), count("cp.async.bulk.tensor")
    whole = exponentials["nothing"]
    assert exponentials["exponentials of P"] < 0.2 * whole and exponentials["softmax"] < 0.2 * whole
    assert all(exponentials[name] > 0.8 * whole for name in ("row maxima", "row sums", "row maxima and sums"))
    assert products["P V, and the copies of V"] < products["nothing"] == products["softmax"] == products["exponentials of P"]
    assert copies["P V, and the copies of V"] < copies["nothing"] == copies["softmax"]
    assert count("max.f32")["row maxima"] < 0.5 * count("max.f32")["nothing"]


def test_a_line_that_is_no_longer_there_is_an_error(monkeypatch):
    monkeypatch.setitem(parts.LEFT_OUT, "row sums", [("l_i = what it was", "")])
    with pytest.raises(ValueError, match="must have this line once, it has it 0 times: l_i = what it was"):
        with parts.variant("row sums"):
            pass


@pytest.mark.skipif(not interpreted(), reason="about a run without a GPU")
def test_what_is_written_and_shown(tmp_path):
    calls = []

    def timer(function):
        function()
        calls.append(function)
        return [2.0] if len(calls) > 1 else [4.0]

    out = tmp_path / "parts_x.json"
    results = parts.run([Problem(32, 16, False, "float32", 1, 1)], out=out, command="it", device="cpu", timer=timer, rounds=1)
    assert json.loads(out.read_text()) == results and results["complete"] and len(calls) == len(parts.LEFT_OUT)
    assert [row["left_out"] for row in results["rows"]] == list(parts.LEFT_OUT)
    assert "of the time" in parts.table(results) and "d 16 N 32, without softmax" in parts.table(results)
