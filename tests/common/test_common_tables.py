"""CSV tables, against Python's own csv module."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from obygaze_features.common.printer import align_rows
from obygaze_features.common.tables import format_table, read_table
from obygaze_features.errors import ManifestError

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[str]]:
    width = draw(st.integers(2, 4))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=300))
    wide = draw(st.sampled_from([0, 4000]))
    rows[:0] = [["12345678"] * width] * wide
    return {f"c{column}": [row[column] for row in rows] for column in range(width)}


@example({"a": ["1\r"], "b": ["2"]})
@given(tables())
def test_tables_round_trip_through_the_csv_module(columns):
    text = format_table(columns)
    plain = list(csv.reader(io.StringIO(text)))
    assert plain[0] == list(columns)
    rows = zip(*columns.values(), strict=True)
    assert plain[1:] == [*map(list, rows)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        path.write_text(text, encoding="utf-8", newline="")
        table = read_table(path)
        assert table.columns == columns
        lines = list(table.lines)
        assert len(lines) == len(table)
        assert lines == sorted(set(lines))


def test_line_numbers_hold_after_wide_or_blank_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b", *["1,2"] * 600, "1,2,3", "1,2", ""]))
    with pytest.raises(ManifestError, match=r"line 602: wrong number of cells \(got 3"):
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


def test_tables_fit_a_terminal(monkeypatch):
    rows = [{"test": "a vs b", "model": "mlp"} | {f"score {n}": n / 7 for n in range(12)}] * 2
    whole = align_rows(rows).splitlines()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = align_rows(rows).splitlines()
    assert max(map(len, lines)) <= 80 < len(whole[0])
    heads = [line.split("  ")[0] for line in lines]
    assert heads == (["test", "------", "a vs b", "a vs b", ""] * 2)[:-1]
    assert " ".join(lines).count("0.143") == 2
