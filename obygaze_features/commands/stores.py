"""`obygaze stores`: look into feature stores, check, finalise, join and compare them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from obygaze_features.commands.assembly import merge, subset
from obygaze_features.commands.differences import diff
from obygaze_features.commands.soundness import repair, verify
from obygaze_features.commands.stores_transfer import (
    export,
    import_,
    pack,
    pull,
    push,
    serve,
    unpack,
)
from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, redact_url

__all__ = ["stores"]


@click.group()
def stores() -> None:
    """Look into feature stores, check, finalise, join and compare them.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores verify stores/xclip.zarr
      obygaze stores finalise stores/xclip.zarr
    """


@stores.command()
@store_argument("store")
@json_option
def info(store: Path | str, as_json: bool) -> None:
    """Say what a store holds: rows, arrays, backbone and fingerprints.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores info stores/xclip.zarr --json
      obygaze stores info https://lab.example/xclip.zarr
    """
    from obygaze_features.store import describe, open_store

    facts = describe(open_store(store))
    if as_json:
        echo_json(facts)
    else:
        _print(store, facts)


@stores.command()
@folder_argument("store")
@click.option("--compress", is_flag=True, help="Compress each chunk; smaller, slower to read.")
@click.option(
    "--allow-incomplete", is_flag=True, help="Go on although blocks are missing, without them."
)
@json_option
def finalise(store: Path, compress: bool, allow_incomplete: bool, as_json: bool) -> None:
    """Make a filled store one of few files, with a dataset card, read-only.

    The small files of the extraction are joined into large ones, each held to its checksum on the
    way. README.md and croissant.json describe the data, checksums.json lists every file. A store
    that is final already is left as it is.

    \b
    Examples:
      obygaze stores finalise stores/xclip.zarr
      obygaze stores finalise stores/xclip.zarr --compress
    """
    from obygaze_features.store import finalise as make_final

    made = make_final(store, compress=compress, allow_incomplete=allow_incomplete)
    if as_json:
        echo_json({**asdict(made), "path": str(made.path)})
        return
    final = "final already" if made.already else "final"
    click.echo(
        f"{made.path} is {final}: {made.done:,} of {counted(made.rows, 'row')} done, "
        f"{counted(made.files, 'file')}, {made.size:,} B"
    )
    if not made.already:
        click.echo(f"card -> {made.path / 'README.md'}")


def _print(path: object, facts: dict[str, Any]) -> None:
    rows, backbone = facts["rows"], facts["backbone"]
    click.echo(f"{redact_url(path)}: {facts['name']}, features of {facts['manifest']}")
    click.echo(f"state      {facts['state']}")
    click.echo(
        f"rows       {rows['all']}: {rows['done']} done, {rows['failed']} failed, "
        f"{rows['to_do']} to do"
    )
    click.echo(f"backbone   {backbone['name']}, weights sha256 {backbone['weights_sha256']}")
    if synthetic := backbone.get("config", {}).get("synthetic"):
        click.echo(f"SYNTHETIC  {synthetic}")
    made = facts["preprocessing"]
    sampling = "none, of images and texts" if "texts" in made else "not stated"
    click.echo(f"frames     {made.get('sampling', sampling)}; preprocessing {made.get('mode')}")
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
    click.echo(f"next: {_next_step(path, facts)}")


def _next_step(path: object, facts: dict[str, Any]) -> str:
    if facts["state"] == "final":
        return f"obygaze stores verify {for_shell(path)} (reads everything again)"
    if "://" in str(path):
        return (
            "ask whoever offers it to finalise it, or take what is done with: "
            f"obygaze stores subset {for_shell(path)} --films FILM,... -o NAME.zarr"
        )
    if facts["rows"]["to_do"]:
        return "run the extraction again, it goes on where it was; or join parts: stores merge"
    return f"obygaze stores finalise {for_shell(path)} (few files, a card, read-only)"


for command in (
    verify, repair, subset, merge, diff, pack, unpack, export, import_, push, pull, serve,
):  # fmt: skip
    stores.add_command(command)
