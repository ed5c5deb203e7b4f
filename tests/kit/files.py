"""Files that tests write and compare, and commands that end with one line."""

import csv
from pathlib import Path
from xml.etree import ElementTree

from click.testing import Result


def write(path: Path, *lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    """A text file of these lines, in a folder that is made; `end` ends the last one."""
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
    """The command ended with one line on standard error, and says these facts."""
    assert result.exit_code == code, result.output
    for fact in facts:
        assert fact in result.stderr, result.stderr
    assert result.stderr.startswith("Error: ")
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]


def title(path: Path) -> str:
    """The title that is read aloud."""
    return ElementTree.parse(path).getroot().findtext(f"{SVG}title") or ""


def tips(path: Path) -> dict[str, str]:
    """Mark -> the number that is read aloud: "Look, mlp: 0.50 (0.40 to 0.60)"."""
    lines = (ElementTree.parse(path).getroot().findtext(f"{SVG}desc") or "").split("\n")[1:]
    return dict(line.rsplit(": ", 1) for line in lines)
