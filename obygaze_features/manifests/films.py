"""The twelve films of ObyGaze12."""

from __future__ import annotations

from functools import cache

from obygaze_features.common.reference import reference_file
from obygaze_features.common.tables import read_table

__all__ = ["film_titles"]


@cache
def film_titles() -> dict[str, str]:
    """IMDb id -> title and year."""
    table = read_table(reference_file("films.csv"))
    return {
        film: f"{title} ({year})"
        for film, title, year in zip(table["film"], table["title"], table["year"], strict=True)
    }
