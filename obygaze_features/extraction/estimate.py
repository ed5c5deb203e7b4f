"""Check clips and estimate the time and disk space of an extraction before starting it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.backbones import Backbone, known_checkpoints
from obygaze_features.backbones.checkpoints import find_absent
from obygaze_features.backbones.devices import default_workers
from obygaze_features.backbones.load import choose_arrays
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.tables import align, format_rows
from obygaze_features.common.text import counted, format_duration, format_size, join_some
from obygaze_features.extraction.decoder import Decoder, map_items
from obygaze_features.extraction.extract import load
from obygaze_features.extraction.job import Options, check_items, check_media, plan_job, recipe_of
from obygaze_features.extraction.reader import ask_decoder
from obygaze_features.extraction.summary import BrokenBackbones
from obygaze_features.items.media import MediaFolder, locate
from obygaze_features.manifests import Item, Manifest
from obygaze_features.store.format import LOG
from obygaze_features.video.index import NO_PICTURES

CLIPS_TRIED = 8
"""The number of clips decoded to estimate the decoding time of all clips."""
FRAME_BYTES = 12
"""The size of a frame's number and time in bytes."""
SAMPLINGS = (Sampling(32), Sampling(12, rate=1))
"""The samplings of the paper's three backbones."""
COLUMNS = (
    "id", "file", "error", "problems", "container", "codec", "width", "height", "rotation",
    "frames", "fps", "seconds", "decode_seconds", "why_slow",
)  # fmt: skip
MAX_FAILURES_SHOWN = 20

EXPLANATIONS = {
    "short": "short: under 32 frames",
    "few seconds": "under 12 s, which only matters for xclip-lsmdc",
    "ends early": "the film ends before the span does",
    "decoded in order": "decoded from the start of the file (-o TABLE.csv says why)",
    "no sound": "no sound track, which audio backbones need",
    "sound alone": "no pictures, so only audio backbones can use it",
}

Row = Mapping[str, Any]


def check_videos(
    manifest: Manifest, videos: str | Path, options: Options | None = None
) -> Iterator[dict[str, Any]]:
    """Decode the frames that the paper's backbones need, and yield a row of `COLUMNS` per clip.

    In a row, ``error`` says why the clip cannot be used, and ``problems`` lists what is unusual
    about a usable clip.
    """
    settings, videos = options or Options(), Path(videos)
    check_items(manifest)
    media = MediaFolder(videos.resolve())
    rows = settings.select(manifest)
    check_media(manifest, rows, videos)
    items = [manifest.items[row] for row in rows.tolist()]
    hearing = next(entry.sampling for entry in known_checkpoints().values() if entry.hears)

    def examine(decoder: Decoder, item: Item) -> dict[str, Any]:
        answer = ask_decoder(decoder, "examine", media, item, SAMPLINGS)
        if NO_PICTURES not in answer.get("error", ""):
            return answer
        heard = ask_decoder(decoder, "hear", media, item, [hearing])
        if "error" in heard:
            return answer
        rate, (samples, _) = next(iter(heard["spans"].items()))
        alone = {"problems": ["sound alone"], "seconds": samples / int(rate)}
        return {"file": heard["file"], "frames": 0, "decode_seconds": 0.0, **alone}

    for item, answer in map_items(examine, items, "Checking", settings):
        row = {"id": item.id, **answer}
        yield {column: "" if row.get(column) is None else row[column] for column in COLUMNS}


def format_checks(rows: Sequence[Row]) -> str:
    """Return the rows of `check_videos` as CSV."""
    return format_rows(rows, COLUMNS, "{:.3f}".format)


def describe_checks(rows: Sequence[Row]) -> str:
    """Describe how many clips are usable, what is unusual, and why some cannot be used."""
    good = [row for row in rows if not row["error"]]
    lines = [f"{len(good):,} of {counted(len(rows), 'clip')} can be extracted"]
    if seen := [row for row in good if row["frames"]]:
        frames = sum(row["frames"] for row in seen)
        decode = sum(row["decode_seconds"] for row in seen)
        lines.append(
            f"{format_duration(sum(row['seconds'] for row in seen))} of video, {frames:,} frames; "
            f"decoding the frames that backbones need takes {format_duration(decode)} on one core"
        )
    problems: dict[str, list[str]] = {}
    for row in good:
        for problem in row["problems"]:
            problems.setdefault(problem, []).append(row["id"])
    if problems:
        table = [
            [EXPLANATIONS.get(problem, problem), join_some(ids, 3), len(ids)]
            for problem, ids in problems.items()
        ]
        lines += ["", align(["unusual, but usable", "such as", "clips"], table, left=2)]
    bad = [row for row in rows if row["error"]]
    if bad:
        table = [[row["id"], row["error"]] for row in bad[:MAX_FAILURES_SHOWN]]
        lines += ["", align(["cannot be extracted", "why"], table, left=2)]
        if len(bad) > MAX_FAILURES_SHOWN:
            lines.append(f"and {len(bad) - MAX_FAILURES_SHOWN:,} more (-o TABLE.csv lists all)")
    return "\n".join(lines)


