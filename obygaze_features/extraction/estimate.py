"""What an extraction would do, and how large it gets, before it runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone
from obygaze_features.common.text import counted, format_size, join_some
from obygaze_features.extraction.extract import load
from obygaze_features.extraction.plan import (
    BrokenBackbones,
    Options,
    check_items,
    check_media,
    recipe_of,
    shared_block_rows,
    store_paths,
)
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.media import locate
from obygaze_features.store.writer import open_to_resume


def estimate(
    manifest: Manifest,
    videos: str | Path,
    backbones: Sequence[str | Backbone],
    output: str | Path,
    **options: Any,
) -> dict[str, Any]:
    """Plan the extraction of clips; the arguments are those of `extract`.

    Returns as JSON values for each of `stores` its path, whether it is new, rows to do and their
    bytes; how many `clips` any store lacks, and which of these are `missing` (no file, or several);
    and the `free` bytes on the disk of the stores.
    """
    videos, output = Path(videos), Path(output)
    check_items(manifest)
    settings = Options(**options)
    broken = BrokenBackbones(len(backbones))
    loaded, _ = load(backbones, settings, ["clip"], broken)
    paths = store_paths(loaded, output)
    rows = settings.select(manifest, shared_block_rows(manifest, paths.values()))
    check_media(manifest, rows, videos)
    stores, lacking = {}, set[int]()
    for backbone in loaded:
        path, recipe, missing = paths[backbone.name], recipe_of(backbone), rows
        if path.exists():
            store = open_to_resume(path, manifest, recipe)
            missing = store.missing_rows(rows, retry_failed=settings.retry_failed)
        stores[backbone.name] = {
            "path": str(path),
            "is_new": not path.exists(),
            "to_do": len(missing),
            "bytes": sum(array.row_bytes for array in recipe.arrays) * len(missing),
        }
        lacking |= set(missing.tolist())
    located = locate([manifest.items[row] for row in sorted(lacking)], videos)
    parent = next(path for path in (output, *output.absolute().parents) if path.exists())
    return {
        "stores": stores,
        "clips": len(lacking),
        "missing": [*located.missing, *located.ambiguous],
        "free": shutil.disk_usage(parent).free,
        "broken": broken.reasons,
    }


def describe_estimate(estimate: Mapping[str, Any]) -> str:
    """The estimate as text."""
    stores, missing, free = estimate["stores"], estimate["missing"], estimate["free"]
    lines = [
        f"{name}: {counted(store['to_do'], 'clip')}, {format_size(store['bytes'])} in "
        f"{store['path']} ({'new' if store['is_new'] else 'resumed'})"
        for name, store in stores.items()
    ]
    needed = sum(store["bytes"] for store in stores.values())
    warning = "" if needed < free else ", which is TOO LITTLE"
    lines.append(f"disk: {format_size(free)} free{warning}")
    if missing:
        clips = counted(len(missing), "clip")
        lines.append(f"no file, or several: {clips} ({join_some(missing)})")
    lines += [f"left out: {problem}" for problem in estimate["broken"].values()]
    return "\n".join(lines)
