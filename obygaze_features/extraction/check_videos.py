"""A look into every file before GPU time is spent on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from obygaze_features.backbones import known_checkpoints
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.tables import align, format_rows
from obygaze_features.common.text import counted, format_duration, join_some
from obygaze_features.extraction.decoder import Decoder, ask_decoder, map_items
from obygaze_features.extraction.job import Options, check_items, check_media
from obygaze_features.items.media import MediaFolder
from obygaze_features.manifests import Item, Manifest
from obygaze_features.video.index import NO_PICTURES

SAMPLINGS = (Sampling(32), Sampling(12, rate=1))
"""Which frames the paper's three backbones take of a clip."""
COLUMNS = (
    "id", "file", "error", "problems", "container", "codec", "width", "height", "rotation",
    "frames", "fps", "seconds", "decode_seconds", "why_slow",
)  # fmt: skip
MAX_FAILURES_SHOWN = 20

EXPLANATIONS = {
    "short": "short: under 32 frames, or under 12 s for xclip-lsmdc",
    "ends early": "the film ends before the span does",
    "decoded in order": "decoded from the start of the file, as AVI must be",
    "no sound": "without a sound track, which backbones that hear need",
    "sound alone": "has sound alone: only backbones that hear extract it",
}

Row = Mapping[str, Any]


def check_videos(
    manifest: Manifest, videos: str | Path, **options: Any
) -> Iterator[dict[str, Any]]:
    """Decode what extraction would, and yield a row of `COLUMNS` for each clip.

    ``error`` says why a clip cannot be used; ``problems`` lists what is unusual but usable. The
    options are fields of `Options`.
    """
    settings, videos = Options(**options), Path(videos)
    check_items(manifest)
    media = MediaFolder(videos.resolve())
    rows = settings.select(manifest)
    check_media(manifest, rows, videos)
    items = [manifest.items[row] for row in rows.tolist()]
    hearing = next(known.sampling for known in known_checkpoints().values() if known.hears)

    def examine(decoder: Decoder, item: Item) -> dict[str, Any]:
        answer = ask_decoder(decoder, "examine", media, item, SAMPLINGS)
        if NO_PICTURES not in answer.get("error", ""):
            return answer
        heard = ask_decoder(decoder, "hear", media, item, [hearing])
        if "error" in heard:
            return answer
        rate, (first, last) = next(iter(heard["spans"].items()))
        alone = {"problems": ["sound alone"], "seconds": (last - first) / int(rate)}
        return {"file": heard["file"], "frames": 0, "decode_seconds": 0.0, **alone}

    for item, answer in map_items(examine, items, "Checking", settings):
        row = {"id": item.id, **answer}
        yield {column: "" if row.get(column) is None else row[column] for column in COLUMNS}


def format_checks(rows: Sequence[Row]) -> str:
    """The rows as CSV."""
    return format_rows(rows, COLUMNS, "{:.3f}".format)


def describe_checks(rows: Sequence[Row]) -> str:
    """How many clips can be used, what is unusual, and which clips cannot be used and why."""
    good = [row for row in rows if not row["error"]]
    lines = [f"{len(good):,} of {counted(len(rows), 'clip')} can be extracted"]
    if seen := [row for row in good if row["frames"]]:
        frames = sum(row["frames"] for row in seen)
        decode = sum(row["decode_seconds"] for row in seen)
        lines.append(
            f"{format_duration(sum(row['seconds'] for row in seen))} of video, {frames:,} frames; "
            f"decoding what the backbones need takes {format_duration(decode)} on one core"
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
