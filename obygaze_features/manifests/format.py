"""The files of a manifest's folder: their names, and what their JSON says.

``manifest.json``, ``items.csv``, and in ``labels/``, ``splits/`` and ``runs/`` a table and a JSON
file of the same name; specified in manifests/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_format, read_json
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.labels import LabelScheme, obygaze_scheme

FORMAT = "obygaze-manifest"
FORMAT_VERSION = 1
HEADER = "manifest.json"
#: Folder -> the columns that its tables must have.
REQUIRED_COLUMNS = {
    "labels": ("id", "level"),
    "splits": ("id", "fold"),
    "runs": ("run", "role", "id"),
}


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check ``manifest.json``."""
    path = folder / HEADER
    if not path.is_file() and (folder / "timelines.json").is_file():
        raise ManifestError(
            f"{folder} holds timelines, not a manifest of clips; make one: "
            f"obygaze annotations project {folder} --grid 60 -o FOLDER"
        )
    make = "obygaze manifests import KIND SOURCE -o FOLDER"
    header = read_format(path, FORMAT, FORMAT_VERSION, ManifestError, make=make)
    for key in ("name", "version", "source", "licence", "citation", "default_labels"):
        value = header.get(key, None if key == "name" else "")
        if not isinstance(value, str) and (key != "default_labels" or value is not None):
            raise ManifestError(f"{path}: {key} must be a text (got {value!r})")
    return header


def read_about(path: Path) -> dict[str, Any]:
    """What the JSON file beside a table says of it; nothing where there is none."""
    json_path = path.with_suffix(".json")
    about = read_json(json_path, ManifestError) if json_path.exists() else {}
    if not isinstance(about, dict):
        raise ManifestError(f"{json_path}: must hold an object (got {about!r})")
    return about


def scheme_in(
    about: Mapping[str, Any], path: Path, default: LabelScheme | None = None
) -> LabelScheme:
    """The scheme that a header or a label set's JSON file holds; else `default`, or ObyGaze's.

    Messages name the file's `path`.
    """
    value = about.get("label_scheme")
    try:
        return (default or obygaze_scheme()) if value is None else LabelScheme.from_json(value)
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from None
