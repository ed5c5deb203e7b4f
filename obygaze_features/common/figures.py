"""Draw figures in one style, and save them as SVG, PDF or PNG.

Figures are drawn in light colours on their own background. Text in an SVG stays text.
"""

from __future__ import annotations

import io
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.common.elan import clean
from obygaze_features.common.files import refuse_to_overwrite, require_suffix, write_bytes
from obygaze_features.common.package import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = {
    ".pdf": ("Subject", "CreationDate", "Creator", "Producer"),
    ".png": ("Description", "Software"),
    ".svg": ("Description", "Date", "Creator", "Format", "Type"),
}
"""The metadata key of a figure's description and the keys to leave out, by suffix."""
COLOURS = Path(__file__).with_name("colours.css").read_text(encoding="utf-8")
"""The light and dark colours as CSS properties (``--ink``, ``--l1``)."""
LIGHT: dict[str, str] = dict(re.findall(r"--(\w+): (#\w+)", COLOURS.partition("}")[0]))
"""The light colours by name."""
PAPER = LIGHT["paper"]
INK = LIGHT["ink"]
SOFT = LIGHT["soft"]
LINE = LIGHT["line"]
SERIES = tuple(LIGHT[f"s{number}"] for number in range(1, 7))
LEVELS = {"EN": "l1", "HN": "l3", "NS": "l4", "S": "l5"}
"""The names of the colours of ObyGaze12's levels."""
_STEPS = {1: "5", 2: "15", 3: "135", 4: "1345", 5: "12345"}
"""The indices of the ramp's colours, by the number of levels."""

_STYLE = Path(__file__).with_name("figures.mplstyle")


def figure_width(usual: float) -> float:
    """Return a figure's width in inches: the usual one, or that of your ``figure.figsize``.

    Examples
    --------
    >>> from matplotlib import rc_context
    >>> with rc_context({"figure.figsize": (6.3, 4)}):
    ...     print(figure_width(11))
    6.3
    """
    matplotlib = need("matplotlib", extra="report")
    size: tuple[float, float] = matplotlib.rcParams["figure.figsize"]
    if size == matplotlib.rcParamsDefault["figure.figsize"]:
        return usual
    return size[0]


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw in the project's style inside the ``with`` block."""
    need("matplotlib", extra="report")
    from matplotlib import font_manager, style

    # DejaVu Sans, which matplotlib includes, lacks Chinese, Japanese and Korean.
    wider = [name for name in font_manager.get_font_names() if name.startswith("Noto Sans CJK")]
    settings = {
        "font.sans-serif": ["DejaVu Sans", *sorted(wider)[:1]],
        "text.color": INK,
        "figure.facecolor": PAPER,
        "axes.edgecolor": LINE,
        "axes.labelcolor": SOFT,
        "xtick.color": SOFT,
        "ytick.color": INK,
        "grid.color": LINE,
    }
    with style.context([_STYLE, settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def level_colour_names(codes: Sequence[str]) -> list[str]:
    """Return the name of each level's colour in figures and pages; higher levels stand out more.

    A class of several of ObyGaze12's levels has the colour of its first level. In other schemes,
    colours repeat after six levels.
    """
    first = [code.partition("+")[0] for code in codes]
    if set(first) <= LEVELS.keys():
        return [LEVELS[code] for code in first]
    steps = _STEPS.get(len(codes), "123456")
    return [f"l{steps[number % len(steps)]}" for number in range(len(codes))]


def level_colours(codes: Sequence[str]) -> list[str]:
    """Return the colour of each level; see `level_colour_names`."""
    return [LIGHT[name] for name in level_colour_names(codes)]


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in points."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (0.59 * len(text) + 0.41 * wide)


def wrap(text: str, width: float, size: float, lines: int = 2) -> list[str]:
    """Wrap a text at `width`; if it needs more than `lines` lines, cut it with an ellipsis."""
    text = plain(text)
    letters = len(text) * width / (text_width(text, size) or 1)
    return textwrap.wrap(text, max(int(letters), 4), max_lines=lines, placeholder="…")


def describe(figure: Figure, title: str, *lines: str) -> None:
    """Add a title and a description for readers who cannot see the figure.

    The first line says what the figure shows, and the others say which value each mark has.
    """
    figure.set_label("\n".join(map(plain, (title, *lines))))


def plain(text: str) -> str:
    """Return a text on one line, without characters that XML does not allow."""
    return clean(" ".join(text.split()))


def save_figure(figure: Figure, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a figure as SVG, PDF or PNG, by the path's suffix; equal figures give equal files."""
    path = Path(path)
    require_suffix(path, *SUFFIXES)
    refuse_to_overwrite(path, overwrite=overwrite)
    suffix = path.suffix.lower()
    title, _, description = str(figure.get_label()).partition("\n")
    name, *unwanted = SUFFIXES[suffix]
    about = {"Title": title, name: description, **dict.fromkeys(unwanted)}

    content = io.BytesIO()
    with figure_style():
        figure.savefig(content, format=suffix[1:], metadata=about)
    data = content.getvalue()
    if suffix == ".svg":
        # Ids of clip paths depend on positions' last bits, which depend on Python's hash seed.
        clips = dict.fromkeys(re.findall(rb'<clipPath id="([^"]+)"', data))
        for number, clip in enumerate(clips):
            data = data.replace(clip, b"clip%d" % number)
        # Screen readers read this element, and not matplotlib's metadata.
        read_aloud = f"</title>\n<desc>{escape(description)}</desc>"
        data = data.replace(b"</title>", read_aloud.encode(), 1)
    write_bytes(path, data)
