"""Looking into every file before the slot, so that it is not lost to bad ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import align, format_table
from obygaze_features.common.text import counted, duration, join_some
from obygaze_features.errors import VideoError
from obygaze_features.extraction.clips import question, reason
from obygaze_features.extraction.decoders import PATIENCE, Decoder, Decoders, default_workers
from obygaze_features.extraction.plan import EVERYTHING, Wanted, check_items, check_media
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.media import MediaFolder

__all__ = ["COLUMNS", "describe_probe", "probe_clips", "probe_table"]

SAMPLINGS = (Sampling(32), Sampling(12, rate=1))
"""What the paper's three backbones take of a clip."""
COLUMNS = (
    "id", "file", "error", "problems", "container", "codec", "width", "height", "rotation",
    "frames", "fps", "seconds", "decode_seconds", "why_slow",
)  # fmt: skip

ODD = {
    "short": "short: under 32 frames, or under 12 s for xclip-lsmdc",
    "ends early": "the film ends before the span does",
    "decoded in order": "decoded in order from the start, as AVI must be",
}
"""What problems mean, where their names do not say it."""

Row = Mapping[str, Any]


def probe_clips(
    manifest: Manifest,
    videos: Path,
    *,
    wanted: Wanted = EVERYTHING,
    workers: int | None = None,
    patience: float = PATIENCE,
    cache: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """What is found out about each clip's file, a row of `COLUMNS` at a time.

    What extraction would decode is decoded. ``error`` says why a clip cannot be used, ``problems``
    what is odd about one that can.
    """
    check_items(manifest)
    media = MediaFolder(videos.resolve())
    rows = wanted.rows(manifest)
    check_media(manifest, rows, videos)
    items = [manifest.items[row] for row in rows.tolist()]
    count = workers or default_workers()

    def look(decoder: Decoder, item: Item) -> dict[str, Any]:
        try:
            path = media.find(item)
        except VideoError as problem:
            return {"error": reason(str(problem), item, media.root)}
        answer = decoder.ask(question("examine", path, item, SAMPLINGS, cache))
        file = {"file": str(path.relative_to(media.root))}
        if "error" in answer:
            return file | {"error": reason(answer["error"], item, media.root)}
        found: dict[str, Any] = answer["examination"]
        return file | found

    decoders = Decoders(count, patience=patience).map(look, items, ahead=2 * count)
    with contextlib.closing(decoders) as looked:
        for item, found in progress(looked, "Probing", unit="clip", total=len(items)):
            told = {"id": item.id} | found
            yield {column: "" if told.get(column) is None else told[column] for column in COLUMNS}


def probe_table(rows: Sequence[Row]) -> str:
    """As CSV."""
    return format_table({column: [_cell(row[column]) for row in rows] for column in COLUMNS})


def describe_probe(rows: Sequence[Row], *, most: int = 20) -> str:
    """How many clips can be used, what is odd about some, and which cannot be used and why."""
    good = [row for row in rows if not row["error"]]
    lines = [f"{len(good):,} of {counted(len(rows), 'clip')} can be extracted"]
    if good:
        frames = sum(row["frames"] for row in good)
        decode = sum(row["decode_seconds"] for row in good)
        lines.append(
            f"{duration(sum(row['seconds'] for row in good))} of video, {frames:,} frames; "
            f"decoding what the backbones need takes {duration(decode)} on one core"
        )
    problems: dict[str, list[str]] = {}
    for row in good:
        for problem in row["problems"]:
            problems.setdefault(problem, []).append(row["id"])
    if problems:
        table = [
            [ODD.get(problem, problem), join_some(ids, 3), len(ids)]
            for problem, ids in problems.items()
        ]
        lines += ["", align(["what is odd, and does no harm", "such as", "clips"], table, left=2)]
    bad = [row for row in rows if row["error"]]
    if bad:
        table = [[row["id"], row["error"]] for row in bad[:most]]
        lines += ["", align(["cannot be extracted", "why"], table, left=2)]
        if len(bad) > most:
            lines.append(f"and {len(bad) - most:,} more (-o TABLE.csv names all)")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "|".join(value) if isinstance(value, list | tuple) else str(value)
