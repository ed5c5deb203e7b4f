"""Map all clips of a store in two dimensions, so that similar clips are close together."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.figures import (
    LIGHT,
    SERIES,
    SOFT,
    caption,
    check_figure_path,
    describe,
    figure_style,
    figure_width,
    has_figure_format,
    plain,
    save_figure,
    text_width,
    wrap,
)
from obygaze_features.common.files import new_file, refuse_to_overwrite
from obygaze_features.common.package import need
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.items.films import find_film
from obygaze_features.manifests import Manifest
from obygaze_features.page.html import Html, document, script_json
from obygaze_features.retrieval.clips import Clips, describe_clips, fill, link_to, page_part
from obygaze_features.store import Status, Store
from obygaze_features.store.nearest import has_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("pca", "umap")
MARKERS = "o^sDvP"
"""The marker shapes for groups; each comes in six colours."""
UNLABELLED, OTHERS, OTHER_FILMS = "no label", "others", "other films"
MAX_GROUPS = len(SERIES) * len(MARKERS) - 1
"""The maximum number of a column's values that get their own marks, the most common first."""
UMAP_AXES = "UMAP places similar clips near each other; long distances between clips mean little."
PIECE = 4096
"""The number of clips whose data is converted to JSON at a time."""
_DATA = Html("<!-- data -->")
"""The placeholder for the clips' data in a page."""
MAX_CIRCLES = 5000
"""The maximum number of clips that a page draws as elements; for more, it uses a canvas."""


@dataclass(frozen=True, eq=False)
class ClipMap:
    """Clips in two dimensions: `points` is [N, 2], and `axes` explains the axes in a sentence.

    `colours` has the name of each group's colour. With a `film`, clips of other films are grey.
    """

    clips: Clips
    title: str
    axes: str
    ids: list[str]
    points: NDArray[np.float64]
    groups: dict[str, array[int]]
    """The rows of each group."""
    colours: dict[str, str]
    legends: dict[str, dict[str, array[int]]]
    """The rows of each name, by kind: ``film``, ``level``, ``concept`` or the value of `color`."""
    color: str
    film: str


