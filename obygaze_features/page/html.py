"""A self-contained page, its text and numbers; all data is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any

from obygaze_features.common.figures import css_colours
from obygaze_features.common.text import format_number

_STYLE = files("obygaze_features.page") / "style.css"


class Html(str):
    """Text that is already HTML; templates insert it unchanged."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def html(template: str, /, *parts: object, **named: object) -> Html:
    """Fill a template; escape parts that are not `Html`.

    Examples
    --------
    >>> html("<b>{}</b>", "a < b")
    '<b>a &lt; b</b>'
    """
    escaped = {name: _escaped(part) for name, part in named.items()}
    return Html(template.format(*map(_escaped, parts), **escaped))


def document(title: str, body: Html, *, style: str = "", script: str = "") -> Html:
    """Return a page around `body`, which may hold JSON in script elements.

    Its policy allows no request, and no script except `script`.

    Parameters
    ----------
    title
        The title of the browser's tab.
    style
        CSS after the style of all pages.
    script
        One script, at the end of the page.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    return html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="{}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<title>{} – obygaze</title>\n<style>\n{}</style>\n</head>\n"
        "<body>\n{}\n{}</body>\n</html>\n",
        Html(
            f"default-src 'none'; style-src 'unsafe-inline'; {allowed}img-src data:; "
            "media-src file:; base-uri 'none'; form-action 'none'"
        ),
        title,
        Html(css_colours() + _STYLE.read_text(encoding="utf-8") + style),
        body,
        Html(f"<script>{script}</script>\n" if script else ""),
    )


def script_json(value: Any) -> Html:
    """Return JSON that can neither end its script element nor begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


def joined(parts: list[Html]) -> Html:
    """Join parts."""
    return Html(", ".join(parts))


def number(value: float | None, *, form: str = "") -> Html:
    """Return a number as people read it, with its full value for programs.

    Parameters
    ----------
    value
        None becomes a dash, never a zero.
    form
        ``"+"`` prints the sign of a difference too, ``"%"`` a share, ``","`` a count.
    """
    if value is None:
        return Html('<abbr title="undefined">–</abbr>')
    text = format_number(value, percent=form == "%", signed=form == "+")
    if form == ",":
        text = f"{value:,.0f}"
    return html('<data value="{}">{}</data>', f"{value:.7g}", text)


def _escaped(part: object) -> str:
    return part if isinstance(part, Html) else escape(str(part))
