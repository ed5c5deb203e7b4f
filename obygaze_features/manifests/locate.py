"""Finding the media of items: by film folder and stem, whatever the extension."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from obygaze_features.common.files import require_folder
from obygaze_features.common.text import join_some
from obygaze_features.errors import VideoError
from obygaze_features.manifests.items import Item, media_stem
from obygaze_features.manifests.moviegraphs import stem_from_id

__all__ = [
    "IMAGE_SUFFIXES",
    "MEDIA_SUFFIXES",
    "VIDEO_SUFFIXES",
    "Located",
    "MediaFolder",
    "describe_located",
    "expected_stem",
    "locate",
]

# fmt: off
VIDEO_SUFFIXES = frozenset({
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts",
    ".ogv", ".ts", ".vob", ".webm", ".wmv",
})
# fmt: on
IMAGE_SUFFIXES = frozenset([".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"])
MEDIA_SUFFIXES = VIDEO_SUFFIXES | IMAGE_SUFFIXES


@dataclass
class Located:
    """Where items' media are: one file, none, or several that could be meant.

    `hint` says what was looked for and what is there, where nothing was found.
    """

    found: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    ambiguous: dict[str, list[Path]] = field(default_factory=dict)
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """The paths as strings."""
        return {
            "found": {i: str(path) for i, path in self.found.items()},
            "missing": self.missing,
            "ambiguous": {i: list(map(str, paths)) for i, paths in self.ambiguous.items()},
        }


class MediaFolder:
    """A folder of media, each of its folders listed once however many items are looked up.

    Parameters
    ----------
    root
        The folder.
    suffixes
        Which files count, by the ends of their names.
    """

    def __init__(self, root: Path, suffixes: Collection[str] = MEDIA_SUFFIXES) -> None:
        require_folder(root, "a folder of videos or images", VideoError)
        self.root, self.suffixes = root, suffixes
        self._listed: dict[Path, dict[str, list[Path]]] = {}
        self._forbidden: dict[Path, str] = {}

    def candidates(self, item: Item) -> list[Path]:
        """The files that could be an item's: in its film's folder, else beside it."""
        below, _, name = item.media.rpartition("/")
        for folder in filter(None, (self._folder_of(item), self.root)):
            for stem in self._stems(item):
                if files := self._files(folder / below).get(stem.casefold()):
                    exact = [file for file in files if file.name == name]
                    return exact if len(exact) == 1 else files
        return []

    def _stems(self, item: Item) -> list[str]:
        """What an item's file may be called: also the whole name (Dr. No), the id, or the film."""
        name = item.media.rpartition("/")[2]
        whole = name if Path(name).suffix.lower() not in self.suffixes else ""
        stems = [whole, expected_stem(item)]
        if not name:
            stems += [item.id]
        if item.start is not None:
            stems += [item.film]
        return list(dict.fromkeys(filter(None, stems)))

    def _folder_of(self, item: Item) -> Path | None:
        return self._folders.get(item.film.casefold()) if item.film else None

    @cached_property
    def _folders(self) -> dict[str, Path]:
        """The films' folders, whatever the case of their names."""
        return {path.name.casefold(): path for path in sorted(self.root.iterdir()) if path.is_dir()}

    def find(self, item: Item) -> Path:
        """The one file of an item, or `VideoError` saying what was looked for."""
        files = self.candidates(item)
        if len(files) == 1:
            return files[0]
        if files:
            names = " and ".join(str(file.relative_to(self.root)) for file in files)
            raise VideoError(f"{item.id}: both {names} could be meant; keep one of them")
        below = item.media.rpartition("/")[0]
        for folder in filter(None, (self._folder_of(item), self.root)):
            if why := self._forbidden.get(folder / below):
                raise VideoError(f"{item.id}: {folder / below} cannot be read: {why}")
        noun = "image" if item.kind == "image" else "video"
        raise VideoError(f"{item.id}: no {noun} {self.sought(item)} under {self.root}")

    def sought(self, item: Item) -> str:
        """What an item's file may be called, for messages."""
        below = item.media.rpartition("/")[0]
        folders = "".join(f"{folder}/" for folder in (item.film, below) if folder)
        return " or ".join(f"{folders}{stem}.*" for stem in self._stems(item))

    def describe_contents(self) -> str:
        """A few of the files in the folder and below, for messages."""
        files = sorted(
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*")
            if path.suffix.lower() in self.suffixes and not path.name.startswith(".")
        )
        return f"{self.root} has {join_some(files, 3) if files else 'no videos or images'}"

    def _files(self, folder: Path) -> dict[str, list[Path]]:
        if folder not in self._listed:
            files: dict[str, list[Path]] = {}
            try:
                # A pipe, say, is found: that it cannot be read is said when it is to be.
                there = [path for path in sorted(folder.iterdir()) if _is_something(path)]
            except FileNotFoundError:
                there = []
            except OSError as problem:
                self._forbidden[folder] = problem.strerror or str(problem)
                there = []
            for path in there:
                named = path.suffix.lower() in self.suffixes and not path.name.startswith(".")
                if named:
                    files.setdefault(path.stem.casefold(), []).append(path)
            self._listed[folder] = files
        return self._listed[folder]


def _is_something(path: Path) -> bool:
    return path.exists() and not path.is_dir()


def expected_stem(item: Item) -> str:
    """The stem of an item's file; MovieGraphs' own where the manifest names none."""
    return media_stem(item.media.rpartition("/")[2]) or stem_from_id(item.id) or ""


def locate(items: Iterable[Item], root: Path) -> Located:
    """Look for every item's media, without opening any.

    Raises `VideoError` if clips of two films have the same file: `root` is then a film's own
    folder, and each film's `season 1/clip 1.mp4` would be found there.
    """
    folder = MediaFolder(root)
    result, sought = Located(), ""
    users: dict[tuple[Path, float | None, float | None], Item] = {}
    for item in _with_media(items):
        files = folder.candidates(item)
        if len(files) == 1:
            other = users.setdefault((files[0], item.start, item.end), item)
            if other.film != item.film and root.resolve().name in (other.film, item.film):
                raise VideoError(
                    f"{files[0]} would be the file of {other.id} and of {item.id}, which are of "
                    f"different films ({other.film}, {item.film}); give the folder that has a "
                    "folder for each film"
                )
            result.found[item.id] = files[0]
        elif files:
            result.ambiguous[item.id] = files
        else:
            result.missing.append(item.id)
            sought = sought or folder.sought(item)
    if result.missing and not result.found and not result.ambiguous:
        result.hint = f"looked for {sought}; {folder.describe_contents()}"
    return result


def describe_located(found: Located, root: Path, *, most: int = 10) -> str:
    """How many were found, and the names of those that were not."""
    lines = [
        f"found      {len(found.found):,}",
        f"missing    {len(found.missing):,}",
        f"ambiguous  {len(found.ambiguous):,}",
    ]
    lines += [found.hint] if found.hint else []
    lines += [f"missing: {identifier}" for identifier in found.missing[:most]]
    if len(found.missing) > most:
        lines.append(f"... and {len(found.missing) - most:,} more (--json names all)")
    for identifier, paths in list(found.ambiguous.items())[:most]:
        names = " or ".join(str(path.relative_to(root)) for path in paths)
        lines.append(f"ambiguous: {identifier} could be {names}")
    if len(found.ambiguous) > most:
        lines.append(f"... and {len(found.ambiguous) - most:,} more (--json names all)")
    return "\n".join(lines)


def _with_media(items: Iterable[Item]) -> Iterator[Item]:
    return (item for item in items if item.kind != "text")