def write_map(
    store: Store,
    output: Path | str,
    *,
    report: Path | str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> ClipMap:
    """Write the map from `map_clips` as a figure (.png, .svg, .pdf) or an interactive .html page.

    With a `report`, the details of a clip on the page link to the clip in the report.
    """
    output = Path(output)
    is_page = output.suffix == ".html"
    if is_page and has_figure_format():
        raise UsageError(f"{output}: --width and --ground are only for figures; leave them out")
    (refuse_to_overwrite if is_page else check_figure_path)(output, overwrite=overwrite)
    clip_map = map_clips(store, **options, link=link_to(report, output))
    if is_page:
        with (
            new_file(output, overwrite=overwrite) as unfinished,
            unfinished.open("w", encoding="utf-8", newline="\n") as page,
        ):
            page.writelines(map_page(clip_map))
    else:
        save_figure(draw_map(clip_map), output, overwrite=overwrite)
    return clip_map


def map_clips(
    store: Store,
    *,
    color: str | None = None,
    film: Collection[str] | str = (),
    manifest: Manifest | None = None,
    labels: str | None = None,
    method: str = "pca",
    array: str = "native",
    link: str = "",
) -> ClipMap:
    """Map the finished clips of a store to two dimensions, by the cosine of their vectors.

    Parameters
    ----------
    store
        The store to map.
    color
        The meaning of colours: ``film``; or, with a manifest, ``level`` (the default if the
        manifest has labels), a concept, or a column of the items, such as ``media``.
    film
        The id or title of a film to highlight; clips of other films are grey.
    manifest, labels
        The manifest of the clips, and one of its label sets.
    method
        ``pca``, or ``umap`` if umap-learn is installed.
    array
        An array with one vector per clip.
    link
        The address of clips in a report, from `link_to`.
    """
    if has_frames(store, array):
        raise UsageError(
            f"{store.where}: {array} is per frame; map an array with one vector per clip"
        )
    ids, points, axes = _project(store, array, method)
    clips = describe_clips([store], manifest, labels, link)
    color = color or ("level" if clips.levels else "film")
    cells, colours = _find_groups(clips, ids, color, labels)
    groups = _rows_by(([cell] for cell in cells), colours)
    legends = {
        "film": _rows_by([clips.film(clip)] for clip in ids),
        "level": _rows_by(([clips.level(clip)[0]] for clip in ids), dict(clips.levels.values())),
        "concept": _rows_by(clips.concepts_of.get(clip, ()) for clip in ids),
    } | ({} if color == "film" else {color: groups})
    with_vectors = "" if len(ids) == len(store) else f"{len(ids):,} of "
    of_films = f" of {counted(len(legends['film']), 'film')}" if legends["film"] else ""
    title = f"Map of {with_vectors}{counted(len(store), 'clip')}{of_films}"
    titles = {clips.item(clip).film: clips.film(clip) for clip in ids}
    lit = titles[find_film(film, titles)] if film else ""
    done = int((store.status == Status.DONE).sum())
    counts = {"no vector": len(store) - done, "a vector of zeros": done - len(ids)}
    for reason, left_out in counts.items():
        axes += f" Left out: {counted(left_out, 'clip')} with {reason}." if left_out else ""
    return ClipMap(clips, title, axes, ids, points, groups, colours, legends, color, lit)


def draw_map(clip_map: ClipMap) -> Figure:
    """Draw a map as a figure, with marks in the order of groups and grey for other films."""
    lit = {*clip_map.legends["film"].get(clip_map.film, range(len(clip_map.ids)))}
    groups = {group: [*lit.intersection(rows)] for group, rows in clip_map.groups.items()}
    groups[OTHER_FILMS] = [*lit.symmetric_difference(range(len(clip_map.ids)))]
    groups = {group: rows for group, rows in groups.items() if rows}
    with figure_style():
        from matplotlib.figure import Figure

        names = [plain(f"{group} ({len(rows):,})") for group, rows in groups.items()]
        width = figure_width(9)
        columns = max(1, int(72 * width / (40 + max(text_width(name, 9) for name in names))))
        height = 0.66 * width + 1 + 0.2 * len(names) / columns
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot(xticks=[], yticks=[])
        for number, (group, rows) in enumerate(groups.items()):
            colour = clip_map.colours.get(group, "line")
            axes.scatter(
                clip_map.points[rows, 0],
                clip_map.points[rows, 1],
                s=16,
                color=LIGHT[colour],
                marker=MARKERS[number // len(SERIES) % len(MARKERS)],
                edgecolors=SOFT,
                linewidths=0.2,
                alpha=0.85,
                zorder=1 + (colour not in ("soft", "line")),
                label=names[number],
            )
        figure.legend(loc="outside lower left", markerscale=1.5, ncols=columns)
        title = clip_map.title + (f": {clip_map.film}" if clip_map.film else "")
        caption(figure, title)
        about = "\n".join(wrap(clip_map.axes, 72 * width - 20, 9, 4))
        axes.set_title(about, loc="left", fontsize=9, color=SOFT)
    describe(figure, title, clip_map.axes)
    return figure


def map_page(clip_map: ClipMap) -> Iterator[str]:
    """Yield the pieces of a page with legends that highlight groups, and details of each clip."""
    groups = clip_map.groups
    # With more groups, colours could not be distinguished, so all clips get the same colour.
    swatches = {} if len(groups) > len(SERIES) else clip_map.colours
    low, high = clip_map.points.min(0), clip_map.points.max(0)
    share = (clip_map.points - low) / np.maximum(high - low, 1e-12)
    places = (np.array([16, 704]) + share * [968, -688]).round(1)
    colours = np.full(len(places), "s1", object)
    for group, rows in groups.items():
        colours[rows] = swatches.get(group, "s1")
    words = map(clip_map.clips.words, clip_map.ids)
    about = {"title": clip_map.title, "link": clip_map.clips.link}
    is_large = len(places) > MAX_CIRCLES
    if is_large:  # drawn by the page's script
        picture = fill("canvas", clips=_DATA, **about)
    else:
        picture = fill("dots", dots=_draw_dots(places, colours, words), **about)
    keys = {}
    for noun, rows_of in clip_map.legends.items():
        buttons = [
            fill(
                "key", pressed=str(name == clip_map.film).lower(), clips=" ".join(map(str, rows)),
                colour=swatches.get(name, "none"), name=name, count=f"{len(rows):,}",
            )
            for name, rows in rows_of.items()
        ]  # fmt: skip
        keys[noun] = fill("keys", noun=noun, buttons=Html("".join(buttons)))
    body = fill(
        "map", title=clip_map.title, axes=clip_map.axes, picture=picture, films=keys.pop("film"),
        keys=Html("".join(keys.values())),
    )  # fmt: skip
    style, script = page_part("pages.css"), page_part("map.js")
    before, _, after = document(clip_map.title, body, style=style, script=script).partition(_DATA)
    yield before
    if is_large:
        yield from _clip_json(places, colours, words)
    yield after


def _draw_dots(places: NDArray[np.float64], colours: NDArray[Any], words: Iterable[str]) -> Html:
    dots = [
        fill("dot", colour=colour, x=x, y=y, words=of_clip)
        for colour, (x, y), of_clip in zip(colours, places.tolist(), words, strict=True)
    ]
    return Html("".join(dots))


def _clip_json(
    places: NDArray[np.float64], colours: NDArray[Any], words: Iterable[str]
) -> Iterator[str]:
    """Yield the JSON that the page's script draws, in pieces to save memory."""
    names = [*dict.fromkeys(colours)]
    numbers = {name: number for number, name in enumerate(names)}
    columns: dict[str, Iterable[Any]] = {
        "x": places[:, 0].tolist(), "y": places[:, 1].tolist(), "words": words,
        "colour_of": (numbers[name] for name in colours),
    }  # fmt: skip
    yield f'{{"colours":{script_json(names)}'
    for name, column in columns.items():
        cells, separator = iter(column), f',"{name}":['
        while piece := list(islice(cells, PIECE)):
            yield separator + script_json(piece)[1:-1]
            separator = ","
        yield "]"
    yield "}"


def _rows_by(names: Iterable[Iterable[str]], order: Iterable[str] = ()) -> dict[str, array[int]]:
    """Return the rows of each name, in `order`, or else sorted by name."""
    rows: dict[str, array[int]] = {}
    for row, own in enumerate(names):
        for name in filter(None, own):
            rows.setdefault(name, array("q")).append(row)
    return {name: rows[name] for name in order or sorted(rows) if name in rows}


def _find_groups(
    clips: Clips, ids: Sequence[str], color: str, labels: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return the group of each clip, and the colour of each group."""
    manifest = clips.sources[0]
    columns = manifest.items.columns
    if color in columns:
        cell_of = dict(zip(manifest.ids, columns[color], strict=True))
        if color == "film":
            cell_of = {clip: clips.film(clip) for clip in ids}
        cells = [cell_of.get(clip) or f"no {color}" for clip in ids]
        common = {cell for cell, _ in Counter(cells).most_common(MAX_GROUPS)}
        cells = [cell if cell in common else OTHERS for cell in cells]
        names = dict.fromkeys(sorted(cells) if color == "film" else cells)
        return cells, {name: f"s{n % len(SERIES) + 1}" for n, name in enumerate(names)}
    if len(clips.sources) == 1:
        raise UsageError(f"to colour by {color}, pass the clips' manifest: --manifest MANIFEST")
    scheme = manifest.label_scheme(labels)
    if color == "level":
        colours = dict(clips.levels.values())
        cells = [clips.level(clip)[0] for clip in ids]
    elif scheme.has_concept(color):
        concept = scheme.concept(color)
        colours = {concept: "s2", (without := f"without {concept}"): "line"}
        group_of = {
            clip: concept if concept in marks else without
            for clip, marks in clips.concepts_of.items()
        }
        cells = [group_of.get(clip, "") for clip in ids]
    else:
        choices = [*columns, "level", *scheme.concept_names]
        raise UsageError(unknown_name("column or concept", color, choices))
    return [cell or UNLABELLED for cell in cells], {**colours, UNLABELLED: "soft"}


def _project(store: Store, array: str, method: str) -> tuple[list[str], NDArray[np.float64], str]:
    """Return the ids of the mapped clips, their positions, and a sentence about the axes."""
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}; choose from {', '.join(METHODS)}")
    if method == "pca":
        ids, points, share = _principal_points(store, array)
        axes = (
            f"The two axes show {share:.0%} of the variance, so clips that look close may differ."
        )
        return ids, points, axes
    umap: Any = need("umap", extra="umap")
    blocks = list(_directions(store, array))
    ids = [name for of_block, _ in blocks for name in of_block]
    _need_three(store, ids)
    near = min(15, len(ids) - 1)
    vectors = np.concatenate([vectors for _, vectors in blocks])
    reducer = umap.UMAP(n_neighbors=near, metric="cosine", random_state=0, n_jobs=1)
    return ids, reducer.fit_transform(vectors).astype(np.float64), UMAP_AXES


def _principal_points(store: Store, array: str) -> tuple[list[str], NDArray[np.float64], float]:
    """Return ids, their positions on the two principal axes, and the explained share of variance.

    The store is read twice, one block at a time.
    """
    ids: list[str] = []
    total, products = np.zeros(()), np.zeros(())
    centre: Any = None
    for of_block, vectors in _directions(store, array):
        # Centre the vectors roughly, so that small differences keep their precision.
        centre = vectors.mean(axis=0) if centre is None else centre
        vectors -= centre
        total = total + vectors.sum(axis=0, dtype=np.float64)
        products = products + vectors.T @ vectors
        ids += of_block
    _need_three(store, ids)
    mean = total / len(ids)
    scatter = products - len(ids) * np.outer(mean, mean)
    linalg: Any = need("scipy.linalg", extra="report")
    width = len(scatter)
    sizes, axes = linalg.eigh(scatter, subset_by_index=[width - 2, width - 1])
    axes = axes[:, ::-1]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])  # fixes their directions
    points = [(vectors - (centre + mean)) @ axes for _, vectors in _directions(store, array)]
    return ids, np.concatenate(points), float(sizes.sum() / np.trace(scatter))


def _directions(store: Store, array: str) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Yield ids and normalised vectors, one block at a time, without vectors of zeros."""
    for ids, values in store.iter_blocks([array]):
        vectors = values[array].astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1)
        usable = np.isfinite(lengths) & (lengths > 0)
        if usable.any():
            yield list(compress(ids, usable)), vectors[usable] / lengths[usable, None]


def _need_three(store: Store, ids: Sequence[str]) -> None:
    if len(ids) < 3:
        raise UsageError(f"{store.where}: a map needs at least 3 nonzero vectors (got {len(ids)})")
