"""The colours of figures and pages, in light and in dark, told apart by the colour-blind.

Figures name their colours as CSS properties and fall back on the light ones, so that a page
that takes `theme_css` turns its figures dark with itself.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DARK", "INK", "LIGHT", "LINE", "PAPER", "PRINT", "SERIES", "SOFT", "theme_css"]

#: Each series is at least 4.5 : 1 against the paper, so that paper-coloured words on it are read.
LIGHT = {
    "paper": "#fbfaf7",
    "ink": "#1f2328",
    "soft": "#5d6570",
    "line": "#d9d6cd",
    "accent": "#0f5c63",
    "bad": "#8a2b0e",
    "s1": "#0072b2",
    "s2": "#ae4804",
    "s3": "#651555",
    "s4": "#6b725c",
    "s5": "#302097",
    "s6": "#393213",
}
DARK = {
    "paper": "#15181b",
    "ink": "#e6e4de",
    "soft": "#a1a7ae",
    "line": "#363b40",
    "accent": "#7cc7cd",
    "bad": "#ffb597",
    "s1": "#6cb6ea",
    "s2": "#ff9a5c",
    "s3": "#f0e6a8",
    "s4": "#86989c",
    "s5": "#8f69f7",
    "s6": "#f42f7e",
}
#: Only what differs from `LIGHT`.
PRINT = {"paper": "#ffffff", "ink": "#000000", "soft": "#444444", "line": "#bbbbbb"}


def _colour(name: str) -> str:
    return f"var(--{name}, {LIGHT[name]})"


PAPER, INK, SOFT, LINE = map(_colour, ("paper", "ink", "soft", "line"))
SERIES = tuple(_colour(f"s{number}") for number in range(1, 7))


def theme_css() -> str:
    """The colours as CSS properties of a page: light, dark where that is preferred, and print."""
    return (
        f":root {{ {_properties(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_properties(DARK)} }} }}\n"
        f"@media print {{ :root {{ {_properties(LIGHT | PRINT)} }} }}\n"
    )


def _properties(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
