"""The tables that put a paper's algorithm beside a rung: what they show as the rung's lines stands in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def rows(notebook):
    """(line of the paper, code fragments) of each row of the notebook's table."""
    for line in (ROOT / "notebooks/src" / notebook).read_text(encoding="utf-8").splitlines():
        cells = line.removeprefix("# |").split(" | ")
        if line.startswith("# | ") and len(cells) == 4:
            yield cells[0].strip(), re.findall(r"`([^`]+)`", cells[2])


@pytest.mark.parametrize("notebook, rung, last", [("05_flash_attention_1.py", "fa1.py", 19),
                                                  ("06_flash_attention_2.py", "fa2.py", 15)])
def test_the_rungs_side_of_the_table_is_the_rung(notebook, rung, last):
    source = " ".join((ROOT / "flashlab/rungs" / rung).read_text(encoding="utf-8").split())
    table = [row for row in rows(notebook) if row[0] != "line"]
    assert table and not [code for _, codes in table for code in codes if " ".join(code.split()) not in source]
    assert all(codes for _, codes in table), "a line of the paper has nothing beside it"
    assert int(table[-1][0].split("–")[-1]) == last, "the table stops before the algorithm does"
