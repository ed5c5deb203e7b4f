"""The dataset in figures: levels, concepts a clip, concepts within levels (the paper's fig. 2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.scheme import LabelScheme

__all__ = ["Counts", "Statistics", "describe", "statistics"]


@dataclass(frozen=True)
class Counts:
    """How often each level occurs, and each concept within each level."""

    levels: Mapping[str, int]
    concepts: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> int:
        """All labelled items."""
        return sum(self.levels.values())

    def share(self, level: str) -> float:
        """The share of a level among all labelled items."""
        return self.levels[level] / self.total if self.total else 0.0

    def concepts_per_item(self, level: str) -> float:
        """The mean number of concepts of a level's items."""
        return _rate(sum(self.concepts[level].values()), self.levels[level])

    def concept_rate(self, level: str, concept: str) -> float:
        """The share of a level's items that have a concept."""
        return _rate(self.concepts[level].get(concept, 0), self.levels[level])


@dataclass(frozen=True)
class Statistics:
    """The figures of one label set, of all its items and of each film's."""

    manifest: str
    labels: str
    split: str | None
    scheme: LabelScheme
    all: Counts
    films: Mapping[str, Counts]

    @property
    def concepts(self) -> list[str]:
        """The concepts that occur, in the scheme's order."""
        seen = {name for counts in self.all.concepts.values() for name in counts}
        return [name for name in self.scheme.concept_names if name in seen]

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            "manifest": self.manifest,
            "labels": self.labels,
            "split": self.split,
            **self._counts(self.all),
            "films": {film: self._counts(counts) for film, counts in self.films.items()},
        }

    def _counts(self, counts: Counts) -> dict[str, Any]:
        return {
            "items": counts.total,
            "levels": {
                code: {
                    "count": counts.levels[code],
                    "share": counts.share(code),
                    "concepts_per_item": counts.concepts_per_item(code),
                    "concept_rates": {c: counts.concept_rate(code, c) for c in self.concepts},
                }
                for code in self.scheme.codes
            },
        }


def statistics(
    manifest: Manifest, labels: str | None = None, *, split: str | None = None
) -> Statistics:
    """Count a label set; with `split`, only the items that the split has."""
    label_set = manifest.labels(labels)
    if split is not None:
        label_set = label_set.where(manifest.split(split).fold_of.__contains__)
    scheme = manifest.label_scheme(labels)
    codes = scheme.codes
    every, films = _Tally(codes), defaultdict[str, _Tally](lambda: _Tally(codes))
    for identifier, level, concepts in zip(
        label_set.ids, label_set.levels, label_set.concepts, strict=True
    ):
        film = manifest.items.films[manifest.items.row(identifier)]
        for tally in (every, films[film]):
            tally.add(level, concepts)
    return Statistics(
        manifest.name,
        label_set.name,
        split,
        scheme,
        every.counts(),
        {film: films[film].counts() for film in sorted(films)},
    )


class _Tally:
    """Counts on their way."""

    def __init__(self, codes: tuple[str, ...]) -> None:
        self.levels = dict.fromkeys(codes, 0)
        self.concepts: dict[str, Counter[str]] = {code: Counter() for code in codes}

    def add(self, level: str, concepts: tuple[str, ...]) -> None:
        self.levels[level] += 1
        self.concepts[level].update(concepts)

    def counts(self) -> Counts:
        return Counts(self.levels, self.concepts)


def describe(found: Statistics, titles: Mapping[str, str], *, by_film: bool = False) -> str:
    """The figures as tables for a terminal."""
    codes, every = found.scheme.codes, found.all
    names = {level.code: level.name for level in found.scheme.levels}
    within = f", within the split {found.split!r}" if found.split else ""
    films = len(found.films.keys() - {""})
    of = f" of {counted(films, 'film')}" if films or not found.films else ""
    parts = [
        f"{found.manifest}, labels {found.labels!r}{within}: {counted(every.total, 'clip')}{of}",
        align(
            ["level", "", "clips", "share", "concepts/clip"],
            [
                [
                    code,
                    names[code] if names[code] != code else "",
                    every.levels[code],
                    f"{every.share(code):.1%}",
                    f"{every.concepts_per_item(code):.4f}" if every.levels[code] else "–",
                ]
                for code in codes
            ],
            left=2,
        ),
    ]
    if found.concepts:
        parts.append(
            "share of each level's clips that have a concept\n\n"
            + align(
                ["concept", *codes],
                [
                    [
                        name,
                        *(
                            f"{every.concept_rate(code, name):.1%}" if every.levels[code] else "–"
                            for code in codes
                        ),
                    ]
                    for name in found.concepts
                ],
            )
        )
    if by_film:
        parts.append(
            align(
                ["film", "", "clips", *(f"{part}{c}" for c in codes for part in ("", "% "))],
                [
                    [film, titles.get(film, ""), counts.total, *_by_level(counts, codes)]
                    for film, counts in found.films.items()
                ],
                left=2,
            )
        )
    return "\n\n".join(parts)


def _by_level(counts: Counts, codes: tuple[str, ...]) -> list[str]:
    return [text for c in codes for text in (str(counts.levels[c]), f"{counts.share(c):.0%}")]


def _rate(count: int, of: int) -> float:
    return count / of if of else 0.0
