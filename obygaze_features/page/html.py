"""Build self-contained pages from text, numbers and thumbnails; escape all data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from obygaze_features.common.figures import COLOURS
from obygaze_features.common.files import require_plain_file
from obygaze_features.common.formatting import format_number
from obygaze_features.errors import UsageError

_HERE = Path(__file__).parent
NOTE = "NOT-TO-BE-SHARED.txt"
"""The file, in a folder of pictures from films, that says why the pictures must not be shared."""
MAX_PICTURE_BYTES = 1_000_000
"""The maximum size of a thumbnail."""
FORMS = {"": ".2f", "+": "+.2f", "%": ".0%", "+%": "+.0%", ",": ",.0f"}
"""The forms of numbers on pages: a decimal and a share, each also as a difference, and a count."""


class Html(str):
    """A string that is already HTML, so templates insert it unchanged."""

    def __html__(self) -> str:
        return str(self)


def html(template: str, /, *values: object, **named: object) -> Html:
    """Fill in a template, escaping parts that are not `Html`.

    Examples
    --------
    >>> html("<b>{}</b>", "a < b")
    '<b>a &lt; b</b>'
    """
    escaped = {name: _escaped(part) for name, part in named.items()}
    return Html(template.format(*map(_escaped, values), **escaped))


def document(
    title: str,
    body: Html,
    *,
    script: str,
    plays_videos: bool = False,
) -> Html:
    """Return a page with `body`, which may contain JSON in script elements.

    The page's security policy allows no network requests, and no scripts except `script`.

    Parameters
    ----------
    title
        The title in the browser's tab.
    script
        A script to run at the end of the page.
    plays_videos
        Allow videos from this computer.
    """
    allowed = "media-src file:; " if plays_videos else ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed += f"script-src 'sha256-{digest}'; "
        script = f"<script>{script}</script>\n"
    return html(
        (_HERE / "document.html").read_text(encoding="utf-8"),
        allowed=Html(allowed),
        title=title,
        style=Html(COLOURS + (_HERE / "style.css").read_text(encoding="utf-8")),
        body=body,
        script=Html(script),
    )


def script_json(value: Any) -> Html:
    """Return a value as JSON that cannot end its script element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, rf"\u{ord(sign):04x}")
    return Html(text)


def number(value: float | None, *, form: str = "") -> Html:
    """Return a number formatted for people, with seven digits for programs.

    Parameters
    ----------
    value
        The number; None becomes a dash, never a zero.
    form
        One of `FORMS`.
    """
    if value is None:
        return Html('<abbr title="undefined">–</abbr>')
    text = format_number(value, FORMS[form])
    return html('<data value="{}">{}</data>', f"{value:.7g}", text)


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
            raise UsageError(
                f"{path} is not a JPEG picture of at most 1 MB. Delete it, and run features "
                "thumbnails again"
            )
        thumbnails[clip] = base64.b64encode(content).decode()
    if not thumbnails:
        raise UsageError(
            f"{folder} has no picture (ID.jpg) of these clips; run: obygaze features thumbnails"
        )
    return thumbnails


def _escaped(part: object) -> str:
    if isinstance(part, Html):
        return part
    return escape(str(part))
