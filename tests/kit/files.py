"""Files that tests write and compare, and commands that end with one line."""

from __future__ import annotations

import csv
from pathlib import Path

from click.testing import Result


def write(path: Path, *lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    """A text file of these lines, in a folder that is made; `end` ends the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(lines) + end).encode(encoding))
    return path


def touch(folder: Path, *names: str) -> Path:
    """Empty files below a folder, with the folders that they are in."""
    for name in names:
        write(folder / name, end="")
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def refused(result: Result, *facts: str, code: int = 1) -> None:
    """The command ended with one line on standard error, and says these facts."""
    assert result.exit_code == code, result.output
    for fact in facts:
        assert fact in result.stderr, result.stderr
    assert result.stderr.startswith("Error: ")
    assert (result.stderr.count("\n"), result.stdout) == (1, "")
