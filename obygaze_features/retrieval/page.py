"""HTML pages that need nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from obygaze_features.common.figures import DARK, LIGHT
from obygaze_features.common.text import counted, format_time
from obygaze_features.errors import UsageError
from obygaze_features.store.nearest import Match

NOTE = "NOT-TO-BE-SHARED.txt"
"""In a folder of pictures of films: why they must not be shared."""
_JPEG = b"\xff\xd8\xff"
_STYLE = """
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, "Helvetica Neue", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
p, .soft { color: var(--soft); }
ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); gap: 1rem;
  padding: 0; list-style: none; }
li { border: 1px solid var(--line); border-radius: 6px; padding: .6rem; overflow-wrap: anywhere; }
img { display: block; width: 100%; margin-bottom: .4rem; border-radius: 3px; }
"""


def html_page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A page around a body of HTML; its policy allows no request, and only this script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    colours = (
        "; ".join(f"--{name}: {colour}" for name, colour in scheme.items())
        for scheme in (LIGHT, DARK)
    )
    light, dark = colours
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; script-src {scripts}; img-src data:; base-uri 'none'; "
        "form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)} – obygaze</title>\n"
        f"<style>\n:root {{ {light}; }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}{_STYLE}{style}</style>\n"
        f"</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n"
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


def matches_page(
    title: str, matches: Sequence[Match], thumbnails: Path | None = None, *, like: str | None = None
) -> str:
    """Matches in order, after the clip they are like, each with its picture if there is one."""
    if thumbnails is not None and not thumbnails.is_dir():
        raise UsageError(
            f"{thumbnails} is not a folder; make one with: obygaze features thumbnails"
        )
    cards = [_card(rank, match, thumbnails) for rank, match in enumerate(matches, start=1)]
    pictures = sum("<img" in card for card in cards)
    if like is not None:
        words = '<br><span class="soft">what was searched for</span>'
        cards.insert(0, f"<li>{_picture(like, thumbnails)}<b>{escape(like)}</b>{words}</li>\n")
    if thumbnails is not None and matches and not pictures:
        raise UsageError(f"{thumbnails} has no picture of any match, such as {matches[0].id}.jpg")
    text = (
        f"{counted(len(matches), 'match', 'matches')}, the nearest first; 1 is the same direction."
    )
    if pictures and thumbnails is not None and (thumbnails / NOTE).is_file():
        text += " " + (thumbnails / NOTE).read_text(encoding="utf-8").strip()
    return html_page(title, f"<p>{escape(text)}</p>\n<ol>\n{''.join(cards)}</ol>")


def _picture(clip: str, thumbnails: Path | None) -> str:
    if thumbnails is None or not (path := thumbnails / f"{clip}.jpg").is_file():
        return ""
    content = path.read_bytes()
    if not content.startswith(_JPEG):
        raise UsageError(f"{path} is not a JPEG picture; make it again")
    encoded = base64.b64encode(content).decode("ascii")
    return f'<img alt="" src="data:image/jpeg;base64,{encoded}">'


def _card(rank: int, match: Match, thumbnails: Path | None) -> str:
    moment = "" if match.time is None else f" at {format_time(match.time)}"
    film = f"{escape(match.film)} · " if match.film else ""
    return (
        f"<li>{_picture(match.id, thumbnails)}<b>{rank}. {escape(match.id)}</b>{moment}<br>"
        f'<span class="soft">{film}cosine {match.cosine:.4f}</span></li>\n'
    )
