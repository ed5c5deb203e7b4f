"""Pictures of a page: films as strips of their clips, and a small picture of each clip."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from obygaze_features.errors import UsageError
from obygaze_features.page.html import Html, html

WIDTH, LANE, GAP = 1000, 12, 3
_JPEG = b"\xff\xd8\xff"


def draw_lanes(
    spans: Mapping[str, tuple[float, float]],
    lanes: Sequence[Mapping[str, str]],
    film: str = "",
    length: float = 0.0,
) -> Html:
    """Draw a film's clips in each lane's colours; clips of one colour that touch become one shape.

    Parameters
    ----------
    spans
        The start and end of each clip, in order.
    lanes
        The class of each clip's colour.
    film
        The film for scripts, with the length of the lanes.
    length
        The length of the lanes, so that films share a scale (default: the end of the last clip).
    """
    end = max(end for _, end in spans.values())
    last = max(length, end)
    paths = []
    for row, lane in enumerate(lanes):
        shapes: dict[str, list[tuple[float, float]]] = {}
        for clip, (start, end) in spans.items():
            colour = lane.get(clip)
            if not colour:
                continue
            boxes = shapes.setdefault(colour, [])
            if boxes and start <= boxes[-1][1] + 0.05:
                boxes[-1] = boxes[-1][0], end
            else:
                boxes.append((start, end))
        y = row * (LANE + GAP)
        for colour, boxes in shapes.items():
            outlines = []
            for start, stop in boxes:
                left, right = WIDTH * start / last, WIDTH * stop / last
                right = right if right > left + 1 else left + 1
                edge = f"{left:.0f}"
                outlines.append(f"M{edge} {y}H{right:.0f}v{LANE}H{edge}z")
            paths.append(html('<path class="{}" d="{}"/>', colour, "".join(outlines)))
    height = len(lanes) * (LANE + GAP)
    return html(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" style="height: {}px" '
        'aria-hidden="true" data-film="{}" data-last="{}"><path class="tested" d="M0 0H{}V{}H0z"/>'
        "{}</svg>",
        WIDTH, height, height, film, f"{last:g}", f"{WIDTH * end / last:.0f}", height - GAP,
        Html("".join(paths)),
    )  # fmt: skip


def read_thumbnails(folder: Path, ids: Iterable[str]) -> dict[str, str]:
    """Read ``ID.jpg`` of `folder` as base64 by clip; clips without a file are left out."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; make one with: obygaze features thumbnails")
    paths = {path.name: path for path in folder.iterdir() if path.suffix == ".jpg"}
    thumbnails = {}
    for clip in ids:
        if path := paths.get(f"{clip}.jpg"):
            content = path.read_bytes()
            if not content.startswith(_JPEG):
                raise UsageError(f"{path} is not a JPEG picture; create it again")
            thumbnails[clip] = base64.b64encode(content).decode("ascii")
    if not thumbnails:
        raise UsageError(f"{folder} has no picture of any clip of the page, such as ID.jpg")
    return thumbnails
