"""Headers of our formats: JSON that says which format it is, and of which version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.common.words import holds
from obygaze_features.errors import ObygazeError

__all__ = ["read_format"]


def read_format(
    path: Path, name: str, version: int, error: type[ObygazeError], *, make: str
) -> dict[str, Any]:
    """Read a header, unless it is of another format or of a version above ours.

    Parameters
    ----------
    path
        The JSON file; the folder that holds it is what people know.
    name, version
        Its ``format``, and the highest ``format_version`` that can be read.
    error
        What is raised if it is not so.
    make
        The command that makes such a folder.
    """
    what = name.removeprefix("obygaze-")
    # Timelines of many films and annotators are one folder, and all others are called by one thing.
    what = "folder of timelines" if what == "timelines" else what.removesuffix("s")
    if not path.is_file():
        inside = sorted(path.parent.glob(f"*/{path.name}"))
        if inside:
            raise error(holds(path.parent, what, inside[0].parent))
        raise error(f"{path.parent} is not a {what}: it has no {path.name} (make one with: {make})")
    try:
        header = read_json(path, error)
    except error as problem:
        raise error(f"{problem}; if it was cut short, make it again with: {make}") from None
    if not isinstance(header, dict) or header.get("format") != name:
        raise error(f"{path} is not the header of a {what}")
    found = header.get("format_version")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= version:
        raise error(
            f"{path} is of format version {found!r}, this obygaze reads up to {version}; "
            "update obygaze (pip install --upgrade obygaze)"
        )
    return header
