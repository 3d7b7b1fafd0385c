"""The pictures of chapters 03 to 06: what their titles and bars claim is what the rungs and the papers say."""

import math

import pytest
import torch

from flashlab import cost
from flashlab.memory import KiB, Memory
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab_course import figures
from flashlab_course.figures.budget import tile_bytes
from flashlab_course.figures.work import H100, moved_by_tensor, state_share, unit_times


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def log_of(f, N=64, d=16, **sizes):
    Q, K, V = (torch.randn(N, d) for _ in range(3))
    with Memory() as mem:
        f(Q, K, V, **(sizes or {"B_r": 16, "B_c": 16}))
    return mem.log


def test_the_shares_are_those_of_the_whole_row():
    s = torch.tensor([0.0, 1.0, 5.0, 2.0], dtype=torch.float64)
    states = [(None, part.max(), torch.exp(part - part.max()).sum()) for part in (s[:3], s[3:])]
    fig = figures.shares_of_weight(states, [3, 1])
    share = torch.softmax(s, 0)[:3].sum().item()
    assert f"{100 * share:.0f}" in texts(fig.axes[0])
    assert f"Worker 0 had 75 % of the keys and found {100 * share:.0f} %" in title(fig)


def test_star_weights_name_the_tile_that_is_most_wrong():
    s = torch.tensor([0.0, 0.0, 4.0, 4.0])
    fig = figures.star_weights(s, 2)
    true = torch.softmax(s, 0)[:2].sum().item()
    assert f"Tile 1 of this row holds {100 * true:.0f} % of the weight; softmax* gives it 50 %" in title(fig)
    assert "softmax* gives it 100 %" in title(figures.star_weights(s, 4)), "one tile is the whole row: softmax* is right there"


