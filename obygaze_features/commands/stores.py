"""`obygaze stores`: look into feature stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from obygaze_features.common.commands import echo_json, folder_argument, json_option

__all__ = ["stores"]


@click.group()
def stores() -> None:
    """Look into feature stores.

    \b
    Example:
      obygaze stores info stores/xclip.zarr
    """


@stores.command()
@folder_argument("store")
@json_option
def info(store: Path, as_json: bool) -> None:
    """Say what a store holds: rows, arrays, backbone and fingerprints.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores info stores/xclip.zarr --json
    """
    from obygaze_features.store import describe, open_store

    facts = describe(open_store(store))
    if as_json:
        echo_json(facts)
    else:
        _print(store, facts)


def _print(path: Path, facts: dict[str, Any]) -> None:
    rows, backbone = facts["rows"], facts["backbone"]
    click.echo(f"{path}: {facts['name']}, features of {facts['manifest']}")
    click.echo(
        f"rows       {rows['all']}: {rows['done']} done, {rows['failed']} failed, "
        f"{rows['to_do']} to do"
    )
    click.echo(f"backbone   {backbone['name']}, weights sha256 {backbone['weights_sha256']}")
    click.echo(f"items      digest {facts['items_digest']}")
    click.echo(f"precision  {facts['precision']}")
    click.echo(f"licence    {facts['licence'] or 'not stated'}")
    click.echo("arrays")
    for name, one in facts["arrays"].items():
        shape = " x ".join(map(str, one["shape"]))
        size = f"{one['bytes']:,} B"
        click.echo(f"  {name:<16}{shape:>14}  {one['dtype']:<8}{size:>15}  {one['meaning']}")
    if facts["failures"]:
        click.echo("failed")
        for identifier, reason in facts["failures"].items():
            click.echo(f"  {identifier}: {reason}")
