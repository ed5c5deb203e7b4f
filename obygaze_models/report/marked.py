"""The annotators' marks by film: shares, and the overlap of annotators."""

from __future__ import annotations

from collections import Counter

from obygaze_features.annotations.figures import levels_by_film
from obygaze_features.annotations.film_shares import MarkedFilms, count_shares
from obygaze_features.common.figures import inline_svg
from obygaze_features.manifests import LabelSet, Level
from obygaze_features.page.html import Html
from obygaze_models.report.annotation import Source
from obygaze_models.report.annotators import Annotators


def marked_films(source: Source, annotators: Annotators | None) -> MarkedFilms:
    """Count the shares of each film by annotator, or by the page's labels without annotators."""
    clips, names = source.clips.values(), source.about.levels
    own = [c.id for c in clips], [c.level for c in clips], [c.concepts for c in clips]
    label_sets = [LabelSet("annotators", *own)]
    if annotators is not None and source.manifest is not None:
        label_sets = [*map(source.manifest.labels, annotators.levels)]
    levels = [Level(code, names.get(code, code)) for code in source.positives]
    film_of = {clip.id: clip.film for clip in clips if clip.film}
    return count_shares(label_sets, levels, film_of, {clip.film: clip.title for clip in clips})


def levels_figure(marked: MarkedFilms) -> Html | None:
    """Draw who gives the highest level more often, or return None for one annotator or film."""
    if len(marked.annotators) < 2 or len(marked.films) < 2:
        return None
    return Html(inline_svg(levels_by_film(marked)))


def overlap(source: Source, annotators: Annotators | None) -> list[tuple[int, str, str]]:
    """Divide the clips with the highest level by who gave it, among those that two annotated.

    Each part has its number of clips, who gave them the level, and the class of its colour. The
    clips of a single annotator are on either side of the shared clips.
    """
    if annotators is None:
        return []
    names, levels = [*annotators.levels], source.positives
    gave = [
        tuple(annotators.levels[name].get(clip) in levels for name in names)
        for clip in annotators.differ
    ]
    if len(names) == 2:
        counts = Counter(gave)
        parts = [
            (counts[True, False], f"only {names[0]}", "s1"),
            (counts[True, True], "both", "both"),
            (counts[False, True], f"only {names[1]}", "s2"),
        ]
    else:
        by_number, all_of_them = Counter(map(sum, gave)), len(names)
        parts = [
            (by_number[n], f"{n} of {all_of_them} annotators", f"n{min(n, 6)}")
            for n in range(all_of_them, 0, -1)
        ]
    return parts if any(clips for clips, *_ in parts) else []
