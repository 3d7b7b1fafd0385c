"""The learner's own code in the curves: what passes is there with its own bytes, what does not adds nothing."""

import pytest
import torch

from flashlab import cost
from flashlab.oracle import judge_gradients
from flashlab.triton_mode import interpreted
from flashlab_course import sweeps
from flashlab_course.check import form, source
from flashlab_course.lesson import yours

needs_interpreter = pytest.mark.skipif(not interpreted(), reason="counted by Triton's interpreter")


@pytest.fixture(autouse=True)
def _(sandbox):
    """A root of its own for answers."""


def write(name, text=None):
    """As a learner would: the solution, or another text, in exercises/."""
    if text is None:
        text = form.exercise(name).parsed.text.replace("# >>> your turn:", "# mine:").replace("# <<<", "")
    source.exercise_path(name).write_text(text, encoding="utf-8")


def test_without_a_right_answer_nothing_is_added():
    assert yours.over_N([64]) == []
    assert yours.implementations("forward") == {} and yours.implementations("backward") == {}
    results = {"what": "forward", "rows": []}
    assert yours.into(results) is results
    right = form.exercise("ex06_fa2_inner_loop").parsed.text
    write("ex06_fa2_inner_loop", right.replace("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)"))
    assert yours.over_N([64]) == [], "a function that fails its check stands in a curve"
    write("ex06_fa2_inner_loop")
    assert [point["rung"] for point in yours.over_N([64])] == ["yours: FA2"], "the mended file is not read again"


@pytest.mark.parametrize("name, title", [("ex05_fa1_inner_loop", "FA1"), ("ex06_fa2_inner_loop", "FA2")])
def test_bytes_of_an_exercise_are_measured_and_those_of_its_rung(name, title):
    write(name)
    mine = yours.over_N([64, 128], d=16)
    rung = {"FA1": "fa1_forward", "FA2": "fa2_forward"}[title]
    theirs = sweeps.over_N([64, 128], d=16, rungs=[rung])
    for point, rungs in zip(mine, theirs, strict=True):
        assert point | {"rung": "", "sram_peak": 0} == rungs | {"rung": "", "sram_peak": 0}
    assert all(p["rung"] == f"yours: {title}" for p in mine)


@needs_interpreter
def test_bytes_of_a_kernel_are_counted_by_the_interpreter():
    write("ex10_triton_forward")
    point, = yours.over_N([128], d=16)
    assert point["rung"] == "yours: FA2 in Triton"
    truth = cost.fa2_forward(128, 128, 16, B_r=point["B"], B_c=point["B"]).traffic
    assert point["measured"] == point["formula"] == truth


@needs_interpreter
def test_gradients_of_a_head_whose_columns_are_no_power_of_two():
    """Chapter 11 trains with heads of 96 columns; the exercise's kernel knows 16, 32, 64, ..."""
    write("ex11_dkdv")
    leaves = [torch.randn(1, 2, 20, 24, requires_grad=True) for _ in range(3)]
    O, _ = yours.implementations("backward")["yours"](*leaves, True)
    dO = torch.randn_like(O)
    grads = torch.autograd.grad(O, leaves, dO)
    for h in range(2):
        found, inputs = [grad[0, h] for grad in grads], [T.detach()[0, h] for T in leaves]
        assert (verdict := judge_gradients(*found, *inputs, dO[0, h], causal=True)).ok, str(verdict)


QKV = [(2, 4, 20, 16), (2, 2, 20, 16), (2, 2, 20, 16)]


def both_ways(attention):
    """O and the gradients by this attention, of tensors that are no contiguous ones, as a model's are not."""
    made = [torch.randn(B, N, H, d, generator=torch.Generator().manual_seed(n)) for n, (B, H, N, d) in enumerate(QKV)]
    leaves = [T.requires_grad_() for T in made]
    O = attention(*(T.transpose(1, 2) for T in leaves), causal=True)
    return [O, *torch.autograd.grad(O.square().sum(), leaves)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="chapter 08's function stands for the CPU alone")
@pytest.mark.parametrize("passed, title", [
    (["ex08_autograd_function"], "your autograd.Function"),
    pytest.param(["ex10_triton_forward"], "your forward kernel, interpreted", marks=needs_interpreter),
    pytest.param(["ex11_dkdv"], "your dK and dV, interpreted", marks=needs_interpreter),
    pytest.param(["ex10_triton_forward", "ex11_dkdv"], "your kernels, interpreted", marks=needs_interpreter)])
def test_a_model_can_train_with_what_has_passed(passed, title):
    from flashlab.operator.attention import flash_attention

    every = ["ex08_autograd_function"] + ["ex10_triton_forward", "ex11_dkdv"] * interpreted()
    assert yours.attentions() == ({}, every)
    for name in passed:
        write(name)
    found, left = yours.attentions()
    assert list(found) == [title] and left == [name for name in every if name not in passed]
    for mine, truth in zip(both_ways(found[title]), both_ways(flash_attention), strict=True):
        torch.testing.assert_close(mine, truth, rtol=1e-4, atol=1e-5)


@needs_interpreter
def test_the_kernels_that_train_are_the_learner_s(monkeypatch):
    """Fails if the course's kernel runs under the learner's name."""
    names, calls = ("ex10_triton_forward", "ex11_dkdv"), []
    for name in names:
        write(name)
    attention = yours.attentions()[0]["your kernels, interpreted"]
    for name in names:
        exercise = form.exercise(name)
        real = exercise.call
        monkeypatch.setattr(exercise, "call", lambda fn, *rest, real=real: (calls.append(fn), real(fn, *rest))[1])
    both_ways(attention)
    assert calls == [yours.answer(name) for name in names]
