"""Headers of our formats: JSON that says which format it is, and of which version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json, require_folder
from obygaze_features.common.words import holds
from obygaze_features.errors import ObygazeError

__all__ = ["check_format", "read_format"]


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
    what = _what(name)
    if not path.is_file():
        require_folder(path.parent, f"a {what}", error)
        inside = sorted(path.parent.glob(f"*/{path.name}"))
        if inside:
            raise error(holds(path.parent, what, inside[0].parent))
        raise error(f"{path.parent} is not a {what}: it has no {path.name} (make one with: {make})")
    try:
        header = read_json(path, error)
    except error as problem:
        raise error(f"{problem}; if it was cut short, make it again with: {make}") from None
    return check_format(header, path, name, version, error)


def check_format(
    content: Any, where: object, name: str, version: int, error: type[ObygazeError]
) -> dict[str, Any]:
    """What a JSON file at `where` holds, unless it is of another format, or of a later version."""
    if not isinstance(content, dict) or content.get("format") != name:
        raise error(f'{where} is not a {_what(name)}: its "format" is not "{name}"')
    found = content.get("format_version")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= version:
        raise error(
            f"{where} is of format version {found!r}, this obygaze reads up to {version}; "
            "update obygaze (pip install --upgrade obygaze)"
        )
    return content


def _what(name: str) -> str:
    what = name.removeprefix("obygaze-")
    # Timelines of many films and annotators are one folder, and all others are called by one thing.
    return "folder of timelines" if what == "timelines" else what.removesuffix("s")