def estimate(
    manifest: Manifest,
    videos: str | Path,
    backbones: Sequence[str | Backbone],
    output: str | Path,
    options: Options | None = None,
) -> dict[str, Any]:
    """Estimate the work of an extraction; the parameters are as for `extract`.

    Returns JSON values with these keys:

    - ``stores``: for each store, its path, whether it is new, the number of rows to compute, their
      size in bytes, and whether the weights are on this machine (if not, the size is taken from the
      list of checkpoints);
    - ``clips``: the number of clips that any store lacks, and ``missing``: the ids of those clips
      that have no file or several files;
    - ``free``: the free bytes on the stores' disk;
    - ``seconds``: the time to ``decode``, estimated from a few clips, and the time for ``all``, at
      the speed of the ``last_run`` in the log of `output` (None if there is no such run);
    - ``broken``: the reasons why backbones would be left out, by name.
    """
    videos, output = Path(videos), Path(output)
    check_items(manifest)
    settings = options or Options()
    broken = BrokenBackbones(len(backbones))
    # The sizes in the list of checkpoints are for each backbone's own sampling.
    is_listed = not (settings.sampling or settings.frames)
    absent = [find_absent(b) if is_listed and isinstance(b, str) else None for b in backbones]
    here = [backbone for backbone, entry in zip(backbones, absent, strict=True) if not entry]
    loaded = load(here, settings, ["clip"], broken)[0] if here or not backbones else []
    arrays = [(backbone.name, recipe_of(backbone).arrays, 0) for backbone in loaded]
    for name, checkpoint in filter(None, absent):
        chosen = choose_arrays(checkpoint.arrays, settings.arrays, name)
        arrays.append((name, chosen, FRAME_BYTES * checkpoint.sampling.frames))
    named = {backbone.name: backbone for backbone in loaded}
    layouts = [(name, named.get(name)) for name, _, _ in arrays]
    job = plan_job(manifest, videos, layouts, output, settings)
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
    found_ids = [item.id for item in items if item.id in located.found]
    tried = manifest.select(ids=found_ids[:: max(1, -(-len(found_ids) // CLIPS_TRIED))])
    decoding = Options(workers=settings.workers, stall_timeout=settings.stall_timeout)
    checks = check_videos(tried, videos, decoding) if found_ids else ()
    seconds = [check["decode_seconds"] for check in checks if not check["error"]]
    workers = settings.workers or default_workers(loaded[0].device if loaded else "cpu")
    decode = len(found_ids) * float(np.mean(seconds or 0)) / workers
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
    """Return the log entry of the last run that filled these stores on this kind of device."""
    for run in _read_runs(output / LOG):
        devices = run.get("devices", {})
        kinds = {name.partition(":")[0] for name in devices.values()}
        if devices.keys() == names and (not device or kinds == {device.partition(":")[0]}):
            return {key: run[key] for key in ("time", "host", "devices", "clips", "clips_a_second")}
    return None


def _read_runs(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the extractions in a log, latest first, with their ``clips_a_second``."""
    for line in reversed(log.read_text(encoding="utf-8").splitlines() if log.is_file() else []):
        # The line was cut by a kill, or describes another event.
        with contextlib.suppress(ValueError, LookupError, TypeError, ZeroDivisionError):
            run = json.loads(line)
            if run["event"] == "extracted" and run["clips"]:
                seconds = run["seconds"] * (1 - run.get("shares", {}).get("start", 0))
                yield run | {"clips_a_second": run["clips"] / seconds}


def describe_estimate(estimate: Mapping[str, Any]) -> str:
    """Format an estimate as text."""
    stores, missing, free = estimate["stores"], estimate["missing"], estimate["free"]
    absent = "; its weights are not on this machine, so its size is estimated"
    lines = [
        f"{name}: {counted(store['to_do'], 'clip')}, {format_size(store['bytes'])} in "
        f"{store['path']} ({'new' if store['is_new'] else 'resumed'}"
        f"{'' if store['has_weights'] else absent})"
        for name, store in stores.items()
    ]
    needed = sum(store["bytes"] for store in stores.values())
    warning = "" if needed < free else ", which is NOT ENOUGH"
    lines.append(f"disk: {format_size(free)} free{warning}")
    if missing:
        clips = counted(len(missing), "clip")
        lines.append(f"{clips} without a file or with several files ({join_some(missing)})")
    lines += [f"left out: {problem}" for problem in estimate["broken"].values()]
    if estimate["clips"]:
        seconds, last = estimate["seconds"], estimate["last_run"]
        text = "in all: unknown until a first run, for example with --limit 256"
        if last:
            speed = f"{last['clips_a_second']:.1f} clips/s on {last['host']}"
            text = f"in all: about {format_duration(seconds['all'])}, at the last run's {speed}"
        lines.append(f"time to decode: about {format_duration(seconds['decode'])}; {text}")
    return "\n".join(lines)
