"""What an extraction would do, and how large it gets, before it runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone
from obygaze_features.common.text import counted, format_size, join_some
from obygaze_features.extraction.extract import load
from obygaze_features.extraction.plan import (
    check_items,
    check_media,
    recipe_of,
    store_paths,
)
from obygaze_features.extraction.run import Options
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.media import locate
from obygaze_features.store.writer import open_to_resume


@dataclass(frozen=True)
class PlannedStore:
    """A store: its path, whether it would be created, rows to compute, and their size."""

    path: Path
    is_new: bool
    to_do: int
    bytes: int


@dataclass(frozen=True)
class Estimate:
    """What an extraction would do.

    Parameters
    ----------
    stores
        By name.
    clips
        How many clips any store lacks.
    missing
        Ids of these clips that have no file, or several.
    free
        Free bytes on the disk of the stores.
    """

    stores: dict[str, PlannedStore]
    clips: int
    missing: list[str]
    free: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        stores = {
            name: {**asdict(store), "path": str(store.path)} for name, store in self.stores.items()
        }
        return {**asdict(self), "stores": stores}


def estimate(
    manifest: Manifest,
    videos: str | Path,
    backbones: Sequence[str | Backbone],
    output: str | Path,
    **options: Any,
) -> Estimate:
    """Plan the extraction of clips; the arguments are those of `extract`."""
    videos, output = Path(videos), Path(output)
    check_items(manifest)
    settings = Options(**options)
    loaded, _ = load(backbones, settings, ["clip"])
    rows = settings.select(manifest)
    check_media(manifest, rows, videos)
    stores, lacking = {}, set[int]()
    paths = store_paths(loaded, output)
    for backbone in loaded:
        path, recipe, missing = paths[backbone.name], recipe_of(backbone), rows
        if path.exists():
            store = open_to_resume(path, manifest, recipe)
            missing = store.missing_rows(rows, retry_failed=settings.retry_failed)
        row_bytes = sum(array.row_bytes for array in recipe.arrays)
        stores[backbone.name] = PlannedStore(
            path, not path.exists(), len(missing), row_bytes * len(missing)
        )
        lacking |= set(missing.tolist())
    located = locate([manifest.items[row] for row in sorted(lacking)], videos)
    parent = next(path for path in (output, *output.absolute().parents) if path.exists())
    return Estimate(
        stores=stores,
        clips=len(lacking),
        missing=[*located.missing, *located.ambiguous],
        free=shutil.disk_usage(parent).free,
    )


def describe_estimate(estimate: Estimate) -> str:
    """The estimate as text."""
    lines = [
        f"{name}: {counted(store.to_do, 'clip')}, {format_size(store.bytes)} in {store.path} "
        f"({'new' if store.is_new else 'resumed'})"
        for name, store in estimate.stores.items()
    ]
    needed = sum(store.bytes for store in estimate.stores.values())
    warning = "" if needed < estimate.free else ", which is TOO LITTLE"
    lines.append(f"disk: {format_size(estimate.free)} free{warning}")
    if estimate.missing:
        lines.append(
            f"no file, or several: {counted(len(estimate.missing), 'clip')} "
            f"({join_some(estimate.missing)})"
        )
    return "\n".join(lines)
