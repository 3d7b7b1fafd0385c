"""The diff of two rungs: the idea alone, without comments and indentation."""

from flashlab_course.lesson import changes


def before(x):
    """Docstring."""
    y = x + 1                      # a reason
    # a line of comment
    return y


def after(x):
    """Another docstring
    of two lines."""
    for _ in range(2):
        y = x + 1                  # another reason
    return y


def longer(x):
    y = x + 2
    y += 1
    y += 2
    return y


def test_only_code_counts():
    assert changes(before, after) == "+ for _ in range(2):"
    assert changes(before, before) == ""


def test_long_changes_are_cut_and_counted():
    assert "+ ... and 2 lines more" in changes(before, longer, most=1)
