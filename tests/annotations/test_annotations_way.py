"""docs/annotations.md is run: from timelines to a model."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.test_docs import BLOCK, ROOT, run_console


def test_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/annotations.md").read_text()
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "sh":
            subprocess.run(["sh", "-ec", block], check=True)
        elif language == "console":
            run_console(block, obygaze)
        elif language in ("toml", "csv"):
            named = re.findall(rf"`(way/\w+[.]{language})`", text[: match.start()])
            Path(named[-1]).write_text(block)
        else:
            assert language == "python"
            told = subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            )
            assert told.stdout == "['EN', 'NS', 'S', 'S', 'S', 'HN']\n"
