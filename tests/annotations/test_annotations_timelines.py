"""docs/how-to/timelines.md is run, from its tables to what its Python prints."""

import re
import shlex
from pathlib import Path

from obygaze_features.annotations import Timelines
from tests.test_docs import BLOCK, ROOT, Page


def test_from_tables_to_timelines_and_back(tmp_path, monkeypatch, obygaze):
    monkeypatch.chdir(tmp_path)
    page, said = Page(obygaze), ""
    text = (ROOT / "docs/how-to/timelines.md").read_text()
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "csv":  # a file's block is what is named above it
            Path(re.findall(r"`(\w+[.]csv)`", text[: match.start()])[-1]).write_text(block)
        elif language == "sh":  # has a row that is left out
            result = obygaze(*shlex.split(block)[1:])
            assert result.exit_code == 3
            said = result.output
        elif language == "text" and said:
            assert said.startswith(block)
            said = ""
        elif language == "console":
            page.console(block)
        elif language == "python":
            page.python(block, {})
    assert "Juno ann [(0.0, 100.0, 'EN'), (100.0, 135.5, 'S')]" in page.printed
    one, *others = (Timelines.load(Path("timelines", name)) for name in ("mine", "again", "third"))
    assert all((second.segments, second.films) == (one.segments, one.films) for second in others)
