"""Any folder of videos or images: a folder for each film or group, or all in one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from obygaze_features.common.files import require_folder
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.shared import (
    finish,
    item_of_file,
    output_options,
    safe_id,
    source_argument,
)
from obygaze_features.manifests.items import Item, Items, id_problem
from obygaze_features.manifests.locate import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.moviegraphs import id_from_file

__all__ = ["ID_RULES", "import_folder"]

ID_RULES = {
    "moviegraphs": "tt0108160_scene_1.avi is tt0108160-001",
    "names": "the file's name, behind its film's where it does not start with it",
}

SUFFIXES = {"clip": VIDEO_SUFFIXES, "image": IMAGE_SUFFIXES}
NOUNS = {"clip": "videos", "image": "images"}


def import_folder(source: Path, *, ids: str | None = None, kind: str | None = None) -> Manifest:
    """Make a manifest of the videos or images in a folder; each folder in it is a film.

    Folders may be nested: the film is the outermost one.

    Parameters
    ----------
    source
        The folder.
    ids
        One of `ID_RULES`; by default the one that fits all files.
    kind
        ``clip`` or ``image``; by default clips, and images where there are none.
    """
    require_folder(source, "a folder of videos or images", ManifestError)
    kinds = [kind] if kind else list(SUFFIXES)
    there = {one: list(_files(source, SUFFIXES[one])) for one in kinds}
    made = next(filter(there.get, kinds), None)
    if made is None:
        suffixes = sorted(frozenset().union(*(SUFFIXES[one] for one in kinds)))
        what = " or ".join(NOUNS[one] for one in kinds)
        raise ManifestError(f"{source} holds no {what} ({' '.join(suffixes)})")
    files = there[made]
    read = _moviegraphs if (ids or _rule_for(files)) == "moviegraphs" else _by_name
    found: dict[str, tuple[tuple[str, int, str], Item, Path]] = {}
    for path in files:
        order, item = read(path, path.relative_to(source))
        other = found.setdefault(item.id.lower(), (order, item, path))
        if other[2] != path:
            raise ManifestError(
                f"{other[2]} and {path} would both be {item.id!r}; "
                "keep one of them, or rename one if they are two"
            )
    items = [
        replace(item, kind=made)
        for _, item, _ in sorted(found.values(), key=lambda value: value[0])
    ]
    return Manifest(name=safe_id(source.resolve().name), items=Items.of(items), source="a folder")


def _rule_for(files: Sequence[Path]) -> str:
    """The rule that fits every file; where some are named one way and some another, ask."""
    others = [path for path in files if id_from_file(path.name) is None]
    if others and len(others) < len(files):
        raise ManifestError(
            f"{len(files) - len(others)} of {len(files)} files are named as MovieGraphs names "
            f"clips (tt0108160_scene_1.avi) and {others[0]} is not; "
            "move it away or say --ids names"
        )
    return "names" if others else "moviegraphs"


def _files(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """The files of a kind in a folder and below; hidden ones are left out."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not folder.resolve().is_relative_to(path.resolve()):  # a link that leads in a circle
                yield from _files(path, suffixes)
        elif _is_one(path, suffixes):
            yield path


def _is_one(path: Path, suffixes: Collection[str]) -> bool:
    if path.suffix.lower() not in suffixes or path.name.startswith("."):
        return False
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise ManifestError(f"{os.fsencode(path)!r} is not named in UTF-8; rename it") from None
    return path.is_file()


def _moviegraphs(path: Path, relative: Path) -> tuple[tuple[str, int, str], Item]:
    named = id_from_file(path.name)
    if named is None:
        raise ManifestError(
            f"{path} is not named as MovieGraphs names clips (tt0108160_scene_1.avi); "
            "use --ids names"
        )
    identifier, imdb, scene = named
    folder = relative.parent.as_posix()
    if folder.lower() not in (".", imdb):
        raise ManifestError(f"{path}: a clip of {imdb} in the folder of {folder}; use --ids names")
    return (imdb, scene, ""), Item(identifier, film=imdb, media=path.name)


def _by_name(path: Path, relative: Path) -> tuple[tuple[str, int, str], Item]:
    item = item_of_file(relative.as_posix())
    if problem := id_problem(item.id):
        raise ManifestError(f"{path}: {problem}; rename the file")
    return (item.film, 0, item.media), item


@click.command("folder")
@source_argument
@output_options("folder")
@click.option(
    "--ids", type=click.Choice(list(ID_RULES)), help="How ids are made; found out if not given."
)
@click.option(
    "--kind",
    type=click.Choice(list(SUFFIXES)),
    help="What is looked for.  [default: clips, and images where there are none]",
)
def command(source: Path, output: Path, overwrite: bool, ids: str | None, kind: str | None) -> None:
    """Any folder of videos or images.

    SOURCE has them, or a folder for each film; of images, for each group. Folders may be nested.
    With --ids moviegraphs, tt0108160_scene_1.avi becomes tt0108160-001, as in the annotations.
    Then add labels: obygaze manifests label --help.

    \b
    Examples:
      obygaze manifests import folder /data/moviegraphs --ids moviegraphs -o manifests/moviegraphs
      obygaze manifests import folder my-films -o manifests/mine
      obygaze manifests import folder photos --kind image -o manifests/photos
    """
    manifest = import_folder(source, ids=ids, kind=kind)
    example = manifest.items[0]
    note = f"ids: {example.media} is {example.id}"
    finish(manifest, output, overwrite=overwrite, notes=[note])
