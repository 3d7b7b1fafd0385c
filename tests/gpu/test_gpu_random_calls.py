"""Random calls of the operator and of decoding against float64: many on a GPU, a few here.

A call follows from its number alone: the message of a failure names it.
"""

import calls
import pytest
import torch
from calls import DecodeCall, random_call

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.kernels import plans
from flashlab.operator.decoding import flash_attention_decode
from flashlab.triton_mode import import_triton
from flashlab_course.bench.decode import shuffled_table

CALLS, DECODE_CALLS = 1000, 100        # on a GPU


def wrong(number, device="cuda", backend="auto", longest=500):
    """What is wrong with random call `number`, forward and backward, in words; None if it is right."""
    call, deterministic = random_call(number, longest)
    tensors = call.tensors(device)
    forward = call.wrong(call.forward(tensors, backend), tensors)
    return forward or call.wrong(call.backward(tensors, backend, deterministic), tensors)


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(0, CALLS, 50))
def test_random_calls_on_a_gpu(first):
    """Each twice: the second call is made by the plan of the first."""
    found = [f"call {number}: {reason}" for number in range(first, first + 50)
             if (reason := wrong(number) or wrong(number))]
    assert plans._plans, "no launch could be packed: kernels/driver.py no longer knows what Triton passes"
    assert not found, found


@pytest.mark.gpu
def test_random_decode_calls_on_a_gpu():
    found = [reason for number in range(DECODE_CALLS) if (reason := DecodeCall(number).wrong("cuda", "triton"))]
    assert not found, found


@pytest.mark.parametrize("number", range(0, 12 * 37, 37))
def test_a_random_call_is_right(number):
    assert wrong(number, "cpu", "torch", longest=60) is None
    assert number > 200 or DecodeCall(number, longest=300).wrong("cpu", "torch") is None


@pytest.mark.skipif(import_triton() is None, reason="triton is not installed (it exists for Linux only)")
@pytest.mark.skipif(torch.cuda.is_available(), reason="about Triton's interpreter")
def test_the_decode_kernels_take_a_random_call():
    call = DecodeCall(1, longest=90)
    call.lengths = call.lengths[:2]
    assert call.wrong("cpu", "triton") is None


def test_a_wrong_call_is_found(monkeypatch):
    for name in ("flash_attention", "flash_attention_decode"):
        real = getattr(calls, name)
        off = lambda *tensors, real=real, **options: [T * 1.02 for T in real(*tensors, **options)]
        monkeypatch.setattr(calls, name, off)
    for found in ([wrong(number, "cpu", "torch", longest=40) for number in range(0, 80, 20)],
                  [DecodeCall(number, longest=60).wrong("cpu", "torch") for number in range(4)]):
        assert any("O off by" in (reason or "") for reason in found)


@pytest.mark.gpu
def test_a_decode_step_in_a_graph(steps=3):
    """Each replay writes a token, with the same bits as a call outside the graph."""
    B, H_q, H_kv, N, d, page_size = 4, 32, 4, 4096, 128, 64
    g = torch.Generator("cuda").manual_seed(0)
    normal = lambda *sizes: torch.randn(*sizes, generator=g, device="cuda", dtype=torch.bfloat16)
    table = shuffled_table(B, N, page_size, g, "cuda")
    K, V = (normal(table.numel(), H_kv, page_size, d) for _ in range(2))
    lengths = torch.tensor([0, 63, 2000, 4000], dtype=torch.int32, device="cuda")
    tokens = [(normal(B, H_q, 1, d), normal(B, H_kv, 1, d), normal(B, H_kv, 1, d)) for _ in range(steps)]

    def step(token, K, V, lengths):
        O = flash_attention_decode(token[0], K, V, lengths, block_table=table, K_new=token[1], V_new=token[2])
        lengths += 1
        return O

    state = [T.clone() for T in (K, V, lengths)]
    expected = [step(token, *state) for token in tokens]
    state, place = [T.clone() for T in (K, V, lengths)], [T.clone() for T in tokens[0]]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):                      # nothing runs, so the state stays
        O = step(place, *state)
    for n, token in enumerate(tokens):
        for T, T_new in zip(place, token, strict=True):
            T.copy_(T_new)
        graph.replay()
        assert torch.equal(O, expected[n]), n
