"""Import a folder of videos, sound files or images, flat or with one folder per film or group."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from obygaze_features.common.files import VIDEO_SUFFIXES, require_folder
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import Item, Items, safe_id
from obygaze_features.items.media import IMAGE_SUFFIXES, SOUND_SUFFIXES, id_from_file
from obygaze_features.manifests.importers.reading import item_of_file
from obygaze_features.manifests.manifest import Manifest

SUFFIXES = {"clip": VIDEO_SUFFIXES, "image": IMAGE_SUFFIXES, "sound": SOUND_SUFFIXES}
NOUNS = {"clip": "videos", "image": "images", "sound": "sound files"}


def import_manifest(
    source: Path | str, *, ids: str | None = None, kind: str | None = None
) -> Manifest:
    """List the videos, sound files or images in any folder."""
    source = Path(source)
    require_folder(source, "a folder of videos or images", ManifestError)
    kinds = {"clip": ["clip", "sound"], "image": ["image"], None: list(SUFFIXES)}[kind]
    files_of = {name: list(_files(source, SUFFIXES[name])) for name in kinds}
    kind = next(filter(files_of.get, kinds), None)
    if kind is None:
        suffixes = sorted(frozenset().union(*(SUFFIXES[name] for name in kinds)))
        nouns = " or ".join(NOUNS[name] for name in kinds)
        raise ManifestError(f"{source} has no {nouns} ({' '.join(suffixes)})")
    files = files_of[kind]
    if kind != "image":
        kind, videos = "clip", files_of["clip"]
        seen = {(path.parent, path.stem.casefold()) for path in videos}
        sounds = (p for p in files_of["sound"] if (p.parent, p.stem.casefold()) not in seen)
        files = [*videos, *sounds]
    by_id: dict[str, tuple[Item, Path]] = {}
    for path in files:
        item = item_of_file(path.relative_to(source).as_posix(), by_name=ids == "names")
        first = by_id.setdefault(item.id.lower(), (item, path))[1]
        if first != path:
            raise ManifestError(
                f"{first} and {path} would both get the id {item.id!r}; rename or remove one"
            )
    ordered = sorted((item for item, _ in by_id.values()), key=_film_and_scene)
    items = Items.of([replace(item, kind=kind) for item in ordered])
    note = f"for example, the id of {items[0].media} is {items[0].id}"
    return Manifest(safe_id(source.resolve().name), items, source="a folder", notes=[note])


def _film_and_scene(item: Item) -> tuple[str, int, str]:
    """Return a sort key that puts MovieGraphs scenes in numeric order."""
    scene = id_from_file(item.media.rpartition("/")[2])
    return item.film, scene[2] if scene and scene[0] == item.id else 0, item.media


def _files(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """Yield the files with these suffixes in a folder and its subfolders, except hidden files."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not folder.resolve().is_relative_to(path.resolve()):  # otherwise, a link loops back
                yield from _files(path, suffixes)
        elif path.suffix.lower() in suffixes and path.is_file():
            try:
                path.name.encode()
            except UnicodeEncodeError:
                name = repr(os.fsencode(path))
                raise ManifestError(f"the name of {name} is not UTF-8; rename the file") from None
            yield path
