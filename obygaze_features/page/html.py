"""Build self-contained pages from text, numbers, film strips and thumbnails; escape all data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from obygaze_features.common.figures import COLOURS
from obygaze_features.common.files import require_plain_file
from obygaze_features.common.text import format_number
from obygaze_features.errors import UsageError

_STYLE = files("obygaze_features.page") / "style.css"
NOTE = "NOT-TO-BE-SHARED.txt"
"""The file, in a folder of pictures from films, that says why the pictures must not be shared."""
MAX_PICTURE_BYTES = 1_000_000
"""The maximum size of a thumbnail."""
_JPEG = b"\xff\xd8\xff"


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


def document(
    title: str, body: Html, *, style: str = "", script: str = "", plays_videos: bool = False
) -> Html:
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
    plays_videos
        Allow videos from this computer.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    media = "media-src file:; " if plays_videos else ""
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    return html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="{}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<title>{} – obygaze</title>\n<style>\n{}</style>\n</head>\n"
        "<body>\n{}\n{}</body>\n</html>\n",
        Html(
            f"default-src 'none'; style-src 'unsafe-inline'; {allowed}{media}img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        title,
        Html(COLOURS + _STYLE.read_text(encoding="utf-8") + style),
        body,
        Html(f"<script>{script}</script>\n" if script else ""),
    )


def script_json(value: Any) -> Html:
    """Return a value as JSON that cannot end its script element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


def number(value: float | None, *, form: str = "") -> Html:
    """Return a number formatted for people, with its full value for programs.

    Parameters
    ----------
    value
        The number; None becomes a dash, never a zero.
    form
        ``"+"`` for a difference with its sign, ``"%"`` for a share (or both), ``","`` for a count.
    """
    if value is None:
        return Html('<abbr title="undefined">–</abbr>')
    text = format_number(value, percent="%" in form, signed="+" in form)
    if form == ",":
        text = f"{value:,.0f}"
    return html('<data value="{}">{}</data>', f"{value:.7g}", text)


def read_thumbnails(folder: Path, ids: Iterable[str]) -> dict[str, str]:
    """Return a folder's pictures ``ID.jpg`` as base64 by id; ids without a picture are left out."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; make one with: obygaze features thumbnails")
    names = {path.name for path in folder.iterdir()}
    thumbnails = {}
    for clip in ids:
        name = f"{clip}.jpg"
        if name not in names:
            continue
        path = folder / name
        require_plain_file(path, UsageError)
        with path.open("rb") as file:
            content = file.read(MAX_PICTURE_BYTES + 1)
        if len(content) > MAX_PICTURE_BYTES or not content.startswith(_JPEG):
            raise UsageError(f"{path} is not a JPEG picture of at most 1 MB; make it again")
        thumbnails[clip] = base64.b64encode(content).decode("ascii")
    if not thumbnails:
        raise UsageError(f"{folder} has no picture (ID.jpg) of any clip on the page")
    return thumbnails


def _escaped(part: object) -> str:
    if isinstance(part, Html):
        return part
    return escape(str(part))
