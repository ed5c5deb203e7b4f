"""What importers share: list literals, ids, the options of their commands, the closing words."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import click

from obygaze_features.common.cli import overwrite_option
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import Table
from obygaze_features.common.text import for_shell, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.download import download
from obygaze_features.manifests.items import Item, media_stem
from obygaze_features.manifests.locate import MEDIA_SUFFIXES
from obygaze_features.manifests.manifest import Manifest

__all__ = [
    "clock_seconds",
    "decimal_point",
    "fetched",
    "finish",
    "item_of_file",
    "output_options",
    "parse_list",
    "safe_id",
    "source_argument",
    "url_options",
    "without_blank_rows",
]

F = TypeVar("F", bound=Callable[..., Any])

_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):([0-5]?\d(?:\.\d*)?)", re.ASCII)
_STRING = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
_LIST = re.compile(rf"\[\s*(?:(?:{_STRING})\s*(?:,\s*(?:{_STRING})\s*)*+)?\]")
_STRINGS = re.compile(_STRING)

source_argument = click.argument("source", type=click.Path(path_type=Path))


def parse_list(text: str) -> list[str]:
    """The strings of a list literal as Python prints it; parsed, never evaluated.

    Examples
    --------
    >>> parse_list("['Speech', ' Exp of  emotion']")
    ['Speech', 'Exp of emotion']
    >>> parse_list("['']")
    []
    """
    if _LIST.fullmatch(text.strip()) is None:
        raise ManifestError(f"{shorten(text)} is not a list such as ['Body', 'Look']")
    strings = (" ".join(found[1:-1].split()) for found in _STRINGS.findall(text))
    return [string for string in strings if string]


def clock_seconds(text: str) -> float | None:
    """Seconds of a time such as m:ss or h:mm:ss.

    Examples
    --------
    >>> clock_seconds("1:15.5"), clock_seconds("01:00:00.040"), clock_seconds("75.5")
    (75.5, 3600.04, None)
    """
    if (found := _CLOCK.fullmatch(text)) and (found[1] is None or int(found[2]) < 60):
        hours, minutes, rest = found.groups(default="0")
        return round(int(hours) * 3600 + int(minutes) * 60 + float(rest), 6)
    return None


def decimal_point(text: str, delimiter: str) -> str:
    """A number with a decimal point, of a table whose cells `delimiter` separates.

    Where that is not the comma, as spreadsheets do in many languages, a comma is a decimal point.

    Examples
    --------
    >>> decimal_point("23,976", ";"), decimal_point("23.976", ";")
    ('23.976', '23.976')
    """
    text = text.strip()
    return text if delimiter == "," or text.count(",") != 1 else text.replace(",", ".")


def output_options(default: str) -> Callable[[F], F]:
    """The options ``--output`` and ``--overwrite``."""

    def decorate(function: F) -> F:
        output = click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            default=Path("manifests", default),
            show_default=True,
            help="The manifest's folder.",
        )
        decorated: F = output(overwrite_option(function))
        return decorated

    return decorate


def url_options(function: F) -> F:
    """The argument SOURCE, which may be left out, and the options that stand for it."""
    url = click.option("--url", help="Another address of the same file; its checksum must match.")
    fetch = click.option(
        "--download", "fetch", is_flag=True, help="Fetch the file from its public address."
    )
    source = click.argument("source", type=click.Path(path_type=Path), required=False)
    decorated: F = source(fetch(url(function)))
    return decorated


@contextlib.contextmanager
def fetched(kind: str, source: Path | None, *, fetch: bool, url: str | None) -> Iterator[Path]:
    """The source that was given, or the pinned public file in a folder that goes afterwards."""
    if (source is None) != (fetch or url is not None):
        raise UsageError("give either SOURCE or --download")
    if source is not None:
        yield source
        return
    about = reference_json("sources.json")[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(about["file"]).name)
        download(url or about["url"], path, sha256=about["sha256"])
        yield path


def without_blank_rows(table: Table) -> Table:
    """The table without rows whose cells are all empty, as the authors' file has one."""
    keep = [
        row for row, cells in enumerate(zip(*table.columns.values(), strict=True)) if any(cells)
    ]
    if len(keep) == len(table):
        return table
    columns = {name: [cells[row] for row in keep] for name, cells in table.columns.items()}
    kept = keep if table.kept is None else [table.kept[row] for row in keep]
    return replace(table, columns=columns, kept=kept)


def finish(manifest: Manifest, output: Path, *, overwrite: bool, notes: Sequence[str] = ()) -> None:
    """Save a new manifest and say what it holds, where it lies and what to do next."""
    if not len(manifest):
        raise ManifestError("the source holds no items, only a header; nothing was written")
    manifest.save(output, overwrite=overwrite)
    click.echo(f"{manifest.describe_size()} -> {output}")
    if manifest.label_names:
        names = [
            f"{n} (default)" if n == manifest.default_labels else n for n in manifest.label_names
        ]
        click.echo(f"label sets: {', '.join(names)}")
    for note in notes:
        click.echo(note)
    if manifest.label_names or "text" in manifest.items.kinds:
        command = "stats" if manifest.label_names else "show"
        click.echo(f"next: obygaze manifests {command} {for_shell(output)}")
    else:
        folder = for_shell(output)
        click.echo(f"next, if you have labels: obygaze manifests label {folder} LABELS.csv")


def item_of_file(path: str, film: str = "") -> Item:
    """The clip in a file, by its path below the folder of videos; the outermost folder is its film.

    Examples
    --------
    >>> item_of_file("Juno/part 1/scene.mp4")
    Item(id='Juno-part_1-scene', kind='clip', film='Juno', media='part 1/scene.mp4', text='', \
start=None, end=None)
    """
    *folders, name = path.split("/")
    if folders and (not film or folders[0].casefold() == film.casefold()):
        film, *folders = folders
    if not name:
        return Item("", film=film)
    # Names such as "Dr. No" may come without an extension.
    known = PurePosixPath(name).suffix.lower() in MEDIA_SUFFIXES
    identifier = safe_id(media_stem(name) if known else name)
    for folder in map(safe_id, filter(None, reversed([film, *folders]))):
        identifier = identifier if identifier.startswith(folder) else f"{folder}-{identifier}"
    return Item(identifier, film=film, media="/".join([*folders, name]))


def safe_id(name: str) -> str:
    """A name in the alphabet of ids: accents are dropped, other marks become an underscore.

    Where letters of another script are lost, a piece of the name's hash keeps names apart.
    """
    plain = unicodedata.normalize("NFKD", name)
    latin = plain.encode("ascii", "ignore").decode()
    safe = re.sub(r"[^A-Za-z0-9._+-]+|\.{2,}", "_", latin).strip("._-+ ")
    lost = any(unicodedata.category(mark).startswith("L") and not mark.isascii() for mark in plain)
    if lost or not safe:
        return "-".join(filter(None, [safe, hashlib.sha256(name.encode()).hexdigest()[:8]]))
    return safe
