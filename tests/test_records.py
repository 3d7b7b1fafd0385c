"""What chapters 10 to 16 say in words about the recorded runs holds of the records: where a new record says otherwise,
the words have to change. Numbers are no concern of these tests, the chapters read them from the files.
"""

import statistics
from itertools import product

import pytest

from flashlab import ladder
from flashlab_course.bench import load_results, pick
from flashlab_course.bench.results import measured
from flashlab_course.figures.chapter_12 import gains, rung_before, search_rows, standing

RECORDS = {what: load_results(f"{what}_h200") for what in ("forward", "backward", "tune")}
BACKWARD_BY_TMA = load_results("backward_h200", "TMA")     # a rung that came after the others had been timed
LATER = {"fa2_tma_backward": BACKWARD_BY_TMA, "fa2_hopper_backward": BACKWARD_BY_TMA}
LATEST = load_results("forward_h100")                      # what chapter 16 shows
SIZES = [(d, causal) for d in (64, 128) for causal in (False, True)]


def record_of(name):
    return LATER.get(name) or RECORDS[name.rsplit("_", 1)[-1]]


def gain(name, against=None):
    """{(d, causal): {N: speed over the rung before, or over another}}."""
    found = {}
    for row, ratio, _ in gains(record_of(name), name, against):
        found.setdefault((row["d"], row["causal"]), {})[row["N"]] = ratio
    assert set(found) == set(SIZES) and all({1024, 4096} <= set(by_N) for by_N in found.values()), name
    assert sum(16384 in by_N for by_N in found.values()) >= 3, name
    return found


def median(name, *size):
    return statistics.median(gain(name)[size].values())


STEPS = [one.name for one in ladder.KERNELS + ladder.BACKWARD_KERNELS if rung_before(one.name)]


@pytest.mark.parametrize("name", STEPS)
def test_no_rung_is_slower_than_the_one_before(name):
    """`flash_attention` takes the last rung that takes the call: a slow one in its way would slow everybody down."""
    assert statistics.median(ratio for _, ratio, _ in gains(record_of(name), name)) > 0.985


def test_the_forward_rungs_gain_where_chapter_12_says():
    exp2, split, one = "fa2_exp2_forward", gain("fa2_split_forward"), gain("fa2_pipelined_forward")
    for causal in (False, True):
        assert median(exp2, 64, causal) > median(exp2, 128, causal), "base 2: where products are few"
        assert one[128, causal][512] > max(1.02, one[128, causal][16384]), "one pipeline: wide heads, short sequences"
        assert one[64, causal][16384] < 1 and all(ratio < 1.03 for ratio in one[64, causal].values())
    for d in (64, 128):
        assert median(exp2, d, False) > median(exp2, d, True)
        assert split[d, True][16384] > split[d, True][2048] > split[d, True][512], "the split loop: more with N"
        assert median("fa2_split_forward", d, False) > 1.02
    assert all(split[size][512] < 1.04 for size in SIZES)
    for name in ("fa2_tuned_forward", "fa2_tuned_backward"):
        assert all(0.95 < ratio < 1.05 for by_N in gain(name).values() for ratio in by_N.values()), "the search"


def test_tiles_without_a_stage_ahead_are_never_the_best_and_four_are_good_and_bad():
    rows = search_rows(RECORDS["tune"], "fa2_tuned_forward", 64, 4096, False)
    assert len(rows) == 36, "all that fit: the hand's choice is among them"
    by_tile = {}
    for row in rows:                                                     # the fastest first
        by_tile.setdefault(tuple(row["tiles"][:3]), []).append(row["tiles"][3])
    assert all(stages[0] > 1 for stages in by_tile.values())
    for place in (0, -1):
        assert {stages[place] == 4 for stages in by_tile.values()} == {True, False}


