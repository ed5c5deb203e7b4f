"""What an extraction would do, how large it gets, and how long it takes, before it runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.checkpoints import find_absent
from obygaze_features.backbones.devices import default_workers
from obygaze_features.backbones.load import choose_arrays
from obygaze_features.common.text import counted, format_duration, format_size, join_some
from obygaze_features.extraction.check_videos import check_videos
from obygaze_features.extraction.extract import load
from obygaze_features.extraction.job import Options, check_items, plan_job, recipe_of
from obygaze_features.extraction.progress import BrokenBackbones
from obygaze_features.items.media import locate
from obygaze_features.manifests import Manifest
from obygaze_features.store.format import LOG
from obygaze_features.store.status import read_runs

CLIPS_TRIED = 8
"""Clips that are decoded to estimate how long all take."""
FRAME_BYTES = 12
"""Of a frame's number and time."""


def estimate(
    manifest: Manifest,
    videos: str | Path,
    backbones: Sequence[str | Backbone],
    output: str | Path,
    **options: Any,
) -> dict[str, Any]:
    """Plan the extraction of clips; the arguments are those of `extract`.

    Returns as JSON values for each of `stores` its path, whether it is new, rows to do and their
    bytes, and whether its weights are here (if not, its size is by the list of checkpoints); how
    many `clips` any store lacks, and which of these are `missing` (no file, or several); the `free`
    bytes on the disk of the stores; and the `seconds` that `decode` takes, by a few clips, and
    `all`, as fast as the ``last_run`` in the log of `output` was, None if there is none.
    """
    videos, output = Path(videos), Path(output)
    check_items(manifest)
    settings = Options(**options)
    broken = BrokenBackbones(len(backbones))
    # The list's sizes are those of each backbone's own sampling.
    is_listed = not (settings.sampling or settings.frames)
    absent = [find_absent(b) if is_listed and isinstance(b, str) else None for b in backbones]
    here = [backbone for backbone, known in zip(backbones, absent, strict=True) if not known]
    loaded = load(here, settings, ["clip"], broken)[0] if here or not backbones else []
    arrays = [(backbone.name, recipe_of(backbone).arrays, 0) for backbone in loaded]
    for name, known in filter(None, absent):
        chosen = choose_arrays(known.arrays, settings.arrays, name)
        arrays.append((name, chosen, FRAME_BYTES * known.sampling.frames))
    named = {backbone.name: backbone for backbone in loaded}
    wanted = [(name, named.get(name)) for name, _, _ in arrays]
    job = plan_job(manifest, videos, wanted, output, settings)
    stores = {
        name: {
            "path": str(job.paths[name]),
            "is_new": name not in job.stores,
            "has_weights": name in named,
            "to_do": len(job.missing[name]),
            "bytes": (sum(spec.row_bytes for spec in specs) + more) * len(job.missing[name]),
        }
        for name, specs, more in arrays
    }
    lacking = {row for block in job.blocks for row in block.rows}
    items = [manifest.items[row] for row in sorted(lacking)]
    located = locate(items, videos)
    parent = next(path for path in (output, *output.absolute().parents) if path.exists())
    last, clips = _find_last_run(output, set(stores), settings.device), len(lacking)
    found = [item.id for item in items if item.id in located.found]
    tried = manifest.select(ids=found[:: max(1, -(-len(found) // CLIPS_TRIED))])
    checks = check_videos(tried, videos, workers=settings.workers) if found else ()
    seconds = [check["decode_seconds"] for check in checks if not check["error"]]
    workers = settings.workers or default_workers(loaded[0].device if loaded else "cpu")
    decode = len(found) * float(np.mean(seconds or 0)) / workers
    return {
        "stores": stores,
        "clips": clips,
        "missing": [*located.missing, *located.ambiguous],
        "free": shutil.disk_usage(parent).free,
        "seconds": {"decode": decode, "all": last and clips / last["clips_a_second"]},
        "last_run": last,
        "broken": broken.reasons,
    }


def _find_last_run(output: Path, names: set[str], device: str | None) -> dict[str, Any] | None:
    """How fast the last run was that filled these stores on this kind of device, by its log."""
    for run in read_runs(output / LOG):
        devices = run.get("devices", {})
        kinds = {name.partition(":")[0] for name in devices.values()}
        if devices.keys() == names and (not device or kinds == {device.partition(":")[0]}):
            return {key: run[key] for key in ("time", "host", "devices", "clips", "clips_a_second")}
    return None


def describe_estimate(estimate: Mapping[str, Any]) -> str:
    """The estimate as text."""
    stores, missing, free = estimate["stores"], estimate["missing"], estimate["free"]
    absent = "; its weights are not here, so its size is by the list of checkpoints"
    lines = [
        f"{name}: {counted(store['to_do'], 'clip')}, {format_size(store['bytes'])} in "
        f"{store['path']} ({'new' if store['is_new'] else 'resumed'}"
        f"{'' if store['has_weights'] else absent})"
        for name, store in stores.items()
    ]
    needed = sum(store["bytes"] for store in stores.values())
    warning = "" if needed < free else ", which is TOO LITTLE"
    lines.append(f"disk: {format_size(free)} free{warning}")
    if missing:
        clips = counted(len(missing), "clip")
        lines.append(f"no file, or several: {clips} ({join_some(missing)})")
    lines += [f"left out: {problem}" for problem in estimate["broken"].values()]
    if estimate["clips"]:
        seconds, last = estimate["seconds"], estimate["last_run"]
        text = "all: not known before a first run, such as with --limit 256"
        if last:
            speed = f"{last['clips_a_second']:.1f} clips a second on {last['host']}"
            text = f"all: about {format_duration(seconds['all'])}, by the last run's {speed}"
        lines.append(f"time to decode: about {format_duration(seconds['decode'])}; {text}")
    return "\n".join(lines)
