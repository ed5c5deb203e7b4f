"""Counts of a manifest's levels and concepts, as in the paper's figure 2."""

from __future__ import annotations

from collections import Counter
from typing import Any

from obygaze_features.items.films import film_titles
from obygaze_features.manifests.manifest import Manifest

Row = dict[str, Any]


def statistics(manifest: Manifest, labels: str | None = None) -> dict[str, list[Row]]:
    """Count a label set's clips by level, by concept and by film.

    Returns three tables. ``levels`` has a row for each level: its clips, their share of the set's
    clips, and their mean number of concepts. ``concepts`` has a row for each concept that any clip
    has: the share of each level's clips that have it. ``by_film`` has each film's clips of each
    level.
    """
    label_set = manifest.labels(labels)
    scheme = manifest.label_scheme(labels)
    items = manifest.items
    clips = Counter(label_set.levels)
    marked = Counter[tuple[str, str]]()
    in_films = Counter[tuple[str, str]]()
    for id_, level in label_set.level_of.items():
        for concept in label_set.concepts_of[id_]:
            marked[level, concept] += 1
        film = items.films[items.row(id_)]
        in_films[film, level] += 1

    by_level = []
    for code, name in scheme.name_of.items():
        concepts_of_level = sum(marked[code, concept] for concept in scheme.concept_names)
        row = {"level": code, "name": name, "clips": clips[code]}
        row["share"] = clips[code] / (clips.total() or 1)
        row["concepts_per_clip"] = concepts_of_level / (clips[code] or 1)
        by_level.append(row)

    by_concept = []
    for concept in scheme.concept_names:
        shares = {code: marked[code, concept] / (clips[code] or 1) for code in scheme.codes}
        if any(shares.values()):
            by_concept.append({"concept": concept} | shares)

    by_film = []
    titles = film_titles(items)
    for film in sorted({film for film, _ in in_films}):
        levels = {code: in_films[film, code] for code in scheme.codes}
        title = titles[film]
        if title == film:
            title = ""
        by_film.append({"film": film, "title": title, "clips": sum(levels.values())} | levels)
    return {"levels": by_level, "concepts": by_concept, "by_film": by_film}


def manifest_facts(
    manifest: Manifest,
    labels: str | None,
    *,
    by_film: bool,
) -> dict[str, Any]:
    """Return what a manifest contains, and the `statistics` of a label set."""
    facts = manifest.header()
    del facts["label_scheme"]
    facts |= {
        "kinds": sorted(set(manifest.items.kinds)),
        "films": sorted(set(manifest.items.films) - {""}),
        "without_media": manifest.items.media.count(""),
        "label_sets": manifest.label_names,
        "splits": manifest.split_names,
        "runs": manifest.run_names,
        "extra_columns": list(manifest.items.extra),
    }
    if labels or manifest.default_labels or len(manifest.label_names) == 1:
        facts["counted_labels"] = manifest.labels(labels).name
        facts |= statistics(manifest, labels)
        if not by_film:
            del facts["by_film"]
    return facts
