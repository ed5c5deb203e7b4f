"""Any folder of videos: one folder a film, or all in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.shared import finish, output_options, source_argument
from obygaze_features.manifests.items import Item, Items, id_problem
from obygaze_features.manifests.locate import VIDEO_SUFFIXES
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.moviegraphs import id_from_file

__all__ = ["ID_RULES", "import_folder"]

ID_RULES = {
    "moviegraphs": "tt0108160_scene_1.avi is tt0108160-001",
    "names": "the file's name, behind its film's where it does not start with it",
}


def import_folder(source: Path, *, ids: str | None = None) -> Manifest:
    """Make a manifest of the videos in a folder and in its folders, one a film.

    Parameters
    ----------
    source
        The folder.
    ids
        One of `ID_RULES`; by default MovieGraphs' if every file is named its way.
    """
    if not source.is_dir():
        raise ManifestError(f"{source} is not a folder of videos")
    files = list(_videos(source))
    if not files:
        raise ManifestError(f"{source} holds no videos ({' '.join(sorted(VIDEO_SUFFIXES))})")
    if ids is None:
        named = all(id_from_file(path.name) for _, path in files)
        ids = "moviegraphs" if named else "names"
    read = _moviegraphs if ids == "moviegraphs" else _by_name
    found: dict[str, tuple[tuple[str, int, str], Item, Path]] = {}
    for film, path in files:
        order, item = read(film, path)
        other = found.setdefault(item.id.lower(), (order, item, path))
        if other[2] != path:
            raise ManifestError(
                f"{other[2]} and {path} would both be {item.id!r}; keep one of them"
            )
    items = [item for _, item, _ in sorted(found.values(), key=lambda value: value[0])]
    return Manifest(name=_safe(source.resolve().name), items=Items.of(items), source="a folder")


def _videos(source: Path) -> Iterator[tuple[str, Path]]:
    """Film folder and path of each video; hidden files and deeper folders are not looked at."""
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            for inner in sorted(path.iterdir()):
                if inner.suffix.lower() in VIDEO_SUFFIXES and not inner.name.startswith("."):
                    yield path.name, inner
        elif path.suffix.lower() in VIDEO_SUFFIXES:
            yield "", path


def _moviegraphs(film: str, path: Path) -> tuple[tuple[str, int, str], Item]:
    named = id_from_file(path.name)
    if named is None:
        raise ManifestError(
            f"{path} is not named as MovieGraphs names clips (tt0108160_scene_1.avi); "
            "use --ids names"
        )
    identifier, imdb, scene = named
    if film and film != imdb:
        raise ManifestError(f"{path}: a clip of {imdb} in the folder of {film}")
    return (imdb, scene, ""), Item(identifier, film=imdb, media=path.name)


def _by_name(film: str, path: Path) -> tuple[tuple[str, int, str], Item]:
    stem, folder = _safe(path.stem), _safe(film)
    identifier = stem if not folder or stem.startswith(folder) else f"{folder}-{stem}"
    if problem := id_problem(identifier):
        raise ManifestError(f"{path}: {problem}; rename the file")
    return (film, 0, path.name), Item(identifier, film=film, media=path.name)


def _safe(name: str) -> str:
    """A name in the alphabet of ids; what does not fit becomes an underscore."""
    return re.sub(r"[^A-Za-z0-9._+-]+|\.{2,}", "_", name).strip("._-+")


@click.command("folder")
@source_argument
@output_options("folder")
@click.option(
    "--ids", type=click.Choice(list(ID_RULES)), help="How ids are made; found out if not given."
)
def command(source: Path, output: Path, overwrite: bool, ids: str | None) -> None:
    """Any folder of videos.

    SOURCE holds the videos, or a folder of videos for each film. With --ids moviegraphs,
    tt0108160_scene_1.avi becomes tt0108160-001, as in the annotations.

    \b
    Examples:
      obygaze manifests import folder /data/moviegraphs --ids moviegraphs -o manifests/moviegraphs
      obygaze manifests import folder my-films -o manifests/mine
    """
    finish(import_folder(source, ids=ids), output, overwrite=overwrite)
