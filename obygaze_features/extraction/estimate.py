"""What an extraction would do, how large it gets, and how long it takes, before it runs."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.checkpoints import find_absent
from obygaze_features.backbones.devices import default_workers
from obygaze_features.backbones.load import choose_arrays
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.text import counted, format_duration, format_size, join_some
from obygaze_features.extraction.check_videos import examine
from obygaze_features.extraction.extract import load
from obygaze_features.extraction.plan import (
    BrokenBackbones,
    Options,
    check_items,
    check_media,
    recipe_of,
    sampling_arrays,
    shared_block_rows,
    store_paths,
)
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import MediaFolder, locate
from obygaze_features.store.format import LOG, ArraySpec
from obygaze_features.store.writer import open_to_resume

CLIPS_TRIED = 8
"""Clips that are decoded to estimate how long all take."""


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
    arrays: dict[str, tuple[ArraySpec, ...]] = {}
    samplings: list[Sampling] = []
    here: list[str | Backbone] = []
    for backbone in backbones:
        if isinstance(backbone, str) and (absent := find_absent(backbone)) and absent[1].arrays:
            name, known = absent
            arrays[name] = choose_arrays(known.arrays, settings.arrays, name)
            arrays[name] += sampling_arrays(known.sampling)
            samplings.append(known.sampling)
        else:
            here.append(backbone)
    loaded = load(here, settings, ["clip"], broken)[0] if here or not arrays else []
    recipes = {backbone.name: recipe_of(backbone) for backbone in loaded}
    samplings += [backbone.sampling for backbone in loaded]
    names = [*arrays, *(backbone.name for backbone in loaded)]
    arrays |= {name: recipe.arrays for name, recipe in recipes.items()}
    paths = store_paths(names, output)
    rows = settings.select(manifest, shared_block_rows(manifest, paths.values()))
    check_media(manifest, rows, videos)
    stores, lacking = {}, set[int]()
    for name, path in paths.items():
        missing = rows
        if path.exists():
            store = open_to_resume(path, manifest, recipes.get(name))
            missing = store.missing_rows(rows, retry_failed=settings.retry_failed)
        stores[name] = {
            "path": str(path),
            "is_new": not path.exists(),
            "has_weights": name in recipes,
            "to_do": len(missing),
            "bytes": sum(array.row_bytes for array in arrays[name]) * len(missing),
        }
        lacking |= set(missing.tolist())
    located = locate([manifest.items[row] for row in sorted(lacking)], videos)
    parent = next(path for path in (output, *output.absolute().parents) if path.exists())
    device = loaded[0].device if loaded else settings.device or "cpu"
    last, clips = _find_last_run(output, names, settings.device), len(lacking)
    found = [manifest.items[row] for row in sorted(lacking) if manifest.ids[row] in located.found]
    return {
        "stores": stores,
        "clips": clips,
        "missing": [*located.missing, *located.ambiguous],
        "free": shutil.disk_usage(parent).free,
        "seconds": {
            "decode": len(found) * _measure_decoding(found, videos, samplings, settings, device),
            "all": last and clips / last["clips_a_second"],
        },
        "last_run": last,
        "broken": broken.reasons,
    }


def _find_last_run(
    output: Path, names: Collection[str], device: str | None
) -> dict[str, Any] | None:
    """How fast the last run was that filled these stores on this kind of device, by its log."""
    log = output / LOG
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    for line in reversed(lines):
        with contextlib.suppress(ValueError):  # a kill cut the line
            entry = json.loads(line)
            busy = entry["seconds"] * (1 - entry["shares"]["start"])
            kinds = {name.partition(":")[0] for name in entry["devices"].values()}
            is_same_kind = not device or kinds == {device.partition(":")[0]}
            if entry["clips"] and busy and is_same_kind and entry["devices"].keys() == set(names):
                facts = {key: entry[key] for key in ("time", "host", "devices", "clips")}
                return {**facts, "clips_a_second": entry["clips"] / busy}
    return None


def _measure_decoding(
    items: Sequence[Item],
    videos: Path,
    samplings: Sequence[Sampling],
    options: Options,
    device: str,
) -> float:
    """Seconds to decode a clip, with all processes; by a few clips."""
    few = items[:: max(1, -(-len(items) // CLIPS_TRIED))]
    answers = [answer for _, answer in examine(few, MediaFolder(videos), samplings, options)]
    seconds = [a["examination"]["decode_seconds"] for a in answers if "examination" in a]
    return float(np.mean(seconds or [0.0])) / (options.workers or default_workers(device))


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
        decode, last = estimate["seconds"]["decode"], estimate["last_run"]
        known = "how fast the device is shows a first run, such as with --limit 256"
        if last:
            devices = ", ".join(sorted(set(last["devices"].values())))
            known = (
                f"all about {format_duration(estimate['seconds']['all'])} at the last run's "
                f"{last['clips_a_second']:.1f} clips a second ({devices}, {last['host']})"
            )
        lines.append(f"time: decoding alone about {format_duration(decode)}; {known}")
    return "\n".join(lines)
