"""Chapter 08's copies of published algorithms: what is called wrong is wrong, and the corrections are right."""

import pytest

from flashlab_course.lesson import misprints


@pytest.mark.parametrize("copied", misprints.COPIES.values(), ids=misprints.COPIES)
def test_the_copy_is_wrong_and_its_corrections_make_it_right(copied):
    assert "does not run" in copied.verdict()
    wrong = copied.wrong()
    lines = zip(copied.printed, copied.right, strict=True)
    assert wrong == [n for n, (printed, right) in enumerate(lines, 1) if printed != right]
    fixes = {n: copied.corrected(n) for n in wrong}
    assert copied.verdict(fixes) == "dQ right, dK right, dV right; no byte too many"
    for left_out in fixes:
        assert copied.verdict({n: code for n, code in fixes.items() if n != left_out}) != copied.verdict(fixes)


def test_a_copy_shows_its_printed_lines_with_their_numbers():
    text = repr(misprints.COPIES["FA1"])
    assert "11              Z_ij = load(keep, i, j) / (1 + p)" in text and "1 - p" not in text
    assert len(text.splitlines()) <= 25


def test_a_verdict_says_what_is_off_and_what_is_no_line():
    copied = misprints.COPIES["FA2"]
    fixes = {n: copied.corrected(n) for n in copied.wrong()}
    nbytes = 8 * 2 * misprints.N_Q * misprints.D_HEAD       # the whole of O, in float64, for each of two key blocks
    assert copied.verdict(fixes | {9: "O_i = load(O, i)"}).endswith(f"; {nbytes} bytes too many")
    assert "dQ right, dK off by" in copied.verdict(fixes | {18: "dK_j += dS_ij.T @ Q_i"})
    assert "SyntaxError" in copied.verdict({1: "D = ("})
    with pytest.raises(ValueError, match="lines 1 to 20, got 99"):
        copied.verdict({99: "pass"})
