"""What a manifest holds, in a few lines."""

from __future__ import annotations

from typing import Any

from obygaze_features.manifests.films import film_titles
from obygaze_features.manifests.manifest import Manifest

__all__ = ["describe", "describe_item"]


def describe(manifest: Manifest) -> dict[str, Any]:
    """The header, the counts, and what hangs on the items."""
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
    """All that is known of one item."""
    item = manifest[identifier]
    row = manifest.items.row(identifier)
    facts: dict[str, Any] = {**vars(item)}
    facts["title"] = film_titles(manifest).get(item.film)
    for name in manifest.label_names:
        labels = manifest.labels(name)
        if identifier in labels.level_of:
            concepts = ", ".join(labels.concepts_of[identifier])
            facts[f"labels {name}"] = f"{labels.level_of[identifier]} {concepts}".strip()
            place = labels.ids.index(identifier)
            facts |= {
                key: values[place]
                for key, values in labels.extra.items()
                if key not in ("raw_label", "raw_concepts")
            }
    for name in manifest.split_names:
        fold = manifest.split(name).fold_of.get(identifier)
        if fold is not None:
            facts[f"split {name}"] = f"fold {fold}"
    facts |= {name: values[row] for name, values in manifest.items.extra.items()}
    return {name: value for name, value in facts.items() if value not in ("", None)}
