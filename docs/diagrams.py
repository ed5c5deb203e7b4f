"""Diagrams for explanations: they show no data, and no command draws them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from obygaze_features.common.figures import (
    INK,
    LINE,
    SERIES,
    SOFT,
    describe,
    figure_style,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILMS, CLIPS = 6, 5
PARTS = {"training": LINE, "validation": SERIES[3], "test": SERIES[0]}
ORDER = ("test", "validation", *4 * ["training"])
PROTOCOLS: dict[str, Callable[[int, int], str]] = {
    "folds that mix films": lambda _, clip: ORDER[clip],
    "leave-film-out": lambda film, _: ORDER[film],
}


def draw_protocols() -> Figure:
    """Draw the clips for training, validation and testing in one fit, by film."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    figure = Figure(figsize=(7, 2.5), layout="constrained")
    for axes, (title, part_of) in zip(figure.subplots(1, 2), PROTOCOLS.items(), strict=True):
        for film in range(FILMS):
            for clip in range(CLIPS):
                colour = PARTS[part_of(film, clip)]
                axes.add_patch(Rectangle((clip, -film), 0.9, 0.8, color=colour, linewidth=0))
        axes.spines["bottom"].set_visible(False)
        axes.set(xlim=(0, CLIPS), ylim=(0.2 - FILMS, 1), xticks=[], title=title)
        names = [f"film {film + 1}" for film in range(FILMS)]
        axes.set_yticks([0.4 - film for film in range(FILMS)], names)
    keys = [Patch(color=colour, label=name) for name, colour in PARTS.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))
    describe(figure, "One fit, by two protocols", "A square is a clip; a row is a film. "
             "Where folds mix films, each film is on both sides. leave-film-out tests one film "
             "whole, and trains on others.")  # fmt: skip
    return figure


def draw_concept_vector() -> Figure:
    """Draw clips with and without a concept, the border between them, and the vector."""
    from matplotlib.figure import Figure

    chance = np.random.default_rng(7)
    without, with_it = (chance.normal(centre, 0.75, (28, 2)) for centre in ((-1, -0.6), (1, 0.6)))
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*without.T, "o", color=SOFT, markerfacecolor="none", label="clips without Look")
    axes.plot(*with_it.T, "o", color=SERIES[1], label="clips with Look")
    vector = np.array((1.0, 0.6)) / np.hypot(1.0, 0.6)
    border = np.outer((-2.6, 2.6), (-vector[1], vector[0]))
    axes.plot(*border.T, "--", color=INK, linewidth=1)
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2}
    axes.annotate("", 1.6 * vector, (0, 0), arrowprops=arrow)
    axes.annotate("concept vector", 1.65 * vector, va="top", color=INK, weight="bold")
    axes.annotate("border", border[1], xytext=(6, -6), textcoords="offset points", color=INK)
    axes.spines["bottom"].set_visible(False)
    axes.set(xticks=[], yticks=[], xlim=(-3, 3.2), ylim=(-2.6, 2.6), aspect="equal")
    figure.legend(loc="outside lower center", ncols=2)
    describe(figure, "A concept vector", "Clips with Look on one side of a border, clips without "
             "on the other, some on the wrong side. The vector crosses the border.")  # fmt: skip
    return figure


def write_diagrams(folder: Path) -> None:
    """Write each diagram as an SVG file."""
    for name, draw in (("protocols", draw_protocols), ("concept-vectors", draw_concept_vector)):
        with figure_style():
            figure = draw()
        save_figure(figure, folder / f"{name}.svg", overwrite=True)
