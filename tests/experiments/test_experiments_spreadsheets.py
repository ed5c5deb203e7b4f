"""Tables that people open: no text of anybody's becomes a formula there."""

import re
from pathlib import Path

from obygaze_features.common.tables import format_rows, format_spreadsheet

ROOT = Path(__file__).parents[2]
#: What obygaze itself reads again: manifests, timelines, stores and runs.
OURS = {
    "common/tables.py", "annotations/timelines.py", "annotations/remarks.py", "store/finalise.py",
    "manifests/splits.py", "manifests/items.py", "manifests/labels.py",
    "experiments/annotators.py", "experiments/predictions.py", "experiments/run_folder.py",
}  # fmt: skip


def test_no_cell_of_a_table_is_a_formula():
    """All other tables are written by two functions, which escape what a spreadsheet computes."""
    columns = {"=name": ["=1+1", "+x", "-0.5", "@low"], "b": ["-x", "1", "a=b", ""]}
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    for text in (format_spreadsheet(columns), format_rows(rows)):
        assert text == "'=name,b\n'=1+1,'-x\n'+x,1\n-0.5,a=b\n'@low,\n"
    plain = {
        path.relative_to(ROOT / package).as_posix()
        for package in ("obygaze_features", "obygaze_models")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\b(format_table|csv\.writer|DictWriter)\b", path.read_text())
    }
    assert plain == OURS
