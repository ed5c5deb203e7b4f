"""A figure as a file of its own, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_models.drawing.theme import DARK, LIGHT, PRINT

__all__ = ["write_svg"]

_COLOUR = re.compile(r"var\(--[a-z0-9]+, (#[0-9a-f]{6})\)")
_SIZE = re.compile(r'viewBox="0 0 (\d+) (\d+)" width="[\d.]+" height="[\d.]+"')
_MARGIN = 14
_FONT = 'font-family="system-ui, Helvetica Neue, Helvetica, Arial, sans-serif"'


def write_svg(path: Path, svg: str, *, overwrite: bool = False) -> None:
    """Write a figure as a file: light, dark where that is preferred, and on white in print.

    Colours are written out as plain ones, which any program reads, and changed by a style.
    """
    refuse_to_overwrite(path, overwrite=overwrite)
    plain = _SIZE.sub(_with_margin, _COLOUR.sub(r"\1", svg), count=1)
    plain = plain.replace("<svg ", f"<svg {_FONT} ", 1)
    style = (
        f"<style>svg.figure {{ background: {LIGHT['paper']}; }}\n"
        f"@media (prefers-color-scheme: dark) {{ {_changed(DARK)} }}\n"
        f"@media print {{ {_changed(LIGHT | PRINT)} }}</style>"
    )
    whole = plain.replace("<g ", f"{style}<g ", 1)
    write_text(path, f'<?xml version="1.0" encoding="UTF-8"?>\n{whole}\n')


def _with_margin(size: re.Match[str]) -> str:
    width, height = (int(part) + 2 * _MARGIN for part in size.groups())
    return f'viewBox="{-_MARGIN} {-_MARGIN} {width} {height}" width="{width}" height="{height}"'


def _changed(colours: Mapping[str, str]) -> str:
    """Rules that put the given colours where the light ones are written."""
    rules = [f"svg.figure {{ background: {colours['paper']}; }}"]
    for name, light in LIGHT.items():
        rules.append(f'[fill="{light}"] {{ fill: {colours[name]}; }}')
        rules.append(f'[stroke="{light}"] {{ stroke: {colours[name]}; }}')
    return " ".join(rules)
