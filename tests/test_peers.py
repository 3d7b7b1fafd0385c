"""The functions under the names of the package flash_attn, which flash-attention's own tests are run with, hold against
float64.

Those tests themselves want a checkout of that project: tests/peers/README.md.
"""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flashlab import oracle
from flashlab.triton_mode import import_triton

PEERS = Path(__file__).parent / "peers"
LENGTHS_Q, LENGTHS_K = [5, 0, 9], [7, 3, 4]


@pytest.fixture(scope="module")
def shim():
    """Under another name than flash_attn: other packages ask whether that one is installed."""
    spec = importlib.util.spec_from_file_location("shim_of_flash_attn", PEERS / "flash_attn" / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(*lengths, heads=(4, 2), d=16, dtype=torch.float32):
    """q, k, v in flash-attention's order of dimensions."""
    (N_q, N_k), (H_q, H_kv) = lengths, heads
    return [torch.randn(2, N, H, d, dtype=dtype, requires_grad=True) for N, H in ((N_q, H_q), (N_k, H_kv), (N_k, H_kv))]


def swapped(*tensors):
    return [T.transpose(1, 2) for T in tensors]


@pytest.mark.parametrize("causal, window",
                         [(False, (-1, -1)), (True, (-1, -1)), (False, torch.tensor([3, 2])), (True, (4, 5))])
def test_dense(shim, causal, window):
    q, k, v = tensors(9, 13)
    O, L, S = shim.flash_attn_func(q, k, v, causal=causal, window_size=window, return_attn_probs=True)
    options = {"causal": causal, "window": tuple(map(int, window))}
    assert S is None and oracle.judge(*swapped(O), L, *swapped(q, k, v), **options).ok
    dO = torch.randn_like(O)
    assert torch.equal(O, shim.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), causal=causal, window_size=window))
    gradients = torch.autograd.grad(O, (q, k, v), dO)
    assert oracle.judge_gradients(*swapped(*gradients), *swapped(q, k, v, dO), **options).ok


def packed_sequences():
    cu_seqlens = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (LENGTHS_Q, LENGTHS_K)]
    q, k, v = (torch.randn(sum(lengths), H, 16) for lengths, H in ((LENGTHS_Q, 4), (LENGTHS_K, 2), (LENGTHS_K, 2)))
    each = [(slice(*cu_seqlens[0][s : s + 2].tolist()), slice(*cu_seqlens[1][s : s + 2].tolist())) for s in range(3)]
    return q, k, v, cu_seqlens, each


def test_varlen_and_all_in_one_tensor(shim):
    q, k, v = tensors(11, 11, heads=(4, 4))
    one = shim.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), causal=True)
    assert torch.equal(one, shim.flash_attn_func(q, k, v, causal=True))
    q, k, v, cu_seqlens, each = packed_sequences()
    O = shim.flash_attn_varlen_func(q, k, v, *cu_seqlens, 9, 7, causal=True)
    assert torch.equal(shim.flash_attn_varlen_kvpacked_func(q, torch.stack([k, v], 1), *cu_seqlens, 9, 7, causal=True),
                       O)
    for rows, keys in each:
        Q, K, V, O_s = (T.transpose(0, 1) for T in (q[rows], k[keys], v[keys], O[rows]))
        assert oracle.judge(O_s, None, Q, K, V, causal=True).ok


@pytest.mark.skipif(import_triton() is None, reason="only the Triton kernels have dropout")
def test_the_third_result_tells_what_was_dropped(shim):
    q, k, v = tensors(6, 8)
    O, L, S = shim.flash_attn_func(q, k, v, 0.5, causal=True, return_attn_probs=True)
    P = S.abs() / S.abs().sum(-1, keepdim=True)                # relative to the row's largest: so to its sum
    kept = torch.where(S >= 0, P, 0) / 0.5
    torch.testing.assert_close(O, (kept @ swapped(v)[0].repeat_interleave(2, 1)).transpose(1, 2))
    assert 0 < (S < 0).sum() < (S != 0).sum()
    q, k, v, cu_seqlens, each = packed_sequences()
    O, L, S = shim.flash_attn_varlen_func(q, k, v, *cu_seqlens, 9, 7, 0.5, return_attn_probs=True)
    for s, (rows, keys) in enumerate(each):
        part = S[s, :, : LENGTHS_Q[s], : LENGTHS_K[s]]
        kept = torch.where(part >= 0, part, 0) / part.abs().sum(-1, keepdim=True) / 0.5
        torch.testing.assert_close(O[rows].transpose(0, 1), kept @ v[keys].transpose(0, 1).repeat_interleave(2, 0))


def test_cache(shim):
    q, k_cache, v_cache = (T.detach() for T in tensors(2, 12))
    _, k, v = (T.detach() for T in tensors(2, 2))
    lengths = torch.tensor([3, 10], dtype=torch.int32)
    O = shim.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
    for b, N in enumerate((5, 12)):
        Q, K, V, O_b = (T.transpose(0, 1) for T in (q[b], k_cache[b, :N], v_cache[b, :N], O[b]))
        assert torch.equal(k_cache[b, N - 2 : N], k[b]) and oracle.judge(O_b, None, Q, K, V, causal=True).ok


def test_what_flashlab_has_not_got_is_skipped_and_run_wants_a_checkout(shim):
    for options in ({"softcap": 30.0}, {"alibi_slopes": torch.ones(4)}):
        with pytest.raises(pytest.skip.Exception, match="flashlab has not got"):
            shim.flash_attn_func(*tensors(3, 3), **options)
    run = subprocess.run([sys.executable, PEERS / "run.py", "cs336", PEERS], capture_output=True, text=True)
    assert run.returncode != 0 and "CHECKOUT must have tests/test_attention.py" in run.stderr
    scope = runpy.run_path(PEERS / "scope.py")         # a refusal in other words would count as a failure
    said = (PEERS.parents[1] / "flashlab" / "operator" / "huggingface.py").read_text(encoding="utf-8")
    assert [words for words in scope["REFUSALS"] if words not in said] == []
    assert scope["refused"]("this model adds a pattern of its own") and scope["refused"]("Q must be 4-D") is None


def test_transformers_models_get_flashlab_where_tests_ask_for_another():
    """In a process of its own: attention_interface.py changes transformers for good."""
    pytest.importorskip("transformers", minversion="5.23", reason="transformers is not installed: it is an extra")
    code = ("import sys; sys.path[:0] = {}; import flashlab, torch, transformers, attention_interface\n"
            "attention_interface.install(); config = transformers.LlamaConfig(\n"
            "    vocab_size=9, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_hidden_layers=1)\n"
            "for name in 'eager', 'sdpa', 'flash_attention_2', None:\n"
            "    model = transformers.LlamaModel._from_config(config, attn_implementation=name)\n"
            "    before = attention_interface.calls; model(torch.ones(1, 3, dtype=torch.long))\n"
            "    print(model.config._attn_implementation, attention_interface.calls > before)")
    run = subprocess.run([sys.executable, "-c", code.format([str(PEERS.parents[1]), str(PEERS)])], capture_output=True,
                         text=True, timeout=300)
    assert run.stdout.splitlines() == ["eager False"] + ["FlashLab True"] * 3, run.stderr