# A tie is no lead, and none is said to be one.
@pytest.mark.parametrize("record, name, against, words", [
    (RECORDS["forward"], "fa2_tma_forward", None, "ahead at 24 of 24"),
    (RECORDS["forward"], "fa2_hopper_forward", None, "ahead at 24 of 24"),
    (BACKWARD_BY_TMA, "fa2_hopper_backward", None, "ahead at 12 of 12"),
    (RECORDS["backward"], "fa2_triton_backward", "sdpa_cudnn", "ahead at 0 of 12 sizes, tied at 0"),
    (load_results("backward_h200", "deterministic"), "fa2_hopper_backward", "fa2_tuned_backward", "ahead at 12 of 12"),
])
def test_a_kernel_is_ahead_where_chapters_11_to_16_say(record, name, against, words):
    assert standing(gains(record, name, against)).startswith(words)


def test_a_lead_takes_three_runs_and_ranges_apart_and_the_fastest_rival_counts():
    def row(name, ms, runs=3, spread=0.0):
        return {"implementation": name, "N": 1, "ms": ms, "ms_low": ms - spread, "ms_high": ms + spread, "runs": runs}

    rows = [row("mine", 2.0), row("slow", 6.0), row("fast", 1.0), row("twice", 1.0, runs=2), row("wide", 2.5, spread=1)]
    found = lambda *rivals: [one[1:] for one in gains({"rows": rows}, "mine", rivals)]
    assert found("slow", "fast") == [(0.5, False)] and found("slow") == [(3.0, False)]
    assert found("twice") == [(0.5, True)] and found("wide") == [(1.25, True)] and found("nobody") == []


def test_the_backward_rungs_gain_where_chapter_12_says():
    split, one = gain("fa2_split_backward"), gain("fa2_atomic_backward")
    assert all(split[size][16384] > split[size][1024] for size in SIZES)
    assert min(split[size][1024] for size in SIZES) < 1
    assert all(ratio < 7 / 5 for by_N in one.values() for ratio in by_N.values())
    assert all(0.95 < statistics.median(one[d, False].values()) < 1.05 for d in (64, 128))
    assert min(one[64, False].values()) < 1 < min(one[128, True].values())
    last, before = (median("fa2_hopper_backward", *size) for size in SIZES), (median(rung.name, *size) for size in SIZES
                    for rung in ladder.BACKWARD_KERNELS[1:-1])
    assert min(last) > max(before)


@pytest.mark.parametrize("run", [RECORDS["forward"], LATEST, RECORDS["backward"]], ids=["H200", "H100", "backward"])
def test_against_cudnn_the_last_rung_is_behind_at_short_sequences_only(run):
    against = gains(run, f"fa2_hopper_{run['what']}", "sdpa_cudnn")
    assert all(tied or ratio > 1 or row["N"] <= 1024 for row, ratio, tied in against)
    assert sum(tied or ratio > 1 for _, ratio, tied in against) > 0.8 * len(against), "most"


def test_only_the_last_kernel_is_faster_than_one_unit_after_the_other():
    """Chapter 16's proof from outside that exponentials and products overlap: less time than their sum."""
    matmul, exponentials = LATEST["ceilings"]["matmul_tflops"], 3.9
    for d in (64, 128):
        one_after_the_other = 4 * d / matmul + 1 / exponentials                       # picoseconds a score
        rows = [row for row in measured(LATEST) if (row["d"], row["causal"]) == (d, False)]
        first, last = (4 * d / max(row["tflops"] for row in rows if row["implementation"] == name)
                       for name in ("fa2_triton_forward", "fa2_hopper_forward"))
        assert last < one_after_the_other < first


def test_no_unit_alone_takes_the_time_of_the_tma_rung():
    """What chapter 12 says of parts left out: half of the products save less than half, the softmax about a quarter."""
    run = load_results("parts_h200")
    ms = {row["left_out"]: row["ms"] for row in run["rows"] if row["d"] == 128}
    assert 0.25 < 1 - ms["P V, and the copies of V"] / ms["nothing"] < 0.45
    assert 0.2 < 1 - ms["softmax"] / ms["nothing"] < 0.33


