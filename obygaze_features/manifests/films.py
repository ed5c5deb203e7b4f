"""The titles of films: ObyGaze12's twelve, and those that a manifest's source names."""

from __future__ import annotations

from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import read_table
from obygaze_features.manifests.manifest import Manifest

__all__ = ["film_titles"]


def film_titles(manifest: Manifest) -> dict[str, str]:
    """Film id -> title."""
    table = read_table(reference_file("films.csv"))
    known = {
        film: f"{title} ({year})"
        for film, title, year in zip(table["film"], table["title"], table["year"], strict=True)
    }
    named = manifest.items.extra.get("movie_title", [])
    return dict(zip(manifest.items.films, named, strict=False)) | known
