"""What is marked in which film, and by whom: shares by film, and the overlap of annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from obygaze_features.annotations.film_figures import levels_by_film
from obygaze_features.annotations.film_shares import FilmShares, MarkedFilms, count_shares
from obygaze_features.common.figures import SERIES, inline_svg
from obygaze_features.manifests import LabelSet, Level
from obygaze_features.page.html import Html, html
from obygaze_models.report.annotation import Source
from obygaze_models.report.annotators import Annotators

WIDTH, HEIGHT = 100, 14


@dataclass(frozen=True)
class Part:
    """A part of a bar: how many clips, who gave them the level, and the class of its colour."""

    clips: int
    words: str
    colour: str


def marked_films(source: Source, annotators: Annotators | None) -> MarkedFilms:
    """Count the shares of each film; without annotators of their own, by the page's labels."""
    clips, names = source.clips.values(), source.about.levels
    label_sets = [
        LabelSet(
            "annotators", [c.id for c in clips], [c.level for c in clips],
            [c.concepts for c in clips],
        )
    ]  # fmt: skip
    if annotators is not None and source.manifest is not None:
        label_sets = [*map(source.manifest.labels, annotators.levels)]
    levels = [Level(code, names.get(code, code)) for code in source.positives]
    film_of = {clip.id: clip.film for clip in clips if clip.film}
    return count_shares(label_sets, levels, film_of, {clip.film: clip.title for clip in clips})


def levels_figure(marked: MarkedFilms) -> Html | None:
    """Draw who gives the highest level more often, with its data; None of one annotator or film."""
    if len(marked.annotators) < 2 or len(marked.films) < 2:
        return None
    link = data_link(marked.levels_csv(), "level_shares.csv")
    svg = Html(inline_svg(levels_by_film(marked)))
    return html("{}<figcaption>{}</figcaption>", svg, link)


def data_link(table: str, name: str) -> Html:
    """Return a link that saves a CSV table."""
    address = f"data:text/csv;charset=utf-8,{quote(table)}"
    return html('<a href="{}" download="{}">The data as CSV</a>', address, name)


def dumbbell(film: FilmShares, marked: MarkedFilms) -> Html:
    """Draw a film's shares as a dot an annotator; its number, for sorting, is the difference."""
    most = max(max(other.level.values()) for other in marked.films) or 1.0
    places = {name: 4 + (WIDTH - 8) * share / most for name, share in film.level.items()}
    dots = [
        html(
            '<circle class="s{}" cx="{}" cy="7" r="4"/>',
            1 + marked.annotators.index(name) % len(SERIES), f"{place:.1f}",
        )
        for name, place in places.items()
    ]  # fmt: skip
    words = ", ".join(f"{name} {share:.0%}" for name, share in film.level.items())
    line = f"M{min(places.values()):.1f} 7H{max(places.values()):.1f}"
    return html(
        '<data value="{}"><svg class="dumbbell" viewBox="0 0 {} {}" role="img">'
        '<title>{}</title><path d="{}"/>{}</svg></data>',
        f"{marked.difference(film):.4f}", WIDTH, HEIGHT, words, line, Html("".join(dots)),
    )  # fmt: skip


def overlap(source: Source, annotators: Annotators | None) -> Sequence[Part]:
    """Divide the clips with the highest level by who gave it, of those that two annotated.

    Two annotators have their own clips on either side of those that they share.
    """
    if annotators is None:
        return []
    names, levels = [*annotators.levels], {*source.positives}
    counts = Counter(
        tuple(name for name in names if annotators.levels[name].get(clip) in levels)
        for clip in annotators.differ
    )
    del counts[()]
    if len(names) == 2:
        first, second = names
        parts = [
            Part(counts[first,], f"only {first}", "s1"),
            Part(counts[first, second], "both", "both"),
            Part(counts[second,], f"only {second}", "s2"),
        ]
    else:
        by_number = Counter[int]()
        for who, clips in counts.items():
            by_number[len(who)] += clips
        steps = range(len(names), 0, -1)
        parts = [
            Part(by_number[n], f"{n} of {len(names)} annotators", f"n{min(n, 6)}") for n in steps
        ]
    return parts if sum(counts.values()) else []
