"""Which calls a kernel takes, which one runs, and the tiles that a search found for it."""

import json
from types import SimpleNamespace

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder, oracle
from flashlab.operator import pick
from flashlab.operator.attention import flash_attention
from flashlab.triton_mode import interpreted

tuning = pytest.importorskip("flashlab.kernels.tuning", reason="triton is not installed (it exists for Linux only)")

from test_triton_forward import DEVICE, bf16, fp16, fp32, inputs  # noqa: E402

from flashlab.kernels import fa2_atomic_backward, fa2_split, launch  # noqa: E402

# ---- which calls a kernel takes

class OnGPU(torch.Tensor):
    """A tensor that says it is on a GPU: enough to be asked about."""

    is_cuda = property(lambda self: True)


def gpu_inputs(N_q=128, N_k=128, d=128, d_v=128, dtype=bf16, layout=lambda T: T):
    Q, K, V, _ = (T.cpu() for T in inputs(N_q, N_k, d, d_v, dtype))
    return [T.as_subclass(OnGPU) for T in (Q, layout(K), V)]


def first_column_cut(T):
    return torch.cat([T, T], -1)[..., 1: 1 + T.shape[-1]]


CU = torch.tensor([0, 60, 128], dtype=torch.int32)
PACKED, WINDOW = {"cu_seqlens_q": CU, "cu_seqlens_k": CU}, {"window": [50, 0]}
SMALL, WIDE = {"d": 32, "d_v": 32}, {"d": 192, "d_v": 192}         # the Hopper kernels take 33 to 128 or 256
ON_H100, ORDERED = (9, 0), {"deterministic": True}

# capability, inputs, options -> the kernel that runs, and words from the reason why the one above does not
PICKED = [
    (ON_H100, {}, {}, "fa2_hopper_forward", ""),
    (ON_H100, {"d": 64, "d_v": 64, "dtype": fp16, "N_q": 100, "N_k": 333}, {"causal": True}, "fa2_hopper_forward", ""),
    (ON_H100, {"d": 80, "d_v": 96}, {}, "fa2_hopper_forward", ""),
    (ON_H100, WIDE, WINDOW, "fa2_hopper_forward", ""),
    (ON_H100, SMALL, {}, "fa2_tma_forward", "not 32"),
    (ON_H100, {"dtype": fp32}, {}, "fa2_tma_forward", "not float32"),
    (ON_H100, {}, {"dropout_p": 0.1}, "windows_forward", "no dropout"),
    (ON_H100, {"N_q": 200}, {"causal": True}, "fa2_tma_forward", "see no key"),
    (ON_H100, {"N_q": 200}, WINDOW, "fa2_hopper_forward", ""),
    (ON_H100, SMALL, WINDOW, "windows_forward", "it takes no window"),
    (ON_H100, {"d": 59, "d_v": 59}, {}, "fa2_pipelined_forward", "118 bytes"),
    (ON_H100, {"layout": lambda T: T.mT.contiguous().mT}, {}, "fa2_pipelined_forward", "columns lie 128 elements apart"),
    (ON_H100, {"layout": first_column_cut}, {}, "fa2_pipelined_forward", "K's rows, heads or batches do not all begin"),
    (ON_H100, {"N_k": 0}, {}, "fa2_pipelined_forward", "K is empty"),
    ((10, 0), {}, {}, "fa2_tma_forward", "this GPU has 10.0"),
    ((8, 0), {}, {}, "fa2_pipelined_forward", "9.0, this GPU has 8.0"),
    (ON_H100, {}, {}, "fa2_hopper_backward", ""),
    (ON_H100, {"d": 64, "d_v": 64, "N_q": 333, "N_k": 100, "layout": first_column_cut}, {"causal": True},
     "fa2_hopper_backward", ""),
    (ON_H100, {"d": 80, "d_v": 96}, {}, "fa2_hopper_backward", ""),
    (ON_H100, {"d": 100, "d_v": 100}, {}, "fa2_atomic_backward", "200 bytes"),
    (ON_H100, WIDE, WINDOW, "wide_backward", ""),
    (ON_H100, WIDE, ORDERED, "fa2_tuned_backward", "whatever order"),
    (ON_H100, SMALL, {}, "fa2_tma_backward", "not 32"),
    (ON_H100, {"dtype": fp32}, {}, "fa2_tma_backward", "not float32"),
    (ON_H100, {}, {"dropout_p": 0.1}, "windows_backward", "no dropout"),
    (ON_H100, {}, ORDERED, "fa2_hopper_backward", ""),
    (ON_H100, SMALL, ORDERED, "fa2_tuned_backward", "whatever order"),
    (ON_H100, {}, WINDOW, "fa2_hopper_backward", ""),
    (ON_H100, {}, WINDOW | ORDERED, "windows_backward", "it takes no window"),
    ((10, 0), {}, {}, "fa2_tma_backward", "this GPU has 10.0"),
    ((10, 0), WIDE, {}, "fa2_tma_backward", "this GPU has 10.0"),
    ((8, 0), {}, {}, "fa2_atomic_backward", "this GPU has 8.0"),
    ((8, 0), {"d": 59, "d_v": 16, "layout": first_column_cut}, {"causal": True}, "fa2_atomic_backward", ""),
    ((8, 0), {}, ORDERED, "fa2_tuned_backward", "whatever order"),
]


