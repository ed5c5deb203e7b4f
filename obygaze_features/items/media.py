"""Find items' media files by film folder and stem, with the extension of any media format.

Scenes of MovieGraphs have ids such as tt0108160-001 and files such as tt0108160_scene_1.avi.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from obygaze_features.common.files import VIDEO_SUFFIXES, require_folder
from obygaze_features.common.grouping import group_by
from obygaze_features.common.names import caseless, composed
from obygaze_features.errors import VideoError, translate
from obygaze_features.items.items import Item, id_problem, media_stem, safe_id

IMAGE_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
SOUND_SUFFIXES = {".aac", ".flac", ".m4a", ".mp3", ".ogg", ".opus", ".wav"}
"""The suffixes of sound files."""
MEDIA_SUFFIXES = VIDEO_SUFFIXES | IMAGE_SUFFIXES | SOUND_SUFFIXES
PLAYED = (".mp4", ".webm", ".m4v", ".mov", ".mkv")
"""The suffixes of videos that some browsers can play, most widely supported first."""
_SCENE_FILE = re.compile(r"(tt\d{7,8})_scene_0*(\d+)(?:\.[A-Za-z0-9]+)?", re.ASCII | re.IGNORECASE)
_SCENE_ID = re.compile(r"\A(tt\d{7,8})-0*(\d+)\Z", re.ASCII)

_Listing = dict[str, list[Path]]
"""The paths in a folder by their `caseless` stem or name."""


@dataclass
class Located:
    """The result of looking for items' media: found, missing or ambiguous.

    `hint` says which names were tried for the first missing item.
    """

    found: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    ambiguous: dict[str, list[Path]] = field(default_factory=dict)
    hint: str = ""


class MediaFolder:
    """A folder of media files; each subfolder is listed only once, for any number of items.

    Parameters
    ----------
    root
        The folder.
    suffixes
        The suffixes of the files to consider.
    """

    def __init__(self, root: Path, suffixes: Collection[str] = MEDIA_SUFFIXES) -> None:
        require_folder(root, "a folder of videos or images", VideoError)
        self.root = root
        self.suffixes = suffixes
        self._listed: dict[Path, tuple[_Listing, _Listing]] = {}

    def candidates(self, item: Item) -> list[Path]:
        """Return the files that match an item, in its film's folder or else in the root.

        Raise `VideoError` if several folders match, for example in upper and lower case.
        """
        *below, name = item.media.split("/")
        for film in dict.fromkeys((item.film, "")):
            files_of = self._files(film, *below)
            for stem in self._stems(item):
                files = files_of.get(caseless(stem), [])
                exact = [file for file in files if composed(file.name) == composed(name)]
                seen = [file for file in files if file.suffix.lower() not in SOUND_SUFFIXES]
                if files:
                    return exact or seen or files
        return []

    def find(self, item: Item) -> Path:
        """Return an item's file; raise `VideoError` if no file or several files match."""
        files = self.candidates(item)
        if len(files) == 1:
            return files[0]
        if files:
            names = " and ".join(file.name for file in files)
            raise VideoError(f"{item.id}:", f"{names} match; keep only one of these files")
        raise VideoError(f"{item.id}, in {self.root}:", f"no file matches {self.pattern(item)}")

    def pattern(self, item: Item) -> str:
        """Return the names that an item's file may have, for messages."""
        below = item.media.rpartition("/")[0]
        folder = PurePosixPath(item.film, below)
        return " or ".join(f"{folder / stem}.*" for stem in self._stems(item))

    def _stems(self, item: Item) -> list[str]:
        """Return the stems that an item's file may have; a name may contain a dot ("Dr. No")."""
        name = item.media.rpartition("/")[2]
        stems = [media_stem(name)]
        if not name:
            stems = [stem_from_id(item.id), item.id]
        elif Path(name).suffix.lower() not in self.suffixes:
            stems.insert(0, name)
        if item.start is not None:
            stems.append(item.film)
        return list(dict.fromkeys(filter(None, stems)))

    def _files(self, *names: str) -> _Listing:
        """Return the files by stem in a subfolder; case counts only if several folders match."""
        folder = self.root
        for name in filter(None, names):
            _, folders_of = self._list(folder)
            matches = folders_of.get(caseless(name), [])
            exact = [path for path in matches if composed(path.name) == composed(name)]
            chosen = exact or matches
            if not chosen:
                return {}
            if len(chosen) > 1:
                both = " and ".join(path.name for path in chosen)
                raise VideoError(folder, f"has the folders {both}, which match {name!r}; keep one")
            folder = chosen[0]
        files_of, _ = self._list(folder)
        return files_of

    def _list(self, folder: Path) -> tuple[_Listing, _Listing]:
        """List a folder's media files by stem and its folders by name, as `caseless` keys."""
        if folder not in self._listed:
            # Special files such as pipes are listed too; opening them fails with a message.
            with translate(VideoError, folder, "cannot be read: {}", foreign=OSError):
                paths = sorted(folder.iterdir())
            files = []
            folders = []
            for path in paths:
                is_media = path.suffix.lower() in self.suffixes and not path.name.startswith(".")
                if path.is_dir():
                    folders.append(path)
                elif is_media and path.exists():
                    files.append(path)
            self._listed[folder] = (
                group_by(files, lambda path: caseless(path.stem)),
                group_by(folders, lambda path: caseless(path.name)),
            )
        return self._listed[folder]


