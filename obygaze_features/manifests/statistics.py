"""The dataset in figures: levels, concepts a clip, concepts within levels (the paper's fig. 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.tables import align
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.labels import LabelSet
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
    scheme = manifest.scheme
    if scheme is None:
        raise ManifestError(f"the manifest {manifest.name!r} has no label scheme")
    film_of = {i: manifest.items.films[manifest.items.row(i)] for i in label_set.ids}
    films = [
        (film, [i for i in label_set.ids if film_of[i] == film])
        for film in sorted(set(film_of.values()))
    ]
    return Statistics(
        manifest.name,
        label_set.name,
        split,
        scheme,
        _count(label_set, scheme),
        {film: _count(label_set.where(set(ids).__contains__), scheme) for film, ids in films},
    )


def describe(found: Statistics, titles: Mapping[str, str], *, by_film: bool = False) -> str:
    """The figures as tables for a terminal."""
    codes, every = found.scheme.codes, found.all
    names = {level.code: level.name for level in found.scheme.levels}
    within = f", within the split {found.split!r}" if found.split else ""
    parts = [
        f"{found.manifest}, labels {found.labels!r}{within}: "
        f"{every.total:,} clips of {len(found.films)} films",
        align(
            ["level", "", "clips", "share", "concepts/clip"],
            [
                [
                    code,
                    names[code] if names[code] != code else "",
                    every.levels[code],
                    f"{every.share(code):.1%}",
                    f"{every.concepts_per_item(code):.4f}",
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
                    [name, *(f"{every.concept_rate(code, name):.1%}" for code in codes)]
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


def _count(labels: LabelSet, scheme: LabelScheme) -> Counts:
    levels = Counter(labels.levels)
    concepts: dict[str, Counter[str]] = {code: Counter() for code in scheme.codes}
    for level, names in zip(labels.levels, labels.concepts, strict=True):
        concepts[level].update(names)
    return Counts({code: levels[code] for code in scheme.codes}, concepts)


def _rate(count: int, of: int) -> float:
    return count / of if of else 0.0
