"""A map: all clips of a store in two dimensions, where near clips are alike."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.figures import (
    SERIES,
    SOFT,
    check_figure_path,
    describe,
    figure_style,
    inline_svg,
    level_colours,
    plain,
    save_figure,
)
from obygaze_features.common.files import refuse_to_overwrite, write_text
from obygaze_features.common.package import need
from obygaze_features.common.text import counted, join_some, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.manifests import Manifest
from obygaze_features.page.html import Html, document, html
from obygaze_features.store import Store
from obygaze_features.store.nearest import has_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("pca", "umap")
MARKERS = "o^sDvP"
"""The marks of groups: six colours of each."""
UNLABELLED, OTHERS = "no label", "others"
MAX_GROUPS = len(SERIES) * len(MARKERS) - 1
"""So many of a column's cells have a mark of their own, the commonest."""


@dataclass(frozen=True, eq=False)
class ClipMap:
    """Clips in two dimensions: `points` is [N, 2]; `groups` and `colours` are the legend's."""

    store: str
    axes: str
    ids: list[str]
    points: NDArray[np.float64]
    groups: dict[str, list[int]]
    """Group -> its rows."""
    colours: dict[str, str]


def write_map(
    store: Store, output: Path | str, *, overwrite: bool = False, **options: Any
) -> ClipMap:
    """Write `map_clips` as a figure (.png, .svg, .pdf), or as an .html page with ids on hover."""
    output = Path(output)
    if output.suffix == ".html":
        refuse_to_overwrite(output, overwrite=overwrite)
    else:
        check_figure_path(output, overwrite=overwrite)
    clip_map = map_clips(store, **options)
    figure = draw_map(clip_map)
    if output.suffix != ".html":
        save_figure(figure, output, overwrite=overwrite)
        return clip_map
    marks = ((group, row) for group, rows in clip_map.groups.items() for row in rows)
    titles = (f"<title>{escape(f'{clip_map.ids[row]} ({group})')}</title>" for group, row in marks)
    # The marks come first, then those of the legend.

    def name_mark(use: re.Match[str]) -> str:
        return f"{use[1]}>{next(titles, '')}</use>"

    svg = re.sub("(<use [^>]*)/>", name_mark, inline_svg(figure))
    title = f"Map of {clip_map.store}"
    body = html("<main>\n<h1>{}</h1>\n{}\n</main>", title, Html(svg))
    write_text(output, document(title, body))
    return clip_map


def map_clips(
    store: Store,
    *,
    color: str = "film",
    manifest: Manifest | None = None,
    method: str = "pca",
    array: str = "native",
) -> ClipMap:
    """Place the clips of a store that are done in two dimensions, by the cosine of their vectors.

    `color` is ``film``, or with a manifest ``level``, a concept, or a column of its items, such as
    ``media``; `method` is ``pca``, or ``umap`` where umap-learn is installed; `array` has one
    vector per clip.
    """
    if has_frames(store, array):
        raise UsageError(
            f"{store.where}: a map needs one vector per clip; {array} has one per frame"
        )
    vectors = store.read(array, missing="drop").astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    if usable.sum() < 3:
        raise UsageError(f"{store.where}: a map needs 3 clips (got {usable.sum()} that are done)")
    ids = np.array(store.done_ids())[usable].tolist()
    group_of, colours = _find_groups(store, ids, color, manifest)
    groups: dict[str, list[int]] = {group: [] for group in colours}
    for row, group in enumerate(group_of):
        groups[group].append(row)
    groups = {group: rows for group, rows in groups.items() if rows}
    points, axes = _project(vectors[usable] / lengths[usable, None], method)
    return ClipMap(store.where, axes, ids, points, groups, colours)


def draw_map(clip_map: ClipMap) -> Figure:
    """Draw a map; the marks are in the order of the groups."""
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 6.5), layout="constrained")
        axes = figure.add_subplot(xticks=[], yticks=[])
        for number, (group, rows) in enumerate(clip_map.groups.items()):
            axes.scatter(
                clip_map.points[rows, 0],
                clip_map.points[rows, 1],
                s=16,
                color=clip_map.colours[group],
                marker=MARKERS[number // len(SERIES) % len(MARKERS)],
                linewidths=0,
                alpha=0.85,
                label=plain(f"{group} ({len(rows):,})"),
            )
        figure.legend(loc="outside right upper", markerscale=1.5)
        text = f"{counted(len(clip_map.ids), 'clip')}; {clip_map.axes}"
        figure.supxlabel(plain(text), x=0.01, ha="left", fontsize=8, color=SOFT)
    describe(figure, f"Map of {clip_map.store}", f"{text}; {join_some(list(clip_map.groups))}")
    return figure


def _find_groups(
    store: Store, ids: Sequence[str], color: str, manifest: Manifest | None
) -> tuple[list[str], dict[str, str]]:
    """The group of each clip, and the colour of each group."""
    items = store.items if manifest is None or color == "film" else manifest.items
    columns = items.columns
    if color in columns:
        cell_of = dict(zip(items.ids, columns[color], strict=True))
        cells = [cell_of.get(item_id) or f"no {color}" for item_id in ids]
        common = {cell for cell, _ in Counter(cells).most_common(MAX_GROUPS)}
        cells = [cell if cell in common else OTHERS for cell in cells]
        names = list(dict.fromkeys(cells))
        return cells, dict(zip(names, itertools.cycle(SERIES), strict=False))
    if manifest is None:
        raise UsageError(f"to color by {color}, give the manifest that has it: --manifest")
    labels, scheme = manifest.labels(), manifest.label_scheme()
    if color == "level":
        group_of = {item_id: scheme.name_of[code] for item_id, code in labels.level_of.items()}
        names = [level.name for level in scheme.levels]
        colours = dict(zip(names, level_colours(scheme.codes), strict=True))
    else:
        if not scheme.has_concept(color):
            known = [*columns, "level", *scheme.concept_names]
            raise UsageError(unknown_name("column or concept", color, known))
        concept = scheme.concept(color)
        names = [concept, f"without {concept}"]
        colours = dict(zip(names, SERIES[1::-1], strict=True))
        group_of = {id_: names[concept not in marks] for id_, marks in labels.concepts_of.items()}
    return [group_of.get(item_id, UNLABELLED) for item_id in ids], {**colours, UNLABELLED: SOFT}


def _project(vectors: NDArray[np.float32], method: str) -> tuple[NDArray[np.float64], str]:
    """Vectors in two dimensions, and what the axes are."""
    if method == "pca":
        sklearn: Any = need("sklearn.decomposition", extra="report")
        pca = sklearn.PCA(2, random_state=0)
        points = pca.fit_transform(vectors)
        first, second = pca.explained_variance_ratio_
        return points, f"two principal components, {first:.0%} and {second:.0%} of the variance"
    if method != "umap":
        raise UsageError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    umap: Any = need("umap", extra="umap")
    near = min(15, len(vectors) - 1)
    points = umap.UMAP(n_neighbors=near, metric="cosine", random_state=0, n_jobs=1).fit_transform(
        vectors
    )
    return points.astype(np.float64), "UMAP by cosine; distances between far clips mean little"