def locate(items: Iterable[Item], root: Path) -> Located:
    """Find the media of all clips and images, without opening any files.

    Raise `VideoError` if `root` is the folder of a single film and clips of two films match the
    same part of a file. For example, `season 1/clip 1.mp4` of every film would match there.
    """
    folder = MediaFolder(root)
    result = Located()
    users: dict[tuple[Path, float | None, float | None], Item] = {}
    for item in items:
        if item.kind == "text":
            continue
        files = folder.candidates(item)
        if len(files) == 1:
            user = users.setdefault((files[0], item.start, item.end), item)
            films = {composed(user.film), composed(item.film)}
            if len(films) > 1 and composed(root.resolve().name) in films:
                raise VideoError(
                    f"{files[0]} matches {user.id} and {item.id} of different films; pass the "
                    "folder that contains one folder per film"
                )
            result.found[item.id] = files[0]
        elif files:
            result.ambiguous[item.id] = files
        else:
            result.missing.append(item.id)
            result.hint = result.hint or f"searched for {folder.pattern(item)} in {root}"
    return result


def find_videos(items: Sequence[Item], root: Path) -> dict[str, Path]:
    """Return the video of each item that has one: its own file, or its film's file.

    If there are several files, return the one that most browsers play. Raise `VideoError` if no
    item has a video.
    """
    folder = MediaFolder(root, VIDEO_SUFFIXES)
    videos = {}
    for item in items:
        files = folder.candidates(item)
        if files:
            played = [file for end in PLAYED for file in files if file.suffix.lower() == end]
            videos[item.id] = (played or files)[0]
    if not videos:
        raise VideoError(
            f"{root} has no video of these films (searched for {folder.pattern(items[0])})"
        )
    return videos


def id_from_file(name: str) -> tuple[str, str, int] | None:
    """Return the id, film and scene of a file that is named like a MovieGraphs clip, or None.

    Examples
    --------
    >>> id_from_file("tt0108160_scene_1.avi")
    ('tt0108160-001', 'tt0108160', 1)
    """
    match = _SCENE_FILE.fullmatch(name)
    if not match:
        return None
    film = match[1].lower()
    scene = int(match[2])
    return f"{film}-{scene:03d}", film, scene


def stem_from_id(id_: str) -> str:
    """Return the stem of a MovieGraphs scene's file; other ids are returned unchanged.

    Examples
    --------
    >>> stem_from_id("tt0108160-001")
    'tt0108160_scene_1'
    """
    return _SCENE_ID.sub(r"\1_scene_\2", id_)


def item_of_file(path: str, film: str = "") -> Item:
    """Return the clip for a file's path; by default, its film is the outermost folder.

    A file named like a MovieGraphs clip gets that clip's id.

    Examples
    --------
    >>> item_of_file("tt0108160/tt0108160_scene_1.avi").id
    'tt0108160-001'
    >>> item_of_file("Juno/part 1/scene.mp4")
    Item(id='Juno-part_1-scene', kind='clip', film='Juno', media='part 1/scene.mp4', text='', \
start=None, end=None)
    """
    *folders, name = path.split("/")
    if folders and (not film or folders[0].casefold() == film.casefold()):
        film, *folders = folders
    if not name:
        return Item("", film=film)
    media = "/".join([*folders, name])
    scene = id_from_file(name)
    if scene:
        id_, imdb, _ = scene
        if film.lower() in ("", imdb):
            film = imdb
        return Item(id_, film=film, media=media)
    # Names such as "Dr. No" may lack an extension.
    if PurePosixPath(name).suffix.lower() in MEDIA_SUFFIXES:
        name = media_stem(name)
    id_ = safe_id(name)
    for folder in map(safe_id, filter(None, reversed([film, *folders]))):
        if not id_.startswith(folder):
            id_ = f"{folder}-{id_}"
    return Item(id_, film=film, media=media)


def id_of_name(name: str, film: str = "") -> str:
    """Return the id of the item that a table names by an id or a file.

    Examples
    --------
    >>> [id_of_name(name) for name in ("clip-1", "clip 1", "Juno/clip.mp4")]
    ['clip-1', 'clip_1', 'Juno-clip']
    """
    name = relative_path(name)
    if is_file_name(name):
        return item_of_file(name, film).id
    if id_problem(name):
        return safe_id(name)
    return name


def is_file_name(name: str) -> bool:
    """Return True if a name is that of a media file, or a path."""
    return "/" in name or name.lower().endswith(tuple(MEDIA_SUFFIXES))


def relative_path(path: str) -> str:
    """Return a path with forward slashes, or only the file name if the path is absolute."""
    path = path.strip().replace("\\", "/").removeprefix("./")
    return path.rpartition("/")[2] if path.startswith("/") or path[1:3] == ":/" else path
