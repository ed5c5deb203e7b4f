"""MovieGraphs' names: the same id from an annotation, a file name and a folder."""

from __future__ import annotations

import re

__all__ = ["clip_id", "id_from_file", "stem_from_id"]

_FILE = re.compile(r"(tt\d{7,8})_scene_0*(\d+)(?:\.[A-Za-z0-9]+)?", re.ASCII | re.IGNORECASE)
_ID = re.compile(r"(tt\d{7,8})-0*(\d+)", re.ASCII)


def clip_id(film: str, scene: int) -> str:
    """The id of a scene.

    Examples
    --------
    >>> clip_id("tt0108160", 1)
    'tt0108160-001'
    """
    return f"{film}-{scene:03d}"


def id_from_file(name: str) -> tuple[str, str, int] | None:
    """Id, film and scene of a file named as MovieGraphs names its clips.

    Examples
    --------
    >>> id_from_file("tt0108160_scene_1.avi")
    ('tt0108160-001', 'tt0108160', 1)
    """
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    film, scene = found[1].lower(), int(found[2])
    return clip_id(film, scene), film, scene


def stem_from_id(identifier: str) -> str | None:
    """The stem of the file that holds a scene.

    Examples
    --------
    >>> stem_from_id("tt0108160-001")
    'tt0108160_scene_1'
    """
    found = _ID.fullmatch(identifier)
    return f"{found[1]}_scene_{int(found[2])}" if found else None
