"""CSV tables, against Python's own csv module."""

import csv
import io
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import are_ids, id_problem

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[str]]:
    width = draw(st.integers(2, 4))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=300))
    rows[:0] = [["12345678"] * width] * draw(st.sampled_from([0, 4000]))
    return {f"c{column}": [row[column] for row in rows] for column in range(width)}


@example({"a": ["1\r"], "b": ["2"]})
@given(tables())
def test_tables_round_trip_through_the_csv_module(columns):
    text = format_table(columns)
    plain = list(csv.reader(io.StringIO(text)))
    assert plain[0] == list(columns)
    assert plain[1:] == [list(row) for row in zip(*columns.values(), strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        path.write_text(text, encoding="utf-8", newline="")
        table = read_table(path)
        assert table.columns == columns
        lines = list(table.lines)
        assert len(lines) == len(table)
        assert lines == sorted(set(lines))


@given(st.lists(st.text("aZ9._+-/\n é", max_size=5) | st.just("a" * 129), max_size=4))
def test_many_ids_are_checked_like_single_ones(names):
    assert are_ids(names) == (not any(map(id_problem, names)))


def test_line_numbers_hold_after_wide_or_blank_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b", *["1,2"] * 60_000, "1,2,3", "1,2", ""]))
    with pytest.raises(ManifestError, match=r"line 60002: wrong number of cells \(got 3"):
        read_table(path)
    # An unclosed quotation mark is reported after the last row that could be read.
    path.write_text("\n".join(["a,b", *['"1",2'] * 300, '"1,2', *["1,2"] * 300]))
    with pytest.raises(ManifestError, match="line 302 or later"):
        read_table(path)
    # Blank lines are left out and counted.
    path.write_text("\na,b\n\n1,2\n\n\n3,4\n")
    table = read_table(path)
    assert table.columns == {"a": ["1", "3"], "b": ["2", "4"]}
    assert str(table.problem(1, "odd")) == f"{path}, line 7: odd"


@pytest.mark.night
def test_quoted_tables_are_read_in_linear_time(tmp_path):
    """Joining the blocks of quoted tables was quadratic once: 18 times the plain table's time."""
    seconds = []
    for quote in ("", '"'):
        rows = "".join(f"c{row},{quote}a note{quote}\n" for row in range(400_000))
        (tmp_path / "t.csv").write_text("id,note\n" + rows)
        begin = time.process_time()
        assert len(read_table(tmp_path / "t.csv")["note"]) == 400_000
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 8 * seconds[0]