def test_matmul_traffic_marks_what_does_not_fit():
    points = [{"edge": B, "formula": 2**20 // B, "measured": 2**20 // B if B < 64 else None} for B in (16, 32, 64)]
    fig = figures.matmul_traffic(points)
    assert title(fig) == "Tiles 2 times as wide: 64 KiB becomes 32 KiB" and texts(fig.axes[0]) == ["SRAM overflow"]


@pytest.mark.parametrize("softmax, S", [(False, "S"), (True, "P")])
def test_attention_tiles_mark_one_row_and_nothing_else(softmax, S):
    fig = figures.attention_tiles(3, 2, i=2, softmax=softmax)
    assert title(fig).startswith(f"O₃ = {S}₃₁ V₁ + {S}₃₂ V₂:")
    coloured = [text.get_text() for text in fig.axes[0].texts if text.get_color() == "white"]
    assert sorted(coloured) == sorted([f"${S}_{{31}}$", f"${S}_{{32}}$", "$Q_3$", "$O_3$", "$V_1$", "$V_2$", "$K_1^T$", "$K_2^T$"])
    with pytest.raises(ValueError, match="i must be one of the 3 blocks"):
        figures.attention_tiles(3, 2, i=3)


def test_tile_bytes_are_what_the_rung_keeps_on_chip():
    """When QKᵀ has been made, the four strips and S_ij are there, and the two small vectors of the running state."""
    log = log_of(fa1_forward, N=64, d=16, B_r=16, B_c=32)
    first = next(event for event in log if event.name == "mm")
    expected = tile_bytes(16, 32, 16)
    strips_and_S = sum(expected[name] for name in ("K_j", "V_j", "Q_i", "O_i", "S_ij"))
    assert first.live == strips_and_S + 2 * 16 * 4                       # l_i and m_i


def test_tiles_in_sram_says_which_one_is_too_many():
    """Chapter 05's overflow: S_ij fits, a scaled copy of it does not."""
    fig = figures.tiles_in_sram({"64 × 192": tile_bytes(64, 192, 64), "64 × 64": tile_bytes(64, 64, 64)}, 192 * KiB)
    assert title(fig) == "64 × 192: 176 KiB without scaled S_ij, which no longer fits; 64 × 64: 112 KiB fit"


def test_share_of_S_with_and_without_the_minimum():
    """min(·, d) keeps S_ij at a quarter of the SRAM or less; without it the square grows as 1/d²."""
    fig = figures.share_of_S([32, 64, 128], 192 * KiB)
    capped, square = (list(line.get_ydata()) for line in fig.axes[0].lines[:2])
    assert max(capped) <= 0.25 and square[0] == pytest.approx(4 * square[1]) == pytest.approx(3)
    assert "3 times the SRAM; with min(·, d) it takes 0.25" in title(fig)


def test_traffic_of_state_accounts_for_every_byte_of_the_kernel():
    logs = {f.__name__: log_of(f) for f in (fa1_forward, fa2_forward)}
    for log in logs.values():
        moved = sum(event.read + event.written for event in log if event.kind in ("load", "store"))
        assert sum(map(sum, moved_by_tensor(log).values())) == moved
    fa1 = logs["fa1_forward"]
    initialised = 4 * 64 * (16 + 2)                                     # zeros and -inf, written before the kernel
    assert sum(map(sum, moved_by_tensor(fa1).values())) == cost.fa1_forward(64, 64, 16, B_r=16, B_c=16).traffic - initialised
    assert title(figures.traffic_of_state({"fa1_forward": fa1})).startswith(f"{100 * state_share(fa1):.0f} % of what FA1 moves")
    assert "of FA2's traffic" in title(figures.traffic_of_state(logs))


def test_time_by_unit_follows_from_the_published_rates():
    """At d = 128 an H100 needs half as long for the exponentials as for the products (FlashAttention-3, section 3.1)."""
    times = unit_times(128, 8)
    assert times["exponential"] / times["products"] == pytest.approx(0.5, abs=0.01)
    assert times["other float32"] == 8 / (H100["float32"] / 2)           # a lone operation takes a multiply-add's place
    assert "99 % at d = 64, 50 % at d = 128" in title(figures.time_by_unit([64, 128], {64: 6, 128: 8}))


def test_split_among_warps_counts_what_is_exchanged():
    fig = figures.split_among_warps(64, 128, 64, warps=4)
    assert f"{3 * 4 * 64 * (64 + 2) / KiB:.1f} KiB pass between 4 warps" in title(fig)
    by_keys, by_queries = ([text for text in texts(ax) if text] for ax in fig.axes)
    assert "keys split: 4 partial $O_i$ to add" in by_keys and "queries split: each warp has its own rows" in by_queries


def test_a_large_grid_of_tiles_stays_readable():
    """Twenty blocks a side: no more names than have room, and no number in a sliver of a last tile."""
    axes = figures.tile_traversal({"fa2_forward": log_of(fa2_forward, N=81, d=4, B_r=4, B_c=4)}, 81, 81).axes
    assert len(axes[0].get_xticks()) <= 10 and not texts(axes[0])
    numbers = texts(figures.tile_traversal({"fa2_forward": log_of(fa2_forward, N=34, B_r=16, B_c=16)}, 34, 34).axes[0])
    assert numbers == ["1", "2", "4", "5"], "tiles 3, 6, 7, 8, 9 are two rows or columns thin"


def test_records_and_exponentials_say_what_was_measured():
    assert "5.0 set a new maximum" in title(figures.records([4, 6], N=100, expected=5.2))
    fig = figures.largest_exponentials({torch.float16: 11})
    assert "float16 at x = 12" in title(fig) and math.exp(12) > torch.finfo(torch.float16).max > math.exp(11)


def test_rounding_of_l_names_the_worst():
    points = [{"order": order, "N": N, "error": error, "bound": bound * N}
              for order, error, bound in (("a", 3.0, 4), ("b", 7.0, 2)) for N in (10, 20)]
    assert title(figures.rounding_of_l(points)) == "l is off by at most 7 u; rescaled most often, a scores are the most accurate"
    points[0]["bound"] = points[1]["bound"] = 1
    assert title(figures.rounding_of_l(points)) == "l is off by at most 7 u", "what is rescaled most often is not the best any more"
