"""Bad input: one clear line each, exit code 1, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.manifests.sources import HEADER, ROWS, row, write_source

Run = Callable[..., Result]


def rows_with(extra: str) -> list[str]:
    return [*ROWS, extra]


BROKEN_ROWS = {
    "unknown label": (
        row(9, "Surely", "['']"),
        "line 9: unknown label 'Surely'; did you mean Sure?",
    ),
    "unknown concept": (row(9, "Sure", "['Bodi']"), "unknown concept 'Bodi'; did you mean Body?"),
    "duplicate id": (row(1, "Sure", "['Body']"), "line 9: duplicate id 'tt0108160-001'"),
    "id that differs by case": (
        row(1, "Sure", "['Body']").replace("tt0108160-001", "TT0108160-001"),
        "id 'TT0108160-001' differs from 'tt0108160-001' by case only",
    ),
    "id with a slash": (
        row(9, "Sure", "['Body']").replace("tt0108160-009", "tt/009"),
        "id 'tt/009' is not allowed",
    ),
    "id with two dots": (
        row(9, "Sure", "['Body']").replace("tt0108160-009", "tt..009"),
        "id 'tt..009' is not allowed",
    ),
    "media that is a path": (
        row(9, "Sure", "['Body']").replace("tt0108160_scene_9.avi", "../../etc/passwd"),
        "media '../../etc/passwd' is not a file's name or a path below the folder",
    ),
    "film that is a path": (
        row(9, "Sure", "['Body']").replace(";tt0108160;", ";../tt0108160;"),
        "film '../tt0108160' is a path; give a plain name",
    ),
    "broken list": (row(9, "Sure", "['Body', "), "line 9: \"['Body', \" is not a list such as"),
    "list that is code": (
        row(9, "Sure", "__import__('os').system('touch hacked')"),
        "is not a list such as",
    ),
    "row too short": ("9;1;clip", "line 9: 3 cells where the header has 11"),
}


@pytest.mark.parametrize("case", BROKEN_ROWS)
def test_broken_rows(case: str, tmp_path: Path, obygaze: Run) -> None:
    line, message = BROKEN_ROWS[case]
    source = write_source(tmp_path / "annotations.csv", rows_with(line))
    refused(obygaze("manifests", "import", "obygaze12", source, "-o", tmp_path / "m"), message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["annotations.csv"]


BROKEN_FILES = {
    "wrong delimiter": (
        "\r\n".join([HEADER, *ROWS, ""]).replace(";", ",").encode(),
        "line 1: wrong delimiter: cells are separated by a comma, not a semicolon",
    ),
    "missing column": (
        f"{HEADER.replace('video_name', 'video')}\r\n{ROWS[0]}\r\n".encode(),
        "line 1: no column 'video_name'; there are idx, util",
    ),
    "duplicate column": (
        f"{HEADER.replace('util', 'idx')}\r\n{ROWS[0]}\r\n".encode(),
        "line 1: duplicate column 'idx'",
    ),
    "not UTF-8": (
        f"{HEADER}\r\n{ROWS[0]}\r\n".encode()
        + ROWS[1].replace("srt", "srté").encode("latin-1")
        + b"\r\n",
        "line 3: not UTF-8 (byte 0xe9)",
    ),
    "a film": (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "is not a text table (got binary data)"),
    "JSON": (b'[{"id": "a"}]', "is not a text table (got JSON)"),
    "empty file": (b"", "is empty"),
    "truncated last line": (
        f"{HEADER}\r\n{ROWS[0]}\r\n{ROWS[1][:40]}".encode(),
        "line 3: 4 cells where the header has 11",
    ),
    "unclosed quote": (
        f'{HEADER}\r\n"{ROWS[0]}\r\n'.encode(),
        "line 2 or below: a quotation mark is never closed",
    ),
}


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_broken_files(case: str, tmp_path: Path, obygaze: Run) -> None:
    content, message = BROKEN_FILES[case]
    source = tmp_path / "annotations.csv"
    source.write_bytes(content)
    refused(obygaze("manifests", "import", "obygaze12", source, "-o", tmp_path / "m"), message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["annotations.csv"]


def test_a_folder_where_a_file_is_meant(tmp_path: Path, obygaze: Run) -> None:
    result = obygaze("manifests", "import", "obygaze12", tmp_path, "-o", tmp_path / "m")
    refused(result, "is a folder; give a CSV file")


def test_a_missing_file(tmp_path: Path, obygaze: Run) -> None:
    result = obygaze("manifests", "import", "csv", tmp_path / "none.csv", "-o", tmp_path / "m")
    refused(result, "none.csv does not exist")


def test_an_existing_output(source: Path, manifest: Path, obygaze: Run) -> None:
    before = sorted((path, path.read_bytes()) for path in manifest.rglob("*.*"))
    refused(obygaze("manifests", "import", "obygaze12", source, "-o", manifest), "--overwrite")
    assert sorted((path, path.read_bytes()) for path in manifest.rglob("*.*")) == before
    arguments = ("manifests", "import", "obygaze12", source, "-o", manifest, "--overwrite")
    assert obygaze(*arguments, "--rule", "raw").exit_code == 0
    assert json.loads((manifest / "manifest.json").read_text())["default_labels"] == "raw"


def test_overwrite_spares_what_is_not_a_manifest(
    source: Path, tmp_path: Path, obygaze: Run
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    (films / "film.mkv").write_bytes(b"precious")
    result = obygaze("manifests", "import", "obygaze12", source, "-o", films, "--overwrite")
    refused(result, "was not made by obygaze")
    assert (films / "film.mkv").read_bytes() == b"precious"


def test_a_newer_format(manifest: Path, obygaze: Run) -> None:
    header = json.loads((manifest / "manifest.json").read_text())
    (manifest / "manifest.json").write_text(json.dumps({**header, "format_version": 99}))
    refused(obygaze("manifests", "stats", manifest), "has format version 99")


def test_a_folder_that_is_no_manifest(tmp_path: Path, obygaze: Run) -> None:
    refused(obygaze("manifests", "stats", tmp_path), "is not a manifest: it has no manifest.json")


def test_a_header_that_is_not_json(manifest: Path, obygaze: Run) -> None:
    (manifest / "manifest.json").write_text("{'format'")
    refused(obygaze("manifests", "show", manifest), "is not valid JSON")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "papr"], "has no labels called 'papr'; it has paper, raw, released"),
        (["--split", "none"], "has no splits called 'none'"),
        (["--figure", "figure.jpeg2"], "a figure is one of .pdf, .png, .svg"),
    ],
)
def test_unknown_names(manifest: Path, obygaze: Run, arguments: list[str], message: str) -> None:
    refused(obygaze("manifests", "stats", manifest, *arguments), message, code=2)


def test_debug_shows_where_it_went_wrong(tmp_path: Path, obygaze: Run) -> None:
    result = obygaze("--debug", "manifests", "stats", tmp_path)
    assert result.exception is not None
    assert type(result.exception).__name__ == "ManifestError"


def refused(result: Result, message: str, *, code: int = 1) -> None:
    """One line on standard error, nothing on standard output, the right exit code."""
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
