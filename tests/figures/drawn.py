"""What a figure's file says: its texts, and the numbers of its marks."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[str]:
    """Every text of an SVG file, in order."""
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter(f"{SVG}text")]


def title(path: Path) -> str:
    """The title that is read aloud."""
    return ElementTree.parse(path).getroot().findtext(f"{SVG}title") or ""


def tips(path: Path) -> dict[str, str]:
    """Mark -> the number that is read aloud: "Look, mlp: 0.50 (0.40 to 0.60)"."""
    lines = (ElementTree.parse(path).getroot().findtext(f"{SVG}desc") or "").split("\n")[1:]
    return dict(line.rsplit(": ", 1) for line in lines)