def test_fp8_pays_at_long_sequences_and_never_twice():
    """Chapter 13: the kernel is ahead everywhere; quantising, as long for each token, eats that where N is short."""
    record = load_results("fp8_h200")
    rows = record["rows"]
    of_a_token = [row["ms"] / (row["B"] * row["N"]) for row in pick(rows, implementation="fp8 quantising")]
    speed = {name: {(row["causal"], row["N"]): 0.99 if tied else ratio
                    for row, ratio, tied in gains(record, name, "fa2_hopper_forward")}
             for name in ("fp8 kernel", "flash_attention_fp8")}
    assert all(1 < ratio < 2 for ratio in speed["fp8 kernel"].values())
    assert max(of_a_token) < 1.1 * min(of_a_token)
    assert {N for _, N in speed["fp8 kernel"]} == {4096, 16384}, "the shorter one, the longer one"
    whole = speed["flash_attention_fp8"]
    assert whole[True, 4096] < 1 < min(whole[False, 4096], whole[False, 16384], whole[True, 16384])
    assert all(whole[causal, 4096] < whole[causal, 16384] for causal in (False, True))
    eights, sixteens = (pick(rows, implementation=name) for name in ("fp8 kernel", "fa2_hopper_forward"))
    assert all(eight["error"] > 20 * sixteen["error"] for eight, sixteen in zip(eights, sixteens, strict=True))


def test_what_the_counters_say_of_three_rungs():
    """Chapter 12: all read DRAM alike; the tensor cores of the last wait least, and the first issues most."""
    kernels = {row["implementation"]: row["kernels"][0] for row in load_results("counters_h200")["rows"]}
    first, middle, last = (kernels[f"fa2_{name}_forward"] for name in ("triton", "tma", "hopper"))
    assert first["tensor_pipe"] < 50 < middle["tensor_pipe"] < 75 < last["tensor_pipe"] < 85
    assert last["tensor_pipe"] > kernels["sdpa_cudnn"]["tensor_pipe"]
    assert 45 < first["issue_slots"] < 55
    assert first["issue_slots"] == max(kernel["issue_slots"] for kernel in kernels.values())
    assert last["issue_slots"] * last["ns"] < first["issue_slots"] * first["ns"], "fewer instructions"
    assert all(kernel["dram_read"] == pytest.approx(50.5e6, rel=0.01) for kernel in kernels.values())


def test_tmas_backward_is_ahead_at_narrow_heads_and_it_pays_to_begin_apart():
    found = gains(BACKWARD_BY_TMA, "fa2_tma_backward")
    at = {size: [one for one in found if (one[0]["d"], one[0]["causal"]) == size] for size in SIZES}
    assert standing(at[64, False] + at[64, True]).startswith("ahead at 6 of 6")
    assert standing(at[128, True]).endswith("tied at 0, behind at 3")
    assert standing(at[128, False]).startswith("ahead at 0") and all(ratio > 0.95 for _, ratio, _ in at[128, False])
    apart, together, lean = (
        {(row["d"], row["N"]): ratio for row, ratio, _ in gains(
            load_results("backward_h200", label), "fa2_tma_backward", "sdpa_cudnn") if not row["causal"]}
        for label in ("TMA, begun apart", "TMA, same start", "TMA"))
    assert len(apart) == 6 and all(apart[size] > 1.02 * together[size] for size in apart)
    assert all(lean[64, N] > 1.05 * apart[64, N] for N in (1024, 4096, 16384)), "a lean program is faster"


def test_decode_steps_read_at_a_copys_rate_where_they_fill_the_card():
    """Chapter 13, and its words on one text, on 32, and on pages."""
    record = load_results("decode_h200")
    rows = [row for row in record["rows"] if row["ms"]]
    steps = {(row["H_kv"], row["B"], row["N"]): row for row in rows if row["implementation"] == "decode"}
    assert all(step["of_copy"] > 0.85 for step in steps.values() if step["bytes"] >= 2**29)
    full = [size for size, step in steps.items() if step["bytes"] >= 2**29]
    paged = {(row["H_kv"], row["B"], row["N"]): row["ms"]
             for row in pick(load_results("decode_h200", "four stages")["rows"], implementation="decode, paged")}
    assert len(full) > 15
    assert min(steps[size]["ms"] / paged[size] for size in full) < 0.8, "four stages are too many for pages"
    rows = [row for row in measured(load_results("decode_h200", "sweep")) if row["B"] == 32 and not row["paged"]]
    best = max(rows, key=lambda row: row["tb_s"])
    assert (best["tiles"], best["splits"]) == ([64, 4, 4], 1), "what decode_kernels.best_tiles says"


