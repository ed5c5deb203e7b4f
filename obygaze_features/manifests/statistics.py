"""A manifest in numbers: levels, concepts per clip, concepts within levels (the paper's fig. 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted
from obygaze_features.items.films import film_titles
from obygaze_features.manifests.labels import LabelScheme
from obygaze_features.manifests.manifest import Manifest


@dataclass(frozen=True)
class Counts:
    """The numbers of items of each level, and of each concept within each level."""

    levels: dict[str, int]
    concepts: dict[str, Counter[str]]

    @property
    def total(self) -> int:
        """All labelled items."""
        return sum(self.levels.values())

    def share(self, level: str) -> float:
        """Return the share of a level among all labelled items."""
        return self.levels[level] / (self.total or 1)

    def concepts_per_item(self, level: str) -> float:
        """Return the mean number of concepts of a level's items."""
        return sum(self.concepts[level].values()) / (self.levels[level] or 1)

    def concept_rate(self, level: str, concept: str) -> float:
        """Return the share of a level's items that have a concept."""
        return self.concepts[level][concept] / (self.levels[level] or 1)


@dataclass(frozen=True)
class Statistics:
    """The numbers of one label set, for all its items and for each film."""

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
        """Return the numbers as JSON."""
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
    film_of = dict(zip(manifest.ids, manifest.items.films, strict=True))

    def no_counts() -> Counts:
        return Counts(dict.fromkeys(scheme.codes, 0), {code: Counter() for code in scheme.codes})

    total = no_counts()
    films = {film: no_counts() for film in sorted({film_of[i] for i in label_set.ids})}
    for identifier, level in label_set.level_of.items():
        for counts in (total, films[film_of[identifier]]):
            counts.levels[level] += 1
            counts.concepts[level].update(label_set.concepts_of[identifier])
    return Statistics(manifest.name, label_set.name, split, scheme, total, films)


def describe_statistics(
    stats: Statistics, titles: Mapping[str, str], *, by_film: bool = False
) -> str:
    """Return the numbers as tables for a terminal."""
    codes, total, name_of = stats.scheme.codes, stats.all, stats.scheme.name_of
    in_split = f", within the split {stats.split!r}" if stats.split else ""
    films = len(stats.films.keys() - {""})
    of_films = f" of {counted(films, 'film')}" if films or not stats.films else ""
    level_rows = [
        [
            code,
            name_of[code] if name_of[code] != code else "",
            total.levels[code],
            f"{total.share(code):.1%}",
            f"{total.concepts_per_item(code):.2f}" if total.levels[code] else "–",
        ]
        for code in codes
    ]
    parts = [
        f"{stats.manifest}, labels {stats.labels!r}{in_split}: "
        f"{counted(total.total, 'clip')}{of_films}",
        align(["level", "", "clips", "share", "concepts/clip"], level_rows, left=2),
    ]
    if stats.concepts:
        concept_rows = [
            [
                name,
                *(f"{total.concept_rate(c, name):.1%}" if total.levels[c] else "–" for c in codes),
            ]
            for name in stats.concepts
        ]
        table = align(["concept", *codes], concept_rows)
        parts.append(f"share of each level's clips that have a concept\n\n{table}")
    if by_film:
        film_rows = []
        for film, counts in stats.films.items():
            shares = [text for c in codes for text in (counts.levels[c], f"{counts.share(c):.0%}")]
            film_rows.append([film, titles.get(film, ""), counts.total, *shares])
        header = ["film", "", "clips", *(f"{part}{c}" for c in codes for part in ("", "% "))]
        parts.append(align(header, film_rows, left=2))
    return "\n\n".join(parts)


def describe_manifest(manifest: Manifest) -> dict[str, Any]:
    """Return the header, the counts, and the names of label sets, splits and runs."""
    films = sorted(set(manifest.items.films) - {""})
    facts: dict[str, Any] = {
        "name": f"{manifest.name}, version {manifest.version}",
        "items": f"{len(manifest):,} ({', '.join(sorted(set(manifest.items.kinds)))})",
        "films": f"{len(films)}: {', '.join(films[:6])}{' ...' if len(films) > 6 else ''}"
        if films
        else "",
        "without media": sum(not name for name in manifest.items.media),
        "label sets": ", ".join(
            f"{name}{' (default)' if name == manifest.default_labels else ''}"
            for name in manifest.label_names
        ),
        "splits": ", ".join(manifest.split_names),
        "runs": ", ".join(manifest.run_names),
        "extra columns": ", ".join(manifest.items.extra),
        "digest": manifest.digest,
        "source": manifest.source,
        "licence": manifest.licence,
        "citation": manifest.citation,
    }
    return {name: value for name, value in facts.items() if value not in ("", 0)}


def describe_item(manifest: Manifest, identifier: str) -> dict[str, Any]:
    """Return all facts about one item."""
    item = manifest[identifier]
    row = manifest.items.row(identifier)
    facts: dict[str, Any] = {**vars(item)}
    facts["title"] = film_titles(manifest.items).get(item.film)
    for name in manifest.label_names:
        labels = manifest.labels(name)
        if identifier in labels.level_of:
            concepts = ", ".join(labels.concepts_of[identifier])
            facts[f"labels {name}"] = f"{labels.level_of[identifier]} {concepts}".strip()
            index = labels.ids.index(identifier)
            facts |= {
                key: values[index]
                for key, values in labels.extra.items()
                if key not in ("raw_label", "raw_concepts")
            }
    for name in manifest.split_names:
        fold = manifest.split(name).fold_of.get(identifier)
        if fold is not None:
            facts[f"split {name}"] = f"fold {fold}"
    facts |= {name: values[row] for name, values in manifest.items.extra.items()}
    return {name: value for name, value in facts.items() if value not in ("", None)}