@pytest.fixture
def gpu(monkeypatch):
    """gpu(capability, SMs): pretends that this GPU is there."""
    def pretend(capability, sms=132):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: SimpleNamespace(multi_processor_count=sms))

    return pretend


@pytest.mark.parametrize("capability, sizes, options, expected, why", PICKED)
def test_the_best_kernel_that_takes_a_call_runs(gpu, monkeypatch, capability, sizes, options, expected, why):
    """Fails if a kernel is given what it cannot take, or a call ends lower than it must."""
    gpu(capability)
    monkeypatch.setattr(pick, "SMALL", 0)
    backward = expected.endswith("backward")
    kernel, reasons = pick.pick(*gpu_inputs(**sizes), backward=backward, **options)
    assert kernel.name == expected
    names = [kernel.name for kernel in (pick.BACKWARD_KERNELS if backward else pick.KERNELS)]
    assert list(reasons) == names[: names.index(expected): -1] and (not reasons or why in list(reasons.values())[-1])


def test_small_gpus_small_calls_and_kernels_that_no_gpu_has_tried(gpu, monkeypatch):
    gpu(ON_H100, sms=16)                               # programs that wait for others need all of them to run: else a hang
    turns = ladder.rung("fa2_hopper_backward")
    assert "need as many SMs" in turns.why_not(*gpu_inputs(), deterministic=True) and turns.why_not(*gpu_inputs()) is None
    gpu(ON_H100)
    kernel, reasons = pick.pick(*gpu_inputs())
    assert kernel.name == "fa2_pipelined_forward" and "so small a call" in reasons["fa2_hopper_forward"]
    large = [T.expand(64, -1, 2048, -1) for T in gpu_inputs(N_q=1, N_k=1)]
    assert "so small a call" not in pick.explain(*large)
    monkeypatch.setattr(pick, "KERNELS", [kernel._replace(proven=kernel.number <= 6) for kernel in pick.KERNELS])
    assert pick.pick(*gpu_inputs())[0].name == "fa2_split_forward"
    assert "not fa2_tuned_forward: it has not been held against float64" in pick.explain(*gpu_inputs())


def test_few_queries_before_many_keys_are_decoded(gpu):
    gpu(ON_H100)
    picked = lambda N_q, N_k, **options: pick.pick(*gpu_inputs(N_q, N_k), **options)
    for call in ({"N_q": 1, "causal": True}, {"N_q": 64, "window": (99, 0)}):
        assert picked(**call, N_k=1024)[0].name == "fa2_decode_forward"
    assert "fa2_decode_forward" not in {**picked(65, 1024)[1], **picked(1, 1000)[1]}
    assert picked(1, 1024, dropout_p=0.1)[1]["fa2_decode_forward"] == "it takes no dropout"


def test_an_option_that_a_kernel_lacks_is_refused_by_name():
    """Fails if a kernel named as backend leaves out a window, packed sequences or dropout in silence."""
    Q = torch.zeros(1, 1, 32, 64, device=DEVICE)
    for kernel in [*pick.KERNELS[2:-1], *pick.BACKWARD_KERNELS[2:-2]]:
        for options, words in (({"window": (3, 0)}, "window"), ({"dropout_p": 0.1}, "dropout")):
            assert pick.why_not(kernel, Q, Q, Q, causal=True, **options) == f"it takes no {words}"
        assert pick.why_not(kernel, Q, Q, Q, cu_seqlens_q=CU, cu_seqlens_k=CU) == "it takes no packed sequences"


@pytest.mark.skipif(not interpreted(), reason="about Triton's interpreter")
def test_a_kernel_named_as_backend_is_the_one_that_runs(monkeypatch):
    """Fails if another runs, or if one that cannot run gives way in silence."""
    Q, K, V, dO = inputs(20, 30, 16, 16, fp16)

    def gradients(backend, **options):
        leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
        return torch.autograd.grad(flash_attention(*leaves, backend=backend, **options), leaves, dO)

    columns = K.mT.contiguous().mT
    for call, error, words in (
            (lambda: flash_attention(Q, K, V, backend="fa2_hopper_forward"), ValueError,
             "this rung does not take the call: its instructions are Hopper's alone"),
            (lambda: flash_attention(Q, columns, V, backend="fa2_tma_forward"), ValueError, "columns lie 30 elements apart"),
            (lambda: flash_attention(Q, K, V, window=(3, 0), backend="fa2_exp2_forward"), ValueError,
             "fa2_exp2_forward does not take the call: it takes no window"),
            (lambda: gradients("fa2_split_backward", dropout_p=0.1), ValueError,
             "fa2_split_backward does not take the call: it takes no dropout"),
            (lambda: gradients("fa2_hopper_backward"), ValueError, "its instructions are Hopper's alone"),
            (lambda: gradients("fa2_atomic_backward", deterministic=True), ValueError, "adds dQ up in whatever order"),
            (lambda: gradients("fa2_atomic_backward", deterministic=1), TypeError, "deterministic must be True or False")):
        with pytest.raises(error, match=words):
            call()
    monkeypatch.setattr(fa2_split, "fa2_tuned_forward", lambda Q, K, V, **options: (Q + 1, Q.new_zeros(Q.shape[:3]).float()))
    monkeypatch.setattr(fa2_atomic_backward, "fa2_atomic_backward", lambda *T, **options: [one + 1 for one in T[:3]])
    assert torch.equal(flash_attention(Q, K, V, backend="fa2_tuned_forward"), Q + 1)
    assert oracle.judge(flash_attention(Q, K, V, backend="fa2_tma_forward"), None, Q, K, V).ok
    assert all(torch.equal(grad, T + 1) for grad, T in zip(gradients("fa2_atomic_backward"), (Q, K, V), strict=True))


