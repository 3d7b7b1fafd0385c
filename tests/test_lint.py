"""The lint of Triton kernels: each rule finds what it is for, names it, and says nothing about a sound kernel."""

import linecache

import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course.compiler import lint  # noqa: E402
from flashlab_course.compiler.ahead_of_time import try_all  # noqa: E402
from flashlab_course.gpu import row_softmax, vector_add  # noqa: E402

pytestmark = pytest.mark.skipif(not interpreted(), reason="the lint is for machines without a GPU")
OFFSET = tl.constexpr(1)


@triton.jit
def scaled(x, factor):
    return x * factor


@triton.jit
def dot_kernel(A, B, C, M: tl.constexpr, K: tl.constexpr, widen: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(A + m[:, None] * K + k)
    b = tl.load(B + k[:, None] * M + m)
    if widen:
        a = a.to(tl.float32)
    tl.store(C + m[:, None] * M + m, scaled(tl.dot(a, b), 2.0))


@triton.jit
def unguarded_kernel(X, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Out + i, tl.load(X + i, i < N), i < N + OFFSET)


@triton.jit
def unguarded_load_kernel(X, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Out + i, tl.load(X + i - 3), i < N)


def dot(M, K, dtype=torch.float16, widen=False, **options):
    tensors = {"A": torch.zeros(M, K, dtype=dtype), "B": torch.zeros(K, M, dtype=dtype), "C": torch.zeros(M, M)}
    return tensors | {"M": M, "K": K, "widen": widen} | options


def rules(findings):
    return [finding.rule for finding in findings]


RULES = {              # rule: what is launched, the level of the finding, words in it
    "dot_k": (dot(16, 8), "fails", "at least 16 along K"),
    "mixed_dot": (dot(16, 16, widen=True), "fails", "Got fp32 and fp16"),
    "tf32": (dot(16, 16, torch.float32), "differs", "10 bits of mantissa"),
    "bf16": (dot(16, 16, torch.bfloat16), "differs", "wrong in the interpreter"),
    "shared": (dot(128, 512), "fails", "needs 256 KiB of shared memory, a program on an H100 (sm_90) may use 227 KiB"),
    "spills": (dot(256, 16, torch.float32), "slow", "to memory"),
}


def test_each_rule_finds_what_it_is_for():
    results = try_all([(dot_kernel, arguments, lint.H100) for arguments, _, _ in RULES.values()])
    for (rule, (_, level, words)), result in zip(RULES.items(), results, strict=True):
        findings = list(lint.remarks("dot_kernel", result))
        finding = next(one for one in findings if one.rule == rule)
        assert len(findings) == 1 or rule in ("shared", "spills")          # the large tiles have two faults each
        assert finding.level == level and words in finding.text and "dot_kernel" in finding.text and finding.fix
        if rule in ("dot_k", "mixed_dot"):                                 # a compile error shows the line
            assert "`tl.store(C + m[:, None] * M + m, scaled(tl.dot(a, b), 2.0))`" in finding.text


def test_a_sound_kernel_gets_no_finding(monkeypatch):
    X, Out = torch.randn(70), torch.empty(70)
    arguments = {"X": X, "Y": X, "Out": Out, "N": 70, "B": 64}
    assert lint.lint_kernel(vector_add.vector_add_kernel, arguments, grid=(2,)) == []
    assert lint.as_text([]) == "nothing found"
    monkeypatch.setattr(lint, "interpreted", lambda: False)                # as on a GPU
    assert lint.as_text([]).splitlines() == ["nothing found", *lint.UNWATCHED.splitlines()]


def test_stray_accesses_are_located_and_not_carried_out():
    wide = torch.full((200,), 7.0)
    X, Out = torch.randn(200)[60:130], wide[60:130]

    def launch_both():
        unguarded_kernel[(2,)](X, Out, 70, 64)
        unguarded_load_kernel[(2,)](X, Out, 70, 64)

    store, load = lint.lint_call(launch_both)
    assert (store.rule, store.level, load.rule, load.level) == ("stray_store", "wrong", "stray_load", "wrong")
    assert "program (1, 0, 0), the first one 1 element past its end of Out" in store.text
    assert "program (0, 0, 0), the first one 3 elements before its start of X" in load.text
    assert (wide[130:] == 7).all() and (wide[:60] == 7).all()


def test_the_kernels_of_a_call_are_found_by_themselves():
    X = torch.randn(5, 200)
    assert lint.lint_call(lambda: row_softmax.row_softmax(X)) == []
    findings = lint.lint_call(lambda: dot_kernel[(1,)](**dot(256, 16, torch.float32)))
    assert rules(findings) == ["tf32", "spills"], "the worst comes first"


def test_a_kernel_from_a_notebook_can_be_compiled_with_the_helpers_and_constants_it_uses():
    space = {"tl": tl, "triton": triton, "__name__": "__main__"}
    text = ("LIMIT = tl.constexpr(8)\n@triton.jit\ndef half(x):\n    return x / 2\n\n"
            "@triton.jit\ndef cell_kernel(X, K: tl.constexpr):\n"
            "    i = tl.arange(0, 16)\n    a = half(tl.load(X + i[:, None] * 16 + i, i < LIMIT))\n"
            "    tl.store(X + i[:, None] * 16 + i, tl.dot(a, a, input_precision='ieee'))\n")
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    exec(compile(text, "<cell>", "exec"), space)
    assert lint.lint_kernel(space["cell_kernel"], {"X": torch.zeros(16, 16), "K": 3}) == []
