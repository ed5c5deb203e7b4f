"""The share of each film's clips that annotators mark with a level or a concept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from obygaze_features.common.tables import format_rows
from obygaze_features.manifests import LabelSet, Level


@dataclass(frozen=True)
class FilmShares:
    """The shares of a film's clips that have a level or a concept.

    Parameters
    ----------
    film, title
        The film's id and title.
    clips
        The number of clips that were counted.
    level
        The share of clips with the level, by annotator.
    concepts
        The share of clips with each concept, averaged over annotators.
    """

    film: str
    title: str
    clips: int
    level: Mapping[str, float]
    concepts: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class MarkedFilms:
    """The shares of several films; `level` is the name of the level that was counted."""

    level: str
    films: Sequence[FilmShares]

    @cached_property
    def annotators(self) -> list[str]:
        """All annotators, in order of first appearance."""
        return list(dict.fromkeys(name for film in self.films for name in film.level))

    @cached_property
    def by_marks(self) -> list[FilmShares]:
        """The films, sorted by the number of concepts per clip, highest first."""
        return sorted(self.films, key=lambda film: -sum(film.concepts.values()))

    @cached_property
    def concepts(self) -> list[str]:
        """The concepts that are marked in any film, most frequent first."""
        clips = dict[str, float]()
        for film in self.films:
            for name, share in film.concepts.items():
                clips[name] = clips.get(name, 0.0) + share * film.clips
        return sorted(clips, key=lambda name: -clips[name])

    def concepts_csv(self) -> str:
        """Return a CSV table of the share of clips that have each concept, by film and concept."""
        names = self.concepts
        return format_rows(
            {**_named(film), **{name: film.concepts.get(name, 0.0) for name in names}}
            for film in self.by_marks
        )


def _named(film: FilmShares) -> dict[str, Any]:
    return {"film": film.film, "title": film.title, "clips": film.clips}


def count_shares(
    label_sets: Sequence[LabelSet],
    levels: Sequence[Level],
    film_of: Mapping[str, str],
    titles: Mapping[str, str],
) -> MarkedFilms:
    """Compute the shares of each film's clips that have one of the levels, or each concept.

    Parameters
    ----------
    label_sets
        The annotators' label sets. If there are several, only clips with at least two annotators
        are counted.
    levels
        The levels to count, such as the highest.
    film_of, titles
        The film of each clip, and the title of each film.
    """
    codes = {level.code for level in levels}
    annotated = Counter(clip for labels in label_sets for clip in labels.ids)
    clips_of: dict[str, list[str]] = {}
    for clip, film in film_of.items():
        if annotated[clip] >= min(2, len(label_sets)):
            clips_of.setdefault(film, []).append(clip)
    films = []
    for film, clips in clips_of.items():
        level, concepts = dict[str, float](), dict[str, list[float]]()
        for labels in label_sets:
            own = [clip for clip in clips if clip in labels.level_of]
            if not own:
                continue
            level[labels.name] = fmean(labels.level_of[clip] in codes for clip in own)
            marks = Counter(name for clip in own for name in labels.concepts_of[clip])
            for name, number in marks.items():
                concepts.setdefault(name, []).append(number / len(own))
        means = {name: sum(shares) / len(level) for name, shares in concepts.items()}
        title = titles.get(film) or film or "-"
        films.append(FilmShares(film, title, len(clips), level, means))
    return MarkedFilms(" or ".join(level.name for level in levels), films)
