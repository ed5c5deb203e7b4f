"""Any folder of videos or images: a folder for each film or group, or all in one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from obygaze_features.common.files import require_folder
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.reading import item_of_file
from obygaze_features.manifests.items import Item, Items, id_problem, safe_id
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES, id_from_file

ID_RULES = {
    "moviegraphs": "tt0108160_scene_1.avi is tt0108160-001",
    "names": "the file's name, behind its film's where it does not start with it",
}
SUFFIXES = {"clip": VIDEO_SUFFIXES, "image": IMAGE_SUFFIXES}
NOUNS = {"clip": "videos", "image": "images"}

#: By which clips are sorted: film, scene, file.
SortKey = tuple[str, int, str]


def import_manifest(
    source: Path | str, *, ids: str | None = None, kind: str | None = None
) -> Manifest:
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
    source = Path(source)
    require_folder(source, "a folder of videos or images", ManifestError)
    kinds = [kind] if kind else list(SUFFIXES)
    files_of = {name: list(_files(source, SUFFIXES[name])) for name in kinds}
    kind = next(filter(files_of.get, kinds), None)
    if kind is None:
        suffixes = sorted(frozenset().union(*(SUFFIXES[name] for name in kinds)))
        nouns = " or ".join(NOUNS[name] for name in kinds)
        raise ManifestError(f"{source} holds no {nouns} ({' '.join(suffixes)})")
    files = files_of[kind]
    read = _moviegraphs_item if (ids or _rule_for(files)) == "moviegraphs" else _named_item
    by_id: dict[str, tuple[SortKey, Item, Path]] = {}
    for path in files:
        key, item = read(path, path.relative_to(source))
        first = by_id.setdefault(item.id.lower(), (key, item, path))
        if first[2] != path:
            raise ManifestError(
                f"{first[2]} and {path} would both be {item.id!r}; keep one of them, or rename one"
            )
    ordered = sorted(by_id.values(), key=lambda entry: entry[0])
    items = Items.of([replace(item, kind=kind) for _, item, _ in ordered])
    note = f"ids: {items[0].media} is {items[0].id}"
    return Manifest(safe_id(source.resolve().name), items, source="a folder", notes=[note])


def _rule_for(files: Sequence[Path]) -> str:
    """The rule that fits every file; an error where files follow different ones."""
    unlike = [path for path in files if id_from_file(path.name) is None]
    if unlike and len(unlike) < len(files):
        raise ManifestError(
            f"{len(files) - len(unlike)} of {len(files)} files are named as MovieGraphs names "
            f"clips (tt0108160_scene_1.avi) and {unlike[0]} is not; "
            "move it away or say --ids names"
        )
    return "names" if unlike else "moviegraphs"


def _files(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """The files of a kind in a folder and below; hidden ones are left out."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not folder.resolve().is_relative_to(path.resolve()):  # a link that leads in a circle
                yield from _files(path, suffixes)
        elif path.suffix.lower() in suffixes and path.is_file():
            try:
                path.name.encode()
            except UnicodeEncodeError:
                name = repr(os.fsencode(path))
                raise ManifestError(f"{name} is not named in UTF-8; rename it") from None
            yield path


def _moviegraphs_item(path: Path, relative: Path) -> tuple[SortKey, Item]:
    scene = id_from_file(path.name)
    if scene is None:
        raise ManifestError(
            f"{path} is not named as MovieGraphs names clips (tt0108160_scene_1.avi); "
            "use --ids names"
        )
    identifier, imdb, number = scene
    folder = relative.parent.as_posix()
    if folder.lower() not in (".", imdb):
        raise ManifestError(f"{path}: a clip of {imdb} in the folder of {folder}; use --ids names")
    return (imdb, number, ""), Item(identifier, film=imdb, media=path.name)


def _named_item(path: Path, relative: Path) -> tuple[SortKey, Item]:
    item = item_of_file(relative.as_posix())
    if problem := id_problem(item.id):
        raise ManifestError(f"{path}: {problem}; rename the file")
    return (item.film, 0, item.media), item
