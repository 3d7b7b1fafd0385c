"""The pictures of chapter 13: what their titles say is what their data say."""

import pytest

from flashlab_course import figures
from tests.pictures_decoding import all_of, decode, fp8
from tests.test_figures import labels, source, title


def test_titles_count():
    said = {name: title(draw()) for name, draw in all_of().items()}
    assert said["sms_busy"] == "With 17 splits 52% of 132 SMs work on average, with 16 splits 97%"
    assert said["cost_of_splits"] == "16 splits: programs 16 times as short, 7.5 % more bytes"
    assert said["time_of_splits"] == "3 splits are 2.8 times as fast as none"
    assert said["pages_drawn"] == "27 keys in 3 pages of 16: 56% of their room is used"
    assert said["bytes_of_steps"] == "At 1,024 keys a step reads 2 KiB with no window; 512 B with a window"


def test_an_sm_shows_how_many_programs_it_gets():
    ax = figures.sms_busy({"7 programs": 7}, sms=4).axes[0]
    assert labels(ax) == ["2", "2", "2", "1"] and "2 waves, 88% of the time" in ax.get_title(loc="left")


def test_pages_stand_in_their_row_and_in_the_pool():
    of_sequences, pool = figures.pages_drawn([[2, 0], [4]], [20, 7], 16, 6).axes
    assert labels(of_sequences) == ["2", "0", "4"] and labels(pool) == list("012345")


def test_recorded_steps_are_the_smallest_and_the_largest_batch():
    fig = figures.decode_steps(decode())
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["batch of 1", "batch of 32"]
    assert title(fig) == ("Flash-Decoding reads its cache at 85% of a copy's rate at B = 1, N = 65536 and "
                          "90% of a copy's rate at B = 32, N = 65536")
    assert source(fig).startswith("Recorded on Invented GPU")


def test_what_was_not_measured_is_left_out():
    fig = figures.decode_steps(decode(B=(1,), skipped=("sdpa_flash",)))
    assert len(fig.axes) == 1 and not any("SDPA" in text for text in labels(fig.axes[0]))
    with pytest.raises(ValueError, match="no decode step of H_q = 32, H_kv = 4"):
        figures.decode_steps(decode(skipped=("decode",)))
    with pytest.raises(ValueError, match="H_q = 16, H_kv = 16"):
        figures.decode_steps(decode(), H_q=16, H_kv=16)


def test_fp8_bars_end_where_their_times_do():
    fig = figures.fp8_times(fp8())
    ax = fig.axes[0]
    assert title(fig) == "FP8's kernel is 1.20 to 1.40 times as fast as bfloat16's, with quantising 0.90 to 1.25"
    assert [round(bar.get_x() + bar.get_width(), 3) for bar in ax.patches] == [83.333, 95.238, 76.923, 111.111, 71.429, 80]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["N = 4096", "N = 4096, causal", "N = 16384, causal"]
    assert source(fig).endswith("d = 128, 16 heads, 16,384 tokens in all.")
    with pytest.raises(ValueError, match="times of fp8 kernel, flash_attention_fp8, fa2_hopper_forward"):
        figures.fp8_times(fp8(without=("flash_attention_fp8",)))