@pytest.mark.parametrize("given, enabled, expected", [
    (None, False, False), (None, True, True), (False, True, False), (True, False, True)])
def test_deterministic_follows_pytorch_unless_it_is_said(monkeypatch, given, enabled, expected):
    """Fails if use_deterministic_algorithms, or an argument against it, does not reach the choice of a backward kernel."""
    asked, real = [], pick.pick
    monkeypatch.setattr(pick, "pick", lambda *QKV, **options: asked.append(options) or real(*QKV, **options))
    Q, K, V = (T.requires_grad_() for T in inputs(5, 7, 16, 16)[:3])
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(enabled)
    try:
        O = flash_attention(Q, K, V, backend="triton", deterministic=given)
    finally:
        torch.use_deterministic_algorithms(before)
    O.sum().backward()
    assert [options["deterministic"] for options in asked if options.get("backward")] == [expected]


# ---- tiles that a search found

def test_the_grid_is_pruned_by_shared_memory_and_warps():
    """Fails if a tile that cannot run is compiled, which takes seconds, or one that can is left out."""
    small, large = (tuning.candidates(128, 128, bf16, limit) for limit in (99 * 1024, 227 * 1024))
    assert set(small) < set(large) and tuning.Tiles(128, 64, 8, 3) in large and tuning.Tiles(128, 64, 8, 3) not in small
    assert tuning.shared_bytes(tuning.Tiles(128, 64, 8, 3), 128, 128, bf16) == 2 * 128 * (128 + 3 * 64 * 2)
    assert all(tiles.B_r >= 16 * tiles.num_warps for tiles in large)
    with_keys = tuning.candidates(128, 128, bf16, 227 * 1024, stays="keys")                # in rows, where a program keeps keys
    assert tuning.Tiles(64, 128, 8, 2) in with_keys and all(tiles.B_c >= 16 * tiles.num_warps for tiles in with_keys)


def test_a_search_is_remembered_and_used(monkeypatch, tmp_path):
    """Fails if a table found at one N does not serve the next, or serves another head dimension, or a broken file is fatal."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.tables.cache_clear()
    key = tuning.key(fa2_split.KERNEL, 16, 16, fp16, True)
    tuning.remember(key, 64, [[[32, 16, 4, 2], 3.0, None], [[64, 32, 4, 1], 2.0, None], [[64, 64, 4, 1], None, "out of memory"]])
    tuning.remember(key, 4096, [[[16, 16, 4, 2], 1.0, None]])
    O, L = torch.empty(1, 1, 70, 16), torch.empty(1, 1, 70)
    B_r = lambda N, d, **more: fa2_split.launch_tuned(*inputs(N, N, d, d, fp16)[:3], O, L, scale=1.0, **{"causal": True} | more)[1]["B_r"]
    assert (B_r(70, 16), B_r(2100, 16), B_r(70, 16, B_r=128)) == (64, 16, 128)
    assert tuning.fastest(fa2_split.KERNEL, 24, 24, fp16, True, 70) is None
    assert len(json.loads(tuning.cache_file().read_text())[key]) == 2
    tuning.cache_file().write_text("{ half a fi")
    tuning.tables.cache_clear()
    assert tuning.fastest(fa2_split.KERNEL, 16, 16, fp16, True, 64) is None
    tuning.tables.cache_clear()


def test_heads_that_are_walked_together_fit_in_the_L2_cache():
    """Fails if heads are left over, or if so many are walked together that their keys and values leave the cache meanwhile."""
    X = torch.empty(4, 16, 4096, 128, dtype=bf16, device="meta")       # 2 MiB of K and V a head; 32 MiB where nothing is known
    assert launch.heads_together(X, X, X) == 16 and launch.heads_together(X, X[:, :2], X[:, :2]) == 64
    assert launch.heads_together(X[:1, :7], X[:1, :7], X[:1, :7]) == 7
    assert [launch.largest_divisor(12, fit) for fit in (0, 1, 5, 6, 100)] == [1, 1, 4, 6, 12]
