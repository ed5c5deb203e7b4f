"""Plan an extraction without starting it: the rows to do, and the disk space that they take."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone
from obygaze_features.extraction.extract import load
from obygaze_features.extraction.job import Options, plan_job, recipe_of
from obygaze_features.manifests import Manifest


def estimate(
    manifest: Manifest,
    media: Path | None,
    backbones: Sequence[str | Backbone],
    output: Path,
    options: Options,
) -> dict[str, Any]:
    """Return what an extraction would do; the parameters are as for `extract`.

    The result has JSON values with these keys:

    - ``stores``: for each store, its path, whether it is new, the number of rows to compute, and
      their size in bytes;
    - ``clips``: the number of items that any store lacks, and ``missing``: the ids of those items
      that have no file or several files;
    - ``free``: the free bytes on the stores' disk.
    """
    loaded = load(manifest, media, backbones, options)
    job = plan_job(manifest, media, loaded, output, options)

    stores = {}
    for backbone in loaded:
        to_do = len(job.missing[backbone.name])
        row_bytes = sum(spec.row_bytes for spec in recipe_of(backbone).arrays)
        stores[backbone.name] = {
            "path": str(job.paths[backbone.name]),
            "is_new": backbone.name not in job.stores,
            "to_do": to_do,
            "bytes": to_do * row_bytes,
        }

    ids = [manifest.ids[row] for row in job.to_do]
    without_file = {*job.located.missing, *job.located.ambiguous}
    parent = next(path for path in (output, *output.absolute().parents) if path.exists())
    return {
        "stores": stores,
        "clips": len(ids),
        "missing": [id_ for id_ in ids if id_ in without_file],
        "free": shutil.disk_usage(parent).free,
    }
