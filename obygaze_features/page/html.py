"""Build self-contained pages from text, numbers, film strips and thumbnails; escape all data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from obygaze_features.common.figures import COLOURS
from obygaze_features.common.files import require_plain_file
from obygaze_features.common.text import format_number
from obygaze_features.errors import UsageError

_HERE = Path(__file__).parent
WIDTH, LANE, GAP = 1000, 12, 3
NOTE = "NOT-TO-BE-SHARED.txt"
"""The file, in a folder of pictures from films, that says why the pictures must not be shared."""
MAX_PICTURE_BYTES = 1_000_000
"""The maximum size of a thumbnail."""


class Html(str):
    """A string that is already HTML, so templates insert it unchanged."""

    def __html__(self) -> str:
        return str(self)


def html(template: str, /, *parts: object, **named: object) -> Html:
    """Fill in a template, escaping parts that are not `Html`.

    Examples
    --------
    >>> html("<b>{}</b>", "a < b")
    '<b>a &lt; b</b>'
    """
    escaped = {name: _escaped(part) for name, part in named.items()}
    return Html(template.format(*map(_escaped, parts), **escaped))


def document(title: str, body: Html, *, style: str = "", script: str = "") -> Html:
    """Return a page with `body`, which may contain JSON in script elements.

    The page's security policy allows no network requests, and no scripts except `script`.

    Parameters
    ----------
    title
        The title in the browser's tab.
    style
        CSS to add after the style sheet of all pages.
    script
        A script to run at the end of the page.
    """
    allowed = ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed = f"script-src 'sha256-{digest}'; "
        script = f"<script>{script}</script>\n"
    return html(
        (_HERE / "document.html").read_text(encoding="utf-8"),
        allowed=Html(allowed),
        title=title,
        style=Html(COLOURS + (_HERE / "style.css").read_text(encoding="utf-8") + style),
        body=body,
        script=Html(script),
    )


def script_json(value: Any) -> Html:
    """Return a value as JSON that cannot end its script element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, rf"\u{ord(sign):04x}")
    return Html(text)


def joined(parts: list[Html]) -> Html:
    """Join parts with commas."""
    return Html(", ".join(parts))


def number(value: float | None, *, form: str = "") -> Html:
    """Return a number formatted for people, with its full value for programs.

    Parameters
    ----------
    value
        The number; None becomes a dash, never a zero.
    form
        ``"+"`` for a difference with its sign, ``"%"`` for a share, ``","`` for a count.
    """
    if value is None:
        return Html('<abbr title="undefined">–</abbr>')
    text = format_number(value, percent=form == "%", signed=form == "+")
    if form == ",":
        text = format(value, ",.0f")
    return html('<data value="{}">{}</data>', format(value, ".7g"), text)


def draw_lanes(
    spans: Mapping[str, tuple[float, float]],
    lanes: Sequence[Mapping[str, str]],
    film: str,
    length: float,
) -> Html:
    """Draw a film's clips as coloured lanes; touching clips of the same colour become one shape.

    Parameters
    ----------
    spans
        The start and end of each clip, in order.
    lanes
        For each lane, the CSS class of each clip's colour.
    film
        The id of the film, for scripts.
    length
        The least length of the lanes, so that films have the same scale.
    """
    end = max(end for _, end in spans.values())
    last = max(length, end)
    scale = WIDTH / last
    paths = ""
    for row, lane in enumerate(lanes):
        shapes: dict[str, list[tuple[float, float]]] = {}
        for clip, (start, stop) in spans.items():
            if not lane.get(clip):
                continue
            boxes = shapes.setdefault(lane[clip], [])
            if boxes and start <= boxes[-1][1] + 0.05:
                start = boxes.pop()[0]
            boxes.append((start, stop))

        y = row * (LANE + GAP)
        for colour, boxes in shapes.items():
            outlines = ""
            for start, stop in boxes:
                left = round(scale * start)
                right = round(max(scale * stop, scale * start + 1))
                outlines += f"M{left} {y}H{right}v{LANE}H{left}z"
            paths += html('<path class="{}" d="{}"/>', colour, outlines)

    height = len(lanes) * (LANE + GAP)
    return html(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" style="height: {}px" '
        'aria-hidden="true" data-film="{}" data-last="{}"><path class="tested" d="M0 0H{}V{}H0z"/>'
        "{}</svg>",
        WIDTH, height, height, film, format(last, "g"), round(scale * end), height - GAP,
        Html(paths),
    )  # fmt: skip


def read_thumbnails(folder: Path, ids: Iterable[str]) -> dict[str, str]:
    """Return a folder's pictures ``ID.jpg`` as base64 by id; ids without a picture are left out."""
    thumbnails = {}
    for clip in ids:
        path = folder / f"{clip}.jpg"
        require_plain_file(path, UsageError)
        if not path.exists():
            continue
        content = b""
        if path.stat().st_size <= MAX_PICTURE_BYTES:
            content = path.read_bytes()
        if not content.startswith(b"\xff\xd8\xff"):
            raise UsageError(f"{path} is not a JPEG picture of at most 1 MB; make it again")
        thumbnails[clip] = base64.b64encode(content).decode()
    if not thumbnails:
        raise UsageError(f"{folder} has no picture (ID.jpg) of any clip on the page")
    return thumbnails


def _escaped(part: object) -> str:
    if isinstance(part, Html):
        return part
    return escape(str(part))
