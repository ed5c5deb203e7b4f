"""The paper's figure 2 for any label set: levels, and concepts within levels."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.files import refuse_to_overwrite, write_bytes
from obygaze_features.common.package import need
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError
from obygaze_features.manifests.statistics import Statistics

__all__ = ["draw"]

FORMATS = (".pdf", ".png", ".svg")
#: From light to dark, and told apart in grey and by the colour-blind.
COLOURS = ("#d9dde3", "#9fc3d9", "#e8a04c", "#8f2d4f", "#3b3b58", "#5f8a5f", "#b8a9c9", "#404040")


def draw(
    found: Statistics,
    path: Path,
    titles: Mapping[str, str],
    *,
    by_film: bool = False,
    overwrite: bool = False,
) -> None:
    """Draw the figures of a label set into a PNG, PDF or SVG file."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: a figure is one of {', '.join(FORMATS)}")
    refuse_to_overwrite(path, overwrite=overwrite)
    need("matplotlib", extra="report")
    from matplotlib.figure import Figure

    tall = 1.6 + 0.34 * len(found.films) if by_film else 0.0
    heights = [4.4, tall] if by_film else [4.4]
    figure = Figure(figsize=(10, sum(heights)), layout="constrained", dpi=150)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights, width_ratios=[1, 1.7])
    _levels(figure.add_subplot(grid[0, 0]), found)
    _concepts(figure.add_subplot(grid[0, 1]), found)
    if by_film:
        _films(figure.add_subplot(grid[1, :]), found, titles)
    figure.suptitle(
        f"{found.manifest}, labels “{found.labels}”: "
        f"{counted(found.all.total, 'clip')} of {counted(len(found.films), 'film')}",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    kind = path.suffix.lower()[1:]
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_bytes(path, picture.getvalue())


def _levels(axes: Any, found: Statistics) -> None:
    names = [level.name for level in found.scheme.levels]
    shares = [100 * found.all.share(code) for code in found.scheme.codes]
    bars = axes.barh(names, shares, color=_colours(found), edgecolor="#333333", linewidth=0.6)
    axes.bar_label(
        bars,
        [
            f"{share:.1f}%\n{found.all.concepts_per_item(code):.2f} concepts"
            for share, code in zip(shares, found.scheme.codes, strict=True)
        ],
        padding=4,
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    axes.set_xlim(0, max([*shares, 1]) * 1.42)
    axes.invert_yaxis()
    axes.set_title("Share of each level, and concepts a clip", fontsize=10, loc="left")
    _quiet(axes, "% of clips")


def _concepts(axes: Any, found: Statistics) -> None:
    codes = [c for c in found.scheme.codes if any(found.all.concepts[c].values())]
    height = 0.8 / max(len(codes), 1)
    colours = dict(zip(found.scheme.codes, _colours(found), strict=True))
    names = {level.code: level.name for level in found.scheme.levels}
    for number, code in enumerate(codes):
        axes.barh(
            [row + (number - (len(codes) - 1) / 2) * height for row in range(len(found.concepts))],
            [100 * found.all.concept_rate(code, name) for name in found.concepts],
            height=height,
            color=colours[code],
            edgecolor="#333333",
            linewidth=0.4,
            label=names[code],
        )
    axes.set_yticks(range(len(found.concepts)), found.concepts)
    axes.invert_yaxis()
    axes.set_title("Clips of a level that have each concept", fontsize=10, loc="left")
    if codes:
        axes.legend(
            frameon=False, fontsize=8, ncols=len(codes), loc="upper right", bbox_to_anchor=(1, -0.1)
        )
    _quiet(axes, "% of the level's clips")


def _films(axes: Any, found: Statistics, titles: Mapping[str, str]) -> None:
    labels = [f"{titles.get(film, film)} · {c.total}" for film, c in found.films.items()]
    left = [0.0] * len(labels)
    for level, colour in zip(found.scheme.levels, _colours(found), strict=True):
        shares = [100 * counts.share(level.code) for counts in found.films.values()]
        axes.barh(labels, shares, left=left, color=colour, edgecolor="white", label=level.name)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_title("Levels in each film · clips", fontsize=10, loc="left", pad=22)
    axes.legend(
        frameon=False,
        fontsize=8,
        ncols=len(found.scheme.levels),
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        borderaxespad=0.1,
    )
    _quiet(axes, "% of the film's clips")


def _colours(found: Statistics) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(len(found.scheme.codes))]


def _quiet(axes: Any, label: str) -> None:
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(labelsize=8, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
