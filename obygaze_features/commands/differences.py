"""`obygaze stores diff`: whether two stores hold the same features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import echo_json, json_option, store_argument
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, join_some, redact_url

if TYPE_CHECKING:
    from obygaze_features.store.compare import Difference

__all__ = ["diff"]

MOST_KEYS = 8
"""Keys of a table within an attribute that are shown."""
WIDEST = 40
"""Letters of a value that are shown."""


@click.command()
@store_argument("left")
@store_argument("right")
@json_option
def diff(left: Path | str, right: Path | str, as_json: bool) -> None:
    """Compare two stores: attributes, probes, and the rows of common ids.

    Rows are compared by cosine: 1 means the same direction. Two labs whose probes have a cosine
    close to 1 speak of the same features. Ends with exit code 1 if there is any difference.

    \b
    Examples:
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr --json
    """
    from obygaze_features.store import diff as compare
    from obygaze_features.store import open_store

    found = compare(open_store(left), open_store(right))
    if as_json:
        echo_json(found.to_json())
    else:
        _print_difference(found, redact_url(left), redact_url(right))
    if not found.identical:
        click.get_current_context().exit(1)


def _print_difference(found: Difference, left: str, right: str) -> None:
    if found.identical:
        click.echo(f"{left} and {right} are identical")
        return
    if found.attributes:
        apart = [
            row
            for name, both_values in found.attributes.items()
            for row in _apart(name, *both_values)
        ]
        click.echo(align(["made with", left, right], apart, left=3))
    if found.probe or found.rows:
        click.echo(_agreements(found))
    for name, rows in found.rows.items():
        if rows.worst:
            worst = ", ".join(f"{one} ({cosine:.6f})" for one, cosine in rows.worst)
            click.echo(f"{name}, least alike: {worst}")
    for path, only in ((left, found.only_left), (right, found.only_right)):
        if only:
            click.echo(f"done only in {path}: {counted(len(only), 'row')}, {join_some(only)}")


def _agreements(found: Difference) -> str:
    header = ["array", "probe cosine", "common rows", "equal", "mean cosine", "least"]
    table = [
        [
            name,
            _cosine(found.probe.get(name)),
            f"{rows.n:,}",
            f"{rows.equal:,}",
            _cosine(rows.mean),
            _cosine(rows.least),
        ]
        for name, rows in found.rows.items()
    ]
    return align(header, table)


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def _apart(name: str, left: object, right: object) -> list[list[str]]:
    """What differs, and its two values; of tables each key, or how many where they are many."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
        rows = [
            row for key in keys for row in _apart(f"{name}.{key}", left.get(key), right.get(key))
        ]
        if "." not in name or len(rows) <= MOST_KEYS:
            return rows
        return [[name, counted(len(rows), "difference"), "(--json shows them)"]]
    return [[name, _brief(left), _brief(right)]]


def _brief(value: object) -> str:
    if isinstance(value, Mapping):
        return "other" if value else "-"
    text = "-" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."
