"""The small GPT: the same with every attention, the same with a cache as without, and its counts are what happens."""

import math
from types import SimpleNamespace as Event

import pytest
import torch

import flashlab  # noqa: F401   before Triton
from flashlab_course import gpt
from flashlab_course.gpt.count import kept_bytes
from flashlab_course.gpt.model import angles, rotate
from flashlab_course.gpt.profile import on_the_gpu

TINY = gpt.Shape(layers=2, width=32, heads=4, kv_heads=2)
ATTENTIONS = ("naive", "SDPA math", "flash_attention")


def words(N, batch=1, first=0):
    return torch.stack([gpt.encode(gpt.text())[first + 50 * n:][:N] for n in range(batch)])


def model(attention="flash_attention", shape=TINY, seed=0, dtype=torch.float64):
    return gpt.GPT(shape, gpt.ATTENTIONS[attention], seed=seed).to(dtype)


# ---- the text

def test_the_text_is_whole_and_windows_lie_in_it():
    text = gpt.text()
    assert text.startswith("First Citizen:\n") and text.endswith("\n") and 900_000 < len(text) < 1_000_000
    assert gpt.decode(gpt.encode(text[:500])) == text[:500]
    train, held_back = gpt.split(torch.arange(1000))
    assert len(train) == 900 and torch.equal(torch.cat((train, held_back)), torch.arange(1000))
    tokens = torch.arange(40)
    one, other = (gpt.windows(tokens, 200, 9, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, other) and one.shape == (200, 10)
    assert (one.diff() == 1).all(), "a window is not a piece of the text"
    assert one.min() == 0 and one.max() == 39, "the first or the last token is never drawn"
    with pytest.raises(ValueError, match="context must be less than the text's 40 tokens, got 40"):
        gpt.windows(tokens, 1, 40, torch.Generator())


# ---- the model

def test_every_attention_gives_the_same_logits_and_gradients():
    tokens, found = words(33, batch=2), {}
    for name in ATTENTIONS:
        one = model(name)
        one.loss(tokens).backward()
        found[name] = [one(tokens).detach(), *(weight.grad for weight in one.parameters())]
    for name in ATTENTIONS[1:]:
        for a, b in zip(found[name], found["naive"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_no_token_sees_a_later_one():
    one, tokens = model(), words(20)
    changed = tokens.clone()
    changed[0, 13] += 1
    before, after = one(tokens), one(changed)
    assert torch.equal(before[:, :13], after[:, :13]) and not torch.allclose(before[:, 13:], after[:, 13:])


def test_a_score_of_rotated_rows_depends_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64).unbind()
    score = lambda i, j: float((rotate(q, angles(i, 1, 8, "cpu")) * rotate(k, angles(j, 1, 8, "cpu"))).sum())
    assert score(5, 2) == pytest.approx(score(105, 102), abs=1e-4) and abs(score(5, 2) - score(5, 3)) > 1e-3
    assert torch.equal(rotate(q, angles(0, 1, 8, "cpu")), q)
    assert rotate(q, angles(7, 1, 8, "cpu")).norm() == pytest.approx(float(q.norm()), abs=1e-5)


def test_a_seed_decides_the_weights_and_a_new_model_knows_nothing():
    """The first loss is that of a blind guess among 256 tokens."""
    one, same, other = (list(model(seed=seed).parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], other[0])
    assert model().loss(words(60, batch=4)).item() == pytest.approx(math.log(256), abs=0.1)


@pytest.mark.parametrize("changes, said", [
    ({"width": 36}, "width must be a multiple of 2 · heads"),
    ({"kv_heads": 3}, "heads must be a multiple of kv_heads, got 4 and 3"),
    ({"layers": 0}, "layers must be an integer >= 1, got 0")])
def test_sizes_that_make_no_model_are_named(changes, said):
    with pytest.raises(ValueError, match=said):
        gpt.GPT(TINY._replace(**changes), gpt.ATTENTIONS["naive"])


# ---- training

def test_training_follows_its_seed_and_reports_and_the_loss_falls(capsys):
    tokens, said, progress = words(20_000)[0], [], gpt.progress("it")

    def report(*line):
        said.append(line)
        progress(*line)

    run = lambda seed: gpt.train(model("naive", dtype=torch.float32), tokens, 15, batch=4, context=32, seed=seed,
                                 report=report)
    one, same, other = run(0), run(0), run(1)
    assert one == same and one != other and one[-1] < one[0] - 0.5
    step, steps, loss = said[-1]
    assert (step, steps, loss) == (15, 15, pytest.approx(other[-1]))
    lines = capsys.readouterr().out.splitlines()                             # off a terminal the last one of each run
    assert len(lines) == 3 and lines[-1] == f"it: step 15 of 15, loss {loss:.2f}"


# ---- the cache

@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_same_text_with_a_cache_as_without(kv_heads):
    """Fails if a new token gets the wrong position, the cache keeps the wrong rows, or a query sees too few keys."""
    one, prompt = model(shape=TINY._replace(kv_heads=kv_heads)), words(11, batch=2)
    for weight in one.parameters():
        weight.data *= 6 if weight.dim() == 2 else 1                         # else every token is about as likely
    whole, cached = (gpt.generate(one, prompt, 30, cached=cached) for cached in (False, True))
    assert torch.equal(whole, cached) and whole.shape == (2, 41) and torch.equal(whole[:, :11], prompt)
    assert whole[:, 11:].unique().numel() > 5, "a text of one letter would be the same whatever the cache does"
    logits, cache, pieces = one(whole), gpt.Cache(one, 2, 41), []
    with torch.no_grad():
        for rows in (slice(0, 7), slice(7, 8), slice(8, 30), slice(30, 31), slice(31, 41)):
            pieces.append(one(whole[:, rows], cache))
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits.detach(), rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="longest must be at least the tokens that are written, got 41 for 42"):
        one(whole[:, :1], cache)


def test_drawn_text_follows_its_seed():
    one, prompt = model("naive"), words(5)
    first, same, other = (gpt.generate(one, prompt, 12, temperature=1.0, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, same) and not torch.equal(first, other)
    with pytest.raises(ValueError, match=r"prompt must be \(B, N\)"):
        gpt.generate(one, prompt[0], 1)
    said = "graph must be False without a cache or a GPU, got True with cached=True on cpu"
    with pytest.raises(ValueError, match=said):
        gpt.generate(one, prompt, 1, graph=True)


# ---- the counts

def test_flops_are_those_that_pytorch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    one, tokens = model("naive"), words(33, batch=2)
    with FlopCounterMode(display=False) as counter:
        one.loss(tokens).backward()
    assert counter.get_total_flops() == gpt.flops_per_token(TINY, 32, causal=False) * 2 * 32
    matrices = sum(weight.numel() for name, weight in one.named_parameters()
                   if weight.dim() == 2 and "embedding" not in name)
    assert gpt.weights(TINY) == matrices and gpt.flops_per_token(TINY, 64) == 6 * matrices + 6 * 2 * 32 * 64
    assert gpt.mfu(1000, TINY, 64, 1000 * gpt.flops_per_token(TINY, 64)) == 1


@pytest.mark.parametrize("name", ["naive", "flash_attention"])
@pytest.mark.parametrize("shape", [TINY, TINY._replace(layers=1, width=64, kv_heads=4)])
def test_kept_bytes_are_what_autograd_keeps(name, shape):
    one, kept = model(name, shape, dtype=torch.float32), {}
    known = {weight.untyped_storage().data_ptr() for weight in one.parameters()}

    def keep(T):
        kept[T.untyped_storage().data_ptr()] = T                             # alive, so that its place is nobody else's
        return T

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda T: T):
        loss = one.loss(gpt.windows(words(300)[0], 3, 40, torch.Generator()))
    measured = sum(T.untyped_storage().nbytes() for place, T in kept.items() if place not in known)
    assert loss.requires_grad and measured == kept_bytes(shape, 3, 40, naive=name == "naive")


def test_parts_of_a_step_add_up():
    """Fails if backward steps go to the wrong part: an attention that does more of everything takes a larger share."""
    naive, shares = gpt.ATTENTIONS["naive"], []
    often = lambda Q, K, V, causal: sum(naive(Q, K, V, causal) for _ in range(6)) / 6
    for attention in (naive, often):
        found, operations = gpt.parts(gpt.GPT(TINY, attention), words(129, batch=2))
        assert set(found) == {"attention", "projections", "mlp", "head", "the rest"}
        assert all(ms > 0 for ms in found.values())
        assert sum(found.values()) == pytest.approx(sum(ms for _, ms, _ in operations))
        assert operations == sorted(operations, key=lambda row: -row[1])
        shares.append(found["attention"] / sum(found.values()))
    assert shares[1] > shares[0] + 0.1


def test_kernels_of_a_range_are_counted_once():
    """On a GPU the profiler lists a range among its own kernels; made-up events, as there is no GPU here."""
    kernel = lambda name, us: Event(name=name, duration=us)
    op = Event(kernels=[kernel("gemm", 5.0)], cpu_children=[])
    outer = Event(kernels=[kernel("attention", 40.0), kernel("triton", 3.0)], cpu_children=[op, op])
    assert on_the_gpu(outer) == 13.0
