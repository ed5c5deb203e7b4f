"""Import a folder of videos, sound files or images, flat or with one folder per film or group."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from obygaze_features.common.files import VIDEO_SUFFIXES, require_folder
from obygaze_features.common.package import need
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items.items import Item, Items, name_film, safe_id
from obygaze_features.items.media import IMAGE_SUFFIXES, SOUND_SUFFIXES, id_from_file, item_of_file
from obygaze_features.manifests.importers.reading import span_id
from obygaze_features.manifests.manifest import Manifest

MIN_EVERY_S = 0.1
"""The shortest spans into which films are cut, in seconds."""
MAX_SPANS = 100_000
"""The maximum number of spans of a film, because its header may state any length."""
MIN_REST_S = 1.0
"""A shorter remainder of a film is left out; it would have hardly any pictures."""


def import_manifest(source: Path | str, kind: str | None, every: float | None) -> Manifest:
    """List the videos, sound files or images in any folder."""
    source = Path(source)
    require_folder(source, "a folder of videos or images", ManifestError)
    videos = list(_files(source, VIDEO_SUFFIXES))
    images = list(_files(source, IMAGE_SUFFIXES))
    if kind is None and images and not videos:
        kind = "image"
    if kind == "image":
        files = images
    else:
        kind = "clip"
        stems = set(map(_without_suffix, videos))
        sounds = _files(source, SOUND_SUFFIXES)
        files = videos + [path for path in sounds if _without_suffix(path) not in stems]
    if not files:
        raise ManifestError(f"{source} has no {kind} in a known format; pass another folder")
    if every is not None and (kind == "image" or not every >= MIN_EVERY_S):
        raise UsageError(
            f"only films can be cut; the shortest span is {MIN_EVERY_S:g} s (got {every:g})"
        )

    items = []
    for path in files:
        item = replace(item_of_file(path.relative_to(source).as_posix()), kind=kind)
        if every is None:
            items.append(item)
        else:
            items += _spans(path, item, every)
    items.sort(key=_film_and_scene)
    return Manifest(safe_id(source.resolve().name), Items.of(items), source="a folder")


def _spans(path: Path, item: Item, every: float) -> Iterator[Item]:
    """Yield the spans of a film; each is named after its start, whatever the film's length.

    A film ends with its last picture, even if its sound goes on. A remainder of less than
    `MIN_REST_S`, or in which no picture begins, is left out, so that the last span is never empty.
    """
    need("av", extra="extract")
    from obygaze_features.video.index import last_picture

    last, seconds = last_picture(path)
    if not 0 < seconds <= MAX_SPANS * every:
        raise ManifestError(
            f"{path} seems to last {seconds:g} s; repair the file, or use longer spans"
        )
    film = name_film(item.film, item.media)
    for number in itertools.count():
        start = number * every
        if number and (start > last or seconds - start < min(MIN_REST_S, every)):
            return
        end = min(start + every, seconds)
        yield replace(item, id=span_id(item.id, start), film=film, start=start, end=end)


def _film_and_scene(item: Item) -> tuple[str, int, str, float]:
    """Return a sort key that puts MovieGraphs scenes in numeric order."""
    scene = id_from_file(item.media.rpartition("/")[2])
    number = scene[2] if scene else 0
    return item.film, number, item.media, item.start or 0.0


def _without_suffix(path: Path) -> str:
    return path.with_suffix("").as_posix().casefold()


def _files(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """Yield the files with these suffixes in a folder and its subfolders, without hidden ones."""
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
