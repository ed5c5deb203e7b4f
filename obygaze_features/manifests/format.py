"""The files of a manifest's folder: their names, and what their JSON says.

``manifest.json``, ``items.csv``, and in ``labels/``, ``splits/`` and ``runs/`` a table and a JSON
file of the same name; specified in manifests/README.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_format, read_json
from obygaze_features.errors import ManifestError

FORMAT = "obygaze-manifest"
FORMAT_VERSION = 1
HEADER = "manifest.json"


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
