"""Helpers for text files, figures, and commands that end with a one-line error."""

import csv
from pathlib import Path
from xml.etree import ElementTree

from click.testing import Result


def write(path: Path, *lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    """Write a text file of these lines into a new or existing folder; `end` ends the last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(lines) + end).encode(encoding))
    return path


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        write(folder / name, end="")
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def refused(result: Result, *facts: str, code: int = 1) -> None:
    """Check that the command ended with a one-line error that states these facts."""
    assert result.exit_code == code, result.output
    for fact in facts:
        assert fact in result.stderr, result.stderr
    assert result.stderr.startswith("Error: ")
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[str]:
    nodes = ElementTree.parse(path).iter(f"{SVG}text")
    return ["".join(node.itertext()) for node in nodes]


def title(path: Path, element: str = "title") -> str:
    """Return the title, or the description ``desc``, for screen readers."""
    return ElementTree.parse(path).getroot().findtext(f"{SVG}{element}") or ""


def tips(path: Path) -> dict[str, str]:
    """Return each mark's number for screen readers, by name: {"Look, mlp": "0.50"}."""
    _, *marks = title(path, "desc").split("\n")
    return dict(mark.rsplit(": ", 1) for mark in marks)