def test_training_ends_where_chapter_15_says():
    run = load_results("gpt_h200")
    rows = {(row["implementation"], row["context"]): row for row in run["rows"]}
    for name, N in (("naive", 8192), ("SDPA math", 16384)):
        assert rows[name, N]["tokens_s"] and rows[name, 2 * N]["skipped"] == "out of memory"
    assert all(rows[name, 262144]["tokens_s"] for name in ("flash_attention", "SDPA flash", "SDPA cuDNN"))
    ours = [rows["flash_attention", 1024 * 2**n] for n in range(9)]
    assert all(one["mfu"] < more["mfu"] for one, more in zip(ours, ours[1:], strict=False))
    ends = [row["losses"][-1] for row in run["curves"]]
    assert len(ends) == 5 and max(ends) - min(ends) < 0.02
    written = {(row["prompt"], row["batch"], row["cached"], row["graph"]): row
               for row in load_results("gpt_h200", "generation")["generation"]}
    assert all(row["tokens_s"] > 3 * written[(*size, True, False)]["tokens_s"]
               for (*size, cached, graph), row in written.items() if graph)
    assert written[32768, 8, True, True]["tokens_s"] > 0.7 * written[32768, 8, True, True]["bound_tokens_s"]
    assert written[1024, 1, True, True]["tokens_s"] < 0.1 * written[1024, 1, True, True]["bound_tokens_s"]


def test_odd_sizes_and_types_as_chapter_16_says():
    wide = gains(load_results("forward_h200", "wide heads"), "fa2_hopper_forward", "sdpa_cudnn")
    assert min(wide, key=lambda found: found[1])[0]["d"] == 192
    flex = gains(load_results("forward_h200", "FlexAttention"), "flex_attention", "sdpa_cudnn")
    assert standing(flex).endswith("behind at 12"), "FlexAttention"

    def hopper(what, label):
        rows = pick(load_results(f"{what}_h200", label)["rows"], implementation=f"fa2_hopper_{what}", d=128)
        return {(row["N"], row["causal"]): row["tflops"] for row in rows}

    for what, causal in product(("forward", "backward"), (False, True)):
        ragged = hopper(what, "ragged")
        assert ragged[4095, causal] > 0.95 * ragged[4096, causal]
        assert hopper(what, "shared heads")[4096, causal] > 0.95 * hopper(what, "TMA")[4096, causal]


def test_two_gpus_of_a_ring():
    """Chapter 14: every ring was right; longer sequences gain more; messages are in the open; memory does not halve."""
    rows = load_results("ring_h200")["rows"]
    assert all(row["ms"] and row["error"] <= row["bound"] for row in rows)
    two = pick(rows, ranks=2, mode="causal, zig-zag", passes="forward")
    gained = [row["speedup"] for row in two]
    assert len(two) == 4 and gained == sorted(gained)
    held = {row["ranks"]: row["peak_bytes"] for row in pick(rows, mode="causal, zig-zag", passes="forward+backward")}
    assert held[2] > held[1] and all(row["hidden"] < 0.6 for row in rows if row["ranks"] == 2 and row["runs"] >= 3)


def test_windows_and_packed_sequences():
    """Chapter 16: a window of an eighth of the keys, and sequences of equal lengths, packed."""
    rows = load_results("spans_h200")["rows"]
    assert all(3.6 < row["times_faster"] < 3.9 for row in rows if row["left"])
    packed = pick(rows, packed=True)
    assert len(packed) == 16 and all(0.95 < row["times_faster"] < 1.02 for row in packed)
